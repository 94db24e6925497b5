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

impl App {
    /// The target of `head`. Stores in `params` where its path parameters are.
    #[inline]
    pub(crate) fn find(&self, head: &Head<'_>, params: &mut Params) -> Target {
        let Some((_, methods)) = self.shared.paths.find(head.path_bytes(), params) else {
            return self.shared.find_nothing(head);
        };
        match methods.named[head.method() as usize] {
            Some(endpoint) if head.method() != Method::Other => Target::Endpoint(endpoint),
            any => self.shared.find_rare(methods, any, head),
        }
    }
}

impl Shared {
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
    fn find_nothing(&self, head: &Head<'_>) -> Target {
        match (head.method(), head.path()) {
            (Method::Options, "*") => Target::OptionsAll,
            // The server is not a proxy, and the target names no resource.
            (Method::Connect, _) => Target::NotImplemented(0),
            (_, path) => match self.prefixes.find(path, &mut Params::new()) {
                Some((_, &scope)) => Target::NotFound(scope),
                None => Target::NotFound(0),
            },
        }
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
                    "{method} is not for this path; it takes {}",
                    methods.to_str().unwrap_or_default()
                );
                Error::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
                    .with_header(header::ALLOW, methods.clone())
                    .into_response()
            }
            Target::NotImplemented(_) => {
                let message = format!("the method {method} is not known here");
                Error::new(StatusCode::NOT_IMPLEMENTED, "not_implemented", message).into_response()
            }
            Target::NotFound(_) | Target::Endpoint(_) => {
                Error::not_found("there is nothing at this path").into_response()
            }
        }
    }
}
