//! May the worker end a connection now, and why?

use std::time::Duration;

use highwater_core::driver::Close;

use super::super::link::Link;
use super::super::network::LATENESS_MAX;
use super::super::script::Request;
use super::{Around, EVICTION_AGE_MIN, Excuse, Watch, content_at};

/// How long an idle connection stays readable once draining has begun.
const DRAIN_QUIET: Duration = Duration::from_millis(250);

impl Watch {
    /// The worker closes: may it?
    pub(in super::super) fn check_close(
        &self,
        how: Close,
        link: &Link,
        requests: &[Request],
        around: &Around<'_>,
    ) -> Result<Excuse, String> {
        let (facts, limits, now) = (&link.facts, around.limits, around.now);
        if how == Close::Reset {
            return self.check_reset(link, requests, around);
        }
        if facts.close_cut_send {
            return Err("closed with a send in flight".into());
        }
        if facts.has_shut_down() {
            let lingered = facts.last_sent_at.is_some_and(|at| now - at >= limits.linger_timeout);
            let overrun = self.overrun(link, requests) > limits.discard_max;
            return match lingered || overrun || facts.eof_at.is_some() {
                true => Ok(Excuse::Linger),
                false => Err("lingered too short".into()),
            };
        }
        if self.is_discarding(link, requests) {
            let last = self.at_hand() - 1;
            let head = self.times[last].head.unwrap_or(facts.accepted_at);
            let content = content_at(&self.arrivals, &requests[last]).unwrap_or(now);
            let crawled = limits.body_rate_min > 0 && now - head >= limits.body_grace;
            return match crawled || now - content >= limits.body_timeout {
                true => Ok(Excuse::Discard),
                false => Err("closed while an unwanted body was on its way".into()),
            };
        }
        if self.is_unread(link, requests) {
            return Ok(Excuse::HalfClosed);
        }
        self.check_idle(link, requests, around)
    }

    /// The worker resets: may it?
    fn check_reset(
        &self,
        link: &Link,
        requests: &[Request],
        around: &Around<'_>,
    ) -> Result<Excuse, String> {
        let limits = around.limits;
        // Earlier answers that were ready and not sent yet are lost with the broken one.
        let asked = self.times.iter().zip(requests).skip(self.at_hand());
        let mut asked = asked.take_while(|(times, _)| times.head.is_some());
        let broken = asked.any(|(_, request)| request.wanted.broken);
        let upgraded = self.at_hand().checked_sub(1).filter(|_| self.reader.raw().is_some());
        let broken = broken || upgraded.is_some_and(|at| requests[at].wanted.broken);
        let stalled = around.now - link.facts.progress_at;
        match () {
            () if around.is_cutting => Ok(Excuse::Cut),
            () if link.is_sending() && stalled >= limits.write_timeout => {
                let was_due = stalled.saturating_sub(LATENESS_MAX) >= limits.write_timeout;
                match link.has_missed_room() && !was_due && !around.is_worn_out && !broken {
                    true => {
                        Err("reset, though its client read while the process stood still".into())
                    }
                    false => Ok(Excuse::WriteStall),
                }
            }
            () if self.is_half_closed(link, around) => Ok(Excuse::HalfClosed),
            () if broken => Ok(Excuse::Broken),
            () if around.drops_hung_up && link.has_hung_up() => Ok(Excuse::HungUp),
            () if link.awaits_handshake() && around.sheds_after.is_some() => Ok(Excuse::Shed),
            // Nobody will complete it.
            () if link.awaits_handshake() && link.has_hung_up() => Ok(Excuse::HungUp),
            () => Err("reset for no reason".into()),
        }
    }

    /// The worker closes as idle: is it?
    fn check_idle(
        &self,
        link: &Link,
        requests: &[Request],
        around: &Around<'_>,
    ) -> Result<Excuse, String> {
        let (facts, limits, now) = (&link.facts, around.limits, around.now);
        let Some(since) = self.idle_since(link, requests) else {
            return Err("closed in the middle of something".into());
        };
        let (limit, from) = match facts.delivered {
            0 => (limits.header_timeout, facts.accepted_at),
            _ => (limits.idle_timeout, since),
        };
        let drained = around.drained_at.is_some_and(|at| now - at.max(since) >= DRAIN_QUIET);
        let evicted = around.is_short && now - since >= EVICTION_AGE_MIN;
        let looked = (now - from).saturating_sub(LATENESS_MAX);
        if link.missed() > 0 && !drained && looked < limit && !around.is_worn_out {
            return Err("closed as idle, though it spoke while the process stood still".into());
        }
        let is_due = drained || evicted || now - from >= limit || facts.eof_at.is_some();
        let idle = || format!("closed after {:?} of idleness", now - since);
        is_due.then_some(Excuse::Idle).ok_or_else(idle)
    }

    /// Whether the client has finished, and its answer has made no progress for too long since.
    fn is_half_closed(&self, link: &Link, around: &Around<'_>) -> bool {
        let head = self.times.get(self.at_hand()).and_then(|times| times.head);
        link.facts.gone_at.is_some_and(|at| {
            let moved = at.max(link.facts.sent_at).max(head.unwrap_or(at));
            !link.is_sending() && around.now - moved >= around.limits.half_closed_timeout
        })
    }
}
