//! Should this process get traffic?
//!
//! Alive is not the same as ready: a process that drains, or that has lost its store, works but
//! should get no new requests. Balancers ask `/readyz` on the metrics port; this module decides the
//! answer.
//!
//! Invariants: once draining, never ready again; every question runs each check again.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// Whether a server is ready, and what that depends on. Cheap to clone.
///
/// ```
/// use highwater::metrics::Readiness;
///
/// let readiness = Readiness::new();
/// readiness.check("store", || Err("still loading".into()));
/// assert_eq!(readiness.verdict(), Err("store: still loading".into()));
/// ```
#[derive(Clone, Default)]
pub struct Readiness(Arc<Inner>);

#[derive(Default)]
struct Inner {
    draining: AtomicBool,
    checks: RwLock<Vec<(String, Check)>>,
}

type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

impl Readiness {
    /// Ready, until a check or a drain says otherwise.
    pub fn new() -> Self {
        Readiness::default()
    }

    /// Adds a condition: `check` is called for each request to `/readyz`, on the thread that serves the metrics port, and
    /// must not wait. Its error says why the server is not ready; clients of that port see it.
    pub fn check(
        &self,
        name: &str,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let mut checks = self.0.checks.write().unwrap_or_else(PoisonError::into_inner);
        checks.push((name.to_owned(), Arc::new(check)));
    }

    /// Marks the server as draining. A server calls this when it begins to drain.
    pub fn drain(&self) {
        self.0.draining.store(true, Relaxed);
    }

    /// Whether the server is ready now.
    ///
    /// # Errors
    /// Why it is not: `draining`, or a line `name: reason` for every check that fails.
    pub fn verdict(&self) -> Result<(), String> {
        if self.0.draining.load(Relaxed) {
            return Err("draining".to_owned());
        }
        // Cloned, so that a check may itself add one.
        let checks = self.0.checks.read().unwrap_or_else(PoisonError::into_inner).clone();
        let failures: Vec<String> = checks
            .iter()
            .filter_map(|(name, check)| check().err().map(|reason| format!("{name}: {reason}")))
            .collect();
        if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.0.checks.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Readiness")
            .field("draining", &self.0.draining)
            .field("checks", &checks.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: every failing check is named, a repaired one is not, and a drain overrides all.
    #[test]
    fn the_verdict_names_what_fails() {
        let readiness = Readiness::new();
        assert_eq!(readiness.verdict(), Ok(()));
        let broken = Arc::new(AtomicBool::new(true));
        let seen = Arc::clone(&broken);
        readiness.check("store", move || match seen.load(Relaxed) {
            true => Err("no disk".to_owned()),
            false => Ok(()),
        });
        readiness.check("fine", || Ok(()));
        readiness.check("kafka", || Err("no broker".to_owned()));
        assert_eq!(readiness.verdict(), Err("store: no disk\nkafka: no broker".to_owned()));
        broken.store(false, Relaxed);
        assert_eq!(readiness.verdict(), Err("kafka: no broker".to_owned()));
        readiness.clone().drain();
        assert_eq!(readiness.verdict(), Err("draining".to_owned()));
    }
}
