//! Random transactions from a seed, small worlds that meet every corner often.

use crate::key::{Cid, Oid};
use crate::mem::MemStore;
use crate::txn::{Op, Transaction};
use crate::{ObjectStore, Tag};
use base::rng::Rng;
use base::{Eversion, HObject, PgId, PoolId, SnapId};
use bytes::Bytes;

/// What a history likes to do; drawn once, so that histories differ in kind.
#[derive(Clone, Debug)]
pub struct Workload {
    objects: u64,
    size_max: u64,
    /// Shares of kinds of operations.
    weights: [u64; 8],
    version: u64,
}

/// The collections of the workload.
#[must_use]
pub fn cids() -> [Cid; 3] {
    [Cid::Meta, Cid::Pg(PgId::new(1, 0).into()), Cid::Pg(PgId::new(1, 5).into())]
}

fn bytes(rng: &mut Rng, n: u64) -> Bytes {
    let mut v = vec![0; n as usize];
    // Mostly incompressible, sometimes zeros, which must not be mistaken for holes.
    if rng.chance(9, 10) {
        rng.fill(&mut v);
    }
    v.into()
}

impl Workload {
    /// From a seed.
    #[must_use]
    pub fn new(rng: &mut Rng) -> Self {
        let weights = std::array::from_fn(|_| if rng.chance(1, 4) { 0 } else { 1 + rng.below(6) });
        let objects = [2, 5, 12, 200][rng.below(4) as usize];
        Self { objects, size_max: [9000, 40_000, 400_000][rng.below(3) as usize], weights, version: 0 }
    }

    /// Likes other things from now on; objects and versions go on.
    pub fn vary(&mut self, rng: &mut Rng) {
        let version = self.version;
        *self = Self::new(rng);
        self.version = version;
    }

    fn oid(&self, rng: &mut Rng) -> Oid {
        let n = rng.below(self.objects);
        let h = HObject {
            oid: format!("obj{}", n / 3).into(),
            key: if n % 7 == 6 { Bytes::from_static(b"k") } else { Bytes::new() },
            nspace: if n % 5 == 4 { Bytes::from_static(b"ns") } else { Bytes::new() },
            snap: if n.is_multiple_of(3) { SnapId::HEAD } else { SnapId(n % 3) },
            // Few hashes, so that ties are met.
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

    /// A transaction that the model would accept; applied to nothing yet.
    pub fn next(&mut self, rng: &mut Rng, model: &MemStore) -> Transaction {
        let all = cids();
        let have: Vec<Cid> = model.collections().into_iter().map(|c| c.0).collect();
        let mut t = Transaction::new();
        let cid = all[rng.below(3) as usize];
        if !have.contains(&cid) {
            t.push(Op::MakeCollection { cid, bits: 3 });
        } else if model.collection_usage(cid).0 == 0 && rng.chance(1, 4) {
            t.push(Op::RemoveCollection { cid });
            return t;
        }
        for _ in 0..1 + rng.below(4) {
            self.op(rng, cid, &mut t);
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

    fn op(&self, rng: &mut Rng, cid: Cid, t: &mut Transaction) {
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
            0 | 1 => t.push(Op::Write { cid, oid, off, data: bytes(rng, len) }),
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

    /// A history's next tag.
    #[must_use]
    pub fn tag(n: u64) -> Tag {
        Tag(n)
    }
}
