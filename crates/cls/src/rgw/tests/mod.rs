//! A bucket index shard under many gateways: operations that are prepared, completed, cancelled, lost and suggested;
//! versions that are linked and unlinked; listings in between. After every call the header's statistics equal those of
//! the entries (`shard`).

mod shard;

use super::keys;
use super::types::{DirEntry, Key, Meta, Ver, bi, flags};
use crate::testing::MemCtx;
use base::Utime;
use base::errno::EINVAL;
use base::rng::Rng;
use bytes::Bytes;
use shard::{Entries, Shard};
use std::collections::{BTreeMap, BTreeSet};
use wire::{Features, Writer};

fn enc(f: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new(Features::PACIFIC);
    f(&mut w);
    w.into_bytes()
}

/// An existing object's entry as it is stored.
pub(crate) fn stored_entry(name: &str, category: u8, size: u64) -> Bytes {
    let meta = Meta { category, size, accounted_size: size, ..Meta::default() };
    enc(|w| w.put(&DirEntry { key: key(name, ""), exists: true, meta, ..DirEntry::default() }))
}

fn key(name: &str, instance: &str) -> Key {
    Key { name: Bytes::copy_from_slice(name.as_bytes()), instance: Bytes::copy_from_slice(instance.as_bytes()) }
}

fn pick<'a, T>(r: &mut Rng, all: &'a [T]) -> &'a T {
    &all[r.below(all.len() as u64) as usize]
}

fn meta(r: &mut Rng) -> Meta {
    let size = r.below(100_000);
    Meta { category: r.below(3) as u8, size, accounted_size: size + r.below(10), ..Meta::default() }
}

fn seed() -> u64 {
    let s = std::env::var("SEED").ok().and_then(|s| s.parse().ok());
    let s = s.unwrap_or_else(|| u64::from(std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos()));
    println!("SEED={s}");
    s
}

#[test]
fn statistics_equal_the_entries_whatever_gateways_do() {
    let mut r = Rng::new(seed());
    let mut s = Shard::new();
    // Prepared operations: operation, key, tag.
    let mut under_way: Vec<(u8, Key, String)> = Vec::new();
    let mut seen: Entries = Vec::new();
    let mut epoch = 0;
    for n in 0..1000 {
        s.0.pass(r.below(10) as u32);
        s.0.page = 1 + r.below(5) as usize;
        let k = key(&format!("o{}", r.below(12)), "");
        match r.below(10) {
            0..4 => {
                let (op, tag) = (r.below(2) as u8, format!("t{n}"));
                s.prepare(op, &k, &tag).unwrap();
                under_way.push((op, k, tag));
            }
            4..7 if !under_way.is_empty() => {
                let (op, k, tag) = under_way.swap_remove(r.below(under_way.len() as u64) as usize);
                epoch += 1;
                // Late, cancelled, or regular; with other entries to remove, among them a duplicate and the entry
                // itself.
                let at = if r.chance(1, 8) { epoch / 2 } else { epoch };
                let op = if r.chance(1, 8) { 2 } else { op };
                let gone = key(&format!("o{}", r.below(12)), "");
                let remove = if r.chance(1, 4) { vec![gone.clone(), gone, k.clone()] } else { vec![] };
                let m = meta(&mut r);
                let answer = s.complete(op, &k, &tag, at, &m, &remove);
                // Another operation may have removed the entry, or a suggestion may have resolved it.
                assert!(matches!(answer, Ok(_) | Err(EINVAL)), "{answer:?}");
            }
            7 if !under_way.is_empty() => {
                // A gateway fails.
                under_way.swap_remove(r.below(under_way.len() as u64) as usize);
            }
            8 => {
                let (page, ..) = s.page(&Key::default(), 5 + r.below(20) as u32, "", "", true);
                seen = page;
            }
            _ => {
                let mut all: Vec<(u8, DirEntry)> = Vec::new();
                for (_, e) in &seen {
                    let mut e = e.clone();
                    let op = *pick(&mut r, b"ru\xf2\xf5x");
                    e.exists = true;
                    e.meta = meta(&mut r);
                    e.pending.clear();
                    all.push((op, e));
                }
                if let Some(twice) = all.first().cloned() {
                    all.push(twice);
                }
                s.suggest(&all).unwrap();
            }
        }
    }
    // Suggestions resolve uncompleted operations after their timeout.
    s.0.pass(10_000);
    let (page, ..) = s.page(&Key::default(), 1000, "", "", true);
    let all = page.into_iter().map(|(_, e)| (if e.exists { b'u' } else { b'r' }, DirEntry { pending: vec![], ..e }));
    s.suggest(&all.collect::<Vec<_>>()).unwrap();
    let (page, ..) = s.page(&Key::default(), 1000, "", "", true);
    assert!(page.iter().all(|(_, e)| e.exists && e.pending.is_empty()), "{page:?}");
}

#[test]
fn versions_are_listed_newest_first_and_statistics_hold() {
    let mut r = Rng::new(seed());
    let mut s = Shard::new();
    // Versions by name, newest first, with whether they are delete markers.
    let mut model: BTreeMap<String, Vec<(String, bool)>> = BTreeMap::new();
    for n in 0..200 {
        let name = format!("o{}", r.below(5));
        let versions = model.entry(name.clone()).or_default();
        let m = meta(&mut r);
        if r.chance(2, 3) || versions.is_empty() {
            let (v, marker) = (format!("v{n:05}"), r.chance(1, 3));
            let k = key(&name, &v);
            if !marker {
                s.prepare(0, &k, &v).unwrap();
                s.complete(0, &k, &v, n + 1, &m, &[]).unwrap();
            }
            s.link(&k, "olh", marker, 0, &m).unwrap();
            versions.insert(0, (v, marker));
        } else {
            let (v, marker) = versions.remove(r.below(versions.len() as u64) as usize);
            let k = key(&name, &v);
            s.unlink(&k, "olh", 0).unwrap();
            if !marker {
                // The gateway carries out the step: it removes the version's object and entry.
                s.prepare(1, &k, &v).unwrap();
                s.complete(1, &k, &v, 1_000_000 + n, &m, &[]).unwrap();
            }
        }
        let (page, ..) = s.page(&Key::default(), 1000, "", "", true);
        let got: Vec<_> = page
            .iter()
            .map(|(_, e)| {
                let text = |b: &Bytes| String::from_utf8(b.to_vec()).unwrap();
                (text(&e.key.name), text(&e.key.instance), e.is_delete_marker(), e.flags & flags::CURRENT != 0)
            })
            .collect();
        let want: Vec<_> = model
            .iter()
            .flat_map(|(name, vs)| vs.iter().enumerate().map(move |(i, (v, d))| (name.clone(), v.clone(), *d, i == 0)))
            .collect();
        assert_eq!(got, want);
        let visible: Vec<Bytes> = model
            .iter()
            .filter(|(_, vs)| vs.first().is_some_and(|(_, marker)| !marker))
            .map(|(n, _)| Bytes::copy_from_slice(n.as_bytes()))
            .collect();
        assert_eq!(s.list(1 + r.below(4) as u32, "", ""), visible);
    }
}

#[test]
fn the_null_version_and_its_delete_marker_replace_each_other() {
    let mut s = Shard::new();
    let (k, m) = (key("o", ""), Meta { category: 1, size: 10, accounted_size: 10, ..Meta::default() });
    let shown = |s: &mut Shard| {
        let (page, ..) = s.page(&Key::default(), 10, "", "", true);
        page.iter().map(|(_, e)| (e.is_delete_marker(), e.flags & flags::CURRENT != 0)).collect::<Vec<_>>()
    };
    s.prepare(0, &k, "t").unwrap();
    s.complete(0, &k, "t", 1, &m, &[]).unwrap();
    s.link(&k, "olh", true, 0, &Meta::default()).unwrap();
    assert_eq!(shown(&mut s), [(true, true)]);
    s.link(&k, "olh", true, 0, &Meta::default()).unwrap();
    assert_eq!(shown(&mut s), [(true, true)]);
    s.unlink(&k, "olh", 0).unwrap();
    assert_eq!(shown(&mut s), []);
}

#[test]
fn listings_by_prefix_and_delimiter_are_those_of_the_names() {
    let mut r = Rng::new(seed());
    let mut s = Shard::new();
    let mut names = BTreeSet::new();
    for _ in 0..400 {
        let part = |r: &mut Rng| *pick(r, &["a", "b", "ä", "zz", "\u{7f}", "\u{10ffff}"]);
        let mut n = part(&mut r).to_owned();
        for _ in 0..r.below(4) {
            n = n + *pick(&mut r, &["/", "--", ""]) + part(&mut r);
        }
        names.insert(n + &r.below(30).to_string());
    }
    for (i, n) in names.iter().enumerate() {
        let (k, tag) = (key(n, ""), format!("t{i}"));
        s.0.exec("rgw", "bucket_prepare_op", enc(|w| prepare_input(w, &k, &tag))).unwrap();
        s.0.exec("rgw", "bucket_complete_op", enc(|w| complete_input(w, &k, &tag, i as u64 + 1))).unwrap();
    }
    s.check();
    for _ in 0..300 {
        s.0.page = 1 + r.below(300) as usize;
        let (prefix, delimiter) =
            (*pick(&mut r, &["", "a", "a/", "b--", "ä", "zz/a"]), *pick(&mut r, &["", "/", "--", "/a"]));
        let mut want: Vec<&str> = Vec::new();
        for n in names.iter().filter(|n| n.starts_with(prefix)) {
            let common = (!delimiter.is_empty()).then(|| n[prefix.len()..].find(delimiter)).flatten();
            let shown = common.map_or(&n[..], |at| &n[..prefix.len() + at + delimiter.len()]);
            if want.last() != Some(&shown) {
                want.push(shown);
            }
        }
        let got = s.list(1 + r.below(60) as u32, prefix, delimiter);
        let got: Vec<&str> = got.iter().map(|b| std::str::from_utf8(b).unwrap()).collect();
        assert_eq!(got, want, "prefix {prefix:?} delimiter {delimiter:?}");
    }
}

fn prepare_input(w: &mut Writer, k: &Key, tag: &str) {
    w.versioned(7, 5, |w| {
        w.u8(0);
        w.string(tag);
        w.blob(b"");
        w.bool(false);
        w.put(k);
        w.u16(0);
        w.u32(0);
    });
}

fn complete_input(w: &mut Writer, k: &Key, tag: &str, epoch: u64) {
    w.versioned(9, 7, |w| {
        w.u8(0);
        w.u64(epoch);
        w.put(&Meta { category: 1, size: 5, accounted_size: 5, ..Meta::default() });
        w.string(tag);
        w.blob(b"");
        w.u32(0);
        w.put(&Ver { pool: 7, epoch });
        w.bool(false);
        w.put(k);
        w.u16(0);
        w.u32(0);
    });
}

/// The cost of a page depends on its contents, not on the size of the bucket or the omitted entries.
#[test]
fn the_cost_of_a_page_does_not_grow_with_the_bucket() {
    let read_of = |objects: u32| {
        let mut s = Shard::new();
        let o = s.0.object.as_mut().unwrap();
        for n in 0..objects {
            let e = DirEntry {
                key: key(&format!("dir{:02}/o{n:07}", n % 20), ""),
                exists: true,
                meta: Meta { category: 1, size: 1, accounted_size: 1, ..Meta::default() },
                ..DirEntry::default()
            };
            o.omap.insert(e.key.name.clone(), enc(|w| w.put(&e)));
        }
        s.0.page = 1024;
        let mut cost = Vec::new();
        for (start, prefix, delimiter, max) in
            [("", "", "/", 100), ("dir07/", "", "/", 100), ("", "dir11/", "", 100), ("dir13/", "dir13/", "/", 50)]
        {
            s.0.rows_read = 0;
            let (page, ..) = s.page(&key(start, ""), max, prefix, delimiter, false);
            assert!(!page.is_empty());
            cost.push(s.0.rows_read);
        }
        cost
    };
    let (small, large) = (read_of(20_000), read_of(100_000));
    assert_eq!(small, large);
    assert!(large.iter().all(|n| *n <= 2 * 1024), "{large:?}");
}

/// Large entries make short pages; the pages together have all entries.
#[test]
fn a_page_of_large_entries_is_bounded() {
    const ENTRIES: usize = 40;
    let mut s = Shard::new();
    let large = Bytes::from(vec![b'x'; 1 << 20]);
    for n in 0..ENTRIES {
        let meta = Meta { user_data: large.clone(), ..Meta::default() };
        let e = DirEntry { key: key(&format!("o{n:02}"), ""), exists: true, meta, ..DirEntry::default() };
        s.0.object.as_mut().unwrap().omap.insert(e.key.name.clone(), enc(|w| w.put(&e)));
    }
    s.0.page = 4;
    let (mut at, mut names, mut pages) = (Key::default(), Vec::new(), 0);
    loop {
        let (page, more, marker) = s.page(&at, 1000, "", "", false);
        assert!(page.len() <= 20, "{} entries of 1 MiB", page.len());
        names.extend(page.into_iter().map(|(k, _)| k));
        pages += 1;
        if !more {
            break;
        }
        at = marker;
    }
    assert!(names.len() == ENTRIES && pages >= 2);

    let input = |marker: &[u8]| {
        enc(|w| {
            w.versioned(2, 1, |w| {
                w.u32(1000);
                w.blob(b"");
                w.blob(marker);
                w.bool(false);
            });
        })
    };
    let out = s.0.exec("rgw", "bi_list", input(b"")).unwrap();
    assert!(out.len() < 24 << 20, "{} bytes", out.len());
}

/// Header and entries of an index.
fn before(s: &Shard) -> (Bytes, BTreeMap<Bytes, Bytes>) {
    let o = s.0.object.as_ref().unwrap();
    (o.header.clone(), o.omap.clone())
}

/// Calls of a hostile client: each one fails or has its documented effect, and the sums stay equal to the entries.
#[test]
fn statistics_hold_whatever_a_hostile_client_calls() {
    let mut s = Shard::new();
    let k = key("name", "");

    // Completing what was not prepared, or was prepared with another tag.
    let complete = |tag: &str, epoch| enc(|w| complete_input(w, &k, tag, epoch));
    let was = before(&s);
    assert_eq!(s.call("bucket_complete_op", complete("never prepared", 1)), Err(EINVAL));
    assert_eq!(before(&s), was);
    s.call("bucket_prepare_op", enc(|w| prepare_input(w, &k, "a"))).unwrap();
    let was = before(&s);
    assert_eq!(s.call("bucket_complete_op", complete("b", 1)), Err(EINVAL));
    assert_eq!(before(&s), was);
    // Twice.
    s.call("bucket_complete_op", complete("a", 1)).unwrap();
    assert_eq!(s.call("bucket_complete_op", complete("a", 2)), Err(EINVAL));

    // A tag and a name of megabytes, and many operations of one object.
    let long = "t".repeat(4 << 20);
    s.call("bucket_prepare_op", enc(|w| prepare_input(w, &k, &long))).unwrap();
    s.call("bucket_complete_op", complete(&long, 2)).unwrap();
    let named = key(&long, "");
    s.call("bucket_prepare_op", enc(|w| prepare_input(w, &named, "c"))).unwrap();
    s.call("bucket_complete_op", enc(|w| complete_input(w, &named, "c", 3))).unwrap();
    for n in 0..200 {
        s.call("bucket_prepare_op", enc(|w| prepare_input(w, &k, &format!("pending {n}")))).unwrap();
    }
    for n in 0..200 {
        s.call("bucket_complete_op", complete(&format!("pending {n}"), 10 + n)).unwrap();
    }
    // A listing from a marker of a megabyte, by a prefix and a delimiter as long, and of more entries than exist.
    let marker = "m".repeat(1 << 20);
    assert_eq!(s.page(&key(&marker, ""), u32::MAX, "", "", false).0.len(), 2);
    assert!(s.page(&Key::default(), 10, &marker, &marker, true).0.is_empty());

    s.check();
}

/// A header or an entry that was damaged on disk gives an error, and nothing changes.
#[test]
fn a_call_on_a_damaged_index_changes_nothing() {
    let mut s = Shard::new();
    let k = key("name", "");
    s.call("bucket_prepare_op", enc(|w| prepare_input(w, &k, "a"))).unwrap();
    s.call("bucket_complete_op", enc(|w| complete_input(w, &k, "a", 1))).unwrap();
    let complete = |tag: &str, epoch| enc(|w| complete_input(w, &k, tag, epoch));
    let header = s.0.object.as_ref().unwrap().header.clone();
    for damaged in [
        header.slice(..header.len() - 3),
        Bytes::from_static(b"\xff\xff\xff\xff\xff\xff\xff"),
        Bytes::from_static(b"\x08"),
    ] {
        s.0.object.as_mut().unwrap().header = damaged;
        let was = before(&s);
        let list = enc(|w| {
            w.versioned(6, 4, |w| {
                w.u32(10);
                w.blob(b"");
                w.put(&Key::default());
                w.bool(false);
                w.blob(b"");
            });
        });
        for (method, input) in [
            ("bucket_prepare_op", enc(|w| prepare_input(w, &k, "d"))),
            ("bucket_complete_op", complete("d", 99)),
            ("bucket_list", list),
            ("bucket_check_index", Bytes::new()),
            ("bucket_rebuild_index", Bytes::new()),
            ("bi_log_trim", Bytes::new()),
        ] {
            assert!(s.0.exec("rgw", method, input).is_err(), "{method}");
        }
        assert_eq!(before(&s), was);
    }
    s.0.object.as_mut().unwrap().header = header;
    s.check();
    let entry = s.0.object.as_ref().unwrap().omap[&k.name].clone();
    s.0.object.as_mut().unwrap().omap.insert(k.name.clone(), entry.slice(..entry.len() / 2));
    let was = before(&s);
    for (method, input) in
        [("bucket_prepare_op", enc(|w| prepare_input(w, &k, "e"))), ("bucket_complete_op", complete("e", 100))]
    {
        assert!(s.0.exec("rgw", method, input).is_err(), "{method}");
    }
    assert_eq!(before(&s), was);
}

#[test]
fn writes_wait_for_a_resharding_and_are_recorded_in_its_log() {
    let mut s = Shard::new();
    let set = |s: &mut Shard, state: u8| {
        let input = enc(|w| {
            w.versioned(1, 1, |w| {
                w.versioned(3, 1, |w| {
                    w.u8(state);
                    w.blob(b"");
                    w.i32(-1);
                });
            });
        });
        s.call("set_bucket_resharding", input).unwrap();
    };
    let guard = enc(|w| w.versioned(1, 1, |w| w.i32(-16)));
    s.prepare(0, &key("a", ""), "t").unwrap();
    set(&mut s, 1);
    assert_eq!(s.prepare(0, &key("b", ""), "t"), Err(-2300));
    assert_eq!(s.0.exec("rgw", "guard_bucket_resharding", guard.clone()), Err(-16));
    set(&mut s, 3);
    assert_eq!(s.0.exec("rgw", "guard_bucket_resharding", guard), Ok(Bytes::new()));
    s.complete(0, &key("a", ""), "t", 1, &Meta::default(), &[]).unwrap();
    assert_eq!(s.header().reshard_log_entries, 1);
    let logged = s.0.object.as_ref().unwrap().omap.keys().filter(|k| keys::kind(k) == keys::Kind::ReshardLog).count();
    assert_eq!(logged, 1);
    s.call("reshard_log_trim", Bytes::new()).unwrap();
    assert_eq!(s.header().reshard_log_entries, 0);
    assert_eq!(s.call("reshard_log_trim", Bytes::new()), Err(base::errno::ENODATA));
}

#[test]
fn entries_put_at_once_are_counted_once() {
    let mut s = Shard::new();
    let e = DirEntry {
        key: key("a", ""),
        exists: true,
        meta: Meta { category: 1, size: 9, accounted_size: 9, ..Meta::default() },
        ..DirEntry::default()
    };
    let put = |w: &mut Writer, n: u32, check: bool| {
        w.versioned(1, 1, |w| {
            w.u32(n);
            for _ in 0..n {
                w.put(&super::types::BiEntry { kind: bi::PLAIN, idx: "a".into(), data: enc(|w| w.put(&e)) });
            }
            w.bool(check);
        });
    };
    s.call("bi_put_entries", enc(|w| put(w, 2, false))).unwrap();
    s.call("bi_put_entries", enc(|w| put(w, 2, true))).unwrap();
    assert_eq!(s.call("bi_put_entries", enc(|w| put(w, 1025, true))), Err(base::errno::E2BIG));
}

#[test]
fn garbage_falls_due_and_can_be_deferred() {
    let mut c = MemCtx::new();
    let info = |w: &mut Writer, seconds: u32, tag: &str| {
        w.versioned(1, 1, |w| {
            w.u32(seconds);
            w.versioned(1, 1, |w| {
                w.string(tag);
                w.versioned(1, 1, |w| w.u32(0));
                w.put(&Utime::ZERO);
            });
        });
    };
    let due = |c: &mut MemCtx, class: &str, method: &str| {
        let input = enc(|w| {
            w.versioned(2, 1, |w| {
                w.blob(b"");
                w.u32(0);
                w.bool(true);
            });
        });
        let out = c.exec(class, method, input).unwrap();
        u32::from_le_bytes(out[6..10].try_into().unwrap())
    };
    c.exec("rgw", "gc_set_entry", enc(|w| info(w, 10, "a"))).unwrap();
    assert_eq!(due(&mut c, "rgw", "gc_list"), 0);
    c.pass(11);
    assert_eq!(due(&mut c, "rgw", "gc_list"), 1);
    let defer = enc(|w| {
        w.versioned(1, 1, |w| {
            w.u32(100);
            w.string("a");
        });
    });
    c.exec("rgw", "gc_defer_entry", defer).unwrap();
    assert_eq!(due(&mut c, "rgw", "gc_list"), 0);
    c.pass(101);
    assert_eq!(due(&mut c, "rgw", "gc_list"), 1);
    c.exec("rgw", "gc_remove", enc(|w| w.versioned(1, 1, |w| w.put(&vec![Bytes::from_static(b"a")])))).unwrap();
    assert_eq!(due(&mut c, "rgw", "gc_list"), 0);
    assert_eq!(c.object.as_ref().unwrap().omap.len(), 0);

    let mut q = MemCtx::new();
    let init = enc(|w| {
        w.versioned(1, 1, |w| {
            w.u64(100_000);
            w.u64(200);
        });
    });
    q.exec("rgw_gc", "rgw_gc_queue_init", init).unwrap();
    for n in 0..190 {
        q.exec("rgw_gc", "rgw_gc_queue_enqueue", enc(|w| info(w, 10, &format!("tag{n}")))).unwrap();
        // More entries than fit in the head: the rest goes to the xattr.
        q.exec("rgw_gc", "rgw_gc_queue_update_entry", enc(|w| info(w, 1000, &format!("tag{n}")))).unwrap();
    }
    assert!(q.object.as_ref().unwrap().xattrs.contains_key(&b"cls_queue_urgent_data"[..]));
    q.pass(100);
    assert_eq!(due(&mut q, "rgw_gc", "rgw_gc_queue_list_entries"), 0);
}
