//! Places where bytes that an operation of a transaction needs were before the transaction.
//!
//! A vector of a client may have 65,535 operations: what earlier ones did to an object is found without a look at each.
//!
//! Tests: `the_index_finds_what_a_look_at_all_operations_finds`.

use crate::key::{Cid, Oid};
use crate::layout::BLOCK;
use crate::txn::Op;
use std::collections::BTreeMap;

/// Operations of a transaction, with those that remove, cut or copy objects.
pub(super) struct Sources<'a> {
    pub(super) ops: &'a [Op],
    /// The operations that remove or truncate each object, in order, with the bytes that have survived so far.
    goes: BTreeMap<(Cid, &'a Oid), Vec<(usize, u64)>>,
    /// Operations that copy from one object to another, in order.
    copies: Vec<usize>,
}

impl<'a> Sources<'a> {
    pub(super) fn of(ops: &'a [Op]) -> Self {
        let mut me = Self { ops, goes: BTreeMap::new(), copies: Vec::new() };
        for (at, op) in ops.iter().enumerate() {
            let (cid, oid, size) = match op {
                Op::Remove { cid, oid } => (*cid, oid, 0),
                Op::Truncate { cid, oid, size } => (*cid, oid, *size),
                Op::Clone { .. } | Op::Rename { .. } | Op::CloneRange { .. } => {
                    me.copies.push(at);
                    continue;
                }
                _ => continue,
            };
            let of = me.goes.entry((cid, oid)).or_default();
            let left = of.last().map_or(size, |(_, left)| size.min(*left));
            of.push((at, left));
        }
        me
    }

    /// Calls `f` with object and block range for all blocks whose current content operation `at` may need.
    pub(super) fn edges(&self, at: usize, f: &mut impl FnMut(Cid, &Oid, u64, u64)) {
        let Some(op) = self.ops.get(at) else { return };
        let mut range = |cid: Cid, oid: &Oid, from: u64, to: u64| {
            if !from.is_multiple_of(BLOCK) {
                self.find(at, cid, oid, (from / BLOCK * BLOCK, from / BLOCK * BLOCK + BLOCK), f);
            }
            if !to.is_multiple_of(BLOCK) && (from.is_multiple_of(BLOCK) || to / BLOCK != from / BLOCK) {
                self.find(at, cid, oid, (to / BLOCK * BLOCK, to / BLOCK * BLOCK + BLOCK), f);
            }
        };
        match op {
            Op::Write { cid, oid, off, data, .. } => range(*cid, oid, *off, *off + data.len() as u64),
            Op::Zero { cid, oid, off, len } if *len > 0 => range(*cid, oid, *off, *off + *len),
            Op::Truncate { cid, oid, size } => range(*cid, oid, *size, size.next_multiple_of(BLOCK)),
            Op::CloneRange { cid, src, dst, src_off, len, dst_off } if *len > 0 => {
                range(*cid, dst, *dst_off, *dst_off + *len);
                // The range may be cut at the source's end, so any of its blocks may become an edge.
                self.find(at, *cid, dst, (*dst_off, *dst_off + *len), f);
                self.find(at, *cid, src, (*src_off, *src_off + *len), f);
            }
            _ => {}
        }
    }

    /// Calls `f` for all places that bytes `[from, to)` of an object, as operation `at` finds it, may have before the
    /// transaction: in the object itself, or in objects that earlier operations copied into it. This is a superset.
    pub(super) fn find(
        &self,
        at: usize,
        cid: Cid,
        oid: &Oid,
        (from, to): (u64, u64),
        f: &mut impl FnMut(Cid, &Oid, u64, u64),
    ) {
        // Data that an earlier operation of the transaction removes or truncates is not read. It may be unreadable, and be
        // replaced for that reason.
        let before = self.goes.get(&(cid, oid)).map_or(&[][..], Vec::as_slice);
        let n = before.partition_point(|(i, _)| *i < at);
        if before.get(..n).and_then(<[_]>::last).is_none_or(|(_, left)| *left > from) {
            f(cid, oid, from / BLOCK, to.div_ceil(BLOCK));
        }
        for j in self.copies.iter().copied().take_while(|j| *j < at) {
            match self.ops.get(j) {
                Some(Op::Clone { cid: c, src, dst } | Op::Rename { cid: c, src, dst }) if *c == cid && dst == oid => {
                    self.find(j, cid, src, (from, to), f);
                }
                Some(Op::CloneRange { cid: c, src, dst, src_off, len, dst_off }) if *c == cid && dst == oid => {
                    let (lo, hi) = (from.max(*dst_off), to.min(dst_off.saturating_add(*len)));
                    if lo < hi {
                        self.find(j, cid, src, (lo - dst_off + src_off, hi - dst_off + src_off), f);
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::HObject;
    use base::rng::Rng;
    use bytes::Bytes;

    /// The same by a look at all earlier operations.
    fn plainly(ops: &[Op], at: usize, oid: &Oid, (from, to): (u64, u64), out: &mut Vec<(Oid, u64, u64)>) {
        let goes = |o: &Op| match o {
            Op::Remove { oid: gone, .. } => gone == oid,
            Op::Truncate { oid: cut, size, .. } => cut == oid && *size <= from,
            _ => false,
        };
        if !ops[..at].iter().any(goes) {
            out.push((oid.clone(), from / BLOCK, to.div_ceil(BLOCK)));
        }
        for (j, op) in ops[..at].iter().enumerate() {
            match op {
                Op::Clone { src, dst, .. } if dst == oid => plainly(ops, j, src, (from, to), out),
                Op::CloneRange { src, dst, src_off, len, dst_off, .. } if dst == oid => {
                    let (lo, hi) = (from.max(*dst_off), to.min(dst_off + len));
                    if lo < hi {
                        plainly(ops, j, src, (lo - dst_off + src_off, hi - dst_off + src_off), out);
                    }
                }
                _ => {}
            }
        }
    }

    fn objects() -> Vec<Oid> {
        (0..3).map(|n| Oid::from(HObject { oid: format!("o{n}").into(), ..HObject::min() })).collect()
    }

    #[test]
    fn the_index_finds_what_a_look_at_all_operations_finds() {
        let (objects, cid) = (objects(), Cid::Meta);
        let mut rng = Rng::new(7);
        let mut found = 0;
        for _ in 0..500 {
            let mut any = |n: u64| rng.below(n);
            let ops: Vec<Op> = (0..12)
                .map(|_| {
                    let (oid, src) = (objects[any(3) as usize].clone(), objects[any(3) as usize].clone());
                    match any(6) {
                        0 => Op::Remove { cid, oid },
                        1 => Op::Truncate { cid, oid, size: any(5) * 3000 },
                        2 => Op::Clone { cid, src, dst: oid },
                        3 => Op::CloneRange {
                            cid,
                            src,
                            dst: oid,
                            src_off: any(9000),
                            len: any(9000),
                            dst_off: any(9000),
                        },
                        _ => Op::Zero { cid, oid, off: any(9000), len: any(9000) },
                    }
                })
                .collect();
            let s = Sources::of(&ops);
            for at in 0..ops.len() {
                let range = (any(4) * BLOCK, 5 * BLOCK);
                let (mut a, mut b) = (Vec::new(), Vec::new());
                s.find(at, cid, &objects[0], range, &mut |_, oid, from, to| a.push((oid.clone(), from, to)));
                plainly(&ops, at, &objects[0], range, &mut b);
                assert_eq!(a, b, "operation {at} of {ops:?}");
                found += a.len();
            }
        }
        assert!(found > 5000, "{found}");
    }

    #[test]
    fn writes_leave_nothing_to_look_through() {
        let oid = objects().remove(0);
        let write =
            |off| Op::Write { cid: Cid::Meta, oid: oid.clone(), off, data: Bytes::from_static(b"x"), sums: None };
        let ops: Vec<Op> = (0..1000).map(write).collect();
        let s = Sources::of(&ops);
        assert!(s.goes.is_empty() && s.copies.is_empty());
    }
}
