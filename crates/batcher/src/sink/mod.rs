//! Where do batches go?

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

/// Takes batches. Each worker has one of its own, which is called on the worker's thread only.
pub trait Sink {
    /// Takes a batch, or refuses it, at once. It must not block.
    ///
    /// A sink that needs the batch after this call clones the `Arc`, and drops the clone before it resolves the
    /// receipt: the batch's memory is used again then.
    ///
    /// # Errors
    ///
    /// Why the batch was not taken. Nothing of it is or will be written. After [`FailureKind::Busy`] the batcher
    /// tries again; what it does after another one, [`OnFailure`] says.
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
