//! Assembles the site's source and runs mdBook over it: `site MDBOOK OUT`. `make site` calls it.
#![forbid(unsafe_code)]
#![expect(clippy::print_stderr, reason = "this is how a command complains")]

use std::path::Path;
use std::process::ExitCode;

use highwater_tests::{site, source};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mdbook, out] = &arguments[..] else {
        eprintln!("usage: site MDBOOK OUT");
        return ExitCode::from(2);
    };
    let mut problems = site::problems(&source::files());
    if problems.is_empty() {
        let out = Path::new(out);
        let made = site::assemble(out).map_err(|error| format!("{}: {error}", out.display()));
        problems.extend(made.and_then(|()| site::build(Path::new(mdbook), out)).err());
    }
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
