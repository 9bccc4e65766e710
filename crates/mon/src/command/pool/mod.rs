//! Commands that show pools, and those on quotas and on the autoscaler's view.
//!
//! | module | contents |
//! | --- | --- |
//! | `app` | `osd pool application`: the applications that use a pool, with their metadata |
//! | `df` | `df`: space of the cluster, of device classes and of pools |
//! | `make` | making, removing and renaming pools |
//! | `profile` | erasure-code profiles: set, shown, removed |
//! | `set` | `osd pool set` |
//! | `snap` | pool snapshots |

pub(super) mod app;
pub(super) mod df;
pub(super) mod make;
pub(super) mod profile;
pub(super) mod set;
pub(super) mod snap;

use super::language::text::{Column, Table};
use super::osd::dump::{autoscale_name, pool_opts, pool_text, pool_tree};
use super::units::{bytes, count, strict_iec, strict_si, unsigned};
use super::{Cmd, CommandOutcome, Ctx, Refused, Res, cmd, committed, flag as cf, invalid, refuse};
use crate::json::J;
use crate::obj;
use crate::state::balance;
use base::{PoolId, errno};
use cluster::pool::{POOL_OPT_NAMES, PgPool, PoolOpt, flag};
use mgr::balance::ReadScore;
use mgr::stats::autoscale::{Sizing, number, sizes};
use mgr::stats::space;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// The signature of `osd pool get`, with its variables in the order of `all`.
pub(super) const GET_VARS: &str = "osd pool get pool:Poolname var:Choices(size|min_size|pg_num|pgp_num|crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|hit_set_type|hit_set_period|hit_set_count|hit_set_fpp|use_gmt_hitset|target_max_objects|target_max_bytes|cache_target_dirty_ratio|cache_target_dirty_high_ratio|cache_target_full_ratio|cache_min_flush_age|cache_min_evict_age|erasure_code_profile|min_read_recency_for_promote|all|min_write_recency_for_promote|fast_read|hit_set_grade_decay_rate|hit_set_search_last_n|scrub_min_interval|scrub_max_interval|deep_scrub_interval|recovery_priority|recovery_op_priority|scrub_priority|compression_mode|compression_algorithm|compression_required_ratio|compression_max_blob_size|compression_min_blob_size|csum_type|csum_max_block|csum_min_block|allow_ec_overwrites|allow_ec_optimizations|fingerprint_algorithm|pg_autoscale_mode|pg_autoscale_bias|pg_num_min|pg_num_max|target_size_bytes|target_size_ratio|dedup_tier|dedup_chunk_algorithm|dedup_cdc_chunk_size|eio|bulk|read_ratio)";

/// Commands of this module.
pub(super) const COMMANDS: &[Cmd] = &[
    cmd("osd pool ls detail:Choices(detail)?", "osd", "r", 0, ls, "list pools"),
    cmd(GET_VARS, "osd", "r", 0, get, "show a parameter of a pool"),
    cmd(
        "osd pool set-quota pool:Poolname field:Choices(max_objects|max_bytes) val:String",
        "osd",
        "rw",
        0,
        set_quota,
        "limit the objects or bytes of a pool",
    ),
    cmd("osd pool get-quota pool:Poolname", "osd", "r", 0, get_quota, "show the limits of a pool"),
    cmd(
        "osd pool autoscale-status format:String?",
        "mgr",
        "r",
        cf::MGR,
        autoscale_status,
        "show how pg_num fits each pool",
    ),
];

fn ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    let detail = c.args.opt("detail").is_some_and(|d| d == "detail");
    let reads = if detail { balance::read_scores(c.state) } else { Arc::default() };
    let tree = || {
        map.pools
            .iter()
            .map(|(id, p)| {
                let name = map.pool_name(*id).unwrap_or_default();
                if !detail {
                    return J::from(name);
                }
                let mut j = obj! { "pool_id": id.0, "pool_name": name };
                j.merge(pool_tree(p));
                if let Some(s) = reads.get(id) {
                    j.put("read_balance", read_balance(*id, s));
                }
                j
            })
            .collect::<J>()
    };
    let text = || {
        let mut s = String::new();
        for (id, p) in map.pools.iter() {
            let name = map.pool_name(*id).unwrap_or_default();
            let read = reads.get(id).map_or(String::new(), |s| format!(" read_balance_score {:.2}", s.score));
            let r = if detail { writeln!(s, "{}{read}", pool_text(*id, name, p)) } else { writeln!(s, "{name}") };
            debug_assert!(r.is_ok(), "writing to a String");
        }
        if detail {
            s.push('\n');
        }
        s
    };
    c.tree("pools", tree).text(text)
}

/// The read balance of a pool in Ceph's words. Temporary primaries do not count here.
fn read_balance(id: PoolId, s: &ReadScore) -> J {
    let mut j = obj! {
        "score_type": "Fair distribution",
        "score_acting": s.score,
        "score_stable": s.score,
        "optimal_score": s.optimal,
        "raw_score_acting": s.raw,
        "raw_score_stable": s.raw,
        "average_primary_affinity": s.average_affinity,
    };
    if s.reluctant {
        let text = "has acting primaries on OSD(s) with primary affinity 0, read balance score is not accurate";
        j.put("error_message", J::from(format!("pool {} {text}", id.0)));
    }
    j
}

const TIER_VARS: [&str; 15] = [
    "hit_set_type",
    "hit_set_period",
    "hit_set_count",
    "hit_set_fpp",
    "target_max_objects",
    "target_max_bytes",
    "cache_target_dirty_ratio",
    "cache_target_dirty_high_ratio",
    "cache_target_full_ratio",
    "cache_min_flush_age",
    "cache_min_evict_age",
    "min_read_recency_for_promote",
    "min_write_recency_for_promote",
    "hit_set_grade_decay_rate",
    "hit_set_search_last_n",
];

/// Variables of erasure-coded pools.
const EC_VARS: [&str; 3] = ["erasure_code_profile", "allow_ec_overwrites", "allow_ec_optimizations"];

/// Pool flags that are variables of `osd pool get` and `osd pool set`.
pub(super) const FLAG_VARS: [(&str, u64); 9] = [
    ("hashpspool", flag::HASHPSPOOL),
    ("nodelete", flag::NODELETE),
    ("nopgchange", flag::NOPGCHANGE),
    ("nosizechange", flag::NOSIZECHANGE),
    ("write_fadvise_dontneed", flag::WRITE_FADVISE_DONTNEED),
    ("noscrub", flag::NOSCRUB),
    ("nodeep-scrub", flag::NODEEP_SCRUB),
    ("eio", flag::EIO),
    ("bulk", flag::BULK),
];

const CSUM_TYPES: [&str; 7] = ["?", "none", "xxhash32", "xxhash64", "crc32c", "crc32c_16", "crc32c_8"];

/// The number of a checksum type; `None` for an unknown name.
pub(super) fn csum_type(name: &str) -> Option<i64> {
    CSUM_TYPES.iter().skip(1).position(|n| *n == name).map(|i| i as i64 + 1)
}

/// The value of a variable as a tree and as text; `None` if it does not apply or is not set.
fn value(c: &Ctx<'_>, p: &PgPool, var: &str) -> Option<(J, String)> {
    if let Some((_, bit)) = FLAG_VARS.iter().find(|(n, _)| *n == var) {
        let on = p.has_flag(*bit);
        return Some((on.into(), on.to_string()));
    }
    let int = |v: i64| Some((J::from(v), v.to_string()));
    match var {
        "size" => int(p.size.into()),
        "min_size" => int(p.min_size.into()),
        "pg_num" => int(p.pg_num.into()),
        "pgp_num" => int(p.pgp_num.into()),
        "crush_rule" => {
            let rule = i32::from(p.crush_rule);
            let n = c.state.osdmap.crush.rule_name(rule).map_or_else(|| rule.to_string(), str::to_owned);
            Some((J::from(&n), n))
        }
        "use_gmt_hitset" => Some((p.use_gmt_hitset.into(), i32::from(p.use_gmt_hitset).to_string())),
        "fast_read" => int(p.fast_read.into()),
        "pg_autoscale_mode" => Some((autoscale_name(p).into(), autoscale_name(p).into())),
        "erasure_code_profile" if p.is_erasure() => {
            Some((J::from(&p.erasure_code_profile), p.erasure_code_profile.clone()))
        }
        "allow_ec_overwrites" | "allow_ec_optimizations" if p.is_erasure() => {
            let bit = if var == "allow_ec_overwrites" { flag::EC_OVERWRITES } else { flag::EC_OPTIMIZATIONS };
            let on = p.has_flag(bit);
            Some((on.into(), on.to_string()))
        }
        "csum_type" => match p.opt("csum_type") {
            Some(PoolOpt::Int(v)) => {
                let n = usize::try_from(*v).ok().and_then(|i| CSUM_TYPES.get(i)).copied().unwrap_or("?");
                Some((n.into(), n.into()))
            }
            _ => None,
        },
        _ => pool_opts(p).remove(var),
    }
}

/// The variables of `all` before the pool's options.
const FIRST_VARS: [&str; 16] = [
    "size",
    "min_size",
    "pg_num",
    "pgp_num",
    "crush_rule",
    "hashpspool",
    "allow_ec_overwrites",
    "nodelete",
    "nopgchange",
    "nosizechange",
    "write_fadvise_dontneed",
    "noscrub",
    "nodeep-scrub",
    "use_gmt_hitset",
    "erasure_code_profile",
    "fast_read",
];

/// The variables of `all`, in Ceph's order. `pg_autoscale_mode` is no pool option, but stands among them.
fn all_vars() -> impl Iterator<Item = &'static str> {
    let options = POOL_OPT_NAMES.into_iter().filter(|n| !matches!(*n, "read_lease_interval" | "read_ratio"));
    let options = options.flat_map(|n| [(n == "pg_num_min").then_some("pg_autoscale_mode"), Some(n)]).flatten();
    FIRST_VARS.into_iter().chain(options).chain(["bulk", "allow_ec_optimizations"])
}

fn pool(c: &mut Ctx<'_>) -> Res<(PoolId, String, Arc<PgPool>)> {
    let name = c.args.str("pool")?;
    let map = c.state.osdmap.clone();
    let found = map.pool_by_name(&name).and_then(|id| Some((id, map.pool(id)?.clone())));
    let (id, p) = found.ok_or_else(|| Refused::new(errno::ENOENT, format!("unrecognized pool '{name}'")))?;
    Ok((id, name, p))
}

fn get(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (id, name, p) = pool(c)?;
    let var = c.args.str("var")?;
    let vars: Vec<&str> = if var == "all" {
        all_vars().collect()
    } else {
        if TIER_VARS.contains(&var.as_str()) && !p.is_tier() {
            return refuse(errno::EACCES, format!("pool '{name}' is not a tier pool: variable not applicable"));
        }
        if EC_VARS.contains(&var.as_str()) && !p.is_erasure() {
            return refuse(errno::EACCES, format!("pool '{name}' is not a erasure pool: variable not applicable"));
        }
        let known = all_vars().any(|v| v == var)
            || FLAG_VARS.iter().any(|(n, _)| *n == var)
            || POOL_OPT_NAMES.contains(&var.as_str());
        if !known {
            return invalid(format!("pool '{name}': invalid variable: '{var}'"));
        }
        if value(c, &p, &var).is_none() {
            return refuse(errno::ENOENT, format!("option '{var}' is not set on pool '{name}'"));
        }
        vec![&var]
    };
    let mut j = obj! { "pool": &name, "pool_id": id.0 };
    let mut s = String::new();
    for v in vars {
        // Pacific does not have this variable, so `all` shows it only if it is set.
        if var == "all" && v == "allow_ec_optimizations" && !p.has_flag(flag::EC_OPTIMIZATIONS) {
            continue;
        }
        if let Some((tree, text)) = value(c, &p, v) {
            j.put(v.to_owned(), tree);
            s += &format!("{v}: {text}\n");
        }
    }
    c.tree("pool", || j).text(|| s)
}

fn set_quota(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let id = c.pool_id("pool")?;
    let (name, field, val) = (c.args.str("pool")?, c.args.str("field")?, c.args.str("val")?);
    let parsed = match field.as_str() {
        "max_objects" => strict_si(&val),
        "max_bytes" => strict_iec(&val),
        f => return invalid(format!("unrecognized field '{f}'; should be 'max_bytes' or 'max_objects'")),
    };
    let v = parsed.map_err(|e| Refused::new(errno::EINVAL, format!("error parsing value '{val}': {e}")))?;
    let v = u64::try_from(v).map_err(|_| Refused::new(errno::EINVAL, format!("error parsing value '{val}'")))?;
    if let Some(p) = c.pending.pool_mut(c.state, id) {
        if field == "max_bytes" {
            p.quota_max_bytes = v;
        } else {
            p.quota_max_objects = v;
        }
    }
    committed(format!("set-quota {field} = {v} for pool {name}"))
}

fn get_quota(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (id, name, p) = pool(c)?;
    let sum = c.state.mgr.stats.pool(id).stats.sum;
    let tree = || {
        obj! {
            "pool_name": &name,
            "pool_id": id.0,
            "quota_max_objects": p.quota_max_objects,
            "current_num_objects": sum.num_objects,
            "quota_max_bytes": p.quota_max_bytes,
            "current_num_bytes": sum.num_bytes,
        }
    };
    let text = || {
        let objects = match p.quota_max_objects {
            0 => "N/A".to_owned(),
            n => format!("{} objects  (current num objects: {} objects)", count(n), sum.num_objects),
        };
        let size = match p.quota_max_bytes {
            0 => "N/A".to_owned(),
            n => format!("{}  (current num bytes: {} bytes)", bytes(n), sum.num_bytes),
        };
        format!("quotas for pool '{name}':\n  max objects: {objects}\n  max bytes  : {size}\n")
    };
    c.tree("pool_quotas", tree).line().text(text)
}

/// The value of `mon_target_pg_per_osd`.
pub(crate) fn pgs_per_osd(state: &crate::state::ClusterState) -> u32 {
    crate::state::config::mon_option(state, "mon_target_pg_per_osd").parse().unwrap_or(100)
}

/// A pool with the figures that the autoscaler uses.
struct Scaled<'a> {
    id: PoolId,
    name: &'a str,
    pool: &'a PgPool,
    usage: space::PoolUsage,
    rate: f64,
    total: i64,
    size: Sizing,
}

impl Scaled<'_> {
    fn opt(&self, name: &str) -> f64 {
        number(self.pool, name)
    }

    fn bias(&self) -> f64 {
        if self.pool.opt("pg_autoscale_bias").is_some() { self.opt("pg_autoscale_bias") } else { 1.0 }
    }

    fn is_bulk(&self) -> bool {
        self.pool.has_flag(flag::BULK)
    }

    /// `target_size_bytes` in bytes; `None` if it is not set, or if `target_size_ratio` is.
    fn target(&self) -> Option<u64> {
        let wanted = self.opt("target_size_bytes");
        (wanted > 0.0 && self.opt("target_size_ratio") == 0.0).then_some(wanted as u64)
    }

    fn tree(&self) -> J {
        let (p, u, size) = (self.pool, &self.usage, &self.size);
        obj! {
            "actual_capacity_ratio": size.actual_ratio,
            "actual_raw_used": u.used as f64,
            "bias": self.bias(),
            "bulk": self.is_bulk(),
            "capacity_ratio": size.share,
            "crush_root_id": -1,
            "effective_target_ratio": size.effective_ratio,
            "logical_used": u.stored,
            "pg_autoscale_mode": autoscale_name(p),
            "pg_num_final": size.pg_num,
            "pg_num_ideal": size.ideal as u32,
            "pg_num_target": p.pg_num_target,
            "pool_id": self.id.0,
            "pool_name": self.name,
            "raw_used": u.used as f64,
            "raw_used_rate": self.rate,
            "subtree_capacity": self.total,
            "target_bytes": self.opt("target_size_bytes") as i64,
            "target_ratio": self.opt("target_size_ratio"),
            "would_adjust": size.would_adjust,
        }
    }
}

/// Columns of `osd pool autoscale-status`.
fn scaled_columns<'a>() -> [Column<Scaled<'a>>; 13] {
    /// A ratio, blank if it is zero.
    fn ratio(v: f64) -> String {
        if v > 0.0 { format!("{v:.4}") } else { String::new() }
    }
    [
        Column::left("POOL", |r| r.name.to_owned()),
        Column::right("SIZE", |r| megabytes(r.usage.stored)),
        Column::right("TARGET SIZE", |r| r.target().map(megabytes).unwrap_or_default()),
        Column::right("RATE", |r| format!("{:.1}", r.rate)),
        Column::right("RAW CAPACITY", |r| megabytes(unsigned(r.total))),
        Column::right("RATIO", |r| format!("{:.4}", r.size.share)),
        Column::right("TARGET RATIO", |r| ratio(r.opt("target_size_ratio"))),
        Column::right("EFFECTIVE RATIO", |r| ratio(r.size.effective_ratio)),
        Column::right("BIAS", |r| format!("{:.1}", r.bias())),
        Column::right("PG_NUM", |r| r.pool.pg_num_target.to_string()),
        Column::right("NEW PG_NUM", |r| if r.size.would_adjust { r.size.pg_num.to_string() } else { String::new() }),
        Column::left("AUTOSCALE", |r| autoscale_name(r.pool).to_owned()),
        Column::left("BULK", |r| if r.is_bulk() { "True".into() } else { "False".into() }),
    ]
}

fn autoscale_status(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (map, st) = (c.state.osdmap.clone(), &c.state.mgr.stats);
    let sizes: BTreeMap<PoolId, Sizing> = sizes(st, &map, pgs_per_osd(c.state)).into_iter().collect();
    let mut rows = Vec::new();
    let mut usages = space::Usages::new(st, &map);
    for (id, pool) in map.pools.iter() {
        rows.push(Scaled {
            id: *id,
            name: map.pool_name(*id).unwrap_or_default(),
            pool,
            usage: usages.of(*id, pool),
            rate: space::raw_rate(&map, pool),
            total: st.osd_sum().statfs.total,
            size: sizes.get(id).copied().unwrap_or_default(),
        });
    }
    // Ceph ends each line with the two spaces of a further, empty column.
    let text = || Table::of(&scaled_columns(), &rows).render().lines().map(|l| format!("{l}  \n")).collect::<String>();
    c.tree("pools", || rows.iter().map(Scaled::tree).collect::<J>()).written(J::pretty).text(text)
}

fn megabytes(bytes: u64) -> String {
    let (mut v, mut unit) = (bytes as f64, 0);
    while v >= 10_000.0 && unit < 6 {
        v /= 1024.0;
        unit += 1;
    }
    format!("{}{}", v as u64, ["", "k", "M", "G", "T", "P", "E"].get(unit).copied().unwrap_or(""))
}

/// True for variables of cache tiers (also `use_gmt_hitset`, which `get` shows for any pool).
pub(super) fn is_tier_var(v: &str) -> bool {
    TIER_VARS.contains(&v) || v == "use_gmt_hitset"
}
