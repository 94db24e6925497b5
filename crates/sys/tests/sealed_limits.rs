//! What sealed files may take of a process, and what sending from them must not do to it. In its own binary, because
//! limits and signals belong to the whole process.
#![cfg(all(target_os = "linux", not(highwater_portable_only)))]

mod common;

use std::io::{ErrorKind, Read};
use std::process::Command;
use std::sync::Mutex;

use bytes::Bytes;
use common::*;
use highwater_core::driver::{Output, Then};
use highwater_sys::limits;
use highwater_sys::sealed::{DESCRIPTORS_PER_FILE, SEALED_FILES_MAX, seal};

/// One test at a time.
static PROCESS: Mutex<()> = Mutex::new(());

/// Purpose: there are as many files as the bound says and none more, and one that goes makes room for another.
#[test]
fn number_of_files() {
    let _alone = PROCESS.lock();
    let limit = limits::raise_descriptors().expect("it can be asked for");
    let few = 10;
    limits::set_descriptors_soft(few * DESCRIPTORS_PER_FILE + DESCRIPTORS_PER_FILE - 1)
        .expect("it is lower");
    let mut files: Vec<Bytes> =
        (0..few).map(|n| seal(&[n as u8; 100]).expect("within the bound")).collect();
    assert_eq!(seal(b"one more").unwrap_err().kind(), ErrorKind::QuotaExceeded);
    files.pop();
    files.push(seal(b"another").expect("one is gone"));
    assert_eq!(seal(b"one more").unwrap_err().kind(), ErrorKind::QuotaExceeded);
    limits::set_descriptors_soft(limit.hard).expect("it may be raised again");
    if limit.hard < DESCRIPTORS_PER_FILE * SEALED_FILES_MAX as u64 {
        return highwater_skip::skip("descriptors", "the limit is too low for the whole bound");
    }
    while files.len() < SEALED_FILES_MAX {
        files.push(seal(&[1; 100]).expect("within the bound"));
    }
    assert_eq!(seal(b"one more").unwrap_err().kind(), ErrorKind::QuotaExceeded);
    drop(files);
    seal(b"again").expect("all are gone");
}

/// Purpose: where the process may not write such large files, it is told so, and not ended by SIGXFSZ.
#[test]
fn size_of_a_file() {
    // In a process whose output is a pipe: the limit holds for a log, too, to which the other tests write meanwhile.
    const CHILD: &str = "SEALED_LIMITS_CHILD";
    if std::env::var_os(CHILD).is_none() {
        let program = std::env::current_exe().expect("it has a path");
        let mut child = Command::new(program);
        child.args(["--exact", "size_of_a_file", "--nocapture"]).env(CHILD, "1");
        let output = child.output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `before` is valid for writes.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut before) };
    let low = libc::rlimit { rlim_cur: 100_000, ..before };
    // SAFETY: `low` is valid for reads.
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const low) };
    let (fits, is_too_large) = (seal(&[1; 100_000]), seal(&[1; 100_001]));
    // SAFETY: `before` is valid for reads.
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const before) };
    assert_eq!(fits.expect("it may be so large").len(), 100_000);
    assert_eq!(is_too_large.unwrap_err().kind(), ErrorKind::FileTooLarge);
}

on_each! {
    /// Purpose: a program that wants to be ended by SIGPIPE, as filters do, is not ended by a client that hangs up.
    fn broken_pipe<D>() {
        let _alone = PROCESS.lock();
        // SAFETY: the default action is always valid.
        let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        let tail = seal(&pattern(40_000_000)).expect("there are descriptors");
        rig.send_output(id, Output { bytes: Vec::new(), tail }, Then::Keep);
        rig.until_seen(&Seen::Progress(id));
        client.read_exact(&mut [0; 9]).unwrap();
        drop(client); // With unread bytes: a reset.
        rig.until_seen(&Seen::Closed(id));
        // SAFETY: it was the action before.
        unsafe { libc::signal(libc::SIGPIPE, before) };
    }
}
