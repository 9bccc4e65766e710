//! Messages between the machines of a PG on different OSDs: the state kept of the other copies, dispatch, and
//! repetition.
//!
//! Invariants:
//!  1. A message from before the present interval is dropped, and the host holds one of a newer map back. So both
//!     ends of a message are in the same interval.
//!  2. Unanswered messages are sent again when the session was reset, and at intervals. Nothing depends on a single
//!     timer or message.
//!
//! Tests: `tests/recovery.rs` (`one_message_of_each_kind_may_be_lost`), `tests/replicated.rs`.

use crate::effect::{Effect, Lane};
use crate::limits::PEER_RETRY;
use crate::pace::Class;
use crate::peer::Body;
use crate::pg::backend::ec::account::Page;
use crate::pg::backend::ec::fetch::ShardAsk;
use crate::pg::backend::ec::spare::Touched;
use crate::pg::journal::action::Merge;
use crate::pg::journal::action::PeeringAction;
use crate::pg::ops::plan::Plan;
use crate::pg::ops::plan::Verdict;
use crate::pg::ops::work::LifeWork;
use crate::pg::ops::work::PeeringWork;
use crate::pg::ops::work::RecoveryWork;
use crate::pg::ops::work::Work;
use crate::pg::peering::pieces::is_long;
use crate::pg::peering::{Apply, Member, Write};
use crate::pg::{Pg, State, Turn};
use crate::shards::PeerId;
use base::unreached;
use base::{Eversion, Now, OsdId, Summed};
use bytes::Bytes;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::sync::Arc;
use wire::msg::{MPgPeer, PeerFeatures};
use wire::types::PgHistory;

impl Pg {
    /// Handles the durability of a transaction of peering, or of a member for its primary.
    pub(in crate::pg) fn act_peering(&mut self, a: PeeringAction, turn: &mut Turn<'_>) {
        match a {
            PeeringAction::Activated(generation, epoch) => {
                if generation == self.life.generation() {
                    self.activated(epoch, turn);
                }
            }
            PeeringAction::StartSaved(generation) => {
                if generation == self.life.generation() {
                    self.start_saved(turn);
                }
            }
            PeeringAction::MergedPart(generation, rest) => {
                if generation == self.life.generation() {
                    self.merged_part(rest, turn);
                }
            }
            PeeringAction::MemberReady(to) => self.send_activated(to, turn.store),
            PeeringAction::Rewound(to) => self.notify(to, turn.now),
            PeeringAction::WriteDurable { to, seq, received } => {
                self.write_durable(to, seq, turn.now.mono.since(received));
            }
        }
    }

    /// Runs work of peering, and of members for their primary.
    pub(in crate::pg) fn run_peering(&mut self, plan: &mut Plan, turn: &mut Turn<'_>) -> Verdict {
        let id = plan.id;
        match &plan.work {
            Work::Peering(PeeringWork::Activate) => self.run_activate(id, turn),
            Work::Peering(PeeringWork::SaveStart) => self.run_save_start(id, turn),
            Work::Peering(PeeringWork::Merge(m)) => self.run_merge(id, m, turn),
            Work::Peering(PeeringWork::SendLog { to, last_update, les, upto }) => {
                self.run_send_log(id, *to, *last_update, *les, *upto, turn)
            }
            Work::Peering(PeeringWork::SendTouched { to, since }) => self.run_send_touched(id, *to, *since, turn),
            Work::Peering(PeeringWork::SendRewind { to, last_update, les }) => {
                self.run_send_rewind(id, *to, *last_update, *les, turn)
            }
            Work::Peering(PeeringWork::Apply) => self.run_apply(id, turn),
            _ => unreached("each part runs its own work"),
        }
    }

    /// Queues a message to another copy.
    pub(in crate::pg) fn send_to(&mut self, to: PeerId, body: &Body) {
        let encoded = body.encode_for(self.features(to));
        self.send_encoded(to, encoded);
    }

    /// True if the OSD of a copy understands `what`.
    pub(in crate::pg) fn understands(&self, p: PeerId, what: PeerFeatures) -> bool {
        self.features(p).has(what)
    }

    /// The parts of the protocol that the OSD of a copy understands.
    pub(in crate::pg) fn features(&self, p: PeerId) -> PeerFeatures {
        match self.maps.newest() {
            Some(m) if p.osd != self.env.whoami() => m.osds.peer_features(p.osd),
            Some(_) => PeerFeatures::OURS,
            None => PeerFeatures::NONE,
        }
    }

    /// The parts of the protocol that all members understand.
    pub(in crate::pg) fn features_of_members(&self) -> PeerFeatures {
        let all = self.peers.members.keys().map(|p| self.features(*p));
        all.fold(PeerFeatures::OURS, PeerFeatures::and)
    }

    /// Most metadata of a transaction that the logs of all members take.
    pub(in crate::pg) fn frame_of_members(&self) -> u64 {
        self.peers.members.values().map(Member::frame).min().unwrap_or(u64::MAX)
    }

    pub(in crate::pg) fn send_encoded(&mut self, to: PeerId, encoded: (Bytes, Bytes)) {
        self.send_on(Lane::Data, to, encoded);
    }

    pub(in crate::pg) fn send_on(&mut self, lane: Lane, to: PeerId, encoded: (Bytes, Bytes)) {
        self.send_summed(lane, to, encoded, None);
    }

    /// Sends a message; `sums` has the checksums of its data, if they are known.
    pub(in crate::pg) fn send_summed(
        &mut self,
        lane: Lane,
        to: PeerId,
        (body, data): (Bytes, Bytes),
        sums: Option<Arc<Summed>>,
    ) {
        self.acknowledge_first();
        let msg = Box::new(MPgPeer { sums, ..self.message(to, body, data) });
        if to == self.me() {
            return self.ec.send_to_self(msg);
        }
        if is_long(&msg) && self.understands(to, PeerFeatures::PARTS) {
            return self.send_pieces(to, (msg.body, msg.data));
        }
        if msg.body.len() > MPgPeer::BODY_MAX || msg.data.len() > MPgPeer::DATA_MAX {
            return self.cannot_tell(to, msg.body.first().copied(), msg.body.len(), msg.data.len());
        }
        self.mail.post(Effect::Peer { to: to.osd, lane, msg });
    }

    /// A message to another copy.
    pub(in crate::pg) fn message(&self, to: PeerId, body: Bytes, data: Bytes) -> MPgPeer {
        let (spg, from) = (to.spg(self.env.spg().pg), self.env.spg().shard);
        MPgPeer { spg, from, epoch: self.epoch(), up_from: base::Epoch(0), body, data, sums: None }
    }

    pub(in crate::pg) fn handle_peer(&mut self, from: OsdId, m: &MPgPeer, turn: &mut Turn<'_>) {
        let from = PeerId { osd: from, shard: m.from };
        let dead =
            matches!(self.life.state(), State::Leaving | State::Deleting { .. } | State::Deleted | State::Stopped);
        if m.epoch < self.journal.info().history.same_interval_since
            || self.maps.newest().is_none()
            || dead
            || self.life.is_stopping()
        {
            tracing::debug!(pg = %self.env.spg(), %from, epoch = %m.epoch, "message of an older interval dropped");
            return;
        }
        let Some((m, body)) = self.decoded(from, m) else { return };
        if self.has_failed() {
            if self.peer_of_failed(from, &body) {
                tracing::info!(pg = %self.env.spg(), "removing this failed copy: the PG is clean without it");
                self.start_delete(turn);
            }
            return;
        }
        self.take_body(from, &m, body, turn);
    }

    /// Decodes a message, or, if this was its last piece, the message that came in pieces.
    #[inline]
    fn decoded<'a>(&mut self, from: PeerId, m: &'a MPgPeer) -> Option<(Cow<'a, MPgPeer>, Body)> {
        let body = match Body::of(m, self.env.cid()) {
            Ok(b) => b,
            Err(error) => {
                tracing::warn!(pg = %self.env.spg(), %from, %error, "a peer's message can't be decoded; ignored");
                return None;
            }
        };
        let Body::Piece { place, bytes } = body else { return Some((Cow::Borrowed(m), body)) };
        let (body, data) = self.take_piece(from, place, bytes)?;
        let m = MPgPeer { body, data, ..m.clone() };
        match Body::of(&m, self.env.cid()) {
            Ok(Body::Piece { .. }) | Err(_) => {
                tracing::warn!(pg = %self.env.spg(), %from, "a peer's message in pieces can't be decoded; ignored");
                None
            }
            Ok(b) => {
                if self.has_failed() || self.can_take(&b) {
                    self.heard(from, place);
                }
                Some((Cow::Owned(m), b))
            }
        }
    }

    fn is_from_primary(&self, from: PeerId) -> bool {
        self.maps.newest().is_some_and(|m| m.mapping.primary(self.is_coded()) == from)
    }

    /// Handles a message by its kind. A message from a copy that may not send it, or in another state, is ignored.
    #[inline]
    fn take_body(&mut self, from: PeerId, m: &MPgPeer, body: Body, turn: &mut Turn<'_>) {
        let leads = self.is_primary();
        let from_primary = self.is_from_primary(from);
        match body {
            Body::Query if from_primary => self.notify(from, turn.now),
            Body::GetLog { last_update, les, upto } if from_primary => {
                self.start_work(Work::Peering(PeeringWork::SendLog { to: from, last_update, les, upto }), None, turn);
            }
            Body::GetTouched { since } if from_primary && self.is_coded() => {
                self.start_work(Work::Peering(PeeringWork::SendTouched { to: from, since }), None, turn);
            }
            Body::Touched { since, upto, entries } if leads => {
                self.take_touched(from, Touched { since, upto, entries }, turn);
            }
            Body::Activate { les, since, reset, info, records } if from_primary => {
                self.take_activate(
                    Merge { from, les: Some(les), since, reset, info: *info, records, undo: false },
                    turn,
                );
            }
            Body::Rewind { since, records } if from_primary && !leads && self.is_coded() => {
                self.take_rewind(from, since, records, turn);
            }
            Body::Started { history, clean } if from_primary => self.interval_started(&history, clean, turn),
            Body::Write { first, seq, stable, trim, records, ops } if from_primary => {
                self.env.pacer().client(m.data.len(), turn.now.mono);
                let write = Write { seq, stable, trim, records, ops, received: turn.now.mono };
                self.take_write(from, first, write, (m.body.len(), m.data.len()), turn);
            }
            Body::Stable { seq } if from_primary => self.writes_stable(seq),
            Body::Backfilled { upto }
                if from_primary && self.peers.is_member() && upto > self.journal.info().last_backfill =>
            {
                self.peers.inflow.queue.push_back(Apply::Backfilled(upto));
            }
            Body::Remove if from_primary && !leads => self.remove_stray(turn),
            Body::Notify { info, absent, grants } if leads => {
                self.take_notify(from, info, absent, &grants, turn);
            }
            Body::Failed { errno } if leads => self.take_failed(from, errno, turn),
            Body::Log { since, info, records } if leads => self.take_log(from, since, *info, records, turn),
            Body::Activated { missing, frame } if leads => self.take_activated(from, missing, frame, turn),
            Body::WriteAck { seq } if leads => drop(self.take_ack(from, seq, turn)),
            Body::Heard { id, next } => self.take_heard(from, id, next),
            body => self.take_recovery_body(from, m, body, turn),
        }
    }

    /// Handles a message of recovery, of other shards' reads, or of a scrub.
    fn take_recovery_body(&mut self, from: PeerId, m: &MPgPeer, body: Body, turn: &mut Turn<'_>) {
        let leads = self.is_primary();
        let from_primary = self.is_from_primary(from);
        match body {
            Body::Pull { head, need, urgent } if from_primary => {
                self.env.meter().replication.pulls_in.add(1);
                self.start_push(from, head, Some((need, urgent)), turn);
            }
            Body::Scan { begin, end } if from_primary => {
                self.check_space_to_fill(turn.store);
                self.start_work(
                    Work::Recovery(RecoveryWork::Digest { to: from, range: Box::new((begin, end)) }),
                    None,
                    turn,
                );
            }
            Body::Push { id, n, last, background, head, ops } if from_primary || leads => {
                self.count_push(m.data.len(), leads, turn.now);
                self.take_push(from, id, n, last, background, head, ops);
            }
            Body::Lacks { objects } if leads => self.members_lost(from, objects, turn.now),
            Body::NoPull { head } if leads => self.no_pull(from, &head),
            Body::PushAck { id, n } => self.take_push_ack(from, id, n),
            Body::PushStop { id, n, again } => self.push_refused(from, id, n, again),
            Body::Digest { begin, end, objects } if leads => self.take_digest(from, &begin, end, objects),
            Body::ShardRead { id, n, seq, family, from: begin, items } if from_primary => {
                self.take_shard_read(ShardAsk { to: from, id, n, seq, family, from: begin, items });
            }
            Body::ShardData { id, n, family, more, found } if leads => {
                self.take_shard_data(from, id, n, family.map(|of| Page { of, more }), found);
            }
            Body::Have { heads } if from_primary => {
                self.start_work(Work::Recovery(RecoveryWork::Have { to: from, heads }), None, turn);
            }
            Body::Versions { versions } if leads => self.take_versions(from, versions, turn),
            Body::Reserve(m) => self.take_reserve(from, from_primary, leads, m, turn.now, turn.store),
            Body::Scrub(m) => self.take_scrub(from, from_primary, leads, *m, turn),
            _ => tracing::debug!(pg = %self.env.spg(), %from, "peer message ignored: wrong sender or state"),
        }
    }

    /// Merges the primary's log, to become a member.
    fn take_activate(&mut self, m: Merge, turn: &mut Turn<'_>) {
        if self.peers.is_member() && !self.is_becoming_member() {
            return self.send_activated(m.from, turn.store);
        }
        // Answered once what the first such message changed is durable.
        if self.peers.is_member() || self.peers.merging {
            return;
        }
        self.peers.merging = true;
        self.start_work(Work::Peering(PeeringWork::Merge(Box::new(m))), None, turn);
    }

    /// Rewinds the log of a stray shard to where it agrees with the primary's.
    fn take_rewind(&mut self, from: PeerId, since: Eversion, records: Vec<Bytes>, turn: &mut Turn<'_>) {
        let info = self.journal.info().clone();
        let merge = Merge { from, les: None, since, reset: false, info, records, undo: true };
        if *self.life.state() == State::Stray && !self.peers.merging {
            self.peers.merging = true;
            self.start_work(Work::Peering(PeeringWork::Merge(Box::new(merge))), None, turn);
        }
    }

    /// Counts the bytes of a push that arrived; `leads`: they recover an object of the primary.
    fn count_push(&mut self, bytes: usize, leads: bool, now: Now) {
        self.env.pacer().charge(Class::Recovery, bytes, now.mono);
        self.env.meter().replication.pushes_in.add(1);
        self.env.meter().replication.push_bytes_in.add(bytes as u64);
        if leads {
            self.report.count_recovered(bytes as u64, 0);
            self.env.meter().replication.recovered_bytes.add(bytes as u64);
        }
    }

    /// True if everything of older intervals is durable here. Other writes may still be lost. Neither this copy nor
    /// others may rely on them, or they would wait for objects that no copy has.
    pub(in crate::pg) fn is_settled(&self) -> bool {
        self.journal.is_past_settle_point()
    }

    /// Sends this copy's info to a primary, once it is settled.
    pub(in crate::pg) fn notify(&mut self, to: PeerId, now: Now) {
        if !self.is_settled() {
            return;
        }
        let grants = self
            .peers
            .granted
            .iter()
            .filter(|(_, until)| **until > now.mono)
            .map(|(o, until)| {
                (*o, u32::try_from((*until - now.mono).as_millis()).unwrap_or(u32::MAX).saturating_add(1))
            })
            .collect();
        let b = Body::Notify { info: Box::new(self.journal.info().clone()), absent: false, grants };
        self.send_to(to, &b);
    }

    /// Remembers at the end of the interval which members may rely on leases of this OSD. Nobody does in an interval in
    /// which this copy was not activated: a PG serves once all members are.
    pub(in crate::pg) fn remember_grants(&mut self, now: Now) {
        self.drop_grants(now);
        let begins = matches!(
            self.life.state(),
            State::Loading
                | State::Creating
                | State::Stray
                | State::Inactive(_)
                | State::Down(_)
                | State::GetInfo
                | State::GetLog { .. }
                | State::WaitUpThru { .. }
                | State::Activating { .. }
        );
        if begins && !self.peers.is_member() {
            return;
        }
        for o in self.acting_set().osds() {
            if let Some(until) = self.env.leases().granted_until(o).filter(|_| o != self.env.whoami()) {
                self.peers.granted.raise(o, until);
            }
        }
    }

    /// Forgets leases that have ended, and those of processes that have.
    pub(in crate::pg) fn drop_grants(&mut self, now: Now) {
        if self.peers.granted.is_empty() {
            return;
        }
        let osds = self.maps.newest().map(|m| m.osds.clone());
        self.peers.granted.retain(|o, until| *until > now.mono && !osds.as_ref().is_some_and(|m| m.is_dead(*o)));
    }

    /// Learns that the interval has started, and so that the primary knows of no lease of an older one that lasts.
    /// A primary of an earlier build says so before it has waited for them.
    fn interval_started(&mut self, history: &PgHistory, clean: bool, turn: &mut Turn<'_>) {
        if !self.peers.is_member() {
            return;
        }
        if !self.peers.serves {
            self.mark_log_safe();
        }
        self.peers.serves = true;
        if self.understands(self.primary(), PeerFeatures::STARTS) {
            self.peers.granted.clear();
        }
        self.journal.merge_history(history);
        if clean {
            self.journal.forget_past();
        }
        self.start_work(Work::Life(LifeWork::SaveInfo), None, turn);
    }

    /// Resends everything that an OSD has not answered, after a reset of the session.
    pub(in crate::pg) fn handle_peer_reset(&mut self, osd: OsdId, now: Now) {
        self.places_reset(osd);
        let is_member = self.peers.members.keys().any(|p| p.osd == osd);
        if self.peers.retry_at.is_some() || is_member || !self.recovery.pushes().is_empty() {
            self.send_again(Some(osd));
        }
        let primary = self.maps.newest().map(|m| m.mapping.primary(self.is_coded()));
        let holds = matches!(self.life.state(), State::Stray | State::ReplicaActive);
        if let Some(primary) = primary.filter(|p| holds && p.osd == osd) {
            if let Some(f) = &mut self.peers.follower {
                let seq = f.durable_write;
                f.owes = false;
                self.send_to(primary, &Body::WriteAck { seq });
            } else {
                self.notify(primary, now);
            }
        }
    }

    /// Resends everything unanswered, to one OSD or to all.
    pub(in crate::pg) fn send_again(&mut self, only: Option<OsdId>) {
        let to = |o: PeerId| only.is_none_or(|x| x == o.osd);
        // First of all: a member reports what it lacks before it acknowledges writes.
        let mut messages: Vec<(PeerId, (Bytes, Bytes))> = self.unheard_pieces();
        messages.retain(|(o, _)| to(*o));
        self.ask_again(only, &mut messages);
        let reset = only.is_some();
        let members: SmallVec<[PeerId; 4]> = self.peers.members.keys().copied().filter(|o| to(*o)).collect();
        for o in &members {
            messages.extend(self.writes_again(*o, reset).into_iter().map(|m| (*o, m)));
        }
        for (o, m) in self.peers.members.iter().filter(|(o, _)| to(**o)) {
            if let Some(a) = &m.activate {
                messages.push((*o, a.clone()));
            }
            if let Some((begin, end)) = m.backfill.as_ref().and_then(|b| b.asked()) {
                messages.push((*o, Body::Scan { begin: begin.clone(), end: end.clone() }.encode()));
            }
        }
        // In an erasure-coded PG deferred writes don't matter here.
        let none = self.is_coded() || self.peers.unacked.is_empty();
        let quiet = only.is_none() && none && self.stable_at_members() == self.peers.seq;
        if quiet && self.peers.told_stable < self.peers.seq {
            let seq = self.peers.seq;
            self.peers.told_stable = seq;
            messages.extend(self.peers.members.keys().map(|o| (*o, Body::Stable { seq }.encode())));
        }
        if only.is_some() && self.peers.told_stable > 0 {
            let stable = Body::Stable { seq: self.peers.told_stable.min(self.stable_at_members()) }.encode();
            messages.extend(self.peers.members.keys().filter(|o| to(**o)).map(|o| (*o, stable.clone())));
        }
        for (head, p) in self.recovery.pulls() {
            if let Some(o) = p.source.filter(|o| to(*o)) {
                let urgent = self.recovery.is_urgent(head);
                let need = if self.recovery.is_given_up(head) { Eversion::default() } else { p.need };
                messages.push((o, Body::Pull { head: head.clone(), need, urgent }.encode()));
            }
        }
        messages.extend(self.parts_sent().filter(|(o, _)| to(*o) && !self.is_sent_again(*o)));
        messages.extend(self.unanswered_places().into_iter().filter(|(o, _)| to(*o)).map(|(o, b)| (o, b.encode())));
        messages.extend(self.unanswered_lost().into_iter().filter(|(o, _)| to(*o)).map(|(o, b)| (o, b.encode())));
        messages.extend(self.scrub.unanswered().filter(|(o, _)| to(*o)));
        messages.extend(self.unanswered_reads().into_iter().filter(|(o, _)| to(*o)));
        for (o, m) in messages {
            self.send_encoded(o, m);
        }
        if only.is_none() && self.is_coded() {
            self.send_deferred();
        }
    }

    /// Repeats the questions of peering, and requests to the monitor.
    fn ask_again(&mut self, only: Option<OsdId>, messages: &mut Vec<(PeerId, (Bytes, Bytes))>) {
        let to = |o: PeerId| only.is_none_or(|x| x == o.osd);
        match self.life.state() {
            State::Failed(_) if only.is_none() => self.say_failed(),
            State::GetInfo | State::Down(_) | State::Inactive(_) => {
                for o in self.peers.prior.probe.iter().filter(|o| to(**o) && **o != self.me()) {
                    if !self.peers.known.contains_key(o) {
                        messages.push((*o, Body::Query.encode()));
                    }
                }
                if let Some((o, since, _)) = self.ec.open_question().filter(|a| to(a.0)) {
                    messages.push((o, Body::GetTouched { since }.encode()));
                }
                if only.is_none()
                    && let Some(want) = self.peers.want.clone()
                {
                    self.mail.post(Effect::WantPgTemp(want));
                }
            }
            _ if only.is_none() && self.waits_without_failed() => {
                let want = self.peers.want.clone().unwrap_or_default();
                self.mail.post(Effect::WantPgTemp(want));
            }
            State::GetLog { auth, .. } if to(*auth) => messages.push((*auth, self.log_wanted().encode())),
            _ => {}
        }
    }

    /// True if a message needs an answer, so that it must be repeated.
    fn awaits(&self) -> bool {
        let (p, r) = (&self.peers, &self.recovery);
        if p.inflow.stuck || r.reservation().awaits() || self.asks_for_lost() || p.pieces.awaits() {
            return true;
        }
        match self.life.state() {
            State::GetInfo | State::Down(_) | State::Inactive(_) | State::GetLog { .. } | State::Activating { .. } => {
                self.is_primary()
            }
            State::Quiesced => true,
            // The monitor may need several requests for another acting set.
            State::Failed(_) => self.is_primary() && !self.peers.store_lost && !self.life.is_stopping(),
            _ => {
                !p.unacked.is_empty()
                    || p.told_stable < p.seq
                    || self.waits_without_failed()
                    || !r.pulls().is_empty()
                    || r.lacks_unfound()
                    || !r.pushes().is_empty()
                    || self.ec.has_questions()
                    || self.scrub.asks()
                    || p.members.values().any(|m| m.backfill.as_ref().is_some_and(|b| b.asked().is_some()))
            }
        }
    }

    /// Sets or clears the time of the next repetition.
    pub(in crate::pg) fn arm_retry(&mut self, now: Now) {
        let p = &self.peers;
        if p.retry_at.is_some() && !p.unacked.is_empty() && *self.life.state() == State::Active {
            // The most frequent case: writes are in flight.
            debug_assert!(self.awaits(), "members are to answer");
            return;
        }
        if !self.awaits() {
            self.peers.retry_at = None;
        } else if self.peers.retry_at.is_none() {
            // Spread, so that not all PGs of an OSD repeat at once.
            let jitter = std::time::Duration::from_millis(self.env.seed() % 1000);
            self.peers.retry_at = Some(now.mono + PEER_RETRY + jitter);
        }
    }

    /// Repeats unanswered messages, if their time has come.
    pub(in crate::pg) fn retry_peers(&mut self, now: Now) {
        if self.peers.retry_at.is_some_and(|t| t <= now.mono) {
            self.peers.retry_at = None;
            self.peers.inflow.stuck = false;
            self.send_again(None);
            self.notify_ready();
        }
    }
}
