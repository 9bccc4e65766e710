//! The path of an operation: caps, its PG, and the outcome; and back, from the store's events to the answer.
//!
//! Invariant: an operation is answered, held by a PG, parked for a map or a PG's creation, or dropped because
//! its client will resend it elsewhere.
//!
//! Tests: `tests/pgs/main.rs`.

use super::{Input, Output, Pgs, Ready, StoreNews};
use crate::core::control::Report;
use crate::core::session::SessionInfo;
use base::errno::{EAGAIN, EBLOCKLISTED, EBUSY, EINVAL, Errno};
use base::ledger::Ledger;
use base::{EntityAddr, Now, PgId, SpgId};
use pg::{Effect, Event, OpRequest, Pg, SessionId, op_access};
use std::sync::Arc;
use store::{Health, ObjectStore};
use wire::msg::{MOsdOp, MOsdOpReply, OsdOp, msg_flags};

impl Pgs {
    /// Begins to prefetch the machine of a PG for an announced message. Announcing several messages before
    /// handling the first overlaps their memory accesses.
    pub fn prefetch(&self, pg: PgId) {
        if let Some(pg) = self.by_pg.of(pg).next().and_then(|i| self.pgs.get(i)) {
            pg.prefetch();
        }
    }

    /// Like [`Pgs::prefetch`], for an event of the store.
    pub fn prefetch_event(&self, e: &store::Event) {
        if let Some(pg) = e.tag().and_then(|t| self.pgs.get(Pg::index_of(t))) {
            pg.prefetch();
        }
    }

    /// Handles a client's operation: checks caps, then passes it to its PG.
    pub fn op(&mut self, s: &Arc<SessionInfo>, mut m: Box<MOsdOp>, now: Now, store: &mut dyn ObjectStore) {
        m.reqid = super::rights::own_reqid(s, m.reqid);
        self.stats.count_op();
        let access = op_access(&m);
        let bytes = m.ops.iter().map(|o| o.indata.len()).sum::<usize>();
        self.pacing.pacer().client(bytes, now.mono);
        if access.malformed {
            return self.refuse(s, &m, EINVAL);
        }
        if m.osdmap_epoch > self.epoch() {
            // The newer map determines the PG, its reactor, and the client's rights.
            if !s.caps.may_anywhere(access.read, access.write, &s.principal.socket_addr()) {
                // No map can change this refusal.
                return self.deny(s, &m);
            }
            self.report(Report::WantMap(m.osdmap_epoch));
            return self.park(s, m);
        }
        if !s.caps.is_allow_all() && !self.may(s, &m, &access) {
            return self.deny(s, &m);
        }
        if self.is_fenced(s) {
            return self.refuse(s, &m, EBLOCKLISTED);
        }
        self.route(s, m, now, store);
    }

    /// True if the client announces another IP address than that of its socket, and the socket's is blocklisted. PGs
    /// compare the announced one.
    fn is_fenced(&self, s: &SessionInfo) -> bool {
        let ip = s.principal.socket.ip().to_canonical();
        if s.addr.sock.is_some_and(|a| a.ip().to_canonical() == ip) {
            return false;
        }
        let here = EntityAddr { sock: Some(std::net::SocketAddr::new(ip, s.principal.socket.port())), ..s.addr };
        self.newest_map().is_some_and(|m| m.is_blocklisted(&here))
    }

    /// Handles an operation that waited for a map or a PG.
    pub(super) fn unpark(&mut self, s: &Arc<SessionInfo>, m: Box<MOsdOp>, now: Now, store: &mut dyn ObjectStore) {
        if m.osdmap_epoch > self.epoch() {
            return self.park(s, m);
        }
        if !s.caps.is_allow_all() && !self.may(s, &m, &op_access(&m)) {
            return self.deny(s, &m);
        }
        if self.is_fenced(s) {
            return self.refuse(s, &m, EBLOCKLISTED);
        }
        self.route(s, m, now, store);
    }

    pub(super) fn park(&mut self, s: &Arc<SessionInfo>, m: Box<MOsdOp>) {
        self.stats.count_delayed();
        if let Some(closed) = self.parked.push_op(s, m) {
            let (name, socket) = (&closed.principal.name, closed.principal.socket);
            tracing::warn!(client = %closed.entity, %name, %socket, "too many operations wait for a map; session closed");
            self.out.push_back(Output::Close(closed.id));
        }
    }

    pub(super) fn refuse(&mut self, s: &SessionInfo, m: &MOsdOp, errno: Errno) {
        let reply = MOsdOpReply {
            tid: m.tid,
            oid: m.oid.clone(),
            pgid: m.pgid.pg,
            flags: u64::from(m.flags | msg_flags::ACK | msg_flags::ONDISK),
            result: errno,
            osdmap_epoch: self.epoch(),
            ops: m.ops.iter().map(|o| OsdOp { indata: Default::default(), ..o.clone() }).collect(),
            retry_attempt: m.retry_attempt,
            trace: m.trace,
            ..MOsdOpReply::default()
        };
        self.out.push_back(Output::Reply(s.id, Box::new(reply)));
    }

    pub(super) fn route(&mut self, s: &Arc<SessionInfo>, m: Box<MOsdOp>, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        if let Some(i) = self.by_pg.get(m.pgid)
            && let Some(pg) = self.pgs.get_mut(i).filter(|p| !p.is_deleting())
        {
            let req = OpRequest {
                session: s.id,
                owner: s.owner,
                client: s.entity,
                addr: s.addr,
                features: s.features.0,
                received: now,
                ledger: Ledger::begin(now.mono, now.wall, m.mtime),
                msg: m,
            };
            pg.handle(Event::Op(Box::new(req)), now, store, &mut self.effects);
            return self.take_effects(i);
        }
        if !self.places.is_here(m.pgid) {
            return self.out.push_back(Output::Reactor(self.places.of(m.pgid), Input::Op(s.clone(), m)));
        }
        let pg = m.pgid.pg;
        let led_here = self.is_walking()
            || self.current.map().is_some_and(|map| {
                map.pool(pg.pool).is_some_and(|p| pg.seed < p.pg_num)
                    && map.pg_to_up_acting(pg).acting_primary == self.whoami()
            });
        if led_here {
            return self.park(s, m);
        }
        if m.flags & (msg_flags::BALANCE_READS | msg_flags::LOCALIZE_READS) != 0 {
            // A member without a copy yet: no map would make the client ask another OSD.
            return self.refuse(s, &m, EAGAIN);
        }
        // Another OSD serves it: the client will resend it with the map it is about to get.
        self.stats.count_misdirected();
        self.out.push_back(Output::Dropped(s.id, m.tid, None));
    }

    /// Number and bytes of the operations that wait for a newer map or for their PG's creation.
    #[must_use]
    pub fn waiting(&self) -> (usize, usize) {
        self.parked.figures_of_ops()
    }

    /// Handles the end of a client's session.
    pub fn session_closed(&mut self, id: SessionId, now: Now, store: &mut dyn ObjectStore) {
        self.parked.forget_session(id);
        let know: Vec<u32> = self.pgs.iter().filter(|(_, p)| p.knows_session(id)).map(|(i, _)| i).collect();
        for i in know {
            self.feed_pg(i, Event::SessionClosed(id), now, store);
        }
    }

    /// Handles an event of the store. Returns what of it is not a PG's.
    pub fn store_event(&mut self, e: store::Event, now: Now, store: &mut dyn ObjectStore) -> Option<StoreNews> {
        let (tag, result) = match &e {
            store::Event::Health(Health::Failed { errno, what }) => {
                return Some(StoreNews::Failed(*errno, what.clone()));
            }
            store::Event::Health(_) => return None,
            store::Event::Ready(tag) => (*tag, Ok(())),
            store::Event::Durable(tag, r) => (*tag, *r),
        };
        let i = Pg::index_of(tag);
        if i == 0 {
            return Some(StoreNews::Own(tag, result));
        }
        if !self.sweep_event(i, Some(&e), now, store) {
            self.feed_pg(i, Event::Store(e), now, store);
        }
        None
    }

    pub(super) fn report(&mut self, r: Report) {
        self.out.push_back(Output::Control(r));
    }

    pub(super) fn feed_pg(&mut self, i: u32, e: Event, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        if let Some(pg) = self.pgs.get_mut(i) {
            pg.handle(e, now, store, &mut self.effects);
        }
        self.after_pg(i, now, store);
    }

    /// Carries out the effects of a PG's input, and what follows from them for other PGs.
    pub(super) fn after_pg(&mut self, i: u32, now: Now, store: &mut dyn ObjectStore) {
        self.take_effects(i);
        self.deliver_born(now, store);
        if self.services.reserver().has_any_news() {
            self.wake_reserved(now, store);
        }
    }

    pub(super) fn handle_in_pg(&mut self, i: u32, e: Event, now: Now, store: &mut dyn ObjectStore) {
        if let Some(pg) = self.pgs.get_mut(i) {
            pg.handle(e, now, store, &mut self.effects);
            self.take_effects(i);
        }
    }

    pub(super) fn take_effects(&mut self, i: u32) {
        if self.effects.is_empty() {
            return;
        }
        let mut effects = std::mem::take(&mut self.effects);
        for e in effects.drain(..) {
            match e {
                Effect::Close(s) => self.out.push_back(Output::Close(s)),
                Effect::Reply(s, r) => {
                    let bytes = r.ops.iter().map(OsdOp::out_len).sum::<usize>();
                    self.pacing.pacer().bytes(bytes);
                    if r.result == EBUSY {
                        self.stats.note_refused(r.pgid.pool, &r.oid, self.now.mono);
                    }
                    self.out.push_back(Output::Reply(s, r));
                }
                Effect::Watch(s, w, d) => self.out.push_back(Output::Watch(s, w, d)),
                Effect::Backoff(s, b) => self.out.push_back(Output::Backoff(s, b)),
                Effect::Dropped(s, tid) => self.out.push_back(Output::Dropped(s, tid, None)),
                Effect::Acknowledge => self.pgs.owe(i),
                Effect::WantUpThru(e) => self.report(Report::WantUpThru(e)),
                Effect::WantMap(e) => self.report(Report::WantMap(e)),
                Effect::WantPgTemp(acting) => {
                    if let Some(p) = self.pgs.get(i) {
                        self.report(Report::WantPgTemp(p.spg().pg, acting));
                    }
                }
                Effect::Peer { to, lane, msg } => self.send_peer(to, lane, msg),
                Effect::Log(level, text) => self.report(Report::Log(level, text)),
                Effect::Members => self.note_members(),
                Effect::Created => {
                    if let Some(p) = self.pgs.get(i) {
                        self.report(Report::Created(p.spg().pg));
                    }
                }
                Effect::Fetch(f) => {
                    if let Some(p) = self.pgs.get(i) {
                        self.out.push_back(Output::Fetch(p.spg().pg, f));
                    }
                }
                Effect::Move(m) => self.move_effect(i, m),
                Effect::Split(parts) => self.resizes.add_born(parts),
                Effect::SplitFailed(parts, errno) => self.resizes.add_failed(parts, errno),
                Effect::Merge { to, msg } => {
                    if let Some(p) = self.pgs.get(i) {
                        self.resizes.push_message(p.spg(), to, Box::new(msg));
                    }
                }
                Effect::ReadyToMerge { version, last_epoch_started, last_epoch_clean } => {
                    if let Some(p) = self.pgs.get(i) {
                        let epoch = p.epoch();
                        let r = Ready { epoch, version, last_epoch_started, last_epoch_clean };
                        self.report(Report::ReadyToMerge(p.spg().pg, r));
                    }
                }
                // The answer will find no plan and be dropped.
                Effect::CancelFetch(_) => {}
                Effect::Deleted | Effect::Stopped => self.remove_pg(i),
                // A failed store reports its failure itself.
                Effect::Failed(_) => self.pg_failed(i),
                Effect::CopyFailed(errno) => {
                    if let Some(p) = self.pgs.get(i) {
                        self.out.push_back(Output::PgFailed(p.spg().pg, errno));
                    }
                    self.pg_failed(i);
                }
            }
        }
        self.effects = effects;
    }

    /// Removes a PG that was deleted or has stopped. Messages that it held are handled anew.
    fn remove_pg(&mut self, i: u32) {
        if let Some(p) = self.pgs.remove(i) {
            self.forget(p.spg(), i);
            self.orphans.note_left(p.into_held_messages());
        }
        self.note_members();
        self.check_stopped();
    }

    /// A PG that failed counts as stopped when the OSD stops.
    fn pg_failed(&mut self, i: u32) {
        if self.stage.is_stopping()
            && let Some(p) = self.pgs.remove(i)
        {
            self.forget(p.spg(), i);
            self.check_stopped();
        }
    }

    pub(super) fn forget(&mut self, spg: SpgId, i: u32) {
        if self.by_pg.get(spg) == Some(i) {
            self.by_pg.remove(spg);
        }
        self.resizes.forget(spg, i);
    }
}
