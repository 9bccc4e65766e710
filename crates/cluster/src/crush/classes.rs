//! Device classes and their shadow trees.
//!
//! For every class and every real tree there is a copy of the tree that holds only devices of the class; its buckets
//! are named `bucket~class`. Rules of a class start there. Shadow ids stay the same when trees are rebuilt, as rules
//! and cached placements refer to them.

use super::bucket::Bucket;
use super::{ChooseArg, CrushError, CrushMap, MAX_DEPTH, op, slot_of};
use std::collections::{BTreeMap, BTreeSet};

impl CrushMap {
    /// Id of the class with this name, which is created if needed.
    pub fn get_or_create_class(&mut self, name: &str) -> i32 {
        if let Some(id) = self.class_id(name) {
            return id;
        }
        let id = self.class_names.keys().next_back().map_or(0, |last| last.saturating_add(1));
        self.class_names.insert(id, name.to_owned());
        id
    }

    /// `osd crush set-device-class`. Returns true if the class changed. Fails if the device has another class,
    /// which must be removed first.
    pub fn set_device_class(&mut self, device: i32, class: &str) -> Result<bool, CrushError> {
        if device < 0 {
            return Err(CrushError::Invalid(format!("item {device} is not a device")));
        }
        if class.is_empty() || !Self::is_valid_name(class) {
            return Err(CrushError::Invalid(format!("invalid device class '{class}'")));
        }
        match self.class_of(device) {
            Some(c) if c == class => return Ok(false),
            Some(c) => {
                return Err(CrushError::Busy(format!(
                    "osd.{device} has already bound to class '{c}', can not reset class to '{class}'; use 'ceph osd \
                     crush rm-device-class <id>' to remove old class first"
                )));
            }
            None => {}
        }
        // A booting OSD sets its class before its place.
        self.max_devices = self.max_devices.max(device.saturating_add(1));
        self.item_names.entry(device).or_insert_with(|| format!("osd.{device}"));
        let id = self.get_or_create_class(class);
        self.class_map.insert(device, id);
        self.rebuild_shadows()?;
        Ok(true)
    }

    /// `osd crush rm-device-class`. Returns true if the device had a class. Error: the shadow trees cannot be
    /// rebuilt.
    pub fn remove_device_class(&mut self, device: i32) -> Result<bool, CrushError> {
        let had = self.class_map.remove(&device).is_some();
        if had {
            self.rebuild_shadows()?;
        }
        Ok(had)
    }

    /// `osd crush class create`: returns the id of the new class. Error: `Exists`.
    pub fn create_class(&mut self, name: &str) -> Result<i32, CrushError> {
        if self.class_id(name).is_some() {
            return Err(CrushError::Exists(format!("class '{name}'")));
        }
        Ok(self.get_or_create_class(name))
    }

    /// Rules that start in a shadow tree of a class.
    #[must_use]
    pub fn rules_of_class(&self, class: i32) -> Vec<i32> {
        let shadows: BTreeSet<i32> = self.class_bucket.values().filter_map(|m| m.get(&class).copied()).collect();
        (0i32..)
            .zip(&self.rules)
            .filter(|(_, r)| {
                r.as_ref().is_some_and(|r| r.steps.iter().any(|s| s.op == op::TAKE && shadows.contains(&s.arg1)))
            })
            .map(|(i, _)| i)
            .collect()
    }

    /// `osd crush class rm`: takes the class from its devices and removes it. Refused while a rule uses it.
    pub fn remove_class(&mut self, name: &str) -> Result<(), CrushError> {
        let id = self.class_id(name).ok_or_else(|| CrushError::NoSuchClass(name.to_owned()))?;
        if !self.rules_of_class(id).is_empty() {
            return Err(CrushError::Busy(format!("class '{name}' is used by a rule")));
        }
        self.class_map.retain(|item, c| *item < 0 || *c != id);
        self.rebuild_shadows()?;
        self.class_names.remove(&id);
        Ok(())
    }

    /// `osd crush class rename`. Error: `NoSuchClass`, or `Exists` if the new name is in use.
    pub fn rename_class(&mut self, from: &str, to: &str) -> Result<(), CrushError> {
        let id = self.class_id(from).ok_or_else(|| CrushError::NoSuchClass(from.to_owned()))?;
        if self.class_id(to).is_some() {
            return Err(CrushError::Exists(format!("class '{to}'")));
        }
        self.class_names.insert(id, to.to_owned());
        self.rebuild_shadows()
    }

    /// Devices of a class, ascending.
    #[must_use]
    pub fn devices_of_class(&self, class: i32) -> Vec<i32> {
        self.class_map.iter().filter(|(d, c)| **d >= 0 && **c == class).map(|(d, _)| *d).collect()
    }

    /// Rebuilds all shadow trees, with the ids they had. Error: no bucket id is free, or a sum of weights exceeds 32
    /// bits.
    pub fn rebuild_shadows(&mut self) -> Result<(), CrushError> {
        if self.class_names.is_empty() && self.class_bucket.is_empty() {
            return Ok(());
        }
        let dead: Vec<i32> = self
            .class_names
            .keys()
            .copied()
            .filter(|c| self.devices_of_class(*c).is_empty() && self.rules_of_class(*c).is_empty())
            .collect();
        for c in dead {
            self.class_names.remove(&c);
        }
        let old = std::mem::take(&mut self.class_bucket);
        let shadows: Vec<i32> = self.iter_buckets().map(|b| b.id).filter(|id| self.is_shadow(*id)).collect();
        for id in shadows {
            self.drop_bucket(id);
            self.item_names.remove(&id);
            self.class_map.remove(&id);
        }
        let mut used: BTreeSet<i32> = old.values().flat_map(|m| m.values().copied()).collect();
        let classes: Vec<i32> = self.class_names.keys().copied().collect();
        for root in self.roots() {
            for class in &classes {
                self.clone_for_class(root, *class, &old, &mut used, 0)?;
            }
        }
        Ok(())
    }

    fn clone_for_class(
        &mut self,
        id: i32,
        class: i32,
        old: &BTreeMap<i32, BTreeMap<i32, i32>>,
        used: &mut BTreeSet<i32>,
        depth: usize,
    ) -> Result<i32, CrushError> {
        if let Some(done) = self.class_bucket.get(&id).and_then(|m| m.get(&class)) {
            return Ok(*done);
        }
        if depth > MAX_DEPTH {
            return Err(CrushError::Loop(self.name_of(id).unwrap_or_default().to_owned()));
        }
        let missing = || CrushError::NoSuchItem(id.to_string());
        let original = self.bucket(id).cloned().ok_or_else(missing)?;
        let name = format!(
            "{}~{}",
            self.name_of(id).ok_or_else(missing)?,
            self.class_names.get(&class).map(String::as_str).unwrap_or_default()
        );
        // Items of the copy, their weights, and their positions in the original.
        let (mut items, mut weights, mut from) = (Vec::new(), Vec::new(), Vec::new());
        for (pos, item) in original.items.iter().enumerate() {
            if *item >= 0 {
                if self.class_map.get(item) != Some(&class) {
                    continue;
                }
                items.push(*item);
                weights.push(original.item_weight(pos));
            } else {
                let child = self.clone_for_class(*item, class, old, used, depth + 1)?;
                items.push(child);
                weights.push(self.bucket(child).map_or(0, |b| b.weight));
            }
            from.push(pos);
        }
        let new_id = match old.get(&id).and_then(|m| m.get(&class)) {
            Some(n) => *n,
            None => {
                let mut n = -1;
                while self.bucket(n).is_some() || used.contains(&n) {
                    n -= 1;
                }
                n
            }
        };
        used.insert(new_id);
        let mut copy = Bucket::new(new_id, original.kind, original.alg());
        copy.hash = original.hash;
        copy.set_items(items.clone(), weights, self.tunables.straw_calc_version)?;
        self.place_bucket(copy)?;
        self.item_names.insert(new_id, name);
        self.class_map.insert(new_id, class);
        self.class_bucket.entry(id).or_default().insert(class, new_id);
        self.clone_weight_sets(id, new_id, &items, &from);
        Ok(new_id)
    }

    /// Weight sets of a shadow bucket: devices keep the original's weights, buckets get their own sums.
    fn clone_weight_sets(&mut self, original: i32, copy: i32, items: &[i32], from: &[usize]) {
        for set in self.choose_args.values_mut() {
            let Some(o) = set.get(&slot_of(original)) else { continue };
            let mut n = ChooseArg::default();
            for (s, ws) in o.weight_sets.iter().enumerate() {
                let weights = items.iter().zip(from).map(|(item, pos)| {
                    if *item >= 0 {
                        return ws.get(*pos).copied().unwrap_or(0);
                    }
                    let child = set.get(&slot_of(*item)).and_then(|c| c.weight_sets.get(s));
                    child.map_or(0, |c| c.iter().fold(0u32, |a, w| a.saturating_add(*w)))
                });
                n.weight_sets.push(weights.collect());
            }
            set.insert(slot_of(copy), n);
        }
    }
}
