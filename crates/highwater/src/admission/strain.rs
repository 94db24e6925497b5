//! Should a balancer send requests elsewhere for a while?
//!
//! ```text
//!            a queue has stood for `after`
//!   ready ────────────────────────────────▶ not ready
//!         ◀────────────────────────────────
//!            no queue has stood for `after`
//! ```
//!
//! Both directions take the same time, so the answer cannot change more often than that. Never here: a clock,
//! or detecting a standing queue.

use std::time::Duration;

use highwater_core::time::Instant;

/// Watches how long queues stand.
#[derive(Debug)]
pub(super) struct Strain {
    after: Duration,
    is_strained: bool,
    /// Since when the samples have contradicted `is_strained`.
    since: Option<Instant>,
}

impl Strain {
    pub(super) fn new(after: Duration) -> Strain {
        Strain { after, is_strained: false, since: None }
    }

    /// Takes in whether there is a standing queue at `now`. Returns whether the server is not ready.
    pub(super) fn on_sample(&mut self, now: Instant, stands: bool) -> bool {
        if stands == self.is_strained {
            self.since = None;
        } else if now - *self.since.get_or_insert(now) >= self.after {
            self.is_strained = stands;
            self.since = None;
        }
        self.is_strained
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a short overload, or a pause in one, changes nothing; both directions take the whole time.
    #[test]
    fn both_directions_take_their_time() {
        let at = |millis: u64| Instant::ZERO + Duration::from_millis(millis);
        let mut strain = Strain::new(Duration::from_secs(2));
        assert!(!strain.on_sample(at(0), true) && !strain.on_sample(at(1999), true));
        assert!(!strain.on_sample(at(2000), false), "it has ended in time");
        assert!(!strain.on_sample(at(2100), true) && !strain.on_sample(at(4099), true));
        assert!(strain.on_sample(at(4100), true));
        assert!(strain.on_sample(at(5000), false) && strain.on_sample(at(6999), false));
        assert!(strain.on_sample(at(7000), true), "it was a pause");
        assert!(strain.on_sample(at(7100), false) && strain.on_sample(at(9099), false));
        assert!(!strain.on_sample(at(9100), false));
    }
}
