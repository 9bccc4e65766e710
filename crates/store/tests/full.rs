//! Small devices are filled with every kind of growth. Growth is refused before any part is done, removing
//! always works, space comes back, and every image opens.
//!
//! `STORE_FULL=n` runs that many seeds, `STORE_FULL_SEED=n` one.

use base::buf::AlignedBuf;
use base::device::Device as _;
use base::rng::Rng;
use base::{Eversion, HObject, PgId, errno};
use bytes::Bytes;
use store::engine::{self, Config, Store};
use store::mem::MemStore;
use store::testing::compare::same;
use store::testing::disk::SimDisk;
use store::testing::{fresh, pump};
use store::{Cid, Event, Health, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

const BYTES: u64 = 64 << 20;

fn cid() -> Cid {
    Cid::Pg(PgId::new(1, 0).into())
}

fn oid(n: u64) -> Oid {
    let hash = (n as u32).wrapping_mul(0x9e37_79b9);
    Oid::new(HObject { oid: format!("object{n}").into(), hash, ..HObject::min() })
}

fn noise(rng: &mut Rng, n: u64) -> Bytes {
    let mut v = vec![0; n as usize];
    v.chunks_mut(8).for_each(|c| c.copy_from_slice(&rng.next_u64().to_le_bytes()[..c.len()]));
    v.into()
}

struct World {
    rng: Rng,
    dev: SimDisk,
    store: Store,
    /// Ranges that the host fills with zeros, and the number of times it did.
    with_host: Option<Vec<(u64, u64)>>,
    filled: u64,
    model: MemStore,
    version: u64,
    /// Numbers of objects that may exist.
    objects: Vec<u64>,
    next: u64,
    /// True if logs keep undo records; `kept` has their versions and objects.
    keeps: bool,
    kept: Vec<(u64, u64)>,
    /// Reason of the last refusal for lack of space.
    why: String,
}

fn config(rng: &mut Rng) -> Config {
    Config {
        meta_bytes: [300 << 10, 4 << 20, 64 << 20][rng.below(3) as usize],
        checkpoint_log_bytes: [64 << 10, 4 << 20][rng.below(2) as usize],
        first_fit: rng.chance(1, 2),
        prepare_less: rng.chance(1, 4),
        kids_max: [3, 6, 128][rng.below(3) as usize],
        fill: true,
        ..Config::default()
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let (dev, store) = fresh(BYTES, seed, &config(&mut rng));
        let mut w = Self {
            rng,
            dev,
            store,
            with_host: None,
            filled: 0,
            model: MemStore::new(),
            version: 0,
            objects: Vec::new(),
            next: 0,
            keeps: seed.is_multiple_of(2),
            kept: Vec::new(),
            why: String::new(),
        };
        w.store.log_filled(w.store.log_ahead(1 << 20).1);
        w.run(vec![Op::MakeCollection { cid: cid(), bits: 0 }]).unwrap();
        w
    }

    /// Runs a transaction to its end. Returns false if there was no room for it.
    fn run(&mut self, ops: Vec<Op>) -> Result<bool, String> {
        self.run_as(ops, false)
    }

    /// Like `run`; with `own` as a transaction that the OSD needs to go on.
    fn run_as(&mut self, ops: Vec<Op>, own: bool) -> Result<bool, String> {
        let t = Transaction { ops };
        self.model.prepare(Tag(1), &t).map_err(|e| format!("the test is wrong: {e:?}"))?;
        self.model.release(Tag(1));
        for _ in 0..200_000 {
            let r = if own { self.store.prepare_own(Tag(1), &t) } else { self.store.prepare(Tag(1), &t) };
            match r {
                Ok(()) => {
                    self.store.submit(Tag(1), t.clone());
                    self.model.submit(Tag(1), t);
                    while self.model.poll_event().is_some() {}
                    return self.wait();
                }
                Err(ReadError::Wait) => self.turn(50),
                Err(ReadError::Io { errno: errno::ENOSPC, what }) => {
                    self.store.release(Tag(1));
                    self.why = what;
                    return Ok(false);
                }
                Err(e) => return Err(format!("prepare: {e:?}, {:?}", self.store.health())),
            }
        }
        Err("prepare waits for ever".into())
    }

    /// A turn, in which the host may begin or end to fill blocks.
    fn turn(&mut self, steps: u64) {
        pump(&mut self.dev, &mut self.rng, &mut self.store, steps);
        match self.with_host.take() {
            None => self.with_host = self.store.poll_fill(),
            Some(ranges) if self.rng.chance(1, 3) => {
                for (off, len) in ranges {
                    self.dev.write(off, &[AlignedBuf::zeroed(len as usize).freeze()]).unwrap();
                }
                self.filled += 1;
                self.store.filled(true);
            }
            with_host => self.with_host = with_host,
        }
    }

    fn wait(&mut self) -> Result<bool, String> {
        for _ in 0..100_000 {
            while let Some(e) = self.store.poll_event() {
                match e {
                    Event::Durable(_, Ok(())) => return Ok(true),
                    Event::Durable(_, Err(e)) => return Err(format!("not durable: {e}, {:?}", self.store.health())),
                    _ => {}
                }
            }
            self.turn(20);
        }
        Err("never durable".into())
    }

    /// Adds the log entry and info that go with every transaction of a PG.
    fn log(&mut self, ops: &mut Vec<Op>) {
        self.version += 1;
        let entry = noise(&mut self.rng, 150);
        ops.push(Op::LogAppend { cid: cid(), version: Eversion::new(1, self.version), entry });
        let info = noise(&mut self.rng, 300);
        ops.push(Op::PgInfo { cid: cid(), info });
        if self.version > 300 {
            ops.push(Op::LogTrim { cid: cid(), to: Eversion::new(1, self.version - 300) });
        }
    }

    /// Grows in one way until there is no room.
    fn fill(&mut self) -> Result<(), String> {
        let kind = self.rng.below(6);
        for _ in 0..200_000 {
            self.next += 1;
            let n = self.next;
            let old = self.objects.get(self.rng.below(self.objects.len() as u64 + 1) as usize).copied();
            let mut ops = match kind {
                0 => {
                    vec![Op::Write { cid: cid(), oid: oid(n), off: 0, data: noise(&mut self.rng, 400_000), sums: None }]
                }
                1 => {
                    let len = 1 + self.rng.below(9000);
                    vec![Op::Write { cid: cid(), oid: oid(n), off: 0, data: noise(&mut self.rng, len), sums: None }]
                }
                // Metadata only.
                2 => {
                    let key = |r: &mut Rng| noise(r, 20);
                    let entries = (0..60).map(|_| (key(&mut self.rng), noise(&mut self.rng, 400))).collect();
                    vec![Op::OmapSet { cid: cid(), oid: oid(old.unwrap_or(n)), entries }]
                }
                3 => {
                    let attrs = vec![(Bytes::from_static(b"a"), noise(&mut self.rng, 3000))];
                    vec![Op::SetAttrs { cid: cid(), oid: oid(n), attrs }]
                }
                // Clones, and overwrites that unshare them block by block.
                4 => match old {
                    Some(o) if self.rng.chance(1, 2) => vec![Op::Clone { cid: cid(), src: oid(o), dst: oid(n) }],
                    o => {
                        let off = self.rng.below(40) * 4096;
                        vec![Op::Write {
                            cid: cid(),
                            oid: oid(o.unwrap_or(n)),
                            off,
                            data: noise(&mut self.rng, 40_960),
                            sums: None,
                        }]
                    }
                },
                _ => {
                    // A few sparse objects.
                    let few = self.rng.below(5);
                    let to = self.objects.get(few as usize).copied().unwrap_or(n);
                    let off = self.rng.below(4000) * 4096;
                    vec![Op::Write { cid: cid(), oid: oid(to), off, data: noise(&mut self.rng, 4096), sums: None }]
                }
            };
            // Operations that overwrite existing data.
            let target = ops.iter().find_map(|o| if let Op::Write { oid, .. } = o { Some(oid.clone()) } else { None });
            let changes = old.filter(|o| self.keeps && target == Some(oid(*o)));
            if changes.is_some() {
                ops.insert(0, Op::Keep { cid: cid(), version: Eversion::new(1, self.version + 1) });
            }
            self.log(&mut ops);
            if !self.run(ops)? {
                return Ok(());
            }
            self.kept.extend(changes.map(|o| (self.version, o)));
            if self.objects.last() != Some(&n) {
                self.objects.push(n);
            }
        }
        Err("never full".into())
    }

    /// Undoes the newest changes, which is never refused.
    fn undo(&mut self) -> Result<(), String> {
        for _ in 0..self.rng.below(20) {
            let Some((version, n)) = self.kept.pop() else { break };
            let mut ops = vec![Op::Undo { cid: cid(), oid: oid(n), version: Eversion::new(1, version) }];
            self.log(&mut ops);
            if !self.run(ops)? {
                return Err(format!("undoing {version} was refused: {}, {:?}", self.why, self.store.statfs()));
            }
        }
        Ok(())
    }

    /// Removes a share of all objects, which is never refused. With few kids a page, trees are ten levels deep.
    /// Then four changes of an object at once may exceed the reserve of such a small device, but one does not.
    fn thin(&mut self, keep: u64) -> Result<(), String> {
        let all = std::mem::take(&mut self.objects);
        for n in all {
            if self.rng.below(10) < keep {
                self.objects.push(n);
                continue;
            }
            let mut ops = match self.rng.below(4) {
                0 => vec![
                    Op::Truncate { cid: cid(), oid: oid(n), size: 0 },
                    Op::OmapClear { cid: cid(), oid: oid(n) },
                    Op::RmAttrs { cid: cid(), oid: oid(n) },
                    Op::Remove { cid: cid(), oid: oid(n) },
                ],
                _ => vec![Op::Remove { cid: cid(), oid: oid(n) }],
            };
            let several = ops.len() > 1;
            self.log(&mut ops);
            let alone = vec![Op::Remove { cid: cid(), oid: oid(n) }];
            if !(self.run(ops)? || several && self.run(alone)?) {
                return Err(format!("removal of object {n} was refused: {}, {:?}", self.why, self.store.statfs()));
            }
        }
        Ok(())
    }

    fn compare(&mut self) -> Result<(), String> {
        let (dev, rng) = (&mut self.dev, &mut self.rng);
        same(&mut self.store, &mut self.model, &mut |s| pump(dev, rng, s, 20), false)?;
        for _ in 0..100_000 {
            if self.dev.queued() == 0 && !self.store.has_io() && self.with_host.is_none() {
                break;
            }
            self.turn(50);
        }
        self.store.check(&mut self.dev)
    }

    fn reopen(&mut self) -> Result<(), String> {
        self.dev =
            if self.rng.chance(1, 2) { self.dev.power_cut(&mut self.rng) } else { self.dev.killed(&mut self.rng) };
        let cfg = config(&mut self.rng);
        self.store = engine::open(&mut self.dev, &cfg).map_err(|e| format!("does not open: {e}"))?.remove(0);
        self.with_host = None;
        self.store.log_filled(self.store.log_ahead(1 << 20).1);
        self.compare()
    }
}

fn history(seed: u64) -> Result<(), String> {
    let mut w = World::new(seed);
    for round in 0..3 {
        // In several ways: where one finds no room another may find some.
        for _ in 0..2 {
            w.fill()?;
        }
        if *w.store.health() != Health::Full {
            return Err(format!("full, but health says {:?}", w.store.health()));
        }
        if w.rng.chance(1, 2) {
            w.reopen()?;
        }
        // The PG's log and info can be written on a full device, too.
        for _ in 0..50 {
            let mut ops = Vec::new();
            w.log(&mut ops);
            if !w.run_as(ops, true)? {
                return Err(format!("a PG's log was refused: {}, {:?}", w.why, w.store.statfs()));
            }
        }
        w.undo()?;
        let keep = [0, 2, 5, 8][w.rng.below(4) as usize];
        w.thin(keep)?;
        w.compare()?;
        if w.rng.chance(1, 2) {
            w.reopen()?;
        }
        if keep == 0 {
            let n = w.next + 1_000_000 + round;
            let data = noise(&mut w.rng, 4 << 20);
            // The undo records are dropped with the log.
            let mut ops = vec![Op::LogTrim { cid: cid(), to: Eversion::new(1, w.version) }];
            w.log(&mut ops);
            if !w.run(ops)? {
                return Err(format!("trimming was refused: {}, {:?}", w.why, w.store.statfs()));
            }
            if !w.run(vec![Op::Write { cid: cid(), oid: oid(n), off: 0, data, sums: None }])? {
                return Err(format!("everything is removed and there is no room: {:?}", w.store.statfs()));
            }
            w.objects.push(n);
        }
    }
    if w.filled < 5 {
        return Err(format!("blocks were filled {} times", w.filled));
    }
    Ok(())
}

#[test]
fn full_devices_refuse_in_time_and_recover() {
    let var = |n: &str| std::env::var(n).ok().and_then(|v| v.parse().ok());
    let one: Option<u64> = var("STORE_FULL_SEED");
    let seeds = match one {
        Some(s) => s..s + 1,
        None => 1..1 + var("STORE_FULL").unwrap_or(1),
    };
    for seed in seeds {
        history(seed).unwrap_or_else(|e| panic!("STORE_FULL_SEED={seed}: {e}"));
    }
}

#[test]
fn an_osd_goes_on_where_clients_find_no_room() {
    let mut w = World::new(1);
    // The whole log of a PG is written again: its entries share pages.
    let entry = noise(&mut w.rng, 200);
    let log = (1..=1000).map(|v| Op::LogAppend { cid: cid(), version: Eversion::new(1, v), entry: entry.clone() });
    assert!(w.run(log.collect()).unwrap(), "{}", w.why);
    w.version = 1000;
    w.run(vec![Op::MakeCollection { cid: Cid::Meta, bits: 0 }]).unwrap();
    let map = |n: u64, data: Bytes| Transaction {
        ops: vec![Op::Write { cid: Cid::Meta, oid: oid(n), off: 0, data, sums: None }],
    };
    let mut n = 1_000_000;
    let mut put = |w: &mut World, own: bool| {
        n += 1;
        let t = map(n, noise(&mut w.rng, 20_000));
        loop {
            let r = if own { w.store.prepare_own(Tag(1), &t) } else { w.store.prepare(Tag(1), &t) };
            match r {
                Ok(()) => {
                    w.store.submit(Tag(1), t.clone());
                    w.model.submit(Tag(1), t);
                    while w.model.poll_event().is_some() {}
                    return w.wait().unwrap();
                }
                Err(ReadError::Wait) => w.turn(50),
                Err(_) => {
                    w.store.release(Tag(1));
                    return false;
                }
            }
        }
    };
    while put(&mut w, false) {}
    let maps = (0..1000).take_while(|_| put(&mut w, true)).count();
    assert!((10..1000).contains(&maps), "{maps} maps found room");
    w.compare().unwrap();
}
