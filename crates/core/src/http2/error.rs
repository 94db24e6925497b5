//! Errors of HTTP/2, and what they end (RFC 9113 §5.4, §7).

use core::fmt;

/// Why a stream or a connection ends. Codes that are not known are kept as they are.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// A graceful end.
    pub const NO_ERROR: ErrorCode = ErrorCode(0x0);
    /// The peer broke a rule for which there is no code.
    pub const PROTOCOL_ERROR: ErrorCode = ErrorCode(0x1);
    /// An error of our own.
    pub const INTERNAL_ERROR: ErrorCode = ErrorCode(0x2);
    /// The peer sent more than its window allows.
    pub const FLOW_CONTROL_ERROR: ErrorCode = ErrorCode(0x3);
    /// Settings were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: ErrorCode = ErrorCode(0x4);
    /// A frame for a stream that is half-closed.
    pub const STREAM_CLOSED: ErrorCode = ErrorCode(0x5);
    /// A frame with a wrong size.
    pub const FRAME_SIZE_ERROR: ErrorCode = ErrorCode(0x6);
    /// The stream was not processed at all: its request can be sent again.
    pub const REFUSED_STREAM: ErrorCode = ErrorCode(0x7);
    /// The stream is not needed any more.
    pub const CANCEL: ErrorCode = ErrorCode(0x8);
    /// A field block cannot be read.
    pub const COMPRESSION_ERROR: ErrorCode = ErrorCode(0x9);
    /// The connection of a CONNECT was reset.
    pub const CONNECT_ERROR: ErrorCode = ErrorCode(0xa);
    /// The peer causes too much work.
    pub const ENHANCE_YOUR_CALM: ErrorCode = ErrorCode(0xb);
    /// The transport is not secure enough.
    pub const INADEQUATE_SECURITY: ErrorCode = ErrorCode(0xc);
    /// The server wants HTTP/1.1.
    pub const HTTP_1_1_REQUIRED: ErrorCode = ErrorCode(0xd);

    /// Its name in the RFC; `None` for a code that it does not define.
    pub fn name(self) -> Option<&'static str> {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        NAMES.get(self.0 as usize).copied()
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error {:#x}", self.0),
        }
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What an error ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The connection: it is answered with GOAWAY, and nothing more is read.
    Connection,
    /// This stream: it is answered with RST_STREAM, and the connection goes on.
    Stream(u32),
}

/// The peer broke a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// What it ends.
    pub scope: Scope,
    /// The code to answer with.
    pub code: ErrorCode,
    /// The error in plain words, for a log.
    pub reason: &'static str,
}

impl Error {
    /// An error that ends the connection.
    pub const fn connection(code: ErrorCode, reason: &'static str) -> Error {
        Error { scope: Scope::Connection, code, reason }
    }

    /// An error that ends one stream.
    pub const fn stream(id: u32, code: ErrorCode, reason: &'static str) -> Error {
        Error { scope: Scope::Stream(id), code, reason }
    }
}

impl From<super::hpack::Error> for Error {
    fn from(error: super::hpack::Error) -> Error {
        let code = match error {
            super::hpack::Error::Names => ErrorCode::ENHANCE_YOUR_CALM,
            _ => ErrorCode::COMPRESSION_ERROR,
        };
        Error::connection(code, error.reason())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.reason, self.code)
    }
}

impl core::error::Error for Error {}
