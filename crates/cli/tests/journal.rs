//! `highwater journal` as it is called, on directories that a journal has written.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use highwater_journal::{Batch, Directory, Journal, Options, Record, SEGMENT_BYTES_MIN};
use serde_json::{Value, json};

/// A directory that goes when this is dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("cli-journal-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("cargo gave a directory to write to");
        Place(path)
    }

    fn open(&self) -> Journal {
        let mut options = Options::default();
        options.segment_bytes = SEGMENT_BYTES_MIN;
        let directory = Directory::open(&self.0).expect("nobody else has it");
        Journal::open(directory, options).expect("it can be opened")
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("cargo's paths are text")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn append(journal: &Journal, first: u64, bodies: &[&[u8]]) {
    let mut batch = Batch::new();
    for (id, body) in (first..).zip(bodies) {
        let time_us = 1_234_567_890_123_456;
        batch.push(Record { partition: 3, time_us, id: id.into(), body });
    }
    let producer = journal.producer().expect("there are few");
    producer.append(batch).expect("there is room").wait().expect("the disk works");
}

fn highwater(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_highwater"))
        .arg("journal")
        .args(arguments)
        .output()
        .expect("the binary under test was built")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it writes text")
}

/// Purpose: `cat` gives back what was appended, and `--json` all that is known of it; while the journal
/// is in use.
#[test]
fn cat_writes_records() {
    let place = Place::new("cat");
    let journal = place.open();
    append(&journal, 7, &[b"one", b"t\"wo\n", b"\xff\xef\xbe"]);
    let output = highwater(&["cat", place.path()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stdout, b"one\nt\"wo\n\n\xff\xef\xbe\n");
    let output = highwater(&["cat", "--from", "1", "--json", place.path()]);
    let lines: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is an object"))
        .collect();
    let time = "2009-02-13T23:31:30.123456Z";
    let id = |id: u64| format!("{id:032x}");
    assert_eq!(
        lines,
        [
            json!({"partition": 3, "offset": 1, "time": time, "id": id(8), "body": "t\"wo\n"}),
            json!({"partition": 3, "offset": 2, "time": time, "id": id(9), "body_base64": "/+++"}),
        ]
    );
}

/// Purpose: an operator who looks at records in a terminal sees what clients sent, and their bytes do
/// not act on the terminal; what goes into a pipe is unchanged.
#[test]
fn terminals_are_safe_from_clients() {
    let place = Place::new("terminal");
    let journal = place.open();
    let wicked = b"\x1b]0;owned\x07\x1b[2J\nall is well \xff";
    append(&journal, 7, &[wicked]);
    let shown = "\\u{1b}]0;owned\\u{7}\\u{1b}[2J\\nall is well \\xff\r\n";
    for verb in ["cat", "tail -n 5"] {
        let Some(seen) = in_terminal(&format!("journal {verb} {}", place.path())) else { return };
        assert_eq!(seen, shown, "{verb}");
    }
    let Some(seen) = in_terminal(&format!("journal cat --json {}", place.path())) else { return };
    assert!(seen.contains("\"body_base64\":"), "{seen}");
    assert_eq!(highwater(&["cat", place.path()]).stdout, [&wicked[..], b"\n"].concat());
}

/// What the command writes to a terminal, by `script` of util-linux; `None` where there is none.
fn in_terminal(arguments: &str) -> Option<String> {
    let command = format!("{} {arguments}", env!("CARGO_BIN_EXE_highwater"));
    let started = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::null())
        .output();
    match started {
        Ok(output) => {
            assert!(output.status.success(), "{output:?}");
            Some(text(&output.stdout).to_owned())
        }
        Err(error) => {
            highwater_skip::skip("script", error);
            None
        }
    }
}

/// Purpose: `stat` counts what is there.
#[test]
fn stat_counts() {
    let place = Place::new("stat");
    let journal = place.open();
    let empty = highwater(&["stat", "--json", place.path()]);
    let none = json!({
        "records": 0, "bytes": 0, "segments": 0, "first_offset": null, "last_offset": null,
        "unscanned_bytes": 0, "damage": [], "damage_omitted": 0, "tail": null, "remedy": null
    });
    assert_eq!(serde_json::from_slice::<Value>(&empty.stdout).expect("it is JSON"), none);
    for id in 0..50 {
        append(&journal, id, &[&[b'a'; 500]]);
    }
    journal.close().expect("the disk works");
    let output = highwater(&["stat", "--json", place.path()]);
    let stat: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let entries =
        fs::read_dir(&place.0).expect("it is there").map(|entry| entry.expect("readable"));
    let files: Vec<u64> = entries
        .filter(|entry| entry.file_name().to_string_lossy().ends_with(".hwj"))
        .map(|entry| entry.metadata().expect("it is there").len())
        .collect();
    let (bytes, segments) = (files.iter().sum::<u64>(), files.len());
    // Of segments that were closed cleanly, except the newest, only the seal is read.
    let unscanned = files.iter().max().expect("there are some") * (segments as u64 - 1);
    let expected = json!({
        "records": 50, "bytes": bytes, "segments": segments, "first_offset": 0, "last_offset": 49,
        "unscanned_bytes": unscanned, "damage": [], "damage_omitted": 0, "tail": null, "remedy": null
    });
    assert_eq!(stat, expected);
    let output = highwater(&["stat", place.path()]);
    assert!(text(&output.stdout).contains("records       50\n"), "{output:?}");
    assert!(text(&output.stdout).contains("highwater journal verify"), "{output:?}");
}

/// Purpose: `stat` names the damaged file and the place, says what to do and exits with 1, as text and as JSON; and it shows what
/// a crash cut off, which is not damage.
#[test]
fn stat_names_damage() {
    let place = Place::new("stat-damage");
    let journal = place.open();
    (0..3).for_each(|id| append(&journal, id, &[&[b'a'; 500]]));
    journal.close().expect("the disk works");
    let file = "0000000000-00000000000000000000.hwj";
    let (intact, at) = (fs::read(place.0.join(file)).expect("it is the only one"), 8192 + 560);
    let mut bytes = intact.clone();
    bytes[at + 100] ^= 1;
    fs::write(place.0.join(file), bytes).expect("it can be written");
    let output = highwater(&["stat", place.path()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stdout);
    let found = format!("{file}: 560 bytes at {at}");
    let remedy = "stop the service, and put an intact copy";
    assert!(said.contains("records       2\n") && said.contains(&found), "{said}");
    assert!(text(&output.stderr).contains(remedy), "{output:?}");

    let output = highwater(&["stat", "--json", place.path()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let stat: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let [damage] = &stat["damage"].as_array().expect("a list")[..] else { panic!("{stat}") };
    let place_of =
        (&damage["file"], &damage["at"], &damage["first_offset"], &damage["next_offset"]);
    assert_eq!(place_of, (&file.into(), &at.into(), &1.into(), &2.into()), "{stat}");
    assert!(damage["problem"].as_str().is_some_and(|text| text.contains(&found)), "{stat}");
    assert!(stat["remedy"].as_str().is_some_and(|text| text.contains(remedy)), "{stat}");

    // In the last record, with no seal behind it.
    fs::write(place.0.join(file), &intact[..8192 + 2 * 560 + 100]).expect("it can be written");
    let output = highwater(&["stat", "--json", place.path()]);
    let stat: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(stat["tail"], json!({"file": file, "at": 8192 + 2 * 560, "bytes": 100}), "{stat}");
}

/// Purpose: `verify` exits with 0 when all is well, with 1 when it is not, and says where; `cat` serves
/// the rest and says what is missing.
#[test]
fn verify_names_file_and_place() {
    let place = Place::new("verify");
    let journal = place.open();
    for id in 0..50 {
        append(&journal, id, &[&[b'a'; 500]]);
    }
    journal.close().expect("the disk works");
    let output = highwater(&["verify", place.path()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("50 records"), "{output:?}");

    let file = "0000000000-00000000000000000000.hwj";
    let mut bytes = fs::read(place.0.join(file)).expect("it is the first");
    bytes[8192 + 560 + 100] ^= 1;
    fs::write(place.0.join(file), bytes).expect("it can be written");
    let output = highwater(&["verify", place.path()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    for text in [text(&output.stdout), text(&output.stderr)] {
        assert!(text.contains(file) && text.contains(&(8192 + 560).to_string()), "{text}");
    }
    let output = highwater(&["cat", place.path()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 49);
    assert!(text(&output.stderr).contains("the record 1 is missing"), "{output:?}");
}

/// Purpose: `tail` prints the last records, and with `--follow` new ones as they come.
#[test]
fn tail_follows() {
    let place = Place::new("tail");
    let journal = place.open();
    for id in 0..20u8 {
        append(&journal, id.into(), &[&[b'a' + id]]);
    }
    let output = highwater(&["tail", "-n", "3", place.path()]);
    assert_eq!(text(&output.stdout), "r\ns\nt\n");
    let output = highwater(&["tail", "-n", "100", place.path()]);
    assert_eq!(text(&output.stdout).lines().count(), 20);

    let mut following = Command::new(env!("CARGO_BIN_EXE_highwater"))
        .args(["journal", "tail", "-f", "-n", "1", place.path()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary under test was built");
    let mut lines = BufReader::new(following.stdout.take().expect("it is piped")).lines();
    let mut next = || lines.next().expect("it goes on").expect("it writes text");
    assert_eq!(next(), "t");
    for round in 0..3 {
        // Across segments, too.
        append(&journal, 20 + round, &[format!("new {round}").as_bytes(), &[b'z'; 9000]]);
        assert_eq!(next(), format!("new {round}"));
        assert_eq!(next().len(), 9000);
    }
    following.kill().expect("it runs");
    following.wait().expect("it ran");
}

/// Purpose: the wrong directory must not pass for an intact, empty journal.
#[test]
fn what_is_no_journal_is_refused() {
    let place = Place::new("none");
    for verb in ["cat", "tail", "verify", "stat"] {
        let output = highwater(&[verb, place.path()]);
        assert_eq!(output.status.code(), Some(1), "{verb}: {output:?}");
        assert!(text(&output.stderr).contains("no journal here"), "{output:?}");
        let gone = format!("{}/gone", place.path());
        let output = highwater(&[verb, &gone]);
        assert_eq!(output.status.code(), Some(1), "{verb}: {output:?}");
        assert!(text(&output.stderr).contains(&gone), "{output:?}");
    }
}
