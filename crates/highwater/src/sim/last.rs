//! The last bytes of a connection: may the worker end it with them?

use highwater_core::driver::{Close, Then};

use super::link::Link;
use super::script::Request;
use super::witness::{Around, Excuse, Watch};

impl Watch {
    /// The worker has sent its last bytes: is there a reason?
    pub(super) fn check_last(
        &self,
        then: Then,
        link: &Link,
        requests: &[Request],
        around: &Around<'_>,
    ) -> Result<(), String> {
        // An endless answer breaks off somewhere.
        let is_unread = self.is_unread(link, requests);
        if self.reader.is_inside() && !is_unread {
            return Err(format!("{then:?} in the middle of an answer"));
        }
        let is_announced = self.reader.answers().last().is_some_and(|answer| answer.closes);
        let finished = link.facts.eof_at.is_some() || is_unread;
        let overrun = self.overrun(link, requests) > around.limits.discard_max;
        match is_announced || finished || overrun || self.reader.raw().is_some() {
            true => Ok(()),
            false => Err(format!("{then:?} although the last answer did not say so")),
        }
    }

    /// The worker has sent the closing message of a sealed connection: as its last bytes, or because it closes.
    pub(super) fn check_closing_message(
        &self,
        link: &Link,
        requests: &[Request],
        around: &Around<'_>,
    ) -> Result<Option<Excuse>, String> {
        match self.check_last(Then::Close, link, requests, around) {
            Ok(()) => Ok(self.is_unread(link, requests).then_some(Excuse::HalfClosed)),
            Err(_) => self.check_close(Close::Fin, link, requests, around).map(Some),
        }
    }
}
