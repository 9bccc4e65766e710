//! Free space: one bitmap for the device, shared by the stores of its reactors, and allocation in groups.
//!
//! This is the only state that stores of one device share. It uses atomics, is touched once per allocated run,
//! and never locked. A group is a range of blocks that one allocation stream fills from start to end, so that
//! blocks written together are adjacent. Random overwrites of one loop turn thus become one sequential write.
//! Claims of groups are hints; the bits decide.
//!
//! `stream` has streams of allocation: the places of the blocks of one kind of writes, one after the other.
//!
//! Invariants:
//!  1. `avail` = free bits − reserved blocks; a block is allocated only out of a reservation.
//!  2. A block's bit is set from its allocation until a durable checkpoint without references releases it
//!     (`engine::checkpoint`).
//!
//! `meta::used` stores the bitmap, and opening builds it from that.
//!
//! Tests: below (1), `tests/histories.rs` (2; planted bug `StoreEarlyRelease`).

mod stream;

pub(crate) use stream::Stream;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

/// Runs of blocks: `(first, count)`.
pub(crate) type Runs = smallvec::SmallVec<[(u64, u32); 1]>;

/// Bounds of the reserve for transactions that make room.
const REMOVAL_BLOCKS_MIN: u64 = 1024;
const REMOVAL_BLOCKS_MAX: u64 = 1 << 18;

const GROUP_BLOCKS_MIN: u64 = 1 << 8;
const GROUP_BLOCKS_MAX: u64 = 1 << 18;
/// Least groups of a device of 4 GiB or more: 64 for each shard, so that many streams don't starve each other.
const GROUPS: u64 = 64 * crate::layout::SHARDS as u64;

/// Most extensions of the space between two openings of a device.
pub(crate) const EXTENSIONS_MAX: usize = 32;

/// Block number that stands for no block.
const NONE: u64 = u64::MAX;

#[derive(Default)]
struct Group {
    free: AtomicU32,
    claimed: AtomicBool,
    /// True if a block of the group was allocated since the device was opened, or was in use then.
    touched: AtomicBool,
}

/// Bits and groups of an extension of an open device.
struct Extension {
    first_word: usize,
    words: Vec<AtomicU64>,
    first_group: usize,
    groups: Vec<Group>,
}

/// Free space of a device; see the module.
pub(crate) struct Space {
    start: u64,
    end: AtomicU64,
    group_blocks: u64,
    words: Vec<AtomicU64>,
    groups: Vec<Group>,
    extensions: [OnceLock<Extension>; EXTENSIONS_MAX],
    /// Stands for words and groups that do not exist: nothing is free.
    nowhere: (AtomicU64, Group),
    avail: AtomicU64,
    /// Blocks that all stores together reserve for their checkpoints.
    headroom: AtomicU64,
    /// The part of `headroom` that stays reserved when all dirty pages are stored.
    least: AtomicU64,
    /// Blocks that hosts fill for the stores: allocated, but soon free again.
    lent: AtomicU64,
    /// Blocks without references that are free again after a checkpoint of their store, as of the ends of turns.
    coming: AtomicU64,
    /// Number of requests for such checkpoints, by stores that found no room.
    presses: AtomicU64,
    /// Number of times that a store has released blocks or taken back its part of `coming`.
    releases: AtomicU64,
    /// Metadata blocks of all stores, as of the ends of their turns.
    metadata: AtomicI64,
    /// A block that was freed while free, or `NONE`.
    freed_twice: AtomicU64,
}

impl Space {
    /// Bytes of memory of the bitmap.
    pub(crate) fn mem(&self) -> usize {
        let more = self.extensions.iter().filter_map(OnceLock::get).map(|e| e.words.len()).sum::<usize>();
        (self.words.len() + more) * 8
    }

    /// Space in which all blocks are free.
    pub(crate) fn new(start: u64, end: u64) -> Self {
        let group_blocks = (1 << ((end - start) / GROUPS).max(1).ilog2()).clamp(GROUP_BLOCKS_MIN, GROUP_BLOCKS_MAX);
        let n = end.div_ceil(group_blocks);
        let s = Self {
            start,
            end: AtomicU64::new(end),
            group_blocks,
            words: (0..end.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            groups: (0..n).map(|_| Group::default()).collect(),
            extensions: [const { OnceLock::new() }; EXTENSIONS_MAX],
            nowhere: (AtomicU64::new(u64::MAX), Group::default()),
            avail: AtomicU64::new(end - start),
            headroom: AtomicU64::new(0),
            least: AtomicU64::new(0),
            coming: AtomicU64::new(0),
            presses: AtomicU64::new(0),
            releases: AtomicU64::new(0),
            lent: AtomicU64::new(0),
            metadata: AtomicI64::new(0),
            freed_twice: AtomicU64::new(NONE),
        };
        for b in (0..start).chain(end..end.next_multiple_of(64)) {
            s.words[(b / 64) as usize].fetch_or(1 << (b % 64), Ordering::Relaxed);
        }
        for (i, g) in s.groups.iter().enumerate() {
            let (lo, hi) = (i as u64 * group_blocks, (i as u64 + 1) * group_blocks);
            g.free.store(hi.min(end).saturating_sub(lo.max(start)) as u32, Ordering::Relaxed);
        }
        s
    }

    fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    fn word(&self, i: u64) -> &AtomicU64 {
        match self.words.get(i as usize) {
            Some(w) => w,
            None => self.later_word(i as usize),
        }
    }

    #[cold]
    fn later_word(&self, i: usize) -> &AtomicU64 {
        let mut extensions = self.extensions.iter().map_while(OnceLock::get);
        extensions.find_map(|e| e.words.get(i.checked_sub(e.first_word)?)).unwrap_or(&self.nowhere.0)
    }

    fn group(&self, g: usize) -> Option<&Group> {
        let later = || {
            let mut extensions = self.extensions.iter().map_while(OnceLock::get);
            extensions.find_map(|e| e.groups.get(g.checked_sub(e.first_group)?))
        };
        self.groups.get(g).or_else(later)
    }

    fn group_of(&self, block: u64) -> &Group {
        // A power of two: a division would cost more than the rest.
        self.group((block >> self.group_blocks.trailing_zeros()) as usize).unwrap_or(&self.nowhere.1)
    }

    fn all_groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().chain(self.extensions.iter().map_while(OnceLock::get).flat_map(|e| &e.groups))
    }

    /// True if another [`Space::extend`] is possible.
    pub(crate) fn extensible(&self) -> bool {
        self.extensions.last().is_some_and(|e| e.get().is_none())
    }

    /// Adds the free blocks between the present end and `end`. One caller at a time.
    pub(crate) fn extend(&self, end: u64) {
        let old = self.end();
        let Some(at) = self.extensions.iter().position(|e| e.get().is_none()).filter(|_| end > old) else { return };
        let earlier = self.extensions.get(at.wrapping_sub(1)).and_then(OnceLock::get);
        let (first_word, first_group) = earlier.map_or((self.words.len(), self.groups.len()), |e| {
            (e.first_word + e.words.len(), e.first_group + e.groups.len())
        });
        let words = (end.div_ceil(64) as usize).saturating_sub(first_word);
        let groups = (end.div_ceil(self.group_blocks) as usize).saturating_sub(first_group);
        let new = Extension {
            first_word,
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            first_group,
            groups: (0..groups).map(|_| Group::default()).collect(),
        };
        if self.extensions.get(at).is_none_or(|e| e.set(new).is_err()) {
            return;
        }
        // Bits beyond the end count as used; so did those beyond the old end in its last word.
        for b in end..end.next_multiple_of(64) {
            self.word(b / 64).fetch_or(1 << (b % 64), Ordering::Relaxed);
        }
        for b in old..old.next_multiple_of(64).min(end) {
            self.word(b / 64).fetch_and(!(1 << (b % 64)), Ordering::Relaxed);
        }
        self.end.store(end, Ordering::Release);
        for g in old / self.group_blocks..end.div_ceil(self.group_blocks) {
            let (lo, hi) = ((g * self.group_blocks).max(old), ((g + 1) * self.group_blocks).min(end));
            self.group_of(lo).free.fetch_add((hi - lo) as u32, Ordering::Relaxed);
        }
        self.avail.fetch_add(end - old, Ordering::AcqRel);
    }

    /// Number of blocks.
    pub(crate) fn total(&self) -> u64 {
        self.end() - self.start
    }

    /// Free, unreserved blocks, without the reserves for checkpoints and removals.
    pub(crate) fn available(&self) -> u64 {
        self.spare().saturating_sub(self.for_removals())
    }

    /// Free, unreserved blocks, without the reserve for checkpoints.
    pub(crate) fn spare(&self) -> u64 {
        self.avail.load(Ordering::Relaxed).saturating_sub(self.headroom.load(Ordering::Relaxed))
    }

    /// Blocks that only transactions that make room may take.
    pub(crate) fn for_removals(&self) -> u64 {
        (self.total() / 64).clamp(REMOVAL_BLOCKS_MIN, REMOVAL_BLOCKS_MAX)
    }

    /// Free, unreserved blocks.
    pub(crate) fn unreserved(&self) -> u64 {
        self.avail.load(Ordering::Relaxed)
    }

    /// Takes note that the host has `n` allocated blocks that will be free again.
    pub(crate) fn lend(&self, n: u64) {
        self.lent.fetch_add(n, Ordering::Relaxed);
    }

    /// Takes note that `n` blocks with the host are free again.
    pub(crate) fn returned(&self, n: u64) {
        self.lent.fetch_sub(n, Ordering::Relaxed);
    }

    /// Blocks with the host.
    pub(crate) fn lent(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    /// Changes one store's share of the reserve for checkpoints.
    pub(crate) fn change_headroom(&self, old: u64, new: u64) {
        change(&self.headroom, old, new);
    }

    /// Changes one store's share of the reserve that stays when all dirty pages are stored.
    pub(crate) fn change_least(&self, old: u64, new: u64) {
        if old != new {
            change(&self.least, old, new);
        }
    }

    /// Blocks of the reserve for checkpoints that are free again when all stores have stored their dirty pages.
    pub(crate) fn for_dirty(&self) -> u64 {
        self.headroom.load(Ordering::Relaxed).saturating_sub(self.least.load(Ordering::Relaxed))
    }

    /// Changes one store's share of the blocks that its checkpoints will release.
    pub(crate) fn change_coming(&self, old: u64, new: u64) {
        change(&self.coming, old, new);
    }

    /// Blocks that checkpoints of all stores will release.
    pub(crate) fn coming(&self) -> u64 {
        self.coming.load(Ordering::Relaxed)
    }

    /// Asks every store for a checkpoint that releases its blocks.
    pub(crate) fn press(&self) {
        self.presses.fetch_add(1, Ordering::Release);
    }

    /// Number of calls of [`Space::press`].
    pub(crate) fn presses(&self) -> u64 {
        self.presses.load(Ordering::Acquire)
    }

    /// Tells every store that blocks have become free, or will not become free.
    pub(crate) fn note_release(&self) {
        self.releases.fetch_add(1, Ordering::Release);
    }

    /// Number of calls of [`Space::note_release`].
    pub(crate) fn releases(&self) -> u64 {
        self.releases.load(Ordering::Acquire)
    }

    /// Changes one store's share of the metadata blocks.
    pub(crate) fn change_metadata(&self, by: i64) {
        if by != 0 {
            self.metadata.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Metadata blocks of all stores.
    pub(crate) fn metadata(&self) -> u64 {
        self.metadata.load(Ordering::Relaxed).max(0) as u64
    }

    /// Reserves `n` blocks if the reserve for checkpoints and `leave` more blocks stay free.
    pub(crate) fn reserve_leaving(&self, n: u64, leave: u64) -> bool {
        let leave = self.headroom.load(Ordering::Relaxed).saturating_add(leave);
        self.reserve_down_to(n, leave)
    }

    /// Reserves `n` blocks, also out of the reserve for checkpoints.
    pub(crate) fn reserve(&self, n: u64) -> bool {
        self.reserve_down_to(n, 0)
    }

    fn reserve_down_to(&self, n: u64, leave: u64) -> bool {
        self.avail
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |a| (a >= n.saturating_add(leave)).then(|| a - n))
            .is_ok()
    }

    /// Returns an unused reservation.
    pub(crate) fn unreserve(&self, n: u64) {
        if n > 0 {
            self.avail.fetch_add(n, Ordering::AcqRel);
        }
    }

    /// Frees blocks, which are available at once. A block that is free already is not counted again, and
    /// [`Space::freed_twice`] reports it.
    pub(crate) fn release(&self, first: u64, n: u32) {
        let (mut b, end, mut freed) = (first, first + u64::from(n), 0);
        while b < end {
            // Groups consist of whole words.
            let k = (64 - b % 64).min(end - b);
            let mask = if k == 64 { u64::MAX } else { ((1 << k) - 1) << (b % 64) };
            let were = mask & self.word(b / 64).fetch_and(!mask, Ordering::AcqRel);
            if were != mask {
                self.freed_twice.store(b / 64 * 64 + u64::from((mask & !were).trailing_zeros()), Ordering::Relaxed);
            }
            self.group_of(b).free.fetch_add(were.count_ones(), Ordering::Relaxed);
            freed += u64::from(were.count_ones());
            b += k;
        }
        self.avail.fetch_add(freed, Ordering::AcqRel);
    }

    /// A block that was freed while free. The record of used blocks is then wrong, and no store may go on
    /// writing.
    pub(crate) fn freed_twice(&self) -> Option<u64> {
        Some(self.freed_twice.load(Ordering::Relaxed)).filter(|b| *b != NONE)
    }

    /// Toggles the bits of page `number` of a stored map. [`Space::recount`] must follow.
    pub(crate) fn turn_over(&self, number: u32, bits: &[u64]) {
        let first = u64::from(number) * crate::meta::used::WORDS as u64;
        for (i, b) in (first..).zip(bits) {
            if let Some(w) = self.words.get(i as usize) {
                w.fetch_xor(*b, Ordering::Relaxed);
            }
        }
    }

    /// Recounts the free blocks from the bits.
    pub(crate) fn recount(&self) {
        let mut all = 0;
        for (i, g) in self.groups.iter().enumerate() {
            let (lo, hi) = (i as u64 * self.group_blocks, ((i as u64 + 1) * self.group_blocks).min(self.end()));
            let (lo, hi) = (lo.max(self.start), hi.max(lo.max(self.start)));
            let mut free = 0;
            let mut b = lo;
            while b < hi {
                let w = self.word(b / 64).load(Ordering::Relaxed);
                let k = (64 - b % 64).min(hi - b);
                let mask = if k == 64 { u64::MAX } else { ((1 << k) - 1) << (b % 64) };
                free += u64::from((!w & mask).count_ones());
                b += k;
            }
            g.free.store(free as u32, Ordering::Relaxed);
            g.touched.store(free < hi - lo, Ordering::Relaxed);
            all += free;
        }
        self.avail.store(all, Ordering::Relaxed);
    }

    /// Marks a block as used while opening. Returns false if it was marked already.
    pub(crate) fn mark(&self, b: u64) -> bool {
        let mask = 1 << (b % 64);
        if self.word(b / 64).fetch_or(mask, Ordering::Relaxed) & mask != 0 {
            return false;
        }
        let group = self.group_of(b);
        group.free.fetch_sub(1, Ordering::Relaxed);
        group.touched.store(true, Ordering::Relaxed);
        self.avail.fetch_sub(1, Ordering::Relaxed);
        true
    }

    /// True if the block is in use, for checks.
    pub(crate) fn used(&self, b: u64) -> bool {
        self.word(b / 64).load(Ordering::Relaxed) & (1 << (b % 64)) != 0
    }
}

/// Changes one store's share of a sum.
fn change(sum: &AtomicU64, old: u64, new: u64) {
    if new >= old {
        sum.fetch_add(new - old, Ordering::Relaxed);
    } else {
        sum.fetch_sub(old - new, Ordering::Relaxed);
    }
}

/// Appends a run, joined to the last one if it continues it.
pub(crate) fn push_run<A: smallvec::Array<Item = (u64, u32)>>(out: &mut smallvec::SmallVec<A>, first: u64, n: u32) {
    if !continues(out, first, n) {
        out.push((first, n));
    }
}

/// Extends the last run if `(first, n)` continues it. Returns true then.
pub(crate) fn continues(runs: &mut [(u64, u32)], first: u64, n: u32) -> bool {
    match runs.last_mut() {
        Some(l) if l.0 + u64::from(l.1) == first && l.1.checked_add(n).is_some() => {
            l.1 += n;
            true
        }
        _ => false,
    }
}

/// Block numbers of some runs.
pub(crate) fn blocks_of(runs: &[(u64, u32)]) -> impl Iterator<Item = u64> {
    runs.iter().flat_map(|(first, n)| *first..*first + u64::from(*n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn random_use_equals_a_set() {
        let s = Space::new(70, 70 + 5000);
        let mut rng = Rng::new(3);
        let mut streams = [Stream::default(), Stream::default()];
        let mut used: BTreeSet<u64> = BTreeSet::new();
        for _ in 0..3000 {
            if rng.chance(1, 2) {
                let n = rng.below(200) + 1;
                if !s.reserve_leaving(n, 0) {
                    assert!(s.spare() < n);
                    continue;
                }
                let mut runs = Runs::new();
                assert_eq!(s.take(&mut streams[rng.below(2) as usize], n, &mut runs), n);
                for (f, c) in runs {
                    for b in f..f + u64::from(c) {
                        assert!((70..5070).contains(&b) && used.insert(b));
                    }
                }
            } else if let Some(b) = used.iter().nth(rng.below(used.len() as u64) as usize).copied() {
                used.remove(&b);
                s.release(b, 1);
            }
            assert_eq!(s.spare() + used.len() as u64, 5000);
        }
        assert!((70..5070).all(|b| s.used(b) == used.contains(&b)));
    }

    #[test]
    fn a_block_that_is_freed_twice_is_noticed_and_counted_once() {
        let s = Space::new(70, 70 + 5000);
        let mut runs = Runs::new();
        assert!(s.reserve(3));
        s.take(&mut Stream::default(), 3, &mut runs);
        let first = runs[0].0;
        s.release(first + 1, 1);
        assert_eq!((s.freed_twice(), s.unreserved()), (None, 4998));
        s.release(first, 3);
        assert_eq!((s.freed_twice(), s.unreserved()), (Some(first + 1), 5000));
    }

    #[test]
    fn space_added_while_open_is_used_like_the_rest() {
        for (start, ends) in
            [(70, [5070, 5071, 5200, 9001]), (0, [4096, 8192, 8193, 8256]), (10, [300, 1000, 70_000, 70_001])]
        {
            let s = Space::new(start, ends[0]);
            let mut streams = [Stream::default(), Stream::reusing()];
            let mut used: BTreeSet<u64> = BTreeSet::new();
            let mut rng = Rng::new(7);
            for end in ends {
                s.extend(end);
                assert_eq!((s.total(), s.unreserved()), (end - start, end - start - used.len() as u64));
                // All blocks can be taken, none beyond the end, and none twice.
                while s.unreserved() > 0 {
                    let n = (rng.below(300) + 1).min(s.unreserved());
                    assert!(s.reserve(n));
                    let mut runs = Runs::new();
                    assert_eq!(s.take(&mut streams[rng.below(2) as usize], n, &mut runs), n);
                    for b in blocks_of(&runs) {
                        assert!((start..end).contains(&b) && used.insert(b), "block {b} of {start}..{end}");
                    }
                }
                // Keeps some blocks, so that the next round meets holes.
                for b in used.iter().copied().filter(|b| b % 7 == 3).collect::<Vec<_>>() {
                    used.remove(&b);
                    s.release(b, 1);
                }
                assert!((start..end).all(|b| s.used(b) == used.contains(&b)));
                assert!(s.used(end) && s.used(end + 1000));
            }
        }
        let s = Space::new(0, 1000);
        (0..EXTENSIONS_MAX as u64 + 5).for_each(|i| s.extend(1001 + i));
        assert_eq!((s.total(), s.extensible()), (1000 + EXTENSIONS_MAX as u64, false));
    }

    #[test]
    fn small_allocations_stay_where_something_was_freed() {
        let s = Space::new(0, 1 << 16);
        let mut small = Stream::reusing();
        let mut held = std::collections::VecDeque::new();
        let mut highest = 0;
        // Overwrites of a small set free as many blocks as they allocate.
        for _ in 0..100_000 {
            let mut runs = Runs::new();
            assert!(s.reserve(1));
            s.take(&mut small, 1, &mut runs);
            highest = highest.max(runs[0].0);
            held.push_back(runs[0].0);
            if held.len() > 5000
                && let Some(b) = held.pop_front()
            {
                s.release(b, 1);
            }
        }
        assert!(highest < 4 * 5000, "walked to block {highest}");
        // Large allocations look for contiguous room: between groups in use first, then the rest.
        let mut runs = Runs::new();
        assert!(s.reserve(5000));
        s.take(&mut Stream::default(), 5000, &mut runs);
        assert!(runs.len() <= 2, "{runs:?}");
    }

    #[test]
    fn offered_places_are_taken_first() {
        let s = Space::new(70, 70 + 5000);
        let (mut st, mut other) = (Stream::reusing(), Stream::default());
        let take = |st: &mut Stream, n: u64| {
            let mut runs = Runs::new();
            assert!(s.reserve(n));
            assert_eq!(s.take(st, n, &mut runs), n);
            blocks_of(&runs).collect::<Vec<_>>()
        };
        assert_eq!(take(&mut st, 3).len(), 3);
        let there = take(&mut other, 600);
        let runs = [(there[0], 100), (there[200], 400)];
        runs.iter().for_each(|r| s.release(r.0, r.1));
        s.offer(&mut st, &runs);
        assert_eq!(st.ahead(), 500);
        // Blocks that another stream took are left out; the place after them lies in two groups.
        s.word(there[50] / 64).fetch_or(1 << (there[50] % 64), Ordering::Relaxed);
        let got = take(&mut st, 499);
        let want: Vec<u64> =
            there.iter().enumerate().filter(|(i, _)| *i != 50 && (*i < 100 || *i >= 200)).map(|x| *x.1).collect();
        assert_eq!((got, st.ahead()), (want, 0));
        assert_eq!(take(&mut st, 1).len(), 1, "the rest comes from a group");
    }

    #[test]
    fn every_shard_could_have_64_groups_from_4_gib_up() {
        for gib in [4, 5, 7, 8, 100, 1000] {
            let l = crate::layout::Layout::of(gib << 30).unwrap();
            let s = Space::new(l.space_start, l.space_end);
            let whole = (l.space_end - l.space_start) / s.group_blocks;
            assert!(whole >= 64 * u64::from(crate::layout::SHARDS), "{whole} groups of {gib} GiB");
        }
    }

    #[test]
    fn an_empty_device_allocates_in_sequence() {
        let s = Space::new(300, 1 << 20);
        let mut st = Stream::default();
        let mut runs = Runs::new();
        for _ in 0..100 {
            assert!(s.reserve(3));
            s.take(&mut st, 3, &mut runs);
        }
        assert_eq!(runs.len(), 1);
    }
}
