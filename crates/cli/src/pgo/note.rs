//! Was a program built with a profile? Each program with Highwater's server in it has a note that says so.
//!
//! The note is a text in the program, `highwater-pgo=VALUE;`, which the build script of `highwater` makes from the
//! compiler's flags. The compiler itself leaves no trace of a profile in what it makes.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::json;

use super::print;

/// What every program of Linux begins with.
const ELF: [u8; 4] = *b"\x7fELF";
/// Around the value; as `highwater` writes it.
const OPEN: &[u8] = b"highwater-pgo=";
const CLOSE: u8 = b';';
/// The longest value.
const VALUE_BYTES_MAX: usize = 32;
/// The largest program that is read.
const PROGRAM_BYTES_MAX: u64 = 4 << 30;

/// Exit status of a program that was built without a profile.
const WITHOUT: u8 = 1;

/// What a note says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// Built with the profile of this id.
    With(String),
    Without,
    /// It counts, to make a profile.
    Instrumented,
}

/// Whether the file is a program; anything else is taken for a profile.
///
/// # Errors
/// It cannot be read.
pub(super) fn is_program(path: &Path) -> Result<bool, String> {
    let mut begin = Vec::new();
    let file = File::open(path).and_then(|file| file.take(4).read_to_end(&mut begin));
    match file {
        Ok(_) => Ok(begin == ELF),
        Err(error) => {
            Err(format!("{}: {error}; `highwater pgo run` makes a profile", path.display()))
        }
    }
}

/// Prints what a program's note says.
///
/// # Errors
/// It has none.
pub(super) fn info(path: &Path, json: bool) -> Result<u8, String> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| format!("{shown}: {error}"))?;
    let mut bytes = Vec::new();
    let read = file.take(PROGRAM_BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(|error| format!("{shown}: {error}"))?;
    let note = find(&bytes).ok_or_else(|| {
        format!(
            "{shown} has no note about its build: it is not a Highwater server, or one of a version before the note"
        )
    })?;
    let (word, id, text) = match &note {
        Note::With(id) => ("profile", Some(id), format!("built with the profile {id}")),
        Note::Without => ("none", None, "built without a profile".to_owned()),
        Note::Instrumented => (
            "instrumented",
            None,
            "instrumented: it counts to make a profile, and is slow".to_owned(),
        ),
    };
    print(&match json {
        true => format!("{}\n", json!({ "program": path, "pgo": word, "id": id })),
        false => format!("{shown}: {text}\n"),
    });
    Ok(if matches!(note, Note::With(_)) { 0 } else { WITHOUT })
}

/// The note in a program's bytes.
fn find(bytes: &[u8]) -> Option<Note> {
    let places = bytes.windows(OPEN.len()).enumerate().filter(|(_, window)| *window == OPEN);
    let values = places.filter_map(|(at, _)| {
        let rest = &bytes[at + OPEN.len()..];
        let end = rest.iter().take(VALUE_BYTES_MAX).position(|byte| *byte == CLOSE)?;
        std::str::from_utf8(&rest[..end]).ok()
    });
    // This command has the text, too, without a value.
    let is_id = |value: &str| value == "unknown" || value.len() == 16 && is_hex(value);
    values.into_iter().find_map(|value| match value {
        "none" => Some(Note::Without),
        "instrumented" => Some(Note::Instrumented),
        value if is_id(value) => Some(Note::With(value.to_owned())),
        _ => None,
    })
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The id of a profile's content, as the build script of `highwater` computes it: FNV-1a.
pub(super) fn id(profile: &[u8]) -> String {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
    format!("{:016x}", profile.iter().fold(OFFSET, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a program's note is found wherever it stands, and what only looks like one is not believed.
    #[test]
    fn notes_are_found() {
        let program = |text: &str| [b"\x7fELF\0\0", text.as_bytes(), b"\0\xff"].concat();
        for (text, expected) in [
            ("xhighwater-pgo=0123456789abcdef;y", Some(Note::With("0123456789abcdef".to_owned()))),
            ("highwater-pgo=none;", Some(Note::Without)),
            ("highwater-pgo=;highwater-pgo=instrumented;", Some(Note::Instrumented)),
            ("highwater-pgo=unknown;", Some(Note::With("unknown".to_owned()))),
            ("highwater-pgo=0123", None),
            ("highwater-pgo=0123456789abcdeg;", None),
            ("", None),
        ] {
            assert_eq!(find(&program(text)), expected, "{text}");
        }
    }

    /// Purpose: an id is that of the published function, so that ids of profiles and programs are comparable for ever.
    #[test]
    fn ids_are_fnv_1a() {
        assert_eq!(id(b""), "cbf29ce484222325");
        assert_eq!(id(b"foobar"), "85944171f73967e8");
    }
}
