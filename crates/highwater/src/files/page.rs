//! What answers in place of a file that is not there: 404, or the page of an application that routes in the browser.

use std::io;

use http::{HeaderValue, header};

use super::{Files, not_found, now};
use crate::app::{IntoResponse, Request, Response};
use crate::content::media_type;

/// The field that says whether the client shows pages.
const ACCEPT: HeaderValue = HeaderValue::from_static("accept");

impl Files {
    /// The answer where there is no file.
    pub(super) fn missing(&self, request: &Request<'_>) -> io::Result<Response> {
        let Some(page) = &self.settings.single_page else {
            return Ok(not_found().into_response());
        };
        let page = if wants_page(request) { self.read(page, request)? } else { None };
        let mut response = match page {
            Some(representation) => self.finish(representation.answer(request, now())),
            None => not_found().with_header(header::VARY, ACCEPT).into_response(),
        };
        if response.error().is_none() {
            response.vary("accept");
            self.limit_caching(&mut response);
        }
        Ok(response)
    }

    /// The page is not what belongs to its path: a file may be there with the next release. So no cache gives it without asking,
    /// whatever files themselves may have.
    fn limit_caching(&self, response: &mut Response) {
        let Some(control) = &self.settings.cache_control else { return };
        let control = String::from_utf8_lossy(control.as_bytes()).to_ascii_lowercase();
        if !["no-store", "no-cache"].iter().any(|directive| control.contains(directive)) {
            response.set_header(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        }
    }
}

/// Whether a page is an answer to a request for a file that is not there.
fn wants_page(request: &Request<'_>) -> bool {
    let accept = request.header("accept").unwrap_or("*/*").to_ascii_lowercase();
    let is_page = media_type::extension(request.path()).is_none();
    accept.contains("text/html") || is_page && (accept.contains("*/*") || accept.contains("text/*"))
}
