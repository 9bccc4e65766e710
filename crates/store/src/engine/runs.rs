//! Runs of blocks that large reads brought, kept in the buffers in which they were answered.
//!
//! A run is found by its place in the object. It knows place on the device, version and checksum of each of its blocks as
//! they were verified when it was read. Whoever has another map finds nothing, so a stale run is a miss, never wrong data.
//! Where the blocks lie does not matter: an object that was overwritten in many small pieces is one run, too.
//!
//! Objects of one birth id (clones) share the keys of their runs: of ranges that overlap, one is kept.
//!
//! Invariants:
//!  1. No two runs share a block of an object.
//!  2. `charged` is the sum of what the runs are charged: the whole of their buffers.
//!
//! Tests: below.

use super::cache::PASSES_MAX;
use crate::layout::{BLOCK, BLOCK_LEN};
use crate::meta::map::Ptr;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Entries of the order, for each run and at least, from which those of runs that are gone are removed.
const ORDER_SLACK: (usize, usize) = (2, 64);

/// Key of a run: birth id of the object, and number of the first block.
type Key = (u64, u64);

/// Neighbouring blocks of one object, which may have holes.
#[derive(Debug)]
struct Run {
    /// Number of the run in the order of eviction.
    id: u64,
    /// Pointer and checksum of each block.
    blocks: Box<[(Ptr, u32)]>,
    data: Bytes,
    charged: usize,
    /// Asked for since it came or was passed over.
    used: bool,
}

/// Runs of all objects; see the module.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: BTreeMap<Key, Run>,
    order: VecDeque<(Key, u64)>,
    last_id: u64,
    charged: usize,
}

/// Blocks that a buffer of `n` blocks takes in memory: buffers have sizes that are powers of two.
pub(super) fn charge(n: usize) -> usize {
    n.next_power_of_two()
}

impl Runs {
    /// Blocks of memory in use.
    pub(super) fn charged(&self) -> usize {
        self.charged
    }

    /// The run that has the blocks `[block, block + n)` of an object, with the index of the first one.
    fn around(&self, birth: u64, block: u64, n: usize) -> Option<(Key, usize)> {
        let (key, run) = self.runs.range(..=(birth, block)).next_back().filter(|(k, _)| k.0 == birth)?;
        let from = usize::try_from(block - key.1).ok()?;
        (from.checked_add(n)? <= run.blocks.len()).then_some((*key, from))
    }

    /// Data of the blocks of an object from `block` on, whose pointers and checksums `map` has.
    pub(super) fn get(&mut self, birth: u64, block: u64, map: &[(Ptr, u32)]) -> Option<Bytes> {
        let (key, from) = self.around(birth, block, map.len()).filter(|_| !map.is_empty())?;
        let run = self.runs.get_mut(&key)?;
        if run.blocks.get(from..from + map.len())? != map {
            return None;
        }
        run.used = true;
        Some(run.data.slice(from * BLOCK_LEN..(from + map.len()) * BLOCK_LEN))
    }

    /// Blocks that a longer run lacks of these, as indices into `map`, if it has most of them.
    pub(super) fn lacks_few(&self, birth: u64, block: u64, map: &[(Ptr, u32)]) -> Option<Vec<usize>> {
        let (key, from) = self.around(birth, block, map.len())?;
        let run = self.runs.get(&key).filter(|r| r.blocks.len() > map.len())?;
        let known = run.blocks.get(from..from + map.len())?;
        let other: Vec<usize> = (0..map.len()).filter(|i| known.get(*i) != map.get(*i)).collect();
        (other.len() * 2 < map.len()).then_some(other)
    }

    /// Adds verified blocks of an object. Runs that have some of them leave.
    pub(super) fn put(&mut self, birth: u64, block: u64, map: &[(Ptr, u32)], data: Bytes, charged: usize) {
        debug_assert_eq!(data.len(), map.len() * BLOCK_LEN, "a run has the data of its blocks");
        let end = block.saturating_add(map.len() as u64);
        while let Some((key, run)) = self.runs.range((birth, 0)..(birth, end)).next_back() {
            if key.1 + run.blocks.len() as u64 <= block {
                break;
            }
            let key = *key;
            self.remove(key);
        }
        self.last_id += 1;
        let run = Run { id: self.last_id, blocks: map.into(), data, charged, used: false };
        self.charged += charged;
        self.runs.insert((birth, block), run);
        if self.order.len() >= self.runs.len() * ORDER_SLACK.0 + ORDER_SLACK.1 {
            let runs = &self.runs;
            self.order.retain(|(at, id)| runs.get(at).is_some_and(|r| r.id == *id));
        }
        self.order.push_back(((birth, block), self.last_id));
    }

    fn remove(&mut self, key: Key) {
        if let Some(run) = self.runs.remove(&key) {
            self.charged -= run.charged;
        }
    }

    /// Removes the oldest run that was not used since it came or was passed over, or the one after [`PASSES_MAX`] used
    /// ones. False if there is none.
    pub(super) fn evict(&mut self) -> bool {
        let mut passes = 0;
        while let Some((key, id)) = self.order.pop_front() {
            match self.runs.get_mut(&key).filter(|r| r.id == id) {
                Some(r) if r.used && passes < PASSES_MAX => {
                    passes += 1;
                    r.used = false;
                    self.order.push_back((key, id));
                }
                Some(_) => {
                    self.remove(key);
                    return true;
                }
                None => {}
            }
        }
        false
    }
}

/// The parts of a map between holes: index of the first entry, and length.
pub(super) fn without_holes(map: &[(Ptr, u32)]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += map.get(at..)?.iter().take_while(|(p, _)| p.is_hole()).count();
        let n = map.get(at..)?.iter().take_while(|(p, _)| !p.is_hole()).count();
        at += n;
        (n > 0).then_some((at - n, n))
    })
}

const _: () = assert!(BLOCK_LEN as u64 == BLOCK);

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    fn map(first: u64, versions: &[u32]) -> Vec<(Ptr, u32)> {
        (first..).zip(versions).map(|(p, v)| (Ptr::new(p, *v), v * 100)).collect()
    }

    fn data(n: usize, with: u8) -> Bytes {
        Bytes::from(vec![with; n * BLOCK_LEN])
    }

    #[test]
    fn a_part_of_a_run_is_found_by_object_block_pointer_and_checksum() {
        let mut r = Runs::default();
        let mut m = map(100, &[1, 2, 3, 4]);
        m[2] = (Ptr::new(700, 3), 300);
        m.push((Ptr::HOLE, 0));
        r.put(7, 40, &m, data(5, 9), 5);
        assert_eq!(r.get(7, 40, &m).unwrap().len(), 5 * BLOCK_LEN);
        assert_eq!(r.get(7, 42, &m[2..]).unwrap().len(), 3 * BLOCK_LEN);
        assert!(r.get(8, 40, &m).is_none() && r.get(6, 40, &m).is_none(), "another object");
        assert!(r.get(7, 41, &m[..2]).is_none(), "other blocks");
        for i in 0..4 {
            let mut other = m.clone();
            other[i].0 = Ptr::new(other[i].0.phys(), 9);
            assert!(r.get(7, 40, &other).is_none(), "another version");
            other[i] = (Ptr::new(900, m[i].0.version()), m[i].1);
            assert!(r.get(7, 40, &other).is_none(), "another place");
            other[i] = (m[i].0, m[i].1 + 1);
            assert!(r.get(7, 40, &other).is_none(), "another checksum");
            other[i] = (Ptr::HOLE, 0);
            assert!(r.get(7, 40, &other).is_none(), "a hole");
        }
        m.push((Ptr::HOLE, 0));
        assert!(r.get(7, 40, &m).is_none(), "more than there is");
        assert!(r.get(7, 39, &m[..1]).is_none() && r.get(7, 40, &[]).is_none());
    }

    #[test]
    fn a_run_takes_the_blocks_of_others() {
        let mut r = Runs::default();
        r.put(1, 10, &map(10, &[1; 4]), data(4, 1), 4);
        r.put(1, 14, &map(14, &[1; 4]), data(4, 2), 4);
        r.put(1, 18, &map(18, &[1; 4]), data(4, 3), 4);
        r.put(2, 13, &map(80, &[1; 4]), data(4, 3), 4);
        r.put(1, 13, &map(50, &[5; 2]), data(2, 4), 2);
        assert_eq!((r.runs.len(), r.charged()), (3, 10));
        assert!(r.get(1, 18, &map(18, &[1; 4])).is_some() && r.get(1, 13, &map(50, &[5; 2])).is_some());
        assert!(r.get(2, 13, &map(80, &[1; 4])).is_some(), "of another object");
    }

    #[test]
    fn a_longer_run_tells_the_few_blocks_that_it_lacks() {
        let mut r = Runs::default();
        let m = map(100, &[1; 8]);
        r.put(1, 10, &m, data(8, 1), 8);
        let mut part = m[2..7].to_vec();
        part[1] = (Ptr::new(900, 2), 5);
        assert_eq!(r.lacks_few(1, 12, &part), Some(vec![1]));
        part[0] = (Ptr::HOLE, 0);
        part[4] = (Ptr::HOLE, 0);
        assert_eq!(r.lacks_few(1, 12, &part), None, "most are others");
        assert_eq!((r.lacks_few(1, 10, &m), r.lacks_few(1, 14, &m), r.lacks_few(2, 12, &m[2..4])), (None, None, None));
    }

    #[test]
    fn runs_leave_in_order_and_those_in_use_last() {
        let mut r = Runs::default();
        for i in 0..4 {
            r.put(i, 0, &map(i * 10, &[1; 2]), data(2, 1), 2);
        }
        assert!(r.get(0, 0, &map(0, &[1; 2])).is_some());
        let gone = |r: &mut Runs| {
            let before: Vec<Key> = r.runs.keys().copied().collect();
            assert!(r.evict());
            before.into_iter().find(|k| !r.runs.contains_key(k)).unwrap().0
        };
        assert_eq!((gone(&mut r), gone(&mut r), gone(&mut r), gone(&mut r)), (1, 2, 3, 0));
        assert!(!r.evict());
        assert_eq!((r.charged(), r.order.len()), (0, 0));
    }

    /// A range that is rewritten and read a hundred thousand times has one run, and little order.
    #[test]
    fn the_order_does_not_grow_with_history() {
        let mut r = Runs::default();
        for v in 0..100_000 {
            r.put(1, 0, &map(10, &[v]), data(1, 1), 1);
            assert!(r.order.len() <= ORDER_SLACK.0 + ORDER_SLACK.1, "{}", r.order.len());
        }
        assert_eq!((r.runs.len(), r.charged()), (1, 1));
    }

    /// Against a model that knows what each block of each object was last.
    #[test]
    fn a_found_run_is_the_one_that_was_put() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut r = Runs::default();
            let mut truth: BTreeMap<Key, (u64, u32, u8)> = BTreeMap::new();
            for step in 0..200_u32 {
                let (birth, block, n) = (rng.below(3), rng.below(64), 1 + rng.below(8));
                let places: Vec<u64> = (0..n).map(|_| rng.below(1000) + 1).collect();
                let m: Vec<(Ptr, u32)> = places.iter().map(|p| (Ptr::new(*p, step), step)).collect();
                r.put(birth, block, &m, data(n as usize, step as u8), charge(n as usize));
                for (b, p) in (block..).zip(&places) {
                    truth.insert((birth, b), (*p, step, step as u8));
                }
                if rng.below(4) == 0 {
                    r.evict();
                }
                let key = (rng.below(3), rng.below(72));
                let Some((place, version, with)) = truth.get(&key).copied() else { continue };
                if let Some(d) = r.get(key.0, key.1, &[(Ptr::new(place, version), version)]) {
                    assert!(d.iter().all(|b| *b == with), "seed {seed}, step {step}");
                }
                assert_eq!(r.charged(), r.runs.values().map(|x| charge(x.blocks.len())).sum::<usize>());
            }
        }
    }

    #[test]
    fn a_map_splits_at_holes() {
        let p = |n| (Ptr::new(n, 1), 0);
        let hole = (Ptr::HOLE, 0);
        let parts = |m: &[(Ptr, u32)]| without_holes(m).collect::<Vec<_>>();
        assert_eq!(parts(&[]), []);
        assert_eq!(parts(&[hole, hole]), []);
        assert_eq!(parts(&[hole, p(5), p(9), hole, p(10), p(11), hole]), [(1, 2), (4, 2)]);
    }
}
