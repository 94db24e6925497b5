//! How long is waited, and for what?

use std::thread;
use std::time::{Duration, Instant};

/// Far longer than anything takes, however busy the machine is: beyond it a test fails instead of hanging.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `condition` holds.
///
/// # Panics
/// If it does not within [`PATIENCE`]; `what` says what was waited for.
#[track_caller]
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    assert!(within(PATIENCE, condition), "not within {PATIENCE:?}: {what}");
}

/// Waits until `condition` gives something.
///
/// # Panics
/// If it does not within [`PATIENCE`]; `what` says what was waited for.
#[track_caller]
pub fn eventually_some<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    eventually(what, || {
        found = condition();
        found.is_some()
    });
    found.expect("it was waited for")
}

/// Waits until `condition` holds, at most so long; returns whether it does.
pub fn within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + limit;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= until {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}
