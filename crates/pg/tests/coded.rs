//! Does a PG of shards keep every acknowledged write, serve only what is newest, and end with shards any `k` of which give the same?
//!
//! `PG_SEED=n` runs one seed, `PG_SEEDS=n` that many, `PG_TRACE=1` prints what happens.

mod cluster;

use base::{HObject, SnapId};
use bytes::Bytes;
use cluster::Cluster;
use cluster::map::CHUNK;
use ec::{Codec, Layout, Technique};
use pg::object::{OI_ATTR, ObjectInfo};
use pg::scrub::report::{object_err, shard_err};
use std::collections::BTreeMap;
use store::{Cid, ObjectStore, Oid, Op, ReadError, Tag, Transaction};
use wire::types::pg_state;

type Attrs = Vec<(Bytes, Bytes)>;

/// Everything of a shard: bytes and attributes by object.
fn shard(c: &mut Cluster, n: i32) -> BTreeMap<HObject, (Bytes, Attrs)> {
    let (cid, tag) = (Cid::Pg(c.spg(n)), Tag(u64::MAX - 1));
    let disk = &mut c.osds[n as usize].disk;
    macro_rules! get {
        ($e:expr) => {
            loop {
                match $e {
                    Err(ReadError::Wait) => while disk.poll_event().is_some() {},
                    r => break r.unwrap(),
                }
            }
        };
    }
    let mut all = BTreeMap::new();
    let mut from = Some(Oid { generation: 0, ..Oid::new(HObject::min()) });
    while let Some(f) = from {
        let (page, next) = get!(disk.list(tag, cid, &f, None, 100));
        for o in page.into_iter().filter(|o| !o.hobj.oid.is_empty()) {
            assert_eq!(o.generation, Oid::NO_GEN, "osd.{n} still has {o:?} set aside");
            let data = get!(disk.read(tag, cid, &o, 0, 1 << 24));
            let size = get!(disk.stat(tag, cid, &o)).size;
            assert_eq!(data.len() as u64, size);
            let attrs = get!(disk.attrs(tag, cid, &o));
            all.insert(o.hobj, (data, attrs));
        }
        from = next;
    }
    disk.release(tag);
    all
}

/// All shards are there, as long as their objects say, with the same attributes, and every `k` of them give the same.
fn check(c: &mut Cluster) {
    assert!(c.violations.is_empty(), "{:#?}", c.violations);
    let (k, m) = c.map().code.unwrap();
    let (k, n) = (usize::from(k), usize::from(k + m));
    let layout = Layout::new(k, n - k, CHUNK).unwrap();
    let codec = Codec::new(Technique::JerasureVandermonde, k, n - k).unwrap();
    let acting: Vec<i32> = c.map().mapping().acting.iter().map(|o| o.0).collect();
    let shards: Vec<_> = acting.iter().map(|o| shard(c, *o)).collect();
    let infos: Vec<_> = acting.iter().map(|o| c.osds[*o as usize].pg.as_ref().unwrap().info()).collect();
    for i in &infos {
        assert_eq!(i.last_update, infos[0].last_update);
        assert_eq!(i.stats.num_objects, infos[0].stats.num_objects);
    }
    let heads = shards[0].keys().filter(|h| h.snap == SnapId::HEAD).count() as i64;
    assert!(heads <= infos[0].stats.num_objects, "{heads} heads, {} objects", infos[0].stats.num_objects);
    for (h, (_, attrs)) in &shards[0] {
        let oi = attrs.iter().find(|(k, _)| k == OI_ATTR).map(|(_, v)| ObjectInfo::from_attr(v).unwrap());
        let size = oi.map_or(0, |o| o.size);
        let len = layout.shard_len(size, 0) as usize;
        let mut padded = Vec::new();
        for (s, all) in shards.iter().enumerate() {
            let (data, theirs) = all.get(h).unwrap_or_else(|| panic!("shard {s} lacks {h}"));
            assert_eq!(theirs, attrs, "{h} on shard {s}");
            assert_eq!(data.len() as u64, layout.shard_len(size, s), "length of {h} on shard {s}, {size} bytes");
            let mut p = data.to_vec();
            p.resize(len, 0);
            padded.push(p);
        }
        let data: Vec<&[u8]> = padded[..k].iter().map(Vec::as_slice).collect();
        let mut coding = vec![vec![0u8; len]; n - k];
        codec.encode(&data, &mut coding.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
        for (i, p) in coding.iter().enumerate() {
            assert!(*p == padded[k + i], "coding shard {} of {h} ({size} bytes) is not that of its data", k + i);
        }
    }
    for s in &shards {
        assert_eq!(s.len(), shards[0].len());
    }
}

fn finish(c: &mut Cluster) {
    c.settle();
    check(c);
    c.scrub(true, false);
    assert_eq!(c.primary().unwrap().scrub_errors(), 0, "{:?} {:?}", c.found(), c.log);
    c.final_reads();
}

/// Changes what an OSD holds behind the PG's back.
fn change(c: &mut Cluster, osd: i32, op: Op) {
    let disk = &mut c.osds[osd as usize].disk;
    for ops in [vec![], vec![op]] {
        disk.submit(Tag(u64::MAX - 2), Transaction { ops });
        let all = disk.pending();
        disk.sync(all);
    }
}

/// A PG at rest, and an object with bytes on every shard: its name, and the length of each.
fn at_rest(seed: u64, shape: (u8, u8)) -> (Cluster, HObject, Vec<u64>) {
    let n = i32::from(shape.0 + shape.1);
    let mut c = Cluster::coded(seed, n as usize, shape, 3, 5);
    c.run(3_000);
    let data: Vec<u8> = (0..150_000u32).map(|i| ((i * 7) ^ (i >> 8)) as u8).collect();
    let op = wire::msg::OsdOp::with_extent(wire::msg::OpCode::WRITEFULL, 0, data.len() as u64, data.into());
    let tid = c.ask(c.map().mapping().acting_primary.0, 1, 10, 0, vec![op]);
    c.run(1_000);
    assert_eq!(c.answers.get(&tid).map(|a| a.result), Some(0));
    c.settle();
    let all: Vec<_> = (0..n).map(|o| shard(&mut c, o)).collect();
    let (name, _) = all[0].iter().max_by_key(|(_, (d, _))| d.len()).unwrap();
    (c, name.clone(), all.iter().map(|s| s[name].0.len() as u64).collect())
}

/// What a deep scrub finds wrong with an object: errors of all, and of each shard.
fn deep_scrub(c: &mut Cluster, name: &HObject) -> (u64, Vec<(i8, u64)>) {
    c.scrub(true, false);
    let found = c.found();
    assert_eq!(found.len(), 1, "{found:?}");
    let (h, b) = &found[0];
    assert_eq!(h, name);
    let wrong = b.shards.iter().filter(|(_, s)| s.errors != 0).map(|(p, s)| (p.shard.0, s.errors)).collect();
    (b.errors, wrong)
}

fn repair(c: &mut Cluster) {
    c.scrub(true, true);
    let p = c.primary().unwrap();
    assert_eq!(p.state_bits() & (pg_state::INCONSISTENT | pg_state::FAILED_REPAIR), 0, "{:?}", c.log);
    assert_eq!(p.info().stats.num_objects_repaired, 1);
    finish(c);
}

#[test]
fn a_scrub_finds_the_shard_whose_bytes_are_not_those_written_and_repair_rebuilds_it() {
    for osd in 0..6 {
        let (mut c, name, len) = at_rest(20 + osd as u64, (4, 2));
        let (cid, oid) = (Cid::Pg(c.spg(osd)), Oid::new(name.clone()));
        // Its checksums are right: it is another version of a block, or one that was meant for elsewhere.
        let off = len[osd as usize] / 2;
        change(&mut c, osd, Op::Write { cid, oid, off, data: Bytes::from_static(b"another") });
        c.scrub(false, false);
        assert_eq!(c.primary().unwrap().scrub_errors(), 0, "a shallow scrub does not read data");
        assert_eq!(deep_scrub(&mut c, &name), (0, vec![(osd as i8, shard_err::EC_HASH_MISMATCH)]));
        let told = format!("3.0 shard {osd}({osd}) soid {name} : candidate does not fit the other shards");
        assert!(c.log.contains(&told), "{:?}", c.log);
        repair(&mut c);
    }
}

#[test]
fn a_scrub_finds_shards_of_another_length_or_that_do_not_read() {
    for osd in 0..5 {
        let (mut c, name, len) = at_rest(30 + osd as u64, (3, 2));
        let (cid, oid) = (Cid::Pg(c.spg(osd)), Oid::new(name.clone()));
        change(&mut c, osd, Op::Truncate { cid, oid: oid.clone(), size: len[osd as usize] - 4096 });
        c.scrub(false, false);
        assert_eq!(c.primary().unwrap().scrub_errors(), 1, "a shallow scrub knows how long it is to be");
        let wrong = deep_scrub(&mut c, &name).1;
        assert!(matches!(wrong[..], [(s, e)] if s == osd as i8 && e & shard_err::OBJ_SIZE_INFO_MISMATCH != 0));
        repair(&mut c);
        // As many as there are coding shards.
        for o in [osd, (osd + 1) % 5] {
            c.osds[o as usize].disk.spoiled.insert(oid.clone());
        }
        let wrong = deep_scrub(&mut c, &name).1;
        assert!(wrong.len() == 2 && wrong.iter().all(|(_, e)| *e == shard_err::READ_ERROR), "{wrong:?}");
        c.scrub(true, true);
        assert!(c.osds.iter().all(|o| o.disk.spoiled.is_empty()), "both were replaced");
        finish(&mut c);
    }
}

/// With one coding shard nobody can tell which shard is wrong: none is replaced.
#[test]
fn shards_that_do_not_fit_and_none_to_blame_stay_inconsistent() {
    let (mut c, name, _) = at_rest(40, (2, 1));
    let (cid, oid) = (Cid::Pg(c.spg(1)), Oid::new(name.clone()));
    change(&mut c, 1, Op::Write { cid, oid, off: 0, data: Bytes::from_static(b"another") });
    assert_eq!(deep_scrub(&mut c, &name), (object_err::DATA_DIGEST_MISMATCH, vec![]));
    c.scrub(true, true);
    let p = c.primary().unwrap();
    assert_ne!(p.state_bits() & pg_state::INCONSISTENT, 0);
    assert_eq!(p.info().stats.num_objects_repaired, 0);
}

#[test]
fn a_fresh_pg_goes_active_and_writes_reach_all_shards() {
    for shape in [(2, 1), (4, 2), (3, 2)] {
        let mut c = Cluster::coded(1, usize::from(shape.0 + shape.1), shape, 3, 5);
        c.run(20_000);
        assert!(c.primary().unwrap().is_clean(), "{}", c.describe(0));
        assert!(c.clients.iter().all(|c| c.done > 10), "clients got on");
        finish(&mut c);
    }
}

#[test]
fn a_shard_that_was_away_gets_what_it_missed_by_log() {
    for away in 0..3 {
        let mut c = Cluster::coded(2, 3, (2, 1), 3, 5);
        c.run(5_000);
        c.crash(away);
        c.run(30_000);
        c.restart(away);
        c.run(10_000);
        finish(&mut c);
    }
}

#[test]
fn with_two_coding_shards_writes_go_on_without_one() {
    for away in 0..5 {
        let mut c = Cluster::coded(3, 5, (3, 2), 3, 5);
        c.run(5_000);
        c.crash(away);
        c.run(25_000);
        let before: u64 = c.objects.iter().map(|o| o.acked).sum();
        c.run(40_000);
        let after: u64 = c.objects.iter().map(|o| o.acked).sum();
        assert!(after > before + 20, "writes go on: {before} {after}; {}", c.describe(1));
        c.heal();
        finish(&mut c);
    }
}

#[test]
fn a_shard_that_was_away_for_long_is_backfilled_while_clients_write() {
    let mut c = Cluster::coded(4, 5, (3, 2), 6, 8);
    c.run(5_000);
    c.crash(1);
    c.run(200_000);
    c.restart(1);
    c.run(60_000);
    finish(&mut c);
}

#[test]
fn a_shard_is_rebuilt_on_another_osd() {
    let mut c = Cluster::coded(5, 6, (2, 1), 5, 7);
    c.run(10_000);
    c.change(|m| m.order = vec![3, 4, 5, 0, 1, 2]);
    c.run(60_000);
    finish(&mut c);
}

/// What the primary lacks is not what it still has of that, though the shard is its own and another OSD has it.
#[test]
fn a_primary_that_comes_back_takes_its_shard_from_who_had_it_meanwhile() {
    for seed in 50..56 {
        let mut c = Cluster::coded(seed, 6, (2, 1), 3, 5);
        c.run(5_000);
        c.crash(0);
        c.run(40_000);
        c.restart(0);
        c.run(5_000);
        finish(&mut c);
    }
}

/// Objects of more than a part of a transfer takes.
#[test]
fn large_objects_are_rebuilt_part_by_part() {
    for (shape, seed) in [((2, 1), 8), ((3, 2), 9)] {
        let n = i32::from(shape.0 + shape.1);
        let mut c = Cluster::coded(seed, 2 * n as usize, shape, 2, 2);
        c.run(5_000);
        let mut r = base::rng::Rng::new(seed);
        let data: Vec<Bytes> =
            (0..4).map(|_| (0..3_000_000 + r.below(4_000_000)).map(|_| r.below(256) as u8).collect()).collect();
        for (i, d) in data.iter().enumerate() {
            let op = wire::msg::OsdOp::with_extent(wire::msg::OpCode::WRITEFULL, 0, d.len() as u64, d.clone());
            let primary = c.map().mapping().acting_primary.0;
            let tid = c.ask(primary, 1, 10 + i, 0, vec![op]);
            c.run(1_000);
            assert_eq!(c.answers.get(&tid).map(|a| a.result), Some(0));
        }
        for round in 0..6 {
            let away = (round % n) + if round % 2 == 0 { 0 } else { n };
            c.crash(away);
            c.run(40_000);
            c.restart(away);
            c.run(5_000);
            c.settle();
            check(&mut c);
            for (i, d) in data.iter().enumerate() {
                let op = wire::msg::OsdOp::with_extent(wire::msg::OpCode::READ, 0, 0, Bytes::new());
                let primary = c.map().mapping().acting_primary.0;
                let tid = c.ask(primary, 1, 10 + i, 0, vec![op]);
                c.run(1_000);
                assert!(c.answers[&tid].ops[0].outdata == *d, "object {i} in round {round}");
            }
            c.load = true;
        }
    }
}

/// All that the new primary lacks is in its log; the OSD that had its shard before is still there.
#[test]
fn a_new_primary_gets_its_shard_from_who_had_it_before() {
    let mut c = Cluster::coded(10, 6, (2, 1), 1, 0);
    c.run(5_000);
    let data = Bytes::from((0..5_000_000u32).map(|i| (i * 7 + i / 253) as u8).collect::<Vec<_>>());
    let op = wire::msg::OsdOp::with_extent(wire::msg::OpCode::WRITEFULL, 0, data.len() as u64, data);
    let tid = c.ask(0, 1, 10, 0, vec![op]);
    c.run(1_000);
    assert_eq!(c.answers.get(&tid).map(|a| a.result), Some(0));
    c.change(|m| m.order = vec![3, 1, 2, 0, 4, 5]);
    c.run(20_000);
    c.settle();
    assert_eq!(c.map().mapping().acting_primary.0, 3);
    check(&mut c);
}

#[test]
fn snapshots_are_kept_and_trimmed_on_all_shards() {
    let mut c = Cluster::coded(6, 5, (3, 2), 3, 5);
    for round in 0..6 {
        c.run(3_000);
        c.take_snapshot();
        if round == 2 {
            c.crash(1);
        }
        if round > 2 {
            c.remove_snapshot();
        }
    }
    c.run(30_000);
    c.heal();
    finish(&mut c);
}

#[test]
fn an_object_that_does_not_read_on_a_shard_is_rebuilt_from_others() {
    // Small objects: the first shard has all of their bytes.
    let mut c = Cluster::coded(7, 3, (2, 1), 4, 8);
    c.run(10_000);
    for round in 0..10 {
        c.damage(0, round % 4);
        c.run(2_000);
    }
    assert!(c.osds[0].disk.spoiled.is_empty(), "clients read all of them");
    finish(&mut c);
}

/// A random history with faults; then all is healed and compared.
fn history(seed: u64) {
    println!("PG_SEED={seed}");
    let mut r = base::rng::Rng::new(seed ^ 0x5eed);
    let shape = [(2, 1), (2, 2), (3, 2), (4, 2)][r.below(4) as usize];
    let n = i32::from(shape.0 + shape.1);
    let osds = n + r.below(n as u64) as i32;
    let objects = 2 + r.below(4) as usize;
    let mut c = Cluster::coded(seed, osds as usize, shape, objects, objects + 3);
    if r.chance(1, 3) {
        // Longer than what others write until a client sends again, or a write is made twice.
        c.keep_log = (150 + r.below(100) as usize, 5);
    }
    c.run(2_000);
    for _ in 0..8 + r.below(12) {
        let osd = r.below(osds as u64) as i32;
        match r.below(9) {
            0..=2 => c.crash(osd),
            3 | 4 => c.restart(osd),
            5 => {
                let other = r.below(osds as u64) as i32;
                if other != osd {
                    c.reset_session(osd, other);
                }
            }
            6 => c.take_snapshot(),
            7 => c.remove_snapshot(),
            _ => {
                let mut order: Vec<i32> = (0..osds).collect();
                for i in (1..order.len()).rev() {
                    order.swap(i, r.below(i as u64 + 1) as usize);
                }
                c.change(|m| m.order = order);
            }
        }
        let most = if r.chance(1, 3) { 30_000 } else { 1_500 };
        c.run(1 + r.below(most));
    }
    c.heal();
    c.run(5_000);
    finish(&mut c);
}

#[test]
fn random_histories() {
    let var = |n: &str| std::env::var(n).ok().and_then(|v| v.parse::<u64>().ok());
    if let Some(seed) = var("PG_SEED") {
        return history(seed);
    }
    let first = 1000;
    for seed in first..first + var("PG_SEEDS").unwrap_or(20) {
        history(seed);
    }
}

/// What an entry removed is set aside until the entry can't be undone; clients don't see it in a listing.
#[test]
fn objects_set_aside_are_not_listed() {
    use wire::msg::{OpCode, OsdOp, osd_op::PglsArgs};
    let mut c = Cluster::coded(12, 3, (2, 1), 20, 0);
    c.run(5_000);
    let primary = c.map().mapping().acting_primary.0;
    let write = || OsdOp::with_extent(OpCode::WRITEFULL, 0, 100, Bytes::from(vec![7; 100]));
    for object in 0..20 {
        c.ask(primary, 1, object, 0, vec![write()]);
    }
    c.run(2_000);
    let gone: Vec<u64> = (0..5).map(|object| c.ask(primary, 1, object, 0, vec![OsdOp::new(OpCode::DELETE)])).collect();
    let mut listed = Vec::new();
    for ms in 0..100 {
        // Something goes on, so what can be dropped is not dropped at once.
        c.ask(primary, 1, 5 + ms % 15, 0, vec![write()]);
        if gone.iter().all(|tid| c.answers.contains_key(tid)) {
            let mut op = OsdOp::new(OpCode::PGNLS);
            op.set_pgls(PglsArgs { count: 100, start_epoch: 0 });
            listed.push(c.ask(primary, 1, 0, 0, vec![op]));
        }
        c.run(1);
    }
    c.run(2_000);
    assert!(listed.len() > 10, "{}", listed.len());
    for tid in listed {
        let reply: wire::types::PgNlsReply = wire::Reader::shared(&c.answers[&tid].ops[0].outdata).get().unwrap();
        let names: std::collections::BTreeSet<Bytes> = reply.entries.iter().map(|e| e.oid.clone()).collect();
        assert_eq!((reply.entries.len(), names.len()), (15, 15), "{names:?}");
    }
    c.settle();
    check(&mut c);
}
