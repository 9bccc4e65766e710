//! The part of the manager role without I/O: receives daemons' reports and holds the resulting statistics.
//!
//! The process with the role manages sessions and permissions. All state here is volatile: reports fill it again within
//! one report period. While a separate manager is active, its digest replaces the reports.

use crate::balance::{Balancer, ReadScores};
use crate::files::Counted;
use crate::images::rates::{Queries, Reported};
use crate::rehearse::steps::Claim;
use crate::stats::counters::DaemonCounters;
use crate::stats::options::DaemonOptions;
use crate::stats::{DaemonHealth, PgStats};
use base::ledger::Cause;
use base::{EntityAddr, EntityKind, Epoch, Now, OsdId, Utime};
use cluster::OsdMap;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use wire::msg::{MMgrConfigure, MMgrOpen, MMgrReport, MMonMgrReport, MPgStats};
use wire::types::{MetricConfig, MetricReport, PerfMetricQuery, ServiceDaemon, ServiceMap, StrMap};

/// Most bytes of metadata and status of a service daemon.
const MAX_SERVICE_BYTES: usize = 64 << 10;
/// Most service daemons that are registered.
const MAX_SERVICE_DAEMONS: usize = 10_000;
/// Lowest priority of performance counters that daemons shall report.
const STATS_THRESHOLD: u32 = 5;
/// Types of daemon health metrics (`daemon_metric`).
const SLOW_OPS: u8 = 0;
const PENDING_CREATING_PGS: u8 = 1;
/// Metric of our own OSDs: the cause for which slow operations wait, and above it the number plus one of the OSD they wait for.
const SLOW_CAUSE: u8 = 0xb0;

/// A daemon of a service, such as a gateway.
#[derive(Clone, Copy, Debug)]
pub struct Daemon<'a> {
    /// Name of the service.
    pub service: &'a str,
    /// Name of the daemon.
    pub name: &'a str,
    /// Global id of its session.
    pub gid: u64,
}

/// Sender of a report.
#[derive(Clone, Copy, Debug)]
pub enum Reporter<'a> {
    /// An OSD.
    Osd(OsdId),
    /// An MDS, by name.
    Mds(&'a str),
    /// A daemon of a service.
    Service(Daemon<'a>),
}

impl Reporter<'_> {
    /// The name of its counters.
    fn name(&self) -> String {
        match self {
            Self::Osd(o) => o.to_string(),
            Self::Mds(n) => format!("mds.{n}"),
            Self::Service(d) => d.to_string(),
        }
    }
}

impl std::fmt::Display for Daemon<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.service, self.name)
    }
}

/// State of the manager role.
pub struct Manager {
    /// Statistics of PGs, pools and OSDs.
    pub stats: PgStats,
    /// Counters of daemons.
    counters: DaemonCounters,
    /// Options of daemons.
    options: DaemonOptions,
    /// Daemons of services: gateways, mirrors, ….
    pub services: ServiceMap,
    /// The balancer.
    balancer: Balancer,
    /// How evenly PGs are led under the map of an epoch.
    read_scores: Option<(Epoch, Arc<ReadScores>)>,
    /// The program that carries out a rehearsed change.
    rehearsal: Claim,
    /// Active image queries to OSDs.
    queries: Queries,
    /// Queries to MDS daemons about clients.
    mds_queries: Vec<PerfMetricQuery>,
    mds_counted: BTreeMap<String, Rc<Counted>>,
}

fn bytes_of(m: &StrMap) -> usize {
    m.iter().map(|(k, v)| k.len() + v.len()).sum()
}

impl Manager {
    /// Makes an empty state.
    #[must_use]
    pub fn new(now: Utime) -> Self {
        Self {
            stats: PgStats::default(),
            counters: DaemonCounters::default(),
            options: DaemonOptions::default(),
            services: ServiceMap { epoch: Epoch(1), modified: now, ..ServiceMap::default() },
            balancer: Balancer::default(),
            read_scores: None,
            rehearsal: Claim::default(),
            queries: Queries::default(),
            mds_queries: Vec::new(),
            mds_counted: BTreeMap::new(),
        }
    }

    /// Counters of daemons.
    #[must_use]
    pub fn counters(&self) -> &DaemonCounters {
        &self.counters
    }

    /// Options of daemons.
    #[must_use]
    pub fn options(&self) -> &DaemonOptions {
        &self.options
    }

    /// The balancer.
    #[must_use]
    pub fn balancer(&self) -> &Balancer {
        &self.balancer
    }

    /// The balancer, for its runs and for changes by commands.
    pub fn balancer_mut(&mut self) -> &mut Balancer {
        &mut self.balancer
    }

    /// How evenly PGs are led under the map of an epoch, if that is known.
    #[must_use]
    pub fn read_scores(&self, epoch: Epoch) -> Option<&Arc<ReadScores>> {
        self.read_scores.as_ref().filter(|(e, _)| *e == epoch).map(|(_, s)| s)
    }

    /// Keeps how evenly PGs are led under the map of an epoch, for further listings.
    pub fn keep_read_scores(&mut self, epoch: Epoch, scores: Arc<ReadScores>) {
        self.read_scores = Some((epoch, scores));
    }

    /// The program that carries out a rehearsed change.
    #[must_use]
    pub fn rehearsal(&self) -> &Claim {
        &self.rehearsal
    }

    /// The program that carries out a rehearsed change, to take or leave the claim.
    pub fn rehearsal_mut(&mut self) -> &mut Claim {
        &mut self.rehearsal
    }

    // Services

    /// Registers a service daemon; true if the service map changed.
    pub fn open_service(
        &mut self,
        d: Daemon<'_>,
        addr: EntityAddr,
        about: &StrMap,
        status: &StrMap,
        now: Utime,
    ) -> bool {
        let (service, name) = (d.service, d.name);
        if bytes_of(about) + bytes_of(status) > MAX_SERVICE_BYTES {
            tracing::warn!("mgr: {service} {name} has more than {MAX_SERVICE_BYTES} bytes of metadata: not registered");
            return false;
        }
        let map = &mut self.services;
        let same =
            |x: &ServiceDaemon| x.gid == d.gid && x.addr == addr && x.metadata == *about && x.task_status == *status;
        let known = map.services.get(service).and_then(|s| s.daemons.get(name));
        if known.is_some_and(same) {
            return false;
        }
        if known.is_none() && map.services.values().map(|s| s.daemons.len()).sum::<usize>() >= MAX_SERVICE_DAEMONS {
            return false;
        }
        map.epoch = map.epoch.next();
        map.modified = now;
        let entry = ServiceDaemon {
            gid: d.gid,
            addr,
            start_epoch: map.epoch,
            start_stamp: now,
            metadata: about.clone(),
            task_status: status.clone(),
        };
        map.services.entry(service.to_owned()).or_default().daemons.insert(name.to_owned(), entry);
        true
    }

    /// Removes a service daemon; true if the service map changed.
    pub fn close_service(&mut self, d: Daemon<'_>, now: Utime) -> bool {
        let map = &mut self.services;
        let Some(s) = map.services.get_mut(d.service) else { return false };
        if s.daemons.get(d.name).is_none_or(|x| x.gid != d.gid) {
            return false;
        }
        s.daemons.remove(d.name);
        self.counters.remove(&d.to_string());
        self.options.remove(&d.to_string());
        if s.daemons.is_empty() {
            map.services.remove(d.service);
        }
        map.epoch = map.epoch.next();
        map.modified = now;
        true
    }

    // Reports

    /// The configuration sent to a daemon of type `of`: what to report, and the period in seconds.
    #[must_use]
    pub fn configuration(&self, of: EntityKind, period: u32) -> MMgrConfigure {
        let mds = || MetricConfig::Mds(self.mds_queries.iter().map(|q| (q.clone(), Vec::new())).collect());
        MMgrConfigure {
            stats_period: period,
            stats_threshold: STATS_THRESHOLD,
            osd_perf_metric_queries: if of == EntityKind::OSD { self.queries.asked() } else { Vec::new() },
            metric_config: (of == EntityKind::MDS).then(mds),
        }
    }

    /// True for a daemon that is forgotten when it goes: others than registered daemons of a service would stay for ever.
    fn is_known(&self, from: Reporter<'_>) -> bool {
        let Reporter::Service(d) = from else { return true };
        let here = self.services.services.get(d.service).and_then(|s| s.daemons.get(d.name));
        here.is_some_and(|x| x.gid == d.gid)
    }

    /// Handles the beginning of a daemon's reports.
    pub fn open(&mut self, from: Reporter<'_>, m: &MMgrOpen) {
        if self.is_known(from) {
            self.take_options(&from.name(), &m.config_bl);
        }
    }

    fn take_options(&mut self, daemon: &str, encoded: &[u8]) {
        if encoded.is_empty() {
            return;
        }
        if let Err(e) = self.options.take(daemon, encoded) {
            tracing::warn!("mgr: options of {daemon} are not taken: {e}");
        }
    }

    /// Handles a daemon's report on connection `conn`.
    pub fn report(&mut self, from: Reporter<'_>, conn: u64, m: &MMgrReport, now: Now) {
        let daemon = from.name();
        let known = self.is_known(from);
        if known {
            self.take_options(&daemon, &m.config_bl);
        }
        if known && let Err(e) = self.counters.report(&daemon, conn, m, now.mono) {
            tracing::warn!("mgr: counters of {daemon} are not taken: {e}");
        }
        match from {
            Reporter::Osd(osd) => {
                self.stats.health.insert(osd, health(m));
                match &m.metric_report {
                    Some(MetricReport::Osd(r)) => self.queries.take_reports(r),
                    _ => self.queries.take_reports(&m.osd_perf_metric_reports),
                }
            }
            Reporter::Mds(name) => {
                // The first rank reports each time, others never.
                match &m.metric_report {
                    Some(MetricReport::Mds(r)) if !self.mds_queries.is_empty() => {
                        self.mds_counted.insert(name.to_owned(), Rc::new(Counted::of(r)));
                    }
                    _ => drop(self.mds_counted.remove(name)),
                }
            }
            Reporter::Service(d) => {
                let daemon = self.services.services.get_mut(d.service).and_then(|s| s.daemons.get_mut(d.name));
                if let (Some(daemon), Some(status)) = (daemon.filter(|x| x.gid == d.gid), &m.task_status)
                    && bytes_of(status) <= MAX_SERVICE_BYTES
                {
                    daemon.task_status.clone_from(status);
                }
            }
        }
    }

    /// Handles an OSD's PG statistics, against the newest map.
    pub fn pg_stats(&mut self, osd: OsdId, m: &MPgStats, map: &OsdMap, now: Now) {
        let pools = m.pool_stat.iter().map(|(p, s)| (*p, *s));
        self.stats.report(osd, &m.osd_stat, &m.pg_stat, pools, map, now);
    }

    // Image queries

    /// Adds a query; true if OSDs must be reconfigured.
    pub fn add_query(&mut self, q: PerfMetricQuery) -> bool {
        self.queries.add(q)
    }

    /// Removes a query; true if OSDs must be reconfigured.
    pub fn remove_query(&mut self, q: &PerfMetricQuery) -> bool {
        self.queries.remove(q)
    }

    /// Takes the reports collected for a query since the last call.
    pub fn take_reports(&mut self, q: &PerfMetricQuery) -> Reported {
        self.queries.take(q)
    }

    // Queries of MDS daemons

    /// Replaces the queries of MDS daemons.
    pub fn ask_mds(&mut self, queries: Vec<PerfMetricQuery>) {
        if queries.is_empty() {
            self.mds_counted.clear();
        }
        self.mds_queries = queries;
    }

    /// The newest report of a daemon.
    #[must_use]
    pub fn mds_counted(&self, daemon: &str) -> Option<Rc<Counted>> {
        self.mds_counted.get(daemon).cloned()
    }

    /// Forgets the counters and options of OSDs that do not exist.
    pub fn retain_osds(&mut self, map: &OsdMap) {
        let exists = |o: &str| o.parse().is_ok_and(|o| map.exists(OsdId(o)));
        self.counters.keep(|n| n.strip_prefix("osd.").is_none_or(exists));
        self.options.keep(|n| n.strip_prefix("osd.").is_none_or(exists));
    }

    /// Forgets MDS daemons for which `known` is false.
    pub fn retain_mds(&mut self, known: impl Fn(&str) -> bool) {
        self.counters.keep(|n| n.strip_prefix("mds.").is_none_or(&known));
        self.options.keep(|n| n.strip_prefix("mds.").is_none_or(&known));
        self.mds_counted.retain(|n, _| known(n));
    }

    // A separate manager

    /// Takes a separate manager's digest; true if the service map changed. Error: the digest or the service map cannot
    /// be decoded; in the second case the digest is already taken in.
    pub fn take_digest(&mut self, m: &MMonMgrReport, now: Now) -> Result<bool, DigestError> {
        self.stats.take_digest(m.digest().map_err(DigestError::Digest)?, now);
        let services = m.service_map().map_err(DigestError::Services)?;
        let changed = services.is_some();
        if let Some(map) = services {
            self.services = map;
        }
        Ok(changed)
    }
}

/// Part of a separate manager's report that cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    /// The PG map digest.
    #[error("malformed digest: {0}")]
    Digest(wire::DecodeError),
    /// The service map.
    #[error("malformed service map: {0}")]
    Services(wire::DecodeError),
}

fn health(m: &MMgrReport) -> DaemonHealth {
    let mut health = DaemonHealth::default();
    for metric in &m.daemon_health_metrics {
        match metric.kind {
            SLOW_OPS => {
                health.slow_ops = metric.value as u32;
                health.slow_oldest = (metric.value >> 32) as u32;
            }
            PENDING_CREATING_PGS => health.pending_creating = metric.value,
            SLOW_CAUSE => {
                let osd = i32::try_from(metric.value >> 8).unwrap_or(0);
                health.slow_cause = Cause::from_number(metric.value as u8);
                health.slow_behind = (osd > 0).then(|| OsdId(osd - 1));
            }
            _ => {}
        }
    }
    health
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_session_closes_a_service_and_metadata_is_bounded() {
        let mut m = Manager::new(Utime::ZERO);
        let d = |gid| Daemon { service: "rgw", name: "a", gid };
        let (addr, none) = (EntityAddr::default(), StrMap::new());
        let at = |sec| Utime { sec, nsec: 0 };
        assert!(m.open_service(d(1), addr, &none, &none, at(5)));
        assert_eq!((m.services.epoch, m.services.modified), (Epoch(2), at(5)));
        assert!(!m.open_service(d(1), addr, &none, &none, at(6)), "the same again");
        assert_eq!((m.services.epoch, m.services.modified), (Epoch(2), at(5)));
        assert!(!m.close_service(d(2), at(6)), "another session's");
        let long: StrMap = [("k".to_owned(), "v".repeat(MAX_SERVICE_BYTES))].into();
        assert!(!m.open_service(Daemon { name: "b", ..d(3) }, addr, &long, &none, at(6)));
        let report =
            MMgrReport { task_status: Some([("s".to_owned(), "busy".to_owned())].into()), ..MMgrReport::default() };
        m.report(Reporter::Service(d(2)), 1, &report, Now::default());
        m.report(Reporter::Service(Daemon { name: "z", ..d(1) }), 1, &report, Now::default());
        assert!(m.services.services["rgw"].daemons["a"].task_status.is_empty());
        m.report(Reporter::Service(d(1)), 1, &report, Now::default());
        assert_eq!(m.services.services["rgw"].daemons["a"].task_status["s"], "busy");
        assert!(m.close_service(d(1), at(7)) && m.services.services.is_empty());
    }
}
