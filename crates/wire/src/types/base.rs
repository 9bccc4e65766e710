//! Encodings of the types in `base`.

use crate::codec::{Decode, DecodeError, Encode, Reader, Result, Writer};
use base::{
    AddrKind, AddrVec, AuthName, EntityAddr, EntityKind, EntityName, Epoch, Eversion, HObject, OsdId, PgId, PoolId,
    ReqId, ShardId, SnapId, SpgId, Utime, id::Uuid,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

macro_rules! newtype {
    ($($t:ident($p:ident);)*) => {$(
        impl Encode for $t {
            fn encode(&self, w: &mut Writer) { w.$p(self.0); }
        }
        impl Decode for $t {
            fn decode(r: &mut Reader<'_>) -> Result<Self> { Ok(Self(r.$p()?)) }
        }
    )*};
}
newtype! { Epoch(u32); OsdId(i32); PoolId(i64); ShardId(i8); SnapId(u64); EntityKind(u8); }

impl Encode for Utime {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.sec);
        w.u32(self.nsec);
    }
}
impl Decode for Utime {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { sec: r.u32()?, nsec: r.u32()? })
    }
}

impl Encode for Uuid {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.0);
    }
}
impl Decode for Uuid {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self(r.array("uuid")?))
    }
}

/// `pg_t`: u8 1, u64 pool, u32 seed, i32 -1.
impl Encode for PgId {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.i64(self.pool.0);
        w.u32(self.seed);
        w.i32(-1);
    }
}
impl Decode for PgId {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let v = r.u8()?;
        if v != 1 {
            return Err(DecodeError::BadValue { what: "pg_t version", value: v.into() });
        }
        let pool = r.i64()?;
        let seed = r.u32()?;
        r.i32()?;
        Ok(Self::new(pool, seed))
    }
}

impl Encode for SpgId {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.put(&self.pg);
            w.put(&self.shard);
        });
    }
}
impl Decode for SpgId {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("spg_t", 1, |r, _| Ok(Self { pg: r.get()?, shard: r.get()? }))
    }
}

/// `eversion_t`: version first, then epoch.
impl Encode for Eversion {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.version);
        w.put(&self.epoch);
    }
}
impl Decode for Eversion {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let version = r.u64()?;
        Ok(Self { version, epoch: r.get()? })
    }
}

/// `entity_name_t`: u8 type, i64 number.
impl Encode for EntityName {
    fn encode(&self, w: &mut Writer) {
        w.u8(self.kind.0);
        w.i64(self.num);
    }
}
impl Decode for EntityName {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { kind: r.get()?, num: r.i64()? })
    }
}

/// `EntityName`: u32 type, string id.
impl Encode for AuthName {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.kind.0.into());
        w.string(&self.id);
    }
}
impl Decode for AuthName {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let k = r.u32()?;
        let kind = u8::try_from(k)
            .map(EntityKind)
            .map_err(|_| DecodeError::BadValue { what: "entity type", value: k.into() })?;
        Ok(Self { kind, id: r.string()? })
    }
}

impl Encode for ReqId {
    fn encode(&self, w: &mut Writer) {
        w.versioned(2, 2, |w| {
            w.put(&self.name);
            w.u64(self.tid);
            w.i32(self.inc);
        });
    }
}
impl Decode for ReqId {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("osd_reqid_t", 2, |r, _| Ok(Self { name: r.get()?, tid: r.u64()?, inc: r.i32()? }))
    }
}

/// `hobject_t`: version 4, compat 3.
impl Encode for HObject {
    fn encode(&self, w: &mut Writer) {
        w.versioned(4, 3, |w| {
            w.blob(&self.key);
            w.blob(&self.oid);
            w.put(&self.snap);
            w.u32(self.hash);
            w.bool(self.max);
            w.blob(&self.nspace);
            w.put(&self.pool);
        });
    }
}
impl Decode for HObject {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("hobject_t", 4, |r, _| {
            let (key, oid, snap, hash, max, nspace, pool) =
                (r.blob()?, r.blob()?, r.get()?, r.u32()?, r.bool()?, r.blob()?, r.get::<PoolId>()?);
            // Older writers leave the pool of the minimum object at -1.
            let pool = if pool.0 == -1 && !max && oid.is_empty() && hash == 0 && snap == SnapId(0) {
                PoolId(i64::MIN)
            } else {
                pool
            };
            Ok(Self { oid, key, nspace, snap, hash, max, pool })
        })
    }
}

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
/// Length of `sockaddr_in6` in bytes.
const SOCKADDR_IN6_LEN: usize = 28;

fn put_ip(w: &mut Writer, a: &SocketAddr) {
    w.raw(&a.port().to_be_bytes());
    match a {
        SocketAddr::V4(v4) => {
            w.raw(&v4.ip().octets());
            w.raw(&[0; 8]);
        }
        SocketAddr::V6(v6) => {
            w.raw(&v6.flowinfo().to_be_bytes());
            w.raw(&v6.ip().octets());
            w.u32(v6.scope_id());
        }
    }
}

fn get_ip(r: &mut Reader<'_>, family: u16) -> Result<Option<SocketAddr>> {
    match family {
        0 => Ok(None),
        AF_INET => {
            let port = u16::from_be_bytes(r.array("port")?);
            let ip = Ipv4Addr::from(r.array::<4>("ipv4")?);
            Ok(Some(SocketAddr::new(IpAddr::V4(ip), port)))
        }
        AF_INET6 => {
            let port = u16::from_be_bytes(r.array("port")?);
            let flow = u32::from_be_bytes(r.array("flowinfo")?);
            let ip = Ipv6Addr::from(r.array::<16>("ipv6")?);
            let scope = r.u32()?;
            Ok(Some(SocketAddr::V6(SocketAddrV6::new(ip, port, flow, scope))))
        }
        f => Err(DecodeError::BadValue { what: "address family", value: f.into() }),
    }
}

/// `entity_addr_t`: with marker for peers with `MSG_ADDR2`, else the legacy form of 136 bytes.
impl Encode for EntityAddr {
    fn encode(&self, w: &mut Writer) {
        if w.features().msg_addr2() {
            w.u8(1);
            w.versioned(1, 1, |w| {
                w.u32(self.kind.0);
                w.u32(self.nonce);
                w.sized(|w| {
                    match &self.sock {
                        Some(a) => {
                            w.u16(if a.is_ipv4() { AF_INET } else { AF_INET6 });
                            put_ip(w, a);
                        }
                        // Ceph writes its whole address union even for a blank address.
                        None => w.raw(&[0; SOCKADDR_IN6_LEN]),
                    }
                });
            });
        } else {
            w.u32(0);
            w.u32(self.nonce);
            let at = w.len();
            if let Some(a) = &self.sock {
                w.raw(&(if a.is_ipv4() { AF_INET } else { AF_INET6 }).to_be_bytes());
                put_ip(w, a);
            }
            let pad = 128 - (w.len() - at);
            w.raw(&[0; 128][..pad]);
        }
    }
}

fn addr_after_marker(r: &mut Reader<'_>, marker: u8) -> Result<EntityAddr> {
    match marker {
        0 => {
            r.skip(3, "entity_addr_t")?;
            let nonce = r.u32()?;
            let s = r.take(128, "sockaddr_storage")?;
            let mut a = Reader::new(s);
            let family = u16::from_be_bytes(a.array("family")?);
            let sock = get_ip(&mut a, family)?;
            let kind = if sock.is_some() { AddrKind::LEGACY } else { AddrKind::NONE };
            Ok(EntityAddr { kind, nonce, sock })
        }
        1 => r.versioned("entity_addr_t", 1, |r, _| {
            let kind = AddrKind(r.u32()?);
            let nonce = r.u32()?;
            let b = r.blob()?;
            let sock = if b.is_empty() {
                None
            } else {
                let mut a = Reader::new(&b);
                let family = a.u16()?;
                get_ip(&mut a, family)?
            };
            Ok(EntityAddr { kind, nonce, sock })
        }),
        m => Err(DecodeError::BadValue { what: "entity_addr_t marker", value: m.into() }),
    }
}

impl Decode for EntityAddr {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let m = r.u8()?;
        addr_after_marker(r, m)
    }
}

/// `entity_addrvec_t`: marker 2 and a vector. Peers without `MSG_ADDR2` get a single legacy address.
impl Encode for AddrVec {
    fn encode(&self, w: &mut Writer) {
        if w.features().msg_addr2() {
            w.u8(2);
            w.put(&self.0);
        } else {
            let a = self.legacy().or_else(|| self.msgr2()).copied().unwrap_or_default();
            w.put(&a);
        }
    }
}
impl Decode for AddrVec {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        match r.u8()? {
            2 => Ok(Self(r.get()?)),
            m => Ok(Self(vec![addr_after_marker(r, m)?])),
        }
    }
}
