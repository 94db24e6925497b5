//! The transports that a test over real sockets runs on.
#![allow(dead_code, unused_macros, unused_imports, reason = "no test file uses all of it")]

use highwater::server::TransportChoice;

/// The transports that work here. One that does not is said to be skipped.
pub(crate) fn transports() -> Vec<TransportChoice> {
    match highwater_sys::probe().uring {
        Ok(()) => vec![TransportChoice::Uring, TransportChoice::Epoll],
        Err(reason) => {
            highwater_skip::skip("io_uring", reason);
            vec![TransportChoice::Epoll]
        }
    }
}

/// Makes two tests of each function: one over io_uring, one over epoll.
macro_rules! on_both_transports {
    ($($(#[$doc:meta])* fn $name:ident($transport:ident) $body:block)*) => {$(
        mod $name {
            #[allow(unused_imports, reason = "not every test needs all")]
            use super::*;
            $(#[$doc])*
            fn test($transport: TransportChoice) $body

            #[test]
            fn over_uring() {
                match highwater_sys::probe().uring {
                    Ok(()) => test(TransportChoice::Uring),
                    Err(reason) => highwater_skip::skip("io_uring", reason),
                }
            }

            #[test]
            fn over_epoll() {
                test(TransportChoice::Epoll);
            }
        }
    )*};
}
pub(crate) use on_both_transports;
