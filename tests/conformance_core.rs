//! The conformance cases against the state machine alone: whole, split everywhere, and several on
//! one connection.

use highwater_core::http::Limits;
use highwater_core::http1::client::{Asked, Next, Reader};
use highwater_tests::cases::{self, Case, Expected, Step};
use highwater_tests::probe::{DATE, Transcript, Worker};

/// Cases longer than this are split at some places only; there are as many splits as bytes.
const SPLIT_EVERYWHERE_MAX: usize = 2048;

/// Cases longer than this are not sent byte by byte, nor together with others.
const SMALL_MAX: usize = 20_000;

/// Plays `case`, each send cut as `cut` says; returns the transcript after each step.
fn play(case: &Case, cut: &mut dyn FnMut(&[u8]) -> Vec<usize>) -> Vec<Transcript> {
    let mut worker = Worker::new(Limits::default());
    let mut received = Vec::new();
    for step in &case.steps {
        match step {
            Step::Send(bytes) => {
                let mut from = 0;
                for at in cut(bytes).into_iter().chain([bytes.len()]) {
                    worker.receive(&bytes[from..at]);
                    from = at;
                }
            }
            Step::Eof => worker.eof(),
            Step::Hear(_) => {}
        }
        received.push(worker.received().clone());
    }
    received
}

fn whole(case: &Case) -> Vec<Transcript> {
    play(case, &mut |_| Vec::new())
}

/// What was heard at the end, without the interim responses that depend on who was first.
fn last(received: &[Transcript]) -> (Vec<u8>, bool) {
    let Transcript { bytes, closed } = received.last().cloned().unwrap_or_default();
    let text = bytes.escape_ascii().to_string();
    (text.replace("HTTP/1.1 100 Continue\\r\\n\\r\\n", "").into_bytes(), closed)
}

/// Checks that `transcripts`, one for each step of `case`, are what it expects.
fn check(case: &Case, transcripts: &[Transcript]) {
    let name = &case.name;
    let mut at = 0;
    for (index, step) in case.steps.iter().enumerate() {
        let bytes = &transcripts[index].bytes;
        match step {
            Step::Hear(expected) => at += hear(name, expected, &bytes[at..]),
            // What a client waits for it has heard, to the last byte, before it goes on.
            Step::Send(_) | Step::Eof if index > 0 => {
                let before = &transcripts[index - 1].bytes;
                let waited = matches!(case.steps[index - 1], Step::Hear(_));
                assert!(
                    !waited || before.len() == at,
                    "{name}: unexpected: {}",
                    show(&before[at..])
                );
            }
            _ => {}
        }
    }
    let end = transcripts.last().cloned().unwrap_or_default();
    assert_eq!(at, end.bytes.len(), "{name}: unexpected: {}", show(&end.bytes[at..]));
    assert_eq!(end.closed, case.closed, "{name}: closed");
}

/// Checks one response at the start of `bytes`; returns how many bytes it takes.
fn hear(name: &str, expected: &Expected, bytes: &[u8]) -> usize {
    let status = format!("HTTP/1.1 {} ", expected.status);
    if !bytes.starts_with(status.as_bytes()) {
        assert!(expected.optional, "{name}: heard {} instead of {expected:?}", show(bytes));
        return 0;
    }
    let asked = if expected.head { Asked::Head } else { Asked::Upgrade };
    let (mut reader, mut rest) = (Reader::default(), bytes);
    let (Ok(Next::Head(head)) | Ok(Next::Interim(head))) = reader.next(&mut rest, asked) else {
        panic!("{name}: no head: {}", show(bytes));
    };
    let fields: Vec<(&str, &[u8])> = head.fields().iter().collect();
    let value = |wanted: &str| {
        let mut values = fields.iter().filter(|(name, _)| *name == wanted).map(|(_, v)| *v);
        let value = values.next();
        assert!(values.next().is_none(), "{name}: {wanted} twice");
        value.map(|value| str::from_utf8(value).expect("values are ASCII"))
    };
    let head = show(head.bytes());
    assert_eq!(value("connection"), expected.connection, "{name}: connection in {head}");
    for (field, wanted) in &expected.fields {
        assert_eq!(value(field), Some(wanted.as_str()), "{name}: {field} in {head}");
    }
    if expected.status >= 200 {
        assert_eq!(value("date"), std::str::from_utf8(DATE).ok(), "{name}: date in {head}");
    }
    let bodiless = expected.status == 204 || expected.status < 200;
    assert_eq!(value("content-length").is_none(), bodiless, "{name}: content-length in {head}");
    let mut content = Vec::new();
    // An interim response is complete with its head.
    let mut is_complete = expected.status < 200;
    while !is_complete {
        match reader.next(&mut rest, asked) {
            Ok(Next::Content(piece)) => content.extend_from_slice(piece),
            Ok(Next::End(..)) => is_complete = true,
            other => panic!("{name}: no end of the content: {other:?}"),
        }
    }
    if let Some(wanted) = &expected.content {
        assert_eq!(show(&content), show(wanted), "{name}: content");
    }
    bytes.len() - rest.len()
}

fn show(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(400)].escape_ascii().to_string()
}

/// Purpose: every case, sent whole, is answered as the RFCs and Http11Probe demand.
#[test]
fn every_case() {
    let cases = cases::all();
    assert!(cases.len() >= 250, "only {} cases", cases.len());
    for case in &cases {
        check(case, &whole(case));
    }
}

/// Purpose: where the bytes were split on their way changes nothing, wherever it was.
#[test]
fn every_case_split_at_every_byte() {
    for case in &cases::all() {
        let expected = last(&whole(case));
        let len = case.sent().len();
        let stride = len / SPLIT_EVERYWHERE_MAX + 1;
        for at in (1..len).filter(|at| stride == 1 || at % stride == 0 || *at > len - 100) {
            let mut before = 0;
            let received = play(case, &mut |bytes| {
                let here = at.checked_sub(before).filter(|&here| here < bytes.len());
                before += bytes.len();
                here.into_iter().collect()
            });
            assert_eq!(last(&received), expected, "{} split at {at}", case.name);
        }
    }
}

/// Purpose: a client that sends one byte at a time hears the same, and each step checks out.
#[test]
fn every_case_byte_by_byte() {
    for case in cases::all().iter().filter(|case| case.sent().len() <= SMALL_MAX) {
        let received = play(case, &mut |bytes| (1..bytes.len()).collect());
        assert_eq!(last(&received), last(&whole(case)), "{}", case.name);
    }
}

/// Purpose: many splits at once, of random sizes, change nothing either.
#[test]
fn every_case_split_at_random() {
    for case in &cases::all() {
        let expected = last(&whole(case));
        for seed in 0..20u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let received = play(case, &mut |bytes| {
                let mut cuts = Vec::new();
                let mut at = 0;
                loop {
                    // Xorshift; mostly small pieces, some large.
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let most = if state & 0x300 == 0 { bytes.len().max(1) } else { 40 };
                    at += 1 + (state >> 32) as usize % most;
                    if at >= bytes.len() {
                        return cuts;
                    }
                    cuts.push(at);
                }
            });
            assert_eq!(last(&received), expected, "{} with seed {seed}", case.name);
        }
    }
}

/// Purpose: a persistent connection forgets: behind any case that leaves it open between requests,
/// every other is answered as if it came first.
#[test]
fn every_pair_pipelined() {
    let cases = cases::all();
    let small: Vec<_> = cases.iter().filter(|case| case.sent().len() <= 512).collect();
    let is_complete = |case: &&&Case| {
        let answered = case.expected().count() > 0 && case.is_one_step();
        // A case that ends in half a request would lend its half to the next.
        answered && !case.closed && !INCOMPLETE.contains(&case.name.as_str())
    };
    let mut pairs = 0;
    for first in small.iter().filter(is_complete) {
        let before = last(&whole(first)).0;
        for second in &small {
            let mut pair =
                Case { name: format!("{} + {}", first.name, second.name), ..(**second).clone() };
            match pair.steps.first_mut() {
                Some(Step::Send(bytes)) => *bytes = [first.sent(), bytes.clone()].concat(),
                _ => pair.steps.insert(0, Step::Send(first.sent())),
            }
            let alone = last(&whole(second));
            let together = last(&whole(&pair));
            assert_eq!(together, ([before.clone(), alone.0].concat(), alone.1), "{}", pair.name);
            pairs += 1;
        }
    }
    assert!(pairs > 10_000, "only {pairs} pairs");
}

/// The open, answered cases that leave half a request behind.
const INCOMPLETE: [&str; 1] = ["then-incomplete"];

/// Purpose: after a client has received the last response, no memory is held for it.
#[test]
fn idle_connections_hold_no_memory() {
    for case in cases::all().iter().filter(|case| case.is_one_step()) {
        if case.closed || case.expected().count() == 0 || INCOMPLETE.contains(&case.name.as_str()) {
            continue;
        }
        let mut worker = Worker::new(Limits::default());
        worker.receive(&case.sent());
        assert_eq!(worker.allocated(), 0, "{}", case.name);
    }
}

/// Writes each case as a seed for the fuzzer: `cargo test -p highwater-tests --test
/// conformance_core -- --ignored write_fuzz_seeds`.
#[test]
#[ignore = "writes fuzz/corpus/http1"]
fn write_fuzz_seeds() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/http1");
    std::fs::create_dir_all(&folder).expect("the corpus folder can be made");
    for case in cases::all().iter().filter(|case| case.sent().len() <= 4096) {
        // The target takes split points from the first two bytes.
        let seed = [&[7, 31][..], &case.sent()].concat();
        std::fs::write(folder.join(&case.name), seed).expect("a seed can be written");
    }
}
