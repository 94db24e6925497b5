//! Which source does each setting come from?
//!
//! A flag overrides a variable, which overrides the file, which overrides the default. Settings from variables and
//! the file are put in front of the command line as if they had been typed there, unless a source of higher
//! precedence has the same setting; then `clap` parses everything the same way, and its errors are reported
//! together with the source.
//!
//! The environment and the arguments are parameters, so that tests need no process of their own.
//!
//! Invariant: each setting has exactly one source by the time its value is parsed.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, Error, Parser};

use super::ServerArgs;
use super::file::{Entry, File};
use super::idle::Idle;
use super::missing;
use super::near::{meant_by_port, nearest, refuse_near_misses, suggest_listen};
use super::profile;
use super::secret::{Held, Secrets};
use super::source::{Source, message_about, refuse_bytes, shown, shown_if_unknown};
use super::variable::variable;
use crate::admission::{self, GateChoice, Limiter, Refuse, Shed};
use crate::choice::listed;
use crate::server::config::{ServerConfig, UNBELIEVED, clash};
use crate::server::listen;
use crate::server::listener::Listen;
use crate::server::setting::Setting;

/// Reads the program's settings from its flags, the environment and the file given to `--config`.
/// Ends the program on a mistake (status 2), after `--help` and after `--version` (status 0).
///
/// Every argument of `P` with a long name can be set in all three ways, under the same name:
/// `--idle-timeout 5s`, `HIGHWATER_IDLE_TIMEOUT=5s` (or the variable it names itself with
/// `#[arg(env)]`), `idle-timeout = "5s"`. Arguments of subcommands take no part in the file.
///
/// `--profile prod` also reads `config.prod.toml` beside `config.toml`, which it overrides. An argument with
/// `#[arg(env = "API_KEY", hide_env_values = true)]` is a secret: `API_KEY_FILE` may name a file that holds its value, and
/// messages do not show it.
pub fn parse<P: Parser>() -> P {
    parse_checked(|_| Vec::new())
}

/// Like [`parse`], and refuses the settings that `idle` names, if they were given: they have no
/// effect in combination with the others.
pub fn parse_checked<P: Parser>(idle: impl FnOnce(&P) -> Vec<Idle>) -> P {
    let parsed = try_parse_checked_from(env::args_os(), env::vars_os(), idle);
    parsed.unwrap_or_else(|error| error.exit())
}

/// Like [`parse`], from the given arguments (the first is the program's name) and environment.
///
/// # Errors
/// A mistake in any source, or a request for help or the version: both are printed, and the right
/// exit status chosen, by [`clap::Error::exit`].
pub fn try_parse_from<P: Parser>(
    args: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<P, Error> {
    try_parse_checked_from(args, environment, |_| Vec::new())
}

/// Like [`parse_checked`], from the given arguments and environment.
///
/// # Errors
/// Those of [`try_parse_from`], and a setting without effect.
pub fn try_parse_checked_from<P: Parser>(
    args: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    idle: impl FnOnce(&P) -> Vec<Idle>,
) -> Result<P, Error> {
    read(args, environment, idle, true)
}

/// The settings of a program that itself says where it listens unless `is_listen_used`: what they say about that is not
/// checked then, and what `ServerConfig::check_listeners` checks later is.
pub(in crate::server) fn read<P: Parser>(
    args: impl IntoIterator<Item = OsString>,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    idle: impl FnOnce(&P) -> Vec<Idle>,
    is_listen_used: bool,
) -> Result<P, Error> {
    let args: Vec<OsString> = args.into_iter().collect();
    let environment: BTreeMap<OsString, OsString> = environment.into_iter().collect();
    let command = named(P::command(), &args);
    let secrets = Secrets::of(&command, |arg| setting(arg).map(variable));
    let mut command = complete(command);
    refuse_near_misses(&mut command, &secrets, &environment, is_listen_used)?;

    let typed = match lenient(command.clone()).try_get_matches_from(&args) {
        Ok(matches) => matches,
        // A request for help or the version: this time with the names of the variables.
        Err(request) => return Err(command.try_get_matches_from(&args).err().unwrap_or(request)),
    };
    let files = profile::read(&mut command, &typed, &environment)?;
    secrets.lend(&mut command, &typed, &environment)?;
    let layers = Layers::merge(&mut command, &typed, &environment, &files, &secrets)?;

    let mut words = args.iter().take(1).cloned().collect::<Vec<_>>();
    words.extend(layers.words.iter().cloned());
    words.extend(args.iter().skip(1).cloned());
    let mut bare = without_variables(command.clone());
    let mut matches = bare.try_get_matches_from_mut(words).map_err(|error| {
        // Settings from variables come first, so clap would report the word as a conflict with their flags.
        match bare.clone().try_get_matches_from(&args) {
            Err(typed) if typed.kind() == ErrorKind::InvalidSubcommand => typed,
            _ => missing::explain(&mut command, &secrets, layers.explain(&mut bare, error)),
        }
    })?;
    let given = matches.clone();
    let mut idle_here = Vec::new();
    if let Some(server) = ServerArgs::read(&given) {
        if is_listen_used {
            layers.check_addresses(&mut bare, &server)?;
            layers.check_proxies(&mut bare, &server)?;
        }
        layers.check_limiter(&mut bare, &server)?;
        idle_here = idle_of_server(&server);
    }
    let parsed = P::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut bare))?;
    idle_here.extend(idle(&parsed));
    layers.refuse_idle(&mut bare, &given, idle_here)?;
    Ok(parsed)
}

/// The command under the name by which it was called, which clap itself would give it only later.
fn named(command: Command, args: &[OsString]) -> Command {
    let name = args.first().and_then(|program| Path::new(program).file_name()?.to_str());
    match (command.get_bin_name(), name) {
        (None, Some(name)) => command.bin_name(name),
        _ => command,
    }
}

/// Settings of the server that have no effect in combination with its others.
fn idle_of_server(server: &ServerConfig) -> Vec<Idle> {
    let mut idle = Vec::new();
    if server.tls_client_auth.is_some() && server.tls_client_ca.is_none() {
        let auth = "no client is asked for a certificate without --tls-client-ca; name the authorities of clients there, or \
                    leave this out";
        // From a variable, too: its author believes that clients without a certificate are kept out.
        idle.push(Idle::new("tls-client-auth", auth).from_anywhere());
    }
    let Some(shed @ (Shed::None | Shed::App | Shed::Accept)) = server.shed else {
        return idle;
    };
    let gate =
        format!("--shed {shed} has no gate in the kernel; use --shed kernel, or leave this out");
    // "auto" asks for nothing.
    if server.gate != GateChoice::Auto {
        idle.push(Idle::new("gate", gate));
    }
    if shed != Shed::Accept && server.refuse != Refuse::Auto {
        let refuse =
            format!("--shed {shed} decides what is refused; use another --shed, or leave it out");
        idle.push(Idle::new("refuse", refuse));
    }
    if shed == Shed::None {
        let limit = "--shed none has no limit; use another --shed, or leave this out";
        idle.push(Idle::new("limiter", limit));
        if server.connection_limit.is_some() {
            idle.push(Idle::new("connection-limit", limit));
        }
    }
    idle
}

/// Adds `--config`, and a variable to every setting that names none.
fn complete(command: Command) -> Command {
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(clap::value_parser!(PathBuf))
        .action(ArgAction::Set)
        .help("Read settings from this TOML file");
    let profile = Arg::new("profile")
        .long("profile")
        .value_name("NAME")
        .action(ArgAction::Set)
        .help("Also read the file of profile NAME beside that of --config, which it overrides: config.NAME.toml beside config.toml");
    let notes = notes(command.get_bin_name().unwrap_or(command.get_name()));
    let notes = match command.get_after_help() {
        Some(own) => format!("{own}\n\n{notes}"),
        None => notes,
    };
    command.arg(config).arg(profile).after_help(notes).mut_args(|arg| match setting(&arg) {
        Some(name) if arg.get_env().is_none() => {
            let variable = variable(name);
            arg.env(variable).hide_env(true)
        }
        Some(_) => arg.hide_env_values(true),
        None => arg,
    })
}

/// The text below the help of the program called `name`.
fn notes(name: &str) -> String {
    format!(
        "Every setting can also come from a variable, or from a key of the file given to --config. \
         A flag overrides a variable, which overrides the file. A secret can come from a file of its own: append \
         _FILE to the name of its variable, and set that to the path. These mean the same:\n\
         \n  {name} --config settings.toml    with the line: listen = \"0.0.0.0:8080\"\
         \n  HIGHWATER_LISTEN=0.0.0.0:8080 {name}\
         \n  {name} --listen 0.0.0.0:8080"
    )
}

/// The long name of an argument, if it is a setting and not a request such as `--help`.
fn setting(arg: &Arg) -> Option<&str> {
    use ArgAction::{Help, HelpLong, HelpShort, Version};
    let is_request = matches!(arg.get_action(), Help | HelpShort | HelpLong | Version);
    arg.get_long().filter(|_| !is_request)
}

/// The same command, blind to the environment: [`Layers`] looks there instead.
fn without_variables(command: Command) -> Command {
    command.mut_args(|arg| match setting(&arg) {
        Some(_) => arg.env(Resettable::Reset),
        None => arg,
    })
}

/// The same command, made to accept any input: it shows which settings were typed.
fn lenient(command: Command) -> Command {
    without_variables(command).ignore_errors(true).mut_args(|arg| match arg.get_action() {
        ArgAction::Set | ArgAction::Append => arg.value_parser(clap::value_parser!(OsString)),
        _ => arg,
    })
}

/// The settings from the environment and the file.
#[derive(Default)]
struct Layers {
    /// To be put in front of the command line.
    words: Vec<OsString>,
    /// Where the contributed settings come from, by long name.
    sources: BTreeMap<String, Source>,
    /// The settings whose values are not shown.
    hidden: BTreeSet<String>,
}

impl Layers {
    fn merge(
        command: &mut Command,
        typed: &ArgMatches,
        environment: &BTreeMap<OsString, OsString>,
        files: &[File],
        secrets: &Secrets,
    ) -> Result<Layers, Error> {
        let mut layers = Layers::default();
        for file in files {
            refuse_unknown_keys(command, secrets, file)?;
        }
        if typed.subcommand_name().is_some() && command.is_args_conflicts_with_subcommands_set() {
            return Ok(layers);
        }
        let settings: Vec<Arg> =
            command.get_arguments().filter(|arg| setting(arg).is_some()).cloned().collect();
        let hidden = settings.iter().filter(|arg| secrets.is_secret(arg)).filter_map(setting);
        layers.hidden = hidden.map(str::to_owned).collect();
        for arg in &settings {
            if typed.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine) {
                let mut values = typed.get_raw(arg.get_id().as_str()).into_iter().flatten();
                let of = (&Source::Flag, secrets.is_secret(arg));
                values
                    .try_for_each(|value| refuse_bytes(arg, value, of))
                    .map_err(|message| command.error(ErrorKind::InvalidUtf8, message))?;
                continue;
            }
            let variable = arg.get_env().and_then(|name| environment.get_key_value(name));
            let mut entries = files.iter().rev().filter_map(|file| file.entry(setting(arg)?));
            let held = secrets.held(arg, environment);
            let held =
                held.map_err(|message| command.error(ErrorKind::ValueValidation, message))?;
            let added = match (variable, held) {
                (Some((name, value)), _) => layers.add_variable(arg, name, value),
                (None, Some(Held { source, value })) => layers.add(arg, source, &[value.as_ref()]),
                (None, None) => match entries.next() {
                    Some(entry) => layers.add_entry(arg, entry, entries.next()),
                    None => Ok(()),
                },
            };
            added.map_err(|message| command.error(ErrorKind::ValueValidation, message))?;
        }
        Ok(layers)
    }

    /// Adds the setting of a variable. Those of the server that may be given several times are split at spaces: a flag can be
    /// repeated, and a file has lists, but there is one variable.
    fn add_variable(&mut self, arg: &Arg, name: &OsStr, value: &OsStr) -> Result<(), String> {
        let source = Source::Variable(name.to_string_lossy().into_owned());
        let is_list =
            |setting: &Setting<ServerConfig>| setting.is_list && arg.get_id() == setting.id;
        let texts = value.to_str().filter(|_| ServerConfig::settings().iter().any(is_list));
        let mut values: Vec<&OsStr> =
            texts.into_iter().flat_map(str::split_whitespace).map(OsStr::new).collect();
        if values.is_empty() {
            values.push(value); // An empty one is refused as a value.
        }
        self.add(arg, source, &values)
    }

    /// Adds the setting of a file, which may override that of another one.
    fn add_entry(
        &mut self,
        arg: &Arg,
        entry: &Entry,
        overridden: Option<&Entry>,
    ) -> Result<(), String> {
        let place = entry.place.clone();
        let source = match overridden {
            Some(base) => Source::Override { profile: place, base: base.place.clone() },
            None => Source::File(place),
        };
        if entry.is_array && !matches!(arg.get_action(), ArgAction::Append) {
            let values = format!("[{}]", entry.values.join(", "));
            return Err(message_about(
                &entry.key,
                shown(&values, self.hidden.contains(&entry.key)),
                &source,
                "takes one value; use one",
            ));
        }
        let values: Vec<&OsStr> = entry.values.iter().map(OsStr::new).collect();
        self.add(arg, source, &values)
    }

    fn add(&mut self, arg: &Arg, source: Source, values: &[&OsStr]) -> Result<(), String> {
        let name = setting(arg).expect("only settings are merged");
        for value in values {
            refuse_bytes(arg, value, (&source, self.hidden.contains(name)))?;
            match (arg.get_action(), value.to_str()) {
                (ArgAction::SetTrue, Some("true")) | (ArgAction::SetFalse, Some("false")) => {
                    self.words.push(format!("--{name}").into());
                }
                (ArgAction::SetTrue, Some("false")) | (ArgAction::SetFalse, Some("true")) => {}
                (ArgAction::SetTrue | ArgAction::SetFalse | ArgAction::Count, _) => {
                    let value = value.to_string_lossy();
                    return Err(message_about(
                        name,
                        &value,
                        &source,
                        "not a choice; use true or false",
                    ));
                }
                _ => {
                    let mut word = OsString::from(format!("--{name}="));
                    word.push(value);
                    self.words.push(word);
                }
            }
        }
        self.sources.insert(name.to_owned(), source);
        Ok(())
    }

    fn source(&self, name: &str) -> &Source {
        self.sources.get(name).unwrap_or(&Source::Flag)
    }

    /// Adds to the error about a wrong value where it was written. Other errors are left to clap.
    fn explain(&self, command: &mut Command, mut error: Error) -> Error {
        suggest_listen(command, &mut error);
        if !matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) {
            return error;
        }
        let context = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(text.as_str()),
            _ => None,
        };
        let named = context(ContextKind::InvalidArg).and_then(|arg| arg.strip_prefix("--"));
        let (Some(named), Some(value)) = (named, context(ContextKind::InvalidValue)) else {
            return error;
        };
        let name = named.split([' ', '=', '[']).next().unwrap_or(named);
        let remedy = match (error.get(ContextKind::ValidValue), std::error::Error::source(&error)) {
            (Some(ContextValue::Strings(valid)), _) if !valid.is_empty() => {
                let valid: Vec<&str> = valid.iter().map(String::as_str).collect();
                format!("not a choice; use {}", listed(&valid))
            }
            (_, Some(reason)) => reason.to_string(),
            _ => "a value is missing; --help says which".to_owned(),
        };
        let value = shown(value, self.hidden.contains(name));
        command.error(error.kind(), message_about(name, value, self.source(name), &remedy))
    }

    /// Two listeners on one address would share its connections at random.
    fn check_addresses(&self, command: &mut Command, server: &ServerConfig) -> Result<(), Error> {
        if let (true, Some(source)) = (server.listen.is_empty(), self.sources.get("listen")) {
            let remedy =
                "names no address; name one, such as \"127.0.0.1:8080\", or leave the key out";
            let message = format!("--listen [] (from {source}): {remedy}");
            return Err(command.error(ErrorKind::ValueValidation, message));
        }
        let first = [Listen::tcp(listen::DEFAULT)];
        let listen = if server.listen.is_empty() { &first } else { &server.listen[..] };
        let Some((address, is_twice)) = clash(listen, server.metrics) else { return Ok(()) };
        let (name, remedy) = match (is_twice, server.metrics_is_fixed) {
            (true, _) => ("listen", "listed twice; leave one out"),
            (_, true) => ("metrics", "the same as --listen; use another port, or --metrics off"),
            (_, false) => ("listen", "the same as --metrics; use another port, or --metrics off"),
        };
        let message = message_about(name, &address.to_string(), self.source(name), remedy);
        Err(command.error(ErrorKind::ValueValidation, message))
    }

    /// Either the operator knows the limit or an algorithm finds it.
    fn check_limiter(&self, command: &mut Command, server: &ServerConfig) -> Result<(), Error> {
        let checked = admission::check_limiter(server.limiter, server.connection_limit);
        let Err(remedy) = checked else { return Ok(()) };
        let name = server.limiter.map_or("fixed", Limiter::name);
        let message = message_about("limiter", name, self.source("limiter"), remedy);
        Err(command.error(ErrorKind::ValueValidation, message))
    }

    /// Headers of proxies count only from those that are trusted.
    fn check_proxies(&self, command: &mut Command, server: &ServerConfig) -> Result<(), Error> {
        let Some(listen) = server.unbelieved_listener() else { return Ok(()) };
        let message =
            message_about("listen", &listen.to_string(), self.source("listen"), UNBELIEVED);
        Err(command.error(ErrorKind::ValueValidation, message))
    }

    /// Refuses the first of `idle` that was given.
    fn refuse_idle(
        &self,
        command: &mut Command,
        given: &ArgMatches,
        idle: impl IntoIterator<Item = Idle>,
    ) -> Result<(), Error> {
        let complaint = |idle: Idle| idle.complaint(given, self.sources.get(idle.setting()));
        match idle.into_iter().find_map(complaint) {
            Some(message) => Err(command.error(ErrorKind::ArgumentConflict, message)),
            None => Ok(()),
        }
    }
}

fn refuse_unknown_keys(command: &mut Command, secrets: &Secrets, file: &File) -> Result<(), Error> {
    let known: Vec<String> = command
        .get_arguments()
        .filter_map(setting)
        .filter(|&name| name != "config" && name != "profile")
        .map(str::to_owned)
        .collect();
    let unknown = file.entries.iter().find(|entry| !known.contains(&entry.key));
    let Some(Entry { key, place, values, .. }) = unknown else { return Ok(()) };
    let near = nearest(&key.replace('_', "-"), known.iter().map(String::as_str));
    let listens = known.iter().any(|known| known == "listen");
    let address = values.first().and_then(|value| meant_by_port(key, value));
    let remedy = match (near, address) {
        (Some(near), _) => format!("did you mean {near}?"),
        (None, Some(address)) if listens => format!("did you mean listen = \"{address}\"?"),
        (None, _) => "the keys are the long names of the flags, which --help lists".to_owned(),
    };
    let meant = command.get_arguments().find(|arg| near.is_some() && setting(arg) == near);
    let shown =
        shown_if_unknown(&values.join(", "), meant.is_none_or(|arg| secrets.is_secret(arg)));
    let message = format!("{place}: unknown key {key}{shown}; {remedy}");
    Err(command.error(ErrorKind::UnknownArgument, message))
}
