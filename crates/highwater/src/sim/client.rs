//! A simulated client: it acts out its script at its own speed, and stores what it received.

use std::collections::VecDeque;
use std::time::Duration;

use highwater_core::prng::Prng;
use highwater_core::time::Instant;

use super::link::Stage;
use super::network::Network;
use super::reader::Reader;
use super::runner::Peer;
use super::script::{Request, Script, Step};

/// How a client behaves.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// Longest pause between two acts.
    pause_max: Duration,
    /// Most bytes sent at a time, and read at a time; `None` for a client that never reads.
    say_max: u64,
    read_max: u64,
    /// Keeps sending although an answer has told it not to.
    stubborn: bool,
}

/// A client with one connection.
pub(super) struct Client {
    pub(super) link: usize,
    pub(super) requests: Vec<Request>,
    pub(super) reader: Reader,
    /// A hash of every byte received.
    pub(super) hash: u64,
    pace: Pace,
    steps: VecDeque<Step>,
    next_at: Instant,
    waiting_since: Option<Instant>,
    /// Bytes received.
    received: usize,
    finished: bool,
    left: bool,
}

impl Peer for Client {
    fn act(&mut self, network: &mut Network, prng: &mut Prng) -> Result<(), String> {
        let now = network.now();
        if self.next_at > now || self.left || self.is_gone(network) {
            return Ok(());
        }
        if network.link(self.link).stage == Stage::Unborn {
            network.connect(self.link);
            return Ok(());
        }
        let pause = prng.below(self.pace.pause_max.as_nanos() as u64 + 1);
        self.next_at = now + Duration::from_nanos(pause);
        if network.breaks() {
            self.leave(network);
            return Ok(());
        }
        if prng.chance(1, 2) {
            self.read(network, prng)?;
        }
        self.send(network, prng);
        self.read(network, prng)
    }

    fn next_at(&self, network: &Network) -> Instant {
        let link = network.link(self.link);
        let over = link.has_ended();
        if self.is_gone(network) || self.left {
            return Instant::MAX;
        }
        let deaf = self.never_reads();
        if link.stage == Stage::Unborn || (link.has_unread() && !deaf) {
            return self.next_at;
        }
        let can_act = match self.steps.front() {
            None => over && !self.finished,
            Some(Step::Send(_)) => over || link.has_room(),
            // A client that never reads does not wait for answers.
            Some(&Step::Await(answers)) => over || self.reader.answers().len() >= answers || deaf,
            Some(&Step::AwaitBytes(_, patience)) if !over => {
                return match self.waiting_since {
                    Some(since) => self.next_at.max(since + patience),
                    None => self.next_at,
                };
            }
            Some(&Step::AwaitContinue(at, patience)) if !over && !self.is_answered(at) => {
                return match self.waiting_since {
                    Some(since) => self.next_at.max(since + patience),
                    None => self.next_at,
                };
            }
            Some(_) => true,
        };
        if can_act { self.next_at } else { Instant::MAX }
    }

    fn go_back(&mut self, back: Duration) {
        for at in std::iter::once(&mut self.next_at).chain(&mut self.waiting_since) {
            *at = at.checked_sub(back).unwrap_or(Instant::ZERO);
        }
    }

    fn is_gone(&self, network: &Network) -> bool {
        let link = network.link(self.link);
        let deaf = self.pace.read_max == 0;
        match link.stage {
            Stage::Refused => true,
            Stage::Over => self.left || deaf || link.has_ended(),
            _ => false,
        }
    }
}

impl Client {
    /// Draws a client that acts out `script`.
    pub(super) fn draw(prng: &mut Prng, network: &mut Network, script: Script) -> Self {
        let window = [16 * 1024, 16 * 1024, 2000, 100][prng.below(4) as usize];
        let slow_reader = prng.chance(1, 6);
        let pace = Pace {
            pause_max: match prng.below(12) {
                0 => Duration::from_millis(1500),
                1 => Duration::from_millis(100),
                _ => Duration::from_millis(3),
            },
            say_max: [1, 20, 300, 300, 5000][prng.below(5) as usize],
            read_max: match prng.below(24) {
                0 => 0,
                _ if slow_reader => 20,
                _ => [300, 3000][prng.below(2) as usize],
            },
            stubborn: prng.chance(1, 8),
        };
        // A client with much to send does not send it byte by byte; some clients hurry.
        let all: usize = script.steps.iter().map(Step::len).sum();
        let say_max = if all > 20_000 { pace.say_max.max(300) } else { pace.say_max };
        let hasty = all > 60_000 && prng.chance(1, 2);
        let say_max = if hasty { 64 * 1024 } else { say_max };
        // A client that sends a byte at a time pauses only between a few of them.
        let pause_max =
            if pace.say_max < 20 || hasty { Duration::from_micros(100) } else { pace.pause_max };
        let heads = script.requests.iter().map(|request| request.wanted.head_only).collect();
        Client {
            link: network.add(window),
            requests: script.requests,
            reader: Reader::new(heads),
            hash: 0xcbf2_9ce4_8422_2325,
            pace: Pace { pause_max, say_max, ..pace },
            steps: script.steps.into(),
            next_at: Instant::ZERO + Duration::from_micros(prng.below(5000)),
            waiting_since: None,
            received: 0,
            finished: false,
            left: false,
        }
    }

    /// Whether it may send the body of the nth request, or was told that it need not.
    fn is_answered(&self, at: usize) -> bool {
        self.reader.answers().len() > at || self.reader.interims().contains(&at)
    }

    pub(super) fn never_reads(&self) -> bool {
        self.pace.read_max == 0
    }

    fn read(&mut self, network: &mut Network, prng: &mut Prng) -> Result<(), String> {
        if self.pace.read_max == 0 {
            return Ok(());
        }
        let bytes = network.read(self.link, 1 + prng.below(self.pace.read_max) as usize);
        self.received += bytes.len();
        // FNV-1a: the hash only has to differ when the bytes differ.
        self.hash = bytes
            .iter()
            .fold(self.hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
        self.reader.feed(&bytes)
    }

    fn send(&mut self, network: &mut Network, prng: &mut Prng) {
        let stop_requested = self.reader.answers().last().is_some_and(|answer| answer.closes);
        let over = network.link(self.link).has_ended();
        if (stop_requested && !self.pace.stubborn) || over {
            self.steps.clear();
        }
        let received = if self.never_reads() { usize::MAX } else { self.reader.answers().len() };
        match self.steps.front_mut() {
            None if over && !self.finished => self.finish(network),
            None => {}
            Some(Step::Send(bytes)) => {
                let take = bytes.len().min(1 + prng.below(self.pace.say_max) as usize);
                let sent = network.send(self.link, &bytes[..take]);
                bytes.drain(..sent);
                if bytes.is_empty() {
                    self.steps.pop_front();
                }
            }
            Some(Step::Rest(rest)) => {
                self.next_at = network.now() + *rest;
                self.steps.pop_front();
            }
            Some(&mut Step::Await(answers)) if answers > received => {}
            Some(Step::Await(_)) => drop(self.steps.pop_front()),
            Some(&mut Step::AwaitContinue(at, patience)) => {
                self.await_continue(network, at, patience)
            }
            Some(&mut Step::AwaitBytes(bytes, patience)) => {
                let now = network.now();
                let since = *self.waiting_since.get_or_insert(now);
                if self.received >= bytes || now >= since + patience {
                    self.waiting_since = None;
                    self.steps.pop_front();
                }
            }
            Some(Step::FinishIfServed) => {
                self.steps.pop_front();
                if self.never_reads()
                    || self.reader.answers().last().is_none_or(|answer| answer.status != 503)
                {
                    self.requests.truncate(received.max(1));
                    self.steps = VecDeque::from([Step::Finish]);
                }
            }
            Some(Step::Finish) => {
                self.steps.pop_front();
                self.finish(network);
            }
            Some(Step::Leave) => self.leave(network),
        }
    }

    fn await_continue(&mut self, network: &Network, at: usize, patience: Duration) {
        let now = network.now();
        let since = *self.waiting_since.get_or_insert(now);
        if self.reader.answers().len() > at {
            self.steps.pop_front();
            self.steps.pop_front(); // The body is not wanted any more.
        } else if self.is_answered(at) || now >= since + patience {
            self.steps.pop_front();
        } else {
            return;
        }
        self.waiting_since = None;
    }

    fn finish(&mut self, network: &mut Network) {
        self.finished = true;
        network.finish(self.link);
    }

    fn leave(&mut self, network: &mut Network) {
        self.left = true;
        network.leave(self.link);
    }
}

impl Step {
    /// How many bytes it sends.
    pub(super) fn len(&self) -> usize {
        match self {
            Step::Send(bytes) => bytes.len(),
            _ => 0,
        }
    }
}
