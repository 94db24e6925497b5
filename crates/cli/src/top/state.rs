//! What is known about the server, and is it still there?
//!
//! Pure: answers and keys in, with the time; what is shown out.
//!
//! ```text
//!              page                     no page
//!  Asking ──────────────▶ Up ─────────────────────▶ Gone(since, why)
//!     └── no page ──▶ Gone  ◀──────── page ──────────────┘
//! ```

use std::collections::VecDeque;

use highwater_core::time::Instant;

use super::figures::{Endpoint, Figures};
use super::sample::Sample;

/// Points of history: more than a wide screen has columns.
const HISTORY_MAX: usize = 240;

/// Whether the server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// It has not answered yet.
    Asking,
    Up,
    /// It has not answered since.
    Gone {
        since: Instant,
        why: String,
    },
}

/// By what the endpoints are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    #[default]
    Busiest,
    Slowest,
    Name,
}

impl Order {
    fn next(self) -> Order {
        match self {
            Order::Busiest => Order::Slowest,
            Order::Slowest => Order::Name,
            Order::Name => Order::Busiest,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Order::Busiest => "busiest first",
            Order::Slowest => "slowest first",
            Order::Name => "by name",
        }
    }
}

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Pause,
    NextOrder,
    Up,
    Down,
    First,
}

/// Values over time, the newest last; `None` where none was known.
pub(crate) type Series = VecDeque<Option<f64>>;

/// What has been seen of one server.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) link: Link,
    /// Since the last page; of before, if the server is gone.
    pub(crate) figures: Option<Figures>,
    /// When a restart was noticed.
    pub(crate) restarted: Option<Instant>,
    pub(crate) requests: Series,
    pub(crate) good: Series,
    /// Seconds.
    pub(crate) p99: Series,
    pub(crate) queue_p99: Series,
    pub(crate) in_flight: Series,
    pub(crate) refused: Series,
    pub(crate) demand: Series,
}

/// What has been seen, and what is shown of it.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) url: String,
    seen: Seen,
    /// What was seen when it was paused, and is shown instead.
    paused: Option<Box<Seen>>,
    pub(crate) order: Order,
    /// Endpoints above the first one shown.
    pub(crate) above: usize,
}

impl Seen {
    fn new() -> Seen {
        Seen {
            link: Link::Asking,
            figures: None,
            restarted: None,
            requests: Series::new(),
            good: Series::new(),
            p99: Series::new(),
            queue_p99: Series::new(),
            in_flight: Series::new(),
            refused: Series::new(),
            demand: Series::new(),
        }
    }

    fn answered(&mut self, at: Instant, answer: Result<Sample, String>) {
        let now = match answer {
            Ok(sample) => {
                let before = self.figures.take().map(|figures| figures.sample);
                let figures = Figures::between(before.as_ref(), sample);
                if figures.is_restarted {
                    self.restarted = Some(at);
                }
                self.link = Link::Up;
                self.figures = Some(figures);
                self.figures.as_ref()
            }
            Err(why) => {
                let since = match self.link {
                    Link::Gone { since, .. } => since,
                    _ => at,
                };
                self.link = Link::Gone { since, why };
                None
            }
        };
        let quantile = |of: fn(&Figures) -> Option<super::histogram::Quantile>| {
            now.and_then(of).map(|quantile| quantile.seconds)
        };
        for (series, value) in [
            (&mut self.requests, now.and_then(|now| now.requests)),
            (&mut self.good, now.and_then(|now| now.good)),
            (&mut self.p99, quantile(|now| now.latency.p99)),
            (&mut self.queue_p99, quantile(|now| now.queue_delay.p99)),
            (&mut self.in_flight, now.and_then(|now| now.sample.connections.in_flight)),
            (&mut self.refused, now.and_then(|now| now.refused)),
            (&mut self.demand, now.and_then(|now| now.sample.demand_ratio)),
        ] {
            if series.len() == HISTORY_MAX {
                series.pop_front();
            }
            series.push_back(value);
        }
    }
}

impl State {
    pub(crate) fn new(url: String) -> State {
        State { url, seen: Seen::new(), paused: None, order: Order::default(), above: 0 }
    }

    /// Takes an answer that came at `at`, or why none did.
    pub(crate) fn answered(&mut self, at: Instant, answer: Result<Sample, String>) {
        self.seen.answered(at, answer);
    }

    /// Does what a key asks for.
    pub(crate) fn command(&mut self, command: Command) {
        match command {
            Command::Pause => {
                self.paused = match self.paused.take() {
                    Some(_) => None,
                    None => Some(Box::new(self.seen.clone())),
                }
            }
            Command::NextOrder => (self.order, self.above) = (self.order.next(), 0),
            Command::Up => self.above = self.above.saturating_sub(1),
            Command::Down => {
                let last = self.endpoints().len().saturating_sub(1);
                self.above = (self.above + 1).min(last);
            }
            Command::First => self.above = 0,
        }
    }

    /// Figures stand still, while the server is still asked.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// What is to be shown.
    pub(crate) fn shown(&self) -> &Seen {
        self.paused.as_deref().unwrap_or(&self.seen)
    }

    /// Whether the server answers now, paused or not.
    pub(crate) fn link(&self) -> &Link {
        &self.seen.link
    }

    /// The endpoints that had requests, in order.
    pub(crate) fn endpoints(&self) -> Vec<&Endpoint> {
        ordered(self.shown().figures.as_ref(), self.order)
    }
}

/// The endpoints of `figures` that had requests, in `order`.
pub(crate) fn ordered(figures: Option<&Figures>, order: Order) -> Vec<&Endpoint> {
    let all = figures.map_or(&[][..], |figures| &figures.endpoints);
    let mut some: Vec<&Endpoint> = all.iter().filter(|endpoint| endpoint.total > 0.0).collect();
    let rate = |endpoint: &Endpoint| endpoint.rate.unwrap_or(0.0);
    let p99 = |endpoint: &Endpoint| endpoint.latency.p99.map_or(0.0, |p99| p99.seconds);
    // What is equal keeps the page's order.
    some.sort_by(|a, b| match order {
        Order::Busiest => rate(b).total_cmp(&rate(a)).then(b.total.total_cmp(&a.total)),
        Order::Slowest => p99(b).total_cmp(&p99(a)).then(rate(b).total_cmp(&rate(a))),
        Order::Name => a.name.cmp(&b.name),
    });
    some
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::super::figures::tests::sample;
    use super::*;

    pub(crate) fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// Purpose: a server that dies is said to be gone since then, with the last reason; it comes back
    /// as a new process without negative rates, and then has rates again.
    #[test]
    fn a_server_goes_and_comes_back() {
        let mut state = State::new("u".to_owned());
        assert_eq!(*state.link(), Link::Asking);
        state.answered(at(1), Ok(sample(100.0, 1.0, 1000.0, 0.0)));
        state.answered(at(2), Ok(sample(100.0, 2.0, 1100.0, 0.0)));
        assert_eq!((state.link(), state.shown().restarted), (&Link::Up, None));
        state.answered(at(3), Err("refused".to_owned()));
        state.answered(at(9), Err("reset".to_owned()));
        assert_eq!(*state.link(), Link::Gone { since: at(3), why: "reset".to_owned() });
        let last = state.shown().figures.as_ref().expect("what was known stays");
        assert_eq!(last.requests, Some(100.0));
        state.answered(at(10), Ok(sample(109.0, 1.0, 7.0, 0.0)));
        assert_eq!((state.link(), state.shown().restarted), (&Link::Up, Some(at(10))));
        state.answered(at(11), Ok(sample(109.0, 2.0, 17.0, 0.0)));
        let rates: Vec<_> = state.shown().requests.iter().copied().collect();
        assert_eq!(rates, [None, Some(100.0), None, None, None, Some(10.0)]);
    }

    /// Purpose: a paused screen does not change, and polling continues.
    #[test]
    fn a_pause_holds_what_is_shown() {
        let mut state = State::new("u".to_owned());
        state.answered(at(1), Ok(sample(100.0, 1.0, 1000.0, 0.0)));
        state.command(Command::Pause);
        state.answered(at(2), Err("refused".to_owned()));
        assert!(state.is_paused());
        assert_eq!(state.shown().link, Link::Up);
        assert_ne!(*state.link(), Link::Up);
        state.command(Command::Pause);
        assert_eq!(state.shown().link, *state.link());
        assert_eq!(state.shown().requests.len(), 2);
    }

    /// Purpose: the history does not grow without end.
    #[test]
    fn history_is_bounded() {
        let mut state = State::new("u".to_owned());
        for second in 0..=HISTORY_MAX as u64 {
            state.answered(at(second), Err(String::new()));
        }
        assert_eq!(state.shown().requests.len(), HISTORY_MAX);
    }

    /// Purpose: endpoints can be found as the busiest, as the slowest, and by name.
    #[test]
    fn endpoints_are_ordered() {
        let endpoint = |name: &str, total, rate, p99| Endpoint {
            name: name.to_owned(),
            total,
            rate: Some(rate),
            latency: super::super::histogram::Quantiles {
                p99: Some(super::super::histogram::Quantile {
                    seconds: p99,
                    known: super::super::histogram::Known::Between,
                }),
                ..Default::default()
            },
        };
        let endpoints = vec![
            endpoint("/never", 0.0, 0.0, 0.0),
            endpoint("/slow", 5.0, 1.0, 2.0),
            endpoint("/a", 900.0, 0.0, 0.0),
            endpoint("/busy", 50.0, 9.0, 0.1),
        ];
        let figures = Figures { endpoints, ..Figures::default() };
        for (order, expected) in [
            (Order::Busiest, ["/busy", "/slow", "/a"]),
            (Order::Slowest, ["/slow", "/busy", "/a"]),
            (Order::Name, ["/a", "/busy", "/slow"]),
        ] {
            let names: Vec<&str> =
                ordered(Some(&figures), order).iter().map(|endpoint| &*endpoint.name).collect();
            assert_eq!(names, expected);
        }
        let mut state = State::new("u".to_owned());
        state.seen.figures = Some(figures);
        for (command, above) in [
            (Command::Up, 0),
            (Command::Down, 1),
            (Command::Down, 2),
            (Command::Down, 2),
            (Command::Up, 1),
            (Command::First, 0),
            (Command::Down, 1),
            (Command::NextOrder, 0),
        ] {
            state.command(command);
            assert_eq!(state.above, above, "{command:?}");
        }
    }
}
