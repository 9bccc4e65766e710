//! Reads and writes of one extent of an object as it is now: the commonest requests, without the state that a vector
//! needs.
//!
//! Invariant: a request gets the answer of the general path, and a write changes the same. What could differ, such as
//! snapshots, shards, truncations, space and errors of the store, is left to it.
//!
//! Tests: `tests/plain_reads.rs`, `tests/plain_writes.rs`.

use crate::event::OpRequest;
use crate::exec::{Finished, Step, Stop, check_range, kib, plain_range, takes_payload};
use crate::log::{LogEntry, LogKind};
use crate::map::pool_flags;
use crate::object::{OI_ATTR, ObjectContext, ObjectInfo, SnapSet};
use crate::pg::journal::action::{Answer, Kind, Timing};
use crate::pg::ops::plan::{Stage, Verdict};
use crate::pg::{Pg, Turn};
use crate::stats::StatSum;
use base::{Eversion, HObject, Now, ReqId, SnapId, Utime};
use bytes::Bytes;
use store::{Oid, Op, ReadError};
use wire::msg::osd_op::Extent;
use wire::msg::{OpCode, OsdOp, msg_flags};

/// The operation of a request that has no other, if it reads an extent.
fn only_read(req: &mut OpRequest) -> Option<&mut OsdOp> {
    match req.msg.ops.as_mut_slice() {
        [op] if matches!(op.op, OpCode::READ | OpCode::SYNC_READ) => Some(op),
        _ => None,
    }
}

/// The operation and extent of a request that does nothing but write one. A hint that the object has already may come
/// first.
fn only_write<'a>(req: &'a OpRequest, oi: &ObjectInfo) -> Option<(&'a OsdOp, Extent)> {
    let op = match req.msg.ops.as_slice() {
        [op] => op,
        [hint, op] if hint.op == OpCode::SETALLOCHINT => {
            let h = hint.alloc_hint();
            let same = (oi.expected_object_size, oi.expected_write_size, oi.alloc_hint_flags);
            if same != (h.expected_object_size, h.expected_write_size, h.flags) {
                return None;
            }
            op
        }
        _ => return None,
    };
    let e = match op.op {
        OpCode::WRITE => op.extent(),
        OpCode::WRITEFULL => Extent { offset: 0, ..op.extent() },
        _ => return None,
    };
    let truncated = e.truncate_seq != 0 || oi.truncate_seq != 0;
    let legal = e.length > 0 && e.length == op.indata.len() as u64 && check_range(e.offset, e.length).is_ok();
    (legal && !truncated && takes_payload(op.indata.len())).then_some((op, e))
}

impl Pg {
    /// Runs a plan that writes one extent of `head`, whose metadata is `before`, and nothing else. `None` leaves it to the
    /// general path; nothing is changed then, also if the store has refused the changes.
    pub(in crate::pg) fn run_plain_write(
        &mut self,
        id: u64,
        req: &OpRequest,
        reqid: ReqId,
        head: &HObject,
        before: &ObjectContext,
        turn: &mut Turn<'_>,
    ) -> Option<Step<Answer>> {
        let special = msg_flags::RETURNVEC | msg_flags::ORDERSNAP;
        let is_plain = req.msg.snapid == SnapId::HEAD && req.msg.flags & special == 0 && before.exists;
        let snaps = req.msg.snapc.seq.0 != 0 || !req.msg.snapc.snaps.is_empty() || !before.ss.is_blank();
        if !is_plain || snaps || self.ec.coder().is_some() {
            return None;
        }
        let (op, e) = only_write(req, &before.oi)?;
        let size = if op.op == OpCode::WRITEFULL { e.length } else { before.oi.size.max(e.offset + e.length) };
        let pool = self.pool()?;
        let lacks_space = || pool.has(pool_flags::FULL) || turn.store.is_short();
        if pool.has(pool_flags::POOL_SNAPS) || size > before.oi.size && lacks_space() {
            return None;
        }
        let done = self.plain_write(req, reqid, head, before, (op, e.offset, size), turn.now);
        let (version, user_version) = (done.after.oi.version, done.user_version);
        match self.commit_object(self.tag(id), head, done, turn.store) {
            Ok(()) => {
                let (kind, written) = (Kind::Write, e.length);
                Some(Ok(Answer { kind, version, user_version, read: 0, written, repeats: false }))
            }
            Err(Stop::Wait) => Some(Err(Stop::Wait)),
            Err(Stop::Errno(_)) => None,
        }
    }

    /// The changes of a plain write: the operation, its offset, and the size of the object after it.
    fn plain_write(
        &self,
        req: &OpRequest,
        reqid: ReqId,
        head: &HObject,
        before: &ObjectContext,
        (op, off, size): (&OsdOp, u64, u64),
        now: Now,
    ) -> Finished {
        let (cid, oid, version, had) = (self.env.cid(), Oid::new(head.clone()), self.next_version(), before.oi.size);
        let mut oi = ObjectInfo { version, last_reqid: reqid, size, ..before.oi.clone() };
        oi.flags |= ObjectInfo::DIRTY;
        let newest = self.journal.info().last_user_version.max(before.oi.user_version);
        oi.user_version = newest.saturating_add(1).max(version.version);
        if req.msg.mtime != Utime::ZERO {
            (oi.mtime, oi.local_mtime) = (req.msg.mtime, now.wall);
        }
        let mut ops = Vec::with_capacity(6);
        if op.op == OpCode::WRITEFULL && had > 0 && (size < had || !size.is_multiple_of(store::BLOCK)) {
            ops.push(Op::Truncate { cid, oid: oid.clone(), size: 0 });
        }
        let sums = req.msg.sums.as_ref().filter(|s| s.has(&op.indata)).cloned();
        ops.push(Op::Write { cid, oid: oid.clone(), off, data: op.indata.clone(), sums });
        ops.push(Op::SetAttrs { cid, oid, attrs: vec![(Bytes::from_static(OI_ATTR), oi.to_attr())] });
        let delta = StatSum {
            num_bytes: size as i64 - had as i64,
            num_objects_dirty: i64::from(before.oi.flags & ObjectInfo::DIRTY == 0),
            num_wr: 1,
            num_wr_kb: kib(op.indata.len() as u64),
            ..StatSum::default()
        };
        let entry = LogEntry {
            kind: LogKind::Modify,
            soid: head.clone(),
            version,
            prior_version: before.oi.version,
            user_version: oi.user_version,
            reqid,
            mtime: req.msg.mtime,
            result: 0,
            returns: Vec::new(),
            snaps: Vec::new(),
            delta,
            undo: Bytes::new(),
            touch: None,
        };
        let user_version = oi.user_version;
        let after = ObjectContext { exists: true, oi, ss: SnapSet::default(), last_write: 0 };
        Finished { ops, entries: vec![entry], after, delta, user_version }
    }

    /// Runs a plan that reads one extent of `head`, whose metadata is `before`. `None` leaves it to the general path.
    pub(in crate::pg) fn run_plain_read(
        &mut self,
        id: u64,
        req: &mut OpRequest,
        head: &HObject,
        before: &ObjectContext,
        turn: &mut Turn<'_>,
    ) -> Option<Verdict> {
        let is_plain = req.msg.snapid == SnapId::HEAD && before.exists && req.msg.snapc.is_valid();
        if !is_plain || self.ec.coder().is_some() || self.pool().is_none() {
            return None;
        }
        let tag = self.tag(id);
        let op = only_read(req)?;
        let (off, len) = plain_range(&before.oi, op);
        let (data, crc) = if len == 0 {
            (Bytes::new(), None)
        } else {
            match turn.store.read_summed(tag, self.env.cid(), &Oid::new(head.clone()), off, len) {
                Ok(r) => r,
                Err(ReadError::Wait) => return Some(Verdict::Park(Stage::Reading)),
                Err(_) => return None,
            }
        };
        let n = data.len() as u64;
        op.clear_output();
        (op.outdata, op.out_crc, op.rval) = (data, crc, 0);
        let timing = Timing::new(Kind::Read, req, n, 0);
        self.journal.add_stats(&StatSum { num_rd: 1, num_rd_kb: kib(n), ..StatSum::default() });
        let reply = self.build_reply(req, 0, Some((Eversion::default(), before.oi.user_version)), true);
        self.send_after(before.last_write, reply, req.session, timing, turn);
        Some(Verdict::Done)
    }
}
