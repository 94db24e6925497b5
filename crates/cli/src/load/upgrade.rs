//! The opening of a WebSocket connection (RFC 6455 §4.1; RFC 8441 over HTTP/2), and its messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use highwater_core::http1::client::Head;
use highwater_core::prng::Prng;
use highwater_core::websocket::{Kind, accept};

use super::spec::Spec;
use super::template::Template;

/// Fields of the handshake, which are this client's to write.
const OWN: [&str; 4] = ["connection", "upgrade", "sec-websocket-key", "sec-websocket-version"];

/// The handshake's head without its key, and the message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    head: Vec<u8>,
    /// The same in the words of HTTP/2.
    connect: Vec<(String, Vec<u8>)>,
    pub(crate) body: Template,
    pub(crate) kind: Kind,
}

impl Message {
    /// # Errors
    /// Something that a handshake cannot have, or a parameter in it; the message names it.
    pub(crate) fn new(
        spec: &Spec,
        scheme: &str,
        authority: &str,
        kind: Kind,
    ) -> Result<Message, String> {
        let place = &spec.place;
        if spec.method != "GET" {
            return Err(format!(
                "{place}method {}: WebSocket begins with GET; leave it out",
                spec.method
            ));
        }
        let fixed = |what: &str, template: &Template| {
            let constant = template.constant().map(<[u8]>::to_vec);
            constant.ok_or_else(|| {
                format!("{place}{what}: parameters of --ws are for messages; write them in --body")
            })
        };
        let path = fixed("path", &spec.path)?;
        let mut head = [b"GET ", &path[..], b" HTTP/1.1\r\n"].concat();
        let (mut host, mut others) = (None, Vec::new());
        for (name, value) in &spec.headers {
            if OWN.contains(&name.to_ascii_lowercase().as_str()) {
                return Err(format!(
                    "{place}header {name} is written by --ws itself; leave it out"
                ));
            }
            let value = fixed("header", value)?;
            head.extend_from_slice(format!("{name}: ").as_bytes());
            head.extend_from_slice(&value);
            head.extend_from_slice(b"\r\n");
            match name.eq_ignore_ascii_case("host") {
                true => host = Some(value),
                false => others.push((name.to_ascii_lowercase(), value)),
            }
        }
        if host.is_none() {
            head.extend_from_slice(format!("Host: {authority}\r\n").as_bytes());
        }
        head.extend_from_slice(
            b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
        );
        let own = [
            (":method", b"CONNECT".to_vec()),
            (":protocol", b"websocket".to_vec()),
            (":scheme", scheme.as_bytes().to_vec()),
            (":authority", host.unwrap_or_else(|| authority.as_bytes().to_vec())),
            (":path", path),
            ("sec-websocket-version", b"13".to_vec()),
        ];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        let connect = own.chain(others).collect();
        Ok(Message { head, connect, body: spec.body.clone(), kind })
    }

    /// The fields of the extended CONNECT.
    pub(crate) fn connect(&self) -> Vec<(String, Vec<u8>)> {
        self.connect.clone()
    }

    pub(crate) fn write(&self, handshake: &Handshake, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.head);
        out.extend_from_slice(format!("Sec-WebSocket-Key: {}\r\n\r\n", handshake.key).as_bytes());
    }
}

/// A handshake whose answer is awaited.
pub(crate) struct Handshake {
    key: String,
}

impl Handshake {
    pub(crate) fn new(random: &mut Prng) -> Handshake {
        let nonce = [random.next_u64().to_le_bytes(), random.next_u64().to_le_bytes()].concat();
        Handshake { key: STANDARD.encode(nonce) }
    }

    /// Whether the server has accepted this handshake, and not another one (RFC 6455 §4.1).
    pub(crate) fn check(&self, head: &Head<'_>) -> Result<(), String> {
        let mut values = head
            .fields()
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-accept"));
        match values.next() {
            Some((_, value)) if accept(self.key.as_bytes()).is_some_and(|ours| value == ours) => {
                Ok(())
            }
            Some(_) => {
                Err("the server accepted another handshake: Sec-WebSocket-Accept is wrong"
                    .to_owned())
            }
            None => {
                Err("the server switched without Sec-WebSocket-Accept; is this WebSocket?"
                    .to_owned())
            }
        }
    }
}

/// The server answered the handshake with another status than 101.
pub(crate) fn refused(status: u16) -> String {
    format!(
        "the server answered the handshake with {status}; name a path that takes WebSocket (GET, version 13)"
    )
}
