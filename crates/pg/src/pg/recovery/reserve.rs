//! Reservations of one PG. Before recovery or backfill it takes a place on its own OSD, then one on the OSD of each
//! member. It asks them one after the other, in order of their numbers, so that PGs can't wait for each other in a
//! circle. [`crate::reserve`] has the places.
//!
//! Objects that clients wait for are recovered without a place. A PG's priority among others is computed here, too.
//!
//! Invariants:
//!  1. Local places are freed by dropping them, so the end of an interval leaves none behind. A member's place ends
//!     with its interval, too; before that the primary repeats the release until it is answered.
//!  2. Nothing depends on a single message: questions are repeated, and a member repeats its grant after a session
//!     was reset.
//!
//! Tests: `tests/reserve.rs`.

use crate::peer::{Body, ReserveMsg};
use crate::pg::seldom::Part;
use crate::pg::{Pg, State};
use crate::reserve::{Active, Claim, Owner, Phase, Side, priority};
use crate::shards::PeerId;
use base::OsdId;
use base::{Mono, Now};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::ObjectStore;

/// Purpose of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pg) enum Kind {
    /// Recovery by log.
    Recovery,
    /// Backfill.
    Backfill,
}

/// State of the primary's reservation.
#[derive(Debug, Default)]
pub(in crate::pg) struct Reservation {
    kind: Option<Kind>,
    /// Number of the current attempt.
    n: u64,
    local: Option<Claim>,
    /// Members still to be asked, in order.
    todo: VecDeque<PeerId>,
    /// The member that was asked, with the priority.
    asked: Option<(PeerId, u8)>,
    granted: BTreeSet<PeerId>,
    held: bool,
    /// An OSD was too full at the last attempt.
    too_full: bool,
    /// Time before which there is no further attempt.
    retry_at: Option<Mono>,
    /// Members that have not confirmed the release of their place, with the attempt.
    releasing: BTreeMap<PeerId, u64>,
}

impl Part for Reservation {
    const EMPTY: &'static Self = &Self {
        kind: None,
        n: 0,
        local: None,
        todo: VecDeque::new(),
        asked: None,
        granted: BTreeSet::new(),
        held: false,
        too_full: false,
        retry_at: None,
        releasing: BTreeMap::new(),
    };

    fn is_empty(&self) -> bool {
        // Attempts are numbered on through the interval, so a used reservation stays.
        self.n == 0 && self.kind.is_none() && self.is_idle() && self.releasing.is_empty() && self.retry_at.is_none()
    }
}

impl Reservation {
    /// True if no place is held, asked for, or granted.
    pub(in crate::pg) fn is_idle(&self) -> bool {
        !self.held && self.local.is_none() && self.asked.is_none() && self.granted.is_empty() && self.todo.is_empty()
    }
}

/// A place that this member lends to its primary.
#[derive(Debug)]
pub(in crate::pg) struct Lent {
    to: PeerId,
    n: u64,
    fills: bool,
    claim: Claim,
    told: bool,
}

impl Reservation {
    /// True if the PG may recover or backfill.
    pub(in crate::pg) fn is_held(&self) -> bool {
        self.held
    }

    /// True if the PG waits for a place.
    pub(in crate::pg) fn waits(&self) -> bool {
        self.local.is_some() && !self.held
    }

    /// True if an OSD is too full for the recovery.
    pub(in crate::pg) fn is_too_full(&self) -> bool {
        self.too_full
    }

    /// Purpose of the reservation.
    pub(in crate::pg) fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// True if a question or release is to be repeated.
    pub(in crate::pg) fn awaits(&self) -> bool {
        self.waits() || !self.releasing.is_empty()
    }

    /// Time of the next attempt, after an OSD was too full.
    pub(in crate::pg) fn deadline(&self) -> Option<Mono> {
        self.retry_at
    }
}

impl Pg {
    fn owner(&self) -> Owner {
        Owner { reactor: self.env.reactor(), index: self.env.index(), spg: self.env.spg() }
    }

    /// True if the PG may recover objects that no client waits for. Otherwise takes the next step towards a
    /// reservation.
    pub(in crate::pg) fn may_recover(&mut self, kind: Kind, now: Now) -> bool {
        if self.recovery.reservation.kind != Some(kind) {
            self.unreserve();
            self.recovery.reservation.kind = Some(kind);
        }
        if self.recovery.reservation.retry_at.is_some_and(|t| t > now.mono) {
            return false;
        }
        self.recovery.reservation.retry_at = None;
        if kind == Kind::Recovery && self.is_blocked_by_full() {
            self.give_up_for_space(now);
            return false;
        }
        let prio = self.recovery_priority(kind);
        loop {
            let Some(local) = &self.recovery.reservation.local else {
                let claim = self.env.reserver().claim(Side::Local, self.owner(), prio);
                let members = self.peers.members().iter();
                let todo = members.filter(|(_, m)| kind == Kind::Recovery || m.backfill.is_some()).map(|(o, _)| *o);
                let mut todo: VecDeque<PeerId> = todo.collect();
                // An OSD with several shards is asked for one place: a second question would wait for the first for
                // ever.
                let mut osds = BTreeSet::new();
                todo.retain(|p| osds.insert(p.osd));
                let r = &mut self.recovery.reservation;
                r.n += 1;
                r.todo = todo;
                r.local = Some(claim);
                continue;
            };
            local.set_priority(prio);
            match local.phase() {
                Phase::Waiting => return false,
                Phase::Granted => break,
                Phase::Preempted => {
                    tracing::debug!(pg = %self.env.spg(), "recovery waits: a PG of higher priority took its place");
                    self.step_back();
                }
            }
        }
        if self.recovery.reservation.held {
            return true;
        }
        if let Some((to, told)) = self.recovery.reservation.asked {
            if told != prio {
                self.ask_for_place(to, prio);
            }
            return false;
        }
        match self.recovery.reservation.todo.pop_front() {
            Some(o) => {
                self.ask_for_place(o, prio);
                false
            }
            None => {
                let r = &mut self.recovery.reservation;
                r.held = true;
                r.too_full = false;
                true
            }
        }
    }

    fn ask_for_place(&mut self, to: PeerId, priority: u8) {
        self.recovery.reservation.asked = Some((to, priority));
        let m = self.question(priority);
        self.send_to(to, &Body::Reserve(m));
    }

    fn question(&self, priority: u8) -> ReserveMsg {
        let r = &self.recovery.reservation;
        let bytes = u64::try_from(self.journal.info().stats.num_bytes).unwrap_or(0);
        ReserveMsg::Ask { n: r.n, fill: (r.kind == Some(Kind::Backfill)).then_some(bytes), priority }
    }

    /// Releases all places; the next call of [`Pg::may_recover`] starts a new attempt.
    fn step_back(&mut self) {
        let r = &mut self.recovery.reservation;
        let n = r.n;
        r.local = None;
        r.held = false;
        r.todo.clear();
        let mut told = std::mem::take(&mut r.granted);
        told.extend(r.asked.take().map(|(o, _)| o));
        for o in told {
            self.recovery.reservation.releasing.insert(o, n);
            self.send_to(o, &Body::Reserve(ReserveMsg::Release { n }));
        }
    }

    /// Ends the reservation.
    pub(in crate::pg) fn unreserve(&mut self) {
        if self.recovery.reservation.kind.is_none() {
            return;
        }
        self.step_back();
        let r = &mut self.recovery.reservation;
        r.kind = None;
        r.too_full = false;
        r.retry_at = None;
    }

    fn give_up_for_space(&mut self, now: Now) {
        self.step_back();
        let (recovery, backfill) = self.env.reserver().retry_intervals();
        let r = &mut self.recovery.reservation;
        let first = !r.too_full;
        r.too_full = true;
        r.retry_at = Some(now.mono + if r.kind == Some(Kind::Backfill) { backfill } else { recovery });
        if first {
            tracing::warn!(pg = %self.env.spg(), kind = ?r.kind, "recovery waits: an OSD of the PG is too full");
        }
    }

    /// True if an OSD that takes part is full in the map.
    fn is_blocked_by_full(&self) -> bool {
        let Some(map) = self.maps.newest() else { return false };
        let mut all = self.peers.members().keys().map(|p| p.osd).chain([self.env.whoami()]);
        all.any(|o| map.osds.is_full(o))
    }

    /// Priority as in Ceph: inactive PGs first, then recovery, then backfill of degraded PGs.
    fn recovery_priority(&self, kind: Kind) -> u8 {
        let forced = |bit: u8| self.recovery.forced & bit != 0;
        let i = &self.journal.info().interval;
        let (size, copies) = (i64::from(i.size), self.acting_set().len() as i64);
        let pool = self.pool().map_or(0, |p| i64::from(p.recovery_priority));
        let inactive = i64::from(i.min_size) - copies;
        match kind {
            Kind::Recovery if forced(1) => priority::RECOVERY_FORCED,
            Kind::Backfill if forced(2) => priority::BACKFILL_FORCED,
            _ if inactive > 0 => priority::within(priority::INACTIVE, inactive + pool),
            Kind::Recovery => priority::within(priority::RECOVERY, pool),
            Kind::Backfill if size > copies => priority::within(priority::BACKFILL_DEGRADED, size - copies + pool),
            Kind::Backfill => priority::within(priority::BACKFILL, pool),
        }
    }

    /// Counts an object as being recovered, unless a client waits for it (`urgent`). `None` if the limit is reached.
    pub(in crate::pg) fn start_object(&self, urgent: bool) -> Option<Option<Active>> {
        if urgent { Some(None) } else { self.env.reserver().start(self.owner()).map(Some) }
    }

    /// Handles a message about reservations.
    pub(in crate::pg) fn take_reserve(
        &mut self,
        from: PeerId,
        from_primary: bool,
        leads: bool,
        m: ReserveMsg,
        now: Now,
        store: &dyn ObjectStore,
    ) {
        match m {
            ReserveMsg::Ask { n, fill, priority } if from_primary && self.peers.is_member() => {
                self.lend(from, n, fill, priority, store);
            }
            ReserveMsg::Release { n } if from_primary => {
                if self.recovery.lent.as_ref().is_some_and(|l| l.n <= n) {
                    self.recovery.lent = None;
                }
                self.send_to(from, &Body::Reserve(ReserveMsg::Released { n }));
            }
            ReserveMsg::Released { n } if leads => {
                let r = &mut self.recovery.reservation;
                if r.releasing.get(&from).is_some_and(|told| *told <= n) {
                    r.releasing.remove(&from);
                }
            }
            ReserveMsg::Granted { n } if leads => {
                let r = &mut self.recovery.reservation;
                if n == r.n && r.asked.is_some_and(|(o, _)| o == from) {
                    r.asked = None;
                    r.granted.insert(from);
                }
            }
            ReserveMsg::TooFull { n } if leads && self.is_of_attempt(from, n) => self.give_up_for_space(now),
            ReserveMsg::Revoked { n } if leads && self.is_of_attempt(from, n) => self.step_back(),
            _ => tracing::debug!(pg = %self.env.spg(), %from, ?m, "reservation message ignored: wrong role or attempt"),
        }
    }

    fn is_of_attempt(&self, from: PeerId, n: u64) -> bool {
        let r = &self.recovery.reservation;
        n == r.n && (r.granted.contains(&from) || r.asked.is_some_and(|(o, _)| o == from))
    }

    /// As a member: claims a place on this OSD for the primary.
    fn lend(&mut self, to: PeerId, n: u64, fill: Option<u64>, priority: u8, store: &dyn ObjectStore) {
        match &mut self.recovery.lent {
            Some(l) if l.n > n => return,
            Some(l) if l.n == n => {
                l.claim.set_priority(priority);
                l.told = false;
                return self.pump_lent();
            }
            _ => {}
        }
        self.recovery.lent = None;
        if let Some(bytes) = fill
            && self.has_no_space_for(bytes, store)
        {
            tracing::info!(pg = %self.env.spg(), bytes, "backfill refused: this OSD would exceed backfillfull_ratio");
            return self.send_to(to, &Body::Reserve(ReserveMsg::TooFull { n }));
        }
        let claim = self.env.reserver().claim(Side::Remote, self.owner(), priority);
        self.recovery.lent = Some(Lent { to, n, fills: fill.is_some(), claim, told: false });
        self.pump_lent();
    }

    /// As a member: tells the primary whether its place was granted or preempted.
    pub(in crate::pg) fn pump_lent(&mut self) {
        let Some(l) = &mut self.recovery.lent else { return };
        let (to, n) = (l.to, l.n);
        match l.claim.phase() {
            Phase::Granted if !l.told => {
                l.told = true;
                self.send_to(to, &Body::Reserve(ReserveMsg::Granted { n }));
            }
            Phase::Preempted => {
                self.recovery.lent = None;
                self.send_to(to, &Body::Reserve(ReserveMsg::Revoked { n }));
            }
            _ => {}
        }
    }

    /// As a backfill target: stops the backfill if this OSD has run out of space.
    pub(in crate::pg) fn check_space_to_fill(&mut self, store: &dyn ObjectStore) {
        let Some((to, n)) = self.recovery.lent.as_ref().filter(|l| l.fills).map(|l| (l.to, l.n)) else { return };
        if self.has_no_space_for(0, store) {
            self.recovery.lent = None;
            tracing::warn!(pg = %self.env.spg(), "backfill stopped: this OSD exceeds backfillfull_ratio");
            self.send_to(to, &Body::Reserve(ReserveMsg::TooFull { n }));
        }
    }

    /// As a member without space for a part of an object: gives the place back, so that the primary waits and reports it.
    pub(in crate::pg) fn stop_filling(&mut self) {
        if let Some(Lent { to, n, .. }) = self.recovery.lent.take() {
            self.send_to(to, &Body::Reserve(ReserveMsg::TooFull { n }));
        }
    }

    /// True if this OSD exceeds `backfillfull_ratio`, or would with `bytes` in place of the present copy.
    fn has_no_space_for(&self, bytes: u64, store: &dyn ObjectStore) -> bool {
        let Some(map) = self.maps.newest() else { return false };
        let (fs, ratio) = (store.statfs(), f64::from(map.osds.backfillfull_ratio()));
        if fs.total == 0 || ratio <= 0.0 {
            return false;
        }
        let (_, here, _) = store.collection_usage(self.env.cid());
        let used = fs.total.saturating_sub(fs.available).saturating_add(bytes.saturating_sub(here));
        used as f64 / fs.total as f64 > ratio || map.osds.is_full(self.env.whoami())
    }

    /// True if this OSD would exceed that ratio with the PG stored twice.
    pub(in crate::pg) fn has_no_space_to_move(&self, store: &dyn ObjectStore) -> bool {
        let (_, bytes, omap) = store.collection_usage(self.env.cid());
        self.has_no_space_for(bytes.saturating_mul(2).saturating_add(omap), store)
    }

    /// Handles the reset of a session to an OSD: messages about places may be lost.
    pub(in crate::pg) fn places_reset(&mut self, osd: OsdId) {
        if self.recovery.reservation.granted.iter().any(|p| p.osd == osd) {
            // The member may have revoked the place.
            self.step_back();
        }
        if let Some(l) = self.recovery.lent.as_mut().filter(|l| l.to.osd == osd) {
            l.told = false;
            self.pump_lent();
        }
    }

    /// Questions and releases without an answer, to be repeated.
    pub(in crate::pg) fn unanswered_places(&self) -> Vec<(PeerId, Body)> {
        let r = &self.recovery.reservation;
        let asked = r.asked.map(|(o, prio)| (o, Body::Reserve(self.question(prio))));
        let releasing = r.releasing.iter().map(|(o, n)| (*o, Body::Reserve(ReserveMsg::Release { n: *n })));
        // Releases go first, since the question belongs to a later attempt.
        releasing.chain(asked).collect()
    }

    /// True if backfill targets exist and none of the objects left for them can be sent.
    pub(in crate::pg) fn is_backfill_stuck(&self) -> bool {
        let mut filling = self.peers.members().iter().filter_map(|(o, m)| Some((*o, m.backfill.as_ref()?))).peekable();
        matches!(self.life.state(), State::Active | State::Peered | State::Quiesced)
            && filling.peek().is_some()
            && filling.all(|(o, b)| b.is_stuck(|h| self.recovery.damage.bars(h, o)))
    }
}
