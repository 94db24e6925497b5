//! The format does not change by accident: a journal of a given past is these bytes, and these bytes are
//! that journal.
//!
//! The golden file is text, so that a difference can be read: a line for each sixteen bytes that are not
//! zero, and the file's length. `JOURNAL_GOLDEN=write` rewrites it, which is right only together
//! with a new version in the format.

mod common;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::Place;
use highwater_journal::{Batch, Directory, Item, Journal, Options, Record, verify};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn options() -> Options {
    let mut options = Options::default();
    options.salt = Arc::new(|| 0x1122_3344_5566_7788);
    options.clock = Arc::new(|| 1_700_000_000_000_000);
    options
}

fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (row, chunk) in bytes.chunks(16).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            let hex: String = chunk.iter().map(|byte| format!(" {byte:02x}")).collect();
            writeln!(text, "{:06x}:{hex}", row * 16).expect("a string takes it");
        }
    }
    writeln!(text, "{:06x}", bytes.len()).expect("a string takes it");
    text
}

fn undump(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for line in text.lines() {
        let (at, hex) = line.split_once(':').unwrap_or((line, ""));
        bytes.resize(usize::from_str_radix(at, 16).expect("it is a place"), 0);
        let byte = |hex| u8::from_str_radix(hex, 16).expect("it is a byte");
        bytes.extend(hex.split_whitespace().map(byte));
    }
    bytes
}

/// Purpose: files that this version writes are the ones that `docs/journal.md` describes, for ever.
#[test]
fn what_is_written_is_the_golden_file() {
    let place = Place::new("golden");
    let directory = Directory::open(place.path()).expect("nobody else has it");
    let journal = Journal::open(directory, options()).expect("it can be opened");
    let producer = journal.producer().expect("there are few");
    let append = |records: &[(u32, u64, u128, &[u8])]| {
        let mut batch = Batch::new();
        for (partition, time_us, id, body) in records {
            batch.push(Record { partition: *partition, time_us: *time_us, id: *id, body });
        }
        producer.append(batch).expect("there is room").wait().expect("the disk works");
    };
    append(&[(1, 1000, 0xa, b"first"), (2, 2000, 0xb, b"")]);
    append(&[(u32::MAX, u64::MAX / 2, u128::MAX - 1, b"exactly sixteen.")]);
    journal.consumer("reader").and_then(|reader| reader.commit(2)).expect("the disk works");
    journal.close().expect("the disk works");
    for name in ["0000000000-00000000000000000000.hwj", "consumer-reader.pos"] {
        let written = dump(&fs::read(place.path().join(name)).expect("it is there"));
        let path = golden(&format!("{name}.txt"));
        if std::env::var("JOURNAL_GOLDEN").is_ok_and(|what| what == "write") {
            fs::write(&path, &written).expect("it can be written");
        }
        let expected = fs::read_to_string(&path).expect("it is there");
        assert_eq!(written, expected, "{name}: see this test's header");
    }
}

/// Purpose: files that were written before can be read, and go on.
#[test]
fn the_golden_file_is_read() {
    let place = Place::new("golden-read");
    for name in ["0000000000-00000000000000000000.hwj", "consumer-reader.pos"] {
        let text = fs::read_to_string(golden(&format!("{name}.txt"))).expect("it is there");
        fs::write(place.path().join(name), undump(&text)).expect("it can be written");
    }
    let look = Directory::look(place.path()).expect("it is there");
    assert!(verify(&look).expect("it can be read").is_intact());
    let directory = Directory::open(place.path()).expect("nobody else has it");
    let journal = Journal::open(directory, options()).expect("it can be opened");
    assert_eq!(journal.recovery().to_string(), "");
    assert_eq!(journal.consumers(), [("reader".to_owned(), 2)]);
    let mut reader = journal.reader_from_start();
    let mut records = Vec::new();
    while let Item::Record(record) = reader.next().expect("the disk works") {
        let body = String::from_utf8_lossy(record.body).into_owned();
        records.push((record.offset, record.partition, record.time_us, record.id, body));
    }
    assert_eq!(
        records,
        [
            (0, 1, 1000, 0xa, "first".to_owned()),
            (1, 2, 2000, 0xb, String::new()),
            (2, u32::MAX, u64::MAX / 2, u128::MAX - 1, "exactly sixteen.".to_owned()),
        ]
    );
}
