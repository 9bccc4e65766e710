//! Whole sessions with an OSD, of clients without write access: messages of any type and operations on existing
//! objects. No object and no PG changes, and the memory held for the clients is bounded. Input: steps; the first byte
//! of each selects its kind ([`step`]).

use super::{Family, Steps};
use crate::vectors;
use auth::{CapsInfo, Method, Principal};
use base::id::Uuid;
use base::{
    AddrVec, AuthName, EntityAddr, EntityKind, Epoch, Eversion, HObject, Mono, Now, OsdId, PgId, PoolId, SnapId, Utime,
};
use bytes::Bytes;
use cluster::crush::CrushMap;
use cluster::pool::flag;
use cluster::{Incremental, OsdMap, PgPool};
use osd::core::admission::Admission;
use osd::core::control::PgCreate;
use osd::core::inbound::{self, NotTaken, Request};
use osd::core::maps::{MapHistory, Source};
use osd::core::pgs::{Output, Pgs};
use osd::core::places::Places;
use osd::core::session::{SessionInfo, caps_of, owner_of, session_id};
use std::sync::Arc;
use store::mem::MemStore;
use wire::msg::osd_op::WatchArgs;
use wire::msg::{MOsdMap, MOsdOp, OpCode, OsdOp, msg_flags, registry};
use wire::types::{ObjectLocator, SnapContext};
use wire::{Features, Message, WireMessage as _};

/// A PG with its objects, and replies.
const ALLOC: usize = 4 << 20;

pub(super) const FAMILY: Family = Family { name: "osd_sessions", run, seeds, alloc_fixed: ALLOC, cost: 60 };

const FSID: Uuid = Uuid([7; 16]);
const POOL: PoolId = PoolId(1);
const STEPS_MAX: usize = 48;
/// Most bytes that may wait for a map, of clients without write access.
const WAITING_MAX: usize = 1 << 20;

/// Entity, caps for OSDs, entity type in HELLO.
const CLIENTS: [(&str, &str, EntityKind); 9] = [
    ("client.none", "", EntityKind::CLIENT),
    ("client.r", "allow r", EntityKind::CLIENT),
    ("client.elsewhere", "allow rwx pool=q", EntityKind::CLIENT),
    ("client.network", "allow * network 192.0.2.0/24", EntityKind::CLIENT),
    ("client.namespace", "allow r pool=p namespace=n", EntityKind::CLIENT),
    ("client.images", "profile rbd-read-only", EntityKind::CLIENT),
    ("client.methods", "allow class-read", EntityKind::CLIENT),
    ("osd.0", "allow r", EntityKind::CLIENT),
    ("osd.1", "allow r", EntityKind::OSD),
];

const OBJECTS: [&[u8]; 4] = [b"o", b"o2", b"none", b""];

/// Codes that clients send; the last two are undefined.
const CODES: [OpCode; 41] = [
    OpCode::READ,
    OpCode::STAT,
    OpCode::MAPEXT,
    OpCode::SPARSE_READ,
    OpCode::NOTIFY,
    OpCode::NOTIFY_ACK,
    OpCode::ASSERT_VER,
    OpCode::LIST_WATCHERS,
    OpCode::LIST_SNAPS,
    OpCode::TMAPGET,
    OpCode::OMAPGETKEYS,
    OpCode::OMAPGETVALS,
    OpCode::OMAPGETHEADER,
    OpCode::OMAPGETVALSBYKEYS,
    OpCode::OMAP_CMP,
    OpCode::COPY_GET,
    OpCode::CHECKSUM,
    OpCode::CMPEXT,
    OpCode::WRITE,
    OpCode::WRITEFULL,
    OpCode::TRUNCATE,
    OpCode::ZERO,
    OpCode::DELETE,
    OpCode::APPEND,
    OpCode::TMAPPUT,
    OpCode::CREATE,
    OpCode::ROLLBACK,
    OpCode::WATCH,
    OpCode::OMAPSETVALS,
    OpCode::OMAPSETHEADER,
    OpCode::OMAPCLEAR,
    OpCode::OMAPRMKEYS,
    OpCode::COPY_FROM,
    OpCode::UNDIRTY,
    OpCode::CALL,
    OpCode::PGNLS,
    OpCode::GETXATTRS,
    OpCode::SETXATTR,
    OpCode::PGNLS_FILTER,
    OpCode(0x2fff),
    OpCode(0),
];

struct Osd {
    pgs: Pgs,
    store: MemStore,
    admission: Admission,
    epoch: Epoch,
    conns: u64,
    ms: u64,
}

fn at(ms: u64) -> Now {
    Now { mono: Mono((1000 + ms) * 1_000_000), wall: Utime { sec: 100 + (ms / 1000) as u32, nsec: 0 } }
}

/// The next map, and its encoded incremental map.
fn next(map: &OsdMap, change: impl FnOnce(&mut Incremental)) -> (OsdMap, Bytes) {
    let mut inc = Incremental::new(FSID, map.epoch.next(), Utime { sec: map.epoch.0, nsec: 0 });
    change(&mut inc);
    let next = map.apply(&inc).expect("the next map");
    let (_, crc) = next.encode_blob(Features::PACIFIC);
    (next, inc.encode_blob(Features::PACIFIC, crc))
}

/// Maps with one OSD, up, and the pools `p` and `q` with one PG each; with the second map their PGs can serve.
fn maps() -> (MapHistory, [Arc<OsdMap>; 2]) {
    let mut crush = CrushMap::fresh("osd");
    let place = [("host", "h"), ("root", "default")].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    crush.insert_item(0, 0x1_0000, "osd.0", &place).expect("a place");
    let mut map = OsdMap { fsid: FSID, epoch: Epoch(1), ..OsdMap::default() };
    map.set_max_osd(1).expect("room");
    map.crush = crush.into();
    let (full, _) = map.encode_blob(Features::PACIFIC);
    let (two, to_two) = next(&map, |inc| {
        let addr: AddrVec = EntityAddr::msgr2(([127, 0, 0, 1], 6800).into(), 7).into();
        inc.new_state.insert(OsdId(0), cluster::osdmap::osd_state::EXISTS);
        inc.new_weight.insert(OsdId(0), 0x1_0000);
        inc.new_up_client.insert(OsdId(0), addr.clone());
        inc.new_up_cluster.insert(OsdId(0), addr);
        let pool = PgPool {
            kind: cluster::pool::kind::REPLICATED,
            size: 1,
            min_size: 1,
            pg_num: 1,
            pgp_num: 1,
            pg_num_pending: 1,
            flags: flag::HASHPSPOOL | flag::CREATING,
            object_hash: 2,
            ..PgPool::default()
        };
        for (id, name) in [(POOL, "p"), (PoolId(2), "q")] {
            inc.new_pools.insert(id, pool.clone());
            inc.new_pool_names.insert(id, name.into());
        }
    });
    let (three, to_three) = next(&two, |inc| _ = inc.new_up_thru.insert(OsdId(0), Epoch(3)));
    let mut history = MapHistory::new(FSID);
    let m = MOsdMap {
        fsid: FSID,
        newest_map: Epoch(3),
        maps: [(Epoch(1), full)].into(),
        incremental_maps: [(Epoch(2), to_two), (Epoch(3), to_three)].into(),
        ..MOsdMap::default()
    };
    history.absorb(&m, Source::Monitor).expect("maps");
    (history, [two.into(), three.into()])
}

impl Osd {
    /// An OSD whose PG of `p` has two objects, one of them with a clone, and a watch.
    fn prepared() -> Self {
        let (history, [first, serving]) = maps();
        let places = Places::new(0, Box::new(|_| 0), &[]);
        let mut me = Self {
            pgs: Pgs::new(OsdId(0), 1, places),
            store: MemStore::new().without_waits(),
            admission: Admission::default(),
            epoch: serving.epoch,
            conns: 0,
            ms: 0,
        };
        let feed = history.feed().expect("a feed");
        me.pgs.handle_maps(&[first], feed.clone(), at(0), &mut me.store);
        let create = PgCreate { pgid: PgId { pool: POOL, seed: 0 }.into(), stamp: Default::default(), extra: None };
        me.pgs.create(&[create], at(0), &mut me.store);
        me.settle(1000);
        me.pgs.handle_maps(&[serving], feed, at(me.ms), &mut me.store);
        me.settle(1000);
        let admin = me.session("client.admin", "allow *", EntityKind::CLIENT);
        let write =
            |data: &'static [u8]| OsdOp::with_extent(OpCode::WRITEFULL, 0, data.len() as u64, Bytes::from_static(data));
        for (tid, (oid, data, seq)) in
            [("o", &b"hello"[..], 0), ("o2", b"world", 0), ("o", b"later", 4)].iter().enumerate()
        {
            let snaps = if *seq == 0 { Vec::new() } else { vec![SnapId(*seq)] };
            let m = MOsdOp {
                tid: tid as u64 + 1,
                snapc: SnapContext { seq: SnapId(*seq), snaps },
                ops: [write(data), OsdOp::with_xattr(OpCode::SETXATTR, b"a", b"v", 0, 0)].into_iter().collect(),
                ..me.operation(oid.as_bytes(), msg_flags::WRITE)
            };
            me.op(&admin, m);
        }
        let mut watch = OsdOp { op: OpCode::WATCH, ..OsdOp::default() };
        watch.set_watch(WatchArgs { cookie: 9, op: WatchArgs::WATCH, ..Default::default() });
        let m = MOsdOp { tid: 9, ops: [watch].into_iter().collect(), ..me.operation(b"o2", msg_flags::WRITE) };
        me.op(&admin, m);
        me.settle(1000);
        let states: Vec<_> = me.pgs.iter().map(|p| p.state().clone()).collect();
        assert_eq!(me.pg_version().version, 5, "the objects are there: {states:?}");
        me
    }

    fn operation(&self, oid: &[u8], flags: u32) -> MOsdOp {
        let hobj = HObject { oid: Bytes::copy_from_slice(oid), pool: POOL, ..HObject::default() };
        MOsdOp {
            pgid: PgId { pool: POOL, seed: 0 }.into(),
            hash: hobj.hash,
            osdmap_epoch: self.epoch,
            oid: hobj.oid,
            locator: ObjectLocator::new(POOL),
            snapid: SnapId::HEAD,
            flags,
            ..MOsdOp::default()
        }
    }

    fn session(&mut self, name: &str, caps: &str, kind: EntityKind) -> Arc<SessionInfo> {
        self.conns += 1;
        let nobody = Principal::nobody(([10, 0, 0, 7], 1).into());
        let name = AuthName::parse(name).expect("a name");
        let caps = CapsInfo::from_text(caps);
        let principal = Principal { name, kind, global_id: self.conns, caps, method: Method::CEPHX, ..nobody };
        let conn = net::ConnId(self.conns);
        Arc::new(SessionInfo {
            id: session_id(0, conn),
            reactor: 0,
            conn,
            entity: principal.entity(1),
            caps: caps_of(&principal).expect("caps"),
            owner: owner_of(&principal),
            principal,
            addr: EntityAddr::msgr2(([10, 0, 0, 7], 5).into(), self.conns as u32),
            features: Features::PACIFIC,
        })
    }

    fn op(&mut self, s: &Arc<SessionInfo>, m: MOsdOp) {
        self.pgs.op(s, Box::new(m), at(self.ms), &mut self.store);
        self.turn();
    }

    fn turn(&mut self) {
        self.store.end_turn();
        while let Some(e) = store::ObjectStore::poll_event(&mut self.store) {
            self.pgs.store_event(e, at(self.ms), &mut self.store);
        }
        while let Some(o) = self.pgs.poll_output() {
            assert!(!matches!(o, Output::PgFailed(..)), "a PG failed");
        }
    }

    fn settle(&mut self, ms: u64) {
        for _ in 0..ms / 100 {
            self.ms += 100;
            self.pgs.tick(at(self.ms), &mut self.store);
            self.turn();
        }
    }

    fn pg_version(&self) -> Eversion {
        self.pgs.iter().map(|p| p.info().last_update).max().unwrap_or_default()
    }

    /// A description of the whole stored state.
    fn stored(&self) -> String {
        format!("{:?}", self.store)
    }

    fn message(&mut self, s: &Arc<SessionInfo>, m: &Message) -> bool {
        match inbound::from_client(&self.admission, &s.principal, m) {
            Ok(Request::Op(op)) => self.op(s, *op),
            Ok(Request::Nothing) | Err(NotTaken::Refused(_)) => {}
            Err(NotTaken::BadOp(_)) => return false,
            Ok(Request::Command | Request::Maps(_)) | Err(NotTaken::BadMaps(_)) => {
                panic!("{} of {} taken", registry::name(m.header.kind), s.principal.name);
            }
        }
        true
    }
}

fn run(input: &[u8]) {
    let mut o = Osd::prepared();
    let before = (o.stored(), o.pg_version());
    let mut steps = Steps::new(input);
    let mut sessions = Vec::new();
    for _ in 0..STEPS_MAX {
        let Some(what) = steps.u8() else { break };
        step(&mut o, &mut sessions, what, &mut steps);
        assert!(o.pgs.waiting().1 <= WAITING_MAX, "{} bytes wait", o.pgs.waiting().1);
    }
    for s in &sessions {
        o.pgs.session_closed(s.id, at(o.ms), &mut o.store);
    }
    o.turn();
    assert_eq!(o.pgs.waiting(), (0, 0), "something waits for nobody");
    assert!((o.stored(), o.pg_version()) == before, "something that is stored changed");
}

/// Runs a step. 0: opens a session of the client given by the next byte; 1: closes the newest; 2: advances time; 3: a
/// message of the type given by the next byte; others: an operation.
fn step(o: &mut Osd, sessions: &mut Vec<Arc<SessionInfo>>, what: u8, steps: &mut Steps<'_>) {
    let newest = sessions.last().cloned();
    let Some(s) = newest.filter(|_| !what.is_multiple_of(8)) else {
        let (name, caps, kind) = CLIENTS[usize::from(steps.u8().unwrap_or(0)) % CLIENTS.len()];
        let s = o.session(name, caps, kind);
        sessions.push(s);
        return;
    };
    let goes_on = match what % 8 {
        1 => false,
        2 => {
            o.settle(100);
            true
        }
        3 => o.message(&s, &steps.message()),
        _ => {
            let m = operation(o, steps);
            // Encoded, as on the network.
            o.message(&s, &m.to_message(Features::PACIFIC))
        }
    };
    if !goes_on {
        sessions.pop();
        o.pgs.session_closed(s.id, at(o.ms), &mut o.store);
        o.turn();
    }
}

/// An operation on an object of `p`, or an absent one: object, snapshot, epoch, flags, and up to three codes with their
/// input.
fn operation(o: &Osd, steps: &mut Steps<'_>) -> MOsdOp {
    let mut next = || steps.u8().unwrap_or(0);
    let (oid, snap, epoch, flags, count, locator) = (next(), next(), next(), next(), next(), next());
    let mut ops = Vec::new();
    for _ in 0..=count % 3 {
        let code = CODES[usize::from(steps.u8().unwrap_or(0)) % CODES.len()];
        let mut op = OsdOp::with_indata(code, steps.bytes());
        if code == OpCode::CALL {
            op.raw[..2].copy_from_slice(&[steps.u8().unwrap_or(0) % 32, steps.u8().unwrap_or(0) % 32]);
        } else {
            op.raw = std::array::from_fn(|_| steps.u8().unwrap_or(0));
        }
        ops.push(op);
    }
    let m = o.operation(OBJECTS[usize::from(oid) % OBJECTS.len()], u32::from(flags) * 0x11);
    let nspace = if locator & 4 == 0 { Bytes::new() } else { Bytes::from_static(b"n") };
    MOsdOp {
        tid: u64::from(snap) + 1,
        snapid: if snap % 4 == 3 { SnapId(4) } else { SnapId::HEAD },
        osdmap_epoch: Epoch(if epoch > 250 { u32::MAX } else { o.epoch.0 }),
        // The locator is unverified; `n` is another object, whose PG is the same.
        locator: ObjectLocator { pool: PoolId(i64::from(locator % 3)), nspace, ..ObjectLocator::default() },
        ops: ops.into_iter().collect(),
        ..m
    }
}

/// For each client a session with each code, class methods, and captured messages of each type.
fn seeds() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for client in 0..CLIENTS.len() as u8 {
        let mut b = vec![0, client];
        for code in 0..CODES.len() as u8 {
            b.extend([4, 0, 0, 0, 0, 0, 1, code, 1, 0, b'a']);
            b.extend([0; 28]);
        }
        out.push(b);
        for (class, method) in [("lock", "lock"), ("rbd", "get_size"), ("rbd", "create"), ("version", "set")] {
            let mut b = vec![0, client, 4, 0, 0, 0, 0, 0, 1, 34, (class.len() + method.len()) as u8, 0];
            b.extend(class.bytes().chain(method.bytes()));
            b.extend([class.len() as u8, method.len() as u8]);
            out.push(b);
        }
        for filter in ["plain", "parent", "cephfs.inode_tag"] {
            // Two empty names are followed by the filter and its arguments, which the next list's start and others
            // reuse.
            let code = CODES.iter().position(|c| *c == OpCode::PGNLS_FILTER).unwrap_or(0) as u8;
            let args = [
                &[0; 8][..],
                &[filter.len() as u8, 0, 0, 0],
                filter.as_bytes(),
                &[1, 1, 5, 0, 0, 0, 1, 0, 0, 0, b't'],
                &[0; 40],
            ]
            .concat();
            let mut b = vec![0, client, 4, 0, 0, 0, 0, 0, 1, code, args.len() as u8, 0];
            b.extend(args);
            b.extend([4, 0, 0, 0, 0, 0, 0, 0]);
            out.push(b);
        }
    }
    let all = vectors::all_messages();
    for (n, kind) in registry::KINDS.iter().enumerate() {
        let none = Message::default();
        let m = all.iter().find(|m| m.header.kind == *kind).unwrap_or(&none);
        let mut b = vec![0, (n % CLIENTS.len()) as u8];
        Steps::put_message(&mut b, 3, n, m);
        b.extend([2, 1]);
        out.push(b);
    }
    out
}
