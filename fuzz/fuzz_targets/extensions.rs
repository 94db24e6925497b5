//! Any bytes as a client's offers of extensions: nothing may panic, an answer must be one that a client can read, and must stay
//! within what the server allows.
//!
//! Input: one byte choosing what the server allows, then the field's value; a line feed begins another field.
#![no_main]

use highwater_core::websocket::extensions::{Context, Deflate, WINDOW_BITS_MIN, accept_deflate, read_deflate_answer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [choice, bytes @ ..] = data else { return };
    let side = |choice: u8| Context { is_kept: choice & 1 == 0, window_bits: WINDOW_BITS_MIN + (choice >> 1) % 7 };
    let most = Deflate { server: side(choice & 15), client: side(choice >> 4) };
    let fields = || bytes.split(|byte| *byte == b'\n');
    let _ = read_deflate_answer(fields());
    let Ok(Some(agreed)) = accept_deflate(fields(), &most) else { return };
    let read = read_deflate_answer([agreed.answer.as_bytes()]).expect("the answer is valid").expect("it accepts");
    assert_eq!(read.server, agreed.deflate.server);
    assert_eq!(read.client.is_kept, agreed.deflate.client.is_kept);
    assert!(read.server.window_bits <= most.server.window_bits && read.server.window_bits >= WINDOW_BITS_MIN);
    assert!(most.server.is_kept || !read.server.is_kept);
    assert!(most.client.is_kept || !read.client.is_kept);
});
