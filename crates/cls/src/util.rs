//! Helpers shared by the classes: decoding input and stored values, encoding output, iterating over the omap.
//!
//! Ceph's strings are byte strings and are kept as [`Bytes`], so that any name is preserved.

use crate::ctx::{ClsError, ClsResult, ObjectCtx};
use base::errno::{E2BIG, EINVAL, EIO, ENODATA, ENOENT};
use bytes::Bytes;
use wire::{Decode, Features, Reader, Writer};

/// Entries per request when a whole omap or prefix is read.
pub(crate) const OMAP_PAGE: usize = 1024;

/// Bytes of entries after which a page or a listing ends early. Gateways never reach it with their entries; a client
/// that makes larger ones gets short pages.
pub(crate) const LIST_BYTES: usize = 16 << 20;

/// Most entries that a call collects or goes through within one turn of a reactor: about 50 ms.
pub(crate) const ENTRIES_MAX: usize = 65_536;

/// Most bytes of such entries.
pub(crate) const ENTRIES_BYTES: usize = 128 << 20;

/// Bytes of keys and values.
pub(crate) fn bytes_of(rows: &[(Bytes, Bytes)]) -> usize {
    rows.iter().map(|(k, v)| k.len() + v.len()).sum()
}

/// Ends the method with an errno.
pub(crate) fn fail<T>(errno: i32) -> ClsResult<T> {
    Err(errno.into())
}

/// Decodes a method's input with `f`; undecodable input is `EINVAL`. Trailing bytes are ignored.
pub(crate) fn input<T>(i: &Bytes, f: impl FnOnce(&mut Reader<'_>) -> wire::codec::Result<T>) -> ClsResult<T> {
    f(&mut Reader::shared(i)).map_err(|_| EINVAL.into())
}

/// Decodes a stored value with `f`; an undecodable value is `EIO`.
pub(crate) fn stored<T>(b: &Bytes, f: impl FnOnce(&mut Reader<'_>) -> wire::codec::Result<T>) -> ClsResult<T> {
    f(&mut Reader::shared(b)).map_err(|_| EIO.into())
}

/// Decodes a stored value of a type with a decoder.
pub(crate) fn stored_as<T: Decode>(b: &Bytes) -> ClsResult<T> {
    stored(b, T::decode)
}

/// Encodes with `f` in the newest format.
pub(crate) fn enc(f: impl FnOnce(&mut Writer)) -> Bytes {
    enc_for(Features::PACIFIC, f)
}

/// Encodes with `f` for a peer with `features`.
pub(crate) fn enc_for(features: Features, f: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::new(features);
    f(&mut w);
    w.into_bytes()
}

/// Concatenation of `a` and `b`.
pub(crate) fn join(a: &[u8], b: &[u8]) -> Bytes {
    let mut v = Vec::with_capacity(a.len() + b.len());
    v.extend_from_slice(a);
    v.extend_from_slice(b);
    v.into()
}

/// Maps `ENOENT` and `ENODATA` to `None`.
pub(crate) fn optional<T>(r: ClsResult<T>) -> ClsResult<Option<T>> {
    match r {
        Ok(v) => Ok(Some(v)),
        Err(ClsError::Fail { errno: ENOENT | ENODATA, .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Value of an omap key; `None` if absent.
pub(crate) fn omap_opt(c: &mut dyn ObjectCtx, key: &[u8]) -> ClsResult<Option<Bytes>> {
    optional(c.omap_get(key))
}

/// Sets one omap key.
pub(crate) fn omap_put(c: &mut dyn ObjectCtx, key: impl Into<Bytes>, value: impl Into<Bytes>) -> ClsResult<()> {
    c.omap_set(&[(key.into(), value.into())])
}

/// Calls `f` for every entry whose key begins with `prefix` and lies after `start_after`, until `f` returns false. More
/// than [`ENTRIES_MAX`] entries or [`ENTRIES_BYTES`] are `E2BIG`: where there may be as many, a method uses
/// [`crate::parts::omap_fold`].
pub(crate) fn omap_walk(
    c: &mut dyn ObjectCtx,
    start_after: &[u8],
    prefix: &[u8],
    mut f: impl FnMut(Bytes, Bytes) -> ClsResult<bool>,
) -> ClsResult<()> {
    let mut after = Bytes::copy_from_slice(start_after);
    let (mut entries, mut bytes) = (0, 0);
    loop {
        let (page, more) = c.omap_list(&after, prefix, OMAP_PAGE)?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = last.clone();
        entries += page.len();
        bytes += bytes_of(&page);
        if entries > ENTRIES_MAX || bytes > ENTRIES_BYTES {
            return fail(E2BIG);
        }
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

/// The first `max` entries with a prefix after `start_after`, or all if there are fewer; and whether more follow. Ends
/// early after [`LIST_BYTES`].
pub(crate) fn omap_first(
    c: &mut dyn ObjectCtx,
    start_after: &[u8],
    prefix: &[u8],
    max: usize,
) -> ClsResult<(Vec<(Bytes, Bytes)>, bool)> {
    let (mut all, mut more) = c.omap_list(start_after, prefix, max)?;
    let mut bytes = bytes_of(&all);
    while more && all.len() < max && bytes < LIST_BYTES {
        let Some((last, _)) = all.last().cloned() else { break };
        let (page, rest) = c.omap_list(&last, prefix, max - all.len())?;
        bytes += bytes_of(&page);
        more = rest && !page.is_empty();
        all.extend(page);
    }
    Ok((all, more))
}
