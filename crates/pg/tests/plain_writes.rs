//! Does a request that writes one extent have the answer and the effects of the same write in a vector of several
//! operations?
mod common;

use base::Utime;
use base::rng::Rng;
use bytes::Bytes;
use common::*;
use pg::map::pool_flags;
use store::{Cid, ObjectStore, Oid, Tag};
use wire::msg::osd_op::{AllocHintArgs, Extent, WatchArgs};
use wire::msg::{MOsdOpReply, OpCode, OsdOp, msg_flags};

const NAMES: [&str; 5] = ["short", "hinted", "watched", "cut", "absent"];

fn hint(name: &str) -> OsdOp {
    let mut op = OsdOp::new(OpCode::SETALLOCHINT);
    let n = if name == "hinted" { 4 << 20 } else { 0 };
    op.set_alloc_hint(AllocHintArgs { expected_object_size: n, expected_write_size: n, flags: 0 });
    op
}

fn world() -> World {
    let mut w = World::new();
    let mut watch = OsdOp::new(OpCode::WATCH);
    watch.set_watch(WatchArgs { cookie: 7, op: WatchArgs::LEGACY_WATCH, timeout: 600, ..WatchArgs::default() });
    let mut cut = simple(OpCode::SETTRUNC);
    cut.set_extent(Extent { truncate_seq: 2, truncate_size: 5000, ..cut.extent() });
    for (name, ops) in [
        ("short", vec![write(0, b"0123456789"), setxattr("a", b"1"), omap_set(&[("k", b"v")])]),
        ("hinted", vec![hint("hinted"), write(0, &[1; 9000])]),
        ("watched", vec![write(0, &[2; 4096]), watch]),
        ("cut", vec![write(0, &[9; 9000]), cut]),
    ] {
        assert_eq!(w.op(name, ops).result, 0, "{name}");
    }
    w
}

/// A write at random places around the ends of objects and blocks.
fn any_write(rng: &mut Rng) -> OsdOp {
    let ends = [0, 1, 10, 4095, 4096, 5000, 8192, 9000, 70_000, 127 << 20, u64::MAX];
    let off = ends[rng.below(ends.len() as u64) as usize];
    let data = vec![rng.below(250) as u8; [0, 1, 10, 4096, 5000, 8192][rng.below(6) as usize]];
    let mut op = if rng.chance(1, 4) { write_full(&data) } else { write(off, &data) };
    let seq = [0, 0, 0, 1, 2, 3][rng.below(6) as usize];
    let (truncate_size, length) = (if seq == 1 { u64::MAX } else { 0 }, op.extent().length + rng.below(20) / 19);
    op.set_extent(Extent { truncate_seq: seq, truncate_size, length, ..op.extent() });
    op
}

/// Everything of the objects and the log.
fn content(w: &mut World) -> String {
    let (cid, tag) = (Cid::Pg(w.cfg.spg), Tag(u64::MAX));
    let mut all = format!("{:?} {:?}\n", w.pg.info(), w.store.log_entries(tag, cid, base::Eversion::default()));
    let objects = w.store.list(tag, cid, &Oid::new(base::HObject::min()).at_generation(0), None, 1000).unwrap().0;
    for o in objects {
        let size = w.store.stat(tag, cid, &o).unwrap().size;
        let data = w.store.read(tag, cid, &o, 0, size.min(1 << 20));
        all += &format!("{o:?} {size} {data:?} {:?}\n", w.store.attrs(tag, cid, &o));
    }
    all
}

/// The same random writes, in one world alone and in the other behind hints that change nothing.
#[test]
fn a_single_write_has_the_effects_of_one_in_a_vector() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let (mut alone, mut beside) = (world(), world());
        let mut plain = 0;
        for step in 0..60 {
            let name = NAMES[rng.below(5) as usize];
            let op = any_write(&mut rng);
            if rng.chance(1, 20) {
                let seq = alone.snapc.seq.0 + 1;
                [&mut alone, &mut beside].into_iter().for_each(|w| w.set_snaps(seq, &[seq]));
            }
            if rng.chance(1, 20) {
                [&mut alone, &mut beside].into_iter().for_each(|w| w.set_snaps(0, &[]));
            }
            if rng.chance(1, 15) {
                let flags = [0, pool_flags::FULL, pool_flags::FULL | pool_flags::FULL_QUOTA][rng.below(3) as usize];
                [&mut alone, &mut beside].into_iter().for_each(|w| {
                    w.pool.flags = flags;
                    w.next_map();
                });
            }
            let special =
                [0, 0, msg_flags::RETURNVEC, msg_flags::ORDERSNAP, msg_flags::FULL_FORCE][rng.below(5) as usize];
            let dated = rng.chance(4, 5);
            let with_hint = rng.chance(1, 3);
            plain += usize::from(special == 0);
            let run = |w: &mut World, first: Vec<OsdOp>| {
                let n = first.len();
                let mut r = w.request(1, name, first.into_iter().chain([op.clone()]).collect());
                // A client that frees space does not wait for it.
                r.msg.flags |= special | msg_flags::FULL_TRY;
                if !dated {
                    r.msg.mtime = Utime::ZERO;
                }
                let r = w.call(r);
                shown(&r, n)
            };
            let ours = run(&mut alone, if with_hint { vec![hint(name)] } else { Vec::new() });
            let theirs = run(&mut beside, vec![hint(name), hint(name)]);
            let what = format!("seed {seed}, step {step}, {name}, {:?} {:?}", op.op, op.extent());
            assert_eq!(ours, theirs, "{what}");
            // Only the number of results in the log differs.
            if special & msg_flags::RETURNVEC == 0 {
                assert_eq!(alone.pg.info(), beside.pg.info(), "{what}");
            }
            [&mut alone, &mut beside].into_iter().for_each(|w| w.advance(1000));
        }
        assert!(plain > 10, "{plain}");
        let strip = |s: String| s.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(strip(content(&mut alone)), strip(content(&mut beside)), "seed {seed}");
        [&mut alone, &mut beside].into_iter().for_each(World::restart);
        assert_eq!(alone.pg.info().stats, beside.pg.info().stats, "seed {seed}");
        assert_eq!(alone.pg.info().last_user_version, beside.pg.info().last_user_version);
    }
}

/// The parts of a reply that do not depend on the `n` operations before the write.
fn shown(r: &MOsdOpReply, n: usize) -> (i32, u64, base::Eversion, u64, i32, Bytes, Extent) {
    let op = &r.ops[n];
    (r.result, r.user_version, r.replay_version, r.flags, op.rval, op.outdata.clone(), op.extent())
}

/// The records of both are the same, and so is the answer to a resend.
#[test]
fn a_single_write_is_logged_and_repeated_as_one_in_a_vector() {
    let (mut alone, mut beside) = (world(), world());
    let run = |w: &mut World, first: Vec<OsdOp>| {
        let n = first.len();
        let all: Vec<OsdOp> = first.into_iter().chain([write(4096, &[5; 4096])]).collect();
        let r = w.request(1, "watched", all.clone());
        let reply = w.call(r.clone());
        let again = w.call(r);
        assert_eq!(w.pg.counters().dups, 1);
        (shown(&reply, n), shown(&again, n))
    };
    assert_eq!(run(&mut alone, Vec::new()), run(&mut beside, vec![hint("watched"), hint("watched")]));
    assert_eq!(content(&mut alone), content(&mut beside));
}
