//! Calls `bpf(2)`.
//!
//! It has only what a gate needs, with the kernel's structures written out (`union bpf_attr` of
//! `linux/bpf.h`) and no library in between. Every descriptor is closed on exec.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::asm::Program;

const MAP_CREATE: libc::c_long = 0;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;

const MAP_TYPE_ARRAY: u32 = 2;
const F_MMAPABLE: u32 = 1 << 10;

/// Room for the verifier's log about a program of a few dozen instructions.
const LOG_SIZE: usize = 64 * 1024;

/// The licence decides which helpers a program may call; the gate's programs need none that require
/// the GPL.
const LICENCE: &core::ffi::CStr = c"MIT";

/// A program's type, and where it will be attached.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// Runs for every packet that a socket receives.
    Filter,
    /// Decides which socket a packet of no known connection belongs to.
    Lookup,
    /// Runs for events of the connections of a control group.
    Events,
}

impl Purpose {
    const fn program_type(self) -> u32 {
        match self {
            Purpose::Filter => 1,
            Purpose::Events => 13,
            Purpose::Lookup => 30,
        }
    }

    const fn attach_type(self) -> u32 {
        match self {
            Purpose::Filter => 0,
            Purpose::Events => 3,
            Purpose::Lookup => 36,
        }
    }
}

/// Arguments of `BPF_MAP_CREATE`.
#[repr(C)]
pub(super) struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    entries_max: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; 16],
}

impl MapCreate {
    /// An array of one value that can be mapped into memory.
    pub(super) fn mappable_array(value_size: u32) -> MapCreate {
        MapCreate {
            map_type: MAP_TYPE_ARRAY,
            key_size: 4,
            value_size,
            entries_max: 1,
            flags: F_MMAPABLE,
            inner_map: 0,
            numa_node: 0,
            name: name("highwater_gate"),
        }
    }
}

#[repr(C)]
struct ProgramLoad {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
}

/// A name that tools such as `bpftool` show. At most 15 bytes.
fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    name[..text.len()].copy_from_slice(text.as_bytes());
    name
}

pub(super) fn create_map(attributes: &MapCreate) -> io::Result<OwnedFd> {
    // SAFETY: the attributes hold no addresses.
    unsafe { bpf(MAP_CREATE, attributes) }
}

/// Loads `program`, after the verifier has checked it.
///
/// # Errors
/// The kernel's error; if the verifier refused the program itself, with its explanation.
pub(super) fn load(program: &Program, purpose: Purpose, title: &str) -> io::Result<OwnedFd> {
    let instructions = program.instructions();
    let mut attributes = ProgramLoad {
        program_type: purpose.program_type(),
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        licence: LICENCE.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: name(title),
        interface: 0,
        attach_type: purpose.attach_type(),
    };
    // SAFETY: instructions and licence outlive the call, and no log is asked for.
    let refusal = match unsafe { bpf(PROG_LOAD, &attributes) } {
        Ok(program) => return Ok(program),
        Err(refusal) => refusal,
    };
    // Again with a log, which is too expensive to ask for when nothing is wrong.
    let mut log = vec![0_u8; LOG_SIZE];
    attributes.log_level = 1;
    attributes.log_size = LOG_SIZE as u32;
    attributes.log = log.as_mut_ptr() as u64;
    // SAFETY: as above, and the log is as long as the attributes say and outlives the call.
    if let Ok(program) = unsafe { bpf(PROG_LOAD, &attributes) } {
        return Ok(program);
    }
    let length = log.iter().position(|&byte| byte == 0).unwrap_or(LOG_SIZE);
    if length == 0 {
        return Err(refusal); // The verifier did not run.
    }
    let log = String::from_utf8_lossy(&log[..length]);
    let text = format!("the kernel's verifier refuses {title}: {refusal}\n{}", log.trim_end());
    Err(io::Error::new(refusal.kind(), text))
}

/// Attaches a program for as long as the returned descriptor is open, in any process.
pub(super) fn link(
    program: &OwnedFd,
    target: BorrowedFd<'_>,
    purpose: Purpose,
) -> io::Result<OwnedFd> {
    let attributes = LinkCreate {
        program: program.as_raw_fd() as u32,
        target: target.as_raw_fd() as u32,
        attach_type: purpose.attach_type(),
        flags: 0,
    };
    // SAFETY: the attributes hold no addresses.
    unsafe { bpf(LINK_CREATE, &attributes) }
}

/// # Safety
/// Addresses among the attributes are valid for what the command does with them.
unsafe fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    let (attributes, size) = (std::ptr::from_ref(attributes), mem::size_of::<T>());
    // SAFETY: the caller vouches for addresses inside; the structure itself lives until the end.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size) };
    let fd = RawFd::try_from(result).map_err(|_| io::Error::last_os_error())?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor; nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
