//! Opening: superblock, roots, pages of the newest checkpoints, then the logs ([`replay`](super::replay)). The
//! device is never scanned.
//!
//! Invariant: opening seals the end of a log with an empty frame before anything else is written, so a tail
//! that was cut off can never come back.
//!
//! Tests: `tests/log.rs` (`a_frame_behind_a_torn_confirmation_stays_cut_off`), `tests/histories.rs` (planted bug
//! `StoreSealAsCommit`).

use super::device::{Overlay, drive};
use super::format::{probe, probe_to_change, write_super};
use super::replay::{LogEnd, RingLog, log_is_empty};
use super::{Config, Device, FormatError, Store};
use crate::api::{Health, ObjectStore};
use crate::key::Cid;
use crate::layout::{BLOCK, COMPRESSION, FEATURES, Layout, RINGS_MAX, ROOT_BLOCKS, SHARDS, reactor_for};
use crate::meta::Meta;
use crate::meta::asking::Answer;
use crate::meta::staging::Staged;
use crate::meta::tree::Shard;
use crate::meta::used;
use crate::space::Space;
use crate::superblock::{BlobPtr, Root, Superblock};
use crate::wal::{Kind, Ring, short_uuid};
use base::crc::{SEED, crc32c};
use base::errno::{EIO, Errno};
use base::planted::{Bug, acts};
use bytes::{Bytes, BytesMut};
use rustc_hash::FxHashSet;
use std::collections::VecDeque;
use std::sync::Arc;

/// Size in bytes of the pieces in which the map of used blocks is read.
const READ_BYTES: u64 = 4 << 20;

/// Reason why a store did not open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The device has no usable superblock.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Stored structures contradict their checksums or each other.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// More reactors than a device can be divided among.
    #[error("{0} reactors wanted, at most {RINGS_MAX} possible")]
    Reactors(u16),
    /// The log can't be divided among another number of reactors, because two present reactors have a
    /// collection of the same name.
    #[error(
        "two of {reactors} reactors have a collection {cid:?}; the store opens with {reactors} reactors only, until one of the two collections is removed"
    )]
    Twice {
        /// Collection that exists twice.
        cid: Cid,
        /// Present number of reactors.
        reactors: u16,
    },
    /// The device failed.
    #[error("device error {errno} reading {what}", errno = base::errno::name(*.0), what = .1)]
    Io(Errno, String),
}

impl OpenError {
    /// True if a stored structure can't be read or is corrupt. [`rebuild()`](super::rebuild()) may save the
    /// rest.
    #[must_use]
    pub fn is_rot(&self) -> bool {
        matches!(self, Self::Damaged(_) | Self::Io(..))
    }
}

pub(super) fn damaged<T>(what: impl Into<String>) -> Result<T, OpenError> {
    Err(OpenError::Damaged(what.into()))
}

/// Function that replays each of some logs, using this handle on the device or others.
pub type Replay<'a> = &'a mut dyn FnMut(&mut dyn Device, &mut [RingLog<'_>]);

/// Opens a store for `cfg.reactors` reactors: one [`Store`] each, in order. Errors are those of [`open_with`].
pub fn open(dev: &mut dyn Device, cfg: &Config) -> Result<Vec<Store>, OpenError> {
    open_with(dev, cfg, &mut |dev, logs| logs.iter_mut().for_each(|l| l.replay(dev)))
}

/// Like [`open`], with a custom way to replay the logs: `replay` calls [`RingLog::replay`] for each, in parallel if it
/// can. Error: [`OpenError::Reactors`]; [`OpenError::Format`] without a usable superblock; [`OpenError::Twice`] if the
/// number of reactors cannot change; [`OpenError::Damaged`]; [`OpenError::Io`].
pub fn open_with(dev: &mut dyn Device, cfg: &Config, replay: Replay<'_>) -> Result<Vec<Store>, OpenError> {
    let sb = probe_to_change(dev)?;
    open_as(dev, cfg, sb, replay)
}

/// Like [`open`], for a store that may have read-only compat features which this program does not know. Whatever the
/// stores write stays in memory. Errors are those of [`open_with`].
pub fn open_read_only<D: Device>(dev: &mut Overlay<D>, cfg: &Config) -> Result<Vec<Store>, OpenError> {
    let sb = probe(dev)?;
    open_as(dev, cfg, sb, &mut |dev, logs| logs.iter_mut().for_each(|l| l.replay(dev)))
}

fn open_as(dev: &mut dyn Device, cfg: &Config, sb: Superblock, replay: Replay<'_>) -> Result<Vec<Store>, OpenError> {
    if cfg.reactors == 0 || cfg.reactors > RINGS_MAX {
        return Err(OpenError::Reactors(cfg.reactors));
    }
    if sb.rings != cfg.reactors {
        // Each log is replayed as it was written, independently of the others. A collection may have been
        // removed in one ring and created in another under the same name.
        let stores = open_rings(dev, &Config { reactors: sb.rings, ..cfg.clone() }, sb.clone(), replay)?;
        if let Some(cid) = named_twice(&stores) {
            return Err(OpenError::Twice { cid, reactors: sb.rings });
        }
        for mut s in stores {
            s.request_checkpoint();
            drive(&mut s, dev);
            if let Health::Failed { what, errno } = s.health {
                return Err(OpenError::Io(errno, what));
            }
        }
    }
    open_rings(dev, cfg, sb, replay)
}

/// Name that two collections of different reactors share, if any. One reactor can't hold both.
fn named_twice(stores: &[Store]) -> Option<Cid> {
    let mut seen = FxHashSet::default();
    stores.iter().flat_map(ObjectStore::collections).map(|(cid, _)| cid).find(|cid| !seen.insert(*cid))
}

fn open_rings(dev: &mut dyn Device, cfg: &Config, sb: Superblock, replay: Replay<'_>) -> Result<Vec<Store>, OpenError> {
    let Some(layout) = sb.layout() else { return damaged("the superblock names an impossible size") };
    let space = Arc::new(Space::new(layout.space_start, layout.space_end));
    let mut metas: Vec<Meta> = (0..cfg.reactors).map(|i| Meta::new(layout, space.clone(), i, cfg.reactors)).collect();
    metas.iter_mut().for_each(|m| m.set_kids_max(cfg.kids_max.max(2)));
    let same = sb.rings == cfg.reactors;

    let mut roots = Vec::new();
    for ring in 0..sb.rings {
        let root = newest_root(dev, &sb, &layout, ring)?;
        for (shard, level, loc) in &root.trees {
            let to = usize::from(reactor_for(u16::from(*shard), cfg.reactors));
            if let Some(m) = metas.get_mut(to) {
                m.set_root(*shard, Shard::stored(loc.clone(), *level));
            }
        }
        // With another number of rings, the maps of all rings are merged into the first one's, to be stored
        // again.
        if let Some(m) = metas.get_mut(if same { usize::from(ring) } else { 0 }) {
            m.alloc_mut().count_pages(root.page_blocks);
            load_used(dev, &layout, &root, m, same)?;
        }
        roots.push(root);
    }
    // A store's root names a feature before the superblock does.
    let words = roots.iter().map(|r| r.features).fold(sb.features, base::FeatureWords::with);
    let sb = Superblock { features: words, ..sb };
    metas.iter_mut().for_each(|m| m.set_packs(words.incompat & COMPRESSION != 0));
    space.recount();
    for m in &mut metas {
        for shard in 0..SHARDS as u8 {
            with_pages(dev, m, |m| m.need_colls(shard).then_some(()))?;
        }
    }
    let ends = if same {
        let log = |(root, m)| RingLog::new(cfg, &sb, &layout, root, m);
        let mut logs: Vec<RingLog<'_>> = roots.iter().zip(&mut metas).map(log).collect();
        replay(dev, &mut logs);
        logs.into_iter().map(RingLog::end).collect::<Result<_, _>>()?
    } else {
        for root in &roots {
            log_is_empty(dev, &sb, &layout, root)?;
        }
        let lsn = roots.iter().map(|r| r.next_lsn).max().unwrap_or(1);
        vec![LogEnd::fresh(lsn); metas.len()]
    };
    let mut stores = stores_of(cfg, &sb, &layout, &space, &roots, metas, ends);
    if same {
        for (s, root) in stores.iter_mut().zip(&roots) {
            s.checkpoint.opened(root.clone());
            s.seal_log(dev)?;
        }
    } else {
        tracing::info!(from = sb.rings, to = stores.len(), "dividing the log among another number of reactors");
        relayout(dev, sb, &roots, &mut stores)?;
    }
    Ok(stores)
}

/// Builds the stores from the metadata read, with logs that continue where replay ended.
pub(super) fn stores_of(
    cfg: &Config,
    sb: &Superblock,
    layout: &Layout,
    space: &Arc<Space>,
    roots: &[Root],
    metas: Vec<Meta>,
    ends: Vec<LogEnd>,
) -> Vec<Store> {
    let next_nid = roots.iter().map(|r| r.next_nid).chain(metas.iter().map(|m| m.numbers().next())).max().unwrap_or(1);
    let assemble = |(i, (mut m, end)): (u16, (Meta, LogEnd))| {
        m.continue_numbers(next_nid);
        m.end_replay();
        m.update_headroom();
        Store::assemble(cfg, sb, layout, space.clone(), m, i, end)
    };
    (0..).zip(metas.into_iter().zip(ends)).map(assemble).collect()
}

/// Runs `f` until all pages it needs are in memory.
pub(super) fn with_pages<T>(
    dev: &mut dyn Device,
    m: &mut Meta,
    mut f: impl FnMut(&mut Meta) -> Option<T>,
) -> Result<T, OpenError> {
    loop {
        match m.ask(&mut f).0 {
            Answer::Known(t) => return Ok(t),
            Answer::Damaged(what) => return Err(OpenError::Damaged(what)),
            Answer::Missing(want) if want.is_empty() => {
                return damaged("a search in a metadata tree ended without a result");
            }
            Answer::Missing(want) => bring(dev, m, want)?,
        }
    }
}

/// Reads a ring's map of used blocks.
fn load_used(dev: &mut dyn Device, layout: &Layout, root: &Root, m: &mut Meta, own: bool) -> Result<(), OpenError> {
    let mut pages = read_used(dev, &root.used, true)?;
    let mut places: Vec<(u32, used::BlockPtr)> = Vec::new();
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
    for batch in places.chunks((READ_BYTES / BLOCK) as usize) {
        for ((number, at), buf) in batch.iter().zip(read_used(dev, batch, false)?) {
            let bits = used::decode_bits(&buf).map_err(|e| OpenError::Damaged(format!("map of used blocks: {e}")))?;
            m.alloc().space().turn_over(*number, &bits);
            m.alloc_mut().load_used(*number, bits, if own { *at } else { used::BlockPtr::default() });
        }
    }
    for (i, at) in &root.used {
        if own {
            m.alloc_mut().load_used_index(*i, *at);
        }
    }
    if !own {
        let old = places.iter().chain(&root.used).map(|(_, at)| at.block);
        m.alloc_mut().free_map(old);
    }
    Ok(())
}

fn read_used(dev: &mut dyn Device, places: &[(u32, used::BlockPtr)], index: bool) -> Result<Vec<Bytes>, OpenError> {
    let ranges: Vec<(u64, u64)> = places.iter().map(|p| (p.1.block * BLOCK, BLOCK)).collect();
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

pub(super) fn newest_root(
    dev: &mut dyn Device,
    sb: &Superblock,
    layout: &Layout,
    ring: u16,
) -> Result<Root, OpenError> {
    let mut best: Option<Root> = None;
    let slots = [(0, 0), (0, 1), (1, 0), (1, 1)];
    let ranges = slots.map(|(parity, copy)| (layout.root_slot(ring, parity, copy) * BLOCK, ROOT_BLOCKS * BLOCK));
    for (buf, (_, copy)) in dev.read_many(&ranges).into_iter().zip(slots) {
        let buf = match buf {
            Ok(buf) => buf,
            // An unreadable copy counts as torn: the other copy decides. Other errors may hide a newer root.
            Err(EIO) => continue,
            Err(e) => return Err(OpenError::Io(e, format!("a root of ring {ring}"))),
        };
        if let Some(r) = Root::decode(&buf, &sb.uuid, ring, copy, layout)
            && r.layout_epoch == sb.layout_epoch
            && best.as_ref().is_none_or(|b| b.seq < r.seq)
        {
            best = Some(r);
        }
    }
    let foreign = |r: &Root| r.trees.iter().find(|t| reactor_for(u16::from(t.0), sb.rings) != ring).map(|t| t.0);
    if let Some(r) = &best {
        r.features.check(&FEATURES, false).map_err(FormatError::Newer)?;
    }
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
        ptrs.iter().flat_map(|p| p.runs.iter().map(|r| (r.0 * BLOCK, u64::from(r.1) * BLOCK))).collect();
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

/// Reads missing pages.
pub(super) fn bring(dev: &mut dyn Device, m: &mut Meta, want: Vec<BlobPtr>) -> Result<(), OpenError> {
    let read = read_blobs(dev, &want, "metadata page")?;
    for (loc, data) in want.into_iter().zip(read) {
        m.staging_mut().put(Staged { loc, data: Ok(data) });
    }
    Ok(())
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
            streams: super::Streams::new(),
            filling: super::fill::Filling::default(),
            log: super::Log::new(ring, end.lsn),
            io: super::Requests::default(),
            events: VecDeque::new(),
            tags: super::Tags::default(),
            cache: super::BlockCache::new(cfg.cache_bytes.saturating_add(cfg.data_bytes)),
            checkpoint: super::Checkpoint::default(),
            needs: super::Needs::default(),
            room: super::room::Room::default(),
            changes: 0,
            suspended: None,
            growing: None,
            compressor: super::Compressor::default(),
            health: Health::Ok,
            counters: Default::default(),
            replayed: end.replayed,
            cfg: cfg.clone(),
        }
    }

    /// Writes an empty frame after the log, and makes it and everything that replay found durable.
    fn seal_log(&mut self, dev: &mut dyn Device) -> Result<(), OpenError> {
        let io = |e| OpenError::Io(e, "the log's end".into());
        // Frames that replay accepted may still be in a volatile cache.
        dev.flush().map_err(io)?;
        if self.log.ring().free() < 2 {
            // The log is full: a checkpoint makes room and moves the tail.
            self.checkpoint.request();
            drive(self, dev);
            if let Health::Failed { what, errno } = &self.health {
                return Err(OpenError::Io(*errno, what.clone()));
            }
        }
        let kind = if acts(Bug::StoreSealAsCommit) { Kind::Commit } else { Kind::Seal };
        let Some((at, frame)) = self.log.seal(kind) else {
            return damaged(format!("the log of ring {} has no room for its end", self.log.ring().index));
        };
        dev.write(at * BLOCK, &[frame]).map_err(io)?;
        dev.flush().map_err(io)?;
        self.log.sealed();
        Ok(())
    }
}

/// Divides the log among another number of reactors. Every store makes a checkpoint for its ring in the new
/// division of the log area. The superblock with the new division makes all of it valid at once.
pub(super) fn relayout(
    dev: &mut dyn Device,
    mut sb: Superblock,
    roots: &[Root],
    stores: &mut [Store],
) -> Result<(), OpenError> {
    let epoch = sb.layout_epoch + 1;
    // Slots of the old division must survive until the superblock is written, so the new root goes to the other
    // parity.
    for (i, s) in stores.iter_mut().enumerate() {
        s.log.set_layout(epoch);
        s.checkpoint.set_root_seq(roots.get(i).map_or(1, |r| r.seq));
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
