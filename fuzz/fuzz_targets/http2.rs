//! Any bytes as the frames of a connection, whole and split: nothing may panic, the split may make no difference, and
//! no more memory may be kept than a frame takes.
//!
//! Input: one byte choosing the size of the parts, then the bytes.
#![no_main]

use highwater_core::http2::{Decoder, Error, FRAME_SIZE_DEFAULT, Frame, Scope};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [size, bytes @ ..] = data else { return };
    assert_eq!(read(bytes, usize::MAX), read(bytes, usize::from(*size) + 1), "parts make a difference");
});

/// The frames, and the first error of the connection. Pieces of DATA are counted by stream, since parts split them.
fn read(bytes: &[u8], part: usize) -> (Vec<String>, Vec<(u32, u64)>, Option<Error>) {
    let (mut decoder, mut frames, mut data) = (Decoder::default(), Vec::new(), Vec::<(u32, u64)>::new());
    for mut input in bytes.chunks(part) {
        loop {
            match decoder.next(&mut input) {
                Ok(None) => break,
                Ok(Some(Frame::Data { stream, piece, flow, .. })) => {
                    assert!(piece.len() <= flow as usize);
                    match data.iter_mut().find(|(id, _)| *id == stream) {
                        Some((_, sum)) => *sum += u64::from(flow),
                        None => data.push((stream, flow.into())),
                    }
                }
                Ok(Some(frame)) => frames.push(format!("{frame:?}")),
                Err(error) if error.scope == Scope::Connection => return (frames, data, Some(error)),
                Err(error) => frames.push(format!("{error:?}")),
            }
        }
        assert!(decoder.allocated() <= 2 * FRAME_SIZE_DEFAULT as usize);
    }
    (frames, data, None)
}
