//! Which uploads are ended when a route's places are scarce?
//!
//! `--body-rate-min` bounds how slow one client may be, and a slow phone is served on a server that has
//! room. But eight clients just above that rate must not hold all eight places of a route while others
//! are refused there. So what a client must send to keep its place rises while places are scarce:
//!
//! ```text
//!  no refusal at the route's limit within a second              --body-rate-min
//!  a refusal within a second                                    twice that, and twice as much again for
//!                                                               each half second that it goes on
//!  after three seconds of it, and from then on                  64 times that: 15 KiB per second
//! ```
//!
//! The slowest uploads end first, with 408. As soon as refusals stop, the others may be slow again. An upload
//! is judged every two seconds, by the bytes that came within them. Only the client's own slowness counts:
//! time in which its handler did not read is ignored, and that in which other handlers kept the window of its
//! connection shut. Collected bodies hold no place before they are
//! complete, so this does not apply to them.
//!
//! Without a minimum rate (`--body-rate-min 0`) no upload is ended.

use std::time::Duration;

use highwater_core::http::Reject;
use highwater_core::time::Clock;

use super::exchange::Upload;
use super::protocol::{Protocol, Stream};
use super::serve::ExchangeMut;
use crate::app::BodyError;
use crate::metrics::Timeout;

/// How often an upload that holds a place is judged. Longer than the gaps of a mobile network.
const LOOK: Duration = Duration::from_secs(2);

impl<C: Clock, P: Protocol> ExchangeMut<'_, C, P> {
    /// Judges the exchange's upload from now on, if there is one: it holds a place of its route's limit.
    pub(super) fn watch_upload(&mut self) {
        if self.exchange.feed.is_some() && self.stream.is_reply_owed() {
            let now = self.parts.turn.now;
            let seen = self.stream.upload(now).map(|upload| (now, upload));
            self.exchange.upload = Upload { due: now + LOOK, seen };
        }
    }

    /// Ends the exchange's upload if it is slower than the current minimum rate.
    #[cold]
    pub(super) fn look_at_upload(&mut self) {
        let now = self.parts.turn.now;
        let exchange = &mut *self.exchange;
        let before = std::mem::replace(&mut exchange.upload, Upload::NONE);
        if exchange.feed.is_none() || !self.stream.is_reply_owed() {
            return; // It is complete, or answered.
        }
        let upload = self.stream.upload(now);
        exchange.upload = Upload { due: now + LOOK, seen: upload.map(|upload| (now, upload)) };
        let (Some(upload), Some((seen_at, seen))) = (upload, before.seen) else {
            return;
        };
        if upload.since > seen_at {
            return; // The handler did not read for some of this time.
        }
        let time = (now - seen_at).saturating_sub(upload.shut_for - seen.shut_for);
        let shared = self.parts.turn.clock.shared(now);
        let scarcity =
            |target| self.app.rules(target, shared).limit.map(|limit| limit.scarcity(shared));
        let factor = exchange.target.and_then(scarcity).unwrap_or(0);
        let rate_min = u128::from(self.parts.encoder.limits.body_rate_min) * u128::from(factor);
        let came = u128::from(seen.left.saturating_sub(upload.left));
        if came * 1000 < rate_min * time.as_millis() {
            exchange.upload = Upload::NONE;
            self.stream.end_upload();
            self.parts.metrics.timeout(Timeout::Body);
            if let Some(feed) = exchange.feed.take() {
                feed.fail(BodyError::from(Reject::BodyTimeout));
            }
        }
    }
}
