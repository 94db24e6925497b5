//! Which settings are secrets, and which files hold them?
//!
//! Container platforms hand secrets over as files. A setting is a secret if its argument hides its values
//! (`#[arg(hide_env_values = true)]`): beside its variable `NAME` there is `NAME_FILE`, the path of a file that holds the value.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, Error};

use super::file;
use super::source::Source;

/// What follows the name of a secret's variable.
pub(super) const SUFFIX: &str = "_FILE";

type Environment = BTreeMap<OsString, OsString>;

/// The variables of the settings that are secrets, with those of subcommands.
#[derive(Debug, Default)]
pub(super) struct Secrets(Vec<OsString>);

/// A secret that a file holds.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) source: Source,
    pub(super) value: String,
}

impl Secrets {
    /// Those of `command`, in which each argument with a variable has its own name for it, or that of `variable`.
    pub(super) fn of(command: &Command, variable: fn(&Arg) -> Option<String>) -> Self {
        let mut secrets = Secrets::default();
        secrets.collect(command, variable);
        secrets
    }

    fn collect(&mut self, command: &Command, variable: fn(&Arg) -> Option<String>) {
        let hidden = command.get_arguments().filter(|arg| arg.is_hide_env_values_set());
        let name = |arg: &Arg| match arg.get_env() {
            Some(name) => Some(name.to_owned()),
            None => variable(arg).map(OsString::from),
        };
        self.0.extend(hidden.filter_map(name));
        command.get_subcommands().for_each(|subcommand| self.collect(subcommand, variable));
    }

    /// Whether the value of a variable must not be shown.
    pub(super) fn has(&self, variable: &OsStr) -> bool {
        self.0.iter().any(|secret| secret == variable)
    }

    /// Whether the argument's value must not be shown.
    pub(super) fn is_secret(&self, arg: &Arg) -> bool {
        arg.get_env().is_some_and(|variable| self.has(variable))
    }

    /// The names of the variables with paths.
    pub(super) fn variables(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(|name| Some(format!("{}{SUFFIX}", name.to_str()?)))
    }

    /// What the file of an argument holds, if it is a secret and its variable names one.
    ///
    /// # Errors
    /// The value is given directly, too, or the file cannot be read.
    pub(super) fn held(
        &self,
        arg: &Arg,
        environment: &Environment,
    ) -> Result<Option<Held>, String> {
        let Some(variable) = arg.get_env().filter(|_| self.is_secret(arg)) else { return Ok(None) };
        let mut name = variable.to_owned();
        name.push(SUFFIX);
        let Some(path) = environment.get(&name) else { return Ok(None) };
        let (direct, name) = (variable.to_string_lossy(), name.to_string_lossy().into_owned());
        if environment.contains_key(variable) {
            return Err(format!("{direct} and {name} are both set; unset one of them"));
        }
        let path = PathBuf::from(path);
        let text = file::read(&path).map_err(|error| {
            format!(
                "the file {:?} (from variable {name}) cannot be read: {error}; use the path of a file with the value, \
                 or set {direct} instead",
                path.display()
            )
        })?;
        let value =
            text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
        Ok(Some(Held {
            value: value.to_owned(),
            source: Source::SecretFile { path, variable: name },
        }))
    }

    /// Gives the subcommand that was typed the secrets that files hold: it reads the environment itself.
    ///
    /// # Errors
    /// Those of [`Secrets::held`].
    pub(super) fn lend(
        &self,
        command: &mut Command,
        typed: &ArgMatches,
        environment: &Environment,
    ) -> Result<(), Error> {
        let Some((name, matches)) = typed.subcommand() else { return Ok(()) };
        let Some(subcommand) = command.find_subcommand(name).cloned() else { return Ok(()) };
        let mut lent = Vec::new();
        for arg in subcommand.get_arguments().filter(|arg| !is_typed(arg, matches)) {
            match self.held(arg, environment) {
                Ok(held) => lent.extend(held.map(|held| (arg.get_id().clone(), held.value))),
                Err(message) => return Err(command.error(ErrorKind::ValueValidation, message)),
            }
        }
        if !lent.is_empty() {
            let with = |subcommand: Command| {
                lent.into_iter().fold(subcommand, |subcommand, (id, value)| {
                    subcommand.mut_arg(id, |arg| {
                        arg.default_value(value).hide_default_value(true).required(false)
                    })
                })
            };
            *command = command.clone().mut_subcommand(name, with);
        }
        Ok(())
    }
}

fn is_typed(arg: &Arg, matches: &ArgMatches) -> bool {
    matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
}
