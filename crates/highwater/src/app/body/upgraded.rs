//! An upgraded connection in the form that Tokio's protocols expect: `AsyncRead` and `AsyncWrite`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use highwater_core::http::Reject;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{BodyStream, Upgraded};

/// The most bytes that one write accepts: as many as a channel holds before its writer has to wait.
const WRITE_SIZE_MAX: usize = super::CHANNEL_CAPACITY;

/// Reads at most `size` bytes of what the peer sends; none at the end.
pub(crate) fn poll_piece(
    incoming: &mut BodyStream,
    context: &mut Context<'_>,
    size: usize,
) -> Poll<io::Result<Bytes>> {
    let Some(piece) = ready!(Pin::new(&mut *incoming).poll_next(context)) else {
        return Poll::Ready(Ok(Bytes::new()));
    };
    let mut piece = piece.map_err(|failure| {
        let kind = match failure.reject() {
            Some(Reject::Truncated) => io::ErrorKind::UnexpectedEof,
            _ => io::ErrorKind::ConnectionReset,
        };
        io::Error::new(kind, failure)
    })?;
    if piece.len() > size {
        incoming.unread(piece.split_off(size));
    }
    Poll::Ready(Ok(piece))
}

/// A read after the peer's last byte reads nothing. It fails with `ConnectionReset` after the connection was lost, and with
/// `UnexpectedEof` where the peer has finished sending without saying so (see [`Upgraded`]).
impl AsyncRead for Upgraded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let piece = ready!(poll_piece(&mut self.incoming, context, buffer.remaining()))?;
        buffer.put_slice(&piece);
        Poll::Ready(Ok(()))
    }
}

/// A write waits while 64 KiB are buffered. Flushing does nothing, since the worker sends at the end
/// of its turn. Shutting down ends the sending side, as `BodySender::finish` does, and does not wait for that to be sent;
/// what the peer sends can still be read.
impl AsyncWrite for Upgraded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let broken = |closed| io::Error::new(io::ErrorKind::BrokenPipe, closed);
        ready!(self.outgoing.poll_ready(context)).map_err(broken)?;
        let size = bytes.len().min(WRITE_SIZE_MAX);
        let taken = self.outgoing.try_send(Bytes::copy_from_slice(&bytes[..size]));
        Poll::Ready(taken.map(|()| size).map_err(|_| broken(super::Closed)))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.end();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::super::channel::{channel, sender};
    use super::*;

    fn context() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    fn read(upgraded: &mut Upgraded, size: usize) -> Poll<io::Result<Vec<u8>>> {
        let mut space = vec![0; size];
        let mut buffer = ReadBuf::new(&mut space);
        let read = ready!(Pin::new(upgraded).poll_read(&mut context(), &mut buffer));
        Poll::Ready(read.map(|()| buffer.filled().to_vec()))
    }

    fn text(read: Poll<io::Result<Vec<u8>>>) -> String {
        let Poll::Ready(Ok(bytes)) = read else { panic!("there is something to read: {read:?}") };
        String::from_utf8(bytes).expect("it was text")
    }

    /// Purpose: pieces larger than a reader's buffer are read in order, byte for byte; the end reads
    /// nothing, and a lost connection is an error.
    #[test]
    fn reads_pieces_in_parts() {
        for is_lost in [false, true] {
            let (feed, incoming) = channel(8, Waker::noop().clone());
            let (outgoing, _content) = sender(8);
            let mut upgraded = Upgraded { incoming, outgoing };
            assert!(read(&mut upgraded, 4).is_pending());
            feed.push(b"abcdef");
            assert_eq!(text(read(&mut upgraded, 4)), "abcd");
            feed.push(b"gh");
            assert_eq!(text(read(&mut upgraded, 1)), "e");
            assert_eq!(text(read(&mut upgraded, 4)), "f");
            assert_eq!(text(read(&mut upgraded, 4)), "gh");
            if is_lost {
                drop(feed);
                let Poll::Ready(Err(lost)) = read(&mut upgraded, 4) else { panic!("it is lost") };
                assert_eq!(lost.kind(), io::ErrorKind::ConnectionReset);
            } else {
                feed.finish();
                assert_eq!(text(read(&mut upgraded, 4)), "");
            }
        }
    }

    /// Purpose: a writer waits while its buffer is full, and cannot write after it has shut down.
    #[test]
    fn writes_wait_and_end() {
        let (_feed, incoming) = channel(8, Waker::noop().clone());
        let (outgoing, mut content) = sender(4);
        let mut upgraded = Upgraded { incoming, outgoing };
        let mut write = |bytes: &[u8]| Pin::new(&mut upgraded).poll_write(&mut context(), bytes);
        assert!(matches!(write(b"abcd"), Poll::Ready(Ok(4))));
        assert!(write(b"e").is_pending());
        let piece = Pin::new(&mut content).poll_next(&mut context());
        assert_eq!(piece, Poll::Ready(Some(Ok(Bytes::from("abcd")))));
        assert!(matches!(write(b"e"), Poll::Ready(Ok(1))));
        assert!(Pin::new(&mut upgraded).poll_shutdown(&mut context()).is_ready());
        let late = Pin::new(&mut upgraded).poll_write(&mut context(), b"f");
        let Poll::Ready(Err(late)) = late else { panic!("it is shut down") };
        assert_eq!(late.kind(), io::ErrorKind::BrokenPipe);
        let piece = Pin::new(&mut content).poll_next(&mut context());
        assert_eq!(piece, Poll::Ready(Some(Ok(Bytes::from("e")))));
        assert_eq!(Pin::new(&mut content).poll_next(&mut context()), Poll::Ready(None));
    }
}
