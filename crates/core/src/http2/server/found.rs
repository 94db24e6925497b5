//! What the input means for the streams.

use crate::http::Reject;

/// What was found in the input, or is held.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found<'i> {
    Wait,
    /// The head of a request, in the scratch memory.
    Head(u32),
    /// A request is complete whose content was collected.
    Collected(u32),
    Body(u32, &'i [u8]),
    /// A piece that was held, of content or in a tunnel.
    Held(u32),
    /// Trailers, in the scratch memory.
    Trailers(u32),
    BodyEnd(u32),
    /// Bytes in a tunnel.
    Raw(u32, &'i [u8]),
    /// The peer has ended its side of a tunnel.
    RawEnd(u32),
    BodyFailed(u32, Reject),
    Reject(u32, Reject),
    /// The stream was reset, by the peer or for its mistake.
    Reset(u32),
}
