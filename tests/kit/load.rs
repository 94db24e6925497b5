//! Some requests in the background, while a test looks at something else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::{Client, get};

/// Between two requests: some load is enough, and what looks at it needs the machine, too.
const PAUSE: Duration = Duration::from_millis(2);

/// Requests, one after the other, until dropped. While the server is down, they are retried.
pub struct Load {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Load {
    /// Asks the server at `address` for `target`.
    pub fn on(address: SocketAddr, target: &'static str) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Relaxed) {
                thread::sleep(PAUSE);
                let Ok(mut client) = Client::try_connect(address) else { continue };
                while !stopped.load(Relaxed)
                    && client.send(get(target)).is_ok()
                    && matches!(client.try_answer(), Ok(Some(_)))
                {
                    thread::sleep(PAUSE);
                }
            }
        });
        Load { stop, thread: Some(thread) }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
