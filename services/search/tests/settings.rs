//! Errors of the settings or the machine are reported at start, once, with the remedy.

mod service;

use std::path::Path;

use service::command;

/// Runs it to its end: exit status, and what it said.
fn run(args: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let output = command(args).envs(variables.iter().copied()).output().expect("the binary starts");
    (output.status.code(), String::from_utf8(output.stderr).expect("text"))
}

/// Purpose: a wrong flag, variable or file ends with status 2, and the message names the setting,
/// the value, and what to write instead.
#[test]
fn wrong_settings() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("settings.toml");
    std::fs::write(&file, "poll-interval = \"7\"\n").expect("writable");
    let file = file.to_str().expect("a plain name");
    let missing: &[&str] = &["--provider-url", "PROVIDER_URL", "--demo", "http://"];
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: [Case<'_>; 12] = [
        (&[], &[], missing),
        (&["--log=json"], &[], missing),
        (&["--provider-url=feed.xml"], &[], &["--provider-url", "feed.xml", "http://host"]),
        (&[], &[("PROVIDER_URL", "ftp://x")], &["PROVIDER_URL", "ftp://x", "http://host"]),
        (&["--demo", "--poll-interval=10ms"], &[], &["--poll-interval", "10ms", "1s to 24h"]),
        (&["--demo", "--config", file], &[], &["poll-interval", "7", "settings.toml:1", "5m"]),
        (&["--demo", "--store=sqlite"], &[], &["--store", "embedded", "postgres://"]),
        (&["--demo", "--workers=0"], &[], &["--workers", "0", "1 to 1024"]),
        (&["--demo", "--polls=1"], &[], &["--polls"]),
        (&["--demo", "--provider-url=http://a/"], &[], &["--provider-url", "http://a/", "--demo"]),
        (&["--demo", "--provider-ca=ca.pem"], &[], &["--provider-ca", "ca.pem", "leave one"]),
        (&["provider", "--fail-rate=2"], &[], &["--fail-rate", "2", "0 to 1"]),
    ];
    for (args, variables, words) in cases {
        let (status, text) = run(args, variables);
        assert_eq!(status, Some(2), "{args:?} {variables:?}: {text}");
        for word in words {
            assert!(text.contains(word), "{args:?} {variables:?}: no {word:?} in {text}");
        }
    }
}

/// Purpose: a data directory that cannot be used ends with status 1, names the path and the remedy,
/// and is left as it was.
#[test]
fn unusable_data() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let start = |data: &Path| {
        let data = data.to_str().expect("a plain name");
        run(
            &[
                "--provider-url=http://127.0.0.1:9/",
                "--listen=127.0.0.1:0",
                "--metrics=off",
                "--data",
                data,
            ],
            &[],
        )
    };
    let blocked = directory.path().join("file");
    std::fs::write(&blocked, "in the way").expect("writable");
    let (status, text) = start(&blocked);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("file") && text.contains("--data"), "{text}");

    let damaged = directory.path().join("search.db");
    let garbage =
        b"no database, and longer than the header of one would have to be by far".repeat(9);
    std::fs::write(&damaged, &garbage).expect("writable");
    let (status, text) = start(directory.path());
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("search.db is damaged"), "{text}");
    assert_eq!(std::fs::read(&damaged).expect("still there"), garbage);
}

/// Purpose: a port that is taken is named, and so is a file that is not there.
#[test]
fn unusable_machine() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path().to_str().expect("a plain name");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let listen = format!("--listen={address}");
    let url = "--provider-url=http://127.0.0.1:9/";
    let (status, text) = run(&[url, &listen, "--metrics=off", "--data", data], &[]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains(&address) && text.contains("another port"), "{text}");
    let (status, text) = run(&["provider", "--listen=127.0.0.1:0", "--file=/nowhere.xml"], &[]);
    assert_eq!(status, Some(1), "{text}");
    assert!(text.contains("--file") && text.contains("/nowhere.xml"), "{text}");
}

/// Purpose: help and version are asked for, not mistakes.
#[test]
fn help_and_version() {
    for (args, text) in [
        (&["--help"][..], "highwater-search provider --delay"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
        (&["provider", "--help"], "--truncate-rate"),
    ] {
        let output = command(args).output().expect("the binary starts");
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains(text), "{args:?}");
    }
}

/// Purpose: an address that cannot be listened on ends the service, and its feed, with what to write instead.
#[test]
fn wrong_addresses() {
    let data = tempfile::tempdir().expect("a temporary directory");
    let data = format!("--data={}", data.path().display());
    highwater_testkit::refuses_wrong_addresses(|address| {
        let listen = format!("--listen={address}");
        command(&["--provider-url=http://127.0.0.1:9/", "--metrics=off", &data, &listen])
    });
    highwater_testkit::refuses_wrong_addresses(|address| {
        command(&["provider", "--listen", address])
    });
}
