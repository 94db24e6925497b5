//! Which request does the user want, in the words of flags and mixes?

use super::expect::Expect;
use super::template::Template;

/// A request as specified by the user.
pub(crate) struct Spec {
    /// Stands before the name of a setting in messages: `--`, or the file and the request.
    pub(crate) place: String,
    pub(crate) name: String,
    pub(crate) weight: u64,
    pub(crate) method: String,
    /// Path and query, from the `/`.
    pub(crate) path: Template,
    /// Names and values.
    pub(crate) headers: Vec<(String, Template)>,
    pub(crate) body: Template,
    pub(crate) expect: Expect,
}
