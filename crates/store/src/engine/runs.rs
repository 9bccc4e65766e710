//! Runs of blocks that large reads brought, kept in the buffers into which they were read.
//!
//! A run is found by its place on the device. It knows object, version and checksum of each of its blocks as they were
//! verified when it was read. Whoever has another map finds nothing, so a stale run is a miss, never wrong data.
//!
//! Invariants:
//!  1. No two runs share a place.
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

/// Blocks of one object that lie side by side on the device.
#[derive(Debug)]
struct Run {
    /// Number of the run in the order of eviction.
    id: u64,
    /// Object, and number of its first block.
    birth: u64,
    block: u64,
    /// Version and checksum of each block.
    blocks: Box<[(u32, u32)]>,
    data: Bytes,
    charged: usize,
    /// Asked for since it came or was passed over.
    used: bool,
}

/// Runs by first place; see the module.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: BTreeMap<u64, Run>,
    order: VecDeque<(u64, u64)>,
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

    /// Data of blocks that lie side by side from that of `map`'s first entry. `block`: number of the first one in the object.
    pub(super) fn get(&mut self, birth: u64, block: u64, map: &[(Ptr, u32)]) -> Option<Bytes> {
        let phys = map.first()?.0.phys();
        let (first, run) = self.runs.range_mut(..=phys).next_back()?;
        let at = phys - first;
        let from = usize::try_from(at).ok()?;
        let known = run.blocks.get(from..from.checked_add(map.len())?)?;
        if run.birth != birth || run.block + at != block {
            return None;
        }
        if known.iter().zip(map).any(|((version, sum), (p, crc))| *version != p.version() || sum != crc) {
            return None;
        }
        run.used = true;
        Some(run.data.slice(from * BLOCK_LEN..(from + map.len()) * BLOCK_LEN))
    }

    /// Adds verified blocks that lie side by side. Runs in their places are stale, and leave.
    pub(super) fn put(&mut self, birth: u64, block: u64, map: &[(Ptr, u32)], data: Bytes, charged: usize) {
        let Some(first) = map.first().map(|e| e.0.phys()) else { return };
        debug_assert_eq!(data.len(), map.len() * BLOCK_LEN, "a run has the data of its blocks");
        let end = first + map.len() as u64;
        while let Some((at, run)) = self.runs.range(..end).next_back() {
            if at + run.blocks.len() as u64 <= first {
                break;
            }
            let at = *at;
            self.remove(at);
        }
        self.last_id += 1;
        let blocks = map.iter().map(|(p, crc)| (p.version(), *crc)).collect();
        let run = Run { id: self.last_id, birth, block, blocks, data, charged, used: false };
        self.charged += charged;
        self.runs.insert(first, run);
        if self.order.len() >= self.runs.len() * ORDER_SLACK.0 + ORDER_SLACK.1 {
            let runs = &self.runs;
            self.order.retain(|(at, id)| runs.get(at).is_some_and(|r| r.id == *id));
        }
        self.order.push_back((first, self.last_id));
    }

    fn remove(&mut self, first: u64) {
        if let Some(run) = self.runs.remove(&first) {
            self.charged -= run.charged;
        }
    }

    /// Removes the oldest run that was not used since it came or was passed over, or the one after [`PASSES_MAX`] used
    /// ones. False if there is none.
    pub(super) fn evict(&mut self) -> bool {
        let mut passes = 0;
        while let Some((first, id)) = self.order.pop_front() {
            match self.runs.get_mut(&first).filter(|r| r.id == id) {
                Some(r) if r.used && passes < PASSES_MAX => {
                    passes += 1;
                    r.used = false;
                    self.order.push_back((first, id));
                }
                Some(_) => {
                    self.remove(first);
                    return true;
                }
                None => {}
            }
        }
        false
    }
}

/// Splits a map into parts that lie side by side on the device: index of the first entry, and length. Holes are in none.
pub(super) fn side_by_side(map: &[(Ptr, u32)]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        at += map.get(at..)?.iter().take_while(|(p, _)| p.is_hole()).count();
        let rest = map.get(at..).filter(|r| !r.is_empty())?;
        let first = rest[0].0.phys();
        let n = (0_u64..).zip(rest).take_while(|(i, (p, _))| !p.is_hole() && p.phys() == first + i).count();
        at += n;
        Some((at - n, n))
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
    fn a_part_of_a_run_is_found_by_place_object_version_and_checksum() {
        let mut r = Runs::default();
        let m = map(100, &[1, 2, 3, 4]);
        r.put(7, 40, &m, data(4, 9), 4);
        assert_eq!(r.get(7, 40, &m).unwrap().len(), 4 * BLOCK_LEN);
        assert_eq!(r.get(7, 42, &m[2..]).unwrap().len(), 2 * BLOCK_LEN);
        assert!(r.get(8, 40, &m).is_none(), "another object");
        assert!(r.get(7, 41, &m).is_none(), "other blocks");
        assert!(r.get(7, 40, &map(100, &[1, 2, 9, 4])).is_none(), "another version");
        assert!(r.get(7, 40, &map(100, &[1, 2, 3, 4, 5])).is_none(), "more than there is");
        let mut sums = m.clone();
        sums[1].1 += 1;
        assert!(r.get(7, 40, &sums).is_none(), "another checksum");
        assert!(r.get(7, 41, &map(200, &[1])).is_none() && r.get(7, 40, &[]).is_none());
    }

    #[test]
    fn a_run_takes_the_places_of_stale_ones() {
        let mut r = Runs::default();
        r.put(1, 0, &map(10, &[1; 4]), data(4, 1), 4);
        r.put(1, 4, &map(14, &[1; 4]), data(4, 2), 4);
        r.put(1, 8, &map(18, &[1; 4]), data(4, 3), 4);
        r.put(2, 0, &map(13, &[5; 2]), data(2, 4), 2);
        assert_eq!((r.runs.len(), r.charged()), (2, 6));
        assert!(r.get(1, 8, &map(18, &[1; 4])).is_some() && r.get(2, 0, &map(13, &[5; 2])).is_some());
    }

    #[test]
    fn runs_leave_in_order_and_those_in_use_last() {
        let mut r = Runs::default();
        for i in 0..4 {
            r.put(i, 0, &map(i * 10, &[1; 2]), data(2, 1), 2);
        }
        assert!(r.get(0, 0, &map(0, &[1; 2])).is_some());
        let gone = |r: &mut Runs| {
            let before: Vec<u64> = r.runs.keys().copied().collect();
            assert!(r.evict());
            before.into_iter().find(|k| !r.runs.contains_key(k)).unwrap()
        };
        assert_eq!((gone(&mut r), gone(&mut r), gone(&mut r), gone(&mut r)), (10, 20, 30, 0));
        assert!(!r.evict());
        assert_eq!((r.charged(), r.order.len()), (0, 0));
    }

    /// A place that is rewritten and read a hundred thousand times has one run, and little order.
    #[test]
    fn the_order_does_not_grow_with_history() {
        let mut r = Runs::default();
        for v in 0..100_000 {
            r.put(1, 0, &map(10, &[v]), data(1, 1), 1);
            assert!(r.order.len() <= ORDER_SLACK.0 + ORDER_SLACK.1, "{}", r.order.len());
        }
        assert_eq!((r.runs.len(), r.charged()), (1, 1));
    }

    /// Against a model that knows which blocks each place had last.
    #[test]
    fn a_found_run_is_the_one_that_was_put() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut r = Runs::default();
            let mut truth: BTreeMap<u64, (u64, u64, u32, u8)> = BTreeMap::new();
            for step in 0..200_u32 {
                let (first, n) = (rng.below(64), 1 + rng.below(8));
                let (birth, block) = (rng.below(3), rng.below(4));
                let m: Vec<(Ptr, u32)> = (first..first + n).map(|p| (Ptr::new(p, step), step)).collect();
                r.put(birth, block, &m, data(n as usize, step as u8), charge(n as usize));
                for p in first..first + n {
                    truth.insert(p, (birth, block + p - first, step, step as u8));
                }
                if rng.below(4) == 0 {
                    r.evict();
                }
                let place = rng.below(72);
                let Some((birth, block, version, with)) = truth.get(&place).copied() else { continue };
                if let Some(d) = r.get(birth, block, &[(Ptr::new(place, version), version)]) {
                    assert!(d.iter().all(|b| *b == with), "seed {seed}, step {step}");
                }
                assert_eq!(r.charged(), r.runs.values().map(|x| charge(x.blocks.len())).sum::<usize>());
            }
        }
    }

    #[test]
    fn a_map_splits_where_places_are_not_neighbours() {
        let p = |n| (Ptr::new(n, 1), 0);
        let hole = (Ptr::HOLE, 0);
        let parts = |m: &[(Ptr, u32)]| side_by_side(m).collect::<Vec<_>>();
        assert_eq!(parts(&[]), []);
        assert_eq!(parts(&[hole, hole]), []);
        assert_eq!(parts(&[p(5), p(6), p(9), hole, p(10), p(11)]), [(0, 2), (2, 1), (4, 2)]);
    }
}
