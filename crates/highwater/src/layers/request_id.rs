//! An id for every request.

use http::HeaderValue;

use crate::app::{Layer, REQUEST_ID, Request, RequestIds, Response};
use crate::proxies::TrustedProxies;

/// Gives every request an id, by which its client, the log and other services can refer to it. Without this layer, only
/// failed requests have one.
///
/// The id is 16 hexadecimal digits, made of 64 random bits. It is in the field `X-Request-Id` of the answer (in place of one
/// that the handler or a layer within has set), and it is `request_id` in the events of [`access_log`](super::access_log), of
/// [`spans`](super::spans), and of requests that fail. [`RequestId`](crate::RequestId) and
/// [`Request::id`](crate::Request::id) return it, in layers around this one, too: it is there before any layer runs.
///
/// Ids that clients send in that field are ignored, unless the peer is [trusted](RequestIdLayer::sent_by): otherwise a
/// client could make its requests look like another's. The field of the request itself stays as it was sent.
///
/// It covers all answers of its router: refusals, 404s and [`fixed`](crate::fixed) answers, which are then made for each
/// request.
///
/// ```
/// use highwater::layers::{access_log, request_id};
/// use highwater::testing::Client;
/// use highwater::{RequestId, Router};
///
/// let app = Router::new()
///     .layer(access_log())
///     .layer(request_id())
///     .get("/", |RequestId(id): RequestId| id);
/// let answer = Client::new(app).get("/");
/// assert_eq!(answer.header("x-request-id"), Some(answer.text()));
/// ```
pub fn request_id() -> RequestIdLayer {
    RequestIdLayer { ids: RequestIds::Own }
}

/// A layer that gives requests ids; made by [`request_id`].
#[derive(Clone, Debug)]
#[must_use = "give it to `Router::layer`"]
pub struct RequestIdLayer {
    ids: RequestIds,
}

impl RequestIdLayer {
    /// Uses the id that one of these proxies has sent in `X-Request-Id`: 1 to 128 printable ASCII characters without a
    /// space; any other value is replaced. A proxy that clients can reach must not pass on their values of this field.
    ///
    /// ```
    /// use highwater::layers::request_id;
    ///
    /// let layer = request_id().sent_by("10.0.0.0/8".parse().unwrap());
    /// # highwater::Router::new().layer(layer).build().unwrap();
    /// ```
    pub fn sent_by(mut self, proxies: TrustedProxies) -> Self {
        self.ids = RequestIds::SentByProxies(proxies);
        self
    }

    /// Uses the id of any client: only for a server that untrusted clients cannot reach.
    pub fn sent_by_anybody(mut self) -> Self {
        self.ids = RequestIds::SentByAnybody;
        self
    }
}

impl From<RequestIdLayer> for Layer {
    fn from(layer: RequestIdLayer) -> Layer {
        let wants_peer = matches!(layer.ids, RequestIds::SentByProxies(_));
        let made = Layer::new()
            .request_ids(layer.ids)
            .on_response(|request: &Request<'_>, response: &mut Response| {
                let id = request.id().and_then(|id| HeaderValue::from_str(id).ok());
                if let Some(id) = id {
                    response.set_header(REQUEST_ID, id);
                }
            })
            .everywhere();
        if wants_peer { made.peer_addresses() } else { made }
    }
}
