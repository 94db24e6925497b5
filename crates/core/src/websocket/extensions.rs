//! Which extensions does a client offer, and what is agreed on (RFC 6455 §9.1, RFC 7692 §7.1)?
//!
//! A client offers extensions in the order of its preference, and may offer one of them several times, with other
//! parameters. A server accepts the first offer that it can meet, and declines all others by its silence. The only
//! extension here is `permessage-deflate`: a message is compressed, and its first frame has the bit RSV1.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};

/// The extension's name.
const PERMESSAGE_DEFLATE: &str = "permessage-deflate";

/// The largest window, as a power of two: 32 KiB. It is meant where none is named (RFC 7692 §7.1.2).
pub const WINDOW_BITS_MAX: u8 = 15;

/// The smallest window that a server here compresses with. The RFC also knows 8, which zlib and its relatives cannot do.
pub const WINDOW_BITS_MIN: u8 = 9;

/// How one side compresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// A message may refer to earlier ones, so both sides keep a window between messages.
    pub is_kept: bool,
    /// The size of the window, as a power of two.
    pub window_bits: u8,
}

/// How the messages of a connection are compressed: the most that a server allows, or what was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deflate {
    /// What the server sends.
    pub server: Context,
    /// What the client sends.
    pub client: Context,
}

/// An accepted offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// What was agreed on.
    pub deflate: Deflate,
    /// The value of the answer's `Sec-WebSocket-Extensions`.
    pub answer: String,
}

/// A field that is not a list of extensions. The connection is not to be opened (RFC 6455 §9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Accepts the first offer of `permessage-deflate` that can be met within `most`; `None` if there is none. `values` are
/// those of all fields `Sec-WebSocket-Extensions` of the request.
///
/// Declined is an offer with an unknown parameter, the same parameter twice, or a value that the RFC does not allow; one
/// that asks for a smaller window than [`WINDOW_BITS_MIN`] of the server; and one that does not let the server limit the
/// client's window, if the client is to keep it between messages and `most` names a limit.
///
/// ```
/// use highwater_core::websocket::extensions::{Context, Deflate, accept_deflate};
///
/// let side = Context { is_kept: false, window_bits: 15 };
/// let most = Deflate { server: side, client: side };
/// let offers = &b"permessage-deflate; server_max_window_bits=10; client_max_window_bits, permessage-deflate"[..];
/// let agreed = accept_deflate([offers], &most).unwrap().unwrap();
/// assert_eq!(agreed.deflate.server.window_bits, 10);
/// assert_eq!(
///     agreed.answer,
///     "permessage-deflate; server_no_context_takeover; client_no_context_takeover; server_max_window_bits=10"
/// );
/// ```
///
/// # Errors
/// A value that is not a list of extensions.
pub fn accept_deflate<'v>(
    values: impl IntoIterator<Item = &'v [u8]>,
    most: &Deflate,
) -> Result<Option<Agreed>, Malformed> {
    let mut agreed = None;
    for value in values {
        for extension in list(value)? {
            if agreed.is_none() {
                agreed = extension.deflate().and_then(|offer| offer.accept(most));
            }
        }
    }
    Ok(agreed)
}

/// What a server's answer says, for a client. `None`: the server has not accepted the extension.
///
/// # Errors
/// A value that is not a list of extensions, or an answer that the RFC does not allow.
pub fn read_deflate_answer<'v>(
    values: impl IntoIterator<Item = &'v [u8]>,
) -> Result<Option<Deflate>, Malformed> {
    let mut agreed = None;
    for value in values {
        for extension in list(value)? {
            let answer = extension.deflate().ok_or(Malformed)?;
            if agreed.is_some() || answer.client_max_window_bits == Some(None) {
                return Err(Malformed);
            }
            let client_bits = answer.client_max_window_bits.flatten();
            agreed = Some(Deflate {
                server: Context {
                    is_kept: !answer.server_no_context_takeover,
                    window_bits: answer.server_max_window_bits.unwrap_or(WINDOW_BITS_MAX),
                },
                client: Context {
                    is_kept: !answer.client_no_context_takeover,
                    window_bits: client_bits.unwrap_or(WINDOW_BITS_MAX),
                },
            });
        }
    }
    Ok(agreed)
}

/// The parameters of `permessage-deflate`, in an offer or in an answer.
#[derive(Clone, Copy, Debug, Default)]
struct Parameters {
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_max_window_bits: Option<u8>,
    /// The value may be left out: any window.
    client_max_window_bits: Option<Option<u8>>,
}

impl Parameters {
    /// As an offer (RFC 7692 §7.1.1, §7.1.2).
    fn accept(self, most: &Deflate) -> Option<Agreed> {
        let server = Context {
            is_kept: most.server.is_kept && !self.server_no_context_takeover,
            window_bits: most
                .server
                .window_bits
                .min(self.server_max_window_bits.unwrap_or(WINDOW_BITS_MAX)),
        };
        let offered_bits = match self.client_max_window_bits {
            Some(bits) => bits.unwrap_or(WINDOW_BITS_MAX),
            None => WINDOW_BITS_MAX,
        };
        let is_limited = self.client_max_window_bits.is_some();
        let client = Context {
            is_kept: most.client.is_kept && !self.client_no_context_takeover,
            window_bits: match is_limited {
                true => offered_bits.min(most.client.window_bits),
                false => offered_bits,
            },
        };
        let keeps_too_much = client.is_kept && client.window_bits > most.client.window_bits;
        if server.window_bits < WINDOW_BITS_MIN || keeps_too_much {
            return None;
        }
        let mut answer = String::from(PERMESSAGE_DEFLATE);
        if !server.is_kept {
            answer.push_str("; server_no_context_takeover");
        }
        if !client.is_kept {
            answer.push_str("; client_no_context_takeover");
        }
        if self.server_max_window_bits.is_some() || server.window_bits < WINDOW_BITS_MAX {
            let _ = write!(answer, "; server_max_window_bits={}", server.window_bits);
        }
        if client.window_bits < offered_bits {
            let _ = write!(answer, "; client_max_window_bits={}", client.window_bits);
        }
        Some(Agreed { deflate: Deflate { server, client }, answer })
    }
}

/// A member of the list.
struct Extension<'v> {
    name: &'v str,
    parameters: Vec<(&'v str, Option<String>)>,
}

impl Extension<'_> {
    /// Its parameters, if it is `permessage-deflate` and they are valid (RFC 7692 §7.1).
    fn deflate(&self) -> Option<Parameters> {
        if self.name != PERMESSAGE_DEFLATE {
            return None;
        }
        let mut read = Parameters::default();
        for (index, (name, value)) in self.parameters.iter().enumerate() {
            if self.parameters[..index].iter().any(|(earlier, _)| earlier == name) {
                return None;
            }
            match (*name, value) {
                ("server_no_context_takeover", None) => read.server_no_context_takeover = true,
                ("client_no_context_takeover", None) => read.client_no_context_takeover = true,
                ("server_max_window_bits", Some(value)) => {
                    read.server_max_window_bits = Some(window_bits(value)?);
                }
                ("client_max_window_bits", None) => read.client_max_window_bits = Some(None),
                ("client_max_window_bits", Some(value)) => {
                    read.client_max_window_bits = Some(Some(window_bits(value)?));
                }
                _ => return None,
            }
        }
        Some(read)
    }
}

/// A number from 8 to 15, without leading zeros (RFC 7692 §7.1.2).
fn window_bits(value: &str) -> Option<u8> {
    let bits = value.parse().ok().filter(|bits| (8..=WINDOW_BITS_MAX).contains(bits))?;
    let is_plain = value.len() == if bits < 10 { 1 } else { 2 };
    is_plain.then_some(bits)
}

/// The members of a list (RFC 6455 §9.1); empty ones are skipped, as in any list field (RFC 9110 §5.6.1).
fn list(value: &[u8]) -> Result<Vec<Extension<'_>>, Malformed> {
    let (mut scanner, mut extensions) = (Scanner { rest: value }, Vec::new());
    loop {
        scanner.skip_space();
        if let Some(name) = scanner.token() {
            let mut parameters = Vec::new();
            while scanner.skip(b';') {
                let name = scanner.token().ok_or(Malformed)?;
                let value = match scanner.skip(b'=') {
                    true => Some(scanner.value().ok_or(Malformed)?),
                    false => None,
                };
                parameters.push((name, value));
            }
            extensions.push(Extension { name, parameters });
        }
        if !scanner.skip(b',') {
            return if scanner.rest.is_empty() { Ok(extensions) } else { Err(Malformed) };
        }
    }
}

/// What is left of a field's value.
struct Scanner<'v> {
    rest: &'v [u8],
}

impl<'v> Scanner<'v> {
    fn skip_space(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    /// Skips this character, and the space around it.
    fn skip(&mut self, wanted: u8) -> bool {
        self.skip_space();
        let Some(rest) = self.rest.strip_prefix(&[wanted]) else { return false };
        self.rest = rest;
        self.skip_space();
        true
    }

    fn token(&mut self) -> Option<&'v str> {
        let len = self.rest.iter().take_while(|byte| is_token(**byte)).count();
        let (token, rest) = self.rest.split_at(len);
        self.rest = rest;
        core::str::from_utf8(token).ok().filter(|token| !token.is_empty())
    }

    /// A token, or one in quotes (RFC 6455 §9.1).
    fn value(&mut self) -> Option<String> {
        let Some(mut rest) = self.rest.strip_prefix(b"\"") else {
            return self.token().map(String::from);
        };
        let mut value = String::new();
        loop {
            let (byte, after) = match rest {
                [b'"', after @ ..] => {
                    self.rest = after;
                    return (!value.is_empty()).then_some(value);
                }
                [b'\\', byte, after @ ..] | [byte, after @ ..] => (*byte, after),
                [] => return None,
            };
            if !is_token(byte) {
                return None;
            }
            value.push(char::from(byte));
            rest = after;
        }
    }
}

/// RFC 9110 §5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the field Sec-WebSocket-Extensions is not a list of extensions")
    }
}

impl core::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::ToString;
    use std::vec;

    use proptest::prelude::*;

    use super::*;

    const fn most(server: (bool, u8), client: (bool, u8)) -> Deflate {
        Deflate {
            server: Context { is_kept: server.0, window_bits: server.1 },
            client: Context { is_kept: client.0, window_bits: client.1 },
        }
    }

    const ALL: Deflate = most((true, 15), (true, 15));
    const NOTHING_KEPT: Deflate = most((false, 15), (false, 15));

    /// The answer to `offers`, one field each.
    fn answer(offers: &[&str], most: &Deflate) -> Result<Option<String>, Malformed> {
        let values = offers.iter().map(|offer| offer.as_bytes());
        accept_deflate(values, most).map(|agreed| agreed.map(|agreed| agreed.answer))
    }

    /// Purpose: what RFC 7692 §7.1 says about each parameter of an offer, with a server that allows everything.
    #[test]
    fn each_parameter() {
        for (offer, expected) in [
            ("", Some("")),
            ("server_no_context_takeover", Some("server_no_context_takeover")),
            ("client_no_context_takeover", Some("client_no_context_takeover")),
            ("client_max_window_bits", Some("")),
            ("client_max_window_bits=8", Some("")),
            ("server_max_window_bits=15", Some("server_max_window_bits=15")),
            ("server_max_window_bits=\"1\\0\"", Some("server_max_window_bits=10")),
            ("server_max_window_bits=9", Some("server_max_window_bits=9")),
            ("server_max_window_bits=8", None), // The back end cannot.
            ("server_max_window_bits=7", None),
            ("server_max_window_bits=16", None),
            ("server_max_window_bits=010", None),
            ("server_max_window_bits=+9", None),
            ("server_max_window_bits", None),
            ("client_max_window_bits=16", None),
            ("client_max_window_bits=x", None),
            ("server_no_context_takeover=1", None),
            ("client_no_context_takeover=\"yes\"", None),
            ("server_no_context_takeover; server_no_context_takeover", None),
            ("client_max_window_bits; client_max_window_bits=9", None),
            ("mux", None),
        ] {
            let separator = if offer.is_empty() { "" } else { "; " };
            let offer = format!("permessage-deflate{separator}{offer}");
            let expected = expected.map(|parameters| match parameters {
                "" => "permessage-deflate".to_string(),
                parameters => format!("permessage-deflate; {parameters}"),
            });
            assert_eq!(answer(&[&offer], &ALL), Ok(expected), "{offer}");
        }
    }

    /// Purpose: what the server does not allow is said in its answer, and an offer under which it cannot be had is declined.
    #[test]
    fn what_the_server_wants() {
        let none_kept =
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
        assert_eq!(answer(&["permessage-deflate"], &NOTHING_KEPT), Ok(Some(none_kept.to_string())));
        let small = most((true, 10), (true, 11));
        for (offer, expected) in [
            ("permessage-deflate", None), // The client cannot be told to use a smaller window.
            (
                "permessage-deflate; client_max_window_bits",
                Some("permessage-deflate; server_max_window_bits=10; client_max_window_bits=11"),
            ),
            (
                "permessage-deflate; client_max_window_bits=10; server_max_window_bits=12",
                Some("permessage-deflate; server_max_window_bits=10"),
            ),
            // It keeps nothing, so its window costs nothing.
            (
                "permessage-deflate; client_no_context_takeover",
                Some("permessage-deflate; client_no_context_takeover; server_max_window_bits=10"),
            ),
        ] {
            let expected = expected.map(ToString::to_string);
            assert_eq!(answer(&[offer], &small), Ok(expected), "{offer}");
        }
    }

    /// Purpose: the first offer that can be met is accepted, whichever other extensions stand between them and however many
    /// fields there are.
    #[test]
    fn several_offers() {
        let (first, second) = (
            "permessage-deflate; mux, x-webkit-deflate-frame; a=\"b\"",
            " ,permessage-deflate;server_max_window_bits=12 ,permessage-deflate,",
        );
        let expected = "permessage-deflate; server_max_window_bits=12".to_string();
        assert_eq!(answer(&[first, second], &ALL), Ok(Some(expected.clone())));
        assert_eq!(answer(&[&format!("{first}, {second}")], &ALL), Ok(Some(expected)));
        assert_eq!(answer(&[first], &ALL), Ok(None));
        assert_eq!(answer(&[], &ALL), Ok(None));
    }

    /// Purpose: a field that is not a list of extensions is told from an offer that is declined, wherever it stands.
    #[test]
    fn malformed_fields() {
        for value in [
            "permessage-deflate;",
            "permessage-deflate; =1",
            "permessage-deflate; a=",
            "permessage-deflate; a=\"b",
            "permessage-deflate; a=\"\"",
            "permessage-deflate; a=\"b c\"",
            "permessage-deflate; a=\"b\\",
            "permessage-deflate a",
            "permessage-deflate, \"a\"",
            "permessage-deflate; a=b=c",
            "; a",
            "perméssage",
        ] {
            assert_eq!(answer(&[value], &ALL), Err(Malformed), "{value}");
            assert_eq!(answer(&["permessage-deflate", value], &ALL), Err(Malformed), "{value}");
        }
    }

    /// Purpose: a client refuses an answer that the RFC does not allow.
    #[test]
    fn answers() {
        let read = |answer: &'static str| read_deflate_answer([answer.as_bytes()]);
        assert_eq!(read(""), Ok(None));
        assert_eq!(read("permessage-deflate"), Ok(Some(ALL)));
        let expected = most((false, 10), (false, 9));
        let full = "permessage-deflate; client_no_context_takeover; server_max_window_bits=10; server_no_context_takeover; client_max_window_bits=9";
        assert_eq!(read(full), Ok(Some(expected)));
        for answer in [
            "permessage-deflate, permessage-deflate",
            "permessage-deflate; client_max_window_bits",
            "permessage-deflate; mux",
            "mux",
        ] {
            assert_eq!(read(answer), Err(Malformed), "{answer}");
        }
    }

    /// A parameter, with what it asks for.
    fn parameter() -> impl Strategy<Value = String> {
        let value = prop_oneof![
            Just(String::new()),
            (7_u8..17).prop_map(|bits| format!("={bits}")),
            (7_u8..17).prop_map(|bits| format!(" = \"{bits}\"")),
            Just("=\"\\1\\0\"".to_string()),
            Just("=00".to_string()),
        ];
        let name = prop_oneof![
            Just("server_no_context_takeover"),
            Just("client_no_context_takeover"),
            Just("server_max_window_bits"),
            Just("client_max_window_bits"),
            Just("unknown"),
        ];
        (name, value).prop_map(|(name, value)| format!("{name}{value}"))
    }

    fn offer() -> impl Strategy<Value = String> {
        proptest::collection::vec(parameter(), 0..4).prop_map(|parameters| {
            let mut offer = vec![PERMESSAGE_DEFLATE.to_string()];
            offer.extend(parameters);
            offer.join(";")
        })
    }

    fn context() -> impl Strategy<Value = Context> {
        let bits = WINDOW_BITS_MIN..=WINDOW_BITS_MAX;
        (any::<bool>(), bits).prop_map(|(is_kept, window_bits)| Context { is_kept, window_bits })
    }

    proptest! {
        /// Purpose: an answer never allows more than the server does, nor more than the offer; the client reads in it what
        /// the server means; and of several offers it is the answer to the first one that is accepted alone.
        #[test]
        fn answers_keep_to_both(offers in proptest::collection::vec(offer(), 1..4), server in context(), client in context()) {
            let most = Deflate { server, client };
            let one = |offer: &String| accept_deflate([offer.as_bytes()], &most).expect("it is a list");
            let agreed = accept_deflate([offers.join(", ").as_bytes()], &most).expect("it is a list");
            prop_assert_eq!(&agreed, &offers.iter().find_map(one));
            let Some(Agreed { deflate, answer }) = agreed else { return Ok(()) };
            let offer = offers.iter().find(|offer| one(offer).is_some()).expect("one was accepted");
            let read = read_deflate_answer([answer.as_bytes()]).expect("it is valid").expect("it accepts");
            prop_assert_eq!(read.server, deflate.server);
            prop_assert_eq!(read.client.is_kept, deflate.client.is_kept);
            // A client that names a smaller window keeps to it without being told.
            prop_assert!(deflate.client.window_bits <= read.client.window_bits);
            prop_assert!(server.is_kept || !deflate.server.is_kept);
            prop_assert!(client.is_kept || !deflate.client.is_kept);
            prop_assert!(deflate.server.window_bits <= server.window_bits);
            prop_assert!(!deflate.client.is_kept || deflate.client.window_bits <= client.window_bits);
            prop_assert!(deflate.server.window_bits >= WINDOW_BITS_MIN);
            // RFC 7692 §7.1.2.2: only if the client has said that it can.
            prop_assert!(offer.contains("client_max_window_bits") || !answer.contains("client_max_window_bits"));
            prop_assert!(!offer.contains("server_no_context_takeover") || answer.contains("server_no_context_takeover"));
            prop_assert!(!offer.contains("server_max_window_bits") || answer.contains("server_max_window_bits"));
        }

        /// Purpose: any bytes are a list, or not; nothing panics.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), proptest::sample::select(&b"permessage-deflate;=,\"\\ 19"[..])], 0..60)) {
            let _ = accept_deflate([&bytes[..]], &ALL);
            let _ = read_deflate_answer([&bytes[..]]);
        }
    }
}
