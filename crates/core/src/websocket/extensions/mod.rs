//! Which extensions does a client offer, and what is agreed on (RFC 6455 §9.1, RFC 7692 §7.1)?
//!
//! A client offers extensions in the order of its preference, and may offer one of them several times, with other
//! parameters. A server accepts the first offer that it can meet, and declines all others by its silence. The only
//! extension here is `permessage-deflate`: a message is compressed, and its first frame has the bit RSV1.

#[cfg(test)]
mod tests;

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
