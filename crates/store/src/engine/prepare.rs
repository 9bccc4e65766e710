//! Requirements of a transaction before it may be applied: edge blocks in memory, space, room in the log.

use super::Store;
use super::pack::Packs;
use super::read::Resident;
use super::sources::Sources;
use crate::api::{ReadError, Tag};
use crate::key::Oid;
use crate::layout::BLOCK;
use crate::meta::Coll;
use crate::meta::asking::Needs;
use crate::meta::map::{Ptr, is_stored};
use crate::shape::check_shape;
use crate::txn::{Op, Transaction};
use base::errno::{self, Errno};

/// Ring blocks that transactions never get: the checkpoint that frees the ring must be able to close a frame.
pub(super) const RING_SLACK: u64 = 8;

pub(super) fn refuse(errno: Errno, what: impl Into<String>) -> ReadError {
    ReadError::Io { what: what.into(), errno }
}

/// Effect of a transaction on free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Grows,
    /// A little metadata: attributes, PG log and info.
    Minor,
    /// A change that the OSD itself needs to go on.
    Own,
    /// Removes data and adds almost nothing.
    MakesRoom,
}

/// Most record bytes of a transaction with minor effect; `REMOVAL_BYTES` is the bound for one that makes room.
const MINOR_BYTES: usize = 64 << 10;
const REMOVAL_BYTES: usize = 16 << 10;

impl Effect {
    fn of(ops: &[Op], bytes: usize) -> Self {
        let copies = |o: &Op| match o {
            Op::Write { data, .. } => !data.is_empty(),
            Op::Clone { .. } | Op::CloneRange { .. } => true,
            _ => false,
        };
        let removes = |o: &Op| {
            let omap = matches!(o, Op::OmapRmKeys { .. } | Op::OmapRmRange { .. } | Op::OmapClear { .. });
            let void = matches!(o, Op::PgInfo { info, .. } if info.is_empty());
            let undo = matches!(o, Op::Undo { .. } | Op::DropKept { .. });
            omap || void || undo || matches!(o, Op::Remove { .. } | Op::RemoveCollection { .. })
        };
        // Operations that may accompany a removal. They add a log entry at most.
        let beside = |o: &Op| {
            let log = matches!(o, Op::LogAppend { .. } | Op::LogTrim { .. } | Op::LogRewind { .. } | Op::PgInfo { .. });
            let less = matches!(o, Op::RmAttr { .. } | Op::RmAttrs { .. } | Op::Truncate { .. } | Op::Zero { .. });
            log || less || matches!(o, Op::Rename { .. })
        };
        if bytes > MINOR_BYTES || ops.iter().any(copies) {
            Self::Grows
        } else if bytes <= REMOVAL_BYTES && ops.iter().any(removes) && ops.iter().all(|o| removes(o) || beside(o)) {
            Self::MakesRoom
        } else {
            Self::Minor
        }
    }

    fn of_an_osd(self, own: bool) -> Self {
        if own && self != Self::MakesRoom { Self::Own } else { self }
    }
}

/// Number of consecutive log appends that count as one change: half of a log page.
const LOG_PAGE_ENTRIES: usize = 32;

/// Number of changes for the estimate of dirty pages. Consecutive appends to a log share its pages. The bytes
/// are counted separately.
fn page_changes(ops: &[Op]) -> usize {
    let (mut n, mut run) = (0, 0usize);
    for (i, op) in ops.iter().enumerate() {
        let before = i.checked_sub(1).and_then(|i| ops.get(i));
        let follows = match (before, op) {
            (Some(Op::LogAppend { cid: a, version: v, .. }), Op::LogAppend { cid, version, .. }) => {
                a == cid && v < version
            }
            _ => false,
        };
        run = if follows { run + 1 } else { 0 };
        n += usize::from(run.is_multiple_of(LOG_PAGE_ENTRIES));
    }
    n
}

/// True if the operation does not change what later ones need, except for split pages. This assumes omap keys
/// inside the onode; for an omap in leaves, [`Needs::leaves`] is set.
fn is_plain(op: &Op) -> bool {
    use Op::{Keep, LogAppend, OmapSet, OmapSetHeader, PgInfo, RmAttr, RmAttrs, SetAllocHint, SetAttrs, Touch, Write};
    matches!(
        op,
        Touch { .. }
            | Write { .. }
            | SetAttrs { .. }
            | RmAttr { .. }
            | RmAttrs { .. }
            | OmapSet { .. }
            | OmapSetHeader { .. }
            | SetAllocHint { .. }
            | LogAppend { .. }
            | PgInfo { .. }
            | Keep { .. }
    )
}

/// True if the transaction may change references of a block that it writes itself, by a clone, an overwrite or
/// a removal.
fn counts_new_blocks(txn: &Transaction, needs: Needs) -> bool {
    let writes = |o: &&Op| {
        let data = matches!(o, Op::Write { .. } | Op::Zero { .. } | Op::Truncate { .. });
        data || matches!(o, Op::Remove { .. } | Op::Rename { .. })
    };
    let clones = |o: &Op| matches!(o, Op::Clone { .. } | Op::CloneRange { .. });
    let n = txn.ops.iter().filter(writes).count();
    n > 0 && (n > 1 && needs.shared || txn.ops.iter().any(clones))
        || txn.ops.iter().any(|o| matches!(o, Op::CloneRange { .. }))
}

pub(super) fn needs_edges(op: &Op) -> bool {
    match op {
        Op::Write { off, data, .. } => off % BLOCK != 0 || !(data.len() as u64).is_multiple_of(BLOCK),
        Op::Zero { off, len, .. } => off % BLOCK != 0 || len % BLOCK != 0,
        Op::Truncate { size, .. } => size % BLOCK != 0,
        Op::CloneRange { .. } => true,
        _ => false,
    }
}

impl Store {
    pub(super) fn prepare_txn(&mut self, tag: Tag, txn: &Transaction, own: bool) -> Result<(), ReadError> {
        if let Some(e) = self.failed() {
            return Err(refuse(e, "the store has failed"));
        }
        // Whether a collection becomes empty is known only if the removed objects are in memory.
        let removes = txn.ops.iter().any(|o| matches!(o, Op::RemoveCollection { .. }));
        if removes {
            self.with_meta(tag, |m| m.need_ops(&txn.ops))?;
        }
        let meta = &self.meta;
        let find = |cid| {
            let id = meta.coll(cid)?;
            let c = meta.colls().get(id as usize)?;
            Some((c.usage.objects as usize, c))
        };
        let has = |c: &Coll, oid: &Oid| meta.coll(c.cid).is_some_and(|id| meta.has(id, oid));
        let ranges = |c: &Coll| c.parts.iter().map(|p| (*p.range.start(), *p.range.end())).collect();
        check_shape(txn, find, has, |c, oid| c.family_of(oid).is_some(), ranges, |c| c.undo.records > 0)
            .map_err(|e| refuse(e, format!("transaction refused: {}", errno::name(e))))?;
        let (mut blocks, mut bytes, mut edge) = (0, crate::txn::RECORD_BYTES, false);
        for op in &txn.ops {
            let c = op.cost();
            blocks += c.0;
            bytes += c.1;
            edge |= needs_edges(op);
        }
        if bytes > self.log.ring().payload_max() {
            return Err(refuse(errno::E2BIG, format!("transaction of {bytes} bytes of metadata exceeds a log frame")));
        }
        let bring = if self.cfg.prepare_less { txn.ops.get(..1).unwrap_or_default() } else { &txn.ops };
        let mut needs = self.with_meta(tag, |m| m.need_ops(bring))?;
        for op in &txn.ops {
            if let Op::Merge { cid, dst, first, .. } = op
                && let (Some(c), Some(d)) = (self.meta.coll(*cid), self.meta.coll(*dst))
            {
                // `prepare_less` may have brought pages for the first operation only; a missing page must not
                // refuse the merge.
                needs = needs.or(self.with_meta(tag, |m| m.need_ops(std::slice::from_ref(op)))?);
                self.meta.may_merge(c, d, *first).map_err(|e| refuse(e, "collections can't be merged"))?;
            }
        }
        let packs = if self.compressor.is_off() { Packs::new() } else { self.plan_packs(tag, &txn.ops)? };
        let counts = counts_new_blocks(txn, needs);
        self.check_early(tag, &txn.ops, !counts)?;
        let cut = if edge || self.meta.packs() { self.bring_edges(tag, bring)? } else { 0 };
        let more = self.pack_cost(&txn.ops, &packs, cut);
        (blocks, bytes) = (blocks + more.0, bytes + more.1);
        // Dirty pages can't leave memory before they are written.
        if self.meta.pages().dirty_mem() > self.cfg.meta_bytes / 4 * 3 {
            return Err(self.park(tag));
        }
        self.room_in_log(tag, bytes)?;
        let effect = Effect::of(&txn.ops, bytes).of_an_osd(own);
        self.room_on_device(tag, blocks, self.meta.headroom_for(page_changes(&txn.ops), bytes, needs), effect)?;
        let p = self.tag_state(tag);
        let before = std::mem::replace(&mut p.log_bytes, bytes);
        self.log.promise(before, bytes);
        if counts {
            self.take_pool(tag, txn, blocks)?;
        }
        if blocks * BLOCK >= self.cfg.early_bytes as u64 && !counts {
            self.write_early(tag, &txn.ops, &packs)?;
        }
        let sure = !self.cfg.prepare_less && !needs.shared && !needs.leaves && txn.ops.iter().all(is_plain);
        let changes = self.changes;
        let p = self.tag_state(tag);
        (p.prepared, p.sure, p.changes, p.packs) = (true, sure, changes, packs);
        Ok(())
    }

    /// Allocates the blocks that the transaction may write, so that the pages with their reference counts can
    /// be brought.
    fn take_pool(&mut self, tag: Tag, txn: &Transaction, blocks: u64) -> Result<(), ReadError> {
        let have: u64 = self.tag_state(tag).pool.iter().map(|r| u64::from(r.1)).sum();
        if have < blocks {
            let mut runs = crate::space::Runs::new();
            let got = self.space.take(self.streams.small(), blocks - have, &mut runs);
            let p = self.tag_state(tag);
            p.reserved = p.reserved.saturating_sub(got);
            p.pool.extend(runs);
        }
        if self.cfg.prepare_less {
            return Ok(());
        }
        let pool = self.tag_state(tag).pool.clone();
        self.with_meta(tag, |m| m.need_counts(&txn.ops, &pool).then_some(()))
    }

    /// Brings the blocks that the operations change in part, and the compressed extents that they cut. Returns the number
    /// of blocks of these extents.
    pub(super) fn bring_edges(&mut self, tag: Tag, ops: &[Op]) -> Result<u64, ReadError> {
        let mut wanted: Vec<(u32, u64, Ptr, u32)> = Vec::new();
        let mut cuts: Vec<(u32, u64, u64)> = Vec::new();
        let mut damaged = None;
        let sources = Sources::of(ops);
        self.with_meta(tag, |m| {
            let mut ok = true;
            for at in 0..ops.len() {
                if m.packs() {
                    ok &= Self::find_cuts(m, &sources, at, &mut |m, id, e| {
                        cuts.push((id, e.first, e.end));
                        m.map_each(id, e.first, e.first + e.stored, |b, p, k| wanted.push((id, b, p, k)));
                    });
                }
                sources.edges(at, &mut |cid, oid, from, to| {
                    let Some(coll) = m.coll(cid) else { return };
                    match m.look(coll, oid) {
                        None => ok = false,
                        Some(None) => {}
                        Some(Some(id)) if m.need_map(id, from, to, false) => {
                            let (from, to) = m.around(id, from, to);
                            m.map_each(id, from, to, |b, p, k| {
                                if is_stored(p.phys()) {
                                    wanted.push((id, b, p, k));
                                }
                            });
                            // A block that is not mapped may be one that was lost.
                            let lost = m.objects().get(id as usize).is_some_and(|o| o.lost.map);
                            damaged = damaged.or(lost.then_some(id));
                        }
                        Some(Some(_)) => ok = false,
                    }
                });
            }
            ok.then_some(())
        })?;
        if let Some(id) = damaged {
            return Err(self.damaged_object(id));
        }
        wanted.sort_unstable_by_key(|w| (w.0, w.1));
        wanted.dedup();
        let mut missing: Vec<(u64, u32)> = Vec::new();
        let mut under_way = false;
        for (id, block, ptr, crc) in wanted {
            let Some(birth) = self.meta.objects().get(id as usize).map(|o| o.birth) else { continue };
            match self.resident(tag, birth, block, ptr, crc) {
                // Pinned, because the cache may drop the block before it is used.
                Resident::Data(b) => self.pin(tag, ptr, b),
                Resident::Missing(true) => under_way = true,
                Resident::Missing(false) => match missing.last_mut() {
                    Some(l) if l.0 + u64::from(l.1) == ptr.phys() => l.1 += 1,
                    Some(l) if l.0 <= ptr.phys() && ptr.phys() < l.0 + u64::from(l.1) => {}
                    _ => missing.push((ptr.phys(), 1)),
                },
                Resident::Bad(e, why) => return Err(self.bad_block(id, block, ptr, e, why)),
            }
        }
        if under_way || !missing.is_empty() {
            return Err(self.wait_for(tag, missing));
        }
        cuts.sort_unstable();
        cuts.dedup();
        Ok(cuts.iter().map(|(_, first, end)| end - first).sum())
    }

    /// Checks that the open frame, with this record and those already promised, fits a frame and the ring.
    fn room_in_log(&mut self, tag: Tag, bytes: usize) -> Result<(), ReadError> {
        let own = self.tags.get(tag).map_or(0, |p| p.log_bytes);
        if !self.log.may_promise(own, bytes) {
            self.close_frame();
        }
        if self.has_room_in_log(own, bytes) { Ok(()) } else { Err(self.park(tag)) }
    }

    /// True if the log has room for all promises, if a transaction that was promised `own` bytes gets `bytes`.
    pub(super) fn has_room_in_log(&self, own: usize, bytes: usize) -> bool {
        let need = self.log.need_with(own, bytes);
        // A transaction larger than the log limit waits until little of the log is in use.
        let (used, max) = (self.log.ring().used, self.log_max() / BLOCK);
        let long = used + need > max && used > max / 4;
        self.log.free() >= need && !long && self.replay_steps() <= self.cfg.replay_steps_max
    }
}
