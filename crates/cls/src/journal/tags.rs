//! Tags of a journal: creation in order, listing, and expiry.

use super::types::{Client, DISCONNECTED, Tag};
use super::{NEXT_TAG_CLASS, NEXT_TAG_TID, all_clients, answer, answer_key, client_key, get as get_key, put};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{fail, input, omap_opt, omap_walk, stored_as};
use base::errno::{EEXIST, EINVAL, ESTALE};
use bytes::Bytes;
use std::collections::BTreeMap;

const PREFIX: &[u8] = b"tag_";
/// Tag class of a request for a new class.
const CLASS_NEW: u64 = u64::MAX;

fn key(tid: u64) -> Vec<u8> {
    format!("tag_{tid:016x}").into_bytes()
}

pub(super) fn get(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let tid = input(i, |r| r.u64())?;
    answer_key::<Tag>(c, &key(tid))
}

/// The last tag of each class, up to the first tag that is not below `limit`. Older tags of the class are no longer
/// needed.
fn last_of_classes(c: &mut dyn ObjectCtx, limit: u64) -> ClsResult<BTreeMap<u64, u64>> {
    let mut last = BTreeMap::new();
    omap_walk(c, PREFIX, PREFIX, |k, b| {
        let t: Tag = stored_as(&b)?;
        if k[..] != key(t.tid) {
            return fail(EINVAL);
        }
        last.insert(t.class, t.tid);
        Ok(t.tid < limit)
    })?;
    Ok(last)
}

/// Removes tags that all connected clients (except `leaving`) have passed.
pub(super) fn expire(c: &mut dyn ObjectCtx, leaving: Option<&Bytes>) -> ClsResult<()> {
    let mut lowest = u64::MAX;
    for client in all_clients(c)? {
        if leaving == Some(&client.id) || client.state == DISCONNECTED {
            continue;
        }
        let Some(tid) = client.commit.iter().map(|p| p.tag_tid).min() else { return Ok(()) };
        lowest = lowest.min(tid);
    }
    if lowest == u64::MAX {
        return Ok(());
    }
    let last = last_of_classes(c, lowest)?;
    let mut doomed = Vec::new();
    omap_walk(c, PREFIX, PREFIX, |k, b| {
        let t: Tag = stored_as(&b)?;
        if last.get(&t.class).is_some_and(|l| t.tid < *l) {
            doomed.push(k);
        }
        Ok(t.tid < lowest)
    })?;
    doomed.iter().try_for_each(|k| c.omap_rm(k))
}

pub(super) fn create(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (tid, class, data) = input(i, |r| Ok((r.u64()?, r.u64()?, r.blob()?)))?;
    if omap_opt(c, &key(tid))?.is_some() {
        return fail(EEXIST);
    }
    if tid != get_key::<u64>(c, NEXT_TAG_TID)? {
        return fail(ESTALE);
    }
    let next_class: u64 = get_key(c, NEXT_TAG_CLASS)?;
    let class = if class == CLASS_NEW {
        put(c, NEXT_TAG_CLASS, &next_class.wrapping_add(1))?;
        next_class
    } else if class >= next_class {
        return fail(EINVAL);
    } else {
        class
    };
    expire(c, None)?;
    put(c, NEXT_TAG_TID, &tid.wrapping_add(1))?;
    put(c, &key(tid), &Tag { tid, class, data })
}

/// Lists tags after `start_after` that a client still needs, optionally of one class.
pub(super) fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (after, max, id, class) = input(i, |r| Ok((r.u64()?, r.u64()?, r.blob()?, r.get::<Option<u64>>()?)))?;
    let client: Client = get_key(c, &client_key(&id))?;
    let needed = match client.commit.iter().map(|p| p.tag_tid).min() {
        Some(limit) => last_of_classes(c, limit)?,
        None => BTreeMap::new(),
    };
    let mut found: Vec<Tag> = Vec::new();
    omap_walk(c, PREFIX, PREFIX, |_, b| {
        let t: Tag = stored_as(&b)?;
        if after != 0 && t.tid <= after {
            return Ok(true);
        }
        if t.tid >= needed.get(&t.class).copied().unwrap_or(0) && class.is_none_or(|k| k == t.class) {
            found.push(t);
        }
        Ok((found.len() as u64) < max)
    })?;
    answer(&found)
}
