//! Where does an answer end, and what does it say? An incremental HTTP/1 response parser, sans-I/O
//! (RFC 9112): bytes in, answers out, however they are cut.
//!
//! It keeps what framing and counting need: status, length, whether the connection persists. Bodies
//! are counted, never kept. Interim answers (1xx) are skipped.

/// Bytes of one head, at most.
pub(crate) const HEAD_MAX: usize = 64 * 1024;
/// Header fields of one answer, at most.
const HEADERS_MAX: usize = 100;
/// Bytes of one line of a chunked body's framing, at most.
const LINE_MAX: usize = 4096;

/// A whole answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Whether another request may be sent on this connection.
    pub(crate) keep_alive: bool,
}

/// Not an answer by RFC 9112; says what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    /// So many body bytes are still to come.
    Body(u64),
    ChunkSize,
    /// Data of a chunk, and the line end behind it.
    Chunk(u64),
    ChunkEnd,
    Trailers,
    /// The body ends with the connection.
    ToTheEnd,
}

/// Parses the answers on one connection.
#[derive(Debug)]
pub(crate) struct Parser {
    state: State,
    answer: Answer,
    /// The beginning of a head or line whose end has not come yet.
    carry: Vec<u8>,
    /// The requests were HEAD: answers have no body, whatever they announce.
    bodiless: bool,
}

impl Parser {
    pub(crate) fn new(bodiless: bool) -> Parser {
        let answer = Answer { status: 0, keep_alive: false };
        Parser { state: State::Head, answer, carry: Vec::new(), bodiless }
    }

    /// As if new.
    pub(crate) fn reset(&mut self) {
        self.state = State::Head;
        self.carry.clear();
    }

    /// Takes bytes from the front of `bytes`, up to the end of an answer if one ends in them. After
    /// `None`, all were taken.
    pub(crate) fn feed(&mut self, bytes: &mut &[u8]) -> Result<Option<Answer>, Malformed> {
        while !bytes.is_empty() {
            let done = match self.state {
                State::Head => self.head(bytes)?,
                State::Body(left) => {
                    let left = skip(bytes, left);
                    self.state = State::Body(left);
                    left == 0
                }
                State::Chunk(left) => {
                    let left = skip(bytes, left);
                    self.state = if left == 0 { State::ChunkEnd } else { State::Chunk(left) };
                    false
                }
                State::ToTheEnd => {
                    *bytes = &[];
                    false
                }
                State::ChunkSize | State::ChunkEnd | State::Trailers => self.line(bytes)?,
            };
            if done {
                self.state = State::Head;
                return Ok(Some(self.answer));
            }
        }
        Ok(None)
    }

    /// The connection has ended: an answer that lasts until then is whole.
    pub(crate) fn end(&mut self) -> Option<Answer> {
        let whole = self.state == State::ToTheEnd;
        self.reset();
        whole.then_some(self.answer)
    }

    /// Takes bytes of a head. True if the answer ends with it.
    fn head(&mut self, bytes: &mut &[u8]) -> Result<bool, Malformed> {
        if self.carry.is_empty() {
            // Mostly a head comes whole and is parsed where it lies.
            if let Some(head) = parse(bytes)? {
                *bytes = &bytes[head.len..];
                return self.begin(head);
            }
        }
        let before = self.carry.len();
        self.carry.extend_from_slice(bytes);
        match parse(&self.carry)? {
            Some(head) => {
                *bytes = &bytes[head.len - before..];
                self.carry.clear();
                self.begin(head)
            }
            None if self.carry.len() > HEAD_MAX => Err(Malformed("a head of more than 64 KiB")),
            None => {
                *bytes = &[];
                Ok(false)
            }
        }
    }

    /// What follows a head (RFC 9112 §6.3). True if nothing does.
    fn begin(&mut self, head: Head) -> Result<bool, Malformed> {
        match head.status {
            101 => return Err(Malformed("101 to a request that asked for no upgrade")),
            100..=199 => return Ok(false),
            _ => {}
        }
        self.answer = Answer { status: head.status, keep_alive: head.keep_alive };
        if self.bodiless || matches!(head.status, 204 | 304) {
            return Ok(true);
        }
        self.state = match head.framing {
            Framing::Length(0) => return Ok(true),
            Framing::Length(length) => State::Body(length),
            Framing::Chunked => State::ChunkSize,
            Framing::ToTheEnd => {
                self.answer.keep_alive = false;
                State::ToTheEnd
            }
        };
        Ok(false)
    }

    /// Takes bytes of a line of a chunked body's framing. True if the answer ends with it.
    fn line(&mut self, bytes: &mut &[u8]) -> Result<bool, Malformed> {
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
            self.carry.extend_from_slice(bytes);
            *bytes = &[];
            return match self.carry.len() {
                ..=LINE_MAX => Ok(false),
                _ => Err(Malformed("a line of a chunked body is longer than 4 KiB")),
            };
        };
        self.carry.extend_from_slice(&bytes[..end]);
        *bytes = &bytes[end + 1..];
        if self.carry.pop() != Some(b'\r') {
            return Err(Malformed("a line of a chunked body does not end with CR LF"));
        }
        let done = match self.state {
            State::ChunkSize => {
                let size = chunk_size(&self.carry)?;
                self.state = if size == 0 { State::Trailers } else { State::Chunk(size) };
                false
            }
            State::ChunkEnd if self.carry.is_empty() => {
                self.state = State::ChunkSize;
                false
            }
            State::ChunkEnd => return Err(Malformed("a chunk is longer than it says")),
            _ => self.carry.is_empty(),
        };
        self.carry.clear();
        Ok(done)
    }
}

/// Takes up to `wanted` bytes off the front and says how many are still wanted.
fn skip(bytes: &mut &[u8], wanted: u64) -> u64 {
    let taken = usize::try_from(wanted).unwrap_or(usize::MAX).min(bytes.len());
    *bytes = &bytes[taken..];
    wanted - taken as u64
}

/// `chunk-size [ chunk-ext ]` (RFC 9112 §7.1).
fn chunk_size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let rest_is_fine = matches!(line.get(digits), None | Some(b';' | b' ' | b'\t'));
    let text = std::str::from_utf8(&line[..digits]).unwrap_or_default();
    match u64::from_str_radix(text, 16) {
        Ok(size) if rest_is_fine && digits <= 16 => Ok(size),
        _ => Err(Malformed("a chunk size is no hexadecimal number")),
    }
}

enum Framing {
    Length(u64),
    Chunked,
    ToTheEnd,
}

struct Head {
    len: usize,
    status: u16,
    keep_alive: bool,
    framing: Framing,
}

/// A whole head at the front of `bytes`; `None` if its end has not come yet.
fn parse(bytes: &[u8]) -> Result<Option<Head>, Malformed> {
    let mut headers = [const { std::mem::MaybeUninit::uninit() }; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        bytes,
        &mut headers,
    );
    let len = match parsed {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(Malformed(name(error))),
    };
    let (Some(status), Some(version)) = (response.code, response.version) else {
        return Err(Malformed("no status line"));
    };
    if !(100..=599).contains(&status) {
        return Err(Malformed("a status that is not 100 to 599"));
    }
    let mut head = Head { len, status, keep_alive: version == 1, framing: Framing::ToTheEnd };
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case("content-length") {
            head.set_length(header.value)?;
        } else if header.name.eq_ignore_ascii_case("transfer-encoding") {
            head.framing = transfer(header.value)?;
        } else if header.name.eq_ignore_ascii_case("connection") {
            head.set_connection(header.value);
        }
    }
    Ok(Some(head))
}

impl Head {
    fn set_length(&mut self, value: &[u8]) -> Result<(), Malformed> {
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let length = std::str::from_utf8(value).ok().filter(|_| digits);
        let Some(length) = length.and_then(|text| text.parse().ok()) else {
            return Err(Malformed("Content-Length is no number"));
        };
        match self.framing {
            Framing::Length(other) if other != length => {
                return Err(Malformed("two Content-Lengths that differ"));
            }
            Framing::Chunked => {}
            _ => self.framing = Framing::Length(length),
        }
        Ok(())
    }

    fn set_connection(&mut self, value: &[u8]) {
        for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"close") {
                self.keep_alive = false;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            }
        }
    }
}

fn transfer(value: &[u8]) -> Result<Framing, Malformed> {
    let last = value.split(|&byte| byte == b',').next_back().unwrap_or_default();
    if last.trim_ascii().eq_ignore_ascii_case(b"chunked") {
        return Ok(Framing::Chunked);
    }
    Err(Malformed("a Transfer-Encoding whose last coding is not chunked"))
}

fn name(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::Version => "a version that is not HTTP/1.0 or HTTP/1.1",
        httparse::Error::Status => "a status that is no number",
        httparse::Error::TooManyHeaders => "more than 100 header fields",
        httparse::Error::HeaderName => "a header name with a character that none has",
        httparse::Error::HeaderValue => "a header value with a character that none has",
        _ => "not HTTP/1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What comes of `bytes`, cut at `cuts`, and then of the end of the connection.
    fn parse_all(
        bytes: &[u8],
        cuts: &[usize],
        bodiless: bool,
    ) -> Result<(Vec<Answer>, Option<Answer>), Malformed> {
        let mut parser = Parser::new(bodiless);
        let mut answers = Vec::new();
        let mut from = 0;
        let ends = cuts.iter().map(|cut| cut % (bytes.len() + 1)).chain([bytes.len()]);
        let mut ends: Vec<usize> = ends.collect();
        ends.sort_unstable();
        for end in ends {
            let mut part = &bytes[from..end];
            while let Some(answer) = parser.feed(&mut part)? {
                answers.push(answer);
            }
            assert!(part.is_empty(), "everything is taken");
            from = end;
        }
        Ok((answers, parser.end()))
    }

    fn answer(status: u16, keep_alive: bool) -> Answer {
        Answer { status, keep_alive }
    }

    /// Purpose: where an answer ends, for each case of RFC 9112 §6.3, and whether the connection
    /// persists (§9.3).
    #[test]
    fn framing() {
        for (bytes, whole, at_end) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", Some(answer(200, true)), None),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Some(answer(200, true)), None),
            ("HTTP/1.1 204 No Content\r\n\r\n", Some(answer(204, true)), None),
            ("HTTP/1.1 304 \r\nContent-Length: 9\r\n\r\n", Some(answer(304, true)), None),
            ("HTTP/1.1 200 OK\r\n\r\nto the end", None, Some(answer(200, false))),
            ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", Some(answer(200, false)), None),
            (
                "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na",
                Some(answer(200, true)),
                None,
            ),
            (
                "HTTP/1.1 503 No\r\nconnection: x, Close\r\ncontent-length: 1\r\n\r\na",
                Some(answer(503, false)),
                None,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                 3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: r\r\n\r\n",
                Some(answer(200, true)),
                None,
            ),
            // Transfer-Encoding overrides Content-Length, in either order.
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                Some(answer(200, true)),
                None,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
                Some(answer(200, true)),
                None,
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
                 HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                Some(answer(200, true)),
                None,
            ),
            // Cut off.
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", None, None),
            ("HTTP/1.1 200 OK\r\nContent-", None, None),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", None, None),
        ] {
            let found = parse_all(bytes.as_bytes(), &[], false);
            assert_eq!(found, Ok((whole.into_iter().collect(), at_end)), "{bytes}");
        }
    }

    /// Purpose: what is no answer is refused, with a reason.
    #[test]
    fn malformed() {
        for bytes in [
            "SSH-2.0-OpenSSH_9.6\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "HTTP/1.1 099 No\r\n\r\n",
            "HTTP/1.1 600 No\r\n\r\n",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\na\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n",
        ] {
            assert!(parse_all(bytes.as_bytes(), &[], false).is_err(), "{bytes}");
        }
    }

    /// Purpose: each bound holds at n and n+1.
    #[test]
    fn bounds() {
        let head = |len: usize| {
            let frame = "HTTP/1.1 204 No\r\nA: \r\n\r\n".len();
            format!("HTTP/1.1 204 No\r\nA: {}\r\n\r\n", "x".repeat(len - frame))
        };
        // Only a head that has not ended can be too long: cut before its last byte.
        assert!(parse_all(head(HEAD_MAX).as_bytes(), &[HEAD_MAX - 1], false).is_ok());
        assert!(parse_all(head(HEAD_MAX + 2).as_bytes(), &[HEAD_MAX + 1], false).is_err());
        let headers = |count: usize| format!("HTTP/1.1 204 No\r\n{}\r\n", "A: b\r\n".repeat(count));
        assert!(parse_all(headers(HEADERS_MAX).as_bytes(), &[], false).is_ok());
        assert!(parse_all(headers(HEADERS_MAX + 1).as_bytes(), &[], false).is_err());
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0;";
        let endless = format!("{chunked}{}", "x".repeat(LINE_MAX));
        assert!(parse_all(endless.as_bytes(), &[], false).is_err());
    }

    /// Purpose: an answer to HEAD has no body, whatever it announces (RFC 9112 §6.3, rule 1).
    #[test]
    fn answers_to_head() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert_eq!(parse_all(&bytes.repeat(2), &[], true), Ok((vec![answer(200, true); 2], None)));
    }

    /// An answer with a body of that length, framed one way or the other, and what it must be read as.
    fn encoded() -> impl Strategy<Value = (Vec<u8>, Answer)> {
        let status = prop_oneof![Just(200_u16), Just(404), Just(503)];
        let chunks = prop::collection::vec(1..40_usize, 0..4);
        (status, any::<bool>(), chunks, any::<bool>()).prop_map(|(status, chunked, sizes, hint)| {
            let mut bytes = Vec::new();
            if hint {
                bytes.extend_from_slice(b"HTTP/1.1 103 Hints\r\n\r\n");
            }
            bytes.extend_from_slice(format!("HTTP/1.1 {status} Reason\r\nX: y\r\n").as_bytes());
            let body: usize = sizes.iter().sum();
            if chunked {
                bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                for size in sizes {
                    bytes.extend_from_slice(
                        format!("{size:x}\r\n{}\r\n", "\r".repeat(size)).as_bytes(),
                    );
                }
                bytes.extend_from_slice(b"0\r\n\r\n");
            } else {
                bytes.extend_from_slice(format!("Content-Length: {body}\r\n\r\n").as_bytes());
                bytes.extend(std::iter::repeat_n(b'\n', body));
            }
            (bytes, answer(status, true))
        })
    }

    proptest! {
        /// Purpose: pipelined answers are told apart wherever the bytes are cut.
        #[test]
        fn cuts_change_nothing(
            answers in prop::collection::vec(encoded(), 1..6),
            cuts in prop::collection::vec(any::<usize>(), 0..20),
        ) {
            let bytes: Vec<u8> = answers.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
            let expected: Vec<Answer> = answers.iter().map(|(_, answer)| *answer).collect();
            prop_assert_eq!(parse_all(&bytes, &cuts, false), Ok((expected, None)));
        }

        /// Purpose: no bytes make it panic, and a cut never changes what is found.
        #[test]
        fn garbage(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in any::<usize>()) {
            let mut noise = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            noise.extend(&bytes);
            for bytes in [bytes, noise] {
                let whole = parse_all(&bytes, &[], false);
                let cut = parse_all(&bytes, &[cut], false);
                prop_assert_eq!(whole.is_err(), cut.is_err());
            }
        }
    }
}
