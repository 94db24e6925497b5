//! Decides what deliveries do to todos. It reads no store and no clock: what is known is an argument, and the result
//! says what to write.
//!
//! ```text
//!  deliveries ─┐
//!  Known ──────┴─▶ decide ─▶ Decision: todos as they become, outcomes to remember, dead letters
//! ```
//!
//! Invariants: a command whose outcome is known changes nothing; commands about one todo take effect in the order in
//! which they were delivered; only the owner of a todo changes it.

use std::collections::{BTreeMap, HashMap, HashSet};

use highwater::logging::rate_limited;
use uuid::Uuid;

use super::{Change, Outcome};
use crate::command::{Action, Command};
use crate::queue::{Delivery, Position};
use crate::todo::Todo;

/// What a store knows about some deliveries before they are applied.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The outcomes of those commands that were applied before.
    pub outcomes: HashMap<Uuid, Outcome>,
    /// The todos that the commands are about, as they are.
    pub todos: HashMap<Uuid, Todo>,
    /// The offset behind the last command applied, for each partition of the queue.
    pub positions: HashMap<u32, u64>,
    /// Ids of commands that were requested before this time may have been removed. In microseconds since 1970.
    pub forgotten_us: i64,
}

/// What applying deliveries does.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// The todos that change, as they become.
    pub changes: BTreeMap<Uuid, Change>,
    /// The outcomes of commands that were not applied before, in order: to be remembered.
    pub fresh: Vec<(Uuid, Outcome)>,
    /// The outcomes of all commands, in order.
    pub outcomes: Vec<(Uuid, Outcome)>,
    /// How many todos there are more; negative: fewer.
    pub added: i64,
    /// How many commands were applied before.
    pub repeated: u64,
}

/// Decides what the commands among `deliveries` do, in their order. Deliveries that are no command are not decided here:
/// each is a dead letter.
pub fn decide(known: Known, deliveries: &[Delivery]) -> Decision {
    let Known { mut outcomes, mut todos, positions, forgotten_us } = known;
    let before: HashSet<Uuid> = todos.keys().copied().collect();
    let mut decision = Decision::default();
    let mut changed: Vec<Uuid> = Vec::new();
    for delivery in deliveries {
        let Ok(command) = &delivery.content else { continue };
        let known = outcomes.get(&command.id).cloned();
        let forgotten = || {
            is_forgotten(command, delivery.position, &positions, forgotten_us)
                .then_some(Outcome::Done)
        };
        if let Some(outcome) = known.or_else(forgotten) {
            decision.repeated += 1;
            decision.outcomes.push((command.id, outcome));
            continue;
        }
        let (outcome, is_changed) = change(&mut todos, command);
        if is_changed {
            changed.push(command.todo);
        }
        outcomes.insert(command.id, outcome.clone());
        decision.fresh.push((command.id, outcome.clone()));
        decision.outcomes.push((command.id, outcome));
    }
    for id in changed {
        let change = todos.get(&id).map_or(Change::Gone(id), |todo| Change::Is(todo.clone()));
        decision.changes.insert(id, change);
    }
    let added = decision.changes.iter().map(|(id, change)| match change {
        Change::Is(_) => i64::from(!before.contains(id)),
        Change::Gone(_) => -i64::from(before.contains(id)),
    });
    decision.added = added.sum();
    decision
}

/// Whether it was applied so long ago that its id is not known any more. No clock decides that: ids are removed by the
/// times at which their commands were requested.
fn is_forgotten(
    command: &Command,
    position: Option<Position>,
    positions: &HashMap<u32, u64>,
    forgotten_us: i64,
) -> bool {
    let is_old = command.requested_us < forgotten_us;
    let is_below = |position: Position| {
        positions.get(&position.partition).is_some_and(|next| position.offset < *next)
    };
    let is_forgotten = is_old && position.is_some_and(is_below);
    if is_forgotten {
        rate_limited!(WARN, command = %command.id, "a command of weeks ago was delivered again; it is not applied again");
    }
    is_forgotten
}

/// Applies a command to the todos that it may be about. Returns its outcome, and whether it changed anything.
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
