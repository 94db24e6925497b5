//! The tables and their migrations.

use tokio_postgres::Client;

use super::link::Failure;

/// The last migration that this version knows.
pub(super) const VERSION: i32 = MIGRATIONS.len() as i32;

/// Serializes migrations among processes that start together: "HWto".
const LOCK: &str = "SELECT pg_advisory_xact_lock(1213691999)";

const TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_migrations (
    version integer PRIMARY KEY,
    applied_at timestamptz NOT NULL DEFAULT now()
)";

/// Each is run once, in order; one that was released is never changed.
const MIGRATIONS: &[&str] = &["
CREATE TABLE todos (
    id uuid PRIMARY KEY,
    title text NOT NULL,
    description text NOT NULL,
    completed boolean NOT NULL,
    user_id text NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    -- That of the transaction which changed it last.
    version bigint NOT NULL
);
CREATE INDEX todos_by_version ON todos (version);

-- One row. Who applies commands locks it first, so versions are in the order of commits: who sees version n sees
-- everything of it and nothing of n + 1.
CREATE TABLE todo_state (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    version bigint NOT NULL,
    -- What was deleted up to this version is not known any more.
    horizon bigint NOT NULL
);
INSERT INTO todo_state (version, horizon) VALUES (0, 0);

-- Todos that are gone, for instances that have not learned of it yet.
CREATE TABLE todo_tombstones (
    id uuid PRIMARY KEY,
    version bigint NOT NULL,
    gone_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX todo_tombstones_by_version ON todo_tombstones (version);

-- Commands that were applied, so that one which a queue delivers twice is applied once.
CREATE TABLE applied_commands (
    id uuid PRIMARY KEY,
    version bigint NOT NULL,
    -- d: done; n: not found; x: a dead letter, and why.
    outcome \"char\" NOT NULL,
    reason text,
    applied_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX applied_commands_by_version ON applied_commands (version);
CREATE INDEX applied_commands_by_time ON applied_commands USING brin (applied_at);

-- The offset behind the last command applied, for those who watch.
CREATE TABLE positions (
    source text NOT NULL,
    partition_number integer NOT NULL,
    next_offset bigint NOT NULL,
    PRIMARY KEY (source, partition_number)
);

CREATE TABLE dead_letters (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- source/partition/offset
    origin text NOT NULL,
    bytes bytea NOT NULL,
    reason text NOT NULL,
    dead_at timestamptz NOT NULL DEFAULT now()
);
-- A delivery that is repeated is dead once.
CREATE UNIQUE INDEX dead_letters_once ON dead_letters (origin, md5(bytes));
", "
-- Which history of the store this is: a restore takes the version back, and is given a new timeline.
ALTER TABLE todo_state ADD COLUMN timeline bigint NOT NULL DEFAULT 0;
-- A command of the last version: who knows an older version with its command finds it in applied_commands, or knows that
-- the history is another one.
ALTER TABLE todo_state ADD COLUMN stamp uuid;

-- When a dead letter was sent to the topic of dead letters; null while it is to be.
ALTER TABLE dead_letters ADD COLUMN sent_at timestamptz;
UPDATE dead_letters SET sent_at = dead_at;
CREATE INDEX dead_letters_unsent ON dead_letters (number) WHERE sent_at IS NULL;
", "
-- Instances read the newest todos, and the rest one by one.
CREATE INDEX todos_newest_first ON todos (created_at DESC, id DESC);
-- How many todos there are.
ALTER TABLE todo_state ADD COLUMN todos bigint NOT NULL DEFAULT 0;
UPDATE todo_state SET todos = (SELECT count(*) FROM todos);
", "
-- Several transactions apply at once. Each marks what it writes with a number that it takes when it begins, and takes the
-- next version when it ends: so versions are still in the order of commits.
CREATE SEQUENCE todo_batches;
SELECT setval('todo_batches', greatest(version, 1)) FROM todo_state;
ALTER TABLE todos RENAME COLUMN version TO batch;
ALTER INDEX todos_by_version RENAME TO todos_by_batch;
ALTER TABLE todo_tombstones RENAME COLUMN version TO batch;
ALTER INDEX todo_tombstones_by_version RENAME TO todo_tombstones_by_batch;
ALTER TABLE applied_commands RENAME COLUMN version TO batch;
ALTER INDEX applied_commands_by_version RENAME TO applied_commands_by_batch;

-- Which batch made a version, from the horizon on.
CREATE TABLE todo_versions (
    version bigint PRIMARY KEY,
    batch bigint NOT NULL,
    -- Drawn by its transaction: it distinguishes the version from the same one of another history.
    stamp uuid NOT NULL,
    made_at timestamptz NOT NULL DEFAULT now()
);
-- The ids of commands that were requested before this may have been removed.
ALTER TABLE todo_state ADD COLUMN forgotten_at timestamptz NOT NULL DEFAULT now() - interval '14 days';
INSERT INTO todo_versions (version, batch, stamp)
    SELECT version, version, stamp FROM todo_state WHERE stamp IS NOT NULL;
UPDATE todo_state SET horizon = version;
DELETE FROM todo_tombstones;

-- By how many partitions the commands of a topic are divided: not by more, while the topic has more.
CREATE TABLE queue_partitions (
    source text PRIMARY KEY,
    partitions integer NOT NULL CHECK (partitions > 0)
);
", "
-- The oldest ids are removed first. A BRIN index does not find them: its ranges stay as old as their first rows were, which
-- have gone, so the whole table was read.
-- Writes wait while it is built. Not CONCURRENTLY: that cannot be part of a transaction, and waits for every other one, such as
-- those of instances that start at the same time and wait for this migration. Where the table is large, it can be made so
-- before the new version starts, which then finds it.
CREATE INDEX IF NOT EXISTS applied_commands_oldest_first ON applied_commands (applied_at);
DROP INDEX applied_commands_by_time;
"];

/// Brings the tables to this version.
///
/// # Errors
///
/// If they are of a later version, or the server fails.
pub(super) async fn migrate(client: &mut Client) -> Result<(), Failure> {
    let transaction = client.transaction().await?;
    transaction.batch_execute(LOCK).await?;
    transaction.batch_execute(TABLE).await?;
    let row = transaction
        .query_one("SELECT coalesce(max(version), 0) FROM schema_migrations", &[])
        .await?;
    let version: i32 = row.try_get(0)?;
    if version > VERSION {
        return Err(Failure::Schema(version));
    }
    let known = usize::try_from(version).unwrap_or(0);
    for (number, migration) in (1i32..).zip(MIGRATIONS).skip(known) {
        transaction.batch_execute(migration).await?;
        transaction
            .execute("INSERT INTO schema_migrations (version) VALUES ($1)", &[&number])
            .await?;
    }
    Ok(transaction.commit().await?)
}
