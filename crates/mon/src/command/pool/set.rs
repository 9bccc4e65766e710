//! `osd pool set`.

use super::make::{check_pgs_per_osd, check_rule, check_size, set_opt, unset_opt};
use super::{FLAG_VARS, csum_type};
use crate::command::units::{ParseResult, strict_float, strict_iec, strict_int};
use crate::command::{Cmd, CommandOutcome, Ctx, Refused, Res, cmd, committed, done, invalid, refuse};
use crate::state::pg_num::{set_pending, set_pg_num};
use base::{PoolId, errno};
use cluster::pool::{PgPool, PoolOpt, autoscale, flag};

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[cmd(
    "osd pool set pool:Poolname var:Choices(size|min_size|pg_num|pgp_num|pgp_num_actual|crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|hit_set_type|hit_set_period|hit_set_count|hit_set_fpp|use_gmt_hitset|target_max_bytes|target_max_objects|cache_target_dirty_ratio|cache_target_dirty_high_ratio|cache_target_full_ratio|cache_min_flush_age|cache_min_evict_age|min_read_recency_for_promote|min_write_recency_for_promote|fast_read|hit_set_grade_decay_rate|hit_set_search_last_n|scrub_min_interval|scrub_max_interval|deep_scrub_interval|recovery_priority|recovery_op_priority|scrub_priority|compression_mode|compression_algorithm|compression_required_ratio|compression_max_blob_size|compression_min_blob_size|csum_type|csum_max_block|csum_min_block|allow_ec_overwrites|allow_ec_optimizations|fingerprint_algorithm|pg_autoscale_mode|pg_autoscale_bias|pg_num_min|pg_num_max|target_size_bytes|target_size_ratio|dedup_tier|dedup_chunk_algorithm|dedup_cdc_chunk_size|eio|bulk|read_ratio) val:String yes_i_really_mean_it:Bool?",
    "osd",
    "rw",
    0,
    set,
    "set a parameter of a pool",
)];

fn edit(c: &mut Ctx<'_>, id: PoolId, f: impl FnOnce(&mut PgPool)) {
    if let Some(p) = c.pending.pool_mut(c.state, id) {
        f(p);
    }
}

fn int(r: ParseResult<i64>, val: &str, kind: &str) -> Res<i64> {
    r.map_err(|e| Refused::new(errno::EINVAL, format!("error parsing {kind} value '{val}': {e}")))
}

fn on_off(val: &str) -> Res<bool> {
    match val {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => invalid("expecting value 'true', 'false', '0', or '1'"),
    }
}

fn set(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let id = c.pool_id("pool")?;
    let (var, val) = (c.args.str("var")?, c.args.str("val")?);
    let map = c.map();
    let Some(p) = map.pool(id).cloned() else { return refuse(errno::ENOENT, "") };
    let sure = c.args.flag("yes_i_really_mean_it");
    match var.as_str() {
        "size" => set_size(c, id, &p, &val, sure)?,
        "min_size" => set_min_size(c, id, &p, &val)?,
        "pg_num" | "pg_num_actual" | "pgp_num" | "pgp_num_actual" => return pg_num(c, id, &p, &var, &val),
        "crush_rule" => {
            let Some(rule) = map.crush.rule_id(&val) else {
                return refuse(errno::ENOENT, format!("crush rule {val} does not exist"));
            };
            check_rule(&map, rule, p.kind, p.size)?;
            let rule = u8::try_from(rule).map_err(|_| Refused::new(errno::EINVAL, ""))?;
            edit(c, id, |p| p.crush_rule = rule);
        }
        v if FLAG_VARS.iter().any(|(n, _)| *n == v) => set_flag(c, id, v, &val, sure)?,
        "fast_read" => {
            let on = on_off(&val)?;
            if !p.is_erasure() {
                return invalid("fast read is not supported in replication pool");
            }
            edit(c, id, |p| p.fast_read = on);
        }
        "pg_autoscale_mode" => {
            let mode = match val.as_str() {
                "on" => autoscale::ON,
                "warn" => autoscale::WARN,
                "off" => autoscale::OFF,
                m => return invalid(format!("specified invalid mode {m}")),
            };
            edit(c, id, |p| p.pg_autoscale_mode = mode);
        }
        "allow_ec_overwrites" => return overwrites(c, id, &p, &val),
        "allow_ec_optimizations" => return optimizations(c, id, &p, &val),
        v if super::is_tier_var(v) => return refuse(errno::EACCES, ""),
        v if cluster::pool::POOL_OPT_NAMES.contains(&v) => {
            if option(c, id, v, &val)? {
                return committed(format!("unset pool {} {var}", id.0));
            }
        }
        v => return invalid(format!("unrecognized variable '{v}'")),
    }
    let note =
        if UNUSED.contains(&var.as_str()) { ", which only OSDs of Ceph look at: it has no effect on ours" } else { "" };
    committed(format!("set pool {} {var} to {val}{note}", id.0))
}

/// Sets the number of copies, and the `min_size` that goes with it.
fn set_size(c: &mut Ctx<'_>, id: PoolId, p: &PgPool, val: &str, sure: bool) -> Res<()> {
    if p.has_flag(flag::NOSIZECHANGE) {
        return refuse(
            errno::EPERM,
            "pool size change is disabled; you must unset nosizechange flag for the pool first",
        );
    }
    if p.is_erasure() {
        return refuse(errno::EOPNOTSUPP, "can not change the size of an erasure-coded pool");
    }
    let n = int(strict_int(val), val, "integer")?;
    let n = check_size(n)?;
    if n == 1 && !sure && p.size != 1 {
        return refuse(
            errno::EPERM,
            "WARNING: setting pool size 1 could lead to data loss without recovery. If you are *ABSOLUTELY CERTAIN* that is what you want, pass the flag --yes-i-really-mean-it.",
        );
    }
    check_rule(&c.map(), p.crush_rule.into(), p.kind, n)?;
    let min = c.state.options.min_size_for(n);
    edit(c, id, |p| {
        p.size = n;
        p.min_size = min;
    });
    Ok(())
}

fn set_min_size(c: &mut Ctx<'_>, id: PoolId, p: &PgPool, val: &str) -> Res<()> {
    if p.has_flag(flag::NOSIZECHANGE) {
        return refuse(
            errno::EPERM,
            "pool min size change is disabled; you must unset nosizechange flag for the pool first",
        );
    }
    let n = int(strict_int(val), val, "integer")?;
    // An erasure-coded pool with fewer shards than data shards cannot be read.
    let least = if p.is_erasure() { super::profile::find(&c.map(), &p.erasure_code_profile)?.1.k } else { 1 };
    let n = u8::try_from(n).ok().filter(|n| (least..=p.size).contains(n)).ok_or_else(|| {
        Refused::new(
            errno::EINVAL,
            format!("pool min_size must be between {least} and size, which is set to {}", p.size),
        )
    })?;
    edit(c, id, |p| p.min_size = n);
    Ok(())
}

/// Sets or clears a flag by name.
fn set_flag(c: &mut Ctx<'_>, id: PoolId, name: &str, val: &str, sure: bool) -> Res<()> {
    let bit = FLAG_VARS.iter().find(|(n, _)| *n == name).map_or(0, |(_, b)| *b);
    if name == "hashpspool" && !sure {
        return refuse(
            errno::EPERM,
            "are you SURE?  this will remap all placement groups in this pool, this triggers large data movement, pass --yes-i-really-mean-it if you really do.",
        );
    }
    let on = on_off(val)?;
    edit(c, id, |p| if on { p.flags |= bit } else { p.flags &= !bit });
    Ok(())
}

/// Options that the map keeps for Ceph's OSDs and that this program's OSDs do not read. These do not
/// deduplicate, have one checksum method and block size, and schedule recovery and scrubs by other means.
const UNUSED: [&str; 12] = [
    "csum_max_block",
    "csum_min_block",
    "csum_type",
    "dedup_cdc_chunk_size",
    "dedup_chunk_algorithm",
    "fast_read",
    "fingerprint_algorithm",
    "read_lease_interval",
    "read_ratio",
    "recovery_op_priority",
    "scrub_priority",
    "write_fadvise_dontneed",
];

/// Allows overwrites in an erasure-coded pool; this cannot be undone.
fn overwrites(c: &mut Ctx<'_>, id: PoolId, p: &PgPool, val: &str) -> Res<CommandOutcome> {
    if !p.is_erasure() {
        return invalid("ec overwrites can only be enabled for an erasure coded pool");
    }
    super::profile::check_overwrites(c.state, &c.map(), p)?;
    if !on_off(val)? {
        return invalid("ec overwrites cannot be disabled once enabled");
    }
    edit(c, id, |p| p.flags |= flag::EC_OVERWRITES);
    committed(format!("set pool {} allow_ec_overwrites to {val}", id.0))
}

/// Sets the flag for Tentacle's optimizations of an erasure-coded pool, for tools that look for it. The OSDs of this
/// program serve all pools alike.
fn optimizations(c: &mut Ctx<'_>, id: PoolId, p: &PgPool, val: &str) -> Res<CommandOutcome> {
    if !p.is_erasure() {
        return invalid("allow_ec_optimizations can only be enabled for an erasure coded pool");
    }
    if on_off(val)? {
        edit(c, id, |p| p.flags |= flag::EC_OPTIMIZATIONS);
    } else if p.has_flag(flag::EC_OPTIMIZATIONS) {
        return invalid("allow_ec_optimizations cannot be disabled once enabled");
    }
    committed(format!("set pool {} allow_ec_optimizations to {val}", id.0))
}

fn pg_num(c: &mut Ctx<'_>, id: PoolId, p: &PgPool, var: &str, val: &str) -> Res<CommandOutcome> {
    if p.has_flag(flag::NOPGCHANGE) {
        let v = if var.starts_with("pgp") { "pgp_num" } else { "pg_num" };
        return refuse(
            errno::EPERM,
            format!("pool {v} change is disabled; you must unset nopgchange flag for the pool first"),
        );
    }
    let n = int(strict_int(val), val, "integer")?;
    if var.starts_with("pgp") {
        return pgp_num(c, id, p, var, n);
    }
    if n == i64::from(p.pg_num_target) {
        return done("");
    }
    if n <= 0 || n > i64::from(c.state.options.pools.max_pg_num) {
        return refuse(
            errno::ERANGE,
            format!(
                "'pg_num' must be greater than 0 and less than or equal to {} (you may adjust 'mon max pool pg num' for higher values)",
                c.state.options.pools.max_pg_num
            ),
        );
    }
    for (opt, wrong) in [("pg_num_min", "<"), ("pg_num_max", ">")] {
        if let Some(PoolOpt::Int(limit)) = p.opt(opt)
            && (if wrong == "<" { n < *limit } else { n > *limit && *limit > 0 })
        {
            return invalid(format!("specified pg_num {n} {wrong} {opt} {limit}"));
        }
    }
    // The value fits: the limit is a u32.
    let n = n as u32;
    let actual = var == "pg_num_actual";
    if n < p.pg_num && actual {
        if p.pgp_num > n {
            return invalid(format!("pg_num {n} < pgp_num {}", p.pgp_num));
        }
        if n + 1 != p.pg_num || p.pg_num_pending != p.pg_num {
            return invalid(format!("pg_num {} can only be lowered by one at a time", p.pg_num));
        }
    } else if n > p.pg_num {
        check_pgs_per_osd(c, n - p.pg_num, p.size)?;
    }
    let epoch = c.state.osdmap.epoch.next();
    edit(c, id, |p| {
        // `pgp_num` follows `pg_num` unless the operator set it apart.
        if p.pgp_num_target == p.pg_num_target || p.pgp_num_target > n {
            p.pgp_num_target = n;
        }
        p.pg_num_target = n;
        if actual && n < p.pg_num {
            set_pending(p, n, epoch);
        } else if actual {
            set_pg_num(p, n, epoch);
        }
    });
    committed(format!("set pool {} {var} to {n}", id.0))
}

fn pgp_num(c: &mut Ctx<'_>, id: PoolId, p: &PgPool, var: &str, n: i64) -> Res<CommandOutcome> {
    if n <= 0 {
        return invalid(format!("specified pgp_num must > 0, but you set to {n}"));
    }
    let actual = var == "pgp_num_actual";
    let most = if actual { p.pg_num.min(p.pg_num_pending) } else { p.pg_num_target };
    if n > i64::from(most) {
        return invalid(format!("specified pgp_num {n} > pg_num {most}"));
    }
    let n = n as u32;
    let epoch = c.state.osdmap.epoch.next();
    edit(c, id, |p| {
        p.pgp_num_target = n;
        if actual {
            p.pgp_num = n;
            p.last_change = epoch;
        }
    });
    committed(format!("set pool {} {var} to {n}", id.0))
}

/// Refuses a bound of `pg_num` that its present target breaks.
fn check_pg_bounds(c: &mut Ctx<'_>, id: PoolId, name: &str, v: &PoolOpt) -> Res<()> {
    let PoolOpt::Int(n) = *v else { return Ok(()) };
    let map = c.map();
    let Some(now) = map.pool(id).map(|p| i64::from(p.pg_num_target)) else { return Ok(()) };
    match name {
        "pg_num_min" if n > now => invalid(format!("specified pg_num_min {n} > pg_num {now}")),
        // 0 removes the bound.
        "pg_num_max" if n < now && n != 0 => invalid(format!("specified pg_num_max {n} < pg_num {now}")),
        _ => Ok(()),
    }
}

/// Sets an option of a pool; true if the value removed it instead.
fn option(c: &mut Ctx<'_>, id: PoolId, name: &str, val: &str) -> Res<bool> {
    let number = |r: ParseResult<i64>| int(r, val, "int");
    let v = match name {
        "compression_mode"
        | "compression_algorithm"
        | "csum_type"
        | "fingerprint_algorithm"
        | "dedup_chunk_algorithm"
            if val == "unset" =>
        {
            edit(c, id, |p| unset_opt(p, name));
            return Ok(true);
        }
        "compression_mode" => match val {
            "none" | "passive" | "aggressive" | "force" => PoolOpt::Str(val.into()),
            _ => return invalid(format!("unrecognized compression mode '{val}'")),
        },
        "compression_algorithm" => match val {
            "none" | "snappy" | "zlib" | "zstd" | "lz4" => PoolOpt::Str(val.into()),
            _ => return invalid(format!("unrecognized compression_algorithm '{val}'")),
        },
        "csum_type" => match csum_type(val) {
            Some(n) => PoolOpt::Int(n),
            None => return invalid(format!("unrecognized csum type '{val}'")),
        },
        "fingerprint_algorithm" => match val {
            "sha1" | "sha256" | "sha512" => PoolOpt::Str(val.into()),
            _ => return invalid(format!("unrecognized fingerprint_algorithm '{val}'")),
        },
        "dedup_tier" if strict_int(val).is_ok() => return invalid("expecting value 'pool name'"),
        "dedup_tier" if c.map().pool(id).is_some_and(|p| p.is_erasure()) => {
            let name = c.args.str("pool")?;
            return refuse(errno::EOPNOTSUPP, format!("pool '{name}' is an ec pool, which cannot be a base tier"));
        }
        "dedup_tier" => return invalid("expecting value 'pool name'"),
        "dedup_chunk_algorithm" => match val {
            "fastcdc" | "fixed" => PoolOpt::Str(val.into()),
            _ => return invalid(format!("unrecognized dedup_chunk_algorithm '{val}'")),
        },
        "compression_required_ratio"
        | "target_size_ratio"
        | "pg_autoscale_bias"
        | "scrub_min_interval"
        | "scrub_max_interval"
        | "deep_scrub_interval"
        | "read_lease_interval" => PoolOpt::Float(fraction(name, val)?),
        "target_size_bytes"
        | "compression_max_blob_size"
        | "compression_min_blob_size"
        | "csum_max_block"
        | "csum_min_block" => PoolOpt::Int(number(strict_iec(val))?),
        _ => PoolOpt::Int(number(strict_int(val))?),
    };
    check_pg_bounds(c, id, name, &v)?;
    if name == "recovery_priority"
        && let PoolOpt::Int(n) = v
        && !(-10..=10).contains(&n)
    {
        return invalid("pool recovery_priority must be between -10 and 10");
    }
    // Zero removes the option, as in Ceph.
    let zero = matches!(v, PoolOpt::Int(0)) || matches!(v, PoolOpt::Float(f) if f == 0.0);
    edit(c, id, |p| if zero { unset_opt(p, name) } else { set_opt(p, name, v) });
    Ok(false)
}

/// The value of an option that is a fraction, within the option's bounds.
fn fraction(name: &str, val: &str) -> Res<f64> {
    let f = strict_float(val)
        .map_err(|e| Refused::new(errno::EINVAL, format!("error parsing float value '{val}': {e}")))?;
    if name == "compression_required_ratio" && !(0.0..=1.0).contains(&f) {
        return invalid(format!("compression_required_ratio is out of range (0-1): '{val}'"));
    }
    if name == "pg_autoscale_bias" && !(0.0..=1000.0).contains(&f) {
        return invalid("pg_autoscale_bias must be between 0 and 1000");
    }
    if name == "target_size_ratio" && f < 0.0 {
        return invalid("target_size_ratio cannot be negative");
    }
    Ok(f)
}
