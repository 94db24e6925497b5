//! Operations in Redis: each is a script, so that its reads and writes are atomic.

use bytes::Bytes;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Script, Value};
use uuid::Uuid;

use crate::reads::Limit;
use crate::store::Revision;

/// The state that the scripts keep: the epoch, the revision, and which lists are of that revision.
const STATE: &str = "todos:state";

/// The version, in a key of its own: instances are notified when it changes.
pub(super) const VERSION: &str = "todos:version";

/// The scripts, sent once to each server.
#[derive(Clone)]
pub(super) struct Scripts {
    advance: Script,
    lookup: Script,
    fill: Script,
}

/// The result of a lookup.
#[derive(Debug)]
pub(super) struct Found {
    /// It changes when the state is lost: a fill for another epoch is refused.
    pub(super) epoch: String,
    /// The store's revision that the lists are of.
    pub(super) revision: Revision,
    /// The list, if it is there.
    pub(super) list: Option<Bytes>,
}

impl Scripts {
    pub(super) fn new() -> Scripts {
        Scripts {
            advance: Script::new(include_str!("advance.lua")),
            lookup: Script::new(include_str!("lookup.lua")),
            fill: Script::new(include_str!("fill.lua")),
        }
    }

    /// Announces this revision of the store. Returns the newest that Redis has ever received.
    pub(super) async fn advance(
        &self,
        connection: &mut MultiplexedConnection,
        revision: Revision,
    ) -> RedisResult<Revision> {
        let mut advance = self.advance.key(STATE);
        let advance = advance.key(VERSION).arg(revision.timeline).arg(revision.version);
        let (timeline, version) = advance.arg(epoch()).invoke_async(connection).await?;
        Ok(Revision { timeline, version })
    }

    /// Looks for a list.
    pub(super) async fn lookup(
        &self,
        connection: &mut MultiplexedConnection,
        limit: Limit,
    ) -> RedisResult<Found> {
        let mut lookup = self.lookup.key(STATE);
        let mut answer: Vec<Value> =
            lookup.key(key(limit)).arg(epoch()).invoke_async(connection).await?;
        let list = match answer.len() {
            4 => answer.pop().map(bytes).transpose()?,
            _ => None,
        };
        let text = |value: Option<&Value>| -> RedisResult<String> {
            Ok(redis::from_redis_value_ref(value.unwrap_or(&Value::Nil))?)
        };
        let number = |at: usize| text(answer.get(at))?.parse().map_err(|_| damaged());
        let revision = Revision { timeline: number(1)?, version: number(2)? };
        Ok(Found { epoch: text(answer.first())?, revision, list })
    }

    /// Leaves a list for others; it is refused if it is out of date.
    pub(super) async fn fill(
        &self,
        connection: &mut MultiplexedConnection,
        limit: Limit,
        (epoch, revision): (&str, Revision),
        keep_ms: u64,
        list: &[u8],
    ) -> RedisResult<()> {
        let mut fill = self.fill.key(STATE);
        let fill = fill.key(VERSION).key(key(limit)).arg(epoch);
        let fill = fill.arg(revision.timeline).arg(revision.version).arg(keep_ms);
        fill.arg(list).invoke_async(connection).await
    }
}

/// Where a list is.
pub(super) fn key(limit: Limit) -> String {
    if limit == Limit::ALL {
        "todos:all".to_owned()
    } else {
        format!("todos:limit:{}", limit.get())
    }
}

fn epoch() -> String {
    Uuid::from_u128(fastrand::u128(..)).to_string()
}

/// The bytes as they came, without a copy.
fn bytes(value: Value) -> RedisResult<Bytes> {
    match value {
        Value::BulkString(bytes) => Ok(bytes.into()),
        _ => Err(damaged()),
    }
}

fn damaged() -> redis::RedisError {
    let what = "todos:state has unexpected contents; delete it";
    (redis::ErrorKind::Client, what).into()
}
