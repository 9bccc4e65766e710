//! Reads of one extent of an object as it is now: the commonest request, without the state that a vector needs.
//!
//! Invariant: a request gets the answer of the general path. What could differ, such as snapshots, shards and errors of
//! the store, is left to it.
//!
//! Tests: `tests/plain_reads.rs`.

use crate::event::OpRequest;
use crate::exec::{kib, plain_range};
use crate::object::ObjectContext;
use crate::pg::journal::action::{Kind, Timing};
use crate::pg::ops::plan::{Stage, Verdict};
use crate::pg::{Pg, Turn};
use crate::stats::StatSum;
use base::{Eversion, HObject, SnapId};
use bytes::Bytes;
use store::{Oid, ReadError};
use wire::msg::{OpCode, OsdOp};

/// The operation of a request that has no other, if it reads an extent.
fn only_read(req: &mut OpRequest) -> Option<&mut OsdOp> {
    match req.msg.ops.as_mut_slice() {
        [op] if matches!(op.op, OpCode::READ | OpCode::SYNC_READ) => Some(op),
        _ => None,
    }
}

impl Pg {
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
