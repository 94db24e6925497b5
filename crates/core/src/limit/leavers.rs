//! Is the wait in the queue just as long as clients wait?
//!
//! A client that leaves takes its request with it: a proxy resets the connection, or its stream. So a queue may be too
//! long for its clients although no request in it was given up. Just above the capacity it grows until as many leave as
//! come too much, and stays at that length: all requests that are started have then waited for nearly as long as their
//! clients do, and all answers come too late.
//!
//! The sign is that nobody outlasts those who leave. If only a few clients are impatient, requests of others are started
//! that have waited for longer; and in a queue that is shorter, nobody leaves. Requests of a higher class start before those
//! of a lower one, however long these have waited: they are compared with their own class.
//!
//! Never here: a clock.

use core::time::Duration;

/// A wait is as long as that of those who leave if it is shorter by a quarter at most, since the queue's length varies, or
/// longer by a sixteenth, since the server learns a little late that a client has left.
/// `a_few_clients_that_leave_are_no_overload` and `clients_that_leave_are_seen` notice a wrong value.
const SHORTER: u32 = 4;
const LONGER: u32 = 16;

/// How many of the starts in a window may have waited for another time: one of so many.
const OTHERS: u32 = 8;

/// How much one more that leaves changes the mean wait of those who leave: an eighth.
const WEIGHT: u32 = 8;

/// Compares the waits of requests that are started with the waits of those whose clients leave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Leavers {
    /// The mean wait of those who left recently; `None` if nobody did.
    wait: Option<Duration>,
    /// In the current window: who left, and the starts after about that wait, and after another one.
    left: u32,
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
        self.left = self.left.saturating_add(1);
        let mean = self.wait.unwrap_or(wait);
        self.wait = Some(mean - mean / WEIGHT + wait / WEIGHT);
    }

    /// A request is started that has waited for `wait`.
    #[inline]
    pub(super) fn on_start(&mut self, wait: Duration) {
        if let Some(mean) = self.wait {
            let is_near = (mean - mean / SHORTER..=mean + mean / LONGER).contains(&wait);
            let counter = if is_near { &mut self.near } else { &mut self.other };
            *counter = counter.saturating_add(1);
        }
    }

    /// A window ends.
    pub(super) fn take_finding(&mut self) -> Finding {
        let Leavers { left, near, other, .. } = *self;
        *self = Leavers { wait: self.wait, ..Leavers::default() };
        match near > 0 && other <= near / OTHERS {
            true if left > 0 => Finding::TooLong,
            true => Finding::Unchanged,
            false => Finding::ShortEnough,
        }
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
}
