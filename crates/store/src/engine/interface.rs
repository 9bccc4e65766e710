//! The engine as an [`ObjectStore`].

use super::Store;
use crate::api::{Event, ObjectStat, ObjectStore, OmapPage, ReadError, Statfs, Tag};
use crate::compress::Compression;
use crate::key::{Cid, Oid};
use crate::layout::BLOCK;
use crate::meta::omap::Entry;
use crate::meta::scan::Ahead;
use crate::txn::Transaction;
use base::{Eversion, PoolId};
use bytes::Bytes;

impl ObjectStore for Store {
    fn collections(&self) -> Vec<(Cid, u32)> {
        let mut v: Vec<_> = self.meta.colls().iter().map(|(_, c)| (c.cid, c.bits)).collect();
        v.sort_unstable();
        v
    }

    fn stat(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<ObjectStat, ReadError> {
        let o = self.obj(tag, cid, oid)?;
        Ok(ObjectStat { size: o.size, allocated: o.mapped * BLOCK, omap: o.omap.bytes() })
    }

    fn read_device(&mut self, tag: Tag, cid: Cid, oid: &Oid, off: u64, len: u64) -> Result<Bytes, ReadError> {
        self.tag_state(tag).from_device = true;
        self.read(tag, cid, oid, off, len)
    }

    fn read(&mut self, tag: Tag, cid: Cid, oid: &Oid, off: u64, len: u64) -> Result<Bytes, ReadError> {
        self.read_summed(tag, cid, oid, off, len).map(|(b, _)| b)
    }

    fn read_summed(
        &mut self,
        tag: Tag,
        cid: Cid,
        oid: &Oid,
        off: u64,
        len: u64,
    ) -> Result<(Bytes, Option<u32>), ReadError> {
        let id = self.whole_object(tag, cid, oid, |l| l.map)?;
        let got = self.read_object(tag, id, off, len);
        if matches!(got, Err(ReadError::Wait))
            && let Some(p) = self.tags.get_mut(tag)
        {
            p.object = Some(id);
        }
        got
    }

    fn extents(&mut self, tag: Tag, cid: Cid, oid: &Oid, off: u64, len: u64) -> Result<Vec<(u64, u64)>, ReadError> {
        let id = self.whole_object(tag, cid, oid, |l| l.map)?;
        let size = self.meta.objects().get(id as usize).map_or(0, |o| o.size);
        let end = off.saturating_add(len).min(size);
        let mut out: Vec<(u64, u64)> = Vec::new();
        if off >= end {
            return Ok(out);
        }
        let (b0, b1) = (off / BLOCK, (end - 1) / BLOCK + 1);
        self.with_meta(tag, |m| m.need_map(id, b0, b1, false).then_some(()))?;
        self.meta.map_each(id, b0, b1, |b, _, _| {
            let (from, to) = ((b * BLOCK).max(off), ((b + 1) * BLOCK).min(end));
            match out.last_mut() {
                Some(l) if l.0 + l.1 == from => l.1 += to - from,
                _ => out.push((from, to - from)),
            }
        });
        Ok(out)
    }

    fn attr(&mut self, tag: Tag, cid: Cid, oid: &Oid, name: &[u8]) -> Result<Option<Bytes>, ReadError> {
        Ok(self.obj(tag, cid, oid)?.attr(name).cloned())
    }

    fn attrs(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<Vec<(Bytes, Bytes)>, ReadError> {
        Ok(self.obj(tag, cid, oid)?.attrs.clone())
    }

    fn omap_header(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<Bytes, ReadError> {
        Ok(self.obj(tag, cid, oid)?.omap_header.clone())
    }

    fn omap_get(&mut self, tag: Tag, cid: Cid, oid: &Oid, key: &[u8]) -> Result<Option<Bytes>, ReadError> {
        let id = self.whole_object(tag, cid, oid, |l| l.omap)?;
        self.with_meta(tag, |m| m.omap_get(id, key))
    }

    fn omap_range(
        &mut self,
        tag: Tag,
        cid: Cid,
        oid: &Oid,
        from: &[u8],
        after: bool,
        max_entries: usize,
        max_bytes: usize,
    ) -> Result<OmapPage, ReadError> {
        let id = self.whole_object(tag, cid, oid, |l| l.omap)?;
        // One additional entry shows whether more follow.
        let ahead = Ahead { entries: (max_entries as u64).saturating_add(1), leaves: self.leaves_ahead(tag) };
        self.with_meta(tag, |m| {
            let mut page = OmapPage::default();
            let mut bytes = 0;
            m.omap_scan(id, from, after, ahead, |e: Entry<'_>| {
                if page.entries.len() >= max_entries || (bytes >= max_bytes && !page.entries.is_empty()) {
                    page.more = true;
                    return false;
                }
                bytes += e.len();
                page.entries.push(e.pair());
                true
            })?;
            Some(page)
        })
    }

    fn list(
        &mut self,
        tag: Tag,
        cid: Cid,
        start: &Oid,
        end: Option<&Oid>,
        max: usize,
    ) -> Result<(Vec<Oid>, Option<Oid>), ReadError> {
        self.in_order(tag)?;
        let coll = self.meta.coll(cid).ok_or(ReadError::NoObject)?;
        self.with_meta(tag, |m| m.list(coll, start, end.map(|e| &**e), max))
    }

    fn log_entries(&mut self, tag: Tag, cid: Cid, after: Eversion) -> Result<Vec<(Eversion, Bytes)>, ReadError> {
        self.in_order(tag)?;
        let coll = self.meta.coll(cid).ok_or(ReadError::NoObject)?;
        self.with_meta(tag, |m| m.log_after(coll, after))
    }

    fn kept(&mut self, tag: Tag, cid: Cid, oid: &Oid, version: Eversion) -> Result<bool, ReadError> {
        let id = self.object(tag, cid, oid)?;
        Ok(self.with_meta(tag, |m| m.size_kept(id, version))?.is_some())
    }

    fn pg_info(&mut self, tag: Tag, cid: Cid) -> Result<Option<Bytes>, ReadError> {
        self.in_order(tag)?;
        let coll = self.meta.coll(cid).ok_or(ReadError::NoObject)?;
        Ok(self.meta.colls().get(coll as usize).and_then(|c| c.info.as_deref()).map(Bytes::copy_from_slice))
    }

    fn prepare(&mut self, tag: Tag, txn: &Transaction) -> Result<(), ReadError> {
        self.in_order(tag)?;
        self.prepare_txn(tag, txn, false)
    }

    fn prepare_own(&mut self, tag: Tag, txn: &Transaction) -> Result<(), ReadError> {
        self.in_order(tag)?;
        self.prepare_txn(tag, txn, true)
    }

    fn submit(&mut self, tag: Tag, txn: Transaction) {
        self.perform_txn(tag, txn);
    }

    fn apply(&mut self, tag: Tag, txn: Transaction) -> Result<(), (ReadError, Transaction)> {
        if let Some(plan) = self.plan_overwrite(tag, &txn.ops) {
            self.overwrite(tag, txn, &plan);
            return Ok(());
        }
        match self.prepare(tag, &txn) {
            Ok(()) => {
                self.perform_txn(tag, txn);
                Ok(())
            }
            Err(e) => Err((e, txn)),
        }
    }

    fn set_compression(&mut self, pool: PoolId, how: Option<Compression>) {
        self.compress_pool(pool, how);
    }

    fn compressed(&self) -> Vec<(PoolId, u64, u64)> {
        let bytes = |n: i64| n.max(0) as u64 * BLOCK;
        let pools = self.meta.packed_pools().into_iter();
        pools.filter_map(|(pool, p)| Some((pool?, bytes(p.original), bytes(p.stored)))).collect()
    }

    fn prefetch(&mut self, hash: u32, off: u64) {
        self.meta.prefetch(hash, off / BLOCK);
    }

    fn prefetch_rest(&mut self) {
        self.meta.prefetch_rest();
    }

    fn release(&mut self, tag: Tag) {
        self.end_tag(tag);
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn frame_max(&self) -> usize {
        // A record of its own in the frame.
        self.log.ring().payload_max().saturating_sub(crate::txn::RECORD_BYTES)
    }

    fn is_short(&self) -> bool {
        self.room.is_short()
    }

    fn statfs(&self) -> Statfs {
        // What the next checkpoints release is available, and so is what the host fills.
        let coming = (self.space.lent() + self.space.coming()) * BLOCK;
        let total = self.space.total() * BLOCK;
        let metadata = (self.meta.alloc().page_blocks().max(0) as u64 + self.log.ring().blocks) * BLOCK;
        let used = total.saturating_sub(self.space.unreserved() * BLOCK + coming);
        let usage = self.meta.usage();
        Statfs {
            total,
            available: self.space.available() * BLOCK + coming,
            allocated: used.saturating_sub(self.space.metadata() * BLOCK),
            stored: usage.stored,
            omap: usage.omap,
            metadata,
        }
    }

    fn beside(&self, a: Cid, b: Cid) -> bool {
        let shard = |c| self.meta.coll(c).and_then(|c| self.meta.colls().get(c as usize)).map(|c| c.shard);
        shard(a).is_some_and(|s| shard(b) == Some(s))
    }

    fn collection_usage(&self, cid: Cid) -> (u64, u64, u64) {
        let u = self.meta.coll(cid).and_then(|c| self.meta.colls().get(c as usize)).map(|c| c.usage);
        u.map_or((0, 0, 0), |u| (u.objects, u.stored, u.omap))
    }
}
