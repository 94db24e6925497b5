//! One connection whose next request is queued: a view of its head before it is begun.

use super::parse;
use super::state::{Connection, Input, Reply, Scratch};
use crate::http::{Head, Limits};
use crate::time::Instant;

impl Connection {
    /// Whether [`Connection::next`] might hand out a request.
    pub fn awaits_request(&self, limits: &Limits) -> bool {
        matches!(self.input, Input::Head | Input::Collecting)
            && self.reply == Reply::None
            && self.output.len() < limits.output_max
            && self.tail.is_empty()
    }

    /// The head of the request in `input`, together with input taken before. `None` if it is incomplete or
    /// invalid: then [`Connection::next`] will not hand out a request. Takes nothing and changes nothing.
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

    /// Holds the next request back, or stops holding it. While it is held, the peer's deadlines rest.
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
