//! Encodings of class `rbd`: `cls_rbd.h`, `cls_rbd_types.h`.
//!
//! Written in the format of clusters with `require_osd_release` Nautilus or later, which Belemnite always has; every
//! older format is read, too. Strings are kept as bytes.

use base::Utime;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wire::codec::Result;
use wire::{Decode, Encode, Reader, Writer};

/// Snapshot id of the head (`CEPH_NOSNAP`).
pub(super) const NOSNAP: u64 = u64::MAX - 1;
/// Highest snapshot id (`CEPH_MAXSNAP`).
pub(super) const MAXSNAP: u64 = u64::MAX - 2;

/// `cls_rbd_parent`: the parent snapshot of a cloned image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) pool: i64,
    pub(super) nspace: Bytes,
    pub(super) image: Bytes,
    pub(super) snap: u64,
    /// Bytes of the head that read from the parent; `None` if only snapshots do.
    pub(super) overlap: Option<u64>,
}

impl Default for Parent {
    fn default() -> Self {
        Self { pool: -1, nspace: Bytes::new(), image: Bytes::new(), snap: NOSNAP, overlap: None }
    }
}

impl Parent {
    pub(super) fn exists(&self) -> bool {
        self.pool >= 0 && !self.image.is_empty() && self.snap != NOSNAP
    }

    /// True if both name the same parent snapshot, regardless of the overlap.
    pub(super) fn same(&self, o: &Self) -> bool {
        (self.pool, &self.nspace, &self.image, self.snap) == (o.pool, &o.nspace, &o.image, o.snap)
    }
}

impl Encode for Parent {
    fn encode(&self, w: &mut Writer) {
        w.versioned(2, 2, |w| {
            w.i64(self.pool);
            w.blob(&self.nspace);
            w.blob(&self.image);
            w.u64(self.snap);
            w.put(&self.overlap);
        });
    }
}
impl Decode for Parent {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("cls_rbd_parent", 2, |r, v| {
            Ok(Self {
                pool: r.i64()?,
                nspace: if v >= 2 { r.blob()? } else { Bytes::new() },
                image: r.blob()?,
                snap: r.u64()?,
                overlap: if v >= 2 { r.get()? } else { Some(r.u64()?) },
            })
        })
    }
}

/// `cls::rbd::ParentImageSpec`.
#[derive(Clone, Debug)]
pub(super) struct ParentSpec {
    pub(super) pool: i64,
    pub(super) nspace: Bytes,
    pub(super) image: Bytes,
    pub(super) snap: u64,
}

impl Encode for ParentSpec {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.i64(self.pool);
            w.blob(&self.nspace);
            w.blob(&self.image);
            w.u64(self.snap);
        });
    }
}
impl Decode for ParentSpec {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("ParentImageSpec", 1, |r, _| {
            Ok(Self { pool: r.i64()?, nspace: r.blob()?, image: r.blob()?, snap: r.u64()? })
        })
    }
}

/// `cls::rbd::ChildImageSpec`, in the order of Ceph's sets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChildSpec {
    pool: i64,
    nspace: Bytes,
    image: Bytes,
}

impl Encode for ChildSpec {
    fn encode(&self, w: &mut Writer) {
        w.versioned(2, 1, |w| {
            w.i64(self.pool);
            w.blob(&self.image);
            w.blob(&self.nspace);
        });
    }
}
impl Decode for ChildSpec {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("ChildImageSpec", 2, |r, v| {
            let (pool, image) = (r.i64()?, r.blob()?);
            Ok(Self { pool, image, nspace: if v >= 2 { r.blob()? } else { Bytes::new() } })
        })
    }
}

/// `cls::rbd::MirrorSnapshotNamespace`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MirrorSnap {
    /// State: 0 primary, 1 demoted primary, 2 non-primary, 3 demoted non-primary.
    pub(super) state: u8,
    pub(super) complete: bool,
    pub(super) peers: BTreeSet<Bytes>,
    primary_uuid: Bytes,
    primary_snap: u64,
    pub(super) last_copied: u64,
    snap_seqs: BTreeMap<u64, u64>,
}

impl MirrorSnap {
    pub(super) fn is_non_primary(&self) -> bool {
        self.state == 2 || self.state == 3
    }
}

/// `cls::rbd::SnapshotNamespace`: type of a snapshot, with type-specific fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SnapKind {
    User,
    Group { pool: i64, group: Bytes, snap: Bytes },
    Trash { name: Bytes, kind: u32 },
    Mirror(MirrorSnap),
    Unknown,
}

impl SnapKind {
    pub(super) fn code(&self) -> u32 {
        match self {
            Self::User => 0,
            Self::Group { .. } => 1,
            Self::Trash { .. } => 2,
            Self::Mirror(_) => 3,
            Self::Unknown => u32::MAX,
        }
    }
}

impl Encode for SnapKind {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.u32(self.code());
            match self {
                Self::User | Self::Unknown => {}
                Self::Group { pool, group, snap } => {
                    w.i64(*pool);
                    w.blob(group);
                    w.blob(snap);
                }
                Self::Trash { name, kind } => {
                    w.blob(name);
                    w.u32(*kind);
                }
                Self::Mirror(m) => {
                    w.u8(m.state);
                    w.bool(m.complete);
                    w.put(&m.peers);
                    w.blob(&m.primary_uuid);
                    w.u64(m.primary_snap);
                    w.u64(m.last_copied);
                    w.put(&m.snap_seqs);
                }
            }
        });
    }
}
impl Decode for SnapKind {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("SnapshotNamespace", 1, |r, _| {
            Ok(match r.u32()? {
                0 => Self::User,
                1 => Self::Group { pool: r.i64()?, group: r.blob()?, snap: r.blob()? },
                2 => Self::Trash { name: r.blob()?, kind: r.u32()? },
                3 => Self::Mirror(MirrorSnap {
                    state: r.u8()?,
                    complete: r.bool()?,
                    peers: r.get()?,
                    primary_uuid: r.blob()?,
                    primary_snap: r.u64()?,
                    last_copied: r.u64()?,
                    snap_seqs: r.get()?,
                }),
                _ => Self::Unknown,
            })
        })
    }
}

/// `cls_rbd_snap`: record of a snapshot in the image header.
#[derive(Clone, Debug)]
pub(super) struct Snap {
    pub(super) id: u64,
    pub(super) name: Bytes,
    pub(super) size: u64,
    /// Protection: 0 unprotected, 1 unprotecting, 2 protected.
    pub(super) protection: u8,
    /// Set only in records from before Nautilus; others have [`Snap::overlap`], and the header has the parent.
    pub(super) parent: Parent,
    pub(super) flags: u64,
    pub(super) time: Utime,
    pub(super) kind: SnapKind,
    pub(super) children: u32,
    pub(super) overlap: Option<u64>,
}

impl Snap {
    /// True if the snapshot reads data from a parent.
    pub(super) fn has_parent(&self) -> bool {
        self.parent.pool != -1 || self.overlap.is_some()
    }
}

impl Encode for Snap {
    /// Encodes the record without the parent, which [`super::snapshot::store`] has moved to the header.
    fn encode(&self, w: &mut Writer) {
        w.versioned(8, 8, |w| {
            w.u64(self.id);
            w.blob(&self.name);
            w.u64(self.size);
            w.u8(self.protection);
            w.u64(self.flags);
            w.put(&self.kind);
            w.put(&self.time);
            w.u32(self.children);
            w.put(&self.overlap);
        });
    }
}
impl Decode for Snap {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        // The fields depend on the compat version, which `versioned` does not pass on.
        let compat = r.clone().take(2, "cls_rbd_snap")?[1];
        r.versioned("cls_rbd_snap", 8, |r, v| {
            let (id, name, size) = (r.u64()?, r.blob()?, r.u64()?);
            if compat < 8 {
                r.u64()?;
            }
            Ok(Self {
                id,
                name,
                size,
                parent: if v >= 2 && compat < 8 { r.get()? } else { Parent::default() },
                protection: if v >= 3 { r.u8()? } else { 0 },
                flags: if v >= 4 { r.u64()? } else { 0 },
                kind: if v >= 5 { r.get()? } else { SnapKind::User },
                time: if v >= 6 { r.get()? } else { Utime::ZERO },
                children: if v >= 7 { r.u32()? } else { 0 },
                overlap: if v >= 8 { r.get()? } else { None },
            })
        })
    }
}

/// `cls::rbd::MigrationSpec`.
#[derive(Clone, Debug)]
pub(super) struct Migration {
    /// Role: 1 source, 2 destination.
    pub(super) header: u8,
    pool: i64,
    nspace: Bytes,
    image_name: Bytes,
    image: Bytes,
    snap_seqs: BTreeMap<u64, u64>,
    overlap: u64,
    flatten: bool,
    mirroring: bool,
    pub(super) state: u8,
    pub(super) description: Bytes,
    mirror_mode: u8,
    source: Bytes,
}

impl Encode for Migration {
    fn encode(&self, w: &mut Writer) {
        w.versioned(3, if self.source.is_empty() { 1 } else { 3 }, |w| {
            w.u8(self.header);
            w.i64(self.pool);
            w.blob(&self.nspace);
            w.blob(&self.image_name);
            w.blob(&self.image);
            w.put(&self.snap_seqs);
            w.u64(self.overlap);
            w.bool(self.flatten);
            w.bool(self.mirroring);
            w.u8(self.state);
            w.blob(&self.description);
            w.u8(self.mirror_mode);
            w.blob(&self.source);
        });
    }
}
impl Decode for Migration {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("MigrationSpec", 3, |r, v| {
            Ok(Self {
                header: r.u8()?,
                pool: r.i64()?,
                nspace: r.blob()?,
                image_name: r.blob()?,
                image: r.blob()?,
                snap_seqs: r.get()?,
                overlap: r.u64()?,
                flatten: r.bool()?,
                mirroring: r.bool()?,
                state: r.u8()?,
                description: r.blob()?,
                mirror_mode: if v >= 2 { r.u8()? } else { 0 },
                source: if v >= 3 { r.blob()? } else { Bytes::new() },
            })
        })
    }
}

/// `cls::rbd::TrashImageSpec`.
#[derive(Clone, Debug)]
pub(super) struct TrashSpec {
    source: u8,
    name: Bytes,
    deleted: Utime,
    deferred_until: Utime,
    /// State: 0 normal, 1 moving, 2 removing, 3 restoring.
    pub(super) state: u8,
}

impl Encode for TrashSpec {
    fn encode(&self, w: &mut Writer) {
        w.versioned(2, 1, |w| {
            w.u8(self.source);
            w.blob(&self.name);
            w.put(&self.deleted);
            w.put(&self.deferred_until);
            w.u8(self.state);
        });
    }
}
impl Decode for TrashSpec {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("TrashImageSpec", 2, |r, v| {
            Ok(Self {
                source: r.u8()?,
                name: r.blob()?,
                deleted: r.get()?,
                deferred_until: r.get()?,
                state: if v >= 2 { r.u8()? } else { 0 },
            })
        })
    }
}

/// `cls::rbd::GroupSpec`: a group by pool and id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupSpec {
    pub(super) pool: i64,
    pub(super) group: Bytes,
}

impl Default for GroupSpec {
    fn default() -> Self {
        Self { pool: -1, group: Bytes::new() }
    }
}

impl Encode for GroupSpec {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.i64(self.pool);
            w.blob(&self.group);
        });
    }
}
impl Decode for GroupSpec {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("GroupSpec", 1, |r, _| Ok(Self { pool: r.i64()?, group: r.blob()? }))
    }
}

/// `cls::rbd::GroupImageSpec`: an image of a group.
#[derive(Clone, Debug)]
pub(super) struct GroupImage {
    pub(super) image: Bytes,
    pub(super) pool: i64,
}

impl Encode for GroupImage {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.blob(&self.image);
            w.i64(self.pool);
        });
    }
}
impl Decode for GroupImage {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("GroupImageSpec", 1, |r, _| Ok(Self { image: r.blob()?, pool: r.i64()? }))
    }
}

/// `cls::rbd::GroupImageStatus`.
#[derive(Clone, Debug)]
pub(super) struct GroupImageStatus {
    pub(super) image: GroupImage,
    /// State: 0 attached, 1 incomplete.
    pub(super) state: u8,
}

impl Encode for GroupImageStatus {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.put(&self.image);
            w.u8(self.state);
        });
    }
}
impl Decode for GroupImageStatus {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("GroupImageStatus", 1, |r, _| Ok(Self { image: r.get()?, state: r.u8()? }))
    }
}

/// `cls::rbd::GroupSnapshot`: a snapshot of all images of a group.
#[derive(Clone, Debug)]
pub(super) struct GroupSnap {
    pub(super) id: Bytes,
    pub(super) name: Bytes,
    /// State: 0 incomplete, 1 complete.
    pub(super) state: u8,
    /// Pool, image and snapshot id of each member (`ImageSnapshotSpec`).
    snaps: Vec<(i64, Bytes, u64)>,
}

impl Encode for GroupSnap {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.blob(&self.id);
            w.blob(&self.name);
            w.u8(self.state);
            w.seq(self.snaps.iter(), |w, (pool, image, snap)| {
                w.versioned(1, 1, |w| {
                    w.i64(*pool);
                    w.blob(image);
                    w.u64(*snap);
                });
            });
        });
    }
}
impl Decode for GroupSnap {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("GroupSnapshot", 1, |r, _| {
            Ok(Self {
                id: r.blob()?,
                name: r.blob()?,
                state: r.u8()?,
                snaps: r.vec_with("ImageSnapshotSpec", |r| {
                    r.versioned("ImageSnapshotSpec", 1, |r, _| Ok((r.i64()?, r.blob()?, r.u64()?)))
                })?,
            })
        })
    }
}
