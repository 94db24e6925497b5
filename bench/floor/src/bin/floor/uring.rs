//! The io_uring floor. One ring, `SINGLE_ISSUER | DEFER_TASKRUN`; a multishot accept into direct
//! descriptors; a multishot receive into a provided-buffer ring; plain sends that complete
//! silently; one system call a turn, which submits everything the last turn wrote and waits for at
//! least one event.
//!
//! With `churn` the receive is one-shot and the send is linked to a close: an armed multishot
//! receive would hold the socket open past its close and cost a short connection 40 % more.

use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;

use highwater_floor::buffers::{BufferRing, GROUP};
use io_uring::types::{Fd, Fixed};
use io_uring::{IoUring, SubmissionQueue, cqueue, opcode, squeue};

use crate::protocol::{Matched, Protocol};

/// Operations one turn may write. A turn's completions bring at most three each, and the queue is
/// flushed when fewer than that are left.
const SUBMISSIONS: u32 = 4096;
const SUBMISSIONS_PER_EVENT_MAX: usize = 3;
/// Completions the kernel may post before we look. Beyond it the kernel keeps them and we only lose
/// time.
const COMPLETIONS: u32 = 8192;
/// Open connections; the accept reports `ENFILE` beyond it.
const CONNECTIONS_MAX: u32 = 8192;

/// What a completion answers, in the upper half of its user data. The lower half is the
/// connection's slot.
const ACCEPT: u64 = 1 << 32;
const RECEIVE: u64 = 2 << 32;
const SEND: u64 = 3 << 32;
const CLOSE: u64 = 4 << 32;
const OPERATION: u64 = !0 << 32;

struct Loop<'ring> {
    submissions: SubmissionQueue<'ring>,
    buffers: BufferRing,
    protocol: Protocol,
    matched: Vec<Matched>,
    listener: TcpListener,
    churn: bool,
}

/// Serves until the process is killed.
///
/// # Errors
/// The ring cannot be set up (old kernel, seccomp), or the kernel refuses to go on.
pub(crate) fn serve(listener: TcpListener, churn: bool) -> io::Result<()> {
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_cqsize(COMPLETIONS)
        .build(SUBMISSIONS)?;
    ring.submitter().register_files_sparse(CONNECTIONS_MAX)?;
    let buffers = BufferRing::register(&ring.submitter())?;
    let (submitter, submissions, mut completions) = ring.split();
    let mut state = Loop {
        submissions,
        buffers,
        protocol: Protocol::new(),
        matched: vec![Matched::default(); CONNECTIONS_MAX as usize],
        listener,
        churn,
    };
    state.accept();
    loop {
        state.submissions.sync();
        match submitter.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // The kernel's completion queue is full: reap, then submit again.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
            Err(error) => return Err(error),
        }
        state.submissions.sync();
        completions.sync();
        for event in &mut completions {
            if state.submissions.capacity() - state.submissions.len() < SUBMISSIONS_PER_EVENT_MAX {
                state.submissions.sync();
                submitter.submit()?;
                state.submissions.sync();
            }
            state.handle(&event);
        }
        state.buffers.publish();
    }
}

impl Loop<'_> {
    fn handle(&mut self, event: &cqueue::Entry) {
        let slot = event.user_data() as u32;
        match event.user_data() & OPERATION {
            ACCEPT => self.accepted(event),
            RECEIVE => self.received(slot, event),
            // Sends and closes are silent unless they fail, which means the client has gone.
            _ => {}
        }
    }

    fn accepted(&mut self, event: &cqueue::Entry) {
        if !cqueue::more(event.flags()) {
            self.accept();
        }
        if event.result() < 0 {
            let error = io::Error::from_raw_os_error(-event.result());
            eprintln!("floor: accept: {error}");
            return;
        }
        let slot = event.result() as u32;
        self.matched[slot as usize] = Matched::default();
        self.receive(slot);
    }

    fn received(&mut self, slot: u32, event: &cqueue::Entry) {
        let armed = cqueue::more(event.flags());
        let len = match event.result() {
            len @ 1.. => len as usize,
            // No buffer was free; what arrived is still in the socket. Ask again.
            error if error == -libc::ENOBUFS => return self.receive(slot),
            // The end of the stream, or an error that ends it.
            _ if armed => return,
            _ => return self.close(slot),
        };
        let id = cqueue::buffer_select(event.flags())
            .expect("a receive that brought bytes names their buffer");
        // SAFETY: this completion has just handed us the buffer; it is released below.
        let bytes = unsafe { self.buffers.bytes(id, len) };
        let requests = self.protocol.count(&mut self.matched[slot as usize], bytes);
        self.buffers.release(id);
        if requests > 0 {
            self.respond(slot, requests);
            if self.churn {
                return self.close(slot);
            }
        }
        if !armed {
            self.receive(slot);
        }
    }

    fn accept(&mut self) {
        let listener = Fd(self.listener.as_raw_fd());
        let accept = opcode::AcceptMulti::new(listener)
            .allocate_file_index(true)
            .build();
        self.push(accept.user_data(ACCEPT));
    }

    fn receive(&mut self, slot: u32) {
        let receive = if self.churn {
            let any_buffer = (std::ptr::null_mut(), 0);
            opcode::Recv::new(Fixed(slot), any_buffer.0, any_buffer.1)
                .buf_group(GROUP)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT)
        } else {
            opcode::RecvMulti::new(Fixed(slot), GROUP).build()
        };
        self.push(receive.user_data(RECEIVE | u64::from(slot)));
    }

    /// Writes the responses of one batch as one send. With `churn` the close that follows waits for
    /// it.
    fn respond(&mut self, slot: u32, requests: usize) {
        let bytes = self.protocol.responses(requests);
        let link = if self.churn {
            squeue::Flags::IO_LINK
        } else {
            squeue::Flags::empty()
        };
        let send = opcode::Send::new(Fixed(slot), bytes.as_ptr(), bytes.len() as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS | link);
        self.push(send.user_data(SEND | u64::from(slot)));
    }

    fn close(&mut self, slot: u32) {
        let close = opcode::Close::new(Fixed(slot))
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS);
        self.push(close.user_data(CLOSE | u64::from(slot)));
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: entries refer to the listener, to kernel-owned slots and to leaked responses: all
        // outlive the ring.
        let pushed = unsafe { self.submissions.push(&entry) };
        pushed.expect("the loop keeps room for what one event can bring");
    }
}
