//! What a test of `highwater bench` needs: a folder, plans, and sight of the servers' processes.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

/// One run at a time: all of them use the same two CPUs.
static ALONE: Mutex<()> = Mutex::new(());

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of its own, removed at the end.
pub(crate) struct Scene {
    folder: PathBuf,
    /// In the environment of all servers of this scene, to find them by.
    mark: String,
    _alone: MutexGuard<'static, ()>,
}

impl Scene {
    pub(crate) fn new(name: &str) -> Scene {
        let mark = format!("highwater-bench-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(&mark);
        std::fs::create_dir_all(&folder).expect("the temporary folder is ours");
        // A test that failed is no reason for others to fail.
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Scene { folder, mark, _alone: alone }
    }

    /// What is in the environment of everything that runs for this scene.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    /// A server table: this program, told to do `does`; `more` are further fields.
    pub(crate) fn server(&self, name: &str, does: &str, more: &str) -> String {
        let program = std::env::current_exe().expect("this program");
        let program = program.to_string_lossy();
        format!(
            "[[server]]\nname = {name:?}\ncommand = [{program:?}, \"--exact\", \"servers::serve\", \"--nocapture\"]\n\
             env = {{ BENCH_SERVER = {does:?}, BENCH_MARK = {:?} }}\n{more}\nworkers = 1\nready = \"/hello\"\n",
            self.mark
        )
    }

    /// A server table: this program, serving what takes long, with these further flags.
    pub(crate) fn busy_server(&self, name: &str, flags: &str) -> String {
        let own = "--listen {host}:{port} --metrics 127.0.0.1:{metrics} --workers 1 --log off";
        let table = self.server(name, "busy", "");
        table.replacen("env = { ", &format!("env = {{ BENCH_FLAGS = \"{own} {flags}\", "), 1)
    }

    /// A cell that expects `Hello`.
    pub(crate) fn cell(&self, name: &str, more: &str) -> String {
        format!(
            "[[cell]]\nname = {name:?}\npath = \"/hello\"\nexpect = \"Hello\"\nconnections = 4\n{more}\n"
        )
    }

    /// Writes a plan of these tables; its path.
    pub(crate) fn plan(&self, rounds: u32, tables: &str) -> String {
        // Short where no server can be waited for in vain; a busy machine takes longer to start one.
        let within = if tables.contains("\"silent\"") { "8s" } else { "60s" };
        let head = format!(
            "name = \"test\"\nrounds = {rounds}\nwarm_up = \"50ms\"\nduration = \"400ms\"\nseed = 3\nready_within = {within:?}\n"
        );
        let path = self.path("plan.toml");
        std::fs::write(&path, head + tables).expect("the folder is ours");
        path
    }

    /// Runs `plan` into `r.json`. Again, if a machine that others use had no time for a row: a span is short, and in
    /// one in which nobody ran, no request succeeds or fails.
    pub(crate) fn run(&self, plan: &str) -> Output {
        const NOBODY_RAN: [&str; 3] = [
            "the client fell behind",
            "no request succeeded: 0 errors, 0 timeouts, 0 answers",
            "no request succeeded: it printed: ",
        ];
        let nobody_ran = |reason: &str| NOBODY_RAN.iter().any(|nobody| reason.starts_with(nobody));
        for _ in 0..3 {
            let output = bench(&["run", plan, "--out", &self.path("r.json")]);
            let reasons = self.rows("r.json").into_iter().map(|mut row| row["reason"].take());
            if !reasons.into_iter().any(|reason| reason.as_str().is_some_and(nobody_ran)) {
                return output;
            }
            std::fs::remove_file(self.path("r.json")).expect("a record was written");
        }
        panic!("three runs had rows without a request")
    }

    pub(crate) fn record(&self, name: &str) -> Value {
        let text = std::fs::read_to_string(self.path(name)).expect("a record was written");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// All rows that the record has now, the A/A run's too; none if there is no record.
    pub(crate) fn rows(&self, name: &str) -> Vec<Value> {
        let Ok(text) = std::fs::read_to_string(self.path(name)) else { return Vec::new() };
        let record: Value = serde_json::from_str(&text).expect("a record is whole at any time");
        let aa = record["aa"]["rows"].as_array().cloned().unwrap_or_default();
        aa.into_iter().chain(record["cells"].as_array().cloned().unwrap_or_default()).collect()
    }

    /// The processes that run for this scene.
    pub(crate) fn living(&self) -> Vec<u32> {
        let entries = std::fs::read_dir("/proc").expect("this is Linux").flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_ours = |id: &u32| {
            let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
            environment.windows(self.mark.len()).any(|part| part == self.mark.as_bytes())
        };
        ids.filter(is_ours).collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A scene, if there are two CPUs; else it is said that the test is skipped.
pub(crate) fn cpus_or_skip(name: &str) -> Option<Scene> {
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    if count < 2 {
        highwater_skip::skip("cpus", "server and client need a CPU each, and there is one");
        return None;
    }
    Some(Scene::new(name))
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    // Dies with its test, however that ends.
    command.args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_highwater"), "bench"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

pub(crate) fn bench(arguments: &[&str]) -> Output {
    let mut command = command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().and_then(std::process::Child::wait_with_output).expect("setpriv is installed")
}

/// That a run measured every row. On a machine that others use, all of them may be disturbed: the run says so, and
/// fails for that reason and no other.
pub(crate) fn assert_measured(output: &Output) {
    let disturbed = text_of(output).contains("nothing was measured; ");
    assert_eq!(output.status.code(), Some(i32::from(disturbed)), "{}", text_of(output));
    assert!(!text_of(output).contains("  void: "), "{}", text_of(output));
}

/// Everything it said.
pub(crate) fn text_of(output: &Output) -> String {
    let part = |bytes| String::from_utf8_lossy(bytes).into_owned();
    part(&output.stdout) + &part(&output.stderr)
}

/// Its standard output, as JSON.
pub(crate) fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text_of(output)))
}

/// Waits until `holds`.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends SIGINT.
pub(crate) fn interrupt(id: u32) {
    let status = Command::new("kill").args(["-INT", &id.to_string()]).status();
    assert!(status.expect("kill is everywhere").success());
}

/// The path of an example of this package.
pub(crate) fn example(name: &str) -> String {
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_highwater"));
    let path = binary.parent().expect("it is in a folder").join("examples").join(name);
    assert!(path.exists(), "{}: build it with `cargo build --examples`", path.display());
    path.to_string_lossy().into_owned()
}
