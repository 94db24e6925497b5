//! The compressor and the decompressor beside each other, with the decoder between them, and the largest memory that
//! a message may take.

use flate2::{Compress, Compression, FlushCompress};
use highwater_core::websocket::extensions::Context;
use highwater_core::websocket::{Decoder, Event, Inflate, InflateError, Limits, Role, encode};
use proptest::prelude::*;

use super::{Deflater, Inflater};
use crate::websocket::Message;

const LIMIT: usize = 1 << 20;

const fn context(is_kept: bool, window_bits: u8) -> Context {
    Context { is_kept, window_bits }
}

/// A message decompressed, its bytes in pieces of this size.
fn inflated(inflater: &mut Inflater, bytes: &[u8], part: usize) -> Result<Vec<u8>, InflateError> {
    let mut out = Vec::new();
    for piece in bytes.chunks(part) {
        inflater.inflate(piece, &mut out, LIMIT)?;
        assert!(out.capacity() <= LIMIT + 1, "more is reserved than a message may have");
    }
    inflater.end(&mut out, LIMIT)?;
    Ok(out)
}

/// Purpose: the examples of RFC 7692 §7.2.3: one block, two that share a window, no compression, a last block, two blocks,
/// and an empty message.
#[test]
fn examples() {
    let hello = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    for is_kept in [false, true] {
        let mut inflater = Inflater::new(is_kept);
        let mut expect = |bytes: &[u8], text: &[u8]| {
            for part in [1, 2, 100] {
                assert_eq!(
                    inflated(&mut inflater, bytes, part).as_deref(),
                    Ok(text),
                    "{bytes:02x?}"
                );
            }
        };
        expect(&hello, b"Hello");
        expect(&[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00], b"Hello");
        expect(&[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00], b"Hello");
        let two = [0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00];
        expect(&two, b"Hello");
        expect(&[0x00], b"");
    }
    let again = [0xf2, 0x00, 0x11, 0x00, 0x00];
    let mut keeps = Inflater::new(true);
    assert_eq!(inflated(&mut keeps, &hello, 100).as_deref(), Ok(&b"Hello"[..]));
    assert_eq!(inflated(&mut keeps, &again, 100).as_deref(), Ok(&b"Hello"[..]));
    let mut forgets = Inflater::new(false);
    assert_eq!(inflated(&mut forgets, &hello, 100).as_deref(), Ok(&b"Hello"[..]));
    assert_eq!(inflated(&mut forgets, &again, 100), Err(InflateError::Invalid));
}

/// Purpose: bytes that are not deflate are refused, and so is a message of which a part is missing, if nothing is kept that
/// could follow it; the next connection of the thread is not harmed.
#[test]
fn invalid_bytes() {
    for bytes in [
        &[0x07][..],
        &[0xff; 8],
        &[0x00, 0x05, 0x00, 0x00, 0x00],
        &[0xf2, 0x48],
        &[0x00, 0xff, 0x00, 0x00, 0xff],
    ] {
        let mut inflater = Inflater::new(false);
        assert_eq!(inflated(&mut inflater, bytes, 100), Err(InflateError::Invalid), "{bytes:02x?}");
        let mut inflater = Inflater::new(false);
        assert_eq!(
            inflated(&mut inflater, &[0xf2, 0x48, 0x05, 0x00], 100).as_deref(),
            Ok(&b"He"[..])
        );
    }
}

/// Purpose: a message of the limit's size is taken and one of a byte more is not, however small it came; no memory is
/// reserved beyond it.
#[test]
fn bombs() {
    for is_kept in [false, true] {
        let deflater = Deflater::new(9, 1, context(is_kept, 15));
        let mut inflater = Inflater::new(is_kept);
        for (len, fits) in [(LIMIT - 1, true), (LIMIT, true), (LIMIT + 1, false)] {
            let content = vec![b'x'; len];
            let compressed = deflater.compress(&content).0.expect("it becomes smaller");
            assert!(compressed.len() < LIMIT / 500);
            let expected = if fits { Ok(content) } else { Err(InflateError::TooBig) };
            assert_eq!(inflated(&mut inflater, &compressed, 100), expected);
        }
    }
}

/// Purpose: what does not become smaller is sent as it is, unless later messages refer to it.
#[test]
fn what_does_not_become_smaller() {
    let noise: Vec<u8> =
        (0_u32..300).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert!(Deflater::new(6, 1, context(false, 15)).compress(&noise).0.is_none());
    assert!(Deflater::new(6, 1, context(true, 15)).compress(&noise).0.is_some());
    let deflater = Deflater::new(6, 0, context(false, 15));
    assert!(!deflater.compresses(0) && deflater.compresses(1));
    let deflater = Deflater::new(6, 10, context(false, 15));
    assert!(!deflater.compresses(9) && deflater.compresses(10));
}

/// Purpose: a message refers no further back than the window that was agreed on, alone and with a context: a client that keeps no
/// more could not read it. Content that repeats only after one and a half windows stays long; with the largest window, it does not.
#[test]
fn the_window_is_kept_to() {
    for bits in 9_u8..=15 {
        let mut state = 1_u32;
        let mut digit = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b'0' + (state >> 24) as u8 % 10
        };
        let block: Vec<u8> = (0..3_usize << bits >> 1).map(|_| digit()).collect();
        let content = block.repeat(3);
        let lengths = |bits| {
            [false, true].map(|is_kept| {
                let deflater = Deflater::new(6, 1, context(is_kept, bits));
                let length = || deflater.compress(&content).0.expect("digits are short").len();
                length() + length()
            })
        };
        // Without repetitions, a digit takes three to four bits.
        assert!(lengths(bits).iter().all(|len| *len > content.len() * 2 / 3), "{bits} bits");
        if bits < 14 {
            assert!(lengths(15).iter().all(|len| *len < content.len() / 2), "{bits} bits");
        }
    }
}

/// Text with repetitions, and bytes without.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let words = proptest::collection::vec(
        proptest::sample::select(&["alpha", "beta ", "γ", "{}"][..]),
        0..4000,
    );
    prop_oneof![
        words.prop_map(|words| words.concat().into_bytes()),
        proptest::collection::vec(any::<u8>(), 0..2000),
        (any::<u8>(), 0_usize..300_000).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Purpose: messages come back as they were, whatever the window, the level and the context, in one frame or in several.
    #[test]
    fn there_and_back(
        messages in proptest::collection::vec(content(), 1..5),
        (is_kept, bits, level) in (any::<bool>(), 9_u8..16, 1_u32..10),
        part in 1_usize..3000,
    ) {
        let deflater = Deflater::new(level, 1, context(is_kept, bits));
        let limits = Limits { message_max: LIMIT, frame_max: LIMIT };
        let inflater = Box::new(Inflater::new(true));
        let mut decoder = Decoder::new(Role::Client, limits).with_inflate(inflater);
        for content in messages {
            let message = Message::from(content.clone());
            let mut frame = Vec::new();
            let compressed = deflater.compresses(content.len()).then(|| deflater.compress(&content).0);
            encode::message(message.kind(), compressed.as_ref().and_then(Option::as_ref).unwrap_or(&content), None, &mut frame);
            let is_compressed = matches!(compressed, Some(Some(_)));
            frame[0] |= if is_compressed { encode::COMPRESSED } else { 0 };
            let mut came = None;
            for mut piece in frame.chunks(part) {
                while let Some(event) = decoder.next(&mut piece).expect("it is valid") {
                    let Event::Message(_, bytes) = event else { panic!("it is a message") };
                    let bytes = bytes.to_vec();
                    came = Some((bytes, decoder.was_compressed()));
                }
            }
            prop_assert_eq!(came, Some((content, is_compressed)));
        }
    }

    /// Purpose: any bytes are a message or are refused, with the limit kept and without an endless loop; how they are split
    /// makes no difference.
    #[test]
    fn any_bytes(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
        broken in any::<Option<(u16, u8)>>(),
        text in content(),
        part in 1_usize..50,
        is_kept in any::<bool>(),
    ) {
        if let Some((at, byte)) = broken {
            // Closer to what is valid than noise.
            let mut compressor = Compress::new(Compression::fast(), false);
            bytes = Vec::with_capacity(text.len() + 100);
            compressor.compress_vec(&text, &mut bytes, FlushCompress::Sync).expect("it is compressed");
            let at = usize::from(at) % bytes.len();
            bytes[at] = byte;
        }
        let read = |part| inflated(&mut Inflater::new(is_kept), &bytes, part);
        prop_assert_eq!(read(part), read(usize::MAX));
    }
}
