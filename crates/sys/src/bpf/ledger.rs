//! Which admissions will never become a connection?
//!
//! A place is taken by a SYN, and given back when the work of the accepted connection ends. A client
//! that sends a SYN and nothing else, or hangs up during the handshake, takes a place that nobody
//! gives back. What was admitted a [patience](PATIENCE) ago and was not accepted since is forgiven;
//! who is accepted after all is counted again.
//!
//! Only totals are known, not who is who, so the ledger assumes that the oldest are accepted first:
//! it forgives too late rather than too early, never more than there are. A gate whose places all
//! leaked admits nobody, so it is open again after one patience.
//!
//! Pure: totals and time come in, a correction comes out.

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::time::Instant;

/// How long a handshake may take before its place is given to others. The first repetition of a lost
/// SYN-ACK comes after a second (RFC 6298 §2).
const PATIENCE: Duration = Duration::from_secs(1);

/// How finely time is kept: observations closer than this to the one before are not remembered.
const STEP: Duration = Duration::from_millis(50);

/// What is known of admissions over the last second.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// When there were how many admissions, oldest first; at most `PATIENCE / STEP`, and one more
    /// that is older than that.
    history: VecDeque<(Instant, u64)>,
    /// Of all admissions, how many count as over although nobody accepted them.
    forgiven: u64,
}

impl Ledger {
    /// Takes in that so many were admitted and so many of them accepted by now, in total, and says
    /// by how much the count of work is to be corrected.
    pub(super) fn reconcile(&mut self, now: Instant, admitted: u64, accepted: u64) -> i64 {
        while self.history.get(1).is_some_and(|&(time, _)| now - time >= PATIENCE) {
            self.history.pop_front();
        }
        let overdue = match self.history.front() {
            Some(&(time, then)) if now - time >= PATIENCE => then.saturating_sub(accepted),
            _ => 0,
        };
        if self.history.back().is_none_or(|&(time, _)| now - time >= STEP) {
            self.history.push_back((now, admitted));
        }
        // Never more than there are: somebody who was forgiven may have been accepted after all.
        let pending = admitted.saturating_sub(accepted);
        let forgiven = self.forgiven.max(overdue).min(pending);
        let correction = self.forgiven as i64 - forgiven as i64;
        self.forgiven = forgiven;
        correction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    /// Purpose: a place that nobody came to claim is free after a second, once, and not before.
    #[test]
    fn a_lost_admission_is_forgiven_after_a_second() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.reconcile(at(0), 3, 1), 0);
        for ms in (100..1000).step_by(100) {
            assert_eq!(ledger.reconcile(at(ms), 3, 1), 0, "{ms}");
        }
        assert_eq!(ledger.reconcile(at(1000), 3, 1), -2);
        assert_eq!(ledger.reconcile(at(1100), 3, 1), 0);
        assert_eq!(ledger.reconcile(at(5000), 3, 1), 0);
    }

    /// Purpose: who was forgiven and comes after all is counted again, and its end is then its own.
    #[test]
    fn a_late_handshake_is_counted_again() {
        let mut ledger = Ledger::default();
        ledger.reconcile(at(0), 2, 0);
        assert_eq!(ledger.reconcile(at(1000), 2, 0), -2);
        assert_eq!(ledger.reconcile(at(1100), 2, 1), 1);
        assert_eq!(ledger.reconcile(at(1200), 2, 2), 1);
        assert_eq!(ledger.reconcile(at(9000), 2, 2), 0);
    }

    /// Purpose: while everybody is accepted within the second, nothing is ever corrected.
    #[test]
    fn a_healthy_server_is_never_corrected() {
        let mut ledger = Ledger::default();
        for step in 0..1000_u64 {
            let admitted = step * 90;
            // Nine tenths of a second behind.
            let accepted = step.saturating_sub(9) * 90;
            assert_eq!(ledger.reconcile(at(step * 100), admitted, accepted), 0, "{step}");
        }
        assert!(ledger.history.len() <= 21, "{} observations", ledger.history.len());
    }

    /// Purpose: corrections never free a place that is in use: what is admitted less what is
    /// forgiven is never below what was accepted.
    #[test]
    fn pending_never_goes_negative() {
        let mut prng = highwater_core::prng::Prng::from_seed(7);
        let (mut ledger, mut admitted, mut accepted, mut corrected) = (Ledger::default(), 0, 0, 0);
        for step in 0..10_000 {
            admitted += prng.below(4);
            accepted = admitted.min(accepted + prng.below(4));
            corrected += ledger.reconcile(at(step * 60), admitted, accepted);
            assert!(corrected <= 0 && admitted as i64 + corrected >= accepted as i64);
        }
    }
}
