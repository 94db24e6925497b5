//! Which document describes an application? OpenAPI 3.1, made of the same types and routes that answer its requests.
//!
//! [`api`] lets the compiler look at a handler's signature: its arguments describe the input ([`DescribeInput`]), its result
//! describes the answers ([`DescribeOutput`]), layers describe their requirements and refusals
//! ([`Layer::documents`](crate::Layer::documents)), and [`Router::openapi`](crate::Router::openapi) serves all of it as
//! `/openapi.json`, and as a page for people at `/docs`. Schemas are those of the crate `schemars`, which reads the attributes
//! of serde and garde. So a route and its description do not differ, and neither do its checks, if lengths of texts count
//! characters (`#[garde(length(chars, …))]`): without `chars`, garde counts bytes.
//!
//! ```
//! use highwater::openapi::{OpenApi, api};
//! use highwater::testing::Client;
//! use highwater::{Created, Error, Json, Path, Router, fixed};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct NewTodo { title: String }
//!
//! #[derive(Serialize, JsonSchema)]
//! struct Todo { id: u64, title: String }
//!
//! fn show(Path(id): Path<u64>) -> Result<Json<Todo>, Error> {
//!     Err(Error::not_found(format!("there is no todo {id}")))
//! }
//!
//! fn create(Json(new): Json<NewTodo>) -> Created<Json<Todo>> {
//!     Created(Json(Todo { id: 1, title: new.title }))
//! }
//!
//! let router = Router::new()
//!     .openapi(OpenApi::new("Todos", "1.0.0"))
//!     .get("/todos/{id}", api(show).summary("One todo").tag("todos"))
//!     .post("/todos", api(create).tag("todos"))
//!     .get("/health", fixed("ok"));
//! let client = Client::new(router);
//! let document: serde_json::Value = client.get("/openapi.json").json();
//! let created = &document["paths"]["/todos"]["post"]["responses"]["201"];
//! let schema = &created["content"]["application/json"]["schema"];
//! assert_eq!(schema["$ref"], "#/components/schemas/Todo");
//! assert!(client.get("/docs").text().starts_with("<!doctype html>"));
//! ```
//!
//! None of this runs for a request: both answers are [`fixed`](crate::fixed).
//!
//! # What cannot be derived
//!
//! A type without a schema is an error of the compiler, where [`api`] is called. Everything else is a problem that
//! [`Router::build`](crate::Router::build) reports with its route: a handler without [`api`] (describe it, or leave it out by
//! [`hidden`]), a status that only a request decides ([`Api::status`]), a query that has no names.

mod document;
mod handler;
mod input;
mod output;
mod page;

use std::borrow::Cow;

use serde_json::{Map, Value, json};

pub(super) use document::{Document, RouteContext};
pub use handler::{Api, Described, Hidden, api, hidden};
pub use input::DescribeInputs;
pub use output::DescribeOutputs;

pub use super::described::{DescribeInput, DescribeOutput, HasSchema, Operation, SecurityScheme};

/// The names of the places that [`Router::openapi`](crate::Router::openapi) serves.
pub(super) const DOCUMENT_PATH: &str = "/openapi.json";
pub(super) const PAGE_PATH: &str = "/docs";

/// The description of the application as a whole; see [`Router::openapi`](crate::Router::openapi).
#[derive(Clone, Debug)]
#[must_use = "give it to `Router::openapi`"]
pub struct OpenApi {
    title: Cow<'static, str>,
    version: Cow<'static, str>,
    description: Option<Cow<'static, str>>,
    tags: Vec<(Cow<'static, str>, Cow<'static, str>)>,
    servers: Vec<Cow<'static, str>>,
    /// The types that errors are rendered as, and what describes them.
    errors: Vec<(&'static str, Describe)>,
}

/// Says what a type is.
type Describe = fn(&mut Operation<'_>);

impl OpenApi {
    /// A document with the title and the version of an interface; `env!("CARGO_PKG_VERSION")` is a good version.
    pub fn new(title: impl Into<Cow<'static, str>>, version: impl Into<Cow<'static, str>>) -> Self {
        OpenApi {
            title: title.into(),
            version: version.into(),
            description: None,
            tags: Vec::new(),
            servers: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Describes the interface, in CommonMark.
    pub fn description(mut self, text: impl Into<Cow<'static, str>>) -> Self {
        self.description = Some(text.into());
        self
    }

    /// Describes a tag that operations have ([`Api::tag`]); tags are shown in this order.
    pub fn tag(
        mut self,
        name: impl Into<Cow<'static, str>>,
        description: impl Into<Cow<'static, str>>,
    ) -> Self {
        self.tags.push((name.into(), description.into()));
        self
    }

    /// Adds the address of a server; without one, it is the server that the document comes from.
    pub fn server(mut self, url: impl Into<Cow<'static, str>>) -> Self {
        self.servers.push(url.into());
        self
    }

    /// Describes the shape of errors: `R` is the type that the function of [`Router::errors`](crate::Router::errors)
    /// returns. If it returns a [`Response`](crate::Response), which can be anything, `R` is the type of its content.
    ///
    /// ```
    /// use highwater::openapi::OpenApi;
    /// use highwater::{Error, Json, Router};
    /// use schemars::JsonSchema;
    /// use serde::Serialize;
    ///
    /// #[derive(Serialize, JsonSchema)]
    /// struct Failure { reason: String }
    ///
    /// fn failed(error: &Error) -> Json<Failure> {
    ///     Json(Failure { reason: error.message().to_owned() })
    /// }
    ///
    /// let app = Router::new()
    ///     .errors(failed)
    ///     .openapi(OpenApi::new("Orders", "2").errors::<Json<Failure>>());
    /// # app.build().unwrap();
    /// ```
    pub fn errors<R: DescribeOutput>(mut self) -> Self {
        self.errors.push((std::any::type_name::<R>(), R::describe));
        self
    }

    /// What describes errors that are rendered as a type.
    fn shape_of(&self, renderer: &str) -> Option<Describe> {
        let found = self.errors.iter().find(|(name, _)| *name == renderer);
        let is_open = renderer == std::any::type_name::<crate::app::Response>();
        let open = self.errors.first().filter(|_| is_open && self.errors.len() == 1);
        found.or(open).map(|(_, describe)| *describe)
    }

    fn info(&self) -> Value {
        let mut info = json!({ "title": self.title, "version": self.version });
        if let Some(description) = &self.description {
            info["description"] = json!(description);
        }
        info
    }

    /// The members of the document that need no routes.
    fn head(&self) -> Map<String, Value> {
        let mut head = Map::new();
        head.insert("openapi".into(), json!("3.1.0"));
        head.insert("info".into(), self.info());
        if !self.servers.is_empty() {
            let servers = self.servers.iter().map(|url| json!({ "url": url }));
            head.insert("servers".into(), servers.collect());
        }
        if !self.tags.is_empty() {
            let tags = self.tags.iter();
            let tags = tags.map(|(name, text)| json!({ "name": name, "description": text }));
            head.insert("tags".into(), tags.collect());
        }
        head
    }
}
