//! Options of the monitor that a user may set, with Ceph's names and our defaults.

use std::time::Duration;

/// Values the core and the commands work with.
#[derive(Clone, Debug)]
pub struct MonOptions {
    /// `osd_pool_default_size`.
    pub pool_default_size: u32,
    /// `osd_pool_default_min_size`; 0 means size - size / 2.
    pub pool_default_min_size: u32,
    /// `osd_pool_default_pg_num`.
    pub pool_default_pg_num: u32,
    /// `mon_max_pool_pg_num`.
    pub max_pool_pg_num: u32,
    /// `mon_max_pg_per_osd`.
    pub max_pg_per_osd: u32,
    /// `mon_allow_pool_delete`.
    pub allow_pool_delete: bool,
    /// `mon_osd_down_out_interval`.
    pub down_out_interval: Duration,
    /// `mon_osd_report_timeout`.
    pub report_timeout: Duration,
    /// `osd_heartbeat_grace`.
    pub heartbeat_grace: Duration,
    /// `mon_osd_min_down_reporters`.
    pub min_down_reporters: usize,
    /// `mon_osd_reporter_subtree_level`.
    pub reporter_subtree: String,
    /// `mon_osd_min_up_ratio`.
    pub min_up_ratio: f64,
    /// `mon_osd_min_in_ratio`.
    pub min_in_ratio: f64,
    /// `mon_osd_blocklist_default_expire`.
    pub blocklist_expire: Duration,
    /// `mon_min_osdmap_epochs`: how many epochs are kept at least.
    pub min_osdmap_epochs: u32,
    /// `osd_map_message_max`: epochs per OSD_MAP message.
    pub map_message_max: u32,
    /// `auth_service_ticket_ttl`.
    pub service_ticket_ttl: Duration,
    /// `auth_allow_insecure_global_id_reclaim`.
    pub allow_insecure_reclaim: bool,
    /// `auth_cluster_required` and its kin: true for cephx, false for none.
    pub cephx: bool,
    /// `mgr_stats_period`.
    pub stats_period: u32,
    /// True if a separate manager daemon is expected: its beacons are taken and the built-in role stays off.
    pub external_mgr: bool,
}

impl Default for MonOptions {
    fn default() -> Self {
        Self {
            pool_default_size: 1,
            pool_default_min_size: 0,
            pool_default_pg_num: 32,
            max_pool_pg_num: 65_536,
            max_pg_per_osd: 250,
            allow_pool_delete: true,
            down_out_interval: Duration::from_secs(600),
            report_timeout: Duration::from_secs(900),
            heartbeat_grace: Duration::from_secs(20),
            min_down_reporters: 2,
            reporter_subtree: "host".into(),
            min_up_ratio: 0.3,
            min_in_ratio: 0.75,
            blocklist_expire: Duration::from_secs(3600),
            min_osdmap_epochs: 500,
            map_message_max: 40,
            service_ticket_ttl: Duration::from_secs(3600),
            allow_insecure_reclaim: false,
            cephx: true,
            stats_period: 5,
            external_mgr: false,
        }
    }
}
