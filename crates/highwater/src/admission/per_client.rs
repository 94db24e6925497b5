//! Has this client as many connections open as it may have?
//!
//! The setting `connections-per-client`: a number that all workers of a server count by, when a connection is accepted and
//! when it has ended, and never in between. A client is an address, or an IPv6 network, as for shares (`client.rs`); trusted
//! proxies, and peers without an address, have no limit: they bring the connections of many.
//!
//! Invariant: there is a count for a client exactly while it has a connection, so there are no more than connections.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::client::{Network, network};
use crate::proxies::TrustedProxies;

/// The counts are in this many parts, so that workers seldom wait for each other. A guess: a count takes well below a
/// microsecond.
const PARTS: usize = 16;

/// How many connections each client has.
#[derive(Clone, Debug)]
pub(crate) struct PerClient(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    max: u32,
    proxies: TrustedProxies,
    parts: [Mutex<HashMap<Network, u32>>; PARTS],
}

/// The client has as many connections as it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// The place that a connection takes among those of its client, until this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    of: PerClient,
    network: Network,
}

impl PerClient {
    /// Each client may have `max` connections, but for `proxies`.
    pub(crate) fn new(max: u32, proxies: TrustedProxies) -> Self {
        PerClient(Arc::new(Counts { max, proxies, parts: Default::default() }))
    }

    /// A place for another connection of `peer`; `None` if its connections are not counted.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn enter(&self, peer: Option<SocketAddr>) -> Result<Option<Place>, Full> {
        let Some(ip) = peer.map(|peer| peer.ip()).filter(|&ip| !self.0.proxies.trusts(ip)) else {
            return Ok(None);
        };
        let network = network(ip);
        match self.part(network).entry(network) {
            Entry::Occupied(entry) if *entry.get() >= self.0.max => return Err(Full),
            Entry::Occupied(mut entry) => *entry.get_mut() += 1,
            Entry::Vacant(entry) => {
                entry.insert(1);
            }
        }
        Ok(Some(Place { of: self.clone(), network }))
    }

    /// The part of the counts in which a client has its own.
    fn part(&self, (_, bits): Network) -> MutexGuard<'_, HashMap<Network, u32>> {
        // Fibonacci hashing: neighbours are in different parts.
        let part = bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - PARTS.ilog2());
        self.0.parts[part as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut part = self.of.part(self.network);
        if let Entry::Occupied(mut entry) = part.entry(self.network) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(text.parse().expect("an address"), 4711))
    }

    fn counts(of: &PerClient) -> usize {
        of.0.parts.iter().map(|part| part.lock().expect("no test panics").len()).sum()
    }

    /// Purpose: each client has its own number of places, up to it and not beyond, and gets them back; IPv6 addresses of
    /// one network are one client; who has no connection has no count.
    #[test]
    fn places_are_counted_by_client() {
        let of = PerClient::new(2, TrustedProxies::default());
        let mut places = Vec::new();
        for (address, fits) in [
            ("192.0.2.1", true),
            ("::ffff:192.0.2.1", true),
            ("192.0.2.1", false),
            ("192.0.2.2", true),
            ("2001:db8::1", true),
            ("2001:db8::ffff:1", true),
            ("2001:db8::2", false),
            ("2001:db8:0:1::2", true),
        ] {
            let entered = of.enter(peer(address));
            assert_eq!(entered.is_ok(), fits, "{address}");
            places.extend(entered.ok().flatten());
        }
        assert_eq!((places.len(), counts(&of)), (6, 4));
        drop(places.remove(0));
        places.extend(of.enter(peer("192.0.2.1")).expect("there is a place again"));
        assert_eq!(of.enter(peer("192.0.2.1")).err(), Some(Full));
        places.clear();
        assert_eq!(counts(&of), 0);
    }

    /// Purpose: those who bring the connections of others are not counted.
    #[test]
    fn proxies_have_no_limit() {
        let of = PerClient::new(1, "10.0.0.0/8".parse().expect("a network"));
        for exempt in [peer("10.1.2.3"), peer("::ffff:10.1.2.3"), None] {
            let places = [0; 3].map(|_| of.enter(exempt));
            assert!(places.iter().all(|place| matches!(place, Ok(None))), "{exempt:?}");
        }
        assert_eq!(counts(&of), 0);
    }
}
