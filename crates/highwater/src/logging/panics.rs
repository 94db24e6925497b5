//! Where does the message of a panic go?
//!
//! Rust writes it to standard error at once, and waits for the reader: a worker would stop there. So on the threads of the
//! library, the message becomes a line like any other. On all other threads, and where the application has a hook of its
//! own, nothing changes.
//!
//! A client may know a request that panics, so each place in the code is limited as events are ([`rate`](super::rate)).

use std::backtrace::{Backtrace, BacktraceStatus};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::panic::{Location, PanicHookInfo, set_hook, take_hook};
use std::thread;

use tracing::Dispatch;

use super::now;
use super::rate::Site;
use super::subscriber::Lines;
use crate::thread::is_ours;

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// From now on the panics of the library's threads become lines of `lines`, unless the application has a hook.
pub(super) fn install(lines: Dispatch) {
    // A program that ends with the panic would end before the line is written.
    if cfg!(panic = "abort") || thread::panicking() {
        return;
    }
    let (found, default) = (take_hook(), take_hook());
    if !is_same(&found, &default) {
        return set_hook(found);
    }
    set_hook(Box::new(move |panic| match lines.downcast_ref::<Lines>().filter(|_| is_ours()) {
        Some(lines) => {
            let Some(suppressed) = site(panic.location()).admit(now()) else { return };
            let backtrace = Backtrace::capture();
            let has_some = backtrace.status() == BacktraceStatus::Captured;
            lines.panicked(panic, suppressed, has_some.then_some(&backtrace));
        }
        None => default(panic),
    }));
}

/// How many places in the code are counted apart. Places beyond that may share a count.
const PLACES: usize = 64;

/// How often the place of a panic has panicked lately.
fn site(place: Option<&Location<'_>>) -> &'static Site {
    static SITES: [Site; PLACES] = [const { Site::new() }; PLACES];
    let place = place.map(|place| (place.file(), place.line(), place.column()));
    // Clients do not choose places, so no secret is needed.
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(place);
    &SITES[(hash % PLACES as u64) as usize]
}

/// Whether two hooks are the same function. Where the compiler has made copies of one, they may seem to be two: then the
/// hook that was found stays.
fn is_same(one: &Hook, other: &Hook) -> bool {
    size_of_val(&**one) == 0 && std::ptr::eq(&raw const **one, &raw const **other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the hook that Rust begins with is told from one of the application's.
    #[test]
    fn the_default_hook_is_known() {
        let tests_own = take_hook();
        let (one, other) = (take_hook(), take_hook());
        set_hook(tests_own);
        assert!(is_same(&one, &other));
        let own: Hook = Box::new(|_| {});
        assert!(!is_same(&own, &other));
    }

    /// Purpose: a place that panics again and again is silenced, and others are not.
    #[test]
    fn places_are_counted_apart() {
        let noisy = Location::caller();
        while site(Some(noisy)).admit(1_700_000_000_000).is_some() {}
        // One of them may share its count.
        let others =
            [Location::caller(), Location::caller(), Location::caller(), Location::caller()];
        let admitted = others.map(|place| site(Some(place)).admit(1_700_000_000_000));
        assert!(admitted.contains(&Some(None)), "{admitted:?}");
    }
}
