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
use mon::core::load::{self, NewCluster, Setup};
use mon::core::member::{Member, Output, Presence};
use mon::core::options::MonOptions;
use mon::core::{Effect, Event, MonCore};
use serde_json::json;
use state::simulated::{Cluster as Store, Faults, SimulatedStore};
use state::{Entry, Op, Outcome, Range, Reply, Request, StateStore};
use support::{FSID, TestRandom, addr, admin_entities};
use wire::msg::{MMonCommand, MMonCommandAck, MMonSubscribe, MOsdMap, SubscribeItem};
use wire::{Features, WireMessage};

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
            early: false,
            next: 0,
        }
    }

    fn start(&mut self, i: usize) {
        let me = Presence {
            name: format!("m{i}"),
            addr: *addr(3300 + i as u16, 0).msgr2().unwrap(),
            instance: self.rng.next_u64(),
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
                Output::Leader(_) | Output::Peers(_) | Output::Written(_) => {}
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
            }
            alive &= may_act && self.effects(&mut p);
            if alive && self.rng.chance(1, if faulty { 20 } else { 100 }) {
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
                    options: MonOptions { cephx: false, ..MonOptions::default() },
                    mgr_addrs: Some(addr(6800 + i as u16, 7)),
                    random: Rc::new(TestRandom::new(self.rng.next_u64())),
                };
                let mut core = MonCore::load(&records, &r.got, setup, now_of(self.now)).unwrap();
                if let Some(f) = p.fence.clone().filter(|_| !self.planted) {
                    core.lead(f);
                }
                p.conn = 0;
                p.core = Some(Box::new(core));
            }
        }
    }

    /// A client asks the leader for a new pool, or for the newest map.
    fn ask(&mut self, p: &mut Process) {
        let Some(core) = &mut p.core else { return };
        self.next += 1;
        if p.conn == 0 {
            p.conn = self.next;
            let peer = support::peer("client.admin", base::EntityKind::CLIENT, p.conn, "allow *");
            core.handle(Event::Open(p.conn, Box::new(peer)), now_of(self.now));
            self.next += 1;
        }
        p.asked_at.insert(self.next, self.w.newest_told);
        let m = if self.rng.chance(1, 2) {
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
                    if core.state.osdmap.pool_by_name(p).is_none() {
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
