//! Operations on an object's bytes and existence.

use super::checksum;
use super::{OpCtx, Step, Stop, WatchDisconnect, kib};
use crate::limits::OBJECT_SIZE_MAX;
use crate::object::{Intervals, ObjectInfo};
use base::errno::{EEXIST, EFBIG, EINVAL, ENOENT, EOVERFLOW, ERANGE};
use bytes::Bytes;
use wire::msg::OsdOp;
use wire::msg::op_code::op_flags;
use wire::msg::osd_op::Extent;
use wire::{Encode, Features, Reader, Writer};

/// Base of a CMPEXT result: `-(MAX_ERRNO + index)` for the first byte that differs.
const MAX_ERRNO: i64 = 4095;

/// Number and size of the truncation of a file that was never truncated, as CephFS clients send them. They count as
/// none: (0, 0).
const NEVER_TRUNCATED: (u32, u64) = (1, u64::MAX);

/// The number and size of a truncation, or (0, 0) for that of a file that was never truncated.
#[must_use]
pub(crate) fn truncation(seq: u32, size: u64) -> (u32, u64) {
    if (seq, size) == NEVER_TRUNCATED { (0, 0) } else { (seq, size) }
}

/// Gives an operation the form in which the OSD runs it and replies to it, before anything looks at it.
pub(super) fn normalize(op: &mut OsdOp) {
    if !op.op.has_extent() {
        return;
    }
    let e = op.extent();
    let (truncate_seq, truncate_size) = truncation(e.truncate_seq, e.truncate_size);
    if truncate_seq != e.truncate_seq {
        op.set_extent(Extent { truncate_seq, truncate_size, ..e });
    }
}

/// Checks a range against the largest object, as Ceph does.
pub(crate) fn check_range(off: u64, len: u64) -> Step<()> {
    if off >= OBJECT_SIZE_MAX || len > OBJECT_SIZE_MAX || off + len > OBJECT_SIZE_MAX {
        return Err(EFBIG.into());
    }
    Ok(())
}

/// The size of an object under the extent's truncation, and the length that a read covers.
fn read_range(oi: &ObjectInfo, e: &Extent) -> (u64, u64) {
    let mut size = oi.size;
    if oi.truncate_seq < e.truncate_seq && e.offset.saturating_add(e.length) > e.truncate_size && size > e.truncate_size
    {
        size = e.truncate_size;
    }
    let len = if e.length == 0 { size } else { e.length };
    (size, len.min(size.saturating_sub(e.offset)))
}

/// Offset and length of what a READ reads of an object with this info.
pub(crate) fn plain_range(oi: &ObjectInfo, op: &mut OsdOp) -> (u64, u64) {
    normalize(op);
    let e = op.extent();
    (e.offset, read_range(oi, &e).1)
}

impl OpCtx<'_> {
    /// The object's size under the extent's truncation, and the length that a read covers.
    fn read_range(&self, e: &Extent) -> (u64, u64) {
        read_range(&self.oi, e)
    }

    pub(super) fn op_read(&mut self, op: &mut OsdOp) -> Step<i32> {
        let e = op.extent();
        let (_, len) = self.read_range(&e);
        (op.outdata, op.out_crc) = self.view.read_summed(e.offset, len, self.oi.size)?;
        self.count_read(op.outdata.len());
        // The result is 0; the length of the output says how much was read.
        Ok(0)
    }

    pub(super) fn op_sparse_read(&mut self, op: &mut OsdOp) -> Step<i32> {
        let e = op.extent();
        let (_, len) = self.read_range(&e);
        let extents = self.view.extents(e.offset, len, self.oi.size)?;
        if let ([(off, len)], true) = (extents.as_slice(), self.long.alone) {
            (op.outdata, op.out_crc) = self.view.read_summed(*off, *len, self.oi.size)?;
            op.out_extent = Some(*off);
            self.count_read(op.outdata.len());
            return Ok(0);
        }
        let mut w = Writer::with_capacity(Features::PACIFIC, 8 + extents.as_slice().len() * 16 + len as usize);
        w.put(extents.as_slice());
        w.u32(extents.bytes() as u32);
        for &(o, l) in extents.as_slice() {
            w.raw(&self.view.read(o, l, self.oi.size)?);
        }
        self.count_read(extents.bytes() as usize);
        op.outdata = w.into_bytes();
        Ok(0)
    }

    pub(super) fn op_mapext(&mut self, op: &mut OsdOp) -> Step<i32> {
        let e = op.extent();
        let len = if e.length == 0 { self.oi.size } else { e.length };
        let extents = self.view.extents(e.offset, len, self.oi.size)?;
        self.count_read(0);
        op.outdata = extents.as_slice().to_bytes(Features::PACIFIC);
        Ok(0)
    }

    pub(super) fn op_checksum(&mut self, op: &mut OsdOp) -> Step<i32> {
        let a = op.checksum();
        if a.chunk_size > 0 && (a.length == 0 || !a.length.is_multiple_of(u64::from(a.chunk_size))) {
            return Err(EINVAL.into());
        }
        let size = self.oi.size;
        let mut len = a.length;
        if (a.offset, a.length) == (0, 0) {
            len = size;
        } else if a.offset >= size {
            return Ok(0);
        } else if len > size - a.offset {
            len = size - a.offset;
            if a.chunk_size > 0 && !len.is_multiple_of(u64::from(a.chunk_size)) {
                return Err(EINVAL.into());
            }
        }
        let kind = checksum::Kind::new(a.kind, &op.indata).ok_or(EINVAL)?;
        let data = self.view.read(a.offset, len, size)?;
        self.count_read(data.len());
        let chunk = if a.chunk_size > 0 { a.chunk_size as usize } else { data.len() };
        let count = data.len().checked_div(chunk).unwrap_or(0);
        let mut w = Writer::with_capacity(Features::PACIFIC, 4 + count * 8);
        w.u32(count as u32);
        if chunk > 0 {
            for c in data.chunks_exact(chunk) {
                kind.append(c, &mut w);
            }
        }
        op.outdata = w.into_bytes();
        Ok(0)
    }

    pub(super) fn op_cmpext(&mut self, op: &mut OsdOp) -> Step<i32> {
        let e = op.extent();
        let data = if e.length == 0 {
            Bytes::new()
        } else {
            let (_, len) = self.read_range(&e);
            match self.view.read(e.offset, len, self.oi.size) {
                Err(Stop::Errno(ENOENT)) => Bytes::new(),
                r => r?,
            }
        };
        self.count_read(data.len());
        // Bytes past the end compare as zero.
        let differs = op.indata.iter().enumerate().position(|(i, b)| *b != data.get(i).copied().unwrap_or(0));
        Ok(differs.map_or(0, |i| -(MAX_ERRNO + i as i64) as i32))
    }

    pub(super) fn op_stat(&mut self, op: &mut OsdOp) -> Step<i32> {
        self.delta.num_rd += 1;
        if !self.exists {
            return Err(ENOENT.into());
        }
        let mut w = Writer::with_capacity(Features::PACIFIC, 16);
        w.u64(self.oi.size);
        w.put(&self.oi.mtime);
        op.outdata = w.into_bytes();
        Ok(0)
    }

    pub(super) fn op_assert_ver(&mut self, op: &OsdOp) -> Step<i32> {
        match op.assert_ver() {
            0 => Err(EINVAL.into()),
            v if v < self.oi.user_version => Err(ERANGE.into()),
            v if v > self.oi.user_version => Err(EOVERFLOW.into()),
            _ => Ok(0),
        }
    }

    pub(super) fn op_write(&mut self, op: &OsdOp) -> Step<i32> {
        let mut e = op.extent();
        if e.length != op.indata.len() as u64 {
            return Err(EINVAL.into());
        }
        self.write_at(&mut e, op.indata.clone())?;
        Ok(0)
    }

    pub(super) fn op_append(&mut self, op: &OsdOp) -> Step<i32> {
        let mut e = op.extent();
        if e.length != op.indata.len() as u64 {
            return Err(EINVAL.into());
        }
        // An append is never older than the object's last truncation.
        (e.offset, e.truncate_seq, e.truncate_size) = (self.oi.size, self.oi.truncate_seq, self.oi.truncate_size);
        self.write_at(&mut e, op.indata.clone())?;
        Ok(0)
    }

    /// Writes `data` at the extent's offset, with the truncation rules of CephFS.
    fn write_at(&mut self, e: &mut Extent, mut data: Bytes) -> Step<()> {
        let seq = self.oi.truncate_seq;
        if seq != 0 && seq > e.truncate_seq && e.offset.saturating_add(e.length) > self.oi.size {
            // The client sent the write before the truncation: the part beyond the size is dropped.
            e.length = self.oi.size.saturating_sub(e.offset);
            data.truncate(e.length as usize);
        }
        if e.truncate_seq > seq {
            // The client knows of a truncation that has not arrived here.
            if self.exists {
                if e.truncate_size > OBJECT_SIZE_MAX {
                    return Err(EFBIG.into());
                }
                self.set_size(e.truncate_size);
            }
            self.oi.truncate_seq = e.truncate_seq;
            self.oi.truncate_size = e.truncate_size;
        }
        check_range(e.offset, e.length)?;
        self.create_keeping_truncate();
        if e.length == 0 {
            if e.offset > self.oi.size {
                self.set_size(e.offset);
            } else {
                self.change.any = true;
            }
        } else {
            self.view.write(e.offset, data);
        }
        self.wrote(e.offset, e.length);
        Ok(())
    }

    /// Creates the object, but keeps the truncation that the write carried.
    fn create_keeping_truncate(&mut self) {
        let (seq, size) = (self.oi.truncate_seq, self.oi.truncate_size);
        self.create();
        self.oi.truncate_seq = seq;
        self.oi.truncate_size = size;
    }

    /// Accounts for a write to a range.
    fn wrote(&mut self, off: u64, len: u64) {
        self.note_modified(off, len);
        if len > 0 && off + len > self.oi.size {
            self.delta.num_bytes += (off + len) as i64 - self.oi.size as i64;
            self.oi.size = off + len;
        }
        self.delta.num_wr += 1;
        self.delta.num_wr_kb += kib(len);
        self.bytes_written += len;
    }

    /// Records a changed range, if the object has clones or the write may make one.
    pub(super) fn note_modified(&mut self, off: u64, len: u64) {
        if !self.before.ss.clones.is_empty() || !self.snapc.snaps.is_empty() {
            self.modified.note(&[(off, len)]);
        }
    }

    /// Sets the size, by truncation or growth.
    fn set_size(&mut self, size: u64) {
        self.view.truncate(size);
        if self.oi.size > size {
            self.note_modified(size, self.oi.size - size);
        }
        self.delta.num_bytes += size as i64 - self.oi.size as i64;
        self.oi.size = size;
    }

    pub(super) fn op_writefull(&mut self, op: &OsdOp) -> Step<i32> {
        let e = op.extent();
        if e.length != op.indata.len() as u64 {
            return Err(EINVAL.into());
        }
        self.write_full(op.indata.clone())?;
        Ok(0)
    }

    /// Replaces all data.
    pub(super) fn write_full(&mut self, data: Bytes) -> Step<()> {
        let len = data.len() as u64;
        check_range(0, len)?;
        self.create();
        if self.oi.size > 0 && (len < self.oi.size || !len.is_multiple_of(store::BLOCK)) {
            // No byte of the object's last block is kept then, so the store need not read it.
            self.view.truncate(0);
        }
        if len > 0 {
            self.view.write(0, data);
        } else {
            self.change.any = true;
        }
        let old = self.oi.size;
        self.note_modified(0, old);
        self.delta.num_bytes += len as i64 - old as i64;
        self.oi.size = len;
        self.delta.num_wr += 1;
        self.delta.num_wr_kb += kib(len);
        self.bytes_written += len;
        Ok(())
    }

    pub(super) fn op_writesame(&mut self, op: &OsdOp) -> Step<i32> {
        let a = op.writesame();
        if a.length == 0 {
            return Ok(0);
        }
        if a.data_length == 0 || !a.length.is_multiple_of(a.data_length) || a.data_length != op.indata.len() as u64 {
            return Err(EINVAL.into());
        }
        check_range(a.offset, a.length)?;
        if !self.view.takes_payload(a.length as usize) {
            return Err(self.too_large());
        }
        let data: Bytes = op.indata.repeat((a.length / a.data_length) as usize).into();
        let mut e = Extent { offset: a.offset, length: a.length, ..Extent::default() };
        self.write_at(&mut e, data)?;
        Ok(0)
    }

    pub(super) fn op_truncate(&mut self, op: &OsdOp, by_seq: bool) -> Step<i32> {
        let mut e = op.extent();
        if by_seq {
            e.offset = e.truncate_size;
        }
        self.truncate_to(&e)?;
        Ok(0)
    }

    /// Truncates the object, with the sequence rules of CephFS.
    pub(super) fn truncate_to(&mut self, e: &Extent) -> Step<()> {
        if !self.exists {
            return Ok(());
        }
        check_range(e.offset, e.length)?;
        if e.truncate_seq != 0 {
            if e.offset != e.truncate_size {
                return Err(EINVAL.into());
            }
            if e.truncate_seq <= self.oi.truncate_seq {
                return Ok(());
            }
            self.oi.truncate_seq = e.truncate_seq;
            self.oi.truncate_size = e.truncate_size;
        }
        self.set_size(e.offset);
        self.delta.num_wr += 1;
        Ok(())
    }

    pub(super) fn op_settrunc(&mut self, op: &OsdOp) -> Step<i32> {
        let e = op.extent();
        if !self.exists {
            return Err(ENOENT.into());
        }
        if e.truncate_seq > self.oi.truncate_seq {
            self.oi.truncate_seq = e.truncate_seq;
            self.oi.truncate_size = e.truncate_size;
            self.change.any = true;
        }
        Ok(0)
    }

    pub(super) fn op_zero(&mut self, op: &OsdOp) -> Step<i32> {
        let e = op.extent();
        self.zero_range(e.offset, e.length)?;
        Ok(0)
    }

    /// Zeroes a range; a range that reaches the end truncates the object.
    pub(super) fn zero_range(&mut self, off: u64, len: u64) -> Step<()> {
        check_range(off, len)?;
        if len == 0 || !self.exists || off >= self.oi.size {
            return Ok(());
        }
        if off + len >= self.oi.size {
            return self.truncate_to(&Extent { offset: off, ..Extent::default() });
        }
        self.view.zero(off, len);
        self.note_modified(off, len);
        self.delta.num_wr += 1;
        Ok(())
    }

    pub(super) fn op_create(&mut self, op: &OsdOp) -> Step<i32> {
        if self.exists && op.flags & op_flags::EXCL != 0 {
            return Err(EEXIST.into());
        }
        if !op.indata.is_empty() {
            // A category name of old clients: it must decode and is ignored.
            Reader::new(&op.indata).blob().map_err(|_| EINVAL)?;
        }
        self.create();
        self.change.any = true;
        Ok(0)
    }

    /// Deletes the object; its clones stay.
    pub(super) fn delete(&mut self) -> Step<()> {
        if !self.exists {
            return Err(ENOENT.into());
        }
        self.note_modified(0, self.oi.size);
        self.view.remove();
        self.delta.num_wr += 1;
        self.delta.num_bytes -= self.oi.size as i64;
        self.delta.num_objects -= 1;
        for (cookie, name) in std::mem::take(&mut self.oi.watchers).into_keys() {
            self.effects.disconnects.push(WatchDisconnect { key: (cookie, name), tell: true });
        }
        self.oi.reset();
        self.exists = false;
        if !self.before.exists {
            // The vector created the object and removed it again: nothing changes.
            self.change.any = false;
        }
        Ok(())
    }

    pub(super) fn op_alloc_hint(&mut self, op: &OsdOp) -> Step<i32> {
        let a = op.alloc_hint();
        self.create();
        let oi: &mut ObjectInfo = &mut self.oi;
        if (oi.expected_object_size, oi.expected_write_size, oi.alloc_hint_flags)
            != (a.expected_object_size, a.expected_write_size, a.flags)
        {
            oi.expected_object_size = a.expected_object_size;
            oi.expected_write_size = a.expected_write_size;
            oi.alloc_hint_flags = a.flags;
            let (_, _, cid) = self.view.store();
            let oid = self.view.target().clone();
            self.view.ops.push(store::Op::SetAllocHint {
                cid,
                oid,
                object_size: a.expected_object_size,
                write_size: a.expected_write_size,
                flags: a.flags,
            });
        }
        self.change.any = true;
        Ok(0)
    }

    /// The range of the whole object, for a rollback.
    pub(super) fn whole(&self) -> Intervals {
        Intervals::one(0, self.oi.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_may_end_where_the_largest_object_does() {
        for (off, len) in [(0, 0), (0, OBJECT_SIZE_MAX), (OBJECT_SIZE_MAX - 1, 1)] {
            assert!(check_range(off, len).is_ok(), "{off} {len}");
        }
        let beyond =
            [(OBJECT_SIZE_MAX, 0), (OBJECT_SIZE_MAX - 1, 2), (1, OBJECT_SIZE_MAX), (0, u64::MAX), (u64::MAX, 1)];
        for (off, len) in beyond {
            assert!(check_range(off, len).is_err(), "{off} {len}");
        }
    }
}
