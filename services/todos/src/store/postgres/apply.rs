//! Applying a batch: the affected rows are read, [`decide`] says what becomes of them, and the differences are written.
//! So a batch costs a handful of statements, however many commands it has.
//!
//! ```text
//!  claim the partitions ─▶ read ─▶ decide ─▶ write under a batch number ─▶ take the next version ─▶ commit
//!  └ locks their rows                                                      └ locks the row of todo_state
//! ```
//!
//! Several transactions run at once, each with other partitions. Those of one partition wait for each other, whichever
//! processes they belong to: after a rebalance, a consumer that does not know yet that it lost a partition and the one
//! that has it now wait for each other, and the second finds the commands applied. The rows of the affected todos are
//! locked as well: where a topic was given more partitions, one todo may have commands in two of them.
//!
//! What a transaction writes carries its batch number, which it has from the beginning. Only at the end it takes the
//! next version, and holds that row's lock for one statement and the commit. So versions are in the order of commits,
//! and who sees version n sees everything of it and of the versions before, and nothing of n + 1.
//!
//! Repetitions are recognized by the commands' ids. Offsets alone would not suffice: a topic that was deleted and
//! recreated counts from zero. The offset decides only for commands older than the
//! stored ids: otherwise a consumer that returns weeks later and receives everything again would apply it again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::slice;
use std::time::SystemTime;

// Biased: the server refuses what follows a statement that failed, and the first error says why.
use tokio::try_join;
use tokio_postgres::Transaction;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::link::Failure;
use super::statements::{self, Statements, letter, microseconds, time};
use crate::command::Command;
use crate::queue::{Delivery, Position};
use crate::store::decision::{Decision, Known, decide};
use crate::store::{Applied, Break, Change, Changes, Outcome, is_shared, origin};
use crate::todo::Todo;

/// Applies `deliveries` together.
///
/// # Errors
///
/// If the server fails. If it refuses a value ([`Failure::refused_value`]), [`apply_each`] finds whose.
pub(super) async fn apply_together(
    transaction: &mut Transaction<'_>,
    statements: &Statements,
    source: &str,
    deliveries: &[Delivery],
) -> Result<Applied, Failure> {
    let mut batch = Batch::begin(transaction, statements, source, deliveries).await?;
    batch.step(transaction, deliveries).await?;
    batch.end(transaction).await
}

/// Applies `deliveries` one after the other; a command that the server refuses becomes a dead letter.
///
/// # Errors
///
/// If the server fails.
pub(super) async fn apply_each(
    transaction: &mut Transaction<'_>,
    statements: &Statements,
    source: &str,
    deliveries: &[Delivery],
) -> Result<Applied, Failure> {
    let mut batch = Batch::begin(transaction, statements, source, deliveries).await?;
    for delivery in deliveries {
        let savepoint = transaction.transaction().await?;
        let failure = match batch.step(&savepoint, slice::from_ref(delivery)).await {
            Ok(()) => {
                savepoint.commit().await?;
                continue;
            }
            Err(failure) => failure,
        };
        savepoint.rollback().await?;
        let (Some(reason), Ok(command)) = (failure.refused_value(), &delivery.content) else {
            return Err(failure);
        };
        batch.give_up(transaction, delivery, command, reason).await?;
    }
    batch.end(transaction).await
}

/// What a transaction has done so far.
struct Batch<'a> {
    statements: &'a Statements,
    source: &'a str,
    /// What everything that it writes is marked with.
    number: i64,
    /// The offset behind its last command, for each partition.
    next: BTreeMap<i32, i64>,
    /// The offset behind the last command applied, for each partition.
    positions: HashMap<u32, u64>,
    /// Whether anything was.
    has_written: bool,
    changed: BTreeMap<Uuid, Change>,
    outcomes: Vec<(Uuid, Outcome)>,
    added: i64,
    dead: u64,
    repeated: u64,
    breaks: Vec<Break>,
}

impl<'a> Batch<'a> {
    /// Takes a number, and waits for other transactions with the same partitions.
    async fn begin(
        transaction: &Transaction<'_>,
        statements: &'a Statements,
        source: &'a str,
        deliveries: &[Delivery],
    ) -> Result<Batch<'a>, Failure> {
        let next = behind(deliveries);
        let partitions: Vec<i32> = next.keys().copied().collect();
        let claim: [&(dyn ToSql + Sync); 2] = [&source, &partitions];
        let (number, mut claimed) = try_join!(
            biased;
            transaction.query_one(&statements.number, &[]),
            transaction.query(&statements.claim, &claim),
        )?;
        if claimed.len() < partitions.len() {
            transaction.execute(&statements.begin, &claim).await?;
            claimed = transaction.query(&statements.claim, &claim).await?;
        }
        let positions = statements::positions(source, &claimed)?.into_iter().collect();
        // A journal's offsets have gaps, and its reader says what is lost.
        let breaks = if is_shared(source) { skipped(&positions, deliveries) } else { Vec::new() };
        Ok(Batch {
            statements,
            source,
            number: number.try_get(0)?,
            next,
            positions,
            has_written: false,
            changed: BTreeMap::new(),
            outcomes: Vec::new(),
            added: 0,
            dead: 0,
            repeated: 0,
            breaks,
        })
    }

    /// Applies `deliveries`. If it fails, what it wrote must be rolled back.
    async fn step(
        &mut self,
        transaction: &Transaction<'_>,
        deliveries: &[Delivery],
    ) -> Result<(), Failure> {
        let known = self.read(transaction, deliveries).await?;
        let decision = decide(known, deliveries);
        self.write(transaction, &decision, deliveries).await?;
        let (mut dead, mut repeated) = (0, decision.repeated);
        for delivery in deliveries {
            let Err(poison) = &delivery.content else { continue };
            match self.bury(transaction, delivery, &poison.bytes, &poison.reason).await? {
                true => dead += 1,
                false => repeated += 1,
            }
        }
        if is_shared(self.source) {
            self.breaks.extend(taken_back(&self.positions, deliveries, &decision));
        }
        self.added += decision.added;
        self.has_written |= !decision.fresh.is_empty();
        self.changed.extend(decision.changes);
        self.outcomes.extend(decision.outcomes);
        self.dead += dead;
        self.repeated += repeated;
        Ok(())
    }

    /// Which of the commands were applied before, and the todos they are about.
    async fn read(
        &self,
        transaction: &Transaction<'_>,
        deliveries: &[Delivery],
    ) -> Result<Known, Failure> {
        let positions = self.positions.clone();
        let commands = || deliveries.iter().filter_map(|delivery| delivery.content.as_ref().ok());
        let ids: Vec<Uuid> = commands().map(|command| command.id).collect();
        let about: Vec<Uuid> = commands().map(|command| command.todo).collect();
        if ids.is_empty() {
            return Ok(Known { positions, ..Known::default() });
        }
        // Each statement sees what was committed before it: ids that are removed after they were asked for do no harm.
        let (of_ids, of_todos): ([&(dyn ToSql + Sync); 1], [&(dyn ToSql + Sync); 1]) =
            ([&ids], [&about]);
        let (outcomes, todos, forgotten) = try_join!(
            biased;
            transaction.query(&self.statements.known, &of_ids),
            transaction.query(&self.statements.touched, &of_todos),
            transaction.query_one(&self.statements.forgotten, &[]),
        )?;
        let outcomes = outcomes.iter().map(statements::outcome).collect::<Result<_, _>>()?;
        let todos = todos.iter().map(|row| statements::todo(row).map(|todo| (todo.id, todo)));
        let todos = todos.collect::<Result<_, _>>()?;
        let forgotten_us = microseconds(forgotten.try_get(0)?);
        Ok(Known { outcomes, todos, positions, forgotten_us })
    }

    /// Writes what was decided, in one turn of the connection.
    async fn write(
        &self,
        transaction: &Transaction<'_>,
        decision: &Decision,
        deliveries: &[Delivery],
    ) -> Result<(), Failure> {
        let (mut are, mut gone) = (Vec::new(), Vec::new());
        for change in decision.changes.values() {
            match change {
                Change::Is(todo) => are.push(todo),
                Change::Gone(id) => gone.push(*id),
            }
        }
        try_join!(
            biased;
            self.upsert(transaction, &are),
            self.delete(transaction, &gone),
            self.record(transaction, &decision.fresh, deliveries),
        )?;
        Ok(())
    }

    async fn upsert(&self, transaction: &Transaction<'_>, todos: &[&Todo]) -> Result<(), Failure> {
        fn column<'t, T>(todos: &[&'t Todo], value: impl Fn(&'t Todo) -> T) -> Vec<T> {
            todos.iter().map(|todo| value(todo)).collect()
        }
        if todos.is_empty() {
            return Ok(());
        }
        let ids = column(todos, |todo| todo.id);
        let (titles, descriptions) = (
            column(todos, |todo| todo.title.as_str()),
            column(todos, |todo| todo.description.as_str()),
        );
        let (completed, users) =
            (column(todos, |todo| todo.completed), column(todos, |todo| todo.user_id.as_str()));
        let (created, updated) = (
            column(todos, |todo| time(todo.created_us)),
            column(todos, |todo| time(todo.updated_us)),
        );
        let values: [&(dyn ToSql + Sync); 8] =
            [&ids, &titles, &descriptions, &completed, &users, &created, &updated, &self.number];
        try_join!(
            biased;
            transaction.execute(&self.statements.upsert, &values),
            transaction.execute(&self.statements.revive, &values[..1]),
        )?;
        Ok(())
    }

    async fn delete(&self, transaction: &Transaction<'_>, gone: &[Uuid]) -> Result<(), Failure> {
        if gone.is_empty() {
            return Ok(());
        }
        let values: [&(dyn ToSql + Sync); 2] = [&gone, &self.number];
        try_join!(
            biased;
            transaction.execute(&self.statements.delete, &values[..1]),
            transaction.execute(&self.statements.bury, &values),
        )?;
        Ok(())
    }

    async fn record(
        &self,
        transaction: &Transaction<'_>,
        fresh: &[(Uuid, Outcome)],
        deliveries: &[Delivery],
    ) -> Result<(), Failure> {
        if fresh.is_empty() {
            return Ok(());
        }
        let commands = deliveries.iter().filter_map(|delivery| delivery.content.as_ref().ok());
        let requested: HashMap<Uuid, SystemTime> =
            commands.map(|command| (command.id, time(command.requested_us))).collect();
        let requested: Vec<Option<SystemTime>> =
            fresh.iter().map(|(id, _)| requested.get(id).copied()).collect();
        let ids: Vec<Uuid> = fresh.iter().map(|(id, _)| *id).collect();
        let letters: Vec<i8> = fresh.iter().map(|(_, outcome)| letter(outcome).0).collect();
        let reasons: Vec<Option<&str>> =
            fresh.iter().map(|(_, outcome)| letter(outcome).1).collect();
        let record = &self.statements.record;
        transaction.execute(record, &[&ids, &letters, &reasons, &requested, &self.number]).await?;
        Ok(())
    }

    /// Makes a dead letter of what stood at a delivery's place; answers whether there was none yet.
    async fn bury(
        &self,
        transaction: &Transaction<'_>,
        delivery: &Delivery,
        bytes: &[u8],
        reason: &str,
    ) -> Result<bool, Failure> {
        let origin = origin(self.source, delivery);
        // The reason may quote what the server refused.
        let reason = reason.replace('\0', "\u{FFFD}");
        let dead = &self.statements.dead;
        let is_to_be_sent = is_shared(self.source);
        Ok(transaction.execute(dead, &[&origin, &bytes, &reason, &is_to_be_sent]).await? == 1)
    }

    /// The server will never take `command`.
    async fn give_up(
        &mut self,
        transaction: &Transaction<'_>,
        delivery: &Delivery,
        command: &Command,
        reason: String,
    ) -> Result<(), Failure> {
        self.bury(transaction, delivery, &command.encode(), &reason).await?;
        let outcome = (command.id, Outcome::Dead(reason));
        self.record(transaction, slice::from_ref(&outcome), slice::from_ref(delivery)).await?;
        self.has_written = true;
        self.dead += 1;
        self.outcomes.push(outcome);
        Ok(())
    }

    /// Writes the positions; then takes the next version, if anything was applied.
    async fn end(self, transaction: &Transaction<'_>) -> Result<Applied, Failure> {
        let partitions: Vec<i32> = self.next.keys().copied().collect();
        let next: Vec<i64> = self.next.values().copied().collect();
        if !partitions.is_empty() {
            let position = &self.statements.position;
            transaction.execute(position, &[&self.source, &partitions, &next]).await?;
        }
        let state = match self.has_written {
            true => {
                let stamp = Uuid::from_u128(fastrand::u128(..));
                // From here to the commit no other transaction can end.
                let values: [&(dyn ToSql + Sync); 3] = [&self.number, &stamp, &self.added];
                let (state, _) = try_join!(
                    biased;
                    transaction.query_one(&self.statements.advance, &values),
                    transaction.execute(&self.statements.notify, &[]),
                )?;
                state
            }
            false => transaction.query_one(&self.statements.state, &[]).await?,
        };
        let changes = Changes {
            revision: statements::revision(state.try_get(0)?, state.try_get(1)?)?,
            count: statements::count(state.try_get(2)?)?,
            todos: self.changed.into_values().collect(),
            commands: self.outcomes,
        };
        let Batch { dead, repeated, breaks, .. } = self;
        Ok(Applied { changes, dead, repeated, breaks })
    }
}

/// The offset behind the last delivery of each partition.
fn behind(deliveries: &[Delivery]) -> BTreeMap<i32, i64> {
    let mut next = BTreeMap::new();
    for Position { partition, offset } in deliveries.iter().filter_map(|one| one.position) {
        let partition = i32::try_from(partition).unwrap_or(i32::MAX);
        let behind = i64::try_from(offset.saturating_add(1)).unwrap_or(i64::MAX);
        let next = next.entry(partition).or_insert(0);
        *next = behind.max(*next);
    }
    next
}

/// The partitions whose first delivery is behind the next that the store expects.
fn skipped(positions: &HashMap<u32, u64>, deliveries: &[Delivery]) -> Vec<Break> {
    let mut seen = HashSet::new();
    let first = deliveries.iter().filter_map(|one| one.position);
    let first = first.filter(|position| seen.insert(position.partition));
    let breaks = first.map(|position| against(positions, position));
    breaks.filter(|one| one.found > one.expected).collect()
}

/// The first command that the store did not have yet although it has passed its offset.
fn taken_back(
    positions: &HashMap<u32, u64>,
    deliveries: &[Delivery],
    decision: &Decision,
) -> Option<Break> {
    let is_fresh = |id: Uuid| decision.fresh.iter().any(|(fresh, _)| *fresh == id);
    deliveries.iter().find_map(|delivery| {
        let place = against(positions, delivery.position?);
        let is_below = place.found < place.expected;
        (is_below && is_fresh(delivery.content.as_ref().ok()?.id)).then_some(place)
    })
}

fn against(positions: &HashMap<u32, u64>, position: Position) -> Break {
    let Position { partition, offset: found } = position;
    Break { partition, expected: positions.get(&partition).copied().unwrap_or(0), found }
}
