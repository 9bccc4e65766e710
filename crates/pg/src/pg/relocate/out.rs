//! The source machine of a PG that moves to another reactor of its OSD ([`crate::pg::relocate::in_`] is the target;
//! [`crate::moving`] has their messages).
//!
//! The source goes on serving and feeds the target like one more copy. It sends log and snapshot index first, then
//! the objects in hash order, and from the beginning every change to what the target has. An object that changed
//! between its parts is sent again as a whole, in larger parts. When nothing is left, operations are held until all
//! submitted writes are durable on all members. Then the source sends its state.
//!
//! Invariants:
//!  1. The changes sent so far produce, in order, this collection's content. Each object is there completely or not
//!     at all, except the current one and those to be sent again.
//!  2. From [`Move::Switch`] to the decision nothing changes here. If the move is cancelled, the PG goes on as if
//!     there had been none.
//!  3. Held messages are handled in the order of arrival, here or on the target.
//!
//! Tests: `crates/osd/tests/moves.rs`.

use crate::effect::Effect;
use crate::event::Event;
use crate::exec::{Step, Stop};
use crate::limits::{MOVE_AHEAD, MOVE_BEHIND_MAX, MOVE_HOLD, MOVE_HOLDS_MAX, MOVE_PART_MAX, MOVE_SETTLED, PUSH_BYTES};
use crate::map::MapView;
use crate::moving::{Handover, Move, Postponed, staging_cid};
use crate::pace::Class;
use crate::pg::mail::postponed;
use crate::pg::ops::plan::Plan;
use crate::pg::ops::plan::Stage;
use crate::pg::ops::plan::Verdict;
use crate::pg::ops::work::RelocateWork;
use crate::pg::ops::work::Work;
use crate::pg::resize::index::INDEX_PAGE;
use crate::pg::resize::merge_source::{Cursor, object_part};
use crate::pg::{Pg, State, Turn};
use base::errno::{EBUSY, EIO};
use base::unreached;
use base::{Epoch, Eversion, HObject, Mono, Now};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use store::{ObjectStore, Oid, Op, ReadError};

/// Objects per list.
const LIST: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// Reads log and snapshot index.
    Begin,
    /// Sends objects.
    Copy,
    /// Holds operations until this time, so that those in progress finish.
    Hold(Mono),
    /// The state was sent; waits for the decision.
    Frozen,
}

/// State of an object on the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    /// The target has the object.
    Yes,
    /// The target has parts of the object.
    Part,
    /// The target does not have the object; it will be sent.
    Later,
}

/// Reason why no part could be read, and the object that caused it.
struct NoPart {
    stop: Stop,
    of: Option<Box<Oid>>,
}

impl From<ReadError> for NoPart {
    fn from(e: ReadError) -> Self {
        Self { stop: e.into(), of: None }
    }
}

/// State of the source machine; see the module.
#[derive(Debug)]
pub(in crate::pg) struct Depart {
    at: At,
    /// Changes are sent from here on.
    ships: bool,
    sent: u64,
    /// Number and bytes of the messages that are not durable on the target.
    flight: VecDeque<(u64, usize)>,
    flying: usize,
    /// The target keeps maps from this epoch on.
    has_maps: Epoch,
    /// Objects listed, the next one last; `next` is where the list continues.
    listed: Vec<Oid>,
    next: Option<Oid>,
    begun: bool,
    /// All objects up to this one were sent.
    passed: Option<Oid>,
    /// The object that is being sent.
    current: Option<(Oid, Cursor)>,
    /// The current object changed after its first part was sent.
    touched: bool,
    /// Objects to be sent again, and new ones behind the position of the list.
    again: BTreeSet<Oid>,
    /// Size of the next part in bytes.
    part: usize,
    /// A part is being read.
    busy: bool,
    holds: u32,
    not_before: Mono,
    postponed: Vec<Postponed>,
    maps: Vec<MapView>,
}

impl Depart {
    fn new() -> Self {
        Self {
            at: At::Begin,
            ships: false,
            sent: 0,
            flight: VecDeque::new(),
            flying: 0,
            has_maps: Epoch(u32::MAX),
            listed: Vec::new(),
            next: None,
            begun: false,
            passed: None,
            current: None,
            touched: false,
            again: BTreeSet::new(),
            part: PUSH_BYTES,
            busy: false,
            holds: 0,
            not_before: Mono(0),
            postponed: Vec::new(),
            maps: Vec::new(),
        }
    }

    fn all_sent(&self) -> bool {
        self.begun && self.listed.is_empty() && self.next.is_none() && self.current.is_none() && self.again.is_empty()
    }

    fn has(&self, oid: &Oid) -> There {
        if self.current.as_ref().is_some_and(|(o, _)| o == oid) {
            There::Part
        } else if self.passed.as_ref().is_some_and(|p| p >= oid) && !self.again.contains(oid) {
            There::Yes
        } else {
            There::Later
        }
    }

    /// Notes a change to an object that the target does not have: it is sent with the list, or separately.
    fn note(&mut self, oid: &Oid) {
        let listed_to_here = self.begun && self.next.as_ref().is_none_or(|n| oid < n);
        if listed_to_here && !self.listed.contains(oid) {
            self.again.insert(oid.clone());
        }
    }

    /// Notes that the object was removed here.
    fn gone(&mut self, oid: &Oid) {
        if self.current.as_ref().is_some_and(|(o, _)| o == oid) {
            self.current = None;
            self.touched = false;
        }
        self.again.remove(oid);
    }

    /// Handles an operation that makes `dst` from `src`.
    fn derived(&mut self, op: &Op, src: &Oid, dst: &Oid, ops: &mut Vec<Op>) {
        match (self.has(dst), self.has(src)) {
            (There::Yes, There::Yes) => ops.push(op.clone()),
            (There::Yes, _) => {
                ops.push(Op::Remove { cid: op.cid(), oid: dst.clone() });
                self.again.insert(dst.clone());
            }
            (There::Part, _) => self.touched = true,
            (There::Later, _) => self.note(dst),
        }
    }

    /// The operations of a transaction that the target must apply as well. `own`: the PG's own objects, which the
    /// target has from the start.
    fn pick(&mut self, all: &[Op], own: [&Oid; 2]) -> Vec<Op> {
        let mut ops = Vec::new();
        for op in all {
            match op {
                Op::PgInfo { .. } => {}
                Op::LogAppend { .. } | Op::LogTrim { .. } | Op::LogRewind { .. } => ops.push(op.clone()),
                Op::Clone { src, dst, .. } | Op::CloneRange { src, dst, .. } => self.derived(op, src, dst, &mut ops),
                Op::Rename { cid, src, dst } => {
                    self.derived(op, src, dst, &mut ops);
                    if self.has(src) != There::Later {
                        ops.push(Op::Remove { cid: *cid, oid: src.clone() });
                    }
                    self.gone(src);
                }
                Op::Remove { oid, .. } => {
                    if self.has(oid) != There::Later {
                        ops.push(op.clone());
                    }
                    self.gone(oid);
                }
                _ => match op.oid() {
                    Some(oid) if own.contains(&oid) => ops.push(op.clone()),
                    Some(oid) => match self.has(oid) {
                        There::Yes => ops.push(op.clone()),
                        There::Part => self.touched = true,
                        There::Later => self.note(oid),
                    },
                    None => {}
                },
            }
        }
        ops
    }
}

/// Converts an input to a held message; returns it if it need not be held.
pub(in crate::pg) fn postponable(event: Event) -> Result<Postponed, Event> {
    Ok(match event {
        Event::Op(r) => Postponed::Op(r),
        Event::Peer { from, msg } => Postponed::Peer { from, msg },
        Event::Merge { from, msg } => Postponed::Merge { from, msg },
        Event::PeerReset(o) => Postponed::PeerReset(o),
        Event::SessionClosed(s) => Postponed::SessionClosed(s),
        Event::Force(f) => Postponed::Force(f),
        Event::Scrub(r) => Postponed::Scrub(r),
        event => return Err(event),
    })
}

impl Postponed {
    pub(in crate::pg) fn into_event(self) -> Event {
        match self {
            Self::Op(r) => Event::Op(r),
            Self::Peer { from, msg } => Event::Peer { from, msg },
            Self::Merge { from, msg } => Event::Merge { from, msg },
            Self::PeerReset(o) => Event::PeerReset(o),
            Self::SessionClosed(s) => Event::SessionClosed(s),
            Self::Force(f) => Event::Force(f),
            Self::Scrub(r) => Event::Scrub(r),
        }
    }
}

fn weight(ops: &[Op]) -> usize {
    let one = |op: &Op| match op {
        Op::Write { data, .. } => data.len(),
        Op::OmapSet { entries: pairs, .. } | Op::SetAttrs { attrs: pairs, .. } => {
            pairs.iter().map(|(k, v)| k.len() + v.len()).sum()
        }
        Op::LogAppend { entry, .. } => entry.len(),
        _ => 0,
    };
    ops.iter().map(|op| one(op) + 64).sum()
}

impl Pg {
    /// Runs work of moves.
    pub(in crate::pg) fn run_relocate(&mut self, plan: &mut Plan, turn: &mut Turn<'_>) -> Verdict {
        let id = plan.id;
        match &plan.work {
            Work::Relocate(RelocateWork::Depart) => self.run_depart(id, turn),
            Work::Relocate(RelocateWork::Copy) => self.run_copy(id, turn),
            Work::Relocate(RelocateWork::Settle) => self.run_settle(id, turn),
            Work::Relocate(RelocateWork::Load) => self.run_load_move(id, turn),
            Work::Relocate(RelocateWork::Arrive) => self.run_arrive(id, turn),
            _ => unreached("each part runs its own work"),
        }
    }

    /// True if the PG may move: it is complete and unchanged for a while, and the device has room for it twice.
    #[must_use]
    pub fn may_move(&self, now: Now, store: &dyn ObjectStore) -> bool {
        let settled = self.report.stamps().since_change(now) >= MOVE_SETTLED;
        settled
            && self.is_whole()
            && !self.has_long_calls()
            && self.relocate.depart.is_none()
            && !self.life.is_stopping()
            && !self.has_no_space_to_move(store)
    }

    /// True while the PG moves to another reactor.
    #[must_use]
    pub fn is_moving(&self) -> bool {
        self.relocate.depart.is_some()
    }

    /// True while the PG holds operations for a move, so that it starts no internal work.
    pub(in crate::pg) fn holds_still(&self) -> bool {
        self.relocate.depart.as_ref().is_some_and(|d| matches!(d.at, At::Hold(_) | At::Frozen))
    }

    fn is_whole(&self) -> bool {
        let complete = self.recovery.missing().is_empty() && self.journal.info().is_complete();
        match self.life.state() {
            State::Active => complete && self.peers.is_clean(),
            State::ReplicaActive => complete && self.peers.is_member(),
            _ => false,
        }
    }

    fn is_quiet(&self) -> bool {
        self.is_whole()
            && self.journal.is_settled()
            && self.plans.is_empty()
            && !self.plans.has_ready()
            && self.recovery.is_quiet()
            && self.peers.is_quiet()
            && !self.is_scrubbing()
            && !self.scrub.is_busy()
            && !self.is_trimming()
            && !self.watches.notifies()
            && !self.mail.has_backoffs()
    }

    /// Holds an input if the move requires it. Returns the event if it must be handled now.
    pub(in crate::pg) fn hold_for_move(&mut self, event: Event) -> Option<Event> {
        let leads = self.is_primary();
        let Some(d) = &mut self.relocate.depart else { return Some(event) };
        let postponed = match (d.at, event) {
            (At::Hold(_), Event::Op(r)) => Postponed::Op(r),
            // A primary needs its members' messages to finish its operations; a member needs nothing from its
            // primary.
            (At::Hold(_), Event::Peer { from, msg }) if !leads => Postponed::Peer { from, msg },
            (At::Frozen, Event::Map(map)) => {
                d.maps.push(map);
                return None;
            }
            (At::Frozen, Event::Tick | Event::Leases | Event::Fetched(..)) => return None,
            (At::Frozen, event) => match postponable(event) {
                Ok(l) => l,
                Err(event) => return Some(event),
            },
            (_, event) => return Some(event),
        };
        let full = postponed::postpone(&mut d.postponed, postponed);
        self.close_postponed(full);
        None
    }

    /// Handles a message from the target machine or the host.
    pub(in crate::pg) fn handle_move_out(&mut self, m: Move, turn: &mut Turn<'_>) {
        match m {
            Move::Begin if self.relocate.depart.is_none() && self.is_whole() && !self.life.is_stopping() => {
                debug_assert!(!self.relocate.arrives(), "a machine is the source or the target of a move");
                self.relocate.depart = Some(Box::new(Depart::new()));
                self.start_work(Work::Relocate(RelocateWork::Depart), None, turn);
            }
            Move::Begin => turn.out.push(Effect::Move(Box::new(Move::Stays))),
            Move::Loaded { n, epoch } => {
                let Some(d) = &mut self.relocate.depart else { return };
                d.has_maps = epoch;
                while d.flight.front().is_some_and(|(m, _)| *m <= n) {
                    d.flying -= d.flight.pop_front().map_or(0, |(_, bytes)| bytes);
                }
            }
            Move::Refuse => self.stay("the target refused"),
            Move::Decided(false) => self.stay("pg_num of the pool changed"),
            Move::Flushed => {
                let kept = self.relocate.depart.take().map(|d| d.postponed).unwrap_or_default();
                // Operations that were held before the move come first.
                let postponed = self.mail.take_held().into_iter().map(Postponed::Op).chain(kept).collect();
                turn.out.push(Effect::Move(Box::new(Move::Postponed(postponed))));
                self.life.enter(State::Deleted);
                turn.out.push(Effect::Move(Box::new(Move::Left { made: true })));
            }
            _ => {}
        }
    }

    /// Cancels the move.
    pub(in crate::pg) fn stay(&mut self, why: &str) {
        let Some(d) = self.relocate.depart.take() else { return };
        tracing::info!(pg = %self.env.spg(), why, "move to another reactor cancelled");
        // A target that refused ignores this.
        self.mail.post(Effect::Move(Box::new(Move::CallOff)));
        self.mail.post(Effect::Move(Box::new(Move::Stays)));
        let Depart { postponed, maps, .. } = *d;
        self.relocate.replay.0.extend(maps);
        self.relocate.replay.1.extend(postponed);
    }

    /// Handles the held inputs of a cancelled or finished move.
    pub(in crate::pg) fn replay_postponed(&mut self, turn: &mut Turn<'_>) {
        if self.relocate.replay.0.is_empty() && self.relocate.replay.1.is_empty() {
            return;
        }
        let (maps, postponed) = std::mem::take(&mut self.relocate.replay);
        for m in maps {
            self.input(Event::Map(m), turn);
        }
        for l in postponed {
            self.input(l.into_event(), turn);
        }
    }

    /// Time of the next step of the move, if it depends on time.
    pub(in crate::pg) fn move_deadline(&self) -> Option<Mono> {
        let d = self.relocate.depart.as_ref()?;
        match d.at {
            At::Hold(until) => Some(until),
            At::Copy if d.all_sent() => Some(d.not_before),
            _ => None,
        }
    }

    /// Reads log and snapshot index. From here on changes are sent as well.
    pub(in crate::pg) fn run_depart(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        match self.begin_move(id, turn.store) {
            Ok(ops) => {
                // The move may have been cancelled while the store read.
                let Some(d) = &mut self.relocate.depart else { return Verdict::Done };
                tracing::info!(pg = %self.env.spg(), version = %self.journal.info().last_update, "moving to another reactor");
                (d.at, d.ships) = (At::Copy, true);
                d.flight.push_back((0, 0));
                let settle = Move::Settle { cid: staging_cid(self.env.cid()), bits: self.resize.bits() };
                turn.out.push(Effect::Move(Box::new(settle)));
                let mut part = Vec::new();
                let mut bytes = 0;
                for op in ops {
                    bytes += weight(std::slice::from_ref(&op));
                    part.push(op);
                    if bytes >= PUSH_BYTES {
                        self.send_load(std::mem::take(&mut part), turn.out);
                        bytes = 0;
                    }
                }
                self.send_load(part, turn.out);
                Verdict::Done
            }
            Err(Stop::Wait) => Verdict::Park(Stage::Reading),
            Err(Stop::Errno(errno)) => {
                tracing::warn!(pg = %self.env.spg(), errno, "can't read log or snapshot index for a move");
                self.stay("log or snapshot index is unreadable");
                Verdict::Done
            }
        }
    }

    fn begin_move(&self, id: u64, store: &mut dyn ObjectStore) -> Step<Vec<Op>> {
        let (tag, cid) = (self.tag(id), self.env.cid());
        let records = store.log_entries(tag, cid, Eversion::default())?;
        let mut ops = vec![Op::Touch { cid, oid: self.meta() }];
        let index = self.read_omap(id, store)?;
        for part in index.chunks(INDEX_PAGE) {
            ops.push(Op::OmapSet { cid, oid: self.meta(), entries: part.to_vec() });
        }
        ops.extend(records.into_iter().map(|(version, entry)| Op::LogAppend { cid, version, entry }));
        Ok(ops)
    }

    fn send_load(&mut self, ops: Vec<Op>, out: &mut Vec<Effect>) {
        let Some(d) = self.relocate.depart.as_mut().filter(|_| !ops.is_empty()) else { return };
        d.sent += 1;
        let bytes = weight(&ops);
        d.flight.push_back((d.sent, bytes));
        d.flying += bytes;
        out.push(Effect::Move(Box::new(Move::Load { n: d.sent, ops })));
    }

    /// The operations of a transaction, about to be submitted, that the target must apply as well.
    pub(in crate::pg) fn pick_for_move(&mut self, ops: &[Op]) -> Vec<Op> {
        if self.relocate.depart.is_none() {
            return Vec::new();
        }
        let own = [&self.meta(), &self.meta_missing()];
        match &mut self.relocate.depart {
            Some(d) if d.ships => d.pick(ops, own),
            _ => Vec::new(),
        }
    }

    /// Sends these operations after their transaction was submitted.
    pub(in crate::pg) fn ship(&mut self, ops: Vec<Op>) {
        let mut out = Vec::new();
        self.send_load(ops, &mut out);
        self.mail.post_all(&mut out);
        if self.relocate.depart.as_ref().is_some_and(|d| d.flying > MOVE_BEHIND_MAX) {
            self.stay("the target is too far behind");
        }
    }

    /// Takes the next step of the move.
    pub(in crate::pg) fn pump_move(&mut self, turn: &mut Turn<'_>) {
        if self.relocate.depart.is_none() {
            return;
        }
        if !self.is_whole() && !self.is_frozen() {
            return self.stay("the PG is no longer clean");
        }
        loop {
            let (whole, quiet, epoch) = (self.is_whole(), self.is_quiet(), self.epoch());
            let Some(d) = &mut self.relocate.depart else { return };
            match d.at {
                At::Copy | At::Hold(_) if !whole => return,
                At::Copy | At::Hold(_) if !d.all_sent() => {
                    let pays = matches!(d.at, At::Hold(_));
                    let may = pays || self.env.pacer().take(Class::BestEffort, d.part, self.env.index(), turn.now.mono);
                    if d.busy || d.flying > MOVE_AHEAD || !may {
                        return;
                    }
                    d.busy = true;
                    self.start_work(Work::Relocate(RelocateWork::Copy), None, turn);
                    self.run_plans(turn);
                }
                At::Copy if d.flight.is_empty() && turn.now.mono >= d.not_before => {
                    d.at = At::Hold(turn.now.mono + MOVE_HOLD)
                }
                At::Hold(_) if quiet && d.flight.is_empty() && epoch >= d.has_maps => {
                    d.at = At::Frozen;
                    let handover = self.handover();
                    turn.out.push(Effect::Move(Box::new(Move::Switch(Box::new(handover)))));
                    return;
                }
                At::Hold(until) if turn.now.mono >= until => {
                    d.holds += 1;
                    if d.holds > MOVE_HOLDS_MAX {
                        return self.stay("operations did not finish in time");
                    }
                    d.at = At::Copy;
                    // The pauses grow, so that a busy PG is not held all the time.
                    d.not_before = turn.now.mono + MOVE_HOLD * (1 << d.holds.min(6));
                    let postponed = std::mem::take(&mut d.postponed);
                    self.relocate.replay.1.extend(postponed);
                    return;
                }
                _ => return,
            }
        }
    }

    pub(in crate::pg) fn is_frozen(&self) -> bool {
        self.relocate.depart.as_ref().is_some_and(|d| d.at == At::Frozen)
    }

    fn handover(&self) -> Handover {
        let leads = *self.life.state() == State::Active;
        debug_assert_eq!(leads, !self.peers.is_member(), "a machine at rest leads or follows: {:?}", self.life.state());
        let (others, stamps) = (self.maps.others().to_vec(), self.report.stamps().clone());
        Handover {
            epoch: self.epoch(),
            info: self.journal.info().clone(),
            log: self.journal.log().clone(),
            granted: self.peers.granted().clone(),
            watches: self.watches.clone(),
            interval: self.peers.hand_over(others, stamps),
            counters: *self.report.counters(),
            reported_seq: self.report.seq(),
            created_told: self.life.is_creation_told(),
            forced: self.recovery.forced(),
        }
    }

    /// Reads and sends the next part.
    pub(in crate::pg) fn run_copy(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        let Some(mut d) = self.relocate.depart.take() else { return Verdict::Done };
        let step = self.next_part_for_move(id, &mut d, turn.store);
        let wait = matches!(step, Err(NoPart { stop: Stop::Wait, .. }));
        d.busy = wait;
        self.relocate.depart = Some(d);
        match step {
            Ok(ops) => {
                self.send_load(ops, turn.out);
                Verdict::Done
            }
            Err(NoPart { stop: Stop::Wait, .. }) => Verdict::Park(Stage::Reading),
            Err(NoPart { stop: Stop::Errno(errno), of }) => {
                tracing::warn!(pg = %self.env.spg(), object = ?of, errno, "can't read an object for a move");
                self.stay("an object is unreadable");
                // The PG can move once the object is recovered.
                if let Some(oid) = of.filter(|_| errno == EIO) {
                    self.lose_found(&oid.hobj.head(), turn);
                }
                Verdict::Done
            }
        }
    }

    /// Reads the next part. `d` changes only if there is one.
    fn next_part_for_move(&self, id: u64, d: &mut Depart, store: &mut dyn ObjectStore) -> Result<Vec<Op>, NoPart> {
        let (tag, cid) = (self.tag(id), self.env.cid());
        if d.current.is_none() && d.listed.is_empty() && (!d.begun || d.next.is_some()) {
            let first = Oid::new(HObject::min()).at_generation(0);
            let from = d.next.clone().unwrap_or(first);
            let (found, next) = store.list(tag, cid, &from, None, LIST)?;
            let (meta, missing) = (self.meta(), self.meta_missing());
            d.listed = found.into_iter().filter(|o| *o != meta && *o != missing).rev().collect();
            (d.begun, d.next) = (true, next);
        }
        let mut at = d.current.clone();
        let (mut touched, mut part) = (d.touched, d.part);
        let (mut ops, mut bytes) = (Vec::new(), 0usize);
        let (mut listed, mut again, mut whole) = (d.listed.clone(), Vec::new(), Vec::new());
        while bytes < part {
            let (oid, cursor) = match at.take() {
                Some(o) => o,
                None => {
                    let all_listed = d.next.is_none();
                    let next = listed.pop().or_else(|| {
                        let after = again.last().map_or(Bound::Unbounded, Bound::Excluded);
                        let oid = d.again.range::<Oid, _>((after, Bound::Unbounded)).next().filter(|_| all_listed)?;
                        again.push(oid.clone());
                        Some(oid.clone())
                    });
                    let Some(oid) = next else { break };
                    touched = false;
                    (oid, Cursor::Start)
                }
            };
            match object_part(store, tag, cid, &oid, cursor, &mut ops, &mut bytes) {
                Ok(Some(cursor)) => at = Some((oid, cursor)),
                Ok(None) if touched => {
                    // The parts are of different moments: send the object again, in fewer parts.
                    part = part.saturating_mul(4);
                    if part > MOVE_PART_MAX {
                        return Err(NoPart { stop: Stop::Errno(EBUSY), of: Some(Box::new(oid)) });
                    }
                    ops.push(Op::Remove { cid, oid: oid.clone() });
                    at = Some((oid, Cursor::Start));
                    touched = false;
                }
                Ok(None) => {
                    part = PUSH_BYTES;
                    whole.push(oid);
                }
                // The object was removed after it was listed.
                Err(ReadError::NoObject) => whole.push(oid),
                Err(e) => return Err(NoPart { stop: e.into(), of: Some(Box::new(oid)) }),
            }
        }
        for oid in &again {
            d.again.remove(oid);
        }
        d.passed = whole.into_iter().chain(d.passed.take()).max();
        (d.listed, d.current, d.touched, d.part) = (listed, at, touched, part);
        Ok(ops)
    }
}
