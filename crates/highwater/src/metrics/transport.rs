//! How do the workers move bytes?
//!
//! One transport is chosen for all of them. A worker that finds no memory for a ring of its own serves over another one, and
//! counts there.

use std::collections::BTreeMap;

use super::Server;
use super::exposition::{Kind, Page};

/// The transport chosen for all workers, and why.
#[derive(Debug)]
pub(super) struct Transport {
    pub(super) name: String,
    pub(super) reason: String,
}

pub(super) fn write(page: &mut Page, chosen: &Transport, server: Option<&Server>) {
    let mut workers = BTreeMap::from([(chosen.name.as_str(), 0_u64)]);
    let own = server.into_iter().flat_map(|server| server.workers.iter());
    for transport in own.filter_map(|worker| worker.transport()) {
        *workers.entry(transport).or_default() += 1;
    }
    let reason = reason(chosen, &workers);
    let labels = [("transport", chosen.name.as_str()), ("reason", reason.as_str())];
    let help = "How bytes are moved, and why; always 1.";
    page.family("highwater_transport_info", help, Kind::Gauge).sample(&labels, 1_u64);
    let help = "Workers that serve over each transport; more than one if there was no memory for all rings.";
    let mut family = page.family("highwater_transport_workers", help, Kind::Gauge);
    for (transport, count) in workers {
        family.sample(&[("transport", transport)], count);
    }
}

/// Why this transport was chosen, and how many workers serve over another one.
fn reason(chosen: &Transport, workers: &BTreeMap<&str, u64>) -> String {
    let all: u64 = workers.values().sum();
    let mut reason = chosen.reason.clone();
    for (transport, count) in workers.iter().filter(|(transport, _)| **transport != chosen.name) {
        reason += &format!("; {count} of {all} workers serve over {transport}, for want of memory");
    }
    reason
}
