//! The target machine of a PG that moves from another reactor of its OSD ([`crate::pg::relocate::out`] is the
//! source).
//!
//! The target creates a collection under the PG's staging name, applies the changes that the source sends, and reports
//! how far they are durable. Once it has everything and the host decides for it, it stores the info; from then on the
//! collection counts. It serves the PG when the source's collection is void and the source's held messages have
//! arrived.
//!
//! Invariants:
//!  1. A collection without info is void: after a crash before that point the PG is where it was.
//!  2. The target serves nothing before the source's collection is durably void; until then both have the same
//!     content.
//!
//! Tests: `crates/osd/tests/moves.rs`.

use crate::effect::Effect;
use crate::event::Event;
use crate::exec::Stop;
use crate::moving::{Handover, Move, Postponed};
use crate::pg::journal::action::Action;
use crate::pg::journal::action::RelocateAction;
use crate::pg::mail::postponed;
use crate::pg::ops::plan::Stage;
use crate::pg::ops::plan::Verdict;
use crate::pg::ops::work::RelocateWork;
use crate::pg::ops::work::Work;
use crate::pg::relocate::out::postponable;
use crate::pg::{Pg, PgConfig, State, Turn};
use base::unreached;
use std::collections::VecDeque;
use store::{Cid, Op};

/// State of the target machine; see the module.
#[derive(Debug)]
pub(in crate::pg) struct Arrive {
    /// Changes to be applied, with their numbers.
    loads: VecDeque<(u64, Vec<Op>)>,
    busy: bool,
    /// The collection exists, or its creation is submitted.
    made: bool,
    handover: Option<Box<Handover>>,
    /// The host was told that everything is here.
    ready_told: bool,
    decided: bool,
    written: bool,
    /// The source's collection is void.
    void: bool,
    /// Messages that the source held.
    postponed: Option<Vec<Postponed>>,
    /// Messages that came to this reactor.
    own_postponed: Vec<Postponed>,
}

impl Pg {
    /// Handles the durability of a transaction of a move.
    pub(in crate::pg) fn act_relocate(&mut self, a: RelocateAction, turn: &mut Turn<'_>) {
        match a {
            RelocateAction::Loaded(n) => self.loaded(n, turn),
            RelocateAction::Arrived => self.arrived(turn),
        }
    }

    /// The target machine of a moving PG, with collection `cid`. The host hands it the newest map and all later ones,
    /// and [`Move::Settle`] next.
    #[must_use]
    pub fn arrive(cfg: PgConfig, cid: Cid, bits: u32) -> Self {
        let mut pg = Self::blank(cfg, State::Arriving);
        pg.env.set_cid(cid);
        pg.resize.set_bits(bits);
        pg.relocate.arrive = Some(Box::new(Arrive {
            loads: VecDeque::new(),
            busy: true,
            made: false,
            handover: None,
            ready_told: false,
            decided: false,
            written: false,
            void: false,
            postponed: None,
            own_postponed: Vec::new(),
        }));
        pg
    }

    /// Name of the PG's collection.
    #[must_use]
    pub fn cid(&self) -> Cid {
        self.env.cid()
    }

    /// Holds an input until the PG is served here. Returns the event if it must be handled now.
    pub(in crate::pg) fn hold_for_arrival(&mut self, event: Event) -> Option<Event> {
        let Some(a) = &mut self.relocate.arrive else { return Some(event) };
        match event {
            Event::Map(map) => self.maps.keep_all(map),
            Event::Leases | Event::Fetched(..) => {}
            event => match postponable(event) {
                Ok(l) => {
                    let full = postponed::postpone(&mut a.own_postponed, l);
                    self.close_postponed(full);
                }
                Err(event) => return Some(event),
            },
        }
        None
    }

    /// Handles a message from the source machine or the host.
    pub(in crate::pg) fn handle_move_in(&mut self, m: Move, turn: &mut Turn<'_>) {
        let Some(a) = &mut self.relocate.arrive else { return unreached("the PG arrives") };
        match m {
            Move::Settle { .. } => self.start_work(Work::Relocate(RelocateWork::Settle), None, turn),
            Move::Load { n, ops } => a.loads.push_back((n, ops)),
            Move::Switch(l) => a.handover = Some(l),
            Move::Decided(true) => {
                a.decided = true;
                self.start_work(Work::Relocate(RelocateWork::Arrive), None, turn);
            }
            Move::CallOff | Move::Decided(false) if !a.decided => self.leave_unarrived(turn.out),
            Move::Postponed(l) => a.postponed = Some(l),
            Move::Void => a.void = true,
            _ => {}
        }
        self.pump_arrival(turn);
    }

    fn leave_unarrived(&mut self, out: &mut Vec<Effect>) {
        let made = self.relocate.arrive.take().is_some_and(|a| a.made);
        self.life.enter(State::Deleted);
        self.maps.take_postponed();
        self.drop_operations(out);
        self.mail.post(Effect::Move(Box::new(Move::Left { made })));
    }

    /// Takes the next step of the move.
    pub(in crate::pg) fn pump_arrival(&mut self, turn: &mut Turn<'_>) {
        loop {
            let Some(a) = self.relocate.arrive.as_mut().filter(|_| !self.life.is_stopping()) else { return };
            if !a.busy && !a.loads.is_empty() {
                a.busy = true;
                self.start_work(Work::Relocate(RelocateWork::Load), None, turn);
                self.run_plans(turn);
                continue;
            }
            let settled = !a.busy && a.loads.is_empty() && self.journal.is_settled();
            if a.handover.is_some() && settled && !a.ready_told {
                a.ready_told = true;
                turn.out.push(Effect::Move(Box::new(Move::Ready)));
            }
            if a.written && a.void && a.postponed.is_some() {
                self.live(turn.out);
            }
            return;
        }
    }

    /// Creates the collection.
    pub(in crate::pg) fn run_settle(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        let ops = vec![Op::MakeCollection { cid: self.env.cid(), bits: self.resize.bits() }];
        self.take_in(id, ops, Action::Relocate(RelocateAction::Loaded(0)), turn)
    }

    /// Applies the next changes.
    pub(in crate::pg) fn run_load_move(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        let Some((n, ops)) = self.relocate.arrive.as_mut().and_then(|a| a.loads.pop_front()) else {
            return unreached("changes wait while they are applied");
        };
        let mine = ops.iter().filter_map(|o| in_collection(o, self.env.cid())).collect();
        let v = self.take_in(id, mine, Action::Relocate(RelocateAction::Loaded(n)), turn);
        if let (Verdict::Park(_), Some(a)) = (&v, &mut self.relocate.arrive) {
            a.loads.push_front((n, ops));
        }
        v
    }

    fn take_in(&mut self, id: u64, ops: Vec<Op>, then: Action, turn: &mut Turn<'_>) -> Verdict {
        match self.commit_alone(self.tag(id), ops, turn.store) {
            Ok(()) => {
                self.on_durable(then);
                if let Some(a) = &mut self.relocate.arrive {
                    (a.busy, a.made) = (false, true);
                }
                Verdict::Submitted
            }
            Err(Stop::Wait) => Verdict::Park(Stage::Reading),
            Err(Stop::Errno(errno)) => {
                tracing::warn!(pg = %self.env.spg(), errno, "the target of a move can't store the PG; the move is refused");
                self.mail.post(Effect::Move(Box::new(Move::Refuse)));
                self.leave_unarrived(turn.out);
                Verdict::Done
            }
        }
    }

    /// Handles the durability of changes up to `n`.
    pub(in crate::pg) fn loaded(&mut self, n: u64, turn: &mut Turn<'_>) {
        let Some(a) = self.relocate.arrive.as_mut().filter(|_| !self.life.is_stopping()) else { return };
        if a.handover.is_none() {
            // The source continues with a map that is among those kept from here on.
            self.maps.keep_last();
        }
        let epoch = self.maps.last_postponed();
        turn.out.push(Effect::Move(Box::new(Move::Loaded { n, epoch })));
        self.pump_arrival(turn);
    }

    /// Stores the info, so that the collection counts.
    pub(in crate::pg) fn run_arrive(&mut self, id: u64, turn: &mut Turn<'_>) -> Verdict {
        let Some(info) = self.relocate.arrive.as_ref().and_then(|a| a.handover.as_ref()).map(|l| l.info.clone()) else {
            return unreached("a move is decided once the source has handed over");
        };
        match self.commit_with_info(self.tag(id), info, Vec::new(), turn.store) {
            Ok(()) => {
                self.on_durable(Action::Relocate(RelocateAction::Arrived));
                Verdict::Submitted
            }
            // The move can't be cancelled any more: without room for a few bytes, this step waits.
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    /// Handles the durability of the info.
    pub(in crate::pg) fn arrived(&mut self, turn: &mut Turn<'_>) {
        let Some(a) = self.relocate.arrive.as_mut().filter(|_| !self.life.is_stopping()) else { return };
        a.written = true;
        turn.out.push(Effect::Move(Box::new(Move::Arrived)));
        self.pump_arrival(turn);
    }

    /// Takes over the source's state and starts serving.
    fn live(&mut self, out: &mut Vec<Effect>) {
        let Some(a) = self.relocate.arrive.take() else { return unreached("the PG arrives") };
        let Arrive { handover: Some(l), postponed, own_postponed, .. } = *a else {
            return unreached("a move is decided once the source has handed over");
        };
        let Handover { epoch, info, log, granted, watches, interval: m, counters, reported_seq, created_told, forced } =
            *l;
        let mut maps = self.maps.take_postponed();
        let at = maps.iter().position(|m| m.epoch >= epoch).unwrap_or(maps.len());
        maps.drain(..at);
        let mut maps = maps.into_iter();
        if let Some(m) = maps.next() {
            self.maps.follow(m);
        }
        if self.maps.newest().is_none_or(|m| m.epoch != epoch) {
            tracing::error!(pg = %self.env.spg(), %epoch, "the map that the source of a move processed last is missing");
            return self.fail(base::errno::EIO, out);
        }
        self.journal.restore(info, log);
        self.watches = watches;
        self.life.set_creation_told(created_told);
        self.recovery.set_forced(forced);
        self.journal.info_changed();
        self.report.restore(counters, m.stamps().clone(), reported_seq);
        self.maps.set_others(m.others().to_vec());
        self.forget_copies();
        let leads = m.leads();
        self.peers.take_over(m, granted);
        self.life.enter(if leads { State::Active } else { State::ReplicaActive });
        tracing::info!(pg = %self.env.spg(), version = %self.journal.info().last_update, "the PG is on this reactor now");
        self.refresh_trim();
        out.push(Effect::Members);
        out.push(Effect::Move(Box::new(Move::Here)));
        self.relocate.replay.0.extend(maps);
        self.relocate.replay.1.extend(postponed.into_iter().flatten().chain(own_postponed));
    }
}

/// The same operation on another collection; `None` for operations that a move does not send.
fn in_collection(op: &Op, to: Cid) -> Option<Op> {
    let mut op = op.clone();
    match &mut op {
        Op::Touch { cid, .. }
        | Op::Write { cid, .. }
        | Op::Zero { cid, .. }
        | Op::Truncate { cid, .. }
        | Op::Remove { cid, .. }
        | Op::SetAttrs { cid, .. }
        | Op::RmAttr { cid, .. }
        | Op::RmAttrs { cid, .. }
        | Op::Clone { cid, .. }
        | Op::CloneRange { cid, .. }
        | Op::Rename { cid, .. }
        | Op::OmapSet { cid, .. }
        | Op::OmapRmKeys { cid, .. }
        | Op::OmapRmRange { cid, .. }
        | Op::OmapClear { cid, .. }
        | Op::OmapSetHeader { cid, .. }
        | Op::SetAllocHint { cid, .. }
        | Op::LogAppend { cid, .. }
        | Op::LogTrim { cid, .. }
        | Op::LogRewind { cid, .. } => *cid = to,
        Op::MakeCollection { .. }
        | Op::MakeBeside { .. }
        | Op::RemoveCollection { .. }
        | Op::Split { .. }
        | Op::Merge { .. }
        | Op::Keep { .. }
        | Op::DropKept { .. }
        | Op::Undo { .. }
        | Op::PgInfo { .. } => return None,
    }
    Some(op)
}
