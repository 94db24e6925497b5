//! Tests over what the tools and `/proc` really said, captured.

use std::time::Duration;

use super::flame::Stacks;
use super::threads::{self, Places};
use super::{calls, perf, session};

const PERF_TRACE: &str = "
 Summary of events:

 highwater-0 (4494), 2236 events, 84.6%

   syscall            calls  errors  total       min       avg       max       stddev
                                     (msec)    (msec)    (msec)    (msec)        (%)
   --------------- --------  ------ -------- --------- --------- ---------     ------
   epoll_wait           258      0   854.695     0.000     3.313    28.477      9.18%
   read                 165     42     2.196     0.010     0.013     0.027      1.63%


 highwater-1 (4495), 360 events, 13.6%

   syscall            calls  errors  total       min       avg       max       stddev
                                     (msec)    (msec)    (msec)    (msec)        (%)
   --------------- --------  ------ -------- --------- --------- ---------     ------
   read                   8      0     0.109     0.010     0.014     0.021      8.77%
";

const STRACE: &str = "\
strace: Process 4491 attached with 4 threads
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 61.93    0.015827        1438        11        11 futex
 14.14    0.003614          23       157           epoll_wait
------ ----------- ----------- --------- --------- ----------------
100.00    0.019441         115       168        11 total
";

/// Purpose: calls of all threads are added up, errors too; headings, sums and other lines are no calls.
#[test]
fn tables_of_calls_are_read() {
    let perf = calls::parse_perf(PERF_TRACE);
    let read = perf.iter().find(|call| call.name == "read").expect("it is in both tables");
    assert_eq!((read.calls, read.errors), (173, 42));
    assert!((read.total_ms.expect("it has one") - 2.305).abs() < 1e-9);
    assert_eq!(perf.len(), 2, "{perf:?}");

    let strace = calls::parse_strace(STRACE);
    let names: Vec<(&str, u64, u64)> =
        strace.iter().map(|call| (call.name.as_str(), call.calls, call.errors)).collect();
    assert_eq!(names, [("futex", 11, 11), ("epoll_wait", 157, 0)]);
    assert!(
        calls::parse_perf("").is_empty()
            && calls::parse_strace("strace: attach: denied\n").is_empty()
    );
}

/// Purpose: where only `/proc` can be read, a thread's call is named, and one that runs is in none.
#[test]
fn a_call_of_proc_is_named() {
    let futex = if cfg!(target_arch = "x86_64") { "202" } else { "98" };
    assert_eq!(calls::call_of(&format!("{futex} 0x1 0x2\n")).as_deref(), Some("futex"));
    assert_eq!(calls::call_of("9999 0x1\n").as_deref(), Some("call 9999"));
    assert_eq!(calls::call_of("running\n"), None);
    assert_eq!(calls::call_of(""), None);
}

/// Purpose: an event that the processor does not count is not chosen, and a refusal is reported with its cause.
#[test]
fn perf_is_believed_only_if_it_counts() {
    assert!(perf::counted("4711,,cycles,210000,100.00,,\n"));
    assert!(!perf::counted("<not supported>,,cycles,0,100.00,,\n"));
    let refusal = "Error:\nAccess to performance monitoring and observability operations is limited.\n\
                   perf_event_paranoid setting is 4:\n  -1: Allow use of (almost) all events by all users\n";
    assert_eq!(perf::reason(refusal), "perf_event_paranoid setting is 4:");
    assert_eq!(perf::reason(""), "perf counts nothing here");
}

/// Purpose: what a thread did in a span is the difference of its counters, and its waits are shares of its own.
#[test]
fn threads_are_differences() {
    let status = |forced: u32| {
        format!(
            "Name:\tx\nvoluntary_ctxt_switches:\t{}\nnonvoluntary_ctxt_switches:\t{forced}\n",
            10 * forced
        )
    };
    let one = threads::counters("worker\n", "1000000000 200000000 7\n", &status(1));
    let two = threads::counters("worker\n", "1500000000 300000000 9\n", &status(3));
    let places = Places::from([
        ((7, "do_epoll_wait".to_owned()), 3),
        ((7, threads::RUNNING.to_owned()), 5),
        ((7, "futex_wait".to_owned()), 1),
        ((8, "futex_wait".to_owned()), 100),
    ]);
    let (before, after) = ([(7, one.clone())].into(), [(7, two), (9, one)].into());
    let found = threads::between(&before, &after, Duration::from_secs(1), &places);
    assert_eq!(found.len(), 1, "thread 9 came meanwhile: {found:?}");
    let worker = &found[0];
    assert!((worker.running_percent - 50.0).abs() < 1e-9, "{worker:?}");
    assert!((worker.runnable_percent - 10.0).abs() < 1e-9, "{worker:?}");
    assert!((worker.waiting_percent - 40.0).abs() < 1e-9, "{worker:?}");
    assert!((worker.switches_per_s - 20.0).abs() < 1e-9, "{worker:?}");
    assert_eq!(worker.waits, [("do_epoll_wait".to_owned(), 75.0), ("futex_wait".to_owned(), 25.0)]);
}

/// Purpose: a process that used CPU time is not said to be idle if perf caught none of it.
#[test]
fn a_busy_process_is_not_called_idle() {
    let status = "Name:\tx\nvoluntary_ctxt_switches:\t1\nnonvoluntary_ctxt_switches:\t1\n";
    let of =
        |running_ns: u64| threads::counters("worker\n", &format!("{running_ns} 0 1\n"), status);
    let report = |used_ns: u64| {
        let (before, after) = ([(7, of(1_000_000))].into(), [(7, of(1_000_000 + used_ns))].into());
        session::no_sample(&threads::between(
            &before,
            &after,
            Duration::from_secs(1),
            &Places::new(),
        ))
    };
    assert!(report(380_000_000).contains("used 38 % of a CPU; give a longer --duration"));
    assert!(report(1_000_000).contains("used no CPU; give it load"));
}

/// Purpose: a thread's state is read behind a name that may hold anything, and its place without the compiler's suffix.
#[test]
fn places_are_read() {
    assert_eq!(
        threads::place("7 (a) R b) S 1 2", "poll_schedule_timeout.constprop.0").as_deref(),
        Some("poll_schedule_timeout")
    );
    assert_eq!(threads::place("7 (x) R 1 2", "0").as_deref(), Some(threads::RUNNING));
    assert_eq!(
        threads::place("7 (x) S 1 2", "0").as_deref(),
        Some("waiting (the kernel does not say where)")
    );
    assert_eq!(threads::place("7 (x) Z 1 2", ""), None);
    assert_eq!(threads::place("", ""), None);
}

const SCRIPT: &str = "\
worker  4494/4495   100.000001: cpu-clock:\x20
\tffffffff81000001 entry_SYSCALL_64_after_hwframe+0x76 ([kernel.kallsyms])
\t    55d0c0001000 highwater::server::worker::Worker<D>::turn+0x10 (/srv/arena)
\t    55d0c0000100 main+0x20 (/srv/arena)

worker  4494/4495   100.005001: cpu-clock:\x20
\t    55d0c0001000 highwater::server::worker::Worker<D>::turn+0x10 (/srv/arena)
\t    55d0c0000100 main+0x20 (/srv/arena)

";

/// Purpose: samples become stacks, shares of functions, and a picture that names them and loads nothing.
#[test]
fn samples_become_a_picture() {
    let stacks = Stacks::of_perf(SCRIPT.as_bytes()).expect("samples");
    assert_eq!(stacks.total(), 2, "{stacks:?}");
    let functions = stacks.functions();
    let of = |part: &str| {
        functions.iter().find(|function| function.name.contains(part)).expect("it was sampled")
    };
    assert!((of("turn").own_percent - 50.0).abs() < 1e-9, "{functions:?}");
    assert!((of("turn").with_callees_percent - 100.0).abs() < 1e-9, "{functions:?}");
    assert!(of("main").own_percent.abs() < 1e-9, "{functions:?}");
    let svg =
        String::from_utf8(stacks.svg("a <title>", "samples").expect("a picture")).expect("UTF-8");
    assert!(
        svg.contains("<svg") && svg.contains("turn") && svg.contains("a &lt;title&gt;"),
        "{svg}"
    );
    assert!(!svg.contains("href=\"http"), "{svg}");
    assert!(Stacks::default().svg("", "").is_err(), "a picture of nothing");
}

/// Purpose: the server's address is what a load's URL says, with the scheme's port where it names none.
#[test]
fn addresses_of_loads() {
    assert_eq!(
        session::address("http://127.0.0.1:8080/x?a=b --rate 5").as_deref(),
        Some("127.0.0.1:8080")
    );
    assert_eq!(session::address("https://host").as_deref(), Some("host:443"));
    assert_eq!(session::address("http://[::1]:80/").as_deref(), Some("[::1]:80"));
    assert_eq!(session::address("http:///"), None);
    assert_eq!(session::address("nonsense"), None);
}

/// Purpose: a tool that is stopped can write what it has, as after Ctrl-C, and more than a pipe holds; one that does not end
/// then is killed, so that nobody waits for ever.
#[test]
fn tools_are_stopped() {
    use std::io::Read as _;
    use std::process::{Command, Stdio};

    let start = |script: &str| {
        let mut tool = Command::new("env");
        // A shell cannot trap what was ignored when it began, as in tests that run in the background.
        tool.args(["--default-signal=INT", "/bin/sh", "-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut tool = tool.spawn().expect("a shell is everywhere");
        // It is ready for the signal.
        tool.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 2]).expect("it says so");
        tool
    };
    let writes = start(
        "trap 'head -c 200000 /dev/zero >&2; exit 3' INT; echo x; while :; do sleep 0.01; done",
    );
    let done = threads::stop(writes, Duration::from_secs(60)).expect("it ends");
    assert_eq!((done.status.code(), done.stderr.len()), (Some(3), 200_000));
    let stays = start("trap '' INT; echo x; exec sleep 600");
    let done = threads::stop(stays, Duration::from_millis(50)).expect("it was killed");
    assert_eq!(done.status.code(), None);
}
