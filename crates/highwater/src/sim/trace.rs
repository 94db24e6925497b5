//! One line per event and command, to examine a failing seed.

use std::cell::RefCell;
use std::rc::Rc;

/// Where lines go, if anywhere. Cheap to clone; without a reader, a run formats nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace(Option<Rc<RefCell<Vec<String>>>>);

impl Trace {
    /// A trace that keeps its lines.
    pub(crate) fn kept() -> Self {
        Trace(Some(Rc::default()))
    }

    /// Adds a line.
    pub(crate) fn line(&self, text: impl FnOnce() -> String) {
        if let Some(lines) = &self.0 {
            lines.borrow_mut().push(text());
        }
    }

    /// The lines so far.
    pub(crate) fn take(&self) -> Vec<String> {
        self.0.as_ref().map(|lines| lines.take()).unwrap_or_default()
    }
}

/// The beginning of `bytes`, printable.
pub(crate) fn show(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 60;
    let shown = bytes[..bytes.len().min(SHOWN_MAX)].escape_ascii();
    let more = if bytes.len() > SHOWN_MAX { "…" } else { "" };
    format!("{} bytes \"{shown}{more}\"", bytes.len())
}
