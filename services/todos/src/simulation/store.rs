//! A store that does what the statements of `store/postgres` do: transactions that see what is committed, locks on
//! partitions, versions in the order of commits, and what is removed when.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uuid::Uuid;

use crate::command::Command;
use crate::feed::News;
use crate::queue::Delivery;
use crate::store::decision::{Decision, Known, decide};
use crate::store::history::{Doubt, Follower, State};
use crate::store::{COMMANDS_KEPT_US, Change, Changes, Loaded, Outcome, Revision};
use crate::todo::Todo;

/// As in `store/postgres`, only fewer, so that few versions are many.
const HISTORY_KEPT_US: i64 = 3_600_000_000;
const VERSIONS_KEPT: u64 = 5;

#[derive(Clone, Debug, Default)]
struct Tables {
    todos: BTreeMap<Uuid, (Todo, i64)>,
    tombstones: BTreeMap<Uuid, i64>,
    applied: BTreeMap<Uuid, (Outcome, i64, i64)>,
    versions: BTreeMap<u64, Version>,
    positions: BTreeMap<(String, u32), u64>,
    revision: Revision,
    stamp: Option<Uuid>,
    horizon: u64,
    forgotten_us: i64,
    count: i64,
    next_batch: i64,
}

#[derive(Clone, Debug)]
struct Version {
    batch: i64,
    stamp: Uuid,
    made_us: i64,
}

#[derive(Debug, Default)]
pub(crate) struct Store {
    tables: Tables,
    backup: Option<Tables>,
    /// Which transaction has which partition.
    claims: BTreeMap<(String, u32), u64>,
    transactions: u64,
    /// How many were drawn: never one twice, whatever is restored.
    stamps: u128,
    /// A restart of the server ends all transactions.
    restarts: u64,
}

/// A transaction that is under way.
#[derive(Debug)]
pub(crate) struct Transaction {
    id: u64,
    restarts: u64,
    batch: i64,
    decision: Option<Decision>,
}

/// What came of a commit.
pub(crate) struct Committed {
    pub(crate) revision: Revision,
    pub(crate) has_changed: bool,
    pub(crate) repeated: u64,
    /// The commands that it took for new.
    pub(crate) fresh: BTreeSet<Uuid>,
}

fn claims_of(source: &str, deliveries: &[Delivery]) -> BTreeSet<(String, u32)> {
    let positions = deliveries.iter().filter_map(|delivery| delivery.position);
    positions.map(|position| (source.to_owned(), position.partition)).collect()
}

impl Store {
    /// Begins, unless another transaction has one of the partitions: then it waits.
    pub(crate) fn begin(&mut self, source: &str, deliveries: &[Delivery]) -> Option<Transaction> {
        let claims = claims_of(source, deliveries);
        if claims.iter().any(|claim| self.claims.contains_key(claim)) {
            return None;
        }
        self.transactions += 1;
        self.tables.next_batch += 1;
        let id = self.transactions;
        self.claims.extend(claims.into_iter().map(|claim| (claim, id)));
        let (restarts, batch) = (self.restarts, self.tables.next_batch);
        Some(Transaction { id, restarts, batch, decision: None })
    }

    /// Reads what is known, and decides.
    pub(crate) fn read(
        &self,
        transaction: &mut Transaction,
        source: &str,
        deliveries: &[Delivery],
    ) {
        let tables = &self.tables;
        let commands = || deliveries.iter().filter_map(|delivery| delivery.content.as_ref().ok());
        let outcome =
            |command: &Command| Some((command.id, tables.applied.get(&command.id)?.0.clone()));
        let todo =
            |command: &Command| Some((command.todo, tables.todos.get(&command.todo)?.0.clone()));
        let positions = tables.positions.iter().filter(|((of, _), _)| of == source);
        let positions = positions.map(|((_, partition), next)| (*partition, *next)).collect();
        let known = Known {
            outcomes: commands().filter_map(outcome).collect(),
            todos: commands().filter_map(todo).collect(),
            positions,
            forgotten_us: tables.forgotten_us,
        };
        transaction.decision = Some(decide(known, deliveries));
    }

    /// `None`: the server was restarted meanwhile.
    pub(crate) fn commit(
        &mut self,
        transaction: Transaction,
        source: &str,
        deliveries: &[Delivery],
        now_us: i64,
    ) -> Option<Committed> {
        let is_lost = transaction.restarts != self.restarts;
        let Transaction { batch, decision, .. } = self.end(transaction);
        let decision = decision.filter(|_| !is_lost)?;
        let tables = &mut self.tables;
        let requested: HashMap<Uuid, i64> = deliveries
            .iter()
            .filter_map(|delivery| delivery.content.as_ref().ok())
            .map(|command| (command.id, command.requested_us))
            .collect();
        for (id, outcome) in &decision.fresh {
            let kept_us = now_us.max(requested[id]);
            let twice = tables.applied.insert(*id, (outcome.clone(), batch, kept_us));
            assert!(twice.is_none(), "the key of applied_commands: {id}");
        }
        let has_changed = !decision.changes.is_empty();
        for (id, change) in decision.changes {
            match change {
                Change::Is(todo) => {
                    tables.tombstones.remove(&id);
                    tables.todos.insert(id, (todo, batch));
                }
                Change::Gone(_) => {
                    tables.todos.remove(&id);
                    tables.tombstones.insert(id, batch);
                }
            }
        }
        for position in deliveries.iter().filter_map(|delivery| delivery.position) {
            let key = (source.to_owned(), position.partition);
            let next = tables.positions.entry(key).or_insert(0);
            *next = (*next).max(position.offset + 1);
        }
        let fresh = decision.fresh.iter().map(|(id, _)| *id).collect();
        if !decision.fresh.is_empty() {
            tables.revision.version += 1;
            self.stamps += 1;
            let stamp = Uuid::from_u128(self.stamps);
            tables.stamp = Some(stamp);
            tables.count += decision.added;
            tables
                .versions
                .insert(tables.revision.version, Version { batch, stamp, made_us: now_us });
        }
        Some(Committed {
            revision: tables.revision,
            has_changed,
            repeated: decision.repeated,
            fresh,
        })
    }

    /// Ends it: nothing of it was written.
    pub(crate) fn roll_back(&mut self, transaction: Transaction) {
        self.end(transaction);
    }

    fn end(&mut self, transaction: Transaction) -> Transaction {
        self.claims.retain(|_, id| *id != transaction.id);
        transaction
    }

    /// Removes what is old; how many ids, and how many versions.
    pub(crate) fn clean(&mut self, now_us: i64, rows_max: usize) -> (usize, usize) {
        let tables = &mut self.tables;
        let last = tables.revision.version;
        let is_old = |(version, made): &(&u64, &Version)| {
            **version + VERSIONS_KEPT <= last && made.made_us < now_us - HISTORY_KEPT_US
        };
        let old = tables.versions.iter().filter(is_old).map(|(version, _)| *version);
        let old: Vec<u64> = old.take(rows_max).collect();
        for version in &old {
            let Version { batch, .. } = tables.versions.remove(version).expect("it was found");
            tables.tombstones.retain(|_, of| *of != batch);
            tables.horizon = tables.horizon.max(*version + 1);
        }
        let is_old = |(_, (_, _, kept_us)): &(&Uuid, &(Outcome, i64, i64))| {
            *kept_us < now_us - COMMANDS_KEPT_US
        };
        let ids: Vec<Uuid> =
            tables.applied.iter().filter(is_old).map(|(id, _)| *id).take(rows_max).collect();
        for id in &ids {
            let (_, _, kept_us) = tables.applied.remove(id).expect("it was found");
            tables.forgotten_us = tables.forgotten_us.max(kept_us + 1);
        }
        (ids.len(), old.len())
    }

    pub(crate) fn back_up(&mut self) {
        self.backup = Some(self.tables.clone());
    }

    /// Whether there was a backup to restore.
    pub(crate) fn restore(&mut self) -> bool {
        let Some(backup) = &self.backup else { return false };
        self.tables = backup.clone();
        self.restart();
        true
    }

    /// Ends all transactions.
    pub(crate) fn restart(&mut self) {
        self.claims.clear();
        self.restarts += 1;
    }

    fn state(&self) -> State {
        let Tables { revision, stamp, horizon, .. } = self.tables;
        State { revision, stamp, horizon }
    }

    /// The first thing that a feed asks.
    pub(crate) fn is_news(&self, follower: &Follower) -> bool {
        follower.is_news(&self.state())
    }

    /// The store's history is not the one that the follower knows: it gets a timeline of its own.
    pub(crate) fn diverge(&mut self, follower: &Follower, now_us: i64) {
        self.tables.revision.timeline = follower.new_timeline(&self.state(), now_us);
    }

    /// What is new, in one snapshot. `None`: the store was restored, and its history has no timeline of its own yet.
    pub(crate) fn news(&self, follower: &Follower) -> Option<(News, State)> {
        let (now, tables) = (self.state(), &self.tables);
        let is_restored = match follower.doubt(&now) {
            Doubt::None => false,
            Doubt::Restored => true,
            Doubt::Past(version, stamp) => {
                let made = tables.versions.get(&version);
                version >= tables.horizon && made.is_none_or(|made| made.stamp != stamp)
            }
        };
        if is_restored {
            return None;
        }
        let (revision, count) = (now.revision, tables.count as u64);
        let Some(known) = follower.known(&now) else {
            let mut todos: Vec<Todo> =
                tables.todos.values().map(|(todo, _)| todo.clone()).collect();
            todos.sort_by_key(|todo| std::cmp::Reverse(todo.key()));
            return Some((News::Everything(Loaded { revision, count, todos }), now));
        };
        let batches: BTreeSet<i64> =
            tables.versions.range(known + 1..).map(|(_, made)| made.batch).collect();
        let is = tables.todos.values().filter(|(_, batch)| batches.contains(batch));
        let is = is.map(|(todo, _)| Change::Is(todo.clone()));
        let gone = tables.tombstones.iter().filter(|(_, batch)| batches.contains(batch));
        let todos = is.chain(gone.map(|(id, _)| Change::Gone(*id))).collect();
        let outcomes = tables.applied.iter().filter(|(_, (_, batch, _))| batches.contains(batch));
        let commands = outcomes.map(|(id, (outcome, _, _))| (*id, outcome.clone())).collect();
        Some((News::Changes(Changes { revision, count, todos, commands }), now))
    }

    pub(crate) fn todos(&self) -> impl Iterator<Item = &Todo> {
        self.tables.todos.values().map(|(todo, _)| todo)
    }

    pub(crate) fn count(&self) -> i64 {
        self.tables.count
    }
}
