//! Decides what an instance that follows a store has to read. It asks no store and no clock.
//!
//! A store's history is a line of versions. A restore from a backup takes the store back, and new commands may then raise
//! its version past the last known one. So a version is remembered together with a random number that its transaction
//! has drawn, its stamp: if the store has another one for that version, or the version is lower than one that was seen,
//! this is another history. The
//! first instance to notice gives the store a new timeline; all others see it.

use uuid::Uuid;

use super::Revision;

/// Where a store is in its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Its revision.
    pub revision: Revision,
    /// Distinguishes that version from the same version of another history.
    pub stamp: Option<Uuid>,
    /// What was deleted up to this version is not known any more.
    pub horizon: u64,
}

/// What a follower knows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Follower {
    /// What it has reported last.
    pub reported: Option<State>,
    /// Somebody has seen the store at this revision.
    pub seen: Revision,
    /// The newest todos are to be read again, although nothing may have changed.
    pub again: bool,
}

/// Whether the store's history is the one that a follower knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It is.
    None,
    /// It is if this version has this stamp.
    Past(u64, Uuid),
    /// It is not, and nobody has given the new one its timeline yet.
    Restored,
}

impl Follower {
    /// Whether there is anything to read in a store that is at `now`.
    pub fn is_news(&self, now: &State) -> bool {
        self.again
            || now.revision < self.seen
            || self.reported.is_none_or(|reported| {
                (now.revision, now.stamp) != (reported.revision, reported.stamp)
            })
    }

    /// Whether a store that is at `now` was restored.
    pub fn doubt(&self, now: &State) -> Doubt {
        if now.revision < self.seen {
            return Doubt::Restored;
        }
        match self.reported {
            // As many versions, or more, but perhaps not ours among them.
            Some(State { revision, stamp: Some(stamp), .. })
                if revision.timeline == now.revision.timeline =>
            {
                Doubt::Past(revision.version, stamp)
            }
            _ => Doubt::None,
        }
    }

    /// The timeline for a history that begins with a restore, whatever the clock says.
    pub fn new_timeline(&self, now: &State, now_us: i64) -> u64 {
        let known = now.revision.timeline.max(self.seen.timeline);
        u64::try_from(now_us).unwrap_or(0).max(known.saturating_add(1))
    }

    /// The version behind which the differences are enough. `None`: everything is to be read.
    pub fn known(&self, now: &State) -> Option<u64> {
        let known = self.reported?.revision;
        // What is to be read again is read when nothing has changed: outcomes are reported first.
        let is_quiet = self.again && known.version == now.revision.version;
        // On another timeline nothing that is known holds.
        let holds = known.timeline == now.revision.timeline
            && (now.horizon..=now.revision.version).contains(&known.version);
        (holds && !is_quiet).then_some(known.version)
    }

    /// Remembers that it has reported the store at `now`.
    pub fn note_reported(&mut self, now: State, was_everything: bool) {
        self.reported = Some(now);
        self.seen = now.revision;
        self.again &= !was_everything;
    }

    /// Somebody has seen the store at `revision`.
    pub fn was_seen(&mut self, revision: Revision) {
        self.seen = self.seen.max(revision);
    }
}
