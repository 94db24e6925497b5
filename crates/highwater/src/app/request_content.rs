//! Where is the content of a request? Among the bytes that were received, in memory of its own, or still to come.

use std::cell::RefCell;

use bytes::Bytes;

use super::body::BodyStream;

/// The content of a request, as the worker has it.
#[derive(Debug)]
pub(crate) enum RequestBody<'a> {
    /// All of it; empty if there is none, or nothing reads it.
    Whole(&'a [u8]),
    /// All of it, in memory of its own.
    Collected(&'a Bytes),
    /// It arrives as a stream.
    Stream(BodyStream),
}

/// The content of a request, lent or owned.
#[derive(Debug)]
pub(super) enum Content<'a> {
    Whole(&'a [u8]),
    Shared(&'a Bytes),
    Owned(Bytes),
    /// `None` once it was taken.
    Stream(RefCell<Option<BodyStream>>),
}

impl Content<'_> {
    /// It, to be kept: copied if it lies among the bytes that were received, else shared. `None` if it is a stream.
    pub(super) fn kept(&self) -> Option<Bytes> {
        match self {
            Content::Whole(bytes) => Some(Bytes::copy_from_slice(bytes)),
            Content::Shared(bytes) => Some(Bytes::clone(bytes)),
            Content::Owned(bytes) => Some(bytes.clone()),
            Content::Stream(_) => None,
        }
    }
}

/// The content of a request that owns it.
#[derive(Debug)]
pub(super) enum OwnedBody {
    Whole(Bytes),
    #[cfg_attr(not(feature = "tower"), expect(dead_code, reason = "only its conversions make it"))]
    Stream(BodyStream),
}
