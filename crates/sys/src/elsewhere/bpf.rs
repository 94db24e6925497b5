//! The gate in the kernel, which only Linux has: these types have no values, and attaching is an error that says so.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use highwater_core::time::Instant;

use super::needs_linux;
use crate::Listener;

/// What a gate does with excess connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The client learns it at once.
    Reset,
    /// The client gets no packet.
    Drop,
}

/// What a gate has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Admitted connections.
    pub admitted: u64,
    /// Connections refused by a reset.
    pub reset: u64,
    /// Connections refused without a packet.
    pub dropped: u64,
}

/// A gate in front of listeners. There is none here.
#[derive(Debug)]
pub enum SocketGate {}

impl SocketGate {
    /// Attaches nothing.
    ///
    /// # Errors
    /// Always.
    pub fn attach(_: &[(SocketAddr, &[Listener])], _: u32) -> io::Result<SocketGate> {
        Err(needs_linux("a gate in the kernel"))
    }

    /// The words that it shares with the kernel.
    pub fn words(&self) -> &Words {
        match *self {}
    }

    /// Its counts by source.
    pub fn sources(&self) -> &Sources {
        match *self {}
    }

    /// Refuses differently from now on.
    pub fn set_mode(&mut self, _: Mode) {
        match *self {}
    }

    /// Corrects its count.
    pub fn reconcile(&mut self, _: Instant, _: u64) {
        match *self {}
    }
}

/// The words that a gate shares with the kernel. There are none here.
#[derive(Clone, Debug)]
pub enum Words {}

impl Words {
    /// Sets how much work may be in flight.
    pub fn set_limit(&self, _: u32) {
        match *self {}
    }

    /// Counts work that began or ended.
    pub fn add_taken(&self, _: i64) {
        match *self {}
    }

    /// How much work is in flight.
    pub fn taken(&self) -> i64 {
        match *self {}
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        match *self {}
    }
}

/// The counts of a gate by source. There are none here.
#[derive(Clone, Debug)]
pub enum Sources {}

impl Sources {
    /// Begins to count.
    pub fn count(&self) {
        match *self {}
    }

    /// Sets the time between two connections of a source.
    pub fn set_gap(&self, _: Option<Duration>) {
        match *self {}
    }

    /// Stops counting.
    pub fn stop(&self) {
        match *self {}
    }

    /// The attempts so far, by source.
    pub fn seen(&self) -> std::iter::Empty<u64> {
        match *self {}
    }

    /// How many connections were refused so far.
    pub fn refused(&self) -> u64 {
        match *self {}
    }
}
