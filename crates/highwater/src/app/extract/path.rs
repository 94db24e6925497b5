//! The path's parameters, deserialized: one value, a tuple in the order of the pattern, or a struct
//! by name.

use serde_core::Deserializer;
use serde_core::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};

use super::path_shape::PathCheck;
use super::text::{Failure, Text};
use super::{FromRequest, Requirements};
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
/// A parameter that does not fit is answered with 400 `invalid_path`, naming the parameter, its value, and what
/// was expected. A `T` whose parameters differ from the pattern's is reported when the application is built; a
/// mismatch that only a request can show is answered with 500, and logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned> FromRequest for Path<T> {
    #[inline]
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        T::deserialize(Parameters { request }).map(Path).map_err(|failure| refuse(request, failure))
    }

    fn requires(requirements: &mut Requirements) {
        requirements.paths.push(PathCheck::of::<T>());
    }
}

/// The last parameter of a path, whatever comes before it.
#[derive(Debug)]
pub(in crate::app) struct LastParameter<T>(pub(in crate::app) T);

impl<T: DeserializeOwned> FromRequest for LastParameter<T> {
    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let parameters = Parameters { request };
        let index = parameters.len().checked_sub(1);
        let index = index.ok_or_else(|| Error::internal("the route has no parameters"))?;
        let value = parameters.at(index, |text| T::deserialize(text));
        value.map(LastParameter).map_err(|failure| match failure {
            Failure::Value(message) | Failure::Refused(message) => {
                Error::bad_request(message).with_code("invalid_path")
            }
            Failure::Shape(message) => Error::internal(format!(
                "the id of a resource is one segment of its path, and cannot be a `{}`: {message}",
                std::any::type_name::<T>()
            )),
        })
    }
}

/// The name in errors about all parameters together.
#[cold]
fn refuse(request: &Request<'_>, failure: Failure) -> Error {
    match failure {
        Failure::Value(message) => Error::bad_request(message).with_code("invalid_path"),
        Failure::Refused(message) => {
            Error::bad_request(of_all(request, &message)).with_code("invalid_path")
        }
        Failure::Shape(message) => {
            let pattern = request.matched_path().unwrap_or_default();
            Error::internal(format!("Path<T> does not fit the route `{pattern}`: {message}"))
        }
    }
}

fn of_all(request: &Request<'_>, message: &str) -> String {
    let named = |(index, name): (usize, &str)| {
        let text = request.param_at(index).unwrap_or_default();
        format!("path parameter `{name}`: `{text}`")
    };
    let names = request.param_names();
    let all: Vec<String> = names.iter().map(|name| &**name).enumerate().map(named).collect();
    let verb = if all.len() == 1 { "is" } else { "are" };
    format!("{} {verb} not accepted: {message}", all.join(", "))
}

#[derive(Clone, Copy)]
struct Parameters<'r> {
    request: &'r Request<'r>,
}

impl<'r> Parameters<'r> {
    fn len(self) -> usize {
        self.request.param_names().len()
    }

    /// Passes `then` the parameter at `index`, which exists.
    #[inline]
    fn at<R>(
        self,
        index: usize,
        then: impl FnOnce(Text<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let text = self.request.param_at(index);
        let text = text.map_err(|error| Failure::Value(String::from(error.message())))?;
        let name = &*self.request.param_names()[index];
        let text = Text { what: "path parameter", name, text: &text };
        then(text).map_err(|failure| text.name(failure))
    }

    /// Passes `then` the only parameter.
    #[inline]
    fn only<R>(self, then: impl FnOnce(Text<'_>) -> Result<R, Failure>) -> Result<R, Failure> {
        match self.len() {
            1 => self.at(0, then),
            len => Err(Failure::Shape(format!("it takes one parameter, and there are {len}"))),
        }
    }

    fn in_order(self) -> InOrder<'r> {
        InOrder { parameters: self, index: 0 }
    }
}

macro_rules! delegate_to_the_only_one {
    ($($method:ident)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
            self.only(|text| text.$method(visitor))
        }
    )*};
}

impl<'de> Deserializer<'de> for Parameters<'_> {
    type Error = Failure;

    delegate_to_the_only_one! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char deserialize_str
        deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
        deserialize_identifier
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.len() {
            1 => self.deserialize_str(visitor),
            _ => self.deserialize_map(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_seq(self.in_order())
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        if len != self.len() {
            let there = self.len();
            let message = format!("it takes {len} parameters, and there are {there}");
            return Err(Failure::Shape(message));
        }
        visitor.visit_seq(self.in_order())
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_map(self.in_order())
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.only(|text| text.deserialize_enum(name, variants, visitor))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    serde_core::forward_to_deserialize_any! {
        <V: Visitor<'de>>
        unit unit_struct
    }
}

/// The parameters one after the other.
struct InOrder<'r> {
    parameters: Parameters<'r>,
    index: usize,
}

impl<'de> de::SeqAccess<'de> for InOrder<'_> {
    type Error = Failure;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Failure> {
        if self.index == self.parameters.len() {
            return Ok(None);
        }
        self.index += 1;
        self.parameters.at(self.index - 1, |text| seed.deserialize(text)).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.parameters.len() - self.index)
    }
}

impl<'de> de::MapAccess<'de> for InOrder<'_> {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Failure> {
        match self.parameters.request.param_names().get(self.index) {
            Some(name) => seed.deserialize(name.as_ref().into_deserializer()).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Failure> {
        self.index += 1;
        self.parameters.at(self.index - 1, |text| seed.deserialize(text))
    }
}
