//! Applying a transaction: each operation becomes changes, which enter the open frame and memory at once.

use super::Store;
use super::early::{Early, whole};
use super::pack::{Apart, Packs};
use super::read::Resident;
use super::suspend::Job;
use crate::api::{Event, ReadError, Tag};
use crate::compress::Compression;
use crate::key::{Cid, Oid};
use crate::layout::{BLOCK, BLOCK_LEN};
use crate::meta::change::{Change, Encoder, Marks, What};
use crate::meta::map::{BLOCKS_MAX, block_crc, block_crc_from, block_seed};
use crate::meta::object::Object;
use crate::space::Runs;
use crate::txn::{Op, Transaction};
use base::buf::AlignedBuf;
use base::crc::is_crc32c;
use base::{Eversion, Summed, errno};
use bytes::Bytes;
use smallvec::SmallVec;
use std::sync::Arc;

/// A transaction being applied.
pub(super) struct Run<'a> {
    pub(super) tag: Tag,
    enc: Encoder<'a>,
    /// Blocks still reserved.
    pub(super) reserved: u64,
    /// Blocks allocated by `prepare` and not yet used.
    pub(super) pool: Vec<(u64, u32)>,
    /// Early data of large writes.
    early: Vec<Early>,
    pub(super) version: u32,
    /// Checksums of what the running operation writes, if they are known.
    sums: Option<Arc<Summed>>,
    packs: Packs,
    /// Compression of what the running operation writes.
    pack: Option<Compression>,
    /// Extents that the running operation cuts, and the one that it has read last.
    pub(super) apart: SmallVec<[Apart; 1]>,
    pub(super) seen: Option<Apart>,
}

impl<'a> Run<'a> {
    /// An overwrite with `reserved` blocks, whose record is at the end of `payload`.
    pub(super) fn of_overwrite(tag: Tag, payload: &'a mut Vec<u8>, reserved: u64, version: u32) -> Self {
        Self {
            tag,
            enc: Encoder::go_on(payload, Marks::default()),
            reserved,
            pool: Vec::new(),
            early: Vec::new(),
            version,
            sums: None,
            packs: Packs::new(),
            pack: None,
            apart: SmallVec::new(),
            seen: None,
        }
    }

    /// Takes the checksums of what the next operation writes.
    pub(super) fn knows(&mut self, sums: Option<Arc<Summed>>) {
        self.sums = sums;
    }

    /// Blocks that are left of those reserved, at the end.
    pub(super) fn left(self) -> u64 {
        self.reserved
    }

    fn of(job: &mut Job, enc: Encoder<'a>) -> Self {
        Self {
            tag: job.tag,
            enc,
            reserved: job.reserved,
            pool: std::mem::take(&mut job.pool),
            early: std::mem::take(&mut job.early),
            version: job.version,
            sums: None,
            packs: std::mem::take(&mut job.packs),
            pack: None,
            apart: SmallVec::new(),
            seen: None,
        }
    }

    /// Checksums of the blocks of `data`, whose first one becomes block `first` of the object with this birth id.
    fn crcs(&self, birth: u64, first: u64, data: &[u8]) -> Crcs {
        self.known(birth, first, data).unwrap_or_else(|| {
            let blocks = (first..).zip(data.chunks_exact(BLOCK_LEN));
            blocks.map(|(b, chunk)| block_crc(birth, b, self.version, chunk)).collect()
        })
    }

    /// The same without a pass over the data, if the receiver of the data has summed these blocks.
    fn known(&self, birth: u64, first: u64, data: &[u8]) -> Option<Crcs> {
        let known = self.sums.as_ref()?.blocks_of(data)?;
        let crcs: Crcs = (first..).zip(known).map(|(b, crc)| block_crc_from(birth, b, self.version, *crc)).collect();
        debug_assert!(
            (first..)
                .zip(&crcs)
                .zip(data.chunks_exact(BLOCK_LEN))
                .all(|((b, crc), chunk)| { is_crc32c(*crc, block_seed(birth, b, self.version), chunk) })
        );
        Some(crcs)
    }
}

/// Checksums of the blocks of one write.
type Crcs = SmallVec<[u32; 2]>;

/// Result of applying an operation. An error is a case that `prepare` should have excluded; the store then
/// fails instead of writing half a transaction.
pub(super) type Applied = Result<(), String>;

impl Store {
    pub(super) fn perform_txn(&mut self, tag: Tag, txn: Transaction) {
        if let Some(s) = &mut self.suspended {
            s.queue(tag, txn);
            return;
        }
        if let Some(e) = self.failed() {
            self.end_tag(tag);
            self.events.push_back(Event::Durable(tag, Err(e)));
            return;
        }
        if !self.tags.get(tag).is_some_and(|p| p.prepared) {
            // The caller did not prepare the transaction: prepare it now, and refuse it if it would have to
            // wait.
            if let Err(e) = self.prepare_txn(tag, &txn, false) {
                let e = if let ReadError::Io { errno, .. } = e { errno } else { errno::EAGAIN };
                self.end_tag(tag);
                self.events.push_back(Event::Durable(tag, Err(e)));
                return;
            }
        }
        self.counters.txns += 1;
        let changes = self.changes;
        let taken = self.tags.get_mut(tag).map(|p| {
            let same = p.changes == changes;
            let log = std::mem::take(&mut p.log_bytes);
            let blocks = (std::mem::take(&mut p.pool), std::mem::take(&mut p.early));
            let reserved = (std::mem::take(&mut p.reserved), std::mem::take(&mut p.for_meta));
            (reserved, blocks, (p.sure, same), log, std::mem::take(&mut p.packs))
        });
        let ((mut reserved, for_meta), (pool, early), (sure, same), mut log, packs) = taken.unwrap_or_default();
        self.room.hold(for_meta);
        self.log.promise(log, 0);
        if !same {
            let given = pool.iter().chain(early.iter().flat_map(|e| &e.runs)).map(|r| u64::from(r.1)).sum::<u64>();
            (reserved, log) = self.reserve_anew(tag, &txn.ops, &packs, (reserved, reserved + given, log));
        }
        if !self.log.fits(log) {
            self.close_frame();
        }
        let (at, version) = self.begin_record();
        let marks = Marks::default();
        self.go_on(Job {
            tag,
            ops: txn.ops.into_iter(),
            sure: sure && same,
            at,
            log_bytes: log,
            marks,
            reserved,
            pool,
            early,
            packs,
            version,
        });
    }

    /// Applies the rest of a transaction.
    pub(super) fn go_on(&mut self, mut job: Job) {
        let tag = job.tag;
        let mut payload = self.log.take_payload();
        let enc = Encoder::go_on(&mut payload, std::mem::take(&mut job.marks));
        let mut run = Run::of(&mut job, enc);
        let mut applied = Ok(());
        while applied.is_ok() {
            if !job.sure
                && let Some(op) = job.ops.as_slice().first()
            {
                match self.op_ready(tag, op, &run.pool) {
                    Ok(()) => {}
                    Err(ReadError::Io { what, .. }) => {
                        applied = Err(what);
                        break;
                    }
                    Err(_) => {
                        let Run { enc, reserved, pool, early, packs, .. } = run;
                        (job.marks, job.reserved, job.pool, job.early) = (enc.marks(), reserved, pool, early);
                        job.packs = packs;
                        self.log.put_payload(payload);
                        return self.suspend(job);
                    }
                }
            }
            let Some(op) = job.ops.next() else { break };
            run.pack = run.packs.iter().find(|p| p.0 == job.ops.len()).map(|p| p.1);
            applied = self.perform(&mut run, op);
            if let Some(what) = self.meta.take_damage() {
                applied = Err(what);
            }
        }
        for (first, n) in std::mem::take(&mut run.pool) {
            self.space.release(first, n);
        }
        let left = run.left();
        self.end_record(tag, payload, job.at, job.log_bytes, left, applied);
        self.end_tag(tag);
    }

    fn emit(&mut self, run: &mut Run<'_>, change: Change) -> Applied {
        run.enc.put(&change);
        self.meta.apply(change).map_err(str::to_owned)
    }

    /// Records a change of the object in slot `id`, like `emit` but without finding the object again.
    pub(super) fn emit_object(&mut self, run: &mut Run<'_>, cid: Cid, oid: &Oid, id: u32, what: What) -> Applied {
        run.enc.put_object(cid, oid, &what);
        self.meta.apply_object(id, what);
        Ok(())
    }

    /// Records and applies an entry of a PG's log.
    pub(super) fn append_log(&mut self, run: &mut Run<'_>, cid: Cid, version: Eversion, entry: &[u8]) -> Applied {
        run.enc.put_log(cid, version, entry);
        self.meta.apply_log(cid, version, entry).map_err(str::to_owned)
    }

    fn find(&mut self, cid: Cid, oid: &Oid) -> Option<u32> {
        let coll = self.meta.coll(cid)?;
        self.meta.find(coll, oid)
    }

    /// Slot of the object, which is created if absent.
    fn ensure(&mut self, run: &mut Run<'_>, cid: Cid, oid: &Oid) -> Result<u32, String> {
        if let Some(id) = self.find(cid, oid) {
            return Ok(id);
        }
        let nid = self.new_nid();
        self.emit(run, Change::Create { cid, oid: oid.clone(), nid })?;
        self.find(cid, oid).ok_or_else(|| "an object just made is absent".to_owned())
    }

    fn new_nid(&mut self) -> u64 {
        self.meta.numbers().new_nid()
    }

    pub(super) fn object_at(&self, id: u32) -> Result<&Object, String> {
        self.meta.objects().get(id as usize).ok_or_else(|| "object slot is empty".to_owned())
    }

    pub(super) fn perform(&mut self, run: &mut Run<'_>, op: Op) -> Applied {
        match op {
            Op::MakeCollection { cid, bits } => {
                let num = self.new_nid();
                let shard = self.meta.numbers().home(cid);
                self.emit(run, Change::MakeCollection { cid, bits, num, shard })
            }
            Op::MakeBeside { cid, beside, bits } => {
                let num = self.new_nid();
                self.emit(run, Change::MakeBeside { cid, beside, bits, num })
            }
            Op::RemoveCollection { cid } => self.emit(run, Change::RemoveCollection { cid }),
            Op::Split { cid, dst, first, bits } => {
                let num = self.new_nid();
                self.emit(run, Change::Split { cid, dst, first, bits, num })
            }
            Op::Merge { cid, dst, first, bits } => self.emit(run, Change::Merge { cid, dst, first, bits }),
            Op::Touch { cid, oid } => self.ensure(run, cid, &oid).map(|_| ()),
            Op::Write { cid, oid, off, data, sums } => {
                run.sums = sums;
                let id = self.ensure(run, cid, &oid)?;
                let to = off + data.len() as u64;
                self.with_rest(run, cid, &oid, id, off, to, |s, run| s.write(run, cid, &oid, id, off, data))
            }
            Op::Zero { cid, oid, off, len } => {
                let id = self.ensure(run, cid, &oid)?;
                if len == 0 {
                    return Ok(());
                }
                let size = self.object_at(id)?.size.max(off + len);
                let to = off + len;
                self.with_rest(run, cid, &oid, id, off, to, |s, run| s.clear(run, cid, &oid, id, off, to, size))
            }
            Op::Truncate { cid, oid, size } => {
                let id = self.ensure(run, cid, &oid)?;
                let old = self.object_at(id)?.size;
                if size < old {
                    let to = old.next_multiple_of(BLOCK);
                    let cut = |s: &mut Self, run: &mut Run<'_>| s.clear(run, cid, &oid, id, size, to, size);
                    self.with_rest(run, cid, &oid, id, size, to, cut)?;
                } else if size > old {
                    self.emit_object(run, cid, &oid, id, What::Unmap { block: 0, n: 0, size })?;
                }
                Ok(())
            }
            Op::Remove { cid, oid } => match self.find(cid, &oid) {
                Some(_) => self.emit(run, Change::Remove { cid, oid }),
                None => Ok(()),
            },
            Op::Clone { cid, src, dst } => {
                if src == dst || self.find(cid, &src).is_none() {
                    return Ok(());
                }
                let nid = self.new_nid();
                self.emit(run, Change::Clone { cid, src, dst, nid })
            }
            Op::Rename { cid, src, dst } => {
                if src == dst || self.find(cid, &src).is_none() {
                    return Ok(());
                }
                self.emit(run, Change::Rename { cid, src, dst })
            }
            Op::CloneRange { cid, src, dst, src_off, len, dst_off } => {
                self.clone_range(run, cid, &src, &dst, src_off, len, dst_off)
            }
            Op::SetAttrs { cid, oid, attrs } => self.of_object(run, cid, oid, true, What::SetAttrs { attrs }),
            Op::RmAttr { cid, oid, name } => self.of_object(run, cid, oid, false, What::RmAttr { name }),
            Op::RmAttrs { cid, oid } => self.of_object(run, cid, oid, false, What::RmAttrs),
            Op::OmapSet { cid, oid, entries } => self.of_object(run, cid, oid, true, What::OmapSet { entries }),
            Op::OmapRmKeys { cid, oid, keys } => self.of_object(run, cid, oid, false, What::OmapRmKeys { keys }),
            Op::OmapRmRange { cid, oid, first, last } => {
                self.of_object(run, cid, oid, false, What::OmapRmRange { first, last })
            }
            Op::OmapClear { cid, oid } => self.of_object(run, cid, oid, false, What::OmapClear),
            Op::OmapSetHeader { cid, oid, header } => self.of_object(run, cid, oid, true, What::OmapHeader { header }),
            Op::SetAllocHint { cid, oid, object_size, write_size, flags } => {
                self.of_object(run, cid, oid, true, What::Hint { size: object_size, write: write_size, flags })
            }
            Op::LogAppend { cid, version, entry } => self.append_log(run, cid, version, &entry),
            Op::LogTrim { cid, to } => self.emit(run, Change::LogTrim { cid, to }),
            Op::LogRewind { cid, to } => self.emit(run, Change::LogRewind { cid, to }),
            Op::PgInfo { cid, info } => self.emit(run, Change::Info { cid, info }),
            Op::Keep { cid, version } => self.emit(run, Change::Keep { cid, version }),
            Op::DropKept { cid, to } => self.emit(run, Change::DropKept { cid, to }),
            Op::Undo { cid, oid, version } => {
                let Some(id) = self.find(cid, &oid) else { return Ok(()) };
                match self.meta.size_kept(id, version).ok_or("an undo record is not in memory")? {
                    Some(size) => {
                        let changed = self.take_apart_for_undo(run, id, version)?;
                        self.emit(run, Change::Undo { cid, oid: oid.clone(), version, size })?;
                        self.put_rest(run, cid, &oid, id, &changed)
                    }
                    None => Ok(()),
                }
            }
        }
    }

    /// Changes only the object itself. An absent object is created if `make`, else nothing happens.
    fn of_object(&mut self, run: &mut Run<'_>, cid: Cid, oid: Oid, make: bool, what: What) -> Applied {
        let id = if make { Some(self.ensure(run, cid, &oid)?) } else { self.find(cid, &oid) };
        match id {
            Some(id) => self.emit_object(run, cid, &oid, id, what),
            None => Ok(()),
        }
    }

    /// Current content of a block; `None` for a hole.
    fn content(&mut self, run: &mut Run<'_>, id: u32, block: u64) -> Result<Option<Bytes>, String> {
        let birth = self.object_at(id)?.birth;
        let (ptr, crc) = self.meta.map_get(id, block);
        if ptr.is_hole() {
            return Ok(None);
        }
        if ptr.is_packed() {
            return self.packed_content(run, id, block).map(Some);
        }
        match self.resident(run.tag, birth, block, ptr, crc) {
            Resident::Data(b) => Ok(Some(b)),
            _ => Err(format!("block {block} of object slot {id} is not in memory")),
        }
    }

    pub(super) fn write(&mut self, run: &mut Run<'_>, cid: Cid, oid: &Oid, id: u32, off: u64, data: Bytes) -> Applied {
        if data.is_empty() {
            return Ok(());
        }
        if let Some(i) = run.early.iter().position(|e| e.is(cid, oid, off, &data)) {
            let early = run.early.swap_remove(i);
            return self.map_early(run, cid, oid, id, off, data, early.runs);
        }
        if let Some(how) = run.pack.take() {
            return self.write_packed(run, cid, oid, id, off, data, how);
        }
        let size = self.object_at(id)?.size;
        let end = off + data.len() as u64;
        let (b0, b1) = (off / BLOCK, (end - 1) / BLOCK + 1);
        let new_size = size.max(end);
        let whole = off.is_multiple_of(BLOCK) && end.is_multiple_of(BLOCK);
        if whole && (data.as_ptr() as usize).is_multiple_of(BLOCK_LEN) {
            return self.put_blocks(run, cid, oid, id, b0, data, None, new_size, false);
        }
        let len = ((b1 - b0) * BLOCK) as usize;
        if whole {
            let birth = self.object_at(id)?.birth;
            let mut buf = AlignedBuf::dirty(len);
            let crcs = if let Some(known) = run.known(birth, b0, &data) {
                buf.copy_from_slice(&data);
                known
            } else {
                // Copies and checksums block by block, while each is in the CPU cache.
                let mut crcs = Crcs::with_capacity(len / BLOCK_LEN);
                for (b, (to, from)) in (b0..).zip(buf.chunks_exact_mut(BLOCK_LEN).zip(data.chunks_exact(BLOCK_LEN))) {
                    to.copy_from_slice(from);
                    crcs.push(block_crc(birth, b, run.version, to));
                }
                crcs
            };
            return self.put_blocks(run, cid, oid, id, b0, buf.freeze(), Some(crcs), new_size, false);
        }
        let mut buf = AlignedBuf::zeroed(len);
        if !off.is_multiple_of(BLOCK)
            && let Some(old) = self.content(run, id, b0)?
        {
            buf[..BLOCK_LEN].copy_from_slice(&old);
        }
        // The old content of the last block is not needed if the object ends where the data does or before.
        let first_done = !off.is_multiple_of(BLOCK) && b1 - b0 == 1;
        if !end.is_multiple_of(BLOCK)
            && end < size
            && !first_done
            && let Some(old) = self.content(run, id, b1 - 1)?
        {
            let at = buf.len() - BLOCK_LEN;
            buf[at..].copy_from_slice(&old);
        }
        let at = (off - b0 * BLOCK) as usize;
        buf[at..at + data.len()].copy_from_slice(&data);
        self.put_blocks(run, cid, oid, id, b0, buf.freeze(), None, new_size, true)
    }

    /// Maps the early blocks of a write, and writes the partial blocks at its ends.
    #[allow(clippy::too_many_arguments, reason = "all of it names one write")]
    fn map_early(
        &mut self,
        run: &mut Run<'_>,
        cid: Cid,
        oid: &Oid,
        id: u32,
        off: u64,
        data: Bytes,
        runs: Runs,
    ) -> Applied {
        let (b0, b1) = whole(off, data.len() as u64);
        let (from, to) = ((b0 * BLOCK - off) as usize, (b1 * BLOCK - off) as usize);
        self.write(run, cid, oid, id, off, data.slice(..from))?;
        let o = self.object_at(id)?;
        let (birth, size) = (o.birth, o.size.max(b1 * BLOCK));
        let crcs = run.crcs(birth, b0, data.get(from..to).unwrap_or_default());
        self.emit_object(run, cid, oid, id, What::Map { block: b0, runs, crcs, version: run.version, size })?;
        self.write(run, cid, oid, id, b1 * BLOCK, data.slice(to..))
    }

    /// Writes whole blocks to new places and maps them.
    #[allow(clippy::too_many_arguments, reason = "all of it names one write")]
    fn put_blocks(
        &mut self,
        run: &mut Run<'_>,
        cid: Cid,
        oid: &Oid,
        id: u32,
        block: u64,
        data: Bytes,
        crcs: Option<Crcs>,
        size: u64,
        small: bool,
    ) -> Applied {
        let birth = self.object_at(id)?.birth;
        let runs = self.places(run, data.len() as u64 / BLOCK)?;
        let crcs = crcs.unwrap_or_else(|| run.crcs(birth, block, &data));
        if small {
            // The next small write is likely to touch an edge of this one.
            let mut at = 0;
            for (first, k) in &runs {
                for b in *first..*first + u64::from(*k) {
                    if at == 0 || at + BLOCK_LEN == data.len() {
                        self.cache.put(crate::meta::map::Ptr::new(b, run.version), &data[at..at + BLOCK_LEN]);
                    }
                    at += BLOCK_LEN;
                }
            }
        }
        self.send(&runs, data);
        self.emit_object(run, cid, oid, id, What::Map { block, runs, crcs, version: run.version, size })
    }

    /// Zeroes `[from, to)`: unmaps whole blocks, rewrites mapped edges. The object's size becomes `size`.
    #[allow(clippy::too_many_arguments, reason = "all of it names one range")]
    fn clear(&mut self, run: &mut Run<'_>, cid: Cid, oid: &Oid, id: u32, from: u64, to: u64, size: u64) -> Applied {
        let (first, last) = (from.div_ceil(BLOCK), to / BLOCK);
        let n = last.saturating_sub(first);
        let old = self.object_at(id)?.size;
        // The size changes last: the edges are those of the old extent.
        let keep = old.min(size);
        let edge = |s: &mut Self, run: &mut Run<'_>, block: u64, a: usize, b: usize| -> Applied {
            let Some(old) = s.content(run, id, block)? else { return Ok(()) };
            let mut buf = AlignedBuf::zeroed(BLOCK_LEN);
            buf.copy_from_slice(&old);
            if let Some(r) = buf.get_mut(a..b) {
                r.fill(0);
            }
            s.put_blocks(run, cid, oid, id, block, buf.freeze(), None, keep, true)
        };
        let (head, tail) = (from % BLOCK, to % BLOCK);
        if head != 0 && from / BLOCK == to / BLOCK {
            edge(self, run, from / BLOCK, head as usize, tail as usize)?;
        } else {
            if head != 0 {
                edge(self, run, from / BLOCK, head as usize, BLOCK_LEN)?;
            }
            if tail != 0 {
                edge(self, run, to / BLOCK, 0, tail as usize)?;
            }
        }
        if n > 0 || self.object_at(id)?.size != size {
            self.emit_object(run, cid, oid, id, What::Unmap { block: first, n, size })?;
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "a range in two objects")]
    fn clone_range(
        &mut self,
        run: &mut Run<'_>,
        cid: Cid,
        src: &Oid,
        dst: &Oid,
        src_off: u64,
        len: u64,
        dst_off: u64,
    ) -> Applied {
        let Some(s) = self.find(cid, src) else { return Ok(()) };
        let d = self.ensure(run, cid, dst)?;
        let end = src_off.saturating_add(len).min(self.object_at(s)?.size);
        if end <= src_off {
            return Ok(());
        }
        let len = end - src_off;
        let (so, d_) = (self.object_at(s)?, self.object_at(d)?);
        let size = d_.size.max(dst_off + len);
        let shares = so.birth == d_.birth && s != d && src_off == dst_off;
        // The parts to copy: everything, or the edges around whole shared blocks.
        let (b0, b1) = (src_off.div_ceil(BLOCK), end / BLOCK);
        // An extent is shared as a whole or not at all.
        let (b0, b1) = (self.meta.cut(s, b0).map_or(b0, |e| e.end), self.meta.cut(s, b1).map_or(b1, |e| e.first));
        let whole = if shares && b0 < b1 { (b0, b1) } else { (BLOCKS_MAX, BLOCKS_MAX) };
        let mut pieces: Vec<(u64, u64)> = Vec::new();
        self.meta.map_each(s, src_off / BLOCK, end.div_ceil(BLOCK), |b, _, _| {
            if b < whole.0 || b >= whole.1 {
                pieces.push(((b * BLOCK).max(src_off), ((b + 1) * BLOCK).min(end)));
            }
        });
        self.take_apart(run, cid, dst, d, dst_off, dst_off + len)?;
        // The source is read first, since source and target may be the same object.
        let mut copies: Vec<(u64, Bytes)> = Vec::with_capacity(pieces.len());
        for (from, to) in pieces {
            if let Some(c) = self.content(run, s, from / BLOCK)? {
                let at = (from % BLOCK) as usize;
                copies.push((from - src_off + dst_off, c.slice(at..at + (to - from) as usize)));
            }
        }
        self.clear(run, cid, dst, d, dst_off, dst_off + len, size)?;
        if whole.0 < whole.1 {
            let (block, n) = (whole.0, whole.1 - whole.0);
            self.emit(run, Change::Share { cid, src: src.clone(), dst: dst.clone(), block, n, size })?;
        }
        for (at, data) in copies {
            self.write(run, cid, dst, d, at, data)?;
        }
        self.put_rest(run, cid, dst, d, &[(dst_off / BLOCK, (dst_off + len).div_ceil(BLOCK))])
    }
}
