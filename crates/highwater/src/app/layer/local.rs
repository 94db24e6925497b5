//! Asynchronous layers with a value of their own on each worker, which need be neither `Send` nor `Sync`.

use std::future::Future;
use std::marker::PhantomData;

use super::{Layer, LayerFuture, Next, Parts};
use crate::app::finisher::ResponseFinisher;
use crate::app::into_response::IntoResponse;
use crate::app::request::OwnedRequest;
use crate::app::worker_local::{LayerKey, LayerLocal, WorkerContext};

/// Like [`layer::around`](super::around), with a clone of the value that `make` returned on the request's
/// worker.
///
/// Outside of a worker (an application that is called without a server) each call gets a value made for it
/// alone.
#[cfg_attr(not(feature = "tower"), allow(dead_code, reason = "layers of `tower` are such layers"))]
pub(crate) fn around_per_worker<T, M, F, Fut>(make: M, function: F) -> impl Layer
where
    T: Clone + 'static,
    M: Fn() -> T + Send + Sync + 'static,
    F: Fn(T, OwnedRequest, Next) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoResponse> + 'static,
{
    AroundPerWorker { key: LayerKey::next(), make, function, types: PhantomData }
}

struct AroundPerWorker<T, M, F, Fut> {
    key: LayerKey,
    make: M,
    function: F,
    types: PhantomData<fn() -> (T, Fut)>,
}

impl<T, M, F, Fut> AroundPerWorker<T, M, F, Fut>
where
    T: Clone + 'static,
    M: Fn() -> T,
    F: Fn(T, OwnedRequest, Next) -> Fut,
{
    fn call(&self, request: OwnedRequest, next: Next) -> Fut {
        let value = WorkerContext::of_layer::<T>(self.key).unwrap_or_else(&self.make);
        (self.function)(value, request, next)
    }
}

impl<T, M, F, Fut> Layer for AroundPerWorker<T, M, F, Fut>
where
    T: Clone + 'static,
    M: Fn() -> T + Send + Sync + 'static,
    F: Fn(T, OwnedRequest, Next) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoResponse> + 'static,
{
    fn parts(&self) -> Parts {
        Parts::AROUND
    }

    fn around(&self, request: OwnedRequest, next: Next) -> LayerFuture {
        let future = self.call(request, next);
        Box::pin(async move { future.await.into_response() })
    }

    fn per_worker(&self) -> Option<LayerLocal> {
        Some(LayerLocal::new(self.key, (self.make)()))
    }

    fn surround(
        &self,
        request: OwnedRequest,
        next: Next,
        finisher: ResponseFinisher,
    ) -> LayerFuture {
        let future = self.call(request, next);
        Box::pin(finisher.after(future))
    }
}
