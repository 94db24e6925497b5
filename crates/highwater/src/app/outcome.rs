//! The four ways to answer a request.

use std::fmt;

use http::StatusCode;

use super::guard::GuardedFuture;
use super::job::Job;
use super::prepared::FixedResponse;
use super::response::Response;

/// The outcome of calling an endpoint: the four ways to answer.
pub enum Outcome<'a> {
    /// Prepared when the application was built.
    Fixed(&'a FixedResponse),
    /// Answered on the worker.
    Ready(Response),
    /// A future to be polled on this worker.
    Later(GuardedFuture<Response>),
    /// To be run on the pool.
    Offload(Job),
}

impl Outcome<'_> {
    /// A response that owns nothing.
    pub(crate) const NOTHING: Outcome<'static> = Outcome::Ready(Response::new(StatusCode::OK));

    /// Moves it out, and leaves [`Outcome::NOTHING`].
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Outcome::NOTHING)
    }

    /// Whether dropping it does nothing.
    #[inline]
    pub(crate) fn owns_nothing(&self) -> bool {
        match self {
            Outcome::Fixed(_) => true,
            Outcome::Ready(response) => response.owns_nothing(),
            Outcome::Later(_) | Outcome::Offload(_) => false,
        }
    }
}

impl fmt::Debug for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Fixed(response) => f.debug_tuple("Fixed").field(response).finish(),
            Outcome::Ready(response) => f.debug_tuple("Ready").field(response).finish(),
            Outcome::Later(_) => f.write_str("Later"),
            Outcome::Offload(_) => f.write_str("Offload"),
        }
    }
}
