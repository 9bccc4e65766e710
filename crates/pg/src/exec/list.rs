//! Operations on the PG itself: lists of objects in hash order, with filters.
//!
//! A list has every object of the PG, also those whose newest version this copy lacks. An unfound object is listed,
//! since reads of it wait rather than fail. A filter needs the object itself. So the page ends before an object that
//! only other copies have. If that is the first one, the list waits for its recovery. An unfound object matches no
//! filter.

use super::{Env, Step};
use crate::limits::{PGLS_ENTRIES_MAX, PGLS_LOOKS_MAX};
use base::errno::{EINVAL, EOPNOTSUPP};
use base::{HObject, PgId, SnapId};
use bytes::Bytes;
use std::collections::BTreeMap;
use store::{Cid, ObjectStore, Oid, ReadError, Tag};
use wire::codec::Result as Decoded;
use wire::msg::{OpCode, OpVec, OsdOp};
use wire::types::{ListObject, PgNlsReply};
use wire::{Encode, Features, Reader, Writer};

/// Namespace argument that selects all namespaces.
const ALL_NAMESPACES: &[u8] = b"\x01";
/// Store entries read per step; clones and other namespaces count, too.
const SCAN_BATCH: usize = 1024;

/// Attribute with the backtrace of a CephFS inode: the directories above it.
const PARENT_ATTR: &[u8] = b"_parent";

/// Attribute with the tag that `cephfs-data-scan` sets on files.
const TAG_ATTR: &[u8] = b"_scrub_tag";
/// Suffix of the name of a file's first object.
const FIRST_OBJECT: &[u8] = b".00000000";

/// Filter of a list.
enum Filter {
    /// All objects match.
    None,
    /// Objects whose attribute, by its stored name, has this value.
    Plain { attr: Bytes, value: Bytes },
    /// CephFS inodes below a directory.
    Parent { dir: u64 },
    /// First objects of CephFS files that do not have this tag; with an empty tag, of all files (class `cephfs`).
    InodeTag { tag: Bytes },
}

impl Filter {
    /// Decodes a filter from the operation's input: type name, then arguments.
    fn decode(r: &mut Reader<'_>) -> Step<Self> {
        let decoded = (|| -> Decoded<_> {
            let kind = r.blob()?;
            Ok(match &kind[..] {
                // Class `hello` registers a filter that does the same.
                b"plain" | b"hello.hello" => Ok(Self::Plain { attr: r.blob()?, value: r.blob()? }),
                b"parent" => Ok(Self::Parent { dir: r.u64()? }),
                b"cephfs.inode_tag" => {
                    Ok(Self::InodeTag { tag: r.versioned("InodeTagFilterArgs", 1, |r, _| r.blob())? })
                }
                _ => Err(kind),
            })
        })();
        match decoded {
            Ok(Ok(f)) => Ok(f),
            Ok(Err(kind)) => {
                tracing::info!(filter = %String::from_utf8_lossy(&kind), "unknown listing filter");
                Err(EINVAL.into())
            }
            Err(_) => Err(EINVAL.into()),
        }
    }

    fn attr(&self) -> &[u8] {
        match self {
            Self::Plain { attr, .. } => attr,
            Self::InodeTag { .. } => TAG_ATTR,
            _ => PARENT_ATTR,
        }
    }

    fn matches(&self, store: &mut dyn ObjectStore, tag: Tag, cid: Cid, oid: &Oid) -> Step<bool> {
        if matches!(self, Self::None) {
            return Ok(true);
        }
        if let Self::InodeTag { tag: t } = self {
            if !oid.hobj.oid.ends_with(FIRST_OBJECT) {
                return Ok(false);
            }
            if t.is_empty() {
                return Ok(true);
            }
        }
        let value = match store.attr(tag, cid, oid, self.attr()) {
            Ok(Some(v)) => v,
            // Files without a tag match as well.
            Ok(None) => return Ok(matches!(self, Self::InodeTag { .. })),
            Err(ReadError::NoObject) => return Ok(false),
            Err(e) => return Err(e.into()),
        };
        Ok(match self {
            Self::None => true,
            Self::Plain { value: want, .. } => value == want,
            Self::InodeTag { tag } => Reader::shared(&value).blob().ok().as_ref() != Some(tag),
            Self::Parent { dir } => ancestors(&value).is_ok_and(|a| a.contains(dir)),
        })
    }
}

/// The directories of an `inode_backtrace_t`.
fn ancestors(b: &Bytes) -> Decoded<Vec<u64>> {
    Reader::shared(b).versioned("inode_backtrace_t", 5, |r, _| {
        r.u64()?;
        r.vec_with("ancestors", |r| r.versioned("inode_backpointer_t", 2, |r, _| r.u64()))
    })
}

/// State of an object whose newest version this copy lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lacked {
    /// The newest version is a deletion.
    Deleted,
    /// Another copy has the object.
    Elsewhere,
    /// No copy that was asked has the object.
    Unfound,
    /// Other copies may have the object, or it may not exist: the log does not reach far enough back.
    Unsure,
}

/// The objects of which this copy lacks the newest version, by head.
pub(crate) trait Lacking {
    /// True if the object is one of them.
    fn has(&self, head: &HObject) -> bool;
    /// Those from `start` to before `end`, in order.
    fn between<'a>(
        &'a self,
        start: &HObject,
        end: Option<&'a HObject>,
    ) -> Box<dyn Iterator<Item = (&'a HObject, Lacked)> + 'a>;
}

/// Outcome of a list.
pub(crate) enum Listed {
    /// Done, with the result of the last operation.
    Result(i32),
    /// This object must be recovered first.
    Needs(HObject),
}

/// Runs a vector of PG operations. `lacking`: objects of which this copy lacks the newest version.
pub(crate) fn run(
    store: &mut dyn ObjectStore,
    tag: Tag,
    cid: Cid,
    env: &Env<'_>,
    nspace: &Bytes,
    lacking: &dyn Lacking,
    ops: &mut OpVec,
) -> Step<Listed> {
    let mut result = 0;
    for op in ops.iter_mut() {
        op.outdata.clear();
        result = match one(store, tag, cid, env, nspace, lacking, op) {
            Ok(Listed::Result(r)) => r,
            Err(super::Stop::Errno(e)) => e,
            r => return r,
        };
        op.rval = result;
        if result < 0 {
            break;
        }
    }
    Ok(Listed::Result(result))
}

fn one(
    store: &mut dyn ObjectStore,
    tag: Tag,
    cid: Cid,
    env: &Env<'_>,
    nspace: &Bytes,
    lacking: &dyn Lacking,
    op: &mut OsdOp,
) -> Step<Listed> {
    let (namespaces, filtered) = form_of(op.op, env)?;
    let (filter, from) = arguments(&op.indata, filtered)?;
    let max = usize::try_from(op.pgls().count).unwrap_or(usize::MAX).clamp(1, PGLS_ENTRIES_MAX);
    let all = &nspace[..] == ALL_NAMESPACES;

    let mut entries = Vec::new();
    let mut at = Some(Oid::new(if from.is_min() { HObject { pool: env.spg.pg.pool, ..HObject::min() } } else { from }));
    let (mut next, mut looks) = (HObject::max(), 0);
    'scan: while let Some(start) = at {
        if start.hobj.max {
            break;
        }
        let (found, more) = match store.list(tag, cid, &start, None, SCAN_BATCH) {
            Ok(l) => l,
            Err(ReadError::NoObject) => break,
            Err(e) => return Err(e.into()),
        };
        // Many lacked objects may lie between two of the store.
        let cut = lacking.between(&start.hobj, more.as_ref().map(|o| &o.hobj)).nth(SCAN_BATCH);
        let cut = cut.map(|(h, _)| Oid::new(h.clone()));
        looks += found.len().max(if cut.is_some() { SCAN_BATCH } else { 0 });
        let more = cut.or(more);
        for (h, here) in heads(found, &start.hobj, more.as_ref().map(|o| &o.hobj), lacking) {
            if !(all || h.nspace == *nspace) {
                continue;
            }
            if entries.len() >= max {
                next = h;
                break 'scan;
            }
            let matches = match (here, &filter) {
                (Ok(oid), _) => filter.matches(store, tag, cid, &oid)?,
                (Err(Lacked::Elsewhere | Lacked::Unfound), Filter::None) => true,
                (Err(Lacked::Elsewhere | Lacked::Unsure), _) if entries.is_empty() => return Ok(Listed::Needs(h)),
                (Err(Lacked::Elsewhere | Lacked::Unsure), _) => {
                    next = h;
                    break 'scan;
                }
                (Err(Lacked::Unfound | Lacked::Deleted), _) => false,
            };
            if matches {
                entries.push(ListObject { nspace: h.nspace, oid: h.oid, locator: h.key });
            }
        }
        at = more;
        if looks >= PGLS_LOOKS_MAX
            && let Some(o) = at.take()
        {
            next = o.hobj.clone();
        }
    }
    let end = next.max;
    if end {
        next = end_of(env.spg.pg, env.pg_num);
    }
    op.outdata = encoded(next, entries, namespaces);
    Ok(Listed::Result(i32::from(end)))
}

/// Whether a list shows the namespaces of objects, and whether it has a filter.
fn form_of(code: OpCode, env: &Env<'_>) -> Step<(bool, bool)> {
    match code {
        OpCode::PGNLS => Ok((true, false)),
        OpCode::PGNLS_FILTER => Ok((true, true)),
        OpCode::PGLS => Ok((false, false)),
        OpCode::PGLS_FILTER => Ok((false, true)),
        code => {
            tracing::info!(op = ?code, pg = %env.spg, "operation not supported");
            Err(EOPNOTSUPP.into())
        }
    }
}

/// The filter of a list, and the object with which it begins.
fn arguments(indata: &Bytes, filtered: bool) -> Step<(Filter, HObject)> {
    let mut r = Reader::shared(indata);
    // Two names that are ignored, the filter, the cursor.
    let filter = if filtered {
        r.blob().and_then(|_| r.blob()).map_err(|_| EINVAL)?;
        Filter::decode(&mut r)?
    } else {
        Filter::None
    };
    let from: HObject = if r.is_empty() { HObject::min() } else { r.get().map_err(|_| EINVAL)? };
    Ok((filter, from))
}

/// The reply to a list, with or without the namespaces of the objects.
fn encoded(next: HObject, entries: Vec<ListObject>, namespaces: bool) -> Bytes {
    if namespaces {
        return PgNlsReply { handle: next, entries }.to_bytes(Features::PACIFIC);
    }
    let mut w = Writer::new(Features::PACIFIC);
    // `pg_ls_response_t` has a bare version byte.
    w.u8(1);
    w.put(&next);
    w.seq(entries.iter(), |w, e| {
        w.blob(&e.oid);
        w.blob(&e.locator);
    });
    w.into_bytes()
}

/// The PG's objects from `start` to before `end`, in order: those `found` in the store, and those that this copy
/// lacks.
fn heads(
    found: Vec<Oid>,
    start: &HObject,
    end: Option<&HObject>,
    lacking: &dyn Lacking,
) -> BTreeMap<HObject, Result<Oid, Lacked>> {
    // Clones, snapdirs, the PG's own object and objects set aside are not listed.
    let shown = |o: &Oid| o.hobj.snap == SnapId::HEAD && !o.hobj.oid.is_empty() && o.generation == Oid::NO_GEN;
    let here = found.into_iter().take_while(|o| end.is_none_or(|e| o.hobj < *e));
    let here = here.filter(|o| shown(o) && !lacking.has(&o.hobj));
    let mut all: BTreeMap<_, _> = here.map(|o| (o.hobj.clone(), Ok(o))).collect();
    let elsewhere = lacking.between(start, end);
    all.extend(elsewhere.filter(|(_, l)| *l != Lacked::Deleted).map(|(h, l)| (h.clone(), Err(l))));
    all
}

/// The range of a PG's objects: begin and exclusive end (`pg_t::get_hobj_start`, `get_hobj_end`).
pub(crate) fn pg_range(pg: PgId, pg_num: u32) -> (HObject, HObject) {
    (HObject { pool: pg.pool, hash: pg.seed, ..HObject::min() }, end_of(pg, pg_num))
}

/// The exclusive end of a PG's objects, where a list goes on (`pg_t::get_hobj_end`). The end marker for the last PG
/// in hash order.
fn end_of(pg: PgId, pg_num: u32) -> HObject {
    let bits = split_bits(pg, pg_num);
    // Sort keys are bit-reversed hashes: those of the PG begin with its own `bits` bits.
    let mask = u32::MAX.checked_shr(bits).unwrap_or(0);
    match (pg.seed.reverse_bits() | mask).checked_add(1) {
        Some(key) => HObject { pool: pg.pool, hash: key.reverse_bits(), snap: SnapId::HEAD, ..HObject::min() },
        None => HObject::max(),
    }
}

/// Number of hash bits that select a PG of a pool with `pg_num` PGs (`pg_t::get_split_bits`).
pub(crate) fn split_bits(pg: PgId, pg_num: u32) -> u32 {
    if pg_num <= 1 {
        return 0;
    }
    let bits = u32::BITS - (pg_num - 1).leading_zeros();
    // If `pg_num` is no power of two, some PGs are not split yet and have twice the range.
    let low = pg.seed & ((1u32 << (bits - 1)) - 1);
    if (low | 1 << (bits - 1)) < pg_num { bits } else { bits - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_all_pgs_cover_the_hash_space() {
        for pg_num in [1u32, 2, 3, 5, 8, 12, 20, 32] {
            let mut ends: Vec<u64> = (0..pg_num)
                .map(|seed| {
                    let e = end_of(PgId::new(1, seed), pg_num);
                    if e.max { 1 << 32 } else { u64::from(e.bitwise_key()) }
                })
                .collect();
            ends.sort_unstable();
            ends.dedup();
            assert_eq!(ends.len(), pg_num as usize, "pg_num {pg_num}");
            assert_eq!(ends.last(), Some(&(1 << 32)));
            // Each PG's end is the smallest end beyond its own first key.
            for seed in 0..pg_num {
                let e = end_of(PgId::new(1, seed), pg_num);
                let end = if e.max { 1 << 32 } else { u64::from(e.bitwise_key()) };
                let first = u64::from(seed.reverse_bits());
                assert_eq!(ends.iter().find(|x| **x > first), Some(&end), "pg {seed} of {pg_num}");
            }
        }
    }
}
