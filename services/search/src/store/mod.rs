//! Stores keep events across restarts.
//!
//! A store keeps every event it was ever given, in its last version, with the times it was first
//! and last seen. It never deletes an event, and it never answers clients: they read snapshots.
//! Dates are stored as text and prices as millionths, so that they are read exactly as written.

mod embedded;
mod postgres;

use std::path::Path;
use std::str::FromStr;
use std::{error, fmt};

use jiff::civil::DateTime;
use uuid::Uuid;

pub use self::embedded::Embedded;
pub use self::postgres::{Postgres, Timeouts};
use crate::civil::parse_local;
use crate::event::Event;
use crate::money::Price;

/// Durable memory of events. One writer at a time.
pub trait Store: Send {
    /// Every event ever applied, in no particular order.
    fn load(&mut self) -> Result<Vec<Record>, StoreError>;

    /// Remembers these events as seen at `seen_at` (seconds since 1970-01-01T00:00:00Z).
    ///
    /// All or nothing: after `Ok` every event survives a crash of the process, and of the machine
    /// as far as its disk keeps its word; after `Err` the outcome is unknown, and applying the same
    /// events again is safe. Of two events with one id the later counts; and of what several instances have seen of one event,
    /// what was seen last. What is said to have been seen in the future counts for less than anything else.
    fn apply(&mut self, events: &[Event], seen_at: i64) -> Result<(), StoreError>;

    /// Events last seen at `since` or later, by whichever instance; in a store of one instance, none that it does not know.
    fn seen_since(&mut self, since: i64) -> Result<Vec<Record>, StoreError> {
        let _ = since;
        Ok(Vec::new())
    }
}

/// An event with the times a store adds to it, in seconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The event as it was last seen.
    pub event: Event,
    /// When it was first seen online.
    pub first_seen: i64,
    /// When it was last seen online.
    pub last_seen: i64,
}

/// Why a store cannot do its work: what happened, where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError(String);

impl StoreError {
    fn new(message: impl Into<String>) -> StoreError {
        StoreError(message.into())
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl error::Error for StoreError {}

/// The value of `--store`.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// `embedded`: a file in the data directory.
    Embedded,
    /// `postgres://user:password@host:port/database`: a Postgres server.
    Postgres(Box<tokio_postgres::Config>),
}

impl Choice {
    /// Opens the store. `data` is the data directory, which only the embedded one uses.
    pub fn open(&self, data: &Path) -> Result<Box<dyn Store>, StoreError> {
        Ok(match self {
            Choice::Embedded => Box::new(Embedded::open(data)?),
            Choice::Postgres(config) => Box::new(Postgres::connect(config, Timeouts::default())?),
        })
    }
}

impl FromStr for Choice {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Choice, StoreError> {
        if text == "embedded" {
            return Ok(Choice::Embedded);
        }
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err(StoreError::new(
                "expected `embedded` or `postgres://user:password@host:port/database`",
            ));
        }
        let config = tokio_postgres::Config::from_str(text).map_err(|e| {
            let cause = error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
            StoreError::new(format!("not a Postgres URL: {cause}"))
        })?;
        use tokio_postgres::config::SslMode;
        match config.get_ssl_mode() {
            SslMode::Disable | SslMode::Prefer => Ok(Choice::Postgres(Box::new(config))),
            _ => Err(StoreError::new(
                "sslmode=require is not supported: use a local proxy that speaks TLS, and sslmode=disable",
            )),
        }
    }
}

/// A row as both stores keep it.
struct Row {
    id: String,
    base_plan_id: String,
    plan_id: String,
    title: String,
    start_at: String,
    end_at: String,
    sell_from: Option<String>,
    sell_to: Option<String>,
    sold_out: Option<bool>,
    min_price: Option<i64>,
    max_price: Option<i64>,
    first_seen_at: i64,
    last_seen_at: i64,
}

impl Row {
    /// The record, or the name of the column whose value no version of this service wrote.
    fn record(self) -> Result<Record, &'static str> {
        let date = |text: &str, column| parse_local(text).ok_or(column);
        let sale = |text: Option<String>, column| text.map(|text| date(&text, column)).transpose();
        let price = |millionths: Option<i64>, column| {
            millionths
                .map(|millionths| Price::from_millionths(millionths).ok_or(column))
                .transpose()
        };
        let event = Event {
            id: Uuid::parse_str(&self.id).map_err(|_| "id")?,
            start: date(&self.start_at, "start_at")?,
            end: date(&self.end_at, "end_at")?,
            sell_from: sale(self.sell_from, "sell_from")?,
            sell_to: sale(self.sell_to, "sell_to")?,
            sold_out: self.sold_out,
            min_price: price(self.min_price, "min_price")?,
            max_price: price(self.max_price, "max_price")?,
            base_plan_id: self.base_plan_id.into(),
            plan_id: self.plan_id.into(),
            title: self.title.into(),
        };
        Ok(Record { event, first_seen: self.first_seen_at, last_seen: self.last_seen_at })
    }
}

fn text(date: DateTime) -> String {
    date.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a wrong `--store` is refused with what to write, and a right one is told apart.
    #[test]
    fn choices() {
        assert_eq!("embedded".parse(), Ok(Choice::Embedded));
        for url in ["postgres://u:p@db:5433/events", "postgresql://db/events?sslmode=disable"] {
            assert!(matches!(url.parse(), Ok(Choice::Postgres(_))), "{url}");
        }
        let refusal = |text: &str| text.parse::<Choice>().expect_err(text).to_string();
        assert!(refusal("mysql://db").contains("postgres://user:password@host"));
        assert!(refusal("postgres://db:port/x").contains("not a Postgres URL"));
        assert!(refusal("postgres://db/x?sslmode=require").contains("sslmode=disable"));
    }

    /// Purpose: a password never reaches a log through the setting's debug form.
    #[test]
    fn password_is_not_shown() {
        let choice: Choice = "postgres://u:hunter2@db/events".parse().expect("a URL");
        assert!(!format!("{choice:?}").contains("hunter2"));
    }
}
