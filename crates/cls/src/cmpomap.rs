//! Class `cmpomap`: compares omap values with given ones, and sets or removes the keys whose comparison holds.
//!
//! The given value is the left operand. In numeric mode (u64) an empty stored value is 0; in text mode values compare
//! bytewise.

use crate::ctx::{ClsError, ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::{fail, input, omap_opt};
use base::errno::{ECANCELED, EINVAL, EIO};
use bytes::Bytes;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use wire::Reader;

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[
    Method::rdwr("cmp_rm_keys", cmp_rm_keys),
    Method::rdwr("cmp_set_vals", cmp_set_vals),
    Method::rd("cmp_vals", cmp_vals),
];

/// Most keys of one call (`max_keys` of Ceph's class).
const KEYS_MAX: usize = 1000;

const TEXT: u8 = 1;
const NUMBER: u8 = 2;

struct Comparison {
    mode: u8,
    op: u8,
    values: BTreeMap<Bytes, Bytes>,
    default: Option<Bytes>,
}

impl Comparison {
    fn decode(i: &Bytes, with_default: bool) -> ClsResult<Self> {
        let k = input(i, |r| {
            r.versioned("cls::cmpomap", 1, |r, _| {
                Ok(Self {
                    mode: r.u8()?,
                    op: r.u8()?,
                    values: r.get()?,
                    default: if with_default { r.get()? } else { None },
                })
            })
        })?;
        if k.values.len() > KEYS_MAX { fail(base::errno::E2BIG) } else { Ok(k) }
    }

    fn ordering_fits(&self, o: Ordering) -> ClsResult<bool> {
        Ok(match self.op {
            1 => o.is_eq(),
            2 => o.is_ne(),
            3 => o.is_gt(),
            4 => o.is_ge(),
            5 => o.is_lt(),
            6 => o.is_le(),
            _ => return fail(EINVAL),
        })
    }

    /// Result of a comparison. `EINVAL` if the given value is not a number, `EIO` if the stored value is not.
    fn holds(&self, given: &[u8], stored: &[u8]) -> ClsResult<bool> {
        match self.mode {
            TEXT => self.ordering_fits(given.cmp(stored)),
            NUMBER => {
                let Ok(given) = Reader::new(given).u64() else { return fail(EINVAL) };
                let stored = if stored.is_empty() { 0 } else { Reader::new(stored).u64().or(fail(EIO))? };
                self.ordering_fits(given.cmp(&stored))
            }
            _ => fail(EINVAL),
        }
    }

    /// As [`Comparison::holds`], but false if the stored value is not a number.
    fn holds_or_not(&self, given: &[u8], stored: &[u8]) -> ClsResult<bool> {
        match self.holds(given, stored) {
            Err(ClsError::Fail { errno: EIO, .. }) => Ok(false),
            r => r,
        }
    }
}

/// Fails with `ECANCELED` unless all comparisons hold.
fn cmp_vals(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let k = Comparison::decode(i, true)?;
    for (key, given) in &k.values {
        let Some(stored) = omap_opt(c, key)?.or(k.default.clone()) else { return fail(ECANCELED) };
        if !k.holds(given, &stored)? {
            return fail(ECANCELED);
        }
    }
    Ok(Output::default())
}

/// Sets the keys whose comparison holds to the given values.
fn cmp_set_vals(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let k = Comparison::decode(i, true)?;
    let mut chosen = Vec::new();
    for (key, given) in &k.values {
        if let Some(stored) = omap_opt(c, key)?.or(k.default.clone())
            && k.holds_or_not(given, &stored)?
        {
            chosen.push((key.clone(), given.clone()));
        }
    }
    if chosen.is_empty() { Ok(Output::default()) } else { c.omap_set(&chosen).map(Output::from) }
}

/// Removes the keys whose comparison holds.
fn cmp_rm_keys(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let k = Comparison::decode(i, false)?;
    for (key, given) in &k.values {
        if let Some(stored) = omap_opt(c, key)?
            && k.holds_or_not(given, &stored)?
        {
            c.omap_rm(key)?;
        }
    }
    Ok(Output::default())
}
