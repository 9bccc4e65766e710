//! Long histories with many faults: the store never loses, tears or falsifies data, and the test would notice
//! if it did.
//!
//! Each history is 2,000 transactions of one to three reactors, with at least ten faults from its seed. Faults
//! are power cuts (with lost, reordered and torn writes and unreadable sectors), kills, bit flips, unreadable
//! and short sectors, misdirected and lost writes, a device that stops writing, and a full device. Flushes are
//! carried by writes or not, on both kinds of devices. After each fault the store is compared with the model,
//! and space is accounted to the block. Once the store has rested, rot must leave all acknowledged data, or a
//! store that refuses to open.
//!
//! `STORE_LONG=10000 STORE_STATE=FILE cargo test --release -p belemnite-store --test histories long -- --nocapture`
//! runs that many, starting after the last seed in FILE. `STORE_LONG_SEED=n` runs one.

use base::Uuid;
use base::buf::AlignedBuf;
use base::device::{Device as _, IoRequest};
use base::errno;
use base::planted::{Bug, STORE, plant};
use base::rng::Rng;
use std::collections::VecDeque;
use store::engine::{self, Config, FormatOptions, Store};
use store::layout::Layout;
use store::mem::MemStore;
use store::testing::compare::{durable, same};
use store::testing::compress;
use store::testing::disk::{Engine, SimDisk};
use store::testing::workload::Workload;
use store::{ObjectStore, ReadError, Tag, Transaction};

const BYTES: u64 = 64 << 20;
/// Transactions of a history; `PART` is about the number between two faults.
const TXNS: u64 = 2000;
const PART: u64 = 130;

fn config(rng: &mut Rng) -> Config {
    Config {
        meta_bytes: [60 << 10, 300 << 10, 16 << 20][rng.below(3) as usize],
        cache_bytes: [0, 64 << 10, 1 << 20][rng.below(3) as usize],
        discard: rng.chance(1, 3),
        early_bytes: [8 << 10, 64 << 10][rng.below(2) as usize],
        commits_max: 1 + rng.below(3) as usize,
        checkpoint_log_bytes: [64 << 10, 400 << 10, 4 << 20][rng.below(3) as usize],
        checkpoint_turn_bytes: [8 << 10, 64 << 10][rng.below(2) as usize],
        checkpoint_flight_bytes: 128 << 10,
        first_fit: rng.chance(2, 3),
        prepare_less: rng.chance(1, 3),
        kids_max: [3, 6, 128][rng.below(3) as usize],
        ..Config::default()
    }
}

/// Histories from this seed on are of compressed data.
const PACKED: u64 = 1 << 32;

/// States before the acknowledged one that may be found if rot hits unconfirmed frames.
const PAST: usize = 40;

type Outcome<T> = Result<T, String>;

/// One reactor's store, with the models of its possible states.
struct Lane {
    store: Store,
    load: Workload,
    /// Model with all submitted transactions.
    newest: MemStore,
    /// Model before the transactions of `past`.
    old: MemStore,
    /// Latest acknowledged transactions, the newest at the end.
    past: VecDeque<Transaction>,
    /// Submitted transactions without acknowledgement.
    ahead: VecDeque<(Tag, Transaction)>,
    next: u64,
}

struct History {
    rng: Rng,
    dev: SimDisk,
    engine: Engine,
    /// Ranges that the host has to fill, with their lanes, and when it does so.
    fills: Vec<(usize, Vec<(u64, u64)>)>,
    fill_rng: Rng,
    /// Every third history is of a file that is filled in advance.
    fill: bool,
    /// Requests that the device gets later.
    late: Vec<(usize, IoRequest)>,
    lanes: Vec<Lane>,
    faults: u32,
    seen: Seen,
    /// Changes with each opening. `None` if nothing is compressed.
    packs: Option<u64>,
}

/// Statistics of a history.
#[derive(Debug, Default)]
struct Seen {
    /// Transactions that were suspended because they missed a page or block.
    suspensions: u64,
    /// Block maps of which only the changes were stored.
    deltas: u64,
    /// Times the host filled blocks.
    fills: u64,
    /// Compressed extents.
    packed: u64,
    /// Openings with rot that had to find the exact state, and those that were refused.
    strict: u64,
    refused: u64,
}

impl Seen {
    fn add(&mut self, s: &Store) {
        self.suspensions += s.counters().suspensions;
        self.deltas += s.counters().delta_chunks;
        self.packed += s.packing().packed;
    }
}

fn apply(m: &mut MemStore, t: Transaction) {
    m.submit(Tag(0), t);
    while m.poll_event().is_some() {}
}

/// States before each of these transactions; the first is `old`.
fn earlier<'a>(old: &MemStore, txns: impl IntoIterator<Item = &'a Transaction>) -> Vec<MemStore> {
    let mut m = old.clone();
    let before = |t: &Transaction| {
        let next = m.clone();
        let was = std::mem::replace(&mut m, next);
        apply(&mut m, t.clone());
        was
    };
    txns.into_iter().map(before).collect()
}

/// Drives the store of one reactor while the others rest.
fn pump_one(dev: &mut SimDisk, rng: &mut Rng, at: usize, s: &mut Store, steps: u64) {
    if rng.chance(3, 4) {
        s.end_turn();
    }
    while let Some(r) = s.poll_io() {
        dev.submit_to(at, r);
    }
    for _ in 0..steps {
        let Some((i, c)) = dev.step_any(rng) else { break };
        assert_eq!(i, at, "the others rest");
        s.handle_io(c);
    }
}

impl Lane {
    /// Records a transaction as acknowledged.
    fn acknowledged(&mut self, t: Transaction) {
        self.past.push_back(t);
        if self.past.len() > PAST
            && let Some(t) = self.past.pop_front()
        {
            apply(&mut self.old, t);
        }
    }

    /// Determines which of the possible states the store has, from the newest back to the acknowledged one.
    fn settle_on_state(&mut self, at: usize, dev: &mut SimDisk, rng: &mut Rng) -> Outcome<()> {
        let txns = || self.past.iter().chain(self.ahead.iter().map(|a| &a.1));
        let mut states = if self.ahead.is_empty() { Vec::new() } else { earlier(&self.old, txns()) };
        loop {
            let r = same(&mut self.store, &mut self.newest, &mut |s| pump_one(dev, rng, at, s, 4), false);
            match r {
                Ok(()) => break,
                Err(why) if self.ahead.pop_back().is_none() => {
                    return Err(format!("none of the possible states; against the acknowledged one: {why}"));
                }
                Err(_) => self.newest = states.pop().unwrap_or_default(),
            }
        }
        for (_, t) in std::mem::take(&mut self.ahead) {
            self.acknowledged(t);
        }
        Ok(())
    }

    /// Blocks of the log that opening reads, the newest last, and the place of the next frame.
    fn log(&self, at: usize, lanes: usize) -> (Vec<u64>, u64) {
        let (first, blocks) = Layout::of(BYTES).unwrap().ring(at as u16, lanes as u16);
        let used = self.store.replay_bytes() / 4096;
        let head = self.store.log_ahead(u64::MAX).0 / 4096 - first;
        ((0..used).map(|i| first + (head + blocks + i - used) % blocks).collect(), first + head % blocks)
    }
}

impl History {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let cfg = config(&mut rng);
        let reactors = [1, 1, 2, 3][rng.below(4) as usize];
        let mut dev = SimDisk::new(BYTES);
        let engine = [Engine::Plain, Engine::Carried { all: false }, Engine::Carried { all: true }];
        let engine = engine[rng.below(3) as usize];
        dev.set_engine(engine);
        let o = FormatOptions { uuid: Uuid([seed as u8; 16]), reactors, labels: Default::default() };
        engine::format(&mut dev, &o).unwrap();
        let fill = seed.is_multiple_of(3);
        let stores = engine::open(&mut dev, &Config { reactors, fill, ..cfg }).unwrap();
        let lane = |store| Lane {
            store,
            load: Workload::new(&mut rng),
            newest: MemStore::new(),
            old: MemStore::new(),
            past: VecDeque::new(),
            ahead: VecDeque::new(),
            next: 1,
        };
        let lanes = stores.into_iter().map(lane).collect();
        let (fills, fill_rng) = (Vec::new(), Rng::new(seed));
        let (late, seen) = (Vec::new(), Seen::default());
        let packs = (seed >= PACKED).then_some(seed);
        let mut h = Self { rng, dev, engine, fills, fill_rng, fill, late, lanes, faults: 0, seen, packs };
        if packs.is_some() {
            h.lanes.iter_mut().for_each(|l| l.load.soften());
        }
        h.compress();
        h
    }

    fn compress(&mut self) {
        if let Some(n) = &mut self.packs {
            *n += 1;
            self.lanes.iter_mut().for_each(|l| compress(&mut l.store, *n));
        }
    }

    fn turn(&mut self, steps: u64) -> Outcome<()> {
        for (i, l) in self.lanes.iter_mut().enumerate() {
            if self.rng.chance(3, 4) {
                l.store.end_turn();
            }
            while let Some(r) = l.store.poll_io() {
                self.dev.submit_to(i, r);
            }
            if self.fill
                && self.fill_rng.chance(1, 2)
                && let Some(ranges) = l.store.poll_fill()
            {
                self.fills.push((i, ranges));
            }
        }
        if self.fill_rng.chance(1, 4) {
            self.fill_now();
        }
        for _ in 0..steps {
            match self.dev.step_any(&mut self.rng) {
                Some((i, c)) => self.lanes[i].store.handle_io(c),
                None => break,
            }
        }
        for l in &mut self.lanes {
            let mut done = Vec::new();
            durable(&mut l.store, &mut done);
            for (tag, ok) in done {
                if !ok {
                    if self.dev.write_error.is_some() {
                        continue;
                    }
                    return Err(format!("not durable: {:?}", l.store.health()));
                }
                match l.ahead.pop_front() {
                    Some((t, txn)) if t == tag => l.acknowledged(txn),
                    other => return Err(format!("{tag:?} acknowledged, {:?} expected", other.map(|o| o.0))),
                }
            }
        }
        Ok(())
    }

    /// Does what the host does beside the store: writes zeros to the ranges, and says so.
    fn fill_now(&mut self) {
        for (i, ranges) in std::mem::take(&mut self.fills) {
            let zeros = |len: u64| AlignedBuf::zeroed(len as usize).freeze();
            let ok = ranges.iter().all(|(off, len)| self.dev.write(*off, &[zeros(*len)]).is_ok());
            self.seen.fills += u64::from(ok);
            self.lanes[i].store.filled(ok);
        }
    }

    fn transact(&mut self) -> Outcome<()> {
        let at = self.rng.below(self.lanes.len() as u64) as usize;
        let l = &mut self.lanes[at];
        let tag = Tag(l.next);
        l.next += 1;
        let txn = l.load.next(&mut self.rng, &l.newest);
        l.newest.prepare(tag, &txn).map_err(|e| format!("the workload is wrong: {e:?}"))?;
        for round in 0.. {
            match self.lanes[at].store.prepare(tag, &txn) {
                Ok(()) => break,
                Err(ReadError::Wait) if round < 100_000 => {
                    self.give_late();
                    self.turn(3)?;
                }
                Err(ReadError::Io { errno: errno::ENOSPC, .. }) => {
                    // The device is full; no part of the transaction was applied.
                    self.lanes[at].store.release(tag);
                    self.faults += 1;
                    return Ok(());
                }
                Err(e) => return Err(format!("prepare: {e:?}")),
            }
        }
        let l = &mut self.lanes[at];
        apply(&mut l.newest, txn.clone());
        l.ahead.push_back((tag, txn.clone()));
        l.store.submit(tag, txn);
        Ok(())
    }

    fn settle(&mut self) -> Outcome<()> {
        for _ in 0..100_000 {
            let at_rest = |l: &Lane| !l.store.has_io() && l.ahead.is_empty() && !l.store.wants_turn();
            if self.fills.is_empty() && self.dev.queued() == 0 && self.lanes.iter().all(at_rest) {
                return Ok(());
            }
            self.turn(20)?;
        }
        Err("the store never comes to rest".into())
    }

    fn compare(&mut self, errors_allowed: bool) -> Outcome<()> {
        let (dev, rng) = (&mut self.dev, &mut self.rng);
        for (i, l) in self.lanes.iter_mut().enumerate() {
            same(&mut l.store, &mut l.newest, &mut |s| pump_one(dev, rng, i, s, 4), errors_allowed)?;
            // Completes all requests, so that the next step starts clean.
            while dev.queued() > 0 {
                pump_one(dev, rng, i, &mut l.store, 4);
            }
        }
        Ok(())
    }

    /// Checks a single reactor. With several, blocks of the other stores are in use too.
    fn check(&mut self) -> Outcome<()> {
        match &mut self.lanes[..] {
            [l] => l.store.check(&mut self.dev),
            _ => Ok(()),
        }
    }

    fn reopen(&mut self, dev: SimDisk) -> Outcome<()> {
        self.dev = dev;
        self.open()
    }

    fn open(&mut self) -> Outcome<()> {
        let cfg = Config { reactors: self.lanes.len() as u16, fill: self.fill, ..config(&mut self.rng) };
        let stores = engine::open(&mut self.dev, &cfg).map_err(|e| format!("does not open: {e}"))?;
        self.fills.clear();
        for (l, s) in self.lanes.iter_mut().zip(stores) {
            self.seen.add(&l.store);
            l.store = s;
            let part = self.fill_rng.below(64) * 4096;
            l.store.log_filled(l.store.log_ahead(part).1);
        }
        self.compress();
        self.check().map_err(|e| format!("after opening: {e}"))?;
        for (i, l) in self.lanes.iter_mut().enumerate() {
            l.settle_on_state(i, &mut self.dev, &mut self.rng)?;
            while self.dev.queued() > 0 {
                pump_one(&mut self.dev, &mut self.rng, i, &mut l.store, 4);
            }
        }
        Ok(())
    }

    /// Damages one block.
    fn spoil(&mut self, victim: u64, blocks: &[u64]) {
        match self.rng.below(5) {
            0 => drop(self.dev.bad_reads.insert(victim)),
            1 => drop(self.dev.short_reads.insert(victim)),
            2 => {
                let from = blocks[self.rng.below(blocks.len() as u64) as usize];
                self.dev.misplace(from, victim);
            }
            3 => self.dev.misplace(u64::MAX, victim),
            // Most flips are in the used part.
            _ if self.rng.chance(1, 2) => drop(self.dev.flips.insert(victim, self.rng.next_u64() % (64 * 8))),
            _ => drop(self.dev.flips.insert(victim, self.rng.next_u64() % (4096 * 8))),
        }
        self.faults += 1;
    }

    /// Rot on a copy of the device: reads give errors, never wrong data. All acknowledged data is there, unless
    /// the store refuses to open.
    fn rot(&mut self) -> Outcome<()> {
        self.settle()?;
        let rested = self.rng.chance(3, 4);
        for _ in 0..if rested { 2 } else { 0 } {
            self.lanes.iter_mut().for_each(|l| l.store.confirm());
            self.settle()?;
        }
        let whole = self.dev.clone();
        let blocks = self.dev.written();
        let lanes = self.lanes.len();
        let logs: Vec<(Vec<u64>, u64)> = self.lanes.iter().enumerate().map(|(i, l)| l.log(i, lanes)).collect();
        // For each log: the number of damaged blocks, and whether one of them records the previous frame as
        // durable.
        let mut hit = vec![(0, false); lanes];
        // The store must always detect a single damaged block.
        let victims = if self.rng.chance(1, 2) { 1 } else { 1 + self.rng.below(6) };
        for _ in 0..victims {
            let victim = match &logs[self.rng.below(lanes as u64) as usize] {
                // Targets are the newest blocks of the log, its end, or its beginning.
                (log, head) if self.rng.chance(1, 2) && !log.is_empty() => match self.rng.below(8) {
                    0 => *head,
                    1 => log[0],
                    2 => log[self.rng.below(log.len() as u64) as usize],
                    _ => log[log.len() - 1 - self.rng.below(log.len().min(6) as u64) as usize],
                },
                _ => blocks[self.rng.below(blocks.len() as u64) as usize],
            };
            for (log, n) in logs.iter().zip(&mut hit) {
                n.0 += u32::from(log.0.contains(&victim));
                n.1 |= log.0.last() == Some(&victim);
            }
            self.spoil(victim, &blocks);
        }
        // The running store is compared, and a reopened one where it opens.
        self.compare(true)?;
        let cfg = Config { reactors: lanes as u16, ..config(&mut self.rng) };
        match engine::open(&mut self.dev, &cfg) {
            Ok(stores) => {
                for (i, (mut s, l)) in stores.into_iter().zip(&mut self.lanes).enumerate() {
                    let (dev, rng) = (&mut self.dev, &mut self.rng);
                    let mut why = String::new();
                    let mut is = |m: &mut MemStore| {
                        let r = same(&mut s, m, &mut |s| pump_one(dev, rng, i, s, 4), true);
                        while dev.queued() > 0 {
                            pump_one(dev, rng, i, &mut s, 4);
                        }
                        r.map_err(|e| why = e).is_ok()
                    };
                    let newest = is(&mut l.newest);
                    if rested && hit[i].0 < 2 && (victims == 1 || !hit[i].1) {
                        self.seen.strict += 1;
                        if !newest {
                            return Err(format!("opened with rot in another state than the newest: {why}"));
                        }
                    // Rot hit the newest frame or its data, and the record that it was durable. Then the state
                    // before is allowed; it is computed only when needed.
                    } else if !newest && !earlier(&l.old, &l.past).iter_mut().rev().any(is) {
                        return Err(format!("opened with rot in a state that never was; against the oldest: {why}"));
                    }
                }
            }
            Err(_) => self.seen.refused += 1,
        }
        self.lanes.iter_mut().for_each(|l| l.ahead.clear());
        self.reopen(whole)
    }

    /// Confirms the newest frames, and kills the process while the confirmation and a later transaction are in
    /// flight, in any order.
    fn die_confirming(&mut self) -> Outcome<()> {
        self.settle()?;
        for (i, l) in self.lanes.iter_mut().enumerate() {
            l.store.confirm();
            l.store.confirm();
            self.late.extend(std::iter::from_fn(|| l.store.poll_io()).map(|r| (i, r)));
        }
        if self.engine != Engine::Plain {
            // The writes of this device complete in order.
            self.give_late();
        }
        self.transact()?;
        let steps = self.rng.below(8);
        self.turn(steps)?;
        self.give_late();
        let dev = self.dev.killed(&mut self.rng);
        self.reopen(dev)?;
        // The state that opening found must be stable.
        self.open()
    }

    /// Submits the delayed requests.
    fn give_late(&mut self) {
        for (i, r) in std::mem::take(&mut self.late) {
            self.dev.submit_to(i, r);
        }
    }

    fn fault(&mut self) -> Outcome<()> {
        self.faults += 1;
        if self.rng.chance(1, 3) {
            self.die_confirming()?;
        }
        match self.rng.below(6) {
            0 | 1 => {
                let dev = self.dev.power_cut(&mut self.rng);
                self.reopen(dev)
            }
            2 => {
                let dev = self.dev.killed(&mut self.rng);
                self.reopen(dev)
            }
            3 => {
                // The device stops writing; then the machine restarts.
                self.dev.write_error = Some(errno::EIO);
                for _ in 0..20 {
                    self.turn(5)?;
                }
                let mut dev = self.dev.power_cut(&mut self.rng);
                dev.write_error = None;
                self.dev.write_error = None;
                self.reopen(dev)
            }
            _ => self.rot(),
        }
    }
}

/// Runs a history. Returns the number of faults, and statistics.
fn history(seed: u64, txns: u64) -> Outcome<(u32, Seen)> {
    let mut h = History::new(seed);
    for n in 1..=txns {
        h.transact()?;
        let steps = h.rng.below(6);
        h.turn(steps)?;
        if n.is_multiple_of(PART) {
            h.fault()?;
            // Another kind of load.
            h.lanes.iter_mut().for_each(|l| l.load.vary(&mut h.rng));
        }
    }
    h.settle()?;
    h.compare(false)?;
    // Reads may have let a checkpoint end; blocks of its discards are in use until these are done.
    h.settle()?;
    h.check()?;
    for l in &h.lanes {
        h.seen.add(&l.store);
    }
    Ok((h.faults, h.seen))
}

fn var(n: &str) -> Option<u64> {
    std::env::var(n).ok().and_then(|v| v.parse().ok())
}

#[test]
fn short_set() {
    // Earlier forms of the histories found bugs up to seed 10,000. These have tests of their own: a shared
    // object written and removed in one transaction, an unreadable block that hid that a broken frame had been
    // durable, a merge that leaves nothing, and the same large write twice in one transaction.
    let (mut suspended, mut deltas, mut fills, mut strict, mut refused) = (0, 0, 0, 0, 0);
    for seed in 1..=8 {
        let (faults, seen) = history(seed, TXNS).unwrap_or_else(|e| panic!("STORE_LONG_SEED={seed}: {e}"));
        assert!(faults >= 10, "only {faults} faults in history {seed}");
        suspended += seen.suspensions;
        deltas += seen.deltas;
        fills += seen.fills;
        strict += seen.strict;
        refused += seen.refused;
    }
    assert!(suspended > 100, "only {suspended} transactions missed something while they were applied");
    assert!(deltas > 100, "only {deltas} chunks of block maps were stored as changes");
    assert!(fills > 20, "blocks were filled {fills} times");
    assert!(strict > 5 && refused > 5, "{strict} times opened with rot, {refused} times refused");
}

#[test]
fn compressed_data() {
    let mut extents = 0;
    for seed in PACKED + 1..=PACKED + 6 {
        let (faults, seen) = history(seed, TXNS).unwrap_or_else(|e| panic!("STORE_LONG_SEED={seed}: {e}"));
        assert!(faults >= 10, "only {faults} faults in history {seed}");
        extents += seen.packed;
    }
    assert!(extents > 500, "only {extents} compressed extents");
}

#[test]
fn long() {
    if let Some(seed) = var("STORE_LONG_SEED") {
        history(seed, var("STORE_LONG_TXNS").unwrap_or(TXNS)).unwrap_or_else(|e| panic!("STORE_LONG_SEED={seed}: {e}"));
        return;
    }
    let Some(n) = var("STORE_LONG") else { return };
    let state = std::env::var("STORE_STATE").ok();
    let done = state.as_ref().and_then(|f| std::fs::read_to_string(f).ok()).and_then(|s| s.trim().parse().ok());
    let first: u64 = done.unwrap_or(0) + 1;
    for seed in first..first + n {
        history(seed, TXNS).unwrap_or_else(|e| panic!("STORE_LONG_SEED={seed}: {e}"));
        if let Some(f) = &state {
            std::fs::write(f, seed.to_string()).unwrap();
        }
        if seed % 10 == 0 {
            println!("{seed} histories clean");
        }
    }
}

#[test]
fn planted_bugs_are_found() {
    for bug in STORE {
        plant(Some(bug));
        // Few power cuts fall between a root and the next overwrite, and few bad blocks into the log.
        let budget = if matches!(bug, Bug::StoreSkipRootFlush | Bug::StoreAllFlushed | Bug::StoreUnreadableLog) {
            400
        } else {
            40
        };
        let found = (1..=budget).find(|seed| {
            let r = std::panic::catch_unwind(|| history(*seed, 600));
            !matches!(r, Ok(Ok(_)))
        });
        plant(None);
        assert!(found.is_some(), "{bug:?} was not found");
        println!("{bug:?}: found by history {}", found.unwrap_or(0));
    }
    assert!(!base::planted::acts(Bug::StoreSkipFlush));
}
