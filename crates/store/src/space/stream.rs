//! Streams of allocation: where the blocks of one kind of writes come from, one after the other.
//!
//! A stream goes through the places offered to it ([`Space::offer`]), then through groups that it claims. It takes
//! what is free there, whoever else allocates.

use super::{Runs, Space, push_run};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// State of one allocation stream.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    group: Option<usize>,
    pos: u64,
    /// Prefer used groups that are half empty to fresh ones, for small allocations, which lose little by it.
    /// The footprint on a sparse file then stays small, and its file system has nothing to allocate.
    reuse: bool,
    /// End of the present place, if it was offered; else the stream has claimed its group.
    until: Option<u64>,
    /// Places to go to before any group is claimed: first block and end, each within one group.
    offered: VecDeque<(u64, u64)>,
    /// Number of words and groups examined.
    pub(crate) looked: u64,
}

impl Stream {
    /// A stream for small allocations. The default stream is for large ones, which take the emptiest group.
    pub(crate) fn reusing() -> Self {
        Self { reuse: true, ..Self::default() }
    }

    /// Blocks in the places offered to the stream, as far as it has not passed them. Some may be in use by now.
    pub(crate) fn ahead(&self) -> u64 {
        let here = self.until.map_or(0, |end| end.saturating_sub(self.pos));
        here + self.offered.iter().map(|(first, end)| end - first).sum::<u64>()
    }
}

impl Space {
    /// Allocates `n` blocks out of a reservation, continuing at the stream's position, which gives few runs.
    /// Returns less than `n` only if the reservation did not exist.
    pub(crate) fn take(&self, stream: &mut Stream, n: u64, out: &mut Runs) -> u64 {
        let mut need = n;
        if stream.until.is_none() && !stream.offered.is_empty() {
            self.leave(stream);
        }
        while need > 0 {
            let Some(g) = stream.group.or_else(|| self.next_place(stream)) else { break };
            let end = ((g as u64 + 1) * self.group_blocks).min(self.end()).min(stream.until.unwrap_or(u64::MAX));
            let group = self.group(g).unwrap_or(&self.nowhere.1);
            while need > 0 && stream.pos < end {
                stream.looked += 1;
                let word = self.word(stream.pos / 64);
                let bit = stream.pos % 64;
                let free = !word.load(Ordering::Relaxed) & (u64::MAX << bit);
                let Some(first) = (free != 0).then(|| u64::from(free.trailing_zeros())) else {
                    stream.pos = (stream.pos / 64 + 1) * 64;
                    continue;
                };
                let run = u64::from((!(free >> first)).trailing_zeros()).min(need).min(64 - first);
                let mask = if run == 64 { u64::MAX } else { ((1 << run) - 1) << first };
                let base = stream.pos / 64 * 64;
                stream.pos = base + first + run;
                let mut got = mask & !word.fetch_or(mask, Ordering::AcqRel);
                while got != 0 {
                    let at = u64::from(got.trailing_zeros());
                    let len = u64::from((!(got >> at)).trailing_zeros()).min(64 - at);
                    got &= if at + len == 64 { (1 << at) - 1 } else { u64::MAX << (at + len) };
                    group.free.fetch_sub(len as u32, Ordering::Relaxed);
                    need -= len;
                    push_run(out, base + at, len as u32);
                }
            }
            if stream.pos >= end {
                self.leave(stream);
                if !stream.reuse {
                    self.claim_empty(stream, g + 1);
                }
            }
        }
        n - need
    }

    /// Offers free blocks to a stream, which takes what is still free of them before it claims a group.
    pub(crate) fn offer(&self, stream: &mut Stream, runs: &[(u64, u32)]) {
        for (first, n) in runs {
            let (mut at, end) = (*first, first + u64::from(*n));
            while at < end {
                let to = ((at / self.group_blocks + 1) * self.group_blocks).min(end);
                stream.offered.push_back((at, to));
                at = to;
            }
        }
    }

    fn leave(&self, stream: &mut Stream) {
        let group = stream.group.take().and_then(|g| self.group(g));
        if stream.until.take().is_none()
            && let Some(g) = group
        {
            g.claimed.store(false, Ordering::Relaxed);
        }
    }

    fn next_place(&self, stream: &mut Stream) -> Option<usize> {
        let Some((first, end)) = stream.offered.pop_front() else { return self.claim(stream) };
        (stream.group, stream.pos, stream.until) = (Some((first / self.group_blocks) as usize), first, Some(end));
        stream.group
    }

    /// Moves a stream back to the first block of space.
    pub(crate) fn rewind(&self, stream: &mut Stream) {
        self.leave(stream);
        let Some(g) = self.all_groups().position(|g| g.free.load(Ordering::Relaxed) > 0) else { return };
        stream.group = Some(g);
        stream.pos = (g as u64 * self.group_blocks).max(self.start);
    }

    /// Claims a group if it is completely free, so that a large allocation continues across groups.
    fn claim_empty(&self, stream: &mut Stream, g: usize) {
        let Some(group) = self.group(g) else { return };
        let all = u64::from(group.free.load(Ordering::Relaxed)) == self.group_blocks;
        if all && !group.claimed.swap(true, Ordering::Relaxed) {
            group.touched.store(true, Ordering::Relaxed);
            stream.group = Some(g);
            stream.pos = g as u64 * self.group_blocks;
        }
    }

    /// Group to fill next: by the stream's preference, else any group with a free block.
    fn claim(&self, stream: &mut Stream) -> Option<usize> {
        stream.looked += self.groups.len() as u64;
        // The emptiest group (the first of equals) among reused ones, among unclaimed ones, and among all.
        let (mut reused, mut unclaimed, mut any) = ((0, None), (0, None), (0, None));
        for (i, g) in self.all_groups().enumerate() {
            let free = g.free.load(Ordering::Relaxed);
            let better = |best: &mut (u32, Option<usize>)| {
                if free > best.0 {
                    *best = (free, Some(i));
                }
            };
            better(&mut any);
            if free <= unclaimed.0.min(reused.0) || g.claimed.load(Ordering::Relaxed) {
                continue;
            }
            better(&mut unclaimed);
            if u64::from(free) * 2 >= self.group_blocks && g.touched.load(Ordering::Relaxed) {
                better(&mut reused);
            }
        }
        let reused = reused.1.filter(|_| stream.reuse);
        let g = reused.or(unclaimed.1).or(any.1)?;
        let group = self.group(g)?;
        group.claimed.store(true, Ordering::Relaxed);
        group.touched.store(true, Ordering::Relaxed);
        stream.group = Some(g);
        stream.pos = (g as u64 * self.group_blocks).max(self.start);
        Some(g)
    }
}
