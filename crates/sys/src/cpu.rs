//! Which cores may this process use, and how many workers should it start?

use std::io;
use std::mem;

use crate::call::check;

/// How many workers to start by default: the cores that the affinity mask allows, or fewer when a
/// cgroup's CPU quota (v2 or v1) grants less time than that. At least 1.
///
/// A quota is rounded down to whole cores: with one worker too many, the kernel would throttle all
/// of them together.
pub fn suggested_workers() -> usize {
    // The standard library reads the affinity mask and the cgroup files of every ancestor.
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The cores this thread may run on, in ascending order.
///
/// # Errors
/// Whatever `sched_getaffinity(2)` reports.
pub fn allowed() -> io::Result<Vec<usize>> {
    // A kernel built for more cores than the mask has room for answers EINVAL: try a larger one.
    // 1024 words are 65 536 cores, eight times what Linux can be built for.
    let mut words = 16;
    loop {
        let mut mask = vec![0_u64; words];
        let size = mem::size_of_val(mask.as_slice());
        // SAFETY: `mask` is valid for writes of `size` bytes, and any bit pattern is a valid u64.
        let result = check(unsafe { libc::sched_getaffinity(0, size, mask.as_mut_ptr().cast()) });
        match result {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && words < 1024 => words *= 4,
            Err(error) => return Err(error),
            Ok(_) => return Ok(bits(&mask)),
        }
    }
}

/// Keeps the calling thread on one core.
///
/// # Errors
/// `EINVAL` if this process may not use `core`, or it does not exist.
pub fn pin_thread(core: usize) -> io::Result<()> {
    pin_thread_to(&[core])
}

/// Keeps the calling thread, and the threads it will start, on these cores.
///
/// # Errors
/// `EINVAL` if this process may use none of them, or none exists.
pub fn pin_thread_to(cores: &[usize]) -> io::Result<()> {
    let mask = mask(cores);
    let size = mem::size_of_val(mask.as_slice());
    // SAFETY: `mask` is valid for reads of `size` bytes.
    check(unsafe { libc::sched_setaffinity(0, size, mask.as_ptr().cast()) })?;
    Ok(())
}

/// Makes the calling thread run only while its core has nothing else to do (`SCHED_IDLE`).
///
/// # Errors
/// Whatever `sched_setscheduler(2)` reports.
pub fn idle_thread() -> io::Result<()> {
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: `priority` is valid for reads.
    check(unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const priority) })?;
    Ok(())
}

/// The affinity mask of these cores; empty for none.
pub(crate) fn mask(cores: &[usize]) -> Vec<u64> {
    let words = cores.iter().max().map_or(0, |last| last / 64 + 1);
    let mut mask = vec![0_u64; words];
    cores.iter().for_each(|core| mask[core / 64] |= 1 << (core % 64));
    mask
}

fn bits(mask: &[u64]) -> Vec<usize> {
    let set = |&core: &usize| mask[core / 64] >> (core % 64) & 1 == 1;
    (0..mask.len() * 64).filter(set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: core numbers come out of the mask in order, across word borders.
    #[test]
    fn mask_to_cores() {
        assert_eq!(bits(&[0b1001, 1 << 63, 0, 1]), [0, 3, 127, 192]);
        assert_eq!(bits(&[0]), [0_usize; 0]);
        for cores in [&[][..], &[0], &[63, 64], &[3, 127, 192]] {
            assert_eq!(bits(&mask(cores)), cores);
        }
    }

    /// Purpose: a pinned thread is allowed exactly its core, and an absent core is refused.
    #[test]
    fn pin_then_read_back() {
        let core = *allowed().unwrap().last().expect("a running thread has a core");
        std::thread::spawn(move || {
            pin_thread(core).unwrap();
            assert_eq!(allowed().unwrap(), [core]);
            assert_eq!(pin_thread(60_000).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        })
        .join()
        .unwrap();
    }
}
