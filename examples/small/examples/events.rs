//! Server-sent events: a counter that goes on where a client left off. `curl -N http://127.0.0.1:8080/ticks`
#![forbid(unsafe_code)]

use std::time::Duration;

use highwater::sse::{Event, LastEventId, Sse};
use highwater::{Closed, Router, Server, ServerError};

/// The application: what `main` serves, and tests ask.
pub fn router() -> Router {
    Router::new().get("/ticks", ticks)
}

/// One event a second. A browser that was disconnected comes back and says which one it has got last.
async fn ticks(last: LastEventId) -> Sse {
    let next = last.number().map_or(0, |last| last.saturating_add(1));
    Sse::run(move |mut events| async move {
        for number in next.. {
            events.send(Event::data(number.to_string()).id(number)).await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok::<(), Closed>(())
    })
}

fn main() -> Result<(), ServerError> {
    Server::new(router()).run()
}
