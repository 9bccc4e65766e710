//! One PG over a memory store, with a host that only carries events.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test file uses its part")]

use base::{EntityAddr, EntityKind, EntityName, Epoch, Mono, Now, OsdId, PgId, PoolId, SnapId, Utime};
use bytes::Bytes;
use pg::map::{AllUp, Mapping, NoBlocklist, PoolKind};
use pg::{CreateInfo, Effect, Event, MapView, OpRequest, Pg, PgConfig, PoolView, SessionId};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use store::ObjectStore;
use store::mem::MemStore;
use wire::msg::{MOsdOp, MOsdOpReply, MWatchNotify, OpCode, OpVec, OsdOp, msg_flags};
use wire::types::{ObjectLocator, SnapContext};

pub const POOL: i64 = 3;

/// An OSD map in which only these OSDs are up.
pub struct Up(pub std::collections::BTreeSet<OsdId>);

impl pg::map::Osds for Up {
    fn is_up(&self, osd: OsdId) -> bool {
        self.0.contains(&osd)
    }
    fn up_from(&self, _: OsdId) -> Epoch {
        Epoch(1)
    }
    fn up_thru(&self, _: OsdId) -> Epoch {
        Epoch(u32::MAX)
    }
    fn lost_at(&self, _: OsdId) -> Epoch {
        Epoch(0)
    }
}

pub struct World {
    pub store: MemStore,
    pub pg: Pg,
    pub cfg: PgConfig,
    pub now: Now,
    pub view: MapView,
    pub pool: PoolView,
    pub effects: Vec<Effect>,
    pub replies: BTreeMap<(SessionId, u64), MOsdOpReply>,
    /// Replies in the order of arrival.
    pub order: Vec<(SessionId, u64)>,
    pub watch: Vec<(SessionId, MWatchNotify, Bytes)>,
    pub fetches: Vec<pg::Fetch>,
    pub tid: u64,
    /// Snapshot context of all writes.
    pub snapc: SnapContext,
    /// Durable events are delivered only by `step`.
    pub manual: bool,
    /// Runs the parts of long requests, unless the test uses another one.
    pub pacer: Rc<pg::pace::Pacer>,
}

pub fn now_at(ms: u64) -> Now {
    let d = Duration::from_millis(ms);
    Now { mono: Mono(0) + d, wall: Utime { sec: 1_700_000_000, nsec: 0 }.plus(d) }
}

pub fn client(n: i64) -> EntityName {
    EntityName::new(EntityKind::CLIENT, n)
}

pub fn pool_view() -> PoolView {
    PoolView {
        id: PoolId(POOL),
        kind: PoolKind::Replicated,
        size: 1,
        min_size: 1,
        pg_num: 1,
        pg_num_pending: 1,
        ..PoolView::default()
    }
}

pub fn map_view(epoch: u32, pool: &PoolView) -> MapView {
    let me = OsdId(0);
    MapView {
        epoch: Epoch(epoch),
        flags: 0,
        pool: Some(Rc::new(pool.clone())),
        mapping: Mapping { up: vec![me], up_primary: me, acting: vec![me], acting_primary: me },
        up_thru: Epoch(epoch),
        up_from: Epoch(5),
        since: Epoch(0),
        osds: Rc::new(AllUp),
        blocklist: Rc::new(NoBlocklist),
    }
}

impl World {
    pub fn new() -> Self {
        Self::with_store(MemStore::new())
    }

    pub fn with_store(store: MemStore) -> Self {
        let mut w = Self::unmapped(store);
        w.map();
        assert!(w.pg.is_active(), "{:?}", w.pg.state());
        w
    }

    /// A PG that has no map yet.
    pub fn unmapped(mut store: MemStore) -> Self {
        let cfg = PgConfig { spg: PgId::new(POOL, 0).into(), whoami: OsdId(0), index: 1, seed: 7 };
        let now = now_at(0);
        let mut how = CreateInfo::default();
        let h = &mut how.extra.history;
        for e in [&mut h.epoch_created, &mut h.same_interval_since, &mut h.same_up_since, &mut h.same_primary_since] {
            *e = Epoch(10);
        }
        let mut effects = Vec::new();
        let pg = Pg::create(cfg, how, now, &mut store, &mut effects);
        let pool = pool_view();
        Self {
            store,
            pg,
            cfg,
            now,
            view: map_view(10, &pool),
            pool,
            effects,
            replies: BTreeMap::new(),
            order: Vec::new(),
            watch: Vec::new(),
            fetches: Vec::new(),
            tid: 0,
            snapc: SnapContext::default(),
            manual: false,
            pacer: Rc::default(),
        }
        .paced()
    }

    fn paced(mut self) -> Self {
        self.pg.use_pacer(Rc::clone(&self.pacer));
        self
    }

    pub fn handle(&mut self, e: Event) {
        self.pg.handle(e, self.now, &mut self.store, &mut self.effects);
        if !self.manual {
            self.settle();
        }
    }

    /// Carries events and effects until none is left.
    pub fn settle(&mut self) {
        loop {
            self.store.end_turn();
            self.collect();
            let e = match self.store.poll_event() {
                Some(e) => Event::Store(e),
                None => match self.pacer.long.take() {
                    Some((_, plan)) => Event::Part(plan),
                    None => break,
                },
            };
            self.pg.handle(e, self.now, &mut self.store, &mut self.effects);
        }
        self.collect();
    }

    /// Delivers one event of the store, if there is one; true if there was.
    pub fn step(&mut self) -> bool {
        let e = self.store.poll_event();
        let some = e.is_some();
        if let Some(e) = e {
            self.pg.handle(Event::Store(e), self.now, &mut self.store, &mut self.effects);
        }
        self.collect();
        some
    }

    fn collect(&mut self) {
        for e in std::mem::take(&mut self.effects) {
            match e {
                Effect::Reply(s, r) => {
                    self.order.push((s, r.tid));
                    let old = self.replies.insert((s, r.tid), *r);
                    assert!(old.is_none(), "answered twice");
                }
                Effect::Watch(s, m, d) => self.watch.push((s, *m, d)),
                Effect::Fetch(f) => self.fetches.push(*f),
                _ => {}
            }
        }
    }

    /// Hands the map of the current view to the PG.
    pub fn map(&mut self) {
        self.view.pool = Some(Rc::new(self.pool.clone()));
        let v = self.view.clone();
        self.handle(Event::Map(v));
    }

    /// Delivers another OSD's answer that it has no copy.
    pub fn has_nothing(&mut self, osd: OsdId) {
        let (body, data) = pg::peer::Body::Notify { info: Box::default(), absent: true, grants: Vec::new() }.encode();
        let msg = Box::new(wire::msg::MPgPeer {
            spg: self.cfg.spg,
            from: base::ShardId::NONE,
            epoch: self.view.epoch,
            up_from: base::Epoch(0),
            body,
            data,
            sums: None,
        });
        self.handle(Event::Peer { from: osd, msg });
    }

    pub fn next_map(&mut self) {
        self.view.epoch = self.view.epoch.next();
        self.map();
    }

    /// Restarts the machine on the same store, as after a crash.
    pub fn restart(&mut self) {
        while self.store.poll_event().is_some() {}
        self.effects.clear();
        self.pg = Pg::load(self.cfg, 0, self.now, &mut self.store, &mut self.effects);
        self.pg.use_pacer(Rc::clone(&self.pacer));
        self.settle();
        self.view.epoch = self.view.epoch.next();
        self.view.up_from = self.view.epoch;
        self.view.up_thru = self.view.epoch;
        self.map();
        self.settle();
        assert!(self.pg.is_active(), "{:?}", self.pg.state());
    }

    pub fn advance(&mut self, ms: u64) {
        self.now = now_at((self.now.mono.0 / 1_000_000) + ms);
        self.handle(Event::Tick);
    }

    pub fn request(&mut self, session: u64, name: &str, ops: Vec<OsdOp>) -> OpRequest {
        self.tid += 1;
        let write = ops.iter().any(|o| o.op.is_write());
        OpRequest {
            owner: 0,
            session: SessionId(session),
            client: client(session as i64),
            addr: EntityAddr { nonce: session as u32, ..EntityAddr::default() },
            features: wire::Features::PACIFIC.0,
            received: self.now,
            ledger: base::ledger::Ledger::begin(self.now.mono, self.now.wall, base::Utime::ZERO),
            msg: Box::new(MOsdOp {
                tid: self.tid,
                pgid: self.cfg.spg,
                hash: hash(name),
                osdmap_epoch: self.view.epoch,
                flags: if write { msg_flags::WRITE | msg_flags::ONDISK } else { msg_flags::READ },
                mtime: self.now.wall,
                locator: ObjectLocator::new(PoolId(POOL)),
                oid: Bytes::copy_from_slice(name.as_bytes()),
                ops: OpVec::from_vec(ops),
                snapid: SnapId::HEAD,
                snapc: self.snapc.clone(),
                ..MOsdOp::default()
            }),
        }
    }

    pub fn send(&mut self, r: OpRequest) -> (SessionId, u64) {
        let key = (r.session, r.msg.tid);
        self.handle(Event::Op(Box::new(r)));
        key
    }

    /// Sends a request and returns its reply.
    pub fn call(&mut self, r: OpRequest) -> MOsdOpReply {
        let key = self.send(r);
        self.settle();
        self.replies
            .remove(&key)
            .unwrap_or_else(|| panic!("no answer to {key:?}: {:?}", self.pg.dump_ops(self.now.mono)))
    }

    pub fn op(&mut self, name: &str, ops: Vec<OsdOp>) -> MOsdOpReply {
        let r = self.request(1, name, ops);
        self.call(r)
    }

    pub fn at_snap(&mut self, name: &str, snap: SnapId, ops: Vec<OsdOp>) -> MOsdOpReply {
        let mut r = self.request(1, name, ops);
        r.msg.snapid = snap;
        self.call(r)
    }

    pub fn set_snaps(&mut self, seq: u64, snaps: &[u64]) {
        self.snapc = SnapContext { seq: SnapId(seq), snaps: snaps.iter().map(|s| SnapId(*s)).collect() };
    }
}

pub fn hash(name: &str) -> u32 {
    name.bytes().fold(7, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(b)))
}

pub fn bytes(b: &[u8]) -> Bytes {
    Bytes::copy_from_slice(b)
}

pub fn write(off: u64, data: &[u8]) -> OsdOp {
    OsdOp::with_extent(OpCode::WRITE, off, data.len() as u64, bytes(data))
}
pub fn write_full(data: &[u8]) -> OsdOp {
    OsdOp::with_extent(OpCode::WRITEFULL, 0, data.len() as u64, bytes(data))
}
pub fn append(data: &[u8]) -> OsdOp {
    OsdOp::with_extent(OpCode::APPEND, 0, data.len() as u64, bytes(data))
}
pub fn truncate(size: u64) -> OsdOp {
    OsdOp::with_extent(OpCode::TRUNCATE, size, 0, Bytes::new())
}
pub fn zero(off: u64, len: u64) -> OsdOp {
    OsdOp::with_extent(OpCode::ZERO, off, len, Bytes::new())
}
pub fn read(off: u64, len: u64) -> OsdOp {
    OsdOp::with_extent(OpCode::READ, off, len, Bytes::new())
}
pub fn simple(c: OpCode) -> OsdOp {
    OsdOp::new(c)
}
pub fn setxattr(k: &str, v: &[u8]) -> OsdOp {
    OsdOp::with_xattr(OpCode::SETXATTR, k.as_bytes(), v, 0, 0)
}
pub fn xattr(c: OpCode, k: &str) -> OsdOp {
    OsdOp::with_xattr(c, k.as_bytes(), b"", 0, 0)
}
pub fn encoded(c: OpCode, v: &impl wire::Encode) -> OsdOp {
    OsdOp::with_indata(c, v.to_bytes(wire::Features::PACIFIC))
}
pub fn omap_set(kv: &[(&str, &[u8])]) -> OsdOp {
    let m: BTreeMap<Bytes, Bytes> = kv.iter().map(|(k, v)| (bytes(k.as_bytes()), bytes(v))).collect();
    encoded(OpCode::OMAPSETVALS, &m)
}
pub fn omap_vals(after: &str, max: u64, prefix: &str) -> OsdOp {
    encoded(OpCode::OMAPGETVALS, &((after.to_owned(), max), prefix.to_owned()))
}
pub fn with_flags(mut o: OsdOp, f: u32) -> OsdOp {
    o.flags |= f;
    o
}
pub fn decode<T: wire::Decode>(b: &Bytes) -> T {
    T::from_bytes(b).unwrap()
}

/// A page of at most three objects of a namespace.
pub fn list_pg(w: &mut World, nspace: &'static [u8]) -> Bytes {
    let mut op = encoded(OpCode::PGNLS, &base::HObject::min());
    op.set_pgls(wire::msg::osd_op::PglsArgs { count: 3, start_epoch: 0 });
    let mut r = w.request(1, "", vec![op]);
    r.msg.hash = 0;
    r.msg.locator.nspace = Bytes::from_static(nspace);
    let r = w.call(r);
    assert!(r.result >= 0);
    r.ops[0].outdata.clone()
}
