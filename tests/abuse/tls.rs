//! TLS: handshakes that are wrong, too large or in pieces. The alerts are those of RFC 8446 §6.

use std::time::Duration;

use crate::strike::{Case, Protocol};

const P: Protocol = Protocol::Tls;
const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;
const CHANGE_CIPHER_SPEC: u8 = 20;
const APPLICATION_DATA: u8 = 23;

const UNEXPECTED_MESSAGE: &str = "alert 10";
const RECORD_OVERFLOW: &str = "alert 22";
const DECODE_ERROR: &str = "alert 50";
const PROTOCOL_VERSION: &str = "alert 70";

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::once(P, "plain HTTP", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", &["400"]),
        Case::once(P, "bytes that are not TLS", vec![0xff; 4096], &["silence"]),
        Case::once(
            P,
            "a record that is too long",
            [HANDSHAKE, 3, 1, 0xff, 0xff],
            &[RECORD_OVERFLOW, DECODE_ERROR],
        ),
        Case::once(
            P,
            "data before the handshake",
            record(APPLICATION_DATA, &[0; 100]),
            &["silence"],
        ),
        Case::once(P, "an alert before the handshake", record(ALERT, &[2, 40]), &["silence"]),
        Case::once(P, "a hello of no ciphers", hello(&[]), &["alert 40", "alert 50"]),
        Case::once(
            P,
            "a hello of unknown ciphers",
            hello(&[0xfa, 0xfa]),
            &["alert 40", "alert 70"],
        ),
        Case::once(
            P,
            "a hello of SSL 3",
            record(
                HANDSHAKE,
                &handshake(1, &[&[3, 0][..], &[7; 32], &[0, 0, 2, 0, 5, 1, 0]].concat()),
            ),
            &[PROTOCOL_VERSION, "alert 40", "alert 50"],
        ),
        Case::once(
            P,
            "a hello that is cut off",
            record(HANDSHAKE, &[1, 0, 0, 9, 3, 3, 0]),
            &["silence"],
        ),
        Case::once(
            P,
            "a hello of a server",
            record(HANDSHAKE, &handshake(2, &[0; 40])),
            &["silence"],
        ),
        Case::repeated(
            P,
            "a hello larger than all hellos",
            (record(HANDSHAKE, &[1, 0xff, 0xff, 0xff]), record(HANDSHAKE, &[0; 16_000]), 1000),
            &["alert 50", "alert 10", "silence"],
        ),
        Case::repeated(
            P,
            "records without content",
            ("", record(HANDSHAKE, b""), 100_000),
            &[UNEXPECTED_MESSAGE, DECODE_ERROR],
        ),
        Case::repeated(
            P,
            "changes of the cipher before the handshake",
            ("", record(CHANGE_CIPHER_SPEC, &[1]), 100_000),
            &["silence"],
        ),
        Case::repeated(
            P,
            "a hello in records of one byte",
            ("", record(HANDSHAKE, &[1]), 100_000),
            &[RECORD_OVERFLOW, "silence"],
        ),
        Case::repeated(
            P,
            "a handshake of a byte now and then",
            ("", "\x16", 100),
            &["silence", "alert 10", "alert 50", "alert 22"],
        )
        .slowly(Duration::from_millis(60)),
        Case::repeated(
            P,
            "alerts that only warn",
            ("", record(ALERT, &[1, 90]), 100_000),
            &["silence"],
        ),
    ]
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind, 3, 1][..], &(content.len() as u16).to_be_bytes(), content].concat()
}

fn handshake(kind: u8, content: &[u8]) -> Vec<u8> {
    [&[kind][..], &(content.len() as u32).to_be_bytes()[1..], content].concat()
}

/// A ClientHello of TLS 1.2 with these ciphers and no extensions.
fn hello(ciphers: &[u8]) -> Vec<u8> {
    let length = (ciphers.len() as u16).to_be_bytes();
    let content = [&[3, 3][..], &[7; 32], &[0], &length, ciphers, &[1, 0]].concat();
    record(HANDSHAKE, &handshake(1, &content))
}
