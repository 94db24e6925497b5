//! Why can an application not be built?

use std::error::Error as StdError;
use std::fmt;

/// What is wrong with an application: all of it, one line each.
///
/// `Debug` shows the same lines as `Display`: it is what a `main` that returns this prints.
#[derive(Clone, PartialEq, Eq)]
pub struct BuildError {
    pub(super) problems: Vec<String>,
}

impl BuildError {
    /// What is wrong: where, and what to write instead.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the application cannot be built")?;
        self.problems.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for BuildError {}
