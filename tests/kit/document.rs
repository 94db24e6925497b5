//! Is what a server answers what its OpenAPI document says?
//!
//! A reader of its own for as much of OpenAPI 3.1 and JSON Schema 2020-12 as our documents have; a word that it does not know
//! is a problem, so that nothing is taken for checked.

use serde_json::{Map, Value, json};

/// A document of an interface.
#[derive(Clone, Debug)]
pub struct Document(Value);

/// A request that the document allows.
#[derive(Clone, Debug)]
pub struct Call {
    /// In capitals.
    pub method: String,
    /// As the document writes it, with the names of parameters.
    pub template: String,
    /// Path and query, with values.
    pub target: String,
    /// Media type and content.
    pub content: Option<(String, String)>,
    /// Whether it asks for a proof.
    pub is_secured: bool,
}

/// Words of schemas that say nothing about values, or nothing that is checked here.
const NOTES: &[&str] = &[
    "title",
    "description",
    "default",
    "examples",
    "format",
    "deprecated",
    "writeOnly",
    "readOnly",
];

impl Document {
    /// The document in this text.
    ///
    /// # Panics
    /// If it is not JSON.
    pub fn new(text: &str) -> Document {
        Document(serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}")))
    }

    /// The document as it is.
    pub fn value(&self) -> &Value {
        &self.0
    }

    fn operations(&self) -> impl Iterator<Item = (&String, &String, &Value)> {
        let paths = self.0["paths"].as_object().expect("a document has paths");
        paths.iter().flat_map(|(path, methods)| {
            let methods = methods.as_object().expect("a path has operations");
            methods.iter().map(move |(method, operation)| (path, method, operation))
        })
    }

    /// What is wrong with the document itself.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.0["openapi"] != "3.1.0"
            || !self.0["info"]["title"].is_string()
            || !self.0["info"]["version"].is_string()
        {
            problems
                .push("it is not a document of OpenAPI 3.1 with a title and a version".to_owned());
        }
        let mut ids: Vec<&str> = Vec::new();
        for (path, method, operation) in self.operations() {
            let here = format!("{method} {path}");
            let id = operation["operationId"].as_str().unwrap_or_default();
            if id.is_empty() || ids.contains(&id) {
                problems.push(format!("{here}: its id is {id:?}"));
            }
            ids.push(id);
            let mut named: Vec<&str> =
                path.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0)).collect();
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let name = parameter["name"].as_str().unwrap_or_default();
                if parameter["in"] == "path" {
                    if !named.contains(&name) || parameter["required"] != true {
                        problems.push(format!(
                            "{here}: the parameter {name:?} is not in the path, or not required"
                        ));
                    }
                    named.retain(|other| *other != name);
                }
            }
            if !named.is_empty() {
                problems.push(format!("{here}: nothing is said of {named:?}"));
            }
            let responses = operation["responses"].as_object();
            if responses.is_none_or(|all| {
                all.is_empty() || all.values().any(|one| !one["description"].is_string())
            }) {
                problems.push(format!("{here}: an answer has no description"));
            }
            for scheme in
                operation["security"].as_array().into_iter().flatten().filter_map(Value::as_object)
            {
                for name in scheme
                    .keys()
                    .filter(|name| self.0["components"]["securitySchemes"][name].is_null())
                {
                    problems.push(format!("{here}: there is no security scheme {name:?}"));
                }
            }
        }
        self.check_references(&self.0, &mut problems);
        problems
    }

    fn check_references(&self, value: &Value, problems: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref")
                    && self.resolve(reference).is_none()
                {
                    problems.push(format!("{reference} leads nowhere"));
                }
                members.values().for_each(|value| self.check_references(value, problems));
            }
            Value::Array(items) => {
                items.iter().for_each(|value| self.check_references(value, problems))
            }
            _ => {}
        }
    }

    fn resolve(&self, reference: &str) -> Option<&Value> {
        self.0.pointer(reference.strip_prefix('#')?)
    }

    /// A request for each operation: with all that is required, and nothing else.
    pub fn calls(&self) -> Vec<Call> {
        let call = |(path, method, operation): (&String, &String, &Value)| {
            let (mut target, mut query) = (path.clone(), Vec::new());
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let name = parameter["name"].as_str().expect("a parameter has a name");
                let value = match self.sample(&parameter["schema"]) {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                match parameter["in"].as_str() {
                    Some("path") => target = target.replace(&format!("{{{name}}}"), &value),
                    Some("query") if parameter["required"] == true => {
                        query.push(format!("{name}={value}"))
                    }
                    _ => {}
                }
            }
            if !query.is_empty() {
                target = format!("{target}?{}", query.join("&"));
            }
            let content =
                operation["requestBody"]["content"].as_object().and_then(|all| all.iter().next());
            let content = content
                .map(|(kind, content)| (kind.clone(), self.content(kind, &content["schema"])));
            let is_secured = operation["security"].as_array().is_some_and(|all| !all.is_empty());
            Call {
                method: method.to_uppercase(),
                template: path.clone(),
                target,
                content,
                is_secured,
            }
        };
        self.operations().map(call).collect()
    }

    fn content(&self, kind: &str, schema: &Value) -> String {
        let value = self.sample(schema);
        match value.as_object() {
            Some(fields) if kind == "application/x-www-form-urlencoded" => {
                let pair = |(name, value): (&String, &Value)| match value {
                    Value::String(text) => format!("{name}={text}"),
                    other => format!("{name}={other}"),
                };
                fields.iter().map(pair).collect::<Vec<_>>().join("&")
            }
            _ if kind.contains("json") => value.to_string(),
            _ => "some content".to_owned(),
        }
    }

    /// A value that a schema allows, as small as it may be.
    pub fn sample(&self, schema: &Value) -> Value {
        if let Some(reference) = schema["$ref"].as_str() {
            return self.sample(self.resolve(reference).expect("references lead somewhere"));
        }
        if let Some(value) = schema.get("const").or_else(|| schema["enum"].get(0)) {
            return value.clone();
        }
        if let Some(choice) = schema["anyOf"].get(0).or_else(|| schema["oneOf"].get(0)) {
            return self.sample(choice);
        }
        let of_length = |length: &Value| "x".repeat(length.as_u64().unwrap_or(1).max(1) as usize);
        match (kinds(schema).first().copied(), schema["format"].as_str()) {
            (Some("object"), _) => {
                let required =
                    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let member =
                    |name: &str| (name.to_owned(), self.sample(&schema["properties"][name]));
                Value::Object(required.map(member).collect::<Map<_, _>>())
            }
            (Some("array"), _) => match schema["minItems"].as_u64() {
                Some(1..) => json!([self.sample(&schema["items"])]),
                _ => json!([]),
            },
            (Some("integer" | "number"), _) => schema.get("minimum").cloned().unwrap_or(json!(1)),
            (Some("boolean"), _) => json!(true),
            (Some("null"), _) => Value::Null,
            (_, Some("uuid")) => json!("01900000-0000-7000-8000-000000000001"),
            (_, Some("date")) => json!("2024-06-01"),
            (_, Some("email")) => json!("somebody@example.org"),
            _ => json!(of_length(&schema["minLength"])),
        }
    }

    /// Whether an answer is one that the document has for this call.
    ///
    /// # Errors
    /// What differs.
    pub fn check(
        &self,
        call: &Call,
        status: u16,
        content_type: Option<&str>,
        content: &[u8],
    ) -> Result<(), String> {
        let Call { method, template, .. } = call;
        let problem = |what: String| format!("{method} {template} is answered {status}: {what}");
        let responses = &self.0["paths"][template][method.to_lowercase()]["responses"];
        let response = responses
            .get(status.to_string())
            .or_else(|| responses.get("default").filter(|_| status >= 400));
        let response =
            response.ok_or_else(|| problem("the document does not have that status".into()))?;
        let Some(kinds) = response["content"].as_object() else {
            return match content {
                [] => Ok(()),
                _ => Err(problem(format!(
                    "it has content of {content_type:?}, and should have none"
                ))),
            };
        };
        let kind = content_type.unwrap_or_default();
        let schema = kinds
            .get(kind)
            .ok_or_else(|| problem(format!("it is {kind}, and should be {:?}", kinds.keys())))?;
        let text = || json!(String::from_utf8_lossy(content));
        let value = match kind.contains("json") {
            true => serde_json::from_slice(content).map_err(|error| problem(error.to_string()))?,
            false => text(),
        };
        self.matches(&value, &schema["schema"], "$")
            .map_err(|error| problem(format!("{error} in {value}")))
    }

    /// Whether a schema allows a value.
    fn matches(&self, value: &Value, schema: &Value, place: &str) -> Result<(), String> {
        let Some(words) = schema.as_object() else {
            return if schema == &json!(false) {
                Err(format!("{place} is not allowed"))
            } else {
                Ok(())
            };
        };
        for (word, rule) in words {
            let is_right = match word.as_str() {
                "$ref" => {
                    let target = self
                        .resolve(rule.as_str().unwrap_or_default())
                        .ok_or("a reference leads nowhere")?;
                    self.matches(value, target, place)?;
                    true
                }
                "type" => kinds(schema).iter().any(|kind| is_of(value, kind)),
                "const" => value == rule,
                "enum" => rule.as_array().is_some_and(|all| all.contains(value)),
                "anyOf" | "oneOf" => rule.as_array().is_some_and(|all| {
                    all.iter().any(|one| self.matches(value, one, place).is_ok())
                }),
                "allOf" => {
                    rule.as_array()
                        .into_iter()
                        .flatten()
                        .try_for_each(|one| self.matches(value, one, place))?;
                    true
                }
                "required" => value.as_object().is_none_or(|members| {
                    rule.as_array()
                        .into_iter()
                        .flatten()
                        .all(|name| members.contains_key(name.as_str().unwrap_or_default()))
                }),
                "properties" => {
                    for (name, schema) in rule.as_object().into_iter().flatten() {
                        if let Some(member) = value.get(name) {
                            self.matches(member, schema, &format!("{place}.{name}"))?;
                        }
                    }
                    true
                }
                "additionalProperties" => self.match_others(value, schema, rule, place)?,
                "items" => {
                    for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.matches(item, rule, &format!("{place}[{at}]"))?;
                    }
                    true
                }
                "minimum" => value.as_f64().is_none_or(|number| Some(number) >= rule.as_f64()),
                "maximum" => value.as_f64().is_none_or(|number| Some(number) <= rule.as_f64()),
                "minLength" => value
                    .as_str()
                    .is_none_or(|text| Some(text.chars().count() as u64) >= rule.as_u64()),
                "maxLength" => value
                    .as_str()
                    .is_none_or(|text| Some(text.chars().count() as u64) <= rule.as_u64()),
                "minProperties" => value
                    .as_object()
                    .is_none_or(|members| Some(members.len() as u64) >= rule.as_u64()),
                "minItems" => {
                    value.as_array().is_none_or(|items| Some(items.len() as u64) >= rule.as_u64())
                }
                "maxItems" => {
                    value.as_array().is_none_or(|items| Some(items.len() as u64) <= rule.as_u64())
                }
                word if NOTES.contains(&word) => true,
                word => return Err(format!("the word {word:?} of a schema is not known here")),
            };
            if !is_right {
                return Err(format!("{place} breaks {word}: {rule}"));
            }
        }
        Ok(())
    }

    fn match_others(
        &self,
        value: &Value,
        schema: &Value,
        rule: &Value,
        place: &str,
    ) -> Result<bool, String> {
        for (name, member) in value.as_object().into_iter().flatten() {
            if schema["properties"].get(name).is_none() {
                self.matches(member, rule, &format!("{place}.{name}"))?;
            }
        }
        Ok(true)
    }
}

fn kinds(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn is_of(value: &Value, kind: &str) -> bool {
    match kind {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document() -> Document {
        Document::new(
            r##"{"openapi":"3.1.0","info":{"title":"t","version":"1"},"paths":{"/a/{id}":{"get":{"operationId":"a",
            "parameters":[{"in":"path","name":"id","required":true,"schema":{"type":"integer","minimum":3}}],
            "responses":{"200":{"description":"","content":{"application/json":{"schema":{"$ref":"#/components/schemas/A"}}}}}}}},
            "components":{"schemas":{"A":{"type":"object","properties":{"b":{"type":["string","null"]}},"required":["b"]}}}}"##,
        )
    }

    /// Purpose: a test that walks a document must see every way in which an answer can differ from it.
    #[test]
    fn differences_are_found() {
        let document = document();
        assert_eq!(document.problems(), Vec::<String>::new());
        let [call] = &document.calls()[..] else { panic!("there is one") };
        assert_eq!((&*call.method, &*call.target), ("GET", "/a/3"));
        let json = Some("application/json");
        assert_eq!(document.check(call, 200, json, br#"{"b":null,"c":1}"#), Ok(()));
        for (status, kind, content) in [
            (201, json, r#"{"b":null}"#),
            (404, json, r#"{"b":null}"#),
            (200, Some("text/plain"), r#"{"b":null}"#),
            (200, json, r#"{}"#),
            (200, json, r#"{"b":1}"#),
            (200, json, r#"[]"#),
            (200, json, r#"{"#),
        ] {
            assert!(
                document.check(call, status, kind, content.as_bytes()).is_err(),
                "{status} {kind:?} {content}"
            );
        }
    }

    /// Purpose: so must it see what is wrong with the document.
    #[test]
    fn problems_are_found() {
        let text = document().value().to_string();
        for (from, to) in [
            ("\"operationId\":\"a\"", "\"operationId\":\"\""),
            ("\"name\":\"id\"", "\"name\":\"other\""),
            ("schemas/A", "schemas/B"),
            ("3.1.0", "3.0.3"),
        ] {
            assert_eq!(text.matches(from).count(), 1, "{from}");
            assert_ne!(
                Document::new(&text.replace(from, to)).problems(),
                Vec::<String>::new(),
                "{to}"
            );
        }
    }
}
