//! A clean end: SIGTERM drains the server, and then what handlers left for later is done, too.
//!
//! The server itself waits for answers that are under way. Work that goes on behind an answer is the application's: here a
//! thread does it, and `main` waits for that thread.
#![forbid(unsafe_code)]

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use highwater::{Accepted, Draining, Error, Router, Server, ServerError, State};

/// Letters that wait to be sent; beyond it 503.
pub const LETTERS_MAX: usize = 100;

#[derive(Clone)]
struct Outbox(SyncSender<String>);

/// The application, and the letters that its handlers accept. They end when the last copy of the router is dropped.
pub fn router() -> (Router, Receiver<String>) {
    let (outbox, letters) = sync_channel(LETTERS_MAX);
    let router = Router::new().state(Outbox(outbox)).post("/letters", accept).get("/wait", wait);
    (router, letters)
}

fn accept(
    State(Outbox(outbox)): State<Outbox>,
    letter: String,
) -> Result<Accepted<&'static str>, Error> {
    match outbox.try_send(letter) {
        Ok(()) => Ok(Accepted("it will be sent")),
        Err(TrySendError::Full(_)) => Err(Error::overloaded("too many letters wait")),
        Err(error @ TrySendError::Disconnected(_)) => Err(Error::internal(error)),
    }
}

/// Waits for news, and answers at once when the server is about to end: a drain does not wait for long polls.
async fn wait(draining: Draining) -> &'static str {
    tokio::select! {
        () = draining.begun() => "come back",
        () = tokio::time::sleep(Duration::from_secs(30)) => "no news",
    }
}

fn main() -> Result<(), ServerError> {
    let (router, letters) = router();
    let sender = thread::spawn(move || {
        for letter in letters {
            eprintln!("sent: {letter}");
        }
    });
    // Returns when the server has drained and the router, with its outbox, is gone.
    Server::new(router).run()?;
    sender.join().expect("the sender of letters does not panic");
    Ok(())
}
