//! Random transactions from a seed, in small worlds that often meet corner cases.

use crate::key::{Cid, Oid};
use crate::mem::MemStore;
use crate::txn::{Op, Transaction};
use crate::{ObjectStore, Tag};
use base::rng::Rng;
use base::{Eversion, HObject, PgId, PoolId, SnapId, Summed};
use bytes::Bytes;
use std::sync::Arc;

/// Preferences of a history. They are drawn once, so that histories differ in kind.
#[derive(Clone, Debug)]
pub struct Workload {
    objects: u64,
    size_max: u64,
    /// Weights of the kinds of operations.
    weights: [u64; 8],
    version: u64,
    /// True if logs keep undo records.
    keeps: bool,
    /// A collection made to be merged into another one at a hash.
    merge: Option<(Cid, Cid, u32)>,
    /// True if most data is compressible, and some of it large.
    soft: bool,
    /// True if many transactions write whole blocks of an object, with an attribute and a log entry.
    overwrites: bool,
}

fn pg(seed: u32) -> Cid {
    Cid::Pg(PgId::new(1, seed).into())
}

/// Collections of the workload, except those that are split off.
#[must_use]
pub fn cids() -> [Cid; 3] {
    [Cid::Meta, pg(0), pg(5)]
}

/// PGs of one shard, which may be split off each other and merged.
const KIN: [[u32; 4]; 2] = [[0, 32, 64, 96], [5, 37, 69, 101]];

fn bytes(rng: &mut Rng, n: u64) -> Bytes {
    let mut v = vec![0; n as usize];
    // Data is mostly incompressible, sometimes zeros, which must not be taken for holes.
    if rng.chance(9, 10) {
        rng.fill(&mut v);
    }
    v.into()
}

/// Makes the data of a write compressible, and larger or aligned in some cases, all of which its bytes decide.
fn soften(op: &mut Op) {
    let Op::Write { off, data, sums, .. } = op else { return };
    let mut own = Rng::new(data.iter().take(64).fold(data.len() as u64, |h, b| h.rotate_left(9) ^ u64::from(*b)));
    if data.is_empty() || own.chance(1, 6) {
        return;
    }
    let mut len = data.len() * [1, 1, 2, 4, 8][own.below(5) as usize];
    if own.chance(2, 3) {
        *off = *off / 4096 * 4096;
        len = len.next_multiple_of(4096);
    }
    let (period, fill) = (64 + own.below(200) as usize, own.below(256) as u8);
    let byte = |i: usize| if i % period < period / 3 { data[i % data.len()] } else { fill };
    *data = (0..len).map(byte).collect::<Vec<u8>>().into();
    if sums.is_some() {
        *sums = Some(Arc::new(Summed::new(data.clone())));
    }
}

impl Workload {
    /// A workload from a generator.
    #[must_use]
    pub fn new(rng: &mut Rng) -> Self {
        let weights = std::array::from_fn(|_| if rng.chance(1, 4) { 0 } else { 1 + rng.below(6) });
        let objects = [2, 5, 12, 200][rng.below(4) as usize];
        let size_max = [9000, 40_000, 400_000][rng.below(3) as usize];
        let keeps = rng.chance(1, 2);
        Self { objects, size_max, weights, version: 0, keeps, merge: None, soft: false, overwrites: false }
    }

    /// Draws new preferences; objects and versions continue.
    pub fn vary(&mut self, rng: &mut Rng) {
        let (version, soft, overwrites) = (self.version, self.soft, self.overwrites);
        *self = Self::new(rng);
        (self.version, self.soft, self.overwrites) = (version, soft, overwrites);
    }

    fn oid(&self, rng: &mut Rng) -> Oid {
        let n = rng.below(self.objects);
        let h = HObject {
            oid: format!("obj{}", n / 3).into(),
            key: if n % 7 == 6 { Bytes::from_static(b"k") } else { Bytes::new() },
            nspace: if n % 5 == 4 { Bytes::from_static(b"ns") } else { Bytes::new() },
            snap: if n.is_multiple_of(3) { SnapId::HEAD } else { SnapId(n % 3) },
            // Few hashes, so that objects often share one.
            hash: ((n / 3) as u32 % 17).wrapping_mul(0x9e37_79b9),
            max: false,
            pool: PoolId(1),
        };
        Oid::new(h)
    }

    fn range(&self, rng: &mut Rng) -> (u64, u64) {
        let off = rng.below(self.size_max);
        match rng.below(4) {
            0 => (off / 4096 * 4096, 4096 * (1 + rng.below(8))),
            1 => (off, rng.below(300)),
            2 => (off / 4096 * 4096, rng.below(20_000)),
            _ => (off, rng.below(30_000)),
        }
    }

    fn key(rng: &mut Rng) -> Bytes {
        format!("key{:04}", rng.below(300)).into()
    }

    /// From now on most data that is written is compressible, and some of it large. What is drawn stays the same.
    pub fn soften(&mut self) {
        self.soft = true;
    }

    /// From now on half of the transactions write whole blocks of an object, with an attribute and a log entry, as most
    /// writes of clients do.
    pub fn overwrite(&mut self) {
        self.overwrites = true;
    }

    /// A transaction that the model would accept. It is not applied yet.
    pub fn next(&mut self, rng: &mut Rng, model: &MemStore) -> Transaction {
        let mut t = self.draw(rng, model);
        if self.soft {
            t.ops.iter_mut().for_each(soften);
        }
        t
    }

    fn draw(&mut self, rng: &mut Rng, model: &MemStore) -> Transaction {
        let all = cids();
        let have: Vec<Cid> = model.collections().into_iter().map(|c| c.0).collect();
        let mut t = Transaction::new();
        if self.overwrites
            && rng.chance(1, 2)
            && let Some(cid) = have.get(rng.below(have.len().max(1) as u64) as usize)
            && let Some(t) = self.overwritten(rng, *cid, model)
        {
            return t;
        }
        if rng.chance(1, 12)
            && let Some(t) = self.reshape(rng, model, &have)
        {
            return t;
        }
        let mut cid = all[rng.below(3) as usize];
        if rng.chance(1, 2)
            && let Some(c) = have.get(rng.below(have.len().max(1) as u64) as usize)
        {
            cid = *c;
        }
        if !have.contains(&cid) {
            t.push(Op::MakeCollection { cid, bits: 3 });
        } else if model.is_empty(cid) && rng.chance(1, 4) {
            t.push(Op::RemoveCollection { cid });
            return t;
        }
        if self.keeps && rng.chance(1, 8) {
            self.undo(rng, cid, model, &mut t);
        }
        for i in 0..1 + rng.below(4) {
            // Sometimes in the middle of a transaction, or under a version that has an undo record already.
            if self.keeps
                && rng.chance(1, if i == 0 { 2 } else { 10 })
                && !t.ops.iter().any(|o| matches!(o, Op::Keep { .. }))
            {
                let again = u64::from(rng.chance(1, 10));
                t.push(Op::Keep { cid, version: Eversion::new(3, self.version + 1 - again) });
            }
            self.op(rng, cid, model, &mut t);
        }
        if rng.chance(2, 3) {
            self.version += 1 + rng.below(2);
            let n = rng.below(200);
            let (version, entry) = (Eversion::new(3, self.version), bytes(rng, n));
            t.push(Op::LogAppend { cid, version, entry });
            t.push(Op::PgInfo { cid, info: bytes(rng, 60) });
            if rng.chance(1, 10) {
                let to = Eversion::new(3, self.version.saturating_sub(rng.below(80)));
                t.push(Op::LogTrim { cid, to });
            }
            if rng.chance(1, 30) {
                let to = Eversion::new(3, self.version.saturating_sub(rng.below(5)));
                t.push(Op::LogRewind { cid, to });
            }
        }
        t
    }

    /// Writes whole blocks, mostly of an object that exists.
    fn overwritten(&mut self, rng: &mut Rng, cid: Cid, model: &MemStore) -> Option<Transaction> {
        let all: Vec<Oid> = model.objects(cid).map(|o| o.0.clone()).collect();
        let known = all.get(rng.below(all.len().max(1) as u64) as usize).cloned();
        let oid = known.filter(|_| rng.chance(9, 10)).unwrap_or_else(|| self.oid(rng));
        let blocks = 1 + rng.below(3);
        let data = bytes(rng, 4096 * blocks);
        let sums = rng.chance(1, 2).then(|| Arc::new(Summed::new(data.clone())));
        let off = rng.below(self.size_max) / 4096 * 4096;
        let attrs = (0..1 + blocks / 2).map(|i| (format!("a{i}").into(), bytes(rng, 40))).collect();
        self.version += 1;
        let entry = bytes(rng, 100);
        let mut t = Transaction::new();
        t.push(Op::Write { cid, oid: oid.clone(), off, data, sums });
        t.push(Op::SetAttrs { cid, oid, attrs });
        t.push(Op::LogAppend { cid, version: Eversion::new(3, self.version), entry });
        if rng.chance(1, 4) {
            t.push(Op::PgInfo { cid, info: bytes(rng, 60) });
        }
        model.clone().prepare(Tag(0), &t).is_ok().then_some(t)
    }

    /// Undoes the newest versions, or any, for some objects or for all.
    fn undo(&self, rng: &mut Rng, cid: Cid, model: &MemStore, t: &mut Transaction) {
        let mut versions = model.kept_versions(cid);
        let all: Vec<Oid> = model.objects(cid).map(|o| o.0.clone()).collect();
        if rng.chance(1, 4) {
            let at = rng.below(versions.len().max(1) as u64) as usize;
            versions = versions.into_iter().skip(at).take(1).collect();
        }
        let some = rng.chance(1, 2);
        for version in versions.into_iter().rev().take(1 + rng.below(3) as usize) {
            for oid in all.iter().filter(|_| !some || rng.chance(1, 3)).take(20) {
                t.push(Op::Undo { cid, oid: oid.clone(), version });
            }
            if rng.chance(1, 4) {
                t.push(Op::LogRewind { cid, to: Eversion::new(3, version.version.saturating_sub(1)) });
            }
        }
        if rng.chance(1, 6)
            && let Some(to) = model.kept_versions(cid).first().copied()
        {
            t.push(Op::DropKept { cid, to: Eversion::new(3, to.version + rng.below(4)) });
        }
    }

    /// Splits a collection, merges two, or makes one that can be merged soon.
    fn reshape(&mut self, rng: &mut Rng, model: &MemStore, have: &[Cid]) -> Option<Transaction> {
        let mut t = Transaction::new();
        if let Some((cid, dst, first)) = self.merge.take() {
            // Earlier operations may be on either side.
            for _ in 0..rng.below(3) {
                let c = if rng.chance(1, 2) { cid } else { dst };
                self.op(rng, c, model, &mut t);
            }
            t.push(Op::Merge { cid, dst, first, bits: 3 });
            return model.clone().prepare(Tag(0), &t).is_ok().then_some(t);
        }
        let kin = KIN[rng.below(2) as usize];
        let pick = |rng: &mut Rng| pg(kin[rng.below(4) as usize]);
        let (cid, dst) = (pick(rng), pick(rng));
        let first = match rng.below(3) {
            0 => (rng.next_u64() as u32) | 1,
            _ => self.oid(rng).hobj.bitwise_key().max(1),
        };
        self.version += 1;
        let log = Op::LogAppend { cid: dst, version: Eversion::new(3, self.version), entry: bytes(rng, 60) };
        if have.contains(&cid) && have.contains(&dst) {
            t.push(Op::Merge { cid, dst, first, bits: 3 });
            if rng.chance(1, 2) {
                t.push(log);
            }
        } else if have.contains(&cid) {
            for _ in 0..rng.below(3) {
                self.op(rng, cid, model, &mut t);
            }
            t.push(Op::Split { cid, dst, first, bits: 4 });
            t.push(log);
            t.push(Op::PgInfo { cid, info: bytes(rng, 60) });
            t.push(Op::PgInfo { cid: dst, info: bytes(rng, 60) });
            let oid = self.oid(rng);
            if oid.hobj.bitwise_key() >= first && model.fits(cid, &oid) {
                t.push(Op::OmapSet { cid: dst, oid, entries: vec![(Self::key(rng), bytes(rng, 30))] });
            }
            if rng.chance(1, 3) {
                // Two splits at once, the upper one first.
                let lower = self.oid(rng).hobj.bitwise_key().max(1);
                let other = pick(rng);
                if lower < first && other != dst && !have.contains(&other) {
                    t.push(Op::Split { cid, dst: other, first: lower, bits: 5 });
                    if model.clone().prepare(Tag(0), &t).is_err() {
                        t.ops.pop();
                    }
                }
            }
        } else if have.contains(&dst) {
            // The collection has a family of its own.
            t.push(match rng.below(2) {
                0 => Op::MakeCollection { cid, bits: 4 },
                _ => Op::MakeBeside { cid, beside: dst, bits: 4 },
            });
            for _ in 0..3 {
                let (oid, len) = (self.oid(rng), rng.below(9000));
                if oid.hobj.bitwise_key() >= first {
                    t.push(Op::Write { cid, oid, off: 0, data: bytes(rng, len), sums: None });
                }
            }
            self.merge = Some((cid, dst, first));
        }
        let legal = !t.is_empty() && model.clone().prepare(Tag(0), &t).is_ok();
        legal.then_some(t)
    }

    fn op(&self, rng: &mut Rng, cid: Cid, model: &MemStore, t: &mut Transaction) {
        let n = t.ops.len();
        self.any_op(rng, cid, t);
        // Only objects in the collection's range may be changed.
        if t.ops.iter().skip(n).any(|o| o.target().is_some_and(|oid| !model.fits(cid, oid))) {
            t.ops.truncate(n);
        }
    }

    fn any_op(&self, rng: &mut Rng, cid: Cid, t: &mut Transaction) {
        let total: u64 = self.weights.iter().sum();
        let mut pick = rng.below(total.max(1));
        let kind = self.weights.iter().position(|w| {
            let hit = pick < *w;
            pick = pick.wrapping_sub(*w);
            hit
        });
        let oid = self.oid(rng);
        let (off, len) = self.range(rng);
        match kind.unwrap_or(0) {
            0 | 1 => {
                let data = bytes(rng, len);
                // Some data is as its receiver has summed it.
                let sums = len.is_multiple_of(2).then(|| Arc::new(Summed::new(data.clone())));
                t.push(Op::Write { cid, oid, off, data, sums });
            }
            2 => t.push(Op::Zero { cid, oid, off, len }),
            3 => t.push(Op::Truncate { cid, oid, size: off }),
            4 => match rng.below(4) {
                0 => t.push(Op::Remove { cid, oid }),
                1 => t.push(Op::Touch { cid, oid }),
                2 => t.push(Op::SetAllocHint { cid, oid, object_size: 1, write_size: 2, flags: 3 }),
                _ => t.push(Op::Rename { cid, src: oid, dst: self.oid(rng) }),
            },
            5 => {
                let dst = self.oid(rng);
                if rng.chance(1, 2) {
                    t.push(Op::Clone { cid, src: oid, dst });
                } else {
                    let dst_off = if rng.chance(1, 2) { off } else { rng.below(self.size_max) };
                    if oid == dst && dst_off < off + len && off < dst_off + len {
                        return;
                    }
                    t.push(Op::CloneRange { cid, src: oid, dst, src_off: off, len, dst_off });
                }
            }
            6 => match rng.below(5) {
                0 | 1 => t.push(Op::SetAttrs {
                    cid,
                    oid,
                    attrs: (0..rng.below(3)).map(|_| (format!("a{}", rng.below(4)).into(), bytes(rng, 40))).collect(),
                }),
                2 => t.push(Op::RmAttr { cid, oid, name: format!("a{}", rng.below(4)).into() }),
                3 => t.push(Op::RmAttrs { cid, oid }),
                _ => t.push(Op::OmapSetHeader { cid, oid, header: bytes(rng, 20) }),
            },
            _ => match rng.below(6) {
                0..=2 => {
                    let n = [1, 5, 60][rng.below(3) as usize];
                    let entries = (0..n)
                        .map(|_| {
                            let len = rng.below(300);
                            (Self::key(rng), bytes(rng, len))
                        })
                        .collect();
                    t.push(Op::OmapSet { cid, oid, entries });
                }
                3 => t.push(Op::OmapRmKeys { cid, oid, keys: (0..5).map(|_| Self::key(rng)).collect() }),
                4 => t.push(Op::OmapRmRange { cid, oid, first: Self::key(rng), last: Self::key(rng) }),
                _ if rng.chance(1, 3) => t.push(Op::OmapClear { cid, oid }),
                _ => {}
            },
        }
    }

    /// Tag number `n` of a history.
    #[must_use]
    pub fn tag(n: u64) -> Tag {
        Tag(n)
    }
}
