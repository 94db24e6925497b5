//! What happened on the streams of HTTP/2 connections, and why were these ended?

use highwater_core::protocol::{CloseReason, Report};

use super::Server;
use super::exposition::{Kind, Page};
use super::tally::Tally;

/// The label `reason` of a connection that was ended with GOAWAY: by the server's will, then by the RFC's codes.
const REASONS: [&str; 10] = [
    "drain",
    "idle",
    "not_http2",
    "protocol_error",
    "flow_control_error",
    "stream_closed",
    "frame_size_error",
    "compression_error",
    "enhance_your_calm",
    "other",
];

/// The label `kind` of a stream that did not end with its answer.
const RESETS: [&str; 3] = ["client", "server", "refused"];

/// One worker's streams.
#[derive(Debug, Default)]
pub(crate) struct StreamCounts {
    opened: Tally,
    resets: [Tally; RESETS.len()],
    goaways: [Tally; REASONS.len()],
}

impl StreamCounts {
    /// Adds what has come together on one connection.
    #[cold]
    pub(crate) fn count(&self, report: &Report) {
        self.opened.add(report.streams.into());
        let resets = [report.resets_in, report.resets_out, report.refused];
        self.resets.iter().zip(resets).for_each(|(tally, count)| tally.add(count.into()));
        if let Some(close_reason) = report.close_reason {
            self.goaways[reason(close_reason)].add(1);
        }
    }
}

/// The place of its label.
fn reason(close_reason: CloseReason) -> usize {
    let label = match close_reason {
        CloseReason::Drained => "drain",
        CloseReason::Idle => "idle",
        CloseReason::Foreign => "not_http2",
        CloseReason::Error(name) => name,
    };
    let place = REASONS.iter().position(|reason| reason.eq_ignore_ascii_case(label));
    place.unwrap_or(REASONS.len() - 1)
}

/// The families about streams.
pub(super) fn write(page: &mut Page, server: &Server) {
    let help = "Streams opened on HTTP/2 connections.";
    let opened = server.sum(|worker| &worker.streams.opened);
    page.single("http_streams_total", help, Kind::Counter, opened);
    let help = "HTTP/2 streams reset: by the client, by the server for the client's mistakes, or refused as too many.";
    let mut family = page.family("http_stream_resets_total", help, Kind::Counter);
    for (place, kind) in RESETS.iter().enumerate() {
        let count = server.sum(|worker| &worker.streams.resets[place]);
        family.sample(&[("kind", kind)], count);
    }
    let help = "HTTP/2 connections that the server ended with GOAWAY, by reason.";
    let mut family = page.family("http_goaways_total", help, Kind::Counter);
    for (place, reason) in REASONS.iter().enumerate() {
        let count = server.sum(|worker| &worker.streams.goaways[place]);
        family.sample(&[("reason", reason)], count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: every reason has its own label, and a code without one is counted nevertheless.
    #[test]
    fn reasons() {
        let named = |close_reason| REASONS[reason(close_reason)];
        assert_eq!(named(CloseReason::Drained), "drain");
        assert_eq!(named(CloseReason::Error("ENHANCE_YOUR_CALM")), "enhance_your_calm");
        assert_eq!(named(CloseReason::Error("unknown")), "other");
    }
}
