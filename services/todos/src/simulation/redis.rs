//! A server that does what the scripts of `near` do, one at a time. `near/*.lua` are their text.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::store::Revision;

/// What the scripts keep.
#[derive(Debug, Default)]
pub(crate) struct Redis {
    state: Option<State>,
    lists: BTreeMap<u32, Bytes>,
    epochs: u64,
}

#[derive(Debug)]
struct State {
    epoch: u64,
    revision: Revision,
    /// The lists of that revision.
    of_it: BTreeSet<u32>,
}

/// The answer to a lookup.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) epoch: u64,
    pub(crate) revision: Revision,
    pub(crate) list: Option<Bytes>,
}

impl Redis {
    /// Everything is gone.
    pub(crate) fn restart(&mut self) {
        let epochs = self.epochs;
        *self = Redis { epochs, ..Redis::default() };
    }

    /// `advance.lua`: the newest revision that was ever announced, and whether that is news.
    pub(crate) fn advance(&mut self, revision: Revision) -> (Revision, bool) {
        if let Some(state) = &self.state
            && state.revision >= revision
        {
            return (state.revision, false);
        }
        let epoch = self.epoch();
        self.lists.clear();
        self.state = Some(State { epoch, revision, of_it: BTreeSet::new() });
        (revision, true)
    }

    /// `lookup.lua`.
    pub(crate) fn lookup(&mut self, limit: u32) -> Found {
        let epoch = self.epoch();
        let new = || State { epoch, revision: Revision::default(), of_it: BTreeSet::new() };
        let state = self.state.get_or_insert_with(new);
        let is_of_it = state.of_it.contains(&limit);
        let list = self.lists.get(&limit).filter(|_| is_of_it).cloned();
        Found { epoch: state.epoch, revision: state.revision, list }
    }

    /// `fill.lua`: whether it was taken, and whether its revision is news.
    pub(crate) fn fill(
        &mut self,
        limit: u32,
        epoch: u64,
        revision: Revision,
        list: Bytes,
    ) -> (bool, bool) {
        let Some(state) = &mut self.state else { return (false, false) };
        if state.epoch != epoch || revision < state.revision {
            return (false, false);
        }
        let is_news = revision != state.revision;
        if is_news {
            state.of_it.clear();
            self.lists.clear();
            state.revision = revision;
        }
        self.lists.insert(limit, list);
        state.of_it.insert(limit);
        (true, is_news)
    }

    /// That of the state, or a new one.
    fn epoch(&mut self) -> u64 {
        match &self.state {
            Some(state) => state.epoch,
            None => {
                self.epochs += 1;
                self.epochs
            }
        }
    }
}
