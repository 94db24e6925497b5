//! The messages of one WebSocket that wait to be received, and what they count.

use std::collections::VecDeque;

use super::message::Message;

/// Room for messages that an empty inbox keeps, so that idle connections have little memory.
const KEPT: usize = 4;

/// The most messages that a new inbox has room for.
const FIRST_MAX: usize = 32;

/// What a message that waits counts besides its content.
const MESSAGE_COST: usize = size_of::<Message>();

/// The messages, oldest first, each with what it counts.
#[derive(Debug)]
pub(super) struct Inbox {
    messages: VecDeque<(Message, usize)>,
    size: usize,
    size_max: usize,
}

impl Inbox {
    /// An inbox that is full from `size_max` bytes on.
    pub(super) fn new(size_max: usize) -> Inbox {
        Inbox { messages: VecDeque::new(), size: 0, size_max: size_max.max(1) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.size >= self.size_max
    }

    /// What all of them count, in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Adds a message that took `taken` of the `before` bytes of its input. It is a part of its buffer, and keeps all of it.
    #[inline]
    pub(super) fn push(&mut self, message: Message, taken: usize, before: usize) {
        let cost = message.len().max(taken) + MESSAGE_COST;
        if self.messages.capacity() == 0 {
            // One allocation if all messages of the input are as long as the first.
            self.messages.reserve((before / taken.max(1)).clamp(1, FIRST_MAX));
        }
        self.size += cost;
        self.messages.push_back((message, cost));
    }

    /// The newest message counts so many bytes more, which were in its buffer behind it.
    pub(super) fn charge(&mut self, bytes: usize) {
        if let Some((_, cost)) = self.messages.back_mut() {
            *cost += bytes;
            self.size += bytes;
        }
    }

    /// The oldest message.
    pub(super) fn pop(&mut self) -> Option<Message> {
        let (message, cost) = self.messages.pop_front()?;
        self.size -= cost;
        if self.messages.is_empty() && self.messages.capacity() > KEPT {
            self.messages = VecDeque::new();
        }
        Some(message)
    }

    pub(super) fn clear(&mut self) {
        self.messages = VecDeque::new();
        self.size = 0;
    }
}
