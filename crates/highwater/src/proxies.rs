//! Which client is behind a proxy, if the proxy can be trusted to name it?
//!
//! Proxies name the client that they pass a request on for in `X-Forwarded-For`, or in `Forwarded` (RFC 7239). Anybody can
//! send these fields, so they count only in requests that come from a [trusted](TrustedProxies) address. Each proxy appends
//! the address that it got the request from; so the client is the last one that is not itself a trusted proxy. Addresses
//! before it may be forged, and are ignored.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use highwater_core::http::Head;

/// The addresses of proxies that are trusted to name their clients.
///
/// Written as networks in CIDR notation or single addresses, with commas: `10.0.0.0/8,2001:db8::1`. The word `unix` stands
/// for the peers of Unix sockets, which have no address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<Network>,
    unix: bool,
}

/// Stands for the peers of Unix sockets.
const UNIX: &str = "unix";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u8,
}

impl TrustedProxies {
    /// Whether no proxy is trusted.
    pub fn is_empty(&self) -> bool {
        self.networks.is_empty() && !self.unix
    }

    /// Whether `address` is a trusted proxy's.
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.has(address))
    }

    /// Whether the peers of Unix sockets are trusted proxies.
    pub fn trusts_unix(&self) -> bool {
        self.unix
    }

    /// The address of the client that sent the request with `head`, which came from `peer`: the peer's own, unless that
    /// is a trusted proxy that names another. Without an address of its own the peer is that of a Unix socket: then a
    /// trusted proxy that it names is the client if it names no other, and `None` is returned if it is not trusted or
    /// names nobody.
    ///
    /// `X-Forwarded-For` counts if it is there, else `Forwarded`: a proxy that sets only the latter must remove the
    /// former. A name instead of an address (`unknown`, `_hidden`) stands for the proxy that wrote it.
    pub(crate) fn client(&self, peer: Option<SocketAddr>, head: &Head<'_>) -> Option<IpAddr> {
        let fields = head.headers();
        self.client_by(peer.map(|peer| peer.ip()), |name| fields.get_all(name))
    }

    /// The same, where `values` has the values of a field.
    pub(crate) fn client_by<'v, V: Iterator<Item = &'v [u8]>>(
        &self,
        peer: Option<IpAddr>,
        values: impl Fn(&'static str) -> V,
    ) -> Option<IpAddr> {
        let peer = peer.map(|peer| peer.to_canonical());
        if !peer.map_or(self.unix, |peer| self.trusts(peer)) {
            return peer;
        }
        let mut named = Named { proxies: self, client: None, proxy: None };
        if values("x-forwarded-for").next().is_some() {
            let elements = |value: &'v [u8]| value.split(|&byte| byte == b',');
            let elements = values("x-forwarded-for").flat_map(elements);
            elements.for_each(|element| named.add(address_in(element)));
        } else {
            values("forwarded").for_each(|value| forwarded_for(value, |client| named.add(client)));
        }
        named.client.or(peer).or(named.proxy)
    }
}

/// The client, as far as the elements of a list name it.
struct Named<'a> {
    proxies: &'a TrustedProxies,
    client: Option<IpAddr>,
    /// The nearest trusted proxy: the client if there is no other and the peer has no address.
    proxy: Option<IpAddr>,
}

impl Named<'_> {
    /// The next element, behind the others: trusted proxies change nothing, all else is nearer to us.
    fn add(&mut self, address: Option<IpAddr>) {
        match address {
            Some(address) if self.proxies.trusts(address) => {
                self.proxy = Some(address.to_canonical());
            }
            nearer => {
                self.client = nearer.map(|address| address.to_canonical());
                self.proxy = None;
            }
        }
    }
}

impl Network {
    fn has(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let differ = ours.to_bits() ^ theirs.to_bits();
                differ.checked_shr(32 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let differ = ours.to_bits() ^ theirs.to_bits();
                differ.checked_shr(128 - u32::from(self.bits)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// An address as it stands in `X-Forwarded-For`: alone, or with a port as some proxies write it.
fn address_in(element: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(element).ok()?.trim();
    let bare = || text.parse().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    bare().or_else(with_port).or_else(bracketed)
}

/// Gives `add` the address in each element of a `Forwarded` value (RFC 7239 §4): `for=192.0.2.60;proto=http`,
/// `For="[2001:db8::17]:4711"`. From where it is malformed, no address is in it.
///
/// Proxies quote what clients have sent, such as a host with commas in it, and append to what clients have sent, such as a
/// quote that never ends. Neither may name a client.
fn forwarded_for(value: &[u8], mut add: impl FnMut(Option<IpAddr>)) {
    let (mut rest, mut client) = (value, None);
    loop {
        let Some((name, of, after)) = pair(rest) else { return add(None) };
        if client.is_none() && name.eq_ignore_ascii_case(b"for") {
            client = Some(address_in(of));
        }
        match after.split_first() {
            Some((b';', more)) => rest = more,
            Some((_, more)) => {
                add(client.take().flatten());
                rest = more;
            }
            None => return add(client.take().flatten()),
        }
    }
}

/// The name and the value of the first pair in an element of `Forwarded`, and what begins with the comma or semicolon
/// behind it. A quoted value is without its quotes; nothing is unescaped, since no address needs that.
fn pair(from: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let is_end = |&byte: &u8| matches!(byte, b';' | b',');
    let bare_len = from.iter().position(|byte| matches!(byte, b';' | b',' | b'"'));
    let bare_len = bare_len.unwrap_or(from.len());
    let (bare, after) = from.split_at(bare_len);
    let equals = bare.iter().position(|&byte| byte == b'=');
    let Some((b'"', quoted)) = after.split_first() else {
        let (name, value) = bare.split_at(equals.unwrap_or(bare.len()));
        return Some((
            name.trim_ascii(),
            value.strip_prefix(b"=").unwrap_or(value).trim_ascii(),
            after,
        ));
    };
    let (name, before) = bare.split_at(equals?);
    let mut is_escaped = false;
    let len = quoted.iter().position(|&byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })?;
    let after = quoted[len + 1..].trim_ascii_start();
    let is_alone = before.trim_ascii() == b"=" && after.first().is_none_or(is_end);
    is_alone.then_some((name.trim_ascii(), &quoted[..len], after))
}

impl FromStr for TrustedProxies {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (unix, networks): (Vec<&str>, Vec<&str>) =
            text.split(',').partition(|element| element.trim() == UNIX);
        let networks = networks.into_iter().map(network).collect::<Result<_, _>>()?;
        Ok(TrustedProxies { networks, unix: !unix.is_empty() })
    }
}

fn network(text: &str) -> Result<Network, String> {
    let text = text.trim();
    let wrong = || {
        format!(
            "{text:?} is neither an address nor a network; use the form 10.0.0.0/8 or 2001:db8::1, or unix for \
             Unix sockets"
        )
    };
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = match bits {
        None => most,
        Some(bits) => bits.parse().ok().filter(|&bits| bits <= most).ok_or_else(wrong)?,
    };
    match address {
        // Addresses are compared in the form of IPv4 where they have one.
        IpAddr::V6(mapped) if mapped.to_ipv4_mapped().is_some() => match bits {
            96.. => Ok(Network { address: address.to_canonical(), bits: bits - 96 }),
            _ => Err(format!(
                "{text:?} reaches beyond the addresses of IPv4 that ::ffff:0.0.0.0/96 stands for; write a network of IPv4, such as \
                 10.0.0.0/8, or of IPv6"
            )),
        },
        _ => Ok(Network { address, bits }),
    }
}

impl fmt::Display for TrustedProxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let networks =
            self.networks.iter().map(|Network { address, bits }| format!("{address}/{bits}"));
        let all: Vec<String> = networks.chain(self.unix.then(|| UNIX.to_owned())).collect();
        f.write_str(&all.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client of a request with these fields.
    fn client(trusted: &str, peer: &str, fields: &str) -> String {
        let proxies: TrustedProxies = trusted.parse().expect("a list");
        let values = |wanted: &'static str| {
            let pairs = fields.lines().filter_map(|line| line.split_once(": "));
            let those = pairs.filter(move |(name, _)| name.eq_ignore_ascii_case(wanted));
            those.map(|(_, value)| value.as_bytes())
        };
        let peer = (peer != "unix").then(|| peer.parse().expect("an address"));
        proxies.client_by(peer, values).map_or_else(|| "nobody".to_owned(), |ip| ip.to_string())
    }

    /// Purpose: the peer of a Unix socket has no address; it is a trusted proxy if that is said, and only then.
    #[test]
    fn unix_sockets() {
        let named = "X-Forwarded-For: 203.0.113.9, 10.1.2.3\r\n";
        for (trusted, fields, expected) in [
            ("unix", named, "10.1.2.3"),
            ("unix,10.0.0.0/8", named, "203.0.113.9"),
            ("10.0.0.0/8", named, "nobody"),
            ("unix", "", "nobody"),
            ("unix", "X-Forwarded-For: unknown\r\n", "nobody"),
            // A client on the machine of the proxy itself.
            ("unix,127.0.0.1", "X-Forwarded-For: 127.0.0.1\r\n", "127.0.0.1"),
            ("unix,10.0.0.0/8", "X-Forwarded-For: unknown, 10.0.0.5, 10.0.0.6\r\n", "10.0.0.6"),
            ("unix,10.0.0.0/8", "X-Forwarded-For: 10.0.0.5, unknown\r\n", "nobody"),
        ] {
            assert_eq!(client(trusted, "unix", fields), expected, "{trusted}: {fields}");
        }
        assert_eq!(client("unix", "127.0.0.1", named), "127.0.0.1");
        let listed: TrustedProxies = "unix, 10.0.0.0/8".parse().expect("a list");
        assert_eq!(listed.to_string(), "10.0.0.0/8,unix");
        assert!(!listed.is_empty() && listed.trusts_unix());
    }

    /// Purpose: fields count only from trusted proxies, and of several addresses the last that is no proxy.
    #[test]
    fn only_trusted_proxies_name_clients() {
        let ours = "10.0.0.0/8,2001:db8::/32";
        for (peer, fields, expected) in [
            ("192.0.2.1", "X-Forwarded-For: 203.0.113.9\r\n", "192.0.2.1"),
            ("192.0.2.1", "Forwarded: for=203.0.113.9\r\n", "192.0.2.1"),
            ("10.1.2.3", "", "10.1.2.3"),
            ("10.1.2.3", "X-Forwarded-For: 203.0.113.9\r\n", "203.0.113.9"),
            ("::ffff:10.1.2.3", "X-Forwarded-For: 203.0.113.9\r\n", "203.0.113.9"),
            ("2001:db8::9", "X-Forwarded-For: 203.0.113.9\r\n", "203.0.113.9"),
            ("10.1.2.3", "X-Forwarded-For: 198.51.100.7, 203.0.113.9, 10.9.9.9\r\n", "203.0.113.9"),
            (
                "10.1.2.3",
                "X-Forwarded-For: 198.51.100.7\r\nX-Forwarded-For: 203.0.113.9\r\n",
                "203.0.113.9",
            ),
            ("10.1.2.3", "X-Forwarded-For: 203.0.113.9:1234\r\n", "203.0.113.9"),
            ("10.1.2.3", "X-Forwarded-For: 2001:db9::1\r\n", "2001:db9::1"),
            ("10.1.2.3", "X-Forwarded-For: [2001:db9::1]:80\r\n", "2001:db9::1"),
            ("10.1.2.3", "X-Forwarded-For: 203.0.113.9, unknown\r\n", "10.1.2.3"),
            ("10.1.2.3", "X-Forwarded-For: 203.0.113.9, \r\n", "10.1.2.3"),
            ("10.1.2.3", "X-Forwarded-For: 10.0.0.5\r\n", "10.1.2.3"),
            ("10.1.2.3", "Forwarded: for=203.0.113.9;proto=http\r\n", "203.0.113.9"),
            ("10.1.2.3", "Forwarded: by=10.0.0.1; FOR=\"[2001:db9::1]:80\"\r\n", "2001:db9::1"),
            ("10.1.2.3", "Forwarded: for=198.51.100.7, for=_hidden\r\n", "10.1.2.3"),
            (
                "10.1.2.3",
                "Forwarded: for=198.51.100.7,for=\"203.0.113.9\" ; proto=http\r\n",
                "203.0.113.9",
            ),
            ("10.1.2.3", "Forwarded: for=198.51.100.7, \r\n", "10.1.2.3"),
            (
                "10.1.2.3",
                "Forwarded: for=1.1.1.1\r\nX-Forwarded-For: 203.0.113.9\r\n",
                "203.0.113.9",
            ),
        ] {
            assert_eq!(client(ours, peer, fields), expected, "{peer}: {fields}");
        }
    }

    /// Purpose: what a client sends names nobody, neither within a proxy's quotes nor in front of what the proxy appends.
    #[test]
    fn no_client_names_another() {
        let own = "Forwarded: for=203.0.113.9";
        let hosts =
            ["a,for=6.6.6.6;x=", "a, for=6.6.6.6", "a;for=6.6.6.6", r#"a\",for=6.6.6.6;x=\\"#];
        for host in hosts {
            let fields = format!("{own};host=\"{host}\"\r\n");
            assert_eq!(client("10.0.0.0/8", "10.1.2.3", &fields), "203.0.113.9", "{fields}");
            let fields = format!("Forwarded: host=\"{host}\";for=203.0.113.9\r\n");
            assert_eq!(client("10.0.0.0/8", "10.1.2.3", &fields), "203.0.113.9", "{fields}");
        }
        for sent in ["for=6.6.6.6;x=\"", "for=6.6.6.6,\"", "\"", "for=\"6.6.6.6", "x=\"\\"] {
            for appended in ["for=203.0.113.9", "for=\"203.0.113.9\"", "for=203.0.113.9;host=\"\""]
            {
                let fields = format!("Forwarded: {sent}, {appended}\r\n");
                assert_eq!(client("10.0.0.0/8", "10.1.2.3", &fields), "10.1.2.3", "{fields}");
            }
            let fields = format!("Forwarded: {sent}\r\n{own}\r\n");
            assert_eq!(client("10.0.0.0/8", "10.1.2.3", &fields), "203.0.113.9", "{fields}");
        }
    }

    /// Purpose: networks of every length, and what is no network.
    #[test]
    fn networks() {
        let trusts = |list: &str, address: &str| {
            let list: TrustedProxies = list.parse().expect("a list");
            list.trusts(address.parse().expect("an address"))
        };
        assert!(trusts("192.0.2.0/25", "192.0.2.127") && !trusts("192.0.2.0/25", "192.0.2.128"));
        assert!(trusts("0.0.0.0/0", "255.1.2.3") && !trusts("0.0.0.0/0", "::1"));
        assert!(trusts("192.0.2.1", "192.0.2.1") && !trusts("192.0.2.1/32", "192.0.2.0"));
        assert!(trusts("::/0", "2001::") && trusts("2001:db8::1", "2001:db8::1"));
        assert!(!trusts("2001:db8::/64", "2001:db8:0:1::"));
        assert!(
            trusts("::ffff:10.0.0.0/104", "10.1.2.3") && trusts("::ffff:192.0.2.1", "192.0.2.1")
        );
        assert!(trusts("::ffff:10.0.0.0/104", "::ffff:10.1.2.3"));
        assert!(!trusts("::ffff:10.0.0.0/104", "11.1.2.3"));
        for wrong in ["::ffff:0.0.0.0/95", "::ffff:10.0.0.0/8", "::ffff:10.0.0.0/129"] {
            assert!(wrong.parse::<TrustedProxies>().is_err(), "{wrong}");
        }
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "proxy", "10.0.0.1,", "1.1.1.1/-1"] {
            assert!(wrong.parse::<TrustedProxies>().is_err(), "{wrong}");
        }
        assert_eq!(
            "10.0.0.0/8,::1".parse::<TrustedProxies>().expect("a list").to_string(),
            "10.0.0.0/8,::1/128"
        );
    }
}
