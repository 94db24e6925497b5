//! Uploads of rows.

use ::csv::{ErrorKind, Reader, ReaderBuilder, StringRecord};
use http::StatusCode;
use serde_core::de::DeserializeOwned;

use super::Csv;
use crate::app::error::Error;
use crate::app::extract::{BodyUse, FromRequest, has_body, whole, wrong_content_type};
use crate::app::request::Request;

/// How many rows an upload may have; beyond it 413. A row of two bytes can be a value of hundreds, so the size of the body
/// alone does not bound the memory. A guess: about as many as people still view in a spreadsheet.
pub const CSV_ROWS_MAX: usize = 100_000;

impl<T: DeserializeOwned> FromRequest for Csv<Vec<T>> {
    const BODY: BodyUse = BodyUse::Whole;

    fn from_request(request: &Request<'_>) -> Result<Self, Error> {
        let content_type = request.header("content-type").unwrap_or_default();
        let mut parts = content_type.split(';').map(str::trim);
        if !parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("text/csv")) {
            let message = "the body must be CSV, and its Content-Type text/csv";
            return Err(wrong_content_type(message));
        }
        let has_names = !parts.any(|parameter| parameter.eq_ignore_ascii_case("header=absent"));
        let reader = ReaderBuilder::new().has_headers(has_names).from_reader(whole(request)?);
        values(reader).map(Csv)
    }

    fn is_present(request: &Request<'_>) -> bool {
        has_body(request)
    }
}

fn values<T: DeserializeOwned>(mut reader: Reader<&[u8]>) -> Result<Vec<T>, Error> {
    let names = match reader.has_headers() {
        true => Some(reader.headers().map_err(|error| malformed(&error))?.clone()),
        false => None,
    };
    if names.as_ref().is_some_and(StringRecord::is_empty) {
        let message =
            "the body has no header row; write the names of the columns in its first line";
        return Err(Error::bad_request(message).with_code("invalid_csv"));
    }
    let mut values = Vec::new();
    let mut row = StringRecord::new();
    while reader.read_record(&mut row).map_err(|error| malformed(&error))? {
        if values.len() == CSV_ROWS_MAX {
            let message = format!("there are more than {CSV_ROWS_MAX} rows; send them in parts");
            return Err(Error::new(StatusCode::PAYLOAD_TOO_LARGE, "too_many_rows", message));
        }
        let value = row.deserialize(names.as_ref());
        values.push(value.map_err(|error| misfit(&error, &row, names.as_ref()))?);
    }
    Ok(values)
}

/// The body is not CSV, or not UTF-8.
#[cold]
fn malformed(error: &::csv::Error) -> Error {
    let line = error.position().map_or(0, ::csv::Position::line);
    let message = match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("line {line}: it has {len} fields, and the first line {expected_len}")
        }
        ErrorKind::Utf8 { .. } => format!("line {line}: it is not UTF-8"),
        _ => error.to_string(),
    };
    Error::bad_request(message).with_code("invalid_csv")
}

/// A row is not a `T`.
#[cold]
fn misfit(error: &::csv::Error, row: &StringRecord, names: Option<&StringRecord>) -> Error {
    let line = row.position().map_or(0, ::csv::Position::line);
    let message = match error.kind() {
        ErrorKind::Deserialize { err, .. } => match err.field() {
            Some(index) => {
                let name = names.and_then(|names| names.get(index as usize));
                let number = (index + 1).to_string();
                format!("line {line}, column `{}`: {}", name.unwrap_or(&number), err.kind())
            }
            None => format!("line {line}: {}", err.kind()),
        },
        _ => format!("line {line}: {error}"),
    };
    Error::unprocessable(message).with_code("invalid_body")
}
