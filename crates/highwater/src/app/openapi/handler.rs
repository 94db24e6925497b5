//! Handlers whose signatures a document is made of.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use http::StatusCode;

use super::input::DescribeInputs;
use super::output::DescribeOutputs;
use crate::app::described::{About, DescribeOutput, Documentation, Operation};
use crate::app::handler::{
    Answer, Arguments, Blocking, Callable, Description, Dispatch, Endpoint, Handler, ViaBlocking,
    ViaEndpoint,
};
use crate::app::outcome::Outcome;
use crate::app::request::Request;

/// A handler whose signature describes its input and its answers: every function whose arguments are
/// [`DescribeInput`](super::DescribeInput) and whose result is [`DescribeOutput`].
///
/// `M` is for the compiler only, as it is for [`Handler`].
pub trait Described<M>: Handler<M> {
    /// Adds what its arguments read.
    #[doc(hidden)]
    fn describe_input(operation: &mut Operation<'_>);

    /// Adds what its result answers.
    #[doc(hidden)]
    fn describe_output(operation: &mut Operation<'_>);

    /// The function's path.
    #[doc(hidden)]
    fn function() -> &'static str;
}

impl<F, Args, Way> Described<(Way, Args)> for F
where
    F: Callable<Args>,
    Args: Arguments + DescribeInputs,
    F::Output: Answer<Way> + DescribeOutputs<Way>,
{
    fn describe_input(operation: &mut Operation<'_>) {
        Args::describe_all(operation);
    }

    fn describe_output(operation: &mut Operation<'_>) {
        F::Output::describe_output(operation);
    }

    fn function() -> &'static str {
        std::any::type_name::<F>()
    }
}

impl<H: Described<M>, M: 'static> Described<ViaEndpoint<M>> for Endpoint<H, M> {
    fn describe_input(operation: &mut Operation<'_>) {
        H::describe_input(operation);
    }

    fn describe_output(operation: &mut Operation<'_>) {
        H::describe_output(operation);
    }

    fn function() -> &'static str {
        H::function()
    }
}

impl<F, Args> Described<ViaBlocking> for Blocking<(F, Args)>
where
    F: Callable<Args>,
    Args: DescribeInputs + 'static,
    F::Output: DescribeOutput,
{
    fn describe_input(operation: &mut Operation<'_>) {
        Args::describe_all(operation);
    }

    fn describe_output(operation: &mut Operation<'_>) {
        F::Output::describe(operation);
    }

    fn function() -> &'static str {
        std::any::type_name::<F>()
    }
}

/// Lets the document of [`Router::openapi`](crate::Router::openapi) describe a handler by the types of its arguments and of
/// its result. Otherwise it is the same handler, and costs a request nothing.
///
/// ```
/// use highwater::openapi::{OpenApi, api};
/// use highwater::{Handler, Query, Router};
/// use schemars::JsonSchema;
/// use serde::Deserialize;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Greeting {
///     /// Who is greeted.
///     name: Option<String>,
/// }
///
/// async fn greet(Query(greeting): Query<Greeting>) -> String {
///     format!("Hello, {}!", greeting.name.as_deref().unwrap_or("World"))
/// }
///
/// let app = Router::new()
///     .openapi(OpenApi::new("Greetings", "1"))
///     .get("/greet", api(greet).summary("Greets somebody").name("greet"));
/// # app.build().unwrap();
/// ```
pub fn api<H: Described<M>, M: 'static>(handler: H) -> Api<H, M> {
    let about = About {
        describe_input: H::describe_input,
        describe_output: H::describe_output,
        function: H::function(),
        ..About::default()
    };
    Api { handler, about, marker: PhantomData }
}

/// Leaves a handler out of the document.
///
/// ```
/// use highwater::openapi::{OpenApi, hidden};
/// use highwater::{Response, Router};
///
/// let app = Router::new()
///     .openapi(OpenApi::new("Nothing yet", "0"))
///     .get("/experiment", hidden(|| Response::from("?")));
/// # app.build().unwrap();
/// ```
pub fn hidden<H: Handler<M>, M: 'static>(handler: H) -> Hidden<H, M> {
    Hidden { handler, marker: PhantomData }
}

/// A handler that the document describes; made by [`api`]. The methods of [`Handler`] come after those of this type.
#[must_use = "give it to a router"]
pub struct Api<H, M> {
    handler: H,
    about: About,
    marker: PhantomData<fn() -> M>,
}

/// A handler that the document leaves out; made by [`hidden`].
#[must_use = "give it to a router"]
pub struct Hidden<H, M> {
    handler: H,
    marker: PhantomData<fn() -> M>,
}

impl<H, M> Api<H, M> {
    /// A short summary of the operation.
    pub fn summary(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        self.about.summary = Some(text.into());
        self
    }

    /// A description of the operation, in CommonMark.
    pub fn description(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        self.about.description = Some(text.into());
        self
    }

    /// Adds a tag, by which the operations of a document are grouped.
    pub fn tag(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.about.tags.push(name.into());
        self
    }

    /// Names the operation, for generated clients, instead of using its function's name. Each name must be unique.
    pub fn operation_id(mut self, id: impl Into<Cow<'static, str>>) -> Self {
        self.about.id = Some(id.into());
        self
    }

    /// Says that clients should no longer use it.
    pub fn deprecated(mut self) -> Self {
        self.about.is_deprecated = true;
        self
    }

    /// Describes its answers by `R`, where the type of its result does not describe them: for a [`Response`](crate::Response),
    /// which can be anything.
    ///
    /// ```
    /// use highwater::openapi::api;
    /// use highwater::{Json, Response, Router};
    ///
    /// fn cached() -> Response {
    ///     Response::from("[1,2]").with_content_type("application/json")
    /// }
    ///
    /// let app = Router::new().get("/numbers", api(cached).returns::<Json<Vec<u32>>>());
    /// # app.build().unwrap();
    /// ```
    pub fn returns<R: DescribeOutput>(mut self) -> Self {
        self.about.describe_output = R::describe;
        self
    }

    /// Sets the status of answers whose type leaves it open, such as `(StatusCode, Json<T>)`. May be called several times,
    /// for several statuses.
    ///
    /// ```
    /// use highwater::openapi::api;
    /// use highwater::{Router, StatusCode};
    ///
    /// fn put() -> StatusCode {
    ///     StatusCode::CREATED
    /// }
    ///
    /// let route = api(put).status(StatusCode::CREATED).status(StatusCode::NO_CONTENT);
    /// # Router::new().put("/", route).build().unwrap();
    /// ```
    pub fn status(mut self, status: StatusCode) -> Self {
        self.about.statuses.push(status);
        self
    }

    /// Adds another possible answer, with this status and the content of `R`.
    pub fn also<R: DescribeOutput>(self, status: StatusCode, description: &'static str) -> Self {
        self.more(move |operation| operation.answer::<R>(status, description))
    }

    /// Adds an error with which it may refuse requests.
    pub fn error(self, status: StatusCode, description: &'static str) -> Self {
        self.more(move |operation| operation.error(status, description))
    }

    /// Adds to the description that comes from the types.
    pub fn more(mut self, more: impl Fn(&mut Operation<'_>) + Send + Sync + 'static) -> Self {
        self.about.more.push(Arc::new(more));
        self
    }
}

/// Marks [`Api`] as a handler.
#[derive(Debug)]
pub struct ViaApi<M>(PhantomData<M>);

#[diagnostic::do_not_recommend]
impl<M: 'static, H: Handler<M>> Handler<ViaApi<M>> for Api<H, M> {
    fn describe(&self, description: &mut Description) {
        self.handler.describe(description);
        description.documentation = Documentation::Known(Box::new(self.about.clone()));
    }

    fn erase(self) -> Box<dyn Dispatch> {
        self.handler.erase()
    }

    #[inline]
    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h> {
        self.handler.dispatch(request)
    }
}

#[diagnostic::do_not_recommend]
impl<M: 'static, H: Handler<M>> Handler<ViaApi<M>> for Hidden<H, M> {
    fn describe(&self, description: &mut Description) {
        self.handler.describe(description);
        description.documentation = Documentation::Hidden;
    }

    fn erase(self) -> Box<dyn Dispatch> {
        self.handler.erase()
    }

    #[inline]
    fn dispatch<'h>(&'h self, request: &Request<'_>) -> Outcome<'h> {
        self.handler.dispatch(request)
    }
}

impl<H, M> fmt::Debug for Api<H, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("about", &self.about).finish_non_exhaustive()
    }
}

impl<H, M> fmt::Debug for Hidden<H, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden")
    }
}
