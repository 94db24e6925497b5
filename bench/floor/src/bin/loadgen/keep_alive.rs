//! Keep-alive connections, each with `pipeline` requests in flight, through one io_uring: every
//! turn sends the next requests of all connections that were answered, in one system call.
//!
//! A connection's next batch leaves when the last byte of its previous one has arrived. Latency
//! runs from the start of the turn that writes a batch to the start of the turn that sees its end.

use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;

use highwater_floor::buffers::{BufferRing, GROUP};
use io_uring::types::{Fixed, Timespec};
use io_uring::{IoUring, SubmissionQueue, cqueue, opcode, squeue};

use crate::measure::{Meter, check_status};
use crate::plan::{CONNECTIONS_MAX, Plan};

/// A receive and a send for every connection, and the clock.
const SUBMISSIONS: u32 = 4096;
const _: () = assert!(2 * CONNECTIONS_MAX < SUBMISSIONS as usize);
const COMPLETIONS: u32 = 8192;
/// How often the clock is looked at when nothing happens.
static TICK: Timespec = Timespec::new().nsec(100_000_000);

/// What a completion answers, in the upper half of its user data. The lower half is the
/// connection's index.
const RECEIVE: u64 = 1 << 32;
const SEND: u64 = 2 << 32;
const CLOCK: u64 = 3 << 32;
const OPERATION: u64 = !0 << 32;

#[derive(Clone, Default)]
struct Connection {
    /// When its batch was written, in nanoseconds of the meter's clock.
    started: u64,
    /// Bytes still owed to it.
    awaited: usize,
}

struct Client<'run> {
    submissions: SubmissionQueue<'run>,
    buffers: BufferRing,
    connections: Vec<Connection>,
    /// The requests of one batch.
    batch: &'static [u8],
    /// The bytes that answer one batch.
    answer_len: usize,
    pipeline: usize,
}

/// Runs until the meter says it is over.
pub(crate) fn run(plan: &Plan, response_len: usize, meter: &mut Meter) -> Result<(), String> {
    let failed = |error: io::Error| format!("io_uring: {error}");
    let streams = dial_all(plan)?;
    // Leaked, because the kernel may still be sending from it when the ring is dropped: once a
    // process.
    let batch = plan.request.repeat(plan.pipeline).leak();
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .setup_cqsize(COMPLETIONS)
        .build(SUBMISSIONS)
        .map_err(failed)?;
    let descriptors: Vec<_> = streams.iter().map(AsRawFd::as_raw_fd).collect();
    ring.submitter()
        .register_files(&descriptors)
        .map_err(failed)?;
    let buffers = BufferRing::register(&ring.submitter()).map_err(failed)?;
    let (submitter, submissions, mut completions) = ring.split();
    let mut client = Client {
        submissions,
        buffers,
        connections: vec![Connection::default(); plan.connections],
        batch,
        answer_len: plan.pipeline * response_len,
        pipeline: plan.pipeline,
    };
    client.start(meter.now());
    loop {
        client.submissions.sync();
        match submitter.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(failed(error)),
            _ => {}
        }
        client.submissions.sync();
        completions.sync();
        let now = meter.now();
        if meter.over(now)? {
            return Ok(());
        }
        for event in &mut completions {
            client.handle(&event, now, meter)?;
        }
        client.buffers.publish();
    }
}

fn dial_all(plan: &Plan) -> Result<Vec<TcpStream>, String> {
    (0..plan.connections)
        .map(|_| {
            let stream = plan.dial()?;
            stream
                .set_nodelay(true)
                .map_err(|error| error.to_string())?;
            Ok(stream)
        })
        .collect()
}

impl Client<'_> {
    fn start(&mut self, now: u64) {
        self.tick();
        for index in 0..self.connections.len() {
            self.receive(index);
            self.send(index, now);
        }
    }

    fn handle(&mut self, event: &cqueue::Entry, now: u64, meter: &mut Meter) -> Result<(), String> {
        let index = event.user_data() as u32 as usize;
        match event.user_data() & OPERATION {
            RECEIVE => self.received(index, event, now, meter),
            CLOCK => {
                self.tick();
                Ok(())
            }
            // Sends are silent unless they fail.
            _ => Err(format!(
                "send: {}",
                io::Error::from_raw_os_error(-event.result())
            )),
        }
    }

    fn received(
        &mut self,
        index: usize,
        event: &cqueue::Entry,
        now: u64,
        meter: &mut Meter,
    ) -> Result<(), String> {
        let len = match event.result() {
            len @ 1.. => len as usize,
            0 => return Err("the server closed a keep-alive connection".to_owned()),
            // No buffer was free; what arrived is still in the socket. Ask again.
            error if error == -libc::ENOBUFS => {
                self.receive(index);
                return Ok(());
            }
            error => return Err(format!("receive: {}", io::Error::from_raw_os_error(-error))),
        };
        let id = cqueue::buffer_select(event.flags())
            .expect("a receive that brought bytes names their buffer");
        let awaited = self.connections[index].awaited;
        if awaited == self.answer_len {
            // SAFETY: this completion has just handed us the buffer; it is released below.
            let bytes = unsafe { self.buffers.bytes(id, len) };
            check_status(bytes)?;
        }
        self.buffers.release(id);
        if len > awaited {
            return Err(format!(
                "answers are longer than the first one: {len} bytes where {awaited} were owed"
            ));
        }
        self.connections[index].awaited -= len;
        if len == awaited {
            meter.answered(now - self.connections[index].started, self.pipeline as u64);
            self.send(index, now);
        }
        if !cqueue::more(event.flags()) {
            self.receive(index);
        }
        Ok(())
    }

    /// Asks to be woken in `TICK`, so that a silent server does not keep us for ever.
    fn tick(&mut self) {
        self.push(opcode::Timeout::new(&TICK).build().user_data(CLOCK));
    }

    fn receive(&mut self, index: usize) {
        let receive = opcode::RecvMulti::new(Fixed(index as u32), GROUP).build();
        self.push(receive.user_data(RECEIVE | index as u64));
    }

    fn send(&mut self, index: usize, now: u64) {
        self.connections[index] = Connection {
            started: now,
            awaited: self.answer_len,
        };
        let send = opcode::Send::new(
            Fixed(index as u32),
            self.batch.as_ptr(),
            self.batch.len() as u32,
        )
        .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
        .build()
        .flags(squeue::Flags::SKIP_SUCCESS);
        self.push(send.user_data(SEND | index as u64));
    }

    fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: entries refer to registered sockets, which the kernel holds, and to memory that
        // is never freed.
        let pushed = unsafe { self.submissions.push(&entry) };
        pushed.expect("a turn writes at most a receive and a send for each connection");
    }
}
