//! How does text get into a JSON string, and into a page?

use std::fmt::Write;

/// Appends `text` as the contents of a JSON string (RFC 8259 §7), escaped so that no terminal and no line
/// reader takes any of it for a control character or a line end.
pub(crate) fn json(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // C1 controls and the separators U+2028 and U+2029 end lines for some readers.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("a String takes everything");
            }
            c => out.push(c),
        }
    }
}

/// The text as the content of an HTML element: no part of it is markup.
#[cfg(feature = "openapi")]
pub(crate) fn html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    /// Purpose: each kind of character is escaped as RFC 8259 §7 allows, and no line terminator appears
    /// unescaped.
    #[test]
    fn what_could_end_a_string_or_a_line_is_escaped() {
        let mut out = String::new();
        super::json("a\"b\\c\r\n\td\0\u{1f}\u{7f}\u{85}\u{2028}\u{2029}é 🦀/", &mut out);
        assert_eq!(out, r#"a\"b\\c\r\n\td\u0000\u001f\u007f\u0085\u2028\u2029é 🦀/"#);
    }
}
