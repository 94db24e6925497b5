//! At the end of a run: do the worker's counters match what has happened?

use super::super::client::Client;
use super::super::witness::{Excuse, Watch};
use super::World;

impl World {
    /// Every sealed connection that was accepted has had one end of its handshake, and it is counted.
    fn check_handshakes(&self) -> Result<(), String> {
        let network = self.runner.network();
        let links = self.runner.clients.iter().map(|client| network.link(client.link));
        let sealed = links.filter(|link| link.sealed.is_some() && link.was_accepted());
        let (mut accepted, mut established) = (0, 0);
        for link in sealed {
            accepted += 1;
            established += u64::from(link.is_established());
        }
        let (begun, completed, failed) = self.metrics.handshakes.counts();
        let counted = completed + failed;
        if completed != established || counted != accepted || begun < completed {
            return Err(format!(
                "of {accepted} handshakes {established} were completed, and {begun} are counted as begun, \
                 {completed} as completed and {failed} as failed"
            ));
        }
        Ok(())
    }

    /// The worker's counters match what has happened.
    pub(super) fn check_totals(&self) -> Result<(), String> {
        let (network, metrics) = (self.runner.network(), &self.metrics);
        let same = |what: &str, counted: u64, happened: u64| match counted == happened {
            true => Ok(()),
            false => Err(format!("{what}: {counted} were counted, {happened} happened")),
        };
        same("connections", metrics.connections.get(), network.accepted)?;
        same("open connections", metrics.connections_active.get(), 0)?;
        same("bytes read", metrics.bytes_read.get(), network.delivered)?;
        same("bytes written", metrics.bytes_written.get(), network.commanded)?;
        self.check_handshakes()?;
        same("durations", metrics.durations_counted(), metrics.requests())?;
        let begun = |watch: &Watch| watch.at_hand() + usize::from(watch.reader.is_inside());
        let answered: usize = self.watches.iter().map(begun).sum();
        // An answer that was ready when its connection broke is counted, but was never seen.
        let broke = |(client, watch): (&Client, &Watch)| {
            let link = network.link(client.link);
            link.has_left
                || link.was_reset
                || link.is_broken()
                || watch.excuse == Some(Excuse::HalfClosed)
        };
        let unseen = self.runner.clients.iter().zip(&self.watches).any(broke);
        let requests = metrics.requests();
        if requests != answered as u64 && !(unseen && requests > answered as u64) {
            return Err(format!("{requests} requests were counted, {answered} were answered"));
        }
        let begun = self.shared.detached_begun.load(std::sync::atomic::Ordering::Relaxed);
        let done = self.shared.detached_done.load(std::sync::atomic::Ordering::Relaxed);
        same("detached handlers that came to their end", done as u64, begun as u64)
    }
}
