//! Application of an incremental to a map.
//!
//! [`OsdMap::apply`] does exactly what every Ceph daemon does with an incremental, in the same order. The
//! canonical encoding of the result has the checksum that the incremental names.

use super::{
    AFFINITY_DEFAULT, Incremental, MAX_OSD_LIMIT, OsdInfo, OsdMap, OsdXinfo, incremental, map_flag, osd_state, slot,
};
use crate::crush::CrushMap;
use crate::{MapError, release};
use base::{AddrVec, OsdId, id::Uuid};
use bytes::Bytes;
use std::sync::Arc;
use wire::Features;

impl OsdMap {
    /// Map of the next epoch. It shares unchanged parts with this one. Error: the incremental belongs to another
    /// epoch or cluster, names an OSD outside the map, or holds parts that do not decode.
    pub fn apply(&self, inc: &Incremental) -> Result<Self, MapError> {
        if inc.epoch != self.epoch.next() {
            return Err(MapError::EpochGap { map: self.epoch, inc: inc.epoch });
        }
        if inc.epoch.0 != 1 && inc.fsid != self.fsid {
            return Err(MapError::OtherCluster { map: self.fsid, inc: inc.fsid });
        }
        if !inc.fullmap.is_empty() {
            return Self::decode_blob(&inc.fullmap);
        }
        let mut m = self.clone();
        m.fsid = inc.fsid;
        m.epoch = inc.epoch;
        m.modified = inc.modified;
        if inc.new_flags >= 0 {
            m.flags = inc.new_flags as u32;
        }
        if inc.new_max_osd >= 0 {
            m.set_max_osd(inc.new_max_osd)?;
        }
        if inc.new_pool_max != -1 {
            m.pool_max = inc.new_pool_max as i32;
        }
        m.apply_pools(inc)?;
        m.apply_osds(inc)?;
        m.apply_pgs(inc);
        m.apply_settings(inc);
        // CRUSH comes last, after everything that names OSDs.
        if !inc.crush.is_empty() {
            m.crush = Arc::new(CrushMap::decode_blob(&inc.crush)?);
            if m.require_osd_release >= release::LUMINOUS {
                m.crush_version = m.crush_version.wrapping_add(1);
            }
            let crush = m.crush.clone();
            m.device_class_flags.retain(|class, _| crush.class_names.contains_key(class));
        }
        if let Some(s) = inc.new_stretch {
            m.stretch = s;
        }
        Ok(m)
    }

    /// Like [`OsdMap::apply`], and checks that the result equals the map of the incremental's author. Also
    /// returns the encoded full map, which daemons store. After [`MapError::FullCrc`] the caller needs the full
    /// map of that epoch.
    pub fn apply_checked(&self, inc: &Incremental) -> Result<(Self, Bytes), MapError> {
        let m = self.apply(inc)?;
        let (blob, got) = m.encode_blob(Features(inc.encode_features));
        if got != inc.full_crc {
            return Err(MapError::FullCrc { epoch: m.epoch, expect: inc.full_crc, got });
        }
        Ok((m, blob))
    }

    /// Changes the number of OSD slots. Error: [`MapError::TooManyOsds`] above [`MAX_OSD_LIMIT`] or below 0.
    pub fn set_max_osd(&mut self, n: i32) -> Result<(), MapError> {
        if !(0..=MAX_OSD_LIMIT).contains(&n) {
            return Err(MapError::TooManyOsds { max: n, limit: MAX_OSD_LIMIT });
        }
        let slots = n as usize;
        self.max_osd = n;
        Arc::make_mut(&mut self.osd_state).resize(slots, 0);
        Arc::make_mut(&mut self.osd_weight).resize(slots, 0);
        if let Some(a) = &mut self.primary_affinity {
            Arc::make_mut(a).resize(slots, AFFINITY_DEFAULT);
        }
        self.client_addrs.resize(slots);
        self.hb_back_addrs.resize(slots);
        self.hb_front_addrs.resize(slots);
        self.cluster_addrs.resize(slots);
        self.osd_info.resize(slots);
        self.osd_xinfo.resize(slots);
        self.osd_uuid.resize(slots);
        Ok(())
    }

    fn known(&self, osd: OsdId) -> Result<usize, MapError> {
        let i = slot(osd);
        if i < self.osd_state.len() { Ok(i) } else { Err(MapError::NoSuchOsd { osd, max: self.max_osd }) }
    }

    fn set_affinity(&mut self, osd: OsdId, v: u32) -> Result<(), MapError> {
        let i = self.known(osd)?;
        let slots = self.max_osd.max(0) as usize;
        let all = self.primary_affinity.get_or_insert_with(|| Arc::new(vec![AFFINITY_DEFAULT; slots]));
        if let Some(a) = Arc::make_mut(all).get_mut(i) {
            *a = v;
        }
        Ok(())
    }

    fn apply_pools(&mut self, inc: &Incremental) -> Result<(), MapError> {
        if !inc.new_pools.is_empty() || !inc.old_pools.is_empty() {
            let pools = Arc::make_mut(&mut self.pools);
            for (id, p) in &inc.new_pools {
                let mut p = p.clone();
                p.last_change = inc.epoch;
                pools.insert(*id, Arc::new(p));
            }
            for id in &inc.old_pools {
                pools.remove(id);
            }
        }
        self.new_removed_snaps.clone_from(&inc.new_removed_snaps);
        self.new_purged_snaps.clone_from(&inc.new_purged_snaps);
        if !inc.new_removed_snaps.is_empty() || !inc.new_purged_snaps.is_empty() {
            let queue = Arc::make_mut(&mut self.removed_snaps_queue);
            for (pool, snaps) in &inc.new_removed_snaps {
                queue.entry(*pool).or_default().union_of(snaps);
            }
            for (pool, snaps) in &inc.new_purged_snaps {
                let q = queue.get_mut(pool).ok_or(MapError::NotQueued { pool: *pool })?;
                q.subtract(snaps);
                if q.is_empty() {
                    queue.remove(pool);
                }
            }
        }
        if !inc.new_pool_names.is_empty() || !inc.old_pools.is_empty() {
            let names = Arc::make_mut(&mut self.pool_names);
            for (id, name) in &inc.new_pool_names {
                names.insert(*id, name.clone());
            }
            for id in &inc.old_pools {
                names.remove(id);
            }
        }
        Ok(())
    }

    fn apply_profiles(&mut self, inc: &Incremental) {
        if !inc.old_erasure_code_profiles.is_empty() || !inc.new_erasure_code_profiles.is_empty() {
            let profiles = Arc::make_mut(&mut self.erasure_code_profiles);
            for name in &inc.old_erasure_code_profiles {
                profiles.remove(name);
            }
            for (name, p) in &inc.new_erasure_code_profiles {
                profiles.insert(name.clone(), p.clone());
            }
        }
    }

    fn apply_osds(&mut self, inc: &Incremental) -> Result<(), MapError> {
        if inc.new_last_up_change != base::Utime::ZERO {
            self.last_up_change = inc.new_last_up_change;
        }
        if inc.new_last_in_change != base::Utime::ZERO {
            self.last_in_change = inc.new_last_in_change;
        }
        for (osd, w) in &inc.new_weight {
            let i = self.known(*osd)?;
            if let Some(x) = Arc::make_mut(&mut self.osd_weight).get_mut(i) {
                *x = *w;
            }
            if *w > 0 {
                // A weight makes the OSD exist, even before its state does.
                self.flip_state(i, |s| (s | osd_state::EXISTS) & !(osd_state::AUTOOUT | osd_state::NEW));
                if let Some(x) = self.osd_xinfo.get_mut(i) {
                    x.old_weight = 0;
                }
            }
        }
        for (osd, a) in &inc.new_primary_affinity {
            self.set_affinity(*osd, *a)?;
        }
        self.apply_profiles(inc);
        self.apply_states(inc)?;
        for (osd, addrs) in &inc.new_up_client {
            let i = self.known(*osd)?;
            self.flip_state(i, |s| s | osd_state::EXISTS | osd_state::UP);
            put(&mut self.client_addrs, i, addrs.clone());
            put(&mut self.hb_back_addrs, i, inc.new_hb_back_up.get(osd).cloned().unwrap_or_default());
            put(&mut self.hb_front_addrs, i, inc.new_hb_front_up.get(osd).cloned().unwrap_or_default());
            if let Some(info) = self.osd_info.get_mut(i) {
                info.up_from = inc.epoch;
            }
        }
        for (osd, addrs) in &inc.new_up_cluster {
            let i = self.known(*osd)?;
            put(&mut self.cluster_addrs, i, addrs.clone());
        }
        for (osd, e) in &inc.new_up_thru {
            let i = self.known(*osd)?;
            if let Some(info) = self.osd_info.get_mut(i) {
                info.up_thru = *e;
            }
        }
        for (osd, (begin, end)) in &inc.new_last_clean_interval {
            let i = self.known(*osd)?;
            if let Some(info) = self.osd_info.get_mut(i) {
                info.last_clean_begin = *begin;
                info.last_clean_end = *end;
            }
        }
        for (osd, e) in &inc.new_lost {
            let i = self.known(*osd)?;
            if let Some(info) = self.osd_info.get_mut(i) {
                info.lost_at = *e;
            }
        }
        for (osd, x) in &inc.new_xinfo {
            let i = self.known(*osd)?;
            put(&mut self.osd_xinfo, i, *x);
        }
        for (osd, u) in &inc.new_uuid {
            let i = self.known(*osd)?;
            put(&mut self.osd_uuid, i, *u);
        }
        Ok(())
    }

    fn flip_state(&mut self, i: usize, f: impl FnOnce(u32) -> u32) {
        if let Some(s) = Arc::make_mut(&mut self.osd_state).get_mut(i) {
            *s = f(*s);
        }
    }

    fn apply_states(&mut self, inc: &Incremental) -> Result<(), MapError> {
        for (osd, bits) in &inc.new_state {
            let i = self.known(*osd)?;
            let bits = if *bits == 0 { osd_state::UP } else { *bits };
            let was = self.state(*osd);
            if was & bits & osd_state::UP != 0 {
                if let Some(info) = self.osd_info.get_mut(i) {
                    info.down_at = inc.epoch;
                }
                if let Some(x) = self.osd_xinfo.get_mut(i) {
                    x.down_stamp = inc.modified;
                }
            }
            if was & bits & osd_state::EXISTS != 0 {
                // A removed OSD leaves no data in the map.
                put(&mut self.osd_uuid, i, Uuid::ZERO);
                put(&mut self.osd_info, i, OsdInfo::default());
                put(&mut self.osd_xinfo, i, OsdXinfo::default());
                self.set_affinity(*osd, AFFINITY_DEFAULT)?;
                for v in
                    [&mut self.client_addrs, &mut self.cluster_addrs, &mut self.hb_front_addrs, &mut self.hb_back_addrs]
                {
                    put(v, i, AddrVec::default());
                }
                self.flip_state(i, |_| 0);
            } else {
                self.flip_state(i, |s| s ^ bits);
            }
        }
        Ok(())
    }

    fn apply_pgs(&mut self, inc: &Incremental) {
        for (pg, set) in &inc.new_pg_temp {
            if set.is_empty() {
                self.pg_temp.remove(pg);
            } else {
                self.pg_temp.insert(*pg, set.clone());
            }
        }
        for (pg, osd) in &inc.new_primary_temp {
            if osd.0 == -1 {
                self.primary_temp.remove(pg);
            } else {
                self.primary_temp.insert(*pg, *osd);
            }
        }
        for (pg, set) in &inc.new_pg_upmap {
            self.pg_upmap.insert(*pg, set.clone());
        }
        for pg in &inc.old_pg_upmap {
            self.pg_upmap.remove(pg);
        }
        for (pg, items) in &inc.new_pg_upmap_items {
            self.pg_upmap_items.insert(*pg, items.clone());
        }
        for pg in &inc.old_pg_upmap_items {
            self.pg_upmap_items.remove(pg);
        }
        for (pg, osd) in &inc.new_pg_upmap_primary {
            self.pg_upmap_primaries.insert(*pg, *osd);
        }
        for pg in &inc.old_pg_upmap_primary {
            self.pg_upmap_primaries.remove(pg);
        }
    }

    fn apply_settings(&mut self, inc: &Incremental) {
        // An existing entry gets the new time; in Ceph it keeps the old one.
        for (addr, until) in &inc.new_blocklist {
            self.blocklist.insert(*addr, *until);
        }
        for addr in &inc.old_blocklist {
            self.blocklist.remove(addr);
        }
        for (range, until) in &inc.new_range_blocklist {
            self.range_blocklist.insert(*range, *until);
        }
        for range in &inc.old_range_blocklist {
            self.range_blocklist.remove(range);
        }
        for (flags, changes) in [
            (&mut self.crush_node_flags, &inc.new_crush_node_flags),
            (&mut self.device_class_flags, &inc.new_device_class_flags),
        ] {
            for (id, bits) in changes {
                if *bits == 0 {
                    flags.remove(id);
                } else {
                    flags.insert(*id, *bits);
                }
            }
        }
        self.cluster_snapshot.clone_from(&inc.cluster_snapshot);
        self.cluster_snapshot_epoch = if inc.cluster_snapshot.is_empty() { base::Epoch(0) } else { inc.epoch };
        if inc.new_nearfull_ratio >= 0.0 {
            self.nearfull_ratio = inc.new_nearfull_ratio;
        }
        if inc.new_backfillfull_ratio >= 0.0 {
            self.backfillfull_ratio = inc.new_backfillfull_ratio;
        }
        if inc.new_full_ratio >= 0.0 {
            self.full_ratio = inc.new_full_ratio;
        }
        if let Some(r) = incremental::changed_release(inc.new_require_min_compat_client) {
            self.require_min_compat_client = r;
        }
        if let Some(r) = inc.changed_osd_release() {
            self.require_osd_release = r;
            if r >= release::LUMINOUS {
                self.flags &= !map_flag::LEGACY_REQUIRE;
                self.flags |= map_flag::RECOVERY_DELETES;
            }
        }
    }
}

fn put<T: Clone>(v: &mut crate::cow::CowVec<T>, i: usize, x: T) {
    if let Some(slot) = v.get_mut(i) {
        *slot = x;
    }
}
