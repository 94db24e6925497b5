//! What must be true, by a map and a list of what was applied. It knows no versions, batches, positions or caches.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::command::{Action, Command};
use crate::todo::Todo;

/// A todo as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plain {
    title: String,
    owner: String,
    completed: bool,
    created_us: i64,
}

/// The todos, by id.
pub(crate) type Plains = BTreeMap<Uuid, Plain>;

/// What was applied to a store, and what it has.
#[derive(Clone, Debug, Default)]
struct Book {
    applied: BTreeSet<Uuid>,
    todos: Plains,
}

#[derive(Debug)]
pub(crate) struct Oracle {
    now: Book,
    backup: Option<Book>,
    acknowledged: BTreeSet<Uuid>,
    /// What a restore took away: it may stay away.
    lost_to_restores: BTreeSet<Uuid>,
    /// The lists of all states that there ever were: ids and titles, newest first.
    states: Vec<Vec<(String, String)>>,
}

impl Oracle {
    pub(crate) fn new() -> Oracle {
        Oracle {
            now: Book::default(),
            backup: None,
            acknowledged: BTreeSet::new(),
            lost_to_restores: BTreeSet::new(),
            states: vec![Vec::new()],
        }
    }

    pub(crate) fn acknowledge(&mut self, command: &Command) {
        assert!(self.acknowledged.insert(command.id), "an id is given once");
    }

    /// A transaction with these commands was committed, and the store has `todos`. Those in `fresh` it took for new.
    pub(crate) fn committed<'a>(
        &mut self,
        commands: impl Iterator<Item = &'a Command>,
        fresh: &BTreeSet<Uuid>,
        todos: impl Iterator<Item = &'a Todo>,
        count: i64,
    ) {
        for command in commands {
            assert!(self.acknowledged.contains(&command.id), "nobody sent {command:?}");
            // What a restore has taken away may come again, or not: then it stands behind what came after it.
            let may_stay_away = self.lost_to_restores.contains(&command.id);
            if may_stay_away && !fresh.contains(&command.id) {
                continue;
            }
            if self.now.applied.insert(command.id) {
                apply(&mut self.now.todos, command);
            }
        }
        let stored: Plains = todos.map(|todo| (todo.id, plain(todo))).collect();
        assert_eq!(stored, self.now.todos, "what the store has, and what was asked for");
        assert_eq!(count, stored.len() as i64, "the number of todos");
        self.next_state();
    }

    fn next_state(&mut self) {
        let mut list: Vec<_> = self.now.todos.iter().collect();
        list.sort_by_key(|(id, todo)| std::cmp::Reverse((todo.created_us, **id)));
        let list = list.into_iter().map(|(id, todo)| (id.to_string(), todo.title.clone()));
        let list: Vec<_> = list.collect();
        if self.states.last() != Some(&list) {
            self.states.push(list);
        }
    }

    pub(crate) fn back_up(&mut self) {
        self.backup = Some(self.now.clone());
    }

    pub(crate) fn restore(&mut self) {
        let backup = self.backup.clone().expect("it was backed up");
        self.lost_to_restores.extend(self.now.applied.difference(&backup.applied));
        self.now = backup;
        self.next_state();
    }

    /// The number of the state that the store is in.
    pub(crate) fn state(&self) -> usize {
        self.states.len() - 1
    }

    /// A reader got this list of at most `limit`, when the store had reported the state `least` to its instance.
    pub(crate) fn check_list(&self, json: &[u8], limit: usize, least: usize) {
        let list: Vec<serde_json::Value> = serde_json::from_slice(json).expect("a JSON list");
        let text = |todo: &serde_json::Value, key| todo[key].as_str().expect("text").to_owned();
        let list: Vec<_> =
            list.iter().map(|todo| (text(todo, "id"), text(todo, "title"))).collect();
        let is_it = |state: &Vec<(String, String)>| state[..state.len().min(limit)] == list;
        assert!(
            self.states[least..].iter().any(is_it),
            "{list:?} was shown, of no state from {least} to {}: {:?}",
            self.state(),
            &self.states[least..]
        );
    }

    /// Nothing happens any more.
    pub(crate) fn check_rest(&self) {
        let is_missing =
            |id: &&Uuid| !self.now.applied.contains(id) && !self.lost_to_restores.contains(id);
        let missing: Vec<_> = self.acknowledged.iter().filter(is_missing).collect();
        assert!(missing.is_empty(), "acknowledged, and not applied: {missing:?}");
    }
}

fn plain(todo: &Todo) -> Plain {
    Plain {
        title: todo.title.clone(),
        owner: todo.user_id.clone(),
        completed: todo.completed,
        created_us: todo.created_us,
    }
}

fn apply(todos: &mut Plains, command: &Command) {
    let owner = command.user_id.clone();
    let is_owners = todos.get(&command.todo).is_some_and(|todo| todo.owner == owner);
    match command.action.clone() {
        Action::Create { title, .. } => {
            let created_us = command.requested_us;
            let new = Plain { title, owner, completed: false, created_us };
            todos.entry(command.todo).or_insert(new);
        }
        Action::Update { title, completed, .. } if is_owners => {
            let todo = todos.get_mut(&command.todo).expect("it has an owner");
            todo.title = title.unwrap_or(std::mem::take(&mut todo.title));
            todo.completed = completed.unwrap_or(todo.completed);
        }
        Action::Delete if is_owners => drop(todos.remove(&command.todo)),
        Action::Update { .. } | Action::Delete => {}
    }
}
