//! Which settings does a guard accept?
//!
//! All input of an operator is checked here, before anything is opened. Each refusal names the
//! setting, the value and the remedy, and exits 2 like all other commands.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use highwater::server::GateChoice;
use highwater::server::args::{address, duration, number, one_of};
use highwater_core::limit::{HillClimb, LIMIT_MAX};
use ureq::http::Uri;

use super::source::Source;
use crate::scrape::text::Selector;

/// Connections at once.
const LIMIT: RangeInclusive<u32> = 1..=LIMIT_MAX;
/// Shorter intervals make the requests a load of their own; longer ones make the limit lag behind
/// a surge.
const INTERVAL: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);
/// As often as most exporters update.
const INTERVAL_USUAL: Duration = Duration::from_secs(1);
const TARGET: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);

/// Keep any server's peak: refuse, in the kernel, the connections it could not serve in time.
///
/// Needs no change to the server and no restart. Run it where the server listens: on its machine,
/// or in its container's network namespace. The guard finds the limit from what the kernel counts,
/// or from the server's metrics if you give it their URL.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    highwater guard --port 80\n  \
    highwater guard --port 3000 --metrics http://127.0.0.1:9100/metrics\n  \
    highwater guard --port 80 --prometheus http://127.0.0.1:9090 \\\n    \
        --query 'sum(rate(nginx_http_requests_total[5s]))'\n  \
    highwater guard --port 80 --limit 200 --mechanism nft\n\n\
Exit status: 0 after a signal; 1, with the reason, if it cannot guard; 2 for a wrong argument.")]
pub(crate) struct Args {
    /// The port that the server listens on
    #[arg(long, value_name = "PORT", allow_negative_numbers = true, value_parser = number(1..=u16::MAX))]
    pub(crate) port: u16,

    /// Guard the port on this address only [default: on every one]
    #[arg(long, value_name = "IP", value_parser = one_address)]
    pub(crate) address: Option<IpAddr>,

    /// Metrics of the server or its exporter, in the Prometheus text format
    #[arg(long, value_name = "URL", value_parser = url, conflicts_with = "prometheus")]
    metrics: Option<Uri>,

    /// The counter of completed requests among them [default: the first known one]
    #[arg(long, value_name = "NAME", requires = "metrics")]
    metric: Option<Selector>,

    /// A Prometheus server to query instead
    #[arg(long, value_name = "URL", value_parser = url, requires = "query")]
    prometheus: Option<Uri>,

    /// The query: its result must be one number, completed requests per second
    #[arg(long, value_name = "PROMQL", requires = "prometheus")]
    query: Option<String>,

    /// How often to ask [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = duration(INTERVAL))]
    interval: Option<Duration>,

    /// What refuses connections
    #[arg(long, value_name = "auto|ebpf|nft|iptables", default_value = "auto", value_parser = mechanism())]
    pub(crate) mechanism: GateChoice,

    /// Maximum number of connections at once; auto lets --limiter find it
    #[arg(long, value_name = "auto|N", default_value = "auto", allow_negative_numbers = true, value_parser = limit_or_auto)]
    limit: Limited,

    /// How to find the limit [default: knee, or fixed with a --limit]
    #[arg(long, value_name = "fixed|hill-climb|knee|aimd", value_parser = limiter())]
    limiter: Option<LimiterChoice>,

    /// The limit until the first measurement [default: 256]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number(LIMIT))]
    limit_start: Option<u32>,

    /// The lowest limit that may be found [default: 8]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number(LIMIT))]
    limit_min: Option<u32>,

    /// The highest limit that may be found [default: 16384]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number(LIMIT))]
    limit_max: Option<u32>,

    /// How long connections may wait in the server before it counts as overloaded
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = duration(TARGET))]
    pub(crate) queue_target: Duration,

    /// The server's control group [default: the root, which sees every connection]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) cgroup: Option<PathBuf>,

    /// Where to serve the guard's own metrics
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
    pub(crate) listen: Option<SocketAddr>,

    /// Measure and report what the limit would be, but refuse nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Print a JSON object every second instead of a line for people
    #[arg(long)]
    pub(crate) json: bool,
}

/// `--limiter`: how to find the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimiterChoice {
    /// The operator gives the number.
    Fixed,
    /// Steps of a hundred along the request rate.
    HillClimb,
    /// Where more concurrency stops yielding more answers.
    Knee,
    /// One more while all is well, a tenth less when it is not.
    Aimd,
}

impl LimiterChoice {
    fn name(self) -> &'static str {
        match self {
            LimiterChoice::Fixed => "fixed",
            LimiterChoice::HillClimb => "hill-climb",
            LimiterChoice::Knee => "knee",
            LimiterChoice::Aimd => "aimd",
        }
    }
}

/// `--limit`: a number, or `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limited {
    Auto,
    To(u32),
}

/// Where the limit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limits {
    /// The operator knows it.
    Fixed(u32),
    /// It is found between two bounds.
    Found { by: LimiterChoice, start: u32, min: u32, max: u32 },
}

impl Limits {
    /// The limit before the first measurement.
    pub(crate) fn start(self) -> u32 {
        match self {
            Limits::Fixed(limit) | Limits::Found { start: limit, .. } => limit,
        }
    }
}

impl Args {
    /// The guarded address; the IPv6 wildcard means every address, including IPv4.
    pub(crate) fn guarded(&self) -> SocketAddr {
        (self.address.unwrap_or(Ipv6Addr::UNSPECIFIED.into()), self.port).into()
    }

    /// Where the limit comes from.
    ///
    /// # Errors
    /// The settings contradict each other.
    pub(crate) fn limits(&self) -> Result<Limits, clap::Error> {
        let (start, min, max) = (
            self.limit_start.unwrap_or(256),
            self.limit_min.unwrap_or(8),
            self.limit_max.unwrap_or(16_384),
        );
        self.refuse_idle()?;
        if let (Limited::Auto, Some(LimiterChoice::HillClimb)) = (self.limit, self.limiter) {
            let max = self.limit_max.unwrap_or(HillClimb::MAX);
            let (start, min) = (HillClimb::START.min(max), HillClimb::MIN.min(max));
            return Ok(Limits::Found { by: LimiterChoice::HillClimb, start, min, max });
        }
        match (self.limit, self.limiter) {
            (Limited::To(limit), None | Some(LimiterChoice::Fixed)) => Ok(Limits::Fixed(limit)),
            (Limited::To(_), Some(other)) => Err(contradiction(format!(
                "--limiter {}: finds the limit itself; leave --limit at auto, or use fixed",
                other.name()
            ))),
            (Limited::Auto, Some(LimiterChoice::Fixed)) => Err(contradiction(
                "--limiter fixed: does not find a limit; add --limit N".to_owned(),
            )),
            (Limited::Auto, by) if min <= start && start <= max => {
                Ok(Limits::Found { by: by.unwrap_or(LimiterChoice::Knee), start, min, max })
            }
            (Limited::Auto, _) => Err(contradiction(format!(
                "--limit-start {start}: not between --limit-min {min} and --limit-max {max}; use one \
                 that is"
            ))),
        }
    }

    /// Refuses settings that have no effect beside the others: an operator would believe that they are in force.
    fn refuse_idle(&self) -> Result<(), clap::Error> {
        let refuse = |name: &str, value: String, why: &str| {
            Err(contradiction(format!("--{name} {value}: has no effect: {why}; leave it out")))
        };
        if let Limited::To(limit) = self.limit {
            let why = format!("--limit {limit} is the limit, and none is looked for");
            let bounds =
                [("start", self.limit_start), ("min", self.limit_min), ("max", self.limit_max)];
            if let Some((name, Some(value))) = bounds.into_iter().find(|(_, value)| value.is_some())
            {
                return refuse(&format!("limit-{name}"), value.to_string(), &why);
            }
        }
        if self.limiter == Some(LimiterChoice::HillClimb) {
            let (start, min, max) = (HillClimb::START, HillClimb::MIN, HillClimb::MAX);
            let why =
                format!("--limiter hill-climb starts at {start}, and stays within {min} and {max}");
            let high = self.limit_max.filter(|limit| *limit > max);
            let bounds = [("start", self.limit_start), ("min", self.limit_min), ("max", high)];
            if let Some((name, Some(value))) = bounds.into_iter().find(|(_, value)| value.is_some())
            {
                return refuse(&format!("limit-{name}"), value.to_string(), &why);
            }
        }
        if let Some(interval) =
            self.interval.filter(|_| self.metrics.is_none() && self.prometheus.is_none())
        {
            let why = "there is no source without --metrics or --prometheus";
            return refuse("interval", format!("{interval:?}"), why);
        }
        if self.dry_run && self.mechanism != GateChoice::Auto {
            let name = MECHANISMS.iter().find(|(_, choice)| *choice == self.mechanism);
            let name = name.map_or("", |(name, _)| name);
            return refuse("mechanism", name.to_owned(), "--dry-run refuses nothing");
        }
        let is_bpf = matches!(self.mechanism, GateChoice::Auto | GateChoice::Ebpf) && !self.dry_run;
        if let Some(cgroup) = self.cgroup.as_ref().filter(|_| !is_bpf) {
            let why = "only the mechanism ebpf looks at one";
            return refuse("cgroup", cgroup.display().to_string(), why);
        }
        Ok(())
    }

    /// How often to ask.
    pub(crate) fn interval(&self) -> Duration {
        self.interval.unwrap_or(INTERVAL_USUAL)
    }

    /// The source of completed requests, if it is not the kernel.
    ///
    /// # Errors
    /// The URL and the query do not make a valid URL, or there is no way to measure.
    pub(crate) fn source(&self) -> Result<Option<Source>, clap::Error> {
        if let (Some(base), Some(query)) = (&self.prometheus, &self.query) {
            return Source::query(base, query).map(Some).map_err(contradiction);
        }
        match &self.metrics {
            Some(url) => Ok(Some(Source::Page { url: url.clone(), metric: self.metric.clone() })),
            None if self.dry_run => Err(contradiction(
                "--dry-run: without a gate, completed requests are not counted; add --metrics URL, or \
                 --prometheus URL and --query PROMQL"
                    .to_owned(),
            )),
            None => Ok(None),
        }
    }
}

fn contradiction(text: String) -> clap::Error {
    clap::Error::raw(ErrorKind::ArgumentConflict, text + "\n")
}

fn url(text: &str) -> Result<Uri, String> {
    let remedy = "use one like http://127.0.0.1:9100/metrics";
    let url: Uri = text.parse().map_err(|error| format!("no URL ({error}); {remedy}"))?;
    let is_http = matches!(url.scheme_str(), Some("http" | "https"));
    if is_http && url.host().is_some_and(|host| !host.is_empty()) {
        Ok(url)
    } else {
        Err(format!("no http or https URL; {remedy}"))
    }
}

fn one_address(text: &str) -> Result<IpAddr, String> {
    let ip: IpAddr = text.parse().map_err(|_| "no IP address; use one like 192.0.2.1")?;
    if ip.is_unspecified() {
        return Err("every address is guarded without it; leave it out".to_owned());
    }
    Ok(ip.to_canonical())
}

const MECHANISMS: &[(&str, GateChoice)] = &[
    ("auto", GateChoice::Auto),
    ("ebpf", GateChoice::Ebpf),
    ("nft", GateChoice::Nft),
    ("iptables", GateChoice::Iptables),
];

fn mechanism() -> impl Fn(&str) -> Result<GateChoice, String> + Clone + Send + Sync + 'static {
    one_of(MECHANISMS)
}

fn limiter() -> impl Fn(&str) -> Result<LimiterChoice, String> + Clone + Send + Sync + 'static {
    one_of(&[
        ("fixed", LimiterChoice::Fixed),
        ("hill-climb", LimiterChoice::HillClimb),
        ("knee", LimiterChoice::Knee),
        ("aimd", LimiterChoice::Aimd),
    ])
}

fn limit_or_auto(text: &str) -> Result<Limited, String> {
    if text == "auto" {
        return Ok(Limited::Auto);
    }
    number(LIMIT)(text).map(Limited::To).map_err(|error| format!("{error}, or auto"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(flags: &str) -> Result<Args, clap::Error> {
        let words = ["guard", "--port", "80"].into_iter().chain(flags.split_whitespace());
        Command::try_parse_from(words).map(|command| command.args)
    }

    fn limits(flags: &str) -> Result<Limits, clap::Error> {
        parse(flags)?.limits()
    }

    /// Purpose: without settings, the limit is found between sensible bounds; with a number, it is
    /// not searched for.
    #[test]
    fn limits_are_given_or_found() {
        let by = LimiterChoice::Knee;
        let found = Limits::Found { by, start: 256, min: 8, max: 16384 };
        assert_eq!(limits("").expect("defaults"), found);
        assert_eq!(limits("--limit 7").expect("a number"), Limits::Fixed(7));
        assert_eq!(limits("--limit 7 --limiter fixed").expect("both"), Limits::Fixed(7));
        let exact = "--limiter aimd --limit-start 5 --limit-min 5 --limit-max 5";
        let by = LimiterChoice::Aimd;
        assert_eq!(limits(exact).expect("one"), Limits::Found { by, start: 5, min: 5, max: 5 });
        let by = LimiterChoice::HillClimb;
        let found = Limits::Found { by, start: 800, min: 100, max: 2000 };
        assert_eq!(limits("--limiter hill-climb").expect("its own"), found);
        let found = Limits::Found { by, start: 90, min: 90, max: 90 };
        assert_eq!(limits("--limiter hill-climb --limit-max 90").expect("less"), found);
    }

    /// Purpose: an absurd or contradictory setting is refused with what to write instead.
    #[test]
    fn what_cannot_be_is_refused_with_the_remedy() {
        for (flags, remedy) in [
            ("--limit 0", "use 1 to 1048576, or auto"),
            ("--limit -5", "use 1 to 1048576, or auto"),
            ("--limit 1048577", "use 1 to 1048576, or auto"),
            ("--limit 1e3", "use 1 to 1048576, or auto"),
            ("--limit-min 0", "use 1 to 1048576"),
            ("--limit-max -1", "use 1 to 1048576"),
            ("--limit-min 300", "not between --limit-min 300 and --limit-max 16384"),
            ("--limit-max 255", "not between --limit-min 8 and --limit-max 255"),
            ("--limit 5 --limiter aimd", "leave --limit at auto, or use fixed"),
            ("--limiter fixed", "add --limit N"),
            ("--interval 99ms", "100ms"),
            ("--mechanism magic", "use auto, ebpf, nft or iptables"),
            ("--address localhost", "use one like 192.0.2.1"),
            ("--address 0.0.0.0", "leave it out"),
            ("--address ::", "leave it out"),
            ("--metrics ftp://a/", "http://127.0.0.1:9100/metrics"),
            ("--metrics nonsense", "http://127.0.0.1:9100/metrics"),
            ("--metrics http://a/ --metric a{", "name{label=\"value\"}"),
            ("--metric a", "--metrics"),
            ("--query a", "--prometheus"),
            ("--prometheus http://a/", "--query"),
            ("--prometheus http://a/ --query a --metrics http://b/", "cannot be used with"),
            ("--limit 5 --limit-start 9", "--limit-start 9: has no effect: --limit 5 is the limit"),
            ("--limit 5 --limit-min 9", "--limit-min 9: has no effect"),
            ("--limit 5 --limiter fixed --limit-max 256", "--limit-max 256: has no effect"),
            ("--limiter hill-climb --limit-start 5", "--limit-start 5: has no effect"),
            ("--limiter hill-climb --limit-min 5", "--limit-min 5: has no effect"),
            ("--limiter hill-climb --limit-max 2001", "stays within 100 and 2000"),
            ("--interval 2s", "--interval 2s: has no effect: there is no source without --metrics"),
            (
                "--metrics http://a/ --dry-run --mechanism nft",
                "--mechanism nft: has no effect: --dry-run",
            ),
            ("--mechanism nft --cgroup /c", "--cgroup /c: has no effect: only the mechanism ebpf"),
            ("--metrics http://a/ --dry-run --cgroup /c", "--cgroup /c: has no effect"),
        ] {
            let error = limits(flags).expect_err(flags);
            assert_eq!(error.exit_code(), 2);
            let text = error.to_string();
            assert!(text.contains(remedy), "{flags}: {text}");
        }
    }

    /// Purpose: the guard asks the source that was named.
    #[test]
    fn sources_are_what_was_named() {
        let source = |flags| parse(flags).expect("sane").source().expect("sane");
        assert_eq!(source(""), None);
        let page = |metric: Option<&str>| Source::Page {
            url: "http://a/m".parse().expect("a URL"),
            metric: metric.map(|metric| metric.parse().expect("a selector")),
        };
        assert_eq!(source("--metrics http://a/m"), Some(page(None)));
        assert_eq!(
            source("--metrics http://a/m --metric x{y=\"1\"}"),
            Some(page(Some("x{y=\"1\"}")))
        );
        let asked = source("--prometheus https://p/ --query up");
        let url = "https://p/api/v1/query?query=up".parse().expect("a URL");
        assert_eq!(asked, Some(Source::Query { url }));
    }
}
