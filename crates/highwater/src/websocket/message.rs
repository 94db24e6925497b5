//! Messages of a WebSocket.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use highwater_core::websocket::{Kind, encode};

/// A message: text or bytes. The server handles pings, pongs and close frames.
///
/// Cloning one is cheap: clones share their content. The content of a small message that was received shares its buffer
/// with other messages that came at the same time; copy it to keep it for long.
#[derive(Clone, PartialEq, Eq)]
pub enum Message {
    /// UTF-8.
    Text(Text),
    /// Any bytes.
    Binary(Bytes),
}

impl Message {
    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Message::Text(text) => Some(text),
            Message::Binary(_) => None,
        }
    }

    /// The content, whatever it is.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Message::Text(text) => &text.0,
            Message::Binary(bytes) => bytes,
        }
    }

    /// The content, whatever it is, without a copy.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Message::Text(text) => text.0,
            Message::Binary(bytes) => bytes,
        }
    }

    /// Bytes of its content.
    pub fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether it has no content.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    pub(crate) fn kind(&self) -> Kind {
        match self {
            Message::Text(_) => Kind::Text,
            Message::Binary(_) => Kind::Binary,
        }
    }

    /// `bytes` are UTF-8 if it is text: the decoder has checked them.
    pub(crate) fn received(kind: Kind, bytes: Bytes) -> Message {
        match kind {
            Kind::Text => Message::Text(Text(bytes)),
            Kind::Binary => Message::Binary(bytes),
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Message::Text(text) => write!(f, "Text({:?})", &**text),
            Message::Binary(bytes) => write!(f, "Binary({})", bytes.escape_ascii()),
        }
    }
}

/// UTF-8 that is shared by its clones: a [`str`] by `Deref`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Text(Bytes);

impl Text {
    /// Text that is part of the program.
    pub const fn from_static(text: &'static str) -> Text {
        Text(Bytes::from_static(text.as_bytes()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        // Checked again, since `unsafe` has no place here: that costs less than reading the text.
        std::str::from_utf8(&self.0).expect("every constructor takes UTF-8")
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text(text.into())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl<T: Into<Text>> From<T> for Message {
    fn from(text: T) -> Message {
        Message::Text(text.into())
    }
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Message {
        Message::Binary(bytes)
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Message {
        Message::Binary(bytes.into())
    }
}

/// An encoded message for many clients: all of them are sent the same bytes. For clients whose messages are compressed
/// (`deflate`, feature `websocket-deflate`) it is compressed once, too.
#[derive(Clone)]
pub struct Frame {
    bytes: Bytes,
    #[cfg(feature = "websocket-deflate")]
    variants: super::deflate::Variants,
}

impl Frame {
    /// Encodes a message.
    pub fn new(message: impl Into<Message>) -> Frame {
        let message = message.into();
        let mut bytes = Vec::with_capacity(encode::HEADER_MAX + message.len());
        encode::message(message.kind(), message.as_bytes(), None, &mut bytes);
        Frame {
            bytes: bytes.into(),
            #[cfg(feature = "websocket-deflate")]
            variants: super::deflate::Variants::new(message.kind(), message.len()),
        }
    }

    pub(super) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The same message, compressed for this client; `None` if it is to be sent as it is.
    #[cfg(feature = "websocket-deflate")]
    pub(super) fn compressed(&self, deflater: &super::deflate::Deflater) -> Option<Bytes> {
        self.variants.get(deflater, &self.bytes)
    }

    /// The compressed form for this client, if it is not made yet.
    #[cfg(feature = "websocket-deflate")]
    pub(super) fn missing(
        &self,
        deflater: &super::deflate::Deflater,
    ) -> Option<super::deflate::Grade> {
        self.variants.missing(deflater)
    }

    /// Makes a compressed form, so that sending does not have to.
    #[cfg(feature = "websocket-deflate")]
    pub(super) fn compress(&self, grade: super::deflate::Grade) {
        self.variants.make(grade, &self.bytes);
    }

    #[cfg(all(test, feature = "websocket-deflate"))]
    pub(super) fn variants(&self) -> &super::deflate::Variants {
        &self.variants
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({} bytes)", self.bytes.len())
    }
}
