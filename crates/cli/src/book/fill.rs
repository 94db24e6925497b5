//! Pages that are read as Markdown, on a forge: what a directive makes stands in the page itself, between it and
//! `<!-- @end -->`, and is made anew from the records. Pure, but for the database.

use super::database::Database;
use super::directive::{self, Problem};
use super::make;

/// A page as it should be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Filled {
    pub(super) text: String,
    /// Lines of directives whose text was another.
    pub(super) changed: Vec<usize>,
}

/// Fills what has an `@end`; everything else stays as it is.
///
/// # Errors
/// Everything that is wrong with those directives.
pub(super) fn fill(text: &str, database: &Database) -> Result<Filled, Vec<Problem>> {
    let marked = directive::extract(text).map_err(|problem| vec![problem])?;
    let (mut out, mut changed, mut problems, mut at) =
        (String::with_capacity(text.len()), Vec::new(), Vec::new(), 0);
    for directive in &marked.directives {
        let Some(range) = directive.filled.clone() else { continue };
        match make::markdown(directive, database) {
            Err(what) => problems.push(Problem::new(directive.line, what)),
            Ok(made) => {
                if made != text[range.clone()] {
                    changed.push(directive.line);
                }
                out.push_str(&text[at..range.start]);
                out.push_str(&made);
                at = range.end;
            }
        }
    }
    out.push_str(&text[at..]);
    if problems.is_empty() { Ok(Filled { text: out, changed }) } else { Err(problems) }
}
