//! The values that a worker makes before it accepts connections: those of the application, and those of layers.

use std::rc::Rc;
use std::time::Duration;

use super::application::App;
use super::guard::guarded;
use super::job::Submit;
use super::worker_local::{LayerLocal, WorkerContext, WorkerInfo};

impl App {
    /// Makes the values of worker `worker`, each within `time_max`; `None` if the application needs none. To be awaited on
    /// the worker's thread, and inside its runtime if it has one.
    ///
    /// # Errors
    /// Which value could not be made, and why.
    pub(crate) async fn worker_context(
        &self,
        worker: WorkerInfo,
        time_max: Duration,
        submit: Submit,
    ) -> Result<Option<Rc<WorkerContext>>, String> {
        let mut values = Vec::new();
        for local in &self.shared.worker_locals {
            values.push(local.make_for(worker, time_max).await?);
        }
        let layers = self.layer_locals()?;
        if values.is_empty() && layers.is_empty() && !self.awaits_pool() {
            return Ok(None);
        }
        Ok(Some(WorkerContext::new(values, layers, (submit, self.draining()))))
    }

    /// Makes the layers' values on this worker, each once: a nested router repeats the layers of its parents.
    fn layer_locals(&self) -> Result<Vec<LayerLocal>, String> {
        let mut made: Vec<LayerLocal> = Vec::new();
        let mut seen = Vec::new();
        let layers = self.shared.scopes.iter().flat_map(|scope| scope.stack.layers());
        for (key, make) in layers.filter_map(|layer| layer.per_worker.as_ref()) {
            if seen.contains(key) {
                continue;
            }
            seen.push(*key);
            let local = guarded(|| make());
            made.push(local.map_err(|panic| format!("a layer cannot be made: {panic}"))?);
        }
        Ok(made)
    }
}
