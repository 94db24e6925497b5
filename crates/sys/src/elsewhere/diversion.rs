//! Keeping a part of some sources' attempts to connect from the listeners, which only Linux can: there is never a diversion.

use std::io;

use super::needs_linux;
use crate::{Held, ListenQueue, Listener};

/// The diversion of a server's listeners. There is none here.
#[derive(Debug)]
pub enum Diversion {}

impl Diversion {
    /// Diverts nothing.
    ///
    /// # Errors
    /// Always.
    pub fn new<'l>(_: impl IntoIterator<Item = &'l [Listener]>) -> io::Result<Diversion> {
        Err(needs_linux("a diversion of attempts to connect"))
    }

    /// Holds back these sources.
    ///
    /// # Errors
    /// Never: there is no such diversion.
    pub fn hold(&mut self, _: &[Held]) -> io::Result<()> {
        match *self {}
    }

    /// Resets the connections that found room.
    pub fn empty(&mut self) {
        match *self {}
    }

    /// The queues that count what was kept away.
    pub fn sinks(&self) -> std::iter::Empty<ListenQueue> {
        match *self {}
    }
}
