//! Changes of the hierarchy, as the monitor's `osd crush` commands make them.
//!
//! Every public function leaves a map with consistent weights and shadow trees. After an error the map may be
//! changed in part, so callers work on a copy. Besides the errors that a function names, it fails with `NoSpace` if no
//! bucket id is free, and with `Invalid` if a sum of weights exceeds 32 bits.

use super::bucket::{Bucket, BucketAlg};
use super::{CrushError, CrushMap, DEFAULT_TYPES, MAX_BUCKETS, TYPE_OSD, Tunables, rules, slot_of};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A place in the hierarchy: type name to bucket name (`root=default host=a`).
pub type Location = BTreeMap<String, String>;

/// Bucket slots of a new map; their number doubles when needed.
const FIRST_SLOTS: usize = 8;

impl CrushMap {
    /// The map of a fresh cluster: the usual types, root `default`, rule `replicated_rule` over hosts (or over OSDs if
    /// `failure_domain` is `osd`).
    #[must_use]
    pub fn fresh(failure_domain: &str) -> Self {
        let mut m = Self { tunables: Tunables::JEWEL, ..Self::default() };
        for (t, n) in DEFAULT_TYPES {
            m.type_names.insert(t, n.to_owned());
        }
        // Both calls succeed on an empty map with these names.
        let _ = m.add_bucket("default", "root");
        let spec = rules::RuleSpec { name: "replicated_rule", root: "default", failure_domain, ..Default::default() };
        let _ = m.add_simple_rule(&spec);
        m
    }

    fn default_alg(&self) -> BucketAlg {
        let allowed = self.tunables.allowed_bucket_algs;
        [BucketAlg::Straw2, BucketAlg::Straw, BucketAlg::Tree, BucketAlg::List, BucketAlg::Uniform]
            .into_iter()
            .find(|a| allowed & 1 << (*a as u32) != 0)
            .unwrap_or(BucketAlg::Straw2)
    }

    /// Puts a bucket into its slot, making room.
    pub(super) fn place_bucket(&mut self, b: Bucket) -> Result<(), CrushError> {
        let slot = slot_of(b.id);
        if slot >= MAX_BUCKETS {
            return Err(CrushError::NoSpace(format!("bucket id {} is out of range", b.id)));
        }
        let mut slots = self.buckets.len();
        while slot >= slots {
            slots = if slots == 0 { FIRST_SLOTS } else { slots * 2 };
        }
        self.buckets.resize(slots, None);
        match self.buckets.get_mut(slot) {
            Some(Some(_)) => return Err(CrushError::Exists(format!("bucket {}", b.id))),
            Some(empty) => *empty = Some(Arc::new(b)),
            None => {}
        }
        Ok(())
    }

    fn free_bucket_id(&self) -> i32 {
        let free = self.buckets.iter().position(Option::is_none).unwrap_or(self.buckets.len());
        -1 - free as i32
    }

    fn new_bucket(&mut self, name: &str, kind: i32) -> Result<i32, CrushError> {
        let kind = u16::try_from(kind).map_err(|_| CrushError::Invalid(format!("bucket type {kind}")))?;
        let id = self.free_bucket_id();
        self.place_bucket(Bucket::new(id, kind, self.default_alg()))?;
        self.item_names.insert(id, name.to_owned());
        Ok(id)
    }

    fn check_name(name: &str) -> Result<(), CrushError> {
        if Self::is_valid_name(name) {
            Ok(())
        } else {
            Err(CrushError::Invalid(format!("invalid name '{name}': use only letters, digits, '-', '_' and '.'")))
        }
    }

    /// Adds an empty bucket without a parent (`osd crush add-bucket`), and returns its id. Error: `Invalid` for a bad
    /// name or the type of devices, `Exists`, `NoSuchType`.
    pub fn add_bucket(&mut self, name: &str, type_name: &str) -> Result<i32, CrushError> {
        Self::check_name(name)?;
        if self.id_of(name).is_some() {
            return Err(CrushError::Exists(format!("bucket '{name}'")));
        }
        let kind = self.type_id(type_name).ok_or_else(|| CrushError::NoSuchType(type_name.to_owned()))?;
        if kind == TYPE_OSD {
            return Err(CrushError::Invalid(format!("cannot add a bucket of type '{type_name}'")));
        }
        // The next change that inserts an item builds the shadows.
        self.new_bucket(name, kind)
    }

    /// Replaces the items of a bucket and of its weight sets. Leaves its parents unchanged.
    pub(super) fn set_bucket_items(&mut self, id: i32, items: Vec<i32>, weights: Vec<u32>) -> Result<(), CrushError> {
        let straw = self.tunables.straw_calc_version;
        let slot = slot_of(id);
        let Some(b) = self.bucket_mut(id) else { return Err(CrushError::NoSuchItem(id.to_string())) };
        let before = b.items.clone();
        b.set_items(items, weights, straw)?;
        let (items, weights) = (b.items.clone(), b.weights());
        if before == items {
            return Ok(());
        }
        // Weight sets follow the items: known ones keep their weight, new ones get the real one.
        for set in self.choose_args.values_mut() {
            let Some(arg) = set.get_mut(&slot) else { continue };
            for ws in &mut arg.weight_sets {
                let old: BTreeMap<i32, u32> = before.iter().copied().zip(ws.iter().copied()).collect();
                *ws = items.iter().zip(&weights).map(|(i, w)| old.get(i).copied().unwrap_or(*w)).collect();
            }
            if !arg.ids.is_empty() {
                let old: BTreeMap<i32, i32> = before.iter().copied().zip(arg.ids.iter().copied()).collect();
                arg.ids = items.iter().map(|i| old.get(i).copied().unwrap_or(*i)).collect();
            }
        }
        Ok(())
    }

    fn push_item(&mut self, bucket: i32, item: i32, weight: u32) -> Result<(), CrushError> {
        let b = self.bucket(bucket).ok_or_else(|| CrushError::NoSuchItem(bucket.to_string()))?;
        let (mut items, mut weights) = (b.items.clone(), b.weights());
        items.push(item);
        // A uniform bucket takes only its own weight.
        let weight = if b.alg() == BucketAlg::Uniform { weights.first().copied().unwrap_or(weight) } else { weight };
        weights.push(weight);
        self.set_bucket_items(bucket, items, weights)
    }

    fn drop_item(&mut self, bucket: i32, item: i32) -> Result<(), CrushError> {
        let b = self.bucket(bucket).ok_or_else(|| CrushError::NoSuchItem(bucket.to_string()))?;
        let (items, weights) = b.items.iter().copied().zip(b.weights()).filter(|(i, _)| *i != item).unzip();
        self.set_bucket_items(bucket, items, weights)?;
        self.propagate(bucket)
    }

    /// Ids of the buckets that hold an item, by slot.
    pub(super) fn holders(&self, item: i32) -> Vec<i32> {
        self.iter_buckets().filter(|b| b.items.contains(&item)).map(|b| b.id).collect()
    }

    /// True if `item` already is in the bucket of the lowest type that `loc` names.
    #[must_use]
    pub fn is_at(&self, item: i32, loc: &Location) -> bool {
        let lowest = self.type_names.iter().filter(|(t, _)| **t != TYPE_OSD).find_map(|(_, n)| loc.get(n));
        lowest.and_then(|name| self.bucket(self.id_of(name)?)).is_some_and(|b| b.items.contains(&item))
    }

    /// Adds an item with a weight below the buckets of `loc`, which are created if missing. Adjusts the weights above
    /// and rebuilds the shadow trees. Error: `Invalid` for a bad name, a location that names no bucket, a bucket of
    /// another type, or one that holds the item already; `NoSuchType`; `Exists` if another item has the name; `Loop`
    /// if the location is below the item.
    pub fn insert_item(&mut self, item: i32, weight: u32, name: &str, loc: &Location) -> Result<(), CrushError> {
        Self::check_name(name)?;
        for v in loc.values() {
            Self::check_name(v)?;
        }
        for t in loc.keys() {
            if self.type_id(t).is_none() {
                return Err(CrushError::NoSuchType(t.clone()));
            }
        }
        match self.id_of(name) {
            Some(id) if id != item => return Err(CrushError::Exists(format!("name '{name}'"))),
            Some(_) => {}
            None => {
                self.item_names.insert(item, name.to_owned());
            }
        }
        let types: Vec<(i32, String)> =
            self.type_names.iter().filter(|(t, _)| **t != TYPE_OSD).map(|(t, n)| (*t, n.clone())).collect();
        let mut cur = item;
        let mut hung = false;
        let mut first = None;
        for (kind, ty) in types {
            let Some(bucket_name) = loc.get(&ty) else { continue };
            let Some(id) = self.id_of(bucket_name) else {
                let id = self.new_bucket(bucket_name, kind)?;
                self.push_item(id, cur, 0)?;
                first.get_or_insert(id);
                cur = id;
                hung = true;
                continue;
            };
            let found = self.bucket(id).map(|b| i32::from(b.kind));
            if found != Some(kind) {
                return Err(CrushError::Invalid(format!("'{bucket_name}' is not of type '{ty}'")));
            }
            if self.subtree_contains(id, cur) {
                return Err(CrushError::Invalid(format!("'{name}' already is below '{bucket_name}'")));
            }
            if self.subtree_contains(cur, id) {
                return Err(CrushError::Loop(name.to_owned()));
            }
            self.push_item(id, cur, 0)?;
            first.get_or_insert(id);
            hung = true;
            break;
        }
        let Some(parent) = first.filter(|_| hung) else {
            return Err(CrushError::Invalid(format!("the location of '{name}' names no bucket")));
        };
        if item >= self.max_devices {
            self.max_devices = item.saturating_add(1);
        }
        self.set_item_weight_in(parent, item, weight)?;
        // New buckets above have weight 0 up to here.
        self.propagate(parent)?;
        self.rebuild_shadows()
    }

    /// `osd crush create-or-move`: adds a device, or moves an existing one with its weight. Returns true if the map
    /// changed. Errors are those of [`CrushMap::insert_item`].
    pub fn create_or_move_item(
        &mut self,
        item: i32,
        weight: u32,
        name: &str,
        loc: &Location,
    ) -> Result<bool, CrushError> {
        Self::check_name(name)?;
        if self.is_at(item, loc) {
            return Ok(false);
        }
        let weight = match self.parent_of(item) {
            Some(p) => {
                let w = self.weight_in(p, item).unwrap_or(weight);
                self.unlink_everywhere(item)?;
                w
            }
            None => weight,
        };
        self.insert_item(item, weight, name, loc)?;
        Ok(true)
    }

    /// `osd crush set`/`add`: puts an item with a weight at a location, moving it if needed. Returns true if the map
    /// changed. Errors are those of [`CrushMap::insert_item`].
    pub fn update_item(&mut self, item: i32, weight: u32, name: &str, loc: &Location) -> Result<bool, CrushError> {
        Self::check_name(name)?;
        if !self.is_at(item, loc) {
            if self.parent_of(item).is_some() {
                self.unlink_everywhere(item)?;
            }
            self.insert_item(item, weight, name, loc)?;
            return Ok(true);
        }
        let mut changed = false;
        for p in self.holders(item) {
            if !self.is_shadow(p) && self.weight_in(p, item) != Some(weight) {
                self.set_item_weight_in(p, item, weight)?;
                changed = true;
            }
        }
        if self.name_of(item) != Some(name) {
            self.item_names.insert(item, name.to_owned());
            changed = true;
        }
        if changed {
            self.rebuild_shadows()?;
        }
        Ok(changed)
    }

    /// `osd crush move`: moves a bucket or device to a location, keeping its weight. Error: `NoSuchItem`, or an error
    /// of [`CrushMap::insert_item`].
    pub fn move_item(&mut self, id: i32, loc: &Location) -> Result<(), CrushError> {
        let name = self.name_of(id).ok_or_else(|| CrushError::NoSuchItem(id.to_string()))?.to_owned();
        let weight = self.item_weight(id);
        self.unlink_everywhere(id)?;
        self.insert_item(id, weight, &name, loc)
    }

    /// `osd crush link`: adds a bucket to a further parent. Error: `NoSuchItem`, or an error of
    /// [`CrushMap::insert_item`].
    pub fn link_bucket(&mut self, id: i32, loc: &Location) -> Result<(), CrushError> {
        let name = self.name_of(id).ok_or_else(|| CrushError::NoSuchItem(id.to_string()))?.to_owned();
        let weight = self.item_weight(id);
        self.insert_item(id, weight, &name, loc)
    }

    /// Weight of an item in its first parent, or of a bucket without a parent.
    #[must_use]
    pub fn item_weight(&self, id: i32) -> u32 {
        if let Some(b) = self.bucket(id) {
            return b.weight;
        }
        self.parent_of(id).and_then(|p| self.weight_in(p, id)).unwrap_or(0)
    }

    /// Weight of an item in one bucket.
    #[must_use]
    pub fn weight_in(&self, bucket: i32, item: i32) -> Option<u32> {
        let b = self.bucket(bucket)?;
        Some(b.item_weight(b.position(item)?))
    }

    /// Removes an item from every bucket that holds it, except for shadow buckets.
    fn unlink_everywhere(&mut self, item: i32) -> Result<(), CrushError> {
        for p in self.holders(item) {
            if !self.is_shadow(p) {
                self.drop_item(p, item)?;
            }
        }
        Ok(())
    }

    /// True if a rule starts at the bucket or at one of its shadows.
    #[must_use]
    pub fn is_in_use(&self, id: i32) -> bool {
        let shadows: Vec<i32> = self.class_bucket.get(&id).map(|m| m.values().copied().collect()).unwrap_or_default();
        self.rules.iter().flatten().any(|r| r.takes().any(|t| t == id || shadows.contains(&t)))
    }

    fn check_removable(&self, item: i32) -> Result<(), CrushError> {
        let name = || self.name_of(item).unwrap_or_default().to_owned();
        if item >= 0 {
            return Ok(());
        }
        let b = self.bucket(item).ok_or_else(|| CrushError::NoSuchItem(item.to_string()))?;
        if !b.items.is_empty() {
            return Err(CrushError::NotEmpty(name()));
        }
        if self.is_in_use(item) {
            return Err(CrushError::Busy(format!("bucket '{}' is used by a rule", name())));
        }
        Ok(())
    }

    /// `osd crush rm`: removes an item from everywhere. Error: `NoSuchItem`; `NotEmpty` or `Busy` for a bucket with
    /// items or one that a rule uses.
    pub fn remove_item(&mut self, item: i32) -> Result<(), CrushError> {
        self.check_removable(item)?;
        if item >= 0 && self.parent_of(item).is_none() && !self.item_names.contains_key(&item) {
            return Err(CrushError::NoSuchItem(item.to_string()));
        }
        self.unlink_everywhere(item)?;
        self.forget(item)
    }

    /// `osd crush rm ITEM ANCESTOR` / `osd crush unlink ITEM [ANCESTOR]`: removes an item from `ancestor` and the
    /// buckets below it. With its last parent the item itself is removed, unless `unlink_only`. Error: `NoSuchItem`
    /// if the item is not there; unless `unlink_only`, `NotEmpty` or `Busy` for a bucket with items or one that a
    /// rule uses.
    pub fn remove_item_under(&mut self, item: i32, ancestor: i32, unlink_only: bool) -> Result<(), CrushError> {
        if !unlink_only {
            self.check_removable(item)?;
        }
        let mut found = false;
        for p in self.holders(item) {
            if !self.is_shadow(p) && self.subtree_contains(ancestor, p) {
                self.drop_item(p, item)?;
                found = true;
            }
        }
        if !found {
            return Err(CrushError::NoSuchItem(item.to_string()));
        }
        if !unlink_only && self.holders(item).iter().all(|p| self.is_shadow(*p)) {
            return self.forget(item);
        }
        self.rebuild_shadows()
    }

    /// `osd crush unlink` without an ancestor: removes an item from all its parents. Error: `NoSuchItem` if it has
    /// none.
    pub fn unlink_item(&mut self, item: i32) -> Result<(), CrushError> {
        if self.parent_of(item).is_none() {
            return Err(CrushError::NoSuchItem(item.to_string()));
        }
        self.unlink_everywhere(item)?;
        self.rebuild_shadows()
    }

    /// Removes the names, class and bucket of an item without a parent.
    fn forget(&mut self, item: i32) -> Result<(), CrushError> {
        if item < 0 {
            self.drop_bucket(item);
        }
        self.item_names.remove(&item);
        self.class_map.remove(&item);
        self.rebuild_shadows()
    }

    /// Empties a slot.
    pub(super) fn drop_bucket(&mut self, id: i32) {
        if let Some(slot) = self.buckets.get_mut(slot_of(id)) {
            *slot = None;
        }
        for set in self.choose_args.values_mut() {
            set.remove(&slot_of(id));
        }
    }

    /// `osd crush rename-bucket`. Error: `Invalid` for a bad name or a device, `NoSuchItem`, `Exists`.
    pub fn rename_bucket(&mut self, from: &str, to: &str) -> Result<(), CrushError> {
        Self::check_name(to)?;
        let id = self.id_of(from).ok_or_else(|| CrushError::NoSuchItem(from.to_owned()))?;
        if id >= 0 {
            return Err(CrushError::Invalid(format!("'{from}' is not a bucket")));
        }
        if self.id_of(to).is_some() {
            return Err(CrushError::Exists(format!("name '{to}'")));
        }
        self.item_names.insert(id, to.to_owned());
        self.rebuild_shadows()
    }

    /// `osd crush swap-bucket`: exchanges the contents and the names of two buckets. Error: `NoSuchItem`, or
    /// `Invalid` if one bucket is below the other.
    pub fn swap_buckets(&mut self, a: i32, b: i32) -> Result<(), CrushError> {
        let missing = |id: i32| CrushError::NoSuchItem(id.to_string());
        let (ba, bb) = (self.bucket(a).ok_or_else(|| missing(a))?, self.bucket(b).ok_or_else(|| missing(b))?);
        if self.subtree_contains(a, b) || self.subtree_contains(b, a) {
            return Err(CrushError::Invalid("one bucket is below the other".to_owned()));
        }
        let (ia, wa, ib, wb) = (ba.items.clone(), ba.weights(), bb.items.clone(), bb.weights());
        self.set_bucket_items(a, ib, wb)?;
        self.propagate(a)?;
        self.set_bucket_items(b, ia, wa)?;
        self.propagate(b)?;
        let (na, nb) = (self.item_names.get(&a).cloned(), self.item_names.get(&b).cloned());
        for (id, name) in [(a, nb), (b, na)] {
            if let Some(n) = name {
                self.item_names.insert(id, n);
            }
        }
        self.rebuild_shadows()
    }
}
