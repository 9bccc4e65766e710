//! Are all copies of every object the same, byte by byte, when all is whole and nobody writes?

use crate::node::{Node, osd_node};
use crate::oracle;
use crate::world::World;
use base::crc::{SEED, crc32c};
use base::{OsdId, PgId, ShardId, SpgId};
use bytes::Bytes;
use std::collections::BTreeMap;
use store::{Cid, ObjectStore, Oid, ReadError, Tag};

/// Tag of the comparison's reads; no PG has it.
pub const TAG: Tag = Tag(u64::MAX);
/// Bytes read at once.
const CHUNK: u64 = 1 << 20;

type Read<T> = Result<T, ReadError>;
/// What an object holds, as a number.
type Contents = BTreeMap<Oid, u32>;

/// The first difference between copies; `None` if there is none.
pub fn difference(w: &mut World) -> Option<String> {
    let map = oracle::map(w)?;
    let pgs: Vec<PgId> =
        map.pools.iter().flat_map(|(id, p)| (0..p.pg_num).map(|seed| PgId { pool: *id, seed })).collect();
    for pg in pgs {
        let acting: Vec<OsdId> = map.pg_to_up_acting(pg).acting.iter().copied().collect();
        let mut first: Option<(OsdId, Contents)> = None;
        for osd in acting {
            let found = match contents(w, osd, pg) {
                Ok(c) => c,
                Err(e) => return Some(format!("{pg} on {osd} does not read: {e:?}")),
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
    let mut from = Oid { generation: 0, ..Oid::new(base::HObject::min()) };
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
