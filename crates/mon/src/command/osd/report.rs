//! Reports of an OSD about its own device: that it does not answer, and that the store failed.
//!
//! The reasons are kept with the OSD's metadata, so the next leader knows them, and the next boot removes them.

use super::flags::set_state;
use super::life::existing;
use crate::command::{Cmd, CommandOutcome, Ctx, Res, cmd, committed, done, flag as cf, refuse};
use crate::state::log::Prio;
use crate::state::osd::may_mark_down;
use base::{EntityKind, OsdId, errno};
use cluster::osdmap::osd_state;
use wire::types::pg_state;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "osd store-failed id:OsdName reason:String",
        "osd",
        "rw",
        cf::HIDDEN,
        store_failed,
        "report that an OSD stops because its store failed",
    ),
    cmd(
        "osd device-silent id:OsdName reason:String",
        "osd",
        "rw",
        cf::HIDDEN,
        device_silent,
        "report that the device of an OSD does not answer, or that it does again (no reason)",
    ),
];

/// Longest reason that is kept, in bytes.
const REASON_MAX: usize = 512;
/// Metadata key for the reason of a store failure. The OSD's next boot replaces its metadata and so removes the key.
pub(in crate::command) const STORE_FAILURE: &str = "store_failure";
/// Metadata key for the reason why a device counts as silent.
pub(in crate::command) const DEVICE_SILENCE: &str = "device_silence";

/// The OSD of a report. Error: it does not exist, or another OSD reports it.
fn reporter(c: &mut Ctx<'_>) -> Res<OsdId> {
    let o = existing(c)?;
    let me = &c.session.principal.who.name;
    if me.kind == EntityKind::OSD && me.id != o.0.to_string() {
        return refuse(errno::EACCES, format!("osd.{} has no say about {o}", me.id));
    }
    Ok(o)
}

fn reason(c: &Ctx<'_>) -> Res<String> {
    let mut reason: String = c.args.str("reason")?.chars().filter(|c| !c.is_control()).collect();
    let cut = (0..=REASON_MAX.min(reason.len())).rev().find(|i| reason.is_char_boundary(*i)).unwrap_or(0);
    reason.truncate(cut);
    Ok(reason)
}

/// Sets (or with an empty reason removes) a key of the OSD's metadata. False if nothing changes.
fn note(c: &mut Ctx<'_>, o: OsdId, key: &str, reason: &str) -> bool {
    let newer = c.pending.osd_metadata.get(&o).cloned().flatten();
    let mut m = newer.or_else(|| c.state.osds.metadata.get(&o).cloned()).unwrap_or_default();
    let was = if reason.is_empty() { m.remove(key) } else { m.insert(key.into(), reason.to_owned()) };
    if was.as_deref().unwrap_or_default() == reason {
        return false;
    }
    c.pending.set_osd_metadata(o, Some(m));
    true
}

fn store_failed(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let o = reporter(c)?;
    let reason = reason(c)?;
    let answers = note(c, o, DEVICE_SILENCE, "");
    // An OSD that is started again and again says the same each time.
    if !note(c, o, STORE_FAILURE, &reason) && !answers {
        return done("");
    }
    committed("")
}

/// Takes an OSD out of service whose device does not answer, if that lets PGs go on. It boots again by itself.
fn device_silent(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let o = reporter(c)?;
    let reason = reason(c)?;
    if !note(c, o, DEVICE_SILENCE, &reason) {
        return done("");
    }
    let map = c.map();
    let shown = map.is_up(o) && map.client_addr(o) == Some(&c.session.addrs);
    if !reason.is_empty() && shown && frees(c, o) && may_mark_down(c.state, c.pending, o) {
        set_state(c, o, osd_state::UP, false);
        let text = format!("{o} is taken out of service until its device answers: {reason}");
        c.pending.log(c.state, c.now, Prio::WARN, "cluster", text);
    }
    committed("")
}

/// True if more PGs go on without this OSD than stop. Its PGs take no writes while its device is silent; those with too
/// few other copies would serve no reads either.
fn frees(c: &mut Ctx<'_>, osd: OsdId) -> bool {
    let map = c.map();
    let silent = |o: &OsdId| c.state.osds.metadata.get(o).is_some_and(|m| m.contains_key(DEVICE_SILENCE));
    let (mut freed, mut stopped) = (0usize, 0usize);
    for (id, s) in c.state.mgr.stats.pgs().filter(|(_, s)| s.acting.contains(&osd)) {
        let others = s.acting.iter().filter(|o| **o != osd && map.is_up(**o) && !silent(o)).count();
        let enough = map.pool(id.pool).is_none_or(|p| others >= p.min_size as usize);
        freed += usize::from(enough);
        stopped += usize::from(!enough && s.state() & pg_state::ACTIVE != 0);
    }
    freed > stopped
}
