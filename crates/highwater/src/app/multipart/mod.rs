//! Forms with files (`multipart/form-data`, RFC 7578), part by part, as they come.
//!
//! The parser is `multer`'s. This module limits the work that a client can cause: the number of parts, the size of each and
//! of all together, and the bytes before the end of a part's head. Beyond a limit the answer is 413, never 400: the form is
//! well-formed, and too large.

mod feed;
mod save;

use std::fmt;

use bytes::Bytes;
use http::StatusCode;

use self::feed::{Feed, Stalled, Watch};
use crate::app::body::{BodyError, BodyStream};
use crate::app::error::Error;
use crate::app::extract::{BodyUse, FromRequest};
use crate::app::request::Request;

/// A form with files: an argument that takes the content as a stream. Needs the feature `multipart`.
///
/// Its parts come one after the other; the rest of a part that is not read to its end is skipped. No part is kept in memory
/// unless the handler keeps it. The limits are [`MultipartLimits`], within the route's [`body_max`](crate::Handler::body_max),
/// which applies to all bytes of the form and is 1 MiB unless it is set.
///
/// | problem | status | code |
/// |---|---|---|
/// | the content is not a form with files, or has no boundary | 415 | `unsupported_media_type` |
/// | its syntax is not that of RFC 7578 | 400 | `invalid_multipart` |
/// | it ends before its last boundary | 400 | `invalid_multipart` |
/// | there are too many parts, or they are too large | 413 | `too_many_parts`, `part_too_large`, `form_too_large` |
/// | the head of a part is too large | 413 | `part_head_too_large` |
///
/// ```
/// use highwater::multipart::{Multipart, MultipartLimits};
/// use highwater::{Error, Handler, Router};
///
/// async fn upload(form: Multipart) -> Result<String, Error> {
///     let mut form = form.limits(MultipartLimits { part_bytes_max: 8 << 20, ..MultipartLimits::default() });
///     let mut told = Vec::new();
///     while let Some(mut part) = form.next_part().await? {
///         let name = part.name().to_owned();
///         let mut bytes = 0;
///         while let Some(piece) = part.next().await? {
///             bytes += piece.len();
///         }
///         told.push(format!("{name}: {bytes}"));
///     }
///     Ok(told.join("\n"))
/// }
///
/// let app = Router::new().post("/upload", upload.body_max(20 << 20));
/// # app.build().unwrap();
/// ```
pub struct Multipart {
    parser: multer::Multipart<'static>,
    watch: Watch,
    limits: MultipartLimits,
    current: Option<multer::Field<'static>>,
    parts: usize,
    /// Of the current part.
    part_bytes: u64,
    total_bytes: u64,
}

/// The limits of a form; beyond them 413.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultipartLimits {
    /// How many parts; 64 by default.
    pub parts_max: usize,
    /// How many bytes of content a part has; 1 MiB by default.
    pub part_bytes_max: u64,
    /// How many bytes of content all parts have together; by default, only the route's `body_max` limits them.
    pub total_bytes_max: u64,
}

impl Default for MultipartLimits {
    fn default() -> Self {
        MultipartLimits { parts_max: 64, part_bytes_max: 1 << 20, total_bytes_max: u64::MAX }
    }
}

/// A part of a form, read as it arrives; made by [`Multipart::next_part`].
pub struct Part<'m> {
    form: &'m mut Multipart,
}

impl Multipart {
    /// The form, with other limits.
    #[must_use]
    pub fn limits(mut self, limits: MultipartLimits) -> Self {
        self.limits = limits;
        self
    }

    /// The next part; the unread rest of the previous part is skipped. `None` at the end.
    ///
    /// # Errors
    /// The errors in the table of [`Multipart`], and those of content that does not arrive.
    #[doc(alias = "next_field")]
    pub async fn next_part(&mut self) -> Result<Option<Part<'_>>, Error> {
        while self.piece().await?.is_some() {}
        self.current = None;
        self.watch.progress();
        let field = self.parser.next_field().await.map_err(|error| self.explain(&error))?;
        let Some(field) = field else { return Ok(None) };
        self.watch.progress();
        if self.parts == self.limits.parts_max {
            let message = format!("the form has more than {} parts", self.limits.parts_max);
            return Err(too_large("too_many_parts", message));
        }
        if field.name().is_none() {
            return Err(invalid("a part has no name"));
        }
        self.parts += 1;
        self.part_bytes = 0;
        self.current = Some(field);
        Ok(Some(Part { form: self }))
    }

    /// The next piece of the current part; `None` at its end, and if there is none.
    async fn piece(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(field) = &mut self.current else { return Ok(None) };
        self.watch.progress();
        let piece = field.chunk().await;
        let Some(piece) = piece.map_err(|error| self.explain(&error))? else { return Ok(None) };
        self.part_bytes += piece.len() as u64;
        self.total_bytes += piece.len() as u64;
        let MultipartLimits { part_bytes_max, total_bytes_max, .. } = self.limits;
        if self.part_bytes > part_bytes_max {
            let message = format!("a part of the form has more than {part_bytes_max} bytes");
            return Err(too_large("part_too_large", message));
        }
        if self.total_bytes > total_bytes_max {
            let message = format!("the parts of the form have more than {total_bytes_max} bytes");
            return Err(too_large("form_too_large", message));
        }
        Ok(Some(piece))
    }

    /// What an error of the parser means for the client.
    fn explain(&self, error: &multer::Error) -> Error {
        match error {
            multer::Error::StreamReadFailed(cause) => match cause.downcast_ref::<BodyError>() {
                Some(failed) => (*failed).into(),
                None if cause.is::<Stalled>() => {
                    too_large("part_head_too_large", cause.to_string())
                }
                None => Error::internal(cause.to_string()),
            },
            multer::Error::IncompleteStream | multer::Error::IncompleteFieldData { .. } => {
                invalid("the form ends before its last boundary")
            }
            error => invalid(format!("the form cannot be read: {error}")),
        }
    }
}

fn too_large(code: &'static str, message: String) -> Error {
    Error::new(StatusCode::PAYLOAD_TOO_LARGE, code, message)
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::bad_request(message).with_code("invalid_multipart")
}

impl FromRequest for Multipart {
    const BODY: BodyUse = BodyUse::Streamed;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let boundary = boundary(request)?;
        let (feed, watch) = Feed::new(BodyStream::from_request(request)?);
        Ok(Multipart {
            parser: multer::Multipart::new(feed, boundary),
            watch,
            limits: MultipartLimits::default(),
            current: None,
            parts: 0,
            part_bytes: 0,
            total_bytes: 0,
        })
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.headers().get("content-type").is_some()
    }
}

/// The boundary that a request names: 1 to 70 characters of RFC 2046 §5.1.1.
fn boundary(request: &Request<'_>) -> Result<String, Error> {
    let refuse = |message: &'static str| {
        Error::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message)
    };
    let content_type = request.header("content-type").unwrap_or_default();
    let boundary = multer::parse_boundary(content_type).map_err(|_| {
        refuse("the body must be a form with files, and its Content-Type multipart/form-data with a boundary")
    })?;
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
    let is_right = (1..=70).contains(&boundary.len())
        && boundary.bytes().all(may_be)
        && !boundary.ends_with(' ');
    is_right.then_some(boundary).ok_or_else(|| {
        refuse("the boundary must have 1 to 70 characters of those that RFC 2046 §5.1.1 allows")
    })
}

impl Part<'_> {
    fn field(&self) -> &multer::Field<'static> {
        self.form.current.as_ref().expect("a part borrows the form whose current one it is")
    }

    /// The name of the form's field.
    pub fn name(&self) -> &str {
        self.field().name().unwrap_or_default()
    }

    /// The client's name for the file, if the part is a file. Never use it as a path: it may be `../../etc/passwd`.
    pub fn file_name(&self) -> Option<&str> {
        self.field().file_name()
    }

    /// The media type that the client states.
    pub fn content_type(&self) -> Option<&str> {
        self.field().content_type().map(AsRef::as_ref)
    }

    /// The next piece of its content; `None` at the end.
    ///
    /// # Errors
    /// As [`Multipart::next_part`].
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        self.form.piece().await
    }

    /// The rest of its content, whole.
    ///
    /// # Errors
    /// As [`Multipart::next_part`].
    pub async fn bytes(mut self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    /// The rest of its content, as text.
    ///
    /// # Errors
    /// As [`Multipart::next_part`]; 400 `invalid_multipart` if it is not UTF-8.
    pub async fn text(self) -> Result<String, Error> {
        let name = self.name().to_owned();
        String::from_utf8(self.bytes().await?)
            .map_err(|_| invalid(format!("the part `{name}` is not UTF-8")))
    }
}

impl fmt::Debug for Multipart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multipart")
            .field("limits", &self.limits)
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").field("name", &self.name()).finish_non_exhaustive()
    }
}
