//! Any bytes as field blocks: nothing may panic, and what is decoded comes back when it is encoded and decoded again.
//!
//! Input: blocks, each with its length in one byte before it.
#![no_main]

use highwater_core::http2::hpack::{Decoder, Encoder, Indexing};
use libfuzzer_sys::fuzz_target;

const SIZE_MAX: usize = 1 << 16;

type Fields = Vec<(Vec<u8>, Vec<u8>, bool)>;

fuzz_target!(|data: &[u8]| {
    let (mut decoder, mut encoder, mut again) = (Decoder::new(4096), Encoder::new(), Decoder::new(4096));
    let mut rest = data;
    while let [len, behind @ ..] = rest {
        let (block, behind) = behind.split_at(usize::from(*len).min(behind.len()));
        rest = behind;
        let Some(fields) = decode(&mut decoder, block) else { return };
        let mut block = Vec::new();
        encoder.begin(&mut block);
        for (name, value, is_sensitive) in &fields {
            let indexing = if *is_sensitive { Indexing::Never } else { Indexing::usual(name) };
            encoder.field(name, value, indexing, &mut block);
        }
        let mut decoded = decode(&mut again, &block).expect("our own encoding is right");
        for ((name, _, is_sensitive), (_, _, was)) in decoded.iter_mut().zip(&fields) {
            // Some fields are always secrets for our encoder.
            *is_sensitive &= *was || Indexing::usual(name) != Indexing::Never;
        }
        assert_eq!(decoded, fields);
    }
});

fn decode(decoder: &mut Decoder, block: &[u8]) -> Option<Fields> {
    let (mut fields, mut size) = (Fields::new(), 0);
    let done = decoder.decode(block, SIZE_MAX, &mut |field| {
        size += field.name.len() + field.value.len() + 32;
        fields.push((field.name.to_vec(), field.value.to_vec(), field.is_sensitive));
    });
    assert!(size <= SIZE_MAX);
    done.ok().filter(|done| !done.is_too_large).map(|_| fields)
}
