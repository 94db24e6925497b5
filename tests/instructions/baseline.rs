//! The counts that were accepted, and what is different today.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// How much a count may grow before it is a failure, and shrink before the baseline should follow. A program has the same
/// counts on a busy machine. The same sources built in another folder have had 1 % more or less: the compiler splits a crate
/// into units by names that depend on the folder, and inlines less between them. A change moves that, too, by the way.
const TOLERANCE: f64 = 0.02;

/// How many allocations more for each request are a failure: one for every twentieth. A buffer that grows now and then
/// is less.
const ALLOCATIONS_MORE: f64 = 0.05;

/// The command that makes today's counts the baseline.
const ACCEPT: &str = "make instructions-accept";

/// What one request costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Count {
    /// Of our own code, the standard library's included and the C library's not.
    pub(super) instructions: f64,
    /// Calls of the C library for memory.
    pub(super) allocations: f64,
}

impl Count {
    /// For each of `times`, to three digits behind the point.
    pub(super) fn per(self, times: u32) -> Count {
        let each = |total: f64| (total / f64::from(times) * 1e3).round() / 1e3;
        Count { instructions: each(self.instructions), allocations: each(self.allocations) }
    }
}

/// Counts, and the compiler that made what was counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Baseline {
    /// As `rustc --version` says it.
    pub(super) compiler: String,
    /// The processor's architecture.
    pub(super) arch: String,
    /// For each request, by the name of the work.
    pub(super) counts: BTreeMap<String, Count>,
}

impl Baseline {
    pub(super) fn here(counts: BTreeMap<String, Count>) -> Baseline {
        Baseline { compiler: compiler(), arch: std::env::consts::ARCH.to_owned(), counts }
    }

    pub(super) fn read(path: &Path) -> Result<Baseline, String> {
        let shown = path.display();
        let text =
            fs::read_to_string(path).map_err(|error| format!("{shown}: {error}; {ACCEPT}"))?;
        serde_json::from_str(&text).map_err(|error| format!("{shown}: {error}; {ACCEPT}"))
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), String> {
        let shown = path.display();
        let text =
            serde_json::to_string_pretty(self).map_err(|error| format!("{shown}: {error}"))?;
        fs::write(path, text + "\n").map_err(|error| format!("{shown}: {error}"))
    }

    /// # Errors
    /// Its counts are another compiler's, or another processor's: they say nothing about this one.
    pub(super) fn fits(&self) -> Result<(), String> {
        let (compiler, arch) = (compiler(), std::env::consts::ARCH);
        if self.compiler == compiler && self.arch == arch {
            return Ok(());
        }
        Err(format!(
            "the baseline is of another compiler: {} on {}, and this is {compiler} on {arch}. Build with that one, or \
             accept the new counts in a commit of their own, before anything else changes: {ACCEPT}",
            self.compiler, self.arch
        ))
    }
}

/// The compiler that cargo uses, which is the one that built this program unless it was changed since.
fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").output();
    output.map_or_else(
        |error| error.to_string(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

/// What is to be said about each piece of work, and whether any of it is a failure.
pub(super) fn compare(known: &Baseline, found: &Baseline) -> (Vec<String>, bool) {
    let (mut lines, mut has_failed) = (Vec::new(), false);
    for (name, new) in &found.counts {
        let Some(old) = known.counts.get(name) else {
            lines.push(format!(
                "NEW       {name}: {} instructions, not in the baseline: {ACCEPT}",
                new.instructions
            ));
            has_failed = true;
            continue;
        };
        let change = new.instructions / old.instructions - 1.0;
        let verdict = match () {
            () if change > TOLERANCE => "GROWN",
            () if new.allocations > old.allocations + ALLOCATIONS_MORE => "ALLOCATES",
            () if change < -TOLERANCE || new.allocations + ALLOCATIONS_MORE < old.allocations => {
                "shrunk"
            }
            () => "same",
        };
        let mut line = format!(
            "{verdict:<10}{name}: {} instructions, were {} ({:+.2} %); {} allocations, were {}",
            new.instructions,
            old.instructions,
            change * 100.0,
            new.allocations,
            old.allocations
        );
        match verdict {
            "GROWN" | "ALLOCATES" => {
                has_failed = true;
                line +=
                    &format!(". Mend it; or, if it is worth that, say why in the commit: {ACCEPT}");
            }
            "shrunk" => line += &format!(". Keep it so: {ACCEPT}"),
            _ => {}
        }
        lines.push(line);
    }
    for name in known.counts.keys().filter(|name| !found.counts.contains_key(*name)) {
        lines.push(format!(
            "GONE      {name}: it is in the baseline and is not counted any more: {ACCEPT}"
        ));
        has_failed = true;
    }
    (lines, has_failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(counts: &[(&str, f64, f64)]) -> Baseline {
        let counts = counts.iter().map(|(name, instructions, allocations)| {
            ((*name).to_owned(), Count { instructions: *instructions, allocations: *allocations })
        });
        Baseline::here(counts.collect())
    }

    /// Purpose: growth beyond the tolerance and one more allocation fail; what is within passes; what shrank is told.
    #[test]
    fn growth_fails() {
        let known = baseline(&[("get", 1000.0, 1.0)]);
        let with = |instructions, allocations| {
            let (lines, failed) = compare(&known, &baseline(&[("get", instructions, allocations)]));
            (lines.join("\n"), failed)
        };
        assert!(!with(1019.0, 1.0).1);
        assert!(!with(981.0, 1.0).0.contains(ACCEPT));
        let (line, failed) = with(1021.0, 1.0);
        assert!(failed);
        for part in ["GROWN", "get", "1021", "1000", "+2.10 %", ACCEPT] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(!with(1000.0, 1.01).1);
        assert!(with(1000.0, 1.0625).1, "one for every sixteenth request");
        let (line, failed) = with(970.0, 1.0);
        assert!(!failed && line.contains("shrunk") && line.contains(ACCEPT), "{line}");
    }

    /// Purpose: work cannot leave or enter the gate unnoticed.
    #[test]
    fn work_that_comes_or_goes_fails() {
        let (one, two) =
            (baseline(&[("a", 1.0, 0.0)]), baseline(&[("a", 1.0, 0.0), ("b", 1.0, 0.0)]));
        assert!(compare(&one, &two).1);
        assert!(compare(&two, &one).1);
        assert!(!compare(&two, &two).1);
    }

    /// Purpose: counts of another compiler are not compared; the message names both and the way on.
    #[test]
    fn another_compiler_is_named() {
        let here = baseline(&[]);
        assert_eq!(here.fits(), Ok(()));
        let other = Baseline { compiler: "rustc 1.0.0".to_owned(), ..here };
        let problem = other.fits().expect_err("another compiler");
        assert!(problem.contains("rustc 1.0.0") && problem.contains(ACCEPT), "{problem}");
    }
}
