//! When is a flush done? The part of a disk engine that decides what counts as durable, without the I/O: which writes carry a flush, which
//! wait for others, and when a flush of its own goes.
//!
//! A flush of its own costs a wake-up of one of the kernel's threads and of the engine's, as much CPU as the rest of a small commit. So
//! writes carry it. Few and small ones that leave together with it each do: whatever their order, each is durable when it completes, and the flush
//! is done when all are. Of more, or if others are on their way that carry none, only the last one does, behind the others: one
//! flush for all of them. What such a write makes durable besides itself depends on the device ([`Planner::new`]); where that is not
//! enough a flush of its own follows.
//!
//! Invariant: a flush is done only when every write requested before it, but for those ahead, has completed and is durable, and so is
//! every write whose completion was told before it was requested. `store`'s histories run this on a simulated write cache.

use crate::device::IoId;
use crate::errno::{EIO, Errno};
use crate::planted::{Bug, acts};
use std::collections::VecDeque;

/// Writes that each carry the same flush: the device flushes for each of them.
const CARRIERS_MAX: usize = 3;
/// Bytes of writes up to which a flush's last write goes beside the others and not behind them.
const TOGETHER_BYTES_MAX: usize = 32 << 10;

/// What an engine is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Give the device the write under this key, which makes itself durable or not (`RWF_DSYNC`). [`Planner::write_done`] follows.
    Write(usize, bool),
    /// Flush the device for the flush of this name; hand the number to [`Planner::flush_done`].
    Flush(IoId, u64),
    /// The flush of this name has its outcome.
    Done(IoId, Result<(), Errno>),
}

/// A write on its way.
#[derive(Clone, Copy, Debug)]
struct Sent {
    generation: u64,
    bytes: usize,
    /// The flush it carries, alone or with others.
    sync: Option<usize>,
}

/// A flush that writes carry.
#[derive(Clone, Copy, Debug)]
struct Sync {
    id: IoId,
    /// Of the writes that have completed: none succeeded, with the last one's error, or one did. What failed is told by its own completion.
    result: Result<(), Errno>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Planner {
    syncs_all: bool,
    order: Order,
    /// The writes requested last, which the device has not been given: the next request may be their flush.
    fresh: Vec<(usize, usize)>,
    /// By key.
    sent: Vec<Option<Sent>>,
    syncs: Vec<Option<Sync>>,
    /// Flushes on their way or held.
    flushing: usize,
    /// Bytes of writes on their way that carry no flush, but for those ahead.
    unsynced: usize,
    /// Writes completed without a flush of their own, and how many of them a flush has covered since.
    written: u64,
    flushed: u64,
}

impl Planner {
    /// For a device of which a write that makes itself durable does so for everything that had completed before it was given (`syncs_all`), or
    /// for nothing else.
    #[must_use]
    pub fn new(syncs_all: bool) -> Self {
        Self {
            syncs_all,
            order: Order::default(),
            fresh: Vec::new(),
            sent: Vec::new(),
            syncs: Vec::new(),
            flushing: 0,
            unsynced: 0,
            // What an earlier process wrote may not have been flushed.
            written: 1,
            flushed: 0,
        }
    }

    /// A write of so many bytes is requested. Keys are small numbers, each in use until its write is done.
    pub fn write(&mut self, key: usize, bytes: usize) {
        self.fresh.push((key, bytes));
    }

    /// Gives the device the last writes as they are: something else was requested, or nothing is for now.
    pub fn let_go(&mut self, mut out: impl FnMut(Step)) {
        self.send_fresh(None, &mut out);
    }

    /// A flush is requested, of the last writes and all before them.
    pub fn flush(&mut self, id: IoId, mut out: impl FnMut(Step)) {
        let out = &mut out;
        self.flushing += 1;
        let Some(&last) = self.fresh.last() else { return self.flush_behind(id, out) };
        let bytes: usize = self.fresh.iter().map(|f| f.1).sum();
        let few = self.fresh.len() <= CARRIERS_MAX && bytes < TOGETHER_BYTES_MAX;
        let all_flushed = self.written == self.flushed || acts(Bug::StoreAllFlushed);
        if self.unsynced == 0 && (self.syncs_all || all_flushed) && (few || self.fresh.len() == 1) {
            // Writes before them, if any, carry flushes of their own: it is enough to wait for those.
            let sync = self.add_sync(id);
            self.send_fresh(Some(sync), out);
            self.hold(Held::Carried(sync), out);
            return;
        }
        self.fresh.pop();
        self.send_fresh(None, out);
        if self.syncs_all && (self.flushing > 1 || self.unsynced >= TOGETHER_BYTES_MAX) {
            let sync = self.add_sync(id);
            self.hold(Held::Write(last.0), out);
            self.count(last, Some(sync));
            self.hold(Held::Carried(sync), out);
        } else {
            self.count(last, None);
            out(Step::Write(last.0, false));
            self.flush_behind(id, out);
        }
    }

    /// A write that was ahead has completed: no flush waited for it, and none covers it yet.
    pub fn ahead_done(&mut self) {
        self.written += 1;
    }

    /// The write under a key has completed.
    pub fn write_done(&mut self, key: usize, result: Result<(), Errno>, mut out: impl FnMut(Step)) {
        let Some(sent) = self.sent.get_mut(key).and_then(Option::take) else { return };
        match sent.sync.map(|s| self.syncs.get_mut(s).and_then(Option::as_mut)) {
            Some(Some(sync)) if sync.result.is_err() => sync.result = result,
            Some(_) => {}
            None => {
                self.written += 1;
                self.unsynced -= sent.bytes;
            }
        }
        for held in self.order.write_done(sent.generation) {
            self.release(held, &mut out);
        }
    }

    /// A flush has ended, of the number that came with it.
    pub fn flush_done(&mut self, covers: u64, ok: bool) {
        self.flushing -= 1;
        if ok {
            self.flushed = self.flushed.max(covers);
        }
    }

    /// The device is lost: the flushes that have neither ended nor been given to it. The planner is not to be used any more.
    pub fn give_up(&mut self) -> Vec<IoId> {
        let carried = self.syncs.iter().flatten().map(|s| s.id);
        let held = self.order.open.iter().flat_map(|g| &g.held).filter_map(|h| match h {
            Held::Flush(id) => Some(*id),
            Held::Write(_) | Held::Carried(_) => None,
        });
        let all = carried.chain(held).collect();
        *self = Self::new(self.syncs_all);
        all
    }

    fn send_fresh(&mut self, sync: Option<usize>, out: &mut impl FnMut(Step)) {
        let mut fresh = std::mem::take(&mut self.fresh);
        for f in fresh.drain(..) {
            self.count(f, sync);
            out(Step::Write(f.0, sync.is_some()));
        }
        self.fresh = fresh;
    }

    /// Later flushes wait for this write, which carries a flush itself or not.
    fn count(&mut self, (key, bytes): (usize, usize), sync: Option<usize>) {
        let generation = self.order.write();
        if sync.is_none() {
            self.unsynced += bytes;
        }
        if self.sent.len() <= key {
            self.sent.resize(key + 1, None);
        }
        if let Some(s) = self.sent.get_mut(key) {
            *s = Some(Sent { generation, bytes, sync });
        }
    }

    fn add_sync(&mut self, id: IoId) -> usize {
        let sync = Some(Sync { id, result: Err(EIO) });
        match self.syncs.iter().position(Option::is_none) {
            Some(i) => {
                if let Some(s) = self.syncs.get_mut(i) {
                    *s = sync;
                }
                i
            }
            None => {
                self.syncs.push(sync);
                self.syncs.len() - 1
            }
        }
    }

    /// A flush of its own, once the writes before it have completed.
    fn flush_behind(&mut self, id: IoId, out: &mut impl FnMut(Step)) {
        self.hold(Held::Flush(id), out);
    }

    fn hold(&mut self, h: Held, out: &mut impl FnMut(Step)) {
        if let Some(h) = self.order.hold(h) {
            self.release(h, out);
        }
    }

    fn release(&mut self, held: Held, out: &mut impl FnMut(Step)) {
        match held {
            Held::Flush(id) => out(Step::Flush(id, self.written)),
            Held::Write(key) => out(Step::Write(key, true)),
            Held::Carried(sync) => {
                let Some(Sync { id, result }) = self.syncs.get_mut(sync).and_then(Option::take) else { return };
                self.flushing -= 1;
                out(Step::Done(id, result));
            }
        }
    }
}

/// What waits for writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Flush(IoId),
    /// A write that is its own flush and that of what it waits for: its key.
    Write(usize),
    /// A flush that the writes before it carry: its slot. It is done when they are.
    Carried(usize),
}

/// Counts writes in flight by the flush that has to wait for them.
///
/// Writes belong to generations; a flush closes one. A flush may go when all writes of its own and of earlier
/// generations are done.
#[derive(Clone, Debug, Default)]
struct Order {
    generation: u64,
    /// Oldest generation first: writes in flight, and the flushes that wait for it.
    open: VecDeque<Generation>,
}

#[derive(Clone, Debug)]
struct Generation {
    number: u64,
    writes: usize,
    held: Vec<Held>,
}

impl Order {
    /// A write is given to the device; keep the number for [`Order::write_done`].
    fn write(&mut self) -> u64 {
        let n = self.generation;
        match self.open.back_mut() {
            Some(g) if g.number == n => g.writes += 1,
            _ => self.open.push_back(Generation { number: n, writes: 1, held: Vec::new() }),
        }
        n
    }

    /// Something is to wait for all writes so far: given back if it may go now, else it comes out of [`Order::write_done`] later.
    fn hold(&mut self, h: Held) -> Option<Held> {
        match self.open.back_mut() {
            None => Some(h),
            Some(g) => {
                g.held.push(h);
                self.generation = g.number + 1;
                None
            }
        }
    }

    /// A write of generation `n` completed; what may go now.
    fn write_done(&mut self, n: u64) -> Vec<Held> {
        if let Some(g) = self.open.iter_mut().find(|g| g.number == n) {
            g.writes -= 1;
        }
        let mut out = Vec::new();
        while self.open.front().is_some_and(|g| g.writes == 0) {
            if let Some(g) = self.open.pop_front() {
                out.extend(g.held);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn flushes_wait_for_earlier_writes_only() {
        let mut o = Order::default();
        assert!(o.hold(Held::Flush(IoId(1))).is_some(), "nothing in flight");
        let a = o.write();
        let b = o.write();
        assert!(o.hold(Held::Flush(IoId(2))).is_none());
        let c = o.write();
        assert!(o.write_done(b).is_empty());
        assert!(o.write_done(c).is_empty(), "a later write frees no earlier flush");
        assert_eq!(o.write_done(a), [Held::Flush(IoId(2))]);
        assert!(o.hold(Held::Flush(IoId(3))).is_some());
        let a = o.write();
        assert!(o.hold(Held::Flush(IoId(4))).is_none());
        assert!(o.hold(Held::Flush(IoId(5))).is_none());
        assert_eq!(o.write_done(a), [Held::Flush(IoId(4)), Held::Flush(IoId(5))]);
    }

    /// A device with a volatile cache, as an engine uses it.
    #[derive(Default)]
    struct World {
        /// What the device was given: `(key, makes itself durable, completed when it was given)`; and flushes.
        writes: Vec<(usize, bool, u64)>,
        flushes: Vec<(IoId, u64, u64)>,
        /// Completed and not known to be durable, with the number of their completion.
        volatile: Vec<(usize, u64)>,
        completed: u64,
        done: Vec<(IoId, Result<(), Errno>)>,
        /// Written ahead, by key.
        ahead: BTreeSet<usize>,
    }

    impl World {
        fn step(&mut self, s: Step) {
            match s {
                Step::Write(key, sync) => self.writes.push((key, sync, self.completed)),
                Step::Flush(id, covers) => self.flushes.push((id, covers, self.completed)),
                Step::Done(id, r) => self.done.push((id, r)),
            }
        }
    }

    /// Random requests: whatever is flushed is durable, and each flush ends once. Gives how many writes carried a flush, and the flushes that went.
    fn run(seed: u64, syncs_all: bool, honest: bool) -> Result<(usize, usize), String> {
        let mut rng = Rng::new(seed);
        let mut p = Planner::new(syncs_all);
        let mut w = World::default();
        // Requested before each flush, and told complete before it.
        let mut wanted: Vec<(IoId, BTreeSet<usize>)> = Vec::new();
        let (mut next, mut carried, mut flushes) = (0, 0, 0);
        let mut live: BTreeSet<usize> = BTreeSet::new();
        for round in 0..600 {
            let many = 1 + rng.below(6);
            for _ in 0..if round < 500 { rng.below(many) } else { 0 } {
                next += 1;
                live.insert(next);
                if rng.chance(1, 4) {
                    p.let_go(|s| w.step(s));
                    w.ahead.insert(next);
                    w.writes.push((next, false, w.completed));
                } else {
                    p.write(next, 4096 << rng.below(4));
                }
            }
            if round < 500 && rng.chance(1, 2) {
                let id = IoId(1_000_000 + round);
                let told = live.iter().filter(|k| !w.ahead.contains(k) || w.volatile.iter().any(|v| v.0 == **k));
                wanted.push((id, told.copied().collect()));
                p.flush(id, |s| w.step(s));
            }
            if rng.chance(2, 3) {
                p.let_go(|s| w.step(s));
            }
            for _ in 0..if round < 500 { rng.below(5) } else { 50 } {
                let i = rng.below((w.writes.len() + w.flushes.len()).max(1) as u64) as usize;
                if i < w.writes.len() {
                    let (key, sync, at) = w.writes.remove(i);
                    w.completed += 1;
                    w.volatile.push((key, w.completed));
                    if sync {
                        carried += 1;
                        w.volatile.retain(|v| v.0 != key && !(syncs_all && honest && v.1 <= at));
                    }
                    if w.ahead.contains(&key) { p.ahead_done() } else { p.write_done(key, Ok(()), |s| w.step(s)) }
                } else if !w.flushes.is_empty() {
                    let (id, covers, at) = w.flushes.remove(i - w.writes.len());
                    flushes += 1;
                    w.volatile.retain(|v| v.1 > at);
                    p.flush_done(covers, true);
                    w.done.push((id, Ok(())));
                }
                for (id, r) in w.done.drain(..) {
                    let at = wanted.iter().position(|x| x.0 == id).ok_or("a flush that ended twice")?;
                    let on_its_way = |k: &usize| w.writes.iter().any(|x| x.0 == *k);
                    let lost = |k: &usize| w.volatile.iter().any(|v| v.0 == *k) || on_its_way(k);
                    let (_, all) = wanted.remove(at);
                    if r.is_ok()
                        && let Some(k) = all.iter().find(|k| lost(k))
                    {
                        return Err(format!("write {k} is not durable when flush {id:?} is done, in round {round}"));
                    }
                    live.retain(|k| {
                        w.volatile.iter().any(|v| v.0 == *k) || w.writes.iter().any(|x| x.0 == *k) || !all.contains(k)
                    });
                }
            }
        }
        if !wanted.is_empty() || !w.writes.is_empty() {
            return Err(format!("{} flushes never end", wanted.len()));
        }
        Ok((carried, flushes))
    }

    #[test]
    fn what_is_flushed_is_durable_on_both_kinds_of_devices() {
        for syncs_all in [false, true] {
            let (mut carried, mut flushes) = (0, 0);
            for seed in 0..80 {
                let (c, f) = run(seed, syncs_all, true).unwrap_or_else(|e| panic!("seed {seed}, {syncs_all}: {e}"));
                carried += c;
                flushes += f;
            }
            // Both ways are gone.
            assert!(carried > 1000 && flushes > 1000, "{carried} writes carried flushes, {flushes} went");
        }
    }

    /// The test would notice if a write made less durable than is believed.
    #[test]
    fn a_device_that_keeps_less_than_it_says_is_noticed() {
        assert!((0..20).any(|seed| run(seed, true, false).is_err()));
    }

    #[test]
    fn a_carried_flush_has_the_error_of_its_only_write() {
        let mut done = Vec::new();
        let mut p = Planner::new(true);
        p.write(0, 4096);
        p.flush(IoId(1), |s| assert_eq!(s, Step::Write(0, true)));
        p.write_done(0, Err(-28), |s| done.push(s));
        assert_eq!(done, [Step::Done(IoId(1), Err(-28))]);
    }
}
