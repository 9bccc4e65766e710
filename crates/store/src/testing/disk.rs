//! A simulated device with a volatile cache: what was written since the last flush may be lost, reordered or torn, or leave sectors that can't
//! be read.
//!
//! Several stores may use it, each through an engine of its own: one that flushes as it is asked ([`Engine::Plain`]), or that has writes carry
//! flushes, as [`base::flush`] decides, on one of two kinds of devices. Requests complete in an order drawn from a generator; a flush
//! covers what had completed when the device was given it. The truth is kept apart from the faults: latent sector errors and bit
//! flips are overlays. Blocks are parts of the buffers that were written, without a copy: simulations spend their time elsewhere.

use crate::layout::{BLOCK, BLOCK_LEN};
use base::device::{Device, IoCompletion, IoId, IoKind, IoRequest};
use base::errno::{EIO, Errno};
use base::flush::{Planner, Step};
use base::rng::Rng;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::OnceLock;

/// Unit in which a device writes atomically.
const SECTOR: usize = 512;

/// Writes up to so many bytes are kept in one piece: one block of it that is never written again holds all of it in memory.
const SHARED_MAX: usize = 256 << 10;
/// Reads of up to so many bytes of which none was ever written share one buffer of zeros.
const ZEROS: usize = 4 << 20;

type Image = BTreeMap<u64, Bytes>;

/// What a run did to the device, for cutting it anywhere.
#[derive(Clone, Debug)]
pub enum Done {
    /// A write took effect in the cache.
    Write(u64, Bytes),
    /// Everything before is durable.
    Flush,
    /// A mark of the test's own.
    Mark(u64),
}

/// How a store's requests reach the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// A flush is a flush.
    #[default]
    Plain,
    /// Writes may carry it: such a write makes itself durable, and with `all` everything that had completed before.
    Carried {
        /// The device has no such writes, and the kernel has it flush its whole cache.
        all: bool,
    },
}

/// A request that the device has, or will be given.
#[derive(Clone, Debug)]
struct Job {
    engine: usize,
    id: IoId,
    what: What,
    /// The device has it, and how much had completed when it got it.
    given: Option<u64>,
}

#[derive(Clone, Debug)]
enum What {
    Read { off: u64, len: u64 },
    Write { off: u64, data: Bytes, key: Option<usize>, sync: bool },
    Flush { covers: u64 },
    Discard { off: u64, len: u64 },
}

/// A write in the device's cache, with the number of its completion.
#[derive(Clone, Debug)]
struct Volatile {
    number: u64,
    off: u64,
    data: Bytes,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct SimDisk {
    bytes: u64,
    /// What reads see.
    cache: Image,
    /// What a power cut leaves of blocks written since the last flush, where that is not what reads see.
    before: BTreeMap<u64, Option<Bytes>>,
    /// Writes that may be lost, in order of completion.
    unflushed: Vec<Volatile>,
    /// Blocks that are durable as a later write left them than one that may be lost: the number of that write.
    newer: BTreeMap<u64, u64>,
    /// Writes ever completed.
    completed: u64,
    queue: Vec<Job>,
    engine: Engine,
    /// One for each store.
    planners: Vec<Planner>,
    /// Completions that followed from others.
    done: VecDeque<(usize, IoId, Result<(), Errno>)>,
    /// Blocks whose reads fail.
    pub bad_reads: BTreeSet<u64>,
    /// Bits that reads return flipped: block to bit.
    pub flips: BTreeMap<u64, u64>,
    /// Blocks whose reads give less than asked for.
    pub short_reads: BTreeSet<u64>,
    /// All writes from now on fail with this.
    pub write_error: Option<Errno>,
    /// If kept: everything that happened.
    pub record: Option<Vec<Done>>,
}

fn zeros(len: usize) -> Bytes {
    static BUF: OnceLock<Bytes> = OnceLock::new();
    if len > ZEROS {
        return vec![0; len].into();
    }
    BUF.get_or_init(|| vec![0; ZEROS].into()).slice(..len)
}

fn one_buffer(mut bufs: Vec<Bytes>) -> Bytes {
    match bufs.len() {
        1 => bufs.remove(0),
        _ => bufs.concat().into(),
    }
}

/// The blocks of a write, with their numbers.
fn blocks(off: u64, data: &Bytes) -> impl Iterator<Item = (u64, Bytes)> + '_ {
    let share = data.len() <= SHARED_MAX;
    (0..data.len().div_ceil(BLOCK_LEN)).map(move |i| {
        let from = i * BLOCK_LEN;
        let part = from..data.len().min(from + BLOCK_LEN);
        let b = if share { data.slice(part) } else { Bytes::copy_from_slice(&data[part]) };
        (off / BLOCK + i as u64, b)
    })
}

fn put(image: &mut Image, off: u64, data: &Bytes, goes: impl Fn(u64) -> bool) {
    image.extend(blocks(off, data).filter(|b| goes(b.0)));
}

fn put_torn(image: &mut Image, off: u64, data: &Bytes, rng: &mut Rng, goes: impl Fn(u64) -> bool) {
    for (b, c) in blocks(off, data).filter(|b| goes(b.0)) {
        let mut old = image.get(&b).map_or_else(|| vec![0; BLOCK_LEN], |x| x.to_vec());
        for (o, n) in old.chunks_mut(SECTOR).zip(c.chunks(SECTOR)) {
            if rng.chance(1, 2) {
                o.copy_from_slice(n);
            }
        }
        image.insert(b, old.into());
    }
}

impl SimDisk {
    /// A device of zeros.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            cache: Image::new(),
            before: BTreeMap::new(),
            unflushed: Vec::new(),
            newer: BTreeMap::new(),
            completed: 0,
            queue: Vec::new(),
            engine: Engine::Plain,
            planners: Vec::new(),
            done: VecDeque::new(),
            bad_reads: BTreeSet::new(),
            short_reads: BTreeSet::new(),
            flips: BTreeMap::new(),
            write_error: None,
            record: None,
        }
    }

    /// Makes the device larger.
    pub fn grow(&mut self, bytes: u64) {
        self.bytes = self.bytes.max(bytes);
    }

    /// Has stores use it in another way from now on. Nothing may be under way.
    ///
    /// # Panics
    /// If something is.
    pub fn set_engine(&mut self, engine: Engine) {
        assert!(self.queue.is_empty() && self.done.is_empty(), "requests are under way");
        self.engine = engine;
        self.planners.clear();
    }

    /// Takes a request.
    pub fn submit(&mut self, r: IoRequest) {
        self.submit_to(0, r);
    }

    /// Takes a request of a store through its engine.
    pub fn submit_to(&mut self, engine: usize, r: IoRequest) {
        let Engine::Carried { all } = self.engine else {
            let what = match r.kind {
                IoKind::Read { off, len } => What::Read { off, len: u64::from(len) },
                IoKind::Write { off, bufs } => What::Write { off, data: one_buffer(bufs), key: Some(0), sync: false },
                IoKind::WriteAhead { off, bufs } => What::Write { off, data: one_buffer(bufs), key: None, sync: false },
                IoKind::Flush => What::Flush { covers: 0 },
                IoKind::Discard { off, len } => What::Discard { off, len },
            };
            // What a flush covers is seen when the device gets it.
            let given = (!matches!(what, What::Flush { .. })).then_some(self.completed);
            return self.queue.push(Job { engine, id: r.id, what, given });
        };
        while self.planners.len() <= engine {
            self.planners.push(Planner::new(all));
        }
        let what = match r.kind {
            IoKind::Write { off, bufs } => {
                let key = self.free_key();
                let data = one_buffer(bufs);
                self.planners[engine].write(key, data.len());
                let what = What::Write { off, data, key: Some(key), sync: false };
                return self.queue.push(Job { engine, id: r.id, what, given: None });
            }
            IoKind::Flush => return self.plan(engine, |p, out| p.flush(r.id, out)),
            IoKind::Read { off, len } => What::Read { off, len: u64::from(len) },
            IoKind::WriteAhead { off, bufs } => What::Write { off, data: one_buffer(bufs), key: None, sync: false },
            IoKind::Discard { off, len } => What::Discard { off, len },
        };
        self.plan(engine, |p, out| p.let_go(out));
        self.queue.push(Job { engine, id: r.id, what, given: Some(self.completed) });
    }

    fn free_key(&self) -> usize {
        let used: BTreeSet<usize> = self
            .queue
            .iter()
            .filter_map(|j| match j.what {
                What::Write { key, .. } => key,
                _ => None,
            })
            .collect();
        (0..).find(|k| !used.contains(k)).unwrap_or(0)
    }

    /// Has an engine's planner decide, and does what it says.
    fn plan(&mut self, engine: usize, f: impl FnOnce(&mut Planner, &mut dyn FnMut(Step))) {
        let mut steps = Vec::new();
        if let Some(p) = self.planners.get_mut(engine) {
            f(p, &mut |s| steps.push(s));
        }
        for s in steps {
            match s {
                Step::Write(key, carries) => {
                    let at = self.completed;
                    for j in &mut self.queue {
                        if let What::Write { key: Some(k), sync, .. } = &mut j.what
                            && *k == key
                        {
                            (*sync, j.given) = (carries, Some(at));
                        }
                    }
                }
                Step::Flush(id, covers) => {
                    self.queue.push(Job { engine, id, what: What::Flush { covers }, given: Some(self.completed) });
                }
                Step::Done(id, result) => self.done.push_back((engine, id, result)),
            }
        }
    }

    /// Requests not yet completed.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len() + self.done.len()
    }

    fn read(&self, off: u64, len: u64) -> Result<Bytes, Errno> {
        if off + len > self.bytes {
            return Err(EIO);
        }
        let wanted = off / BLOCK..(off + len) / BLOCK;
        let faulty = self.bad_reads.range(wanted.clone()).next().is_some()
            || self.short_reads.range(wanted.clone()).next().is_some()
            || self.flips.range(wanted.clone()).next().is_some();
        if faulty {
            return self.read_faulty(wanted);
        }
        let mut there = self.cache.range(wanted.clone()).peekable();
        match there.peek() {
            None => return Ok(zeros(len as usize)),
            Some((_, b)) if len == BLOCK => return Ok((*b).clone()),
            Some(_) => {}
        }
        let mut out = Vec::with_capacity(len as usize);
        for (n, b) in there {
            out.resize(((n - wanted.start) * BLOCK) as usize, 0);
            out.extend_from_slice(b);
        }
        out.resize(len as usize, 0);
        Ok(out.into())
    }

    fn read_faulty(&self, wanted: std::ops::Range<u64>) -> Result<Bytes, Errno> {
        let mut out = Vec::with_capacity(((wanted.end - wanted.start) * BLOCK) as usize);
        for b in wanted {
            if self.bad_reads.contains(&b) {
                return Err(EIO);
            }
            if self.short_reads.contains(&b) {
                break;
            }
            match self.cache.get(&b) {
                Some(x) => out.extend_from_slice(x),
                None => out.extend_from_slice(&[0; BLOCK_LEN]),
            }
            if let Some(bit) = self.flips.get(&b) {
                let at = out.len() - BLOCK_LEN + (bit / 8 % BLOCK) as usize;
                out[at] ^= 1 << (bit % 8);
            }
        }
        Ok(out.into())
    }

    fn apply(&mut self, off: u64, data: Bytes) {
        assert!(off.is_multiple_of(BLOCK) && (data.len() as u64).is_multiple_of(BLOCK), "I/O is in blocks");
        assert!(off + data.len() as u64 <= self.bytes, "write beyond the device");
        for (b, new) in blocks(off, &data) {
            let old = self.cache.insert(b, new);
            self.before.entry(b).or_insert(old);
        }
        // A write heals a latent error, as devices do by remapping.
        if !(self.bad_reads.is_empty() && self.short_reads.is_empty() && self.flips.is_empty()) {
            for b in off / BLOCK..(off + data.len() as u64) / BLOCK {
                self.bad_reads.remove(&b);
                self.short_reads.remove(&b);
                self.flips.remove(&b);
            }
        }
        if let Some(r) = &mut self.record {
            r.push(Done::Write(off, data.clone()));
        }
        self.completed += 1;
        self.unflushed.push(Volatile { number: self.completed, off, data });
    }

    /// Everything that has completed is durable.
    fn sync(&mut self) {
        self.unflushed.clear();
        self.newer.clear();
        self.before.clear();
        if let Some(r) = &mut self.record {
            r.push(Done::Flush);
        }
    }

    /// The first so many writes that completed are durable, and one more.
    fn sync_some(&mut self, upto: u64, one: Option<u64>) {
        let durable = |v: &Volatile| v.number <= upto || Some(v.number) == one;
        let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unflushed).into_iter().partition(durable);
        if later.is_empty() {
            return self.sync();
        }
        assert!(self.record.is_none(), "what is recorded is flushed as a whole");
        for v in now {
            for (b, data) in blocks(v.off, &v.data) {
                if later.iter().any(|l| l.number < v.number) {
                    self.newer.insert(b, v.number);
                }
                let last = |l: &Volatile| {
                    l.number > v.number && (l.off / BLOCK..(l.off + l.data.len() as u64) / BLOCK).contains(&b)
                };
                if later.iter().any(last) {
                    self.before.insert(b, Some(data));
                } else {
                    self.before.remove(&b);
                }
            }
        }
        self.unflushed = later;
    }

    /// What reads see becomes what was durable.
    fn forget(&mut self) {
        for (b, old) in std::mem::take(&mut self.before) {
            match old {
                Some(old) => self.cache.insert(b, old),
                None => self.cache.remove(&b),
            };
        }
        self.unflushed.clear();
        self.newer.clear();
    }

    /// Blocks from `from` on whose content is as wanted, in order.
    #[must_use]
    pub fn find(&self, from: u64, wanted: impl Fn(&[u8]) -> bool) -> Vec<u64> {
        self.cache.range(from..).filter(|(_, b)| wanted(b)).map(|(n, _)| *n).collect()
    }

    /// Completes one request. A flush first completes the writes submitted before it, as engines do, but for those written
    /// ahead, and they are returned with later calls.
    pub fn step(&mut self, rng: &mut Rng) -> Option<IoCompletion> {
        self.step_any(rng).map(|c| c.1)
    }

    /// As [`SimDisk::step`], with the store whose request it was.
    pub fn step_any(&mut self, rng: &mut Rng) -> Option<(usize, IoCompletion)> {
        if let Some((engine, id, result)) = self.done.pop_front() {
            return Some((engine, IoCompletion { id, result: result.map(|()| Bytes::new()) }));
        }
        for engine in 0..self.planners.len() {
            self.plan(engine, |p, out| p.let_go(out));
        }
        let i = self.next_job(rng)?;
        let Job { engine, id, what, given } = self.queue.remove(i);
        let given = given.unwrap_or(self.completed);
        let wrong = self.write_error.filter(|_| matches!(what, What::Write { .. } | What::Flush { .. }));
        let done = wrong.map_or(Ok(Bytes::new()), Err);
        let result = match what {
            What::Read { off, len } => self.read(off, len),
            What::Write { off, data, key, sync } => {
                if done.is_ok() {
                    self.apply(off, data);
                    if sync {
                        let all = self.engine == Engine::Carried { all: true };
                        self.sync_some(if all { given } else { 0 }, Some(self.completed));
                    }
                }
                let outcome = done.as_ref().map(|_| ()).map_err(|e| *e);
                match key {
                    Some(key) => self.plan(engine, |p, out| p.write_done(key, outcome, out)),
                    None => self.plan(engine, |p, _| p.ahead_done()),
                }
                done
            }
            What::Flush { covers } => {
                if done.is_ok() {
                    self.sync_some(given, None);
                }
                let ok = done.is_ok();
                self.plan(engine, |p, _| p.flush_done(covers, ok));
                done
            }
            What::Discard { off, len } => {
                // What was there is gone at once, durable or not.
                for b in off / BLOCK..(off + len) / BLOCK {
                    self.cache.remove(&b);
                    self.before.remove(&b);
                }
                Ok(Bytes::new())
            }
        };
        Some((engine, IoCompletion { id, result }))
    }

    /// One that the device has. A flush that is met for the first time may only begin: what completes meanwhile it does not cover.
    fn next_job(&mut self, rng: &mut Rng) -> Option<usize> {
        let carried = self.engine != Engine::Plain;
        let ready: Vec<usize> = (0..self.queue.len()).filter(|i| !carried || self.queue[*i].given.is_some()).collect();
        loop {
            let mut i = *ready.get(rng.below(ready.len() as u64) as usize)?;
            let engine = self.queue[i].engine;
            let first = |j: &Job| j.engine == engine && matches!(j.what, What::Write { key: Some(_), .. });
            if !carried
                && matches!(self.queue[i].what, What::Flush { .. })
                && let Some(w) = self.queue[..i].iter().position(first)
            {
                i = w;
            }
            let (at, last, whole) = (self.completed, ready.len() == 1, self.record.is_some());
            let j = &mut self.queue[i];
            if j.given.is_none() && !whole {
                j.given = Some(at);
                if !last && rng.chance(1, 2) {
                    continue;
                }
            }
            return Some(i);
        }
    }

    /// The device after a power cut: every write since the last flush, also those in flight, may be there, torn, or lost.
    #[must_use]
    pub fn power_cut(&self, rng: &mut Rng) -> Self {
        self.clone().after_power_cut(rng)
    }

    /// As [`SimDisk::power_cut`], of a device that nobody looks at any more.
    #[must_use]
    pub fn after_power_cut(mut self, rng: &mut Rng) -> Self {
        let mut writes = std::mem::take(&mut self.unflushed);
        let newer = std::mem::take(&mut self.newer);
        for j in std::mem::take(&mut self.queue) {
            if let (What::Write { off, data, .. }, Some(_)) = (j.what, j.given) {
                writes.push(Volatile { number: u64::MAX, off, data });
            }
        }
        self.forget();
        // Swarm: how hard the cut is differs from run to run.
        let keep = rng.below(5);
        let spoils = rng.chance(1, 3);
        while !writes.is_empty() {
            let i = if keep == 4 { 0 } else { rng.below(writes.len() as u64) as usize };
            let Volatile { number, off, data } = writes.remove(i);
            let first = off / BLOCK;
            let goes = |b: u64| newer.get(&b).is_none_or(|n| *n < number);
            match rng.below(4) {
                x if x < keep => put(&mut self.cache, off, &data, goes),
                3 if keep > 0 => put_torn(&mut self.cache, off, &data, rng, goes),
                _ => {}
            }
            // The device was at it when the power went.
            let b = first + rng.below((data.len() as u64 / BLOCK).max(1));
            if spoils && rng.chance(1, 6) && goes(b) {
                self.bad_reads.insert(b);
            }
        }
        let (bad_reads, flips) = (self.bad_reads, self.flips);
        Self { cache: self.cache, bad_reads, flips, engine: self.engine, ..Self::new(self.bytes) }
    }

    /// The device after the process was killed: writes that completed stay, of those in flight any may have happened.
    #[must_use]
    pub fn killed(&self, rng: &mut Rng) -> Self {
        self.clone().after_kill(rng)
    }

    /// As [`SimDisk::killed`], of a device that nobody looks at any more.
    #[must_use]
    pub fn after_kill(mut self, rng: &mut Rng) -> Self {
        for j in std::mem::take(&mut self.queue) {
            if let (What::Write { off, data, .. }, Some(_), true) = (j.what, j.given, rng.chance(1, 2)) {
                self.apply(off, data);
            }
        }
        self.planners.clear();
        self.done.clear();
        self
    }

    /// Does what was recorded once more.
    pub fn replay(&mut self, record: &[Done]) {
        for e in record {
            match e {
                Done::Write(off, data) => self.apply(*off, data.clone()),
                Done::Flush => self.sync(),
                Done::Mark(_) => {}
            }
        }
    }

    /// The device as a recorded run left it after its first `n` events, cut by losing everything after the last flush
    /// (`None`), or keeping it as far as the generator says.
    #[must_use]
    pub fn replayed(bytes: u64, record: &[Done], rng: Option<&mut Rng>) -> Self {
        let mut d = Self::new(bytes);
        d.replay(record);
        match rng {
            Some(rng) => d.power_cut(rng),
            None => {
                d.forget();
                d
            }
        }
    }

    /// Blocks ever written, for choosing victims of faults.
    #[must_use]
    pub fn written(&self) -> Vec<u64> {
        self.cache.keys().copied().collect()
    }

    /// A write that went to another place, or was lost: block `to` now holds what `from` holds (zeros if that was never
    /// written).
    pub fn misplace(&mut self, from: u64, to: u64) {
        let seen = self.cache.get(&from).cloned();
        let durable = self.before.get(&from).cloned().unwrap_or_else(|| seen.clone());
        match seen.clone() {
            Some(b) => self.cache.insert(to, b),
            None => self.cache.remove(&to),
        };
        if durable == seen {
            self.before.remove(&to);
        } else {
            self.before.insert(to, durable);
        }
    }

    /// Adds a mark to the record.
    pub fn mark(&mut self, n: u64) {
        if let Some(r) = &mut self.record {
            r.push(Done::Mark(n));
        }
    }

    /// Completes everything that is queued, in order, and gives the completions.
    pub fn drain(&mut self, rng: &mut Rng) -> Vec<(IoId, bool)> {
        let mut out = Vec::new();
        while let Some(c) = self.step(rng) {
            out.push((c.id, c.result.is_ok()));
        }
        out
    }
}

impl Device for SimDisk {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_many(&mut self, ranges: &[(u64, u64)]) -> Vec<Result<Bytes, Errno>> {
        ranges.iter().map(|(off, len)| self.read(*off, *len)).collect()
    }

    fn write(&mut self, off: u64, data: &[Bytes]) -> Result<(), Errno> {
        if let Some(e) = self.write_error {
            return Err(e);
        }
        self.apply(off, one_buffer(data.to_vec()));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Errno> {
        if let Some(e) = self.write_error {
            return Err(e);
        }
        self.sync();
        Ok(())
    }
}
