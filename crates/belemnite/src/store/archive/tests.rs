//! Tests of exports and imports.

use super::*;
use ::store::engine::{self, FormatOptions, device::drive};
use ::store::testing::{compare, workload::Workload};
use ::store::{Event, Tag, mem::MemStore};
use base::Uuid;
use base::rng::Rng;
use std::path::PathBuf;

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("belemnite-archive-{}-{name}", std::process::id()))
}

fn fresh(path: &Path) -> Offline {
    let file = super::super::disk::prepare(path, Some(128 << 20), false).unwrap();
    let o = FormatOptions { uuid: Uuid([4; 16]), reactors: 1, labels: Default::default() };
    engine::format(&mut super::super::Plain(file), &o).unwrap();
    Offline::open(path).unwrap()
}

/// Clones, large omaps, logs, infos, and collections that were split and merged.
#[test]
fn an_import_restores_everything_of_an_exported_collection() {
    let (a, b) = (path("a"), path("b"));
    let (mut from, mut to) = (fresh(&a), fresh(&b));
    let mut model = MemStore::new();
    let mut rng = Rng::new(20);
    let mut w = Workload::new(&mut rng);
    for n in 0..400 {
        let t = w.next(&mut rng, &model);
        from.submit(t.clone()).unwrap();
        model.submit(Tag(n), t);
        while let Some(e) = model.poll_event() {
            assert!(matches!(e, Event::Durable(_, Ok(()))), "{e:?}");
        }
    }
    let mut objects = 0;
    for (cid, _) in from.store.collections() {
        let file = path("pg");
        let n = export(&mut from, cid, &file, false).unwrap().objects;
        // With any single bit flipped, an import changes nothing.
        let bytes = std::fs::read(&file).unwrap();
        let (at, mut bad) = (rng.below(bytes.len() as u64) as usize, bytes.clone());
        bad[at] ^= 1 << rng.below(8);
        std::fs::write(&file, &bad).unwrap();
        assert!(import(&mut to, &file).is_err(), "byte {at} of {}", bytes.len());
        assert!(!to.store.collections().iter().any(|c| c.0 == cid));
        std::fs::write(&file, &bytes).unwrap();
        assert_eq!(import(&mut to, &file).unwrap(), (cid, n));
        assert!(import(&mut to, &file).is_err(), "read twice");
        objects += n;
        std::fs::remove_file(&file).unwrap();
    }
    assert!(objects > 20, "{objects} objects");
    let Offline { store, dev } = &mut to;
    compare::same(store, &mut model, &mut |s| drive(s, dev), false).unwrap();
    store.check(dev).unwrap();
    drop((from, to));
    std::fs::remove_file(&a).unwrap();
    std::fs::remove_file(&b).unwrap();
}

/// The largest object that clients may make, also into a device whose log takes little at once.
#[test]
fn the_largest_metadata_is_exported_and_imported() {
    const KEYS: usize = 3000;
    let make = |name: &str, bytes: u64| {
        let path = path(name);
        let file = super::super::disk::prepare(&path, Some(bytes), false).unwrap();
        let o = FormatOptions { uuid: Uuid([4; 16]), reactors: 1, labels: Default::default() };
        engine::format(&mut super::super::Plain(file), &o).unwrap();
        (Offline::open(&path).unwrap(), path)
    };
    let ((mut from, a), (mut to, b), (mut small, c)) =
        (make("largest", 9 << 30), make("largest-to", 9 << 30), make("largest-small", 64 << 20));
    let cid = Cid::Pg(PgId::new(1, 0).into());
    let oid = |n: &str| Oid::new(HObject { oid: n.to_owned().into(), pool: PoolId(1), ..HObject::min() });
    let (large, many) = (oid("large"), oid("many"));
    let value = |n: usize| Bytes::from(vec![7; n]);
    let rest = sizes::OBJECT_ATTRS_MAX - sizes::VALUE_MAX - 2 * (sizes::ENTRY_OVERHEAD + 1);
    let attrs = vec![(Bytes::from_static(b"a"), value(sizes::VALUE_MAX)), (Bytes::from_static(b"b"), value(rest))];
    let key = |i: usize| Bytes::from(format!("{i:08}"));
    let entries: Vec<_> = (0..KEYS).map(|i| (key(i), value(300))).collect();
    for op in [
        Op::MakeCollection { cid, bits: 0 },
        Op::SetAttrs { cid, oid: large.clone(), attrs: attrs.clone() },
        Op::OmapSetHeader { cid, oid: large.clone(), header: value(sizes::VALUE_MAX) },
        Op::OmapSet { cid, oid: large.clone(), entries: vec![(key(1), value(sizes::VALUE_MAX))] },
        Op::OmapSet { cid, oid: many.clone(), entries: entries.clone() },
        Op::SetAttrs { cid, oid: many.clone(), attrs: entries.clone() },
    ] {
        from.submit(Transaction { ops: vec![op] }).unwrap();
    }
    let file = path("pg-largest");
    export(&mut from, cid, &file, false).unwrap();
    assert_eq!(import(&mut to, &file).unwrap(), (cid, 2));
    assert_eq!(to.read(|s, t| s.attrs(t, cid, &large)).unwrap(), attrs);
    assert_eq!(to.read(|s, t| s.omap_header(t, cid, &large)).unwrap().len(), sizes::VALUE_MAX);
    let found = to.read(|s, t| s.omap_get(t, cid, &large, &key(1))).unwrap();
    assert_eq!(found.map(|v| v.len()), Some(sizes::VALUE_MAX));
    assert_eq!(to.read(|s, t| s.attrs(t, cid, &many)).unwrap(), entries);
    // The small device says which object it can't take.
    let e = import(&mut small, &file).unwrap_err().to_string();
    assert!(e.contains("large") && e.contains("takes at once"), "{e}");
    drop((from, to, small));
    for p in [a, b, c, file] {
        std::fs::remove_file(p).unwrap();
    }
}

#[test]
fn unreadable_objects_are_left_out_only_with_skip_damaged() {
    let (a, b, file) = (path("rot"), path("sound"), path("pg-rot"));
    let mut from = fresh(&a);
    let cid = Cid::Pg(PgId::new(1, 0).into());
    let oid = |n: &str| Oid::new(HObject { oid: n.to_owned().into(), pool: PoolId(1), ..HObject::min() });
    let mut t = Transaction { ops: vec![Op::MakeCollection { cid, bits: 0 }] };
    for (n, byte) in [("first", 1u8), ("rotten", 2), ("last", 3)] {
        t.push(Op::Write { cid, oid: oid(n), off: 0, data: vec![byte; 8192].into(), sums: None });
    }
    t.push(Op::PgInfo { cid, info: Bytes::from_static(b"info") });
    from.submit(t).unwrap();
    from.close();
    let mut bytes = std::fs::read(&a).unwrap();
    let at = bytes.chunks(4096).position(|b| b.iter().all(|x| *x == 2)).unwrap() * 4096;
    bytes[at] = 0;
    std::fs::write(&a, bytes).unwrap();

    let mut from = Offline::open(&a).unwrap();
    let e = export(&mut from, cid, &file, false).unwrap_err().to_string();
    assert!(e.contains("rotten") && e.contains("--skip-damaged"), "{e}");
    assert!(!file.exists());
    let done = export(&mut from, cid, &file, true).unwrap();
    assert_eq!((done.objects, done.left_out.len()), (2, 1));
    assert_eq!(done.left_out[0].0, oid("rotten").hobj);
    let mut to = fresh(&b);
    assert_eq!(import(&mut to, &file).unwrap(), (cid, 2));
    let (all, _) = to.read(|s, t| s.list(t, cid, &Oid::new(HObject::min()), None, 9)).unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(to.read(|s, t| s.read(t, cid, &oid("last"), 0, u64::MAX)).unwrap(), vec![3; 8192]);
    [a, b, file].iter().for_each(|f| std::fs::remove_file(f).unwrap());
}

/// A file of a later program is refused before anything is changed; one of the release before is read.
#[test]
fn files_of_other_versions_are_read_or_refused_as_such() {
    let (a, file) = (path("versions"), path("pg-versions"));
    let mut to = fresh(&a);
    let earlier = include_bytes!("../../../tests/fixtures/0.1-a1f98713.pg");
    let record = |tag: u8, body: &[u8]| {
        let crc = crc32c(crc32c(SEED, &[tag]), body);
        [&[tag][..], &(body.len() as u32).to_le_bytes(), &crc.to_le_bytes(), body].concat()
    };
    let words = |compat, ro_compat, incompat| FeatureWords { compat, ro_compat, incompat }.to_bytes();
    let with = |r: Vec<u8>| [&earlier[..MAGIC.len()], &r, &earlier[MAGIC.len()..]].concat();
    let next = [b"belemnite pg 2\n", &earlier[MAGIC.len()..]].concat();
    for bytes in [
        with(record(FEATURES, &words(0, 0, 1))),
        with(record(FEATURES, &words(0, 1 << 63, 0))),
        with(record(FEATURES + 1, b"")),
        next,
    ] {
        std::fs::write(&file, bytes).unwrap();
        let e = import(&mut to, &file).unwrap_err().to_string();
        assert!(e.contains("made by a newer version of Belemnite"), "{e}");
        assert!(to.store.collections().is_empty());
    }
    std::fs::write(&file, with(record(FEATURES, &words(7, 0, 0)))).unwrap();
    let (cid, n) = import(&mut to, &file).unwrap();
    assert_eq!(n, 3);
    to.submit(Transaction { ops: vec![Op::MakeCollection { cid: Cid::Meta, bits: 0 }] }).unwrap();
    assert!(to.store.collections().iter().any(|c| c.0 == cid));
    drop(to);
    // The same file without words, and a store that may only be read.
    let mut to = {
        std::fs::remove_file(&a).unwrap();
        fresh(&a)
    };
    std::fs::write(&file, earlier).unwrap();
    assert_eq!(import(&mut to, &file).unwrap(), (cid, 3));
    to.close();
    let set = |ro_compat, incompat| {
        let mut dev = super::super::Plain(super::super::disk::open(&a).unwrap());
        ::store::testing::set_features(&mut dev, FeatureWords { compat: 0, ro_compat, incompat });
    };
    set(2, 0);
    let before = std::fs::read(&a).unwrap();
    assert!(Offline::open(&a).err().unwrap().to_string().contains("newer version of Belemnite"));
    std::fs::remove_file(&file).unwrap();
    let mut from = Offline::open_to_read(&a).unwrap();
    assert_eq!(export(&mut from, cid, &file, false).unwrap().objects, 3);
    drop(from);
    assert!(std::fs::read(&a).unwrap() == before, "exporting wrote to the device");
    assert_eq!(std::fs::read(&file).unwrap(), earlier);
    set(0, 2);
    for open in [Offline::open, Offline::open_to_read] {
        let e = open(&a).err().unwrap().to_string();
        assert!(e.contains("made by a newer version of Belemnite") && !e.contains("repair"), "{e}");
    }
    [a, file].iter().for_each(|f| std::fs::remove_file(f).unwrap());
}

#[test]
fn log_entries_of_an_imported_shard_cannot_be_undone() {
    let pg = base::PgId::new(1, 4);
    let info = pg::info::PgInfo { last_update: Eversion::new(3, 4), ..Default::default() };
    let last = Eversion::new(3, 9);
    let whole = without_undo(Cid::Pg(pg.into()), info.to_blob(), last).unwrap();
    assert_eq!(whole, info.to_blob());
    let shard = Cid::Pg(SpgId { pg, shard: ShardId(2) });
    let there = without_undo(shard, info.to_blob(), last).unwrap();
    assert_eq!(pg::info::PgInfo::from_blob(&there).unwrap().undo_floor, last);
    assert!(without_undo(shard, Bytes::from_static(b"x"), last).is_err());
    assert!(without_undo(shard, Bytes::new(), last).unwrap().is_empty(), "a void collection stays one");
}
