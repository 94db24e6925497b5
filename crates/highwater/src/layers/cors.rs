//! Cross-Origin Resource Sharing: which sites' scripts may read what this server answers (Fetch §3.2).

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode, header};

use crate::app::{BoxError, Layer, Request, Response};

/// The methods for a preflight to a path without routes, so that the script sees the 404 itself.
const USUAL_METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");

/// Whether an origin is allowed.
type Test = dyn Fn(&str) -> bool + Send + Sync;

/// Lets scripts of other sites read this server's answers, by the CORS protocol of the Fetch standard.
///
/// Nothing is allowed until you name the origins: [`origin`](Cors::origin), [`any_origin`](Cors::any_origin) or
/// [`origin_if`](Cors::origin_if). By default, the methods for which a path has routes are allowed, and the request fields
/// that need no permission.
///
/// It answers preflights itself, before any other layer sees them: a browser sends them without credentials, so a layer
/// that requires them may come before or after this one. And it covers everything: a script sees a 503 or a 404 instead of
/// a failure that looks like a mistake in this configuration. If two of these layers cover a route, the outermost decides,
/// even if a handler names an origin itself.
///
/// With any origin, or exactly one, every response gets the same fields, and a [`fixed`](crate::fixed) answer
/// costs no more than without this layer. With a list, responses name the origin that asked, and have
/// `Vary: Origin`.
///
/// ```
/// use std::time::Duration;
///
/// use highwater::layers::cors;
/// use highwater::testing::Client;
/// use highwater::{Method, Router};
///
/// let cors = cors()
///     .origin("https://shop.example")
///     .origin("https://admin.example")
///     .headers(["authorization", "content-type"])
///     .credentials()
///     .max_age(Duration::from_secs(3600));
/// let client = Client::new(Router::new().layer(cors).put("/articles/{id}", || "stored"));
///
/// let preflight = client
///     .request(Method::OPTIONS, "/articles/7")
///     .header("origin", "https://admin.example")
///     .header("access-control-request-method", "PUT")
///     .send();
/// assert_eq!(preflight.status, 204);
/// assert_eq!(preflight.header("access-control-allow-origin"), Some("https://admin.example"));
/// assert_eq!(preflight.header("access-control-allow-methods"), Some("PUT, OPTIONS"));
/// ```
pub fn cors() -> Cors {
    Cors {
        origins: Vec::new(),
        is_any_origin: false,
        test: None,
        methods: None,
        headers: Vec::new(),
        is_any_header: false,
        exposed: Vec::new(),
        allowed: None,
        shown: None,
        has_credentials: false,
        max_age: None,
        problems: Vec::new(),
    }
}

/// A layer that implements CORS; made by [`cors`].
#[derive(Clone)]
#[must_use = "give it to `Router::layer`"]
pub struct Cors {
    origins: Vec<HeaderValue>,
    is_any_origin: bool,
    test: Option<Arc<Test>>,
    methods: Option<HeaderValue>,
    headers: Vec<HeaderName>,
    is_any_header: bool,
    exposed: Vec<HeaderName>,
    /// `headers` and `exposed` as they are sent.
    allowed: Option<HeaderValue>,
    shown: Option<HeaderValue>,
    has_credentials: bool,
    max_age: Option<HeaderValue>,
    problems: Vec<String>,
}

impl Cors {
    /// Allows an origin, as browsers write it: `https://shop.example`, with a port if that is not the
    /// scheme's own, in lower case, and with nothing after it.
    pub fn origin(mut self, origin: impl AsRef<str>) -> Self {
        let origin = origin.as_ref();
        match check_origin(origin).and_then(|()| {
            HeaderValue::from_str(origin)
                .map_err(|_| String::from("it has a byte that no origin has; write ASCII"))
        }) {
            Ok(value) if self.origins.contains(&value) => {}
            Ok(value) => self.origins.push(value),
            Err(problem) => self.problems.push(format!("cors().origin(\"{origin}\"): {problem}")),
        }
        self
    }

    /// Allows every origin: for public content. Not together with [`credentials`](Cors::credentials).
    pub fn any_origin(mut self) -> Self {
        self.is_any_origin = true;
        self
    }

    /// Allows the origins for which `test` is true, such as all subdomains of a site. It gets the origin as
    /// the browser wrote it. Be careful with suffixes: `ends_with("shop.example")` is true for
    /// `https://evilshop.example`.
    ///
    /// ```
    /// use highwater::layers::cors;
    ///
    /// let cors = cors().origin_if(|origin| {
    ///     origin.strip_prefix("https://").is_some_and(|host| host.ends_with(".shop.example"))
    /// });
    /// ```
    pub fn origin_if(mut self, test: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.test = Some(match self.test.take() {
            None => Arc::new(test),
            Some(other) => Arc::new(move |origin| other(origin) || test(origin)),
        });
        self
    }

    /// Allows these methods, instead of those that a path has routes for. `GET`, `HEAD` and `POST` need no
    /// permission.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        let methods: Vec<Method> = methods.into_iter().collect();
        for method in &methods {
            let is_forbidden = ["CONNECT", "TRACE", "TRACK"]
                .iter()
                .any(|forbidden| method.as_str().eq_ignore_ascii_case(forbidden));
            if is_forbidden {
                self.problems.push(format!(
                    "cors().methods(…): no browser lets a script use {method}; leave it out"
                ));
            }
        }
        self.methods = list(methods.iter().map(Method::as_str));
        self
    }

    /// Allows scripts to send these fields: `authorization`, `content-type` for JSON, fields of your own.
    pub fn headers<I>(mut self, names: I) -> Self
    where
        I: IntoIterator<Item: TryInto<HeaderName, Error: Into<BoxError>>>,
    {
        let names = self.names("headers", names);
        self.headers.extend(names);
        self.allowed = list(self.headers.iter().map(HeaderName::as_str));
        self
    }

    /// Allows scripts to send whatever fields they ask for.
    pub fn any_header(mut self) -> Self {
        self.is_any_header = true;
        self
    }

    /// Lets scripts read these fields of responses, besides `Cache-Control`, `Content-Language`,
    /// `Content-Length`, `Content-Type`, `Expires`, `Last-Modified` and `Pragma`, which they may anyway.
    pub fn expose<I>(mut self, names: I) -> Self
    where
        I: IntoIterator<Item: TryInto<HeaderName, Error: Into<BoxError>>>,
    {
        let names = self.names("expose", names);
        self.exposed.extend(names);
        self.shown = list(self.exposed.iter().map(HeaderName::as_str));
        self
    }

    /// Lets scripts act as the user, with the cookies and passwords that the browser has for this server.
    pub fn credentials(mut self) -> Self {
        self.has_credentials = true;
        self
    }

    /// Lets browsers remember the result of a preflight for this long; without it, 5 seconds. Browsers have their own upper
    /// bounds, of 2 to 24 hours.
    pub fn max_age(mut self, max_age: Duration) -> Self {
        self.max_age = Some(HeaderValue::from(max_age.as_secs()));
        self
    }

    fn names<I>(&mut self, call: &str, names: I) -> Vec<HeaderName>
    where
        I: IntoIterator<Item: TryInto<HeaderName, Error: Into<BoxError>>>,
    {
        let mut valid = Vec::new();
        for name in names {
            match name.try_into() {
                Ok(name) => valid.push(name),
                Err(error) => self.problems.push(format!(
                    "cors().{call}(…): {}; write the names of fields, one by one{}",
                    error.into(),
                    if call == "headers" { ", or `.any_header()`" } else { "" },
                )),
            }
        }
        valid
    }

    /// The origin that every response names; `None` if it depends on the request.
    fn constant_origin(&self) -> Option<HeaderValue> {
        match &self.origins[..] {
            _ if self.is_any_origin => Some(HeaderValue::from_static("*")),
            [origin] if self.test.is_none() => Some(origin.clone()),
            _ => None,
        }
    }

    /// The origin to name in the response; `None` if it is not allowed.
    fn origin_for(&self, request: &Request<'_>) -> Option<HeaderValue> {
        let headers = request.headers();
        let mut origins = headers.get_all("origin");
        let (Some(origin), None) = (origins.next(), origins.next()) else { return None };
        let is_listed = || self.origins.iter().any(|allowed| allowed.as_bytes() == origin);
        let is_accepted = || {
            let (test, text) = (self.test.as_ref()?, std::str::from_utf8(origin).ok()?);
            // Any page can make the browser send `null`: it identifies no origin.
            (text != "null" && test(text)).then_some(())
        };
        let is_allowed = is_listed() || is_accepted().is_some();
        is_allowed.then(|| HeaderValue::from_bytes(origin).ok()).flatten()
    }

    /// Permits scripts of `origin` to read the response.
    fn allow(&self, origin: HeaderValue, response: &mut Response) {
        response.set_header(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if self.has_credentials {
            let value = HeaderValue::from_static("true");
            response.set_header(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, value);
        }
    }

    fn expose_on(&self, response: &mut Response) {
        if let Some(shown) = &self.shown {
            response.set_header(header::ACCESS_CONTROL_EXPOSE_HEADERS, shown.clone());
        }
    }

    /// The answer about fields to a preflight.
    fn headers_for(&self, request: &Request<'_>) -> Option<HeaderValue> {
        if !self.is_any_header {
            return self.allowed.clone();
        }
        // Named one by one: `*` does not stand for `Authorization`, nor for anything with credentials.
        let asked = request.headers().get("access-control-request-headers")?;
        HeaderValue::from_bytes(asked).ok()
    }
}

impl From<Cors> for Layer {
    fn from(cors: Cors) -> Layer {
        let (problems, is_constant) = (cors.check(), cors.constant_origin().is_some());
        let cors = Arc::new(cors);
        let asked = Arc::clone(&cors);
        let layer = Layer::new().preflight(move |request: &Request<'_>| asked.preflight(request));
        let layer = match is_constant {
            true => layer.amend(move |response| cors.amend(response)),
            false => layer.on_response(move |request: &Request<'_>, response: &mut Response| {
                cors.on_response(request, response);
            }),
        };
        problems.into_iter().fold(layer.everywhere(), Layer::problem)
    }
}

impl Cors {
    /// What is wrong with it.
    fn check(&self) -> Vec<String> {
        let mut problems = self.problems.clone();
        let names_some = !self.origins.is_empty() || self.test.is_some();
        // An origin that was written wrongly is one problem, and not two.
        if !self.is_any_origin && !names_some && problems.is_empty() {
            problems.push(String::from(
                "cors() allows no origin; add `.origin(\"https://…\")` for each site whose scripts may \
                 read the answers, or `.any_origin()`",
            ));
        }
        if self.is_any_origin && names_some {
            problems.push(String::from(
                "cors() allows any origin and names some; leave out `.any_origin()`, or the others",
            ));
        }
        if self.is_any_origin && self.has_credentials {
            problems.push(String::from(
                "cors() allows any origin with credentials, so that every site could act as the user, \
                 and browsers refuse it; name the sites with `.origin(\"https://…\")`, or leave out \
                 `.credentials()`",
            ));
        }
        problems
    }

    fn preflight(&self, request: &Request<'_>) -> ControlFlow<Response> {
        if request.headers().get("origin").is_none() {
            return ControlFlow::Continue(());
        }
        let mut response = Response::new(StatusCode::NO_CONTENT);
        let constant = self.constant_origin();
        if constant.is_none() {
            response.vary("origin");
        }
        if self.is_any_header {
            response.vary("access-control-request-headers");
        }
        let Some(origin) = constant.or_else(|| self.origin_for(request)) else {
            return ControlFlow::Break(response); // Without a permission the browser goes no further.
        };
        self.allow(origin, &mut response);
        let routed = || HeaderValue::from_str(request.allowed_methods()?).ok();
        let methods = self.methods.clone().or_else(routed).unwrap_or(USUAL_METHODS);
        response.set_header(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
        if let Some(headers) = self.headers_for(request) {
            response.set_header(header::ACCESS_CONTROL_ALLOW_HEADERS, headers);
        }
        if let Some(max_age) = &self.max_age {
            response.set_header(header::ACCESS_CONTROL_MAX_AGE, max_age.clone());
        }
        ControlFlow::Break(response)
    }

    fn amend(&self, response: &mut Response) {
        forbid(response);
        if let Some(origin) = self.constant_origin() {
            self.allow(origin, response);
            self.expose_on(response);
        }
    }

    fn on_response(&self, request: &Request<'_>, response: &mut Response) {
        response.vary("origin");
        forbid(response);
        if let Some(origin) = self.origin_for(request) {
            self.allow(origin, response);
            self.expose_on(response);
        }
    }
}

/// Removes what a layer within this one, or a handler, permits to an origin: only the outermost decides.
fn forbid(response: &mut Response) {
    if !response.has_header(&header::ACCESS_CONTROL_ALLOW_ORIGIN) {
        return;
    }
    for name in [
        header::ACCESS_CONTROL_ALLOW_ORIGIN,
        header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
    ] {
        response.remove_header(&name);
    }
}

impl fmt::Debug for Cors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cors")
            .field("origins", &self.origins)
            .field("is_any_origin", &self.is_any_origin)
            .field("has_credentials", &self.has_credentials)
            .finish_non_exhaustive()
    }
}

/// Names as a field's value; `None` if there is none.
fn list<'a>(names: impl Iterator<Item = &'a str>) -> Option<HeaderValue> {
    let text = names.collect::<Vec<_>>().join(", ");
    (!text.is_empty()).then(|| HeaderValue::try_from(text).expect("they are tokens"))
}

/// Whether an origin is written as browsers write it (HTML §7.1.1, "serialization of an origin"): with any
/// other, none would ever be equal.
pub(super) fn check_origin(origin: &str) -> Result<(), String> {
    if origin == "*" {
        return Err(String::from("write `.any_origin()`"));
    }
    if origin == "null" {
        return Err(String::from(
            "any page can have itself sent as `null`, so that it allows all of them; \
             write `.any_origin()` if that is meant",
        ));
    }
    let Some((scheme, host)) = origin.split_once("://") else {
        return Err(format!("an origin begins with a scheme; write `https://{origin}`"));
    };
    if let Some((before, _)) = host.split_once(['/', '?', '#']) {
        return Err(format!("an origin ends behind its host; write `{scheme}://{before}`"));
    }
    if !origin.is_ascii() {
        return Err(String::from("browsers send names in ASCII; write it in Punycode (`xn--…`)"));
    }
    if origin.bytes().any(|byte| byte.is_ascii_uppercase()) {
        let lower = origin.to_ascii_lowercase();
        return Err(format!("browsers send it in lower case; write `{lower}`"));
    }
    if host.contains('*') {
        return Err(String::from(
            "there are no patterns; write `.origin_if(|origin| …)` for all subdomains of a site",
        ));
    }
    let own_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "://", // No host ends with that.
    };
    if let Some(bare) = host.strip_suffix(own_port) {
        return Err(format!("browsers leave out a scheme's own port; write `{scheme}://{bare}`"));
    }
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    if scheme.is_empty() || host.is_empty() || !host.bytes().all(is_host) {
        return Err(String::from(
            "it has no host, or one that no origin has; write `https://host`",
        ));
    }
    Ok(())
}
