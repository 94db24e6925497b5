//! Stores keep todos, and know which commands they have applied.
//!
//! A store never answers clients: they read the [`Model`](crate::model::Model), which learns from
//! [`Changes`] what the store has applied.
//!
//! ```text
//!  applier ──apply(deliveries)──▶ store ──Applied──▶ model of this process     (embedded)
//!                                   │
//!                                   └──Feed::next──▶ models of all instances   (full)
//! ```
//!
//! The tables of every store:
//!
//! | table | what |
//! |---|---|
//! | `todos` | the todos, with `version`: that of the transaction which changed them last |
//! | `positions` | for each source and partition, the offset behind the last command applied |
//! | `dead_letters` | what could not be applied, with the reason |
//! | `schema_migrations` | which migrations have run |

pub mod postgres;
pub mod sqlite;

use std::error;
use std::fmt;

use uuid::Uuid;

use crate::queue::Delivery;
use crate::todo::Todo;

/// Durable memory of todos. It blocks its thread, and is used by one.
pub trait Store: Send {
    /// Every todo, in no particular order, and the version they are of.
    ///
    /// # Errors
    ///
    /// If the store does not work.
    fn load(&mut self) -> Result<Loaded, StoreError>;

    /// Applies what a source has delivered, in order, in one transaction with the positions behind it.
    ///
    /// All or nothing: after `Err` nothing was applied, or all of it (where the connection broke during the
    /// commit); applying the same deliveries again is safe and gives the same state. For that, in the same
    /// transaction,
    ///
    /// * a delivery whose offset is below the stored position of its partition is skipped;
    /// * one whose command was applied before, under whatever position, changes nothing. (A store whose
    ///   queue never holds a command twice need not look: the journal is such a queue.)
    ///
    /// Commands are applied so: `Create` makes the todo unless there is one of that id; `Update` and
    /// `Delete` have an effect if the todo is there and `user_id` is its owner's, else their outcome is
    /// [`Outcome::NotFound`]. `updated_at` never goes back. What the store can never take (bytes that are no
    /// command, a value that the database refuses) becomes a dead letter with the reason, and holds up
    /// nothing.
    ///
    /// # Errors
    ///
    /// If the store does not work now: the same deliveries are given again later.
    fn apply(&mut self, source: &str, deliveries: &[Delivery]) -> Result<Applied, StoreError>;

    /// The offset behind the last one applied, for each partition of the source that has any.
    ///
    /// # Errors
    ///
    /// If the store does not work.
    fn positions(&mut self, source: &str) -> Result<Vec<(u32, u64)>, StoreError>;

    /// Sees that everything applied so far survives a crash of the machine. Sources are committed after it.
    ///
    /// # Errors
    ///
    /// If that is not known.
    fn sync(&mut self) -> Result<(), StoreError>;

    /// The newest dead letters, at most `max`, newest first.
    ///
    /// # Errors
    ///
    /// If the store does not work.
    fn dead_letters(&mut self, max: usize) -> Result<Vec<DeadLetter>, StoreError>;
}

/// What a store held when it was read, as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// How many transactions have changed todos. It never decreases.
    pub version: u64,
    /// All todos.
    pub todos: Vec<Todo>,
}

/// What a transaction did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// What readers must learn.
    pub changes: Changes,
    /// How many deliveries became dead letters.
    pub dead: u64,
    /// How many deliveries had been applied before.
    pub repeated: u64,
}

/// What is different from one version of the store to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The version after it.
    pub version: u64,
    /// Todos as they are now. Each id at most once.
    pub todos: Vec<Change>,
    /// What became of commands, in order.
    pub commands: Vec<(Uuid, Outcome)>,
}

/// A todo that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is now this.
    Is(Todo),
    /// It is gone.
    Gone(Uuid),
}

/// What became of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was applied: now, or before.
    Done,
    /// There is no todo of that id, or it is somebody else's.
    NotFound,
    /// It is a dead letter, for this reason.
    Dead(String),
}

/// What could not be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where it came from, as `source/partition/offset`; empty parts if it had no position.
    pub origin: String,
    /// What was in the queue.
    pub bytes: Vec<u8>,
    /// Why it could not be applied.
    pub reason: String,
    /// When that was found, in microseconds since 1970.
    pub time_us: i64,
}

/// Where a delivery came from, as a dead letter says it: `source/partition/offset`.
pub(crate) fn origin(source: &str, delivery: &Delivery) -> String {
    match delivery.position {
        Some(position) => format!("{source}/{}/{}", position.partition, position.offset),
        None => format!("{source}//"),
    }
}

/// Why a store cannot do its work: what happened, where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError(String);

impl StoreError {
    /// With a sentence for the operator.
    pub fn new(message: impl Into<String>) -> StoreError {
        StoreError(message.into())
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for StoreError {}
