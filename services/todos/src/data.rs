//! The secret that `--demo` keeps in the data directory.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use highwater::journal::storage::{create_directory, replace_file};

/// The file with the secret that `--demo` generates.
const SECRET: &str = "demo-secret";

/// The secret of `--demo` in this data directory; it is generated if missing. So a token of the last run works in the
/// next one.
///
/// # Errors
///
/// What cannot be read or written, and what to do about it.
pub fn demo_secret(data: &Path) -> Result<String, String> {
    let file = data.join(SECRET);
    let secret = create_directory(data).and_then(|()| keep_text(&file, || fastrand::u128(..)));
    let secret = secret.map_err(|error| {
        format!(
            "cannot keep the demo's secret in {}: {error}; give --data a directory that this user can write, or give JWT_SECRET",
            file.display()
        )
    })?;
    match secret.as_str() {
        "" => Err(format!("{} is empty; delete it", file.display())),
        _ => Ok(secret),
    }
}

/// The text of a file that only this user can read; a missing one is made with a number that is drawn.
///
/// # Errors
///
/// If it cannot be read or written.
pub(crate) fn keep_text(file: &Path, draw: impl FnOnce() -> u128) -> io::Result<String> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = format!("{:032x}", draw());
            keep(file, &text).map(|()| text)
        }
        read => read.map(|text| text.trim().to_owned()),
    }
}

/// Writes a file that only this user can read.
fn keep(file: &Path, secret: &str) -> io::Result<()> {
    replace_file(file, OpenOptions::new().mode(0o600), format!("{secret}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// Purpose: the secret is made up once, only its owner can read it, and a file that says nothing is not taken for one.
    #[test]
    fn a_secret_is_kept() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let data = directory.path().join("made/when/missing");
        let secret = demo_secret(&data).expect("it can be written");
        assert_eq!(secret.len(), 32);
        assert_eq!(demo_secret(&data), Ok(secret));
        let file = data.join(SECRET);
        let mode = fs::metadata(&file).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // A start that did not come to its end is no obstacle.
        fs::remove_file(&file).expect("it is there");
        fs::write(file.with_extension("new"), "hal").expect("writable");
        assert_eq!(demo_secret(&data).expect("it can be written").len(), 32);
        assert!(!file.with_extension("new").exists());
        fs::write(&file, "").expect("writable");
        assert!(demo_secret(&data).expect_err("it is empty").contains("delete it"));
        fs::remove_file(&file).expect("it is there");
        fs::write(directory.path().join("file"), "in the way").expect("writable");
        let refused = demo_secret(&directory.path().join("file")).expect_err("no directory");
        assert!(refused.contains("--data"), "{refused}");
    }
}
