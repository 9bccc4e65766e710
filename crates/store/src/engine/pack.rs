//! Compressed extents: which writes make them, how they are read, and what a change does that cuts one.
//!
//! A write of whole blocks is compressed in pieces on a grid of the object ([`Compression`]). Each piece that becomes
//! small enough is an extent: fewer device blocks than blocks of the object (`meta::map`, `meta::packed`). It is
//! decompressed as a whole whenever some of it is read. A change of part of an extent writes the rest of it again, as
//! plain blocks, in the same record. So an extent is always whole, and holds no garbage. If the change is kept for undoing,
//! all of the extent becomes plain before it, so that undoing it restores only what it changed.
//!
//! `prepare` decides what is compressed, reads the extents that the transaction will cut, and reserves room for their
//! blocks as if nothing were compressed. Compressed data is not written early (`early`).
//!
//! Before the first extent of a store, a checkpoint makes a root with the feature's bit durable.

use super::Store;
use super::config::Packing;
use super::perform::{Applied, Run};
use super::read::Resident;
use super::sources::Sources;
use crate::api::{ReadError, Tag};
use crate::compress::{Compression, Effort, Packer};
use crate::key::{Cid, Oid};
use crate::layout::{BLOCK, BLOCK_LEN, COMPRESSION};
use crate::meta::Meta;
use crate::meta::change::What;
use crate::meta::map::{EXTENT_MAX, PACKED, Ptr, UNKEPT, block_crc};
use crate::meta::packed::Extent;
use crate::space::push_run;
use crate::txn::{Op, RECORD_BYTES};
use base::PoolId;
use base::errno::EIO;
use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

/// Settings for writes of a transaction, each with the number of operations behind it.
pub(super) type Packs = SmallVec<[(usize, Compression); 1]>;

/// Log bytes of the change that writes the rest of an extent, besides its blocks.
const REST_BYTES: usize = 64;
/// More log bytes of an extent than of plain blocks, for each of its blocks; the fewest blocks are two.
const EXTENT_BYTES: usize = 24;

/// How a store compresses data.
#[derive(Default)]
pub(super) struct Compressor {
    /// Settings of pools; few have any.
    pools: Vec<(PoolId, Compression)>,
    packer: Box<Packer>,
    effort: Effort,
    counts: Packing,
}

impl Compressor {
    /// True if no pool is compressed.
    pub(super) fn is_off(&self) -> bool {
        self.pools.is_empty()
    }

    /// Begins another turn.
    pub(super) fn end_turn(&mut self) {
        self.effort = Effort::FULL;
    }

    /// The stored form of a piece, if it becomes small enough within what the turn may take.
    fn pack(&mut self, how: &Compression, piece: &[u8]) -> Option<Bytes> {
        let Some(by) = self.effort.spend(how, piece.len()) else {
            self.counts.hurried += 1;
            return None;
        };
        self.counts.hurried += u64::from(by != *how);
        let stored = self.packer.pack(&by, piece);
        *if stored.is_some() { &mut self.counts.packed } else { &mut self.counts.unpackable } += 1;
        stored
    }

    /// Counts of the pieces that were to be compressed.
    pub(super) fn counts(&self) -> Packing {
        self.counts
    }
}

/// An extent that the running operation cuts, or reads.
#[derive(Debug)]
pub(super) struct Apart {
    id: u32,
    extent: Extent,
    data: Bytes,
}

/// Parts of a read in order: number of blocks, and how they are stored.
enum Part {
    Hole,
    Plain(Bytes),
    Packed(Extent, Box<SmallVec<[Bytes; 16]>>),
}

/// True if the operation changes blocks of the bytes `[from, to)` of the object, or makes other names for it.
fn may_cut(op: &Op, cid: Cid, oid: &Oid, from: u64, to: u64) -> bool {
    let named = match op {
        Op::Clone { src, dst, .. } | Op::Rename { src, dst, .. } => src == oid || dst == oid,
        Op::CloneRange { src, .. } => src == oid,
        Op::Undo { oid: o, .. } => o == oid,
        // The object may belong to another collection from now on.
        Op::Split { .. } | Op::Merge { .. } => return true,
        _ => false,
    };
    let overlaps = |(c, o, first, end): (Cid, &Oid, u64, u64)| {
        c == cid && o == oid && first / BLOCK < to.div_ceil(BLOCK) && end.div_ceil(BLOCK) > from / BLOCK
    };
    named && op.cid() == cid || changed(op).is_some_and(overlaps)
}

/// Bytes that an operation changes, of the object it changes.
fn changed(op: &Op) -> Option<(Cid, &Oid, u64, u64)> {
    match op {
        Op::Write { cid, oid, off, data, .. } if !data.is_empty() => Some((*cid, oid, *off, off + data.len() as u64)),
        Op::Zero { cid, oid, off, len } if *len > 0 => Some((*cid, oid, *off, off + len)),
        Op::Truncate { cid, oid, size } => Some((*cid, oid, *size, u64::MAX)),
        Op::CloneRange { cid, dst, dst_off, len, .. } if *len > 0 => Some((*cid, dst, *dst_off, dst_off + len)),
        _ => None,
    }
}

impl Meta {
    /// Extents of which a change of the bytes `[from, to)` leaves a part.
    fn cut_by(&mut self, id: u32, from: u64, to: u64) -> SmallVec<[Extent; 2]> {
        let mut out: SmallVec<[Extent; 2]> = SmallVec::new();
        let size = self.objects().get(id as usize).map_or(0, |o| o.size);
        if !self.packs() || from >= to || from >= size {
            return out;
        }
        for block in [from / BLOCK, (to.min(size) - 1) / BLOCK] {
            if let Some(e) = self.extent(id, block)
                && (e.first * BLOCK < from || e.end * BLOCK > to)
                && !out.contains(&e)
            {
                out.push(e);
            }
        }
        out
    }

    /// Extents of which undoing a version leaves a part. Only an undo out of order does.
    fn cut_by_undo(&mut self, id: u32, ranges: &[(u64, u64)]) -> SmallVec<[Extent; 2]> {
        let mut out: SmallVec<[Extent; 2]> = SmallVec::new();
        for b in ranges.iter().flat_map(|r| [r.0, r.1]) {
            if let Some(e) = self.cut(id, b)
                && !out.contains(&e)
            {
                out.push(e);
            }
        }
        out
    }
}

impl Store {
    /// Sets how data of a pool is compressed from now on; `None`: not at all.
    pub(super) fn compress_pool(&mut self, pool: PoolId, how: Option<Compression>) {
        self.compressor.pools.retain(|(p, _)| *p != pool);
        self.compressor.pools.extend(how.map(|h| (pool, h)));
    }

    /// The writes of a transaction that are compressed. No later operation of the transaction may need or cut them.
    /// `Wait` until the store may have extents.
    pub(super) fn plan_packs(&mut self, tag: Tag, ops: &[Op]) -> Result<Packs, ReadError> {
        let mut packs = Packs::new();
        for (at, op) in ops.iter().enumerate() {
            let Op::Write { cid: cid @ Cid::Pg(pg), oid, off, data, .. } = op else { continue };
            let end = off + data.len() as u64;
            let Some((_, how)) = self.compressor.pools.iter().find(|(p, _)| *p == pg.pg.pool) else { continue };
            let how = *how;
            if (data.len() as u64) < how.blocks_min() * BLOCK {
                continue;
            }
            let (before, behind) = (ops.iter().take(at), ops.iter().skip(at + 1));
            let told = before.rev().find_map(|o| match o {
                Op::SetAllocHint { cid: c, oid: i, flags, .. } if c == cid && i == oid => Some(*flags),
                _ => None,
            });
            let hints = match told {
                Some(flags) => flags,
                None => self.hints_of(tag, *cid, oid)?,
            };
            if how.wants(hints) && !behind.clone().any(|o| may_cut(o, *cid, oid, *off, end)) {
                packs.push((behind.count(), how));
            }
        }
        if !packs.is_empty() && !self.meta.packs() {
            self.sb.features.incompat |= COMPRESSION;
            return Err(self.park(tag));
        }
        Ok(packs)
    }

    /// Flags of an object's hint.
    fn hints_of(&mut self, tag: Tag, cid: Cid, oid: &Oid) -> Result<u32, ReadError> {
        let Some(coll) = self.meta.coll(cid) else { return Ok(0) };
        let id = self.with_meta(tag, |m| m.look(coll, oid))?;
        let hint = id.and_then(|id| self.meta.objects().get(id as usize)?.hint);
        Ok(hint.map_or(0, |h| h.2))
    }

    /// Most blocks and log bytes by which extents raise the cost of a transaction.
    pub(super) fn pack_cost(&self, ops: &[Op], packs: &Packs, cut: u64) -> (u64, usize) {
        if !self.meta.packs() {
            return (0, 0);
        }
        let behind = |p: &(usize, Compression)| ops.len().checked_sub(p.0 + 1).and_then(|at| ops.get(at));
        let blocks = packs.iter().filter_map(behind).map(|o| o.cost().0 as usize).sum::<usize>();
        let mut rest = cut;
        // What the map will be like after an undo, or without its pages, is not known.
        let undo = ops.iter().position(|o| matches!(o, Op::Undo { .. }));
        let unknown = |at: usize| self.cfg.prepare_less || undo.is_some_and(|u| u < at);
        let changes = (0..ops.len()).filter(|at| ops.get(*at).is_some_and(|o| changed(o).is_some() && unknown(*at)));
        rest += changes.count() as u64 * 2 * EXTENT_MAX;
        // Blocks of a rest may all be in runs of their own.
        (rest, blocks * EXTENT_BYTES + rest as usize * (16 + REST_BYTES / 2))
    }

    /// Raises what is reserved for a transaction, since others were submitted after it was prepared: it may cut extents
    /// that were not there. `given` has its reserved blocks, all blocks it has, and its log bytes.
    pub(super) fn reserve_anew(
        &mut self,
        tag: Tag,
        ops: &[Op],
        packs: &Packs,
        (mut reserved, has, log): (u64, u64, usize),
    ) -> (u64, usize) {
        if !self.meta.packs() {
            return (reserved, log);
        }
        self.needs.set_applying(true);
        let most = ops.len() as u64 * 2 * EXTENT_MAX;
        let cut = self.bring_edges(tag, ops).unwrap_or(most);
        self.needs.set_applying(false);
        let more = self.pack_cost(ops, packs, cut);
        let (blocks, bytes) = ops.iter().map(Op::cost).fold((0, RECORD_BYTES), |s, c| (s.0 + c.0, s.1 + c.1));
        let lack = (blocks + more.0).saturating_sub(has);
        if lack > 0 && self.space.reserve(lack) {
            reserved += lack;
        }
        (reserved, log.max(bytes + more.1))
    }

    /// Asks for the extents that operation `at` cuts. Calls `f` with the object and each of them. False if pages are
    /// missing.
    pub(super) fn find_cuts(
        m: &mut Meta,
        all: &Sources<'_>,
        at: usize,
        f: &mut impl FnMut(&mut Meta, u32, Extent),
    ) -> bool {
        let (mut ok, ops) = (true, all.ops);
        if let Some(Op::Undo { cid, oid, version }) = ops.get(at) {
            let Some(coll) = m.coll(*cid) else { return true };
            match m.look(coll, oid) {
                None => return false,
                Some(None) => {}
                Some(Some(id)) => {
                    let Some(ranges) = m.kept_ranges(id, *version) else { return false };
                    let all = ranges.iter().fold(true, |ok, r| ok & m.need_map(id, r.0, r.1, false));
                    if !all {
                        return false;
                    }
                    m.cut_by_undo(id, &ranges).into_iter().for_each(|e| f(m, id, e));
                }
            }
            return true;
        }
        let Some((cid, oid, from, to)) = ops.get(at).and_then(changed) else { return true };
        for byte in [from, to - 1] {
            let place = (byte / BLOCK * BLOCK, byte / BLOCK * BLOCK + 1);
            all.find(at, cid, oid, place, &mut |cid, oid, block, _| {
                let Some(coll) = m.coll(cid) else { return };
                match m.look(coll, oid) {
                    None => ok = false,
                    Some(None) => {}
                    Some(Some(id)) => {
                        let last = m.objects().get(id as usize).map_or(0, |o| o.size.saturating_sub(1) / BLOCK);
                        let block = block.min(last);
                        if m.need_map(id, block, block + 1, false) {
                            let (here, beyond) = (
                                |e: &Extent| e.first * BLOCK < to && e.end * BLOCK > from,
                                |e: &Extent| e.first * BLOCK < from || e.end * BLOCK > to,
                            );
                            let cut = m.extent(id, block).filter(|e| here(e) && beyond(e));
                            cut.into_iter().for_each(|e| f(m, id, e));
                        } else {
                            ok = false;
                        }
                    }
                }
            });
        }
        ok
    }

    /// Content of an extent whose blocks are in memory.
    fn unpacked(&mut self, tag: Tag, id: u32, e: Extent) -> Result<Bytes, String> {
        let birth = self.meta.objects().get(id as usize).map_or(0, |o| o.birth);
        let mut stored = BytesMut::with_capacity(e.stored as usize * BLOCK_LEN);
        for b in e.first..e.first + e.stored {
            let (ptr, crc) = self.meta.map_get(id, b);
            match self.resident(tag, birth, b, ptr, crc) {
                Resident::Data(d) => stored.extend_from_slice(&d),
                _ => return Err(format!("block {b} of object slot {id} is not in memory")),
            }
        }
        let data = self.compressor.packer.unpack(&stored, e.end - e.first);
        data.ok_or_else(|| format!("the compressed extent at block {} of object slot {id} is malformed", e.first))
    }

    /// Content of a block of an extent, for the running operation.
    pub(super) fn packed_content(&mut self, run: &mut Run<'_>, id: u32, block: u64) -> Result<Bytes, String> {
        let has = |a: &Apart| a.id == id && a.extent.first <= block && block < a.extent.end;
        let at = match run.apart.iter().chain(&run.seen).position(has) {
            Some(at) => at,
            None => {
                let Some(extent) = self.meta.extent(id, block) else {
                    return Err(format!("block {block} of object slot {id} is of no whole extent"));
                };
                let data = self.unpacked(run.tag, id, extent)?;
                run.seen = Some(Apart { id, extent, data });
                run.apart.len()
            }
        };
        let a = run.apart.iter().chain(&run.seen).nth(at).ok_or("an extent is gone")?;
        let at = ((block - a.extent.first) * BLOCK) as usize;
        Ok(a.data.slice(at..at + BLOCK_LEN))
    }

    /// Takes the content of extents that the operation will cut, or makes them plain.
    pub(super) fn take_apart(
        &mut self,
        run: &mut Run<'_>,
        cid: Cid,
        oid: &Oid,
        id: u32,
        from: u64,
        to: u64,
    ) -> Applied {
        let cut = self.meta.cut_by(id, from, to);
        self.keep_apart(run, id, cut)?;
        if self.meta.keeps(cid) { self.put_rest(run, cid, oid, id, &[]) } else { Ok(()) }
    }

    fn keep_apart(&mut self, run: &mut Run<'_>, id: u32, cut: SmallVec<[Extent; 2]>) -> Applied {
        for extent in cut {
            let data = self.unpacked(run.tag, id, extent)?;
            run.apart.push(Apart { id, extent, data });
        }
        Ok(())
    }

    /// Runs an operation that changes the bytes `[from, to)` of an object, and writes what it leaves of extents.
    #[allow(clippy::too_many_arguments, reason = "all of it names one range")]
    pub(super) fn with_rest(
        &mut self,
        run: &mut Run<'_>,
        cid: Cid,
        oid: &Oid,
        id: u32,
        from: u64,
        to: u64,
        f: impl FnOnce(&mut Self, &mut Run<'_>) -> Applied,
    ) -> Applied {
        if !self.meta.packs() {
            return f(self, run);
        }
        self.take_apart(run, cid, oid, id, from, to)?;
        f(self, run)?;
        self.put_rest(run, cid, oid, id, &[(from / BLOCK, to.div_ceil(BLOCK))])
    }

    /// The same for an undo. Returns the ranges that it changes.
    pub(super) fn take_apart_for_undo(
        &mut self,
        run: &mut Run<'_>,
        id: u32,
        version: base::Eversion,
    ) -> Result<Vec<(u64, u64)>, String> {
        if !self.meta.packs() {
            return Ok(Vec::new());
        }
        let ranges = self.meta.kept_ranges(id, version).ok_or("an undo record is not in memory")?;
        let cut = self.meta.cut_by_undo(id, &ranges);
        self.keep_apart(run, id, cut)?;
        Ok(ranges)
    }

    /// Writes what an operation left of the extents taken apart: all blocks outside the ranges that it changed.
    pub(super) fn put_rest(
        &mut self,
        run: &mut Run<'_>,
        cid: Cid,
        oid: &Oid,
        id: u32,
        changed: &[(u64, u64)],
    ) -> Applied {
        run.seen = None;
        for a in std::mem::take(&mut run.apart) {
            let size = self.object_at(id)?.size;
            let mut next = a.extent.first;
            let mut ranges: SmallVec<[(u64, u64); 4]> = changed.iter().copied().collect();
            ranges.sort_unstable();
            ranges.push((a.extent.end, a.extent.end));
            for (from, to) in ranges {
                let end = from.clamp(next, a.extent.end);
                if next < end {
                    let at = |b: u64| ((b - a.extent.first) * BLOCK) as usize;
                    self.put_plain(run, cid, oid, id, next, a.data.slice(at(next)..at(end)), size)?;
                }
                next = next.max(to.min(a.extent.end));
            }
        }
        Ok(())
    }

    /// Writes blocks of an extent plain. They are what they were, so what they replace is not kept.
    #[allow(clippy::too_many_arguments, reason = "all of it names one write")]
    fn put_plain(
        &mut self,
        run: &mut Run<'_>,
        cid: Cid,
        oid: &Oid,
        id: u32,
        block: u64,
        data: Bytes,
        size: u64,
    ) -> Applied {
        let birth = self.object_at(id)?.birth;
        let runs = self.places(run, data.len() as u64 / BLOCK)?;
        let blocks = (block..).zip(data.chunks_exact(BLOCK_LEN));
        let crcs = blocks.map(|(b, d)| block_crc(birth, b, run.version, d)).collect();
        self.send(&runs, data);
        let version = run.version | UNKEPT;
        self.emit_object(run, cid, oid, id, What::Map { block, runs, crcs, version, size })
    }

    /// Writes data, the whole pieces of it compressed if they become small enough.
    #[allow(clippy::too_many_arguments, reason = "all of it names one write")]
    pub(super) fn write_packed(
        &mut self,
        run: &mut Run<'_>,
        cid: Cid,
        oid: &Oid,
        id: u32,
        off: u64,
        data: Bytes,
        how: Compression,
    ) -> Applied {
        let (grid, end) = (how.grid(), off + data.len() as u64);
        let (mut block, last) = (off.div_ceil(BLOCK), end / BLOCK);
        // Start of what is written plain, and not yet.
        let mut plain = off;
        let part = |from: u64, to: u64| data.slice((from - off) as usize..(to - off) as usize);
        while block < last {
            let next = ((block / grid + 1) * grid).min(last);
            let piece = part(block * BLOCK, next * BLOCK);
            if next - block >= how.blocks_min()
                && let Some(stored) = self.compressor.pack(&how, &piece)
            {
                self.write(run, cid, oid, id, plain, part(plain, block * BLOCK))?;
                self.put_extent(run, cid, oid, id, block, next, stored)?;
                plain = next * BLOCK;
            }
            block = next;
        }
        self.write(run, cid, oid, id, plain, part(plain, end))
    }

    #[allow(clippy::too_many_arguments, reason = "all of it names one extent")]
    fn put_extent(
        &mut self,
        run: &mut Run<'_>,
        cid: Cid,
        oid: &Oid,
        id: u32,
        block: u64,
        end: u64,
        stored: Bytes,
    ) -> Applied {
        let o = self.object_at(id)?;
        let (birth, size, version) = (o.birth, o.size.max(end * BLOCK), run.version | PACKED);
        let (n, k) = (end - block, stored.len() as u64 / BLOCK);
        let mut crcs: SmallVec<[u32; 2]> =
            (block..).zip(stored.chunks_exact(BLOCK_LEN)).map(|(b, d)| block_crc(birth, b, version, d)).collect();
        crcs.resize(n as usize, 0);
        let mut runs = self.places(run, k)?;
        self.send(&runs, stored);
        push_run(&mut runs, k, (n - k) as u32);
        self.emit_object(run, cid, oid, id, What::Map { block, runs, crcs, version, size })
    }

    /// Reads a range that has extents. All of the map around it is in memory.
    pub(super) fn read_packed(
        &mut self,
        tag: Tag,
        id: u32,
        birth: u64,
        off: u64,
        end: u64,
    ) -> Result<Bytes, ReadError> {
        let (first, last) = self.meta.around(id, off / BLOCK, (end - 1) / BLOCK + 1);
        let mut map: Vec<(Ptr, u32)> = vec![(Ptr::HOLE, 0); (last - first) as usize];
        self.meta.map_each(id, first, last, |b, p, k| {
            if let Some(e) = map.get_mut((b - first) as usize) {
                *e = (p, k);
            }
        });
        let (mut parts, mut missing, mut under_way) = (Vec::new(), Vec::new(), false);
        let mut b = first;
        while b < last {
            let ptr = map.get((b - first) as usize).map_or(Ptr::HOLE, |e| e.0);
            let extent = if ptr.is_packed() { self.meta.extent(id, b) } else { None };
            if ptr.is_packed() && extent.is_none_or(|e| e.first != b || e.end > last) {
                return Err(self.bad_block(id, b, ptr, EIO, "a compressed extent is not whole"));
            }
            let stored = if ptr.is_hole() { 0 } else { extent.map_or(1, |e| e.stored) };
            let mut blocks: SmallVec<[Bytes; 16]> = SmallVec::new();
            for i in b..b + stored {
                let (ptr, crc) = map.get((i - first) as usize).copied().unwrap_or_default();
                match self.resident(tag, birth, i, ptr, crc) {
                    Resident::Data(d) => blocks.push(d),
                    Resident::Missing(true) => under_way = true,
                    Resident::Missing(false) => missing.push((ptr.phys(), 1)),
                    Resident::Bad(e, why) => return Err(self.bad_block(id, i, ptr, e, why)),
                }
            }
            parts.push((
                b,
                match (extent, blocks.first()) {
                    (Some(e), _) => Part::Packed(e, Box::new(blocks)),
                    (None, Some(d)) => Part::Plain(d.clone()),
                    (None, None) => Part::Hole,
                },
            ));
            b = extent.map_or(b + 1, |e| e.end);
        }
        if under_way || !missing.is_empty() {
            return Err(self.wait_for(tag, missing));
        }
        self.assemble_parts(tag, id, &map, parts, off, end)
    }

    /// Puts a read together, decompressing one extent at a time.
    fn assemble_parts(
        &mut self,
        tag: Tag,
        id: u32,
        map: &[(Ptr, u32)],
        parts: Vec<(u64, Part)>,
        off: u64,
        end: u64,
    ) -> Result<Bytes, ReadError> {
        let first = parts.first().map_or(0, |p| p.0);
        let mut out = BytesMut::with_capacity((end - off) as usize);
        for (b, part) in parts {
            let (data, n) = match part {
                Part::Hole => (None, 1),
                Part::Plain(d) => (Some(d), 1),
                Part::Packed(e, blocks) => {
                    let stored = blocks.concat();
                    let Some(d) = self.compressor.packer.unpack(&stored, e.end - e.first) else {
                        let ptr = map.get((b - first) as usize).map_or(Ptr::HOLE, |e| e.0);
                        return Err(self.bad_block(id, b, ptr, EIO, "malformed compressed data"));
                    };
                    if end - off <= super::cache::READ_BLOCKS_MAX * BLOCK && !self.reads_device(tag) {
                        let entries = map.get((b - first) as usize..).unwrap_or_default();
                        self.keep(entries.get(..e.stored as usize).unwrap_or_default(), &stored);
                    }
                    (Some(d), e.end - e.first)
                }
            };
            let (from, to) = ((b * BLOCK).max(off), ((b + n) * BLOCK).min(end));
            let at = (from - b * BLOCK) as usize;
            let len = (to - from) as usize;
            match data {
                Some(d) => out.extend_from_slice(d.get(at..at + len).unwrap_or_default()),
                None => out.resize(out.len() + len, 0),
            }
        }
        Ok(out.freeze())
    }
}
