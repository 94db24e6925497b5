//! Which clients do the requests belong to that wait in a standing or a long queue?
//!
//! The application names the client (`Router::fair_by`), or the address does. This is determined once for each request, and
//! not while the queue is short. If the application's function is slow, the worker continues its turn, and determines the
//! rest in later turns.

use std::net::SocketAddr;

use highwater_core::driver::Driver;
use highwater_core::limit::ClientKey;
use highwater_core::time::Clock;

use super::exchange::{Exchange, Item};
use super::protocol::Protocol;
use super::turn::Turn;
use super::{Parts, WorkerState};
use crate::admission::TURN_MAX;
use crate::admission::client::Clients;
use crate::app::{App, RequestBody};

impl<C: Clock, P: Protocol> WorkerState<C, P> {
    /// Puts waiting requests in the order of their clients' shares. A connection's peer is asked for once.
    #[cold]
    pub(super) fn order_queue(&mut self, driver: &mut impl Driver) {
        let WorkerState { app, connections, parts, .. } = self;
        let Parts { admission, clients, turn, .. } = parts;
        let until = turn.clock.now() + TURN_MAX;
        let sources = admission.gate.sources().cloned();
        let mut is_over = false;
        admission.order(|waiting: &Item| {
            let waiting = waiting.exchange();
            let Some(id) = connections.lookup(waiting) else {
                return Some(clients.of(None)); // It is closed, and leaves the queue unseen.
            };
            if is_over {
                return None;
            }
            let (connection, exchanges) = connections.with_exchanges(id);
            let (_, _, exchange) = exchanges.get_mut(waiting.index() as u32);
            if app.names_clients() {
                let named = ask(app, connection.peer, exchange, clients, turn);
                is_over = turn.clock.now() >= until;
                if named.is_some() {
                    return named;
                }
            }
            let request = exchange.queue.waiting.as_ref().map(|waiting| waiting.request());
            let passed_on = request.and_then(|it| clients.of_request(connection.peer, &it.head));
            passed_on.or_else(|| {
                let peer = connection.peer;
                Some(*connection.client.get_or_insert_with(|| {
                    let ip = peer.or_else(|| driver.peer(id)).map(|peer| peer.ip());
                    if let (Some(sources), Some(ip)) = (&sources, ip) {
                        sources.count(ip);
                    }
                    clients.of(ip)
                }))
            })
        });
        self.release_displaced();
    }

    /// Requests that found no room hold none of the places that others could have, although refusing them all takes a while.
    fn release_displaced(&mut self) {
        let WorkerState { connections, parts, agenda, .. } = self;
        for displaced in parts.admission.displaced() {
            let displaced = displaced.exchange();
            let Some(id) = connections.lookup(displaced) else { continue };
            let (connection, exchanges) = connections.with_exchanges(id);
            let (_, _, exchange) = exchanges.get_mut(displaced.index() as u32);
            if let Some(waiting) = &mut exchange.queue.waiting {
                waiting.is_displaced = true;
                agenda.touch(id, connection);
            }
        }
    }
}

/// The client of the request that waits, if the application names one. If it panics, that ends the request when its turn
/// comes.
fn ask<C: Clock>(
    app: &App,
    peer: Option<SocketAddr>,
    exchange: &mut Exchange,
    clients: &Clients,
    turn: &mut Turn<C>,
) -> Option<ClientKey> {
    let (target, waiting) = (exchange.target?, exchange.queue.waiting.as_mut()?);
    let Turn { blocking, clock, .. } = turn;
    let timed = blocking.begin(clock.clock());
    let request = waiting.request();
    let (head, body) = (&request.head, RequestBody::Whole(&[]));
    let of = app.request(target, head, &waiting.routed, body, peer, &exchange.disconnected);
    let named = app.client(&of, clients.secret());
    drop(of);
    if let Some(timed) = timed {
        blocking.end(timed, clock.clock(), exchange.endpoint);
    }
    match named {
        Ok(hash) => hash.map(ClientKey::new),
        Err(panic) => {
            app.report_panics(Some(target), request.head.request_id());
            waiting.panic = Some(panic);
            None
        }
    }
}
