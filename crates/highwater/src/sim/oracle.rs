//! What each client must hear, told without any of the code under test: the requests are generated
//! together with their answers, and what was heard is read by a parser of its own.

use std::fmt::Write as _;

use highwater_core::prng::Prng;

/// An answer a client must hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) status: u16,
    /// The content, if it is known to the byte; errors carry text that is nobody's business here.
    pub(super) body: Option<Vec<u8>>,
    /// It answers a `HEAD`: there is no content on the wire.
    pub(super) head_only: bool,
}

/// What a client says, and what it must hear.
pub(super) struct Dialogue {
    pub(super) script: Vec<u8>,
    pub(super) expected: Vec<Expected>,
    /// It finishes sending after the script.
    pub(super) half_closes: bool,
}

/// How a dialogue ends, so that the server closes the connection.
enum Last {
    Close,
    HalfClose,
    Malformed,
}

/// Draws a client.
pub(super) fn dialogue(prng: &mut Prng) -> Dialogue {
    let mut script = Vec::new();
    let mut expected = Vec::new();
    for _ in 0..prng.below(7) {
        let (request, answer) = exchange(prng, "");
        script.extend(request);
        expected.push(answer);
    }
    let last = match prng.below(4) {
        0 => Last::HalfClose,
        1 => Last::Malformed,
        _ => Last::Close,
    };
    match last {
        Last::Close => {
            let (request, answer) = exchange(prng, "Connection: close\r\n");
            script.extend(request);
            expected.push(answer);
        }
        Last::Malformed => {
            let garbage: [&[u8]; 4] = [
                b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
                b"GARBAGE\0\r\n\r\n",
                b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
                b"GET / HTTP/1.1\r\nHost: h\r\nBroken : x\r\n\r\n",
            ];
            script.extend(garbage[prng.below(4) as usize]);
            // More of it, which the server must swallow without losing its answer.
            script.extend(std::iter::repeat_n(b'x', prng.below(5000) as usize));
            expected.push(Expected { status: 400, body: None, head_only: false });
        }
        Last::HalfClose => {}
    }
    Dialogue { script, expected, half_closes: matches!(last, Last::HalfClose) }
}

/// One request and its answer.
fn exchange(prng: &mut Prng, field: &str) -> (Vec<u8>, Expected) {
    let n = prng.below(2000);
    let ok = |body: Vec<u8>| Expected { status: 200, body: Some(body), head_only: false };
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: h\r\n{field}\r\n").into_bytes();
    match prng.below(11) {
        0 => (get("/fixed"), ok(b"ok".to_vec())),
        1 => (get(&format!("/square/{n}")), ok((n * n).to_string().into_bytes())),
        2 => (get(&format!("/slow/{n}")), ok(format!("slow {n}").into_bytes())),
        3 => (get("/panic"), Expected { status: 500, body: None, head_only: false }),
        4 => (get("/missing"), Expected { status: 404, body: None, head_only: false }),
        5 => {
            let pieces = n % 40;
            let mut body = String::new();
            for piece in 0..pieces {
                writeln!(body, "piece {piece}").expect("a String takes everything");
            }
            (get(&format!("/pieces/{pieces}")), ok(body.into_bytes()))
        }
        6 => (get(&format!("/big/{n}")), ok(big(n as usize * 20))),
        7 => {
            let request = format!("HEAD /square/{n} HTTP/1.1\r\nHost: h\r\n{field}\r\n");
            (request.into_bytes(), Expected { status: 200, body: None, head_only: true })
        }
        8 => post(prng, "/echo", field, |body| ok(body.to_vec())),
        9 => post(prng, "/length", field, |body| ok(body.len().to_string().into_bytes())),
        _ => post(prng, "/ignore", field, |_| ok(b"ignored".to_vec())),
    }
}

/// The content of `/big/…`.
pub(super) fn big(len: usize) -> Vec<u8> {
    (0..len).map(|at| b'a' + (at % 26) as u8).collect()
}

fn post(
    prng: &mut Prng,
    path: &str,
    field: &str,
    answer: impl Fn(&[u8]) -> Expected,
) -> (Vec<u8>, Expected) {
    let len = if prng.chance(1, 8) { prng.below(20_000) } else { prng.below(300) };
    let body: Vec<u8> = (0..len).map(|_| prng.below(256) as u8).collect();
    let mut request = format!("POST {path} HTTP/1.1\r\nHost: h\r\n{field}").into_bytes();
    if prng.chance(1, 2) {
        request.extend(format!("Content-Length: {len}\r\n\r\n").bytes());
        request.extend(&body);
    } else {
        request.extend(b"Transfer-Encoding: chunked\r\n\r\n");
        let mut rest = body.as_slice();
        while !rest.is_empty() {
            let size = (1 + prng.below(500) as usize).min(rest.len());
            let (chunk, after) = rest.split_at(size);
            request.extend(format!("{size:x}\r\n").bytes());
            request.extend(chunk);
            request.extend(b"\r\n");
            rest = after;
        }
        request.extend(b"0\r\n\r\n");
    }
    (request, answer(&body))
}

/// An answer as heard.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    pub(super) closes: bool,
}

/// Reads the answers in `bytes`. `head_only(n)` tells whether the nth answers a `HEAD`. The second
/// result is true if the last one is incomplete.
///
/// # Errors
/// What is there is not HTTP.
pub(super) fn read_answers(
    mut bytes: &[u8],
    head_only: impl Fn(usize) -> bool,
) -> Result<(Vec<Heard>, bool), String> {
    let mut answers = Vec::new();
    while !bytes.is_empty() {
        match read_answer(&mut bytes, head_only(answers.len()))? {
            Some(answer) => answers.push(answer),
            None => return Ok((answers, true)),
        }
    }
    Ok((answers, false))
}

fn read_answer(bytes: &mut &[u8], head_only: bool) -> Result<Option<Heard>, String> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| "the head is not text")?;
    let mut rest = &bytes[end + 4..];
    let mut lines = head.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status = status_line
        .strip_prefix("HTTP/1.1 ")
        .and_then(|line| line.get(..3))
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| format!("no status line: {status_line:?}"))?;
    let (mut length, mut chunked, mut closes) = (None, false, false);
    for line in lines {
        let (name, value) = line.split_once(": ").ok_or_else(|| format!("no field: {line:?}"))?;
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse::<usize>().ok(),
            "transfer-encoding" => chunked = value == "chunked",
            "connection" => closes = value == "close",
            _ => {}
        }
    }
    // A head refused before it was complete was not known to be a `HEAD`: the refusal has content,
    // and ends the connection, so that nothing behind it can be taken for another answer.
    let unknown = closes && matches!(status, 400 | 408) && !rest.is_empty();
    let body = if head_only && !unknown {
        Some(Vec::new())
    } else if chunked {
        read_chunks(&mut rest)?
    } else {
        let length = length.ok_or("neither length nor chunks")?;
        (rest.len() >= length).then(|| {
            let (body, after) = rest.split_at(length);
            rest = after;
            body.to_vec()
        })
    };
    let Some(body) = body else { return Ok(None) };
    *bytes = rest;
    Ok(Some(Heard { status, body, closes }))
}

fn read_chunks(rest: &mut &[u8]) -> Result<Option<Vec<u8>>, String> {
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
        let size =
            std::str::from_utf8(&rest[..end]).ok().and_then(|s| usize::from_str_radix(s, 16).ok());
        let size = size.ok_or_else(|| format!("no chunk size: {:?}", &rest[..end]))?;
        let Some(chunk) = rest.get(end + 2..end + 2 + size + 2) else { return Ok(None) };
        if &chunk[size..] != b"\r\n" {
            return Err("a chunk has no line end".into());
        }
        body.extend(&chunk[..size]);
        *rest = &rest[end + 2 + size + 2..];
        if size == 0 {
            return Ok(Some(body));
        }
    }
}
