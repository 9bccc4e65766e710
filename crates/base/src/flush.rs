//! The part of a disk engine that decides what counts as durable, without the I/O. The planner decides which
//! writes carry a flush, which writes wait for others, and when the engine needs a separate flush.
//!
//! A separate flush costs two wake-ups (a kernel thread and the engine), which is as much CPU as the rest of a
//! small commit. So writes carry the flush (`RWF_DSYNC`) where possible:
//!
//! * A few small writes that leave together with their flush each carry it. Each is durable when it completes,
//!   in any order, and the flush is done when all are.
//! * Otherwise only the last write carries the flush. The planner sends it after the others have completed, so
//!   one flush covers all.
//!
//! The device decides which earlier writes such a write makes durable ([`Planner::new`]). Where that is not
//! enough, a separate flush follows.
//!
//! Invariant: a flush is done only when every write requested before it has completed and is durable. So is every
//! write whose completion was reported before the flush was requested. Writes ahead are exempt from the first rule.
//!
//! Tests: below, `crates/store/tests/histories.rs` (planted bug `StoreAllFlushed`).

use crate::device::IoId;
use crate::errno::{EIO, Errno};
use crate::planted::{Bug, acts};
use std::collections::VecDeque;

/// Most writes that may carry the same flush. The device flushes once for each of them.
const CARRIERS_MAX: usize = 3;
/// Most bytes of writes in flight at which the last write of a flush is sent beside the others instead of after
/// them.
const TOGETHER_BYTES_MAX: usize = 32 << 10;

/// Action that the planner demands of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send the write with this key to the device, with `RWF_DSYNC` if the flag is set. [`Planner::write_done`]
    /// follows.
    Write(usize, bool),
    /// Flush the device on behalf of this request. The engine hands the number to [`Planner::flush_done`].
    Flush(IoId, u64),
    /// Complete this flush request with its outcome.
    Done(IoId, Result<(), Errno>),
}

/// A write in flight.
#[derive(Clone, Copy, Debug)]
struct Sent {
    generation: u64,
    bytes: usize,
    /// Slot of the flush that the write carries, alone or with others.
    sync: Option<usize>,
}

/// A flush that is carried by writes.
#[derive(Clone, Copy, Debug)]
struct Sync {
    id: IoId,
    /// `Ok` once one of the writes has succeeded, else the error of the last one. A failed write reports its
    /// error in its own completion.
    result: Result<(), Errno>,
}

/// Planner of the flushes of one device; see the module.
#[derive(Clone, Debug)]
pub struct Planner {
    syncs_all: bool,
    order: Order,
    /// Last requested writes (key, bytes), not yet sent: if a flush follows they may carry it.
    fresh: Vec<(usize, usize)>,
    /// Writes in flight, by key.
    sent: Vec<Option<Sent>>,
    syncs: Vec<Option<Sync>>,
    /// Flush requests in flight or held.
    flushing: usize,
    /// Bytes of writes in flight that carry no flush, without writes ahead.
    unsynced: usize,
    /// Number of completed writes that carried no flush; `flushed` counts those of them that a flush has
    /// covered.
    written: u64,
    flushed: u64,
}

impl Planner {
    /// A planner for a device. With `syncs_all` a write with `RWF_DSYNC` also makes durable everything that had
    /// completed before it was sent. Without, it makes only itself durable.
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
            // Writes of an earlier process may not have been flushed.
            written: 1,
            flushed: 0,
        }
    }

    /// Takes a requested write of `bytes` bytes. Keys are small numbers, each in use until its write is done.
    pub fn write(&mut self, key: usize, bytes: usize) {
        self.fresh.push((key, bytes));
    }

    /// Sends the pending writes without a flush, because another kind of request follows or none does.
    pub fn let_go(&mut self, mut out: impl FnMut(Step)) {
        self.send_fresh(None, &mut out);
    }

    /// Takes a requested flush, which covers the pending writes and all before them.
    pub fn flush(&mut self, id: IoId, mut out: impl FnMut(Step)) {
        let out = &mut out;
        self.flushing += 1;
        let Some(&last) = self.fresh.last() else { return self.flush_behind(id, out) };
        let bytes: usize = self.fresh.iter().map(|f| f.1).sum();
        let few = self.fresh.len() <= CARRIERS_MAX && bytes < TOGETHER_BYTES_MAX;
        let all_flushed = self.written == self.flushed || acts(Bug::StoreAllFlushed);
        if self.unsynced == 0 && (self.syncs_all || all_flushed) && (few || self.fresh.len() == 1) {
            // Writes before them, if any, carry flushes of their own: waiting for those is enough.
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

    /// Counts a write ahead that has completed. No flush waited for it and none covers it yet.
    pub fn ahead_done(&mut self) {
        self.written += 1;
    }

    /// Takes the completion of the write with this key.
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

    /// Takes the end of a separate flush. `covers` is the number that came with [`Step::Flush`].
    pub fn flush_done(&mut self, covers: u64, ok: bool) {
        self.flushing -= 1;
        if ok {
            self.flushed = self.flushed.max(covers);
        }
    }

    /// Gives up a lost device. Returns the flush requests that are neither done nor sent; the planner must not
    /// be used afterwards.
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

    /// Registers a write in flight, so that later flushes wait for it. `sync` is the slot of the flush it
    /// carries.
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

    /// Holds a separate flush until the writes before it have completed.
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

/// A step that waits for writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Flush(IoId),
    /// A write (by key) that carries its own flush and covers the writes it waits for.
    Write(usize),
    /// A flush (by slot) that is carried by the writes before it, and is done when they are.
    Carried(usize),
}

/// Counts writes in flight, by the flush that has to wait for them.
///
/// Writes belong to generations, and a flush closes its generation. A flush may go when all writes of its own
/// and of earlier generations are done.
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
    /// Registers a write that is sent to the device. The caller keeps the number for [`Order::write_done`].
    fn write(&mut self) -> u64 {
        let n = self.generation;
        match self.open.back_mut() {
            Some(g) if g.number == n => g.writes += 1,
            _ => self.open.push_back(Generation { number: n, writes: 1, held: Vec::new() }),
        }
        n
    }

    /// Makes `h` wait for all writes so far. Returns it if it may go now; else [`Order::write_done`] returns it
    /// later.
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

    /// Registers the completion of a write of generation `n`. Returns the steps that may go now.
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
        /// Writes given to the device: `(key, makes itself durable, writes completed at that time)`.
        writes: Vec<(usize, bool, u64)>,
        flushes: Vec<(IoId, u64, u64)>,
        /// Writes that have completed and may not be durable, with the running number of their completion.
        volatile: Vec<(usize, u64)>,
        completed: u64,
        done: Vec<(IoId, Result<(), Errno>)>,
        /// Keys of the writes ahead.
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

    /// Runs random requests. Checks that whatever is flushed is durable and that each flush ends once. Returns
    /// the number of writes that carried a flush and of separate flushes.
    fn run(seed: u64, syncs_all: bool, honest: bool) -> Result<(usize, usize), String> {
        let mut rng = Rng::new(seed);
        let mut p = Planner::new(syncs_all);
        let mut w = World::default();
        // For each flush, the writes requested before it and those whose completion was reported before it.
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
    fn flushed_writes_are_durable_on_both_kinds_of_devices() {
        for syncs_all in [false, true] {
            let (mut carried, mut flushes) = (0, 0);
            for seed in 0..80 {
                let (c, f) = run(seed, syncs_all, true).unwrap_or_else(|e| panic!("seed {seed}, {syncs_all}: {e}"));
                carried += c;
                flushes += f;
            }
            // Both kinds occur: carried flushes and separate ones.
            assert!(carried > 1000 && flushes > 1000, "{carried} writes carried flushes, {flushes} went");
        }
    }

    /// The check notices a device whose self-durable write makes less durable than the planner assumes.
    #[test]
    fn a_device_whose_writes_flush_less_than_assumed_is_detected() {
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
