//! Makes the TLS side of every connection of a listener.

use std::sync::Arc;

use highwater_core::protocol::Versions;

use super::super::worker::{Seal, Sealer};
use super::seal::TlsSeal;
use super::shared::Shared;

/// Seals the connections of a listener.
#[derive(Debug)]
pub(super) struct TlsSealer {
    pub(super) shared: Arc<Shared>,
    /// What its listener allows.
    pub(super) versions: Versions,
}

impl Sealer for TlsSealer {
    fn accept(&self) -> Box<dyn Seal> {
        Box::new(TlsSeal::new(Arc::clone(&self.shared), self.versions))
    }
}
