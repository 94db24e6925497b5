//! A chat with rooms: each is a [`Broadcast`], and a stream of events says how many people are there.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwater::sse::{Event, Sse};
use highwater::websocket::{Broadcast, Membership, SlowClient};
use highwater::{Closed, Error, Handler, Html, Path, Router, State, WebSocket, websocket};
use tokio::sync::watch;

/// Bytes of a message, at most; beyond it the client is closed with 1009.
const MESSAGE_MAX: usize = 4 * 1024;

/// Rooms with members, at most; beyond it, clients that ask for another one are closed.
const ROOMS_MAX: usize = 1000;

/// People in all rooms, at most; beyond it 503.
const PEOPLE_MAX: u32 = 10_000;

/// All that the handlers share, on all workers.
#[derive(Clone)]
struct Chat {
    rooms: Arc<Mutex<HashMap<String, Broadcast>>>,
    /// How many people there are.
    people: watch::Sender<usize>,
}

/// Somebody who is there; leaves when dropped.
struct Person(watch::Sender<usize>);

impl Chat {
    fn new() -> Self {
        Chat { rooms: Arc::default(), people: watch::Sender::new(0) }
    }

    /// Joins the room of that name, which is made if there is none.
    fn join(&self, name: String, socket: &WebSocket) -> Result<(Broadcast, Membership), Error> {
        // Locked until it has a member: an empty room may be gone for the next one who looks.
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        let room = room(&mut rooms, name)?;
        let member = room.join(socket);
        Ok((room, member))
    }

    fn enter(&self) -> Person {
        self.people.send_modify(|people| *people += 1);
        Person(self.people.clone())
    }
}

/// The room of that name. Those without members are removed, so that names do not pile up.
fn room(rooms: &mut HashMap<String, Broadcast>, name: String) -> Result<Broadcast, Error> {
    rooms.retain(|_, room| !room.is_empty());
    if let Some(room) = rooms.get(&name) {
        return Ok(room.clone());
    }
    if rooms.len() >= ROOMS_MAX {
        return Err(Error::overloaded("there are too many rooms"));
    }
    let room = Broadcast::new(SlowClient::Close);
    rooms.insert(name, room.clone());
    Ok(room)
}

impl Drop for Person {
    fn drop(&mut self) {
        self.0.send_modify(|people| *people -= 1);
    }
}

/// The application.
pub fn router() -> Router {
    let talk = websocket(talk)
        .message_max(MESSAGE_MAX)
        .idle_timeout(Duration::from_secs(3600))
        .concurrency_limit(PEOPLE_MAX);
    Router::new()
        .state(Chat::new())
        .get("/", || Html(include_str!("page.html")))
        .get("/rooms/{room}", talk)
        .get("/people", people)
}

/// Passes everything on to the others in the room.
async fn talk(
    mut socket: WebSocket,
    Path(name): Path<String>,
    State(chat): State<Chat>,
) -> Result<(), Error> {
    let (room, _member) = chat.join(name, &socket)?;
    let _person = chat.enter();
    while let Some(message) = socket.recv().await {
        room.send(message);
    }
    Ok(())
}

/// How many people are there, now and whenever that changes.
async fn people(State(chat): State<Chat>) -> Sse {
    let mut people = chat.people.subscribe();
    Sse::run(|mut events| async move {
        loop {
            let count = *people.borrow_and_update();
            events.send(Event::data(count.to_string()).event("people")).await?;
            if people.changed().await.is_err() {
                return Ok::<(), Closed>(());
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use highwater::testing::Client;

    use super::*;

    /// Purpose: those in a room hear each other and nobody else; the number of people follows them.
    #[test]
    fn rooms_and_people() {
        let client = Client::new(router());
        let mut people = client.events("/people");
        let mut count = || people.next().map(|event| event.data);
        assert_eq!(count().as_deref(), Some("0"));
        let mut harbour: Vec<_> = (0..2).map(|_| client.websocket("/rooms/harbour")).collect();
        assert_eq!((count().as_deref(), count().as_deref()), (Some("1"), Some("2")));
        let mut pier = client.websocket("/rooms/pier");
        assert_eq!(count().as_deref(), Some("3"));
        harbour[0].send("low tide");
        for socket in &mut harbour {
            assert_eq!(socket.recv().expect("it is open").as_text(), Some("low tide"));
        }
        assert_eq!(pier.try_recv_any(), None);
        drop(harbour);
        assert_eq!((count().as_deref(), count().as_deref()), (Some("2"), Some("1")));
        assert!(client.get("/").text().contains("WebSocket"));
    }

    /// Purpose: when there are as many rooms as there may be, no other one is made, and people still join those that are there.
    #[test]
    fn when_there_are_enough_rooms_they_can_be_joined() {
        let full = async |mut socket: WebSocket| {
            let chat = Chat::new();
            let join = |room: usize| chat.join(room.to_string(), &socket);
            let members: Vec<_> = (0..ROOMS_MAX).map(join).collect();
            assert!(members.iter().all(Result::is_ok));
            let answer = format!("{} {}", join(ROOMS_MAX).is_ok(), join(0).is_ok());
            socket.send(answer).await
        };
        let client = Client::new(Router::new().get("/", websocket(full)));
        let answer = client.websocket("/").recv().expect("it is open");
        assert_eq!(answer.as_text(), Some("false true"));
    }

    /// Purpose: an empty room is no room, so that names cannot pile up.
    #[test]
    fn empty_rooms_go() {
        let mut rooms = HashMap::new();
        for name in 0..ROOMS_MAX + 10 {
            assert!(room(&mut rooms, name.to_string()).is_ok());
        }
        assert_eq!(rooms.len(), 1);
    }
}
