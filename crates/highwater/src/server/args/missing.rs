//! Where can a required setting come from? clap names only its flag, which is not what a container's operator sets.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};

use super::secret::{SUFFIX, Secrets};

/// Adds the variables of the missing settings to an error about them. Other errors are left as they are.
pub(super) fn explain(command: &mut Command, secrets: &Secrets, error: Error) -> Error {
    if error.kind() != ErrorKind::MissingRequiredArgument {
        return error;
    }
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let sources: Vec<Option<String>> =
        missing.iter().map(|usage| variables(find(command, usage)?, secrets)).collect();
    if sources.iter().all(Option::is_none) {
        return error;
    }
    let lines = missing.iter().zip(sources).map(|(usage, source)| match source {
        Some(source) => format!("\n  {usage}, or {source}"),
        None => format!("\n  {usage}"),
    });
    let what = if missing.len() == 1 { "a required setting is" } else { "required settings are" };
    let message = format!("{what} missing:{}", lines.collect::<String>());
    command.error(error.kind(), message)
}

/// The argument that clap writes as `--api-key <API_KEY>`, here or in a subcommand.
fn find<'c>(command: &'c Command, usage: &str) -> Option<&'c Arg> {
    let name = usage.strip_prefix("--")?.split([' ', '=']).next()?;
    let here = command.get_arguments().find(|arg| arg.get_long() == Some(name));
    here.or_else(|| command.get_subcommands().find_map(|subcommand| find(subcommand, usage)))
}

/// The variables that set the argument.
fn variables(arg: &Arg, secrets: &Secrets) -> Option<String> {
    let name = arg.get_env()?.to_str()?;
    Some(match secrets.is_secret(arg) {
        true => format!("the variable {name}, or {name}{SUFFIX} with the path of a file"),
        false => format!("the variable {name}"),
    })
}
