//! Several methods of one path, given together: `get(list).post(create)`.
//!
//! ```
//! use highwater::Router;
//! use highwater::routing::get;
//!
//! let app = Router::new()
//!     .route("/todos", get(|| "all").post(|| "created"))
//!     .route("/todos/{id}", get(|| "one").put(|| "replaced").delete(|| "removed"));
//! # app.build().unwrap();
//! ```
//!
//! It does the same as a call for each of them, `Router::new().get("/todos", …).post("/todos", …)`.

use std::fmt;

use http::Method;

use super::handler::Handler;
use super::route::Route;

/// The handlers of one path, by method, for [`Router::route`](super::Router::route). Made by [`get`], [`post`] and the
/// other functions of this module; its methods add further ones.
///
/// A method that has two handlers is a problem that [`Router::build`](super::Router::build) reports.
#[derive(Default)]
#[must_use = "give it to `Router::route`"]
pub struct MethodRouter {
    pub(super) routes: Vec<Route>,
}

macro_rules! methods {
    ($($(#[$more:meta])* $name:ident $method:ident)*) => {
        $(
            #[doc = concat!("Handles `", stringify!($method), "`.")]
            $(#[$more])*
            pub fn $name<M: 'static>(handler: impl Handler<M>) -> MethodRouter {
                MethodRouter::default().$name(handler)
            }
        )*

        impl MethodRouter {
            $(
                #[doc = concat!("Handles `", stringify!($method), "`, too.")]
                $(#[$more])*
                pub fn $name<M: 'static>(self, handler: impl Handler<M>) -> Self {
                    self.on(&[Method::$method], handler)
                }
            )*
        }
    };
}

methods! {
    /// So is `HEAD`, unless it has a handler of its own.
    get GET
    post POST
    put PUT
    patch PATCH
    delete DELETE
    head HEAD
    /// Otherwise it is answered 204, with `Allow`.
    options OPTIONS
}

/// Handles several methods, which may be the application's own.
pub fn on<M: 'static>(methods: &[Method], handler: impl Handler<M>) -> MethodRouter {
    MethodRouter::default().on(methods, handler)
}

/// Handles every method that has no other handler, known or unknown, `HEAD` and `OPTIONS` included.
pub fn any<M: 'static>(handler: impl Handler<M>) -> MethodRouter {
    MethodRouter::default().any(handler)
}

impl MethodRouter {
    /// Handles several methods, too, which may be the application's own.
    pub fn on<M: 'static>(mut self, methods: &[Method], handler: impl Handler<M>) -> Self {
        self.routes.push(Route::of(handler).on(methods));
        self
    }

    /// Handles every method that has no other handler, known or unknown, `HEAD` and `OPTIONS` included.
    pub fn any<M: 'static>(mut self, handler: impl Handler<M>) -> Self {
        self.routes.push(Route::of(handler));
        self
    }
}

impl fmt::Debug for MethodRouter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods = self.routes.iter().map(Route::methods_text);
        f.write_str("MethodRouter ")?;
        f.debug_list().entries(methods).finish()
    }
}
