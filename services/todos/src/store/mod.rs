//! Stores keep todos, and know which commands they have applied.
//!
//! A store never answers clients: they read the [`Model`](crate::model::Model), which learns of the store's changes
//! from [`Changes`].
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
//! | `queue_partitions` | by how many partitions the commands of a topic are divided |
//! | `schema_migrations` | which migrations have run |

pub mod decision;
pub mod history;
pub mod postgres;
pub mod sqlite;

use std::collections::HashSet;
use std::error;
use std::fmt;

use uuid::Uuid;

use crate::queue::Delivery;
use crate::todo::Todo;

/// How long the ids of applied commands are kept, in microseconds: 14 days, twice as long as Kafka keeps a message by
/// default.
pub const COMMANDS_KEPT_US: i64 = 14 * 86_400 * 1_000_000;

/// So many dead letters are kept; beyond it the oldest go, in Postgres within a minute.
pub const DEAD_LETTERS_MAX: u64 = 100_000;

/// Durable memory of todos. It blocks its thread, and is used by one.
pub trait Store: Send {
    /// Every todo, newest first, and the revision they are of.
    ///
    /// # Errors
    ///
    /// If the store does not work.
    fn load(&mut self) -> Result<Loaded, StoreError> {
        self.newest(usize::MAX, usize::MAX)
    }

    /// The newest todos, newest first, and the revision they are of: at most `rows_max`, and not many more than take
    /// `bytes_max` in memory ([`Todo::bytes`]).
    ///
    /// # Errors
    ///
    /// If the store does not work.
    fn newest(&mut self, rows_max: usize, bytes_max: usize) -> Result<Loaded, StoreError>;

    /// One todo.
    ///
    /// # Errors
    ///
    /// If the store does not work.
    fn find(&mut self, id: Uuid) -> Result<Option<Todo>, StoreError>;

    /// Applies what a source has delivered, in order, in one transaction with the positions behind it; in several, if it has
    /// to find values that a database refuses.
    ///
    /// After `Err` nothing was applied, or the first ones (where a later transaction failed), or all (where the connection
    /// broke during the commit); applying the same deliveries again is safe and gives the same state. For that, in the same
    /// transaction,
    ///
    /// * one whose command was applied before, under whatever position, changes nothing. (A store whose
    ///   queue never holds a command twice may go by the stored position: the journal is such a queue.)
    /// * a command of Kafka whose id may have been removed ([`COMMANDS_KEPT_US`]) changes nothing if it stands below the
    ///   stored position of its partition.
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

    /// Dead letters of this source that were not sent to its topic of dead letters, at most `max`, oldest first.
    /// Until [`Store::were_sent`] is called, no other process is given any.
    ///
    /// # Errors
    ///
    /// If the store does not work.
    fn unsent(&mut self, source: &str, max: usize) -> Result<Vec<DeadLetter>, StoreError>;

    /// These dead letters, by number, need not be sent again.
    ///
    /// # Errors
    ///
    /// If that cannot be kept: they are given out again.
    fn were_sent(&mut self, numbers: &[i64]) -> Result<(), StoreError>;

    /// By how many partitions commands of this source are divided, if that is stored. If it is not, `found` is stored now.
    ///
    /// # Errors
    ///
    /// If the store does not work.
    fn divided_by(&mut self, source: &str, found: Option<u32>) -> Result<Option<u32>, StoreError>;

    /// From now on commands of this source are divided by `partitions`. Every one that was queued must be applied before,
    /// and nobody may be sending: else commands about one todo get out of order.
    ///
    /// # Errors
    ///
    /// If that cannot be stored.
    fn divide_by(&mut self, source: &str, partitions: u32) -> Result<(), StoreError>;

    /// Does what is left to do. Called often while nothing is delivered.
    fn idle(&mut self) {}
}

/// A state of a store. Of two revisions of one store the lesser is the older.
///
/// A restore from a backup takes the version back. Then the store gets a new timeline, so that nothing of the lost
/// time is taken for newer than what the store has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    /// Which history of the store: microseconds since 1970 when it was found to be a new one, or 0 for the first.
    pub timeline: u64,
    /// How many transactions this history has had.
    pub version: u64,
}

/// What a store held when it was read, as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// The revision that it is of.
    pub revision: Revision,
    /// How many todos it has.
    pub count: u64,
    /// The newest of them, newest first.
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
    /// Where the queue did not go on behind what the store had.
    pub breaks: Vec<Break>,
}

/// A delivery that is new to a store, at an offset of a topic that does not follow the last one applied. Topics have no gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Break {
    /// The partition of the topic.
    pub partition: u32,
    /// The offset behind the last command applied.
    pub expected: u64,
    /// That of the delivery. Above: the store never gets those in between. Below: the topic has lost commands, since it gave
    /// their offsets to new ones.
    pub found: u64,
}

impl Applied {
    /// Adds what the next transaction did.
    pub(crate) fn add(&mut self, next: Applied) {
        let Applied { changes, dead, repeated, breaks } = next;
        let id = |change: &Change| match change {
            Change::Is(todo) => todo.id,
            Change::Gone(id) => *id,
        };
        let newer: HashSet<Uuid> = changes.todos.iter().map(id).collect();
        self.changes.todos.retain(|change| !newer.contains(&id(change)));
        self.changes.todos.extend(changes.todos);
        self.changes.commands.extend(changes.commands);
        (self.changes.revision, self.changes.count) = (changes.revision, changes.count);
        self.dead += dead;
        self.repeated += repeated;
        self.breaks.extend(breaks);
    }
}

/// What is different from one version of the store to another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The revision after it.
    pub revision: Revision,
    /// How many todos there are then.
    pub count: u64,
    /// Todos as they are now. Each id at most once.
    pub todos: Vec<Change>,
    /// The outcomes of commands, in order.
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

/// The outcome of a command.
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
    /// Identifies it within the store.
    pub number: i64,
    /// Where it came from, as `source/partition/offset`; empty parts if it had no position.
    pub origin: String,
    /// What was in the queue.
    pub bytes: Vec<u8>,
    /// Why it could not be applied.
    pub reason: String,
    /// When that was found, in microseconds since 1970.
    pub time_us: i64,
}

/// Whether a source may deliver a command twice, under another position each time.
pub(crate) fn is_shared(source: &str) -> bool {
    source.starts_with("kafka/")
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
pub struct StoreError {
    message: String,
    is_permanent: bool,
}

impl StoreError {
    /// With a sentence for the operator. Retrying may help.
    pub fn new(message: impl Into<String>) -> StoreError {
        StoreError { message: message.into(), is_permanent: false }
    }

    /// The same, if retrying does not help: somebody has to change something.
    pub fn permanent(message: impl Into<String>) -> StoreError {
        StoreError { message: message.into(), is_permanent: true }
    }

    /// Whether retrying is useless.
    pub fn is_permanent(&self) -> bool {
        self.is_permanent
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl error::Error for StoreError {}
