//! Bytes of connections that do not begin with the protocol: sealed ones, and connections of a proxy, whose header names
//! the client; and the check whether a client may have another connection.
//!
//! A header is accepted only from a trusted proxy. Any other peer is refused when its connection is accepted, because it
//! could name any client. The deadline of the first request also covers the header.

use std::net::SocketAddr;

use highwater_core::time::Clock;

use super::super::connections::Connection;
use super::super::protocol::Protocol;
use super::ConnectionMut;
use crate::admission::client::Clients;
use crate::admission::per_client::{Full, PerClient};
use crate::metrics::{Rejection, WorkerMetrics};

impl<P: Protocol> Connection<P> {
    /// A connection was accepted where proxies say who their clients are.
    #[cold]
    pub(in super::super) fn await_preamble(&mut self, clients: &Clients, metrics: &WorkerMetrics) {
        self.channel.await_preamble();
        if !clients.trust(self.peer) {
            metrics.rejected(Rejection::AcceptUntrusted);
            self.link.abort();
        }
    }

    /// It is known who the client is. If that one has as many connections as it may have, this one is reset.
    pub(in super::super) fn take_place(&mut self, of: &PerClient, metrics: &WorkerMetrics) {
        match of.enter(self.peer) {
            Ok(place) => self.place = place,
            Err(Full) => {
                metrics.rejected(Rejection::AcceptClientConnections);
                self.channel.refuse();
                self.link.abort();
            }
        }
    }
}

impl<C: Clock, P: Protocol> ConnectionMut<'_, C, P> {
    /// Reads the proxy's header, if one is awaited; then opens what is sealed, and serves the rest.
    #[cold]
    pub(super) fn receive_prepared(&mut self, received: &mut [u8]) {
        if self.connection.link.is_aborted() {
            return; // Its peer was refused, and may not have noticed yet.
        }
        match self.connection.channel.pass_preamble(received) {
            Ok(None) => self.touch(),
            Ok(Some((client, length))) => self.receive_behind(client, &mut received[length..]),
            Err(_) => {
                self.parts.metrics.rejected(Rejection::AcceptProxyHeader);
                self.connection.link.abort();
                self.touch();
            }
        }
    }

    fn receive_behind(&mut self, client: Option<SocketAddr>, rest: &mut [u8]) {
        if client.is_some() {
            self.connection.peer = client;
            if let Some(of) = &self.parts.per_client {
                self.connection.take_place(of, &self.parts.metrics);
            }
        }
        match self.connection.channel.is_sealed() {
            _ if self.connection.link.is_aborted() => self.touch(),
            _ if rest.is_empty() => self.touch(),
            true => self.receive_sealed(rest),
            false => self.take_in(rest),
        }
    }
}
