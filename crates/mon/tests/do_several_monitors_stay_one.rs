//! Does a cluster of three monitors ever get a second history? The simulated state store loses and delays answers,
//! ends leases early and cuts monitors off; monitor processes are killed.
//!
//! Each monitor is a [`Member`] and, while it leads, a [`MonCore`]; the store is `state::simulated`. Oracles: an
//! epoch has the same bytes, whichever monitor sends it; a client gets no epoch older than one that any client had
//! when it asked; an acknowledged change is there in the end; once faults stop there is a leader that accepts
//! changes.
//!
//! A planted bug must be found: a leader whose transactions carry no fence and who ignores the end of its lease.

mod support;

use std::collections::BTreeMap;
use std::rc::Rc;

use base::rng::Rng;
use base::{Epoch, Mono, Now, Utime};
use bytes::Bytes;
use mon::core::quorum::member::{Member, Output, Presence};
use mon::core::start::load::{self, NewCluster, Setup};
use mon::core::{Effect, Event, MonCore};
use mon::state::options::{AuthOptions, MonOptions};
use mon::state::records::{Bounds, key};
use serde_json::json;
use state::simulated::{Cluster as Store, Faults, SimulatedStore};
use state::{Entry, Op, Outcome, Range, Reply, Request, StateStore};
use support::{FSID, TestRandom, addr, admin_entities};
use wire::msg::{MMonCommand, MMonCommandAck, MMonSubscribe, MOsdMap, SubscribeItem};
use wire::{Decode, Features, WireMessage};

const MONS: usize = 3;
const STEP: u64 = 20_000_000;
/// Simulated time in ns with faults; [`QUIET`] follows without them.
const FAULTY: u64 = 120_000_000_000;
const QUIET: u64 = 60_000_000_000;

/// A read of several ranges, one after the other, at one revision.
struct Reading {
    todo: Vec<Range>,
    at: u64,
    got: Vec<(Bytes, Entry)>,
    records: Option<Vec<(Bytes, Entry)>>,
}

/// One monitor's process.
struct Process {
    member: Member,
    store: SimulatedStore,
    fence: Option<(Bytes, u64)>,
    reading: Option<Reading>,
    core: Option<Box<MonCore>>,
    /// The client's session.
    conn: u64,
    asked_at: BTreeMap<u64, Epoch>,
}

#[derive(Default)]
struct World {
    /// Bytes of each incremental that a client received.
    incs: BTreeMap<Epoch, Bytes>,
    newest_told: Epoch,
    /// Pools whose creation was acknowledged.
    acknowledged: Vec<String>,
    leaders: usize,
    violations: Vec<String>,
}

struct Run {
    rng: Rng,
    store: Store,
    now: u64,
    mons: [Option<Process>; MONS],
    /// Time until which a monitor is down or cut off.
    down: [u64; MONS],
    cut: [bool; MONS],
    w: World,
    planted: bool,
    /// True if a leader's transactions carry its fence.
    fenced: bool,
    /// True if clients send no commands by themselves.
    quiet: bool,
    /// True if leases may end early. A deposed leader may then send old maps, though it changes nothing.
    early: bool,
    next: u64,
}

fn now_of(mono: u64) -> Now {
    let sec = 1_700_000_000 + u32::try_from(mono / 1_000_000_000).unwrap();
    Now { mono: Mono(mono), wall: Utime { sec, nsec: 0 } }
}

impl Run {
    fn new(seed: u64, planted: bool) -> Self {
        let store = Store::new(seed, Faults::default());
        let mut h = store.handle();
        let now = now_of(1_000_000_000);
        let new = NewCluster {
            fsid: FSID,
            mon_name: "m0".into(),
            mon_addrs: addr(3300, 0),
            others: (1..MONS).map(|i| (format!("m{i}"), addr(3300 + i as u16, 0))).collect(),
            auth: admin_entities(),
            now: now.wall,
        };
        h.submit(Request { token: 0, op: Op::Txn(new.records().unwrap()) });
        store.advance(now.mono);
        assert!(matches!(h.poll(), Some(state::Event::Reply(Reply { result: Ok(Outcome::Committed), .. }))));
        Self {
            rng: Rng::new(seed),
            store,
            now: now.mono.0,
            mons: [None, None, None],
            down: [0; MONS],
            cut: [false; MONS],
            w: World::default(),
            planted,
            fenced: !planted,
            quiet: false,
            early: false,
            next: 0,
        }
    }

    fn start(&mut self, i: usize) {
        let me = Presence {
            name: format!("m{i}"),
            addr: *addr(3300 + i as u16, 0).msgr2().unwrap(),
            instance: self.rng.next_u64(),
            metadata: BTreeMap::new(),
        };
        self.mons[i] = Some(Process {
            member: Member::new(me, true, Mono(self.now)),
            store: self.store.handle(),
            fence: None,
            reading: None,
            core: None,
            conn: 0,
            asked_at: BTreeMap::new(),
        });
    }

    fn step(&mut self, i: usize, faulty: bool) {
        let now = now_of(self.now);
        let Some(mut p) = self.mons[i].take() else { return };
        let mut alive = true;
        while let Some(e) = p.store.poll() {
            match e {
                state::Event::Reply(r) if p.member.awaits(r.token) => p.member.reply(r, now.mono),
                state::Event::Reply(r) if p.reading.is_some() => self.read(i, &mut p, r),
                e => {
                    if let Some(c) = &mut p.core {
                        c.handle(Event::State(e), now);
                    }
                }
            }
        }
        p.member.tick(now.mono);
        for o in p.member.take_outputs() {
            match o {
                Output::Submit(r) => p.store.submit(r),
                Output::Elected { fence } => {
                    self.w.leaders += 1;
                    p.fence = Some(fence);
                    self.begin_reading(&mut p, load::ranges(), 0, None);
                }
                Output::Deposed(_) if self.planted => {}
                Output::Deposed(_) => alive = false,
                // The simulated store drops its history by itself.
                Output::Leader(_) | Output::Peers(_) | Output::Written(_) | Output::Compact(_) => {}
            }
        }
        // A leader whose lease expired handles no events, as in the host.
        let may_act = self.planted || p.member.leads_until().is_some_and(|u| now.mono < u);
        if let Some(core) = &mut p.core {
            if may_act {
                if self.now / 1_000_000_000 != (self.now - STEP) / 1_000_000_000 {
                    core.handle(Event::Tick, now);
                }
                core.flush();
                while core.has_more() {
                    core.flush();
                }
            }
            alive &= may_act && self.effects(&mut p);
            if alive && !self.quiet && self.rng.chance(1, if faulty { 20 } else { 100 }) {
                self.ask(&mut p);
            }
        }
        if alive {
            self.mons[i] = Some(p);
        } else {
            self.down[i] = self.now + self.rng.below(1_000_000_000);
        }
    }

    fn begin_reading(&mut self, p: &mut Process, ranges: Vec<Range>, at: u64, records: Option<Vec<(Bytes, Entry)>>) {
        let todo: Vec<Range> = ranges.into_iter().rev().collect();
        p.reading = Some(Reading { todo, at, got: Vec::new(), records });
        self.read_next(p);
    }

    fn read_next(&mut self, p: &mut Process) {
        let Some(r) = &mut p.reading else { return };
        if let Some(range) = r.todo.last() {
            let op = Op::Range { range: range.clone(), limit: 0, reverse: false, at: r.at };
            p.store.submit(Request { token: 1, op });
        }
    }

    fn read(&mut self, i: usize, p: &mut Process, reply: Reply) {
        let Some(r) = &mut p.reading else { return };
        match reply.result {
            Ok(Outcome::Entries { entries, .. }) => {
                r.at = reply.revision;
                r.got.extend(entries);
                r.todo.pop();
            }
            Err(state::StateError::Compacted(_)) => {
                return self.begin_reading(p, load::ranges(), 0, None);
            }
            _ => {}
        }
        if !r.todo.is_empty() {
            return self.read_next(p);
        }
        let Some(r) = p.reading.take() else { return };
        match r.records {
            None => {
                let ranges = load::map_ranges(&r.got).unwrap();
                self.begin_reading(p, ranges, r.at, Some(r.got));
            }
            Some(records) => {
                let setup = Setup {
                    name: format!("m{i}"),
                    options: MonOptions {
                        auth: AuthOptions { cephx: false, ..AuthOptions::default() },
                        ..MonOptions::default()
                    },
                    mgr_addrs: Some(addr(6800 + i as u16, 7)),
                    random: Rc::new(TestRandom::new(self.rng.next_u64())),
                };
                let mut core = MonCore::load(&records, &r.got, setup, now_of(self.now)).unwrap();
                if let Some(f) = p.fence.clone().filter(|_| self.fenced) {
                    core.lead(f);
                    // No monitor counts as down before the list of running ones is read.
                    core.set_monitors_up(Default::default());
                    assert_eq!(core.state().quorum(), core.state().monmap.ranks);
                }
                p.conn = 0;
                p.core = Some(Box::new(core));
            }
        }
    }

    /// A client asks the leader for a new pool, or for the newest map.
    fn ask(&mut self, p: &mut Process) {
        let pool = self.rng.chance(1, 2);
        self.ask_for(p, pool);
    }

    fn ask_for(&mut self, p: &mut Process, pool: bool) {
        let Some(core) = &mut p.core else { return };
        self.next += 1;
        if p.conn == 0 {
            p.conn = self.next;
            let peer = support::peer("client.admin", base::EntityKind::CLIENT, p.conn, "allow *");
            support::open_known(core, Event::Open, p.conn, peer, now_of(self.now));
            self.next += 1;
        }
        p.asked_at.insert(self.next, self.w.newest_told);
        let m = if pool {
            let cmd =
                json!({ "prefix": "osd pool create", "pool": format!("p{}", self.next), "pg_num": 1 }).to_string();
            MMonCommand { fsid: FSID, cmd: vec![cmd.into()], ..MMonCommand::default() }.to_message(Features::PACIFIC)
        } else {
            // The newest map, or all since the first.
            let start = self.rng.below(2);
            let what = [("osdmap".to_owned(), SubscribeItem::new(start, false))].into();
            MMonSubscribe { what, hostname: String::new() }.to_message(Features::PACIFIC)
        };
        core.handle(Event::Message(p.conn, m.with_tid(self.next)), now_of(self.now));
    }

    /// Carries out effects; false if the core stops.
    fn effects(&mut self, p: &mut Process) -> bool {
        let Some(core) = &mut p.core else { return true };
        for e in core.take_effects() {
            match e {
                Effect::Submit(r) => p.store.submit(r),
                Effect::Stop(_) => return false,
                Effect::Close(..) => p.conn = 0,
                Effect::Send(_, m) if m.header.kind == MMonCommandAck::KIND => {
                    let a = MMonCommandAck::from_message(&m).unwrap();
                    if a.r == 0 {
                        self.w.acknowledged.push(format!("p{}", m.header.tid));
                    }
                }
                Effect::Send(_, m) if m.header.kind == MOsdMap::KIND => {
                    let maps = MOsdMap::from_message(&m).unwrap();
                    let oldest = p.asked_at.values().max().copied().unwrap_or_default();
                    if maps.newest_map < oldest && !self.early {
                        let v = format!("told of epoch {} after {oldest}", maps.newest_map);
                        self.w.violations.push(v);
                    }
                    self.w.newest_told = self.w.newest_told.max(maps.newest_map);
                    for (e, b) in maps.incremental_maps {
                        if *self.w.incs.entry(e).or_insert_with(|| b.clone()) != b {
                            self.w.violations.push(format!("epoch {e} has two contents"));
                        }
                    }
                }
                _ => {}
            }
        }
        true
    }

    fn run(&mut self, faults: Faults) {
        self.store.set_faults(faults);
        let end = self.now + FAULTY;
        while self.now < end + QUIET {
            let faulty = self.now < end;
            if !faulty && self.now - end < STEP {
                self.store.set_faults(Faults { delay_max: 5_000_000, ..Faults::default() });
            }
            self.now += STEP;
            for i in 0..MONS {
                if self.mons[i].is_none() && self.now >= self.down[i] {
                    self.start(i);
                }
                if faulty && self.rng.chance(1, 1500) {
                    // The monitor is killed, or cut off from the store for some seconds.
                    let until = self.now + 1_000_000_000 + self.rng.below(15_000_000_000);
                    self.down[i] = until;
                    if self.rng.chance(1, 2) {
                        self.mons[i] = None;
                    } else if let Some(p) = &self.mons[i] {
                        self.store.cut(&p.store, true);
                        self.cut[i] = true;
                    }
                }
                if self.cut[i]
                    && (self.now >= self.down[i] || !faulty)
                    && let Some(p) = &self.mons[i]
                {
                    self.store.cut(&p.store, false);
                    self.cut[i] = false;
                }
                self.step(i, faulty);
            }
            self.store.advance(Mono(self.now));
        }
    }

    /// Checks the final state.
    fn judge(&mut self) {
        let mut h = self.store.handle();
        h.submit(Request { token: 0, op: Op::all(Range::prefix(b"")) });
        let records = loop {
            self.now += STEP;
            self.store.advance(Mono(self.now));
            if let Some(state::Event::Reply(Reply { result: Ok(Outcome::Entries { entries, .. }), .. })) = h.poll() {
                break entries;
            }
        };
        let setup = Setup {
            name: "m0".into(),
            options: MonOptions::default(),
            mgr_addrs: None,
            random: Rc::new(TestRandom::new(1)),
        };
        match MonCore::load(&records, &records, setup, now_of(self.now)) {
            Ok(core) => {
                for p in &self.w.acknowledged {
                    if core.state().osdmap.pool_by_name(p).is_none() {
                        self.w.violations.push(format!("pool {p} was acknowledged and is not there"));
                    }
                }
            }
            Err(e) => self.w.violations.push(format!("the state cannot be read: {e}")),
        }
    }
}

fn faults() -> Faults {
    Faults { delay_max: 60_000_000, lost_answer: 10, lost_request: 10, broken_watch: 0, compaction: 5, lost_lease: 0 }
}

#[test]
fn one_history_whatever_fails() {
    let (mut leaders, mut acknowledged) = (0, 0);
    for seed in 0..6 {
        let mut r = Run::new(seed, false);
        r.early = seed % 3 == 0;
        r.run(Faults { lost_lease: if r.early { 20 } else { 0 }, ..faults() });
        let before = r.w.acknowledged.len();
        r.judge();
        assert!(r.w.violations.is_empty(), "seed {seed}: {:?}", r.w.violations);
        assert!(r.mons.iter().flatten().any(|p| p.core.is_some()), "seed {seed}: a leader once faults have stopped");
        assert!(before > 0, "seed {seed}");
        leaders += r.w.leaders;
        acknowledged += before;
        assert!(r.w.incs.len() > 20, "seed {seed}: maps were told");
    }
    assert!(leaders > 15, "leaders changed: {leaders}");
    assert!(acknowledged > 200, "clients went on: {acknowledged}");
}

#[test]
fn a_leader_without_a_fence_is_found_out() {
    let found = (0..12).any(|seed| {
        let mut r = Run::new(seed, true);
        r.run(faults());
        r.judge();
        !r.w.violations.is_empty()
    });
    assert!(found, "the oracles see a leader who does not stop");
}

/// Records under which leader each process writes.
#[derive(Default)]
struct Writers {
    leader: u64,
    under: BTreeMap<u64, u64>,
    wrong: Vec<String>,
}

impl Writers {
    fn look(&mut self, store: &Store) {
        for (_, changes) in store.take_observed() {
            for c in changes {
                if c.key == key::MON_LEADER {
                    self.leader = c.entry.map_or(0, |e| e.modified);
                } else if c.key == key::OSDMAP_BOUNDS {
                    let writer = Bounds::from_bytes(&c.entry.expect("bounds stay").value).unwrap().writer.0;
                    let under = *self.under.entry(writer).or_insert(self.leader);
                    if under != self.leader {
                        self.wrong.push(format!("the leader of {under} writes while {} leads", self.leader));
                    }
                }
            }
        }
    }
}

impl Run {
    /// Steps only one monitor until `done`.
    fn alone(&mut self, i: usize, writers: &mut Writers, done: impl Fn(&Self) -> bool) {
        let end = self.now + 30_000_000_000;
        while !done(self) {
            assert!(self.now < end, "monitor {i} gets nowhere");
            self.now += STEP;
            self.step(i, false);
            self.store.advance(Mono(self.now));
            writers.look(&self.store);
        }
    }

    fn serves(&self, i: usize) -> bool {
        self.mons[i].as_ref().and_then(|p| p.core.as_ref()).is_some_and(|c| c.is_ready() && !c.is_busy())
    }

    /// A client asks for a pool; the transaction is sent to the store.
    fn make_pool(&mut self, i: usize) {
        let mut p = self.mons[i].take().expect("a process");
        self.ask_for(&mut p, true);
        p.core.as_mut().expect("a core").flush();
        assert!(self.effects(&mut p));
        self.mons[i] = Some(p);
    }
}

/// A leader stands still while its transaction is on its way to the store. The transaction arrives when the next leader
/// is elected and has written nothing yet. At that time only the fence refuses it.
fn late_transaction(fenced: bool) -> (Run, Writers) {
    let (mut r, mut w) = (Run::new(1, false), Writers::default());
    (r.fenced, r.quiet) = (fenced, true);
    r.store.set_faults(Faults::default());
    r.store.observe();
    r.start(0);
    r.alone(0, &mut w, |r| r.serves(0));
    r.store.hold(&r.mons[0].as_ref().unwrap().store);
    r.make_pool(0);
    r.start(1);
    r.alone(1, &mut w, |r| r.mons[1].as_ref().is_some_and(|p| p.fence.is_some()));
    assert!(r.w.acknowledged.is_empty());
    r.store.release();
    r.store.advance(Mono(r.now));
    w.look(&r.store);
    (r, w)
}

#[test]
fn a_late_transaction_of_a_deposed_leader_is_refused() {
    let (mut r, mut w) = late_transaction(true);
    r.alone(1, &mut w, |r| r.serves(1));
    // The first leader goes on, and finds its lease expired.
    r.step(0, false);
    assert!(r.mons[0].is_none(), "it stops");
    r.make_pool(1);
    r.alone(1, &mut w, |r| !r.w.acknowledged.is_empty());
    assert_eq!(w.wrong, [""; 0]);
    assert_eq!(w.under.len(), 2, "both wrote while they led");
    let core = r.mons[1].as_ref().unwrap().core.as_ref().unwrap();
    assert_eq!(core.state().osdmap.pools.len(), 1, "the pool of the second leader");
    r.judge();
    assert!(r.w.violations.is_empty(), "{:?}", r.w.violations);
}

#[test]
fn a_late_transaction_without_a_fence_is_found_out() {
    let (_, w) = late_transaction(false);
    assert_eq!(w.wrong.len(), 1, "{:?}", w.wrong);
}

/// The leader is removed by a command: the command is answered first, then another monitor leads.
#[test]
fn a_leader_that_is_removed_answers_and_stops() {
    let (mut r, mut w) = (Run::new(2, false), Writers::default());
    r.quiet = true;
    r.store.observe();
    r.start(0);
    r.alone(0, &mut w, |r| r.serves(0));
    let mut p = r.mons[0].take().unwrap();
    let core = p.core.as_mut().unwrap();
    let peer = support::peer("client.admin", base::EntityKind::CLIENT, 5000, "allow *");
    support::open_known(core, Event::Open, 5000, peer, now_of(r.now));
    let rm = json!({ "prefix": "mon rm", "name": "m0" }).to_string();
    let m = MMonCommand { fsid: FSID, cmd: vec![rm.into()], ..MMonCommand::default() };
    core.handle(Event::Message(5000, m.to_message(Features::PACIFIC).with_tid(7)), now_of(r.now));
    core.flush();
    let mut said = Vec::new();
    while !said.iter().any(|s| s == "stop") {
        for e in core.take_effects() {
            match e {
                Effect::Submit(q) => p.store.submit(q),
                Effect::Send(5000, m) if m.header.kind == MMonCommandAck::KIND => {
                    said.push(format!("answer {}", MMonCommandAck::from_message(&m).unwrap().r));
                }
                Effect::Stop(why) => {
                    assert!(why.contains("removed"), "{why}");
                    said.push("stop".into());
                }
                _ => {}
            }
        }
        r.now += STEP;
        r.store.advance(Mono(r.now));
        while let Some(e) = p.store.poll() {
            core.handle(Event::State(e), now_of(r.now));
        }
    }
    assert_eq!(said, ["answer 0", "stop"]);
    // Its process has ended; the lease ends by itself.
    drop(p);
    r.start(1);
    r.alone(1, &mut w, |r| r.serves(1));
    let core = r.mons[1].as_ref().unwrap().core.as_ref().unwrap();
    assert_eq!(core.state().monmap.mons.keys().collect::<Vec<_>>(), ["m1", "m2"]);
    assert_eq!(w.wrong, [""; 0]);
}
