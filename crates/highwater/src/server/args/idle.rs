//! Which settings have no effect beside the others?
//!
//! A setting that is accepted and changes nothing misleads: its author believes that it is in force. So what was written
//! for this program, as a flag or in its file, is refused where it has no effect. A variable is set for all programs of an
//! environment, so one that this program has no use for is left alone, unless it says where data goes
//! ([`Idle::from_anywhere`]).

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::source::{Source, told};

/// A setting that has no effect beside the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idle {
    setting: &'static str,
    remedy: String,
    from_anywhere: bool,
    is_secret: bool,
}

impl Idle {
    /// `setting` is the long name of the flag, without dashes; `remedy` says beside what it has no effect, and what to
    /// write instead.
    pub fn new(setting: &'static str, remedy: impl Into<String>) -> Idle {
        Idle { setting, remedy: remedy.into(), from_anywhere: false, is_secret: false }
    }

    /// It is refused from a variable as well: nobody sets it for another program.
    pub fn from_anywhere(self) -> Idle {
        Idle { from_anywhere: true, ..self }
    }

    /// Its value is not shown: a password may be in it.
    pub fn secret(self) -> Idle {
        Idle { is_secret: true, ..self }
    }

    pub(super) fn setting(&self) -> &'static str {
        self.setting
    }

    /// What to say if it was given; `source` is where a setting of the program itself comes from, if that is no flag.
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
            // What is said above a subcommand is not said to it.
            (innermost, source) = (inner, None);
        }
        let id = self.setting.replace('-', "_");
        // What the program itself takes from a variable or its file reaches the parser as if it had been typed.
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
        Some(told(self.setting, &value, source, &format!("has no effect: {}", self.remedy)))
    }
}
