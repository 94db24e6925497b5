//! Did the client send what it was asked to? If not, a row is about the client.

use super::gate::RATE_RATIO_MIN;
use super::others::{self, Other};
use crate::load::Outcome;

/// Why a row whose client did not send what it was asked for is void.
pub(super) fn behind(outcome: &Outcome, of: &str, others: &[Other]) -> Option<String> {
    if outcome.rate_ratio() >= RATE_RATIO_MIN {
        return None;
    }
    let busy = outcome.client_cpu * 100.0;
    let kept = match others::show(others) {
        Some(others) => format!("; others used the CPUs: {others}"),
        None => String::new(),
    };
    Some(format!(
        "{of}the client fell behind: it sent {:.1} % of the rate, and used {busy:.0} % of a CPU{kept}",
        outcome.rate_ratio() * 100.0
    ))
}
