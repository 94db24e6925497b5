//! One named text, deserialized: the common part of path parameters, query parameters and form fields.
//! Errors name it.

use std::fmt;

use serde_core::Deserializer;
use serde_core::de::{self, IntoDeserializer, Visitor};

/// Why something was not deserialized.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A value does not fit; the message names it. The peer's fault.
    Value(String),
    /// The parts do not fit together: one is missing, or there are too many.
    Shape(String),
    /// The type rejects its input, in its own words: the peer's fault. The caller that knows the input makes
    /// it a [`Failure::Value`].
    Refused(String),
}

impl Failure {
    /// In words: a value names itself, anything else is about the `whole`.
    #[cold]
    pub(super) fn within(self, whole: &str) -> String {
        match self {
            Failure::Value(message) => message,
            Failure::Shape(message) | Failure::Refused(message) => format!("{whole}: {message}"),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Failure::Value(message) | Failure::Shape(message) | Failure::Refused(message)) = self;
        f.write_str(message)
    }
}

impl std::error::Error for Failure {}

impl de::Error for Failure {
    fn custom<M: fmt::Display>(message: M) -> Self {
        Failure::Refused(message.to_string())
    }

    fn invalid_type(unexpected: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Failure::Shape(format!("there is {unexpected} where {expected} is expected"))
    }

    fn invalid_length(length: usize, expected: &dyn de::Expected) -> Self {
        Failure::Shape(format!("there are {length} where {expected} is expected"))
    }

    fn unknown_field(field: &str, _expected: &'static [&'static str]) -> Self {
        Failure::Shape(format!("`{field}` is not among its fields"))
    }

    fn missing_field(field: &'static str) -> Self {
        Failure::Shape(format!("`{field}` is missing"))
    }
}

/// A text with a name.
#[derive(Clone, Copy)]
pub(super) struct Text<'t> {
    /// Its kind: "path parameter", "query parameter", "field".
    pub(super) what: &'static str,
    pub(super) name: &'t str,
    pub(super) text: &'t str,
}

impl Text<'_> {
    #[cold]
    pub(super) fn refuse(&self, why: impl fmt::Display) -> Failure {
        let Text { what, name, text } = self;
        Failure::Value(format!("{what} `{name}`: `{text}` {why}"))
    }

    /// Adds the name to a type's error about the text.
    pub(super) fn name(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Refused(message) => self.refuse(format_args!("is not accepted: {message}")),
            failure => failure,
        }
    }

    /// Gives the text to `T`, and adds the name to its error.
    fn visit<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor
            .visit_str(self.text)
            .map_err(|failure: Failure| self.refuse(format_args!("is not accepted: {failure}")))
    }
}

// The standard library takes `NaN` and `inf` for numbers of floating point. No comparison holds for the one, so it would pass
// ranges, too; the other is what becomes of digits beyond the type.
macro_rules! parse {
    ($($method:ident $visit:ident $type:ty, $expected:literal $(, $is_one:path)?;)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
            match self.text.parse::<$type>() {
                // The standard library takes a plus sign before any number; here a value has one
                // spelling, and in a query an unescaped plus would be a space.
                Ok(value)
                    if (!self.text.starts_with('+') || stringify!($type) == "char")
                        $(&& $is_one(value))? =>
                {
                    visitor.$visit(value)
                }
                _ => Err(self.refuse(concat!("is not ", $expected))),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Text<'_> {
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
        deserialize_f32 visit_f32 f32, "a finite number", f32::is_finite;
        deserialize_f64 visit_f64 f64, "a finite number", f64::is_finite;
        deserialize_char visit_char char, "one character";
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.visit(visitor)
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

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        if !variants.contains(&self.text) {
            let expected = variants.join("`, `");
            return Err(self.refuse(format_args!("is not one of `{expected}`")));
        }
        visitor.visit_enum(self.text.into_deserializer())
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    serde_core::forward_to_deserialize_any! {
        str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct identifier
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    /// Purpose: a number of floating point is one that ranges can hold: not `NaN`, not infinity by name, nor by digits beyond the
    /// type.
    #[test]
    fn numbers_are_finite() {
        let text = |text| Text { what: "field", name: "n", text };
        for (written, value) in [("1.5", 1.5), ("-0", 0.0), ("1e3", 1000.0), (".5", 0.5)] {
            assert_eq!(f64::deserialize(text(written)), Ok(value));
        }
        assert_eq!(f32::deserialize(text("3.4e38")), Ok(3.4e38));
        for wrong in ["NaN", "nan", "inf", "-inf", "infinity", "Infinity", "1e400", "-1e400", "+1"]
        {
            let refused = Failure::Value(format!("field `n`: `{wrong}` is not a finite number"));
            assert_eq!(f64::deserialize(text(wrong)), Err(refused));
        }
        assert!(f32::deserialize(text("3.5e38")).is_err(), "it is beyond the type");
    }
}
