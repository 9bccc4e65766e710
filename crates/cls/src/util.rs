//! Small helpers shared by the classes: decoding input and stored values, encoding output, walking the omap.
//!
//! Ceph's strings are byte strings: they are kept as [`Bytes`], so that any name survives.

use crate::ctx::{ClsError, ClsResult, ObjectCtx};
use base::errno::{EINVAL, EIO, ENODATA, ENOENT};
use bytes::Bytes;
use wire::{Decode, Features, Reader, Writer};

/// Entries asked for at once when a whole omap or prefix is walked.
pub(crate) const OMAP_PAGE: usize = 1024;

/// Ends the method with an errno.
pub(crate) fn fail<T>(errno: i32) -> ClsResult<T> {
    Err(errno.into())
}

/// Reads the method's input with `f`; anything undecodable is `EINVAL`. What follows the fields is ignored.
pub(crate) fn input<T>(i: &Bytes, f: impl FnOnce(&mut Reader<'_>) -> wire::codec::Result<T>) -> ClsResult<T> {
    f(&mut Reader::shared(i)).map_err(|_| EINVAL.into())
}

/// Reads a stored value with `f`; anything undecodable is `EIO`.
pub(crate) fn stored<T>(b: &Bytes, f: impl FnOnce(&mut Reader<'_>) -> wire::codec::Result<T>) -> ClsResult<T> {
    f(&mut Reader::shared(b)).map_err(|_| EIO.into())
}

/// A stored value of a type that decodes itself.
pub(crate) fn stored_as<T: Decode>(b: &Bytes) -> ClsResult<T> {
    stored(b, T::decode)
}

/// Bytes written by `f` in the newest encodings.
pub(crate) fn enc(f: impl FnOnce(&mut Writer)) -> Bytes {
    enc_for(Features::PACIFIC, f)
}

/// Bytes written by `f` for a peer with `features`.
pub(crate) fn enc_for(features: Features, f: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new(features);
    f(&mut w);
    w.into_bytes()
}

/// `a` and `b` joined.
pub(crate) fn join(a: &[u8], b: &[u8]) -> Bytes {
    let mut v = Vec::with_capacity(a.len() + b.len());
    v.extend_from_slice(a);
    v.extend_from_slice(b);
    v.into()
}

/// Turns `ENOENT` and `ENODATA` into `None`.
pub(crate) fn optional<T>(r: ClsResult<T>) -> ClsResult<Option<T>> {
    match r {
        Ok(v) => Ok(Some(v)),
        Err(ClsError::Fail { errno: ENOENT | ENODATA, .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The value of an omap key, if present.
pub(crate) fn omap_opt(c: &mut dyn ObjectCtx, key: &[u8]) -> ClsResult<Option<Bytes>> {
    optional(c.omap_get(key))
}

/// Sets one omap key.
pub(crate) fn omap_put(c: &mut dyn ObjectCtx, key: impl Into<Bytes>, value: impl Into<Bytes>) -> ClsResult<()> {
    c.omap_set(&[(key.into(), value.into())])
}

/// Calls `f` for every entry whose key begins with `prefix` and lies after `start_after`, until `f` answers false.
pub(crate) fn omap_walk(
    c: &mut dyn ObjectCtx,
    start_after: &[u8],
    prefix: &[u8],
    mut f: impl FnMut(Bytes, Bytes) -> ClsResult<bool>,
) -> ClsResult<()> {
    let mut after = Bytes::copy_from_slice(start_after);
    loop {
        let (page, more) = c.omap_list(&after, prefix, OMAP_PAGE)?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = last.clone();
        for (k, v) in page {
            if !f(k, v)? {
                return Ok(());
            }
        }
        if !more {
            return Ok(());
        }
    }
}

/// Exactly the first `max` entries after `start_after`, or all there are, and whether more follow.
pub(crate) fn omap_first(
    c: &mut dyn ObjectCtx,
    start_after: &[u8],
    max: usize,
) -> ClsResult<(Vec<(Bytes, Bytes)>, bool)> {
    let (mut all, mut more) = c.omap_list(start_after, b"", max)?;
    while more && all.len() < max {
        let Some((last, _)) = all.last().cloned() else { break };
        let (page, rest) = c.omap_list(&last, b"", max - all.len())?;
        all.extend(page);
        more = rest;
    }
    Ok((all, more))
}
