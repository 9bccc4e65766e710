//! POOLOP messages: pools and snapshots outside the command interface, for older calls of librados and for librbd.

use std::sync::Arc;

use base::{Epoch, PoolId, SnapId, errno};
use bytes::Bytes;
use cluster::caps::{Need, OsdCaps};
use cluster::pool::{PoolSnap, flag};
use serde_json::json;
use wire::msg::{MPoolOp, MPoolOpReply, pool_op};
use wire::types::PaxosHeader;
use wire::{Encode, Features, Message, WireMessage};

use crate::command::{self, When};
use crate::core::MonCore;
use crate::core::propose::waiter::Waiter;
use crate::state::access::Access;
use crate::state::{ConnKey, Role};

/// Longest name of a pool or snapshot, in bytes.
const MAX_NAME: usize = 2048;

impl MonCore {
    pub(in crate::core) fn pool_op(&mut self, c: ConnKey, message: Message, m: &MPoolOp) {
        let tid = message.header.tid;
        if m.fsid != self.state.fsid {
            return;
        }
        if m.name.len() > MAX_NAME {
            return self.answer_pool_op(c, tid, errno::ENAMETOOLONG, None);
        }
        if !self.may_pool_op(c, m) {
            return self.answer_pool_op(c, tid, errno::EPERM, None);
        }
        match m.op {
            pool_op::CREATE | pool_op::DELETE => self.pool_by_command(c, message, m),
            pool_op::CREATE_SNAP
            | pool_op::DELETE_SNAP
            | pool_op::CREATE_UNMANAGED_SNAP
            | pool_op::DELETE_UNMANAGED_SNAP => match self.snap_op(m) {
                Ok(data) => self.answers.wait(Waiter::PoolOp { conn: c, tid, rc: 0, data }),
                Err(rc) => self.answer_pool_op(c, tid, rc, None),
            },
            _ => self.answer_pool_op(c, tid, errno::EINVAL, None),
        }
    }

    /// True if a pool operation that waits for a commit is allowed. If it is not, the answer is sent.
    pub(in crate::core) fn may_pool_message(&mut self, c: ConnKey, message: &Message) -> bool {
        match MPoolOp::from_message(message) {
            Ok(m) if self.may_pool_op(c, &m) => true,
            Ok(_) => {
                self.answer_pool_op(c, message.header.tid, errno::EPERM, None);
                false
            }
            Err(e) => {
                self.close(c, format!("malformed message: {e}"));
                false
            }
        }
    }

    /// True if [`may_snap`](Self::may_snap); else the refusal goes to the audit log.
    fn may_pool_op(&mut self, c: ConnKey, m: &MPoolOp) -> bool {
        let ok = self.may_snap(c, m);
        if !ok {
            self.audit_dropped(c, "poolop", "it needs caps 'osd w', or to write in the pool");
        }
        ok
    }

    /// True if the session may write the map, or may write to the pool and the operation is about self-managed
    /// snapshots.
    fn may_snap(&self, c: ConnKey, m: &MPoolOp) -> bool {
        let Some(s) = self.sender(c) else { return false };
        let addr = s.who().socket_addr();
        if s.principal().allows("osd", Need::W) {
            return true;
        }
        if !matches!(m.op, pool_op::CREATE_UNMANAGED_SNAP | pool_op::DELETE_UNMANAGED_SNAP) {
            return false;
        }
        let map = &self.state.osdmap;
        let id = PoolId(m.pool.into());
        let (Some(name), Some(pool)) = (map.pool_name(id), map.pool(id)) else { return false };
        let args = [("poolname".to_owned(), name.to_owned())].into();
        if s.principal().allows_command("osd", "osd pool op unmanaged-snap", &args, Need::W) {
            return true;
        }
        let text = self.state.auth.get(&s.who().name).and_then(|e| e.caps.get("osd"));
        let Some(caps) = text.and_then(|t| OsdCaps::parse(t).ok()) else { return false };
        caps.may_write_in(name, &pool.application_metadata, &addr)
    }

    fn snap_op(&mut self, m: &MPoolOp) -> Result<Option<Bytes>, i32> {
        let id = PoolId(m.pool.into());
        let epoch = self.state.osdmap.epoch.next();
        let pool = Arc::clone(self.pending.map(&self.state).pool(id).ok_or(errno::ENOENT)?);
        if pool.is_tier() {
            return Err(errno::EINVAL);
        }
        let unmanaged = matches!(m.op, pool_op::CREATE_UNMANAGED_SNAP | pool_op::DELETE_UNMANAGED_SNAP);
        if if unmanaged { pool.is_pool_snaps_mode() } else { pool.is_unmanaged_snaps_mode() } {
            return Err(errno::EINVAL);
        }
        if m.op == pool_op::DELETE_UNMANAGED_SNAP && !pool.is_unmanaged_snaps_mode() {
            // The pool never had snapshots. Clients that copied objects from a pool with snapshots expect this errno.
            return Err(errno::EOPNOTSUPP);
        }
        let named = pool.snap_by_name(&m.name).map(|s| s.snapid);
        // An operation that is already done succeeds without a change.
        match m.op {
            pool_op::CREATE_SNAP if named.is_some() => return Ok(None),
            pool_op::DELETE_SNAP if named.is_none() => return Ok(None),
            pool_op::DELETE_UNMANAGED_SNAP if self.is_removed_snap(id, m.snapid) => return Ok(None),
            pool_op::DELETE_UNMANAGED_SNAP if m.snapid.0 > pool.snap_seq.0 || m.snapid.0 == 0 => {
                return Err(errno::ENOENT);
            }
            _ => {}
        }
        match (m.op, named) {
            (pool_op::DELETE_SNAP, Some(snap)) => self.pending.remove_snap(&self.state, id, snap),
            (pool_op::DELETE_UNMANAGED_SNAP, _) => self.pending.remove_snap(&self.state, id, m.snapid),
            _ => return self.new_snap(id, m, epoch),
        }
        Ok(None)
    }

    /// Adds a snapshot to a pool; the result is the answer's payload.
    fn new_snap(&mut self, id: PoolId, m: &MPoolOp, epoch: Epoch) -> Result<Option<Bytes>, i32> {
        let stamp = self.now.wall;
        let p = self.pending.pool_mut(&self.state, id).ok_or(errno::ENOENT)?;
        p.snap_epoch = epoch;
        if m.op == pool_op::CREATE_SNAP {
            p.flags |= flag::POOL_SNAPS;
            let s = SnapId(p.snap_seq.0 + 1);
            p.snap_seq = s;
            p.snaps.insert(s.0, PoolSnap { snapid: s, stamp, name: m.name.0.clone() });
            return Ok(None);
        }
        p.flags |= flag::SELFMANAGED_SNAPS;
        // The first id of a pool is 2: 1 marks a pool that never had any.
        p.snap_seq = SnapId(p.snap_seq.0.max(1) + 1);
        Ok(Some(p.snap_seq.0.to_bytes(Features::PACIFIC)))
    }

    /// True if the snapshot is being removed or was removed.
    pub(in crate::core) fn is_removed_snap(&self, pool: PoolId, snap: SnapId) -> bool {
        self.state.osdmap.removed_snaps_queue.get(&pool).is_some_and(|q| q.contains(snap.0))
            || self.state.osds.purged_snaps.get(&pool).is_some_and(|q| q.contains(snap.0))
            || self.pending.taken_snaps.get(&pool).is_some_and(|q| q.contains(snap.0))
            || self.pending.inc().is_some_and(|i| i.new_removed_snaps.get(&pool).is_some_and(|q| q.contains(snap.0)))
    }

    /// Creates or removes a pool with the commands' functions.
    fn pool_by_command(&mut self, c: ConnKey, message: Message, m: &MPoolOp) {
        let tid = message.header.tid;
        let map = self.pending.map(&self.state);
        let cmd = if m.op == pool_op::CREATE {
            if map.pool_by_name(&m.name).is_some() {
                return self.answers.wait(Waiter::PoolOp { conn: c, tid, rc: 0, data: None });
            }
            let mut cmd = json!({ "prefix": "osd pool create", "pool": m.name.0 });
            if m.crush_rule >= 0
                && let Some(rule) = map.crush.rule_name(m.crush_rule.into())
            {
                cmd["rule"] = rule.into();
            }
            cmd
        } else {
            let Some(name) = map.pool_name(PoolId(m.pool.into())).map(str::to_owned) else {
                return self.answer_pool_op(c, tid, errno::ENOENT, None);
            };
            json!({ "prefix": "osd pool rm", "pool": name, "pool2": name, "yes_i_really_really_mean_it": true })
        };
        let Some(mut session) = self.sender(c).map(|s| s.info(Role::Mon)) else { return };
        // `may_pool_op` has checked the right to this message; the command's own check is for senders of commands.
        session.principal.access = Access::all();
        let outcome = match command::parse(&[cmd.to_string()], Role::Mon) {
            Ok(parsed) => self.dispatch(&session, &parsed, &Bytes::new()),
            Err(r) => command::refusal(r),
        };
        match outcome.when {
            When::Retry => self.answers.wait(Waiter::Again(c, message)),
            When::Committed => self.answers.wait(Waiter::PoolOp { conn: c, tid, rc: outcome.rc, data: None }),
            When::Now | When::NeedMap(_) | When::Host => self.answer_pool_op(c, tid, outcome.rc, None),
        }
    }

    pub(in crate::core) fn answer_pool_op(&mut self, c: ConnKey, tid: u64, rc: i32, data: Option<Bytes>) {
        let epoch = self.state.osdmap.epoch;
        let r = MPoolOpReply {
            paxos: PaxosHeader::from(epoch),
            fsid: self.state.fsid,
            reply_code: rc,
            epoch,
            response_data: data,
        };
        self.reply(c, tid, &r);
    }
}
