//! Which admissions will never become a connection?
//!
//! A place is taken by a SYN, and given back when the work of the accepted connection ends. A client
//! that sends a SYN and nothing else, hangs up during the handshake or sends its SYN twice takes a
//! place that nobody gives back. Only totals are known, not who is who:
//!
//! ```text
//!  missing  = admitted − arrived: handshakes under way, and those that will never end
//!  lost     = the least that was missing at any moment of the last second
//!  share    = how much was lost of what was admitted lately
//!  forgiven = lost + share × admitted in the last second + share × what comes until the next look
//! ```
//!
//! Handshakes come and go, so what is missing falls, every now and then, to what is lost; traffic need
//! not pause for that. Where it does not fall, because so many handshakes are always under way (clients
//! that are far away), as many of them take no place: they wait for the network, not for us.
//!
//! Of those who came in the last second, the share that was lost lately is expected to be lost as well,
//! if so many are missing; and of those who come until the next look. Without that, a flood of SYNs in
//! the name of others would shut everybody out if it had more SYNs a second than the limit has places,
//! which may be ten. While nothing is lost the share is 0, and the count exact.
//!
//! Invariants: nothing counts as lost that has not been missing for a [`PATIENCE`], and nothing is
//! expected to be that was not so before; whoever arrives after all counts again, with the next look. A
//! gate whose places are all lost is open again after one patience.
//!
//! Pure: totals and time come in, a correction comes out.

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::time::Instant;

/// How long a handshake may take before its place is given to others. The first repetition of a lost
/// SYN-ACK comes after a second (RFC 6298 §2).
const PATIENCE: Duration = Duration::from_secs(1);

/// How finely time is kept: looks closer than this to the one before become one with it.
const STEP: Duration = Duration::from_millis(50);

/// The most that is forgiven before it has come: as much as a flood of 10 000 SYNs a second brings
/// between two looks. A guess; a stronger one closes the gate for part of that time.
const AHEAD_MAX: u64 = 1000;

/// How long what was lost has a say in what is expected to be: a guess. While the gate is closed little is
/// admitted, and nothing learned.
const MEMORY: Duration = Duration::from_secs(3);

/// What a gate has counted so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    /// SYNs that took a place.
    pub(super) admitted: u64,
    /// SYNs that found none.
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

/// What is known of admissions over the last second.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Oldest first; at most `PATIENCE / STEP`, and one more that is older than that.
    looks: VecDeque<Look>,
    /// SYNs at the last look, whatever became of them.
    attempts: u64,
    share: Share,
    /// Of all admissions, how many count as over although they never arrived.
    forgiven: u64,
}

impl Ledger {
    /// Takes in what was counted by now, and says by how much the count of work is to be corrected.
    ///
    /// The totals need not be of the same moment: a connection that arrives between the one look and
    /// the other is missing in this call, or arrived too early, and not in the next.
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
        let forgiven = lost + expected;
        let correction = self.forgiven as i64 - forgiven as i64;
        self.forgiven = forgiven;
        correction
    }

    /// The least that was missing in the last second; `None` in the first.
    fn least_missing(&self, now: Instant) -> Option<u64> {
        let begin = self.before(now)?;
        self.looks.iter().skip(begin).map(|look| look.missing).min()
    }

    /// How many had been admitted a patience ago.
    fn admitted_before(&self, now: Instant) -> u64 {
        self.before(now).map_or(0, |position| self.looks[position].admitted)
    }

    /// The last look that is a patience old, or older.
    fn before(&self, now: Instant) -> Option<usize> {
        self.looks.iter().rposition(|look| now - look.at >= PATIENCE)
    }

    fn remember(&mut self, look: Look) {
        match self.looks.back_mut() {
            Some(last) if look.at - last.at < STEP => {
                last.missing = last.missing.min(look.missing);
            }
            _ => self.looks.push_back(look),
        }
        while self.looks.get(1).is_some_and(|second| look.at - second.at >= PATIENCE) {
            self.looks.pop_front();
        }
    }
}

/// The share of admissions that are lost, as far as one can tell by now.
#[derive(Debug, Default)]
struct Share {
    at: Instant,
    lost_before: u64,
    admitted_before: u64,
    /// What was lost, and of how many, both fading with [`MEMORY`].
    lost: f64,
    admitted: f64,
}

impl Share {
    /// Takes in that of the first `admitted` so many are `lost`.
    fn learn(&mut self, now: Instant, lost: u64, admitted: u64) {
        let left = (-(now - self.at).as_secs_f64() / MEMORY.as_secs_f64()).exp();
        self.at = now;
        // Who was given up and came after all is taken off again.
        self.lost = self.lost * left + lost as f64 - self.lost_before as f64;
        self.admitted = self.admitted * left + admitted as f64 - self.admitted_before as f64;
        (self.lost_before, self.admitted_before) = (lost, admitted);
    }

    /// How many of so many.
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

    impl Ledger {
        /// A look by a gate that never refused anybody.
        fn look(&mut self, now: Instant, admitted: u64, arrived: u64) -> i64 {
            self.reconcile(now, Totals { admitted, refused: 0, arrived })
        }
    }

    /// Purpose: a place that nobody came to claim is free after a second, once, and not before.
    #[test]
    fn a_lost_admission_is_forgiven_after_a_second() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.look(at(0), 3, 1), 0);
        for ms in (100..1000).step_by(100) {
            assert_eq!(ledger.look(at(ms), 3, 1), 0, "{ms}");
        }
        assert_eq!(ledger.look(at(1000), 3, 1), -2);
        assert_eq!(ledger.look(at(1100), 3, 1), 0);
        assert_eq!(ledger.look(at(5000), 3, 1), 0);
    }

    /// Purpose: who was forgiven and comes after all is counted again, and its end is then its own.
    #[test]
    fn a_late_handshake_is_counted_again() {
        let mut ledger = Ledger::default();
        ledger.look(at(0), 2, 0);
        assert_eq!(ledger.look(at(1000), 2, 0), -2);
        assert_eq!(ledger.look(at(1100), 2, 1), 1);
        assert_eq!(ledger.look(at(1200), 2, 2), 1);
        assert_eq!(ledger.look(at(9000), 2, 2), 0);
    }

    /// Purpose: load that never pauses hides no loss. Nine of ten looks find handshakes under way, of
    /// different numbers; what was lost before is free within two seconds, however much less it is
    /// than what arrives in that time. For a while as many more may be forgiven as are under way; in the
    /// end the count is exact.
    #[test]
    fn a_loss_is_forgiven_under_steady_load() {
        for lost in [1, 5, 500] {
            let mut prng = highwater_core::prng::Prng::from_seed(lost);
            let (mut ledger, mut corrected) = (Ledger::default(), 0);
            for look in 0..400 {
                let arrived = look * 90;
                let opening = if look % 10 == 7 { 0 } else { 1 + prng.below(40) };
                let admitted = arrived + opening + lost;
                corrected += ledger.look(at(look * 100), admitted, arrived);
                if look > 20 {
                    let forgiven = -corrected as u64;
                    let ahead = if look < 200 { 90 } else { 0 };
                    assert!(
                        (lost..=lost + opening + ahead).contains(&forgiven),
                        "{forgiven} at {look}"
                    );
                }
            }
            assert_eq!(corrected, -(lost as i64));
        }
    }

    /// Clients whose handshake takes no time and whose work takes a millisecond, against `flood` SYNs a
    /// second that nobody follows up, at a gate with room for `limit`. Returns how many a second were
    /// served, of 400, in the last eight of ten seconds, and the most that were served at a time.
    fn besieged(flood: u64, limit: i64) -> (u64, i64) {
        let mut prng = highwater_core::prng::Prng::from_seed(flood);
        let (mut ledger, mut totals) = (Ledger::default(), Totals::default());
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
                taken += ledger.reconcile(at(ms), totals);
            }
        }
        (served / 8, working_max)
    }

    /// Purpose: a flood of SYNs shuts nobody out for long, though the limit has but ten places; one that
    /// is stronger than what is foreseen leaves the others their part of what is.
    #[test]
    fn a_flood_shuts_nobody_out() {
        for flood in [0, 1, 10, 100, 1000, 9000] {
            let (served, working_max) = besieged(flood, 10);
            assert!(served >= 300, "{served} of 400 a second, against {flood}");
            assert!(working_max <= 10, "{working_max} against {flood}");
        }
        let (served, _) = besieged(100_000, 10);
        assert!(served >= 25, "{served} of 400 a second");
    }

    /// Purpose: while every handshake ends within the second, nothing is ever corrected, but for those
    /// that are always under way; and looking often costs no memory.
    #[test]
    fn a_healthy_server_is_not_corrected() {
        let (mut ledger, mut corrected) = (Ledger::default(), 0);
        for step in 0..10_000_u64 {
            // A burst of 90 every 200 ms; their handshakes take 150.
            let bursts = |ms: u64| (ms / 200 + 1) * 90;
            let now = step * 10;
            let arrived = now.checked_sub(150).map_or(0, bursts);
            corrected += ledger.look(at(now), bursts(now), arrived);
            assert_eq!(corrected, 0, "{step}");
        }
        assert!(ledger.looks.len() <= 22, "{} looks", ledger.looks.len());
        // 90 more every tenth of a second, and nine tenths of a second behind: so many on the way.
        let mut ledger = Ledger::default();
        let total: i64 = (0..100_u64)
            .map(|step| ledger.look(at(step * 100), step * 90, step.saturating_sub(9) * 90))
            .sum();
        assert!((-820..=-810).contains(&total), "{total}");
    }

    /// Purpose: corrections never free a place that is in use: what is admitted less what is
    /// forgiven is never below what arrived, but for what is expected to be lost before the next look.
    #[test]
    fn missing_never_goes_negative() {
        let mut prng = highwater_core::prng::Prng::from_seed(7);
        let (mut ledger, mut admitted, mut arrived, mut corrected) = (Ledger::default(), 0, 0, 0);
        for step in 0..10_000 {
            let came = prng.below(4);
            admitted += came;
            arrived = admitted.min(arrived + prng.below(4));
            corrected += ledger.look(at(step * 60), admitted, arrived);
            assert!(corrected <= 0 && admitted as i64 + corrected + came as i64 >= arrived as i64);
        }
    }
}
