//! Properties for any input: no panic, the same result however it is split, every valid request
//! accepted and echoed, and never laxer than `httparse`, an independent parser.

mod common;

use common::DATE;
use highwater_core::driver::Then;
use highwater_core::http::{BodyPlan, Head, Limits, OwnedHead, Payload};
use highwater_core::http1::{Connection, Next, Scratch};
use highwater_core::link::Link;
use highwater_core::time::Instant;
use proptest::collection::vec;
use proptest::prelude::*;

const NOW: Instant = Instant::ZERO;

/// Everything that the application and the peer received.
#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    requests: Vec<Asked>,
    received: String,
    closed: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    method: String,
    target: String,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    trailers: Vec<(String, Vec<u8>)>,
    complete: bool,
}

/// Serves `pieces` and then the end of input; bodies are streamed where the path has an even length.
fn run(pieces: &[&[u8]], limits: &Limits) -> Run {
    let mut run = Run::default();
    let (mut link, mut connection) = (Link::new(), Connection::new(NOW));
    let mut scratch = Scratch::default();
    for piece in pieces.iter().map(Some).chain([None]) {
        let mut carry = link.take_carry();
        match piece {
            Some(piece) => carry.extend_from_slice(piece),
            None => link.on_eof(),
        }
        let mut input = carry.as_slice();
        loop {
            if serve((&mut link, &mut connection), &mut input, &mut scratch, limits, &mut run) {
                continue;
            }
            // Input held back by the bound on output continues once the output is taken.
            if !flush(&mut link, &mut run) {
                break;
            }
        }
        let rest_len = input.len();
        link.stash_owned(carry, rest_len);
        flush(&mut link, &mut run);
    }
    assert!(run.closed, "the end of input ends the connection");
    run
}

/// A copy of a head must agree with the head.
fn assert_copies_alike(head: &Head<'_>) {
    let copy = OwnedHead::copy(head);
    let copy = copy.head();
    assert_eq!(format!("{copy:?}"), format!("{head:?}")); // Method, target, version, fields.
    assert_eq!(copy.method(), head.method());
    assert_eq!(copy.path_bytes(), head.path_bytes());
    assert_eq!(copy.query(), head.query());
    assert_eq!(copy.authority(), head.authority());
    assert_eq!(copy.names_deadline(), head.names_deadline());
    assert_eq!(copy.asks_upgrade(), head.asks_upgrade());
    assert_eq!(copy.is_extended_connect(), head.is_extended_connect());
}

/// Serves the next thing; returns whether there was one.
fn serve(
    (link, connection): (&mut Link, &mut Connection),
    input: &mut &[u8],
    scratch: &mut Scratch,
    limits: &Limits,
    run: &mut Run,
) -> bool {
    let next = connection.next(link, input, scratch, limits, NOW, |head| {
        if head.path().len() % 2 == 0 {
            BodyPlan::Streamed(limits.body_max)
        } else {
            BodyPlan::Whole(limits.body_max)
        }
    });
    let (status, content) = match next {
        Next::Wait => return false,
        Next::Request(request) => {
            let fields = request.head.headers().iter();
            assert_copies_alike(&request.head);
            run.requests.push(Asked {
                method: request.head.method_token().into(),
                target: request.head.target().into(),
                fields: fields.map(|(name, value)| (name.into(), value.into())).collect(),
                ..Asked::default()
            });
            let Some(body) = request.body.whole() else {
                return true;
            };
            complete(run, body);
            (200, "ok")
        }
        Next::Body(piece) => {
            let asked = run.requests.last_mut().expect("a body has its request");
            asked.body.extend_from_slice(piece);
            return true;
        }
        Next::Trailers(fields) => {
            let asked = run.requests.last_mut().expect("trailers have their request");
            assert!(asked.trailers.is_empty() && !fields.is_empty());
            asked.trailers.extend(fields.iter().map(|(name, value)| (name.into(), value.into())));
            return true;
        }
        Next::BodyEnd => {
            complete(run, b"");
            (200, "ok")
        }
        Next::BodyFailed(reject) | Next::Reject(reject) => (reject.status(), reject.reason()),
        Next::Raw(_) | Next::RawEnd => panic!("nothing was upgraded"),
    };
    connection.respond(link, status, DATE, limits, NOW, |_| {}, Payload::Bytes(content.as_bytes()));
    true
}

fn complete(run: &mut Run, body: &[u8]) {
    let asked = run.requests.last_mut().expect("a body has its request");
    asked.body.extend_from_slice(body);
    asked.complete = true;
}

fn flush(link: &mut Link, run: &mut Run) -> bool {
    if run.closed {
        return false;
    }
    let Some((output, then)) = link.take_output(NOW) else {
        return false;
    };
    link.on_sent(NOW);
    assert!(output.tail.is_empty());
    run.received.push_str(&String::from_utf8_lossy(&output.bytes));
    run.received = run.received.replace("HTTP/1.1 100 Continue\r\n\r\n", "");
    run.closed = then != Then::Keep;
    true
}

fn whole(bytes: &[u8]) -> Run {
    run(&[bytes], &Limits::default())
}

/// Pieces of requests, valid and invalid, that random bytes alone would not contain.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "GET / HTTP/1.1\r\n",
        "POST / HTTP/1.1\r\n",
        "POST /s HTTP/1.1\r\n",
        "HEAD /s HTTP/1.0\r\n",
        "OPTIONS * HTTP/1.1\r\n",
        "CONNECT h:1 HTTP/1.1\r\n",
        "GET http://h/a HTTP/1.1\r\n",
        "Host: h\r\n",
        "Host: h\r\n\r\n",
        "\r\n",
        "\r\n\r\n",
        "\n",
        "\r",
        " ",
        "\t",
        ":",
        ";",
        "\0",
        "Content-Length: 5\r\n",
        "Content-Length: 0\r\n",
        "Content-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\n\r\n",
        "X: y\r\n",
        "Expect: 100-continue\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "5\r\nhello\r\n",
        "0\r\n\r\n",
        "0\r\nX: y\r\n\r\n",
        "0\r\nHost: x\r\nX: y\r\n\r\n",
        "5;a=b\r\n",
        "hello",
        "ffffffffffffffff\r\n",
        "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
        "POST /s HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
        "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ]);
    prop_oneof![
        8 => words.prop_map(|word| word.as_bytes().to_vec()),
        1 => vec(any::<u8>(), 0..20),
        1 => (any::<u8>(), 0..3_000usize).prop_map(|(byte, n)| vec![byte; n]),
    ]
}

fn wire() -> impl Strategy<Value = Vec<u8>> {
    vec(fragment(), 0..12).prop_map(|fragments| fragments.concat())
}

/// `bytes` cut at `places`, taken modulo its length.
fn cut<'b>(bytes: &'b [u8], places: &[usize]) -> Vec<&'b [u8]> {
    let mut places: Vec<_> = places.iter().map(|place| place % (bytes.len() + 1)).collect();
    places.sort_unstable();
    let mut from = 0;
    let mut pieces = Vec::new();
    for at in places.into_iter().chain([bytes.len()]) {
        if from < at {
            pieces.push(&bytes[from..at]);
            from = at;
        }
    }
    pieces
}

/// A valid request, and its expected result.
#[derive(Clone, Debug)]
struct Valid {
    wire: Vec<u8>,
    method: String,
    target: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

fn valid() -> impl Strategy<Value = Valid> {
    let method = prop_oneof![
        Just("GET".to_string()),
        Just("POST".to_string()),
        "[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}",
    ]
    .prop_filter("needs another target", |method| method != "CONNECT");
    let target = "(http://[a-z0-9.-]{1,9}(:([0-9]{0,4}|[0-5][0-9]{4}|65535))?)?/[a-z0-9._~!$&'()*+,;=:@%/-]{0,40}(\\?[ -~&&[^ #]]{0,20})?";
    // A name that begins with X means nothing to the engine.
    let name = "X[!#$%&'*+.^_`|~0-9A-Za-z-]{0,20}";
    let value = "([!-~]([ \t!-~]{0,30}[!-~])?)?";
    let field = (name, "[ \t]{0,3}", value, "[ \t]{0,3}");
    let body = vec(any::<u8>(), 0..300);
    let chunks = prop::option::of(vec(
        (1..50usize, "(;[a-z]{1,5}(=([a-z]{1,5}|\"[a-z ;]{0,9}\"))?){0,2}"),
        1..10,
    ));
    (method, target, vec(field, 0..8), body, chunks).prop_map(
        |(method, target, fields, body, chunks)| {
            let mut wire = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n").into_bytes();
            let mut seen = vec![("Host".to_string(), "h".to_string())];
            for (name, before, value, after) in fields {
                wire.extend(format!("{name}:{before}{value}{after}\r\n").bytes());
                seen.push((name, value));
            }
            let (name, value) = match chunks {
                None => ("Content-Length", body.len().to_string()),
                Some(_) => ("Transfer-Encoding", "chunked".to_string()),
            };
            wire.extend(format!("{name}: {value}\r\n\r\n").bytes());
            seen.push((name.into(), value));
            match &chunks {
                None => wire.extend_from_slice(&body),
                Some(chunks) => chunk(&mut wire, &body, chunks),
            }
            Valid { wire, method, target, fields: seen, body }
        },
    )
}

/// Appends `body` in chunks of the sizes and with the extensions of `chunks`, over and over.
fn chunk(wire: &mut Vec<u8>, body: &[u8], chunks: &[(usize, String)]) {
    let mut rest = body;
    let mut plan = chunks.iter().cycle();
    while !rest.is_empty() {
        let (size, extension) = plan.next().expect("a cycle has no end");
        let (piece, after) = rest.split_at((*size).min(rest.len()));
        rest = after;
        wire.extend(format!("{:x}{extension}\r\n", piece.len()).bytes());
        wire.extend_from_slice(piece);
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(b"0\r\nX: y\r\n\r\n");
}

/// A valid head with a byte or two changed, which is where two parsers come to disagree.
fn nearly_valid() -> impl Strategy<Value = Vec<u8>> {
    let changes = vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 0..4);
    (valid(), changes).prop_map(|(valid, changes)| {
        let mut wire = valid.wire;
        for (at, byte, kind) in changes {
            let at = at.index(wire.len());
            match kind {
                0 => wire[at] = byte,
                1 => wire.insert(at, byte),
                _ => drop(wire.remove(at)),
            }
            if wire.is_empty() {
                break;
            }
        }
        wire
    })
}

/// Compares the first head we accept in `bytes` with what httparse makes of it.
fn compare_with_httparse(bytes: &[u8]) -> Result<(), TestCaseError> {
    let run = whole(bytes);
    let Some(ours) = run.requests.first() else {
        return Ok(());
    };
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut theirs = httparse::Request::new(&mut fields);
    match theirs.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        // It knows 1.0 and 1.1 only; RFC 9110 §2.5 has every other 1.x treated as 1.1.
        Err(httparse::Error::Version) => return Ok(()),
        other => return Err(TestCaseError::fail(format!("httparse: {other:?}, we: {ours:?}"))),
    }
    prop_assert_eq!(theirs.method, Some(ours.method.as_str()));
    prop_assert_eq!(theirs.path, Some(ours.target.as_str()));
    let theirs: Vec<_> =
        theirs.headers.iter().map(|field| (field.name.to_string(), field.value.to_vec())).collect();
    let theirs = with_targets_host(&ours.method, &ours.target, theirs);
    prop_assert_eq!(&theirs, &ours.fields);
    Ok(())
}

/// The fields that the application should see: if the target names a host, it replaces the value of
/// `Host` (RFC 9112 §3.2.2).
fn with_targets_host(
    method: &str,
    target: &str,
    mut fields: Vec<(String, Vec<u8>)>,
) -> Vec<(String, Vec<u8>)> {
    if let Some((scheme, rest)) = target.split_once("://")
        && method != "CONNECT"
        && !scheme.contains('/')
        && let Some((_, host)) =
            fields.iter_mut().find(|(name, _)| name.eq_ignore_ascii_case("host"))
    {
        *host = rest.split(['/', '?']).next().unwrap_or_default().as_bytes().to_vec();
    }
    fields
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Purpose: no input makes the engine panic or hang, or keeps it from closing in the end.
    #[test]
    fn arbitrary_bytes(bytes in vec(any::<u8>(), 0..300)) {
        whole(&bytes);
    }

    /// Purpose: neither do bytes that look like requests; and how they were split changes nothing.
    #[test]
    fn splits_change_nothing(bytes in wire(), places in vec(any::<usize>(), 0..20)) {
        let expected = whole(&bytes);
        let limits = Limits::default();
        prop_assert_eq!(&run(&cut(&bytes, &places), &limits), &expected);
        let single: Vec<_> = bytes.chunks(1).collect();
        prop_assert_eq!(&run(&single, &limits), &expected);
    }

    /// Purpose: the same with limits so tight that everything runs into one.
    #[test]
    fn splits_change_nothing_at_the_limits(
        bytes in wire(),
        places in vec(any::<usize>(), 0..20),
        header_max in 5..60usize,
        uri_max in 1..12usize,
        body_max in 0..8u64,
        discard_max in 0..8u64,
        output_max in 1..200usize,
    ) {
        let limits = Limits {
            header_max, uri_max, body_max, discard_max, output_max, header_count_max: 3,
            ..Limits::default()
        };
        let expected = run(&[&bytes], &limits);
        prop_assert_eq!(&run(&cut(&bytes, &places), &limits), &expected);
        let single: Vec<_> = bytes.chunks(1).collect();
        prop_assert_eq!(&run(&single, &limits), &expected);
    }

    /// Purpose: every valid request is accepted, and the application sees exactly what was sent;
    /// any number of them pipelined, split anywhere.
    #[test]
    fn valid_requests(requests in vec(valid(), 1..5), places in vec(any::<usize>(), 0..20)) {
        let wire = requests.iter().map(|valid| valid.wire.as_slice()).collect::<Vec<_>>().concat();
        let run = run(&cut(&wire, &places), &Limits::default());
        prop_assert_eq!(run.requests.len(), requests.len(), "{}", run.received);
        for (asked, valid) in run.requests.iter().zip(&requests) {
            prop_assert!(asked.complete);
            prop_assert_eq!(&asked.method, &valid.method);
            prop_assert_eq!(&asked.target, &valid.target);
            prop_assert_eq!(&asked.body, &valid.body);
            let fields: Vec<_> =
                valid.fields.iter().map(|(n, v)| (n.clone(), v.clone().into_bytes())).collect();
            let fields = with_targets_host(&valid.method, &valid.target, fields);
            prop_assert_eq!(&asked.fields, &fields);
        }
    }

    /// Purpose: httparse accepts what we accept, with the same result. We may be stricter.
    #[test]
    fn never_laxer_than_httparse(bytes in nearly_valid()) {
        compare_with_httparse(&bytes)?;
    }

    /// Purpose: the same for input from fragments.
    #[test]
    fn never_laxer_than_httparse_on_fragments(bytes in wire()) {
        compare_with_httparse(&bytes)?;
    }
}

/// Purpose: every byte value at every place of a head: never laxer than httparse.
#[test]
fn every_byte_everywhere() {
    let valid = b"GET /a?b HTTP/1.1\r\nHost: h:80\r\nX-Y: z w\r\nConnection: close\r\n\r\n";
    for at in 0..valid.len() {
        for byte in 0..=255u8 {
            let mut changed = valid.to_vec();
            changed[at] = byte;
            compare_with_httparse(&changed).unwrap();
            let mut longer = valid.to_vec();
            longer.insert(at, byte);
            compare_with_httparse(&longer).unwrap();
        }
        let mut shorter = valid.to_vec();
        shorter.remove(at);
        compare_with_httparse(&shorter).unwrap();
    }
}
