//! The monitor's records in the state store: keys and values.
//!
//! Keys are readable text with numbers in fixed-width hexadecimal, so that they sort. Values are versioned structures
//! of this program, or the protocol's encodings. `docs/design/mon-state.md` lists them all.

use std::collections::{BTreeMap, BTreeSet};

use auth::CryptoKey;
use base::{AuthName, Epoch, OsdId, PgId, PoolId, Utime};
use bytes::Bytes;
use mgr::balance::StoredGrowth;
use wire::codec::Result;
use wire::{Decode, Encode, Features, Reader, Writer};

use super::{AuthEntry, ConfigChange, ConfigKey, CreatingPg, Mute};

/// Version of the key layout. Version 1 (a full map for each epoch) is read and becomes this one with the first
/// commit; others are refused at start.
pub const FORMAT: u32 = 2;
/// The oldest version that is read.
pub const FORMAT_READ: u32 = 1;
/// Version of a state that has features ([`key::FEATURES`]): as [`FORMAT`] but for them.
pub const FORMAT_FEATURES: u32 = 3;
/// Feature, incompat: OSD maps may choose primaries, whose form earlier programs cannot write.
pub const CHOSEN_PRIMARIES: u64 = 1;
/// Features of the state that this program knows. Bits are never reused.
pub const FEATURES: base::FeatureWords = base::FeatureWords { compat: 0, ro_compat: 0, incompat: CHOSEN_PRIMARIES };

/// Keys and key prefixes. Every prefix belongs to exactly one family of records.
pub mod key {
    use super::{AuthName, Bytes, ConfigKey, Epoch, OsdId, PoolId};

    /// Key of the format version.
    pub const FORMAT: &str = "meta/format";
    /// Key of the feature words, in a state of version 3.
    pub const FEATURES: &str = "meta/features";
    /// Key of the cluster id.
    pub const FSID: &str = "meta/fsid";
    /// Key of the cluster's creation time.
    pub const CREATED: &str = "meta/created";
    /// Key of the number of times that a monitor began to lead.
    pub const TERM: &str = "meta/term";
    /// Key of the mark of an import that has not written its last record. Its value names the import.
    pub const IMPORT: &str = "meta/import";
    /// Prefix of the records of running monitors.
    pub const MON: &str = "mon/";
    /// Key of the monmap.
    pub const MONMAP: &str = "monmap";
    /// Key of the manager map.
    pub const MGRMAP: &str = "mgrmap";
    /// Prefix of FSMaps, by epoch.
    pub const FSMAP: &str = "fsmap/";
    /// Prefix of MDS metadata.
    pub const MDS_METADATA: &str = "mds/metadata/";
    /// Key of the bounds of OSD map epochs.
    pub const OSDMAP_BOUNDS: &str = "osdmap/bounds";
    /// Prefix of keys and caps.
    pub const AUTH: &str = "auth/entity/";
    /// Key of the rotating service keys.
    pub const SERVICE_KEYS: &str = "auth/service-keys";
    /// Key of the end of the newest batch of global ids.
    pub const GLOBAL_ID: &str = "auth/global-id";
    /// Key of the time until which clients keep their ids without their tickets.
    pub const LOST_TICKETS: &str = "auth/lost-tickets";
    /// Prefix of options.
    pub const CONFIG: &str = "config/value/";
    /// Prefix of option changes.
    pub const CONFIG_HISTORY: &str = "config/history/";
    /// Prefix of `config-key` entries.
    pub const KV: &str = "kv/";
    /// Prefix of cluster log lines.
    pub const LOG: &str = "log/";
    /// Prefix of mutes.
    pub const MUTE: &str = "health/mute/";
    /// Prefix of OSD metadata.
    pub const OSD_METADATA: &str = "osd/metadata/";
    /// Prefix of the queues of PGs to create.
    pub const CREATING: &str = "osd/creating/";
    /// Key of the pass that keeps PGs where they are, since OSDs join.
    pub const GROWTH: &str = "osd/growth";
    /// Prefix of the snapshots that an epoch took off the removal queue.
    pub const PURGED_SNAPS: &str = "osd/purged-snaps/";
    /// Prefix of the snapshots of a pool that all its PGs purged.
    pub const PURGED_POOL: &str = "osd/purged-pool/";

    /// Key of the leader's record, under its lease.
    pub const MON_LEADER: &str = "mon/leader";
    /// Prefix of the records of running monitors, under their leases.
    pub const MON_UP: &str = "mon/up/";

    /// Key of the full map of an epoch; only checkpoints have one ([`super::Bounds::checkpoints`]).
    #[must_use]
    pub fn full(e: Epoch) -> Bytes {
        format!("osdmap/full/{:08x}", e.0).into()
    }
    /// Key of the incremental that led to an epoch.
    #[must_use]
    pub fn inc(e: Epoch) -> Bytes {
        format!("osdmap/inc/{:08x}", e.0).into()
    }
    /// Key of a piece of a long record.
    #[must_use]
    pub fn piece(of: &[u8], i: usize) -> Bytes {
        let mut k = of.to_vec();
        k.extend_from_slice(format!("/{i:04x}").as_bytes());
        k.into()
    }
    /// Key of the FSMap of an epoch.
    #[must_use]
    pub fn fsmap(e: Epoch) -> Bytes {
        format!("{FSMAP}{:08x}", e.0).into()
    }
    /// Key of an entity's key and caps.
    #[must_use]
    pub fn auth(n: &AuthName) -> Bytes {
        format!("{AUTH}{n}").into()
    }
    /// Key of an option: section and name, separated by a zero byte, which neither may hold.
    #[must_use]
    pub fn config(k: &ConfigKey) -> Bytes {
        format!("{CONFIG}{}\0{}", k.who, k.name).into()
    }
    /// Key of a numbered record.
    #[must_use]
    pub fn numbered(prefix: &str, n: u64) -> Bytes {
        format!("{prefix}{n:016x}").into()
    }
    /// Key of a named record.
    #[must_use]
    pub fn named(prefix: &str, name: &str) -> Bytes {
        format!("{prefix}{name}").into()
    }
    /// Key of an OSD's metadata.
    #[must_use]
    pub fn osd_metadata(o: OsdId) -> Bytes {
        format!("{OSD_METADATA}{:08x}", o.0).into()
    }
    /// Key of the queue of PGs to create of a pool.
    #[must_use]
    pub fn creating(p: PoolId) -> Bytes {
        format!("{CREATING}{:016x}", p.0).into()
    }
    /// Key of all purged snapshots of a pool, in one record. States of earlier builds have it.
    #[must_use]
    pub fn purged_pool(p: PoolId) -> Bytes {
        format!("{PURGED_POOL}{:016x}", p.0).into()
    }
    /// Prefix of the records of a pool's purged snapshots.
    #[must_use]
    pub fn purged_blocks(p: PoolId) -> Bytes {
        format!("{PURGED_POOL}{:016x}/", p.0).into()
    }
    /// Key of the purged snapshots of a pool in one block of ids.
    #[must_use]
    pub fn purged_block(p: PoolId, block: u64) -> Bytes {
        format!("{PURGED_POOL}{:016x}/{block:016x}", p.0).into()
    }
    /// Key of the snapshots that an epoch took off the removal queue.
    #[must_use]
    pub fn purged_snaps(e: Epoch) -> Bytes {
        format!("{PURGED_SNAPS}{:08x}", e.0).into()
    }
}

/// True if the state store takes a record with a value of `len` bytes.
pub(crate) fn fits(k: &[u8], len: usize) -> bool {
    k.len() <= state::MAX_KEY && len <= state::MAX_VALUE
}

/// The encoding of a value with all features, which is the stored form.
#[must_use]
pub fn value(v: &(impl Encode + ?Sized)) -> Bytes {
    v.to_bytes(Features::PACIFIC)
}

impl Encode for AuthEntry {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.put(&self.key);
            w.put(&self.pending_key);
            w.put(&self.caps);
        });
    }
}
impl Decode for AuthEntry {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("auth entry", 1, |r, _| {
            let key: CryptoKey = r.get()?;
            Ok(Self { key, pending_key: r.get()?, caps: r.get()? })
        })
    }
}

impl Encode for ConfigKey {
    fn encode(&self, w: &mut Writer) {
        w.string(&self.who);
        w.string(&self.name);
    }
}
impl Decode for ConfigKey {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { who: r.get()?, name: r.get()? })
    }
}

impl Encode for ConfigChange {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.u64(self.version);
            w.put(&self.stamp);
            w.string(&self.name);
            w.seq(self.diff.iter(), |w, (k, a, b)| {
                w.put(k);
                w.put(a);
                w.put(b);
            });
        });
    }
}
impl Decode for ConfigChange {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("config change", 1, |r, _| {
            Ok(Self {
                version: r.u64()?,
                stamp: r.get()?,
                name: r.get()?,
                diff: r.vec_with("config diff", |r| Ok((r.get()?, r.get()?, r.get()?)))?,
            })
        })
    }
}

impl Encode for Mute {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.put(&self.until);
            w.bool(self.sticky);
            w.string(&self.summary);
            w.i64(self.count);
        });
    }
}
impl Decode for Mute {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("mute", 1, |r, _| {
            Ok(Self { until: r.get()?, sticky: r.bool()?, summary: r.get()?, count: r.i64()? })
        })
    }
}

/// The stored range of OSD map epochs and the last writer. Every transaction writes it, so that a second writer is
/// noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The oldest epoch that is kept.
    pub oldest: Epoch,
    /// The newest epoch.
    pub newest: Epoch,
    /// Epochs stored as full maps; the first is at most `oldest`. Other epochs are made from the one before and its
    /// incremental.
    pub checkpoints: BTreeSet<Epoch>,
    /// The name of the transaction: a random number of the process and a count.
    pub writer: (u64, u64),
}

/// Distance of the epochs that count as checkpoints in version 1, where every epoch has its full map.
const OLD_CHECKPOINTS_APART: usize = 32;

impl Encode for Bounds {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.oldest);
        w.put(&self.newest);
        w.versioned(1, 1, |w| {
            w.seq(self.checkpoints.iter(), Writer::put);
            w.u64(self.writer.0);
            w.u64(self.writer.1);
        });
    }
}
impl Decode for Bounds {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (oldest, newest): (Epoch, Epoch) = (r.get()?, r.get()?);
        if r.is_empty() {
            let apart = (oldest.0..=newest.0).step_by(OLD_CHECKPOINTS_APART).map(Epoch);
            return Ok(Self { oldest, newest, checkpoints: apart.chain([newest]).collect(), writer: (0, 0) });
        }
        r.versioned("map bounds", 1, |r, _| {
            let checkpoints = r.vec_with("checkpoints", |r| r.get())?.into_iter().collect();
            Ok(Self { oldest, newest, checkpoints, writer: (r.u64()?, r.u64()?) })
        })
    }
}

/// A pass that keeps PGs where they are; see [`mgr::balance::Growth`].
pub(crate) struct Growing(pub(crate) StoredGrowth);

fn put_place(w: &mut Writer, pg: Option<&PgId>) {
    w.bool(pg.is_some());
    if let Some(pg) = pg {
        w.put(pg);
    }
}

fn get_place(r: &mut Reader<'_>) -> Result<Option<PgId>> {
    Ok(if r.bool()? { Some(r.get()?) } else { None })
}

impl Encode for Growing {
    fn encode(&self, w: &mut Writer) {
        w.versioned(2, 1, |w| {
            put_place(w, self.0.at.as_ref());
            w.seq(self.0.before.iter(), |w, (upto, e)| {
                put_place(w, upto.as_ref());
                w.put(e);
            });
            w.put(&self.0.seen);
        });
    }
}
impl Decode for Growing {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("growth", 2, |r, v| {
            let at = get_place(r)?;
            let before = r.vec_with("maps", |r| Ok((get_place(r)?, r.get()?)))?;
            // The first form does not say whether other maps followed.
            let seen = if v >= 2 { r.get()? } else { Epoch(0) };
            Ok(Self(StoredGrowth { at, before, seen }))
        })
    }
}

/// The value at the key of a record that is too long for one value; the record's pieces have keys of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pieces {
    len: u64,
    crc: u32,
}

/// The first bytes of the value of [`Pieces`]; no map begins with them.
const PIECES_MAGIC: &[u8] = b"\xffPIECES1";

impl Pieces {
    /// The value for the record `b`.
    pub(crate) fn of(b: &[u8]) -> Self {
        Self { len: b.len() as u64, crc: base::crc::crc32c(!0, b) }
    }

    /// The encoded value.
    pub(crate) fn to_value(self) -> Bytes {
        let mut v = PIECES_MAGIC.to_vec();
        v.extend_from_slice(&self.len.to_le_bytes());
        v.extend_from_slice(&self.crc.to_le_bytes());
        v.into()
    }

    fn parse(v: &[u8]) -> Option<Self> {
        let (len, crc) = v.strip_prefix(PIECES_MAGIC)?.split_at_checked(8)?;
        Some(Self { len: u64::from_le_bytes(len.try_into().ok()?), crc: u32::from_le_bytes(crc.try_into().ok()?) })
    }
}

/// The bytes of a record that may be in pieces: `value` is the value at its key, `pieces` are the pieces in order.
/// `None` if length or checksum do not match.
#[must_use]
pub fn whole<'a>(value: &Bytes, pieces: impl Iterator<Item = &'a Bytes>) -> Option<Bytes> {
    let Some(p) = Pieces::parse(value) else {
        return (!value.starts_with(PIECES_MAGIC)).then(|| value.clone());
    };
    let mut all = Vec::new();
    for piece in pieces {
        if all.len() as u64 >= p.len {
            // A failed proposal left further pieces.
            break;
        }
        all.extend_from_slice(piece);
    }
    (Pieces::of(&all) == p).then(|| all.into())
}

/// The PGs of one pool that wait for their creation: the creation's epoch and time, and one bit per PG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatingPool {
    /// The epoch that made the pool.
    pub created: Epoch,
    /// The time of that epoch.
    pub stamp: Utime,
    /// The waiting PGs: bit `seed % 8` of byte `seed / 8`.
    pub waiting: Vec<u8>,
}

impl CreatingPool {
    /// The record for the PGs of `pool` in `all`; `None` if there are none.
    #[must_use]
    pub fn of(pool: PoolId, all: &BTreeMap<PgId, CreatingPg>) -> Option<Self> {
        let range = PgId { pool, seed: 0 }..=PgId { pool, seed: u32::MAX };
        let mut rec: Option<Self> = None;
        for (pg, c) in all.range(range) {
            let r = rec.get_or_insert_with(|| Self { created: c.created, stamp: c.stamp, waiting: Vec::new() });
            let byte = (pg.seed / 8) as usize;
            if r.waiting.len() <= byte {
                r.waiting.resize(byte + 1, 0);
            }
            if let Some(b) = r.waiting.get_mut(byte) {
                *b |= 1 << (pg.seed % 8);
            }
        }
        rec
    }

    /// True if this PG of the pool waits.
    #[must_use]
    pub fn waits(&self, seed: u32) -> bool {
        self.waiting.get((seed / 8) as usize).is_some_and(|b| b & (1 << (seed % 8)) != 0)
    }

    /// Adds the record's PGs to `all`.
    pub fn add_to(&self, pool: PoolId, all: &mut BTreeMap<PgId, CreatingPg>) {
        for (i, b) in self.waiting.iter().enumerate() {
            for bit in (0..8).filter(|bit| b & (1 << bit) != 0) {
                let seed = i as u32 * 8 + bit;
                all.insert(PgId { pool, seed }, CreatingPg { created: self.created, stamp: self.stamp });
            }
        }
    }
}

impl Encode for CreatingPool {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.put(&self.created);
            w.put(&self.stamp);
            w.blob(&self.waiting);
        });
    }
}
impl Decode for CreatingPool {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("creating pool", 1, |r, _| {
            Ok(Self { created: r.get()?, stamp: r.get()?, waiting: r.blob()?.to_vec() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creating_pgs_round_trip() {
        let mut all = BTreeMap::new();
        let c = CreatingPg { created: Epoch(7), stamp: Utime { sec: 1, nsec: 2 } };
        for seed in [0, 3, 8, 100] {
            all.insert(PgId::new(5, seed), c);
        }
        let rec = CreatingPool::of(PoolId(5), &all).unwrap();
        let back = CreatingPool::from_bytes(&value(&rec)).unwrap();
        assert_eq!(back, rec);
        assert!((0..200).all(|seed| rec.waits(seed) == [0, 3, 8, 100].contains(&seed)));
        let mut again = BTreeMap::new();
        back.add_to(PoolId(5), &mut again);
        assert_eq!(again, all);
        assert_eq!(CreatingPool::of(PoolId(6), &all), None);
    }

    #[test]
    fn bounds_of_the_old_layout_are_read() {
        let old = value(&(Epoch(5), Epoch(80)));
        let b = Bounds::from_bytes(&old).unwrap();
        assert_eq!((b.oldest, b.newest), (Epoch(5), Epoch(80)));
        assert_eq!(b.checkpoints, [5, 37, 69, 80].map(Epoch).into());
        let b = Bounds { writer: (7, 9), ..b };
        assert_eq!(Bounds::from_bytes(&value(&b)).unwrap(), b);
    }

    #[test]
    fn pieces_make_up_what_was_written_or_nothing() {
        let short = Bytes::from_static(b"short");
        assert_eq!(whole(&short, [].iter()), Some(short));
        let long: Bytes = (0..1000u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>().into();
        let head = Pieces::of(&long).to_value();
        let pieces = [long.slice(..1500), long.slice(1500..3000), long.slice(3000..)];
        let stale = Bytes::from_static(b"stale");
        assert_eq!(whole(&head, pieces.iter().chain([&stale])), Some(long.clone()));
        assert_eq!(whole(&head, pieces[..2].iter()), None, "one is missing");
        assert_eq!(whole(&head, pieces.iter().rev()), None, "out of order");
        assert_eq!(whole(&head.slice(..12), pieces.iter()), None, "cut short");
    }

    #[test]
    fn config_changes_round_trip() {
        let c = ConfigChange {
            version: 3,
            stamp: Utime { sec: 9, nsec: 0 },
            name: "config set".into(),
            diff: vec![(ConfigKey { who: "osd".into(), name: "x".into() }, None, Some("1".into()))],
        };
        assert_eq!(ConfigChange::from_bytes(&value(&c)).unwrap(), c);
    }
}
