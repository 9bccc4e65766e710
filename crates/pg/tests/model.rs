//! Do random operation vectors with snapshots, waits, crashes and trimming leave the state of a small model?
//!
//! Each seed runs once on a store that answers at once, and once on one that makes everything wait at random. Both
//! must give the same answers. A failure prints its seed; `PG_SEED=n` runs that one, `PG_SEEDS=n` the first n.
mod common;

use base::SnapId;
use base::errno::*;
use base::rng::Rng;
use bytes::Bytes;
use common::*;
use std::collections::BTreeMap;
use store::mem::MemStore;
use wire::msg::{OpCode, OsdOp, op_flags};
use wire::types::ListSnapsReply;

#[derive(Clone, Debug, Default, PartialEq)]
struct Obj {
    data: Vec<u8>,
    attrs: BTreeMap<String, Vec<u8>>,
    omap: BTreeMap<String, Vec<u8>>,
    header: Vec<u8>,
}

type State = BTreeMap<String, Obj>;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const KEYS: [&str; 5] = ["k1", "k2", "k3", "m1", "z"];
const SIZE_MAX: u64 = 20_000;

fn pick<'a>(r: &mut Rng, v: &[&'a str]) -> &'a str {
    v[r.below(v.len() as u64) as usize]
}

fn some_bytes(r: &mut Rng, max: u64) -> Vec<u8> {
    let mut v = vec![0; r.below(max) as usize];
    let b = r.next_u64() as u8;
    v.fill(b);
    if let Some(x) = v.first_mut() {
        *x = b.wrapping_add(1);
    }
    v
}

/// A random operation with its effect on the model, or the errno it must give. It reads `before`, the object before
/// the vector.
fn random_op(
    r: &mut Rng,
    before: Option<&Obj>,
    o: &mut Option<Obj>,
    snaps: &[(u64, State)],
    name: &str,
    first: bool,
) -> (OsdOp, Result<i32, i32>) {
    // A rollback to the version that the head had before the vector undoes nothing of the vector, in Ceph as here. So
    // it comes first only.
    let exists = o.is_some();
    match r.below(if first { 20 } else { 19 }) {
        n @ 0..=7 => (random_data_op(r, o, n), Ok(0)),
        n @ 8..=14 => random_keys_op(r, o, n),
        15 => {
            *o = None;
            (simple(OpCode::DELETE), if exists { Ok(0) } else { Err(ENOENT) })
        }
        16 => {
            let excl = r.chance(1, 2);
            o.get_or_insert_default();
            let op = with_flags(simple(OpCode::CREATE), if excl { op_flags::EXCL } else { 0 });
            (op, if excl && exists { Err(EEXIST) } else { Ok(0) })
        }
        n @ 17..=18 => random_comparison(r, before, o.as_ref(), n),
        _ => {
            let Some((snap, then)) = snaps.get(r.below(snaps.len() as u64 + 1) as usize) else {
                return (simple(OpCode::CREATE), {
                    o.get_or_insert_default();
                    Ok(0)
                });
            };
            *o = then.get(name).cloned();
            let mut op = simple(OpCode::ROLLBACK);
            op.set_snap(SnapId(*snap));
            (op, Ok(0))
        }
    }
}

/// Operation `n` of those that change data. None of them fails.
fn random_data_op(r: &mut Rng, o: &mut Option<Obj>, n: u64) -> OsdOp {
    match n {
        0..=3 => {
            let (off, data) = (r.below(SIZE_MAX), some_bytes(r, 9000));
            let x = o.get_or_insert_default();
            let end = off as usize + data.len();
            if x.data.len() < end {
                x.data.resize(end, 0);
            }
            x.data[off as usize..end].copy_from_slice(&data);
            write(off, &data)
        }
        4 => {
            let data = some_bytes(r, 9000);
            o.get_or_insert_default().data.clone_from(&data);
            write_full(&data)
        }
        5 => {
            let data = some_bytes(r, 3000);
            o.get_or_insert_default().data.extend(&data);
            append(&data)
        }
        6 => {
            let n = r.below(SIZE_MAX);
            if let Some(x) = o {
                x.data.resize(n as usize, 0);
            }
            truncate(n)
        }
        _ => {
            let (off, len) = (r.below(SIZE_MAX), 1 + r.below(9000));
            if let Some(x) = o {
                let n = x.data.len() as u64;
                if off < n && off + len >= n {
                    x.data.truncate(off as usize);
                } else if off < n {
                    x.data[off as usize..(off + len) as usize].fill(0);
                }
            }
            zero(off, len)
        }
    }
}

/// Operation `n` of those that change attributes and the omap.
fn random_keys_op(r: &mut Rng, o: &mut Option<Obj>, n: u64) -> (OsdOp, Result<i32, i32>) {
    let exists = o.is_some();
    match n {
        8 => {
            let (k, v) = (pick(r, &KEYS), some_bytes(r, 50));
            o.get_or_insert_default().attrs.insert(k.into(), v.clone());
            (setxattr(k, &v), Ok(0))
        }
        9 => {
            let k = pick(r, &KEYS);
            if let Some(x) = o {
                x.attrs.remove(k);
            }
            (xattr(OpCode::RMXATTR, k), if exists { Ok(0) } else { Err(ENOENT) })
        }
        10 | 11 => {
            let (k, v) = (pick(r, &KEYS), some_bytes(r, 50));
            let (k2, v2) = (pick(r, &KEYS), some_bytes(r, 50));
            let x = o.get_or_insert_default();
            let mut m = BTreeMap::from([(k, v)]);
            m.insert(k2, v2);
            x.omap.extend(m.iter().map(|(k, v)| ((*k).to_owned(), v.clone())));
            let kv: Vec<(&str, &[u8])> = m.iter().map(|(k, v)| (*k, &v[..])).collect();
            (omap_set(&kv), Ok(0))
        }
        12 => {
            let k = pick(r, &KEYS);
            if let Some(x) = o {
                x.omap.remove(k);
            }
            (encoded(OpCode::OMAPRMKEYS, &vec![bytes(k.as_bytes())]), if exists { Ok(0) } else { Err(ENOENT) })
        }
        13 => {
            let (a, b) = (pick(r, &KEYS), pick(r, &KEYS));
            if let Some(x) = o {
                x.omap.retain(|k, _| !(&k[..] >= a && &k[..] < b));
            }
            let op = encoded(OpCode::OMAPRMKEYRANGE, &(a.to_owned(), b.to_owned()));
            (op, if exists { Ok(0) } else { Err(ENOENT) })
        }
        _ => {
            let h = some_bytes(r, 30);
            if r.chance(1, 2) {
                o.get_or_insert_default().header.clone_from(&h);
                (OsdOp::with_indata(OpCode::OMAPSETHEADER, h.into()), Ok(0))
            } else {
                if let Some(x) = o {
                    x.omap.clear();
                    x.header.clear();
                }
                (simple(OpCode::OMAPCLEAR), if exists { Ok(0) } else { Err(ENOENT) })
            }
        }
    }
}

/// Operation `n` of those that compare an attribute or data with the state before the vector.
fn random_comparison(r: &mut Rng, before: Option<&Obj>, o: Option<&Obj>, n: u64) -> (OsdOp, Result<i32, i32>) {
    match n {
        17 => {
            let (k, v) = (pick(r, &KEYS), some_bytes(r, 4));
            let have = before.and_then(|x| x.attrs.get(k)).cloned().unwrap_or_default();
            let holds = if before.is_some() { if have == v { Ok(1) } else { Err(ECANCELED) } } else { Err(ENOENT) };
            (OsdOp::with_xattr(OpCode::CMPXATTR, k.as_bytes(), &v, 1, 1), holds)
        }
        _ => {
            let (off, len) = (r.below(SIZE_MAX), 1 + r.below(20) as usize);
            let inside = o.map_or(0, |x| x.data.len());
            let there = before.iter().flat_map(|x| &x.data).take(inside).copied();
            let mut have: Vec<u8> = there.skip(off as usize).take(len).collect();
            have.resize(len, 0);
            let differ = r.chance(1, 4);
            let mut want = have.clone();
            if differ {
                want[len - 1] ^= 1;
            }
            let op = OsdOp::with_extent(OpCode::CMPEXT, off, len as u64, want.into());
            (op, if differ { Err(-4095 - (len as i32 - 1)) } else { Ok(0) })
        }
    }
}

fn full_reads() -> Vec<OsdOp> {
    vec![
        read(0, 0),
        simple(OpCode::GETXATTRS),
        omap_vals("", 100, ""),
        simple(OpCode::OMAPGETHEADER),
        omap_vals("", 100, "k"),
        encoded(OpCode::OMAPGETKEYS, &("k1".to_owned(), 2u64)),
        OsdOp::with_extent(OpCode::SPARSE_READ, 3, 9000, Bytes::new()),
    ]
}

fn check_object(w: &mut World, name: &str, snap: SnapId, want: Option<&Obj>, what: &str) {
    let r = w.at_snap(name, snap, full_reads());
    let Some(o) = want else {
        assert_eq!(r.result, ENOENT, "{what}: {name} at {snap}");
        return;
    };
    assert!(r.result >= 0, "{what}: {name} at {snap} gives {}", r.result);
    assert!(r.ops[0].outdata == o.data, "{what}: data of {name} at {snap}");
    let text = |m: BTreeMap<Bytes, Bytes>| -> BTreeMap<String, Vec<u8>> {
        m.into_iter().map(|(k, v)| (String::from_utf8_lossy(&k).into_owned(), v.to_vec())).collect()
    };
    assert_eq!(text(decode(&r.ops[1].outdata)), o.attrs, "{what}: {name} at {snap}");
    let (m, more): (BTreeMap<Bytes, Bytes>, bool) = decode(&r.ops[2].outdata);
    assert_eq!((text(m), more), (o.omap.clone(), false), "{what}: {name} at {snap}");
    assert_eq!(r.ops[3].outdata, o.header, "{what}: {name} at {snap}");
    let (m, _): (BTreeMap<Bytes, Bytes>, bool) = decode(&r.ops[4].outdata);
    let k: BTreeMap<String, Vec<u8>> =
        o.omap.iter().filter(|(k, _)| k.starts_with('k')).map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(text(m), k, "{what}");
    let (keys, more): (Vec<String>, bool) = decode(&r.ops[5].outdata);
    let all: Vec<&String> = o.omap.keys().filter(|k| k.as_str() > "k1").collect();
    assert!(keys.iter().eq(all.iter().take(2).copied()) && more == (all.len() > 2), "{what}: keys");
    let (extents, data): (Vec<(u64, u64)>, Bytes) = decode(&r.ops[6].outdata);
    let mut sparse = vec![0u8; o.data.len().saturating_sub(3).min(9000)];
    let mut at = 0;
    for (off, len) in extents {
        let (a, n) = ((off - 3) as usize, len as usize);
        sparse[a..a + n].copy_from_slice(&data[at..at + n]);
        at += n;
    }
    assert!(o.data.iter().skip(3).take(9000).eq(sparse.iter()), "{what}: sparse read of {name}");
}

/// Checks clone overlaps and statistics.
fn check_books(w: &mut World, what: &str) {
    let (mut objects, mut clones, mut total) = (0, 0, 0);
    for name in NAMES {
        let r = w.at_snap(name, SnapId::SNAPDIR, vec![simple(OpCode::LIST_SNAPS)]);
        if r.result == ENOENT {
            continue;
        }
        let l: ListSnapsReply = decode(&r.ops[0].outdata);
        let content = |w: &mut World, at: SnapId| w.at_snap(name, at, vec![read(0, 0)]).ops[0].outdata.clone();
        for (i, c) in l.clones.iter().enumerate() {
            objects += 1;
            total += c.size;
            if c.cloneid == SnapId::HEAD {
                continue;
            }
            clones += 1;
            let shared: u64 = c.overlap.iter().map(|o| o.1).sum();
            total -= shared;
            assert!(shared <= c.size);
            let mine = content(w, *c.snaps.last().expect("a clone stands for a snapshot"));
            assert_eq!(mine.len() as u64, c.size, "{what}: {name} clone {}", c.cloneid);
            if let Some(next) = l.clones.get(i + 1) {
                let next = content(w, next.snaps.last().copied().unwrap_or(SnapId::HEAD));
                for &(o, n) in &c.overlap {
                    let range = o as usize..(o + n) as usize;
                    assert!(mine.get(range.clone()) == next.get(range), "{what}: {name} overlap of {}", c.cloneid);
                }
            } else {
                assert_eq!(shared, 0, "{what}: nothing to share with");
            }
        }
    }
    let s = w.pg.info().stats;
    assert_eq!((s.num_objects, s.num_object_clones, s.num_bytes), (objects, clones, total as i64), "{what}");
}

/// Runs a random vector on the PG and the model, and some again as a resend. Returns the answer's result and version.
fn vector(w: &mut World, r: &mut Rng, now: &mut State, snaps: &[(u64, State)], what: &str) -> (i32, u64) {
    let name = pick(r, &NAMES);
    let before = now.get(name).cloned();
    let mut o = before.clone();
    let (mut ops, mut want) = (Vec::new(), Ok(0));
    let n = 1 + r.below(4);
    for i in 0..n {
        let at = o.clone();
        let (op, result) = random_op(r, before.as_ref(), &mut o, snaps, name, i == 0);
        ops.push(op);
        want = result;
        if result.is_err() {
            o = at;
            break;
        }
    }
    let pure_read = ops.iter().all(|o| !o.op.is_write());
    if pure_read && before.is_none() {
        want = Err(ENOENT);
    }
    if want.is_err() {
        o.clone_from(&before);
    }
    // The result of a successful write is zero; that of a vector without change is its own.
    let shown = match want {
        Ok(v) if pure_read => v,
        Ok(_) => 0,
        Err(e) => e,
    };
    let req = w.request(1, name, ops);
    let again = req.clone();
    let a = w.call(req);
    if a.result != shown && !(want == Ok(1) && a.result == 1) {
        panic!("{what}: {name} gives {} instead of {want:?}: {:?}", a.result, again.msg.ops);
    }
    match o {
        Some(o) => now.insert(name.into(), o),
        None => now.remove(name),
    };
    if !pure_read && r.chance(1, 5) {
        if r.chance(1, 2) {
            w.restart();
        }
        let mut again = again;
        again.session = pg::SessionId(99);
        again.msg.osdmap_epoch = w.view.epoch;
        let b = w.call(again);
        let user = if a.result == 0 { a.user_version } else { b.user_version };
        assert_eq!((b.result, b.user_version), (a.result, user), "{what}: resend");
    }
    check_object(w, name, SnapId::HEAD, now.get(name), what);
    (a.result, a.user_version)
}

fn run(seed: u64, store: MemStore) -> Vec<(i32, u64)> {
    let mut r = Rng::new(seed);
    let mut w = World::with_store(store);
    w.pool.flags |= pg::map::pool_flags::SELFMANAGED_SNAPS;
    w.next_map();
    let mut now = State::new();
    let mut snaps: Vec<(u64, State)> = Vec::new();
    let mut seq = 0;
    let mut answers = Vec::new();
    let steps = 120;
    for step in 0..steps {
        let what = format!("seed {seed} step {step}");
        match r.below(14) {
            0 => {
                seq += 1 + r.below(2);
                snaps.push((seq, now.clone()));
                let ids: Vec<u64> = snaps.iter().rev().map(|s| s.0).collect();
                w.set_snaps(seq, &ids);
            }
            1 if !snaps.is_empty() => {
                let (gone, _) = snaps.remove(r.below(snaps.len() as u64) as usize);
                w.pool.removed_snaps.insert(gone, 1);
                let ids: Vec<u64> = snaps.iter().rev().map(|s| s.0).collect();
                w.set_snaps(seq, &ids);
                w.next_map();
                if r.chance(1, 2) {
                    w.settle();
                }
            }
            2 => {
                w.restart();
            }
            3 => {
                let name = pick(&mut r, &NAMES);
                check_object(&mut w, name, SnapId::HEAD, now.get(name), &what);
                if let Some((s, then)) = snaps.get(r.below(snaps.len() as u64 + 1) as usize).cloned() {
                    check_object(&mut w, name, SnapId(s), then.get(name), &what);
                }
            }
            _ => answers.push(vector(&mut w, &mut r, &mut now, &snaps, &what)),
        }
        if step % 10 == 9 {
            w.settle();
            for (s, then) in snaps.clone() {
                for name in NAMES {
                    check_object(&mut w, name, SnapId(s), then.get(name), &what);
                }
            }
            check_books(&mut w, &what);
        }
    }
    answers
}

#[test]
fn random_vectors_equal_the_model() {
    let seeds: Vec<u64> = match std::env::var("PG_SEED") {
        Ok(s) => vec![s.parse().unwrap()],
        Err(_) => (0..std::env::var("PG_SEEDS").map_or(30, |n| n.parse().unwrap())).collect(),
    };
    for seed in seeds {
        println!("seed {seed}");
        let quick = run(seed, MemStore::new());
        let slow = run(seed, MemStore::new().with_waits(seed ^ 0x55).hold_durable());
        assert_eq!(quick, slow, "seed {seed}: waiting changes nothing");
    }
}
