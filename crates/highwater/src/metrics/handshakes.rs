//! How did the handshakes of sealed connections end?

use super::tally::Tally;

/// Why a handshake was not completed. None of them is a failure of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "sim"), expect(dead_code, reason = "no kind of seal is built"))]
pub(crate) enum HandshakeFailure {
    /// The peer spoke without a seal.
    Plain,
    /// The peer's bytes break the rules of the seal.
    Malformed,
    /// The peer gave up with an alert.
    Alert,
    /// The peer went away before the end.
    Closed,
    /// The peer took too long.
    Timeout,
    /// The server was too busy to begin it.
    Refused,
}

impl HandshakeFailure {
    /// How many there are.
    const COUNT: usize = HandshakeFailure::Refused as usize + 1;
}

/// One worker's handshakes.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// Those whose costly part was begun.
    begun: Tally,
    completed: Tally,
    failed: [Tally; HandshakeFailure::COUNT],
}

impl Handshakes {
    /// Counts one whose costly part begins.
    pub(crate) fn begin(&self) {
        self.begun.add(1);
    }

    /// Counts one that is complete.
    pub(crate) fn complete(&self) {
        self.completed.add(1);
    }

    /// Counts one that will not be completed.
    pub(crate) fn fail(&self, failure: HandshakeFailure) {
        self.failed[failure as usize].add(1);
    }

    /// How many were begun; were completed; were not, whether begun or not.
    #[cfg(feature = "sim")]
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let failed = self.failed.iter().map(Tally::get).sum();
        (self.begun.get(), self.completed.get(), failed)
    }
}
