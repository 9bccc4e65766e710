//! Reports to the manager: identity, counters, PG and space statistics.

use super::commits::Latency;
use super::queries::{self, Counts, Queries};
use base::counter::{self, Counter, Section, Value};
use base::ledger::Cause;
use base::{AddrVec, Epoch, Mono, Now, OsdId, PgId, PoolId, id::Uuid};
use bytes::Bytes;
use cluster::option_table;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::{CounterValue, MMgrConfigure, MMgrOpen, MMgrReport, MPgStats, PackedCounters};
use wire::types::{
    DaemonConfig, DaemonHealthMetric, HbPingTime, MetricConfig, MetricReport, MgrMap, ObjectstorePerfStat, OsdStat,
    PerfCounterType, PerfMetricQuery, PgStat, StoreStatfs, Text,
};
use wire::{Encode as _, Features};

/// Wait before the next attempt to connect (`mgr_connect_retry_interval`).
const RETRY: Duration = Duration::from_secs(1);
/// Health metric: number of slow operations.
const SLOW_OPS: u8 = 0;
/// Health metric: PGs that wait for their creation.
const PENDING_CREATING_PGS: u8 = 1;
/// Health metric of our own, only with slow operations: the cause for which they wait ([`base::ledger::Cause`]), and above
/// it the number plus one of the OSD they wait for.
const SLOW_CAUSE: u8 = 0xb0;

/// State of the connection to the active manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No manager is active, or none is wanted.
    Idle,
    /// A connection is to be opened at this time.
    Retry(Mono),
    Connecting,
    Open,
}

/// Action for the host.
#[derive(Debug)]
pub enum Output {
    /// Connect, then call [`MgrReporter::handle_open`] or [`MgrReporter::handle_closed`].
    Connect(AddrVec),
    /// Close the connection.
    Close,
    /// Send the first message of a session.
    Open(Box<MMgrOpen>),
    /// Change the queries that every reactor counts.
    Queries(Arc<Queries>),
    /// Collect statistics of all reactors, for all PGs or those that changed, then call
    /// [`MgrReporter::report`].
    Collect {
        /// True if this manager has no report yet, so that all PGs are needed.
        all: bool,
    },
}

/// Reports of an OSD to the active manager; see the module.
#[derive(Debug)]
pub struct MgrReporter {
    whoami: OsdId,
    state: State,
    addrs: AddrVec,
    gid: u64,
    period: Duration,
    next_report: Option<Mono>,
    /// True if nothing was reported in this session.
    first: bool,
    seq: u32,
    /// Lowest priority of the counters that the manager wants.
    threshold: u32,
    /// Paths of the counters that this session has declared.
    declared: BTreeSet<String>,
    queries: Arc<Queries>,
    /// Options of this OSD, an encoded [`DaemonConfig`].
    options: Bytes,
    /// True if this session has reported `options`.
    has_options: bool,
    /// True if the manager has no list of options with their defaults: Ceph's.
    needs_defaults: bool,
    out: Vec<Output>,
}

/// All options with their defaults.
fn defaults() -> Bytes {
    let all = option_table::all().map(|o| (o.name.to_owned(), Text(o.default_for(true).to_owned())));
    all.collect::<BTreeMap<String, Text>>().to_bytes(Features::PACIFIC)
}

impl MgrReporter {
    /// Reporter of OSD `whoami`.
    #[must_use]
    pub fn new(whoami: OsdId) -> Self {
        Self {
            whoami,
            state: State::Idle,
            addrs: AddrVec::default(),
            gid: 0,
            period: Duration::ZERO,
            next_report: None,
            first: true,
            seq: 0,
            threshold: 0,
            declared: BTreeSet::new(),
            queries: Arc::default(),
            options: Bytes::new(),
            has_options: false,
            needs_defaults: false,
            out: Vec::new(),
        }
    }

    /// Takes the options in force, by name and Ceph's number of their source; the next report has them if they changed.
    pub fn set_options(&mut self, values: BTreeMap<String, BTreeMap<i32, String>>) {
        let texts = |by: BTreeMap<i32, String>| by.into_iter().map(|(source, v)| (source, Text(v))).collect();
        let values = values.into_iter().map(|(name, by)| (name, texts(by))).collect();
        let options = DaemonConfig { values, ..DaemonConfig::default() }.to_bytes(Features::PACIFIC);
        if options != self.options {
            self.options = options;
            self.has_options = false;
        }
    }

    /// Takes the pending actions.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// Handles a new manager map.
    pub fn handle_map(&mut self, m: &MgrMap, now: Now) {
        let (addrs, gid) = if m.available { (m.active_addrs.clone(), m.active_gid) } else { (AddrVec::default(), 0) };
        if addrs == self.addrs && gid == self.gid {
            return;
        }
        if matches!(self.state, State::Connecting | State::Open) {
            self.out.push(Output::Close);
        }
        self.next_report = None;
        self.addrs = addrs;
        self.gid = gid;
        // The built-in manager knows all options, and names no modules in the map.
        self.needs_defaults = !m.available_modules.is_empty();
        self.state = if self.addrs.msgr2().is_some() { State::Retry(now.mono) } else { State::Idle };
        self.tick(now);
    }

    /// Handles the opened connection.
    pub fn handle_open(&mut self) {
        self.first = true;
        self.declared.clear();
        self.state = State::Open;
        self.has_options = true;
        self.out.push(Output::Open(Box::new(MMgrOpen {
            daemon_name: self.whoami.0.to_string(),
            config_bl: self.options.clone(),
            config_defaults_bl: if self.needs_defaults { defaults() } else { Bytes::new() },
            ..MMgrOpen::default()
        })));
    }

    /// Handles the lost connection.
    pub fn handle_closed(&mut self, now: Now) {
        self.ask(Queries::default());
        self.next_report = None;
        if self.state != State::Idle {
            self.state = State::Retry(now.mono + RETRY);
        }
    }

    /// Applies the manager's report interval.
    pub fn handle_configure(&mut self, m: &MMgrConfigure, now: Now) {
        self.period = Duration::from_secs(m.stats_period.into());
        self.threshold = m.stats_threshold;
        self.next_report = (m.stats_period > 0).then_some(now.mono);
        self.ask(match &m.metric_config {
            Some(MetricConfig::Osd(q)) if m.osd_perf_metric_queries.is_empty() => Queries::new(q),
            _ => Queries::new(&m.osd_perf_metric_queries),
        });
        self.tick(now);
    }

    fn ask(&mut self, queries: Queries) {
        if queries.is_empty() && self.queries.is_empty() {
            return;
        }
        self.queries = Arc::new(queries);
        self.out.push(Output::Queries(Arc::clone(&self.queries)));
    }

    /// Time of the next [`MgrReporter::tick`] with work to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        match self.state {
            State::Retry(at) => Some(at),
            State::Open => self.next_report,
            _ => None,
        }
    }

    /// Handles elapsed time.
    pub fn tick(&mut self, now: Now) {
        match self.state {
            State::Retry(at) if now.mono >= at => {
                self.state = State::Connecting;
                self.out.push(Output::Connect(self.addrs.clone()));
            }
            State::Open if self.next_report.is_some_and(|at| now.mono >= at) => {
                self.next_report = Some(now.mono + self.period);
                self.out.push(Output::Collect { all: std::mem::take(&mut self.first) });
            }
            _ => {}
        }
    }

    /// Makes a report due. Returns its number as [`OsdStat`] has it, also while no manager is connected.
    pub fn flush(&mut self, up_from: Epoch, now: Now) -> u64 {
        if self.state == State::Open && self.next_report.is_some() {
            self.next_report = Some(now.mono);
            self.tick(now);
        }
        number(up_from, self.seq.wrapping_add(1))
    }

    /// Declarations and values of the counters that the manager wants. Values come in the order of their paths.
    fn counters(&mut self, sections: &[Section]) -> Counters {
        let mut wanted: BTreeMap<String, (&'static Counter, Value)> = BTreeMap::new();
        for s in sections {
            let all = s.iter().filter(|(c, _)| u32::from(c.priority) >= self.threshold);
            wanted.extend(all.map(|(c, v)| (format!("{}.{}", s.name, c.name), (c, v))));
        }
        let new = wanted.iter().filter(|(path, _)| !self.declared.contains(*path));
        let declare = new.map(|(path, (c, _))| PerfCounterType {
            path: path.clone(),
            description: c.help.to_owned(),
            nick: c.nick.to_owned(),
            kind: c.kind.bits(),
            priority: c.priority,
            unit: u8::from(!c.bytes),
        });
        let declare = declare.collect();
        let undeclare = self.declared.iter().filter(|path| !wanted.contains_key(*path)).cloned().collect();
        let packed = PackedCounters::from_values(
            wanted.values().map(|(c, v)| (c.kind.bits(), CounterValue { value: v.sum, avgcount: v.n, avgcount2: v.n })),
        );
        self.declared = wanted.into_keys().collect();
        Counters { declare, undeclare, packed }
    }

    /// Makes the two messages of one report.
    #[must_use]
    pub fn report(&mut self, s: Stats, fsid: Uuid, epoch: Epoch, up_from: Epoch) -> (MMgrReport, MPgStats) {
        self.seq = self.seq.wrapping_add(1);
        let metric = |kind, value| DaemonHealthMetric { kind, value };
        let mut metrics = vec![
            metric(SLOW_OPS, u64::from(s.slow_ops) | u64::from(s.oldest_slow_s) << 32),
            metric(PENDING_CREATING_PGS, s.pending_creating.into()),
        ];
        metrics.extend(s.slow_by.map(|by| metric(SLOW_CAUSE, by.to_metric())));
        let counters = self.counters(&s.counters);
        let report = MMgrReport {
            daemon_name: self.whoami.0.to_string(),
            declare_types: counters.declare,
            packed: counters.packed.to_bytes(Features::PACIFIC),
            undeclare_types: counters.undeclare,
            daemon_health_metrics: metrics,
            config_bl: if std::mem::replace(&mut self.has_options, true) { Bytes::new() } else { self.options.clone() },
            metric_report: Some(MetricReport::Osd(self.queries.report(s.perf))),
            ..MMgrReport::default()
        };
        let kb = |b: i64| b >> 10;
        let f = s.statfs;
        let used = f.total - f.available;
        let stat = OsdStat {
            kb: kb(f.total),
            kb_used: kb(used),
            kb_avail: kb(f.available),
            kb_used_data: kb(f.allocated),
            kb_used_omap: kb(f.omap_allocated),
            kb_used_meta: kb(f.internal_metadata),
            snap_trim_queue_len: s.snap_trim_queue_len,
            num_snap_trimming: s.num_snap_trimming,
            hb_peers: s.hb_peers,
            hb_pingtime: s.hb_pingtime,
            up_from,
            seq: number(up_from, self.seq),
            num_pgs: s.num_pgs,
            statfs: f,
            // What a store has taken is readable at once, so what takes time is that it becomes durable.
            os_perf_stat: ObjectstorePerfStat {
                commit_latency_ns: s.commits.mean_ns(),
                apply_latency_ns: s.commits.mean_ns(),
            },
            os_alerts: BTreeMap::from([(self.whoami, BTreeMap::new())]),
            num_osds: 1,
            num_per_pool_osds: 1,
            num_per_pool_omap_osds: 1,
            ..OsdStat::default()
        };
        let pgs = MPgStats { fsid, osd_stat: stat, pg_stat: s.pgs, epoch, pool_stat: s.pools, ..MPgStats::default() };
        (report, pgs)
    }
}

/// Number of a report: later ones of an OSD have greater numbers, over its restarts too.
fn number(up_from: Epoch, seq: u32) -> u64 {
    u64::from(up_from.0) << 32 | u64::from(seq)
}

/// A report's part about counters.
struct Counters {
    declare: Vec<PerfCounterType>,
    undeclare: Vec<String>,
    packed: PackedCounters,
}

/// A cause for which slow operations wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlowBy {
    /// Summed age of the operations.
    pub age: Duration,
    /// The cause.
    pub cause: Cause,
    /// The OSD they wait for, if it is another one.
    pub behind: Option<OsdId>,
}

impl SlowBy {
    /// The cause with the greatest summed age.
    #[must_use]
    pub fn most(all: BTreeMap<(Cause, Option<OsdId>), Duration>) -> Option<Self> {
        all.into_iter().map(|((cause, behind), age)| Self { age, cause, behind }).max()
    }

    /// The value of the metric: the cause's number, and above it the OSD's number plus one.
    #[must_use]
    pub fn to_metric(self) -> u64 {
        let osd = self.behind.map_or(0, |o| u64::try_from(o.0).map_or(0, |o| o + 1));
        u64::from(self.cause as u8) | osd << 8
    }
}

/// Statistics of the reactors, summed up.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// PGs of which this OSD is primary.
    pub pgs: BTreeMap<PgId, PgStat>,
    /// Space by pool.
    pub pools: BTreeMap<PoolId, StoreStatfs>,
    /// Space of the device.
    pub statfs: StoreStatfs,
    /// Number of PGs on this OSD.
    pub num_pgs: u32,
    /// Watched OSDs.
    pub hb_peers: Vec<OsdId>,
    /// Ping round-trip times, by peer.
    pub hb_pingtime: BTreeMap<OsdId, HbPingTime>,
    /// Snapshots waiting to be trimmed.
    pub snap_trim_queue_len: i32,
    /// Number of PGs that trim now.
    pub num_snap_trimming: i32,
    /// Operations in flight for longer than the complaint time.
    pub slow_ops: u32,
    /// Age of the oldest slow operation in seconds.
    pub oldest_slow_s: u32,
    /// The cause for which the slow operations have waited most.
    pub slow_by: Option<SlowBy>,
    /// PGs that wait for their creation.
    pub pending_creating: u32,
    /// Latency of the store's commits since the last report.
    pub commits: Latency,
    /// Counters by section.
    pub counters: Vec<Section>,
    /// Answers to performance queries.
    pub perf: Vec<(PerfMetricQuery, Counts)>,
}

impl Stats {
    /// Adds another reactor's statistics.
    pub fn add(&mut self, o: Self) {
        self.pgs.extend(o.pgs);
        for (p, s) in o.pools {
            self.pools.entry(p).or_default().add(&s);
        }
        self.num_pgs += o.num_pgs;
        self.snap_trim_queue_len += o.snap_trim_queue_len;
        self.num_snap_trimming += o.num_snap_trimming;
        self.slow_ops += o.slow_ops;
        self.oldest_slow_s = self.oldest_slow_s.max(o.oldest_slow_s);
        self.slow_by = self.slow_by.max(o.slow_by);
        self.pending_creating += o.pending_creating;
        self.statfs.add(&o.statfs);
        self.hb_peers.extend(o.hb_peers);
        self.commits.add(o.commits);
        counter::merge(&mut self.counters, o.counters);
        queries::merge(&mut self.perf, o.perf);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Decode as _;
    use wire::types::{PerfMetricSubKey, PerfQueries, PerformanceCounter, VarVec, perf_counter, perf_key};

    fn query() -> PerfQueries {
        // Write operations, by pool.
        let pool = PerfMetricSubKey { kind: perf_key::POOL_ID, regex: "^(2)$".to_owned() };
        let writes = PerformanceCounter { kind: perf_counter::WRITE_OPS };
        vec![(
            PerfMetricQuery { key_descriptor: VarVec(vec![pool]), performance_counters: VarVec(vec![writes]) },
            vec![],
        )]
    }

    /// For each change of the queries that the host is told, true if there are queries.
    fn told(m: &mut MgrReporter) -> Vec<bool> {
        let queries = |o: Output| if let Output::Queries(q) = o { Some(!q.is_empty()) } else { None };
        m.take_outputs().into_iter().filter_map(queries).collect()
    }

    #[test]
    fn options_are_reported_when_a_session_begins_and_when_they_change() {
        let values = |v: &str| BTreeMap::from([("debug_osd".to_owned(), BTreeMap::from([(5, v.to_owned())]))]);
        let text = |bytes: &Bytes| DaemonConfig::from_bytes(bytes).unwrap().values["debug_osd"][&5].0.clone();
        let mut m = MgrReporter::new(OsdId(0));
        let opened = |m: &mut MgrReporter, modules: &[&str]| {
            let available_modules =
                modules.iter().map(|n| wire::types::ModuleInfo { name: (*n).into(), ..Default::default() }).collect();
            let gid = modules.len() as u64 + 1;
            let addrs = AddrVec::from(base::EntityAddr::msgr2(([127, 0, 0, 1], 6800).into(), 1));
            let map = MgrMap {
                available: true,
                active_gid: gid,
                active_addrs: addrs,
                available_modules,
                ..MgrMap::default()
            };
            m.handle_map(&map, Now::default());
            m.handle_open();
            let open = |o| if let Output::Open(x) = o { Some(*x) } else { None };
            m.take_outputs().into_iter().find_map(open).unwrap()
        };
        let report = |m: &mut MgrReporter| m.report(Stats::default(), Uuid::default(), Epoch(1), Epoch(1)).0.config_bl;
        m.set_options(values("1/5"));
        let first = opened(&mut m, &[]);
        assert_eq!(text(&first.config_bl), "1/5");
        assert!(first.config_defaults_bl.is_empty() && report(&mut m).is_empty());
        m.set_options(values("1/5"));
        assert!(report(&mut m).is_empty(), "unchanged");
        m.set_options(values("5/5"));
        assert_eq!(text(&report(&mut m)), "5/5");
        assert!(report(&mut m).is_empty(), "once");
        // A manager of Ceph gets the defaults, too.
        let second = opened(&mut m, &["balancer"]);
        assert_eq!(text(&second.config_bl), "5/5");
        let all = BTreeMap::<String, Text>::from_bytes(&second.config_defaults_bl).unwrap();
        assert_eq!(all["osd_max_backfills"].0, "1");
    }

    #[test]
    fn counters_are_declared_once_per_session_and_come_in_the_order_of_paths() {
        const TABLE: &[Counter] = &[
            counter::count("op", "operations").nick("ops").at(counter::CRITICAL),
            counter::gauge("rare", "shown on request"),
            counter::time("op_latency", "latency").at(counter::USEFUL),
            counter::gauge("bytes", "space").at(counter::USEFUL).bytes(),
        ];
        let stats = |op: u64| {
            let mut s = Section::new("osd", TABLE);
            s.put("op", op).put("rare", 7_u64).put("op_latency", (90, op)).put("bytes", 1_u64);
            Stats { counters: vec![s], ..Stats::default() }
        };
        let report = |m: &mut MgrReporter, op| m.report(stats(op), Uuid::default(), Epoch(1), Epoch(1)).0;
        let paths = |r: &MMgrReport| r.declare_types.iter().map(|t| t.path.clone()).collect::<Vec<_>>();
        let mut m = MgrReporter::new(OsdId(0));
        let asks = |stats_threshold| MMgrConfigure { stats_period: 5, stats_threshold, ..MMgrConfigure::default() };
        m.handle_open();
        m.handle_configure(&asks(5), Now::default());
        let first = report(&mut m, 3);
        assert_eq!(paths(&first), ["osd.bytes", "osd.op", "osd.op_latency"]);
        assert_eq!(first.declare_types.iter().map(|t| (t.kind, t.unit)).collect::<Vec<_>>(), [(2, 0), (10, 1), (5, 1)]);
        let second = report(&mut m, 4);
        assert!(second.declare_types.is_empty() && second.undeclare_types.is_empty());
        let values = PackedCounters::from_bytes(&second.packed).unwrap().values([2, 10, 5]).unwrap();
        assert_eq!(values.iter().map(|v| (v.value, v.avgcount)).collect::<Vec<_>>(), [(1, 0), (4, 0), (90, 4)]);
        m.handle_configure(&asks(10), Now::default());
        let fewer = report(&mut m, 5);
        assert_eq!(fewer.undeclare_types, ["osd.bytes", "osd.op_latency"]);
        m.handle_open();
        assert_eq!(paths(&report(&mut m, 5)), ["osd.op"], "another session");
    }

    #[test]
    fn a_flush_makes_a_report_due_and_names_its_number() {
        let mut m = MgrReporter::new(OsdId(0));
        let wanted = |m: &mut MgrReporter| m.take_outputs().iter().any(|o| matches!(o, Output::Collect { .. }));
        let up_from = Epoch(7);
        assert_eq!(m.flush(up_from, Now::default()), 7 << 32 | 1);
        assert!(!wanted(&mut m), "no manager");
        m.handle_open();
        m.handle_configure(&MMgrConfigure { stats_period: 5, ..MMgrConfigure::default() }, Now::default());
        assert!(wanted(&mut m));
        let seq = m.flush(up_from, Now::default());
        assert!(wanted(&mut m), "before its time");
        let (_, pgs) = m.report(Stats::default(), Uuid::default(), Epoch(9), up_from);
        assert_eq!(pgs.osd_stat.seq, seq);
    }

    #[test]
    fn queries_come_in_the_old_field_or_in_the_new_one() {
        let old = MMgrConfigure { osd_perf_metric_queries: query(), ..MMgrConfigure::default() };
        let new = MMgrConfigure { metric_config: Some(MetricConfig::Osd(query())), ..MMgrConfigure::default() };
        let other = MMgrConfigure { metric_config: Some(MetricConfig::Mds(query())), ..MMgrConfigure::default() };
        for (configure, asks) in [(&old, true), (&new, true), (&other, false)] {
            let mut m = MgrReporter::new(OsdId(0));
            m.handle_configure(configure, Now::default());
            assert_eq!(told(&mut m), if asks { vec![true] } else { vec![] }, "{configure:?}");
            m.handle_configure(&MMgrConfigure::default(), Now::default());
            assert_eq!(told(&mut m), if asks { vec![false] } else { vec![] }, "it is over when the manager says so");
        }
    }
}
