//! The drivers against the driver contract: waiting, being woken, and being waited for.

mod common;

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::*;
use highwater_core::driver::{Then, Wait};
use highwater_core::time::Clock;

on_each! {
    /// Purpose: a timeout is kept from below, and zero does not wait.
    fn timeouts<D>() {
        let mut rig = Rig::<D>::new();
        rig.settle();
        let start = rig.driver.clock().now();
        while rig.driver.clock().now() - start < Duration::from_millis(30) {
            let until = rig.driver.clock().now() + Duration::from_millis(30);
            rig.driver.poll(Wait::Until(until), &mut |event| panic!("{event:?}")).unwrap();
        }
        let start = Instant::now();
        for _ in 0..100 {
            rig.poll(Duration::ZERO);
        }
        assert!(start.elapsed() < HANG / 2);
    }
}

on_each! {
    /// Purpose: a wake from another thread ends a poll that would wait for ever, each time.
    fn waker_interrupts_a_poll<D>() {
        let mut rig = Rig::<D>::new();
        rig.settle();
        let waker = rig.driver.waker();
        let (asleep, wake) = mpsc::channel::<()>();
        let told = Arc::new(AtomicU32::new(0));
        let tell = told.clone();
        let thread = thread::spawn(move || {
            for () in wake {
                tell.fetch_add(1, Ordering::Relaxed);
                waker.wake();
            }
        });
        for round in 1..=1_000 {
            asleep.send(()).unwrap();
            // Returns without an event, but may also do so earlier.
            while told.load(Ordering::Relaxed) < round {
                rig.driver.poll(Wait::Forever, &mut |event| panic!("{event:?}")).unwrap();
            }
        }
        drop(asleep);
        thread.join().unwrap();
    }
}

on_each! {
    /// Purpose: wakes before a poll coalesce into one, and what was written before each is seen.
    fn wakes_coalesce<D>() {
        let mut rig = Rig::<D>::new();
        rig.settle();
        let (waker, written) = (rig.driver.waker(), Arc::new(AtomicU32::new(0)));
        let threads: Vec<_> = (0..4).map(|_| {
            let (waker, written) = (waker.clone(), written.clone());
            thread::spawn(move || for _ in 0..1_000 {
                written.fetch_add(1, Ordering::Relaxed);
                waker.wake();
            })
        }).collect();
        while written.load(Ordering::Relaxed) < 4_000 {
            rig.driver.poll(Wait::Forever, &mut |event| panic!("{event:?}")).unwrap();
        }
        for thread in threads {
            thread.join().unwrap();
        }
        rig.settle();
        // Nothing is left over: a poll now waits for its whole timeout.
        let start = Instant::now();
        rig.poll(Duration::from_millis(20));
        assert!(start.elapsed() >= Duration::from_millis(20));
        waker.wake();
        waker.wake();
        rig.driver.poll(Wait::Forever, &mut |event| panic!("{event:?}")).unwrap();
    }
}

/// Waits as an event loop outside of the driver would.
fn park(fd: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which lives until the call returns.
    let count = unsafe { libc::poll(&mut poll, 1, HANG.as_millis() as i32) };
    count == 1
}

on_each! {
    /// Purpose: parked outside the driver, a waiter misses none of many requests.
    fn external_wait_loses_nothing<D>() {
        const ROUNDS: usize = 20_000;
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        rig.stream(id);
        let pinger = thread::spawn(move || {
            let mut pong = [0];
            for round in 0..ROUNDS {
                client.write_all(&[round as u8]).unwrap();
                client.read_exact(&mut pong).unwrap();
                assert_eq!(pong[0], round as u8);
            }
        });
        let (mut pings, mut sending) = (0, false);
        let mut parked = 0;
        while pings < ROUNDS || sending {
            let mut ping = None;
            rig.driver.poll(Wait::No, &mut |event| match event {
                highwater_core::driver::Event::Received(_, bytes) => ping = Some(bytes[0]),
                highwater_core::driver::Event::Sent(..) => sending = false,
                _ => {}
            }).unwrap();
            if let Some(ping) = ping {
                pings += 1;
                sending = true;
                let output = highwater_core::driver::Output { bytes: vec![ping], ..Default::default() };
                rig.driver.send(id, output, Then::Keep);
            } else if (pings < ROUNDS || sending) && rig.driver.prepare_wait().unwrap() {
                parked += 1;
                assert!(park(rig.driver.readiness_fd()), "slept through ping {pings}");
            }
        }
        pinger.join().unwrap();
        assert!(parked > 0);
    }
}

on_each! {
    /// Purpose: a wake and a new connection end an external wait too.
    fn external_wait_is_woken<D>() {
        let mut rig = Rig::<D>::new();
        rig.settle();
        let waker = rig.driver.waker();
        let woken = Arc::new(AtomicU32::new(0));
        let (asleep, wake) = mpsc::channel::<()>();
        let tell = woken.clone();
        let thread = thread::spawn(move || for () in wake {
            tell.fetch_add(1, Ordering::Relaxed);
            waker.wake();
        });
        for round in 1..=500 {
            asleep.send(()).unwrap();
            while woken.load(Ordering::Relaxed) < round {
                if rig.driver.prepare_wait().unwrap() {
                    assert!(park(rig.driver.readiness_fd()), "slept through wake {round}");
                }
                rig.poll(Duration::ZERO);
            }
        }
        drop(asleep);
        thread.join().unwrap();

        rig.settle();
        while !rig.driver.prepare_wait().unwrap() {
            rig.poll(Duration::ZERO);
        }
        let _client = rig.connect();
        assert!(park(rig.driver.readiness_fd()));
        rig.until("Accepted", |rig| rig.open() == 1);
    }
}
