//! Commands that show PG and OSD statistics: `pg dump` in all its forms, the `pg ls` family, `pg dump_stuck`.

use super::dump::{OMAP_NOTE, dump, dump_json, dump_pools_json, pg_tree, pgs_part, set_text};
use crate::command::language::listing::{HOLE, Keep, Part};
use crate::command::language::text::{Column, Table};
use crate::command::osd::dump::stamp;
use crate::command::units::age;
use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, flag as cf, invalid, plain, refuse};
use crate::json::J;
use crate::obj;
use base::{OsdId, PgId, PoolId, Utime, errno};
use std::rc::Rc;
use std::time::Duration;
use wire::types::{PgStat, pg_state};

const DUMP: &str = "pg dump dumpcontents:Choices(all|summary|sum|delta|pools|osds|pgs|pgs_brief)*?";
const DUMP_JSON: &str = "pg dump_json dumpcontents:Choices(all|summary|sum|pools|osds|pgs)*?";

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(DUMP, "pg", "r", cf::MGR, dump, "show PG and OSD statistics"),
    cmd(DUMP_JSON, "pg", "r", cf::MGR, dump_json, "show PG and OSD statistics as JSON"),
    cmd("pg dump_pools_json", "pg", "r", cf::MGR, dump_pools_json, "show pool statistics as JSON"),
    cmd("pg ls pool:Int? states:String*?", "pg", "r", cf::MGR, |c| ls(c, By::All), "list PGs"),
    cmd(
        "pg ls-by-pool poolstr:String states:String*?",
        "pg",
        "r",
        cf::MGR,
        |c| ls(c, By::Pool),
        "list the PGs of a pool",
    ),
    cmd(
        "pg ls-by-primary osd:OsdName pool:Int? states:String*?",
        "pg",
        "r",
        cf::MGR,
        |c| ls(c, By::Primary),
        "list the PGs an OSD leads",
    ),
    cmd(
        "pg ls-by-osd osd:OsdName pool:Int? states:String*?",
        "pg",
        "r",
        cf::MGR,
        |c| ls(c, By::Osd),
        "list the PGs of an OSD",
    ),
    cmd(
        "pg dump_stuck stuckops:Choices(inactive|unclean|stale|undersized|degraded)*? threshold:Int?",
        "pg",
        "r",
        cf::MGR,
        stuck,
        "list PGs that are stuck",
    ),
    cmd(
        "pg debug debugop:Choices(unfound_objects_exist|degraded_pgs_exist)",
        "pg",
        "r",
        cf::MGR,
        debug,
        "tell whether PGs are degraded, or have unfound objects",
    ),
];

/// Seconds in a state after which a PG counts as stuck (`mon_pg_stuck_threshold`).
const STUCK_AFTER: i64 = 60;

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    All,
    Pool,
    Primary,
    Osd,
}

fn states(c: &Ctx<'_>) -> Res<Vec<u64>> {
    let mut v = Vec::new();
    for w in c.args.list("states") {
        let mut bits = 0;
        for name in w.split([',', '+']).filter(|n| !n.is_empty() && *n != "all") {
            match pg_state::from_name(name) {
                Some(b) => bits |= b,
                None => {
                    let all = pg_state::to_string(u64::MAX >> 29);
                    return invalid(format!("'{name}' is not a valid pg state, available choices: {all}"));
                }
            }
        }
        v.push(bits);
    }
    Ok(v)
}

fn ls(c: &mut Ctx<'_>, by: By) -> Res<CommandOutcome> {
    let states = states(c)?;
    let map = c.state.osdmap.clone();
    let mut pool = c.args.int("pool").filter(|p| *p >= 0).map(PoolId);
    if let Some(p) = pool
        && map.pool(p).is_none()
    {
        return refuse(errno::ENOENT, format!("pool {} does not exist", p.0));
    }
    if by == By::Pool {
        let name = c.args.str("poolstr")?;
        pool = Some(match map.pool_by_name(&name) {
            Some(p) => p,
            None => return refuse(errno::ENOENT, format!("pool {name} does not exist")),
        });
    }
    let osd = if matches!(by, By::Primary | By::Osd) { Some(c.args.osd("osd")?) } else { None };
    if let Some(o) = osd
        && !map.exists(o)
    {
        return refuse(errno::ENOENT, format!("osd {} does not exist", o.0));
    }
    let keep: Keep = Rc::new(move |id: PgId, s: &PgStat| {
        pool.is_none_or(|p| id.pool == p)
            && match (by, osd) {
                (By::Primary, Some(o)) => s.acting_primary == o,
                (By::Osd, Some(o)) => s.acting.contains(&o) || s.up.contains(&o),
                _ => true,
            }
            && (states.is_empty() || states.iter().any(|b| s.state() & b == *b))
    });
    let tree = || obj! { "pg_ready": true, "pg_stats": J::Raw(HOLE.to_owned()) };
    let text = || vec![ls_part(c.now.wall, &keep), Part::Text(OMAP_NOTE.to_owned())];
    Ok(c.pg_lists("pgs", tree, &[pg_tree], &keep, text))
}

fn with_primary(v: &[OsdId], p: OsdId) -> String {
    format!("{}p{}", set_text(v), p.0)
}

/// A PG in `pg ls`, with the seconds since its state changed.
struct Listed<'a> {
    id: PgId,
    stat: &'a PgStat,
    since: u64,
}

/// Columns of `pg ls`.
fn ls_columns<'a>() -> [Column<Listed<'a>>; 17] {
    [
        Column::left("PG", |r| r.id.to_string()),
        Column::number("OBJECTS", |r| r.stat.stats.sum.num_objects.to_string()),
        Column::number("DEGRADED", |r| r.stat.stats.sum.num_objects_degraded.to_string()),
        Column::number("MISPLACED", |r| r.stat.stats.sum.num_objects_misplaced.to_string()),
        Column::number("UNFOUND", |r| r.stat.stats.sum.num_objects_unfound.to_string()),
        Column::number("BYTES", |r| r.stat.stats.sum.num_bytes.to_string()),
        Column::number("OMAP_BYTES*", |r| r.stat.stats.sum.num_omap_bytes.to_string()),
        Column::number("OMAP_KEYS*", |r| r.stat.stats.sum.num_omap_keys.to_string()),
        Column::number("LOG", |r| r.stat.log_size.to_string()),
        Column::number("STATE", |r| pg_state::to_string(r.stat.state())),
        Column::number("SINCE", |r| age(r.since)),
        Column::number("VERSION", |r| r.stat.version.to_string()),
        Column::number("REPORTED", |r| format!("{}:{}", r.stat.reported_epoch, r.stat.reported_seq)),
        Column::number("UP", |r| with_primary(&r.stat.up, r.stat.up_primary)),
        Column::number("ACTING", |r| with_primary(&r.stat.acting, r.stat.acting_primary)),
        Column::number("SCRUB_STAMP", |r| stamp(r.stat.last_scrub_stamp)),
        Column::number("DEEP_SCRUB_STAMP", |r| stamp(r.stat.last_deep_scrub_stamp)),
    ]
}

/// PGs as `pg ls` lists them at a time.
fn ls_part(now: Utime, keep: &Keep) -> Part {
    let cells = move |id: PgId, stat: &PgStat| {
        let since = now.to_unix().saturating_sub(stat.last_change.to_unix()).as_secs();
        let row = Listed { id, stat, since };
        ls_columns().iter().map(|c| c.make(&row)).collect()
    };
    Part::Rows(Table::of(&ls_columns(), []), Rc::new(cells), Rc::clone(keep), false)
}

fn stuck(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let mut ops = c.args.list("stuckops");
    if ops.is_empty() {
        ops.push("unclean".into());
    }
    let after = Duration::from_secs(c.args.int("threshold").unwrap_or(STUCK_AFTER).max(0).unsigned_abs());
    let before = Utime::from_unix(c.now.wall.to_unix().saturating_sub(after));
    let keep: Keep = Rc::new(move |_: PgId, s: &PgStat| {
        let st = s.state();
        ops.iter().any(|op| match op.as_str() {
            "inactive" => st & pg_state::ACTIVE == 0 && s.last_active <= before,
            "unclean" => st & pg_state::CLEAN == 0 && s.last_clean <= before,
            "degraded" => st & pg_state::DEGRADED != 0 && s.last_undegraded <= before,
            "undersized" => st & pg_state::UNDERSIZED != 0 && s.last_fullsized <= before,
            _ => st & pg_state::STALE != 0 && s.last_unstale <= before,
        })
    });
    let tree = || obj! { "pg_ready": true, "stuck_pg_stats": J::Raw(HOLE.to_owned()) };
    let out = c.pg_lists("stuck_pgs", tree, &[pg_tree], &keep, || vec![pgs_part(true, &keep, true)]);
    Ok(CommandOutcome { rs: "ok".into(), ..out })
}

fn debug(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let sum = &c.state.mgr.stats.sum().stats.sum;
    let yes = match c.args.str("debugop")?.as_str() {
        "unfound_objects_exist" => sum.num_objects_unfound > 0,
        _ => c.state.mgr.stats.num_in(pg_state::DEGRADED) > 0,
    };
    plain(if yes { "TRUE" } else { "FALSE" })
}
