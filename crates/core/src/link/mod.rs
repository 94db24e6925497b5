//! What does any protocol need of the byte transport beneath it?
//!
//! A [`Link`] holds the output of a connection until the kernel takes it, and the input that its protocol
//! could not use yet; it knows how much is in flight, whether the peer has finished sending, and how the
//! connection ends. It has three deadlines:
//!
//! ```text
//!  write        output in flight makes no progress                                           reset
//!  half-closed  one side has finished sending, and nothing that is waited for makes progress  reset
//!  linger       after our FIN, the peer goes on sending                                      close
//! ```
//!
//! A protocol encodes into `Link::output`; the worker takes it with [`Link::take_output`]. A connection
//! ends in one of two ways, and only its protocol begins that:
//!
//! ```text
//!  Open ─┬─▶ Close      after the output: close. Only if no unread input can arrive
//!    │   └─▶ Linger ──output taken──▶ Lingering    after the output: FIN, then input is read and dropped
//!    │          └─the peer has finished sending──▶ as Close
//!    └─▶ Finish ──output taken──▶ Finished ──the end──▶ Lingering    after the output: FIN, then input is read and used
//! ```
//!
//! Or it is aborted, when an answer cannot be completed: reset at once.
//!
//! It never looks inside the bytes, and knows no request. Invariants: an idle link owns no buffer; at most one
//! send is in flight; input that comes after the end is counted and dropped.

mod deadline;

use alloc::vec::Vec;
use bytes::Bytes;

use crate::driver::{Output, Then};
use crate::http::Limits;
use crate::time::Instant;

pub use self::deadline::Overdue;

/// Shared content up to this size is copied behind the output: below it, a second buffer for the kernel costs
/// more than the copy, and the output of several answers would not fit one send.
pub(crate) const COPY_MAX: usize = 8 * 1024;

/// Spare capacity that the carry may keep, beyond twice its content.
const CARRY_SLACK_MAX: usize = 1024;

/// The byte transport of one connection, as its protocol sees it.
#[derive(Debug)]
pub struct Link {
    output: Vec<u8>,
    /// Sent behind `output` without a copy.
    tail: Bytes,
    /// Follows the tail, with the next send.
    behind_tail: &'static [u8],
    /// Bytes of output that the kernel has not taken yet.
    in_flight: usize,
    /// Since when the output in flight has made no progress; `MAX` if none is in flight.
    writing_since: Instant,
    /// When the kernel last took all output.
    sent_at: Instant,
    /// When it last took output with the end of an answer; see [`Link::note_answer`].
    answered_at: Instant,
    /// Whether such output waits, and whether it is in flight.
    answer_waits: bool,
    answer_in_flight: bool,
    /// Input that could not be used yet.
    carry: Vec<u8>,
    /// The peer has finished sending, and all that it sent has been received.
    eof: bool,
    /// Since when a connection of which one side has finished sending has made no progress; `MAX` while both may
    /// send.
    gone_since: Instant,
    /// When the peer was first seen to have finished sending; `MAX` if it may send more.
    hung_up_at: Instant,
    ending: Ending,
    /// When the lingering close began.
    lingering_since: Instant,
    /// Bytes of input that were dropped since the end began.
    dropped: u64,
}

/// How far a connection has ended, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Ending {
    No,
    /// After the output: shut down sending. The protocol reads on.
    Finish,
    /// Shut down; the protocol reads on.
    Finished,
    /// After the output: close.
    Close,
    /// After the output: shut down sending, and read on for a while.
    Linger,
    /// Shut down; reading on.
    Lingering,
    /// Reset at the end of the turn; unsent output is lost.
    Abort,
}

impl Link {
    /// The link of a connection that was just accepted.
    pub const fn new() -> Self {
        Link {
            output: Vec::new(),
            tail: Bytes::new(),
            behind_tail: &[],
            in_flight: 0,
            writing_since: Instant::MAX,
            sent_at: Instant::ZERO,
            answered_at: Instant::ZERO,
            answer_waits: false,
            answer_in_flight: false,
            carry: Vec::new(),
            eof: false,
            gone_since: Instant::MAX,
            hung_up_at: Instant::MAX,
            ending: Ending::No,
            lingering_since: Instant::ZERO,
            dropped: 0,
        }
    }

    // ---- input

    /// Takes the unused input out, so that it can be borrowed while the connection changes. Append the
    /// received bytes, offer all to the protocol, then give back the rest with [`Link::stash`] or
    /// [`Link::stash_owned`].
    #[inline]
    pub fn take_carry(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.carry)
    }

    /// Keeps a copy of `rest` until more arrives.
    #[inline]
    pub fn stash(&mut self, mut rest: &[u8]) {
        debug_assert!(self.carry.is_empty(), "the carry was taken before");
        if !rest.is_empty() && !self.drops(&mut rest) {
            self.carry.extend_from_slice(rest);
        }
    }

    /// Keeps the last `rest_len` bytes of `carry` until more arrives.
    pub fn stash_owned(&mut self, mut carry: Vec<u8>, rest_len: usize) {
        debug_assert!(self.carry.is_empty(), "the carry was taken before");
        let rest_start = carry.len() - rest_len;
        if rest_len == 0 || self.drops(&mut &carry[rest_start..]) {
            return;
        }
        carry.drain(..rest_start);
        if carry.capacity() > 2 * rest_len + CARRY_SLACK_MAX {
            // A few bytes must not keep the memory that many pipelined requests once needed.
            carry.shrink_to(rest_len);
        }
        self.carry = carry;
    }

    /// Drops `rest` if the end has begun.
    fn drops(&mut self, rest: &mut &[u8]) -> bool {
        let drops = self.is_ending();
        if drops {
            self.drop_input(rest);
        }
        drops
    }

    /// Whether unused input waits, which the protocol may now be able to use; the end of input counts.
    #[inline]
    pub fn has_carry(&self) -> bool {
        !self.carry.is_empty() || self.eof
    }

    /// The unused input.
    pub fn carry(&self) -> &[u8] {
        &self.carry
    }

    /// The peer has finished sending. Ask the protocol afterwards: incomplete input stays incomplete.
    pub fn on_eof(&mut self) {
        self.eof = true;
    }

    /// Whether the peer has finished sending, and all that it sent has been received.
    #[inline]
    pub fn is_eof(&self) -> bool {
        self.eof
    }

    /// The peer has finished sending, although earlier bytes may be unread.
    ///
    /// It may wait for its answer (`nc`, scripts), or it may have disconnected (a closed tab): the server
    /// cannot tell before it sends. So it still answers, and [`Limits::half_closed_timeout`] bounds how long
    /// the answer may make no progress.
    pub fn on_hang_up(&mut self, now: Instant) {
        self.gone_since = self.gone_since.min(now);
        self.hung_up_at = self.hung_up_at.min(now);
    }

    /// Whether the peer has finished sending, as far as is known.
    pub fn has_hung_up(&self) -> bool {
        self.eof || self.hung_up_at != Instant::MAX
    }

    /// When the peer was first seen to have finished sending; `None` if it may send more.
    pub fn hung_up_at(&self) -> Option<Instant> {
        (self.hung_up_at != Instant::MAX).then_some(self.hung_up_at)
    }

    /// A request or its answer has made progress: a half-closed connection is not a dead one.
    #[inline]
    pub fn note_movement(&mut self, now: Instant) {
        if self.gone_since != Instant::MAX {
            self.gone_since = now;
        }
    }

    // ---- output

    /// Where the protocol encodes to. Shared content goes last; if more is encoded nevertheless, it is copied
    /// to stay in order.
    #[inline]
    pub fn output(&mut self) -> &mut Vec<u8> {
        if !self.tail.is_empty() || !self.behind_tail.is_empty() {
            self.copy_tail();
        }
        &mut self.output
    }

    #[cold]
    fn copy_tail(&mut self) {
        self.output.extend_from_slice(&core::mem::take(&mut self.tail));
        self.output.extend_from_slice(core::mem::take(&mut self.behind_tail));
    }

    /// Adds shared content, which is sent without a copy, with `behind` following it.
    pub fn push_shared(&mut self, content: Bytes, behind: &'static [u8]) {
        self.output();
        self.tail = content;
        self.behind_tail = behind;
    }

    /// Whether shared content waits to be taken.
    #[inline]
    pub fn has_tail(&self) -> bool {
        !self.tail.is_empty()
    }

    /// Whether so much output waits that no further answer should be made.
    #[inline]
    pub fn is_full(&self, limits: &Limits) -> bool {
        self.output.len() >= limits.output_max || self.has_tail()
    }

    /// How many bytes of content may be added now before encoded and unsent bytes exceed their bound.
    pub fn room(&self, limits: &Limits) -> usize {
        if self.has_tail() {
            return 0;
        }
        limits.output_max.saturating_sub(self.output.len() + self.in_flight)
    }

    /// Bytes of output that wait to be taken.
    #[inline]
    pub fn pending(&self) -> usize {
        self.output.len() + self.tail.len()
    }

    /// Whether output, or the end of the connection, waits to be sent.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.pending() != 0 || self.ending != Ending::No
    }

    /// Whether the kernel has not taken all output yet.
    #[inline]
    pub fn has_unsent(&self) -> bool {
        self.writing_since != Instant::MAX || self.pending() != 0
    }

    /// An answer ends with the output that is encoded so far. For protocols with other output than answers: an
    /// acknowledgement is not an answer, and must not keep an idle connection open.
    #[inline]
    pub fn note_answer(&mut self) {
        if self.pending() != 0 {
            self.answer_waits = true;
        } else if self.writing_since != Instant::MAX {
            self.answer_in_flight = true;
        }
    }

    /// Whether the kernel has not taken all of an answer that was noted.
    #[inline]
    pub fn has_unsent_answer(&self) -> bool {
        self.answer_waits || self.answer_in_flight
    }

    /// When the kernel last took the end of an answer that was noted; [`Instant::ZERO`] before the first.
    #[inline]
    pub fn answered_at(&self) -> Instant {
        self.answered_at
    }

    /// Whether there is no buffer to encode into; give it one with [`Link::lend_buffer`], or it will allocate
    /// its own.
    #[inline]
    pub fn needs_buffer(&self) -> bool {
        self.output.capacity() == 0
    }

    /// Lends an empty buffer; it leaves with [`Link::take_output`].
    #[inline]
    pub fn lend_buffer(&mut self, buffer: Vec<u8>) {
        debug_assert!(buffer.is_empty() && self.output.is_empty());
        self.output = buffer;
    }

    /// Gives back the lent buffer, if it is empty.
    pub fn reclaim_buffer(&mut self) -> Vec<u8> {
        if self.output.is_empty() { core::mem::take(&mut self.output) } else { Vec::new() }
    }

    /// Drops output that was not taken: its peer could not read it.
    pub fn drop_output(&mut self) {
        self.output.clear();
        self.tail = Bytes::new();
        self.behind_tail = &[];
        self.answer_waits = false;
    }

    /// Takes the output, with the step that follows once it is sent. Call it when no send is in flight;
    /// `None` if there is nothing to do.
    #[inline]
    pub fn take_output(&mut self, now: Instant) -> Option<(Output, Then)> {
        let then = match self.ending {
            Ending::Close => Then::Close,
            // The peer has finished meanwhile: no unread input can arrive any more.
            Ending::Linger if self.eof => Then::Close,
            Ending::Linger => {
                self.ending = Ending::Lingering;
                self.lingering_since = now;
                Then::Shutdown
            }
            Ending::Finish => {
                self.ending = Ending::Finished;
                self.lingering_since = now; // The time for lingering, too, is counted from the FIN.
                self.gone_since = self.gone_since.min(now);
                Then::Shutdown
            }
            Ending::Abort => return None,
            _ if self.pending() == 0 => return None,
            _ => Then::Keep,
        };
        self.writing_since = now;
        let bytes = core::mem::take(&mut self.output);
        let tail = core::mem::take(&mut self.tail);
        self.in_flight = bytes.len() + tail.len();
        self.answer_in_flight = core::mem::take(&mut self.answer_waits);
        if !self.behind_tail.is_empty() {
            self.copy_tail(); // Goes with the next send.
            self.answer_waits = self.answer_in_flight;
        }
        Some((Output { bytes, tail }, then))
    }

    /// Bytes of the channel itself, which no protocol has encoded, are being sent.
    pub fn on_send(&mut self, now: Instant) {
        self.writing_since = now;
    }

    /// The kernel took part of the output in flight.
    pub fn on_progress(&mut self, now: Instant) {
        self.writing_since = now;
        self.note_movement(now);
    }

    /// The kernel took all of the output in flight. Idleness and a lingering close count from now.
    #[inline]
    pub fn on_sent(&mut self, now: Instant) {
        self.writing_since = Instant::MAX;
        self.note_movement(now);
        self.in_flight = 0;
        self.sent_at = now;
        if core::mem::take(&mut self.answer_in_flight) {
            self.answered_at = now;
        }
    }

    /// When the kernel last took all output; [`Instant::ZERO`] before the first.
    #[inline]
    pub fn sent_at(&self) -> Instant {
        self.sent_at
    }

    // ---- the end

    /// Nothing is sent behind the output, and input is used as before: the protocol ends the connection later.
    pub fn finish(&mut self) {
        if self.ending == Ending::No {
            self.ending = Ending::Finish;
        }
    }

    /// The connection ends after the output: at once if `is_clean`, as no unread input can arrive, else with a
    /// lingering close. Input that still comes is dropped.
    pub fn end(&mut self, is_clean: bool) {
        if self.is_aborted() || self.is_lingering() {
            return; // An answer may come after its channel has failed.
        }
        self.ending = match self.ending {
            Ending::Finished => Ending::Lingering,
            // Once the peer has finished sending, no unread input can arrive: no need to linger.
            _ if is_clean || self.eof => Ending::Close,
            _ => Ending::Linger,
        };
        let carry = core::mem::take(&mut self.carry);
        self.drop_input(&mut carry.as_slice());
        self.dropped = 0;
    }

    /// The connection is reset, so that its peer does not take a part of an answer for the whole. Unsent output is lost.
    pub fn abort(&mut self) {
        self.ending = Ending::Abort;
    }

    /// Whether the connection is to be reset.
    #[inline]
    pub fn is_aborted(&self) -> bool {
        self.ending == Ending::Abort
    }

    /// Drops input that comes after the last answer was decided. Because of it, closing at once would reset
    /// the connection and destroy that answer.
    pub fn drop_input(&mut self, input: &mut &[u8]) {
        self.dropped += input.len() as u64;
        if !input.is_empty() && self.ending == Ending::Close {
            self.ending = Ending::Linger;
        }
        *input = &[];
    }

    /// Whether the end has begun.
    #[inline]
    pub fn is_ending(&self) -> bool {
        self.ending >= Ending::Close
    }

    /// Whether a lingering close has begun: the last answer is with the kernel, and input is dropped.
    #[inline]
    pub fn is_lingering(&self) -> bool {
        self.ending == Ending::Lingering
    }

    /// Whether a lingering close has read as much as it may.
    pub fn has_lingered_enough(&self, limits: &Limits) -> bool {
        self.is_lingering() && self.dropped > limits.discard_max
    }

    /// Bytes of memory it has allocated on the heap.
    pub fn allocated(&self) -> usize {
        self.carry.capacity() + self.output.capacity()
    }
}

impl Default for Link {
    fn default() -> Self {
        Link::new()
    }
}
