//! The sources of settings, as an operator meets them: arguments, variables and a file in, a
//! configuration or a message out.

mod listen;
mod sources;
mod table;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process};

use clap::{Parser, Subcommand};

use core::num::NonZeroUsize;
use core::time::Duration;

use highwater_core::http::Limits;

use super::*;
use crate::admission::{Fair, GateChoice, GateRefusal, Limiter, Refuse, Shed};
use crate::logging::LogFormat;
use crate::server::config::{ClientAuth, Pin, TlsMin, TransportChoice};
use crate::server::listener::Listen;

/// A service with settings of its own.
#[derive(Debug, Parser)]
#[command(name = "service", version = "1.2.3", args_conflicts_with_subcommands = true)]
struct Args {
    /// Whom to greet
    #[arg(long, default_value = "world")]
    name: String,
    /// Where from; there is no default
    #[arg(long, env = "PROVIDER_URL", required = true)]
    provider_url: Option<String>,
    /// How often
    #[arg(long, default_value = "5m", value_parser = duration(Duration::from_secs(1)..=Duration::from_secs(3600)))]
    poll_interval: Duration,
    /// Say less
    #[arg(long)]
    quiet: bool,
    /// Labels
    #[arg(long)]
    tag: Vec<String>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(subcommand)]
    command: Option<Task>,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Does something else
    Other {
        #[arg(long)]
        delay: Option<String>,
    },
}

/// A configuration file for the time of a test.
struct TempFile(PathBuf);

impl TempFile {
    fn new(text: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("highwater-args-{}-{number}.toml", process::id()));
        fs::write(&path, text).expect("the temporary directory takes a small file");
        TempFile(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("made of ASCII, but for the directory")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn run(args: &[&str], variables: &[(&str, &str)]) -> Result<Args, clap::Error> {
    let args = ["service"].iter().chain(args).map(OsString::from);
    try_parse_from(args, variables.iter().map(|&(name, value)| (name.into(), value.into())))
}

/// As [`run`], with the one setting that must be there.
fn given(args: &[&str], variables: &[(&str, &str)]) -> ServerArgs {
    let variables: Vec<_> =
        variables.iter().copied().chain([("PROVIDER_URL", "http://x")]).collect();
    run(args, &variables).unwrap_or_else(|error| panic!("{error}")).server
}

/// The first line of the complaint, after a check of the exit status.
fn complaint(args: &[&str], variables: &[(&str, &str)]) -> String {
    let error = run(args, variables).expect_err("it is wrong");
    assert_eq!(error.exit_code(), 2);
    assert!(error.use_stderr());
    let text = error.to_string();
    let first = text.lines().next().expect("a line");
    first.strip_prefix("error: ").unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// Purpose: the defaults that `--help` shows are those of a server without any flags.
#[test]
fn defaults_agree_with_the_server() {
    assert_eq!(given(&[], &[]).config(), ServerConfig::default());
    // But a port that was asked for by name is not replaced by another.
    let asked = given(&["--metrics", "127.0.0.1:9090"], &[]).config();
    assert_eq!(asked, ServerConfig { metrics_is_fixed: true, ..ServerConfig::default() });
}

/// Purpose: every flag reaches the configuration.
#[test]
fn every_flag_has_its_effect() {
    let args = "--listen [::1]:80 --tls-cert a.pem --tls-key a.key --tls-min 1.3 --tls-client-ca ca.pem --tls-client-auth optional --metrics off --workers 3 --transport uring --pin off \
                --connections-max 1000 --connections-per-client 20 --shed kernel --gate nft --gate-refusal drop --refuse connections --fair off --trusted-proxies 10.0.0.0/8,::1 --refuse-close on --unready-after 5s --connection-limit 64 \
                --limiter fixed --patience 2s --queue-target 20ms --deadline-max 5s --header-timeout 1s --body-timeout 2s --body-rate-min 0 \
                --idle-timeout 3m --write-timeout 4s --half-closed-timeout 6s --tcp-keep-alive off --header-max 1KiB --uri-max 100 \
                --body-max 1GiB --body-memory-max 2GiB --pool-threads 9 --max-requests-per-connection 5 --drain-timeout 0s --log json";
    let args: Vec<&str> = args.split_ascii_whitespace().collect();
    for setting in ServerConfig::settings() {
        let flag = format!("--{}", setting.name());
        assert!(args.contains(&&*flag), "{flag} is not tried here");
    }
    let expected = ServerConfig {
        listen: vec!["[::1]:80".parse().expect("an address")],
        tls_cert: vec!["a.pem".into()],
        tls_key: vec!["a.key".into()],
        tls_min: TlsMin::Tls13,
        tls_client_ca: Some("ca.pem".into()),
        tls_client_auth: Some(ClientAuth::Optional),
        inherited: true,
        metrics: None,
        metrics_is_fixed: true,
        workers: NonZeroUsize::new(3),
        transport: TransportChoice::Uring,
        pin: Pin::Off,
        connections_max: Some(1000),
        connections_per_client: Some(20),
        shed: Some(Shed::Kernel),
        gate: GateChoice::Nft,
        gate_refusal: GateRefusal::Drop,
        refuse: Refuse::Connections,
        fair: Fair::Off,
        trusted_proxies: "10.0.0.0/8,::1".parse().expect("a list"),
        refuse_close: true,
        unready_after: Some(Duration::from_secs(5)),
        connection_limit: Some(64),
        limiter: Some(Limiter::Fixed),
        patience: Duration::from_secs(2),
        queue_target: Duration::from_millis(20),
        deadline_max: Duration::from_secs(5),
        body_memory_max: Some(2 << 30),
        pool_threads: NonZeroUsize::new(9).expect("it is not zero"),
        limits: Limits {
            header_timeout: Duration::from_secs(1),
            body_timeout: Duration::from_secs(2),
            body_rate_min: 0,
            idle_timeout: Duration::from_secs(180),
            write_timeout: Duration::from_secs(4),
            half_closed_timeout: Duration::from_secs(6),
            header_max: 1024,
            uri_max: 100,
            body_max: 1 << 30,
            requests_max: 5,
            ..Limits::default()
        },
        tcp_keep_alive: None,
        drain_timeout: Duration::ZERO,
        log: LogFormat::Json,
    };
    assert_eq!(given(&args, &[]).config(), expected);

    let variables: Vec<(String, &str)> = args
        .chunks(2)
        .map(|pair| {
            (format!("HIGHWATER_{}", pair[0][2..].replace('-', "_").to_uppercase()), pair[1])
        })
        .collect();
    let variables: Vec<(&str, &str)> = variables.iter().map(|(n, v)| (n.as_str(), *v)).collect();
    assert_eq!(given(&[], &variables).config(), expected);

    let lines = args.chunks(2).map(|pair| format!("{} = \"{}\"\n", &pair[0][2..], pair[1]));
    let file = TempFile::new(&lines.collect::<String>());
    assert_eq!(given(&["--config", file.path()], &[]).config(), expected);
}

/// Purpose: a flag overrides a variable, which overrides the file, which overrides the default, for each setting.
#[test]
fn precedence_is_flag_variable_file_default() {
    let file = TempFile::new("idle-timeout = \"1s\"\nheader-timeout = \"1s\"\nworkers = 1\n");
    let variables = [
        ("HIGHWATER_CONFIG", file.path()),
        ("HIGHWATER_IDLE_TIMEOUT", "2s"),
        ("HIGHWATER_HEADER_TIMEOUT", "2s"),
    ];
    let server = given(&["--idle-timeout", "3s"], &variables);
    assert_eq!(server.limits.idle_timeout, Duration::from_secs(3));
    assert_eq!(server.limits.header_timeout, Duration::from_secs(2));
    assert_eq!(server.workers, NonZeroUsize::new(1));
    assert_eq!(server.limits.write_timeout, Duration::from_secs(30));

    let empty = TempFile::new("");
    let server = given(&["--config", empty.path()], &variables[..1]);
    assert_eq!(server.workers, None, "the flag names another file than the variable");
}

/// Purpose: a service's own settings have the same three sources, of whatever kind they are.
#[test]
fn a_services_own_settings_are_layered_too() {
    let file = TempFile::new(
        "provider-url = \"http://file\"\nquiet = true\ntag = [\"a\", \"b\"]\nname = \"file\"\n",
    );
    let config = ["--config", file.path()];
    let args = run(&config, &[("HIGHWATER_NAME", "variable")]).expect("it is right");
    assert_eq!((args.provider_url.as_deref(), args.quiet), (Some("http://file"), true));
    assert_eq!((args.name.as_str(), args.tag), ("variable", vec!["a".into(), "b".into()]));

    let variables = [("PROVIDER_URL", "http://variable"), ("HIGHWATER_QUIET", "false")];
    let args = run(&["--config", file.path(), "--tag=c"], &variables).expect("it is right");
    assert_eq!((args.provider_url.as_deref(), args.quiet), (Some("http://variable"), false));
    assert_eq!(args.tag, ["c"], "a better source replaces a list");
    assert_eq!(args.poll_interval, Duration::from_secs(300));
}

/// Purpose: a mistake is reported with the setting, the value, its source and the remedy, whichever source it
/// is.
#[test]
fn mistakes_name_setting_value_source_and_remedy() {
    let remedy = "too small; use 100ms to 1h, written like 250ms, 10s or 5m";
    assert_eq!(
        complaint(&["--header-timeout", "0s"], &[]),
        format!("--header-timeout \"0s\" (from a flag): {remedy}")
    );
    assert_eq!(
        complaint(&[], &[("HIGHWATER_HEADER_TIMEOUT", "0s")]),
        format!("--header-timeout \"0s\" (from variable HIGHWATER_HEADER_TIMEOUT): {remedy}")
    );
    let file = TempFile::new("# first\nheader-timeout = \"0s\"\n");
    assert_eq!(
        complaint(&["--config", file.path()], &[]),
        format!("--header-timeout \"0s\" (from {}:2): {remedy}", file.path())
    );
    assert_eq!(
        complaint(&["--header-timeout", "0s"], &[("HIGHWATER_HEADER_TIMEOUT", "5s")]),
        format!("--header-timeout \"0s\" (from a flag): {remedy}"),
        "a better source is not blamed on a lesser one"
    );
    assert_eq!(
        complaint(&["--transport=Epoll"], &[]),
        "--transport \"Epoll\" (from a flag): not a choice; use auto, uring, epoll or portable"
    );
    assert_eq!(
        complaint(&["--metrics=localhost:80"], &[]),
        "--metrics \"localhost:80\" (from a flag): a name is not an address; use 127.0.0.1:80, or off"
    );
    assert_eq!(
        complaint(&[], &[("HIGHWATER_WORKERS", "")]),
        "--workers \"\" (from variable HIGHWATER_WORKERS): not a whole number; use 1 to 1024"
    );
    assert_eq!(
        complaint(&["--listen", "localhost:80"], &[]),
        "--listen \"localhost:80\" (from a flag): a name is not an address; use 127.0.0.1:80"
    );
    assert_eq!(
        complaint(&[], &[("HIGHWATER_QUIET", "yes")]),
        "--quiet \"yes\" (from variable HIGHWATER_QUIET): not a choice; use true or false"
    );
}

/// Purpose: absurd values are refused, and the last sane ones are not.
#[test]
fn ranges_end_where_they_say() {
    for (flag, low, below, high, above) in [
        ("--header-max", "256", "255", "1MiB", "1048577"),
        ("--uri-max", "64", "63", "1MiB", "2MiB"),
        ("--body-max", "1", "0", "1GiB", "1073741825"),
        ("--header-timeout", "100ms", "99ms", "1h", "3600001ms"),
        ("--body-timeout", "100ms", "99ms", "1h", "3601s"),
        ("--write-timeout", "100ms", "0s", "1h", "61m"),
        ("--half-closed-timeout", "100ms", "99ms", "1h", "2h"),
        ("--tcp-keep-alive", "1s", "0s", "1h", "2h"),
        ("--idle-timeout", "100ms", "99ms", "24h", "25h"),
        ("--workers", "1", "0", "1024", "1025"),
        ("--connections-max", "1", "0", "16777216", "16777217"),
        ("--connections-per-client", "1", "0", "16777216", "16777217"),
        ("--connection-limit", "1", "0", "1048576", "1048577"),
        ("--max-requests-per-connection", "1", "0", "4294967295", "4294967296"),
    ] {
        given(&[flag, low], &[]);
        given(&[flag, high], &[]);
        for beyond in [below, above] {
            let message = complaint(&[flag, beyond], &[]);
            assert!(message.contains(&format!("use {low} to ")), "{message}");
        }
    }
    given(&["--drain-timeout", "0s"], &[]);
    complaint(&["--drain-timeout", "61m"], &[]);
    given(&["--body-rate-min", "0"], &[]);
    complaint(&["--body-rate-min", "1073741825"], &[]);
}

/// Purpose: a misspelled name is never silently ignored; the message suggests the right one.
#[test]
fn unknown_names_are_refused() {
    let file = TempFile::new("workers = 2\nheader_timeout = \"5s\"\n");
    assert_eq!(
        complaint(&["--config", file.path()], &[]),
        format!(
            "{}:2: unknown key header_timeout (value \"5s\"); did you mean header-timeout?",
            file.path()
        )
    );
    let file = TempFile::new("colour = 1\n");
    assert_eq!(
        complaint(&["--config", file.path()], &[]),
        format!(
            "{}:1: unknown key colour; the keys are the long names of the flags, \
             which --help lists",
            file.path()
        )
    );
    for key in ["config", "help", "version"] {
        let file = TempFile::new(&format!("{key} = \"x\"\n"));
        assert!(complaint(&["--config", file.path()], &[]).contains(&format!("unknown key {key}")));
    }
    assert_eq!(
        complaint(&[], &[("HIGHWATER_LISTN", "x")]),
        "unknown variable HIGHWATER_LISTN (value \"x\"); did you mean HIGHWATER_LISTEN?"
    );
    let kubernetes = [
        ("HIGHWATER_PORT", "tcp://10.0.0.1:80"),
        ("HIGHWATER_SERVICE_HOST", "10.0.0.1"),
        ("HIGHWATER_SEARCH_PORT_8080_TCP_PROTO", "tcp"),
    ];
    given(&[], &kubernetes);
    assert!(complaint(&["--lisen", "x"], &[]).contains("unexpected argument '--lisen'"));
}

/// Purpose: a file that cannot be read or parsed is reported with its path and line.
#[test]
fn bad_files_are_refused() {
    let message = complaint(&["--config", "/nonexistent.toml"], &[]);
    let expected = "--config \"/nonexistent.toml\" (from a flag): cannot be read: No such file";
    assert!(
        message.starts_with(expected) && message.contains("use the path of a TOML file"),
        "{message}"
    );
    let message = complaint(&[], &[("HIGHWATER_CONFIG", "/")]);
    assert!(
        message.starts_with("--config \"/\" (from variable HIGHWATER_CONFIG): cannot"),
        "{message}"
    );
    let file = TempFile::new("workers = 2\nlisten = 127.0.0.1\n");
    let message = complaint(&["--config", file.path()], &[]);
    assert!(message.starts_with(&format!("{}:2: not TOML: ", file.path())), "{message}");
    let file = TempFile::new("workers = [1, 2]\n");
    assert_eq!(
        complaint(&["--config", file.path()], &[]),
        format!("--workers \"[1, 2]\" (from {}:1): takes one value; use one", file.path())
    );
}

/// Purpose: help and version succeed, whatever else is wrong, and help names every source.
#[test]
fn help_and_version_are_printed() {
    let help = run(&["--help"], &[("HIGHWATER_WORKERS", "many")]).expect_err("help ends it");
    assert_eq!((help.exit_code(), help.use_stderr()), (0, false));
    // Where lines are wrapped depends on the terminal.
    let text = help.to_string().split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "--listen <ADDRESS[,OPTION]>",
        "--idle-timeout <TIME>",
        "HIGHWATER_LISTEN=0.0.0.0:8080 service",
        "[default: 60s]",
        "--config <FILE>",
        "[env: PROVIDER_URL]",
        "A flag overrides a variable",
    ] {
        assert!(text.contains(expected), "{expected} is missing from\n{text}");
    }
    let version = run(&["--version"], &[]).expect_err("the version ends it");
    assert_eq!((version.exit_code(), version.to_string().as_str()), (0, "service 1.2.3\n"));
}

/// Purpose: settings of the server in the environment do not stand in a subcommand's way.
#[test]
fn subcommands_are_left_alone() {
    let args = run(&["other", "--delay", "1s"], &[("HIGHWATER_LISTEN", "127.0.0.1:1")])
        .unwrap_or_else(|error| panic!("{error}"));
    let Some(Task::Other { delay }) = args.command else { panic!("a subcommand was given") };
    assert_eq!(delay.as_deref(), Some("1s"));
}

/// Purpose: a limit is either given or found; a contradiction is reported with the remedy.
#[test]
fn the_limiter_and_the_limit_must_agree() {
    assert_eq!(
        complaint(&["--limiter", "fixed"], &[("PROVIDER_URL", "x")]),
        "--limiter \"fixed\" (from a flag): does not find a limit; add --connection-limit N"
    );
    assert_eq!(
        complaint(
            &["--connection-limit", "5"],
            &[("PROVIDER_URL", "x"), ("HIGHWATER_LIMITER", "aimd")]
        ),
        "--limiter \"aimd\" (from variable HIGHWATER_LIMITER): finds the limit itself; leave \
         --connection-limit at auto, or use fixed"
    );
    assert_eq!(
        complaint(&["--connection-limit", "-5"], &[("PROVIDER_URL", "x")]),
        "--connection-limit \"-5\" (from a flag): not a whole number; use 1 to 1048576, or auto"
    );
    given(&["--limiter", "gradient"], &[]);
    given(&["--connection-limit", "5"], &[]);
    assert_eq!(given(&["--connection-limit", "auto"], &[]).connection_limit, None);
}

/// Purpose: a setting without effect in combination with the others is refused, and named with its value and its
/// source; a variable, which is set for other programs too, is ignored unless the service says otherwise.
#[test]
fn what_has_no_effect_is_refused() {
    let check = |args: &[&str], variables: &[(&str, &str)]| {
        let args = ["service"].iter().chain(args).map(OsString::from);
        let variables = [&[("PROVIDER_URL", "x")], variables].concat();
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        let idle = |args: &Args| match args.command {
            Some(_) => vec![Idle::new("delay", "nothing waits here; leave it out")],
            None if args.quiet => vec![
                Idle::new("name", "nobody is greeted; leave it out"),
                Idle::new("tag", "nothing is said; leave --quiet out").from_anywhere().secret(),
            ],
            None => Vec::new(),
        };
        let outcome = try_parse_checked_from::<Args>(args, variables, idle);
        outcome.map(drop).map_err(|error| {
            assert_eq!(error.exit_code(), 2);
            error.to_string().lines().next().expect("a line").to_owned()
        })
    };
    let file = TempFile::new("quiet = true\nname = \"you\"\n");
    for (args, variables, message) in [
        (
            &["--quiet", "--name", "me"][..],
            &[][..],
            "--name \"me\" (from a flag): has no effect: nobody is greeted; leave it out",
        ),
        (&["--quiet", "--name", "world"], &[], "--name \"world\" (from a flag): has no effect"),
        (&["--config", file.path()], &[], ".toml:2): has no effect: nobody is greeted"),
        (&["--quiet", "--tag=a"], &[], "--tag \"…\" (from a flag): has no effect: nothing is said"),
        (&["--quiet"], &[("HIGHWATER_TAG", "a")], "(from variable HIGHWATER_TAG): has no effect"),
        (&["other", "--delay", "1s"], &[], "--delay \"1s\" (from a flag): has no effect"),
        (
            &["--shed=none", "--limiter=aimd"],
            &[],
            "--limiter \"aimd\" (from a flag): has no effect",
        ),
        (&["--shed=none", "--connection-limit=5"], &[], "--connection-limit \"5\" (from a flag)"),
        (
            &["--shed=app", "--gate=nft"],
            &[],
            "--gate \"nft\" (from a flag): has no effect: --shed app",
        ),
        (&["--gate=ebpf"], &[("HIGHWATER_SHED", "accept")], "--shed accept has no gate"),
    ] {
        let complaint = check(args, variables).expect_err("it has no effect");
        assert!(complaint.contains(message), "{args:?}: {complaint}");
    }
    for (args, variables) in [
        (&["--quiet"][..], &[("HIGHWATER_NAME", "me")][..]),
        (&["--name", "me", "--tag=a"], &[]),
        (&["other"], &[("HIGHWATER_NAME", "me")]),
        (&["--shed=accept"], &[("HIGHWATER_GATE", "nft")]),
        (&["--shed=accept", "--gate=auto", "--limiter=aimd"], &[]),
        (&["--shed=none", "--connection-limit=auto"], &[]),
        (&["--gate=nft"], &[]),
    ] {
        check(args, variables).unwrap_or_else(|complaint| panic!("{args:?}: {complaint}"));
    }
}
