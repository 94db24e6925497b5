//! The hot path of the drivers allocates nothing. In its own binary, because the allocator belongs
//! to the whole process.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};

use common::*;
use highwater_core::driver::{Event, Output, Then, Wait};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes everything to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's obligations are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are the same.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

on_each! {
    /// Purpose: once warm, a request on a kept connection costs no allocation between its arrival
    /// and the return of its buffer.
    fn round_trips_allocate_nothing<D>() {
        let mut rig = Rig::<D>::new();
        let (mut client, id) = rig.accepted();
        rig.stream(id);
        rig.settle();
        let mut buffer = Some(Vec::with_capacity(16));
        let mut warm = 0;
        for round in 0..1_100 {
            if round == 100 {
                warm = ALLOCATIONS.get();
            }
            client.write_all(b"?").unwrap();
            let mut received = false;
            while !received {
                let on_event = &mut |event: Event<'_>| received |= matches!(event, Event::Received(..));
                rig.driver.poll(Wait::Forever, on_event).unwrap();
            }
            let mut bytes = buffer.take().expect("it came back");
            bytes.extend_from_slice(b"answer");
            rig.driver.send(id, Output { bytes, ..Output::default() }, Then::Keep);
            while buffer.is_none() {
                let on_event = &mut |event: Event<'_>| {
                    if let Event::Sent(_, bytes) = event {
                        buffer = Some(bytes);
                    }
                };
                rig.driver.poll(Wait::Forever, on_event).unwrap();
            }
            client.read_exact(&mut [0; 6]).unwrap();
        }
        assert_eq!(ALLOCATIONS.get() - warm, 0);
    }
}
