//! The map of monitors.
//!
//! Encoded as version 9 for userspace peers, and as version 5 for peers before Nautilus (kernel clients).

use base::{AddrVec, Epoch, Utime, id::Uuid};
use std::collections::{BTreeMap, BTreeSet};
use wire::codec::{Decode, DecodeError, Encode, Reader, Result, Writer};

/// Numbers of Ceph's releases in maps.
pub mod release {
    /// Unknown.
    pub const UNKNOWN: u8 = 0;
    /// 0.48.
    pub const ARGONAUT: u8 = 1;
    /// 0.56.
    pub const BOBTAIL: u8 = 2;
    /// 0.80.
    pub const FIREFLY: u8 = 6;
    /// 0.94.
    pub const HAMMER: u8 = 8;
    /// 10.2.
    pub const JEWEL: u8 = 10;
    /// 12.2.
    pub const LUMINOUS: u8 = 12;
    /// 13.2.
    pub const MIMIC: u8 = 13;
    /// 14.2.
    pub const NAUTILUS: u8 = 14;
    /// 15.2.
    pub const OCTOPUS: u8 = 15;
    /// 16.2.
    pub const PACIFIC: u8 = 16;
    /// 17.2.
    pub const QUINCY: u8 = 17;
    /// 18.2.
    pub const REEF: u8 = 18;
    /// 19.2.
    pub const SQUID: u8 = 19;
    /// 20.2.
    pub const TENTACLE: u8 = 20;

    const NAMES: [&str; 21] = [
        "unknown",
        "argonaut",
        "bobtail",
        "cuttlefish",
        "dumpling",
        "emperor",
        "firefly",
        "giant",
        "hammer",
        "infernalis",
        "jewel",
        "kraken",
        "luminous",
        "mimic",
        "nautilus",
        "octopus",
        "pacific",
        "quincy",
        "reef",
        "squid",
        "tentacle",
    ];

    /// Name of a release, `unknown` for a number without one.
    #[must_use]
    pub fn name(r: u8) -> &'static str {
        NAMES.get(usize::from(r)).copied().unwrap_or("unknown")
    }

    /// Number of the release with this name.
    #[must_use]
    pub fn from_name(s: &str) -> Option<u8> {
        NAMES.iter().skip(1).position(|n| *n == s).map(|i| i as u8 + 1)
    }
}

/// Bits of `mon_feature_t`.
pub mod mon_feature {
    /// All features a Pacific quorum makes persistent: kraken, luminous, mimic, osdmap-prune, nautilus, octopus, pacific.
    pub const PACIFIC_ALL: u64 = 1 | 2 | 4 | 8 | 16 | 32 | 64;
}

/// Election strategies.
pub mod election {
    /// Lowest rank wins.
    pub const CLASSIC: u8 = 1;
    /// Some monitors may not lead.
    pub const DISALLOW: u8 = 2;
    /// The monitor with the best measured connectivity wins.
    pub const CONNECTIVITY: u8 = 3;
}

/// `mon_info_t`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonInfo {
    /// Name without `mon.`.
    pub name: String,
    /// Addresses for clients.
    pub public_addrs: AddrVec,
    /// DNS SRV priority.
    pub priority: u16,
    /// DNS SRV weight.
    pub weight: u16,
    /// CRUSH location (stretch clusters).
    pub crush_loc: BTreeMap<String, String>,
}

/// `MonMap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MonMap {
    /// The cluster.
    pub fsid: Uuid,
    /// Epoch of the map.
    pub epoch: Epoch,
    /// Time of the last change.
    pub last_changed: Utime,
    /// Time of creation.
    pub created: Utime,
    /// Features every monitor must have (see [`mon_feature`]).
    pub persistent_features: u64,
    /// Optional features that are switched on.
    pub optional_features: u64,
    /// Monitors by name.
    pub mons: BTreeMap<String, MonInfo>,
    /// Names in rank order.
    pub ranks: Vec<String>,
    /// Lowest release among the monitors (see [`release`]).
    pub min_mon_release: u8,
    /// Recently removed ranks.
    pub removed_ranks: BTreeSet<u32>,
    /// Election strategy (see [`election`]).
    pub strategy: u8,
    /// Monitors that may not lead.
    pub disallowed_leaders: BTreeSet<String>,
    /// Stretch mode is on.
    pub stretch_mode_enabled: bool,
    /// Tiebreaker of stretch mode.
    pub tiebreaker_mon: String,
    /// Monitors that stretch mode counts as down.
    pub stretch_marked_down_mons: BTreeSet<String>,
}

impl Default for MonMap {
    fn default() -> Self {
        Self {
            fsid: Uuid::ZERO,
            epoch: Epoch(0),
            last_changed: Utime::ZERO,
            created: Utime::ZERO,
            persistent_features: 0,
            optional_features: 0,
            mons: BTreeMap::new(),
            ranks: Vec::new(),
            min_mon_release: release::UNKNOWN,
            removed_ranks: BTreeSet::new(),
            strategy: election::CLASSIC,
            disallowed_leaders: BTreeSet::new(),
            stretch_mode_enabled: false,
            tiebreaker_mon: String::new(),
            stretch_marked_down_mons: BTreeSet::new(),
        }
    }
}

impl MonMap {
    /// Newest encoding version that is understood.
    const KNOWN: u8 = 10;

    /// True if this monitor may lead, by the election strategy and the disallowed leaders.
    #[must_use]
    pub fn may_lead(&self, name: &str) -> bool {
        self.strategy == election::CLASSIC || !self.disallowed_leaders.contains(name)
    }

    /// The monitor with this rank.
    #[must_use]
    pub fn by_rank(&self, rank: usize) -> Option<&MonInfo> {
        self.mons.get(self.ranks.get(rank)?)
    }

    /// Rank of the monitor with this name.
    #[must_use]
    pub fn rank_of(&self, name: &str) -> Option<usize> {
        self.ranks.iter().position(|n| n == name)
    }

    /// Name of the monitor with these addresses.
    #[must_use]
    pub fn name_at(&self, addrs: &AddrVec) -> Option<&str> {
        let at = addrs.msgr2()?;
        self.mons.iter().find(|(_, m)| m.public_addrs.msgr2() == Some(at)).map(|(n, _)| n.as_str())
    }

    /// True if a monitor may lead.
    #[must_use]
    pub fn may_be_led(&self) -> bool {
        self.mons.keys().any(|n| self.may_lead(n))
    }

    /// Removes a monitor; later ranks move up.
    pub fn remove(&mut self, name: &str) {
        self.mons.remove(name);
        self.disallowed_leaders.remove(name);
        if let Some(rank) = self.rank_of(name) {
            self.ranks.remove(rank);
            self.removed_ranks.insert(u32::try_from(rank).unwrap_or(u32::MAX));
        }
    }

    /// Adds a monitor with the next rank, or replaces the addresses of a known one.
    pub fn add(&mut self, info: MonInfo) {
        if !self.mons.contains_key(&info.name) {
            self.ranks.push(info.name.clone());
        }
        self.mons.insert(info.name.clone(), info);
    }
}

fn put_features(w: &mut Writer, bits: u64) {
    w.versioned(1, 1, |w| w.u64(bits));
}

fn get_features(r: &mut Reader<'_>) -> Result<u64> {
    r.versioned("mon_feature_t", 1, |r, _| r.u64())
}

impl Encode for MonInfo {
    fn encode(&self, w: &mut Writer) {
        let v = if w.features().nautilus() {
            5
        } else if w.features().mimic() {
            3
        } else {
            2
        };
        w.versioned(v, 1, |w| {
            w.string(&self.name);
            if v >= 3 {
                w.put(&self.public_addrs);
            } else {
                put_one_addr(w, &self.public_addrs);
            }
            w.u16(self.priority);
            if v >= 4 {
                w.u16(self.weight);
            }
            if v >= 5 {
                w.put(&self.crush_loc);
            }
        });
    }
}

impl Decode for MonInfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("mon_info_t", 6, |r, v| {
            let mut m = Self { name: r.string()?, public_addrs: r.get()?, ..Self::default() };
            if v >= 2 {
                m.priority = r.u16()?;
            }
            if v >= 4 {
                m.weight = r.u16()?;
            }
            if v >= 5 {
                m.crush_loc = r.get()?;
            }
            Ok(m)
        })
    }
}

/// The address for a peer without address vectors: the legacy one if present, else the first.
pub(crate) fn put_one_addr(w: &mut Writer, a: &AddrVec) {
    let one = a.legacy().or_else(|| a.0.first()).copied().unwrap_or_default();
    w.put(&one);
}

impl Encode for MonMap {
    fn encode(&self, w: &mut Writer) {
        if !w.features().nautilus() {
            w.versioned(5, 3, |w| {
                w.put(&self.fsid);
                w.put(&self.epoch);
                w.seq(self.mons.iter(), |w, (name, info)| {
                    w.string(name);
                    put_one_addr(w, &info.public_addrs);
                });
                w.put(&self.last_changed);
                w.put(&self.created);
                put_features(w, self.persistent_features);
                put_features(w, self.optional_features);
                w.put(&self.mons);
            });
            return;
        }
        w.versioned(9, 6, |w| {
            w.put(&self.fsid);
            w.put(&self.epoch);
            w.put(&self.last_changed);
            w.put(&self.created);
            put_features(w, self.persistent_features);
            put_features(w, self.optional_features);
            w.put(&self.mons);
            w.put(&self.ranks);
            w.u8(self.min_mon_release);
            w.put(&self.removed_ranks);
            w.u8(self.strategy);
            w.put(&self.disallowed_leaders);
            w.bool(self.stretch_mode_enabled);
            w.string(&self.tiebreaker_mon);
            w.put(&self.stretch_marked_down_mons);
        });
    }
}

impl Decode for MonMap {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("MonMap", Self::KNOWN, |r, v| {
            let mut m = Self { fsid: r.get()?, epoch: r.get()?, ..Self::default() };
            if v < 3 {
                return Err(DecodeError::BadValue { what: "MonMap version", value: v.into() });
            }
            let mut legacy: BTreeMap<String, AddrVec> = BTreeMap::new();
            if v < 6 {
                legacy = r.get()?;
            }
            m.last_changed = r.get()?;
            m.created = r.get()?;
            if v >= 4 {
                m.persistent_features = get_features(r)?;
                m.optional_features = get_features(r)?;
            }
            if v >= 5 {
                m.mons = r.get()?;
            } else {
                for (name, public_addrs) in &legacy {
                    let info = MonInfo { name: name.clone(), public_addrs: public_addrs.clone(), ..MonInfo::default() };
                    m.mons.insert(name.clone(), info);
                }
            }
            if v >= 6 {
                m.ranks = r.get()?;
            } else {
                // In maps this old, ranks follow the order of addresses.
                let mut by_addr: Vec<(&AddrVec, &String)> =
                    m.mons.values().map(|i| (&i.public_addrs, &i.name)).collect();
                by_addr.sort();
                m.ranks = by_addr.into_iter().map(|(_, n)| n.clone()).collect();
            }
            if v >= 7 {
                m.min_mon_release = r.u8()?;
            }
            if v >= 8 {
                m.removed_ranks = r.get()?;
                m.strategy = r.u8()?;
                m.disallowed_leaders = r.get()?;
            }
            if v >= 9 {
                m.stretch_mode_enabled = r.bool()?;
                m.tiebreaker_mon = r.string()?;
                m.stretch_marked_down_mons = r.get()?;
            }
            Ok(m)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use wire::Features;

    fn vector(rel: &str) -> Bytes {
        let p = format!("{}/../../vectors/enc/monmap-cluster-{rel}.bin", env!("CARGO_MANIFEST_DIR"));
        std::fs::read(p).unwrap().into()
    }

    #[test]
    fn pacific_and_reef_maps_reencode_byte_for_byte() {
        for rel in ["p", "r"] {
            let b = vector(rel);
            let m = MonMap::from_bytes(&b).unwrap();
            assert_eq!(m.to_bytes(Features::PACIFIC), b, "{rel}");
        }
    }

    #[test]
    fn tentacle_map_decodes() {
        let m = MonMap::from_bytes(&vector("t")).unwrap();
        assert_eq!(m.min_mon_release, release::TENTACLE);
        assert_eq!(m.ranks.len(), 1);
        let name = &m.ranks[0];
        assert!(m.mons[name].public_addrs.msgr2().is_some());
        assert_eq!(MonMap::from_bytes(&m.to_bytes(Features::PACIFIC)).unwrap(), m);
    }

    #[test]
    fn kernel_form_keeps_names_and_an_address() {
        let m = MonMap::from_bytes(&vector("p")).unwrap();
        let kernel = Features(1 << 57 | 1 << 21 | 1 << 59);
        let k = MonMap::from_bytes(&m.to_bytes(kernel)).unwrap();
        assert_eq!(k.ranks, m.ranks);
        assert_eq!(k.mons.keys().collect::<Vec<_>>(), m.mons.keys().collect::<Vec<_>>());
        assert_eq!(k.fsid, m.fsid);
    }

    #[test]
    fn release_names_go_both_ways() {
        assert_eq!(release::from_name("pacific"), Some(release::PACIFIC));
        assert_eq!(release::from_name("unknown"), None);
        for r in 1..=20 {
            assert_eq!(release::from_name(release::name(r)), Some(r));
        }
    }
}
