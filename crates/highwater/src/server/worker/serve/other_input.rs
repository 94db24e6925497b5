//! What comes besides requests: content for a request that is being served, resets, and what cannot be served.

use highwater_core::http::Reject;

use super::super::exchange::Exchange;
use super::super::protocol::{Next, StreamId};
use crate::app::{BodyError, BodyFeed, Target};

/// What has come that is not a request.
pub(super) enum OtherInput {
    Nothing,
    Reset(StreamId),
    Reject(Reject),
    /// Something of a body, and for how many bytes more its feed has room, if it got them.
    Content(Option<usize>),
}

impl OtherInput {
    /// What `next` means for `exchange`, whose feed gets the content. `body_max` is how many bytes a body may have; `is_cut`,
    /// whether the peer has ended the connection without a closing message.
    #[inline]
    pub(super) fn of(
        next: &Next<'_>,
        exchange: &mut Exchange,
        body_max: impl FnOnce(Target) -> u64,
        is_cut: bool,
    ) -> Self {
        match next {
            Next::Wait => OtherInput::Nothing,
            &Next::Reject(reject) => OtherInput::Reject(reject),
            of_body => {
                let most = || exchange.target.map(body_max);
                OtherInput::Content(pass_on(of_body, &mut exchange.feed, most, is_cut))
            }
        }
    }
}

/// Gives a piece of a body to its feed, if the handler still reads it. Returns for how many bytes more the feed
/// has room, if it got the piece. `most` is how many bytes the body may have; `is_cut`, whether the peer has ended the
/// connection without a closing message.
fn pass_on(
    found: &Next<'_>,
    feed: &mut Option<BodyFeed>,
    most: impl FnOnce() -> Option<u64>,
    is_cut: bool,
) -> Option<usize> {
    match *found {
        Next::Body(piece) | Next::Raw(piece) => {
            let feed = feed.as_ref()?;
            feed.push(piece);
            return Some(feed.room());
        }
        Next::Trailers(fields) => feed.as_ref()?.trailers(fields),
        Next::BodyEnd => feed.take()?.finish(),
        // Until its reader is gone, the other side may go on.
        Next::RawEnd if is_cut => feed.as_ref()?.end(Err(BodyError::from(Reject::Truncated))),
        Next::RawEnd => feed.as_ref()?.end(Ok(())),
        Next::BodyFailed(reject) => feed.take()?.fail(match (reject, most()) {
            (Reject::BodyTooLarge, Some(most)) => BodyError::too_large(most),
            _ => BodyError::from(reject),
        }),
        Next::Wait | Next::Request(_) | Next::Reject(_) => {}
    }
    None
}
