//! Does an erasure-coded PG keep every acknowledged write, serve only the newest data, and end with shards any `k` of
//! which give the same objects?
//!
//! `PG_SEED=n` runs one seed, `PG_SEEDS=n` that many, `PG_TRACE=1` prints what happens.

mod cluster;

use base::HObject;
use bytes::Bytes;
use cluster::Cluster;
use cluster::map::CHUNK;
use cluster::shards::{check, finish, shard};
use pg::scrub::report::{object_err, shard_err};
use store::{Cid, ObjectStore, Oid, Op, Tag, Transaction};
use wire::types::pg_state;

/// Changes the content of an OSD behind the PG's back.
fn change(c: &mut Cluster, osd: i32, op: Op) {
    let disk = &mut c.osds[osd as usize].disk;
    for ops in [vec![], vec![op]] {
        disk.submit(Tag(u64::MAX - 2), Transaction { ops });
        let all = disk.pending();
        disk.sync(all);
    }
}

/// A clean PG, and an object with bytes on every shard: its name, and the length of each shard.
fn at_rest(seed: u64, shape: (u8, u8)) -> (Cluster, HObject, Vec<u64>) {
    let n = i32::from(shape.0 + shape.1);
    let mut c = Cluster::coded(seed, n as usize, shape, 3, 5);
    c.run(3_000);
    let data: Vec<u8> = (0..150_000u32).map(|i| ((i * 7) ^ (i >> 8)) as u8).collect();
    let op = wire::msg::OsdOp::with_extent(wire::msg::OpCode::WRITEFULL, 0, data.len() as u64, data.into());
    let tid = c.ask(c.map().mapping().acting_primary.0, 1, 10, 0, vec![op]);
    c.run(1_000);
    assert_eq!(c.asked.answers.get(&tid).map(|a| a.result), Some(0));
    c.settle();
    let all: Vec<_> = (0..n).map(|o| shard(&mut c, o)).collect();
    let (name, _) = all[0].iter().max_by_key(|(_, (d, _))| d.len()).unwrap();
    (c, name.clone(), all.iter().map(|s| s[name].0.len() as u64).collect())
}

/// Errors that a deep scrub finds in an object: those of the object, and those of each shard.
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
fn a_scrub_finds_a_shard_with_wrong_bytes_and_repair_rebuilds_it() {
    for osd in 0..6 {
        let (mut c, name, len) = at_rest(20 + osd as u64, (4, 2));
        let (cid, oid) = (Cid::Pg(c.spg(osd)), Oid::new(name.clone()));
        // The checksums are right, but the block is an older version or was meant for another place.
        let off = len[osd as usize] / 2;
        change(&mut c, osd, Op::Write { cid, oid, off, data: Bytes::from_static(b"another"), sums: None });
        c.scrub(false, false);
        assert_eq!(c.primary().unwrap().scrub_errors(), 0, "a shallow scrub does not read data");
        assert_eq!(deep_scrub(&mut c, &name), (0, vec![(osd as i8, shard_err::EC_HASH_MISMATCH)]));
        let told = format!("3.0 shard {osd}({osd}) soid {name} : candidate does not fit the other shards");
        assert!(c.log.contains(&told), "{:?}", c.log);
        repair(&mut c);
    }
}

#[test]
fn a_scrub_finds_shards_of_wrong_length_and_unreadable_ones() {
    for osd in 0..5 {
        let (mut c, name, len) = at_rest(30 + osd as u64, (3, 2));
        let (cid, oid) = (Cid::Pg(c.spg(osd)), Oid::new(name.clone()));
        change(&mut c, osd, Op::Truncate { cid, oid: oid.clone(), size: len[osd as usize] - 4096 });
        c.scrub(false, false);
        assert_eq!(c.primary().unwrap().scrub_errors(), 1, "a shallow scrub knows how long it is to be");
        let wrong = deep_scrub(&mut c, &name).1;
        assert!(matches!(wrong[..], [(s, e)] if s == osd as i8 && e & shard_err::OBJ_SIZE_INFO_MISMATCH != 0));
        repair(&mut c);
        // As many shards as there are coding shards.
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

/// With one coding shard the wrong shard can't be named: none is replaced.
#[test]
fn with_one_coding_shard_a_wrong_shard_is_reported_and_not_replaced() {
    let (mut c, name, _) = at_rest(40, (2, 1));
    let (cid, oid) = (Cid::Pg(c.spg(1)), Oid::new(name.clone()));
    change(&mut c, 1, Op::Write { cid, oid, off: 0, data: Bytes::from_static(b"another"), sums: None });
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
fn a_shard_recovers_missed_writes_by_log() {
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

/// A primary that comes back must not use its stale shard of an object: it takes the shard from the OSD that had it
/// meanwhile.
#[test]
fn a_returning_primary_takes_its_shard_from_the_osd_that_had_it() {
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

/// Objects larger than one part of a push.
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
            assert_eq!(c.asked.answers.get(&tid).map(|a| a.result), Some(0));
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
                assert!(c.asked.answers[&tid].ops[0].outdata == *d, "object {i} in round {round}");
            }
            c.load = true;
        }
    }
}

/// A new primary lacks only what is in its log; the OSD that had its shard before is still up.
#[test]
fn a_new_primary_takes_its_shard_from_the_previous_holder() {
    let mut c = Cluster::coded(10, 6, (2, 1), 1, 0);
    c.run(5_000);
    let data = Bytes::from((0..5_000_000u32).map(|i| (i * 7 + i / 253) as u8).collect::<Vec<_>>());
    let op = wire::msg::OsdOp::with_extent(wire::msg::OpCode::WRITEFULL, 0, data.len() as u64, data);
    let tid = c.ask(0, 1, 10, 0, vec![op]);
    c.run(1_000);
    assert_eq!(c.asked.answers.get(&tid).map(|a| a.result), Some(0));
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
fn an_object_unreadable_on_one_shard_is_rebuilt_from_others() {
    // Small objects have all their bytes on the first shard.
    let mut c = Cluster::coded(7, 3, (2, 1), 4, 8);
    c.run(10_000);
    for round in 0..10 {
        c.damage(0, round % 4);
        c.run(2_000);
    }
    assert!(c.osds[0].disk.spoiled.is_empty(), "clients read all of them");
    finish(&mut c);
}

/// A random history with faults, then recovery and comparison.
fn history(seed: u64) {
    println!("PG_SEED={seed}");
    let mut r = base::rng::Rng::new(seed ^ 0x5eed);
    let shape = [(2, 1), (2, 2), (3, 2), (4, 2)][r.below(4) as usize];
    let n = i32::from(shape.0 + shape.1);
    let osds = n + r.below(n as u64) as i32;
    let objects = 2 + r.below(4) as usize;
    let mut c = Cluster::coded(seed, osds as usize, shape, objects, objects + 3);
    if r.chance(1, 3) {
        // Longer than the writes of other clients until a resend; otherwise a write could be applied twice.
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

/// An object that an entry removed is set aside until the entry can't be undone. Lists do not show it.
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
        // Other writes are in flight, so undo data is not dropped at once.
        c.ask(primary, 1, 5 + ms % 15, 0, vec![write()]);
        if gone.iter().all(|tid| c.asked.answers.contains_key(tid)) {
            let mut op = OsdOp::new(OpCode::PGNLS);
            op.set_pgls(PglsArgs { count: 100, start_epoch: 0 });
            listed.push(c.ask(primary, 1, 0, 0, vec![op]));
        }
        c.run(1);
    }
    c.run(2_000);
    assert!(listed.len() > 10, "{}", listed.len());
    for tid in listed {
        let reply: wire::types::PgNlsReply = wire::Reader::shared(&c.asked.answers[&tid].ops[0].outdata).get().unwrap();
        let names: std::collections::BTreeSet<Bytes> = reply.entries.iter().map(|e| e.oid.clone()).collect();
        assert_eq!((reply.entries.len(), names.len()), (15, 15), "{names:?}");
    }
    c.settle();
    check(&mut c);
}

/// Clears the record of disk reads and writes.
fn count_anew(c: &mut Cluster) {
    for o in &mut c.osds {
        o.disk.reads.clear();
        o.disk.writes.clear();
    }
}

/// Runs an operation on an object while nothing else is in flight; returns its output.
fn alone(c: &mut Cluster, object: usize, op: wire::msg::OsdOp) -> Bytes {
    let tid = c.ask(c.map().mapping().acting_primary.0, 1, object, 0, vec![op]);
    c.run(3_000);
    let answer = c.asked.answers.get(&tid).unwrap_or_else(|| panic!("no answer; {}", c.describe(0)));
    assert_eq!(answer.result.min(0), 0);
    answer.ops[0].outdata.clone()
}

fn extent(code: wire::msg::OpCode, off: u64, data: Bytes) -> wire::msg::OsdOp {
    wire::msg::OsdOp::with_extent(code, off, data.len() as u64, data)
}

fn read_of(off: u64, len: u64) -> wire::msg::OsdOp {
    wire::msg::OsdOp::with_extent(wire::msg::OpCode::READ, off, len, Bytes::new())
}

/// Shards that read or wrote an object's data: `(shard, ranges, bytes)`.
fn traffic(c: &Cluster, reads: bool) -> Vec<(usize, usize, u64)> {
    let sum = |s: usize| {
        let d = &c.osds[s].disk;
        let of: Vec<u64> =
            if reads { d.reads.iter().map(|r| r.2).collect() } else { d.writes.iter().map(|w| w.2).collect() };
        (s, of.len(), of.iter().sum::<u64>())
    };
    (0..c.osds.len()).map(sum).filter(|t| t.1 > 0).collect()
}

#[test]
fn small_reads_and_writes_touch_few_shards() {
    use wire::msg::OpCode;
    const BLOCK: u64 = CHUNK as u64;
    const WIDTH: u64 = 4 * BLOCK;
    let mut c = Cluster::coded(60, 6, (4, 2), 1, 0);
    c.contended = false;
    c.run(3_000);
    let mut data: Vec<u8> = (0..4 * WIDTH).map(|i| (i * 31 + i / 977) as u8).collect();
    alone(&mut c, 10, extent(OpCode::WRITEFULL, 0, data.clone().into()));
    for chunk in 0..8 {
        let (shard, off) = (chunk as usize % 4, chunk * BLOCK);
        count_anew(&mut c);
        let got = alone(&mut c, 10, read_of(off, BLOCK));
        assert!(got[..] == data[off as usize..][..CHUNK as usize]);
        assert_eq!(traffic(&c, true), [(shard, 1, BLOCK)], "a read of one block reads one device");
        assert_eq!(traffic(&c, false), []);

        let new = Bytes::from(vec![chunk as u8 + 100; CHUNK as usize]);
        data[off as usize..][..CHUNK as usize].copy_from_slice(&new);
        count_anew(&mut c);
        alone(&mut c, 10, extent(OpCode::WRITE, off, new));
        let three = [(shard, 1, BLOCK), (4, 1, BLOCK), (5, 1, BLOCK)];
        assert_eq!(traffic(&c, true), three, "the old block, and those of the coding shards");
        assert_eq!(traffic(&c, false), three);
    }
    count_anew(&mut c);
    let more = Bytes::from((0..WIDTH).map(|i| (i * 7) as u8).collect::<Vec<_>>());
    data.extend_from_slice(&more);
    alone(&mut c, 10, extent(OpCode::APPEND, 0, more));
    assert_eq!(traffic(&c, true), [], "a whole stripe needs nothing of what was there");
    assert_eq!(traffic(&c, false), (0..6).map(|s| (s, 1, BLOCK)).collect::<Vec<_>>());
    assert!(alone(&mut c, 10, read_of(0, 0))[..] == data[..]);
    finish(&mut c);
}

/// Writes made while a shard was away are no loss to it if none of their bytes are on that shard: its log says so.
#[test]
fn a_shard_that_was_away_recovers_only_objects_whose_bytes_it_missed() {
    use wire::msg::OpCode;
    let chunk = u64::from(CHUNK);
    for (away, written, recovers) in [(1, 2, false), (2, 2, true), (5, 2, true)] {
        let (mut c, name, _) = at_rest(62, (4, 2));
        c.crash(away);
        c.run(40_000);
        let mut data = whole();
        let before: u64 = c.osds.iter().filter_map(|o| o.pg.as_ref()).map(|p| p.counters().recovered_objects).sum();
        for i in 0..3u8 {
            let new = Bytes::from(vec![i + 1; CHUNK as usize]);
            data[written as usize * CHUNK as usize..][..new.len()].copy_from_slice(&new);
            alone(&mut c, 10, extent(OpCode::WRITE, written * chunk, new));
        }
        c.restart(away);
        c.run(10_000);
        c.settle();
        let after: u64 = c.osds.iter().filter_map(|o| o.pg.as_ref()).map(|p| p.counters().recovered_objects).sum();
        assert_eq!(after - before > 0, recovers, "shard {away}: {before} {after}");
        assert!(shard(&mut c, away).contains_key(&name));
        finish(&mut c);
        assert!(alone(&mut c, 10, read_of(0, 0))[..] == data[..]);
    }
}

/// The content of [`at_rest`]'s object.
fn whole() -> Vec<u8> {
    (0..150_000u32).map(|i| ((i * 7) ^ (i >> 8)) as u8).collect()
}

#[test]
fn a_read_avoids_a_truncated_shard_and_has_it_rebuilt() {
    for osd in 0..6 {
        let (mut c, name, len) = at_rest(70 + osd as u64, (4, 2));
        let (cid, oid) = (Cid::Pg(c.spg(osd)), Oid::new(name.clone()));
        let size = len[osd as usize];
        change(&mut c, osd, Op::Truncate { cid, oid: oid.clone(), size: size - 4096 });
        assert!(alone(&mut c, 10, read_of(0, 0))[..] == whole()[..], "shard {osd}");
        if osd < 4 {
            c.settle();
            assert_eq!(shard(&mut c, osd)[&name].0.len() as u64, size, "the read had it replaced");
        } else {
            // No client has read it.
            c.scrub(true, true);
        }
        finish(&mut c);
    }
}

#[test]
fn a_read_avoids_a_stale_shard_and_scrub_has_it_rebuilt() {
    for osd in 1..4 {
        let (mut c, name, _) = at_rest(80 + osd as u64, (4, 2));
        let old = shard(&mut c, osd)[&name].clone();
        let mut data = whole();
        let new = Bytes::from(vec![9; 3 * CHUNK as usize]);
        data[CHUNK as usize..][..new.len()].copy_from_slice(&new);
        alone(&mut c, 10, extent(wire::msg::OpCode::WRITE, CHUNK.into(), new));
        c.settle();
        // The disk lost a write that it had acknowledged.
        let (cid, oid) = (Cid::Pg(c.spg(osd)), Oid::new(name.clone()));
        change(&mut c, osd, Op::Write { cid, oid: oid.clone(), off: 0, data: old.0, sums: None });
        change(&mut c, osd, Op::SetAttrs { cid, oid, attrs: old.1 });
        assert!(alone(&mut c, 10, read_of(0, 0))[..] == data[..], "shard {osd}");
        c.scrub(true, true);
        assert!(alone(&mut c, 10, read_of(0, 0))[..] == data[..], "shard {osd}");
        finish(&mut c);
    }
}

/// Lengths, versions and checksums are right, but the bytes are those of another shard.
#[test]
fn a_scrub_finds_a_shard_with_the_bytes_of_another_one() {
    let (mut c, name, _) = at_rest(90, (4, 2));
    let (own, theirs) = (shard(&mut c, 1)[&name].0.clone(), shard(&mut c, 2)[&name].0.clone());
    assert!(own != theirs && own.len() == theirs.len());
    let (cid, oid) = (Cid::Pg(c.spg(1)), Oid::new(name.clone()));
    change(&mut c, 1, Op::Write { cid, oid, off: 0, data: theirs, sums: None });
    assert_eq!(deep_scrub(&mut c, &name), (0, vec![(1, shard_err::EC_HASH_MISMATCH)]));
    repair(&mut c);
}

/// More shards are away than the code tolerates: reads return nothing wrong, and all data is back with the OSD.
#[test]
fn m_unreadable_shards_while_an_osd_is_down_lose_nothing() {
    for (seed, down, rotten) in [(100, 5, [1, 2]), (101, 1, [2, 3]), (102, 2, [0, 4])] {
        let (mut c, name, _) = at_rest(seed, (4, 2));
        c.crash(down);
        c.run(40_000);
        for o in rotten {
            c.osds[o as usize].disk.spoiled.insert(Oid::new(name.clone()));
        }
        let primary = c.map().mapping().acting_primary.0;
        let tid = c.ask(primary, 1, 10, 0, vec![read_of(0, 0)]);
        c.run(10_000);
        if let Some(a) = c.asked.answers.get(&tid) {
            assert_eq!(a.result, base::errno::EIO, "no other answer is right");
        }
        c.restart(down);
        c.run(10_000);
        c.settle();
        assert!(alone(&mut c, 10, read_of(0, 0))[..] == whole()[..], "seed {seed}");
        c.scrub(true, true);
        assert!(c.osds.iter().all(|o| o.disk.spoiled.is_empty()), "all were replaced");
        finish(&mut c);
    }
}

/// Older versions of shards can't be combined to an object, so unfound objects can only be deleted.
#[test]
fn unfound_objects_of_an_erasure_coded_pg_are_not_reverted() {
    let (mut c, ..) = at_rest(110, (2, 1));
    let refused = c.mark_lost(true).unwrap_err();
    assert_eq!(refused, (base::errno::EINVAL, "mode must be 'delete' for ec pool".to_owned()));
    assert_eq!(c.mark_lost(false).unwrap(), "pg has no unfound objects");
}

/// Class methods are held to the rules of the pool, as on real OSDs: no omap, and without overwrites no write into an
/// object.
#[test]
fn class_methods_write_only_what_the_pool_allows() {
    use base::errno::EOPNOTSUPP;
    let mut c = Cluster::coded(1, 3, (2, 1), 1, 0);
    c.contended = false;
    c.run(3_000);
    let v1 = |body: &[u8]| [&[1, 1][..], &(body.len() as u32).to_le_bytes(), body].concat();
    let init = v1(&[&4096u64.to_le_bytes()[..], &[0; 12]].concat());
    let entry = v1(&[1, 0, 0, 0, 1, 0, 0, 0, b'x']);
    let call = |c: &mut Cluster, object: usize, class: &str, method: &str, input: &[u8]| {
        let primary = c.map().mapping().acting_primary.0;
        let tid = c.ask(primary, 1, object, 0, vec![wire::msg::OsdOp::call(class, method, input)]);
        c.run(1_000);
        c.asked.answers[&tid].result
    };
    let number = [1, 0, 0, 0, b'k', 1, 0, 0, 0, b'1'];
    for overwrites in [true, false] {
        c.change(|m| m.overwrites = overwrites);
        c.run(3_000);
        let object = 20 + usize::from(overwrites);
        assert_eq!(call(&mut c, object, "queue", "queue_init", &init), 0);
        let second = call(&mut c, object, "queue", "queue_enqueue", &entry);
        assert_eq!(second, if overwrites { 0 } else { EOPNOTSUPP });
        assert_eq!(call(&mut c, 30, "hello", "record_hello", b""), if overwrites { 0 } else { -17 });
        assert_eq!(call(&mut c, 30, "hello", "turn_it_to_11", b""), 0, "replaces the whole object");
        assert_eq!(call(&mut c, 40, "numops", "add", &number), EOPNOTSUPP);
        assert_eq!(call(&mut c, 30, "rgw", "usage_log_clear", b""), EOPNOTSUPP);
    }
}
