//! The destination of batches.

pub mod journal;
#[cfg(feature = "kafka")]
pub mod kafka;
mod null;

use std::sync::Arc;

pub use journal::JournalSink;
pub use null::{Null, NullCounts};

use crate::batch::Batch;
use crate::failure::Failure;
use crate::receipt::Receipt;

/// Accepts batches. There is one per worker, called on the worker's thread only.
pub trait Sink {
    /// Accepts or refuses a batch immediately. It must not block.
    ///
    /// A sink that needs the batch after this call clones the `Arc`, and drops the clone before it resolves the
    /// receipt: the batch's memory is then reused.
    ///
    /// # Errors
    ///
    /// Why the batch was not accepted. No part of it is or will be written. After [`FailureKind::Busy`] the batcher
    /// retries; after other failures, [`OnFailure`] decides.
    ///
    /// [`FailureKind::Busy`]: crate::FailureKind::Busy
    /// [`OnFailure`]: crate::OnFailure
    fn write(&mut self, batch: &Arc<Batch>) -> Result<Receipt, Failure>;
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn write(&mut self, batch: &Arc<Batch>) -> Result<Receipt, Failure> {
        (**self).write(batch)
    }
}
