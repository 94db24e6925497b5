//! What may a server take of its machine: which driver, which cores, how many workers and connections?

use std::num::NonZeroUsize;

use highwater_sys::{cpu, limits};

use super::config::{Pin, ServerConfig};
use super::error::ServerError;
use super::transport::{self, Chosen};
use crate::machine;

/// What the settings ask for, as far as the machine has it.
pub(super) struct Capacity {
    pub(super) transport: Chosen,
    /// Those that the process may use.
    cores: Vec<usize>,
    pub(super) workers: usize,
    /// Of all workers together.
    pub(super) connections_max: u32,
}

impl Capacity {
    /// Raises the limit of descriptors, and keeps freed memory for the threads that are started.
    pub(super) fn of_machine(config: &ServerConfig) -> Result<Self, ServerError> {
        let transport = transport::choose(config.transport).map_err(ServerError::Transport)?;
        let cores = cpu::allowed().unwrap_or_default();
        let workers = workers(config)?;
        limits::keep_freed_memory();
        let connections_max = connections_max(config, workers)?;
        Ok(Capacity { transport, cores, workers, connections_max })
    }

    /// Most connections of one worker: at least 1, even with fewer descriptors than workers.
    pub(super) fn connections_per_worker(&self) -> u32 {
        (self.connections_max / self.workers as u32).max(1)
    }

    /// The core to which the thread of worker `index` is pinned.
    pub(super) fn core(&self, pin: Pin, index: usize) -> Option<usize> {
        let is_wanted = match pin {
            Pin::On => true,
            Pin::Off => false,
            // Fewer workers than cores: the scheduler knows better which of them are free.
            Pin::Auto => self.workers == self.cores.len() && self.workers > 1,
        };
        if is_wanted && !self.cores.is_empty() {
            Some(self.cores[index % self.cores.len()])
        } else {
            None
        }
    }
}

/// How many workers there are: each has its share of the connections, so there are no more workers than those.
fn workers(config: &ServerConfig) -> Result<usize, ServerError> {
    let most = config.connections_max.map_or(usize::MAX, |connections| connections as usize);
    match config.workers.map(NonZeroUsize::get) {
        None => Ok(cpu::suggested_workers().min(most)),
        Some(workers) if workers <= most => Ok(workers),
        Some(workers) => Err(ServerError::Settings(format!(
            "connections-max {most} is less than workers {workers}, and each worker has a share of the connections; allow \
             {workers} or more, or set workers to at most {most}"
        ))),
    }
}

/// Fewer connections than this are worth a warning: one page of a browser takes six.
const CONNECTIONS_FEW: u32 = 512;

/// Raises the descriptor limit as far as it goes, and derives the connection limit from it.
fn connections_max(config: &ServerConfig, workers: usize) -> Result<u32, ServerError> {
    let descriptors = limits::raise_descriptors().map_err(ServerError::signals)?.soft;
    let possible = machine::connections_max(descriptors, workers);
    let wanted = config.connections_max.unwrap_or(CONNECTIONS_FEW);
    if possible < wanted {
        tracing::warn!(
            descriptors,
            connections = possible,
            wanted = config.connections_max,
            instead = machine::RAISE_DESCRIPTORS,
            "the descriptors allow few connections at once",
        );
    }
    Ok(config.connections_max.unwrap_or(possible))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: each worker can have a connection: a number of workers beyond `connections-max` is refused with the remedy, and
    /// a number that nobody has chosen is smaller then.
    #[test]
    fn workers_share_the_connections() {
        let with = |connections_max, chosen| {
            let workers = NonZeroUsize::new(chosen);
            workers_of(&ServerConfig { connections_max, workers, ..ServerConfig::default() })
        };
        fn workers_of(config: &ServerConfig) -> Result<usize, String> {
            workers(config).map_err(|error| error.to_string())
        }
        assert_eq!(with(Some(1), 0), Ok(1));
        assert_eq!(with(None, 7), Ok(7));
        assert_eq!(with(Some(4), 4), Ok(4));
        let error = with(Some(3), 4).expect_err("one has none");
        let message = "connections-max 3 is less than workers 4";
        assert!(error.contains(message) && error.contains("set workers to at most 3"), "{error}");
    }
}
