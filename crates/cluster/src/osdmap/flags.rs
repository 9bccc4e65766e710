//! Bits of the map's flags and of OSD states, with the names Ceph shows.

/// Bits of [`crate::OsdMap::flags`].
pub mod map_flag {
    /// Some OSD is nearfull. Set in maps of old releases only; newer ones set a flag of the pools.
    pub const NEARFULL: u32 = 1;
    /// Some OSD is full. Set in maps of old releases only; newer ones set a flag of the pools.
    pub const FULL: u32 = 1 << 1;
    /// Reads wait.
    pub const PAUSERD: u32 = 1 << 2;
    /// Writes wait.
    pub const PAUSEWR: u32 = 1 << 3;
    /// Recovery waits.
    pub const PAUSEREC: u32 = 1 << 4;
    /// No OSD is marked up.
    pub const NOUP: u32 = 1 << 5;
    /// No OSD is marked down.
    pub const NODOWN: u32 = 1 << 6;
    /// No OSD is marked out.
    pub const NOOUT: u32 = 1 << 7;
    /// No OSD is marked in.
    pub const NOIN: u32 = 1 << 8;
    /// No backfill.
    pub const NOBACKFILL: u32 = 1 << 9;
    /// No recovery.
    pub const NORECOVER: u32 = 1 << 10;
    /// No scrub.
    pub const NOSCRUB: u32 = 1 << 11;
    /// No deep scrub.
    pub const NODEEP_SCRUB: u32 = 1 << 12;
    /// No tier agent.
    pub const NOTIERAGENT: u32 = 1 << 13;
    /// No rebalance.
    pub const NOREBALANCE: u32 = 1 << 14;
    /// Objects are sorted by bit-reversed hash.
    pub const SORTBITWISE: u32 = 1 << 15;
    /// Recovery deletes.
    pub const RECOVERY_DELETES: u32 = 1 << 19;
    /// Snapdirs are gone.
    pub const PURGED_SNAPDIRS: u32 = 1 << 20;
    /// No snapshot trimming.
    pub const NOSNAPTRIM: u32 = 1 << 21;
    /// PG logs have a hard limit.
    pub const PGLOG_HARDLIMIT: u32 = 1 << 22;
    /// No autoscaling.
    pub const NOAUTOSCALE: u32 = 1 << 23;

    /// The require_jewel, require_kraken and require_luminous flags of old maps.
    pub const LEGACY_REQUIRE: u32 = 0x7_0000;
    /// Flags of a new cluster.
    pub const FRESH: u32 = SORTBITWISE | RECOVERY_DELETES | PURGED_SNAPDIRS | PGLOG_HARDLIMIT;

    /// All flags with their names, in the order Ceph prints them.
    pub const NAMES: [(u32, &str); 24] = [
        (NEARFULL, "nearfull"),
        (FULL, "full"),
        (PAUSERD, "pauserd"),
        (PAUSEWR, "pausewr"),
        (PAUSEREC, "pauserec"),
        (NOUP, "noup"),
        (NODOWN, "nodown"),
        (NOOUT, "noout"),
        (NOIN, "noin"),
        (NOBACKFILL, "nobackfill"),
        (NOREBALANCE, "norebalance"),
        (NORECOVER, "norecover"),
        (NOSCRUB, "noscrub"),
        (NODEEP_SCRUB, "nodeep-scrub"),
        (NOTIERAGENT, "notieragent"),
        (NOSNAPTRIM, "nosnaptrim"),
        (SORTBITWISE, "sortbitwise"),
        (1 << 16, "require_jewel_osds"),
        (1 << 17, "require_kraken_osds"),
        (1 << 18, "require_luminous_osds"),
        (RECOVERY_DELETES, "recovery_deletes"),
        (PURGED_SNAPDIRS, "purged_snapdirs"),
        (PGLOG_HARDLIMIT, "pglog_hardlimit"),
        (NOAUTOSCALE, "noautoscale"),
    ];
}

/// Bits of [`crate::OsdMap::osd_state`].
pub mod osd_state {
    /// The slot is in use.
    pub const EXISTS: u32 = 1;
    /// The OSD runs.
    pub const UP: u32 = 1 << 1;
    /// The monitor marked the OSD out automatically.
    pub const AUTOOUT: u32 = 1 << 2;
    /// The OSD was never in.
    pub const NEW: u32 = 1 << 3;
    /// Full.
    pub const FULL: u32 = 1 << 4;
    /// Nearly full.
    pub const NEARFULL: u32 = 1 << 5;
    /// Too full for backfill.
    pub const BACKFILLFULL: u32 = 1 << 6;
    /// The OSD is destroyed and its number reserved.
    pub const DESTROYED: u32 = 1 << 7;
    /// The OSD must not be marked up.
    pub const NOUP: u32 = 1 << 8;
    /// The OSD must not be marked down.
    pub const NODOWN: u32 = 1 << 9;
    /// The OSD must not be marked in.
    pub const NOIN: u32 = 1 << 10;
    /// The OSD must not be marked out.
    pub const NOOUT: u32 = 1 << 11;
    /// The OSD is asked to stop.
    pub const STOP: u32 = 1 << 12;

    /// All bits with the names `osd dump` shows.
    pub const NAMES: [(u32, &str); 13] = [
        (EXISTS, "exists"),
        (UP, "up"),
        (AUTOOUT, "autoout"),
        (NEW, "new"),
        (FULL, "full"),
        (NEARFULL, "nearfull"),
        (BACKFILLFULL, "backfillfull"),
        (DESTROYED, "destroyed"),
        (NOUP, "noup"),
        (NODOWN, "nodown"),
        (NOIN, "noin"),
        (NOOUT, "noout"),
        (STOP, "stop"),
    ];
}
