//! Profiles, and secrets in files.

use super::*;

/// A service with a secret, at the top and in a subcommand.
#[derive(Debug, Parser)]
#[command(name = "service", args_conflicts_with_subcommands = true)]
struct Secretive {
    #[arg(long, env = "API_KEY", hide_env_values = true, value_parser = key)]
    api_key: Option<String>,
    #[arg(long, hide_env_values = true)]
    pepper: Option<String>,
    #[arg(long, default_value = "world")]
    name: String,
    #[command(subcommand)]
    command: Option<Sign>,
}

#[derive(Debug, Subcommand)]
enum Sign {
    /// Signs something
    Sign {
        #[arg(long, env = "API_KEY", hide_env_values = true, required = true)]
        api_key: Option<String>,
    },
}

/// A service that cannot run without these.
#[derive(Debug, Parser)]
#[command(name = "service")]
struct Demanding {
    #[arg(long)]
    database: String,
    #[arg(long, env = "API_KEY", hide_env_values = true)]
    api_key: String,
}

fn key(text: &str) -> Result<String, String> {
    match text.len() {
        4.. => Ok(text.to_owned()),
        _ => Err("too short; use one of at least 4 letters".into()),
    }
}

fn secretive(args: &[&str], variables: &[(&str, &str)]) -> Result<Secretive, String> {
    let args = ["service"].iter().chain(args).map(OsString::from);
    let variables = variables.iter().map(|&(name, value)| (name.into(), value.into()));
    try_parse_from::<Secretive>(args, variables).map_err(|error| {
        assert_eq!(error.exit_code(), 2);
        error.to_string().lines().next().unwrap_or_default().to_owned()
    })
}

/// Purpose: a file holds a secret as well as a variable does, for settings with and without a variable of their own, and for
/// the subcommand that is run; one line end behind it is not a part of it.
#[test]
fn secrets_in_files() {
    for (text, value) in [
        ("sesame", "sesame"),
        ("sesame\n", "sesame"),
        ("sesame\r\n", "sesame"),
        ("sesame\n\n", "sesame\n"),
        (" sesame ", " sesame "),
    ] {
        let file = TempFile::new(text);
        let args = secretive(&[], &[("API_KEY_FILE", file.path())]).expect("it is right");
        assert_eq!(args.api_key.as_deref(), Some(value));
        let args = secretive(&[], &[("HIGHWATER_PEPPER_FILE", file.path())]).expect("it is right");
        assert_eq!(args.pepper.as_deref(), Some(value));
        let args = secretive(&["sign"], &[("API_KEY_FILE", file.path())]).expect("it is right");
        assert!(
            matches!(args.command, Some(Sign::Sign { api_key }) if api_key.as_deref() == Some(value))
        );
    }
    let file = TempFile::new("sesame");
    let args = secretive(&["--api-key", "flagged"], &[("API_KEY_FILE", file.path())]);
    assert_eq!(args.expect("it is right").api_key.as_deref(), Some("flagged"), "a flag wins");
}

/// Purpose: a secret from two places, from no file or from one that holds a wrong value is refused with what to do, and no
/// message shows it.
#[test]
fn secrets_that_are_refused() {
    let file = TempFile::new("abc\n");
    let path = file.path();
    let both = "error: API_KEY and API_KEY_FILE are both set; unset one of them";
    let variables = [("API_KEY", "sesame"), ("API_KEY_FILE", path)];
    assert_eq!(secretive(&[], &variables).expect_err("one too many"), both);
    assert_eq!(secretive(&["sign"], &variables).expect_err("one too many"), both);
    for (gone, why) in
        [("/nonexistent", "No such file"), ("/", "Is a directory"), ("", "No such file")]
    {
        let message = secretive(&[], &[("API_KEY_FILE", gone)]).expect_err("there is no file");
        let begin =
            format!("error: the file {gone:?} (from variable API_KEY_FILE) cannot be read: {why}");
        assert!(message.starts_with(&begin), "{message}");
        assert!(
            message.ends_with("use the path of a file with the value, or set API_KEY instead"),
            "{message}"
        );
    }
    let message = secretive(&[], &[("API_KEY_FILE", path)]).expect_err("it is too short");
    let place = format!("(from {path}, which variable API_KEY_FILE names)");
    assert_eq!(
        message,
        format!("error: --api-key \"…\" {place}: too short; use one of at least 4 letters")
    );
    let message = secretive(&[], &[("API_KEY", "abc")]).expect_err("it is too short");
    assert!(message.starts_with("error: --api-key \"…\" (from variable API_KEY): "), "{message}");
    // The message about a misspelt name suggests the right one.
    let args = secretive(&[], &[("HIGHWATER_PEPER_FILE", path)]).expect_err("it is misspelt");
    assert!(args.contains("did you mean HIGHWATER_PEPPER_FILE?"), "{args}");
}

/// Purpose: a variable that names a file for a setting that is not a secret is refused, and the message names the right variable.
#[test]
fn only_secrets_come_from_files() {
    for (name, value, direct) in [
        ("HIGHWATER_LISTEN_FILE", "/nope", "HIGHWATER_LISTEN"),
        ("HIGHWATER_TLS_KEY_FILE", "x", "HIGHWATER_TLS_KEY"),
        ("HIGHWATER_CONFIG_FILE", "a.toml", "HIGHWATER_CONFIG"),
        ("HIGHWATER_NAME_FILE", "", "HIGHWATER_NAME"),
    ] {
        assert_eq!(
            complaint(&[], &[("PROVIDER_URL", "x"), (name, value)]),
            format!(
                "unknown variable {name} (value {value:?}): only secrets can come from files; set {direct} instead"
            )
        );
    }
    given(&[], &[("HIGHWATER_SERVICE_FILE", "x")]); // It has our prefix, and no setting's name.
}

/// Purpose: TLS without the authorities of clients is not what somebody wants who says how clients prove themselves: from
/// each source that is an error, not a server which lets everybody in.
#[test]
fn client_auth_needs_an_authority() {
    let remedy = "has no effect: no client is asked for a certificate without --tls-client-ca; name the authorities of \
                  clients there, or leave this out";
    let required = ("PROVIDER_URL", "x");
    for value in ["required", "optional"] {
        assert_eq!(
            complaint(&["--tls-client-auth", value], &[required]),
            format!("--tls-client-auth {value:?} (from a flag): {remedy}")
        );
        assert_eq!(
            complaint(&[], &[required, ("HIGHWATER_TLS_CLIENT_AUTH", value)]),
            format!(
                "--tls-client-auth {value:?} (from variable HIGHWATER_TLS_CLIENT_AUTH): {remedy}"
            )
        );
        let file = TempFile::new(&format!("tls-client-auth = {value:?}\n"));
        assert_eq!(
            complaint(&["--config", file.path()], &[required]),
            format!("--tls-client-auth {value:?} (from {}:1): {remedy}", file.path())
        );
        given(&["--tls-client-auth", value, "--tls-client-ca", "ca.pem"], &[]);
    }
}

/// A file of settings, and those of profiles beside it, for the time of a test.
fn files(base: &str, profiles: &[(&str, &str)]) -> (TempFile, Vec<TempFile>) {
    let file = TempFile::new(base);
    let beside = |&(name, text): &(&str, &str)| {
        let path = file.0.with_extension(format!("{name}.toml"));
        fs::write(&path, text).expect("the temporary directory takes a small file");
        TempFile(path)
    };
    let others = profiles.iter().map(beside).collect();
    (file, others)
}

/// Purpose: the file of a profile overrides the other one, setting by setting, and flags and variables override both.
#[test]
fn profiles() {
    let base = "name = \"all\"\nworkers = 2\nprovider-url = \"http://x\"\n";
    let (file, _others) = files(base, &[("prod", "workers = 8\n"), ("dev", "")]);
    let config = ["--config", file.path()];
    let with = |more: &[&str], variables: &[(&str, &str)]| {
        let args: Vec<&str> = config.iter().chain(more).copied().collect();
        run(&args, variables).unwrap_or_else(|error| panic!("{error}"))
    };
    let workers = |args: &Args| args.server.workers.map(NonZeroUsize::get);
    for (more, variables, count) in [
        (&[][..], &[][..], 2),
        (&["--profile", "prod"], &[], 8),
        (&["--profile", "dev"], &[], 2),
        (&[], &[("HIGHWATER_PROFILE", "prod")], 8),
        (&["--profile", "dev"], &[("HIGHWATER_PROFILE", "prod")], 2),
        (&["--profile", "prod"], &[("HIGHWATER_WORKERS", "5")], 5),
        (&["--profile", "prod", "--workers", "6"], &[("HIGHWATER_WORKERS", "5")], 6),
    ] {
        let args = with(more, variables);
        assert_eq!((workers(&args), &*args.name), (Some(count), "all"), "{more:?} {variables:?}");
    }
}

/// Purpose: a mistake names the file that it stands in, the one that it overrides, and a profile that has no file.
#[test]
fn mistakes_in_profiles() {
    let (file, others) =
        files("name = \"a\"\nworkers = 2\n", &[("prod", "\nworkers = 0\n"), ("odd", "wokers = 1")]);
    let (path, prod, odd) = (file.path(), others[0].path(), others[1].path());
    let config = |profile| complaint(&["--config", path, "--profile", profile], &[]);
    let message = config("prod");
    let place = format!("--workers \"0\" (from {prod}:2, which overrides {path}:2): ");
    assert!(message.starts_with(&place), "{message}");
    let message = config("odd");
    assert!(message.starts_with(&format!("{odd}:1: unknown key wokers")), "{message}");
    let message = config("test");
    let gone = path.replace(".toml", ".test.toml");
    let begin = format!("--profile \"test\" (from a flag): {gone} cannot be read: No such file");
    assert!(message.starts_with(&begin), "{message}");
    assert!(
        message
            .contains(&format!("make that file, which overrides {path}, or leave --profile out"))
    );
    for name in ["", "../prod", "a.b", &"a".repeat(65)] {
        assert!(config(name).contains("not the name of a profile"), "{name}");
    }
    let message = complaint(&["--profile", "prod"], &[]);
    assert!(
        message.starts_with(
            "--profile \"prod\" (from a flag): a profile overrides the file of --config"
        ),
        "{message}"
    );
    let message = complaint(&[], &[("HIGHWATER_PROFILE", "prod")]);
    assert!(
        message.starts_with("--profile \"prod\" (from variable HIGHWATER_PROFILE)"),
        "{message}"
    );
    for key in ["config", "profile"] {
        let within = TempFile::new(&format!("{key} = \"x\""));
        assert!(
            complaint(&["--config", within.path()], &[]).contains(&format!("unknown key {key}"))
        );
    }
}

/// Purpose: who forgets a setting learns of all of its sources, under the name of the program as it was called.
#[test]
fn required_settings() {
    let complain = |args: &[&str]| {
        let args = ["/usr/bin/shop"].iter().chain(args).map(OsString::from);
        let error = try_parse_from::<Demanding>(args, []).expect_err("two are missing");
        error.to_string()
    };
    let message = complain(&[]);
    assert!(
        message.starts_with(
            "error: required settings are missing:\n  --database <DATABASE>, or the variable HIGHWATER_DATABASE\n  \
             --api-key <API_KEY>, or the variable API_KEY, or API_KEY_FILE with the path of a file\n"
        ),
        "{message}"
    );
    assert!(message.contains("Usage: shop "), "{message}");
    let message = complain(&["--database", "x"]);
    assert!(message.starts_with("error: a required setting is missing:\n  --api-key"), "{message}");
    let message = complain(&["--database", "x", "--api-key", "x", "--profile", "prod"]);
    assert!(message.contains("Usage: shop "), "{message}");
    assert!(complain(&["--help"]).contains("  HIGHWATER_LISTEN=0.0.0.0:8080 shop"));
}

/// Purpose: the value of a secret whose name is misspelt is not logged.
#[test]
fn misspelt_secrets_are_not_shown() {
    let message = secretive(&[], &[("HIGHWATER_PEPER", "sesame")]).expect_err("it is misspelt");
    assert_eq!(message, "error: unknown variable HIGHWATER_PEPER; did you mean HIGHWATER_PEPPER?");
    let message = secretive(&[], &[("HIGHWATER_NAMES", "you")]).expect_err("it is misspelt");
    assert!(message.contains("HIGHWATER_NAMES (value \"you\")"), "{message}");
    for (line, remedy) in [
        ("peper = \"sesame\"", "did you mean pepper?"),
        ("api_key = \"sesame\"", "did you mean api-key?"),
        ("password = \"sesame\"", "the keys are the long names"),
    ] {
        let file = TempFile::new(line);
        let message = secretive(&["--config", file.path()], &[]).expect_err("it is misspelt");
        assert!(message.contains(remedy) && !message.contains("sesame"), "{message}");
    }
}

/// Purpose: a secret that is no text, or one of several in a file, is not shown either.
#[test]
#[cfg(unix)]
fn malformed_secrets_are_not_shown() {
    use std::os::unix::ffi::OsStringExt;
    let wrong = |before: &str| OsString::from_vec([before.as_bytes(), b"sesame\xff"].concat());
    let message = |args: Vec<OsString>, variables: Vec<(OsString, OsString)>| {
        let error = try_parse_from::<Secretive>(args, variables).expect_err("it is no text");
        error.to_string().lines().next().unwrap_or_default().to_owned()
    };
    let refused = "not UTF-8; write it as text";
    assert_eq!(
        message(vec!["service".into()], vec![("API_KEY".into(), wrong(""))]),
        format!("error: --api-key \"…\" (from variable API_KEY): {refused}")
    );
    assert_eq!(
        message(vec!["service".into(), wrong("--pepper=")], vec![]),
        format!("error: --pepper \"…\" (from a flag): {refused}")
    );
    let file = TempFile::new("pepper = [\"sesame\", \"b\"]");
    let message = secretive(&["--config", file.path()], &[]).expect_err("it is one too many");
    assert!(message.contains("--pepper \"…\"") && !message.contains("sesame"), "{message}");
}

/// Purpose: a value that is no text is refused with its setting and its source; a path may be any bytes.
#[test]
#[cfg(unix)]
fn values_that_are_no_text() {
    use std::os::unix::ffi::OsStringExt;
    let wrong = || OsString::from_vec(b"4\xff".to_vec());
    let flag = || OsString::from_vec(b"--workers=4\xff".to_vec());
    let url = ("PROVIDER_URL".into(), "x".into());
    let message = |args: Vec<OsString>, variables: Vec<(OsString, OsString)>| {
        let error = try_parse_from::<Args>(args, variables).expect_err("it is no text");
        error.to_string().lines().next().unwrap_or_default().to_owned()
    };
    let shown = "error: --workers \"4\u{fffd}\" (from";
    assert_eq!(
        message(vec!["service".into()], vec![url.clone(), ("HIGHWATER_WORKERS".into(), wrong())]),
        format!("{shown} variable HIGHWATER_WORKERS): not UTF-8; write it as text")
    );
    assert_eq!(
        message(vec!["service".into(), flag()], vec![url.clone()]),
        format!("{shown} a flag): not UTF-8; write it as text")
    );
    let variables = vec![url, ("HIGHWATER_CONFIG".into(), wrong())];
    let message = message(vec!["service".into()], variables);
    assert!(message.contains("No such file"), "a path may be any bytes: {message}");
}
