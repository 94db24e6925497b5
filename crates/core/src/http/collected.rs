//! A body that is collected until it is whole.

use alloc::vec::Vec;

use bytes::Bytes;

/// Grows piece by piece. Once it is whole, it can be kept without a copy: its memory is shared.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    growing: Vec<u8>,
    whole: Bytes,
}

impl Collected {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Collected { growing: bytes.to_vec(), whole: Bytes::new() }
    }

    /// How much of it has come.
    pub(crate) fn len(&self) -> usize {
        self.growing.len() + self.whole.len()
    }

    /// Where the rest of it is appended, until it is whole.
    pub(crate) fn growing(&mut self) -> &mut Vec<u8> {
        &mut self.growing
    }

    /// It is whole. Returns it.
    pub(crate) fn finish(&mut self) -> &Bytes {
        if !self.growing.is_empty() {
            let mut bytes = core::mem::take(&mut self.growing);
            if bytes.capacity() - bytes.len() > bytes.len() / 4 {
                bytes.shrink_to_fit(); // Its new owner may keep it for long.
            }
            self.whole = bytes.into();
        }
        &self.whole
    }

    /// Bytes of memory it has allocated.
    pub(crate) fn allocated(&self) -> usize {
        self.growing.capacity() + self.whole.len()
    }

    /// Takes it, whole.
    pub(crate) fn into_bytes(mut self) -> Bytes {
        self.finish();
        self.whole
    }
}

/// Makes room in `body` for the next `piece` bytes. It doubles, but not beyond `to_come`, the piece and all that follows
/// it, where that is known: memory is taken as content comes, not as it is announced. So its capacity is at most twice
/// what it holds with the piece.
///
/// ```
/// use highwater_core::http::make_room;
///
/// let mut body = vec![0; 4000];
/// make_room(&mut body, 60_000, Some(61_536));
/// assert_eq!(body.capacity(), 65_536); // All of it, as nearly all is here.
/// let mut body = vec![0; 4000];
/// make_room(&mut body, 4000, Some(1_000_000));
/// assert_eq!(body.capacity(), 12_000);
/// ```
pub fn make_room(body: &mut Vec<u8>, piece: usize, to_come: Option<u64>) {
    if body.capacity() - body.len() >= piece {
        return;
    }
    let doubled = body.len() + piece;
    match to_come.and_then(|to_come| usize::try_from(to_come).ok()) {
        Some(to_come) => body.reserve_exact(doubled.min(to_come.max(piece))),
        None => body.reserve(piece),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a body of known length ends in memory of just that size, in few steps, and never takes more than twice what
    /// has come.
    #[test]
    fn room_for_a_known_length() {
        let (mut body, mut steps) = (Vec::new(), 0);
        while body.len() < 10_000 {
            let (had, to_come) = (body.capacity(), 10_000 - body.len());
            let piece = to_come.min(7);
            make_room(&mut body, piece, Some(to_come as u64));
            steps += usize::from(body.capacity() != had);
            body.extend_from_slice(&[b'x'; 7][..piece]);
            assert!(body.capacity() <= 2 * body.len().max(7), "{}", body.capacity());
        }
        assert!(body.capacity() == 10_000 && steps < 14, "{} {steps}", body.capacity());
        let mut collected = Collected { growing: body, whole: Bytes::new() };
        let at = collected.growing.as_ptr();
        assert_eq!((collected.finish().as_ptr(), collected.len()), (at, 10_000), "not copied");
        assert_eq!(collected.into_bytes().len(), 10_000);
    }

    /// Purpose: what is kept holds no memory that was taken for more.
    #[test]
    fn a_finished_body_gives_back_the_rest() {
        let mut collected = Collected::of(b"abc");
        collected.growing().reserve(4096);
        assert!(collected.allocated() >= 4096);
        assert_eq!(&collected.finish()[..], b"abc");
        assert_eq!(collected.allocated(), 3);
    }
}
