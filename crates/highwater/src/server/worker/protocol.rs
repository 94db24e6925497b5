//! Which protocol does a connection speak?
//!
//! HTTP/1 or HTTP/2, unless a worker is made for another one. The rest of the worker names no version of HTTP: it knows
//! the interface ([`Protocol`], [`Stream`]) only.

pub(super) use highwater_core::protocol::{
    Begun, Expired, Next, Pending, Request, Step, Stream, StreamId,
};
pub(crate) use highwater_core::protocol::{Protocol, Versions};
pub(crate) use highwater_core::versions::Connection as Http;
