//! Pages that are read as Markdown, such as on GitHub: the result of a directive is in the page itself, between it and
//! `<!-- @end -->`, and is made again from the records. Charts are files beside the page. Pure, except for the database.

use super::database::Database;
use super::directive::{Marked, Problem};
use super::make;

/// A page as it should be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Filled {
    pub(super) text: String,
    /// Lines of directives whose text was another.
    pub(super) changed: Vec<usize>,
    /// Files that it shows: the directive's line, the path from the page, and what is in it.
    pub(super) files: Vec<(usize, String, String)>,
}

/// Fills what has an `@end`; everything else stays as it is. `marked` is what `text` has.
///
/// # Errors
/// Everything that is wrong with those directives.
pub(super) fn fill(
    text: &str,
    marked: &Marked,
    database: &Database,
) -> Result<Filled, Vec<Problem>> {
    let (mut out, mut changed, mut problems, mut at) =
        (String::with_capacity(text.len()), Vec::new(), Vec::new(), 0);
    let mut files = Vec::new();
    for directive in &marked.directives {
        let Some(range) = directive.filled.clone() else { continue };
        match make::markdown(directive, database) {
            Err(what) => problems.push(Problem::new(directive.line, what)),
            Ok(made) => {
                if made.text != text[range.clone()] {
                    changed.push(directive.line);
                }
                out.push_str(&text[at..range.start]);
                out.push_str(&made.text);
                at = range.end;
                files.extend(made.file.map(|(path, file)| (directive.line, path, file)));
            }
        }
    }
    out.push_str(&text[at..]);
    if problems.is_empty() { Ok(Filled { text: out, changed, files }) } else { Err(problems) }
}
