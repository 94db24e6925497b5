//! Records in files.

use std::path::PathBuf;

use super::super::record::Record;
use super::super::show;
use super::{change, record};

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("highwater-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the temporary folder is ours");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Purpose: a saved record is read back unchanged, A/A run and void rows included, and leaves no other file in the folder.
#[test]
fn a_record_survives_its_file() {
    let folder = Folder::new("record");
    let path = folder.0.join("r.json");
    let mut saved = record(&[1.0, 1.25]);
    saved.aa.as_mut().expect("it has one").rows = saved.cells.clone();
    saved.cells[1].status = "void".to_owned();
    saved.cells[1].reason = Some("it \"ended\"\n".to_owned());
    saved.cells[1].measured = None;
    for _ in 0..2 {
        saved.save(&path).expect("the folder can be written");
        assert_eq!(Record::read(&path).expect("just written"), saved);
    }
    saved.aa = None;
    saved.cells.clear();
    saved.save(&path).expect("the folder can be written");
    assert_eq!(Record::read(&path).expect("just written"), saved);
    assert_eq!(std::fs::read_dir(&folder.0).expect("it is there").count(), 1);
}

/// Purpose: a file that is not a record, or cannot be read or written, is reported by its path.
#[test]
fn files_that_are_no_records() {
    let folder = Folder::new("no-record");
    let path = folder.0.join("r.json");
    assert_eq!(Record::find(&path), Ok(None));
    assert!(
        Record::read(&path).expect_err("nothing is there").contains("r.json: there is no record")
    );
    std::fs::write(&path, "").expect("the folder can be written");
    assert_eq!(Record::find(&path), Ok(None));
    std::fs::write(&path, "{\n \"cells\": 3}").expect("the folder can be written");
    assert!(Record::read(&path).expect_err("no record").contains("r.json:2: "));
    assert!(
        record(&[1.0])
            .save(&folder.0.join("no/r.json"))
            .expect_err("no folder")
            .contains("no` makes its folder")
    );
}

/// Purpose: a row that says it was measured, and lacks a figure, is not left out of a claim: its record is refused.
#[test]
fn rows_without_their_figures() {
    let folder = Folder::new("no-figures");
    let path = folder.0.join("r.json");
    record(&[1.0, 1.25]).save(&path).expect("the folder can be written");
    let text = std::fs::read_to_string(&path).expect("just written");
    for (from, to) in [("\"requests\":1000,", ""), ("\"p99_us\":100.0", "\"p99_us\":null")] {
        std::fs::write(&path, text.replacen(from, to, 1)).expect("the folder can be written");
        let problem = Record::read(&path).expect_err("a figure is missing");
        assert!(problem.contains("r.json: the row of a in x, round 0, is ok, but"), "{problem}");
    }
}

/// Purpose: a record that cannot be written leaves no half of a file.
#[test]
fn a_record_that_cannot_be_written() {
    let folder = Folder::new("half");
    let path = folder.0.join("r.json");
    std::fs::create_dir_all(path.join("occupied")).expect("the folder can be written");
    record(&[1.0]).save(&path).expect_err("a folder is in the way");
    assert_eq!(std::fs::read_dir(&folder.0).expect("it is there").count(), 1);
}

/// Purpose: a reader sees every server, the ratio to the first, and why rows are void.
#[test]
fn tables() {
    let mut record = record(&[1.5, 1.5, 1.5, 1.5, 1.5]);
    change(&mut record.cells[0]).foreign_on_client_cpus = 0.9;
    let mut void = super::row("c", 0, 1.0);
    (void.status, void.reason, void.measured) =
        ("void".into(), Some("no such program".into()), None);
    record.cells.push(void);
    let text = show::text(&record);
    assert!(text.contains("1.500 [1.500, 1.500] n=4"), "{text}");
    assert!(text.contains("void: c: 1 of 1: no such program"), "{text}");
    assert!(text.contains("1 something else used the client's CPUs, 1 void"), "{text}");
    assert!(
        text.contains("A/A: a against itself is [0.990, 1.010] over 6 pairs, which cover 96.9 %\n"),
        "{text}"
    );
    assert!(text.contains("\nintervals cover: n=4 at least 87.5 %\n"), "{text}");
    let (first, second) = (text.find("\n  b "), text.find("\n  a "));
    assert!(first < second && first.is_some(), "the cheapest comes first: {text}");
}
