//! Options of the monitor that a user may set, with Ceph's names and this program's defaults.

use cluster::option_table;
use cluster::settings::Settings;
use std::collections::BTreeMap;
use std::time::Duration;

/// Name of the limit of open descriptors in the metadata of daemons.
pub const OPEN_FILES: &str = "max_open_files";

/// Limits for alerts about late scrubs and about OSDs with many repairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScrubWarnings {
    /// Seconds of `osd_scrub_max_interval`.
    pub interval: f64,
    /// Share of the interval that a scrub may be late (`mon_warn_pg_not_scrubbed_ratio`); 0: no alert.
    pub ratio: f64,
    /// Seconds of `osd_deep_scrub_interval`.
    pub deep_interval: f64,
    /// Share of the deep interval that a deep scrub may be late (`mon_warn_pg_not_deep_scrubbed_ratio`).
    pub deep_ratio: f64,
    /// Repaired reads of an OSD above which an alert is raised (`mon_osd_warn_num_repaired`).
    pub repaired: u64,
}

impl Default for ScrubWarnings {
    fn default() -> Self {
        Self { interval: 604_800.0, ratio: 0.5, deep_interval: 604_800.0, deep_ratio: 0.75, repaired: 10 }
    }
}

/// Options for the supervision of MDS daemons.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MdsOptions {
    /// `mds_beacon_grace`: silence after which a daemon is replaced.
    pub beacon_grace: Duration,
    /// `mds_beacon_interval`: how often daemons send beacons.
    pub beacon_interval: Duration,
    /// `mon_mds_blocklist_interval`: time for which the addresses of a replaced daemon are blocklisted.
    pub blocklist: Duration,
}

impl Default for MdsOptions {
    fn default() -> Self {
        Self {
            beacon_grace: Duration::from_secs(15),
            beacon_interval: Duration::from_secs(4),
            blocklist: Duration::from_secs(86_400),
        }
    }
}

/// Options of pools: defaults of new ones, and limits.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// `osd_pool_default_size`; `belemnite up` writes 1 where there are fewer than three OSDs.
    pub default_size: u32,
    /// `osd_pool_default_min_size`; 0 means size - size / 2.
    pub default_min_size: u32,
    /// `osd_pool_default_pg_num`.
    pub default_pg_num: u32,
    /// `mon_max_pool_pg_num`.
    pub max_pg_num: u32,
    /// `mon_max_pg_per_osd`.
    pub max_pg_per_osd: u32,
    /// `mon_allow_pool_delete`.
    pub allow_delete: bool,
    /// `osd_crush_chooseleaf_type`: the failure domain of the first rule, as a CRUSH type number.
    pub chooseleaf_type: i32,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            default_size: 3,
            default_min_size: 0,
            default_pg_num: 32,
            max_pg_num: 65_536,
            max_pg_per_osd: 250,
            allow_delete: true,
            chooseleaf_type: 1,
        }
    }
}

/// Options that decide which OSDs count as up and in.
#[derive(Clone, Debug)]
pub struct OsdOptions {
    /// `mon_osd_down_out_interval`.
    pub down_out_interval: Duration,
    /// `mon_osd_down_out_subtree_limit`: an OSD is not marked out while a whole subtree of this type or a larger one
    /// is down, because its disk is then not the cause.
    pub down_out_subtree_limit: String,
    /// `mon_osd_report_timeout`.
    pub report_timeout: Duration,
    /// `osd_heartbeat_grace`.
    pub heartbeat_grace: Duration,
    /// `mon_osd_adjust_heartbeat_grace`: true if OSDs known to be slow get a longer grace.
    pub adjust_heartbeat_grace: bool,
    /// `mon_osd_min_down_reporters`.
    pub min_down_reporters: usize,
    /// `mon_osd_reporter_subtree_level`.
    pub reporter_subtree: String,
    /// `mon_osd_min_up_ratio`.
    pub min_up_ratio: f64,
    /// `mon_osd_min_in_ratio`.
    pub min_in_ratio: f64,
}

impl Default for OsdOptions {
    fn default() -> Self {
        Self {
            down_out_interval: Duration::from_secs(600),
            down_out_subtree_limit: "rack".into(),
            report_timeout: Duration::from_secs(900),
            heartbeat_grace: Duration::from_secs(20),
            adjust_heartbeat_grace: true,
            min_down_reporters: 2,
            reporter_subtree: "host".into(),
            min_up_ratio: 0.3,
            min_in_ratio: 0.75,
        }
    }
}

/// Options of authentication.
#[derive(Clone, Debug)]
pub struct AuthOptions {
    /// `auth_cluster_required` and related options: true for cephx, false for none.
    pub cephx: bool,
    /// `auth_service_ticket_ttl`.
    pub ticket_ttl: Duration,
    /// `auth_allow_insecure_global_id_reclaim`.
    pub allow_insecure_reclaim: bool,
}

impl Default for AuthOptions {
    fn default() -> Self {
        Self { cephx: true, ticket_ttl: Duration::from_secs(3600), allow_insecure_reclaim: false }
    }
}

/// The options that the core and the commands use.
#[derive(Clone, Debug)]
pub struct MonOptions {
    /// The options of pools.
    pub pools: PoolOptions,
    /// `target_max_misplaced_ratio`.
    pub target_max_misplaced_ratio: f64,
    /// Refuse commands by their old names (`mon_debug_deprecated_as_obsolete`).
    pub refuse_old_names: bool,
    /// The options that decide which OSDs count as up and in.
    pub osds: OsdOptions,
    /// `mon_warn_on_slow_ping_time` in milliseconds; 0: `slow_ping_ratio` of the grace.
    pub slow_ping_ms: f64,
    /// `mon_warn_on_slow_ping_ratio`.
    pub slow_ping_ratio: f64,
    /// `mon_osd_blocklist_default_expire`.
    pub blocklist_expire: Duration,
    /// `mon_mgr_blocklist_interval`: time for which a manager that lost the role is blocklisted, and its clients.
    pub mgr_blocklist: Duration,
    /// Options for the supervision of MDS daemons.
    pub mds: MdsOptions,
    /// `mon_min_osdmap_epochs`: the least number of epochs kept.
    pub min_osdmap_epochs: u32,
    /// `osd_map_message_max`: most epochs in an OSD_MAP message.
    pub map_message_max: u32,
    /// The options of authentication.
    pub auth: AuthOptions,
    /// Limits for alerts about scrubs and repairs.
    pub scrubs: ScrubWarnings,
    /// `mgr_stats_period`.
    pub stats_period: u32,
    /// True if a separate manager daemon is expected: the monitor accepts its beacons, and the built-in role stays
    /// off.
    pub external_mgr: bool,
    /// Options of the configuration file and command line, by Ceph's names. They override the central configuration.
    pub local: BTreeMap<String, String>,
    /// Metadata of this host, for `mon metadata`.
    pub host_metadata: BTreeMap<String, String>,
    /// The options of all sources (file, central configuration, run time), for `config show` and related commands.
    pub settings: Settings,
    /// A number that grows with every change of the settings.
    pub changes: u64,
    /// The options before the central configuration was applied.
    pub base: Option<Box<MonOptions>>,
}

impl Default for MonOptions {
    fn default() -> Self {
        Self {
            pools: PoolOptions::default(),
            target_max_misplaced_ratio: 0.05,
            refuse_old_names: false,
            osds: OsdOptions::default(),
            slow_ping_ms: 0.0,
            slow_ping_ratio: 0.05,
            scrubs: ScrubWarnings::default(),
            blocklist_expire: Duration::from_secs(3600),
            mgr_blocklist: Duration::from_secs(86_400),
            mds: MdsOptions::default(),
            min_osdmap_epochs: 500,
            map_message_max: 40,
            auth: AuthOptions::default(),
            stats_period: 5,
            external_mgr: false,
            local: BTreeMap::new(),
            host_metadata: BTreeMap::new(),
            settings: Settings::default(),
            changes: 0,
            base: None,
        }
    }
}

impl MonOptions {
    /// Sets an option from its text; false if the option does not exist here or the text does not parse.
    pub fn set(&mut self, name: &str, text: &str) -> bool {
        fn put<T: std::str::FromStr>(slot: &mut T, text: &str) -> bool {
            text.trim().parse().map(|v| *slot = v).is_ok()
        }
        fn secs(slot: &mut Duration, text: &str) -> bool {
            let ok = text.trim().parse::<f64>().ok().filter(|v| (0.0..1e9).contains(v));
            ok.map(|v| *slot = Duration::from_secs_f64(v)).is_some()
        }
        fn flag(slot: &mut bool, text: &str) -> bool {
            let v = match text.trim() {
                "true" | "yes" | "1" | "on" => true,
                "false" | "no" | "0" | "off" => false,
                _ => return false,
            };
            *slot = v;
            true
        }
        match name {
            "osd_pool_default_size" => put(&mut self.pools.default_size, text),
            "osd_pool_default_min_size" => put(&mut self.pools.default_min_size, text),
            "osd_pool_default_pg_num" => put(&mut self.pools.default_pg_num, text),
            "mon_max_pool_pg_num" => put(&mut self.pools.max_pg_num, text),
            "mon_max_pg_per_osd" => put(&mut self.pools.max_pg_per_osd, text),
            "target_max_misplaced_ratio" => put(&mut self.target_max_misplaced_ratio, text),
            "mon_allow_pool_delete" => flag(&mut self.pools.allow_delete, text),
            "mon_debug_deprecated_as_obsolete" => flag(&mut self.refuse_old_names, text),
            "mon_osd_down_out_interval" => secs(&mut self.osds.down_out_interval, text),
            "mon_osd_report_timeout" => secs(&mut self.osds.report_timeout, text),
            "osd_heartbeat_grace" => secs(&mut self.osds.heartbeat_grace, text),
            "mon_osd_adjust_heartbeat_grace" => flag(&mut self.osds.adjust_heartbeat_grace, text),
            "mon_osd_down_out_subtree_limit" => put(&mut self.osds.down_out_subtree_limit, text),
            "osd_crush_chooseleaf_type" => put(&mut self.pools.chooseleaf_type, text),
            "mon_warn_on_slow_ping_time" => put(&mut self.slow_ping_ms, text),
            "mon_warn_on_slow_ping_ratio" => put(&mut self.slow_ping_ratio, text),
            "mon_osd_min_down_reporters" => put(&mut self.osds.min_down_reporters, text),
            "mon_osd_reporter_subtree_level" => put(&mut self.osds.reporter_subtree, text),
            "mon_osd_min_up_ratio" => put(&mut self.osds.min_up_ratio, text),
            "mon_osd_min_in_ratio" => put(&mut self.osds.min_in_ratio, text),
            "mon_osd_blocklist_default_expire" | "mon_osd_blacklist_default_expire" => {
                secs(&mut self.blocklist_expire, text)
            }
            "mon_mgr_blocklist_interval" | "mon_mgr_blacklist_interval" => secs(&mut self.mgr_blocklist, text),
            "mds_beacon_grace" => secs(&mut self.mds.beacon_grace, text),
            "mds_beacon_interval" => secs(&mut self.mds.beacon_interval, text),
            "mon_mds_blocklist_interval" | "mon_mds_blacklist_interval" => secs(&mut self.mds.blocklist, text),
            "mon_min_osdmap_epochs" => put(&mut self.min_osdmap_epochs, text),
            "osd_map_message_max" => put(&mut self.map_message_max, text),
            "auth_service_ticket_ttl" => secs(&mut self.auth.ticket_ttl, text),
            "auth_allow_insecure_global_id_reclaim" => flag(&mut self.auth.allow_insecure_reclaim, text),
            "osd_scrub_max_interval" => put(&mut self.scrubs.interval, text),
            "mon_warn_pg_not_scrubbed_ratio" => put(&mut self.scrubs.ratio, text),
            "osd_deep_scrub_interval" => put(&mut self.scrubs.deep_interval, text),
            "mon_warn_pg_not_deep_scrubbed_ratio" => put(&mut self.scrubs.deep_ratio, text),
            "mon_osd_warn_num_repaired" => put(&mut self.scrubs.repaired, text),
            "mgr_stats_period" => put(&mut self.stats_period, text),
            _ => false,
        }
    }

    /// The default `min_size` of a pool of this size (`osd_pool_default_min_size`).
    #[must_use]
    pub fn min_size_for(&self, size: u8) -> u8 {
        let wanted = u8::try_from(self.pools.default_min_size).unwrap_or(u8::MAX);
        if wanted == 0 { size - size / 2 } else { wanted.min(size) }
    }

    /// Every option with its value, in the form of `config show`.
    #[must_use]
    pub fn shown(&self) -> std::collections::BTreeMap<String, String> {
        let secs = |d: Duration| d.as_secs_f64().to_string();
        let auth = if self.auth.cephx { "cephx" } else { "none" };
        let list: [(&str, String); 38] = [
            ("auth_cluster_required", auth.into()),
            ("auth_service_required", auth.into()),
            ("auth_client_required", auth.into()),
            ("osd_pool_default_size", self.pools.default_size.to_string()),
            ("osd_pool_default_min_size", self.pools.default_min_size.to_string()),
            ("osd_pool_default_pg_num", self.pools.default_pg_num.to_string()),
            ("mon_max_pool_pg_num", self.pools.max_pg_num.to_string()),
            ("mon_max_pg_per_osd", self.pools.max_pg_per_osd.to_string()),
            ("target_max_misplaced_ratio", format!("{:.6}", self.target_max_misplaced_ratio)),
            ("mon_allow_pool_delete", self.pools.allow_delete.to_string()),
            ("mon_debug_deprecated_as_obsolete", self.refuse_old_names.to_string()),
            ("mon_osd_down_out_interval", secs(self.osds.down_out_interval)),
            ("mon_osd_report_timeout", secs(self.osds.report_timeout)),
            ("osd_heartbeat_grace", secs(self.osds.heartbeat_grace)),
            ("mon_osd_adjust_heartbeat_grace", self.osds.adjust_heartbeat_grace.to_string()),
            ("mon_osd_down_out_subtree_limit", self.osds.down_out_subtree_limit.clone()),
            ("osd_crush_chooseleaf_type", self.pools.chooseleaf_type.to_string()),
            ("mon_warn_on_slow_ping_time", self.slow_ping_ms.to_string()),
            ("mon_warn_on_slow_ping_ratio", self.slow_ping_ratio.to_string()),
            ("mon_osd_min_down_reporters", self.osds.min_down_reporters.to_string()),
            ("mon_osd_reporter_subtree_level", self.osds.reporter_subtree.clone()),
            ("mon_osd_min_up_ratio", self.osds.min_up_ratio.to_string()),
            ("mon_osd_min_in_ratio", self.osds.min_in_ratio.to_string()),
            ("mon_osd_blocklist_default_expire", secs(self.blocklist_expire)),
            ("mon_mgr_blocklist_interval", secs(self.mgr_blocklist)),
            ("mds_beacon_grace", secs(self.mds.beacon_grace)),
            ("mds_beacon_interval", secs(self.mds.beacon_interval)),
            ("mon_mds_blocklist_interval", secs(self.mds.blocklist)),
            ("mon_min_osdmap_epochs", self.min_osdmap_epochs.to_string()),
            ("osd_map_message_max", self.map_message_max.to_string()),
            ("auth_service_ticket_ttl", secs(self.auth.ticket_ttl)),
            ("auth_allow_insecure_global_id_reclaim", self.auth.allow_insecure_reclaim.to_string()),
            ("osd_scrub_max_interval", self.scrubs.interval.to_string()),
            ("mon_warn_pg_not_scrubbed_ratio", self.scrubs.ratio.to_string()),
            ("osd_deep_scrub_interval", self.scrubs.deep_interval.to_string()),
            ("mon_warn_pg_not_deep_scrubbed_ratio", self.scrubs.deep_ratio.to_string()),
            ("mon_osd_warn_num_repaired", self.scrubs.repaired.to_string()),
            ("mgr_stats_period", self.stats_period.to_string()),
        ];
        list.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()
    }

    /// The options of a monitor that was started with the options `local`.
    #[must_use]
    pub fn from_local(local: BTreeMap<String, String>) -> Self {
        let settings = Settings::new(local.clone());
        let mut o = Self { local, settings, ..Self::default() };
        o.apply_local();
        o
    }

    fn apply_local(&mut self) {
        for (k, v) in &self.local.clone() {
            match k.as_str() {
                "auth_cluster_required" | "auth_service_required" => self.auth.cephx = v.trim() != "none",
                _ => {
                    self.set(k, v);
                }
            }
        }
    }

    /// Applies the central configuration for `mon.name`; options of the process itself take precedence.
    pub fn apply_central(&mut self, db: &super::ConfigDb, name: &str) {
        let me = base::AuthName { kind: base::EntityKind::MON, id: name.to_owned() };
        let all = super::config::options_for(db, &me, &super::config::Subject::default(), &|_| None);
        self.settings = std::mem::take(&mut self.settings).named("mon", name);
        self.settings.central = all.into_iter().collect();
        self.apply_settings();
    }

    /// Applies the settings of all sources in their order.
    pub fn apply_settings(&mut self) {
        let base = self.base.take().unwrap_or_else(|| Box::new(self.clone()));
        let mut next = MonOptions::clone(&base);
        next.settings = std::mem::take(&mut self.settings);
        for (k, v) in &next.settings.central.clone() {
            if !next.set(k, v) {
                tracing::debug!("mon: ignoring option {k} = {v}: unknown here, or an invalid value");
            }
        }
        next.apply_local();
        for (k, v) in &next.settings.overrides().clone() {
            next.set(k, v);
        }
        next.base = Some(base);
        next.changes = self.changes + 1;
        *self = next;
    }

    /// True for options whose change takes effect at once.
    #[must_use]
    pub fn observes(name: &str) -> bool {
        let o = Self::default();
        // The host applies log levels, also at once.
        name.starts_with("debug_") || o.shown().contains_key(name) && !name.ends_with("_required")
    }

    /// All options of the table with their value in force.
    #[must_use]
    pub fn all(&self) -> BTreeMap<String, String> {
        let mut all = self.settings.show();
        for (k, v) in self.shown() {
            let v = option_table::find(&k).and_then(|o| o.normalize(&v).ok()).unwrap_or(v);
            all.insert(k, v);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{ConfigDb, ConfigKey};

    #[test]
    fn central_values_come_and_go() {
        let mut o =
            MonOptions { pools: PoolOptions { default_size: 2, ..PoolOptions::default() }, ..MonOptions::default() };
        let mut local = MonOptions::from_local([("osd_pool_default_size".to_owned(), "4".to_owned())].into());
        let mut db = ConfigDb::default();
        let key = ConfigKey { who: "global".into(), name: "osd_pool_default_size".into() };
        db.values.insert(key.clone(), "3".into());
        o.apply_central(&db, "a");
        assert_eq!(o.pools.default_size, 3);
        local.apply_central(&db, "a");
        assert_eq!(local.pools.default_size, 4, "the file overrides it");
        db.values.remove(&key);
        o.apply_central(&db, "a");
        assert_eq!(o.pools.default_size, 2, "back to what it was started with");
        assert!(!o.set("osd_pool_default_size", "many"));
    }
}
