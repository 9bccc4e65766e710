//! Requests that the manager role sends to OSDs: scrubs, repairs, forced recovery.

use crate::command::language::args::parse_osd;
use crate::command::{Cmd, CommandEffect, CommandOutcome, Ctx, Res, cmd, done, flag as cf, invalid, refuse};
use base::{OsdId, PgId, errno};
use std::collections::{BTreeMap, BTreeSet};
use wire::WireMessage;
use wire::msg::{MOsdForceRecovery, MOsdScrub2};
use wire::types::{PgStat, pg_state};

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd("osd scrub who:String", "osd", "rw", cf::MGR, |c| osd(c, Kind::Scrub), "scrub the PGs of an OSD, or of all"),
    cmd(
        "osd deep-scrub who:String",
        "osd",
        "rw",
        cf::MGR,
        |c| osd(c, Kind::Deep),
        "deep-scrub the PGs of an OSD, or of all",
    ),
    cmd("osd repair who:String", "osd", "rw", cf::MGR, |c| osd(c, Kind::Repair), "repair the PGs of an OSD, or of all"),
    cmd("pg scrub pgid:Pgid", "pg", "rw", cf::MGR, |c| pg(c, Kind::Scrub), "scrub a PG"),
    cmd("pg deep-scrub pgid:Pgid", "pg", "rw", cf::MGR, |c| pg(c, Kind::Deep), "deep-scrub a PG"),
    cmd("pg repair pgid:Pgid", "pg", "rw", cf::MGR, |c| pg(c, Kind::Repair), "repair a PG"),
    cmd("osd pool scrub who:Poolname*", "osd", "rw", cf::MGR, |c| pool(c, Kind::Scrub), "scrub pools"),
    cmd("osd pool deep-scrub who:Poolname*", "osd", "rw", cf::MGR, |c| pool(c, Kind::Deep), "deep-scrub pools"),
    cmd("osd pool repair who:Poolname*", "osd", "rw", cf::MGR, |c| pool(c, Kind::Repair), "repair pools"),
    cmd("pg force-recovery pgid:Pgid*", "pg", "rw", cf::MGR, |c| force(c, 1, false), "recover PGs before others"),
    cmd("pg force-backfill pgid:Pgid*", "pg", "rw", cf::MGR, |c| force(c, 2, false), "backfill PGs before others"),
    cmd(
        "pg cancel-force-recovery pgid:Pgid*",
        "pg",
        "rw",
        cf::MGR,
        |c| force(c, 5, false),
        "recover PGs with their normal priority again",
    ),
    cmd(
        "pg cancel-force-backfill pgid:Pgid*",
        "pg",
        "rw",
        cf::MGR,
        |c| force(c, 6, false),
        "backfill PGs with their normal priority again",
    ),
    cmd(
        "osd pool force-recovery who:Poolname*",
        "osd",
        "rw",
        cf::MGR,
        |c| force(c, 1, true),
        "recover pools before others",
    ),
    cmd(
        "osd pool force-backfill who:Poolname*",
        "osd",
        "rw",
        cf::MGR,
        |c| force(c, 2, true),
        "backfill pools before others",
    ),
    cmd(
        "osd pool cancel-force-recovery who:Poolname*",
        "osd",
        "rw",
        cf::MGR,
        |c| force(c, 5, true),
        "recover pools with their normal priority again",
    ),
    cmd(
        "osd pool cancel-force-backfill who:Poolname*",
        "osd",
        "rw",
        cf::MGR,
        |c| force(c, 6, true),
        "backfill pools with their normal priority again",
    ),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Scrub,
    Deep,
    Repair,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Scrub => "scrub",
            Self::Deep => "deep-scrub",
            Self::Repair => "repair",
        }
    }
}

/// The scrub messages, one for each OSD with its PGs.
fn send(c: &Ctx<'_>, kind: Kind, by: BTreeMap<OsdId, Vec<PgId>>) -> Vec<CommandEffect> {
    by.into_iter()
        .map(|(o, pgs)| {
            let m = MOsdScrub2 {
                fsid: c.state.fsid,
                epoch: c.state.osdmap.epoch,
                scrub_pgs: pgs.into_iter().map(|pg| c.state.osdmap.primary_shard(pg)).collect(),
                repair: kind == Kind::Repair,
                deep: kind != Kind::Scrub,
            };
            CommandEffect::ToOsd(o, m.to_message(wire::Features::PACIFIC))
        })
        .collect()
}

/// Most PGs without a report that a request looks up in the map; with more, it is refused at once.
const SILENT_PGS: usize = 1024;

/// Refuses a request to OSDs of which one has no session with the manager role, as Ceph does.
fn connected<'a>(c: &Ctx<'_>, osds: impl IntoIterator<Item = &'a OsdId>) -> Res<()> {
    match osds.into_iter().find(|o| c.state.sessions.newest_of(**o).is_none()) {
        Some(o) => refuse(errno::EAGAIN, format!("primary {o} is not currently connected; try again")),
        None => Ok(()),
    }
}

/// Refuses a request while PGs that it is about have not reported, since the manager role does not know them.
fn reported(c: &Ctx<'_>, about: impl Fn(PgId, OsdId) -> bool) -> Res<()> {
    let map = &c.state.osdmap;
    let silent = c.state.mgr.stats.silent_pgs(map, SILENT_PGS);
    let many = silent.len() == SILENT_PGS;
    if many || silent.iter().any(|pg| about(*pg, map.pg_to_up_acting(*pg).acting_primary)) {
        return refuse(errno::EAGAIN, "placement groups have not reported to the manager yet; try again");
    }
    Ok(())
}

/// The PGs that `keep` selects, by primary; PGs whose primary is down are left out.
fn by_primary(c: &Ctx<'_>, keep: impl Fn(&PgId, &PgStat) -> bool) -> BTreeMap<OsdId, Vec<PgId>> {
    let mut by: BTreeMap<OsdId, Vec<PgId>> = BTreeMap::new();
    for (id, s) in c.state.mgr.stats.pgs().filter(|(id, s)| keep(id, s)) {
        if c.state.osdmap.is_up(s.acting_primary) {
            by.entry(s.acting_primary).or_default().push(*id);
        }
    }
    by
}

fn osd(c: &mut Ctx<'_>, kind: Kind) -> Res<CommandOutcome> {
    let who = c.args.str("who")?;
    let map = c.state.osdmap.clone();
    let list: Vec<OsdId> = if matches!(who.as_str(), "all" | "any" | "*") {
        map.osds().filter(|o| map.is_up(*o)).collect()
    } else {
        match parse_osd(&who) {
            None => return invalid(format!("Expected option value to be integer, got '{who}'invalid osd '{who}'")),
            Some(o) if !map.is_up(o) => return refuse(errno::EAGAIN, format!("{o} is not up")),
            Some(o) => vec![o],
        }
    };
    let (here, gone): (Vec<OsdId>, Vec<OsdId>) =
        list.into_iter().partition(|o| c.state.sessions.newest_of(*o).is_some());
    let names = |l: &[OsdId]| l.iter().map(|o| o.0.to_string()).collect::<Vec<_>>().join(",");
    if here.is_empty() {
        return refuse(errno::EAGAIN, format!("osd(s) {} are not connected", names(&gone)));
    }
    reported(c, |_, primary| here.contains(&primary))?;
    let by = by_primary(c, |_, s| here.binary_search(&s.acting_primary).is_ok());
    let mut rs = format!("instructed osd(s) {} to {}", names(&here), kind.word());
    if !gone.is_empty() {
        rs += &format!("; osd(s) {} were not connected", names(&gone));
    }
    let mut out = CommandOutcome::done(rs);
    out.effects = send(c, kind, by);
    Ok(out)
}

fn existing(c: &Ctx<'_>, id: PgId) -> bool {
    c.state.osdmap.pool(id.pool).is_some_and(|p| id.seed < p.pg_num)
}

fn pg(c: &mut Ctx<'_>, kind: Kind) -> Res<CommandOutcome> {
    let id = c.args.pgid("pgid")?;
    if !existing(c, id) {
        return refuse(errno::ENOENT, format!("pg {id} does not exist"));
    }
    let primary = c.state.osdmap.pg_to_up_acting(id).acting_primary;
    if primary.0 < 0 {
        return refuse(errno::EAGAIN, format!("pg {id} has no primary osd"));
    }
    if c.state.sessions.newest_of(primary).is_none() {
        return refuse(errno::EAGAIN, format!("pg {id} primary {primary} is not currently connected"));
    }
    let mut out = CommandOutcome::done(format!("instructing pg {id} on {primary} to {}", kind.word()));
    out.effects = send(c, kind, [(primary, vec![id])].into());
    Ok(out)
}

fn pools(c: &Ctx<'_>) -> Res<Vec<base::PoolId>> {
    c.args
        .list("who")
        .iter()
        .map(|n| {
            c.state
                .osdmap
                .pool_by_name(n)
                .ok_or_else(|| crate::command::Refused::new(errno::ENOENT, format!("unrecognized pool '{n}'")))
        })
        .collect()
}

fn pool(c: &mut Ctx<'_>, kind: Kind) -> Res<CommandOutcome> {
    let pools = pools(c)?;
    reported(c, |id, _| pools.contains(&id.pool))?;
    let by = by_primary(c, |id, _| pools.contains(&id.pool));
    connected(c, by.keys())?;
    let mut out = CommandOutcome::done("");
    out.effects = send(c, kind, by);
    Ok(out)
}

/// Asks primaries to force recovery. `options` is 1 for recovery or 2 for backfill, plus 4 to cancel.
fn force(c: &mut Ctx<'_>, options: u8, by_pool: bool) -> Res<CommandOutcome> {
    let mut ids: Vec<PgId> = Vec::new();
    let mut rs = String::new();
    let mut rc = 0;
    if by_pool {
        let pools = pools(c)?;
        reported(c, |id, _| pools.contains(&id.pool))?;
        ids.extend(c.state.mgr.stats.pgs().map(|(id, _)| *id).filter(|id| pools.contains(&id.pool)));
    } else {
        for w in c.args.list("pgid") {
            match PgId::parse(&w) {
                None => return invalid(format!("invalid pgid '{w}'; \n")),
                Some(id) if existing(c, id) => ids.push(id),
                Some(id) => {
                    rs += &format!("pg {id} does not exist; ");
                    rc = errno::ENOENT;
                }
            }
        }
    }
    let (what, busy) = if options & 1 != 0 {
        ("recovery", pg_state::DEGRADED | pg_state::RECOVERY_WAIT | pg_state::RECOVERING)
    } else {
        ("backfilling", pg_state::DEGRADED | pg_state::BACKFILL_WAIT | pg_state::BACKFILLING)
    };
    let mut chosen = BTreeSet::new();
    for id in ids {
        let Some(stat) = c.state.mgr.stats.pg(id) else {
            return refuse(errno::EAGAIN, format!("pg {id} has not reported to the manager yet; try again"));
        };
        if stat.state() & busy == 0 {
            rs += &format!("pg {id} doesn't require {what}; ");
        } else {
            chosen.insert(id);
        }
    }
    let by = by_primary(c, |id, _| chosen.contains(id));
    connected(c, by.keys())?;
    let effects = by
        .into_iter()
        .map(|(o, pgs)| {
            let m = MOsdForceRecovery {
                fsid: c.state.fsid,
                forced_pgs: pgs.into_iter().map(|pg| c.state.osdmap.primary_shard(pg)).collect(),
                options,
            };
            CommandEffect::ToOsd(o, m.to_message(wire::Features::PACIFIC))
        })
        .collect();
    if !rs.is_empty() {
        rs.push('\n');
    }
    let mut out = done(rs)?;
    out.rc = rc;
    out.effects = effects;
    Ok(out)
}
