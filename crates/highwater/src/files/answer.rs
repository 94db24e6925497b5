//! From a file and a request to a response: conditions, ranges, and the fields that describe the content.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use bytes::{BufMut, Bytes};
use highwater_core::time::UnixSeconds;
use http::{HeaderValue, StatusCode, header};

use super::stream::{FileStream, Part, length};
use crate::app::{Body, Error, IntoResponse, Request, Response};
use crate::content::coding::Coding;
use crate::content::precondition::{Validators, Verdict, judge, range_holds};
use crate::content::range::{self, Asked};

/// The content of a file.
pub(super) enum Content {
    Whole(Bytes),
    /// To be read while it is sent.
    Open(File),
}

/// A file that answers a request.
pub(super) struct Representation {
    pub(super) content: Content,
    pub(super) size: u64,
    pub(super) media_type: HeaderValue,
    pub(super) coding: Coding,
    /// `None` if the file changed while it was read.
    pub(super) validators: Option<FileValidators>,
}

/// The fields that tell one state of a file from another.
pub(super) struct FileValidators {
    pub(super) tag: HeaderValue,
    pub(super) modified: UnixSeconds,
    /// The same, as a field.
    pub(super) modified_field: HeaderValue,
}

impl Representation {
    /// The answer to a `GET` or `HEAD`, but for the fields that all files have in common.
    pub(super) fn answer(self, request: &Request<'_>, now: UnixSeconds) -> Response {
        let fields = request.headers();
        let validators = self.validators.as_ref().map_or_else(Validators::default, |of| {
            Validators { tag: Some(of.tag.as_bytes()), modified: Some(of.modified) }
        });
        match judge(fields, true, validators, now) {
            Verdict::Proceed => {}
            Verdict::NotModified => {
                let mut response = Response::new(StatusCode::NOT_MODIFIED);
                self.validate(&mut response);
                return response;
            }
            Verdict::Failed => return failed().into_response(),
        }
        // `Range` means something in `GET` only (section 14.2).
        let is_asked =
            request.method() == http::Method::GET && range_holds(fields, validators, now);
        let asked = match fields.get("range").filter(|_| is_asked) {
            Some(value) => range::parse(value, self.size),
            None => Asked::Whole,
        };
        match asked {
            Asked::Whole => self.whole(),
            Asked::Nothing => not_there(self.size).into_response(),
            Asked::Parts(ranges) => match <[Range<u64>; 1]>::try_from(ranges) {
                Ok([range]) => self.part(range),
                Err(ranges) => self.parts(&ranges),
            },
        }
    }

    fn whole(self) -> Response {
        let mut response = Response::new(StatusCode::OK);
        response.set_header(header::CONTENT_TYPE, self.media_type.clone());
        self.describe(&mut response);
        let size = self.size;
        response.with_body(match self.content {
            Content::Whole(bytes) => Body::from(bytes),
            Content::Open(file) => streamed(file, vec![Part::File(0..size)]),
        })
    }

    fn part(self, range: Range<u64>) -> Response {
        let mut response = Response::new(StatusCode::PARTIAL_CONTENT);
        response.set_header(header::CONTENT_TYPE, self.media_type.clone());
        self.describe(&mut response);
        let place = HeaderValue::try_from(content_range(&range, self.size)).expect("it is ASCII");
        response.set_header(header::CONTENT_RANGE, place);
        response.with_body(match self.content {
            Content::Whole(bytes) => Body::from(slice(&bytes, &range)),
            Content::Open(file) => streamed(file, vec![Part::File(range)]),
        })
    }

    /// Several ranges (section 14.6).
    fn parts(self, ranges: &[Range<u64>]) -> Response {
        let boundary = boundary();
        let mut parts = Vec::with_capacity(2 * ranges.len() + 1);
        let mut before = "";
        for range in ranges {
            let mut head = Vec::new();
            head.put_slice(format!("{before}--{boundary}\r\nContent-Type: ").as_bytes());
            head.put_slice(self.media_type.as_bytes());
            let place = content_range(range, self.size);
            head.put_slice(format!("\r\nContent-Range: {place}\r\n\r\n").as_bytes());
            parts.push(Part::Bytes(head.into()));
            parts.push(Part::File(range.clone()));
            before = "\r\n";
        }
        parts.push(Part::Bytes(format!("\r\n--{boundary}--\r\n").into()));
        let media_type = format!("multipart/byteranges; boundary={boundary}");
        let mut response = Response::new(StatusCode::PARTIAL_CONTENT);
        let media_type = HeaderValue::try_from(media_type).expect("it is ASCII");
        response.set_header(header::CONTENT_TYPE, media_type);
        self.describe(&mut response);
        response.with_body(match self.content {
            Content::Whole(bytes) => joined(&bytes, &parts),
            Content::Open(file) => streamed(file, parts),
        })
    }

    fn describe(&self, response: &mut Response) {
        self.validate(response);
        response.set_header(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if self.coding != Coding::Identity {
            let name = HeaderValue::from_static(self.coding.name());
            response.set_header(header::CONTENT_ENCODING, name);
        }
    }

    fn validate(&self, response: &mut Response) {
        if let Some(of) = &self.validators {
            response.set_header(header::ETAG, of.tag.clone());
            response.set_header(header::LAST_MODIFIED, of.modified_field.clone());
        }
    }
}

fn failed() -> Error {
    let message = "the file is not in the state that the request's condition names";
    Error::new(StatusCode::PRECONDITION_FAILED, "precondition_failed", message)
}

fn not_there(size: u64) -> Error {
    let message = format!("the file has {size} bytes, and none of those that the request asks for");
    let size = HeaderValue::try_from(format!("bytes */{size}")).expect("it is ASCII");
    Error::new(StatusCode::RANGE_NOT_SATISFIABLE, "range_not_satisfiable", message)
        .with_header(header::CONTENT_RANGE, size)
}

fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

fn slice(bytes: &Bytes, range: &Range<u64>) -> Bytes {
    bytes.slice(range.start as usize..range.end as usize)
}

fn streamed(file: File, parts: Vec<Part>) -> Body {
    match length(&parts) {
        0 => Body::empty(),
        length => Body::stream_of_length(length, FileStream::new(file, parts)),
    }
}

fn joined(bytes: &Bytes, parts: &[Part]) -> Body {
    let mut whole = Vec::with_capacity(length(parts) as usize);
    for part in parts {
        match part {
            Part::Bytes(bytes) => whole.extend_from_slice(bytes),
            Part::File(range) => whole.extend_from_slice(&slice(bytes, range)),
        }
    }
    Body::from(whole)
}

/// A line that no client can foresee, so that no file holds it on purpose.
fn boundary() -> String {
    let random = || RandomState::new().hash_one(0);
    format!("{:016x}{:016x}", random(), random())
}
