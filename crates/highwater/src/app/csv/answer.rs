//! Rows, encoded while they are sent.

use std::io::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use ::csv::{ReaderBuilder, Terminator, Writer, WriterBuilder};
use bytes::Bytes;
use futures_core::Stream;

use super::formulas;
use super::rows::CsvRows;
use crate::app::body::{Body, BoxError};
use crate::app::into_response::IntoResponse;
use crate::app::response::Response;

/// About how many bytes are sent at once, as for [`NdJson`](crate::NdJson).
const PIECE: usize = 16 << 10;

/// `header=present`: the first row holds the names (RFC 4180 §3).
pub(in crate::app) const TYPE: &str = "text/csv; charset=utf-8; header=present";

/// Rows as an answer, with settings; made by [`Csv`](super::Csv).
#[derive(Clone, Debug)]
#[must_use = "return it from a handler"]
pub struct CsvAnswer<R> {
    rows: R,
    header: Option<Vec<String>>,
    escapes_formulas: bool,
}

impl<R: CsvRows> CsvAnswer<R> {
    pub(super) fn new(rows: R) -> Self {
        CsvAnswer { rows, header: None, escapes_formulas: false }
    }

    /// Sets the names of the header row, instead of those of the rows' fields. It is sent even if there is no row.
    pub fn header<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.header = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Puts an apostrophe in front of each field that begins with `=`, `+`, `-`, `@` (in full width, too), a tab or the end of
    /// a line and is not a number, so that a spreadsheet shows it as text and does not run it; and also within a field, after a
    /// semicolon, a tab or the end of a line, because other cells begin there on systems whose list separator is a semicolon. A
    /// program that reads the file sees the apostrophes.
    ///
    /// ```
    /// use highwater::testing::Client;
    /// use highwater::{Csv, Router};
    ///
    /// let names = || Csv([("=HYPERLINK(\"//x\")", -5)]).header(["name", "points"]).escape_formulas();
    /// let answer = Client::new(Router::new().get("/", names)).get("/");
    /// assert_eq!(answer.text(), "name,points\r\n\"'=HYPERLINK(\"\"//x\"\")\",-5\r\n");
    /// ```
    pub fn escape_formulas(mut self) -> Self {
        self.escapes_formulas = true;
        self
    }
}

impl<R: CsvRows> IntoResponse for CsvAnswer<R> {
    fn into_response(self) -> Response {
        let response = Body::stream(Pieces::new(self)).into_response();
        response.with_content_type(TYPE)
    }
}

/// The bytes that the encoder has written. The encoder owns its writer and does not lend it, so the buffer is shared.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where it is among the rows.
enum At {
    /// The names that were given are still to be sent.
    Header(Vec<String>),
    /// The first row brings its names.
    First,
    Rest,
    /// A row has failed; the rows before it are sent first.
    Failed(BoxError),
    End,
}

struct Pieces<S> {
    rows: Pin<Box<S>>,
    at: At,
    /// One for all rows: it compares their numbers of fields.
    writer: Writer<Sink>,
    sink: Sink,
    escapes_formulas: bool,
}

impl<S> Pieces<S> {
    fn new<R: CsvRows<Rows = S>>(answer: CsvAnswer<R>) -> Self {
        let sink = Sink::default();
        let mut builder = WriterBuilder::new();
        builder.terminator(Terminator::CRLF).has_headers(answer.header.is_none());
        Pieces {
            rows: Box::pin(answer.rows.into_rows()),
            at: answer.header.map_or(At::First, At::Header),
            writer: builder.from_writer(sink.clone()),
            sink,
            escapes_formulas: answer.escapes_formulas,
        }
    }

    /// What was encoded since the last piece.
    fn piece(&mut self) -> Result<Vec<u8>, BoxError> {
        self.writer.flush()?;
        let piece = self.sink.take();
        match self.escapes_formulas {
            true => formulas::escape(&piece),
            false => Ok(piece),
        }
    }
}

impl<S, T> Pieces<S>
where
    S: Stream<Item = Result<T, BoxError>>,
    T: serde_core::Serialize,
{
    /// Encodes rows until there are enough for a piece, or no more for now.
    fn encode(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.sink.len() < PIECE {
            match std::mem::replace(&mut self.at, At::End) {
                At::Header(names) => {
                    self.at = self.writer.write_record(&names).map_or_else(failed, |()| At::Rest);
                }
                before @ (At::First | At::Rest) => match self.rows.as_mut().poll_next(cx) {
                    Poll::Pending => {
                        self.at = before;
                        return Poll::Pending;
                    }
                    Poll::Ready(None) => break,
                    Poll::Ready(Some(Err(error))) => self.at = At::Failed(error),
                    Poll::Ready(Some(Ok(row))) => {
                        let is_first = matches!(before, At::First);
                        self.at = self.row(&row, is_first).map_or_else(At::Failed, |()| At::Rest);
                    }
                },
                end @ (At::Failed(_) | At::End) => {
                    self.at = end;
                    break;
                }
            }
        }
        Poll::Ready(())
    }

    fn row(&mut self, row: &T, is_first: bool) -> Result<(), BoxError> {
        self.writer.serialize(row)?;
        if is_first {
            self.writer.flush()?;
            let written = self.sink.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !has_two_rows(&written) {
                return Err("the rows of a Csv have no field names; add `.header([…])`".into());
            }
        }
        Ok(())
    }
}

fn failed(error: ::csv::Error) -> At {
    At::Failed(error.into())
}

/// Whether names came with the first row: the encoder does not say.
fn has_two_rows(written: &[u8]) -> bool {
    let mut reader = ReaderBuilder::new().has_headers(false).flexible(true).from_reader(written);
    reader.byte_records().take(2).count() == 2
}

impl<S, T> Stream for Pieces<S>
where
    S: Stream<Item = Result<T, BoxError>>,
    T: serde_core::Serialize,
{
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let polled = this.encode(cx);
        let piece = match this.piece() {
            Ok(piece) => piece,
            Err(error) => {
                this.at = At::End;
                return Poll::Ready(Some(Err(error)));
            }
        };
        // What there is goes out before anybody waits.
        if !piece.is_empty() {
            return Poll::Ready(Some(Ok(piece.into())));
        }
        if polled.is_pending() {
            return Poll::Pending;
        }
        match std::mem::replace(&mut this.at, At::End) {
            At::Failed(error) => Poll::Ready(Some(Err(error))),
            _ => Poll::Ready(None),
        }
    }
}
