//! Tests that a store with lost metadata pages is repaired, without wrong data, missing objects, or losses
//! beyond the damage.

use base::device::Device;
use base::rng::Rng;
use base::{Epoch, Eversion, HObject, Uuid};
use bytes::Bytes;
use store::engine::device::{drive, submit};
use store::engine::{self, Config, FormatOptions, OpenError, Rebuilt, Store};
use store::layout::{Layout, SHARDS, reactor_for, shard_for};
use store::mem::MemStore;
use store::testing::compare::{TAG, same, wait};
use store::testing::disk::{Done, SimDisk};
use store::testing::workload::Workload;
use store::{BLOCK, Cid, ObjectStore, Oid, Op, ReadError, Tag, Transaction};

const BYTES: u64 = 64 << 20;

/// Kinds of pages by their first byte. The map of used blocks has no such byte.
const KINDS: [(u8, &str); 8] = [
    (1, "record"),
    (2, "onodes"),
    (3, "omap"),
    (4, "map"),
    (5, "log"),
    (6, "references"),
    (7, "inner"),
    (9, "undo records"),
];

/// A version newer than every log entry.
const FAR: Eversion = Eversion { epoch: Epoch(u32::MAX), version: u64::MAX };

fn config(rng: &mut Rng) -> Config {
    let meta_bytes = [4 << 20, 256 << 20][rng.below(2) as usize];
    let kids_max = [3, 6, 128][rng.below(3) as usize];
    Config { cache_bytes: 0, checkpoint_log_bytes: 4 << 20, meta_bytes, kids_max, ..Config::default() }
}

/// True for objects that belong to one copy of their collection only, which is dropped with them.
fn is_own(oid: &store::ObjectName) -> bool {
    oid.hobj.oid.as_ref() == b"obj0"
}

fn apply(m: &mut MemStore, t: Transaction) {
    m.submit(Tag(0), t);
    while m.poll_event().is_some() {}
}

/// Drops a collection from the model.
fn forget(m: &mut MemStore, cid: Cid) {
    let (all, _) = m.list(TAG, cid, &Oid::new(HObject::min()), None, usize::MAX).unwrap();
    apply(m, Transaction { ops: vec![Op::LogTrim { cid, to: FAR }] });
    let mut t = Transaction::new();
    all.into_iter().for_each(|oid| t.push(Op::Remove { cid, oid }));
    t.push(Op::RemoveCollection { cid });
    apply(m, t);
}

/// Blocks that hold, or once held, pages of that kind.
fn pages(dev: &SimDisk, from: u64, kind: u8) -> Vec<u64> {
    dev.find(from, |b| match kind {
        7 => (b[0] == 7 || b[0] == 8) && (1..4).contains(&b[1]),
        k => b[0] == k && b[8] == k,
    })
}

/// First block of the map of used blocks, which opening needs once the roots are read.
fn map_block(dev: &SimDisk, layout: &Layout) -> Option<u64> {
    let mut dev = dev.clone();
    dev.bad_reads.extend(layout.space_start..layout.space_end);
    match engine::open(&mut dev, &Config::default()) {
        Err(OpenError::Io(_, what)) => what.strip_prefix("map of used blocks at block ")?.parse().ok(),
        _ => None,
    }
}

fn damage(dev: &mut SimDisk, rng: &mut Rng, victim: u64) {
    match rng.below(3) {
        0 => drop(dev.bad_reads.insert(victim)),
        1 => dev.misplace(u64::MAX, victim),
        _ => drop(dev.flips.insert(victim, rng.below(4096 * 8))),
    }
}

/// Applies a transaction of one operation to store and model.
fn both(s: &mut Store, dev: &mut SimDisk, m: &mut MemStore, op: Op) -> Result<(), String> {
    let t = Transaction { ops: vec![op] };
    submit(s, dev, Tag(1), t.clone()).map_err(|e| format!("{t:?}: {e:?}"))?;
    apply(m, t);
    Ok(())
}

/// Whether an object's data and its omap give errors. Readable parts must be correct.
fn lost(s: &mut Store, dev: &mut SimDisk, m: &mut MemStore, cid: Cid, oid: &Oid) -> Result<(bool, bool), String> {
    fn part<T: PartialEq + std::fmt::Debug>(
        got: Result<T, ReadError>,
        want: Result<T, ReadError>,
    ) -> Result<bool, String> {
        match got {
            Err(ReadError::Io { .. }) => Ok(true),
            got if got == want => Ok(false),
            got => {
                let cut = |r: String| r.chars().take(200).collect::<String>();
                Err(format!("reads as {}, not {}", cut(format!("{got:?}")), cut(format!("{want:?}"))))
            }
        }
    }
    let got = wait(s, &mut |s| drive(s, dev), |s| s.read(TAG, cid, oid, 0, u64::MAX));
    let data = part(got, m.read(TAG, cid, oid, 0, u64::MAX))?;
    let all =
        |s: &mut dyn ObjectStore| s.omap_range(TAG, cid, oid, &[], false, usize::MAX, usize::MAX).map(|p| p.entries);
    let got = wait(s, &mut |s| drive(s, dev), |s| all(s));
    Ok((data, part(got, all(m))?))
}

/// True if data is unreadable for another reason than lost metadata.
fn rotten(s: &mut Store, dev: &mut SimDisk, cid: Cid, oid: &Oid) -> bool {
    let got = wait(s, &mut |s| drive(s, dev), |s| s.read(TAG, cid, oid, 0, u64::MAX));
    matches!(got, Err(ReadError::Io { what, .. }) if !what.contains("lost metadata of its own"))
}

/// Rewrites the lost parts of an object. It becomes whole with the last one, not earlier.
fn rewrite(
    s: &mut Store,
    dev: &mut SimDisk,
    m: &mut MemStore,
    cid: Cid,
    oid: &Oid,
    (data, omap): (bool, bool),
    rng: &mut Rng,
) -> Result<(), String> {
    let at = || (cid, oid.clone());
    let size = m.stat(TAG, cid, oid).map_err(|e| format!("{e:?}"))?.size;
    if data {
        // All blocks but the last one.
        let most = (size.div_ceil(BLOCK) - 1) * BLOCK;
        let write = |(cid, oid): (Cid, Oid), len: u64| Op::Write {
            cid,
            oid,
            off: 0,
            data: vec![7; len as usize].into(),
            sums: None,
        };
        if most > 0 {
            both(s, dev, m, write(at(), most))?;
            if lost(s, dev, m, cid, oid)? != (true, omap) {
                return Err(format!("{} reads, though a part of it is not known", oid.hobj));
            }
        }
        let all = size.next_multiple_of(BLOCK) + rng.below(3) * BLOCK;
        if rng.chance(1, 2) {
            both(s, dev, m, write(at(), all))?;
        } else {
            // The object is replaced by other content, without reading it.
            let (cid, oid) = at();
            let cut = Op::Truncate { cid, oid, size: 0 };
            let t = Transaction { ops: vec![cut, write(at(), all - rng.below(BLOCK - 1) - 1)] };
            submit(s, dev, Tag(1), t.clone()).map_err(|e| format!("{t:?}: {e:?}"))?;
            apply(m, t);
        }
    }
    if omap {
        let (cid, oid) = at();
        both(s, dev, m, Op::OmapClear { cid, oid })?;
    }
    match lost(s, dev, m, cid, oid)? {
        (false, false) => Ok(()),
        lost => Err(format!("{} was rewritten and still gives errors: {lost:?}", oid.hobj)),
    }
}

/// Compares a rebuilt store with its former content. Its losses must be those it reports; then it is used.
fn verify(
    dev: &mut SimDisk,
    s: &mut Store,
    lacks: &Rebuilt,
    m: &mut MemStore,
    load: &mut Workload,
    rng: &mut Rng,
) -> Result<(), String> {
    s.fsck(dev, false).errors.first().map_or(Ok(()), |e| Err(e.clone()))?;
    let have = s.collections();
    for (cid, _) in m.collections() {
        if !have.iter().any(|c| c.0 == cid) {
            if !lacks.collections.contains(&cid) && lacks.nameless == 0 {
                return Err(format!("{cid:?} is gone and the repair did not report it"));
            }
            forget(m, cid);
        }
    }
    if lacks.undo_records > 0 {
        // The rest of the undo records is dropped too.
        for (cid, _) in m.collections() {
            both(s, dev, m, Op::LogTrim { cid, to: FAR })?;
        }
        s.check(dev)?;
    }
    for (cid, oid) in &lacks.objects {
        let want = m.attrs(TAG, *cid, oid).map_err(|e| format!("{} was not there: {e:?}", oid.hobj))?;
        let got = wait(s, &mut |s| drive(s, dev), |s| s.attrs(TAG, *cid, oid));
        if got.as_ref() != Ok(&want) {
            return Err(format!("attributes of {}: {got:?}, not {want:?}", oid.hobj));
        }
        let lost = lost(s, dev, m, *cid, oid)?;
        if lost == (false, false) {
            return Err(format!("{} of {cid:?} lost something and reads as it was", oid.hobj));
        }
        if rng.chance(1, 2) || rotten(s, dev, *cid, oid) {
            // As recovery replaces an object.
            both(s, dev, m, Op::Remove { cid: *cid, oid: oid.clone() })?;
        } else {
            rewrite(s, dev, m, *cid, oid, lost, rng)?;
        }
    }
    same(s, m, &mut |s| drive(s, dev), true)?;
    for n in 2..40 {
        let t = load.next(rng, m);
        // A data block may be corrupt as well.
        match submit(s, dev, Tag(n), t.clone()) {
            Ok(()) => apply(m, t),
            Err(ReadError::Io { errno: base::errno::EIO, .. }) => {}
            Err(e) => return Err(format!("{e:?}")),
        }
    }
    same(s, m, &mut |s| drive(s, dev), true)?;
    s.check(dev)
}

/// Store that the transaction belongs to.
fn home<'a>(stores: &'a mut [Store], t: &Transaction) -> &'a mut Store {
    let cid = match t.ops.first() {
        Some(Op::MakeBeside { beside, .. }) => *beside,
        Some(o) => o.cid(),
        None => Cid::Meta,
    };
    let has = stores.iter().position(|s| s.collections().iter().any(|c| c.0 == cid));
    let named = reactor_for(shard_for(cid, SHARDS), stores.len() as u16);
    &mut stores[has.unwrap_or(named.into())]
}

/// Results of the run of one seed.
#[derive(Debug, Default)]
struct Seen {
    whole: u64,
    objects: u64,
    collections: u64,
    refused: u64,
    did_not_open: u64,
    cut: u64,
    map_lost: u64,
    undo_lost: u64,
}

/// Writes a last frame without data, which records all frames before as durable, so that rot can't be taken for a torn
/// tail.
fn write_last_frame(stores: &mut [Store], dev: &mut SimDisk, model: &mut MemStore, tag: Tag) {
    for s in stores {
        if let Some((cid, _)) = s.collections().first().copied() {
            let t = Transaction { ops: vec![Op::PgInfo { cid, info: Bytes::from_static(b"end") }] };
            submit(s, dev, tag, t.clone()).unwrap();
            apply(model, t);
        }
    }
}

/// Damages some pages, and sometimes the map of used blocks.
fn damage_some(dev: &mut SimDisk, layout: &Layout, rng: &mut Rng, seen: &mut Seen) {
    if rng.chance(1, 4)
        && let Some(b) = map_block(dev, layout)
    {
        seen.map_lost += 1;
        damage(dev, rng, b);
    }
    for _ in 0..1 + rng.below(4) {
        let kind = rng.below(KINDS.len() as u64 + 2) as usize;
        let from = match KINDS.get(kind) {
            Some((k, _)) => pages(dev, layout.space_start, *k),
            None => dev.written().into_iter().filter(|b| *b >= layout.space_start && *b < layout.space_end).collect(),
        };
        if let Some(b) = from.get(rng.below(from.len().max(1) as u64) as usize) {
            damage(dev, rng, *b);
        }
    }
}

/// Repairs a device, and is cut off somewhere. Returns what the repair would have reported.
fn interrupted_repair(dev: &mut SimDisk, cfg: &Config, rng: &mut Rng, seen: &mut Seen) -> Rebuilt {
    let mut first = dev.clone();
    first.record = Some(Vec::new());
    let before = engine::rebuild(&mut first, cfg, is_own).unwrap_or_default();
    let record = first.record.take().unwrap_or_default();
    let n = rng.below(record.len() as u64 + 1) as usize;
    dev.replay(&record[..n]);
    if record[..n].iter().any(|d| matches!(d, Done::Write(..))) {
        seen.cut += 1;
    }
    before
}

fn history(seed: u64, seen: &mut Seen) {
    let mut rng = Rng::new(seed);
    let cfg = config(&mut rng);
    let mut dev = SimDisk::new(BYTES);
    let reactors = 1 + rng.below(3) as u16;
    let o = FormatOptions { uuid: Uuid([seed as u8; 16]), reactors, labels: Default::default() };
    engine::format(&mut dev, &o).unwrap();
    let mut stores = engine::open(&mut dev, &Config { reactors, ..cfg.clone() }).unwrap();
    let mut load = Workload::new(&mut rng);
    let mut model = MemStore::new();
    let txns = 40 + rng.below(160);
    let late = rng.below(30).saturating_sub(9);
    for n in 1..=txns {
        let t = load.next(&mut rng, &model);
        submit(home(&mut stores, &t), &mut dev, Tag(n), t.clone()).unwrap();
        apply(&mut model, t);
        if n + late == txns {
            for s in &mut stores {
                s.request_checkpoint();
                drive(s, &mut dev);
            }
        }
    }
    write_last_frame(&mut stores, &mut dev, &mut model, Tag(txns + 1));
    drop(stores);
    let layout = Layout::of(dev.bytes()).unwrap();
    damage_some(&mut dev, &layout, &mut rng, seen);
    let opened = engine::open(&mut dev.clone(), &cfg);
    seen.did_not_open += u64::from(opened.is_err());
    drop(opened);
    let mut before = Rebuilt::default();
    let mut begun = false;
    if rng.chance(1, 2) {
        before = interrupted_repair(&mut dev, &cfg, &mut rng, seen);
        begun = true;
        dev = dev.after_power_cut(&mut rng);
    }
    let mut lacks = match engine::rebuild(&mut dev, &cfg, is_own) {
        Ok(l) => l,
        Err(OpenError::Damaged(e)) => {
            seen.refused += 1;
            assert!(e.contains("log frame"), "seed {seed}: {e}");
            return;
        }
        Err(e) => panic!("seed {seed}: {e}"),
    };
    if begun && !(lacks.pages.is_empty() && lacks.map_pages == 0) {
        // The repair lost nothing more and repeated nothing.
        assert_eq!(lacks, before, "seed {seed}");
    }
    // The first repair may have been complete except for its report.
    lacks.collections.extend(before.collections);
    lacks.nameless += before.nameless;
    lacks.undo_records += before.undo_records;
    // A log record may have turned a damaged object into one of these.
    let own = lacks.objects.iter().find(|o| late == 0 && is_own(&o.1));
    assert_eq!(own, None, "seed {seed}");
    let mut s = engine::open(&mut dev, &cfg)
        .unwrap_or_else(|e| panic!("seed {seed}: rebuilt, {lacks:?}, and does not open: {e}"))
        .remove(0);
    verify(&mut dev, &mut s, &lacks, &mut model, &mut load, &mut rng)
        .unwrap_or_else(|e| panic!("seed {seed}, {lacks:?}: {e}"));
    seen.whole += u64::from(lacks.collections.is_empty() && lacks.nameless == 0 && lacks.objects.is_empty());
    seen.undo_lost += u64::from(lacks.undo_records > 0);
    seen.objects += lacks.objects.len() as u64;
    seen.collections += lacks.collections.len() as u64;
}

#[test]
fn repaired_stores_are_right_and_losses_are_named() {
    let mut seen = Seen::default();
    let set = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let only = set("STORE_REBUILD_SEED");
    let (from, to) = only.map_or((1, set("STORE_REBUILDS").unwrap_or(300)), |s| (s, s));
    for seed in from..=to {
        history(seed, &mut seen);
    }
    println!("{seen:?}");
    if only.is_none() {
        let Seen { whole, objects, collections, did_not_open, cut, map_lost, undo_lost, .. } = seen;
        let lost = objects > 20 && collections > 20 && map_lost > 20 && undo_lost > 20;
        assert!(whole > 20 && did_not_open > 10 && cut > 20 && lost, "{seen:?}");
    }
}
