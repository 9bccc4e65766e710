//! The way back for the CRUSH map: the whole map before, and the items that the change has moved or weighed anew.

use base::OsdId;
use base::crc::crc32c;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use cluster::OsdMap;
use cluster::crush::CrushMap;
use cluster::osdmap::CANONICAL;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The place of an item that is in no bucket.
const NOWHERE: &str = "in no bucket";

/// The CRUSH map before and after a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrushUndo {
    /// The map before, encoded, in base64.
    pub was: String,
    /// The checksum of the encoded map after.
    pub crc: u32,
    /// Items that the change has touched: their places after it.
    pub items: BTreeMap<String, String>,
}

fn checksum(crush: &CrushMap) -> u32 {
    crc32c(0, &crush.encode_blob(CANONICAL))
}

/// The places of OSDs and buckets by name, with weights and classes of OSDs. Weights of buckets follow from them.
fn places(crush: &CrushMap) -> BTreeMap<String, String> {
    let parents = crush.parents();
    let buckets = crush.iter_buckets().map(|b| b.id).filter(|id| !crush.is_shadow(*id));
    let osds = parents.keys().copied().filter(|id| *id >= 0);
    let mut weights: BTreeMap<i32, u32> = BTreeMap::new();
    for b in crush.iter_buckets().filter(|b| !crush.is_shadow(b.id)) {
        for (id, w) in b.items.iter().zip(b.weights()) {
            weights.entry(*id).or_insert(w);
        }
    }
    let place = |id: i32| {
        let parent = parents.get(&id).and_then(|p| crush.name_of(*p)).map_or(NOWHERE.into(), |p| format!("in {p}"));
        if id < 0 {
            return parent;
        }
        let weight = f64::from(weights.get(&id).copied().unwrap_or_default()) / 65_536.0;
        let class = crush.class_of(id).map_or(String::new(), |c| format!(", class {c}"));
        format!("{parent} with weight {weight:.4}{class}")
    };
    let named = |id: i32| Some((crush.name_of(id)?.to_owned(), place(id)));
    buckets.chain(osds).filter_map(named).collect()
}

impl CrushUndo {
    /// The way back from `after` to `before`.
    #[must_use]
    pub fn of(before: &CrushMap, after: &CrushMap) -> Self {
        let (had, mut has) = (places(before), places(after));
        for name in had.keys() {
            has.entry(name.clone()).or_insert_with(|| "not in the map".into());
        }
        has.retain(|name, place| had.get(name) != Some(place));
        Self { was: BASE64.encode(before.encode_blob(CANONICAL)), crc: checksum(after), items: has }
    }

    /// The encoded map before. Error: the record is damaged.
    fn blob(&self) -> Result<Bytes, String> {
        BASE64.decode(&self.was).map(Bytes::from).map_err(|e| format!("the record of the CRUSH map: {e}"))
    }

    /// The encoded map before, without OSDs that were removed from the cluster since. Error: the record is damaged.
    pub(super) fn blob_of(&self, now: &OsdMap) -> Result<Bytes, String> {
        let mut crush = self.before()?;
        let has = now.crush.parents();
        let gone = |id: &i32| *id >= 0 && !now.exists(OsdId(*id)) && !has.contains_key(id);
        let gone: Vec<i32> = crush.parents().into_keys().filter(gone).collect();
        if gone.is_empty() {
            return self.blob();
        }
        let failed = |e: cluster::crush::CrushError| format!("the record of the CRUSH map: {e}");
        for id in gone {
            crush.remove_item(id).map_err(failed)?;
        }
        crush.rebuild_shadows().map_err(failed)?;
        Ok(crush.encode_blob(CANONICAL))
    }

    fn before(&self) -> Result<CrushMap, String> {
        CrushMap::decode_blob(&self.blob()?).map_err(|e| format!("the record of the CRUSH map: {e}"))
    }

    /// Differences from the map that the change has made.
    #[must_use]
    pub fn differences(&self, now: &CrushMap) -> Vec<String> {
        if checksum(now) == self.crc {
            return Vec::new();
        }
        let before = match self.before() {
            Ok(b) => b,
            Err(e) => return vec![e],
        };
        let (mut wanted, has) = (places(&before), places(now));
        wanted.extend(self.items.clone());
        let gone = "not in the map".to_owned();
        let names: std::collections::BTreeSet<&String> = wanted.keys().chain(has.keys()).collect();
        let place = |m: &BTreeMap<String, String>, n: &String| m.get(n).unwrap_or(&gone).clone();
        let other = names.into_iter().filter(|n| place(&wanted, n) != place(&has, n));
        let out: Vec<String> = other.map(|n| format!("{n} is {}", place(&has, n))).collect();
        if out.is_empty() { vec!["the CRUSH map has other rules, tunables or weight sets".into()] } else { out }
    }

    /// OSDs that are in the map now and would not be after the way back, beside those that the change itself brought.
    pub fn newcomers(&self, now: &CrushMap) -> Result<Vec<String>, String> {
        let had = places(&self.before()?);
        let osds = now.parents().into_keys().filter(|id| *id >= 0).filter_map(|id| now.name_of(id));
        let new = osds.filter(|n| !had.contains_key(*n) && !self.items.contains_key(*n));
        Ok(new.map(str::to_owned).collect())
    }
}
