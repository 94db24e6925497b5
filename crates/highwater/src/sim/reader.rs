//! Reads what a server says, by nothing but RFC 9112: it shares no line with the code under test.

/// An answer, complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// It ends the connection.
    pub(crate) closes: bool,
}

/// Reads answers as their bytes come.
pub(crate) struct Reader {
    /// Whether the nth request is a `HEAD`; further ones are not.
    head_only: Vec<bool>,
    rest: Vec<u8>,
    answers: Vec<Heard>,
    /// Before which answers an interim response came.
    interims: Vec<usize>,
    /// Everything behind a 101.
    raw: Option<Vec<u8>>,
}

enum Framing {
    None,
    Length(usize),
    Chunked,
    /// Until the connection ends.
    End,
}

struct Head {
    len: usize,
    status: u16,
    fields: Vec<(String, String)>,
    closes: bool,
    framing: Framing,
}

impl Reader {
    pub(crate) fn new(head_only: Vec<bool>) -> Self {
        Reader { head_only, rest: Vec::new(), answers: Vec::new(), interims: Vec::new(), raw: None }
    }

    /// The answers so far.
    pub(crate) fn answers(&self) -> &[Heard] {
        &self.answers
    }

    pub(crate) fn interims(&self) -> &[usize] {
        &self.interims
    }

    /// What came behind a 101, if one came.
    pub(crate) fn raw(&self) -> Option<&[u8]> {
        self.raw.as_deref()
    }

    /// Whether a part of an answer has come.
    pub(crate) fn is_inside(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Takes `bytes`.
    ///
    /// # Errors
    /// What there is, is not HTTP.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        if let Some(raw) = &mut self.raw {
            raw.extend_from_slice(bytes);
            return Ok(());
        }
        self.rest.extend_from_slice(bytes);
        while let Some(head) = self.head()? {
            let at = head.len;
            let body = match head.framing {
                Framing::None => Some((Vec::new(), at)),
                Framing::Length(length) => {
                    self.rest.get(at..at + length).map(|body| (body.to_vec(), at + length))
                }
                Framing::Chunked => chunks(&self.rest, at)?,
                Framing::End => None,
            };
            let Some((body, used)) = body else { return Ok(()) };
            self.rest.drain(..used);
            let Head { status, fields, closes, .. } = head;
            match status {
                100 => self.interims.push(self.answers.len()),
                101 => self.raw = Some(std::mem::take(&mut self.rest)),
                _ => {}
            }
            if status != 100 {
                self.answers.push(Heard { status, fields, body, closes });
            }
        }
        Ok(())
    }

    /// The connection has ended: content delimited by that is complete.
    ///
    /// # Errors
    /// As [`Reader::feed`].
    pub(crate) fn end(&mut self) -> Result<(), String> {
        if self.raw.is_none()
            && let Some(head) = self.head()?
            && let Framing::End = head.framing
        {
            let body = self.rest.split_off(head.len);
            self.rest.clear();
            let Head { status, fields, closes, .. } = head;
            self.answers.push(Heard { status, fields, body, closes });
        }
        Ok(())
    }

    fn head(&self) -> Result<Option<Head>, String> {
        if self.raw.is_some() {
            return Ok(None);
        }
        let Some(end) = self.rest.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&self.rest[..end]).map_err(|_| "the head is not text")?;
        let mut lines = text.split("\r\n");
        let line = lines.next().unwrap_or_default();
        let status = line.strip_prefix("HTTP/1.1 ").and_then(|line| line.get(..3));
        let status = status.and_then(|digits| digits.parse::<u16>().ok());
        let status = status.ok_or_else(|| format!("no status line: {line:?}"))?;
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in lines {
            let (name, value) =
                line.split_once(": ").ok_or_else(|| format!("no field: {line:?}"))?;
            let name = name.to_ascii_lowercase();
            let once = ["content-length", "transfer-encoding", "connection", "date"];
            if once.contains(&name.as_str()) && fields.iter().any(|(before, _)| *before == name) {
                return Err(format!("{name} twice"));
            }
            fields.push((name, value.into()));
        }
        let head_only = self.head_only.get(self.answers.len()).copied().unwrap_or_default();
        let closes = value(&fields, "connection") == Some("close");
        let framing = framing(status, &fields, head_only, closes)?;
        if status >= 200 && value(&fields, "date").is_none() {
            return Err("an answer without date".into());
        }
        Ok(Some(Head { len: end + 4, status, fields, closes, framing }))
    }
}

fn value<'f>(fields: &'f [(String, String)], name: &str) -> Option<&'f str> {
    fields.iter().find(|(existing, _)| existing == name).map(|(_, value)| value.as_str())
}

/// RFC 9112 §6.3.
fn framing(
    status: u16,
    fields: &[(String, String)],
    head_only: bool,
    closes: bool,
) -> Result<Framing, String> {
    let length = value(fields, "content-length");
    let length = length.map(|l| l.parse::<usize>().map_err(|_| format!("content-length: {l}")));
    let length = length.transpose()?;
    let chunked = value(fields, "transfer-encoding");
    if status < 200 || status == 204 {
        return match (length, chunked) {
            (None, None) => Ok(Framing::None),
            _ => Err(format!("a {status} with content")),
        };
    }
    // A head refused before it was complete was not known to be a `HEAD`: the refusal has content,
    // and ends the connection, so that nothing behind it can be taken for another answer.
    let unknown = closes && matches!(status, 400 | 408);
    match (chunked, length) {
        (Some(_), Some(_)) => Err("both content-length and transfer-encoding".into()),
        _ if status == 304 || (head_only && !unknown) => Ok(Framing::None),
        (Some("chunked"), None) => Ok(Framing::Chunked),
        (Some(other), None) => Err(format!("transfer-encoding: {other}")),
        (None, Some(length)) => Ok(Framing::Length(length)),
        (None, None) if closes => Ok(Framing::End),
        (None, None) => Err("no end of the content can be found".into()),
    }
}

/// The chunked content at `at`, and where it ends.
fn chunks(bytes: &[u8], mut at: usize) -> Result<Option<(Vec<u8>, usize)>, String> {
    let mut body = Vec::new();
    loop {
        let rest = &bytes[at..];
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
        let line = std::str::from_utf8(&rest[..end]).ok();
        let size = line.and_then(|line| usize::from_str_radix(line, 16).ok());
        let size = size.ok_or_else(|| format!("no chunk size: {}", rest[..end].escape_ascii()))?;
        let Some(chunk) = rest.get(end + 2..end + 2 + size + 2) else { return Ok(None) };
        if &chunk[size..] != b"\r\n" {
            return Err("a chunk has no line end".into());
        }
        body.extend(&chunk[..size]);
        at += end + 2 + size + 2;
        if size == 0 {
            return Ok(Some((body, at)));
        }
    }
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

    /// Purpose: answers of every framing are told apart, wherever their bytes are split.
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

    /// Purpose: what no client could make sense of is an error, never an answer.
    #[test]
    fn nonsense() {
        for bad in [
            &b"HTTP/1.1 200 OK\r\ndate: d\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\ndate: d\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ndate: d\r\ndate: d\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ndate: d\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\n\r\n",
            b"okHTTP/1.1 200 OK\r\ndate: d\r\ncontent-length: 0\r\n\r\n",
        ] {
            assert!(read(bad, bad.len()).is_err(), "{}", bad.escape_ascii());
        }
    }
}
