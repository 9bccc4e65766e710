//! A simulated device with a volatile cache: what was written since the last flush may be lost, reordered or torn.
//!
//! Requests complete in an order drawn from a generator. The truth is kept apart from the faults: latent sector errors and bit
//! flips are overlays. Blocks are parts of the buffers that were written, without a copy: simulations spend their time elsewhere.

use base::device::{Device, IoCompletion, IoId, IoKind, IoRequest};
use base::errno::{EIO, Errno};
use base::rng::Rng;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

const BLK: u64 = 4096;
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

/// See the module.
#[derive(Clone, Debug)]
pub struct SimDisk {
    bytes: u64,
    /// What reads see.
    cache: Image,
    /// What a power cut leaves of blocks written since the last flush, where that is not what reads see.
    before: BTreeMap<u64, Option<Bytes>>,
    /// Writes since the last flush, in order of completion.
    unflushed: Vec<(u64, Bytes)>,
    queue: Vec<IoRequest>,
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
    (0..data.len().div_ceil(BLK as usize)).map(move |i| {
        let from = i * BLK as usize;
        let part = from..data.len().min(from + BLK as usize);
        let b = if share { data.slice(part) } else { Bytes::copy_from_slice(&data[part]) };
        (off / BLK + i as u64, b)
    })
}

fn put(image: &mut Image, off: u64, data: &Bytes) {
    image.extend(blocks(off, data));
}

fn put_torn(image: &mut Image, off: u64, data: &Bytes, rng: &mut Rng) {
    for (b, c) in blocks(off, data) {
        let mut old = image.get(&b).map_or_else(|| vec![0; BLK as usize], |x| x.to_vec());
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
            queue: Vec::new(),
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

    /// Takes a request.
    pub fn submit(&mut self, r: IoRequest) {
        self.queue.push(r);
    }

    /// Requests not yet completed.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    fn read(&self, off: u64, len: u64) -> Result<Bytes, Errno> {
        if off + len > self.bytes {
            return Err(EIO);
        }
        let wanted = off / BLK..(off + len) / BLK;
        let faulty = self.bad_reads.range(wanted.clone()).next().is_some()
            || self.short_reads.range(wanted.clone()).next().is_some()
            || self.flips.range(wanted.clone()).next().is_some();
        if faulty {
            return self.read_faulty(wanted);
        }
        let mut there = self.cache.range(wanted.clone()).peekable();
        match there.peek() {
            None => return Ok(zeros(len as usize)),
            Some((_, b)) if len == BLK => return Ok((*b).clone()),
            Some(_) => {}
        }
        let mut out = Vec::with_capacity(len as usize);
        for (n, b) in there {
            out.resize(((n - wanted.start) * BLK) as usize, 0);
            out.extend_from_slice(b);
        }
        out.resize(len as usize, 0);
        Ok(out.into())
    }

    fn read_faulty(&self, wanted: std::ops::Range<u64>) -> Result<Bytes, Errno> {
        let mut out = Vec::with_capacity(((wanted.end - wanted.start) * BLK) as usize);
        for b in wanted {
            if self.bad_reads.contains(&b) {
                return Err(EIO);
            }
            if self.short_reads.contains(&b) {
                break;
            }
            match self.cache.get(&b) {
                Some(x) => out.extend_from_slice(x),
                None => out.extend_from_slice(&[0; BLK as usize]),
            }
            if let Some(bit) = self.flips.get(&b) {
                let at = out.len() - BLK as usize + (bit / 8 % BLK) as usize;
                out[at] ^= 1 << (bit % 8);
            }
        }
        Ok(out.into())
    }

    fn apply(&mut self, off: u64, data: Bytes) {
        assert!(off.is_multiple_of(BLK) && (data.len() as u64).is_multiple_of(BLK), "I/O is in blocks");
        assert!(off + data.len() as u64 <= self.bytes, "write beyond the device");
        for (b, new) in blocks(off, &data) {
            let old = self.cache.insert(b, new);
            self.before.entry(b).or_insert(old);
        }
        // A write heals a latent error, as devices do by remapping.
        if !(self.bad_reads.is_empty() && self.short_reads.is_empty() && self.flips.is_empty()) {
            for b in off / BLK..(off + data.len() as u64) / BLK {
                self.bad_reads.remove(&b);
                self.short_reads.remove(&b);
                self.flips.remove(&b);
            }
        }
        if let Some(r) = &mut self.record {
            r.push(Done::Write(off, data.clone()));
        }
        self.unflushed.push((off, data));
    }

    fn sync(&mut self) {
        self.unflushed.clear();
        self.before.clear();
        if let Some(r) = &mut self.record {
            r.push(Done::Flush);
        }
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
    }

    /// Blocks from `from` on whose content is as wanted, in order.
    #[must_use]
    pub fn find(&self, from: u64, wanted: impl Fn(&[u8]) -> bool) -> Vec<u64> {
        self.cache.range(from..).filter(|(_, b)| wanted(b)).map(|(n, _)| *n).collect()
    }

    /// Completes one request. A flush first completes the writes submitted before it, as engines do, but for those written
    /// ahead, and they are returned with later calls.
    pub fn step(&mut self, rng: &mut Rng) -> Option<IoCompletion> {
        if self.queue.is_empty() {
            return None;
        }
        let mut i = rng.below(self.queue.len() as u64) as usize;
        if matches!(self.queue[i].kind, IoKind::Flush)
            && let Some(w) = self.queue[..i].iter().position(|r| matches!(r.kind, IoKind::Write { .. }))
        {
            i = w;
        }
        let r = self.queue.remove(i);
        let ok = Ok(Bytes::new());
        let result = match r.kind {
            IoKind::Read { off, len } => self.read(off, u64::from(len)),
            IoKind::Write { off, bufs } | IoKind::WriteAhead { off, bufs } => match self.write_error {
                Some(e) => Err(e),
                None => {
                    self.apply(off, one_buffer(bufs));
                    ok
                }
            },
            IoKind::Flush => match self.write_error {
                Some(e) => Err(e),
                None => {
                    self.sync();
                    ok
                }
            },
            IoKind::Discard { off, len } => {
                // What was there is gone at once, durable or not.
                for b in off / BLK..(off + len) / BLK {
                    self.cache.remove(&b);
                    self.before.remove(&b);
                }
                ok
            }
        };
        Some(IoCompletion { id: r.id, result })
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
        for r in std::mem::take(&mut self.queue) {
            if let IoKind::Write { off, bufs } | IoKind::WriteAhead { off, bufs } = r.kind {
                writes.push((off, one_buffer(bufs)));
            }
        }
        self.forget();
        // Swarm: how hard the cut is differs from run to run.
        let keep = rng.below(5);
        while !writes.is_empty() {
            let i = if keep == 4 { 0 } else { rng.below(writes.len() as u64) as usize };
            let (off, data) = writes.remove(i);
            match rng.below(4) {
                x if x < keep => put(&mut self.cache, off, &data),
                3 if keep > 0 => put_torn(&mut self.cache, off, &data, rng),
                _ => {}
            }
        }
        let (bad_reads, flips) = (self.bad_reads, self.flips);
        Self { cache: self.cache, bad_reads, flips, ..Self::new(self.bytes) }
    }

    /// The device after the process was killed: writes that completed stay, of those in flight any may have happened.
    #[must_use]
    pub fn killed(&self, rng: &mut Rng) -> Self {
        self.clone().after_kill(rng)
    }

    /// As [`SimDisk::killed`], of a device that nobody looks at any more.
    #[must_use]
    pub fn after_kill(mut self, rng: &mut Rng) -> Self {
        for r in std::mem::take(&mut self.queue) {
            if let (IoKind::Write { off, bufs } | IoKind::WriteAhead { off, bufs }, true) = (r.kind, rng.chance(1, 2)) {
                self.apply(off, one_buffer(bufs));
            }
        }
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
