//! The gate made of BPF programs, in front of the server's listeners.

use std::io;

use highwater_core::time::Instant;
use highwater_sys::bpf::{Mode, SocketGate, Sources, Words};

use super::{AdjustableGate, Counts, Entry, Mechanism, Refusal};

/// The word that the programs compare with the limit.
#[derive(Clone, Debug)]
pub(crate) struct Occupancy(Words);

impl Occupancy {
    /// Work began that the programs did not see (above 0), or ended (below). One atomic addition.
    #[inline]
    pub(crate) fn add(&self, delta: i64) {
        self.0.add_taken(delta);
    }

    /// How much work is in flight, from the moment that a connection is admitted.
    pub(crate) fn taken(&self) -> u32 {
        u32::try_from(self.0.taken().max(0)).unwrap_or(u32::MAX)
    }
}

#[derive(Debug)]
pub(super) struct Ebpf(SocketGate);

impl Ebpf {
    pub(super) fn open(entries: &[Entry<'_>], limit: u32) -> io::Result<Ebpf> {
        let places: Vec<_> = entries.iter().map(|entry| (entry.address, entry.listeners)).collect();
        SocketGate::attach(&places, limit).map(Ebpf)
    }
}

impl AdjustableGate for Ebpf {
    fn mechanism(&self) -> Mechanism {
        Mechanism::Ebpf
    }

    fn set_limit(&mut self, limit: u32) -> io::Result<()> {
        self.0.words().set_limit(limit);
        Ok(())
    }

    fn refuse_by(&mut self, how: Refusal) -> io::Result<()> {
        self.0.set_mode(match how {
            Refusal::Reset => Mode::Reset,
            Refusal::Drop => Mode::Drop,
        });
        Ok(())
    }

    fn counts(&mut self) -> io::Result<Counts> {
        let counts = self.0.words().counts();
        Ok(Counts { admitted: counts.admitted, reset: counts.reset, dropped: counts.dropped })
    }

    fn reconcile(&mut self, now: Instant, accepted: u64) {
        self.0.reconcile(now, accepted);
    }

    fn occupancy(&self) -> Option<Occupancy> {
        Some(Occupancy(self.0.words().clone()))
    }

    fn sources(&self) -> Option<Sources> {
        Some(self.0.sources().clone())
    }
}
