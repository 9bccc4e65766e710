//! Image I/O: the query sent to OSDs, and the sums and rates of their reports (`rbd perf image …`).
//!
//! OSDs report counters since their last report; a round sums them per image. Rates are over the last two rounds.

use std::collections::{BTreeMap, BTreeSet};
use wire::Reader;
use wire::types::{
    PerfMetricLimit, PerfMetricQuery, PerfMetricReport, PerfMetricSubKey, PerfReports, PerformanceCounter, VarVec,
    perf_counter as counter, perf_key as key,
};

/// Names of the image counters in commands, in the order of [`Counters`].
pub const NAMES: [&str; 6] = ["write_ops", "read_ops", "write_bytes", "read_bytes", "write_latency", "read_latency"];
const KINDS: [u8; 6] = [
    counter::WRITE_OPS,
    counter::READ_OPS,
    counter::WRITE_BYTES,
    counter::READ_BYTES,
    counter::WRITE_LATENCY,
    counter::READ_LATENCY,
];
/// Most images an OSD reports per counter.
const OSD_RESULTS_MAX: u64 = 256;
/// Most images in a command's output.
const SHOWN_MAX: usize = 64;
/// Rounds that are further apart than this, in seconds, give no rate.
const WINDOW_SECONDS: u64 = 60;
/// Most images followed per query; others are ignored.
const IMAGES_MAX: usize = 65_536;

/// Counters of an image; latencies in nanoseconds.
pub type Counters = [u64; 6];
/// Pool, namespace and id of an image.
pub type ImageKey = (i64, String, String);
/// Names of images by pool and namespace, then by id.
pub type Names = BTreeMap<(i64, String), BTreeMap<String, String>>;

/// Output of a command: pool names by index, and images with their six values.
pub type Report = (BTreeMap<usize, String>, Vec<(String, [f64; 6])>);

/// Sums of the OSDs' reports for a query since the last [`Queries::take`].
#[derive(Debug, Default)]
pub struct Reported(BTreeMap<Vec<Vec<Vec<u8>>>, Counters>);

/// Query for the images of a pool (`None`: all pools), or of one of its namespaces.
#[must_use]
pub fn query(pool: Option<i64>, nspace: Option<&str>) -> PerfMetricQuery {
    let any = || "^(.*)$".to_owned();
    let pool_id = pool.map_or_else(any, |p| format!("^({p})$"));
    let namespace = match nspace {
        Some(n) if pool.is_some() && !n.is_empty() => format!("^({})$", escaped(n)),
        _ => any(),
    };
    let image = "^(?:rbd|journal)_data\\.(?:([0-9]+)\\.)?([^.]+)\\.".to_owned();
    let part = |kind, regex| PerfMetricSubKey { kind, regex };
    PerfMetricQuery {
        key_descriptor: VarVec(vec![
            part(key::POOL_ID, pool_id),
            part(key::NAMESPACE, namespace),
            part(key::OBJECT_NAME, image),
        ]),
        performance_counters: VarVec(KINDS.iter().map(|kind| PerformanceCounter { kind: *kind }).collect()),
    }
}

/// Limits of a report: the images with the highest value of each counter.
#[must_use]
pub fn limits() -> Vec<PerfMetricLimit> {
    let limit =
        |kind: &u8| PerfMetricLimit { order_by: PerformanceCounter { kind: *kind }, max_count: OSD_RESULTS_MAX };
    let mut all: Vec<PerfMetricLimit> = KINDS.iter().map(limit).collect();
    all.sort_by_key(|l| l.order_by.kind);
    all
}

fn escaped(s: &str) -> String {
    s.chars().flat_map(|c| "\\.+*?()|[]{}^$".contains(c).then_some('\\').into_iter().chain([c])).collect()
}

impl Reported {
    /// Adds one OSD's report for a query.
    pub fn add(&mut self, r: &PerfMetricReport) {
        let kinds: Vec<u8> = r.performance_counter_descriptors.0.iter().map(|d| d.kind).collect();
        for (k, packed) in &r.group_packed_performance_counters {
            let Some(values) = unpack(&kinds, packed) else {
                tracing::debug!("mgr: an OSD's image counters cannot be decoded");
                continue;
            };
            let k: Vec<Vec<Vec<u8>>> = k.iter().map(|p| p.iter().map(|b| b.to_vec()).collect()).collect();
            if self.0.len() >= IMAGES_MAX && !self.0.contains_key(&k) {
                continue;
            }
            for (a, b) in self.0.entry(k).or_default().iter_mut().zip(values) {
                *a = a.saturating_add(b);
            }
        }
    }

    /// Sums by image. The pool in an object's name (of images with a data pool) overrides the object's pool.
    fn images(self) -> BTreeMap<ImageKey, Counters> {
        let mut out = BTreeMap::new();
        for (k, values) in self.0 {
            let text = |i: usize, j: usize| {
                k.get(i).and_then(|p: &Vec<Vec<u8>>| p.get(j)).map(|b| String::from_utf8_lossy(b).into_owned())
            };
            let pool = text(2, 0).filter(|p| !p.is_empty()).or_else(|| text(0, 0)).and_then(|p| p.parse().ok());
            let (Some(pool), Some(nspace), Some(id)) = (pool, text(1, 0), text(2, 1)) else { continue };
            for (a, b) in out.entry((pool, nspace, id)).or_insert([0; 6]).iter_mut().zip(values) {
                *a = b.saturating_add(*a);
            }
        }
        out
    }
}

fn unpack(kinds: &[u8], packed: &bytes::Bytes) -> Option<Counters> {
    let mut r = Reader::shared(packed);
    let mut out = Counters::default();
    for kind in kinds {
        let sum = r.u64().ok()?;
        if *kind >= counter::LATENCY {
            r.u64().ok()?;
        }
        if let Some(i) = KINDS.iter().position(|k| k == kind) {
            out[i] = sum;
        }
    }
    Some(out)
}

/// Queries and the OSD reports collected for each.
#[derive(Debug, Default)]
pub struct Queries {
    /// Active queries with the reports since the last `take`.
    all: Vec<(PerfMetricQuery, Reported)>,
}

impl Queries {
    /// Adds a query; false if it is already active.
    pub fn add(&mut self, q: PerfMetricQuery) -> bool {
        let new = self.all.iter().all(|(have, _)| *have != q);
        if new {
            self.all.push((q, Reported::default()));
        }
        new
    }

    /// Removes a query; false if it is not active.
    pub fn remove(&mut self, q: &PerfMetricQuery) -> bool {
        let before = self.all.len();
        self.all.retain(|(have, _)| have != q);
        self.all.len() != before
    }

    /// Queries in the form sent to OSDs.
    #[must_use]
    pub fn asked(&self) -> wire::types::PerfQueries {
        self.all.iter().map(|(q, _)| (q.clone(), limits())).collect()
    }

    /// Adds an OSD's reports.
    pub fn take_reports(&mut self, reports: &PerfReports) {
        for (q, r) in reports {
            if let Some((_, sums)) = self.all.iter_mut().find(|(have, _)| have == q) {
                sums.add(r);
            }
        }
    }

    /// Takes the reports collected for a query since the last call.
    #[must_use]
    pub fn take(&mut self, q: &PerfMetricQuery) -> Reported {
        self.all.iter_mut().find(|(have, _)| have == q).map(|(_, r)| std::mem::take(r)).unwrap_or_default()
    }
}

/// Images followed for one kind of query.
#[derive(Debug, Default)]
pub struct Followed {
    /// The last two rounds, newest first: time in seconds and counters.
    raw: BTreeMap<ImageKey, [Option<(u64, Counters)>; 2]>,
    /// Sums since the image is followed.
    sum: BTreeMap<ImageKey, Counters>,
}

impl Followed {
    /// Adds one round at second `now`, limited to these pools and, if given, to a namespace.
    pub fn round(&mut self, r: Reported, pools: &BTreeMap<i64, String>, nspace: Option<&str>, now: u64) {
        for (k, values) in r.images() {
            if !pools.contains_key(&k.0) || nspace.is_some_and(|n| n != k.1) {
                continue;
            }
            if self.raw.len() >= IMAGES_MAX && !self.raw.contains_key(&k) {
                continue;
            }
            let raw = self.raw.entry(k.clone()).or_default();
            match &mut raw[0] {
                // A second round within a second is merged into the first.
                Some((at, have)) if *at >= now => have.iter_mut().zip(values).for_each(|(a, b)| *a += b),
                _ => {
                    raw[1] = raw[0].take();
                    raw[0] = Some((now, values));
                }
            }
            for (a, b) in self.sum.entry(k).or_default().iter_mut().zip(values) {
                *a = a.saturating_add(b);
            }
        }
        // Images without I/O in this round.
        for raw in self.raw.values_mut() {
            if raw[0].is_some_and(|(at, _)| at < now) {
                raw[1] = raw[0].take();
                raw[0] = Some((now, Counters::default()));
            }
        }
    }

    /// Pools and namespaces with images that have no name in `names`.
    #[must_use]
    pub fn unnamed(&self, names: &Names) -> BTreeSet<(i64, String)> {
        let place = |k: &ImageKey| (k.0, k.1.clone());
        self.raw.keys().filter(|k| names.get(&place(k)).is_none_or(|n| !n.contains_key(&k.2))).map(place).collect()
    }

    /// Forgets images without a name, which were removed.
    pub fn forget_unnamed(&mut self, names: &Names) {
        let named = |k: &ImageKey| names.get(&(k.0, k.1.clone())).is_some_and(|n| n.contains_key(&k.2));
        self.raw.retain(|k, _| named(k));
        self.sum.retain(|k, _| named(k));
    }

    fn rate(&self, k: &ImageKey, i: usize) -> f64 {
        let Some([Some((now, values)), Some((before, _))]) = self.raw.get(k) else { return 0.0 };
        if now <= before || now - before > WINDOW_SECONDS {
            return 0.0;
        }
        let per_second = values[i] as f64 / (now - before) as f64;
        match i {
            // Latencies are per operation.
            4 | 5 => per_second / self.rate(k, i - 4).max(1.0),
            _ => per_second,
        }
    }

    /// The images with the highest `sort_by`: their rates, or their sums.
    #[must_use]
    pub fn report(&self, pools: &BTreeMap<i64, String>, names: &Names, sort_by: usize, rates: bool) -> Report {
        let mut order: Vec<(&ImageKey, f64)> =
            self.sum.keys().filter(|k| pools.contains_key(&k.0)).map(|k| (k, self.rate(k, sort_by))).collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut descriptors: Vec<String> = Vec::new();
        let mut out = Vec::new();
        for (k, _) in order.into_iter().take(SHOWN_MAX) {
            let (Some(pool), Some(name)) = (pools.get(&k.0), names.get(&(k.0, k.1.clone())).and_then(|n| n.get(&k.2)))
            else {
                continue;
            };
            let place = if k.1.is_empty() { pool.clone() } else { format!("{pool}/{}", k.1) };
            let index = descriptors.iter().position(|d| *d == place).unwrap_or_else(|| {
                descriptors.push(place);
                descriptors.len() - 1
            });
            let value = |i: usize| if rates { self.rate(k, i) } else { self.sum.get(k).map_or(0.0, |s| s[i] as f64) };
            let values: [f64; 6] = std::array::from_fn(value);
            if values.iter().any(|v| *v != 0.0) {
                out.push((format!("{index}/{name}"), values));
            }
        }
        (descriptors.into_iter().enumerate().collect(), out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use wire::{Features, Writer};

    fn report(images: &[(&str, &str, &str, Counters)]) -> PerfReports {
        let groups = images.iter().map(|(pool, named, id, v)| {
            let text = |s: &str| Bytes::from(s.to_owned());
            let k = vec![vec![text(pool)], vec![Bytes::new()], vec![text(named), text(id)]];
            let mut w = Writer::new(Features::PACIFIC);
            for (kind, v) in KINDS.iter().zip(v) {
                w.u64(*v);
                if *kind >= counter::LATENCY {
                    w.u64(1);
                }
            }
            (k, w.into_bytes())
        });
        let r = PerfMetricReport {
            performance_counter_descriptors: query(None, None).performance_counters,
            group_packed_performance_counters: groups.collect(),
        };
        vec![(query(None, None), r)]
    }

    #[test]
    fn sums_and_rates_of_images() {
        let q = query(None, None);
        let mut queries = Queries::default();
        assert!(queries.add(q.clone()) && !queries.add(q.clone()));
        let pools: BTreeMap<i64, String> = [(2, "rbd".to_owned())].into();
        let names: Names =
            [((2, String::new()), [("a".to_owned(), "one".to_owned()), ("b".to_owned(), "two".to_owned())].into())]
                .into();
        let mut f = Followed::default();
        // Two OSDs; the second image's data lie in pool 7.
        queries.take_reports(&report(&[("2", "", "a", [10, 0, 40_960, 0, 5_000, 0])]));
        queries.take_reports(&report(&[
            ("2", "", "a", [10, 4, 40_960, 16, 5_000, 8]),
            ("7", "2", "b", [1, 0, 1, 0, 1, 0]),
            ("7", "", "gone", [1, 0, 1, 0, 1, 0]),
        ]));
        f.round(queries.take(&q), &pools, None, 100);
        assert!(f.unnamed(&names).is_empty(), "images of other pools are left out");
        let (places, sums) = f.report(&pools, &names, 0, false);
        assert_eq!(places, [(0, "rbd".to_owned())].into());
        assert_eq!(
            sums.iter().find(|s| s.0 == "0/one").unwrap().1,
            [20.0, 4.0, 81_920.0, 16.0, 10_000.0, 8.0],
            "both OSDs"
        );
        assert!(f.report(&pools, &names, 0, true).1.is_empty(), "no rate of one round");
        queries.take_reports(&report(&[("2", "", "a", [50, 0, 500, 0, 100_000, 0])]));
        f.round(queries.take(&q), &pools, None, 105);
        let (_, rates) = f.report(&pools, &names, 0, true);
        assert_eq!(rates, [("0/one".to_owned(), [10.0, 0.0, 100.0, 0.0, 2_000.0, 0.0])]);
        f.round(queries.take(&q), &pools, None, 110);
        assert!(f.report(&pools, &names, 0, true).1.is_empty(), "nothing happened");
        assert_eq!(f.report(&pools, &names, 0, false).1.len(), 2);
        f.forget_unnamed(&Names::default());
        assert!(f.report(&pools, &names, 0, false).1.is_empty());
        assert!(queries.remove(&q) && !queries.remove(&q));
    }

    #[test]
    fn namespaces_are_no_expressions() {
        let q = query(Some(3), Some("a.b"));
        assert_eq!(q.key_descriptor.0[0].regex, "^(3)$");
        assert_eq!(q.key_descriptor.0[1].regex, "^(a\\.b)$");
        assert_eq!(query(None, Some("x")).key_descriptor.0[1].regex, "^(.*)$");
    }
}
