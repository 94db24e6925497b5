//! Files that flags and mixes name.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The content of a file of `most` bytes at most, that `setting` names.
///
/// # Errors
/// It cannot be read or is larger; the message names setting, file and remedy.
pub(crate) fn read(setting: &str, path: &Path, most: usize) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let content = content(path, most)
        .map_err(|error| format!("{setting} {shown}: {error}; name a file that can be read"))?;
    match content.len() > most {
        true => Err(format!("{setting} {shown}: more than {most} bytes; name a smaller file")),
        false => Ok(content),
    }
}

/// The file's content, or a little more than is allowed of it.
fn content(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(most as u64 + 1).read_to_end(&mut content)?;
    Ok(content)
}
