//! Which privileges does this process have, and how does it give them up?
//!
//! Only the parts of `capabilities(7)` that the gates need. Capabilities belong to a thread, and
//! the threads it starts inherit them. To give one up for the whole process, do it before the first
//! thread starts.

use std::fmt;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A privilege that a gate needs while it is set up, and not later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Capability {
    /// Change the network: rules, and programs of control groups.
    NetAdmin = 12,
    /// Nearly anything, including all that `Bpf` allows.
    SysAdmin = 21,
    /// Load and attach BPF programs.
    Bpf = 39,
}

impl Capability {
    /// All capabilities that a gate may need.
    pub const ALL: [Capability; 3] = [Capability::NetAdmin, Capability::SysAdmin, Capability::Bpf];

    /// Its name for `setcap(8)`.
    pub const fn name(self) -> &'static str {
        match self {
            Capability::NetAdmin => "CAP_NET_ADMIN",
            Capability::SysAdmin => "CAP_SYS_ADMIN",
            Capability::Bpf => "CAP_BPF",
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether this thread has `capability`. Also `false` if that cannot be determined.
pub fn has(capability: Capability) -> bool {
    let number = capability as usize;
    get().is_ok_and(|sets| sets[number / 32].effective & 1 << (number % 32) != 0)
}

/// Gives up `capabilities` for this thread and the threads it will start, for good, unless the
/// process executes a file that grants them. It does not matter which of them the thread had.
///
/// # Errors
/// Whatever `capget(2)` or `capset(2)` reports; then nothing was given up.
pub fn give_up(capabilities: &[Capability]) -> io::Result<()> {
    let mut sets = get()?;
    for &capability in capabilities {
        let number = capability as usize;
        let Sets { effective, permitted, inheritable } = &mut sets[number / 32];
        for set in [effective, permitted, inheritable] {
            *set &= !(1 << (number % 32));
        }
    }
    set(&sets)
}

/// Lets the program that `command` starts keep `capability`, if this process has it, and no other
/// ambient capability. Without this, a program has only what its file grants.
pub fn hand_on(command: &mut Command, capability: Capability) {
    let hand_on = move || {
        let clear = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
        // SAFETY: takes no pointers. Kernels that do not know it have no ambient capabilities.
        unsafe { libc::prctl(libc::PR_CAP_AMBIENT, clear, 0, 0, 0) };
        let mut sets = get()?;
        let (number, bit) = (capability as usize, 1 << (capability as usize % 32));
        sets.iter_mut().for_each(|half| half.inheritable = 0);
        if sets[number / 32].permitted & bit == 0 {
            return set(&sets); // The program will report what it lacks.
        }
        sets[number / 32].inheritable |= bit;
        set(&sets)?;
        let raise = libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong;
        // SAFETY: takes no pointers. If it is forbidden, the program will report what it lacks.
        unsafe { libc::prctl(libc::PR_CAP_AMBIENT, raise, number as libc::c_ulong, 0, 0) };
        Ok(())
    };
    // SAFETY: between fork and exec, it makes four system calls and touches its own stack only.
    unsafe { command.pre_exec(hand_on) };
}

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

impl Header {
    /// The third version has 64 capabilities in two halves; 0 is the calling thread.
    const OWN: Header = Header { version: 0x2008_0522, pid: 0 };
}

/// `struct __user_cap_data_struct`: 32 capabilities.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Sets {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn get() -> io::Result<[Sets; 2]> {
    // If this is not the kernel's version, it writes back the one it prefers.
    let mut header = Header::OWN;
    let mut sets = [Sets::default(); 2];
    // SAFETY: version 3 writes two elements, and both pointers are valid for the call.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, sets.as_mut_ptr()) })?;
    Ok(sets)
}

fn set(sets: &[Sets; 2]) -> io::Result<()> {
    let header = Header::OWN;
    // SAFETY: version 3 reads two elements, and both pointers are valid for the call.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) })
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: a capability that was given up is gone for the thread and the threads it starts,
    /// not for other threads; giving up an absent one is not an error.
    #[test]
    fn given_up_is_gone() {
        let before = has(Capability::NetAdmin);
        std::thread::spawn(|| {
            give_up(&Capability::ALL).unwrap();
            let none = || Capability::ALL.iter().all(|&capability| !has(capability));
            assert!(none());
            assert!(std::thread::spawn(none).join().unwrap());
            give_up(&Capability::ALL).unwrap();
        })
        .join()
        .unwrap();
        assert_eq!(has(Capability::NetAdmin), before);
    }

    /// Purpose: a started program gets the one capability that it needs, and none that happens to
    /// be ambient here.
    #[test]
    fn nothing_else_is_handed_on() {
        if !Capability::ALL.iter().all(|&capability| has(capability)) {
            return; // This process has nothing to pass on.
        }
        // In this order, as if the first had been ambient before.
        let mut command = Command::new("/bin/cat");
        command.arg("/proc/self/status");
        hand_on(&mut command, Capability::Bpf);
        hand_on(&mut command, Capability::NetAdmin);
        let output = command.output().unwrap();
        let status = String::from_utf8(output.stdout).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapAmb:\t")).unwrap();
        let expected = 1_u64 << Capability::NetAdmin as u8;
        assert_eq!(u64::from_str_radix(line, 16).unwrap(), expected);
    }

    /// Purpose: this module agrees with the kernel's report in `/proc`.
    #[test]
    fn agrees_with_proc() {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
        let effective = u64::from_str_radix(line, 16).unwrap();
        for capability in Capability::ALL {
            assert_eq!(has(capability), effective & 1 << capability as u8 != 0, "{capability}");
        }
    }
}
