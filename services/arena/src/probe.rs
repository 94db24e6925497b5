//! The routes that conformance suites request to check the engine's answers.

use highwater::{
    BodyStream, Bytes, Cookies, Error, FromRequest, Request, Response, Router, StatusCode,
};

/// The type of every answer: the content is request bytes or a word.
const TYPE: &str = "text/plain";

/// Adds the routes of conformance suites, and gives errors the shape they have there: plain text.
pub fn routes(router: Router) -> Router {
    router
        .get("/", || text("OK"))
        .post("/", |body: Bytes| text(body))
        .any("/echo", |Fields(lines): Fields| text(lines))
        .any("/cookie", cookies)
        .any("/stream", count)
        .any("/ignore", ignore)
        .errors(error)
}

fn text(content: impl Into<highwater::Body>) -> Response {
    Response::new(StatusCode::OK).with_body(content).with_content_type(TYPE)
}

fn error(error: &Error) -> Response {
    text(error.message().to_owned())
}

/// The request's fields as received, one per line.
struct Fields(Vec<u8>);

impl FromRequest for Fields {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let lines = request
            .headers()
            .iter()
            .flat_map(|(name, value)| [name.as_bytes(), b": ", value, b"\n"].concat());
        Ok(Fields(lines.collect()))
    }
}

fn cookies(cookies: Cookies) -> Response {
    let lines: Vec<String> =
        cookies.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    text(lines.concat())
}

async fn count(mut body: BodyStream) -> Result<Response, Error> {
    let mut length = 0;
    while let Some(piece) = body.next().await {
        length += piece?.len();
    }
    Ok(text(length.to_string()))
}

async fn ignore(body: BodyStream) -> Response {
    drop(body);
    text("ignored")
}
