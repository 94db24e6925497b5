//! Which settings does every service share, and where do they come from?
//!
//! [`ServerArgs`] is flattened into a service's own arguments; [`parse`] reads all of them from
//! flags, environment variables and a TOML file, in this order of precedence, before the defaults:
//!
//! ```no_run
//! use highwater::server::args::{self, ServerArgs};
//!
//! /// Serves greetings.
//! #[derive(clap::Parser)]
//! #[command(version)]
//! struct Args {
//!     /// Whom to greet
//!     #[arg(long, default_value = "world")]
//!     name: String,
//!     #[command(flatten)]
//!     server: ServerArgs,
//! }
//!
//! let args: Args = args::parse();
//! let config = args.server.config();
//! ```
//!
//! Every wrong setting ends the program with status 2 and a line that names the setting, its value,
//! where it came from, and what to write instead.
//!
//! The settings themselves are rows of one table: [`ServerConfig`]. `setting/` makes arguments
//! of them, and parses their values; `layers.rs` merges the sources, `profile.rs` finds the files, `file.rs` reads one, `secret.rs`
//! those of secrets; `idle.rs` finds settings without effect, `missing.rs` explains which are missing, and `source.rs` formats the messages about all of them.

mod file;
mod idle;
mod layers;
mod missing;
mod near;
mod profile;
mod secret;
mod source;
mod variable;

use std::ops::Deref;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, Error, FromArgMatches};

use super::config::ServerConfig;

pub use self::idle::Idle;
pub(super) use self::layers::read;
pub use self::layers::{parse, parse_checked, try_parse_checked_from, try_parse_from};
pub use super::setting::value::{address, address_or_off, duration, number, one_of, size};

/// The settings that every service shares: a [`ServerConfig`] that was read from the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerArgs(ServerConfig);

impl ServerArgs {
    /// All settings, as the server takes them.
    pub fn config(&self) -> ServerConfig {
        self.0.clone()
    }

    /// Takes the settings from `matches`; `None` if its command does not have them all, or a value is wrong.
    fn read(matches: &ArgMatches) -> Option<Self> {
        let mut args = ServerArgs::default();
        for setting in ServerConfig::settings() {
            let given = matches.try_get_many::<String>(setting.id).ok()?;
            let is_default = matches.value_source(setting.id) == Some(ValueSource::DefaultValue);
            for text in given.into_iter().flatten().filter(|_| !is_default) {
                setting.set(&mut args.0, text).ok()?;
                args.0.metrics_is_fixed |= setting.id == "metrics";
            }
        }
        Some(args)
    }
}

impl Deref for ServerArgs {
    type Target = ServerConfig;

    fn deref(&self) -> &ServerConfig {
        &self.0
    }
}

impl From<&ServerArgs> for ServerConfig {
    fn from(args: &ServerArgs) -> Self {
        args.config()
    }
}

impl clap::Args for ServerArgs {
    fn augment_args(command: Command) -> Command {
        let settings = ServerConfig::settings();
        command.args(settings.iter().map(|setting| setting.arg().help_heading("Server")))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ServerArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        Ok(Self::read(matches).expect("the command has all of them, and has checked their values"))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
