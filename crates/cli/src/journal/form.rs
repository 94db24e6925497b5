//! How is a record written? As its bytes, as text that is safe for a terminal, or as JSON.

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
        Err(_) => object["body_base64"] = base64(record.body).into(),
    }
    format!("{object}\n")
}

/// A time as `2026-01-31T12:00:00.000000Z`.
fn rfc_3339(time_us: u64) -> String {
    let (seconds, micros) = (time_us / 1_000_000, time_us % 1_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Year, month and day of a day since 1970 (H. Hinnant, "chrono-compatible low-level date algorithms",
/// `civil_from_days`).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0, |bits: u32, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= chunk.len() { letter.into() } else { '=' });
        }
    }
    text
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

    /// Purpose: bodies that are no text come out as other programs read them; RFC 4648, section 10.
    #[test]
    fn base64_is_the_standards() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xef, 0xbe]), "/+++");
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
