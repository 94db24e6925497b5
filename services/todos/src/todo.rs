//! What a todo is, and the one place where it becomes JSON.

use jiff::Timestamp;
use uuid::Uuid;

/// A todo. Times are in microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Todo {
    /// Its identity. One made here is of version 7: it begins with the time of its making.
    pub id: Uuid,
    /// Never empty.
    pub title: String,
    /// May be empty.
    pub description: String,
    /// Whether it is done.
    pub completed: bool,
    /// Whose it is: the subject of the token it was created with.
    pub user_id: String,
    /// When its creation was requested.
    pub created_us: i64,
    /// When its last change was requested; never before `created_us`.
    pub updated_us: i64,
}

/// What the JSON of a todo has beside its texts.
const JSON_BYTES: usize = 200;

/// What a row of a snapshot takes beside its JSON: the key, twice, with the room that a hash map leaves free, and what an
/// allocation of its own costs. A guess from measured processes.
pub const ROW_BYTES: usize = 200;

/// Where a todo stands in lists: by time of creation, then by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The todo's `created_us`.
    pub created_us: i64,
    /// The todo's id.
    pub id: Uuid,
}

impl Todo {
    /// Where it stands in lists.
    pub fn key(&self) -> Key {
        Key { created_us: self.created_us, id: self.id }
    }

    /// About how much memory it takes where it is shown: its JSON, its place in an index, and its owner's name.
    pub fn bytes(&self) -> usize {
        JSON_BYTES + ROW_BYTES + self.title.len() + self.description.len() + 2 * self.user_id.len()
    }

    /// Appends it as the JSON object that clients get.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"id\":\"");
        out.extend_from_slice(self.id.as_hyphenated().encode_lower(&mut [0; 36]).as_bytes());
        out.extend_from_slice(b"\",\"title\":");
        write_text(&self.title, out);
        out.extend_from_slice(b",\"description\":");
        write_text(&self.description, out);
        out.extend_from_slice(b",\"completed\":");
        out.extend_from_slice(if self.completed { b"true" } else { b"false" });
        out.extend_from_slice(b",\"user_id\":");
        write_text(&self.user_id, out);
        out.extend_from_slice(b",\"created_at\":\"");
        out.extend_from_slice(time_text(self.created_us).as_bytes());
        out.extend_from_slice(b"\",\"updated_at\":\"");
        out.extend_from_slice(time_text(self.updated_us).as_bytes());
        out.extend_from_slice(b"\"}");
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("text is JSON, and memory takes it");
}

/// The earliest and the latest time that [`time_text`] can write, in microseconds since 1970.
pub const TIME_US: std::ops::RangeInclusive<i64> =
    -62_135_596_800_000_000..=253_370_764_800_000_000;

/// A time as RFC 3339 has it, in UTC, with as many digits of the second as it needs.
///
/// A time beyond [`TIME_US`] is written as the nearest one within it.
pub fn time_text(us: i64) -> String {
    let us = us.clamp(*TIME_US.start(), *TIME_US.end());
    Timestamp::from_microsecond(us).expect("within the calendar").to_string()
}

/// Reads a time of RFC 3339, in microseconds since 1970; what is finer is cut off.
pub fn parse_time(text: &str) -> Option<i64> {
    let us = text.parse::<Timestamp>().ok()?.as_microsecond();
    TIME_US.contains(&us).then_some(us)
}

/// Now, in microseconds since 1970.
pub fn now_us() -> i64 {
    Timestamp::now().as_microsecond()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A todo for tests.
    pub(crate) fn sample(number: u128, created_us: i64) -> Todo {
        Todo {
            id: Uuid::from_u128(number),
            title: format!("Todo {number}"),
            description: String::new(),
            completed: false,
            user_id: "someone".into(),
            created_us,
            updated_us: created_us,
        }
    }

    /// Purpose: clients get exactly the contract's element, whatever the text holds.
    #[test]
    fn element() {
        let todo = Todo {
            title: "a \"b\"\n\u{1}ñ".into(),
            description: "d".into(),
            completed: true,
            created_us: 1_700_000_000_123_400,
            updated_us: 1_700_000_001_000_000,
            ..sample(0x0190_0000_0000_7000_8000_0000_0000_0001, 0)
        };
        let mut json = Vec::new();
        todo.write_json(&mut json);
        let expected = r#"{"id":"01900000-0000-7000-8000-000000000001","title":"a \"b\"\n\u0001ñ","description":"d","completed":true,"user_id":"someone","created_at":"2023-11-14T22:13:20.1234Z","updated_at":"2023-11-14T22:13:21Z"}"#;
        assert_eq!(String::from_utf8(json).expect("JSON is text"), expected);
    }

    /// Purpose: times survive being written and read, at both ends of the range.
    #[test]
    fn times() {
        for us in [0, -1, 1_700_000_000_000_001, *TIME_US.start(), *TIME_US.end()] {
            assert_eq!(parse_time(&time_text(us)), Some(us));
        }
        assert_eq!(time_text(i64::MAX), time_text(*TIME_US.end()));
        assert_eq!(parse_time("2024-13-01T00:00:00Z"), None);
    }
}
