//! Is an answer the one that was expected? Status, fields and body, checked while the bytes arrive.
//!
//! Only the last bytes of an answer are kept, as many as the searched text has.

use highwater_core::http1::client::Head;
use memchr::memmem::Finder;

/// Bytes of the text that is looked for, or of the whole body, at most.
pub(crate) const EXPECT_MAX: usize = 1024 * 1024;

/// What an answer must be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expect {
    pub(crate) status: Option<u16>,
    /// Fields that must be there with this value.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Option<Body>,
}

/// What a body must be.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// These bytes.
    Whole(Vec<u8>),
    /// These bytes are somewhere in it.
    Part(Box<Finder<'static>>),
}

impl Body {
    pub(crate) fn part(text: &str) -> Body {
        Body::Part(Box::new(Finder::new(text).into_owned()))
    }
}

impl Expect {
    /// Whether nothing is expected.
    pub(crate) fn is_empty(&self) -> bool {
        self.status.is_none() && self.headers.is_empty() && self.body.is_none()
    }
}

/// The check of one answer, as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct Check {
    wrong: Option<String>,
    /// Bytes of the body so far.
    len: usize,
    /// The text was found.
    found: bool,
    /// The last bytes, in which the text may begin.
    tail: Vec<u8>,
    /// Names and values of an answer whose fields come one by one.
    fields: Option<Vec<(String, Vec<u8>)>>,
}

impl Check {
    /// An answer begins.
    pub(crate) fn head(&mut self, expect: &Expect, head: &Head<'_>) {
        self.status(expect, head.status());
        self.fields = None;
        let mut wanted = expect.headers.iter();
        let wrong = wanted.find_map(|(name, value)| field(&mut head.fields().iter(), name, value));
        self.wrong = self.wrong.take().or(wrong);
    }

    /// An answer begins, whose fields come one by one.
    pub(crate) fn status(&mut self, expect: &Expect, status: u16) {
        let wrong = expect.status.filter(|expected| *expected != status);
        self.wrong = wrong.map(|expected| format!("status {status}, expected {expected}"));
        (self.len, self.found) = (0, false);
        self.tail.clear();
        self.fields = (!expect.headers.is_empty()).then(Vec::new);
    }

    /// One of its fields.
    pub(crate) fn field(&mut self, name: &[u8], value: &[u8]) {
        if let Some(fields) = &mut self.fields {
            fields.push((String::from_utf8_lossy(name).into_owned(), value.to_vec()));
        }
    }

    /// A piece of its body.
    pub(crate) fn content(&mut self, expect: &Expect, piece: &[u8]) {
        let from = self.len;
        self.len += piece.len();
        match &expect.body {
            Some(Body::Whole(whole)) if self.wrong.is_none() => {
                let expected = whole.get(from..).unwrap_or_default();
                let same = piece.iter().zip(expected).take_while(|(a, b)| a == b).count();
                if same < piece.len() {
                    let at = from + same;
                    self.wrong = Some(format!("body differs from byte {at} on"));
                }
            }
            Some(Body::Part(finder)) if !self.found => self.look(finder, piece),
            _ => {}
        }
    }

    fn look(&mut self, finder: &Finder<'_>, piece: &[u8]) {
        // Only the last bytes before this piece, one less than the text has, can be part of it.
        let before = finder.needle().len() - 1;
        let across = self.tail.len();
        self.tail.extend_from_slice(&piece[..piece.len().min(before)]);
        self.found = finder.find(&self.tail).is_some() || finder.find(piece).is_some();
        if piece.len() >= before {
            self.tail.clear();
            self.tail.extend_from_slice(&piece[piece.len() - before..]);
        } else {
            debug_assert_eq!(self.tail.len(), across + piece.len());
            self.tail.drain(..self.tail.len().saturating_sub(before));
        }
    }

    /// The answer has ended. What was wrong with it, if anything was.
    pub(crate) fn end(&mut self, expect: &Expect) -> Option<String> {
        if self.wrong.is_some() {
            return self.wrong.take();
        }
        if let Some(fields) = self.fields.take() {
            let each = || fields.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
            let mut wanted = expect.headers.iter();
            let wrong = wanted.find_map(|(name, value)| field(&mut each(), name, value));
            if wrong.is_some() {
                return wrong;
            }
        }
        match &expect.body {
            Some(Body::Whole(whole)) if whole.len() != self.len => {
                Some(format!("body has {} bytes, expected {}", self.len, whole.len()))
            }
            Some(Body::Part(finder)) if !self.found => {
                let text: String =
                    String::from_utf8_lossy(finder.needle()).chars().take(40).collect();
                Some(format!("no {text:?} in a body of {} bytes", self.len))
            }
            _ => None,
        }
    }
}

fn field<'a>(
    fields: &mut dyn Iterator<Item = (&'a str, &'a [u8])>,
    name: &str,
    value: &str,
) -> Option<String> {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().take(60).collect::<String>();
    let mut values = fields.filter(|(found, _)| found.eq_ignore_ascii_case(name));
    match values.next() {
        None => Some(format!("no field {name}, expected {value:?}")),
        Some((_, found)) if found == value.as_bytes() => None,
        Some((_, found)) => match values.any(|(_, found)| found == value.as_bytes()) {
            true => None,
            false => Some(format!("{name} is {:?}, expected {value:?}", shown(found))),
        },
    }
}

#[cfg(test)]
mod tests {
    use highwater_core::http1::client::{Asked, Next, Reader};
    use proptest::prelude::*;

    use super::*;

    /// What is wrong with `body` as a whole answer that arrives in pieces of `step` bytes.
    fn judged(expect: &Expect, head: &str, body: &[u8], step: usize) -> Option<String> {
        let text = format!("{head}Content-Length: {}\r\n\r\n", body.len());
        let bytes = [text.as_bytes(), body].concat();
        let (mut reader, mut check) = (Reader::default(), Check::default());
        for piece in bytes.chunks(step.max(1)) {
            let mut piece = piece;
            loop {
                match reader.next(&mut piece, Asked::Plain).expect("a valid answer") {
                    Next::Wait => break,
                    Next::Head(head) => check.head(expect, &head),
                    Next::Content(piece) => check.content(expect, piece),
                    Next::End(..) => return check.end(expect),
                    Next::Interim(_) | Next::Raw(_) => {}
                }
            }
        }
        panic!("the answer has an end");
    }

    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nVary: a\r\nvary: b\r\n";

    /// Purpose: each kind of difference is found, and named with what was expected; what is as expected passes.
    #[test]
    fn differences() {
        let whole = |text: &str| Some(Body::Whole(text.into()));
        let expect = |status, headers: &[(&str, &str)], body| Expect {
            status,
            headers: headers.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
            body,
        };
        let type_ = ("content-type", "text/plain");
        for (expect, wrong) in [
            (expect(Some(200), &[type_, ("Vary", "b")], whole("hello")), None),
            (expect(None, &[], Some(Body::part("ell"))), None),
            (expect(Some(404), &[], None), Some("status 200, expected 404")),
            (expect(None, &[("Age", "1")], None), Some("no field Age, expected \"1\"")),
            (expect(None, &[("vary", "c")], None), Some("vary is \"a\", expected \"c\"")),
            (expect(None, &[], whole("help!")), Some("body differs from byte 3 on")),
            (expect(None, &[], whole("hell")), Some("body differs from byte 4 on")),
            (expect(None, &[], whole("hello!")), Some("body has 5 bytes, expected 6")),
            (expect(None, &[], Some(Body::part("elo"))), Some("no \"elo\" in a body of 5 bytes")),
        ] {
            for step in [1, 2, 1000] {
                assert_eq!(judged(&expect, HEAD, b"hello", step).as_deref(), wrong);
            }
        }
    }

    proptest! {
        /// Purpose: a text is found exactly if it is in the body, wherever the body is cut into pieces.
        #[test]
        fn text_across_pieces(body in "[ab]{0,40}", text in "[ab]{1,5}", step in 1..9_usize) {
            let expect = Expect { body: Some(Body::part(&text)), ..Expect::default() };
            let found = judged(&expect, HEAD, body.as_bytes(), step).is_none();
            prop_assert_eq!(found, body.contains(&text));
        }
    }
}
