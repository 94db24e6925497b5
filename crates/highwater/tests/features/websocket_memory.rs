//! The memory of messages that are not complete, over all WebSockets of a server.

use highwater::testing::{Client, Received, Setup, WebSocket};
use highwater::{Closed, Router, ServerConfig, websocket};

async fn echo(mut socket: highwater::WebSocket) -> Result<(), Closed> {
    while let Some(message) = socket.recv().await {
        socket.send(message).await?;
    }
    Ok(())
}

/// The content of a message's first part.
const PART: usize = 200_000;

/// Opens WebSockets that send the first part of a message each, until one is closed. Returns the others, and its code.
fn fill(client: &Client) -> (Vec<WebSocket<'_>>, Option<u16>) {
    let mut open = Vec::new();
    loop {
        let mut socket = client.websocket("/ws");
        // Binary, and more follows.
        let mut frame = vec![0x02, 0xff];
        frame.extend_from_slice(&(PART as u64).to_be_bytes());
        frame.extend_from_slice(&[0; 4]);
        frame.resize(frame.len() + PART, b'x');
        socket.send_bytes(&frame);
        match socket.try_recv_any() {
            None => open.push(socket),
            Some(Received::Close(close)) => return (open, close.map(|close| close.code.0)),
            Some(other) => panic!("{other:?}"),
        }
        assert!(open.len() < 100, "nothing bounds it");
    }
}

/// Purpose: beyond the memory for what clients send, a client whose message grows is closed with 1013; the others go on, and
/// what they held is free when their messages are complete, or their connections gone.
#[test]
fn messages_share_a_bound() {
    let config = ServerConfig { body_memory_max: Some(2 << 20), ..ServerConfig::default() };
    let client = Setup::new(Router::new().get("/ws", websocket(echo))).config(config).start();
    let (mut open, code) = fill(&client);
    assert_eq!(code, Some(1013));
    let many = open.len();
    // A buffer that grows may have room for twice its content.
    assert!(((1 << 20) / PART..=(2 << 20) / PART).contains(&many), "{many}");
    for socket in &mut open {
        // The last part, which is empty.
        socket.send_bytes(&[0x80, 0x80, 0, 0, 0, 0]);
        assert_eq!(socket.recv().map(|message| message.len()), Some(PART));
    }
    let (again, code) = fill(&client);
    assert_eq!((again.len(), code), (many, Some(1013)), "what was complete is free");
    drop((open, again));
    let (last, code) = fill(&client);
    assert_eq!((last.len(), code), (many, Some(1013)), "what is gone is free");
}
