//! Unreadable parts of a journal, and how they are reported.

use std::fmt;

/// A damaged part of a journal, whose records are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What happened to it.
    pub kind: DamageKind,
    /// The file.
    pub file: String,
    /// The position in the file.
    pub at: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The first offset that may be missing.
    pub first_offset: u64,
    /// The first offset after them that is not missing.
    pub next_offset: u64,
}

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamageKind {
    /// It was durable and differs from what was written: the disk, or something else, changed it.
    Changed,
    /// It differs from what was written, and may never have been durable: if a crash tore it, it was not acknowledged.
    Torn,
    /// The beginning of a file is damaged, but one header copy is intact: no record is lost.
    Header,
    /// A whole file cannot be read, because both copies of its header are gone.
    File,
    /// A whole file is missing.
    Missing,
    /// All segments are missing. They had at least these records; how many followed is unknown.
    NoSegments,
    /// The newest segment is missing, or an older copy has taken its place. It had at least these records; how many
    /// followed is unknown.
    Newest,
    /// Retention removed it before it was read.
    Removed,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Damage { kind, file, at, bytes, first_offset, next_offset } = self;
        match kind {
            DamageKind::Changed => {
                write!(f, "{file}: {bytes} bytes at {at} were durable and are not intact")?;
            }
            DamageKind::Torn => write!(
                f,
                "{file}: {bytes} bytes at {at} are not intact; a crash may have torn them before they \
                 were acknowledged"
            )?,
            DamageKind::Header => {
                return write!(
                    f,
                    "{file}: the header is not intact at {at}; no record is lost, since it stands there twice"
                );
            }
            DamageKind::File => write!(
                f,
                "{file}: no intact header at 0, so none of its {bytes} bytes can be read"
            )?,
            DamageKind::Missing => write!(f, "{file}: the file is gone, all of it from 0 on")?,
            DamageKind::NoSegments | DamageKind::Newest => {
                let what = match kind {
                    DamageKind::NoSegments => "all segments are gone",
                    _ => {
                        "the newest records are gone, as if the file was replaced by an older copy, or the next was removed"
                    }
                };
                let known = match next_offset.saturating_sub(*first_offset) {
                    0 | 1 => format!("the record {first_offset} was there"),
                    _ => {
                        format!("the records from {first_offset} to {} were there", next_offset - 1)
                    }
                };
                return write!(
                    f,
                    "{file}: {what}: {known}, and how many followed is not known; stop, and restore them from a copy if there is \
                     one"
                );
            }
            DamageKind::Removed => {
                write!(f, "{file}: retention has removed it before it was read")?
            }
        }
        match next_offset.saturating_sub(*first_offset) {
            0 => f.write_str("; no record is missing"),
            1 => write!(f, "; the record {first_offset} is missing"),
            _ => {
                let last = next_offset - 1;
                write!(f, "; records from {first_offset} to {last} are missing")
            }
        }
    }
}

/// Invalid bytes at the end of the newest file: a write that a crash interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The file.
    pub file: String,
    /// Where the last intact record ends.
    pub at: u64,
    /// How many bytes follow.
    pub bytes: u64,
    /// How many records the file has before that.
    pub records_kept: u64,
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tail { file, at, bytes, records_kept } = self;
        write!(
            f,
            "{file}: {bytes} bytes at {at} are a write that was cut off; the file's {records_kept} \
             records before it are intact"
        )
    }
}

/// The largest number of damaged parts that are reported individually; further ones are counted.
pub const DAMAGE_MAX: usize = 1000;

/// The state of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// How many records are intact.
    pub records: u64,
    /// How many segments there are.
    pub segments: usize,
    /// The bytes that the segments occupy.
    pub bytes: u64,
    /// The offset of the first record.
    pub first_offset: Option<u64>,
    /// The offset of the last record.
    pub last_offset: Option<u64>,
    /// The next record's offset, or a lower bound of it.
    pub next_offset: u64,
    /// The damage found, up to [`DAMAGE_MAX`] entries.
    pub damage: Vec<Damage>,
    /// How many further damaged parts there are.
    pub damage_omitted: u64,
    /// The invalid bytes at the end. Opening the journal for writing cuts them off.
    pub tail: Option<Tail>,
    /// Bytes of cleanly closed segments of which only the seals were read.
    pub unscanned_bytes: u64,
    /// Empty files left by a crash during their creation. Opening removes them.
    pub unfinished: Vec<String>,
}

impl Report {
    pub(crate) fn push(&mut self, damage: Damage) {
        if self.damage.len() < DAMAGE_MAX {
            self.damage.push(damage);
        } else {
            self.damage_omitted += 1;
        }
    }

    /// Whether everything read is as it was written. A tail left by a crash is not damage.
    pub fn is_intact(&self) -> bool {
        self.damage.is_empty()
    }
}

/// A summary for operators: a line for each damage, one for the tail, none if all is well.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for damage in &self.damage {
            writeln!(f, "{damage}")?;
        }
        if self.damage_omitted > 0 {
            writeln!(f, "and {} more", self.damage_omitted)?;
        }
        if let Some(tail) = &self.tail {
            writeln!(f, "{tail}")?;
        }
        Ok(())
    }
}
