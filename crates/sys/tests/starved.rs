//! Two processes accept from one socket, and one of them has no descriptors left.

mod common;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use highwater_core::driver::{AcceptError, Accepting, ConnId, Event, Output, Then, Wait};
use highwater_core::time::Clock;
use highwater_sys::{DriverConfig, Listener, limits};

/// In the environment of the process without descriptors, which is this program again; its standard input is the socket.
const STARVED: &str = "HIGHWATER_TEST_STARVED";

on_each! {
    /// Purpose: each connection is accepted although the kernel wakes first the process that has no descriptor left; nobody
    /// waits until that process tries again, or until somebody else connects.
    fn nobody_waits_for_it<D>() {
        if std::env::var_os(STARVED).is_some() {
            return starve::<D>();
        }
        let theirs = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = theirs.local_addr().unwrap();
        let socket = theirs.as_fd().try_clone_to_owned().unwrap();
        let name = std::thread::current().name().unwrap().to_owned();
        let mut starved = Starved::start(&name, socket);
        let mut driver = D::start(vec![shared(theirs)], &DriverConfig::default()).unwrap();
        driver.accept(FIRST, Accepting::On);
        let mut rig = Rig::<D>::of(driver, addr);
        rig.settle();
        // The second one finds that process without its spare descriptor, if it has used one for the first.
        for _ in 0..2 {
            starved.until_it_waits();
            let client = TcpStream::connect(addr).unwrap();
            client.set_nonblocking(true).unwrap();
            let mut answer = [0];
            rig.until("answer", |rig| {
                while let Some(id) = rig.log.iter().find_map(accepted) {
                    rig.log.clear();
                    rig.send(id, b"a", Then::Keep);
                }
                match (&client).read(&mut answer) {
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        false
                    }
                    Ok(len) => len == 1,
                }
            });
        }
    }
}

/// What the process without descriptors does: it answers what it can accept, and does not try again once that has failed.
fn starve<D: Subject>() {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut driver = D::start(vec![shared(socket.into())], &DriverConfig::default()).unwrap();
    driver.accept(FIRST, Accepting::On);
    driver.poll(Wait::No, &mut |_| {}).unwrap();
    let next = std::fs::File::open("/proc/self/stat").unwrap().as_raw_fd();
    limits::set_descriptors_soft(next as u64).unwrap();
    std::io::stdout().write_all(b"\nwaits\n").unwrap();
    // It is killed long before, unless the other process was.
    let end = driver.clock().now() + HANG * 3;
    while driver.clock().now() < end {
        let mut accepted = None;
        driver
            .poll(Wait::Until(end), &mut |event| match event {
                Event::Accepted(id, ..) => accepted = Some(id),
                Event::AcceptFailed(error) => assert_eq!(error, AcceptError::Descriptors),
                _ => {}
            })
            .unwrap();
        if let Some(id) = accepted {
            driver.send(id, Output { bytes: b"s".to_vec(), tail: Default::default() }, Then::Keep);
        }
    }
}

fn shared(listener: TcpListener) -> Listener {
    let mut listener = Listener::adopt(listener).unwrap();
    listener.set_kept();
    listener
}

fn accepted(seen: &Seen) -> Option<ConnId> {
    match seen {
        Seen::Accepted(id, ..) => Some(*id),
        _ => None,
    }
}

struct Starved(Child);

impl Starved {
    /// Starts the test `name` in a process of its own, and waits until it has no descriptors.
    fn start(name: &str, socket: OwnedFd) -> Starved {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(STARVED, "1")
            .stdin(Stdio::from(socket))
            .stdout(Stdio::piped())
            .spawn();
        let mut starved = Starved(child.unwrap());
        let lines = BufReader::new(starved.0.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "waits"), "it ended");
        starved
    }

    /// Waits until all of its threads sleep. If it was awake when somebody connects, the kernel would wake the other one.
    fn until_it_waits(&mut self) {
        let start = Instant::now();
        while !self.sleeps() {
            assert!(start.elapsed() < HANG, "it does not wait");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn sleeps(&mut self) -> bool {
        assert!(self.0.try_wait().unwrap().is_none(), "it ended");
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).unwrap();
        tasks.flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
        })
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
