//! Which part of a connection's time is service, and which part is waiting inside the server?
//!
//! Some servers read ahead (io_uring, proxies, handlers that await). Their queue is inside, where
//! the kernel sees no request wait (`queue.rs`). But Little's law gives the mean *stay* of a
//! connection: the number of connections divided by their rate. The lowest recent stay is the
//! service time. A longer stay, beyond a tolerance for uneven service, is waiting.
//!
//! Three rules keep a wrong lowest stay from lasting for ever:
//!
//! * The stay is smoothed before it is compared, so that one lucky moment does not count.
//! * While nothing is refused, the lowest stay rises slowly, so that a server that became slower is
//!   accepted.
//! * When the limit has been at its minimum for a while, a lower limit could not shorten any
//!   waiting: the remaining stay counts as service. Without this rule, a server that became ten
//!   times slower under full load would stay at the minimum for ever.
//!
//! Kept-alive connections stay as long as their clients like, which says nothing. So where the
//! lowest stay is above [`STAY_MAX`], this module concludes nothing.
//!
//! A guard that starts in the middle of an overload has never seen the lowest stay, so it must
//! probe. It must also probe if clients give up although nothing seems to wait: then its value is
//! wrong. Most of the work is wasted in that case, so probing loses little.
//!
//! ```text
//!              requests are refused, nothing seems to wait, and
//!              the lowest stay is unknown, or clients give up
//!   watching ──────────────────────────────────────────────────▶ probing
//!      ▲                                                            │
//!      └─────── the minimum limit held for [`PROBE_LOOKS`] samples, ┘
//!               or [`PROBE_MAX`] is over, [`PROBE_LONG`] if clients give up
//! ```
//!
//! While it probes, the limit should be the minimum, and the whole stay counts as waiting. The stay
//! at that limit is service. The next probe comes after [`PROBE_AGAIN`] at the earliest, and twice
//! as late each time that a probe had no result: a server with many long connections must not
//! refuse them for a probe again and again.

use std::time::Duration;

use highwater_core::limit::Sample;
use highwater_core::time::Instant;

/// Over how many seconds stays are averaged before the lowest is taken.
const SMOOTHED_OVER: f64 = 1.0;

/// By which share the lowest stay rises per second while nothing is refused.
const FORGOTTEN: f64 = 0.02;

/// By which factor above the lowest stay a stay still counts as service; Netflix's Gradient2
/// tolerates as much.
const TOLERANCE: f64 = 1.5;

/// How long the limit must be at its minimum before the stay there counts as service.
const AT_LEAST: Duration = Duration::from_secs(5);

/// A lowest stay above this means that connections are kept alive, not served. In seconds.
const STAY_MAX: f64 = 1.0;

/// The share of abandoned connections that contradicts an empty queue. If answers come in order,
/// nearly all are late by the time that this share of the connections in flight was abandoned.
const ABANDONED: f64 = 0.1;

/// If at least this part of a stay is known to be waiting, there is no contradiction.
const WAIT_KNOWN: f64 = 0.5;

/// Samples at the minimum limit that show the service time.
const PROBE_LOOKS: u32 = 2;

/// How long the server may take to finish what was admitted before, in case all is well and the
/// connections simply stay long.
const PROBE_MAX: Duration = Duration::from_secs(2);

/// The same if clients give up, when probing loses nothing. A backlog of 4096 at a millisecond each
/// takes half of it.
const PROBE_LONG: Duration = Duration::from_secs(10);

/// How long after one probe the next may begin. If it is needed sooner, something else is wrong.
const PROBE_AGAIN: Duration = Duration::from_secs(60);

/// How often that is doubled at most: to about an hour.
const DOUBLED_MAX: u32 = 6;

/// What else is known about a sample.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// Nothing was refused.
    pub(crate) is_free: bool,
    /// The limit is at its minimum.
    pub(crate) is_least: bool,
    /// No more connections were in flight than the limit allows.
    pub(crate) has_room: bool,
    /// The share of connections that their clients had abandoned, 0 to 1.
    pub(crate) abandoned: f64,
}

/// How long a server's connections stay. All values in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Service {
    smoothed: Option<f64>,
    lowest: Option<f64>,
    /// Since when the limit has been at its minimum.
    at_least: Option<Instant>,
    probe: Option<Probe>,
    /// When the last probe ended.
    probed: Option<Instant>,
    /// How many probes in a row had no result.
    unanswered: u32,
}

/// A probe for the service time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Probe {
    began: Instant,
    until: Instant,
    looks: u32,
}

impl Probe {
    fn begin(now: Instant) -> Self {
        Probe { began: now, until: now + PROBE_MAX, looks: 0 }
    }
}

impl Service {
    /// Whether the limit should be the minimum, so that the service time can be measured.
    pub(crate) fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    /// Ends a probe that takes too long, because the server completes nothing, or that cannot get a
    /// result (`is_hopeless`). Answers whether it ended one.
    pub(crate) fn gives_up(&mut self, now: Instant, is_hopeless: bool) -> bool {
        let is_over = self.probe.is_some_and(|probe| is_hopeless || now >= probe.until);
        if is_over {
            (self.probe, self.probed) = (None, Some(now));
            self.unanswered = (self.unanswered + 1).min(DOUBLED_MAX + 1);
        }
        is_over
    }

    /// How long requests waited during `sample`.
    pub(crate) fn waited(
        &mut self,
        now: Instant,
        sample: &Sample,
        circumstances: Circumstances,
    ) -> Duration {
        if sample.completed == 0 {
            return Duration::ZERO;
        }
        let span = sample.span.as_secs_f64();
        let stay = f64::from(sample.in_flight) * span / sample.completed as f64;
        let all = Duration::try_from_secs_f64(stay).unwrap_or(Duration::MAX);
        if self.probe.is_some() {
            self.look(now, stay, circumstances);
        } else {
            let waited = self.compare(now, stay, span, circumstances);
            let known = waited.max(sample.queue_delay_mean);
            let is_suspicious = known < all.mul_f64(WAIT_KNOWN)
                && (self.lowest.is_none() || circumstances.abandoned >= ABANDONED);
            let again = PROBE_AGAIN * 2_u32.pow(self.unanswered.saturating_sub(1));
            let is_new = self.probed.is_none_or(|at| now.saturating_since(at) >= again);
            if !is_suspicious || !is_new || circumstances.is_free || circumstances.is_least {
                return waited;
            }
            self.probe = Some(Probe::begin(now));
        }
        if self.is_probing() { all } else { Duration::ZERO }
    }

    /// Takes in a sample of a probe.
    fn look(&mut self, now: Instant, stay: f64, circumstances: Circumstances) {
        let Some(probe) = &mut self.probe else { return };
        if circumstances.is_least && circumstances.has_room {
            probe.looks += 1;
            // The first sample may have begun before earlier connections had left.
            (self.smoothed, self.lowest) = (Some(stay), Some(stay));
        }
        if circumstances.abandoned >= ABANDONED {
            probe.until = probe.began + PROBE_LONG;
        }
        if probe.looks >= PROBE_LOOKS {
            (self.probe, self.probed, self.unanswered) = (None, Some(now), 0);
        }
    }

    /// Which part of `stay` is more than service, as far as that is known.
    fn compare(
        &mut self,
        now: Instant,
        stay: f64,
        span: f64,
        Circumstances { is_free, is_least, has_room, .. }: Circumstances,
    ) -> Duration {
        let weight = 1.0 - (-span / SMOOTHED_OVER).exp();
        let smoothed = self.smoothed.map_or(stay, |before| before + weight * (stay - before));
        self.smoothed = Some(smoothed);
        let forgotten = if is_free { 1.0 + FORGOTTEN * span } else { 1.0 };
        // Connections admitted under a higher limit stay for longer.
        self.at_least = (is_least && has_room).then(|| self.at_least.unwrap_or(now));
        if self.at_least.is_some_and(|since| now.saturating_since(since) >= AT_LEAST) {
            self.lowest = Some(smoothed);
        } else if let Some(lowest) = self.lowest {
            self.lowest = Some(smoothed.min(lowest * forgotten));
        } else if is_free {
            self.lowest = Some(smoothed);
        }
        // The service time of a server that was never seen without overload is unknown.
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

    const FREE: Circumstances =
        Circumstances { is_free: true, is_least: false, has_room: true, abandoned: 0.0 };
    const REFUSING: Circumstances = Circumstances { is_free: false, ..FREE };
    const LEAST: Circumstances = Circumstances { is_least: true, ..REFUSING };

    /// Gives `service` samples of a stay for `seconds`; returns the last wait.
    fn run(
        service: &mut Service,
        now: &mut Instant,
        seconds: u32,
        stay_ms: u32,
        circumstances: Circumstances,
    ) -> Duration {
        let mut waited = Duration::ZERO;
        for _ in 0..seconds * 10 {
            waited = look(service, now, stay_ms, circumstances);
        }
        waited
    }

    /// One sample.
    fn look(
        service: &mut Service,
        now: &mut Instant,
        stay_ms: u32,
        circumstances: Circumstances,
    ) -> Duration {
        // Little's law, at a thousand per second.
        let sample = Sample { span: SPAN, completed: 100, in_flight: stay_ms, ..Sample::default() };
        *now += SPAN;
        service.gives_up(*now, false);
        service.waited(*now, &sample, circumstances)
    }

    /// Purpose: a server whose requests all take long, but do not wait, is not called overloaded.
    #[test]
    fn slow_is_not_queueing() {
        let (mut service, mut now) = (Service::default(), Instant::ZERO);
        assert_eq!(run(&mut service, &mut now, 10, 300, FREE), Duration::ZERO);
        assert_eq!(run(&mut service, &mut now, 10, 400, FREE), Duration::ZERO);
    }

    /// Purpose: time beyond the service time counts as waiting at once, and for as long as it lasts
    /// while requests are refused.
    #[test]
    fn waiting_is_seen() {
        let (mut service, mut now) = (Service::default(), Instant::ZERO);
        run(&mut service, &mut now, 10, 2, FREE);
        let hour = run(&mut service, &mut now, 3600, 50, REFUSING);
        assert_eq!(hour, Duration::from_millis(47));
    }

    /// Purpose: a server that became slower for good is accepted: gradually if nothing is refused
    /// because of it, and after some seconds at the minimum limit otherwise.
    #[test]
    fn a_slower_server_is_believed() {
        let (mut service, mut now) = (Service::default(), Instant::ZERO);
        run(&mut service, &mut now, 10, 10, FREE);
        assert!(run(&mut service, &mut now, 1, 40, FREE) > Duration::from_millis(20));
        assert_eq!(run(&mut service, &mut now, 120, 40, FREE), Duration::ZERO);

        let (mut service, mut now) = (Service::default(), Instant::ZERO);
        run(&mut service, &mut now, 10, 10, FREE);
        assert_eq!(run(&mut service, &mut now, 4, 100, LEAST), Duration::from_millis(85));
        assert_eq!(run(&mut service, &mut now, 10, 100, LEAST), Duration::ZERO);
    }

    /// Purpose: in an overload that was there from the beginning, the stay is not taken for the
    /// service time: the guard probes, and measures it once the earlier connections have left.
    #[test]
    fn an_overload_from_the_beginning_is_asked_about() {
        let (mut service, mut now) = (Service::default(), Instant::ZERO);
        let all = Duration::from_millis(400);
        assert_eq!(look(&mut service, &mut now, 400, REFUSING), all);
        for circumstances in [REFUSING, Circumstances { has_room: false, ..LEAST }] {
            for _ in 0..5 {
                assert_eq!(look(&mut service, &mut now, 400, circumstances), all);
            }
            assert!(service.is_probing() && service.lowest.is_none());
        }
        look(&mut service, &mut now, 80, LEAST);
        assert!(service.is_probing());
        assert_eq!(look(&mut service, &mut now, 8, LEAST), Duration::ZERO);
        assert!(!service.is_probing());
        assert_eq!(look(&mut service, &mut now, 400, REFUSING), Duration::from_millis(388));
    }

    /// Purpose: a probe without a result does not refuse connections for long, and for less time if
    /// the overload is uncertain; and the next one does not follow at once.
    #[test]
    fn a_question_without_an_answer_is_given_up() {
        let crowded = Circumstances { has_room: false, ..LEAST };
        for (abandoned, patience) in [(0.05, PROBE_MAX), (0.5, PROBE_LONG)] {
            let (mut service, mut now) = (Service::default(), Instant::ZERO);
            look(&mut service, &mut now, 400, REFUSING);
            let began = now;
            while service.is_probing() {
                look(&mut service, &mut now, 400, Circumstances { abandoned, ..crowded });
            }
            assert_eq!(now.saturating_since(began), patience);
            while now.saturating_since(began) < patience + PROBE_AGAIN - SPAN {
                let waited =
                    look(&mut service, &mut now, 400, Circumstances { abandoned, ..REFUSING });
                assert_eq!(waited, Duration::ZERO);
            }
            look(&mut service, &mut now, 400, REFUSING);
            assert!(service.is_probing());
        }
        // In a day of it, probes are rare.
        let (mut service, mut now, mut asking) = (Service::default(), Instant::ZERO, 0);
        for _ in 0..24 * 3600 * 10 {
            let circumstances = if service.is_probing() { crowded } else { REFUSING };
            look(&mut service, &mut now, 400, circumstances);
            asking += u32::from(service.is_probing());
        }
        assert!((200..700).contains(&asking), "{asking} tenths of a second");
    }

    /// Purpose: clients that give up although nothing seems to wait start a probe; not if the
    /// waiting is known, and not while nothing is refused.
    #[test]
    fn clients_that_give_up_are_a_question() {
        let giving_up = Circumstances { abandoned: ABANDONED, ..REFUSING };
        for (stay_ms, circumstances, is_asked) in [
            (300, giving_up, true),
            (300, Circumstances { abandoned: ABANDONED - 0.01, ..giving_up }, false),
            (300, Circumstances { is_free: true, ..giving_up }, false),
            (900, giving_up, false),
        ] {
            let (mut service, mut now) = (Service::default(), Instant::ZERO);
            run(&mut service, &mut now, 10, 250, FREE);
            look(&mut service, &mut now, stay_ms, circumstances);
            assert_eq!(service.is_probing(), is_asked, "{stay_ms} ms, {circumstances:?}");
        }
    }

    /// Purpose: clients that keep connections for minutes, gradually more of them, are no overload.
    #[test]
    fn kept_alive_is_not_waiting() {
        let (mut service, mut now) = (Service::default(), Instant::ZERO);
        run(&mut service, &mut now, 10, 2_000, FREE);
        assert_eq!(run(&mut service, &mut now, 10, 60_000, FREE), Duration::ZERO);
    }
}
