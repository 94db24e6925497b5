//! The rules of judging, against values worked out by hand or by other means.

mod gate;
mod interval;
mod record;
mod stats;

use super::plan::Plan;
use super::record::{Interval, Measured, Noise, Record, Row};

/// A plan of servers `a`, `b` and `c` in cells `x` and `y`.
fn plan() -> Plan {
    let server =
        |name| format!("[[server]]\nname = {name:?}\ncommand = [\"true\"]\nready = \"/\"\n");
    let cell = |name| format!("[[cell]]\nname = {name:?}\npath = \"/\"\nexpect = \"\"\n");
    let text = ["a", "b", "c"].map(server).concat() + &["x", "y"].map(cell).concat();
    Plan::parse(&format!("name = \"test\"\n{text}")).expect("nothing is wrong with it")
}

/// A row of cell `x` that counts: what one request cost, in microseconds.
fn row(server: &str, round: u32, cost: f64) -> Row {
    let measured = Measured {
        requests: 1000,
        seconds: 1.0,
        server_cpu_us_per_request: cost,
        p99_us: 100.0,
        client_busy: 0.5,
        rate_ratio: 1.0,
        c2c_ns: vec![100.0, 100.0],
        ..Measured::default()
    };
    Row {
        server: server.to_owned(),
        cell: "x".to_owned(),
        round,
        status: "ok".to_owned(),
        measured: Some(measured),
        ..Row::default()
    }
}

fn change(row: &mut Row) -> &mut Measured {
    row.measured.as_mut().expect("it was measured")
}

/// A record in which `a` costs 10 µs and `b` 10 µs divided by each of `ratios`, and whose noise is one per cent.
fn record(ratios: &[f64]) -> Record {
    let rounds = ratios.iter().zip(0..);
    let cells =
        rounds.flat_map(|(ratio, round)| [row("a", round, 10.0), row("b", round, 10.0 / ratio)]);
    let interval = Some(Interval { low: 0.99, high: 1.01 });
    let aa = Noise { server: "a".into(), pairs: 6, interval, cells: Vec::new(), rows: Vec::new() };
    Record {
        plan: Plan { rounds: ratios.len() as u32, ..plan() },
        environment: serde_json::Value::Null,
        cells: cells.collect(),
        aa: Some(aa),
    }
}
