//! What has to happen by when: the deadlines of a connection as its limits state them, and progress
//! where nothing is in the way.

use std::time::Duration;

use highwater_core::time::Instant;
use highwater_core::timer::TICK;

use super::app::ROUTE_TIMEOUT;
use super::link::Link;
use super::script::{Hold, Request};
use super::witness::{Around, SURPLUS_MAX, Watch};

/// Turns within which a request is answered that nothing holds up. The longest that the application
/// takes is two turns a piece of an answer.
const UNANSWERED_MAX: u32 = 40;

/// The same where the worker starts one request a turn: those of all clients go before it, and under
/// overload it has to wait until it is refused.
const DEFERRED_MAX: u32 = 2000;

/// Turns within which input is read that nothing holds up.
const UNHEARD_MAX: u32 = 20;

/// How many times as long it may take where the handler takes its time.
const SLOW_FACTOR: u32 = 10;

/// Turns after which a deadline that has passed must have been acted upon, besides the one in which
/// that was noticed.
const OVERDUE_MAX: u32 = 1;

/// Within what time an answer without an end is given up once its client has finished.
const GONE_MAX: Duration = Duration::from_secs(1);

/// How long an idle connection may stay once draining has begun.
const DRAIN_QUIET: Duration = Duration::from_millis(250);

impl Watch {
    /// Looks for a deadline that has passed, and for a request or a client that is forgotten.
    pub(super) fn check_due(
        &mut self,
        link: &Link,
        requests: &[Request],
        around: &Around<'_>,
    ) -> Result<(), String> {
        // What was encoded before the client had finished is still sent.
        if !link.is_sending() && self.is_unheard(link, requests) {
            self.unheard_since.get_or_insert(around.now);
        }
        let due = self.due(link, requests, around);
        match due.filter(|(due, _)| around.now >= *due + TICK) {
            None => self.overdue = 0,
            // Two deadlines of a connection may pass while the machine stands still; each has a turn.
            Some(_) if around.is_catching_up => {}
            Some(_) if self.overdue < OVERDUE_MAX => self.overdue += 1,
            Some((due, what)) => {
                return Err(format!("{what}: due at {due:?}, and it is {:?}", around.now));
            }
        }
        self.check_progress(link, requests, around)
    }

    /// The next deadline at the latest, and what it is for.
    fn due(
        &self,
        link: &Link,
        requests: &[Request],
        around: &Around<'_>,
    ) -> Option<(Instant, &'static str)> {
        let (facts, limits) = (&link.facts, around.limits);
        let last_act = facts.delivered_at.max(facts.sent_at).max(around.backlogged_at);
        let at = self.at_hand();
        if link.is_sending() {
            return Some((facts.progress_at + limits.write_timeout, "the client takes nothing"));
        }
        if let Some(since) = self.unheard_since {
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
            let limit = match facts.delivered {
                0 => limits.header_timeout,
                _ => limits.idle_timeout,
            };
            // A drain takes the place of what was due before, even if that was due sooner.
            let due = around.drained_at.map(|at| at.max(since) + DRAIN_QUIET);
            return Some((due.unwrap_or(since + limit), "idleness"));
        }
        let (request, times) = (requests.get(at)?, self.times.get(at)?);
        match (times.head, times.end) {
            (None, _) if request.malformed => None,
            (None, _) if at == 0 => {
                Some((facts.accepted_at + limits.header_timeout, "the first head"))
            }
            // It may have come with the request before it, and is looked at after that is answered.
            (None, start) => {
                let since = start.or(times.start)?.max(facts.sent_at).max(around.backlogged_at);
                Some((since + limits.header_timeout, "a head"))
            }
            // Its handler has to be told, and takes a few turns to answer.
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

    /// Whoever has asked is answered, and whoever may speak is listened to.
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
                    Hold::Elsewhere(key) | Hold::ElsewhereOrTimeout(key) => {
                        around.elsewhere.keeps_waiting(key)
                    }
                }
        });
        let busy = link.is_sending() || facts.has_shut_down() || held;
        let asked = request.is_some_and(|request| match request.needs_body {
            true => self.times[at].end.is_some(),
            false => self.times[at].head.is_some(),
        });
        // It waits for leave to send its body.
        let asks = request.is_some_and(|request| {
            request.wanted.continues
                && request.end > request.head_end
                && facts.delivered == request.head_end
                && !self.reader.interims().contains(&at)
        });
        let waits = !busy && (asked || asks || self.reader.is_inside());
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
        // What comes behind a request that is not answered yet has to wait; little of it in memory.
        let surplus = request.map_or(0, |request| facts.delivered.saturating_sub(request.end));
        let wanted = limits.uri_max + limits.header_max + 1024 + SURPLUS_MAX;
        if held && !link.is_sending() && !facts.has_shut_down() && surplus > wanted as u64 {
            return Err(format!("{surplus} bytes were read behind request {at}, unanswered"));
        }
        let unheard = !busy && link.is_held_back();
        self.unheard = if unheard { self.unheard + 1 } else { 0 };
        if self.unheard > bound(UNHEARD_MAX) {
            return Err("the client is not listened to".into());
        }
        Ok(())
    }
}
