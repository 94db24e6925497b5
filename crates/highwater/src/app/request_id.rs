//! Which id do a client and the log use for the same failed request?
//!
//! By the one that [`layers::request_id`](crate::layers::request_id) has given the request before anything else saw it.
//! Without that layer, by the one that the client or a proxy has sent (`X-Request-Id`), if it is short and printable; else
//! by one that is made once the request has failed: then a request that succeeds has no id, so it costs nothing. The
//! answer carries the id in the same field.

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};
use std::net::SocketAddr;

use highwater_core::http::Head;
use highwater_core::prng::Prng;
use http::HeaderName;

use crate::proxies::TrustedProxies;

/// The field of requests and answers. A convention, older than W3C's `traceparent`, and shorter.
pub(crate) const FIELD: HeaderName = HeaderName::from_static("x-request-id");

/// A longer id of a client is replaced by one of ours: the log must not grow with what clients send. A UUID has 36
/// characters; the rest is room for prefixes.
const SIZE_MAX: usize = 128;

thread_local! {
    static SOURCE: RefCell<Prng> = RefCell::new(Prng::from_seed(RandomState::new().hash_one(0)));
}

/// From here on this thread makes the same ids again for the same seed.
#[cfg(feature = "sim")]
pub(crate) fn restart(seed: u64) {
    SOURCE.set(Prng::from_seed(seed));
}

/// A new id. 64 random bits: in a thousand million of them, two are equal with a chance of 3 %.
pub(super) fn fresh() -> String {
    // A thread that is about to end has no source any more; its panics concern no client.
    let number = SOURCE.try_with(|source| source.borrow_mut().next_u64()).unwrap_or_default();
    format!("{number:016x}")
}

/// The id that was sent with a request, if it can be used.
pub(super) fn usable(sent: Option<&[u8]>) -> Option<&str> {
    let text = std::str::from_utf8(sent?).ok()?;
    let is_usable =
        (1..=SIZE_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_usable.then_some(text)
}

/// Where the ids of all requests come from: from the server, unless one is sent by somebody who may.
#[derive(Clone, Debug)]
pub(crate) enum RequestIds {
    /// Nobody may.
    Own,
    SentByProxies(TrustedProxies),
    SentByAnybody,
}

impl RequestIds {
    /// The id of the request with `head`, which `peer` has sent: a Unix socket, if it has no address.
    pub(super) fn choose(&self, head: &Head<'_>, peer: Option<SocketAddr>) -> String {
        let may_send = match self {
            RequestIds::Own => false,
            RequestIds::SentByProxies(proxies) => {
                peer.map_or(proxies.trusts_unix(), |peer| proxies.trusts(peer.ip()))
            }
            RequestIds::SentByAnybody => true,
        };
        let sent = head.request_id().filter(|_| may_send);
        usable(sent).map_or_else(fresh, str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: an id of a client is used as it is up to its bound, and never if it could spoil a line of the log.
    #[test]
    fn what_clients_send() {
        let longest = [b'x'; SIZE_MAX];
        let too_long = [b'x'; SIZE_MAX + 1];
        assert_eq!(usable(Some(b"r-7")), Some("r-7"));
        assert_eq!(usable(Some(&longest)).map(str::len), Some(SIZE_MAX));
        for refused in [&too_long[..], b"", b"a b", b"a\tb", b"\xff", "é".as_bytes()] {
            assert_eq!(usable(Some(refused)), None, "{}", refused.escape_ascii());
        }
        assert_eq!(usable(None), None);
    }

    /// Purpose: ids differ from one request to the next, and between threads.
    #[test]
    fn ids_differ() {
        let make = || (0..1000).map(|_| fresh()).collect::<Vec<_>>();
        let other = std::thread::spawn(make).join().expect("it does not panic");
        let mut all = [make(), other].concat();
        assert!(
            all.iter().all(|id| usable(Some(id.as_bytes())) == Some(id.as_str()) && id.len() == 16)
        );
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2000);
    }
}
