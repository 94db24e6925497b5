//! The document of a router: one operation for each of its routes, and what they have in common.

use std::collections::BTreeMap;
use std::ops::Range;

use http::{Method, StatusCode, header};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use super::{OpenApi, page};
use crate::app::described::{About, Answer, Body, Documentation, Failure, Operation, Schemas};
use crate::app::error::phrase;
use crate::app::fixed::{Fixed, fixed};
use crate::app::handler::Kind;
use crate::app::layer::Layer;
use crate::app::response::Response;
use crate::app::route::Route;

/// A document that is to be made when all routes are known.
pub(in crate::app) struct Document {
    openapi: OpenApi,
    /// The router's endpoints: first that of the document, then that of the page.
    endpoints: Range<usize>,
}

/// What is around a route.
pub(in crate::app) struct RouteContext<'l> {
    pub(in crate::app) layers: Vec<&'l Layer>,
    /// What errors are rendered as, unless they have the default shape.
    pub(in crate::app) renderer: Option<&'static str>,
}

/// Both answers, or what is wrong.
pub(in crate::app) type Made = Result<[Fixed; 2], Vec<String>>;

impl Document {
    /// A document of the endpoints from `begin` on.
    pub(in crate::app) fn new(openapi: OpenApi, begin: usize) -> Self {
        Document { openapi, endpoints: begin..begin }
    }

    /// It, of the endpoints before `end`.
    pub(in crate::app) fn until(mut self, end: usize) -> Self {
        self.endpoints.end = end;
        self
    }

    pub(in crate::app) fn endpoints(&self) -> Range<usize> {
        self.endpoints.clone()
    }

    /// The endpoints that serve it.
    pub(in crate::app) fn places(&self) -> Range<usize> {
        self.endpoints.start..self.endpoints.start + 2
    }

    /// The answers of both places. `names` are the parameters of a route.
    pub(in crate::app) fn make<'r>(
        &self,
        routes: impl Iterator<Item = (&'r Route, Vec<String>, RouteContext<'r>)>,
    ) -> Made {
        let mut draft = Draft {
            openapi: &self.openapi,
            schemas: Schemas::new(),
            paths: BTreeMap::new(),
            ids: BTreeMap::new(),
            problems: Vec::new(),
        };
        for (route, names, around) in routes {
            draft.add(route, names, &around);
        }
        let document = draft.finish()?;
        let text = serde_json::to_string(&document).expect("it is JSON");
        let json = Response::from(text).with_content_type("application/json");
        let page = Response::from(page::of(&self.openapi.title))
            .with_content_type("text/html; charset=utf-8")
            .with_header(header::CONTENT_SECURITY_POLICY, page::POLICY);
        Ok([fixed(json), fixed(page)])
    }
}

/// A document, while it is made.
struct Draft<'o> {
    openapi: &'o OpenApi,
    schemas: Schemas,
    /// By path, then by method.
    paths: BTreeMap<String, Map<String, Value>>,
    /// The place of each operation, by its id.
    ids: BTreeMap<String, String>,
    problems: Vec<String>,
}

impl Draft<'_> {
    fn add(&mut self, route: &Route, names: Vec<String>, around: &RouteContext<'_>) {
        let place = format!("{} {}", route.methods_text(), route.path);
        let about = match &route.description.documentation {
            Documentation::Hidden => return,
            Documentation::Known(about) => about.as_ref().clone(),
            Documentation::Unknown if route.description.fixed.is_some() => About::default(),
            Documentation::Unknown => {
                return self.problems.push(format!(
                    "{place}: the document cannot describe it, as nothing looked at its handler's types; write \
                     `openapi::api(handler)`, or `openapi::hidden(handler)` to leave it out"
                ));
            }
            Documentation::UnknownResource => {
                return self.problems.push(format!(
                    "{place}: the document cannot describe this resource; write \
                     `resource(…).described(\"book\", \"books\")` with the names of one item and of several, or \
                     `resource(…).hidden()` to leave it out"
                ));
            }
        };
        let Some(methods) = self.methods(&place, route) else { return };
        let operation = match self.operation(route, &about, (names, &methods), around) {
            Ok(operation) => operation,
            Err(problems) => {
                let problems = problems.iter().map(|problem| format!("{place}: {problem}"));
                return self.problems.extend(problems);
            }
        };
        let Some(path) = path_template(&route.path) else {
            return self.problems.push(format!(
                "{place}: OpenAPI cannot write a brace that is no parameter's; leave the route out: \
                 `openapi::hidden(handler)`"
            ));
        };
        let names = self.ids(&about, &methods, &route.path);
        for (method, id) in methods.into_iter().zip(names) {
            let here = format!("{} {path}", method.to_uppercase());
            let mut operation = operation.clone();
            operation["operationId"] = json!(id);
            if self.paths.entry(path.clone()).or_default().insert(method, operation).is_some() {
                self.problems.push(format!(
                    "{place}: another route is {here} in the document already, where a parameter for the rest of a path is \
                     written like any other; leave one of them out: `openapi::hidden(handler)`"
                ));
            } else if let Some(other) = self.ids.insert(id.clone(), here.clone()) {
                self.problems.push(format!(
                    "{here} and {other} are both called `{id}` in the document; name one of them: \
                     `api(handler).operation_id(\"…\")`"
                ));
            }
        }
    }

    /// What the types of a route, its layers and the server say of it.
    fn operation(
        &mut self,
        route: &Route,
        about: &About,
        (names, methods): (Vec<String>, &[String]),
        around: &RouteContext<'_>,
    ) -> Result<Value, Vec<String>> {
        let is_fixed = route.description.kind == Kind::Fixed;
        let mut operation = Operation::new(&mut self.schemas, names, methods);
        (about.describe_input)(&mut operation);
        match &route.description.fixed {
            Some(template) => describe_fixed(&mut operation, &template.make()),
            None => (about.describe_output)(&mut operation),
        }
        about.more.iter().for_each(|more| more(&mut operation));
        let covers = |layer: &&&Layer| !is_fixed || layer.covers_everything;
        let layers = around.layers.iter().filter(covers);
        layers
            .filter_map(|layer| layer.documents.as_ref())
            .for_each(|describe| describe(&mut operation));
        if !is_fixed && !route.description.options.is_never_shed {
            operation.error(
                StatusCode::SERVICE_UNAVAILABLE,
                "The server is overloaded, or the answer took too long.",
            );
        }
        operation.finish_path();
        if !operation.problems.is_empty() {
            return Err(operation.problems);
        }
        let written = Shapes::of(self.openapi, operation.schemas, around.renderer)
            .and_then(|shapes| written(operation, about, &shapes, is_fixed));
        written.map_err(|problem| vec![problem])
    }

    /// The methods, as the document writes them.
    fn methods(&mut self, place: &str, route: &Route) -> Option<Vec<String>> {
        const KNOWN: [Method; 8] = [
            Method::GET,
            Method::PUT,
            Method::POST,
            Method::DELETE,
            Method::OPTIONS,
            Method::HEAD,
            Method::PATCH,
            Method::TRACE,
        ];
        let methods =
            route.methods.as_ref().filter(|methods| methods.iter().all(|one| KNOWN.contains(one)));
        if methods.is_none() {
            self.problems.push(format!(
                "{place}: OpenAPI 3.1 has no word for these methods; leave the route out: `openapi::hidden(handler)`"
            ));
        }
        Some(methods?.iter().map(|method| method.as_str().to_lowercase()).collect())
    }

    /// What generated clients call the operation, by each of its methods: its function's name, unless that has none. A name
    /// is there once, so all methods but the first stand behind it.
    fn ids(&self, about: &About, methods: &[String], path: &str) -> Vec<String> {
        let function = about.function.rsplit("::").next().unwrap_or_default();
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let name = match &about.id {
            Some(id) => Some(&**id),
            None => Some(function).filter(|name| !name.is_empty() && name.bytes().all(is_name)),
        };
        let of_path = |method: &str| {
            let words = path.split(|letter: char| !letter.is_ascii_alphanumeric());
            let words = std::iter::once(method).chain(words).filter(|word| !word.is_empty());
            words.collect::<Vec<_>>().join("_")
        };
        let ids = methods.iter().enumerate().map(|(index, method)| match (name, index) {
            (None, _) => of_path(method),
            (Some(name), 0) => name.to_owned(),
            (Some(name), _) => format!("{name}_{method}"),
        });
        ids.collect()
    }

    fn finish(self) -> Result<Value, Vec<String>> {
        if !self.problems.is_empty() {
            return Err(self.problems);
        }
        let paths =
            self.paths.into_iter().map(|(path, operations)| (path, Value::Object(operations)));
        let mut paths = Value::Object(paths.collect());
        let components = self.schemas.finish(&mut paths);
        let mut document = self.openapi.head();
        document.insert("paths".into(), paths);
        document.insert("components".into(), components);
        Ok(Value::Object(document))
    }
}

/// What errors look like: media type and schema.
struct Shapes {
    error: (String, Value),
    with_fields: (String, Value),
}

impl Shapes {
    /// Those that `renderer` makes, or the default ones.
    fn of(
        openapi: &OpenApi,
        schemas: &mut Schemas,
        renderer: Option<&'static str>,
    ) -> Result<Self, String> {
        let Some(renderer) = renderer else {
            let shape = |schema| (String::from("application/json"), json!({ "schema": schema }));
            let error = shape(schemas.output::<DefaultError>());
            let with_fields = shape(schemas.output::<ValidationError>());
            return Ok(Shapes { error, with_fields });
        };
        let error = openapi.shape_of(renderer).and_then(|describe| {
            let mut sample = Operation::new(schemas, Vec::new(), &[]);
            describe(&mut sample);
            sample.answers.pop().and_then(|answer| answer.content)
        });
        let error = error.ok_or_else(|| {
            format!(
                "its errors are rendered as `{renderer}`, and the document does not know what that is; add \
                 `.errors::<Json<T>>()` to `OpenApi`"
            )
        })?;
        Ok(Shapes { with_fields: error.clone(), error })
    }
}

/// An operation as the document has it.
fn written(
    operation: Operation<'_>,
    about: &About,
    shapes: &Shapes,
    is_fixed: bool,
) -> Result<Value, String> {
    let Operation { parameters, body, answers, errors, security, .. } = operation;
    let mut value = json!({ "responses": responses(answers, &errors, about, shapes, is_fixed)? });
    for (name, text) in [("summary", &about.summary), ("description", &about.description)] {
        if let Some(text) = text {
            value[name] = json!(text);
        }
    }
    if !about.tags.is_empty() {
        value["tags"] = json!(about.tags);
    }
    if about.is_deprecated {
        value["deprecated"] = json!(true);
    }
    if !parameters.is_empty() {
        value["parameters"] = Value::Array(parameters);
    }
    if let Some(Body { is_required, content }) = body {
        value["requestBody"] = json!({ "content": Value::Object(content.into_iter().collect()) });
        if is_required {
            value["requestBody"]["required"] = json!(true);
        }
    }
    if !security.is_empty() {
        // All of them at once: each is asked for by a layer of its own.
        let all = security.into_iter().map(|name| (name, json!([])));
        value["security"] = json!([Value::Object(all.collect())]);
    }
    Ok(value)
}

fn responses(
    answers: Vec<Answer>,
    errors: &BTreeMap<u16, Failure>,
    about: &About,
    shapes: &Shapes,
    is_fixed: bool,
) -> Result<Value, String> {
    let mut responses = Map::new();
    for answer in answers {
        match answer.status {
            Some(status) => add_answer(&mut responses, status, &answer),
            None if about.statuses.is_empty() => {
                return Err(String::from(
                    "only a request decides the status of its answer; return `Created(…)`, `Accepted(…)` or `NoContent`, or \
                     say which there are: `api(handler).status(StatusCode::CREATED)`",
                ));
            }
            None => about
                .statuses
                .iter()
                .for_each(|status| add_answer(&mut responses, *status, &answer)),
        }
    }
    for (status, failure) in errors {
        let shape = if failure.has_fields { &shapes.with_fields } else { &shapes.error };
        let description = failure.descriptions.join(" ");
        let response = responses.entry(status.to_string()).or_insert_with(|| json!({}));
        // A layer may refuse with the same status, and content of its own.
        response["description"] = match response["description"].as_str() {
            Some(known) => json!(format!("{known} {description}")),
            None => json!(description),
        };
        add_content(response, shape);
        add_headers(response, &failure.headers);
    }
    if !is_fixed {
        let content = content_of(&shapes.error);
        responses.insert(
            "default".into(),
            json!({ "description": "Any other error.", "content": content }),
        );
    }
    Ok(Value::Object(responses))
}

fn content_of((media_type, media): &(String, Value)) -> Value {
    let mut content = json!({});
    content[media_type] = media.clone();
    content
}

fn add_answer(responses: &mut Map<String, Value>, status: StatusCode, answer: &Answer) {
    let reason = phrase(status).unwrap_or("An answer");
    let description = answer.description.as_deref().unwrap_or(reason);
    let response =
        responses.entry(status.as_str()).or_insert(json!({ "description": description }));
    // Content with these statuses would be refused (RFC 9110 §15.3.5).
    if let Some(content) = &answer.content
        && ![StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED]
            .contains(&status)
    {
        add_content(response, content);
    }
    add_headers(response, &answer.headers);
}

/// Adds content of a media type, beside what it may be already.
fn add_content(response: &mut Value, (media_type, media): &(String, Value)) {
    let known = &mut response["content"][media_type];
    if known.is_null() {
        *known = media.clone();
        return;
    }
    let (known, schema) = (&mut known["schema"], &media["schema"]);
    *known = match known.take() {
        same if same == *schema => same,
        mut other => match other.get_mut("anyOf").and_then(Value::as_array_mut) {
            Some(choices) => {
                choices.push(schema.clone());
                other
            }
            None => json!({ "anyOf": [other, schema] }),
        },
    };
}

fn add_headers(response: &mut Value, headers: &[(String, String)]) {
    for (name, description) in headers {
        let mut header = json!({ "schema": { "type": "string" } });
        if !description.is_empty() {
            header["description"] = json!(description);
        }
        response["headers"][name] = header;
    }
}

/// An answer that is always the same.
fn describe_fixed(operation: &mut Operation<'_>, response: &Response) {
    let media_type =
        response.header("content-type").and_then(|value| std::str::from_utf8(value).ok());
    let media_type = media_type.map(str::to_owned);
    let bytes = response.body().as_bytes().unwrap_or_default();
    let schema = match (media_type.as_deref(), serde_json::from_slice::<Value>(bytes)) {
        (Some("application/json"), Ok(value)) => json!({ "const": value }),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => json!({ "type": "string", "const": text }),
            Err(_) => json!({}),
        },
    };
    let status = response.status();
    let content = media_type.as_deref().filter(|_| !bytes.is_empty()).map(|kind| (kind, schema));
    operation.nested(|operation| operation.ok(content), |answer| answer.status = Some(status));
}

/// A pattern as OpenAPI writes it: `{*rest}` is a parameter like others. `None` if there is a brace in it that is text:
/// routes have that doubled, and OpenAPI has no way to.
fn path_template(pattern: &str) -> Option<String> {
    let is_plain = !pattern.contains("{{") && !pattern.contains("}}");
    is_plain.then(|| pattern.replace("{*", "{"))
}

/// The shape of errors that no function renders.
struct DefaultError;

impl JsonSchema for DefaultError {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Error".into()
    }

    fn schema_id() -> std::borrow::Cow<'static, str> {
        "highwater::Error".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        error_schema(&json!({ "description": "Data for programs." }))
    }
}

/// The same, where fields may be wrong.
struct ValidationError;

impl JsonSchema for ValidationError {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ValidationError".into()
    }

    fn schema_id() -> std::borrow::Cow<'static, str> {
        "highwater::ValidationError".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let field = json!({
            "type": "object",
            "properties": { "field": { "type": "string" }, "message": { "type": "string" } },
            "required": ["field", "message"],
        });
        error_schema(&json!({
            "description": "The fields that break rules, all at once.", "type": "array", "items": field,
        }))
    }
}

fn error_schema(details: &Value) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "properties": {
                    "code": { "type": "string", "description": "A name for programs." },
                    "message": { "type": "string", "description": "What is wrong, for people." },
                    "details": details,
                },
                "required": ["code", "message"],
            },
        },
        "required": ["error"],
    })
}
