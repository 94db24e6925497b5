//! What is in a profile?

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Serialize;

use super::tools::Reader;

/// What `llvm-profdata show` says of a profile.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Profile {
    /// As programs that were built with it say it.
    pub(super) id: String,
    /// `IR` for what `-Cprofile-generate` makes.
    pub(super) level: String,
    /// Functions that the profile knows.
    pub(super) functions: u64,
    /// How often the most called function was called.
    pub(super) calls_max: u64,
    /// How often the most run block was run.
    pub(super) block_max: u64,
    /// The functions with the most run blocks, hottest first.
    pub(super) hottest: Vec<Function>,
}

/// A function, and how often its most run block ran.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) count: u64,
}

/// Reads a profile.
///
/// # Errors
/// It is not there, or not a profile of this compiler's.
pub(super) fn show(reader: &Reader, file: &Path, top: u32) -> Result<Profile, String> {
    if !file.is_file() {
        return Err(format!("{}: no such file; `highwater pgo run` makes one", file.display()));
    }
    let top = format!("--topn={top}");
    let output = reader.run(&["show".as_ref(), top.as_ref(), file.as_os_str()])?;
    let bytes = fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(Profile { id: super::note::id(&bytes), ..parse(&output) })
}

/// Reads what `llvm-profdata show --topn=N` says.
pub(super) fn parse(output: &str) -> Profile {
    let mut profile = Profile::default();
    for line in output.lines().map(str::trim) {
        let number = |rest: &str| rest.trim().parse().unwrap_or_default();
        if let Some((name, rest)) = line.rsplit_once(", max count = ") {
            let name = format!("{:#}", rustc_demangle::demangle(plain_name(name)));
            profile.hottest.push(Function { name, count: number(rest) });
        } else if let Some(rest) = line.strip_prefix("Instrumentation level:") {
            profile.level = rest.split_whitespace().next().unwrap_or_default().to_owned();
        } else if let Some(rest) = line.strip_prefix("Total functions:") {
            profile.functions = number(rest);
        } else if let Some(rest) = line.strip_prefix("Maximum function count:") {
            profile.calls_max = number(rest);
        } else if let Some(rest) = line.strip_prefix("Maximum internal block count:") {
            profile.block_max = number(rest);
        }
    }
    profile
}

/// A local function's name stands behind its file's.
fn plain_name(name: &str) -> &str {
    let after = |at: char| name.rsplit_once(at).map(|(_, name)| name);
    after(';')
        .or_else(|| after(':').filter(|name| name.starts_with("_R") || name.starts_with("_ZN")))
        .unwrap_or(name)
}

impl Profile {
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "profile: {} functions, level {}; called most: {} times, run most: {} times\n",
            self.functions, self.level, self.calls_max, self.block_max
        );
        for Function { name, count } in &self.hottest {
            let _ = writeln!(text, "{count:>14}  {name}");
        }
        text
    }
}
