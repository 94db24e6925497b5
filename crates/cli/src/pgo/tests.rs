//! Tests of what `pgo` reads: plans, cargo's messages, what `llvm-profdata` says; and of a build that fails.

use std::path::Path;

use clap::Parser as _;

use super::{Args, build, plan, profile, tools};

const PLAN: &str = r#"
name = "mine"
rounds = 6
[[server]]
name = "a"
command = ["a", "--listen", "127.0.0.1:{port}"]
ready = "/"
[[server]]
name = "b"
program = "b"
command = ["sh", "-c", "exec b --port {port}"]
ready = "/"
[[cell]]
name = "hello"
path = "/"
expect = "a\"b"
servers = ["a"]
"#;

#[derive(Debug, clap::Parser)]
struct Program {
    #[command(flatten)]
    _args: Args,
}

/// Purpose: the usage that is shown where a load is missing names both, a plan and a command, and says that one of them is needed.
#[test]
fn usage_names_both_loads() {
    let refused = Program::try_parse_from(["highwater pgo", "run", "-p", "mine"]);
    let shown = refused.expect_err("there is no load").to_string();
    for usage in [
        "Usage: highwater pgo run --package <PACKAGE> --plan <PLAN.toml> [OPTIONS]\n",
        "\n       highwater pgo run --package <PACKAGE> [OPTIONS] -- <COMMAND>...\n",
    ] {
        assert!(shown.contains(usage), "{shown}");
    }
}

/// Purpose: both builds are started with the same arguments, those of the server that was chosen; everything else of
/// the plan stays, so the profile's load is the measured one.
#[test]
fn a_plan_gets_other_programs() {
    let load = plan::Load::parse(PLAN, None).expect("a plan");
    let programs = [("plain", Path::new("out/plain/a")), ("pgo", Path::new("a"))];
    let text = load.text("pgo", Some(3), &programs).expect("a plan");
    let made: toml::Table = text.parse().expect("TOML");
    assert_eq!(made["name"].as_str(), Some("pgo"));
    assert_eq!(made["rounds"].as_integer(), Some(3));
    let servers = made["server"].as_array().expect("servers");
    assert_eq!(servers.len(), 2);
    assert_eq!(servers[0]["name"].as_str(), Some("plain"));
    assert_eq!(servers[0]["command"][0].as_str(), Some("out/plain/a"));
    assert_eq!(servers[0]["command"][2].as_str(), Some("127.0.0.1:{port}"));
    // Not to be looked for in PATH.
    assert_eq!(servers[1]["command"][0].as_str(), Some("./a"));
    assert_eq!(made["cell"][0]["expect"].as_str(), Some("a\"b"));
    assert!(made["cell"][0].get("servers").is_none(), "{text}");
    // Without a number of rounds, the plan's.
    let text = load.text("pgo", None, &programs).expect("a plan");
    assert!(text.contains("rounds = 6"), "{text}");
}

/// Purpose: mistakes in a plan are reported before anything is built.
#[test]
fn a_wrong_plan_is_refused() {
    let refused = |text: &str, server| match plan::Load::parse(text, server) {
        Ok(_) => panic!("accepted"),
        Err(problem) => problem,
    };
    assert_eq!(refused(PLAN, Some("c")), "no server c; it has a, b");
    assert!(refused("name = \"x\"", None).starts_with("no [[server]]"));
    assert!(refused("[[server]]\nname = \"x\"", None).contains("no command"));
    assert!(refused("name =", None).contains("line 1"));
}

/// Purpose: the program is the package's, not one of its examples, tests or dependencies.
#[test]
fn the_program_is_found_in_what_cargo_says() {
    let output = r#"{"reason":"compiler-artifact","target":{"name":"arena","kind":["lib"]},"executable":null}
not json
{"reason":"compiler-artifact","target":{"name":"arena","kind":["example"]},"executable":"/t/examples/arena"}
{"reason":"compiler-artifact","target":{"name":"arena","kind":["bin"]},"executable":"/t/release/arena"}
{"reason":"build-finished","success":true}
"#;
    assert_eq!(build::executable(output, "arena"), Some("/t/release/arena".into()));
    assert_eq!(build::executable(output, "other"), None);
}

/// Purpose: the profile's figures and its hottest functions, readable, are what the tool says.
#[test]
fn a_profile_is_read() {
    let output = "\
Instrumentation level: IR  entry_first = 0  instrument_loop_entries = 0
Total functions: 2043
Maximum function count: 1160001
Maximum internal block count: 9280008
Top 2 functions with the largest internal block counts:
  _RNvMs_NtCs4fqI2P2rA04_4core3numm5parse, max count = 9280008
  lib.rs:_ZN4core3fmt5write17h0123456789abcdefE, max count = 17
";
    let read = profile::parse(output);
    assert_eq!((read.functions, read.calls_max, read.block_max), (2043, 1_160_001, 9_280_008));
    assert_eq!(read.level, "IR");
    assert_eq!(read.hottest.len(), 2);
    assert_eq!(read.hottest[0].count, 9_280_008);
    assert!(!read.hottest[0].name.contains("_RNv"), "{}", read.hottest[0].name);
    assert_eq!(read.hottest[1].name, "core::fmt::write");
    assert!(read.text().contains("2043 functions"), "{}", read.text());
}

/// Purpose: a reader of another LLVM, which would refuse the profile after minutes of building, is not taken.
#[test]
fn versions_are_compared_by_their_first_number() {
    assert_eq!(
        tools::major_of("LLVM (http://llvm.org/):\n  LLVM version 22.1.2-rust-1.95.0-stable\n"),
        Some(22)
    );
    assert_eq!(tools::major_of("Debian LLVM version 14.0.6\n  Optimized build.\n"), Some(14));
    assert_eq!(tools::major_of("something else"), None);
}
