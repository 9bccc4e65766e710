//! Is the data of a large write summed once on each OSD, by the receiver of its message?
//!
//! Two copies of a PG on stores of their own, with frames between them as on a connection without encryption. The
//! counter of summed bytes exists only in builds with assertions.
#![cfg(debug_assertions)]

use base::crc::counted;
use base::rng::Rng;
use base::{EntityAddr, EntityKind, EntityName, Epoch, HObject, Mono, Now, OsdId, PgId, PoolId, SnapId, Utime};
use bytes::Bytes;
use msgr::frame::header2;
use msgr::rx::{Phase, Rx};
use msgr::tx::Tx;
use msgr::{BufPool, FrameLimits};
use pg::lease::{Held, LeaseUpdate, LeaseView};
use pg::map::{AllUp, Mapping, NoBlocklist, PoolKind};
use pg::peer::{Orphan, orphan};
use pg::{CreateInfo, Effect, Event, MapView, OpRequest, Pg, PgConfig, PoolView, SessionId};
use std::io::IoSlice;
use std::rc::Rc;
use std::time::Duration;
use store::engine::device::drive;
use store::engine::{Config, Store};
use store::testing::compare::{TAG, wait};
use store::testing::disk::SimDisk;
use store::{Cid, ObjectStore, Oid};
use wire::msg::{MOsdOp, MOsdOpReply, MPgPeer, OpCode, OsdOp, msg_flags};
use wire::types::ObjectLocator;
use wire::{Features, Message, WireMessage};

const POOL: i64 = 3;
const PG: PgId = PgId { pool: PoolId(POOL), seed: 0 };
const LEN: usize = 4 << 20;
/// Most bytes that records, pages and messages without the data take.
const LITTLE: u64 = 256 << 10;

/// The message as its receiver gets it, and the bytes that its sender and its receiver summed.
fn carried(m: &Message) -> (Message, u64, u64) {
    let start = counted::bytes();
    let mut tx = Tx::new(BufPool::default());
    tx.take_log();
    tx.message(&header2(&m.header, 1, 0), m).unwrap();
    let sent = counted::bytes();
    let mut s = [IoSlice::new(&[]); 64];
    let n = tx.slices(&mut s);
    let mut bytes = s[..n].iter().flat_map(|x| x.to_vec()).collect::<Bytes>();
    let mut rx = Rx::new(BufPool::default(), FrameLimits::default());
    rx.take_log();
    rx.set_phase(Phase::Open);
    loop {
        if let Some(f) = rx.poll_frame().unwrap() {
            let [_, front, middle, data] = f.segments;
            let got = Message { header: m.header, front, middle, data, sums: f.sums, ..Message::default() };
            return (got, sent - start, counted::bytes() - sent);
        }
        if let Some(t) = rx.target() {
            let n = t.len().min(bytes.len());
            t[..n].copy_from_slice(&bytes.split_to(n));
            rx.received(n);
        } else {
            rx.feed(bytes.split_to(bytes.len().min(1000)));
        }
    }
}

struct Osd {
    me: OsdId,
    dev: SimDisk,
    store: Store,
    pg: Option<Pg>,
    out: Vec<Effect>,
    /// Bytes summed in the PG, in the store and for frames that the OSD sends, and by the receiver of frames.
    inside: u64,
    received: u64,
}

struct World {
    osds: Vec<Osd>,
    now: Now,
    replies: Vec<MOsdOpReply>,
}

fn view() -> MapView {
    let all = vec![OsdId(0), OsdId(1)];
    let pool = PoolView {
        id: PoolId(POOL),
        kind: PoolKind::Replicated,
        size: 2,
        min_size: 2,
        pg_num: 1,
        pg_num_pending: 1,
        ..PoolView::default()
    };
    MapView {
        epoch: Epoch(10),
        flags: 0,
        pool: Some(Rc::new(pool)),
        mapping: Mapping { up: all.clone(), up_primary: OsdId(0), acting: all, acting_primary: OsdId(0) },
        up_thru: Epoch(10),
        up_from: Epoch(5),
        since: Epoch(0),
        osds: Rc::new(AllUp),
        blocklist: Rc::new(NoBlocklist),
    }
}

fn config(n: i32) -> PgConfig {
    PgConfig { spg: PG.into(), whoami: OsdId(n), index: 1, seed: 7 }
}

impl World {
    fn new() -> Self {
        let now = Now { mono: Mono(0) + Duration::from_secs(1000), wall: Utime { sec: 1_700_000_000, nsec: 0 } };
        let osds = (0..2).map(|n| {
            let (dev, store) = store::testing::fresh(256 << 20, n + 1, &Config::default());
            Osd { me: OsdId(n as i32), dev, store, pg: None, out: Vec::new(), inside: 0, received: 0 }
        });
        let mut w = Self { osds: osds.collect(), now, replies: Vec::new() };
        let mut how = CreateInfo::default();
        let h = &mut how.extra.history;
        for e in [&mut h.epoch_created, &mut h.same_interval_since, &mut h.same_up_since, &mut h.same_primary_since] {
            *e = Epoch(10);
        }
        let o = &mut w.osds[0];
        let mut pg = Pg::create(config(0), how, now, &mut o.store, &mut o.out);
        // The other OSD lets the primary serve for a while.
        let leases = Rc::new(LeaseView::default());
        let until = now.mono + Duration::from_secs(1000);
        leases.update(LeaseUpdate::Held(OsdId(1), Held { until, epoch: Epoch(10) }));
        pg.use_leases(leases);
        o.pg = Some(pg);
        w.give(0, Event::Map(view()));
        assert!(w.osds[0].pg.as_ref().unwrap().is_active(), "{:?}", w.osds[0].pg.as_ref().unwrap().state());
        w
    }

    /// Hands an event to an OSD's PG, and carries what follows to its end.
    fn give(&mut self, n: usize, e: Event) {
        let (o, start) = (&mut self.osds[n], counted::bytes());
        o.pg.as_mut().unwrap().handle(e, self.now, &mut o.store, &mut o.out);
        loop {
            drive(&mut o.store, &mut o.dev);
            let Some(e) = o.store.poll_event() else { break };
            o.pg.as_mut().unwrap().handle(Event::Store(e), self.now, &mut o.store, &mut o.out);
        }
        o.inside += counted::bytes() - start;
        for e in std::mem::take(&mut o.out) {
            match e {
                Effect::Peer { to, msg, .. } => self.carry(n, to, &msg),
                // The turn ends.
                Effect::Acknowledge => {
                    let Some(Effect::Peer { to, msg, .. }) = self.osds[n].pg.as_mut().unwrap().acknowledge() else {
                        continue;
                    };
                    self.carry(n, to, &msg);
                }
                Effect::Reply(_, r) => self.replies.push(*r),
                _ => {}
            }
        }
    }

    fn carry(&mut self, from: usize, to: OsdId, msg: &MPgPeer) {
        let start = counted::bytes();
        let m = msg.to_message(Features::PACIFIC);
        self.osds[from].inside += counted::bytes() - start;
        let (m, sent, received) = carried(&m);
        self.osds[from].inside += sent;
        let (from, o) = (OsdId(from as i32), &mut self.osds[to.0 as usize]);
        o.received += received;
        let msg = Box::new(MPgPeer::from_message(&m).unwrap());
        if o.pg.is_none() {
            match orphan(o.me, &view(), from, &msg) {
                Orphan::Answer(m) | Orphan::Ask(m) => return self.carry(to.0 as usize, from, &m),
                Orphan::Create(theirs) => {
                    let how = CreateInfo::default();
                    o.pg = Some(Pg::adopt(config(to.0), how, &theirs, self.now, &mut o.store, &mut o.out));
                    self.give(to.0 as usize, Event::Map(view()));
                }
                Orphan::Ignore => return,
            }
        }
        self.give(to.0 as usize, Event::Peer { from, msg });
    }

    /// Writes to object `name` by a client's message.
    fn write(&mut self, tid: u64, name: &str, ops: Vec<OsdOp>) {
        let m = MOsdOp {
            tid,
            pgid: PG.into(),
            osdmap_epoch: Epoch(10),
            flags: msg_flags::WRITE | msg_flags::ONDISK,
            mtime: self.now.wall,
            locator: ObjectLocator::new(PoolId(POOL)),
            oid: Bytes::copy_from_slice(name.as_bytes()),
            ops: ops.into(),
            snapid: SnapId::HEAD,
            ..MOsdOp::default()
        };
        let (m, _, received) = carried(&m.to_message(Features::PACIFIC));
        self.osds[0].received += received;
        let op = OpRequest {
            owner: 0,
            session: SessionId(1),
            client: EntityName::new(EntityKind::CLIENT, 1),
            addr: EntityAddr::default(),
            features: Features::PACIFIC.0,
            received: self.now,
            ledger: base::ledger::Ledger::begin(self.now.mono, self.now.wall, Utime::ZERO),
            msg: Box::new(MOsdOp::from_message(&m).unwrap()),
        };
        self.give(0, Event::Op(Box::new(op)));
        let r = self.replies.pop().expect("no reply");
        assert_eq!((r.tid, r.result), (tid, 0));
    }

    /// Bytes that each OSD has summed inside and as a receiver since the last call.
    fn costs(&mut self) -> Vec<(u64, u64)> {
        self.osds.iter_mut().map(|o| (std::mem::take(&mut o.inside), std::mem::take(&mut o.received))).collect()
    }

    /// The object on each OSD, from its device.
    fn contents(&mut self, name: &str) -> Vec<Bytes> {
        let oid = Oid::new(HObject { oid: name.to_owned().into(), pool: PoolId(POOL), ..HObject::min() }.head());
        let cid = Cid::Pg(PG.into());
        let all = self.osds.iter_mut().map(|o| {
            let r = wait(&mut o.store, &mut |s| drive(s, &mut o.dev), |s| s.read(TAG, cid, &oid, 0, u64::MAX >> 20));
            r.unwrap()
        });
        all.collect()
    }
}

#[test]
fn an_aligned_write_is_summed_once_on_each_osd() {
    let mut w = World::new();
    let mut rng = Rng::new(1);
    let once = LEN as u64..LEN as u64 + LITTLE;
    for (tid, code) in (1..).zip([OpCode::WRITEFULL, OpCode::WRITE]) {
        w.costs();
        let data = Bytes::from(rng.bytes(LEN));
        w.write(tid, "a", vec![OsdOp::with_extent(code, 0, LEN as u64, data.clone())]);
        for (n, (inside, received)) in w.costs().into_iter().enumerate() {
            assert!(inside < LITTLE, "osd.{n} summed {inside} bytes after the receiver");
            assert!(once.contains(&received), "osd.{n} summed {received} bytes as the receiver");
        }
        assert_eq!(w.contents("a"), [data.clone(), data]);
    }
}

/// A member that has to wait for a large write's data goes on with the blocks that it has begun to write.
#[test]
fn a_large_write_is_written_once_on_each_osd() {
    let mut w = World::new();
    let blocks = |w: &World| w.osds.iter().map(|o| o.store.counters().data_blocks).collect::<Vec<_>>();
    let before = blocks(&w);
    let data = Bytes::from(Rng::new(3).bytes(LEN));
    w.write(1, "a", vec![OsdOp::with_extent(OpCode::WRITEFULL, 0, LEN as u64, data)]);
    let written: Vec<u64> = blocks(&w).iter().zip(before).map(|(now, before)| now - before).collect();
    assert_eq!(written, [LEN as u64 / 4096; 2]);
}

#[test]
fn writes_that_do_not_lie_on_blocks_are_right_on_each_osd() {
    let mut w = World::new();
    let mut rng = Rng::new(2);
    let mut model: Vec<u8> = Vec::new();
    let mut tid = 0;
    for (off, len) in [(0, LEN), (5, LEN), (4096, 70_000), (8192, 65_536), (100, 65_536), (4096, LEN + 1), (3, 200)] {
        // Bytes of an attribute before the data shift its blocks in the message; bytes behind it do not.
        for (before, behind) in [(0, 0), (10, 0), (4096, 0), (0, 10)] {
            let attr = |n: usize| OsdOp::with_xattr(OpCode::SETXATTR, b"_k", &vec![7; n - 2], 0, 0);
            let data = Bytes::from(rng.bytes(len));
            let mut ops = vec![OsdOp::with_extent(OpCode::WRITE, off as u64, len as u64, data.clone())];
            if before > 0 {
                ops.insert(0, attr(before));
            }
            if behind > 0 {
                ops.push(attr(behind));
            }
            tid += 1;
            w.write(tid, "b", ops);
            model.resize(model.len().max(off + len), 0);
            model[off..off + len].copy_from_slice(&data);
            for got in w.contents("b") {
                assert!(got == model, "{len} bytes at {off}, {before} bytes before and {behind} behind");
            }
        }
    }
}
