//! The settings of the search service itself; those of the server around it are the framework's.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use highwater::server::args::{Idle, address};

use crate::poller::{Settings, parse_url};
use crate::provider::{Behaviour, Lie};
use crate::store::Choice;

/// Where the embedded store is by default.
const DATA: &str = "highwater-search-data";

/// Where it is with `--demo`: events are served for ever, so made-up ones must not get among real
/// ones by default.
const DATA_DEMO: &str = "highwater-search-demo";

/// Settings of the service.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Search")]
pub struct SearchArgs {
    /// Where the provider's feed is (http:// or https://)
    #[arg(long, env = "PROVIDER_URL", value_name = "URL", value_parser = url)]
    pub provider_url: Option<String>,

    /// Poll a feed of 10 000 made-up events on a loopback port instead of --provider-url
    #[arg(long)]
    pub demo: bool,

    /// Certificate authorities to trust for https:// instead of the public ones (PEM)
    #[arg(long, env = "HIGHWATER_PROVIDER_CA", value_name = "FILE")]
    pub provider_ca: Option<PathBuf>,

    /// How often to ask for the feed, from the start of one poll to the next (1s to 24h)
    #[arg(long, env = "HIGHWATER_POLL_INTERVAL", value_name = "DURATION", default_value = "5m", value_parser = interval)]
    pub poll_interval: Duration,

    /// The directory of the embedded store
    /// [default: highwater-search-data; highwater-search-demo with --demo]
    #[arg(long, env = "HIGHWATER_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,

    /// Where events are remembered: `embedded`, or `postgres://user:password@host:port/database`
    #[arg(
        long, env = "HIGHWATER_STORE", value_name = "STORE", default_value = "embedded", value_parser = store,
        hide_env_values = true
    )]
    pub store: Choice,
}

impl SearchArgs {
    /// The settings that have no effect beside the others.
    pub fn idle(&self) -> Vec<Idle> {
        if !self.demo {
            return Vec::new();
        }
        let feed = "--demo polls its own feed; leave one of them out";
        vec![Idle::new("provider-url", feed), Idle::new("provider-ca", feed)]
    }

    /// The directory of the embedded store.
    pub fn data(&self) -> &Path {
        let default = if self.demo { DATA_DEMO } else { DATA };
        self.data.as_deref().unwrap_or_else(|| Path::new(default))
    }

    /// How to poll the feed at `url`. Fails when the file of authorities cannot be read.
    pub fn poller(&self, url: &str) -> Result<Settings, String> {
        let read = |path: &PathBuf| {
            fs::read(path).map_err(|e| format!("cannot read --provider-ca {}: {e}", path.display()))
        };
        let authorities = self.provider_ca.as_ref().map(read).transpose()?;
        Ok(Settings { authorities, interval: self.poll_interval, ..Settings::new(url) })
    }
}

/// How many events are made up by default.
pub const EVENTS: u32 = 10_000;

/// Settings of the feed to test with.
#[derive(Clone, Debug, clap::Args)]
pub struct ProviderArgs {
    /// Where to serve the feed, at any path
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8091", value_parser = address)]
    pub listen: SocketAddr,

    /// How many events to make up
    #[arg(long, value_name = "N", default_value_t = EVENTS, value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub events: u32,

    /// What to make them up from, and the misbehaviours below
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Serve this feed instead of a made-up one
    #[arg(long, value_name = "FILE", conflicts_with = "events")]
    pub file: Option<PathBuf>,

    /// Hold every answer back this long
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    pub delay: Duration,

    /// The share of answers that fail (0 to 1)
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub fail_rate: f64,

    /// The share of answers that break off half-way (0 to 1)
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    pub truncate_rate: f64,

    /// Lie in every answer
    #[arg(long, value_name = "WHAT")]
    pub lie: Option<Lie>,

    /// Compress answers for clients that accept gzip
    #[arg(long)]
    pub gzip: bool,

    /// Send an ETag, and 304 to clients that have the current feed
    #[arg(long)]
    pub etag: bool,
}

impl ProviderArgs {
    /// The provider's configured behaviour.
    pub fn behaviour(&self) -> Behaviour {
        let ProviderArgs { delay, fail_rate, truncate_rate, lie, gzip, etag, .. } = *self;
        Behaviour { delay, fail_rate, truncate_rate, lie, gzip, etag }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<jiff::SignedDuration>().ok().and_then(|d| Duration::try_from(d).ok());
    parsed.ok_or_else(|| "write a number and a unit, for example 500ms, 30s or 5m".to_owned())
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    let range = Duration::from_secs(1)..=Duration::from_secs(24 * 60 * 60);
    let remedy = "out of range; use 1s to 24h, written like 30s or 5m";
    range.contains(&interval).then_some(interval).ok_or_else(|| remedy.to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "write a number from 0 to 1, for example 0.2".to_owned())
}

fn url(text: &str) -> Result<String, String> {
    parse_url(text).map(|url| url.to_string()).map_err(|e| e.to_string())
}

fn store(text: &str) -> Result<Choice, String> {
    text.parse().map_err(|e: crate::store::StoreError| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, Parser};

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        search: SearchArgs,
        #[command(flatten)]
        provider: ProviderArgs,
    }

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from([&["test"], args].concat())
    }

    /// Purpose: the declared settings are consistent, and their defaults are the documented ones.
    #[test]
    fn defaults() {
        Cli::command().debug_assert();
        let cli = parse(&[]).expect("every setting has a default");
        assert_eq!(cli.search.poll_interval, Duration::from_secs(300));
        assert_eq!(cli.search.store, Choice::Embedded);
        assert_eq!(cli.search.data(), Path::new("highwater-search-data"));
        let demo = parse(&["--demo"]).expect("a flag").search;
        assert_eq!(demo.data(), Path::new("highwater-search-demo"));
        assert_eq!(cli.provider.listen, SocketAddr::from(([127, 0, 0, 1], 8091)));
        assert_eq!(cli.provider.behaviour().lie, None);
    }

    /// Purpose: a wrong value exits 2 and names the setting, the value and what to write.
    #[test]
    fn wrong_values_teach() {
        let cases = [
            ("--provider-url", "feed.xml", "http://host"),
            ("--poll-interval", "5", "for example"),
            ("--poll-interval", "10ms", "use 1s to 24h"),
            ("--poll-interval", "2d", "for example"),
            ("--store", "sqlite", "postgres://user:password@host"),
            ("--delay", "-1s", "for example"),
            ("--fail-rate", "1.5", "from 0 to 1"),
            ("--truncate-rate", "NaN", "from 0 to 1"),
            ("--lie", "always", "html"),
            ("--events", "100001", "100000"),
        ];
        for (flag, value, remedy) in cases {
            let error = parse(&[&format!("{flag}={value}")]).expect_err(flag);
            let text = error.to_string();
            assert_eq!(error.exit_code(), 2);
            assert!(text.contains(flag) && text.contains(value) && text.contains(remedy), "{text}");
        }
    }
}
