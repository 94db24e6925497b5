//! Which protocol does a connection speak?
//!
//! HTTP/1.1, unless a worker is made for another one. The rest of the worker names no version of HTTP: it knows
//! the interface ([`Protocol`], [`Stream`]) only.

pub(crate) use highwater_core::http1::Connection as Http;
pub(crate) use highwater_core::protocol::Protocol;
pub(super) use highwater_core::protocol::{
    Expired, Next, Pending, Request, Step, Stream, StreamId,
};
