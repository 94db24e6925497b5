//! The builds of one program: plain, instrumented, and with a profile.
//!
//! The two latter have target folders of their own, so that flags do not rebuild the usual one, and name the target,
//! so that flags do not reach build scripts and macros.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What `pgo strip` removes: everything that is made here.
pub(super) const FOLDERS: [&str; 6] = ["plain", "instrumented", "pgo", "build", "raw", "used"];

/// Separates flags in `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\x1f";

/// What is built, and where it goes.
pub(super) struct Build<'a> {
    pub(super) package: &'a str,
    pub(super) bin: &'a str,
    pub(super) cargo_profile: &'a str,
    /// The compiler's own target.
    pub(super) host: &'a str,
    pub(super) out: &'a Path,
}

impl Build<'_> {
    pub(super) fn plain(&self) -> Result<PathBuf, String> {
        let mut cargo = self.cargo();
        self.finish(&mut cargo, "plain")
    }

    pub(super) fn instrumented(&self, raw: &Path) -> Result<PathBuf, String> {
        let mut cargo = self.flagged(&format!("-Cprofile-generate={}", absolute(raw)?))?;
        self.finish(&mut cargo, "instrumented")
    }

    /// `digest` is part of the profile's name: cargo looks at flags, not into the files that they name.
    pub(super) fn with_profile(&self, profile: &Path, digest: &str) -> Result<PathBuf, String> {
        let used = self.out.join("used");
        let named = used.join(format!("{digest}.profdata"));
        let copied = fs::create_dir_all(&used).and_then(|()| fs::copy(profile, &named));
        copied.map_err(|error| format!("{}: {error}", named.display()))?;
        let mut cargo = self.flagged(&format!("-Cprofile-use={}", absolute(&named)?))?;
        self.finish(&mut cargo, "pgo")
    }

    fn cargo(&self) -> Command {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo
            .args(["build", "--package", self.package, "--bin", self.bin])
            .args(["--profile", self.cargo_profile, "--message-format=json-render-diagnostics"])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        cargo
    }

    fn flagged(&self, flag: &str) -> Result<Command, String> {
        let mut cargo = self.cargo();
        cargo
            .args(["--target", self.host, "--target-dir", &absolute(&self.out.join("build"))?])
            .env_remove("RUSTFLAGS")
            .env("CARGO_ENCODED_RUSTFLAGS", with_flag(flag));
        Ok(cargo)
    }

    /// Builds, and copies the program to a folder of its own in `out`: the next build replaces the original.
    fn finish(&self, cargo: &mut Command, folder: &str) -> Result<PathBuf, String> {
        let done = cargo.output().map_err(|error| format!("cargo: {error}"))?;
        if !done.status.success() {
            return Err(format!("cargo build --package {}: {}", self.package, done.status));
        }
        let output = String::from_utf8_lossy(&done.stdout);
        let program = executable(&output, self.bin).ok_or_else(|| {
            format!("the package {} has no program {}; name it with --bin", self.package, self.bin)
        })?;
        let folder = self.out.join(folder);
        let copy = folder.join(self.bin);
        // A new file: the old one may be running.
        let _ = fs::remove_file(&copy);
        let copied = fs::create_dir_all(&folder).and_then(|()| fs::copy(&program, &copy));
        copied.map_err(|error| format!("{}: {error}", copy.display()))?;
        Ok(copy)
    }
}

/// The flags that the environment has, and one more.
fn with_flag(flag: &str) -> OsString {
    let mut flags = match std::env::var("CARGO_ENCODED_RUSTFLAGS") {
        Ok(flags) => flags,
        Err(_) => {
            let plain = std::env::var("RUSTFLAGS").unwrap_or_default();
            plain.split_whitespace().collect::<Vec<_>>().join(SEPARATOR)
        }
    };
    if !flags.is_empty() {
        flags.push_str(SEPARATOR);
    }
    (flags + flag).into()
}

fn absolute(path: &Path) -> Result<String, String> {
    let path = std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))?;
    path.into_os_string().into_string().map_err(|path| format!("{}: not UTF-8", path.display()))
}

/// Where cargo says that it has put the program `bin`.
pub(super) fn executable(messages: &str, bin: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str(line).ok());
    let mut programs = messages.filter_map(|message: serde_json::Value| {
        let is_it = message["target"]["name"] == bin && message["target"]["kind"][0] == "bin";
        is_it.then(|| message["executable"].as_str().map(PathBuf::from)).flatten()
    });
    programs.next_back()
}
