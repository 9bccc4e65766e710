//! Disturbances of a cluster during a measurement (OSDs killed or out, scrubs, PG splits), and the repair afterwards.

use super::deploy::Cluster;
use super::observe::Adder;
use super::remote::At;
use super::{ExecError, Tools, tool};
use crate::host::command;
use crate::plan::{Cell, Disturbance};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time limit for a cluster to become clean again.
const HEAL_LIMIT: Duration = Duration::from_secs(900);
/// Interval at which the clock is read.
const LOOK: Duration = Duration::from_millis(50);

/// Runs the `ceph` program, for commands that only a manager answers.
fn ceph(t: &Tools<'_>, conf: &Path, args: &[&str]) -> Result<(), ExecError> {
    let program = command::find(Path::new("/"), "ceph")
        .ok_or_else(|| ExecError::Missing { program: "ceph".into(), root: "/".into() })?;
    let mut c = Command::new(program);
    c.args(args).env("CEPH_CONF", conf);
    command::run(c, Duration::from_secs(60), t.cancel, |_| ())?;
    Ok(())
}

fn act(t: &Tools<'_>, c: &mut Cluster, d: &Disturbance, pool: &str, watch: &Adder) -> Result<(), ExecError> {
    let (osd, id) = (format!("osd.{}", d.osd), d.osd.to_string());
    match d.what.as_str() {
        "osd-kill" => c.kill(&osd),
        "osd-start" => {
            c.start_again(&osd)?;
            if let Some((n, process)) = c.processes().into_iter().find(|(n, _)| *n == osd) {
                watch.add(&n, process);
            }
            Ok(())
        }
        "osd-out" | "osd-in" => {
            let prefix = d.what.replace('-', " ");
            Ok(c.control.run(&json!({"prefix": prefix, "ids": [id]}), &[]).map(|_| ())?)
        }
        "pg_num" => {
            let cmd = json!({"prefix": "osd pool set", "pool": pool, "var": "pg_num", "val": d.value.to_string()});
            Ok(c.control.run(&cmd, &[]).map(|_| ())?)
        }
        "snapshot" => {
            Ok(c.control.run(&json!({"prefix": "osd pool mksnap", "pool": pool, "snap": "lab"}), &[]).map(|_| ())?)
        }
        "unsnapshot" => {
            Ok(c.control.run(&json!({"prefix": "osd pool rmsnap", "pool": pool, "snap": "lab"}), &[]).map(|_| ())?)
        }
        scrub => ceph(t, &c.conf.clone(), &["osd", "pool", scrub, pool]),
    }
}

/// The measurement that is disturbed.
pub(super) struct Course<'a> {
    /// Pool of the load's data.
    pub(super) pool: &'a str,
    pub(super) adder: &'a Adder,
    /// Set when the tool has ended.
    pub(super) over: &'a AtomicBool,
    /// File that the tool makes when it begins to measure, if it does.
    pub(super) begun: Option<PathBuf>,
}

impl Course<'_> {
    fn is_over(&self, t: &Tools<'_>) -> bool {
        self.over.load(Ordering::Relaxed) || t.cancel.load(Ordering::Relaxed)
    }
}

/// Carries out the disturbances of a cell at their times, counted from the begin of the measurement, until it is over.
/// Returns a line of text for each.
pub(super) fn run(
    t: &Tools<'_>,
    c: &mut Cluster,
    cell: &Cell,
    plan: &[Disturbance],
    course: &Course<'_>,
) -> Vec<String> {
    // Our generators warm up within their own run.
    let own = if cell.load.text("tool") == "bench" || tool::is_steps(cell) { cell.load.number("warm_up") } else { 0.0 };
    let mut all: Vec<&Disturbance> = cell.disturbances(plan).collect();
    all.sort_by(|a, b| a.at.total_cmp(&b.at));
    while course.begun.as_ref().is_some_and(|f| !f.exists()) && !course.is_over(t) {
        std::thread::sleep(LOOK);
    }
    let begin = Instant::now();
    let mut said = Vec::new();
    for d in all {
        let at = own + d.at * cell.load.number("seconds");
        while begin.elapsed().as_secs_f64() < at {
            if course.is_over(t) {
                said.push(format!("{} was not carried out: the measurement ended before", d.what));
                return said;
            }
            std::thread::sleep(LOOK);
        }
        let result =
            act(t, c, d, course.pool, course.adder).map_or_else(|e| format!(" failed: {e}"), |()| String::new());
        said.push(format!("{:.1} s: {} (osd.{}){result}", begin.elapsed().as_secs_f64(), d.what, d.osd));
    }
    said
}

/// Repairs the cluster: starts killed OSDs, marks all in, and waits until all PGs are clean.
pub(super) fn heal(t: &Tools<'_>, c: &mut Cluster, plan: &[Disturbance], watch: &Adder) -> Result<(), ExecError> {
    for d in plan {
        let osd = format!("osd.{}", d.osd);
        let alive = |c: &Cluster| c.processes().iter().any(|(n, p)| *n == osd && is_alive(p));
        match d.what.as_str() {
            "osd-kill" if !alive(c) => {
                c.start_again(&osd)?;
                if let Some((n, process)) = c.processes().into_iter().find(|(n, _)| *n == osd) {
                    watch.add(&n, process);
                }
            }
            "osd-out" => {
                c.control.run(&json!({"prefix": "osd in", "ids": [d.osd.to_string()]}), &[])?;
            }
            _ => {}
        }
    }
    let n = c.osds;
    Ok(c.control.wait("the cluster to be clean again", HEAL_LIMIT, t.cancel, |s| s.up() >= n && s.is_clean(1))?)
}

fn is_alive(p: &At) -> bool {
    let [stat, ..] = p.look();
    stat.rsplit(')').next().is_some_and(|s| !s.trim_start().starts_with('Z') && !s.trim().is_empty())
}
