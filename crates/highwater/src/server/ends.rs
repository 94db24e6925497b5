//! What asks a server to stop, while it starts, serves or drains: signals, and other code.

use std::time::Duration;

use highwater_sys::Waker;
use highwater_sys::signal::{Signal, Signals};

use super::error::{NotStarted, ServerError};
use super::stop::{Stop, Stopper};

/// A source of requests to stop a server.
#[derive(Clone, Copy, Default)]
pub(super) struct Ends<'e> {
    pub(super) signals: Option<&'e Signals>,
    /// Called at SIGHUP, which asks for certificates to be read again, instead of an end.
    pub(super) reload: Option<&'e dyn Fn()>,
    pub(super) stopper: Option<&'e Stopper>,
}

impl Ends<'_> {
    /// Waits until something asks to stop, or `waker` is used, for at most `timeout`. While the server drains, only
    /// what ends the drain is returned.
    pub(super) fn wait(
        self,
        waker: &Waker,
        timeout: Option<Duration>,
        is_draining: bool,
    ) -> Result<Option<Stop>, ServerError> {
        if let Some(stop) = self.requested(is_draining) {
            return Ok(Some(stop));
        }
        let Some(signals) = self.signals else {
            waker.wait(timeout.unwrap_or(Duration::MAX)).map_err(ServerError::Worker)?;
            return Ok(self.requested(is_draining));
        };
        let signal = signals.wait_or(waker, timeout).map_err(ServerError::signals)?;
        Ok(match signal {
            None => self.requested(is_draining),
            Some(signal) if is_draining => hurried(signal),
            Some(Signal::HangUp) if let Some(reload) = self.reload => {
                reload();
                None
            }
            Some(signal) => {
                tracing::info!(signal = %signal, "stopping");
                Some(if signal == Signal::Quit { Stop::DrainSoon } else { Stop::Drain })
            }
        })
    }

    /// Waits while the server starts, until `waker` is used, for at most `timeout`.
    ///
    /// # Errors
    /// Something asks to stop.
    pub(super) fn wait_to_start(
        self,
        waker: &Waker,
        timeout: Option<Duration>,
    ) -> Result<(), NotStarted> {
        if let Some(stopper) = self.stopper {
            stopper.wakes(waker);
        }
        match self.wait(waker, timeout, false)? {
            Some(_) => Err(NotStarted::Stopped),
            None => Ok(()),
        }
    }

    /// The requests of other code.
    fn requested(self, is_draining: bool) -> Option<Stop> {
        let requested = self.stopper.and_then(Stopper::requested);
        let requested = requested.filter(|stop| *stop == Stop::Cut || !is_draining)?;
        match is_draining {
            true => tracing::info!("the drain ends now"),
            false => tracing::info!("stopping"),
        }
        Some(requested)
    }
}

/// The effect of a further signal on the drain.
fn hurried(signal: Signal) -> Option<Stop> {
    // A terminal that closes does not cut the drain short.
    if signal == Signal::HangUp {
        return None;
    }
    tracing::info!(signal = %signal, "the drain ends now");
    Some(Stop::Cut)
}
