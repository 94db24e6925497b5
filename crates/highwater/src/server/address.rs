//! Is this text an address to listen on? If not, what should be written instead?

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Parses an IP address with a port.
///
/// # Errors
/// What is wrong with it, and what to write instead.
pub(super) fn parse(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| remedy(text))
}

fn remedy(text: &str) -> String {
    const FORM: &str =
        "an IP address and a port, such as 127.0.0.1:8080, 0.0.0.0:8080 or [::1]:8080";
    let (opened, closed) = (text.contains('['), text.contains(']'));
    if opened != closed {
        return format!("a bracket is missing; use {FORM}");
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return format!("the port is missing; use {}", SocketAddr::new(ip, 8080));
    }
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let Some((host, port)) = text.rsplit_once(':') else {
        if is_port(text) {
            return format!("the IP address is missing; use {FORM}");
        }
        return format!("not an address; use {FORM}");
    };
    if !is_port(port) {
        return format!("not an address; use {FORM}");
    }
    if port.parse::<u16>().is_err() {
        return "the port is too large; use 0 to 65535".to_owned();
    }
    if host.is_empty() {
        return format!(
            "the IP address is missing; use 0.0.0.0:{port} for all addresses of this machine"
        );
    }
    if host.parse::<Ipv6Addr>().is_ok() {
        return format!("an IPv6 address needs brackets; use [{host}]:{port}");
    }
    if host == "localhost" {
        return format!("a name is not an address; use 127.0.0.1:{port}");
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if host.bytes().all(is_name) && host.bytes().any(|byte| byte.is_ascii_alphabetic()) {
        return format!(
            "a name is not an address; use the IP address of {host}, or 0.0.0.0:{port}"
        );
    }
    format!("not an address; use {FORM}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a malformed address is answered with what to write instead.
    #[test]
    fn mistakes_get_their_remedy() {
        for good in ["127.0.0.1:8080", "0.0.0.0:0", "[::1]:65535"] {
            assert_eq!(parse(good).map(|address| address.to_string()), Ok(good.to_owned()));
        }
        for (text, remedy) in [
            ("127.0.0.1", "the port is missing; use 127.0.0.1:8080"),
            ("::1", "the port is missing; use [::1]:8080"),
            ("[::1]", "the port is missing; use [::1]:8080"),
            (":80", "the IP address is missing; use 0.0.0.0:80 for all addresses of this machine"),
            ("localhost:80", "a name is not an address; use 127.0.0.1:80"),
            (
                "db-1.lan:80",
                "a name is not an address; use the IP address of db-1.lan, or 0.0.0.0:80",
            ),
            ("127.0.0.1:65536", "the port is too large; use 0 to 65535"),
            ("fe80::1%lo:x", "not an address"),
            ("fe80::abcd:12345", "an IPv6 address needs brackets; use [fe80::abcd]:12345"),
            ("8080", "the IP address is missing"),
            ("[::1:80", "a bracket is missing; use an IP address and a port"),
            ("::1]:80", "a bracket is missing"),
            ("foo", "not an address; use an IP address and a port, such as 127.0.0.1:8080"),
            ("", "not an address"),
            ("1.2.3.4.5:80", "not an address"),
        ] {
            let message = parse(text).expect_err(text);
            assert!(message.starts_with(remedy), "{text}: {message}");
        }
    }
}
