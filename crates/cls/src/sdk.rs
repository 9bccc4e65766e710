//! Class `sdk`: writes and reads back each kind of data; used by Ceph's tests.

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::{fail, omap_put};
use base::errno::EIO;
use bytes::Bytes;

/// The methods, sorted.
pub(crate) const METHODS: &[Method] =
    &[Method::rdwr("test_coverage_replay", replay), Method::rdwr("test_coverage_write", write)];

fn write(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    c.create(false)?;
    c.stat()?;
    c.write(0, b"test")?;
    c.stat()?;
    c.setxattr(b"foo", b"test")?;
    omap_put(c, &b"foo"[..], &b"test"[..]).map(Output::from)
}

fn replay(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let (size, _) = c.stat()?;
    let all = [c.read(0, size)?, c.getxattr(b"foo")?, c.omap_get(b"foo")?];
    if all.iter().any(|b| b.len() as u64 != size) {
        return fail(EIO);
    }
    c.remove().map(Output::from)
}
