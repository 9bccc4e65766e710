//! Formatting of an empty store, and access to the superblock and labels of a closed one.

use super::Device;
use crate::layout::{
    BLOCK, DEVICE_BYTES_MAX, DEVICE_BYTES_MIN, FEATURES, FORMAT_VERSION, FORMAT_VERSION_PLAIN, Layout, RINGS_MAX,
    ROOT_BLOCKS, SHARDS, SUPER_BLOCKS,
};
use crate::superblock::{LABEL_BYTES_MAX, Labels, NotSuper, Root, Superblock};
use base::errno::{EIO, Errno};
use base::{FeatureWords, Newer, Uuid};

/// Parameters of a new store.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// Random identity of the store.
    pub uuid: Uuid,
    /// Number of reactors of the first opening; it may change later.
    pub reactors: u16,
    /// Initial labels.
    pub labels: Labels,
}

/// Error of formatting or probing a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The device is too small.
    #[error("the device has {have} bytes, a store needs at least {need}")]
    TooSmall {
        /// Size of the device in bytes.
        have: u64,
        /// Least size in bytes.
        need: u64,
    },
    /// The device is too large.
    #[error("the device has {have} bytes, a store can use at most {most}: divide it, and make an OSD of each part")]
    TooLarge {
        /// Size of the device in bytes.
        have: u64,
        /// Largest size in bytes.
        most: u64,
    },
    /// Labels exceed [`LABEL_BYTES_MAX`] or the reactors [`RINGS_MAX`].
    #[error("{0} exceeds its limit")]
    Limit(&'static str),
    /// The device has no store.
    #[error("no object store found on the device")]
    None,
    /// The store has another format version.
    #[error(
        "the store has format version {0}, this program knows versions from {FORMAT_VERSION_PLAIN}: run it with the release that made it, \
         or recreate the OSD on it (`belemnite osd --mkfs --force`) and let it recover from its peers"
    )]
    Version(u32),
    /// A newer program made the store, or has used it. Nothing is damaged.
    #[error("the store was {0}")]
    Newer(Newer),
    /// A newer program made the store, in a format that this one does not know. Nothing is damaged.
    #[error(
        "the store was made by a newer version of Belemnite: it has format version {0}, this version knows up to \
         {FORMAT_VERSION}; run the version that made it"
    )]
    NewerFormat(u32),
    /// The device failed.
    #[error("device error: {}", base::errno::name(*.0))]
    Io(Errno),
}

fn check(labels: &Labels, reactors: u16) -> Result<(), FormatError> {
    if labels.iter().map(|(k, v)| k.len() + v.len() + 16).sum::<usize>() > LABEL_BYTES_MAX {
        return Err(FormatError::Limit("size of labels"));
    }
    if reactors == 0 || reactors > RINGS_MAX {
        return Err(FormatError::Limit("number of reactors"));
    }
    Ok(())
}

fn not_too_large(bytes: u64) -> Result<(), FormatError> {
    if bytes > DEVICE_BYTES_MAX {
        return Err(FormatError::TooLarge { have: bytes, most: DEVICE_BYTES_MAX });
    }
    Ok(())
}

/// Formats an empty store. All data on the device is lost. Error: [`FormatError::TooSmall`], [`FormatError::TooLarge`],
/// [`FormatError::Limit`] for the labels or the reactors, or [`FormatError::Io`].
pub fn format(dev: &mut dyn Device, o: &FormatOptions) -> Result<Superblock, FormatError> {
    check(&o.labels, o.reactors)?;
    let bytes = dev.bytes() / BLOCK * BLOCK;
    let small = FormatError::TooSmall { have: bytes, need: DEVICE_BYTES_MIN };
    let layout = Layout::of(bytes).ok_or(small)?;
    not_too_large(bytes)?;
    // Frames of an earlier store must not look valid, even if it had the same uuid.
    let layout_epoch = probe(dev).map_or(1, |old| old.layout_epoch.saturating_add(1));
    let sb = Superblock {
        version: FORMAT_VERSION_PLAIN,
        features: FeatureWords::default(),
        seq: 1,
        uuid: o.uuid,
        bytes,
        grown: 0,
        shards: SHARDS,
        rings: o.reactors,
        layout_epoch,
        labels: o.labels.clone(),
    };
    // No superblock, root or first frame of an earlier store may stay valid, even if it had the same uuid.
    let zeros = |blocks: u64| base::buf::AlignedBuf::zeroed((blocks * BLOCK) as usize).freeze();
    let mut wipe = |first: u64, blocks: u64| dev.write(first * BLOCK, &[zeros(blocks)]).map_err(FormatError::Io);
    for slot in 0..4 {
        wipe(layout.super_slot(slot), SUPER_BLOCKS)?;
    }
    let roots = 2 * ROOT_BLOCKS * u64::from(RINGS_MAX);
    wipe(layout.root_slot(0, 0, 0), roots)?;
    wipe(layout.root_slot(0, 0, 1), roots)?;
    for ring in 0..o.reactors {
        wipe(layout.ring(ring, o.reactors).0, 1)?;
    }
    dev.flush().map_err(FormatError::Io)?;
    // Writes the roots of empty trees before the superblock, so that no superblock exists without them.
    for ring in 0..o.reactors {
        let root = Root {
            seq: 1,
            layout_epoch,
            ring,
            next_nid: 1,
            next_lsn: 1,
            log_pos: 0,
            log_seq: 1,
            log_chain: 0,
            page_blocks: 0,
            trees: Vec::new(),
            used: Vec::new(),
            features: FeatureWords::default(),
        };
        for copy in 0..2 {
            let at = layout.root_slot(ring, root.seq, copy) * BLOCK;
            let buf = root.encode(&sb.uuid, copy).ok_or(FormatError::Limit("size of a root"))?;
            dev.write(at, &[buf]).map_err(FormatError::Io)?;
        }
    }
    dev.flush().map_err(FormatError::Io)?;
    write_super(dev, &sb)?;
    Ok(sb)
}

pub(super) fn write_super(dev: &mut dyn Device, sb: &Superblock) -> Result<(), FormatError> {
    let layout = sb.layout().ok_or(FormatError::None)?;
    for slot in sb.slots() {
        dev.write(layout.super_slot(slot) * BLOCK, &[sb.encode(slot)]).map_err(FormatError::Io)?;
    }
    dev.flush().map_err(FormatError::Io)
}

/// Reads the newest superblock of a device. A copy of a newer, unknown format takes precedence: an older copy beside it
/// must not be believed. Error: [`FormatError::None`] without a superblock, [`FormatError::Version`] for another
/// format, [`FormatError::NewerFormat`] or [`FormatError::Newer`] for one of a newer program, [`FormatError::TooSmall`] if the device is smaller than the store, or [`FormatError::Io`].
pub fn probe(dev: &mut dyn Device) -> Result<Superblock, FormatError> {
    let bytes = dev.bytes() / BLOCK * BLOCK;
    let ends = 2 * SUPER_BLOCKS * BLOCK;
    if bytes < 2 * ends {
        return Err(FormatError::None);
    }
    let mut found = Found::default();
    // The copies are read separately: of two adjacent ones a single one may be readable.
    found.look(dev, [(0, 0), (SUPER_BLOCKS * BLOCK, 1), (bytes - ends, 2), (bytes - ends / 2, 3)]);
    // If the device was enlarged, the last two copies are where the store ends.
    if let Some(end) = found.best.as_ref().map(Superblock::size).filter(|end| *end > ends && *end < bytes) {
        found.look(dev, [(end - ends, 2), (end - ends / 2, 3)]);
    }
    let known = found.foreign.is_none_or(|v| v < FORMAT_VERSION) && found.newer.is_none();
    // An error other than an unreadable sector may hide the newest copy.
    if let Some(e) = found.io.filter(|e| *e != EIO) {
        return Err(FormatError::Io(e));
    }
    match (found.best.filter(|_| known), found.foreign, found.io) {
        (Some(s), _, _) if s.size() <= bytes => Ok(s),
        (Some(s), _, _) => Err(FormatError::TooSmall { have: bytes, need: s.size() }),
        (None, Some(v), _) if v > FORMAT_VERSION => Err(FormatError::NewerFormat(v)),
        (None, _, _) if let Some(newer) = found.newer => Err(FormatError::Newer(newer)),
        (None, Some(v), _) => Err(FormatError::Version(v)),
        (None, None, Some(e)) => Err(FormatError::Io(e)),
        (None, None, None) => Err(FormatError::None),
    }
}

/// Like [`probe`], for a store that will be changed. Error: also [`FormatError::Newer`] for read-only compat features that
/// this program does not know.
pub(super) fn probe_to_change(dev: &mut dyn Device) -> Result<Superblock, FormatError> {
    let sb = probe(dev)?;
    sb.features.check(&FEATURES, true).map_err(FormatError::Newer)?;
    Ok(sb)
}

/// Contents of the superblock slots.
#[derive(Default)]
struct Found {
    /// Newest valid superblock of this version.
    best: Option<Superblock>,
    /// Newest version number among copies of other formats.
    foreign: Option<u32>,
    /// Unknown features of a copy.
    newer: Option<Newer>,
    io: Option<Errno>,
}

impl Found {
    /// Reads slots, given as byte offset and number.
    fn look<const N: usize>(&mut self, dev: &mut dyn Device, slots: [(u64, u64); N]) {
        let ranges = slots.map(|(off, _)| (off, SUPER_BLOCKS * BLOCK));
        for (buf, (_, slot)) in dev.read_many(&ranges).into_iter().zip(slots) {
            match buf.map(|b| Superblock::decode(&b, slot)) {
                Ok(Ok(s)) if self.best.as_ref().is_none_or(|b| b.seq < s.seq) => self.best = Some(s),
                Ok(Err(NotSuper::Version(v))) => self.foreign = self.foreign.max(Some(v)),
                Ok(Err(NotSuper::Newer(n))) => self.newer = Some(n),
                Ok(_) => {}
                // Other errors take precedence over unreadable sectors.
                Err(e) => self.io = self.io.filter(|io| *io != EIO).or(Some(e)),
            }
        }
    }
}

/// Extends a closed store to the whole of an enlarged device. The log keeps its length.
///
/// The second copies of the roots are written at the new end first. The superblock with the new size makes them valid,
/// so a crash before it leaves the store unchanged. Errors are those of [`probe`], [`FormatError::TooLarge`],
/// [`FormatError::Limit`] for the size of a root, and [`FormatError::Io`] of a write.
pub fn grow(dev: &mut dyn Device) -> Result<Superblock, FormatError> {
    let mut sb = probe_to_change(dev)?;
    let bytes = dev.bytes() / BLOCK * BLOCK;
    let old = sb.layout().ok_or(FormatError::None)?;
    // The new copies must not overlap the old ones.
    if bytes < sb.size() + (old.blocks - old.space_end) * BLOCK {
        return Ok(sb);
    }
    not_too_large(bytes)?;
    let new = old.grown_to(bytes);
    for ring in 0..sb.rings {
        for (parity, copy) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let range = (old.root_slot(ring, parity, copy) * BLOCK, ROOT_BLOCKS * BLOCK);
            let Some(Ok(buf)) = dev.read_many(&[range]).pop() else { continue };
            if let Some(root) = Root::decode(&buf, &sb.uuid, ring, copy, &old) {
                let at = new.root_slot(ring, parity, 1) * BLOCK;
                let buf = root.encode(&sb.uuid, 1).ok_or(FormatError::Limit("size of a root"))?;
                dev.write(at, &[buf]).map_err(FormatError::Io)?;
            }
        }
    }
    dev.flush().map_err(FormatError::Io)?;
    sb.grown = bytes;
    sb.seq += 1;
    write_super(dev, &sb)?;
    Ok(sb)
}

/// Replaces the labels of a closed store. Errors are those of [`probe`], [`FormatError::Limit`] for too large labels,
/// and [`FormatError::Io`] of a write.
pub fn relabel(dev: &mut dyn Device, labels: Labels) -> Result<Superblock, FormatError> {
    let mut sb = probe_to_change(dev)?;
    check(&labels, sb.rings)?;
    sb.labels = labels;
    sb.seq += 1;
    write_super(dev, &sb)?;
    Ok(sb)
}
