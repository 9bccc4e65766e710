//! Does a pool keep few records of purged snapshots, however many it had?
//!
//! `MON_SNAP_PAIRS` sets the number of snapshots made and removed (a million takes minutes).

mod support;

use base::{Epoch, PgId, PoolId, SnapId};
use bytes::Bytes;
use cluster::IntervalSet;
use mon::core::Event;
use mon::state::Role;
use mon::state::records::{key, value};
use serde_json::json;
use state::{Op, Outcome, Range, Txn};
use support::*;
use wire::msg::*;
use wire::types::PgStat;
use wire::{Features, WireMessage};

struct Pool {
    c: Cluster,
    admin: u64,
    osd: u64,
    mgr: u64,
    id: PoolId,
    reports: u64,
}

impl Pool {
    fn new() -> Self {
        let (mut c, admin, osds) = Cluster::with_osds(1);
        c.unchecked = true;
        c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 1, "pgp_num": 1 }));
        let id = c.map().pool_by_name("p").unwrap();
        let pgid = PgId { pool: id, seed: 0 };
        c.send(osds[0], &MOsdPgCreated { paxos: wire::types::PaxosHeader::default(), pgid });
        let mgr = c.osd_session(0, osd_addr(0), Role::Mgr);
        Self { c, admin, osd: osds[0], mgr, id, reports: 0 }
    }

    fn op(&mut self, op: u32, snap: u64) {
        let m = MPoolOp { fsid: FSID, pool: self.id.0 as u32, op, snapid: SnapId(snap), ..MPoolOp::default() };
        let m = m.to_message(Features::PACIFIC);
        self.c.core.handle(Event::Message(self.admin, m), self.c.now);
    }

    fn snap_seq(&self) -> u64 {
        self.c.map().pool(self.id).unwrap().snap_seq.0
    }

    /// Makes `n` snapshots and removes each before the next one is made, in commits of 50.
    fn pairs(&mut self, n: u64) {
        for done in (0..n).step_by(50) {
            self.pairs_at_once(50.min(n - done));
        }
    }

    fn pairs_at_once(&mut self, n: u64) {
        let mut seq = self.snap_seq().max(1);
        for _ in 0..n {
            self.op(pool_op::CREATE_UNMANAGED_SNAP, 0);
            self.op(pool_op::DELETE_UNMANAGED_SNAP, seq + 1);
            seq += 2;
        }
        self.c.pump();
        let replies = self.c.take::<MPoolOpReply>(self.admin);
        assert_eq!(replies.len() as u64, 2 * n);
        assert!(replies.iter().all(|r| r.reply_code == 0));
    }

    /// Reports that the PG purged what is queued, and lets a second pass.
    fn purge(&mut self) {
        let queue = self.c.map().removed_snaps_queue.get(&self.id).map_or_else(Vec::new, |q| q.iter().collect());
        self.reports += 1;
        let epoch = self.c.map().epoch;
        let stat =
            PgStat { purged_snaps: queue, reported_seq: self.reports, last_epoch_clean: epoch, ..PgStat::default() };
        let pg_stat = [(PgId { pool: self.id, seed: 0 }, stat)].into();
        self.c.send(self.mgr, &MPgStats { fsid: FSID, pg_stat, ..MPgStats::default() });
        self.c.ticks(1);
        self.c.out.clear();
        assert!(self.c.map().removed_snaps_queue.is_empty(), "the queue is purged");
    }

    fn ranges(&self) -> usize {
        self.c.core.state().osds.purged_snaps.get(&self.id).map_or(0, IntervalSet::num_intervals)
    }

    /// Keys and lengths of the records of purged snapshots.
    fn records(&mut self) -> Vec<(Bytes, usize)> {
        match ask(&mut self.c.store, Op::all(Range::prefix(key::PURGED_POOL.as_bytes()))) {
            Outcome::Entries { entries, .. } => entries.into_iter().map(|(k, e)| (k, e.value.len())).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// Replaces the records by the one that an earlier build wrote: without the ids that removals took.
    fn as_an_earlier_build(&mut self) {
        let mut old = IntervalSet::new();
        (2..=self.snap_seq()).step_by(2).for_each(|s| old.insert(s, 1));
        let mut t = Txn::default();
        t.then.push(state::Write::DeleteRange(Range::prefix(&key::purged_blocks(self.id))));
        t.put(key::purged_pool(self.id), value(&old));
        assert_eq!(ask(&mut self.c.store, Op::Txn(t)), Outcome::Committed);
    }

    fn restart(&mut self) {
        self.c.restart();
        self.admin = self.c.admin();
        self.mgr = self.c.osd_session(0, osd_addr(0), Role::Mgr);
    }
}

#[test]
fn snapshots_made_and_removed_leave_one_range_and_cost_the_same_each() {
    const BATCH: u64 = 50;
    let pairs = std::env::var("MON_SNAP_PAIRS").ok().and_then(|n| n.parse().ok()).unwrap_or(500u64);
    let mut p = Pool::new();
    let mut costs = Vec::new();
    for _ in 0..pairs / BATCH {
        p.c.written = (0, 0);
        p.pairs(BATCH);
        p.purge();
        costs.push(p.c.written);
        assert_eq!(p.ranges(), 1, "after {} pairs", costs.len() as u64 * BATCH);
    }
    let bytes = |c: &[(usize, usize)]| c.iter().map(|c| c.1).sum::<usize>() / c.len();
    let (first, last) = (bytes(&costs[1..5]), bytes(&costs[costs.len() - 4..]));
    assert!(last <= first * 3 / 2, "{first} bytes for {BATCH} pairs at first, {last} at last");
    assert!(costs.iter().all(|c| c.0 <= 16), "writes: {costs:?}");
    assert_eq!(p.records().len(), 1);
    // What is removed stays removed, also the ids that removals took, and in a new process.
    let (seq, epoch) = (p.snap_seq(), p.c.map().epoch);
    let before = p.c.core.state().osds.purged_snaps.clone();
    p.restart();
    assert_eq!(p.c.core.state().osds.purged_snaps, before);
    for snap in [2, 3, seq - 1, seq] {
        p.op(pool_op::DELETE_UNMANAGED_SNAP, snap);
    }
    p.c.pump();
    let replies = p.c.take::<MPoolOpReply>(p.admin);
    assert!(replies.len() == 4 && replies.iter().all(|r| r.reply_code == 0));
    assert_eq!(p.c.map().epoch, epoch);
}

#[test]
fn the_state_of_an_earlier_build_loses_its_gaps() {
    let mut p = Pool::new();
    p.pairs(300);
    p.purge();
    p.as_an_earlier_build();
    p.restart();
    assert_eq!((p.ranges(), p.records().len()), (1, 1));
    assert!(p.records()[0].0.starts_with(&key::purged_blocks(p.id)));
    p.pairs(10);
    p.purge();
    p.restart();
    assert_eq!((p.ranges(), p.records().len()), (1, 1));
}

#[test]
fn gaps_that_may_be_snapshots_stay_and_cost_short_records() {
    let mut p = Pool::new();
    p.pairs(1_600);
    p.purge();
    p.op(pool_op::CREATE_UNMANAGED_SNAP, 0);
    p.c.pump();
    let alive = p.snap_seq();
    p.as_an_earlier_build();
    // The record of the earlier build ends with the snapshot that is alive; it is not purged.
    let mut t = Txn::default();
    let mut old = IntervalSet::new();
    (2..alive).step_by(2).for_each(|s| old.insert(s, 1));
    t.put(key::purged_pool(p.id), value(&old));
    assert_eq!(ask(&mut p.c.store, Op::Txn(t)), Outcome::Committed);
    p.restart();
    assert_eq!(p.c.core.state().osds.purged_snaps[&p.id], old);
    let records = p.records();
    assert_eq!(records.len(), 4);
    assert!(records.iter().all(|(k, len)| k.starts_with(&key::purged_blocks(p.id)) && *len <= 8200), "{records:?}");
    p.restart();
    assert_eq!(p.c.core.state().osds.purged_snaps[&p.id], old);
    p.op(pool_op::DELETE_UNMANAGED_SNAP, alive);
    p.c.pump();
    assert!(p.c.map().removed_snaps_queue[&p.id].contains(alive));
    p.purge();
    p.pairs(50);
    p.purge();
    assert_eq!(p.ranges(), old.num_intervals() + 1);
}

#[test]
fn the_records_of_a_removed_pool_go() {
    let mut p = Pool::new();
    p.pairs(100);
    p.purge();
    assert_eq!(p.records().len(), 1);
    p.c.core.change_options(|o| o.pools.allow_delete = true);
    p.pairs(1);
    p.c.ok(
        p.admin,
        &json!({ "prefix": "osd pool rm", "pool": "p", "pool2": "p", "yes_i_really_really_mean_it": true }),
    );
    assert!(p.records().is_empty());
    assert!(p.c.core.state().osds.purged_snaps.is_empty());
    p.restart();
    assert!(p.c.core.state().osds.purged_snaps.is_empty());
}

#[test]
fn purged_snapshots_by_epoch_are_kept_as_long_as_the_maps() {
    let mut p = Pool::new();
    p.c.core.change_options(|o| o.min_osdmap_epochs = 5);
    for _ in 0..100 {
        p.pairs(1);
        p.purge();
        let mut beacon = MOsdBeacon { min_last_epoch_clean: p.c.map().epoch, ..MOsdBeacon::default() };
        beacon.paxos.version = p.c.map().epoch.0.into();
        p.c.send(p.osd, &beacon);
    }
    let h = &p.c.core.state().history;
    assert!(h.oldest.0 + 20 > h.newest.0, "maps are kept from {} to {}", h.oldest, h.newest);
    let n = match ask(&mut p.c.store, Op::all(Range::prefix(key::PURGED_SNAPS.as_bytes()))) {
        Outcome::Entries { entries, .. } => entries.len(),
        other => panic!("{other:?}"),
    };
    assert!(n < 60, "{n} records");
    // An OSD that asks for older ones gets what is purged in all.
    let newest = p.c.map().epoch;
    p.c.send(p.osd, &MMonGetPurgedSnaps { start: Epoch(3), last: newest, ..MMonGetPurgedSnaps::default() });
    let r = p.c.take::<MMonGetPurgedSnapsReply>(p.osd).remove(0);
    assert_eq!(r.last, newest);
    assert_eq!(r.purged_snaps[&Epoch(3)][&p.id], vec![(2, 200)]);
}
