//! `pg dump`: the statistics of PGs, pools and OSDs as trees and as texts, which show the same fields.

use crate::command::language::listing::{HOLE, Keep, Part};
use crate::command::language::text::{Align, Left, Right, Table};
use crate::command::osd::dump::stamp;
use crate::command::units::{bytes, unsigned};
use crate::command::{CommandOutcome, Ctx, Res};
use crate::json::J;
use crate::obj;
use base::{OsdId, PgId};
use mgr::stats::space;
use std::rc::Rc;
use wire::types::{ObjectStatSum, OsdStat, PgStat, PoolStat, StoreStatfs, pg_state};

pub(super) const OMAP_NOTE: &str = "\n* NOTE: Omap statistics are gathered during deep scrub and may be inaccurate soon afterwards depending on utilization. See http://docs.ceph.com/en/latest/dev/placement-group/#omap-statistics for further details.\n";

/// The fields of `object_stat_sum_t`.
pub(super) fn sum_tree(s: &ObjectStatSum) -> J {
    obj! {
        "num_bytes": s.num_bytes,
        "num_objects": s.num_objects,
        "num_object_clones": s.num_object_clones,
        "num_object_copies": s.num_object_copies,
        "num_objects_missing_on_primary": s.num_objects_missing_on_primary,
        "num_objects_missing": s.num_objects_missing,
        "num_objects_degraded": s.num_objects_degraded,
        "num_objects_misplaced": s.num_objects_misplaced,
        "num_objects_unfound": s.num_objects_unfound,
        "num_objects_dirty": s.num_objects_dirty,
        "num_whiteouts": s.num_whiteouts,
        "num_read": s.num_rd,
        "num_read_kb": s.num_rd_kb,
        "num_write": s.num_wr,
        "num_write_kb": s.num_wr_kb,
        "num_scrub_errors": s.num_scrub_errors,
        "num_shallow_scrub_errors": s.num_shallow_scrub_errors,
        "num_deep_scrub_errors": s.num_deep_scrub_errors,
        "num_objects_recovered": s.num_objects_recovered,
        "num_bytes_recovered": s.num_bytes_recovered,
        "num_keys_recovered": s.num_keys_recovered,
        "num_objects_omap": s.num_objects_omap,
        "num_objects_hit_set_archive": s.num_objects_hit_set_archive,
        "num_bytes_hit_set_archive": s.num_bytes_hit_set_archive,
        "num_flush": s.num_flush,
        "num_flush_kb": s.num_flush_kb,
        "num_evict": s.num_evict,
        "num_evict_kb": s.num_evict_kb,
        "num_promote": s.num_promote,
        "num_flush_mode_high": s.num_flush_mode_high,
        "num_flush_mode_low": s.num_flush_mode_low,
        "num_evict_mode_some": s.num_evict_mode_some,
        "num_evict_mode_full": s.num_evict_mode_full,
        "num_objects_pinned": s.num_objects_pinned,
        "num_legacy_snapsets": s.num_legacy_snapsets,
        "num_large_omap_objects": s.num_large_omap_objects,
        "num_objects_manifest": s.num_objects_manifest,
        "num_omap_bytes": s.num_omap_bytes,
        "num_omap_keys": s.num_omap_keys,
        "num_objects_repaired": s.num_objects_repaired,
    }
}

/// The fields of `store_statfs_t`.
fn statfs_tree(s: &StoreStatfs) -> J {
    obj! {
        "total": s.total,
        "available": s.available,
        "internally_reserved": s.internally_reserved,
        "allocated": s.allocated,
        "data_stored": s.data_stored,
        "data_compressed": s.data_compressed,
        "data_compressed_allocated": s.data_compressed_allocated,
        "data_compressed_original": s.data_compressed_original,
        "omap_allocated": s.omap_allocated,
        "internal_metadata": s.internal_metadata,
    }
}

/// The fields of `pool_stat_t`.
pub(in crate::command) fn pool_stat_tree(p: &PoolStat) -> J {
    obj! {
        "stat_sum": sum_tree(&p.stats.sum),
        "store_stats": statfs_tree(&p.store_stats),
        "log_size": p.log_size,
        "ondisk_log_size": p.ondisk_log_size,
        "up": p.up,
        "acting": p.acting,
        "num_store_stats": p.num_store_stats,
    }
}

/// The fields of `osd_stat_t`.
pub(in crate::command) fn osd_stat_tree(s: &OsdStat) -> J {
    let alerts: J = s
        .os_alerts
        .iter()
        .filter(|(_, m)| !m.is_empty())
        .map(|(o, m)| {
            let alerts: J = m.iter().map(|(k, v)| obj! { "alert": k, "text": v }).collect();
            obj! { "osd": o.0, "alerts": alerts }
        })
        .collect();
    const NS_PER_MS: u64 = 1_000_000;
    let (commit, apply) = (s.os_perf_stat.commit_latency_ns, s.os_perf_stat.apply_latency_ns);
    obj! {
        "up_from": s.up_from.0,
        "seq": s.seq,
        "num_pgs": s.num_pgs,
        "num_osds": s.num_osds,
        "num_per_pool_osds": s.num_per_pool_osds,
        "num_per_pool_omap_osds": s.num_per_pool_omap_osds,
        "kb": s.statfs.total >> 10,
        "kb_used": s.statfs.total.saturating_sub(s.statfs.available) >> 10,
        "kb_used_data": s.statfs.allocated >> 10,
        "kb_used_omap": s.statfs.omap_allocated >> 10,
        "kb_used_meta": s.statfs.internal_metadata >> 10,
        "kb_avail": s.statfs.available >> 10,
        "statfs": statfs_tree(&s.statfs),
        "hb_peers": s.hb_peers.iter().map(|o| o.0).collect::<J>(),
        "snap_trim_queue_len": s.snap_trim_queue_len,
        "num_snap_trimming": s.num_snap_trimming,
        "num_shards_repaired": s.num_shards_repaired,
        "op_queue_age_hist": obj! { "histogram": s.op_queue_age_hist.h.clone(), "upper_bound": 1i64 << s.op_queue_age_hist.h.len().min(62) },
        "perf_stat": obj! {
            "commit_latency_ms": commit / NS_PER_MS,
            "apply_latency_ms": apply / NS_PER_MS,
            "commit_latency_ns": commit,
            "apply_latency_ns": apply,
        },
        "alerts": alerts,
        "network_ping_times": Vec::<J>::new(),
    }
}

pub(super) fn osds(v: &[OsdId]) -> J {
    v.iter().map(|o| o.0).collect()
}

pub(super) fn brief_tree(id: PgId, s: &PgStat) -> J {
    obj! {
        "pgid": id.to_string(),
        "state": pg_state::to_string(s.state()),
        "up": osds(&s.up),
        "acting": osds(&s.acting),
        "up_primary": s.up_primary.0,
        "acting_primary": s.acting_primary.0,
    }
}

/// The fields of `pg_stat_t`.
pub(in crate::command) fn pg_tree(id: PgId, s: &PgStat) -> J {
    let shard = |p: &wire::types::PgShard| obj! { "osd": p.osd.0, "shard": p.shard.0 };
    let locations: J = s
        .object_location_counts
        .iter()
        .map(|(set, n)| {
            let v: Vec<String> = set.iter().map(|p| p.osd.0.to_string()).collect();
            obj! { "shards": v.join(","), "objects": *n }
        })
        .collect();
    let purged: J = s.purged_snaps.iter().map(|(a, n)| obj! { "start": *a, "length": *n }).collect();
    obj! {
        "pgid": id.to_string(),
        "version": s.version.to_string(),
        "reported_seq": s.reported_seq,
        "reported_epoch": s.reported_epoch.0,
        "state": pg_state::to_string(s.state()),
        "last_fresh": stamp(s.last_fresh),
        "last_change": stamp(s.last_change),
        "last_active": stamp(s.last_active),
        "last_peered": stamp(s.last_peered),
        "last_clean": stamp(s.last_clean),
        "last_became_active": stamp(s.last_became_active),
        "last_became_peered": stamp(s.last_became_peered),
        "last_unstale": stamp(s.last_unstale),
        "last_undegraded": stamp(s.last_undegraded),
        "last_fullsized": stamp(s.last_fullsized),
        "mapping_epoch": s.mapping_epoch.0,
        "log_start": s.log_start.to_string(),
        "ondisk_log_start": s.ondisk_log_start.to_string(),
        "created": s.created.0,
        "last_epoch_clean": s.last_epoch_clean.0,
        "parent": s.parent.to_string(),
        "parent_split_bits": s.parent_split_bits,
        "last_scrub": s.last_scrub.to_string(),
        "last_scrub_stamp": stamp(s.last_scrub_stamp),
        "last_deep_scrub": s.last_deep_scrub.to_string(),
        "last_deep_scrub_stamp": stamp(s.last_deep_scrub_stamp),
        "last_clean_scrub_stamp": stamp(s.last_clean_scrub_stamp),
        "log_size": s.log_size,
        "ondisk_log_size": s.ondisk_log_size,
        "stats_invalid": s.stats_invalid,
        "dirty_stats_invalid": s.dirty_stats_invalid,
        "omap_stats_invalid": s.omap_stats_invalid,
        "hitset_stats_invalid": s.hitset_stats_invalid,
        "hitset_bytes_stats_invalid": s.hitset_bytes_stats_invalid,
        "pin_stats_invalid": s.pin_stats_invalid,
        "manifest_stats_invalid": s.manifest_stats_invalid,
        "snaptrimq_len": s.snaptrimq_len,
        "stat_sum": sum_tree(&s.stats.sum),
        "up": osds(&s.up),
        "acting": osds(&s.acting),
        "avail_no_missing": s.avail_no_missing.iter().map(shard).collect::<J>(),
        "object_location_counts": locations,
        "blocked_by": osds(&s.blocked_by),
        "up_primary": s.up_primary.0,
        "acting_primary": s.acting_primary.0,
        "purged_snaps": purged,
    }
}

pub(in crate::command) fn pools_tree(c: &Ctx<'_>) -> J {
    c.state
        .osdmap
        .pools
        .iter()
        .rev()
        .map(|(id, p)| {
            let mut j = obj! { "poolid": id.0, "num_pg": p.pg_num };
            j.merge(pool_stat_tree(&c.state.mgr.stats.pool(*id)));
            j
        })
        .collect()
}

fn osds_tree(c: &Ctx<'_>) -> J {
    c.state
        .mgr
        .stats
        .osds()
        .rev()
        .map(|(o, s)| {
            let mut j = obj! { "osd": o.0 };
            j.merge(osd_stat_tree(s));
            j
        })
        .collect()
}

fn pool_statfs_tree(c: &Ctx<'_>) -> J {
    c.state
        .mgr
        .stats
        .pool_statfs()
        .map(|((pool, osd), s)| {
            let mut j = obj! { "poolid": pool.0, "osd": osd.0 };
            j.merge(statfs_tree(s));
            j
        })
        .collect()
}

pub(super) fn basic_tree(c: &Ctx<'_>) -> J {
    obj! {
        "version": c.state.mgr.stats.version,
        "stamp": stamp(c.state.mgr.stats.stamp),
        "last_osdmap_epoch": 0,
        "last_pg_scan": 0,
        "pg_stats_sum": pool_stat_tree(c.state.mgr.stats.sum()),
        "osd_stats_sum": osd_stat_tree(&c.state.mgr.stats.osd_sum()),
    }
}

fn delta_tree(c: &Ctx<'_>) -> J {
    let (delta, seconds) = c.state.mgr.stats.delta();
    let mut j = pool_stat_tree(&delta);
    j.put("stamp_delta", format!("{seconds:.6}"));
    j
}

pub(super) fn full_tree(c: &Ctx<'_>) -> J {
    let mut j = basic_tree(c);
    j.put("pg_stats_delta", delta_tree(c))
        .put("pg_stats", J::Raw(HOLE.to_owned()))
        .put("pool_stats", pools_tree(c))
        .put("osd_stats", osds_tree(c))
        .put("pool_statfs", pool_statfs_tree(c));
    j
}

pub(super) fn header(c: &Ctx<'_>) -> String {
    format!(
        "version {}\nstamp {}\nlast_osdmap_epoch 0\nlast_pg_scan 0\n",
        c.state.mgr.stats.version,
        stamp(c.state.mgr.stats.stamp)
    )
}

const SUM_HEAD: [(&str, Align, Align); 10] = [
    ("OBJECTS", Left, Right),
    ("MISSING_ON_PRIMARY", Left, Right),
    ("DEGRADED", Left, Right),
    ("MISPLACED", Left, Right),
    ("UNFOUND", Left, Right),
    ("BYTES", Left, Right),
    ("OMAP_BYTES*", Left, Right),
    ("OMAP_KEYS*", Left, Right),
    ("LOG", Left, Right),
    ("DISK_LOG", Left, Right),
];

fn sum_cells(s: &ObjectStatSum, log: i64, disk_log: i64) -> Vec<String> {
    [
        s.num_objects,
        s.num_objects_missing_on_primary,
        s.num_objects_degraded,
        s.num_objects_misplaced,
        s.num_objects_unfound,
        s.num_bytes,
        s.num_omap_bytes,
        s.num_omap_keys,
        log,
        disk_log,
    ]
    .iter()
    .map(i64::to_string)
    .collect()
}

pub(in crate::command) fn set_text(v: &[OsdId]) -> String {
    let t: Vec<String> = v.iter().map(|o| if *o == OsdId::NONE { "NONE".into() } else { o.0.to_string() }).collect();
    format!("[{}]", t.join(","))
}

/// All PGs as rows of a table.
pub(super) fn pgs_part(brief: bool, keep: &Keep, bare: bool) -> Part {
    let mut head: Vec<(&str, Align, Align)> = vec![("PG_STAT", Left, Left)];
    if !brief {
        head.extend(SUM_HEAD);
    }
    head.push(("STATE", Left, Right));
    if !brief {
        head.extend([("STATE_STAMP", Left, Right), ("VERSION", Left, Right), ("REPORTED", Left, Right)]);
    }
    head.extend([
        ("UP", Left, Right),
        ("UP_PRIMARY", Left, Right),
        ("ACTING", Left, Right),
        ("ACTING_PRIMARY", Left, Right),
    ]);
    if !brief {
        head.extend([
            ("LAST_SCRUB", Left, Right),
            ("SCRUB_STAMP", Left, Right),
            ("LAST_DEEP_SCRUB", Left, Right),
            ("DEEP_SCRUB_STAMP", Left, Right),
            ("SNAPTRIMQ_LEN", Left, Right),
        ]);
    }
    Part::Rows(Table::new(&head), Rc::new(move |id, s| pg_cells(id, s, brief)), Rc::clone(keep), bare)
}

fn pg_cells(id: PgId, s: &PgStat, brief: bool) -> Vec<String> {
    let mut row = vec![id.to_string()];
    if !brief {
        row.extend(sum_cells(&s.stats.sum, s.log_size, s.ondisk_log_size));
    }
    row.push(pg_state::to_string(s.state()));
    if !brief {
        row.extend([stamp(s.last_change), s.version.to_string(), format!("{}:{}", s.reported_epoch, s.reported_seq)]);
    }
    // The brief form prints holes of a set as numbers, as Ceph does.
    let set = if brief { crate::command::osd::dump::list } else { set_text };
    row.extend([set(&s.up), s.up_primary.0.to_string(), set(&s.acting), s.acting_primary.0.to_string()]);
    if !brief {
        row.extend([
            s.last_scrub.to_string(),
            stamp(s.last_scrub_stamp),
            s.last_deep_scrub.to_string(),
            stamp(s.last_deep_scrub_stamp),
            s.snaptrimq_len.to_string(),
        ]);
    }
    row
}

/// A table of sums by `key`; without `heading` its columns have no names.
fn sum_table(key: &'static str, heading: bool) -> Table {
    let mut head = vec![(key, Left, Left)];
    head.extend(SUM_HEAD);
    if !heading {
        head.iter_mut().for_each(|h| h.0 = "");
    }
    Table::new(&head)
}

fn pools_text(c: &Ctx<'_>, heading: bool) -> String {
    let mut t = sum_table("POOLID", heading);
    for id in c.state.osdmap.pools.keys().rev() {
        let p = c.state.mgr.stats.pool(*id);
        let mut row = vec![id.0.to_string()];
        row.extend(sum_cells(&p.stats.sum, p.log_size, p.ondisk_log_size));
        t.row(row);
    }
    t.render()
}

fn sum_text(c: &Ctx<'_>, heading: bool) -> String {
    let mut t = sum_table("PG_STAT", heading);
    let s = c.state.mgr.stats.sum();
    let mut row = vec!["sum".to_owned()];
    row.extend(sum_cells(&s.stats.sum, s.log_size, s.ondisk_log_size));
    t.row(row);
    t.render()
}

pub(super) fn osd_cells(s: &OsdStat) -> [String; 4] {
    let f = &s.statfs;
    [bytes(space::used(f)), bytes(unsigned(f.available)), bytes(space::used_raw(f)), bytes(unsigned(f.total))]
}

fn osds_text(c: &Ctx<'_>) -> String {
    let mut t = Table::new(&[
        ("OSD_STAT", Left, Left),
        ("USED", Left, Right),
        ("AVAIL", Left, Right),
        ("USED_RAW", Left, Right),
        ("TOTAL", Left, Right),
        ("HB_PEERS", Left, Right),
        ("PG_SUM", Left, Right),
        ("PRIMARY_PG_SUM", Left, Right),
    ]);
    let by = c.state.mgr.stats.by_osd();
    for (o, s) in c.state.mgr.stats.osds().rev() {
        let n = by.get(o).cloned().unwrap_or_default();
        let mut row = vec![o.0.to_string()];
        row.extend(osd_cells(s));
        row.extend([set_text(&s.hb_peers), (n.acting + n.up_not_acting).to_string(), n.primary.to_string()]);
        t.row(row);
    }
    let mut row = vec!["sum".to_owned()];
    row.extend(osd_cells(&c.state.mgr.stats.osd_sum()));
    t.row(row);
    t.render()
}

fn osd_sum_text(c: &Ctx<'_>) -> String {
    let mut t = Table::new(&[
        ("OSD_STAT", Left, Left),
        ("USED", Left, Right),
        ("AVAIL", Left, Right),
        ("USED_RAW", Left, Right),
        ("TOTAL", Left, Right),
    ]);
    let mut row = vec!["sum".to_owned()];
    row.extend(osd_cells(&c.state.mgr.stats.osd_sum()));
    t.row(row);
    t.render()
}

/// A blank line as wide as the first column of the next table; Ceph's tables without headings begin with one.
pub(super) fn gap(width: usize) -> String {
    format!("{}\n", " ".repeat(width))
}

pub(super) fn dump(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let mut what = c.args.list("dumpcontents");
    if what.is_empty() {
        what.push("all".into());
    }
    let has = |w: &str| what.iter().any(|x| x == w);
    let rs = format!("dumped {}", what.join(","));
    let keep: Keep = Rc::new(|_, _| true);
    let mut rows: Vec<fn(PgId, &PgStat) -> J> = Vec::new();
    if has("all") || has("pgs") {
        rows.push(pg_tree);
    }
    if has("pgs_brief") {
        rows.push(brief_tree);
    }
    let out = c.pg_lists("pg_info", || dump_tree(c, &has), &rows, &keep, || dump_text(c, &has, &keep));
    Ok(CommandOutcome { rs, ..out })
}

fn dump_tree(c: &Ctx<'_>, has: &dyn Fn(&str) -> bool) -> J {
    let mut j = obj! { "pg_ready": true };
    if has("all") {
        j.put("pg_map", full_tree(c));
    } else if has("summary") || has("sum") {
        j.put("pg_map", basic_tree(c));
    } else {
        if has("pools") {
            j.put("pool_stats", pools_tree(c));
        }
        if has("osds") {
            j.put("osd_stats", osds_tree(c));
        }
        if has("pgs") {
            j.put("pg_stats", J::Raw(HOLE.to_owned()));
        }
        if has("pgs_brief") {
            j.put("pg_stats", J::Raw(HOLE.to_owned()));
        }
        if has("delta") {
            j.put("delta", obj! { "pg_stats_delta": delta_tree(c) });
        }
    }
    j
}

fn dump_text(c: &Ctx<'_>, has: &dyn Fn(&str) -> bool, keep: &Keep) -> Vec<Part> {
    if has("all") {
        let mut s = gap(31);
        s += &pools_text(c, false);
        s += &gap(33);
        s += &sum_text(c, false);
        s += &osds_text(c);
        return vec![Part::Text(header(c)), pgs_part(false, keep, false), Part::Text(s + OMAP_NOTE)];
    }
    if has("summary") || has("sum") {
        let mut s = header(c);
        s += &sum_text(c, true);
        s += &osd_sum_text(c);
        return vec![Part::Text(s + OMAP_NOTE)];
    }
    let mut parts = Vec::new();
    if has("pgs_brief") {
        parts.push(pgs_part(true, keep, false));
    }
    if has("pgs") {
        parts.push(pgs_part(false, keep, false));
    }
    let mut s = String::new();
    if has("pools") {
        s += &pools_text(c, true);
    }
    if has("osds") {
        s += &osds_text(c);
    }
    if has("pgs") || has("pools") {
        s += OMAP_NOTE;
    }
    parts.push(Part::Text(s));
    parts
}

pub(super) fn dump_json(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    c.json_unless_asked();
    dump(c)
}

pub(super) fn dump_pools_json(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    c.json_unless_asked();
    let j = obj! { "pg_ready": true, "pool_stats": pools_tree(c) };
    Ok(CommandOutcome { rs: "dumped pools".into(), ..c.show("pg_info", &j)? })
}
