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

use crate::effect::{Effect, LogLevel};
use crate::limits::{
    SCRUB_GROUP, SCRUB_GROUP_BYTES, SCRUB_GROUP_MAX, SCRUB_HOLD_MAX, SCRUB_PREEMPT_MAX, SCRUB_RETRY, SCRUB_SLOT_MAX,
};
use crate::map::{map_flags, pool_flags};
use crate::pace::Class;
use crate::peer::Body;
use crate::pg::ops::plan::{Plan, Verdict, Work};
use crate::pg::report::Stage;
use crate::pg::scrub::serve::ScanJob;
use crate::pg::{Pg, State, Turn};
use crate::scrub::compare::{Compared, compare};
use crate::scrub::map::Family;
use crate::scrub::message::{Answer, Ask, ScrubMsg};
use crate::scrub::parity::Shape;
use crate::scrub::report::Findings;
use crate::scrub::slots::ScrubSlot;
use crate::scrub::{Due, ScrubConfig, ScrubRequest, ScrubSlots};
use crate::shards::PeerId;
use crate::stats::StatSum;
use base::{Eversion, HObject, Mono, Now, PgId};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use wire::types::pg_state;

/// Most lines in the cluster log about single objects, per scrub.
const LINES_MAX: usize = 100;
/// Ranges that a PG without other members scrubs before it pauses.
const RANGES_AT_ONCE: u32 = 64;
/// Duration of that pause.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Most objects that one scrub repairs; others wait for the next scrub.
const REPAIRS_MAX: usize = 10_000;

/// Scrub settings and slots that the PGs of a reactor share.
#[derive(Debug, Default)]
pub struct Scrubs {
    /// Scrub slots, shared with the other reactors.
    pub slots: Arc<ScrubSlots>,
    /// Scrub settings.
    pub config: RefCell<ScrubConfig>,
}

/// Scrub state of one interval.
#[derive(Debug, Default)]
pub(in crate::pg) struct Interval {
    run: Option<Box<Run>>,
    /// Number of the last question.
    asked: u64,
    /// Findings of the last scrub.
    found: Option<Box<Findings>>,
    /// Time before which no scrub begins.
    not_before: Option<Mono>,
    /// Recovery is replacing bad copies.
    repairing: bool,
    /// Bad copies have just been marked as missing: recovery is to begin.
    kick: bool,
    /// After the repair a deep scrub checks the result.
    recheck: bool,
    /// The last repair left errors.
    failed: bool,
    serving: Serving,
}

impl Interval {
    /// True if this copy serves a scrub, or a repair is in progress.
    pub(in crate::pg) fn is_busy(&self) -> bool {
        let serves = self.serving.slot.is_some() || self.serving.waits.is_some();
        serves || self.repairing || self.kick || self.recheck
    }
}

/// Scrub state as a member.
#[derive(Debug, Default)]
struct Serving {
    slot: Option<ScrubSlot>,
    /// End of the slot's reservation unless a question comes: the release may be lost.
    until: Mono,
    /// Number of the newest question.
    n: u64,
    /// A question that waits for writes up to this number.
    waits: Option<Box<(u64, Ask)>>,
    /// The encoded answer to the newest question.
    answer: Option<Box<(Bytes, Bytes)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Reserve,
    List,
    Hold,
    Scan,
    Pause,
    Lack,
}

/// A scrub in progress, on the primary.
#[derive(Debug)]
struct Run {
    what: ScrubRequest,
    at: At,
    /// The scrub checks the result of a repair.
    recheck: bool,
    _slot: ScrubSlot,
    /// Number of the question, and the members that have not answered it.
    n: u64,
    open: BTreeMap<PeerId, (Bytes, Bytes)>,
    own_open: bool,
    answers: BTreeMap<PeerId, Answer>,
    /// All objects up to this one are compared.
    upto: HObject,
    /// End of the present range; `todo` has its objects that are not compared.
    end: HObject,
    todo: VecDeque<HObject>,
    group: Vec<HObject>,
    group_max: usize,
    /// Bytes read by the last group, charged to the pacer.
    cost: usize,
    holds: BTreeSet<u64>,
    held: BTreeSet<u64>,
    held_since: Mono,
    preempted: u32,
    resume: Mono,
    ranges: u32,
    found: Findings,
    shallow: i64,
    deep: i64,
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

impl Interval {
    pub(in crate::pg) fn deadline(&self) -> Option<Mono> {
        if self.serving.slot.is_some() {
            return Some(self.serving.until);
        }
        match &self.run {
            None => self.not_before,
            Some(r) => match r.at {
                At::Pause => Some(r.resume),
                At::Scan if r.preempted < SCRUB_PREEMPT_MAX => Some(r.held_since + SCRUB_HOLD_MAX),
                At::Hold if !r.holds.is_empty() => Some(r.held_since + SCRUB_HOLD_MAX),
                _ => None,
            },
        }
    }

    /// True if a member has not answered.
    pub(in crate::pg) fn asks(&self) -> bool {
        self.run.as_ref().is_some_and(|r| !r.open.is_empty())
    }

    /// Unanswered questions, encoded.
    pub(in crate::pg) fn unanswered(&self) -> impl Iterator<Item = (PeerId, (Bytes, Bytes))> + '_ {
        self.run.iter().flat_map(|r| r.open.iter().map(|(o, m)| (*o, m.clone())))
    }
}

impl Pg {
    // --- interface of the host ---

    /// Requests a scrub.
    pub(in crate::pg) fn want_scrub(&mut self, r: ScrubRequest) {
        self.scrub.wanted = Some(self.scrub.wanted.map_or(r, |w| w.or(r)));
        if r.required {
            self.scrub.interval.not_before = None;
        }
    }

    /// True while a scrub runs or is requested.
    #[must_use]
    pub fn is_scrubbing(&self) -> bool {
        self.scrub.interval.run.is_some() || self.scrub.wanted.is_some()
    }

    /// Errors of the last scrubs that are not repaired.
    #[must_use]
    pub fn scrub_errors(&self) -> i64 {
        self.journal.info().stats.num_shallow_scrub_errors + self.journal.info().stats.num_deep_scrub_errors
    }

    /// The scrub that is due by the PG's stamps, if the PG can begin one.
    #[must_use]
    pub fn scrub_due(&self, now: Now) -> Option<Due> {
        if !self.may_scrub() || self.is_scrubbing() {
            return None;
        }
        let (map, pool) = (self.maps.newest()?, self.pool()?);
        let may = |m: u32, p: u64| map.flags & m == 0 && !pool.has(p);
        self.scrub.settings.config.borrow().due(
            &self.journal.info().history,
            pool.scrub,
            now.wall,
            self.jitter(),
            may(map_flags::NOSCRUB, pool_flags::NOSCRUB),
            may(map_flags::NODEEP_SCRUB, pool_flags::NODEEP_SCRUB),
        )
    }

    /// This PG's own number, which spreads the scrubs of a pool.
    fn jitter(&self) -> u64 {
        u64::from(self.env.spg().pg.seed.wrapping_mul(0x9e37_79b1) >> 8) ^ self.env.spg().pg.pool.0 as u64
    }

    /// Time of the next scrub, the time from which hours and load are ignored, and whether an operator asked for it.
    /// `None` unless this copy leads the PG.
    #[must_use]
    pub fn next_scrub(&self) -> Option<(base::Utime, Option<base::Utime>, bool)> {
        let pool = self.pool().filter(|_| self.is_primary())?;
        let (at, deadline) =
            self.scrub.settings.config.borrow().next(&self.journal.info().history, pool.scrub, self.jitter());
        Some((at, deadline, self.scrub.wanted.is_some_and(|r| r.required)))
    }

    /// True if flags of the map or the pool forbid this scrub; a required one is never forbidden.
    fn forbidden(&self, what: ScrubRequest) -> bool {
        let (Some(map), Some(pool)) = (self.maps.newest(), self.pool()) else { return true };
        let set = |m: u32, p: u64| map.flags & m != 0 || pool.has(p);
        !what.required
            && if what.deep {
                set(map_flags::NODEEP_SCRUB, pool_flags::NODEEP_SCRUB)
            } else {
                set(map_flags::NOSCRUB, pool_flags::NOSCRUB)
            }
    }

    fn may_scrub(&self) -> bool {
        let whole = self.acting_set().len() >= self.journal.info().interval.size as usize;
        *self.life.state() == State::Active
            && self.peers.is_clean()
            && whole
            && !self.life.is_stopping()
            && !self.holds_still()
    }

    pub(in crate::pg) fn scrub_bits(&self) -> u64 {
        let s = &self.scrub.interval;
        let mut bits = 0;
        if let Some(r) = s.run.as_ref().filter(|r| r.at != At::Reserve) {
            bits |= pg_state::SCRUBBING;
            if r.what.deep {
                bits |= pg_state::DEEP_SCRUB;
            }
            if r.what.repair {
                bits |= pg_state::REPAIR;
            }
        }
        if s.repairing {
            bits |= pg_state::REPAIR;
        }
        if s.failed {
            bits |= pg_state::FAILED_REPAIR;
        }
        if self.scrub_errors() > 0 {
            bits |= pg_state::INCONSISTENT;
        }
        bits
    }

    /// Answers `SCRUBLS`: result and output.
    pub(in crate::pg) fn list_scrub(&self, indata: &Bytes) -> (i32, Bytes) {
        let Some(found) = &self.scrub.interval.found else { return (base::errno::ENOENT, Bytes::new()) };
        match found.list(indata, self.journal.info().history.same_interval_since) {
            None => (base::errno::EINVAL, Bytes::new()),
            Some((_, true)) => (base::errno::EAGAIN, Bytes::new()),
            Some((b, false)) => (0, b),
        }
    }

    /// Findings of the last scrub in this interval.
    #[must_use]
    pub fn scrub_findings(&self) -> Option<&Findings> {
        self.scrub.interval.found.as_deref()
    }

    fn scrub_log(&mut self, level: LogLevel, text: &str) {
        self.mail.post(Effect::Log(level, format!("{} {text}", self.env.spg().pg)));
    }

    // --- as primary ---

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

    fn begin_scrub(&mut self, now: Now) -> bool {
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
            found: Findings::default(),
            shallow: 0,
            deep: 0,
            lines: 0,
            large_omap: 0,
            stats: StatSum::default(),
            unsettled: false,
            fixable: 0,
            hopeless: 0,
            lack: BTreeMap::new(),
            repairs: 0,
        }));
        self.ask(At::Reserve, &Ask::Reserve);
        true
    }

    /// Sends a question to all members.
    fn ask(&mut self, at: At, ask: &Ask) {
        let to: Vec<PeerId> = self.peers.members().keys().copied().collect();
        self.ask_some(at, |_| Some(ask.clone()), &to);
    }

    fn ask_some(&mut self, at: At, ask: impl Fn(PeerId) -> Option<Ask>, to: &[PeerId]) {
        if self.is_coded() {
            self.send_deferred();
        }
        self.scrub.interval.asked += 1;
        let (n, seq) = (self.scrub.interval.asked, self.peers.seq());
        let mut open = BTreeMap::new();
        for o in to {
            if let Some(ask) = ask(*o) {
                let m = Body::Scrub(Box::new(ScrubMsg::Ask { n, seq, ask })).encode();
                self.tell_encoded(*o, m.clone());
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
            return self.tell_encoded(to, m);
        }
        if let Some(run) = self.scrub.interval.run.as_mut().filter(|r| r.n == n) {
            run.own_open = false;
            run.answers.insert(to, answer);
        }
    }

    fn reserved(&mut self, now: Now) {
        let Some(run) = &mut self.scrub.interval.run else { return };
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
        self.report.stamps_mut().changed(now);
        self.scrub_log(LogLevel::Debug, &format!("{} starts", what.word()));
    }

    fn list_next(&mut self, turn: &mut Turn<'_>) {
        let Some(run) = &self.scrub.interval.run else { return };
        let (begin, end) = (run.upto.clone(), HObject::max());
        self.ask(At::List, &Ask::List { begin: begin.clone(), end: end.clone() });
        let to = self.me();
        let Some(run) = &mut self.scrub.interval.run else { return };
        run.own_open = true;
        let n = run.n;
        self.start_work(Work::ScrubList { to, n, begin, end }, None, turn);
    }

    fn listed(&mut self, now: Now) {
        let Some(run) = &mut self.scrub.interval.run else { return };
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
    fn hold_next(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(run) = &mut self.scrub.interval.run else { return false };
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
                self.start(Plan::new(id, Work::ScrubHold, Some(head), false), turn);
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
        let Some(run) = &mut self.scrub.interval.run else { return false };
        run.own_open = true;
        let job = ScanJob::new(me, run.n, heads, deep);
        self.start_work(Work::ScrubScan(Box::new(job)), None, turn);
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
    fn let_go(&mut self) {
        let Some(run) = &mut self.scrub.interval.run else { return };
        run.held.clear();
        for id in std::mem::take(&mut run.holds) {
            if let Some(plan) = self.plans.take(id) {
                self.unlock(&plan);
            }
        }
    }

    /// True if a plan waits for an object of the group.
    fn is_group_waited_for(&self) -> bool {
        let Some(run) = &self.scrub.interval.run else { return false };
        run.group.iter().any(|h| self.plans.is_waited_for(h))
    }

    /// Lets a write go first that has waited too long for a held object.
    fn preempt(&mut self, now: Now) {
        let Some(run) = &self.scrub.interval.run else { return };
        let late = run.at == At::Scan && now.mono >= run.held_since + SCRUB_HOLD_MAX;
        if !late || run.preempted >= SCRUB_PREEMPT_MAX {
            return;
        }
        let waited_for = self.is_group_waited_for();
        let Some(run) = &mut self.scrub.interval.run else { return };
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

    fn scanned(&mut self, now: Now) {
        let whoami = self.me();
        let Some(run) = &mut self.scrub.interval.run else { return };
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

    fn note_compared(&mut self, head: &HObject, c: Compared) {
        let need = self.journal.info().last_update;
        let Some(run) = &mut self.scrub.interval.run else { return };
        run.shallow += c.shallow;
        run.deep += c.deep;
        run.stats.add(&c.stats);
        run.large_omap += c.omap.len() as i64;
        let mut lines = c.lines;
        if c.good.is_some() && !c.bad.is_empty() && run.repairs < REPAIRS_MAX {
            run.repairs += 1;
            run.fixable += c.fixable;
            for o in &c.bad {
                run.lack.entry(*o).or_default().push((head.clone(), need));
            }
        } else if c.shallow + c.deep > 0 {
            run.hopeless += 1;
            run.unsettled |= c.good.is_none();
        }
        for (h, b) in c.objects {
            run.found.add_object(h, b);
        }
        if let Some(b) = c.snapset {
            run.found.add_snapset(head.clone(), b);
        }
        let room = LINES_MAX.saturating_sub(run.lines);
        run.lines += lines.len();
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
            run.stats.add(delta);
        }
    }

    fn finish_scrub(&mut self, now: Now) {
        let Some(run) = &mut self.scrub.interval.run else { return };
        let what = run.what;
        let (sums, have) = (run.stats, self.journal.info().stats);
        let differ = sums.num_objects != have.num_objects
            || sums.num_object_clones != have.num_object_clones
            || sums.num_bytes != have.num_bytes;
        let mut fixed_stats = 0;
        let mut delta = StatSum::default();
        if what.deep {
            delta.num_omap_bytes = sums.num_omap_bytes - have.num_omap_bytes;
            delta.num_omap_keys = sums.num_omap_keys - have.num_omap_keys;
        }
        let counted = !run.unsettled && (differ || have.estimated != 0);
        let estimated = have.estimated != 0;
        if counted && (what.repair || estimated) {
            delta.num_objects = sums.num_objects - have.num_objects;
            delta.num_object_clones = sums.num_object_clones - have.num_object_clones;
            delta.num_bytes = sums.num_bytes - have.num_bytes;
            delta.estimated = -have.estimated;
        }
        self.journal.info_mut().stats.add(&delta);
        if counted && !estimated {
            run.shallow += 1;
            fixed_stats = i64::from(what.repair);
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
        }
        let Some(run) = &mut self.scrub.interval.run else { return };
        let errors = run.shallow + run.deep;
        let auto = {
            let c = self.scrub.settings.config.borrow();
            c.auto_repair && what.deep && errors <= i64::from(c.auto_repair_num_errors)
        };
        let repair = what.repair || auto && errors > 0;
        if !repair {
            run.lack.clear();
        }
        let fixed = if repair { run.fixable + fixed_stats } else { 0 };
        let all_fixed = repair && run.hopeless == 0 && !run.unsettled;
        let copies: usize = run.lack.values().map(Vec::len).sum();
        let (shallow, deep) = if all_fixed { (0, 0) } else { (run.shallow, run.deep) };
        let (recheck, large) = (run.recheck, run.large_omap);
        self.scrub.interval.found = Some(Box::new(std::mem::take(&mut run.found)));
        let s = &mut self.journal.info_mut().stats;
        s.num_shallow_scrub_errors = shallow;
        let remaining = if what.deep { 0 } else { s.num_deep_scrub_errors };
        if what.deep {
            s.num_deep_scrub_errors = deep;
            s.num_large_omap_objects = large;
        }
        s.num_objects_repaired += copies as i64;
        let version = self.journal.info().last_update;
        let h = &mut self.journal.info_mut().history;
        let before = h.last_scrub_stamp;
        h.last_scrub = version;
        h.last_scrub_stamp = now.wall.max(before);
        if what.deep {
            h.last_deep_scrub = version;
            h.last_deep_scrub_stamp = h.last_scrub_stamp;
        }
        if shallow + deep == 0 {
            h.last_clean_scrub_stamp = h.last_scrub_stamp;
        }
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
        let (history, s) = (Box::new(self.journal.info().history.clone()), self.journal.info().stats);
        let counts =
            [s.num_shallow_scrub_errors, s.num_deep_scrub_errors, s.num_large_omap_objects, s.num_objects_repaired];
        let m = Body::Scrub(Box::new(ScrubMsg::Done { history, counts, delta })).encode();
        let members: Vec<PeerId> = self.peers.members().keys().copied().collect();
        for o in &members {
            self.tell_encoded(*o, m.clone());
        }
        self.journal.info_changed();
        self.report.stamps_mut().changed(now);
        if copies == 0 {
            return self.end_scrub(false, now);
        }
        // Each holder of bad copies marks them as missing first, this copy included (below).
        let lack = self.scrub.interval.run.as_ref().map(|r| r.lack.clone()).unwrap_or_default();
        self.ask_some(At::Lack, |o| lack.get(&o).map(|l| Ask::Lack(l.clone())), &members);
        let me = self.me();
        if let Some(own) = lack.get(&me)
            && let Some(run) = &mut self.scrub.interval.run
        {
            run.own_open = true;
            let plan = Work::ScrubLack { to: me, n: run.n, what: own.clone() };
            let id = self.new_plan_id();
            self.enqueue(Plan::new(id, plan, None, false));
        }
    }

    /// Handles the answers to `Lack`: bad copies are marked everywhere, and recovery begins.
    fn lacked(&mut self, now: Now) {
        let Some(run) = &mut self.scrub.interval.run else { return };
        for (o, lack) in std::mem::take(&mut run.lack) {
            if let Some(m) = self.peers.members_mut().get_mut(&o) {
                m.missing.extend(lack);
            }
        }
        self.scrub.interval.repairing = true;
        self.scrub.interval.kick = true;
        self.peers.needs_recovery();
        self.report.stamps_mut().changed(now);
        self.end_scrub(false, now);
    }

    /// True once after a scrub has found copies to recover.
    pub(in crate::pg) fn recovery_wanted(&mut self) -> bool {
        std::mem::take(&mut self.scrub.interval.kick)
    }

    fn repaired(&mut self) {
        self.scrub.interval.repairing = false;
        if self.scrub.interval.recheck {
            self.want_scrub(ScrubRequest { deep: true, repair: false, required: true });
        }
    }

    /// Ends a scrub and releases its slots. `again`: it could not run now; a required scrub stays requested.
    fn end_scrub(&mut self, again: bool, now: Now) {
        self.let_go();
        let Some(run) = self.scrub.interval.run.take() else { return };
        let n = self.scrub.interval.asked;
        let m = Body::Scrub(Box::new(ScrubMsg::Release { n })).encode();
        let members: Vec<PeerId> = self.peers.members().keys().copied().collect();
        for o in members {
            self.tell_encoded(o, m.clone());
        }
        self.report.stamps_mut().changed(now);
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
            self.enqueue(Plan::new(id, Work::SaveInfo, None, false));
        }
    }

    /// Delay that differs by OSD and attempt, so that two OSDs do not block each other's slots for ever.
    fn scrub_jitter(&self) -> Duration {
        let who = (self.env.whoami().0 as u64) << 40 ^ u64::from(self.env.spg().pg.seed) << 16;
        let mix = who ^ self.scrub.interval.asked;
        let mix = (mix ^ mix >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Duration::from_millis((mix >> 33) % 3000)
    }

    // --- as member ---

    #[allow(clippy::too_many_arguments, reason = "a message, from whom, and what it acts on")]
    pub(in crate::pg) fn take_scrub(
        &mut self,
        from: PeerId,
        from_primary: bool,
        leads: bool,
        m: ScrubMsg,
        turn: &mut Turn<'_>,
    ) {
        match m {
            ScrubMsg::Ask { n, seq, ask } if from_primary && !leads && self.peers.is_member() => {
                let s = &mut self.scrub.interval.serving;
                s.until = turn.now.mono + SCRUB_SLOT_MAX;
                if n < s.n {
                    return;
                }
                if n == s.n {
                    if let Some(a) = s.answer.clone() {
                        self.tell_encoded(from, *a);
                    }
                    return;
                }
                s.n = n;
                s.answer = None;
                s.waits = None;
                if matches!(ask, Ask::Reserve) {
                    if s.slot.is_none() {
                        s.slot = self.scrub.settings.slots.take();
                    }
                    let yes = s.slot.is_some();
                    return self.scrub_answer(from, n, Answer::Reserved(yes));
                }
                s.waits = Some(Box::new((seq, ask)));
                self.pump_serving(turn);
            }
            ScrubMsg::Answer { n, answer } if leads => {
                if let Some(run) = self.scrub.interval.run.as_mut().filter(|r| r.n == n)
                    && run.open.remove(&from).is_some()
                {
                    run.answers.insert(from, answer);
                }
            }
            ScrubMsg::Release { n } if from_primary && self.scrub.interval.serving.n <= n => {
                self.scrub.interval.serving.slot = None;
                self.scrub.interval.serving.waits = None;
            }
            ScrubMsg::Done { history, counts, delta } if from_primary && self.peers.is_member() => {
                self.journal.info_mut().merge_history(&history);
                let s = &mut self.journal.info_mut().stats;
                s.add(&delta);
                s.num_shallow_scrub_errors = counts[0];
                s.num_deep_scrub_errors = counts[1];
                s.num_large_omap_objects = counts[2];
                s.num_objects_repaired = counts[3];
                self.start_work(Work::SaveInfo, None, turn);
            }
            _ => tracing::debug!(pg = %self.env.spg(), %from, "scrub message ignored: wrong role or number"),
        }
    }

    /// Answers a question once the writes before it are applied.
    fn pump_serving(&mut self, turn: &mut Turn<'_>) {
        let Some(waits) = &self.scrub.interval.serving.waits else { return };
        if !self.has_applied(waits.0) {
            return;
        }
        let Some((_, ask)) = self.scrub.interval.serving.waits.take().map(|w| *w) else { return };
        let to = self.primary();
        let n = self.scrub.interval.serving.n;
        let work = match ask {
            Ask::Reserve => return,
            Ask::List { begin, end } => Work::ScrubList { to, n, begin, end },
            Ask::Scan { heads, deep } => Work::ScrubScan(Box::new(ScanJob::new(to, n, heads, deep))),
            Ask::Lack(what) => Work::ScrubLack { to, n, what },
        };
        self.start_work(work, None, turn);
    }
}
