//! The placement function: from a rule and an input number to a list of devices, with exactly Ceph's results.
//!
//! Hot path: called once per PG and map, so a million times for a large map. It allocates nothing once
//! [`Scratch`] has grown. A hostile map (loops, huge retry counts) ends after [`BUDGET`] draws with fewer
//! devices.

use super::bucket::{Bucket, BucketData};
use super::hash::{LANES, hash32_2, hash32_3, hash32_3_lanes, hash32_4};
use super::ln::LN;
use super::rules::{Rule, op};
use super::{ChooseArg, ChooseArgMap, CrushMap, ITEM_NONE, ITEM_UNDEF, MAX_DEPTH, TYPE_OSD, WEIGHT_ONE, slot_of};

/// Most items that one call may examine. Sound maps need some hundreds. A flat bucket of 10,000 items with 50
/// tries needs half a million per device.
const BUDGET: usize = 1 << 24;

/// Working memory of [`do_rule`]; keep one per thread.
#[derive(Debug, Default)]
pub struct Scratch {
    working: Vec<i32>,
    out: Vec<i32>,
    leaves: Vec<i32>,
    perm: Perm,
}

/// The permutation of one bucket, computed as far as needed.
#[derive(Debug, Default)]
struct Perm {
    /// Bucket id (negative), 0 for none.
    bucket: i32,
    x: u32,
    /// Number of computed positions.
    n: usize,
    order: Vec<u32>,
}

struct Ctx<'a> {
    map: &'a CrushMap,
    weights: &'a [u32],
    args: Option<&'a ChooseArgMap>,
    x: u32,
    budget: usize,
}

/// Retry settings of one choose step.
#[derive(Clone, Copy)]
struct Tries {
    total: u32,
    leaf: u32,
    local: u32,
    fallback: u32,
    vary_r: u32,
    stable: bool,
}

/// Runs rule `rule` for input `x` and appends up to `max` devices to `out` (holes are [`ITEM_NONE`]).
///
/// `weights` are the OSDs' own weights (0x10000 = in); a device past its end is out. `args` is a weight set.
#[allow(clippy::too_many_arguments)] // Hot: bundling them would only move the list elsewhere.
pub fn do_rule(
    map: &CrushMap,
    rule: &Rule,
    x: u32,
    max: usize,
    weights: &[u32],
    args: Option<&ChooseArgMap>,
    scratch: &mut Scratch,
    out: &mut impl Extend<i32>,
) {
    let Scratch { working: w, out: o, leaves: c, perm } = scratch;
    perm.bucket = 0;
    for v in [&mut *w, &mut *o, &mut *c] {
        v.clear();
        v.resize(max, ITEM_NONE);
    }
    let mut cx = Ctx { map, weights, args, x, budget: BUDGET };
    let t = &map.tunables;
    let mut choose_tries = t.choose_total_tries.saturating_add(1);
    let mut leaf_tries = 0;
    let mut local = t.choose_local_tries;
    let mut fallback = t.choose_local_fallback_tries;
    let mut vary_r = u32::from(t.chooseleaf_vary_r);
    let mut stable = t.chooseleaf_stable != 0;
    let (mut wsize, mut emitted) = (0usize, 0usize);
    for s in &rule.steps {
        let set = u32::try_from(s.arg1).ok();
        match s.op {
            op::TAKE => {
                let device = (0..map.max_devices).contains(&s.arg1);
                if (device || map.bucket(s.arg1).is_some())
                    && let Some(first) = w.first_mut()
                {
                    *first = s.arg1;
                    wsize = 1;
                }
            }
            op::SET_CHOOSE_TRIES => choose_tries = set.filter(|n| *n > 0).unwrap_or(choose_tries),
            op::SET_CHOOSELEAF_TRIES => leaf_tries = set.filter(|n| *n > 0).unwrap_or(leaf_tries),
            op::SET_CHOOSE_LOCAL_TRIES => local = set.unwrap_or(local),
            op::SET_CHOOSE_LOCAL_FALLBACK_TRIES => fallback = set.unwrap_or(fallback),
            op::SET_CHOOSELEAF_VARY_R => vary_r = set.unwrap_or(vary_r),
            op::SET_CHOOSELEAF_STABLE => stable = set.map_or(stable, |n| n != 0),
            op::CHOOSE_FIRSTN | op::CHOOSELEAF_FIRSTN | op::CHOOSE_INDEP | op::CHOOSELEAF_INDEP if wsize > 0 => {
                let firstn = matches!(s.op, op::CHOOSE_FIRSTN | op::CHOOSELEAF_FIRSTN);
                let to_leaf = matches!(s.op, op::CHOOSELEAF_FIRSTN | op::CHOOSELEAF_INDEP);
                let mut osize = 0;
                for from in w.iter().take(wsize) {
                    let numrep = if s.arg1 > 0 { i64::from(s.arg1) } else { i64::from(s.arg1) + max as i64 };
                    if numrep <= 0 {
                        continue;
                    }
                    let numrep = numrep as usize;
                    let Some(bucket) = map.bucket(*from) else { continue };
                    let (Some(o), Some(c)) = (o.get_mut(osize..), c.get_mut(osize..)) else { continue };
                    if firstn {
                        let leaf = match leaf_tries {
                            0 if t.chooseleaf_descend_once != 0 => 1,
                            0 => choose_tries,
                            n => n,
                        };
                        let tries = Tries { total: choose_tries, leaf, local, fallback, vary_r, stable };
                        let count = max - osize;
                        let leaves = if to_leaf { Some(c) } else { None };
                        osize += cx.firstn(bucket, numrep, s.arg2, o, 0, count, tries, leaves, 0, perm);
                    } else {
                        let n = numrep.min(max - osize);
                        let leaf = if leaf_tries > 0 { leaf_tries } else { 1 };
                        let leaves = if to_leaf { Some(c) } else { None };
                        cx.indep(bucket, n, numrep, s.arg2, o, 0, (choose_tries, leaf), leaves, 0, perm);
                        osize += n;
                    }
                }
                if to_leaf {
                    for (o, c) in o.iter_mut().zip(c.iter()).take(osize) {
                        *o = *c;
                    }
                }
                std::mem::swap(w, o);
                wsize = osize;
            }
            op::EMIT => {
                let n = wsize.min(max - emitted);
                out.extend(w.iter().take(n).copied());
                emitted += n;
                wsize = 0;
            }
            _ => {}
        }
    }
}

impl Ctx<'_> {
    /// True if the item is rejected by its OSD's weight.
    fn is_out(&self, item: i32) -> bool {
        let w = usize::try_from(item).ok().and_then(|i| self.weights.get(i)).copied().unwrap_or(0);
        if w >= WEIGHT_ONE {
            return false;
        }
        w == 0 || hash32_2(self.x, item as u32) & 0xffff >= w
    }

    fn spend(&mut self, b: &Bucket) -> bool {
        self.budget = self.budget.saturating_sub(1 + b.items.len());
        self.budget > 0
    }

    fn choose(&self, b: &Bucket, r: u32, position: usize, perm: &mut Perm) -> i32 {
        let x = self.x;
        match &b.data {
            BucketData::Uniform { .. } => perm_choose(b, x, r, perm),
            BucketData::List { item_weights, sum_weights } => {
                for ((item, w), sum) in b.items.iter().zip(item_weights).zip(sum_weights).rev() {
                    let h = u64::from(hash32_4(x, *item as u32, r, b.id as u32) & 0xffff);
                    if (h * u64::from(*sum)) >> 16 < u64::from(*w) {
                        return *item;
                    }
                }
                b.items.first().copied().unwrap_or(ITEM_NONE)
            }
            BucketData::Tree { node_weights } => {
                let mut n = node_weights.len() >> 1;
                while n & 1 == 0 && n > 0 {
                    let w = node_weights.get(n).copied().unwrap_or(0);
                    let t = (u64::from(hash32_4(x, n as u32, r, b.id as u32)) * u64::from(w)) >> 32;
                    let half = 1usize << (n.trailing_zeros() - 1);
                    let left = n - half;
                    let lw = node_weights.get(left).copied().unwrap_or(0);
                    n = if t < u64::from(lw) { left } else { n + half };
                }
                b.items.get(n >> 1).copied().unwrap_or(ITEM_NONE)
            }
            BucketData::Straw { straws, .. } => {
                let (mut best, mut high) = (ITEM_NONE, None);
                for (item, s) in b.items.iter().zip(straws) {
                    let draw = u64::from(hash32_3(x, *item as u32, r) & 0xffff) * u64::from(*s);
                    if high.is_none_or(|h| draw > h) {
                        (best, high) = (*item, Some(draw));
                    }
                }
                best
            }
            BucketData::Straw2 { item_weights } => {
                let arg = self.args.and_then(|a| a.get(&slot_of(b.id)));
                let weights = arg.and_then(|a| weight_set(a, position)).unwrap_or(item_weights);
                match arg {
                    Some(a) if !a.ids.is_empty() => straw2(x, r, &a.ids, weights, &b.items),
                    _ => straw2(x, r, &b.items, weights, &b.items),
                }
            }
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn firstn(
        &mut self,
        bucket: &Bucket,
        numrep: usize,
        want: i32,
        out: &mut [i32],
        mut outpos: usize,
        mut count: usize,
        tries: Tries,
        mut leaves: Option<&mut [i32]>,
        parent_r: u32,
        perm: &mut Perm,
    ) -> usize {
        let map = self.map;
        let first = if tries.stable { 0 } else { outpos };
        for rep in first..numrep {
            // A rule of a damaged map may request billions of replicas.
            if count == 0 || self.budget == 0 {
                break;
            }
            let mut total = 0u32;
            // Each pass descends from the top.
            let picked = 'descent: loop {
                let (mut at, mut local, mut depth) = (bucket, 0u32, 0usize);
                // Each pass picks in one bucket.
                loop {
                    if !self.spend(at) {
                        break 'descent None;
                    }
                    let r = (rep as u32).wrapping_add(parent_r).wrapping_add(total);
                    let (mut collide, mut reject) = (false, false);
                    let mut item = ITEM_NONE;
                    if at.items.is_empty() {
                        reject = true;
                    } else {
                        let size = at.items.len() as u32;
                        item = if tries.fallback > 0 && local >= size >> 1 && local > tries.fallback {
                            perm_choose(at, self.x, r, perm)
                        } else {
                            self.choose(at, r, outpos, perm)
                        };
                        if item >= map.max_devices {
                            break 'descent None;
                        }
                        let ty = if item < 0 { map.bucket(item).map(|b| i32::from(b.kind)) } else { Some(TYPE_OSD) };
                        let Some(ty) = ty else { break 'descent None };
                        if ty != want {
                            match map.bucket(item) {
                                Some(b) if depth < MAX_DEPTH => {
                                    at = b;
                                    depth += 1;
                                    continue;
                                }
                                _ => break 'descent None,
                            }
                        }
                        collide = out.iter().take(outpos).any(|o| *o == item);
                        if !collide && let Some(leaves) = leaves.as_deref_mut() {
                            if item < 0 {
                                let sub_r =
                                    if tries.vary_r > 0 { r.checked_shr(tries.vary_r - 1).unwrap_or(0) } else { 0 };
                                let n = if tries.stable { 1 } else { outpos + 1 };
                                let t = Tries { total: tries.leaf, leaf: 0, ..tries };
                                reject = match map.bucket(item) {
                                    Some(b) => {
                                        self.firstn(b, n, TYPE_OSD, leaves, outpos, count, t, None, sub_r, perm)
                                            <= outpos
                                    }
                                    None => true,
                                };
                            } else if let Some(l) = leaves.get_mut(outpos) {
                                *l = item;
                            }
                        }
                        if !reject && !collide && ty == TYPE_OSD {
                            reject = self.is_out(item);
                        }
                    }
                    if !reject && !collide {
                        break 'descent Some(item);
                    }
                    total += 1;
                    local += 1;
                    let again_here = (collide && local <= tries.local)
                        || (tries.fallback > 0 && local <= (at.items.len() as u32).saturating_add(tries.fallback));
                    if again_here {
                        continue;
                    }
                    if total < tries.total {
                        continue 'descent;
                    }
                    break 'descent None;
                }
            };
            if let Some(item) = picked
                && let Some(o) = out.get_mut(outpos)
            {
                *o = item;
                outpos += 1;
                count -= 1;
            }
        }
        outpos
    }

    #[allow(clippy::too_many_arguments)]
    fn indep(
        &mut self,
        bucket: &Bucket,
        mut left: usize,
        numrep: usize,
        want: i32,
        out: &mut [i32],
        outpos: usize,
        (tries, leaf_tries): (u32, u32),
        mut leaves: Option<&mut [i32]>,
        parent_r: u32,
        perm: &mut Perm,
    ) {
        let map = self.map;
        let end = outpos + left;
        fill(out, outpos, end, ITEM_UNDEF);
        if let Some(l) = leaves.as_deref_mut() {
            fill(l, outpos, end, ITEM_UNDEF);
        }
        for total in 0..tries {
            if left == 0 {
                break;
            }
            for rep in outpos..end {
                if out.get(rep) != Some(&ITEM_UNDEF) {
                    continue;
                }
                let (mut at, mut depth) = (bucket, 0usize);
                // `None`: no item this time; `Some(NONE)`: a permanent hole.
                let picked = loop {
                    if !self.spend(at) || at.items.is_empty() {
                        break None;
                    }
                    let uniform = matches!(at.data, BucketData::Uniform { .. });
                    let stride = if uniform && at.items.len().is_multiple_of(numrep) { numrep + 1 } else { numrep };
                    let r = (rep as u32).wrapping_add(parent_r).wrapping_add((stride as u32).wrapping_mul(total));
                    let item = self.choose(at, r, outpos, perm);
                    if item >= map.max_devices {
                        break Some(ITEM_NONE);
                    }
                    let ty = if item < 0 { map.bucket(item).map(|b| i32::from(b.kind)) } else { Some(TYPE_OSD) };
                    let Some(ty) = ty else { break Some(ITEM_NONE) };
                    if ty != want {
                        match map.bucket(item) {
                            Some(b) if depth < MAX_DEPTH => {
                                at = b;
                                depth += 1;
                                continue;
                            }
                            _ => break Some(ITEM_NONE),
                        }
                    }
                    if out.iter().take(end).skip(outpos).any(|o| *o == item) {
                        break None;
                    }
                    if let Some(leaves) = leaves.as_deref_mut() {
                        if item < 0 {
                            if let Some(b) = map.bucket(item) {
                                self.indep(b, 1, numrep, TYPE_OSD, leaves, rep, (leaf_tries, 0), None, r, perm);
                            }
                            if leaves.get(rep) == Some(&ITEM_NONE) {
                                break None;
                            }
                        } else if let Some(l) = leaves.get_mut(rep) {
                            *l = item;
                        }
                    }
                    if ty == TYPE_OSD && self.is_out(item) {
                        break None;
                    }
                    break Some(item);
                };
                if let Some(item) = picked {
                    if let Some(o) = out.get_mut(rep) {
                        *o = item;
                    }
                    if item == ITEM_NONE
                        && let Some(l) = leaves.as_deref_mut().and_then(|l| l.get_mut(rep))
                    {
                        *l = ITEM_NONE;
                    }
                    left -= 1;
                }
            }
            if self.budget == 0 {
                break;
            }
        }
        undef_to_none(out, outpos, end);
        if let Some(l) = leaves {
            undef_to_none(l, outpos, end);
        }
    }
}

fn fill(v: &mut [i32], from: usize, to: usize, x: i32) {
    if let Some(part) = v.get_mut(from..to) {
        part.fill(x);
    }
}

fn undef_to_none(v: &mut [i32], from: usize, to: usize) {
    for x in v.get_mut(from..to).unwrap_or_default() {
        if *x == ITEM_UNDEF {
            *x = ITEM_NONE;
        }
    }
}

fn weight_set(a: &ChooseArg, position: usize) -> Option<&Vec<u32>> {
    a.weight_sets.get(position).or_else(|| a.weight_sets.last())
}

/// Straw2 choice: each item draws ln(random) / weight, and the largest draw wins; the first among equals.
fn straw2(x: u32, r: u32, ids: &[i32], weights: &[u32], items: &[i32]) -> i32 {
    // Often a host has one device.
    if let [one] = items {
        return *one;
    }
    // Draws are negative or zero. The comparison is by magnitude, so the smallest wins; `u64::MAX` stands for
    // weight 0.
    let ln: &[u64] = &LN;
    let (mut best, mut low) = (0usize, u64::MAX);
    let mut at = 0;
    let mut consider = |at: usize, h: u32, w: u32| {
        let Some(ln) = ln.get((h & 0xffff) as usize) else { return };
        // Tests floor(ln / w) < low without a division, unless the test succeeds.
        if u128::from(*ln) < u128::from(low) * u128::from(w) {
            (best, low) = (at, ln / u64::from(w));
        }
    };
    let (id_chunks, id_rest) = ids.as_chunks::<LANES>();
    let (w_chunks, _) = weights.as_chunks::<LANES>();
    for (ids, ws) in id_chunks.iter().zip(w_chunks) {
        for (h, w) in hash32_3_lanes(x, &ids.map(|i| i as u32), r).into_iter().zip(ws) {
            consider(at, h, *w);
            at += 1;
        }
    }
    for (id, w) in id_rest.iter().zip(weights.get(at..).unwrap_or_default()) {
        consider(at, hash32_3(x, *id as u32, r), *w);
        at += 1;
    }
    items.get(best).copied().unwrap_or(ITEM_NONE)
}

/// The `r`th item of a pseudo-random permutation of the bucket.
fn perm_choose(b: &Bucket, x: u32, r: u32, p: &mut Perm) -> i32 {
    let size = b.items.len();
    if size == 0 {
        return ITEM_NONE;
    }
    let want = r as usize % size;
    if p.bucket != b.id || p.x != x {
        p.bucket = b.id;
        p.x = x;
        p.n = 0;
        p.order.clear();
        p.order.extend(0..size as u32);
    }
    while p.n <= want {
        let at = p.n;
        if at + 1 < size {
            let i = hash32_3(x, b.id as u32, at as u32) as usize % (size - at);
            p.order.swap(at, at + i);
        }
        p.n += 1;
    }
    p.order.get(want).and_then(|i| b.items.get(*i as usize)).copied().unwrap_or(ITEM_NONE)
}
