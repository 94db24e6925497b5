//! Smaller content for clients that accept it: gzip, brotli and zstd.
//!
//! ```text
//!  response ─▶ may it be compressed? ─▶ Vary ─▶ does the client accept a coding?
//!                                                 ├─ whole, up to 256 KiB ─▶ at once, with a length
//!                                                 └─ larger, or streamed   ─▶ piece by piece (stream.rs)
//! ```

mod encoder;
mod stream;

use std::fmt;
#[cfg(feature = "tower")]
use std::ops::ControlFlow;
use std::sync::Arc;

use http::{HeaderValue, Method, StatusCode, header};
use tokio::sync::Semaphore;

use self::encoder::{Encoder, compress};
use self::stream::Compressed;
use crate::app::{Layer, Request, Response};
use crate::content::coding::{Coding, Weights};
#[cfg(feature = "tower")]
use crate::content::entity_tag::CodedTags;
use crate::content::entity_tag::coded;
use crate::content::precondition::is_known;
use crate::layers::cache_control;

/// Smaller content is left as it is: it is one packet in any case.
const BYTES_MIN: u64 = 1024;

/// Larger content is compressed piece by piece, so that no other request of the worker waits for more than a few
/// milliseconds. The answer has no `Content-Length` then.
pub const COMPRESSED_AT_ONCE_MAX: u64 = 256 * 1024;

/// How many streams of one layer are compressed at once by default: an encoder takes a quarter of a megabyte (gzip) to one (zstd), for as
/// long as its client takes to read. A guess: a gigabyte is what a server with so many slow clients can spare.
const STREAMS_MAX: usize = 1024;

/// The order for a client that accepts several equally, as browsers do. For equal sizes zstd takes the least time.
const OFFERS: [Coding; 4] = [Coding::Zstd, Coding::Brotli, Coding::Gzip, Coding::Identity];

/// Whether a response may be compressed.
type Test = dyn Fn(&Request<'_>, &Response) -> bool + Send + Sync;

/// Compresses the content of responses with zstd, brotli or gzip, as the client accepts (`Accept-Encoding`, RFC 9110
/// §12.5.3).
///
/// | content | treatment |
/// |---|---|
/// | whole, from 1 KiB to 256 KiB | is compressed at once, and keeps a `Content-Length`; sent as it is if that is not larger |
/// | larger, or streamed | is compressed while it is sent, and flushed before each wait for more |
/// | the same, while [1024 other answers](Compression::streams_max) are compressed | is left as it is |
/// | of a type that is compressed already (pictures, video, archives, fonts in WOFF) or unknown | is left as it is |
/// | with `Content-Encoding`, `Content-Range`, or a digest (`Content-Digest`, `Repr-Digest`, `Digest`, `Content-MD5`) | is left as it is |
/// | with `Cache-Control: no-transform`, in request or response | is left as it is |
/// | `text/event-stream` | is left as it is: each stream would keep the memory of an encoder |
///
/// [`media_type`](Compression::media_type) adds types; if it adds event streams, their events are flushed one by one.
///
/// Responses that may be compressed have `Vary: Accept-Encoding`, whether they are compressed or not. The coding is appended to
/// a strong `ETag` (`"7;gzip"` for `"7"`), and `Accept-Ranges` is removed. When a client sends such a tag back in `If-Match` or
/// `If-None-Match`, [`Preconditions`](crate::Preconditions), [`etag`](super::etag), the response cache, resources and static
/// files read it as the tag of the content, and `tower` services see that tag.
///
/// It does not cover [`fixed`](crate::fixed) answers, unless you write `Layer::from(compression()).everywhere()`. Add it
/// before layers that make content or tags, so that it is outside of them.
///
/// # Secrets
///
/// The length of compressed content tells how often a text repeats in it. If a page holds a secret, such as a CSRF token, and
/// repeats parts of the URL, another site can guess the secret character by character over TLS (the BREACH attack). Leave
/// such pages out with [`unless`](Compression::unless), do not repeat input in them, or mask the secret afresh in each
/// response.
///
/// ```
/// use highwater::layers::compression;
/// use highwater::testing::Client;
/// use highwater::Router;
///
/// let client = Client::new(Router::new().layer(compression()).get("/", || "hello ".repeat(1000)));
/// client.set_header("accept-encoding", "gzip");
/// let response = client.get("/");
/// assert_eq!(response.header("content-encoding"), Some("gzip"));
/// assert!(response.body.len() < 100);
/// ```
pub fn compression() -> Compression {
    Compression {
        bytes_min: BYTES_MIN,
        types: Vec::new(),
        unless: Vec::new(),
        streams: streams(STREAMS_MAX),
    }
}

/// A layer that compresses content; made by [`compression`].
#[derive(Clone)]
#[must_use = "give it to `Router::layer`"]
pub struct Compression {
    bytes_min: u64,
    types: Vec<String>,
    unless: Vec<Arc<Test>>,
    streams: Arc<Semaphore>,
}

impl Compression {
    /// Leaves content of fewer than `bytes` bytes as it is, instead of 1024. Streamed content has no length to judge by.
    pub fn bytes_min(mut self, bytes: u64) -> Self {
        self.bytes_min = bytes;
        self
    }

    /// Compresses content of this media type, too, such as `application/vnd.example`.
    pub fn media_type(mut self, media_type: &str) -> Self {
        self.types.push(media_type.trim_ascii().to_ascii_lowercase());
        self
    }

    /// Leaves responses unchanged for which `test` is true, such as pages with secrets.
    ///
    /// ```
    /// use highwater::layers::compression;
    ///
    /// let compression = compression().unless(|request, _| request.path().starts_with("/account/"));
    /// ```
    pub fn unless(
        mut self,
        test: impl Fn(&Request<'_>, &Response) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.unless.push(Arc::new(test));
        self
    }

    /// How many answers may be compressed piece by piece at the same time: 1024 by default, of all workers. Each takes the
    /// memory of an encoder, up to a megabyte, until its client has read it; further answers are sent uncompressed.
    pub fn streams_max(mut self, streams: usize) -> Self {
        self.streams = self::streams(streams);
        self
    }

    fn on_response(&self, request: &Request<'_>, response: &mut Response) {
        if response.status() == StatusCode::NOT_MODIFIED {
            return self.on_not_modified(request, response);
        }
        if !self.may_compress(request, response) {
            return;
        }
        response.vary("accept-encoding");
        match Weights::of(request.headers()).choose(OFFERS) {
            None | Some(Coding::Identity) => {}
            Some(coding) => self.encode(response, coding, request.method() == Method::HEAD),
        }
    }

    /// A 304 has the fields that the 200 would have (RFC 9110 §15.4.5). Without content nobody knows whether that is compressed: the
    /// tag is that of compressed content if the client names that one, and accepts the coding.
    fn on_not_modified(&self, request: &Request<'_>, response: &mut Response) {
        response.vary("accept-encoding");
        let Some(tag) = response.header("etag") else { return };
        let weights = Weights::of(request.headers());
        let accepted = Coding::ALL.into_iter().filter(|coding| weights.of_coding(*coding) > 0);
        let mut tags = accepted.map(|coding| coded(tag, coding.name()));
        if let Some(known) = tags.find(|tag| is_known(request.headers(), tag)) {
            set_tag(response, &known);
        }
    }

    /// Compresses the content. That of an answer to `HEAD` is not sent: it becomes a stream without an encoder, which has no length, as
    /// the compressed one.
    fn encode(&self, response: &mut Response, coding: Coding, is_head: bool) {
        match response.body().as_bytes() {
            Some(bytes) if bytes.len() as u64 <= COMPRESSED_AT_ONCE_MAX => {
                let Some(compressed) = compress(coding, bytes) else { return };
                response.remove_header(&header::CONTENT_LENGTH); // The server writes the right one.
                response.set_body(compressed);
            }
            _ if is_head => response.map_body(|pieces| pieces),
            _ => {
                let Ok(place) = Arc::clone(&self.streams).try_acquire_owned() else { return };
                let Ok(encoder) = Encoder::new(coding) else { return };
                response.map_body(|pieces| Compressed::new(pieces, encoder, place));
            }
        }
        response.set_header(header::CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        response.remove_header(&header::ACCEPT_RANGES);
        if let Some(tag) = response.header("etag") {
            let tag = coded(tag, coding.name());
            set_tag(response, &tag);
        }
    }

    fn may_compress(&self, request: &Request<'_>, response: &Response) -> bool {
        let length = response.body().len();
        if length.is_some_and(|length| length < self.bytes_min.max(1)) {
            return false;
        }
        let is_as_it_must_be = response.status() == StatusCode::PARTIAL_CONTENT
            || OF_BYTES.iter().any(|name| response.header(name).is_some());
        let control = response.headers().filter(|(name, _)| *name == "cache-control");
        let control = control.map(|(_, value)| value);
        !is_as_it_must_be
            && response.header("content-type").is_some_and(|of| self.is_compressible(of))
            && !cache_control::has(control, FORBIDDEN)
            && !cache_control::has(request.headers().get_all("cache-control"), FORBIDDEN)
            && !self.unless.iter().any(|test| test(request, response))
    }

    /// Whether content of a media type becomes smaller.
    fn is_compressible(&self, media_type: &[u8]) -> bool {
        let text = std::str::from_utf8(media_type).unwrap_or_default();
        let essence = text.split(';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        if self.types.contains(&essence) {
            return true;
        }
        match essence.split_once('/') {
            Some(("text", subtype)) => subtype != "event-stream",
            Some(("application", subtype)) => {
                APPLICATION.contains(&subtype)
                    || subtype.ends_with("+json")
                    || subtype.ends_with("+xml")
            }
            Some(("image", subtype)) => {
                ["svg+xml", "bmp", "x-icon", "vnd.microsoft.icon"].contains(&subtype)
            }
            Some(("font", subtype)) => ["ttf", "otf", "collection"].contains(&subtype),
            _ => false,
        }
    }
}

/// The directive that forbids to change content (RFC 9111 §5.2.2.6).
const FORBIDDEN: &[&str] = &["no-transform"];

/// Fields that are about these very bytes: of others they would be wrong.
const OF_BYTES: &[&str] = &[
    "content-encoding",
    "content-range",
    "content-digest",
    "repr-digest",
    "digest",
    "content-md5",
];

/// The types below `application/` that are text, or like it.
const APPLICATION: &[&str] = &[
    "geo+json",
    "javascript",
    "json",
    "json-seq",
    "jsonlines",
    "ld+json",
    "ndjson",
    "rtf",
    "sql",
    "toml",
    "wasm",
    "x-javascript",
    "x-ndjson",
    "x-www-form-urlencoded",
    "x-yaml",
    "xhtml+xml",
    "xml",
    "yaml",
];

/// Places for streams.
fn streams(count: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)))
}

fn set_tag(response: &mut Response, tag: &[u8]) {
    if let Ok(tag) = HeaderValue::from_bytes(tag) {
        response.set_header(header::ETAG, tag);
    }
}

impl From<Compression> for Layer {
    fn from(compression: Compression) -> Layer {
        let layer = Layer::new();
        #[cfg(feature = "tower")]
        let layer = layer.on_request(|request: &Request<'_>| {
            let fields = request.headers();
            if ["if-match", "if-none-match"].iter().any(|name| fields.get(name).is_some()) {
                request.insert(CodedTags);
            }
            ControlFlow::<Response>::Continue(())
        });
        layer.on_response(move |request: &Request<'_>, response: &mut Response| {
            compression.on_response(request, response);
        })
    }
}

impl fmt::Debug for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compression")
            .field("bytes_min", &self.bytes_min)
            .field("types", &self.types)
            .finish_non_exhaustive()
    }
}
