//! When is the answer to a refused request sent?
//!
//! At the end of its turn, like every answer, unless there is a standing queue and the connection has streams. Then other
//! requests of the connection are probably refused soon, and their answers are collected, to be sent with one system call
//! and, if they are sealed, in one record: sending is most of the cost of a refusal.
//!
//! ```text
//!  refused ─▶ corked ──its time is over, other output, much output, no queue stands, the end──▶ sent
//! ```
//!
//! Invariants: only answers to refused requests wait, and any other output of the connection is sent together with them;
//! nothing waits without a standing queue, and nothing waits for longer than [`time_max`].

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::driver::ConnId;
use highwater_core::link::Link;
use highwater_core::time::Instant;

use super::channel::Channel;

/// For how long answers to refused requests wait for others. Less: more sends; more: clients learn later that they are
/// refused. At ten times the capacity of a worker with requests of 1 ms and 128 connections, each connection has a request
/// refused every 14 ms: in this time there are two or three.
const TIME_MAX: Duration = Duration::from_millis(20);

/// And for no more than this part of the time for which clients wait for an answer, so that they can still ask elsewhere.
const PATIENCE_PART: u32 = 50;

/// For how long the answers to refused requests of clients with this `patience` wait for others.
pub(super) fn time_max(patience: Duration) -> Duration {
    TIME_MAX.min(patience / PATIENCE_PART)
}

/// The answers of one connection that wait for others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cork {
    /// The output of the connection, if it is nothing else; 0 if none waits.
    len: usize,
    /// Until when they wait.
    until: Instant,
}

impl Cork {
    /// None waits.
    pub(super) const NONE: Cork = Cork { len: 0, until: Instant::ZERO };

    /// Whether answers wait, or have until their time was over.
    #[inline]
    pub(super) fn is_some(&self) -> bool {
        self.len != 0
    }

    /// A refusal has added to the output, which was `before` bytes long and now is `after`. Returns whether it is the
    /// first that waits, which it does until `until`.
    pub(super) fn add(&mut self, (before, after): (usize, usize), until: Instant) -> bool {
        let is_first = before == 0 && after > 0;
        match () {
            () if is_first => *self = Cork { len: after, until },
            () if before == self.len => self.len = after,
            () => *self = Cork::NONE, // It goes with what is before it.
        }
        is_first
    }

    /// Whether the output of its connection waits on at `now`, which may be up to `most` bytes, and does so only while a
    /// queue `stands`. If not, it never waits again.
    #[cold]
    pub(super) fn holds(
        &mut self,
        (link, channel): (&Link, &Channel),
        (now, stands): (Instant, bool),
        most: usize,
    ) -> bool {
        let pending = link.pending();
        let holds = stands
            && now < self.until
            && pending == self.len
            && pending <= most
            && !channel.has_rest()
            && !link.has_hung_up()
            && !link.is_ending();
        if !holds {
            *self = Cork::NONE;
        }
        holds
    }
}

/// The connections whose answers wait, in the order in which their time is over. One that has sent them meanwhile is
/// still there.
#[derive(Debug, Default)]
pub(super) struct Corks(VecDeque<(Instant, ConnId)>);

impl Corks {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Answers of connection `id` wait until `until`, later than all others.
    pub(super) fn push(&mut self, id: ConnId, until: Instant) {
        self.0.push_back((until, id));
    }

    /// When the time of the next is over.
    #[inline]
    pub(super) fn next(&self) -> Instant {
        self.0.front().map_or(Instant::MAX, |&(until, _)| until)
    }

    /// Takes a connection whose time is over at `now`.
    pub(super) fn pop(&mut self, now: Instant) -> Option<ConnId> {
        self.0.pop_front_if(|&mut (until, _)| until <= now).map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1_000);
    const UNTIL: Instant = Instant::from_nanos(2_000);

    /// A link whose output is the answer to one refused request, of 100 bytes, which waits.
    fn corked() -> (Link, Cork) {
        let (mut link, mut cork) = (Link::new(), Cork::NONE);
        link.output().extend([0; 100]);
        assert!(cork.add((0, 100), UNTIL));
        (link, cork)
    }

    fn holds(link: &Link, cork: &mut Cork, now: Instant) -> bool {
        cork.holds((link, &Channel::NEW), (now, true), 200)
    }

    /// Purpose: each thing that ends the wait ends it for good, and nothing else does.
    #[test]
    fn the_wait_ends() {
        type End = fn(&mut Link);
        let ends: [(&str, End); 4] = [
            ("other output", |link| link.output().push(0)),
            ("the output was taken", |link| _ = link.take_output(NOW)),
            ("the client has finished sending", |link| link.on_hang_up(NOW)),
            ("the end", |link| link.end(false)),
        ];
        for (what, end) in ends {
            let (mut link, mut cork) = corked();
            assert!(holds(&link, &mut cork, NOW), "{what}");
            end(&mut link);
            assert!(!holds(&link, &mut cork, NOW) && !cork.is_some(), "{what}");
        }
        let (link, mut cork) = corked();
        assert!(holds(&link, &mut cork, Instant::from_nanos(1_999)));
        assert!(
            !holds(&link, &mut cork, UNTIL) && !holds(&link, &mut cork, NOW),
            "its time is over"
        );
        let (link, mut cork) = corked();
        assert!(!cork.holds((&link, &Channel::NEW), (NOW, false), 200), "no queue stands");
        let (link, mut cork) = corked();
        assert!(cork.holds((&link, &Channel::NEW), (NOW, true), 100));
        assert!(!cork.holds((&link, &Channel::NEW), (NOW, true), 99), "much output");
    }

    /// Purpose: a further answer waits until the first one's time is over; one behind other output does not wait.
    #[test]
    fn further_answers() {
        let (mut link, mut cork) = corked();
        link.output().extend([0; 50]);
        assert!(!cork.add((100, 150), Instant::from_nanos(9_000)));
        assert!(holds(&link, &mut cork, NOW) && !holds(&link, &mut cork, UNTIL));
        let (mut link, mut cork) = corked();
        link.output().extend([0; 60]);
        assert!(!cork.add((110, 160), UNTIL) && !holds(&link, &mut cork, NOW));
    }

    /// Purpose: nobody waits for long compared to the patience.
    #[test]
    fn time() {
        let ms = Duration::from_millis;
        let times = [(10, 200), (500, 10_000), (1_000, 20_000), (60_000, 20_000)];
        for (patience, micros) in times {
            assert_eq!(time_max(ms(patience)), Duration::from_micros(micros));
        }
    }
}
