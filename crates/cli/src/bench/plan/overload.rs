//! The fields of a plan about overload: a separate network, loads that change during a cell, and a shorter form of the
//! plan.

use std::collections::BTreeMap;

use highwater_core::prng::Prng;
use serde::{Deserialize, Serialize};

use super::{Cell, Plan, Span};

/// Where servers and clients meet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Network {
    /// Two network namespaces and a cable between them, instead of loopback: the kernel's work for a side runs on
    /// that side's CPUs. Needs root.
    #[serde(default)]
    pub(crate) namespaces: bool,
}

/// What `--quick` changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Quick {
    pub(crate) rounds: Option<u32>,
    pub(crate) warm_up: Option<Span>,
    pub(crate) duration: Option<Span>,
    /// The cells that stay; empty: all of them.
    #[serde(default)]
    pub(crate) cells: Vec<String>,
    /// The servers or programs that stay; empty: all of them.
    #[serde(default, alias = "programs")]
    pub(crate) servers: Vec<String>,
}

/// A load that begins and ends during a cell. Fields that it leaves out come from the cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    #[serde(default)]
    pub(crate) name: String,
    /// From the beginning of the cell.
    #[serde(default = "no_time")]
    pub(crate) at: Span,
    /// `None`: until the next step begins, or the cell ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lasts: Option<Span>,
    /// The rate, in capacities of the server.
    #[serde(default)]
    pub(crate) load: f64,
    /// Requests per second. Without load and rate: a closed loop.
    #[serde(default)]
    pub(crate) rate: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) connections: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
    /// They replace `{value}` in the path, in turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) values: Vec<u64>,
    /// Instead of `values`: those of a distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pareto: Option<Pareto>,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) close: Option<bool>,
    #[serde(default = "super::one")]
    pub(crate) burst: u32,
    /// At random moments instead of regular ones.
    #[serde(default)]
    pub(crate) random: bool,
    /// The first and the last of the addresses that its connections come from, in turn, by their last parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sources: Option<[u8; 2]>,
    /// In a cell that refuses nothing: requests that no server could answer, such as those whose deadline has passed.
    #[serde(default)]
    pub(crate) may_be_refused: bool,
}

/// The heavy tail of service times: a Pareto distribution between bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pareto {
    pub(crate) shape: f64,
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Pareto {
    /// How many values represent it.
    const VALUES: u32 = 1000;

    /// Its quantiles, each as likely as the others, in random order.
    fn values(&self, seed: u64) -> Vec<u64> {
        let bound = 1.0 - (self.least as f64 / self.most as f64).powf(self.shape);
        let quantile = |number: u32| {
            let share = (f64::from(number) + 0.5) / f64::from(Pareto::VALUES);
            (self.least as f64 * (1.0 - share * bound).powf(-1.0 / self.shape)).round() as u64
        };
        let mut values: Vec<u64> = (0..Pareto::VALUES).map(quantile).collect();
        Prng::from_seed(seed).shuffle(&mut values);
        values
    }
}

impl Step {
    /// The values of `{value}`, in order; empty if its path has no such placeholder.
    pub(crate) fn values(&self, seed: u64) -> Vec<u64> {
        self.pareto.map_or_else(|| self.values.clone(), |pareto| pareto.values(seed))
    }
}

fn no_time() -> Span {
    Span(std::time::Duration::ZERO)
}

impl Cell {
    /// Whether it is about overload rather than the cost of a request: such a cell has no claims.
    pub(crate) fn is_overload(&self) -> bool {
        self.deadline.is_some()
            || self.load > 0.0
            || self.refusal.is_some()
            || self.refuses_nothing
            || !self.steps.is_empty()
    }

    /// Whether its first contender is measured against itself, before everything else.
    pub(crate) fn has_aa(&self) -> bool {
        self.aa && !self.is_overload()
    }

    /// The duration of its measurement in `plan`.
    pub(crate) fn duration(&self, plan: &Plan) -> Span {
        self.duration.unwrap_or(plan.duration)
    }

    /// The duration of its warm-up.
    pub(crate) fn warm_up(&self, plan: &Plan) -> Span {
        self.warm_up.unwrap_or(plan.warm_up)
    }

    /// The number of rounds of `plan` in which it is measured.
    pub(crate) fn rounds(&self, plan: &Plan) -> u32 {
        self.rounds.map_or(plan.rounds, |rounds| rounds.min(plan.rounds))
    }

    /// When step `index` ends, from the beginning of the cell.
    pub(crate) fn end_of(&self, index: usize, plan: &Plan) -> Span {
        let step = &self.steps[index];
        let whole = self.duration(plan);
        match step.lasts {
            Some(lasts) => Span((step.at.0 + lasts.0).min(whole.0)),
            None => {
                let later = self.steps.iter().map(|step| step.at);
                later.filter(|at| *at > step.at).min().unwrap_or(whole).min(whole)
            }
        }
    }
}

impl Plan {
    /// The plan with what `[quick]` changes.
    ///
    /// # Errors
    /// It has no such table.
    pub(crate) fn shortened(mut self) -> Result<Plan, String> {
        let missing = "--quick: this plan has no [quick]; use --rounds and --only";
        let quick = self.quick.take().ok_or(missing)?;
        self.rounds = quick.rounds.unwrap_or(self.rounds);
        self.warm_up = quick.warm_up.unwrap_or(self.warm_up);
        self.duration = quick.duration.unwrap_or(self.duration);
        let stays = |wanted: &[String], name: &String| wanted.is_empty() || wanted.contains(name);
        self.cells.retain(|cell| stays(&quick.cells, &cell.name));
        // Servers that run beside programs stay: programs refer to them.
        match self.programs.is_empty() {
            true => self.servers.retain(|server| stays(&quick.servers, &server.name)),
            false => self.programs.retain(|program| stays(&quick.servers, &program.name)),
        }
        let names: Vec<String> =
            self.contenders().map(|contender| contender.name().to_owned()).collect();
        // A cell whose own servers are all gone must not fall back to all servers.
        self.cells.retain_mut(|cell| {
            let had_some = !cell.servers.is_empty();
            cell.servers.retain(|name| names.contains(name));
            cell.best_of.retain(|name| names.contains(name));
            !had_some || !cell.servers.is_empty()
        });
        Ok(self)
    }
}
