//! Why a connection is closed (RFC 6455 §7.4).

use core::fmt;

/// The number in a close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CloseCode(pub u16);

impl CloseCode {
    /// The purpose is fulfilled.
    pub const NORMAL: CloseCode = CloseCode(1000);
    /// The server stops, or the page is left.
    pub const GOING_AWAY: CloseCode = CloseCode(1001);
    /// The peer broke a rule of the protocol.
    pub const PROTOCOL: CloseCode = CloseCode(1002);
    /// The peer sent a kind of message that is not accepted.
    pub const UNSUPPORTED: CloseCode = CloseCode(1003);
    /// The peer sent text that is not UTF-8.
    pub const INVALID: CloseCode = CloseCode(1007);
    /// The peer broke a rule of the application.
    pub const POLICY: CloseCode = CloseCode(1008);
    /// A message is larger than its limit.
    pub const TOO_BIG: CloseCode = CloseCode(1009);
    /// The server failed.
    pub const INTERNAL: CloseCode = CloseCode(1011);
    /// The server is to be asked again later.
    pub const TRY_AGAIN_LATER: CloseCode = CloseCode(1013);

    /// Whether a close frame may have it: those of RFC 6455 and its registry that are not reserved for the end of a
    /// connection without a close frame, and all from 3000 to 4999.
    ///
    /// ```
    /// use highwater_core::websocket::CloseCode;
    ///
    /// assert!(CloseCode::NORMAL.may_be_sent() && CloseCode(4999).may_be_sent());
    /// assert!(!CloseCode(1006).may_be_sent() && !CloseCode(2999).may_be_sent());
    /// ```
    pub const fn may_be_sent(self) -> bool {
        matches!(self.0, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

/// The peer broke a rule: the connection is closed with this code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// What to close with.
    pub code: CloseCode,
    /// The error in plain words, for the close frame and a log.
    pub reason: &'static str,
}

impl Error {
    pub(super) const fn protocol(reason: &'static str) -> Error {
        Error { code: CloseCode::PROTOCOL, reason }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.code.0)
    }
}

impl core::error::Error for Error {}
