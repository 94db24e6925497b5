//! The table of settings, row by row.

use std::collections::BTreeSet;

use super::*;

/// Purpose: a new row is complete: `--help` explains it, its default is a value that may be written, and no other row has
/// its name.
#[test]
fn every_setting_is_explained_and_has_a_default_in_its_range() {
    let mut names = BTreeSet::new();
    for setting in ServerConfig::settings() {
        let name = setting.name();
        assert!(names.insert(name.clone()), "two settings are called {name}");
        let help = setting.help;
        assert!(help.len() > 10 && !help.ends_with('.'), "{name}: {help:?} explains nothing");
        assert!(!help.contains("[default"), "{name}: the default is shown by itself");
        assert!(!setting.placeholder.is_empty(), "{name}");
        match &setting.default {
            Ok(value) => {
                let mut config = ServerConfig::default();
                let set = setting.set(&mut config, value);
                assert_eq!(set, Ok(()), "{name}: its default is {value}");
                assert_eq!(config, ServerConfig::default(), "{name}: its default is not {value}");
            }
            Err(words) => assert!(!words.is_empty(), "{name}: its default is not described"),
        }
        let refusal = setting.set(&mut ServerConfig::default(), "\u{1}");
        let refusal = refusal.expect_err("no setting is a control character");
        assert!(refusal.contains("; use "), "{name}: {refusal:?} does not say what to write");
    }
}

/// Purpose: the manual lists all settings, and what it says is true.
#[test]
fn the_manual_has_the_table() {
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let manual = fs::read_to_string(manual).expect("it is beside the crates");
    let code = |text: &str| format!("`{}`", text.replace('|', "\\|"));
    let row = |setting: crate::server::setting::Setting<ServerConfig>| {
        let (name, value) = (code(&setting.name()), code(&setting.placeholder));
        // Its range, as messages about wrong values have it.
        let refusal = setting.set(&mut ServerConfig::default(), "\u{1}").expect_err("it is wrong");
        let remedy = refusal.split("; use ").nth(1).and_then(|remedy| remedy.split(',').next());
        let range = remedy.filter(|remedy| remedy.contains(" to "));
        let range = range.map(|range| format!(" {range}")).unwrap_or_default();
        let default = setting.default.map_or_else(str::to_owned, |value| code(&value));
        format!(
            "| {name} | {value} |{range} | {default} | {} |\n",
            setting.help.replace('|', "\\|")
        )
    };
    let table: String = ServerConfig::settings().into_iter().map(row).collect();
    assert!(manual.contains(&table), "docs/configuration.md needs this table:\n\n{table}");
}
