//! Rough estimate of a plan's time and disk space, made before anything is started.

use super::{Cell, Plan, keys};
use base::size;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

/// Seconds to make and remove a cluster.
const CLUSTER: f64 = 15.0;
/// Seconds to make a pool and wait for its PGs to become clean.
const POOL: f64 = 4.0;
/// Seconds of overhead of each measurement.
const CELL: f64 = 2.0;
/// Prefill rate in bytes per second, over all copies.
const PREFILL: f64 = 150e6;
/// Rate in bytes per second at which OSDs' files are written in full.
const WRITTEN: f64 = 1e9;
/// Highest rate of large writes in bytes per second, for each copy.
const WRITES: f64 = 500e6;
/// Size in bytes from which an operation counts as large.
const LARGE: u64 = 1 << 20;
/// Mean size of an archive's objects, in medians.
const ARCHIVE_MEAN: u64 = 7;
/// Seconds to start a gateway or a metadata server.
const SERVICE: f64 = 15.0;
/// Seconds to start a further metadata server.
const RANK: f64 = 3.0;
/// Seconds of a client's build.
const BUILD: f64 = 10.0;
/// Bytes of a built tree.
const TREE: u64 = 16 << 20;
/// Bytes that an empty OSD uses.
const EMPTY: u64 = 256 << 20;

/// Estimated cost of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Number of measurements.
    pub cells: usize,
    /// Number of clusters made.
    pub clusters: usize,
    /// Total time.
    pub time: Duration,
    /// Peak disk use in bytes.
    pub space: u64,
}

/// Bytes of a load's objects.
#[must_use]
pub fn working_set(c: &Cell) -> u64 {
    let l = &c.load;
    match (l.text("tool"), l.text("target")) {
        ("bench", "object") if l.text("job").starts_with("omap") => {
            l.int("objects") * l.int("keys") * (l.bytes("block") + 64)
        }
        ("bench", "object") => l.int("objects") * l.bytes("object_size"),
        ("s3" | "objects" | "winery", _) => {
            let mean = if l.text("sizes") == "archive" { ARCHIVE_MEAN } else { 1 };
            l.int("objects") * l.bytes("object_size") * mean
        }
        ("build", _) => l.int("clients") * TREE,
        ("files", _) => l.int("clients") * l.int("objects") * l.bytes("object_size"),
        // `rados bench` writes new objects for its whole time.
        ("rados", _) => (l.number("seconds") * 100e6) as u64,
        ("fio", "file") => l.int("clients") * l.bytes("image_size"),
        _ => l.bytes("image_size"),
    }
}

/// Stored bytes for each byte written.
#[must_use]
pub fn overhead(redundancy: &str) -> f64 {
    match keys::shards(redundancy) {
        Some((k, m)) => f64::from(k + m) / f64::from(k),
        None => redundancy.parse().unwrap_or(1.0),
    }
}

/// Number of OSDs of a cell's cluster.
#[must_use]
pub fn osds(c: &Cell) -> u64 {
    let hosts = keys::hosts(&c.cluster).count() as u64;
    c.cluster.int("devices") * c.cluster.int("osds_per_device") * c.cluster.int("nodes").max(hosts).max(1)
}

/// Estimates a plan with these cells.
#[must_use]
pub fn estimate(cells: &[Cell]) -> Estimate {
    let (mut clusters, mut pools, mut fills) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let (mut secs, mut space) = (0.0, 0);
    let mut stored: u64 = 0;
    let mut served = false;
    for c in cells {
        let cluster = (c.round, &c.cluster);
        let limit = osds(c) * c.cluster.bytes("osd_size");
        let full = c.cluster.is("written");
        if clusters.insert(cluster) {
            secs += CLUSTER + if full { limit as f64 / WRITTEN } else { 0.0 };
            stored = 0;
        }
        if pools.insert((cluster, &c.pool)) {
            secs += POOL;
            served = false;
        }
        if !served && (c.load.text("tool") == "s3" || c.uses_files()) {
            served = true;
            secs += SERVICE + (c.pool.int("ranks") - 1) as f64 * RANK;
        }
        let set = (working_set(c) as f64 * overhead(c.pool.text("redundancy"))) as u64;
        if c.load.is("prefill") && fills.insert((cluster, &c.pool, c.load.text("tool"), working_set(c))) {
            secs += set as f64 / PREFILL;
            stored = stored.max(set);
        }
        // Stores write overwritten data to new places: their files grow by the bytes written, up to the store's size.
        let written = if matches!(c.load.text("job"), "read" | "randread" | "seq" | "rand" | "omapget") {
            0
        } else if c.load.bytes("block") >= LARGE {
            (c.load.number("seconds") * WRITES * overhead(c.pool.text("redundancy"))) as u64
        } else {
            set
        };
        let needed = if full { limit } else { osds(c) * EMPTY + stored + set / 2 + written };
        space = space.max(needed.min(limit));
        secs += CELL
            + if c.load.text("tool") == "build" {
                c.load.int("clients") as f64 * BUILD
            } else {
                c.load.number("warm_up") + c.load.number("seconds")
            };
    }
    Estimate { cells: cells.len(), clusters: clusters.len(), time: Duration::from_secs_f64(secs), space }
}

/// `1 h 05 min`, `12 min`, `40 s`.
#[must_use]
pub fn duration(d: Duration) -> String {
    let s = d.as_secs();
    match s {
        0..=99 => format!("{s} s"),
        100..=5999 => format!("{} min", (s + 30) / 60),
        _ => format!("{} h {:02} min", s / 3600, s % 3600 / 60),
    }
}

/// The plan's matrix as text: swept keys, and the estimate.
#[must_use]
pub fn describe(plan: &Plan, cells: &[Cell]) -> String {
    let e = estimate(cells);
    let mut out = format!("{}: {}\n", plan.name(), plan.head.text("about"));
    for key in plan.varied() {
        let mut values: Vec<&str> = Vec::new();
        for c in cells {
            let v = c.get(&key);
            if !values.contains(&v) {
                values.push(v);
            }
        }
        let _ = writeln!(out, "  {key}: {}", values.join(", "));
    }
    let mut loads: Vec<String> = cells.iter().map(Cell::load_name).collect();
    loads.dedup();
    let distinct: BTreeSet<&String> = loads.iter().collect();
    let _ = writeln!(out, "  loads: {}", distinct.into_iter().cloned().collect::<Vec<_>>().join(", "));
    for d in &plan.disturb {
        let of = if d.load.is_empty() { "each" } else { &d.load };
        let _ = writeln!(out, "  after {:.0} % of {of}: {} (osd.{})", d.at * 100.0, d.what, d.osd);
    }
    let _ = writeln!(
        out,
        "  {} measurements on {} clusters, some {}, up to {} of disk",
        e.cells,
        e.clusters,
        duration(e.time),
        size::show(e.space)
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan;

    #[test]
    fn time_and_space_follow_the_matrix() {
        let text = "repetitions = 2\n[cluster]\ndevices = 3\n[pool]\nredundancy = [1, 3]\n[[load]]\nobjects = 100\nseconds = 8\nwarm_up = 2\n";
        let p = plan::parse(text, "", false, &[]).unwrap();
        let cells = p.cells();
        let e = estimate(&cells);
        assert_eq!((e.cells, e.clusters), (4, 1));
        let fill = (4 * 100 * (4 << 20)) as f64 / PREFILL;
        let want = CLUSTER + 2.0 * POOL + 4.0 * (10.0 + CELL) + fill;
        assert!((e.time.as_secs_f64() - want).abs() < 1.0, "{e:?} {want}");
        assert!(e.space > 3 * 100 * (4 << 20) && e.space < 3 * (8 << 30), "{e:?}");
        let text = describe(&p, &cells);
        assert!(text.contains("pool.redundancy: 1, 3") && text.contains("4 measurements on 1 clusters"), "{text}");
        assert_eq!(duration(Duration::from_secs(3900)), "65 min");
        assert_eq!(duration(Duration::from_secs(7300)), "2 h 01 min");
    }
}
