//! How are processes started so that none outlives its parent?
//!
//! A child can be made to end with its parent ([`tie`]), a process can adopt the orphans among its descendants
//! ([`adopt_orphans`], [`wait_any`]), and any process can be asked or forced to end ([`end`]).

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::ptr;
use std::time::Duration;

use crate::call::check;
use crate::cpu;

/// The signal that ends a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// SIGTERM: it may finish what it has begun.
    Ask,
    /// SIGINT, like Ctrl-C: for tools that then write their results.
    Interrupt,
    /// SIGKILL: at once.
    Kill,
}

impl End {
    fn number(self) -> i32 {
        match self {
            End::Ask => libc::SIGTERM,
            End::Interrupt => libc::SIGINT,
            End::Kill => libc::SIGKILL,
        }
    }
}

/// Makes `command` start a child that is sent `end` when the calling thread ends, for whatever reason; that runs only
/// on the cores `cpus` (if empty, on those of the calling thread); and that blocks no signal. Start it from a thread
/// that lives as long as the child should.
///
/// Programs that change their user or have capabilities of their own lose the tie (`prctl(2)`,
/// `PR_SET_PDEATHSIG`).
pub fn tie(command: &mut Command, cpus: &[usize], end: End) {
    let mask = cpu::mask(cpus);
    let parent = std::process::id();
    let prepare = move || {
        let mut none = MaybeUninit::uninit();
        // SAFETY: `none` is valid for writes.
        unsafe { libc::sigemptyset(none.as_mut_ptr()) };
        // SAFETY: `sigemptyset` initialised the set, and a null pointer for the old mask is allowed.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut()) };
        // SAFETY: takes no pointer.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, end.number()) })?;
        // If the parent ended before that call, no signal would be sent.
        // SAFETY: takes no pointer.
        if unsafe { libc::getppid() } != parent.cast_signed() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        if !mask.is_empty() {
            let size = size_of_val(mask.as_slice());
            // SAFETY: `mask` is valid for reads of `size` bytes.
            check(unsafe { libc::sched_setaffinity(0, size, mask.as_ptr().cast()) })?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec, `prepare` only makes system calls that are async-signal-safe, on memory
    // that was allocated before; it allocates nothing and takes no lock.
    unsafe { command.pre_exec(prepare) };
}

/// Makes this process the parent of every descendant whose own parent ends.
///
/// # Errors
/// Whatever `prctl(2)` reports.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: takes no pointer.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) })?;
    Ok(())
}

/// Waits until a child ends: its id, and how it ended. `None` if there is no child.
///
/// # Errors
/// Whatever `waitpid(2)` reports, except that it was interrupted.
pub fn wait_any() -> io::Result<Option<(u32, ExitStatus)>> {
    loop {
        let mut status = 0;
        // SAFETY: `status` is valid for writes.
        match check(unsafe { libc::waitpid(-1, &mut status, 0) }) {
            Ok(id) => return Ok(Some((id.cast_unsigned(), ExitStatus::from_raw(status)))),
            Err(error) => match error.raw_os_error() {
                Some(libc::ECHILD) => return Ok(None),
                Some(libc::EINTR) => {}
                _ => return Err(error),
            },
        }
    }
}

/// The CPU time, in user and kernel mode, of all children that have ended and been waited for, including that of their
/// own such children.
///
/// # Errors
/// Whatever `getrusage(2)` reports.
pub fn ended_children_cpu() -> io::Result<Duration> {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: `usage` is valid for writes of a `rusage`.
    check(unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) })?;
    // SAFETY: `getrusage` succeeded, so it filled it.
    let usage = unsafe { usage.assume_init() };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec.unsigned_abs())
            + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

/// Signals the process `id` to end.
///
/// # Errors
/// There is no such process, or it is not ours to end.
pub fn end(id: u32, how: End) -> io::Result<()> {
    let id = i32::try_from(id).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    // SAFETY: takes no pointer.
    check(unsafe { libc::kill(id, how.number()) })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::process::Stdio;

    use super::*;

    /// Purpose: a child runs on the core it is given, without the signals that its parent has blocked, and ends
    /// with the thread that started it.
    #[test]
    fn a_tied_child_ends_with_its_thread() {
        let core = *cpu::allowed().unwrap().last().expect("a running thread has a core");
        let mut child = std::thread::spawn(move || {
            // SAFETY: all zero bits are the empty set.
            let mut blocked: libc::sigset_t = unsafe { std::mem::zeroed() };
            // SAFETY: the set is initialised, and the number is a signal.
            unsafe { libc::sigaddset(&mut blocked, libc::SIGTERM) };
            // SAFETY: the set is initialised, and null for the old mask is allowed.
            unsafe {
                libc::pthread_sigmask(libc::SIG_BLOCK, &blocked, std::ptr::null_mut());
            }
            let mut command = Command::new("/bin/sh");
            // SIGTERM is not blocked, or the loop would not end; the trap is how one sees it.
            command.args([
                "-c",
                "grep -e Cpus_allowed_list -e SigBlk /proc/self/status; exec sleep 600",
            ]);
            tie(&mut command, &[core], End::Ask);
            let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
            let mut status = Vec::new();
            let stdout = child.stdout.as_mut().unwrap();
            while status.iter().filter(|byte| **byte == b'\n').count() < 2 {
                let mut byte = [0];
                stdout.read_exact(&mut byte).unwrap();
                status.push(byte[0]);
            }
            let status = String::from_utf8(status).unwrap();
            assert!(status.contains(&format!("Cpus_allowed_list:\t{core}\n")), "{status}");
            assert!(status.contains("SigBlk:\t0000000000000000\n"), "{status}");
            child
        })
        .join()
        .unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
    }

    /// Purpose: a child's CPU time counts once the child has been waited for, and includes that of its own child.
    #[test]
    fn children_that_ended_are_counted() {
        let before = ended_children_cpu().unwrap();
        let work = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done";
        let within = format!("sh -c '{work}'; exit 0");
        let status = Command::new("/bin/sh").args(["-c", &within]).status().unwrap();
        assert!(status.success());
        let used = ended_children_cpu().unwrap() - before;
        // Twenty thousand iterations in a shell take some milliseconds; a shell that only starts another one, less than
        // one.
        assert!(used > Duration::from_millis(2), "{used:?}");
    }

    /// Purpose: a signalled process ends; if it is gone already, that is an error and no other process is hit.
    #[test]
    fn end_is_for_those_that_live() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        end(child.id(), End::Kill).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert_eq!(end(child.id(), End::Ask).unwrap_err().raw_os_error(), Some(libc::ESRCH));
        assert_eq!(end(u32::MAX, End::Ask).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
