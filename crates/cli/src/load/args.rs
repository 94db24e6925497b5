//! The flags of `highwater load`, and their bounds.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::schedule::Arrivals;

/// Maximum number of connections or users. Beyond the ports of four addresses, one machine is the wrong tool.
pub(crate) const CONNECTIONS_MAX: u32 = 100_000;
/// Maximum rate, in requests per second.
pub(crate) const RATE_MAX: f64 = 10_000_000.0;
/// The longest measured span.
pub(crate) const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
/// Requests in one write.
pub(crate) const PIPELINE_MAX: u32 = 1024;
/// Streams of one connection.
pub(crate) const STREAMS_MAX: u32 = 1024;
/// Requests at one instant of an open loop.
pub(crate) const BURST_MAX: u32 = 4096;
/// Client threads.
pub(crate) const THREADS_MAX: u32 = 64;
/// Bytes of one request body.
pub(crate) const BODY_MAX: usize = 64 * 1024 * 1024;
/// Bytes of everything that can be sent: all URLs, pipelined.
pub(crate) const MESSAGES_MAX: usize = 256 * 1024 * 1024;
/// URLs in one mix.
pub(crate) const URLS_MAX: usize = 1024;
/// Requests of a mix file.
pub(crate) const REQUESTS_MAX: usize = 256;
/// Weight of one of them.
pub(crate) const WEIGHT_MAX: u64 = 1_000_000;
/// Source addresses.
pub(crate) const SOURCES_MAX: usize = 1024;
/// Points of the series.
pub(crate) const POINTS_MAX: u128 = 100_000;

/// Generate HTTP load, and measure the results.
///
/// Without --rate, the load is a closed loop: --connections users, each sending its next request when it has
/// the answer to its last. That finds the peak. With --rate it is an open loop: requests are sent by
/// schedule whatever the server does, and latency runs from the scheduled instant, so a stall is
/// charged for every request that it delays. That finds latency, and what happens beyond the peak.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  The peak:
    highwater load http://127.0.0.1:8080/plaintext --connections 256
  Latency at a rate:
    highwater load http://127.0.0.1:8080/ --rate 20000 --duration 30s
  A storm of connections:
    highwater load http://10.0.0.1:8080/ --rate 9000 --close --deadline 200ms \\
      --source 10.0.1.1-10.0.1.8
  Handshakes of TLS, none of them resumed:
    highwater load https://127.0.0.1:8443/ --ca ca.pem --close --resume off
  HTTP/2, 16 connections with 32 requests at a time on each:
    highwater load https://127.0.0.1:8443/ --ca ca.pem --http2 -c 16 --streams 32
  WebSocket, messages that are echoed, 8 at once on each connection:
    highwater load ws://127.0.0.1:8080/ws --ws --body 'message ${seq}' --pipeline 8
  The same on streams of HTTP/2, 16 WebSockets on each connection:
    highwater load ws://127.0.0.1:8080/ws --ws --http2 -c 4 --streams 16 --body hello
  Writes:
    highwater load http://127.0.0.1:8080/e --body '{\"id\":\"${uuid}\"}'
  Any of a thousand:
    highwater load 'http://127.0.0.1:8080/users/${random:1-1000}' --expect-status 200
  Reads and writes:
    highwater load http://127.0.0.1:8080 --mix mix.toml --rate 5000 --hlog run.hlog

In URLs, --header and --body, these parameters are replaced in each request: ${random:1-1000},
${uuid}, ${seq} (the request's number), ${pick:a,b,c}. $${ is sent as ${. Write them in single
quotes, because a shell would replace them. A mix file has tables of this kind (docs/load.md):
  [[request]]
  name = \"read\"
  weight = 9
  path = \"/users/${random:1-1000}\"
  expect = { status = 200, contains = \"name\" }

Exit status:
  0  the requested load was generated, and at least one request succeeded
  1  nothing listens, no request succeeded, or the client failed
  2  a flag is wrong, or the report could not be printed
  3  the figures describe the client: less than 99 % of --rate was sent, or requests failed on
     this machine; with --strict also if a closed loop used 90 % of a core, or the client was late
  4  answers were not what --expect-… or the mix expects
The report is printed in any case; standard error says why the status is not 0.")]
pub(crate) struct Args {
    /// Where to send requests: http://HOST:PORT/PATH or https://; ws:// and wss:// with --ws. Several URLs of one
    /// host are requested in turn.
    #[arg(required = true, value_name = "URL")]
    pub(crate) urls: Vec<String>,

    /// Users of a closed loop, or maximum number of connections of an open loop [default: 64; open loop with
    /// --close: 8192].
    #[arg(short, long, value_parser = clap::value_parser!(u32).range(1..=i64::from(CONNECTIONS_MAX)))]
    pub(crate) connections: Option<u32>,

    /// Open loop: requests per second, up to 10 million.
    #[arg(short, long, value_parser = parse_rate)]
    pub(crate) rate: Option<f64>,

    /// Open loop: the distribution of arrival times.
    #[arg(long, value_enum, default_value_t = Arrivals::Uniform, requires = "rate")]
    pub(crate) arrivals: Arrivals,

    /// Open loop: number of requests sent at one instant, at the same rate. A client that sends them one by one
    /// wakes up for each, which costs it more than the request.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "rate", value_parser = clap::value_parser!(u32).range(1..=i64::from(BURST_MAX)))]
    pub(crate) burst: u32,

    /// Open loop: send nothing after --duration, and only wait for answers. Without it the load goes on until
    /// everything measured has been answered, so that the last requests meet the same load as the others.
    #[arg(long, requires = "rate")]
    pub(crate) stop_at_end: bool,

    /// How long to measure, up to 24h.
    #[arg(short, long, default_value = "10s", value_parser = parse_duration)]
    pub(crate) duration: Duration,

    /// How long to run before measuring, up to 24h.
    #[arg(short, long, default_value = "1s", value_parser = parse_duration)]
    pub(crate) warmup: Duration,

    /// Client threads, each with its share of connections and rate.
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(THREADS_MAX)))]
    pub(crate) threads: u32,

    /// The client gives up on requests that take longer; only 2xx answers within it are goodput.
    #[arg(long, value_parser = parse_duration)]
    pub(crate) deadline: Option<Duration>,

    /// Give up on a request after this long.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,

    /// Closed loop: how long a user pauses after a refusal, a 503 or a failure.
    #[arg(long, default_value = "50ms", conflicts_with = "rate", value_parser = parse_duration)]
    pub(crate) backoff: Duration,

    /// A new connection for every request.
    #[arg(long, conflicts_with_all = ["requests_per_connection", "pipeline"])]
    pub(crate) close: bool,

    /// Close a connection after this many requests.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests_per_connection: Option<u64>,

    /// Closed loop: number of requests to send before waiting for their answers.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "rate", value_parser = clap::value_parser!(u32).range(1..=i64::from(PIPELINE_MAX)))]
    pub(crate) pipeline: u32,

    /// Request method [default: GET, and POST with a body].
    #[arg(short = 'X', long)]
    pub(crate) method: Option<String>,

    /// A request header, NAME: VALUE, or @FILE with one per line. May be given several times.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,

    /// Request body; @FILE: the content of that file; @@ for an @ at the beginning.
    #[arg(long, conflicts_with = "body_file")]
    pub(crate) body: Option<String>,

    /// File with the request body, up to 64 MiB.
    #[arg(long, value_name = "FILE")]
    pub(crate) body_file: Option<PathBuf>,

    /// File with the requests to send and their weights, instead of one request. The URL names the server only.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "body", "body_file", "expect_status", "expect_headers", "expect_body", "expect_contains"])]
    pub(crate) mix: Option<PathBuf>,

    /// Count answers with another status as bad responses.
    #[arg(long, value_name = "STATUS")]
    pub(crate) expect_status: Option<u16>,

    /// Count answers without this field and value as bad responses. May be given several times.
    #[arg(long = "expect-header", value_name = "NAME: VALUE")]
    pub(crate) expect_headers: Vec<String>,

    /// Count answers with another body as bad responses; @FILE: the content of that file.
    #[arg(long, value_name = "TEXT", conflicts_with = "expect_contains")]
    pub(crate) expect_body: Option<String>,

    /// Count answers without this text in their body as bad responses.
    #[arg(long, value_name = "TEXT")]
    pub(crate) expect_contains: Option<String>,

    /// HTTP/2: over TLS if the server agrees (ALPN), else at once (prior knowledge). With --ws, WebSockets are tunnels on its
    /// streams (RFC 8441).
    #[arg(long)]
    pub(crate) http2: bool,

    /// HTTP/2: concurrent requests per connection; in a closed loop, users per connection.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "http2", value_parser = clap::value_parser!(u32).range(1..=i64::from(STREAMS_MAX)))]
    pub(crate) streams: u32,

    /// WebSocket: send --body as a message, and wait for the message that answers it. --pipeline sends several at once.
    #[arg(long, conflicts_with_all = ["mix", "method", "expect_status", "expect_headers"])]
    pub(crate) ws: bool,

    /// WebSocket: send messages as binary, not as text.
    #[arg(long, requires = "ws")]
    pub(crate) binary: bool,

    /// WebSocket: number of additional connections to hold open and idle.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "ws", value_parser = clap::value_parser!(u32).range(0..=i64::from(CONNECTIONS_MAX)))]
    pub(crate) idle: u32,

    /// https: file with the certificates of the authorities to trust, in PEM [default: those of the system].
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub(crate) ca: Option<PathBuf>,

    /// https: accept any certificate, for any name. For tests: nothing proves who the server is.
    #[arg(long)]
    pub(crate) insecure: bool,

    /// https: whether later connections resume the sessions of earlier ones, as browsers do.
    #[arg(long, value_enum, value_name = "WHETHER", default_value_t = Switch::On)]
    pub(crate) resume: Switch,

    /// Local addresses to connect from, in turn: one, or a range. Each gives about 28 000 ports.
    #[arg(long, value_name = "A[-B]", value_parser = parse_sources)]
    pub(crate) source: Option<Sources>,

    /// I/O interface of the client.
    #[arg(long, value_enum, default_value_t = Transport::Auto)]
    pub(crate) transport: Transport,

    /// Interval between points of the JSON's series, which begins after the warm-up, and of --hlog.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = parse_duration)]
    pub(crate) series: Duration,

    /// Write latencies to this file as an HdrHistogram log, one interval for each point of the series.
    #[arg(long, value_name = "FILE")]
    pub(crate) hlog: Option<PathBuf>,

    /// Seed of parameters, of the order of a mix, and of --arrivals poisson.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,

    /// Also exit with 3 if the client of a closed loop was the bottleneck, or was late.
    #[arg(long)]
    pub(crate) strict: bool,

    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,

    /// Draw throughput over time and latency by percentile; the default on a terminal.
    #[arg(long, conflicts_with = "json")]
    pub(crate) chart: bool,

    /// Do not draw the live progress line.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl Args {
    /// Users of a closed loop, or connections of an open one at most.
    pub(crate) fn connections(&self) -> u32 {
        /// Enough for a peak; more hides it behind queueing.
        const CLOSED: u32 = 64;
        /// Enough for 8000 new connections per second that are given up after a second.
        const STORM: u32 = 8 * 1024;
        let usual = if self.close && self.rate.is_some() { STORM } else { CLOSED };
        self.connections.unwrap_or(usual)
    }

    /// Points of the tally in one of the series: a chart of a short run needs finer ones than a second.
    pub(crate) fn points_per_series(&self) -> u32 {
        /// Columns of a chart, at least.
        const COLUMNS: u32 = 6;
        if !self.chart && (self.json || self.quiet) {
            return 1;
        }
        let wanted = self.duration / COLUMNS;
        let points = self.series.as_nanos() / wanted.as_nanos().max(1);
        points.clamp(1, COLUMNS.into()) as u32
    }

    /// The length of one point of the tally.
    pub(crate) fn step(&self) -> Duration {
        self.series / self.points_per_series()
    }

    /// Checks that clap cannot make.
    pub(crate) fn check(&self) -> Result<(), String> {
        let least = |name, value: Duration, least: Duration| {
            if value >= least {
                return Ok(());
            }
            Err(format!("--{name} {value:?} is less than {least:?}; write more"))
        };
        least("duration", self.duration, Duration::from_millis(1))?;
        least("timeout", self.timeout, Duration::from_millis(1))?;
        least("series", self.series, Duration::from_millis(10))?;
        if let Some(deadline) = self.deadline {
            least("deadline", deadline, Duration::from_millis(1))?;
        }
        if self.threads > self.connections() {
            return Err(format!(
                "--threads {} and --connections {}: a thread needs a connection; use fewer threads",
                self.threads,
                self.connections()
            ));
        }
        if self.http2 && !self.ws && self.pipeline > 1 {
            return Err(format!(
                "--pipeline {} with --http2: requests do not wait for each other on streams; write --streams {0}",
                self.pipeline
            ));
        }
        if self.streams > 1 && (self.close || self.requests_per_connection.is_some()) {
            let flag = if self.close { "--close" } else { "--requests-per-connection" };
            return Err(format!(
                "{flag} and --streams {}: a connection cannot end while others use it; write --streams 1",
                self.streams
            ));
        }
        if self.connections().saturating_mul(self.streams) > CONNECTIONS_MAX {
            return Err(format!(
                "--connections {} with --streams {}: more than {CONNECTIONS_MAX} requests at a time; use fewer",
                self.connections(),
                self.streams
            ));
        }
        if (self.warmup + self.duration).as_nanos() / self.series.as_nanos() > POINTS_MAX {
            return Err(format!(
                "--series {:?} cuts the run into more than {POINTS_MAX} points; write more",
                self.series
            ));
        }
        Ok(())
    }
}

/// A setting that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    /// Sessions are resumed.
    On,
    /// Each handshake is a full one.
    Off,
}

/// How bytes are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Transport {
    /// io_uring if it works here, else epoll.
    Auto,
    /// io_uring.
    Uring,
    /// epoll.
    Epoll,
}

/// Local addresses, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sources(pub(crate) Vec<IpAddr>);

/// `10s`, `250ms`, `500us`, `2m`, `1h`, with decimals.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let refuse = || format!("{text:?} is not a duration; write 10s, 250ms, 500us, 2m or 1h");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(refuse()),
    };
    let number: f64 = number.parse().map_err(|_| refuse())?;
    let duration = Duration::try_from_secs_f64(number * seconds).map_err(|_| refuse())?;
    if duration > DURATION_MAX {
        return Err(format!("{text} is more than 24h; write less"));
    }
    Ok(duration)
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| format!("{text:?} is not a number; write 5000"))?;
    if !(0.001..=RATE_MAX).contains(&rate) {
        return Err(format!("{text} is not 0.001 to 10000000 requests per second"));
    }
    Ok(rate)
}

fn parse_sources(text: &str) -> Result<Sources, String> {
    let address = |text: &str| {
        text.parse::<IpAddr>()
            .map_err(|_| format!("{text:?} is not an address; write 10.0.1.1 or 10.0.1.1-10.0.1.8"))
    };
    let Some((first, last)) = text.split_once('-') else {
        return Ok(Sources(vec![address(text)?]));
    };
    let (first, last) = (address(first)?, address(last)?);
    let addresses: Vec<IpAddr> = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => (u32::from(first)..=u32::from(last))
            .take(SOURCES_MAX + 1)
            .map(|bits| IpAddr::V4(bits.into()))
            .collect(),
        (IpAddr::V6(first), IpAddr::V6(last)) => (u128::from(first)..=u128::from(last))
            .take(SOURCES_MAX + 1)
            .map(|bits| IpAddr::V6(bits.into()))
            .collect(),
        _ => return Err(format!("{text}: both ends must be IPv4, or both IPv6")),
    };
    match addresses.len() {
        0 => Err(format!("{text}: the range is empty; write the lower address first")),
        1..=SOURCES_MAX => Ok(Sources(addresses)),
        _ => Err(format!("{text}: more than {SOURCES_MAX} addresses; write a shorter range")),
    }
}
