//! A request's content: how a route reads it, and how it arrives.

use bytes::Bytes;

/// A request's content.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// All of it, among the bytes that were received; empty if there is none.
    Whole(&'a [u8]),
    /// All of it, collected in memory of its own, which may be kept without a copy.
    Collected(&'a Bytes),
    /// It arrives piece by piece.
    Streamed,
}

impl<'a> Body<'a> {
    /// All of it, unless it arrives piece by piece.
    #[inline]
    pub fn whole(self) -> Option<&'a [u8]> {
        match self {
            Body::Whole(bytes) => Some(bytes),
            Body::Collected(bytes) => Some(bytes),
            Body::Streamed => None,
        }
    }
}

/// How a route reads the body of a request, decided when its head is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyPlan {
    /// Whole, and of at most this many bytes.
    Whole(u64),
    /// Piece by piece, of at most this many bytes.
    Streamed(u64),
    /// Not at all: whatever comes is dropped.
    Unwanted,
}

impl BodyPlan {
    /// How many bytes it may have.
    #[inline(always)]
    pub fn max(self) -> u64 {
        match self {
            BodyPlan::Whole(max) | BodyPlan::Streamed(max) => max,
            BodyPlan::Unwanted => u64::MAX,
        }
    }
}
