//! Kinds of behaviour that take part in addition to those of every run.
//!
//! Each kind can be switched on separately (`highwater sim --with NAME`), so that a test can exist
//! before the fix: a kind that the server is known to fail is `pending`, and takes part only on
//! request. The fix changes the table below to `Passes`.
//!
//! Without any kind, a seed gives the same run as before there were kinds.

use std::fmt;

use highwater_core::prng::Prng;

/// A kind of behaviour of applications, of clients, or of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Other threads wake tasks, end jobs and ask for a drain, also while the worker sleeps, in its
    /// driver or in its runtime; and they wake tasks after their end.
    Wakes,
    /// Event streams that never end, uploads that are read slowly, upgraded connections on which
    /// the server sends first; their clients reset.
    Streams,
    /// Streams whose pieces are all ready at once, so that they end within the turn that began
    /// them.
    Prompt,
    /// Clients that reset at any byte, and at any moment after it.
    Leaving,
    /// Clients that finish (FIN) at any byte, and at any moment after it.
    Finishing,
    /// Clients that finish while a handler that waits for long has not answered, or in an endless
    /// event stream.
    HalfClosed,
    /// Panics in handlers, extractors, hooks, middleware, renderers, futures, content and jobs.
    Panics,
    /// Panics in `Drop`: of panic payloads, of futures and of content; and in the closure of an
    /// upgrade.
    PanickingDrops,
    /// Answers that HTTP does not allow.
    Invalid,
    /// The whole process stops for seconds, while the clients' bytes keep arriving.
    Stops,
    /// Proxies: connections that are kept for dozens of requests. What is refused goes to another
    /// instance, whatever its method, so it must not have been begun here.
    Proxies,
    /// Clients that ask again a moment after each refusal, until they are served.
    Crowd,
    /// A crowd at one address, and one client at another: each address has its share of a standing queue.
    Unequal,
    /// Besides, a run of its own in which the worker serves a protocol with streams: up to fifty requests at once on a
    /// connection, windows and resets.
    Multiplexed,
    /// Besides, a run of its own whose clients speak HTTP/2.
    Http2,
    /// Several listeners, of which the last has no gate, as Unix sockets have none.
    Listeners,
    /// Connections whose bytes are sealed: a handshake, then records, and a closing message at every end.
    Sealed,
    /// WebSockets that echo: fragments, pings between them, and every way to end.
    WebSockets,
}

impl Kind {
    /// Every kind, and its name for `--with`.
    const TABLE: [(Kind, &'static str, Status); 18] = [
        (Kind::Wakes, "wakes", Status::Passes),
        (Kind::Streams, "streams", Status::Passes),
        (Kind::Prompt, "prompt", Status::Passes),
        (Kind::Leaving, "leaving", Status::Passes),
        (Kind::Finishing, "finishing", Status::Passes),
        (Kind::HalfClosed, "half-closed", Status::Passes),
        (Kind::Panics, "panics", Status::Passes),
        (Kind::PanickingDrops, "panicking-drops", Status::Passes),
        (Kind::Invalid, "invalid", Status::Passes),
        (Kind::Stops, "stops", Status::Passes),
        (Kind::Proxies, "proxies", Status::Passes),
        (Kind::Crowd, "crowd", Status::Passes),
        (Kind::Unequal, "unequal", Status::Passes),
        (Kind::Multiplexed, "multiplexed", Status::Passes),
        (Kind::Http2, "http2", Status::Passes),
        (Kind::Listeners, "listeners", Status::Passes),
        (Kind::Sealed, "sealed", Status::Passes),
        (Kind::WebSockets, "websockets", Status::Passes),
    ];

    /// Every kind.
    pub fn all() -> impl Iterator<Item = Kind> {
        Kind::TABLE.into_iter().map(|(kind, ..)| kind)
    }

    /// The kind called `name`.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::all().find(|kind| kind.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Kind::TABLE[self as usize].1
    }

    /// Whether the server is known to fail it.
    pub fn is_pending(self) -> bool {
        Kind::TABLE[self as usize].2 == Status::Pending
    }
}

/// Whether the server is known to handle a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// It takes part in every other run.
    Passes,
    /// The server fails it: it takes part only on request.
    Pending,
}

/// A set of kinds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kinds(u32);

impl Kinds {
    /// None: only the behaviour of every run.
    pub const NONE: Kinds = Kinds(0);

    /// All but those that are pending.
    pub fn proven() -> Self {
        Kind::all().filter(|kind| !kind.is_pending()).fold(Kinds::NONE, Kinds::with)
    }

    /// These and `kind`.
    #[must_use]
    pub fn with(self, kind: Kind) -> Self {
        Kinds(self.0 | 1 << kind as u32)
    }

    /// These and those.
    #[must_use]
    pub fn and(self, more: Kinds) -> Self {
        Kinds(self.0 | more.0)
    }

    /// Whether `kind` is in the set.
    pub fn has(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u32 != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether connections are sealed in a run of `seed`: in every second one, whatever else takes part.
    pub(super) fn seals(self, seed: u64) -> bool {
        self.has(Kind::Sealed) && seed % 2 == 1
    }

    /// The kinds of the run of `seed`: each takes part in every second run, so that none hides another. Not the one that
    /// has a run of its own, nor the one that [`Kinds::seals`] draws. WebSockets are in every fourth.
    pub(super) fn draw(self, prng: &mut Prng, seed: u64) -> Self {
        let apart = [Kind::Multiplexed, Kind::Http2, Kind::Sealed, Kind::WebSockets];
        let kinds = Kind::all().filter(|kind| !apart.contains(kind));
        let mut drawn = kinds.filter(|_| prng.chance(1, 2)).fold(Kinds::NONE, Kinds::with);
        if seed % 4 == 3 {
            drawn = drawn.with(Kind::WebSockets);
        }
        Kinds(self.0 & drawn.0)
    }
}

impl Default for Kinds {
    fn default() -> Self {
        Kinds::proven()
    }
}

impl fmt::Debug for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = Kind::all().filter(|&kind| self.has(kind)).map(Kind::name);
        f.debug_list().entries(kinds).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a kind is found by its name, and stands at its own place in the table.
    #[test]
    fn named() {
        for kind in Kind::all() {
            assert_eq!(Kind::named(kind.name()), Some(kind));
            assert!(Kinds::NONE.with(kind).has(kind));
            assert_eq!(Kinds::proven().has(kind), !kind.is_pending());
        }
    }
}
