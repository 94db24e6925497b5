//! HTML form data (`application/x-www-form-urlencoded`, WHATWG URL §5): pairs in the query or in the
//! body.
//!
//! Pairs are read in place: up to [`INLINE_PAIRS`] of them, without escapes, cost no allocation.

use std::borrow::Cow;

use highwater_core::percent::percent_decode;
use serde_core::Deserializer;
use serde_core::de::value::SeqDeserializer;
use serde_core::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};

use super::body::{has_body, whole};
use super::text::{Failure, Text};
use super::{BodyUse, FromRequest};
use crate::app::error::Error;
use crate::app::request::Request;

/// The most pairs in a query or a form; beyond it 400 or 422. The same limit as PHP's.
const PAIRS_MAX: usize = 1000;

/// How many pairs are kept on the stack; most queries have fewer.
const INLINE_PAIRS: usize = 8;

/// The query, deserialized. A missing query counts as an empty one. Use an `Option` for a parameter that may be absent, and
/// a `Vec` with `#[serde(default)]` for one that may be repeated.
///
/// A mismatch is answered with 400 `invalid_query`, naming the parameter.
///
/// ```
/// use highwater::{Query, Router};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Page { limit: Option<u32>, #[serde(default)] tag: Vec<String> }
///
/// let app = Router::new().get("/todos", |Query(page): Query<Page>| page.tag.join(","));
/// # app.build().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Query<T> {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let text = request.query().unwrap_or_default();
        deserialize(text, "query parameter").map(Query).map_err(refuse_query)
    }

    fn is_present(request: &Request<'_>) -> bool {
        request.query().is_some_and(|query| !query.is_empty())
    }
}

/// The body, as HTML forms encode it, deserialized.
///
/// Answered with 415 unless the `Content-Type` is `application/x-www-form-urlencoded`, and with 422
/// `invalid_body` if its content does not fit, naming the field.
///
/// ```
/// use highwater::{Form, Redirect, Router};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Login { name: String, password: String }
///
/// let app = Router::new().post("/login", |Form(login): Form<Login>| Redirect::to("/"));
/// # app.build().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Form<T> {
    const BODY: BodyUse = BodyUse::Whole;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        deserialize(form_text(request)?, "field")
            .map(Form)
            .map_err(|failure| refuse_form(failure.within("form")))
    }

    fn is_present(request: &Request<'_>) -> bool {
        has_body(request)
    }
}

#[cold]
fn refuse_query(failure: Failure) -> Error {
    Error::bad_request(failure.within("query")).with_code("invalid_query")
}

/// The body of a request, if it is a form.
fn form_text<'r>(request: &'r Request<'_>) -> Result<&'r str, Error> {
    let content_type = request.headers().get("content-type").unwrap_or_default();
    let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
    if !essence.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded") {
        return Err(super::wrong_content_type(
            "the body must be a form, and its Content-Type application/x-www-form-urlencoded",
        ));
    }
    std::str::from_utf8(whole(request)?)
        .map_err(|_| refuse_form(String::from("the body is not UTF-8")))
}

#[cold]
fn refuse_form(message: String) -> Error {
    Error::unprocessable(message).with_code("invalid_body")
}

fn deserialize<T: DeserializeOwned>(text: &str, what: &'static str) -> Result<T, Failure> {
    let mut pairs = Parsed::default();
    pairs.parse(text, what)?;
    T::deserialize(Pairs { pairs: pairs.all(), what })
}

/// Decoded name and value.
type Pair<'t> = (Cow<'t, str>, Cow<'t, str>);

/// The pairs of a text. What is done with them whatever the type: so it is compiled once, not for each type.
#[derive(Default)]
struct Parsed<'t> {
    inline: [Pair<'t>; INLINE_PAIRS],
    /// All of them, if there are more than have a place on the stack.
    spilled: Vec<Pair<'t>>,
    count: usize,
}

impl<'t> Parsed<'t> {
    fn parse(&mut self, text: &'t str, what: &str) -> Result<(), Failure> {
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let pair = (decode(name, name, what)?, decode(value, name, what)?);
            match self.inline.get_mut(self.count) {
                Some(place) => *place = pair,
                None if self.count == PAIRS_MAX => {
                    return Err(Failure::Shape(format!("there are more than {PAIRS_MAX} pairs")));
                }
                None => {
                    if self.spilled.is_empty() {
                        self.spilled.extend(self.inline.iter_mut().map(std::mem::take));
                    }
                    self.spilled.push(pair);
                }
            }
            self.count += 1;
        }
        Ok(())
    }

    fn all(&mut self) -> &mut [Pair<'t>] {
        if self.spilled.is_empty() { &mut self.inline[..self.count] } else { &mut self.spilled }
    }
}

/// Brings the values of one name together, in their order. Up to a dozen or so pairs this is an insertion sort in place.
fn group(pairs: &mut [Pair<'_>]) {
    pairs.sort_by(|(left, _), (right, _)| left.cmp(right));
}

/// Undoes the encoding of a name or value: a plus is a space, the rest is percent-encoded.
fn decode<'t>(text: &'t str, name: &str, what: &str) -> Result<Cow<'t, str>, Failure> {
    let decoded = if text.contains('+') {
        percent_decode(&text.replace('+', " ")).map(|decoded| Cow::Owned(decoded.into_owned()))
    } else {
        percent_decode(text)
    };
    decoded.map_err(|error| Failure::Value(format!("{what} `{name}`: in `{text}`, {error}")))
}

struct Pairs<'p, 't> {
    pairs: &'p mut [Pair<'t>],
    what: &'static str,
}

impl<'de> Deserializer<'de> for Pairs<'_, '_> {
    type Error = Failure;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        group(self.pairs);
        visitor.visit_map(Groups { rest: self.pairs, what: self.what })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        if self.pairs.is_empty() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    /// The pairs as they came.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let what = self.what;
        let pairs = self.pairs.iter().map(move |(name, text)| Text { what, name, text });
        visitor.visit_seq(SeqDeserializer::new(pairs.map(AsTuple)))
    }

    serde_core::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit_struct tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// A pair as a tuple of its name and its value.
struct AsTuple<'t>(Text<'t>);

impl<'de> IntoDeserializer<'de, Failure> for AsTuple<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for AsTuple<'_> {
    type Error = Failure;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let name = Text { text: self.0.name, ..self.0 };
        visitor.visit_seq(SeqDeserializer::new([name, self.0].into_iter()))
    }

    serde_core::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

/// Pairs in the order of their names, those of one name together.
struct Groups<'p, 't> {
    rest: &'p [Pair<'t>],
    what: &'static str,
}

impl<'de> de::MapAccess<'de> for Groups<'_, '_> {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Failure> {
        match self.rest.first() {
            Some((name, _)) => seed.deserialize((&**name).into_deserializer()).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Failure> {
        let name = &self.rest[0].0;
        let length = self.rest.iter().take_while(|(other, _)| other == name).count();
        let (group, rest) = self.rest.split_at(length);
        self.rest = rest;
        let text = Text { what: self.what, name, text: &group[0].1 };
        let value = seed.deserialize(Group { pairs: group, what: self.what });
        value.map_err(|failure| text.name(failure))
    }
}

/// The values of one name.
struct Group<'p, 't> {
    pairs: &'p [Pair<'t>],
    what: &'static str,
}

impl<'p> Group<'p, '_> {
    fn texts(&self) -> impl Iterator<Item = Text<'p>> + use<'p> {
        let what = self.what;
        self.pairs.iter().map(move |(name, text)| Text { what, name, text })
    }

    fn only(self) -> Result<Text<'p>, Failure> {
        let mut texts = self.texts();
        match (texts.next(), texts.next()) {
            (Some(text), None) => Ok(text),
            _ => {
                let (what, name) = (self.what, &self.pairs[0].0);
                Err(Failure::Value(format!("{what} `{name}`: it is given more than once")))
            }
        }
    }
}

macro_rules! delegate_to_the_only_one {
    ($($method:ident)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
            self.only()?.$method(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Group<'_, '_> {
    type Error = Failure;

    delegate_to_the_only_one! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32
        deserialize_i64 deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32
        deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char
        deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf
        deserialize_identifier
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_seq(SeqDeserializer::new(self.texts()))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        if len != self.pairs.len() {
            let (what, name, times) = (self.what, &self.pairs[0].0, self.pairs.len());
            let message = format!("{what} `{name}`: it is given {times} times, not {len}");
            return Err(Failure::Value(message));
        }
        self.deserialize_seq(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.only()?.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    serde_core::forward_to_deserialize_any! {
        unit unit_struct tuple_struct map struct
    }
}

impl<'de> IntoDeserializer<'de, Failure> for Text<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
