//! What the service writes to standard error, as its settings say.

mod service;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use highwater_testkit::PATIENCE;
use serde_json::Value;
use service::command;

/// What the service logs from its start until SIGTERM has ended it, line by line. If it logs, it is stopped once it serves:
/// its start can be ended, too, without a line about serving.
fn lines_of(flags: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    let data = tempfile::tempdir().expect("a temporary directory");
    let data = data.path().to_str().expect("a plain name");
    let own = [
        "--provider-url=http://127.0.0.1:9/",
        "--listen=127.0.0.1:0",
        "--metrics=off",
        "--workers=1",
    ];
    let mut server = command(&[&own[..], &["--data", data], flags].concat());
    server.env_remove("HIGHWATER_LOG").envs(variables.iter().copied());
    let server = server.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut server = server.spawn().expect("the binary starts");
    let mut stderr = BufReader::new(server.stderr.take().expect("it is piped"));
    let mut lines = Vec::new();
    if flags.contains(&"off") {
        wait_until_caught(&server);
    } else {
        while lines.last().is_none_or(|line: &String| !line.contains("serving")) {
            let mut line = String::new();
            assert_ne!(stderr.read_line(&mut line).expect("lines are text"), 0, "{lines:#?}");
            lines.push(line.trim_end().to_owned());
        }
    }
    let kill = format!("kill -TERM {}", server.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
    lines.extend(stderr.lines().map(|line| line.expect("lines are text")));
    assert_eq!(server.wait().expect("it is our child").code(), Some(0), "{lines:#?}");
    lines
}

/// Waits until SIGTERM would not kill the service.
fn wait_until_caught(server: &Child) {
    let status = format!("/proc/{}/status", server.id());
    let is_caught = || {
        let status = std::fs::read_to_string(&status).expect("we have not waited for it");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = u64::from_str_radix(mask.unwrap_or_default().trim(), 16);
        mask.is_ok_and(|mask| mask & 1 << (15 - 1) != 0)
    };
    let begun = Instant::now();
    while !is_caught() {
        assert!(begun.elapsed() < PATIENCE, "it does not start");
        std::thread::yield_now();
    }
}

/// Whether `text` is a time of this century as RFC 3339 writes it, in UTC and with milliseconds.
fn is_time(text: &str) -> bool {
    let shape = "20dd-dd-ddTdd:dd:dd.dddZ";
    let fits =
        |(shape, c): (char, char)| if shape == 'd' { c.is_ascii_digit() } else { shape == c };
    text.len() == shape.len() && shape.chars().zip(text.chars()).all(fits)
}

/// Purpose: text unless asked otherwise: time, level, message, and fields without needless quotes.
#[test]
fn text_is_for_people() {
    for flags in [&[][..], &["--log", "text"]] {
        let lines = lines_of(flags, &[]);
        for line in &lines {
            let (time, rest) = line.split_at_checked(24).unwrap_or_default();
            assert!(is_time(time), "{lines:#?}");
            assert!([" INFO  ", " WARN  "].contains(&&rest[..7]), "{lines:#?}");
        }
        let serving = |line: &&String| line[31..].starts_with("serving address=127.0.0.1:");
        let serving = lines.iter().find(serving).unwrap_or_else(|| panic!("{lines:#?}"));
        assert!(serving.contains(" workers=1 transport="), "{serving}");
        assert!(!serving.contains("metrics="), "there are none: {serving}");
        let stopping = " INFO  stopping signal=SIGTERM";
        assert!(lines.iter().any(|line| line.ends_with(stopping)), "{lines:#?}");
    }
}

/// Purpose: JSON is one object per line with the same in it, numbers as numbers; from a flag or a variable.
#[test]
fn json_is_for_machines() {
    let by_flag = lines_of(&["--log", "json"], &[]);
    let by_variable = lines_of(&[], &[("HIGHWATER_LOG", "json")]);
    for lines in [by_flag, by_variable] {
        let parse = |line: &String| serde_json::from_str::<Value>(line);
        let events: Vec<Value> = lines
            .iter()
            .map(|line| parse(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect();
        for event in &events {
            assert!(event["ts"].as_str().is_some_and(is_time), "{event}");
            assert!(event["level"] == "info" || event["level"] == "warn", "{event}");
        }
        let serving = events.iter().find(|event| event["msg"] == "serving");
        let serving = serving.unwrap_or_else(|| panic!("{lines:#?}"));
        assert!(serving["address"].as_str().is_some_and(|at| at.starts_with("127.0.0.1:")));
        assert_eq!(serving["workers"], 1);
        assert_eq!(serving.get("metrics"), None);
        let stopping = |event: &Value| event["msg"] == "stopping" && event["signal"] == "SIGTERM";
        assert!(events.iter().any(stopping), "{lines:#?}");
    }
}

/// Purpose: off is off, from the first line to the last.
#[test]
fn off_says_nothing() {
    assert_eq!(lines_of(&["--log", "off"], &[]), Vec::<String>::new());
}
