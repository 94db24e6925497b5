//! Is the wait in the queue as long as clients are willing to wait?
//!
//! A client that leaves takes its request with it: a proxy resets the connection, or its stream. So a queue may be too long
//! for its clients although it contains no abandoned request. Just above the capacity it grows until as many clients leave
//! as come in excess, and then keeps its length: all requests that are started have then waited nearly as long as their
//! clients wait, and all answers come too late.
//!
//! The sign is that no client waits longer than the clients that leave. If only a few clients are impatient, requests of others
//! are started after a longer wait; and in a shorter queue, no client leaves. So only a client that leaves just before its turn
//! shows that the queue is too long. A client that leaves long before shows nothing: the others may wait longer, or leave just
//! before their own turn. And if clients leave at any time, for reasons of their own, few of them do so just before their turn.
//! Requests of a higher class start before those of a lower class, however long these have waited, so requests are compared
//! within their class.
//!
//! Never here: a clock.

use core::time::Duration;

use super::turn::is_still;

/// A wait is as long as that of those who leave if it is shorter by a quarter at most, since the queue's length varies, or
/// longer by a sixteenth, since the server learns a little late that a client has left.
/// `a_few_clients_that_leave_are_no_overload`, `clients_that_leave_are_seen` and `some_leave_sooner` notice a wrong value.
const SHORTER: u32 = 4;
const LONGER: u32 = 16;

/// Clients that leave at any time, evenly spread, leave three times as often in the three sixteenths before the last one of
/// their wait as in that. Up to twice as often is no reason to doubt. `leaving_at_any_time` notices a wrong value.
const SPREAD: u32 = 2;

/// How many of the starts in a window may have waited for another time: one of so many.
const OTHERS: u32 = 8;

/// How much one more that leaves changes the mean wait of those who leave: an eighth.
const WEIGHT: u32 = 8;

/// Compares the waits of requests that are started with the waits of those whose clients leave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leavers {
    /// How long the request that was started last had waited: a request that has waited for as long is next.
    turn: Duration,
    /// The mean wait of those who left recently just before their turn; `None` if nobody did.
    wait: Option<Duration>,
    window: Counts,
    /// The windows in which nobody outlasted them, the last of all.
    unbroken: Counts,
}

/// Who left just before their turn, and who a little sooner; and the starts after about the wait of the former, and after
/// another one.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    left: u32,
    sooner: u32,
    near: u32,
    other: u32,
}

/// The result of one window, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Finding {
    /// Neither of the others.
    ShortEnough,
    /// Requests are started after the wait after which clients left before.
    Unchanged,
    /// Clients left, and requests are started after the same wait.
    TooLong,
}

impl Finding {
    pub(super) fn worst<const N: usize>(findings: [Finding; N]) -> Finding {
        findings.into_iter().max().unwrap_or(Finding::ShortEnough)
    }
}

impl Leavers {
    /// A client has left that had waited for `wait`.
    pub(super) fn on_leave(&mut self, wait: Duration) {
        if wait < self.turn - self.turn / LONGER {
            let is_near = wait >= self.turn - self.turn / SHORTER;
            self.window.sooner = self.window.sooner.saturating_add(u32::from(is_near));
            return; // Others wait for longer.
        }
        self.window.left = self.window.left.saturating_add(1);
        let mean = self.wait.unwrap_or(wait);
        self.wait = Some(mean - mean / WEIGHT + wait / WEIGHT);
    }

    /// A request is started that has waited for `wait`.
    #[inline]
    pub(super) fn on_start(&mut self, wait: Duration) {
        self.turn = wait;
        if let Some(mean) = self.wait {
            let is_near = (mean - mean / SHORTER..=mean + mean / LONGER).contains(&wait);
            let Counts { near, other, .. } = &mut self.window;
            let counter = if is_near { near } else { other };
            *counter = counter.saturating_add(1);
        }
    }

    /// A window ends.
    pub(super) fn take_finding(&mut self) -> Finding {
        let Counts { left, sooner, near, other } = core::mem::take(&mut self.window);
        if near == 0 || other > near / OTHERS {
            self.unbroken = Counts::default();
            return Finding::ShortEnough;
        }
        self.unbroken = self.unbroken.and(Counts { left, sooner, near, other });
        match left > 0 && self.unbroken.is_evidence() {
            true => Finding::TooLong,
            false => Finding::Unchanged,
        }
    }
}

impl Counts {
    fn and(self, next: Counts) -> Counts {
        Counts {
            left: self.left.saturating_add(next.left),
            sooner: self.sooner.saturating_add(next.sooner),
            near: self.near.saturating_add(next.near),
            other: self.other.saturating_add(next.other),
        }
    }

    /// Whether those who left just before their turn did so because of it.
    fn is_evidence(self) -> bool {
        let are_spread = self.sooner > self.left.saturating_mul(SPREAD);
        is_still(self.left.into(), self.near.into()) && !are_spread
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Purpose: a queue whose wait is that of those who leave is too long, one that is outlasted or shorter is not, and
    /// one without anybody who left says nothing.
    #[test]
    fn nobody_outlasts_those_who_leave() {
        let find = |left: &[u32], started: &[u32]| {
            let mut leavers = Leavers::default();
            left.iter().for_each(|wait| leavers.on_leave(*wait * MS));
            started.iter().for_each(|wait| leavers.on_start(*wait * MS));
            leavers.take_finding()
        };
        assert_eq!(find(&[], &[200, 200]), Finding::ShortEnough);
        assert_eq!(find(&[200, 201], &[199, 201, 198]), Finding::TooLong);
        assert_eq!(find(&[30, 30], &[100, 100, 100]), Finding::ShortEnough, "outlasted");
        assert_eq!(find(&[200, 200], &[100, 100, 100]), Finding::ShortEnough, "shorter");
        assert_eq!(find(&[200, 200], &[]), Finding::ShortEnough, "nothing is started");
    }

    /// Purpose: the wait of those who left is remembered beyond a window.
    #[test]
    fn a_window_without_anybody_who_leaves() {
        let mut leavers = Leavers::default();
        leavers.on_leave(200 * MS);
        leavers.on_start(200 * MS);
        assert_eq!(leavers.take_finding(), Finding::TooLong);
        leavers.on_start(190 * MS);
        assert_eq!(leavers.take_finding(), Finding::Unchanged);
        leavers.on_start(90 * MS);
        assert_eq!(leavers.take_finding(), Finding::ShortEnough);
    }

    /// Purpose: those who leave long before their turn hide nobody who leaves when it is near, and do not count as such.
    #[test]
    fn those_who_leave_long_before_their_turn() {
        let find = |late: &[u32]| {
            let mut leavers = Leavers::default();
            (0..20).for_each(|_| leavers.on_start(198 * MS));
            (0..20).for_each(|_| leavers.on_leave(30 * MS));
            late.iter().for_each(|wait| leavers.on_leave(*wait * MS));
            (0..20).for_each(|_| leavers.on_start(198 * MS));
            leavers.take_finding()
        };
        assert_eq!(find(&[]), Finding::ShortEnough);
        assert_eq!(find(&[201]), Finding::TooLong);
    }

    /// Purpose: one of so many that it may be chance is not yet evidence.
    #[test]
    fn chance_is_no_evidence() {
        for (starts, finding) in [(100, Finding::TooLong), (101, Finding::Unchanged)] {
            let mut leavers = Leavers::default();
            leavers.on_leave(200 * MS);
            (0..starts).for_each(|_| leavers.on_start(199 * MS));
            assert_eq!(leavers.take_finding(), finding, "{starts}");
        }
    }

    /// Purpose: clients that leave at any time while they wait do not say that the queue is too long, however many.
    #[test]
    fn leaving_at_any_time() {
        let mut leavers = Leavers::default();
        for round in 0..100 {
            (0..90).for_each(|n| leavers.on_start((1900 + n) * MS / 10));
            (0..16).for_each(|n| leavers.on_leave((n * 125 + round % 125) * MS / 10));
            assert_ne!(leavers.take_finding(), Finding::TooLong, "{leavers:?}");
        }
    }
}
