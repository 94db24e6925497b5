//! Claims: every single thing that forbids one, and what two records say of each other.

use super::super::compare;
use super::super::gate::{Verdict, claim};
use super::super::plan::{Metric, Plan};
use super::super::record::{Interval, Record};
use super::super::show;
use super::{change, record};

/// Ratios whose interval is 1.08 to 1.12.
const FASTER: [f64; 5] = [1.08, 1.09, 1.10, 1.11, 1.12];

fn verdict(record: &Record) -> (Verdict, String) {
    let claim = claim(record, "a", "b", Some("x")).expect("both are there");
    (claim.verdict, claim.reasons.join("; "))
}

/// Purpose: a claim that nothing forbids is made, with the figures it rests on, in the words that are promised.
#[test]
fn faster() {
    let record = record(&FASTER);
    let found = claim(&record, "a", "b", Some("x")).expect("both are there");
    let json = serde_json::to_value(&found).expect("it has a JSON form");
    assert_eq!(json["verdict"], "faster");
    assert_eq!(json["metric"], "requests_per_server_core_second");
    let near = |value: &serde_json::Value, expected: f64| {
        assert!((value.as_f64().expect("a number") - expected).abs() < 1e-9, "{json}");
    };
    near(&json["ratio"]["median"], 1.10);
    near(&json["ratio"]["low"], 1.08);
    near(&json["ratio"]["high"], 1.12);
    near(&json["noise"]["low"], 0.99);
    near(&json["noise"]["high"], 1.01);
    assert_eq!(json["pairs"], 5);
    near(&json["coverage"], 0.9375);
    assert!(show::claim(&found).contains(", 5 pairs, which cover at least 93.8 %"), "{json}");
    assert_eq!(found.verdict.code(), 0);
    // The other way round it is slower by as much.
    assert_eq!(claim(&record, "b", "a", Some("x")).expect("both").verdict, Verdict::Slower);
}

/// Purpose: each rule of the gate alone forbids the claim and says why; exactly at its limit it does not.
#[test]
fn each_rule_forbids() {
    type Spoil = fn(&mut Record);
    let at_limit: &[(Spoil, Verdict, &str)] = &[
        (|r| change(&mut r.cells[1]).errors = 1, Verdict::Same, "b: 1 socket errors"),
        (|r| change(&mut r.cells[0]).non_2xx = 2, Verdict::Same, "a: 2 answers other than 2xx"),
        (|r| all(r, "b", |m| m.client_busy = 0.90), Verdict::Same, "the client was 90 % busy"),
        (|r| all(r, "b", |m| m.client_busy = 0.89), Verdict::Faster, ""),
        (|r| all(r, "b", |m| m.p99_us = 111.0), Verdict::Same, "p99 +11.0 % is worse than +10 %"),
        (|r| all(r, "b", |m| m.p99_us = 110.0), Verdict::Faster, ""),
        (|r| all(r, "b", |m| m.p99_us = 0.0), Verdict::Same, "p99 is not known"),
        (
            |r| all(r, "b", |m| m.rate_ratio = 0.97),
            Verdict::Same,
            "only 97.0 % of the rate was sent",
        ),
        (|r| all(r, "b", |m| m.rate_ratio = 0.98), Verdict::Faster, ""),
        (|r| noise(r, 0.9, 1.2), Verdict::Faster, ""),
        (|r| noise(r, 1.048, 1.2), Verdict::Faster, "the A/A run is off, +4.8 % to +20.0 %"),
        (|r| noise(r, 1.049, 1.2), Verdict::Same, "the A/A run is off, +4.9 % to +20.0 %"),
        (|r| noise(r, 0.8, 1.0 / 1.049), Verdict::Same, "so +4.9 % more are needed"),
        (|r| r.cells[3].status = "void".into(), Verdict::Void, "1 of 10 rows are void"),
        (
            |r| r.cells[3].status = "void".into(),
            Verdict::Void,
            "; measure again, into another record",
        ),
        (
            |r| change(&mut r.cells[3]).server_cpu_us_per_request = 0.0,
            Verdict::Void,
            "b in round 1: its cost is not positive",
        ),
        (|r| r.cells.truncate(8), Verdict::Void, "a was measured in 4 of 5 rounds: `bench run"),
        (one_round, Verdict::Void, "1 pairs are too few"),
        (|r| all(r, "b", |m| m.foreign_on_server_cpus = 0.5), Verdict::Void, "something else used"),
        (|r| r.aa = None, Verdict::Faster, "states no noise"),
    ];
    for (spoil, expected, message) in at_limit {
        let mut record = record(&FASTER);
        spoil(&mut record);
        let (found, reasons) = verdict(&record);
        assert_eq!(found, *expected, "{message}: {reasons}");
        assert!(reasons.contains(message), "{message}: {reasons}");
        let code = match expected {
            Verdict::Faster => 0,
            Verdict::Slower | Verdict::Same => 1,
            Verdict::Void => 2,
        };
        assert_eq!(found.code(), code);
    }
}

fn one_round(record: &mut Record) {
    record.cells.truncate(2);
    record.plan.rounds = 1;
}

fn all(record: &mut Record, server: &str, spoil: fn(&mut super::Measured)) {
    let rows = record.cells.iter_mut().filter(|row| row.server == server);
    rows.for_each(|row| spoil(change(row)));
}

fn noise(record: &mut Record, low: f64, high: f64) {
    record.aa.as_mut().expect("it has one").interval = Some(Interval { low, high });
}

/// Purpose: the margin of three per cent holds on both sides, to the digit; in between nothing is claimed.
#[test]
fn the_margin_is_three_per_cent() {
    for (least, most, expected) in [
        (1.0301, 1.2, Verdict::Faster),
        (1.0299, 1.2, Verdict::Same),
        (0.99, 1.01, Verdict::Same),
        (0.8, 0.9701, Verdict::Same),
        (0.8, 0.9699, Verdict::Slower),
    ] {
        let middle = f64::midpoint(least, most);
        let (found, reasons) = verdict(&record(&[least, middle, middle, middle, most]));
        assert_eq!(found, expected, "{least} to {most}: {reasons}");
    }
}

/// Purpose: the same server twice, whose ratios scatter around 1, is not a claim in either direction.
#[test]
fn nothing_is_claimed_of_noise() {
    let scattered = record(&[0.93, 1.07, 0.98, 1.01, 1.05, 0.96]);
    assert_eq!(verdict(&scattered).0, Verdict::Same);
    assert_eq!(claim(&scattered, "b", "a", Some("x")).expect("both").verdict, Verdict::Same);
}

/// Purpose: without a cell, all cells must allow the claim, and one that is void forbids it.
#[test]
fn all_cells_together() {
    let with_y = |ratio: f64, status: &str| {
        let mut record = record(&FASTER);
        for mut row in record.cells.clone() {
            row.cell = "y".to_owned();
            if row.server == "b" {
                change(&mut row).server_cpu_us_per_request = 10.0 / ratio;
                row.status = status.to_owned();
            }
            record.cells.push(row);
        }
        claim(&record, "a", "b", None).expect("both are there")
    };
    assert_eq!(with_y(1.2, "ok").verdict, Verdict::Faster);
    assert_eq!(with_y(1.0, "ok").verdict, Verdict::Same);
    assert_eq!(with_y(0.5, "ok").verdict, Verdict::Same);
    assert_eq!(with_y(1.2, "void").verdict, Verdict::Void);
    let found = with_y(1.2, "ok");
    assert_eq!((found.cell, found.pairs, found.cells.len()), (None, 10, 2));
}

/// Purpose: what a record does not have is refused by name, with what it has.
#[test]
fn unknown_names() {
    let record = record(&FASTER);
    for (baseline, candidate, cell, message) in [
        ("z", "b", None, "--baseline z: not in this record; it has a, b, c"),
        ("a", "z", None, "--candidate z"),
        ("a", "a", None, "are the same; name two"),
        ("a", "b", Some("z"), "--cell z: not in this record for both; it has x, y"),
    ] {
        let problem = claim(&record, baseline, candidate, cell).expect_err("it is unknown");
        assert!(problem.contains(message), "{problem}");
    }
}

/// Purpose: two records are compared by what they share, a ratio to one baseline; a machine that is slower as a
/// whole is not a change.
#[test]
fn records_are_compared_by_their_ratios() {
    let old = record(&FASTER);
    let mut slower_machine = record(&FASTER);
    slower_machine.cells.iter_mut().for_each(|row| change(row).server_cpu_us_per_request *= 1.5);
    let verdicts = |new: &Record| -> Vec<(String, &'static str)> {
        let changes = compare::compare(&old, new).expect("one plan");
        changes.into_iter().filter(|c| c.cell == "x").map(|c| (c.server, c.verdict)).collect()
    };
    assert_eq!(verdicts(&slower_machine), [("b".to_owned(), "same"), ("c".to_owned(), "void")]);
    let slower = record(&[0.98, 0.99, 1.0, 1.01, 1.02]);
    assert_eq!(verdicts(&slower)[0].1, "slower");
    let faster = record(&[1.28, 1.29, 1.30, 1.31, 1.32]);
    assert_eq!(verdicts(&faster)[0].1, "faster");
    // 1 - 2 * 4 / 252: the orders of five and five values in which at most two quotients are on one side.
    let message = show::change(&compare::compare(&old, &faster).expect("one plan")[0]);
    assert!(message.contains("5 and 5 values, which cover 96.8 %"), "{message}");

    // A cell that both records lack rows of is void, and says so.
    let of_y = compare::compare(&old, &faster).expect("one plan").pop().expect("y is compared");
    assert_eq!((of_y.cell.as_str(), of_y.verdict), ("y", "void"));
    assert!(of_y.reason.is_some_and(|reason| reason.contains("0 of 5 rounds")));

    // One server alone is compared with itself.
    let alone = |record: &Record| {
        let mut record = record.clone();
        record.plan.servers.retain(|server| server.name == "a");
        record
    };
    let changes = compare::compare(&alone(&old), &alone(&slower_machine)).expect("one plan");
    assert_eq!((changes[0].verdict, &changes[0].baseline), ("slower", &None));

    let mut other = old.clone();
    other.plan.cells.clear();
    assert!(compare::compare(&old, &other).is_err());
}

/// Purpose: what the new record cannot be compared in is void, and does not pass as unchanged: void rows, missing rounds, a
/// server or a cell that it does not have. The baseline is of the cell, and cells about overload are left out.
#[test]
fn what_is_not_compared_is_void() {
    let old = record(&FASTER);
    let of_b = |new: &Record| {
        let changes = compare::compare(&old, new).expect("they have a cell in common");
        let of_b = changes.into_iter().find(|change| change.cell == "x" && change.server == "b");
        let of_b = of_b.expect("the old record has it");
        (of_b.verdict, of_b.reason.clone().unwrap_or_default(), show::change(&of_b))
    };
    type Spoil = fn(&mut Record);
    let spoils: [(Spoil, &str); 5] = [
        (|r| r.cells[3].status = "void".into(), "the new record: 1 of 10 rows are void"),
        (|r| r.cells.truncate(9), "the new record: b was measured in 4 of 5 rounds"),
        (|r| r.plan.servers.retain(|server| server.name != "b"), "does not have it"),
        (|r| r.plan.cells.retain(|cell| cell.name != "x"), "does not have it"),
        (|r| all(r, "b", |m| m.foreign_on_server_cpus = 0.5), "too few values count"),
    ];
    for (spoil, message) in spoils {
        let mut new = record(&FASTER);
        spoil(&mut new);
        let (verdict, reason, shown) = of_b(&new);
        assert_eq!(verdict, "void", "{message}");
        assert!(
            reason.contains(message) && shown.contains(message),
            "{message}: {reason}: {shown}"
        );
    }
    let mut without_a = record(&FASTER);
    without_a.plan.cells.retain(|cell| cell.name == "x");
    without_a.plan.cells[0].servers = vec!["b".to_owned(), "c".to_owned()];
    let changes = compare::compare(&without_a, &without_a).expect("one plan");
    assert_eq!((changes.len(), changes[0].server.as_str()), (1, "c"));
    assert_eq!(changes[0].baseline.as_deref(), Some("b"));
    without_a.plan.cells[0].load = 2.0;
    let problem = compare::compare(&without_a, &without_a).expect_err("nothing is left");
    assert!(problem.contains("only cells about overload"), "{problem}");
}

/// A record of programs `a` and `b` in cell `x`: `a` costs 10 µs, `b` 10 µs divided by each of `ratios`, both are busy all
/// the time, and `b` does twice as much a second. Their servers cost the same.
fn of_programs(ratios: &[f64], metric: &str) -> Record {
    let program = |name| {
        format!(
            "[[program]]\nname = {name:?}\ncommand = [\"true\"]\n\
             figures = {{ requests = {{ json = [\"ok\"] }} }}\n"
        )
    };
    let text = ["a", "b"].map(program).concat() + "[[cell]]\nname = \"x\"\n";
    let plan = Plan::parse(&format!("name = \"test\"\n{metric}\n{text}"));
    let plan = Plan { rounds: ratios.len() as u32, ..plan.expect("nothing is wrong with it") };
    let mut record = Record { plan, ..record(ratios) };
    for row in &mut record.cells {
        let is_b = row.server == "b";
        let measured = change(row);
        measured.client_cpu_us_per_request = measured.server_cpu_us_per_request;
        measured.server_cpu_us_per_request = 5.0;
        measured.client_busy = 1.0;
        measured.rps = if is_b { 200.0 } else { 100.0 };
    }
    record
}

/// Purpose: programs are judged by their own cost, or by what they do in a second if the plan says so, and not refused for
/// being busy, which is what they are there for; errors and void rows forbid a claim as with servers.
#[test]
fn programs_are_judged_by_their_own_cost() {
    let judged = |record: &Record| claim(record, "a", "b", None).expect("both are there");
    let own = judged(&of_programs(&FASTER, ""));
    assert_eq!((own.verdict, own.metric), (Verdict::Faster, Metric::ClientCoreSecond), "{own:?}");
    let expected = judged(&record(&FASTER)).ratio.map(|ratio| ratio.median);
    let median = own.ratio.map(|ratio| ratio.median);
    assert!(median.zip(expected).is_some_and(|(a, b)| (a / b - 1.0).abs() < 1e-9), "{own:?}");
    // It is not measured if the plan does not ask for it.
    let mut without_p99 = of_programs(&FASTER, "");
    all(&mut without_p99, "b", |m| m.p99_us = 0.0);
    let found = judged(&without_p99);
    assert_eq!(found.verdict, Verdict::Faster, "{found:?}");
    assert!(found.reasons.concat().contains("p99 is not known"), "{found:?}");
    let by_second = judged(&of_programs(&FASTER, "metric = \"requests_per_second\""));
    assert_eq!(by_second.ratio.map(|ratio| ratio.median), Some(2.0), "{by_second:?}");
    assert_eq!(serde_json::json!(by_second)["metric"], "requests_per_second");
    let mut with_errors = of_programs(&FASTER, "");
    change(&mut with_errors.cells[1]).errors = 1;
    assert_eq!(judged(&with_errors).verdict, Verdict::Same);
    let mut with_void = of_programs(&FASTER, "");
    with_void.cells[1].status = "void".to_owned();
    assert_eq!(judged(&with_void).verdict, Verdict::Void);
    let other = compare::compare(&of_programs(&FASTER, ""), &record(&FASTER));
    assert!(other.is_err_and(|problem| problem.contains("compare different figures")));
}
