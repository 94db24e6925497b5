//! Which uploads give way when a route's places are scarce?
//!
//! `--body-rate-min` bounds how slow one client may be, and a slow phone is served on a server that has
//! room. But eight clients just above that rate must not hold all eight places of a route while others
//! are refused there. So what a client must send to keep its place rises while places are scarce:
//!
//! ```text
//!  nobody was refused at the route's limit within a second      --body-rate-min
//!  somebody was                                                 twice that, and twice as much again for
//!                                                               each half second that it goes on
//!  after three seconds of it, and from then on                  64 times that: 15 KiB a second
//! ```
//!
//! The slowest give way first, with 408, and as soon as nobody is refused any more the others may be slow
//! again. An upload is looked at every two seconds, and judged by what came within them. Only the client's
//! own slowness counts: a time in which the handler did not read is passed over. Bodies that are collected
//! hold no place before they are complete, so they are not concerned.
//!
//! Without a least rate (`--body-rate-min 0`) nobody gives way.

use std::time::Duration;

use highwater_core::driver::ConnId;
use highwater_core::http1::Reject;
use highwater_core::time::{Clock, Instant};

use super::worker::State;
use crate::app::BodyError;
use crate::metrics::Timeout;

/// How often an upload that holds a place is looked at. Long enough for the gaps that a mobile network
/// has.
const LOOK: Duration = Duration::from_secs(2);

/// What was seen of an upload when it was looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upload {
    /// When to look again; `MAX` for never.
    pub(super) due: Instant,
    /// When its client was seen to be waited for, and what its route would still have taken then.
    seen: Option<(Instant, u64)>,
}

impl Upload {
    /// Nothing to look at.
    pub(super) const NONE: Upload = Upload { due: Instant::MAX, seen: None };
}

impl<C: Clock> State<C> {
    /// Looks at the connection's upload from now on, if there is one: it holds a place of its route's limit.
    pub(super) fn watch_upload(&mut self, id: ConnId) {
        let slot = &mut self.slots[id.index()];
        if slot.feed.is_some() && slot.connection.is_reply_owed() {
            let seen = slot.connection.upload().map(|(_, left)| (self.now, left));
            slot.upload = Upload { due: self.now + LOOK, seen };
            self.touch(id); // For the timer.
        }
    }

    /// Ends the connection's upload if it is slower than it may be by now.
    #[cold]
    pub(super) fn look_at_upload(&mut self, id: ConnId) {
        let State { app, slots, now, responder, metrics, .. } = self;
        let slot = &mut slots[id.index()];
        let before = std::mem::replace(&mut slot.upload, Upload::NONE);
        if slot.feed.is_none() || !slot.connection.is_reply_owed() {
            return; // It is complete, or answered.
        }
        let upload = slot.connection.upload();
        slot.upload = Upload { due: *now + LOOK, seen: upload.map(|(_, left)| (*now, left)) };
        let (Some((since, left)), Some((seen_at, seen_left))) = (upload, before.seen) else {
            return;
        };
        if since > seen_at {
            return; // The handler kept its client waiting meanwhile.
        }
        let factor = slot.target.map_or(0, |target| app.scarcity(target, *now));
        let rate_min = u128::from(responder.limits.body_rate_min) * u128::from(factor);
        let came = u128::from(seen_left.saturating_sub(left));
        if came * 1000 < rate_min * (*now - seen_at).as_millis() {
            slot.upload = Upload::NONE;
            slot.connection.end_upload();
            metrics.timeout(Timeout::Body);
            if let Some(feed) = slot.feed.take() {
                feed.fail(BodyError::from(Reject::BodyTimeout));
            }
        }
    }
}
