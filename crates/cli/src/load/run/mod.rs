//! Runs the clients: threads, clocks, signals, and the cost on this machine.

mod speak;

use std::io::{IsTerminal, Write, stderr};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use highwater_core::time::Instant;
use highwater_sys::clock::monotonic;
use highwater_sys::dial::{DialConfig, EpollDialer, UringDialer};
use highwater_sys::signal::Signals;
use highwater_sys::{self as sys, limits};

use super::args::{Args, Transport};
use super::client::{Client, LINGERING_MAX, Plan, messages};
use super::demand::Demand;
use super::http2;
use super::request::{Choice, Requests};
use super::schedule::Schedule;
use super::series::Span;
use super::tally::Tally;
use super::target::Target;
use super::template::Values;
use super::tls;
use super::wire::Wire;
use speak::Load;

/// How often a waiting client wakes up, and the live line is redrawn.
const TICK: Duration = Duration::from_millis(100);
/// For threads to start before the first request is due.
const HEAD_START: Duration = Duration::from_millis(20);
/// For a time-out to be noticed (a tick of the timing wheel) and tallied.
const GRACE: Duration = Duration::from_millis(500);
/// If every connection attempt was refused for this long from the beginning, nothing listens.
const DEAD_AFTER: Duration = Duration::from_millis(500);

/// The result of a run.
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// When the measured span began.
    pub(crate) began: SystemTime,
    /// The measured span, shorter than asked for if the run was interrupted.
    pub(crate) span: Duration,
    /// CPU time over wall time, of the busiest client thread, 0 to 1.
    pub(crate) client_cpu: f64,
    /// Time in which a client thread was ready to run and had no CPU, over wall time, of the one that waited most.
    pub(crate) client_waited: f64,
    /// CPU time of all client threads in the measured span.
    pub(crate) cpu: Duration,
    pub(crate) transport: sys::Transport,
    pub(crate) interrupted: bool,
}

/// The live figures of a client.
#[derive(Default)]
struct Shown {
    sent: AtomicU64,
    ok: AtomicU64,
    good: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    connected: AtomicU64,
    /// Requests whose connection was not made.
    unmade: AtomicU64,
    /// Requests whose TLS failed.
    untrusted: AtomicU64,
}

struct Shared {
    stop: AtomicBool,
    shown: Vec<Shown>,
    on_mark: OnMark,
}

impl Shared {
    fn sum(&self, field: fn(&Shown) -> &AtomicU64) -> u64 {
        self.shown.iter().map(|shown| field(shown).load(Ordering::Relaxed)).sum()
    }
}

/// An end of the measured span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Begin,
    End,
}

/// Called by the first client thread at both ends of the measured span, between two of its turns.
pub(crate) type OnMark = Box<dyn Fn(Mark) + Send + Sync>;

/// What a run does when every connection attempt is refused from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IfRefused {
    /// Nothing listens: it ends.
    End,
    /// Refusals are the subject of the measurement.
    GoOn,
}

/// Generates the load.
///
/// # Errors
/// The machinery failed: no descriptors, no memory, no io_uring where it was asked for.
pub(crate) fn run(
    args: &Args,
    target: Target,
    if_refused: IfRefused,
    on_mark: OnMark,
) -> Result<Outcome, String> {
    let (address, requests) = (target.address, Arc::new(target.requests));
    let aim = Aim { address, requests: requests.clone(), tls: target.tls };
    let signals = Signals::catch().map_err(|error| format!("catching signals: {error}"))?;
    prepare(args)?;
    let transport = transport(args.transport)?;
    let start = monotonic() + HEAD_START;
    let from = start + args.warmup;
    let span =
        Span { start, from, to: from + args.duration, step: args.step(), interval: args.series };
    let began = SystemTime::now() + (from - monotonic());
    let shared = Arc::new(Shared {
        stop: AtomicBool::new(false),
        shown: (0..args.threads).map(|_| Shown::default()).collect(),
        on_mark,
    });
    let threads = (0..args.threads)
        .map(|number| spawn(args, &aim, span, transport, number, &shared))
        .collect::<Result<Vec<_>, _>>()?;
    let may_end = (if_refused == IfRefused::End).then(|| listens_here(address));
    let ended = watch(args, span, &shared, &threads, &signals, may_end);
    let mut outcome = Outcome {
        tally: Tally::new(span, args.deadline).with_details(
            if requests.is_mix { requests.list.len() } else { 0 },
            args.hlog.is_some(),
        ),
        began,
        span: monotonic().min(span.to) - span.from,
        client_cpu: 0.0,
        client_waited: 0.0,
        cpu: Duration::ZERO,
        transport,
        interrupted: ended == Ended::Interrupted,
    };
    for thread in threads {
        let (tally, spent) = thread.join().map_err(|_| "a client thread panicked")??;
        outcome.tally.merge(tally);
        outcome.cpu += spent.on_cpu;
        let share = |time: Duration| time.as_secs_f64() / outcome.span.as_secs_f64().max(1e-9);
        outcome.client_cpu = outcome.client_cpu.max(share(spent.on_cpu));
        outcome.client_waited = outcome.client_waited.max(share(spent.waited).min(1.0));
    }
    if ended == Ended::Dead {
        // It may have ended before its measured span: the refusals until then are the result.
        outcome.span = monotonic() - span.start;
        outcome.tally.measure_all();
    }
    Ok(outcome)
}

/// Makes sure that there are enough descriptors.
fn prepare(args: &Args) -> Result<(), String> {
    /// Descriptors for everything except connections.
    const RESERVE: u64 = 64;
    let limit = limits::raise_descriptors().map_err(|error| format!("descriptors: {error}"))?;
    let lingering = u64::from(args.threads) * LINGERING_MAX as u64;
    let connections = u64::from(args.connections()) + u64::from(args.idle);
    let needed = connections + lingering + RESERVE;
    if needed > limit.soft {
        return Err(format!(
            "{connections} connections need {needed} descriptors, and {} are allowed: lower --connections, or \
             raise `ulimit -n`",
            limit.soft
        ));
    }
    Ok(())
}

fn transport(wanted: Transport) -> Result<sys::Transport, String> {
    let capabilities = sys::probe();
    match (wanted, &capabilities.uring) {
        (Transport::Uring, Err(reason)) => {
            Err(format!("--transport uring: {reason}; use --transport epoll"))
        }
        (Transport::Epoll, _) => Ok(sys::Transport::Epoll),
        _ => Ok(capabilities.best()),
    }
}

/// CPU and waiting time of a client thread in the measured span.
#[derive(Clone, Copy, Default)]
struct Spent {
    on_cpu: Duration,
    /// Ready to run, without a CPU.
    waited: Duration,
}

/// Where every thread sends what.
struct Aim {
    address: SocketAddr,
    requests: Arc<Requests>,
    tls: Option<tls::Setup>,
}

type Finished = Result<(Tally, Spent), String>;

fn spawn(
    args: &Args,
    aim: &Aim,
    span: Span,
    transport: sys::Transport,
    number: u32,
    shared: &Arc<Shared>,
) -> Result<JoinHandle<Finished>, String> {
    let Aim { address, requests, tls } = aim;
    let plan = plan(args, requests, number);
    let demand = demand(args, span, number, plan.connections);
    let messages = messages(requests, plan.pipeline);
    let sources = args.source.clone().map_or(Vec::new(), |sources| sources.0);
    // TLS encrypts them again each time.
    let (sent, sealed) =
        if tls.is_some() { (Vec::new(), messages) } else { (messages, Vec::new()) };
    let config = DialConfig { target: *address, sources, messages: sent };
    let tls = tls.as_ref().map(|setup| setup.for_thread(span));
    let shared = shared.clone();
    let fields = requests.list.iter().any(|request| request.expects_fields());
    let closes = args.close || args.requests_per_connection.is_some();
    let http2 = args.http2.then_some(http2::Setup { streams: args.streams, fields, closes });
    let load = Load {
        plan,
        demand,
        span,
        deadline: args.deadline,
        shared,
        number: number as usize,
        http2,
        idle: args.idle / args.threads + u32::from(number < args.idle % args.threads),
    };
    std::thread::Builder::new()
        .name(format!("load-{number}"))
        .spawn(move || {
            let tls = tls.map(|sessions| (sessions(), sealed));
            match transport {
                sys::Transport::Uring => {
                    let dialer = UringDialer::new(&config);
                    load.over(dialer.map_err(|error| format!("io_uring: {error}"))?, tls)
                }
                sys::Transport::Epoll => {
                    let dialer = EpollDialer::new(&config);
                    load.over(dialer.map_err(|error| format!("epoll: {error}"))?, tls)
                }
            }
        })
        .map_err(|error| format!("starting a thread: {error}"))
}

fn plan(args: &Args, requests: &Arc<Requests>, number: u32) -> Plan {
    /// Separates the random choice of requests from their random values.
    const OTHER: u64 = 1 << 63;
    let (connections, threads) = (args.connections(), args.threads);
    let seed = args.seed.wrapping_add(number.into());
    let share = connections / threads + u32::from(number < connections % threads);
    Plan {
        connections: (share * args.streams) as usize,
        pipeline: args.pipeline as usize,
        requests_per_connection: match args.close {
            true => 1,
            false => args.requests_per_connection.unwrap_or(u64::MAX),
        },
        give_up: args.deadline.map_or(args.timeout, |deadline| deadline.min(args.timeout)),
        requests: requests.clone(),
        choice: Choice::new(requests, seed),
        values: Values::new(seed ^ OTHER, u64::from(number) + 1, threads.into()),
        logs: args.hlog.is_some(),
    }
}

/// A thread's share of the requests.
fn demand(args: &Args, span: Span, number: u32, connections: usize) -> Demand {
    let Some(rate) = args.rate else {
        return Demand::closed(connections, args.backoff);
    };
    let threads = f64::from(args.threads);
    let (phase, seed) = (f64::from(number) / threads, args.seed.wrapping_add(number.into()));
    let schedule = Schedule::new(args.arrivals, rate / threads, span.start, phase, seed);
    let end = if args.stop_at_end { span.to } else { Instant::MAX };
    Demand::open(schedule.in_bursts(args.burst).until(end))
}

/// One client thread, from the first request to the end of the last measured one.
fn drive<W: Wire>(
    mut client: Client<W>,
    span: Span,
    give_up: Duration,
    shared: &Shared,
    number: usize,
) -> Finished {
    let last = span.to + give_up + GRACE;
    let (mut began, mut ended, mut is_last) = (None, None, false);
    let mut shown_at = span.start;
    let mark = |mark| {
        if number == 0 {
            (shared.on_mark)(mark);
        }
    };
    loop {
        let now = monotonic();
        if now >= span.from && began.is_none() {
            mark(Mark::Begin);
            began = Some(spent());
        }
        if now >= span.to && ended.is_none() {
            ended = Some(spent());
            mark(Mark::End);
        }
        if now >= shown_at {
            shown_at = now + TICK;
            show(client.tally(), &shared.shown[number]);
            if shared.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        if client.is_decided(now) || is_last {
            break;
        }
        // One more turn: a client that was stopped meanwhile reads what came.
        is_last = now >= last;
        let next = [span.from, span.to].into_iter().find(|mark| *mark > now);
        let latest = next.map_or(now + TICK, |mark| mark.min(now + TICK));
        client.turn(now, latest, monotonic).map_err(|error| format!("polling: {error}"))?;
    }
    let (to, from) = (ended.unwrap_or_else(spent), began.unwrap_or_else(spent));
    let spent = Spent {
        on_cpu: to.on_cpu.saturating_sub(from.on_cpu),
        waited: to.waited.saturating_sub(from.waited),
    };
    Ok((client.finish(monotonic()), spent))
}

fn show(tally: &Tally, shown: &Shown) {
    let total = tally.total();
    shown.sent.store(total.sent, Ordering::Relaxed);
    shown.ok.store(total.ok, Ordering::Relaxed);
    shown.good.store(total.good, Ordering::Relaxed);
    shown.refused.store(total.refused, Ordering::Relaxed);
    shown.failed.store(total.errors() + total.timeouts + total.non_2xx, Ordering::Relaxed);
    shown.connected.store(tally.connected, Ordering::Relaxed);
    shown.unmade.store(total.refused + total.no_port + total.failed, Ordering::Relaxed);
    shown.untrusted.store(total.handshakes, Ordering::Relaxed);
}

/// CPU and waiting time of the calling thread since it began, to the nanosecond; zero if this kernel does not report
/// it.
fn spent() -> Spent {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let mut fields = text.split_whitespace().filter_map(|field| field.parse().ok());
    let mut next = || Duration::from_nanos(fields.next().unwrap_or(0));
    Spent { on_cpu: next(), waited: next() }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Whole,
    Interrupted,
    /// Nothing listens.
    Dead,
}

/// Draws the live line until the clients are done, or something ends the run.
fn watch(
    args: &Args,
    span: Span,
    shared: &Shared,
    threads: &[JoinHandle<Finished>],
    signals: &Signals,
    listens: Option<bool>,
) -> Ended {
    let visible = !args.quiet && stderr().is_terminal();
    let mut ended = Ended::Whole;
    let mut last = (monotonic(), 0, 0);
    while threads.iter().any(|thread| !thread.is_finished()) {
        if let Ok(Some(_)) = signals.wait_timeout(TICK) {
            ended = Ended::Interrupted;
        } else if ended == Ended::Whole && listens.is_some_and(|it| is_dead(span, shared, it)) {
            ended = Ended::Dead;
        }
        if ended != Ended::Whole {
            shared.stop.store(true, Ordering::Relaxed);
        }
        if visible {
            draw(args, span, shared, &mut last);
        }
    }
    if visible {
        // A closed terminal does not stop the run.
        let _ = stderr().write_all(b"\r\x1b[K");
    }
    ended
}

/// Whether everything was refused from the beginning, by nobody who listens; or by TLS.
fn is_dead(span: Span, shared: &Shared, listens: bool) -> bool {
    let sum = |field: fn(&Shown) -> &AtomicU64| shared.sum(field);
    let (sent, unmade) = (sum(|shown| &shown.sent), sum(|shown| &shown.unmade));
    let untrusted = sum(|shown| &shown.untrusted);
    monotonic() >= span.start + DEAD_AFTER
        && sum(|shown| &shown.connected) == 0
        && sent > 0
        && (untrusted == sent || (unmade == sent && !listens))
}

/// Whether something on this machine listens on a loopback address: a gate in front of it may refuse everything.
fn listens_here(address: SocketAddr) -> bool {
    const LISTENS: &str = "0A";
    let port = format!(":{:04X}", address.port());
    let is_listener = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, _, state) = (fields.next(), fields.next(), fields.next());
        local.is_some_and(|local| local.ends_with(&port)) && state == Some(LISTENS)
    };
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    address.ip().is_loopback()
        && tables.into_iter().flatten().any(|table| table.lines().any(is_listener))
}

fn draw(args: &Args, span: Span, shared: &Shared, last: &mut (Instant, u64, u64)) {
    let sum = |field: fn(&Shown) -> &AtomicU64| shared.sum(field);
    let now = monotonic();
    let (sent, good) = (sum(|shown| &shown.sent), sum(|shown| &shown.good));
    let seconds = (now - last.0).as_secs_f64().max(1e-3);
    let left = span.to - now;
    let line = format!(
        "\r{} {:.0} s left: {:.0} sent/s, {:.0} {}/s, {} refused, {} failed \x1b[K",
        if now < span.from { "warming up," } else { "measuring," },
        left.as_secs_f64(),
        (sent - last.1) as f64 / seconds,
        (good - last.2) as f64 / seconds,
        if args.deadline.is_some() { "good" } else { "ok" },
        sum(|shown| &shown.refused),
        sum(|shown| &shown.failed),
    );
    *last = (now, sent, good);
    // A closed terminal does not stop the run.
    let _ = stderr().write_all(line.as_bytes());
}
