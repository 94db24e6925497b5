//! The bytes of the protocols, made by hand so that they may be wrong, and what a server said to them.

use std::fmt::Write as _;

/// The types of HTTP/2's frames (RFC 9113 §6, RFC 9218 §7.1).
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const PRIORITY_UPDATE: u8 = 16;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The content of the PING that asks whether the connection still lives.
const STILL_THERE: &[u8; 8] = b"stillup?";

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub(crate) fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let pair = |(id, value): &(u16, u32)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    frame(SETTINGS, 0, 0, &pairs.iter().flat_map(pair).collect::<Vec<u8>>())
}

pub(crate) fn window_update(stream: u32, by: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

/// A PING that a server acknowledges if the connection lives.
pub(crate) fn are_you_there() -> Vec<u8> {
    frame(PING, 0, 0, STILL_THERE)
}

/// Fields as literals that neither index nor compress (RFC 7541 §6.2.2).
pub(crate) fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            length(&mut block, text.len());
            block.extend(text.as_bytes());
        }
    }
    block
}

/// A length with a prefix of seven bits (RFC 7541 §5.1).
fn length(block: &mut Vec<u8>, length: usize) {
    let Some(mut left) = length.checked_sub(127) else { return block.push(length as u8) };
    block.push(127);
    while left >= 128 {
        block.push((left % 128 + 128) as u8);
        left /= 128;
    }
    block.push(left as u8);
}

/// The pseudo-fields of a request.
pub(crate) fn request<'a>(method: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [(":method", method), (":scheme", "http"), (":authority", "h"), (":path", path)]
}

pub(crate) fn headers(flags: u8, stream: u32, block: &[u8]) -> Vec<u8> {
    frame(HEADERS, flags | END_HEADERS, stream, block)
}

pub(crate) fn get(stream: u32, path: &str) -> Vec<u8> {
    headers(END_STREAM, stream, &fields(&request("GET", path)))
}

/// A request whose content is yet to come.
pub(crate) fn post(stream: u32, path: &str) -> Vec<u8> {
    headers(0, stream, &fields(&request("POST", path)))
}

/// The stream of request number `n`.
pub(crate) fn stream(n: u32) -> u32 {
    2 * n + 1
}

/// Whether the server has acknowledged [`are_you_there`], or has said farewell.
pub(crate) fn is_settled(received: &[u8]) -> bool {
    frames(received)
        .any(|(kind, _, payload)| kind == GOAWAY || (kind == PING && payload == STILL_THERE))
}

fn frames(mut received: &[u8]) -> impl Iterator<Item = (u8, u32, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = received.split_at_checked(9)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let (payload, rest) = rest.split_at_checked(length)?;
        received = rest;
        Some((head[3], u32::from_be_bytes([head[5] & 127, head[6], head[7], head[8]]), payload))
    })
}

/// What ended an HTTP/2 connection or its last stream: `goaway CODE`, `reset CODE`, or `lives`.
pub(crate) fn http2_ending(received: &[u8]) -> String {
    let code = |payload: &[u8], at: usize| {
        let bytes = payload.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        error_code(bytes.map_or(u32::MAX, u32::from_be_bytes))
    };
    let mut reset = None;
    for (kind, _, payload) in frames(received) {
        match kind {
            GOAWAY => return format!("goaway {}", code(payload, 4)),
            RST_STREAM => reset = Some(code(payload, 0)),
            _ => {}
        }
    }
    match reset {
        Some(code) => format!("reset {code}"),
        None if is_settled(received) => "lives".to_owned(),
        None => "silence".to_owned(),
    }
}

/// RFC 9113 §7.
fn error_code(code: u32) -> &'static str {
    const NAMES: [&str; 14] = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
    NAMES.get(code as usize).copied().unwrap_or("an unknown code")
}

/// The last status of an HTTP/1 connection.
pub(crate) fn http1_ending(received: &[u8]) -> String {
    let text = String::from_utf8_lossy(received);
    let last = text.rmatch_indices("HTTP/1.1 ").find_map(|(at, start)| {
        let status = text.get(at + start.len()..at + start.len() + 3)?;
        status.bytes().all(|byte| byte.is_ascii_digit()).then_some(status)
    });
    last.unwrap_or("silence").to_owned()
}

/// A frame of a WebSocket client (RFC 6455 §5.2), masked with zeros so that the content stays as it is.
pub(crate) fn socket_frame(first: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match content.len() {
        length @ ..126 => bytes.push(128 | length as u8),
        length @ ..65_536 => {
            bytes.push(128 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(128 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend([0; 4]);
    bytes.extend(content);
    bytes
}

/// The close code of a WebSocket, `lives` if it goes on, or the status that refused it.
pub(crate) fn websocket_ending(received: &[u8]) -> String {
    let Some(at) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return "silence".to_owned();
    };
    if !received.starts_with(b"HTTP/1.1 101") {
        return http1_ending(received);
    }
    let mut rest = &received[at + 4..];
    while let [first, length, ..] = *rest {
        let (head, length) = match (length, rest) {
            (126, [_, _, a, b, ..]) => (4, usize::from(u16::from_be_bytes([*a, *b]))),
            (127, _) => return "a long frame".to_owned(),
            _ => (2, usize::from(length)),
        };
        let Some(content) = rest.get(head..head + length) else { break };
        if first == 0x88 {
            let code = content.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code));
            return format!("close {code}");
        }
        rest = &rest[head + length..];
    }
    "lives".to_owned()
}

/// The alert of a TLS server, or what it said instead.
pub(crate) fn tls_ending(received: &[u8]) -> String {
    let mut rest = received;
    let mut ending = String::new();
    while let [kind, _, _, high, low, ..] = *rest {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let Some(content) = rest.get(5..5 + length) else { break };
        if let (21, [_, alert]) = (kind, content) {
            let _ = write!(ending, "alert {alert}");
            return ending;
        }
        rest = &rest[5 + length..];
    }
    match received.first() {
        None => "silence".to_owned(),
        Some(b'H') => http1_ending(received),
        Some(_) => "a record".to_owned(),
    }
}
