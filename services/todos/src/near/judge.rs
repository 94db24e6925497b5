//! Decides which list is shown: the one in Redis, or the one of this instance's model. It asks nobody.

use crate::store::Revision;

/// What this instance's model shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The store's revision that it is of.
    pub revision: Revision,
    /// How often it has changed.
    pub number: u64,
}

/// Which list is shown, and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// That of Redis.
    Theirs,
    /// That of the model.
    Ours {
        /// Redis gets it, for the other instances.
        fill: bool,
        /// It is of the newest known version, so this instance keeps it.
        keep: bool,
    },
}

/// Redis knows the store at revision `theirs`, and has a list of it or not. The model showed `before` when Redis was
/// asked, and shows `number` now.
pub fn judge(theirs: Revision, has_list: bool, before: Shown, number: u64) -> Verdict {
    if has_list && theirs >= before.revision {
        return Verdict::Theirs;
    }
    // No push announces what another instance is about to fill in, so it must be looked for.
    let keep = theirs <= before.revision;
    // It is of exactly that version.
    let fill = keep && number == before.number;
    Verdict::Ours { fill, keep }
}

/// Under which number the lists of a near cache are valid. `generation` counts how often Redis reported a change, or may
/// have done so unnoticed; `number` how often this instance's model has changed. Both only grow.
pub fn validity(generation: u64, number: u64) -> u64 {
    generation + number
}
