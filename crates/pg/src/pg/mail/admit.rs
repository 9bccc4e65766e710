//! Admission of an operation before it is planned. The operation is dropped, refused (that of a blocklisted client, by
//! its session's address in `osd::core::pgs::ops`), started, or held: for a map, for peering, by a flag that pauses the
//! cluster, behind earlier ones of its session, or for the leases of other members, which are checked here.

use crate::effect::Effect;
use crate::event::{OpRequest, SessionId};
use crate::exec::{OpAccess, op_access};
use crate::limits::{NAMESPACE_LEN_MAX, OBJECT_NAME_LEN_MAX, OPS_PER_VECTOR_MAX, WRITE_SIZE_MAX};
use crate::map::{MapView, PoolView, map_flags, pool_flags};
use crate::pg::journal::action::Kind;
use crate::pg::ops::plan::Plan;
use crate::pg::ops::work::Work;
use crate::pg::{Pg, State, Turn};
use base::errno::{EAGAIN, EBLOCKLISTED, EINVAL, EIO, EMSGSIZE, ENAMETOOLONG, EOPNOTSUPP, Errno};
use base::ledger::Cause;
use base::planted::{Bug, acts};
use base::{HObject, Now, SnapId};
use bytes::Bytes;
use cluster::pool::{pg_mask, stable_mod};
use wire::msg::{OpCode, msg_flags};

/// Most operations of a vector that reads without a lock, for a copy to another object.
const BYPASS_OPS_MAX: usize = 4;

impl Pg {
    pub(in crate::pg) fn handle_op(&mut self, mut req: Box<OpRequest>, turn: &mut Turn<'_>) {
        req.ledger.pass(turn.now.mono);
        if is_for_any(&req) && !self.is_primary() && req.msg.osdmap_epoch <= self.epoch() {
            return self.handle_replica_read(req, turn);
        }
        match self.life.state() {
            State::Active if !self.life.is_stopping() => {}
            State::Leaving | State::Deleting { .. } | State::Deleted | State::Stopped | State::Failed(_) => {
                return self.drop_op(&req, "gone", turn.out);
            }
            _ if self.life.is_stopping() => return self.drop_op(&req, "stopping", turn.out),
            State::Stray | State::ReplicaActive
                if self.maps.newest().is_some_and(|m| m.epoch >= req.msg.osdmap_epoch) =>
            {
                return self.drop_op(&req, "another OSD leads", turn.out);
            }
            // An operation sent under a newer map is held, since that map may let the PG serve.
            _ => {
                let backed_off = req.msg.osdmap_epoch <= self.epoch() && self.back_off(&req, turn.out);
                if !backed_off {
                    self.hold(req, Cause::Peering, turn.out);
                }
                return;
            }
        }
        let Some(map) = self.maps.newest() else { return self.hold(req, Cause::Peering, turn.out) };
        let Some(pool) = map.pool.clone() else { return self.drop_op(&req, "no pool", turn.out) };
        if req.msg.osdmap_epoch > map.epoch {
            return self.hold(req, Cause::Peering, turn.out);
        }
        if req.msg.osdmap_epoch < pool.last_force_resend {
            return self.drop_op(&req, "older than the pool's last forced resend", turn.out);
        }
        if req.msg.pgid != self.env.spg()
            || stable_mod(req.msg.hash, pool.pg_num, pg_mask(pool.pg_num)) != self.env.spg().pg.seed
        {
            return self.drop_op(&req, "object of another PG", turn.out);
        }
        let access = op_access(&req.msg);
        if !self.maps.others().is_empty() && !self.leases_last(turn.now) && !acts(Bug::ReadWithoutLease) {
            // Without leases the other members may be in a newer interval; operations wait in order.
            self.mail.waits_for_lease = true;
            return self.hold(req, Cause::Lease, turn.out);
        }
        let paused = map.flags & map_flags::PAUSERD != 0 && !access.may_write()
            || map.flags & map_flags::PAUSEWR != 0 && access.may_write();
        // A write waits behind what its session had asked for before and is held, in this order.
        let behind = writes(&req, &access) && self.mail.held().holds(req.session, req.msg.hash);
        if paused || behind {
            return self.hold(req, if paused { Cause::Paused } else { Cause::Lock }, turn.out);
        }
        if let Some(errno) = refusal(map, &pool, &req, &access) {
            tracing::debug!(pg = %self.env.spg(), client = %req.client, errno, "operation refused");
            return self.reply_error(&mut req, errno, Kind::of(&access), turn);
        }
        let head = (!access.pg_op).then(|| head_of(&req));
        // A copy by an OSD has two operations. Many on an unlocked object might begin anew without end.
        let bypass = req.msg.ops.len() <= BYPASS_OPS_MAX
            && req.msg.ops.iter().any(|o| o.op == OpCode::COPY_GET)
            && !access.may_write();
        let excl = writes(&req, &access);
        let mut plan = Plan::new(self.new_plan_id(), Work::Client(req, access), head, excl);
        plan.bypass = bypass;
        self.start(plan, turn);
    }

    /// Refuses a plan whose client was blocklisted while it waited: nothing of that client may take effect after this
    /// map. Returns any other plan.
    pub(in crate::pg) fn refuse_blocklisted(&mut self, mut plan: Box<Plan>, turn: &mut Turn<'_>) -> Option<Box<Plan>> {
        let map = self.maps.newest().filter(|m| !m.blocklist.is_empty());
        let Work::Client(req, access) = &mut plan.work else { return Some(plan) };
        if map.is_none_or(|m| !m.blocklist.contains(&req.addr)) {
            return Some(plan);
        }
        self.reply_error(req, EBLOCKLISTED, Kind::of(access), turn);
        if plan.copy.is_some() {
            turn.out.push(Effect::CancelFetch(plan.fetch_id()));
        }
        turn.store.release(self.tag(plan.id));
        self.unlock(&plan);
        None
    }

    pub(in crate::pg) fn drop_op(&mut self, req: &OpRequest, why: &str, out: &mut Vec<Effect>) {
        self.drop_of(req.session, req.msg.tid, out);
        tracing::debug!(pg = %self.env.spg(), client = %req.client, tid = req.msg.tid, why, "operation dropped");
    }

    /// Holds an operation until the map or the PG's state changes.
    fn hold(&mut self, mut req: Box<OpRequest>, why: Cause, out: &mut Vec<Effect>) {
        req.ledger.wait(why);
        let epoch = req.msg.osdmap_epoch;
        if epoch > self.epoch() && epoch > self.mail.wanted_map {
            self.mail.wanted_map = epoch;
            out.push(Effect::WantMap(epoch));
        }
        let full = self.mail.hold(req);
        self.close_sessions(full, out);
    }

    /// Closes the sessions with the most held operations, after a limit was exceeded.
    pub(in crate::pg) fn close_sessions(&mut self, sessions: Vec<SessionId>, out: &mut Vec<Effect>) {
        if !sessions.is_empty() {
            tracing::warn!(pg = %self.env.spg(), sessions = sessions.len(), "too many operations wait; the sessions with the most are closed, and their clients resend");
            out.extend(sessions.into_iter().map(Effect::Close));
        }
    }

    /// Handles a client's read with BALANCE_READS or LOCALIZE_READS on a replica. The replica serves it only if it
    /// reads what the primary would: the object is here, no write to it is unacknowledged, and all leases last.
    /// Otherwise it answers `EAGAIN`, and the client asks the primary.
    fn handle_replica_read(&mut self, mut req: Box<OpRequest>, turn: &mut Turn<'_>) {
        let access = op_access(&req.msg);
        let map = self.maps.newest();
        let blocked = map.is_some_and(|m| !m.blocklist.is_empty() && m.blocklist.contains(&req.addr));
        let plain = map.is_some_and(|m| m.flags & map_flags::PAUSERD == 0)
            && self.pool().is_some_and(|p| {
                !p.has(pool_flags::EIO)
                    && req.msg.osdmap_epoch >= p.last_force_resend
                    && stable_mod(req.msg.hash, p.pg_num, pg_mask(p.pg_num)) == self.env.spg().pg.seed
            });
        // Only the primary has watches.
        let watches = req.msg.ops.iter().any(|o| matches!(o.op, OpCode::WATCH | OpCode::NOTIFY | OpCode::NOTIFY_ACK));
        let reads = !access.may_write() && !access.pg_op && req.msg.flags & msg_flags::RWORDERED == 0 && !watches;
        if plain && reads && !blocked && refuse(&req, &access).is_none() {
            let head = head_of(&req);
            if self.may_read_here(&head, turn.now) {
                let plan = Plan::new(self.new_plan_id(), Work::Client(req, access), Some(head), false);
                return self.start(plan, turn);
            }
        }
        let kind = Kind::of(&access);
        self.reply_error(&mut req, EAGAIN, kind, turn);
    }

    /// True if this replica may serve a read of the object: its version is the newest, and acknowledged.
    pub(in crate::pg) fn may_read_here(&self, head: &HObject, now: Now) -> bool {
        *self.life.state() == State::ReplicaActive
            // Only the primary reconstructs objects from shards.
            && !self.is_coded()
            && !self.life.is_stopping()
            && *head <= self.journal.info().last_backfill
            && !self.recovery.missing().contains_key(head)
            && !self.peers.is_unstable(head)
            && self.peers.serves()
            && self.leases_last(now)
    }

    /// True if every other member's lease lasts, so that none takes part in a newer interval.
    fn leases_last(&self, now: Now) -> bool {
        let epoch = self.epoch();
        self.maps.others().iter().all(|o| self.env.leases().held_until(*o, epoch).is_some_and(|until| until > now.mono))
    }

    /// Takes up held operations after leases were renewed.
    pub(in crate::pg) fn retry_leases(&mut self, turn: &mut Turn<'_>) {
        self.mail.waits_for_lease = false;
        self.retry_held(turn);
    }

    /// Admits held operations again, in order.
    pub(in crate::pg) fn retry_held(&mut self, turn: &mut Turn<'_>) {
        for req in self.mail.take_held() {
            self.handle_op(req, turn);
        }
    }
}

/// The errno with which an operation is answered at once.
#[inline]
fn refusal(map: &MapView, pool: &PoolView, req: &OpRequest, access: &OpAccess) -> Option<Errno> {
    if !map.blocklist.is_empty() && map.blocklist.contains(&req.addr) {
        Some(EBLOCKLISTED)
    } else if pool.has(pool_flags::EIO) {
        Some(EIO)
    } else {
        refuse(req, access)
    }
}

/// True for a read that the client may send to any member. A member that can't serve it must answer, since no newer
/// map would redirect the client.
pub(in crate::pg) fn is_for_any(req: &OpRequest) -> bool {
    req.msg.flags & (msg_flags::BALANCE_READS | msg_flags::LOCALIZE_READS) != 0
}

/// True for writes, and for reads with RWORDERED, which are ordered like writes.
fn writes(req: &OpRequest, access: &OpAccess) -> bool {
    access.may_write() || req.msg.flags & msg_flags::RWORDERED != 0
}

/// The errno for an operation that is invalid in itself.
fn refuse(req: &OpRequest, a: &OpAccess) -> Option<Errno> {
    let m = &req.msg;
    if a.malformed || m.ops.len() > OPS_PER_VECTOR_MAX || m.flags & msg_flags::PARALLELEXEC != 0 {
        return Some(EINVAL);
    }
    if m.oid.len() > OBJECT_NAME_LEN_MAX
        || m.locator.key.len() > OBJECT_NAME_LEN_MAX
        || m.locator.nspace.len() > NAMESPACE_LEN_MAX
    {
        return Some(ENAMETOOLONG);
    }
    if !a.pg_op && m.oid.is_empty() {
        return Some(EINVAL);
    }
    if a.classes.iter().any(|c| c.unknown) {
        return Some(EOPNOTSUPP);
    }
    if a.may_write() {
        if m.snapid != SnapId::HEAD {
            return Some(EINVAL);
        }
        if m.ops.iter().map(|o| o.indata.len()).sum::<usize>() > WRITE_SIZE_MAX {
            return Some(EMSGSIZE);
        }
    }
    // A parked vector keeps one source: with two, each would evict the other's content for ever.
    if m.ops.iter().filter(|o| matches!(o.op, OpCode::COPY_FROM | OpCode::COPY_FROM2)).count() > 1 {
        return Some(EINVAL);
    }
    // The snapdir only supports LIST_SNAPS, and LIST_SNAPS only the snapdir.
    let lists = m.ops.iter().filter(|o| o.op == OpCode::LIST_SNAPS).count();
    let wanted = if m.snapid == SnapId::SNAPDIR { m.ops.len() } else { 0 };
    (!a.pg_op && lists != wanted).then_some(EINVAL)
}

/// Head of the object that an operation addresses.
fn head_of(req: &OpRequest) -> HObject {
    let m = &req.msg;
    HObject {
        oid: m.oid.clone(),
        // A locator key equal to the name counts as none.
        key: if m.locator.key == m.oid { Bytes::new() } else { m.locator.key.clone() },
        nspace: m.locator.nspace.clone(),
        snap: SnapId::HEAD,
        hash: m.hash,
        max: false,
        pool: m.pgid.pg.pool,
    }
}
