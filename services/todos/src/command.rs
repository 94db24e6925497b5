//! A client's command, as it is stored in the queue.
//!
//! The journal and Kafka hold the same bytes: one JSON object per command, so that an operator can read a queue
//! with `highwater journal cat` or Kafka's own tools.
//!
//! ```text
//! {"v":1,"command_id":"0193…","action":"create","id":"0193…","title":"…","description":"…",
//!  "user_id":"…","requested_at":"2026-11-22T11:37:41.000001Z"}
//! ```
//!
//! | field | what |
//! |---|---|
//! | `v` | the version of this format: 1. A reader refuses others: the command becomes a dead letter |
//! | `command_id` | a UUID, the command's identity: the same in every delivery of it |
//! | `action` | `create`, `update` or `delete` |
//! | `id` | the todo's UUID. Commands with one `id` are kept in order; it is the key in Kafka |
//! | `title`, `description` | for `create` both; for `update` what changes; not for `delete` |
//! | `completed` | for `update`, if it changes |
//! | `user_id` | who asked: the subject of the token. Only the owner's updates and deletions have an effect |
//! | `requested_at` | when; it becomes `created_at` or `updated_at` |
//!
//! Unknown fields are ignored, so that a later version can add some without another number.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::todo::{parse_time, time_text};

/// The version of the format that is written.
pub const VERSION: u32 = 1;

/// A change that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its identity: the same in every delivery.
    pub id: Uuid,
    /// Which todo it is about.
    pub todo: Uuid,
    /// Who asked.
    pub user_id: String,
    /// When, in microseconds since 1970.
    pub requested_us: i64,
    /// The action.
    pub action: Action,
}

/// An action on a todo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Make it.
    Create {
        /// Its title.
        title: String,
        /// Its description.
        description: String,
    },
    /// Change what is given.
    Update {
        /// The new title.
        title: Option<String>,
        /// The new description.
        description: Option<String>,
        /// Whether it is done.
        completed: Option<bool>,
    },
    /// Remove it.
    Delete,
}

/// Bytes from a queue that are not a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Poison {
    /// What was in the queue.
    pub bytes: Vec<u8>,
    /// Why it cannot be applied.
    pub reason: String,
}

impl fmt::Display for Poison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    v: u32,
    command_id: Uuid,
    #[serde(borrow)]
    action: Cow<'a, str>,
    id: Uuid,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    title: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    description: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    completed: Option<bool>,
    #[serde(borrow)]
    user_id: Cow<'a, str>,
    #[serde(borrow)]
    requested_at: Cow<'a, str>,
}

/// Only the version, which determines how to read the rest.
#[derive(Deserialize)]
struct Versioned {
    v: u32,
}

impl Command {
    /// The bytes stored in a queue.
    pub fn encode(&self) -> Vec<u8> {
        let (action, title, description, completed) = match &self.action {
            Action::Create { title, description } => {
                ("create", Some(title), Some(description), None)
            }
            Action::Update { title, description, completed } => {
                ("update", title.as_ref(), description.as_ref(), *completed)
            }
            Action::Delete => ("delete", None, None, None),
        };
        let wire = Wire {
            v: VERSION,
            command_id: self.id,
            action: action.into(),
            id: self.todo,
            title: title.map(Into::into),
            description: description.map(Into::into),
            completed,
            user_id: (&self.user_id).into(),
            requested_at: time_text(self.requested_us).into(),
        };
        serde_json::to_vec(&wire).expect("text and numbers are JSON, and memory takes it")
    }

    /// Reads the bytes from a queue.
    ///
    /// # Errors
    ///
    /// If they are not a command of a known version: the bytes, and why.
    pub fn decode(bytes: &[u8]) -> Result<Command, Poison> {
        decode(bytes).map_err(|reason| Poison { bytes: bytes.to_vec(), reason })
    }
}

fn decode(bytes: &[u8]) -> Result<Command, String> {
    let no_command = |error: serde_json::Error| format!("not a command: {error}");
    let wire: Wire<'_> = match serde_json::from_slice(bytes) {
        Ok(wire) => wire,
        // Another version may have other fields: say that it is one, before saying what is missing.
        Err(error) => match serde_json::from_slice(bytes) {
            Ok(Versioned { v }) if v != VERSION => return Err(other_version(v)),
            _ => return Err(no_command(error)),
        },
    };
    if wire.v != VERSION {
        return Err(other_version(wire.v));
    }
    let missing = |field: &str| format!("not a command: {} without `{field}`", wire.action);
    let text = |text: Option<Cow<'_, str>>| text.map(Cow::into_owned);
    let requested_us = parse_time(&wire.requested_at)
        .ok_or_else(|| format!("not a command: `requested_at` is {:?}", wire.requested_at))?;
    let action = match &*wire.action {
        "create" => Action::Create {
            title: text(wire.title).ok_or_else(|| missing("title"))?,
            description: text(wire.description).ok_or_else(|| missing("description"))?,
        },
        "update" => Action::Update {
            title: text(wire.title),
            description: text(wire.description),
            completed: wire.completed,
        },
        "delete" => Action::Delete,
        other => return Err(format!("not a command: `action` is {other:?}")),
    };
    Ok(Command {
        id: wire.command_id,
        todo: wire.id,
        user_id: wire.user_id.into_owned(),
        requested_us,
        action,
    })
}

fn other_version(version: u32) -> String {
    format!("a command of version {version}; this program reads version {VERSION}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(action: Action) -> Command {
        let (id, todo) = (Uuid::from_u128(7), Uuid::from_u128(8));
        Command { id, todo, user_id: "us\"er".into(), requested_us: 1_700_000_000_000_001, action }
    }

    /// Purpose: what is queued is what is applied, for every action and every mixture of fields.
    #[test]
    fn survives_the_queue() {
        let create =
            Action::Create { title: "a \"b\"\u{1F3B5}\n".into(), description: String::new() };
        let mut actions = vec![create, Action::Delete];
        for title in [None, Some("t".to_owned())] {
            for description in [None, Some(String::new())] {
                for completed in [None, Some(false), Some(true)] {
                    let (title, description) = (title.clone(), description.clone());
                    actions.push(Action::Update { title, description, completed });
                }
            }
        }
        for action in actions {
            let command = command(action);
            assert_eq!(Command::decode(&command.encode()), Ok(command));
        }
    }

    /// Purpose: the bytes in the queue are the documented ones: another program reads them.
    #[test]
    fn documented_bytes() {
        let create = command(Action::Create { title: "t".into(), description: "d".into() });
        let expected = r#"{"v":1,"command_id":"00000000-0000-0000-0000-000000000007","action":"create","id":"00000000-0000-0000-0000-000000000008","title":"t","description":"d","user_id":"us\"er","requested_at":"2023-11-14T22:13:20.000001Z"}"#;
        assert_eq!(String::from_utf8(create.encode()).expect("JSON is text"), expected);
    }

    /// Purpose: bytes that are not a command are refused with a reason.
    #[test]
    fn poison() {
        let whole = String::from_utf8(command(Action::Delete).encode()).expect("JSON is text");
        let cases = [
            ("".to_owned(), "not a command"),
            ("garbage".to_owned(), "not a command"),
            (r#"{"v":2,"kind":"x"}"#.to_owned(), "version 2"),
            (whole.replace("\"v\":1", "\"v\":9"), "version 9"),
            (whole.replace("delete", "destroy"), "\"destroy\""),
            (whole.replace("delete", "create"), "`title`"),
            (whole.replace("2023-11", "2023-13"), "`requested_at`"),
            (whole.replace("\"user_id\"", "\"user\""), "`user_id`"),
        ];
        for (bytes, reason) in cases {
            let poison = Command::decode(bytes.as_bytes()).expect_err(&bytes);
            assert_eq!(poison.bytes, bytes.as_bytes());
            assert!(poison.reason.contains(reason), "{bytes}: {}", poison.reason);
        }
    }
}
