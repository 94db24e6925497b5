//! CPU time of processes that run beside the measured ones: services, and the parts that a plan names. It is reported
//! separately, and not counted as disturbance of a row.

use std::collections::BTreeMap;
use std::fs;

use super::tree::{self, Usage};

/// Where to look.
#[derive(Clone, Debug, Default)]
pub(super) struct Background {
    /// By name: a text in the command line.
    pub(super) parts: BTreeMap<String, String>,
    /// The root processes of all services.
    pub(super) supervisors: Vec<u32>,
}

/// CPU use up to an instant.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// All of them together, without the measured processes.
    all: Usage,
    /// Their ids.
    pub(super) ids: Vec<u32>,
    parts: BTreeMap<String, Usage>,
}

impl Background {
    /// Their use until now; `measured` are processes that are counted elsewhere.
    pub(super) fn see(&self, measured: &[u32]) -> Seen {
        if self.parts.is_empty() && self.supervisors.is_empty() {
            return Seen::default();
        }
        let mut families = tree::families();
        // A supervisor's command line contains the command that it starts.
        let own = std::process::id();
        let not_parts: Vec<u32> =
            families.get(&own).into_iter().flatten().copied().chain([own]).collect();
        let lines: Vec<(u32, String)> = families
            .values()
            .flatten()
            .filter(|id| !not_parts.contains(id))
            .filter_map(|id| Some((*id, command_line(*id)?)))
            .collect();
        let mut all = Vec::new();
        let mut parts = BTreeMap::new();
        for (name, words) in &self.parts {
            let heads = lines.iter().filter(|(_, line)| line.contains(words.as_str()));
            let mut of_part: Vec<u32> = Vec::new();
            for (head, _) in heads {
                of_part.push(*head);
                of_part.extend(tree::below(&mut families.clone(), *head));
            }
            of_part.sort_unstable();
            of_part.dedup();
            parts.insert(name.clone(), Usage::of(&of_part));
            all.extend(of_part);
        }
        for supervisor in &self.supervisors {
            all.extend(tree::below(&mut families, *supervisor));
        }
        all.sort_unstable();
        all.dedup();
        all.retain(|id| !measured.contains(id));
        Seen { all: Usage::of(&all), ids: all, parts }
    }
}

impl Seen {
    /// CPU seconds of all of them since `earlier`.
    pub(super) fn cpu_since(&self, earlier: &Seen) -> f64 {
        self.all.cpu_since(&earlier.all).0
    }

    /// CPU seconds of each part since `earlier`.
    pub(super) fn parts_since(&self, earlier: &Seen) -> BTreeMap<String, f64> {
        let none = Usage::default();
        let since = |(name, usage): (&String, &Usage)| {
            let before = earlier.parts.get(name).unwrap_or(&none);
            (name.clone(), usage.cpu_since(before).0)
        };
        self.parts.iter().map(since).collect()
    }
}

/// Its words, each followed by a space, so that a part can be recognized by a whole word.
fn command_line(id: u32) -> Option<String> {
    let line = fs::read(format!("/proc/{id}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&line).replace('\0', " "))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use highwater_sys::process::{End, tie};

    use super::*;

    /// Purpose: a part is found by its command line, even if it is no longer our child; its children belong to it; and
    /// measured processes are not counted twice.
    #[test]
    fn parts_are_found_by_their_words() {
        let mark = format!("part-{}", std::process::id());
        let mut shell = Command::new("/bin/sh");
        // The loop is the shell's child, and has other words. The mark is the inner shell's name.
        shell.args([
            "-c",
            "/bin/sh -c '/bin/sh -c \"while :; do :; done\" & wait' $0 & wait",
            &mark,
        ]);
        tie(&mut shell, &[], End::Kill);
        let mut shell = shell.stdin(Stdio::null()).spawn().expect("there is a shell");
        let background =
            Background { parts: [("busy".to_owned(), mark + " ")].into(), supervisors: vec![] };
        let until = Instant::now() + Duration::from_secs(30);
        let first = background.see(&[]);
        let found = loop {
            let now = background.see(&[]);
            if now.parts_since(&first)["busy"] > 0.01 {
                break now.cpu_since(&first);
            }
            assert!(Instant::now() < until, "a loop uses CPU time");
        };
        let loops = tree::descendants(shell.id());
        let others = background.see(&loops).cpu_since(&Seen::default());
        for id in &loops {
            // It may have ended meanwhile.
            let _ = highwater_sys::process::end(*id, End::Kill);
        }
        shell.kill().expect("it runs");
        shell.wait().expect("it was started");
        assert!(found > 0.01 && others < found, "{found} {others}");
    }
}
