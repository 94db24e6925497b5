//! Which cores are there, which of them share a core or a memory node, and how fast may they run?

use serde::Serialize;

use super::{Mend, Read};
use crate::bench::parse_cpus;

/// Cores that are looked at, at most.
const CORES_MAX: usize = 4096;

/// Drivers that leave the choice of the frequency to the processor.
const QUICK: [&str; 2] = ["intel_pstate", "amd-pstate-epp"];

/// How the cores are laid out.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Cores {
    /// Cores of the machine that are switched on.
    online: Vec<usize>,
    /// Groups of two or more that are threads of one core, as far as this process may use them.
    siblings: Vec<Vec<usize>>,
    /// Cores by memory node.
    nodes: Vec<Vec<usize>>,
    /// How many of those have cores that this process may use.
    #[serde(skip)]
    nodes_allowed: usize,
    /// Who decides about the frequency; `None` where the kernel does not, as in virtual machines.
    governor: Option<String>,
    /// The kernel's driver that carries it out.
    driver: Option<String>,
}

pub(super) fn look(read: Read<'_>, allowed: &[usize]) -> Cores {
    const CPU: &str = "/sys/devices/system/cpu";
    let list = |path: &str| parse_cpus(read(path)?.trim()).ok();
    let online = list(&format!("{CPU}/online")).unwrap_or_else(|| allowed.to_vec());
    let mut siblings: Vec<Vec<usize>> = Vec::new();
    for cpu in allowed.iter().take(CORES_MAX) {
        let mut group =
            list(&format!("{CPU}/cpu{cpu}/topology/thread_siblings_list")).unwrap_or_default();
        group.retain(|sibling| allowed.contains(sibling));
        if group.len() > 1 && !siblings.contains(&group) {
            siblings.push(group);
        }
    }
    let nodes = list("/sys/devices/system/node/online").unwrap_or_default();
    let nodes: Vec<Vec<usize>> = nodes
        .iter()
        .filter_map(|node| list(&format!("/sys/devices/system/node/node{node}/cpulist")))
        .collect();
    let is_allowed = |node: &&Vec<usize>| node.iter().any(|cpu| allowed.contains(cpu));
    let nodes_allowed = nodes.iter().filter(is_allowed).count();
    let first = allowed.first().copied().unwrap_or(0);
    let frequency = |file: &str| {
        let text = read(&format!("{CPU}/cpu{first}/cpufreq/{file}"));
        text.map(|text| text.trim().to_owned())
    };
    let (governor, driver) = (frequency("scaling_governor"), frequency("scaling_driver"));
    Cores { online, siblings, nodes, nodes_allowed, governor, driver }
}

impl Cores {
    pub(super) fn lines(&self) -> Vec<String> {
        let groups = |groups: &[Vec<usize>]| {
            let group = |group: &Vec<usize>| {
                group.iter().map(ToString::to_string).collect::<Vec<_>>().join("+")
            };
            groups.iter().map(group).collect::<Vec<_>>().join(" ")
        };
        let mut lines = vec![format!("{} online on the machine", self.online.len())];
        lines.push(match self.siblings.as_slice() {
            [] => "no two are threads of one core".to_owned(),
            siblings => format!(
                "threads of one core: {}; two workers there share one core's time",
                groups(siblings)
            ),
        });
        if self.nodes.len() > 1 {
            lines.push(format!("{} memory nodes: {}", self.nodes.len(), groups(&self.nodes)));
        }
        lines.push(match (&self.governor, &self.driver) {
            (Some(governor), Some(driver)) => format!("frequency governor: {governor} ({driver})"),
            (Some(governor), None) => format!("frequency governor: {governor}"),
            (None, _) => "the kernel does not set frequencies here (a virtual machine?)".to_owned(),
        });
        lines
    }

    pub(super) fn mends(&self) -> Vec<Mend> {
        // With drivers that leave the frequency to the processor, powersave is quick enough.
        let is_left = self.driver.as_ref().is_some_and(|driver| QUICK.contains(&driver.as_str()));
        let is_slow = |governor: &String| match governor.as_str() {
            "powersave" => !is_left,
            governor => governor == "conservative",
        };
        let governor = self.governor.as_ref().filter(|governor| is_slow(governor));
        let slow = governor.map(|governor| Mend {
            what: format!(
                "the frequency governor is {governor}: cores may stay slow while requests wait"
            ),
            command: "cpupower frequency-set -g performance".to_owned(),
        });
        let nodes = (self.nodes_allowed > 1).then(|| Mend {
            what: "cores are on several memory nodes, and a worker's memory should be on its own: run one server for \
                   each node, on one port (SO_REUSEPORT)"
                .to_owned(),
            command: "numactl --cpunodebind=0 --membind=0 SERVER …".to_owned(),
        });
        slow.into_iter().chain(nodes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: threads of one core are reported once, and only those that this process may use; nodes and the governor are
    /// reported, with advice only where that helps.
    #[test]
    fn the_layout_is_read() {
        let read = |path: &str| {
            let text = match path.strip_prefix("/sys/devices/system/")? {
                "cpu/online" => "0-7\n",
                "cpu/cpu0/topology/thread_siblings_list"
                | "cpu/cpu4/topology/thread_siblings_list" => "0,4\n",
                "cpu/cpu1/topology/thread_siblings_list" => "1,5\n",
                "node/online" => "0-1\n",
                "node/node0/cpulist" => "0-3\n",
                "node/node1/cpulist" => "4-7\n",
                "cpu/cpu0/cpufreq/scaling_governor" => "powersave\n",
                _ => return None,
            };
            Some(text.to_owned())
        };
        let cores = look(&read, &[0, 1, 4]);
        assert_eq!(cores.online.len(), 8);
        assert_eq!(cores.siblings, [vec![0, 4]]);
        assert_eq!(cores.nodes, [vec![0, 1, 2, 3], vec![4, 5, 6, 7]]);
        let mends = cores.mends();
        assert!(
            mends[0].command.contains("performance") && mends[1].command.contains("numactl"),
            "{mends:?}"
        );
        assert!(cores.lines().iter().any(|line| line.contains("0+4")), "{:?}", cores.lines());

        // Nothing is to be mended where all allowed cores are on one node, and the processor chooses the frequency.
        for driver in QUICK {
            let with_driver = |path: &str| match path.ends_with("scaling_driver") {
                true => Some(format!("{driver}\n")),
                false => read(path),
            };
            assert!(look(&with_driver, &[0, 1]).mends().is_empty(), "{driver}");
        }
        let with_driver = |path: &str| match path.ends_with("scaling_driver") {
            true => Some("acpi-cpufreq\n".to_owned()),
            false => read(path),
        };
        assert_eq!(look(&with_driver, &[0, 1]).mends().len(), 1);

        let virtual_machine = look(&|_| None, &[0, 1]);
        assert_eq!(virtual_machine.online, [0, 1]);
        assert!(virtual_machine.mends().is_empty());
    }
}
