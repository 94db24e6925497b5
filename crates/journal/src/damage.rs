//! What of a journal cannot be read, and how that is said.

use std::fmt;

/// Part of a journal that holds no records any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// What happened to it.
    pub kind: DamageKind,
    /// The file.
    pub file: String,
    /// Where in it.
    pub at: u64,
    /// How many bytes.
    pub bytes: u64,
    /// The first offset that may be missing.
    pub first_offset: u64,
    /// The first offset behind them that is not missing.
    pub next_offset: u64,
}

/// What happened to a part of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DamageKind {
    /// It was durable, and is not what was written: the disk, or somebody, has changed it.
    Changed,
    /// It is not what was written, and nothing shows that it was ever durable: a crash may have torn it,
    /// in which case it was not acknowledged.
    Torn,
    /// The beginning of a file is not what was written, but says all that is needed: no record is lost.
    Header,
    /// A whole file cannot be read, because both copies of its header are gone.
    File,
    /// A whole file is gone.
    Missing,
    /// Retention has removed it before it was read.
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

/// What stands at the end of the newest file and is no record: a write that a crash cut off.
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

/// So many damages are told one by one; further ones are counted.
pub const DAMAGE_MAX: usize = 1000;

/// What was found in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// How many records are intact.
    pub records: u64,
    /// How many segments there are.
    pub segments: usize,
    /// What the segments take of the disk.
    pub bytes: u64,
    /// The offset of the first record.
    pub first_offset: Option<u64>,
    /// The offset of the last record.
    pub last_offset: Option<u64>,
    /// The offset that the next record gets, or a later one.
    pub next_offset: u64,
    /// What holds no records any more, up to [`DAMAGE_MAX`] of them.
    pub damage: Vec<Damage>,
    /// How many more there are.
    pub damage_untold: u64,
    /// What stands at the end and is no record. Opening the journal to write has cut it off.
    pub tail: Option<Tail>,
    /// Bytes of segments that were finished in order and have not been read: their seals were.
    pub unscanned_bytes: u64,
    /// Files that were begun and hold nothing, because a crash came first. Opening removes them.
    pub unfinished: Vec<String>,
}

impl Report {
    pub(crate) fn push(&mut self, damage: Damage) {
        if self.damage.len() < DAMAGE_MAX {
            self.damage.push(damage);
        } else {
            self.damage_untold += 1;
        }
    }

    /// Whether all that was read is as it was written. A tail that a crash cut off is no damage.
    pub fn is_intact(&self) -> bool {
        self.damage.is_empty()
    }
}

/// What an operator should know: a line for each damage, one for what was cut, none if all is well.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for damage in &self.damage {
            writeln!(f, "{damage}")?;
        }
        if self.damage_untold > 0 {
            writeln!(f, "and {} more", self.damage_untold)?;
        }
        if let Some(tail) = &self.tail {
            writeln!(f, "{tail}")?;
        }
        Ok(())
    }
}
