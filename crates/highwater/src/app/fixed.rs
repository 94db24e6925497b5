//! Endpoints that always give the same response.

use super::body::Repr;
use super::handler::{Description, Handler, Kind};
use super::into_response::IntoResponse;
use super::outcome::Outcome;
use super::prepared::{FixedResponse, Template};
use super::request::Request;

/// An endpoint that always gives the same response; see [`fixed`].
#[derive(Clone, Debug)]
pub struct Fixed {
    response: FixedResponse,
    template: Template,
    problem: Option<String>,
}

/// The same response for every request, encoded once: the cheapest endpoint there is, for health checks and other constants. No
/// error renderer applies to it, and only layers that cover [everything](super::layer::Layer::everywhere) apply, such as those
/// that ask for a password or a token (`auth`). A change that such a layer makes to every response alike
/// ([`amend`](super::layer::Layer::amend)) is made when the application is built, and costs nothing; if one looks at requests,
/// the response is made for each.
///
/// ```
/// use highwater::{Handler, Router, StatusCode, fixed};
///
/// let app = Router::new()
///     .get("/health", fixed("ok").never_shed())
///     .get("/gone", fixed((StatusCode::GONE, "it was nice while it lasted")));
/// # app.build().unwrap();
/// ```
///
/// Under overload it is refused as any route is, unless it is [never shed](super::Handler::never_shed).
///
/// Its content cannot be a stream, and it must be a valid answer of a handler (see
/// [`Response`](super::Response)); otherwise [`Router::build`](super::Router::build) returns an error.
pub fn fixed(response: impl IntoResponse) -> Fixed {
    let response = response.into_response().render(|error| error.render());
    let mut response = response;
    let problem = match response.body().repr() {
        Repr::Stream(..) | Repr::Upgrade(_) => Some(String::from(
            "fixed(…) needs content that is there at once; \
             a stream or an upgrade has to come from a function",
        )),
        _ => response.problem(false),
    };
    let template = Template::of(response);
    Fixed { response: template.prepare(template.make()), template, problem }
}

/// Marks [`Fixed`] as a handler.
#[derive(Debug)]
pub struct ViaFixed;

#[diagnostic::do_not_recommend]
impl Handler<ViaFixed> for Fixed {
    fn describe(&self, description: &mut Description) {
        description.kind = Kind::Fixed;
        description.problems.extend(self.problem.clone());
        description.fixed = Some(self.template.clone());
    }

    #[inline]
    fn dispatch<'h>(&'h self, _request: &Request<'_>) -> Outcome<'h> {
        Outcome::Fixed(&self.response)
    }
}
