//! Refusals of the in-memory store: the same as the engine's, by the same rules ([`crate::shape`]) where they
//! do not depend on space.

use super::{Collection, MemStore};
use crate::api::{BLOCK, ObjectStore};
use crate::key::Cid;
use crate::shape::check_shape;
use crate::txn::{Op, Transaction};
use base::errno::{self, Errno};

impl MemStore {
    /// Refuses an invalid transaction.
    pub(super) fn check(&self, txn: &Transaction) -> Result<(), Errno> {
        if let Some(e) = self.failed {
            return Err(e);
        }
        let keys = |o: &Op| match o {
            Op::OmapSet { entries, .. } => entries.len(),
            Op::OmapRmKeys { keys, .. } => keys.len(),
            _ => 0,
        };
        if txn.ops.iter().map(keys).sum::<usize>() > self.keys_max {
            return Err(errno::E2BIG);
        }
        let mut need = 0;
        for op in &txn.ops {
            if let Op::Merge { cid, dst, .. } = op
                && self.colls.contains_key(cid)
                && self.colls.contains_key(dst)
                && !self.beside(*cid, *dst)
            {
                return Err(errno::EXDEV);
            }
            if let Op::Merge { cid, dst, first, .. } = op
                && !self.may_merge(*cid, *dst, *first)
            {
                return Err(errno::EINVAL);
            }
            if let Op::Write { data, .. } = op {
                need += data.len() as u64 + 2 * BLOCK;
            }
            // Space for the pages of the new collection.
            if let Op::Split { .. } = op {
                need += 2 * BLOCK;
            }
        }
        if need > 0 && self.capacity != u64::MAX && self.mapped() + need > self.capacity {
            return Err(errno::ENOSPC);
        }
        check_shape(
            txn,
            |cid| self.colls.get(&cid).map(|c| (c.objects.len(), &**c)),
            |c, oid| c.objects.contains_key(oid),
            Collection::fits,
            |c| c.ranges.clone(),
            |c| !c.kept.is_empty(),
        )
    }

    /// True if the engine could merge the collections: all objects are on their side of the hash.
    fn may_merge(&self, cid: Cid, dst: Cid, first: u32) -> bool {
        let all = |c: Cid, f: &dyn Fn(u32) -> bool| {
            self.colls.get(&c).is_none_or(|c| c.objects.keys().all(|o| f(o.hobj.bitwise_key())))
        };
        all(cid, &|h| h >= first) && all(dst, &|h| h < first)
    }
}
