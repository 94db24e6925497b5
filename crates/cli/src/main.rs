//! The `highwater` command: tools to inspect this machine, load servers, measure and guard them, and run the
//! simulator.
#![forbid(unsafe_code)]

mod bench;
mod book;
mod doctor;
mod guard;
mod journal;
mod load;
mod output;
mod pgo;
mod profile;
mod progress;
mod scrape;
mod sim;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tools for the Highwater HTTP server framework.
#[derive(Debug, Parser)]
#[command(
    name = "highwater",
    version,
    after_help = "Examples:\n  \
        highwater bench run plan.toml\n  \
        highwater book check book --db records.sqlite\n  \
        highwater doctor\n  \
        highwater guard --port 80\n  \
        highwater journal tail -f data\n  \
        highwater load http://127.0.0.1:8080/\n  \
        highwater pgo run -p highwater-arena --plan bench/plans/pgo.toml\n  \
        highwater profile --pid 4711 --load http://127.0.0.1:8080/\n  \
        highwater sim --seeds 10000\n  \
        highwater sim --seed 42\n  \
        highwater top http://127.0.0.1:9090"
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Bench(bench::Args),
    Book(book::Args),
    Doctor(doctor::Args),
    Guard(Box<guard::Args>),
    Journal(journal::Args),
    Load(Box<load::Args>),
    Pgo(pgo::Args),
    Profile(profile::Args),
    Sim(sim::Args),
    Top(top::Args),
}

fn main() -> ExitCode {
    output::code(match Cli::parse().verb {
        Verb::Bench(args) => bench::run(&args),
        Verb::Book(args) => book::run(&args),
        Verb::Doctor(args) => doctor::run(&args),
        Verb::Guard(args) => guard::run(&args),
        Verb::Journal(args) => journal::run(&args),
        Verb::Load(args) => load::run(&args),
        Verb::Pgo(args) => pgo::run(&args),
        Verb::Profile(args) => profile::run(&args),
        Verb::Sim(args) => sim::run(&args),
        Verb::Top(args) => top::run(&args),
    })
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    use super::Cli;

    /// The width at which clap wraps help where no terminal is narrower.
    const WIDTH: usize = 100;

    fn look(command: &Command, path: &str) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in help.lines() {
            assert!(line.chars().count() <= WIDTH, "{path}: wrapped in the middle: {line}");
        }
        for verb in command.get_subcommands() {
            look(verb, &format!("{path} {}", verb.get_name()));
        }
    }

    fn look_for_statuses(command: &Command, path: &str) {
        let verbs: Vec<&Command> =
            command.get_subcommands().filter(|it| !it.is_hide_set()).collect();
        for verb in &verbs {
            look_for_statuses(verb, &format!("{path} {}", verb.get_name()));
        }
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(
            !verbs.is_empty() || help.contains("Exit status"),
            "{path}: no exit status in its help"
        );
    }

    /// Purpose: a script that calls a verb finds in its help what its exit statuses mean, as docs/tools.md says.
    #[test]
    fn every_verb_names_its_exit_statuses() {
        look_for_statuses(&Cli::command(), "highwater");
    }

    /// Purpose: examples can be copied from the help: clap would break a line that is too long, and the second half
    /// would be a command of its own.
    #[test]
    fn examples_stand_on_one_line() {
        look(&Cli::command(), "highwater");
    }
}
