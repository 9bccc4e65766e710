//! Replay: reads the logs and applies them to the newest checkpoints.
//!
//! Replay follows the crash argument of docs/design/store-format.md. Frames are accepted while the chain holds.
//! Frames up to the newest `durable_upto` seen were complete; later ones count only if their data is on the
//! device. A hole inside the durable part is corruption and refused.
//!
//! Pages are brought for many frames at once, because each round waits for the device.
//!
//! Invariants:
//!  1. Frames are applied in log order, and only once they are known to count.
//!  2. Rings share only the map of used blocks, where the order does not matter. A block freed by one ring is
//!     allocated again only after the checkpoint that freed it is durable. So neither that ring's newest
//!     checkpoint nor its later log refers to a block of another log.
//!
//! Tests: `tests/histories.rs` (1; planted bug `StoreSkipDataCheck`), `tests/reactors.rs` (2,
//! `logs_are_replayed_in_any_order`).

use super::open::{OpenError, bring, damaged, with_pages};
use super::{Config, Device, Replayed};
use crate::layout::{BLOCK, BLOCK_LEN, Layout};
use crate::meta::Meta;
use crate::meta::asking::Answer;
use crate::meta::change::{self, Change, What};
use crate::meta::map::{block_crc, is_stored};
use crate::superblock::{Root, Superblock};
use crate::wal::{HEADER, Header, Position, frame_blocks, payload_max, short_uuid};
use base::crc::{SEED, crc32c};
use base::errno::EIO;
use base::planted::{Bug, acts};
use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::ops::Range;

/// Largest piece in which a log is read, in bytes.
const READ_BYTES: u64 = 4 << 20;
/// First piece of a log in bytes: usually the whole log after an orderly stop.
const FIRST_READ_BYTES: u64 = 128 << 10;
/// Most records for which pages are brought at once; `AHEAD_BYTES` bounds the bytes of their frames.
/// `AHEAD_ROUNDS` are the rounds of reading: inner pages, leaves, and pages that these lead to.
const AHEAD: usize = 256;
const AHEAD_BYTES: usize = 1 << 20;
const AHEAD_ROUNDS: usize = 8;
/// Most collections searched for one object of a frame that splits and merges them.
const FOLLOWED_MAX: usize = 64;
/// Blocks behind a break of the log in which later frames are always looked for, to tell a torn tail from
/// corruption. Beyond them the search continues as far as the longest frame, until a block shows that no longer
/// frame was written.
const LOOK_AHEAD_BLOCKS: u64 = 4096;

/// Position where replay ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogEnd {
    pub(super) head: Position,
    pub(super) tail: u64,
    pub(super) used: u64,
    pub(super) lsn: u64,
    pub(super) replayed: Replayed,
}

impl LogEnd {
    /// Position of a new, empty log.
    pub(super) fn fresh(lsn: u64) -> Self {
        let head = Position { pos: 0, seq: 1, chain: 0 };
        Self { head, tail: 0, used: 0, lsn, replayed: Replayed::default() }
    }
}

/// Reads a ring in pieces of growing size.
struct RingReader<'a> {
    dev: &'a mut dyn Device,
    start: u64,
    blocks: u64,
    /// Blocks of the next piece.
    piece: u64,
    /// First block in the buffer.
    at: u64,
    buf: Bytes,
}

impl RingReader<'_> {
    /// Blocks `[pos, pos + n)`, cut at the ring's end. `None` if they can't be read, which counts as torn: a
    /// later frame tells whether they were durable.
    fn get(&mut self, pos: u64, n: u64) -> Result<Option<Bytes>, OpenError> {
        let n = n.min(self.blocks.saturating_sub(pos));
        let have = self.buf.len() as u64 / BLOCK;
        if pos < self.at || pos + n > self.at + have {
            let len = n.max(self.piece).min(self.blocks - pos);
            self.piece = (self.piece * 2).min(READ_BYTES / BLOCK);
            self.buf = match self.read(pos, len)? {
                // An unreadable block must not hide the requested ones before it.
                None if len > n => {
                    self.piece = n.max(1);
                    self.read(pos, n)?
                }
                r => r,
            }
            .unwrap_or_default();
            self.at = pos;
        }
        let from = ((pos - self.at) * BLOCK) as usize;
        let to = from + (n * BLOCK) as usize;
        Ok((to <= self.buf.len()).then(|| self.buf.slice(from..to)))
    }

    fn read(&mut self, pos: u64, len: u64) -> Result<Option<Bytes>, OpenError> {
        let at = self.start + pos;
        match self.dev.read_many(&[(at * BLOCK, len * BLOCK)]).pop() {
            Some(Ok(b)) if b.len() as u64 == len * BLOCK => Ok(Some(b)),
            Some(Ok(_) | Err(EIO)) if !acts(Bug::StoreUnreadableLog) => Ok(None),
            Some(Ok(_)) => Err(OpenError::Io(EIO, format!("log at block {at}: short"))),
            Some(Err(e)) => Err(OpenError::Io(e, format!("log at block {at}"))),
            None => damaged("a read without result"),
        }
    }
}

/// A complete frame that continues the log.
struct Frame {
    header: Header,
    payload: Bytes,
    /// Position after the frame.
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
        let ring = RingReader { dev, start, blocks, piece: FIRST_READ_BYTES / BLOCK, at: 0, buf: Bytes::new() };
        Self { ring, index: root.ring, epoch: sb.layout_epoch, uuid: short_uuid(&sb.uuid) }
    }

    fn ours(&self, h: &Header) -> bool {
        h.ring == self.index && h.layout_epoch == self.epoch && h.uuid == self.uuid
    }

    fn frame_at(&mut self, pos: u64, p: &Position) -> Result<Option<Frame>, OpenError> {
        if pos >= self.ring.blocks {
            return Ok(None);
        }
        let Some(h) = self.ring.get(pos, 1)?.and_then(|head| Header::decode(&head)) else { return Ok(None) };
        if !self.ours(&h) || h.seq != p.seq || h.prev != p.chain || pos + h.blocks() > self.ring.blocks {
            return Ok(None);
        }
        let all = self.ring.get(pos, h.blocks())?;
        let Some(payload) = all.as_ref().and_then(|all| all.get(HEADER..HEADER + h.len as usize)) else {
            return Ok(None);
        };
        if crc32c(SEED, payload) != h.payload_crc {
            return Ok(None);
        }
        let payload = Bytes::copy_from_slice(payload);
        Ok(Some(Frame { next: pos + h.blocks(), header: h, payload }))
    }

    /// The frame that continues the log at `p`: at `p` itself, or at the ring's beginning if it did not fit.
    fn next(&mut self, p: &Position) -> Result<Option<Frame>, OpenError> {
        match self.frame_at(p.pos, p)? {
            Some(f) => Ok(Some(f)),
            None if p.pos > 0 => self.frame_at(0, p),
            None => Ok(None),
        }
    }

    /// True if a later frame says that the missing frame at `p` was durable. That later frame begins at most
    /// two frames further, counting the gap at the ring's end.
    fn was_durable(&mut self, p: &Position) -> Result<bool, OpenError> {
        let blocks = self.ring.blocks;
        let far = if acts(Bug::StoreShortLookAhead) {
            2
        } else {
            (2 * frame_blocks(payload_max(blocks)) + 1).max(LOOK_AHEAD_BLOCKS).min(blocks)
        };
        if self.tells(p.pos..(p.pos + far).min(blocks), p)? {
            return Ok(true);
        }
        let wraps = p.pos + far > blocks;
        Ok(wraps && self.tells(0..far.min(p.pos), p)?)
    }

    /// True if a frame that begins in this part of the ring says that the frame expected at `p` was durable.
    fn tells(&mut self, part: Range<u64>, p: &Position) -> Result<bool, OpenError> {
        let near = part.start + LOOK_AHEAD_BLOCKS;
        for pos in part {
            // An unreadable block gives no evidence.
            let Some(h) = self.ring.get(pos, 1)?.and_then(|b| Header::decode(&b)).filter(|h| self.ours(h)) else {
                continue;
            };
            if h.seq > p.seq && h.durable_upto >= p.seq {
                return Ok(true);
            }
            // An old frame this far behind shows that no long frame was written over it, so any later frame
            // would have been found.
            if h.seq < p.seq && pos >= near {
                break;
            }
        }
        Ok(false)
    }
}

/// Checks that a log has no records, as a checkpoint of everything leaves it.
pub(super) fn log_is_empty(
    dev: &mut dyn Device,
    sb: &Superblock,
    layout: &Layout,
    root: &Root,
) -> Result<(), OpenError> {
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

/// The log of one ring, and the metadata to apply it to. The logs of one device may be replayed in parallel,
/// each with its own handle on the device.
pub struct RingLog<'a> {
    cfg: &'a Config,
    sb: &'a Superblock,
    layout: &'a Layout,
    root: &'a Root,
    m: &'a mut Meta,
    end: Option<Result<LogEnd, OpenError>>,
}

impl<'a> RingLog<'a> {
    pub(super) fn new(
        cfg: &'a Config,
        sb: &'a Superblock,
        layout: &'a Layout,
        root: &'a Root,
        m: &'a mut Meta,
    ) -> Self {
        Self { cfg, sb, layout, root, m, end: None }
    }

    /// Replays the log. Opening reports the outcome.
    pub fn replay(&mut self, dev: &mut dyn Device) {
        self.end = Some(replay(dev, self.cfg, self.sb, self.layout, self.root, self.m));
    }

    pub(super) fn end(self) -> Result<LogEnd, OpenError> {
        self.end.unwrap_or_else(|| damaged(format!("the log of ring {} was not replayed", self.root.ring)))
    }
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
    // A frame may end exactly at the ring's end; the next one is then at its beginning.
    if root.log_pos > blocks {
        return damaged(format!("the root of ring {} points behind its log", root.ring));
    }
    let mut p = Position { pos: root.log_pos, seq: root.log_seq, chain: root.log_chain };
    let end = LogEnd { head: p, tail: root.log_pos, used: 0, lsn: root.next_lsn, replayed: Replayed::default() };
    let mut play = Player { cfg, layout, ring: root.ring, m, records: Vec::new(), bytes: 0, end };
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
            play.push(&f)?;
            if play.records.len() >= AHEAD || play.bytes >= AHEAD_BYTES {
                play.apply(log.ring.dev)?;
            }
        }
    }
    play.apply(log.ring.dev)?;
    if log.was_durable(&p)? {
        return damaged(format!("log frame {} of ring {} was durable and can't be read", p.seq, root.ring));
    }
    let dev = log.ring.dev;
    while let Some(f) = held.pop_front() {
        if !acts(Bug::StoreSkipDataCheck) && !data_is_there(dev, &f, layout, play.m)? {
            tracing::info!(ring = root.ring, frame = f.header.seq, "log ends before a frame whose data is incomplete");
            break;
        }
        play.push(&f)?;
        play.apply(dev)?;
    }
    let mut end = play.end;
    end.used = (end.head.pos + blocks - end.tail) % blocks;
    if end.used == 0 && end.head.seq > root.log_seq {
        end.used = blocks;
    }
    Ok(end)
}

/// Records of a frame, one per transaction.
fn records(f: &Frame, layout: &Layout) -> impl Iterator<Item = Result<Vec<Change>, OpenError>> {
    let mut rest = crate::codec::Get::new(&f.payload);
    std::iter::from_fn(move || {
        let bad = |e| OpenError::Damaged(format!("record in log frame {}: {e}", f.header.seq));
        if rest.rest() == 0 {
            return None;
        }
        let len = match rest.u32() {
            Ok(n) => n as usize,
            Err(e) => return Some(Err(bad(e))),
        };
        Some(rest.take(len).and_then(|r| change::decode(r, layout)).map_err(bad))
    })
}

/// Applies records, for many frames at a time.
struct Player<'a> {
    cfg: &'a Config,
    layout: &'a Layout,
    ring: u16,
    m: &'a mut Meta,
    /// Records to apply next, with the numbers of their frames.
    records: Vec<(u64, Vec<Change>)>,
    /// Bytes of the frames of these records.
    bytes: usize,
    end: LogEnd,
}

impl Player<'_> {
    fn push(&mut self, f: &Frame) -> Result<(), OpenError> {
        let (h, before) = (&f.header, self.records.len());
        for r in records(f, self.layout) {
            self.records.push((h.seq, r?));
        }
        self.bytes += f.payload.len();
        self.end.head = Position { pos: f.next, seq: h.seq + 1, chain: h.crc };
        self.end.lsn = self.end.lsn.max(h.lsn.saturating_add(h.records.into()));
        self.end.replayed.bytes += h.blocks() * BLOCK;
        self.end.replayed.txns += (self.records.len() - before) as u64;
        Ok(())
    }

    fn apply(&mut self, dev: &mut dyn Device) -> Result<(), OpenError> {
        let budget = self.cfg.meta_bytes;
        let mut rest = std::mem::take(&mut self.records).into_iter();
        self.bytes = 0;
        let before = self.m.steps();
        loop {
            let part: Vec<_> = rest.by_ref().take(AHEAD).collect();
            if part.is_empty() {
                break;
            }
            read_ahead(dev, self.m, &part, budget);
            for (seq, record) in part {
                self.apply_record(dev, seq, record)?;
                // As at the end of a live transaction.
                self.m.stop_keeping();
                if let Some(what) = self.m.take_damage() {
                    return damaged(format!("log frame {seq}: {what}"));
                }
                self.m.prune();
                // Pages that were just brought for the other records should stay.
                if self.m.pages().mem() > budget + budget / 8 {
                    self.m.evict(budget);
                }
            }
            self.m.evict(budget);
        }
        // Drops pages that were read but not needed.
        self.m.staging_mut().clear();
        self.end.replayed.steps += self.m.steps() - before;
        Ok(())
    }

    fn apply_record(&mut self, dev: &mut dyn Device, seq: u64, record: Vec<Change>) -> Result<(), OpenError> {
        for c in record {
            if self.m.is_salvaged() && self.m.goes_without(&c) {
                continue;
            }
            with_pages(dev, self.m, |m| m.need_change(&c).then_some(()))?;
            let (ring, cid) = (self.ring, c.cid());
            let at = |e| OpenError::Damaged(format!("log frame {seq} of ring {ring}, {cid:?}: {e}"));
            self.m.apply(c).map_err(at)?;
            if let Some(what) = self.m.take_damage() {
                return damaged(format!("log frame {seq}: {what}"));
            }
        }
        Ok(())
    }
}

/// Brings the pages that some records may need, all at once, since each read waits for the device. After
/// earlier records are applied, a record may need further pages and then asks for them itself. Read errors are
/// ignored here; the record that needs the page reports them.
fn read_ahead(dev: &mut dyn Device, m: &mut Meta, records: &[(u64, Vec<Change>)], budget: usize) {
    for _ in 0..AHEAD_ROUNDS {
        if m.staging().bytes() > budget {
            break;
        }
        let all =
            |m: &mut Meta| records.iter().flat_map(|r| &r.1).fold(true, |ok, c| ok & m.need_change(c)).then_some(());
        match m.ask(all).0 {
            Answer::Missing(want) if !want.is_empty() => {
                if bring(dev, m, want).is_err() {
                    break;
                }
            }
            _ => break,
        }
    }
}

/// Effects of a frame's changes on objects, followed before the changes are applied.
#[derive(Default)]
struct Followed {
    births: FxHashMap<(crate::Cid, crate::Oid), u64>,
    /// Collections from which a collection got objects by a split or merge.
    from: FxHashMap<crate::Cid, Vec<crate::Cid>>,
}

impl Followed {
    /// Birth id of an object; `None` if it can't be found.
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
                return Ok(m.objects().get(id as usize).map(|o| o.birth));
            }
            cids.extend(self.from.get(&cid).into_iter().flatten().filter(|c| **c != cid));
            if at > FOLLOWED_MAX {
                break;
            }
        }
        Ok(None)
    }
}

/// Compares the data of a frame with the device. Checksums need the birth ids of objects that the frame itself
/// creates, so its effects are followed here.
fn data_is_there(dev: &mut dyn Device, f: &Frame, layout: &Layout, m: &mut Meta) -> Result<bool, OpenError> {
    let mut seen = Followed::default();
    for record in records(f, layout) {
        for c in record? {
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
                        if m.is_salvaged() {
                            // The collection is lost, so there is nothing to compare with.
                            continue;
                        }
                        return Ok(false);
                    };
                    // Blocks of an extent without device blocks come last.
                    let stored = runs.iter().filter(|r| is_stored(r.0));
                    let ranges: Vec<(u64, u64)> = stored.map(|r| (r.0 * BLOCK, u64::from(r.1) * BLOCK)).collect();
                    let mut b = block;
                    let mut want = crcs.iter();
                    for (got, (_, len)) in dev.read_many(&ranges).into_iter().zip(&ranges) {
                        let got = match got {
                            Ok(got) if got.len() as u64 == *len => got,
                            // Unreadable data counts as absent: nothing acknowledged depends on it.
                            Ok(_) | Err(EIO) => return Ok(false),
                            Err(e) => return Err(OpenError::Io(e, format!("data of log frame {}", f.header.seq))),
                        };
                        for chunk in got.chunks_exact(BLOCK_LEN) {
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
