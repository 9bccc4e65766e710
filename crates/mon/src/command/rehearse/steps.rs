//! `rehearse apply`, `release`, `undo`, …: a rehearsed change that is carried out in steps, and its way back.
//!
//! `belemnite rehearse --apply` decides the steps (`mgr::rehearse::steps`); these commands make them. The record is the
//! `config-key` entry [`KEY`].
//!
//! Invariants:
//!  1. The change, the upmap items that hold PGs and the record are one proposal, on the map that was rehearsed.
//!  2. The sender must have the rights of the command that is carried out.
//!  3. One program at a time makes steps (`mgr::rehearse::steps::Claim`).
//!
//! Tests: `tests/does_a_rehearsal_foretell_the_map.rs` (1, `a_change_in_steps_holds_pgs_and_is_undone_or_committed`;
//! 2, 3, `a_change_in_steps_needs_rights_and_a_way_back`).

use super::is_of_map;
use crate::command::{
    Cmd, CommandEffect, CommandOutcome, Ctx, Refused, Request, Res, When, cmd, committed, invalid, parse, refuse, run,
};
use crate::state::log::Prio;
use crate::state::{ClusterState, Pending, Role};
use base::{PgId, errno};
use bytes::Bytes;
use cluster::osdmap::CANONICAL;
use cluster::{Incremental, OsdMap};
use mgr::rehearse::steps::{Kept, PGS_MAX, Record, Undo, set_items, shortened};
use serde_json::json;
use std::sync::Arc;

/// The key of the record.
pub(crate) const KEY: &str = "belemnite/rehearse";
/// Longest record in bytes: it is one value of the state, with the map change beside it.
pub(crate) const RECORD_MAX: usize = 512 << 10;
/// Longest name of a program in bytes.
const BY_MAX: usize = 256;
/// Most bytes of the command's words.
const COMMAND_MAX: usize = 4096;

/// Commands of this module.
pub(in crate::command) const COMMANDS: &[Cmd] = &[
    cmd(
        "rehearse apply cmd:String epoch:Int by:String",
        "osd",
        "rw",
        0,
        apply,
        "make a rehearsed change and hold PGs where they are, as `belemnite rehearse --apply` asks",
    ),
    cmd(
        "rehearse claim by:String end:Bool?",
        "osd",
        "rw",
        0,
        claim,
        "take, keep or end the claim to carry out a rehearsed change",
    ),
    cmd(
        "rehearse release by:String pgs:Pgid*?",
        "osd",
        "rw",
        0,
        release,
        "let held PGs go; after the last one, finish the rehearsed change",
    ),
    cmd("rehearse status", "mon", "r", 0, status, "show the rehearsed change that is carried out"),
    cmd("rehearse undo force:Bool?", "osd", "rw", 0, undo, "undo the rehearsed change that is not committed"),
    cmd("rehearse commit", "osd", "rw", 0, commit, "forget how to undo the rehearsed change"),
];

/// The record of a state. Error: EIO for one that cannot be read.
pub(crate) fn record_of(state: &ClusterState) -> Res<Option<Record>> {
    let Some(text) = state.kv.get(KEY) else { return Ok(None) };
    let damaged = |e| Refused::new(errno::EIO, format!("the config-key {KEY} cannot be read: {e}"));
    serde_json::from_slice(text).map(Some).map_err(damaged)
}

/// The record. Error: ENOENT without one.
fn record(c: &Ctx<'_>) -> Res<Record> {
    let none = || Refused::new(errno::ENOENT, "no rehearsed change is carried out, or it was committed or undone");
    record_of(c.state)?.ok_or_else(none)
}

fn described(r: &Record) -> String {
    format!("'{}', applied by {}", r.command, r.by)
}

/// The sender's name. Error: EBUSY if another program has the claim.
fn claimed(c: &Ctx<'_>) -> Res<String> {
    let by = c.args.str("by")?;
    if by.is_empty() || by.len() > BY_MAX || by.contains(char::is_control) {
        return invalid(format!("the name of the program has 1 to {BY_MAX} bytes and no control characters"));
    }
    match c.state.mgr.rehearsal().other(&by, c.now) {
        Some((other, age)) => {
            refuse(errno::EBUSY, format!("{other} carries out a rehearsed change, heard of {} ms ago", age.as_millis()))
        }
        None => Ok(by),
    }
}

fn with_claim(by: String, o: CommandOutcome) -> CommandOutcome {
    CommandOutcome { effects: vec![CommandEffect::Rehearsal(by)], ..o }
}

fn claim(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let by = claimed(c)?;
    Ok(with_claim(if c.args.flag("end") { String::new() } else { by }, CommandOutcome::done("")))
}

/// The plan that `belemnite rehearse --apply` gives as input.
fn planned(c: &Ctx<'_>) -> Res<Record> {
    if c.input.len() > RECORD_MAX {
        return refuse(errno::E2BIG, format!("the plan of a change has at most {RECORD_MAX} bytes"));
    }
    let plan: Record = serde_json::from_slice(c.input).or_else(|e| invalid(format!("the plan of a change: {e}")))?;
    if plan.command.len() > COMMAND_MAX || plan.command.contains(char::is_control) {
        return invalid(format!("the words of the command have at most {COMMAND_MAX} bytes and no control characters"));
    }
    Ok(plan)
}

fn apply(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let by = claimed(c)?;
    let mut plan = planned(c)?;
    if let Some(r) = record_of(c.state)? {
        // A command that is sent again since its answer was lost.
        if r.by == by && r.command == plan.command && c.args.int("epoch") == Some(i64::from(r.epoch)) {
            return Ok(with_claim(by, CommandOutcome::done("made before")));
        }
        return refuse(errno::EBUSY, format!("{} is not committed: commit or undo it first", described(&r)));
    }
    if c.state.options.external_mgr {
        return refuse(errno::EOPNOTSUPP, "the balancer of a separate ceph-mgr would not keep PGs where they are held");
    }
    if plan.pgs.values().any(|k| k.hold.is_some() || !k.then.is_empty()) {
        crate::command::osd::upmap::upmap_allowed(c)?;
    }
    if c.pending.inc().is_some() || c.pending.kv.contains_key(KEY) {
        return Ok(CommandOutcome::retry());
    }
    let map = Arc::clone(&c.state.osdmap);
    if c.args.int("epoch") != Some(i64::from(map.epoch.0)) {
        return refuse(errno::EAGAIN, format!("the OSD map has changed since, to epoch {}: rehearse again", map.epoch));
    }
    let (mut change, log, rs) = changed(c)?;
    plan.undo = Undo::of(&map, &change).map_err(|why| Refused::new(errno::EOPNOTSUPP, no_way_back(&why)))?;
    (plan.by, plan.since, plan.epoch) = (by.clone(), c.now.wall.to_unix().as_secs(), map.epoch.0);
    plan.undo.hold_weights(&mut change);
    hold(&map, &mut change, &plan)?;
    let text = serde_json::to_vec(&plan).or_else(|e| invalid(e.to_string()))?;
    if text.len() > RECORD_MAX {
        let text = format!("the record of this change has {} bytes, more than {RECORD_MAX}", text.len());
        return refuse(errno::E2BIG, text);
    }
    if let Err(e) = map.apply(&change) {
        return invalid(format!("the change does not apply: {e}"));
    }
    *c.inc() = change;
    log.into_iter().for_each(|line| c.pending.add_log(line));
    c.pending.set_kv(KEY.into(), Some(Bytes::from(text)));
    let n = plan.pgs.values().filter(|k| k.hold.is_some()).count();
    note(c, format!("rehearse: {by} applies '{}' and holds {n} placement groups where they are", plan.command));
    Ok(with_claim(by, CommandOutcome::committed(rs)))
}

fn no_way_back(why: &str) -> String {
    format!("there is no exact way back: {why}")
}

fn note(c: &mut Ctx<'_>, line: String) {
    c.pending.log(c.state, c.now, Prio::INFO, "cluster", line);
}

/// Runs the command on a proposal of its own, and gives its change of the map, its log lines and its status line.
fn changed(c: &mut Ctx<'_>) -> Res<(Incremental, Vec<crate::state::log::LogEntry>, String)> {
    let p = parse(&[c.args.str("cmd")?], Role::Mon)?;
    if !is_of_map(&p) || p.sig.prefix.starts_with("rehearse ") {
        return refuse(errno::EOPNOTSUPP, format!("'{}' is no command that changes the OSD map", p.sig.prefix));
    }
    let mut pending = Pending::default();
    let (state, session, input, now, random, ops) = (c.state, c.session, c.input, c.now, c.random, c.ops);
    let o = run(Request { state, pending: &mut pending, session, cmd: &p, input, now, random, ops })?;
    if o.rc < 0 {
        return Err(Refused::new(o.rc, o.rs));
    }
    let log = pending.take_log();
    let Some(inc) = pending.take_inc() else { return invalid(format!("nothing would change: {}", o.rs)) };
    if !pending.is_empty() || !o.effects.is_empty() || !matches!(o.when, When::Now | When::Committed) {
        return refuse(errno::EOPNOTSUPP, no_way_back("it changes more than the OSD map"));
    }
    Ok((inc, log, o.rs))
}

/// Adds the upmap items that hold PGs.
fn hold(map: &OsdMap, change: &mut Incremental, plan: &Record) -> Res<()> {
    if plan.pgs.len() > PGS_MAX || plan.unclean.len() > PGS_MAX {
        return refuse(errno::E2BIG, format!("a change in steps has at most {PGS_MAX} PGs"));
    }
    for (pg, k) in &plan.pgs {
        let now = map.pg_upmap_items.get(pg).map_or(&[][..], Vec::as_slice);
        let was = now.iter().map(|(a, b)| (a.0, b.0)).eq(k.was.iter().copied());
        if !was || map.pool(pg.pool).is_none_or(|p| pg.seed >= p.pg_num) {
            return invalid(format!("the upmap items of pg {pg} are not those of the plan"));
        }
        check_osds(map, *pg, k)?;
        if let Some(items) = &k.hold {
            set_items(map, change, *pg, items);
        }
    }
    Ok(())
}

fn check_osds(map: &OsdMap, pg: PgId, k: &Kept) -> Res<()> {
    let all = k.hold.iter().flatten().chain(&k.then);
    let size = map.pool(pg.pool).map_or(0, |p| usize::from(p.size));
    let exists = |o: i32| map.exists(base::OsdId(o));
    if k.then.len() > size || k.hold.as_ref().is_some_and(|h| h.len() > size) {
        return invalid(format!("pg {pg} has more upmap items than copies"));
    }
    match all.flat_map(|(a, b)| [*a, *b]).find(|o| !exists(*o)) {
        Some(o) => invalid(format!("osd.{o} of pg {pg} does not exist")),
        None => Ok(()),
    }
}

fn release(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let (by, r) = (claimed(c)?, record(c)?);
    if c.pending.inc().is_some() || c.pending.kv.contains_key(KEY) {
        return Ok(CommandOutcome::retry());
    }
    let map = Arc::clone(&c.state.osdmap);
    let named = c.args.list("pgs");
    if named.len() > PGS_MAX {
        return refuse(errno::E2BIG, format!("a step has at most {PGS_MAX} PGs"));
    }
    let held: std::collections::BTreeMap<PgId, &Kept> = r.held(&map).collect();
    let mut n = 0;
    for name in &named {
        let Some(pg) = PgId::parse(name) else { return invalid(format!("{name} is no PG")) };
        // Another program may have let it go.
        if let Some(k) = held.get(&pg) {
            set_items(&map, c.inc(), pg, &k.then);
            n += 1;
        }
    }
    if named.is_empty() && held.is_empty() {
        let last = r.undo.last_weights(&map);
        if !last.is_empty() {
            c.inc().new_weight.extend(last);
            note(c, format!("rehearse: '{}' is carried out to its end", r.command));
            return Ok(with_claim(by, CommandOutcome::committed("finished")));
        }
    }
    if n == 0 {
        return Ok(with_claim(by, CommandOutcome::done("nothing is held")));
    }
    note(c, format!("rehearse: lets {n} placement groups go, {} are held", held.len().saturating_sub(n)));
    Ok(with_claim(by, CommandOutcome::committed(format!("let {n} placement groups go"))))
}

fn status(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    c.json_unless_asked();
    let claim = c.state.mgr.rehearsal().holder(c.now);
    let (by, age) = (claim.map(|(by, _)| by), claim.map(|(_, age)| age.as_millis() as u64));
    let Some(mut r) = record_of(c.state)? else {
        return c.show_value(&json!({ "applied": false, "claimed_by": by, "claim_age_ms": age }));
    };
    let map = &c.state.osdmap;
    let held = r.held(map).count();
    let (differs, last) = (r.differences(map), r.undo.last_weights(map).len());
    if let Some(crush) = r.undo.crush.as_mut() {
        crush.was = String::new();
    }
    c.show_value(&json!({
        "applied": true,
        "command": r.command,
        "by": r.by,
        "since": r.since,
        "epoch": r.epoch,
        "held": held,
        "let_go": r.pgs.values().filter(|k| k.hold.is_some()).count().saturating_sub(held),
        "is_finished": held == 0 && last == 0,
        "changed_by_others": differs,
        "claimed_by": by,
        "claim_age_ms": age,
        "record": r,
    }))
}

/// Names of pools whose CRUSH rule does not exist.
fn without_rule(map: &OsdMap) -> Vec<String> {
    let lost = map.pools.iter().filter(|(_, p)| map.crush.rule(p.crush_rule.into()).is_none());
    lost.map(|(id, _)| map.pool_name(*id).unwrap_or_default().to_owned()).collect()
}

fn undo(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let r = record(c)?;
    if c.pending.inc().is_some() || c.pending.kv.contains_key(KEY) {
        return Ok(CommandOutcome::retry());
    }
    let map = Arc::clone(&c.state.osdmap);
    let differs = r.differences(&map);
    if !differs.is_empty() && !c.args.flag("force") {
        let text = format!(
            "others have changed what the undo would set: {}; --force undoes it all the same",
            shortened(&differs)
        );
        return refuse(errno::EPERM, text);
    }
    let mut inc = Incremental::new(map.fsid, map.epoch.next(), map.modified);
    if let Err(e) = r.bring_back(&map, &mut inc) {
        return refuse(errno::EPERM, e);
    }
    inc.encode_features = CANONICAL.0;
    match map.apply(&inc) {
        Ok(after) => {
            let lost = without_rule(&after);
            if !lost.is_empty() {
                let text = format!("the rules of these pools would not exist: {}", shortened(&lost));
                return refuse(errno::EPERM, text);
            }
        }
        Err(e) => return invalid(format!("the way back does not apply: {e}")),
    }
    *c.inc() = Incremental { encode_features: 0, ..inc };
    c.pending.set_kv(KEY.into(), None);
    note(c, format!("rehearse: '{}' is undone", r.command));
    Ok(with_claim(String::new(), CommandOutcome::committed(format!("'{}' is undone", r.command))))
}

fn commit(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let r = record(c)?;
    let map = c.map();
    let held = r.held(&map).count();
    if held > 0 || !r.undo.last_weights(&map).is_empty() {
        let text = format!(
            "{} is not at its end, {held} PGs are held: go on with `belemnite rehearse --apply`, or undo it",
            described(&r)
        );
        return refuse(errno::EBUSY, text);
    }
    // An OSD that failed while it was held comes back with the weight that it had, not with that of the hold.
    for (o, weight) in r.undo.weights_to_keep(&map) {
        let x = cluster::osdmap::OsdXinfo { old_weight: weight, ..map.xinfo(o) };
        c.inc().new_xinfo.insert(o, x);
    }
    c.pending.set_kv(KEY.into(), None);
    note(c, format!("rehearse: '{}' is committed", r.command));
    committed(format!("'{}' is committed", r.command))
}
