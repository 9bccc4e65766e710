//! Does an OSD that is to lead a PG of which it has no copy hear of the others' copies, also if what it asks is lost?

use base::id::Uuid;
use base::{AddrVec, EntityAddr, Epoch, Mono, Now, OsdId, PgId, PoolId, Utime};
use cluster::crush::CrushMap;
use cluster::pool::flag;
use cluster::{Incremental, OsdMap, PgPool};
use osd::core::maps::MapHistory;
use osd::core::places::Places;
use osd::core::shard::{Output, Shard};
use pg::info::PgInfo;
use pg::peer::Body;
use store::Cid;
use store::mem::MemStore;
use wire::Features;
use wire::msg::{MOsdMap, MPgPeer};

const FSID: Uuid = Uuid([7; 16]);

/// Maps of two OSDs, up, and a pool of one PG, from one to `newest`.
fn maps(newest: u32) -> MapHistory {
    let mut crush = CrushMap::fresh("osd");
    for i in 0..2 {
        let at = [("host", format!("h{i}")), ("root", "default".to_owned())].map(|(a, b)| (a.to_owned(), b)).into();
        crush.insert_item(i, 0x1_0000, &format!("osd.{i}"), &at).unwrap();
    }
    let mut map = OsdMap { fsid: FSID, epoch: Epoch(1), ..OsdMap::default() };
    map.set_max_osd(2).unwrap();
    map.crush = crush.into();
    let (full, _) = map.encode_blob(Features::PACIFIC);
    let mut m =
        MOsdMap { fsid: FSID, newest_map: Epoch(newest), maps: [(Epoch(1), full)].into(), ..MOsdMap::default() };
    while map.epoch < Epoch(newest) {
        let mut inc = Incremental::new(FSID, map.epoch.next(), Utime { sec: map.epoch.0, nsec: 0 });
        if map.epoch == Epoch(1) {
            let addr = |p: u16| AddrVec::from(EntityAddr::msgr2(([127, 0, 0, 1], p).into(), 7));
            for i in 0..2 {
                let port = 10 * (i as u16 + 1);
                inc.new_state.insert(OsdId(i), cluster::osdmap::osd_state::EXISTS);
                inc.new_weight.insert(OsdId(i), 0x1_0000);
                inc.new_up_client.insert(OsdId(i), addr(port));
                inc.new_up_cluster.insert(OsdId(i), addr(port + 1));
            }
            let pool = PgPool {
                kind: cluster::pool::kind::REPLICATED,
                size: 2,
                min_size: 1,
                pg_num: 1,
                pgp_num: 1,
                pg_num_pending: 1,
                flags: flag::HASHPSPOOL,
                object_hash: 2,
                ..PgPool::default()
            };
            inc.new_pools.insert(PoolId(1), pool);
            inc.new_pool_names.insert(PoolId(1), "p".into());
        }
        map = map.apply(&inc).unwrap();
        let (_, crc) = map.encode_blob(Features::PACIFIC);
        m.incremental_maps.insert(map.epoch, inc.encode_blob(Features::PACIFIC, crc));
    }
    let mut h = MapHistory::new(FSID);
    h.absorb(&m).unwrap();
    h
}

/// Messages to other OSDs: to whom, and what.
fn said(shard: &mut Shard) -> Vec<(OsdId, Body)> {
    let mut all = Vec::new();
    while let Some(o) = shard.poll_output() {
        if let Output::Peer { to, msg, .. } = o {
            all.push((to, Body::decode(&msg.body, &msg.data, Cid::Pg(msg.spg)).unwrap()));
        }
    }
    all
}

#[test]
fn what_was_asked_is_asked_again_when_the_session_is_reset() {
    // Found by the simulator (seed 81000806): the question went to a session that the other one had ended.
    let history = maps(5);
    let map = history.current().cloned().unwrap();
    let pg = PgId::new(1, 0);
    let me = map.pg_to_up_acting(pg).acting_primary;
    let other = OsdId(1 - me.0);
    let now = Now { mono: Mono(1_000_000_000), wall: Utime { sec: 100, nsec: 0 } };
    let mut store = MemStore::new();
    let mut shard = Shard::new(me, 1, Places::new(0, Box::new(|_| 0), &[]));
    shard.handle_maps(&[map], history.feed().unwrap(), now, &mut store);

    let notify = |epoch: u32| {
        let b = Body::Notify { info: Box::new(PgInfo::default()), absent: false, grants: Vec::new() };
        let (body, data) = b.encode();
        Box::new(MPgPeer { spg: pg.into(), epoch: Epoch(epoch), body, data })
    };
    let asks = |all: Vec<(OsdId, Body)>| all == [(other, Body::Query)];
    shard.handle_peer(other, notify(4), now, &mut store);
    assert!(asks(said(&mut shard)));
    shard.peer_reset(me, now, &mut store);
    assert!(said(&mut shard).is_empty(), "somebody else's session");
    shard.peer_reset(other, now, &mut store);
    assert!(asks(said(&mut shard)));

    shard.handle_peer(other, notify(5), now, &mut store);
    assert_eq!(shard.pgs().count(), 1);
    said(&mut shard);
    shard.peer_reset(other, now, &mut store);
    assert!(said(&mut shard).is_empty(), "the copy that is being made asks for itself");
}
