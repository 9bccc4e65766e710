//! Tests that a reactor's table of PGs separates present and former PGs of one name, and handles messages for
//! PGs it does not have.
//!
//! One reactor of an OSD with a memory store. Other OSDs exist only as messages.

mod clients;
mod orders;

use base::errno::EPERM;
use base::id::Uuid;
use base::{AddrVec, EntityAddr, Epoch, Mono, Now, OsdId, PgId, PoolId, Utime};
use cluster::crush::CrushMap;
use cluster::pool::flag;
use cluster::{Incremental, OsdMap, PgPool};
use osd::core::control::{PgCreate, Report};
use osd::core::known::KnownMap;
use osd::core::maps::{MapFeed, MapHistory, Source};
use osd::core::pgs::{Output, Pgs};
use osd::core::places::Places;
use osd::core::session::{SessionInfo, session_id};
use osd::core::waiting;
use pg::info::PgInfo;
use pg::peer::Body;
use std::sync::Arc;
use store::mem::MemStore;
use store::{Cid, ObjectStore as _, Op, Tag, Transaction};
use wire::Features;
use wire::msg::osd_op::WatchArgs;
use wire::msg::{MOsdMap, MOsdOp, MPgPeer, OpCode, OsdOp, msg_flags};

const FSID: Uuid = Uuid([7; 16]);
const POOL: PoolId = PoolId(1);

/// A cluster of OSDs that are up, with a pool of a given size, and its maps.
struct Maps {
    now: OsdMap,
    history: MapHistory,
    first: bytes::Bytes,
    steps: std::collections::BTreeMap<Epoch, bytes::Bytes>,
}

impl Maps {
    fn new(osds: i32, size: u8, pg_num: u32) -> Self {
        let mut crush = CrushMap::fresh("osd");
        for i in 0..osds {
            let at = [("host", format!("h{i}")), ("root", "default".to_owned())].map(|(a, b)| (a.to_owned(), b)).into();
            crush.insert_item(i, 0x1_0000, &format!("osd.{i}"), &at).unwrap();
        }
        let mut map = OsdMap { fsid: FSID, epoch: Epoch(1), ..OsdMap::default() };
        map.set_max_osd(osds).unwrap();
        map.crush = crush.into();
        let (full, _) = map.encode_blob(Features::PACIFIC);
        let m =
            MOsdMap { fsid: FSID, newest_map: Epoch(1), maps: [(Epoch(1), full.clone())].into(), ..MOsdMap::default() };
        let mut me = Self { now: map, history: MapHistory::new(FSID), first: full, steps: Default::default() };
        me.history.absorb(&m, Source::Monitor).unwrap();
        me.next(|inc| {
            let addr = |p: u16| AddrVec::from(EntityAddr::msgr2(([127, 0, 0, 1], p).into(), 7));
            for i in 0..osds {
                let port = 10 * (i as u16 + 1);
                inc.new_state.insert(OsdId(i), cluster::osdmap::osd_state::EXISTS);
                inc.new_weight.insert(OsdId(i), 0x1_0000);
                inc.new_up_client.insert(OsdId(i), addr(port));
                inc.new_up_cluster.insert(OsdId(i), addr(port + 1));
            }
            let pool = PgPool {
                kind: cluster::pool::kind::REPLICATED,
                size,
                min_size: 1,
                pg_num,
                pgp_num: 1,
                pg_num_pending: pg_num,
                flags: flag::HASHPSPOOL | flag::CREATING,
                object_hash: 2,
                ..PgPool::default()
            };
            inc.new_pools.insert(POOL, pool);
            inc.new_pool_names.insert(POOL, "p".into());
        });
        me
    }

    /// Commits the next map.
    fn next(&mut self, change: impl FnOnce(&mut Incremental)) -> Arc<OsdMap> {
        let mut inc = Incremental::new(FSID, self.now.epoch.next(), Utime { sec: self.now.epoch.0, nsec: 0 });
        change(&mut inc);
        self.now = self.now.apply(&inc).unwrap();
        let (_, crc) = self.now.encode_blob(Features::PACIFIC);
        let blob = inc.encode_blob(Features::PACIFIC, crc);
        self.steps.insert(self.now.epoch, blob.clone());
        let m = MOsdMap {
            fsid: FSID,
            newest_map: self.now.epoch,
            incremental_maps: [(self.now.epoch, blob)].into(),
            ..MOsdMap::default()
        };
        self.history.absorb(&m, Source::Monitor).unwrap();
        self.history.current().cloned().unwrap()
    }

    fn pg_num(&mut self, n: u32) -> Arc<OsdMap> {
        let mut p = (*self.now.pools[&POOL]).clone();
        (p.pg_num, p.pg_num_pending, p.last_change) = (n, n, self.now.epoch.next());
        self.next(|i| drop(i.new_pools.insert(POOL, p)))
    }

    /// Maps as a start finds them: all incrementals from the first map on.
    fn restored(&self) -> Arc<MapFeed> {
        MapHistory::restore(FSID, &self.first, &self.steps).unwrap().feed().unwrap()
    }

    fn feed(&self) -> Arc<MapFeed> {
        self.history.feed().unwrap()
    }
}

fn at(ms: u64) -> Now {
    Now { mono: Mono((1000 + ms) * 1_000_000), wall: Utime { sec: 100, nsec: 0 } }
}

fn empty(me: OsdId) -> Pgs {
    Pgs::new(me, 1, Places::new(0, Box::new(|_| 0), &[]))
}

/// Messages to other OSDs, with their receivers.
fn said(pgs: &mut Pgs) -> Vec<(OsdId, Body)> {
    let mut all = Vec::new();
    while let Some(o) = pgs.poll_output() {
        if let Output::Peer { to, msg, .. } = o {
            all.push((to, Body::decode(&msg.body, &msg.data, Cid::Pg(msg.spg)).unwrap()));
        }
    }
    all
}

/// Runs the PGs until nothing happens any more.
fn settle(pgs: &mut Pgs, store: &mut MemStore, from: u64) {
    for ms in (from..from + 20_000).step_by(100) {
        store.end_turn();
        while let Some(e) = store.poll_event() {
            pgs.store_event(e, at(ms), store);
        }
        pgs.tick(at(ms), store);
        while pgs.poll_output().is_some() {}
    }
}

fn session_with(conn: u64, name: &str, caps: &str) -> Arc<SessionInfo> {
    let nobody = auth::Principal::nobody(([10, 0, 0, 7], 1).into());
    let name = base::AuthName::parse(name).unwrap();
    let principal = auth::Principal { name, global_id: conn, caps: auth::CapsInfo::from_text(caps), ..nobody };
    Arc::new(SessionInfo {
        id: session_id(0, net::ConnId(conn)),
        reactor: 0,
        conn: net::ConnId(conn),
        entity: principal.entity(0),
        caps: osd::core::session::caps_of(&principal).unwrap(),
        owner: osd::core::session::owner_of(&principal),
        principal,
        addr: EntityAddr::msgr2(([127, 0, 0, 1], 5).into(), 7),
        features: Features::PACIFIC,
    })
}

fn write(tid: u64, pool: i64, epoch: u32, locator: i64) -> Box<MOsdOp> {
    let create = OsdOp { op: OpCode::CREATE, ..OsdOp::default() };
    Box::new(MOsdOp {
        tid,
        pgid: PgId::new(pool, 0).into(),
        osdmap_epoch: Epoch(epoch),
        oid: b"o"[..].into(),
        locator: wire::types::ObjectLocator { pool: PoolId(locator), ..Default::default() },
        flags: msg_flags::WRITE,
        ops: [create].into_iter().collect(),
        ..MOsdOp::default()
    })
}

/// A single OSD with the pools `p` and `q`.
fn alone() -> (Maps, Pgs, MemStore) {
    let mut maps = Maps::new(1, 1, 1);
    let q = (*maps.now.pools[&POOL]).clone();
    let map = maps.next(|i| {
        i.new_pools.insert(PoolId(2), q);
        i.new_pool_names.insert(PoolId(2), "q".into());
    });
    let (mut store, mut pgs) = (MemStore::new(), empty(OsdId(0)));
    pgs.handle_maps(&[map], maps.feed(), at(0), &mut store);
    while pgs.poll_output().is_some() {}
    (maps, pgs, store)
}

/// Results of answered operations, closed sessions, and whether a map was requested.
fn answers(pgs: &mut Pgs) -> (Vec<i32>, Vec<pg::SessionId>, bool) {
    let (mut results, mut closed, mut map) = (Vec::new(), Vec::new(), false);
    while let Some(o) = pgs.poll_output() {
        match o {
            Output::Reply(_, r) => results.push(r.result),
            Output::Close(s) => closed.push(s),
            Output::Control(Report::WantMap(_)) => map = true,
            _ => {}
        }
    }
    (results, closed, map)
}

#[test]
fn questions_are_repeated_when_the_session_is_reset() {
    // Found by the simulator (seed 81000806): the question went to a session that the peer had ended.
    let mut maps = Maps::new(2, 2, 1);
    for _ in 0..3 {
        maps.next(|_| {});
    }
    let map = Arc::new(maps.now.clone());
    let pg = PgId::new(1, 0);
    let me = map.pg_to_up_acting(pg).acting_primary;
    let other = OsdId(1 - me.0);
    let (now, mut store, mut pgs) = (at(0), MemStore::new(), empty(me));
    pgs.handle_maps(&[map], maps.feed(), now, &mut store);

    let asks = |all: Vec<(OsdId, Body)>| all == [(other, Body::Query)];
    pgs.handle_peer(other, notify(pg, 4, 2), now, &mut store);
    assert!(asks(said(&mut pgs)));
    pgs.peer_reset(me, now, &mut store);
    assert!(said(&mut pgs).is_empty(), "somebody else's session");
    pgs.peer_reset(other, now, &mut store);
    assert!(asks(said(&mut pgs)));

    pgs.handle_peer(other, notify(pg, 5, 2), now, &mut store);
    assert_eq!(pgs.iter().count(), 1);
    said(&mut pgs);
    pgs.peer_reset(other, now, &mut store);
    assert!(said(&mut pgs).is_empty(), "the copy that is being made asks for itself");
}

#[test]
fn a_pg_whose_stored_info_does_not_decode_creates_no_empty_children() {
    let mut maps = Maps::new(1, 1, 1);
    let (mut store, mut one) = (MemStore::new(), empty(OsdId(0)));
    let create = PgCreate { pgid: PgId::new(1, 0).into(), stamp: Default::default(), extra: None };
    one.handle_maps(&[Arc::new(maps.now.clone())], maps.feed(), at(0), &mut store);
    one.create(&[create], at(0), &mut store);
    settle(&mut one, &mut store, 1);
    let (cid, _) = *store.collections().first().unwrap();
    // The PG had seen this map, and its children were merged into it again.
    maps.pg_num(4);
    maps.pg_num(1);
    let mut t = Transaction::new();
    t.push(Op::PgInfo { cid, info: bytes::Bytes::from_static(b"rot") });
    store.submit(Tag(0), t);
    let mut again = empty(OsdId(0));
    again.load(Some(maps.restored()), at(2000), &mut store);
    settle(&mut again, &mut store, 2000);
    // Data of its children that it may hold must not be declared missing.
    assert!(again.iter().all(|p| p.has_failed()), "{:?}", again.iter().map(|p| p.state().clone()).collect::<Vec<_>>());
}

fn notify(pg: PgId, epoch: u32, up_from: u32) -> Box<MPgPeer> {
    let b = Body::Notify { info: Box::new(PgInfo::default()), absent: false, grants: Vec::new() };
    let (body, data) = b.encode();
    Box::new(MPgPeer {
        spg: pg.into(),
        from: base::ShardId::NONE,
        epoch: Epoch(epoch),
        up_from: Epoch(up_from),
        body,
        data,
        sums: None,
    })
}

fn public(osd: OsdId, nonce: u32) -> AddrVec {
    EntityAddr::msgr2(([127, 0, 0, 1], 10 * (osd.0 as u16 + 1)).into(), nonce).into()
}

#[test]
fn a_process_that_no_map_shows_sends_no_peer_messages() {
    let mut maps = Maps::new(2, 2, 1);
    maps.next(|_| {});
    let pg = PgId::new(1, 0);
    let me = maps.now.pg_to_up_acting(pg).acting_primary;
    let other = OsdId(1 - me.0);
    let (now, mut store, mut pgs) = (at(0), MemStore::new(), empty(me));
    // Another process of this OSD is up, or was.
    pgs.set_addrs(public(me, 8));
    let map = Arc::new(maps.now.clone());
    pgs.handle_maps(&[map], maps.feed(), now, &mut store);
    pgs.handle_peer(other, notify(pg, 2, 2), now, &mut store);
    assert!(said(&mut pgs).is_empty());
    let boot = |maps: &mut Maps, nonce| {
        let down = maps.next(|i| _ = i.new_state.insert(me, cluster::osdmap::osd_state::UP));
        let up = maps.next(|i| {
            i.new_up_client.insert(me, public(me, nonce));
            i.new_up_cluster.insert(me, public(me, nonce));
        });
        [down, up]
    };
    let both = boot(&mut maps, 8);
    pgs.handle_maps(&both, maps.feed(), now, &mut store);
    pgs.handle_peer(other, notify(pg, 4, 2), now, &mut store);
    let mut up_from = Vec::new();
    while let Some(o) = pgs.poll_output() {
        up_from.extend(if let Output::Peer { msg, .. } = o { Some(msg.up_from) } else { None });
    }
    assert_eq!(up_from, [Epoch(5)], "asked by the instance that the map shows");
    // Another process took its place unnoticed.
    let both = boot(&mut maps, 9);
    pgs.handle_maps(&both, maps.feed(), now, &mut store);
    pgs.handle_peer(other, notify(pg, 6, 2), now, &mut store);
    assert!(said(&mut pgs).is_empty());
}

#[test]
fn messages_of_an_ended_instance_are_ignored() {
    let mut maps = Maps::new(2, 2, 1);
    let pg = PgId::new(1, 0);
    let me = maps.now.pg_to_up_acting(pg).acting_primary;
    let other = OsdId(1 - me.0);
    let (now, mut store, mut pgs) = (at(0), MemStore::new(), empty(me));
    let up = maps.next(|i| drop(i.new_up_client.insert(other, public(other, 9))));
    assert_eq!(up.info(other).up_from, Epoch(3));
    pgs.handle_maps(&[Arc::new(maps.now.clone())], maps.feed(), now, &mut store);
    for (epoch, up_from) in [(2, 2), (3, 2), (3, 4), (3, 0)] {
        pgs.handle_peer(other, notify(pg, epoch, up_from), now, &mut store);
        assert!(said(&mut pgs).is_empty(), "{up_from} in {epoch}");
        assert_eq!(pgs.iter().count(), 0);
    }
    // A message that waits for a map is checked when the map arrives.
    pgs.handle_peer(other, notify(pg, 4, 3), now, &mut store);
    let down = maps.next(|i| _ = i.new_state.insert(other, cluster::osdmap::osd_state::UP));
    pgs.handle_maps(&[down], maps.feed(), now, &mut store);
    assert_eq!(pgs.iter().count(), 0, "it is down");
}

/// Maps that come together merge a PG into another one, split it off and merge it again. Two PGs of one name
/// leave at the same time.
#[test]
fn two_leaving_pgs_of_one_name_are_kept_apart() {
    // Found by the simulator (seed 82019378): the first PG never heard of its merge, and messages waiting for
    // its name waited forever.
    let mut maps = Maps::new(1, 1, 2);
    let (mut store, mut pgs) = (MemStore::new(), empty(OsdId(0)));
    let map = Arc::new(maps.now.clone());
    let create = |seed| PgCreate { pgid: PgId::new(1, seed).into(), stamp: Default::default(), extra: None };
    pgs.handle_maps(&[map], maps.feed(), at(0), &mut store);
    pgs.create(&[create(0), create(1)], at(0), &mut store);
    settle(&mut pgs, &mut store, 1);
    assert_eq!(pgs.iter().count(), 2);

    // The merge is not announced, so neither copy is known to be complete, and the second one's data is moved,
    // not taken over.
    let all = [1, 2, 1].map(|n| maps.pg_num(n));
    pgs.handle_maps(&all, maps.feed(), at(2_000), &mut store);
    settle(&mut pgs, &mut store, 2_000);
    let left: Vec<_> = pgs.iter().map(|p| (p.spg().pg.seed, p.state().clone())).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(store.collections(), [(Cid::Pg(PgId::new(1, 0).into()), 0)]);
}

#[test]
fn maps_reach_pgs_in_parts_and_later_inputs_wait() {
    let mut maps = Maps::new(1, 1, 4);
    let (mut store, mut pgs) = (MemStore::new(), empty(OsdId(0)));
    let create = |seed| PgCreate { pgid: PgId::new(1, seed).into(), stamp: Default::default(), extra: None };
    pgs.handle_maps(&[Arc::new(maps.now.clone())], maps.feed(), at(0), &mut store);
    pgs.create(&[0, 1, 2].map(create), at(0), &mut store);
    settle(&mut pgs, &mut store, 1);
    pgs.set_walk_step(1);

    let before = pgs.epoch();
    let split = maps.pg_num(8);
    pgs.handle_maps(&[split], maps.feed(), at(20_002), &mut store);
    let later = maps.next(|_| {});
    pgs.handle_maps(&[later], maps.feed(), at(20_002), &mut store);
    pgs.create(&[create(3)], at(20_002), &mut store);
    pgs.stop(at(20_002), &mut store);
    let mut turns = 1;
    while pgs.is_walking() {
        let all = (pgs.iter().count(), pgs.epoch());
        assert!(turns >= 3 || all == (3 + turns, before), "turn {turns}: {all:?}");
        assert!(pgs.pg(PgId::new(1, 3)).is_none(), "made behind the maps");
        pgs.walk_on(at(20_003), &mut store);
        turns += 1;
    }
    // Three PGs with their children; all six in the turn of the third, and in five more turns.
    assert_eq!((turns, pgs.epoch()), (8, maps.now.epoch));
    let mut stopped = false;
    for ms in (20_004..40_000).step_by(100) {
        store.end_turn();
        while let Some(e) = store.poll_event() {
            pgs.store_event(e, at(ms), &mut store);
        }
        pgs.tick(at(ms), &mut store);
        while let Some(o) = pgs.poll_output() {
            stopped |= matches!(o, Output::Stopped);
        }
    }
    assert!(stopped, "the stop came last");
}

#[test]
fn a_closed_session_is_reported_to_the_pgs_that_know_it() {
    let (maps, mut pgs, mut store) = alone();
    let create = PgCreate { pgid: PgId::new(1, 0).into(), stamp: Default::default(), extra: None };
    pgs.create(&[create], at(0), &mut store);
    settle(&mut pgs, &mut store, 1);
    let [a, b] = [1, 2].map(|n| session_with(n, "client.a", "allow *"));
    let mut watch = OsdOp::new(OpCode::WATCH);
    watch.set_watch(WatchArgs { cookie: 5, op: WatchArgs::WATCH, timeout: 30, ..WatchArgs::default() });
    let mut m = write(1, 1, maps.now.epoch.0, 1);
    m.ops = [OsdOp { op: OpCode::CREATE, ..OsdOp::default() }, watch].into_iter().collect();
    pgs.op(&a, m, at(30_000), &mut store);
    settle(&mut pgs, &mut store, 30_000);
    let pg = pgs.iter().next().unwrap();
    assert!(pg.knows_session(a.id) && !pg.knows_session(b.id));
    pgs.session_closed(b.id, at(60_000), &mut store);
    assert!(pgs.iter().next().unwrap().knows_session(a.id));
    pgs.session_closed(a.id, at(60_000), &mut store);
    assert!(!pgs.iter().next().unwrap().knows_session(a.id));
}
