//! Applying a batch: the affected rows are read, the commands are applied to them in memory, in order, and the
//! differences are written. So a batch costs a handful of statements, however many commands it has.
//!
//! The row of `todo_state` is locked from the first statement to the commit. So at most one transaction applies
//! at a time, whichever process it belongs to: after a rebalance, a consumer that does not know yet that it lost
//! a partition and the one that has it now wait for each other, and the second finds the commands applied.
//!
//! Repetitions are recognized by the commands' ids. Offsets alone would not suffice: two instances with a journal each,
//! or a topic that was deleted and recreated, count from zero. The offset decides only for commands older than the
//! stored ids: otherwise a consumer that returns weeks later and receives everything again would apply it again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::slice;

use highwater::logging::rate_limited;
use tokio_postgres::Transaction;
use uuid::Uuid;

use super::link::Failure;
use super::statements::{self, Statements, letter, time};
use crate::command::{Action, Command};
use crate::queue::{Delivery, Position};
use crate::store::{Applied, COMMANDS_KEPT_US, Change, Changes, Outcome, is_shared, origin};
use crate::todo::{Todo, now_us};

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
    let mut batch = Batch::begin(transaction, statements, source).await?;
    batch.step(transaction, deliveries).await?;
    batch.end(transaction, deliveries).await
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
    let mut batch = Batch::begin(transaction, statements, source).await?;
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
    batch.end(transaction, deliveries).await
}

/// What a transaction has done so far.
struct Batch<'a> {
    statements: &'a Statements,
    source: &'a str,
    /// The version of what it writes.
    version: i64,
    timeline: i64,
    /// How many todos there are.
    count: i64,
    /// What was applied before, where offsets can tell.
    positions: HashMap<u32, u64>,
    now_us: i64,
    /// A command that was written under that version, if any was.
    stamp: Option<Uuid>,
    changed: BTreeMap<Uuid, Change>,
    outcomes: Vec<(Uuid, Outcome)>,
    dead: u64,
    repeated: u64,
}

impl<'a> Batch<'a> {
    async fn begin(
        transaction: &Transaction<'_>,
        statements: &'a Statements,
        source: &'a str,
    ) -> Result<Batch<'a>, Failure> {
        let row = transaction.query_one(&statements.lock, &[]).await?;
        let (version, timeline): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let count = row.try_get(2)?;
        let positions = match is_shared(source) {
            true => {
                let rows = transaction.query(&statements.positions, &[&source]).await?;
                statements::positions(source, &rows)?.into_iter().collect()
            }
            false => HashMap::new(),
        };
        Ok(Batch {
            statements,
            source,
            version: version + 1,
            timeline,
            count,
            positions,
            now_us: now_us(),
            stamp: None,
            changed: BTreeMap::new(),
            outcomes: Vec::new(),
            dead: 0,
            repeated: 0,
        })
    }

    /// Applies `deliveries`. If it fails, what it wrote must be rolled back.
    async fn step(
        &mut self,
        transaction: &Transaction<'_>,
        deliveries: &[Delivery],
    ) -> Result<(), Failure> {
        let commands: Vec<&Command> =
            deliveries.iter().filter_map(|delivery| delivery.content.as_ref().ok()).collect();
        let positions = deliveries.iter().filter(|delivery| delivery.content.is_ok());
        let positions: Vec<_> = positions.map(|delivery| delivery.position).collect();
        let (mut known, mut todos) = read(transaction, self.statements, &commands).await?;
        let before: HashSet<Uuid> = todos.keys().copied().collect();
        let mut fresh = Vec::new();
        let mut outcomes = Vec::new();
        let mut changed = BTreeMap::new();
        let mut repeated = 0;
        for (command, position) in commands.into_iter().zip(positions) {
            if let Some(outcome) = known.get(&command.id) {
                repeated += 1;
                outcomes.push((command.id, outcome.clone()));
                continue;
            }
            if self.is_forgotten(command, position) {
                repeated += 1;
                outcomes.push((command.id, Outcome::Done));
                continue;
            }
            let (outcome, is_changed) = change(&mut todos, command);
            if is_changed {
                changed.insert(command.todo, ());
            }
            known.insert(command.id, outcome.clone());
            fresh.push((command.id, outcome.clone()));
            outcomes.push((command.id, outcome));
        }
        let changes = changed.into_keys().map(|id| match todos.remove(&id) {
            Some(todo) => (id, Change::Is(todo)),
            None => (id, Change::Gone(id)),
        });
        let changes: BTreeMap<Uuid, Change> = changes.collect();
        let added = changes.iter().map(|(id, change)| match change {
            Change::Is(_) => i64::from(!before.contains(id)),
            Change::Gone(_) => -i64::from(before.contains(id)),
        });
        let added: i64 = added.sum();
        self.write(transaction, &changes, &fresh).await?;
        let mut dead = 0;
        for delivery in deliveries {
            let Err(poison) = &delivery.content else { continue };
            match self.bury(transaction, delivery, &poison.bytes, &poison.reason).await? {
                true => dead += 1,
                false => repeated += 1,
            }
        }
        self.count += added;
        self.changed.extend(changes);
        self.outcomes.extend(outcomes);
        self.stamp = self.stamp.or(fresh.first().map(|(id, _)| *id));
        self.dead += dead;
        self.repeated += repeated;
        Ok(())
    }

    /// Whether it was applied so long ago that its id is not known any more.
    fn is_forgotten(&self, command: &Command, position: Option<Position>) -> bool {
        let is_old = command.requested_us < self.now_us.saturating_sub(COMMANDS_KEPT_US);
        let is_below = |position: Position| {
            self.positions.get(&position.partition).is_some_and(|next| position.offset < *next)
        };
        let is_forgotten = is_old && position.is_some_and(is_below);
        if is_forgotten {
            rate_limited!(WARN, command = %command.id, "a command of weeks ago was delivered again; it is not applied again");
        }
        is_forgotten
    }

    async fn write(
        &self,
        transaction: &Transaction<'_>,
        changes: &BTreeMap<Uuid, Change>,
        fresh: &[(Uuid, Outcome)],
    ) -> Result<(), Failure> {
        if fresh.is_empty() {
            return Ok(());
        }
        let (mut are, mut gone) = (Vec::new(), Vec::new());
        for change in changes.values() {
            match change {
                Change::Is(todo) => are.push(todo),
                Change::Gone(id) => gone.push(*id),
            }
        }
        if !are.is_empty() {
            self.upsert(transaction, &are).await?;
        }
        if !gone.is_empty() {
            transaction.execute(&self.statements.delete, &[&gone]).await?;
            transaction.execute(&self.statements.bury, &[&gone, &self.version]).await?;
        }
        let ids: Vec<Uuid> = fresh.iter().map(|(id, _)| *id).collect();
        let letters: Vec<i8> = fresh.iter().map(|(_, outcome)| letter(outcome).0).collect();
        let reasons: Vec<Option<&str>> =
            fresh.iter().map(|(_, outcome)| letter(outcome).1).collect();
        let record = &self.statements.record;
        transaction.execute(record, &[&ids, &letters, &reasons, &self.version]).await?;
        Ok(())
    }

    async fn upsert(&self, transaction: &Transaction<'_>, todos: &[&Todo]) -> Result<(), Failure> {
        fn column<'t, T>(todos: &[&'t Todo], value: impl Fn(&'t Todo) -> T) -> Vec<T> {
            todos.iter().map(|todo| value(todo)).collect()
        }
        let ids = column(todos, |todo| todo.id);
        transaction
            .execute(
                &self.statements.upsert,
                &[
                    &ids,
                    &column(todos, |todo| todo.title.as_str()),
                    &column(todos, |todo| todo.description.as_str()),
                    &column(todos, |todo| todo.completed),
                    &column(todos, |todo| todo.user_id.as_str()),
                    &column(todos, |todo| time(todo.created_us)),
                    &column(todos, |todo| time(todo.updated_us)),
                    &self.version,
                ],
            )
            .await?;
        transaction.execute(&self.statements.revive, &[&ids]).await?;
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
        self.write(transaction, &BTreeMap::new(), slice::from_ref(&outcome)).await?;
        self.stamp = self.stamp.or(Some(command.id));
        self.dead += 1;
        self.outcomes.push(outcome);
        Ok(())
    }

    async fn end(
        self,
        transaction: &Transaction<'_>,
        deliveries: &[Delivery],
    ) -> Result<Applied, Failure> {
        let mut positions = BTreeMap::new();
        for position in deliveries.iter().filter_map(|delivery| delivery.position) {
            let next = positions.entry(position.partition).or_insert(0);
            *next = position.offset.saturating_add(1).max(*next);
        }
        for (partition, next) in positions {
            let partition = i32::try_from(partition).unwrap_or(i32::MAX);
            let next = i64::try_from(next).unwrap_or(i64::MAX);
            let position = &self.statements.position;
            transaction.execute(position, &[&self.source, &partition, &next]).await?;
        }
        let version = if self.stamp.is_some() { self.version } else { self.version - 1 };
        if self.stamp.is_some() {
            transaction
                .execute(&self.statements.advance, &[&version, &self.stamp, &self.count])
                .await?;
            transaction.execute(&self.statements.notify, &[]).await?;
        }
        let changes = Changes {
            revision: statements::revision(version, self.timeline)?,
            count: statements::count(self.count)?,
            todos: self.changed.into_values().collect(),
            commands: self.outcomes,
        };
        Ok(Applied { changes, dead: self.dead, repeated: self.repeated })
    }
}

/// Which of `commands` were applied before, and the todos they are about.
async fn read(
    transaction: &Transaction<'_>,
    statements: &Statements,
    commands: &[&Command],
) -> Result<(HashMap<Uuid, Outcome>, HashMap<Uuid, Todo>), Failure> {
    if commands.is_empty() {
        return Ok(Default::default());
    }
    let ids: Vec<Uuid> = commands.iter().map(|command| command.id).collect();
    let about: Vec<Uuid> = commands.iter().map(|command| command.todo).collect();
    let known = transaction.query(&statements.known, &[&ids]).await?;
    let touched = transaction.query(&statements.touched, &[&about]).await?;
    let known = known.iter().map(statements::outcome).collect::<Result<_, _>>()?;
    let todos = touched.iter().map(|row| statements::todo(row).map(|todo| (todo.id, todo)));
    Ok((known, todos.collect::<Result<_, _>>()?))
}

/// Applies a command to the todos that it may be about; answers what becomes of it, and whether it changed
/// anything.
fn change(todos: &mut HashMap<Uuid, Todo>, command: &Command) -> (Outcome, bool) {
    let owned = todos.get_mut(&command.todo).filter(|todo| todo.user_id == command.user_id);
    match (&command.action, owned) {
        (Action::Create { title, description }, _) => {
            let is_new = !todos.contains_key(&command.todo);
            if is_new {
                let todo = Todo {
                    id: command.todo,
                    title: title.clone(),
                    description: description.clone(),
                    completed: false,
                    user_id: command.user_id.clone(),
                    created_us: command.requested_us,
                    updated_us: command.requested_us,
                };
                todos.insert(todo.id, todo);
            }
            (Outcome::Done, is_new)
        }
        (_, None) => (Outcome::NotFound, false),
        (Action::Update { title, description, completed }, Some(todo)) => {
            if let Some(title) = title {
                todo.title.clone_from(title);
            }
            if let Some(description) = description {
                todo.description.clone_from(description);
            }
            todo.completed = completed.unwrap_or(todo.completed);
            todo.updated_us = todo.updated_us.max(command.requested_us);
            (Outcome::Done, true)
        }
        (Action::Delete, Some(_)) => {
            todos.remove(&command.todo);
            (Outcome::Done, true)
        }
    }
}
