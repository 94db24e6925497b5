//! Command-line flags of the form `--name value` and `--switch`, enough for small programs.
//!
//! Never guesses: an unknown flag, a missing value or a value of the wrong kind is an error that
//! names the flag.

use std::env::Args;
use std::iter::{Peekable, Skip};
use std::process::ExitCode;
use std::str::FromStr;

/// The main function of `program`: prints `help` if nothing or `--help` is given, else runs with the arguments. An error is
/// printed, and the exit code is 2.
pub fn main(
    program: &str,
    help: &str,
    run: impl FnOnce(Peekable<Skip<Args>>) -> Result<(), String>,
) -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.peek().is_none_or(|first| first == "--help") {
        eprintln!("{help}");
        return ExitCode::SUCCESS;
    }
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{program}: {message}");
            ExitCode::from(2)
        }
    }
}

/// The flags given on a command line, checked against the names a program knows.
#[derive(Debug)]
pub struct Flags(Vec<(String, String)>);

impl Flags {
    /// Reads `arguments`. `options` take a value, `switches` do not; both are named without the
    /// leading dashes.
    ///
    /// # Errors
    /// A sentence for the user: what was given and what is known instead.
    pub fn parse(
        mut arguments: impl Iterator<Item = String>,
        options: &[&str],
        switches: &[&str],
    ) -> Result<Flags, String> {
        let mut given = Vec::new();
        while let Some(argument) = arguments.next() {
            let name = argument.strip_prefix("--").unwrap_or("");
            if switches.contains(&name) {
                given.push((name.to_owned(), String::new()));
            } else if options.contains(&name) {
                let value = arguments
                    .next()
                    .ok_or_else(|| format!("--{name} needs a value"))?;
                given.push((name.to_owned(), value));
            } else {
                return Err(format!(
                    "unknown argument '{argument}'; --help lists the flags"
                ));
            }
        }
        Ok(Flags(given))
    }

    /// Whether the switch `name` was given.
    pub fn switch(&self, name: &str) -> bool {
        self.0.iter().any(|(given, _)| given == name)
    }

    /// The value of `--name`, the last one if repeated, parsed; `default` if it was not given.
    ///
    /// # Errors
    /// The flag, the value and the kind of value expected.
    pub fn value<T: FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        match self.0.iter().rev().find(|(given, _)| given == name) {
            None => Ok(default),
            Some((_, value)) => value.parse().map_err(|_| {
                let kind = std::any::type_name::<T>();
                format!("--{name} {value}: not a valid {kind}")
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags, String> {
        Flags::parse(
            line.split_whitespace().map(str::to_owned),
            &["cpu", "path"],
            &["close"],
        )
    }

    /// Purpose: values, switches and defaults are told apart, and the last of a repeated flag wins.
    #[test]
    fn reads_values_and_switches() {
        let flags = parse("--cpu 1 --close --cpu 2").expect("every flag is known");
        assert!(flags.switch("close"));
        assert_eq!(flags.value("cpu", 0), Ok(2));
        assert_eq!(flags.value("path", "/".to_owned()), Ok("/".to_owned()));
    }

    /// Purpose: every mistake is reported with the flag it concerns.
    #[test]
    fn names_the_mistake() {
        let unknown = parse("--cup 1").expect_err("the flag is misspelt");
        assert!(unknown.contains("--cup"));
        let missing = parse("--cpu").expect_err("the value is missing");
        assert!(missing.contains("--cpu"));
        let flags = parse("--cpu one").expect("the name is known");
        let wrong = flags.value("cpu", 0u32).expect_err("not a number");
        assert!(wrong.contains("--cpu one"));
    }
}
