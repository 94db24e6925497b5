//! The four ways to answer a request.

use std::fmt;

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
