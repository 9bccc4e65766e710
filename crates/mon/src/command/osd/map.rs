//! Changes of placement and of the map's settings: temporary sets and primaries, blocklist, ratios, required releases.

use super::dump::plain_addr;
use crate::command::units::short;
use crate::command::{Cmd, CommandOutcome, Ctx, Refused, Res, cmd, committed, done, flag as cf, invalid, refuse};
use crate::json::J;
use crate::state::primaries;
use base::{AddrKind, EntityAddr, EntityKind, OsdId, PgId, Utime, errno};
use cluster::osdmap::AddrKey;
use cluster::{CrushMap, Incremental, OsdMap, release};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::{Decode, Features};

const BLOCK: &str =
    "osd blocklist range:String{[range]}? blocklistop:Choices(add|rm) addr:EntityAddr expire:Float[0.0]?";
const BLACK: &str = "osd blacklist blacklistop:Choices(add|rm) addr:EntityAddr expire:Float[0.0]?";

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("osd pg-temp pgid:Pgid id:OsdName*?", "osd", "rw", 0, pg_temp, "set a PG's temporary acting set"),
    cmd(
        "osd primary-temp pgid:Pgid id:OsdName",
        "osd",
        "rw",
        0,
        primary_temp,
        "set a PG's temporary primary; osd rm-primary-temp removes it",
    ),
    cmd("osd rm-primary-temp pgid:Pgid", "osd", "rw", 0, rm_primary_temp, "remove a PG's temporary primary"),
    cmd("osd blocklist ls", "osd", "r", 0, blocklist_ls, "list the blocklist"),
    cmd("osd blocklist clear", "osd", "rw", 0, blocklist_clear, "remove all entries from the blocklist"),
    cmd(BLOCK, "osd", "rw", 0, |c| blocklist(c, "blocklistop"), "add a client to the blocklist, or remove it"),
    cmd("osd blacklist ls", "osd", "r", cf::DEPRECATED, blocklist_ls, "list the blocklist"),
    cmd("osd blacklist clear", "osd", "rw", cf::DEPRECATED, blocklist_clear, "remove all entries from the blocklist"),
    cmd(
        BLACK,
        "osd",
        "rw",
        cf::DEPRECATED,
        |c| blocklist(c, "blacklistop"),
        "add a client to the blocklist, or remove it",
    ),
    cmd(
        "osd set-full-ratio ratio:Float[0.0|1.0]",
        "osd",
        "rw",
        0,
        |c| ratio(c, "full"),
        "set the usage that stops writes",
    ),
    cmd(
        "osd set-backfillfull-ratio ratio:Float[0.0|1.0]",
        "osd",
        "rw",
        0,
        |c| ratio(c, "backfillfull"),
        "set the usage that stops backfill",
    ),
    cmd(
        "osd set-nearfull-ratio ratio:Float[0.0|1.0]",
        "osd",
        "rw",
        0,
        |c| ratio(c, "nearfull"),
        "set the usage that raises a warning",
    ),
    cmd(
        "osd require-osd-release release:Choices(luminous|mimic|nautilus|octopus|pacific|quincy|reef|squid|tentacle) yes_i_really_mean_it:Bool?",
        "osd",
        "rw",
        0,
        require_release,
        "set the oldest OSD release that may join",
    ),
    cmd(
        "osd set-require-min-compat-client version:String yes_i_really_mean_it:Bool?",
        "osd",
        "rw",
        0,
        require_client,
        "set the oldest client release that must work",
    ),
    cmd("osd setcrushmap prior_version:Int?", "osd", "rw", 0, setcrushmap, "set the CRUSH map from input"),
    cmd("osd crush set prior_version:Int?", "osd", "rw", 0, setcrushmap, "set the CRUSH map from input"),
    cmd(
        "osd force-create-pg pgid:Pgid yes_i_really_mean_it:Bool?",
        "osd",
        "rw",
        0,
        force_create,
        "create a lost PG again, empty",
    ),
    cmd("pg repeer pgid:Pgid", "osd", "rw", 0, repeer, "make a PG peer again"),
];

/// The PG that the argument `pgid` names. Error: ENOENT.
pub(in crate::command) fn pg(c: &mut Ctx<'_>) -> Res<PgId> {
    let pg = c.args.pgid("pgid")?;
    match c.map().pool(pg.pool) {
        Some(p) if pg.seed < p.pg_num => Ok(pg),
        _ => refuse(errno::ENOENT, format!("pg {pg} does not exist")),
    }
}

/// The OSDs that the argument `id` names. Error: EINVAL, or ENOENT for an OSD that does not exist.
pub(in crate::command) fn osds(c: &mut Ctx<'_>) -> Res<Vec<OsdId>> {
    let map = c.map();
    c.args
        .list("id")
        .iter()
        .map(|w| {
            let o = crate::command::language::args::parse_osd(w)
                .ok_or_else(|| Refused::new(errno::EINVAL, format!("invalid osd id '{w}'")))?;
            if map.exists(o) { Ok(o) } else { refuse(errno::ENOENT, format!("{o} does not exist")) }
        })
        .collect()
}

/// A set of OSDs as answers show it.
pub(in crate::command) fn text(v: &[OsdId]) -> String {
    format!("[{}]", v.iter().map(|o| o.0.to_string()).collect::<Vec<_>>().join(","))
}

/// True if a set names an OSD twice.
pub(crate) fn has_twice(set: &[OsdId]) -> bool {
    set.iter().enumerate().any(|(i, o)| *o != OsdId::NONE && set.iter().skip(i + 1).any(|x| x == o))
}

fn pg_temp(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (pg, set) = (pg(c)?, osds(c)?);
    let map = c.map();
    if set.is_empty() {
        c.inc().new_pg_temp.insert(pg, Vec::new());
        return committed(format!("done cleaning up pg_temp of {pg}"));
    }
    if let Some(p) = map.pool(pg.pool) {
        if set.len() < usize::from(p.min_size) {
            return invalid(format!("num of osds ({}) < pool min size ({})", set.len(), p.min_size));
        }
        if set.len() > usize::from(p.size) {
            return invalid(format!("num of osds ({}) > pool size ({})", set.len(), p.size));
        }
        // A shard is at a place of its own; a copy is not.
        if !p.is_erasure() && has_twice(&set) {
            return invalid(format!("osd is listed twice in {}", text(&set)));
        }
    }
    if !set.iter().any(|o| map.is_up(*o)) {
        return invalid(format!("all OSDs of {} are down, so none can serve pg {pg}; name one that is up", text(&set)));
    }
    // The PG acts in its up set without an override.
    let is_up_set = map.pg_to_up(pg).0.as_slice() == set.as_slice();
    c.inc().new_pg_temp.insert(pg, if is_up_set { Vec::new() } else { set.clone() });
    committed(format!("set {pg} pg_temp mapping to {}", text(&set)))
}

fn primary_temp(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let pg = pg(c)?;
    let o = match c.args.str("id")?.as_str() {
        // Ceph takes -1 up to 16.2. Its client refuses negative numbers, hence `osd rm-primary-temp`.
        "-1" => OsdId(-1),
        _ => {
            let o = c.args.osd("id")?;
            if !c.map().exists(o) {
                return refuse(errno::ENOENT, format!("{o} does not exist"));
            }
            // A primary outside the acting set would serve nothing.
            let acting = c.map().pg_to_up_acting(pg).acting;
            if !acting.contains(&o) {
                let set = text(&acting);
                return invalid(format!("{o} is not in the acting set {set} of pg {pg}; name one of its members"));
            }
            o
        }
    };
    c.inc().new_primary_temp.insert(pg, o);
    committed(format!("set {pg} primary_temp mapping to {}", o.0))
}

fn rm_primary_temp(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let pg = pg(c)?;
    c.inc().new_primary_temp.insert(pg, OsdId(-1));
    committed(format!("set {pg} primary_temp mapping to -1"))
}

fn blocklist(c: &mut Ctx<'_>, op_key: &str) -> Res<CommandOutcome> {
    let range = match c.args.opt("range").as_deref() {
        None => false,
        Some("range") => true,
        Some(_) => return invalid("Did you mean to specify \"osd blocklist range\"?"),
    };
    let text = c.args.str("addr")?;
    let Some(addr) = EntityAddr::parse(&text) else { return invalid(format!("unable to parse address {text}")) };
    let key = AddrKey(if range { cidr(addr, &text)? } else { addr });
    let name = entry_name(&key);
    match c.args.str(op_key)?.as_str() {
        "add" => {
            let default = c.state.options.blocklist_expire.as_secs_f64();
            let secs = c.args.float("expire").filter(|s| *s >= 0.0 && s.is_finite()).unwrap_or(default);
            let until = c.now.wall.plus(Duration::from_secs_f64(secs.min(1e9)));
            let (new, old) = pending_blocklist(c.inc(), range);
            old.retain(|k| *k != key);
            new.insert(key, until);
            committed(format!("blocklisting {name} until {} ({} sec)", until.iso(), short(secs)))
        }
        "rm" => {
            let listed = |map: &OsdMap| {
                if range { map.range_blocklist.contains_key(&key) } else { map.blocklist.contains_key(&key) }
            };
            if !listed(&c.map()) {
                return done(format!("{name} isn't blocklisted"));
            }
            let was = listed(&c.state.osdmap);
            let (new, old) = pending_blocklist(c.inc(), range);
            new.remove(&key);
            if was {
                old.push(key);
            }
            committed(format!("un-blocklisting {name}"))
        }
        op => invalid(format!("unknown operation '{op}'")),
    }
}

/// An address range given as `IP/BITS`; `text` is the argument, for the error.
fn cidr(addr: EntityAddr, text: &str) -> Res<EntityAddr> {
    if addr.sock.is_none_or(|s| s.port() != 0) || addr.nonce == 0 {
        let kind =
            ["v1:", "any:"].iter().find(|p| text.starts_with(**p)).map_or("v2:", |p| p.trim_start_matches("any:"));
        let name = plain_addr(&addr);
        return invalid(format!("You specified a range command, but {kind}{name} does not parse as a CIDR range"));
    }
    let bits = if addr.sock.is_some_and(|s| s.is_ipv4()) { 32 } else { 128 };
    if addr.nonce > bits {
        return invalid("Too many bits in range for that protocol!");
    }
    Ok(EntityAddr { kind: AddrKind::CIDR, ..addr })
}

/// The name of a blocklist entry in messages and lists.
fn entry_name(key: &AddrKey) -> String {
    let name = plain_addr(&key.0);
    if key.0.kind == AddrKind::CIDR { format!("cidr:{name}") } else { name }
}

/// The entries that an incremental adds and removes: those of ranges, or those of single addresses.
fn pending_blocklist(inc: &mut Incremental, range: bool) -> (&mut BTreeMap<AddrKey, Utime>, &mut Vec<AddrKey>) {
    if range {
        (&mut inc.new_range_blocklist, &mut inc.old_range_blocklist)
    } else {
        (&mut inc.new_blocklist, &mut inc.old_blocklist)
    }
}

fn blocklist_clear(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let all: Vec<AddrKey> = c.state.osdmap.blocklist.keys().copied().collect();
    let ranges: Vec<AddrKey> = c.state.osdmap.range_blocklist.keys().copied().collect();
    let inc = c.inc();
    inc.new_blocklist.clear();
    inc.new_range_blocklist.clear();
    inc.old_blocklist = all;
    inc.old_range_blocklist = ranges;
    committed(" removed all blocklist entries")
}

fn blocklist_ls(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let map = c.state.osdmap.clone();
    let lists = [("blocklist", "addr", &map.blocklist), ("range_blocklist", "range", &map.range_blocklist)];
    let (mut out, mut listed) = (Vec::new(), 0);
    for (name, key, entries) in lists {
        // Ceph writes two lists in a row, which few JSON parsers accept. The second is written only if it has entries.
        if name == "range_blocklist" && entries.is_empty() {
            continue;
        }
        let entry = |(a, t): (&AddrKey, &Utime)| {
            let mut j = J::object();
            j.put(key, plain_addr(&a.0));
            j.put("until", t.iso());
            j
        };
        let tree = || entries.iter().map(entry).collect::<J>();
        let text = || entries.iter().map(|(a, t)| format!("{} {}\n", entry_name(a), t.iso())).collect::<String>();
        out.extend_from_slice(&c.tree(name, tree).text(text)?.out);
        listed += entries.len();
    }
    Ok(CommandOutcome { rs: format!("listed {listed} entries"), ..CommandOutcome::output(out) })
}

fn ratio(c: &mut Ctx<'_>, which: &str) -> Res<CommandOutcome> {
    let r = c.args.need_float("ratio")? as f32;
    let inc = c.inc();
    match which {
        "full" => inc.new_full_ratio = r,
        "backfillfull" => inc.new_backfillfull_ratio = r,
        _ => inc.new_nearfull_ratio = r,
    }
    committed(format!("osd set-{which}-ratio {}", short(f64::from(r))))
}

fn require_release(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("release")?;
    let Some(r) = release::from_name(&name) else {
        return invalid(format!("unrecognized release {name}"));
    };
    let map = c.map();
    let have = map.require_osd_release;
    if r == have {
        return done("");
    }
    if r < have {
        return refuse(errno::EPERM, "require_osd_release cannot be lowered once it has been set");
    }
    // `yes_i_really_mean_it` does not help: an OSD without the feature could not boot again.
    let older: Vec<OsdId> =
        map.osds().filter(|o| map.is_up(*o) && !Features(map.xinfo(*o).features).serves_release(r)).collect();
    if let Some(first) = older.first() {
        let feature = format!("CEPH_FEATURE_SERVER_{}", name.to_uppercase());
        let more = if older.len() > 1 { format!(" and {} others", older.len() - 1) } else { String::new() };
        let text =
            format!("not all up OSDs have {feature} feature: {first}{more} must be upgraded and restarted first");
        return refuse(errno::EPERM, text);
    }
    if !c.args.flag("yes_i_really_mean_it") && !map.osds().any(|o| map.is_up(o)) {
        let text = "Not advisable to continue since no OSDs are up. Pass --yes-i-really-mean-it if you really wish to \
                    continue.";
        return refuse(errno::EPERM, text);
    }
    c.inc().new_require_osd_release = r;
    committed("")
}

fn require_client(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let name = c.args.str("version")?;
    let Some(r) = release::from_name(&name) else {
        return invalid(format!("version {name} is not recognized"));
    };
    let map = c.map();
    let need = release::from_name(super::dump::min_compat_release(&map)).unwrap_or(0);
    if r < need {
        return refuse(
            errno::EPERM,
            format!(
                "osdmap current utilizes features that require {}; cannot set require_min_compat_client below that to {name}",
                release::name(need)
            ),
        );
    }
    if !c.args.flag("yes_i_really_mean_it") {
        refuse_if_connected(c, &name, r)?;
    }
    c.inc().new_require_min_compat_client = r;
    committed(format!("set require_min_compat_client to {name}"))
}

/// Most kinds of clients that a refusal names: clients announce what they like.
const KINDS_NAMED: usize = 16;

/// Refuses a requirement that connected clients do not meet.
fn refuse_if_connected(c: &Ctx<'_>, name: &str, r: u8) -> Res<()> {
    let old = primaries::older_clients(c.state.sessions.values(), r);
    if old.is_empty() {
        return Ok(());
    }
    let look = |((kind, features), n): (&(EntityKind, u64), &u64)| {
        let f = Features(*features);
        let (looks, lacks) = (primaries::release_name(f), f.lacks_of_release(r));
        format!("{n} connected {}(s) look like {looks} (missing {lacks:#x})", kind.word())
    };
    let mut all: Vec<String> = old.iter().take(KINDS_NAMED).map(look).collect();
    let others: u64 = old.values().skip(KINDS_NAMED).sum();
    if others > 0 {
        all.push(format!("{others} others look like older ones, too"));
    }
    refuse(
        errno::EPERM,
        format!(
            "cannot set require_min_compat_client to {name}: {}; add --yes-i-really-mean-it to do it anyway",
            all.join("; ")
        ),
    )
}

fn setcrushmap(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let mut r = wire::Reader::shared(c.input);
    let crush =
        CrushMap::decode(&mut r).map_err(|e| Refused::new(errno::EINVAL, format!("Failed to parse crushmap: {e}")))?;
    let map = c.map();
    if let Some(prior) = c.args.int("prior_version") {
        let have = i64::from(map.crush_version);
        if prior == have - 1 && *map.crush == crush {
            return done(have.to_string());
        }
        if prior != have {
            return refuse(errno::EPERM, format!("prior_version {prior} != crush version {have}"));
        }
    }
    check_crush(&map, &crush)?;
    let version = map.crush_version;
    crate::command::crush::edit::put(c, &crush);
    let next = if c.state.osdmap.crush_version == version { version + 1 } else { version };
    committed(next.to_string())
}

/// Refuses a CRUSH map that existing pools cannot work with, as Ceph does.
fn check_crush(map: &cluster::OsdMap, crush: &CrushMap) -> Res<()> {
    for (id, p) in map.pools.iter() {
        match crush.rule(p.crush_rule.into()) {
            None => {
                return invalid(format!("pool {} references crush_rule {} but it is not present", id.0, p.crush_rule));
            }
            Some(r) if r.kind != p.kind => {
                return invalid(format!("pool {} type does not match type of rule {}", id.0, p.crush_rule));
            }
            Some(_) => {}
        }
    }
    if crush.max_devices < 0 || crush.max_devices > cluster::osdmap::MAX_OSD_LIMIT {
        return invalid("Failed crushmap test: max_devices out of range");
    }
    Ok(())
}

fn force_create(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    if !c.args.flag("yes_i_really_mean_it") {
        return refuse(
            errno::EPERM,
            "This command will recreate a lost (as in data lost) PG with data in it, such that the cluster will give up ever trying to recover the lost data.  Do this only if you are certain that all copies of the PG are in fact lost and you are willing to accept that the data is permanently destroyed.  Pass --yes-i-really-mean-it to proceed.",
        );
    }
    let id = c.args.pgid("pgid")?;
    if c.map().pool(id.pool).is_none_or(|p| id.seed >= p.pg_num) {
        return refuse(errno::ENOENT, format!("pg {id} should not exist"));
    }
    refuse(
        errno::EOPNOTSUPP,
        format!("pg {id}: creating a lost PG again is not supported; remove the pool, or bring the OSD back"),
    )
}

fn repeer(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let id = c.args.pgid("pgid")?;
    let map = c.map();
    let Some(pool) = map.pool(id.pool).filter(|p| id.seed < p.pg_num) else {
        return refuse(errno::ENOENT, format!("pg '{id}' does not exist"));
    };
    // Any change of the acting set starts a new interval: a temporary set leaves out the primary.
    let sets = map.pg_to_up_acting(id);
    let (mut acting, first) = (sets.acting.to_vec(), sets.acting_primary);
    if first.0 < 0 {
        return refuse(errno::EINVAL, "pg has no primary");
    }
    if pool.can_shift_osds() {
        acting.retain(|o| *o != first);
    } else {
        // Shards keep their positions, so the primary's place becomes a hole.
        acting.iter_mut().filter(|o| **o == first).for_each(|o| *o = OsdId::NONE);
    }
    if acting.iter().all(|o| *o == OsdId::NONE) {
        // With no other OSD in the set, the primary is marked down; its next boot starts a new interval.
        super::flags::set_state(c, first, cluster::osdmap::osd_state::UP, false);
    } else {
        c.inc().new_pg_temp.insert(id, acting);
    }
    committed("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_users_write() {
        for (t, want) in [
            ("1.2.3.4", "1.2.3.4:0/0"),
            ("1.2.3.4:5", "1.2.3.4:5/0"),
            ("v1:1.2.3.4:0/123", "1.2.3.4:0/123"),
            ("[::1]:6800/7", "[::1]:6800/7"),
            ("::1", "[::1]:0/0"),
        ] {
            assert_eq!(plain_addr(&EntityAddr::parse(t).unwrap()), want, "{t}");
        }
        for t in ["zz", "", "1.2.3.4/x", "1.2.3"] {
            assert!(EntityAddr::parse(t).is_none(), "{t}");
        }
    }
}
