//! How much of a connection's time is service, and how much is waiting within the server?
//!
//! A server that reads ahead (io_uring, a proxy, handlers that await) has its queue where the kernel
//! sees nothing wait (`queue.rs`). But by Little's law connections stay for as long as there are many of
//! them for their rate; what they stay when nobody waits is learnt from the least lately, and what they
//! stay beyond that, and beyond a tolerance for the service being uneven, they wait.
//!
//! Three things keep the least from being wrong for ever. It is smoothed before it is compared, so that
//! it is no lucky moment's. While nothing is refused it is forgotten slowly, so that a server that became
//! slower is believed. And when the limit has been at its least for a while, no waiting is left that a
//! lower limit could shorten: what remains is called service. Without the last rule a server that became
//! ten times slower under full load would be held at the least limit for good.
//!
//! Connections that are kept alive stay for as long as their clients like, which says nothing; so where
//! the least is above [`STAY_MAX`] nothing is concluded.

use std::time::Duration;

use highwater_core::limit::Sample;
use highwater_core::time::Instant;

/// Over how many seconds stays are averaged before the lowest is looked for.
const SMOOTHED_OVER: f64 = 1.0;

/// By what share a second the lowest stay is forgotten while nothing is refused.
const FORGOTTEN: f64 = 0.02;

/// How much above the lowest stay still counts as service; Netflix's Gradient2 tolerates as much.
const TOLERANCE: f64 = 1.5;

/// How long the limit must be at its least before the stay there is called service.
const AT_LEAST: Duration = Duration::from_secs(5);

/// Whoever stays longer than this when nobody waits is kept alive, not served. In seconds.
const STAY_MAX: f64 = 1.0;

/// What is known about how long a server's connections stay. All in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Service {
    smoothed: Option<f64>,
    lowest: Option<f64>,
    /// Since when the limit has been at its least.
    at_least: Option<Instant>,
}

impl Service {
    /// How long requests waited in the time of `sample`. `is_free`: nothing was refused in it;
    /// `is_least`: the limit can get no lower.
    pub(crate) fn waited(
        &mut self,
        now: Instant,
        sample: &Sample,
        is_free: bool,
        is_least: bool,
    ) -> Duration {
        if sample.completed == 0 {
            return Duration::ZERO;
        }
        let span = sample.span.as_secs_f64();
        let stay = f64::from(sample.in_flight) * span / sample.completed as f64;
        let weight = 1.0 - (-span / SMOOTHED_OVER).exp();
        let smoothed = self.smoothed.map_or(stay, |before| before + weight * (stay - before));
        self.smoothed = Some(smoothed);
        let forgotten = if is_free { 1.0 + FORGOTTEN * span } else { 1.0 };
        self.at_least = is_least.then(|| self.at_least.unwrap_or(now));
        if self.at_least.is_some_and(|since| now.saturating_since(since) >= AT_LEAST) {
            self.lowest = Some(smoothed);
        } else if let Some(lowest) = self.lowest {
            self.lowest = Some(smoothed.min(lowest * forgotten));
        } else if is_free {
            self.lowest = Some(smoothed);
        }
        // Whoever has only seen a server overloaded knows nothing of its service.
        let Some(lowest) = self.lowest else { return Duration::ZERO };
        if lowest > STAY_MAX {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64((stay - lowest * TOLERANCE).max(0.0)).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_millis(100);

    /// Gives `service` samples of a stay for `seconds`; returns the last wait.
    fn run(
        service: &mut Service,
        now: &mut Instant,
        seconds: u32,
        stay_ms: u32,
        (is_free, is_least): (bool, bool),
    ) -> Duration {
        // Little's law, at a thousand a second.
        let sample = Sample { span: SPAN, completed: 100, in_flight: stay_ms, ..Sample::default() };
        let mut waited = Duration::ZERO;
        for _ in 0..seconds * 10 {
            *now += SPAN;
            waited = service.waited(*now, &sample, is_free, is_least);
        }
        waited
    }

    /// Purpose: a server whose requests all take long, but wait for nothing, is not called overloaded.
    #[test]
    fn slow_is_not_queueing() {
        let (mut service, mut now) = (Service::default(), Instant::ZERO);
        assert_eq!(run(&mut service, &mut now, 10, 300, (true, false)), Duration::ZERO);
        assert_eq!(run(&mut service, &mut now, 10, 400, (true, false)), Duration::ZERO);
    }

    /// Purpose: what requests take beyond the service is waiting, at once, and for as long as it lasts
    /// while others are refused.
    #[test]
    fn waiting_is_seen() {
        let (mut service, mut now) = (Service::default(), Instant::ZERO);
        run(&mut service, &mut now, 10, 2, (true, false));
        let hour = run(&mut service, &mut now, 3600, 50, (false, false));
        assert_eq!(hour, Duration::from_millis(47));
    }

    /// Purpose: a server that became slower for good is believed: by and by if nobody is refused for
    /// it, and after some seconds at the least limit if somebody is.
    #[test]
    fn a_slower_server_is_believed() {
        let (mut service, mut now) = (Service::default(), Instant::ZERO);
        run(&mut service, &mut now, 10, 10, (true, false));
        assert!(run(&mut service, &mut now, 1, 40, (true, false)) > Duration::from_millis(20));
        assert_eq!(run(&mut service, &mut now, 120, 40, (true, false)), Duration::ZERO);

        let (mut service, mut now) = (Service::default(), Instant::ZERO);
        run(&mut service, &mut now, 10, 10, (true, false));
        assert_eq!(run(&mut service, &mut now, 4, 100, (false, true)), Duration::from_millis(85));
        assert_eq!(run(&mut service, &mut now, 10, 100, (false, true)), Duration::ZERO);
    }

    /// Purpose: how long connections stay in an overload that was there from the beginning is not what
    /// they stay when nobody waits.
    #[test]
    fn an_overload_teaches_no_service() {
        let (mut service, mut now) = (Service::default(), Instant::ZERO);
        assert_eq!(run(&mut service, &mut now, 10, 400, (false, false)), Duration::ZERO);
        assert_eq!(service.lowest, None);
        run(&mut service, &mut now, 10, 2, (true, false));
        assert!(run(&mut service, &mut now, 1, 400, (false, false)) > Duration::from_millis(390));
    }

    /// Purpose: clients that keep connections for minutes, and more of them by and by, are no overload.
    #[test]
    fn kept_alive_is_not_waiting() {
        let (mut service, mut now) = (Service::default(), Instant::ZERO);
        run(&mut service, &mut now, 10, 2_000, (true, false));
        assert_eq!(run(&mut service, &mut now, 10, 60_000, (true, false)), Duration::ZERO);
    }
}
