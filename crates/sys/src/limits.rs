//! How many descriptors may this process have, and how much freed memory does its allocator keep?

use std::io;

use crate::call::{check, number};

/// `RLIMIT_NOFILE`: one more than the highest descriptor number this process may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// The limit in force.
    pub soft: u64,
    /// The highest soft limit that the process may set without a privilege.
    pub hard: u64,
}

/// The current limit.
///
/// # Errors
/// Whatever `getrlimit(2)` reports.
pub fn descriptors() -> io::Result<DescriptorLimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes for the duration of the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    Ok(DescriptorLimit { soft: limit.rlim_cur, hard: limit.rlim_max })
}

/// `RLIMIT_FSIZE`: the largest file that this process may write, bytes.
///
/// # Errors
/// Whatever `getrlimit(2)` reports.
pub(crate) fn file_size() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes for the duration of the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) })?;
    Ok(limit.rlim_cur)
}

/// What to do when this process has no descriptor left.
pub(crate) const DESCRIPTORS_REMEDY: &str =
    "; raise the limit on open files, with ulimit -n, or LimitNOFILE= in systemd";

/// The remedy for an error of starting a worker, to be appended to its text; empty if none is known.
pub fn start_remedy(error: &io::Error) -> &'static str {
    match number(error) {
        Some(libc::EMFILE) => DESCRIPTORS_REMEDY,
        Some(libc::ENFILE) => {
            "; this machine allows no more open files: raise the sysctl fs.file-max"
        }
        Some(libc::EAGAIN) => {
            "; no more threads are allowed: raise the limit, with ulimit -u, TasksMax= in systemd, or --pids-limit in \
             Docker, or give fewer --workers"
        }
        Some(libc::ENOMEM) => {
            "; a ring of io_uring needs memory that may be locked: raise the limit, with ulimit -l, or LimitMEMLOCK= in \
             systemd, or give --transport auto, which serves over epoll without it"
        }
        _ => "",
    }
}

/// Raises the soft limit to the hard one, for the whole process, and returns the limit in force.
///
/// # Errors
/// Whatever `setrlimit(2)` reports; the limit is then what it was.
pub fn raise_descriptors() -> io::Result<DescriptorLimit> {
    let DescriptorLimit { soft, hard } = descriptors()?;
    if soft < hard {
        set_descriptors(hard, hard)?;
    }
    descriptors()
}

/// Sets the soft limit, which may be lower than before. For the whole process.
///
/// # Errors
/// `EINVAL` above the hard limit.
pub fn set_descriptors_soft(soft: u64) -> io::Result<()> {
    set_descriptors(soft, descriptors()?.hard)
}

fn set_descriptors(soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    // SAFETY: `limit` is valid for reads for the duration of the call.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })?;
    Ok(())
}

/// Freed memory that the allocator keeps at the end of each arena, bytes. An arena is mostly one worker's.
#[cfg(target_env = "gnu")]
const FREED_KEPT: i32 = 8 * 1024 * 1024;
/// Allocations from here on are mapped, and unmapped when they are freed, bytes.
#[cfg(target_env = "gnu")]
const MAPPED_MIN: i32 = 4 * 1024 * 1024;
/// The variables by which a user tunes this, or another thing of the allocator.
#[cfg(target_env = "gnu")]
const TUNED_BY: [&str; 3] = ["GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"];

/// Makes glibc's allocator keep some megabytes that were freed, for the whole process, unless a user has tuned it by
/// `GLIBC_TUNABLES` or the variables of `mallopt(3)`. By default it returns everything beyond 128 KiB to the kernel at once:
/// the bodies of a few uploads are returned when they are freed, and each page is faulted in again for the next upload, which
/// costs more than receiving it. Other allocators are not affected.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    if !TUNED_BY.iter().any(|name| std::env::var_os(name).is_some()) {
        for (parameter, bytes) in
            [(libc::M_MMAP_THRESHOLD, MAPPED_MIN), (libc::M_TRIM_THRESHOLD, FREED_KEPT)]
        {
            // SAFETY: sets one number, under the allocator's lock, and gets no pointer. A refusal changes nothing.
            unsafe { libc::mallopt(parameter, bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: memory that is freed and allocated again costs no page faults, as it would with glibc's own threshold.
    #[test]
    #[cfg(target_env = "gnu")]
    fn freed_memory_is_kept() {
        keep_freed_memory();
        let bodies = || -> Vec<Vec<u8>> { (0..16).map(|_| vec![1; 64 * 1024]).collect() };
        // An arena of its own, as a worker has.
        let faults = std::thread::spawn(move || {
            drop(bodies());
            let before = page_faults();
            (0..10).for_each(|_| drop(bodies()));
            page_faults() - before
        });
        // A round has 256 pages.
        let faults = faults.join().unwrap();
        assert!(faults < 200, "{faults} page faults in ten rounds");
    }

    /// Those of this thread that needed no disk: the tenth field of `stat` (proc(5)).
    #[cfg(target_env = "gnu")]
    fn page_faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let after_name = stat.rsplit_once(')').unwrap().1;
        after_name.split_whitespace().nth(7).unwrap().parse().unwrap()
    }

    /// Purpose: the remedy is found behind the name of the step that failed.
    #[test]
    fn a_step_keeps_its_remedy() {
        let failed = io::Error::from_raw_os_error(libc::EMFILE);
        let named = crate::call::context(crate::call::context(failed, "a ring"), "a worker");
        assert_eq!(named.to_string(), "a worker: a ring: Too many open files (os error 24)");
        assert!(start_remedy(&named).contains("LimitNOFILE="));
        assert_eq!(start_remedy(&io::Error::other("a worker: Too many open files")), "");
    }

    /// Purpose: after raising, nothing is left to raise, and the hard limit is untouched.
    #[test]
    fn raise_reaches_the_hard_limit() {
        let before = descriptors().unwrap();
        let after = raise_descriptors().unwrap();
        assert_eq!(after, DescriptorLimit { soft: before.hard, hard: before.hard });
    }
}
