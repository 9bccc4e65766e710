//! The image header: size, features, flags, striping, times.
//!
//! Keys: `size` u64, `order` u8, `features` u64, `object_prefix` str, `snap_seq` u64, `flags` u64, `op_features` u64,
//! `stripe_unit` u64, `stripe_count` u64, `data_pool_id` i64, `{create,access,modify}_timestamp` utime.

use super::snapshot;
use super::types::{NOSNAP, Parent};
use super::{answer, drop_key, feature, get, must_exist, need, op_feature, put};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{enc, fail, input};
use base::Utime;
use base::errno::{EEXIST, EINVAL, EIO, ENOEXEC, ENOSYS};
use bytes::Bytes;

/// Fails with `ENOEXEC` unless the image has the features.
pub(super) fn require(c: &mut dyn ObjectCtx, bits: u64) -> ClsResult<()> {
    match get::<u64>(c, b"features")? {
        Some(f) if f & bits == bits => Ok(()),
        _ => fail(ENOEXEC),
    }
}

/// Changes the operation features in `mask`, and sets the feature bit `OPERATIONS` if any remain.
pub(super) fn change_op_features(c: &mut dyn ObjectCtx, bits: u64, mask: u64) -> ClsResult<()> {
    let features: u64 = need(c, b"features")?;
    let old = get::<u64>(c, b"op_features")?.unwrap_or(0);
    let new = (old & !mask) | (bits & mask);
    if new == old {
        return Ok(());
    }
    let wanted = if new == 0 {
        drop_key(c, b"op_features")?;
        features & !feature::OPERATIONS
    } else {
        put(c, b"op_features", &new)?;
        features | feature::OPERATIONS
    };
    if wanted != features {
        put(c, b"features", &wanted)?;
    }
    Ok(())
}

pub(super) fn create(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (size, order, features, prefix, data_pool) = input(i, |r| {
        let (size, order, features, prefix) = (r.u64()?, r.u8()?, r.u64()?, r.blob()?);
        Ok((size, order, features, prefix, if r.is_empty() { -1 } else { r.i64()? }))
    })?;
    if features & !feature::ALL != 0 {
        return fail(ENOSYS);
    }
    if prefix.is_empty() {
        return fail(EINVAL);
    }
    if crate::util::omap_opt(c, b"object_prefix")?.is_some() {
        return fail(EEXIST);
    }
    let wants_pool = features & feature::DATA_POOL != 0;
    if features & feature::OPERATIONS != 0 || wants_pool != (data_pool != -1) {
        return fail(EINVAL);
    }
    let now = c.now();
    let mut keys: Vec<(&'static [u8], Bytes)> = vec![
        (b"size", enc(|w| w.u64(size))),
        (b"order", enc(|w| w.u8(order))),
        (b"features", enc(|w| w.u64(features))),
        (b"object_prefix", enc(|w| w.blob(&prefix))),
        (b"snap_seq", enc(|w| w.u64(0))),
    ];
    for key in [&b"create_timestamp"[..], b"access_timestamp", b"modify_timestamp"] {
        keys.push((key, enc(|w| w.put(&now))));
    }
    if wants_pool {
        keys.push((b"data_pool_id", enc(|w| w.i64(data_pool))));
    }
    let keys: Vec<_> = keys.into_iter().map(|(k, v)| (Bytes::from_static(k), v)).collect();
    c.omap_set(&keys).map(Output::from)
}

pub(super) fn get_all_features(_: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    answer(&feature::ALL)
}

pub(super) fn get_features(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let read_only = input(i, |r| {
        r.u64()?;
        if r.is_empty() { Ok(false) } else { r.bool() }
    })?;
    let features: u64 = need(c, b"features")?;
    let incompatible = features & if read_only { feature::INCOMPATIBLE } else { feature::ALL };
    answer(&(features, incompatible))
}

pub(super) fn set_features(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (features, mask) = input(i, |r| Ok((r.u64()?, r.u64()?)))?;
    let old = get::<u64>(c, b"features")?.unwrap_or(0);
    if mask & feature::INTERNAL != 0 {
        return fail(EINVAL);
    }
    // Newer clients may mask features that are unknown here.
    let mask = mask & feature::ALL;
    let (on, off) = (features & mask, !features & mask);
    if on & !feature::MUTABLE != 0 || off & !(feature::MUTABLE | feature::DISABLE_ONLY) != 0 {
        return fail(EINVAL);
    }
    put(c, b"features", &((old & !mask) | on)).map(Output::from)
}

pub(super) fn get_size(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = input(i, |r| r.u64())?;
    let order: u8 = need(c, b"order")?;
    let size = if id == NOSNAP { need(c, b"size")? } else { snapshot::load(c, id)?.size };
    answer(&(order, size))
}

pub(super) fn set_size(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let size = input(i, |r| r.u64())?;
    let old: u64 = need(c, b"size")?;
    put(c, b"size", &size)?;
    // The image must not read truncated data from the parent when it grows again.
    if size < old
        && let Some(mut p) = get::<Parent>(c, b"parent")?
        && p.exists()
        && p.overlap.unwrap_or(0) > size
    {
        p.overlap = Some(size);
        put(c, b"parent", &p)?;
    }
    Ok(Output::default())
}

pub(super) fn get_object_prefix(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    answer(&need::<Bytes>(c, b"object_prefix")?)
}

pub(super) fn get_data_pool(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    answer(&get::<i64>(c, b"data_pool_id")?.unwrap_or(-1))
}

pub(super) fn get_stripe_unit_count(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    must_exist(c)?;
    require(c, feature::STRIPING)?;
    let unit = match get::<u64>(c, b"stripe_unit")? {
        Some(u) => u,
        None => match get::<u8>(c, b"order")? {
            Some(order) => object_size(order)?,
            None => return fail(EIO),
        },
    };
    let count = get::<u64>(c, b"stripe_count")?.unwrap_or(1);
    answer(&(unit, count))
}

fn object_size(order: u8) -> ClsResult<u64> {
    1u64.checked_shl(order.into()).ok_or(EINVAL.into())
}

pub(super) fn set_stripe_unit_count(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (unit, count) = input(i, |r| Ok((r.u64()?, r.u64()?)))?;
    if unit == 0 || count == 0 {
        return fail(EINVAL);
    }
    must_exist(c)?;
    require(c, feature::STRIPING)?;
    let size = object_size(need(c, b"order")?)?;
    if size % unit != 0 {
        return fail(EINVAL);
    }
    put(c, b"stripe_unit", &unit)?;
    put(c, b"stripe_count", &count).map(Output::from)
}

fn get_time(c: &mut dyn ObjectCtx, key: &[u8]) -> ClsResult<Output> {
    answer(&get::<Utime>(c, key)?.unwrap_or_default())
}

fn set_time(c: &mut dyn ObjectCtx, key: &[u8]) -> ClsResult<Output> {
    must_exist(c)?;
    let now = c.now();
    put(c, key, &now).map(Output::from)
}

pub(super) fn get_create_timestamp(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    get_time(c, b"create_timestamp")
}

pub(super) fn get_access_timestamp(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    get_time(c, b"access_timestamp")
}

pub(super) fn get_modify_timestamp(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    get_time(c, b"modify_timestamp")
}

pub(super) fn set_access_timestamp(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    set_time(c, b"access_timestamp")
}

pub(super) fn set_modify_timestamp(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    set_time(c, b"modify_timestamp")
}

pub(super) fn get_flags(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let id = input(i, |r| r.u64())?;
    let flags = if id == NOSNAP { get(c, b"flags")?.unwrap_or(0) } else { snapshot::load(c, id)?.flags };
    answer(&flags)
}

pub(super) fn set_flags(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (flags, mask, id) = input(i, |r| Ok((r.u64()?, r.u64()?, if r.is_empty() { NOSNAP } else { r.u64()? })))?;
    if id == NOSNAP {
        let old = get::<u64>(c, b"flags")?.unwrap_or(0);
        put(c, b"flags", &((old & !mask) | (flags & mask)))?;
    } else {
        let mut snap = snapshot::load(c, id)?;
        snap.flags = (snap.flags & !mask) | (flags & mask);
        snapshot::store(c, snap)?;
    }
    Ok(Output::default())
}

pub(super) fn op_features_get(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    answer(&get::<u64>(c, b"op_features")?.unwrap_or(0))
}

pub(super) fn op_features_set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (bits, mask) = input(i, |r| Ok((r.u64()?, r.u64()?)))?;
    if mask & !op_feature::ALL != 0 {
        return fail(EINVAL);
    }
    change_op_features(c, bits, mask).map(Output::from)
}
