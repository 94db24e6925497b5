//! `highwater sim`: runs the whole worker under seeds that decide everything a network may do.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use highwater::sim::{self, Failure, Kind, Kinds, Report};

use crate::output::say;
use crate::progress::Progress;

/// Test Highwater itself: run the server's worker in a simulated world.
///
/// For contributors, and for users who patch the framework. One seed decides splits, order, delays, resets,
/// slow readers and clock jumps. A failure is reported as the seed that reproduces it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  highwater sim --seeds 10000
  highwater sim --seed 42 --trace
  highwater sim --seeds 1000 --json
  highwater sim --seeds 1000 --with wakes,stops

Exit status: 0; 1 if a seed failed; 2 for a wrong argument.")]
pub(crate) struct Args {
    /// How many seeds to run, from --first on.
    #[arg(long, default_value_t = 1000, conflicts_with = "seed", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,

    /// The first seed.
    #[arg(long, default_value_t = 0, conflicts_with = "seed")]
    first: u64,

    /// Run this seed alone, and report what it did
    #[arg(long)]
    seed: Option<u64>,

    /// With --seed: print every event and every command
    #[arg(long, requires = "seed")]
    trace: bool,

    /// Also run these kinds of behaviour, although the server is known to fail them; or `all`.
    /// Separate several by commas
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = parse_kinds)]
    with: Vec<Kinds>,

    /// Run only the kinds named by `--with`, besides what every run has
    #[arg(long)]
    only: bool,

    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// The options about kinds in a command that reproduces a seed.
    fn again(&self) -> String {
        let kinds: Vec<&str> =
            Kind::all().filter(|&kind| self.kinds().has(kind)).map(Kind::name).collect();
        match (self.with.is_empty(), self.only) {
            (true, _) => String::new(),
            (false, _) => format!(" --only --with {}", kinds.join(",")),
        }
    }

    fn kinds(&self) -> Kinds {
        let base = if self.only { Kinds::NONE } else { Kinds::proven() };
        self.with.iter().fold(base, |all, &more| all.and(more))
    }
}

fn parse_kinds(name: &str) -> Result<Kinds, String> {
    if name == "all" {
        return Ok(Kind::all().fold(Kinds::NONE, Kinds::with));
    }
    let names: Vec<&str> = Kind::all().map(Kind::name).collect();
    let kind = Kind::named(name).ok_or_else(|| format!("there are: all, {}", names.join(", ")))?;
    Ok(Kinds::NONE.with(kind))
}

#[derive(Default)]
struct Totals {
    runs: u64,
    clients: u64,
    answers: u64,
    resets: u64,
    expiries: u64,
    turns: u64,
}

impl Totals {
    fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.clients += report.clients as u64;
        self.answers += report.answers as u64;
        self.resets += report.resets as u64;
        self.expiries += report.expiries as u64;
        self.turns += u64::from(report.turns);
    }
}

pub(crate) fn run(args: &Args) -> ExitCode {
    // The worker catches a handler's panic; the simulator catches the worker's. Neither should print.
    std::panic::set_hook(Box::new(|_| {}));
    if let (Some(seed), true) = (args.seed, args.trace) {
        print_trace(seed, args.kinds());
    }
    let (first, count) = args.seed.map_or((args.first, args.seeds), |seed| (seed, 1));
    let began = Instant::now();
    let (totals, failures) = run_all(first, count, args.kinds());
    print(args, &totals, &failures, began.elapsed());
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the seeds on every core, and stops early once failures pile up.
fn run_all(first: u64, count: u64, kinds: Kinds) -> (Totals, Vec<Failure>) {
    const FAILURES_MAX: usize = 10;
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64).min(count);
    let mut totals = Totals::default();
    let mut failures: Vec<Failure> = Vec::new();
    let mut progress = Progress::new("simulating", count);
    std::thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..threads {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    // Behind the last seed comes the first.
                    let seed = first.wrapping_add(at);
                    if at >= count || sender.send(sim::run_with(seed, kinds)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut done = 0;
        for result in results {
            done += 1;
            progress.set(done);
            match result {
                Ok(report) => totals.add(&report),
                Err(failure) => failures.push(failure),
            }
            if failures.len() >= FAILURES_MAX {
                break;
            }
        }
        next.store(count, Ordering::Relaxed);
    });
    progress.finish();
    failures.sort_by_key(|failure| failure.seed);
    (totals, failures)
}

/// Prints what happens under `seed`.
fn print_trace(seed: u64, kinds: Kinds) {
    for line in sim::trace(seed, kinds).0 {
        say!("{line}");
    }
}

fn print(args: &Args, totals: &Totals, failures: &[Failure], took: Duration) {
    let Totals { runs, clients, answers, resets, expiries, turns } = totals;
    let seconds = took.as_secs_f64();
    let rate = (*runs as f64 + failures.len() as f64) / seconds;
    if args.json {
        let seeds: Vec<String> = failures.iter().map(|failure| failure.seed.to_string()).collect();
        say!(
            "{{\"passed\":{runs},\"failed\":{},\"clients\":{clients},\"answers\":{answers},\
             \"resets\":{resets},\"expiries\":{expiries},\"turns\":{turns},\
             \"failing_seeds\":[{}],\"seconds\":{seconds:.3},\"seeds_per_s\":{rate:.0}}}",
            failures.len(),
            seeds.join(","),
        );
        return;
    }
    say!(
        "{runs} {} passed, {} failed: {clients} clients read {answers} responses in {turns} turns, \
         {resets} connections were broken by clients or the network, {expiries} ended by the server \
         ({seconds:.1} s, {rate:.0} seeds/s)",
        if *runs == 1 { "seed" } else { "seeds" },
        failures.len(),
    );
    for failure in failures {
        say!(
            "  {failure}\n    again: highwater sim --seed {}{} --trace",
            failure.seed,
            args.again()
        );
    }
}
