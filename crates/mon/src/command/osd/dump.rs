//! The OSD map as a tree and as a text, which show the same fields.

use crate::command::Ctx;
use crate::command::units::short;
use crate::json::J;
use crate::obj;
use base::{AddrKind, AddrVec, EntityAddr, OsdId, PgId, PoolId, Utime};
use cluster::interval_set::IntervalSet;
use cluster::osdmap::{StretchMode, WEIGHT_IN, map_flag, osd_state};
use cluster::pool::{POOL_OPT_NAMES, PgMergeMeta, PgPool, PoolOpt};
use cluster::{OsdMap, release};
use std::collections::BTreeMap;

/// A time as Ceph prints it: a date, or seconds for anything within ten years of the epoch.
pub(in crate::command) fn stamp(t: Utime) -> String {
    if t.sec < 60 * 60 * 24 * 365 * 10 { format!("{}.{:06}", t.sec, t.nsec / 1000) } else { t.iso() }
}

/// `IP:PORT/NONCE` without the address type.
pub(in crate::command) fn plain_addr(a: &EntityAddr) -> String {
    a.sock.map_or_else(|| ":/0".to_owned(), |s| format!("{s}/{}", a.nonce))
}

/// The msgr1 address, for old clients.
pub(in crate::command) fn legacy_addr(v: Option<&AddrVec>) -> String {
    v.and_then(|v| v.legacy().or_else(|| v.0.first())).map_or_else(|| ":/0".to_owned(), plain_addr)
}

/// An address vector as a tree.
pub(in crate::command) fn addrvec(v: Option<&AddrVec>) -> J {
    let one = |a: &EntityAddr| {
        let kind = match a.kind {
            AddrKind::NONE => "none",
            AddrKind::LEGACY => "v1",
            AddrKind::MSGR2 => "v2",
            AddrKind::ANY => "any",
            _ => "???",
        };
        obj! { "type": kind, "addr": a.sock.map_or_else(|| "-".to_owned(), |s| s.to_string()), "nonce": a.nonce }
    };
    obj! { "addrvec": v.map(|v| v.0.iter().map(one).collect::<J>()).unwrap_or(J::Arr(Vec::new())) }
}

/// Names of an OSD's state bits in alphabetical order.
pub(in crate::command) fn state_names(bits: u32) -> Vec<&'static str> {
    let mut v: Vec<&str> = osd_state::NAMES.iter().filter(|(b, _)| bits & b != 0).map(|(_, n)| *n).collect();
    v.sort_unstable();
    v
}

/// Names of map flags.
pub(in crate::command) fn flag_names(flags: u32) -> String {
    let v: Vec<&str> =
        map_flag::NAMES.iter().filter(|(b, _)| flags & b & !map_flag::LEGACY_REQUIRE != 0).map(|(_, n)| *n).collect();
    v.join(",")
}

fn opt_value(v: &PoolOpt) -> (J, String) {
    match v {
        PoolOpt::Str(s) => (J::from(s), s.clone()),
        PoolOpt::Int(i) => (J::from(*i), i.to_string()),
        PoolOpt::Float(f) => (J::from(*f), short(*f)),
    }
}

/// A pool's options by name.
pub(in crate::command) fn pool_opts(p: &PgPool) -> BTreeMap<&'static str, (J, String)> {
    p.opts.iter().filter_map(|(k, v)| Some((*POOL_OPT_NAMES.get(usize::try_from(*k).ok()?)?, opt_value(v)))).collect()
}

fn interval_text(s: &IntervalSet) -> String {
    let v: Vec<String> = s.iter().map(|(a, n)| format!("{a:x}~{n:x}")).collect();
    format!("[{}]", v.join(","))
}

const CACHE_MODES: [&str; 7] = ["none", "writeback", "forward", "readonly", "readforward", "readproxy", "proxy"];

/// A pool's line in `osd dump`, without the line break.
pub(in crate::command) fn pool_text(id: PoolId, name: &str, p: &PgPool) -> String {
    let kind = if p.is_erasure() { format!("erasure profile {}", p.erasure_code_profile) } else { "replicated".into() };
    let mode = autoscale_name(p);
    let mut s = format!(
        "pool {} '{name}' {kind} size {} min_size {} crush_rule {} object_hash rjenkins pg_num {} pgp_num {}",
        id.0, p.size, p.min_size, p.crush_rule, p.pg_num, p.pgp_num
    );
    if p.pg_num_target != p.pg_num {
        s += &format!(" pg_num_target {}", p.pg_num_target);
    }
    if p.pgp_num_target != p.pgp_num {
        s += &format!(" pgp_num_target {}", p.pgp_num_target);
    }
    if p.pg_num_pending != p.pg_num {
        s += &format!(" pg_num_pending {}", p.pg_num_pending);
    }
    s += &format!(" autoscale_mode {mode} last_change {}", p.last_change);
    let lfor = [p.last_force_op_resend, p.last_force_op_resend_prenautilus, p.last_force_op_resend_preluminous];
    if lfor.iter().any(|e| e.0 != 0) {
        let [a, b, c] = lfor;
        s += &format!(" lfor {a}/{b}/{c}");
    }
    let flags: Vec<&str> = p.flag_names().collect();
    if !flags.is_empty() {
        s += &format!(" flags {}", flags.join(","));
    }
    if p.quota_max_bytes > 0 {
        s += &format!(" max_bytes {}", p.quota_max_bytes);
    }
    if p.quota_max_objects > 0 {
        s += &format!(" max_objects {}", p.quota_max_objects);
    }
    if !p.tiers.is_empty() {
        let t: Vec<String> = p.tiers.iter().map(u64::to_string).collect();
        s += &format!(" tiers {}", t.join(","));
    }
    for (key, tier) in [("tier_of", p.tier_of), ("read_tier", p.read_tier), ("write_tier", p.write_tier)] {
        if tier >= 0 {
            s += &format!(" {key} {tier}");
        }
    }
    s += &format!(" stripe_width {}", p.stripe_width);
    if p.expected_num_objects > 0 {
        s += &format!(" expected_num_objects {}", p.expected_num_objects);
    }
    if p.fast_read {
        s += " fast_read 1";
    }
    for (k, (_, text)) in pool_opts(p) {
        s += &format!(" {k} {text}");
    }
    if !p.application_metadata.is_empty() {
        let apps: Vec<&str> = p.application_metadata.keys().map(String::as_str).collect();
        s += &format!(" application {}", apps.join(","));
    }
    s
}

/// Name of a pool's autoscale mode.
pub(in crate::command) fn autoscale_name(p: &PgPool) -> &'static str {
    ["off", "warn", "on"].get(usize::from(p.pg_autoscale_mode)).copied().unwrap_or("???")
}

/// The lines of a pool's snapshots.
fn snap_text(p: &PgPool) -> String {
    p.snaps.values().map(|n| format!("\tsnap {} '{}' {}\n", n.snapid.0, n.name, n.stamp.iso())).collect()
}

/// Texts by two names.
fn named_texts(m: &BTreeMap<String, BTreeMap<String, String>>) -> J {
    let texts = |kv: &BTreeMap<String, String>| kv.iter().map(|(k, v)| (k.clone().into(), J::from(v))).collect();
    J::Obj(m.iter().map(|(name, kv)| (name.clone().into(), J::Obj(texts(kv)))).collect())
}

fn merge_tree(m: &PgMergeMeta) -> J {
    obj! {
        "source_pgid": m.source_pgid.to_string(),
        "ready_epoch": m.ready_epoch.0,
        "last_epoch_started": m.last_epoch_started.0,
        "last_epoch_clean": m.last_epoch_clean.0,
        "source_version": m.source_version.to_string(),
        "target_version": m.target_version.to_string(),
    }
}

/// The fields of a pool after its id and name.
pub(in crate::command) fn pool_tree(p: &PgPool) -> J {
    let snaps: J =
        p.snaps.values().map(|s| obj! { "snapid": s.snapid.0, "stamp": s.stamp.iso(), "name": &s.name }).collect();
    let stretch = p.stretch.unwrap_or_default();
    let cache_mode = CACHE_MODES.get(usize::from(p.cache_mode)).copied().unwrap_or("unknown");
    obj! {
        "create_time": p.create_time.iso(),
        "flags": p.flags,
        "flags_names": p.flag_names().collect::<Vec<_>>().join(","),
        "type": p.kind,
        "size": p.size,
        "min_size": p.min_size,
        "crush_rule": p.crush_rule,
        "peering_crush_bucket_count": stretch.bucket_count,
        "peering_crush_bucket_target": stretch.bucket_target,
        "peering_crush_bucket_barrier": stretch.bucket_barrier,
        "peering_crush_bucket_mandatory_member": p.stretch.map_or(cluster::crush::ITEM_NONE, |s| s.mandatory_member),
        "object_hash": p.object_hash,
        "pg_autoscale_mode": autoscale_name(p),
        "pg_num": p.pg_num,
        "pg_placement_num": p.pgp_num,
        "pg_placement_num_target": p.pgp_num_target,
        "pg_num_target": p.pg_num_target,
        "pg_num_pending": p.pg_num_pending,
        "last_pg_merge_meta": merge_tree(&p.last_pg_merge_meta),
        "last_change": p.last_change.to_string(),
        "last_force_op_resend": p.last_force_op_resend.to_string(),
        "last_force_op_resend_prenautilus": p.last_force_op_resend_prenautilus.to_string(),
        "last_force_op_resend_preluminous": p.last_force_op_resend_preluminous.to_string(),
        "auid": p.auid,
        "snap_mode": if p.is_pool_snaps_mode() { "pool" } else { "selfmanaged" },
        "snap_seq": p.snap_seq.0,
        "snap_epoch": p.snap_epoch.0,
        "pool_snaps": snaps,
        "removed_snaps": interval_text(&p.removed_snaps),
        "quota_max_bytes": p.quota_max_bytes,
        "quota_max_objects": p.quota_max_objects,
        "tiers": p.tiers.iter().copied().collect::<J>(),
        "tier_of": p.tier_of,
        "read_tier": p.read_tier,
        "write_tier": p.write_tier,
        "cache_mode": cache_mode,
        "target_max_bytes": p.target_max_bytes,
        "target_max_objects": p.target_max_objects,
        "cache_target_dirty_ratio_micro": p.cache_target_dirty_ratio_micro,
        "cache_target_dirty_high_ratio_micro": p.cache_target_dirty_high_ratio_micro,
        "cache_target_full_ratio_micro": p.cache_target_full_ratio_micro,
        "cache_min_flush_age": p.cache_min_flush_age,
        "cache_min_evict_age": p.cache_min_evict_age,
        "erasure_code_profile": &p.erasure_code_profile,
        "hit_set_params": obj! { "type": "none" },
        "hit_set_period": p.hit_set_period,
        "hit_set_count": p.hit_set_count,
        "use_gmt_hitset": p.use_gmt_hitset,
        "min_read_recency_for_promote": p.min_read_recency_for_promote,
        "min_write_recency_for_promote": p.min_write_recency_for_promote,
        "hit_set_grade_decay_rate": p.hit_set_grade_decay_rate,
        "hit_set_search_last_n": p.hit_set_search_last_n,
        "grade_table": Vec::<J>::new(),
        "stripe_width": p.stripe_width,
        "expected_num_objects": p.expected_num_objects,
        "fast_read": p.fast_read,
        "options": J::Obj(pool_opts(p).into_iter().map(|(k, (v, _))| (k.into(), v)).collect()),
        "application_metadata": named_texts(&p.application_metadata),
    }
}

fn affinity(map: &OsdMap, o: OsdId) -> f64 {
    f64::from(map.affinity(o)) / f64::from(WEIGHT_IN)
}

fn weight(map: &OsdMap, o: OsdId) -> f64 {
    f64::from(map.weight(o)) / f64::from(WEIGHT_IN)
}

pub(super) fn osd_text(map: &OsdMap, o: OsdId) -> String {
    let i = map.info(o);
    let mut s = format!("{o}{}", if map.is_up(o) { " up  " } else { " down" });
    s += if map.is_in(o) { " in " } else { " out" };
    s += &format!(" weight {}", short(weight(map, o)));
    if map.affinity(o) != WEIGHT_IN {
        s += &format!(" primary_affinity {}", short(affinity(map, o)));
    }
    s += &format!(
        " up_from {} up_thru {} down_at {} last_clean_interval [{},{})",
        i.up_from, i.up_thru, i.down_at, i.last_clean_begin, i.last_clean_end
    );
    if i.lost_at.0 != 0 {
        s += &format!(" lost_at {}", i.lost_at);
    }
    let none = AddrVec::default();
    s += &format!(
        " {} {} {}",
        map.client_addr(o).unwrap_or(&none),
        map.cluster_addr(o).unwrap_or(&none),
        state_names(map.state(o)).join(",")
    );
    if map.uuid(o) != base::id::Uuid::ZERO {
        s += &format!(" {}", map.uuid(o));
    }
    s
}

pub(super) fn osd_tree(map: &OsdMap, o: OsdId) -> J {
    let i = map.info(o);
    obj! {
        "osd": o.0,
        "uuid": map.uuid(o).to_string(),
        "up": i32::from(map.is_up(o)),
        "in": i32::from(map.is_in(o)),
        "weight": weight(map, o),
        "primary_affinity": affinity(map, o),
        "last_clean_begin": i.last_clean_begin.0,
        "last_clean_end": i.last_clean_end.0,
        "up_from": i.up_from.0,
        "up_thru": i.up_thru.0,
        "down_at": i.down_at.0,
        "lost_at": i.lost_at.0,
        "public_addrs": addrvec(map.client_addr(o)),
        "cluster_addrs": addrvec(map.cluster_addr(o)),
        "heartbeat_back_addrs": addrvec(map.hb_back_addr(o)),
        "heartbeat_front_addrs": addrvec(map.hb_front_addr(o)),
        "public_addr": legacy_addr(map.client_addr(o)),
        "cluster_addr": legacy_addr(map.cluster_addr(o)),
        "heartbeat_back_addr": legacy_addr(map.hb_back_addr(o)),
        "heartbeat_front_addr": legacy_addr(map.hb_front_addr(o)),
        "state": state_names(map.state(o)),
    }
}

/// The oldest release whose clients can use the map.
pub(in crate::command) fn min_compat_release(map: &OsdMap) -> &'static str {
    if !map.pg_upmap_primaries.is_empty() {
        return "reef";
    }
    if !map.pg_upmap.is_empty() || !map.pg_upmap_items.is_empty() || !map.crush.choose_args.is_empty() {
        return "luminous";
    }
    map.crush.tunables.min_required_version()
}

pub(in crate::command) fn list(v: &[OsdId]) -> String {
    let t: Vec<String> = v.iter().map(|o| o.0.to_string()).collect();
    format!("[{}]", t.join(","))
}

pub(super) fn dump_text(map: &OsdMap) -> String {
    let mut s = format!(
        "epoch {}\nfsid {}\ncreated {}\nmodified {}\nflags {}\ncrush_version {}\nfull_ratio {}\nbackfillfull_ratio {}\nnearfull_ratio {}\n",
        map.epoch,
        map.fsid,
        stamp(map.created),
        stamp(map.modified),
        flag_names(map.flags),
        map.crush_version,
        short(f64::from(map.full_ratio)),
        short(f64::from(map.backfillfull_ratio)),
        short(f64::from(map.nearfull_ratio)),
    );
    if map.require_min_compat_client > 0 {
        s += &format!("require_min_compat_client {}\n", release::name(map.require_min_compat_client));
    }
    s += &format!("min_compat_client {}\n", min_compat_release(map));
    if map.require_osd_release > 0 {
        s += &format!("require_osd_release {}\n", release::name(map.require_osd_release));
    }
    s += &format!("stretch_mode_enabled {}\n", map.stretch.enabled);
    for (id, p) in map.pools.iter() {
        s += &pool_text(*id, map.pool_name(*id).unwrap_or_default(), p);
        s.push('\n');
        s += &snap_text(p);
        if let Some(q) = map.removed_snaps_queue.get(id).filter(|q| !q.is_empty()) {
            s += &format!("\tremoved_snaps_queue {}\n", interval_text(q));
        }
    }
    s += &format!("max_osd {}\n", map.max_osd);
    for o in map.osds() {
        s += &osd_text(map, o);
        s.push('\n');
    }
    for (pg, v) in map.pg_upmap.iter() {
        s += &format!("pg_upmap {pg} {}\n", list(v));
    }
    for (pg, v) in map.pg_upmap_items.iter() {
        let t: Vec<String> = v.iter().map(|(a, b)| format!("{},{}", a.0, b.0)).collect();
        s += &format!("pg_upmap_items {pg} [{}]\n", t.join(","));
    }
    for (pg, o) in map.pg_upmap_primaries.iter() {
        s += &format!("pg_upmap_primary {pg} {}\n", o.0);
    }
    for (pg, v) in map.pg_temp.iter() {
        s += &format!("pg_temp {pg} {}\n", list(v));
    }
    for (pg, o) in map.primary_temp.iter() {
        s += &format!("primary_temp {pg} {}\n", o.0);
    }
    for (a, t) in map.blocklist.iter() {
        s += &format!("blocklist {} expires {}\n", plain_addr(&a.0), stamp(*t));
    }
    for (range, t) in map.range_blocklist.iter() {
        s += &format!("range blocklist cidr:{} expires {}\n", plain_addr(&range.0), stamp(*t));
    }
    s
}

fn snaps_by_pool(m: &BTreeMap<PoolId, IntervalSet>) -> J {
    m.iter()
        .map(|(p, s)| {
            let snaps: J = s.iter().map(|(a, n)| obj! { "begin": a, "length": n }).collect();
            obj! { "pool": p.0, "snaps": snaps }
        })
        .collect()
}

/// Names of the map flags that are set, sorted, without those of past releases.
fn flags_set(flags: u32) -> Vec<&'static str> {
    let mut set: Vec<&str> =
        map_flag::NAMES.iter().filter(|(b, _)| flags & b & !map_flag::LEGACY_REQUIRE != 0).map(|(_, n)| *n).collect();
    set.sort_unstable();
    set
}

fn xinfo_tree(map: &OsdMap, o: OsdId) -> J {
    let x = map.xinfo(o);
    obj! {
        "osd": o.0,
        "down_stamp": stamp(x.down_stamp),
        "laggy_probability": f64::from(x.laggy_probability) / f64::from(u32::MAX),
        "laggy_interval": x.laggy_interval,
        "features": x.features,
        "old_weight": f64::from(x.old_weight) / f64::from(WEIGHT_IN),
        "last_purged_snaps_scrub": stamp(x.last_purged_snaps_scrub),
        "dead_epoch": x.dead_epoch.0,
    }
}

fn stretch_tree(s: &StretchMode) -> J {
    obj! {
        "stretch_mode_enabled": s.enabled,
        "stretch_bucket_count": s.bucket_count,
        "degraded_stretch_mode": s.degraded,
        "recovering_stretch_mode": s.recovering,
        "stretch_mode_bucket": s.bucket,
    }
}

/// The whole OSD map as a tree.
pub(in crate::command) fn dump_tree(_c: &Ctx<'_>, map: &OsdMap) -> J {
    let pools: J = map
        .pools
        .iter()
        .map(|(id, p)| {
            let mut j = obj! { "pool": id.0, "pool_name": map.pool_name(*id).unwrap_or_default() };
            j.merge(pool_tree(p));
            j
        })
        .collect();
    let osds = |v: &[OsdId]| v.iter().map(|o| o.0).collect::<J>();
    let pg = |p: &PgId| p.to_string();
    let names = |bits: u32| state_names(bits).into_iter().collect::<J>();
    let node_flags = J::Obj(
        map.crush_node_flags
            .iter()
            .map(|(id, b)| (map.crush.name_of(*id).unwrap_or_default().to_owned().into(), names(*b)))
            .collect(),
    );
    let class_flags = J::Obj(
        map.device_class_flags
            .iter()
            .map(|(id, b)| (map.crush.class_names.get(id).cloned().unwrap_or_default().into(), names(*b)))
            .collect(),
    );
    let mut tree = obj! {
        "epoch": map.epoch.0,
        "fsid": map.fsid.to_string(),
        "created": stamp(map.created),
        "modified": stamp(map.modified),
        "last_up_change": stamp(map.last_up_change),
        "last_in_change": stamp(map.last_in_change),
        "flags": flag_names(map.flags),
        "flags_num": map.flags,
        "flags_set": flags_set(map.flags),
        "crush_version": map.crush_version,
        "full_ratio": map.full_ratio,
        "backfillfull_ratio": map.backfillfull_ratio,
        "nearfull_ratio": map.nearfull_ratio,
        "cluster_snapshot": &map.cluster_snapshot,
        "pool_max": map.pool_max,
        "max_osd": map.max_osd,
        "require_min_compat_client": release::name(map.require_min_compat_client),
        "min_compat_client": min_compat_release(map),
        "require_osd_release": release::name(map.require_osd_release),
        "pools": pools,
        "osds": map.osds().map(|o| osd_tree(map, o)).collect::<J>(),
        "osd_xinfo": map.osds().map(|o| xinfo_tree(map, o)).collect::<J>(),
        "pg_upmap": map.pg_upmap.iter().map(|(p, v)| obj! { "pgid": pg(p), "osds": osds(v) }).collect::<J>(),
        "pg_upmap_items": map.pg_upmap_items.iter().map(|(p, v)| {
            let m: J = v.iter().map(|(a, b)| obj! { "from": a.0, "to": b.0 }).collect();
            obj! { "pgid": pg(p), "mappings": m }
        }).collect::<J>(),
        "pg_temp": map.pg_temp.iter().map(|(p, v)| obj! { "pgid": pg(p), "osds": osds(v) }).collect::<J>(),
        "primary_temp": map.primary_temp.iter().map(|(p, o)| obj! { "pgid": pg(p), "osd": o.0 }).collect::<J>(),
        "blocklist": J::Obj(map.blocklist.iter().map(|(a, t)| (plain_addr(&a.0).into(), J::from(stamp(*t)))).collect()),
        "range_blocklist": J::Obj(map.range_blocklist.iter().map(|(a, t)| {
            (format!("cidr:{}", plain_addr(&a.0)).into(), J::from(stamp(*t)))
        }).collect()),
        "erasure_code_profiles": named_texts(&map.erasure_code_profiles),
        "removed_snaps_queue": snaps_by_pool(&map.removed_snaps_queue),
        "new_removed_snaps": snaps_by_pool(&map.new_removed_snaps),
        "new_purged_snaps": snaps_by_pool(&map.new_purged_snaps),
        "crush_node_flags": node_flags,
        "device_class_flags": class_flags,
        "stretch_mode": stretch_tree(&map.stretch),
    };
    put_primaries(&mut tree, map);
    tree
}

/// Adds the chosen primaries, as monitors since Reef show them.
fn put_primaries(tree: &mut J, map: &OsdMap) {
    if map.require_osd_release >= release::REEF || !map.pg_upmap_primaries.is_empty() {
        let all = map.pg_upmap_primaries.iter().map(|(p, o)| obj! { "pgid": p.to_string(), "primary_osd": o.0 });
        tree.put("pg_upmap_primaries", all.collect::<J>());
    }
}
