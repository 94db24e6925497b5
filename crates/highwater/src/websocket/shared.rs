//! The state of one WebSocket, which its driver and the application's handles share.
//!
//! ```text
//!  bytes in ─▶ session ─▶ inbox ─▶ recv         the driver reads, unless the inbox or the output is full
//!  bytes out ◀─────────── outgoing ◀─ send      a sender waits while it is full
//! ```
//!
//! A lock is held for the time of one step, never while application code runs, and is hardly ever contended: the driver and
//! most handles are on one thread. While the driver runs, sent messages are taken right after it, and wake no task.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use highwater_core::time::Instant;
use highwater_core::websocket::{CloseCode, Session, encode};
use tokio::time::Instant as TokioInstant;

#[cfg(feature = "websocket-deflate")]
use super::deflate::{Deflater, Inflater, compressed_header};
use super::inbox::Inbox;
use super::message::{Frame, Message};
use super::options::Options;
use crate::app::{BodySender, Closed};

/// Content up to this size is copied behind the header of its frame; what is larger is shared. As for bodies.
const COPY_MAX: usize = 8 * 1024;

pub(super) struct Shared {
    state: Mutex<State>,
    /// The protocol that was agreed on.
    pub(super) protocol: Option<String>,
    /// If compressed messages were agreed on.
    #[cfg(feature = "websocket-deflate")]
    deflater: Option<Deflater>,
}

/// What the handshake has agreed on.
#[derive(Default)]
pub(super) struct Agreed {
    pub(super) protocol: Option<String>,
    #[cfg(feature = "websocket-deflate")]
    pub(super) deflate: Option<(Deflater, Inflater)>,
}

/// Why a message was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Too much waits to be sent.
    Full,
    Closed,
}

pub(super) struct State {
    pub(super) session: Session,
    /// When the session's clock began.
    epoch: TokioInstant,
    /// Messages that wait.
    inbox: Inbox,
    /// The application has taken a message, and has not asked for the next one: it may still answer.
    is_answering: bool,
    /// The client has finished sending, or is gone.
    pub(super) is_eof: bool,
    /// `None` before the connection is there, and after the end.
    pub(super) outgoing: Option<BodySender>,
    /// Frames of the session's own, on their way to `outgoing`.
    control: Vec<u8>,
    /// Waits for a message, or for the end.
    reader: Option<Waker>,
    /// Wait for room.
    pub(super) writers: Vec<Waker>,
    pub(super) driver: Option<Waker>,
    /// The driver is at work.
    pub(super) is_driven: bool,
    /// Handles that receive; handles that only send.
    pub(super) receivers: u32,
    pub(super) senders: u32,
    /// Messages sent that are not counted yet.
    pub(super) sent: u64,
}

impl Shared {
    /// A session that begins now, with one handle that receives.
    pub(super) fn begin(options: &Options, agreed: Agreed) -> Arc<Shared> {
        let session = Session::new(options.limits, options.timing, Instant::ZERO);
        #[cfg(feature = "websocket-deflate")]
        let (session, deflater) = match agreed.deflate {
            Some((deflater, inflater)) => {
                (session.with_inflate(Box::new(inflater)), Some(deflater))
            }
            None => (session, None),
        };
        let state = State {
            session,
            epoch: TokioInstant::now(),
            inbox: Inbox::new(options.receive_buffer_max),
            is_answering: false,
            is_eof: false,
            outgoing: None,
            control: Vec::new(),
            reader: None,
            writers: Vec::new(),
            driver: None,
            is_driven: false,
            receivers: 1,
            senders: 0,
            sent: 0,
        };
        Arc::new(Shared {
            state: Mutex::new(state),
            protocol: agreed.protocol,
            #[cfg(feature = "websocket-deflate")]
            deflater,
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Only wakers run foreign code under the lock; the state is consistent whatever they do.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next message; `None` once the end has begun.
    pub(super) fn poll_recv(&self, context: &Context<'_>) -> Poll<Option<Message>> {
        let mut state = self.lock();
        let was_full = state.is_inbox_full();
        if let Some(message) = state.inbox.pop() {
            state.is_answering = true;
            if was_full && !state.is_inbox_full() {
                state.wake_driver();
            }
            return Poll::Ready(Some(message));
        }
        let was_answering = std::mem::take(&mut state.is_answering);
        if state.is_at_end() {
            if was_answering {
                state.wake_driver(); // It can send its close frame now.
            }
            return Poll::Ready(None);
        }
        remember(&mut state.reader, context);
        Poll::Pending
    }

    /// Waits for room.
    pub(super) fn poll_ready(&self, context: &Context<'_>) -> Poll<Result<(), Closed>> {
        let mut state = self.lock();
        match state.may_send() {
            Ok(()) => Poll::Ready(Ok(())),
            Err(Refused::Closed) => Poll::Ready(Err(Closed)),
            Err(Refused::Full) => {
                if !state.writers.iter().any(|waker| waker.will_wake(context.waker())) {
                    state.writers.push(context.waker().clone());
                    state.wake_driver(); // It finds out when there is room.
                }
                Poll::Pending
            }
        }
    }

    pub(super) fn try_send(&self, message: &Message) -> Result<(), Refused> {
        #[cfg(feature = "websocket-deflate")]
        if let Some(deflater) = &self.deflater
            && deflater.compresses(message.len())
        {
            return self.try_send_compressed(deflater, message);
        }
        self.lock().try_push_message(message)
    }

    /// The state is not locked while the message is compressed.
    #[cfg(feature = "websocket-deflate")]
    fn try_send_compressed(&self, deflater: &Deflater, message: &Message) -> Result<(), Refused> {
        self.lock().may_send()?;
        let (content, _in_order) = deflater.compress(message.as_bytes());
        let mut state = self.lock();
        state.may_still_send()?;
        match content.map(Bytes::from) {
            Some(content) => {
                let header = compressed_header(message.kind(), content.len());
                state.push(header, &content, || content.clone());
            }
            None => state.push_message(message),
        }
        Ok(())
    }

    /// Whether messages are compressed for this client.
    #[cfg(feature = "websocket-deflate")]
    pub(super) fn deflater(&self) -> Option<&Deflater> {
        self.deflater.as_ref()
    }

    /// Whether a message would be taken now.
    #[cfg(feature = "websocket-deflate")]
    pub(super) fn takes(&self) -> bool {
        self.lock().may_send().is_ok()
    }

    pub(super) fn try_send_frame(&self, frame: &Frame) -> Result<(), Refused> {
        #[cfg(feature = "websocket-deflate")]
        if let Some(deflater) = &self.deflater {
            self.lock().may_send()?;
            if let Some(frame) = frame.compressed(deflater) {
                let _in_order = deflater.forget();
                let mut state = self.lock();
                state.may_still_send()?;
                state.push_frame(&frame);
                return Ok(());
            }
        }
        let mut state = self.lock();
        state.may_send()?;
        state.push_frame(frame.bytes());
        Ok(())
    }

    /// Begins the closing handshake.
    pub(super) fn close(&self, code: CloseCode, reason: &str) {
        let mut state = self.lock();
        state.close(code, reason);
        state.wake_driver();
    }

    /// Waits for the end of the closing handshake, or of the connection.
    pub(super) fn poll_end(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.session.end().is_some() {
            return Poll::Ready(());
        }
        remember(&mut state.reader, context);
        Poll::Pending
    }
}

impl State {
    /// The session's time.
    pub(super) fn now(&self) -> Instant {
        Instant::ZERO + self.epoch.elapsed()
    }

    /// The same in Tokio's words.
    pub(super) fn at(&self, instant: Instant) -> TokioInstant {
        self.epoch + (instant - Instant::ZERO)
    }

    /// Whether no message follows those in the inbox.
    fn is_at_end(&self) -> bool {
        !self.session.is_open() || self.session.has_received_close() || self.is_eof
    }

    /// Answers the client's close frame, or its end without one, once all that it has said before is answered.
    pub(super) fn answer_end(&mut self) {
        if self.inbox.is_empty() && !self.is_answering {
            self.session.answer_close(&mut self.control);
            self.send_control();
            if self.is_eof {
                self.session.lost();
            }
        }
    }

    pub(super) fn is_inbox_full(&self) -> bool {
        self.inbox.is_full()
    }

    pub(super) fn is_output_full(&self) -> bool {
        self.outgoing.as_ref().is_some_and(BodySender::is_full)
    }

    fn may_send(&mut self) -> Result<(), Refused> {
        match &self.outgoing {
            Some(outgoing) if self.session.is_open() => match outgoing.is_full() {
                true => Err(Refused::Full),
                false => Ok(()),
            },
            _ => Err(Refused::Closed),
        }
    }

    /// As [`State::may_send`], for a message that was compressed meanwhile: it is not thrown away if others came before it.
    #[cfg(feature = "websocket-deflate")]
    fn may_still_send(&mut self) -> Result<(), Refused> {
        match self.may_send() {
            Err(Refused::Closed) => Err(Refused::Closed),
            Ok(()) | Err(Refused::Full) => Ok(()),
        }
    }

    /// As [`State::may_send`] and [`State::push_message`], with one look at the output.
    #[inline]
    fn try_push_message(&mut self, message: &Message) -> Result<(), Refused> {
        let content = message.as_bytes();
        let outgoing = match &self.outgoing {
            Some(outgoing) if content.len() <= COPY_MAX && self.session.is_open() => outgoing,
            _ => {
                self.may_send()?;
                self.push_message(message);
                return Ok(());
            }
        };
        let (header, len) = encode::header(message.kind(), content.len());
        if !outgoing.try_push_copies([&header[..len], content], self.is_driven) {
            return Err(Refused::Full);
        }
        self.session.sends();
        self.sent += 1;
        Ok(())
    }

    fn push_message(&mut self, message: &Message) {
        let header = encode::header(message.kind(), message.len());
        self.push(header, message.as_bytes(), || message.clone().into_bytes());
    }

    fn push(
        &mut self,
        (header, len): ([u8; encode::HEADER_MAX], usize),
        content: &[u8],
        shared: impl FnOnce() -> Bytes,
    ) {
        let Some(outgoing) = &self.outgoing else { return };
        if content.len() <= COPY_MAX {
            outgoing.push_copies([&header[..len], content], self.is_driven);
        } else {
            outgoing.push_copies([&header[..len], &[]], true);
            outgoing.push_shared(shared());
        }
        self.session.sends();
        self.sent += 1;
    }

    fn push_frame(&mut self, frame: &Bytes) {
        let Some(outgoing) = &self.outgoing else { return };
        if frame.len() <= COPY_MAX {
            outgoing.push_copies([frame, &[]], self.is_driven);
        } else {
            outgoing.push_shared(frame.clone());
        }
        self.session.sends();
        self.sent += 1;
    }

    pub(super) fn close(&mut self, code: CloseCode, reason: &str) {
        let now = self.now();
        self.session.close(code, reason, now, &mut self.control);
        self.send_control();
        self.wake_waiting(None);
    }

    /// Does what the time requires.
    pub(super) fn on_deadline(&mut self) {
        let now = self.now();
        self.session.on_deadline(now, &mut self.control);
        self.send_control();
    }

    /// Sends the control frames of the session.
    pub(super) fn send_control(&mut self) {
        if self.control.is_empty() {
            return;
        }
        let control = std::mem::take(&mut self.control);
        if let Some(outgoing) = &self.outgoing {
            outgoing.push_copies([&control, &[]], self.is_driven);
        }
    }

    /// Takes the messages in `input`, as far as the inbox has room. They are dropped if nobody receives. They also count the
    /// control frames around them.
    pub(super) fn take_in(&mut self, input: &mut BytesMut, now: Instant) -> u64 {
        let mut received = 0;
        let mut left = input.len();
        // Nobody else sends meanwhile, and what is sent here are control frames.
        let mut is_output_full = self.is_output_full();
        while !self.is_inbox_full() && !is_output_full {
            let Some(message) = self.session.next(input, now, &mut self.control) else { break };
            if !self.control.is_empty() {
                self.send_control();
                is_output_full = self.is_output_full();
            }
            received += 1;
            if self.receivers > 0 {
                let message = Message::received(message.kind, message.bytes);
                self.inbox.push(message, left - input.len(), left);
                left = input.len();
            }
        }
        if received > 0 {
            self.inbox.charge(left - input.len());
        }
        self.send_control();
        received
    }

    /// Bytes that messages hold which are not received yet, or have more to come.
    #[inline]
    pub(super) fn held(&self) -> usize {
        self.session.held() + self.inbox.size()
    }

    /// There is no memory for more messages: the connection ends with 1013. Those that wait can be received.
    pub(super) fn exhaust(&mut self) {
        self.session.exhaust(&mut self.control);
        self.send_control();
    }

    /// Nobody receives any more.
    pub(super) fn drop_inbox(&mut self) {
        self.inbox.clear();
        self.is_answering = false;
    }

    /// Wakes the tasks that wait for what has changed, except `own`, which looks anyway.
    pub(super) fn wake_waiting(&mut self, own: Option<&Waker>) {
        let has_changed = !self.inbox.is_empty() || self.is_at_end();
        if has_changed && let Some(reader) = self.reader.take() {
            wake(reader, own);
        }
        if !self.writers.is_empty() && self.may_send() != Err(Refused::Full) {
            std::mem::take(&mut self.writers).into_iter().for_each(|waker| wake(waker, own));
        }
    }

    pub(super) fn wake_driver(&self) {
        if let Some(driver) = self.driver.as_ref().filter(|_| !self.is_driven) {
            driver.wake_by_ref();
        }
    }
}

fn wake(waker: Waker, own: Option<&Waker>) {
    if !own.is_some_and(|own| own.will_wake(&waker)) {
        waker.wake();
    }
}

fn remember(slot: &mut Option<Waker>, context: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(context.waker()),
        None => *slot = Some(context.waker().clone()),
    }
}

#[cfg(test)]
mod tests {
    use highwater_core::websocket::Kind;

    use super::*;

    /// Purpose: the inbox is full when the buffers of its messages have so many bytes, however small these are among the control
    /// frames around them; and it counts nothing once they are taken. Once, 26 MB of buffers waited where 64 KiB were allowed.
    #[test]
    fn what_messages_keep_is_counted() {
        const KEY: Option<[u8; 4]> = Some([0; 4]);
        let options = Options::default();
        for is_first in [false, true] {
            let shared = Shared::begin(&options, Agreed::default());
            let mut state = shared.lock();
            let (mut taken, mut kept) = (0, 0);
            while !state.is_inbox_full() {
                let mut bytes = Vec::new();
                if is_first {
                    encode::message(Kind::Binary, b"x", KEY, &mut bytes);
                }
                for _ in 0..100 {
                    encode::pong(&[0; 125], KEY, &mut bytes);
                }
                if !is_first {
                    encode::message(Kind::Binary, b"x", KEY, &mut bytes);
                }
                kept += bytes.len();
                let mut input = BytesMut::from(&bytes[..]);
                taken += state.take_in(&mut input, Instant::ZERO);
                assert!(input.is_empty());
            }
            assert!(kept < options.receive_buffer_max + 20_000, "{kept} bytes of {taken} messages");
            drop(state);
            for _ in 0..taken {
                let taken = shared.poll_recv(&Context::from_waker(Waker::noop()));
                assert!(matches!(taken, Poll::Ready(Some(_))));
            }
            assert_eq!(shared.lock().inbox.size(), 0);
        }
    }
}
