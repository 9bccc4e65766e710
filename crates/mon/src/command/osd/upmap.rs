//! Upmaps: exceptions to CRUSH's choice of a PG's OSDs.
//!
//! An upmap without effect is refused with its reason, and so is one that the monitor would remove
//! (`core::osd::overrides`). Ceph's monitor accepts most of them; it keeps some, and drops the others from the epoch
//! that was to bring them.

use super::map::{has_twice, osds, pg, text};
use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, committed, invalid, refuse};
use crate::state::pg_num::is_merged;
use base::{OsdId, PgId, errno};
use cluster::osdmap::RuleOsds;
use cluster::{OsdMap, release};

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("osd pg-upmap pgid:Pgid id:OsdName*", "osd", "rw", 0, pg_upmap, "place a PG on given OSDs"),
    cmd("osd rm-pg-upmap pgid:Pgid", "osd", "rw", 0, rm_pg_upmap, "stop placing a PG on given OSDs"),
    cmd(
        "osd pg-upmap-items pgid:Pgid id:OsdName*",
        "osd",
        "rw",
        0,
        pg_upmap_items,
        "replace OSDs of a PG, as pairs of from and to",
    ),
    cmd("osd rm-pg-upmap-items pgid:Pgid", "osd", "rw", 0, rm_pg_upmap_items, "stop replacing OSDs of a PG"),
];

pub(in crate::command) fn upmap_allowed(c: &mut Ctx<'_>) -> Res<()> {
    let need = c.map().require_min_compat_client;
    if need < release::LUMINOUS {
        return refuse(
            errno::EPERM,
            format!(
                "min_compat_client {} < luminous, which is required for pg-upmap. Try 'ceph osd set-require-min-compat-client luminous' before using the new interface",
                release::name(need)
            ),
        );
    }
    Ok(())
}

/// The refusal of an upmap that would have no effect.
fn void<T>(pg: PgId, why: &str) -> Res<T> {
    invalid(format!("upmap of pg {pg} would have no effect: {why}"))
}

/// Refuses a change after which the monitor would remove the PG's upmaps.
fn check_kept(map: &OsdMap, pg: PgId, change: impl FnOnce(&mut OsdMap)) -> Res<()> {
    if map.pool(pg.pool).is_none_or(|p| is_merged(p, pg.seed)) {
        return void(pg, "the PG is about to be merged with another");
    }
    let mut next = map.clone();
    change(&mut next);
    match next.void_upmap(pg, &mut RuleOsds::default()) {
        Some(why) => void(pg, &why.to_string()),
        None => Ok(()),
    }
}

fn pg_upmap(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    upmap_allowed(c)?;
    let (pg, set) = (pg(c)?, osds(c)?);
    let map = c.map();
    let (min, size) = map.pool(pg.pool).map_or((1, 1), |p| (usize::from(p.min_size), usize::from(p.size)));
    if set.len() < min {
        return invalid(format!("num of osds ({}) < pool min size ({min})", set.len()));
    }
    if set.len() > size {
        return invalid(format!("num of osds ({}) > pool size ({size})", set.len()));
    }
    if set.len() < size {
        return invalid(format!("num of osds ({}) < pool size ({size}); name an OSD for each copy", set.len()));
    }
    if has_twice(&set) {
        return invalid(format!("osd is listed twice in {}", text(&set)));
    }
    if let Some(o) = set.iter().find(|o| map.marked_out(**o)) {
        return void(pg, &format!("{o} is out"));
    }
    check_kept(&map, pg, |m| _ = m.pg_upmap.insert(pg, set.clone()))?;
    let inc = c.inc();
    inc.old_pg_upmap.remove(&pg);
    inc.new_pg_upmap.insert(pg, set.clone());
    committed(format!("set {pg} pg_upmap mapping to {}", text(&set)))
}

fn rm_pg_upmap(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    upmap_allowed(c)?;
    let pg = pg(c)?;
    let had = c.map().pg_upmap.contains_key(&pg);
    let inc = c.inc();
    inc.new_pg_upmap.remove(&pg);
    if had {
        inc.old_pg_upmap.insert(pg);
    }
    committed(format!("clear {pg} pg_upmap mapping"))
}

/// The pairs of from and to in a list of OSDs, and notes about those that are left out, in Ceph's words.
fn pairs_of(ids: &[OsdId]) -> (Vec<(OsdId, OsdId)>, String) {
    let (mut pairs, mut notes) = (Vec::new(), String::new());
    for p in ids.chunks_exact(2) {
        let &[from, to] = p else { continue };
        if from == to {
            notes += &format!("from {from} == to {to}, ");
        } else if pairs.contains(&(from, to)) {
            notes += &format!("{from} -> {to} already exists, ");
        } else {
            pairs.push((from, to));
        }
    }
    (pairs, notes)
}

/// The pairs that have an effect, in the order in which a map applies them. A pair that has none is refused; if the PG has
/// pairs already, it is left out with a note: scripts repeat the pairs that they find in the map or make new ones of them,
/// and do not go on after a refusal. Without any pair left the PG loses those that it has, as in Ceph.
fn checked_pairs(map: &OsdMap, pg: PgId, pairs: &[(OsdId, OsdId)], notes: &mut String) -> Res<Vec<(OsdId, OsdId)>> {
    let (raw, _) = map.pg_to_raw(pg);
    let whole = map.pg_upmap.get(&pg);
    if let Some(o) = whole.and_then(|set| set.iter().find(|o| map.marked_out(**o))) {
        return void(pg, &format!("its pg_upmap names {o}, which is out; remove it by osd rm-pg-upmap {pg}"));
    }
    let has_pairs = map.pg_upmap_items.contains_key(&pg);
    let mut set: Vec<OsdId> = whole.map_or_else(|| raw.to_vec(), Clone::clone);
    let mut kept = Vec::new();
    for (from, to) in pairs {
        let held = text(&set);
        let why = if !raw.contains(from) {
            format!("{from} is not in the set {} that CRUSH chooses", text(&raw))
        } else if map.marked_out(*to) {
            format!("{to} is out")
        } else if set.contains(to) {
            format!("{to} is in the set {held} already")
        } else if let Some(slot) = set.iter_mut().find(|o| *o == from) {
            *slot = *to;
            kept.push((*from, *to));
            continue;
        } else {
            format!("{from} is not in the set {held}, where another upmap has replaced it")
        };
        if !has_pairs {
            return void(pg, &why);
        }
        *notes += &format!("{from} -> {to} is left out: {why}, ");
    }
    Ok(kept)
}

fn pg_upmap_items(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    upmap_allowed(c)?;
    let pg = pg(c)?;
    let n = c.args.list("id").len();
    if !n.is_multiple_of(2) {
        return invalid("you must specify pairs of osd ids to be remapped");
    }
    let map = c.map();
    let size = map.pool(pg.pool).map_or(1, |p| usize::from(p.size));
    if n / 2 > size {
        return invalid(format!("num of osd pairs ({}) > pool size ({size})", n / 2));
    }
    let (pairs, mut notes) = pairs_of(&osds(c)?);
    if pairs.is_empty() {
        return invalid(format!("{notes}no valid upmap items(pairs) is specified"));
    }
    let pairs = checked_pairs(&map, pg, &pairs, &mut notes)?;
    if !pairs.is_empty() {
        check_kept(&map, pg, |m| _ = m.pg_upmap_items.insert(pg, pairs.clone()))?;
    }
    let t: Vec<String> = pairs.iter().map(|(a, b)| format!("{}->{}", a.0, b.0)).collect();
    c.pending.set_upmap_items(c.state, pg, pairs);
    committed(format!("{notes}set {pg} pg_upmap_items mapping to [{}]", t.join(",")))
}

fn rm_pg_upmap_items(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    upmap_allowed(c)?;
    let pg = pg(c)?;
    c.pending.set_upmap_items(c.state, pg, Vec::new());
    committed(format!("clear {pg} pg_upmap_items mapping"))
}
