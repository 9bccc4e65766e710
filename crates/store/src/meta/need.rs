//! Pages that a change needs in memory.
//!
//! Each `need` function returns true if all pages are in memory. Otherwise it notes the missing pages in the
//! question ([`Meta::ask`]), and the caller asks again when they have arrived. For a record the answer is
//! exact, change by change. For a transaction, asked before any of it is applied, the answer is a superset as
//! far as possible, since earlier operations may rename or clone an object to the name. If an operation misses
//! a page all the same, its needs are asked again after the earlier ones are applied.

use super::Meta;
use super::asking::Needs;
use super::change::{Change, What};
use super::key::{self, Key};
use super::map::{BLOCKS_MAX, CHUNK};
use super::scan::Leaves;
use super::tree::{Exact, Seek};
use super::undo::Side;
use crate::key::{Cid, Oid};
use crate::layout::BLOCK;
use crate::txn::Op;
use base::Eversion;
use smallvec::SmallVec;

type Names<'a> = SmallVec<[&'a Oid; 2]>;

/// Collects the names that the object `oid`, as operation `at` finds it, may have before the transaction.
fn names<'a>(ops: &'a [Op], at: usize, cid: Cid, oid: &'a Oid, out: &mut Names<'a>) {
    if out.contains(&oid) {
        return;
    }
    out.push(oid);
    for (i, op) in ops.iter().enumerate().take(at) {
        match op {
            Op::Rename { cid: c, src, dst } | Op::Clone { cid: c, src, dst } if *c == cid && dst == oid => {
                names(ops, i, cid, src, out);
            }
            _ => {}
        }
    }
}

/// Most blocks that an operation may replace; all blocks of an object if the operation gives no range.
fn blocks_of(op: &Op) -> u64 {
    match op {
        Op::Write { data, .. } => data.len() as u64 / BLOCK + 2,
        Op::Zero { len, .. } => len / BLOCK + 2,
        Op::Truncate { .. } => BLOCKS_MAX,
        _ => 0,
    }
}

impl Meta {
    /// Brings the leaf of an object. Returns its slot if it exists.
    fn need_object(&mut self, coll: u32, oid: &Oid, ok: &mut bool) -> Option<u32> {
        match self.look(coll, oid) {
            Some(found) => found,
            None => {
                *ok = false;
                None
            }
        }
    }

    /// Brings the pages where the map and omap of a new object number go.
    fn need_room(&mut self, shard: u8, nid: u64) -> bool {
        let map = self.seek_exact(shard, key::hi(key::MAP, nid), 0);
        let omap = self.seek(shard, &Key::plain(key::hi(key::OMAP, nid), 0));
        !matches!(map, Exact::Missing) && !matches!(omap, Seek::Missing)
    }

    /// Brings everything that the removal of an object needs.
    fn need_removal(&mut self, id: u32) -> bool {
        // Pages that only lead to dropped ones are dropped with them, so they do not count in `touches`.
        self.need_map(id, 0, BLOCKS_MAX, true) & self.need_omap_range(id, &[], None, Leaves::None)
    }

    /// Brings everything that a copy of an object needs.
    fn need_copy(&mut self, id: u32) -> bool {
        let shard = self.shard_of(id);
        if let Some(o) = self.objects.get(id as usize) {
            self.asking.will_touch(2 * (o.mapped / CHUNK + o.omap.bytes() / 2048));
        }
        let mut ok = self.need_map(id, 0, BLOCKS_MAX, false) & self.need_omap_range(id, &[], None, Leaves::All);
        ok &= self.need_share(id, 0, BLOCKS_MAX);
        let nid = self.numbers.new_nid();
        ok & self.need_room(shard, nid)
    }

    /// Brings the reference counts of the mapped blocks of a range.
    fn need_share(&mut self, id: u32, block: u64, end: u64) -> bool {
        if !self.need_map(id, block, end, false) {
            return false;
        }
        let shard = self.shard_of(id);
        let mut phys = Vec::new();
        self.map_each(id, block, end, |_, p, _| phys.push(p.phys()));
        self.need_all_refs(shard, phys)
    }

    /// Brings the reference counts of these blocks in the shards that a transaction changes.
    pub(crate) fn need_counts(&mut self, ops: &[Op], runs: &[(u64, u32)]) -> bool {
        let mut ok = true;
        let mut shards: SmallVec<[u8; 2]> =
            (0..ops.len()).filter_map(|at| Some(self.shard_at(ops, at, ops.get(at)?.cid()))).collect();
        shards.sort_unstable();
        shards.dedup();
        for shard in shards {
            for (first, n) in runs {
                for range in first / super::refs::RANGE..=(first + u64::from(*n) - 1) / super::refs::RANGE {
                    ok &= self.need_refs(shard, range * super::refs::RANGE);
                }
            }
        }
        ok
    }

    /// Brings the page where a collection's record goes.
    pub(super) fn need_record(&mut self, shard: u8, num: u64) -> bool {
        !matches!(self.seek_exact(shard, key::hi(key::COLL, num), 0), Exact::Missing)
    }

    /// Slot of the collection that holds what operation `at` finds in `cid`: `cid` itself, or the one it is
    /// split off in this transaction.
    fn coll_at(&self, ops: &[Op], at: usize, cid: Cid) -> Option<u32> {
        self.coll(cid).or_else(|| {
            ops.iter().enumerate().take(at).rev().find_map(|(i, o)| match o {
                Op::Split { cid: from, dst, .. } if *dst == cid => self.coll_at(ops, i, *from),
                _ => None,
            })
        })
    }

    /// Shard that operation `at` changes.
    fn shard_at(&self, ops: &[Op], at: usize, cid: Cid) -> u8 {
        let made = ops.iter().take(at).rev().find_map(|o| match o {
            Op::MakeBeside { cid: c, beside, .. } if *c == cid => self.coll(*beside),
            _ => None,
        });
        let coll = self.coll_at(ops, at, cid).or(made).and_then(|c| self.colls.get(c as usize));
        coll.map_or_else(|| self.numbers.home(cid), |c| c.shard)
    }

    /// Brings the needs of a transaction's operations. Exact for a single operation.
    pub(crate) fn need_ops(&mut self, ops: &[Op]) -> Option<Needs> {
        let mut ok = true;
        self.asking.begin_needs();
        // The transaction may mark objects as shared.
        self.asking.set_will_share(ops.iter().any(|o| matches!(o, Op::Clone { .. } | Op::CloneRange { .. })));
        for at in 0..ops.len() {
            ok &= self.need_op(ops, at);
        }
        self.asking.set_will_share(false);
        ok.then_some(self.asking.needs())
    }

    fn need_op(&mut self, ops: &[Op], at: usize) -> bool {
        let Some(op) = ops.get(at) else { return true };
        let cid = op.cid();
        if let Op::MakeCollection { .. } = op {
            let num = self.numbers.new_nid();
            return self.need_record(self.numbers.home(cid), num);
        }
        if let Op::MakeBeside { beside, .. } = op {
            let num = self.numbers.new_nid();
            let shard = self.shard_at(ops, at, *beside);
            return self.need_record(shard, num);
        }
        let mut made = true;
        if self.coll(cid).is_none() {
            // A collection created in this transaction is empty; its first pages are near its record.
            let shard = self.shard_at(ops, at, cid);
            let num = self.numbers.new_nid();
            let family = self.seek(shard, &Key::plain(key::hi(key::OBJECTS, num), 0));
            let log = self.seek(shard, &Key::plain(key::hi(key::LOG, num), 0));
            let undo = self.seek(shard, &Key::plain(key::hi(key::UNDO, num), 0));
            let room = self.need_room(shard, num);
            made = room && ![family, log, undo].iter().any(|s| matches!(s, Seek::Missing));
        }
        // A collection split off in this transaction has objects already, but no log.
        let Some(coll) = self.coll_at(ops, at, cid) else { return made };
        if self.coll(cid).is_none() && op.oid().is_none() && !matches!(op, Op::Split { .. }) {
            return made;
        }
        made & match op {
            Op::Split { first, .. } => {
                let num = self.numbers.new_nid();
                self.need_split(coll, *first, num)
            }
            Op::Merge { dst, first, .. } => self.need_merge(coll, *dst, *first),
            Op::MakeCollection { .. } | Op::MakeBeside { .. } | Op::PgInfo { .. } => true,
            Op::RemoveCollection { .. } => self.need_log_drop(coll),
            Op::LogAppend { version, .. } => self.need_log_append(coll, *version) & self.need_void(coll, *version),
            Op::LogTrim { to, .. } => self.need_trim(coll, *to),
            // Later appends follow the entries that are left.
            Op::LogRewind { to, .. } => self.need_rewind(coll, *to) & self.need_log_append(coll, *to),
            Op::Keep { version, .. } => self.need_keep(coll, *version),
            Op::DropKept { to, .. } => self.need_drop_records(coll, Side::UpTo(*to)),
            Op::Clone { src, dst, .. } | Op::Rename { src, dst, .. } => {
                let copy = matches!(op, Op::Clone { .. });
                self.each_name(ops, at, coll, cid, src, |m, id| !copy || m.need_copy(id))
                    & self.each_name(ops, at, coll, cid, dst, Self::need_removal)
            }
            Op::CloneRange { src, dst, src_off, len, dst_off, .. } => {
                if ops.iter().take(at).any(|o| matches!(o, Op::Keep { .. })) {
                    self.each_name(ops, at, coll, cid, dst, |m, id| {
                        m.need_kept(id, *len / BLOCK + 2);
                        true
                    });
                }
                let (s0, s1) = (src_off / BLOCK, src_off.saturating_add(*len).div_ceil(BLOCK));
                let (d0, d1) = (dst_off / BLOCK, dst_off.saturating_add(*len).div_ceil(BLOCK));
                self.each_name(ops, at, coll, cid, src, |m, id| m.need_share(id, s0, s1))
                    & self.each_name(ops, at, coll, cid, dst, |m, id| m.need_map(id, d0, d1, true))
                    & self.need_fresh(coll)
            }
            _ => match op.oid() {
                Some(oid) => self.need_own(ops, at, coll, cid, oid, op),
                None => true,
            },
        }
    }

    fn need_trim(&mut self, coll: u32, to: Eversion) -> bool {
        self.need_log_trim(coll, to) & self.need_drop_records(coll, Side::UpTo(to))
    }

    fn need_rewind(&mut self, coll: u32, to: Eversion) -> bool {
        self.need_log_rewind(coll, to) & self.need_drop_records(coll, Side::After(to))
    }

    /// Brings the pages for the map or omap of an object that the transaction creates.
    fn need_fresh(&mut self, coll: u32) -> bool {
        let shard = self.colls.get(coll as usize).map_or(0, |c| c.shard);
        let nid = self.numbers.new_nid();
        self.need_room(shard, nid)
    }

    fn each_name<'a>(
        &mut self,
        ops: &'a [Op],
        at: usize,
        coll: u32,
        cid: Cid,
        oid: &'a Oid,
        mut f: impl FnMut(&mut Self, u32) -> bool,
    ) -> bool {
        let mut all = Names::new();
        names(ops, at, cid, oid, &mut all);
        let mut ok = true;
        for n in all {
            if let Some(id) = self.need_object(coll, n, &mut ok) {
                ok &= f(self, id);
            }
        }
        ok
    }

    fn need_own(&mut self, ops: &[Op], at: usize, coll: u32, cid: Cid, oid: &Oid, op: &Op) -> bool {
        let mut found = false;
        let keeps = ops.iter().take(at).any(|o| matches!(o, Op::Keep { cid: c, .. } if *c == cid));
        let ok = self.each_name(ops, at, coll, cid, oid, |m, id| {
            found = true;
            if keeps {
                m.need_kept(id, blocks_of(op));
            }
            match op {
                Op::Write { off, data, .. } if !data.is_empty() => {
                    m.need_map(id, off / BLOCK, off.saturating_add(data.len() as u64).div_ceil(BLOCK), true)
                }
                Op::Zero { off, len, .. } if *len > 0 => {
                    m.need_map(id, off / BLOCK, off.saturating_add(*len).div_ceil(BLOCK), true)
                }
                Op::Truncate { size, .. } => {
                    let old = m.objects.get(id as usize).map_or(0, |o| o.size);
                    *size >= old || m.need_map(id, size / BLOCK, BLOCKS_MAX, true)
                }
                Op::Remove { .. } => m.need_removal(id),
                Op::Undo { version, .. } => m.need_undo(id, *version),
                Op::OmapSet { .. } if m.stays_inline(id, ops.get(..=at).unwrap_or_default()) => true,
                Op::OmapSet { entries, .. } => {
                    m.asking.will_need_leaves(true);
                    m.need_omap_set(id, entries)
                }
                Op::OmapRmKeys { keys, .. } => keys.iter().fold(true, |ok, k| ok & m.need_omap_key(id, k)),
                Op::OmapRmRange { first, last, .. } => m.need_omap_range(id, first, Some(last), Leaves::Ends),
                Op::OmapClear { .. } => m.need_omap_range(id, &[], None, Leaves::None),
                _ => true,
            }
        });
        // The object is created here, or its map or omap may outgrow the onode.
        let anew = !found
            || ops.iter().take(at).any(|o| {
                matches!(o, Op::Remove { .. } | Op::Rename { .. } | Op::Clone { .. } | Op::RemoveCollection { .. })
            });
        let grows = match op {
            Op::Write { off, data, .. } => {
                anew && off.saturating_add(data.len() as u64) / BLOCK >= super::blocks::INLINE_BLOCKS
            }
            Op::OmapSet { .. } => {
                self.asking.will_need_leaves(anew);
                anew
            }
            _ => false,
        };
        ok && (!grows || self.need_fresh(coll))
    }

    /// Brings the needs of one change of a record.
    pub(crate) fn need_change(&mut self, c: &Change) -> bool {
        self.asking.set_will_share(matches!(c, Change::Share { .. }));
        let ok = self.need_this(c);
        self.asking.set_will_share(false);
        ok
    }

    fn need_this(&mut self, c: &Change) -> bool {
        let cid = c.cid();
        if let Change::MakeCollection { num, shard, .. } = c {
            return self.need_record(*shard, *num);
        }
        if let Change::MakeBeside { beside, num, .. } = c {
            let shard = self.coll(*beside).and_then(|c| self.colls.get(c as usize)).map(|c| c.shard);
            return shard.is_none_or(|s| self.need_record(s, *num));
        }
        let Some(coll) = self.coll(cid) else { return true };
        let mut ok = true;
        match c {
            Change::MakeCollection { .. } | Change::MakeBeside { .. } | Change::Info { .. } => {}
            Change::RemoveCollection { .. } => ok = self.need_log_drop(coll),
            Change::Split { first, num, .. } => ok = self.need_split(coll, *first, *num),
            Change::Merge { dst, first, .. } => ok = self.need_merge(coll, *dst, *first),
            Change::LogAppend { version, .. } => {
                ok = self.need_log_append(coll, *version) & self.need_void(coll, *version);
            }
            Change::LogTrim { to, .. } => ok = self.need_trim(coll, *to),
            Change::LogRewind { to, .. } => ok = self.need_rewind(coll, *to),
            Change::Keep { version, .. } => ok = self.need_keep(coll, *version),
            Change::DropKept { to, .. } => ok = self.need_drop_records(coll, Side::UpTo(*to)),
            Change::Undo { oid, version, .. } => {
                if let Some(id) = self.need_object(coll, oid, &mut ok) {
                    ok &= self.need_undo(id, *version);
                }
            }
            Change::Create { oid, .. } => {
                self.need_object(coll, oid, &mut ok);
            }
            Change::Clone { src, dst, nid, .. } => {
                if let Some(id) = self.need_object(coll, src, &mut ok) {
                    ok &= self.need_copy(id);
                    let shard = self.shard_of(id);
                    ok &= self.need_room(shard, *nid);
                }
                if let Some(id) = self.need_object(coll, dst, &mut ok) {
                    ok &= self.need_removal(id);
                }
            }
            Change::Rename { src, dst, .. } => {
                self.need_object(coll, src, &mut ok);
                if let Some(id) = self.need_object(coll, dst, &mut ok) {
                    ok &= self.need_removal(id);
                }
            }
            Change::Remove { oid, .. } => {
                if let Some(id) = self.need_object(coll, oid, &mut ok) {
                    ok &= self.need_removal(id);
                }
            }
            Change::Share { src, dst, block, n, .. } => {
                let end = block.saturating_add(*n);
                if let Some(id) = self.need_object(coll, src, &mut ok) {
                    ok &= self.need_share(id, *block, end);
                }
                if let Some(id) = self.need_object(coll, dst, &mut ok) {
                    ok &= self.need_map(id, *block, end, true);
                }
            }
            Change::OfObject { oid, what, .. } => {
                if let Some(id) = self.need_object(coll, oid, &mut ok) {
                    ok &= self.need_what(id, what);
                }
            }
        }
        ok
    }

    fn need_what(&mut self, id: u32, what: &What) -> bool {
        match what {
            What::Map { block, runs, .. } => {
                let n: u64 = runs.iter().map(|r| u64::from(r.1)).sum();
                self.need_map(id, *block, block.saturating_add(n), true)
            }
            What::Unmap { block, n, size } => {
                let last = (size / BLOCK).min(*block);
                self.need_map(id, last, block.saturating_add(*n).max(last + 1), true)
            }
            What::OmapSet { entries } => self.need_omap_set(id, entries),
            What::OmapRmKeys { keys } => keys.iter().fold(true, |ok, k| ok & self.need_omap_key(id, k)),
            What::OmapRmRange { first, last } => self.need_omap_range(id, first, Some(last), Leaves::Ends),
            What::OmapClear => self.need_omap_range(id, &[], None, Leaves::None),
            _ => true,
        }
    }
}
