//! What crosses the wire, byte for byte?

use super::Client;
use super::server::Waited;
use crate::sim::Stage;

/// A connection on which the test decides about every byte. Dropping it resets it.
#[derive(Debug)]
pub struct Connection<'c> {
    client: &'c Client,
    link: usize,
    reads: bool,
    unsent: Vec<u8>,
    finishes: bool,
    received: Vec<u8>,
}

impl<'c> Connection<'c> {
    /// A new connection with a receive buffer of `window` bytes, which are read as they come if it
    /// `reads`.
    pub(super) fn open(client: &'c Client, window: usize, reads: bool) -> Self {
        let mut server = client.server.borrow_mut();
        let network = server.network();
        let link = network.add(window);
        network.connect(link);
        server.settle();
        drop(server);
        Connection {
            client,
            link,
            reads,
            unsent: Vec::new(),
            finishes: false,
            received: Vec::new(),
        }
    }

    /// Sends `bytes`, as far as the server takes them now, and reads its answers.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.unsent.extend_from_slice(bytes.as_ref());
        self.exchange();
    }

    /// Ends sending; what the server sends is still read.
    pub fn finish(&mut self) {
        self.finishes = true;
        self.exchange();
    }

    /// Everything received so far, byte for byte.
    pub fn received(&mut self) -> &[u8] {
        self.exchange();
        &self.received
    }

    /// Reads at most `most` bytes more; for a connection that does not read automatically.
    pub fn read(&mut self, most: usize) -> &[u8] {
        let mut server = self.client.server.borrow_mut();
        server.settle();
        let bytes = server.network().read(self.link, most);
        server.settle();
        self.received.extend_from_slice(&bytes);
        &self.received[self.received.len() - bytes.len()..]
    }

    /// Whether the server has ended the connection and everything it sent was read, or has reset it.
    pub fn is_closed(&self) -> bool {
        let mut server = self.client.server.borrow_mut();
        let link = server.network().link(self.link);
        link.has_ended() || link.stage == Stage::Refused
    }

    /// Whether the server has reset the connection.
    pub fn is_reset(&self) -> bool {
        self.client.server.borrow_mut().network().link(self.link).was_reset
    }

    /// Whether it is reset, or everything that the server will send was read.
    pub(super) fn is_over(&self) -> bool {
        self.is_closed() || self.is_reset()
    }

    /// Lets time pass until something may have happened.
    ///
    /// # Panics
    /// If nothing is to be expected; `what` is waited for.
    #[track_caller]
    pub(super) fn wait(&mut self, waited: &mut Waited, what: &str) {
        let passed = self.client.server.borrow_mut().wait(waited);
        if let Err(why) = passed {
            panic!("no {what}: {why}");
        }
    }

    /// Sends what can be sent and reads what there is, until nothing more happens.
    fn exchange(&mut self) {
        let mut server = self.client.server.borrow_mut();
        loop {
            server.settle();
            let network = server.network();
            let sent = network.send(self.link, &self.unsent);
            self.unsent.drain(..sent);
            let finishes = self.finishes && self.unsent.is_empty();
            if finishes {
                self.finishes = false;
                network.finish(self.link);
            }
            let received =
                if self.reads { network.read(self.link, usize::MAX) } else { Vec::new() };
            self.received.extend_from_slice(&received);
            if sent == 0 && received.is_empty() && !finishes {
                return;
            }
        }
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        // While a test fails, the server may be in the middle of something.
        if let Ok(mut server) = self.client.server.try_borrow_mut()
            && !std::thread::panicking()
        {
            server.network().leave(self.link);
            server.settle();
        }
    }
}
