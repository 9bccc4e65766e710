//! Archive files with one collection: a header and records with lengths and checksums. A file without the last record
//! is invalid.
//!
//! Header: `belemnite pg 1\n`. Record: tag u8, length u32, crc32c u32 of tag and body, body. Integers are little-endian, byte
//! strings a u32 length and the bytes. Objects come in order: an object record, then its data, attributes and omap.
//!
//! A file that uses features which not every reader of version 1 knows begins with a record of feature words
//! ([`base::features`]). It is left out if no feature is set, so that files stay readable for earlier programs. A program
//! changes nothing before it has verified the whole file, and refuses one with unknown features or unknown records. It has
//! no use for a file that it may only read, so read-only compat features count like incompat ones.

use super::{Error, Offline};
use ::store::{Cid, ObjectStore, Oid, Op, Transaction};
use base::crc::{SEED, crc32c};
use base::errno::E2BIG;
use base::sizes;
use base::{Epoch, Eversion, FeatureWords, HObject, PgId, PoolId, ShardId, SnapId, SpgId};
use bytes::Bytes;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

const MAGIC: &[u8; 15] = b"belemnite pg 1\n";
/// Place of the version in the header.
const MAGIC_VERSION_AT: usize = 13;
/// Largest record in bytes that is accepted: one with the largest value that an object may have.
const RECORD_MAX: u32 = (sizes::VALUE_MAX + (1 << 20)) as u32;
/// Bytes of data in a record, and approximately of attributes or omap entries.
const PIECE: u64 = 1 << 20;

const COLLECTION: u8 = 1;
const INFO: u8 = 2;
const LOG: u8 = 3;
const OBJECT: u8 = 4;
const DATA: u8 = 5;
const ATTRS: u8 = 6;
const HEADER: u8 = 7;
const OMAP: u8 = 8;
const END: u8 = 9;
const FEATURES: u8 = 10;

/// Features of files that this program knows; no bit is defined yet.
const KNOWN: FeatureWords = FeatureWords { compat: 0, ro_compat: 0, incompat: 0 };

#[derive(Default)]
struct Body(Vec<u8>);

impl Body {
    fn u32(mut self, v: u32) -> Self {
        self.0.extend_from_slice(&v.to_le_bytes());
        self
    }
    fn u64(mut self, v: u64) -> Self {
        self.0.extend_from_slice(&v.to_le_bytes());
        self
    }
    fn bytes(mut self, v: &[u8]) -> Self {
        self = self.u32(v.len() as u32);
        self.0.extend_from_slice(v);
        self
    }
    fn pairs(mut self, p: &[(Bytes, Bytes)]) -> Self {
        self = self.u32(p.len() as u32);
        for (k, v) in p {
            self = self.bytes(k).bytes(v);
        }
        self
    }
}

struct Out(BufWriter<File>);

impl Out {
    fn put(&mut self, tag: u8, body: &Body) -> Result<(), Error> {
        let crc = crc32c(crc32c(SEED, &[tag]), &body.0);
        self.0.write_all(&[tag])?;
        self.0.write_all(&(body.0.len() as u32).to_le_bytes())?;
        self.0.write_all(&crc.to_le_bytes())?;
        Ok(self.0.write_all(&body.0)?)
    }
}

/// Result of an export.
#[derive(Debug, Default)]
pub(super) struct Exported {
    pub(super) objects: u64,
    /// Unreadable objects, each with the error.
    pub(super) left_out: Vec<(HObject, Error)>,
}

/// Writes a collection to a new file. With `skip_damaged`, unreadable objects are left out. Otherwise they fail the
/// export, which leaves no file behind.
pub(super) fn export(s: &mut Offline, cid: Cid, path: &Path, skip_damaged: bool) -> Result<Exported, Error> {
    let bits = s.store.collections().iter().find(|c| c.0 == cid).map(|c| c.1).ok_or("no such collection")?;
    let file = File::options().write(true).create_new(true).open(path)?;
    write(s, cid, bits, Out(BufWriter::new(file)), skip_damaged).inspect_err(|_| drop(std::fs::remove_file(path)))
}

fn write(s: &mut Offline, cid: Cid, bits: u32, mut out: Out, skip_damaged: bool) -> Result<Exported, Error> {
    out.0.write_all(MAGIC)?;
    let (pool, seed, shard) = match cid {
        Cid::Meta => (u64::MAX, 0, 0),
        Cid::Pg(p) => (p.pg.pool.0 as u64, p.pg.seed, p.shard.0 as u8),
    };
    out.put(COLLECTION, &Body::default().u64(pool).u32(seed).u32(u32::from(shard)).u32(bits))?;
    let records = s.read(|s, t| s.log_entries(t, cid, Eversion::default()))?;
    if let Some(info) = s.read(|s, t| s.pg_info(t, cid))? {
        let last = records.last().map(|(v, _)| *v).unwrap_or_default();
        out.put(INFO, &Body::default().bytes(&without_undo(cid, info, last)?))?;
    }
    for (v, e) in records {
        out.put(LOG, &Body::default().u32(v.epoch.0).u64(v.version).bytes(&e))?;
    }
    let mut done = Exported::default();
    s.each_object(cid, |s, o| {
        if o.generation != Oid::NO_GEN {
            return Ok(());
        }
        // A PG's own metadata object is never left out: without it the copy is useless.
        if skip_damaged && !super::is_own(o) {
            // Read the object twice, because records that are written cannot be taken back.
            if let Err(e) = export_object(s, cid, o, &mut |_, _| Ok(())) {
                done.left_out.push((o.hobj.clone(), e));
                return Ok(());
            }
        }
        done.objects += 1;
        export_object(s, cid, o, &mut |tag, body| out.put(tag, body))
            .map_err(|e| format!("{}: {e} (--skip-damaged leaves out objects that cannot be read)", o.hobj).into())
    })?;
    out.put(END, &Body::default().u64(done.objects))?;
    let file = out.0.into_inner().map_err(|e| e.to_string())?;
    file.sync_all()?;
    Ok(done)
}

/// The PG info for an archive. Undo records stay behind, so no log entry can be undone after an import.
fn without_undo(cid: Cid, info: Bytes, last: Eversion) -> Result<Bytes, Error> {
    if info.is_empty() || pg::pg_of(cid).is_none_or(|p| p.shard == ShardId::NONE) {
        return Ok(info);
    }
    let mut i = pg::info::PgInfo::from_blob(&info).map_err(|e| format!("info of the PG: {e}"))?;
    i.undo_floor = i.last_update.max(last);
    Ok(i.to_blob())
}

/// Passes the records of an object to `put`.
fn export_object(
    s: &mut Offline,
    cid: Cid,
    o: &Oid,
    put: &mut dyn FnMut(u8, &Body) -> Result<(), Error>,
) -> Result<(), Error> {
    let h = &o.hobj;
    let size = s.read(|s, t| s.stat(t, cid, o))?.size;
    let b = Body::default().u64(h.pool.0 as u64).u32(h.hash).u64(h.snap.0).u32(u32::from(h.max));
    let b = b.bytes(&h.oid).bytes(&h.key).bytes(&h.nspace).u64(o.generation).u32(u32::from(o.shard.0 as u8)).u64(size);
    put(OBJECT, &b)?;
    for (off, len) in s.read(|s, t| s.extents(t, cid, o, 0, u64::MAX))? {
        let mut at = off;
        while at < off + len {
            let n = PIECE.min(off + len - at);
            let data = s.read(|s, t| s.read(t, cid, o, at, n))?;
            put(DATA, &Body::default().u64(at).bytes(&data))?;
            at += n;
        }
    }
    let attrs = s.read(|s, t| s.attrs(t, cid, o))?;
    for page in pages(&attrs) {
        put(ATTRS, &Body::default().pairs(page))?;
    }
    let header = s.read(|s, t| s.omap_header(t, cid, o))?;
    if !header.is_empty() {
        put(HEADER, &Body::default().bytes(&header))?;
    }
    let mut from = Bytes::new();
    let mut after = false;
    loop {
        let p = s.read(|s, t| s.omap_range(t, cid, o, &from, after, 4096, PIECE as usize))?;
        if let Some(last) = p.entries.last() {
            (from, after) = (last.0.clone(), true);
            put(OMAP, &Body::default().pairs(&p.entries))?;
        }
        if !p.more {
            return Ok(());
        }
    }
}

/// Attributes in pages of about [`PIECE`] bytes; one page if there are none.
fn pages(all: &[(Bytes, Bytes)]) -> Vec<&[(Bytes, Bytes)]> {
    let (mut pages, mut from, mut bytes) = (Vec::new(), 0, 0);
    for (i, (k, v)) in all.iter().enumerate() {
        let more = (k.len() + v.len()) as u64;
        if i > from && bytes + more > PIECE {
            pages.push(&all[from..i]);
            (from, bytes) = (i, 0);
        }
        bytes += more;
    }
    pages.push(&all[from..]);
    pages
}

struct In<'a>(&'a [u8]);

impl In<'_> {
    fn take(&mut self, n: usize) -> Result<&[u8], Error> {
        if n > self.0.len() {
            return Err("a record ends early".into());
        }
        let (a, b) = self.0.split_at(n);
        self.0 = b;
        Ok(a)
    }
    fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into()?))
    }
    fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into()?))
    }
    fn bytes(&mut self) -> Result<Bytes, Error> {
        let n = self.u32()? as usize;
        Ok(Bytes::copy_from_slice(self.take(n)?))
    }
    fn pairs(&mut self) -> Result<Vec<(Bytes, Bytes)>, Error> {
        let n = self.u32()? as usize;
        if n > self.0.len() / 8 {
            return Err("a record ends early".into());
        }
        (0..n).map(|_| Ok((self.bytes()?, self.bytes()?))).collect()
    }
    fn oid(&mut self) -> Result<Oid, Error> {
        let (pool, hash, snap, max) = (self.u64()?, self.u32()?, self.u64()?, self.u32()?);
        let (oid, key, nspace) = (self.bytes()?, self.bytes()?, self.bytes()?);
        let hobj = HObject { oid, key, nspace, snap: SnapId(snap), hash, max: max != 0, pool: PoolId(pool as i64) };
        Ok(Oid { hobj, generation: self.u64()?, shard: ShardId(self.u32()? as u8 as i8) })
    }
}

fn record(r: &mut impl Read) -> Result<(u8, Vec<u8>), Error> {
    let mut head = [0; 9];
    r.read_exact(&mut head)?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (len, crc) = (word(1), word(5));
    if len > RECORD_MAX {
        return Err("a record exceeds the size limit".into());
    }
    let mut body = vec![0; len as usize];
    r.read_exact(&mut body)?;
    if crc32c(crc32c(SEED, &head[..1]), &body) != crc {
        return Err("a record fails its checksum".into());
    }
    Ok((head[0], body))
}

/// Verifies a file to its end.
fn verify(path: &Path) -> Result<(), Error> {
    let mut r = open(path)?;
    loop {
        let (tag, body) = record(&mut r)?;
        match tag {
            END => return Ok(()),
            FEATURES => {
                let words = FeatureWords::from_bytes(&body).ok_or("a record ends early")?;
                words.check(&KNOWN, true).map_err(|e| format!("{}: {e}", path.display()))?;
            }
            COLLECTION..END => {}
            _ => {
                return Err(format!(
                    "{}: made by a newer version of Belemnite: it has records of type {tag}, which this version does not know",
                    path.display()
                )
                .into());
            }
        }
    }
}

fn open(path: &Path) -> Result<BufReader<File>, Error> {
    let mut r = BufReader::new(File::open(path)?);
    let mut magic = [0; MAGIC.len()];
    r.read_exact(&mut magic)?;
    if magic.starts_with(&MAGIC[..MAGIC_VERSION_AT]) && &magic != MAGIC {
        return Err(format!(
            "{}: made by a newer version of Belemnite, in a format that this version does not know",
            path.display()
        )
        .into());
    }
    if &magic != MAGIC {
        return Err(format!("{}: not an exported collection", path.display()).into());
    }
    Ok(r)
}

/// Imports a collection from a file; returns its id and the number of objects. The whole file is verified before any
/// change. The PG info is written last, so that a partial import does not look like a copy.
pub(super) fn import(s: &mut Offline, path: &Path) -> Result<(Cid, u64), Error> {
    verify(path)?;
    let mut r = open(path)?;
    let mut cid = None;
    let mut now: Option<Oid> = None;
    let mut info = None;
    let mut n = 0;
    loop {
        let (tag, body) = record(&mut r)?;
        let mut b = In(&body);
        let c = match (tag, cid) {
            (FEATURES, _) => continue,
            (COLLECTION, None) => {
                let (pool, seed, shard, bits) = (b.u64()?, b.u32()?, b.u32()?, b.u32()?);
                let pg = PgId { pool: PoolId(pool as i64), seed };
                let c =
                    if pool == u64::MAX { Cid::Meta } else { Cid::Pg(SpgId { pg, shard: ShardId(shard as u8 as i8) }) };
                if s.store.collections().iter().any(|x| x.0 == c) {
                    return Err(format!("{} exists already", super::name(c)).into());
                }
                s.submit(Transaction { ops: vec![Op::MakeCollection { cid: c, bits }] })?;
                cid = Some(c);
                continue;
            }
            (_, Some(c)) => c,
            _ => return Err("the file does not begin with a collection record".into()),
        };
        let oid = || now.clone().ok_or("the file has data before its first object");
        let op = match tag {
            INFO => {
                info = Some(b.bytes()?);
                continue;
            }
            LOG => {
                let version = Eversion { epoch: Epoch(b.u32()?), version: b.u64()? };
                Op::LogAppend { cid: c, version, entry: b.bytes()? }
            }
            OBJECT => {
                let o = b.oid()?;
                let size = b.u64()?;
                n += 1;
                now = Some(o.clone());
                Op::Truncate { cid: c, oid: o, size }
            }
            DATA => Op::Write { cid: c, oid: oid()?, off: b.u64()?, data: b.bytes()? },
            ATTRS => Op::SetAttrs { cid: c, oid: oid()?, attrs: b.pairs()? },
            HEADER => Op::OmapSetHeader { cid: c, oid: oid()?, header: b.bytes()? },
            OMAP => Op::OmapSet { cid: c, oid: oid()?, entries: b.pairs()? },
            END => {
                if let Some(info) = info {
                    s.submit(Transaction { ops: vec![Op::PgInfo { cid: c, info }] })?;
                }
                return Ok((c, n));
            }
            _ => return Err(format!("record of unknown type {tag}").into()),
        };
        put(s, op)?;
    }
}

/// Applies a change of a file, in parts if the log of the store takes less at once.
fn put(s: &mut Offline, op: Op) -> Result<(), Error> {
    let (first, rest) = match &op {
        _ if op.frame_bytes() <= s.store.frame_max() => return s.submit(Transaction { ops: vec![op] }),
        Op::SetAttrs { cid, oid, attrs } if attrs.len() > 1 => {
            let (a, b) = attrs.split_at(attrs.len() / 2);
            let of = |attrs: &[_]| Op::SetAttrs { cid: *cid, oid: oid.clone(), attrs: attrs.to_vec() };
            (of(a), of(b))
        }
        Op::OmapSet { cid, oid, entries } if entries.len() > 1 => {
            let (a, b) = entries.split_at(entries.len() / 2);
            let of = |entries: &[_]| Op::OmapSet { cid: *cid, oid: oid.clone(), entries: entries.to_vec() };
            (of(a), of(b))
        }
        _ => {
            let who = op.oid().map(|o| format!("{}: ", o.hobj)).unwrap_or_default();
            return Err(format!(
                "{who}a value of {} bytes exceeds what the log of this device takes at once ({}; {})",
                op.frame_bytes(),
                s.store.frame_max(),
                base::errno::name(E2BIG)
            )
            .into());
        }
    };
    put(s, first)?;
    put(s, rest)
}

#[cfg(test)]
mod tests {
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
            t.push(Op::Write { cid, oid: oid(n), off: 0, data: vec![byte; 8192].into() });
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
        let earlier = include_bytes!("../../tests/fixtures/0.1-a1f98713.pg");
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
}
