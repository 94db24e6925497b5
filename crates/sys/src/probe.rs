//! Which driver works here, and if one does not, why? The probe does on a small scale what the
//! driver does: a version number says nothing about seccomp profiles, sysctls or backports.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;

use crate::uring;

/// The kernel interface that moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// [`uring::Uring`]: one system call per batch.
    Uring,
    /// [`epoll::Epoll`](crate::epoll::Epoll): works everywhere.
    Epoll,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Uring => "uring",
            Transport::Epoll => "epoll",
        })
    }
}

/// The result of [`probe`].
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// Whether the io_uring driver works; if not, the refused operation and the likely cause.
    pub uring: Result<(), String>,
    /// The kernel's release, as `uname -r` prints it. For people to read; code must not depend on
    /// it.
    pub kernel: String,
}

impl Capabilities {
    /// The fastest transport that works here.
    pub fn best(&self) -> Transport {
        if self.uring.is_ok() { Transport::Uring } else { Transport::Epoll }
    }
}

/// Tries what the drivers need. Takes well under a millisecond and leaves nothing behind.
pub fn probe() -> Capabilities {
    Capabilities { uring: uring::try_out().map_err(|error| explain(&error)), kernel: release() }
}

/// The failed step with its error, and what usually causes it.
fn explain(error: &uring::Refusal) -> String {
    let number = error.cause.raw_os_error();
    let likely = match number {
        Some(libc::EPERM | libc::EACCES) => {
            "a seccomp profile such as Docker's default, or the sysctl kernel.io_uring_disabled, \
             refuses it"
        }
        Some(libc::ENOSYS) => "this kernel was built without io_uring, or a sandbox hides it",
        Some(libc::EINVAL) => "this kernel is too old: Linux 6.0 or later is needed",
        Some(libc::ENOMEM) => "no memory may be locked: raise RLIMIT_MEMLOCK",
        _ => return format!("{}: {}", error.step, error.cause),
    };
    format!("{}: {} ({likely})", error.step, name(&error.cause))
}

fn name(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EPERM) => "EPERM".to_owned(),
        Some(libc::EACCES) => "EACCES".to_owned(),
        Some(libc::ENOSYS) => "ENOSYS".to_owned(),
        Some(libc::EINVAL) => "EINVAL".to_owned(),
        Some(libc::ENOMEM) => "ENOMEM".to_owned(),
        _ => error.to_string(),
    }
}

fn release() -> String {
    let mut names = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: `names` is valid for writes for the duration of the call.
    unsafe { libc::uname(names.as_mut_ptr()) };
    // SAFETY: all-zero bytes are a valid `utsname`, whether or not the call filled it.
    let names = unsafe { names.assume_init() };
    // SAFETY: the array is zero-terminated: by the kernel, or because it was zeroed.
    let release = unsafe { CStr::from_ptr(names.release.as_ptr()) };
    release.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: an operator can tell from the text what was refused, how, and what to change.
    #[test]
    fn refusals_name_step_error_and_remedy() {
        let refusal = |number| uring::Refusal {
            step: "io_uring_setup",
            cause: io::Error::from_raw_os_error(number),
        };
        let text = explain(&refusal(libc::EPERM));
        assert!(text.starts_with("io_uring_setup: EPERM (") && text.contains("seccomp"), "{text}");
        assert!(explain(&refusal(libc::EMFILE)).starts_with("io_uring_setup: Too many open files"));
    }

    /// Purpose: probing leaves no descriptor open and answers the same twice.
    #[test]
    fn leaves_nothing_behind() {
        let first = probe();
        assert!(!first.kernel.is_empty());
        assert_eq!(first.uring.is_ok(), probe().uring.is_ok());
    }
}
