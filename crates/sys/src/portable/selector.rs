//! The system's reports about sockets, and how a report finds its connection.

use std::io;
use std::time::Duration;

use highwater_core::driver::ListenerId;
use mio::{Events, Poll, Registry, Token};

/// How many events one wait takes. The next wait takes the rest.
const EVENTS_MAX: usize = 512;

/// What an event is about. Connections have their slot index as token; there are fewer of them than it takes to reach
/// the tokens of the others.
pub(super) enum Subject {
    Wake,
    Listener(ListenerId),
    Connection(u32),
}

const WAKE: Token = Token(usize::MAX);
const FIRST_LISTENER: usize = usize::MAX - 1 - u16::MAX as usize;

impl Subject {
    pub(super) fn token(self) -> Token {
        match self {
            Subject::Wake => WAKE,
            Subject::Listener(id) => Token(FIRST_LISTENER + id.index()),
            Subject::Connection(index) => Token(index as usize),
        }
    }

    fn of(token: Token) -> Subject {
        match token {
            WAKE => Subject::Wake,
            Token(number) if number >= FIRST_LISTENER => {
                Subject::Listener(ListenerId((number - FIRST_LISTENER) as u16))
            }
            Token(number) => Subject::Connection(number as u32),
        }
    }
}

/// What has happened to the socket of a connection.
#[derive(Clone, Copy)]
pub(super) struct News {
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
    /// The peer has finished sending.
    pub(super) is_hung_up: bool,
    /// It may have failed: asking says whether it has.
    pub(super) is_failure: bool,
}

pub(super) struct Selector {
    poll: Poll,
    events: Events,
}

impl Selector {
    pub(super) fn new() -> io::Result<Selector> {
        Ok(Selector { poll: Poll::new()?, events: Events::with_capacity(EVENTS_MAX) })
    }

    pub(super) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Waits for events. Returns whether there may be more of them than one wait takes.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.events.clear();
                Ok(false)
            }
            other => other.map(|()| self.events.iter().count() == EVENTS_MAX),
        }
    }

    /// The events of the last wait.
    pub(super) fn events(&self) -> impl Iterator<Item = (Subject, News)> {
        self.events.iter().map(|event| {
            let is_hung_up = event.is_read_closed();
            let news = News {
                is_readable: event.is_readable() || is_hung_up || event.is_error(),
                is_writable: event.is_writable(),
                is_hung_up,
                is_failure: event.is_error() || is_hung_up && event.is_write_closed(),
            };
            (Subject::of(event.token()), news)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: every token names what it was made for, at the borders of what it can be made for.
    #[test]
    fn tokens_are_told_apart() {
        for id in [0, 1, u16::MAX] {
            let found = Subject::of(Subject::Listener(ListenerId(id)).token());
            assert!(matches!(found, Subject::Listener(ListenerId(found)) if found == id), "{id}");
        }
        for index in [0, 1, 1 << 20] {
            let found = Subject::of(Subject::Connection(index).token());
            assert!(matches!(found, Subject::Connection(found) if found == index), "{index}");
        }
        assert!(matches!(Subject::of(Subject::Wake.token()), Subject::Wake));
    }
}
