//! Responses that are prepared when the application starts: with fields that protocols copy, or to be made again.

use bytes::Bytes;
use highwater_core::http::{OwnedFields, PreparedFields};
use http::{HeaderName, HeaderValue, StatusCode};

use super::body::Repr;
use super::guard::Guarded;
use super::response::Response;

/// A response that is complete except for the `Date`.
#[derive(Clone, Debug)]
pub struct FixedResponse {
    status: u16,
    fields: PreparedFields,
    body: Bytes,
}

impl FixedResponse {
    /// Prepares `response`, which has its final shape. Content that is not ready is left out.
    pub(super) fn new(mut response: Response) -> Self {
        response.remove_framing();
        let mut fields = OwnedFields::default();
        response.write_fields(&mut fields);
        let status = response.status().as_u16();
        let fields = PreparedFields::new(fields.fields().iter());
        FixedResponse { status, fields, body: content(response) }
    }

    /// The status code.
    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// The header fields, but for those the protocol writes itself.
    #[inline]
    pub(crate) fn fields(&self) -> &PreparedFields {
        &self.fields
    }

    /// The content.
    pub(crate) fn body(&self) -> &Bytes {
        &self.body
    }
}

/// A response that can be made any number of times.
#[derive(Clone, Debug)]
pub(super) struct Template {
    status: StatusCode,
    fields: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

impl Template {
    /// Keeps the content if it is complete.
    pub(super) fn of(response: Response) -> Self {
        let field = |(name, value): (&str, &[u8])| {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("it was one");
            (name, HeaderValue::from_bytes(value).expect("it was one"))
        };
        let (status, fields) = (response.status(), response.headers().map(field).collect());
        Template { status, fields, body: content(response) }
    }

    /// The response. Its content is shared by all of them.
    pub(super) fn make(&self) -> Response {
        let mut response = Response::new(self.status);
        for (name, value) in &self.fields {
            response.append_header(name.clone(), value.clone());
        }
        if !self.body.is_empty() {
            response.set_body(self.body.clone());
        }
        response
    }

    /// Prepares `response`, which layers made from this one.
    pub(super) fn prepare(&self, response: Response) -> FixedResponse {
        let mut prepared = FixedResponse::new(response);
        if prepared.body.as_ptr_range() == self.body.as_ptr_range() {
            // Not wrapped in another owner: clones of static bytes cost nothing.
            prepared.body = self.body.clone();
        }
        prepared
    }
}

/// The content, if it is complete.
fn content(mut response: Response) -> Bytes {
    match response.take_body().into_repr() {
        Repr::Empty | Repr::Stream(..) | Repr::Upgrade(_) => Bytes::new(),
        Repr::Static(bytes) => Bytes::from_static(bytes),
        Repr::Owned(bytes) => Bytes::from(bytes),
        Repr::Pooled(bytes) => Bytes::copy_from_slice(&bytes),
        // Clones of it are sent; any thread may drop the last one.
        Repr::Shared(bytes) => Bytes::from_owner(Guarded::new(bytes)),
    }
}

/// A fixed answer of a route that layers cover.
#[derive(Debug)]
pub(super) enum Covered {
    /// By no layer that covers fixed answers.
    Not,
    /// By layers that do the same each time: they are applied already.
    Prepared(FixedResponse),
    /// By layers that read the request.
    PerRequest(Template),
}
