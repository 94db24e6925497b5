//! How does a test talk to a real program? With a process that ends with the test and whose log is kept, a client that
//! hides nothing, and waits that have a limit.
//!
//! ```text
//! let server = Process::start(program(env!("CARGO_BIN_EXE_…")).args(["--listen=127.0.0.1:0", …]));
//! assert_eq!(server.get("/health").status, 200);            on a connection of its own
//! let mut client = server.connect();                        kept
//! client.call("POST", "/todos", "Accept: */*\r\n", body);   an answer, or the test fails with the server's log
//! eventually("it is applied", || server.metric("queue_depth") == 0.0);
//! server.stop();                                            SIGTERM, and it ends well
//! ```
//!
//! What belongs to one program (its flags, its metrics' names) stands with that program's tests. A package of its own,
//! since the tests of several crates need it.
#![forbid(unsafe_code)]

mod addresses;
mod client;
mod disk;
mod document;
mod load;
mod log;
mod port;
mod process;
mod read;
mod recipe;
mod schemathesis;
mod typescript;
mod wait;

pub use addresses::refuses_wrong_addresses;
pub use client::{Answer, Client, get, request};
pub use disk::{SmallDisk, full_disk};
pub use document::{Call, Document};
pub use load::Load;
pub use port::lasting_ports;
pub use process::{Process, cpu_of, program};
pub use read::{read_some, until_readable};
pub use recipe::recipe;
pub use schemathesis::schemathesis;
pub use typescript::typescript;
pub use wait::{PATIENCE, eventually, eventually_some, within};
