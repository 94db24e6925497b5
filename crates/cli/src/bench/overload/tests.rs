//! Rows of overload, judged together.

use super::super::metrics::Metrics;
use super::super::network::Network;
use super::super::plan::Plan;
use super::super::record::{Measured, Overload, Record, Row, StepRow};
use super::{derive, own_peak, table};

/// A plan of servers `none`, `gate` and `fixed` in cells `refusal`, `10x` and `course`.
fn record(rows: Vec<Row>) -> Record {
    let server = |name| {
        format!("[[server]]\nname = {name:?}\ncommand = [\"x\", \"{{metrics}}\"]\nready = \"/\"\n")
    };
    let cell = |name, more| {
        format!(
            "[[cell]]\nname = {name:?}\npath = \"/\"\nexpect = \"\"\ndeadline = \"200ms\"\n{more}\n"
        )
    };
    let text = format!(
        "name = \"test\"\n{}{}{}{}",
        ["none", "gate", "fixed"].map(server).concat(),
        cell("refusal", "refusal = \"/sleep\"\nrate = 10000"),
        cell("10x", "load = 10.0"),
        cell(
            "course",
            "duration = \"10s\"\nbest_of = [\"fixed\"]\nsamples = [\"needed\"]\n[[cell.step]]\nload = 2.0"
        )
    );
    let plan = Plan::parse(&text).expect("nothing is wrong with it");
    let mut record = Record { plan, environment: serde_json::Value::Null, cells: rows, aa: None };
    derive::note_law(&mut record);
    record
}

fn row(server: &str, cell: &str, round: u32, overload: Overload) -> Row {
    let measured = Measured { seconds: 4.0, overload: Some(overload), ..Measured::default() };
    Row {
        server: server.to_owned(),
        cell: cell.to_owned(),
        round,
        status: "ok".to_owned(),
        measured: Some(measured),
        ..Row::default()
    }
}

fn refusal(round: u32, cost: f64) -> Row {
    let overload = Overload { cpu_us_per_refusal: Some(cost), ..Overload::default() };
    row("gate", "refusal", round, overload)
}

fn tenfold(server: &str, goodput: f64) -> Row {
    let overload = Overload {
        goodput_per_s: goodput,
        peaks_per_s: vec![1000.0, 1000.0],
        load: Some(10.0),
        goodput_of_peak: Some(goodput / 1000.0),
        ..Overload::default()
    };
    row(server, "10x", 0, overload)
}

/// Purpose: each row stands beside what the law allows with its own server's middle cost of a refusal, and one that is
/// further below than the tolerance is marked. A server whose cost is not known has no law.
#[test]
fn the_law_beside_each_row() {
    // 20 µs of 1000: rho is 0.02, and ten times the capacity leaves 0.8 / 0.98.
    let costs = [refusal(0, 10.0), refusal(1, 20.0), refusal(2, 90.0)];
    let record = record([&costs[..], &[tenfold("gate", 770.0), tenfold("none", 0.0)]].concat());
    let law = |at: usize| record.cells[at].measured.as_ref()?.overload.as_ref()?.law;
    assert_eq!((law(3), law(4)), (Some(0.8163), None));
    let text = table::text(&record);
    assert!(text.contains("  gate               20.0 (10.0 to 90.0)\n"), "{text}");
    let line = text.lines().find(|line| line.contains("77.0%")).expect("its row");
    assert!(line.contains("81.6%") && line.ends_with("BELOW"), "{line}");
    let none = text.lines().find(|line| line.starts_with("  none")).expect("its row");
    assert!(none.contains(" 0.0% ") && !none.contains("BELOW"), "{none}");
}

/// Purpose: what a server did with a load is the middle of its rounds, figure by figure; rows that are void, cells of
/// refusals and cells of steps have no part in it.
#[test]
fn goodput_is_the_middle_of_the_rounds() {
    let mut void = tenfold("gate", 1.0);
    "void".clone_into(&mut void.status);
    let rows = [700.0, 900.0, 800.0].map(|goodput| tenfold("gate", goodput));
    let other = [refusal(0, 20.0), course("gate", 0, &[1.0], &[0.0]), void];
    let found = derive::goodputs(&record([&rows[..], &other].concat()));
    let [gate] = &found[..] else { panic!("one server in one cell: {found:?}") };
    assert_eq!((&*gate.server, &*gate.cell, gate.rounds), ("gate", "10x", 3));
    assert_eq!((gate.goodput_per_s, gate.of_peak), (Some(800.0), Some(0.8)));
}

/// Purpose: rows that other programs disturbed have no part in any figure: neither in goodput, nor in what a refusal costs, nor
/// in a step.
#[test]
fn disturbed_rows_do_not_count() {
    let disturbed = |mut row: Row| {
        row.measured.as_mut().expect("it has figures").foreign_on_server_cpus = 0.5;
        row
    };
    let rows = [tenfold("gate", 900.0), refusal(0, 20.0), course("gate", 0, &[900.0; 9], &[])];
    let bad = [tenfold("gate", 100.0), refusal(1, 80.0), course("gate", 1, &[100.0; 9], &[])];
    let record = record([rows.to_vec(), bad.map(disturbed).to_vec()].concat());
    let [gate] = &derive::goodputs(&record)[..] else { panic!("one server in one cell") };
    assert_eq!((gate.rounds, gate.goodput_per_s), (1, Some(900.0)));
    assert_eq!(derive::refusals(&record), [("gate".to_owned(), [20.0; 3])]);
    assert_eq!(derive::steps(&record).iter().map(|step| step.rounds).max(), Some(1));
}

/// Purpose: a server that still answers abandoned requests after its load has its peak from before.
#[test]
fn the_peak_of_a_row() {
    assert_eq!(own_peak(&[900.0, 1000.0]), 950.0);
    assert_eq!(own_peak(&[900.0, 0.0]), 900.0);
    assert_eq!(own_peak(&[900.0]), 900.0);
    assert_eq!(own_peak(&[]), 0.0);
}

fn course(server: &str, round: u32, goodput: &[f64], needed: &[f64]) -> Row {
    let points = |values: &[f64]| -> Vec<[f64; 2]> {
        values.iter().zip(1..).map(|(value, at)| [f64::from(at) / 10.0, *value]).collect()
    };
    let step = StepRow {
        name: "2x".to_owned(),
        end_s: goodput.len() as f64 / 10.0,
        sent: 100,
        ok: 90,
        ..StepRow::default()
    };
    let series = [("goodput_per_s", goodput), ("needed", needed)]
        .map(|(name, values)| (name.to_owned(), points(values)));
    let overload = Overload { steps: vec![step], series: series.into(), ..Overload::default() };
    row(server, "course", round, overload)
}

/// Purpose: where two steps run beside each other, the goodput of each is its own: once it was the mean of both, and a flood of
/// handshakes seemed to take a third of the answers from established connections that lost none.
#[test]
fn steps_beside_each_other() {
    let mut both = course("gate", 0, &[300.0; 20], &[]);
    let row = both.measured.as_mut().and_then(|row| row.overload.as_mut()).expect("its figures");
    row.steps[0].points = (1..=20).map(|at| [f64::from(at) / 10.0, 450.0]).collect();
    let steps = derive::steps(&record(vec![both]));
    assert_eq!(steps[0].goodput_per_s, Some(450.0));
}

/// Purpose: the mark is the best of the servers that the cell names; how soon another is as good is that of its slowest
/// round, and never if one round never is.
#[test]
fn steps_beside_the_best() {
    let late = [&[0.0; 10][..], &[880.0; 90]].concat();
    let rose = [&[0.0; 20][..], &[1.0; 30], &[0.0; 50]].concat();
    let record = record(vec![
        course("fixed", 0, &[900.0; 100], &[0.0; 100]),
        course("gate", 0, &late, &rose),
        course("gate", 1, &[880.0; 100], &rose),
        course("none", 0, &[880.0; 100], &[0.0; 100]),
        course("none", 1, &[500.0; 100], &[0.0; 100]),
    ]);
    let judged = derive::steps(&record);
    let of = |server: &str| judged.iter().find(|one| one.server == server).expect("it took part");
    assert_eq!(of("gate").best.as_deref(), Some("fixed"));
    assert!((of("gate").of_best.expect("there is a mark") - 880.0 / 900.0).abs() < 1e-9);
    // Ten points of nothing, then as long as the window takes to forget them: 1.3 s.
    assert!((of("gate").after_s.expect("it converged") - 1.3).abs() < 1e-9, "{:?}", of("gate"));
    assert_eq!((of("none").after_s, of("fixed").of_best), (None, Some(1.0)));
    assert_eq!((of("gate").sent, of("gate").lost), (200, 20));
    let signals = derive::signals(&record);
    let needed = signals.iter().find(|one| one.server == "gate").expect("it was sampled");
    assert_eq!((needed.rises, needed.least, needed.most), (2, 0.0, 1.0));
    assert!((needed.raised_after_s.expect("it rose") - 2.1).abs() < 1e-9);
    assert!((needed.cleared_after_s.expect("it was over") - 5.1).abs() < 1e-9);
    let text = table::text(&record);
    assert!(text.contains("-- 2x, best is fixed\n") && text.contains(" never "), "{text}");
}

/// Purpose: if no server answered in time, none converged, and the table is printed all the same.
#[test]
fn nothing_good() {
    let record =
        record(vec![course("fixed", 0, &[0.0; 50], &[]), course("gate", 0, &[0.0; 50], &[])]);
    assert!(
        derive::steps(&record).iter().all(|one| one.after_s.is_none() && one.of_best.is_none())
    );
    assert!(table::text(&record).contains("-- 2x"));
}

/// Purpose: rows about overload survive their file, with their series.
#[test]
fn rows_survive_their_file() {
    let saved =
        record(vec![refusal(0, 20.0), tenfold("gate", 770.0), course("gate", 0, &[1.5], &[0.0])]);
    let path = std::env::temp_dir().join(format!("highwater-overload-{}.json", std::process::id()));
    saved.save(&path).expect("the temporary folder is ours");
    let read = Record::read(&path).expect("just written");
    let _ = std::fs::remove_file(&path);
    assert_eq!(read, saved);
}

/// Purpose: a server whose metrics port does not answer is not one that refused nothing; one without such a port has said
/// nothing about it.
#[test]
fn refusals_that_cannot_be_read_are_not_zero() {
    assert_eq!(super::refusals_counted(None), Ok(0));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let port = taken.local_addr().expect("it is bound").port();
    drop(taken);
    let metrics = Metrics { network: Network::loopback(), port };
    let problem = super::refusals_counted(Some(&metrics)).expect_err("nothing listens there");
    assert!(problem.contains("the metrics port: "), "{problem}");
}
