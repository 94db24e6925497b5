//! How is one message sent to many clients?

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_core::websocket::CloseCode;

use super::message::{Frame, Message};
use super::socket::{TrySendError, WebSocket, WebSocketSender};

/// How to treat a client that reads so slowly that more than [`send_buffer_max`](super::WebSocketUpgrade::send_buffer_max)
/// waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowClient {
    /// It is closed with 1013 (try again later), so that it notices, and can request the messages that it has missed.
    #[default]
    Close,
    /// It misses messages, which is right if only the latest one matters.
    Skip,
}

/// A group of WebSockets, on any workers, that all get the same messages. Clones are the same group.
///
/// A message is encoded once. Sending never waits: the buffer of each member is bounded, and a member that reads too slowly
/// is treated as [`SlowClient`] says.
///
/// ```
/// use highwater::websocket::Broadcast;
/// use highwater::{Router, State, WebSocket, websocket};
///
/// async fn chat(mut socket: WebSocket, State(room): State<Broadcast>) {
///     let _member = room.join(&socket);
///     while let Some(message) = socket.recv().await {
///         room.send(message);
///     }
/// }
///
/// let app = Router::new().state(Broadcast::default()).get("/chat", websocket(chat));
/// # app.build().unwrap();
/// ```
#[derive(Clone, Default)]
pub struct Broadcast {
    members: Arc<Mutex<Members>>,
    slow: SlowClient,
}

#[derive(Default)]
struct Members {
    list: Vec<Option<WebSocketSender>>,
    free: Vec<usize>,
}

/// Membership in a [`Broadcast`]; dropping it leaves the group.
#[must_use = "dropping it leaves the group"]
pub struct Membership {
    members: Arc<Mutex<Members>>,
    index: usize,
}

impl Broadcast {
    /// A group without members.
    pub fn new(slow: SlowClient) -> Broadcast {
        Broadcast { slow, ..Broadcast::default() }
    }

    /// Adds a member.
    pub fn join(&self, socket: &WebSocket) -> Membership {
        let sender = socket.sender();
        let mut members = lock(&self.members);
        let index = match members.free.pop() {
            Some(index) => index,
            None => {
                members.list.push(None);
                members.list.len() - 1
            }
        };
        members.list[index] = Some(sender);
        Membership { members: Arc::clone(&self.members), index }
    }

    /// Sends a message to all members. Returns how many took it.
    pub fn send(&self, message: impl Into<Message>) -> usize {
        self.send_frame(&Frame::new(message))
    }

    /// Sends a message that is encoded to all members. Returns how many took it.
    pub fn send_frame(&self, frame: &Frame) -> usize {
        let members = lock(&self.members);
        let sent = members.list.iter().flatten().filter(|member| self.send_one(member, frame));
        sent.count()
    }

    fn send_one(&self, member: &WebSocketSender, frame: &Frame) -> bool {
        match member.try_send_frame(frame) {
            Ok(()) => true,
            Err(TrySendError::Closed) => false,
            Err(TrySendError::Full) => {
                if self.slow == SlowClient::Close {
                    member.close(CloseCode::TRY_AGAIN_LATER, "messages are read too slowly");
                }
                false
            }
        }
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        let members = lock(&self.members);
        members.list.len() - members.free.len()
    }

    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn lock(members: &Mutex<Members>) -> MutexGuard<'_, Members> {
    members.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut members = lock(&self.members);
        let sender = members.list[self.index].take();
        members.free.push(self.index);
        drop(members);
        drop(sender);
    }
}

impl fmt::Debug for Broadcast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broadcast").field("members", &self.len()).field("slow", &self.slow).finish()
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Membership")
    }
}
