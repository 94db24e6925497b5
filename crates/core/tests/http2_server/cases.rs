//! The cases of `cases.txt`.

use highwater_core::http2::PREFACE;

use crate::scene::Scene;

struct Case {
    name: String,
    /// One delivery per line.
    sent: Vec<String>,
    expected: Vec<String>,
}

fn cases() -> Vec<Case> {
    let text = include_str!("cases.txt");
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix("== ") {
            cases.push(Case { name: name.into(), sent: Vec::new(), expected: Vec::new() });
        } else if let (Some(case), false) = (cases.last_mut(), line.starts_with('#')) {
            match line.strip_prefix("> ") {
                Some(expected) => case.expected.push(expected.into()),
                None => case.sent.push(line.into()),
            }
        }
    }
    cases
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.bytes().map(|b| (b as char).to_digit(16).expect("hex") as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The bytes of one line.
fn bytes(scene: &mut Scene, line: &str) -> Vec<u8> {
    let mut words = line.split(' ').peekable();
    let kind = words.next().expect("a word");
    match kind {
        "RAW" => return unhex(words.next().unwrap_or_default()),
        "PREFACE" => return PREFACE.to_vec(),
        "FRAME" => {
            let mut number =
                || words.next().and_then(|word| word.parse::<u32>().ok()).expect("a number");
            let (kind, flags, id) = (number() as u8, number() as u8, number());
            return Scene::frame(kind, flags, id, &unhex(words.next().unwrap_or_default()));
        }
        _ => {}
    }
    let id: u32 = words.next().and_then(|word| word.parse().ok()).expect("a stream");
    let is_last = words.next_if_eq(&"end").is_some();
    let is_part = words.next_if_eq(&"part").is_some();
    let words: Vec<&str> = words.collect();
    let flags = u8::from(is_last) | if is_part { 0 } else { 4 };
    match kind {
        "DATA" => {
            Scene::frame(0, u8::from(is_last), id, &vec![b'd'; words[0].parse().expect("a length")])
        }
        "PADDED" => {
            let (len, padding): (usize, usize) =
                (words[0].parse().expect("a length"), words[1].parse().expect("a length"));
            let payload = [&[padding as u8][..], &vec![b'd'; len], &vec![0; padding]].concat();
            Scene::frame(0, 8 | u8::from(is_last), id, &payload)
        }
        "BLOCK" => match words[..] {
            ["big"] => Scene::frame(1, flags, id, &vec![0; 16_385]),
            ["self", hex] => {
                let payload = [&id.to_be_bytes()[..], &[15], &unhex(hex)].concat();
                Scene::frame(1, flags | 0x20, id, &payload)
            }
            _ => Scene::frame(1, flags, id, &unhex(words[0])),
        },
        "HEADERS" => {
            let mut out = headers(scene, id, is_last, &words);
            out[4] = flags;
            out
        }
        other => panic!("{other}?"),
    }
}

fn headers(scene: &mut Scene, id: u32, is_last: bool, words: &[&str]) -> Vec<u8> {
    let path = words.iter().find_map(|word| word.strip_prefix(":path=")).unwrap_or("/");
    let has_method = |word: &&str| matches!(*word, "GET" | "POST" | "HEAD");
    let stands_for = words.iter().any(has_method);
    let mut fields: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut add = |name: &str, value: &str| {
        fields.push((
            name.as_bytes().to_vec(),
            value.replace('_', " ").replace("\\n", "\n").into_bytes(),
        ));
    };
    for word in words {
        match *word {
            method @ ("GET" | "POST" | "HEAD") => {
                add(":method", method);
                add(":scheme", "http");
                add(":authority", "h");
                add(":path", path);
            }
            "big" => add("x-big", &"a".repeat(25_000)),
            word if stands_for && word.starts_with(":path=") => {}
            word => {
                let at = word[1..].find('=').expect("a field") + 1;
                add(&word[..at], &word[at + 1..]);
            }
        }
    }
    let fields: Vec<(&[u8], &[u8])> =
        fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
    scene.headers(id, is_last, &fields)
}

/// Runs a case, with the bytes of each line in pieces.
fn run(case: &Case, pieces: impl Fn(&[u8]) -> Vec<Vec<u8>>) -> Vec<String> {
    let mut scene = Scene::silent();
    scene.limits.http2.extended_connect = case.name.starts_with("8441");
    if !case.sent[0].starts_with("RAW") && !case.sent[0].starts_with("PREFACE") {
        scene.greet(&[]);
    }
    for line in &case.sent {
        let bytes = bytes(&mut scene, line);
        pieces(&bytes).iter().for_each(|piece| scene.receive(piece));
    }
    scene.seen
}

/// Purpose: each case gives what RFC 9113 says, in one delivery per frame, byte by byte, and cut in two at any place.
#[test]
fn as_the_rfc_says() {
    let cases = cases();
    assert!(cases.len() >= 130, "{}", cases.len());
    let mut failed = Vec::new();
    for case in &cases {
        let whole = run(case, |bytes| vec![bytes.to_vec()]);
        if whole != case.expected {
            failed.push(format!("{}: {whole:#?}, expected {:#?}", case.name, case.expected));
            continue;
        }
        let single = run(case, |bytes| bytes.chunks(1).map(<[u8]>::to_vec).collect());
        if single != whole {
            failed.push(format!("{}, byte by byte: {single:#?}, expected {whole:#?}", case.name));
        }
        for at in 1..40 {
            let cut = run(case, |bytes| {
                let (first, second) = bytes.split_at(at.min(bytes.len()));
                vec![first.to_vec(), second.to_vec()]
            });
            if cut != whole {
                failed.push(format!("{}, cut at {at}: {cut:#?}, expected {whole:#?}", case.name));
                break;
            }
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {} failed:\n{}",
        failed.len(),
        cases.len(),
        failed.join("\n")
    );
}
