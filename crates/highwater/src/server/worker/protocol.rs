//! Which protocol does a connection speak?
//!
//! HTTP/1.1, so far. The rest of the worker names no version of HTTP: it uses these names.

pub(super) use highwater_core::http1::{Connection as Protocol, FieldEncoder, Scratch};
use highwater_core::link::Link;
pub(super) use highwater_core::protocol::{Expired, Next, Request, Step};

/// A protocol over the link of its connection.
pub(super) type Wire<'c> = (&'c mut Link, &'c mut Protocol);
