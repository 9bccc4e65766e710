//! Ceph's options that our monitors, managers and OSDs use.
//!
//! The option table is Ceph's, since Ceph's daemons and clients may run beside ours and get their options from
//! the monitor. Options that are not listed here are kept for those; a user who sets one for our daemons is
//! told that it has no effect. A test (`xtask/tests/options.rs`) compares the list with the sources.

/// Names in ascending order.
pub const USED: &[&str] = &[
    "admin_socket",
    "auth_allow_insecure_global_id_reclaim",
    "auth_client_required",
    "auth_cluster_required",
    "auth_service_required",
    "auth_service_ticket_ttl",
    "bdev_enable_discard",
    "cluster_addr",
    "cluster_network",
    "crush_location",
    "debug_auth",
    "debug_bdev",
    "debug_bluestore",
    "debug_mon",
    "debug_monc",
    "debug_ms",
    "debug_objclass",
    "debug_osd",
    "mds_beacon_grace",
    "mds_beacon_interval",
    "mgr_stats_period",
    "mon_allow_pool_delete",
    "mon_clock_drift_allowed",
    "mon_data",
    "mon_host",
    "mon_max_pg_per_osd",
    "mon_max_pool_pg_num",
    "mon_mds_blocklist_interval",
    "mon_min_osdmap_epochs",
    "mon_osd_adjust_heartbeat_grace",
    "mon_osd_blocklist_default_expire",
    "mon_osd_down_out_interval",
    "mon_osd_down_out_subtree_limit",
    "mon_osd_min_down_reporters",
    "mon_osd_min_in_ratio",
    "mon_osd_min_up_ratio",
    "mon_osd_report_timeout",
    "mon_osd_reporter_subtree_level",
    "mon_osd_warn_num_repaired",
    "mon_target_pg_per_osd",
    "mon_timecheck_interval",
    "mon_timecheck_skew_interval",
    "mon_warn_on_insecure_global_id_reclaim_allowed",
    "mon_warn_on_legacy_crush_tunables",
    "mon_warn_on_osd_down_out_interval_zero",
    "mon_warn_on_pool_no_app",
    "mon_warn_on_pool_no_redundancy",
    "mon_warn_on_pool_pg_num_not_power_of_two",
    "mon_warn_on_slow_ping_ratio",
    "mon_warn_on_slow_ping_time",
    "mon_warn_on_too_few_osds",
    "mon_warn_pg_not_deep_scrubbed_ratio",
    "mon_warn_pg_not_scrubbed_ratio",
    "ms_bind_port_max",
    "ms_bind_port_min",
    "ms_client_mode",
    "ms_cluster_mode",
    "ms_mon_client_mode",
    "ms_mon_cluster_mode",
    "ms_mon_service_mode",
    "ms_service_mode",
    "osd_backfill_retry_interval",
    "osd_crush_chooseleaf_type",
    "osd_crush_update_on_start",
    "osd_data",
    "osd_deep_scrub_interval",
    "osd_deep_scrub_large_omap_object_key_threshold",
    "osd_deep_scrub_large_omap_object_value_sum_threshold",
    "osd_failsafe_full_ratio",
    "osd_heartbeat_grace",
    "osd_heartbeat_interval",
    "osd_map_message_max",
    "osd_max_backfills",
    "osd_max_pg_log_entries",
    "osd_max_scrubs",
    "osd_mclock_profile",
    "osd_min_pg_log_entries",
    "osd_op_complaint_time",
    "osd_op_history_duration",
    "osd_op_history_size",
    "osd_op_history_slow_op_size",
    "osd_op_history_slow_op_threshold",
    "osd_pg_log_dups_tracked",
    "osd_pg_log_trim_max",
    "osd_pg_log_trim_min",
    "osd_pool_default_crush_rule",
    "osd_pool_default_ec_fast_read",
    "osd_pool_default_erasure_code_profile",
    "osd_pool_default_flag_nodelete",
    "osd_pool_default_flag_nopgchange",
    "osd_pool_default_flag_nosizechange",
    "osd_pool_default_min_size",
    "osd_pool_default_pg_autoscale_mode",
    "osd_pool_default_pg_num",
    "osd_pool_default_read_lease_ratio",
    "osd_pool_default_size",
    "osd_pool_default_type",
    "osd_pool_erasure_code_stripe_unit",
    "osd_recovery_max_active",
    "osd_recovery_max_active_hdd",
    "osd_recovery_max_active_ssd",
    "osd_recovery_retry_interval",
    "osd_scrub_auto_repair",
    "osd_scrub_auto_repair_num_errors",
    "osd_scrub_begin_hour",
    "osd_scrub_begin_week_day",
    "osd_scrub_end_hour",
    "osd_scrub_end_week_day",
    "osd_scrub_interval_randomize_ratio",
    "osd_scrub_load_threshold",
    "osd_scrub_max_interval",
    "osd_scrub_min_interval",
    "osd_scrub_sleep",
    "osd_target_pg_log_entries_per_osd",
    "public_addr",
    "public_network",
    "target_max_misplaced_ratio",
];

/// Options of modules of the manager role, which Ceph's table does not have, in ascending order.
pub const MODULE_OPTIONS: &[&str] = &[
    "mgr/balancer/active",
    "mgr/balancer/begin_time",
    "mgr/balancer/begin_weekday",
    "mgr/balancer/end_time",
    "mgr/balancer/end_weekday",
    "mgr/balancer/mode",
    "mgr/balancer/pool_ids",
    "mgr/balancer/sleep_interval",
    "mgr/balancer/upmap_max_deviation",
    "mgr/balancer/upmap_max_optimizations",
    "mgr/prometheus/server_addr",
    "mgr/prometheus/server_port",
];

/// True if one of our daemons uses the option.
#[must_use]
pub fn is_used(name: &str) -> bool {
    USED.binary_search(&name).is_ok() || MODULE_OPTIONS.binary_search(&name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order_and_of_known_options() {
        assert!(USED.is_sorted() && MODULE_OPTIONS.is_sorted());
        let unknown: Vec<_> = USED.iter().filter(|n| crate::option_table::find(n).is_none()).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        assert!(is_used("osd_max_backfills") && !is_used("bluestore_cache_size"));
    }
}
