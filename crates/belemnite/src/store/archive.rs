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
use crate::cli::table::Progress;
use ::store::{Cid, ObjectName, ObjectStore, Oid, Op, Transaction};
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

struct Out(BufWriter<File>, Progress);

impl Out {
    fn put(&mut self, tag: u8, body: &Body) -> Result<(), Error> {
        let crc = crc32c(crc32c(SEED, &[tag]), &body.0);
        self.0.write_all(&[tag])?;
        self.0.write_all(&(body.0.len() as u32).to_le_bytes())?;
        self.0.write_all(&crc.to_le_bytes())?;
        self.0.write_all(&body.0)?;
        self.1.add(body.0.len() as u64);
        Ok(())
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
    let (_, bytes, omap) = s.store.collection_usage(cid);
    let progress = Progress::new(format!("export {}", super::name(cid)), Some(bytes + omap));
    write(s, cid, bits, Out(BufWriter::new(file), progress), skip_damaged)
        .inspect_err(|_| drop(std::fs::remove_file(path)))
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
        Ok(ObjectName { hobj, generation: self.u64()?, shard: ShardId(self.u32()? as u8 as i8) }.into())
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
    let mut progress = Progress::new(format!("import {}", path.display()), Some(std::fs::metadata(path)?.len()));
    let mut cid = None;
    let mut now: Option<Oid> = None;
    let mut info = None;
    let mut n = 0;
    loop {
        let (tag, body) = record(&mut r)?;
        progress.add(body.len() as u64);
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
            DATA => Op::Write { cid: c, oid: oid()?, off: b.u64()?, data: b.bytes()?, sums: None },
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
mod tests;
