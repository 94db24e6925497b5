//! The two queues shared with the kernel: set them up once, then push submissions and reap
//! completions.
//!
//! This module does not know connections. Entries that do not fit into the submission queue wait in
//! a list of the ring, so a command never fails and never enters the kernel.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use io_uring::types::{Fd, TimeoutFlags, Timespec};
use io_uring::{Builder, IoUring, cqueue, opcode, squeue};

use super::Refusal;
use super::slots::Token;

/// The one group of provided buffers that every receive takes from.
pub(super) const BUFFER_GROUP: u16 = 0;

/// The most bytes of one receive of a stream, so that a peer that does not wait for answers has little of
/// its input in memory.
const BUNDLE_BYTES_MAX: u32 = 64 * 1024;

const GETEVENTS: u32 = 1 << 0;

/// How often everything is cancelled at the end of a ring.
const END_ATTEMPTS_MAX: u32 = 1000;

pub(super) struct Ring {
    io: IoUring,
    /// Entries that did not fit into the submission queue, in order; and whether each is linked to the next.
    overflow: VecDeque<(squeue::Entry, bool)>,
    /// Whether a receive takes several provided buffers at once.
    bundles: bool,
}

impl Ring {
    /// Tries the flags that suit one thread per ring best, then those that older kernels support.
    pub(super) fn new(submissions: u32, completions: u32) -> Result<Ring, Refusal> {
        let mut result = build(submissions, completions, |builder| {
            // The kernel processes completions when we ask for them, and does not interrupt us
            // (6.1).
            builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        });
        if matches!(&result, Err(error) if error.raw_os_error() == Some(libc::EINVAL)) {
            // At the next entry into the kernel, without an interrupt (5.19).
            result = build(submissions, completions, |builder| {
                builder.setup_coop_taskrun().setup_taskrun_flag();
            });
        }
        let io = result.map_err(|cause| Refusal { step: "io_uring_setup", cause })?;
        // Without it, completions could be lost (5.5).
        if io.params().is_feature_nodrop() {
            return Ok(Ring { io, overflow: VecDeque::new(), bundles: false });
        }
        let cause = io::Error::from_raw_os_error(libc::EINVAL);
        Err(Refusal { step: "io_uring_setup features", cause })
    }

    /// Whether the receives of streams take several buffers at once from now on. Only right where the kernel keeps to
    /// their bound.
    pub(super) fn use_bundles(&mut self, bundles: bool) {
        self.bundles = bundles;
    }

    /// Whether a receive can take several provided buffers at once (6.10).
    pub(super) fn has_bundles(&self) -> bool {
        self.io.params().is_feature_recvsend_bundle()
    }

    pub(super) fn submitter(&self) -> io_uring::Submitter<'_> {
        self.io.submitter()
    }

    /// How many completions are ready to be taken.
    #[inline]
    pub(super) fn ready(&mut self) -> usize {
        self.io.completion().len()
    }

    /// Takes the oldest completion.
    #[inline]
    pub(super) fn next(&mut self) -> Option<cqueue::Entry> {
        self.io.completion().next()
    }

    /// Whether something waits to be submitted.
    pub(super) fn has_submissions(&mut self) -> bool {
        !self.overflow.is_empty() || !self.io.submission().is_empty()
    }

    /// Whether the kernel has more to report at the next entry: it may end only some of the
    /// operations that are over at each (20 on Linux 6.18).
    pub(super) fn has_work(&mut self) -> bool {
        let queue = self.io.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// Whether the kernel signals the registered eventfd when there is something to reap.
    pub(super) fn set_notifications(&mut self, on: bool) {
        let queue = self.io.completion();
        if on { queue.enable_eventfd() } else { queue.disable_eventfd() }
    }

    /// Submits everything; with `wait`, then waits for a completion. Does not wait if there is one
    /// already, and does not enter the kernel if there is nothing to do.
    #[inline]
    pub(super) fn enter(&mut self, wait: bool) -> io::Result<()> {
        if !self.overflow.is_empty() {
            self.submit_overflow()?;
        }
        let wait = wait && self.io.completion().is_empty();
        let queue = self.io.submission();
        if !wait && queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() {
            return Ok(());
        }
        drop(queue);
        self.call(u32::from(wait))
    }

    /// Submits everything and handles pending work, without waiting.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.submit_overflow()?;
        self.call(0)
    }

    fn submit_overflow(&mut self) -> io::Result<()> {
        while !self.overflow.is_empty() {
            self.call(0)?;
            if self.refill() == 0 {
                break; // The kernel takes nothing now (out of memory): at the next poll.
            }
        }
        Ok(())
    }

    /// Moves overflow into the submission queue. A chain moves as a whole: the kernel cuts links
    /// where a submission ends.
    fn refill(&mut self) -> usize {
        let mut queue = self.io.submission();
        let mut moved = 0;
        while let Some((entry, linked)) = self.overflow.front() {
            if queue.capacity() - queue.len() < 1 + usize::from(*linked) {
                break;
            }
            // SAFETY: the caller of `push` vouched for the entry until its completion is reaped.
            unsafe { queue.push(entry) }.expect("there is room: just checked");
            self.overflow.pop_front();
            moved += 1;
        }
        moved
    }

    #[inline]
    fn call(&mut self, wait_for: u32) -> io::Result<()> {
        let submit = self.io.submission().len() as u32;
        // SAFETY: without an argument there is nothing for the flags to describe.
        match unsafe { self.io.submitter().enter::<()>(submit, wait_for, GETEVENTS, None) } {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // A signal came, or memory or room for completions is short; reaping helps with
                // both. What was not submitted stays in the queue.
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// # Safety
    /// What the entry points to must stay valid until its completion has been reaped.
    #[inline]
    pub(super) unsafe fn push(&mut self, entry: &squeue::Entry) {
        if self.overflow.is_empty() {
            // SAFETY: the caller vouches for the entry.
            if unsafe { self.io.submission().push(entry) }.is_ok() {
                return;
            }
        }
        self.overflow.push_back((entry.clone(), false));
    }

    /// # Safety
    /// As for [`Ring::push`], for both.
    unsafe fn push_linked(&mut self, pair: [squeue::Entry; 2]) {
        if self.overflow.is_empty() {
            // SAFETY: the caller vouches for the entries.
            if unsafe { self.io.submission().push_multiple(&pair) }.is_ok() {
                return;
            }
        }
        let [first, second] = pair;
        self.overflow.extend([(first, true), (second, false)]);
    }
}

/// Operations that use no memory of this process.
impl Ring {
    /// Accepts until cancelled.
    pub(super) fn accept_stream(&mut self, listener: RawFd, token: Token) {
        let entry = opcode::AcceptMulti::new(Fd(listener)).flags(libc::SOCK_CLOEXEC).build();
        // SAFETY: points to nothing.
        unsafe { self.push(&entry.user_data(token.0)) }
    }

    /// Accepts once.
    pub(super) fn accept_once(&mut self, listener: RawFd, token: Token) {
        let (addr, len) = (std::ptr::null_mut(), std::ptr::null_mut());
        let entry = opcode::Accept::new(Fd(listener), addr, len).flags(libc::SOCK_CLOEXEC).build();
        // SAFETY: points to nothing: the peer's address is not asked for.
        unsafe { self.push(&entry.user_data(token.0)) }
    }

    /// Reports once that a connection waits at a listener that is shared with other drivers. A connection wakes all of them:
    /// with `EPOLLEXCLUSIVE` it would wake only one, which may be busy or about to stop accepting, and the others would not
    /// learn of it.
    pub(super) fn await_connection(&mut self, listener: RawFd, token: Token) {
        let entry = opcode::PollAdd::new(Fd(listener), libc::POLLIN as u32).build();
        // SAFETY: points to nothing.
        unsafe { self.push(&entry.user_data(token.0)) }
    }

    /// Receives once, into a provided buffer chosen when bytes arrive.
    #[inline]
    pub(super) fn receive_once(&mut self, fd: RawFd, token: Token) {
        let entry = opcode::Recv::new(Fd(fd), std::ptr::null_mut(), 0)
            .buf_group(BUFFER_GROUP)
            .build()
            .flags(squeue::Flags::BUFFER_SELECT)
            .user_data(token.0);
        // SAFETY: points to nothing; the buffers' owner outlives the operations in flight.
        unsafe { self.push(&entry) }
    }

    /// Receives until cancelled, each time into a provided buffer, or into as many as the bytes that have
    /// arrived need.
    #[inline]
    pub(super) fn receive_stream(&mut self, fd: RawFd, token: Token) {
        if self.bundles {
            return self.receive_bundles(fd, BUNDLE_BYTES_MAX, token);
        }
        let entry = opcode::RecvMulti::new(Fd(fd), BUFFER_GROUP).build().user_data(token.0);
        // SAFETY: points to nothing; the buffers' owner outlives the operations in flight.
        unsafe { self.push(&entry) }
    }

    /// The same, several buffers at once, of at most `max` bytes.
    #[inline]
    pub(super) fn receive_bundles(&mut self, fd: RawFd, max: u32, token: Token) {
        let entry = opcode::RecvMultiBundle::new(Fd(fd), BUFFER_GROUP).build();
        let entry = at_most(max, entry).user_data(token.0);
        // SAFETY: points to nothing; the buffers' owner outlives the operations in flight.
        unsafe { self.push(&entry) }
    }

    /// Reports each time that the peer finishes sending, or that the connection fails.
    pub(super) fn watch(&mut self, fd: RawFd, token: Token) {
        let entry = opcode::PollAdd::new(Fd(fd), libc::POLLRDHUP as u32).multi(true).build();
        // SAFETY: points to nothing.
        unsafe { self.push(&entry.user_data(token.0)) }
    }

    /// Completes at once.
    pub(super) fn nothing(&mut self, token: Token) {
        // SAFETY: points to nothing.
        unsafe { self.push(&opcode::Nop::new().build().user_data(token.0)) }
    }

    /// Reports once that the socket's buffer has room.
    pub(super) fn await_room(&mut self, fd: RawFd, token: Token) {
        let entry = opcode::PollAdd::new(Fd(fd), libc::POLLOUT as u32).build();
        // SAFETY: points to nothing.
        unsafe { self.push(&entry.user_data(token.0)) }
    }

    /// Cancels the operation called `target`, if it is still in flight.
    pub(super) fn cancel(&mut self, target: Token) {
        let entry = opcode::AsyncCancel::new(target.0)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(Token::CANCEL.0);
        // SAFETY: points to nothing.
        unsafe { self.push(&entry) }
    }

    /// Cancels every operation called `target` that is still in flight.
    pub(super) fn cancel_each(&mut self, target: Token) {
        let each = io_uring::types::CancelBuilder::user_data(target.0).all();
        let entry = opcode::AsyncCancel2::new(each)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(Token::CANCEL.0);
        // SAFETY: points to nothing.
        unsafe { self.push(&entry) }
    }

    /// Cancels everything in flight. The kernel begins its search anew for each operation: for 10 000 connections it takes half
    /// a minute. It finds an operation by its name at once, so this is for what is left over.
    pub(super) fn cancel_all(&mut self) {
        let all = io_uring::types::CancelBuilder::any();
        let entry = opcode::AsyncCancel2::new(all).build().user_data(Token::CANCEL.0);
        // SAFETY: points to nothing.
        unsafe { self.push(&entry) }
    }

    /// Makes the kernel report operations that have been cancelled, to be reaped afterwards: at the end of a ring. Cancels
    /// everything, and counts that in `attempts`, only when nothing is on its way any more. False: the kernel is broken.
    pub(super) fn end_more(&mut self, attempts: &mut u32) -> bool {
        let is_stuck = !self.has_submissions() && !self.has_work();
        if is_stuck {
            *attempts += 1;
            self.cancel_all();
        }
        // The cancellation itself completes at least.
        *attempts <= END_ATTEMPTS_MAX && self.enter(is_stuck).is_ok()
    }

    pub(super) fn close(&mut self, fd: RawFd, token: Token) {
        // SAFETY: points to nothing.
        unsafe { self.push(&close_entry(fd, token)) }
    }
}

/// Operations on memory of this process.
impl Ring {
    /// Receives once, into memory of the caller.
    ///
    /// # Safety
    /// `bytes` must stay valid, and untouched, until the completion has been reaped.
    pub(super) unsafe fn receive_into(&mut self, fd: RawFd, bytes: &mut [u8], token: Token) {
        let entry = opcode::Recv::new(Fd(fd), bytes.as_mut_ptr(), bytes.len() as u32).build();
        // SAFETY: the caller vouches for the bytes.
        unsafe { self.push(&entry.user_data(token.0)) }
    }

    /// Completes at `time` of the monotonic clock. With `armed`, moves the alarm in flight to that
    /// time; if it has already completed, that is as good.
    ///
    /// # Safety
    /// `time` must stay valid until the alarm's completion has been reaped.
    pub(super) unsafe fn alarm(&mut self, time: *const Timespec, armed: bool) {
        let entry = if armed {
            opcode::TimeoutUpdate::new(Token::ALARM.0, time)
                .flags(TimeoutFlags::ABS)
                .build()
                .flags(squeue::Flags::SKIP_SUCCESS)
                .user_data(Token::CANCEL.0)
        } else {
            let alarm = opcode::Timeout::new(time).flags(TimeoutFlags::ABS).build();
            alarm.user_data(Token::ALARM.0)
        };
        // SAFETY: the caller vouches for the time.
        unsafe { self.push(&entry) }
    }

    /// Sends `len` bytes; with `all`, completes only when the kernel took them all or failed.
    ///
    /// # Safety
    /// The bytes must stay valid until the completion has been reaped.
    #[inline]
    pub(super) unsafe fn send(
        &mut self,
        fd: RawFd,
        bytes: *const u8,
        len: u32,
        all: bool,
        token: Token,
    ) {
        let entry = send_entry(fd, bytes, len, all, token);
        // SAFETY: the caller vouches for the bytes.
        unsafe { self.push(&entry) }
    }

    /// Sends `len` bytes, all of them, then closes. If not all could be sent, the close is
    /// cancelled.
    ///
    /// # Safety
    /// As for [`Ring::send`].
    pub(super) unsafe fn send_and_close(
        &mut self,
        fd: RawFd,
        bytes: *const u8,
        len: u32,
        [send, close]: [Token; 2],
    ) {
        let entry = send_entry(fd, bytes, len, true, send).flags(squeue::Flags::IO_LINK);
        // SAFETY: the caller vouches for the bytes.
        unsafe { self.push_linked([entry, close_entry(fd, close)]) }
    }

    /// # Safety
    /// The message, and what it points to, must stay valid until the completion has been reaped.
    pub(super) unsafe fn send_message(
        &mut self,
        fd: RawFd,
        message: *const libc::msghdr,
        token: Token,
    ) {
        let flags = libc::MSG_NOSIGNAL as u32;
        let entry = opcode::SendMsg::new(Fd(fd), message).flags(flags).build();
        // SAFETY: the caller vouches for the message.
        unsafe { self.push(&entry.user_data(token.0)) }
    }
}

/// Bounds how many bytes one receive takes.
#[inline]
fn at_most(bytes: u32, mut entry: squeue::Entry) -> squeue::Entry {
    const { assert!(size_of::<squeue::Entry>() == 64) };
    let start = (&raw mut entry).cast::<u32>();
    // SAFETY: `Entry` is `repr(C)` around the kernel's `io_uring_sqe`, whose `len` is a `u32` at byte 24
    // (linux/io_uring.h); all values are valid there. The crate has no name for it in a bundle.
    unsafe { start.add(6).write(bytes) };
    entry
}

#[inline]
fn send_entry(fd: RawFd, bytes: *const u8, len: u32, all: bool, token: Token) -> squeue::Entry {
    let flags = libc::MSG_NOSIGNAL | if all { libc::MSG_WAITALL } else { 0 };
    opcode::Send::new(Fd(fd), bytes, len).flags(flags).build().user_data(token.0)
}

fn close_entry(fd: RawFd, token: Token) -> squeue::Entry {
    opcode::Close::new(Fd(fd)).build().user_data(token.0)
}

fn build(
    submissions: u32,
    completions: u32,
    flags: impl FnOnce(&mut Builder<squeue::Entry, cqueue::Entry>),
) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder.setup_clamp().setup_submit_all().setup_cqsize(completions).dontfork();
    flags(&mut builder);
    // Two entries are the least that a linked pair needs.
    builder.build(submissions.max(2))
}
