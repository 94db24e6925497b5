//! The RFC's examples, every error, the limits, and blocks that come back.

use std::borrow::ToOwned as _;
use std::string::String;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// Of the tests' fields together.
const LIST_MAX: usize = 1 << 20;

type Owned = (Vec<u8>, Vec<u8>, bool);

fn owned(field: Field<'_>) -> Owned {
    (field.name.to_vec(), field.value.to_vec(), field.is_sensitive)
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<Owned>, Error> {
    let mut fields = Vec::new();
    let done = decoder.decode(block, LIST_MAX, &mut |field| fields.push(owned(field)))?;
    let size = fields.iter().map(|(name, value, _)| name.len() + value.len() + 32).sum::<usize>();
    assert_eq!(done, Decoded { size, is_too_large: false });
    Ok(fields)
}

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    let pairs = digits.as_bytes().chunks(2).map(|pair| core::str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}

/// A block of an example, and what it must mean.
#[derive(Default)]
struct Example {
    block: Vec<u8>,
    is_exact: bool,
    fields: Vec<Owned>,
    table: (usize, usize),
}

/// The examples by case: name, size of the table, blocks.
fn examples() -> Vec<(String, usize, Vec<Example>)> {
    let mut cases: Vec<(String, usize, Vec<Example>)> = Vec::new();
    let number = |text: &str| text.parse::<usize>().expect("a number");
    for line in include_str!("rfc7541.txt").lines().filter(|line| !line.starts_with('#')) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let last = cases.last_mut().map(|case| &mut case.2);
        match (word, last) {
            ("", _) => {}
            ("case", _) => {
                let (name, size) = rest.split_once(' ').expect("name and size");
                cases.push((name.to_owned(), number(size), Vec::new()));
            }
            ("block", Some(blocks)) => {
                blocks.push(Example { block: hex(rest), ..Example::default() })
            }
            (word, Some(blocks)) => {
                let example = blocks.last_mut().expect("a block stands before");
                match word {
                    "exactly" => example.is_exact = true,
                    "table" => {
                        let (size, count) = rest.split_once(' ').expect("size and count");
                        example.table = (number(size), number(count));
                    }
                    "field" | "secret" => {
                        let (name, value) = rest.split_once(": ").expect("name and value");
                        example.fields.push((name.into(), value.into(), word == "secret"));
                    }
                    other => panic!("unknown word {other:?}"),
                }
            }
            (word, None) => panic!("{word:?} before the first case"),
        }
    }
    cases
}

/// Purpose: every example of the RFC means what the RFC says, and leaves the table that it says.
#[test]
fn appendix_c() {
    let cases = examples();
    assert_eq!(cases.len(), 8);
    for (name, size, blocks) in cases {
        let mut decoder = Decoder::new(size);
        for (index, example) in blocks.iter().enumerate() {
            let fields = decode(&mut decoder, &example.block);
            assert_eq!(fields.as_ref(), Ok(&example.fields), "{name}, block {index}");
            assert_eq!(
                (decoder.table().size(), decoder.table().len()),
                example.table,
                "{name}, block {index}"
            );
        }
    }
}

/// Purpose: the encoder makes of the same fields the same bytes as the RFC's, where that is the shortest form.
#[test]
fn appendix_c_encoded() {
    let mut exact = 0;
    for (name, size, blocks) in examples() {
        let mut encoder = Encoder::new();
        encoder.set_limit(size);
        encoder.begin(&mut Vec::new());
        for (index, example) in blocks.iter().enumerate() {
            let mut block = Vec::new();
            for (name, value, _) in &example.fields {
                encoder.field(name, value, Indexing::Incremental, &mut block);
            }
            if example.is_exact {
                assert_eq!(block, example.block, "{name}, block {index}");
                exact += 1;
            }
        }
    }
    assert_eq!(exact, 5);
}

/// Purpose: every malformed block is refused for its reason, and no prefix of a field is taken for a field.
#[test]
fn errors() {
    let refused = |block: &str| decode(&mut Decoder::new(4096), &hex(block)).expect_err(block);
    for (block, error) in [
        ("80", Error::Index),       // index 0 (§6.1)
        ("be", Error::Index),       // the dynamic table is empty
        ("ff00", Error::Index),     // index 127
        ("7e 01 61", Error::Index), // a name of an empty table
        ("ff ff ff ff ff 7f", Error::IntegerTooLarge),
        ("40 01 61 ff ff ff ff ff ff 01", Error::IntegerTooLarge),
        ("ff", Error::Truncated),
        ("ff 80", Error::Truncated),
        ("40", Error::Truncated),
        ("40 05 61 62", Error::Truncated),
        ("40 01 61", Error::Truncated),
        ("40 01 61 02 62", Error::Truncated),
        ("40 81 ff 01 61", Error::Huffman), // eight bits of padding
        ("40 01 61 84 ff ff ff ff", Error::Huffman), // EOS
        ("82 20", Error::UpdateMisplaced),  // §4.2
        ("20 3f e1 1f 20", Error::UpdateMisplaced), // a third one
        ("3f e2 1f", Error::UpdateTooLarge), // 4097
    ] {
        assert_eq!(refused(block), error, "{block}");
    }
    let example = hex("400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572");
    for end in 1..example.len() {
        let cut = decode(&mut Decoder::new(4096), &example[..end]);
        assert_eq!(cut, Err(Error::Truncated), "{end} bytes");
    }
}

/// Purpose: a table that was made smaller must be acknowledged in the next block (RFC 9113 §4.3.1); a larger one need
/// not be.
#[test]
fn limits_of_the_table() {
    let mut decoder = Decoder::new(4096);
    decoder.set_limit(8192);
    assert!(decode(&mut decoder, &hex("82")).is_ok());
    decoder.set_limit(100);
    let mut other = decoder.clone();
    assert_eq!(decode(&mut other, &hex("82")), Err(Error::UpdateMissing));
    assert_eq!(decode(&mut decoder.clone(), &hex("3f 46 82")), Err(Error::UpdateTooLarge), "101");
    assert!(decode(&mut decoder, &hex("3f 45 82")).is_ok(), "100");
    assert!(decode(&mut decoder, &hex("82")).is_ok(), "once is enough");
    // Down and up again between two blocks: the encoder says both.
    let mut encoder = Encoder::new();
    encoder.set_limit(0);
    encoder.set_limit(300);
    let mut block = Vec::new();
    encoder.begin(&mut block);
    assert_eq!(block, hex("20 3f 8d 02"));
    encoder.begin(&mut block);
    assert_eq!(block.len(), 4, "said once");
}

/// Purpose: fields beyond the limit are not reported, at the limit they are; the table is intact afterwards, so later
/// blocks can be read.
#[test]
fn limit_of_a_list() {
    let mut encoder = Encoder::new();
    let mut block = Vec::new();
    encoder.field(b"a", b"1234567", Indexing::Incremental, &mut block);
    encoder.field(b"b", b"1234567", Indexing::Incremental, &mut block);
    for (max, seen) in [(80, 2), (79, 1), (40, 1), (39, 0), (0, 0)] {
        let (mut decoder, mut count) = (Decoder::new(4096), 0);
        let done = decoder.decode(&block, max, &mut |_| count += 1).expect("is well-formed");
        assert_eq!((count, done), (seen, Decoded { size: 80, is_too_large: max < 80 }), "{max}");
        assert_eq!(
            decode(&mut decoder, &hex("bf")),
            Ok(Vec::from([(b"a".to_vec(), b"1234567".to_vec(), false)]))
        );
    }
}

/// Purpose: a small block that names a large entry again and again costs its receiver no memory (the "HPACK bomb").
#[test]
fn a_bomb_costs_no_memory() {
    let mut decoder = Decoder::new(4096);
    let mut block = Vec::new();
    Encoder::new().field(b"x", &[b'~'; 4000], Indexing::Incremental, &mut block);
    block.resize(block.len() + 16 * 1024, 0xbe);
    let mut count = 0;
    let done = decoder.decode(&block, 8192, &mut |_| count += 1).expect("is well-formed");
    assert!(done.is_too_large && count == 2, "{done:?}, {count}");
    assert_eq!(done.size, (16 * 1024 + 1) * 4033);
}

/// Purpose: two bytes that put a long name into the table again are copied so often only; within the limit of the list, names
/// may come as often as it allows.
#[test]
fn names_that_are_repeated() {
    const NAME: usize = 4000;
    let mut decoder = Decoder::new(SIZE_DEFAULT);
    let mut first = hex("40 7f a1 1e"); // 127 + 0x21 + 0x1e * 128 = 4000
    first.extend(core::iter::repeat_n(b'a', NAME));
    first.push(0);
    assert_eq!(decode(&mut decoder, &first).expect("a field").len(), 1);
    let most = 16 * SIZE_DEFAULT / NAME;
    for (count, size_max, is_taken) in [
        (most, 1000, true),
        (most + 1, 1000, false),
        (100 + most, 100 * (NAME + 32), true),
        (100 + most + 1, 100 * (NAME + 32), false),
    ] {
        let block = hex("7e 00").repeat(count);
        let done = decoder.clone().decode(&block, size_max, &mut |_| {});
        assert_eq!(done.is_ok(), is_taken, "{count} {size_max}: {done:?}");
    }
}

fn field() -> impl Strategy<Value = (Vec<u8>, Vec<u8>, Indexing)> {
    let known = (0..fixed::COUNT).prop_map(|index| {
        let (name, value) = fixed::ENTRIES[index];
        (name.as_bytes().to_vec(), value.as_bytes().to_vec())
    });
    let name = prop_oneof!["[a-z-]{1,4}", "[a-z-]{1,40}"].prop_map(String::into_bytes);
    let value = prop_oneof![
        "[0-9]{0,2}".prop_map(String::into_bytes),
        "[ -~]{0,60}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..300),
    ];
    let indexing =
        prop_oneof![Just(Indexing::Incremental), Just(Indexing::Without), Just(Indexing::Never)];
    (prop_oneof![known, (name, value)], indexing)
        .prop_map(|((name, value), indexing)| (name, value, indexing))
}

proptest! {
    /// Purpose: whatever is encoded comes back, over many blocks, while the table changes its size; and no table
    /// outgrows its limit.
    #[test]
    fn round_trip(blocks in proptest::collection::vec((proptest::collection::vec(field(), 0..12), proptest::option::of(0_usize..5000)), 1..20)) {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
        for (fields, size) in blocks {
            if let Some(size) = size {
                decoder.set_limit(size);
                encoder.set_limit(size);
            }
            let mut block = Vec::new();
            encoder.begin(&mut block);
            for (name, value, indexing) in &fields {
                encoder.field(name, value, *indexing, &mut block);
            }
            let expected: Vec<Owned> = fields
                .into_iter()
                .map(|(name, value, indexing)| (name, value, indexing == Indexing::Never))
                .collect();
            prop_assert_eq!(decode(&mut decoder, &block), Ok(expected));
            prop_assert!(decoder.table().size() <= decoder.limit());
            prop_assert_eq!(decoder.table().size(), encoder.table().size());
        }
    }

    /// Purpose: no input makes the decoder panic or report more than its limit.
    #[test]
    fn any_block(block in proptest::collection::vec(any::<u8>(), 0..300)) {
        let (mut decoder, mut size) = (Decoder::new(4096), 0);
        let _ = decoder.decode(&block, 1000, &mut |field| size += field.name.len() + field.value.len() + 32);
        prop_assert!(size <= 1000);
    }
}
