//! Key-value metadata of an image or pool: keys `metadata_<key>`, unencoded values.

use super::{answer, entries};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{input, join};
use bytes::Bytes;
use std::collections::BTreeMap;

const PREFIX: &[u8] = b"metadata_";
/// Page size if the caller's maximum is zero.
const LIST_DEFAULT: u64 = 64;

pub(super) fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (after, max) = input(i, |r| Ok((r.blob()?, r.u64()?)))?;
    let max = if max == 0 { LIST_DEFAULT } else { max };
    answer(&entries(c, PREFIX, &after, max)?.into_iter().collect::<BTreeMap<_, _>>())
}

pub(super) fn set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let data: BTreeMap<Bytes, Bytes> = input(i, |r| r.get())?;
    let keys: Vec<_> = data.into_iter().map(|(k, v)| (join(PREFIX, &k), v)).collect();
    c.omap_set(&keys).map(Output::from)
}

pub(super) fn remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let key = input(i, |r| r.blob())?;
    c.omap_rm(&join(PREFIX, &key)).map(Output::from)
}

pub(super) fn get(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let key = input(i, |r| r.blob())?;
    answer(&c.omap_get(&join(PREFIX, &key))?)
}
