//! What does the document say about one operation? Collected from its arguments, its result and its layers.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::DescribeOutput;
use super::schema::{HasSchema, Schemas};

/// The methods that change nothing (RFC 9110 §9.2.1).
const SAFE: [&str; 4] = ["get", "head", "options", "trace"];

/// The others that change nothing more if they are repeated (RFC 9110 §9.2.2).
const IDEMPOTENT: [&str; 2] = ["put", "delete"];

/// The description of one operation, while the document is made: given to [`DescribeInput`](super::DescribeInput),
/// [`DescribeOutput`] and [`Layer::documents`](crate::Layer::documents).
#[derive(Debug)]
pub struct Operation<'d> {
    pub(in crate::app) schemas: &'d mut Schemas,
    /// Whether no request by it changes anything (RFC 9110 §9.2.1).
    is_safe: bool,
    /// Whether to repeat a request by it changes nothing more (RFC 9110 §9.2.2).
    is_idempotent: bool,
    /// The names of the route's parameters, in its order.
    pub(in crate::app) names: Vec<String>,
    pub(in crate::app) parameters: Vec<Value>,
    pub(in crate::app) body: Option<Body>,
    pub(in crate::app) answers: Vec<Answer>,
    pub(in crate::app) errors: BTreeMap<u16, Failure>,
    pub(in crate::app) security: Vec<String>,
    /// Whether what is described now may be absent.
    pub(in crate::app) is_optional: bool,
    pub(in crate::app) problems: Vec<String>,
}

/// The content of a request, by its media types.
#[derive(Debug)]
pub(in crate::app) struct Body {
    pub(in crate::app) is_required: bool,
    /// Each with what the document says of it, its schema among it.
    pub(in crate::app) content: Vec<(String, Value)>,
}

/// An answer that is not an error.
#[derive(Debug, Default)]
pub(in crate::app) struct Answer {
    /// `None`: only a request decides it.
    pub(in crate::app) status: Option<StatusCode>,
    pub(in crate::app) description: Option<String>,
    /// With what the document says of it, its schema among it.
    pub(in crate::app) content: Option<(String, Value)>,
    pub(in crate::app) headers: Vec<(String, String)>,
}

/// The answers of one error status.
#[derive(Debug, Default)]
pub(in crate::app) struct Failure {
    pub(in crate::app) descriptions: Vec<String>,
    /// Its details are wrong fields.
    pub(in crate::app) has_fields: bool,
    pub(in crate::app) headers: Vec<(String, String)>,
}

/// How clients authenticate themselves, as the document describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityScheme(pub(in crate::app) Vec<(&'static str, String)>);

impl SecurityScheme {
    /// A scheme of `Authorization` (RFC 9110 §11), by its registered name: `basic`, `bearer`.
    pub fn http(scheme: impl Into<String>) -> Self {
        SecurityScheme(vec![("type", "http".into()), ("scheme", scheme.into())])
    }

    /// `Authorization: Bearer …`, with the format of tokens, such as `JWT`.
    pub fn bearer(format: impl Into<String>) -> Self {
        let mut scheme = SecurityScheme::http("bearer");
        scheme.0.push(("bearerFormat", format.into()));
        scheme
    }

    /// A key in a header field.
    pub fn header(name: impl Into<String>) -> Self {
        let members = [("type", "apiKey".into()), ("in", "header".into()), ("name", name.into())];
        SecurityScheme(members.into())
    }

    /// A key in a cookie.
    pub fn cookie(name: impl Into<String>) -> Self {
        let members = [("type", "apiKey".into()), ("in", "cookie".into()), ("name", name.into())];
        SecurityScheme(members.into())
    }

    /// The same, described in CommonMark.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.0.push(("description", text.into()));
        self
    }

    fn value(&self) -> Value {
        let members = self.0.iter();
        let members = members.map(|(name, value)| ((*name).to_owned(), json!(value)));
        Value::Object(members.collect())
    }
}

impl<'d> Operation<'d> {
    /// Of a route with these parameters and methods, in lower case.
    pub(in crate::app) fn new(
        schemas: &'d mut Schemas,
        names: Vec<String>,
        methods: &[String],
    ) -> Self {
        let is_safe = |method: &String| SAFE.contains(&method.as_str());
        let is_idempotent =
            |method: &String| is_safe(method) || IDEMPOTENT.contains(&method.as_str());
        Operation {
            schemas,
            is_safe: methods.iter().all(is_safe),
            is_idempotent: methods.iter().all(is_idempotent),
            names,
            parameters: Vec::new(),
            body: None,
            answers: Vec::new(),
            errors: BTreeMap::new(),
            security: Vec::new(),
            is_optional: false,
            problems: Vec::new(),
        }
    }

    /// Whether its method changes nothing (RFC 9110 §9.2.1).
    pub fn is_safe(&self) -> bool {
        self.is_safe
    }

    /// Whether repeating a request with its method changes nothing more (RFC 9110 §9.2.2).
    pub fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }

    /// It may refuse a request with this error. The shape of all errors is that of [`Router::errors`](crate::Router::errors).
    ///
    /// # Panics
    /// If `status` is below 400.
    pub fn error(&mut self, status: StatusCode, description: &str) {
        assert!(status.as_u16() >= 400, "{status} is not an error; use `answer`");
        let failure = self.errors.entry(status.as_u16()).or_default();
        if !failure.descriptions.iter().any(|existing| existing == description) {
            failure.descriptions.push(description.to_owned());
        }
    }

    /// Its errors with this status also have this header field.
    pub fn error_header(&mut self, status: StatusCode, name: &str, description: &str) {
        let failure = self.errors.entry(status.as_u16()).or_default();
        failure.headers.push((name.to_owned(), description.to_owned()));
    }

    /// It may answer with this status and the content of `R`, in addition to the answers of its handler's result.
    pub fn answer<R: DescribeOutput>(&mut self, status: StatusCode, description: &str) {
        self.nested(R::describe, |answer| {
            answer.status = Some(status);
            answer.description = Some(description.to_owned());
        });
    }

    /// All its answers except errors have this header field.
    pub fn answer_header(&mut self, name: &str, description: &str) {
        for answer in &mut self.answers {
            answer.headers.push((name.to_owned(), description.to_owned()));
        }
    }

    /// It reads this field of the request's header.
    pub fn header(&mut self, name: &str, description: &str) {
        // Of these a document says more where it describes content and security (OpenAPI 3.1 §4.8.12.2).
        if ["accept", "content-type", "authorization"]
            .iter()
            .any(|own| name.eq_ignore_ascii_case(own))
        {
            return;
        }
        let schema = json!({ "type": "string" });
        let description = Some(description).filter(|text| !text.is_empty());
        self.parameter("header", name, !self.is_optional, schema, description);
    }

    /// The same, of a field that may be absent.
    pub fn optional_header(&mut self, name: &str, description: &str) {
        self.optional(|operation| operation.header(name, description));
    }

    /// It answers 200 with text of this media type.
    pub fn text(&mut self, media_type: &str) {
        self.ok(Some((media_type, json!({ "type": "string" }))));
    }

    /// It requires these credentials, which the document lists as `name`.
    pub fn security(&mut self, name: &str, scheme: &SecurityScheme) {
        self.schemas.security.insert(name.to_owned(), scheme.value());
        if !self.security.iter().any(|existing| existing == name) {
            self.security.push(name.to_owned());
        }
    }

    /// It cannot be described: [`Router::build`](crate::Router::build) reports the problem with the route.
    pub fn problem(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }

    /// Its query has the members of `T`, as parameters.
    pub fn query<T: HasSchema + ?Sized>(&mut self) {
        let schema = self.schemas.input_inline::<T>();
        let members = match members(&schema) {
            Some(members) => members,
            None if schema.get("additionalProperties").is_some() => {
                let mut parameter =
                    json!({ "name": "parameters", "in": "query", "schema": schema });
                parameter["style"] = json!("form");
                parameter["explode"] = json!(true);
                return self.parameters.push(parameter);
            }
            None => {
                let name = std::any::type_name::<T>();
                return self
                    .problems
                    .push(format!("`Query<{name}>` has no parameters with names; take a struct"));
            }
        };
        for (name, mut schema, is_required) in members {
            let description = take_description(&mut schema);
            let is_required = is_required && !self.is_optional;
            self.parameter("query", &name, is_required, schema, description.as_deref());
        }
    }

    /// The route's parameters are a `T`: one value, a tuple, or a struct by name.
    pub fn path<T: HasSchema + ?Sized>(&mut self) {
        let schema = self.schemas.input_inline::<T>();
        let names = self.names.clone();
        if let Some(members) = members(&schema) {
            for (name, mut schema, _) in
                members.into_iter().filter(|(name, ..)| names.contains(name))
            {
                let description = take_description(&mut schema);
                self.parameter("path", &name, true, schema, description.as_deref());
            }
            return;
        }
        let items = match schema.get("prefixItems").and_then(Value::as_array) {
            Some(items) => items.clone(),
            None if names.len() == 1 => vec![schema],
            None => Vec::new(), // A list or a map: strings, as `finish_path` has them.
        };
        for (name, schema) in names.iter().zip(items) {
            let mut schema = self.schemas.resolve_input(schema);
            let description = take_description(&mut schema);
            self.parameter("path", name, true, schema, description.as_deref());
        }
    }

    /// The last of the route's parameters is a `T`.
    pub(in crate::app) fn last_path_parameter<T: HasSchema + ?Sized>(&mut self) {
        let Some(name) = self.names.last().cloned() else { return };
        let mut schema = self.schemas.input_inline::<T>();
        let description = take_description(&mut schema);
        self.parameter("path", &name, true, schema, description.as_deref());
    }

    /// Its query may have this parameter.
    pub(in crate::app) fn query_parameter(&mut self, name: &str, schema: Value, description: &str) {
        self.parameter("query", name, false, schema, Some(description));
    }

    /// Describes the route's parameters that no argument takes.
    pub(in crate::app) fn finish_path(&mut self) {
        let is_there = |name: &String| {
            self.parameters
                .iter()
                .any(|known| known["in"] == "path" && known["name"] == name.as_str())
        };
        let missing: Vec<String> =
            self.names.iter().filter(|name| !is_there(name)).cloned().collect();
        for name in missing {
            self.parameter("path", &name, true, json!({ "type": "string" }), None);
        }
    }

    fn parameter(
        &mut self,
        place: &str,
        name: &str,
        is_required: bool,
        mut schema: Value,
        description: Option<&str>,
    ) {
        if place == "path" && schema == json!({ "type": "string" }) {
            schema["minLength"] = json!(1); // A segment is never empty.
        }
        let mut parameter = json!({ "name": name, "in": place, "schema": schema });
        if is_required {
            parameter["required"] = json!(true);
        }
        if let Some(description) = description {
            parameter["description"] = json!(description);
        }
        let is_same = |known: &Value| known["in"] == place && known["name"] == name;
        self.parameters.retain(|known| !is_same(known));
        self.parameters.push(parameter);
    }

    /// It takes content of this media type, which is a `T`.
    pub fn body<T: HasSchema + ?Sized>(&mut self, media_type: &str) {
        let schema = self.schemas.input::<T>();
        self.content(media_type, schema);
    }

    /// It takes text of this media type, whose items are `T`s.
    #[cfg(feature = "csv")]
    pub(in crate::app) fn body_of_items<T: HasSchema>(&mut self, media_type: &str) {
        let item = self.schemas.input::<T>();
        self.media(media_type, text_of_items(item));
    }

    /// It takes content of this media type.
    pub(in crate::app) fn content(&mut self, media_type: &str, schema: Value) {
        self.media(media_type, json!({ "schema": schema }));
    }

    fn media(&mut self, media_type: &str, media: Value) {
        let is_required = !self.is_optional;
        let body = self.body.get_or_insert(Body { is_required, content: Vec::new() });
        body.content.push((media_type.to_owned(), media));
    }

    /// It answers 200 with content of this media type.
    pub(in crate::app) fn ok(&mut self, content: Option<(&str, Value)>) {
        self.answers.push(Answer {
            status: Some(StatusCode::OK),
            content: content
                .map(|(media_type, schema)| (media_type.to_owned(), json!({ "schema": schema }))),
            ..Answer::default()
        });
    }

    /// It answers 200 with text of this media type, whose items are `T`s.
    #[cfg(feature = "csv")]
    pub(in crate::app) fn ok_with_items<T: HasSchema>(&mut self, media_type: &str) {
        let item = self.schemas.output::<T>();
        self.answers.push(Answer {
            status: Some(StatusCode::OK),
            content: Some((media_type.to_owned(), text_of_items(item))),
            ..Answer::default()
        });
    }

    /// Describes answers, and lets `change` change each of them.
    pub(in crate::app) fn nested(
        &mut self,
        describe: impl FnOnce(&mut Operation<'d>),
        change: impl Fn(&mut Answer),
    ) {
        let before = self.answers.len();
        describe(self);
        self.answers[before..].iter_mut().for_each(change);
    }

    /// Describes what may be absent.
    pub(in crate::app) fn optional(&mut self, describe: impl FnOnce(&mut Operation<'d>)) {
        let outer = std::mem::replace(&mut self.is_optional, true);
        describe(self);
        self.is_optional = outer;
    }
}

/// What a document says of text that is a sequence of items. OpenAPI 3.2 calls their schema `itemSchema`; for documents of 3.1,
/// the registry of extensions has it under this name.
#[cfg(feature = "csv")]
fn text_of_items(item: Value) -> Value {
    json!({ "schema": { "type": "string" }, "x-oai-itemSchema": item })
}

/// The members of an object's schema: name, schema, and whether it is required. `None` if it names none.
fn members(schema: &Value) -> Option<Vec<(String, Value, bool)>> {
    let properties: &Map<String, Value> = schema.get("properties")?.as_object()?;
    let required = schema.get("required").and_then(Value::as_array);
    let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|one| one == name));
    let member = |(name, schema): (&String, &Value)| {
        (name.clone(), super::schema::without_null(schema.clone()), is_required(name))
    };
    Some(properties.iter().map(member).collect())
}

fn take_description(schema: &mut Value) -> Option<String> {
    schema.as_object_mut()?.remove("description")?.as_str().map(str::to_owned)
}
