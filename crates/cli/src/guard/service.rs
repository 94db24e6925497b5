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
//!
//! Whoever begins in the middle of an overload has never seen the least, so it must ask. And so it must
//! if clients give up although nothing seems to wait: then what it has seen is wrong, and since most of
//! the work is for nobody, little is lost by asking.
//!
//! ```text
//!              others are refused, nothing seems to wait, and
//!              the least is unknown, or clients give up
//!   watching ──────────────────────────────────────────────────▶ probing
//!      ▲                                                            │
//!      └─────── the least limit held for [`PROBE_LOOKS`] samples, ──┘
//!               or [`PROBE_MAX`] is over, [`PROBE_LONG`] if clients give up
//! ```
//!
//! While it probes, the limit is to be the least there is, and all of a stay counts as waiting. What
//! they stay then is service. It asks again after [`PROBE_AGAIN`] at the soonest, and twice as late each
//! time that it got no answer: who has many connections that stay is not to be kept out for that again
//! and again.

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

/// The share of connections given up by their clients that contradicts that nothing waits. If answers
/// come in order, nearly all are late by the time that so many of those under way have been given up.
const ABANDONED: f64 = 0.1;

/// The part of a stay that is known to be waiting from which on there is no contradiction.
const WAIT_KNOWN: f64 = 0.5;

/// Samples at the least limit that show what service is.
const PROBE_LOOKS: u32 = 2;

/// How long the server may take to finish what it had let in before, in case all is well and they are
/// many because they stay long.
const PROBE_MAX: Duration = Duration::from_secs(2);

/// The same if clients give up, and so nothing is lost. A backlog of 4096 at a millisecond each takes
/// half of it.
const PROBE_LONG: Duration = Duration::from_secs(10);

/// How soon after one it may be necessary to ask again: something else is wrong.
const PROBE_AGAIN: Duration = Duration::from_secs(60);

/// How often that is doubled, at most: to about an hour.
const DOUBLED_MAX: u32 = 6;

/// What is known of the time of a sample besides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// Nothing was refused.
    pub(crate) is_free: bool,
    /// The limit can get no lower.
    pub(crate) is_least: bool,
    /// No more were under way than the limit allows.
    pub(crate) has_room: bool,
    /// The share of connections whose clients had given up, 0 to 1.
    pub(crate) abandoned: f64,
}

/// What is known about how long a server's connections stay. All in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Service {
    smoothed: Option<f64>,
    lowest: Option<f64>,
    /// Since when the limit has been at its least.
    at_least: Option<Instant>,
    probe: Option<Probe>,
    /// When the last probe ended.
    probed: Option<Instant>,
    /// How many of the last ones got no answer.
    unanswered: u32,
}

/// A search for what service is.
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
    /// Whether the limit is to be the least there is, so that service can be seen.
    pub(crate) fn is_probing(&self) -> bool {
        self.probe.is_some()
    }

    /// Ends a probe that takes too long, as one of a server that completes nothing does, or that nobody
    /// will tell the outcome of (`is_hopeless`); whether it did.
    pub(crate) fn gives_up(&mut self, now: Instant, is_hopeless: bool) -> bool {
        let is_over = self.probe.is_some_and(|probe| is_hopeless || now >= probe.until);
        if is_over {
            (self.probe, self.probed) = (None, Some(now));
            self.unanswered = (self.unanswered + 1).min(DOUBLED_MAX + 1);
        }
        is_over
    }

    /// How long requests waited in the time of `sample`.
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
            // The first may have begun before the others had gone.
            (self.smoothed, self.lowest) = (Some(stay), Some(stay));
        }
        if circumstances.abandoned >= ABANDONED {
            probe.until = probe.began + PROBE_LONG;
        }
        if probe.looks >= PROBE_LOOKS {
            (self.probe, self.probed, self.unanswered) = (None, Some(now), 0);
        }
    }

    /// How much of `stay` is more than service, as far as that is known.
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
        // Those who were let in under a higher limit stay for longer.
        self.at_least = (is_least && has_room).then(|| self.at_least.unwrap_or(now));
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
        // Little's law, at a thousand a second.
        let sample = Sample { span: SPAN, completed: 100, in_flight: stay_ms, ..Sample::default() };
        *now += SPAN;
        service.gives_up(*now, false);
        service.waited(*now, &sample, circumstances)
    }

    /// Purpose: a server whose requests all take long, but wait for nothing, is not called overloaded.
    #[test]
    fn slow_is_not_queueing() {
        let (mut service, mut now) = (Service::default(), Instant::ZERO);
        assert_eq!(run(&mut service, &mut now, 10, 300, FREE), Duration::ZERO);
        assert_eq!(run(&mut service, &mut now, 10, 400, FREE), Duration::ZERO);
    }

    /// Purpose: what requests take beyond the service is waiting, at once, and for as long as it lasts
    /// while others are refused.
    #[test]
    fn waiting_is_seen() {
        let (mut service, mut now) = (Service::default(), Instant::ZERO);
        run(&mut service, &mut now, 10, 2, FREE);
        let hour = run(&mut service, &mut now, 3600, 50, REFUSING);
        assert_eq!(hour, Duration::from_millis(47));
    }

    /// Purpose: a server that became slower for good is believed: by and by if nobody is refused for
    /// it, and after some seconds at the least limit if somebody is.
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

    /// Purpose: how long connections stay in an overload that was there from the beginning is not what
    /// they stay when nobody waits: that is asked, and seen once those from before have gone.
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

    /// Purpose: nobody is kept out for long by a question that finds no answer, the longer the surer it
    /// is that somebody waits; and it is not put again at once.
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
        // In a day of it, hardly ever.
        let (mut service, mut now, mut asking) = (Service::default(), Instant::ZERO, 0);
        for _ in 0..24 * 3600 * 10 {
            let circumstances = if service.is_probing() { crowded } else { REFUSING };
            look(&mut service, &mut now, 400, circumstances);
            asking += u32::from(service.is_probing());
        }
        assert!((200..700).contains(&asking), "{asking} tenths of a second");
    }

    /// Purpose: clients that give up although nothing is known to wait contradict what was seen; so
    /// does nobody who knows that they wait, and nobody who refuses nobody.
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

    /// Purpose: clients that keep connections for minutes, and more of them by and by, are no overload.
    #[test]
    fn kept_alive_is_not_waiting() {
        let (mut service, mut now) = (Service::default(), Instant::ZERO);
        run(&mut service, &mut now, 10, 2_000, FREE);
        assert_eq!(run(&mut service, &mut now, 10, 60_000, FREE), Duration::ZERO);
    }
}
