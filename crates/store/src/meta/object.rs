//! One object in memory and its stored form inside an object page.

use super::map::{BLOCKS_MAX, Chunk};
use super::omap::Omap;
use crate::codec::{Get, Malformed, Put};
use crate::key::{ObjectName, Oid};
use crate::layout::{BLOCK, Layout};
use bytes::Bytes;

/// Longest name that [`ShortName`] holds.
const SHORT_MAX: usize = 46;

/// Copy of a short, ordinary name inside the object's memory. A lookup reads the object anyway, and a name on
/// the heap would be one more cache miss.
#[derive(Clone, Copy, Debug)]
struct ShortName {
    /// Length of the name; above `SHORT_MAX` if the name is not held.
    len: u8,
    bytes: [u8; SHORT_MAX],
}

impl ShortName {
    fn of(o: &ObjectName) -> Self {
        let h = &o.hobj;
        let mut s = Self { len: u8::MAX, bytes: [0; SHORT_MAX] };
        let plain = h.key.is_empty() && h.nspace.is_empty() && !h.max;
        if plain
            && o.generation == Oid::NO_GEN
            && o.shard == base::ShardId::NONE
            && let Some(b) = s.bytes.get_mut(..h.oid.len())
        {
            b.copy_from_slice(&h.oid);
            s.len = h.oid.len() as u8;
        }
        s
    }
}

/// Parts of an object that were lost with metadata pages and not rewritten since. Reading them is an error; the
/// rest of the object is intact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Part of the block map. The content is unknown everywhere.
    pub(crate) map: bool,
    /// Part of the omap.
    pub(crate) omap: bool,
}

impl Lost {
    /// Flag of a loss: of map and omap, unless one of the other flags says that it is whole.
    const ANY: u8 = 32;
    const MAP_WHOLE: u8 = 64;
    const OMAP_WHOLE: u8 = 128;
    const BITS: u8 = Self::ANY | Self::MAP_WHOLE | Self::OMAP_WHOLE;

    pub(crate) fn any(self) -> bool {
        self.map || self.omap
    }

    fn bits(self) -> u8 {
        match (self.map, self.omap) {
            (false, false) => 0,
            (true, true) => Self::ANY,
            (true, false) => Self::ANY | Self::OMAP_WHOLE,
            (false, true) => Self::ANY | Self::MAP_WHOLE,
        }
    }

    fn from_bits(b: u8) -> Option<Self> {
        [(false, false), (true, true), (true, false), (false, true)]
            .map(|(map, omap)| Self { map, omap })
            .into_iter()
            .find(|l| l.bits() == b)
    }
}

#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) oid: ObjectName,
    short: ShortName,
    /// Slot of its collection.
    pub(crate) coll: u32,
    /// Page in which it is stored.
    pub(crate) page: u32,
    /// Number of the object for its whole life; a clone gets a new one.
    pub(crate) nid: u64,
    /// Birth id, the seed of block checksums; clones inherit it.
    pub(crate) birth: u64,
    pub(crate) size: u64,
    /// Map of a small object.
    pub(crate) inline: Chunk,
    /// True if the map is in pages; `inline` is then empty.
    pub(crate) paged: bool,
    /// Last known pages of the map's chunks; verified before use.
    pub(crate) hints: smallvec::SmallVec<[u32; 4]>,
    /// Number of mapped blocks.
    pub(crate) mapped: u64,
    /// True if the last block is mapped and the object ends inside it.
    pub(crate) tail: bool,
    /// True if the object was source or target of a clone: other objects may refer to its blocks.
    pub(crate) shared: bool,
    pub(crate) lost: Lost,
    /// Attributes in name order.
    pub(crate) attrs: Vec<(Bytes, Bytes)>,
    pub(crate) omap_header: Bytes,
    pub(crate) omap: Omap,
    pub(crate) hint: Option<(u64, u64, u32)>,
}

/// Weight of an attribute in [`Object::weight`].
fn attr_weight(name: &[u8], value: &[u8]) -> usize {
    name.len() + value.len() + 80
}

impl Object {
    pub(crate) fn new(oid: ObjectName, coll: u32, nid: u64) -> Self {
        Self {
            short: ShortName::of(&oid),
            oid,
            coll,
            page: 0,
            nid,
            birth: nid,
            size: 0,
            inline: Chunk::default(),
            paged: false,
            hints: smallvec::SmallVec::new(),
            mapped: 0,
            tail: false,
            shared: false,
            lost: Lost::default(),
            attrs: Vec::new(),
            omap_header: Bytes::new(),
            omap: Omap::default(),
            hint: None,
        }
    }

    /// True if the object has this name.
    pub(crate) fn is(&self, oid: &ObjectName) -> bool {
        let (a, b) = (&self.oid.hobj, &oid.hobj);
        if a.hash != b.hash || a.snap != b.snap || a.pool != b.pool {
            return false;
        }
        match self.short.bytes.get(..usize::from(self.short.len)) {
            Some(name) => {
                let plain = b.key.is_empty() && b.nspace.is_empty() && !b.max;
                plain && oid.generation == Oid::NO_GEN && oid.shard == base::ShardId::NONE && name == b.oid.as_ref()
            }
            None => self.oid == *oid,
        }
    }

    /// Changes the object's name.
    pub(crate) fn rename(&mut self, to: ObjectName) {
        self.short = ShortName::of(&to);
        self.oid = to;
    }

    /// Bytes of mapped blocks, cut at the object's end.
    pub(crate) fn stored(&self) -> u64 {
        let over = self.size.next_multiple_of(BLOCK) - self.size;
        (self.mapped * BLOCK).saturating_sub(if self.tail { over } else { 0 })
    }

    /// Estimate of its memory in bytes, at least the length of its stored form.
    pub(crate) fn weight(&self) -> usize {
        let names = self.oid.hobj.oid.len() + self.oid.hobj.key.len() + self.oid.hobj.nspace.len();
        let attrs: usize = self.attrs.iter().map(|(k, v)| attr_weight(k, v)).sum();
        let map = self.inline.bytes() + self.inline.mapped() as usize * 8;
        size_of::<Self>() + 24 + names + attrs + self.omap_header.len() + self.omap.inline_bytes() + map
    }

    pub(crate) fn attr(&self, name: &[u8]) -> Option<&Bytes> {
        let i = self.attrs.binary_search_by(|a| a.0.as_ref().cmp(name)).ok()?;
        self.attrs.get(i).map(|a| &a.1)
    }

    /// Sets an attribute. Returns the change of the weight.
    pub(crate) fn set_attr(&mut self, name: &Bytes, value: &Bytes) -> isize {
        // The value is copied: a slice of a network buffer would keep the whole buffer alive.
        match self.attrs.binary_search_by(|a| a.0.cmp(name)) {
            Ok(i) => {
                // Usually the length is unchanged and no reader holds the value, so its memory is reused.
                let old = std::mem::take(&mut self.attrs[i].1);
                let more = value.len() as isize - old.len() as isize;
                self.attrs[i].1 = match old.try_into_mut() {
                    Ok(mut m) if m.len() == value.len() => {
                        m.copy_from_slice(value);
                        m.freeze()
                    }
                    _ => Bytes::copy_from_slice(value),
                };
                more
            }
            Err(i) => {
                let (more, value) = (attr_weight(name, value) as isize, Bytes::copy_from_slice(value));
                // Names that nearly every object has are static.
                let name = match name.as_ref() {
                    b"_" => Bytes::from_static(b"_"),
                    b"snapset" => Bytes::from_static(b"snapset"),
                    other => Bytes::copy_from_slice(other),
                };
                self.attrs.insert(i, (name, value));
                more
            }
        }
    }

    /// Appends the stored form, as leaves hold it:
    ///
    /// | onode | form |
    /// | --- | --- |
    /// | name | name |
    /// | number | u64 |
    /// | birth id | u64 |
    /// | size | var |
    /// | flags | u8 |
    /// | expected object size | u64 if 1 |
    /// | expected write size | u64 if 1 |
    /// | hint flags | u32 if 1 |
    /// | attributes | var |
    /// | · name | bytes |
    /// | · value | bytes |
    /// | omap header | bytes |
    /// | omap keys | var |
    /// | · key length | var unless 2 |
    /// | · key and value | bytes unless 2 |
    /// | omap bytes | var if 2 |
    /// | map | map unless 4 |
    /// | mapped blocks | var if 4 |
    pub(crate) fn encode(&self, w: &mut Vec<u8>) {
        w.oid(&self.oid);
        w.u64(self.nid);
        w.u64(self.birth);
        w.var(self.size);
        w.u8(u8::from(self.hint.is_some())
            | u8::from(self.omap.paged()) << 1
            | u8::from(self.paged) << 2
            | u8::from(self.tail) << 3
            | u8::from(self.shared) << 4
            | self.lost.bits());
        if let Some((o, s, f)) = self.hint {
            w.u64(o);
            w.u64(s);
            w.u32(f);
        }
        w.var(self.attrs.len() as u64);
        for (k, v) in &self.attrs {
            w.bytes(k);
            w.bytes(v);
        }
        w.bytes(&self.omap_header);
        self.omap.encode(w);
        if self.paged {
            w.var(self.mapped);
        } else {
            self.inline.encode(w);
        }
    }

    /// Decodes the stored form.
    pub(crate) fn decode(r: &mut Get<'_>, coll: u32, layout: &Layout) -> Result<Self, Malformed> {
        let oid = r.name()?;
        let mut o = Self::new(oid, coll, r.u64()?);
        o.birth = r.u64()?;
        o.size = r.var()?;
        if o.size > BLOCKS_MAX * BLOCK {
            return r.bad();
        }
        let flags = r.u8()?;
        let Some(lost) = Lost::from_bits(flags & Lost::BITS) else { return r.bad() };
        o.lost = lost;
        if flags & 1 != 0 {
            o.hint = Some((r.u64()?, r.u64()?, r.u32()?));
        }
        for _ in 0..r.count(2)? {
            o.attrs.push((r.bytes()?, r.bytes()?));
        }
        if !o.attrs.is_sorted_by(|a, b| a.0 < b.0) {
            return r.bad();
        }
        o.omap_header = r.bytes()?;
        o.omap = Omap::decode(r, flags & 2 != 0)?;
        (o.paged, o.tail, o.shared) = (flags & 4 != 0, flags & 8 != 0, flags & 16 != 0);
        if o.paged {
            o.mapped = r.var()?;
        } else {
            o.inline = Chunk::decode(r, layout)?;
            o.mapped = o.inline.mapped();
        }
        if o.mapped > BLOCKS_MAX {
            return r.bad();
        }
        Ok(o)
    }
}
