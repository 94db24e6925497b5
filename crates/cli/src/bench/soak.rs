//! How busy are some CPUs, including interrupts? The kernel counts by ticks and misses most of those.
//!
//! A thread of the lowest scheduling class on each of them reads the clock in a loop. A gap between two readings
//! means that something else had the CPU.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use highwater_sys::cpu;

/// The smallest gap that counts as other work: a turn of the loop takes 0.1 µs, the cheapest known refusal 2.
const GAP: Duration = Duration::from_nanos(1_000);
/// Duration of a turn.
const TURN: Duration = Duration::from_nanos(50);
/// How often the sum is recorded.
const EVERY: Duration = Duration::from_millis(20);
/// For the loops to have a turn after a span.
const REST: Duration = Duration::from_millis(500);
/// Before the load: for the CPU to become quiet, and to measure the losses of a quiet CPU.
const QUIET: Duration = Duration::from_millis(300);

/// Instants, and the time lost by then.
type Points = Vec<(Instant, Duration)>;

/// The loops. Dropping it ends them.
pub(super) struct Soak {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Points>>,
    /// A span without load.
    quiet: (Instant, Instant),
}

impl Soak {
    /// Starts a loop on each of `cpus`, and measures for a while their losses without load.
    ///
    /// # Errors
    /// A CPU may not be used.
    pub(super) fn start(cpus: &[usize]) -> Result<Soak, String> {
        let now = Instant::now();
        let is_over = Arc::new(AtomicBool::new(false));
        let mut soak = Soak { is_over, threads: Vec::new(), quiet: (now, now) };
        for &cpu in cpus {
            let is_over = Arc::clone(&soak.is_over);
            let (ready, is_ready) = std::sync::mpsc::channel();
            soak.threads.push(std::thread::spawn(move || {
                let pinned = cpu::pin_thread(cpu).and_then(|()| cpu::idle_thread());
                let is_pinned = pinned.is_ok();
                let _ = ready.send(pinned);
                if is_pinned { watch(&is_over) } else { Vec::new() }
            }));
            let pinned = is_ready.recv().map_err(|_| "the soak loop ended".to_owned())?;
            pinned.map_err(|error| format!("a soak loop on CPU {cpu}: {error}"))?;
        }
        std::thread::sleep(QUIET);
        let from = Instant::now();
        std::thread::sleep(REST);
        soak.quiet = (from, Instant::now());
        Ok(soak)
    }

    /// Ends the loops; returns their readings.
    pub(super) fn stop(mut self) -> Lost {
        std::thread::sleep(REST);
        self.is_over.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut self.threads);
        let cpus = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
        Lost { cpus, quiet: self.quiet }
    }
}

impl Drop for Soak {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

fn watch(is_over: &AtomicBool) -> Points {
    let mut points = Points::new();
    let mut lost = Duration::ZERO;
    let mut last = Instant::now();
    let mut due = last;
    while !is_over.load(Ordering::Relaxed) {
        let now = Instant::now();
        if now - last > GAP {
            lost += now - last - TURN;
        }
        last = now;
        if now >= due {
            points.push((now, lost));
            due = now + EVERY;
            // The time to allocate room for a point is not a loss.
            last = Instant::now();
        }
    }
    points
}

/// The time that other work took of some CPUs.
pub(super) struct Lost {
    cpus: Vec<Points>,
    quiet: (Instant, Instant),
}

impl Lost {
    /// How many CPUs other work took between two instants, without load and with it.
    ///
    /// # Errors
    /// A loop had no turn before or after: then nothing is known.
    pub(super) fn shares(&self, begin: Instant, end: Instant) -> Result<[f64; 2], String> {
        Ok([self.between(self.quiet.0, self.quiet.1)?, self.between(begin, end)?])
    }

    fn between(&self, begin: Instant, end: Instant) -> Result<f64, String> {
        let mut sum = 0.0;
        for points in &self.cpus {
            sum += at(points, end)? - at(points, begin)?;
        }
        Ok(sum / (end - begin).as_secs_f64())
    }
}

/// Seconds lost up to an instant: on a straight line between the points beside it.
fn at(points: &Points, instant: Instant) -> Result<f64, String> {
    let after = points.partition_point(|(at, _)| *at < instant);
    if after == 0 || after == points.len() {
        return Err("the server's CPU had no free moment before or after the load".to_owned());
    }
    let ((low, lost), (high, more)) = (points[after - 1], points[after]);
    let share = (instant - low).as_secs_f64() / (high - low).as_secs_f64();
    Ok(lost.as_secs_f64() + (more - lost).as_secs_f64() * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: losses between two points are interpolated, and beyond the points nothing is known.
    #[test]
    fn between_points() {
        let zero = Instant::now();
        let second = |count| zero + Duration::from_secs(count);
        let points: Points = [(0, 0), (1, 100), (3, 200), (4, 1200)]
            .map(|(at, lost)| (second(at), Duration::from_millis(lost)))
            .into();
        let lost = Lost { cpus: vec![points.clone(), points], quiet: (second(1), second(2)) };
        let near = |value: f64, expected: f64| (value - expected).abs() < 1e-9;
        let [quiet, loaded] = lost.shares(second(2), second(4)).expect("known");
        assert!(near(quiet, 0.1) && near(loaded, 1.05), "{quiet} {loaded}");
        assert!(lost.shares(second(1), second(5)).is_err());
        assert!(lost.shares(zero, second(1)).is_err(), "the first point is no turn before it");
    }

    /// Purpose: a loop sees that its CPU is used by another thread, and ends on request.
    #[test]
    fn a_busy_cpu_is_lost() {
        let cpu = cpu::allowed().expect("a running thread has a core")[0];
        let soak = Soak::start(&[cpu]).expect("the core is ours");
        let busy = std::thread::spawn(move || {
            cpu::pin_thread(cpu).expect("the core is ours");
            std::thread::sleep(Duration::from_millis(100));
            let began = Instant::now();
            while began.elapsed() < Duration::from_millis(300) {
                std::hint::spin_loop();
            }
            (began, Instant::now())
        });
        let (began, ended) = busy.join().expect("it only counts");
        // On a busy machine the loop may have had no turn before or after.
        if let Ok([_, lost]) = soak.stop().shares(began, ended) {
            assert!(lost > 0.8 && lost < 1.1, "{lost}");
        }
    }
}
