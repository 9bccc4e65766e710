//! Layouts against a byte-by-byte model, and write plans executed on shards in memory.

use ec::stripe::{BLOCK, Method, Part, WritePlan};
use ec::{Codec, Layout, Technique};
use proptest::prelude::*;
use std::ops::Range;

/// An object and its shards; the shards change only as plans say.
struct Model {
    layout: Layout,
    codec: Codec,
    object: Vec<u8>,
    shards: Vec<Vec<u8>>,
}

fn read(shard: &[u8], r: &Range<u64>) -> Vec<u8> {
    (r.start..r.end).map(|i| shard.get(i as usize).copied().unwrap_or(0)).collect()
}

impl Model {
    fn new(k: usize, m: usize, chunk: u32) -> Self {
        let codec = Codec::new(Technique::IsaCauchy, k, m).unwrap();
        Self { layout: Layout::new(k, m, chunk).unwrap(), codec, object: Vec::new(), shards: vec![Vec::new(); k + m] }
    }

    /// The bytes that a write stores in a coding shard, from the data shards or by their differences.
    fn coding(&self, plan: &WritePlan, p: &Part, old: &[Vec<u8>], known: &[Vec<u8>]) -> Vec<u8> {
        let k = self.layout.k();
        let r = p.range.clone();
        let (index, len) = (p.shard, (r.end - r.start) as usize);
        let mut coding = vec![0; len];
        if plan.method == Method::Delta {
            coding = read(&old[index], &r);
            for d in plan.writes.iter().filter(|p| p.shard < k) {
                let difference: Vec<u8> = read(&old[d.shard], &d.range)
                    .iter()
                    .zip(read(&known[d.shard], &d.range))
                    .map(|(a, b)| a ^ b)
                    .collect();
                let at = (d.range.start - r.start) as usize;
                self.codec.apply(d.shard, &difference, index, &mut coding[at..at + difference.len()]).unwrap();
            }
        } else {
            let data: Vec<Vec<u8>> = (0..k).map(|s| read(&known[s], &r)).collect();
            let mut all = vec![vec![0; len]; self.layout.shards() - k];
            self.codec
                .encode(
                    &data.iter().map(Vec::as_slice).collect::<Vec<_>>(),
                    &mut all.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(),
                )
                .unwrap();
            coding.copy_from_slice(&all[index - k]);
        }
        coding
    }

    /// Executes a write as a primary would: only with the bytes that the plan reads.
    fn write(&mut self, at: u64, bytes: &[u8], allow_delta: bool) -> Method {
        let run = at..at + bytes.len() as u64;
        let size = self.object.len() as u64;
        let plan = self.layout.plan_write(size, &run, allow_delta);
        // The bytes read, and zeros beyond the shards' ends. All others are poison that would show in the coding bytes.
        let k = self.layout.k();
        let mut known: Vec<Vec<u8>> = self.shards.iter().map(|s| vec![0xa5; s.len()]).collect();
        for p in &plan.reads {
            assert!(p.range.start % BLOCK == 0 && p.range.end % BLOCK == 0 && p.range.start < p.range.end);
            assert!(p.range.end <= self.shards[p.shard].len() as u64, "a read beyond the end");
            let r = p.range.start as usize..p.range.end as usize;
            known[p.shard][r.clone()].copy_from_slice(&self.shards[p.shard][r]);
        }
        for (shard, s) in known.iter_mut().enumerate().take(k) {
            let end = self.layout.bytes_before(shard, size) as usize;
            s[end..].fill(0);
        }
        let old = known.clone();
        let new_size = size.max(run.end);
        for (shard, s) in known.iter_mut().enumerate() {
            let len = self.layout.shard_len(new_size, shard) as usize;
            s.resize(len.max(s.len()), 0);
        }
        let old: Vec<Vec<u8>> = old
            .into_iter()
            .zip(&known)
            .map(|(mut o, n)| {
                o.resize(n.len(), 0);
                o
            })
            .collect();
        for (shard, offset, from, len) in self.layout.pieces(&run) {
            known[shard][offset as usize..(offset + len) as usize]
                .copy_from_slice(&bytes[from as usize..(from + len) as usize]);
        }
        for p in &plan.writes {
            assert!(p.range.start % BLOCK == 0 && p.range.end % BLOCK == 0);
        }
        for p in plan.writes.iter().filter(|p| p.shard >= k) {
            let coding = self.coding(&plan, p, &old, &known);
            known[p.shard][p.range.start as usize..p.range.end as usize].copy_from_slice(&coding);
        }
        // Only the plan's writes are stored. A partially written block takes its other bytes from the store.
        for (shard, s) in self.shards.iter_mut().enumerate() {
            s.resize((self.layout.shard_len(new_size, shard) as usize).max(s.len()), 0);
        }
        for p in plan.writes.iter().filter(|p| p.shard >= k) {
            let r = p.range.start as usize..p.range.end as usize;
            self.shards[p.shard][r.clone()].copy_from_slice(&known[p.shard][r]);
        }
        let mut touched = vec![false; k];
        for (shard, offset, from, len) in self.layout.pieces(&run) {
            touched[shard] = true;
            self.shards[shard][offset as usize..(offset + len) as usize]
                .copy_from_slice(&bytes[from as usize..(from + len) as usize]);
        }
        for (shard, t) in touched.iter().enumerate() {
            assert_eq!(*t, plan.writes.iter().any(|p| p.shard == shard), "shard {shard} of {plan:?}");
        }
        self.object.resize(new_size as usize, 0);
        self.object[run.start as usize..run.end as usize].copy_from_slice(bytes);
        plan.method
    }

    fn truncate(&mut self, new: u64) {
        let old = self.object.len() as u64;
        if new < old {
            let tail = self.layout.tail(old, new);
            let zeros = vec![0; (tail.end - tail.start) as usize];
            self.write(tail.start, &zeros, true);
        }
        self.object.resize(new as usize, 0);
        for (shard, s) in self.shards.iter_mut().enumerate() {
            s.resize(self.layout.shard_len(new, shard) as usize, 0);
        }
    }

    /// Checks that shards have the lengths and bytes that follow from the object.
    fn check(&self) {
        let (l, k) = (self.layout, self.layout.k());
        let size = self.object.len() as u64;
        let mut expected: Vec<Vec<u8>> = (0..l.shards()).map(|s| vec![0; l.shard_len(size, s) as usize]).collect();
        for (i, b) in self.object.iter().enumerate() {
            let (shard, offset) = l.locate(i as u64);
            assert_eq!(l.object_offset(shard, offset), i as u64);
            expected[shard][offset as usize] = *b;
        }
        let longest = 0..l.shard_len(size, 0);
        let data: Vec<Vec<u8>> = (0..k).map(|s| read(&expected[s], &longest)).collect();
        let (_, coding) = expected.split_at_mut(k);
        self.codec
            .encode(
                &data.iter().map(Vec::as_slice).collect::<Vec<_>>(),
                &mut coding.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(),
            )
            .unwrap();
        for (shard, e) in expected.iter().enumerate() {
            assert!(*e == self.shards[shard], "shard {shard} of an object of {size} bytes");
        }
    }
}

#[test]
fn runs_are_one_part_of_each_shard_for_every_offset_and_length() {
    // Offsets within the first two stripes, in steps that hit every edge and both sides of it.
    let l = Layout::new(3, 2, 4096).unwrap();
    let edges: Vec<u64> = (0..=7).flat_map(|c| [c * 4096, c * 4096 + 1, (c * 4096 + 4095), c * 4096 + 2048]).collect();
    for start in edges.iter().copied() {
        for end in edges.iter().copied().filter(|e| *e > start) {
            let mut by_byte: Vec<Vec<u64>> = vec![Vec::new(); 3];
            for o in start..end {
                let (shard, offset) = l.locate(o);
                by_byte[shard].push(offset);
            }
            for (shard, offsets) in by_byte.iter().enumerate() {
                let r = l.shard_range(shard, &(start..end));
                assert_eq!(r.end - r.start, offsets.len() as u64, "{start}..{end}, shard {shard}");
                assert!(offsets.iter().all(|o| r.contains(o)), "{start}..{end}, shard {shard}");
            }
            let total: u64 = l.pieces(&(start..end)).map(|p| p.3).sum();
            assert_eq!(total, end - start);
        }
    }
}

#[test]
fn costs_of_small_writes_equal_the_documented_ones() {
    let l = Layout::new(4, 2, 16_384).unwrap();
    let size = 4 << 20;
    let small = l.plan_write(size, &(8_192..12_288), true);
    assert_eq!((small.method, small.reads.len(), small.writes.len()), (Method::Delta, 3, 3));
    assert!(small.reads.iter().all(|p| p.range.end - p.range.start == BLOCK), "blocks are read, not chunks");
    let stripe = l.plan_write(size, &(65_536..131_072), true);
    assert_eq!((stripe.method, stripe.reads.len(), stripe.writes.len()), (Method::Full, 0, 6));
    let append = l.plan_write(65_536, &(65_536..131_072), true);
    assert_eq!((append.method, append.reads.len(), append.writes.len()), (Method::Full, 0, 6));
    // A small append after the last byte of a stripe: its rows contain no old byte.
    let fresh = l.plan_write(65_536, &(65_536..69_632), true);
    assert_eq!((fresh.method, fresh.writes.len()), (Method::Full, 3));
    let without = l.plan_write(size, &(8_192..12_288), false);
    assert_eq!((without.method, without.reads.len()), (Method::Reencode, 3));
    assert_eq!(l.plan_write(size, &(10..10), true).writes, []);
}

#[test]
fn layouts_that_make_no_sense_are_refused() {
    for (k, m, chunk) in [(0, 1, 4096), (2, 0, 4096), (2, 1, 0), (2, 1, 4095), (30, 3, 4096)] {
        assert!(Layout::new(k, m, chunk).is_none(), "{k}+{m}, {chunk}");
    }
}

#[derive(Clone, Debug)]
enum Change {
    Write { at: u64, len: u64, seed: u8, delta: bool },
    Truncate(u64),
}

fn change() -> impl Strategy<Value = Change> {
    // Prefer offsets near block edges.
    let place = prop_oneof![0u64..70_000, (0u64..17, 0u64..3).prop_map(|(b, o)| (b * 4096 + o).saturating_sub(1))];
    let len = prop_oneof![1u64..300, 1u64..40_000, (1u64..9).prop_map(|b| b * 4096)];
    prop_oneof![
        4 => (place.clone(), len, any::<u8>(), any::<bool>())
            .prop_map(|(at, len, seed, delta)| Change::Write { at, len, seed, delta }),
        1 => place.prop_map(Change::Truncate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn shards_follow_from_the_object_after_any_writes_and_truncations(
        shape in prop_oneof![Just((2, 1)), Just((3, 2)), Just((4, 2))],
        chunk in prop_oneof![Just(4096u32), Just(16_384)],
        changes in proptest::collection::vec(change(), 1..12),
    ) {
        let mut model = Model::new(shape.0, shape.1, chunk);
        for c in changes {
            match c {
                Change::Write { at, len, seed, delta } => {
                    let bytes: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
                    model.write(at, &bytes, delta);
                }
                Change::Truncate(size) => model.truncate(size),
            }
            model.check();
        }
    }
}
