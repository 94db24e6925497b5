//! The open streams of a connection, by their ids.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use bytes::Bytes;

use super::super::flow::Window;
use super::priority::Priority;
use super::upload::{Kind, Upload};
use crate::http::Limits;
use crate::time::Instant;

/// Places for streams that a connection without any keeps.
const SPARE_MAX: usize = 8;

/// How far an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    None,
    Owed,
    /// Content follows; this much is left, if that is known.
    Content(Option<u64>),
    /// All of it is given; some may wait for a window.
    Given,
}

/// Content of an answer that is not sent yet.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    pub(super) pieces: VecDeque<Bytes>,
    pub(super) len: usize,
    /// The field block that ends the answer.
    pub(super) trailers: Option<Vec<u8>>,
}

/// One stream.
#[derive(Debug)]
pub(super) struct StreamState {
    pub(super) id: u32,
    pub(super) reply: Reply,
    pub(super) is_head: bool,
    /// It was answered with a tunnel.
    pub(super) is_tunnel: bool,
    pub(super) is_parked: bool,
    /// The answer breaks off behind what is unsent.
    pub(super) is_cut: bool,
    pub(super) priority: Priority,
    /// What may be sent.
    pub(super) window: Window,
    /// The request's content, unless all of it is handed on.
    pub(super) upload: Option<Box<Upload>>,
    pub(super) unsent: Option<Box<Unsent>>,
    /// Since when content waits for a window that does not open; `MAX` if none does.
    pub(super) stalled: Instant,
    /// Bytes of content sent since.
    pub(super) moved: usize,
}

impl StreamState {
    pub(super) fn new(id: u32, window: u32, priority: Priority) -> Self {
        StreamState {
            id,
            reply: Reply::None,
            is_head: false,
            is_tunnel: false,
            is_parked: false,
            is_cut: false,
            priority,
            window: Window::new(window),
            upload: None,
            unsent: None,
            stalled: Instant::MAX,
            moved: 0,
        }
    }

    /// Whether all of the request has come.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.upload.as_ref().is_none_or(|upload| upload.has_ended)
    }

    /// Bytes of content that wait to be sent.
    #[inline]
    pub(super) fn unsent_len(&self) -> usize {
        self.unsent.as_ref().map_or(0, |unsent| unsent.len)
    }

    /// Its next deadline. With `is_shut`, handlers keep the window of the connection shut.
    #[inline]
    pub(super) fn deadline(&self, limits: &Limits, is_shut: bool) -> Instant {
        self.body_deadline(limits, is_shut).min(self.stall_deadline(limits))
    }

    /// Whether it is a tunnel that its handler may read.
    #[inline]
    pub(super) fn is_read(&self) -> bool {
        self.upload.as_ref().is_some_and(|upload| upload.is_read())
    }

    /// All of the content has come, and what is left of it is not wanted. In a tunnel whose other side is open, that it has
    /// ended is not forgotten.
    pub(super) fn forget_content(&mut self) {
        if !(self.is_tunnel && matches!(self.reply, Reply::Content(_))) {
            self.upload = None;
        }
    }

    #[inline]
    pub(super) fn body_deadline(&self, limits: &Limits, is_shut: bool) -> Instant {
        match &self.upload {
            // What waits for the peer's window has a deadline of its own.
            Some(_) if self.is_tunnel && self.unsent.is_some() => Instant::MAX,
            Some(upload) if self.is_tunnel && !matches!(upload.kind, Kind::Closing) => {
                upload.tunnel_deadline(self.reply == Reply::Given, limits, is_shut)
            }
            Some(upload) if !self.is_parked => upload.deadline(limits, is_shut),
            _ => Instant::MAX,
        }
    }

    #[inline]
    pub(super) fn stall_deadline(&self, limits: &Limits) -> Instant {
        match self.stalled {
            Instant::MAX => Instant::MAX,
            stalled => stalled + limits.write_timeout,
        }
    }
}

/// The open streams, in the order of their ids.
#[derive(Debug, Default)]
pub(super) struct Streams {
    list: Vec<StreamState>,
}

impl Streams {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Where the stream is.
    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<usize> {
        match self.list.last() {
            Some(last) if last.id == id => Some(self.list.len() - 1),
            _ => self.list.binary_search_by_key(&id, |stream| stream.id).ok(),
        }
    }

    #[inline]
    pub(super) fn get(&self, id: u32) -> Option<&StreamState> {
        self.find(id).map(|index| &self.list[index])
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut StreamState> {
        self.find(id).map(|index| &mut self.list[index])
    }

    /// Adds a stream; its id is higher than all before.
    #[inline]
    pub(super) fn open(&mut self, stream: StreamState) {
        debug_assert!(self.list.last().is_none_or(|last| last.id < stream.id));
        self.list.push(stream);
    }

    pub(super) fn remove(&mut self, index: usize) -> StreamState {
        let removed = self.list.remove(index);
        if self.list.is_empty() && self.list.capacity() > 2 * SPARE_MAX {
            self.list.shrink_to(SPARE_MAX);
        }
        removed
    }

    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &StreamState> {
        self.list.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut StreamState> {
        self.list.iter_mut()
    }

    /// Bytes of memory they have allocated on the heap.
    pub(super) fn allocated(&self) -> usize {
        let of_stream = |stream: &StreamState| {
            let unsent = stream.unsent.as_ref().map_or(0, |unsent| {
                size_of::<Unsent>() + unsent.len + unsent.pieces.capacity() * size_of::<Bytes>()
            });
            unsent + stream.upload.as_ref().map_or(0, |upload| upload.allocated())
        };
        let own = self.list.capacity() * size_of::<StreamState>();
        own + self.list.iter().map(of_stream).sum::<usize>()
    }
}

impl core::ops::Index<usize> for Streams {
    type Output = StreamState;

    #[inline]
    fn index(&self, index: usize) -> &StreamState {
        &self.list[index]
    }
}

impl core::ops::IndexMut<usize> for Streams {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut StreamState {
        &mut self.list[index]
    }
}
