//! Whose are the requests that wait in a standing queue?

use highwater_core::driver::Driver;

use super::WorkerState;
use super::exchange::ExchangeId;
use super::protocol::Protocol;

impl<C, P: Protocol> WorkerState<C, P> {
    /// Puts waiting requests in the order of their clients' shares. A connection's peer is asked for once.
    #[cold]
    pub(super) fn order_queue(&mut self, driver: &mut impl Driver) {
        let WorkerState { connections, parts, .. } = self;
        let clients = &parts.clients;
        parts.admission.order(|waiting: &ExchangeId| {
            let Some(id) = connections.lookup(*waiting) else {
                return clients.of(None); // It is closed, and leaves the queue unseen.
            };
            let connection = connections.get_mut(id);
            let peer = connection.peer;
            *connection.client.get_or_insert_with(|| {
                let peer = peer.or_else(|| driver.peer(id));
                clients.of(peer.map(|peer| peer.ip()))
            })
        });
    }
}
