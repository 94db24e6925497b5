//! A provider to test with, which answers correctly or misbehaves as configured.
//!
//! This module decides what to answer; a server sends it. Every misbehaviour is drawn from a random
//! generator that the caller seeds, so a run that found something can be repeated.

mod generate;
mod http;

use std::io::{self, Write as _};
use std::time::Duration;

use bytes::Bytes;
use fastrand::Rng;
use flate2::Compression;
use flate2::write::GzEncoder;
use uuid::Uuid;

pub use self::generate::generate;
pub use self::http::router;

/// How the provider behaves. The default is an honest one.
#[derive(Clone, Debug, Default)]
pub struct Behaviour {
    /// How long each answer is held back.
    pub delay: Duration,
    /// The share of answers that are a 500, from 0 to 1.
    pub fail_rate: f64,
    /// The share of the other answers that break off half-way, from 0 to 1.
    pub truncate_rate: f64,
    /// What every other answer lies about.
    pub lie: Option<Lie>,
    /// Whether clients that accept gzip get it.
    pub gzip: bool,
    /// Whether answers have an `ETag`, and a request that repeats it gets a 304.
    pub etag: bool,
}

/// An answer that looks right and is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Lie {
    /// `Content-Length` is half of what is sent.
    Length,
    /// A web page with status 200.
    Html,
    /// Days that no calendar has.
    Dates,
}

/// What an answer depends on in a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request<'a> {
    /// The value of `If-None-Match`.
    pub if_none_match: Option<&'a str>,
    /// The value of `Accept-Encoding`.
    pub accept_encoding: Option<&'a str>,
}

/// What to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers, without `Content-Length`.
    pub headers: Vec<(&'static str, String)>,
    /// How long to wait before sending anything.
    pub delay: Duration,
    /// The bytes to send.
    pub body: Bytes,
    /// The `Content-Length` to announce. If it is not the body's length, the server has to send the
    /// body nevertheless, and then close the connection.
    pub declared_length: usize,
}

/// A feed and how to serve it.
#[derive(Clone, Debug)]
pub struct Provider {
    plain: Representation,
    gzipped: Representation,
    behaviour: Behaviour,
}

#[derive(Clone, Debug)]
struct Representation {
    body: Bytes,
    /// Different for each representation, as RFC 9110 section 8.8.3.3 asks.
    etag: String,
}

impl Provider {
    /// A provider of this feed, which may come from [`generate`] or from a file.
    pub fn new(feed: impl Into<Bytes>, behaviour: Behaviour) -> Provider {
        let mut body: Bytes = feed.into();
        if behaviour.lie == Some(Lie::Dates) {
            body = with_impossible_days(&body).into();
        }
        let gzipped = Bytes::from(gzip(&body).expect("writing to a Vec cannot fail"));
        let name = Uuid::new_v5(&Uuid::NAMESPACE_OID, &body);
        Provider {
            plain: Representation { body, etag: format!("\"{name}\"") },
            gzipped: Representation { body: gzipped, etag: format!("\"{name}-gzip\"") },
            behaviour,
        }
    }

    /// The answer to a request for the feed.
    pub fn answer(&self, request: Request<'_>, rng: &mut Rng) -> Answer {
        let Behaviour { fail_rate, truncate_rate, lie, .. } = self.behaviour;
        if rng.f64() < fail_rate {
            let body = Bytes::from_static(b"the provider was told to fail\n");
            return self.send(500, "text/plain", body);
        }
        if lie == Some(Lie::Html) {
            let body = Bytes::from_static(
                b"<!DOCTYPE html><html><head><title>Maintenance</title></head></html>\n",
            );
            return self.send(200, "text/html", body);
        }
        let mut answer = self.honest(request);
        if lie == Some(Lie::Length) {
            answer.declared_length /= 2;
        } else if rng.f64() < truncate_rate {
            answer.body.truncate(answer.body.len() / 2);
        }
        answer
    }

    fn honest(&self, request: Request<'_>) -> Answer {
        let accepted = request.accept_encoding.is_some_and(|codings| {
            codings
                .split(',')
                .any(|coding| coding.split(';').next().is_some_and(|name| name.trim() == "gzip"))
        });
        let compress = self.behaviour.gzip && accepted;
        let Representation { body, etag } = if compress { &self.gzipped } else { &self.plain };
        let unchanged = self.behaviour.etag && request.if_none_match == Some(etag);
        let mut answer = match unchanged {
            true => self.send(304, "application/xml", Bytes::new()),
            false => self.send(200, "application/xml", body.clone()),
        };
        if self.behaviour.gzip {
            answer.headers.push(("vary", "accept-encoding".to_owned()));
        }
        if compress && !unchanged {
            answer.headers.push(("content-encoding", "gzip".to_owned()));
        }
        if self.behaviour.etag {
            answer.headers.push(("etag", etag.clone()));
        }
        answer
    }

    fn send(&self, status: u16, content_type: &'static str, body: Bytes) -> Answer {
        let headers = vec![("content-type", content_type.to_owned())];
        Answer { status, headers, delay: self.behaviour.delay, declared_length: body.len(), body }
    }
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Turns the day of every date-time in attribute values (`"YYYY-MM-DDT…"`) into the 32nd.
fn with_impossible_days(feed: &[u8]) -> Vec<u8> {
    let mut feed = feed.to_vec();
    for at in 0..feed.len().saturating_sub(11) {
        if feed[at] == b'"' && feed[at + 5] == b'-' && feed[at + 8] == b'-' && feed[at + 11] == b'T'
        {
            feed[at + 9..at + 11].copy_from_slice(b"32");
        }
    }
    feed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{Feed, Limits, Skip};
    use std::io::Read as _;

    fn answer(behaviour: Behaviour, request: Request<'_>) -> Answer {
        Provider::new(generate(50, 1), behaviour).answer(request, &mut Rng::with_seed(1))
    }

    fn read(body: &[u8]) -> Feed {
        Feed::read(body, &Limits::default())
    }

    /// Purpose: an honest provider sends the whole feed and says how long it is.
    #[test]
    fn honest() {
        let answer = answer(Behaviour::default(), Request::default());
        assert_eq!((answer.status, answer.declared_length), (200, answer.body.len()));
        assert_eq!(answer.headers, [("content-type", "application/xml".to_owned())]);
        assert_eq!(read(&answer.body).stats.online, 50);
    }

    /// Purpose: gzip is sent only to those who accept it, and is the same feed.
    #[test]
    fn compressed_on_request() {
        let behaviour = Behaviour { gzip: true, ..Behaviour::default() };
        let request = Request { accept_encoding: Some("br, gzip;q=0.5"), ..Request::default() };
        let compressed = answer(behaviour.clone(), request);
        assert!(compressed.headers.contains(&("content-encoding", "gzip".to_owned())));
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&compressed.body[..]).read_to_end(&mut plain).expect("gzip");
        assert_eq!(plain, answer(behaviour, Request::default()).body);
    }

    /// Purpose: the tag of an answer, sent back, yields 304 without a body; another does not.
    #[test]
    fn conditional() {
        let behaviour = Behaviour { etag: true, gzip: true, ..Behaviour::default() };
        let first = answer(behaviour.clone(), Request::default());
        let tag = first.headers.iter().find(|(name, _)| *name == "etag").expect("a tag").1.as_str();
        let again =
            answer(behaviour.clone(), Request { if_none_match: Some(tag), ..Request::default() });
        assert_eq!((again.status, again.body.len(), again.declared_length), (304, 0, 0));
        let other = Request { if_none_match: Some(tag), accept_encoding: Some("gzip") };
        assert_eq!(answer(behaviour, other).status, 200);
    }

    /// Purpose: each misbehaviour does what its name says.
    #[test]
    fn misbehaviours() {
        let base = Behaviour { delay: Duration::from_secs(3), ..Behaviour::default() };
        let failing = answer(Behaviour { fail_rate: 1.0, ..base.clone() }, Request::default());
        assert_eq!((failing.status, failing.delay), (500, base.delay));

        let cut = answer(Behaviour { truncate_rate: 1.0, ..base.clone() }, Request::default());
        assert!(cut.body.len() < cut.declared_length && read(&cut.body).end.is_err());

        let lie = |lie| answer(Behaviour { lie: Some(lie), ..base.clone() }, Request::default());
        let length = lie(Lie::Length);
        assert!(length.declared_length < length.body.len());
        assert_eq!(lie(Lie::Html).status, 200);
        assert!(read(&lie(Lie::Html).body).end.is_err());
        let stats = read(&lie(Lie::Dates).body).stats;
        assert_eq!(stats.skipped[Skip::Date as usize], stats.plans);
    }

    /// Purpose: a rate is a share of the answers, and a seed fixes which.
    #[test]
    fn rates_are_shares() {
        let provider =
            Provider::new(generate(1, 1), Behaviour { fail_rate: 0.25, ..Behaviour::default() });
        let run = |seed| {
            let mut rng = Rng::with_seed(seed);
            (0..1000)
                .map(|_| provider.answer(Request::default(), &mut rng).status)
                .collect::<Vec<_>>()
        };
        let failed = run(5).iter().filter(|status| **status == 500).count();
        assert!((200..300).contains(&failed), "{failed}");
        assert_eq!(run(5), run(5));
    }
}
