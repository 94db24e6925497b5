//! From samples to a flame graph, and to the functions that take most.

use std::collections::{BTreeMap, HashSet};

use inferno::collapse::Collapse;
use inferno::collapse::perf::{Folder, Options};
use inferno::flamegraph;
use serde::Serialize;

use super::threads::{Places, Thread};

/// Functions that the report names.
const FUNCTIONS_MAX: usize = 25;

/// Samples, added up: `thread;caller;…;function count`, a line each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stacks {
    pub(super) folded: Vec<String>,
}

/// Where the time went in a span: what was sampled, how, and what the threads did.
pub(super) struct Cpu {
    pub(super) with: String,
    pub(super) what: &'static str,
    pub(super) stacks: Stacks,
    pub(super) threads: Vec<Thread>,
}

/// A function's share of all samples.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Function {
    pub(super) name: String,
    /// Percent of samples in it.
    pub(super) own_percent: f64,
    /// Percent of samples in it or in what it called.
    pub(super) with_callees_percent: f64,
}

impl Stacks {
    /// From what `perf script` prints.
    pub(super) fn of_perf(script: &[u8]) -> Result<Stacks, String> {
        let mut folded = Vec::new();
        let mut folder = Folder::from(Options::default());
        folder
            .collapse(script, &mut folded)
            .map_err(|error| format!("reading perf's samples: {error}"))?;
        let text = String::from_utf8_lossy(&folded);
        Ok(Stacks { folded: text.lines().map(str::to_owned).collect() })
    }

    /// From where threads were seen: a thread, and the kernel's function that it was in.
    pub(super) fn of_places(places: &Places, name: impl Fn(u32) -> String) -> Stacks {
        let line = |((id, place), count): (&(u32, String), &u64)| {
            format!("{};{} {count}", name(*id).replace(';', ":"), place.replace(';', ":"))
        };
        Stacks { folded: places.iter().map(line).collect() }
    }

    fn samples(&self) -> impl Iterator<Item = (Vec<&str>, u64)> {
        self.folded.iter().filter_map(|line| {
            let (stack, count) = line.rsplit_once(' ')?;
            Some((stack.split(';').collect(), count.parse().ok()?))
        })
    }

    pub(super) fn total(&self) -> u64 {
        self.samples().map(|(_, count)| count).sum()
    }

    /// The functions in most samples by themselves, most first. The first of a stack is its thread.
    pub(super) fn functions(&self) -> Vec<Function> {
        let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (stack, count) in self.samples() {
            let Some((_thread, functions)) = stack.split_first() else { continue };
            if let Some(last) = functions.last() {
                counts.entry(last).or_default().0 += count;
            }
            // One that calls itself is one.
            for function in functions.iter().collect::<HashSet<_>>() {
                counts.entry(function).or_default().1 += count;
            }
        }
        let total = self.total().max(1) as f64;
        let percent = |count: u64| count as f64 / total * 100.0;
        let mut functions: Vec<Function> = counts
            .into_iter()
            .map(|(name, (own, all))| Function {
                name: name.to_owned(),
                own_percent: percent(own),
                with_callees_percent: percent(all),
            })
            .collect();
        functions.sort_by(|a, b| b.own_percent.total_cmp(&a.own_percent));
        functions.truncate(FUNCTIONS_MAX);
        functions
    }

    /// The picture: one SVG that loads nothing from anywhere.
    pub(super) fn svg(&self, title: &str, what: &str) -> Result<Vec<u8>, String> {
        let mut options = flamegraph::Options::default();
        options.title = title.to_owned();
        options.count_name = what.to_owned();
        // Names are as long as they are; the page may be wide.
        options.image_width = Some(1600);
        let mut svg = Vec::new();
        let lines = self.folded.iter().map(String::as_str);
        flamegraph::from_lines(&mut options, lines, &mut svg)
            .map_err(|error| format!("the flame graph: {error}"))?;
        Ok(svg)
    }
}
