//! Which settings have no effect in combination with the others?
//!
//! A setting that is accepted without effect is misleading: its author believes that it is in force. So a flag, or
//! a key in the program's file, is refused where it has no effect. A variable is set for all programs of an
//! environment, so one without effect here is ignored, unless it decides where data goes ([`Idle::from_anywhere`]).

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::source::{Source, message_about};

/// A setting that has no effect in combination with the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idle {
    setting: &'static str,
    remedy: String,
    from_anywhere: bool,
    is_secret: bool,
}

impl Idle {
    /// `setting` is the long name of the flag, without dashes; `remedy` names the setting that leaves it without
    /// effect, and what to write instead.
    pub fn new(setting: &'static str, remedy: impl Into<String>) -> Idle {
        Idle { setting, remedy: remedy.into(), from_anywhere: false, is_secret: false }
    }

    /// The setting is also refused if it comes from a variable, for variables that no other program uses.
    pub fn from_anywhere(self) -> Idle {
        Idle { from_anywhere: true, ..self }
    }

    /// Its value is not shown, because it may contain a password.
    pub fn secret(self) -> Idle {
        Idle { is_secret: true, ..self }
    }

    pub(super) fn setting(&self) -> &'static str {
        self.setting
    }

    /// The message if it was given; `source` is the origin of a setting of the program itself, if that is not a
    /// flag.
    ///
    /// # Panics
    /// If the program, or the subcommand that was given, has no such setting.
    pub(super) fn complaint(
        &self,
        matches: &ArgMatches,
        source: Option<&Source>,
    ) -> Option<String> {
        let (mut innermost, mut source) = (matches, source);
        while let Some((_, inner)) = innermost.subcommand() {
            // Flags before a subcommand are not settings of the subcommand.
            (innermost, source) = (inner, None);
        }
        let id = self.setting.replace('-', "_");
        // The program's own settings from variables or its file reach the parser as if they had been typed.
        let source = match (innermost.value_source(&id)?, source) {
            (ValueSource::CommandLine, None) => &Source::Flag,
            (ValueSource::CommandLine, Some(source)) => source,
            _ => return None,
        };
        if matches!(source, Source::Variable(_)) && !self.from_anywhere {
            return None;
        }
        let raw = innermost.get_raw(&id).into_iter().flatten();
        let values: Vec<_> = raw.map(|value| value.to_string_lossy()).collect();
        let value = if self.is_secret { "…".to_owned() } else { values.join(",") };
        Some(message_about(
            self.setting,
            &value,
            source,
            &format!("has no effect: {}", self.remedy),
        ))
    }
}
