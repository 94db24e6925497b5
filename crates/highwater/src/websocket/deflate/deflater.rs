//! How are messages compressed for a client (RFC 7692 §7.2.1)?

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress};
use highwater_core::websocket::extensions::Context;
use highwater_core::websocket::{Kind, encode};

use super::TAIL;

/// Room that is added to the output at least. zlib writes the mark of a flush twice if there is less than seven bytes of it.
const ROOM_MIN: usize = 64;

thread_local! {
    /// For connections that keep no context: in use while one message is compressed. A quarter of a megabyte, made once.
    static FREE: Cell<Option<(Grade, Compress)>> = const { Cell::new(None) };
}

/// What compressed bytes depend on besides the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Grade {
    level: u32,
    window_bits: u8,
}

/// Compresses the messages for one peer.
pub(crate) struct Deflater {
    grade: Grade,
    bytes_min: usize,
    /// The messages before, if they are referred to; empty before the first one.
    ///
    /// It has a lock of its own, so that what compresses holds up no reader of the connection.
    context: Option<Mutex<Option<Compress>>>,
}

/// While it is held, no other message is compressed with the context: the order of messages is that of their compression.
pub(crate) type InOrder<'d> = Option<MutexGuard<'d, Option<Compress>>>;

impl Deflater {
    pub(crate) fn new(level: u32, bytes_min: usize, context: Context) -> Deflater {
        let grade = Grade { level, window_bits: context.window_bits };
        Deflater { grade, bytes_min, context: context.is_kept.then(Mutex::default) }
    }

    pub(in super::super) fn grade(&self) -> Grade {
        self.grade
    }

    /// Whether a message of this length is compressed. An empty one becomes larger.
    #[inline]
    pub(crate) fn compresses(&self, len: usize) -> bool {
        len >= self.bytes_min.max(1)
    }

    /// A message compressed; `None`: it is to be sent as it is, since it does not become smaller.
    pub(crate) fn compress(&self, content: &[u8]) -> (Option<Vec<u8>>, InOrder<'_>) {
        let Some(mut context) = self.lock() else { return (self.grade.alone(content), None) };
        let state = context.get_or_insert_with(|| self.grade.begin());
        // It is sent whether it is smaller or not: what follows refers to it.
        (Some(run(state, content)), Some(context))
    }

    /// Forgets the messages before: what is sent next was compressed elsewhere, so the client's window is not ours any more.
    pub(crate) fn forget(&self) -> InOrder<'_> {
        let mut context = self.lock();
        if let Some(state) = context.as_mut().and_then(|context| context.as_mut()) {
            state.reset();
        }
        context
    }

    fn lock(&self) -> InOrder<'_> {
        // A panic within would leave a state that may be half a message's: it is given up.
        self.context.as_ref().map(|context| match context.lock() {
            Ok(state) => state,
            Err(poisoned) => {
                let mut state = poisoned.into_inner();
                *state = None;
                state
            }
        })
    }
}

impl Grade {
    fn begin(self) -> Compress {
        Compress::new_with_window_bits(Compression::new(self.level), false, self.window_bits)
    }

    /// A message that refers to no other; `None` if it does not become smaller.
    fn alone(self, content: &[u8]) -> Option<Vec<u8>> {
        let mut state = match FREE.take() {
            Some((grade, mut state)) if grade == self => {
                state.reset();
                state
            }
            _ => self.begin(),
        };
        let compressed = run(&mut state, content);
        FREE.set(Some((self, state)));
        (compressed.len() < content.len()).then_some(compressed)
    }
}

/// The header of a compressed message of `len` bytes, and how many of its bytes count.
pub(crate) fn compressed_header(kind: Kind, len: usize) -> ([u8; encode::HEADER_MAX], usize) {
    let (mut header, header_len) = encode::header(kind, len);
    header[0] |= encode::COMPRESSED;
    (header, header_len)
}

/// Compresses up to a byte's boundary, and leaves out its mark.
fn run(state: &mut Compress, mut content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() / 2 + ROOM_MIN);
    loop {
        let before = state.total_in();
        let status = state.compress_vec(content, &mut out, FlushCompress::Sync);
        status.expect("its state is valid, whatever the content is");
        content = &content[(state.total_in() - before) as usize..];
        if content.is_empty() && out.len() < out.capacity() {
            break;
        }
        out.reserve((out.len() / 2).max(ROOM_MIN));
    }
    debug_assert!(out.ends_with(&TAIL), "a flush ends with its mark");
    out.truncate(out.len() - TAIL.len());
    out
}

/// The compressed forms of one message for many clients, each made when it is first sent.
///
/// There is one for each level and window, of which the clients of an endpoint have seven at most.
pub(in super::super) struct Variants {
    kind: Kind,
    content_len: usize,
    /// Clones share it, from the first clone on: a message that nobody is sent compressed needs none.
    made: OnceLock<Arc<Mutex<Vec<Variant>>>>,
}

/// A frame; `None` if the message does not become smaller.
type Variant = (Grade, Option<Bytes>);

impl Variants {
    pub(in super::super) fn new(kind: Kind, content_len: usize) -> Variants {
        Variants { kind, content_len, made: OnceLock::new() }
    }

    /// The variant that this client is to be sent, if it is not made yet.
    pub(in super::super) fn missing(&self, deflater: &Deflater) -> Option<Grade> {
        let is_made = |made: &Arc<Mutex<Vec<Variant>>>| {
            let made = made.lock().unwrap_or_else(PoisonError::into_inner);
            made.iter().any(|(grade, _)| *grade == deflater.grade)
        };
        let is_wanted = deflater.compresses(self.content_len);
        (is_wanted && !self.made.get().is_some_and(is_made)).then_some(deflater.grade)
    }

    /// The variant of `frame` for this client; `None` if the message does not become smaller.
    pub(in super::super) fn get(&self, deflater: &Deflater, frame: &[u8]) -> Option<Bytes> {
        if !deflater.compresses(self.content_len) {
            return None;
        }
        self.make(deflater.grade, frame)
    }

    /// The same, for clients of this grade. Who wants it meanwhile waits: it is made once.
    pub(in super::super) fn make(&self, grade: Grade, frame: &[u8]) -> Option<Bytes> {
        let made = self.made.get_or_init(Arc::default);
        let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, variant)) = made.iter().find(|(of, _)| *of == grade) {
            return variant.clone();
        }
        let content = &frame[frame.len() - self.content_len..];
        let variant = grade.alone(content).map(|content| {
            let (header, len) = compressed_header(self.kind, content.len());
            Bytes::from([&header[..len], &content].concat())
        });
        made.push((grade, variant.clone()));
        variant
    }

    /// Whether one is being made.
    #[cfg(test)]
    pub(in super::super) fn is_making(&self) -> bool {
        self.made.get().is_some_and(|made| made.try_lock().is_err())
    }

    /// Whether room was made for any.
    #[cfg(test)]
    pub(in super::super) fn are_any(&self) -> bool {
        self.made.get().is_some()
    }
}

impl Clone for Variants {
    fn clone(&self) -> Self {
        let made = Arc::clone(self.made.get_or_init(Arc::default));
        Variants { kind: self.kind, content_len: self.content_len, made: OnceLock::from(made) }
    }
}
