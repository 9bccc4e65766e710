//! Overwrites: the transaction of most writes, prepared and applied at once.
//!
//! Such a transaction writes whole blocks of an existing object, sets attributes of it, appends to the PG's log and
//! perhaps stores the PG's info. Its needs are found by what earlier ones have left in memory, without a search, so no
//! state of its tag is made and no operation is looked at twice.
//!
//! Invariants:
//!  1. An overwrite makes the changes of the same transaction after [`prepare`](crate::ObjectStore::prepare), in the
//!     same order, and leaves the same record in the log.
//!  2. Where anything is unusual, nothing has happened: the general way then decides. All waits and refusals are its.
//!
//! Tests: `tests/overwrites.rs` (1, 2), `tests/model.rs`, `tests/histories.rs`.

use super::Store;
use super::perform::Run;
use crate::api::{Health, MAX_OBJECT_SIZE, Tag};
use crate::key::{Cid, Oid};
use crate::layout::BLOCK;
use crate::meta::asking::Needs;
use crate::meta::change::What;
use crate::txn::{Op, RECORD_BYTES, Transaction};
use base::Eversion;

/// Object and room of a planned overwrite.
pub(super) struct Overwrite {
    /// Slot of the object.
    id: u32,
    /// Blocks of data, which are reserved.
    blocks: u64,
    /// Blocks reserved for metadata that it makes dirty.
    keep: u64,
    /// Most bytes of its record.
    bytes: usize,
}

/// The parts of a transaction that may be an overwrite.
struct Shape<'a> {
    cid: Cid,
    oid: &'a Oid,
    off: u64,
    len: u64,
    version: Eversion,
}

impl<'a> Shape<'a> {
    fn of(ops: &'a [Op]) -> Option<Self> {
        let [
            Op::Write { cid, oid, off, data, .. },
            Op::SetAttrs { cid: of_attrs, oid: with_attrs, .. },
            Op::LogAppend { cid: of_log, version, .. },
            rest @ ..,
        ] = ops
        else {
            return None;
        };
        let info = match rest {
            [] => true,
            [Op::PgInfo { cid: of_info, .. }] => of_info == cid,
            _ => false,
        };
        let one = of_attrs == cid && of_log == cid && info && (oid.is_same(with_attrs) || oid == with_attrs);
        one.then_some(Self { cid: *cid, oid, off: *off, len: data.len() as u64, version: *version })
    }

    /// First block and the one behind the last, if the write has whole blocks.
    fn blocks(&self) -> Option<(u64, u64)> {
        let whole = self.off.is_multiple_of(BLOCK) && self.len.is_multiple_of(BLOCK) && self.len > 0;
        let end = self.off.checked_add(self.len).filter(|e| whole && *e <= MAX_OBJECT_SIZE)?;
        Some((self.off / BLOCK, end / BLOCK))
    }
}

impl Store {
    /// Plans a transaction as an overwrite, and reserves its room. `None` leaves everything as it was.
    pub(super) fn plan_overwrite(&mut self, tag: Tag, ops: &[Op]) -> Option<Overwrite> {
        let shape = Shape::of(ops)?;
        let (block, end) = shape.blocks()?;
        let plain = self.suspended.is_none()
            && self.health == Health::Ok
            && !self.cfg.prepare_less
            && self.compressor.is_off()
            && !self.meta.packs()
            && shape.len < self.cfg.early_bytes as u64
            // A plan that has read or prepared something has to be ended.
            && self.tags.get(tag).is_none();
        if !plain || self.meta.pages().dirty_mem() > self.cfg.meta_bytes / 4 * 3 {
            return None;
        }
        let id = self.meta.ready_for_overwrite(shape.cid, shape.oid, block, end, shape.version)?;
        let bytes = RECORD_BYTES + ops.iter().map(Op::frame_bytes).sum::<usize>();
        if !self.log.may_promise(0, bytes) || !self.has_room_in_log(0, bytes) {
            return None;
        }
        let (blocks, keep) = (end - block, self.meta.headroom_for(ops.len(), bytes, Needs::default()));
        let reserved = self.space.reserve_leaving(blocks + keep, self.space.for_removals());
        reserved.then_some(Overwrite { id, blocks, keep, bytes })
    }

    /// Applies what was planned just before.
    pub(super) fn overwrite(&mut self, tag: Tag, txn: Transaction, plan: &Overwrite) {
        self.counters.txns += 1;
        self.log.count_overwrite();
        self.room.hold(plan.keep);
        let (at, version) = self.begin_record();
        let mut payload = self.log.take_payload();
        let mut run = Run::of_overwrite(tag, &mut payload, plan.blocks, version);
        let mut applied = Ok(());
        for op in txn.ops {
            applied = applied.and_then(|()| match op {
                Op::Write { cid, oid, off, data, sums } => {
                    run.knows(sums);
                    self.write(&mut run, cid, &oid, plan.id, off, data)
                }
                Op::SetAttrs { cid, oid, attrs } => {
                    self.emit_object(&mut run, cid, &oid, plan.id, What::SetAttrs { attrs })
                }
                Op::LogAppend { cid, version, entry } => self.append_log(&mut run, cid, version, &entry),
                op => self.perform(&mut run, op),
            });
        }
        let left = run.left();
        self.end_record(tag, payload, at, plan.bytes, left, applied);
    }
}
