//! Making, removing and renaming pools.

use crate::command::{
    Cmd, CommandEffect, CommandOutcome, Ctx, Refused, Res, cmd, committed, done, flag as cf, invalid, refuse,
};
use base::{OsdId, PoolId, errno};
use cluster::pool::{POOL_OPT_NAMES, PgPool, PoolOpt, autoscale, flag, kind};
use cluster::{CrushMap, OsdMap};

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "osd pool create pool:Poolname pg_num:Int[0]? pgp_num:Int[0]? pool_type:Choices(replicated|erasure)? erasure_code_profile:String{[A-Za-z0-9-_.]}? rule:String? expected_num_objects:Int[0]? size:Int[0]? pg_num_min:Int[0]? pg_num_max:Int[0]? autoscale_mode:Choices(on|off|warn)? bulk:Bool? target_size_bytes:Int[0]? target_size_ratio:Float[0.0]?",
        "osd",
        "rw",
        0,
        create,
        "make a pool",
    ),
    cmd(
        "osd pool delete pool:Poolname pool2:Poolname? yes_i_really_really_mean_it:Bool? yes_i_really_really_mean_it_not_faking:Bool?",
        "osd",
        "rw",
        cf::DEPRECATED,
        remove,
        "remove a pool and all its data",
    ),
    cmd(
        "osd pool rm pool:Poolname pool2:Poolname? yes_i_really_really_mean_it:Bool? yes_i_really_really_mean_it_not_faking:Bool?",
        "osd",
        "rw",
        0,
        remove,
        "remove a pool and all its data",
    ),
    cmd("osd pool rename srcpool:Poolname destpool:Poolname", "osd", "rw", 0, rename, "rename a pool"),
];

/// Longest name of a pool, in bytes.
const NAME_MAX: usize = 2048;
/// The limit of PGs per OSD counts at least this many OSDs, so that small clusters can make pools.
const OSDS_ASSUMED: u64 = 3;

/// True if pools may keep more than one copy. The simulator checks this.
pub const REPLICATION: bool = true;

/// Checks a pool size (number of copies). Error: EINVAL.
pub(in crate::command) fn check_size(size: i64) -> Res<u8> {
    match u8::try_from(size) {
        Ok(n @ 1..=10) => Ok(n),
        _ => invalid("pool size must be between 1 and 10"),
    }
}

fn number(c: &Ctx<'_>, key: &str) -> Res<Option<u32>> {
    match c.args.int(key) {
        None => Ok(None),
        Some(0) => Ok(None),
        Some(n) => {
            u32::try_from(n).map(Some).map_err(|_| Refused::new(errno::ERANGE, format!("'{key}' is out of range")))
        }
    }
}

/// The redundancy of a new pool: copies or an erasure code.
struct Code {
    size: u8,
    min_size: u8,
    rule: i32,
    /// The CRUSH map with the new pool's own rule, if the command makes one.
    crush: Option<CrushMap>,
    profile: String,
    stripe_width: u32,
}

/// Refuses a rule of another kind, or whose size limits exclude the pool's size: clients up to Quincy would find no
/// OSDs.
pub(in crate::command) fn check_rule(map: &OsdMap, rule: i32, kind: u8, size: u8) -> Res<()> {
    match map.crush.rule(rule) {
        Some(r) if r.kind != kind => invalid(""),
        Some(r) if size < r.min_size => invalid("pool size is smaller than the crush rule min size"),
        Some(r) if size > r.max_size => invalid("pool size is bigger than the crush rule max size"),
        _ => Ok(()),
    }
}

/// The id of a rule by name. Error: ENOENT.
fn named_rule(map: &OsdMap, name: &str) -> Res<i32> {
    map.crush.rule_id(name).ok_or_else(|| Refused::new(errno::ENOENT, format!("specified rule {name} doesn't exist")))
}

/// The redundancy of a new replicated pool.
fn copies(c: &mut Ctx<'_>) -> Res<Code> {
    let rule = rule(c)?;
    let size = match c.args.int("size") {
        None | Some(0) => check_size(i64::from(c.state.options.pools.default_size))?,
        Some(n) => check_size(n)?,
    };
    check_rule(&c.map(), rule, kind::REPLICATED, size)?;
    let min_size = c.state.options.min_size_for(size);
    Ok(Code { size, min_size, rule, crush: None, profile: String::new(), stripe_width: 0 })
}

/// The redundancy of a new erasure-coded pool. Its size comes from the profile, whatever the command says.
fn coded(c: &mut Ctx<'_>, pool: &str) -> Res<Code> {
    let profile = c.args.opt("erasure_code_profile").filter(|n| !n.is_empty()).unwrap_or_else(|| "default".into());
    let map = c.map();
    let (p, shape) = super::profile::find(&map, &profile)?;
    let unit = crate::state::config::mon_option(c.state, "osd_pool_erasure_code_stripe_unit");
    let stripe_width = super::profile::stripe_width(&p, shape, &unit)?;
    let own = if profile == "default" { "erasure-code" } else { pool };
    let named = c.args.opt("rule").filter(|n| !n.is_empty());
    let mut crush = (*map.crush).clone();
    let (rule, made) = if named.is_some() || crush.rule_id(own).is_some() {
        let rule = named_rule(&map, named.as_deref().unwrap_or(own))?;
        check_rule(&map, rule, kind::ERASURE, shape.size())?;
        (rule, false)
    } else {
        (crate::command::crush::rule::add_erasure(&mut crush, own, &p, shape)?, true)
    };
    for (osd, _) in crush.rule_osd_shares(rule).into_iter().filter(|(_, share)| *share > 0.0) {
        super::profile::check_osd(c.state, OsdId(osd))?;
    }
    let (size, min_size, crush) = (shape.size(), shape.min_size(), made.then_some(crush));
    Ok(Code { size, min_size, rule, crush, profile, stripe_width })
}

/// A text argument that is not empty.
fn given(c: &Ctx<'_>, key: &str) -> Option<String> {
    c.args.opt(key).filter(|v| !v.is_empty())
}

/// The expected number of objects. A replicated pool has no profile, so its rule may stand in the profile's place, and
/// the number in the place of the rule.
fn expected_objects(c: &Ctx<'_>, kind: u8) -> Res<u64> {
    let in_place_of_rule = given(c, "rule").filter(|_| given(c, "erasure_code_profile").is_some());
    if let Some(text) = in_place_of_rule.filter(|_| kind == kind::REPLICATED) {
        let wrong = || Refused::new(errno::EINVAL, format!("error parsing integer value '{text}'"));
        return text.parse::<u32>().map(u64::from).map_err(|_| wrong());
    }
    Ok(number(c, "expected_num_objects")?.unwrap_or(0).into())
}

/// The rule of a new replicated pool.
fn rule(c: &mut Ctx<'_>) -> Res<i32> {
    let map = c.map();
    let (by_place, by_name) = (given(c, "erasure_code_profile"), given(c, "rule"));
    if let Some(name) = by_place.or(by_name) {
        return named_rule(&map, &name);
    }
    let wanted: i32 = crate::state::config::mon_option(c.state, "osd_pool_default_crush_rule").parse().unwrap_or(-1);
    if wanted >= 0 && map.crush.rule(wanted).is_some() {
        return Ok(wanted);
    }
    map.crush
        .rule_names
        .keys()
        .copied()
        .find(|r| map.crush.rule(*r).is_some_and(|r| r.kind == kind::REPLICATED))
        .ok_or_else(|| {
            Refused::new(
                errno::ENOENT,
                "no suitable CRUSH rule exists, check 'osd pool default crush *' config options",
            )
        })
}

pub(in crate::command) fn create(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("pool")?;
    if name.is_empty() {
        return invalid("");
    }
    if name.len() > NAME_MAX {
        return refuse(errno::ENAMETOOLONG, "pool name too long");
    }
    let default_type = crate::state::config::mon_option(c.state, "osd_pool_default_type");
    let (kind, kind_name) = match c.args.str_or("pool_type", &default_type).as_str() {
        "replicated" | "" => (kind::REPLICATED, "replicated"),
        "erasure" => (kind::ERASURE, "erasure"),
        other => return invalid(format!("unknown pool type '{other}'")),
    };
    let map = c.map();
    if let Some(id) = map.pool_by_name(&name) {
        if map.pool(id).is_some_and(|p| p.kind != kind) {
            return invalid(format!("pool '{name}' cannot change to type {kind_name}"));
        }
        // A pool of a command that is not committed yet: the answer waits for the commit.
        return if c.state.osdmap.pool(id).is_some() {
            done(format!("pool '{name}' already exists"))
        } else {
            Ok(CommandOutcome::retry())
        };
    }
    let pg_num = number(c, "pg_num")?.unwrap_or(c.state.options.pools.default_pg_num);
    let pgp_num = number(c, "pgp_num")?.unwrap_or(pg_num);
    check_pg_num(c, pg_num, pgp_num)?;
    let expected_num_objects = expected_objects(c, kind)?;
    let code = if kind == kind::ERASURE { coded(c, &name)? } else { copies(c)? };
    check_pgs_per_osd(c, pg_num, code.size)?;
    let mode = autoscale_mode(c)?;
    let crush_rule = u8::try_from(code.rule).map_err(|_| Refused::new(errno::EINVAL, "rule number out of range"))?;
    if let Some(crush) = &code.crush {
        crate::command::crush::edit::put(c, crush);
    }
    let mut pool = PgPool {
        kind,
        size: code.size,
        min_size: code.min_size,
        crush_rule,
        erasure_code_profile: code.profile,
        stripe_width: code.stripe_width,
        fast_read: kind == kind::ERASURE
            && crate::state::config::mon_option(c.state, "osd_pool_default_ec_fast_read") == "true",
        pg_num,
        pgp_num,
        pg_num_target: pg_num,
        pgp_num_target: pgp_num,
        pg_num_pending: pg_num,
        flags: flag::HASHPSPOOL | flag::CREATING,
        pg_autoscale_mode: mode,
        create_time: c.now.wall,
        expected_num_objects,
        hit_set_search_last_n: 0,
        last_change: c.state.osdmap.epoch.next(),
        ..PgPool::default()
    };
    set_given(c, &mut pool);
    let id = c.map().pool_max + 1;
    let inc = c.inc();
    inc.new_pool_max = i64::from(id);
    inc.new_pools.insert(PoolId(id.into()), pool);
    inc.new_pool_names.insert(PoolId(id.into()), name.clone());
    committed(format!("pool '{name}' created"))
}

fn check_pg_num(c: &Ctx<'_>, pg_num: u32, pgp_num: u32) -> Res<()> {
    let max = c.state.options.pools.max_pg_num;
    if pg_num == 0 || pg_num > max {
        return refuse(
            errno::ERANGE,
            format!(
                "'pg_num' must be greater than 0 and less than or equal to {max} (you may adjust 'mon max pool pg num' for higher values)"
            ),
        );
    }
    if pgp_num > pg_num {
        return refuse(
            errno::ERANGE,
            format!(
                "'pgp_num' must be greater than 0 and lower or equal than 'pg_num', which in this case is {pg_num}"
            ),
        );
    }
    Ok(())
}

/// The autoscale mode of a new pool: of the command, or the configured one.
fn autoscale_mode(c: &Ctx<'_>) -> Res<u8> {
    let mode = match c.args.opt("autoscale_mode") {
        Some(m) => m,
        None => crate::state::config::mon_option(c.state, "osd_pool_default_pg_autoscale_mode"),
    };
    match mode.as_str() {
        "on" => Ok(autoscale::ON),
        "warn" => Ok(autoscale::WARN),
        "off" => Ok(autoscale::OFF),
        m => invalid(format!("specified invalid mode {m}")),
    }
}

/// Sets the flags and options that the configuration or the command gives a new pool.
fn set_given(c: &Ctx<'_>, pool: &mut PgPool) {
    for (option, bit) in [
        ("osd_pool_default_flag_nodelete", flag::NODELETE),
        ("osd_pool_default_flag_nopgchange", flag::NOPGCHANGE),
        ("osd_pool_default_flag_nosizechange", flag::NOSIZECHANGE),
    ] {
        if crate::state::config::mon_option(c.state, option) == "true" {
            pool.flags |= bit;
        }
    }
    if c.args.flag("bulk") {
        pool.flags |= flag::BULK;
    }
    for key in ["pg_num_min", "pg_num_max", "target_size_bytes"] {
        if let Some(v) = c.args.int(key).filter(|v| *v > 0) {
            set_opt(pool, key, PoolOpt::Int(v));
        }
    }
    if let Some(v) = c.args.float("target_size_ratio").filter(|v| *v > 0.0) {
        set_opt(pool, "target_size_ratio", PoolOpt::Float(v));
    }
}

/// Sets an option by name.
pub(in crate::command) fn set_opt(p: &mut PgPool, name: &str, v: PoolOpt) {
    if let Some(k) = POOL_OPT_NAMES.iter().position(|n| *n == name) {
        p.opts.insert(k as i32, v);
    }
}

/// Removes an option by name.
pub(in crate::command) fn unset_opt(p: &mut PgPool, name: &str) {
    if let Some(k) = POOL_OPT_NAMES.iter().position(|n| *n == name) {
        p.opts.remove(&(k as i32));
    }
}

pub(in crate::command) fn check_pgs_per_osd(c: &mut Ctx<'_>, pg_num: u32, size: u8) -> Res<()> {
    let map = c.map();
    let per = u64::from(c.state.options.pools.max_pg_per_osd);
    let osds = (map.osds().filter(|o| map.is_in(*o)).count() as u64).max(OSDS_ASSUMED);
    let have: u64 = map.pools.values().map(|p| u64::from(p.pg_num) * u64::from(p.size)).sum();
    let want = have + u64::from(pg_num) * u64::from(size);
    if per > 0 && want > per * osds {
        return refuse(
            errno::ERANGE,
            format!(
                " pg_num {pg_num} size {size} would mean {want} total pgs, which exceeds max {} (mon_max_pg_per_osd {per} * num_in_osds {osds})",
                per * osds
            ),
        );
    }
    Ok(())
}

pub(in crate::command) fn remove(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("pool")?;
    let map = c.map();
    let Some(id) = map.pool_by_name(&name) else {
        return done(format!("pool '{name}' does not exist"));
    };
    let force = c.args.flag("yes_i_really_really_mean_it_not_faking");
    let sure = c.args.flag("yes_i_really_really_mean_it") || force;
    if c.args.opt("pool2").as_deref() != Some(name.as_str()) || !sure {
        return refuse(
            errno::EPERM,
            format!(
                "WARNING: this will *PERMANENTLY DESTROY* all data stored in pool {name}.  If you are *ABSOLUTELY CERTAIN* that is what you want, pass the pool name *twice*, followed by --yes-i-really-really-mean-it."
            ),
        );
    }
    if !c.state.options.pools.allow_delete {
        return refuse(
            errno::EPERM,
            "pool deletion is disabled; you must first set the mon_allow_pool_delete config option to true before you can destroy a pool",
        );
    }
    if c.pending.fsmap.as_ref().unwrap_or(&c.state.fs.map).uses_pool(id) {
        return refuse(errno::EBUSY, format!("pool '{name}' is in use by CephFS"));
    }
    let Some(pool) = map.pool(id).cloned() else { return done(format!("pool '{name}' does not exist")) };
    if pool.has_flag(flag::NODELETE) {
        return refuse(errno::EPERM, "pool deletion is disabled; you must unset nodelete flag for the pool first");
    }
    if pool.is_tier() || !pool.tiers.is_empty() {
        return refuse(errno::EBUSY, format!("pool '{name}' is a tier or has tiers"));
    }
    if c.state.osdmap.pool(id).is_none() {
        return Ok(CommandOutcome::retry());
    }
    let inc = c.inc();
    inc.new_pools.remove(&id);
    inc.new_pool_names.remove(&id);
    inc.old_pools.insert(id);
    // Entries of the map that name PGs of the pool are removed with it.
    let of = |p: &&base::PgId| p.pool == id;
    inc.new_pg_temp.extend(map.pg_temp.keys().filter(of).map(|p| (*p, Vec::new())));
    inc.new_primary_temp.extend(map.primary_temp.keys().filter(of).map(|p| (*p, OsdId(-1))));
    inc.new_pg_upmap.retain(|p, _| p.pool != id);
    inc.new_pg_upmap_items.retain(|p, _| p.pool != id);
    inc.new_pg_upmap_primary.retain(|p, _| p.pool != id);
    inc.old_pg_upmap_primary.extend(map.pg_upmap_primaries.keys().filter(of).copied());
    inc.old_pg_upmap.extend(map.pg_upmap.keys().filter(of).copied());
    inc.old_pg_upmap_items.extend(map.pg_upmap_items.keys().filter(of).copied());
    if map.crush.choose_args.contains_key(&id.0) {
        let mut crush = (*map.crush).clone();
        crush.choose_args.remove(&id.0);
        crate::command::crush::edit::put(c, &crush);
    }
    let mut out = CommandOutcome::committed(format!("pool '{name}' removed"));
    out.effects.push(CommandEffect::ForgetPool(id));
    Ok(out)
}

fn rename(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (src, dest) = (c.args.str("srcpool")?, c.args.str("destpool")?);
    let map = c.map();
    let taken = map.pool_by_name(&dest);
    let Some(id) = map.pool_by_name(&src) else {
        return if taken.is_some() {
            done(format!("pool '{src}' does not exist; pool '{dest}' does -- assuming successful rename"))
        } else {
            refuse(errno::ENOENT, format!("unrecognized pool '{src}'"))
        };
    };
    if taken.is_some() {
        return refuse(errno::EEXIST, format!("pool '{dest}' already exists"));
    }
    if dest.is_empty() || dest.len() > NAME_MAX {
        return invalid("");
    }
    c.inc().new_pool_names.insert(id, dest.clone());
    committed(format!("pool '{src}' renamed to '{dest}'"))
}
