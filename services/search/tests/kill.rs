//! `kill -9` against the embedded store: what was acknowledged is there, and nothing is torn.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use highwater_search::event::Event;
use highwater_search::store::{Embedded, Store as _};

const KILLS: usize = 20;
const EVENTS: usize = 200;
const DIRECTORY: &str = "HIGHWATER_SEARCH_KILL_TEST_DIRECTORY";

/// Every event of batch `n` carries the number in its title, so a torn batch shows.
fn batch(n: u64) -> Vec<Event> {
    let start = jiff::civil::datetime(2024, 6, 30, 21, 0, 0, 0);
    let event = |i: usize| Event {
        id: Event::identity("1", &i.to_string()),
        base_plan_id: "1".into(),
        plan_id: i.to_string().into(),
        title: n.to_string().into(),
        start,
        end: start,
        sell_from: None,
        sell_to: None,
        sold_out: None,
        min_price: None,
        max_price: None,
    };
    (0..EVENTS).map(event).collect()
}

/// The batch that the store holds, after checking that it holds all of it. `None`: it is empty.
fn held(directory: &Path) -> Option<u64> {
    let records = Embedded::open(directory).expect("sound after the kill").load().expect("loads");
    let first = records.first()?.event.title.clone();
    assert_eq!(records.len(), EVENTS, "a torn first batch");
    assert!(records.iter().all(|record| record.event.title == first), "a torn batch");
    Some(first.parse().expect("a number"))
}

/// Purpose: not a test of its own but the process that gets killed: it writes batch after batch and
/// acknowledges each on its standard output.
#[test]
fn writer() {
    let Some(directory) = std::env::var_os(DIRECTORY) else {
        return;
    };
    let directory = Path::new(&directory);
    let first = held(directory).map_or(1, |n| n + 1);
    let mut store = Embedded::open(directory).expect("a store");
    let mut stdout = std::io::stdout();
    for n in first.. {
        store.apply(&batch(n), n as i64).expect("applied");
        if writeln!(stdout, "ack {n}").and_then(|()| stdout.flush()).is_err() {
            return;
        }
    }
}

fn start_writer(directory: &Path) -> Child {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(std::env::current_exe().expect("this program"));
    command.args(["--exact", "writer", "--nocapture"]).env(DIRECTORY, directory);
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("this program starts")
}

/// Purpose: over 20 kills at random points no acknowledged batch is lost and none is half there.
#[test]
fn acknowledged_batches_survive_kill_9() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut rng = fastrand::Rng::new();
    let mut last_acknowledged = 0;
    for _ in 0..KILLS {
        let mut child = start_writer(directory.path());
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let acknowledgement =
            |line: String| line.strip_prefix("ack ").and_then(|n| n.parse::<u64>().ok());
        let mut acknowledged = lines.by_ref().map_while(Result::ok).filter_map(acknowledgement);
        // The point: some batches on, and then somewhere within the next.
        for n in acknowledged.by_ref().take(rng.usize(1..=5)) {
            last_acknowledged = n;
        }
        for _ in 0..rng.u32(..2_000_000) {
            std::hint::spin_loop();
        }
        child.kill().expect("SIGKILL");
        child.wait().expect("reaped");
        // It may have acknowledged more before the kill arrived.
        last_acknowledged = acknowledged.last().unwrap_or(last_acknowledged);
        let held = held(directory.path()).expect("at least one batch was acknowledged");
        // One more than acknowledged may be there: committed, and killed before it could say so.
        assert!(
            (last_acknowledged..=last_acknowledged + 1).contains(&held),
            "{held} after {last_acknowledged}"
        );
    }
    assert!(last_acknowledged >= KILLS as u64);
}
