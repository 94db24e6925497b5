//! Layers with a value of their own on each worker, which need be neither `Send` nor `Sync`.

use std::future::Future;
use std::sync::Arc;

use super::{Decision, Layer, Next};
use crate::app::into_response::IntoResponse;
use crate::app::request::{OwnedRequest, Request};
use crate::app::worker_local::{LayerKey, LayerLocal, WorkerContext};

/// Like [`layer::around`](super::around), with a clone of the value that `make` returned on the request's
/// worker.
///
/// Outside of a worker (an application that is called without a server) each call gets a value made for it
/// alone.
#[cfg_attr(not(feature = "tower"), allow(dead_code, reason = "layers of `tower` are such layers"))]
pub(crate) fn around_per_worker<T, M, F, Fut>(make: M, function: F) -> Layer
where
    T: Clone + 'static,
    M: Fn() -> T + Send + Sync + 'static,
    F: Fn(T, OwnedRequest, Next) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoResponse> + 'static,
{
    let (key, make) = (LayerKey::next(), Arc::new(make));
    let made = Arc::clone(&make);
    let local = move || LayerLocal::new(key, made());
    let layer = Layer { per_worker: Some((key, Arc::new(local))), ..Layer::new() };
    layer.around(move |request, next| {
        let value = WorkerContext::of_layer::<T>(key).unwrap_or_else(|| make());
        function(value, request, next)
    })
}

/// Like [`layer::on_request`](super::on_request), with a clone of the value that `make` returned on the request's worker.
///
/// Outside of a worker each call gets a value made for it alone.
#[cfg_attr(
    not(feature = "jwt"),
    allow(dead_code, reason = "tokens are remembered by such a layer")
)]
pub(crate) fn on_request_per_worker<T, M, F, D>(make: M, function: F) -> Layer
where
    T: Clone + 'static,
    M: Fn() -> T + Send + Sync + 'static,
    F: Fn(&T, &Request<'_>) -> D + Send + Sync + 'static,
    D: Decision + 'static,
{
    let (key, make) = (LayerKey::next(), Arc::new(make));
    let made = Arc::clone(&make);
    let local = move || LayerLocal::new(key, made());
    let layer = Layer { per_worker: Some((key, Arc::new(local))), ..Layer::new() };
    layer.on_request(move |request: &Request<'_>| {
        let value = WorkerContext::of_layer::<T>(key).unwrap_or_else(|| make());
        function(&value, request)
    })
}
