//! An application's handles of a WebSocket: the whole, one half, or one of many senders.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use highwater_core::websocket::{CloseCode, End};

#[cfg(feature = "websocket-deflate")]
use super::deflate::Grade;
use super::message::{Frame, Message};
use super::shared::{Refused, Shared};
use crate::app::Closed;

/// An open WebSocket. Handlers get one by [`websocket`](super::websocket()).
///
/// Pings are answered, silent clients are pinged, and the closing handshake is done, whatever the handler waits for. When
/// the connection ends, [`recv`](WebSocket::recv) returns `None`, and sending fails. Dropping it, with all handles made of
/// it, closes the connection with 1000.
///
/// It is a [`Stream`] of messages, too.
pub struct WebSocket {
    receiver: WebSocketReceiver,
    sender: WebSocketSender,
}

/// The half that receives. The connection stays open at least as long as there is one.
pub struct WebSocketReceiver(Arc<Shared>);

/// A half that sends; any number of them, on any thread.
pub struct WebSocketSender(Arc<Shared>);

/// Why [`WebSocketSender::try_send`] has not taken a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrySendError {
    /// More than [`send_buffer_max`](super::WebSocketUpgrade::send_buffer_max) waits for the client to read it.
    Full,
    /// The connection is closing, or gone.
    Closed,
}

/// The content of a client's close frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseFrame {
    /// The reason as a number: of RFC 6455 §7.4, or of the application from 3000 on.
    pub code: CloseCode,
    /// The reason in words; often empty.
    pub reason: String,
}

impl WebSocket {
    /// The handle that `shared` counts already.
    pub(super) fn of(shared: Arc<Shared>) -> WebSocket {
        let receiver = WebSocketReceiver(shared);
        WebSocket { sender: receiver.sender(), receiver }
    }

    /// The next message; `None` once the connection is closing or gone. It can be dropped at any time, as in
    /// `tokio::select!`, and loses nothing.
    pub async fn recv(&mut self) -> Option<Message> {
        self.receiver.recv().await
    }

    /// Sends a message, as soon as less than [`send_buffer_max`](super::WebSocketUpgrade::send_buffer_max) waits to be
    /// sent. Messages of one turn of the worker are sent together.
    ///
    /// # Errors
    /// The connection is closing, or gone.
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<(), Closed> {
        self.sender.send(message).await
    }

    /// Begins the closing handshake, and waits for its end: for at most
    /// [`close_timeout`](super::WebSocketUpgrade::close_timeout). Messages that were not received are lost.
    ///
    /// # Panics
    /// If the code must not be sent ([`CloseCode::may_be_sent`]).
    pub async fn close(&mut self, code: CloseCode, reason: &str) {
        self.sender.close(code, reason);
        poll_fn(|context| self.receiver.0.poll_end(context)).await;
    }

    /// Another handle that sends.
    pub fn sender(&self) -> WebSocketSender {
        self.sender.clone()
    }

    /// Both halves, for two tasks.
    pub fn split(self) -> (WebSocketSender, WebSocketReceiver) {
        (self.sender, self.receiver)
    }

    /// The protocol that was agreed on ([`protocols`](super::WebSocketUpgrade::protocols)).
    pub fn protocol(&self) -> Option<&str> {
        self.receiver.0.protocol.as_deref()
    }

    /// The client's close frame, if it has sent one with a code.
    pub fn close_frame(&self) -> Option<CloseFrame> {
        self.receiver.close_frame()
    }

    /// How the connection has ended, if it has.
    pub fn end(&self) -> Option<End> {
        self.receiver.end()
    }
}

impl WebSocketReceiver {
    /// As [`WebSocket::recv`].
    pub async fn recv(&mut self) -> Option<Message> {
        poll_fn(|context| self.0.poll_recv(context)).await
    }

    /// A handle that sends.
    pub fn sender(&self) -> WebSocketSender {
        self.0.lock().senders += 1;
        WebSocketSender(Arc::clone(&self.0))
    }

    /// As [`WebSocket::close_frame`].
    pub fn close_frame(&self) -> Option<CloseFrame> {
        let state = self.0.lock();
        let (code, reason) = state.session.close_frame()?;
        Some(CloseFrame { code, reason: reason.to_owned() })
    }

    /// As [`WebSocket::end`].
    pub fn end(&self) -> Option<End> {
        self.0.lock().session.end()
    }
}

impl WebSocketSender {
    /// As [`WebSocket::send`].
    ///
    /// # Errors
    /// The connection is closing, or gone.
    pub async fn send(&self, message: impl Into<Message>) -> Result<(), Closed> {
        let message = message.into();
        loop {
            match self.0.try_send(&message) {
                Ok(()) => return Ok(()),
                Err(Refused::Closed) => return Err(Closed),
                Err(Refused::Full) => poll_fn(|context| self.0.poll_ready(context)).await?,
            }
        }
    }

    /// Sends a message if there is room for it now.
    ///
    /// # Errors
    /// There is no room, or the connection is closing, or gone.
    pub fn try_send(&self, message: impl Into<Message>) -> Result<(), TrySendError> {
        self.0.try_send(&message.into()).map_err(TrySendError::from)
    }

    /// Sends a message that is encoded, if there is room for it now.
    ///
    /// # Errors
    /// As [`try_send`](WebSocketSender::try_send).
    pub fn try_send_frame(&self, frame: &Frame) -> Result<(), TrySendError> {
        self.0.try_send_frame(frame).map_err(TrySendError::from)
    }

    /// The compressed form of a message that this client is to be sent now, if it is not made yet. `known` was made, or is not
    /// wanted.
    #[cfg(feature = "websocket-deflate")]
    pub(super) fn missing(&self, frame: &Frame, known: &mut Option<Grade>) -> Option<Grade> {
        let deflater = self.0.deflater().filter(|deflater| *known != Some(deflater.grade()))?;
        let missing = frame.missing(deflater);
        if missing.is_none() {
            *known = Some(deflater.grade());
        }
        missing.filter(|_| self.0.takes())
    }

    /// Whether messages are compressed for this client.
    #[cfg(feature = "websocket-deflate")]
    pub(super) fn compresses(&self) -> bool {
        self.0.deflater().is_some()
    }

    /// Begins the closing handshake, and does not wait for its end.
    ///
    /// # Panics
    /// If the code must not be sent ([`CloseCode::may_be_sent`]).
    pub fn close(&self, code: CloseCode, reason: &str) {
        assert!(code.may_be_sent(), "{} must not be sent in a close frame", code.0);
        self.0.close(code, reason);
    }

    /// Whether the connection is closing, or gone.
    pub fn is_closed(&self) -> bool {
        !self.0.lock().session.is_open()
    }
}

impl From<Refused> for TrySendError {
    fn from(refused: Refused) -> TrySendError {
        match refused {
            Refused::Full => TrySendError::Full,
            Refused::Closed => TrySendError::Closed,
        }
    }
}

impl fmt::Display for TrySendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full => "the client reads too slowly",
            TrySendError::Closed => "the connection is closing, or gone",
        })
    }
}

impl std::error::Error for TrySendError {}

impl Stream for WebSocket {
    type Item = Message;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Message>> {
        self.receiver.0.poll_recv(context)
    }
}

impl Stream for WebSocketReceiver {
    type Item = Message;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Message>> {
        self.0.poll_recv(context)
    }
}

impl Clone for WebSocketSender {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        WebSocketSender(Arc::clone(&self.0))
    }
}

impl Drop for WebSocketSender {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.senders -= 1;
        if state.senders == 0 && state.receivers == 0 {
            state.wake_driver();
        }
    }
}

impl Drop for WebSocketReceiver {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.receivers -= 1;
        state.drop_inbox();
        state.wake_driver();
    }
}

impl fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocket").field("end", &self.end()).finish_non_exhaustive()
    }
}

impl fmt::Debug for WebSocketReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketReceiver").field("end", &self.end()).finish_non_exhaustive()
    }
}

impl fmt::Debug for WebSocketSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketSender").field("is_closed", &self.is_closed()).finish()
    }
}
