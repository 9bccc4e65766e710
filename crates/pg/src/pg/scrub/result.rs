//! The result of a scrub: errors that were found, their repair, and the counts in the info.

use crate::effect::{Effect, LogLevel};
use crate::limits::SCRUB_RETRY;
use crate::peer::Body;
use crate::pg::Pg;
use crate::pg::ops::plan::Plan;
use crate::pg::ops::work::{LifeWork, ScrubWork, Work};
use crate::pg::scrub::At;
use crate::scrub::ScrubRequest;
use crate::scrub::compare::Compared;
use crate::scrub::message::{Ask, ScrubMsg};
use crate::scrub::report::Findings;
use crate::shards::PeerId;
use crate::stats::StatSum;
use base::unreached;
use base::{Eversion, HObject, Now, PgId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Most lines in the cluster log about single objects, per scrub.
const LINES_MAX: usize = 100;
/// Most objects that one scrub repairs; others wait for the next scrub.
const REPAIRS_MAX: usize = 10_000;

/// Errors that a scrub has found so far, and their repairs.
#[derive(Debug, Default)]
pub(super) struct Tally {
    found: Findings,
    shallow: i64,
    deep: i64,
    /// Lines about single objects in the cluster log.
    lines: usize,
    large_omap: i64,
    stats: StatSum,
    /// Some objects have no authoritative copy.
    unsettled: bool,
    fixable: i64,
    /// Objects with an error that no copy can repair.
    hopeless: i64,
    lack: BTreeMap<PeerId, Vec<(HObject, Eversion)>>,
    repairs: usize,
}

impl Pg {
    pub(super) fn note_compared(&mut self, head: &HObject, c: Compared) {
        let need = self.journal.info().last_update;
        let Some(run) = &mut self.scrub.interval.run else { return unreached("a scrub is in progress") };
        run.tally.shallow += c.shallow;
        run.tally.deep += c.deep;
        run.tally.stats.add(&c.stats);
        run.tally.large_omap += c.omap.len() as i64;
        let mut lines = c.lines;
        if c.good.is_some() && !c.bad.is_empty() && run.tally.repairs < REPAIRS_MAX {
            run.tally.repairs += 1;
            run.tally.fixable += c.fixable;
            for o in &c.bad {
                run.tally.lack.entry(*o).or_default().push((head.clone(), need));
            }
        } else if c.shallow + c.deep > 0 {
            run.tally.hopeless += 1;
            run.tally.unsettled |= c.good.is_none();
        }
        for (h, b) in c.objects {
            run.tally.found.add_object(h, b);
        }
        if let Some(b) = c.snapset {
            run.tally.found.add_snapset(head.clone(), b);
        }
        let room = LINES_MAX.saturating_sub(run.tally.lines);
        run.tally.lines += lines.len();
        lines.truncate(room);
        for l in lines {
            self.scrub_log(LogLevel::Error, &l);
        }
        for (h, keys, bytes) in c.omap {
            let (pg, raw) = (self.env.spg().pg, PgId { seed: h.hash, ..self.env.spg().pg });
            let text = format!(
                "Large omap object found. Object: {h} PG: {raw} ({pg}) Key count: {keys} Size (bytes): {bytes}"
            );
            self.mail.post(Effect::Log(LogLevel::Warn, text));
        }
    }

    /// Adds the change of a write to the sums, if its object was already compared.
    pub(in crate::pg) fn scrub_sees(&mut self, head: &HObject, delta: &StatSum) {
        let Some(run) = &mut self.scrub.interval.run else { return };
        let later = run.todo.contains(head) || run.group.contains(head);
        let within = matches!(run.at, At::Hold | At::Scan) && *head <= run.end;
        if *head <= run.upto && run.at != At::Reserve || within && !later {
            run.tally.stats.add(delta);
        }
    }

    pub(super) fn finish_scrub(&mut self, now: Now) {
        let Some((delta, fixed_stats)) = self.correct_stats() else { return unreached("a scrub is in progress") };
        let Some(run) = &mut self.scrub.interval.run else { return unreached("a scrub is in progress") };
        let (what, errors) = (run.what, run.tally.shallow + run.tally.deep);
        let auto = {
            let c = self.scrub.settings.config.borrow();
            c.auto_repair && what.deep && errors <= i64::from(c.auto_repair_num_errors)
        };
        let repair = what.repair || auto && errors > 0;
        if !repair {
            run.tally.lack.clear();
        }
        let fixed = if repair { run.tally.fixable + fixed_stats } else { 0 };
        let all_fixed = repair && run.tally.hopeless == 0 && !run.tally.unsettled;
        let copies: usize = run.tally.lack.values().map(Vec::len).sum();
        let (shallow, deep) = if all_fixed { (0, 0) } else { (run.tally.shallow, run.tally.deep) };
        let (recheck, large) = (run.recheck, run.tally.large_omap);
        self.scrub.interval.found = Some(Box::new(std::mem::take(&mut run.tally.found)));
        let remaining = if what.deep { 0 } else { self.journal.info().stats.num_deep_scrub_errors };
        self.journal.set_scrub_errors(shallow, what.deep.then_some((deep, large)), copies as i64);
        self.journal.scrubbed(what.deep, shallow + deep == 0, now.wall);
        let mut text = format!("{} ", what.word());
        if errors > 0 {
            text += &format!("{errors} errors");
        } else {
            text += "ok";
        }
        if remaining > 0 {
            text += &format!(" ( {remaining} remaining deep scrub error details lost)");
        }
        if repair {
            text += &format!(", {fixed} fixed");
        }
        self.scrub_log(if errors > 0 { LogLevel::Error } else { LogLevel::Debug }, &text);
        let sc = &mut self.scrub.interval;
        sc.failed = (repair || recheck) && shallow + deep > 0 && copies == 0;
        sc.recheck = repair && copies > 0 && !all_fixed;
        self.report_scrubbed(delta);
        self.report.state_changed(now);
        if copies == 0 {
            return self.end_scrub(false, now);
        }
        self.ask_to_lack();
    }

    /// Corrects the statistics by the scrub's sums, where that may be done. Returns the change, and the number of
    /// mismatches that a repair has fixed; `None` if no scrub is in progress.
    fn correct_stats(&mut self) -> Option<(StatSum, i64)> {
        let run = self.scrub.interval.run.as_mut()?;
        let what = run.what;
        let (sums, have) = (run.tally.stats, self.journal.info().stats);
        let differ = sums.num_objects != have.num_objects
            || sums.num_object_clones != have.num_object_clones
            || sums.num_bytes != have.num_bytes;
        let mut delta = StatSum::default();
        if what.deep {
            delta.num_omap_bytes = sums.num_omap_bytes - have.num_omap_bytes;
            delta.num_omap_keys = sums.num_omap_keys - have.num_omap_keys;
        }
        let counted = !run.tally.unsettled && (differ || have.estimated != 0);
        let estimated = have.estimated != 0;
        if counted && (what.repair || estimated) {
            delta.num_objects = sums.num_objects - have.num_objects;
            delta.num_object_clones = sums.num_object_clones - have.num_object_clones;
            delta.num_bytes = sums.num_bytes - have.num_bytes;
            delta.estimated = -have.estimated;
        }
        self.journal.add_stats(&delta);
        if !counted || estimated {
            return Some((delta, 0));
        }
        run.tally.shallow += 1;
        let text = format!(
            "{} : stat mismatch, got {}/{} objects, {}/{} clones, {}/{} bytes",
            what.word(),
            sums.num_objects,
            have.num_objects,
            sums.num_object_clones,
            have.num_object_clones,
            sums.num_bytes,
            have.num_bytes
        );
        self.scrub_log(LogLevel::Error, &text);
        Some((delta, i64::from(what.repair)))
    }

    /// Tells the members the result of the scrub.
    fn report_scrubbed(&mut self, delta: StatSum) {
        let (history, s) = (Box::new(self.journal.info().history.clone()), self.journal.info().stats);
        let counts =
            [s.num_shallow_scrub_errors, s.num_deep_scrub_errors, s.num_large_omap_objects, s.num_objects_repaired];
        let m = Body::Scrub(Box::new(ScrubMsg::Done { history, counts, delta })).encode();
        let members: Vec<PeerId> = self.peers.members().keys().copied().collect();
        for o in members {
            self.send_encoded(o, m.clone());
        }
    }

    /// Asks each holder of bad copies, this OSD included, to mark them as missing.
    fn ask_to_lack(&mut self) {
        let members: Vec<PeerId> = self.peers.members().keys().copied().collect();
        let lack = self.scrub.interval.run.as_ref().map(|r| r.tally.lack.clone()).unwrap_or_default();
        self.ask_some(At::Lack, |o| lack.get(&o).map(|l| Ask::Lack(l.clone())), &members);
        let me = self.me();
        if let Some(own) = lack.get(&me)
            && let Some(run) = &mut self.scrub.interval.run
        {
            run.own_open = true;
            let plan = Work::Scrub(ScrubWork::Lack { to: me, n: run.n, what: own.clone() });
            let id = self.new_plan_id();
            self.enqueue(Plan::new(id, plan, None, false));
        }
    }

    /// Handles the answers to `Lack`: bad copies are marked everywhere, and recovery begins.
    pub(super) fn lacked(&mut self, now: Now) {
        let Some(run) = &mut self.scrub.interval.run else { return unreached("a scrub is in progress") };
        for (o, lack) in std::mem::take(&mut run.tally.lack) {
            self.member_lacks(o, lack);
        }
        self.scrub.interval.repairing = true;
        self.scrub.interval.kick = true;
        self.peers.needs_recovery();
        self.report.state_changed(now);
        self.end_scrub(false, now);
    }

    /// True once after a scrub has found copies to recover.
    pub(in crate::pg) fn recovery_wanted(&mut self) -> bool {
        std::mem::take(&mut self.scrub.interval.kick)
    }

    pub(super) fn repaired(&mut self) {
        self.scrub.interval.repairing = false;
        if self.scrub.interval.recheck {
            self.want_scrub(ScrubRequest { deep: true, repair: false, required: true });
        }
    }

    /// Ends a scrub and releases its slots. `again`: it could not run now; a required scrub stays requested.
    pub(super) fn end_scrub(&mut self, again: bool, now: Now) {
        self.let_go();
        let Some(run) = self.scrub.interval.run.take() else { return unreached("a scrub is in progress") };
        let n = self.scrub.interval.asked;
        let m = Body::Scrub(Box::new(ScrubMsg::Release { n })).encode();
        let members: Vec<PeerId> = self.peers.members().keys().copied().collect();
        for o in members {
            self.send_encoded(o, m.clone());
        }
        self.report.state_changed(now);
        if again && run.what.required {
            self.want_scrub(run.what);
            self.scrub.interval.recheck |= run.recheck;
        } else if again {
            self.scrub.wanted = self.scrub.wanted.filter(|w| w.required);
        }
        let jitter = self.scrub_jitter();
        self.scrub.interval.not_before = self.scrub.wanted.map(|_| now.mono + SCRUB_RETRY + jitter);
        if self.journal.is_info_changed() {
            let id = self.new_plan_id();
            self.enqueue(Plan::new(id, Work::Life(LifeWork::SaveInfo), None, false));
        }
    }

    /// Delay that differs by OSD and attempt, so that two OSDs do not block each other's slots for ever.
    pub(super) fn scrub_jitter(&self) -> Duration {
        let who = (self.env.whoami().0 as u64) << 40 ^ u64::from(self.env.spg().pg.seed) << 16;
        let mix = who ^ self.scrub.interval.asked;
        let mix = (mix ^ mix >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Duration::from_millis((mix >> 33) % 3000)
    }
}
