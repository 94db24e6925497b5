//! Can `Path<T>` ever be extracted from a route's parameters? Checked when the application is built, as far as `T`
//! shows it.
//!
//! `T` is deserialized from a stand-in for the parameters: their names are the route's, their values made up. The
//! number and the names of the parameters that `T` expects show before any value matters. A result that depends on
//! values is not reported.

use std::fmt::Display;

use serde_core::Deserializer;
use serde_core::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};

use crate::app::guard::guarded;

/// Compares the parameters that a `Path<T>` expects with those of a route.
#[derive(Clone, Debug)]
pub(in crate::app) struct PathCheck {
    type_name: &'static str,
    probe: fn(&[Box<str>]) -> Option<String>,
}

impl PathCheck {
    pub(super) fn of<T: DeserializeOwned>() -> Self {
        PathCheck { type_name: std::any::type_name::<T>(), probe: probe::<T> }
    }

    /// Why it can never be extracted from the parameters `names` of `pattern`, if that is certain.
    pub(in crate::app) fn problem(&self, pattern: &str, names: &[Box<str>]) -> Option<String> {
        let wanted = (self.probe)(names)?;
        let there = match names.len() {
            0 => "none".to_owned(),
            count => count.to_string(),
        };
        let type_name = self.type_name;
        Some(format!(
            "path parameters: {wanted} wanted, {there} in {pattern}; its handler takes `Path<{type_name}>`"
        ))
    }
}

/// The parameters that `T` expects and `names` does not have.
fn probe<T: DeserializeOwned>(names: &[Box<str>]) -> Option<String> {
    // The application's code runs here, on values it is not made for.
    match guarded(|| T::deserialize(Names(names))) {
        Ok(Err(Verdict::Wants(wanted))) => Some(wanted),
        _ => None,
    }
}

/// How a deserialization of made-up values ends.
#[derive(Debug)]
enum Verdict {
    /// It expects parameters that the route does not have.
    Wants(String),
    /// It found what it expects, or the result depends on values.
    Open,
}

impl Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Verdict {}

impl de::Error for Verdict {
    fn custom<T: Display>(_: T) -> Self {
        Verdict::Open
    }

    fn missing_field(field: &'static str) -> Self {
        Verdict::Wants(format!("`{field}`"))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let expected: Vec<String> = expected.iter().map(|name| format!("`{name}`")).collect();
        Verdict::Wants(format!("{}, and no `{field}`", expected.join(", ")))
    }
}

/// The parameters of a route.
#[derive(Clone, Copy)]
struct Names<'n>(&'n [Box<str>]);

impl Names<'_> {
    fn count<T>(self, wanted: usize) -> Result<T, Verdict> {
        Err(if wanted == self.0.len() { Verdict::Open } else { Verdict::Wants(wanted.to_string()) })
    }
}

macro_rules! one_parameter {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Verdict> {
            self.count(1)
        }
    )*};
}

macro_rules! depends_on_values {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Verdict> {
            Err(Verdict::Open)
        }
    )*};
}

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = Verdict;

    one_parameter! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char deserialize_str
        deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
        deserialize_identifier
    }

    depends_on_values! {
        deserialize_any deserialize_seq deserialize_map deserialize_ignored_any deserialize_unit
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _visitor: V,
    ) -> Result<V::Value, Verdict> {
        Err(Verdict::Open)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Verdict> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, _: V) -> Result<V::Value, Verdict> {
        self.count(len)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        len: usize,
        _visitor: V,
    ) -> Result<V::Value, Verdict> {
        self.count(len)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Verdict> {
        visitor.visit_map(ByName(self.0))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        _visitor: V,
    ) -> Result<V::Value, Verdict> {
        self.count(1)
    }
}

/// The parameters by name, with made-up values.
struct ByName<'n>(&'n [Box<str>]);

impl<'de> de::MapAccess<'de> for ByName<'_> {
    type Error = Verdict;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Verdict> {
        let Some((name, rest)) = self.0.split_first() else { return Ok(None) };
        self.0 = rest;
        seed.deserialize(name.as_ref().into_deserializer()).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Verdict> {
        seed.deserialize(MadeUp).map_err(|_| Verdict::Open)
    }
}

/// A value that many types accept. If a type does not, nothing is reported.
struct MadeUp;

macro_rules! made_up {
    ($($method:ident => $visit:ident($value:expr),)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Verdict> {
            visitor.$visit($value)
        }
    )*};
}

impl<'de> Deserializer<'de> for MadeUp {
    type Error = Verdict;

    made_up! {
        deserialize_any => visit_str("0"),
        deserialize_bool => visit_bool(false),
        deserialize_i8 => visit_i8(0),
        deserialize_i16 => visit_i16(0),
        deserialize_i32 => visit_i32(0),
        deserialize_i64 => visit_i64(0),
        deserialize_i128 => visit_i128(0),
        deserialize_u8 => visit_u8(0),
        deserialize_u16 => visit_u16(0),
        deserialize_u32 => visit_u32(0),
        deserialize_u64 => visit_u64(0),
        deserialize_u128 => visit_u128(0),
        deserialize_f32 => visit_f32(0.0),
        deserialize_f64 => visit_f64(0.0),
        deserialize_char => visit_char('0'),
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Verdict> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Verdict> {
        visitor.visit_newtype_struct(self)
    }

    serde_core::forward_to_deserialize_any! {
        str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde::Deserialize;

    use super::*;
    use crate::app::{Path, Router};

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only their names and types count")]
    struct Place {
        shelf: String,
        position: u32,
        note: Option<String>,
        #[serde(default)]
        side: u8,
    }

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only their types count")]
    struct Id(u64);

    /// A type that does not take a made-up value.
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only their names and types count")]
    struct Visit {
        at: std::net::Ipv4Addr,
        by: String,
    }

    fn problem<T: DeserializeOwned>(names: &[&str]) -> Option<String> {
        let names: Vec<Box<str>> = names.iter().map(|name| Box::from(*name)).collect();
        PathCheck::of::<T>().problem("/x", &names)
    }

    /// Purpose: a handler whose parameters differ from its route's is reported before the first request, and no
    /// handler that may work is refused.
    #[test]
    fn what_is_wanted_and_is_not_there() {
        let message = |problem: Option<String>| problem.expect("it can never be extracted");
        assert!(
            message(problem::<(u8, u8)>(&["a"])).starts_with("path parameters: 2 wanted, 1 in /x;")
        );
        assert!(message(problem::<u8>(&[])).starts_with("path parameters: 1 wanted, none in /x;"));
        assert!(
            message(problem::<Id>(&["a", "b"])).starts_with("path parameters: 1 wanted, 2 in /x;")
        );
        let place = message(problem::<Place>(&["shelf", "pos"]));
        assert!(place.starts_with("path parameters: `position` wanted, 2 in /x;"), "{place}");
        assert_eq!(problem::<(u8, u8)>(&["a", "b"]), None);
        assert_eq!(problem::<String>(&["a"]), None);
        assert_eq!(problem::<Id>(&["a"]), None);
        assert_eq!(problem::<Place>(&["shelf", "position"]), None);
        assert_eq!(problem::<Place>(&["position", "note", "shelf", "side"]), None);
        assert_eq!(problem::<Vec<String>>(&[]), None);
        assert_eq!(problem::<HashMap<String, String>>(&["a"]), None);
        assert_eq!(problem::<Visit>(&["at"]), None, "it cannot be known");
    }

    /// Purpose: a `Path<T>` that does not fit its pattern is found before the first request.
    #[test]
    fn paths_are_checked_at_build() {
        let router = Router::new()
            .get("/x/{a}", |_: Path<(u8, u8)>| "")
            .nest("/{tenant}", Router::new().get("/y", |_: Path<String>| ""))
            .get("/z", |_: Path<u8>| "");
        let error = router.build().expect_err("two of them can never be answered");
        let problems: Vec<&str> = error.problems().iter().map(String::as_str).collect();
        assert_eq!(
            problems,
            [
                "GET /x/{a}: path parameters: 2 wanted, 1 in /x/{a}; its handler takes `Path<(u8, u8)>`",
                "GET /z: path parameters: 1 wanted, none in /z; its handler takes `Path<u8>`",
            ]
        );
        assert_eq!(format!("{error:?}"), error.to_string(), "what a `main` prints that returns it");
    }
}
