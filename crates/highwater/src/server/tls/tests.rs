//! The seal alone, without sockets: a client of rustls on the other side, and bytes that are cut anywhere.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use highwater_core::protocol::Versions;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};

use super::super::config::{ClientAuth, ServerConfig};
use super::super::worker::{Opened, Seal};
use super::seal::{TOO_LARGE, TlsSeal};
use super::shared::Shared;
use super::{HELLO_MAX, Pem, Prepared, Tls};

struct World {
    shared: Arc<Shared>,
    client: Arc<ClientConfig>,
}

fn world(version: &'static SupportedProtocolVersion) -> World {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a name");
    let tls = Tls::pem(Pem::text(made.cert.pem()), Pem::text(made.signing_key.serialize_pem()));
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("it was just made");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]);
    let builder = builder.expect("ring has ciphers for it").with_root_certificates(roots);
    World {
        shared: Arc::new(Shared::new(tls).expect("it is right")),
        client: Arc::new(builder.with_no_client_auth()),
    }
}

/// What a seal has reported.
#[derive(Debug, Default, PartialEq)]
struct Received {
    plain: Vec<u8>,
    hellos: u32,
    established: u32,
    closed: u32,
    failed: u32,
}

/// Delivers `bytes`. If the handshake has to wait, it begins behind all of them.
fn deliver(seal: &mut TlsSeal, mut bytes: &mut [u8], waits: bool, received: &mut Received) {
    let mut is_waiting = false;
    loop {
        match seal.open(&mut bytes) {
            Opened::Wait if is_waiting => {
                is_waiting = false;
                seal.begin();
                bytes = &mut [];
            }
            Opened::Wait => {
                assert!(bytes.is_empty(), "it has left {} bytes", bytes.len());
                return;
            }
            Opened::Hello => {
                received.hellos += 1;
                match waits {
                    true => {
                        seal.keep(bytes);
                        is_waiting = true;
                        bytes = &mut [];
                    }
                    false => seal.begin(),
                }
            }
            Opened::Established => received.established += 1,
            Opened::Plain(plain) => received.plain.extend_from_slice(plain),
            Opened::Closed => received.closed += 1,
            Opened::Failed(_) => received.failed += 1,
        }
    }
}

/// A client sends `sent_bytes` and closes, the server answers `pong`. All bytes of the client come in two pieces for each flight,
/// cut behind the first `cut` of them. Returns what the server received, and how many bytes were sent.
fn converse(world: &World, sent_bytes: &[u8], cut: usize, waits: bool) -> (Received, usize) {
    let mut seal = TlsSeal::new(Arc::clone(&world.shared), Versions::Both);
    let name = "localhost".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::clone(&world.client), name).expect("it is right");
    client.set_buffer_limit(None);
    let (mut received, mut sent, mut has_spoken, mut has_answered) =
        (Received::default(), 0, false, false);
    loop {
        if !client.is_handshaking() && !has_spoken {
            has_spoken = true;
            client.writer().write_all(sent_bytes).expect("it is memory");
            client.send_close_notify();
        }
        let mut flight = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut flight).expect("it is memory");
        }
        let at = cut.saturating_sub(sent).min(flight.len());
        let (first, second) = flight.split_at_mut(at);
        sent += first.len() + second.len();
        deliver(&mut seal, first, waits, &mut received);
        deliver(&mut seal, second, waits, &mut received);
        let mut sealed = Vec::new();
        seal.take_own(&mut sealed);
        if received.closed == 1 && !std::mem::replace(&mut has_answered, true) {
            seal.seal(b"pong", &mut sealed);
            seal.close(&mut sealed);
        }
        if sealed.is_empty() {
            break;
        }
        let mut sealed = sealed.as_slice();
        while !sealed.is_empty() {
            client.read_tls(&mut sealed).expect("it is memory");
            client.process_new_packets().expect("the server keeps the rules");
        }
    }
    let mut answer = Vec::new();
    client.reader().read_to_end(&mut answer).expect("the end was announced");
    assert_eq!(answer, b"pong");
    (received, sent)
}

/// Purpose: wherever a client's bytes are cut, and whether or not its handshake has to wait, the same is reported once.
#[test]
fn cut_at_every_byte() {
    for version in [&TLS12, &TLS13] {
        let world = world(version);
        for waits in [false, true] {
            let (whole, len) = converse(&world, b"ping", 0, waits);
            let expected = Received {
                plain: b"ping".to_vec(),
                hellos: 1,
                established: 1,
                closed: 1,
                failed: 0,
            };
            assert_eq!(whole, expected);
            assert!(len > 200, "{len}");
            // The length of a handshake varies by some bytes: signatures in DER.
            for cut in 1..len + 8 {
                let (received, _) = converse(&world, b"ping", cut, waits);
                assert_eq!(received, expected, "{version:?}, cut behind {cut}");
            }
        }
    }
}

/// Purpose: more than a record holds comes through whole, however it is cut.
#[test]
fn large_content() {
    let sent_bytes: Vec<u8> = (0..100_000_u32).map(|index| (index % 251) as u8).collect();
    for version in [&TLS12, &TLS13] {
        let world = world(version);
        for cut in [0, 1000, 16_384, 50_000] {
            let (received, _) = converse(&world, &sent_bytes, cut, false);
            assert!(received.plain == sent_bytes, "{version:?}, cut behind {cut}");
        }
    }
}

/// The hello of a client, made `len` bytes long by an extension that pads it (RFC 7685).
fn padded_hello(world: &World, len: usize) -> Vec<u8> {
    let name = "localhost".try_into().expect("a name");
    let mut client = ClientConnection::new(Arc::clone(&world.client), name).expect("it is right");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("it is memory");
    // Headers of record and handshake, version, random; then what has a length: session, ciphers, compression, extensions.
    let session = 5 + 4 + 2 + 32;
    let ciphers = session + 1 + usize::from(hello[session]);
    let number = |at: usize| usize::from(hello[at]) << 8 | usize::from(hello[at + 1]);
    let compression = ciphers + 2 + number(ciphers);
    let extensions = compression + 1 + usize::from(hello[compression]);
    let padding = len - hello.len() - 4;
    let lengths =
        [(3, number(3)), (7, number(7)), (extensions, number(extensions))].map(|(at, length)| {
            let length = u16::try_from(length + 4 + padding).expect("it is small");
            (at, length.to_be_bytes())
        });
    for (at, length) in lengths {
        hello[at..at + 2].copy_from_slice(&length);
    }
    hello.extend([0, 21]);
    hello.extend(u16::try_from(padding).expect("it is small").to_be_bytes());
    hello.resize(len, 0);
    hello
}

/// Purpose: a hello of the largest size is taken, and one that is a byte longer gets the alert, whether it comes at once or
/// in pieces. Once, one that came at once could be a quarter longer, and the manual said otherwise.
#[test]
fn hellos_are_bounded() {
    let world = world(&TLS13);
    for (len, is_taken) in [(HELLO_MAX - 1, true), (HELLO_MAX, true), (HELLO_MAX + 1, false)] {
        for piece in [len, HELLO_MAX, 5_000, 1_460] {
            let mut seal = TlsSeal::new(Arc::clone(&world.shared), Versions::Both);
            let (mut hello, mut received) = (padded_hello(&world, len), Received::default());
            for bytes in hello.chunks_mut(piece) {
                deliver(&mut seal, bytes, false, &mut received);
            }
            let expected = Received {
                hellos: u32::from(is_taken),
                failed: u32::from(!is_taken),
                ..Received::default()
            };
            assert_eq!(received, expected, "{len} bytes, {piece} at a time");
            let mut own = Vec::new();
            seal.take_own(&mut own);
            assert_eq!(own == TOO_LARGE, !is_taken, "{len} bytes, {piece} at a time");
        }
    }
}

/// Purpose: a message of a handshake that is longer than rustls keeps ends the connection, once, however it comes. Once, it kept
/// the worker reading for ever.
#[test]
fn messages_of_a_handshake_are_bounded() {
    const LARGEST: usize = 16_384;
    for version in [&TLS12, &TLS13] {
        let world = world(version);
        for (piece, waits) in [
            (5 * (5 + LARGEST), true),
            (5 * (5 + LARGEST), false),
            (5 + LARGEST, false),
            (1_460, false),
        ] {
            let mut seal = TlsSeal::new(Arc::clone(&world.shared), Versions::Both);
            let mut received = Received::default();
            let mut sent = padded_hello(&world, 1_000);
            if !waits {
                deliver(&mut seal, &mut sent, false, &mut received);
                sent.clear();
            }
            for number in 0..5 {
                sent.extend([22, 3, 3, (LARGEST >> 8) as u8, LARGEST as u8]);
                sent.resize(sent.len() + LARGEST, 0);
                if number == 0 {
                    let begin = sent.len() - LARGEST;
                    // ClientKeyExchange, of 65 535 bytes.
                    sent[begin..begin + 4].copy_from_slice(&[16, 0, 0xff, 0xff]);
                }
            }
            for bytes in sent.chunks_mut(piece) {
                deliver(&mut seal, bytes, waits, &mut received);
            }
            let expected = Received { hellos: 1, failed: 1, ..Received::default() };
            assert_eq!(received, expected, "{version:?}, {piece} at a time, waits {waits}");
        }
    }
}

/// Purpose: code that says how clients prove themselves, and not who vouches for them, gets an error: such a server would
/// let everybody in.
#[test]
fn client_auth_needs_an_authority() {
    for auth in [ClientAuth::Required, ClientAuth::Optional] {
        let config = ServerConfig {
            listen: vec!["127.0.0.1:0,tls".parse().expect("it is right")],
            tls_cert: vec!["site.pem".into()],
            tls_key: vec!["site.key".into()],
            tls_client_auth: Some(auth),
            ..ServerConfig::default()
        };
        let sent_bytes = Prepared::new(None, &config, false).err();
        assert_eq!(
            sent_bytes.expect("it lacks an authority"),
            format!(
                "tls-client-auth {auth} has no effect without tls-client-ca: no client is asked for a certificate; name the \
                 authorities of clients there, or leave tls-client-auth out"
            )
        );
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a name");
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let tls = Tls::pem(Pem::text(certificate), Pem::text(key)).client_auth(auth);
        assert_eq!(
            Shared::new(tls).expect_err("it lacks an authority"),
            format!(
                "Tls::client_auth ({auth}) has no effect without Tls::client_ca: no client is asked for a certificate; name \
                 the authorities of clients there, or leave client_auth out"
            )
        );
    }
}
