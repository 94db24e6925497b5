//! Which compiler is this, and which `llvm-profdata` reads its profiles?

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `rustc` says about itself.
pub(super) struct Compiler {
    /// As in `rustc 1.95.0 (…)`.
    pub(super) release: String,
    /// The target that it runs on.
    pub(super) host: String,
    sysroot: PathBuf,
    /// The major version of its LLVM, which writes the profiles.
    llvm: u32,
}

/// A program that reads the compiler's profiles.
pub(super) struct Reader {
    program: PathBuf,
    /// What it says of itself.
    pub(super) version: String,
}

impl Compiler {
    /// Asks the compiler that cargo would use.
    ///
    /// # Errors
    /// There is none, or it says something unexpected.
    pub(super) fn ask() -> Result<Compiler, String> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let ask = |arguments: &[&str]| {
            let done = Command::new(&rustc).args(arguments).output();
            let done = done.map_err(|error| format!("rustc: {error}; install it with rustup"))?;
            match done.status.success() {
                true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
                false => Err(format!("rustc {}: {}", arguments.join(" "), done.status)),
            }
        };
        let output = ask(&["-vV"])?;
        let value = |name: &str| output.lines().find_map(|line| line.strip_prefix(name));
        let missing = || format!("rustc -vV says something unexpected: {output}");
        Ok(Compiler {
            release: output.lines().next().ok_or_else(missing)?.to_owned(),
            host: value("host: ").ok_or_else(missing)?.to_owned(),
            llvm: value("LLVM version: ").and_then(major).ok_or_else(missing)?,
            sysroot: ask(&["--print", "sysroot"])?.trim().into(),
        })
    }
}

/// The first number of a version such as `22.1.2`.
fn major(version: &str) -> Option<u32> {
    version.split('.').next()?.trim().parse().ok()
}

/// The major version in what `llvm-profdata --version` says.
pub(super) fn major_of(output: &str) -> Option<u32> {
    output.lines().find_map(|line| major(line.split_once("LLVM version ")?.1))
}

/// The command that installs the compiler's own `llvm-profdata`.
pub(crate) const INSTALL_READER: &str = "rustup component add llvm-tools";

/// The compiler's own `llvm-profdata`, or one of the system with the same LLVM: others refuse its profiles.
///
/// # Errors
/// There is none; with the command that installs it.
pub(super) fn profile_reader(compiler: &Compiler) -> Result<Reader, String> {
    find_reader(compiler).map_err(|what| format!("{what}: {INSTALL_READER}"))
}

/// # Errors
/// There is none; says which there are instead.
pub(super) fn find_reader(compiler: &Compiler) -> Result<Reader, String> {
    let own = compiler.sysroot.join("lib/rustlib").join(&compiler.host).join("bin/llvm-profdata");
    let named = format!("llvm-profdata-{}", compiler.llvm);
    let mut others = Vec::new();
    for program in [own, named.into(), "llvm-profdata".into()] {
        let Ok(done) = Command::new(&program).arg("--version").output() else { continue };
        let output = String::from_utf8_lossy(&done.stdout).into_owned();
        let version = output.lines().find(|line| line.contains("LLVM version")).unwrap_or_default();
        let version = version.trim().to_owned();
        if major_of(&output) == Some(compiler.llvm) {
            return Ok(Reader { program, version });
        }
        // A proxy of rustup without the component says nothing on standard output.
        if let Some(major) = major_of(&output) {
            others.push(format!("{} is of LLVM {major}", program.display()));
        }
    }
    others.insert(0, format!("there is no llvm-profdata of LLVM {}", compiler.llvm));
    Err(others.join("; "))
}

impl Reader {
    /// Runs it.
    ///
    /// # Errors
    /// What it complains of.
    pub(super) fn run(&self, arguments: &[&std::ffi::OsStr]) -> Result<String, String> {
        let done = Command::new(&self.program).args(arguments).output();
        let done = done.map_err(|error| format!("{}: {error}", self.program.display()))?;
        match done.status.success() {
            true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
            false => {
                Err(format!("llvm-profdata: {}", String::from_utf8_lossy(&done.stderr).trim()))
            }
        }
    }
}

/// Merges what the instrumented program has left in `raw`.
///
/// # Errors
/// It has left nothing, or it cannot be read.
pub(super) fn merge(reader: &Reader, raw: &Path, merged: &Path) -> Result<(), String> {
    let files = fs::read_dir(raw).map_err(|error| format!("{}: {error}", raw.display()))?;
    let paths: Vec<PathBuf> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    let is_raw = |path: &&PathBuf| path.extension().is_some_and(|is| is == "profraw");
    let raws: Vec<&PathBuf> = paths.iter().filter(is_raw).collect();
    if raws.is_empty() {
        return Err(format!(
            "the instrumented server left no profile in {}: it writes one when it ends cleanly, on SIGTERM within \
             a few seconds",
            raw.display()
        ));
    }
    let mut arguments = vec!["merge".as_ref(), "-o".as_ref(), merged.as_os_str()];
    arguments.extend(raws.iter().map(|path| path.as_os_str()));
    reader.run(&arguments).map(drop)
}
