//! Reads a server's answers, and checks more than RFC 9112 requires of a server.
//!
//! **Why the simulator can rely on it.** The code under test is that by which the worker frames requests and
//! encodes responses (`core::http1` except its `client`). Responses are read by `core::http1::client`, which
//! shares with that code two tables of characters and the name of a version, and nothing that decides where a
//! message begins, how its content is delimited, or whether the connection persists: it has its own grammar
//! of heads, its own rules of framing and its own chunks, and is checked against RFC 9112, `httparse` and
//! itself cut anywhere, not against the encoder alone. So an error on the server's side is not hidden by the
//! same error here. The requests are known from the script, never from the server.
//!
//! In addition, this module checks requirements that a client may not make, but that our own server must
//! meet: framing and date at most once, no framing where there is no content, no content that only the
//! connection's end delimits unless that was announced, no interim response but 100, and a date in every
//! final one.

use highwater_core::http1::client::{
    Asked, Content, Eof, FieldLines, Head, Malformed, Next, Reader as ResponseReader,
};

/// An answer, complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceivedAnswer {
    pub(crate) status: u16,
    /// Names in lower case; values may be any bytes (RFC 9110 §5.5).
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
    /// The trailers, in the form of the fields.
    pub(crate) trailers: Vec<(String, Vec<u8>)>,
    /// It ends the connection.
    pub(crate) closes: bool,
}

/// Reads answers as their bytes come.
pub(crate) struct Reader {
    /// Whether the nth request is a `HEAD`; further ones are not.
    head_only: Vec<bool>,
    reader: ResponseReader,
    /// The answer whose head has come.
    begun: ReceivedAnswer,
    answers: Vec<ReceivedAnswer>,
    /// Before which answers an interim response came.
    interims: Vec<usize>,
    /// All bytes after a 101.
    raw: Option<Vec<u8>>,
}

impl Reader {
    pub(crate) fn new(head_only: Vec<bool>) -> Self {
        Reader {
            head_only,
            reader: ResponseReader::default(),
            begun: ReceivedAnswer::default(),
            answers: Vec::new(),
            interims: Vec::new(),
            raw: None,
        }
    }

    /// The answers so far.
    pub(crate) fn answers(&self) -> &[ReceivedAnswer] {
        &self.answers
    }

    pub(crate) fn interims(&self) -> &[usize] {
        &self.interims
    }

    /// The bytes after a 101, if one came.
    pub(crate) fn raw(&self) -> Option<&[u8]> {
        self.raw.as_deref()
    }

    /// Whether a part of an answer has come.
    pub(crate) fn is_inside(&self) -> bool {
        self.raw.is_none() && !self.reader.is_between()
    }

    /// Takes `bytes`.
    ///
    /// # Errors
    /// The bytes are not HTTP.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        let malformed = |malformed: Malformed| malformed.reason().to_owned();
        loop {
            let head_only = self.head_only.get(self.answers.len()).copied().unwrap_or_default();
            // Only the oracle knows whether a request offers another protocol.
            let asked = if head_only { Asked::Head } else { Asked::Upgrade };
            // Where a head is complete, its reader may have to be told otherwise.
            let before = head_only.then(|| (self.reader.clone(), bytes));
            match self.reader.next(&mut bytes, asked).map_err(malformed)? {
                Next::Wait => return Ok(()),
                Next::Interim(head) if head.status() == 100 => {
                    check(&head, &owned(head.fields()))?;
                    self.interims.push(self.answers.len());
                }
                Next::Interim(head) => return Err(format!("interim response {}", head.status())),
                Next::Head(head) => {
                    let answer = begin(&head)?;
                    // A head refused before it was complete was not known to be a `HEAD`: the refusal has
                    // content, and ends the connection, so that nothing behind it can be taken for another
                    // answer.
                    let unknown = answer.closes && matches!(answer.status, 400 | 408);
                    let is_raw = head.content() == Content::Raw;
                    if let Some((reader, rest)) = before.filter(|_| unknown) {
                        (self.reader, bytes) = (reader, rest);
                        self.reader.next(&mut bytes, Asked::Plain).map_err(malformed)?;
                    }
                    if is_raw {
                        self.answers.push(answer);
                        self.raw = Some(Vec::new());
                    } else {
                        self.begun = answer;
                    }
                }
                Next::Content(piece) => self.begun.body.extend_from_slice(piece),
                Next::End(_, trailers) => {
                    self.begun.trailers = owned(trailers);
                    self.answers.push(std::mem::take(&mut self.begun));
                }
                Next::Raw(piece) => self.raw.get_or_insert_default().extend_from_slice(piece),
            }
        }
    }

    /// The connection has ended: content delimited by that is complete.
    ///
    /// # Errors
    /// Those of [`Reader::feed`].
    pub(crate) fn end(&mut self) -> Result<(), String> {
        if let Eof::End(_) = self.reader.on_eof() {
            self.answers.push(std::mem::take(&mut self.begun));
        }
        Ok(())
    }
}

/// The beginning of the answer that has this head.
fn begin(head: &Head<'_>) -> Result<ReceivedAnswer, String> {
    let fields = owned(head.fields());
    check(head, &fields)?;
    let closes = value(&fields, "connection") == Some(b"close");
    if head.content() == Content::UntilClose && !closes {
        return Err("no end of the content can be found".into());
    }
    Ok(ReceivedAnswer { status: head.status(), fields, closes, ..ReceivedAnswer::default() })
}

fn owned(fields: FieldLines<'_>) -> Vec<(String, Vec<u8>)> {
    fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.to_vec())).collect()
}

/// Requirements that a client may not make of a server.
fn check(head: &Head<'_>, fields: &[(String, Vec<u8>)]) -> Result<(), String> {
    let status = head.status();
    if !head.bytes().starts_with(b"HTTP/1.1 ") {
        return Err(format!("{status} in {:?}", head.version()));
    }
    for once in ["content-length", "transfer-encoding", "connection", "date"] {
        if fields.iter().filter(|(name, _)| name == once).count() > 1 {
            return Err(format!("{once} twice"));
        }
    }
    let framed = ["content-length", "transfer-encoding"];
    if (status < 200 || status == 204) && framed.iter().any(|name| value(fields, name).is_some()) {
        return Err(format!("a {status} with content"));
    }
    if status >= 200 && value(fields, "date").is_none() {
        return Err("an answer without date".into());
    }
    Ok(())
}

fn value<'f>(fields: &'f [(String, Vec<u8>)], name: &str) -> Option<&'f [u8]> {
    fields.iter().find(|(existing, _)| existing == name).map(|(_, value)| value.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], step: usize) -> Result<Reader, String> {
        let mut reader = Reader::new(vec![false, true]);
        bytes.chunks(step).try_for_each(|piece| reader.feed(piece))?;
        reader.end()?;
        Ok(reader)
    }

    /// Purpose: answers of every framing are distinguished, wherever their bytes are split.
    #[test]
    fn framings() {
        let wire = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ndate: d\r\n\
            content-length: 2\r\n\r\nokHTTP/1.1 200 OK\r\ndate: d\r\ncontent-length: 9\r\n\r\n\
            HTTP/1.1 200 OK\r\ndate: d\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
            HTTP/1.1 200 OK\r\ndate: d\r\nconnection: close\r\n\r\nall that comes";
        for step in 1..wire.len() {
            let reader = read(wire, step).unwrap();
            let bodies: Vec<&[u8]> = reader.answers().iter().map(|a| a.body.as_slice()).collect();
            assert_eq!(bodies, [&b"ok"[..], b"", b"abc", b"all that comes"], "step {step}");
            assert_eq!(reader.interims(), [0]);
            assert!(!reader.is_inside());
        }
    }

    /// Purpose: bytes after a 101 are not an answer, a refusal of a `HEAD` that was not understood has
    /// content, and trailers are not content.
    #[test]
    fn exceptions() {
        let refusal =
            b"HTTP/1.1 204 No Content\r\ndate: d\r\n\r\nHTTP/1.1 400 Bad Request\r\ndate: d\r\n\
            content-length: 2\r\nconnection: close\r\n\r\nno";
        let answers = [
            &b"HTTP/1.1 200 OK\r\ndate: d\r\ntransfer-encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n"[..],
            b"HTTP/1.1 405 No\r\ndate: d\r\ncontent-length: 2\r\n\r\n",
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        ];
        let switch = [answers.concat().as_slice(), b"HTTP/1.1 x"].concat();
        for step in 1..switch.len() {
            let refused = read(refusal, step).unwrap();
            assert_eq!(
                (refused.answers()[1].body.as_slice(), refused.is_inside()),
                (&b"no"[..], false)
            );
            let switched = read(&switch, step).unwrap();
            let statuses: Vec<u16> =
                switched.answers().iter().map(|answer| answer.status).collect();
            assert_eq!((statuses, switched.raw()), (vec![200, 405, 101], Some(&b"HTTP/1.1 x"[..])));
            assert_eq!(switched.answers()[0].trailers, [("a".to_owned(), b"b".to_vec())]);
            assert!(!switched.is_inside());
        }
        let ends: Vec<usize> = (1..4).map(|count| answers[..count].concat().len()).collect();
        for cut in 1..switch.len() {
            let inside = cut < ends[2] && !ends.contains(&cut);
            assert_eq!(read(&switch[..cut], cut).unwrap().is_inside(), inside, "{cut}");
        }
    }

    /// Purpose: bytes that no client could make sense of are an error, never an answer.
    #[test]
    fn nonsense() {
        for bad in [
            &b"HTTP/1.1 200 OK\r\ndate: d\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\ndate: d\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ndate: d\r\ndate: d\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ndate: d\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\n\r\n",
            b"HTTP/1.0 200 OK\r\ndate: d\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 103 Early Hints\r\n\r\n",
            b"HTTP/1.1 100 Continue\r\ncontent-length: 0\r\n\r\n",
            b"okHTTP/1.1 200 OK\r\ndate: d\r\ncontent-length: 0\r\n\r\n",
        ] {
            assert!(read(bad, bad.len()).is_err(), "{}", bad.escape_ascii());
        }
    }
}
