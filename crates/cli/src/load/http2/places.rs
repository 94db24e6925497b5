//! Where requests are: a place for each request that can be in progress.

use super::super::counts::Outcome;
use super::super::message::Written;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Free,
    /// Its connection is being made.
    Dialing,
    Idle,
    /// Its request waits for a connection, or for a stream of one.
    Waiting,
    /// Its request is on this stream.
    Open(u32),
}

/// A place of one request at a time.
#[derive(Default)]
pub(super) struct Place {
    pub(super) state: State,
    pub(super) connection: Option<u32>,
    /// The last one, or the one that waits.
    pub(super) request: Written,
}

/// All places of a client.
#[derive(Default)]
pub(super) struct Places {
    list: Vec<Place>,
    free: Vec<u32>,
    /// Those whose connection is made; to be reported.
    pub(super) ready: Vec<u32>,
    /// Those whose request has failed; to be reported.
    pub(super) lost: Vec<(u32, Outcome)>,
    /// Those whose request has to find another connection.
    pub(super) unassigned: Vec<u32>,
}

impl Places {
    /// A free place, for which a connection is made.
    pub(super) fn take(&mut self) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.list.push(Place::default());
            u32::try_from(self.list.len() - 1).expect("fewer places than 4 billion")
        });
        self.at(index).state = State::Dialing;
        index
    }

    pub(super) fn give_back(&mut self, index: u32) {
        self.at(index).state = State::Free;
        self.ready.retain(|ready| *ready != index);
        self.lost.retain(|(lost, _)| *lost != index);
        self.unassigned.retain(|unassigned| *unassigned != index);
        self.free.push(index);
    }

    #[inline]
    pub(super) fn at(&mut self, index: u32) -> &mut Place {
        &mut self.list[index as usize]
    }

    /// Whether something is to be reported without waiting.
    pub(super) fn has_news(&self) -> bool {
        !self.ready.is_empty() || !self.lost.is_empty()
    }

    /// The request of a place has failed, or its connection could not be made; but not a request that goes to another one.
    pub(super) fn lose(&mut self, index: u32, outcome: Outcome) {
        if self.unassigned.contains(&index) {
            return;
        }
        let place = self.at(index);
        let was = std::mem::replace(&mut place.state, State::Idle);
        if !matches!(was, State::Free | State::Idle) {
            self.lost.push((index, outcome));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a request that goes to another connection is not lost with the one that told it to go, also when both happen in
    /// one turn. Once, it was counted as cut off, and sent again all the same.
    #[test]
    fn a_request_that_moves_is_not_lost() {
        let mut places = Places::default();
        let (moves, stays) = (places.take(), places.take());
        for place in [moves, stays] {
            places.at(place).state = State::Waiting;
        }
        places.unassigned.push(moves);
        for place in [moves, stays] {
            places.lose(place, Outcome::Truncated);
        }
        assert_eq!(places.lost, [(stays, Outcome::Truncated)]);
        assert_eq!(places.at(moves).state, State::Waiting);
    }
}
