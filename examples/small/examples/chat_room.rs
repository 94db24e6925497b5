//! One chat room: what a WebSocket says, all of them hear. examples/chat has many rooms, and a page.
#![forbid(unsafe_code)]

use highwater::websocket::{Broadcast, SlowClient};
use highwater::{Handler, Router, Server, ServerError, State, WebSocket, websocket};

/// Bytes of a message, at most; beyond it the client is closed with 1009.
const MESSAGE_BYTES_MAX: usize = 4096;

/// How many may be in the room; beyond it 503.
const MEMBERS_MAX: u32 = 1000;

/// The application: what `main` serves, and tests ask.
pub fn router() -> Router {
    let talk = websocket(talk).message_max(MESSAGE_BYTES_MAX).concurrency_limit(MEMBERS_MAX);
    // Clients that read too slowly are closed, and hold nobody up.
    Router::new().state(Broadcast::new(SlowClient::Close)).get("/room", talk)
}

async fn talk(mut socket: WebSocket, State(room): State<Broadcast>) {
    let _member = room.join(&socket);
    while let Some(message) = socket.recv().await {
        room.send(message);
    }
}

fn main() -> Result<(), ServerError> {
    Server::new(router()).run()
}
