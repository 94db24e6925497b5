//! The protocol beneath the requests of a client.
//!
//! A dialer is one: over HTTP/1.1 the client reads the answers itself. Other protocols read them below, and each of
//! their *places* (a stream) looks to the client like a connection that carries one request at a time.

use std::io;

use highwater_core::driver::{ConnId, Wait};
use highwater_sys::dial::{Arrival, Dial, Event};

use super::counts::Outcome;
use super::request::Request;
use super::template::Values;

/// Requests of one kind, to be sent in one go.
pub(crate) struct Batch<'a> {
    pub(crate) request: &'a Request,
    /// Its message and size, if it never changes.
    pub(crate) fixed: Option<(usize, usize)>,
    pub(crate) count: usize,
    pub(crate) values: &'a mut Values,
    /// For bodies that are being written.
    pub(crate) scratch: &'a mut Vec<u8>,
}

/// Stands for the status of a message of WebSocket, which has none.
pub(crate) const MESSAGE: u16 = 0;

/// What happened.
pub(crate) enum Happened<'a> {
    /// To a connection.
    Io(Event<'a>),
    /// So many bytes arrived on any.
    Bytes(usize),
    /// An answer begins.
    Status(ConnId, u16),
    /// A field of it.
    Field(ConnId, &'a [u8], &'a [u8]),
    /// A piece of its content.
    Content(ConnId, &'a [u8]),
    /// It is complete; its status.
    End(ConnId, u16, Arrival),
    /// The request has failed; the connection is to be closed.
    Broken(ConnId, Outcome),
}

/// Carries requests. The contract is that of [`Dial`]; `Broken` may also stand for `Connected`, and does not close.
pub(crate) trait Wire {
    /// As [`Dial::connect`].
    fn connect(&mut self) -> io::Result<ConnId>;

    /// Sends requests.
    fn begin(&mut self, id: ConnId, batch: Batch<'_>);

    /// As [`Dial::close`].
    fn close(&mut self, id: ConnId);

    /// As [`Dial::closing`].
    fn closing(&self) -> usize;

    /// As [`Dial::poll`].
    fn poll(&mut self, wait: Wait, on_event: &mut impl FnMut(Happened<'_>)) -> io::Result<()>;
}

impl<D: Dial> Wire for D {
    #[inline]
    fn connect(&mut self) -> io::Result<ConnId> {
        Dial::connect(self)
    }

    #[inline]
    fn begin(&mut self, id: ConnId, batch: Batch<'_>) {
        if let Some((message, size)) = batch.fixed {
            return self.send(id, message, size * batch.count);
        }
        self.write(id, |buffer| {
            for _ in 0..batch.count {
                batch.request.write(batch.values, batch.scratch, buffer);
            }
        });
    }

    #[inline]
    fn close(&mut self, id: ConnId) {
        Dial::close(self, id);
    }

    fn closing(&self) -> usize {
        Dial::closing(self)
    }

    #[inline]
    fn poll(&mut self, wait: Wait, on_event: &mut impl FnMut(Happened<'_>)) -> io::Result<()> {
        Dial::poll(self, wait, &mut |event| on_event(Happened::Io(event)))
    }
}
