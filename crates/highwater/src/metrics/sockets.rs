//! How many WebSockets are open, how many messages did they carry, and how did they end?

use super::tally::Tally;

/// How a WebSocket ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketEnd {
    /// With the closing handshake: code 1000, or none.
    Normal,
    /// With the closing handshake: code 1001. The server stopped, or a page was left.
    GoingAway,
    /// With the closing handshake, and a code of the application's: from 3000 on.
    Application,
    /// With the closing handshake, and any other code.
    Other,
    /// The client broke a rule of the protocol, or a limit.
    Refused,
    /// There was no memory left for its messages, at `--body-memory-max`.
    Memory,
    /// The connection ended without a close frame.
    Lost,
    /// The client did not answer a ping, or a close frame, in time.
    Unanswered,
}

impl SocketEnd {
    pub(crate) const ALL: [SocketEnd; 8] = [
        SocketEnd::Normal,
        SocketEnd::GoingAway,
        SocketEnd::Application,
        SocketEnd::Other,
        SocketEnd::Refused,
        SocketEnd::Memory,
        SocketEnd::Lost,
        SocketEnd::Unanswered,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            SocketEnd::Normal => "normal",
            SocketEnd::GoingAway => "going_away",
            SocketEnd::Application => "application",
            SocketEnd::Other => "other",
            SocketEnd::Refused => "refused",
            SocketEnd::Memory => "memory",
            SocketEnd::Lost => "lost",
            SocketEnd::Unanswered => "unanswered",
        }
    }
}

/// The WebSockets of one worker, which alone counts them.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    opened: Tally,
    pub(crate) received: Tally,
    pub(crate) sent: Tally,
    ended: [Tally; SocketEnd::ALL.len()],
    /// Handlers that go on without their connections.
    leaving: Tally,
}

impl Sockets {
    pub(crate) fn begin(&self) {
        self.opened.add(1);
    }

    pub(crate) fn end(&self, how: SocketEnd) {
        self.ended[how as usize].add(1);
    }

    /// Those that have ended in this way.
    pub(crate) fn ended(&self, how: SocketEnd) -> u64 {
        self.ended[how as usize].get()
    }

    /// A handler goes on without its connection.
    pub(crate) fn begin_leaving(&self) {
        self.leaving.add(1);
    }

    /// Such a handler has ended.
    pub(crate) fn end_leaving(&self) {
        self.leaving.set(self.leaving.get() - 1);
    }

    /// Whether a handler goes on without its connection.
    pub(crate) fn are_leaving(&self) -> bool {
        self.leaving.get() > 0
    }

    /// Those that are open.
    pub(crate) fn open(&self) -> u64 {
        let ended: u64 = self.ended.iter().map(Tally::get).sum();
        self.opened.get().saturating_sub(ended)
    }
}
