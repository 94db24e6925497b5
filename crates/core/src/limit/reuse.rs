//! Are connections kept for many requests, or is each used for one?
//!
//! While there is a standing queue, a server refuses either connections or requests. Refusing a
//! connection is cheaper, because nothing of it reaches the worker. But a proxy with a pool of
//! connections, or a browser, takes a refused connection for a broken server; and its open
//! connections bring the requests anyway. So where connections are kept, the server accepts them
//! and refuses requests.
//!
//! ```text
//!              at least KEPT requests per connection
//!  one each ─────────────────────────────────────────▶ kept
//!           ◀─────────────────────────────────────────
//!              fewer than half as many
//! ```
//!
//! It looks at recent counts: half of the history is forgotten with every second. A pause forgets
//! the counts but not the answer, so a new kind of client is recognized within tenths of a second.
//!
//! It never reads a clock, and never decides whether anything is refused.

use core::time::Duration;

/// From this many requests per connection on, connections count as kept. Two different answers need
/// different evidence, so half as many end it. A guess: an HTTP client that keeps its connections
/// at all sends far more; a few clients that send two requests are not a pool.
/// `a_pool_is_recognized` and `clients_that_close_are_recognized` notice a wrong value.
const KEPT: f64 = 4.0;

/// Half of the counts are forgotten in this time.
const HALF_LIFE: Duration = Duration::from_secs(1);

/// Fewer connections and requests than this tell nothing about the kind of clients. A guess; `a_pause_changes_nothing`
/// notices a wrong value.
pub const EVIDENCE_MIN: u32 = 16;

/// Watches how connections are used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reuse {
    connections: f64,
    requests: f64,
    are_kept: bool,
}

impl Reuse {
    /// Takes in the connections accepted and the requests answered since the last call, which was
    /// `span` ago. Returns whether connections are kept.
    pub fn on_sample(&mut self, span: Duration, connections: u64, requests: u64) -> bool {
        // The first terms of the exponential, which `core` lacks; a sample is short or nothing
        // happened in it.
        let remains = 1.0 / (1.0 + span.as_secs_f64() / HALF_LIFE.as_secs_f64());
        self.connections = self.connections * remains + connections as f64;
        self.requests = self.requests * remains + requests as f64;
        if self.connections + self.requests >= f64::from(EVIDENCE_MIN) {
            let least = if self.are_kept { KEPT / 2.0 } else { KEPT };
            self.are_kept = self.requests >= self.connections * least;
        }
        self.are_kept
    }

    /// Whether connections are kept for many requests.
    pub fn are_kept(&self) -> bool {
        self.are_kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Duration = Duration::from_millis(100);

    /// How many tenths of a second it takes until the answer is `kept`, with these counts in each.
    fn tenths(reuse: &mut Reuse, kept: bool, connections: u64, requests: u64) -> u32 {
        let mut tenths = 0;
        while reuse.are_kept() != kept {
            assert!(tenths < 100, "{reuse:?}");
            reuse.on_sample(TENTH, connections, requests);
            tenths += 1;
        }
        tenths
    }

    /// Purpose: the pool of a proxy is recognized although it opened many connections at first, and
    /// opens some again and again.
    #[test]
    fn a_pool_is_recognized() {
        let mut reuse = Reuse::default();
        assert!(!reuse.on_sample(TENTH, 500, 90), "it opens its connections");
        assert!(tenths(&mut reuse, true, 20, 400) <= 12);
        for _ in 0..100 {
            assert!(reuse.on_sample(TENTH, 100, 400), "a third of its connections are new");
        }
    }

    /// Purpose: clients that use a connection once are recognized at once, even after a pool.
    #[test]
    fn clients_that_close_are_recognized() {
        let mut reuse = Reuse::default();
        for _ in 0..100 {
            assert!(!reuse.on_sample(TENTH, 95, 95));
            assert!(!reuse.on_sample(TENTH, 95, 190), "two requests each are no pool");
        }
        tenths(&mut reuse, true, 0, 95);
        assert!(tenths(&mut reuse, false, 950, 95) <= 3);
    }

    /// Purpose: a pause keeps the answer and forgets the counts; a handful of requests says nothing.
    #[test]
    fn a_pause_changes_nothing() {
        let mut reuse = Reuse::default();
        tenths(&mut reuse, true, 0, 95);
        assert!(reuse.on_sample(Duration::from_secs(60), 0, 0));
        assert!(reuse.on_sample(TENTH, 8, 0), "too few to say");
        assert!(!reuse.on_sample(TENTH, 16, 0));
        assert!(!reuse.on_sample(TENTH, 0, 10), "nor this");
    }
}
