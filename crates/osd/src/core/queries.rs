//! Performance counters of operations, grouped by the manager's queries (`rbd perf image iotop` and similar).
//!
//! A query names the parts to group by, each with an expression whose groups become the key, and the counters
//! to keep. Every reactor has a [`Meter`]; a report takes the counts since the last one.
//!
//! Invariants:
//!  1. Without a query nothing is counted, and an operation costs one test.
//!  2. A query counts at most `KEYS_MAX` keys.
//!
//! Tests: `operations_are_grouped_by_image_and_reported_once` for the first; `count` asserts the second.

use super::commits::Commits;
use base::{EntityAddr, EntityName, OsdId, PgId, SnapId};
use bytes::Bytes;
use regex_lite::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use wire::types::{
    PerfMetricLimit, PerfMetricQuery, PerfMetricReport, PerfQueries, PerfReports, perf_counter as counter,
    perf_key as key,
};
use wire::{Features, Writer};

/// Most queries at once.
const QUERIES_MAX: usize = 64;
/// Most parts of a key, and most counters of a query.
const PARTS_MAX: usize = 32;
/// Longest expression.
const REGEX_LEN_MAX: usize = 1024;
/// Most keys that a reactor keeps per query between two reports. Operations with further keys are not counted.
const KEYS_MAX: usize = 65_536;

/// Matches of the groups of each part's expression.
pub type Key = Vec<Vec<Bytes>>;
/// A counter, and for latencies the number of summed values.
pub type Counter = (u64, u64);
/// Counters by key, in the query's order.
pub type Counts = BTreeMap<Key, Vec<Counter>>;

/// A query with compiled expressions.
#[derive(Debug)]
struct Query {
    asked: PerfMetricQuery,
    key: Vec<(u8, Regex)>,
    limits: Vec<PerfMetricLimit>,
}

/// Compiled queries of a manager.
#[derive(Debug, Default)]
pub struct Queries(Vec<Query>);

/// An answered operation.
#[derive(Debug)]
pub struct Finished<'a> {
    /// Client that sent the operation.
    pub client: EntityName,
    /// Address of the client.
    pub addr: EntityAddr,
    /// OSD that served the operation.
    pub osd: OsdId,
    /// PG of the object.
    pub pg: PgId,
    /// Namespace of the object.
    pub nspace: &'a Bytes,
    /// Name of the object.
    pub oid: &'a Bytes,
    /// Snapshot that was read.
    pub snap: SnapId,
    /// True if the operation may have read.
    pub reads: bool,
    /// True if the operation may have written.
    pub writes: bool,
    /// Bytes of the request.
    pub bytes_in: u64,
    /// Bytes of the answer.
    pub bytes_out: u64,
    /// Time from arrival to answer.
    pub latency: Duration,
}

impl Queries {
    /// Compiles a manager's queries. Invalid ones are left out, with a line in the log.
    #[must_use]
    pub fn new(asked: &PerfQueries) -> Self {
        let mut all = Vec::new();
        for (query, limits) in asked {
            match Query::new(query, limits) {
                Ok(_) if all.len() >= QUERIES_MAX => {
                    tracing::warn!(QUERIES_MAX, "too many performance queries of the manager");
                    break;
                }
                Ok(q) => all.push(q),
                Err(error) => {
                    tracing::warn!(error, "a performance query of the manager can't be decoded and is ignored")
                }
            }
        }
        Self(all)
    }

    /// True if there are no queries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Answers to the queries from the counts of all reactors. A limit keeps the keys with the highest values
    /// of one counter.
    #[must_use]
    pub fn report(&self, mut counted: Vec<(PerfMetricQuery, Counts)>) -> PerfReports {
        let mut out = Vec::new();
        for q in &self.0 {
            let Some(i) = counted.iter().position(|(c, _)| *c == q.asked) else { continue };
            let (_, counts) = counted.swap_remove(i);
            let kept = q.kept(&counts);
            let groups = counts
                .into_iter()
                .filter(|(k, _)| kept.as_ref().is_none_or(|s| s.contains(k)))
                .map(|(k, v)| (k, q.pack(&v)))
                .collect();
            out.push((
                q.asked.clone(),
                PerfMetricReport {
                    performance_counter_descriptors: q.asked.performance_counters.clone(),
                    group_packed_performance_counters: groups,
                },
            ));
        }
        out
    }
}

impl Query {
    fn new(asked: &PerfMetricQuery, limits: &[PerfMetricLimit]) -> Result<Self, String> {
        if asked.key_descriptor.0.len() > PARTS_MAX || asked.performance_counters.0.len() > PARTS_MAX {
            return Err("too many parts".to_owned());
        }
        let part = |p: &wire::types::PerfMetricSubKey| {
            if p.kind > key::SNAP_ID || p.regex.len() > REGEX_LEN_MAX {
                return Err(format!("key of kind {}", p.kind));
            }
            let r = Regex::new(&p.regex).map_err(|e| e.to_string())?;
            if r.captures_len() < 2 {
                return Err(format!("no group in {}", p.regex));
            }
            Ok((p.kind, r))
        };
        let parts = asked.key_descriptor.0.iter().map(part).collect::<Result<_, _>>()?;
        if let Some(c) = asked.performance_counters.0.iter().find(|c| c.kind > counter::READ_LATENCY) {
            return Err(format!("counter of kind {}", c.kind));
        }
        Ok(Self { asked: asked.clone(), key: parts, limits: limits.to_vec() })
    }

    fn key_of(&self, f: &Finished<'_>) -> Option<Key> {
        let mut out = Vec::with_capacity(self.key.len());
        for (kind, regex) in &self.key {
            let text = match *kind {
                key::CLIENT_ID => f.client.to_string(),
                key::CLIENT_ADDRESS => f.addr.to_string(),
                key::POOL_ID => f.pg.pool.0.to_string(),
                key::NAMESPACE => String::from_utf8_lossy(f.nspace).into_owned(),
                key::OSD_ID => f.osd.0.to_string(),
                key::PG_ID => f.pg.to_string(),
                key::OBJECT_NAME => String::from_utf8_lossy(f.oid).into_owned(),
                _ => f.snap.to_string(),
            };
            let found = regex.captures(&text)?;
            let groups = found.iter().skip(1);
            out.push(groups.map(|g| g.map_or_else(Bytes::new, |g| Bytes::from(g.as_str().to_owned()))).collect());
        }
        Some(out)
    }

    fn count(&self, f: &Finished<'_>, counts: &mut Counts) {
        let Some(k) = self.key_of(f) else { return };
        if counts.len() >= KEYS_MAX && !counts.contains_key(&k) {
            return;
        }
        let counters = &self.asked.performance_counters.0;
        let row = counts.entry(k).or_insert_with(|| vec![(0, 0); counters.len()]);
        let ns = u64::try_from(f.latency.as_nanos()).unwrap_or(u64::MAX);
        for (c, v) in counters.iter().zip(row) {
            let (applies, sum, n) = match c.kind {
                counter::OPS => (true, 1, 0),
                counter::WRITE_OPS => (f.writes, 1, 0),
                counter::READ_OPS => (f.reads, 1, 0),
                counter::BYTES => (true, f.bytes_in + f.bytes_out, 0),
                counter::WRITE_BYTES => (f.writes, f.bytes_in, 0),
                counter::READ_BYTES => (f.reads, f.bytes_out, 0),
                counter::LATENCY => (true, ns, 1),
                counter::WRITE_LATENCY => (f.writes, ns, 1),
                _ => (f.reads, ns, 1),
            };
            if applies {
                *v = (v.0.saturating_add(sum), v.1 + n);
            }
        }
        debug_assert!(counts.len() <= KEYS_MAX);
    }

    /// Keys that the limits leave; `None` for all.
    fn kept(&self, counts: &Counts) -> Option<BTreeSet<Key>> {
        if self.limits.is_empty() || self.limits.iter().any(|l| l.max_count >= counts.len() as u64) {
            return None;
        }
        let mut kept = BTreeSet::new();
        for l in &self.limits {
            let Some(i) = self.asked.performance_counters.0.iter().position(|c| c.kind == l.order_by.kind) else {
                continue;
            };
            let mut keys: Vec<(&Key, u64)> = counts.iter().map(|(k, v)| (k, v.get(i).map_or(0, |c| c.0))).collect();
            keys.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
            kept.extend(keys.into_iter().take(l.max_count as usize).map(|(k, _)| k.clone()));
        }
        Some(kept)
    }

    fn pack(&self, row: &[Counter]) -> Bytes {
        let mut w = Writer::new(Features::PACIFIC);
        for (c, (sum, n)) in self.asked.performance_counters.0.iter().zip(row) {
            w.u64(*sum);
            if c.kind >= counter::LATENCY {
                w.u64(*n);
            }
        }
        w.into_bytes()
    }
}

/// Counts the operations of one reactor.
#[derive(Debug, Default)]
pub struct Meter {
    queries: Arc<Queries>,
    counts: Vec<Counts>,
    /// Latency of the store's commits.
    pub commits: Commits,
}

impl Meter {
    /// True if there are queries.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.queries.is_empty()
    }

    /// Changes the queries. Counts of unchanged queries are kept.
    pub fn set(&mut self, queries: Arc<Queries>) {
        let mut old = self.take();
        self.counts = queries
            .0
            .iter()
            .map(|q| match old.iter().position(|(o, _)| *o == q.asked) {
                Some(i) => old.swap_remove(i).1,
                None => Counts::new(),
            })
            .collect();
        self.queries = queries;
    }

    /// Counts an operation.
    pub fn add(&mut self, f: &Finished<'_>) {
        for (q, c) in self.queries.0.iter().zip(&mut self.counts) {
            q.count(f, c);
        }
    }

    /// Takes the counts since the last call.
    #[must_use]
    pub fn take(&mut self) -> Vec<(PerfMetricQuery, Counts)> {
        let asked = self.queries.0.iter().map(|q| q.asked.clone());
        asked.zip(self.counts.iter_mut().map(std::mem::take)).collect()
    }
}

/// Adds another reactor's counts.
pub fn merge(into: &mut Vec<(PerfMetricQuery, Counts)>, from: Vec<(PerfMetricQuery, Counts)>) {
    for (query, counts) in from {
        let Some((_, all)) = into.iter_mut().find(|(q, _)| *q == query) else {
            into.push((query, counts));
            continue;
        };
        for (k, row) in counts {
            match all.entry(k) {
                std::collections::btree_map::Entry::Vacant(e) => {
                    e.insert(row);
                }
                std::collections::btree_map::Entry::Occupied(mut e) => {
                    for (a, b) in e.get_mut().iter_mut().zip(row) {
                        *a = (a.0.saturating_add(b.0), a.1 + b.1);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{EntityKind, PoolId};
    use wire::types::{PerfMetricSubKey, PerformanceCounter, VarVec};

    fn query(regexes: &[(u8, &str)], counters: &[u8]) -> PerfMetricQuery {
        let part = |(kind, regex): &(u8, &str)| PerfMetricSubKey { kind: *kind, regex: (*regex).to_owned() };
        PerfMetricQuery {
            key_descriptor: VarVec(regexes.iter().map(part).collect()),
            performance_counters: VarVec(counters.iter().map(|kind| PerformanceCounter { kind: *kind }).collect()),
        }
    }

    fn image_query() -> PerfMetricQuery {
        let image = (key::OBJECT_NAME, "^(?:rbd|journal)_data\\.(?:([0-9]+)\\.)?([^.]+)\\.");
        let parts = [(key::POOL_ID, "^(2)$"), (key::NAMESPACE, "^(.*)$"), image];
        query(&parts, &[counter::WRITE_OPS, counter::READ_OPS, counter::WRITE_BYTES, counter::WRITE_LATENCY])
    }

    fn done(m: &mut Meter, pool: i64, oid: &str, writes: bool) {
        m.add(&Finished {
            client: EntityName::new(EntityKind::CLIENT, 4),
            addr: EntityAddr::default(),
            osd: OsdId(0),
            pg: PgId { pool: PoolId(pool), seed: 1 },
            nspace: &Bytes::new(),
            oid: &Bytes::from(oid.to_owned()),
            snap: SnapId::HEAD,
            reads: !writes,
            writes,
            bytes_in: 4096,
            bytes_out: 10,
            latency: Duration::from_micros(3),
        });
    }

    #[test]
    fn operations_are_grouped_by_image_and_reported_once() {
        let top = PerfMetricLimit { order_by: PerformanceCounter { kind: counter::WRITE_OPS }, max_count: 2 };
        let queries = Arc::new(Queries::new(&vec![(image_query(), vec![top])]));
        let (mut a, mut b) = (Meter::default(), Meter::default());
        assert!(!a.is_on());
        a.set(Arc::clone(&queries));
        b.set(Arc::clone(&queries));
        assert!(a.is_on());
        for _ in 0..3 {
            done(&mut a, 2, "rbd_data.abc.0000000000000000", true);
        }
        done(&mut b, 2, "rbd_data.abc.0000000000000001", true);
        done(&mut b, 2, "rbd_data.7.def.0000000000000001", true);
        done(&mut b, 2, "rbd_data.abc.0000000000000001", false);
        done(&mut b, 2, "rbd_data.few.0000000000000001", false);
        done(&mut b, 2, "rbd_header.abc", true);
        done(&mut b, 3, "rbd_data.abc.0000000000000000", true);
        let mut all = a.take();
        merge(&mut all, b.take());
        let r = queries.report(all);
        assert_eq!(r.len(), 1);
        let groups = &r[0].1.group_packed_performance_counters;
        let shown = |i: usize| {
            let (k, v) = &groups[i];
            let text: Vec<Vec<String>> =
                k.iter().map(|p| p.iter().map(|b| String::from_utf8(b.to_vec()).unwrap()).collect()).collect();
            let numbers: Vec<u64> = v.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
            (text.concat().join("|"), numbers)
        };
        assert_eq!(groups.len(), 2, "the limit leaves two");
        assert_eq!(shown(0), ("2|||abc".to_owned(), vec![4, 1, 4 * 4096, 12_000, 4]));
        assert_eq!(shown(1), ("2||7|def".to_owned(), vec![1, 0, 4096, 3000, 1]));
        assert!(queries.report(a.take())[0].1.group_packed_performance_counters.is_empty(), "reported once");
    }

    #[test]
    fn queries_change_and_invalid_ones_are_left_out() {
        let other = query(&[(key::CLIENT_ID, "^(.*)$")], &[counter::OPS]);
        let bad = [
            query(&[(key::CLIENT_ID, "^.*$")], &[counter::OPS]),
            query(&[(key::CLIENT_ID, "(")], &[counter::OPS]),
            query(&[(9, "(.*)")], &[counter::OPS]),
            query(&[(key::CLIENT_ID, "(.*)")], &[77]),
        ];
        for b in bad {
            assert!(Queries::new(&vec![(b, Vec::new())]).is_empty());
        }
        let mut m = Meter::default();
        m.set(Arc::new(Queries::new(&vec![(image_query(), Vec::new())])));
        done(&mut m, 2, "rbd_data.abc.0", true);
        m.set(Arc::new(Queries::new(&vec![(other.clone(), Vec::new()), (image_query(), Vec::new())])));
        done(&mut m, 2, "rbd_data.abc.0", true);
        let counted = m.take();
        assert_eq!(counted[0].0, other);
        assert_eq!(counted[0].1.values().next().unwrap()[0].0, 1);
        assert_eq!(counted[1].1.values().next().unwrap()[0].0, 2, "kept over the change");
    }
}
