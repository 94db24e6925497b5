//! Which protocol does a connection speak?
//!
//! HTTP/1.1, so far. The rest of the worker names no version of HTTP: it uses these names.

pub(super) use highwater_core::http1::{
    Connection as Protocol, Expired, FieldEncoder, Next, Request, Scratch, Step,
};
use highwater_core::link::Link;

/// A protocol over the link of its connection.
pub(super) type Wire<'c> = (&'c mut Link, &'c mut Protocol);
