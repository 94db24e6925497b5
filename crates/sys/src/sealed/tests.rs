//! Sealed files, and what the drivers make of them.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::thread;
use std::time::Duration;

use highwater_core::driver::{Accepting, Event, ListenerId, Output, Then, Wait};

use super::*;
use crate::{DriverConfig, External, Listener};

thread_local! {
    /// Bytes that this thread has sent from files.
    pub(super) static SENT: Cell<usize> = const { Cell::new(0) };
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 4096 + at % 251) as u8).collect()
}

fn path(place: &Place<'_>) -> String {
    format!("/proc/self/fd/{}", place.file.as_raw_fd())
}

/// How many descriptors of this process are of that file.
fn descriptors_of(inode: u64) -> usize {
    let entries = fs::read_dir("/proc/self/fd").unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    // One of them is of that folder, and others come and go.
    paths.filter(|path| fs::metadata(path).is_ok_and(|of| of.ino() == inode)).count()
}

/// Purpose: sealed content is the content, and nothing can change it, so that a client never gets half of one state.
#[test]
fn cannot_change() {
    let original = content(100_000);
    let sealed = seal(&original).unwrap();
    assert!(sealed == original);
    let place = find(&sealed).expect("it is in a file");
    let mut file = File::options().read(true).write(true).open(path(&place)).unwrap();
    let denied = |result: std::io::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::PermissionDenied);
    };
    denied(file.write_all(b"x"));
    denied(file.set_len(10));
    denied(file.set_len(200_000));
    assert!(sealed == original);
    assert_eq!(seal(b"").unwrap(), b"".as_slice());
    assert!(sealed.try_into_mut().is_err(), "nobody may get the memory to write to it");
}

/// Purpose: each part of sealed content is found at its own place, and other bytes at none.
#[test]
fn places() {
    let original = content(300_000);
    let (sealed, other) = (seal(&original).unwrap(), seal(&content(70_000)).unwrap());
    for (from, to) in [(0, 300_000), (1, 300_000), (0, SEALED_BYTES_MIN), (200_001, 299_999)] {
        let part = sealed.slice(from..to);
        let place = find(&part).expect("a part of a file");
        assert_eq!((place.offset, place.len), (from, to - from));
        let mut read = vec![0; place.len];
        File::open(path(&place)).unwrap().read_exact_at(&mut read, place.offset as u64).unwrap();
        assert!(read == original[from..to]);
    }
    assert_eq!(find(&other).expect("a file of its own").offset, 0);
    assert!(find(&original).is_none(), "it was copied, and is in no file");
    assert!(find(&sealed[..SEALED_BYTES_MIN - 1]).is_none(), "a copy is as good");
}

/// Purpose: file, memory and descriptor last as long as any part of the content, and no longer.
#[test]
fn lasts_as_long_as_needed() {
    let original = content(200_000);
    let sealed = seal(&original).unwrap();
    let inode = fs::metadata(path(&find(&sealed).unwrap())).unwrap().ino();
    let part = sealed.slice(100_000..);
    drop(sealed);
    assert!(descriptors_of(inode) == 1 && find(&part).is_some() && part == original[100_000..]);
    let at = part.as_ptr().addr();
    drop(part);
    assert_eq!(descriptors_of(inode), 0);
    let files = FILES.read().unwrap();
    // Another test's file may have taken the addresses.
    assert!(files.range(..=at).next_back().is_none_or(|(_, listed)| listed.len != 200_000));
}

/// What a driver sends from files, of one answer with `tail`, to a client that reads it all.
fn sent_from_files<D: External>(start: impl FnOnce(Vec<Listener>) -> D, tail: Bytes) -> usize {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), 8).unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut driver = start(vec![listener]);
    driver.accept(ListenerId(0), Accepting::On);
    let expected = [b"head", &tail[..]].concat();
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        client.read_to_end(&mut all).map(|_| all == expected)
    });
    SENT.set(0);
    let (mut accepted, mut is_closed) = (None, false);
    while !is_closed {
        let on_event = &mut |event: Event<'_>| match event {
            Event::Accepted(id, ..) => accepted = Some(id),
            Event::Closed(_) => is_closed = true,
            _ => {}
        };
        driver.poll(Wait::Forever, on_event).unwrap();
        if let Some(id) = accepted.take() {
            driver.send(id, Output { bytes: b"head".to_vec(), tail: tail.clone() }, Then::Close);
        }
    }
    assert!(reader.join().unwrap().unwrap());
    SENT.get()
}

/// Purpose: both drivers of Linux send from the file what stands in one, however often the socket's buffer is full, and
/// nothing else.
#[test]
fn drivers_copy_nothing() {
    let config = &DriverConfig::default();
    let epoll = |listeners| crate::epoll::Epoll::new(listeners, config).unwrap();
    let uring = |listeners| crate::uring::Uring::new(listeners, config).unwrap();
    let has_uring = crate::probe().uring;
    for len in [SEALED_BYTES_MIN, 1 << 20, 20_000_000] {
        let (plain, sealed) = (Bytes::from(content(len)), seal(&content(len)).unwrap());
        // The end of what did not fit at once may be short, and is copied.
        let is_all = |sent: usize| sent <= len && sent > len - SEALED_BYTES_MIN;
        let (copied, from_file) =
            (sent_from_files(epoll, plain.clone()), sent_from_files(epoll, sealed.clone()));
        assert!(copied == 0 && is_all(from_file), "epoll: {copied}, {from_file} of {len}");
        if has_uring.is_ok() {
            let (copied, from_file) =
                (sent_from_files(uring, plain), sent_from_files(uring, sealed));
            assert!(copied == 0 && is_all(from_file), "io_uring: {copied}, {from_file} of {len}");
        }
    }
    if let Err(reason) = has_uring {
        highwater_skip::skip("io_uring", reason);
    }
}
