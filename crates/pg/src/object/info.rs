//! `ObjectInfo`: the attribute `_` of every object and clone.
//!
//! Format, little-endian: u8 format (1), u8 bits for the optional parts, fixed part, optional parts in bit order. The
//! common object has only the fixed part: 93 bytes.

use base::{EntityAddr, EntityName, Eversion, ReqId, Utime};
use bytes::Bytes;
use std::collections::BTreeMap;
use wire::{Decode, DecodeError, Encode, Features, Reader, Writer};

/// One registered watch, as stored to survive a restart (`watch_info_t`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchInfo {
    /// Seconds after which a silent watcher is dropped.
    pub timeout_seconds: u32,
    /// Address of the watcher, checked against the blocklist.
    pub addr: EntityAddr,
}

/// Identity of a watch: the client's cookie, and the client.
pub type WatchKey = (u64, EntityName);

/// `object_info_t`: state of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectInfo {
    /// Version of the last change, as in the PG log.
    pub version: Eversion,
    /// Version that clients see; only their changes to the content raise it.
    pub user_version: u64,
    /// The reqid of the last change.
    pub last_reqid: ReqId,
    /// Size in bytes.
    pub size: u64,
    /// Modification time as the client gave it.
    pub mtime: Utime,
    /// Modification time by the OSD's clock.
    pub local_mtime: Utime,
    /// Flag bits: [`ObjectInfo::OMAP`], [`ObjectInfo::DIRTY`].
    pub flags: u32,
    /// CephFS: sequence number of the last truncation applied.
    pub truncate_seq: u32,
    /// CephFS: size of the file at that truncation.
    pub truncate_size: u64,
    /// Object size that the client announced, in bytes.
    pub expected_object_size: u64,
    /// Write size that the client announced, in bytes.
    pub expected_write_size: u64,
    /// Flags of the client's allocation hint.
    pub alloc_hint_flags: u32,
    /// Watches of the head.
    pub watchers: BTreeMap<WatchKey, WatchInfo>,
}

impl ObjectInfo {
    /// The object changed since the last UNDIRTY.
    pub const DIRTY: u32 = 1 << 2;
    /// The object has or had omap entries or a header.
    pub const OMAP: u32 = 1 << 3;
    const FORMAT: u8 = 1;
    /// Bytes of the fixed part.
    const FIXED: usize = 93;
    const HAS_TRUNCATE: u8 = 1;
    const HAS_HINT: u8 = 2;
    const HAS_WATCHERS: u8 = 4;

    /// True if the object may have omap data.
    #[must_use]
    pub fn has_omap(&self) -> bool {
        self.flags & Self::OMAP != 0
    }

    /// Clears the state of the content, for an object that is deleted and may be created again (`new_object`).
    pub fn reset(&mut self) {
        *self = Self { version: self.version, user_version: self.user_version, ..Self::default() };
    }

    /// Encodes the stored form.
    #[must_use]
    pub fn to_attr(&self) -> Bytes {
        let truncate = self.truncate_seq != 0 || self.truncate_size != 0;
        let hint = self.expected_object_size != 0 || self.expected_write_size != 0 || self.alloc_hint_flags != 0;
        // Bytes of exactly the capacity take one allocation, others two.
        let mut w =
            Writer::with_capacity(Features::PACIFIC, Self::FIXED + usize::from(truncate) * 12 + usize::from(hint) * 20);
        w.u8(Self::FORMAT);
        w.u8((u8::from(truncate) * Self::HAS_TRUNCATE)
            | (u8::from(hint) * Self::HAS_HINT)
            | (u8::from(!self.watchers.is_empty()) * Self::HAS_WATCHERS));
        w.put(&self.version);
        w.u64(self.user_version);
        w.put(&self.last_reqid.name);
        w.u64(self.last_reqid.tid);
        w.i32(self.last_reqid.inc);
        w.u64(self.size);
        w.put(&self.mtime);
        w.put(&self.local_mtime);
        w.u32(self.flags);
        if truncate {
            w.u32(self.truncate_seq);
            w.u64(self.truncate_size);
        }
        if hint {
            w.u64(self.expected_object_size);
            w.u64(self.expected_write_size);
            w.u32(self.alloc_hint_flags);
        }
        if !self.watchers.is_empty() {
            w.seq(self.watchers.iter(), |w, (k, v)| {
                w.put(k);
                w.u32(v.timeout_seconds);
                w.put(&v.addr);
            });
        }
        w.into_bytes()
    }

    /// Decodes the stored form. The truncation of a file that was never truncated counts as none, although it may be
    /// stored.
    ///
    /// # Errors
    ///
    /// If the format is unknown or the bytes are too short.
    pub fn from_attr(b: &Bytes) -> Result<Self, DecodeError> {
        let mut oi = Self::as_stored(b)?;
        (oi.truncate_seq, oi.truncate_size) = crate::exec::truncation(oi.truncate_seq, oi.truncate_size);
        Ok(oi)
    }

    /// Decodes the stored form with its truncation as it is stored; see [`ObjectInfo::from_attr`].
    ///
    /// # Errors
    ///
    /// If the format is unknown or the bytes are too short.
    pub fn as_stored(b: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::shared(b);
        let format = r.u8()?;
        if format != Self::FORMAT {
            return Err(DecodeError::BadValue { what: "object info format", value: format.into() });
        }
        let bits = r.u8()?;
        let mut oi = Self {
            version: r.get()?,
            user_version: r.u64()?,
            last_reqid: ReqId { name: r.get()?, tid: r.u64()?, inc: r.i32()? },
            size: r.u64()?,
            mtime: r.get()?,
            local_mtime: r.get()?,
            flags: r.u32()?,
            ..Self::default()
        };
        if bits & Self::HAS_TRUNCATE != 0 {
            oi.truncate_seq = r.u32()?;
            oi.truncate_size = r.u64()?;
        }
        if bits & Self::HAS_HINT != 0 {
            oi.expected_object_size = r.u64()?;
            oi.expected_write_size = r.u64()?;
            oi.alloc_hint_flags = r.u32()?;
        }
        if bits & Self::HAS_WATCHERS != 0 {
            for _ in 0..r.count(20, "watchers")? {
                let k: WatchKey = r.get()?;
                oi.watchers.insert(k, WatchInfo { timeout_seconds: r.u32()?, addr: EntityAddr::decode(&mut r)? });
            }
        }
        Ok(oi)
    }
}

impl Encode for ObjectInfo {
    fn encode(&self, w: &mut Writer) {
        w.blob(&self.to_attr());
    }
}

impl Decode for ObjectInfo {
    fn decode(r: &mut Reader<'_>) -> wire::codec::Result<Self> {
        Self::from_attr(&r.blob()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::EntityKind;

    #[test]
    fn stored_form_round_trips_and_stays_small() {
        let mut oi = ObjectInfo {
            version: Eversion::new(3, 9),
            user_version: 8,
            last_reqid: ReqId { name: EntityName::new(EntityKind::CLIENT, 4100), tid: 77, inc: 1 },
            size: 4096,
            mtime: Utime { sec: 5, nsec: 6 },
            local_mtime: Utime { sec: 7, nsec: 8 },
            ..ObjectInfo::default()
        };
        assert!(oi.to_attr().len() < 96, "{}", oi.to_attr().len());
        assert_eq!(ObjectInfo::from_attr(&oi.to_attr()).unwrap(), oi);
        oi.truncate_seq = 3;
        oi.truncate_size = 11;
        oi.expected_write_size = 1 << 20;
        oi.flags = ObjectInfo::OMAP;
        oi.watchers.insert(
            (5, EntityName::new(EntityKind::CLIENT, 4100)),
            WatchInfo { timeout_seconds: 30, addr: EntityAddr::msgr2("127.0.0.1:5".parse().unwrap(), 7) },
        );
        let b = oi.to_attr();
        assert_eq!(ObjectInfo::from_attr(&b).unwrap(), oi);
        for n in 0..b.len() {
            assert!(ObjectInfo::from_attr(&b.slice(..n)).is_err(), "cut at {n}");
        }
    }
}
