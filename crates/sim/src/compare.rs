//! Compares all copies of every object, byte by byte, when the cluster is clean and idle.
//!
//! In erasure-coded pools it checks that each shard is as long as the object's size requires, that all have the same
//! attributes, and that the coding shards are the code of the data shards. Then any `k` shards give the same bytes.

use crate::coded::Code;
use crate::node::{Node, osd_node};
use crate::oracle;
use crate::world::World;
use base::crc::{SEED, crc32c};
use base::{OsdId, PgId, ShardId, SpgId};
use bytes::Bytes;
use pg::object::{OI_ATTR, ObjectInfo};
use std::collections::BTreeMap;
use store::{Cid, ObjectStore, Oid, ReadError, Tag};

/// Tag of the comparison's reads, which no PG uses.
pub const TAG: Tag = Tag(u64::MAX);
/// Bytes of one read.
const CHUNK: u64 = 1 << 20;

type Read<T> = Result<T, ReadError>;
/// Checksum of the content of each object.
type Contents = BTreeMap<Oid, u32>;

/// The first difference between copies; `None` if there is none.
pub fn difference(w: &mut World) -> Option<String> {
    let map = oracle::map(w)?;
    let pgs: Vec<PgId> =
        map.pools.iter().flat_map(|(id, p)| (0..p.pg_num).map(|seed| PgId { pool: *id, seed })).collect();
    let code = w.ctx.options.pool.code;
    for pg in pgs {
        if let Some(code) = code.filter(|_| map.pool(pg.pool).is_some_and(|p| p.is_erasure())) {
            let acting: Vec<OsdId> = map.pg_to_up_acting(pg).acting.iter().copied().collect();
            match shards_differ(w, &code, pg, &acting) {
                None => continue,
                found => return found,
            }
        }
        let acting: Vec<OsdId> = map.pg_to_up_acting(pg).acting.iter().copied().collect();
        let mut first: Option<(OsdId, Contents)> = None;
        for osd in acting {
            let found = match contents(w, osd, pg) {
                Ok(c) => c,
                Err(e) => return Some(format!("{pg} on {osd} is unreadable: {e:?}")),
            };
            match &first {
                None => first = Some((osd, found)),
                Some((_, other)) if *other == found => {}
                Some((o, other)) => {
                    let differs = other.keys().chain(found.keys()).find(|k| other.get(*k) != found.get(*k));
                    return Some(format!("copies of {pg} on {o} and {osd} differ: {differs:?}"));
                }
            }
        }
    }
    None
}

fn contents(w: &mut World, osd: OsdId, pg: PgId) -> Read<Contents> {
    let node = osd_node(usize::try_from(osd.0).unwrap_or(0));
    let Node::Osd(o) = &mut w.nodes[node] else { return Ok(Contents::new()) };
    let here = o.process.as_ref().and_then(|p| p.pg(pg)).map(pg::Pg::cid);
    let cid = here.unwrap_or(Cid::Pg(SpgId { pg, shard: ShardId::NONE }));
    let mut all = Contents::new();
    let mut from = Oid::new(base::HObject::min()).at_generation(0);
    loop {
        let (page, next) = o.look(pg, &mut w.ctx, |s| s.list(TAG, cid, &from, None, 128))?;
        for oid in page.into_iter().filter(|o| !o.hobj.oid.is_empty()) {
            let size = o.look(pg, &mut w.ctx, |s| s.stat(TAG, cid, &oid))?.size;
            let mut crc = crc32c(SEED, &size.to_le_bytes());
            let mut off = 0;
            while off < size {
                let len = CHUNK.min(size - off);
                crc = crc32c(crc, &o.look(pg, &mut w.ctx, |s| s.read(TAG, cid, &oid, off, len))?);
                off += len;
            }
            for (k, v) in o.look(pg, &mut w.ctx, |s| s.attrs(TAG, cid, &oid))? {
                crc = crc32c(crc32c(crc, &k), &v);
            }
            crc = crc32c(crc, &o.look(pg, &mut w.ctx, |s| s.omap_header(TAG, cid, &oid))?);
            let mut key = Bytes::new();
            loop {
                let after = !key.is_empty();
                let page = o.look(pg, &mut w.ctx, |s| s.omap_range(TAG, cid, &oid, &key, after, 1024, 1 << 20))?;
                for (k, v) in &page.entries {
                    crc = crc32c(crc32c(crc, k), v);
                }
                match page.entries.last() {
                    Some((k, _)) if page.more => key = k.clone(),
                    _ => break,
                }
            }
            all.insert(oid, crc);
        }
        match next {
            Some(n) => from = n,
            None => return Ok(all),
        }
    }
}

/// Bytes and attributes of each object of a shard.
type Shard = BTreeMap<Oid, (Vec<u8>, Vec<(Bytes, Bytes)>)>;

fn shard(w: &mut World, osd: OsdId, spg: SpgId) -> Read<Shard> {
    let node = osd_node(usize::try_from(osd.0).unwrap_or(0));
    let Node::Osd(o) = &mut w.nodes[node] else { return Ok(Shard::new()) };
    let (pg, cid) = (spg.pg, Cid::Pg(spg));
    let mut all = Shard::new();
    let mut from = Some(Oid::new(base::HObject::min()).at_generation(0));
    while let Some(first) = from {
        let (page, next) = o.look(pg, &mut w.ctx, |s| s.list(TAG, cid, &first, None, 128))?;
        for oid in page.into_iter().filter(|o| !o.hobj.oid.is_empty()) {
            let size = o.look(pg, &mut w.ctx, |s| s.stat(TAG, cid, &oid))?.size;
            let mut data = Vec::new();
            while (data.len() as u64) < size {
                let (off, len) = (data.len() as u64, CHUNK.min(size - data.len() as u64));
                data.extend_from_slice(&o.look(pg, &mut w.ctx, |s| s.read(TAG, cid, &oid, off, len))?);
            }
            let attrs = o.look(pg, &mut w.ctx, |s| s.attrs(TAG, cid, &oid))?;
            all.insert(oid, (data, attrs));
        }
        from = next;
    }
    Ok(all)
}

/// The first fault in the shards of a PG, if there is one.
fn shards_differ(w: &mut World, code: &Code, pg: PgId, acting: &[OsdId]) -> Option<String> {
    let mut shards = Vec::new();
    for (i, osd) in acting.iter().enumerate() {
        match shard(w, *osd, SpgId { pg, shard: ShardId(i as i8) }) {
            Ok(s) => shards.push(s),
            Err(e) => return Some(format!("shard {i} of {pg} on {osd} is unreadable: {e:?}")),
        }
    }
    let all: std::collections::BTreeSet<&Oid> = shards.iter().flat_map(BTreeMap::keys).collect();
    all.into_iter().find_map(|oid| {
        let of: Vec<_> = shards.iter().map(|s| s.get(oid)).collect();
        object_differs(code, &of).map(|what| format!("{oid:?} of {pg} on {acting:?}: {what}"))
    })
}

type Part<'a> = Option<&'a (Vec<u8>, Vec<(Bytes, Bytes)>)>;

fn object_differs(code: &Code, shards: &[Part<'_>]) -> Option<String> {
    let (layout, codec) = (code.layout()?, code.codec()?);
    if let Some(i) = shards.iter().position(Option::is_none) {
        return Some(format!(
            "shard {i} lacks the object; shards with it: {:?}",
            shards.iter().map(Option::is_some).collect::<Vec<_>>()
        ));
    }
    let shards: Vec<_> = shards.iter().copied().flatten().collect();
    let (_, attrs) = shards.first()?;
    let info = attrs.iter().find(|(k, _)| k == OI_ATTR).and_then(|(_, v)| ObjectInfo::from_attr(v).ok());
    // The object that keeps the snapshots of a removed head has no info.
    let size = info.map_or(0, |i| i.size);
    let len = layout.shard_len(size, 0) as usize;
    let mut padded = Vec::new();
    for (i, (data, theirs)) in shards.iter().enumerate() {
        if theirs != attrs {
            let name = theirs.iter().zip(attrs).find(|(a, b)| a != b).map(|(a, _)| a.0.clone());
            return Some(format!("attributes of shard {i} differ: {name:?}"));
        }
        let wants = layout.shard_len(size, i);
        if data.len() as u64 != wants {
            return Some(format!("shard {i} has {} bytes instead of {wants}, the object {size}", data.len()));
        }
        let mut data = data.clone();
        data.resize(len, 0);
        padded.push(data);
    }
    let (data, coding) = padded.split_at(layout.k());
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut right = vec![vec![0u8; len]; coding.len()];
    if let Err(e) = codec.encode(&data, &mut right.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()) {
        return Some(format!("the data shards cannot be encoded: {e}"));
    }
    let (i, at) = coding
        .iter()
        .zip(&right)
        .enumerate()
        .find_map(|(i, (have, right))| have.iter().zip(right).position(|(a, b)| a != b).map(|at| (i, at)))?;
    Some(format!("byte {at} of coding shard {} is not that of the data; the object has {size} bytes", layout.k() + i))
}
