//! Requests of two classes: a higher one, whose requests wait for a moment, and a lower one, with what time is left.

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::limit::{Standing, Turn};
use highwater_core::time::Instant;

use super::model::{MS, S, US};

const HIGH: usize = 1;
const LOW: usize = 2;

/// What clients of the lower class get, whose requests cost 3.4 ms: their share that is answered in time, and whether
/// requests of clients that left were ever dropped. The higher class uses 45 % of the time; the lower asks for `load` times
/// the rest, and waits for `patience`. A client that leaves takes its request with it.
fn lower(load: f64, patience: u64) -> (f64, bool) {
    let (cost_high, cost_low) = (MS, 3_400 * US);
    let (every_high, every_low) = (cost_high * 100 / 45, (cost_low as f64 / 0.55 / load) as u64);
    let at = Instant::from_nanos;
    let mut standing =
        Standing::new(Duration::from_millis(5), Duration::from_secs(1), Instant::ZERO);
    let (mut now, mut next_high, mut next_low) = (0, 0, 0);
    let (mut high, mut low) = (VecDeque::new(), VecDeque::new());
    let (mut came, mut good, mut has_dropped) = (0_u64, 0_u64, false);
    while now < 30 * S {
        let began = now;
        while next_high <= now {
            high.push_back(next_high);
            next_high += every_high;
        }
        while next_low <= now {
            low.push_back(next_low);
            next_low += every_low;
            came += u64::from(now > 5 * S);
        }
        let mut abandoned = 0;
        while low.front().is_some_and(|sent| now - sent > patience) {
            let sent = low.pop_front().expect("it is there");
            standing.on_leave(LOW, Duration::from_nanos(now - sent));
            abandoned += 1;
        }
        has_dropped |= standing.drops_abandoned();
        let mut started = 1;
        if let Some(sent) = high.pop_front() {
            standing.on_start(HIGH, Duration::from_nanos(now - sent));
            now += cost_high;
        } else if let Some(sent) =
            if standing.drops_abandoned() { low.pop_back() } else { low.pop_front() }
        {
            standing.on_start(LOW, Duration::from_nanos(now - sent));
            now += cost_low;
            good += u64::from(now - sent <= patience && now > 5 * S);
        } else {
            started = 0;
            now = next_high.min(next_low);
        }
        let waiting = (high.len() + low.len()) as u32;
        let (began, ended) = (at(began), at(now));
        standing.on_turn(&Turn { began, ended, waiting, started, refused: 0, abandoned });
    }
    (good as f64 / came as f64, has_dropped)
}

/// Purpose: clients of a lower class that leave are seen, though those of the higher class wait for a moment only. In the
/// order of their arrival, all requests of the lower one would be answered just after their clients have left.
#[test]
fn a_lower_class_whose_clients_leave_is_seen() {
    for load in [1.2, 1.5, 2.0, 4.0] {
        for patience in [100 * MS, 200 * MS, 400 * MS] {
            let (share, has_dropped) = lower(load, patience);
            assert!(has_dropped, "{load}, {patience} ns");
            println!("{load}, {patience} ns: {:.3} of what there is time for", share * load);
            assert!(share * load > 0.8, "{load}, {patience} ns: {share}");
        }
    }
}

/// Purpose: a lower class that has time enough is no overload.
#[test]
fn a_lower_class_that_fits_is_none() {
    let (share, has_dropped) = lower(0.8, 200 * MS);
    assert!(!has_dropped);
    assert!(share > 0.999, "{share}");
}
