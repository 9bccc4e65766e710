//! Is no write lost or applied twice when PGs are merged: by reference, by copying, after a crash on the way? And is
//! a copy that missed a write not taken for a complete one?

mod common;

use base::{Epoch, Eversion, OsdId, PgId, SnapId, SpgId};
use bytes::Bytes;
use common::*;
use pg::info::PgInfo;
use pg::{CreateInfo, Effect, Event, MergeMeta, OpRequest, Pg, PgConfig, PoolView, State, answer_for_none};
use std::collections::{BTreeMap, VecDeque};
use store::mem::MemStore;
use store::{Cid, ObjectStore, Op, Tag};
use wire::msg::{MOsdOpReply, OpCode, OsdOp};

/// All PGs of a pool on one OSD, with a single copy.
struct Host {
    store: MemStore,
    pgs: BTreeMap<u32, Pg>,
    /// PGs that are being removed, by seed.
    leaving: BTreeMap<u32, Pg>,
    pool: PoolView,
    epoch: u32,
    index: u32,
    /// A world that makes requests.
    maker: World,
    replies: Vec<MOsdOpReply>,
    ready: BTreeMap<u32, Eversion>,
    merge_msgs: VecDeque<(SpgId, SpgId, pg::MergeMsg)>,
    ms: u64,
    /// Messages among PGs that are still delivered.
    carried: usize,
    /// Store events that are still delivered.
    steps: usize,
    /// The first object that is copied is unreadable.
    spoil: bool,
}

fn spg(seed: u32) -> SpgId {
    PgId::new(POOL, seed).into()
}

impl Host {
    fn new(pg_num: u32, store: MemStore) -> Self {
        let pool = PoolView { pg_num, pg_num_pending: pg_num, ..pool_view() };
        let mut h = Self {
            store,
            pgs: BTreeMap::new(),
            leaving: BTreeMap::new(),
            pool,
            epoch: 10,
            index: 0,
            maker: World::new(),
            replies: Vec::new(),
            ready: BTreeMap::new(),
            merge_msgs: VecDeque::new(),
            ms: 5,
            carried: usize::MAX,
            steps: usize::MAX,
            spoil: false,
        };
        for seed in 0..pg_num {
            let bits = cluster::PgPool { pg_num, ..cluster::PgPool::default() }.pg_bits(seed);
            let mut how = CreateInfo { bits, ..CreateInfo::default() };
            let hist = &mut how.extra.history;
            for e in [
                &mut hist.epoch_created,
                &mut hist.same_interval_since,
                &mut hist.same_up_since,
                &mut hist.same_primary_since,
            ] {
                *e = Epoch(10);
            }
            let cfg = h.config(seed);
            let mut fx = Vec::new();
            let mut pg = Pg::create(cfg, how, now_at(0), &mut h.store, &mut fx);
            pg.set_coming_pg_num(pg_num);
            h.pgs.insert(seed, pg);
            h.effects(seed, fx);
        }
        h.map();
        h
    }

    fn config(&mut self, seed: u32) -> PgConfig {
        self.index += 1;
        PgConfig { spg: spg(seed), whoami: OsdId(0), index: self.index, seed: 7 }
    }

    fn effects(&mut self, seed: u32, fx: Vec<Effect>) {
        for e in fx {
            match e {
                Effect::Reply(_, r) => self.replies.push(*r),
                Effect::Merge { to, msg } => self.merge_msgs.push_back((spg(seed), to, msg)),
                Effect::ReadyToMerge { version, .. } => drop(self.ready.insert(seed, version)),
                Effect::Deleted => drop(self.leaving.remove(&seed)),
                Effect::Failed(e) => panic!("{seed} failed: {e}"),
                Effect::Split(parts) => {
                    for (child, what) in parts {
                        let (Some(p), Some(c)) = (self.pgs.get_mut(&child.pg.seed), what) else { continue };
                        let mut fx = Vec::new();
                        p.born(*c, now_at(self.ms), &mut self.store, &mut fx);
                        self.effects(child.pg.seed, fx);
                    }
                }
                _ => {}
            }
        }
    }

    fn machine(&mut self, seed: u32) -> Option<&mut Pg> {
        match self.pgs.get_mut(&seed) {
            Some(p) => Some(p),
            None => self.leaving.get_mut(&seed),
        }
    }

    fn feed(&mut self, seed: u32, e: Event) {
        let mut fx = Vec::new();
        let (pgs, leaving) = (&mut self.pgs, &mut self.leaving);
        let Some(p) = pgs.get_mut(&seed).or_else(|| leaving.get_mut(&seed)) else { return };
        self.ms += 1;
        p.handle(e, now_at(self.ms), &mut self.store, &mut fx);
        self.effects(seed, fx);
    }

    /// Runs until nothing is left to do or the limits are reached.
    fn settle(&mut self) {
        loop {
            self.store.end_turn();
            if self.steps == 0 {
                return;
            }
            if let Some(e) = self.store.poll_event() {
                self.steps -= 1;
                let Some(t) = e.tag() else { continue };
                let i = Pg::index_of(t);
                let all = self.pgs.iter().chain(&self.leaving);
                let found = all.into_iter().find(|(_, p)| p.owns(Tag(u64::from(i) << 40))).map(|(s, _)| *s);
                if let Some(seed) = found {
                    self.feed(seed, Event::Store(e));
                }
            } else if self.carried > 0
                && let Some((from, to, mut msg)) = self.merge_msgs.pop_front()
            {
                self.carried -= 1;
                if let pg::MergeMsg::Objects { ops, damaged, .. } = &mut msg
                    && let Some(Op::Touch { oid, .. }) = ops.first().filter(|_| std::mem::take(&mut self.spoil))
                {
                    damaged.push(oid.hobj.head());
                }
                if self.machine(to.pg.seed).is_some() {
                    self.feed(to.pg.seed, Event::Merge { from, msg: Box::new(msg) });
                } else if let Some(Effect::Merge { to: back, msg }) = answer_for_none(from, &msg) {
                    self.merge_msgs.push_back((to, back, msg));
                }
            } else {
                // A removal pauses now and then.
                let going = self.leaving.iter().find(|(_, p)| p.is_deleting()).map(|(s, _)| *s);
                let Some(seed) = going.filter(|_| self.carried > 0) else { return };
                self.ms += 1000;
                self.feed(seed, Event::Tick);
            }
        }
    }

    /// Hands the map of the present pool to all PGs, the last first: the order must not matter.
    fn map(&mut self) {
        self.epoch += 1;
        self.same_map();
        self.settle();
    }

    fn same_map(&mut self) {
        let view = map_view(self.epoch, &self.pool);
        let seeds: Vec<u32> = self.pgs.keys().rev().copied().collect();
        for seed in seeds {
            let mut children = Vec::new();
            if let Some(p) = self.pgs.get_mut(&seed) {
                p.merges_at(view.epoch, self.pool.pg_num);
                children = p.splits_at(self.pool.pg_num);
            }
            for (child, bits) in children {
                let cfg = self.config(child.pg.seed);
                let mut p = Pg::promise(cfg, bits);
                p.set_coming_pg_num(self.pool.pg_num);
                self.pgs.insert(child.pg.seed, p);
                self.feed(child.pg.seed, Event::Map(view.clone()));
            }
            if seed >= self.pool.pg_num
                && let Some(p) = self.pgs.remove(&seed)
            {
                self.leaving.insert(seed, p);
            }
            self.feed(seed, Event::Map(view.clone()));
        }
    }

    /// Restarts all machines from the store.
    fn restart(&mut self) {
        while self.store.poll_event().is_some() {}
        self.pgs.clear();
        self.leaving.clear();
        self.merge_msgs.clear();
        for (cid, bits) in self.store.collections() {
            let Cid::Pg(s) = cid else { continue };
            if pg::is_intake(s.shard) {
                continue;
            }
            let cfg = self.config(s.pg.seed);
            let mut fx = Vec::new();
            let blob = loop {
                match self.store.pg_info(Tag(0), cid) {
                    Ok(b) => break b.unwrap(),
                    Err(_) => drop(self.store.poll_event()),
                }
            };
            let info = PgInfo::from_blob(&blob).unwrap();
            let mut pg = Pg::load(cfg, bits, now_at(5), &mut self.store, &mut fx);
            pg.set_coming_pg_num(info.interval.pg_num);
            self.pgs.insert(s.pg.seed, pg);
            self.effects(s.pg.seed, fx);
        }
        self.same_map();
        self.settle();
    }

    fn seed_of(&self, name: &str) -> u32 {
        let n = self.pool.pg_num;
        cluster::pool::stable_mod(hash(name), n, cluster::pool::pg_mask(n))
    }

    fn request(&mut self, name: &str, ops: Vec<OsdOp>) -> OpRequest {
        let mut r = self.maker.request(1, name, ops);
        r.msg.pgid = spg(self.seed_of(name));
        r.msg.osdmap_epoch = Epoch(self.epoch);
        r
    }

    fn send(&mut self, r: OpRequest) -> Option<MOsdOpReply> {
        let (seed, tid) = (r.msg.pgid.pg.seed, r.msg.tid);
        self.feed(seed, Event::Op(Box::new(r)));
        self.settle();
        let at = self.replies.iter().position(|r| r.tid == tid)?;
        Some(self.replies.remove(at))
    }

    fn op(&mut self, name: &str, ops: Vec<OsdOp>) -> MOsdOpReply {
        let r = self.request(name, ops);
        self.send(r).unwrap_or_else(|| panic!("no answer for {name}"))
    }

    fn announce(&mut self, soon: u32) {
        self.pool.pg_num_pending = soon;
        self.ready.clear();
        self.map();
    }

    /// Hands out the map that merges the PG with the highest seed, at the reported versions.
    fn merge(&mut self) {
        let source = self.pool.pg_num - 1;
        let target = cluster::pool::stable_mod(source, source, cluster::pool::pg_mask(source));
        self.pool.pg_num = source;
        self.pool.last_merge =
            MergeMeta { source, source_version: self.ready[&source], target_version: self.ready[&target] };
        self.map();
    }
}

const NAMES: u32 = 40;

/// Objects with clones and omap in all PGs; returns the requests with their replies.
fn fill(h: &mut Host) -> Vec<(OpRequest, MOsdOpReply)> {
    let mut sent = Vec::new();
    for round in 0..2u64 {
        h.maker.set_snaps(round, &[1][..round as usize]);
        for i in 0..NAMES {
            let name = format!("o{i}");
            let data = vec![i as u8 + round as u8 * 100; 9000];
            let r = h.request(&name, vec![write(0, &data), omap_set(&[("k", name.as_bytes())])]);
            let answer = h.send(r.clone()).unwrap();
            assert_eq!(answer.result, 0);
            sent.push((r, answer));
        }
    }
    sent
}

fn check(h: &mut Host, sent: &[(OpRequest, MOsdOpReply)]) {
    for i in 0..NAMES {
        let name = format!("o{i}");
        let r = h.op(&name, vec![read(0, 0), omap_vals("", 9, "")]);
        assert_eq!((r.result, r.ops[0].outdata[..] == vec![i as u8 + 100; 9000][..]), (0, true), "{name}");
        let mut at = h.request(&name, vec![read(0, 0)]);
        at.msg.snapid = SnapId(1);
        let r = h.send(at).unwrap();
        assert!(r.ops[0].outdata[..] == vec![i as u8; 9000][..], "{name} at its snapshot");
    }
    // A resend is not applied again, whichever PG did it.
    for (r, answer) in sent {
        let mut again = r.clone();
        again.msg.osdmap_epoch = Epoch(h.epoch);
        again.msg.pgid = spg(h.seed_of(std::str::from_utf8(&r.msg.oid).unwrap()));
        again.msg.ops = [append(b"twice")].into_iter().collect();
        let a = h.send(again).unwrap();
        assert_eq!((a.result, a.user_version), (answer.result, answer.user_version));
    }
    let listed: Vec<u32> = h.pgs.keys().copied().collect();
    assert_eq!(listed, (0..h.pool.pg_num).collect::<Vec<_>>());
    assert_eq!(h.store.collections().len(), h.pool.pg_num as usize, "{:?}", h.store.collections());
    let objects: i64 = h.pgs.values().map(|p| p.info().stats.num_objects).sum();
    assert_eq!(objects, 2 * i64::from(NAMES), "heads and clones");
}

/// With this many PGs, the last one is in the same shard of the store as its merge target.
const SAME_SHARD: u32 = 33;

fn merged(pg_num: u32, waits: Option<u64>, crash_after: usize) -> Host {
    let store = waits.map_or_else(MemStore::new, |seed| MemStore::new().with_waits(seed));
    let mut h = Host::new(pg_num, store);
    h.pool.flags |= pg::map::pool_flags::SELFMANAGED_SNAPS;
    h.map();
    let sent = fill(&mut h);
    h.announce(pg_num - 1);
    let source = pg_num - 1;
    let target = cluster::pool::stable_mod(source, source, cluster::pool::pg_mask(source));
    assert_eq!(*h.pgs[&source].state(), State::Quiesced);
    assert_eq!(*h.pgs[&target].state(), State::Quiesced);
    assert_eq!(h.ready.keys().copied().collect::<Vec<_>>(), [target, source]);
    // Operations wait during the merge, and none is lost.
    let name = (0..).map(|i| format!("w{i}")).find(|n| h.seed_of(n) == source).unwrap();
    let r = h.request(&name, vec![write_full(b"late")]);
    assert!(h.send(r.clone()).is_none());
    h.carried = crash_after;
    h.merge();
    if crash_after < usize::MAX {
        h.carried = usize::MAX;
        h.restart();
    }
    let left: Vec<_> = h.leaving.iter().map(|(s, p)| (*s, p.state().clone())).collect();
    assert!(left.is_empty(), "crash after {crash_after}: {left:?} {:?}", h.pgs[&target].state());
    check(&mut h, &sent);
    let mut again = r;
    again.msg.pgid = spg(h.seed_of(&name));
    again.msg.osdmap_epoch = Epoch(h.epoch);
    assert_eq!(h.send(again).unwrap().result, 0);
    h.op(&name, vec![OsdOp::new(OpCode::DELETE)]);
    // All data is there after a restart, and the merge is not done again.
    h.restart();
    check(&mut h, &sent);
    h
}

#[test]
fn two_pgs_are_merged_by_reference() {
    merged(SAME_SHARD, None, usize::MAX);
    merged(SAME_SHARD, Some(3), usize::MAX);
}

#[test]
fn pgs_whose_last_intervals_differ_are_merged() {
    let mut h = Host::new(2, MemStore::new());
    h.pool.flags |= pg::map::pool_flags::SELFMANAGED_SNAPS;
    h.map();
    let sent = fill(&mut h);
    h.announce(1);
    // One of them has a further interval.
    h.epoch += 1;
    let wider = PoolView { size: h.pool.size + 1, ..h.pool.clone() };
    h.feed(1, Event::Map(map_view(h.epoch, &wider)));
    h.settle();
    let started = |h: &Host, seed| h.pgs[&seed].info().last_epoch_started;
    assert!(started(&h, 1) > started(&h, 0));
    h.merge();
    check(&mut h, &sent);
}

#[test]
fn two_pgs_are_merged_by_copying() {
    merged(2, None, usize::MAX);
    merged(3, Some(4), usize::MAX);
    let mut h = merged(8, Some(5), usize::MAX);
    // And down to a single PG.
    while h.pool.pg_num > 1 {
        h.announce(h.pool.pg_num - 1);
        h.merge();
    }
    assert_eq!(h.store.collections().len(), 1);
    assert_eq!(h.pgs[&0].info().stats.num_objects, 2 * i64::from(NAMES));
}

#[test]
fn a_merge_interrupted_at_any_step_is_done_again() {
    for pg_num in [2, SAME_SHARD] {
        for step in 0..9 {
            merged(pg_num, None, step);
        }
    }
}

#[test]
fn pgs_of_a_cancelled_merge_serve_again() {
    let mut h = Host::new(4, MemStore::new());
    h.announce(3);
    let name = (0..).map(|i| format!("w{i}")).find(|n| h.seed_of(n) == 3).unwrap();
    let r = h.request(&name, vec![write_full(b"late")]);
    assert!(h.send(r).is_none());
    h.announce(4);
    assert_eq!(h.replies.len(), 1, "what waited is answered");
    assert!(h.pgs.values().all(Pg::is_active));
    // A PG that was ready is not ready for later writes.
    h.announce(3);
    let before = h.ready[&3];
    h.announce(4);
    h.op(&name, vec![append(b"more")]);
    h.announce(3);
    assert!(h.ready[&3] > before);
}

#[test]
fn a_copy_that_missed_a_write_counts_as_empty_after_the_merge() {
    for (pg_num, which) in [(2, 0), (2, 1), (SAME_SHARD, 0), (SAME_SHARD, 32)] {
        let mut h = Host::new(pg_num, MemStore::new());
        fill(&mut h);
        h.announce(pg_num - 1);
        // Other copies have a write that this one lacks.
        h.ready.get_mut(&which).unwrap().version += 1;
        h.merge();
        let p = &h.pgs[&0];
        assert_eq!(p.info().last_update, Eversion::default());
        assert!(!p.info().is_complete());
        assert!(!p.is_active(), "nobody has what is known to be there: {:?}", p.state());
        assert!(h.leaving.is_empty());
    }
}

/// Seed 80022659 of the simulator: the source stopped serving, and the target waited for it for ever.
#[test]
fn an_object_unreadable_at_the_source_is_missing_at_the_target() {
    let mut h = Host::new(2, MemStore::new());
    fill(&mut h);
    h.announce(1);
    h.spoil = true;
    h.merge();
    let lost = |h: &Host| h.pgs[&0].unfound_objects();
    assert_eq!(lost(&h).len(), 1, "nobody else has it");
    assert!(h.pgs[&0].info().is_complete() && h.pgs[&0].is_active() && h.leaving.is_empty());
    let before = lost(&h);
    h.restart();
    assert_eq!(lost(&h), before);
}

#[test]
fn a_source_or_target_without_the_other_on_its_osd_does_not_wait() {
    // This OSD has only the source.
    let mut h = Host::new(2, MemStore::new());
    fill(&mut h);
    h.announce(1);
    h.pgs.remove(&0);
    h.merge();
    assert!(h.leaving.is_empty() && h.pgs.is_empty());
    // This OSD has only the target.
    let mut h = Host::new(2, MemStore::new());
    fill(&mut h);
    h.announce(1);
    h.pgs.remove(&1);
    h.merge();
    assert!(!h.pgs[&0].info().is_complete());
}

/// The stored snapshot index of a PG.
fn index_of(h: &mut Host, seed: u32) -> Vec<Bytes> {
    let own = base::HObject { pool: base::PoolId(POOL), hash: seed, snap: SnapId::HEAD, ..base::HObject::min() };
    loop {
        let got = h.store.omap_range(Tag(1), Cid::Pg(spg(seed)), &own.clone().into(), b"", false, 1 << 20, 1 << 30);
        h.store.release(Tag(1));
        match got {
            Ok(p) => return p.entries.into_iter().map(|e| e.0).collect(),
            Err(store::ReadError::Wait) => drop(h.store.poll_event()),
            Err(e) => panic!("{e:?}"),
        }
    }
}

/// Checks that each key is in the index of the PG that has its clone, and in no other.
fn check_index(h: &mut Host, all: &BTreeMap<Bytes, u32>) {
    let mut found = 0;
    for seed in 0..h.pool.pg_num {
        for k in index_of(h, seed) {
            if let Some(hash) = all.get(&k) {
                let n = h.pool.pg_num;
                let at = cluster::pool::stable_mod(*hash, n, cluster::pool::pg_mask(n));
                assert_eq!(at, seed, "of {n}");
                found += 1;
            }
        }
    }
    assert_eq!(found, all.len(), "keys are lost");
}

/// The only copy has a snapshot index that can't be read: it splits without it, and serves all objects.
#[test]
fn the_only_copy_splits_without_an_unreadable_index() {
    let mut h = Host::new(1, MemStore::new());
    let sent = fill(&mut h);
    let own = base::HObject { pool: base::PoolId(POOL), snap: SnapId::HEAD, ..base::HObject::min() };
    h.store.spoil_omap(Cid::Pg(spg(0)), &own.into());
    (h.pool.pg_num, h.pool.pg_num_pending) = (4, 4);
    h.map();
    assert!(h.pgs.len() == 4 && h.pgs.values().all(Pg::is_active));
    check(&mut h, &sent);
}

/// A snapshot index longer than a transaction is moved with the objects, also if the OSD stops on the way.
#[test]
fn a_long_snapshot_index_is_split_and_merged() {
    for (joins_as, waits, crash_after) in
        [(2, None, usize::MAX), (SAME_SHARD, None, 3), (2, Some(9), usize::MAX), (2, None, 5), (4, None, 12)]
    {
        let mut store = MemStore::new().with_keys_max(2048);
        if let Some(seed) = waits {
            store = store.with_waits(seed);
        }
        let mut h = Host::new(1, store);
        h.pool.flags |= pg::map::pool_flags::SELFMANAGED_SNAPS;
        h.map();
        let sent = fill(&mut h);
        // Many snapshots per clone, as old images have them.
        let mut all = BTreeMap::new();
        for i in 0..9000u32 {
            let hash = i.wrapping_mul(0x9e37_79b9);
            let clone = base::HObject {
                oid: format!("old{i}").into(),
                hash,
                snap: SnapId(7),
                pool: base::PoolId(POOL),
                ..base::HObject::min()
            };
            all.insert(pg::snap_index_key(1000 + u64::from(i % 50), &clone), hash);
        }
        let own = base::HObject { pool: base::PoolId(POOL), snap: SnapId::HEAD, ..base::HObject::min() };
        for part in all.keys().cloned().collect::<Vec<_>>().chunks(1000) {
            let entries = part.iter().map(|k| (k.clone(), Bytes::new())).collect();
            let op = store::Op::OmapSet { cid: Cid::Pg(spg(0)), oid: own.clone().into(), entries };
            h.store.submit(Tag(2), store::Transaction { ops: vec![op] });
        }
        h.settle();
        check_index(&mut h, &all);
        h.pool.pg_num = joins_as;
        h.pool.pg_num_pending = joins_as;
        h.steps = crash_after;
        h.map();
        if h.steps == 0 {
            h.steps = usize::MAX;
            h.restart();
        }
        h.steps = usize::MAX;
        assert!(h.pgs.values().all(Pg::is_active));
        check_index(&mut h, &all);
        h.restart();
        check(&mut h, &sent);
        check_index(&mut h, &all);
        for soon in (1..joins_as).rev() {
            h.announce(soon);
            h.steps = if soon == 1 { crash_after } else { usize::MAX };
            h.merge();
            if h.steps == 0 {
                h.steps = usize::MAX;
                h.restart();
            }
            h.steps = usize::MAX;
        }
        check_index(&mut h, &all);
        h.restart();
        check(&mut h, &sent);
    }
}

#[test]
fn a_merge_without_space_waits_for_space() {
    let mut h = Host::new(2, MemStore::new());
    h.pool.flags |= pg::map::pool_flags::SELFMANAGED_SNAPS;
    h.map();
    let sent = fill(&mut h);
    let serves = |h: &Host| h.pgs.values().filter(|p| p.is_active()).count();
    let later = |h: &mut Host| {
        for _ in 0..3 {
            h.ms += 3000;
            for seed in 0..4 {
                h.feed(seed, Event::Tick);
            }
            h.settle();
        }
    };
    h.store.set_room(0);
    (h.pool.pg_num, h.pool.pg_num_pending) = (4, 4);
    h.map();
    later(&mut h);
    assert_eq!(serves(&h), 0, "a split");
    h.store.set_room(usize::MAX);
    later(&mut h);
    assert_eq!(serves(&h), 4);
    h.announce(3);
    h.store.set_room(0);
    h.merge();
    later(&mut h);
    assert!(!h.pgs[&1].is_active(), "a merge");
    h.store.set_room(usize::MAX);
    later(&mut h);
    assert_eq!(serves(&h), 3);
    check(&mut h, &sent);
}

/// Seed 863916204 of the simulator: parts of the source's objects did not fit on the target's device as a whole. The
/// merge waited for ever, although there was space for each object.
#[test]
fn a_part_without_space_as_a_whole_is_stored_in_pieces() {
    for waits in [None, Some(6)] {
        let store = waits.map_or_else(MemStore::new, |seed| MemStore::new().with_waits(seed));
        let mut h = Host::new(2, store);
        h.pool.flags |= pg::map::pool_flags::SELFMANAGED_SNAPS;
        h.map();
        let sent = fill(&mut h);
        h.announce(1);
        h.store.set_room(8);
        h.merge();
        assert!(h.pgs[&0].is_active() && h.leaving.is_empty(), "{:?}", h.pgs[&0].state());
        check(&mut h, &sent);
        h.restart();
        check(&mut h, &sent);
    }
}

/// Seed 600708 of the simulator: the records of the PG with lower versions became the older ones of the merged log,
/// and the next write trimmed them. A resend was then applied twice, over the writes of other clients.
#[test]
fn resends_of_the_last_writes_of_both_pgs_are_recognised_after_a_merge() {
    const KEPT: usize = 30;
    let keep = |h: &mut Host| h.pgs.values_mut().for_each(|p| p.keep_log(KEPT, 1));
    for restarts in [false, true] {
        let mut h = Host::new(4, MemStore::new());
        keep(&mut h);
        // The PGs wrote different amounts, one after the other.
        let mut sent: Vec<Vec<(OpRequest, u64)>> = Vec::new();
        for seed in 0..4 {
            let name = (0..).map(|i| format!("o{i}")).find(|n| h.seed_of(n) == seed).unwrap();
            let mut of = Vec::new();
            for _ in 0..40 + 50 * ((seed + 2) % 4) {
                let r = h.request(&name, vec![append(b"once")]);
                let answer = h.send(r.clone()).unwrap();
                assert_eq!(answer.result, 0);
                of.push((r, answer.user_version));
            }
            sent.push(of);
        }
        while h.pool.pg_num > 1 {
            h.announce(h.pool.pg_num - 1);
            h.merge();
        }
        keep(&mut h);
        for since in 1..=KEPT {
            assert_eq!(h.op("other", vec![append(b"x")]).result, 0);
            if restarts {
                h.restart();
                keep(&mut h);
            }
            for (r, version) in sent.iter().flat_map(|of| &of[of.len() - (KEPT - since)..]) {
                let mut again = r.clone();
                (again.msg.pgid, again.msg.osdmap_epoch) = (spg(0), Epoch(h.epoch));
                let a = h.send(again).unwrap();
                assert_eq!((a.result, a.user_version), (0, *version), "after {since} others, restarts {restarts}");
            }
        }
        // The merged log does not stay long for ever.
        let log = |h: &Host| h.pgs[&0].info().last_update.version - h.pgs[&0].info().log_tail.version;
        for _ in 0..4 * KEPT {
            h.op("other", vec![append(b"x")]);
        }
        assert!(log(&h) <= KEPT as u64 + 4, "{}", log(&h));
    }
}
