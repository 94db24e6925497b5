//! Watches every connection from outside, turn by turn, and determines on its own what may happen
//! when.
//!
//! It sees what was delivered to the worker, what the worker commanded, and where the requests lie
//! in the client's bytes. From that it checks, without asking the code under test:
//!
//! * no request is answered before it was sent;
//! * every close (`closing.rs`), and every refusal for slowness, has a reason and does not come too early;
//! * every expired deadline has its effect within a tick of the timer (`due.rs`);
//! * every request is answered, and every client that may send is read from, within a number of
//!   turns (`due.rs`);
//! * a connection holds no more memory than its limits allow, and an idle one holds none.

mod closing;

use highwater_core::http::Limits;
use highwater_core::time::Instant;
use std::collections::VecDeque;
use std::time::Duration;

use super::app::ROUTE_TIMEOUT;
use super::link::{INBOUND_MAX, Link, QUIET};
use super::network::{LATE_MAX, LATENESS_MAX};
use super::reader::Reader;
use super::script::{Hold, Request};
use super::threads::OtherThreads;

/// How long a connection must have been idle before it may be closed to make room.
pub(super) const EVICTION_AGE_MIN: Duration = Duration::from_secs(1);

/// Content up to this size is copied behind its head; more is shared.
const COPY_MAX: usize = 8 * 1024;

/// The most that a worker can receive beyond what it wants: it sets that once per turn, and then some
/// more bytes may come.
pub(super) const SURPLUS_MAX: usize = INBOUND_MAX + LATE_MAX as usize;

/// Deliveries remembered; more than there are bytes of framing in a row.
const ARRIVALS_MAX: usize = 20;

/// The circumstances of a check.
pub(super) struct Around<'r> {
    pub(super) limits: &'r Limits,
    /// When the events of this turn happened.
    pub(super) now: Instant,
    pub(super) threads: &'r OtherThreads,
    pub(super) drained_at: Option<Instant>,
    /// The drain's deadline has passed.
    pub(super) is_cutting: bool,
    /// Connections are at their limit, or accepting has failed in this turn.
    pub(super) is_short: bool,
    pub(super) pool_is_bounded: bool,
    /// No job waits for the pool, and none has run since the worker looked.
    pub(super) pool_is_quiet: bool,
    /// When requests last waited for their turn: deadlines may have been counted only from then.
    pub(super) backlogged_at: Instant,
    /// The worker has not looked for long, and reads before it judges.
    pub(super) is_catching_up: bool,
    /// It has done so for as many turns as it may.
    pub(super) is_worn_out: bool,
    /// The worker starts one request a turn.
    pub(super) defers: bool,
    /// Each address has its share of a standing queue: requests may be refused at once, if there are others.
    pub(super) is_fair: bool,
    /// Requests that have waited for longer may be refused.
    pub(super) sheds_after: Option<Duration>,
    /// A request whose client has finished before its turn came may be dropped.
    pub(super) drops_hung_up: bool,
}

/// Why a connection ended before everything was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excuse {
    /// It was idle, or had only begun a request when it was found to be.
    Idle,
    /// A body that no handler wanted came too slowly.
    Discard,
    /// The client kept sending after the last answer, for too long or too much.
    Linger,
    /// The client did not read the bytes sent to it.
    WriteStall,
    /// The drain's time was up.
    Cut,
    /// The application broke its answer off.
    Broken,
    /// The client had finished, and its answer made no progress for too long, or is endless.
    HalfClosed,
    /// The client had finished when its request's turn came.
    HungUp,
    /// Its handshake was refused for load.
    Shed,
}

/// When the parts of a request were delivered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) start: Option<Instant>,
    pub(super) head: Option<Instant>,
    pub(super) end: Option<Instant>,
    /// The longest pause within its body.
    body_gap: Duration,
}

/// One connection, watched.
pub(super) struct Watch {
    /// Reads the bytes that the worker gives to be sent.
    pub(super) reader: Reader,
    fed: usize,
    pub(super) times: Vec<Times>,
    /// How much had been delivered at which time, as far back as framing may reach.
    arrivals: VecDeque<(u64, Instant)>,
    pub(super) excuse: Option<Excuse>,
    checked_last: bool,
    checked_close: bool,
    /// Turns in which something should have happened and did not.
    pub(super) unanswered: u32,
    pub(super) stalled: u32,
    /// Turns for which a deadline has passed.
    pub(super) overdue: u32,
    /// Since when an endless answer should have been ended.
    pub(super) unread_since: Option<Instant>,
}

impl Watch {
    pub(super) fn new(requests: &[Request]) -> Self {
        let heads = requests.iter().map(|request| request.wanted.head_only).collect();
        Watch {
            reader: Reader::new(heads),
            fed: 0,
            times: vec![Times::default(); requests.len()],
            arrivals: VecDeque::new(),
            excuse: None,
            checked_last: false,
            checked_close: false,
            unanswered: 0,
            stalled: 0,
            overdue: 0,
            unread_since: None,
        }
    }

    /// Checks the connection after a turn. `allocated` is the memory it holds.
    ///
    /// # Errors
    /// A check failed.
    pub(super) fn look(
        &mut self,
        link: &Link,
        requests: &[Request],
        allocated: usize,
        around: &Around<'_>,
    ) -> Result<(), String> {
        self.note_times(link, requests, around.now);
        self.check_answers(link, requests, around)?;
        if let Some((then, _)) = link.facts.last
            && !std::mem::replace(&mut self.checked_last, true)
        {
            match link.is_broken() {
                true => {} // It ends behind an alert.
                false => self.check_last(then, link, requests, around)?,
            }
            self.excuse = self.is_unread(link, requests).then_some(Excuse::HalfClosed);
        }
        if link.facts.closing_message_at.is_some()
            && !std::mem::replace(&mut self.checked_last, true)
            && !link.is_broken()
        {
            self.excuse = self.check_closing_message(link, requests, around)?;
        }
        if let Some((how, _)) = link.facts.close
            && !std::mem::replace(&mut self.checked_close, true)
            && !link.is_broken()
        {
            self.excuse = Some(self.check_close(how, link, requests, around)?);
        }
        if link.is_live() && link.facts.close.is_none() && !link.is_broken() {
            self.check_due(link, requests, around)?;
            let is_idle = self.idle_since(link, requests).is_some()
                && !link.is_inside_record()
                && !link.awaits_handshake();
            self.check_memory(link, is_idle, allocated, around.limits)?;
        }
        Ok(())
    }

    /// The index of the request to be answered next.
    pub(super) fn at_hand(&self) -> usize {
        self.reader.answers().len()
    }

    fn note_times(&mut self, link: &Link, requests: &[Request], now: Instant) {
        let delivered = link.facts.delivered;
        // Without new bytes nothing below changes, and most turns bring a connection none.
        if self.arrivals.back().map_or(0, |(before, _)| *before) == delivered {
            return;
        }
        for (times, request) in self.times.iter_mut().zip(requests) {
            if times.head.is_some() && times.end.is_none() {
                let gap = now - content_at(&self.arrivals, request).unwrap_or(now);
                times.body_gap = times.body_gap.max(gap);
            }
            let note = |when: &mut Option<Instant>, reached: bool| {
                if reached {
                    when.get_or_insert(now);
                }
            };
            note(&mut times.start, delivered > request.start);
            note(&mut times.head, delivered >= request.head_end);
            note(&mut times.end, delivered >= request.end);
        }
        self.arrivals.push_back((delivered, now));
        if self.arrivals.len() > ARRIVALS_MAX {
            self.arrivals.pop_front();
        }
    }

    fn check_answers(
        &mut self,
        link: &Link,
        requests: &[Request],
        around: &Around<'_>,
    ) -> Result<(), String> {
        let before = self.at_hand();
        self.reader.feed(&link.facts.sent[self.fed..])?;
        self.fed = link.facts.sent.len();
        if link.facts.has_shut_down() || link.facts.closing_message_at.is_some() {
            self.reader.end()?;
        }
        for at in before..self.at_hand() {
            let status = self.reader.answers()[at].status;
            let Some(request) = requests.get(at) else {
                return Err(format!("{status} to no request"));
            };
            let times = self.times[at];
            match status {
                408 => self.check_slowness(at, link, requests, around)?,
                400 => {}
                _ if times.head.is_none() && !request.malformed => {
                    return Err(format!("request {at} is answered {status} before it was asked"));
                }
                503 => {
                    // Others have several requests each in a queue that is full: one of theirs is to go. Without
                    // shares, handshakes that wait among the requests may have filled it.
                    let is_first = at == 0 && link.number() == Some(QUIET);
                    let may_be_full = around.is_fair && !is_first || link.is_sealed();
                    check_overload(request, times, around, may_be_full)?;
                }
                _ => {}
            }
        }
        for &at in self.reader.interims() {
            if !requests.get(at).is_some_and(|request| request.wanted.continues) {
                return Err(format!("request {at} never asked whether to continue"));
            }
        }
        Ok(())
    }

    /// A request was refused because it was slow: was it?
    fn check_slowness(
        &self,
        at: usize,
        link: &Link,
        requests: &[Request],
        around: &Around<'_>,
    ) -> Result<(), String> {
        let (times, now, limits) = (self.times[at], around.now, around.limits);
        let Some(start) = times.start else {
            return Err(format!("request {at} is called slow before it began"));
        };
        let since = if at == 0 { link.facts.accepted_at } else { start };
        // The refusal may have waited for earlier answers, and the head may have come in the
        // meantime.
        let took = times.head.unwrap_or(now) - since;
        if took >= limits.header_timeout {
            let complete = self.completed_meanwhile(link, requests[at].head_end, around);
            let forgiven = times.head.is_none() && complete;
            return match forgiven && took.saturating_sub(LATENESS_MAX) < limits.header_timeout {
                true => Err(format!("request {at} came while the process stood still")),
                false => Ok(()),
            };
        }
        let Some(head) = times.head else {
            return Err(format!("the head of request {at} had only {took:?}"));
        };
        let content = content_at(&self.arrivals, &requests[at]).unwrap_or(now);
        let gap = times.body_gap.max(now - content);
        let crawled = limits.body_rate_min > 0 && now - head >= limits.body_grace;
        if self.completed_meanwhile(link, requests[at].end, around)
            && (now - head).saturating_sub(LATENESS_MAX)
                < limits.body_grace.min(limits.body_timeout)
        {
            return Err(format!("the body of request {at} came while the process stood still"));
        }
        match gap >= limits.body_timeout || crawled {
            true => Ok(()),
            false => Err(format!("the body of request {at} paused only {gap:?}")),
        }
    }

    /// Whether everything up to `end` had come when the process continued after a stop, and the
    /// worker has not received it yet.
    fn completed_meanwhile(&self, link: &Link, end: u64, around: &Around<'_>) -> bool {
        let delivered = link.facts.delivered;
        !around.is_worn_out
            && link.missed() > 0
            && delivered < end
            && delivered + link.missed() >= end
    }

    /// Whether the present answer is endless, and its client has finished.
    pub(super) fn is_unread(&self, link: &Link, requests: &[Request]) -> bool {
        let at = self.at_hand();
        let request = requests.get(at).filter(|_| self.times[at].head.is_some());
        link.facts.finished_at.is_some() && request.is_some_and(|request| request.wanted.endless)
    }

    /// Bytes that came behind the last request that was answered; behind its head, if its body was
    /// not read, or not all of it.
    pub(super) fn overrun(&self, link: &Link, requests: &[Request]) -> u64 {
        let answered = self.at_hand().min(requests.len());
        let Some(last) = answered.checked_sub(1) else { return link.facts.delivered };
        let (request, status) = (&requests[last], self.reader.answers()[last].status);
        let was_read = request.needs_body && status == request.wanted.status && status < 400;
        let base = match () {
            // Refused after any part of it.
            () if request.malformed || status == 408 => request.start,
            () if was_read && link.facts.delivered >= request.end => request.end,
            () => request.head_end,
        };
        link.facts.delivered.saturating_sub(base)
    }

    /// Whether the body of the last answered request is still coming.
    pub(super) fn is_discarding(&self, link: &Link, requests: &[Request]) -> bool {
        let last = self.at_hand().checked_sub(1).and_then(|last| requests.get(last));
        last.is_some_and(|request| link.facts.delivered < request.end)
    }

    /// The latest possible begin of the connection's idle time, if it is idle.
    pub(super) fn idle_since(&self, link: &Link, requests: &[Request]) -> Option<Instant> {
        let answered = self.at_hand();
        let nothing_begun = self.times.get(answered).is_none_or(|times| times.start.is_none());
        let idle = nothing_begun
            && (!link.is_sending() || link.facts.closing_message_at.is_some())
            && !self.reader.is_inside()
            && self.reader.raw().is_none()
            && !link.facts.has_shut_down()
            && !self.is_discarding(link, requests);
        let discarded_at = answered.checked_sub(1).and_then(|last| self.times[last].end);
        idle.then(|| link.facts.sent_at.max(discarded_at.unwrap_or_default()))
    }

    fn check_memory(
        &self,
        link: &Link,
        is_idle: bool,
        allocated: usize,
        limits: &Limits,
    ) -> Result<(), String> {
        if is_idle && allocated > 0 {
            return Err(format!("is idle and holds {allocated} bytes"));
        }
        let head = limits.uri_max + limits.header_max + 1024;
        let output = limits.output_max + COPY_MAX + 1024;
        // A buffer that grows as it fills may be twice as large as its content.
        let carry = 2 * (head + SURPLUS_MAX);
        let partial = 2 * (head + limits.body_max as usize);
        let budget = carry + partial + 2 * output;
        if allocated > budget {
            return Err(format!("holds {allocated} bytes, more than {budget}"));
        }
        if link.sending_capacity() > 2 * output {
            return Err(format!("sends from a buffer of {} bytes", link.sending_capacity()));
        }
        Ok(())
    }
}

/// The earliest time at which the last content of `request` can have come: framing alone is no
/// progress.
fn content_at(arrivals: &VecDeque<(u64, Instant)>, request: &Request) -> Option<Instant> {
    let (delivered, _) = arrivals.back()?;
    // If it is not certain that any of the body has come, the head's end counts.
    let after = delivered.saturating_sub(request.density).max(request.head_end - 1);
    let arrival = arrivals.iter().find(|(offset, _)| *offset > after);
    arrival.or(arrivals.back()).map(|(_, at)| *at)
}

/// A request was refused for lack of room or time: is that right?
fn check_overload(
    request: &Request,
    times: Times,
    around: &Around<'_>,
    may_be_at_once: bool,
) -> Result<(), String> {
    let took = times.head.map_or(Duration::ZERO, |head| around.now - head);
    let timed_out = took >= ROUTE_TIMEOUT;
    let is_never_shed = request.wanted.raw.is_some();
    if !is_never_shed && around.sheds_after.is_some_and(|target| took > target || may_be_at_once) {
        return Ok(());
    }
    let right = match request.hold {
        Hold::Quick | Hold::Slow | Hold::Never | Hold::OtherThread(_) => false,
        Hold::Pool => around.pool_is_bounded,
        Hold::PoolOrTimeout => around.pool_is_bounded || timed_out,
        Hold::Timeout | Hold::OtherThreadOrTimeout(_) => timed_out,
    };
    if right { Ok(()) } else { Err(format!("503 after {took:?} to {request:?}")) }
}
