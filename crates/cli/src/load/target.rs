//! Which requests are sent, and where?

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use highwater_core::websocket::Kind;

use super::args::{Args, BODY_MAX, MESSAGES_MAX, URLS_MAX};
use super::expect::{Body, Expect};
use super::message::Message;
use super::request::{Request, Requests, check_path, header};
use super::spec::Spec;
use super::template::Template;
use super::{files, mix, tls, upgrade};

/// Bytes of a file of headers, at most.
const HEADER_FILE_MAX: usize = 64 * 1024;

/// How many addresses of a host are tried, and how long each.
const ADDRESSES_MAX: usize = 8;
const TRY_MAX: Duration = Duration::from_secs(1);

/// Where to connect to, and what to send there.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Requests,
    /// `None`: http.
    pub(crate) tls: Option<tls::Setup>,
}

/// How texts of the command line are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Texts {
    /// `${…}` is a parameter, and `@FILE` a file.
    Templates,
    /// Every text is literal: for callers other than the command line.
    Literal,
}

impl Texts {
    fn template(self, setting: &str, text: &str) -> Result<Template, String> {
        match self {
            Texts::Templates => {
                Template::parse(text).map_err(|error| format!("{setting}: {error}"))
            }
            Texts::Literal => Ok(Template::literal(text)),
        }
    }

    /// The file that `text` names.
    fn file(self, text: &str) -> Option<&Path> {
        let named = text.strip_prefix('@').filter(|rest| !rest.starts_with('@'));
        named.filter(|_| self == Texts::Templates).map(Path::new)
    }

    /// `@@` at the beginning is how `@` is written there.
    fn unescaped(self, text: &str) -> &str {
        match self == Texts::Templates && text.starts_with("@@") {
            true => &text[1..],
            false => text,
        }
    }
}

/// A URL of the kind that can be loaded.
#[derive(Debug, PartialEq, Eq)]
struct Url {
    /// https.
    is_tls: bool,
    /// As in the `Host` field.
    authority: String,
    host: String,
    port: u16,
    /// Path and query.
    path: String,
}

/// Resolves the host, once, and prepares the requests.
pub(crate) fn resolve(args: &Args, texts: Texts) -> Result<Target, String> {
    if args.urls.len() > URLS_MAX {
        return Err(format!("{} URLs; give {URLS_MAX} at most", args.urls.len()));
    }
    let urls: Vec<Url> =
        args.urls.iter().map(|url| parse(url, args.ws)).collect::<Result<_, _>>()?;
    let first = urls.first().ok_or("no URL was given")?;
    if urls.iter().any(|url| url.is_tls != first.is_tls) {
        return Err(format!("{}: all URLs must be http://, or all https://", args.urls.join(" ")));
    }
    if let Some(other) = urls.iter().find(|url| url.authority != first.authority) {
        return Err(format!(
            "{} and {}: all URLs must have the same host and port; run one load for each",
            first.authority, other.authority
        ));
    }
    let specs = match &args.mix {
        Some(mix) if urls.len() > 1 || first.path != "/" => {
            return Err(format!(
                "{} and --mix {}: the mix has the paths; give one URL, http://HOST[:PORT]",
                args.urls.join(" "),
                mix.display()
            ));
        }
        Some(mix) => mix::read(mix, &headers(args, texts)?)?,
        None => specs(args, &urls, texts)?,
    };
    let scheme = if first.is_tls { "https" } else { "http" };
    let request = |spec: &Spec| {
        let mut request = Request::new(spec, &first.authority, args.close)?;
        if args.http2 && !args.ws {
            request.http2 = Some(Message::new(spec, scheme, &first.authority)?);
        }
        if args.ws {
            let kind = if args.binary { Kind::Binary } else { Kind::Text };
            request.ws = Some(upgrade::Message::new(spec, scheme, &first.authority, kind)?);
        }
        Ok(request)
    };
    let list = specs.iter().map(request).collect::<Result<Vec<_>, String>>()?;
    let fixed = list.iter().filter_map(Request::fixed).map(<[u8]>::len).sum::<usize>();
    let size = fixed * args.pipeline as usize;
    if size > MESSAGES_MAX {
        return Err(format!(
            "all requests together are {size} bytes; stay below 256 MiB with a smaller body, fewer \
             URLs or a lower --pipeline"
        ));
    }
    let tls = match first.is_tls {
        true => Some(tls::Setup::new(args, &first.host)?),
        false => tls::Setup::none(args).map(|()| None)?,
    };
    let address = address(first, args)?;
    Ok(Target { address, requests: Requests { list, is_mix: args.mix.is_some() }, tls })
}

fn parse(url: &str, ws: bool) -> Result<Url, String> {
    let refuse = |what: &str| format!("{url:?}: {what}; write http://HOST[:PORT]/PATH");
    let is_tls = url.starts_with("https://") || url.starts_with("wss://");
    let rest = match url.split_once("://") {
        Some(("http", rest)) => rest,
        Some(("https", rest)) => rest,
        Some(("ws" | "wss", rest)) if ws => rest,
        Some(("ws" | "wss", _)) => return Err(format!("{url:?}: write --ws with it")),
        _ => return Err(refuse("is not an http:// or https:// URL")),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = path.split('#').next().unwrap_or_default();
    if authority.contains('@') {
        return Err(refuse("names a user; use --header 'Authorization: …'"));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => {
            (host, port.parse().map_err(|_| refuse("the port is not a number up to 65535"))?)
        }
        _ => (authority, if is_tls { 443 } else { 80 }),
    };
    if host.is_empty() || port == 0 {
        return Err(refuse("names no host or port"));
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok(Url {
        is_tls,
        authority: authority.to_owned(),
        host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
        port,
        path,
    })
}

/// The address of the host, of the family of the source addresses, if those are given.
fn address(url: &Url, args: &Args) -> Result<SocketAddr, String> {
    let found = (url.host.as_str(), url.port)
        .to_socket_addrs()
        .map_err(|error| format!("{}: {error}", url.host))?;
    let source = args.source.as_ref().and_then(|sources| sources.0.first());
    let found: Vec<SocketAddr> = found
        .filter(|address| source.is_none_or(|source| source.is_ipv4() == address.is_ipv4()))
        .take(ADDRESSES_MAX)
        .collect();
    answering(&found).ok_or_else(|| format!("{}: no address of the family of --source", url.host))
}

/// The first address at which somebody listens, or else the first: `localhost` is IPv6 first, and many servers listen on
/// 127.0.0.1 only. A single address is taken as it is, without a connection to try it.
fn answering(found: &[SocketAddr]) -> Option<SocketAddr> {
    let listens = |address: &&SocketAddr| TcpStream::connect_timeout(address, TRY_MAX).is_ok();
    let first = found.first()?;
    Some(*found.iter().filter(|_| found.len() > 1).find(listens).unwrap_or(first))
}

/// A request for each URL.
fn specs(args: &Args, urls: &[Url], texts: Texts) -> Result<Vec<Spec>, String> {
    let (headers, body, expect) = (headers(args, texts)?, body(args, texts)?, expect(args, texts)?);
    // A body of --ws is a message: its handshake is a GET.
    let has_body = !args.ws && (args.body.is_some() || args.body_file.is_some());
    let method = args.method.as_deref().unwrap_or(if has_body { "POST" } else { "GET" });
    urls.iter()
        .zip(&args.urls)
        .map(|(url, given)| {
            let path = texts.template(given, &url.path)?;
            let refuse = |what| format!("{given:?}: {what}; write http://HOST[:PORT]/PATH");
            check_path(&path).map_err(refuse)?;
            Ok(Spec {
                place: "--".to_owned(),
                name: given.clone(),
                weight: 1,
                method: method.to_owned(),
                path,
                headers: headers.clone(),
                body: body.clone(),
                expect: expect.clone(),
            })
        })
        .collect()
}

fn headers(args: &Args, texts: Texts) -> Result<Vec<(String, Template)>, String> {
    let mut headers = Vec::new();
    for given in &args.headers {
        let Some(path) = texts.file(given) else {
            headers.push(line(given, texts)?);
            continue;
        };
        let content = files::read("--header", path, HEADER_FILE_MAX)?;
        let content = String::from_utf8_lossy(&content);
        for text in content.lines().filter(|line| !line.trim().is_empty()) {
            let refuse = |error| format!("--header @{}: {error}", path.display());
            headers.push(line(text, texts).map_err(refuse)?);
        }
    }
    Ok(headers)
}

fn line(text: &str, texts: Texts) -> Result<(String, Template), String> {
    let (name, value) = text
        .split_once(':')
        .ok_or_else(|| format!("--header {text:?} is not a header; write 'Name: value'"))?;
    header("--", name, texts.template("--header", value.trim())?)
}

fn body(args: &Args, texts: Texts) -> Result<Template, String> {
    let body = match (&args.body, &args.body_file) {
        (Some(body), _) => match texts.file(body) {
            Some(path) => Template::literal(files::read("--body", path, BODY_MAX)?),
            None => texts.template("--body", texts.unescaped(body))?,
        },
        (None, Some(path)) => Template::literal(files::read("--body-file", path, BODY_MAX)?),
        (None, None) => Template::default(),
    };
    let size = body.texts().map(<[u8]>::len).sum::<usize>();
    match size > BODY_MAX {
        true => Err(format!("--body of {size} bytes; give 64 MiB at most")),
        false => Ok(body),
    }
}

fn expect(args: &Args, texts: Texts) -> Result<Expect, String> {
    let mut headers = Vec::new();
    for given in &args.expect_headers {
        let (name, value) = given.split_once(':').ok_or_else(|| {
            format!("--expect-header {given:?} is not a header; write 'Name: value'")
        })?;
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    let body = match (&args.expect_body, &args.expect_contains) {
        (Some(whole), _) => Some(Body::Whole(match texts.file(whole) {
            Some(path) => files::read("--expect-body", path, BODY_MAX)?,
            None => texts.unescaped(whole).as_bytes().to_vec(),
        })),
        (None, Some(text)) => Some(Body::part(text)),
        (None, None) => None,
    };
    Ok(Expect { status: args.expect_status, headers, body })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Purpose: of a name with several addresses the one is loaded at which the server listens; one address is taken as
    /// it is, so that no server sees a connection that asks nothing.
    #[test]
    fn the_address_that_listens_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let open = listener.local_addr().expect("it is bound");
        // Port 0 is nobody's.
        let closed = SocketAddr::from(([127, 0, 0, 1], 0));
        for (found, expected) in [
            (&[closed, open][..], Some(open)),
            (&[open, closed], Some(open)),
            (&[closed, closed], Some(closed)),
            (&[], None),
        ] {
            assert_eq!(answering(found), expected, "{found:?}");
        }
        while listener.set_nonblocking(true).is_ok() && listener.accept().is_ok() {}
        assert_eq!(answering(&[open]), Some(open));
        assert!(listener.accept().is_err(), "nobody asked");
    }
}
