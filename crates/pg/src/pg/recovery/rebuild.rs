//! Recovery of an object on a shard that lacks it. Its bytes are rebuilt from `k` other shards, or copied from an
//! earlier holder of that shard. The attributes are the same on all shards.
//!
//! The primary does this for every shard, its own included: it pushes to itself as to another shard
//! ([`crate::pg::peering::session`] delivers the message).

use crate::exec::{Step, Stop};
use crate::object::{OI_ATTR, ObjectInfo, SS_ATTR, SnapSet};
use crate::pg::Pg;
use crate::pg::backend::ec::account::Described;
use crate::pg::backend::ec::read::ShardReads;
use crate::pg::keys::index_keys;
use crate::pg::recovery::push::{AttrPage, Cursor, PartOps, PushJob};
use ::ec::stripe::Part;
use base::HObject;
use base::errno::EIO;
use bytes::Bytes;
use store::{ObjectStore, Oid, Op};

/// Bytes of a shard that are rebuilt at once.
const STEP: u64 = 256 << 10;

impl Pg {
    /// True if enough shards may be there to rebuild the object.
    pub(in crate::pg) fn can_rebuild(&self, head: &HObject) -> bool {
        let Some(k) = self.shards_needed() else { return false };
        let mut all = self.shard_holders(head);
        if all.len() < k {
            all.append(&mut self.last_shards(head));
        }
        all.len() >= k
    }

    /// True if another copy can tell whether the object was removed. A removed object has no bytes to be rebuilt, but may
    /// have clones. The log must have been read.
    pub(in crate::pg) fn can_learn_removal(&self, head: &HObject) -> bool {
        let (me, all) = (self.me(), self.shard_holders(head));
        self.recovery.is_deleted(head) != Some(false) && all.values().flatten().any(|p| *p != me)
    }

    /// The changes of the next part of a push.
    pub(in crate::pg) fn next_shard_part(
        &mut self,
        id: u64,
        job: &mut PushJob,
        part: usize,
        store: &mut dyn ObjectStore,
    ) -> Step<Vec<Op>> {
        let mut reads = self.ec.take_reads().ok_or(EIO)?;
        reads.judge_account(self.recovery.missing().get(&job.head).copied().unwrap_or_default());
        let r = self.shard_part(id, job, part, &mut reads, store);
        self.ec.set_reads(Some(reads));
        r
    }

    fn shard_part(
        &self,
        id: u64,
        job: &mut PushJob,
        part: usize,
        reads: &mut ShardReads,
        store: &mut dyn ObjectStore,
    ) -> Step<Vec<Op>> {
        let tag = self.tag(id);
        let shard = usize::try_from(job.to.shard.0).map_err(|_| EIO)?;
        if job.family.is_none() {
            self.read_family(id, job, reads, store)?;
        }
        let family: &[Described] = job.family.as_deref().unwrap_or_default();
        // A removed object has no bytes.
        if !family.is_empty() && !reads.has_enough_holders() {
            return Err(EIO.into());
        }
        let (mut at, mut cursor) = (job.at, job.cursor.clone());
        let mut out = PartOps::default();
        while let Some((hobj, attrs)) = family.get(at).filter(|_| out.bytes < part) {
            let (cid, oid) = (self.env.cid(), Oid::new(hobj.clone()));
            let oi = match attrs.iter().find(|(k, _)| k == OI_ATTR) {
                Some((_, a)) => Some(ObjectInfo::from_attr(a).map_err(|_| EIO)?),
                None => None,
            };
            let size = oi.as_ref().map_or(0, |o| o.size);
            let len = reads.coder().layout.shard_len(size, shard);
            if let Some(oi) = &oi {
                reads.expect(hobj, oi.version);
            }
            let off = match &cursor {
                Cursor::Data(off) => *off,
                Cursor::Attrs(_) => len,
                _ => {
                    out.bytes += 64;
                    out.ops.push(Op::Touch { cid, oid: oid.clone() });
                    out.ops.push(Op::Truncate { cid, oid: oid.clone(), size: len });
                    0
                }
            };
            let end = len.min(off + STEP.min(part as u64));
            if end > off {
                let p = Part { shard, range: off..end };
                let data = reads.parts(tag, cid, &oid, size, std::slice::from_ref(&p), store)?.pop().ok_or(EIO)?;
                out.bytes += data.len();
                if data.iter().any(|b| *b != 0) {
                    out.ops.push(Op::Write { cid, oid: oid.clone(), off, data, sums: None });
                }
            }
            if end < len {
                cursor = Cursor::Data(end);
                continue;
            }
            cursor = self.attrs_part(&job.head, (oid, attrs), &cursor, part, &mut out);
            if cursor == Cursor::Start {
                at += 1;
            }
        }
        reads.clear();
        let ended = at >= family.len();
        job.last = ended && job.more.is_none();
        if ended && !job.last {
            (job.family, at) = (None, 0);
        }
        job.at = at;
        job.cursor = cursor;
        Ok(out.ops)
    }

    /// Reads the next page of an object and its clones, from this shard or from another one that describes them.
    fn read_family(&self, id: u64, job: &mut PushJob, reads: &mut ShardReads, store: &mut dyn ObjectStore) -> Step<()> {
        let page = if self.recovery.missing().contains_key(&job.head) {
            match reads.family.take() {
                Some(f) => f,
                None => {
                    let mut from = self.describer(&job.head, reads);
                    if from.is_none() && reads.resort() {
                        from = self.describer(&job.head, reads);
                    }
                    // No copy knows the needed version.
                    let from = from.ok_or(EIO)?;
                    reads.wants_family = true;
                    reads.family_from = match self.is_unfilled(from, &job.head) && !reads.vouches(from) {
                        true => reads.account_goes_on(from),
                        false => job.more.clone(),
                    };
                    return Err(Stop::Wait);
                }
            }
        } else {
            self.describe(id, &job.head, job.more.as_ref(), true, store)?
        };
        (job.family, job.more) = (Some(page.of), page.more);
        Ok(())
    }

    /// Adds attributes to a part. Returns the cursor behind them: after the last attributes, the start of the next
    /// object.
    fn attrs_part(
        &self,
        head: &HObject,
        (oid, attrs): (Oid, &[(Bytes, Bytes)]),
        cursor: &Cursor,
        part: usize,
        out: &mut PartOps,
    ) -> Cursor {
        let cid = self.env.cid();
        let from = match cursor {
            Cursor::Attrs(from) => from.as_ref(),
            _ => None,
        };
        let mut page = AttrPage::new(attrs.to_vec(), from, part, out.bytes == 0);
        out.bytes += page.bytes;
        if let Some(last) = page.more {
            if !page.attrs.is_empty() {
                out.ops.push(Op::SetAttrs { cid, oid, attrs: page.attrs });
            }
            // The next attribute has a part of its own.
            out.bytes = out.bytes.max(part);
            return Cursor::Attrs(last);
        }
        let ss = page.own.iter().find(|(k, _)| k == SS_ATTR).and_then(|(_, v)| SnapSet::from_attr(v).ok());
        if let Some(ss) = ss.filter(|s| !s.clones.is_empty()) {
            let entries: Vec<_> = index_keys(head, &ss).map(|k| (k, Bytes::new())).collect();
            out.ops.push(Op::OmapSet { cid, oid: self.meta(), entries });
        }
        page.attrs.append(&mut page.own);
        out.ops.push(Op::SetAttrs { cid, oid, attrs: page.attrs });
        Cursor::Start
    }
}
