//! Texts about options: those that our daemons use, and those that only our daemons have.
//!
//! Invariant: every name of [`crate::used_options::USED`] has a text.
//!
//! Tests: below.

/// An option that Ceph's table does not have. A daemon reads it from its configuration file when it starts, before it
/// has reached a monitor.
#[derive(Clone, Copy, Debug)]
pub struct FileOption {
    /// Name of the option.
    pub name: &'static str,
    /// Section of the file: `mon` or `osd`.
    pub section: &'static str,
    /// Default value, as text.
    pub default: &'static str,
    /// Purpose of the option.
    pub text: &'static str,
}

const fn of_file(name: &'static str, section: &'static str, default: &'static str, text: &'static str) -> FileOption {
    FileOption { name, section, default, text }
}

/// Options of the file alone, by name.
pub const FILE_OPTIONS: &[FileOption] = &[
    of_file("bdev_grow_at_start", "osd", "false", "use all of a file or device that has grown"),
    of_file("mgr", "mon", "", "external: a separate manager has the manager role"),
    of_file("mgr_port", "mon", "", "port of the manager role"),
    of_file("mon_backup_dir", "mon", "", "directory for exports of the state"),
    of_file("mon_backup_interval", "mon", "3600", "seconds between two exports of the state"),
    of_file("mon_backup_keep", "mon", "24", "number of exports to keep"),
    of_file("mon_state_etcd", "mon", "", "endpoints of the etcd with the state of several monitors"),
    of_file("mon_state_etcd_prefix", "mon", "", "prefix of the keys in etcd"),
    of_file("mon_state_etcd_user", "mon", "", "user and file with the password for etcd"),
    of_file("osd_block_path", "osd", "<osd_data>/block", "file or device of the store"),
    of_file(
        "osd_busy_poll",
        "osd",
        "0",
        "microseconds for which a thread looks for work before it sleeps, on cores of its own",
    ),
    of_file("osd_count_on_host", "osd", "1", "OSDs on this machine, which share its processors"),
    of_file("osd_device_timeout", "osd", "20", "seconds without an answer after which the device has failed"),
    of_file("osd_file_min_free", "osd", "256M", "free space of the file system that no write of a client takes"),
    of_file("osd_move_pgs", "osd", "true", "let PGs move to other reactors after a split"),
    of_file("osd_reactors", "osd", "", "threads; processors divided by osd_count_on_host if not set"),
    of_file("store_cache_size", "osd", "512M", "part of osd_memory_target for the metadata of the store"),
];

/// The option of that name which only a file can set.
#[must_use]
pub fn file_option(name: &str) -> Option<&'static FileOption> {
    FILE_OPTIONS.iter().find(|o| o.name == name)
}

/// The option that serves the purpose of one without effect.
#[must_use]
pub fn instead_of(name: &str) -> Option<&'static str> {
    match name {
        "bluestore_cache_size" => Some(
            "osd_memory_target gives an OSD memory, and store_cache_size in the section [osd] of the configuration file the \
             part for the store's metadata",
        ),
        "osd_numa_auto_affinity" => Some("osd_numa_node binds an OSD to a node; none is chosen by itself"),
        _ => None,
    }
}

/// Purpose of an option of Ceph's table, empty if not described.
#[must_use]
pub fn description(name: &str) -> &'static str {
    TEXTS.binary_search_by(|(n, _)| (*n).cmp(name)).ok().and_then(|i| TEXTS.get(i)).map_or("", |(_, text)| text)
}

/// Names and texts in ascending order.
pub(crate) const TEXTS: &[(&str, &str)] = &[
    ("admin_socket", "path of the admin socket"),
    ("auth_allow_insecure_global_id_reclaim", "let clients take their old global id again without proof"),
    ("auth_client_required", "how a client wants to sign in: cephx or none"),
    ("auth_cluster_required", "how daemons sign in at each other: cephx or none"),
    ("auth_service_required", "how clients sign in at daemons: cephx or none"),
    ("auth_service_ticket_ttl", "seconds for which a ticket for a service is valid"),
    ("bdev_enable_discard", "discard free blocks on the device before they are used again"),
    ("bluestore_compression_algorithm", "algorithm of compressed data in pools that name none"),
    ("bluestore_compression_max_blob_size", "bytes of data that are compressed together, at most 512K"),
    ("bluestore_compression_min_blob_size", "least bytes of a range that is compressed"),
    (
        "bluestore_compression_mode",
        "data that is compressed in pools without a mode: none, passive, aggressive or force",
    ),
    ("bluestore_compression_required_ratio", "part of its size that compressed data may take"),
    ("cluster_addr", "address for other OSDs"),
    ("cluster_network", "network in which an OSD finds its address for other OSDs"),
    ("compressor_zlib_level", "level of zlib, 0 to 9, or -1 for 6: higher ones take more time for less space"),
    ("compressor_zstd_level", "level of zstd, -7 to 22: higher ones take more time for less space"),
    ("crush_location", "place of the OSD in the CRUSH map"),
    ("debug_auth", "detail of the log about keys and tickets"),
    ("debug_bdev", "detail of the log about the device"),
    ("debug_bluestore", "detail of the log about the store"),
    ("debug_mon", "detail of the log about the monitor"),
    ("debug_monc", "detail of the log about the session with the monitor"),
    ("debug_ms", "detail of the log about connections and messages"),
    ("debug_objclass", "detail of the log about object classes"),
    ("debug_osd", "detail of the log about the OSD and its PGs"),
    ("mds_beacon_grace", "seconds without a beacon after which a metadata server is replaced"),
    ("mds_beacon_interval", "seconds between two beacons of a metadata server"),
    ("mgr_initial_modules", "modules that the first manager of Ceph in a cluster enables"),
    ("mgr_stats_period", "seconds between two reports to the manager"),
    ("mon_allow_pool_delete", "let pools be removed"),
    ("mon_allow_pool_size_one", "let pools keep a single copy"),
    ("mon_clock_drift_allowed", "seconds by which clocks of monitors may differ without a warning"),
    ("mon_data", "directory of the monitor"),
    ("mon_data_avail_crit", "percentage of free space from which the state's file system has much too little"),
    ("mon_data_avail_warn", "percentage of free space from which the state's file system has little"),
    ("mon_data_size_warn", "free bytes from which the state's file system has enough, whatever its percentage"),
    ("mon_debug_deprecated_as_obsolete", "refuse commands by their old names, to find scripts that use them"),
    ("mon_host", "addresses of the monitors"),
    ("mon_max_pg_per_osd", "most PGs per OSD; a pool that would exceed it is refused"),
    ("mon_max_pool_pg_num", "most PGs a pool may have"),
    ("mon_mds_blocklist_interval", "seconds for which a failed metadata server stays on the blocklist"),
    ("mon_mgr_blocklist_interval", "seconds for which a manager that lost its role is blocklisted, and its clients"),
    ("mon_min_osdmap_epochs", "fewest epochs of the OSD map that are kept"),
    ("mon_osd_adjust_heartbeat_grace", "wait longer for OSDs that were reported by mistake before"),
    ("mon_osd_blocklist_default_expire", "seconds until a blocklist entry ends by itself"),
    ("mon_osd_down_out_interval", "seconds until an OSD that is down is marked out; 0 for never"),
    ("mon_osd_down_out_subtree_limit", "CRUSH type of which a whole unit that is down is not marked out"),
    ("mon_osd_min_down_reporters", "OSDs on different hosts that must report another before it is marked down"),
    ("mon_osd_min_in_ratio", "share of OSDs that must stay in when OSDs are marked out automatically"),
    ("mon_osd_min_up_ratio", "share of OSDs that must stay up when OSDs are marked down"),
    ("mon_osd_report_timeout", "seconds without a beacon after which an OSD is marked down"),
    ("mon_osd_reporter_subtree_level", "CRUSH type whose units count as one reporter of a failure"),
    ("mon_osd_snap_trim_queue_warn_on", "snapshots that a PG has still to trim from which on health warns"),
    ("mon_osd_warn_num_repaired", "repaired reads of an OSD above which health warns"),
    (
        "mon_pg_warn_max_object_skew",
        "objects per PG of a pool, against all pools, from which on health warns; 0: never",
    ),
    ("mon_pg_warn_min_objects", "objects of the cluster below which no pool is called uneven"),
    ("mon_pg_warn_min_pool_objects", "objects of a pool below which it is not called uneven"),
    ("mon_target_pg_per_osd", "PGs per OSD that the autoscaler aims for"),
    ("mon_timecheck_interval", "seconds between two comparisons of the monitors' clocks"),
    ("mon_timecheck_skew_interval", "the same while clocks differ"),
    ("mon_warn_older_version_delay", "seconds for which daemons may run in different versions without a warning"),
    ("mon_warn_on_insecure_global_id_reclaim_allowed", "warn while clients may take a global id without proof"),
    ("mon_warn_on_legacy_crush_tunables", "warn about CRUSH tunables that are too old"),
    ("mon_warn_on_older_version", "warn about daemons that were left behind by an upgrade"),
    ("mon_warn_on_osd_down_out_interval_zero", "warn while OSDs are never marked out"),
    ("mon_warn_on_pool_no_app", "warn about pools without an application"),
    ("mon_warn_on_pool_no_redundancy", "warn about pools with a single copy"),
    ("mon_warn_on_pool_pg_num_not_power_of_two", "warn about pools whose number of PGs is no power of two"),
    ("mon_warn_on_slow_ping_ratio", "share of the heartbeat grace from which a ping counts as slow"),
    ("mon_warn_on_slow_ping_time", "milliseconds from which a ping counts as slow; 0: by the ratio"),
    ("mon_warn_on_too_few_osds", "warn while there are fewer OSDs than copies"),
    ("mon_warn_pg_not_deep_scrubbed_ratio", "part of the interval by which a deep scrub may be late without a warning"),
    ("mon_warn_pg_not_scrubbed_ratio", "part of the interval by which a scrub may be late without a warning"),
    ("ms_bind_msgr1", "serve msgr1 to clients beside msgr2"),
    ("ms_bind_port_max", "last port to choose from"),
    ("ms_bind_port_min", "first port to choose from"),
    ("ms_client_mode", "modes of clients' connections: crc, secure"),
    ("ms_cluster_mode", "modes of connections between daemons: crc, secure"),
    ("ms_mon_client_mode", "modes of clients' connections to monitors: crc, secure"),
    ("ms_mon_cluster_mode", "modes of connections between monitors: crc, secure"),
    ("ms_mon_service_mode", "modes that monitors take: crc, secure"),
    ("ms_service_mode", "modes that other daemons take from clients: crc, secure"),
    ("osd_backfill_retry_interval", "seconds until a backfill that was refused is asked for again"),
    ("osd_bench_duration", "seconds for which a run of `bench` may write, by the rates of the options beside this one"),
    ("osd_bench_large_size_max_throughput", "bytes a second that bound a run of `bench` with blocks of 1 MiB or more"),
    ("osd_bench_max_block_size", "largest block of a run of `bench`; at most 64 MiB"),
    ("osd_bench_small_size_max_iops", "blocks a second that bound a run of `bench` with smaller blocks"),
    ("osd_crush_chooseleaf_type", "number of the CRUSH type over which copies of a new cluster spread"),
    ("osd_crush_update_on_start", "let an OSD set its place in the CRUSH map when it starts"),
    ("osd_data", "directory of the OSD"),
    ("osd_deep_scrub_interval", "seconds between two deep scrubs of a PG"),
    ("osd_deep_scrub_large_omap_object_key_threshold", "keys of an object above which health warns"),
    ("osd_deep_scrub_large_omap_object_value_sum_threshold", "bytes of an object's keys above which health warns"),
    ("osd_failsafe_full_ratio", "used part of the store above which an OSD accepts no growing write"),
    ("osd_heartbeat_grace", "seconds without a heartbeat after which an OSD is reported"),
    ("osd_heartbeat_interval", "seconds between two heartbeats"),
    ("osd_map_message_max", "most maps in a message"),
    ("osd_max_backfills", "PGs that an OSD backfills at a time, as source and as target"),
    ("osd_max_pg_log_entries", "most entries of a PG's log"),
    ("osd_max_scrubs", "PGs that an OSD scrubs at a time"),
    ("osd_mclock_profile", "share of clients and of recovery in an OSD's work"),
    ("osd_memory_target", "memory that an OSD aims for; what store_cache_size leaves is for data that is read again"),
    ("osd_min_pg_log_entries", "entries of a PG's log that are kept at least"),
    ("osd_numa_node", "NUMA node whose processors and memory the OSD uses; -1 for all; read from the file at start"),
    ("osd_op_complaint_time", "seconds after which an operation counts as slow"),
    ("osd_op_history_duration", "seconds for which ended operations are shown"),
    ("osd_op_history_size", "number of ended operations that are shown"),
    ("osd_op_history_slow_op_size", "number of slow operations that are shown"),
    ("osd_op_history_slow_op_threshold", "seconds from which an ended operation is shown as slow"),
    ("osd_pg_log_dups_tracked", "operations whose repetition is recognized after their entry has left the log"),
    ("osd_pg_log_trim_max", "most entries that one write removes from the log"),
    ("osd_pg_log_trim_min", "entries that are removed from the log at once"),
    ("osd_pool_default_crush_rule", "rule of new pools; -1 for the first that fits"),
    ("osd_pool_default_ec_fast_read", "read all shards in new erasure-coded pools"),
    ("osd_pool_default_erasure_code_profile", "profile of the first default code"),
    ("osd_pool_default_flag_nodelete", "protect new pools from removal"),
    ("osd_pool_default_flag_nopgchange", "protect new pools from a change of the number of PGs"),
    ("osd_pool_default_flag_nosizechange", "protect new pools from a change of the number of copies"),
    ("osd_pool_default_min_size", "copies needed to serve I/O in new pools; 0 for more than half"),
    ("osd_pool_default_pg_autoscale_mode", "autoscaling of new pools: on, warn or off"),
    ("osd_pool_default_pg_num", "PGs of new pools"),
    ("osd_pool_default_read_lease_ratio", "length of a read lease as a share of the heartbeat grace"),
    ("osd_pool_default_size", "copies of new pools"),
    ("osd_pool_default_type", "type of new pools: replicated or erasure"),
    ("osd_pool_erasure_code_stripe_unit", "bytes of a stripe on each shard of a new erasure-coded pool"),
    ("osd_recovery_max_active", "objects that an OSD recovers at a time; 0: by the kind of device"),
    ("osd_recovery_max_active_hdd", "objects that an OSD on a rotating disk recovers at a time"),
    ("osd_recovery_max_active_ssd", "objects that an OSD on a solid-state device recovers at a time"),
    ("osd_recovery_retry_interval", "seconds until a recovery that was refused is asked for again"),
    ("osd_scrub_auto_repair", "repair what a scheduled scrub finds"),
    ("osd_scrub_auto_repair_num_errors", "most errors that are repaired without an operator"),
    ("osd_scrub_begin_hour", "hour from which scheduled scrubs begin"),
    ("osd_scrub_begin_week_day", "day of the week from which scheduled scrubs begin; 0 is Sunday"),
    ("osd_scrub_end_hour", "hour until which scheduled scrubs begin"),
    ("osd_scrub_end_week_day", "day of the week until which scheduled scrubs begin"),
    ("osd_scrub_interval_randomize_ratio", "part of the interval by which scrubs of PGs spread"),
    ("osd_scrub_load_threshold", "load of the machine above which no scheduled scrub begins"),
    ("osd_scrub_max_interval", "seconds after which a PG is scrubbed whatever the load"),
    ("osd_scrub_min_interval", "seconds between two scrubs of a PG while the load allows it"),
    ("osd_scrub_sleep", "seconds between two steps of a scrub"),
    ("osd_target_pg_log_entries_per_osd", "log entries of all PGs of an OSD together"),
    ("public_addr", "address for clients"),
    ("public_bind_addr", "address that a monitor listens on in place of the one for clients"),
    ("public_network", "network in which a daemon finds its address for clients"),
    ("rbd_cache", "cache image data in the client"),
    ("target_max_misplaced_ratio", "part of all objects that the manager has on their way at a time"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_used_option_says_what_it_is_for() {
        assert!(TEXTS.is_sorted_by_key(|(n, _)| n) && FILE_OPTIONS.is_sorted_by_key(|o| o.name));
        let silent: Vec<_> = crate::used_options::USED.iter().filter(|n| description(n).is_empty()).collect();
        assert!(silent.is_empty(), "{silent:?}");
        assert!(description("nosuch").is_empty());
        // What Ceph's table has can be set at the monitor.
        let twice: Vec<_> = FILE_OPTIONS.iter().filter(|o| crate::option_table::find(o.name).is_some()).collect();
        assert!(twice.is_empty(), "{twice:?}");
        assert_eq!(file_option("store_cache_size").unwrap().section, "osd");
    }
}
