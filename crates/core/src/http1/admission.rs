//! One connection whose next request has to wait for its turn: what it is, before it is begun.

use super::connection::{Connection, Input, Reply, Scratch};
use super::head::Head;
use super::limits::Limits;
use super::parse;
use crate::time::Instant;

impl Connection {
    /// Whether [`Connection::next`] might hand out a request.
    pub fn awaits_request(&self, limits: &Limits) -> bool {
        matches!(self.input, Input::Head | Input::Collecting)
            && self.reply == Reply::None
            && self.output.len() < limits.output_max
            && self.tail.is_empty()
    }

    /// The head of the request that `input`, with what was taken before, is a part of. `None` if it is
    /// not complete, or not valid: then [`Connection::next`] will not hand out a request. Takes
    /// nothing and changes nothing.
    pub fn peek<'r>(
        &'r self,
        input: &'r [u8],
        scratch: &'r mut Scratch,
        limits: &Limits,
    ) -> Option<Head<'r>> {
        let bytes = match (&self.input, &self.partial) {
            (Input::Collecting, Some(partial)) => partial.head.as_slice(),
            (Input::Head, _) => input,
            _ => return None,
        };
        let parsed = parse::parse(bytes, limits, &mut scratch.spans).ok().flatten()?;
        let (head, _) = bytes.split_at(parsed.len);
        Some(parsed.head(head, &scratch.spans))
    }

    /// Holds the next request back, or no longer. While it is held, the peer is not blamed for the
    /// time that passes.
    pub fn hold(&mut self, held: bool, now: Instant) {
        if self.held && !held {
            self.since = now;
            self.progress = now;
            self.body_bytes = 0;
            self.note_movement(now);
        }
        self.held = held;
    }
}
