//! The load generator of the side-by-side measurements: one thread, one core, a closed loop,
//! loopback.
//!
//! It batches through io_uring so that one core of it can saturate one core of any server here (wrk
//! cannot), and it reads the server's CPU time itself at both ends of the measured span. Nothing
//! wrong is tolerated: the first answer that is not 2xx or has another length than the first one
//! ends the run with an error.
//!
//! It is not an open loop and says nothing about latency under a given load: its percentiles are
//! those of a saturated server, where the median is the number of connections over the throughput.

mod c2c;
mod close;
mod histogram;
mod keep_alive;
mod measure;
mod plan;

use std::io::{self, Write};
use std::process::ExitCode;

use highwater_floor::flags::Flags;
use highwater_floor::socket;
use measure::Meter;
use plan::Plan;

const HELP: &str = "\
Closed-loop load over loopback, and what it costs the server. Prints one line of JSON.

Usage: loadgen --port N [flags]
       loadgen c2c [--cpus A,B]   ns of a cache line's round trip between two CPUs [0,1]

  --port N          port of the server on 127.0.0.1 (required)
  --pid A,B,...     the server's processes: their CPU time is what is measured
  --method M        [GET]
  --path P          [/]
  --body TEXT       a request body, with its Content-Length
  --connections N   1 to 1024 [64]
  --pipeline N      requests sent at once on a connection, 1 to 64 [1]
  --close           a new connection for every request, with Connection: close
  --warm MS         run this long before measuring [300]
  --ms MS           measure this long [600]
  --cpu N           pin to this CPU [1]
  --server-cpu N    the server's CPU, to see whether something else used it [0]
  --help            this text";

/// What went wrong decides the exit status: 2 for the command line, 1 for the measurement.
enum Failure {
    Usage(String),
    Run(String),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() || arguments.iter().any(|argument| argument == "--help") {
        eprintln!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let line = match arguments.first().map(String::as_str) {
        Some("c2c") => round_trip(&arguments[1..]),
        _ => load(&arguments),
    };
    let (line, status) = match line {
        Ok(line) => (line, ExitCode::SUCCESS),
        Err(Failure::Usage(message)) => {
            eprintln!("loadgen: {message}");
            return ExitCode::from(2);
        }
        Err(Failure::Run(message)) => (measure::error_line(&message), ExitCode::FAILURE),
    };
    match writeln!(io::stdout(), "{line}") {
        Ok(()) => status,
        Err(_) => ExitCode::FAILURE,
    }
}

fn round_trip(arguments: &[String]) -> Result<String, Failure> {
    let flags = Flags::parse(arguments.iter().cloned(), &["cpus"], &[]).map_err(Failure::Usage)?;
    let cpus = flags
        .value("cpus", plan::List(vec![0, 1]))
        .map_err(Failure::Usage)?;
    let [first, second] = cpus.0[..] else {
        return Err(Failure::Usage("--cpus needs two numbers: 0,1".to_owned()));
    };
    let ns = c2c::round_trip_ns(first as usize, second as usize)
        .map_err(|error| Failure::Usage(format!("--cpus {first},{second}: {error}")))?;
    Ok(format!("{ns:.1}"))
}

fn load(arguments: &[String]) -> Result<String, Failure> {
    let plan = Plan::parse(arguments.iter().cloned()).map_err(Failure::Usage)?;
    socket::pin(plan.cpu)
        .map_err(|error| Failure::Usage(format!("--cpu {}: {error}", plan.cpu)))?;
    let response = plan.ask_once().map_err(Failure::Run)?;
    let mut meter = Meter::new(&plan);
    let run = if plan.close {
        close::run(&plan, response.len, &mut meter)
    } else {
        keep_alive::run(&plan, response.len, &mut meter)
    };
    run.map_err(Failure::Run)?;
    meter.line(&plan, &response).map_err(Failure::Run)
}
