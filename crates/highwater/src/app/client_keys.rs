//! The application's function that names the client of a request.

use std::hash::RandomState;

use super::request::Request;

/// Returns the hash, with a secret, of the client's key; `None` if the application names no client.
pub(super) type ClientKeys = dyn Fn(&Request<'_>, &RandomState) -> Option<u64> + Send + Sync;
