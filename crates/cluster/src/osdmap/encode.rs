//! Wire form of OSD maps and incrementals, with their checksums.
//!
//! The features of the reader select the versions: client section 9 and OSD section 9 for userspace (Nautilus
//! and later), 7 and 6 for Mimic, 6 and 5 for Luminous (kernel clients). Stretch mode raises the OSD section to 10,
//! ranges of blocklisted addresses to 11; clients read only the client section. Primaries that are chosen by upmap
//! (Reef) raise the client section to 10, for all readers alike, and so does a canonical mask with the bit of Reef: not
//! that bit in a reader's mask, as Pacific's has it. The canonical form, whose checksum is in incrementals, is the one
//! encoded with [`CANONICAL`], or with [`CANONICAL_REEF`] from the first to the last chosen primary.

use super::{
    AddrKey, Incremental, MAX_OSD_LIMIT, OsdInfo, OsdMap, OsdXinfo, StretchMode, incremental::RELEASE_UNCHANGED,
};
use crate::MapError;
use crate::cow::{CowMap, CowVec};
use crate::crush::CrushMap;
use crate::monmap::put_one_addr;
use base::{AddrVec, Epoch, OsdId, Utime, crc};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::Features;
use wire::codec::{Decode, DecodeError, Encode, Reader, Result, Writer};

/// The features that affect the form of a map, as in every Pacific cluster.
pub const CANONICAL: Features = Features(0x0f00_0880_1021_2a04);
/// The features that affect the form of a map with chosen primaries. A `ceph-osd` asserts that a map which it encodes
/// without the bit of Reef has none.
pub const CANONICAL_REEF: Features = Features(CANONICAL.0 | 1 << 31);

/// Bit of user ids: each reader announces it, and no canonical mask has it.
const OF_READERS: u64 = 1;

/// True if these features are a canonical mask since Reef, whose maps have its form whatever is in them. Newer
/// releases add bits that do not matter here.
fn is_reef_form(f: Features) -> bool {
    f.0 & (CANONICAL_REEF.0 | OF_READERS) == CANONICAL_REEF.0
}

/// Versions of the envelope.
const OUTER_V: u8 = 8;
const OUTER_COMPAT: u8 = 7;

impl Encode for OsdInfo {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.put(&self.last_clean_begin);
        w.put(&self.last_clean_end);
        w.put(&self.up_from);
        w.put(&self.up_thru);
        w.put(&self.down_at);
        w.put(&self.lost_at);
    }
}

impl Decode for OsdInfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.u8()?;
        Ok(Self {
            last_clean_begin: r.get()?,
            last_clean_end: r.get()?,
            up_from: r.get()?,
            up_thru: r.get()?,
            down_at: r.get()?,
            lost_at: r.get()?,
        })
    }
}

impl Encode for OsdXinfo {
    fn encode(&self, w: &mut Writer) {
        let v = if octopus(w.features()) { 4 } else { 3 };
        w.versioned(v, 1, |w| {
            w.put(&self.down_stamp);
            w.u32(self.laggy_probability);
            w.u32(self.laggy_interval);
            w.u64(self.features);
            w.u32(self.old_weight);
            if v >= 4 {
                w.put(&self.last_purged_snaps_scrub);
                w.put(&self.dead_epoch);
            }
        });
    }
}

impl Decode for OsdXinfo {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("osd_xinfo_t", 4, |r, v| {
            let mut x =
                Self { down_stamp: r.get()?, laggy_probability: r.u32()?, laggy_interval: r.u32()?, ..Self::default() };
            if v >= 2 {
                x.features = r.u64()?;
            }
            if v >= 3 {
                x.old_weight = r.u32()?;
            }
            if v >= 4 {
                x.last_purged_snaps_scrub = r.get()?;
                x.dead_epoch = r.get()?;
            }
            Ok(x)
        })
    }
}

/// SERVER_OCTOPUS, a bit of incarnation 3.
fn octopus(f: Features) -> bool {
    f.has(1 << 16 | 1 << 57 | 1 << 28)
}

impl Encode for AddrKey {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.0);
    }
}

impl Decode for AddrKey {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self(r.get()?))
    }
}

fn put_cow_vec<T: Encode>(w: &mut Writer, v: &CowVec<T>) {
    w.u32(v.len() as u32);
    for x in v.iter() {
        w.put(x);
    }
}

fn put_cow_map<K: Encode + Ord, V: Encode>(w: &mut Writer, m: &CowMap<K, V>) {
    w.u32(m.len() as u32);
    for (k, v) in m.iter() {
        w.put(k);
        w.put(v);
    }
}

fn get_cow_map<K, V>(r: &mut Reader<'_>, min: usize, what: &'static str) -> Result<CowMap<K, V>>
where
    K: Decode + Ord + Clone,
    V: Decode + Clone,
{
    let n = r.count(min, what)?;
    let mut m = CowMap::default();
    for _ in 0..n {
        let k = r.get()?;
        m.insert(k, r.get()?);
    }
    Ok(m)
}

/// Refuses a per-OSD vector whose length is not `max_osd`: filling it up would allocate more than the peer
/// sent.
fn check_slots(n: usize, max_osd: i32, what: &'static str) -> Result<()> {
    if usize::try_from(max_osd) == Ok(n) { Ok(()) } else { Err(DecodeError::BadValue { what, value: n as u64 }) }
}

/// Decodes a vector with one slot per OSD.
fn get_slots<T: Decode + Clone>(r: &mut Reader<'_>, max_osd: i32, min: usize, what: &'static str) -> Result<CowVec<T>> {
    let n = r.count(min, what)?;
    check_slots(n, max_osd, what)?;
    let mut v = CowVec::default();
    for _ in 0..n {
        v.push(r.get()?);
    }
    Ok(v)
}

/// Smallest wire size of an address vector in any of its forms.
const ADDRVEC_MIN: usize = 5;

fn put_addr_slots(w: &mut Writer, v: &CowVec<AddrVec>, as_vectors: bool) {
    w.u32(v.len() as u32);
    for a in v.iter() {
        if as_vectors {
            w.put(a);
        } else {
            put_one_addr(w, a);
        }
    }
}

fn put_addr_map(w: &mut Writer, m: &BTreeMap<OsdId, AddrVec>, as_vectors: bool) {
    w.seq(m.iter(), |w, (k, a)| {
        w.put(k);
        if as_vectors {
            w.put(a);
        } else {
            put_one_addr(w, a);
        }
    });
}

/// Versions of the two sections for a peer.
struct Sections {
    client: u8,
    osd: u8,
}

/// Versions of a map's sections. `chosen`: it has primaries that are chosen by upmap.
fn map_sections(f: Features, chosen: bool) -> Sections {
    if f.nautilus() {
        Sections { client: if chosen || is_reef_form(f) { 10 } else { 9 }, osd: 9 }
    } else if f.mimic() {
        Sections { client: 7, osd: 6 }
    } else {
        Sections { client: 6, osd: 5 }
    }
}

/// Versions of an incremental's sections. `chosen`: it changes primaries that are chosen by upmap.
fn inc_sections(f: Features, chosen: bool) -> Sections {
    if f.nautilus() {
        Sections { client: if chosen || is_reef_form(f) { 9 } else { 8 }, osd: 9 }
    } else if f.mimic() {
        Sections { client: 6, osd: 6 }
    } else {
        Sections { client: 5, osd: 6 }
    }
}

/// Version of the OSD section that can hold the optional parts of this map.
fn extended(v: u8, stretch: bool, ranges: bool) -> u8 {
    match (stretch, ranges) {
        (_, true) => v.max(11),
        (true, false) => v.max(10),
        (false, false) => v,
    }
}

impl StretchMode {
    fn put(&self, w: &mut Writer) {
        w.bool(self.enabled);
        w.u32(self.bucket_count);
        w.u32(self.degraded);
        w.u32(self.recovering);
        w.i32(self.bucket);
    }
}

fn check_max_osd(n: i32) -> Result<i32> {
    if (0..=MAX_OSD_LIMIT).contains(&n) {
        Ok(n)
    } else {
        Err(DecodeError::BadValue { what: "max_osd", value: n as u64 })
    }
}

impl OsdMap {
    /// Encodes the map for a peer with `features`. Returns the bytes and their checksum.
    #[must_use]
    pub fn encode_blob(&self, features: Features) -> (Bytes, u32) {
        // About the size of one OSD, so that large maps do not regrow the buffer a dozen times.
        let mut w = Writer::with_capacity(features, 4096 + self.max_osd.max(0) as usize * 400);
        let s = map_sections(features, !self.pg_upmap_primaries.is_empty());
        let mut crc = 0;
        w.u8(OUTER_V);
        w.u8(OUTER_COMPAT);
        w.sized(|w| {
            w.versioned(s.client, 1, |w| self.put_client_section(w, s.client));
            let osd_v = extended(s.osd, self.stretch.enabled, !self.range_blocklist.is_empty());
            w.versioned(osd_v, 1, |w| self.put_osd_section(w, osd_v));
            w.u32(0);
        });
        let mut buf = w.into_vec();
        if let Some((body, tail)) = buf.split_last_chunk_mut::<4>() {
            crc = crc::crc32c(crc::SEED, body);
            *tail = crc.to_le_bytes();
        }
        (buf.into(), crc)
    }

    fn put_client_section(&self, w: &mut Writer, v: u8) {
        w.put(&self.fsid);
        w.put(&self.epoch);
        w.put(&self.created);
        w.put(&self.modified);
        w.seq(self.pools.iter(), |w, (id, p)| {
            w.put(id);
            w.put(p.as_ref());
        });
        w.put(self.pool_names.as_ref());
        w.i32(self.pool_max);
        w.u32(self.flags);
        w.i32(self.max_osd);
        w.put(self.osd_state.as_ref());
        w.put(self.osd_weight.as_ref());
        put_addr_slots(w, &self.client_addrs, v >= 8);
        put_cow_map(w, &self.pg_temp);
        put_cow_map(w, &self.primary_temp);
        match &self.primary_affinity {
            Some(a) => w.put(a.as_ref()),
            None => w.u32(0),
        }
        w.sized(|w| w.put(self.crush.as_ref()));
        w.put(self.erasure_code_profiles.as_ref());
        put_cow_map(w, &self.pg_upmap);
        put_cow_map(w, &self.pg_upmap_items);
        w.i32(self.crush_version);
        if v >= 7 {
            w.put(&self.new_removed_snaps);
            w.put(&self.new_purged_snaps);
        }
        if v >= 9 {
            w.put(&self.last_up_change);
            w.put(&self.last_in_change);
        }
        if v >= 10 {
            put_cow_map(w, &self.pg_upmap_primaries);
        }
    }

    fn put_osd_section(&self, w: &mut Writer, v: u8) {
        let vectors = v >= 7;
        put_addr_slots(w, &self.hb_back_addrs, vectors);
        put_cow_vec(w, &self.osd_info);
        put_cow_map(w, &self.blocklist);
        put_addr_slots(w, &self.cluster_addrs, vectors);
        w.put(&self.cluster_snapshot_epoch);
        w.string(&self.cluster_snapshot);
        put_cow_vec(w, &self.osd_uuid);
        put_cow_vec(w, &self.osd_xinfo);
        put_addr_slots(w, &self.hb_front_addrs, vectors);
        w.f32(self.nearfull_ratio);
        w.f32(self.full_ratio);
        w.f32(self.backfillfull_ratio);
        w.u8(self.require_min_compat_client);
        w.u8(self.require_osd_release);
        if v >= 6 {
            w.put(self.removed_snaps_queue.as_ref());
        }
        if v >= 8 {
            w.put(&self.crush_node_flags);
        }
        if v >= 9 {
            w.put(&self.device_class_flags);
        }
        if v >= 10 {
            self.stretch.put(w);
        }
        if v >= 11 {
            put_cow_map(w, &self.range_blocklist);
        }
    }

    /// Decodes a map and verifies its checksum. Error: malformed bytes, an unknown version, or a wrong checksum.
    pub fn decode_blob(blob: &Bytes) -> std::result::Result<Self, MapError> {
        let mut m = Self::default();
        let mut r = Reader::shared(blob);
        let tail = r.versioned("OSDMap", OUTER_V, |r, v| {
            if v < OUTER_COMPAT {
                return Err(DecodeError::BadValue { what: "OSDMap version", value: v.into() });
            }
            r.versioned("OSDMap client section", u8::MAX, |r, v| m.get_client_section(r, v))?;
            r.versioned("OSDMap osd section", u8::MAX, |r, v| m.get_osd_section(r, v))?;
            if v < 8 {
                return Ok(None);
            }
            let at = r.position();
            Ok(Some((at, r.u32()?, r.position())))
        })?;
        if let Some((at, expect, after)) = tail {
            // The checksum covers everything but itself, including the bytes after it.
            let end = r.position();
            let got = crc::crc32c(crc::SEED, blob.get(..at).unwrap_or_default());
            let got = crc::crc32c(got, blob.get(after..end).unwrap_or_default());
            if got != expect {
                return Err(DecodeError::Checksum { what: "OSDMap", expect, got }.into());
            }
        }
        Ok(m)
    }

    fn get_client_section(&mut self, r: &mut Reader<'_>, v: u8) -> Result<()> {
        if v < 4 {
            return Err(DecodeError::BadValue { what: "OSDMap client section version", value: v.into() });
        }
        self.fsid = r.get()?;
        self.epoch = r.get()?;
        self.created = r.get()?;
        self.modified = r.get()?;
        let n = r.count(9, "pools")?;
        let pools = Arc::make_mut(&mut self.pools);
        for _ in 0..n {
            let id = r.get()?;
            pools.insert(id, Arc::new(r.get()?));
        }
        self.pool_names = Arc::new(r.get()?);
        self.pool_max = r.i32()?;
        self.flags = r.u32()?;
        self.max_osd = check_max_osd(r.i32()?)?;
        let state: Vec<u32> = if v >= 5 { r.get()? } else { r.get::<Vec<u8>>()?.into_iter().map(u32::from).collect() };
        check_slots(state.len(), self.max_osd, "osd_state")?;
        self.osd_state = Arc::new(state);
        let weight: Vec<u32> = r.get()?;
        check_slots(weight.len(), self.max_osd, "osd_weight")?;
        self.osd_weight = Arc::new(weight);
        self.client_addrs = get_slots(r, self.max_osd, ADDRVEC_MIN, "client addresses")?;
        self.pg_temp = get_cow_map(r, 21, "pg_temp")?;
        self.primary_temp = get_cow_map(r, 21, "primary_temp")?;
        let affinity: Vec<u32> = r.get()?;
        self.primary_affinity = if affinity.is_empty() {
            None
        } else {
            check_slots(affinity.len(), self.max_osd, "primary_affinity")?;
            Some(Arc::new(affinity))
        };
        let crush = r.blob()?;
        self.crush = Arc::new(CrushMap::decode_blob(&crush)?);
        self.erasure_code_profiles = Arc::new(r.get()?);
        self.pg_upmap = get_cow_map(r, 21, "pg_upmap")?;
        self.pg_upmap_items = get_cow_map(r, 21, "pg_upmap_items")?;
        self.crush_version = if v >= 6 { r.i32()? } else { 1 };
        if v >= 7 {
            self.new_removed_snaps = r.get()?;
            self.new_purged_snaps = r.get()?;
        }
        if v >= 9 {
            self.last_up_change = r.get()?;
            self.last_in_change = r.get()?;
        }
        if v >= 10 {
            self.pg_upmap_primaries = get_cow_map(r, 21, "pg_upmap_primaries")?;
        }
        Ok(())
    }

    fn get_osd_section(&mut self, r: &mut Reader<'_>, v: u8) -> Result<()> {
        if v < 5 {
            return Err(DecodeError::BadValue { what: "OSDMap osd section version", value: v.into() });
        }
        let n = self.max_osd;
        self.hb_back_addrs = get_slots(r, n, ADDRVEC_MIN, "hb_back addresses")?;
        self.osd_info = get_slots(r, n, 25, "osd_info")?;
        self.blocklist = get_cow_map(r, 13, "blocklist")?;
        self.cluster_addrs = get_slots(r, n, ADDRVEC_MIN, "cluster addresses")?;
        self.cluster_snapshot_epoch = r.get()?;
        self.cluster_snapshot = r.string()?;
        self.osd_uuid = get_slots(r, n, 16, "osd_uuid")?;
        self.osd_xinfo = get_slots(r, n, 22, "osd_xinfo")?;
        self.hb_front_addrs = get_slots(r, n, ADDRVEC_MIN, "hb_front addresses")?;
        self.nearfull_ratio = r.f32()?;
        self.full_ratio = r.f32()?;
        self.backfillfull_ratio = r.f32()?;
        self.require_min_compat_client = r.u8()?;
        self.require_osd_release = r.u8()?;
        if v >= 6 {
            self.removed_snaps_queue = Arc::new(r.get()?);
        }
        if v >= 8 {
            self.crush_node_flags = r.get()?;
        }
        if v >= 9 {
            self.device_class_flags = r.get()?;
        }
        if v >= 10 {
            self.stretch = StretchMode {
                enabled: r.bool()?,
                bucket_count: r.u32()?,
                degraded: r.u32()?,
                recovering: r.u32()?,
                bucket: r.i32()?,
            };
        }
        if v >= 11 {
            self.range_blocklist = get_cow_map(r, 13, "range_blocklist")?;
        }
        Ok(())
    }
}

impl Incremental {
    /// Encodes the incremental for a peer with `features`. `full_crc` is the checksum that
    /// [`OsdMap::encode_blob`] returned for the resulting map with the same features.
    #[must_use]
    pub fn encode_blob(&self, features: Features, full_crc: u32) -> Bytes {
        let mut w = Writer::with_capacity(features, 1024 + self.fullmap.len() + self.crush.len());
        let s = inc_sections(features, self.changes_primaries());
        w.u8(OUTER_V);
        w.u8(OUTER_COMPAT);
        w.sized(|w| {
            w.versioned(s.client, 1, |w| self.put_client_section(w, s.client));
            let ranges = !self.new_range_blocklist.is_empty() || !self.old_range_blocklist.is_empty();
            let osd_v = extended(s.osd, self.new_stretch.is_some(), ranges);
            w.versioned(osd_v, 1, |w| self.put_osd_section(w, osd_v));
            w.u32(0);
            w.u32(full_crc);
        });
        let mut buf = w.into_vec();
        let at = buf.len().saturating_sub(8);
        let crc = crc::crc32c(crc::SEED, buf.get(..at).unwrap_or_default());
        let crc = crc::crc32c(crc, &full_crc.to_le_bytes());
        if let Some(slot) = buf.get_mut(at..at + 4) {
            slot.copy_from_slice(&crc.to_le_bytes());
        }
        buf.into()
    }

    fn put_client_section(&self, w: &mut Writer, v: u8) {
        w.put(&self.fsid);
        w.put(&self.epoch);
        w.put(&self.modified);
        w.i64(self.new_pool_max);
        w.i32(self.new_flags);
        w.blob(&self.fullmap);
        w.blob(&self.crush);
        w.i32(self.new_max_osd);
        w.put(&self.new_pools);
        w.put(&self.new_pool_names);
        w.put(&self.old_pools);
        put_addr_map(w, &self.new_up_client, v >= 7);
        w.put(&self.new_state);
        w.put(&self.new_weight);
        w.put(&self.new_pg_temp);
        w.put(&self.new_primary_temp);
        w.put(&self.new_primary_affinity);
        w.put(&self.new_erasure_code_profiles);
        w.put(&self.old_erasure_code_profiles);
        w.put(&self.new_pg_upmap);
        w.put(&self.old_pg_upmap);
        w.put(&self.new_pg_upmap_items);
        w.put(&self.old_pg_upmap_items);
        if v >= 6 {
            w.put(&self.new_removed_snaps);
            w.put(&self.new_purged_snaps);
        }
        if v >= 8 {
            w.put(&self.new_last_up_change);
            w.put(&self.new_last_in_change);
        }
        if v >= 9 {
            w.put(&self.new_pg_upmap_primary);
            w.put(&self.old_pg_upmap_primary);
        }
    }

    fn put_osd_section(&self, w: &mut Writer, v: u8) {
        let vectors = v >= 7;
        put_addr_map(w, &self.new_hb_back_up, vectors);
        w.put(&self.new_up_thru);
        w.put(&self.new_last_clean_interval);
        w.put(&self.new_lost);
        w.put(&self.new_blocklist);
        w.put(&self.old_blocklist);
        put_addr_map(w, &self.new_up_cluster, vectors);
        w.string(&self.cluster_snapshot);
        w.put(&self.new_uuid);
        w.put(&self.new_xinfo);
        put_addr_map(w, &self.new_hb_front_up, vectors);
        w.u64(w.features().0);
        w.f32(self.new_nearfull_ratio);
        w.f32(self.new_full_ratio);
        w.f32(self.new_backfillfull_ratio);
        w.u8(self.new_require_min_compat_client);
        w.u8(self.new_require_osd_release);
        if v >= 8 {
            w.put(&self.new_crush_node_flags);
        }
        if v >= 9 {
            w.put(&self.new_device_class_flags);
        }
        if v >= 10 {
            let s = self.new_stretch.unwrap_or_default();
            w.bool(self.new_stretch.is_some());
            w.u32(s.bucket_count);
            w.u32(s.degraded);
            w.u32(s.recovering);
            w.i32(s.bucket);
            w.bool(s.enabled);
        }
        if v >= 11 {
            w.put(&self.new_range_blocklist);
            w.put(&self.old_range_blocklist);
        }
    }

    /// Decodes an incremental and verifies its own checksum. Error: malformed bytes, an unknown version, or a wrong
    /// checksum.
    pub fn decode_blob(blob: &Bytes) -> std::result::Result<Self, MapError> {
        let mut inc = Self::default();
        let mut r = Reader::shared(blob);
        let tail = r.versioned("OSDMap::Incremental", OUTER_V, |r, v| {
            if v < OUTER_COMPAT {
                return Err(DecodeError::BadValue { what: "OSDMap::Incremental version", value: v.into() });
            }
            r.versioned("incremental client section", u8::MAX, |r, v| inc.get_client_section(r, v))?;
            r.versioned("incremental osd section", u8::MAX, |r, v| inc.get_osd_section(r, v))?;
            if v < 8 {
                return Ok(None);
            }
            let at = r.position();
            inc.inc_crc = r.u32()?;
            let after = r.position();
            inc.full_crc = r.u32()?;
            Ok(Some((at, after)))
        })?;
        if let Some((at, after)) = tail {
            let end = r.position();
            let got = crc::crc32c(crc::SEED, blob.get(..at).unwrap_or_default());
            let got = crc::crc32c(got, blob.get(after..end).unwrap_or_default());
            if got != inc.inc_crc {
                return Err(DecodeError::Checksum { what: "OSDMap::Incremental", expect: inc.inc_crc, got }.into());
            }
        }
        Ok(inc)
    }

    fn get_client_section(&mut self, r: &mut Reader<'_>, v: u8) -> Result<()> {
        if v < 4 {
            return Err(DecodeError::BadValue { what: "incremental client section version", value: v.into() });
        }
        self.fsid = r.get()?;
        self.epoch = r.get()?;
        self.modified = r.get()?;
        self.new_pool_max = r.i64()?;
        self.new_flags = r.i32()?;
        self.fullmap = r.blob()?;
        self.crush = r.blob()?;
        self.new_max_osd = r.i32()?;
        self.new_pools = r.get()?;
        self.new_pool_names = r.get()?;
        self.old_pools = r.get()?;
        self.new_up_client = r.get()?;
        if v >= 5 {
            self.new_state = r.get()?;
        } else {
            let m: BTreeMap<OsdId, u8> = r.get()?;
            self.new_state = m.into_iter().map(|(k, s)| (k, u32::from(s))).collect();
        }
        self.new_weight = r.get()?;
        self.new_pg_temp = r.get()?;
        self.new_primary_temp = r.get()?;
        self.new_primary_affinity = r.get()?;
        self.new_erasure_code_profiles = r.get()?;
        self.old_erasure_code_profiles = r.get()?;
        self.new_pg_upmap = r.get()?;
        self.old_pg_upmap = r.get()?;
        self.new_pg_upmap_items = r.get()?;
        self.old_pg_upmap_items = r.get()?;
        if v >= 6 {
            self.new_removed_snaps = r.get()?;
            self.new_purged_snaps = r.get()?;
        }
        if v >= 8 {
            self.new_last_up_change = r.get()?;
            self.new_last_in_change = r.get()?;
        }
        if v >= 9 {
            self.new_pg_upmap_primary = r.get()?;
            self.old_pg_upmap_primary = r.get()?;
        }
        Ok(())
    }

    fn get_osd_section(&mut self, r: &mut Reader<'_>, v: u8) -> Result<()> {
        if v < 3 {
            return Err(DecodeError::BadValue { what: "incremental osd section version", value: v.into() });
        }
        self.new_hb_back_up = r.get()?;
        self.new_up_thru = r.get()?;
        self.new_last_clean_interval = r.get::<BTreeMap<OsdId, (Epoch, Epoch)>>()?;
        self.new_lost = r.get()?;
        self.new_blocklist = r.get::<BTreeMap<AddrKey, Utime>>()?;
        self.old_blocklist = r.get()?;
        self.new_up_cluster = r.get()?;
        self.cluster_snapshot = r.string()?;
        self.new_uuid = r.get()?;
        self.new_xinfo = r.get()?;
        self.new_hb_front_up = r.get()?;
        self.encode_features = r.u64()?;
        self.new_nearfull_ratio = r.f32()?;
        self.new_full_ratio = r.f32()?;
        self.new_backfillfull_ratio = r.f32()?;
        if v >= 6 {
            self.new_require_min_compat_client = r.u8()?;
            self.new_require_osd_release = r.u8()?;
        } else if v == 5 {
            // Old encodings have the release's name instead of its number.
            let name = r.string()?;
            self.new_require_min_compat_client = crate::release::from_name(&name).unwrap_or(0);
            self.new_require_osd_release = RELEASE_UNCHANGED;
        }
        if v >= 8 {
            self.new_crush_node_flags = r.get()?;
        }
        if v >= 9 {
            self.new_device_class_flags = r.get()?;
        }
        if v >= 10 {
            let change = r.bool()?;
            let mut s = StretchMode {
                bucket_count: r.u32()?,
                degraded: r.u32()?,
                recovering: r.u32()?,
                bucket: r.i32()?,
                enabled: false,
            };
            s.enabled = r.bool()?;
            self.new_stretch = change.then_some(s);
        }
        if v >= 11 {
            self.new_range_blocklist = r.get()?;
            self.old_range_blocklist = r.get()?;
        }
        Ok(())
    }
}
