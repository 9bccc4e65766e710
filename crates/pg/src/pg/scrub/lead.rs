//! Scrub as primary: comparing all copies of the PG's objects, counting the errors, and repairing bad copies.
//!
//! The primary takes a slot on every member, then goes through the objects in hash order. It lists a range on all
//! copies, holds a few objects as a reader, asks all members for their reports, compares, and lets the objects go.
//! Writes to held objects wait. A write that has waited too long goes first, and the comparison is repeated.
//!
//! For a repair, each holder of a bad copy first marks the object as missing. Then recovery replaces it from a good
//! copy, as after log recovery.
//!
//! Invariants:
//!  1. All copies are compared in the same version. Members answer when they have applied all writes before the
//!     question, and none of its objects is written until the answer.
//!  2. A scrub belongs to one interval. A new interval ends it and drops its findings.
//!  3. A question is repeated until it is answered. Members answer a repetition from their stored answer.
//!
//! Tests: `tests/scrub.rs`.

use crate::effect::LogLevel;
use crate::limits::{SCRUB_GROUP, SCRUB_GROUP_BYTES, SCRUB_GROUP_MAX, SCRUB_HOLD_MAX, SCRUB_PREEMPT_MAX, SCRUB_RETRY};
use crate::pace::Class;
use crate::peer::Body;
use crate::pg::ops::plan::{Plan, Stage, Verdict};
use crate::pg::ops::work::{ScrubWork, Work};
use crate::pg::scrub::result::Tally;
use crate::pg::scrub::serve::ScanJob;
use crate::pg::scrub::{At, Run};
use crate::pg::{Pg, Turn};
use crate::scrub::ScrubRequest;
use crate::scrub::compare::compare;
use crate::scrub::map::Family;
use crate::scrub::message::{Answer, Ask, ScrubMsg};
use crate::scrub::parity::Shape;
use crate::shards::PeerId;
use base::unreached;
use base::{HObject, Now};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Ranges that a PG without other members scrubs before it pauses.
const RANGES_AT_ONCE: u32 = 64;
/// Duration of that pause.
const PAUSE_MIN: Duration = Duration::from_millis(1);

impl Pg {
    /// Takes the next steps of scrubs, as primary and as member.
    pub(in crate::pg) fn pump_scrub(&mut self, turn: &mut Turn<'_>) {
        let serving = &mut self.scrub.interval.serving;
        if serving.slot.is_some() && serving.until <= turn.now.mono {
            serving.slot = None;
        }
        if serving.waits.is_some() {
            self.pump_serving(turn);
        }
        if self.scrub.interval.repairing && self.peers.is_clean() {
            self.repaired();
        }
        if self.scrub.interval.run.is_none() {
            if self.scrub.wanted.is_none() || !self.may_scrub() {
                self.scrub.interval.not_before = None;
                return;
            }
            if self.scrub.interval.not_before.is_some_and(|t| t > turn.now.mono) || !self.begin_scrub(turn.now) {
                return;
            }
        }
        loop {
            let Some(run) = &self.scrub.interval.run else { return };
            if run.at != At::Lack && (!self.may_scrub() || self.forbidden(run.what)) {
                return self.end_scrub(true, turn.now);
            }
            if !run.open.is_empty() || run.own_open {
                return self.preempt(turn.now);
            }
            match run.at {
                At::Reserve => self.reserved(turn.now),
                At::List => self.listed(turn.now),
                At::Hold => {
                    if !self.hold_next(turn) {
                        return;
                    }
                }
                At::Scan => self.scanned(turn.now),
                At::Pause if run.resume > turn.now.mono => return,
                At::Pause => self.list_next(turn),
                At::Lack => self.lacked(turn.now),
            }
            if self.scrub.interval.run.as_ref().is_some_and(|r| r.at == At::List && r.n == 0) {
                self.list_next(turn);
            }
        }
    }

    pub(super) fn begin_scrub(&mut self, now: Now) -> bool {
        let Some(what) = self.scrub.wanted else { return false };
        let Some(slot) = self.scrub.settings.slots.lead(now.mono) else {
            self.scrub.interval.not_before = Some(now.mono + SCRUB_RETRY);
            return false;
        };
        let what = ScrubRequest { deep: what.deep || what.repair, ..what };
        self.scrub.interval.not_before = None;
        self.scrub.interval.run = Some(Box::new(Run {
            what,
            at: At::Reserve,
            recheck: std::mem::take(&mut self.scrub.interval.recheck),
            _slot: slot,
            n: 0,
            open: BTreeMap::new(),
            own_open: false,
            answers: BTreeMap::new(),
            upto: HObject::min(),
            end: HObject::min(),
            todo: VecDeque::new(),
            group: Vec::new(),
            group_max: SCRUB_GROUP,
            cost: 0,
            holds: BTreeSet::new(),
            held: BTreeSet::new(),
            held_since: now.mono,
            preempted: 0,
            resume: now.mono,
            ranges: 0,
            tally: Tally::default(),
        }));
        self.ask(At::Reserve, &Ask::Reserve);
        true
    }

    /// Sends a question to all members.
    pub(super) fn ask(&mut self, at: At, ask: &Ask) {
        let to: Vec<PeerId> = self.peers.members().keys().copied().collect();
        self.ask_some(at, |_| Some(ask.clone()), &to);
    }

    pub(super) fn ask_some(&mut self, at: At, ask: impl Fn(PeerId) -> Option<Ask>, to: &[PeerId]) {
        if self.is_coded() {
            self.send_deferred();
        }
        self.scrub.interval.asked += 1;
        let (n, seq) = (self.scrub.interval.asked, self.peers.seq());
        let mut open = BTreeMap::new();
        for o in to {
            if let Some(ask) = ask(*o) {
                let m = Body::Scrub(Box::new(ScrubMsg::Ask { n, seq, ask })).encode();
                self.send_encoded(*o, m.clone());
                open.insert(*o, m);
            }
        }
        if let Some(run) = &mut self.scrub.interval.run {
            run.at = at;
            run.n = n;
            run.open = open;
            run.answers.clear();
        }
    }

    /// Delivers an answer of this copy: to the primary, or to its own scrub.
    pub(in crate::pg) fn scrub_answer(&mut self, to: PeerId, n: u64, answer: Answer) {
        if to != self.me() {
            let m = Body::Scrub(Box::new(ScrubMsg::Answer { n, answer })).encode();
            if self.scrub.interval.serving.n == n {
                self.scrub.interval.serving.answer = Some(Box::new(m.clone()));
            }
            return self.send_encoded(to, m);
        }
        if let Some(run) = self.scrub.interval.run.as_mut().filter(|r| r.n == n) {
            run.own_open = false;
            run.answers.insert(to, answer);
        }
    }

    pub(super) fn reserved(&mut self, now: Now) {
        let Some(run) = &mut self.scrub.interval.run else { return unreached("a scrub is in progress") };
        if run.answers.values().any(|a| *a != Answer::Reserved(true)) {
            tracing::debug!(pg = %self.env.spg(), "a member has no slot for a scrub");
            self.scrub.settings.slots.pause(now.mono + self.scrub_jitter());
            return self.end_scrub(true, now);
        }
        let what = run.what;
        run.at = At::List;
        // No question was sent yet.
        run.n = 0;
        self.scrub.interval.found = None;
        self.scrub.wanted = None;
        self.report.state_changed(now);
        self.scrub_log(LogLevel::Debug, &format!("{} starts", what.word()));
    }

    pub(super) fn list_next(&mut self, turn: &mut Turn<'_>) {
        let Some(run) = &self.scrub.interval.run else { return unreached("a scrub is in progress") };
        let (begin, end) = (run.upto.clone(), HObject::max());
        self.ask(At::List, &Ask::List { begin: begin.clone(), end: end.clone() });
        let to = self.me();
        let Some(run) = &mut self.scrub.interval.run else { return unreached("a question ends no scrub") };
        run.own_open = true;
        let n = run.n;
        self.start_work(Work::Scrub(ScrubWork::List { to, n, range: Box::new((begin, end)) }), None, turn);
    }

    pub(super) fn listed(&mut self, now: Now) {
        let Some(run) = &mut self.scrub.interval.run else { return unreached("a scrub is in progress") };
        let mut heads = BTreeSet::new();
        let mut end = HObject::max();
        let mut failed = run.answers.is_empty();
        for a in std::mem::take(&mut run.answers).into_values() {
            match a {
                Answer::Listed { upto, heads: h } => {
                    end = end.min(upto);
                    heads.extend(h);
                }
                _ => failed = true,
            }
        }
        if failed || end <= run.upto {
            self.scrub_log(LogLevel::Error, "scrub ends early: a copy can't list its objects");
            return self.end_scrub(false, now);
        }
        run.todo = heads.into_iter().filter(|h| *h > run.upto && *h <= end).collect();
        run.end = end;
        run.at = At::Hold;
    }

    /// Holds the next group of objects; false if the scrub must wait.
    pub(super) fn hold_next(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(run) = &mut self.scrub.interval.run else { return unreached("a scrub is in progress") };
        if run.group.is_empty() {
            if run.todo.is_empty() {
                run.upto = run.end.clone();
                if run.upto.max {
                    self.finish_scrub(turn.now);
                    return true;
                }
                let sleep = self.scrub.settings.config.borrow().sleep;
                let mut sleep =
                    if sleep.is_finite() { Duration::from_secs_f64(sleep.clamp(0.0, 3600.0)) } else { Duration::ZERO };
                run.ranges += 1;
                // The reactor must serve other PGs. With members it does so while they answer.
                if self.peers.members().is_empty() && run.ranges % RANGES_AT_ONCE == 0 {
                    sleep = sleep.max(PAUSE_MIN);
                }
                run.resume = turn.now.mono + sleep;
                run.at = At::Pause;
                return true;
            }
            let k = run.group_max.min(run.todo.len());
            run.group = run.todo.drain(..k).collect();
            run.preempted = 0;
        }
        if run.holds.is_empty() {
            if !self.env.pacer().take(Class::BestEffort, run.cost, self.env.index(), turn.now.mono) {
                return false;
            }
            run.held.clear();
            run.held_since = turn.now.mono;
            let group = run.group.clone();
            let ids: Vec<u64> = group.iter().map(|_| self.new_plan_id()).collect();
            if let Some(run) = &mut self.scrub.interval.run {
                run.holds.extend(&ids);
            }
            for (id, head) in ids.into_iter().zip(group) {
                self.start(Plan::new(id, Work::Scrub(ScrubWork::Hold), Some(head), false), turn);
            }
        }
        let Some(run) = &mut self.scrub.interval.run else { return false };
        if run.held.len() < run.holds.len() {
            if turn.now.mono >= run.held_since + SCRUB_HOLD_MAX {
                // Some object is busy for long. The writes that wait for the others go first.
                run.held_since = turn.now.mono;
                if self.is_group_waited_for() {
                    self.let_go();
                }
            }
            return false;
        }
        run.held_since = turn.now.mono;
        let (heads, deep) = (run.group.clone(), run.what.deep);
        self.ask(At::Scan, &Ask::Scan { heads: heads.clone(), deep });
        let me = self.me();
        let Some(run) = &mut self.scrub.interval.run else { return unreached("a question ends no scrub") };
        run.own_open = true;
        let job = ScanJob::new(me, run.n, heads, deep);
        self.start_work(Work::Scrub(ScrubWork::Scan(Box::new(job))), None, turn);
        true
    }

    pub(in crate::pg) fn run_scrub_hold(&mut self, id: u64) -> Verdict {
        match &mut self.scrub.interval.run {
            Some(run) if run.holds.contains(&id) => {
                run.held.insert(id);
                Verdict::Park(Stage::Scrubbing)
            }
            _ => Verdict::Done,
        }
    }

    /// Releases the held objects.
    pub(super) fn let_go(&mut self) {
        let Some(run) = &mut self.scrub.interval.run else { return unreached("a scrub is in progress") };
        run.held.clear();
        for id in std::mem::take(&mut run.holds) {
            if let Some(plan) = self.plans.take(id) {
                self.unlock(&plan);
            }
        }
    }

    /// True if a plan waits for an object of the group.
    pub(super) fn is_group_waited_for(&self) -> bool {
        let Some(run) = &self.scrub.interval.run else { return unreached("a scrub is in progress") };
        run.group.iter().any(|h| self.plans.is_waited_for(h))
    }

    /// Lets a write go first that has waited too long for a held object.
    pub(super) fn preempt(&mut self, now: Now) {
        let Some(run) = &self.scrub.interval.run else { return unreached("a scrub is in progress") };
        let late = run.at == At::Scan && now.mono >= run.held_since + SCRUB_HOLD_MAX;
        if !late || run.preempted >= SCRUB_PREEMPT_MAX {
            return;
        }
        let waited_for = self.is_group_waited_for();
        let Some(run) = &mut self.scrub.interval.run else { return unreached("a scrub is in progress") };
        if !waited_for {
            run.held_since = now.mono;
            return;
        }
        run.preempted += 1;
        run.open.clear();
        run.own_open = false;
        // Answers to the question are void.
        run.n = u64::MAX;
        run.at = At::Hold;
        run.group_max = (run.group_max / 2).max(1);
        let surplus = run.group.split_off(run.group_max.min(run.group.len()));
        for h in surplus.into_iter().rev() {
            run.todo.push_front(h);
        }
        self.let_go();
    }

    pub(super) fn scanned(&mut self, now: Now) {
        let whoami = self.me();
        let Some(run) = &mut self.scrub.interval.run else { return unreached("a scrub is in progress") };
        let group = std::mem::take(&mut run.group);
        let mut by: Vec<(PeerId, Vec<Family>)> = Vec::new();
        for (o, a) in std::mem::take(&mut run.answers) {
            match a {
                Answer::Scanned(f) if f.iter().map(|f| &f.head).eq(group.iter()) => by.push((o, f)),
                _ => {
                    self.scrub_log(LogLevel::Error, &format!("scrub ends early: {o} can't read its objects"));
                    return self.end_scrub(false, now);
                }
            }
        }
        by.sort_by_key(|(o, _)| (*o != whoami, *o));
        let (keys, bytes) = {
            let c = self.scrub.settings.config.borrow();
            (c.large_omap_keys, c.large_omap_bytes)
        };
        let coder = self.ec.coder().cloned();
        let shape = coder.as_ref().map(|c| Shape { layout: &c.layout, codec: &c.codec });
        let deep = run.what.deep;
        let read: u64 = by.first().map_or(0, |(_, f)| f.iter().flat_map(|f| &f.objects).map(|o| o.size).sum());
        run.cost = if deep { usize::try_from(read).unwrap_or(usize::MAX) } else { group.len() << 10 };
        if deep && read > SCRUB_GROUP_BYTES {
            run.group_max = (run.group_max / 2).max(1);
        } else if read * 2 < SCRUB_GROUP_BYTES || !deep {
            run.group_max = (run.group_max * 2).min(SCRUB_GROUP_MAX);
        }
        for (i, head) in group.iter().enumerate() {
            let copies: Vec<(PeerId, &Family)> = by.iter().filter_map(|(o, f)| Some((*o, f.get(i)?))).collect();
            let c = compare(head, &copies, (keys, bytes), shape);
            self.note_compared(head, c);
        }
        if let Some(run) = &mut self.scrub.interval.run {
            run.at = At::Hold;
        }
        self.let_go();
    }
}
