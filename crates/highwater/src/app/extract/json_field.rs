//! Which field of a JSON text does an error mean? Found by its line and column, in the text alone.
//!
//! A deserializer that tracks the path would be compiled for each type, beside the one that reads it: with
//! `serde_path_to_error`, the 100 routes of `scripts/compile-time.sh`, half of which take JSON, need 9 % more CPU time to
//! be built again after a change, and have 3 % more functions, while a program of few such routes needs no more.

use serde_json::Error;

/// An object or an array that is open at the error.
enum Level {
    /// Its last key, once there is one.
    Object(Option<String>),
    /// The index of its last element.
    Array(usize),
}

/// The path to the value of `text` that `error` is about, such as `items[0].name`; empty for the whole. `text` is JSON, at least up to
/// the error. `refuse` returns the error for another text.
pub(super) fn of(text: &[u8], error: &Error, refuse: fn(&[u8]) -> Option<Error>) -> String {
    let read = &text[..place(text, error)];
    // Behind an object or an array, the error is about the whole of it, or about its last value: a type's own conversion fails
    // without a place, and gets that where the deserializer has gone on to. Without its end, only the latter is found again.
    let open = read.strip_suffix(b"}").or_else(|| read.strip_suffix(b"]"));
    let is_last = |open: &&[u8]| refuse(open).is_some_and(|error| error.is_data());
    path(&levels(open.filter(is_last).unwrap_or(read)))
}

/// What is open at the end of `rest`.
fn levels(mut rest: &[u8]) -> Vec<Level> {
    let mut levels: Vec<Level> = Vec::new();
    while let Some((byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'{' => levels.push(Level::Object(None)),
            b'[' => levels.push(Level::Array(0)),
            b'}' | b']' => drop(levels.pop()),
            b',' => match levels.last_mut() {
                Some(Level::Object(key)) => *key = None,
                Some(Level::Array(index)) => *index += 1,
                None => {}
            },
            b'"' => {
                let Some(length) = string(rest) else { break };
                let (content, behind) = rest.split_at(length);
                rest = &behind[1..];
                if let Some(Level::Object(key @ None)) = levels.last_mut() {
                    *key = serde_json::from_slice(&[b"\"", content, b"\""].concat()).ok();
                }
            }
            _ => {}
        }
    }
    levels
}

/// How many bytes of `text` were read when `error` was found.
fn place(text: &[u8], error: &Error) -> usize {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let before: usize = lines.take(error.line().saturating_sub(1)).map(<[u8]>::len).sum();
    (before + error.column()).min(text.len())
}

/// The length of a string behind its first quote; `None` if it does not end.
fn string(bytes: &[u8]) -> Option<usize> {
    let mut is_escaped = false;
    bytes.iter().position(|byte| {
        let is_end = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_end
    })
}

fn path(levels: &[Level]) -> String {
    let mut path = String::new();
    for level in levels {
        match level {
            Level::Object(None) => {}
            Level::Object(Some(key)) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
            }
            Level::Array(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt::Debug;

    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Order {
        _id: u32,
        #[serde(default)]
        _items: Vec<Item>,
        #[serde(default)]
        _by: BTreeMap<String, Item>,
        _kind: Option<Kind>,
        _place: Option<(i8, i8)>,
        _even: Option<Even>,
        #[serde(default)]
        _evens: Vec<Even>,
    }

    #[derive(Debug, Deserialize)]
    struct Item {
        _name: String,
        _count: Option<u8>,
    }

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "none is read")]
    enum Kind {
        Plain,
        Sized(u8),
        Named { _name: String },
    }

    #[derive(Debug, Deserialize)]
    #[serde(try_from = "Item")]
    struct Even;

    impl TryFrom<Item> for Even {
        type Error = &'static str;

        fn try_from(_: Item) -> Result<Self, Self::Error> {
            Err("it is odd")
        }
    }

    /// The path by the place, and by a deserializer that tracks it.
    fn paths<T: DeserializeOwned + Debug>(text: &str) -> [String; 2] {
        let refuse = |text: &[u8]| serde_json::from_slice::<T>(text).err();
        let error = refuse(text.as_bytes()).expect(text);
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let tracked = serde_path_to_error::deserialize::<_, T>(&mut deserializer).expect_err(text);
        let tracked = match tracked.path().iter().next() {
            None => String::new(),
            Some(_) => tracked.path().to_string(),
        };
        [of(text.as_bytes(), &error, refuse), tracked]
    }

    /// Purpose: the path is that of a deserializer that tracks it, whatever is wrong and wherever: a type, a range, a missing or unknown
    /// field, a variant, a length, or what a type of the application's own refuses.
    #[test]
    fn as_tracked() {
        for (text, expected) in [
            (r#"{"_id":"x"}"#, "_id"),
            (r#"{"_id":-1}"#, "_id"),
            (r#"{"_id":4294967296}"#, "_id"),
            (r#"{"_id":[1]}"#, "_id"),
            (r#"{"_id":{"a":1}}"#, "_id"),
            (r#"{"_id":1.5}"#, "_id"),
            (r#"{ "_id" : null }"#, "_id"),
            (
                "{\n  \"_id\": 1,\n  \"_items\": [\n    {\"_name\": \"a\"},\n    {\"_name\": 2}\n  ]\n}",
                "_items[1]._name",
            ),
            (
                r#"{"_id":1,"_items":[{"_name":"a","_count":1},{"_name":"b","_count":256}]}"#,
                "_items[1]._count",
            ),
            (r#"{"_id":1,"_items":[{"_name":"}],{\\\""},{"_count":1}]}"#, "_items[1]"),
            (r#"{"_id":1,"_items":{}}"#, "_items"),
            (r#"{"_id":1,"_items":[1]}"#, "_items[0]"),
            (r#"{"_id":1,"_by":{"x \"y\" \u00e4":{"_name":true}}}"#, "_by.x \"y\" ä._name"),
            (r#"{"_id":1,"_by":{"a":{"_name":"b"},"c":{}}}"#, "_by.c"),
            (r#"{"_id":1,"unknown":2}"#, "unknown"),
            (r#"{"_items":[],"_by":{}}"#, ""),
            (r#"{"_id":1,"_kind":"Round"}"#, "_kind"),
            (r#"{"_id":1,"_kind":{"Sized":300}}"#, "_kind.Sized"),
            (r#"{"_id":1,"_kind":{"Named":{"_name":1}}}"#, "_kind.Named._name"),
            (r#"{"_id":1,"_place":[1]}"#, "_place"),
            (r#"{"_id":1,"_place":[1,200]}"#, "_place[1]"),
            (r#"{"_id":1,"_even":{"_name":"a"}}"#, "_even"),
            (r#"{"_id":1,"_even":{"_name":"a"},"_kind":null}"#, "_even"),
            (r#"{"_id":1,"_evens":[{"_name":"a"}]}"#, "_evens[0]"),
            (r#"{"_id":1,"_evens":[{"_name":"a"}],"_kind":null}"#, "_evens[0]"),
            (r#"{"_id":1,"_evens":[{}]}"#, "_evens[0]"),
            (r#"{"_id":1,"_kind":{"Named":{}}}"#, "_kind.Named"),
            (r#"[{"_id":1}]"#, "[0]"),
            ("7", ""),
            ("\"x\"", ""),
        ] {
            let [found, tracked] = paths::<Order>(text);
            assert_eq!((&*found, &*tracked), (expected, expected), "{text}");
        }
        let [found, tracked] = paths::<Vec<Vec<u8>>>("[[1],[2,\n\n256]]");
        assert_eq!((&*found, &*tracked), ("[1][1]", "[1][1]"));
    }
}
