//! How many admitted SYNs will never become a connection?
//!
//! A SYN takes a place at the gate. The end of the accepted connection's work frees the place. Some
//! places are never freed that way: a client may send only a SYN, hang up during the handshake, or
//! send its SYN twice. The gate knows only totals, not single connections:
//!
//! ```text
//!  missing     = admitted − arrived: handshakes in progress, and those that will never complete
//!  lost        = the smallest `missing` of the last `patience`
//!  share       = lost ÷ admitted, lately
//!  written off = lost + share × admitted in that time + share × arrivals until the next look
//! ```
//!
//! Handshakes begin and end, so `missing` falls to `lost` every now and then, without a pause in
//! the traffic. If so many handshakes are always in progress (distant clients) that it does not
//! fall, then as many of them take no place: they wait for the network, not for this server.
//!
//! Of the SYNs of that time, and of those until the next look, the recent share is expected
//! to be lost as well, if that many are missing. Otherwise a flood of SYNs with forged addresses
//! would exclude all clients as soon as it sends more SYNs per second than the limit has places,
//! which may be ten. While nothing is lost, `share` is 0 and the count is exact.
//!
//! Invariants: no SYN counts as lost before it has been missing for the `patience`, and none is
//! expected to be lost unless others were lost before. A connection that arrives late counts again
//! from the next look on. A gate whose places are all lost opens again after one `patience`.
//!
//! Pure: totals and time come in, a correction comes out.

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::time::Instant;

/// How long a handshake may take before its place is written off, unless the gate says otherwise. The
/// first repetition of a lost SYN-ACK comes after a second (RFC 6298 §2).
const PATIENCE: Duration = Duration::from_secs(1);

/// The resolution of time: a look that comes sooner after the previous one is merged into it.
const STEP: Duration = Duration::from_millis(50);

/// The largest amount that is written off in advance: what a flood of 10 000 SYNs per second brings
/// between two looks. A guess; a stronger flood closes the gate for part of that time.
const AHEAD_MAX: u64 = 1000;

/// How long past losses count for the share that is expected to be lost: a guess. While the gate is
/// closed, few SYNs are admitted, so the gate learns little.
const MEMORY: Duration = Duration::from_secs(3);

/// What a gate has counted so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// SYNs that took a place.
    pub(super) admitted: u64,
    /// SYNs that were refused.
    pub(super) refused: u64,
    /// Connections whose handshake was completed.
    pub(super) arrived: u64,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    admitted: u64,
    missing: u64,
}

/// The admissions of the last `patience`.
#[derive(Debug)]
pub(super) struct Reconciler {
    patience: Duration,
    /// Oldest first; at most `patience / STEP`, and one more that is older than that.
    looks: VecDeque<Look>,
    /// SYNs at the last look, admitted or refused.
    attempts: u64,
    share: Share,
    /// How many admissions are written off: they count as over although they never arrived.
    written_off: u64,
}

impl Default for Reconciler {
    fn default() -> Self {
        Reconciler::with_patience(PATIENCE)
    }
}

impl Reconciler {
    /// Writes off places whose handshakes take longer than `patience`.
    pub(super) fn with_patience(patience: Duration) -> Self {
        let (looks, share) = (VecDeque::new(), Share::default());
        Reconciler { patience, looks, attempts: 0, share, written_off: 0 }
    }

    /// Takes in the totals, and returns the correction of the count of work.
    ///
    /// The totals need not be of one moment if the arrivals are read first: a connection that comes between
    /// the readings is then missing in this call and not in the next. In the other order it would count as
    /// arrived and never admitted, and hide a lost place for a whole `patience`.
    pub(super) fn reconcile(&mut self, now: Instant, totals: Totals) -> i64 {
        let Totals { admitted, refused, arrived } = totals;
        let missing = admitted.saturating_sub(arrived);
        let attempts = admitted + refused;
        let came = attempts.saturating_sub(self.attempts);
        self.attempts = attempts;

        let lost = self.least_missing(now).map_or(0, |least| least.min(missing));
        let before = self.admitted_before(now);
        self.share.learn(now, lost, before);
        self.remember(Look { at: now, admitted, missing });
        let on_their_way = self.share.of(admitted - before).min(missing - lost);
        let expected = on_their_way + self.share.of(came).min(AHEAD_MAX);
        let written_off = lost + expected;
        let correction = self.written_off as i64 - written_off as i64;
        self.written_off = written_off;
        correction
    }

    /// The smallest `missing` of the last `patience`; `None` in the first one.
    fn least_missing(&self, now: Instant) -> Option<u64> {
        let begin = self.before(now)?;
        self.looks.iter().skip(begin).map(|look| look.missing).min()
    }

    /// How many SYNs had been admitted a `patience` ago.
    fn admitted_before(&self, now: Instant) -> u64 {
        self.before(now).map_or(0, |position| self.looks[position].admitted)
    }

    /// The last look that is at least a `patience` old.
    fn before(&self, now: Instant) -> Option<usize> {
        self.looks.iter().rposition(|look| now - look.at >= self.patience)
    }

    fn remember(&mut self, look: Look) {
        match self.looks.back_mut() {
            Some(last) if look.at - last.at < STEP => {
                last.missing = last.missing.min(look.missing);
            }
            _ => self.looks.push_back(look),
        }
        let patience = self.patience;
        while self.looks.get(1).is_some_and(|second| look.at - second.at >= patience) {
            self.looks.pop_front();
        }
    }
}

/// The recent share of admissions that were lost.
#[derive(Debug, Default)]
struct Share {
    at: Instant,
    lost_before: u64,
    admitted_before: u64,
    /// Lost SYNs, and admitted SYNs; the weight of both decays with [`MEMORY`].
    lost: f64,
    admitted: f64,
}

impl Share {
    /// Takes in that `lost` of the first `admitted` SYNs are lost.
    fn learn(&mut self, now: Instant, lost: u64, admitted: u64) {
        let left = (-(now - self.at).as_secs_f64() / MEMORY.as_secs_f64()).exp();
        self.at = now;
        // A SYN that was written off and arrives after all is subtracted again.
        self.lost = self.lost * left + lost as f64 - self.lost_before as f64;
        self.admitted = self.admitted * left + admitted as f64 - self.admitted_before as f64;
        (self.lost_before, self.admitted_before) = (lost, admitted);
    }

    /// The expected loss among `count` SYNs.
    fn of(&self, count: u64) -> u64 {
        let share = (self.lost / self.admitted.max(1.0)).clamp(0.0, 1.0);
        (count as f64 * share) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    impl Reconciler {
        /// A look by a gate that has refused nothing.
        fn look(&mut self, now: Instant, admitted: u64, arrived: u64) -> i64 {
            self.reconcile(now, Totals { admitted, refused: 0, arrived })
        }
    }

    /// Purpose: a lost place is free again after a second, once, and not before.
    #[test]
    fn a_lost_admission_is_written_off_after_a_second() {
        let mut reconciler = Reconciler::default();
        assert_eq!(reconciler.look(at(0), 3, 1), 0);
        for ms in (100..1000).step_by(100) {
            assert_eq!(reconciler.look(at(ms), 3, 1), 0, "{ms}");
        }
        assert_eq!(reconciler.look(at(1000), 3, 1), -2);
        assert_eq!(reconciler.look(at(1100), 3, 1), 0);
        assert_eq!(reconciler.look(at(5000), 3, 1), 0);
    }

    /// Purpose: a gate that is less patient frees a lost place after its own patience.
    #[test]
    fn patience_is_the_gates_own() {
        let mut reconciler = Reconciler::with_patience(Duration::from_millis(100));
        let corrections = [0, 25, 50, 75, 100, 125].map(|ms| reconciler.look(at(ms), 3, 1));
        assert_eq!(corrections, [0, 0, 0, 0, -2, 0]);
    }

    /// Purpose: a connection that was written off and arrives after all counts again, and its end
    /// frees its own place.
    #[test]
    fn a_late_handshake_is_counted_again() {
        let mut reconciler = Reconciler::default();
        reconciler.look(at(0), 2, 0);
        assert_eq!(reconciler.look(at(1000), 2, 0), -2);
        assert_eq!(reconciler.look(at(1100), 2, 1), 1);
        assert_eq!(reconciler.look(at(1200), 2, 2), 1);
        assert_eq!(reconciler.look(at(9000), 2, 2), 0);
    }

    /// Purpose: load that never pauses hides no loss. Nine of ten looks find handshakes in progress, in
    /// different numbers. Places lost before are free within two seconds, even if they are far fewer than the
    /// arrivals in that time. For a while, as many more may be written off as are in progress; in the end the
    /// count is exact.
    #[test]
    fn a_loss_is_written_off_under_steady_load() {
        for lost in [1, 5, 500] {
            let mut prng = highwater_core::prng::Prng::from_seed(lost);
            let (mut reconciler, mut corrected) = (Reconciler::default(), 0);
            for look in 0..400 {
                let arrived = look * 90;
                let opening = if look % 10 == 7 { 0 } else { 1 + prng.below(40) };
                let admitted = arrived + opening + lost;
                corrected += reconciler.look(at(look * 100), admitted, arrived);
                if look > 20 {
                    let written_off = -corrected as u64;
                    let ahead = if look < 200 { 90 } else { 0 };
                    assert!(
                        (lost..=lost + opening + ahead).contains(&written_off),
                        "{written_off} at {look}"
                    );
                }
            }
            assert_eq!(corrected, -(lost as i64));
        }
    }

    /// Clients whose handshake takes no time and whose work takes a millisecond, against `flood`
    /// SYNs per second without a handshake, at a gate with room for `limit`. Returns how many of 400
    /// per second were served in the last eight of ten seconds, and the most that were served at a
    /// time.
    fn besieged(flood: u64, limit: i64) -> (u64, i64) {
        let mut prng = highwater_core::prng::Prng::from_seed(flood);
        let (mut reconciler, mut totals) = (Reconciler::default(), Totals::default());
        let (mut taken, mut working, mut working_max, mut served) = (0, 0, 0, 0);
        for ms in 0..10_000 {
            taken -= working;
            working = 0;
            for kind in 0..2 {
                let rate = if kind == 0 { flood } else { 400 };
                let syns = rate / 1000 + u64::from(prng.chance(rate % 1000, 1000));
                for _ in 0..syns {
                    if taken >= limit {
                        totals.refused += 1;
                        continue;
                    }
                    taken += 1;
                    totals.admitted += 1;
                    if kind == 1 {
                        totals.arrived += 1;
                        working += 1;
                        served += u64::from(ms >= 2000);
                    }
                }
            }
            working_max = working_max.max(working);
            if ms % 100 == 0 {
                taken += reconciler.reconcile(at(ms), totals);
            }
        }
        (served / 8, working_max)
    }

    /// Purpose: a flood of SYNs does not exclude clients for long, although the limit is only ten;
    /// during a flood stronger than expected, clients still get a share of the places.
    #[test]
    fn a_flood_leaves_room_for_clients() {
        for flood in [0, 1, 10, 100, 1000, 9000] {
            let (served, working_max) = besieged(flood, 10);
            assert!(served >= 300, "{served} of 400 per second, against {flood}");
            assert!(working_max <= 10, "{working_max} against {flood}");
        }
        let (served, _) = besieged(100_000, 10);
        assert!(served >= 25, "{served} of 400 per second");
    }

    /// Purpose: while every handshake ends within a second, nothing is corrected except for those
    /// that are always in progress; and looking often costs no memory.
    #[test]
    fn a_healthy_server_is_not_corrected() {
        let (mut reconciler, mut corrected) = (Reconciler::default(), 0);
        for step in 0..10_000_u64 {
            // A burst of 90 every 200 ms; their handshakes take 150.
            let bursts = |ms: u64| (ms / 200 + 1) * 90;
            let now = step * 10;
            let arrived = now.checked_sub(150).map_or(0, bursts);
            corrected += reconciler.look(at(now), bursts(now), arrived);
            assert_eq!(corrected, 0, "{step}");
        }
        assert!(reconciler.looks.len() <= 22, "{} looks", reconciler.looks.len());
        // 90 more every tenth of a second, and nine tenths of a second late: that many are in
        // progress.
        let mut reconciler = Reconciler::default();
        let total: i64 = (0..100_u64)
            .map(|step| reconciler.look(at(step * 100), step * 90, step.saturating_sub(9) * 90))
            .sum();
        assert!((-820..=-810).contains(&total), "{total}");
    }

    /// Purpose: corrections never free a place that is in use: admitted less written off is never
    /// below arrived, except for the loss expected before the next look.
    #[test]
    fn missing_never_goes_negative() {
        let mut prng = highwater_core::prng::Prng::from_seed(7);
        let (mut reconciler, mut admitted, mut arrived, mut corrected) =
            (Reconciler::default(), 0, 0, 0);
        for step in 0..10_000 {
            let came = prng.below(4);
            admitted += came;
            arrived = admitted.min(arrived + prng.below(4));
            corrected += reconciler.look(at(step * 60), admitted, arrived);
            assert!(corrected <= 0 && admitted as i64 + corrected + came as i64 >= arrived as i64);
        }
    }
}
