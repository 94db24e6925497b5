//! Does a body pass its queue whole, within bounds, and with the right wake-ups?

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use http::StatusCode;

use super::*;
use crate::app::Error;

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Count {
    fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

fn poll(stream: &mut BodyStream, waker: &Waker) -> Poll<Option<Result<Bytes, BodyError>>> {
    Pin::new(stream).poll_next(&mut Context::from_waker(waker))
}

fn ready(text: &'static str) -> Poll<Option<Result<Bytes, BodyError>>> {
    Poll::Ready(Some(Ok(Bytes::from(text))))
}

/// Purpose: each side is woken exactly when its wait can end, and not otherwise.
#[test]
fn wakes() {
    let (writes, reads) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let (feed, mut stream) = channel(4, Waker::from(writes.clone()));
    let reader = Waker::from(reads.clone());
    assert!(!feed.wanted());
    assert_eq!(poll(&mut stream, &reader), Poll::Pending);
    assert_eq!((feed.wanted(), writes.take()), (true, 1), "the first question is heard");
    assert_eq!(poll(&mut stream, &reader), Poll::Pending);
    assert_eq!(writes.take(), 0, "the second is not news");
    feed.push(b"abc");
    assert_eq!((feed.room() > 0, reads.take()), (true, 1));
    feed.push(b"de");
    assert!(feed.room() == 0);
    reads.take();
    assert_eq!(poll(&mut stream, &reader), ready("abcde"));
    assert_eq!((feed.room() > 0, writes.take()), (true, 1), "room has appeared");
    feed.push(b"f");
    reads.take();
    assert_eq!(poll(&mut stream, &reader), ready("f"));
    assert_eq!((reads.take(), writes.take()), (0, 0), "there was room before");
    assert_eq!(poll(&mut stream, &reader), Poll::Pending);
    feed.finish();
    assert_eq!(reads.take(), 1);
    assert_eq!(poll(&mut stream, &reader), Poll::Ready(None));
    assert_eq!(poll(&mut stream, &reader), Poll::Ready(None));
}

/// Purpose: the writer notices that its reader was dropped, and later pieces are dropped.
#[test]
fn reader_goes() {
    let writes = Arc::new(Count::default());
    let (feed, stream) = channel(4, Waker::from(writes.clone()));
    feed.push(b"abcdef");
    assert!(!feed.is_abandoned());
    drop(stream);
    assert_eq!((feed.is_abandoned(), feed.room() > 0, writes.take()), (true, true, 1));
    feed.push(b"abcdef");
    assert!(feed.room() > 0, "nothing is kept for nobody");
}

/// Purpose: bytes queued before a failure are still read; the failure is reported once, with the
/// status for its cause.
#[test]
fn failures() {
    let (feed, mut stream) = channel(4, Waker::noop().clone());
    feed.push(b"a");
    feed.fail(BodyError::from(Reject::BodyTimeout));
    assert_eq!(poll(&mut stream, Waker::noop()), ready("a"));
    let Poll::Ready(Some(Err(failure))) = poll(&mut stream, Waker::noop()) else {
        panic!("it has failed");
    };
    assert_eq!(Error::from(failure).status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(poll(&mut stream, Waker::noop()), Poll::Ready(None));
    let (feed, mut stream) = channel(4, Waker::noop().clone());
    drop(feed);
    let cut = Poll::Ready(Some(Err(BodyError::DISCONNECTED)));
    assert_eq!(poll(&mut stream, Waker::noop()), cut);
    assert_eq!(Error::from(BodyError::DISCONNECTED).status(), StatusCode::BAD_REQUEST);
}

/// Purpose: queued bytes count for about the memory that they occupy, even if they are pushed byte
/// by byte; and they come out as they went in, however they were cut.
#[test]
fn small_pieces_are_gathered() {
    for step in [1, 7, 4096, GATHERED_MAX - 1, GATHERED_MAX, GATHERED_MAX + 1, 100_000] {
        let content: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        let (feed, mut stream) = channel(content.len(), Waker::noop().clone());
        content.chunks(step).for_each(|piece| feed.push(piece));
        {
            let state = feed.0.lock();
            let slots = state.pieces.capacity() * size_of::<Bytes>();
            let held: usize = state.pieces.iter().map(Bytes::len).sum();
            let costs = held + state.gathered.capacity() + slots;
            assert!(costs <= 2 * content.len(), "{costs} bytes in steps of {step}");
        }
        let mut received = Vec::new();
        while let Poll::Ready(Some(Ok(piece))) = poll(&mut stream, Waker::noop()) {
            assert!(!piece.is_empty() && piece.len() <= GATHERED_MAX);
            received.extend_from_slice(&piece);
        }
        assert_eq!(received, content, "in steps of {step}");
        assert!(feed.is_drained());
    }
}

/// Purpose: trailers are there once the content was read, not before, and once only.
#[test]
fn trailers() {
    let (feed, mut stream) = channel(4, Waker::noop().clone());
    feed.push(b"a");
    feed.0.trailers(HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from(1))]));
    feed.finish();
    assert!(stream.take_trailers().is_empty(), "there is content before them");
    assert_eq!(poll(&mut stream, Waker::noop()), ready("a"));
    assert_eq!(poll(&mut stream, Waker::noop()), Poll::Ready(None));
    assert_eq!(stream.take_trailers().get("etag").map(|tag| tag.as_bytes()), Some(&b"1"[..]));
    assert!(stream.take_trailers().is_empty());
}

/// Purpose: an application that sends byte by byte cannot queue thirty times the bound.
#[test]
fn pieces_are_charged_what_they_cost() {
    let (mut sender, _stream) = sender(64 * 1024);
    let sent = (0..).take_while(|_| sender.try_send("x").is_ok()).count();
    assert_eq!(sent, (64 * 1024_usize).div_ceil(1 + PIECE_COST));
}

/// Purpose: a sender waits while the queue is full, and learns that its reader was dropped.
#[test]
fn senders() {
    let writes = Arc::new(Count::default());
    let waker = Waker::from(writes.clone());
    let mut context = Context::from_waker(&waker);
    let (mut sender, mut stream) = sender(4);
    assert_eq!(sender.try_send("abcd"), Ok(()));
    assert_eq!(sender.try_send("e"), Err(Bytes::from("e")), "it is given back");
    {
        let mut sending = std::pin::pin!(sender.send("e"));
        assert!(sending.as_mut().poll(&mut context).is_pending());
        assert_eq!(poll(&mut stream, Waker::noop()), ready("abcd"));
        assert_eq!(writes.take(), 2, "for the first question, and for the room");
        assert_eq!(sending.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    }
    {
        let mut closed = std::pin::pin!(sender.closed());
        assert!(closed.as_mut().poll(&mut context).is_pending());
        drop(stream);
        assert_eq!(writes.take(), 1);
        assert_eq!(closed.as_mut().poll(&mut context), Poll::Ready(()));
    }
    assert!(sender.is_closed());
    let mut sending = std::pin::pin!(sender.send("f"));
    assert_eq!(sending.as_mut().poll(&mut context), Poll::Ready(Err(Closed)));
}

/// Purpose: collecting stops at its bound exactly, with 413 beyond it.
#[test]
fn collect_is_bounded() {
    let collect = |max: usize| {
        let (feed, stream) = channel(100, Waker::noop().clone());
        feed.push(b"abc");
        feed.push(b"de");
        feed.finish();
        let mut collecting = std::pin::pin!(stream.collect(max));
        match collecting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => panic!("everything is there"),
        }
    };
    assert_eq!((collect(6), collect(5)), (Ok("abcde".into()), Ok("abcde".into())));
    let error = Error::from(collect(4).expect_err("it is longer"));
    assert_eq!(error.status(), StatusCode::PAYLOAD_TOO_LARGE);
}
