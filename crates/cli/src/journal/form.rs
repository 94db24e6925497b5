//! How is a record written? As its bytes, as text that is safe for a terminal, or as JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use highwater_core::http_date::civil_from_days;
use highwater_journal::Stored;

/// How records are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// One JSON object per line.
    Json,
    /// The body's bytes, unchanged, and a newline.
    Bytes,
    /// The body as text that cannot command a terminal, and a newline.
    Terminal,
}

impl Form {
    pub(super) fn of(json: bool, is_terminal: bool) -> Form {
        match (json, is_terminal) {
            // JSON has no control characters but escaped.
            (true, _) => Form::Json,
            (false, true) => Form::Terminal,
            (false, false) => Form::Bytes,
        }
    }

    /// The record with its newline.
    pub(super) fn line(self, record: &Stored<'_>) -> Vec<u8> {
        match self {
            Form::Json => json(record).into_bytes(),
            Form::Bytes => [record.body, b"\n"].concat(),
            Form::Terminal => (printable(record.body) + "\n").into_bytes(),
        }
    }
}

/// Bytes as text: whatever would move a cursor, set a title, break a line or reverse the direction of
/// writing is an escape, as Rust writes it; bytes that are not UTF-8 are `\xNN`. Anybody may have sent
/// them, and the reader is an operator.
fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c.is_control() || is_invisible(c) {
                true => text.extend(c.escape_default()),
                false => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Format characters that change how the text around them is shown (Unicode TR 36), and separators of
/// lines.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn json(record: &Stored<'_>) -> String {
    let mut object = serde_json::json!({
        "partition": record.partition,
        "offset": record.offset,
        "time": rfc_3339(record.time_us),
        "id": format!("{:032x}", record.id),
    });
    match std::str::from_utf8(record.body) {
        Ok(text) => object["body"] = text.into(),
        Err(_) => object["body_base64"] = BASE64.encode(record.body).into(),
    }
    format!("{object}\n")
}

/// A time as `2026-01-31T12:00:00.000000Z`.
fn rfc_3339(time_us: u64) -> String {
    let (seconds, micros) = (time_us / 1_000_000, time_us % 1_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil_from_days(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: what clients send is shown to operators and cannot act on their terminal: no escape
    /// sequence, no line of its own, no reversed text.
    #[test]
    fn terminals_are_not_commanded() {
        for (bytes, shown) in [
            (&b"plain, \xc3\xa9"[..], "plain, \u{e9}"),
            (b"\x1b]0;title\x07\x1b[2J", "\\u{1b}]0;title\\u{7}\\u{1b}[2J"),
            (b"a\r\n\tb\x7f", "a\\r\\n\\tb\\u{7f}"),
            (b"\xff\xc2\x9b1m", "\\xff\\u{9b}1m"),
            ("\u{202e}exe.txt\u{2028}".as_bytes(), "\\u{202e}exe.txt\\u{2028}"),
            (b"", ""),
        ] {
            assert_eq!(printable(bytes), shown);
        }
    }

    /// Purpose: bodies that are not text come out as other programs read them (RFC 4648, section 4).
    #[test]
    fn bodies_that_are_not_text() {
        let record =
            Stored { offset: 7, partition: 3, time_us: 9, id: 10, body: &[0xff, 0xef, 0xbe] };
        let shown: serde_json::Value = serde_json::from_str(&json(&record)).expect("it is JSON");
        assert_eq!(shown["body_base64"], "/+++");
        let record = Stored { body: &[0xff], ..record };
        let shown: serde_json::Value = serde_json::from_str(&json(&record)).expect("it is JSON");
        assert_eq!(
            (&shown["body_base64"], &shown["body"]),
            (&"/w==".into(), &serde_json::Value::Null)
        );
    }

    /// Purpose: times are in the form that other programs read, leap days and year ends included.
    #[test]
    fn times_are_rfc_3339() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
            (1_767_225_599, "2025-12-31T23:59:59.000000Z"),
        ] {
            assert_eq!(rfc_3339(seconds * 1_000_000), text);
        }
        assert_eq!(rfc_3339(1_234_567_890_123_456), "2009-02-13T23:31:30.123456Z");
    }
}
