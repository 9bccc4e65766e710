//! Chosen primaries: exceptions to which OSD of a PG's set leads it.
//!
//! As with other upmaps, an entry that the monitor would remove is refused with its reason. Clients before Reef do not
//! see entries, so they are kept off first (`state::primaries`).

use super::map::pg;
use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, committed, done, invalid, refuse};
use crate::state::pg_num::is_merged;
use crate::state::primaries;
use base::{PgId, errno};
use cluster::release;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("osd pg-upmap-primary pgid:Pgid id:OsdName", "osd", "rw", 0, set, "make an OSD of a PG's set its primary"),
    cmd("osd rm-pg-upmap-primary pgid:Pgid", "osd", "rw", 0, remove, "stop choosing a PG's primary"),
    cmd("osd rm-pg-upmap-primary-all", "osd", "rw", 0, remove_all, "stop choosing the primaries of all PGs"),
];

/// Refuses chosen primaries while clients or OSDs before Reef may use the map, or a monitor runs that could not lead.
fn allowed(c: &mut Ctx<'_>) -> Res<()> {
    let map = c.map();
    let need = map.require_min_compat_client;
    if need < primaries::SINCE {
        return refuse(
            errno::EPERM,
            format!(
                "min_compat_client {} < reef, which is required for pg-upmap-primary. Try 'ceph osd \
                 set-require-min-compat-client reef' before using the new interface",
                release::name(need)
            ),
        );
    }
    primaries::daemons_allow(c.state, &map).or_else(|why| refuse(errno::EPERM, format!("{why} before")))
}

/// The PG that the command names, of a replicated pool.
fn replicated_pg(c: &mut Ctx<'_>) -> Res<PgId> {
    let pg = pg(c)?;
    if c.map().pool(pg.pool).is_none_or(|p| p.is_erasure()) {
        return invalid("pg-upmap-primary is only supported for replicated pools");
    }
    Ok(pg)
}

fn set(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    allowed(c)?;
    let pg = replicated_pg(c)?;
    let osd = c.args.osd("id")?;
    let map = c.map();
    if !map.exists(osd) {
        return refuse(errno::ENOENT, format!("{osd} does not exist"));
    }
    let at = map.pg_to_up_acting(pg);
    if at.up_primary == osd && at.acting_primary == osd {
        return invalid(format!("{osd} is already primary for pg {pg}"));
    }
    if !at.up.contains(&osd) {
        let set = if at.acting.contains(&osd) { "up" } else { "acting" };
        return invalid(format!("{osd} is not in {set} set for pg {pg}"));
    }
    if map.pool(pg.pool).is_some_and(|p| is_merged(p, pg.seed)) {
        return invalid(format!("pg {pg} is about to be merged with another"));
    }
    let mut next = (*map).clone();
    next.pg_upmap_primaries.insert(pg, osd);
    // Without effect, where the OSD leads without an entry.
    let is_void = next.void_primary(pg).is_some();
    if is_void && !map.pg_upmap_primaries.contains_key(&pg) {
        return invalid(format!(
            "{osd} is first in the set of pg {pg} already; its primary affinity or a temporary primary keeps it from leading"
        ));
    }
    c.pending.set_upmap_primary(c.state, pg, (!is_void).then_some(osd));
    committed(format!("change primary for pg {pg} to {osd}"))
}

fn remove(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let pg = replicated_pg(c)?;
    let text = format!("clear {pg} pg_upmap_primary mapping");
    if !c.state.osdmap.pg_upmap_primaries.contains_key(&pg) && !c.map().pg_upmap_primaries.contains_key(&pg) {
        return done(text);
    }
    c.pending.set_upmap_primary(c.state, pg, None);
    committed(text)
}

fn remove_all(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let text = "cleared all pg_upmap_primary mappings";
    let all: Vec<PgId> = c.state.osdmap.pg_upmap_primaries.keys().copied().collect();
    if all.is_empty() && c.map().pg_upmap_primaries.is_empty() {
        return done(text);
    }
    let inc = c.inc();
    inc.new_pg_upmap_primary.clear();
    inc.old_pg_upmap_primary.extend(all);
    committed(text)
}
