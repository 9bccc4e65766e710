//! Structures about daemons: superblock, cluster log, health, services, manager modules.

use crate::macros::{plain, versioned};
use crate::types::{CompatSet, StrMap, Text};
use base::id::Uuid;
use base::{AddrVec, AuthName, EntityAddr, EntityName, Epoch, OsdId, PoolId, Utime};
use std::collections::BTreeMap;

versioned! {
    /// `OSDSuperblock`: identity and map range that an OSD sends at boot.
    OsdSuperblock = "OSDSuperblock", 10, 5 {
        cluster_fsid: Uuid,
        whoami: OsdId,
        current_epoch: Epoch,
        oldest_map: Epoch,
        newest_map: Epoch,
        weight: f64,
        compat_features: CompatSet,
        clean_thru: Epoch,
        mounted: Epoch,
        osd_fsid: Uuid,
        last_epoch_marked_full: Epoch,
        pool_last_epoch_marked_full: BTreeMap<PoolId, Epoch>,
        purged_snaps_last: Epoch => 9,
        last_purged_snaps_scrub: Utime => 9,
        cluster_osdmap_trim_lower_bound: Epoch => 10,
    }

    /// `LogEntry`: an entry of the cluster log.
    LogEntry = "LogEntry", 5, 5 {
        name: AuthName,
        rank: EntityName,
        addrs: AddrVec,
        stamp: Utime,
        seq: u64,
        /// Priority: 0 debug, 1 info, 2 security, 3 warning, 4 error.
        prio: u16,
        msg: Text,
        channel: String,
    }

    /// `health_check_t`: a health check.
    HealthCheck = "health_check_t", 2, 1 {
        /// Severity: 0 error, 1 warning, 2 ok.
        severity: u8,
        summary: Text,
        detail: Vec<Text>,
        count: i64 => 2,
    }

    /// `health_check_map_t`: health checks by code.
    HealthCheckMap = "health_check_map_t", 1, 1 {
        checks: BTreeMap<String, HealthCheck>,
    }

    /// `ProgressEvent`: a progress bar in `ceph -s`.
    ProgressEvent = "ProgressEvent", 2, 1 {
        message: Text,
        progress: f32,
        add_to_ceph_s: bool => 2,
    }

    /// `ServiceMap::Daemon`: one daemon of a service.
    ServiceDaemon = "ServiceMap::Daemon", 2, 1 {
        gid: u64,
        addr: EntityAddr,
        start_epoch: Epoch,
        start_stamp: Utime,
        metadata: StrMap,
        task_status: StrMap => 2,
    }

    /// `ServiceMap::Service`: daemons of a service (rgw, rbd-mirror, ...).
    Service = "ServiceMap::Service", 1, 1 {
        daemons: BTreeMap<String, ServiceDaemon>,
        summary: String,
    }

    /// `ServiceMap`: services by name (`rgw`, `rbd-mirror`, …), each with its daemons.
    ServiceMap = "ServiceMap", 1, 1 {
        epoch: Epoch,
        modified: Utime,
        services: BTreeMap<String, Service>,
    }

    /// `MonCommand`: descriptor of a command that a manager module offers.
    MonCommand = "MonCommand", 1, 1 {
        cmdstring: String,
        helpstring: String,
        module: String,
        req_perms: String,
        /// Obsolete, empty.
        availability: String,
        flags: u64,
    }

    /// `MgrMap::ModuleOption`: an option of a manager module.
    ModuleOption = "MgrMap::ModuleOption", 1, 1 {
        name: String,
        kind: u8,
        level: u8,
        flags: u32,
        default_value: String,
        min: String,
        max: String,
        enum_allowed: Vec<String>,
        desc: String,
        long_desc: String,
        tags: Vec<String>,
        see_also: Vec<String>,
    }

    /// `MgrMap::ModuleInfo`: a manager module that can be enabled.
    ModuleInfo = "MgrMap::ModuleInfo", 2, 1 {
        name: String,
        can_run: bool,
        error_string: String,
        module_options: BTreeMap<String, ModuleOption> => 2,
    }

    /// `MgrMap::StandbyInfo`: a manager that would take over from the active one.
    MgrStandbyInfo = "MgrMap::StandbyInfo", 4, 1 {
        gid: u64,
        name: String,
        old_available_modules: Vec<String> => 2,
        available_modules: Vec<ModuleInfo> => 3,
        mgr_features: u64 => 4,
    }

    /// `MgrMap`: the active manager, standby managers and modules. Without an active manager the gid is 0, the name
    /// empty, and `available` false.
    MgrMap = "MgrMap", 12, 6 {
        epoch: Epoch,
        active_addrs: AddrVec,
        active_gid: u64,
        available: bool,
        active_name: String,
        standbys: BTreeMap<u64, MgrStandbyInfo>,
        modules: Vec<String>,
        services: StrMap,
        available_modules: Vec<ModuleInfo>,
        active_change: Utime => 7,
        always_on_modules: BTreeMap<u32, Vec<String>> => 8,
        active_mgr_features: u64 => 9,
        last_failure_osd_epoch: Epoch => 10,
        clients: Vec<AddrVec> => 11,
        client_names: Vec<String> => 12,
    }

    /// `PerfCounterType`: a counter declared to the manager.
    PerfCounterType = "PerfCounterType", 3, 1 {
        path: String,
        description: String,
        nick: String,
        /// Type bits: 1 time, 2 u64, 4 average, 8 counter, 16 histogram.
        kind: u8,
        priority: u8 => 2,
        /// Unit: 0 bytes, 1 none.
        unit: u8 => 3,
    }

    /// `DaemonHealthMetric`: a figure from which the manager makes a health check.
    DaemonHealthMetric = "DaemonHealthMetric", 1, 1 {
        /// Type: 0 SLOW_OPS, 1 PENDING_CREATING_PGS.
        kind: u8,
        /// SLOW_OPS: count in the low half, age of the oldest in seconds in the high half.
        value: u64,
    }
}

plain! {
    /// Configuration that a daemon reports to the manager: options by name and level, and the monitor's options that it
    /// ignored.
    DaemonConfig {
        values: BTreeMap<String, BTreeMap<i32, Text>>,
        ignored_mon_values: BTreeMap<String, Text>,
    }
}
