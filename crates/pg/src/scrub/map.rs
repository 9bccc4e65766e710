//! The state of an object and its clones as one copy reports it.
//!
//! Invariant: decoding allocates no more than the message's own size justifies.
//!
//! Tests: `crates/hostile/tests/hostile_bytes.rs` (family `structures`).

use crate::object::{OI_ATTR, ObjectInfo, SS_ATTR, SnapSet};
use base::{HObject, SnapId};
use bytes::Bytes;
use wire::codec::Result;
use wire::{Decode, Encode, Reader, Writer};

/// Attributes up to this size are reported whole, so that they can be listed; larger ones only by checksum.
pub const ATTR_SHOWN_MAX: usize = 512;

/// The object could not be read.
pub const READ_ERROR: u8 = 1;
/// The size of the object could not be read.
pub const STAT_ERROR: u8 = 2;

/// One attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubAttr {
    /// Name as stored.
    pub name: Bytes,
    /// Length of the value.
    pub len: u32,
    /// crc32c of the value.
    pub crc: u32,
    /// The value, if it is small or the PG's own attribute.
    pub value: Option<Bytes>,
}

impl ScrubAttr {
    /// The report of a stored attribute.
    #[must_use]
    pub fn new(name: Bytes, value: Bytes) -> Self {
        let whole = value.len() <= ATTR_SHOWN_MAX || name == OI_ATTR || name == SS_ATTR;
        Self {
            len: value.len() as u32,
            crc: base::crc::crc32c(base::crc::SEED, &value),
            value: whole.then_some(value),
            name,
        }
    }
}

/// An object or clone as one copy has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubObject {
    /// Snapshot id: head, clone or snapdir.
    pub snap: SnapId,
    /// Errors: [`READ_ERROR`], [`STAT_ERROR`].
    pub errors: u8,
    /// Size in bytes.
    pub size: u64,
    /// Attributes, ordered by name.
    pub attrs: Vec<ScrubAttr>,
    /// crc32c of the data, if the data was read.
    pub data_digest: Option<u32>,
    /// crc32c of the omap's header and entries, if the omap was read.
    pub omap_digest: Option<u32>,
    /// Number of omap entries, if the omap was read.
    pub omap_keys: u64,
    /// Bytes of the omap's values.
    pub omap_bytes: u64,
    /// Digest of a shard that was read ([`super::parity`]). Messages carry it behind the objects.
    pub parity: Option<Bytes>,
}

impl ScrubObject {
    /// The attribute of that name.
    #[must_use]
    pub fn attr(&self, name: &[u8]) -> Option<&ScrubAttr> {
        self.attrs.iter().find(|a| a.name == name)
    }

    /// The object info, decoded; `None` if the copy has none. Error: it does not decode.
    #[must_use]
    pub fn info(&self) -> Option<Result<ObjectInfo>> {
        self.attr(OI_ATTR).and_then(|a| a.value.as_ref()).map(ObjectInfo::from_attr)
    }

    /// The snapset, decoded; `None` if the copy has none. Error: it does not decode.
    #[must_use]
    pub fn snapset(&self) -> Option<Result<SnapSet>> {
        self.attr(SS_ATTR).and_then(|a| a.value.as_ref()).map(SnapSet::from_attr)
    }
}

/// An object with its clones as one copy has them; no objects if the copy has nothing of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// Name of the head.
    pub head: HObject,
    /// Head, clones and snapdir that exist, in order.
    pub objects: Vec<ScrubObject>,
}

impl Family {
    /// The object or clone of that snapshot id.
    #[must_use]
    pub fn object(&self, snap: SnapId) -> Option<&ScrubObject> {
        self.objects.iter().find(|o| o.snap == snap)
    }
}

impl Encode for ScrubObject {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.snap);
        w.u8(self.errors);
        w.u64(self.size);
        w.seq(self.attrs.iter(), |w, a| {
            w.blob(&a.name);
            w.u32(a.len);
            w.u32(a.crc);
            w.put(&a.value);
        });
        w.put(&self.data_digest);
        w.put(&self.omap_digest);
        w.u64(self.omap_keys);
        w.u64(self.omap_bytes);
    }
}

impl Decode for ScrubObject {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            snap: r.get()?,
            errors: r.u8()?,
            size: r.u64()?,
            attrs: r.vec_with("attributes", |r| {
                Ok(ScrubAttr { name: r.blob()?, len: r.u32()?, crc: r.u32()?, value: r.get()? })
            })?,
            data_digest: r.get()?,
            omap_digest: r.get()?,
            omap_keys: r.u64()?,
            omap_bytes: r.u64()?,
            parity: None,
        })
    }
}

impl Encode for Family {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.head);
        w.seq(self.objects.iter(), |w, o| w.put(o));
    }
}

impl Decode for Family {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { head: r.get()?, objects: r.vec_with("objects", |r| r.get())? })
    }
}
