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
/// A message is encoded once, and compressed once for all members with the same settings, before any of them is sent it. Sending never waits: the buffer of each member is bounded, and a member that reads too slowly
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
    /// How many members have their messages compressed.
    #[cfg(feature = "websocket-deflate")]
    compressing: usize,
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
        #[cfg(feature = "websocket-deflate")]
        {
            members.compressing += usize::from(sender.compresses());
        }
        members.list[index] = Some(sender);
        Membership { members: Arc::clone(&self.members), index }
    }

    /// Sends a message to all members. Returns how many took it.
    pub fn send(&self, message: impl Into<Message>) -> usize {
        self.send_frame(&Frame::new(message))
    }

    /// Sends a message that is encoded to all members. Returns how many took it.
    pub fn send_frame(&self, frame: &Frame) -> usize {
        #[cfg(not(feature = "websocket-deflate"))]
        let members = lock(&self.members);
        #[cfg(feature = "websocket-deflate")]
        let members = self.lock_compressed(frame);
        let sent = members.list.iter().flatten().filter(|member| self.send_one(member, frame));
        sent.count()
    }

    /// Locks the group once the message is compressed for all members; it is compressed while the group is not locked.
    ///
    /// This ends: there are few ways to compress, and each is made once.
    #[cfg(feature = "websocket-deflate")]
    fn lock_compressed(&self, frame: &Frame) -> MutexGuard<'_, Members> {
        loop {
            let members = lock(&self.members);
            if members.compressing == 0 {
                return members;
            }
            let mut known = None;
            let mut each = members.list.iter().flatten();
            let Some(grade) = each.find_map(|member| member.missing(frame, &mut known)) else {
                return members;
            };
            drop(members);
            frame.compress(grade);
        }
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
        #[cfg(feature = "websocket-deflate")]
        {
            members.compressing -=
                usize::from(sender.as_ref().is_some_and(WebSocketSender::compresses));
        }
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

#[cfg(all(test, feature = "websocket-deflate"))]
mod tests {
    use std::thread;

    use highwater_core::prng::Prng;

    use super::super::deflate::{Deflate, Offers};
    use super::super::options::Options;
    use super::super::shared::{Agreed, Shared};
    use super::*;
    use crate::app::Body;

    /// An open connection, and what it is sent.
    fn client(deflate: Option<&Deflate>) -> (WebSocket, Body) {
        let deflate = deflate.map(|deflate| {
            let offers = Offers::of([&b"permessage-deflate"[..]].into_iter());
            let agreed = deflate.accept(&offers).expect("it is a list").expect("it can be met");
            deflate.begin(&agreed.deflate)
        });
        let shared = Shared::begin(&Options::default(), Agreed { protocol: None, deflate });
        let (sender, body) = Body::channel();
        shared.lock().outgoing = Some(sender);
        (WebSocket::of(shared), body)
    }

    /// Purpose: while a large message is compressed for a group, others can join it, leave it and send to it.
    #[test]
    fn the_group_is_free_while_a_message_is_compressed() {
        let group = Broadcast::default();
        let (level_4, level_9) =
            (client(Some(&Deflate::new())), client(Some(&Deflate::new().level(9))));
        let _members = [group.join(&level_4.0), group.join(&level_9.0)];
        let mut prng = Prng::from_seed(1);
        let content: Vec<u8> = (0..2_000_000).map(|_| prng.below(64) as u8).collect();
        let frame = Frame::new(content);
        let (of_thread, sent) = (group.clone(), frame.clone());
        let sending = thread::spawn(move || of_thread.send_frame(&sent));
        let mut was_free = false;
        while !sending.is_finished() {
            let is_making = || frame.variants().is_making();
            was_free |= is_making() && group.members.try_lock().is_ok() && is_making();
            thread::yield_now();
        }
        assert_eq!(sending.join().expect("it sends"), 2);
        assert!(was_free, "the group was locked while the message was compressed");
    }

    /// Purpose: a message that no client is sent compressed costs no memory for compressed forms.
    #[test]
    fn nobody_pays_for_compression_without_it() {
        let group = Broadcast::default();
        let (plain, _body) = client(None);
        let member = group.join(&plain);
        let frame = Frame::new("x".repeat(5000));
        assert_eq!(group.send_frame(&frame), 1);
        assert!(!frame.variants().are_any());
        let (compressed, _body) = client(Some(&Deflate::new().bytes_min(5001)));
        let _short = group.join(&compressed);
        assert_eq!(group.send_frame(&frame), 2);
        assert!(!frame.variants().are_any(), "it is too short");
        drop(member);
        let (compressed, _body) = client(Some(&Deflate::new()));
        let _long = group.join(&compressed);
        assert_eq!(group.send_frame(&frame), 2);
        assert!(frame.variants().are_any());
    }
}
