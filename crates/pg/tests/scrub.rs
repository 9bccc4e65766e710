//! Scrubs of one PG on several OSDs: errors found, counted, listed and repaired.

mod cluster;

use base::{HObject, OsdId, PoolId, SnapId};
use bytes::Bytes;
use cluster::{Cluster, POOL, hash, object_name, spg};
use pg::Scrubs;
use pg::scrub::ScrubConfig;
use pg::scrub::report::{object_err, shard_err};
use std::collections::BTreeMap;
use std::rc::Rc;
use store::{Cid, ObjectStore as _, Oid, Op, Tag, Transaction};
use wire::msg::{OpCode, OsdOp};
use wire::types::pg_state;
use wire::{Encode as _, Features};

fn head(n: usize) -> HObject {
    let name = object_name(n);
    HObject {
        oid: Bytes::from(name.clone().into_bytes()),
        key: Bytes::new(),
        nspace: Bytes::new(),
        snap: SnapId::HEAD,
        hash: hash(&name),
        max: false,
        pool: PoolId(POOL),
    }
}

/// Changes the content of an OSD behind the PG's back.
fn change(c: &mut Cluster, osd: i32, ops: Vec<Op>) {
    let disk = &mut c.osds[osd as usize].disk;
    let all = disk.pending();
    disk.sync(all);
    disk.submit(Tag(u64::MAX - 2), Transaction { ops });
    let all = disk.pending();
    disk.sync(all);
}

fn cid() -> Cid {
    Cid::Pg(spg())
}

/// Three copies of some objects, clean and idle.
fn cluster(seed: u64) -> Cluster {
    let mut c = Cluster::new(seed, 3, 3, 2, 5, 6);
    c.run(20_000);
    c.settle();
    c
}

fn state(c: &Cluster) -> u64 {
    c.primary().unwrap().state_bits()
}

#[test]
fn an_unreadable_block_is_found_listed_and_replaced() {
    for osd in 0..3 {
        let mut c = cluster(11 + osd as u64);
        c.osds[osd as usize].disk.spoiled.insert(Oid::new(head(1)));
        c.scrub(false, false);
        assert_eq!(c.primary().unwrap().scrub_errors(), 0, "a shallow scrub does not read data");
        c.scrub(true, false);
        let found = c.found();
        assert_eq!(found.len(), 1, "{found:?}");
        let (h, b) = &found[0];
        assert_eq!((h, b.errors), (&head(1), 0));
        let errors: Vec<(OsdId, u64)> = b.shards.iter().map(|(p, s)| (p.osd, s.errors)).collect();
        let want: Vec<(OsdId, u64)> =
            (0..3).map(|o| (OsdId(o), if o == osd { shard_err::READ_ERROR } else { 0 })).collect();
        assert_eq!(errors, want);
        assert_ne!(state(&c) & pg_state::INCONSISTENT, 0);
        let p = c.primary().unwrap().info();
        assert_eq!((p.stats.num_shallow_scrub_errors, p.stats.num_deep_scrub_errors), (0, 1));
        assert!(c.log.iter().any(|l| l == "3.0 deep-scrub 1 errors"), "{:?}", c.log);
        c.scrub(true, true);
        assert!(c.log.iter().any(|l| l == "3.0 repair 1 errors, 1 fixed"), "{:?}", c.log);
        assert_eq!(state(&c) & (pg_state::INCONSISTENT | pg_state::REPAIR | pg_state::FAILED_REPAIR), 0);
        assert_eq!(c.primary().unwrap().info().stats.num_objects_repaired, 1);
        assert!(c.osds.iter().all(|o| o.disk.spoiled.is_empty()), "the copy was replaced");
        c.check();
        c.final_reads();
    }
}

#[test]
fn errors_survive_a_new_primary_and_a_repair_there_ends_them() {
    let mut c = cluster(3);
    c.osds[2].disk.spoiled.insert(Oid::new(head(0)));
    c.scrub(true, false);
    assert_eq!(c.primary().unwrap().scrub_errors(), 1);
    c.crash(0);
    c.run(60_000);
    assert_eq!(c.primary().unwrap().scrub_errors(), 1, "the new primary knows");
    assert!(c.primary().unwrap().scrub_findings().is_none(), "but not which");
    c.heal();
    c.settle();
    c.scrub(true, true);
    assert_eq!(c.primary().unwrap().scrub_errors(), 0);
    c.check();
    c.final_reads();
}

#[test]
fn differences_are_reported_by_kind_and_the_majority_wins() {
    type Case = (&'static str, fn(&HObject) -> Op, u64, u64, bool);
    let cases: [Case; 5] = [
        (
            "data",
            |h| Op::Write { cid: cid(), oid: Oid::new(h.clone()), off: 0, data: Bytes::from_static(b"#"), sums: None },
            object_err::DATA_DIGEST_MISMATCH,
            0,
            true,
        ),
        ("gone", |h| Op::Remove { cid: cid(), oid: Oid::new(h.clone()) }, 0, shard_err::MISSING, false),
        (
            "size",
            |h| Op::Truncate { cid: cid(), oid: Oid::new(h.clone()), size: 1 << 20 },
            object_err::SIZE_MISMATCH,
            shard_err::OBJ_SIZE_INFO_MISMATCH | shard_err::SIZE_MISMATCH_INFO,
            false,
        ),
        (
            "attribute",
            |h| Op::SetAttrs {
                cid: cid(),
                oid: Oid::new(h.clone()),
                attrs: vec![(Bytes::from_static(b"_odd"), Bytes::from_static(b"1"))],
            },
            object_err::ATTR_NAME_MISMATCH,
            0,
            false,
        ),
        (
            "omap",
            |h| Op::OmapSet {
                cid: cid(),
                oid: Oid::new(h.clone()),
                entries: vec![(Bytes::from_static(b"k"), Bytes::from_static(b"v"))],
            },
            object_err::OMAP_DIGEST_MISMATCH,
            0,
            true,
        ),
    ];
    for osd in [0, 2] {
        for (what, op, errors, shard, deep) in &cases {
            let mut c = cluster(21);
            change(&mut c, osd, vec![op(&head(2))]);
            c.scrub(*deep, false);
            let found = c.found();
            assert_eq!(found.len(), 1, "{what} on osd.{osd}: {found:?}");
            let b = &found[0].1;
            assert_eq!(b.shards[&pg::PeerId::from(OsdId(osd))].errors, *shard, "{what} on osd.{osd}");
            assert_eq!(
                b.errors & !object_err::DATA_DIGEST_MISMATCH,
                errors & !object_err::DATA_DIGEST_MISMATCH,
                "{what}"
            );
            assert!(!b.shards[&pg::PeerId::from(OsdId(osd))].selected, "{what}: two against one");
            c.scrub(true, true);
            assert_eq!(c.primary().unwrap().scrub_errors(), 0, "{what} on osd.{osd}: {:?}", c.log);
            c.check();
            c.final_reads();
        }
    }
}

#[test]
fn an_object_without_a_good_copy_stays_and_is_reported() {
    let mut c = cluster(31);
    for osd in 0..3 {
        c.osds[osd].disk.spoiled.insert(Oid::new(head(0)));
    }
    c.scrub(true, true);
    assert_eq!(c.primary().unwrap().scrub_errors(), 3);
    assert_ne!(state(&c) & pg_state::FAILED_REPAIR, 0);
    assert_ne!(state(&c) & pg_state::INCONSISTENT, 0);
}

#[test]
fn lost_and_extra_clones_are_found() {
    let mut c = Cluster::new(41, 3, 3, 2, 3, 4);
    c.run(5_000);
    c.take_snapshot();
    c.run(8_000);
    c.settle();
    let clone = (0..3)
        .map(|n| Oid::new(head(n).at_snap(SnapId(1))))
        .find(|o| {
            c.contents(0).keys().any(|k| k.contains(&String::from_utf8_lossy(&o.hobj.oid)[..]) && !k.ends_with("head"))
        })
        .expect("a clone");
    for osd in 0..3 {
        change(&mut c, osd, vec![Op::Remove { cid: cid(), oid: clone.clone() }]);
    }
    c.scrub(false, false);
    assert!(c.primary().unwrap().scrub_errors() > 0, "{:?}", c.log);
    assert!(c.log.iter().any(|l| l.contains("missing clone 1")), "{:?}", c.log);
}

#[test]
fn scrubs_under_writes_and_resets_find_nothing_and_end() {
    for seed in 50..56 {
        println!("seed {seed}");
        let mut c = Cluster::new(seed, 4, 3, 2, 6, 9);
        c.run(5_000);
        for round in 0..6 {
            c.reset_session(0, 1 + (round % 2));
            c.scrub(round % 2 == 0, false);
            assert_eq!(c.primary().unwrap().scrub_errors(), 0, "{:#?}", c.log);
        }
        c.heal();
        c.settle();
        c.check();
        c.final_reads();
    }
}

#[test]
fn deep_scrubs_count_omaps_and_name_large_ones() {
    let mut c = cluster(51);
    let limits = ScrubConfig { large_omap_keys: 3, large_omap_bytes: 100, ..ScrubConfig::default() };
    for o in &mut c.osds {
        o.pg.as_mut().unwrap().use_scrubs(Rc::new(Scrubs { config: limits.clone().into(), ..Scrubs::default() }));
    }
    let set = |c: &mut Cluster, object: usize, keys: usize, len: usize| {
        let kv: BTreeMap<Bytes, Bytes> =
            (0..keys).map(|k| (format!("key{k}").into_bytes().into(), vec![b'v'; len].into())).collect();
        let ops = vec![OsdOp::with_indata(OpCode::OMAPSETVALS, kv.to_bytes(Features::PACIFIC))];
        let primary = c.map().mapping().acting_primary.0;
        c.ask(primary, 1, object, 0, ops);
        c.run(2_000);
    };
    let counts = |c: &Cluster, osd: usize| {
        let s = c.osds[osd].pg.as_ref().unwrap().info().stats;
        (s.num_large_omap_objects, s.num_omap_keys, s.num_omap_bytes)
    };
    // Keys do not count as bytes, and an omap at the limit is not large.
    for (object, keys, len) in [(20, 3, 33), (21, 4, 1), (22, 1, 101)] {
        set(&mut c, object, keys, len);
    }
    c.scrub(false, false);
    assert_eq!(counts(&c, 0), (0, 0, 0), "a shallow scrub does not read omaps");
    c.scrub(true, false);
    for osd in 0..3 {
        assert_eq!(counts(&c, osd), (2, 8, 99 + 4 + 101), "osd.{osd}");
    }
    let mut said: Vec<&String> = c.log.iter().filter(|l| l.starts_with("Large omap object found.")).collect();
    said.sort();
    let line = |n: usize, rest: &str| {
        let h = head(n);
        format!("Large omap object found. Object: {h} PG: 3.{:x} (3.0) {rest}", h.hash)
    };
    let mut want = [line(21, "Key count: 4 Size (bytes): 4"), line(22, "Key count: 1 Size (bytes): 101")];
    want.sort();
    assert_eq!(said, want.iter().collect::<Vec<_>>());
    let primary = c.map().mapping().acting_primary.0;
    c.ask(primary, 1, 21, 0, vec![OsdOp::new(OpCode::OMAPCLEAR)]);
    c.run(2_000);
    assert_eq!(counts(&c, 0), (2, 8, 204), "until the next deep scrub");
    c.scrub(false, false);
    assert_eq!(counts(&c, 0), (2, 8, 204));
    c.scrub(true, false);
    assert_eq!(counts(&c, 2), (1, 4, 200));
}
