//! The file of records that Kafka will never accept.
//!
//! One JSON object per line: `partition`, `offset`, `time_us`, `id` as `highwater journal cat --json` writes them, `topic`,
//! `reason`, and `body`, or `body_base64` if it is not text. A line is durable before the journal's position passes its
//! record. A crash may truncate a line; its record is then delivered or written again, so an id may appear twice.
//!
//! Room for a line is reserved behind the end of the file, where the file system can do that. Otherwise a record that Kafka
//! refuses could block a spool that has filled its disk: no record after it could be delivered and so free room.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use highwater_journal::Stored;

use crate::sink::kafka::{Error, ErrorKind, Settings};

/// How much room is reserved: for a record of the default `record_bytes_max`, 1 MiB, of which a line takes a third more, or
/// twice as much if half of it has to be escaped.
const RESERVED: u64 = 2 << 20;

#[derive(Debug)]
pub(super) struct DeadLetters {
    path: PathBuf,
    file: File,
}

impl DeadLetters {
    /// Opens or creates the file. A line truncated by a crash stays, and is terminated.
    pub(super) fn open(path: &Path) -> Result<DeadLetters, Error> {
        let failed = |error: io::Error| {
            let text = format!("dead letters {}: {error}", path.display());
            Error::new(ErrorKind::Disk, text)
        };
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(path).map_err(failed)?;
        end_line(&mut file).map_err(failed)?;
        reserve(&file);
        // The name has to be durable as well.
        if let Some(parent) = path.parent() {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed)?;
        }
        Ok(DeadLetters { path: path.to_owned(), file })
    }

    fn failed(&self, error: &io::Error) -> Error {
        let text = format!("dead letters {}: {error}", self.path.display());
        Error::new(ErrorKind::Disk, text)
    }

    /// Appends a record. It is durable after the next [`sync`](DeadLetters::sync).
    pub(super) fn write(
        &mut self,
        topic: &str,
        record: &Stored<'_>,
        reason: &str,
    ) -> Result<(), Error> {
        let line = line(topic, record, reason);
        self.file.write_all(&line).map_err(|error| {
            // Terminate a partly written line.
            let _ = end_line(&mut self.file);
            self.failed(&error)
        })
    }

    pub(super) fn sync(&mut self) -> Result<(), Error> {
        self.file.sync_data().map_err(|error| self.failed(&error))?;
        reserve(&self.file);
        Ok(())
    }

    /// Reserves room again, if there was none before.
    pub(super) fn reserve(&self) {
        reserve(&self.file);
    }
}

pub(super) fn too_large(bytes: usize, max: usize) -> String {
    format!("the message has {bytes} bytes, and the topic takes {max} (max.message.bytes)")
}

/// Writes a record to the dead letters.
pub(super) fn bury(
    dead_letters: &mut DeadLetters,
    settings: &Settings,
    record: &Stored<'_>,
    reason: &str,
) -> Result<(), Error> {
    let Stored { partition, offset, .. } = record;
    tracing::error!(partition, offset, "a record goes to the dead letters: {reason}");
    dead_letters.write(&settings.topic, record, reason)
}

/// Where that cannot be done, because there is no room or the file system does not reserve any, a letter takes what is free.
fn reserve(file: &File) {
    #[cfg(target_os = "linux")]
    if let Ok(about) = file.metadata() {
        use rustix::fs::{FallocateFlags, fallocate};
        let _ = fallocate(file, FallocateFlags::KEEP_SIZE, about.len(), RESERVED);
    }
}

fn end_line(file: &mut File) -> io::Result<()> {
    let length = file.seek(SeekFrom::End(0))?;
    if length == 0 {
        return Ok(());
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last == *b"\n" { Ok(()) } else { file.write_all(b"\n") }
}

fn line(topic: &str, record: &Stored<'_>, reason: &str) -> Vec<u8> {
    let mut object = serde_json::json!({
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "time_us": record.time_us,
        "id": format!("{:032x}", record.id),
        "reason": reason,
    });
    match std::str::from_utf8(record.body) {
        Ok(text) => object["body"] = text.into(),
        Err(_) => object["body_base64"] = BASE64.encode(record.body).into(),
    }
    format!("{object}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a line is one line whatever the body contains, a truncated one does not spoil others, and any decoder can
    /// recover bodies that are not text (RFC 4648, section 4).
    #[test]
    fn lines_stay_lines() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("dead-letters");
        std::fs::write(&path, b"{\"id\":\"cut of").expect("a file for the test");
        let record =
            |body: &'static [u8]| Stored { offset: 7, partition: 3, time_us: 9, id: 10, body };
        let mut letters = DeadLetters::open(&path).expect("it opens");
        letters.write("t", &record(b"two\nlines \"quoted\""), "too large").expect("written");
        letters.write("t", &record(&[0xff, 0]), "too large").expect("written");
        letters.sync().expect("synced");
        let text = std::fs::read_to_string(&path).expect("it is text");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        let parsed: serde_json::Value = serde_json::from_str(lines[1]).expect("it is JSON");
        assert_eq!(parsed["body"], "two\nlines \"quoted\"");
        assert_eq!(parsed["id"], "0000000000000000000000000000000a");
        let parsed: serde_json::Value = serde_json::from_str(lines[2]).expect("it is JSON");
        assert_eq!(parsed["body_base64"], "/wA=");
    }

    /// Purpose: on a disk that others have filled there is room for a dead letter of the size that records have at most, and
    /// for another one once there was room in between.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_full_disk_takes_a_letter() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let place = folder.path();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(place);
        if !mount.output().is_ok_and(|output| output.status.success()) {
            highwater_skip::skip("root", "mounting a tmpfs needs root");
            return;
        }
        let body = vec![0xff; 1 << 20];
        let record = Stored { offset: 7, partition: 3, time_us: 9, id: 10, body: &body };
        let mut letters = DeadLetters::open(&place.join("dead")).expect("it opens");
        let ballast = place.join("ballast");
        let mut written = Vec::new();
        for _ in 0..2 {
            assert!(std::fs::write(&ballast, vec![0; 8 << 20]).is_err());
            written.push(letters.write("t", &record, "refused").and_then(|()| letters.sync()));
            std::fs::remove_file(&ballast).expect("it is there");
            letters.reserve();
        }
        drop(letters);
        let _ = std::process::Command::new("umount").arg("-l").arg(place).output();
        assert!(written.iter().all(Result::is_ok), "{written:?}");
    }
}
