//! What does one refusal cost?
//!
//! Processor time of the serving core per refused connection or request, its part of the kernel's receive
//! path included. Measured on Linux 6.18 over a veth pair whose receive side was steered to the serving core:
//! everything was refused at 6 000 and 12 000 a second, and the cost is the time that a low-priority loop on
//! that core lost. Serving one connection completely cost 75 µs there. A dedicated network card makes all of
//! them cheaper, in the same order.
//!
//! So values computed from these constants are estimates, and `http_shed_cpu_seconds_total` says so in its
//! HELP. The constants are defined only here. They are not measured at start: that would flood the machine
//! for seconds, and needs a client. Workers could learn what an answer costs them from their own turns, but not the
//! kernel's part, which is most of it; and nothing is decided by what answers cost, it is only reported.

use std::time::Duration;

use super::kernel::Mechanism;

/// A reset by a BPF program at the socket lookup, which is what a closed port costs.
const RESET_EBPF: Duration = Duration::from_nanos(16_400);
/// A reset by an nftables rule that counts connections: 20.1 and 21.2 µs.
const RESET_NFT: Duration = Duration::from_nanos(20_600);
/// A reset by iptables' connlimit.
const RESET_IPTABLES: Duration = Duration::from_nanos(16_900);
/// A silent drop by a BPF program on the listening socket: 8.0 and 9.5 µs.
const DROP: Duration = Duration::from_nanos(8_800);
/// An attempt that finds the listener's backlog full.
const OVERFLOW: Duration = Duration::from_nanos(14_100);
/// A 503 after parsing, on a connection of its own, with all that opening and closing it takes.
const ANSWER: Duration = Duration::from_nanos(94_300);
/// A 503 on a connection that stays open: 13 to 15 µs by the plan `refusal-kept`, over HTTP/1.1, the kernel's part included.
/// Over HTTP/2 it is less, as several may leave with one send (`server/worker/cork`).
const ANSWER_KEPT: Duration = Duration::from_nanos(14_000);

pub(super) fn of_resets(mechanism: Mechanism, count: u64) -> Duration {
    let one = match mechanism {
        Mechanism::Ebpf | Mechanism::Accept => RESET_EBPF,
        Mechanism::Nft => RESET_NFT,
        Mechanism::Iptables => RESET_IPTABLES,
    };
    times(one, count)
}

pub(super) fn of_drops(count: u64) -> Duration {
    times(DROP, count)
}

pub(super) fn of_overflows(count: u64) -> Duration {
    times(OVERFLOW, count)
}

/// `are_kept` says that connections bring many requests each.
pub(super) fn of_answers(count: u64, are_kept: bool) -> Duration {
    times(if are_kept { ANSWER_KEPT } else { ANSWER }, count)
}

fn times(one: Duration, count: u64) -> Duration {
    one.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}
