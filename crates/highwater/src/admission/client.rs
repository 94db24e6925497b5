//! Who is a client, where each gets its share?
//!
//! The address of the peer: an IPv4 address, or the first 64 bits of an IPv6 address, since a client that has one such
//! address usually has all of that network (RFC 6177). Clients are compared by a hash with a secret of the
//! process's own, so nobody can choose addresses that share an account with somebody else's. All peers of Unix sockets
//! are one client, unless they are trusted proxies: then those that they name.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};

use highwater_core::http::Head;
use highwater_core::limit::ClientKey;

use crate::proxies::TrustedProxies;

/// Turns addresses into clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients {
    secret: RandomState,
    proxies: TrustedProxies,
}

impl Clients {
    /// Requests that come through `proxies` are those of the clients that these name.
    pub(crate) fn behind(proxies: TrustedProxies) -> Clients {
        Clients { secret: RandomState::new(), proxies }
    }

    /// Whether `peer` may say who its clients are. One without an address is that of a Unix socket.
    pub(crate) fn trust(&self, peer: Option<SocketAddr>) -> bool {
        peer.map_or(self.proxies.trusts_unix(), |peer| self.proxies.trusts(peer.ip()))
    }

    /// The client of the request with `head`, if the head decides that.
    pub(crate) fn of_request(
        &self,
        peer: Option<SocketAddr>,
        head: &Head<'_>,
    ) -> Option<ClientKey> {
        // A peer that has no address is one of a Unix socket.
        if self.proxies.is_empty() || peer.is_none() && !self.proxies.trusts_unix() {
            return None;
        }
        Some(self.of(self.proxies.client(peer, head)))
    }

    /// The secret by which clients are distinguished.
    pub(crate) fn secret(&self) -> &RandomState {
        &self.secret
    }

    /// The client with the address `ip`; all whose address is not known are one.
    pub(crate) fn of(&self, ip: Option<IpAddr>) -> ClientKey {
        ClientKey::new(self.secret.hash_one(ip.map(network)))
    }
}

/// The bits that identify a client: whether they are of an IPv6 address, and its first 64, or all of an IPv4 address.
pub(super) type Network = (bool, u64);

/// The bits that identify a client. An IPv4 address gives the same, whichever way it is written.
pub(super) fn network(ip: IpAddr) -> Network {
    match ip.to_canonical() {
        IpAddr::V4(ip) => (false, u64::from(ip.to_bits())),
        IpAddr::V6(ip) => (true, (ip.to_bits() >> 64) as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: addresses are one client exactly if one user has them all.
    #[test]
    fn a_client_is_an_address_or_a_network() {
        let clients = Clients::default();
        let key = |text: &str| clients.of(Some(text.parse().expect("an address")));
        for (one, other, are_same) in [
            ("192.0.2.1", "192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("::192.0.2.1", "192.0.2.1", false),
        ] {
            assert_eq!(key(one) == key(other), are_same, "{one}, {other}");
        }
        assert_eq!(clients.of(None), clients.of(None));
        assert_ne!(clients.of(None), key("192.0.2.1"));
    }
}
