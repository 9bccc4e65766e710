//! A simulated device with a volatile cache. Writes since the last flush may be lost, reordered or torn, or
//! leave unreadable sectors.
//!
//! Several stores may use it, each through an engine of its own. An engine either flushes as requested
//! ([`Engine::Plain`]), or lets writes carry flushes as [`base::flush`] decides, on one of two kinds of
//! devices. Requests complete in a random order. A flush covers the writes that had completed when the device
//! got it.
//!
//! Latent sector errors and bit flips are overlays, so the true content stays known. Blocks are slices of the
//! written buffers, without copies, to save simulation time.

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

/// Most bytes of a write that is kept as one buffer. A single block of it that is never rewritten holds the
/// buffer in memory.
const SHARED_MAX: usize = 256 << 10;
/// Most bytes of an all-hole read that shares one buffer of zeros.
const ZEROS: usize = 4 << 20;

type Image = BTreeMap<u64, Bytes>;

/// Event of a recorded run, which can be cut at any event.
#[derive(Clone, Debug)]
pub enum Done {
    /// A write took effect in the cache.
    Write(u64, Bytes),
    /// All earlier writes are durable.
    Flush,
    /// A mark set by the test.
    Mark(u64),
}

/// Way in which a store's requests reach the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Flushes are separate requests.
    #[default]
    Plain,
    /// Writes may carry flushes. Such a write makes itself durable, and with `all` everything that had
    /// completed before.
    Carried {
        /// The device has no such writes, so the kernel flushes its whole cache.
        all: bool,
    },
}

/// A request that the device has, or will get.
#[derive(Clone, Debug)]
struct Job {
    engine: usize,
    id: IoId,
    what: What,
    /// Number of completed writes when the device got the request; `None` before.
    given: Option<u64>,
}

#[derive(Clone, Debug)]
enum What {
    Read { off: u64, len: u64 },
    Write { off: u64, data: Bytes, key: Option<usize>, sync: bool },
    Flush { covers: u64 },
    Discard { off: u64, len: u64 },
}

/// A write in the device's cache, with its completion number.
#[derive(Clone, Debug)]
struct Volatile {
    number: u64,
    off: u64,
    data: Bytes,
}

/// The simulated device; see the module.
#[derive(Clone, Debug)]
pub struct SimDisk {
    bytes: u64,
    /// Content that reads return.
    cache: Image,
    /// For blocks written since the last flush, the content after a power cut, if it differs from `cache`.
    before: BTreeMap<u64, Option<Bytes>>,
    /// Writes that may be lost, in order of completion.
    unflushed: Vec<Volatile>,
    /// Blocks that a later, durable write covers: number of that write.
    newer: BTreeMap<u64, u64>,
    /// Number of completed writes.
    completed: u64,
    queue: Vec<Job>,
    engine: Engine,
    /// Planner of each store's engine.
    planners: Vec<Planner>,
    /// Completions that other completions have caused.
    done: VecDeque<(usize, IoId, Result<(), Errno>)>,
    /// Blocks whose reads fail.
    pub bad_reads: BTreeSet<u64>,
    /// Blocks whose reads have a flipped bit: block to bit.
    pub flips: BTreeMap<u64, u64>,
    /// Blocks whose reads return too few bytes.
    pub short_reads: BTreeSet<u64>,
    /// Error with which all later writes fail.
    pub write_error: Option<Errno>,
    /// Recorded events, if recording.
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

/// Blocks of a write, with their numbers.
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
    /// A device full of zeros.
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

    /// Enlarges the device.
    pub fn grow(&mut self, bytes: u64) {
        self.bytes = self.bytes.max(bytes);
    }

    /// Changes the kind of engine. No request may be in flight.
    ///
    /// # Panics
    /// If a request is in flight.
    pub fn set_engine(&mut self, engine: Engine) {
        assert!(self.queue.is_empty() && self.done.is_empty(), "requests are under way");
        self.engine = engine;
        self.planners.clear();
    }

    /// Submits a request of the first store.
    pub fn submit(&mut self, r: IoRequest) {
        self.submit_to(0, r);
    }

    /// Submits a request of a store through its engine.
    pub fn submit_to(&mut self, engine: usize, r: IoRequest) {
        let Engine::Carried { all } = self.engine else {
            let what = match r.kind {
                IoKind::Read { off, len } => What::Read { off, len: u64::from(len) },
                IoKind::Write { off, bufs } => What::Write { off, data: one_buffer(bufs), key: Some(0), sync: false },
                IoKind::WriteAhead { off, bufs } => What::Write { off, data: one_buffer(bufs), key: None, sync: false },
                IoKind::Flush => What::Flush { covers: 0 },
                IoKind::Discard { off, len } => What::Discard { off, len },
            };
            // The coverage of a flush is determined when the device gets it.
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

    /// Asks an engine's planner and executes its steps.
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

    /// Number of requests not yet completed.
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
        // A write heals a latent error, like remapping in real devices.
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

    /// Makes all completed writes durable.
    fn sync(&mut self) {
        self.unflushed.clear();
        self.newer.clear();
        self.before.clear();
        if let Some(r) = &mut self.record {
            r.push(Done::Flush);
        }
    }

    /// Makes completed writes up to number `upto` durable, and `one` more.
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

    /// Drops all writes that are not durable.
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

    /// Numbers of the blocks from `from` on whose content satisfies `wanted`, ascending.
    #[must_use]
    pub fn find(&self, from: u64, wanted: impl Fn(&[u8]) -> bool) -> Vec<u64> {
        self.cache.range(from..).filter(|(_, b)| wanted(b)).map(|(n, _)| *n).collect()
    }

    /// Completes one request. A flush first completes the writes submitted before it, except those written
    /// ahead, as real engines do. Later calls return these.
    pub fn step(&mut self, rng: &mut Rng) -> Option<IoCompletion> {
        self.step_any(rng).map(|c| c.1)
    }

    /// Like [`SimDisk::step`], and also returns the store of the request.
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
                // A discard takes effect at once, durable or not.
                for b in off / BLOCK..(off + len) / BLOCK {
                    self.cache.remove(&b);
                    self.before.remove(&b);
                }
                Ok(Bytes::new())
            }
        };
        Some((engine, IoCompletion { id, result }))
    }

    /// Index of a request that the device completes next. A flush that is met for the first time may only
    /// begin; it does not cover writes that complete meanwhile.
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

    /// The device after a power cut. Every write since the last flush, also in flight, may be complete, torn or
    /// lost.
    #[must_use]
    pub fn power_cut(&self, rng: &mut Rng) -> Self {
        self.clone().after_power_cut(rng)
    }

    /// Like [`SimDisk::power_cut`], consuming the device.
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
        // The severity of cuts varies between runs.
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
            // The device was writing this block when power failed.
            let b = first + rng.below((data.len() as u64 / BLOCK).max(1));
            if spoils && rng.chance(1, 6) && goes(b) {
                self.bad_reads.insert(b);
            }
        }
        let (bad_reads, flips) = (self.bad_reads, self.flips);
        Self { cache: self.cache, bad_reads, flips, engine: self.engine, ..Self::new(self.bytes) }
    }

    /// The device after a kill of the process. Completed writes stay; any of those in flight may have happened.
    #[must_use]
    pub fn killed(&self, rng: &mut Rng) -> Self {
        self.clone().after_kill(rng)
    }

    /// Like [`SimDisk::killed`], consuming the device.
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

    /// Repeats the recorded events.
    pub fn replay(&mut self, record: &[Done]) {
        for e in record {
            match e {
                Done::Write(off, data) => self.apply(*off, data.clone()),
                Done::Flush => self.sync(),
                Done::Mark(_) => {}
            }
        }
    }

    /// The device after the first `n` events of a recorded run and a cut. Without `rng` all writes since the
    /// last flush are lost; with it the generator decides.
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

    /// Numbers of all blocks ever written, as candidates for faults.
    #[must_use]
    pub fn written(&self) -> Vec<u64> {
        self.cache.keys().copied().collect()
    }

    /// Simulates a misdirected or lost write: block `to` now has the content of `from` (zeros if that was never
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

    /// Completes all queued requests and returns their completions.
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
