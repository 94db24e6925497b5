//! The batcher of the second system that inspired this one, rebuilt to count what it delivers.
//!
//! It is built as that one is: 256 slots of 4 MiB, one for each thread by its number; a producer copies its message behind
//! the last and moves the slot's position, without any synchronization; one thread looks at all slots, takes what stands in
//! one that holds 3 MiB or has overflowed, sets its position to 0, and sleeps for 100 µs when it has found nothing. A slot
//! that overflows notes how much was in it and begins again at its start. Messages stand side by side without a frame,
//! and nothing limits a producer. Plain Java fields and arrays are atomics with relaxed order here, which compile to
//! the same plain loads and stores; a message is one word, so that none can be torn in the middle.
//!
//! What is different: only the slots in use are allocated; and the sink, which there added lengths, marks each message in a
//! bitmap here, so that lost and repeated ones are known.

use std::hint::spin_loop;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::thread;
use std::time::{Duration, Instant};

/// Words of a slot: 4 MiB.
const SLOT: usize = (4 << 20) / 8;
/// Words from which on a slot is taken: 3 MiB.
const TAKEN_FROM: usize = (3 << 20) / 8;
const SLOTS: usize = 256;
const IDLE: Duration = Duration::from_micros(100);
/// The most messages of a producer that can be told apart.
const MESSAGES_MAX: u64 = 1 << 31;

struct Slot {
    words: Vec<AtomicU64>,
    position: AtomicUsize,
    ready: AtomicUsize,
}

impl Slot {
    fn new() -> Slot {
        let words = (0..SLOT).map(|_| AtomicU64::new(0)).collect();
        Slot { words, position: AtomicUsize::new(0), ready: AtomicUsize::new(0) }
    }

    fn send(&self, message: u64) {
        let mut position = self.position.load(Relaxed);
        if position + 1 > SLOT {
            self.ready.store(position, Relaxed);
            position = 0;
        }
        self.words[position].store(message, Relaxed);
        self.position.store(position + 1, Relaxed);
    }

    /// What the thread that looks at all slots does with this one. Whether there was something.
    fn look(&self, sink: &mut Sink) -> bool {
        let ready = self.ready.load(Relaxed);
        if ready > 0 {
            sink.take(&self.words[..ready]);
            self.ready.store(0, Relaxed);
            return true;
        }
        let position = self.position.load(Relaxed);
        if position >= TAKEN_FROM {
            sink.take(&self.words[..position]);
            self.position.store(0, Relaxed);
            return true;
        }
        false
    }

    /// What closing does.
    fn close(&self, sink: &mut Sink) {
        sink.take(&self.words[..self.position.load(Relaxed)]);
        sink.take(&self.words[..self.ready.load(Relaxed)]);
    }
}

/// Which messages have arrived, and how many again.
#[derive(Default)]
struct Sink {
    seen: Vec<Vec<u64>>,
    arrived: u64,
    again: u64,
    copy: Vec<u64>,
}

impl Sink {
    fn take(&mut self, words: &[AtomicU64]) {
        self.copy.clear();
        self.copy.extend(words.iter().map(|word| word.load(Relaxed)));
        for message in &self.copy {
            let (producer, number) = ((message >> 32) as usize, *message as u32);
            let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
            let seen = &mut self.seen[producer];
            if word >= seen.len() {
                seen.resize((word + 1).next_power_of_two(), 0);
            }
            self.arrived += 1;
            self.again += u64::from(seen[word] & bit != 0);
            seen[word] |= bit;
        }
    }
}

/// What a run came to.
pub(crate) struct Outcome {
    /// Messages that producers have sent.
    pub(crate) sent: u64,
    /// How long they took to send them.
    pub(crate) took: Duration,
    /// Messages that arrived, each counted once.
    pub(crate) distinct: u64,
    /// Messages that arrived once more.
    pub(crate) again: u64,
    /// Of `distinct`: what had arrived before the slots were closed.
    pub(crate) before_close: u64,
}

/// Sends from so many producers for so long, each at `rate` messages per second or as fast as it can.
pub(crate) fn run(producers: usize, rate: Option<u64>, duration: Duration) -> Outcome {
    let slots: Vec<Slot> = (0..producers).map(|_| Slot::new()).collect();
    let is_over = AtomicBool::new(false);
    let mut sink = Sink { seen: vec![Vec::new(); producers], ..Sink::default() };
    let mut before_close = 0;
    let began = Instant::now();
    let mut took = duration;
    let sent: u64 = thread::scope(|scope| {
        let producing: Vec<_> = slots
            .iter()
            .enumerate()
            .map(|(producer, slot)| scope.spawn(move || produce(slot, producer, rate, duration)))
            .collect();
        let (slots, is_over, sink) = (&slots, &is_over, &mut sink);
        let before_close = &mut before_close;
        let flusher = scope.spawn(move || {
            while !is_over.load(Relaxed) {
                let found = slots.iter().filter(|slot| slot.look(sink)).count();
                // It looks at all of them, in use or not.
                (slots.len()..SLOTS).for_each(|_| spin_loop());
                if found == 0 {
                    thread::sleep(IDLE);
                }
            }
            *before_close = sink.arrived - sink.again;
            slots.iter().for_each(|slot| slot.close(sink));
        });
        let sent = producing.into_iter().map(|thread| thread.join().expect("it counts")).sum();
        took = began.elapsed();
        is_over.store(true, Relaxed);
        flusher.join().expect("it copies");
        sent
    });
    Outcome { sent, took, distinct: sink.arrived - sink.again, again: sink.again, before_close }
}

/// Prints what [`run`] came to.
pub(crate) fn report(producers: usize, rate: Option<u64>, duration: Duration) {
    let Outcome { sent, took, distinct, again, before_close } = run(producers, rate, duration);
    let percent = |part: u64| part as f64 * 100.0 / sent as f64;
    let rate = rate.map_or("unthrottled".to_owned(), |rate| format!("{rate} a second each"));
    println!(
        "slots     {producers} producer(s), {rate}: {:.1} M/s sent, {:.1} M/s arrived   lost {:.1} %   arrived again {:.1} %   \
         arrived before close() {:.1} %",
        sent as f64 / took.as_secs_f64() / 1e6,
        distinct as f64 / took.as_secs_f64() / 1e6,
        percent(sent - distinct),
        percent(again),
        percent(before_close),
    );
}

/// Sends for so long. How many.
fn produce(slot: &Slot, producer: usize, rate: Option<u64>, duration: Duration) -> u64 {
    let (began, mut sent) = (Instant::now(), 0_u64);
    loop {
        let elapsed = began.elapsed();
        if elapsed >= duration || sent >= MESSAGES_MAX {
            return sent;
        }
        let due = match rate {
            None => sent + 4096,
            Some(rate) => (rate as f64 * elapsed.as_secs_f64()) as u64,
        };
        if due == sent {
            thread::sleep(Duration::from_micros(50));
        }
        while sent < due {
            slot.send((producer as u64) << 32 | sent);
            sent += 1;
        }
    }
}
