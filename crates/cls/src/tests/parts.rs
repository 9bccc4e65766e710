//! Long calls: the result does not depend on the parts, and a part takes no more than its room.

use crate::ctx::{ClsError, ClsResult, ObjectCtx};
use crate::parts::{Fold, KEPT_BYTES_MAX, Parts, Room, omap_fold};
use crate::testing::{MemCtx, MemObject};
use crate::util::{ENTRIES_MAX, enc, fail};
use base::errno::{E2BIG, EIO};
use base::rng::Rng;
use bytes::Bytes;
use wire::Writer;

fn v1(f: impl FnOnce(&mut Writer)) -> Bytes {
    enc(|w| w.versioned(1, 1, f))
}

const ONE_PART: Room = Room { entries: usize::MAX, bytes: usize::MAX };

/// A user's bucket with its statistics, as its omap value.
fn bucket(name: &str, size: u64) -> Bytes {
    enc(|w| {
        w.versioned(9, 5, |w| {
            w.blob(b"");
            w.u64(size);
            w.u32(5);
            w.u64(size);
            w.versioned(9, 8, |w| [name.as_bytes(), b"m", b"i", b"p"].iter().for_each(|f| w.blob(f)));
            w.u64(size);
            w.bool(true);
            w.put(&base::Utime { sec: 5, nsec: 0 });
        });
    })
}

/// Sends reports about some of `n` mirrored images.
fn report_images(c: &mut MemCtx, rng: &mut Rng, n: u64) {
    for i in 0..n {
        for site in ["", "s1", "s2"] {
            if rng.chance(1, 2) {
                let status = enc(|w| {
                    w.string(&format!("g{i}"));
                    w.versioned(2, 1, |w| {
                        w.string(site);
                        w.u8(rng.below(6) as u8);
                        w.string("text");
                        w.put(&base::Utime::ZERO);
                        w.bool(true);
                    });
                });
                let num = 1 + rng.below(2) as i64;
                // An image that does not decode has no reports.
                let _ = c.client(num).exec("rbd", "mirror_image_status_set", status);
            }
        }
    }
}

/// Objects with random entries, and the methods that go through them. A few entries do not decode.
fn object(rng: &mut Rng, kind: u64) -> (MemCtx, &'static [(&'static str, &'static str)]) {
    let mut c = MemCtx::new();
    c.quiet = true;
    c.page = 1 + rng.below(40) as usize;
    let mut o = MemObject::default();
    let n = rng.below(120);
    let bad = rng.chance(1, 6);
    let garbage = |rng: &mut Rng| bad && rng.chance(1, 40);
    let methods: &[(&str, &str)] = match kind {
        0 => {
            for i in 0..n {
                let v = if garbage(rng) { Bytes::from_static(b"?") } else { bucket("b", rng.below(1000)) };
                o.omap.insert(format!("b{i}").into(), v);
            }
            &[("user", "reset_user_stats")]
        }
        1 => {
            c.exec("rgw", "bucket_init_index", "").unwrap();
            for i in 0..n {
                let first = [&b""[..], b"\x801000_", b"\x800_", b"\xc3"][rng.below(4) as usize];
                let entry = crate::rgw::tests::stored_entry(&format!("o{i}"), rng.below(3) as u8, rng.below(1000));
                let v = if garbage(rng) { Bytes::from_static(b"?") } else { entry };
                o.omap.insert([first, format!("o{i}").as_bytes()].concat().into(), v);
            }
            o.header = c.object.take().unwrap().header;
            &[("rgw", "bucket_check_index"), ("rgw", "bucket_rebuild_index")]
        }
        _ => {
            for i in 0..n {
                let global = format!("g{i}");
                let image = enc(|w| {
                    w.versioned(2, 1, |w| {
                        w.string(&global);
                        w.u8(1);
                        w.u8(1);
                    });
                });
                let v = if garbage(rng) { Bytes::from_static(b"?") } else { image };
                o.omap.insert(format!("image_{i}").into(), v);
                o.omap.insert(format!("global_{global}").into(), enc(|w| w.string(&format!("{i}"))));
            }
            c.object = Some(o);
            report_images(&mut c, rng, n);
            let (name, addr) = (base::EntityName::new(base::EntityKind::CLIENT, 1), c.origin.1);
            c.watchers.push(crate::Watcher { name, addr, cookie: 1, timeout: 30 });
            return (
                c,
                &[
                    ("rbd", "mirror_image_status_get_summary"),
                    ("rbd", "mirror_image_instance_list"),
                    ("rbd", "mirror_image_status_remove_down"),
                ],
            );
        }
    };
    c.object = Some(o);
    (c, methods)
}

fn input(method: &str) -> Bytes {
    match method {
        "reset_user_stats" => v1(|w| w.put(&base::Utime { sec: 7, nsec: 0 })),
        "mirror_image_instance_list" => enc(|w| {
            w.blob(b"");
            w.u64(1000);
        }),
        _ => Bytes::new(),
    }
}

#[test]
fn a_call_in_parts_has_the_result_of_a_call_in_one() {
    let mut rng = Rng::new(0x7061_7274);
    let mut pauses = [0; 3];
    for round in 0..300 {
        let kind = round % 3;
        let (c, methods) = object(&mut rng, kind);
        for (class, method) in methods {
            let mut whole = c.clone();
            whole.room = ONE_PART;
            let want = whole.exec_full(class, method, input(method));
            assert_eq!(whole.pauses, 0);
            for _ in 0..3 {
                let mut parts = c.clone();
                let bytes = if rng.chance(1, 2) { usize::MAX } else { 1 + rng.below(400) as usize };
                parts.room = Room { entries: 1 + rng.below(30) as usize, bytes };
                let got = parts.exec_full(class, method, input(method));
                assert_eq!(got, want, "{class}.{method} in {:?}", parts.room);
                assert_eq!(parts.object, whole.object, "{class}.{method} in {:?}", parts.room);
                assert!(parts.part_max <= parts.room.entries, "{} in {:?}", parts.part_max, parts.room);
                pauses[kind as usize] += parts.pauses;
            }
        }
    }
    assert!(pauses.iter().all(|n| *n > 500), "{pauses:?}");
}

/// A shard of 20,000 entries, with the room that an OSD gives.
#[test]
fn no_part_takes_more_than_its_room() {
    let mut c = MemCtx::new();
    c.page = usize::MAX;
    let omap = (0..20_000).map(|i| (format!("b{i}").into(), bucket("b", 1))).collect();
    c.object = Some(MemObject { omap, ..MemObject::default() });
    c.exec("user", "reset_user_stats", input("reset_user_stats")).unwrap();
    let room = Room::default();
    assert!(c.part_max <= room.entries && c.rows_read <= 20_000, "{} {}", c.part_max, c.rows_read);
    assert!(c.pauses >= 20_000 / room.entries);
    let header = c.exec("user", "get_header", v1(|_| {})).unwrap();
    assert_eq!(header.slice(18..26), 20_000u64.to_le_bytes()[..], "each entry counts once");
}

/// Runs a vector of folds until it ends; returns the results and the number of runs.
fn run(
    c: &mut MemCtx,
    room: Room,
    vector: impl Fn(&mut MemCtx) -> ClsResult<Vec<Result<u64, ClsError>>>,
) -> (Vec<Result<u64, ClsError>>, usize) {
    *c.parts() = Parts::default();
    for runs in 1..20_000 {
        c.parts().begin(room);
        match vector(c) {
            Ok(r) => return (r, runs),
            Err(e) => assert_eq!(e, ClsError::Wait),
        }
        assert!(c.parts().paused() && !c.parts().is_empty());
    }
    panic!("the vector does not end in {room:?}");
}

/// Folds that end early, fail at some entry and are allowed to, or count further entries; whatever the room, the vector
/// ends, and with the same results.
#[test]
fn a_vector_of_many_folds_ends() {
    let mut rng = Rng::new(0x666f_6c64);
    for _ in 0..300 {
        let mut c = MemCtx::new();
        c.page = 1 + rng.below(20) as usize;
        let omap = (0..rng.below(60)).map(|i| (format!("{i:03}").into(), Bytes::from(vec![0; rng.below(9) as usize])));
        c.object = Some(MemObject { omap: omap.collect(), ..MemObject::default() });
        let folds: Vec<(u64, u64, usize)> =
            (0..1 + rng.below(8)).map(|_| (rng.below(70), rng.below(140), rng.below(4) as usize)).collect();
        let vector = |c: &mut MemCtx| {
            let mut all = Vec::new();
            for (end, failure, more) in &folds {
                let r = omap_fold(c, b"", b"", 0u64, |c, n, _, _| {
                    c.parts().count(*more);
                    *n += 1;
                    if *n == *failure { fail(EIO) } else { Ok(*n < *end) }
                });
                if r == Err(ClsError::Wait) {
                    return Err(ClsError::Wait);
                }
                all.push(r);
            }
            Ok(all)
        };
        let (want, runs) = run(&mut c, ONE_PART, vector);
        assert_eq!(runs, 1);
        for entries in [1, 2, 3, 4, 7, 16, 50] {
            for bytes in [1, 8, 60, usize::MAX] {
                let (got, _) = run(&mut c, Room { entries, bytes }, vector);
                assert_eq!(got, want, "{entries} entries, {bytes} bytes: {folds:?}");
            }
        }
    }
}

#[test]
fn a_call_with_few_entries_keeps_nothing() {
    let mut c = MemCtx::new();
    let omap = (0..100).map(|i| (format!("{i:03}").into(), Bytes::new())).collect();
    c.object = Some(MemObject { omap, ..MemObject::default() });
    c.parts().begin(Room::default());
    let n = omap_fold(&mut c, b"", b"", 0u64, |_, n, _, _| {
        *n += 1;
        Ok(true)
    });
    assert!(n == Ok(100) && c.parts().is_empty() && !c.parts().paused());
}

/// The number of states that a vector keeps is bounded.
#[test]
fn a_vector_with_too_many_long_folds_is_refused() {
    let mut c = MemCtx::new();
    let omap = (0..10).map(|i| (format!("{i:03}").into(), Bytes::new())).collect();
    c.object = Some(MemObject { omap, ..MemObject::default() });
    let folds = |c: &mut MemCtx| {
        let mut sum = Vec::new();
        for _ in 0..100 {
            match omap_fold(c, b"", b"", 0u64, |_, n, _, _| {
                *n += 1;
                Ok(true)
            }) {
                Err(e) if e.is(E2BIG) => return Ok(vec![Err(e)]),
                r => sum.push(Ok(r?)),
            }
        }
        Ok(sum)
    };
    assert_eq!(run(&mut c, Room { entries: 4, bytes: usize::MAX }, folds).0, [Err(ClsError::from(E2BIG))]);
}

impl Fold for u64 {}

/// The keys that folds collect may be large; what all folds of a vector keep is bounded.
#[test]
fn states_of_many_bytes_are_refused() {
    let each = KEPT_BYTES_MAX / 8;
    let keys = |n: usize| {
        let mut c = MemCtx::new();
        let omap = (0..n as u8).map(|i| (vec![i; each - 100].into(), Bytes::new())).collect();
        c.object = Some(MemObject { omap, ..MemObject::default() });
        let folds = |c: &mut MemCtx| {
            let one = |c: &mut MemCtx| {
                omap_fold(c, b"", b"", Vec::new(), |_, all: &mut Vec<Bytes>, k, _| {
                    all.push(k);
                    Ok(true)
                })
            };
            match one(c).and_then(|a| Ok((a, one(c)?))) {
                Err(e) if e.is(E2BIG) => Ok(vec![Err(e)]),
                r => Ok(vec![Ok(r.map(|(a, b)| (a.len() + b.len()) as u64)?)]),
            }
        };
        run(&mut c, Room { entries: 1, bytes: usize::MAX }, folds).0
    };
    assert_eq!(keys(4), [Ok(8)]);
    assert_eq!(keys(5), [Err(ClsError::from(E2BIG))]);
}

/// Methods that collect entries, instead of summing them up, take a bounded number within a turn.
#[test]
fn a_list_without_an_end_is_refused() {
    let mut c = MemCtx::new();
    c.page = usize::MAX;
    let mut omap: std::collections::BTreeMap<Bytes, Bytes> =
        (0..=ENTRIES_MAX).map(|i| (format!("instance_{i}").into(), Bytes::new())).collect();
    c.object = Some(MemObject { omap: omap.clone(), ..MemObject::default() });
    assert_eq!(c.exec("rbd", "mirror_instances_list", ""), Err(E2BIG));
    omap.pop_last();
    c.object = Some(MemObject { omap, ..MemObject::default() });
    assert!(c.exec("rbd", "mirror_instances_list", "").is_ok());
}
