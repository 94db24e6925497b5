//! A request's content: how a route reads it, and how it arrives.

/// A request's content.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// All of it; empty if there is none.
    Whole(&'a [u8]),
    /// It arrives piece by piece.
    Streamed,
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
