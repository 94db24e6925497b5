//! From a request as the worker has it to an `http::Request`.

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Uri, Version, header, request};

use super::body::Body;
use crate::app::{BodyStream, BodyUse, Error, FromRequest, PeerAddr, Request, to_parts};
#[cfg(feature = "compression")]
use crate::content::entity_tag::CodedTags;
#[cfg(feature = "compression")]
use crate::content::precondition::without_codings;

/// The end of the patterns that services are registered with.
pub(super) const REST: &str = "/{*rest}";

/// A request for a service, and what its answer depends on. `PEER` says whether the peer's address is
/// looked up, which costs a system call per connection.
pub(super) struct Incoming<const PEER: bool> {
    pub(super) request: http::Request<Body>,
    pub(super) peer: Option<PeerAddr>,
    pub(super) asked: Asked,
}

/// The properties of a request that decide how its response is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) is_head: bool,
    pub(super) trailers: TrailersFor,
    /// It asks to switch to another protocol, and has no content that would come before that.
    pub(super) wants_upgrade: bool,
}

/// Which trailers of its response a client is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrailersFor {
    /// None: it has not asked for any, and might take the end of the chunks for the end of the response.
    Nobody,
    /// Those that the response announces in its `Trailer` field.
    AnnouncedOnly,
    /// All: HTTP/2 frames them like any other fields, and gRPC, which needs them, announces none.
    Anybody,
}

impl Asked {
    pub(super) fn of(parts: &request::Parts) -> Self {
        let is_bare = declared_length(parts) == Some(0);
        let trailers = match parts.version {
            Version::HTTP_2 => TrailersFor::Anybody,
            _ if has_token(&parts.headers, &header::TE, "trailers") => TrailersFor::AnnouncedOnly,
            _ => TrailersFor::Nobody,
        };
        Asked {
            is_head: parts.method == Method::HEAD,
            trailers,
            wants_upgrade: is_bare && parts.headers.contains_key(header::UPGRADE),
        }
    }
}

// Private: keeps the compiler from suggesting it where an extractor is missing.
#[diagnostic::do_not_recommend]
impl<const PEER: bool> FromRequest for Incoming<PEER> {
    const BODY: BodyUse = BodyUse::Streamed;
    const PEER: bool = PEER;
    const SERVICE: bool = true;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let mut parts = to_parts(request)?;
        #[cfg(feature = "compression")]
        if parts.extensions.remove::<CodedTags>().is_some() {
            name_own_tags(request, &mut parts.headers);
        }
        let prefix = prefix_segments(request.matched_path().unwrap_or_default());
        if prefix > 0 {
            parts.uri = below(&parts.uri, prefix)?;
        }
        let body = match declared_length(&parts) {
            Some(0) => Body::empty(),
            _ => content(BodyStream::from_request(request)?, &parts),
        };
        let asked = Asked::of(&parts);
        parts.extensions.insert(request.disconnected());
        if PEER {
            request.note_personal();
        }
        let peer = request.peer_unnoted().map(PeerAddr);
        Ok(Incoming { request: http::Request::from_parts(parts, body), peer, asked })
    }
}

/// Replaces the tags that a compression layer has made by those that the service has given.
#[cfg(feature = "compression")]
fn name_own_tags(request: &Request<'_>, fields: &mut HeaderMap) {
    for name in [header::IF_MATCH, header::IF_NONE_MATCH] {
        let http::header::Entry::Occupied(mut values) = fields.entry(&name) else { continue };
        for value in values.iter_mut() {
            let plain = without_codings(request.headers(), name.as_str(), value.as_bytes());
            if let Some(plain) = plain.and_then(|plain| HeaderValue::from_bytes(&plain).ok()) {
                *value = plain;
            }
        }
    }
}

/// The content of a request with these parts.
pub(super) fn content(stream: BodyStream, parts: &request::Parts) -> Body {
    let length = match declared_length(parts) {
        None if parts.version == Version::HTTP_2 => stream.known_length(),
        length => length,
    };
    Body::of_request(stream, length)
}

/// The length of a request's content, if its head tells. (The server has already refused contradictory declarations.)
fn declared_length(parts: &request::Parts) -> Option<u64> {
    if parts.headers.contains_key(header::TRANSFER_ENCODING) {
        return None;
    }
    match parts.headers.get(header::CONTENT_LENGTH) {
        Some(length) => length.to_str().ok()?.trim().parse().ok(),
        // Content of HTTP/2 ends with its stream, whether it has a length or not.
        None => (parts.version != Version::HTTP_2).then_some(0),
    }
}

/// Whether a field that is a list has `token` in it.
fn has_token(headers: &HeaderMap, name: &header::HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).into_iter();
    values.filter_map(|value: &HeaderValue| value.to_str().ok()).any(|value| {
        value.split(',').any(|item| {
            let item = item.split(';').next().unwrap_or_default();
            item.trim().eq_ignore_ascii_case(token)
        })
    })
}

/// How many segments of a path belong to the prefix that a service is nested under.
fn prefix_segments(pattern: &str) -> usize {
    let prefix = pattern.strip_suffix(REST).unwrap_or(pattern);
    prefix.trim_end_matches('/').matches('/').count()
}

/// A target without the first segments of its path.
fn below(uri: &Uri, segments: usize) -> Result<Uri, Error> {
    let path = uri.path();
    let rest = path.match_indices('/').nth(segments).map_or("", |(at, _)| &path[at..]);
    let rest = if rest.is_empty() { "/" } else { rest };
    let text = match uri.query() {
        Some(query) => format!("{rest}?{query}"),
        None => rest.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(text).map_err(Error::internal)?);
    Uri::from_parts(parts).map_err(Error::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service that answers with the conditions that it sees.
    #[cfg(all(feature = "compression", feature = "tls"))]
    #[derive(Clone)]
    struct Conditions;

    #[cfg(all(feature = "compression", feature = "tls"))]
    impl tower_service::Service<http::Request<Body>> for Conditions {
        type Response = http::Response<String>;
        type Error = std::convert::Infallible;
        type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), Self::Error>> {
            std::task::Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: http::Request<Body>) -> Self::Future {
            let fields = request.headers();
            let values = [header::IF_MATCH, header::IF_NONE_MATCH]
                .map(|name| fields.get(name).map_or("-", |value| value.to_str().unwrap_or("?")));
            std::future::ready(Ok(http::Response::new(values.join(" | "))))
        }
    }

    /// Purpose: the tags of compressed content are the compression layer's; a service behind one sees its own, as far as the client
    /// accepts the coding; elsewhere fields stay as they were sent.
    #[cfg(all(feature = "compression", feature = "tls"))]
    #[test]
    fn services_see_their_own_tags() {
        use crate::app::Router;
        use crate::layers::compression;
        use crate::testing::Client;

        let service = || Router::new().nest_service("/", Conditions);
        let within = Client::new(Router::new().layer(compression()).merge(service()));
        let without = Client::new(service());
        for (name, sent, seen) in [
            ("if-none-match", "\"7;gzip\"", "- | \"7\""),
            ("if-none-match", "W/\"7;gzip\",\"8\"", "- | W/\"7\", \"8\""),
            ("if-none-match", "\"7;br\"", "- | \"7;br\""),
            ("if-none-match", "\"7;lzw\" , \"8\"", "- | \"7;lzw\" , \"8\""),
            ("if-none-match", "*", "- | *"),
            ("if-match", "\"7;br\"", "\"7\" | -"),
            ("if-match", "nothing", "nothing | -"),
        ] {
            let ask = |client: &Client| {
                let asked = client.request(Method::GET, "/").header("accept-encoding", "gzip");
                asked.header(name, sent).send().text().to_owned()
            };
            assert_eq!(ask(&within), seen, "{sent}");
            assert!(ask(&without).contains(sent), "{sent}");
        }
    }

    /// Purpose: a service may look at the certificates of its client, so its answer is for that client alone; and if there are
    /// none, its answer is not for a client with some. Once, that client got it.
    #[cfg(all(feature = "compression", feature = "tls"))]
    #[test]
    fn answers_to_clients_with_certificates_are_their_own() {
        use crate::app::{PeerCertificates, Router, layer};
        use crate::layers::response_cache;
        use crate::testing::Client;

        let attach = |request: &Request<'_>| {
            if let Some(leaf) = request.headers().get("x-leaf") {
                request.insert(PeerCertificates::new([leaf].into_iter()));
            }
            Ok::<(), Error>(())
        };
        let router = Router::new()
            .layer(layer::on_request(attach))
            .layer(response_cache(std::time::Duration::from_secs(60)));
        let client = Client::new(router.nest_service("/", Conditions));
        let age = |asked: crate::testing::RequestBuilder<'_>| asked.send().header("age").is_some();
        for _ in 0..2 {
            assert!(!age(client.request(Method::GET, "/").header("x-leaf", "ann")));
        }
        assert!(!age(client.request(Method::GET, "/")));
        assert!(age(client.request(Method::GET, "/")));
        assert!(!age(client.request(Method::GET, "/").header("x-leaf", "ann")));
    }

    /// Purpose: a service sees the path below its prefix, encoded as it came, with its query.
    #[test]
    fn prefixes_are_cut_off() {
        for (pattern, target, seen) in [
            ("/a", "/a", "/"),
            ("/a", "/a?b=c", "/?b=c"),
            ("/a/", "/a/", "/"),
            ("/a/{*rest}", "/a/b%2Fc/d?e", "/b%2Fc/d?e"),
            ("/a/{*rest}", "/a//b", "//b"),
            ("/a/{id}/b/{*rest}", "/a/1/b/c/", "/c/"),
            ("/{*rest}", "/a/b", "/a/b"),
            ("/", "/?a", "/?a"),
            ("/a/{*rest}", "http://h:1/a/b?c", "http://h:1/b?c"),
        ] {
            let uri: Uri = target.parse().expect("it is a target");
            let seen_by_service = below(&uri, prefix_segments(pattern)).expect("it stays one");
            assert_eq!(seen_by_service.to_string(), seen, "{target} at {pattern}");
        }
    }

    /// Purpose: a list is searched item by item, whatever its case, its weights and its lines.
    #[test]
    fn tokens_of_lists() {
        let mut headers = HeaderMap::new();
        assert!(!has_token(&headers, &header::TE, "trailers"));
        headers.append(header::TE, HeaderValue::from_static("gzip;q=1, xtrailers"));
        assert!(!has_token(&headers, &header::TE, "trailers"));
        headers.append(header::TE, HeaderValue::from_static("deflate, Trailers;q=0.5"));
        assert!(has_token(&headers, &header::TE, "trailers"));
    }
}
