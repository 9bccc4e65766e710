//! Reading: from memory if the data is in flight or was read for this plan, else from the device.
//!
//! Invariant: data that a plan has read is verified against the object's current map when it is used. If the
//! block was freed and rewritten meanwhile, the check fails and the block is read once more. Only a mismatch of
//! fresh data is an error.
//!
//! Tests: `tests/long_reads.rs` (`a_read_that_is_overtaken_by_a_write_is_repeated`,
//! `memory_of_any_size_gives_right_data_beside_changes`).

use super::early::Early;
use super::pack::Packs;
use super::suspend::wake;
use super::{Role, Store, cache};
use crate::api::{Event, ReadError, Tag};
use crate::layout::{BLOCK, BLOCK_LEN};
use crate::meta::map::{Ptr, block_crc, block_seed};
use base::buf::AlignedBuf;
use base::crc::{SEED, append, crc32c};
use base::device::IoKind;
use base::errno::{self, Errno};
use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::collections::BTreeMap;

/// Largest read request.
const READ_BLOCKS_MAX: u64 = 1024;
/// Most repetitions of a read after a checksum mismatch.
const RETRIES_MAX: u8 = 2;

/// Map entries of the blocks of a read.
type Entries = SmallVec<[(Ptr, u32); 4]>;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A run of blocks that was read for a plan.
#[derive(Debug)]
struct Pin {
    n: u32,
    /// `None` until the read has completed.
    data: Option<Result<Bytes, Errno>>,
    /// The run has blocks that the plan did not ask for.
    gaps: bool,
}

/// Runs of blocks read for a plan, by first block. Runs do not overlap: only missing blocks are read.
#[derive(Debug, Default)]
struct Pins(BTreeMap<u64, Pin>);

impl Pins {
    /// The run that contains a block.
    fn of(&self, block: u64) -> Option<(u64, &Pin)> {
        let (first, pin) = self.0.range(..=block).next_back()?;
        (block < first + u64::from(pin.n)).then_some((*first, pin))
    }
}

/// Runs of missing blocks from which on neighbours are read together.
const MERGE_RUNS: usize = 8;
/// Most blocks between two such neighbours (32 KiB).
const MERGE_GAP: u64 = 8;

/// State of a tag until its release.
#[derive(Debug, Default)]
pub(super) struct TagState {
    pub(super) id: u64,
    pub(super) outstanding: u32,
    pins: Pins,
    /// Metadata pages pinned for the plan: slot and `uniq`.
    pub(super) pages: Vec<(u32, u64)>,
    /// Bytes of metadata that the plan has brought. `let_in` is set while an admitted plan has yet to ask for them.
    pub(super) brought: usize,
    pub(super) let_in: bool,
    retries: u8,
    /// Runs are read apart, because a read with blocks in between has failed.
    apart: bool,
    /// Data comes from the device even if it is in memory.
    pub(super) from_device: bool,
    /// Slot of the object that was read last, so that a repeated plan need not look it up.
    pub(super) object: Option<u32>,
    /// Blocks reserved by `prepare`, and the number of times that it waited for free ones.
    pub(super) reserved: u64,
    pub(super) waits_for_space: u32,
    /// Early data of large writes, and requests for it in flight.
    pub(super) early: Vec<Early>,
    pub(super) writing: u32,
    /// Writes of the transaction that are compressed.
    pub(super) packs: Packs,
    /// Blocks reserved for the metadata that the transaction will make dirty.
    pub(super) for_meta: u64,
    /// Log bytes promised to the plan.
    pub(super) log_bytes: usize,
    /// Blocks allocated by `prepare` from the reserved ones.
    pub(super) pool: Vec<(u64, u32)>,
    pub(super) prepared: bool,
    /// True if each operation finds all it needs whatever the earlier ones do, as long as the store's `changes`
    /// is unchanged.
    pub(super) sure: bool,
    pub(super) changes: u64,
}

impl TagState {
    /// The state of that number, which has read nothing.
    pub(super) fn new(id: u64) -> Self {
        Self { id, ..Self::default() }
    }
}

/// State of a block in memory.
pub(super) enum Resident {
    Data(Bytes),
    /// Not in memory; true if a read is under way.
    Missing(bool),
    Bad(Errno, &'static str),
}

/// Checksum of the data of whole blocks from `b0` on, from those in the map.
fn sum_of(birth: u64, b0: u64, map: &[(Ptr, u32)]) -> u32 {
    let hole = OnceCell::new();
    (b0..).zip(map).fold(SEED, |sum, (b, (ptr, crc))| {
        if ptr.is_hole() {
            let zeros = *hole.get_or_init(|| crc32c(SEED, &ZEROS[..BLOCK_LEN]));
            append(sum, SEED, zeros, BLOCK_LEN)
        } else {
            append(sum, block_seed(birth, b, ptr.version()), *crc, BLOCK_LEN)
        }
    })
}

fn zeros(len: usize) -> Bytes {
    if len <= ZEROS.len() { Bytes::from_static(&ZEROS[..len]) } else { AlignedBuf::zeroed(len).freeze().slice(..len) }
}

impl Store {
    pub(super) fn tag_state(&mut self, tag: Tag) -> &mut TagState {
        self.tags.of(tag)
    }

    pub(super) fn end_tag(&mut self, tag: Tag) {
        if let Some(p) = self.tags.remove(tag) {
            self.space.unreserve(p.reserved + p.for_meta);
            self.log.promise(p.log_bytes, 0);
            for (first, n) in p.pool {
                self.space.release(first, n);
            }
            self.unpin(&p.pages);
            self.needs.ended(p.brought);
            if !p.early.is_empty() {
                self.drop_early(tag, p.id, p.early);
            }
        }
        self.room.forget(tag);
        if let Some(s) = &mut self.suspended {
            s.forget(tag);
        }
        if self.needs.waits_no_more(tag) {
            self.let_in();
        }
    }

    pub(super) fn read_done(&mut self, tag: Tag, plan: u64, first: u64, n: u32, result: Result<Bytes, Errno>) {
        let Some(p) = self.tags.get_mut(tag).filter(|p| p.id == plan) else { return };
        let Some(pin) = p.pins.0.get_mut(&first).filter(|x| x.n == n && x.data.is_none()) else { return };
        let whole = |b: Bytes| if b.len() as u64 == u64::from(n) * BLOCK { Ok(b) } else { Err(errno::EIO) };
        pin.data = Some(result.and_then(whole));
        p.outstanding -= 1;
        if p.outstanding == 0 && p.writing == 0 && !wake(&mut self.suspended, tag) {
            self.events.push_back(Event::Ready(tag));
        }
    }

    /// Starts a read for a plan.
    fn fetch(&mut self, tag: Tag, first: u64, n: u64, gaps: bool) {
        let mut at = first;
        while at < first + n {
            let k = (first + n - at).min(READ_BLOCKS_MAX) as u32;
            let p = self.tag_state(tag);
            p.outstanding += 1;
            p.pins.0.insert(at, Pin { n: k, data: None, gaps });
            let plan = p.id;
            self.counters.reads += 1;
            let kind = IoKind::Read { off: at * BLOCK, len: k * BLOCK as u32 };
            self.request(Role::Read { tag, plan, first: at, n: k }, kind);
            at += u64::from(k);
        }
    }

    /// Looks a block up in memory and verifies it.
    pub(super) fn resident(&mut self, tag: Tag, birth: u64, block: u64, ptr: Ptr, crc: u32) -> Resident {
        if let Some(b) = self.log.in_flight(ptr.phys()) {
            return Resident::Data(b);
        }
        let good = |b: &[u8]| block_crc(birth, block, ptr.version(), b) == crc;
        if let Some(p) = self.tags.get_mut(tag) {
            let phys = ptr.phys();
            if let Some((first, pin)) = p.pins.of(phys) {
                match &pin.data {
                    None => return Resident::Missing(true),
                    // The block in between may be the unreadable one.
                    Some(Err(_)) if pin.gaps => {
                        p.pins.0.remove(&first);
                        p.apart = true;
                        return Resident::Missing(false);
                    }
                    Some(Err(e)) => return Resident::Bad(*e, "read failed"),
                    Some(Ok(d)) => {
                        let at = ((phys - first) * BLOCK) as usize;
                        let b = d.slice(at..at + BLOCK_LEN);
                        if good(&b) {
                            return Resident::Data(b);
                        }
                        if p.retries >= RETRIES_MAX {
                            return Resident::Bad(errno::EIO, "checksum mismatch");
                        }
                        p.retries += 1;
                        p.pins.0.remove(&first);
                        return Resident::Missing(false);
                    }
                }
            }
        }
        if self.reads_device(tag) {
            return Resident::Missing(false);
        }
        match self.cache.get(ptr) {
            Some(b) if good(&b) => Resident::Data(b),
            _ => self.cache.run(birth, block, &[(ptr, crc)]).map_or(Resident::Missing(false), Resident::Data),
        }
    }

    /// True if a plan reads past the cache.
    pub(super) fn reads_device(&self, tag: Tag) -> bool {
        self.tags.get(tag).is_some_and(|p| p.from_device)
    }

    /// Pins a block for a plan.
    pub(super) fn pin(&mut self, tag: Tag, ptr: Ptr, data: Bytes) {
        let p = self.tag_state(tag);
        let phys = ptr.phys();
        if p.pins.of(phys).is_none() {
            p.pins.0.insert(phys, Pin { n: 1, data: Some(Ok(data)), gaps: false });
        }
    }

    /// Starts reads for runs of blocks and returns `Wait`. Objects that share blocks may miss the same ones. Of many runs,
    /// neighbours are read together: each request costs more than the blocks in between.
    pub(super) fn wait_for(&mut self, tag: Tag, mut missing: Vec<(u64, u32)>) -> ReadError {
        missing.sort_unstable();
        let many = missing.len() >= MERGE_RUNS && self.tags.get(tag).is_none_or(|p| !p.apart);
        let mut run: Option<(u64, u64, bool)> = None;
        for (first, n) in missing {
            let end = first + u64::from(n);
            match &mut run {
                Some(r) if first <= r.1 => r.1 = r.1.max(end),
                Some(r) if many && first - r.1 <= MERGE_GAP && !self.has_pins(tag, r.1, first) => {
                    (r.1, r.2) = (end, true);
                }
                _ => {
                    if let Some((first, end, gaps)) = run.replace((first, end, false)) {
                        self.fetch(tag, first, end - first, gaps);
                    }
                }
            }
        }
        if let Some((first, end, gaps)) = run {
            self.fetch(tag, first, end - first, gaps);
        }
        ReadError::Wait
    }

    /// True if a plan has read blocks of a range.
    fn has_pins(&self, tag: Tag, first: u64, end: u64) -> bool {
        let Some(p) = self.tags.get(tag) else { return false };
        p.pins.of(first).is_some() || p.pins.0.range(first..end).next().is_some()
    }

    /// Error for an object that has lost part of its map or omap.
    pub(super) fn damaged_object(&mut self, id: u32) -> ReadError {
        let o = self.meta.objects().get(id as usize);
        let what = o.map_or_else(String::new, |o| {
            format!("object {} of {:?} lost metadata of its own", o.oid.hobj, self.meta.cid_of(o.coll))
        });
        tracing::error!(what, "unreadable object");
        ReadError::Io { what, errno: errno::EIO }
    }

    pub(super) fn bad_block(&mut self, id: u32, block: u64, ptr: Ptr, errno: Errno, why: &str) -> ReadError {
        self.counters.bad_blocks += 1;
        let o = self.meta.objects().get(id as usize);
        let (cid, name) = o.map_or((String::new(), String::new()), |o| {
            (format!("{:?}", self.meta.cid_of(o.coll)), o.oid.hobj.to_string())
        });
        let what = format!("object {name} of {cid}, block {block} (device block {}): {why}", ptr.phys());
        tracing::error!(what, "unreadable block");
        ReadError::Io { what, errno }
    }

    /// Reads a range of an object. With the data comes its checksum, if it is whole blocks of one run.
    pub(super) fn read_object(
        &mut self,
        tag: Tag,
        id: u32,
        off: u64,
        len: u64,
    ) -> Result<(Bytes, Option<u32>), ReadError> {
        let Some(o) = self.meta.objects().get(id as usize) else { return Err(ReadError::NoObject) };
        let end = off.saturating_add(len).min(o.size);
        if off >= end {
            return Ok((Bytes::new(), None));
        }
        let birth = o.birth;
        let (b0, b1) = (off / BLOCK, (end - 1) / BLOCK + 1);
        let n = b1 - b0;
        self.with_meta(tag, |m| m.need_map(id, b0, b1, false).then_some(()))?;
        let mut map: Entries = SmallVec::from_elem((Ptr::HOLE, 0), n as usize);
        self.meta.map_each(id, b0, b1, |b, p, k| {
            if let Some(e) = map.get_mut((b - b0) as usize) {
                *e = (p, k);
            }
        });
        let ptr = map.first().map_or(Ptr::HOLE, |e| e.0);
        let one_run =
            (0..).zip(&map).all(|(i, (p, _))| if ptr.is_hole() { p.is_hole() } else { p.place() == ptr.place() + i });
        let one_run = one_run && !ptr.is_packed();
        if one_run && ptr.is_hole() {
            return Ok((zeros((end - off) as usize), None));
        }
        if one_run && n <= READ_BLOCKS_MAX && !self.log.overlaps(ptr.phys(), n) {
            match self.read_run(tag, birth, b0, &map) {
                Some(Ok((b, sum))) => {
                    let (from, to) = ((off - b0 * BLOCK) as usize, (end - b0 * BLOCK) as usize);
                    let sum = (to - from == b.len()).then_some(sum);
                    return Ok((b.slice(from..to), sum));
                }
                Some(Err(e)) => return Err(e),
                None => {}
            }
        }
        if n > cache::READ_BLOCKS_MAX
            && let Some((data, sum)) = self.cached_run(tag, birth, b0, &map)
        {
            let (from, to) = ((off - b0 * BLOCK) as usize, (end - b0 * BLOCK) as usize);
            let sum = (to - from == data.len()).then_some(sum);
            return Ok((data.slice(from..to), sum));
        }
        self.read_pieces(tag, id, birth, off, end, &map)
    }

    /// Fast path: one run of blocks, with its checksum, read for this plan or to be read now. `None` leaves the read to
    /// the general path.
    #[allow(clippy::type_complexity, reason = "data, its checksum, and how a read ends")]
    fn read_run(
        &mut self,
        tag: Tag,
        birth: u64,
        b0: u64,
        map: &[(Ptr, u32)],
    ) -> Option<Result<(Bytes, u32), ReadError>> {
        let (n, ptr) = (map.len() as u64, map.first()?.0);
        let Some(p) = self.tags.get(tag).filter(|p| !p.pins.0.is_empty()) else {
            if let Some(b) = self.cached_run(tag, birth, b0, map) {
                return Some(Ok(b));
            }
            self.fetch(tag, ptr.phys(), n, false);
            return Some(Err(ReadError::Wait));
        };
        let (first, pin) = p.pins.of(ptr.phys()).filter(|(first, p)| ptr.phys() + n <= first + u64::from(p.n))?;
        let Some(Ok(data)) = &pin.data else { return None };
        let at = ((ptr.phys() - first) * BLOCK) as usize;
        let data = data.slice(at..at + (n * BLOCK) as usize);
        let mut sum = SEED;
        for ((b, (p, crc)), chunk) in (b0..).zip(map).zip(data.chunks_exact(BLOCK_LEN)) {
            let seed = block_seed(birth, b, p.version());
            if crc32c(seed, chunk) != *crc {
                return None;
            }
            sum = append(sum, seed, *crc, BLOCK_LEN);
        }
        let whole = u64::from(pin.n) == n;
        if p.from_device {
            return Some(Ok((data, sum)));
        }
        if n <= cache::READ_BLOCKS_MAX {
            self.keep(map, &data);
        } else if whole {
            self.cache.keep_read(birth, b0, map, &data);
        }
        Some(Ok((data, sum)))
    }

    /// A whole run from the cache, with its checksum. Nothing is copied unless all of it is there.
    fn cached_run(&mut self, tag: Tag, birth: u64, b0: u64, map: &[(Ptr, u32)]) -> Option<(Bytes, u32)> {
        if self.reads_device(tag) {
            return None;
        }
        self.cached_blocks(birth, b0, map).or_else(|| {
            let data = self.cache.run(birth, b0, map)?;
            self.counters.cached_blocks += map.len() as u64;
            Some((data, sum_of(birth, b0, map)))
        })
    }

    /// A short run from the copies of its blocks.
    fn cached_blocks(&mut self, birth: u64, b0: u64, map: &[(Ptr, u32)]) -> Option<(Bytes, u32)> {
        if map.len() as u64 > cache::READ_BLOCKS_MAX {
            return None;
        }
        let mut blocks: SmallVec<[Bytes; 4]> = SmallVec::new();
        let mut sum = SEED;
        for (b, (ptr, crc)) in (b0..).zip(map) {
            let seed = block_seed(birth, b, ptr.version());
            let data = self.cache.get(*ptr).filter(|d| crc32c(seed, d) == *crc)?;
            sum = append(sum, seed, *crc, BLOCK_LEN);
            blocks.push(data);
        }
        self.counters.cached_blocks += blocks.len() as u64;
        Some((if blocks.len() == 1 { blocks.remove(0) } else { blocks.concat().into() }, sum))
    }

    /// Adds blocks that were read and verified to the cache, if it wants them.
    pub(super) fn keep(&mut self, map: &[(Ptr, u32)], data: &[u8]) {
        (0..map.len()).for_each(|i| self.cache.keep_block(map, data, i));
    }

    /// General path: any mixture of holes, data in flight and data on the device.
    fn read_pieces(
        &mut self,
        tag: Tag,
        id: u32,
        birth: u64,
        off: u64,
        end: u64,
        map: &[(Ptr, u32)],
    ) -> Result<(Bytes, Option<u32>), ReadError> {
        let b0 = off / BLOCK;
        let mut missing: Vec<(u64, u32)> = Vec::new();
        let mut under_way = false;
        let mut out = BytesMut::with_capacity(map.len() * BLOCK_LEN);
        for (b, (ptr, crc)) in (b0..).zip(map.iter().copied()) {
            if ptr.is_hole() {
                out.extend_from_slice(&ZEROS[..BLOCK_LEN]);
                continue;
            }
            if ptr.is_packed() {
                return self.read_packed(tag, id, birth, off, end).map(|data| (data, None));
            }
            match self.resident(tag, birth, b, ptr, crc) {
                Resident::Data(d) => {
                    if missing.is_empty() {
                        out.extend_from_slice(&d);
                    }
                }
                Resident::Missing(true) => under_way = true,
                Resident::Missing(false) => match missing.last_mut() {
                    Some(l) if l.0 + u64::from(l.1) == ptr.phys() => l.1 += 1,
                    _ => missing.push((ptr.phys(), 1)),
                },
                Resident::Bad(e, why) => return Err(self.bad_block(id, b, ptr, e, why)),
            }
        }
        if under_way || !missing.is_empty() {
            return Err(self.wait_for(tag, missing));
        }
        let data = out.freeze();
        let read = self.tags.get(tag).is_some_and(|p| !p.pins.0.is_empty() && !p.from_device);
        if read && map.len() as u64 > cache::READ_BLOCKS_MAX {
            self.cache.keep_read(birth, b0, map, &data);
        }
        let from = (off - b0 * BLOCK) as usize;
        let part = data.slice(from..from + (end - off) as usize);
        let sum =
            (part.len() == data.len() && map.len() as u64 > cache::READ_BLOCKS_MAX).then(|| sum_of(birth, b0, map));
        Ok((part, sum))
    }
}
