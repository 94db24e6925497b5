//! The refusals for clients that use keys wrongly, as problem details (RFC 9457), in the words of the draft.

use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::app::{Error, Response};

/// One kind of refusal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: &'static str,
    /// In how many seconds the same request may be answered.
    retry_after: Option<u16>,
}

pub(super) const MISSING: Refusal = Refusal {
    status: StatusCode::BAD_REQUEST,
    code: "idempotency_key_missing",
    title: "Idempotency-Key is missing",
    detail: "This operation requires an Idempotency-Key.",
    retry_after: None,
};

pub(super) const INVALID: Refusal = Refusal {
    status: StatusCode::BAD_REQUEST,
    code: "idempotency_key_invalid",
    title: "Idempotency-Key is not valid",
    detail: super::key::FORM,
    retry_after: None,
};

pub(super) const REUSED: Refusal = Refusal {
    status: StatusCode::UNPROCESSABLE_ENTITY,
    code: "idempotency_key_reused",
    title: "Idempotency-Key is already used",
    detail: "An Idempotency-Key must not be used for a request with another target or other content.",
    retry_after: None,
};

pub(super) const UNDER_WAY: Refusal = Refusal {
    status: StatusCode::CONFLICT,
    code: "idempotency_under_way",
    title: "A request is outstanding for this Idempotency-Key",
    detail: "A request with the same Idempotency-Key is being processed. Repeat it later.",
    retry_after: Some(1),
};

pub(super) const UNKNOWN: Refusal = Refusal {
    status: StatusCode::CONFLICT,
    code: "idempotency_outcome_unknown",
    title: "The outcome for this Idempotency-Key is unknown",
    detail: "A request with the same Idempotency-Key was interrupted, and may have been applied. Find out whether it was before you \
             send it with another key.",
    retry_after: None,
};

pub(super) const NOT_KEPT: Refusal = Refusal {
    status: StatusCode::CONFLICT,
    code: "idempotency_answer_not_kept",
    title: "The answer for this Idempotency-Key is not kept",
    detail: "A request with the same Idempotency-Key was answered, and its answer cannot be given again: it was too large to be kept, or there was no room for it.",
    retry_after: None,
};

pub(super) const UNSUPPORTED: Refusal = Refusal {
    status: StatusCode::BAD_REQUEST,
    code: "idempotency_key_unsupported",
    title: "Idempotency-Key is not supported here",
    detail: "This operation takes its content as a stream, and cannot tell whether two requests are the same. It was not applied; send \
             it without Idempotency-Key.",
    retry_after: None,
};

impl Refusal {
    /// The answer. `manual` is where the operation is explained.
    pub(super) fn response(&self, manual: Option<&str>) -> Response {
        let Refusal { status, code, title, detail, retry_after } = *self;
        let kind = manual.map(|url| format!("\"type\":\"{url}\",")).unwrap_or_default();
        let number = status.as_u16();
        // No text has a character that JSON escapes, but for quotes.
        let detail_text = detail.replace('"', "\\\"");
        let text = format!(
            "{{{kind}\"title\":\"{title}\",\"status\":{number},\"detail\":\"{detail_text}\",\"code\":\"{code}\"}}"
        );
        let mut response =
            Response::new(status).with_body(text).with_content_type("application/problem+json");
        if let Some(link) = manual.and_then(link) {
            response.append_header(header::LINK, link);
        }
        if let Some(seconds) = retry_after {
            response.append_header(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.set_rendered_error(Error::new(status, code, detail));
        response
    }
}

/// The field that leads to the manual, as the draft has it.
fn link(url: &str) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("<{url}>; rel=\"describedby\"; type=\"text/html\"")).ok()
}

/// The field that keys come in.
pub(super) const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// What it adds to the document of an operation.
#[cfg(feature = "openapi")]
pub(super) fn document(operation: &mut crate::app::openapi::Operation<'_>, is_required: bool) {
    use crate::app::Problem;

    if operation.is_idempotent() {
        return;
    }
    let about = "A string that is new for each operation, and the same when it is repeated: 1 to 255 visible ASCII characters.";
    match is_required {
        true => operation.header("Idempotency-Key", about),
        false => operation.optional_header("Idempotency-Key", about),
    }
    for (refusal, about) in [
        (INVALID, "`Idempotency-Key` is missing or not valid."),
        (UNDER_WAY, "The same request is under way, or its outcome is unknown."),
        (REUSED, "`Idempotency-Key` belongs to another request."),
    ] {
        operation.answer::<Problem>(refusal.status, about);
    }
    let about = "No new key can be taken for now (`idempotency_unavailable`).";
    operation.error(StatusCode::SERVICE_UNAVAILABLE, about);
    operation.error_header(
        StatusCode::SERVICE_UNAVAILABLE,
        "Retry-After",
        "In how many seconds to try again.",
    );
}
