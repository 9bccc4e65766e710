//! The monitor's host: the core over a state store whose commits take time.

use super::{FSID, MON, addr, mon_addr, mons};
use crate::net::{Arrival, Card, ConnKey, NodeId, Service, about};
use crate::queue::{SEC, US};
use crate::rough::MAPS_KEPT;
use crate::world::{Clock, Ctx, Event, Input};
use base::rng::Rng;
use base::{AddrVec, AuthName, EntityKind};
use bytes::Bytes;
use mon::core::session::Peer;
use mon::core::start::load::{self, NewCluster, Setup};
use mon::core::{Effect, MonCore};
use mon::state::options::{AuthOptions, MonOptions, OsdOptions, PoolOptions};
use mon::state::{AuthEntry, Role};
use state::memory::MemoryStore;
use state::{Entry, Op, Outcome, Range, Request, StateStore};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use wire::Features;

/// Mean time of a commit of the state store, in nanoseconds.
const COMMIT: u64 = 800 * US;

pub(super) struct SeededRandom(pub(super) RefCell<Rng>);

impl auth::Random for SeededRandom {
    fn fill(&self, out: &mut [u8]) {
        self.0.borrow_mut().fill(out);
    }
}

struct Process {
    inc: u64,
    core: MonCore,
    /// Requests that the state store has not applied yet.
    requests: VecDeque<Request>,
    /// Answers of the state store that have not been delivered yet.
    answers: VecDeque<Vec<state::Event>>,
    listening: bool,
    next_tick: u64,
}

/// The monitor of a run.
pub struct MonNode {
    /// The node's clocks.
    pub clock: Clock,
    store: MemoryStore,
    options: MonOptions,
    process: Option<Process>,
}

fn ask(store: &mut MemoryStore, op: Op) -> Option<Outcome> {
    store.submit(Request { token: 0, op });
    while let Some(e) = store.poll() {
        if let state::Event::Reply(r) = e {
            return r.result.ok();
        }
    }
    None
}

fn read(store: &mut MemoryStore, ranges: Vec<Range>) -> Vec<(Bytes, Entry)> {
    let entries = |r| match ask(store, Op::all(r)) {
        Some(Outcome::Entries { entries, .. }) => entries,
        _ => Vec::new(),
    };
    ranges.into_iter().flat_map(entries).collect()
}

/// The initial records of a cluster with monitors at these nodes.
pub(crate) fn new_cluster(clock: &Clock, seed: u64, at: &[NodeId]) -> Option<state::Txn> {
    let random = SeededRandom(RefCell::new(Rng::new(seed)));
    let now = clock.now(0);
    let key = auth::CryptoKey::generate(auth::KeyKind::Aes, now.wall, &random);
    let caps = ["mon", "osd", "mgr"].iter().map(|s| ((*s).to_owned(), "allow *".to_owned())).collect();
    let admin = AuthName { kind: EntityKind::CLIENT, id: "admin".into() };
    let mut all = at.iter().enumerate().map(|(i, n)| (mons::name(i), AddrVec(vec![mon_addr(*n)])));
    let (mon_name, mon_addrs) = all.next()?;
    let new = NewCluster {
        fsid: FSID,
        mon_name,
        mon_addrs,
        others: all.collect(),
        auth: BTreeMap::from([(admin, AuthEntry { key, pending_key: None, caps })]),
        now: now.wall,
    };
    new.records().ok()
}

impl MonNode {
    /// The monitor of a new cluster.
    #[must_use]
    pub fn new(clock: Clock, seed: u64, options: MonOptions) -> Self {
        let mut store = MemoryStore::new();
        if let Some(t) = new_cluster(&clock, seed, &[MON]) {
            ask(&mut store, Op::Txn(t));
        }
        Self { clock, store, options, process: None }
    }

    /// Number of the running process.
    #[must_use]
    pub fn inc(&self) -> Option<u64> {
        self.process.as_ref().map(|p| p.inc)
    }

    /// The core of the running process.
    #[must_use]
    pub fn core(&self) -> Option<&MonCore> {
        self.process.as_ref().map(|p| &p.core)
    }

    /// Loads the durable state and starts a process.
    pub fn start(&mut self, cx: &mut Ctx) {
        let inc = cx.new_inc();
        while self.store.poll().is_some() {}
        let records = read(&mut self.store, load::ranges());
        let maps = read(&mut self.store, load::map_ranges(&records).unwrap_or_default());
        let setup = Setup {
            name: "a".into(),
            options: self.options.clone(),
            mgr_addrs: Some(AddrVec(vec![addr(MON, 6800, inc as u32)])),
            random: Rc::new(SeededRandom(RefCell::new(Rng::new(cx.options.seed ^ inc << 32)))),
        };
        match MonCore::load(&records, &maps, setup, self.clock.now(cx.now())) {
            Ok(core) => {
                self.process = Some(Process {
                    inc,
                    core,
                    requests: VecDeque::new(),
                    answers: VecDeque::new(),
                    listening: false,
                    next_tick: 0,
                });
                self.turn_end(cx);
            }
            Err(e) => cx.violation(format!("the monitor does not start on its stored state: {e}")),
        }
    }

    /// Kills the process; requests that were not applied are lost.
    pub fn crash(&mut self) {
        self.process = None;
    }

    /// Handles an event.
    pub fn handle(&mut self, input: Input, cx: &mut Ctx) {
        let now = self.clock.now(cx.now());
        let Some(p) = &mut self.process else { return };
        match input {
            Input::Net(Arrival::Accept(k, service, card)) => {
                cx.net.accepted(k, MON, p.inc, cx.queue.now());
                let role = if service == Service::Mgr { Role::Mgr } else { Role::Mon };
                p.core.handle(mon::core::Event::Open(k, Box::new(peer(*card, role))), now);
            }
            Input::Net(Arrival::Message(k, m)) => p.core.handle(mon::core::Event::Message(k, m), now),
            Input::Net(Arrival::Closed(k, _)) => p.core.handle(mon::core::Event::Closed(k), now),
            Input::Net(Arrival::Opened(_)) | Input::Disk | Input::Inner(_) => {}
            Input::Timer => {
                if cx.now() >= p.next_tick {
                    p.next_tick = cx.now() + SEC;
                    cx.queue.after(SEC, Event::Timer(MON, p.inc));
                    p.core.handle(mon::core::Event::Tick, now);
                }
            }
            Input::State(false) => {
                let Some(r) = p.requests.pop_front() else { return };
                self.store.submit(r);
                let mut events = Vec::new();
                while let Some(e) = self.store.poll() {
                    events.push(e);
                }
                p.answers.push_back(events);
                cx.queue.after(20 * US, Event::State(MON, p.inc, true));
                return;
            }
            Input::State(true) => {
                for e in p.answers.pop_front().into_iter().flatten() {
                    p.core.handle(mon::core::Event::State(e), now);
                }
            }
        }
        self.turn_end(cx);
    }

    fn turn_end(&mut self, cx: &mut Ctx) {
        let Some(p) = &mut self.process else { return };
        p.core.flush();
        while p.core.has_more() {
            p.core.flush();
        }
        let t = cx.now();
        for e in p.core.take_effects() {
            match e {
                Effect::Send(c, m) => cx.net.send(c, MON, p.inc, m, t),
                Effect::Close(c, why) => {
                    cx.trace.line(t, || format!("mon closes connection {c}: {why}"));
                    cx.net.close(c, MON, p.inc, t);
                }
                Effect::Submit(r) => {
                    p.requests.push_back(r);
                    let d = about(&mut cx.disk_rng, COMMIT);
                    cx.queue.after(d, Event::State(MON, p.inc, false));
                }
                // Work on images needs a client, which these clusters do not have.
                Effect::Job(..) | Effect::Forward(..) => {}
                // There is one monitor.
                Effect::CloseLinks(_) => {}
                Effect::Stop(why) => cx.violations.push(format!("the monitor stopped: {why}")),
            }
        }
        if !p.listening && p.core.is_ready() && !p.core.is_busy() {
            p.listening = true;
            cx.net.listen(&mon_addr(MON), MON, p.inc, Service::Mon);
            cx.net.listen(&addr(MON, 6800, p.inc as u32), MON, p.inc, Service::Mgr);
            p.next_tick = t + SEC;
            cx.queue.after(SEC, Event::Timer(MON, p.inc));
        }
    }
}

/// The monitor's options in a run; `down_out` is in seconds. It `trims` all but a few maps.
#[must_use]
pub fn options(down_out: u64, trims: bool) -> MonOptions {
    let default = MonOptions::default();
    MonOptions {
        min_osdmap_epochs: if trims { MAPS_KEPT } else { default.min_osdmap_epochs },
        auth: AuthOptions { cephx: false, ..AuthOptions::default() },
        pools: PoolOptions { default_size: 1, max_pg_per_osd: 10_000, ..PoolOptions::default() },
        osds: OsdOptions { down_out_interval: Duration::from_secs(down_out), ..OsdOptions::default() },
        ..default
    }
}

pub(super) fn peer(c: Card, role: Role) -> Peer {
    let conn: ConnKey = c.global_id;
    let principal = auth::Principal {
        name: c.name,
        kind: c.kind,
        global_id: conn,
        caps: auth::CapsInfo::all(),
        expires: base::Utime { sec: u32::MAX, nsec: 0 },
        ..auth::Principal::nobody(std::net::SocketAddr::from(([127, 0, 0, 1], 0)))
    };
    Peer { principal, entity: c.entity, addrs: c.addrs, features: Features::PACIFIC, role }
}
