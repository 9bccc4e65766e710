//! A monitor in memory: the core over the in-memory store, with peers that the test plays.
//!
//! Time stands still unless the test moves it. After every commit the map history is checked as a real OSD checks it:
//! each incremental, applied to the previous map, must give the stored full map, byte for byte.
#![allow(dead_code)] // Each test binary uses its part.

pub(crate) mod placement;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use base::id::Uuid;
use base::{AddrVec, AuthName, EntityAddr, EntityKind, EntityName, Epoch, Mono, Now, OsdId, Utime};
use bytes::Bytes;
use cluster::{Incremental, OsdMap};
use mon::core::session::Peer;
use mon::core::start::load::{self, NewCluster, Setup};
use mon::core::{Effect, Event, MonCore};
use mon::state::options::MonOptions;
use mon::state::{AuthEntry, Role};
use state::memory::MemoryStore;
use state::{Entry, Op, Outcome, Range, Reply, Request, StateStore};
use wire::msg::*;
use wire::types::{OsdSuperblock, PaxosHeader};
use wire::{Features, Message, WireMessage};

pub(crate) const FSID: Uuid = Uuid([7; 16]);
/// The socket address of peers, unless a test sets another.
pub(crate) const HOME: std::net::SocketAddr =
    std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 40000);
/// The expiry of a ticket that never expires.
pub(crate) const FOREVER: Utime = Utime { sec: u32::MAX, nsec: 0 };

/// Seeded randomness.
pub(crate) struct TestRandom(RefCell<base::rng::Rng>);

impl TestRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self(RefCell::new(base::rng::Rng::new(seed)))
    }
}

impl auth::Random for TestRandom {
    fn fill(&self, out: &mut [u8]) {
        self.0.borrow_mut().fill(out);
    }
}

pub(crate) struct Cluster {
    pub(crate) core: MonCore,
    pub(crate) store: MemoryStore,
    pub(crate) now: Now,
    pub(crate) out: Vec<(u64, Message)>,
    pub(crate) closed: Vec<(u64, String)>,
    /// The map up to which the history was checked.
    pub(crate) checked: Option<OsdMap>,
    /// True to skip the check of maps, for measurements.
    pub(crate) unchecked: bool,
    /// True if the store refuses transactions, like a full disk.
    pub(crate) failing: bool,
    /// Number of coming reads that fail.
    pub(crate) failing_reads: usize,
    /// Coming transactions whose outcomes get lost; true if the transaction takes effect.
    pub(crate) lost: VecDeque<bool>,
    /// Requests that the store has not received yet; a crash loses them.
    pub(crate) held: Option<Vec<Request>>,
    pub(crate) options: MonOptions,
    pub(crate) next_conn: u64,
    pub(crate) next_tid: u64,
    /// Number of writes of transactions, and their bytes of keys and values.
    pub(crate) written: (usize, usize),
}

pub(crate) fn ask(store: &mut MemoryStore, op: Op) -> Outcome {
    store.submit(Request { token: 0, op });
    loop {
        let event = store.poll().expect("the memory store answers at once");
        if let state::Event::Reply(Reply { result, token: 0, .. }) = event {
            return result.expect("store");
        }
    }
}

fn load_core(store: &mut MemoryStore, options: &MonOptions, now: Now) -> MonCore {
    let mut read = |ranges: Vec<Range>| -> Vec<(Bytes, Entry)> {
        let entries = |r| match ask(store, Op::all(r)) {
            Outcome::Entries { entries, .. } => entries,
            other => panic!("{other:?}"),
        };
        ranges.into_iter().flat_map(entries).collect()
    };
    let records = read(load::ranges());
    let maps = read(load::map_ranges(&records).expect("bounds"));
    let setup = Setup {
        name: "a".into(),
        options: options.clone(),
        mgr_addrs: (!options.external_mgr).then(|| addr(6801, 77)),
        random: Rc::new(TestRandom::new(now.mono.0)),
    };
    MonCore::load(&records, &maps, setup, now).expect("load")
}

pub(crate) fn addr(port: u16, nonce: u32) -> AddrVec {
    let sock = std::net::SocketAddr::from(([127, 0, 0, 1], port));
    AddrVec(vec![EntityAddr::msgr2(sock, nonce)])
}

pub(crate) fn admin_entities() -> BTreeMap<AuthName, AuthEntry> {
    let key = auth::CryptoKey::generate(auth::KeyKind::Aes, Utime::ZERO, &TestRandom::new(1));
    let caps = ["mon", "osd", "mgr", "mds"].iter().map(|s| ((*s).to_owned(), "allow *".to_owned())).collect();
    [(AuthName::parse("client.admin").unwrap(), AuthEntry { key, pending_key: None, caps })].into()
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self::with(FSID, MonOptions::default())
    }

    pub(crate) fn with(fsid: Uuid, options: MonOptions) -> Self {
        let now = Now { mono: Mono(1_000_000_000), wall: Utime { sec: 1_700_000_000, nsec: 0 } };
        let mut store = MemoryStore::new();
        let new = NewCluster {
            fsid,
            mon_name: "a".into(),
            mon_addrs: addr(3300, 0),
            others: Vec::new(),
            auth: admin_entities(),
            now: now.wall,
        };
        assert_eq!(ask(&mut store, Op::Txn(new.records().unwrap())), Outcome::Committed);
        Self::on(store, options, now)
    }

    /// A monitor over the contents of a store.
    pub(crate) fn on(mut store: MemoryStore, options: MonOptions, now: Now) -> Self {
        let core = load_core(&mut store, &options, now);
        let mut me = Self {
            core,
            store,
            now,
            out: Vec::new(),
            closed: Vec::new(),
            checked: None,
            unchecked: false,
            failing: false,
            failing_reads: 0,
            lost: VecDeque::new(),
            held: None,
            options,
            next_conn: 1,
            next_tid: 1,
            written: (0, 0),
        };
        me.pump();
        me
    }

    /// Kills the process and starts a new one on the durable state.
    pub(crate) fn restart(&mut self) {
        self.held = None;
        self.checked = None;
        while self.store.poll().is_some() {}
        self.core = load_core(&mut self.store, &self.options, self.now);
        self.out.clear();
        self.pump();
    }

    pub(crate) fn pump(&mut self) {
        loop {
            self.core.flush();
            let effects = self.core.take_effects();
            let mut idle = effects.is_empty() && !self.core.has_more();
            for e in effects {
                if let Effect::Submit(Request { op: Op::Txn(t), .. }) = &e {
                    self.count_writes(t);
                }
                match e {
                    Effect::Send(c, m) => self.out.push((c, m)),
                    Effect::Close(c, why) => self.closed.push((c, why)),
                    Effect::Submit(r) if self.failing => {
                        idle = false;
                        let result = Err(state::StateError::Unavailable("No space left on device".into()));
                        let reply = Reply { token: r.token, revision: 0, result };
                        self.core.handle(Event::State(state::Event::Reply(reply)), self.now);
                    }
                    Effect::Submit(r) if self.failing_reads > 0 && !matches!(r.op, Op::Txn(_)) => {
                        idle = false;
                        self.failing_reads -= 1;
                        let result = Err(state::StateError::Unavailable("not now".into()));
                        let reply = Reply { token: r.token, revision: 0, result };
                        self.core.handle(Event::State(state::Event::Reply(reply)), self.now);
                    }
                    Effect::Submit(r) if matches!(r.op, Op::Txn(_)) && !self.lost.is_empty() => {
                        idle = false;
                        let token = r.token;
                        if self.lost.pop_front() == Some(true) {
                            self.store.submit(r);
                            while self.store.poll().is_some() {}
                        }
                        let result = Err(state::StateError::Unknown("no answer".into()));
                        let reply = Reply { token, revision: 0, result };
                        self.core.handle(Event::State(state::Event::Reply(reply)), self.now);
                    }
                    Effect::Submit(r) => match &mut self.held {
                        Some(h) => h.push(r),
                        None => self.store.submit(r),
                    },
                    Effect::Job(token, job) => {
                        idle = false;
                        self.core.handle(idle_host(token, job.prefix), self.now);
                    }
                    // The manager answers with the command.
                    Effect::Forward(token, f) => {
                        idle = false;
                        let out = bytes::Bytes::from(format!("{} {}", f.manager, f.json));
                        self.core.handle(Event::Answer(token, 0, f.name.to_string(), out), self.now);
                    }
                    Effect::CloseLinks(why) => self.closed.push((0, why)),
                    Effect::Stop(why) => panic!("the core stopped: {why}"),
                }
            }
            while let Some(e) = self.store.poll() {
                idle = false;
                self.core.handle(Event::State(e), self.now);
            }
            if idle {
                break;
            }
        }
        if !self.unchecked {
            self.check_history();
        }
    }

    fn count_writes(&mut self, t: &state::Txn) {
        let bytes = |w: &state::Write| match w {
            state::Write::Put(k, v, _) => k.len() + v.len(),
            state::Write::Delete(k) => k.len(),
            state::Write::DeleteRange(r) => r.start.len(),
        };
        self.written.0 += t.then.len();
        self.written.1 += t.then.iter().map(bytes).sum::<usize>();
    }

    /// Checks the map history as a real OSD does.
    pub(crate) fn check_history(&mut self) {
        let h = &self.core.state().history;
        let mut before = self.checked.take().filter(|m| m.epoch >= h.oldest && m.epoch <= h.newest);
        let first = before.as_ref().map_or(h.oldest, |m| m.epoch.next());
        for e in first.0..=h.newest.0 {
            let (full, inc) = (h.full(Epoch(e)), h.inc(Epoch(e)));
            before = match (&before, inc) {
                (Some(map), Some(inc)) => {
                    let inc = Incremental::decode_blob(inc).expect("incremental");
                    let (map, blob) = map.apply_checked(&inc).unwrap_or_else(|x| panic!("epoch {e}: {x}"));
                    assert!(full.is_none_or(|f| *f == blob), "full map {e}");
                    Some(map)
                }
                _ => full.map(|f| OsdMap::decode_blob(f).expect("full map")),
            };
        }
        self.checked = before;
    }

    pub(crate) fn pass(&mut self, d: Duration) {
        self.now.mono = self.now.mono + d;
        self.now.wall = self.now.wall.plus(d);
    }

    /// Lets `n` seconds pass with a tick each.
    pub(crate) fn ticks(&mut self, n: u64) {
        for _ in 0..n {
            self.pass(Duration::from_secs(1));
            self.core.handle(Event::Tick, self.now);
            self.pump();
        }
    }

    pub(crate) fn open(&mut self, peer: Peer) -> u64 {
        let c = self.next_conn;
        self.next_conn += 1;
        self.open_as(Event::Open, c, peer);
        self.pump();
        c
    }

    /// Opens a session whose entity has the peer's caps and key at that moment, whatever the state says of it.
    fn open_as(&mut self, event: fn(u64, Box<Peer>) -> Event, c: u64, peer: Peer) {
        open_known(&mut self.core, event, c, peer, self.now);
    }

    pub(crate) fn close(&mut self, c: u64) {
        self.core.handle(Event::Closed(c), self.now);
        self.pump();
    }

    pub(crate) fn client(&mut self, name: &str, caps: &str) -> u64 {
        let gid = 5000 + self.next_conn;
        self.open(peer(name, EntityKind::CLIENT, gid, caps))
    }

    pub(crate) fn admin(&mut self) -> u64 {
        self.client("client.admin", "allow *")
    }

    pub(crate) fn osd_session(&mut self, id: i32, addrs: AddrVec, role: Role) -> u64 {
        self.open(Peer {
            principal: who(EntityKind::OSD, &format!("osd.{id}"), 4500 + id as u64, "allow profile osd"),
            entity: EntityName::new(EntityKind::OSD, id.into()),
            addrs,
            features: Features::PACIFIC,
            role,
        })
    }

    pub(crate) fn send_raw(&mut self, c: u64, m: Message) {
        self.core.handle(Event::Message(c, m), self.now);
        self.pump();
    }

    pub(crate) fn send(&mut self, c: u64, m: &impl WireMessage) -> u64 {
        let tid = self.next_tid;
        self.next_tid += 1;
        self.send_raw(c, m.to_message(Features::PACIFIC).with_tid(tid));
        tid
    }

    /// Takes the messages of one type that were sent to a connection.
    pub(crate) fn take<M: WireMessage>(&mut self, c: u64) -> Vec<M> {
        let (mine, rest) =
            std::mem::take(&mut self.out).into_iter().partition(|(x, m)| *x == c && m.header.kind == M::KIND);
        self.out = rest;
        let mine: Vec<(u64, Message)> = mine;
        mine.iter().map(|(_, m)| M::from_message(m).expect("our own message")).collect()
    }

    /// Sends a command and returns its result code, status line and output.
    pub(crate) fn command(&mut self, c: u64, json: &serde_json::Value, input: &str) -> (i32, String, String) {
        let cmd = MMonCommand {
            paxos: PaxosHeader::default(),
            fsid: self.core.state().fsid,
            cmd: vec![json.to_string().into()],
            data: Bytes::copy_from_slice(input.as_bytes()),
        };
        self.send(c, &cmd);
        let acks = self.take::<MMonCommandAck>(c);
        assert_eq!(acks.len(), 1, "one answer to {json}");
        (acks[0].r, acks[0].rs.0.clone(), String::from_utf8_lossy(&acks[0].data).into_owned())
    }

    /// Sends a command to the process (`ceph tell`).
    pub(crate) fn tell(&mut self, c: u64, json: &serde_json::Value) -> (i32, String, String) {
        self.send(c, &MCommand { fsid: FSID, cmd: vec![json.to_string().into()], data: Bytes::new() });
        let reply = self.take::<MCommandReply>(c).pop().unwrap_or_else(|| panic!("no answer to {json}"));
        (reply.r, reply.rs.0, String::from_utf8_lossy(&reply.data).into_owned())
    }

    /// Sends a command whose answer the test reads later.
    pub(crate) fn ok_later(&mut self, c: u64, json: &serde_json::Value) {
        self.send(c, &MMonCommand { fsid: FSID, cmd: vec![json.to_string().into()], ..MMonCommand::default() });
    }

    pub(crate) fn ok(&mut self, c: u64, json: &serde_json::Value) -> String {
        let (r, rs, out) = self.command(c, json, "");
        assert_eq!(r, 0, "{json}: {rs}");
        out
    }

    pub(crate) fn map(&self) -> &OsdMap {
        &self.core.state().osdmap
    }

    /// Creates an OSD on a host, with the commands that create a real one.
    pub(crate) fn new_osd(&mut self, admin: u64, id: i32, host: &str) {
        let uuid = osd_uuid(id).to_string();
        self.ok(admin, &serde_json::json!({ "prefix": "osd new", "uuid": uuid, "id": format!("osd.{id}") }));
        let args = [format!("host={host}"), "root=default".to_owned()];
        let json = serde_json::json!({ "prefix": "osd crush create-or-move", "id": id, "weight": 1.0, "args": args });
        self.ok(admin, &json);
    }

    /// Opens an OSD's session and boots it.
    pub(crate) fn boot(&mut self, id: i32, addrs: &AddrVec) -> u64 {
        let c = self.osd_session(id, addrs.clone(), Role::Mon);
        self.send(c, &boot_message(self.core.state().fsid, id, self.map().epoch, 0));
        c
    }

    /// A cluster with `n` OSDs up, one per host; returns it with the sessions of the administrator and the OSDs.
    pub(crate) fn with_osds(n: i32) -> (Self, u64, Vec<u64>) {
        let mut c = Self::new();
        let admin = c.admin();
        for id in 0..n {
            c.new_osd(admin, id, &format!("h{id}"));
        }
        let sessions = (0..n).map(|id| c.boot(id, &osd_addr(id))).collect();
        for id in 0..n {
            assert!(c.map().is_up(OsdId(id)), "osd.{id} is up");
        }
        c.out.clear();
        (c, admin, sessions)
    }

    pub(crate) fn subscribe(&mut self, c: u64, what: &str, start: u64, onetime: bool) {
        let what = [(what.to_owned(), SubscribeItem::new(start, onetime))].into();
        self.send(c, &MMonSubscribe { what, hostname: "host".into() });
    }
}

/// Hands the core a peer whose entity it knows, with the peer's caps and key, while the session opens.
pub(crate) fn open_known(core: &mut MonCore, event: fn(u64, Box<Peer>) -> Event, c: u64, mut peer: Peer, now: Now) {
    let name = peer.principal.name.clone();
    let old = core.state().auth.get(&name).cloned();
    let key = old.as_ref().map_or_else(
        || auth::CryptoKey::generate(auth::KeyKind::Aes, Utime::ZERO, &TestRandom::new(c)),
        |e| e.key.clone(),
    );
    peer.principal.proved = Some(key.mark());
    let service = if peer.role == Role::Mgr { "mgr" } else { "mon" };
    let text = match peer.principal.caps.text() {
        // No session opens without caps at the monitors, so the caps name a command that there is not.
        none if none.is_empty() && service == "mon" => "allow command \"none\"".to_owned(),
        text => text,
    };
    let caps = [(service.to_owned(), text)].into();
    core.pretend(|s| drop(s.auth.insert(name.clone(), AuthEntry { key, pending_key: None, caps })));
    core.handle(event(c, Box::new(peer)), now);
    core.pretend(|s| match old {
        Some(e) => drop(s.auth.insert(name, e)),
        None => drop(s.auth.remove(&name)),
    });
}

/// A peer at the monitor role that announces the entity type `kind`.
pub(crate) fn peer(name: &str, kind: EntityKind, gid: u64, caps: &str) -> Peer {
    Peer {
        principal: who(kind, name, gid, caps),
        entity: EntityName::new(kind, gid as i64),
        addrs: addr(0, gid as u32),
        features: Features::PACIFIC,
        role: Role::Mon,
    }
}

/// The principal of an authenticated entity.
pub(crate) fn who(kind: EntityKind, name: &str, gid: u64, caps: &str) -> auth::Principal {
    auth::Principal {
        name: AuthName::parse(name).unwrap(),
        kind,
        global_id: gid,
        caps: auth::CapsInfo::from_text(caps),
        expires: FOREVER,
        method: auth::Method::CEPHX,
        ..auth::Principal::nobody(HOME)
    }
}

pub(crate) fn osd_uuid(id: i32) -> Uuid {
    Uuid([id as u8 + 1; 16])
}

pub(crate) fn osd_addr(id: i32) -> AddrVec {
    addr(6800 + id as u16 * 10, 100 + id as u32)
}

pub(crate) fn boot_message(fsid: Uuid, id: i32, newest: Epoch, boot_epoch: u32) -> MOsdBoot {
    let port = 6800 + id as u16 * 10;
    MOsdBoot {
        paxos: PaxosHeader::from(newest),
        sb: OsdSuperblock {
            cluster_fsid: fsid,
            whoami: OsdId(id),
            current_epoch: newest,
            newest_map: newest,
            osd_fsid: osd_uuid(id),
            ..OsdSuperblock::default()
        },
        hb_back_addrs: addr(port + 2, 100 + id as u32),
        cluster_addrs: addr(port + 1, 100 + id as u32),
        boot_epoch: Epoch(boot_epoch),
        hb_front_addrs: addr(port + 3, 100 + id as u32),
        metadata: [("hostname".to_owned(), format!("h{id}"))].into(),
        osd_features: Features::PACIFIC.0,
    }
}

/// The answer of a host without jobs and without a cluster client.
fn idle_host(token: u64, prefix: &str) -> Event {
    let (rc, rs, out) = match prefix {
        "progress" => (0, "Nothing in progress", ""),
        "progress json" => (0, "", "{\n    \"completed\": [],\n    \"events\": []\n}\n"),
        "progress clear" => (0, "", ""),
        "rbd task list" => (0, "", "[]\n"),
        _ => (base::errno::EAGAIN, "the cluster does not answer; try again", ""),
    };
    Event::Answer(token, rc, rs.into(), Bytes::from_static(out.as_bytes()))
}
