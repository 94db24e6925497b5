//! One HTTP exchange with the provider, as a stream of decompressed bytes under limits.
//!
//! Compression is recognized by the body's first bytes (RFC 1952 section 2.3.1), not by headers: no
//! XML begins with them, and a provider that forgets `Content-Encoding`, sets it wrongly, or serves
//! a `.gz` file is read all the same.

use std::io::{self, Chain, Cursor, Read};
use std::time::{Duration, Instant};

use flate2::read::MultiGzDecoder;
use ureq::http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LAST_MODIFIED, LOCATION, RETRY_AFTER,
};
use ureq::http::{Response, StatusCode, Uri};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, BodyReader};

use super::{InvalidSetting, Outcome, Settings};
use crate::feed::{Fault, FeedError};

/// Bytes of a validator (`ETag`, `Last-Modified`) that are remembered; a longer one is not used.
const VALIDATOR_BYTES_MAX: usize = 1024;

/// Redirects followed in one poll. Only to the same host and port, or from http to https on the
/// same host. A provider, or an attacker in its place, must not make this service send requests to
/// hosts that only it can reach, nor remove the encryption that the operator's URL asks for.
const REDIRECTS_MAX: u32 = 5;

/// Bytes of the response's head.
const HEADER_BYTES_MAX: usize = 64 * 1024;

const GZIP_MAGIC: [u8; 2] = [0x1F, 0x8B];

/// An HTTP client for one URL, with the validators of the last whole feed.
pub(super) struct Download {
    agent: Agent,
    url: Uri,
    body_bytes_max: u64,
    /// For all exchanges of a poll together.
    total_timeout: Duration,
    validators: Validators,
}

/// What a conditional request (RFC 9110 section 13.1) is made of.
#[derive(Default)]
pub(super) struct Validators {
    etag: Option<HeaderValue>,
    last_modified: Option<HeaderValue>,
}

impl Validators {
    fn of(headers: &HeaderMap) -> Validators {
        let header = |name: HeaderName| {
            headers.get(name).filter(|value| value.len() <= VALIDATOR_BYTES_MAX).cloned()
        };
        Validators { etag: header(ETAG), last_modified: header(LAST_MODIFIED) }
    }

    fn is_empty(&self) -> bool {
        self.etag.is_none() && self.last_modified.is_none()
    }
}

impl Download {
    pub(super) fn new(settings: &Settings) -> Result<Download, InvalidSetting> {
        let url = parse_url(&settings.url)?;
        let roots = match &settings.authorities {
            Some(pem) => parse_authorities(pem)?,
            None => RootCerts::WebPki,
        };
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            // Followed by hand: see `next_url`.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .max_response_header_size(HEADER_BYTES_MAX)
            .user_agent(concat!("highwater-search/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(settings.connect_timeout))
            .timeout_connect(Some(settings.connect_timeout))
            .timeout_per_read(Some(settings.read_timeout))
            .timeout_global(Some(settings.total_timeout))
            // The next poll is minutes away: a connection kept until then is more likely dead than useful.
            .max_idle_connections(0)
            .build();
        let agent = config.new_agent();
        Ok(Download {
            agent,
            url,
            body_bytes_max: settings.body_bytes_max,
            total_timeout: settings.total_timeout,
            validators: Validators::default(),
        })
    }

    /// The client, for interrupting it from another thread.
    pub(super) fn agent(&self) -> Agent {
        self.agent.clone()
    }

    /// Sends the request and receives the head of the answer. `None`: not modified.
    pub(super) fn begin(&self) -> Result<Option<(Body, Validators)>, Box<Outcome>> {
        let response = self.follow()?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED if !self.validators.is_empty() => return Ok(None),
            status => return Err(Box::new(refused(status, response.headers()))),
        }
        let validators = Validators::of(response.headers());
        if let Some(coding) = response.headers().get(CONTENT_ENCODING)
            && !coding.as_bytes().split(|&byte| byte == b',').all(is_readable)
        {
            let detail =
                format!("Content-Encoding {coding:?} was not asked for; only gzip is read");
            return Err(Box::new(Outcome::failed("encoding", detail)));
        }
        let body = Body::new(response.into_body().into_reader(), self.body_bytes_max);
        let body = body.map_err(|e| Outcome::failed(io_reason(&e), e))?;
        Ok(Some((body, validators)))
    }

    /// Asks, and asks again where the answer says, as far as that is allowed.
    fn follow(&self) -> Result<Response<ureq::Body>, Box<Outcome>> {
        let until = Instant::now() + self.total_timeout;
        let mut url = self.url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let left = until.saturating_duration_since(Instant::now());
            let request = self.agent.get(&url).config().timeout_global(Some(left)).build();
            let mut request = request.header(ACCEPT_ENCODING, "gzip");
            if let Some(etag) = &self.validators.etag {
                request = request.header(IF_NONE_MATCH, etag);
            }
            if let Some(date) = &self.validators.last_modified {
                request = request.header(IF_MODIFIED_SINCE, date);
            }
            let response = request.call().map_err(|e| Outcome::failed(client_reason(&e), e))?;
            if !matches!(response.status().as_u16(), 301..=303 | 307 | 308) {
                return Ok(response);
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let location = location.filter(|location| !location.is_empty());
            let next = location.ok_or_else(|| format!("{} without a Location", response.status()));
            let next = next.and_then(|location| next_url(&url, location));
            url = next.map_err(|detail| Outcome::failed("redirects", detail))?;
        }
        let detail = format!("more than {REDIRECTS_MAX} redirects");
        Err(Box::new(Outcome::failed("redirects", detail)))
    }

    /// The feed these validators came with has been read whole and applied: ask for changes from now on.
    pub(super) fn remember(&mut self, validators: Validators) {
        self.validators = validators;
    }
}

/// Reads a URL that can be polled: `http` or `https`, with a host.
pub fn parse_url(text: &str) -> Result<Uri, InvalidSetting> {
    let url: Option<Uri> = text.parse().ok();
    let usable = |url: &Uri| {
        matches!(url.scheme_str(), Some("http" | "https"))
            && url.host().is_some_and(|host| !host.is_empty())
    };
    url.filter(usable).ok_or_else(|| InvalidSetting::Url(text.to_owned()))
}

/// Whether content of this coding can be read. An empty one is none; some providers announce that.
fn is_readable(coding: &[u8]) -> bool {
    let coding = coding.trim_ascii();
    ["", "gzip", "x-gzip", "identity"]
        .iter()
        .any(|known| coding.eq_ignore_ascii_case(known.as_bytes()))
}

/// Where `location` leads from `url` (RFC 3986 section 5.2.2), if we may go there.
fn next_url(url: &Uri, location: &str) -> Result<Uri, String> {
    let scheme = url.scheme_str().unwrap_or("http");
    let authority = url.authority().map_or("", |authority| authority.as_str());
    let location = location.split('#').next().unwrap_or_default();
    let before_path = location.split(['/', '?']).next().unwrap_or_default();
    let text = if before_path.contains(':') {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else {
        format!("{scheme}://{authority}{}", resolved(url, location))
    };
    let next = parse_url(&text).map_err(|_| "the redirect leads nowhere".to_owned())?;
    let host = |url: &Uri| url.host().map(str::to_ascii_lowercase);
    let port = |url: &Uri| {
        let usual = if url.scheme_str() == Some("https") { 443 } else { 80 };
        url.port_u16().unwrap_or(usual)
    };
    let is_same = next.scheme() == url.scheme() && port(&next) == port(url);
    let is_safer = scheme == "http" && next.scheme_str() == Some("https");
    if host(&next) == host(url) && (is_same || is_safer) {
        return Ok(next);
    }
    Err(format!(
        "a redirect to {}://{}:{} is not followed: it leads to another server, or away from https; \
         set the URL to where the feed is",
        next.scheme_str().unwrap_or_default(),
        next.host().unwrap_or_default(),
        port(&next)
    ))
}

/// Path and query of a reference that names neither a scheme nor a server.
fn resolved(url: &Uri, reference: &str) -> String {
    let (path, query) = match reference.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (reference, url.query().filter(|_| reference.is_empty())),
    };
    let folder = || url.path().rsplit_once('/').map_or("", |(folder, _)| folder);
    let path = match path {
        "" => url.path().to_owned(),
        absolute if absolute.starts_with('/') => without_dots(absolute),
        relative => without_dots(&format!("{}/{relative}", folder())),
    };
    path + &query.map(|query| format!("?{query}")).unwrap_or_default()
}

/// A path without the segments `.` and `..` (section 5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            other => kept.push(other),
        }
    }
    let is_folder = path.ends_with("/.") || path.ends_with("/..");
    let end = if is_folder && !kept.is_empty() { "/" } else { "" };
    format!("/{}{end}", kept.join("/"))
}

fn parse_authorities(pem: &[u8]) -> Result<RootCerts, InvalidSetting> {
    let mut authorities: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|_| InvalidSetting::Authorities)? {
            authorities.push(certificate);
        }
    }
    if authorities.is_empty() {
        return Err(InvalidSetting::Authorities);
    }
    Ok(RootCerts::new_with_certs(&authorities))
}

/// A body on its way to the parser: decompressed, and never more of it than allowed.
pub(super) struct Body(Metered<Decoded>);

type Peeked = Chain<Cursor<Vec<u8>>, Metered<BodyReader<'static>>>;

enum Decoded {
    Plain(Peeked),
    Gzip(Box<MultiGzDecoder<Peeked>>),
}

impl Body {
    /// Looks at the first two bytes to see what it is.
    fn new(reader: BodyReader<'static>, bytes_max: u64) -> io::Result<Body> {
        let mut reader = Metered { inner: reader, bytes: 0, bytes_max };
        let mut magic = Vec::with_capacity(GZIP_MAGIC.len());
        reader.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut magic)?;
        let compressed = magic == GZIP_MAGIC;
        let peeked = Cursor::new(magic).chain(reader);
        let decoded = match compressed {
            true => Decoded::Gzip(Box::new(MultiGzDecoder::new(peeked))),
            false => Decoded::Plain(peeked),
        };
        Ok(Body(Metered { inner: decoded, bytes: 0, bytes_max }))
    }

    /// How many bytes have been read, after decompression.
    pub(super) fn decoded_bytes(&self) -> u64 {
        self.0.bytes
    }
}

impl Read for Body {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

impl Read for Decoded {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Decoded::Plain(reader) => reader.read(out),
            Decoded::Gzip(reader) => reader.read(out),
        }
    }
}

/// Counts bytes, and fails at the first beyond the limit. Bytes are counted before and after
/// decompression: the one stops a body that never ends but decompresses to nothing, the other one
/// that is small and decompresses to everything.
struct Metered<R> {
    inner: R,
    bytes: u64,
    bytes_max: u64,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(out)?;
        self.bytes += read as u64;
        if self.bytes > self.bytes_max {
            let message =
                format!("the feed is larger than body_bytes_max ({} bytes)", self.bytes_max);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        Ok(read)
    }
}

fn refused(status: StatusCode, headers: &HeaderMap) -> Outcome {
    let detail = format!("the provider answered {status}");
    let mut outcome = Outcome::failed("status", detail);
    if let Outcome::Failed { retry_after, .. } = &mut outcome {
        // Its other form, a date, would have to trust the provider's clock; backoff is enough then.
        let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        *retry_after = seconds.map(Duration::from_secs);
    }
    outcome
}

/// A word for why a feed could not be read to its end.
pub(super) fn reason(e: &FeedError) -> &'static str {
    match &e.fault {
        Fault::Input(e) => io_reason(e),
        fault => fault.name(),
    }
}

fn io_reason(e: &io::Error) -> &'static str {
    // The client wraps its own errors in those of a reader.
    if let Some(e) = e.get_ref().and_then(|inner| inner.downcast_ref()) {
        return client_reason(e);
    }
    match e.kind() {
        io::ErrorKind::FileTooLarge => "too_large",
        io::ErrorKind::UnexpectedEof => "truncated",
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "timeout",
        // What the decompressor says about data that is none, and the TLS library about the peer.
        io::ErrorKind::InvalidInput => "gzip",
        io::ErrorKind::InvalidData => "tls",
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => "reset",
        _ => "connection",
    }
}

fn client_reason(e: &ureq::Error) -> &'static str {
    match e {
        ureq::Error::Timeout(_) => "timeout",
        ureq::Error::Io(e) => io_reason(e),
        ureq::Error::HostNotFound => "host_not_found",
        ureq::Error::TooManyRedirects => "redirects",
        ureq::Error::LargeResponseHeader(..) => "too_large",
        ureq::Error::Tls(_) | ureq::Error::Pem(_) | ureq::Error::Rustls(_) => "tls",
        ureq::Error::Protocol(_) | ureq::Error::Http(_) => "protocol",
        _ => "connection",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a redirect stays with its server, and never leads from https to http.
    #[test]
    fn redirects_stay_with_their_server() {
        let leads = |from: &str, to: &str| {
            let from: Uri = from.parse().expect("a URL");
            next_url(&from, to).map(|url| url.to_string()).ok()
        };
        for (from, to, expected) in [
            ("http://a/b/c?d", "/e", Some("http://a/e")),
            ("http://a/b/c", "e?f#g", Some("http://a/b/e?f")),
            ("http://a/b/c?d", "?token=1", Some("http://a/b/c?token=1")),
            ("http://a?d", "?", Some("http://a/?")),
            ("http://a/b/c?d", "#f", Some("http://a/b/c?d")),
            ("http://a/b/c", "e?from=http://b/", Some("http://a/b/e?from=http://b/")),
            ("http://a/b/c", "/e?from=http://b/", Some("http://a/e?from=http://b/")),
            ("http://a/b/c", "../e/./f?../g", Some("http://a/e/f?../g")),
            ("http://a/b/c", "../../..", Some("http://a/")),
            ("http://a/b/c/d", "..", Some("http://a/b/")),
            ("http://a/b/c", "e:1", None),
            ("http://a/b/c", "./e:1", Some("http://a/b/e:1")),
            ("http://a/b", "HTTP://a/e", Some("http://a/e")),
            ("http://a:81/b", "//A:81/e", Some("http://a:81/e")),
            ("http://a/b", "http://a:80/e", Some("http://a:80/e")),
            ("http://a/b", "https://a/e", Some("https://a/e")),
            ("https://a/b", "https://a:443/e", Some("https://a:443/e")),
            ("https://a/b", "http://a/e", None),
            ("https://a/b", "http://a:443/e", None),
            ("http://a/b", "http://a:81/e", None),
            ("http://a/b", "http://b/e", None),
            ("http://a/b", "//b/e", None),
            ("http://a/b", "https://b/e", None),
            ("http://a/b", "ftp://a/e", None),
            ("http://a/b", "http://", None),
        ] {
            let led = leads(from, to).map(|url| url.to_ascii_lowercase());
            assert_eq!(led.as_deref(), expected, "{from} to {to}");
        }
    }
}
