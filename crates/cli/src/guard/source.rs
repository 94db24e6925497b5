//! Asks the source for its metrics.
//!
//! A thread asks, one request at a time, and passes on the answer or the trouble with it. The guard never waits for a
//! source: its own turns continue while a source is slow.
//!
//! `scrape/` bounds an exchange: its time, its length, where it goes.

use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{io, thread};

use highwater_core::time::Instant;
use highwater_sys::clock;
use ureq::Agent;
use ureq::http::{StatusCode, Uri};

use super::reading::{self, Reading, SourceError};
use crate::scrape::text::Selector;
use crate::scrape::{self, Failure, Shown};

/// What the guard calls itself to its source.
const CALLED: &str = "highwater-guard";

/// A sample whose timestamp is older than this says nothing about the present.
const AGE_MAX: Duration = Duration::from_secs(30);

/// The URL to ask, and the metric to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// A page in the Prometheus text format, and the counter of completed requests on it.
    Page { url: Uri, metric: Option<Selector> },
    /// Prometheus's API, and a query whose result is one rate.
    Query { url: Uri },
}

impl Source {
    /// A query to the Prometheus server at `base`.
    pub(crate) fn query(base: &Uri, query: &str) -> Result<Source, String> {
        let base = base.to_string();
        let url = format!("{}/api/v1/query?query={}", base.trim_end_matches('/'), encoded(query));
        let url = url.parse().map_err(|error| format!("the query makes no URL: {error}"))?;
        Ok(Source::Query { url })
    }

    /// The port of a page of metrics.
    pub(crate) fn port(&self) -> Option<u16> {
        match self {
            Source::Page { url, .. } => url.port_u16().or(match url.scheme_str() {
                Some("https") => Some(443),
                _ => Some(80),
            }),
            Source::Query { .. } => None,
        }
    }

    fn url(&self) -> &Uri {
        let (Source::Page { url, .. } | Source::Query { url }) = self;
        url
    }
}

/// Encodes a query for a URL: everything but letters and digits as `%` and two digits.
fn encoded(query: &str) -> String {
    let mut text = String::with_capacity(query.len() * 3);
    for byte in query.bytes() {
        if byte.is_ascii_alphanumeric() {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// An answer of a source, and when it was complete.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) at: Instant,
    pub(crate) result: Result<Reading, SourceError>,
}

/// Asks `source` every `interval`, the first time at once, until the receiver is dropped.
///
/// # Errors
/// The system cannot start another thread.
pub(crate) fn watch(source: Source, interval: Duration) -> io::Result<Receiver<Answer>> {
    // One answer waits at most; the guard's turns are far shorter than any interval.
    let (sender, receiver) = mpsc::sync_channel(1);
    let agent = scrape::agent(CALLED);
    thread::Builder::new().name("guard-source".to_owned()).spawn(move || {
        loop {
            let began = clock::monotonic();
            let result = ask(&agent, &source);
            let at = clock::monotonic();
            if sender.send(Answer { at, result }).is_err() {
                return;
            }
            thread::sleep(interval.saturating_sub(at - began));
        }
    })?;
    Ok(receiver)
}

fn ask(agent: &Agent, source: &Source) -> Result<Reading, SourceError> {
    let (status, text) = scrape::fetch(agent, source.url()).map_err(|failure| match failure {
        Failure::Silent(why) => SourceError::Silent(why),
        Failure::Wrong(why) => SourceError::Wrong(why),
    })?;
    let refused = || Err(SourceError::Silent(format!("{} answered {status}", Shown(source.url()))));
    match source {
        // Prometheus answers 4xx and 5xx with what is wrong with the query.
        Source::Query { .. } if status == StatusCode::OK || text.starts_with('{') => {
            reading::query(&text)
        }
        Source::Page { metric, .. } if status == StatusCode::OK => {
            let read = reading::page(&text, metric.as_ref())?;
            check_age(&read, unix_ms())?;
            Ok(read)
        }
        Source::Query { .. } | Source::Page { .. } => refused(),
    }
}

/// Refuses samples whose page says that they are old.
fn check_age(reading: &Reading, now_ms: i64) -> Result<(), SourceError> {
    let Reading::Totals(totals) = reading else { return Ok(()) };
    let age_ms = totals.taken_ms.map_or(0, |taken_ms| now_ms.saturating_sub(taken_ms));
    if i128::from(age_ms) <= AGE_MAX.as_millis() as i128 {
        return Ok(());
    }
    Err(SourceError::Stale(format!("{} was taken {} s ago", totals.counter, age_ms / 1000)))
}

/// Milliseconds since 1970.
fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Purpose: a query reaches Prometheus as it was written, whatever characters it has.
    #[test]
    fn queries_are_encoded() {
        let base: Uri = "http://localhost:9090/prom/".parse().expect("a URL");
        let Ok(source) = Source::query(&base, "sum(rate(a{b=\"ü\"}[1m]))") else {
            panic!("a URL")
        };
        let expected = "http://localhost:9090/prom/api/v1/query?query=\
                        sum%28rate%28a%7Bb%3D%22%C3%BC%22%7D%5B1m%5D%29%29";
        assert_eq!(source.url().to_string(), expected);
    }

    /// Purpose: an old answer that an exporter repeats with its date is not used, one whose clock
    /// is ahead is.
    #[test]
    fn old_samples_are_refused() {
        let read = |taken: &str| reading::page(&format!("http_requests_total 5{taken}"), None);
        for (taken, is_old) in
            [("", false), (" 1000000", false), (" 2000000", false), (" 969999", true)]
        {
            let reading = read(taken).expect("a page");
            assert_eq!(check_age(&reading, 1_000_000).is_err(), is_old, "{taken}");
        }
    }

    /// Purpose: secrets in a URL do not appear in logs and metrics, whatever goes wrong.
    #[test]
    fn secrets_are_not_shown() {
        let secret: Uri = "http://anna:s3cret@[::1]:1/metrics?token=s3cret".parse().expect("a URL");
        assert_eq!(Shown(&secret).to_string(), "http://[::1]:1/metrics?…");
        let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
        let page = serve(answer("500 Oops", b""));
        for place in [closed.to_string(), page.authority().expect("a host").to_string()] {
            let url = format!("http://anna:s3cret@{place}/metrics?token=s3cret");
            let source = Source::Page { url: url.parse().expect("a URL"), metric: None };
            let error = ask(&scrape::agent(CALLED), &source).expect_err("it fails").to_string();
            assert!(!error.contains("s3cret") && error.contains(&place), "{error}");
        }
    }

    /// Answers one connection with `answer` and closes it; returns the URL.
    fn serve(answer: Vec<u8>) -> Uri {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            let (mut client, _) = listener.accept().expect("a client");
            let mut request = [0; 4096];
            let _ = client.read(&mut request);
            // A client that has read enough is gone.
            let _ = client.write_all(&answer);
        });
        format!("http://{address}/metrics").parse().expect("a URL")
    }

    fn answer(status: &str, body: &[u8]) -> Vec<u8> {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    }

    /// Purpose: every failure of a source is reported by its name, over a real connection, and a
    /// good answer is read.
    #[test]
    fn sources_are_asked_over_http() {
        // Debug code on a busy machine may need longer for the huge page than an operator would wait.
        let agent = scrape::agent_within(CALLED, Duration::from_secs(60));
        let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
        let huge = vec![b'#'; usize::try_from(scrape::BODY_BYTES_MAX).expect("small") + 1];
        for (url, name) in [
            (format!("http://{closed}/").parse().expect("a URL"), "silent"),
            (serve(Vec::new()), "silent"),
            (serve(answer("500 Oops", b"http_requests_total 5\n")), "silent"),
            (serve(answer("302 Found", b"")), "silent"),
            (serve(answer("200 OK", b"<html></html>")), "wrong"),
            (serve(answer("200 OK", b"http_requests_total \xff")), "wrong"),
            (serve(answer("200 OK", &huge)), "wrong"),
            (serve(answer("200 OK", b"")), "missing"),
            (serve(answer("200 OK", b"http_requests_total 5 0\n")), "stale"),
        ] {
            let error = ask(&agent, &Source::Page { url, metric: None }).expect_err(name);
            assert_eq!(error.name(), name, "{error}");
        }
        let url = serve(answer("200 OK", b"http_requests_total 5\n"));
        ask(&agent, &Source::Page { url, metric: None }).expect("a page");
        let body = br#"{"status":"error","error":"bad query"}"#;
        let url = serve(answer("400 Bad Request", body));
        let error = ask(&agent, &Source::Query { url }).expect_err("refused");
        assert_eq!(error.to_string(), "wrong: bad query");
    }
}
