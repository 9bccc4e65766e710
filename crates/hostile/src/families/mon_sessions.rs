//! Whole sessions with the monitor and the manager role, of peers without write access: a sequence of messages and
//! commands. Nothing stored changes except entries of the log, and the memory held for the peers is bounded. Input:
//! steps; the first byte of each selects its kind ([`step`]).

use super::auth::Seeded;
use super::{Family, Steps};
use crate::vectors;
use base::id::Uuid;
use base::{AddrVec, AuthName, EntityAddr, EntityKind, EntityName, Mono, Now, Utime};
use bytes::Bytes;
use mon::core::session::Peer;
use mon::core::start::load::{self, NewCluster, Setup};
use mon::core::{Effect, Event, MonCore};
use mon::state::options::{MonOptions, PoolOptions};
use mon::state::records::key;
use mon::state::{AuthEntry, Role};
use serde_json::json;
use state::memory::MemoryStore;
use state::{Entry, Op, Outcome, Range, Request, StateStore, Txn};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use wire::msg::{MCommand, MMgrCommand, MMonCommand, registry};
use wire::types::{PaxosHeader, Text};
use wire::{Features, Message, WireMessage};

/// A monitor with its cluster, and maps sent to sessions.
const ALLOC: usize = 8 << 20;

pub(super) const FAMILY: Family = Family { name: "mon_sessions", run, seeds, alloc_fixed: ALLOC, cost: 60 };

const FSID: Uuid = Uuid([7; 16]);
const HOME: ([u8; 4], u16) = ([127, 0, 0, 1], 3300);
/// Most steps of one input.
const STEPS_MAX: usize = 48;
/// Most bytes that may wait for a commit, of peers without write access.
const WAITING_MAX: usize = 64 << 10;

/// Entity, and caps at the monitor and at the manager.
const PEERS: [(&str, &str, &str); 11] = [
    ("client.none", "", ""),
    ("client.r", "allow r", "allow r"),
    ("client.rbd", "profile rbd", ""),
    ("client.bootstrap-mds", "profile bootstrap-mds", ""),
    ("client.bootstrap-mgr", "profile bootstrap-mgr", ""),
    ("client.bootstrap-rgw", "profile bootstrap-rgw", ""),
    ("client.bootstrap-rbd", "profile bootstrap-rbd", ""),
    ("client.bootstrap-rbd-mirror", "profile bootstrap-rbd-mirror", ""),
    ("client.elsewhere", "allow * network 192.0.2.0/24", "allow * network 192.0.2.0/24"),
    ("client.one", "allow command fsid", "allow command nosuch"),
    ("osd.0", "allow r", "allow r"),
];

/// Stored state of a cluster.
type Kept = BTreeMap<Bytes, Bytes>;

struct Monitor {
    core: MonCore,
    store: MemoryStore,
    now: Now,
    /// Requests withheld from the store: a commit is in progress.
    held: Option<Vec<Request>>,
    conns: u64,
    /// The last reply that was sent.
    last: Option<Message>,
}

fn ask(store: &mut MemoryStore, op: Op) -> Outcome {
    store.submit(Request { token: 0, op });
    match store.poll() {
        Some(state::Event::Reply(state::Reply { result: Ok(out), .. })) => out,
        other => panic!("the memory store answers at once: {other:?}"),
    }
}

fn read(store: &mut MemoryStore, ranges: Vec<Range>) -> Vec<(Bytes, Entry)> {
    let entries = |r| match ask(store, Op::all(r)) {
        Outcome::Entries { entries, .. } => entries,
        other => panic!("{other:?}"),
    };
    ranges.into_iter().flat_map(entries).collect()
}

fn everything(store: &mut MemoryStore) -> Kept {
    read(store, vec![Range::prefix(b"")]).into_iter().map(|(key, e)| (key, e.value)).collect()
}

impl Monitor {
    fn load(mut store: MemoryStore, now: Now) -> Self {
        let records = read(&mut store, load::ranges());
        let maps = read(&mut store, load::map_ranges(&records).expect("bounds"));
        let setup = Setup {
            name: "a".into(),
            options: MonOptions {
                pools: PoolOptions { allow_delete: true, ..PoolOptions::default() },
                ..MonOptions::default()
            },
            mgr_addrs: Some(AddrVec(vec![EntityAddr::msgr2(HOME.into(), 77)])),
            random: Rc::new(Seeded::new()),
        };
        let core = MonCore::load(&records, &maps, setup, now).expect("a cluster that was made here");
        let mut me = Self { core, store, now, held: None, conns: 0, last: None };
        me.pump();
        me
    }

    fn pump(&mut self) {
        loop {
            self.core.flush();
            let effects = self.core.take_effects();
            let mut idle = effects.is_empty();
            for e in effects {
                match e {
                    Effect::Send(_, m) => self.last = Some(m),
                    Effect::Close(..) | Effect::CloseLinks(_) => {}
                    Effect::Submit(r) => match &mut self.held {
                        Some(h) => h.push(r),
                        None => self.store.submit(r),
                    },
                    // The job asks the cluster for progress and images; this family tests only which senders may start
                    // it.
                    Effect::Job(token, _) | Effect::Forward(token, _) => {
                        idle = false;
                        self.handle(Event::Answer(token, base::errno::EAGAIN, String::new(), Bytes::new()));
                    }
                    Effect::Stop(why) => panic!("the monitor stops: {why}"),
                }
            }
            while let Some(e) = self.store.poll() {
                idle = false;
                self.handle(Event::State(e));
            }
            if idle {
                return;
            }
        }
    }

    fn handle(&mut self, e: Event) {
        self.core.handle(e, self.now);
    }

    fn open(&mut self, name: &str, mon: &str, mgr: &str, role: Role) -> u64 {
        self.conns += 1;
        let gid = 5000 + self.conns;
        let caps = if role == Role::Mgr { mgr } else { mon };
        let key = auth::CryptoKey::new(auth::KeyKind::Aes, Utime::ZERO, &[7; 16]).expect("a key");
        let name = AuthName::parse(name).expect("a name");
        let proved = Some(key.mark());
        let both = [("mon".to_owned(), mon.to_owned()), ("mgr".to_owned(), mgr.to_owned())].into();
        self.core.pretend(|s| drop(s.auth.insert(name.clone(), AuthEntry { key, pending_key: None, caps: both })));
        let principal = auth::Principal {
            name,
            proved,
            global_id: gid,
            caps: auth::CapsInfo::from_text(caps),
            expires: Utime { sec: u32::MAX, nsec: 0 },
            method: auth::Method::CEPHX,
            ..auth::Principal::nobody(HOME.into())
        };
        let peer = Peer {
            principal,
            entity: EntityName::new(EntityKind::CLIENT, gid as i64),
            addrs: AddrVec(vec![EntityAddr::msgr2(HOME.into(), gid as u32)]),
            features: Features::PACIFIC,
            role,
        };
        self.handle(Event::Open(self.conns, Box::new(peer)));
        self.pump();
        self.conns
    }

    fn send(&mut self, conn: u64, m: Message) {
        self.handle(Event::Message(conn, m));
        self.pump();
    }

    /// Completes the commit in progress.
    fn release(&mut self) {
        for r in self.held.take().into_iter().flatten() {
            self.store.submit(r);
        }
        self.pump();
    }

    fn command(&mut self, admin: u64, cmd: &serde_json::Value) {
        self.send(admin, mon_command(cmd.to_string().into()));
        let answer = self.last.take().expect("an answer");
        let r = wire::msg::MMonCommandAck::from_message(&answer).expect("our own");
        assert_eq!(r.r, 0, "{cmd}: {:?}", r.rs);
    }
}

fn mon_command(text: Bytes) -> Message {
    let cmd = vec![Text(String::from_utf8_lossy(&text).into_owned())];
    MMonCommand { paxos: PaxosHeader::default(), fsid: FSID, cmd, data: Bytes::new() }.to_message(Features::PACIFIC)
}

fn start() -> Now {
    Now { mono: Mono(1_000_000_000), wall: Utime { sec: 1_795_000_000, nsec: 0 } }
}

/// A cluster with an OSD, a pool, a config key and entity keys.
fn prepared() -> Kept {
    let now = start();
    let mut store = MemoryStore::new();
    let key = auth::CryptoKey::generate(auth::KeyKind::Aes, Utime::ZERO, &Seeded::new());
    let caps = ["mon", "osd", "mgr", "mds"].iter().map(|s| ((*s).to_owned(), "allow *".to_owned())).collect();
    let auth = [(AuthName::parse("client.admin").expect("a name"), AuthEntry { key, pending_key: None, caps })].into();
    let mon_addrs = AddrVec(vec![EntityAddr::msgr2(HOME.into(), 0)]);
    let new = NewCluster { fsid: FSID, mon_name: "a".into(), mon_addrs, others: Vec::new(), auth, now: now.wall };
    ask(&mut store, Op::Txn(new.records().expect("records")));
    let mut m = Monitor::load(store, now);
    let admin = m.open("client.admin", "allow *", "allow *", Role::Mon);
    for cmd in [
        json!({ "prefix": "osd new", "uuid": Uuid([1; 16]).to_string(), "id": "osd.0" }),
        json!({ "prefix": "osd crush create-or-move", "id": 0, "weight": 1.0, "args": ["host=h", "root=default"] }),
        json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 1, "pgp_num": 1 }),
        json!({ "prefix": "config-key set", "key": "mgr/secret", "val": "sesame" }),
        json!({ "prefix": "auth get-or-create", "entity": "osd.0", "caps": ["mon", "allow profile osd"] }),
    ] {
        m.command(admin, &cmd);
    }
    everything(&mut m.store)
}

fn refilled(kept: &Kept) -> MemoryStore {
    let mut store = MemoryStore::new();
    let mut all = Txn::default();
    kept.iter().for_each(|(k, v)| all.put(k.clone(), v.clone()));
    ask(&mut store, Op::Txn(all));
    store
}

/// State that a peer without rights must not change: everything except log entries and the number of the commit that
/// wrote them, which is stored with the bounds of the maps. The maps themselves are included.
fn guarded(kept: &Kept) -> BTreeMap<&Bytes, &Bytes> {
    kept.iter().filter(|(k, _)| !k.starts_with(key::LOG.as_bytes()) && *k != key::OSDMAP_BOUNDS).collect()
}

thread_local! {
    static PREPARED: OnceCell<Kept> = const { OnceCell::new() };
}

fn run(input: &[u8]) {
    PREPARED.with(|p| check(p.get_or_init(prepared), input));
}

fn check(cluster: &Kept, input: &[u8]) {
    let mut m = Monitor::load(refilled(cluster), start());
    // Writes at the start are not caused by a peer.
    let before = everything(&mut m.store);
    let idle = m.core.session_count();
    let mut steps = Steps::new(input);
    let mut conns = Vec::new();
    for _ in 0..STEPS_MAX {
        let Some(what) = steps.u8() else { break };
        step(&mut m, &mut conns, what, &mut steps);
        assert!(m.core.waiting().1 <= WAITING_MAX, "{} bytes wait", m.core.waiting().1);
    }
    m.release();
    for c in conns {
        m.handle(Event::Closed(c));
    }
    m.pump();
    assert_eq!(m.core.session_count(), idle, "sessions stay");
    assert_eq!(m.core.waiting(), (0, 0), "something waits for nobody");
    let after = everything(&mut m.store);
    let (before, after) = (guarded(&before), guarded(&after));
    assert!(before == after, "changed: {:?}", changed(&before, &after));
}

fn changed(a: &BTreeMap<&Bytes, &Bytes>, b: &BTreeMap<&Bytes, &Bytes>) -> Vec<String> {
    let all: std::collections::BTreeSet<&&Bytes> = a.keys().chain(b.keys()).collect();
    let differs = all.into_iter().filter(|k| a.get(**k) != b.get(**k));
    differs.map(|k| String::from_utf8_lossy(k).into_owned()).collect()
}

/// Runs a step. 0: opens a session of the peer given by the next byte; 1: closes the newest; 2: advances time; 3:
/// withholds or completes a commit; 4 to 6: a command to the monitor, the manager, or by `tell`; others: a message of
/// the type given by the next byte.
fn step(m: &mut Monitor, conns: &mut Vec<u64>, what: u8, steps: &mut Steps<'_>) {
    if what.is_multiple_of(12) || conns.is_empty() {
        let which = steps.u8().unwrap_or(0);
        let (name, mon, mgr) = PEERS[usize::from(which) % PEERS.len()];
        let role = [Role::Mon, Role::Mgr, Role::Mon][usize::from(which / 16) % 3];
        conns.push(m.open(name, mon, mgr, role));
        return;
    }
    let conn = conns.last().copied().unwrap_or(0);
    match what % 12 {
        1 => {
            m.handle(Event::Closed(conn));
            conns.pop();
            m.pump();
        }
        2 => {
            let d = Duration::from_secs(u64::from(steps.u8().unwrap_or(0) % 3));
            (m.now.mono, m.now.wall) = (m.now.mono + d, m.now.wall.plus(d));
            m.handle(Event::Tick);
            m.pump();
        }
        3 if m.held.is_none() => m.held = Some(Vec::new()),
        3 => m.release(),
        4 => m.send(conn, mon_command(steps.bytes())),
        5 => {
            let cmd = vec![Text(String::from_utf8_lossy(&steps.bytes()).into_owned())];
            m.send(conn, MMgrCommand { fsid: FSID, cmd, data: Bytes::new() }.to_message(Features::PACIFIC));
        }
        6 => {
            let cmd = vec![Text(String::from_utf8_lossy(&steps.bytes()).into_owned())];
            m.send(conn, MCommand { fsid: FSID, cmd, data: Bytes::new() }.to_message(Features::PACIFIC));
        }
        _ => m.send(conn, steps.message()),
    }
}

/// For each peer a session with every command, and with captured messages of each type.
fn seeds() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let commands: Vec<String> = mon::command::commands()
        .map(|(sig, _)| {
            let mut j = serde_json::Map::new();
            j.insert("prefix".into(), sig.prefix.clone().into());
            for a in &sig.args {
                let v = a.choices.first().map_or_else(|| json!("1"), |c| json!(c));
                j.insert(a.name.into(), v);
            }
            serde_json::Value::Object(j).to_string()
        })
        .collect();
    for (n, some) in commands.chunks(6).enumerate() {
        for way in [4, 5, 6] {
            let mut b = vec![0, (n % PEERS.len()) as u8 + if way == 5 { 16 } else { 0 }];
            for c in some {
                b.push(way);
                b.extend((c.len() as u16).to_le_bytes());
                b.extend(c.as_bytes());
            }
            out.push(b);
        }
    }
    let mut by_kind: BTreeMap<u16, Message> = BTreeMap::new();
    for m in vectors::all_messages() {
        by_kind.entry(m.header.kind).or_insert(m);
    }
    for (n, kind) in registry::KINDS.iter().enumerate() {
        for role in [0, 16] {
            let mut b = vec![0, (n % PEERS.len()) as u8 + role, 3];
            let none = Message::default();
            Steps::put_message(&mut b, 7, n, by_kind.get(kind).unwrap_or(&none));
            b.extend([2, 1, 3]);
            out.push(b);
        }
    }
    out
}
