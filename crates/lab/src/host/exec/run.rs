//! A run: every cell of a plan in turn, with results in a folder from which an interrupted run resumes.

use super::deploy::{self, Cluster};
use super::measure::{self, Around, Pool};
use super::{ExecError, Tools, facts, limits};
use crate::plan::estimate::{self, estimate};
use crate::plan::{Cell, Plan, Settings};
use crate::result::CellResult;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Folder of a run.
#[derive(Clone, Debug)]
pub struct RunDir(pub PathBuf);

impl RunDir {
    /// Path of the plan's text.
    #[must_use]
    pub fn plan(&self) -> PathBuf {
        self.0.join("plan.toml")
    }

    /// Path of the JSON file about the run: plan options and machine facts.
    #[must_use]
    pub fn about(&self) -> PathBuf {
        self.0.join("run.json")
    }

    /// Path of the record of pools that the run has made in an existing cluster and not removed.
    #[must_use]
    pub fn made(&self) -> PathBuf {
        self.0.join("made.json")
    }

    /// Folder of a cell.
    #[must_use]
    pub fn cell(&self, id: &str) -> PathBuf {
        self.0.join("cells").join(id)
    }

    /// Contents of the JSON file about the run. Error: [`ExecError::Io`], or [`ExecError::Plan`] for text that is no
    /// JSON.
    pub fn read_about(&self) -> Result<Value, ExecError> {
        let path = self.about();
        let text = fs::read_to_string(&path).map_err(|source| ExecError::Io { path: path.clone(), source })?;
        serde_json::from_str(&text).map_err(|e| ExecError::Plan(format!("{}: {e}", path.display())))
    }

    /// Result of a finished cell.
    #[must_use]
    pub fn result(&self, id: &str) -> Option<CellResult> {
        let text = fs::read_to_string(self.cell(id).join("result.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Results of all finished cells, in order.
    #[must_use]
    pub fn results(&self) -> Vec<CellResult> {
        let names = fs::read_dir(self.0.join("cells")).into_iter().flatten().flatten();
        let mut ids: Vec<String> = names.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        ids.sort();
        ids.iter().filter_map(|id| self.result(id)).collect()
    }

    /// Failed cells, each with its error.
    #[must_use]
    pub fn failures(&self) -> Vec<(String, String)> {
        let names = fs::read_dir(self.0.join("cells")).into_iter().flatten().flatten();
        let mut out: Vec<(String, String)> = names
            .filter_map(|e| {
                let text = fs::read_to_string(e.path().join("error.txt")).ok()?;
                Some((e.file_name().to_string_lossy().into_owned(), text))
            })
            .collect();
        out.sort();
        out
    }

    /// Writes a file atomically, and makes its directory.
    ///
    /// # Errors
    /// [`ExecError::Io`] with the path of `path`; an existing file is then unchanged.
    pub fn write(&self, path: &Path, text: &str) -> Result<(), ExecError> {
        let io = |source| ExecError::Io { path: path.to_owned(), source };
        if let Some(d) = path.parent() {
            fs::create_dir_all(d).map_err(io)?;
        }
        let tmp = path.with_extension("tmp");
        fs::write(&tmp, text).and_then(|()| fs::rename(&tmp, path)).map_err(io)
    }
}

/// Summary of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Cells measured by this call.
    pub measured: usize,
    /// Cells that were already finished.
    pub before: usize,
    /// Cells that failed.
    pub failed: usize,
}

struct Running<'a> {
    t: &'a Tools<'a>,
    plan: &'a Plan,
    dir: &'a RunDir,
    cluster: Option<(u64, Settings, Cluster)>,
    pool: Option<(Settings, Pool)>,
    pools: usize,
}

/// Facts about the machine and the file system of the cluster directories.
#[must_use]
pub fn about_machine(work: &Path) -> Value {
    json!({ "machine": facts::machine(), "file_system": facts::file_system(work) })
}

/// Measures every unfinished cell. `say` is called with a line for each.
///
/// # Errors
/// [`ExecError::Cancelled`] once the run was cancelled, [`ExecError::Io`] if a result cannot be written. A cell that fails
/// is counted and its error is kept ([`RunDir::failures`]); the next cell follows.
pub fn run(t: &Tools<'_>, plan: &Plan, dir: &RunDir, say: &mut dyn FnMut(&str)) -> Result<Ended, ExecError> {
    fs::create_dir_all(&t.work).map_err(|source| ExecError::Io { path: t.work.clone(), source })?;
    let cells = plan.cells();
    let open: Vec<&Cell> = cells.iter().filter(|c| dir.result(&c.id()).is_none()).collect();
    let mut ended = Ended { measured: 0, before: cells.len() - open.len(), failed: 0 };
    let mut r = Running { t, plan, dir, cluster: None, pool: None, pools: 0 };
    let begin = Instant::now();
    let left = |i: usize| {
        let rest: Vec<Cell> = open.iter().skip(i).map(|c| (*c).clone()).collect();
        let done: Vec<Cell> = open.iter().take(i).map(|c| (*c).clone()).collect();
        let (rest, done) = (estimate(&rest).time.as_secs_f64(), estimate(&done).time.as_secs_f64());
        // The time spent so far scales the estimate for the rest.
        let factor = if i == 0 { 1.0 } else { begin.elapsed().as_secs_f64() / done.max(1.0) };
        Duration::from_secs_f64(rest * factor)
    };
    if let Some(cell) = cells.first().filter(|_| open.is_empty() && dir.made().exists()) {
        // Removes what the record names.
        deploy::make(t, &cell.cluster, &plan.options, t.port, &dir.made())?;
    }
    for (i, cell) in open.iter().enumerate() {
        let head = format!("[{}/{}] ", ended.before + i + 1, cells.len());
        let what = describe(plan, cell);
        let folder = dir.cell(&cell.id());
        fs::create_dir_all(&folder).map_err(|source| ExecError::Io { path: folder.clone(), source })?;
        match r.cell(cell, &folder, say) {
            Ok(result) => {
                let text = serde_json::to_string(&result).map_err(|e| ExecError::Plan(e.to_string()))?;
                dir.write(&folder.join("result.json"), &text)?;
                // Remove the error of an earlier attempt.
                let _ = fs::remove_file(folder.join("error.txt"));
                ended.measured += 1;
                say(&format!("{head}{what}: {}; {} left", figures(&result), estimate::duration(left(i + 1))));
            }
            Err(e) if e.is_cancelled() => {
                r.leave(say);
                return Err(ExecError::Cancelled);
            }
            Err(e) => {
                ended.failed += 1;
                dir.write(&folder.join("error.txt"), &e.to_string())?;
                say(&format!("{head}{what}: failed: {e}"));
                // The cluster's state is unknown after a failure: the next cell starts with a new one.
                r.leave(say);
            }
        }
    }
    r.leave(say);
    Ok(ended)
}

/// Values of those settings of a cell that vary in the plan.
fn describe(plan: &Plan, c: &Cell) -> String {
    let varied = plan.varied();
    let words = varied.iter().filter(|k| *k != "load.job").map(|k| {
        let name = k.split_once('.').map_or(k.as_str(), |(_, n)| n);
        if name == "system" { c.get(k).to_owned() } else { format!("{name} {}", c.get(k)) }
    });
    let mut out: Vec<String> = words.collect();
    out.push(c.load_name());
    out.join(", ")
}

/// The most important figures as one line.
fn figures(r: &CellResult) -> String {
    let m = |k: &str| r.metrics.get(k).copied().filter(|v| *v > 0.0);
    let mut out = format!("{:.0}/s", m("iops").unwrap_or(0.0));
    if let Some(v) = m("mib_s") {
        out += &format!(", {v:.1} MiB/s");
    }
    for (k, name) in [("p50_us", "p50"), ("p99_us", "p99"), ("osd_us_per_op", "OSD CPU")] {
        if let Some(v) = m(k) {
            out += &format!(", {name} {v:.0} µs");
        }
    }
    out
}

impl Running<'_> {
    /// Ends the cluster, or leaves an existing one as it was.
    fn leave(&mut self, say: &mut dyn FnMut(&str)) {
        self.pool = None;
        let Some((_, _, cluster)) = self.cluster.take() else { return };
        if let Err(e) = cluster.leave() {
            say(&format!("pools of this run stay in the cluster ({e}); `belemnite lab run --resume` removes them"));
        }
    }

    fn cell(&mut self, cell: &Cell, folder: &Path, say: &mut dyn FnMut(&str)) -> Result<CellResult, ExecError> {
        let same = |c: &(u64, Settings, Cluster)| c.0 == cell.round && c.1 == cell.cluster;
        if !self.cluster.as_ref().is_some_and(same) {
            // Remove the old cluster's files before making those of the new one.
            self.leave(say);
            let begin = Instant::now();
            let c = deploy::make(self.t, &cell.cluster, &self.plan.options, self.t.port, &self.dir.made())?;
            say(&format!("{} with {} OSDs is up after {:.1} s", c.label, c.osds, begin.elapsed().as_secs_f64()));
            self.cluster = Some((cell.round, cell.cluster.clone(), c));
        }
        let Some((_, _, cluster)) = &mut self.cluster else { return Err(ExecError::Plan("no cluster".into())) };
        let changes_pool = self.plan.disturb.iter().any(|d| d.what == "pg_num" || d.what == "snapshot");
        let keep = self.pool.as_ref().is_some_and(|(s, _)| *s == cell.pool) && !changes_pool;
        if !keep {
            if let Some((_, old)) = self.pool.take() {
                measure::remove_pool(self.t, cluster, old)?;
            }
            self.pools += 1;
            self.pool = Some((cell.pool.clone(), measure::make_pool(self.t, cluster, cell, self.pools)?));
        }
        let Some((_, pool)) = &mut self.pool else { return Err(ExecError::Plan("no pool".into())) };
        let first = cell.cluster.text("device_paths").split(',').next().unwrap_or_default().to_owned();
        let place = if first.is_empty() { self.t.work.clone() } else { PathBuf::from(first) };
        let disk = limits::device_of(&place).unwrap_or_default();
        let around = Around { t: self.t, plan: self.plan, dir: folder, disk };
        let r = around.measure(cluster, pool, cell);
        if let Ok(r) = &r {
            self.dir.write(&folder.join("params.json"), &json!(r.params).to_string())?;
        }
        r
    }
}
