//! CALL: runs a class method on the object, in the context of the vector.

use super::data::check_range;
use super::{OpCtx, Step, Stop};
use crate::limits::OMAP_BYTES_PER_REQUEST;
use base::errno::{EEXIST, EINVAL, ENOENT, EOPNOTSUPP};
use base::{EntityAddr, EntityName, Utime};
use bytes::Bytes;
use cls::ctx::{ClsResult, Watcher};
use cls::{ClsError, ObjectCtx, Parts, Room};
use wire::msg::osd_op::Extent;
use wire::msg::{OpCode, OsdOp};

/// Entries per page if a method lists without a limit.
const LIST_MAX: usize = 16_384;

impl From<Stop> for ClsError {
    fn from(s: Stop) -> Self {
        match s {
            Stop::Wait => Self::Wait,
            Stop::Errno(e) => e.into(),
        }
    }
}

impl OpCtx<'_> {
    pub(super) fn op_call(&mut self, op: &mut OsdOp) -> Step<i32> {
        let (class, method, input) = op.cls_payload().ok_or(EINVAL)?;
        let Some(found) = cls::find(class, method) else {
            tracing::debug!(
                class = %String::from_utf8_lossy(class),
                method = %String::from_utf8_lossy(method),
                "no such class method"
            );
            return Err(EOPNOTSUPP.into());
        };
        if found.flags.writes() {
            self.change.by_user = true;
        }
        let result = found.run(&mut ClsCtx(self), &input);
        match result {
            Ok(o) => {
                op.outdata = o.out;
                Ok(o.ret)
            }
            Err(ClsError::Wait) => Err(Stop::Wait),
            Err(ClsError::Fail { errno, out }) => {
                op.outdata = out;
                Err(errno.into())
            }
        }
    }
}

/// The vector's context, as class methods use it.
struct ClsCtx<'x, 'a>(&'x mut OpCtx<'a>);

fn own(b: &[u8]) -> Bytes {
    Bytes::copy_from_slice(b)
}

impl ObjectCtx for ClsCtx<'_, '_> {
    fn exists(&mut self) -> ClsResult<bool> {
        Ok(self.0.exists)
    }

    fn stat(&mut self) -> ClsResult<(u64, Utime)> {
        self.0.delta.num_rd += 1;
        if !self.0.exists {
            return Err(ENOENT.into());
        }
        Ok((self.0.oi.size, self.0.oi.mtime))
    }

    fn read(&mut self, off: u64, len: u64) -> ClsResult<Bytes> {
        let mut op = OsdOp::with_extent(OpCode::READ, off, len, Bytes::new());
        self.0.op_read(&mut op)?;
        Ok(op.outdata)
    }

    fn create(&mut self, exclusive: bool) -> ClsResult<()> {
        if exclusive && self.0.exists {
            return Err(EEXIST.into());
        }
        self.0.create();
        self.0.change.any = true;
        Ok(())
    }

    fn remove(&mut self) -> ClsResult<()> {
        Ok(self.0.delete()?)
    }

    fn write(&mut self, off: u64, data: &[u8]) -> ClsResult<()> {
        let op = OsdOp::with_extent(OpCode::WRITE, off, data.len() as u64, own(data));
        self.0.permits(OpCode::WRITE, off)?;
        self.0.op_write(&op)?;
        Ok(())
    }

    fn write_full(&mut self, data: &[u8]) -> ClsResult<()> {
        Ok(self.0.write_full(own(data))?)
    }

    fn truncate(&mut self, size: u64) -> ClsResult<()> {
        self.0.permits(OpCode::TRUNCATE, 0)?;
        check_range(size, 0)?;
        Ok(self.0.truncate_to(&Extent { offset: size, ..Extent::default() })?)
    }

    fn zero(&mut self, off: u64, len: u64) -> ClsResult<()> {
        self.0.permits(OpCode::ZERO, 0)?;
        Ok(self.0.zero_range(off, len)?)
    }

    fn getxattr(&mut self, name: &[u8]) -> ClsResult<Bytes> {
        Ok(self.0.user_attr(name)?)
    }

    fn getxattrs(&mut self) -> ClsResult<Vec<(Bytes, Bytes)>> {
        Ok(self.0.user_attrs()?.into_iter().collect())
    }

    fn setxattr(&mut self, name: &[u8], value: &[u8]) -> ClsResult<()> {
        Ok(self.0.set_user_attr(name, own(value))?)
    }

    fn rmxattr(&mut self, name: &[u8]) -> ClsResult<()> {
        Ok(self.0.rm_user_attr(name)?)
    }

    fn omap_header(&mut self) -> ClsResult<Bytes> {
        Ok(self.0.get_omap_header()?)
    }

    fn omap_set_header(&mut self, header: &[u8]) -> ClsResult<()> {
        self.0.permits(OpCode::OMAPSETHEADER, 0)?;
        self.0.set_omap_header(own(header));
        Ok(())
    }

    fn omap_get(&mut self, key: &[u8]) -> ClsResult<Bytes> {
        self.0.get_omap(key)?.ok_or_else(|| ENOENT.into())
    }

    fn omap_list(&mut self, start_after: &[u8], prefix: &[u8], max: usize) -> ClsResult<(Vec<(Bytes, Bytes)>, bool)> {
        Ok(self.0.list_omap(start_after, prefix, max.min(LIST_MAX), OMAP_BYTES_PER_REQUEST)?)
    }

    fn omap_part(&mut self, start_after: &[u8], prefix: &[u8], room: Room) -> ClsResult<(Vec<(Bytes, Bytes)>, bool)> {
        Ok(self.0.list_omap(start_after, prefix, room.entries, room.bytes)?)
    }

    fn parts(&mut self) -> &mut Parts {
        &mut self.0.long.parts
    }

    fn omap_set(&mut self, entries: &[(Bytes, Bytes)]) -> ClsResult<()> {
        self.0.permits(OpCode::OMAPSETVALS, 0)?;
        self.0.set_omap(entries.to_vec());
        Ok(())
    }

    fn omap_rm(&mut self, key: &[u8]) -> ClsResult<()> {
        self.0.permits(OpCode::OMAPRMKEYS, 0)?;
        Ok(self.0.rm_omap(vec![own(key)])?)
    }

    fn omap_rm_range(&mut self, first: &[u8], last: &[u8]) -> ClsResult<()> {
        self.0.permits(OpCode::OMAPRMKEYRANGE, 0)?;
        Ok(self.0.rm_omap_range(own(first), own(last))?)
    }

    fn omap_clear(&mut self) -> ClsResult<()> {
        self.0.permits(OpCode::OMAPCLEAR, 0)?;
        Ok(self.0.clear_omap()?)
    }

    fn now(&self) -> Utime {
        self.0.env.now.wall
    }

    fn origin(&self) -> (EntityName, EntityAddr) {
        (self.0.env.client, self.0.env.addr)
    }

    fn current_version(&self) -> u64 {
        self.0.env.next_version.version
    }

    fn subop_index(&self) -> u32 {
        self.0.index
    }

    fn snapset_seq(&mut self) -> ClsResult<u64> {
        let ss = &self.0.before.ss;
        if self.0.exists || !ss.clones.is_empty() { Ok(ss.seq) } else { Err(ENOENT.into()) }
    }

    fn snap_context(&self) -> (u64, Vec<u64>) {
        (self.0.snapc.seq, self.0.snapc.snaps.clone())
    }

    fn watchers(&mut self) -> ClsResult<Vec<Watcher>> {
        Ok(self
            .0
            .oi
            .watchers
            .iter()
            .map(|((cookie, name), w)| Watcher {
                name: *name,
                addr: w.addr,
                cookie: *cookie,
                timeout: w.timeout_seconds,
            })
            .collect())
    }

    fn client_features(&self) -> u64 {
        self.0.env.features
    }

    fn random(&mut self) -> u64 {
        self.0.rng.next_u64()
    }

    fn log(&self, text: &str) {
        tracing::debug!(object = %self.0.head, "{text}");
    }
}
