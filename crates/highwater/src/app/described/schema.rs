//! Which schemas does a document have? Those of inputs and those of answers, in one list.
//!
//! A type can look different in a request and in an answer: a member with a default may be absent from the one, and is
//! always in the other. Schemas are made for both, and a type whose two differ is listed twice, as `Name` and `NameInput`.

use std::collections::{BTreeMap, BTreeSet};

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// Where the references of answers lead.
const PLACE: &str = "#/components/schemas/";
/// Where those of requests lead until [`Schemas::finish`].
const INPUT_PLACE: &str = "#/components/input/";

/// A type that has a JSON Schema: every `schemars::JsonSchema`.
#[diagnostic::on_unimplemented(
    message = "the document cannot describe `{Self}`: it has no JSON schema",
    label = "a type without a schema is read or answered here",
    note = "derive it with the crate `schemars` 1: `#[derive(schemars::JsonSchema)]`; or leave the route out of the \
            document: `openapi::hidden(handler)`, or `.hidden()` of a resource"
)]
pub trait HasSchema: JsonSchema {}

#[diagnostic::do_not_recommend]
impl<T: JsonSchema + ?Sized> HasSchema for T {}

/// The schemas of a document, while it is made.
#[derive(Debug)]
pub(in crate::app) struct Schemas {
    input: SchemaGenerator,
    output: SchemaGenerator,
    /// The security schemes that operations ask for.
    pub(in crate::app) security: BTreeMap<String, Value>,
}

impl Schemas {
    pub(in crate::app) fn new() -> Self {
        let settings = |place: &'static str| {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = place.trim_start_matches('#').into();
                settings.meta_schema = None;
            })
        };
        Schemas {
            input: settings(INPUT_PLACE).for_deserialize().into_generator(),
            output: settings(PLACE).for_serialize().into_generator(),
            security: BTreeMap::new(),
        }
    }

    /// The schema of a `T` that is read.
    pub(in crate::app) fn input<T: HasSchema + ?Sized>(&mut self) -> Value {
        self.input.subschema_for::<T>().to_value()
    }

    /// The schema of a `T` that is written.
    pub(in crate::app) fn output<T: HasSchema + ?Sized>(&mut self) -> Value {
        self.output.subschema_for::<T>().to_value()
    }

    /// The same as [`Schemas::input`], but not as a reference.
    pub(in crate::app) fn input_inline<T: HasSchema + ?Sized>(&mut self) -> Value {
        let schema = T::json_schema(&mut self.input).to_value();
        self.resolve_input(schema)
    }

    /// What a reference to a schema of a request leads to.
    pub(in crate::app) fn resolve_input(&self, mut schema: Value) -> Value {
        // A chain of references is no longer than there are names.
        for _ in 0..=self.input.definitions().len() {
            let name = schema.get("$ref").and_then(Value::as_str).and_then(name_of_input);
            match name.and_then(|name| self.input.definitions().get(name)) {
                Some(definition) => schema = definition.clone(),
                None => break,
            }
        }
        schema
    }

    /// The schema of a form whose fields are those of `T`: they have text, so none is null.
    pub(in crate::app) fn form<T: HasSchema + ?Sized>(&mut self) -> Value {
        let mut schema = self.input_inline::<T>();
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            for property in properties.values_mut() {
                *property = without_null(property.take());
            }
        }
        schema
    }

    /// The components of the document, whose references now lead to them.
    pub(in crate::app) fn finish(mut self, paths: &mut Value) -> Value {
        let mut output = self.output.take_definitions(true);
        let mut input = self.input.take_definitions(true);
        let differing = differing(&input, &output);
        let names: BTreeMap<String, String> = input
            .keys()
            .map(|name| {
                let mut own = name.clone();
                while differing.contains(name) && (own == *name || output.contains_key(&own)) {
                    own.push_str("Input");
                }
                (name.clone(), own)
            })
            .collect();
        let lead = |reference: &str| {
            let name = name_of_input(reference)?;
            Some(format!("{PLACE}{}", names.get(name).map_or(name, |own| own.as_str())))
        };
        change_references(paths, &lead);
        for schema in input.values_mut() {
            change_references(schema, &lead);
        }
        output.extend(input.into_iter().map(|(name, schema)| (names[&name].clone(), schema)));
        let mut components = Map::new();
        if !output.is_empty() {
            components.insert("schemas".into(), Value::Object(output));
        }
        if !self.security.is_empty() {
            let schemes = self.security.into_iter().collect();
            components.insert("securitySchemes".into(), Value::Object(schemes));
        }
        Value::Object(components)
    }
}

fn name_of_input(reference: &str) -> Option<&str> {
    reference.strip_prefix(INPUT_PLACE)
}

/// The names whose schemas differ between requests and answers, by themselves or by what they refer to.
fn differing(input: &Map<String, Value>, output: &Map<String, Value>) -> BTreeSet<String> {
    let as_output = |schema: &Value| {
        let mut schema = schema.clone();
        change_references(&mut schema, &|reference| {
            name_of_input(reference).map(|name| format!("{PLACE}{name}"))
        });
        schema
    };
    let differs = |name: &str, schema: &Value| {
        output.get(name).is_some_and(|other| *other != as_output(schema))
    };
    let own = input.iter().filter(|(name, schema)| differs(name, schema));
    let mut differing: BTreeSet<String> = own.map(|(name, _)| name.clone()).collect();
    loop {
        let leads_there = |name: &str, schema: &Value| {
            let mut leads = false;
            visit_references(schema, &mut |reference| {
                leads |= name_of_input(reference).is_some_and(|name| differing.contains(name));
            });
            leads && output.contains_key(name) && !differing.contains(name)
        };
        let more = input.iter().filter(|(name, schema)| leads_there(name, schema));
        let more: Vec<String> = more.map(|(name, _)| name.clone()).collect();
        if more.is_empty() {
            return differing;
        }
        differing.extend(more);
    }
}

fn visit_references(schema: &Value, visit: &mut impl FnMut(&str)) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                visit(reference);
            }
            members.values().for_each(|value| visit_references(value, visit));
        }
        Value::Array(items) => items.iter().for_each(|value| visit_references(value, visit)),
        _ => {}
    }
}

/// Replaces each reference for which `lead` knows another.
fn change_references(schema: &mut Value, lead: &impl Fn(&str) -> Option<String>) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get_mut("$ref")
                && let Some(other) = lead(reference)
            {
                *reference = other;
            }
            members.values_mut().for_each(|value| change_references(value, lead));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| change_references(value, lead)),
        _ => {}
    }
}

/// A schema of what is text, and so is never null.
pub(in crate::app) fn without_null(mut schema: Value) -> Value {
    let Some(members) = schema.as_object_mut() else { return schema };
    if members.get("default").is_some_and(Value::is_null) {
        members.remove("default");
    }
    if let Some(types) = members.get_mut("type").and_then(Value::as_array_mut) {
        types.retain(|one| one != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            members.insert("type".into(), only);
        }
    }
    if let Some(values) = members.get_mut("enum").and_then(Value::as_array_mut) {
        values.retain(|value| !value.is_null());
    }
    for choice in ["anyOf", "oneOf"] {
        let Some(choices) = members.get_mut(choice).and_then(Value::as_array_mut) else { continue };
        choices.retain(|one| *one != json!({ "type": "null" }));
        if let [Value::Object(only)] = &choices[..] {
            let only = only.clone();
            members.remove(choice);
            members.extend(only);
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a client that sends `null` in a query would send four letters; no schema of a parameter may offer it.
    #[test]
    fn parameters_are_never_null() {
        for (given, expected) in [
            (json!({ "type": ["integer", "null"], "default": null }), json!({ "type": "integer" })),
            (json!({ "anyOf": [{ "$ref": "#/x" }, { "type": "null" }] }), json!({ "$ref": "#/x" })),
            (
                json!({ "type": "string", "enum": ["a", null] }),
                json!({ "type": "string", "enum": ["a"] }),
            ),
            (json!({ "type": "array" }), json!({ "type": "array" })),
            (json!(true), json!(true)),
        ] {
            assert_eq!(without_null(given), expected);
        }
    }

    /// Purpose: a type that requests and answers share has one schema, and one that differs, or leads to one that does,
    /// has two whose references do not cross.
    #[test]
    fn what_differs_has_two_names() {
        let mut schemas = Schemas::new();
        let add = |generator: &mut SchemaGenerator, name: &str, schema: Value| {
            generator.definitions_mut().insert(name.to_owned(), schema);
        };
        let to = |place: &str, name: &str| json!({ "$ref": format!("{place}{name}") });
        for (generator, place, leaf) in [
            (&mut schemas.input, INPUT_PLACE, json!({ "type": "string" })),
            (&mut schemas.output, PLACE, json!({ "type": "integer" })),
        ] {
            add(generator, "Leaf", leaf);
            add(generator, "Branch", json!({ "items": to(place, "Leaf") }));
            add(generator, "Tree", json!({ "items": to(place, "Branch") }));
            add(generator, "Same", json!({ "items": to(place, "Same") }));
        }
        let mut paths =
            json!([to(INPUT_PLACE, "Tree"), to(PLACE, "Tree"), to(INPUT_PLACE, "Same")]);
        let components = schemas.finish(&mut paths);
        assert_eq!(paths, json!([to(PLACE, "TreeInput"), to(PLACE, "Tree"), to(PLACE, "Same")]));
        let schemas = components["schemas"].as_object().expect("there are some");
        let names: Vec<&str> = schemas.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            ["Branch", "BranchInput", "Leaf", "LeafInput", "Same", "Tree", "TreeInput"]
        );
        assert_eq!(schemas["TreeInput"]["items"], to(PLACE, "BranchInput"));
        assert_eq!(schemas["BranchInput"]["items"], to(PLACE, "LeafInput"));
        assert_eq!(schemas["Branch"]["items"], to(PLACE, "Leaf"));
    }
}
