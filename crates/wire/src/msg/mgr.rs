//! Messages of daemons, monitors and clients with the manager.

use crate::codec::{Decode, Encode, Reader, Result, Writer};
use crate::macros::message;
use crate::types::{
    DaemonConfig, DaemonHealthMetric, HealthCheckMap, MetricConfig, MetricReport, MgrMap, ModuleInfo, MonCommand,
    OsdStat, PaxosHeader, PerfCounterType, PerfQueries, PerfReports, PgMapDigest, PgStat, ProgressEvent, ServiceMap,
    StoreStatfs, StrMap, Text,
};
use base::id::Uuid;
use base::{AddrVec, Epoch, PgId, PoolId, SpgId, Utime};
use bytes::Bytes;
use std::collections::BTreeMap;

message! {
    /// `MPGStats`: an OSD's statistics and those of the PGs that it leads.
    MPgStats = 87, 2, 1 {
        paxos: PaxosHeader,
        fsid: Uuid,
        osd_stat: OsdStat,
        pg_stat: BTreeMap<PgId, PgStat>,
        epoch: Epoch,
        /// Unused, 0.
        had_map_for: Utime,
        pool_stat: BTreeMap<PoolId, StoreStatfs> => 2,
    }

    /// `MCommand`: a command to an OSD, MDS or monitor from `ceph tell`; the input is in the data segment.
    MCommand = 97, 1, 1 + data {
        fsid: Uuid,
        cmd: Vec<Text>,
    }

    /// `MCommandReply`; the output is in the data segment.
    MCommandReply = 98, 1, 1 + data {
        r: i32,
        rs: Text,
    }

    /// `MOSDScrub2`: the manager requests scrubs.
    MOsdScrub2 = 121, 1, 1 {
        fsid: Uuid,
        epoch: Epoch,
        scrub_pgs: Vec<SpgId>,
        repair: bool,
        deep: bool,
    }

    /// `MOSDForceRecovery`: an operator forces recovery or backfill of PGs, or cancels that.
    MOsdForceRecovery = 151, 2, 2 {
        fsid: Uuid,
        forced_pgs: Vec<SpgId>,
        /// Bits: 1 recovery, 2 backfill, 4 cancels the request.
        options: u8,
    }

    /// `MMgrOpen`: a daemon registers with the manager.
    MMgrOpen = 0x700, 3, 1 {
        daemon_name: String,
        /// Empty for osd, mds and mgr.
        service_name: String => 2,
        /// Metadata and status of a service daemon.
        service_daemon: Option<(StrMap, StrMap)> => 2,
        /// An encoded [`DaemonConfig`], or empty.
        config_bl: Bytes => 3,
        /// Encoded defaults by name, or empty.
        config_defaults_bl: Bytes => 3,
    }

    /// `MMgrConfigure`: configuration of a daemon's reports.
    MMgrConfigure = 0x701, 4, 1 {
        /// Report period in seconds.
        stats_period: u32,
        /// Lowest priority of the counters to report.
        stats_threshold: u32 => 2,
        osd_perf_metric_queries: PerfQueries => 3,
        metric_config: Option<MetricConfig> => 4,
    }

    /// `MMgrReport`: a daemon's periodic report of counters, status and health to the manager.
    MMgrReport = 0x702, 9, 1 {
        daemon_name: String,
        /// Counters that are new on this connection.
        declare_types: Vec<PerfCounterType>,
        /// Values of all declared counters in path order; see [`PackedCounters`].
        packed: Bytes,
        undeclare_types: Vec<String>,
        service_name: String => 3,
        daemon_status: Option<StrMap> => 4,
        daemon_health_metrics: Vec<DaemonHealthMetric> => 5,
        /// An encoded [`DaemonConfig`] if it changed.
        config_bl: Bytes => 6,
        osd_perf_metric_reports: PerfReports => 7,
        task_status: Option<StrMap> => 8,
        metric_report: Option<MetricReport> => 9,
    }

    /// `MMgrBeacon`: a manager reports to the monitor that it is alive.
    MMgrBeacon = 0x703, 11, 8 {
        paxos: PaxosHeader,
        server_addrs: AddrVec,
        gid: u64,
        available: bool,
        name: String,
        fsid: Uuid,
        /// Names of modules, sorted.
        available_modules: Vec<String>,
        /// Sent only while the manager is available and the map does not show that yet.
        command_descs: Vec<MonCommand>,
        metadata: StrMap,
        services: StrMap,
        modules: Vec<ModuleInfo>,
        mgr_features: u64,
        clients: Vec<AddrVec> => 10,
        client_names: Vec<String> => 11,
    }

    /// `MMgrMap`: the manager map, for subscribers to `mgrmap`.
    MMgrMap = 0x704, 1, 1 {
        map: MgrMap,
    }

    /// `MMgrDigest`: cluster status in JSON from the monitor for the manager's modules.
    MMgrDigest = 0x705, 1, 1 {
        mon_status_json: Bytes,
        health_json: Bytes,
    }

    /// `MMonMgrReport`: the manager's report to the monitor; an encoded [`PgMapDigest`] is in the data segment.
    MMonMgrReport = 0x706, 3, 1 + data {
        paxos: PaxosHeader,
        health_checks: HealthCheckMap,
        /// An encoded [`ServiceMap`] if it changed.
        service_map_bl: Bytes,
        progress_events: BTreeMap<String, ProgressEvent> => 2,
        gid: u64 => 3,
    }

    /// `MServiceMap`: the service map, for subscribers to `servicemap`.
    MServiceMap = 0x707, 1, 1 {
        service_map: ServiceMap,
    }

    /// `MMgrClose`: a service daemon deregisters; the manager replies with the same message.
    MMgrClose = 0x708, 1, 1 {
        daemon_name: String,
        service_name: String,
    }

    /// `MMgrCommand`: a client's command; the input is in the data segment.
    MMgrCommand = 0x709, 1, 1 + data {
        fsid: Uuid,
        cmd: Vec<Text>,
    }

    /// `MMgrCommandReply`; the output is in the data segment.
    MMgrCommandReply = 0x70a, 1, 1 + data {
        r: i32,
        rs: Text,
    }
}

impl MMonMgrReport {
    /// Decodes the digest in the data segment.
    pub fn digest(&self) -> Result<PgMapDigest> {
        PgMapDigest::from_bytes(&self.data)
    }

    /// Decodes the service map, if it changed.
    pub fn service_map(&self) -> Result<Option<ServiceMap>> {
        if self.service_map_bl.is_empty() { Ok(None) } else { ServiceMap::from_bytes(&self.service_map_bl).map(Some) }
    }
}

impl MMgrOpen {
    /// Decodes the daemon's configuration, if it sent one.
    pub fn config(&self) -> Result<Option<DaemonConfig>> {
        if self.config_bl.is_empty() { Ok(None) } else { DaemonConfig::from_bytes(&self.config_bl).map(Some) }
    }
}

/// Encoded counter values of [`MMgrReport::packed`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedCounters(pub Bytes);

/// Value of one counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterValue {
    /// The value; for an average, the sum.
    pub value: u64,
    /// Number of samples of an average.
    pub avgcount: u64,
    /// Number of samples, read again after the sum; equal to `avgcount` if sum and count are consistent.
    pub avgcount2: u64,
}

/// Counter type bit: an average, encoded as three numbers.
pub const COUNTER_LONGRUNAVG: u8 = 4;

impl PackedCounters {
    /// Encodes values, each with the `kind` of its counter, in path order.
    #[must_use]
    pub fn from_values(values: impl IntoIterator<Item = (u8, CounterValue)>) -> Self {
        let mut w = Writer::default();
        for (kind, v) in values {
            w.u64(v.value);
            if kind & COUNTER_LONGRUNAVG != 0 {
                w.u64(v.avgcount);
                w.u64(v.avgcount2);
            }
        }
        Self(w.into_bytes())
    }

    /// Decodes the values, given the kinds of all declared counters in path order.
    pub fn values(&self, kinds: impl IntoIterator<Item = u8>) -> Result<Vec<CounterValue>> {
        let mut r = Reader::shared(&self.0);
        kinds
            .into_iter()
            .map(|kind| {
                let value = r.u64()?;
                Ok(if kind & COUNTER_LONGRUNAVG != 0 {
                    CounterValue { value, avgcount: r.u64()?, avgcount2: r.u64()? }
                } else {
                    CounterValue { value, ..CounterValue::default() }
                })
            })
            .collect()
    }
}

impl Encode for PackedCounters {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| w.raw(&self.0));
    }
}
impl Decode for PackedCounters {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("packed counters", 1, |r, _| Ok(Self(r.rest())))
    }
}
