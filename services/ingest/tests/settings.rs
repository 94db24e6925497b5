//! Settings that are wrong, or wrong together, are said at start, once, with the remedy.

mod gateway;

use gateway::{command, gateway, record};

/// Runs it to its end: exit status, and what it said.
fn run(args: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String) {
    let output = command(args).envs(variables.iter().copied()).output().expect("the binary starts");
    (output.status.code(), String::from_utf8(output.stderr).expect("text"))
}

/// Purpose: a wrong setting, and settings that contradict each other, end with status 2, and the message names the
/// setting, the value, and what to write instead.
#[test]
fn wrong_settings() {
    type Case<'a> = (&'a [&'a str], &'a [&'a str]);
    let kafka = "--kafka-brokers=127.0.0.1:9";
    let cases: [Case<'_>; 19] = [
        (&["--ack=disk", "--sink=null"], &["--ack disk", "--sink null", "--ack memory"]),
        (&["--ack=kafka"], &["--ack kafka", "--sink journal", "--sink kafka"]),
        (&["--ack=kafka", "--sink=null"], &["--ack kafka", "--sink null", "--ack disk"]),
        (&["--sink=kafka"], &["--sink kafka", "--kafka-brokers 10.0.0.1:9092"]),
        (&["--ack=kafka", "--sink=kafka"], &["--kafka-brokers 10.0.0.1:9092"]),
        (&["--ack=both"], &["--ack", "both", "memory", "kafka"]),
        (&["--sink=file"], &["--sink", "file", "journal"]),
        (
            &["--sink=kafka", "--kafka-brokers=nowhere"],
            &["--kafka-brokers", "nowhere", "host:port"],
        ),
        (&["--sink=kafka", "--kafka-brokers=a:1,b:99999"], &["b:99999", "host:port"]),
        (&["--sink=kafka", kafka, "--topic=a b"], &["--topic", "a b", "letters"]),
        (&["--sink=kafka", kafka, "--kafka-property=acks"], &["acks", "NAME=VALUE"]),
        (&["--sink=kafka", kafka, "--kafka-property=acks=1"], &["acks", "remove it"]),
        (&["--partitions=0"], &["--partitions", "0", "1 to 65536"]),
        (&["--batch-bytes=1"], &["--batch-bytes", "1", "1KiB"]),
        (&["--ack=disk", "--linger=6s"], &["--linger 6s", "--ack-timeout 5s", "shorter"]),
        (&["--linger=1h"], &["--linger", "1h", "10s"]),
        (&["--ack-timeout=0ms"], &["--ack-timeout", "0ms", "100ms"]),
        (&["--body-max=64MiB"], &["--body-max", "67108864", "32MiB"]),
        (&["--memory-max=1MiB"], &["--memory-max", "1048576", "2162688 or more"]),
    ];
    for (args, expected) in cases {
        let args =
            [args, &["--listen=127.0.0.1:0", "--metrics=off", "--data=/nowhere/at/all"]].concat();
        let (status, text) = run(&args, &[]);
        assert_eq!(status, Some(2), "{args:?}: {text}");
        for word in expected {
            assert!(text.contains(word), "{args:?}: no {word:?} in {text}");
        }
    }
    let (status, text) = run(&["--sink=kafka"], &[("KAFKA_BROKERS", "x")]);
    assert_eq!(status, Some(2), "{text}");
    assert!(text.contains("KAFKA_BROKERS") && text.contains("host:port"), "{text}");
}

/// Purpose: a setting that would be ignored beside the others is refused, not ignored: whoever names brokers believes that
/// records go there. The message names the setting, its value, where it was said, and what to write instead; what may hold
/// a password is not repeated. A flag, a variable and a line of the file count alike.
#[test]
fn settings_without_effect() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("settings.toml");
    std::fs::write(&file, "sink = \"null\"\ntopic = \"t\"\n").expect("writable");
    let config = format!("--config={}", file.display());
    let kafka = "--kafka-brokers=10.0.0.1:9";
    type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a [&'a str]);
    let cases: [Case<'_>; 13] = [
        (&[kafka], &[], &["--kafka-brokers \"10.0.0.1:9\"", "--sink journal", "--sink kafka"]),
        (&["--sink=null", kafka], &[], &["--kafka-brokers", "--sink null", "--sink kafka"]),
        (&[], &[("KAFKA_BROKERS", "a:1,b:2")], &["a:1,b:2", "KAFKA_BROKERS", "--sink kafka"]),
        (&["--sink=null"], &[("KAFKA_BROKERS", "a:1")], &["KAFKA_BROKERS", "--sink null"]),
        (&["--topic=events"], &[], &["--topic \"events\"", "a flag", "--sink kafka"]),
        (&[], &[("HIGHWATER_TOPIC", "t")], &["--topic \"t\"", "HIGHWATER_TOPIC", "--sink kafka"]),
        (&[&config], &[], &["--topic \"t\"", "settings.toml:2", "--sink kafka"]),
        (&["--kafka-property=sasl.password=x7"], &[], &["--kafka-property", "--sink kafka"]),
        (&["--sink=null", "--retain-age=1h"], &[], &["--retain-age \"1h\"", "--sink journal"]),
        (&["--sink=kafka", kafka, "--retain-bytes=1GiB"], &[], &["--retain-bytes", "--sink kafka"]),
        (&["--sink=null"], &[("HIGHWATER_RETAIN_AGE", "1h")], &["HIGHWATER_RETAIN_AGE", "leave"]),
        (&["--sink=null", "--data-max=1GiB"], &[], &["--data-max \"1GiB\"", "no journal"]),
        (
            &["--sink=kafka", kafka, "--ack=kafka", "--data-max=1GiB"],
            &[],
            &["--ack kafka", "leave"],
        ),
    ];
    for (args, variables, expected) in cases {
        let all =
            [args, &["--listen=127.0.0.1:0", "--metrics=off", "--data=/nowhere/at/all"]].concat();
        let (status, text) = run(&all, variables);
        assert_eq!(status, Some(2), "{args:?} {variables:?}: {text}");
        assert!(!text.contains("x7"), "a password: {text}");
        for word in expected {
            assert!(text.contains(word), "{args:?} {variables:?}: no {word:?} in {text}");
        }
    }
}

/// Purpose: a data directory that another process uses is refused by its name and that process's number, and the other
/// one serves on; one that is not a directory is refused as well.
#[test]
fn unusable_data() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path().join("data");
    let first = gateway(&data, &["--ack=disk"]);
    let path = data.to_str().expect("a plain name");
    let second = |ack: &str, path: &str| {
        run(&[ack, "--listen=127.0.0.1:0", "--metrics=off", "--data", path], &[])
    };
    for ack in ["--ack=disk", "--ack=memory"] {
        let (status, text) = second(ack, path);
        assert_eq!(status, Some(1), "{text}");
        for word in ["--data", path, "in use by process", "give another"] {
            assert!(text.contains(word), "no {word:?} in {text}");
        }
    }
    assert_eq!(first.ask(record(b"x")).status, 202);
    first.stop();

    let file = directory.path().join("file");
    std::fs::write(&file, "in the way").expect("writable");
    let path = file.to_str().expect("a plain name");
    let (status, text) = second("--ack=disk", path);
    assert_eq!(status, Some(1), "{text}");
    for word in ["--data", path, "not a directory", "give --data a directory"] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
}

/// Purpose: help and version are asked for, not mistakes, and help shows how to begin.
#[test]
fn help_and_version() {
    for (args, expected) in [
        (&["--help"][..], "highwater-ingest --ack memory --sink null"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
    ] {
        let output = command(args).output().expect("the binary starts");
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stdout).contains(expected), "{args:?}");
    }
}

/// Purpose: an address that cannot be listened on ends the gateway with what to write instead.
#[test]
fn wrong_addresses() {
    highwater_testkit::refuses_wrong_addresses(|address| {
        let listen = format!("--listen={address}");
        command(&["--ack=memory", "--sink=null", "--metrics=off", &listen])
    });
}
