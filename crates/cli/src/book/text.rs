//! Text between Markdown, marks and HTML: their common rules. Pure.

use pulldown_cmark::Options;

/// Around a directive's number in a page; from the private use area, so that no text needs them.
pub(super) const MARK: (char, char) = ('\u{e000}', '\u{e001}');

/// The Markdown that is understood.
pub(super) fn options() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_TASKLISTS
}

/// Text as HTML shows it.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Not allowed in HTML, or kept for marks.
            '\0' => out.push('\u{fffd}'),
            c if c == MARK.0 || c == MARK.1 => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
