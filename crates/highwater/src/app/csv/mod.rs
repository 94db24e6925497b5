//! Rows as comma-separated values (RFC 4180): answers that are encoded while they are sent, and uploads that are read
//! whole.
//!
//! ```text
//!  rows ─▶ rows.rs      an iterator or a stream
//!       ─▶ answer.rs    pieces of about 16 KiB, with a header row
//!       ─▶ formulas.rs  what a spreadsheet would run, made text, where that is asked for
//!  body ─▶ extract.rs   a list of values
//! ```
//!
//! It holds a piece and a row at a time, whatever the number of rows; an upload is bounded by its route and by
//! [`CSV_ROWS_MAX`].

mod answer;
mod extract;
mod formulas;
mod rows;

pub use self::answer::CsvAnswer;
#[cfg(feature = "openapi")]
pub(in crate::app) use self::answer::TYPE;
pub use self::extract::CSV_ROWS_MAX;
pub use self::rows::{CsvRows, RowStream};

use crate::app::into_response::IntoResponse;
use crate::app::response::Response;

/// Rows as comma-separated values (`text/csv`): a download as a return value, an upload as an argument.
///
/// # As an answer
///
/// `R` is a list or another iterator of rows, or by [`Csv::stream`] a stream of them. A row is a struct whose fields are
/// single values; their names are the header row. Rows without names, such as tuples, need [`Csv::header`], and a list that
/// may be empty needs it as well: without a row there is nothing to take the names from.
///
/// Rows are encoded while they are sent, some 16 KiB at a time, and only as fast as the client reads: a long answer takes
/// no more memory than a short one. Fields are quoted where RFC 4180 requires it, lines end with CRLF, and the type is
/// `text/csv; charset=utf-8; header=present`.
///
/// A row that fails ends the answer in the middle, which clients notice: the connection is cut off before the last chunk.
/// Rows that were not sent by then are lost. A row fails if the stream yields an error, if its fields are not single
/// values, or if their number differs from the first row's.
///
/// ```
/// use highwater::testing::Client;
/// use highwater::{Csv, Router};
/// use serde::Serialize;
///
/// #[derive(Serialize)]
/// struct Planet { name: &'static str, moons: u32 }
///
/// let planets = || Csv([Planet { name: "Mars", moons: 2 }, Planet { name: "Venus, dry", moons: 0 }]);
/// let answer = Client::new(Router::new().get("/planets.csv", planets)).get("/planets.csv");
/// assert_eq!(answer.header("content-type"), Some("text/csv; charset=utf-8; header=present"));
/// assert_eq!(answer.text(), "name,moons\r\nMars,2\r\n\"Venus, dry\",0\r\n");
/// ```
///
/// # Formulas
///
/// A spreadsheet runs a field that begins with `=`, `+`, `-` or `@` as a formula, and a formula can send the sheet's other
/// fields to another site. If fields hold text from users and people open the file in a spreadsheet, use
/// [`Csv::escape_formulas`]. It is off by default, because it changes the data that programs read.
///
/// # As an argument
///
/// `Csv<Vec<T>>` is the body, whole, one `T` for each row after the header row, by the names of its columns. Unless the
/// `Content-Type` says `header=absent`, the first row is the header row. It is refused with:
///
/// * 415 unless the `Content-Type` is `text/csv`;
/// * 400 `invalid_csv` if rows differ in their number of fields, or if there is no header row, with the line;
/// * 422 `invalid_body` if a row is not a `T`, with line and column;
/// * 413 `too_many_rows` beyond [`CSV_ROWS_MAX`] rows, and 413 beyond the route's `body_max`.
///
/// ```
/// use highwater::{Csv, Router};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Price { sku: String, cents: u64 }
///
/// fn import(Csv(prices): Csv<Vec<Price>>) -> String {
///     format!("{} prices, the first of {}", prices.len(), prices[0].sku)
/// }
///
/// let app = Router::new().post("/prices", import);
/// # app.build().unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Csv<R>(pub R);

impl<R: CsvRows> Csv<R> {
    /// Sets the names of the header row, instead of those of the rows' fields. It is sent even if there is no row.
    pub fn header<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> CsvAnswer<R> {
        CsvAnswer::new(self.0).header(names)
    }

    /// Puts an apostrophe in front of fields that a spreadsheet would run as a formula: see
    /// [`CsvAnswer::escape_formulas`].
    pub fn escape_formulas(self) -> CsvAnswer<R> {
        CsvAnswer::new(self.0).escape_formulas()
    }
}

impl Csv<()> {
    /// An answer with the rows that `stream` yields, such as the rows of a query. Its first error ends the answer.
    ///
    /// ```
    /// use futures_core::Stream;
    /// use highwater::{BoxError, Csv, CsvAnswer, RowStream};
    /// use serde::Serialize;
    ///
    /// #[derive(Serialize)]
    /// struct Order { id: u64, customer: String }
    ///
    /// fn export<S>(orders: S) -> CsvAnswer<RowStream<S>>
    /// where
    ///     S: Stream<Item = Result<Order, BoxError>> + Send + 'static,
    /// {
    ///     Csv::stream(orders).header(["id", "customer"]).escape_formulas()
    /// }
    /// ```
    pub fn stream<S>(stream: S) -> CsvAnswer<RowStream<S>>
    where
        RowStream<S>: CsvRows,
    {
        CsvAnswer::new(RowStream(stream))
    }
}

impl<R: CsvRows> IntoResponse for Csv<R> {
    fn into_response(self) -> Response {
        CsvAnswer::new(self.0).into_response()
    }
}
