//! Tests that change the handlers of the test process must run alone.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::*;

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a signal to the process, as an operator does.
fn kill(number: i32) {
    // SAFETY: takes no pointers. The signals sent here are caught.
    unsafe { libc::kill(libc::getpid(), number) };
}

/// Sends a signal to this thread: its handlers have returned when this does. One sent to the process may be taken by
/// another thread, at any later moment.
fn raise(number: i32) {
    // SAFETY: takes no pointers. The signals sent here are caught.
    unsafe { libc::raise(number) };
}

fn wait(signals: &Signals) -> Signal {
    signals.wait().expect("it can be waited for")
}

/// The handler that is installed for a signal.
fn handler(number: i32) -> usize {
    // SAFETY: all zero bits are a valid action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null new action changes nothing, and `action` is valid for writes.
    check(unsafe { libc::sigaction(number, ptr::null(), &mut action) }).expect("it is a signal");
    action.sa_sigaction
}

fn install(number: i32, handler: usize) {
    // SAFETY: all zero bits are a valid action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    // SAFETY: the action is initialised, and its handler only counts.
    check(unsafe { libc::sigaction(number, &action, ptr::null_mut()) }).expect("it is a signal");
}

/// Purpose: a signal does not kill the process, reaches every waiter once, and is named correctly, even if threads that
/// started before may take it.
#[test]
fn everyone_hears_each_signal() {
    let _alone = alone();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let before = thread::spawn(move || ended.recv());
    // Under `nohup` the tests inherit that it is ignored.
    let inherited = handler(libc::SIGHUP);
    install(libc::SIGHUP, libc::SIG_DFL);
    let (signals, others) = (Signals::catch().expect("there is room"), Signals::catch());
    let others = others.expect("there is room");
    for (signal, number) in SIGNALS {
        kill(number);
        assert_eq!((wait(&signals), wait(&others)), (signal, signal));
    }
    assert_eq!(signals.wait_timeout(Duration::ZERO).expect("it can be waited for"), None);
    // Together with another event to wait for: the first one ends the wait.
    let (waker, long) = (Waker::standalone().expect("a descriptor"), Some(Duration::from_secs(60)));
    waker.wake();
    assert_eq!(signals.wait_or(&waker, long).expect("it can be waited for"), None);
    kill(libc::SIGTERM);
    let received = signals.wait_or(&waker, long).expect("it can be waited for");
    assert_eq!(received, Some(Signal::Terminate));
    drop((signals, others));
    install(libc::SIGHUP, inherited);
    drop(end);
    let _ = before.join();
}

/// Purpose: a signal that all threads block, as in programs that used to wait with `sigwait`, is received.
#[test]
fn blocked_signals_are_heard() {
    let _alone = alone();
    let signals = Signals::catch().expect("there is room");
    // SAFETY: all zero bits are the empty set.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is initialised, and the number is a signal.
    unsafe { libc::sigaddset(&mut set, libc::SIGTERM) };
    // SAFETY: the set is initialised, and null for the old mask is allowed.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) };
    // SAFETY: takes no pointers. It stays pending for this thread, which blocks it.
    unsafe { libc::raise(libc::SIGTERM) };
    assert_eq!(wait(&signals), Signal::Terminate);
}

static FIRST: AtomicUsize = AtomicUsize::new(0);
static SECOND: AtomicUsize = AtomicUsize::new(0);

extern "C" fn first(_: i32) {
    FIRST.fetch_add(1, SeqCst);
}

/// Calls the handler that was installed before it: ours.
extern "C" fn second(number: i32) {
    SECOND.fetch_add(1, SeqCst);
    let below = BELOW.load(SeqCst);
    // SAFETY: it is the address of our handler, which takes null for what it does not look at.
    let below: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
        unsafe { std::mem::transmute(below) };
    below(number, ptr::null_mut(), ptr::null_mut());
}

static BELOW: AtomicUsize = AtomicUsize::new(0);

/// Purpose: the application's handler is called as well, and is the only one again afterwards; one that it installs
/// later, over ours, stays, and a server that starts then receives signals once.
#[test]
fn handlers_of_the_application() {
    let _alone = alone();
    let (counted, counted_too): (extern "C" fn(i32), extern "C" fn(i32)) = (first, second);
    let original = handler(libc::SIGINT);
    install(libc::SIGINT, counted as usize);
    let signals = Signals::catch().expect("there is room");
    raise(libc::SIGINT);
    assert_eq!((wait(&signals), FIRST.load(SeqCst)), (Signal::Interrupt, 1));
    drop(signals);
    assert_eq!(handler(libc::SIGINT), counted as usize, "it is restored");

    let signals = Signals::catch().expect("there is room");
    BELOW.store(handler(libc::SIGINT), SeqCst);
    install(libc::SIGINT, counted_too as usize);
    raise(libc::SIGINT);
    assert_eq!(wait(&signals), Signal::Interrupt);
    assert_eq!((FIRST.load(SeqCst), SECOND.load(SeqCst)), (2, 1));
    drop(signals);
    assert_eq!(handler(libc::SIGINT), counted_too as usize, "it is not ours to remove");

    // Ours is on top and at the bottom now.
    let signals = Signals::catch().expect("there is room");
    raise(libc::SIGINT);
    assert_eq!(wait(&signals), Signal::Interrupt);
    assert_eq!(signals.wait_timeout(Duration::ZERO).expect("it can be waited for"), None);
    assert_eq!((FIRST.load(SeqCst), SECOND.load(SeqCst)), (3, 2));
    drop(signals);
    assert_eq!(handler(libc::SIGINT), counted_too as usize, "it is restored");
    raise(libc::SIGINT);
    assert_eq!((FIRST.load(SeqCst), SECOND.load(SeqCst)), (4, 3), "both are called");
    install(libc::SIGINT, original);
}

/// Purpose: under `nohup` a server continues when its terminal closes, and stops when it is asked to.
#[test]
fn a_hang_up_that_is_ignored_stays_ignored() {
    let _alone = alone();
    let original = handler(libc::SIGHUP);
    install(libc::SIGHUP, libc::SIG_IGN);
    let signals = Signals::catch().expect("there is room");
    kill(libc::SIGHUP);
    kill(libc::SIGTERM);
    assert_eq!(wait(&signals), Signal::Terminate);
    assert_eq!(signals.wait_timeout(Duration::ZERO).expect("it can be waited for"), None);
    drop(signals);
    assert_eq!(handler(libc::SIGHUP), libc::SIG_IGN);
    install(libc::SIGHUP, original);
}
