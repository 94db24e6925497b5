//! Applying a batch: one transaction of deliveries.

use std::collections::BTreeMap;

use rusqlite::{ErrorCode, OptionalExtension as _, Transaction, params};
use uuid::Uuid;

use super::{count, positions, revision, todo};
use crate::command::{Action, Command};
use crate::queue::{Delivery, Position};
use crate::store::{
    Applied, COMMANDS_KEPT_US, Change, DEAD_LETTERS_MAX, Outcome, Revision, is_shared, origin,
};
use crate::todo::{Todo, now_us};

const CREATE: &str =
    "INSERT INTO todos VALUES (?1, ?2, ?3, 0, ?4, ?5, ?5, ?6) ON CONFLICT (id) DO NOTHING";

const UPDATE: &str = "UPDATE todos SET
    title = coalesce(?3, title), description = coalesce(?4, description),
    completed = coalesce(?5, completed), updated_us = max(updated_us, ?6), version = ?7
WHERE id = ?1 AND user_id = ?2
RETURNING id, title, description, completed, user_id, created_us, updated_us";

const DELETE: &str = "DELETE FROM todos WHERE id = ?1 AND user_id = ?2";

/// One transaction of deliveries.
pub(super) struct Application<'t> {
    transaction: &'t Transaction<'t>,
    source: &'t str,
    revision: Revision,
    /// How many todos there are.
    count: i64,
    now_us: i64,
    positions: BTreeMap<u32, u64>,
    /// What todos have become.
    changed: BTreeMap<Uuid, Option<Todo>>,
    applied: Applied,
}

impl<'t> Application<'t> {
    pub(super) fn begin(
        transaction: &'t Transaction<'t>,
        source: &'t str,
    ) -> rusqlite::Result<Application<'t>> {
        let Revision { timeline, version } = revision(transaction)?;
        let revision = Revision { timeline, version: version + 1 };
        let positions = positions(transaction, source)?;
        let (changed, applied) = (BTreeMap::new(), Applied::default());
        let (count, now_us) = (count(transaction)?, now_us());
        Ok(Application {
            transaction,
            source,
            revision,
            count,
            now_us,
            positions,
            changed,
            applied,
        })
    }

    /// What became of a delivery that was applied before.
    fn repeated(&self, delivery: &Delivery) -> rusqlite::Result<Option<Outcome>> {
        let is_below = |position: Position| {
            self.positions.get(&position.partition).is_some_and(|next| position.offset < *next)
        };
        let is_below = delivery.position.is_some_and(is_below);
        let command = match &delivery.content {
            Ok(command) if is_shared(self.source) => command,
            Err(poison) if is_shared(self.source) => {
                let mut select = self.transaction.prepare_cached(
                    "SELECT 1 FROM dead_letters WHERE origin = ?1 AND bytes = ?2",
                )?;
                let is_known =
                    select.exists(params![origin(self.source, delivery), poison.bytes])?;
                return Ok(is_known.then_some(Outcome::Done));
            }
            // Who waits for it has waited for the first delivery.
            _ => return Ok(is_below.then_some(Outcome::Done)),
        };
        let mut select =
            self.transaction.prepare_cached("SELECT reason FROM applied_commands WHERE id = ?1")?;
        let known = select.query_row([command.id.as_bytes()], |row| row.get(0)).optional()?;
        if let Some(reason) = known {
            return Ok(Some(match reason {
                None => Outcome::Done,
                Some(reason) if String::is_empty(&reason) => Outcome::NotFound,
                Some(reason) => Outcome::Dead(reason),
            }));
        }
        // So old that its id may have been removed.
        let mut select = self.transaction.prepare_cached("SELECT forgotten_us FROM versions")?;
        let is_old = command.requested_us < select.query_row([], |row| row.get::<_, i64>(0))?;
        Ok((is_below && is_old).then_some(Outcome::Done))
    }

    /// Remembers what became of a command that may be delivered again under another position.
    fn remember(&self, command: &Command, outcome: &Outcome) -> rusqlite::Result<()> {
        if !is_shared(self.source) {
            return Ok(());
        }
        let reason = match outcome {
            Outcome::Done => None,
            Outcome::NotFound => Some(""),
            Outcome::Dead(reason) => Some(reason.as_str()),
        };
        let mut insert =
            self.transaction.prepare_cached("INSERT INTO applied_commands VALUES (?1, ?2, ?3)")?;
        // It stays as long as a clock that was wrong when the command was requested may say that it is new.
        let applied_us = self.now_us.max(command.requested_us);
        insert.execute(params![command.id.as_bytes(), reason, applied_us])?;
        Ok(())
    }

    /// Removes some ids that are too old; more than are added.
    fn clean(&self, deliveries: usize) -> rusqlite::Result<()> {
        if is_shared(self.source) {
            let old_us = self.now_us - COMMANDS_KEPT_US;
            let mut delete = self.transaction.prepare_cached(
                "DELETE FROM applied_commands WHERE id IN (
                     SELECT id FROM applied_commands WHERE applied_us < ?1 LIMIT ?2)",
            )?;
            if delete.execute(params![old_us, 2 * deliveries as i64])? > 0 {
                let mut raise = self
                    .transaction
                    .prepare_cached("UPDATE versions SET forgotten_us = max(forgotten_us, ?1)")?;
                raise.execute([old_us])?;
            }
        }
        Ok(())
    }

    pub(super) fn run(mut self, deliveries: &[Delivery]) -> rusqlite::Result<Applied> {
        for delivery in deliveries {
            if let Some(outcome) = self.repeated(delivery)? {
                self.applied.repeated += 1;
                if let Ok(command) = &delivery.content {
                    self.applied.changes.commands.push((command.id, outcome));
                }
            } else {
                self.deliver(delivery)?;
            }
            if let Some(position) = delivery.position {
                let next = self.positions.entry(position.partition).or_insert(0);
                *next = position.offset.saturating_add(1).max(*next);
            }
        }
        self.clean(deliveries.len())?;
        self.finish()
    }

    fn deliver(&mut self, delivery: &Delivery) -> rusqlite::Result<()> {
        match &delivery.content {
            Ok(command) => {
                let outcome = match self.command(command) {
                    Err(error) if is_for_ever(&error) => {
                        let reason = format!("the database refuses it: {error}");
                        self.bury(delivery, &command.encode(), &reason)?;
                        Outcome::Dead(reason)
                    }
                    other => other?,
                };
                self.remember(command, &outcome)?;
                self.applied.changes.commands.push((command.id, outcome));
                Ok(())
            }
            Err(poison) => self.bury(delivery, &poison.bytes, &poison.reason),
        }
    }

    fn command(&mut self, command: &Command) -> rusqlite::Result<Outcome> {
        let Command { todo: id, user_id, requested_us, .. } = command;
        let mut text = [0; 36];
        let key: &str = id.as_hyphenated().encode_lower(&mut text);
        match &command.action {
            Action::Create { title, description } => {
                let mut create = self.transaction.prepare_cached(CREATE)?;
                let version = self.revision.version as i64;
                let values = params![key, title, description, user_id, requested_us, version];
                if create.execute(values)? == 1 {
                    let todo = Todo {
                        id: *id,
                        title: title.clone(),
                        description: description.clone(),
                        completed: false,
                        user_id: user_id.clone(),
                        created_us: *requested_us,
                        updated_us: *requested_us,
                    };
                    self.changed.insert(*id, Some(todo));
                    self.count += 1;
                }
                Ok(Outcome::Done)
            }
            Action::Update { title, description, completed } => {
                let mut update = self.transaction.prepare_cached(UPDATE)?;
                let values = params![
                    key,
                    user_id,
                    title,
                    description,
                    completed,
                    requested_us,
                    self.revision.version as i64
                ];
                let Some(todo) = update.query_row(values, todo).optional()? else {
                    return Ok(Outcome::NotFound);
                };
                self.changed.insert(*id, Some(todo));
                Ok(Outcome::Done)
            }
            Action::Delete => {
                let mut delete = self.transaction.prepare_cached(DELETE)?;
                if delete.execute(params![key, user_id])? == 0 {
                    return Ok(Outcome::NotFound);
                }
                self.changed.insert(*id, None);
                self.count -= 1;
                Ok(Outcome::Done)
            }
        }
    }

    /// Keeps what cannot be applied.
    fn bury(&mut self, delivery: &Delivery, bytes: &[u8], reason: &str) -> rusqlite::Result<()> {
        let origin = origin(self.source, delivery);
        let mut insert = self.transaction.prepare_cached(
            "INSERT INTO dead_letters (origin, bytes, reason, time_us, sent) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        insert.execute(params![origin, bytes, reason, self.now_us, !is_shared(self.source)])?;
        let oldest = self.transaction.last_insert_rowid() - DEAD_LETTERS_MAX as i64;
        let mut forget =
            self.transaction.prepare_cached("DELETE FROM dead_letters WHERE number <= ?1")?;
        forget.execute([oldest])?;
        self.applied.dead += 1;
        Ok(())
    }

    fn finish(mut self) -> rusqlite::Result<Applied> {
        for (partition, next) in &self.positions {
            self.transaction
                .prepare_cached(
                    "INSERT INTO positions VALUES (?1, ?2, ?3)
                     ON CONFLICT (source, partition) DO UPDATE SET next_offset = excluded.next_offset",
                )?
                .execute(params![self.source, partition, *next as i64])?;
        }
        if !self.changed.is_empty() {
            self.transaction
                .prepare_cached("UPDATE versions SET version = ?1, todos = ?2")?
                .execute([self.revision.version as i64, self.count])?;
        } else {
            self.revision.version -= 1;
        }
        let change = |(id, todo): (Uuid, Option<Todo>)| todo.map_or(Change::Gone(id), Change::Is);
        self.applied.changes.revision = self.revision;
        self.applied.changes.count = self.count as u64;
        self.applied.changes.todos = self.changed.into_iter().map(change).collect();
        Ok(self.applied)
    }
}

/// Whether the error is about the values: it would come again for ever.
fn is_for_ever(error: &rusqlite::Error) -> bool {
    let for_ever = [ErrorCode::ConstraintViolation, ErrorCode::TypeMismatch, ErrorCode::TooBig];
    error.sqlite_error_code().is_some_and(|code| for_ever.contains(&code))
}
