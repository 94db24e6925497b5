//! The transports that a test over real sockets runs on.
#![allow(dead_code, unused_macros, unused_imports, reason = "no test file uses all of it")]

use highwater::server::TransportChoice;

/// The transports that work here. One that does not is said to be skipped.
pub(crate) fn transports() -> Vec<TransportChoice> {
    match highwater_sys::probe().uring {
        Ok(()) => vec![TransportChoice::Uring, TransportChoice::Epoll, TransportChoice::Portable],
        Err(reason) => {
            highwater_skip::skip("io_uring", reason);
            vec![TransportChoice::Epoll, TransportChoice::Portable]
        }
    }
}

/// Makes a test for each transport of each function.
macro_rules! on_each_transport {
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

            #[test]
            fn over_portable() {
                test(TransportChoice::Portable);
            }
        }
    )*};
}
pub(crate) use on_each_transport;
