//! Fields that a spreadsheet would run.

use std::borrow::Cow;

use ::csv::{ByteRecord, ReaderBuilder, Terminator, WriterBuilder};

use crate::app::body::BoxError;

/// What a formula begins with: the list of OWASP's page on CSV injection. The last four are the first in full width, which
/// spreadsheets take for the same.
const BEGINNINGS: [&str; 8] = ["=", "+", "-", "@", "＝", "＋", "－", "＠"];

/// What hides such a beginning at the start of a field, or ends a cell within one: where the list separator of the system is a semicolon, as in much of
/// Europe, a spreadsheet does not see the quotes around a field that is not the first.
const ENDS: &[u8] = b";\t\r\n";

/// Whole rows of CSV, with an apostrophe in front of each field, and each part of one, that a spreadsheet would run. Numbers stay what they are:
/// `-5` is no formula.
///
/// It works on the encoded rows, because serde's values have no fields that could be changed on their way.
pub(super) fn escape(rows: &[u8]) -> Result<Vec<u8>, BoxError> {
    let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(rows);
    let written = Vec::with_capacity(rows.len() + rows.len() / 16);
    let mut writer =
        WriterBuilder::new().terminator(Terminator::CRLF).flexible(true).from_writer(written);
    let mut row = ByteRecord::new();
    while reader.read_byte_record(&mut row)? {
        for field in &row {
            writer.write_field(escaped(field))?;
        }
        writer.write_record(None::<&[u8]>)?;
    }
    Ok(writer.into_inner().map_err(|error| error.into_error())?)
}

fn escaped(field: &[u8]) -> Cow<'_, [u8]> {
    let parts = || field.split_inclusive(|byte| ENDS.contains(byte)).enumerate();
    let is_hidden = field.first().is_some_and(|first| ENDS[1..].contains(first));
    if !is_hidden && !parts().any(|(index, part)| is_formula(part, index)) {
        return Cow::Borrowed(field);
    }
    let mut text = Vec::with_capacity(field.len() + 8);
    for (index, part) in parts() {
        if is_formula(part, index) || index == 0 && is_hidden {
            text.push(b'\'');
        }
        text.extend_from_slice(part);
    }
    Cow::Owned(text)
}

/// Whether a spreadsheet runs the part of a field at `index`, with its end.
fn is_formula(part: &[u8], index: usize) -> bool {
    let cell = part.split_last();
    let mut cell = cell.filter(|(last, _)| ENDS.contains(last)).map_or(part, |(_, cell)| cell);
    // A cell may begin with quotes that are not part of it.
    while index > 0
        && let Some(rest) = cell.strip_prefix(b"\"")
    {
        cell = rest;
    }
    let is_number = || std::str::from_utf8(cell).is_ok_and(|text| text.parse::<f64>().is_ok());
    BEGINNINGS.iter().any(|beginning| cell.starts_with(beginning.as_bytes())) && !is_number()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: what OWASP lists is made text, in quotes or not, also where the separator is a semicolon; and nothing else is changed:
    /// numbers, empty fields, and what stands further on in a field.
    #[test]
    fn what_spreadsheets_run() {
        let cases: [(&str, &str); 15] = [
            ("=1+1\r\n", "'=1+1\r\n"),
            ("+cmd,-x,@sum\r\n", "'+cmd,'-x,'@sum\r\n"),
            ("\"=a,\"\"b\"\"\",\"\tx\"\r\n", "\"'=a,\"\"b\"\"\",'\tx\r\n"),
            ("\"\r=x\"\r\n", "\"'\r'=x\"\r\n"),
            ("\"\nx\"\r\n", "\"'\nx\"\r\n"),
            ("＝1+1,＋x,－x,＠x,x＝\r\n", "'＝1+1,'＋x,'－x,'＠x,x＝\r\n"),
            ("a,x;=cmd|' /C calc'!A0\r\n", "a,x;'=cmd|' /C calc'!A0\r\n"),
            ("x;\t@sum;-5;+1;;-x;\r\n", "x;\t'@sum;-5;+1;;'-x;\r\n"),
            ("\"x;\"\"=cmd\",\"\"\"=cmd\"\r\n", "\"x;'\"\"=cmd\",\"\"\"=cmd\"\r\n"),
            ("\"x\n=cmd\n-5\"\r\n", "\"x\n'=cmd\n-5\"\r\n"),
            ("x;a=b;-\r\n", "x;a=b;'-\r\n"),
            ("-5,+1.5,-1e9,-\r\n", "-5,+1.5,-1e9,'-\r\n"),
            ("a=b,1-1,'=x\r\n", "a=b,1-1,'=x\r\n"),
            ("\"\"\r\n,\r\n", "\"\"\r\n,\r\n"),
            ("a\r\nb,c\r\n", "a\r\nb,c\r\n"),
        ];
        for (rows, expected) in cases {
            let escaped = escape(rows.as_bytes()).expect("it is CSV");
            assert_eq!(String::from_utf8(escaped).expect("text"), expected, "{rows:?}");
        }
    }
}
