//! Runs this program under Callgrind, and adds up what belongs to us.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::baseline::Count;
use super::work::WORK;

/// Where counting begins and ends: it begins on entering one of them, ends on entering another from within, and so on.
/// A worker's turn is counted, but for the simulated kernel that it asks; what that kernel reports is counted again.
const TOGGLES: [&str; 13] = [
    "highwater::server::worker::Worker<D,P>::turn",
    "<highwater::sim::network::SimDriver as highwater_core::driver::Driver>::poll",
    "<highwater::sim::network::SimDriver as highwater_core::driver::Driver>::report_done",
    "<highwater::sim::network::SimDriver as highwater_core::driver::Driver>::send",
    "<highwater::sim::network::SimDriver as highwater_core::driver::Driver>::read",
    "<highwater::sim::network::SimDriver as highwater_core::driver::Driver>::take",
    "<highwater::sim::network::SimDriver as highwater_core::driver::Driver>::close",
    "<highwater::sim::network::SimDriver as highwater_core::driver::Driver>::accept",
    "<highwater::sim::network::SimDriver as highwater_core::driver::Driver>::backlog",
    "<highwater::sim::network::SimDriver as highwater_core::driver::Driver>::is_hung_up",
    "highwater::server::worker::Worker<D,P>::turn::{{closure}}",
    // The same code as the one before, which the compiler may keep once.
    "highwater::server::worker::flush::<impl highwater::server::worker::Worker<D,P>>::follow_flush::{{closure}}",
    "instructions::work::counted",
];

/// The functions that hand out memory.
const ALLOCATORS: [&str; 5] = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"];

/// A folder for Callgrind's files, which is removed when it is dropped.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Result<Folder, String> {
        let path =
            std::env::temp_dir().join(format!("highwater-instructions-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left is in the folder for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Does all the work under Callgrind. By name, for each request.
pub(super) fn count() -> Result<BTreeMap<String, Count>, String> {
    let own = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let folder = Folder::new()?;
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no", "--dump-line=no"])
        .arg(format!("--callgrind-out-file={}/out", folder.0.display()))
        .arg("--dump-before=instructions::work::mark")
        .args(TOGGLES.iter().map(|function| format!("--toggle-collect={function}")))
        .arg(&own)
        .arg("run")
        // What the environment has must not be counted.
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .stdin(Stdio::null());
    let done = valgrind.output().map_err(|error| {
        format!("valgrind: {error}; scripts/test-deps.sh installs it (apt-get install valgrind)")
    })?;
    if !done.status.success() {
        return Err(format!(
            "valgrind: {}: {}",
            done.status,
            String::from_utf8_lossy(&done.stderr)
        ));
    }
    let mut counts = BTreeMap::new();
    for (index, (name, times, requests)) in WORK.iter().enumerate() {
        // A dump before the first mark, and two for each piece of work: its own, and what prepares the next.
        let path = folder.0.join(format!("out.{}", 2 * index + 2));
        let text = fs::read_to_string(&path);
        let text =
            text.map_err(|error| format!("{}: {error}: valgrind wrote no dump", path.display()))?;
        let total = parse(&text, &own)?;
        if total.instructions == 0.0 {
            return Err(format!(
                "{name}: nothing was counted: a function of callgrind.rs has another name now"
            ));
        }
        counts.insert((*name).to_owned(), total.per(times * requests));
    }
    Ok(counts)
}

/// The instructions of functions in the program `own`, and its calls of allocators.
///
/// In the file, a function's own cost follows its `fn=` line; the line behind `calls=` is the cost of the function
/// called.
pub(super) fn parse(text: &str, own: &Path) -> Result<Count, String> {
    let mut total = Count::default();
    let (mut is_own, mut is_call, mut called, mut lines) = (false, false, "", 0);
    for line in text.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_own = Path::new(object) == own;
        } else if let Some(function) = line.strip_prefix("cfn=") {
            called = function;
        } else if let Some(calls) = line.strip_prefix("calls=") {
            is_call = true;
            let calls: f64 = calls
                .split(' ')
                .next()
                .and_then(|calls| calls.parse().ok())
                .ok_or_else(|| wrong(line))?;
            if is_own && ALLOCATORS.contains(&called) {
                total.allocations += calls;
            }
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            // Behind the position, the one event that is counted.
            let cost: f64 = line
                .split(' ')
                .nth(1)
                .and_then(|cost| cost.parse().ok())
                .ok_or_else(|| wrong(line))?;
            if is_own && !std::mem::take(&mut is_call) {
                total.instructions += cost;
                lines += 1;
            }
            is_call = false;
        }
    }
    match lines {
        0 => Err(format!("nothing of {} in what valgrind counted", own.display())),
        _ => Ok(total),
    }
}

fn wrong(line: &str) -> String {
    format!("valgrind wrote a line that is not understood: {line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "\
version: 1
events: Ir
ob=/t/instructions
fl=(unknown)
fn=highwater::server::worker::Worker<D,P>::turn
0 70
cob=/lib/libc.so.6
cfi=(unknown)
cfn=malloc
calls=3 0
0 900
0 30
cfn=highwater::other
calls=1 0
0 40

fn=highwater::other
0 40

ob=/lib/libc.so.6
fl=(unknown)
fn=malloc
0 900

totals: 1040
";

    /// Purpose: only what our own program did is counted, once; calls of the allocator are counted apart.
    #[test]
    fn only_our_own_cost_counts() {
        let total = parse(DUMP, Path::new("/t/instructions")).expect("a dump");
        assert_eq!(total, Count { instructions: 140.0, allocations: 3.0 });
        assert_eq!(total.per(2), Count { instructions: 70.0, allocations: 1.5 });
    }

    /// Purpose: a dump of something else is not taken for a count of zero, which would pass every gate.
    #[test]
    fn a_dump_without_us_is_refused() {
        assert!(parse(DUMP, Path::new("/t/other")).is_err());
        assert!(parse("ob=/t/other\n0 x\n", Path::new("/t/other")).is_err());
    }
}
