//! Where do requests go, and what are their bytes?

use std::fs::File;
use std::io::{self, Read};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use super::args::{Args, BODY_MAX, MESSAGES_MAX, URLS_MAX};

/// Where to connect to, and what to send there.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// The bytes of one request for each URL.
    pub(crate) requests: Vec<Vec<u8>>,
}

/// A URL of the kind that can be loaded.
#[derive(Debug, PartialEq, Eq)]
struct Url {
    /// As it goes into `Host`.
    authority: String,
    host: String,
    port: u16,
    /// Path and query.
    path: String,
}

/// Resolves the host, once, and encodes the requests.
pub(crate) fn resolve(args: &Args) -> Result<Target, String> {
    if args.urls.len() > URLS_MAX {
        return Err(format!("{} URLs; give {URLS_MAX} at most", args.urls.len()));
    }
    let urls: Vec<Url> = args.urls.iter().map(|url| parse(url)).collect::<Result<_, _>>()?;
    let first = urls.first().ok_or("no URL was given")?;
    if let Some(other) = urls.iter().find(|url| url.authority != first.authority) {
        return Err(format!(
            "{} and {}: all URLs must have the same host and port; run one load for each",
            first.authority, other.authority
        ));
    }
    let address = address(first, args)?;
    let body = body(args)?;
    let requests =
        urls.iter().map(|url| encode(url, args, &body)).collect::<Result<Vec<_>, String>>()?;
    let size = requests.iter().map(Vec::len).sum::<usize>() * args.pipeline as usize;
    if size > MESSAGES_MAX {
        return Err(format!(
            "all requests together are {size} bytes; stay below 256 MiB with a smaller body, fewer \
             URLs or a lower --pipeline"
        ));
    }
    Ok(Target { address, requests })
}

fn parse(url: &str) -> Result<Url, String> {
    let refuse = |what: &str| format!("{url:?}: {what}; write http://HOST[:PORT]/PATH");
    let rest = match url.split_once("://") {
        Some(("http", rest)) => rest,
        Some(("https", _)) => {
            return Err(format!(
                "{url:?}: https is not supported; load the server's plain port, or put a TLS \
                 terminator between"
            ));
        }
        _ => return Err(refuse("is no http:// URL")),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = path.split('#').next().unwrap_or_default();
    if authority.contains('@') {
        return Err(refuse("names a user; use --header 'Authorization: …'"));
    }
    if let Some(bad) = path.bytes().find(|byte| !(0x21..=0x7e).contains(byte)) {
        return Err(refuse(&format!("byte {bad:#04x} in the path is to be percent-encoded")));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            (host, port.parse().map_err(|_| refuse("the port is no number up to 65535"))?)
        }
        _ => (authority, 80),
    };
    if host.is_empty() || port == 0 {
        return Err(refuse("names no host or port"));
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok(Url {
        authority: authority.to_owned(),
        host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
        port,
        path,
    })
}

/// The first address of the host that the source addresses, if given, can reach.
fn address(url: &Url, args: &Args) -> Result<SocketAddr, String> {
    let found = (url.host.as_str(), url.port)
        .to_socket_addrs()
        .map_err(|error| format!("{}: {error}", url.host))?;
    let source = args.source.as_ref().and_then(|sources| sources.0.first());
    found
        .into_iter()
        .find(|address| source.is_none_or(|source| source.is_ipv4() == address.is_ipv4()))
        .ok_or_else(|| format!("{}: no address of the family of --source", url.host))
}

fn body(args: &Args) -> Result<Vec<u8>, String> {
    let body = match (&args.body, &args.body_file) {
        (Some(body), _) => body.clone().into_bytes(),
        (None, Some(path)) => {
            read(path).map_err(|error| format!("--body-file {}: {error}", path.display()))?
        }
        (None, None) => Vec::new(),
    };
    if body.len() > BODY_MAX {
        return Err(format!("a body of {} bytes; give 64 MiB at most", body.len()));
    }
    Ok(body)
}

/// The file's content, or a little more than is allowed of it.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    File::open(path)?.take(BODY_MAX as u64 + 1).read_to_end(&mut body)?;
    Ok(body)
}

fn encode(url: &Url, args: &Args, body: &[u8]) -> Result<Vec<u8>, String> {
    let is_token = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
    };
    if !is_token(&args.method) {
        return Err(format!("--method {:?} is no method; write GET or POST", args.method));
    }
    let mut head = format!("{} {} HTTP/1.1\r\n", args.method, url.path);
    let mut has = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
    let mut host = false;
    for header in &args.headers {
        let (name, value) = header
            .split_once(':')
            .map(|(name, value)| (name, value.trim()))
            .filter(|(name, value)| is_token(name) && !value.contains(['\r', '\n', '\0']))
            .ok_or_else(|| format!("--header {header:?} is no header; write 'Name: value'"))?;
        if name.eq_ignore_ascii_case("content-length")
            || name.eq_ignore_ascii_case("transfer-encoding")
        {
            return Err(format!("--header {header:?}: the body's length is written by itself"));
        }
        host |= name.eq_ignore_ascii_case("host");
        has(name, value);
    }
    if !host {
        has("Host", &url.authority);
    }
    if args.close {
        has("Connection", "close");
    }
    if !body.is_empty() || matches!(args.method.as_str(), "POST" | "PUT" | "PATCH") {
        has("Content-Length", &body.len().to_string());
    }
    head.push_str("\r\n");
    Ok([head.as_bytes(), body].concat())
}
