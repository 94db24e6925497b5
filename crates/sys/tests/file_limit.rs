//! A process that may write no larger file. In its own binary, because the limit and the signal belong to the whole process.
#![cfg(all(target_os = "linux", not(highwater_portable_only)))]

use std::io::{ErrorKind, Write as _};

use highwater_sys::signal::Signals;

/// Purpose: a server that reaches the largest file that it may write gets an error to handle. (SIGXFSZ ended it, and ended it
/// again after each restart.)
#[test]
fn a_file_that_is_too_large_is_an_error() {
    let _signals = Signals::catch().expect("there is room");
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `before` is valid for writes.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut before) };
    let path = std::env::temp_dir().join(format!("file-limit-{}", std::process::id()));
    let mut file = std::fs::File::create(&path).expect("a folder for temporary files");
    std::fs::remove_file(&path).expect("it is ours");
    let low = libc::rlimit { rlim_cur: 1000, ..before };
    // SAFETY: `low` is valid for reads.
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const low) };
    let outcomes = [file.write(&[1; 2000]), file.write(&[1; 2000])];
    // SAFETY: `before` is valid for reads.
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const before) };
    let outcomes = outcomes.map(|outcome| outcome.map_err(|error| error.kind()));
    assert_eq!(outcomes, [Ok(1000), Err(ErrorKind::FileTooLarge)]);
}
