//! Content that a layer changes on its way out.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::*;
use crate::app::body::Content;

/// Pieces and a trailer.
struct Song(Vec<&'static str>);

impl Stream for Song {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.pop().map(|piece| match piece {
            "" => Err("it broke".into()),
            piece => Ok(Bytes::from(piece)),
        }))
    }
}

impl Content for Song {
    fn take_trailers(self: Pin<&mut Self>) -> HeaderMap {
        let field = (header::ETAG, HeaderValue::from_static("\"1\""));
        HeaderMap::from_iter([field])
    }
}

struct Uppercase(BodyPieces);

impl Stream for Uppercase {
    type Item = Result<Vec<u8>, BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = Pin::new(&mut self.0).poll_next(context);
        next.map(|next| next.map(|piece| piece.map(|piece| piece.to_ascii_uppercase())))
    }
}

fn shouting() -> Router {
    Router::new().layer(layer::on_response(|_: &Request<'_>, response: &mut Response| {
        response.map_body(Uppercase);
    }))
}

/// Purpose: a layer can change content of every kind piece by piece; its length is not known then, its
/// trailers stay, and a response without content is left alone.
#[test]
fn content_is_wrapped() {
    let of_length = || Response::from("four").with_header("content-length", "4");
    let song = || Response::from(Body::from_content(Song(vec!["tra", "la"]), Some(5)));
    let app = build(
        shouting()
            .get("/stream", song)
            .get("/stream-async", move || async move { song() })
            .get("/static", of_length)
            .get("/owned", || String::from("owned"))
            .get("/shared", || Bytes::from_static(b"shared"))
            .get("/json", || Json("pooled"))
            .get("/empty", || StatusCode::NO_CONTENT),
    );
    for path in ["/stream", "/stream-async"] {
        let mut response = request(&app, &format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
        assert_eq!(response.body().len(), None);
        let Repr::Stream(mut stream, None) = response.take_body().into_repr() else {
            panic!("it is a stream")
        };
        let mut next = || block_on(std::future::poll_fn(|context| stream.poll_next(context)));
        assert_eq!(&next().unwrap().unwrap()[..], b"LA");
        assert_eq!(&next().unwrap().unwrap()[..], b"TRA");
        assert!(next().is_none());
        let trailers = stream.take_trailers().expect("no panic");
        assert_eq!(trailers.get(header::ETAG).unwrap(), "\"1\"");
    }
    for (path, body) in
        [("/static", "FOUR"), ("/owned", "OWNED"), ("/shared", "SHARED"), ("/json", "\"POOLED\"")]
    {
        let received = get(&app, path);
        assert_eq!((received.body.as_str(), received.header("content-length")), (body, None));
    }
    let mut empty = request(&app, "GET /empty HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(matches!(empty.take_body().into_repr(), Repr::Empty));
}

/// Purpose: content that fails does so through a layer around it, and is not asked again.
#[test]
fn wrapped_content_fails() {
    let app = build(
        shouting()
            .get("/", || Response::from(Body::from_content(Song(vec!["never", "", "la"]), None))),
    );
    let mut response = request(&app, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let Repr::Stream(mut stream, _) = response.take_body().into_repr() else { panic!("a stream") };
    let mut next = || block_on(std::future::poll_fn(|context| stream.poll_next(context)));
    assert_eq!(&next().unwrap().unwrap()[..], b"LA");
    assert!(next().unwrap().is_err());
    assert!(next().is_none());
}

/// Purpose: an upgrade goes through a layer that wraps content as it is.
#[test]
fn upgrades_are_not_wrapped() {
    let upgrade = || Response::upgrade(HeaderValue::from_static("echo"), |_| async {});
    let app = build(shouting().get("/", upgrade));
    let response = request(&app, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(response.body().is_upgrade());
}
