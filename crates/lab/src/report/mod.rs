//! Reports: tables of medians, ratios between systems, CSV, and one HTML file with everything.
//!
//! | module | contents |
//! | --- | --- |
//! | `archive` | the part about an archive of small objects, beside the figures of Software Heritage |
//! | `builds` | the part about loads of builds: times of equal clients, requests of each rank |
//! | `csv` | raw figures as CSV: one line for each measurement, or for each second of each |
//! | `html` | the report: one self-contained HTML file without scripts |
//! | `svg` | plots as SVG: line plots and bar charts, of shapes and text only |
//! | `text` | tables as plain text for a terminal, and as Markdown for documents |

pub mod archive;
pub mod builds;
pub mod csv;
pub mod html;
pub mod svg;
pub mod text;

use crate::plan::keys;
use crate::result::{CellResult, METRICS};
use crate::stats::{Ratio, Sample, ratio};
use std::collections::{BTreeMap, BTreeSet};

/// Figures of which less is better, by the ends of their names.
const LESS_IS_BETTER: [&str; 9] = [
    "over_100ms_percent",
    "disk_per_payload",
    "_us",
    "_us_per_op",
    "rss_mib",
    "first_s",
    "median_s",
    "last_s",
    "finish_spread",
];

/// Repetitions of one combination of settings.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// Name of the run, if several are compared.
    pub run: &'a str,
    /// The measured system.
    pub system: &'a str,
    /// Name of the load.
    pub load: &'a str,
    /// All settings.
    pub params: &'a BTreeMap<String, String>,
    /// The repetitions.
    pub cells: Vec<&'a CellResult>,
}

impl Group<'_> {
    /// Values of a figure over the repetitions.
    #[must_use]
    pub fn sample(&self, metric: &str) -> Sample {
        Sample::new(self.cells.iter().filter_map(|c| c.metrics.get(metric).copied()))
    }

    /// Median of a figure; `None` if no repetition has it or all have zero.
    #[must_use]
    pub fn median(&self, metric: &str) -> Option<f64> {
        self.sample(metric).median().filter(|v| *v != 0.0)
    }

    /// The varied settings in a few words.
    #[must_use]
    pub fn label(&self, varied: &[String]) -> String {
        let mut words = vec![self.load.to_owned()];
        for k in varied.iter().filter(|k| *k != "cluster.system") {
            words.push(format!("{} {}", short(k), self.params.get(k).map_or("", String::as_str)));
        }
        words.join(", ")
    }

    /// Run and system, as far as they differ between groups.
    #[must_use]
    pub fn source(&self) -> String {
        if self.run.is_empty() { self.system.to_owned() } else { format!("{} ({})", self.system, self.run) }
    }
}

/// The last part of a key: `pg_num` of `pool.pg_num`.
#[must_use]
pub fn short(key: &str) -> &str {
    key.split_once('.').map_or(key, |(_, n)| n)
}

/// Groups the results of runs, in the order of their combinations.
#[must_use]
pub fn groups<'a>(runs: &[(&'a str, &'a [CellResult])]) -> Vec<Group<'a>> {
    let mut out: Vec<Group<'a>> = Vec::new();
    for (run, results) in runs {
        let mut by: BTreeMap<usize, Vec<&'a CellResult>> = BTreeMap::new();
        for r in *results {
            by.entry(r.combination).or_default().push(r);
        }
        out.extend(by.into_values().filter_map(|cells| {
            let first = *cells.first()?;
            Some(Group { run, system: &first.system, load: &first.load, params: &first.params, cells })
        }));
    }
    out
}

/// Keys in which groups of one load differ.
#[must_use]
pub fn varied(groups: &[Group<'_>]) -> Vec<String> {
    let mut out = BTreeSet::new();
    for g in groups {
        for (k, v) in g.params {
            if k != "load.name" && groups.iter().any(|o| o.load == g.load && o.params.get(k) != Some(v)) {
                out.insert(k.clone());
            }
        }
    }
    out.into_iter().collect()
}

/// Figures that at least one group has, in the order of tables.
#[must_use]
pub fn metrics(groups: &[Group<'_>]) -> Vec<(&'static str, &'static str)> {
    METRICS.iter().filter(|(m, _)| groups.iter().any(|g| g.median(m).is_some())).copied().collect()
}

/// Two groups with equal settings but different systems or runs.
#[derive(Clone, Debug)]
pub struct Pair<'a, 'b> {
    /// The judged group.
    pub a: &'b Group<'a>,
    /// The group it is compared with.
    pub b: &'b Group<'a>,
}

impl Pair<'_, '_> {
    /// Factor by which `a` is better in a figure: higher where more is better, lower where less is better.
    #[must_use]
    pub fn better(&self, metric: &str) -> Option<Ratio> {
        let (a, b) = (self.a.sample(metric), self.b.sample(metric));
        if LESS_IS_BETTER.iter().any(|s| metric.ends_with(s)) { ratio(&b, &a) } else { ratio(&a, &b) }
    }
}

/// Whether two groups have the same load and settings, apart from their systems.
fn same(a: &Group<'_>, b: &Group<'_>) -> bool {
    let rest = |g: &Group<'_>| -> Vec<(String, String)> {
        let of = g.params.iter().filter(|(k, _)| *k != "cluster.system");
        of.map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    a.load == b.load && rest(a) == rest(b)
}

fn is_floor(g: &Group<'_>) -> bool {
    g.params.get("cluster.system").is_some_and(|s| keys::is_floor(s))
}

/// Each group that is not the floor's as the second of a pair, with the floor of the same run and settings as the first:
/// [`Pair::better`] is the factor by which the group is above the floor.
#[must_use]
pub fn above_floor<'a, 'b>(groups: &'b [Group<'a>]) -> Vec<Pair<'a, 'b>> {
    let floor = |g: &Group<'_>| groups.iter().find(|f| is_floor(f) && f.run == g.run && same(f, g));
    groups.iter().filter(|g| !is_floor(g)).filter_map(|b| Some(Pair { a: floor(b)?, b })).collect()
}

/// All pairs: each group with the first group of another system or run and the same settings. The first of a pair is
/// Belemnite's, or that of the later run. The floor is no system to be better than; see [`above_floor`].
#[must_use]
pub fn pairs<'a, 'b>(groups: &'b [Group<'a>]) -> Vec<Pair<'a, 'b>> {
    let mut out = Vec::new();
    for (i, b) in groups.iter().enumerate() {
        for a in groups.iter().skip(i + 1) {
            if is_floor(a) != is_floor(b) {
                continue;
            }
            if same(a, b) && (a.system != b.system || a.run != b.run) {
                let swap = b.system.starts_with("belemnite") && !a.system.starts_with("belemnite");
                out.push(if swap { Pair { a: b, b: a } } else { Pair { a, b } });
            }
        }
    }
    out
}

/// A number with three significant digits and thousands separators.
#[must_use]
pub fn figure(v: f64) -> String {
    let a = v.abs();
    let text = if a >= 100.0 {
        format!("{v:.0}")
    } else if a >= 10.0 {
        format!("{v:.1}")
    } else if a >= 0.01 || a == 0.0 {
        format!("{v:.2}")
    } else {
        format!("{v:.4}")
    };
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), ""), |(w, r)| (w, r));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |d| ("-", d));
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    if rest.is_empty() { format!("{sign}{out}") } else { format!("{sign}{out}.{rest}") }
}

/// A ratio with its interval.
#[must_use]
pub fn ratio_text(r: &Ratio) -> String {
    match r.interval {
        Some((lo, hi)) => format!("{:.2} ({lo:.2}–{hi:.2})", r.medians),
        None => format!("{:.2} (one measurement)", r.medians),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Results of two systems, two PG numbers and one load, three repetitions each.
    pub(crate) fn sample_results() -> Vec<CellResult> {
        let mut out = Vec::new();
        for (combination, (system, pg, iops)) in [
            ("belemnite 0.1", "8", 40_000.0),
            ("belemnite 0.1", "64", 50_000.0),
            ("ceph 16.2", "8", 9_000.0),
            ("ceph 16.2", "64", 10_000.0),
        ]
        .into_iter()
        .enumerate()
        {
            for repetition in 0..3u64 {
                let f = 1.0 + repetition as f64 / 100.0;
                let name = if system.starts_with('b') { "belemnite" } else { "ceph" };
                out.push(CellResult {
                    id: format!("{combination:04}.{repetition}"),
                    combination,
                    repetition,
                    system: system.into(),
                    load: "read \"<4K>\"".into(),
                    params: [("cluster.system".to_owned(), name.to_owned()), ("pool.pg_num".to_owned(), pg.to_owned())]
                        .into(),
                    metrics: [
                        ("iops".to_owned(), iops * f),
                        ("p99_us".to_owned(), 1e7 / iops * f),
                        ("osd_us_per_op".to_owned(), 5e5 / iops),
                        ("p50_us".to_owned(), 5e6 / iops),
                    ]
                    .into(),
                    series: (1..5).map(|i| crate::result::Point { at: f64::from(i), iops, mean_us: 100.0 }).collect(),
                    histogram: vec![(80.0, 500), (200.0, 400), (1500.0, 100)],
                    ..CellResult::default()
                });
            }
        }
        out
    }

    #[test]
    fn groups_pairs_and_ratios() {
        let all = sample_results();
        let g = groups(&[("", &all)]);
        assert_eq!(g.len(), 4);
        assert_eq!(varied(&g), ["cluster.system", "pool.pg_num"]);
        assert_eq!(g[1].label(&varied(&g)), "read \"<4K>\", pg_num 64");
        let p = pairs(&g);
        assert_eq!(p.len(), 2);
        assert!(p.iter().all(|p| p.a.system.starts_with("belemnite") && p.b.system.starts_with("ceph")));
        let r = p[1].better("iops").unwrap();
        assert!((r.medians - 5.0).abs() < 1e-9 && r.is_sure());
        assert!((p[1].better("p99_us").unwrap().medians - 5.0).abs() < 1e-9, "less is better");
        let names: Vec<_> = metrics(&g).iter().map(|m| m.0).collect();
        assert_eq!(names, ["iops", "p50_us", "p99_us", "osd_us_per_op"]);
    }

    #[test]
    fn systems_are_measured_by_the_floor_of_their_settings() {
        let mut all = sample_results();
        let floor: Vec<CellResult> = all.iter().filter(|r| r.combination == 1).cloned().collect();
        all.extend(floor.into_iter().map(|mut r| {
            (r.combination, r.system) = (9, "floor".into());
            r.params.insert("cluster.system".into(), "floor".into());
            r.metrics.values_mut().for_each(|v| *v /= 2.0);
            r
        }));
        let g = groups(&[("", &all)]);
        assert_eq!(pairs(&g).len(), 2, "the floor is not compared as a system");
        let above = above_floor(&g);
        assert!(above.iter().all(|p| p.a.system == "floor" && p.b.params["pool.pg_num"] == "64"));
        let of = |i: usize, m| above[i].better(m).unwrap().medians;
        assert!((of(0, "osd_us_per_op") - 2.0).abs() < 1e-9 && (of(0, "iops") - 0.5).abs() < 1e-9);
        assert!((of(1, "osd_us_per_op") - 10.0).abs() < 1e-9, "Ceph takes ten times the floor's CPU");
        assert_eq!(above.len(), 2, "there is no floor with 8 PGs");
        let md = text::to_markdown(&g);
        assert!(md.contains("| times the floor | load | operations per second |"), "{md}");
        assert!(md.contains("| ceph 16.2 | read \"<4K>\", pg_num 64 |"), "{md}");
    }

    #[test]
    fn two_runs_of_one_system_are_compared() {
        let all: Vec<CellResult> = sample_results().into_iter().filter(|r| r.combination == 0).collect();
        let g = groups(&[("old", &all), ("new", &all)]);
        let p = pairs(&g);
        assert_eq!((p.len(), p[0].a.run, p[0].b.run), (1, "new", "old"));
    }

    #[test]
    fn figures_are_readable() {
        assert_eq!(
            [figure(1234567.8), figure(12.345), figure(0.5), figure(-4321.0), figure(0.0)],
            ["1,234,568", "12.3", "0.50", "-4,321", "0.00"]
        );
    }
}
