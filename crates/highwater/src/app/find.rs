//! Which endpoint does a head ask for, and which response is sent if there is none?

use highwater_core::http::{Head, Method};
use highwater_core::route::Params;
use http::{HeaderValue, StatusCode, header};

use super::application::{App, Methods, Shared};
use super::error::Error;
use super::into_response::IntoResponse;
use super::request::Request;
use super::response::Response;
use super::target::Target;
use super::trailing_slash::TrailingSlash;

impl App {
    /// The target of `head`. Stores in `params` where its path parameters are.
    #[inline]
    pub(crate) fn find(&self, head: &Head<'_>, params: &mut Params) -> Target {
        let Some((_, methods)) = self.shared.paths.find(head.path_bytes(), params) else {
            return self.shared.find_nothing(head, params);
        };
        self.shared.find_method(methods, head)
    }
}

impl Shared {
    /// The path exists.
    #[inline]
    fn find_method(&self, methods: &Methods, head: &Head<'_>) -> Target {
        match methods.named[head.method() as usize] {
            Some(endpoint) if head.method() != Method::Other => Target::Endpoint(endpoint),
            any => self.find_rare(methods, any, head),
        }
    }

    /// The path exists, but there is no endpoint for a method that has a name, or it has none.
    #[cold]
    fn find_rare(&self, methods: &Methods, any: Option<u16>, head: &Head<'_>) -> Target {
        let token = head.method_token();
        let other = methods.others.iter().find(|(method, _)| **method == *token);
        match other.map(|(_, endpoint)| *endpoint).or(any) {
            Some(endpoint) => Target::Endpoint(endpoint),
            None => match head.method() {
                Method::Other => {
                    Target::NotImplemented(self.facts.allowed[usize::from(methods.path)].scope)
                }
                Method::Options => Target::Options(methods.path),
                _ => Target::NotAllowed(methods.path),
            },
        }
    }

    /// The path does not exist.
    #[cold]
    fn find_nothing(&self, head: &Head<'_>, params: &mut Params) -> Target {
        let path = match (head.method(), head.path()) {
            (Method::Options, "*") => return Target::OptionsAll,
            // The server is not a proxy, and the target names no resource.
            (Method::Connect, _) if !head.is_extended_connect() => {
                return Target::NotImplemented(0);
            }
            (_, path) => path,
        };
        if self.trailing_slash != TrailingSlash::Strict
            && let Some(other) = other_slash(path)
            && let Some((_, methods)) = self.paths.find(&*other, params)
        {
            return match self.trailing_slash {
                TrailingSlash::Redirect => Target::Moved(methods.path),
                // Parameters are where they are in the path as it was sent: the slash is in none of them.
                _ => self.find_method(methods, head),
            };
        }
        let scope = self.prefixes.find(path, &mut Params::new()).map_or(0, |(_, &scope)| scope);
        let takes = |endpoint: &u16| {
            head.method() != Method::Connect || self.endpoints[usize::from(*endpoint)].takes_connect
        };
        match self.fallbacks[usize::from(scope)].filter(takes) {
            Some(endpoint) => Target::Endpoint(endpoint),
            None => Target::NotFound(scope),
        }
    }

    /// The target of a path that another slash at its end gives a route, as [`TrailingSlash::Ignore`] has it.
    #[cold]
    pub(super) fn find_beside(&self, head: &Head<'_>, params: &mut Params) -> Option<Target> {
        let (_, methods) = self.paths.find(&*other_slash(head.path())?, params)?;
        Some(self.find_method(methods, head))
    }

    #[cold]
    pub(super) fn answer_without_endpoint(
        &self,
        target: Target,
        request: &Request<'_>,
    ) -> Response {
        let options = |methods: &HeaderValue| {
            let mut response = Response::new(StatusCode::NO_CONTENT);
            response.set_header(header::ALLOW, methods.clone());
            response
        };
        let method = request.with_head(|head| head.method_token());
        match target {
            Target::Options(path) => options(&self.facts.allowed[usize::from(path)].methods),
            Target::OptionsAll => options(&self.facts.allowed_anywhere),
            Target::NotAllowed(path) => {
                let methods = &self.facts.allowed[usize::from(path)].methods;
                let message = format!(
                    "this path does not allow {method}; it allows {}",
                    methods.to_str().unwrap_or_default()
                );
                Error::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
                    .with_header(header::ALLOW, methods.clone())
                    .into_response()
            }
            Target::Moved(_) => moved(request),
            Target::NotImplemented(_) => {
                let message = format!("the method {method} is not known here");
                Error::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", message).into_response()
            }
            Target::Unrewritten => match request.rewrite_panic() {
                Some(panic) => Error::internal(panic.clone()).into_response(),
                None => Error::bad_request("the path leads nowhere")
                    .with_code("invalid_path")
                    .into_response(),
            },
            Target::NotFound(_) | Target::Endpoint(_) => {
                Error::not_found("there is nothing at this path").into_response()
            }
        }
    }
}

/// The path with a slash at its end if it has none, else without. `None` for a path that would become another one in
/// more than that, or that a browser would take for another server (`//host/`).
pub(super) fn other_slash(path: &str) -> Option<String> {
    if path.starts_with("//") || !path.starts_with('/') || path == "/" {
        return None;
    }
    Some(match path.strip_suffix('/') {
        Some(shorter) => shorter.to_owned(),
        None => format!("{path}/"),
    })
}

/// Sends the client to the path that it has sent, with a slash at its end, or without.
fn moved(request: &Request<'_>) -> Response {
    let mut location = other_slash(request.original_path()).unwrap_or_default();
    if let Some(query) = request.original_query() {
        location.push('?');
        location.push_str(query);
    }
    let mut response = Response::new(StatusCode::PERMANENT_REDIRECT);
    match HeaderValue::try_from(location) {
        Ok(location) => response.set_header(header::LOCATION, location),
        Err(error) => return Error::internal(error).into_response(),
    }
    response
}
