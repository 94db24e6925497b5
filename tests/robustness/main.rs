//! What the server guarantees against slow, greedy, faulty or too many clients, and against
//! handlers that fail: checked from outside, over real sockets, on a server in a process of its
//! own.
#![expect(clippy::print_stdout, reason = "what was measured is worth reading")]

mod deadlines; // First in the alphabet, so that the minute it takes begins first.
mod drain;
mod gone;
mod handlers;
mod limits;
mod memory;
mod panics;
mod places;
mod privileges;
mod probes;
mod resources;
mod starts;
mod wakes;

use highwater_testkit::Process;

/// The transports, and the flag that selects each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Uring,
    Epoll,
    Portable,
}

impl Transport {
    /// Those that work here.
    fn available() -> Vec<Transport> {
        match highwater_sys::probe().uring {
            Ok(()) => vec![Transport::Uring, Transport::Epoll, Transport::Portable],
            Err(reason) => {
                highwater_skip::skip("io_uring", reason);
                vec![Transport::Epoll, Transport::Portable]
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Transport::Uring => "uring",
            Transport::Epoll => "epoll",
            Transport::Portable => "portable",
        }
    }

    /// A server with one worker and default settings, but for `flags`.
    fn serve(self, flags: &[&str]) -> Process {
        self.serve_within(None, flags)
    }

    /// The same with at most this many descriptors.
    fn serve_within(self, descriptors: Option<u32>, flags: &[&str]) -> Process {
        // A machine that is busy with other tests is soon overloaded, and what is refused then has tests of
        // its own.
        let flags = [&["--transport", self.name(), "--shed", "none"], flags].concat();
        highwater_tests::server::serve(env!("CARGO_BIN_EXE_strained"), &flags, descriptors)
    }
}

/// Makes of each function a test for each transport.
macro_rules! on_each_transport {
    ($($check:ident),* $(,)?) => {
        mod over_uring {
            $(
                #[test]
                fn $check() {
                    if let Err(reason) = highwater_sys::probe().uring {
                        return highwater_skip::skip("io_uring", reason);
                    }
                    super::$check(crate::Transport::Uring);
                }
            )*
        }
        mod over_epoll {
            $(
                #[test]
                fn $check() {
                    super::$check(crate::Transport::Epoll);
                }
            )*
        }
        mod over_portable {
            $(
                #[test]
                fn $check() {
                    super::$check(crate::Transport::Portable);
                }
            )*
        }
    };
}
use on_each_transport;
