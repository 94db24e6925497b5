//! Properties of the response reader for any input: no panic, the same result however bytes are split, every
//! response of our own encoder read as intended, and never laxer than `httparse`, an independent parser.

mod common;

use common::{DATE, Peer, Seen};
use highwater_core::http::FieldWriter;
use highwater_core::http::Payload;
use highwater_core::http1::client::{
    Asked, Content, End, Eof, FieldLines, Head, Limits, Malformed, Next, Reader,
};
use highwater_core::time::Instant;
use proptest::collection::vec;
use proptest::prelude::*;

const NOW: Instant = Instant::ZERO;

/// A response as it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Response {
    status: u16,
    fields: Vec<(String, Vec<u8>)>,
    content: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
    /// It has ended, and the connection persists or not.
    keep_alive: Option<bool>,
}

/// The result of reading a connection.
#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    responses: Vec<Response>,
    interims: Vec<u16>,
    raw: Vec<u8>,
    eof: Option<Eof>,
    malformed: Option<Malformed>,
}

fn owned(fields: FieldLines<'_>) -> Vec<(String, Vec<u8>)> {
    fields.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

impl Run {
    fn of(bytes: &[u8], cuts: &[usize], limits: Limits, asked: impl Fn(usize) -> Asked) -> Run {
        let mut run = Run::default();
        let mut reader = Reader::new(limits);
        for mut piece in pieces(bytes, cuts) {
            while let Some(going_on) = run.step(&mut reader, &mut piece, &asked) {
                if !going_on {
                    return run;
                }
            }
            assert!(piece.is_empty(), "everything is taken");
        }
        let eof = reader.on_eof();
        if let (Eof::End(end), Some(last)) = (eof, run.responses.last_mut()) {
            last.keep_alive = Some(end.keep_alive);
        }
        run.eof = Some(eof);
        run
    }

    /// `None`: more is needed. False: there is no more to be had.
    fn step(
        &mut self,
        reader: &mut Reader,
        piece: &mut &[u8],
        asked: impl Fn(usize) -> Asked,
    ) -> Option<bool> {
        let ended = self.responses.iter().filter(|r| r.keep_alive.is_some()).count();
        match reader.next(piece, asked(ended)) {
            Ok(Next::Wait) => return None,
            Ok(Next::Interim(head)) => self.interims.push(head.status()),
            Ok(Next::Head(head)) => {
                let fields = owned(head.fields());
                self.responses.push(Response {
                    status: head.status(),
                    fields,
                    ..Response::default()
                });
            }
            Ok(Next::Content(content)) => self.last().content.extend_from_slice(content),
            Ok(Next::Raw(bytes)) => self.raw.extend_from_slice(bytes),
            Ok(Next::End(End { status, keep_alive }, trailers)) => {
                let last = self.last();
                assert_eq!((last.status, last.keep_alive), (status, None));
                last.keep_alive = Some(keep_alive);
                last.trailers = owned(trailers);
            }
            Err(malformed) => {
                self.malformed = Some(malformed);
                return Some(false);
            }
        }
        Some(true)
    }

    fn last(&mut self) -> &mut Response {
        self.responses.last_mut().expect("a head comes first")
    }
}

/// `bytes`, cut at `cuts`.
fn pieces<'b>(bytes: &'b [u8], cuts: &[usize]) -> Vec<&'b [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut from = 0;
    let piece = |end| &bytes[std::mem::replace(&mut from, end)..end];
    ends.into_iter().map(piece).collect()
}

/// The result of counting: the same ends.
fn skipped(bytes: &[u8], cuts: &[usize], limits: Limits) -> (Vec<End>, Option<Malformed>) {
    let (mut reader, mut ends) = (Reader::new(limits), Vec::new());
    for mut piece in pieces(bytes, cuts) {
        loop {
            match reader.skip(&mut piece, Asked::Plain) {
                Ok(None) => break,
                Ok(Some(end)) => ends.push(end),
                Err(malformed) => return (ends, Some(malformed)),
            }
        }
    }
    if let Eof::End(end) = reader.on_eof() {
        ends.push(end);
    }
    (ends, None)
}

/// A handler's answer, and the request for it.
#[derive(Clone, Debug)]
struct Exchange {
    head_only: bool,
    status: u16,
    content: Vec<Vec<u8>>,
    framing: Framing,
    field: String,
    continues: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Whole,
    Announced,
    Chunked { trailers: bool },
}

fn exchange() -> impl Strategy<Value = Exchange> {
    let framing = prop_oneof![
        Just(Framing::Whole),
        Just(Framing::Announced),
        Just(Framing::Chunked { trailers: false }),
        Just(Framing::Chunked { trailers: true }),
    ];
    let status = prop_oneof![4 => Just(200u16), 1 => Just(204), 1 => Just(304), 3 => 206..599u16];
    let content = vec(vec(any::<u8>(), 1..300), 0..4);
    (any::<bool>(), status, content, framing, "[!-~]([ !-~]{0,40}[!-~])?", any::<bool>()).prop_map(
        |(head_only, status, content, framing, field, continues)| Exchange {
            head_only,
            status,
            content,
            framing,
            field,
            continues,
        },
    )
}

impl Exchange {
    /// Makes a connection answer; appends its output to `wire`, and returns the expected reading.
    fn answer(&self, peer: &mut Peer, wire: &mut Vec<u8>) -> Response {
        let method = if self.head_only { "HEAD" } else { "POST" };
        let expect = if self.continues { "Expect: 100-continue\r\n" } else { "" };
        let head = format!("{method} /s HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n{expect}\r\n");
        assert!(matches!(peer.next(NOW, &head), Seen::Request(..)));
        peer.connection.send_continue(&mut peer.link, NOW);
        assert!(matches!(peer.next(NOW, "x"), Seen::Body(_)));
        assert_eq!(peer.next(NOW, ""), Seen::BodyEnd);
        let content = self.content.concat();
        let payload = match self.framing {
            Framing::Whole => Payload::Bytes(&content),
            Framing::Announced => Payload::Stream(Some(content.len() as u64)),
            Framing::Chunked { .. } => Payload::Stream(None),
        };
        let limits = peer.limits.clone();
        let fields = |fields: &mut highwater_core::http1::FieldEncoder<'_>| {
            fields.push("x-field", self.field.as_bytes());
        };
        let streams = peer.connection.respond(
            &mut peer.link,
            self.status,
            DATE,
            &limits,
            NOW,
            fields,
            payload,
        );
        let mut trailers = Vec::new();
        if streams {
            for piece in &self.content {
                peer.connection
                    .push_body(&mut peer.link, piece)
                    .expect("as long as it was announced");
            }
            let ends = self.framing == Framing::Chunked { trailers: true };
            if ends {
                trailers.push(("x-after".to_owned(), self.field.clone().into_bytes()));
            }
            let write = |fields: &mut highwater_core::http1::FieldEncoder<'_>| {
                for (name, value) in &trailers {
                    fields.push(name, value);
                }
            };
            peer.connection
                .finish_body_with(&mut peer.link, &limits, NOW, write)
                .expect("as long as announced");
        }
        while let Some((output, _)) = peer.link.take_output(NOW) {
            wire.extend_from_slice(&output.bytes);
            wire.extend_from_slice(&output.tail);
            peer.link.on_sent(NOW);
        }
        let none = self.head_only || matches!(self.status, 204 | 205 | 304);
        Response {
            status: self.status,
            fields: Vec::new(),
            content: if none { Vec::new() } else { content },
            trailers,
            keep_alive: Some(true),
        }
    }
}

proptest! {
    /// Purpose: the output of our own encoder is read as intended, wherever it is cut.
    #[test]
    fn round_trip(exchanges in vec(exchange(), 1..5), cuts in vec(any::<usize>(), 0..20)) {
        let (mut peer, mut wire) = (Peer::new(), Vec::new());
        let expected: Vec<Response> =
            exchanges.iter().map(|exchange| exchange.answer(&mut peer, &mut wire)).collect();
        let asked = |at: usize| match exchanges.get(at) {
            Some(Exchange { head_only: true, .. }) => Asked::Head,
            _ => Asked::Plain,
        };
        let mut run = Run::of(&wire, &cuts, Limits::default(), asked);
        prop_assert_eq!((run.malformed, run.eof), (None, Some(Eof::Clean)));
        let continued = exchanges.iter().filter(|exchange| exchange.continues).count();
        prop_assert_eq!(run.interims, vec![100; continued]);
        for (response, exchange) in run.responses.iter_mut().zip(&exchanges) {
            let fields = std::mem::take(&mut response.fields);
            let value = |wanted: &str| {
                let mut fields = fields.iter().filter(|(name, _)| name == wanted);
                fields.next().map(|(_, value)| value.clone())
            };
            prop_assert_eq!(value("x-field"), Some(exchange.field.clone().into_bytes()));
            prop_assert_eq!(value("date"), Some(DATE.to_vec()));
        }
        prop_assert_eq!(run.responses, expected);
    }

    /// Purpose: no bytes make it panic, and a cut never changes the result; counting agrees.
    #[test]
    fn any_bytes(
        noise in vec(any::<u8>(), 0..200),
        begin in 0..BEGINNINGS.len(),
        cuts in vec(any::<usize>(), 0..12),
        tight in any::<bool>(),
    ) {
        check_cuts(&[BEGINNINGS[begin].as_bytes(), &noise].concat(), &cuts, tight)?;
    }

    /// Purpose: the same for bytes that are nearly valid.
    #[test]
    fn nearly_right(
        parts in vec(0..PARTS.len(), 0..24),
        cuts in vec(any::<usize>(), 0..12),
        tight in any::<bool>(),
    ) {
        let bytes: String = parts.iter().map(|&part| PARTS[part]).collect();
        check_cuts(bytes.as_bytes(), &cuts, tight)?;
        compare_with_httparse(bytes.as_bytes())?;
    }

    /// Purpose: an accepted head means the same to an independent parser.
    #[test]
    fn never_laxer_than_httparse(
        fields in vec("[!-~ \t\u{e9}]{0,24}", 0..6),
        reason in "[ -~\t]{0,10}",
    ) {
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        compare_with_httparse(format!("HTTP/1.1 200 {reason}\r\n{fields}\r\n").as_bytes())?;
    }
}

const BEGINNINGS: [&str; 5] = [
    "",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n",
    "HTTP/1.1 204 No\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n",
];

const PARTS: [&str; 24] = [
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.0 404 \r\n",
    "HTTP/1.1 100\r\n",
    "HTTP/1.1 204 No\r\n\r\n",
    "HTTP/1.1 304 \r\n",
    "Content-Length: 3\r\n",
    "Content-Length: 7\r\n",
    "Content-Length: 0\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive\r\n",
    "A: b\r\n",
    "x-long-name_1: a value of some length, with \t in it\r\n",
    "\r\n",
    "\r\n",
    "\r\n",
    "3\r\nabc\r\n",
    "0\r\n",
    "7;x=\"y\"\r\n1234567\r\n",
    "abc",
    "\n",
    " ",
    ":",
    "\r",
];

fn check_cuts(bytes: &[u8], cuts: &[usize], tight: bool) -> Result<(), TestCaseError> {
    let tightest = Limits { head_max: 60, fields_max: 2, interims_max: 1 };
    let limits = if tight { tightest } else { Limits::default() };
    let whole = Run::of(bytes, &[], limits, |_| Asked::Plain);
    let each: Vec<usize> = (0..bytes.len()).collect();
    prop_assert_eq!(&Run::of(bytes, cuts, limits, |_| Asked::Plain), &whole);
    prop_assert_eq!(&Run::of(bytes, &each, limits, |_| Asked::Plain), &whole);
    let (ends, malformed) = skipped(bytes, cuts, limits);
    let all = whole.responses.iter().filter_map(|response| {
        Some(End { status: response.status, keep_alive: response.keep_alive? })
    });
    prop_assert_eq!((ends, malformed), (all.collect(), whole.malformed));
    Ok(())
}

/// Compares the first head in `bytes`, if we accept it, with httparse's result.
fn compare_with_httparse(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut reader = Reader::default();
    let mut input = bytes;
    let head: Head<'_> = match reader.next(&mut input, Asked::Plain) {
        Ok(Next::Head(head) | Next::Interim(head)) => head,
        _ => return Ok(()),
    };
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut theirs = httparse::Response::new(&mut fields);
    let parsed = theirs.parse(bytes);
    let len = head.bytes().len();
    prop_assert_eq!(parsed, Ok(httparse::Status::Complete(len)), "{}", bytes.escape_ascii());
    prop_assert_eq!(theirs.code, Some(head.status()));
    // It keeps the white space after a value, which is not part of it.
    let theirs: Vec<_> = theirs
        .headers
        .iter()
        .map(|field| (field.name.into(), field.value.trim_ascii().into()))
        .collect();
    prop_assert_eq!(owned(head.fields()), theirs);
    prop_assert_ne!(head.content(), Content::Raw);
    Ok(())
}
