//! Which files hold settings? The one of `--config`, and beside it the one of `--profile`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{ArgMatches, Command, Error};

use super::file::{self, File};
use super::source::{Source, message_about};
use super::variable::variable;

/// The longest name of a profile, in bytes.
const NAME_BYTES_MAX: usize = 64;

type Environment = BTreeMap<OsString, OsString>;

/// Reads the file that `--config` or its variable names, and that of the profile: a later one overrides those before it.
///
/// # Errors
/// A file that cannot be read or is no table of settings, or a profile that no file can be of.
pub(super) fn read(
    command: &mut Command,
    typed: &ArgMatches,
    environment: &Environment,
) -> Result<Vec<File>, Error> {
    let config = given("config", typed, environment);
    let mut files = Vec::new();
    if let Some((path, source)) = &config {
        let read =
            read_file(Path::new(path), "config", path, source, "use the path of a TOML file");
        files.push(read.map_err(|(kind, message)| command.error(kind, message))?);
    }
    if let Some((name, source)) = given("profile", typed, environment) {
        let read = read_profile(&name, &source, config.as_ref().map(|(path, _)| Path::new(path)));
        files.push(read.map_err(|(kind, message)| command.error(kind, message))?);
    }
    Ok(files)
}

type Mistake = (ErrorKind, String);

fn read_profile(name: &OsStr, source: &Source, config: Option<&Path>) -> Result<File, Mistake> {
    let shown = name.to_string_lossy();
    let wrong = |remedy: &str| {
        (ErrorKind::ValueValidation, message_about("profile", &shown, source, remedy))
    };
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let bytes = name.as_encoded_bytes();
    if !(1..=NAME_BYTES_MAX).contains(&bytes.len()) || !bytes.iter().copied().all(is_allowed) {
        return Err(wrong("not the name of a profile; use letters, digits, - and _, at most 64"));
    }
    let config = config.ok_or_else(|| {
        wrong(
            "a profile overrides the file of --config, which is not set; add --config config.toml",
        )
    })?;
    let path = path_of(config, &shown);
    let remedy = format!(
        "make that file, which overrides {}, or leave --profile out; it may be empty",
        config.display()
    );
    read_file(&path, "profile", name, source, &remedy)
}

/// `config.prod.toml` beside `config.toml`.
fn path_of(config: &Path, profile: &str) -> PathBuf {
    let mut name = config.file_stem().unwrap_or_default().to_owned();
    name.push(".");
    name.push(profile);
    if let Some(extension) = config.extension() {
        name.push(".");
        name.push(extension);
    }
    config.with_file_name(name)
}

fn read_file(
    path: &Path,
    setting: &str,
    value: &OsStr,
    source: &Source,
    remedy: &str,
) -> Result<File, Mistake> {
    let text = file::read(path).map_err(|error| {
        // The path is the value of `--config`, and made of that of `--profile`.
        let which = match Path::new(value) == path {
            true => String::new(),
            false => format!("{} ", path.display()),
        };
        let remedy = format!("{which}cannot be read: {error}; {remedy}");
        (ErrorKind::Io, message_about(setting, &value.to_string_lossy(), source, &remedy))
    })?;
    File::parse(path, &text).map_err(|message| (ErrorKind::ValueValidation, message))
}

/// The value of a setting that says where settings are, and where it was given.
fn given(
    setting: &str,
    typed: &ArgMatches,
    environment: &Environment,
) -> Option<(OsString, Source)> {
    let flag = typed.get_one::<OsString>(setting).map(|value| (value.clone(), Source::Flag));
    flag.or_else(|| {
        let name = variable(setting);
        Some((environment.get(OsStr::new(&name))?.clone(), Source::Variable(name)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the profile's file stands beside the other one, whatever that is called.
    #[test]
    fn paths() {
        for (config, path) in [
            ("config.toml", "config.prod.toml"),
            ("/etc/app/app.toml", "/etc/app/app.prod.toml"),
            ("../a.b.toml", "../a.b.prod.toml"),
            ("settings", "settings.prod"),
        ] {
            assert_eq!(path_of(Path::new(config), "prod"), Path::new(path), "{config}");
        }
    }
}
