//! One OSD with a long past, of removed snapshots that stay in the map, intervals and log records: for what a map
//! change, a peering and an idle second cost.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each user takes its part")]

use base::id::Uuid;
use base::{AddrVec, EntityAddr, Epoch, Mono, Now, OsdId, PgId, PoolId, Utime};
use cluster::crush::CrushMap;
use cluster::osdmap::osd_state;
use cluster::pool::flag;
use cluster::{Incremental, OsdMap, PgPool};
use osd::core::control::PgCreate;
use osd::core::maps::{MapHistory, Source};
use osd::core::pgs::Pgs;
use osd::core::places::Places;
use osd::core::session::{SessionInfo, session_id};
use std::sync::Arc;
use store::ObjectStore as _;
use store::mem::MemStore;
use wire::Features;
use wire::msg::{MOsdMap, MOsdOp, OpCode, OsdOp, msg_flags};

const FSID: Uuid = Uuid([7; 16]);
const POOL: PoolId = PoolId(1);
const ME: OsdId = OsdId(0);

/// An OSD with one pool of one copy.
pub struct Osd {
    map: OsdMap,
    history: MapHistory,
    pub pgs: Pgs,
    store: MemStore,
    ms: u64,
    next_snap: u64,
}

impl Osd {
    /// An OSD that leads `pgs` clean PGs, in which `removed` snapshots are purged. The monitor still lists them.
    pub fn new(pgs: u32, removed: u64) -> Self {
        let mut crush = CrushMap::fresh("osd");
        let at = [("host", "h"), ("root", "default")].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
        crush.insert_item(0, 0x1_0000, "osd.0", &at).unwrap();
        let mut map = OsdMap { fsid: FSID, epoch: Epoch(1), ..OsdMap::default() };
        map.set_max_osd(1).unwrap();
        map.crush = crush.into();
        let (full, _) = map.encode_blob(Features::PACIFIC);
        let first = MOsdMap { fsid: FSID, newest_map: Epoch(1), maps: [(Epoch(1), full)].into(), ..MOsdMap::default() };
        let mut history = MapHistory::new(FSID);
        history.absorb(&first, Source::Monitor).unwrap();
        let machine = Pgs::new(ME, 1, Places::all_here());
        let mut osd = Self { map, history, pgs: machine, store: MemStore::new(), ms: 0, next_snap: 2 };
        osd.apply(|inc| {
            let addr = |p: u16| AddrVec::from(EntityAddr::msgr2(([127, 0, 0, 1], p).into(), 7));
            inc.new_state.insert(ME, osd_state::EXISTS);
            inc.new_weight.insert(ME, 0x1_0000);
            inc.new_up_client.insert(ME, addr(10));
            inc.new_up_cluster.insert(ME, addr(11));
            let pool = PgPool {
                kind: cluster::pool::kind::REPLICATED,
                size: 1,
                min_size: 1,
                pg_num: pgs,
                pgp_num: pgs,
                pg_num_pending: pgs,
                flags: flag::HASHPSPOOL | flag::CREATING | flag::SELFMANAGED_SNAPS,
                object_hash: 2,
                ..PgPool::default()
            };
            inc.new_pools.insert(POOL, pool);
            inc.new_pool_names.insert(POOL, "p".into());
        });
        let create = |seed| PgCreate { pgid: PgId { pool: POOL, seed }.into(), stamp: Default::default(), extra: None };
        osd.pgs.create(&(0..pgs).map(create).collect::<Vec<_>>(), osd.now(), &mut osd.store);
        osd.settle();
        osd.up_thru();
        osd.remove_snaps(removed);
        osd.settle();
        osd.check();
        osd
    }

    fn now(&self) -> Now {
        Now { mono: Mono((1000 + self.ms) * 1_000_000), wall: Utime { sec: 100, nsec: 0 } }
    }

    fn apply(&mut self, change: impl FnOnce(&mut Incremental)) {
        let e = self.map.epoch.next();
        let mut inc = Incremental::new(FSID, e, Utime { sec: e.0, nsec: 0 });
        change(&mut inc);
        let blob = inc.encode_blob(Features::PACIFIC, 0);
        let incremental_maps = [(e, blob)].into();
        let m = MOsdMap { fsid: FSID, newest_map: e, incremental_maps, ..MOsdMap::default() };
        let new = self.history.absorb(&m, Source::Monitor).unwrap();
        self.map = (**self.history.current().unwrap()).clone();
        self.pgs.handle_maps(&new.maps, self.history.feed().unwrap(), self.now(), &mut self.store);
        while self.pgs.is_walking() {
            self.pgs.walk_on(self.now(), &mut self.store);
        }
        self.turn();
    }

    /// Lets the OSD do what is due at once.
    fn turn(&mut self) {
        loop {
            self.store.end_turn();
            let mut some = false;
            while let Some(e) = self.store.poll_event() {
                self.pgs.store_event(e, self.now(), &mut self.store);
                some = true;
            }
            while self.pgs.poll_output().is_some() {
                some = true;
            }
            if !some {
                return;
            }
        }
    }

    /// Lets 20 seconds pass.
    fn settle(&mut self) {
        (0..200).for_each(|_| self.tenth());
    }

    fn tenth(&mut self) {
        self.ms += 100;
        self.pgs.tick(self.now(), &mut self.store);
        self.pgs.pace(self.now(), &mut self.store);
        self.turn();
    }

    fn up_thru(&mut self) {
        let e = self.map.epoch;
        self.apply(|inc| _ = inc.new_up_thru.insert(ME, e));
    }

    fn remove_snaps(&mut self, n: u64) {
        let first = self.next_snap;
        self.next_snap += 2 * n;
        let mut p = (*self.map.pools[&POOL]).clone();
        p.snap_seq.0 = self.next_snap;
        self.apply(|inc| {
            let all = inc.new_removed_snaps.entry(POOL).or_default();
            (0..n).for_each(|i| all.insert(first + 2 * i, 1));
            inc.new_pools.insert(POOL, p);
        });
    }

    /// A new map: a snapshot is removed.
    pub fn change_map(&mut self) {
        self.remove_snaps(1);
    }

    /// A new interval of all PGs, until they are clean and have looked through the snapshots.
    pub fn peer(&mut self) {
        self.two_intervals();
        (0..10).for_each(|_| self.tenth());
    }

    /// Two new intervals of all PGs.
    pub fn two_intervals(&mut self) {
        for size in [2, 1] {
            let mut p = (*self.map.pools[&POOL]).clone();
            p.size = size;
            self.apply(|inc| drop(inc.new_pools.insert(POOL, p)));
            self.up_thru();
        }
    }

    /// The most past intervals that a PG remembers, and the most log records that one has.
    pub fn longest(&self) -> (usize, u64) {
        let records = |i: &pg::info::PgInfo| i.last_update.version - i.log_tail.version;
        let infos = || self.pgs.iter().map(pg::Pg::info);
        (infos().map(|i| i.past.len()).max().unwrap_or(0), infos().map(records).max().unwrap_or(0))
    }

    /// Writes to the first PG, which each make a log record.
    pub fn write(&mut self, writes: u64) {
        let nobody = auth::Principal::nobody(([10, 0, 0, 7], 1).into());
        let name = base::AuthName::parse("client.c").unwrap();
        let caps = auth::CapsInfo::from_text("allow rw");
        let principal = auth::Principal { name, global_id: 4, caps, ..nobody };
        let session = Arc::new(SessionInfo {
            id: session_id(0, net::ConnId(1)),
            reactor: 0,
            conn: net::ConnId(1),
            entity: principal.entity(0),
            caps: osd::core::session::caps_of(&principal).unwrap(),
            owner: osd::core::session::owner_of(&principal),
            principal,
            addr: EntityAddr::msgr2(([127, 0, 0, 1], 5).into(), 7),
            features: Features::PACIFIC,
        });
        for tid in 1..=writes {
            let op = OsdOp::with_extent(OpCode::WRITEFULL, 0, 1, b"x".to_vec().into());
            let m = Box::new(MOsdOp {
                tid,
                pgid: PgId::new(POOL.0, 0).into(),
                osdmap_epoch: self.map.epoch,
                oid: b"o"[..].into(),
                locator: wire::types::ObjectLocator { pool: POOL, ..Default::default() },
                flags: msg_flags::WRITE,
                ops: [op].into_iter().collect(),
                ..MOsdOp::default()
            });
            self.pgs.op(&session, m, self.now(), &mut self.store);
            self.turn();
        }
    }

    /// A second without any event, with a report to the manager.
    pub fn idle_second(&mut self) {
        (0..10).for_each(|_| self.tenth());
        drop(self.pgs.stats(false, self.now(), &self.store));
    }

    /// Asserts that all PGs are clean and all listed snapshots are purged.
    pub fn check(&mut self) {
        let listed = self.map.removed_snaps_queue.get(&POOL).map_or(0, |q| q.num_intervals());
        let (stats, _) = self.pgs.stats(true, self.now(), &self.store);
        assert_eq!(stats.pgs.len(), self.map.pools[&POOL].pg_num as usize);
        for st in stats.pgs.values() {
            assert!(st.state() & wire::types::pg_state::CLEAN != 0, "{:x}", st.state());
            assert_eq!((st.snaptrimq_len, st.purged_snaps.len()), (0, listed.min(512)));
        }
    }
}
