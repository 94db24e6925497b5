//! How does a future of the application end if it makes no response?

use super::body::{BoxError, Closed};
use super::error::Error;

/// What a function returns that goes on after its response has begun, such as one that takes a
/// [`WebSocket`](crate::WebSocket): nothing, or a `Result` without a value, so that `?` can be used. [`Closed`] is no
/// failure: the client has gone.
#[diagnostic::on_unimplemented(
    message = "nobody takes what this function returns: `{Self}`",
    label = "it must return `()` or `Result<(), E>`",
    note = "the response has begun already; send what the client is to get"
)]
pub trait Finish {
    /// The error, for the log.
    #[doc(hidden)]
    fn failure(self) -> Option<BoxError>;
}

impl Finish for () {
    fn failure(self) -> Option<BoxError> {
        None
    }
}

impl<E: Into<BoxError>> Finish for Result<(), E> {
    fn failure(self) -> Option<BoxError> {
        self.err().map(Into::into).filter(|error| !error.is::<Closed>())
    }
}

/// What a log says of an error whose response cannot be sent any more.
impl From<Error> for BoxError {
    fn from(error: Error) -> BoxError {
        match error.source() {
            Some(source) => format!("{}: {source}", error.message()).into(),
            None => error.message().to_owned().into(),
        }
    }
}
