//! The monitor's records in the state store: keys and values.
//!
//! Keys are readable text with numbers in fixed-width hexadecimal, so that they sort. Values are our own versioned
//! structures or the protocol's encodings as they are. `docs/design/mon-state.md` lists them all.

use std::collections::BTreeMap;

use auth::CryptoKey;
use base::{AuthName, Epoch, OsdId, PgId, PoolId, Utime};
use bytes::Bytes;
use wire::codec::Result;
use wire::{Decode, Encode, Features, Reader, Writer};

use super::cluster_state::{AuthEntry, ConfigChange, ConfigKey, CreatingPg, Mute};

/// Version of the key layout; another one is refused at start.
pub const FORMAT: u32 = 1;

/// Every key's prefix belongs to exactly one family.
pub mod key {
    use super::{AuthName, Bytes, ConfigKey, Epoch, OsdId, PoolId};

    /// Format version.
    pub const FORMAT: &str = "meta/format";
    /// Cluster id.
    pub const FSID: &str = "meta/fsid";
    /// Creation time of the cluster.
    pub const CREATED: &str = "meta/created";
    /// Monitor map.
    pub const MONMAP: &str = "monmap";
    /// Manager map.
    pub const MGRMAP: &str = "mgrmap";
    /// Map of file systems, by epoch.
    pub const FSMAP: &str = "fsmap/";
    /// MDS metadata.
    pub const MDS_METADATA: &str = "mds/metadata/";
    /// Oldest and newest OSD map epoch.
    pub const OSDMAP_BOUNDS: &str = "osdmap/bounds";
    /// Keys and caps.
    pub const AUTH: &str = "auth/entity/";
    /// Rotating service keys.
    pub const SERVICE_KEYS: &str = "auth/service-keys";
    /// First global id not yet handed to a batch.
    pub const GLOBAL_ID: &str = "auth/global-id";
    /// Options.
    pub const CONFIG: &str = "config/value/";
    /// Changes of options.
    pub const CONFIG_HISTORY: &str = "config/history/";
    /// `config-key` entries.
    pub const KV: &str = "kv/";
    /// Cluster log lines.
    pub const LOG: &str = "log/";
    /// Mutes.
    pub const MUTE: &str = "health/mute/";
    /// OSD metadata.
    pub const OSD_METADATA: &str = "osd/metadata/";
    /// PGs to create.
    pub const CREATING: &str = "osd/creating/";
    /// Snapshots purged by an epoch.
    pub const PURGED_SNAPS: &str = "osd/purged-snaps/";
    /// Snapshots of a pool that are purged altogether.
    pub const PURGED_POOL: &str = "osd/purged-pool/";

    /// Full map of an epoch.
    #[must_use]
    pub fn full(e: Epoch) -> Bytes {
        format!("osdmap/full/{:08x}", e.0).into()
    }
    /// Incremental that led to an epoch.
    #[must_use]
    pub fn inc(e: Epoch) -> Bytes {
        format!("osdmap/inc/{:08x}", e.0).into()
    }
    /// Map of file systems of an epoch.
    #[must_use]
    pub fn fsmap(e: Epoch) -> Bytes {
        format!("{FSMAP}{:08x}", e.0).into()
    }
    /// An entity.
    #[must_use]
    pub fn auth(n: &AuthName) -> Bytes {
        format!("{AUTH}{n}").into()
    }
    /// An option: section and name, apart by a zero byte, which neither holds.
    #[must_use]
    pub fn config(k: &ConfigKey) -> Bytes {
        format!("{CONFIG}{}\0{}", k.who, k.name).into()
    }
    /// A numbered record.
    #[must_use]
    pub fn numbered(prefix: &str, n: u64) -> Bytes {
        format!("{prefix}{n:016x}").into()
    }
    /// A named record.
    #[must_use]
    pub fn named(prefix: &str, name: &str) -> Bytes {
        format!("{prefix}{name}").into()
    }
    /// Metadata of an OSD.
    #[must_use]
    pub fn osd_metadata(o: OsdId) -> Bytes {
        format!("{OSD_METADATA}{:08x}", o.0).into()
    }
    /// PGs of a pool to create.
    #[must_use]
    pub fn creating(p: PoolId) -> Bytes {
        format!("{CREATING}{:016x}", p.0).into()
    }
    /// Snapshots of a pool that are purged altogether.
    #[must_use]
    pub fn purged_pool(p: PoolId) -> Bytes {
        format!("{PURGED_POOL}{:016x}", p.0).into()
    }
    /// Snapshots purged by an epoch.
    #[must_use]
    pub fn purged_snaps(e: Epoch) -> Bytes {
        format!("{PURGED_SNAPS}{:08x}", e.0).into()
    }
}

/// Bytes of a value made with all features, the form kept in the store.
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

/// PGs of one pool that are still to be created: the creation's epoch and time, and one bit per PG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreatingPool {
    /// Epoch that made the pool.
    pub created: Epoch,
    /// When.
    pub stamp: Utime,
    /// Bit `seed % 8` of byte `seed / 8`.
    pub waiting: Vec<u8>,
}

impl CreatingPool {
    /// The record for the PGs of `pool` in `all`, `None` if there are none.
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
        let mut again = BTreeMap::new();
        back.add_to(PoolId(5), &mut again);
        assert_eq!(again, all);
        assert_eq!(CreatingPool::of(PoolId(6), &all), None);
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
