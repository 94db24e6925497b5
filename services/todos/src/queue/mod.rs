//! Queues keep commands between the answer to the client and the store.
//!
//! ```text
//!  worker ──Sender::send──▶ queue ──Source::next──▶ applier ──Store::apply──▶ store
//!            │ durable: 202                                  │
//!            └ refused: 503                 Source::commit ◀─┘ once the store has it durably
//! ```
//!
//! The contract of every queue:
//!
//! * A future of [`Sender::send`] resolves with `Ok` only once the command survives a crash.
//! * Commands about one todo are delivered in the order in which they became durable. If one was
//!   acknowledged before another was sent, by whichever worker or instance, it comes first.
//! * At least once: after a crash, commands behind the committed position come again. The store knows
//!   which of them it has applied.

pub mod journal;
#[cfg(feature = "kafka")]
pub mod kafka;

use std::error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::command::{Command, Poison};
use crate::health::Part;

/// Where commands go. One for the process.
pub trait Queue: Send + Sync {
    /// A worker's own way in. Called once on each worker's thread, before it accepts connections.
    ///
    /// # Errors
    ///
    /// If there can be no further one: the server then does not start.
    fn sender(&self) -> Result<Box<dyn Sender>, QueueError>;

    /// Whether it takes commands, as far as is known without asking anybody. Asked by `/ready`.
    fn part(&self) -> Part;

    /// How many commands wait to be applied; as good as it is known without asking anybody.
    fn depth(&self) -> u64;

    /// How often the queue could not record its position. Commands are queued all the same.
    fn unmarked(&self) -> u64 {
        0
    }

    /// A mark behind everything that this instance has acknowledged so far. `None` where nobody in this process knows what is
    /// applied, because another one does that; then [`settles_after`](Queue::settles_after) says what can be known.
    ///
    /// Where several instances have journals on one store, the commands of others are not covered, nor is their order.
    ///
    /// Asked when a todo is not found that may have been created a moment ago.
    fn mark(&self) -> Option<u64>;

    /// Whether everything before the mark is applied, and visible in this instance.
    fn reached(&self, mark: u64) -> bool;

    /// For when there is no mark: everything that was acknowledged longer ago, by whichever instance, is applied. `None`: it is
    /// not known.
    fn settles_after(&self) -> Option<Duration> {
        None
    }

    /// The same without the time in an id, which says nothing once a clock was wrong: whether everything that was
    /// acknowledged before `at`, by whichever instance, is known to be applied, and had time to become visible.
    fn has_settled(&self, _at: Instant) -> bool {
        false
    }
}

/// A worker's way into the queue. It stays on its thread.
pub trait Sender {
    /// Hands a command over.
    ///
    /// It never waits: either the queue has room, or the command is refused at once.
    ///
    /// # Errors
    ///
    /// If the command was not taken.
    fn send(&self, command: &Command) -> Result<Durable, Refusal>;
}

/// Resolves once the command is durable, or is not known to be. It needs no runtime. Dropping it recalls
/// nothing: the command stays in the queue.
pub type Durable = Pin<Box<dyn Future<Output = Result<(), Refusal>>>>;

/// A command is not known to be durable. The client gets 503 with `Retry-After`, and the command may be applied all the
/// same; or 413, if to send it again would be in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The queue has as much as it may: later there may be room.
    Full(String),
    /// What the queue is kept in does not work: a disk, a broker.
    Down(String),
    /// The queue never takes a command of that size. It is not applied.
    TooLarge(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Refusal::Full(why) | Refusal::Down(why) | Refusal::TooLarge(why)) = self;
        f.write_str(why)
    }
}

/// Where a command stands in its queue. Within a partition offsets rise, with gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The partition; a queue without partitions has 0.
    pub partition: u32,
    /// The offset within it.
    pub offset: u64,
}

/// What comes out of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Where it stood. `None` for what comes from no queue: then only the command's id reveals a repetition.
    pub position: Option<Position>,
    /// The command, or bytes that are none: the store keeps those as a dead letter.
    pub content: Result<Command, Poison>,
}

/// The other end of a queue. One for each applier; it blocks its thread, and an implementation over an
/// asynchronous client has a runtime of its own.
pub trait Source: Send {
    /// Which queue it is, for the store's table of positions: `journal`, `kafka/todo-commands`.
    fn name(&self) -> &str;

    /// Waits for commands, at most for `wait`; then gives up to `max` of them, in order. None: nothing came.
    ///
    /// # Errors
    ///
    /// If the queue cannot be read now. The next call tries again, and goes on where it was. What else went wrong meanwhile
    /// is not reported: an error for each call, however many there were.
    fn next(&mut self, max: usize, wait: Duration) -> Result<Vec<Delivery>, QueueError>;

    /// Says that everything given so far has been applied, and is visible in this process. It costs nothing:
    /// it is called after every transaction.
    fn applied(&mut self);

    /// Says that everything that was applied is in the store, durably.
    ///
    /// # Errors
    ///
    /// If that cannot be kept. What is not committed may come again; the store drops it then.
    fn commit(&mut self) -> Result<(), QueueError>;
}

/// A queue does not work: what happened, where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueError(String);

impl QueueError {
    /// With a sentence for the operator.
    pub fn new(message: impl Into<String>) -> QueueError {
        QueueError(message.into())
    }
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for QueueError {}
