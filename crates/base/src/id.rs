//! Identifiers: epochs, OSDs, pools, PGs, snapshots, versions, entities, operations. Each is a type of its own, so that
//! the compiler tells them apart.

use std::fmt;

/// Version of a cluster map (`epoch_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl Epoch {
    /// The epoch after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Number of an OSD. Negative values are not OSDs; [`OsdId::NONE`] marks a hole in an acting set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OsdId(pub i32);

impl OsdId {
    /// `CRUSH_ITEM_NONE`: no OSD at this position of an erasure-coded set.
    pub const NONE: Self = Self(0x7fff_ffff);
}

impl fmt::Display for OsdId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "osd.{}", self.0)
    }
}

/// Number of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub i64);

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Placement group of a pool (`pg_t`): pool and seed. Shown as `pool.seed` with the seed in hexadecimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgId {
    /// The pool.
    pub pool: PoolId,
    /// Placement seed, below the pool's `pg_num` for an actual PG.
    pub seed: u32,
}

impl PgId {
    /// A PG of `pool`.
    #[must_use]
    pub fn new(pool: i64, seed: u32) -> Self {
        Self { pool: PoolId(pool), seed }
    }

    /// Parses `pool.hexseed`.
    #[must_use]
    pub fn parse(s: &str) -> Option<Self> {
        let (p, h) = s.split_once('.')?;
        Some(Self { pool: PoolId(p.parse().ok()?), seed: u32::from_str_radix(h, 16).ok()? })
    }
}

impl fmt::Display for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.pool, self.seed)
    }
}

/// Erasure-code shard of a PG; [`ShardId::NONE`] for replicated PGs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub i8);

impl ShardId {
    /// No shard: the PG is replicated.
    pub const NONE: Self = Self(-1);
}

impl Default for ShardId {
    fn default() -> Self {
        Self::NONE
    }
}

/// PG with its shard (`spg_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpgId {
    /// The PG.
    pub pg: PgId,
    /// Its shard.
    pub shard: ShardId,
}

impl From<PgId> for SpgId {
    fn from(pg: PgId) -> Self {
        Self { pg, shard: ShardId::NONE }
    }
}

impl fmt::Display for SpgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pg.fmt(f)?;
        if self.shard != ShardId::NONE {
            write!(f, "s{}", self.shard.0)?;
        }
        Ok(())
    }
}

/// Snapshot number, or one of the two reserved values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapId(pub u64);

impl SnapId {
    /// `CEPH_NOSNAP`: the head, the object as it is now.
    pub const HEAD: Self = Self(0xffff_ffff_ffff_fffe);
    /// `CEPH_SNAPDIR`: all clones of an object at once.
    pub const SNAPDIR: Self = Self(0xffff_ffff_ffff_ffff);
}

impl Default for SnapId {
    fn default() -> Self {
        Self::HEAD
    }
}

impl fmt::Display for SnapId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HEAD => f.write_str("head"),
            Self::SNAPDIR => f.write_str("snapdir"),
            Self(n) => write!(f, "{n:x}"),
        }
    }
}

/// Version of a write in a PG (`eversion_t`): ordered by epoch, then version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Eversion {
    /// Map epoch of the write.
    pub epoch: Epoch,
    /// Running number within the PG.
    pub version: u64,
}

impl Eversion {
    /// `epoch'version`.
    #[must_use]
    pub fn new(epoch: u32, version: u64) -> Self {
        Self { epoch: Epoch(epoch), version }
    }
}

impl fmt::Display for Eversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'{}", self.epoch, self.version)
    }
}

/// Kind of an entity as the protocol numbers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityKind(pub u8);

impl EntityKind {
    /// Monitor.
    pub const MON: Self = Self(1);
    /// Metadata server.
    pub const MDS: Self = Self(2);
    /// OSD.
    pub const OSD: Self = Self(4);
    /// Client.
    pub const CLIENT: Self = Self(8);
    /// Manager.
    pub const MGR: Self = Self(0x10);
    /// The authentication service (only in tickets).
    pub const AUTH: Self = Self(0x20);

    /// The word used in entity names.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::MON => "mon",
            Self::MDS => "mds",
            Self::OSD => "osd",
            Self::CLIENT => "client",
            Self::MGR => "mgr",
            Self::AUTH => "auth",
            _ => "unknown",
        }
    }

    /// The kind a word names.
    #[must_use]
    pub fn from_word(w: &str) -> Option<Self> {
        Some(match w {
            "mon" => Self::MON,
            "mds" => Self::MDS,
            "osd" => Self::OSD,
            "client" => Self::CLIENT,
            "mgr" => Self::MGR,
            "auth" => Self::AUTH,
            _ => return None,
        })
    }
}

/// Running instance of an entity (`entity_name_t`): `osd.3`, `client.4123` (a client's number is its global id).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityName {
    /// Kind.
    pub kind: EntityKind,
    /// Number.
    pub num: i64,
}

impl EntityName {
    /// `kind.num`.
    #[must_use]
    pub fn new(kind: EntityKind, num: i64) -> Self {
        Self { kind, num }
    }
}

impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind.word(), self.num)
    }
}

/// Name an entity authenticates with (`EntityName`): `client.admin`, `osd.0`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthName {
    /// Kind.
    pub kind: EntityKind,
    /// Id within the kind.
    pub id: String,
}

impl AuthName {
    /// Parses `kind.id`.
    #[must_use]
    pub fn parse(s: &str) -> Option<Self> {
        let (k, id) = s.split_once('.')?;
        Some(Self { kind: EntityKind::from_word(k)?, id: id.to_owned() })
    }
}

impl fmt::Display for AuthName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind.word(), self.id)
    }
}

/// Identity of a client operation (`osd_reqid_t`); a resend carries the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReqId {
    /// The client that sent the operation.
    pub name: EntityName,
    /// Transaction number of the client.
    pub tid: u64,
    /// Incarnation of the client.
    pub inc: i32,
}

impl fmt::Display for ReqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}:{}", self.name, self.inc, self.tid)
    }
}

/// Sixteen raw bytes shown in the usual dashed form.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// All zero: "not set".
    pub const ZERO: Self = Self([0; 16]);

    /// Makes a version 4 uuid out of random bytes.
    #[must_use]
    pub fn from_random(mut b: [u8; 16]) -> Self {
        b[6] = (b[6] & 0x0f) | 0x40;
        b[8] = (b[8] & 0x3f) | 0x80;
        Self(b)
    }

    /// Parses 32 hexadecimal digits, dashes anywhere between bytes.
    #[must_use]
    pub fn parse(s: &str) -> Option<Self> {
        let hex: Vec<u8> = s.bytes().filter(|b| *b != b'-').collect();
        if hex.len() != 32 {
            return None;
        }
        let mut out = [0u8; 16];
        for (o, pair) in out.iter_mut().zip(hex.chunks_exact(2)) {
            *o = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(out))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, b) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{b:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
