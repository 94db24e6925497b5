//! What runs when a signal arrives?
//!
//! A handler may run at any moment, on any thread, in the middle of any code. So it only touches atomics, and writes to
//! descriptors that are never closed: a closed *ear* (a receiver of signals) keeps its descriptor for the next one.
//!
//! ```text
//!  installed by us ──▶ notes the signal in every ear ──▶ calls the handler that was there before
//! ```
//!
//! The default action of a signal is not carried out while a handler of ours is installed. When the last ear is closed,
//! the previous handler is restored. If another handler was installed over ours meanwhile, ours stays below it, without
//! an ear, and only passes signals on.

use std::io;
use std::mem;
use std::os::fd::{IntoRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{SIGNALS, Signal};
use crate::call::check;
use crate::wake::{eventfd, reset_raw, ring_raw};

/// How many ears one process may have. Usually there is one, of one server.
const EARS_MAX: usize = 64;

/// The signals that an ear has received, and the descriptor that wakes its owner.
struct Slot {
    is_open: AtomicBool,
    /// An eventfd; -1 before it is first used. Never closed.
    fd: AtomicI32,
    /// The signals that came, as bits: indexes into [`SIGNALS`].
    caught: AtomicU32,
}

static SLOTS: [Slot; EARS_MAX] = [const {
    Slot { is_open: AtomicBool::new(false), fd: AtomicI32::new(-1), caught: AtomicU32::new(0) }
}; EARS_MAX];

/// A handler that other code installed, and that ours calls.
struct Previous {
    handler: AtomicUsize,
    flags: AtomicI32,
}

impl Previous {
    const fn none() -> Self {
        Previous { handler: AtomicUsize::new(libc::SIG_DFL), flags: AtomicI32::new(0) }
    }

    fn set(&self, action: &libc::sigaction) {
        self.flags.store(action.sa_flags, SeqCst);
        self.handler.store(action.sa_sigaction, SeqCst);
    }

    /// Calls it, if it is a function.
    fn call(&self, number: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let handler = self.handler.load(SeqCst);
        if matches!(handler, libc::SIG_DFL | libc::SIG_IGN) {
            return;
        }
        if self.flags.load(SeqCst) & libc::SA_SIGINFO != 0 {
            // SAFETY: `sigaction` reported it as the address of a handler with three arguments (SA_SIGINFO).
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { mem::transmute(handler) };
            handler(number, info, context);
        } else {
            // SAFETY: `sigaction` reported it as the address of a handler with one argument.
            let handler: extern "C" fn(i32) = unsafe { mem::transmute(handler) };
            handler(number);
        }
    }
}

/// The handlers that ours calls, by signal.
static PREVIOUS: [Previous; SIGNALS.len()] = [const { Previous::none() }; SIGNALS.len()];
/// The handlers that ours called when first installed, if it had to be installed again over another one.
static BENEATH: [Previous; SIGNALS.len()] = [const { Previous::none() }; SIGNALS.len()];
/// The thread that runs our handler, by signal; 0 if none does.
static INSIDE: [AtomicI32; SIGNALS.len()] = [const { AtomicI32::new(0) }; SIGNALS.len()];

/// How many ears are open, and what to restore after the last: under one lock, so that no ear is opened while the
/// handlers of the last are removed.
static INSTALLED: Mutex<Installed> =
    Mutex::new(Installed { ears: 0, originals: [None; 4], covers: [None; 4] });

struct Installed {
    ears: usize,
    /// The actions before ours, by signal; `None` where ours is not installed.
    originals: [Option<libc::sigaction>; SIGNALS.len()],
    /// The actions that were installed over ours, where ours was then installed over them again.
    covers: [Option<libc::sigaction>; SIGNALS.len()],
}

fn installed() -> MutexGuard<'static, Installed> {
    // No code under the lock leaves it inconsistent.
    INSTALLED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handler.
extern "C" fn on_signal(number: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(index) = SIGNALS.iter().position(|known| known.1 == number) else { return };
    // SAFETY: it is the address of this thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above. The interrupted code may be about to read it.
    let interrupted = unsafe { errno.read() };
    // SAFETY: takes no pointers.
    let thread = unsafe { libc::gettid() };
    if INSIDE[index].swap(thread, SeqCst) == thread {
        // Called by a handler that this one has called: it was installed over ours, and ours over it again.
        BENEATH[index].call(number, info, context);
    } else {
        SLOTS.iter().filter(|slot| slot.is_open.load(SeqCst)).for_each(|slot| slot.note(index));
        PREVIOUS[index].call(number, info, context);
        let _ = INSIDE[index].compare_exchange(thread, 0, SeqCst, SeqCst);
    }
    // SAFETY: as above.
    unsafe { errno.write(interrupted) };
}

impl Slot {
    fn note(&self, index: usize) {
        self.caught.fetch_or(1 << index, SeqCst);
        ring_raw(self.fd.load(SeqCst));
    }
}

/// Receives signals. While one exists, our handlers are installed.
#[derive(Debug)]
pub(super) struct Ear {
    index: usize,
}

impl Ear {
    pub(super) fn open() -> io::Result<Ear> {
        let mut installed = installed();
        let Some(index) = SLOTS.iter().position(|slot| !slot.is_open.load(SeqCst)) else {
            let message = format!("{EARS_MAX} servers of this process wait for signals already");
            return Err(io::Error::other(message));
        };
        let slot = &SLOTS[index];
        if slot.fd.load(SeqCst) < 0 {
            slot.fd.store(eventfd()?.into_raw_fd(), SeqCst);
        }
        reset_raw(slot.fd.load(SeqCst));
        slot.caught.store(0, SeqCst);
        slot.is_open.store(true, SeqCst);
        installed.ears += 1;
        // From here on, dropping it undoes all of it.
        let ear = Ear { index };
        let outcome = (0..SIGNALS.len()).try_for_each(|index| installed.install(index));
        drop(installed);
        outcome.map(|()| ear)
    }

    /// Readable while a signal is noted.
    pub(super) fn raw_fd(&self) -> RawFd {
        SLOTS[self.index].fd.load(SeqCst)
    }

    /// Makes the descriptor unreadable; to be called before [`Ear::take`].
    pub(super) fn reset(&self) {
        reset_raw(self.raw_fd());
    }

    /// Takes one signal that came.
    pub(super) fn take(&self) -> Option<Signal> {
        let caught = &SLOTS[self.index].caught;
        let index = caught.load(SeqCst).trailing_zeros() as usize;
        let (signal, _) = SIGNALS.get(index)?;
        caught.fetch_and(!(1 << index), SeqCst);
        Some(*signal)
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let mut installed = installed();
        SLOTS[self.index].is_open.store(false, SeqCst);
        installed.ears -= 1;
        if installed.ears == 0 {
            (0..SIGNALS.len()).for_each(|index| installed.uninstall(index));
        }
    }
}

impl Installed {
    fn install(&mut self, index: usize) -> io::Result<()> {
        let (signal, number) = SIGNALS[index];
        let current = current(number)?;
        if is_ours(&current) {
            return Ok(());
        }
        if signal == Signal::HangUp && current.sa_sigaction == libc::SIG_IGN {
            return Ok(());
        }
        match &self.originals[index] {
            // Another handler was installed over ours. It may call ours or not, so ours goes on top.
            Some(original) => {
                BENEATH[index].set(original);
                self.covers[index] = Some(current);
            }
            None => self.originals[index] = Some(current),
        }
        PREVIOUS[index].set(&current);
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_signal;
        let action = libc::sigaction {
            sa_sigaction: handler as usize,
            // The signals that must not interrupt the previous handler.
            sa_mask: current.sa_mask,
            // Runtimes with small stacks need handlers on a stack of their own.
            sa_flags: libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK,
            sa_restorer: None,
        };
        // SAFETY: the action is initialised, its handler touches only what handlers may, and null for the old action
        // is allowed.
        check(unsafe { libc::sigaction(number, &action, ptr::null_mut()) })?;
        Ok(())
    }

    /// Restores the previous action, unless another handler was installed over ours.
    fn uninstall(&mut self, index: usize) {
        let number = SIGNALS[index].1;
        let Some(original) = self.originals[index] else { return };
        if !current(number).is_ok_and(|current| is_ours(&current)) {
            return;
        }
        let cover = self.covers[index].take();
        // SAFETY: `sigaction` reported it, and null for the old action is allowed.
        unsafe { libc::sigaction(number, &cover.unwrap_or(original), ptr::null_mut()) };
        match cover {
            // Ours is still below that.
            Some(_) => PREVIOUS[index].set(&original),
            None => self.originals[index] = None,
        }
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_signal;
    action.sa_sigaction == handler as usize
}

/// The current action for the signal.
fn current(number: i32) -> io::Result<libc::sigaction> {
    let mut action = mem::MaybeUninit::uninit();
    // SAFETY: a null new action changes nothing, and `action` is valid for writes.
    check(unsafe { libc::sigaction(number, ptr::null(), action.as_mut_ptr()) })?;
    // SAFETY: initialised by the call above.
    Ok(unsafe { action.assume_init() })
}

/// Makes two writes errors to handle instead of the end of the process: to a closed connection, as Rust's own start does, but
/// maybe not a program with another `main`; and beyond the largest file that the process may write (`RLIMIT_FSIZE`), which
/// would end it again after each restart.
pub(super) fn ignore_failed_writes() -> io::Result<()> {
    for number in [libc::SIGPIPE, libc::SIGXFSZ] {
        if current(number)?.sa_sigaction == libc::SIG_DFL {
            // SAFETY: SIG_IGN runs no code of ours, so nothing can be interrupted at a bad moment.
            unsafe { libc::signal(number, libc::SIG_IGN) };
        }
    }
    Ok(())
}
