//! Which name was probably meant by one that is unknown?

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

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
