//! The path's parameters, deserialized: one value, a tuple in the order of the pattern, or a struct
//! by name.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};

use super::FromRequest;
use crate::app::error::Error;
use crate::app::request::Request;

/// The parameters of the path, percent-decoded and deserialized.
///
/// ```
/// use highwater::{Path, Router};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Place { shelf: String, position: u32 }
///
/// let app = Router::new()
///     .get("/square/{n}", |Path(n): Path<u64>| (n * n).to_string())
///     .get("/sum/{a}/{b}", |Path((a, b)): Path<(i64, i64)>| (a + b).to_string())
///     .get("/books/{shelf}/{position}", |Path(place): Path<Place>| place.shelf);
/// # app.build().unwrap();
/// ```
///
/// What does not fit is answered 400 `invalid_path`, naming the parameter, its value, and what was
/// expected. A `T` that wants other parameters than the pattern has is the application's fault, and
/// answered 500.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Path<T> {
    #[inline]
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        T::deserialize(PathDeserializer { request }).map(Path).map_err(|failure| failure.0)
    }
}

/// Why a path was not deserialized, as the error it is.
#[derive(Debug)]
struct Failure(Error);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.message())
    }
}

impl std::error::Error for Failure {}

impl de::Error for Failure {
    /// What `T` says without a parameter at hand is about the pattern: a field without a parameter,
    /// or a wrong number of them.
    fn custom<M: fmt::Display>(message: M) -> Self {
        Failure(Error::internal(format!("Path<T> does not fit the route: {message}")))
    }
}

#[derive(Clone, Copy)]
struct PathDeserializer<'r> {
    request: &'r Request<'r>,
}

impl<'r> PathDeserializer<'r> {
    fn value(self, index: usize) -> Result<Value<'r>, Failure> {
        let text = self.request.param_at(index).map_err(Failure)?;
        Ok(Value { name: &self.request.param_names()[index], text })
    }

    /// The only parameter.
    fn single(self) -> Result<Value<'r>, Failure> {
        match self.len() {
            1 => self.value(0),
            len => Err(de::Error::custom(format_args!(
                "it takes one parameter, and the pattern has {len}"
            ))),
        }
    }

    fn len(self) -> usize {
        self.request.param_names().len()
    }

    fn seq(self) -> Seq<'r> {
        Seq { path: self, index: 0 }
    }
}

macro_rules! delegate_to_the_only_value {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Failure> {
            self.single()?.$method(visitor)
        }
    )*};
}

impl<'r> Deserializer<'r> for PathDeserializer<'r> {
    type Error = Failure;

    delegate_to_the_only_value! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char deserialize_str
        deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
        deserialize_identifier
    }

    fn deserialize_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.len() {
            1 => self.single()?.deserialize_str(visitor),
            _ => self.deserialize_map(visitor),
        }
    }

    fn deserialize_unit<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_seq(self.seq())
    }

    fn deserialize_tuple<V: Visitor<'r>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        if len != self.len() {
            let has = self.len();
            return Err(de::Error::custom(format_args!(
                "it takes {len} parameters, and the pattern has {has}"
            )));
        }
        visitor.visit_seq(self.seq())
    }

    fn deserialize_tuple_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_map(self.seq())
    }

    fn deserialize_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'r>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.single()?.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }
}

/// The parameters one after the other.
struct Seq<'r> {
    path: PathDeserializer<'r>,
    index: usize,
}

impl<'r> de::SeqAccess<'r> for Seq<'r> {
    type Error = Failure;

    fn next_element_seed<T: DeserializeSeed<'r>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Failure> {
        if self.index == self.path.len() {
            return Ok(None);
        }
        let value = self.path.value(self.index)?;
        self.index += 1;
        seed.deserialize(value).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.path.len() - self.index)
    }
}

impl<'r> de::MapAccess<'r> for Seq<'r> {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'r>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Failure> {
        match self.path.request.param_names().get(self.index) {
            Some(name) => seed.deserialize(name.as_ref().into_deserializer()).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<T: DeserializeSeed<'r>>(&mut self, seed: T) -> Result<T::Value, Failure> {
        let value = self.path.value(self.index)?;
        self.index += 1;
        seed.deserialize(value)
    }
}

/// One parameter.
struct Value<'r> {
    name: &'r str,
    text: Cow<'r, str>,
}

impl<'r> Value<'r> {
    #[cold]
    fn refuse(name: &str, text: &str, expected: impl fmt::Display) -> Failure {
        let message = format!("path parameter `{name}`: `{text}` is not {expected}");
        Failure(Error::bad_request(message).with_code("invalid_path"))
    }

    /// Names the parameter in what `T` itself has against the value.
    fn visit<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Failure> {
        let visited = match &self.text {
            Cow::Borrowed(text) => visitor.visit_borrowed_str::<de::value::Error>(text),
            Cow::Owned(text) => visitor.visit_str(text),
        };
        visited.map_err(|error| {
            let Value { name, text } = &self;
            let message = format!("path parameter `{name}`: `{text}` is not accepted: {error}");
            Failure(Error::bad_request(message).with_code("invalid_path"))
        })
    }
}

macro_rules! parse {
    ($($method:ident $visit:ident $type:ty, $expected:literal;)*) => {$(
        #[inline]
        fn $method<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Failure> {
            // The standard library would take a sign in front of any number; a path has one spelling.
            match self.text.parse::<$type>() {
                Ok(value) if !self.text.starts_with('+') => visitor.$visit(value),
                _ => Err(Value::refuse(self.name, &self.text, $expected)),
            }
        }
    )*};
}

impl<'r> Deserializer<'r> for Value<'r> {
    type Error = Failure;

    parse! {
        deserialize_bool visit_bool bool, "`true` or `false`";
        deserialize_i8 visit_i8 i8, "an integer from -128 to 127";
        deserialize_i16 visit_i16 i16, "an integer from -32768 to 32767";
        deserialize_i32 visit_i32 i32, "an integer from -2147483648 to 2147483647";
        deserialize_i64 visit_i64 i64, "an integer of 64 bits";
        deserialize_i128 visit_i128 i128, "an integer of 128 bits";
        deserialize_u8 visit_u8 u8, "an integer from 0 to 255";
        deserialize_u16 visit_u16 u16, "an integer from 0 to 65535";
        deserialize_u32 visit_u32 u32, "an integer from 0 to 4294967295";
        deserialize_u64 visit_u64 u64, "a non-negative integer of 64 bits";
        deserialize_u128 visit_u128 u128, "a non-negative integer of 128 bits";
        deserialize_f32 visit_f32 f32, "a number";
        deserialize_f64 visit_f64 f64, "a number";
        deserialize_char visit_char char, "one character";
    }

    fn deserialize_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.visit(visitor)
    }

    fn deserialize_str<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.visit(visitor)
    }

    fn deserialize_string<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.visit(visitor)
    }

    fn deserialize_option<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'r>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        if !variants.contains(&&*self.text) {
            let expected = format!("one of `{}`", variants.join("`, `"));
            return Err(Value::refuse(self.name, &self.text, expected));
        }
        visitor.visit_enum(self.text.into_deserializer())
    }

    serde::forward_to_deserialize_any! {
        <V: Visitor<'r>>
        bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
