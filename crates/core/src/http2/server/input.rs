//! Bytes in, one thing to do at a time out. (`frames`: what frames mean.)

use super::super::Frame;
use super::super::encode::PREFACE;
use super::super::error::{Error, ErrorCode, Scope};
use super::Connection;
use super::found::Found;
use super::head::Scratch;
use super::state::{Phase, State};
use super::streams::Reply;
use super::upload::Kind;
use crate::http::{Limits, Reject};
use crate::link::Link;
use crate::protocol::CloseReason;
use crate::time::Instant;

impl Connection {
    pub(super) fn find<'i>(
        &mut self,
        link: &mut Link,
        input: &mut &'i [u8],
        scratch: &mut Scratch,
        limits: &Limits,
        now: Instant,
    ) -> Found<'i> {
        let Connection { decoder, state } = self;
        loop {
            if link.is_ending() {
                link.drop_input(input);
                return Found::Wait;
            }
            if let Some(found) = state.find_held(link, scratch, now) {
                return found;
            }
            // Every frame may be answered.
            if link.is_full(limits) {
                return Found::Wait;
            }
            if let Phase::Preface(taken) = state.phase {
                if input.is_empty() {
                    return state.wait(link, now);
                }
                state.take_preface(link, (input, taken), limits, now);
                continue;
            }
            let before: &'i [u8] = input;
            let found = match decoder.next(input) {
                Ok(None) => return state.wait(link, now),
                Ok(Some(Frame::Data { stream, piece, flow, is_last })) => {
                    // Content is the last that is taken, so that it can be found in the input again.
                    let end = before.len() - input.len();
                    let piece = &before[end - piece.len()..end];
                    state.on_data(link, (stream, piece, flow, is_last), limits, now)
                }
                Ok(Some(frame)) => state.on_frame(link, frame, scratch, limits, now),
                Err(error) => Err(error),
            };
            let found = found.or_else(|error| match error.scope {
                Scope::Stream(id) => state.fail_stream(link, (id, error.code), limits, now),
                Scope::Connection => Err(error),
            });
            match found {
                Ok(Found::Wait) => {}
                Ok(found) => return found,
                Err(error) => state.fail(link, error),
            }
        }
    }
}

impl State {
    /// The beginning of the connection (RFC 9113 §3.4), of which `taken` bytes have come.
    fn take_preface(
        &mut self,
        link: &mut Link,
        (input, taken): (&mut &[u8], u8),
        limits: &Limits,
        now: Instant,
    ) {
        let rest = &PREFACE[usize::from(taken)..];
        let (bytes, behind) = input.split_at(rest.len().min(input.len()));
        if !rest.starts_with(bytes) {
            let reason = "the connection does not begin as HTTP/2 does";
            self.report.close_reason = Some(CloseReason::Foreign);
            return self.fail(link, Error::connection(ErrorCode::PROTOCOL_ERROR, reason));
        }
        *input = behind;
        match bytes.len() == rest.len() {
            true => self.greet(link, limits, now),
            false => self.phase = Phase::Preface(taken + bytes.len() as u8),
        }
    }

    /// Nothing can be done before more bytes come. If none will, content that is not whole stays so.
    fn wait<'i>(&mut self, link: &mut Link, now: Instant) -> Found<'i> {
        if !link.is_eof() {
            return Found::Wait;
        }
        for index in 0..self.streams.len() {
            let stream = &mut self.streams[index];
            let Some(upload) = stream.upload.as_mut().filter(|_| !stream.is_parked) else {
                continue;
            };
            match upload.kind {
                _ if upload.has_ended => {}
                Kind::Collecting(..) => {
                    upload.drop_rest();
                    stream.reply = Reply::Owed;
                    return Found::Reject(stream.id, Reject::Truncated);
                }
                Kind::Tunnel if upload.held() == 0 && stream.reply == Reply::Given => {
                    let id = stream.id;
                    self.remove(link, index, now); // Nothing is left to be done on it.
                    return Found::Reset(id);
                }
                Kind::Streaming | Kind::Tunnel if upload.held() == 0 => {
                    upload.drop_rest();
                    return Found::BodyFailed(stream.id, Reject::Truncated);
                }
                Kind::New | Kind::Asked | Kind::Closing | Kind::Dropped => {}
                Kind::Streaming | Kind::Tunnel | Kind::TunnelEnded => {}
            }
        }
        Found::Wait
    }

    /// Whether something held can be handed on.
    pub(super) fn holds_input(&self) -> bool {
        !self.ready.is_empty()
    }

    /// What was held, and can be handed on now.
    fn find_held<'i>(
        &mut self,
        link: &mut Link,
        scratch: &mut Scratch,
        now: Instant,
    ) -> Option<Found<'i>> {
        while let Some(&id) = self.ready.front() {
            let stream = self.streams.get_mut(id).filter(|stream| !stream.is_parked);
            if let Some(stream) = stream
                && let Some(upload) = &mut stream.upload
                && matches!(upload.kind, Kind::Streaming | Kind::Tunnel)
            {
                upload.free_held();
                let held = upload.held().min(upload.room);
                if held > 0 {
                    self.handed_on(link, id, held as u32);
                    return Some(Found::Held(id));
                }
                if upload.held() == 0 && upload.has_ended {
                    if let Some(trailers) = upload.trailers.take() {
                        scratch.trailers = trailers;
                        return Some(Found::Trailers(id));
                    }
                    self.ready.pop_front();
                    if stream.is_tunnel {
                        upload.kind = Kind::TunnelEnded;
                        upload.restart(now);
                        return Some(Found::RawEnd(id));
                    }
                    stream.upload = None;
                    return Some(Found::BodyEnd(id));
                }
            }
            self.ready.pop_front();
            if let Some(upload) = self.streams.get_mut(id).and_then(|it| it.upload.as_mut()) {
                upload.is_listed = false;
            }
        }
        None
    }
}
