//! Asks the server for its page, again and again.
//!
//! A thread asks, so that the screen never waits for a server. One answer is under way at most.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;
use std::{io, thread};

use highwater_core::time::Instant;
use highwater_sys::clock;
use ureq::Agent;
use ureq::http::{StatusCode, Uri};

use super::sample::Sample;
use crate::scrape::{self, Failure, Shown};

/// What `top` calls itself to the server.
const CALLED: &str = "highwater-top";

const REMEDY: &str = "is the server running? Its log names its metrics port, and --metrics sets it";

/// A page, or why there is none, and when that was known.
pub(crate) struct Answer {
    pub(crate) at: Instant,
    pub(crate) result: Result<Sample, String>,
}

/// One server, to be asked.
pub(crate) struct Server {
    agent: Agent,
    url: Uri,
}

impl Server {
    pub(crate) fn new(url: Uri) -> Server {
        Server { agent: scrape::agent(CALLED), url }
    }

    /// The URL, without secrets.
    pub(crate) fn shown(&self) -> String {
        Shown(&self.url).to_string()
    }

    /// Asks once, and waits for the answer.
    pub(crate) fn ask(&self) -> Answer {
        let result = self.page();
        Answer { at: clock::monotonic(), result }
    }

    fn page(&self) -> Result<Sample, String> {
        let (status, text) =
            scrape::fetch(&self.agent, &self.url).map_err(|failure| match failure {
                Failure::Silent(why) => format!("{why}; {REMEDY}"),
                Failure::Wrong(why) => why,
            })?;
        let shown = Shown(&self.url);
        match status {
            StatusCode::OK => {
                let sample = Sample::read(&text, clock::monotonic());
                sample.map_err(|stranger| format!("{shown} is {stranger}"))
            }
            StatusCode::NOT_FOUND => Err(format!(
                "{shown} answered 404: metrics are on a port of their own, the one that --metrics \
                 names"
            )),
            status => Err(format!("{shown} answered {status}")),
        }
    }

    /// Asks every `interval`, the first time at once, until the receiver is dropped.
    ///
    /// # Errors
    /// The system cannot start another thread.
    pub(crate) fn watch(self, interval: Duration) -> io::Result<Receiver<Answer>> {
        let (sender, receiver) = mpsc::sync_channel(1);
        thread::Builder::new().name("top-asking".to_owned()).spawn(move || {
            loop {
                let began = clock::monotonic();
                if sender.send(self.ask()).is_err() {
                    return;
                }
                thread::sleep(interval.saturating_sub(clock::monotonic() - began));
            }
        })?;
        Ok(receiver)
    }
}
