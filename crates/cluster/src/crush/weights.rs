//! Weights: of items, of whole trees, and of weight sets.

use super::{CHOOSE_ARGS_COMPAT, ChooseArg, CrushError, CrushMap, MAX_DEPTH, WEIGHT_ONE, op, slot_of};
use std::collections::{BTreeMap, BTreeSet};

/// Largest weight of one item, 10 million.
const WEIGHT_MAX: f64 = 10_000_000.0;

/// Converts a weight from a command to 16.16 fixed point. Error: `Invalid` for a negative weight or one above 10
/// million or what 32 bits hold.
pub fn weight_from_float(w: f64) -> Result<u32, CrushError> {
    if !w.is_finite() || w < 0.0 {
        return Err(CrushError::Invalid("crush weight must be non-negative".to_owned()));
    }
    if w > WEIGHT_MAX || w * f64::from(WEIGHT_ONE) > f64::from(u32::MAX) {
        return Err(CrushError::Invalid("crush weight is too large".to_owned()));
    }
    // The conversion goes through f32 as in every Ceph tool, so that the last bits agree.
    Ok((w as f32 * WEIGHT_ONE as f32) as u32)
}

impl CrushMap {
    /// Sets the weight of an item in one bucket and in its weight sets, and adjusts everything above.
    pub(super) fn set_item_weight_in(&mut self, bucket: i32, item: i32, weight: u32) -> Result<(), CrushError> {
        let b = self.bucket(bucket).ok_or_else(|| CrushError::NoSuchItem(bucket.to_string()))?;
        let pos = b.position(item).ok_or_else(|| CrushError::NoSuchItem(item.to_string()))?;
        let uniform = b.alg() == super::BucketAlg::Uniform;
        let (items, mut weights) = (b.items.clone(), b.weights());
        for (i, w) in weights.iter_mut().enumerate() {
            // All items of a uniform bucket weigh the same.
            if i == pos || uniform {
                *w = weight;
            }
        }
        self.set_bucket_items(bucket, items, weights)?;
        for set in self.choose_args.values_mut() {
            let Some(arg) = set.get_mut(&slot_of(bucket)) else { continue };
            for w in arg.weight_sets.iter_mut().filter_map(|ws| ws.get_mut(pos)) {
                *w = weight;
            }
        }
        self.propagate(bucket)
    }

    /// Propagates the weight of a bucket, and its sums in the weight sets, to every bucket above it.
    pub(super) fn propagate(&mut self, bucket: i32) -> Result<(), CrushError> {
        let mut todo = vec![(bucket, 0usize)];
        while let Some((id, depth)) = todo.pop() {
            let Some(weight) = self.bucket(id).map(|b| b.weight) else { continue };
            if depth > MAX_DEPTH {
                return Err(CrushError::Loop(self.name_of(id).unwrap_or_default().to_owned()));
            }
            for p in self.holders(id) {
                let Some(b) = self.bucket(p) else { continue };
                let Some(pos) = b.position(id) else { continue };
                let (items, mut weights) = (b.items.clone(), b.weights());
                if let Some(w) = weights.get_mut(pos) {
                    *w = weight;
                }
                self.set_bucket_items(p, items, weights)?;
                for set in self.choose_args.values_mut() {
                    let Some(sums) = set.get(&slot_of(id)).map(sums_of) else { continue };
                    let Some(arg) = set.get_mut(&slot_of(p)) else { continue };
                    for (ws, sum) in arg.weight_sets.iter_mut().zip(sums) {
                        if let Some(w) = ws.get_mut(pos) {
                            *w = sum;
                        }
                    }
                }
                todo.push((p, depth + 1));
            }
        }
        Ok(())
    }

    /// `osd crush reweight`: sets the weight of an item in every bucket that holds it. Error: `NoSuchItem` if none
    /// does.
    pub fn reweight_item(&mut self, item: i32, weight: u32) -> Result<(), CrushError> {
        let real: Vec<i32> = self.holders(item).into_iter().filter(|p| !self.is_shadow(*p)).collect();
        if real.is_empty() {
            return Err(CrushError::NoSuchItem(item.to_string()));
        }
        for p in real {
            self.set_item_weight_in(p, item, weight)?;
        }
        self.rebuild_shadows()
    }

    /// `osd crush reweight-subtree`: sets the weight of every device below a bucket. Returns the number of devices.
    /// Error: `NoSuchItem` if there is no such bucket.
    pub fn reweight_subtree(&mut self, root: i32, weight: u32) -> Result<usize, CrushError> {
        if self.bucket(root).is_none() {
            return Err(CrushError::NoSuchItem(root.to_string()));
        }
        let below: BTreeSet<i32> = self.leaves(root).into_iter().collect();
        for d in &below {
            for p in self.holders(*d) {
                if !self.is_shadow(p) && self.subtree_contains(root, p) {
                    self.set_item_weight_in(p, *d, weight)?;
                }
            }
        }
        self.rebuild_shadows()?;
        Ok(below.len())
    }

    /// `osd crush reweight-all`: sets every bucket's weight to the sum of its items' weights. Error: `Invalid` if a
    /// sum exceeds 32 bits.
    pub fn reweight_all(&mut self) -> Result<(), CrushError> {
        for root in self.roots() {
            self.resum(root, &mut BTreeSet::new(), 0)?;
        }
        self.rebuild_shadows()
    }

    fn resum(&mut self, id: i32, done: &mut BTreeSet<i32>, depth: usize) -> Result<(), CrushError> {
        if depth > MAX_DEPTH || !done.insert(id) {
            return Ok(());
        }
        let Some(b) = self.bucket(id).cloned() else { return Ok(()) };
        let mut weights = b.weights();
        for (i, w) in b.items.iter().zip(weights.iter_mut()) {
            if *i < 0 {
                self.resum(*i, done, depth + 1)?;
                *w = self.bucket(*i).map_or(0, |b| b.weight);
            }
        }
        self.set_bucket_items(id, b.items.clone(), weights)
    }

    /// Share of each OSD in the placements of a rule, from which a pool's available space is computed. Sums to
    /// 1 per `take`.
    #[must_use]
    pub fn rule_osd_shares(&self, rule: i32) -> BTreeMap<i32, f32> {
        let mut out = BTreeMap::new();
        let Some(r) = self.rule(rule) else { return out };
        for s in r.steps.iter().filter(|s| s.op == op::TAKE) {
            let mut one: BTreeMap<i32, f32> = BTreeMap::new();
            if s.arg1 >= 0 {
                one.insert(s.arg1, 1.0);
            } else {
                self.walk(s.arg1, &mut |id, _| {
                    if let Some(b) = self.bucket(id) {
                        for (i, item) in b.items.iter().enumerate().filter(|(_, item)| **item >= 0) {
                            one.insert(*item, b.item_weight(i) as f32 / WEIGHT_ONE as f32);
                        }
                    }
                    true
                });
            }
            let sum: f32 = one.values().sum();
            if sum > 0.0 {
                for (osd, w) in one {
                    *out.entry(osd).or_insert(0.0) += w / sum;
                }
            }
        }
        out
    }

    /// `osd crush weight-set create[-compat]`: adds a weight set with the real weights. Returns false if it exists.
    /// Error: `Invalid` for zero positions.
    pub fn create_weight_set(&mut self, key: i64, positions: usize) -> Result<bool, CrushError> {
        if positions == 0 {
            return Err(CrushError::Invalid("a weight set needs at least one position".to_owned()));
        }
        if self.choose_args.contains_key(&key) {
            return Ok(false);
        }
        let set = self
            .buckets
            .iter()
            .enumerate()
            .filter_map(|(slot, b)| b.as_ref().map(|b| (slot, b)))
            .map(|(slot, b)| (slot, ChooseArg { weight_sets: vec![b.weights(); positions], ids: Vec::new() }))
            .collect();
        self.choose_args.insert(key, set);
        Ok(true)
    }

    /// True if old clients can't get the weight sets as plain weights: there is another one than the compat
    /// set, more than one position, or replaced ids.
    #[must_use]
    pub fn has_incompat_choose_args(&self) -> bool {
        self.choose_args.iter().any(|(key, set)| {
            *key != CHOOSE_ARGS_COMPAT || set.values().any(|a| a.weight_sets.len() > 1 || !a.ids.is_empty())
        })
    }

    /// `osd crush weight-set rm[-compat]`. Returns false if there is none.
    pub fn remove_weight_set(&mut self, key: i64) -> bool {
        self.choose_args.remove(&key).is_some()
    }

    /// `osd crush weight-set reweight[-compat]`: sets an item's weights in a weight set, one per position. Error:
    /// `NoSuchItem` if item or weight set do not exist, `Invalid` for a wrong number of weights.
    pub fn reweight_in_set(&mut self, key: i64, item: i32, weights: &[u32]) -> Result<(), CrushError> {
        let holders = self.holders(item);
        let places: Vec<(i32, usize)> = holders
            .iter()
            .filter_map(|p| self.bucket(*p).and_then(|b| b.position(item)).map(|pos| (*p, pos)))
            .collect();
        if places.is_empty() {
            return Err(CrushError::NoSuchItem(item.to_string()));
        }
        let set = self.choose_args.get_mut(&key).ok_or_else(|| {
            let what = if key == CHOOSE_ARGS_COMPAT { "compat".to_owned() } else { format!("pool {key}") };
            CrushError::NoSuchItem(format!("{what} weight-set"))
        })?;
        for (p, pos) in &places {
            let Some(arg) = set.get_mut(&slot_of(*p)) else { continue };
            if arg.weight_sets.len() != weights.len() {
                return Err(CrushError::Invalid(format!(
                    "must specify exactly {} weight values",
                    arg.weight_sets.len()
                )));
            }
            for (ws, w) in arg.weight_sets.iter_mut().zip(weights) {
                if let Some(x) = ws.get_mut(*pos) {
                    *x = *w;
                }
            }
        }
        for (p, _) in places {
            self.propagate(p)?;
        }
        self.rebuild_shadows()
    }
}

/// Sum of a bucket's weights per position.
fn sums_of(arg: &ChooseArg) -> Vec<u32> {
    arg.weight_sets.iter().map(|ws| ws.iter().fold(0u32, |a, w| a.saturating_add(*w))).collect()
}
