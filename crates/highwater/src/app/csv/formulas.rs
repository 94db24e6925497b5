//! Fields that a spreadsheet would run.

use ::csv::{ByteRecord, ReaderBuilder, Terminator, WriterBuilder};

use crate::app::body::BoxError;

/// What a formula begins with, and what hides such a beginning: the list of OWASP's page on CSV injection.
const BEGINNINGS: &[u8] = b"=+-@\t\r";

/// Whole rows of CSV, with an apostrophe in front of each field that a spreadsheet would run. Numbers stay what they are:
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
            match is_formula(field) {
                true => writer.write_field([b"'", field].concat())?,
                false => writer.write_field(field)?,
            }
        }
        writer.write_record(None::<&[u8]>)?;
    }
    Ok(writer.into_inner().map_err(|error| error.into_error())?)
}

fn is_formula(field: &[u8]) -> bool {
    let is_number = || std::str::from_utf8(field).is_ok_and(|text| text.parse::<f64>().is_ok());
    field.first().is_some_and(|first| BEGINNINGS.contains(first)) && !is_number()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: what OWASP lists is made text, in quotes or not, and nothing else is changed: numbers, empty fields, and
    /// what stands further on in a field.
    #[test]
    fn what_spreadsheets_run() {
        let cases: [(&str, &str); 8] = [
            ("=1+1\r\n", "'=1+1\r\n"),
            ("+cmd,-x,@sum\r\n", "'+cmd,'-x,'@sum\r\n"),
            ("\"=a,\"\"b\"\"\",\"\tx\"\r\n", "\"'=a,\"\"b\"\"\",'\tx\r\n"),
            ("\"\r=x\"\r\n", "\"'\r=x\"\r\n"),
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
