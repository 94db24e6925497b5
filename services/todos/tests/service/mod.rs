//! The real binary, and what only it has: its flags, and its tokens.
#![allow(dead_code, reason = "no test file uses all of it")]

use std::path::Path;
use std::process::Command;

use highwater_testkit::{Process, program};

/// What tokens are signed with in tests.
pub(crate) const SECRET: &str = "a secret of the tests, as long as one should be";
/// The same, as a setting.
pub(crate) const SECRET_FLAG: &str = "--jwt-secret=a secret of the tests, as long as one should be";

/// What would set something, or switch an engine.
const VARIABLES: [&str; 7] = [
    "DATABASE_URL",
    "REDIS_URL",
    "KAFKA_BROKERS",
    "KAFKA_TODO_TOPIC",
    "CACHE_TTL_SEC",
    "JWT_SECRET",
    "HIGHWATER_DATA",
];

/// The command, free of what the surroundings would set.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_highwater-todos"));
    VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.args(args);
    command
}

/// The service on this data. Whoever waits for a write to be applied waits long: the machine may be busy.
pub(crate) fn todos(data: &Path, more: &[&str]) -> Process {
    let data = data.to_str().expect("temporary directories have plain names");
    let mut args = vec![
        "--listen=127.0.0.1:0",
        "--metrics=127.0.0.1:0",
        "--workers=2",
        "--jwt-secret",
        SECRET,
    ];
    args.extend(["--data", data]);
    if !more.iter().any(|flag| flag.starts_with("--wait-max")) {
        args.push("--wait-max=40s");
    }
    args.extend(more);
    Process::start(&mut command(&args))
}

/// The header line of `user`, with a token that is valid for an hour.
pub(crate) fn as_user(user: &str) -> String {
    bearer(&highwater_todos::auth::issue(SECRET, user, now(), 3600.0))
}

/// The header line with this token.
pub(crate) fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// Now, in seconds since 1970.
pub(crate) fn now() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_secs_f64()
}
