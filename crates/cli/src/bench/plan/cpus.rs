//! Which CPUs belong to the server, and which to the client? Pure, given the CPUs that may be used.

use super::Plan;

/// Disjoint, unless the plan says that both sides share them; in ascending order, neither empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cpus {
    pub(crate) server: Vec<usize>,
    pub(crate) client: Vec<usize>,
}

/// Highest number that a list may name: more than Linux can be built for.
const CPU_MAX: usize = 65_535;

impl Cpus {
    /// The CPUs that the plan names, or else the first CPUs for the server's workers and the others for the client.
    ///
    /// # Errors
    /// A CPU may not be used or belongs to both sides, or there are too few; with the field and the remedy.
    pub(crate) fn choose(plan: &Plan, allowed: &[usize]) -> Result<Cpus, String> {
        let asked = |field: &str, text: &Option<String>| {
            let list = text.as_deref().map(parse).transpose();
            let list = list.map_err(|problem| format!("{field}: {problem}"))?;
            match list.iter().flatten().find(|cpu| !allowed.contains(cpu)) {
                None => Ok(list),
                Some(cpu) => Err(format!(
                    "{field}: CPU {cpu} may not be used here; these may: {}",
                    show(allowed)
                )),
            }
        };
        let server = asked("server_cpus", &plan.server_cpus)?;
        let client = asked("client_cpus", &plan.client_cpus)?;
        if plan.shared_cpus {
            let both = server.unwrap_or_else(|| allowed.to_vec());
            return Ok(Cpus { server: both.clone(), client: both });
        }
        let without = |used: &[usize]| -> Vec<usize> {
            allowed.iter().copied().filter(|cpu| !used.contains(cpu)).collect()
        };
        let chosen = match (server, client) {
            (Some(server), Some(client)) => Cpus { server, client },
            (Some(server), None) => Cpus { client: without(&server), server },
            (None, client) => {
                let workers = plan.servers.first().map_or(1, |server| server.workers);
                let mut server = without(client.as_deref().unwrap_or_default());
                // A client needs as much as a server; the workers get no more than they can use.
                let half = if client.is_some() { server.len() } else { server.len() / 2 };
                server.truncate(half.min(workers as usize));
                Cpus { client: client.unwrap_or_else(|| without(&server)), server }
            }
        };
        if chosen.server.is_empty() || chosen.client.is_empty() {
            return Err(format!(
                "server and client need a CPU each, and {} may be used here: run it on a machine with \
                 two, or name other server_cpus and client_cpus",
                show(allowed)
            ));
        }
        Ok(chosen)
    }
}

/// A list as for taskset: `0`, `0-3`, `0,2-4`.
///
/// # Errors
/// It is not a list; the message says what to write.
pub(crate) fn parse(text: &str) -> Result<Vec<usize>, String> {
    let refuse = || format!("{text:?} is not a list of CPUs; write \"0\", \"0-3\" or \"0,2-4\"");
    let number = |text: &str| {
        text.trim().parse::<usize>().ok().filter(|cpu| *cpu <= CPU_MAX).ok_or_else(refuse)
    };
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(refuse());
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

/// The list as [`parse`] reads it.
pub(crate) fn show(cpus: &[usize]) -> String {
    let numbers: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    numbers.join(",")
}
