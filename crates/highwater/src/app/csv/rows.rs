//! Where rows come from: an iterator or a stream.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use serde_core::Serialize;

use crate::app::body::BoxError;

/// The rows of an answer: an iterator of them, or by [`Csv::stream`](super::Csv::stream) a stream of results.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no rows that can be sent as CSV",
    label = "these are not rows",
    note = "give `Csv(…)` an iterator of structs that implement `serde::Serialize`, which is `Send`, `Unpin` and `'static`, \
            or `Csv::stream(…)` a stream of `Result<row, error>`"
)]
pub trait CsvRows {
    /// A row. `impl CsvRows<Row = Order>` names it, where the document of an interface has to know its columns.
    type Row: Serialize;
    /// The rows as they come.
    #[doc(hidden)]
    type Rows: Stream<Item = Result<Self::Row, BoxError>> + Send + 'static;

    /// Begins with the first row.
    #[doc(hidden)]
    fn into_rows(self) -> Self::Rows;
}

impl<I> CsvRows for I
where
    I: IntoIterator<Item: Serialize, IntoIter: Send + Unpin + 'static>,
{
    type Row = I::Item;
    type Rows = Each<I::IntoIter>;

    fn into_rows(self) -> Self::Rows {
        Each(self.into_iter())
    }
}

/// The rows of a stream; made by [`Csv::stream`](super::Csv::stream).
#[derive(Clone, Copy, Debug)]
pub struct RowStream<S>(pub(super) S);

impl<S, T, E> CsvRows for RowStream<S>
where
    S: Stream<Item = Result<T, E>> + Send + 'static,
    T: Serialize,
    E: Into<BoxError>,
{
    type Row = T;
    type Rows = Converted<S>;

    fn into_rows(self) -> Self::Rows {
        Converted(Box::pin(self.0))
    }
}

/// An iterator, which is always ready.
#[doc(hidden)]
#[derive(Debug)]
pub struct Each<I>(I);

impl<I: Iterator + Unpin> Stream for Each<I> {
    type Item = Result<I::Item, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.next().map(Ok))
    }
}

/// A stream whose errors are converted.
#[doc(hidden)]
#[derive(Debug)]
pub struct Converted<S>(Pin<Box<S>>);

impl<S, T, E> Stream for Converted<S>
where
    S: Stream<Item = Result<T, E>>,
    E: Into<BoxError>,
{
    type Item = Result<T, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(cx).map(|next| next.map(|row| row.map_err(Into::into)))
    }
}
