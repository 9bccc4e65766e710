//! The target machine of a PG that moves from another reactor of its OSD ([`crate::pg::relocate::out`] is the
//! source).
//!
//! The target creates a collection under the PG's second name, applies the changes that the source sends, and reports
//! how far they are durable. Once it has everything and the host decides for it, it stores the info; from then on the
//! collection counts. It serves the PG when the source's collection is void and the source's held messages have
//! arrived.
//!
//! Invariants:
//!  1. A collection without info is void: after a crash before that point the PG is where it was.
//!  2. The target serves nothing before the source's collection is durably void; until then both have the same
//!     content.

use crate::effect::Effect;
use crate::event::Event;
use crate::exec::Stop;
use crate::moving::{Handover, Late, Move};
use crate::pg::kept;
use crate::pg::ops::commit::Action;
use crate::pg::ops::plan::{Verdict, Work};
use crate::pg::peering::session::{Member, Peers};
use crate::pg::relocate::out::late;
use crate::pg::report::Stage;
use crate::pg::seldom::Seldom;
use crate::pg::{Pg, PgConfig, State};
use base::{Epoch, Now};
use std::collections::VecDeque;
use store::{Cid, ObjectStore, Op};

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
    late: Option<Vec<Late>>,
    /// Messages that came to this reactor.
    own_late: Vec<Late>,
}

impl Pg {
    /// The target machine of a moving PG, with collection `cid`. The host hands it the newest map and all later ones,
    /// and [`Move::Settle`] next.
    #[must_use]
    pub fn arrive(cfg: PgConfig, cid: Cid, bits: u32) -> Self {
        let mut pg = Self::blank(cfg, State::Arriving);
        (pg.cid, pg.bits, pg.bits_coming) = (cid, bits, bits);
        pg.arrive = Some(Box::new(Arrive {
            loads: VecDeque::new(),
            busy: true,
            made: false,
            handover: None,
            ready_told: false,
            decided: false,
            written: false,
            void: false,
            late: None,
            own_late: Vec::new(),
        }));
        pg
    }

    /// Name of the PG's collection.
    #[must_use]
    pub fn cid(&self) -> Cid {
        self.cid
    }

    /// Holds an input until the PG is served here. Returns the event if it must be handled now.
    pub(in crate::pg) fn hold_for_arrival(&mut self, event: Event) -> Option<Event> {
        let Some(a) = &mut self.arrive else { return Some(event) };
        match event {
            Event::Map(map) => self.early_maps.push(map),
            Event::Leases | Event::Fetched(..) => {}
            event => match late(event) {
                Ok(l) => {
                    let full = kept::keep_late(&mut a.own_late, l);
                    self.close_late(full);
                }
                Err(event) => return Some(event),
            },
        }
        None
    }

    /// Handles a message from the source machine or the host.
    pub(in crate::pg) fn handle_move_in(
        &mut self,
        m: Move,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) {
        let Some(a) = &mut self.arrive else { return };
        match m {
            Move::Settle { .. } => self.start_work(Work::Settle, None, now, store, out),
            Move::Load { n, ops } => a.loads.push_back((n, ops)),
            Move::Switch(l) => a.handover = Some(l),
            Move::Decided(true) => {
                a.decided = true;
                self.start_work(Work::Arrive, None, now, store, out);
            }
            Move::CallOff | Move::Decided(false) if !a.decided => self.leave_unarrived(out),
            Move::Late(l) => a.late = Some(l),
            Move::Void => a.void = true,
            _ => {}
        }
        self.pump_arrival(now, store, out);
    }

    fn leave_unarrived(&mut self, out: &mut Vec<Effect>) {
        let made = self.arrive.take().is_some_and(|a| a.made);
        self.state = State::Deleted;
        self.early_maps.clear();
        self.drop_operations(false, out);
        self.outbox.push(Effect::Move(Box::new(Move::Left { made })));
    }

    /// Takes the next step of the move.
    pub(in crate::pg) fn pump_arrival(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        loop {
            let Some(a) = self.arrive.as_mut().filter(|_| !self.stopping) else { return };
            if !a.busy && !a.loads.is_empty() {
                a.busy = true;
                self.start_work(Work::LoadMove, None, now, store, out);
                self.run_plans(now, store, out);
                continue;
            }
            let rests = !a.busy && a.loads.is_empty() && self.commits.is_empty();
            if a.handover.is_some() && rests && !a.ready_told {
                a.ready_told = true;
                out.push(Effect::Move(Box::new(Move::Ready)));
            }
            if a.written && a.void && a.late.is_some() {
                self.live(out);
            }
            return;
        }
    }

    /// Creates the collection.
    pub(in crate::pg) fn run_settle(&mut self, id: u64, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) -> Verdict {
        let ops = vec![Op::MakeCollection { cid: self.cid, bits: self.bits }];
        self.take_in(id, ops, Action::Loaded(0), store, out)
    }

    /// Applies the next changes.
    pub(in crate::pg) fn run_load_move(
        &mut self,
        id: u64,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        let Some((n, ops)) = self.arrive.as_mut().and_then(|a| a.loads.pop_front()) else { return Verdict::Done };
        let mine = ops.iter().filter_map(|o| in_collection(o, self.cid)).collect();
        let v = self.take_in(id, mine, Action::Loaded(n), store, out);
        if let (Verdict::Park(_), Some(a)) = (&v, &mut self.arrive) {
            a.loads.push_front((n, ops));
        }
        v
    }

    fn take_in(
        &mut self,
        id: u64,
        ops: Vec<Op>,
        then: Action,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        match self.commit_alone(self.tag(id), ops, store) {
            Ok(()) => {
                self.on_durable(then);
                if let Some(a) = &mut self.arrive {
                    (a.busy, a.made) = (false, true);
                }
                Verdict::Submitted
            }
            Err(Stop::Wait) => Verdict::Park(Stage::Reading),
            Err(Stop::Errno(errno)) => {
                tracing::warn!(pg = %self.cfg.spg, errno, "the target of a move can't store the PG; the move is refused");
                self.outbox.push(Effect::Move(Box::new(Move::Refuse)));
                self.leave_unarrived(out);
                Verdict::Done
            }
        }
    }

    /// Handles the durability of changes up to `n`.
    pub(in crate::pg) fn loaded(&mut self, n: u64, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        let Some(a) = self.arrive.as_mut().filter(|_| !self.stopping) else { return };
        if a.handover.is_none() {
            // The source continues with a map that is among those kept from here on.
            let old = self.early_maps.len().saturating_sub(1);
            self.early_maps.drain(..old);
        }
        let epoch = self.early_maps.last().map_or(Epoch(0), |m| m.epoch);
        out.push(Effect::Move(Box::new(Move::Loaded { n, epoch })));
        self.pump_arrival(now, store, out);
    }

    /// Stores the info, so that the collection counts.
    pub(in crate::pg) fn run_arrive(&mut self, id: u64, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) -> Verdict {
        let Some(info) = self.arrive.as_ref().and_then(|a| a.handover.as_ref()).map(|l| l.info.clone()) else {
            return Verdict::Done;
        };
        match self.commit_with_info(self.tag(id), info, Vec::new(), store) {
            Ok(()) => {
                self.on_durable(Action::Arrived);
                Verdict::Submitted
            }
            // The move can't be cancelled any more: without room for a few bytes, this step waits.
            Err(stop) => self.step_failed(stop, out),
        }
    }

    /// Handles the durability of the info.
    pub(in crate::pg) fn arrived(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        let Some(a) = self.arrive.as_mut().filter(|_| !self.stopping) else { return };
        a.written = true;
        out.push(Effect::Move(Box::new(Move::Arrived)));
        self.pump_arrival(now, store, out);
    }

    /// Takes over the source's state and starts serving.
    fn live(&mut self, out: &mut Vec<Effect>) {
        let Some(a) = self.arrive.take() else { return };
        let Arrive { handover: Some(l), late, own_late, .. } = *a else { return };
        let Handover { epoch, info, log, granted, watches, interval: m, counters, reported_seq, created_told, forced } =
            *l;
        let mut maps = std::mem::take(&mut self.early_maps);
        let at = maps.iter().position(|m| m.epoch >= epoch).unwrap_or(maps.len());
        maps.drain(..at);
        let mut maps = maps.into_iter();
        self.map = maps.next();
        if self.map.as_ref().is_none_or(|m| m.epoch != epoch) {
            tracing::error!(pg = %self.cfg.spg, %epoch, "the map that the source of a move processed last is missing");
            return self.fail(base::errno::EIO, out);
        }
        (self.info, self.log, self.granted, self.watches) = (info, log, granted, watches);
        (self.counters, self.reported_seq) = (counters, reported_seq);
        (self.created_told, self.forced) = (created_told, forced);
        self.info_dirty = true;
        (self.stamps, self.others) = (m.stamps, m.others);
        let member = |acked, frame| Member { activated: true, acked, frame, ..Member::default() };
        self.peers = Peers {
            self_activated: m.leads,
            members: m.members.into_iter().map(|(o, frame)| (o, member(m.seq, frame))).collect(),
            seq: m.seq,
            told_stable: m.told_stable,
            clean: m.leads,
            member: !m.leads,
            next_write: m.next_write,
            durable_write: m.durable_write,
            serves: m.serves,
            unstable: m.unstable,
            incoming: Seldom::of(m.incoming),
            ..Peers::default()
        };
        self.state = if m.leads { State::Active } else { State::ReplicaActive };
        tracing::info!(pg = %self.cfg.spg, version = %self.info.last_update, "the PG is on this reactor now");
        self.refresh_trim();
        out.push(Effect::Members);
        out.push(Effect::Move(Box::new(Move::Here)));
        self.replay.0.extend(maps);
        self.replay.1.extend(late.into_iter().flatten().chain(own_late));
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
