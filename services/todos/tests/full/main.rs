//! The full form against real servers: Postgres, Redis and Kafka, which are stopped, killed and started again.
//!
//! | file | what |
//! |---|---|
//! | `servers.rs` | servers of a test's own, which end with it |
//! | `store.rs` | the Postgres store and its feed |
//! | `deployed.rs` | what the files under `deploy` say to this program |
//! | `letters.rs` | dead letters are bounded |
//! | `limits.rs` | what the Postgres store does in pieces |
//! | `near.rs` | lists through Redis |
//! | `partitions.rs` | a topic that gets another number of partitions |
//! | `restarts.rs` | instances with Postgres and without Kafka that start again |
//! | `restores.rs` | the store is restored over and over |
//! | `sizes.rs` | topics that take less than a full batch |
//! | `whole.rs` | two instances and workers, of which one part after the other is taken away |
//! | `visible.rs` | how soon every instance shows a write: a measurement, run by `make todos-visible` |
//! | `workers.rs` | how much two workers apply beside one: a measurement, run by `make todos-workers` |
//! | `record.rs` | where a measurement ran, and its record |
//! | `stage.rs` | the service's processes, and a client |
#![forbid(unsafe_code)]

mod deployed;
mod letters;
mod limits;
mod near;
mod partitions;
mod record;
mod restarts;
mod restores;
mod servers;
mod sizes;
mod stage;
mod starts;
mod store;
mod visible;
mod whole;
mod workers;

use std::sync::OnceLock;

use highwater_todos::command::{Action, Command};
use highwater_todos::queue::{Delivery, Position};
use uuid::Uuid;

/// A number as an id.
fn id(number: u64) -> Uuid {
    Uuid::from_u128(u128::from(number) + (7 << 76))
}

/// Creation of the todo of this number, by a command of the same number.
fn creation(number: u64) -> Command {
    command(
        number,
        number,
        Action::Create { title: format!("Todo {number}"), description: String::new() },
    )
}

/// A command about a todo; it was requested so many microseconds after the tests began.
fn command(number: u64, todo: u64, action: Action) -> Command {
    static BEGAN: OnceLock<i64> = OnceLock::new();
    let began_us = BEGAN.get_or_init(highwater_todos::todo::now_us);
    let requested_us = began_us + i64::try_from(number).expect("a small number");
    Command { id: id(number), todo: id(todo), user_id: "owner".into(), requested_us, action }
}

/// A command as it comes out of the queue.
fn delivery(offset: u64, command: Command) -> Delivery {
    Delivery { position: Some(Position { partition: 0, offset }), content: Ok(command) }
}
