//! A pool gets more PGs while clients write, and the OSD may end at any step. Tests that all reactors end up
//! equally loaded, and no operation is lost, repeated or left behind.
//!
//! The test has the reactors of one OSD, each with a memory store. At a crash a store keeps what its last turn
//! made durable. Items of each queue stay in order; the queues are served in random order. `MOVES_SEEDS=n` runs
//! more seeds.

use base::Utime;
use base::id::Uuid;
use base::rng::Rng;
use base::{AddrVec, EntityAddr, EntityKind, EntityName, Epoch, Mono, Now, OsdId, PgId, PoolId, SnapId};
use bytes::Bytes;
use cluster::caps::OsdCaps;
use cluster::crush::CrushMap;
use cluster::pool::{flag, pg_mask, stable_mod};
use cluster::{Incremental, OsdMap, PgPool};
use net::ConnId;
use osd::core::control::{PgCreate, Report};
use osd::core::maps::{MapHistory, Source};
use osd::core::moves::{Moves, News, Told, survey};
use osd::core::pgs::{Input, Output, Pgs};
use osd::core::places::Places;
use osd::core::session::{SessionInfo, session_id};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use store::ObjectStore;
use store::mem::MemStore;
use wire::Features;
use wire::msg::{MOsdMap, MOsdOp, OpCode, OpVec, OsdOp, msg_flags};
use wire::types::{ObjectLocator, SnapContext};

const ME: OsdId = OsdId(0);
const POOL: PoolId = PoolId(1);
const FSID: Uuid = Uuid([7; 16]);
const OBJECTS: u64 = 60;

fn named(pg: PgId, reactors: usize) -> usize {
    pg.seed as usize % reactors
}

fn hash(name: &str) -> u32 {
    name.bytes().fold(7u32, |h, b| h.wrapping_mul(0x0100_0193) ^ u32::from(b)).wrapping_mul(0x9e37_79b1)
}

enum ToControl {
    Moves(usize, News),
    UpThru(Epoch),
}

struct Reactor {
    pgs: Pgs,
    store: MemStore,
    /// State at the end of the last turn.
    durable: MemStore,
    mailbox: VecDeque<Input>,
}

/// An operation of the client without an answer.
struct Asked {
    name: String,
    ops: Vec<OsdOp>,
    /// Number of times it was sent.
    sent: u32,
}

struct World {
    seed: u64,
    rng: Rng,
    reactors: Vec<Reactor>,
    control: VecDeque<ToControl>,
    moves: Moves,
    history: MapHistory,
    /// All maps, for a restart.
    blobs: (Bytes, BTreeMap<Epoch, Bytes>),
    ms: u64,
    session: Arc<SessionInfo>,
    sessions: u64,
    asked: BTreeMap<u64, Asked>,
    answers: BTreeMap<u64, u32>,
    reads: BTreeMap<u64, Bytes>,
    tid: u64,
    /// Final content of every object.
    model: BTreeMap<String, Vec<u8>>,
    /// Steps until the OSD crashes.
    fuse: Option<u64>,
    moved: u64,
    /// Lines for the cluster log.
    said: Vec<String>,
}

fn session(reactor: usize, conn: u64) -> Arc<SessionInfo> {
    Arc::new(SessionInfo {
        id: session_id(reactor, ConnId(conn)),
        reactor,
        conn: ConnId(conn),
        entity: EntityName::new(EntityKind::CLIENT, 4),
        principal: auth::Principal::nobody(([127, 0, 0, 1], 1).into()),
        addr: EntityAddr { nonce: 9, ..EntityAddr::default() },
        features: Features::PACIFIC,
        caps: OsdCaps::allow_all(),
        owner: 0,
    })
}

fn osdmap_of(crush: &CrushMap) -> OsdMap {
    let mut m = OsdMap { fsid: FSID, epoch: Epoch(1), ..OsdMap::default() };
    m.set_max_osd(1).unwrap();
    m.crush = Arc::new(crush.clone());
    m
}

impl World {
    fn new(seed: u64, reactors: usize) -> Self {
        let mut crush = CrushMap::fresh("osd");
        let at = [("host", "h".to_owned()), ("root", "default".to_owned())].map(|(a, b)| (a.to_owned(), b)).into();
        crush.insert_item(0, 0x1_0000, "osd.0", &at).unwrap();
        let map = osdmap_of(&crush);
        let (full, _) = map.encode_blob(Features::PACIFIC);
        let mut w = Self {
            seed,
            rng: Rng::new(seed),
            reactors: Vec::new(),
            control: VecDeque::new(),
            moves: Moves::new(reactors),
            history: MapHistory::new(FSID),
            blobs: (full, BTreeMap::new()),
            ms: 10_000,
            session: session(0, 1),
            sessions: 1,
            asked: BTreeMap::new(),
            answers: BTreeMap::new(),
            reads: BTreeMap::new(),
            tid: 0,
            model: BTreeMap::new(),
            fuse: None,
            moved: 0,
            said: Vec::new(),
        };
        let stores = (0..reactors).map(|_| MemStore::new()).collect();
        w.start(stores);
        let addr = |p: u16| AddrVec::from(EntityAddr::msgr2(([127, 0, 0, 1], p).into(), 7));
        w.commit(|i| {
            i.new_state.insert(ME, cluster::osdmap::osd_state::EXISTS);
            i.new_weight.insert(ME, 0x1_0000);
            i.new_up_client.insert(ME, addr(1));
            i.new_up_cluster.insert(ME, addr(2));
        });
        let pool = PgPool {
            kind: cluster::pool::kind::REPLICATED,
            size: 1,
            min_size: 1,
            pg_num: 1,
            pgp_num: 1,
            pg_num_pending: 1,
            flags: flag::HASHPSPOOL | flag::CREATING | flag::SELFMANAGED_SNAPS,
            object_hash: 2,
            ..PgPool::default()
        };
        w.commit(|i| {
            i.new_pools.insert(POOL, pool.clone());
            i.new_pool_names.insert(POOL, "p".into());
        });
        let create = PgCreate { pgid: PgId::new(1, 0).into(), stamp: Default::default(), extra: None };
        w.all(|| Input::Create(vec![create.clone()]));
        w
    }

    fn start(&mut self, stores: Vec<MemStore>) {
        let n = stores.len();
        let mut stores: Vec<MemStore> = stores
            .into_iter()
            .map(|mut s| {
                s.end_turn();
                while s.poll_event().is_some() {}
                s.without_waits()
            })
            .collect();
        let (found, doomed) = survey(&mut stores, |pg| named(pg, n), MemStore::end_turn);
        self.moves = Moves::new(n);
        self.control.clear();
        self.reactors = stores
            .into_iter()
            .enumerate()
            .map(|(i, store)| {
                let places = Places::new(i, Box::new(move |pg| named(pg, n)), &found);
                let mut pgs = Pgs::new(ME, self.seed, places);
                let doomed = doomed.iter().filter(|(at, _)| *at == i).map(|(_, cid)| *cid).collect();
                pgs.share_reactors(n, true, doomed);
                let store = store.hold_durable();
                Reactor { pgs, durable: store.clone(), store, mailbox: VecDeque::new() }
            })
            .collect();
        let feed = self.history.feed();
        self.all(|| Input::Load(feed.clone()));
    }

    /// Crashes and restarts the OSD. Its client connects again and resends unanswered operations.
    fn crash(&mut self) {
        if std::env::var_os("MOVES_TRACE").is_some() {
            eprintln!("{} crash, moving {:?}", self.ms, self.moves.moving());
            for (i, r) in self.reactors.iter().enumerate() {
                let all: Vec<_> =
                    r.durable.collections().into_iter().map(|(c, b)| (pg::pg_of(c).map(|p| p.pg.seed), b)).collect();
                let live: Vec<_> = r.pgs.iter().map(|p| (p.spg().pg.seed, p.state().clone())).collect();
                eprintln!("  {i}: {all:?} {live:?}");
            }
        }
        let stores = self.reactors.drain(..).map(|r| r.durable).collect();
        // One reactor stores the maps; other reactors may have made effects of newer maps durable before.
        let newest = self.history.epoch();
        let stored = Epoch(newest.0.saturating_sub(self.rng.below(4) as u32));
        let lost = self.blobs.1.split_off(&stored.next());
        self.history = MapHistory::restore(FSID, &self.blobs.0, &self.blobs.1).unwrap();
        self.start(stores);
        self.blobs.1.extend(lost.clone());
        if !lost.is_empty() {
            self.publish(&MOsdMap { fsid: FSID, newest_map: newest, incremental_maps: lost, ..MOsdMap::default() });
        }
        // No message is handled before this is done.
        for at in 0..self.reactors.len() {
            self.take(at);
            // Data that a start reads is always in memory, other data is not.
            let seed = self.rng.next_u64();
            let r = &mut self.reactors[at];
            r.store = std::mem::take(&mut r.store).with_waits(seed);
        }
        self.connect();
    }

    fn connect(&mut self) {
        self.sessions += 1;
        self.session = session(self.rng.below(self.reactors.len() as u64) as usize, self.sessions);
        let tids: Vec<u64> = self.asked.keys().copied().collect();
        for t in tids {
            self.send(t);
        }
    }

    fn all(&mut self, mut item: impl FnMut() -> Input) {
        for r in &mut self.reactors {
            r.mailbox.push_back(item());
        }
    }

    fn map(&self) -> Arc<OsdMap> {
        self.history.current().cloned().unwrap()
    }

    /// Commits a map at the monitor, and publishes it through the control machine.
    fn commit(&mut self, change: impl FnOnce(&mut Incremental)) {
        let mut m = MOsdMap { fsid: FSID, ..MOsdMap::default() };
        let last = match self.history.current().cloned() {
            Some(l) => l,
            None => {
                m.maps.insert(Epoch(1), self.blobs.0.clone());
                Arc::new(OsdMap::decode_blob(&self.blobs.0).unwrap())
            }
        };
        let mut inc = Incremental::new(FSID, last.epoch.next(), Utime { sec: last.epoch.0, nsec: 0 });
        change(&mut inc);
        let next = last.apply(&inc).unwrap();
        let (_, crc) = next.encode_blob(Features::PACIFIC);
        let blob = inc.encode_blob(Features::PACIFIC, crc);
        self.blobs.1.insert(next.epoch, blob.clone());
        m.newest_map = next.epoch;
        m.incremental_maps.insert(next.epoch, blob);
        self.publish(&m);
    }

    fn publish(&mut self, m: &MOsdMap) {
        let got = self.history.absorb(m, Source::Monitor).unwrap();
        let feed = self.history.feed().unwrap();
        got.maps.iter().for_each(|m| self.moves.published(m));
        self.all(|| Input::Maps(got.maps.clone(), feed.clone()));
    }

    fn grow(&mut self, pg_num: u32) {
        let mut p = (*self.map().pools[&POOL]).clone();
        (p.pg_num, p.pgp_num, p.pg_num_pending) = (pg_num, 1, pg_num);
        self.commit(|i| drop(i.new_pools.insert(POOL, p)));
        // Operations for PGs that have changed are sent again.
        let tids: Vec<u64> = self.asked.keys().copied().collect();
        for t in tids {
            self.send(t);
        }
    }

    fn now(&self) -> Now {
        let d = Duration::from_millis(self.ms);
        Now { mono: Mono(0) + d, wall: Utime { sec: 1_700_000_000, nsec: 0 }.plus(d) }
    }

    fn outputs(&mut self, at: usize) {
        while let Some(o) = self.reactors[at].pgs.poll_output() {
            match o {
                Output::Reply(s, r) if s == self.session.id => {
                    assert_eq!(r.result, 0, "{:?}", self.asked.get(&r.tid).map(|a| &a.name));
                    *self.answers.entry(r.tid).or_default() += 1;
                    if self.asked.remove(&r.tid).is_some_and(|a| a.ops[0].op == OpCode::READ) {
                        self.reads.insert(r.tid, r.ops[0].outdata.clone());
                    }
                }
                Output::Control(Report::WantUpThru(e)) => self.control.push_back(ToControl::UpThru(e)),
                Output::Reactor(to, input) => self.reactors[to].mailbox.push_back(input),
                Output::Moves(news) => self.control.push_back(ToControl::Moves(at, news)),
                Output::Control(Report::Log(_, text)) => self.said.push(text),
                Output::PgFailed(pg, e) => panic!("seed {}: reactor {at}: {pg} failed: {e}", self.seed),
                _ => {}
            }
        }
    }

    fn take(&mut self, at: usize) {
        let Some(item) = self.reactors[at].mailbox.pop_front() else { return };
        let now = self.now();
        let Reactor { pgs, store, .. } = &mut self.reactors[at];
        pgs.handle(item, now, store);
        self.outputs(at);
    }

    fn turn(&mut self, at: usize) {
        let now = self.now();
        loop {
            let Reactor { pgs, store, .. } = &mut self.reactors[at];
            let Some(e) = store.poll_event() else { break };
            pgs.store_event(e, now, store);
            self.outputs(at);
        }
        if self.rng.chance(1, 2) {
            let r = &mut self.reactors[at];
            r.durable = r.store.clone();
            r.store.end_turn();
        }
    }

    fn run_control(&mut self) {
        let Some(c) = self.control.pop_front() else { return };
        let told = match c {
            ToControl::Moves(at, news) => {
                let map = self.map();
                self.moves.handle(at, news, Some(&map))
            }
            ToControl::UpThru(e) => {
                if self.map().info(ME).up_thru < e {
                    self.commit(|i| i.new_up_thru.extend([(ME, e)]));
                }
                None
            }
        };
        if std::env::var_os("MOVES_TRACE").is_some() && told.is_some() {
            eprintln!("{} {told:?} {:?}", self.ms, self.map().epoch);
        }
        if let Some(Told::Decided { granted, .. }) = told {
            self.moved += u64::from(granted);
        }
        let n = self.reactors.len();
        for (i, input) in told.into_iter().flat_map(|t| t.inputs(n)) {
            self.reactors[i].mailbox.push_back(input);
        }
    }

    fn step(&mut self) {
        if let Some(f) = &mut self.fuse {
            *f = f.saturating_sub(1);
            if *f == 0 {
                self.fuse = None;
                return self.crash();
            }
        }
        let at = self.rng.below(self.reactors.len() as u64) as usize;
        match self.rng.below(12) {
            0..5 => self.take(at),
            5..9 => self.turn(at),
            9 | 10 => self.run_control(),
            _ => {
                self.ms += 100;
                let now = self.now();
                let Reactor { pgs, store, .. } = &mut self.reactors[at];
                pgs.tick(now, store);
                pgs.pace(now, store);
                self.outputs(at);
            }
        }
    }

    fn send(&mut self, tid: u64) {
        let map = self.map();
        let n = map.pools[&POOL].pg_num;
        let Some(a) = self.asked.get_mut(&tid) else { return };
        a.sent += 1;
        let write = a.ops.iter().any(|o| o.op.is_write());
        let h = hash(&a.name);
        let pg = PgId { pool: POOL, seed: stable_mod(h, n, pg_mask(n)) };
        let m = MOsdOp {
            tid,
            pgid: pg.into(),
            hash: h,
            osdmap_epoch: map.epoch,
            flags: if write { msg_flags::WRITE | msg_flags::ONDISK } else { msg_flags::READ },
            locator: ObjectLocator::new(POOL),
            oid: Bytes::copy_from_slice(a.name.as_bytes()),
            ops: OpVec::from_vec(a.ops.clone()),
            snapid: SnapId::HEAD,
            // Takes a snapshot from time to time, so that there are clones.
            snapc: SnapContext { seq: SnapId(tid / 97), snaps: (1..=tid / 97).rev().take(2).map(SnapId).collect() },
            ..MOsdOp::default()
        };
        // Routes the operation as the connection's reactor does.
        let at = self.session.reactor;
        let place = self.reactors[at].pgs.place_of_op(&m);
        let session = self.session.clone();
        if place == at {
            let now = self.now();
            let Reactor { pgs, store, .. } = &mut self.reactors[at];
            pgs.op(&session, Box::new(m), now, store);
            self.outputs(at);
        } else {
            self.reactors[place].mailbox.push_back(Input::Op(session, Box::new(m)));
        }
    }

    fn ask(&mut self, name: &str, ops: Vec<OsdOp>) -> u64 {
        self.tid += 1;
        let tid = self.tid;
        self.asked.insert(tid, Asked { name: name.to_owned(), ops, sent: 0 });
        self.send(tid);
        tid
    }

    /// Writes to some object; several writes to one object may be in flight.
    fn write(&mut self) {
        let name = format!("o{}", self.rng.below(OBJECTS));
        let data = vec![self.rng.next_u64() as u8; 1 + self.rng.below(3000) as usize];
        let now = self.model.entry(name.clone()).or_default();
        let op = match self.rng.below(12) {
            0 if !now.is_empty() => {
                now.clear();
                OsdOp::with_extent(OpCode::TRUNCATE, 0, 0, Bytes::new())
            }
            1 => {
                now.clone_from(&data);
                OsdOp::with_extent(OpCode::WRITEFULL, 0, data.len() as u64, data.into())
            }
            _ => {
                now.extend(&data);
                OsdOp::with_extent(OpCode::APPEND, 0, data.len() as u64, data.into())
            }
        };
        self.ask(&name, vec![op]);
    }

    fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        for n in 0..400_000u32 {
            if done(self) {
                return;
            }
            if n % 4000 == 3999 {
                // A client resends after a while, on another connection.
                let old = self.session.id;
                self.all(|| Input::SessionClosed(old));
                self.connect();
            }
            self.step();
        }
        let states: Vec<_> = self
            .reactors
            .iter()
            .map(|r| r.pgs.iter().map(|p| (p.spg().to_string(), p.state().clone())).collect::<Vec<_>>())
            .collect();
        let left: Vec<_> = self.asked.iter().map(|(t, a)| (t, &a.name, a.sent)).collect();
        panic!("seed {}: never {what}: moving {:?} asked {left:?} {states:?}", self.seed, self.moves.moving());
    }

    fn counts(&self) -> Vec<usize> {
        self.reactors.iter().map(|r| r.pgs.iter().count()).collect()
    }

    fn is_even(&self) -> bool {
        let n = self.map().pools[&POOL].pg_num as usize;
        let c = self.counts();
        c.iter().sum::<usize>() == n
            && c.iter().max().unwrap() - c.iter().min().unwrap() <= 1
            && self.moves.moving().is_none()
    }

    /// Checks that all data is right and present once, and no store has anything else.
    fn check(&mut self) {
        self.until("answered", |w| w.asked.is_empty());
        let names: Vec<String> = self.model.keys().cloned().collect();
        let mut reads = BTreeMap::new();
        for n in names {
            let t = self.ask(&n, vec![OsdOp::with_extent(OpCode::READ, 0, 0, Bytes::new())]);
            reads.insert(t, n);
        }
        self.until("read", |w| w.asked.is_empty());
        for (t, n) in reads {
            let got = self.reads.remove(&t).unwrap();
            assert_eq!(got.len(), self.model[&n].len(), "seed {}: {n}", self.seed);
            assert!(got[..] == self.model[&n][..], "seed {}: {n} differs", self.seed);
        }
        let n = self.map().pools[&POOL].pg_num;
        let mut all: Vec<PgId> = Vec::new();
        for (i, r) in self.reactors.iter().enumerate() {
            for (cid, _) in r.store.collections() {
                let pg = pg::pg_of(cid).unwrap().pg;
                assert_eq!(named(pg, self.reactors.len()), i, "seed {}: {pg} is not where its name says", self.seed);
                all.push(pg);
            }
        }
        all.sort();
        assert_eq!(all, (0..n).map(|s| PgId::new(1, s)).collect::<Vec<_>>(), "seed {}", self.seed);
        self.until("quiet", |w| w.control.is_empty() && w.reactors.iter().all(|r| r.mailbox.is_empty()));
        for pg in all {
            let places: BTreeSet<usize> = self.reactors.iter().map(|r| r.pgs.place(pg.into())).collect();
            assert_eq!(places.len(), 1, "seed {}: reactors differ about the place of {pg}", self.seed);
        }
    }
}

fn history(seed: u64, reactors: usize, crashes: u64) -> u64 {
    let mut w = World::new(seed, reactors);
    w.until("made", |w| w.reactors.iter().any(|r| r.pgs.iter().any(pg::Pg::is_active)));
    for _ in 0..80 {
        w.write();
        for _ in 0..10 {
            w.step();
        }
    }
    let mut left = crashes;
    for pg_num in if seed.is_multiple_of(2) { [4, 16] } else { [16, 24] } {
        w.grow(pg_num);
        for round in 0..300 {
            if w.asked.len() < 12 {
                w.write();
            }
            if left > 0 && round % 60 == 30 {
                left -= 1;
                w.fuse = Some(1 + w.rng.below(600));
            }
            for _ in 0..40 {
                w.step();
            }
        }
    }
    w.fuse = None;
    w.until("even", World::is_even);
    w.check();
    w.crash();
    w.until("even", World::is_even);
    w.check();
    w.moved
}

#[test]
fn reactors_end_up_with_equal_load_and_nothing_is_lost() {
    let seeds = std::env::var("MOVES_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(5);
    let first = std::env::var("MOVES_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    for seed in first..first + seeds {
        let moved = history(seed, 2 + (seed % 3) as usize, if seed % 4 == 0 { 0 } else { 8 });
        assert!(moved > 1, "seed {seed}: {moved} moved");
    }
}

/// One store after the other has no room for a while.
fn history_with_full_stores(seed: u64) -> u64 {
    let mut w = World::new(seed, 2);
    w.until("made", |w| w.reactors.iter().any(|r| r.pgs.iter().any(pg::Pg::is_active)));
    for _ in 0..80 {
        w.write();
        for _ in 0..10 {
            w.step();
        }
    }
    w.until("answered", |w| w.asked.is_empty());
    w.grow(8);
    w.until("split", |w| {
        w.counts().iter().sum::<usize>() == 8
            && w.reactors.iter().all(|r| r.pgs.iter().all(|p| *p.state() != pg::State::Splitting))
    });
    for round in 0..200 {
        let full = w.rng.below(3) as usize;
        for (i, r) in w.reactors.iter_mut().enumerate() {
            let bytes = if i == full { 1 } else { u64::MAX };
            r.store = std::mem::take(&mut r.store).with_capacity(bytes);
        }
        if round % 40 == 20 {
            w.fuse = Some(1 + w.rng.below(60));
        }
        for _ in 0..w.rng.below(120) {
            w.step();
        }
    }
    w.fuse = None;
    for r in &mut w.reactors {
        r.store = std::mem::take(&mut r.store).with_capacity(u64::MAX);
    }
    w.until("even", World::is_even);
    w.check();
    w.moved
}

#[test]
fn a_move_without_space_is_given_up_or_waits_and_nothing_is_lost() {
    let seeds = std::env::var("MOVES_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(6);
    for seed in 0..seeds {
        assert!(history_with_full_stores(seed) > 0, "seed {seed}: none moved");
    }
}

#[test]
fn a_split_waits_for_space() {
    let mut w = World::new(1, 1);
    w.until("made", |w| w.reactors.iter().any(|r| r.pgs.iter().any(pg::Pg::is_active)));
    for _ in 0..80 {
        w.write();
        w.step();
    }
    w.until("answered", |w| w.asked.is_empty());
    let resize = |w: &mut World, bytes: u64| {
        let s = &mut w.reactors[0].store;
        *s = std::mem::take(s).with_capacity(bytes);
    };
    resize(&mut w, 1);
    w.grow(4);
    for _ in 0..3000 {
        w.step();
    }
    let states: Vec<_> = w.reactors[0].pgs.iter().map(|p| p.state().clone()).collect();
    assert!(states.contains(&pg::State::Splitting) && !states.contains(&pg::State::Active), "{states:?}");
    assert!(w.said.iter().any(|t| t.contains("no space")), "{:?}", w.said);
    resize(&mut w, u64::MAX);
    w.until("split", |w| w.counts() == [4] && w.reactors[0].pgs.iter().all(pg::Pg::is_active));
    w.check();
    assert_eq!(w.said.len(), 1);
}
