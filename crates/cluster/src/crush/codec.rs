//! Wire form of CRUSH maps.
//!
//! Invariants: a decoded map has consistent vectors (as many weights as items), bucket ids that match their slots and
//! bounded slot counts, so that placement can trust it. Graph loops may remain; every walk is bounded by itself.
//!
//! Tests: `crates/hostile/tests/hostile_bytes.rs` (family `crush`).

use super::bucket::{Bucket, BucketAlg, BucketData};
use super::rules::{Rule, Step};
use super::{ChooseArg, ChooseArgMap, CrushMap, MAX_BUCKETS, MAX_RULES, Tunables, slot_of};
use bytes::Bytes;
use std::sync::Arc;
use wire::Features;
use wire::codec::{Decode, DecodeError, Encode, Reader, Result, Writer};

const MAGIC: u32 = 0x0001_0000;
/// Most devices of a map.
const MAX_DEVICES: i32 = 1 << 24;

/// CRUSH_TUNABLES5 (chooseleaf_stable).
fn tunables5(f: Features) -> bool {
    f.has(1 << 58)
}

/// CRUSH_MSR, a bit of incarnation 2.
fn msr(f: Features) -> bool {
    f.has(1 << 38 | 1 << 57)
}

fn bad(what: &'static str, value: i64) -> DecodeError {
    DecodeError::BadValue { what, value: value as u64 }
}

fn get_bucket(r: &mut Reader<'_>, slot: usize) -> Result<Option<Bucket>> {
    let alg = r.u32()?;
    if alg == 0 {
        return Ok(None);
    }
    let id = r.i32()?;
    if slot_of(id) != slot {
        return Err(bad("bucket id", id.into()));
    }
    let kind = r.u16()?;
    let alg_again = r.u8()?;
    let alg = BucketAlg::from_u8(alg_again)
        .filter(|_| u32::from(alg_again) == alg)
        .ok_or_else(|| bad("bucket algorithm", alg.into()))?;
    let hash = r.u8()?;
    let weight = r.u32()?;
    let n = r.count(4, "bucket items")?;
    let mut items = Vec::with_capacity(n);
    for _ in 0..n {
        items.push(r.i32()?);
    }
    let data = match alg {
        BucketAlg::Uniform => BucketData::Uniform { item_weight: r.u32()? },
        BucketAlg::List => {
            let (item_weights, sum_weights) = get_pairs(r, n)?;
            BucketData::List { item_weights, sum_weights }
        }
        BucketAlg::Straw => {
            let (item_weights, straws) = get_pairs(r, n)?;
            BucketData::Straw { item_weights, straws }
        }
        BucketAlg::Straw2 => BucketData::Straw2 { item_weights: get_weights(r, n)? },
        BucketAlg::Tree => {
            let nodes = usize::from(r.u8()?);
            BucketData::Tree { node_weights: get_weights(r, nodes)? }
        }
    };
    Ok(Some(Bucket { id, kind, hash, weight, items, data }))
}

fn get_weights(r: &mut Reader<'_>, n: usize) -> Result<Vec<u32>> {
    let mut b = Reader::new(r.take(n.saturating_mul(4), "weights")?);
    let mut v = Vec::with_capacity(n);
    while !b.is_empty() {
        v.push(b.u32()?);
    }
    Ok(v)
}

fn get_pairs(r: &mut Reader<'_>, n: usize) -> Result<(Vec<u32>, Vec<u32>)> {
    let mut b = Reader::new(r.take(n.saturating_mul(8), "weights")?);
    let (mut x, mut y) = (Vec::with_capacity(n), Vec::with_capacity(n));
    while !b.is_empty() {
        x.push(b.u32()?);
        y.push(b.u32()?);
    }
    Ok((x, y))
}

fn get_rule(r: &mut Reader<'_>) -> Result<Option<Rule>> {
    if r.u32()? == 0 {
        return Ok(None);
    }
    let n = r.u32()? as usize;
    let (ruleset, kind, min_size, max_size) = (r.u8()?, r.u8()?, r.u8()?, r.u8()?);
    let mut b = Reader::new(r.take(n.saturating_mul(12), "rule steps")?);
    let mut steps = Vec::with_capacity(n);
    while !b.is_empty() {
        steps.push(Step { op: b.u32()?, arg1: b.i32()?, arg2: b.i32()? });
    }
    Ok(Some(Rule { ruleset, kind, min_size, max_size, steps }))
}

/// Decodes a map of names. In very old maps padding follows the key; no supported release writes it.
fn get_names(r: &mut Reader<'_>) -> Result<std::collections::BTreeMap<i32, String>> {
    r.get()
}

impl CrushMap {
    /// Decodes a map. Error: malformed bytes, or a map that breaks the invariants of this module.
    pub fn decode_blob(blob: &Bytes) -> Result<Self> {
        let mut r = Reader::shared(blob);
        Self::decode(&mut r)
    }

    /// The map as a blob for a peer with `features`.
    #[must_use]
    pub fn encode_blob(&self, features: Features) -> Bytes {
        self.to_bytes(features)
    }

    fn get_choose_args(&mut self, r: &mut Reader<'_>) -> Result<()> {
        let sets = r.count(12, "choose_args")?;
        for _ in 0..sets {
            let key = r.i64()?;
            let mut map = ChooseArgMap::new();
            let n = r.count(12, "choose_args buckets")?;
            for _ in 0..n {
                let slot = r.u32()? as usize;
                let positions = r.count(4, "weight set positions")?;
                let mut arg = ChooseArg::default();
                let size = self.buckets.get(slot).and_then(Option::as_ref).map(|b| b.items.len());
                let Some(size) = size else {
                    return Err(bad("choose_args bucket", slot as i64));
                };
                for _ in 0..positions {
                    let n = r.count(4, "weight set")?;
                    if n != size {
                        return Err(bad("weight set size", n as i64));
                    }
                    arg.weight_sets.push(get_weights(r, n)?);
                }
                let n = r.count(4, "weight set ids")?;
                if n != 0 && n != size {
                    return Err(bad("weight set ids", n as i64));
                }
                for _ in 0..n {
                    arg.ids.push(r.i32()?);
                }
                map.insert(slot, arg);
            }
            self.choose_args.insert(key, map);
        }
        Ok(())
    }
}

impl Decode for CrushMap {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let magic = r.u32()?;
        if magic != MAGIC {
            return Err(bad("crush magic", magic.into()));
        }
        let mut m = Self { tunables: Tunables::LEGACY, ..Self::default() };
        let max_buckets = r.count(4, "crush buckets")?;
        if max_buckets > MAX_BUCKETS {
            return Err(bad("crush buckets", max_buckets as i64));
        }
        let max_rules = r.u32()? as usize;
        if max_rules > MAX_RULES {
            return Err(bad("crush rules", max_rules as i64));
        }
        m.max_devices = r.i32()?;
        if !(0..=MAX_DEVICES).contains(&m.max_devices) {
            return Err(bad("crush devices", m.max_devices.into()));
        }
        for slot in 0..max_buckets {
            m.buckets.push(get_bucket(r, slot)?.map(Arc::new));
        }
        for _ in 0..max_rules {
            m.rules.push(get_rule(r)?);
        }
        m.type_names = get_names(r)?;
        m.item_names = get_names(r)?;
        m.rule_names = get_names(r)?;
        let t = &mut m.tunables;
        // Each of the following parts came with a release. A shorter map keeps the behaviour of its release.
        if !r.is_empty() {
            t.choose_local_tries = r.u32()?;
            t.choose_local_fallback_tries = r.u32()?;
            t.choose_total_tries = r.u32()?;
        }
        if !r.is_empty() {
            t.chooseleaf_descend_once = r.u32()?;
        }
        if !r.is_empty() {
            t.chooseleaf_vary_r = r.u8()?;
        }
        if !r.is_empty() {
            t.straw_calc_version = r.u8()?;
        }
        if !r.is_empty() {
            t.allowed_bucket_algs = r.u32()?;
        }
        if !r.is_empty() {
            t.chooseleaf_stable = r.u8()?;
        }
        if !r.is_empty() {
            m.class_map = r.get()?;
            m.class_names = get_names(r)?;
            m.class_bucket = r.get()?;
        }
        if !r.is_empty() {
            m.get_choose_args(r)?;
        }
        if r.remaining() >= 8 {
            m.tunables.msr = Some((r.u32()?, r.u32()?));
        }
        Ok(m)
    }
}

fn put_bucket(w: &mut Writer, b: &Bucket) {
    // There is no substitute for peers that lack an algorithm: a map with such a bucket requires the feature in
    // the handshake.
    let alg = b.alg();
    w.u32(alg as u32);
    w.i32(b.id);
    w.u16(b.kind);
    w.u8(alg as u8);
    w.u8(b.hash);
    w.u32(b.weight);
    w.u32(b.items.len() as u32);
    for i in &b.items {
        w.i32(*i);
    }
    match &b.data {
        BucketData::Uniform { item_weight } => w.u32(*item_weight),
        BucketData::List { item_weights, sum_weights: second } | BucketData::Straw { item_weights, straws: second } => {
            for (a, b) in item_weights.iter().zip(second) {
                w.u32(*a);
                w.u32(*b);
            }
        }
        BucketData::Tree { node_weights } => {
            w.u8(node_weights.len().min(255) as u8);
            for n in node_weights {
                w.u32(*n);
            }
        }
        BucketData::Straw2 { item_weights } => {
            for n in item_weights {
                w.u32(*n);
            }
        }
    }
}

impl Encode for CrushMap {
    fn encode(&self, w: &mut Writer) {
        let f = w.features();
        w.u32(MAGIC);
        w.u32(self.buckets.len() as u32);
        w.u32(self.rules.len() as u32);
        w.i32(self.max_devices);
        for b in &self.buckets {
            match b {
                Some(b) => put_bucket(w, b),
                None => w.u32(0),
            }
        }
        for rule in &self.rules {
            match rule {
                None => w.u32(0),
                Some(rule) => {
                    w.u32(1);
                    w.u32(rule.steps.len() as u32);
                    for b in [rule.ruleset, rule.kind, rule.min_size, rule.max_size] {
                        w.u8(b);
                    }
                    for s in &rule.steps {
                        w.u32(s.op);
                        w.i32(s.arg1);
                        w.i32(s.arg2);
                    }
                }
            }
        }
        w.put(&self.type_names);
        w.put(&self.item_names);
        w.put(&self.rule_names);
        let t = &self.tunables;
        w.u32(t.choose_local_tries);
        w.u32(t.choose_local_fallback_tries);
        w.u32(t.choose_total_tries);
        w.u32(t.chooseleaf_descend_once);
        w.u8(t.chooseleaf_vary_r);
        w.u8(t.straw_calc_version);
        w.u32(t.allowed_bucket_algs);
        if tunables5(f) {
            w.u8(t.chooseleaf_stable);
        }
        if f.luminous() {
            w.put(&self.class_map);
            w.put(&self.class_names);
            w.put(&self.class_bucket);
            w.u32(self.choose_args.len() as u32);
            for (key, map) in &self.choose_args {
                w.i64(*key);
                let used = || map.iter().filter(|(_, a)| !a.weight_sets.is_empty() || !a.ids.is_empty());
                w.u32(used().count() as u32);
                for (slot, a) in used() {
                    w.u32(*slot as u32);
                    w.put(&a.weight_sets);
                    w.put(&a.ids);
                }
            }
        }
        if msr(f)
            && let Some((descents, collisions)) = t.msr
        {
            w.u32(descents);
            w.u32(collisions);
        }
    }
}
