//! Encodings of class `rgw`'s bucket index: `cls_rgw_types.h` of Ceph 20.2. Formats from before Ceph's first stable
//! release (without a length) are not supported.

use base::Utime;
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::codec::Result as Decoded;
use wire::{Decode, DecodeError, Encode, Reader, Writer};

/// `rgw_obj_index_key`: name and version id of an object; the null version and plain objects have no id.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) name: Bytes,
    pub(super) instance: Bytes,
}

impl Key {
    pub(super) fn named(name: Bytes) -> Self {
        Self { name, instance: Bytes::new() }
    }
}

impl Encode for Key {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.blob(&self.name);
            w.blob(&self.instance);
        });
    }
}
impl Decode for Key {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_obj_index_key", 1, |r, _| Ok(Self { name: r.blob()?, instance: r.blob()? }))
    }
}

/// Encodes a number compactly: one byte below 0x80, else 0x80 plus the width, and the number. Ceph has a defect here:
/// it writes 0x10000 in two bytes, and thus as 0. This code uses four bytes.
fn put_packed(w: &mut Writer, v: u64) {
    match v {
        0..0x80 => w.u8(v as u8),
        0x80..0x100 => {
            w.u8(0x81);
            w.u8(v as u8);
        }
        0x100..0x1_0000 => {
            w.u8(0x82);
            w.u16(v as u16);
        }
        0x1_0000..=0x100_0000 => {
            w.u8(0x84);
            w.u32(v as u32);
        }
        _ => {
            w.u8(0x88);
            w.u64(v);
        }
    }
}

fn packed(r: &mut Reader<'_>) -> Decoded<u64> {
    Ok(match r.u8()? {
        c @ 0..=0x7f => u64::from(c),
        0x81 => u64::from(r.u8()?),
        0x82 => u64::from(r.u16()?),
        0x84 => u64::from(r.u32()?),
        0x88 => r.u64()?,
        c => return Err(DecodeError::BadValue { what: "width of a packed number", value: u64::from(c) }),
    })
}

/// `rgw_bucket_entry_ver`: version of the head object, as pool and PG version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ver {
    pub(super) pool: i64,
    pub(super) epoch: u64,
}

impl Default for Ver {
    fn default() -> Self {
        Self { pool: -1, epoch: 0 }
    }
}

impl Encode for Ver {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            put_packed(w, self.pool as u64);
            put_packed(w, self.epoch);
        });
    }
}
impl Decode for Ver {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_bucket_entry_ver", 1, |r, _| Ok(Self { pool: packed(r)? as i64, epoch: packed(r)? }))
    }
}

/// `rgw_bucket_dir_entry_meta`: metadata of an object in listings.
#[derive(Clone, Debug, Default)]
pub(super) struct Meta {
    pub(super) category: u8,
    /// Stored size in bytes, after compression and encryption.
    pub(super) size: u64,
    pub(super) mtime: Utime,
    pub(super) etag: Bytes,
    pub(super) owner: Bytes,
    pub(super) owner_name: Bytes,
    pub(super) content_type: Bytes,
    /// Size in bytes that the user sees.
    pub(super) accounted_size: u64,
    pub(super) user_data: Bytes,
    pub(super) storage_class: Bytes,
    pub(super) appendable: bool,
}

impl Encode for Meta {
    fn encode(&self, w: &mut Writer) {
        w.versioned(7, 3, |w| {
            w.u8(self.category);
            w.u64(self.size);
            w.put(&self.mtime);
            w.blob(&self.etag);
            w.blob(&self.owner);
            w.blob(&self.owner_name);
            w.blob(&self.content_type);
            w.u64(self.accounted_size);
            w.blob(&self.user_data);
            w.blob(&self.storage_class);
            w.bool(self.appendable);
        });
    }
}
impl Decode for Meta {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_bucket_dir_entry_meta", 7, |r, v| {
            let mut m = Self {
                category: r.u8()?,
                size: r.u64()?,
                mtime: r.get()?,
                etag: r.blob()?,
                owner: r.blob()?,
                owner_name: r.blob()?,
                content_type: r.blob()?,
                ..Self::default()
            };
            m.accounted_size = if v >= 4 { r.u64()? } else { m.size };
            if v >= 5 {
                m.user_data = r.blob()?;
            }
            if v >= 6 {
                m.storage_class = r.blob()?;
            }
            if v >= 7 {
                m.appendable = r.bool()?;
            }
            Ok(m)
        })
    }
}

/// `rgw_bucket_pending_info`: a prepared, uncompleted operation.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) state: u8,
    pub(super) time: Utime,
    pub(super) op: u8,
}

impl Encode for Pending {
    fn encode(&self, w: &mut Writer) {
        w.versioned(2, 2, |w| {
            w.u8(self.state);
            w.put(&self.time);
            w.u8(self.op);
        });
    }
}
impl Decode for Pending {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_bucket_pending_info", 2, |r, _| Ok(Self { state: r.u8()?, time: r.get()?, op: r.u8()? }))
    }
}

/// Flags of a [`DirEntry`].
pub(super) mod flags {
    /// The entry is a version.
    pub(crate) const VER: u16 = 1;
    /// The entry is the current version.
    pub(crate) const CURRENT: u16 = 2;
    pub(crate) const DELETE_MARKER: u16 = 4;
    /// The entry is the plain placeholder of a versioned object.
    pub(crate) const VER_MARKER: u16 = 8;
    /// Only in replies: the entry is a common prefix.
    pub(crate) const COMMON_PREFIX: u16 = 0x8000;
}

/// `rgw_bucket_dir_entry`: entry of an object in the index.
#[derive(Clone, Debug, Default)]
pub(super) struct DirEntry {
    pub(super) key: Key,
    pub(super) ver: Ver,
    pub(super) locator: Bytes,
    pub(super) exists: bool,
    pub(super) meta: Meta,
    /// Operations in progress by tag, in the order of tags; equal tags in order of arrival.
    pub(super) pending: Vec<(Bytes, Pending)>,
    pub(super) index_ver: u64,
    pub(super) tag: Bytes,
    pub(super) flags: u16,
    pub(super) versioned_epoch: u64,
}

impl DirEntry {
    pub(super) fn is_delete_marker(&self) -> bool {
        self.flags & flags::DELETE_MARKER != 0
    }

    /// True if a listing without versions shows the entry.
    pub(super) fn is_visible(&self) -> bool {
        (self.flags & flags::VER == 0 || self.flags & flags::CURRENT != 0) && !self.is_delete_marker()
    }

    /// Adds a prepared operation.
    pub(super) fn add_pending(&mut self, tag: Bytes, p: Pending) {
        let at = self.pending.partition_point(|(t, _)| *t <= tag);
        self.pending.insert(at, (tag, p));
    }

    /// Removes the first operation with this tag; false if there is none.
    pub(super) fn end_pending(&mut self, tag: &[u8]) -> bool {
        match self.pending.iter().position(|(t, _)| t == tag) {
            Some(at) => {
                self.pending.remove(at);
                true
            }
            None => false,
        }
    }
}

impl Encode for DirEntry {
    fn encode(&self, w: &mut Writer) {
        w.versioned(8, 3, |w| {
            w.blob(&self.key.name);
            w.u64(self.ver.epoch);
            w.bool(self.exists);
            w.put(&self.meta);
            w.put(&self.pending);
            w.blob(&self.locator);
            w.put(&self.ver);
            put_packed(w, self.index_ver);
            w.blob(&self.tag);
            w.blob(&self.key.instance);
            w.u16(self.flags);
            w.u64(self.versioned_epoch);
        });
    }
}
impl Decode for DirEntry {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_bucket_dir_entry", 8, |r, v| {
            let mut e = Self { key: Key::named(r.blob()?), ..Self::default() };
            e.ver.epoch = r.u64()?;
            e.exists = r.bool()?;
            e.meta = r.get()?;
            e.pending = r.get()?;
            // Callers rely on the order of tags, which the wire format does not guarantee.
            e.pending.sort_by(|a, b| a.0.cmp(&b.0));
            e.locator = r.blob()?;
            if v >= 4 {
                e.ver = r.get()?;
            }
            if v >= 5 {
                e.index_ver = packed(r)?;
                e.tag = r.blob()?;
            }
            if v >= 6 {
                e.key.instance = r.blob()?;
            }
            if v >= 7 {
                e.flags = r.u16()?;
            }
            if v >= 8 {
                e.versioned_epoch = r.u64()?;
            }
            Ok(e)
        })
    }
}

/// Types of index entries (`BIIndexType`).
pub(super) mod bi {
    pub(crate) const INVALID: u8 = 0;
    pub(crate) const PLAIN: u8 = 1;
    pub(crate) const INSTANCE: u8 = 2;
    pub(crate) const OLH: u8 = 3;
    pub(crate) const RESHARD_DELETED: u8 = 4;
}

/// `rgw_cls_bi_entry`: a raw index entry.
#[derive(Clone, Debug)]
pub(super) struct BiEntry {
    pub(super) kind: u8,
    pub(super) idx: Bytes,
    pub(super) data: Bytes,
}

impl Encode for BiEntry {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.u8(self.kind);
            w.blob(&self.idx);
            w.blob(&self.data);
        });
    }
}
impl Decode for BiEntry {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_cls_bi_entry", 1, |r, _| Ok(Self { kind: r.u8()?, idx: r.blob()?, data: r.blob()? }))
    }
}

/// `rgw_bucket_olh_log_entry`: a step that the gateway must carry out on the objects of versions.
#[derive(Clone, Debug)]
pub(super) struct OlhStep {
    pub(super) epoch: u64,
    pub(super) op: u8,
    pub(super) op_tag: Bytes,
    pub(super) key: Key,
    pub(super) delete_marker: bool,
}

impl Encode for OlhStep {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.u64(self.epoch);
            w.u8(self.op);
            w.blob(&self.op_tag);
            w.put(&self.key);
            w.bool(self.delete_marker);
        });
    }
}
impl Decode for OlhStep {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_bucket_olh_log_entry", 1, |r, _| {
            Ok(Self { epoch: r.u64()?, op: r.u8()?, op_tag: r.blob()?, key: r.get()?, delete_marker: r.bool()? })
        })
    }
}

/// `rgw_bucket_olh_entry`: the current version of an object, and the remaining steps.
#[derive(Clone, Debug, Default)]
pub(super) struct OlhEntry {
    pub(super) key: Key,
    pub(super) delete_marker: bool,
    pub(super) epoch: u64,
    pub(super) log: BTreeMap<u64, Vec<OlhStep>>,
    pub(super) tag: Bytes,
    pub(super) exists: bool,
    pub(super) pending_removal: bool,
}

impl Encode for OlhEntry {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.put(&self.key);
            w.bool(self.delete_marker);
            w.u64(self.epoch);
            w.put(&self.log);
            w.blob(&self.tag);
            w.bool(self.exists);
            w.bool(self.pending_removal);
        });
    }
}
impl Decode for OlhEntry {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_bucket_olh_entry", 1, |r, _| {
            Ok(Self {
                key: r.get()?,
                delete_marker: r.bool()?,
                epoch: r.u64()?,
                log: r.get()?,
                tag: r.blob()?,
                exists: r.bool()?,
                pending_removal: r.bool()?,
            })
        })
    }
}

/// `rgw_zone_set`: zones that a change has passed, in the order of zone and location key.
#[derive(Clone, Debug, Default)]
pub(super) struct Zones(Vec<Bytes>);

impl Encode for Zones {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.0);
    }
}
impl Decode for Zones {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        let mut v: Vec<Bytes> = r.get()?;
        let parts = |z: &Bytes| match z.iter().position(|c| *c == b':') {
            Some(at) => (z.slice(..at), Some(z.slice(at + 1..))),
            None => (z.clone(), None),
        };
        v.sort_by_cached_key(parts);
        v.dedup();
        Ok(Self(v))
    }
}

/// `rgw_bi_log_entry`: a change, for replication to other zones.
#[derive(Clone, Debug, Default)]
pub(super) struct LogEntry {
    pub(super) id: Bytes,
    pub(super) key: Key,
    pub(super) time: Utime,
    pub(super) ver: Ver,
    pub(super) op: u8,
    pub(super) state: u8,
    pub(super) index_ver: u64,
    pub(super) tag: Bytes,
    pub(super) flags: u16,
    pub(super) owner: Bytes,
    pub(super) owner_name: Bytes,
    pub(super) zones: Zones,
}

impl Encode for LogEntry {
    fn encode(&self, w: &mut Writer) {
        w.versioned(4, 1, |w| {
            w.blob(&self.id);
            w.blob(&self.key.name);
            w.put(&self.time);
            w.put(&self.ver);
            w.blob(&self.tag);
            w.u8(self.op);
            w.u8(self.state);
            put_packed(w, self.index_ver);
            w.blob(&self.key.instance);
            w.u16(self.flags);
            w.blob(&self.owner);
            w.blob(&self.owner_name);
            w.put(&self.zones);
        });
    }
}
impl Decode for LogEntry {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_bi_log_entry", 4, |r, v| {
            let mut e = Self { id: r.blob()?, key: Key::named(r.blob()?), ..Self::default() };
            e.time = r.get()?;
            e.ver = r.get()?;
            e.tag = r.blob()?;
            e.op = r.u8()?;
            e.state = r.u8()?;
            e.index_ver = packed(r)?;
            if v >= 2 {
                e.key.instance = r.blob()?;
                e.flags = r.u16()?;
            }
            if v >= 3 {
                e.owner = r.blob()?;
                e.owner_name = r.blob()?;
            }
            if v >= 4 {
                e.zones = r.get()?;
            }
            Ok(e)
        })
    }
}

/// `rgw_bucket_category_stats`. Sums wrap as Ceph's do, so that a subtraction before its addition still gives the right
/// sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stats {
    pub(super) size: u64,
    pub(super) rounded: u64,
    pub(super) entries: u64,
    pub(super) actual: u64,
}

impl Stats {
    /// Statistics of one object.
    pub(super) fn of(m: &Meta) -> Self {
        let rounded = m.accounted_size.wrapping_add(4095) & !4095;
        Self { size: m.accounted_size, rounded, entries: 1, actual: m.size }
    }

    pub(super) fn add(&mut self, o: &Self) {
        self.size = self.size.wrapping_add(o.size);
        self.rounded = self.rounded.wrapping_add(o.rounded);
        self.entries = self.entries.wrapping_add(o.entries);
        self.actual = self.actual.wrapping_add(o.actual);
    }

    pub(super) fn sub(&mut self, o: &Self) {
        self.size = self.size.wrapping_sub(o.size);
        self.rounded = self.rounded.wrapping_sub(o.rounded);
        self.entries = self.entries.wrapping_sub(o.entries);
        self.actual = self.actual.wrapping_sub(o.actual);
    }
}

impl Encode for Stats {
    fn encode(&self, w: &mut Writer) {
        w.versioned(3, 2, |w| {
            w.u64(self.size);
            w.u64(self.rounded);
            w.u64(self.entries);
            w.u64(self.actual);
        });
    }
}
impl Decode for Stats {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_bucket_category_stats", 3, |r, v| {
            let (size, rounded, entries) = (r.u64()?, r.u64()?, r.u64()?);
            Ok(Self { size, rounded, entries, actual: if v >= 3 { r.u64()? } else { size } })
        })
    }
}

/// `cls_rgw_bucket_instance_entry`: resharding state of the bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Resharding(pub(super) u8);

impl Resharding {
    /// Writes are refused.
    pub(super) const IN_PROGRESS: Self = Self(1);
    /// Writes are recorded in the reshard log.
    pub(super) const IN_LOGRECORD: Self = Self(3);
}

impl Encode for Resharding {
    fn encode(&self, w: &mut Writer) {
        w.versioned(3, 1, |w| {
            w.u8(self.0);
            // Obsolete fields, empty.
            w.blob(b"");
            w.i32(-1);
        });
    }
}
impl Decode for Resharding {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("cls_rgw_bucket_instance_entry", 3, |r, v| {
            let status = r.u8()?;
            if v != 2 {
                r.blob()?;
                r.i32()?;
            }
            Ok(Self(status))
        })
    }
}

/// `rgw_bucket_dir_header`: statistics by category, in the omap header of an index shard.
#[derive(Clone, Debug, Default)]
pub(super) struct Header {
    pub(super) stats: BTreeMap<u8, Stats>,
    /// Seconds after which a pending operation counts as failed; 0 for the default.
    pub(super) tag_timeout: u64,
    pub(super) ver: u64,
    pub(super) master_ver: u64,
    pub(super) max_marker: Bytes,
    pub(super) resharding: Resharding,
    pub(super) sync_stopped: bool,
    pub(super) reshard_log_entries: u32,
}

impl Header {
    /// Statistics of a category.
    pub(super) fn of(&mut self, category: u8) -> &mut Stats {
        self.stats.entry(category).or_default()
    }
}

impl Encode for Header {
    fn encode(&self, w: &mut Writer) {
        w.versioned(8, 2, |w| {
            w.put(&self.stats);
            w.u64(self.tag_timeout);
            w.u64(self.ver);
            w.u64(self.master_ver);
            w.blob(&self.max_marker);
            w.put(&self.resharding);
            w.bool(self.sync_stopped);
            w.u32(self.reshard_log_entries);
        });
    }
}
impl Decode for Header {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        r.versioned("rgw_bucket_dir_header", 8, |r, v| {
            let mut h = Self { stats: r.get()?, ..Self::default() };
            if v >= 3 {
                h.tag_timeout = r.u64()?;
            }
            if v >= 4 {
                h.ver = r.u64()?;
                h.master_ver = r.u64()?;
            }
            if v >= 5 {
                h.max_marker = r.blob()?;
            }
            if v >= 6 {
                h.resharding = r.get()?;
            }
            if v >= 7 {
                h.sync_stopped = r.bool()?;
            }
            if v >= 8 {
                h.reshard_log_entries = r.u32()?;
            }
            Ok(h)
        })
    }
}
