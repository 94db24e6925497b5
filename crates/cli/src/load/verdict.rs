//! Was the load the requested one, and did any request succeed? Pure.
//!
//! *Limits* say that the figures are about the client: a rate that was not sent, or a closed loop whose client had no time
//! left. *Notes* name other influences on the figures than the server. The exit status follows.

use std::time::Duration;

use super::args::Args;
use super::run::Outcome;
use super::units::{micros, time};

/// Exit status if nothing listens, nothing succeeded, or the client failed.
const FAILED: u8 = 1;
/// Exit status if the figures measure the client.
const LIMITED: u8 = 3;
/// Exit status if answers were not what was expected of them.
const UNEXPECTED: u8 = 4;

/// Client CPU from which on the figures measure the client.
const CPU_MAX: f64 = 0.9;
/// The share of the time in which the client waited for a CPU, from which on that is named.
const WAITED_MAX: f64 = 0.05;
/// Schedule lag (p99) from which on it is named.
const LAG_MAX: Duration = Duration::from_millis(5);
/// A stop of the client from which on it is named.
const STOOD_MAX: Duration = Duration::from_millis(100);
/// Sent over asked for, and time with a CPU, below which a run without an answer in time says nothing about the server.
const MEASURED_MIN: f64 = 0.5;
/// Sent over asked for, from which on the server was asked often enough whatever the client lacked.
const BEHIND_MAX: f64 = 0.9;
/// Sent over asked for, below which the load was not the one that was asked for.
const RATE_RATIO_MIN: f64 = 0.99;

impl Outcome {
    /// Whether no request got past the connection attempt.
    pub(crate) fn nothing_listens(&self) -> bool {
        let counts = &self.tally.counts;
        counts.sent > 0 && counts.refused + counts.no_port + counts.failed == counts.sent
    }

    /// Sent over asked for; 1 in a closed loop.
    pub(crate) fn rate_ratio(&self) -> f64 {
        match self.tally.asked {
            0 => 1.0,
            asked => self.tally.counts.sent as f64 / asked as f64,
        }
    }

    /// Whether the client ran so little that an answer in time would have been chance: that none came says nothing.
    pub(crate) fn is_unmeasured(&self) -> bool {
        let sent = self.rate_ratio();
        let hardly_ran = self.client_waited >= 1.0 - MEASURED_MIN;
        // For want of a connection it is the server that did not answer.
        let is_crowded = self.tally.crowded * 2 > self.tally.not_sent;
        let is_behind = sent < MEASURED_MIN || (sent < BEHIND_MAX && hardly_ran);
        self.tally.counts.good == 0 && is_behind && !is_crowded
    }

    /// Why the figures measure the client and not the server, with the remedy.
    pub(crate) fn limits(&self, args: &Args) -> Vec<String> {
        let mut found = Vec::new();
        let counts = &self.tally.counts;
        if args.rate.is_some() && self.rate_ratio() < RATE_RATIO_MIN {
            found.push(format!(
                "{:.1} % of the asked rate was sent: {}",
                self.rate_ratio() * 100.0,
                self.why_behind(args)
            ));
        }
        if args.rate.is_none() && self.client_cpu >= CPU_MAX {
            let percent = self.client_cpu * 100.0;
            found.push(format!(
                "the client used {percent:.0} % of a core: use more --threads, or another machine"
            ));
        }
        if counts.no_port > 0 {
            found.push(format!(
                "{} connections found no local port: add addresses with --source",
                counts.no_port
            ));
        }
        if counts.failed > 0 {
            let errno = self.tally.errno.unwrap_or(0);
            found.push(format!(
                "{} connections could not be made here: {}",
                counts.failed,
                std::io::Error::from_raw_os_error(errno)
            ));
        }
        found
    }

    /// Why requests were not sent.
    fn why_behind(&self, args: &Args) -> String {
        let tally = &self.tally;
        if tally.crowded * 2 > tally.not_sent {
            return format!(
                "none of {} connections was free in time for {} requests; raise --connections, or lower --rate",
                args.connections(),
                tally.crowded
            );
        }
        if self.client_cpu >= CPU_MAX {
            let percent = self.client_cpu * 100.0;
            return format!(
                "the client used {percent:.0} % of a core; use more --threads, or lower --rate"
            );
        }
        if self.client_waited >= WAITED_MAX {
            let percent = self.client_waited * 100.0;
            return format!(
                "the client was ready to run and had no CPU for {percent:.0} % of the time; use a machine \
                 on which less else runs"
            );
        }
        format!(
            "the client did not run for up to {}; use a machine on which less else runs",
            time(tally.stood)
        )
    }

    /// What is in the figures besides the server.
    pub(crate) fn notes(&self, args: &Args) -> Vec<String> {
        let mut found = Vec::new();
        if self.tally.stood >= STOOD_MAX {
            found.push(format!(
                "the client did not run for up to {} although it was to: answers that came meanwhile are dated by \
                 the kernel, to 20 ms",
                time(self.tally.stood)
            ));
        }
        let lag = self.tally.lag.quantile(0.99).unwrap_or(0);
        if args.rate.is_some() && u128::from(lag) > LAG_MAX.as_nanos() {
            found.push(format!(
                "requests were sent up to {} behind schedule (p99): that is in their latencies, and rates count them \
                 when they were due",
                micros(lag as f64 / 1e3)
            ));
        }
        found
    }

    /// Why the run is a failure, and its exit status; `None` if it is not.
    pub(crate) fn failure(
        &self,
        args: &Args,
        address: std::net::SocketAddr,
    ) -> Option<(u8, String)> {
        let counts = &self.tally.counts;
        if self.nothing_listens() {
            let what = format!(
                "no connection to {address} was made; start the server, or name the address and port on which it \
                 listens"
            );
            return Some((FAILED, what));
        }
        if let Some(problem) = self.tally.tls.as_ref().and_then(|tls| tls.problem.as_ref())
            && counts.handshakes == counts.sent
        {
            return Some((FAILED, problem.clone()));
        }
        if self.is_unmeasured() {
            return Some((
                LIMITED,
                format!("nothing was measured: {}", self.limits(args).join("; ")),
            ));
        }
        if counts.ok == 0 && self.tally.met == 0 {
            return Some((FAILED, format!("no request succeeded: {}", self.what_came())));
        }
        if counts.bad > 0 {
            let answers = counts.ok + counts.non_2xx;
            let what = format!(
                "{} of {answers} answers were not as expected: {}",
                counts.bad,
                self.tally.reasons.join("; ")
            );
            return Some((UNEXPECTED, what));
        }
        let limits = self.limits(args);
        let has_failed_here = counts.no_port + counts.failed > 0;
        if has_failed_here || (!limits.is_empty() && (args.rate.is_some() || args.strict)) {
            return Some((LIMITED, limits.join("; ")));
        }
        let notes = self.notes(args);
        (args.strict && !notes.is_empty()).then(|| (LIMITED, notes.join("; ")))
    }

    /// What came instead of answers with 2xx.
    fn what_came(&self) -> String {
        let counts = &self.tally.counts;
        let statuses = self.tally.statuses.iter().zip(100..).filter(|(count, _)| **count > 0);
        let statuses: Vec<String> =
            statuses.map(|(count, status)| format!("{status}: {count}")).collect();
        let all = [
            (counts.non_2xx, format!("answers other than 2xx ({})", statuses.join(", "))),
            (counts.timeouts, "timed out".to_owned()),
            (counts.refused, "refused".to_owned()),
            (counts.resets, "reset".to_owned()),
            (counts.truncated, "cut off".to_owned()),
            (counts.malformed, "malformed".to_owned()),
            (counts.handshakes, "with failed TLS".to_owned()),
            (counts.closed, "on connections that the server closed".to_owned()),
            (counts.unupgraded, "without an upgrade".to_owned()),
            (counts.stream_resets, "on streams that the server reset".to_owned()),
            (counts.streams_refused, "on streams that the server refused".to_owned()),
            (counts.no_port + counts.failed, "without a connection".to_owned()),
            (self.tally.not_sent, "not sent".to_owned()),
            (self.tally.open, "unfinished".to_owned()),
        ];
        let parts = all.into_iter().filter(|(count, _)| *count > 0);
        let parts: Vec<String> = parts.map(|(count, what)| format!("{count} {what}")).collect();
        match parts.is_empty() {
            true if self.interrupted => {
                "the run was interrupted before anything was measured".to_owned()
            }
            true => {
                "nothing was sent in the measured span; the server stalls, or --warmup is too short"
                    .to_owned()
            }
            false => {
                let http2 = self.tally.http2.as_ref().and_then(|frames| frames.problem.as_deref());
                let ws = self.tally.ws.as_ref().and_then(|frames| frames.problem.as_deref());
                let tls = self.tally.tls.as_ref().and_then(|tls| tls.problem.as_deref());
                let why = http2.or(ws).or(self.tally.malformation).or(tls);
                let why = why.map_or(String::new(), |why| format!(" ({why})"));
                format!("{}{why}", parts.join(", "))
            }
        }
    }
}
