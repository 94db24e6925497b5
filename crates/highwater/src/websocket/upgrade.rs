//! Does this request open a WebSocket, and may it (RFC 6455 §4.2, over HTTP/2 RFC 8441 §5)?

use std::fmt;

use highwater_core::websocket::accept;
use http::{HeaderName, HeaderValue, Method, StatusCode, Version, header};

#[cfg(feature = "websocket-deflate")]
use super::deflate::{Deflater, Inflater, Offers};
use super::driver::connect;
use super::options::{Options, Origins, option_methods};
use super::shared::{Agreed, Shared};
use super::socket::WebSocket;
use crate::app::{Draining, Error, Finish, FromRequest, Request, Response};

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");

#[cfg(feature = "websocket-deflate")]
const EXTENSIONS: HeaderName = HeaderName::from_static("sec-websocket-extensions");

/// A request that asks for a WebSocket: an extractor for handlers that decide whether to accept it. To accept all requests,
/// use [`websocket`](super::websocket()).
///
/// ```
/// use highwater::{Error, Header, Response, Router, WebSocket, WebSocketUpgrade};
///
/// async fn chat(upgrade: WebSocketUpgrade) -> Result<Response, Error> {
///     let name = String::from("somebody"); // … from a session, which may take a while
///     Ok(upgrade.message_max(16 * 1024).on_upgrade(move |socket| greet(socket, name)))
/// }
///
/// async fn greet(mut socket: WebSocket, name: String) {
///     let _ = socket.send(format!("Hello, {name}!")).await;
/// }
///
/// let app = Router::new().get("/chat", chat);
/// # app.build().unwrap();
/// ```
///
/// In HTTP/1.1 the handshake is a GET with the field `Upgrade`. In HTTP/2 it is an extended CONNECT (RFC 8441), which goes to
/// the route for GET: the request's method is then `CONNECT`, and nothing else differs for handlers.
///
/// A request that is not a handshake is answered:
///
/// | the request | answer |
/// |---|---|
/// | does not ask for `Upgrade: websocket`, and is not an extended CONNECT | 426, with `Upgrade: websocket` in HTTP/1.1 |
/// | has another `Sec-WebSocket-Version` than 13 | 426, in HTTP/2 400, with `Sec-WebSocket-Version: 13` |
/// | has no valid `Sec-WebSocket-Key` in HTTP/1.1, another method than `GET`, or is HTTP/1.0 | 400 |
/// | offers extensions in no valid form, where compression is asked for | 400 |
/// | comes from a page of another origin | 403; see [`origins`](WebSocketUpgrade::origins) |
pub struct WebSocketUpgrade {
    pub(super) options: Options,
    /// The answer to the client's key; HTTP/2 has none.
    accept: Option<HeaderValue>,
    /// What the client offers, in its order.
    offered: Vec<String>,
    /// The extensions that it offers.
    #[cfg(feature = "websocket-deflate")]
    extensions: Offers,
    origin: Option<String>,
    host: Option<String>,
    draining: Draining,
}

/// The answer's field, and what compresses and decompresses as it says.
#[cfg(feature = "websocket-deflate")]
type AcceptedDeflate = (HeaderValue, (Deflater, Inflater));

impl FromRequest for WebSocketUpgrade {
    const CONNECT: bool = true;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let accept = match request.is_extended_connect() {
            true => check_version(request).map(|()| None),
            false => accept_of(request).map(Some),
        }?;
        Ok(WebSocketUpgrade {
            options: Options::default(),
            accept,
            offered: list(request, "sec-websocket-protocol").map(String::from).collect(),
            #[cfg(feature = "websocket-deflate")]
            extensions: Offers::of(request.headers().get_all(EXTENSIONS.as_str())),
            origin: request.header("origin").map(String::from),
            host: request.header("host").map(String::from),
            draining: Draining::from_request(request)?,
        })
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.is_extended_connect() || lists(request, "upgrade", "websocket")
    }
}

impl WebSocketUpgrade {
    option_methods!();

    /// The protocols that the client offers, in its order.
    pub fn offered_protocols(&self) -> impl Iterator<Item = &str> {
        self.offered.iter().map(String::as_str)
    }

    /// The origin of the page that connects; `None` for clients other than browsers.
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// Accepts: the response is 101, or 200 in HTTP/2, and then `handler` runs on the connection's worker. Its future need not be `Send`.
    /// The response is 403 if the origin may not connect.
    ///
    /// When the future ends, so does the connection: with 1000, or with 1011 if the future returns an error or panics. If
    /// the client leaves first, the future has half a minute to end.
    pub fn on_upgrade<F, Fut>(self, handler: F) -> Response
    where
        F: FnOnce(WebSocket) -> Fut + Send + 'static,
        Fut: Future<Output: Finish> + 'static,
    {
        if let Some(refusal) = self.refusal() {
            return Response::of_error(refusal);
        }
        let protocol = self.chosen();
        let name = HeaderName::from_static("sec-websocket-protocol");
        let field = protocol.as_deref().map(HeaderValue::try_from);
        #[cfg(feature = "websocket-deflate")]
        let (extension, deflate) = match self.accepted_deflate() {
            Ok(agreed) => agreed.unzip(),
            Err(refusal) => return Response::of_error(refusal),
        };
        let agreed = Agreed {
            protocol,
            #[cfg(feature = "websocket-deflate")]
            deflate,
        };
        let (options, draining) = (self.options, self.draining);
        let mut response = Response::upgrade_counted(WEBSOCKET, move |upgraded, accounts| {
            let shared = Shared::begin(&options, agreed);
            connect(shared, (upgraded, accounts), draining, &options, handler)
        });
        if let Some(accept) = self.accept {
            response.set_header(HeaderName::from_static("sec-websocket-accept"), accept);
        }
        #[cfg(feature = "websocket-deflate")]
        if let Some(extension) = extension {
            response.set_header(EXTENSIONS, extension);
        }
        match field {
            Some(Ok(value)) => response.set_header(name, value),
            Some(Err(error)) => return Response::of_error(Error::internal(error)),
            None => {}
        }
        response
    }

    /// The first protocol of ours that the client offers.
    fn chosen(&self) -> Option<String> {
        let is_offered = |ours: &&String| self.offered.iter().any(|theirs| theirs == *ours);
        self.options.protocols.iter().find(is_offered).cloned()
    }

    /// What is agreed on about compression, and how the client learns of it.
    #[cfg(feature = "websocket-deflate")]
    fn accepted_deflate(&self) -> Result<Option<AcceptedDeflate>, Error> {
        let Some(deflate) = &self.options.deflate else { return Ok(None) };
        let malformed = |_| {
            Error::bad_request("the field Sec-WebSocket-Extensions is not a list of extensions")
        };
        let Some(agreed) = deflate.accept(&self.extensions).map_err(malformed)? else {
            return Ok(None);
        };
        let answer = HeaderValue::try_from(agreed.answer).map_err(Error::internal)?;
        Ok(Some((answer, deflate.begin(&agreed.deflate))))
    }

    /// Why a page of this origin may not connect.
    fn refusal(&self) -> Option<Error> {
        let origin = self.origin.as_deref()?;
        let is_same = || {
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            authority.zip(self.host.as_deref()).is_some_and(|(a, b)| a.eq_ignore_ascii_case(b))
        };
        let is_allowed = match &self.options.origins {
            Origins::Any => true,
            Origins::Same => is_same(),
            Origins::Listed(list) => {
                list.iter().any(|listed| listed.eq_ignore_ascii_case(origin)) || is_same()
            }
        };
        (!is_allowed).then(|| {
            Error::forbidden("pages of this origin may not connect")
                .with_code("origin_not_allowed")
                .with_source(format!(
                    "a page of {origin} wants to connect to a WebSocket of {}; if it may, name it in `.origins([…])`",
                    self.host.as_deref().unwrap_or("a host without a name"),
                ))
        })
    }
}

impl fmt::Debug for WebSocketUpgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketUpgrade")
            .field("offered", &self.offered)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

/// Checks a handshake of HTTP/1.1 (RFC 6455 §4.2.1). Returns what proves that it was read.
fn accept_of(request: &Request<'_>) -> Result<HeaderValue, Error> {
    if !lists(request, "upgrade", "websocket") {
        return Err(upgrade_required("this resource speaks WebSocket, and nothing else"));
    }
    if request.method() != Method::GET || request.version() < Version::HTTP_11 {
        return Err(Error::bad_request("a WebSocket begins with GET, in HTTP/1.1"));
    }
    if !lists(request, "connection", "upgrade") {
        return Err(Error::bad_request("the field Connection does not say `upgrade`"));
    }
    check_version(request)?;
    let mut keys = request.headers().get_all("sec-websocket-key");
    let key = keys.next().filter(|_| keys.next().is_none());
    let accept = key.and_then(|key| accept(key.trim_ascii())).ok_or_else(|| {
        Error::bad_request("the field Sec-WebSocket-Key is not 16 bytes in base64, once")
    })?;
    Ok(HeaderValue::from_bytes(&accept).expect("base64 is a field value"))
}

/// RFC 6455 §4.2.2: a client of another version learns which one this server speaks.
fn check_version(request: &Request<'_>) -> Result<(), Error> {
    if request.header("sec-websocket-version").map(str::trim) == Some("13") {
        return Ok(());
    }
    let message = "the version of WebSocket that is spoken here is 13";
    let error = match request.is_extended_connect() {
        true => Error::bad_request(message), // 426 names an `Upgrade`, which HTTP/2 does not have.
        false => upgrade_required(message),
    };
    let name = HeaderName::from_static("sec-websocket-version");
    Err(error.with_header(name, HeaderValue::from_static("13")))
}

fn upgrade_required(message: &'static str) -> Error {
    Error::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", message)
        .with_header(header::UPGRADE, WEBSOCKET)
}

/// The members of a list field.
fn list<'r>(request: &'r Request<'_>, name: &'static str) -> impl Iterator<Item = &'r str> {
    let values = request.headers().get_all(name);
    let texts = values.filter_map(|value| std::str::from_utf8(value).ok());
    texts.flat_map(|text| text.split(',')).map(str::trim).filter(|member| !member.is_empty())
}

fn lists(request: &Request<'_>, name: &'static str, wanted: &str) -> bool {
    list(request, name).any(|member| member.eq_ignore_ascii_case(wanted))
}
