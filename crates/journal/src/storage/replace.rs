//! A small file that is whole at any time, whatever happens while it is written.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// Gives the file `path` this content, opened with `options`, such as a mode.
///
/// It is written beside its place, and takes its name only once it is durable; then the name is made durable, too. So neither a
/// crash nor a full disk leaves an empty file, or half of one.
///
/// # Errors
///
/// If the disk refuses. Then `path` is as it was, or its new content may not be durable yet.
pub fn replace_file(path: &Path, options: &OpenOptions, content: &[u8]) -> io::Result<()> {
    let beside = path.with_added_extension("new");
    let mut file = options.clone().write(true).create(true).truncate(true).open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Makes the names in a directory durable.
#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

/// Elsewhere a directory cannot be opened as a file; its names are durable as the system likes.
#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the file has the new content, whatever an interrupted attempt has left, and nothing is left beside it.
    #[test]
    fn a_file_is_replaced() {
        let folder = std::env::temp_dir().join(format!("replace-{}", std::process::id()));
        fs::create_dir(&folder).expect("it can be made");
        let path = folder.join("number");
        fs::write(folder.join("number.new"), "half of an older attempt").expect("writable");
        for content in ["7", "12"] {
            replace_file(&path, &OpenOptions::new(), content.as_bytes()).expect("writable");
            assert_eq!(fs::read_to_string(&path).expect("it is there"), content);
        }
        assert_eq!(fs::read_dir(&folder).expect("readable").count(), 1);
        fs::remove_dir_all(&folder).expect("it is ours");
    }
}
