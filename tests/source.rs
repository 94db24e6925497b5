//! The source tree as data: its files, and the code of each Rust file.
//!
//! It never parses Rust. It knows comments, strings and braces, which is what the tests that read
//! the tree need; where that would not do, the compiler is the better judge.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, str};

/// A file that git knows or would add, with its text.
#[derive(Clone, Debug)]
pub struct File {
    /// Its path from the root of the repository, with `/`.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// The root of the repository.
///
/// # Panics
///
/// If this package does not stand right under it.
pub fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("this package stands under the repository's root").to_path_buf()
}

/// Every text file of [`paths`]. Binary files are left out, and so is one that vanishes meanwhile.
///
/// # Panics
///
/// If git cannot be asked.
pub fn files() -> Vec<File> {
    let read = |path: String| {
        let text = String::from_utf8(fs::read(root().join(&path)).ok()?).ok()?;
        Some(File { path, text })
    };
    paths().into_iter().filter_map(read).collect()
}

/// Where every file is that is tracked, or new and not ignored, from the root.
///
/// # Panics
///
/// If git cannot be asked.
pub fn paths() -> Vec<String> {
    let listed = Command::new("git")
        // A clone that belongs to another user, as in many containers, is ours to read.
        .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others"])
        .arg("--exclude-standard")
        .current_dir(root())
        .output()
        .expect("git is installed");
    let problem = String::from_utf8_lossy(&listed.stderr);
    assert!(listed.status.success(), "git ls-files: {problem}");
    let paths = str::from_utf8(&listed.stdout).expect("paths here are UTF-8");
    paths.split_terminator('\0').map(str::to_owned).collect()
}

/// What `link` in the file at `from` refers to, as a path from the root.
pub fn resolve(from: &str, link: &str) -> String {
    let mut path: Vec<&str> = from.split('/').collect();
    path.pop();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(path.pop()),
            part => path.push(part),
        }
    }
    path.join("/")
}

/// `text` with every comment and the content of every string and character literal blanked out:
/// what remains is code, at the same lines and columns.
pub fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after_word = code.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let skipped = match skip_length(rest, after_word) {
            0 => {
                code.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            }
            length => &rest[..length],
        };
        code.extend(skipped.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        rest = &rest[skipped.len()..];
    }
    code
}

/// The length of the comment or literal that `rest` begins with; 0 if it begins with code.
fn skip_length(rest: &str, after_word: bool) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment_length(rest);
    }
    // `r` or `br` or `c` that ends a longer word begins no literal.
    let prefix = if after_word { "" } else { literal_prefix(rest) };
    let literal = &rest[prefix.len()..];
    let hashes = literal.len() - literal.trim_start_matches('#').len();
    if prefix.ends_with('r') && literal[hashes..].starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        let begin = hashes + 1;
        let length = literal[begin..].find(&end).map_or(literal.len(), |at| begin + at + end.len());
        return prefix.len() + length;
    }
    match literal.chars().next() {
        Some('"') => prefix.len() + quoted_length(literal, '"'),
        Some('\'') if is_char(literal) => prefix.len() + quoted_length(literal, '\''),
        _ => 0,
    }
}

fn literal_prefix(rest: &str) -> &str {
    ["br", "cr", "r", "b", "c"].into_iter().find(|prefix| rest.starts_with(prefix)).unwrap_or("")
}

/// Block comments nest in Rust.
fn block_comment_length(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    at
}

fn quoted_length(literal: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in literal.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    literal.len()
}

/// `'a'` and `'\n'` are characters; `'a` is a lifetime.
fn is_char(literal: &str) -> bool {
    let mut chars = literal.chars().skip(1);
    chars.next() == Some('\\') || chars.next() == Some('\'')
}

/// `code` without what only tests see: from each `#[cfg(test)]` on a block to the block's end.
pub fn without_tests(code: &str) -> String {
    let (mut kept, mut rest) = (String::new(), code);
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        rest = &rest[at + block_length(&rest[at..]).unwrap_or("#[cfg(test)]".len())..];
    }
    kept + rest
}

/// How long an item with a body is, from its beginning to its closing brace; `None` if a `;` ends
/// it before a body begins. `code` is as [`code_only`] returns it.
fn block_length(code: &str) -> Option<usize> {
    let (mut depth, mut brackets) = (0_u32, 0_u32);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            ';' if depth == 0 && brackets == 0 => return None,
            '{' => depth += 1,
            '}' if depth <= 1 => return Some(at + 1),
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// The names in `code` with the byte where each begins.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        let begin = at + code[at..].find(is_word)?;
        let end = code[begin..].find(|c| !is_word(c)).map_or(code.len(), |length| begin + length);
        at = end;
        Some((begin, &code[begin..end]))
    })
}

/// The number, from 1, of the line in which the byte at `at` stands.
pub fn line_at(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: what looks like code in a string or a comment must not be taken for code, and what
    /// follows them must be.
    #[test]
    fn code_is_told_from_comments_and_literals() {
        for (text, code) in [
            ("a // b\nc", "a     \nc"),
            ("a /* b /* c */ d */ e", "a                   e"),
            (r#"f("a\"b", c)"#, "f(      , c)"),
            ("r#\"a\"b\"# c", "         c"),
            ("br\"\\\" c", "      c"),
            ("'{' 'a '\\'' b'x'", "    'a          "),
            ("for\"x\"", "for   "),
            ("ü\"ü\"ü", "ü   ü"),
        ] {
            assert_eq!(code_only(text), code, "of {text}");
        }
    }

    /// Purpose: blocks end where they end, whatever stands in between.
    #[test]
    fn blocks_are_measured() {
        assert_eq!(
            block_length("fn a(b: [u8; 2]) { { } } }"),
            Some("fn a(b: [u8; 2]) { { } }".len())
        );
        assert_eq!(block_length("fn a(); fn b() {}"), None);
        let code = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\nfn c() {}";
        assert_eq!(without_tests(code), "fn a() {}\n\nfn c() {}");
        assert_eq!(without_tests("#[cfg(test)]\nmod tests;\nfn c() {}"), "\nmod tests;\nfn c() {}");
    }
}
