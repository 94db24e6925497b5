//! How many handshakes of TLS were there, how long did they take, and why did one fail?

use highwater_core::histogram::Histogram;

/// The handshakes of one client, those of the measured span counted.
#[derive(Clone, Default)]
pub(crate) struct Handshakes {
    /// With a key exchange and the server's certificate.
    pub(crate) full: u64,
    /// With the session of an earlier connection.
    pub(crate) resumed: u64,
    /// Nanoseconds from the established TCP connection to the end of the handshake.
    pub(crate) took: Histogram,
    /// Version and cipher suite of the first.
    pub(crate) cipher: Option<String>,
    /// Why the first failed that did, and the remedy.
    pub(crate) problem: Option<String>,
}

impl Handshakes {
    pub(crate) fn count(&self) -> u64 {
        self.full + self.resumed
    }

    /// Adds those of another client.
    pub(crate) fn merge(&mut self, other: Handshakes) {
        self.full += other.full;
        self.resumed += other.resumed;
        self.took.merge(&other.took);
        self.cipher = self.cipher.take().or(other.cipher);
        self.problem = self.problem.take().or(other.problem);
    }
}
