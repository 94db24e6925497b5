//! What are the bytes of a request, and which answer is expected?
//!
//! A [`Spec`] is the request in the user's words; [`Request::new`] makes templates of it once. A request whose templates
//! have no parameters is one buffer that is sent again and again; others are rewritten each time, only the parts that
//! change being decided then.

use std::io::Write;

use highwater_core::http1::client::Asked;
use highwater_core::prng::Prng;

use super::expect::{Body, EXPECT_MAX, Expect};
use super::message::Message;
use super::spec::Spec;
use super::template::{Template, Values};
use super::upgrade;

/// One kind of request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) name: String,
    pub(crate) weight: u64,
    /// The kind of its method, which determines where its answer ends.
    pub(crate) asked: Asked,
    /// `None`: any answer will do.
    pub(crate) expect: Option<Expect>,
    content: Content,
    /// For HTTP/2.
    pub(crate) http2: Option<Message>,
    /// For WebSocket.
    pub(crate) ws: Option<upgrade::Message>,
}

#[derive(Debug)]
enum Content {
    Fixed(Vec<u8>),
    Made {
        /// Without the empty line.
        head: Template,
        /// `None`: no Content-Length.
        body: Option<Template>,
    },
}

impl Request {
    /// # Errors
    /// The method, the path or a field is not allowed by RFC 9110 or 9112; the message names it.
    pub(crate) fn new(spec: &Spec, authority: &str, close: bool) -> Result<Request, String> {
        let Spec { place, method, .. } = spec;
        if !is_token(method) {
            return Err(format!("{place}method {method:?} is not a method; write GET or POST"));
        }
        let mut head = Template::literal(format!("{method} "));
        head.append(&spec.path);
        head.text(b" HTTP/1.1\r\n");
        let mut host = false;
        for (name, value) in &spec.headers {
            host |= name.eq_ignore_ascii_case("host");
            head.text(format!("{name}: ").as_bytes());
            head.append(value);
            head.text(b"\r\n");
        }
        if !host {
            head.text(format!("Host: {authority}\r\n").as_bytes());
        }
        if close {
            head.text(b"Connection: close\r\n");
        }
        let asked = match method.as_str() {
            "HEAD" => Asked::Head,
            "CONNECT" => Asked::Connect,
            _ => Asked::Plain,
        };
        check_expect(spec, asked)?;
        let has_body = spec.body.constant() != Some(&[])
            || matches!(method.as_str(), "POST" | "PUT" | "PATCH");
        Ok(Request {
            name: spec.name.clone(),
            weight: spec.weight,
            asked,
            expect: (!spec.expect.is_empty()).then(|| spec.expect.clone()),
            content: content(head, has_body.then(|| spec.body.clone())),
            http2: None,
            ws: None,
        })
    }

    /// Whether its answer must have certain fields.
    pub(crate) fn expects_fields(&self) -> bool {
        self.expect.as_ref().is_some_and(|expect| !expect.headers.is_empty())
    }

    /// Its bytes, if they are always the same.
    pub(crate) fn fixed(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Fixed(bytes) => Some(bytes),
            Content::Made { .. } => None,
        }
    }

    /// Adds its bytes to `out`, as the next request that `values` count.
    pub(crate) fn write(&self, values: &mut Values, scratch: &mut Vec<u8>, out: &mut Vec<u8>) {
        values.next_request();
        match &self.content {
            Content::Fixed(bytes) => out.extend_from_slice(bytes),
            Content::Made { head, body } => {
                head.render(values, out);
                scratch.clear();
                if let Some(body) = body {
                    body.render(values, scratch);
                    write!(out, "Content-Length: {}\r\n", scratch.len())
                        .expect("memory takes everything");
                }
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(scratch);
            }
        }
    }
}

fn content(mut head: Template, body: Option<Template>) -> Content {
    let constant = body.as_ref().map_or(Some(&[][..]), Template::constant);
    match (head.constant().is_some(), constant) {
        (true, Some(bytes)) => {
            if body.is_some() {
                head.text(format!("Content-Length: {}\r\n", bytes.len()).as_bytes());
            }
            head.text(b"\r\n");
            head.text(bytes);
            Content::Fixed(head.constant().expect("only text was added").to_vec())
        }
        _ => Content::Made { head, body },
    }
}

fn check_expect(spec: &Spec, asked: Asked) -> Result<(), String> {
    let Spec { place, expect, .. } = spec;
    let setting = |name| match place.as_str() {
        "--" => format!("--expect-{name}"),
        _ => format!("{place}expect.{name}"),
    };
    if let Some(status) = expect.status.filter(|status| !(200..=599).contains(status)) {
        return Err(format!("{} {status} is not a status; write 200 to 599", setting("status")));
    }
    if asked == Asked::Connect && !expect.is_empty() {
        return Err(format!("{place}method CONNECT has no answer to check; expect nothing of it"));
    }
    let len = match &expect.body {
        Some(Body::Whole(whole)) if asked == Asked::Head && !whole.is_empty() => {
            return Err(format!(
                "{place}method HEAD has answers without a body; expect a status or headers"
            ));
        }
        Some(Body::Whole(whole)) => whole.len(),
        Some(Body::Part(finder)) if finder.needle().is_empty() => {
            let setting = setting("contains");
            return Err(format!("{setting} is empty text, which is in every body; write some"));
        }
        Some(Body::Part(finder)) => finder.needle().len(),
        None => 0,
    };
    if len > EXPECT_MAX {
        return Err(format!("{} has {len} bytes; give 1 MiB at most", setting("body")));
    }
    Ok(())
}

/// Reads `Name: value`.
///
/// # Errors
/// It is not a field, or one that this client writes itself.
pub(crate) fn header(
    place: &str,
    name: &str,
    value: Template,
) -> Result<(String, Template), String> {
    let shown = || {
        let text = value.texts().flatten().copied().collect::<Vec<u8>>();
        format!("{place}header {:?}", format!("{name}: {}", String::from_utf8_lossy(&text)))
    };
    let clean = |text: &[u8]| !text.iter().any(|byte| b"\r\n\0".contains(byte));
    if !is_token(name) || !value.texts().all(clean) {
        return Err(format!("{} is not a header; write 'Name: value'", shown()));
    }
    if name.eq_ignore_ascii_case("content-length") || name.eq_ignore_ascii_case("transfer-encoding")
    {
        return Err(format!("{}: Content-Length is added automatically", shown()));
    }
    Ok((name.to_owned(), value))
}

/// Checks a path and query.
///
/// # Errors
/// It has bytes that a request line cannot have.
pub(crate) fn check_path(path: &Template) -> Result<(), String> {
    match path.texts().flatten().find(|byte| !(0x21..=0x7e).contains(*byte)) {
        Some(bad) => Err(format!("byte {bad:#04x} in the path must be percent-encoded")),
        None => Ok(()),
    }
}

pub(crate) fn is_token(text: &str) -> bool {
    let in_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(in_token)
}

/// Everything that is sent, and in which order.
#[derive(Debug)]
pub(crate) struct Requests {
    pub(crate) list: Vec<Request>,
    /// They have names that results are shown by, and weights.
    pub(crate) is_mix: bool,
}

/// Which request is next?
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    /// One after the other: how many, and the next.
    InTurn(usize, usize),
    /// By chance, each by its weight: sums of weights.
    Weighted(Vec<u64>, Prng),
}

impl Choice {
    pub(crate) fn new(requests: &Requests, seed: u64) -> Choice {
        if !requests.is_mix {
            return Choice::InTurn(requests.list.len(), 0);
        }
        let sums = requests.list.iter().scan(0, |sum, request| {
            *sum += request.weight;
            Some(*sum)
        });
        Choice::Weighted(sums.collect(), Prng::from_seed(seed))
    }

    #[inline]
    pub(crate) fn next(&mut self) -> usize {
        match self {
            Choice::InTurn(1, _) => 0,
            Choice::InTurn(count, next) => {
                let chosen = *next;
                *next = (chosen + 1) % *count;
                chosen
            }
            Choice::Weighted(sums, random) => {
                let point = random.below(*sums.last().expect("a mix has a request"));
                sums.partition_point(|sum| *sum <= point)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Spec {
        let parse = |text: &str| Template::parse(text).expect("valid");
        Spec {
            place: "--".to_owned(),
            name: "test".to_owned(),
            weight: 1,
            method: method.to_owned(),
            path: parse(path),
            headers: headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), parse(value)))
                .collect(),
            body: parse(body),
            expect: Expect::default(),
        }
    }

    fn written(spec: &Spec, close: bool, times: usize) -> String {
        let request = Request::new(spec, "host:1", close).expect("valid");
        let (mut out, mut values) = (Vec::new(), Values::new(1, 1, 1));
        for _ in 0..times {
            request.write(&mut values, &mut b"left from before".to_vec(), &mut out);
        }
        if let Some(fixed) = request.fixed() {
            assert_eq!(out, fixed.repeat(times));
        }
        String::from_utf8(out).expect("ASCII")
    }

    /// Purpose: the bytes of a request are those of RFC 9112 §3 and §6, whether they are fixed or made: the length is
    /// the body's of this request, and methods that have a body say so even if it is empty.
    #[test]
    fn bytes() {
        let fixed = spec("GET", "/a?b", &[("A", "b")], "");
        assert!(Request::new(&fixed, "h", false).expect("valid").fixed().is_some());
        assert_eq!(written(&fixed, false, 1), "GET /a?b HTTP/1.1\r\nA: b\r\nHost: host:1\r\n\r\n");
        let own_host = spec("PUT", "/", &[("host", "x")], "");
        assert_eq!(
            written(&own_host, true, 1),
            "PUT / HTTP/1.1\r\nhost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        );
        let made = spec("POST", "/${seq}", &[("N", "${seq}")], "{\"n\":${seq}}");
        assert!(Request::new(&made, "h", false).expect("valid").fixed().is_none());
        let one = |n: u32, len: u32| {
            format!(
                "POST /{n} HTTP/1.1\r\nN: {n}\r\nHost: host:1\r\nContent-Length: {len}\r\n\r\n{{\"n\":{n}}}"
            )
        };
        let all: String = (1..=10).map(|n| one(n, if n < 10 { 7 } else { 8 })).collect();
        assert_eq!(written(&made, false, 10), all);
        let only_path = spec("GET", "/${seq}", &[], "");
        assert_eq!(written(&only_path, false, 1), "GET /1 HTTP/1.1\r\nHost: host:1\r\n\r\n");
    }

    /// Purpose: a mix is chosen by its weights, decided by the seed; without weights, requests take turns.
    #[test]
    fn choices() {
        let request = |weight| {
            let spec = Spec { weight, ..spec("GET", "/", &[], "") };
            Request::new(&spec, "h", false).expect("valid")
        };
        let mut requests =
            Requests { list: vec![request(1), request(8), request(1)], is_mix: true };
        let chosen = |requests: &Requests, seed, count: usize| {
            let mut choice = Choice::new(requests, seed);
            (0..count).map(|_| choice.next()).collect::<Vec<_>>()
        };
        let mut counts = [0_u32; 3];
        chosen(&requests, 1, 10_000).into_iter().for_each(|index| counts[index] += 1);
        assert!(counts[0].abs_diff(1000) < 150 && counts[2].abs_diff(1000) < 150, "{counts:?}");
        assert_eq!(chosen(&requests, 5, 50), chosen(&requests, 5, 50));
        assert_ne!(chosen(&requests, 5, 50), chosen(&requests, 6, 50));
        requests.is_mix = false;
        assert_eq!(chosen(&requests, 1, 5), [0, 1, 2, 0, 1]);
    }
}
