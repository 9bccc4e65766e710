//! Class `sem_set`: named counters that are removed at zero, used by radosgw's multisite.
//!
//! Stored: omap `CLS_SEM_SET_<name>` → ENCODE(1,1){u64 value, time of the last decrement}.

use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::{Method, Output};
use crate::util::{LIST_BYTES, OMAP_PAGE, bytes_of, enc, fail, input, join, omap_opt, omap_put, stored};
use base::Utime;
use base::errno::{E2BIG, ENOENT};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// The methods, sorted.
pub(crate) const METHODS: &[Method] = &[
    Method::rdwr("decrement", decrement),
    Method::rdwr("increment", increment),
    Method::rd("list", list),
    Method::rdwr("reset", reset),
];

const PREFIX: &[u8] = b"CLS_SEM_SET_";
/// Most names of one call.
const KEYS_MAX: usize = 1000;

/// Time of the last decrement of a counter that was never decremented: the earliest time of Ceph's clock, as encoded.
const NEVER: Utime = Utime { sec: 0, nsec: 0 };

fn load(c: &mut dyn ObjectCtx, name: &[u8]) -> ClsResult<Option<(u64, Utime)>> {
    omap_opt(c, &join(PREFIX, name))?
        .map(|b| stored(&b, |r| r.versioned("sem_val", 1, |r, _| Ok((r.u64()?, r.get()?)))))
        .transpose()
}

fn save(c: &mut dyn ObjectCtx, name: &[u8], value: u64, last: Utime) -> ClsResult<()> {
    let b = enc(|w| {
        w.versioned(1, 1, |w| {
            w.u64(value);
            w.put(&last);
        });
    });
    omap_put(c, join(PREFIX, name), b)
}

fn increment(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let names: BTreeSet<Bytes> = input(i, |r| r.versioned("sem_set::increment", 1, |r, _| r.get()))?;
    if names.len() > KEYS_MAX {
        return fail(E2BIG);
    }
    for name in &names {
        let (value, last) = load(c, name)?.unwrap_or((0, NEVER));
        save(c, name, value.wrapping_add(1), last)?;
    }
    Ok(Output::default())
}

/// Decrements the counters whose last decrement is at least the grace time ago.
fn decrement(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (names, grace) = input(i, |r| {
        r.versioned("sem_set::decrement", 1, |r, _| {
            Ok((r.get::<BTreeSet<Bytes>>()?, Utime { sec: r.u32()?, nsec: r.u32()? }.to_unix()))
        })
    })?;
    if names.len() > KEYS_MAX {
        return fail(E2BIG);
    }
    let now = c.now();
    for name in &names {
        let Some((value, last)) = load(c, name)? else { return fail(ENOENT) };
        if now < last || now.to_unix().saturating_sub(last.to_unix()) < grace {
            continue;
        }
        if value > 1 {
            save(c, name, value - 1, now)?;
        } else {
            c.omap_rm(&join(PREFIX, name))?;
        }
    }
    Ok(Output::default())
}

fn reset(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let values: BTreeMap<Bytes, u64> = input(i, |r| r.versioned("sem_set::reset", 1, |r, _| r.get()))?;
    if values.len() > KEYS_MAX {
        return fail(E2BIG);
    }
    for (name, value) in &values {
        save(c, name, *value, NEVER)?;
    }
    Ok(Output::default())
}

fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (max, mut cursor) = input(i, |r| r.versioned("sem_set::list_op", 1, |r, _| Ok((r.u64()?, r.blob()?))))?;
    let mut left = usize::try_from(max).map_or(OMAP_PAGE, |m| m.min(OMAP_PAGE));
    let (mut found, mut bytes): (BTreeMap<Bytes, u64>, _) = (BTreeMap::new(), 0);
    while left > 0 && bytes < LIST_BYTES {
        let after = [PREFIX, &cursor, b"\x01"].concat();
        let (page, more) = c.omap_list(&after, PREFIX, left)?;
        left = left.saturating_sub(page.len());
        bytes += bytes_of(&page);
        for (k, b) in page {
            let value = stored(&b, |r| r.versioned("sem_val", 1, |r, _| r.u64()))?;
            cursor = k.slice(PREFIX.len()..);
            found.insert(cursor.clone(), value);
        }
        if !more {
            cursor = Bytes::new();
            break;
        }
    }
    Ok(enc(|w| {
        w.versioned(1, 1, |w| {
            w.put(&found);
            w.blob(&cursor);
        });
    })
    .into())
}
