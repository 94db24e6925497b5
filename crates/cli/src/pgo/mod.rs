//! `highwater pgo`: is a server faster if the compiler knows how it runs? Built, loaded, built again, and measured.
//!
//! ```text
//!  plain build ─────────────────────────────────────────────▶ ┐
//!  instrumented build ─▶ load (a plan) ─▶ profile ─▶ PGO build ▶ bench run ─▶ claim: faster | slower | same | void
//! ```
//! The load and the measurement are `highwater bench`'s: the same plan with other programs, in processes of their own. Or a
//! command of the user's is the load (`own_load`); then nothing is measured. `build` runs cargo, `tools` finds the profile's
//! reader, `plan` writes plans, `profile` reads what is in a profile.

mod build;
mod note;
mod own_load;
mod plan;
mod profile;
#[cfg(test)]
mod tests;
mod tools;

pub(crate) use tools::INSTALL_READER;

use std::fs;
use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Subcommand;
use sha2::{Digest, Sha256};

use crate::output::print;

/// Exit status for what is refused or fails before there is a verdict.
const REFUSED: u8 = 2;
/// The file that marks a folder as one that `pgo run` made, since folders inside it are removed.
const MARK: &str = ".highwater-pgo";

/// One of the two loads is needed, and each has options of its own.
const RUN_USAGE: &str = "\
highwater pgo run --package <PACKAGE> --plan <PLAN.toml> [OPTIONS]
       highwater pgo run --package <PACKAGE> [OPTIONS] -- <COMMAND>...";

/// Build a server with a profile of how it runs (PGO), and measure whether that helps.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  highwater pgo run -p highwater-arena --plan bench/plans/pgo.toml
  highwater pgo run -p my-server -- wrk -d 20 {url}/
  highwater pgo info target/pgo/highwater-arena.profdata
  highwater pgo info target/pgo/pgo/highwater-arena
  highwater pgo strip

docs/profiling.md says what is built and measured, and when it is worth it.")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Build plain, profile under a plan's load, build with the profile, and measure both; or profile under your own load
    #[command(override_usage = RUN_USAGE, after_help = "\
Examples:
  highwater pgo run -p highwater-arena --plan bench/plans/pgo.toml
  highwater pgo run -p my-server --plan load.toml --server mine --rounds 12
  highwater pgo run -p my-server --plan load.toml --build-only
  highwater pgo run -p my-server --plan load.toml --resume \\
    --profile target/pgo/my-server.profdata
  highwater pgo run -p my-server -- wrk -d 20 {url}/
  highwater pgo run -p my-server --arg=--listen --arg=127.0.0.1:{port} \\
    -- ./replay-yesterday.sh {url}
  highwater pgo run -p my-server --port 8080 -- bash

--build-only leaves the measurement for a quiet hour; --resume with the profile continues.

With a COMMAND the instrumented server is started, COMMAND is run to its end or to Ctrl-C, and the
program is built with the profile; nothing is measured. With a shell as COMMAND you make the load,
and exit the shell to go on. {url}, {host} and {port} in COMMAND and --arg stand for the server's
address; COMMAND has URL in its environment, the server HIGHWATER_LISTEN and PORT.

Exit status:
  0  the build with the profile is faster; or, with a COMMAND, it was made
  1  it is slower, or the same as far as can be said
  2  void, or something failed; the message says what")]
    Run(Box<RunArgs>),
    /// Show what is in a profile, or whether a program was built with one
    #[command(after_help = "\
Examples:
  highwater pgo info target/pgo/highwater-arena.profdata --top 20
  highwater pgo info target/release/my-server

The ids of a profile and of the programs that were built with it are equal. Exit status for a
program: 0 if it was built with a profile, 1 if it was not, 2 if it does not say.")]
    Info(InfoArgs),
    /// Stop using profiles: set them aside as .bak, and remove the builds made with them
    #[command(after_help = "\
Examples:
  highwater pgo strip
  highwater pgo strip --out target/pgo

Exit status: 0; 2 if something could not be set aside or removed, or a flag is wrong.")]
    Strip(StripArgs),
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// The package whose program is built, in the workspace of the current folder.
    #[arg(short, long, value_name = "PACKAGE")]
    package: String,

    /// Its program [default: the package's name].
    #[arg(long, value_name = "NAME")]
    bin: Option<String>,

    /// The plan of `highwater bench` that is its load, for the profile and for the measurement.
    #[arg(long, value_name = "PLAN.toml", required_unless_present = "command")]
    plan: Option<PathBuf>,

    /// Your own load instead of a plan: a command that is run against the instrumented server.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = [
        "plan", "server", "profile", "record", "resume", "rounds", "build_only",
    ])]
    command: Vec<String>,

    /// An argument of the server, with a COMMAND. May be given several times.
    #[arg(
        long = "arg",
        value_name = "ARG",
        allow_hyphen_values = true,
        requires = "command",
        conflicts_with = "plan"
    )]
    arguments: Vec<String>,

    /// The port of the server, with a COMMAND [default: a free one].
    #[arg(long, requires = "command", conflicts_with = "plan", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// The plan's server whose arguments it is started with [default: the first].
    #[arg(long, value_name = "NAME")]
    server: Option<String>,

    /// Cargo's profile that both builds use.
    #[arg(long, value_name = "NAME", default_value = "release")]
    cargo_profile: String,

    /// Use this profile instead of making one.
    #[arg(long, value_name = "FILE.profdata")]
    profile: Option<PathBuf>,

    /// Where builds, the profile and plans go: a new folder, or one of an earlier run.
    #[arg(long, value_name = "DIR", default_value = "target/pgo")]
    out: PathBuf,

    /// Where the record of the measurement goes [default: record.json in --out, which is replaced].
    #[arg(long, value_name = "FILE.json")]
    record: Option<PathBuf>,

    /// Continue the existing record.
    #[arg(long)]
    resume: bool,

    /// Rounds of the measurement, instead of the plan's.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,

    /// Build both, but do not measure.
    #[arg(long)]
    build_only: bool,
}

#[derive(Debug, clap::Args)]
struct InfoArgs {
    /// A merged profile (.profdata), or a program.
    file: PathBuf,

    /// How many of the hottest functions to name.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1000))]
    top: u32,

    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct StripArgs {
    /// The folder that `pgo run` was given as --out.
    #[arg(long, value_name = "DIR", default_value = "target/pgo")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let done = match &args.verb {
        Verb::Run(args) => whole(args),
        Verb::Info(args) => info(args),
        Verb::Strip(args) => strip(args).map(|()| 0),
    };
    done.map_or_else(
        |problem| {
            say(&format!("highwater pgo: {problem}"));
            ExitCode::from(REFUSED)
        },
        ExitCode::from,
    )
}

/// Whether this machine has what `pgo run` needs.
///
/// # Errors
/// What is missing.
pub(crate) fn tools_here() -> Result<(), String> {
    tools::find_reader(&tools::Compiler::ask()?).map(drop)
}

/// Progress and complaints.
fn say(line: &str) {
    // The work goes on even if the terminal is gone.
    let _ = stderr().write_all(format!("{line}\n").as_bytes());
}

fn whole(args: &RunArgs) -> Result<u8, String> {
    let bin = args.bin.as_deref().unwrap_or(&args.package);
    // What is wrong with the plan or the tools shows before minutes of building.
    let plan = args.plan.as_deref();
    let load = plan.map(|plan| plan::Load::read(plan, args.server.as_deref())).transpose()?;
    if let Some(record) = args.record.as_ref().filter(|record| record.exists() && !args.resume) {
        return Err(format!(
            "--record {} exists: --resume goes on with it; or give another, or remove it",
            record.display()
        ));
    }
    let compiler = tools::Compiler::ask()?;
    let reader = tools::profile_reader(&compiler)?;
    make_out(&args.out)?;
    let make = build::Build {
        package: &args.package,
        bin,
        cargo_profile: &args.cargo_profile,
        host: &compiler.host,
        out: &args.out,
    };
    match (&load, plan) {
        (Some(load), Some(plan)) => planned(args, &make, &reader, (load, plan)),
        _ => commanded(args, &make, &reader),
    }
}

fn make_folder(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Makes the folder of builds, and marks it.
///
/// # Errors
/// It has files of somebody else.
fn make_out(out: &Path) -> Result<(), String> {
    make_folder(out)?;
    let failed = |error: std::io::Error| format!("--out {}: {error}", out.display());
    let is_empty = fs::read_dir(out).map_err(failed)?.next().is_none();
    if !is_empty {
        return check_mark(out);
    }
    fs::write(out.join(MARK), "").map_err(failed)
}

/// # Errors
/// `pgo run` did not make the folder `out`.
fn check_mark(out: &Path) -> Result<(), String> {
    match out.join(MARK).exists() {
        true => Ok(()),
        false => Err(format!(
            "--out {}: it has files and no {MARK}, so `pgo run` did not make it, and folders in it would be removed; give \
             another, or remove it",
            out.display()
        )),
    }
}

/// The form with a plan: both builds are measured.
fn planned(
    args: &RunArgs,
    make: &build::Build<'_>,
    reader: &tools::Reader,
    (load, plan): (&plan::Load, &Path),
) -> Result<u8, String> {
    let out = &args.out;
    say(&format!("1/5 the plain build of {}", make.bin));
    let plain = make.plain()?;
    let profile = match &args.profile {
        Some(given) => {
            say(&format!("2/5, 3/5 the profile is {}", given.display()));
            given.clone()
        }
        None => {
            say("2/5 the instrumented build");
            profile_of(make, reader, |instrumented| {
                say(&format!("3/5 load for the profile: {}", plan.display()));
                let path = out.join("profile-plan.toml");
                load.write(&path, "profile", Some(1), &[("instrumented", instrumented)])?;
                bench_run(&path, &out.join("profile-record.json"), false)
            })?
        }
    };
    print(&profile::show(reader, &profile, 3)?.text());
    say("4/5 the build with the profile");
    let optimized = make.with_profile(&profile, &digest(&profile)?)?;
    if args.build_only {
        print(&format!("{}\n{}\n", plain.display(), optimized.display()));
        return Ok(0);
    }
    say("5/5 measuring both");
    let path = out.join("plan.toml");
    load.write(&path, "pgo", args.rounds, &[("plain", &plain), ("pgo", &optimized)])?;
    let record = args.record.clone().unwrap_or_else(|| out.join("record.json"));
    bench_run(&path, &record, args.resume)?;
    claim(&record)
}

/// The form with a command: the load is the user's, and nothing is measured.
fn commanded(
    args: &RunArgs,
    make: &build::Build<'_>,
    reader: &tools::Reader,
) -> Result<u8, String> {
    let load =
        own_load::OwnLoad { command: &args.command, arguments: &args.arguments, port: args.port };
    say(&format!("1/3 the instrumented build of {}", make.bin));
    let profile = profile_of(make, reader, |instrumented| {
        say(&format!("2/3 load for the profile: {}", args.command.join(" ")));
        load.run(instrumented)
    })?;
    print(&profile::show(reader, &profile, 3)?.text());
    say("3/3 the build with the profile");
    let optimized = make.with_profile(&profile, &digest(&profile)?)?;
    print(&format!("profile: {}\nprogram: {}\n", profile.display(), optimized.display()));
    say("whether it is faster, `highwater pgo run --plan PLAN.toml --profile FILE` measures");
    Ok(0)
}

/// Builds the instrumented program, puts `load` on it, and merges what it counted.
fn profile_of(
    make: &build::Build<'_>,
    reader: &tools::Reader,
    load: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    let raw = make.out.join("raw");
    // Counts of an earlier build do not belong to this one.
    if raw.exists() {
        fs::remove_dir_all(&raw).map_err(|error| format!("{}: {error}", raw.display()))?;
    }
    make_folder(&raw)?;
    load(&make.instrumented(&raw)?)?;
    let merged = make.out.join(format!("{}.profdata", make.bin));
    tools::merge(reader, &raw, &merged)?;
    Ok(merged)
}

/// The first 16 hex digits of a file's SHA-256.
fn digest(path: &Path) -> Result<String, String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect())
}

fn bench(arguments: &[&std::ffi::OsStr]) -> Result<Option<i32>, String> {
    let own = std::env::current_exe().map_err(|error| format!("this program: {error}"))?;
    let status = Command::new(own).arg("bench").args(arguments).status();
    Ok(status.map_err(|error| format!("highwater bench: {error}"))?.code())
}

/// Runs a plan into `record`, replacing it unless it is to be gone on with.
fn bench_run(plan: &Path, record: &Path, resume: bool) -> Result<(), String> {
    if !resume && record.exists() {
        fs::remove_file(record).map_err(|error| format!("{}: {error}", record.display()))?;
    }
    let mut arguments =
        vec!["run".as_ref(), plan.as_os_str(), "--out".as_ref(), record.as_os_str()];
    if resume {
        arguments.push("--resume".as_ref());
    }
    match bench(&arguments)? {
        Some(0) => Ok(()),
        _ => Err(format!(
            "the load did not run as planned: highwater bench show {}",
            record.display()
        )),
    }
}

/// The verdict, as `highwater bench claim` gives it.
fn claim(record: &Path) -> Result<u8, String> {
    let words = ["--baseline", "plain", "--candidate", "pgo"].map(AsRef::as_ref);
    let arguments: Vec<_> =
        ["claim".as_ref(), record.as_os_str()].into_iter().chain(words).collect();
    let code = bench(&arguments)?.ok_or("highwater bench claim was killed")?;
    u8::try_from(code).map_err(|_| format!("highwater bench claim: exit status {code}"))
}

fn info(args: &InfoArgs) -> Result<u8, String> {
    if note::is_program(&args.file)? {
        return note::info(&args.file, args.json);
    }
    let compiler = tools::Compiler::ask()?;
    let reader = tools::profile_reader(&compiler)?;
    let shown = profile::show(&reader, &args.file, args.top)?;
    match args.json {
        true => print(&format!("{}\n", serde_json::json!(shown))),
        false => {
            print(&format!("id: {}\n", shown.id));
            print(&shown.text());
            print(&format!("it can be used by {} ({})\n", compiler.release, reader.version));
        }
    }
    Ok(0)
}

fn strip(args: &StripArgs) -> Result<(), String> {
    let out = &args.out;
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    if !out.is_dir() {
        return Err(format!(
            "{}: no such folder; --out names what `pgo run` was given",
            out.display()
        ));
    }
    check_mark(out)?;
    let mut done = Vec::new();
    for entry in fs::read_dir(out).map_err(|error| failed(out, error))? {
        let path = entry.map_err(|error| failed(out, error))?.path();
        if path.extension().is_some_and(|extension| extension == "profdata") {
            let aside = path.with_extension("profdata.bak");
            fs::rename(&path, &aside).map_err(|error| failed(&path, error))?;
            done.push(format!("set aside: {}", aside.display()));
        }
    }
    for folder in build::FOLDERS.iter().map(|name| out.join(name)).filter(|folder| folder.is_dir())
    {
        fs::remove_dir_all(&folder).map_err(|error| failed(&folder, error))?;
        done.push(format!("removed: {}", folder.display()));
    }
    if done.is_empty() {
        done.push(format!("{}: no profile and no build; nothing to do", out.display()));
    }
    print(&format!("{}\n", done.join("\n")));
    Ok(())
}
