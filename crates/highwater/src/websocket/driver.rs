//! An open WebSocket: one future per connection, which its worker polls.
//!
//! It polls the handler itself, between reading and sending, so that an echo costs no wake-up. It answers pings, keeps the
//! deadlines and begins the closing handshake when the server drains, whatever the handler waits for:
//!
//! ```text
//!  bytes ─▶ read ─▶ inbox ─▶ handler ─▶ outgoing          while there is something to do
//!           deadlines, drain, handles that are dropped ─▶ the session ─▶ outgoing
//!           the session's end ─▶ outgoing ends             the handler goes on: cleanup
//! ```
//!
//! If the connection ends first, the handler continues as a task of its worker, for [`CLEANUP_MAX`] at most. A drain waits
//! for it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use highwater_core::time::Instant;
use highwater_core::websocket::{CloseCode, End};
use tokio::runtime::Handle;
use tokio::time::{Instant as TokioInstant, Sleep, sleep_until};
use tracing::warn;

use super::options::{CLEANUP_MAX, Options};
use super::shared::{Shared, State};
use super::socket::WebSocket;
use crate::app::{
    Accounts, BodyStream, BoxError, Draining, Finish, GuardedFuture, Upgraded, guarded, keep_buffer,
};
use crate::body_memory::Charge;
use crate::metrics::{SocketEnd as Counted, Sockets};

/// How often a connection reads and its handler runs in one turn, before others have theirs. A guess.
const ROUNDS_MAX: u32 = 16;

/// How much longer a client is waited for whose time is over: bytes of it may have come that the worker has not read yet.
const SECOND_LOOK: Duration = Duration::from_millis(50);

/// What its client's messages may hold without being counted, so that small ones cost no shared counter.
const UNCOUNTED_MAX: usize = 16 * 1024;

/// The future of a connection whose handshake is complete.
pub(super) fn connect<F, Fut>(
    shared: Arc<Shared>,
    (upgraded, accounts): (Upgraded, Accounts),
    draining: Draining,
    options: &Options,
    handler: F,
) -> Driver
where
    F: FnOnce(WebSocket) -> Fut,
    Fut: Future<Output: Finish> + 'static,
{
    let Upgraded { incoming, mut outgoing } = upgraded;
    let Accounts { sockets, memory } = accounts;
    let drains = draining.clone();
    outgoing.set_capacity(options.send_buffer_max.max(1));
    shared.lock().outgoing = Some(outgoing);
    let handled = handler(WebSocket::of(Arc::clone(&shared)));
    let handler = GuardedFuture::new(async move { handled.await.failure() });
    sockets.begin(); // Not earlier: a handler may panic when it is called.
    Driver {
        shared,
        incoming: Some(incoming),
        input: BytesMut::new(),
        came_at: Instant::ZERO,
        handler: Some(handler),
        drained: Some(Box::pin(async move { draining.begun().await })),
        draining: drains,
        timer: None,
        is_waited_for: false,
        looks_again: false,
        memory: Charge::new(memory),
        sockets,
        is_counted: false,
    }
}

/// One WebSocket at work.
pub(super) struct Driver {
    shared: Arc<Shared>,
    /// `None` after its end.
    incoming: Option<BodyStream>,
    /// Bytes that came at `came_at` and have no room in the inbox.
    input: BytesMut,
    came_at: Instant,
    /// `None` once it has ended.
    handler: Option<GuardedFuture<Option<BoxError>>>,
    /// Ready when the server drains.
    drained: Option<Pin<Box<dyn Future<Output = ()>>>>,
    draining: Draining,
    timer: Option<Pin<Box<Sleep>>>,
    /// The drain and the timer wake this future's task, so that they need not be asked with each message.
    is_waited_for: bool,
    /// A client's time is over, and it gets a little more.
    looks_again: bool,
    /// What its client's messages take, if that is much.
    memory: Charge,
    sockets: Arc<Sockets>,
    /// Its end was counted.
    is_counted: bool,
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        {
            let mut state = this.shared.lock();
            state.is_driven = true;
            if !state.driver.as_ref().is_some_and(|driver| driver.will_wake(context.waker())) {
                state.driver = Some(context.waker().clone());
                this.is_waited_for = false;
            }
        }
        let mut rounds = 0;
        loop {
            let has_read = this.read(context);
            if has_read || rounds == 0 {
                this.run_handler(context);
            }
            rounds += 1;
            if !this.may_read_on() {
                break;
            }
            if rounds == ROUNDS_MAX {
                context.waker().wake_by_ref();
                break;
            }
        }
        this.keep_deadlines(context);
        if this.has_closed() {
            this.run_handler(context); // It learns of the end.
        }
        this.end(context)
    }
}

impl Driver {
    /// Takes in what has come, as far as there is room. Returns whether the handler may have something to do.
    fn read(&mut self, context: &mut Context<'_>) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let mut received = 0;
        while state.session.end().is_none() {
            received += state.take_in(&mut self.input, self.came_at);
            if !self.input.is_empty() || state.session.has_received_close() {
                break; // There is no room, or no more to come.
            }
            keep_buffer(std::mem::take(&mut self.input));
            let Some(incoming) = &mut self.incoming else { break };
            match incoming.poll_into(&mut self.input, context) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(()))) => self.came_at = state.now(),
                Poll::Ready(Some(Err(_)) | None) => {
                    self.incoming = None;
                    state.is_eof = true;
                }
            }
        }
        if received > 0 {
            self.sockets.received.add(received);
        }
        state.wake_waiting(Some(context.waker()));
        received > 0
    }

    /// Whether nothing is sent any more.
    fn has_closed(&self) -> bool {
        !self.shared.lock().session.is_open()
    }

    /// Whether its client is not read, because there is no room for what it says.
    fn is_held_back(&self) -> bool {
        !self.input.is_empty()
    }

    /// Whether there is room again for what is held back.
    fn may_read_on(&self) -> bool {
        self.is_held_back() && {
            let state = self.shared.lock();
            !state.is_inbox_full() && !state.is_output_full() && state.session.end().is_none()
        }
    }

    /// Polls the handler.
    fn run_handler(&mut self, context: &mut Context<'_>) {
        let Some(handler) = &mut self.handler else { return };
        let Poll::Ready(ended) = handler.poll(context) else { return };
        self.handler = None; // Its values are dropped here, the handles among them.
        let failure = match ended {
            Ok(failure) => failure,
            Err(_panic) => Some(BoxError::from("its handler panicked")), // The panic is reported.
        };
        if let Some(error) = failure {
            let mut state = self.shared.lock();
            if state.session.is_open() {
                warn!(%error, "a WebSocket is closed with 1011, since its handler failed");
            }
            state.close(CloseCode::INTERNAL, "the application failed");
        }
    }

    /// Begins the end if it is time, and does what deadlines require.
    fn keep_deadlines(&mut self, context: &mut Context<'_>) {
        let asks = !self.is_waited_for || self.draining.has_begun();
        let has_drained = asks
            && self
                .drained
                .as_mut()
                .is_some_and(|drained| drained.as_mut().poll(context).is_ready());
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        if has_drained {
            self.drained = None;
            state.close(CloseCode::GOING_AWAY, "the server stops");
        }
        if !self.is_held_back() {
            state.answer_end();
        }
        let is_left = state.receivers == 0 && (state.senders == 0 || self.handler.is_none());
        if is_left && state.session.is_open() {
            state.close(CloseCode::NORMAL, "");
        }
        if self.is_held_back() {
            let now = state.now();
            state.session.rest(now); // Its answers may be among what is not read.
        }
        while self.is_due(&state, context) {
            state.on_deadline();
        }
        self.is_waited_for = true;
        state.wake_waiting(Some(context.waker()));
        let waits_for_room = self.is_held_back() && state.is_output_full();
        if (waits_for_room || !state.writers.is_empty())
            && let Some(outgoing) = &mut state.outgoing
            && let Poll::Ready(room) = outgoing.poll_ready(context)
        {
            match room {
                Ok(()) => context.waker().wake_by_ref(),
                Err(_closed) => state.session.lost(),
            }
        }
        self.sockets.sent.add(std::mem::take(&mut state.sent));
    }

    /// Whether a deadline of the session is due; if not, its task is woken when it is.
    fn is_due(&mut self, state: &State, context: &mut Context<'_>) -> bool {
        let deadline = state.session.deadline();
        // Without a runtime, as in the simulator, there are no timers.
        if deadline == Instant::MAX || self.timer.is_none() && Handle::try_current().is_err() {
            self.timer = None;
            return false;
        }
        let at = state.at(deadline);
        let mut wakes = self.is_waited_for && self.timer.is_some();
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        // One that fires too early costs less than moving it with every message.
        if at < timer.deadline() && !self.looks_again {
            timer.as_mut().reset(at);
            wakes = false;
        }
        if wakes && !timer.is_elapsed() {
            return false;
        }
        while timer.as_mut().poll(context).is_ready() {
            let now = TokioInstant::now();
            let waits = state.session.is_awaiting() && !self.looks_again;
            match () {
                () if now < at => {
                    self.looks_again = false;
                    timer.as_mut().reset(at);
                }
                () if waits => {
                    self.looks_again = true;
                    timer.as_mut().reset(now + SECOND_LOOK);
                }
                () => {
                    self.looks_again = false;
                    return true;
                }
            }
        }
        false
    }

    /// Ends the output once the session is over. Ready when the handler has ended, too.
    fn end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        self.hold_memory(&mut state);
        if let Some(end) = state.session.end() {
            self.count(end);
            self.timer = None;
            self.drained = None;
            self.incoming = None; // The connection ends with the output.
            self.input = BytesMut::new();
            match (state.outgoing.take(), end) {
                // Without `end_now` it is reset: nobody is there to read a close frame.
                (_, End::Unanswered) | (None, _) => {}
                (Some(mut outgoing), _) => outgoing.end_now(),
            }
            state.wake_waiting(Some(context.waker()));
        }
        state.is_driven = false;
        let is_over = state.session.end().is_some() && self.handler.is_none();
        if is_over { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Counts what its client's messages hold. If the server has no memory for them, the connection ends.
    #[inline]
    fn hold_memory(&mut self, state: &mut State) {
        let counted = |held| if held > UNCOUNTED_MAX { held } else { 0 };
        let held = counted(state.held() + self.input.len());
        if held != self.memory.bytes() && !self.memory.set(held) {
            if state.session.end().is_none() {
                self.memory.report_full();
            }
            state.exhaust();
            // What the application still receives is counted again, if there is room for that.
            self.memory.set(counted(state.held()));
        }
    }

    fn count(&mut self, end: End) {
        if !std::mem::replace(&mut self.is_counted, true) {
            self.sockets.end(match end {
                End::Closed(None | Some(CloseCode::NORMAL)) => Counted::Normal,
                End::Closed(Some(CloseCode::GOING_AWAY)) => Counted::GoingAway,
                End::Closed(Some(CloseCode(3000..))) => Counted::Application,
                End::Closed(Some(_)) => Counted::Other,
                End::Failed(CloseCode::TRY_AGAIN_LATER) => Counted::Memory,
                End::Failed(_) => Counted::Refused,
                End::Lost => Counted::Lost,
                End::Unanswered => Counted::Unanswered,
            });
        }
    }
}

/// The connection is gone, or all is done.
impl Drop for Driver {
    fn drop(&mut self) {
        let (end, worker) = {
            let mut state = self.shared.lock();
            state.session.lost();
            state.outgoing = None;
            let worker = state.driver.take();
            state.is_driven = false;
            state.wake_waiting(None);
            self.sockets.sent.add(std::mem::take(&mut state.sent));
            (state.session.end().unwrap_or(End::Lost), worker)
        };
        self.count(end);
        if let Some(handler) = self.handler.take()
            && Handle::try_current().is_ok()
        {
            // Its loop ends, since there is no message any more; what follows the loop is not to be cut off. A panic: the
            // runtime is not a worker's, and the handler is dropped.
            let leaving = Leaving::begin(Arc::clone(&self.sockets), worker);
            let _ = guarded(|| {
                drop(tokio::task::spawn_local(async move {
                    let _leaving = leaving;
                    let _ = tokio::time::timeout(CLEANUP_MAX, handler).await;
                }));
            });
        }
    }
}

/// Counts a handler that goes on without its connection: a drain waits for it.
struct Leaving {
    sockets: Arc<Sockets>,
    worker: Option<Waker>,
}

impl Leaving {
    fn begin(sockets: Arc<Sockets>, worker: Option<Waker>) -> Self {
        sockets.begin_leaving();
        Leaving { sockets, worker }
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.sockets.end_leaving();
        if let Some(worker) = self.worker.take() {
            worker.wake(); // It may wait for this alone.
        }
    }
}
