//! What must happen by when: the deadlines of a connection by its limits, and progress where
//! nothing prevents it.

use std::time::Duration;

use highwater_core::time::Instant;
use highwater_core::timer::TICK;

use super::app::ROUTE_TIMEOUT;
use super::link::Link;
use super::script::{Hold, Request};
use super::witness::{Around, SURPLUS_MAX, Watch};

/// Turns within which a request is answered if nothing delays it. The slowest answer of the
/// application takes two turns per piece.
const UNANSWERED_MAX: u32 = 40;

/// The same where the worker starts one request a turn: the requests of all clients go before it,
/// and under overload it has to wait until it is refused.
const DEFERRED_MAX: u32 = 2000;

/// Turns within which input is read if nothing delays it.
const STALLED_MAX: u32 = 20;

/// The factor for handlers that read slowly.
const SLOW_FACTOR: u32 = 10;

/// Turns after which the worker must have acted on an expired deadline, besides the turn in which
/// the check noticed it.
const OVERDUE_MAX: u32 = 1;

/// How soon an endless answer must be ended once its client has finished.
const GONE_MAX: Duration = Duration::from_secs(1);

/// How long an idle connection may stay once draining has begun.
const DRAIN_QUIET: Duration = Duration::from_millis(250);

impl Watch {
    /// Looks for an expired deadline, and for a request or a client that is forgotten.
    pub(super) fn check_due(
        &mut self,
        link: &Link,
        requests: &[Request],
        around: &Around<'_>,
    ) -> Result<(), String> {
        // Bytes encoded before the client finished are still sent.
        if !link.is_sending() && self.is_unread(link, requests) {
            self.unread_since.get_or_insert(around.now);
        }
        let due = self.due(link, requests, around);
        match due.filter(|(due, _)| around.now >= *due + TICK) {
            None => self.overdue = 0,
            // Two deadlines of a connection may expire while the machine stands still; each takes a
            // turn.
            Some(_) if around.is_catching_up => {}
            Some(_) if self.overdue < OVERDUE_MAX => self.overdue += 1,
            Some((due, what)) => {
                return Err(format!("{what}: due at {due:?}, and it is {:?}", around.now));
            }
        }
        self.check_progress(link, requests, around)
    }

    /// The latest next deadline, and its purpose.
    fn due(
        &self,
        link: &Link,
        requests: &[Request],
        around: &Around<'_>,
    ) -> Option<(Instant, &'static str)> {
        let (facts, limits) = (&link.facts, around.limits);
        let last_act = facts.delivered_at.max(facts.sent_at).max(around.backlogged_at);
        let at = self.at_hand();
        if link.awaits_handshake() {
            return None; // The server's turn; `check_progress` sees to it.
        }
        if link.is_sending() {
            return Some((facts.progress_at + limits.write_timeout, "the client takes nothing"));
        }
        if let Some(since) = self.unread_since {
            let since = since.max(around.backlogged_at);
            return Some((since + GONE_MAX, "a stream whose client has finished"));
        }
        if let Some(at) = facts.last_sent_at {
            return Some((at + limits.linger_timeout, "lingering"));
        }
        if self.reader.raw().is_some() || self.reader.is_inside() {
            return None;
        }
        if self.is_discarding(link, requests) {
            return Some((last_act + limits.body_timeout, "an unwanted body stalls"));
        }
        if let Some(since) = self.idle_since(link, requests) {
            let end = match facts.delivered {
                0 => facts.accepted_at + limits.header_timeout,
                _ => since + limits.idle_timeout,
            };
            // A drain replaces the deadline from before, even if that was sooner.
            let due = around.drained_at.map(|at| at.max(since) + DRAIN_QUIET);
            return Some((due.unwrap_or(end), "idleness"));
        }
        let (request, times) = (requests.get(at)?, self.times.get(at)?);
        match (times.head, times.end) {
            (None, _) if request.malformed => None,
            (None, _) if at == 0 => {
                Some((facts.accepted_at + limits.header_timeout, "the first head"))
            }
            // The head may have come with the previous request, and is parsed after that is
            // answered.
            (None, start) => {
                let since = start.or(times.start)?.max(facts.sent_at).max(around.backlogged_at);
                Some((since + limits.header_timeout, "a head"))
            }
            // Its handler has to be notified, and takes a few turns to answer.
            (Some(_), None) if request.streams_body => None,
            (Some(_), None) if request.needs_body && facts.eof_at.is_none() => {
                Some((last_act + limits.body_timeout, "a body"))
            }
            (Some(head), _) if request.hold.is_long() && facts.gone_at.is_some() => {
                let since = facts.gone_at.unwrap_or(head).max(head).max(last_act);
                Some((since + limits.half_closed_timeout, "a handler whose client has finished"))
            }
            (Some(head), _) if request.hold.has_timeout() => {
                Some((head.max(last_act) + ROUTE_TIMEOUT, "a route's timeout"))
            }
            _ => None,
        }
    }

    /// Every request is answered, and every client that may send is read from.
    fn check_progress(
        &mut self,
        link: &Link,
        requests: &[Request],
        around: &Around<'_>,
    ) -> Result<(), String> {
        let (facts, limits) = (&link.facts, around.limits);
        let at = self.at_hand();
        let request = requests.get(at);
        let held = request.is_some_and(|request| {
            self.times[at].head.is_some()
                && match request.hold {
                    Hold::Quick | Hold::Slow => false,
                    Hold::Pool | Hold::PoolOrTimeout => !around.pool_is_quiet,
                    Hold::Timeout | Hold::Never => true,
                    Hold::OtherThread(key) | Hold::OtherThreadOrTimeout(key) => {
                        around.threads.keeps_waiting(key)
                    }
                }
        });
        let busy = link.is_sending() || facts.has_shut_down() || held;
        let asked = request.is_some_and(|request| match request.needs_body {
            true => self.times[at].end.is_some(),
            false => self.times[at].head.is_some(),
        });
        // It waits for permission to send its body.
        let asks = request.is_some_and(|request| {
            request.wanted.continues
                && request.end > request.head_end
                && facts.delivered == request.head_end
                && !self.reader.interims().contains(&at)
        });
        let waits = !busy && (asked || asks || self.reader.is_inside() || link.awaits_handshake());
        let is_slow = request.is_some_and(|request| request.hold == Hold::Slow);
        let bound = |turns: u32| match (around.defers, is_slow) {
            (true, _) => DEFERRED_MAX,
            (false, true) => turns * SLOW_FACTOR,
            (false, false) => turns,
        };
        self.unanswered = if waits { self.unanswered + 1 } else { 0 };
        if self.unanswered > bound(UNANSWERED_MAX) {
            return Err(format!("request {at} is not answered"));
        }
        // Input behind an unanswered request has to wait; only a little of it in memory.
        let surplus = request.map_or(0, |request| facts.delivered.saturating_sub(request.end));
        let wanted = limits.uri_max + limits.header_max + 1024 + SURPLUS_MAX;
        if held && !link.is_sending() && !facts.has_shut_down() && surplus > wanted as u64 {
            return Err(format!("{surplus} bytes were read behind request {at}, unanswered"));
        }
        let stalled = !busy && link.is_held_back();
        self.stalled = if stalled { self.stalled + 1 } else { 0 };
        if self.stalled > bound(STALLED_MAX) {
            return Err("the client is not listened to".into());
        }
        Ok(())
    }
}
