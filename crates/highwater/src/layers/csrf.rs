//! Does a request come from a page of this site, or from another one that uses its visitor's cookies?

use std::sync::Arc;

use http::Method;

use super::cors::check_origin;
use crate::app::{Error, Layer, Request};

/// Refuses requests by which another site acts in the name of its visitor (cross-site request forgery), with 403.
///
/// Browsers say where a request comes from, and a page cannot change that. `GET`, `HEAD` and `OPTIONS` pass, so they must not
/// change anything. Every other request passes if
///
/// * `Sec-Fetch-Site` is `same-origin` or `none`;
/// * or, without that field, `Origin` names the host that the request is for;
/// * or `Origin` is [trusted](Csrf::trust);
/// * or there is neither field: it does not come from a browser, and has no visitor's cookies.
///
/// Other sites on the same domain (`same-site`) do not pass unless they are trusted. No token is needed, and forms need no
/// changes. Browsers send `Sec-Fetch-Site` since 2023 and `Origin` since 2020, the former to sites with TLS and to `localhost`
/// only. Behind a proxy, `Host` must be the one that the browser sent.
///
/// Go's `http.CrossOriginProtection` has the same rules.
///
/// ```
/// use highwater::layers::csrf;
/// use highwater::testing::Client;
/// use highwater::Router;
///
/// let client = Client::new(Router::new().layer(csrf()).post("/transfer", || "done"));
/// client.set_header("sec-fetch-site", "cross-site");
/// assert_eq!(client.post("/transfer", "").status, 403);
/// client.set_header("sec-fetch-site", "same-origin");
/// assert_eq!(client.post("/transfer", "").status, 200);
/// ```
pub fn csrf() -> Csrf {
    Csrf { trusted: Vec::new(), problems: Vec::new() }
}

/// A layer that refuses requests of other sites; made by [`csrf`].
#[derive(Clone, Debug)]
#[must_use = "give it to `Router::layer`"]
pub struct Csrf {
    trusted: Vec<String>,
    problems: Vec<String>,
}

impl Csrf {
    /// Lets pages of this origin send requests, too, as browsers write it: `https://shop.example`.
    pub fn trust(mut self, origin: impl Into<String>) -> Self {
        let origin = origin.into();
        let checked = match origin == "null" || origin.contains('*') {
            true => Err(String::from("it stands for many sites; name each that is trusted")),
            false => check_origin(&origin),
        };
        match checked {
            Ok(()) => self.trusted.push(origin),
            Err(problem) => self.problems.push(format!("csrf().trust(\"{origin}\"): {problem}")),
        }
        self
    }

    fn judge(&self, request: &Request<'_>) -> Result<(), Error> {
        let method = request.method();
        // A CONNECT opens a WebSocket, as a GET does in HTTP/1.1: its handler looks at the origin itself.
        if matches!(method, Method::GET | Method::HEAD | Method::OPTIONS | Method::CONNECT) {
            return Ok(());
        }
        let fields = request.headers();
        let origin = fields.get("origin");
        let is_trusted = origin
            .is_some_and(|origin| self.trusted.iter().any(|trusted| trusted.as_bytes() == origin));
        let is_own = match fields.get("sec-fetch-site") {
            Some(site) => matches!(site, b"same-origin" | b"none"),
            None => origin.is_none_or(|origin| is_host(origin, fields.get("host"))),
        };
        if is_own || is_trusted {
            return Ok(());
        }
        Err(Error::forbidden("this request comes from a page of another site")
            .with_code("cross_site"))
    }
}

/// Whether an origin is of this host. The scheme is not known here, nor whether a proxy has changed it.
fn is_host(origin: &[u8], host: Option<&[u8]>) -> bool {
    let after = origin.windows(3).position(|three| three == b"://").map(|at| &origin[at + 3..]);
    after.zip(host).is_some_and(|(after, host)| after.eq_ignore_ascii_case(host))
}

impl From<Csrf> for Layer {
    fn from(csrf: Csrf) -> Layer {
        let problems = csrf.problems.clone();
        let csrf = Arc::new(csrf);
        let layer = Layer::new().on_request(move |request: &Request<'_>| csrf.judge(request));
        #[cfg(feature = "openapi")]
        let layer = layer.documents(|operation: &mut crate::app::openapi::Operation<'_>| {
            if !operation.is_safe() {
                operation.error(
                    http::StatusCode::FORBIDDEN,
                    "It comes from a page of another site (`cross_site`).",
                );
            }
        });
        problems.into_iter().fold(layer, Layer::problem)
    }
}
