//! Enumerations whose variants have names in the settings, declared once: variant, name and meaning.

use std::fmt::Display;
use std::str::FromStr;

/// A type whose values are written as one of a few names.
pub(crate) trait Choice: FromStr<Err = String> + Display {
    /// All names, in the order of help texts.
    const NAMES: &'static [&'static str];
}

/// `a, b or c`.
pub(crate) fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Declares an enumeration, and how its variants are written.
macro_rules! choices {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Its name in the settings.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }
        }

        impl $crate::choice::Choice for $name {
            const NAMES: &'static [&'static str] = &[$($text),+];
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = String;

            /// The error lists the choices.
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($text => Ok($name::$variant),)+
                    _ => {
                        let names = <$name as $crate::choice::Choice>::NAMES;
                        Err(format!("not a choice; use {}", $crate::choice::listed(names)))
                    }
                }
            }
        }
    };
}
pub(crate) use choices;
