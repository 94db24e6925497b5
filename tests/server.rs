//! The server under strain (`strained.rs`), in a process of its own.

use highwater_testkit::{Client, Process, program};

/// Runs `strained` with one worker and these `flags`, and waits until it serves. If `descriptors` are given, it can have
/// no more. A test gives the path of the program: `env!("CARGO_BIN_EXE_strained")`.
///
/// # Panics
/// If it does not start.
pub fn serve(strained: &str, flags: &[&str], descriptors: Option<u32>) -> Process {
    let mut command = match descriptors {
        None => program(strained),
        Some(count) => {
            let mut limited = program("prlimit");
            limited.arg(format!("--nofile={count}")).arg(strained);
            limited
        }
    };
    command.args(["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--workers", "1"]);
    Process::start(command.args(flags))
}

/// Has it allocate what it allocates once, so that what is allocated from now on is due to what is done to it from now
/// on. That includes every receive buffer it provides to the kernel.
///
/// # Panics
/// If it does not serve `/`.
pub fn warm_up(server: &Process) {
    let mut client = server.connect();
    for _ in 0..2000 {
        assert_eq!(client.get("/").status, 200);
    }
    let mut clients: Vec<Client> = (0..50).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send([b'\r'; 64 * 1024]).expect("open");
    }
    for client in &mut clients {
        assert_eq!(client.answer().status, 400);
    }
}
