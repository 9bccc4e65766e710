//! Statistics of CephFS clients in the manager role, as `fs perf stats` and `cephfs-top` show them: the queries to MDS
//! daemons, the reports, and the output. No I/O; the host sends the queries and answers the commands.
//!
//! The first rank of a file system collects the counters of all its ranks. Each of its reports is complete and replaces
//! the previous one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::{Map, Value, json};
use wire::Reader;
use wire::types::{
    MdsPerfMetricReport, PerfMetricQuery, PerfMetricReport, PerfMetricSubKey, PerformanceCounter, VarVec,
};

/// Version of the output format.
const VERSION: u32 = 2;
/// Names of a client's counters in the output, in the order of their numbers in messages and feature bits.
pub const NAMES: [&str; 16] = [
    "cap_hit",
    "read_latency",
    "write_latency",
    "metadata_latency",
    "dentry_lease",
    "opened_files",
    "pinned_icaps",
    "opened_inodes",
    "read_io_sizes",
    "write_io_sizes",
    "avg_read_latency",
    "stdev_read_latency",
    "avg_write_latency",
    "stdev_write_latency",
    "avg_metadata_latency",
    "stdev_metadata_latency",
];
/// Text shown for a fact that a client did not report about itself.
const NOT_TOLD: &str = "N/A";
/// Clients that a report may count.
const CLIENTS_MAX: usize = 65_536;
/// Ranks that a filter may name.
const RANKS_MAX: usize = 256;
/// Parts of keys in queries to MDS daemons.
mod key {
    /// Number of the rank.
    pub(super) const MDS_RANK: u8 = 0;
    /// `client.123 v1:192.0.2.1:0/456`.
    pub(super) const CLIENT_ID: u8 = 1;
}

/// The two numbers of a counter: hits and misses, seconds and nanoseconds, or a count and a sum.
pub type Pair = (u64, u64);

/// The clients and ranks that a command asks about.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Filter {
    /// Ranks; empty: all.
    ranks: Vec<u32>,
    /// Number of a client; empty: all.
    client: String,
    /// Address of a client, with `v1:` or `v2:` before it or not; empty for all.
    ip: String,
}

impl Filter {
    /// Parses the arguments of a command; an absent argument is empty. The error is the command's status line.
    pub fn parse(ranks: &str, client: &str, ip: &str) -> Result<Self, String> {
        let numbers: Option<Vec<u32>> =
            if ranks.is_empty() { Some(Vec::new()) } else { ranks.split(',').map(number).collect() };
        let numbers = numbers.filter(|n| n.len() <= RANKS_MAX).ok_or(format!("invalid mds filter spec: {ranks}"))?;
        if !client.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!("invalid client_id filter spec: {client}"));
        }
        let bare = ip.strip_prefix("v1:").or_else(|| ip.strip_prefix("v2:")).unwrap_or(ip);
        if !ip.is_empty() && bare.parse::<IpAddr>().is_err() {
            return Err(format!("invalid client_ip filter spec: {ip}"));
        }
        Ok(Self { ranks: numbers, client: client.to_owned(), ip: ip.to_owned() })
    }

    fn clients(&self) -> PerfMetricSubKey {
        let or = |s: &str, any: &str| if s.is_empty() { any.to_owned() } else { s.to_owned() };
        let regex = format!("^(client.{}\\s+{}):.*", or(&self.client, "\\d*"), or(&self.ip, ".*"));
        PerfMetricSubKey { kind: key::CLIENT_ID, regex }
    }

    /// Queries by rank and client without counters; their answers say which client is counted at which rank.
    fn ranked(&self) -> Vec<PerfMetricQuery> {
        let query = |regex: String| PerfMetricQuery {
            key_descriptor: VarVec(vec![PerfMetricSubKey { kind: key::MDS_RANK, regex }, self.clients()]),
            performance_counters: VarVec(Vec::new()),
        };
        if self.ranks.is_empty() {
            return vec![query("^(.*)$".to_owned())];
        }
        self.ranks.iter().map(|r| query(format!("^({r})$"))).collect()
    }

    /// The query by client, with all counters.
    fn global(&self) -> PerfMetricQuery {
        let counters = (0..NAMES.len() as u8).map(|kind| PerformanceCounter { kind }).collect();
        PerfMetricQuery { key_descriptor: VarVec(vec![self.clients()]), performance_counters: VarVec(counters) }
    }

    /// The queries for MDS daemons that provide the counters this filter asks for.
    #[must_use]
    pub fn queries(&self) -> Vec<PerfMetricQuery> {
        self.ranked().into_iter().chain([self.global()]).collect()
    }
}

fn number(s: &str) -> Option<u32> {
    if s.bytes().all(|b| b.is_ascii_digit()) { s.parse().ok() } else { None }
}

/// A client's number with `client.` before it, and its IP with the protocol.
type Who = (String, String);

/// Numbers of all [`NAMES`].
type Counters = [Pair; NAMES.len()];
/// Answers, by the key of their query.
type ByQuestion<T> = Vec<(Vec<PerfMetricSubKey>, T)>;

/// The counts of one daemon.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Ranks whose counters are outdated.
    delayed: BTreeSet<i32>,
    /// Clients by query and rank. Only the key identifies a query, because daemons leave out counters that they don't
    /// know.
    ranked: ByQuestion<Vec<(i32, Who)>>,
    /// Counters by query.
    global: ByQuestion<BTreeMap<Who, Counters>>,
}

impl Counted {
    /// Takes over a report; parts that do not decode are left out.
    #[must_use]
    pub fn of(m: &MdsPerfMetricReport) -> Self {
        let mut out = Self { delayed: m.rank_metrics_delayed.iter().copied().collect(), ..Self::default() };
        let mut left = CLIENTS_MAX;
        for (query, report) in &m.reports {
            let parts = query.key_descriptor.0.clone();
            let kinds: Vec<u8> = parts.iter().map(|p| p.kind).collect();
            let groups = report.group_packed_performance_counters.iter().take(left);
            match kinds.as_slice() {
                [key::MDS_RANK, key::CLIENT_ID] => {
                    let of = |k: &[Vec<bytes::Bytes>]| Some((text(k, 0)?.parse().ok()?, who(&text(k, 1)?)?));
                    out.ranked.push((parts, groups.filter_map(|(k, _)| of(k)).collect()));
                }
                [key::CLIENT_ID] => {
                    let of = |k: &[Vec<bytes::Bytes>], packed| Some((who(&text(k, 0)?)?, unpack(report, packed)?));
                    out.global.push((parts, groups.filter_map(|(k, packed)| of(k, packed)).collect()));
                }
                _ => continue,
            }
            left = left.saturating_sub(report.group_packed_performance_counters.len());
        }
        out
    }

    /// True if the report answers all queries of `filter`.
    #[must_use]
    pub fn answers(&self, filter: &Filter) -> bool {
        filter.ranked().iter().all(|q| self.ranked.iter().any(|(k, _)| *k == q.key_descriptor.0))
            && self.global.iter().any(|(k, _)| *k == filter.global().key_descriptor.0)
    }

    fn at_ranks(&self, filter: &Filter) -> impl Iterator<Item = &(i32, Who)> {
        let asked: Vec<_> = filter.ranked().into_iter().map(|q| q.key_descriptor.0).collect();
        self.ranked.iter().filter(move |(k, _)| asked.contains(k)).flat_map(|(_, rows)| rows)
    }

    fn counters(&self, filter: &Filter) -> impl Iterator<Item = (&Who, &Counters)> {
        let asked = filter.global().key_descriptor.0;
        self.global.iter().filter(move |(k, _)| *k == asked).flat_map(|(_, rows)| rows)
    }
}

fn text(k: &[Vec<bytes::Bytes>], part: usize) -> Option<String> {
    k.get(part).and_then(|p| p.first()).map(|b| String::from_utf8_lossy(b).into_owned())
}

fn who(s: &str) -> Option<Who> {
    let (id, ip) = s.split_once(char::is_whitespace)?;
    let n = id.strip_prefix("client.")?;
    let known = !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit());
    known.then(|| (id.to_owned(), ip.trim_start().to_owned()))
}

fn unpack(r: &PerfMetricReport, packed: &bytes::Bytes) -> Option<Counters> {
    let mut out = [(0, 0); NAMES.len()];
    let mut bytes = Reader::shared(packed);
    for d in &r.performance_counter_descriptors.0 {
        let pair = (bytes.u64().ok()?, bytes.u64().ok()?);
        if let Some(slot) = out.get_mut(usize::from(d.kind)) {
            *slot = pair;
        }
    }
    Some(out)
}

/// Metadata that the clients of one file system reported about themselves, by `client.123`.
pub type Clients = BTreeMap<String, Map<String, Value>>;

/// Reads an MDS's list of sessions (`client ls`); entries of another form are left out.
#[must_use]
pub fn clients(sessions: &[u8]) -> Clients {
    let Ok(Value::Array(all)) = serde_json::from_slice(sessions) else { return Clients::new() };
    let one = |s: &Value| {
        let id = s.get("id")?.as_u64()?;
        let about = s.get("client_metadata")?;
        let told = |k: &str| about.get(k).and_then(Value::as_str);
        let mut out = Map::new();
        for k in ["hostname", "root", "mount_point"] {
            out.insert(k.to_owned(), told(k).unwrap_or(NOT_TOLD).into());
        }
        let bits = about.pointer("/metric_spec/metric_flags/feature_bits").and_then(Value::as_str).unwrap_or_default();
        let bits = u64::from_str_radix(bits.trim_start_matches("0x"), 16).unwrap_or(0);
        let valid = NAMES.iter().enumerate().filter(|(i, _)| bits & 1 << i != 0).map(|(_, n)| *n);
        out.insert("valid_metrics".to_owned(), valid.collect());
        if let Some(v) = told("kernel_version") {
            out.insert("kernel_version".to_owned(), v.into());
        }
        Some((format!("client.{id}"), out))
    };
    all.iter().filter_map(one).take(CLIENTS_MAX).collect()
}

/// A file system: its name, the counters of its first rank's report, and its clients.
pub type Seen<'a> = (&'a str, &'a Counted, &'a Clients);

/// The answer of `fs perf stats`. Clients that are counted and have no session any more, or not yet, are left out.
#[must_use]
pub fn report(filter: &Filter, all: &[Seen<'_>]) -> Value {
    let (mut metadata, mut global) = (Map::new(), Map::new());
    let (mut by_rank, mut delayed): (BTreeMap<i32, Map<String, Value>>, BTreeSet<i32>) = Default::default();
    for (name, counted, clients) in all {
        let mut at_ranks = BTreeSet::new();
        for (rank, (id, _)) in counted.at_ranks(filter) {
            at_ranks.insert(id);
            // No counters are asked for by rank.
            by_rank.entry(*rank).or_default().insert(id.clone(), json!([]));
            if counted.delayed.contains(rank) {
                delayed.insert(*rank);
            }
        }
        let (mut about, mut counters) = (Map::new(), Map::new());
        for ((id, ip), pairs) in counted.counters(filter) {
            let Some(told) = clients.get(id).filter(|_| at_ranks.contains(id)) else { continue };
            let mut told = told.clone();
            told.insert("IP".to_owned(), ip.as_str().into());
            about.insert(id.clone(), told.into());
            counters.insert(id.clone(), pairs.iter().map(|(a, b)| json!([a, b])).collect());
        }
        if !about.is_empty() {
            metadata.insert((*name).to_owned(), about.into());
            global.insert((*name).to_owned(), counters.into());
        }
    }
    let mut metrics = Map::new();
    metrics.insert("delayed_ranks".to_owned(), delayed.into_iter().collect());
    metrics.extend(by_rank.into_iter().map(|(rank, clients)| (format!("mds.{rank}"), clients.into())));
    json!({
        "version": VERSION,
        "global_counters": NAMES,
        "counters": [],
        "client_metadata": metadata,
        "global_metrics": global,
        "metrics": metrics,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn filter() -> Filter {
        Filter::parse("", "", "").unwrap()
    }

    fn packed(pairs: &[Pair]) -> Bytes {
        pairs.iter().flat_map(|(a, b)| [a.to_le_bytes(), b.to_le_bytes()]).flatten().collect::<Vec<u8>>().into()
    }

    fn answer(q: PerfMetricQuery, kinds: &[u8], rows: &[(&[&str], &[Pair])]) -> (PerfMetricQuery, PerfMetricReport) {
        let group = |(k, v): &(&[&str], &[Pair])| {
            (k.iter().map(|p| vec![Bytes::copy_from_slice(p.as_bytes())]).collect(), packed(v))
        };
        let report = PerfMetricReport {
            performance_counter_descriptors: VarVec(
                kinds.iter().map(|kind| PerformanceCounter { kind: *kind }).collect(),
            ),
            group_packed_performance_counters: rows.iter().map(group).collect(),
        };
        (q, report)
    }

    const SESSIONS: &str = r#"[
        {"id": 7, "client_metadata": {"hostname": "h", "root": "/", "mount_point": "/mnt",
            "metric_spec": {"metric_flags": {"feature_bits": "0x0000000000000201"}}}},
        {"id": 9, "client_metadata": {"hostname": "k", "root": "/a", "kernel_version": "6.1"}},
        {"id": "x"}, {"id": 3}]"#;

    #[test]
    fn filters_are_accepted_and_refused_as_by_ceph() {
        let regexes = |f: &Filter| -> Vec<String> {
            f.queries().iter().flat_map(|q| q.key_descriptor.0.iter().map(|k| k.regex.clone())).collect()
        };
        let all = r"^(client.\d*\s+.*):.*";
        assert_eq!(regexes(&filter()), ["^(.*)$", all, all]);
        let some = Filter::parse("0,12", "42", "v1:192.0.2.1").unwrap();
        let one = r"^(client.42\s+v1:192.0.2.1):.*";
        assert_eq!(regexes(&some), ["^(0)$", one, "^(12)$", one, one]);
        assert_eq!(some.queries()[2].performance_counters.0.len(), NAMES.len());
        for bad in ["x", "1,", ",1", "-1", "1 2", "+1"] {
            assert_eq!(Filter::parse(bad, "", "").unwrap_err(), format!("invalid mds filter spec: {bad}"));
        }
        assert_eq!(Filter::parse("", "4.", "").unwrap_err(), "invalid client_id filter spec: 4.");
        assert_eq!(Filter::parse("", "", "v1:.*").unwrap_err(), "invalid client_ip filter spec: v1:.*");
        assert!(Filter::parse("", "", "2001:db8::1").is_ok());
    }

    #[test]
    fn a_report_is_shown_with_the_clients_metadata() {
        let f = filter();
        let q = f.queries();
        let (a, b) = ("client.7 v1:192.0.2.1", "client.8 v1:192.0.2.2");
        let m = MdsPerfMetricReport {
            // An old daemon that knows two of the counters and reports only those.
            reports: vec![
                answer(q[0].clone(), &[], &[(&["0", a], &[]), (&["1", a], &[]), (&["1", b], &[])]),
                answer(
                    PerfMetricQuery { performance_counters: VarVec(Vec::new()), ..q[1].clone() },
                    &[0, 9],
                    &[(&[a], &[(5, 6), (1, 4096)]), (&[b], &[(7, 8), (0, 0)]), (&["nobody"], &[(1, 1), (1, 1)])],
                ),
            ],
            rank_metrics_delayed: vec![1, 5],
        };
        let counted = Counted::of(&m);
        assert!(counted.answers(&f) && !counted.answers(&Filter::parse("0", "", "").unwrap()));
        let known = clients(SESSIONS.as_bytes());
        assert_eq!(known.keys().collect::<Vec<_>>(), ["client.7", "client.9"]);
        assert_eq!(known["client.9"]["mount_point"], "N/A");
        assert_eq!(known["client.9"]["kernel_version"], "6.1");
        let shown = report(&f, &[("home", &counted, &known)]);
        assert_eq!(shown["version"], 2);
        let about = json!({"client.7": {"hostname": "h", "root": "/", "mount_point": "/mnt", "IP": "v1:192.0.2.1",
            "valid_metrics": ["cap_hit", "write_io_sizes"]}});
        assert_eq!(shown["client_metadata"]["home"], about, "client.8 has no session");
        let counters = shown["global_metrics"]["home"]["client.7"].as_array().unwrap();
        assert_eq!((counters.len(), &counters[0], &counters[9]), (16, &json!([5, 6]), &json!([1, 4096])));
        let ranks = json!({"delayed_ranks": [1], "mds.0": {"client.7": []}, "mds.1": {"client.7": [], "client.8": []}});
        assert_eq!(shown["metrics"], ranks);
    }

    #[test]
    fn malformed_reports_are_left_out() {
        let f = filter();
        let q = f.queries();
        // Malformed reports: too short, a key without parts, a query that was not sent.
        let m = MdsPerfMetricReport {
            reports: vec![
                answer(q[1].clone(), &[0, 200], &[(&["client.7 v1:x"], &[(1, 2)]), (&[], &[(1, 2), (3, 4)])]),
                answer(q[0].clone(), &[], &[(&["0"], &[]), (&["x", "client.7 v1:x"], &[])]),
                answer(PerfMetricQuery::default(), &[0], &[(&["client.7 v1:x"], &[(1, 2)])]),
            ],
            ..MdsPerfMetricReport::default()
        };
        let shown = report(&f, &[("home", &Counted::of(&m), &clients(SESSIONS.as_bytes()))]);
        assert_eq!((&shown["global_metrics"], &shown["metrics"]), (&json!({}), &json!({"delayed_ranks": []})));
        assert!(clients(b"{}").is_empty() && clients(b"\xff").is_empty());
    }
}
