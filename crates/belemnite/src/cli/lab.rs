//! `belemnite lab`: runs, shows and compares plans of measurements.

use super::Error;
use crate::admin;
use lab::findings::{self, Finding};
use lab::host::command::Cancel;
use lab::host::exec::run::{self as executor, RunDir};
use lab::host::exec::{Tools, clean};
use lab::plan::{self, Change, Plan, builtin, estimate};
use lab::report::{csv, groups, html, text};
use lab::result::CellResult;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// `belemnite lab …`
#[derive(Debug, clap::Subcommand)]
pub(crate) enum LabCommand {
    /// Measure what a plan describes, on clusters made for it, and write a report
    Run(RunArgs),
    /// List the built-in plans, and the runs
    List(Place),
    /// Show the figures and findings of a run
    Show {
        /// Name of the run
        run: String,
        #[command(flatten)]
        place: Place,
    },
    /// Compare runs with each other
    Compare {
        /// Names of the runs; the others are compared with the first
        #[arg(required = true)]
        runs: Vec<String>,
        /// File for the report [default: compare.html in the directory of the runs]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Insert the tables between the marks `<!-- begin lab -->` and `<!-- end lab -->` of this document
        #[arg(long, value_name = "FILE")]
        update: Option<PathBuf>,
        #[command(flatten)]
        place: Place,
    },
    /// Remove the leftovers of killed runs: processes, cluster files, network namespaces
    Clean {
        /// Also remove the runs, with their results
        #[arg(long)]
        runs: bool,
        /// Directory of the clusters' files [default: work in --dir]
        #[arg(long, value_name = "DIR")]
        work: Option<PathBuf>,
        #[command(flatten)]
        place: Place,
    },
    /// A server of the floor, which takes the place of an OSD
    #[command(hide = true)]
    Floor(FloorArgs),
}

/// Arguments of `belemnite lab floor`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct FloorArgs {
    /// Number of the OSD
    #[arg(long, value_name = "N")]
    id: u32,
    /// Address of each server, in the order of their numbers
    #[arg(long, required = true, value_name = "IP:PORT")]
    server: Vec<std::net::SocketAddr>,
    /// Address of the monitor
    #[arg(long, value_name = "IP:PORT")]
    monitor: std::net::SocketAddr,
    /// Id of the cluster
    #[arg(long, value_name = "UUID")]
    fsid: String,
    /// Id of the OSD
    #[arg(long, value_name = "UUID")]
    uuid: String,
    /// File or device for the objects, whose contents are destroyed
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// Size of a new file in bytes
    #[arg(long, value_name = "BYTES")]
    size: u64,
}

fn serve_floor(a: FloorArgs) -> Result<(), Error> {
    let uuid = |s: &str| base::id::Uuid::parse(s).ok_or_else(|| format!("{s}: not a UUID"));
    let (fsid, uuid) = (uuid(&a.fsid)?, uuid(&a.uuid)?);
    let FloorArgs { id, server: servers, monitor, file, size, .. } = a;
    Ok(lab::host::floor::run(lab::host::floor::Options { id, servers, monitor, fsid, uuid, file, size })?)
}

/// Location of the runs.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Place {
    /// Directory of the runs
    #[arg(long, default_value = "belemnite-lab", value_name = "DIR")]
    dir: PathBuf,
}

/// Arguments of `belemnite lab run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// Name of a built-in plan (`lab list`), or a TOML file; with --resume, the run to resume
    #[arg(required_unless_present = "resume")]
    plan: Option<String>,
    /// Measure these systems instead of the plan's; `all` is both and the floor, a bare server
    #[arg(long, value_parser = ["belemnite", "ceph", "both", "floor", "all"])]
    on: Option<String>,
    /// Root directory (debootstrap) with the Ceph daemons for `ceph` [default: this machine's]
    #[arg(long, value_name = "DIR")]
    ceph_root: Option<PathBuf>,
    /// Use the plan's sizes for a small machine and a few minutes
    #[arg(long)]
    small: bool,
    /// Change a key of the plan: load.seconds=5, `pool.pg_num=[8,64]`, load.NAME.depth=1,
    /// options.osd.osd_max_backfills=4
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Show the measurements and the estimated cost, and exit
    #[arg(long)]
    dry_run: bool,
    /// Resume an interrupted run [default: the last one]; finished cells are not measured again
    #[arg(long)]
    resume: bool,
    /// Name of the run [default: name of the plan and time]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Directory of the clusters' files while they run [default: work in --dir]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Keep the clusters' files
    #[arg(long)]
    keep: bool,
    /// Port of the monitors; the other daemons use the following ports
    #[arg(long, default_value_t = 24_400, value_name = "P")]
    port: u16,
    #[command(flatten)]
    place: Place,
}

fn say(text: &str) {
    // Measuring continues if the terminal is closed.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), format!("{text}\n").as_bytes());
}

/// Runs a command.
pub(crate) fn run(c: LabCommand) -> Result<(), Error> {
    match c {
        LabCommand::Run(a) => measure(&a),
        LabCommand::List(p) => list(&p),
        LabCommand::Show { run, place } => show(&find(&place, &run)?),
        LabCommand::Compare { runs, out, update, place } => compare(&place, &runs, out, update),
        LabCommand::Clean { runs, work, place } => remove(&place, runs, work),
        LabCommand::Floor(a) => serve_floor(a),
    }
}

/// A plan by its name or file, with its text.
fn load(name: &str, small: bool, changes: &[Change]) -> Result<(Plan, String), Error> {
    let (text, file) = match builtin::find(name) {
        Some(t) => (t.to_owned(), name.to_owned()),
        None => match fs::read_to_string(name) {
            Ok(t) => (t, name.to_owned()),
            Err(e) => {
                return Err(format!(
                    "{name}: neither a built-in plan nor a readable file ({e}); see `belemnite lab list`"
                )
                .into());
            }
        },
    };
    Ok((plan::parse(&text, &file, small, changes)?, text))
}

/// Changes of the plan that the arguments request.
fn changes(a: &RunArgs) -> Result<Vec<Change>, Error> {
    let ceph = match &a.ceph_root {
        Some(r) => format!("ceph:{}", std::path::absolute(r)?.display()),
        None => "ceph".into(),
    };
    let mut out = Vec::new();
    let system = match a.on.as_deref() {
        Some("belemnite") => Some("\"belemnite\"".to_owned()),
        Some("ceph") => Some(format!("{ceph:?}")),
        Some("floor") => Some("\"floor\"".to_owned()),
        Some("all") => Some(format!("[\"belemnite\", {ceph:?}, \"floor\"]")),
        Some(_) => Some(format!("[\"belemnite\", {ceph:?}]")),
        None if a.ceph_root.is_some() => Some(format!("[\"belemnite\", {ceph:?}]")),
        None => None,
    };
    out.extend(system.map(|value| Change { key: "cluster.system".into(), value }));
    for s in &a.set {
        out.push(Change::parse(s).map_err(|e| format!("--set {e}"))?);
    }
    Ok(out)
}

/// Date and time to the second, for names.
fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let [y, m, d, hour, minute, second] = base::Utime::from_unix(since).utc();
    format!("{y:04}{m:02}{d:02}-{hour:02}{minute:02}{second:02}")
}

fn runs(place: &Place) -> Vec<String> {
    let mut all: Vec<String> = fs::read_dir(&place.dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|e| e.path().join("run.json").exists())
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .collect();
    all.sort();
    all
}

fn find(place: &Place, run: &str) -> Result<RunDir, Error> {
    let here = place.dir.join(run);
    let dir = if here.join("run.json").exists() { here } else { PathBuf::from(run) };
    if dir.join("run.json").exists() {
        return Ok(RunDir(dir));
    }
    let known = runs(place).join(", ");
    Err(format!(
        "{run}: no run in {} ({})",
        place.dir.display(),
        if known.is_empty() { "there are none" } else { &known }
    )
    .into())
}

/// The plan of a run, with the changes that the run made to it.
fn plan_of(dir: &RunDir) -> Result<(Plan, String), Error> {
    let about = dir.read_about()?;
    let text = fs::read_to_string(dir.plan())?;
    let list = about["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let changes: Vec<Change> = list
        .iter()
        .filter_map(|c| Some(Change { key: c[0].as_str()?.to_owned(), value: c[1].as_str()?.to_owned() }))
        .collect();
    let plan = plan::parse(&text, "plan.toml", about["small"].as_bool().unwrap_or(false), &changes)?;
    Ok((plan, text))
}

/// The run to start or to resume, with its plan.
fn prepare(a: &RunArgs, work: &Path) -> Result<(RunDir, Plan), Error> {
    if a.resume {
        let unfinished = |n: &String| {
            let dir = RunDir(a.place.dir.join(n));
            plan_of(&dir).is_ok_and(|(p, _)| p.cells().iter().any(|c| dir.result(&c.id()).is_none()))
        };
        let dir = match &a.plan {
            Some(r) => find(&a.place, r)?,
            None => {
                let last = runs(&a.place).into_iter().rev().find(unfinished);
                RunDir(a.place.dir.join(last.ok_or("no run in this directory is unfinished")?))
            }
        };
        let plan = plan_of(&dir)?.0;
        return Ok((dir, plan));
    }
    let changes = changes(a)?;
    let (plan, text) = load(a.plan.as_deref().unwrap_or_default(), a.small, &changes)?;
    let name = a.name.clone().unwrap_or_else(|| format!("{}-{}", plan.name(), now()));
    let dir = RunDir(a.place.dir.join(&name));
    if dir.0.exists() {
        return Err(format!("{}: a run of this name exists; use --resume to continue it", dir.0.display()).into());
    }
    let mut about = executor::about_machine(work);
    let changes: Vec<Value> = changes.iter().map(|c| json!([c.key, c.value])).collect();
    for (k, v) in [
        ("plan", json!(plan.name())),
        ("small", json!(a.small)),
        ("changes", json!(changes)),
        ("began", json!(now())),
        ("version", json!(env!("CARGO_PKG_VERSION"))),
    ] {
        about[k] = v;
    }
    dir.write(&dir.plan(), &text)?;
    dir.write(&dir.about(), &serde_json::to_string_pretty(&about)?)?;
    Ok((dir, plan))
}

fn measure(a: &RunArgs) -> Result<(), Error> {
    if a.dry_run {
        let (plan, _) = load(a.plan.as_deref().unwrap_or_default(), a.small, &changes(a)?)?;
        say(estimate::describe(&plan, &plan.cells()).trim_end());
        return Ok(());
    }
    fs::create_dir_all(&a.place.dir).map_err(|e| format!("{}: {e}", a.place.dir.display()))?;
    let place = std::path::absolute(&a.place.dir)?;
    let work = match &a.work {
        Some(w) => std::path::absolute(w)?,
        None => place.join("work"),
    };
    fs::create_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    let (dir, plan) = prepare(a, &work)?;
    let dir = RunDir(std::path::absolute(&dir.0)?);
    say(estimate::describe(&plan, &plan.cells()).trim_end());
    let space = estimate::estimate(&plan.cells()).space;
    let free = reactor::disk::free_space(&work)?;
    if space > free {
        let (need, have) = (crate::size::show(space), crate::size::show(free));
        return Err(format!(
            "{}: the plan needs some {need} and {have} are free (--work elsewhere, or --small)",
            work.display()
        )
        .into());
    }
    let binary = std::env::current_exe()?;
    let cancel = Arc::new(Cancel::new(false));
    let (keep, port, stop, d) = (a.keep, a.port, cancel.clone(), dir.clone());
    let executor = move || {
        let connect = |conf: &Path| admin::options(conf, "admin", None).map_err(|e| e.to_string());
        let tools = Tools { binary, connect: &connect, cancel: &stop, work, keep, port };
        executor::run(&tools, &plan, &d, &mut |s| say(s))
    };
    let ended = until_done(&cancel, executor)?;
    let report = write_reports(&dir)?;
    match ended {
        Ok(e) => {
            say(&format!("{} cells measured, {} done before, {} failed", e.measured, e.before, e.failed));
            say(&report);
            if e.failed > 0 { Err("some cells failed; `lab run --resume` repeats them".into()) } else { Ok(()) }
        }
        Err(e) if e.is_cancelled() => {
            Err(format!("stopped; continue with `belemnite lab run --resume`. {report}").into())
        }
        Err(e) => Err(e.into()),
    }
}

/// Runs the executor in a thread, while this one waits for Ctrl-C and SIGTERM.
fn until_done<T: Send + 'static>(cancel: &Arc<Cancel>, f: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let (tx, rx) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("lab".into()).spawn(move || {
        // The receiver outlives this thread.
        let _ = tx.send(f());
    })?;
    let cancel = cancel.clone();
    let out = reactor::runtime::run_here(|_, _| async move {
        let (mut int, mut term) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::pin!(rx);
        loop {
            tokio::select! {
                r = &mut rx => return r.map_err(|_| std::io::Error::other("the laboratory ended early")),
                _ = int.recv() => {}
                _ = term.recv() => {}
            }
            if cancel.swap(true, Ordering::Relaxed) {
                // Second signal: exit at once. The kernel kills the daemons, and `lab clean` removes their files.
                std::process::exit(130);
            }
            say("stopping all daemons; a second signal exits at once");
        }
    })??;
    // Sending the result is the thread's last action.
    let _ = thread.join();
    Ok(out)
}

fn all_findings(about: &Value, all: &[CellResult]) -> Vec<Finding> {
    let mut out = findings::of_machine(about, all);
    out.extend(findings::of_repetitions(all));
    out.extend(all.iter().flat_map(findings::of_cell));
    out
}

/// Writes tables and report of a run; returns a line with their paths.
fn write_reports(dir: &RunDir) -> Result<String, Error> {
    let (all, about) = (dir.results(), dir.read_about()?);
    let (plan, text) = plan_of(dir)?;
    let found = all_findings(&about, &all);
    let title = format!("{} ({})", plan.name(), dir.0.file_name().unwrap_or_default().to_string_lossy());
    let report = html::Report {
        title: &title,
        runs: vec![("", &all)],
        about: &about,
        findings: &found,
        failures: &dir.failures(),
        plan: &text,
    };
    let path = dir.0.join("report.html");
    dir.write(&path, &html::html(&report))?;
    dir.write(&dir.0.join("results.csv"), &csv::results(&all))?;
    dir.write(&dir.0.join("series.csv"), &csv::series(&all))?;
    let found: Vec<Value> = found.iter().map(|f| json!({"kind": f.kind, "about": f.about, "text": f.text})).collect();
    let whole = json!({"about": about, "findings": found, "results": all});
    dir.write(&dir.0.join("results.json"), &serde_json::to_string(&whole)?)?;
    Ok(format!("report: {}", path.display()))
}

fn list(place: &Place) -> Result<(), Error> {
    say("plans:");
    for (name, text) in builtin::PLANS {
        let p = plan::parse(text, name, false, &[])?;
        say(&format!("  {name:<20} {}", p.head.text("about")));
    }
    let all = runs(place);
    if !all.is_empty() {
        say(&format!("runs in {}:", place.dir.display()));
    }
    for name in all {
        let dir = RunDir(place.dir.join(&name));
        let cells = plan_of(&dir).map(|(p, _)| p.cells().len()).unwrap_or(0);
        let done = dir.results().len();
        let state = if done < cells { format!("{done} of {cells} cells") } else { format!("{cells} cells") };
        say(&format!("  {name:<40} {state}"));
    }
    Ok(())
}

fn show(dir: &RunDir) -> Result<(), Error> {
    let (all, about) = (dir.results(), dir.read_about()?);
    say(text::show(&groups(&[("", &all)])).trim_end());
    let mut before = (String::new(), "");
    for f in all_findings(&about, &all) {
        let what = f.about.rsplit_once(" (").map_or(f.about.clone(), |(a, _)| a.to_owned());
        // Report a finding once for all repetitions.
        if before != (what.clone(), f.kind) {
            say(&format!("{}: {what}: {}", f.kind, f.text));
        }
        before = (what, f.kind);
    }
    for (id, why) in dir.failures() {
        say(&format!("failed: {id}: {why}"));
    }
    say(&write_reports(dir)?);
    Ok(())
}

/// Changes of a run to its plan, as text after the plan's name.
fn changes_of(about: &Value) -> String {
    let list = about["changes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let one = |c: &Value| Some(format!("`{} = {}`", c[0].as_str()?, c[1].as_str()?));
    let all: Vec<String> = list.iter().filter_map(one).collect();
    if all.is_empty() { String::new() } else { format!(" with {}", all.join(", ")) }
}

fn compare(place: &Place, names: &[String], out: Option<PathBuf>, update: Option<PathBuf>) -> Result<(), Error> {
    let dirs: Vec<RunDir> = names.iter().map(|n| find(place, n)).collect::<Result<_, _>>()?;
    let results: Vec<Vec<CellResult>> = dirs.iter().map(RunDir::results).collect();
    let about = dirs.first().ok_or("no run")?.read_about()?;
    let runs: Vec<(&str, &[CellResult])> = names
        .iter()
        .zip(&results)
        .map(|(n, r)| (if names.len() > 1 { n.as_str() } else { "" }, r.as_slice()))
        .collect();
    let g = groups(&runs);
    say(text::show(&g).trim_end());
    if let Some(path) = update {
        let document = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let m = &about["machine"];
        let head = format!(
            "Generated by `belemnite lab compare {}` from the plan `{}`{}{}, begun {}; {} with {} cores, Linux {}, stores on {}.",
            names.join(" "),
            about["plan"].as_str().unwrap_or_default(),
            if about["small"] == true { " at its small size" } else { "" },
            changes_of(&about),
            about["began"].as_str().unwrap_or_default(),
            m["cpu"].as_str().unwrap_or_default(),
            m["cores"],
            m["kernel"].as_str().unwrap_or_default(),
            about["file_system"].as_str().unwrap_or_default(),
        );
        let new = text::replace_between_marks(&document, "lab", &format!("{head}\n\n{}", text::to_markdown(&g)));
        let new =
            new.ok_or_else(|| format!("{}: no marks `<!-- begin lab -->` and `<!-- end lab -->`", path.display()))?;
        fs::write(&path, new)?;
        say(&format!("changed: {}", path.display()));
    }
    let report = html::Report {
        title: &format!("comparison of {}", names.join(", ")),
        runs,
        about: &about,
        findings: &[],
        failures: &[],
        plan: "",
    };
    let path = out.unwrap_or_else(|| place.dir.join("compare.html"));
    fs::write(&path, html::html(&report)).map_err(|e| format!("{}: {e}", path.display()))?;
    say(&format!("report: {}", path.display()));
    Ok(())
}

fn remove(place: &Place, with_runs: bool, work: Option<PathBuf>) -> Result<(), Error> {
    let work = work.unwrap_or_else(|| place.dir.join("work"));
    for line in clean::clean(&work) {
        say(&line);
    }
    if with_runs {
        for name in runs(place) {
            fs::remove_dir_all(place.dir.join(&name))?;
            say(&format!("removed run {name}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(subcommand)]
        command: LabCommand,
    }

    fn args(words: &[&str]) -> RunArgs {
        let all = ["lab", "run"].iter().chain(words);
        match Line::try_parse_from(all).unwrap().command {
            LabCommand::Run(a) => a,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn systems_are_chosen() {
        let systems = |words: &[&str]| {
            let a = args(words);
            let p = load("pg-count", true, &changes(&a).unwrap()).unwrap().0;
            p.cluster.iter().find(|x| x.key == "system").unwrap().values.clone()
        };
        assert_eq!(systems(&["pg-count"]), ["belemnite", "ceph"]);
        assert_eq!(systems(&["pg-count", "--on", "ceph"]), ["ceph"]);
        assert_eq!(systems(&["pg-count", "--on", "both", "--ceph-root", "/r"]), ["belemnite", "ceph:/r"]);
        let a = args(&["floor", "--small", "--on", "all", "--ceph-root", "/r"]);
        let cells = load("floor", true, &changes(&a).unwrap()).unwrap().0.cells();
        let systems_of: std::collections::BTreeSet<_> = cells.iter().map(|c| c.cluster.text("system")).collect();
        assert_eq!(systems_of.into_iter().collect::<Vec<_>>(), ["belemnite", "ceph:/r", "floor"]);
        assert_eq!(
            systems(&["pg-count", "--set", "cluster.system=existing:/etc/ceph/ceph.conf"]),
            ["existing:/etc/ceph/ceph.conf"]
        );
        assert!(load("no-such-plan", false, &[]).unwrap_err().to_string().contains("belemnite lab list"));
    }

    #[test]
    fn names_of_runs_have_date_and_time() {
        let n = now();
        assert_eq!(n.len(), 15);
        assert!(n.starts_with("20") && n.as_bytes()[8] == b'-', "{n}");
    }
}
