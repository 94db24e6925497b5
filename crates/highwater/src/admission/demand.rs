//! What do a connection and an exchange want of their worker?

use super::gate::Wants;

/// The demand of a connection, or of an exchange, on its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Nothing: it is idle, or it is being closed.
    None,
    /// The worker's time: it was just accepted, or its request waits to be started.
    Time,
    /// An answer that is being made: its handler was started and waits for something else.
    Answer,
}

impl Demand {
    /// The demand of two together: the more urgent one.
    pub(crate) fn or(self, other: Demand) -> Demand {
        match (self, other) {
            (Demand::Time, _) | (_, Demand::Time) => Demand::Time,
            (Demand::Answer, _) | (_, Demand::Answer) => Demand::Answer,
            (Demand::None, Demand::None) => Demand::None,
        }
    }
}

impl Wants {
    /// The demand of one of them changes from `before` to `after`.
    pub(super) fn change(&mut self, before: Demand, after: Demand) {
        for (demand, change) in [(before, u32::MAX), (after, 1)] {
            let count = match demand {
                Demand::None => continue,
                Demand::Time => &mut self.time,
                Demand::Answer => &mut self.answers,
            };
            *count = count.wrapping_add(change); // Adding `MAX` subtracts one.
        }
    }
}
