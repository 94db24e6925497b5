//! Connections that stay open: a WebSocket that echoes, and events that go on where their client left.

use std::time::Duration;

use highwater::sse::{Event, LastEventId, Sse};
use highwater::{Closed, Router, WebSocket, websocket};

/// Bytes of a message, at most; beyond it the client is closed with 1009.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// `/ws` and `/events`.
pub(crate) fn routes() -> Router {
    let echo = websocket(echo).message_max(MESSAGE_BYTES_MAX);
    Router::new().get("/ws", echo).get("/events", ticks)
}

async fn echo(mut socket: WebSocket) -> Result<(), Closed> {
    while let Some(message) = socket.recv().await {
        socket.send(message).await?;
    }
    Ok(())
}

/// One event a second, numbered from 0; a client that was disconnected says which one it has got last.
async fn ticks(last: LastEventId) -> Sse {
    let next = last.number().map_or(0, |last| last.saturating_add(1));
    Sse::run(move |mut events| async move {
        for number in next.. {
            events.send(Event::data(number.to_string()).id(number).event("tick")).await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok::<(), Closed>(())
    })
}

#[cfg(test)]
mod tests {
    use highwater::testing::Client;

    use super::*;

    /// Purpose: messages come back, and events go on behind the one that the client names.
    #[test]
    fn messages_and_events() {
        let client = Client::new(routes());
        let mut socket = client.websocket("/ws");
        socket.send("hello");
        assert_eq!(socket.recv().expect("it is open").as_text(), Some("hello"));
        let numbers = |events: highwater::testing::Events<'_>| -> Vec<String> {
            events.take(2).map(|event| event.data).collect()
        };
        assert_eq!(numbers(client.events("/events")), ["0", "1"]);
        assert_eq!(numbers(client.events_after("/events", "41")), ["42", "43"]);
    }
}
