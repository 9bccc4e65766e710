//! Byte encodings of the on-disk format: little-endian integers, LEB128 counts, length-prefixed bytes.
//!
//! Invariant: decoding never panics and never allocates more than the input it was given can account for.
//!
//! Tests: below, and `crates/hostile/tests/hostile_bytes.rs` (families `store_records`, `store_pages`,
//! `store_extents`).

use crate::key::{Cid, ObjectName, Oid};
use base::{Epoch, Eversion, HObject, PgId, PoolId, ShardId, SnapId, SpgId};
use bytes::Bytes;

/// Error of stored bytes that can't be decoded. The caller knows the structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed structure at byte {at}")]
pub(crate) struct Malformed {
    /// Offset within the structure.
    pub at: usize,
}

/// Appends encodings to a vector.
pub(crate) trait Put {
    fn u8(&mut self, v: u8);
    fn u16(&mut self, v: u16);
    fn u32(&mut self, v: u32);
    fn u64(&mut self, v: u64);
    fn var(&mut self, v: u64);
    fn bytes(&mut self, v: &[u8]);
    fn cid(&mut self, c: Cid);
    fn oid(&mut self, o: &ObjectName);
    fn version(&mut self, v: Eversion);
}

impl Put for Vec<u8> {
    fn u8(&mut self, v: u8) {
        self.push(v);
    }
    fn u16(&mut self, v: u16) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    fn u32(&mut self, v: u32) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    fn u64(&mut self, v: u64) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    fn var(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.push(v as u8);
    }
    fn bytes(&mut self, v: &[u8]) {
        self.var(v.len() as u64);
        self.extend_from_slice(v);
    }
    fn cid(&mut self, c: Cid) {
        match c {
            Cid::Meta => self.u8(0),
            Cid::Pg(p) => {
                self.u8(1);
                self.u64(p.pg.pool.0 as u64);
                self.u32(p.pg.seed);
                self.u8(p.shard.0 as u8);
            }
        }
    }
    /// Flags are 1: the greatest name, 2: a key, 4: a namespace, 8: generation and shard.
    ///
    /// | name | form |
    /// | --- | --- |
    /// | flags | u8 |
    /// | pool | u64 |
    /// | hash | u32 |
    /// | snap | u64 |
    /// | name | bytes |
    /// | key | bytes if 2 |
    /// | namespace | bytes if 4 |
    /// | generation | u64 if 8 |
    /// | shard | u8 if 8 |
    fn oid(&mut self, o: &ObjectName) {
        let h = &o.hobj;
        // Most objects have no key, no namespace and no generation, so one flag byte is enough.
        let flags = u8::from(h.max)
            | u8::from(!h.key.is_empty()) << 1
            | u8::from(!h.nspace.is_empty()) << 2
            | u8::from(o.generation != Oid::NO_GEN || o.shard != ShardId::NONE) << 3;
        self.u8(flags);
        self.u64(h.pool.0 as u64);
        self.u32(h.hash);
        self.u64(h.snap.0);
        self.bytes(&h.oid);
        if flags & 2 != 0 {
            self.bytes(&h.key);
        }
        if flags & 4 != 0 {
            self.bytes(&h.nspace);
        }
        if flags & 8 != 0 {
            self.u64(o.generation);
            self.u8(o.shard.0 as u8);
        }
    }
    fn version(&mut self, v: Eversion) {
        self.u32(v.epoch.0);
        self.u64(v.version);
    }
}

/// Cursor that decodes a slice.
#[derive(Clone, Debug)]
pub(crate) struct Get<'a> {
    buf: &'a [u8],
    pos: usize,
}

type R<T> = Result<T, Malformed>;

impl<'a> Get<'a> {
    pub(crate) fn new(buf: &'a [u8]) -> Self {
        Self { buf, pos: 0 }
    }
    pub(crate) fn rest(&self) -> usize {
        self.buf.len() - self.pos
    }
    pub(crate) fn bad<T>(&self) -> R<T> {
        Err(Malformed { at: self.pos })
    }
    pub(crate) fn take(&mut self, n: usize) -> R<&'a [u8]> {
        let end = self.pos.checked_add(n).ok_or(Malformed { at: self.pos })?;
        let s = self.buf.get(self.pos..end).ok_or(Malformed { at: self.pos })?;
        self.pos = end;
        Ok(s)
    }
    pub(crate) fn array<const N: usize>(&mut self) -> R<[u8; N]> {
        let at = self.pos;
        self.take(N)?.try_into().map_err(|_| Malformed { at })
    }
    pub(crate) fn u8(&mut self) -> R<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }
    pub(crate) fn u16(&mut self) -> R<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    pub(crate) fn u32(&mut self) -> R<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    pub(crate) fn u64(&mut self) -> R<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    pub(crate) fn var(&mut self) -> R<u64> {
        let mut v = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.u8()?;
            v |= u64::from(b & 0x7f) << shift;
            if b & 0x80 == 0 {
                return Ok(v);
            }
        }
        self.bad()
    }
    /// Decodes a count of items of at least `each` bytes; the remaining bytes bound it.
    pub(crate) fn count(&mut self, each: usize) -> R<usize> {
        let n = usize::try_from(self.var()?).map_err(|_| Malformed { at: self.pos })?;
        if n.checked_mul(each.max(1)).is_none_or(|b| b > self.rest()) {
            return self.bad();
        }
        Ok(n)
    }
    pub(crate) fn bytes(&mut self) -> R<Bytes> {
        let n = self.count(1)?;
        Ok(Bytes::copy_from_slice(self.take(n)?))
    }
    pub(crate) fn cid(&mut self) -> R<Cid> {
        match self.u8()? {
            0 => Ok(Cid::Meta),
            1 => {
                let pool = PoolId(self.u64()? as i64);
                let pg = PgId { pool, seed: self.u32()? };
                Ok(Cid::Pg(SpgId { pg, shard: ShardId(self.u8()? as i8) }))
            }
            _ => self.bad(),
        }
    }
    pub(crate) fn name(&mut self) -> R<ObjectName> {
        let flags = self.u8()?;
        let pool = PoolId(self.u64()? as i64);
        let hash = self.u32()?;
        let snap = SnapId(self.u64()?);
        let oid = self.bytes()?;
        let key = if flags & 2 != 0 { self.bytes()? } else { Bytes::new() };
        let nspace = if flags & 4 != 0 { self.bytes()? } else { Bytes::new() };
        let (generation, shard) =
            if flags & 8 != 0 { (self.u64()?, ShardId(self.u8()? as i8)) } else { (Oid::NO_GEN, ShardId::NONE) };
        let hobj = HObject { oid, key, nspace, snap, hash, max: flags & 1 != 0, pool };
        Ok(ObjectName { hobj, generation, shard })
    }
    pub(crate) fn oid(&mut self) -> R<Oid> {
        self.name().map(Oid::from)
    }
    pub(crate) fn version(&mut self) -> R<Eversion> {
        Ok(Eversion { epoch: Epoch(self.u32()?), version: self.u64()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_cut_input_is_refused() {
        let full: Oid = ObjectName {
            hobj: HObject {
                oid: Bytes::from_static(b"name"),
                key: Bytes::from_static(b"k"),
                nspace: Bytes::from_static(b"ns"),
                snap: SnapId(7),
                hash: 0xdead_beef,
                max: false,
                pool: PoolId(-3),
            },
            generation: 9,
            shard: ShardId(2),
        }
        .into();
        let cid = Cid::Pg(SpgId { pg: PgId::new(5, 77), shard: ShardId(1) });
        let mut w = Vec::new();
        w.oid(&full);
        w.oid(&Oid::new(HObject::max()));
        w.cid(cid);
        w.var(u64::MAX);
        let mut r = Get::new(&w);
        assert_eq!(r.oid().unwrap(), full);
        assert_eq!(r.oid().unwrap(), Oid::new(HObject::max()));
        assert_eq!(r.cid().unwrap(), cid);
        assert_eq!(r.var().unwrap(), u64::MAX);
        assert_eq!(r.rest(), 0);
        for cut in 0..20 {
            assert!(Get::new(&w[..cut]).oid().is_err());
        }
        assert!(Get::new(&[0xff, 0xff, 0xff, 0xff, 0x0f]).count(1).is_err());
    }
}
