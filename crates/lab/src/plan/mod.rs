//! Plans of measurements as TOML, and the matrix of cells that follows from them.
//!
//! A cell is one load on one pool of one cluster, measured once. Cells are ordered so that all pools of a cluster, and
//! all loads of a pool, follow each other.
//!
//! | module | contents |
//! | --- | --- |
//! | `builtin` | built-in plans: the published studies, each at full size and `small` |
//! | `estimate` | rough estimate of a plan's time and disk space, made before anything is started |
//! | `keys` | every key of a plan, with its type and meaning |
//! | `parse` | parses a plan from TOML |

pub mod builtin;
pub mod estimate;
pub mod keys;
mod parse;

pub use parse::{Change, PlanError, parse};

use base::size;
use std::collections::BTreeMap;

/// Values of all keys of one section, as text that their kinds have checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Settings(pub BTreeMap<String, String>);

impl Settings {
    /// Value of a key; empty if the key does not exist.
    #[must_use]
    pub fn text(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    /// Value as a whole number.
    #[must_use]
    pub fn int(&self, key: &str) -> u64 {
        self.text(key).parse().unwrap_or(0)
    }

    /// Value as a number.
    #[must_use]
    pub fn number(&self, key: &str) -> f64 {
        self.text(key).parse().unwrap_or(0.0)
    }

    /// Value as a size in bytes.
    #[must_use]
    pub fn bytes(&self, key: &str) -> u64 {
        size::parse(self.text(key)).unwrap_or(0)
    }

    /// Value as a boolean.
    #[must_use]
    pub fn is(&self, key: &str) -> bool {
        self.text(key) == "true"
    }
}

/// A swept key with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Name of the key.
    pub key: String,
    /// Values of the key.
    pub values: Vec<String>,
}

/// All keys of a section.
pub type Axes = Vec<Axis>;

/// A disturbance of the cluster during each measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Disturbance {
    /// Time as a fraction of the measured time.
    pub at: f64,
    /// One of [`keys::DISTURBANCES`].
    pub what: String,
    /// Name of the disturbed load; empty for all.
    pub load: String,
    /// Target OSD.
    pub osd: u64,
    /// New value, for disturbances that set one.
    pub value: u64,
}

/// A parsed plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Keys of the section `[plan]`.
    pub head: Settings,
    /// Keys of the clusters.
    pub cluster: Axes,
    /// Keys of the pools in each cluster.
    pub pool: Axes,
    /// Keys of the loads on each pool.
    pub loads: Vec<Axes>,
    /// Disturbances during each measurement.
    pub disturb: Vec<Disturbance>,
    /// Keys of sampling and profiling.
    pub observe: Settings,
    /// Options of daemons, by section of a `ceph.conf`.
    pub options: BTreeMap<String, BTreeMap<String, String>>,
    /// Excluded cells: those that match all values of one of these maps.
    pub except: Vec<BTreeMap<String, String>>,
}

/// A cell: one measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Index of its combination of settings.
    pub combination: usize,
    /// Repetition, from 0, over all rounds.
    pub repetition: u64,
    /// Settings of the cluster.
    pub cluster: Settings,
    /// Settings of the pool.
    pub pool: Settings,
    /// Settings of the load.
    pub load: Settings,
    /// Round; a cluster is not reused in another round.
    pub round: u64,
}

impl Cell {
    /// True if the load works on files of a file system.
    #[must_use]
    pub fn uses_files(&self) -> bool {
        let tool = self.load.text("tool");
        matches!(tool, "files" | "build") || tool == "fio" && self.load.text("target") == "file"
    }

    /// Name of the cell's folder; the same in every run of the plan.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{:04}.{}", self.combination, self.repetition)
    }

    /// The disturbances among `all` that are for this load.
    pub fn disturbances<'a>(&self, all: &'a [Disturbance]) -> impl Iterator<Item = &'a Disturbance> + use<'a> {
        let name = self.load_name();
        all.iter().filter(move |d| d.load.is_empty() || d.load == name)
    }

    /// Name of the load.
    #[must_use]
    pub fn load_name(&self) -> String {
        match self.load.text("name") {
            "" => format!("{} {}", self.load.text("tool"), self.load.text("job")),
            n => n.to_owned(),
        }
    }

    /// Value of a key written as `section.key`.
    #[must_use]
    pub fn get(&self, key: &str) -> &str {
        match key.split_once('.') {
            Some(("cluster", k)) => self.cluster.text(k),
            Some(("pool", k)) => self.pool.text(k),
            Some(("load", k)) => self.load.text(k),
            _ => "",
        }
    }
}

/// All combinations of the axes' values, the last axis changing fastest.
fn combinations(axes: &[Axis]) -> Vec<Settings> {
    let mut out = vec![Settings::default()];
    for a in axes {
        out = out
            .into_iter()
            .flat_map(|s| {
                a.values.iter().map(move |v| {
                    let mut s = s.clone();
                    s.0.insert(a.key.clone(), v.clone());
                    s
                })
            })
            .collect();
    }
    out
}

impl Plan {
    /// Name of the plan.
    #[must_use]
    pub fn name(&self) -> &str {
        self.head.text("name")
    }

    /// All cells to be measured, in order.
    #[must_use]
    pub fn cells(&self) -> Vec<Cell> {
        let (repetitions, rounds) = (self.head.int("repetitions").max(1), self.head.int("rounds").max(1));
        let loads: Vec<Settings> = self.loads.iter().flat_map(|l| combinations(l)).collect();
        let mut out = Vec::new();
        for round in 0..rounds {
            let mut combination = 0;
            for cluster in combinations(&self.cluster) {
                for pool in combinations(&self.pool) {
                    for load in &loads {
                        let cell = |repetition| Cell {
                            combination,
                            repetition: round * repetitions + repetition,
                            cluster: cluster.clone(),
                            pool: pool.clone(),
                            load: load.clone(),
                            round,
                        };
                        let left_out = |e: &BTreeMap<String, String>| e.iter().all(|(k, v)| cell(0).get(k) == v);
                        if !self.except.iter().any(left_out) {
                            out.extend((0..repetitions).map(cell));
                        }
                        combination += 1;
                    }
                }
            }
        }
        out
    }

    /// Keys with more than one value in the plan, as `section.key`, in order. The load's name comes first if there are
    /// several.
    #[must_use]
    pub fn varied(&self) -> Vec<String> {
        let mut out = Vec::new();
        for (section, axes) in [("cluster", &self.cluster), ("pool", &self.pool)] {
            out.extend(axes.iter().filter(|a| a.values.len() > 1).map(|a| format!("{section}.{}", a.key)));
        }
        for k in keys::KEYS.iter().filter(|k| k.section == "load" && k.name != "name") {
            let mut values = std::collections::BTreeSet::new();
            for axes in &self.loads {
                values.extend(axes.iter().filter(|a| a.key == k.name).flat_map(|a| a.values.iter()));
            }
            let swept = self.loads.iter().any(|l| l.iter().any(|a| a.key == k.name && a.values.len() > 1));
            if swept || values.len() > 1 && matches!(k.name, "block" | "depth" | "job") {
                out.push(format!("load.{}", k.name));
            }
        }
        out
    }
}
