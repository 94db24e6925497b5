//! Does Kafka take messages?
//!
//! A cluster that answers questions about a topic may still take nothing for it, for example while too few replicas are in
//! sync. So an answer does not end what a failed message began:
//!
//! ```text
//!   taken ──a message fails──▶ not taken ──a message arrives──▶ taken
//!                               │     ▲
//!     none has failed for TRIAL ▼     │ too few replicas, or no answer
//!                             a look at the replicas ──enough──▶ taken, until the next message fails
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::Error;
use super::settings::Settings;
use super::topic::missing_replicas;

/// How long no message must have failed before the replicas are looked at, and how often that is done. It is the default of
/// `ack_timeout`: a message that is sent now has failed by then, if it fails.
const TRIAL: Duration = Duration::from_secs(5);

/// Whether messages are taken, as far as their outcomes show.
#[derive(Debug, Default)]
pub struct Taken {
    /// Since when they are not, and why.
    refused: Mutex<Option<(Instant, String)>>,
    /// So that an acknowledged message costs no lock.
    is_refused: AtomicBool,
}

impl Taken {
    fn lock(&self) -> MutexGuard<'_, Option<(Instant, String)>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message was not taken, though nothing is wrong with it.
    pub fn failed(&self, why: String) {
        let mut refused = self.lock();
        *refused = Some((Instant::now(), why));
        self.is_refused.store(true, Ordering::Release);
    }

    /// A message was acknowledged.
    pub fn arrived(&self) {
        if self.is_refused.load(Ordering::Acquire) {
            let mut refused = self.lock();
            *refused = None;
            self.is_refused.store(false, Ordering::Release);
        }
    }

    /// Why messages are not taken; `None` if they are.
    pub fn trouble(&self) -> Option<String> {
        if !self.is_refused.load(Ordering::Acquire) {
            return None;
        }
        self.lock().as_ref().map(|(_, why)| why.clone())
    }

    /// Kafka has answered: looks at the replicas, if it is time. Returns why messages are not taken. It blocks for `timeout`
    /// at most.
    pub fn look(&self, settings: &Settings, timeout: Duration) -> Option<String> {
        let ask = || missing_replicas(settings, timeout);
        self.look_at(Instant::now(), ask)
    }

    fn look_at(
        &self,
        now: Instant,
        ask: impl FnOnce() -> Result<Option<String>, Error>,
    ) -> Option<String> {
        let (since, why) = self.lock().clone()?;
        if now.saturating_duration_since(since) < TRIAL {
            return Some(why);
        }
        let missing = ask().unwrap_or_else(|error| Some(error.to_string()));
        let mut refused = self.lock();
        // A message may have failed or arrived meanwhile, which says more.
        if refused.as_ref().is_some_and(|(at, _)| *at == since) {
            self.is_refused.store(missing.is_some(), Ordering::Release);
            *refused = missing.map(|why| (now, why));
        }
        refused.as_ref().map(|(_, why)| why.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: after a failed message only an arrived one, or a look at the replicas a while later, says that all is well;
    /// replicas that are missing put the next look off.
    #[test]
    fn an_answer_is_not_enough() {
        let taken = Taken::default();
        let start = Instant::now();
        let enough = || Ok(None);
        assert_eq!((taken.trouble(), taken.look_at(start, enough)), (None, None));
        taken.failed("not now".to_owned());
        let failed_at = Instant::now();
        let why = Some("not now".to_owned());
        assert_eq!(taken.look_at(start + TRIAL / 2, enough), why);
        assert_eq!(taken.trouble(), why);
        let few = Some("too few".to_owned());
        let later = failed_at + TRIAL;
        assert_eq!(taken.look_at(later, || Ok(few.clone())), few);
        assert_eq!(taken.look_at(later + TRIAL / 2, enough), few);
        assert_eq!(taken.look_at(later + TRIAL, enough), None);
        assert_eq!(taken.trouble(), None);
        taken.failed("again".to_owned());
        taken.arrived();
        assert_eq!(taken.trouble(), None);
    }
}
