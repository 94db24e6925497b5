//! The parameters of SETTINGS (RFC 9113 §6.5.2, RFC 8441 §3, RFC 9218 §2.1).

use super::error::{Error, ErrorCode};

/// The largest window (RFC 9113 §6.9.1).
pub const WINDOW_MAX: u32 = (1 << 31) - 1;
/// The initial windows of a connection and its streams.
pub const WINDOW_DEFAULT: u32 = 65_535;
/// The smallest limit for the size of a frame, and the initial one.
pub const FRAME_SIZE_DEFAULT: u32 = 1 << 14;
/// The largest limit for the size of a frame.
pub const FRAME_SIZE_MAX: u32 = (1 << 24) - 1;

/// One parameter, as a peer announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Bytes of the table with which field blocks for the sender are compressed.
    HeaderTableSize(u32),
    /// Whether the sender accepts PUSH_PROMISE.
    EnablePush(bool),
    /// How many streams the receiver may have open at a time.
    MaxConcurrentStreams(u32),
    /// The receiver's window for each new stream; a change also applies to the open ones.
    InitialWindowSize(u32),
    /// The largest payload of a frame to the sender.
    MaxFrameSize(u32),
    /// The largest size of fields that the sender accepts; only advice.
    MaxHeaderListSize(u32),
    /// Whether the sender accepts extended CONNECT, for WebSocket over HTTP/2.
    EnableConnectProtocol(bool),
    /// Any other: identifier and value. It is to be ignored.
    Unknown(u16, u32),
}

impl Setting {
    /// # Errors
    /// The value is not allowed; the errors are those of RFC 9113 §6.5.2.
    pub(super) fn decode(id: u16, value: u32) -> Result<Setting, Error> {
        let switch = |reason| match value {
            0 | 1 => Ok(value == 1),
            _ => Err(Error::connection(ErrorCode::PROTOCOL_ERROR, reason)),
        };
        Ok(match id {
            0x1 => Setting::HeaderTableSize(value),
            0x2 => Setting::EnablePush(switch("SETTINGS_ENABLE_PUSH is neither 0 nor 1")?),
            0x3 => Setting::MaxConcurrentStreams(value),
            0x4 if value > WINDOW_MAX => {
                let reason = "SETTINGS_INITIAL_WINDOW_SIZE exceeds 2^31-1";
                return Err(Error::connection(ErrorCode::FLOW_CONTROL_ERROR, reason));
            }
            0x4 => Setting::InitialWindowSize(value),
            0x5 if !(FRAME_SIZE_DEFAULT..=FRAME_SIZE_MAX).contains(&value) => {
                let reason = "SETTINGS_MAX_FRAME_SIZE is not between 2^14 and 2^24-1";
                return Err(Error::connection(ErrorCode::PROTOCOL_ERROR, reason));
            }
            0x5 => Setting::MaxFrameSize(value),
            0x6 => Setting::MaxHeaderListSize(value),
            0x8 => Setting::EnableConnectProtocol(switch(
                "SETTINGS_ENABLE_CONNECT_PROTOCOL is neither 0 nor 1",
            )?),
            0x9 if value > 1 => {
                let reason = "SETTINGS_NO_RFC7540_PRIORITIES is neither 0 nor 1"; // RFC 9218 §2.1.
                return Err(Error::connection(ErrorCode::PROTOCOL_ERROR, reason));
            }
            _ => Setting::Unknown(id, value),
        })
    }

    /// Identifier and value.
    pub(super) fn encode(self) -> (u16, u32) {
        match self {
            Setting::HeaderTableSize(value) => (0x1, value),
            Setting::EnablePush(value) => (0x2, value.into()),
            Setting::MaxConcurrentStreams(value) => (0x3, value),
            Setting::InitialWindowSize(value) => (0x4, value),
            Setting::MaxFrameSize(value) => (0x5, value),
            Setting::MaxHeaderListSize(value) => (0x6, value),
            Setting::EnableConnectProtocol(value) => (0x8, value.into()),
            Setting::Unknown(id, value) => (id, value),
        }
    }
}

/// The parameters of a SETTINGS frame, all of which were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings<'a> {
    payload: &'a [u8],
}

impl<'a> Settings<'a> {
    /// # Errors
    /// One of them is not allowed.
    pub(super) fn new(payload: &'a [u8]) -> Result<Settings<'a>, Error> {
        let settings = Settings { payload };
        settings.raw().try_for_each(|(id, value)| Setting::decode(id, value).map(|_| ()))?;
        Ok(settings)
    }

    fn raw(self) -> impl Iterator<Item = (u16, u32)> + use<'a> {
        let (settings, _) = self.payload.as_chunks::<6>();
        settings.iter().map(|&[a, b, c, d, e, f]| {
            (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f]))
        })
    }

    /// In order: they are applied one after another, so the last of its kind counts.
    pub fn iter(self) -> impl Iterator<Item = Setting> + use<'a> {
        self.raw().filter_map(|(id, value)| Setting::decode(id, value).ok())
    }
}
