//! Consistency of what is in memory: space, references and sums against the maps they are derived from.

use super::Store;
use crate::meta::Usage;
use crate::meta::map::BLOCKS_MAX;
use crate::meta::page::Body;
use rustc_hash::FxHashMap;

impl Store {
    /// Compares every derived count with its source. For tests and for `store fsck`; takes time in proportion to the
    /// metadata. Exact for a device that only this store uses.
    pub fn check(&self) -> Result<(), String> {
        let m = &self.meta;
        let mut data: FxHashMap<u64, u64> = FxHashMap::default();
        let mut usage: FxHashMap<u32, Usage> = FxHashMap::default();
        let mut weight = 0;
        for (id, o) in &m.objects {
            for (_, p, _) in o.map.iter(0, BLOCKS_MAX) {
                *data.entry(p.phys()).or_default() += 1;
            }
            weight += o.weight();
            let mut omap = 0;
            m.omap_scan(id as u32, &[], false, |kv| {
                omap += kv.len() as u64;
                true
            });
            let u = usage.entry(o.coll).or_default();
            u.objects += 1;
            u.stored += o.stored();
            u.omap += omap;
            let here = m.pages.get(o.page as usize).map(|p| &p.body);
            if !matches!(here, Some(Body::Objects { ids, .. }) if ids.iter().any(|i| i.1 == id as u32)) {
                return Err(format!("object {} is not in its page", o.oid.hobj));
            }
        }
        let mut sum = Usage::default();
        for (id, c) in &m.colls {
            let u = usage.remove(&(id as u32)).unwrap_or_default();
            if u != c.usage {
                return Err(format!("usage of {:?}: counted {u:?}, kept {:?}", c.cid, c.usage));
            }
            sum.objects += u.objects;
            sum.stored += u.stored;
            sum.omap += u.omap;
        }
        if !usage.is_empty() || sum != m.usage {
            return Err(format!("usage: counted {sum:?}, kept {:?}", m.usage));
        }
        if weight != m.weight {
            return Err(format!("weight: counted {weight}, kept {}", m.weight));
        }
        let shared: u64 = data.values().map(|n| n - 1).sum();
        if shared != m.refs.sum() {
            return Err(format!("references beyond the first: counted {shared}, kept {}", m.refs.sum()));
        }
        let pages = m.pages.iter().flat_map(|(_, p)| p.loc.runs.iter().copied());
        let page_blocks: u64 = pages.clone().map(|r| u64::from(r.1)).sum();
        let blobs: Vec<(u64, u32)> = self.checkpoint.blob_runs().collect();
        let blob_blocks: u64 = blobs.iter().map(|r| u64::from(r.1)).sum();
        if page_blocks + blob_blocks != m.page_blocks {
            return Err(format!("metadata blocks: counted {page_blocks} + {blob_blocks}, kept {}", m.page_blocks));
        }
        let leaving = m.freed.iter().chain(&m.release).chain(self.checkpoint.releasing()).copied();
        let mut used: FxHashMap<u64, &str> = data.keys().map(|b| (*b, "data")).collect();
        for (what, (first, n)) in pages.chain(blobs).map(|r| ("metadata", r)).chain(leaving.map(|r| ("freed", r))) {
            for b in first..first + u64::from(n) {
                if let Some(old) = used.insert(b, what) {
                    return Err(format!("block {b} is {old} and {what}"));
                }
            }
        }
        for b in m.layout.space_start..m.layout.space_end {
            if self.space.used(b) != used.contains_key(&b) {
                return Err(format!("block {b}: in use {}, referred to as {:?}", self.space.used(b), used.get(&b)));
            }
        }
        let reserved: u64 = self.plans.values().map(|p| p.reserved).sum();
        if self.space.unreserved() + used.len() as u64 + reserved != self.space.total() {
            return Err(format!("{} free, {} used, {reserved} reserved", self.space.unreserved(), used.len()));
        }
        Ok(())
    }
}
