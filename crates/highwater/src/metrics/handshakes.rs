//! How did the handshakes of sealed connections end?

use super::tally::Tally;

/// Why a handshake was not completed. None of them is a failure of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "tls"), allow(dead_code, reason = "no kind of seal is built"))]
pub(crate) enum HandshakeFailure {
    /// The peer spoke without a seal.
    Plain,
    /// The peer's bytes break the rules of the seal.
    Malformed,
    /// Both sides have no version, cipher or protocol in common.
    Incompatible,
    /// The peer showed no certificate that is trusted here.
    Certificate,
    /// The peer gave up with an alert.
    Alert,
    /// The peer went away before the end.
    Closed,
    /// The peer took too long.
    Timeout,
    /// The server was too busy to begin it.
    Refused,
    /// The server could not, such as without randomness.
    Internal,
}

impl HandshakeFailure {
    pub(super) const ALL: [HandshakeFailure; 9] = [
        HandshakeFailure::Plain,
        HandshakeFailure::Malformed,
        HandshakeFailure::Incompatible,
        HandshakeFailure::Certificate,
        HandshakeFailure::Alert,
        HandshakeFailure::Closed,
        HandshakeFailure::Timeout,
        HandshakeFailure::Refused,
        HandshakeFailure::Internal,
    ];

    /// The value of the label `reason`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            HandshakeFailure::Plain => "plain",
            HandshakeFailure::Malformed => "malformed",
            HandshakeFailure::Incompatible => "incompatible",
            HandshakeFailure::Certificate => "certificate",
            HandshakeFailure::Alert => "alert",
            HandshakeFailure::Closed => "closed",
            HandshakeFailure::Timeout => "timeout",
            HandshakeFailure::Refused => "refused",
            HandshakeFailure::Internal => "internal",
        }
    }
}

/// How a handshake was completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Completed {
    /// TLS 1.3, not 1.2.
    pub(crate) is_tls13: bool,
    /// An earlier session was resumed.
    pub(crate) is_resumed: bool,
}

impl Completed {
    pub(super) const ALL: [Completed; 4] = [
        Completed { is_tls13: false, is_resumed: false },
        Completed { is_tls13: false, is_resumed: true },
        Completed { is_tls13: true, is_resumed: false },
        Completed { is_tls13: true, is_resumed: true },
    ];

    const fn index(self) -> usize {
        self.is_tls13 as usize * 2 + self.is_resumed as usize
    }

    /// The values of the labels `version` and `kind`.
    pub(super) const fn names(self) -> (&'static str, &'static str) {
        let version = if self.is_tls13 { "1.3" } else { "1.2" };
        (version, if self.is_resumed { "resumed" } else { "full" })
    }
}

/// One worker's handshakes.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// Those whose costly part was begun.
    begun: Tally,
    completed: [Tally; Completed::ALL.len()],
    failed: [Tally; HandshakeFailure::ALL.len()],
}

impl Handshakes {
    /// Counts one whose costly part begins.
    pub(crate) fn begin(&self) {
        self.begun.add(1);
    }

    /// Counts one that is complete.
    pub(crate) fn complete(&self, how: Completed) {
        self.completed[how.index()].add(1);
    }

    /// Counts one that will not be completed.
    pub(crate) fn fail(&self, failure: HandshakeFailure) {
        self.failed[failure as usize].add(1);
    }

    /// How many were completed like this.
    pub(super) fn completed(&self, how: Completed) -> &Tally {
        &self.completed[how.index()]
    }

    /// How many were not completed, for this reason.
    pub(super) fn failed(&self, why: HandshakeFailure) -> &Tally {
        &self.failed[why as usize]
    }

    /// How many were begun; were completed; were not, whether begun or not.
    #[cfg(feature = "sim")]
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let sum = |tallies: &[Tally]| tallies.iter().map(Tally::get).sum();
        (self.begun.get(), sum(&self.completed), sum(&self.failed))
    }
}
