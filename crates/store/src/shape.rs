//! Refusals of `prepare` that do not depend on space: changes that the collections, present or made by the
//! transaction, do not allow.
//!
//! The engine and the model ([`crate::mem`]) share this code, so that both refuse the same. It does not know
//! how either stores collections.

use crate::api::MAX_OBJECT_SIZE;
use crate::key::{Cid, Oid};
use crate::txn::{Op, Transaction};
use base::errno::{self, Errno};

/// Ranges of bit-reversed hashes that a collection may hold: first and last of each.
pub(crate) type Ranges = Vec<(u32, u32)>;

pub(crate) fn within(ranges: &Ranges, oid: &Oid) -> bool {
    let at = oid.hobj.bitwise_key();
    ranges.iter().any(|r| (r.0..=r.1).contains(&at))
}

pub(crate) fn cut(ranges: &Ranges, first: u32) -> (Ranges, Ranges) {
    let r = ranges.iter();
    (
        r.clone().filter(|r| r.0 < first).map(|r| (r.0, r.1.min(first - 1))).collect(),
        r.filter(|r| r.1 >= first).map(|r| (r.0.max(first), r.1)).collect(),
    )
}

/// The refusals of rule 2 (in [`crate::api`]) that depend on collections only. For a collection, `find` returns
/// the number of objects and a handle, `has` whether it holds an object, `fits` whether it may hold one of that
/// hash, `ranges` its ranges of bit-reversed hashes, and `keeps` whether its log has undo records.
pub(crate) fn check_shape<'a, C: 'a>(
    txn: &Transaction,
    find: impl Fn(Cid) -> Option<(usize, &'a C)>,
    has: impl Fn(&C, &Oid) -> bool,
    fits: impl Fn(&C, &Oid) -> bool,
    ranges: impl Fn(&C) -> Ranges,
    keeps: impl Fn(&C) -> bool,
) -> Result<(), Errno> {
    // Hash ranges of collections after the splits and merges so far, the newest last.
    let mut shapes: Vec<(Cid, Ranges)> = Vec::new();
    let shape = |shapes: &[(Cid, Ranges)], cid: Cid| match shapes.iter().rev().find(|s| s.0 == cid) {
        Some(s) => s.1.clone(),
        None => find(cid).map_or_else(|| vec![(0, u32::MAX)], |(_, c)| ranges(c)),
    };
    // Collections that this transaction has made or removed so far; almost always empty.
    let mut made: Vec<(Cid, bool)> = Vec::new();
    for (i, op) in txn.ops.iter().enumerate() {
        let cid = op.cid();
        let found = find(cid);
        let exists = made.iter().rev().find(|(c, _)| *c == cid).map_or_else(|| found.is_some(), |(_, e)| *e);
        if let Some(oid) = op.target() {
            let known = |c: &Cid| *c == cid;
            let fit = match (shapes.iter().rev().find(|s| known(&s.0)), &found) {
                (Some((_, ranges)), _) => within(ranges, oid),
                (None, Some((_, c))) => made.iter().any(|m| known(&m.0)) || fits(c, oid),
                (None, None) => true,
            };
            if !fit {
                return Err(errno::EINVAL);
            }
        }
        let keeping = |c: Cid| txn.ops.iter().take(i).any(|o| matches!(o, Op::Keep { cid, .. } if *cid == c));
        let keeps = || keeping(cid) || found.as_ref().is_some_and(|(_, c)| keeps(c));
        match op {
            Op::MakeCollection { .. } | Op::MakeBeside { .. } if exists => return Err(errno::EEXIST),
            // The other collection must exist and stay.
            Op::MakeBeside { beside, .. } if find(*beside).is_none() || !made.is_empty() => return Err(errno::ENOENT),
            Op::MakeCollection { .. } | Op::MakeBeside { .. } => made.push((cid, true)),
            _ if !exists => return Err(errno::ENOENT),
            Op::Keep { .. } if txn.ops.iter().take(i).any(|o| matches!(o, Op::Keep { .. })) => {
                return Err(errno::EINVAL);
            }
            // The undo records are complete only at the end of the transaction.
            Op::Split { .. } if keeping(cid) => return Err(errno::EINVAL),
            Op::Merge { .. } if keeps() => return Err(errno::EBUSY),
            Op::RemoveCollection { .. } if keeps() => return Err(errno::ENOTEMPTY),
            Op::Split { dst, first, .. } => {
                let there = made.iter().rev().find(|(c, _)| c == dst).map_or_else(|| find(*dst).is_some(), |(_, e)| *e);
                if there {
                    return Err(errno::EEXIST);
                }
                if cid == Cid::Meta || *dst == Cid::Meta || *first == 0 || removed_before(&made) {
                    return Err(errno::EINVAL);
                }
                let (stay, go) = cut(&shape(&shapes, cid), *first);
                if stay.is_empty() || go.is_empty() {
                    return Err(errno::EINVAL);
                }
                shapes.extend([(cid, stay), (*dst, go)]);
                made.push((*dst, true));
            }
            Op::Merge { dst, first, .. } => {
                // Both collections must exist before the transaction, which may otherwise change only objects.
                if !made.is_empty() || find(*dst).is_none() || cid == *dst || cid == Cid::Meta || *first == 0 {
                    return Err(errno::EINVAL);
                }
                if wrong_side(txn.ops.get(..i).unwrap_or_default(), cid, *dst, *first) {
                    return Err(errno::EINVAL);
                }
                let mut all = cut(&shape(&shapes, *dst), *first).0;
                all.extend(cut(&shape(&shapes, cid), *first).1);
                // A collection without hash ranges can't be recorded.
                if all.is_empty() {
                    return Err(errno::EINVAL);
                }
                shapes.push((*dst, all));
                made.push((cid, false));
            }
            // The content of a collection after a split or merge in this transaction is not known here.
            Op::RemoveCollection { .. } if moves_before(txn.ops.get(..i).unwrap_or_default()) => {
                return Err(errno::EINVAL);
            }
            Op::RemoveCollection { .. } => {
                if !empty_before(txn.ops.get(..i).unwrap_or_default(), cid, &find, &has) {
                    return Err(errno::ENOTEMPTY);
                }
                made.push((cid, false));
            }
            Op::Write { off, data, .. } if beyond(*off, data.len() as u64) => return Err(errno::EFBIG),
            Op::Zero { off, len, .. } if beyond(*off, *len) => return Err(errno::EFBIG),
            Op::Truncate { size, .. } if beyond(*size, 0) => return Err(errno::EFBIG),
            Op::CloneRange { src_off, dst_off, len, .. } if beyond(*src_off, *len) || beyond(*dst_off, *len) => {
                return Err(errno::EFBIG);
            }
            _ => {}
        }
    }
    Ok(())
}

fn removed_before(made: &[(Cid, bool)]) -> bool {
    made.iter().any(|(_, there)| !there)
}

/// True if these changes may leave an object on the wrong side for a merge at `first`.
fn wrong_side(ops: &[Op], cid: Cid, dst: Cid, first: u32) -> bool {
    ops.iter().filter(|o| !matches!(o, Op::Remove { .. })).any(|o| {
        let above = o.target().map(|oid| oid.hobj.bitwise_key() >= first);
        above.is_some_and(|above| o.cid() == cid && !above || o.cid() == dst && above)
    })
}

fn moves_before(ops: &[Op]) -> bool {
    ops.iter().any(|o| matches!(o, Op::Split { .. } | Op::Merge { .. }))
}

fn beyond(off: u64, len: u64) -> bool {
    off.checked_add(len).is_none_or(|end| end > MAX_OBJECT_SIZE)
}

/// True if the collection is empty after these changes. Exact for transactions that create or remove plainly.
fn empty_before<'a, C: 'a>(
    ops: &[Op],
    cid: Cid,
    find: &impl Fn(Cid) -> Option<(usize, &'a C)>,
    has: &impl Fn(&C, &Oid) -> bool,
) -> bool {
    let (mut count, coll) = find(cid).map_or((0, None), |(n, c)| (n, Some(c)));
    // Objects known to exist or not at this point, the latest last.
    let mut known: Vec<(&Oid, bool)> = Vec::new();
    for op in ops.iter().filter(|o| o.cid() == cid) {
        let exists = |known: &[(&Oid, bool)], oid: &Oid| {
            let k = known.iter().rev().find(|(o, _)| *o == oid).map(|(_, e)| *e);
            k.unwrap_or_else(|| coll.is_some_and(|c| has(c, oid)))
        };
        let (made, gone) = match op {
            Op::Remove { oid, .. } => (None, Some(oid)),
            Op::RmAttr { .. }
            | Op::RmAttrs { .. }
            | Op::OmapRmKeys { .. }
            | Op::OmapRmRange { .. }
            | Op::OmapClear { .. }
            | Op::Undo { .. } => (None, None),
            Op::Clone { src, dst, .. } | Op::CloneRange { src, dst, .. } => {
                (Some(dst).filter(|_| exists(&known, src)), None)
            }
            Op::Rename { src, dst, .. } if src != dst && exists(&known, src) => (Some(dst), Some(src)),
            Op::Rename { .. } => (None, None),
            _ => (op.oid(), None),
        };
        for (oid, is) in made.map(|o| (o, true)).into_iter().chain(gone.map(|o| (o, false))) {
            count = count + usize::from(is) - usize::from(exists(&known, oid));
            known.push((oid, is));
        }
    }
    count == 0
}
