//! A response that is the same for everyone, encoded when the application starts.

use bytes::Bytes;

use super::body::Repr;
use super::dispatch::Outcome;
use super::guard::Guarded;
use super::handler::{Description, Handler, Kind};
use super::request::Request;
use super::response::{IntoResponse, Response};

/// An endpoint that always gives the same response; see [`fixed`].
#[derive(Clone, Debug)]
pub struct Fixed {
    response: FixedResponse,
    problem: Option<String>,
}

/// A response of which only the `Date` is missing.
#[derive(Clone, Debug)]
pub struct FixedResponse {
    status: u16,
    fields: Box<[u8]>,
    body: Bytes,
}

impl FixedResponse {
    /// Encodes `response`, which has its final shape. Content that is not there yet is left out.
    pub(super) fn new(mut response: Response) -> Self {
        let mut fields = Vec::new();
        response.remove_framing();
        for (name, value) in response.headers() {
            fields.extend_from_slice(name.as_bytes());
            fields.extend_from_slice(b": ");
            fields.extend_from_slice(value);
            fields.extend_from_slice(b"\r\n");
        }
        let body = match response.take_body().into_repr() {
            Repr::Empty | Repr::Stream(..) | Repr::Upgrade(_) => Bytes::new(),
            Repr::Static(bytes) => Bytes::from_static(bytes),
            Repr::Owned(bytes) => Bytes::from(bytes),
            Repr::Pooled(bytes) => Bytes::copy_from_slice(&bytes),
            // Clones of it are sent, and somebody drops the last of them.
            Repr::Shared(bytes) => Bytes::from_owner(Guarded::new(bytes)),
        };
        let status = response.status().as_u16();
        FixedResponse { status, fields: fields.into_boxed_slice(), body }
    }

    /// The status code.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// The header fields, each with its line end, but for those the connection writes itself.
    pub(crate) fn fields(&self) -> &[u8] {
        &self.fields
    }

    /// The content.
    pub(crate) fn body(&self) -> &Bytes {
        &self.body
    }
}

/// The same response for every request, encoded once: the cheapest endpoint there is, for health
/// checks and other constants. It bypasses everything: no hook, no middleware and no error renderer
/// sees its requests.
///
/// ```
/// use highwater::{Router, StatusCode, fixed};
///
/// let app = Router::new()
///     .get("/health", fixed("ok"))
///     .get("/gone", fixed((StatusCode::GONE, "it was nice while it lasted")));
/// # app.build().unwrap();
/// ```
///
/// Its content cannot be a stream, and it has to be what any handler may answer (see
/// [`Response`](super::Response)); [`Router::build`](super::Router::build) refuses what is not.
pub fn fixed(response: impl IntoResponse) -> Fixed {
    let response = response.into_response().render(|error| error.render());
    let mut response = response;
    let problem = match response.body().repr() {
        Repr::Stream(..) | Repr::Upgrade(_) => Some(String::from(
            "fixed(…) needs content that is there at once; \
             a stream or an upgrade has to come from a function",
        )),
        _ => response.problem(false),
    };
    Fixed { response: FixedResponse::new(response), problem }
}

/// Marks [`Fixed`] as a handler.
#[derive(Debug)]
pub struct ViaFixed;

#[diagnostic::do_not_recommend]
impl Handler<ViaFixed> for Fixed {
    fn describe(&self, description: &mut Description) {
        description.kind = Kind::Fixed;
        description.problems.extend(self.problem.clone());
    }

    #[inline]
    fn dispatch<'h>(&'h self, _request: &Request<'_>) -> Outcome<'h> {
        Outcome::Fixed(&self.response)
    }
}
