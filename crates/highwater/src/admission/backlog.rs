//! How many connections found a listener's backlog full?
//!
//! A server that stops accepting at its limit refuses no connection itself: the backlog fills, and the kernel
//! drops further attempts. The kernel counts drops per listener; this module adds them up. Without them a
//! server at ten times its capacity would only look busy.
//!
//! Invariant: the total never falls, not even when a listener is closed.

use highwater_sys::ListenQueue;

/// The backlogs of one server.
#[derive(Debug, Default)]
pub(crate) struct Backlogs {
    /// Each listener, with its count when last read.
    listeners: Vec<(ListenQueue, u32)>,
    total: u64,
}

impl Backlogs {
    /// The backlogs of listeners, which are not kept open.
    pub(crate) fn of(queues: impl IntoIterator<Item = ListenQueue>) -> Self {
        let watch = |queue: ListenQueue| {
            let count = queue.overflows().unwrap_or(0);
            (queue, count)
        };
        Backlogs { listeners: queues.into_iter().map(watch).collect(), total: 0 }
    }

    /// Attempts to connect that found no room, since this value was made.
    pub(crate) fn overflowed(&mut self) -> u64 {
        for (queue, before) in &mut self.listeners {
            if let Some(count) = queue.overflows() {
                // The kernel's counter wraps around.
                self.total += u64::from(count.wrapping_sub(*before));
                *before = count;
            }
        }
        self.total
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::{Duration, Instant};

    use highwater_sys::Listener;

    use super::*;

    /// Purpose: dropped connections are counted and accepted ones are not, over several listeners, and no
    /// count is lost when one is closed.
    #[test]
    fn what_finds_no_room_is_counted() {
        let first = Listener::bind(([127, 0, 0, 1], 0).into(), 1).expect("a free port");
        let address = first.local_addr().expect("it is bound");
        let mut backlogs = Backlogs::of([first.queue()]);
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(100));
        // A backlog of one holds two, as Linux compares; the test accepts none.
        let waiting = [connect(), connect()];
        assert!(waiting.iter().all(Result::is_ok), "{waiting:?}");
        assert_eq!(backlogs.overflowed(), 0);
        let refused: Vec<_> = (0..5).map(|_| connect()).collect();
        assert!(refused.iter().all(Result::is_err), "{refused:?}");
        let until = Instant::now() + Duration::from_secs(10);
        while backlogs.overflowed() < 5 && Instant::now() < until {
            std::thread::yield_now();
        }
        let counted = backlogs.overflowed();
        assert!((5..20).contains(&counted), "{counted} of five, each sent again if that took long");
        drop((first, waiting));
        assert_eq!(backlogs.overflowed(), counted);
        assert!(
            TcpStream::connect(address).is_err(),
            "reading the counts must not keep a listener open"
        );
    }
}
