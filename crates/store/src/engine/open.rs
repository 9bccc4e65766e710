//! Opening: superblock, roots, pages of the newest checkpoints, then the logs. Never a scan of the device.
//!
//! Replay follows the crash argument of docs/design/store-format.md: frames are taken while the chain holds; frames up to the
//! newest `durable_upto` seen were complete; later ones count only if the data they name is on the device. A hole inside
//! the durable part is corruption and refused by name. The end of the log is sealed with an empty frame before anything
//! else is written, so a tail that was cut off can never come back.

use super::device::drive;
use super::format::{probe, write_super};
use super::{Config, Device, FormatError, Replayed, Store};
use crate::api::Health;
use crate::layout::{BLK, Layout, RINGS_MAX, ROOT_BLOCKS, SHARDS, reactor_for};
use crate::meta::Meta;
use crate::meta::change::{self, Change, What};
use crate::meta::map::block_crc;
use crate::meta::tree::{Shard, Staged};
use crate::meta::used;
use crate::space::{Space, Stream};
use crate::superblock::{BlobPtr, Root, Superblock};
use crate::wal::{HEADER, Header, Position, Ring, short_uuid};
use base::crc::{SEED, crc32c};
use base::errno::{EIO, Errno};
use base::planted::{Bug, acts};
use bytes::{Bytes, BytesMut};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// Pages and log are read in pieces of about this many bytes.
const READ_BYTES: u64 = 4 << 20;
/// The first piece of a log: mostly all of it after an orderly stop.
const FIRST_READ_BYTES: u64 = 128 << 10;
/// Records for which pages are brought at once, and how often what is found asks for more: inner pages, leaves, what leaves
/// tell of.
const AHEAD: usize = 256;
const AHEAD_ROUNDS: usize = 8;
/// Collections looked at for one object of a frame that splits and joins them.
const FOLLOWED_MAX: usize = 64;
/// How far behind a break in the log later frames are looked for, to tell a torn tail from corruption.
const LOOK_AHEAD_BLOCKS: u64 = 4096;

/// Why a store did not open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// No usable superblock.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Stored structures contradict their checksums or each other.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// More reactors than a device can be split among.
    #[error("{0} reactors wanted, at most {RINGS_MAX} possible")]
    Reactors(u16),
    /// The device failed.
    #[error("device error {errno} reading {what}", errno = base::errno::name(*.0), what = .1)]
    Io(Errno, String),
}

impl OpenError {
    /// True if something stored can't be read, or is not what was stored: [`rebuild()`](super::rebuild()) may keep the rest.
    #[must_use]
    pub fn is_rot(&self) -> bool {
        matches!(self, Self::Damaged(_) | Self::Io(..))
    }
}

fn damaged<T>(what: impl Into<String>) -> Result<T, OpenError> {
    Err(OpenError::Damaged(what.into()))
}

/// Opens a store for `cfg.reactors` reactors: one [`Store`] each, in order.
pub fn open(dev: &mut dyn Device, cfg: &Config) -> Result<Vec<Store>, OpenError> {
    if cfg.reactors == 0 || cfg.reactors > RINGS_MAX {
        return Err(OpenError::Reactors(cfg.reactors));
    }
    let sb = probe(dev)?;
    if sb.rings != cfg.reactors {
        // Each log is replayed as it was written, apart from the others: a collection may have gone in one ring and come in
        // another one under the same name.
        for mut s in open_rings(dev, &Config { reactors: sb.rings, ..cfg.clone() }, sb.clone())? {
            s.request_checkpoint();
            drive(&mut s, dev);
            if let Health::Failed { what, errno } = s.health {
                return Err(OpenError::Io(errno, what));
            }
        }
    }
    open_rings(dev, cfg, sb)
}

fn open_rings(dev: &mut dyn Device, cfg: &Config, sb: Superblock) -> Result<Vec<Store>, OpenError> {
    let Some(layout) = sb.layout() else { return damaged("the superblock names an impossible size") };
    let space = Arc::new(Space::new(layout.space_start, layout.space_end));
    let mut metas: Vec<Meta> = (0..cfg.reactors).map(|i| Meta::new(layout, space.clone(), i, cfg.reactors)).collect();
    metas.iter_mut().for_each(|m| m.kids_max = cfg.kids_max.max(2));
    let same = sb.rings == cfg.reactors;

    let mut roots = Vec::new();
    for ring in 0..sb.rings {
        let root = newest_root(dev, &sb, &layout, ring)?;
        for (shard, level, loc) in &root.trees {
            let to = usize::from(reactor_for(u16::from(*shard), cfg.reactors));
            if let Some(s) = metas.get_mut(to).and_then(|m| m.shards.get_mut(usize::from(*shard))) {
                *s = Shard::stored(loc.clone(), *level);
            }
        }
        // With another number of rings the maps of all become the first one's, to be stored anew.
        if let Some(m) = metas.get_mut(if same { usize::from(ring) } else { 0 }) {
            m.page_blocks = m.page_blocks.wrapping_add(root.page_blocks);
            load_used(dev, &layout, &root, m, same)?;
        }
        roots.push(root);
    }
    space.recount();
    for m in &mut metas {
        for shard in 0..SHARDS as u8 {
            with_pages(dev, m, |m| m.need_colls(shard).then_some(()))?;
        }
    }
    let mut ends = Vec::new();
    for root in &roots {
        match metas.get_mut(usize::from(root.ring)).filter(|_| same) {
            Some(m) => ends.push(replay(dev, cfg, &sb, &layout, root, m)?),
            None => log_is_empty(dev, &sb, &layout, root)?,
        }
    }
    if !same {
        let lsn = roots.iter().map(|r| r.next_lsn).max().unwrap_or(1);
        ends = vec![LogEnd::fresh(lsn); metas.len()];
    }
    let mut stores = stores_of(cfg, &sb, &layout, &space, &roots, metas, ends);
    if same {
        for (s, root) in stores.iter_mut().zip(&roots) {
            s.checkpoint.root_seq = root.seq;
            s.checkpoint.newest = Some(root.clone());
            s.seal_log(dev)?;
        }
    } else {
        tracing::info!(from = sb.rings, to = stores.len(), "dividing the log among another number of reactors");
        relayout(dev, sb, &roots, &mut stores)?;
    }
    Ok(stores)
}

/// Stores of what was read, and their logs from where these end.
pub(super) fn stores_of(
    cfg: &Config,
    sb: &Superblock,
    layout: &Layout,
    space: &Arc<Space>,
    roots: &[Root],
    metas: Vec<Meta>,
    ends: Vec<LogEnd>,
) -> Vec<Store> {
    let next_nid = roots.iter().map(|r| r.next_nid).chain(metas.iter().map(|m| m.next_nid)).max().unwrap_or(1);
    let assemble = |(i, (mut m, end)): (u16, (Meta, LogEnd))| {
        m.next_nid = next_nid;
        m.replay = false;
        m.update_keep();
        Store::assemble(cfg, sb, layout, space.clone(), m, i, end)
    };
    (0..).zip(metas.into_iter().zip(ends)).map(assemble).collect()
}

/// Runs `f` until every page it wants is in memory.
pub(super) fn with_pages<T>(
    dev: &mut dyn Device,
    m: &mut Meta,
    mut f: impl FnMut(&mut Meta) -> Option<T>,
) -> Result<T, OpenError> {
    loop {
        m.want.clear();
        let got = f(m);
        m.attached.clear();
        if let Some(what) = m.bad.take() {
            return Err(OpenError::Damaged(what));
        }
        if let Some(t) = got {
            return Ok(t);
        }
        if !fetch_wanted(dev, m)? {
            return damaged("a tree of metadata has no end");
        }
    }
}

/// Reads the map of used blocks of a ring.
fn load_used(dev: &mut dyn Device, layout: &Layout, root: &Root, m: &mut Meta, keep: bool) -> Result<(), OpenError> {
    let mut pages = read_used(dev, &root.used, true)?;
    let mut places: Vec<(u32, used::Place)> = Vec::new();
    for ((i, _), buf) in root.used.iter().zip(pages.drain(..)) {
        let list =
            used::decode_index(*i, &buf).map_err(|e| OpenError::Damaged(format!("index of used blocks: {e}")))?;
        places.extend(list);
    }
    for (number, at) in &places {
        let inside = at.block >= layout.space_start && at.block < layout.space_end;
        if !inside || u64::from(*number) * used::SPAN >= layout.space_end {
            return damaged("the index of used blocks points outside the device");
        }
    }
    for batch in places.chunks((READ_BYTES / BLK) as usize) {
        for ((number, at), buf) in batch.iter().zip(read_used(dev, batch, false)?) {
            let bits = used::decode_bits(&buf).map_err(|e| OpenError::Damaged(format!("map of used blocks: {e}")))?;
            m.space.turn_over(*number, &bits);
            m.used.load(*number, bits, if keep { *at } else { used::Place::default() });
        }
    }
    for (i, at) in &root.used {
        if keep {
            m.used.load_index(*i, *at);
        }
    }
    if !keep {
        let old = places.iter().chain(&root.used).map(|(_, at)| (at.block, 1));
        let before = m.freed.len();
        m.freed.extend(old);
        let n = (m.freed.len() - before) as u64;
        m.freed_blocks += n;
        m.page_blocks = m.page_blocks.wrapping_sub(n as i64);
    }
    Ok(())
}

fn read_used(dev: &mut dyn Device, places: &[(u32, used::Place)], index: bool) -> Result<Vec<Bytes>, OpenError> {
    let ranges: Vec<(u64, u64)> = places.iter().map(|p| (p.1.block * BLK, BLK)).collect();
    let mut out = Vec::with_capacity(places.len());
    for (buf, (_, at)) in dev.read_many(&ranges).into_iter().zip(places) {
        let buf = buf.map_err(|e| OpenError::Io(e, format!("map of used blocks at block {}", at.block)))?;
        if used::crc_of(&buf, index) != at.crc {
            return damaged(format!("the map of used blocks fails its checksum at block {}", at.block));
        }
        out.push(buf);
    }
    Ok(out)
}

/// Where replay ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogEnd {
    head: Position,
    tail: u64,
    used: u64,
    pub(super) lsn: u64,
    replayed: Replayed,
}

impl LogEnd {
    /// Of a log that begins anew.
    pub(super) fn fresh(lsn: u64) -> Self {
        let head = Position { pos: 0, seq: 1, chain: 0 };
        Self { head, tail: 0, used: 0, lsn, replayed: Replayed::default() }
    }
}

pub(super) fn newest_root(
    dev: &mut dyn Device,
    sb: &Superblock,
    layout: &Layout,
    ring: u16,
) -> Result<Root, OpenError> {
    let mut best: Option<Root> = None;
    let slots = [(0, 0), (0, 1), (1, 0), (1, 1)];
    let ranges = slots.map(|(parity, copy)| (layout.root_slot(ring, parity, copy) * BLK, ROOT_BLOCKS * BLK));
    for (buf, (_, copy)) in dev.read_many(&ranges).into_iter().zip(slots) {
        // An unreadable copy is as good as a torn one: its twin decides.
        let Ok(buf) = buf else { continue };
        if let Some(r) = Root::decode(&buf, &sb.uuid, ring, copy, layout)
            && r.layout_epoch == sb.layout_epoch
            && best.as_ref().is_none_or(|b| b.seq < r.seq)
        {
            best = Some(r);
        }
    }
    let foreign = |r: &Root| r.trees.iter().find(|t| reactor_for(u16::from(t.0), sb.rings) != ring).map(|t| t.0);
    match best {
        Some(r) => match foreign(&r) {
            Some(shard) => damaged(format!("the root of ring {ring} names a tree of shard {shard}")),
            None => Ok(r),
        },
        None => damaged(format!("no valid root for ring {ring}")),
    }
}

pub(super) fn read_blobs(dev: &mut dyn Device, ptrs: &[BlobPtr], what: &str) -> Result<Vec<Bytes>, OpenError> {
    let ranges: Vec<(u64, u64)> =
        ptrs.iter().flat_map(|p| p.runs.iter().map(|r| (r.0 * BLK, u64::from(r.1) * BLK))).collect();
    let mut parts = dev.read_many(&ranges).into_iter();
    let mut out = Vec::with_capacity(ptrs.len());
    for p in ptrs {
        let mut buf = BytesMut::new();
        for (first, _) in &p.runs {
            match parts.next() {
                Some(Ok(b)) => buf.extend_from_slice(&b),
                Some(Err(e)) => return Err(OpenError::Io(e, format!("{what} at block {first}"))),
                None => return damaged("a read without result"),
            }
        }
        let Some(data) = buf.get(..p.len as usize).filter(|d| crc32c(SEED, d) == p.crc) else {
            return damaged(format!("{what} at block {:?} fails its checksum", p.runs.first().map(|r| r.0)));
        };
        out.push(Bytes::copy_from_slice(data));
    }
    Ok(out)
}

/// Reads a ring in pieces, the later the larger.
struct RingReader<'a> {
    dev: &'a mut dyn Device,
    start: u64,
    blocks: u64,
    /// Blocks of the next piece.
    piece: u64,
    /// First block of what is buffered.
    at: u64,
    buf: Bytes,
}

impl RingReader<'_> {
    /// Blocks `[pos, pos + n)`, cut at the ring's end.
    fn get(&mut self, pos: u64, n: u64) -> Result<Bytes, OpenError> {
        let n = n.min(self.blocks.saturating_sub(pos));
        let have = self.buf.len() as u64 / BLK;
        if pos < self.at || pos + n > self.at + have {
            let len = n.max(self.piece).min(self.blocks - pos);
            self.piece = (self.piece * 2).min(READ_BYTES / BLK);
            self.buf = match self.read(pos, len) {
                // A block that can't be read must not hide those before it: nobody asked for it yet, and perhaps nobody will.
                Err(_) if len > n => {
                    self.piece = n.max(1);
                    self.read(pos, n)?
                }
                r => r?,
            };
            self.at = pos;
        }
        let from = ((pos - self.at) * BLK) as usize;
        Ok(self.buf.slice(from..from + (n * BLK) as usize))
    }

    fn read(&mut self, pos: u64, len: u64) -> Result<Bytes, OpenError> {
        let at = self.start + pos;
        match self.dev.read_many(&[(at * BLK, len * BLK)]).pop() {
            Some(Ok(b)) if b.len() as u64 == len * BLK => Ok(b),
            Some(Ok(_)) => Err(OpenError::Io(EIO, format!("log at block {at}: short"))),
            Some(Err(e)) => Err(OpenError::Io(e, format!("log at block {at}"))),
            None => damaged("a read without result"),
        }
    }
}

/// A whole frame that continues the log.
struct Frame {
    header: Header,
    payload: Bytes,
    /// Position behind it.
    next: u64,
}

struct LogReader<'a> {
    ring: RingReader<'a>,
    index: u16,
    epoch: u32,
    uuid: u64,
}

impl<'a> LogReader<'a> {
    fn new(dev: &'a mut dyn Device, sb: &Superblock, layout: &Layout, root: &Root) -> Self {
        let (start, blocks) = layout.ring(root.ring, sb.rings);
        let ring = RingReader { dev, start, blocks, piece: FIRST_READ_BYTES / BLK, at: 0, buf: Bytes::new() };
        Self { ring, index: root.ring, epoch: sb.layout_epoch, uuid: short_uuid(&sb.uuid) }
    }

    fn ours(&self, h: &Header) -> bool {
        h.ring == self.index && h.layout_epoch == self.epoch && h.uuid == self.uuid
    }

    fn frame_at(&mut self, pos: u64, p: &Position) -> Result<Option<Frame>, OpenError> {
        if pos >= self.ring.blocks {
            return Ok(None);
        }
        let head = self.ring.get(pos, 1)?;
        let Some(h) = Header::decode(&head) else { return Ok(None) };
        if !self.ours(&h) || h.seq != p.seq || h.prev != p.chain || pos + h.blocks() > self.ring.blocks {
            return Ok(None);
        }
        let all = self.ring.get(pos, h.blocks())?;
        let Some(payload) = all.get(HEADER..HEADER + h.len as usize) else { return Ok(None) };
        if crc32c(SEED, payload) != h.payload_crc {
            return Ok(None);
        }
        let payload = Bytes::copy_from_slice(payload);
        Ok(Some(Frame { next: pos + h.blocks(), header: h, payload }))
    }

    /// The frame that continues the log at `p`: there, or at the ring's beginning if it did not fit.
    fn next(&mut self, p: &Position) -> Result<Option<Frame>, OpenError> {
        match self.frame_at(p.pos, p)? {
            Some(f) => Ok(Some(f)),
            None if p.pos > 0 => self.frame_at(0, p),
            None => Ok(None),
        }
    }

    /// After a break at `p`: does a later frame say that the one expected at `p` had been durable?
    fn was_durable(&mut self, p: &Position) -> Result<bool, OpenError> {
        let n = LOOK_AHEAD_BLOCKS.min(self.ring.blocks);
        for i in 0..n {
            let pos = (p.pos + i) % self.ring.blocks;
            // A block that can't be read tells nothing.
            let Ok(b) = self.ring.get(pos, 1) else { continue };
            if let Some(h) = Header::decode(&b)
                && self.ours(&h)
                && h.seq > p.seq
                && h.durable_upto >= p.seq
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// What a checkpoint of everything leaves of a log.
fn log_is_empty(dev: &mut dyn Device, sb: &Superblock, layout: &Layout, root: &Root) -> Result<(), OpenError> {
    let mut p = Position { pos: root.log_pos, seq: root.log_seq, chain: root.log_chain };
    let mut log = LogReader::new(dev, sb, layout, root);
    while let Some(f) = log.next(&p)? {
        if f.header.records > 0 {
            return damaged(format!("the log of ring {} goes on after a checkpoint of everything", root.ring));
        }
        p = Position { pos: f.next, seq: f.header.seq + 1, chain: f.header.crc };
    }
    Ok(())
}

pub(super) fn replay(
    dev: &mut dyn Device,
    cfg: &Config,
    sb: &Superblock,
    layout: &Layout,
    root: &Root,
    m: &mut Meta,
) -> Result<LogEnd, OpenError> {
    let (_, blocks) = layout.ring(root.ring, sb.rings);
    // A frame may end where the ring does; the next one is at the ring's beginning then.
    if root.log_pos > blocks {
        return damaged(format!("the root of ring {} points behind its log", root.ring));
    }
    let mut p = Position { pos: root.log_pos, seq: root.log_seq, chain: root.log_chain };
    let mut end = LogEnd { head: p, tail: root.log_pos, used: 0, lsn: root.next_lsn, replayed: Replayed::default() };
    let mut durable = root.log_seq.saturating_sub(1);
    let mut held: VecDeque<Frame> = VecDeque::new();
    let mut log = LogReader::new(dev, sb, layout, root);
    // Frames are held until a later one says that they were durable.
    while let Some(f) = log.next(&p)? {
        durable = durable.max(f.header.durable_upto);
        p = Position { pos: f.next, seq: f.header.seq + 1, chain: f.header.crc };
        held.push_back(f);
        while held.front().is_some_and(|f| f.header.seq <= durable) {
            let Some(f) = held.pop_front() else { break };
            apply_frame(log.ring.dev, cfg, &f, layout, m, root.ring, &mut end)?;
        }
    }
    if log.was_durable(&p)? {
        return damaged(format!("log frame {} of ring {} was durable and can't be read", p.seq, root.ring));
    }
    let dev = log.ring.dev;
    while let Some(f) = held.pop_front() {
        if !acts(Bug::StoreSkipDataCheck) && !data_is_there(dev, &f, layout, m)? {
            tracing::info!(ring = root.ring, frame = f.header.seq, "log ends before a frame whose data is incomplete");
            break;
        }
        apply_frame(dev, cfg, &f, layout, m, root.ring, &mut end)?;
    }
    end.used = (end.head.pos + blocks - end.tail) % blocks;
    if end.used == 0 && end.head.seq > root.log_seq {
        end.used = blocks;
    }
    Ok(end)
}

fn records(f: &Frame, layout: &Layout) -> Result<Vec<Vec<Change>>, OpenError> {
    let mut out = Vec::new();
    let mut r = crate::codec::Get::new(&f.payload);
    let bad = |e| OpenError::Damaged(format!("record in log frame {}: {e}", f.header.seq));
    while r.rest() > 0 {
        let len = r.u32().map_err(bad)? as usize;
        out.push(change::decode(r.take(len).map_err(bad)?, layout).map_err(bad)?);
    }
    Ok(out)
}

fn apply_frame(
    dev: &mut dyn Device,
    cfg: &Config,
    f: &Frame,
    layout: &Layout,
    m: &mut Meta,
    ring: u16,
    end: &mut LogEnd,
) -> Result<(), OpenError> {
    let all = records(f, layout)?;
    for part in all.chunks(AHEAD) {
        read_ahead(dev, m, part);
        for record in part {
            for c in record {
                if m.salvage.is_some() && m.goes_without(c) {
                    continue;
                }
                with_pages(dev, m, |m| m.need_change(c).then_some(()))?;
                let at =
                    |e| OpenError::Damaged(format!("log frame {} of ring {ring}, {:?}: {e}", f.header.seq, c.cid()));
                m.apply(c.clone()).map_err(at)?;
                if let Some(what) = m.bad.take() {
                    return damaged(format!("log frame {}: {what}", f.header.seq));
                }
            }
            m.prune();
            m.evict(cfg.meta_bytes);
        }
        // What was asked for in vain.
        m.unstage_all();
    }
    end.replayed.bytes += f.header.blocks() * BLK;
    end.replayed.txns += all.len() as u64;
    end.head = Position { pos: f.next, seq: f.header.seq + 1, chain: f.header.crc };
    end.lsn = end.lsn.max(f.header.lsn.saturating_add(f.header.records.into()));
    Ok(())
}

/// Brings what some records may need, all at once: one after the other each would wait for the device by itself. A record may
/// need others when those before it have been applied; then it asks for them alone. What can't be read here may not be
/// needed: whoever needs it says so.
fn read_ahead(dev: &mut dyn Device, m: &mut Meta, records: &[Vec<Change>]) {
    for _ in 0..AHEAD_ROUNDS {
        for c in records.iter().flatten() {
            m.need_change(c);
        }
        m.attached.clear();
        if !matches!(fetch_wanted(dev, m), Ok(true)) || m.bad.is_some() {
            break;
        }
    }
    m.want.clear();
    m.bad = None;
}

/// Reads pages that are wanted; false if there are none.
fn fetch_wanted(dev: &mut dyn Device, m: &mut Meta) -> Result<bool, OpenError> {
    let mut want = std::mem::take(&mut m.want);
    want.sort_unstable_by_key(|w| w.runs.first().map(|r| r.0));
    want.dedup();
    if want.is_empty() {
        return Ok(false);
    }
    let read = read_blobs(dev, &want, "metadata page")?;
    for (loc, data) in want.into_iter().zip(read) {
        let first = loc.runs.first().map_or(0, |r| r.0);
        m.stage(first, Staged { loc, data: Ok(data) });
    }
    Ok(true)
}

/// What a frame's changes say about objects before they are applied.
#[derive(Default)]
struct Followed {
    births: FxHashMap<(crate::Cid, crate::Oid), u64>,
    /// Collections from which one got objects by a split or by being joined, as this collection knows them.
    from: FxHashMap<crate::Cid, Vec<crate::Cid>>,
}

impl Followed {
    /// The birth id of an object.
    fn birth(
        &self,
        dev: &mut dyn Device,
        m: &mut Meta,
        cid: crate::Cid,
        oid: &crate::Oid,
    ) -> Result<Option<u64>, OpenError> {
        let mut cids = vec![cid];
        let mut at = 0;
        while let Some(&cid) = cids.get(at) {
            at += 1;
            if let Some(b) = self.births.get(&(cid, oid.clone())) {
                return Ok(Some(*b));
            }
            if let Some(coll) = m.coll(cid)
                && let Some(id) = with_pages(dev, m, |m| m.look(coll, oid))?
            {
                return Ok(m.objects.get(id as usize).map(|o| o.birth));
            }
            cids.extend(self.from.get(&cid).into_iter().flatten().filter(|c| **c != cid));
            if at > FOLLOWED_MAX {
                break;
            }
        }
        Ok(None)
    }
}

/// Compares the data that a frame names with what is on the device. The frame's own effects are needed to know the birth
/// ids of objects it makes, so they are followed on the side.
fn data_is_there(dev: &mut dyn Device, f: &Frame, layout: &Layout, m: &mut Meta) -> Result<bool, OpenError> {
    let mut seen = Followed::default();
    for record in records(f, layout)? {
        for c in record {
            let cid = c.cid();
            match c {
                Change::Create { oid, nid, .. } => {
                    seen.births.insert((cid, oid), nid);
                }
                Change::Clone { src, dst, .. } | Change::Rename { src, dst, .. } => {
                    if let Some(b) = seen.birth(dev, m, cid, &src)? {
                        seen.births.insert((cid, dst), b);
                    }
                }
                Change::Split { dst, .. } => drop(seen.from.insert(dst, vec![cid])),
                Change::Merge { dst, .. } => seen.from.entry(dst).or_default().push(cid),
                Change::OfObject { oid, what: What::Map { block, runs, crcs, version, .. }, .. } => {
                    let Some(birth) = seen.birth(dev, m, cid, &oid)? else {
                        if m.salvage.is_some() {
                            // Of a collection that is lost: nothing tells.
                            continue;
                        }
                        return Ok(false);
                    };
                    let ranges: Vec<(u64, u64)> = runs.iter().map(|r| (r.0 * BLK, u64::from(r.1) * BLK)).collect();
                    let mut b = block;
                    let mut want = crcs.iter();
                    for (got, (_, len)) in dev.read_many(&ranges).into_iter().zip(&ranges) {
                        // Unreadable is as bad as absent: nothing that was acknowledged depends on it.
                        let Some(got) = got.ok().filter(|g| g.len() as u64 == *len) else { return Ok(false) };
                        for chunk in got.chunks_exact(BLK as usize) {
                            if want.next() != Some(&block_crc(birth, b, version, chunk)) {
                                return Ok(false);
                            }
                            b += 1;
                        }
                    }
                }
                _ => {}
            }
        }
    }
    Ok(true)
}

impl Store {
    fn assemble(
        cfg: &Config,
        sb: &Superblock,
        layout: &Layout,
        space: Arc<Space>,
        meta: Meta,
        index: u16,
        end: LogEnd,
    ) -> Self {
        let (start, blocks) = layout.ring(index, cfg.reactors);
        let uuid = short_uuid(&sb.uuid);
        let ring = Ring {
            start,
            blocks,
            index,
            layout_epoch: sb.layout_epoch,
            uuid,
            head: end.head,
            tail: end.tail,
            used: end.used,
        };
        Self {
            sb: sb.clone(),
            space,
            meta,
            small: Stream::reusing(),
            large: Stream::default(),
            durable_upto: ring.head.seq - 1,
            ring,
            lsn: end.lsn,
            payload: Vec::new(),
            records: 0,
            tags: Vec::new(),
            pending: Vec::new(),
            inflight: Default::default(),
            commits: VecDeque::new(),
            ios: slab::Slab::new(),
            io_gen: 0,
            requests: VecDeque::new(),
            events: VecDeque::new(),
            plans: FxHashMap::default(),
            plan_gen: 0,
            cache: super::BlockCache::new(cfg.cache_bytes),
            checkpoint: super::Checkpoint::default(),
            loads: slab::Slab::new(),
            loading: FxHashMap::default(),
            loading_bytes: 0,
            brought: 0,
            crowd: VecDeque::new(),
            applying: false,
            parked: Vec::new(),
            steps: 0,
            meta_held: 0,
            log_promised: 0,
            suspended: None,
            growing: None,
            health: Health::Ok,
            counters: Default::default(),
            replayed: end.replayed,
            cfg: cfg.clone(),
        }
    }

    /// Writes an empty frame behind the log and makes it, and everything replay found, durable.
    fn seal_log(&mut self, dev: &mut dyn Device) -> Result<(), OpenError> {
        let io = |e| OpenError::Io(e, "the log's end".into());
        // What replay accepted may still sit in a volatile cache.
        dev.flush().map_err(io)?;
        if self.ring.free() < 2 {
            // Full to the brim: the checkpoint makes room and moves the tail.
            self.checkpoint.urgent = true;
            drive(self, dev);
            if let Health::Failed { what, errno } = &self.health {
                return Err(OpenError::Io(*errno, what.clone()));
            }
        }
        let (at, frame) = self.ring.close(&[], 0, self.lsn, self.durable_upto);
        dev.write(at * BLK, &[frame]).map_err(io)?;
        dev.flush().map_err(io)?;
        self.durable_upto = self.ring.head.seq - 1;
        Ok(())
    }
}

/// Another number of reactors: every store makes a checkpoint for its ring in the new division of the log area; the
/// superblock that names the new division makes all of it valid at once.
pub(super) fn relayout(
    dev: &mut dyn Device,
    mut sb: Superblock,
    roots: &[Root],
    stores: &mut [Store],
) -> Result<(), OpenError> {
    let epoch = sb.layout_epoch + 1;
    // Slots of the old division must survive until the superblock is written: the new root goes to the other parity.
    for (i, s) in stores.iter_mut().enumerate() {
        s.ring.layout_epoch = epoch;
        s.checkpoint.root_seq = roots.get(i).map_or(1, |r| r.seq);
        s.checkpoint_and_hold(true);
        drive(s, dev);
        if let Health::Failed { what, errno } = &s.health {
            return Err(OpenError::Io(*errno, what.clone()));
        }
    }
    sb.seq += 1;
    sb.layout_epoch = epoch;
    sb.rings = stores.len() as u16;
    write_super(dev, &sb)?;
    for s in stores.iter_mut() {
        s.sb = sb.clone();
        s.checkpoint_and_hold(false);
        s.seal_log(dev)?;
    }
    Ok(())
}
