//! The metrics of a server, from its metrics port.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::network::{Network, Side};

/// How long an overloaded server may take to answer; beyond it there is a gap in the series.
const WITHIN: Duration = Duration::from_secs(2);
/// How often metrics are read.
pub(super) const EVERY: Duration = Duration::from_millis(100);
/// Maximum bytes of an answer.
const SIZE_MAX: u64 = 4 * 1024 * 1024;

/// A server's metrics port, which is reachable only from the server's side.
#[derive(Clone, Debug)]
pub(super) struct Metrics {
    pub(super) network: Network,
    pub(super) port: u16,
}

/// Samples by their whole name, labels included.
pub(super) type Samples = BTreeMap<String, f64>;

impl Metrics {
    /// All samples, now.
    ///
    /// # Errors
    /// No whole answer with status 200 comes.
    pub(super) fn read(&self) -> Result<Samples, String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let mut stream = self.network.connect(Side::Server, address, WITHIN)?;
        let mut answer = String::new();
        let asked = stream
            .set_read_timeout(Some(WITHIN))
            .and_then(|()| {
                stream.write_all(
                    b"GET /metrics HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n",
                )
            })
            .and_then(|()| stream.take(SIZE_MAX).read_to_string(&mut answer));
        asked.map_err(|error| error.to_string())?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("no whole answer")?;
        let first = head.lines().next().unwrap_or_default();
        if first.split(' ').nth(1) != Some("200") {
            return Err(format!("/metrics was answered {first:?}"));
        }
        Ok(parse(body))
    }
}

/// The Prometheus text format, without its comments.
fn parse(text: &str) -> Samples {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    lines.filter_map(sample).collect()
}

/// Some metrics over time: (seconds since the beginning, value).
pub(super) type Series = BTreeMap<String, Vec<[f64; 2]>>;

/// Reads some metrics periodically.
pub(super) struct Watch {
    over: mpsc::Sender<()>,
    thread: JoinHandle<Series>,
}

impl Watch {
    pub(super) fn start(metrics: Metrics, names: Vec<String>, since: Instant) -> Watch {
        let (over, is_over) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut series: Series = names.iter().map(|name| (name.clone(), Vec::new())).collect();
            let mut due = Instant::now();
            loop {
                // A server that does not answer leaves a gap, which the record shows.
                if let Ok(samples) = metrics.read() {
                    let at = (since.elapsed().as_secs_f64() * 1e3).round() / 1e3;
                    for (name, points) in &mut series {
                        points.extend(samples.get(name).map(|value| [at, *value]));
                    }
                }
                due += EVERY;
                let left = due.saturating_duration_since(Instant::now());
                if is_over.recv_timeout(left) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return series;
                }
            }
        });
        Watch { over, thread }
    }

    /// The samples so far.
    pub(super) fn stop(self) -> Series {
        // It waits for this, or is between two waits.
        let _ = self.over.send(());
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: samples are distinguished by their labels, which may contain spaces.
    #[test]
    fn samples_with_labels() {
        let samples = parse("# HELP a b\na{l=\"x y\"} 2\nb 3e2\n\nc nothing\n");
        let expected = [("a{l=\"x y\"}".to_owned(), 2.0), ("b".to_owned(), 300.0)];
        assert_eq!(samples, BTreeMap::from(expected));
    }
}
