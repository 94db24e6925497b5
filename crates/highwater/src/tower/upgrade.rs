//! Upgrades for services that are written for hyper.
//!
//! A service takes an upgraded connection as a `hyper::upgrade::OnUpgrade`, which only hyper can make. So
//! we feed an in-memory hyper connection a minimal upgrade request, and it returns the `OnUpgrade`. If
//! the service accepts, the in-memory connection is joined to the real one and completes its upgrade; its
//! own response head is dropped, since the worker has sent the service's. From then on hyper hands out
//! our carrier, and bytes take no detour.
//!
//! ```text
//!  request ─▶ Offer ─ OnUpgrade ─▶ service ─▶ 101? ─no─▶ the offer is dropped, OnUpgrade fails
//!                                              │yes
//!            the worker sends the head ◀───────┘
//!            Carrier ◀─ Upgraded ─▶ hyper finishes its part ─▶ OnUpgrade gives the Carrier
//! ```

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};

use http::{HeaderValue, StatusCode, header};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::upgrade::OnUpgrade;
use tokio::io::AsyncWrite;

use super::body::Body;
use super::response::append_fields;
use crate::app::{Response, Upgraded, poll_piece};

/// The request that makes hyper return an `OnUpgrade`.
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: a\r\n\r\n";

/// The end of the head that hyper answers with.
const HEAD_END: &[u8] = b"\r\n\r\n";

type HyperConnection = http1::UpgradeableConnection<Carrier, Answers>;

/// An upgrade that a service may accept.
pub(super) struct Offer {
    connection: Pin<Box<HyperConnection>>,
    link: Arc<Mutex<Link>>,
}

impl Offer {
    /// Makes an offer, and the `OnUpgrade` for the service. `None` if hyper does not return one.
    pub(super) fn new() -> Option<(Self, OnUpgrade)> {
        let link = Arc::new(Mutex::new(Link::default()));
        let carrier = Carrier { link: Arc::clone(&link) };
        let mut builder = http1::Builder::new();
        let served =
            builder.header_read_timeout(None).serve_connection(carrier, Answers(link.clone()));
        let mut connection = Box::pin(served.with_upgrades());
        // It reads the request and calls the service below. Nothing wakes it before it is joined.
        let polled = connection.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let on_upgrade = lock(&link).on_upgrade.take().filter(|_| polled.is_pending())?;
        Some((Offer { connection, link }, on_upgrade))
    }

    /// The response that accepts it.
    pub(super) fn accept<B>(self, response: http::Response<B>) -> Response {
        let Offer { connection, link } = self;
        let mut fields = response.into_parts().0.headers;
        fields.remove(header::CONNECTION);
        let protocol =
            fields.remove(header::UPGRADE).unwrap_or(HeaderValue::from_static("websocket"));
        let mut answer = Response::upgrade(protocol, |upgraded| async move {
            lock(&link).upgraded = Some(upgraded);
            // Whatever becomes of hyper's part: the carrier is dropped with it, or with the protocol.
            let _ = connection.await;
            poll_fn(|context| {
                let mut link = lock(&link);
                link.done = Some(context.waker().clone());
                if link.is_dropped { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        });
        append_fields(&mut answer, fields);
        answer
    }
}

/// The state that hyper's service, the carrier and the worker's task share.
#[derive(Default)]
struct Link {
    on_upgrade: Option<OnUpgrade>,
    /// The real connection, once the worker has sent the head.
    upgraded: Option<Upgraded>,
    /// How much of the request hyper has read.
    read_size: usize,
    /// How much of `HEAD_END` the last bytes were that hyper wrote; all of it: its head is over.
    head_end: usize,
    is_dropped: bool,
    /// Waits for the carrier to be dropped.
    done: Option<Waker>,
}

fn lock(link: &Mutex<Link>) -> MutexGuard<'_, Link> {
    link.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hyper's service: gives out the `OnUpgrade`, and accepts once the real connection is there.
struct Answers(Arc<Mutex<Link>>);

impl hyper::service::Service<http::Request<hyper::body::Incoming>> for Answers {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Joined;

    fn call(&self, mut request: http::Request<hyper::body::Incoming>) -> Joined {
        lock(&self.0).on_upgrade = Some(hyper::upgrade::on(&mut request));
        Joined(Arc::clone(&self.0))
    }
}

/// Ready once the real connection is there. It registers no waker: the code that joins the two polls this
/// connection right after.
struct Joined(Arc<Mutex<Link>>);

impl Future for Joined {
    type Output = Result<http::Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        if lock(&self.0).upgraded.is_none() {
            return Poll::Pending;
        }
        let mut response = http::Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        Poll::Ready(Ok(response))
    }
}

/// The object that hyper treats as its connection.
struct Carrier {
    link: Arc<Mutex<Link>>,
}

impl Read for Carrier {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut link = lock(&self.link);
        let rest = &REQUEST[link.read_size..];
        if !rest.is_empty() {
            let size = rest.len().min(buffer.remaining());
            buffer.put_slice(&rest[..size]);
            link.read_size += size;
            return Poll::Ready(Ok(()));
        }
        // What the peer sends is for the new protocol, which begins when hyper's head is over.
        if link.head_end < HEAD_END.len() {
            return Poll::Pending;
        }
        let Some(upgraded) = &mut link.upgraded else { return Poll::Pending };
        let size = buffer.remaining();
        let piece = ready!(poll_piece(&mut upgraded.incoming, context, size))?;
        buffer.put_slice(&piece);
        Poll::Ready(Ok(()))
    }
}

impl Write for Carrier {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut link = lock(&self.link);
        if link.head_end < HEAD_END.len() {
            return Poll::Ready(Ok(link.drop_head(bytes)));
        }
        match &mut link.upgraded {
            Some(upgraded) => Pin::new(upgraded).poll_write(context, bytes),
            None => Poll::Pending,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut lock(&self.link).upgraded {
            Some(upgraded) => Pin::new(upgraded).poll_shutdown(context),
            None => Poll::Ready(Ok(())),
        }
    }
}

impl Link {
    /// Drops the bytes of hyper's own response head; returns how many they are.
    fn drop_head(&mut self, bytes: &[u8]) -> usize {
        for (index, byte) in bytes.iter().enumerate() {
            self.head_end = match HEAD_END[self.head_end] == *byte {
                true => self.head_end + 1,
                false => usize::from(*byte == HEAD_END[0]),
            };
            if self.head_end == HEAD_END.len() {
                return index + 1;
            }
        }
        bytes.len()
    }
}

/// A protocol that drops its connection has finished with it: that is what it means for a socket.
impl Drop for Carrier {
    fn drop(&mut self) {
        let mut link = lock(&self.link);
        if let Some(Upgraded { outgoing, .. }) = link.upgraded.take() {
            outgoing.finish();
        }
        link.is_dropped = true;
        if let Some(done) = link.done.take() {
            done.wake();
        }
    }
}
