//! Which name was probably meant by one that is unknown?

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};

use super::secret::{SUFFIX, Secrets};
use super::source::shown_if_unknown;
use super::variable::{LISTEN, PREFIX};

/// The candidate that `name` was probably meant to be: one or two typos away, one in a short word.
pub(super) fn nearest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let slips_max = if name.len() <= 5 { 1 } else { 2 };
    let distance = |candidate| (strsim::levenshtein(name, candidate), candidate);
    let near = candidates.map(distance).min()?;
    (near.0 <= slips_max).then_some(near.1)
}

/// The address that is meant by a setting called `port`, which servers elsewhere have. `None` if the name is another one, or
/// the value is not a port: Kubernetes sets `HIGHWATER_PORT=tcp://10.0.0.1:80` for a service called `highwater`.
pub(super) fn meant_by_port(name: &str, value: &str) -> Option<String> {
    let port: u16 = value.parse().ok()?;
    name.eq_ignore_ascii_case("port").then(|| format!("127.0.0.1:{port}"))
}

/// Lets clap suggest `--listen` to a user who has written `--port`.
pub(super) fn suggest_listen(command: &Command, error: &mut Error) {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return };
    let is_port = error.kind() == ErrorKind::UnknownArgument && matches!(&**flag, "--port" | "-p");
    if is_port && command.get_arguments().any(|arg| arg.get_long() == Some("listen")) {
        error.insert(ContextKind::SuggestedArg, ContextValue::String("--listen".to_owned()));
    }
}

/// Refuses an unknown variable that looks like a misspelled one of ours, or that names a file for a setting which takes
/// none. Others with our prefix are left alone: Kubernetes makes some up after the names of services. So is one that means an
/// address to listen on where that has no effect, as the right variable would have none.
pub(super) fn refuse_near_misses(
    command: &mut Command,
    secrets: &Secrets,
    environment: &BTreeMap<OsString, OsString>,
    is_listen_used: bool,
) -> Result<(), Error> {
    let mut known: Vec<String> = secrets.variables().collect();
    collect_variables(command, &mut known);
    for (name, value) in environment {
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        let has = |wanted: &str| known.iter().any(|known| known == wanted);
        if has(name) {
            continue;
        }
        let (value, stem) = (value.to_string_lossy(), &name[PREFIX.len()..]);
        let direct = name.strip_suffix(SUFFIX).filter(|direct| has(direct));
        let address = meant_by_port(stem, &value).filter(|_| has(LISTEN));
        let near = nearest(stem, known.iter().filter_map(|known| known.strip_prefix(PREFIX)));
        let near = near.map(|near| format!("{PREFIX}{near}"));
        let means_listen = address.is_some() || [direct, near.as_deref()].contains(&Some(LISTEN));
        let message = match (direct, address, near) {
            _ if means_listen && !is_listen_used => continue,
            (Some(direct), ..) => format!(
                "unknown variable {name} (value {value:?}): only secrets can come from files; set {direct} instead"
            ),
            (None, Some(address), _) => format!(
                "unknown variable {name} (value {value:?}); did you mean {LISTEN}={address}?"
            ),
            (None, None, Some(near)) => {
                let shown = shown_if_unknown(&value, secrets.has(near.as_ref()));
                format!("unknown variable {name}{shown}; did you mean {near}?")
            }
            (None, None, None) => continue,
        };
        return Err(command.error(ErrorKind::UnknownArgument, message));
    }
    Ok(())
}

fn collect_variables(command: &Command, known: &mut Vec<String>) {
    let variables = command.get_arguments().filter_map(Arg::get_env);
    known.extend(variables.filter_map(OsStr::to_str).map(str::to_owned));
    for subcommand in command.get_subcommands() {
        collect_variables(subcommand, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: typos are recognised, other words are not.
    #[test]
    fn the_nearest_name_is_found() {
        let names = || ["listen", "header-max", "pin", "log", "workers"].into_iter();
        assert_eq!(nearest("lisen", names()), Some("listen"));
        assert_eq!(nearest("header-mx", names()), Some("header-max"));
        assert_eq!(nearest("pim", names()), Some("pin"));
        assert_eq!(nearest("port", names()), None);
        assert_eq!(nearest("service-host", names()), None);
        assert_eq!(nearest("", names()), None);
    }
}
