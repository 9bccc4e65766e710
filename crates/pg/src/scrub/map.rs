//! What one copy says of an object with its clones.
//!
//! Invariant: decoding allocates no more than the message's own size justifies.

use crate::object::{OI_ATTR, ObjectInfo, SS_ATTR, SnapSet};
use base::{HObject, SnapId};
use bytes::Bytes;
use wire::codec::Result;
use wire::{Decode, Encode, Reader, Writer};

/// Attributes up to this size are told whole, so that they can be shown; of larger ones only the checksum.
pub const ATTR_SHOWN_MAX: usize = 512;

/// It could not be read back.
pub const READ_ERROR: u8 = 1;
/// Not even its size could be found out.
pub const STAT_ERROR: u8 = 2;

/// One attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubAttr {
    /// Name as stored.
    pub name: Bytes,
    /// Length of the value.
    pub len: u32,
    /// Its crc32c.
    pub crc: u32,
    /// The value, if it is small or ours.
    pub value: Option<Bytes>,
}

impl ScrubAttr {
    /// Of a stored attribute.
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

/// An object as one copy has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubObject {
    /// Head, clone or snapdir.
    pub snap: SnapId,
    /// [`READ_ERROR`], [`STAT_ERROR`].
    pub errors: u8,
    /// Bytes.
    pub size: u64,
    /// Attributes in order of name.
    pub attrs: Vec<ScrubAttr>,
    /// crc32c of the data, if it was read.
    pub data_digest: Option<u32>,
    /// crc32c of header and entries of the omap, if they were read.
    pub omap_digest: Option<u32>,
    /// Entries of the omap, if they were read.
    pub omap_keys: u64,
    /// Bytes of their values.
    pub omap_bytes: u64,
    /// Of a shard that was read: what its bytes fold to ([`super::parity`]). Messages have it behind the objects.
    pub parity: Option<Bytes>,
}

impl ScrubObject {
    /// An attribute.
    #[must_use]
    pub fn attr(&self, name: &[u8]) -> Option<&ScrubAttr> {
        self.attrs.iter().find(|a| a.name == name)
    }

    /// Its object info: none, or one that may not decode.
    #[must_use]
    pub fn info(&self) -> Option<Result<ObjectInfo>> {
        self.attr(OI_ATTR).and_then(|a| a.value.as_ref()).map(ObjectInfo::from_attr)
    }

    /// Its snapset: none, or one that may not decode.
    #[must_use]
    pub fn snapset(&self) -> Option<Result<SnapSet>> {
        self.attr(SS_ATTR).and_then(|a| a.value.as_ref()).map(SnapSet::from_attr)
    }
}

/// An object with its clones as one copy has them; no objects if it has nothing of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// The head's name.
    pub head: HObject,
    /// What there is, in order.
    pub objects: Vec<ScrubObject>,
}

impl Family {
    /// One of its objects.
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
