//! Status of a mirrored image as reported by each site. A report is "up" while its reporter watches the object.

use super::super::{answer, drop_key, entries, get as get_key, need, put};
use super::types::{
    IMAGE_ENABLED, Image, Instance, Peer, RX, RX_TX, STATE_ERROR, STATE_UNKNOWN, SiteStatus, Status, StoredStatus, TX,
};
use super::{GLOBAL, IMAGE, REMOTE_STATUS, STATUS};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::parts::{Fold, omap_fold};
use crate::registry::Output;
use crate::util::{ENTRIES_MAX, enc, fail, input, join, omap_walk, optional, stored_as};
use base::errno::{E2BIG, ENOENT, ESTALE};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// Most reports that one call removes.
const STALE_MAX: usize = 8192;

/// `remote_status_global_<global id>_`.
fn remote_prefix(global: &[u8]) -> Bytes {
    join(&join(REMOTE_STATUS, global), b"_")
}

fn watchers(c: &mut dyn ObjectCtx) -> ClsResult<Vec<Instance>> {
    let all = optional(c.watchers())?.unwrap_or_default();
    Ok(all.into_iter().map(|w| Instance::new(w.name, w.addr)).collect())
}

/// Stores a report; reports about unmirrored images are dropped.
pub(in crate::rbd) fn set(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (global, mut status) = input(i, |r| Ok((r.blob()?, r.get::<SiteStatus>()?)))?;
    let image = match optional(c.omap_get(&join(GLOBAL, &global)))? {
        Some(b) => match stored_as::<Bytes>(&b) {
            Ok(id) => get_key::<Image>(c, &join(IMAGE, &id))?,
            Err(_) => None,
        },
        None => None,
    };
    if image.is_none_or(|m| m.state != IMAGE_ENABLED) {
        return Ok(Output::default());
    }
    // The key already identifies the reporting site.
    let uuid = std::mem::take(&mut status.mirror_uuid);
    let key = if uuid.is_empty() { join(STATUS, &global) } else { join(&remote_prefix(&global), &uuid) };
    status.up = false;
    status.last_update = c.now();
    let (name, addr) = c.origin();
    put(c, &key, &StoredStatus { origin: Instance::new(name, addr), status }).map(Output::from)
}

/// Removes all reports about an image.
pub(super) fn remove_all(c: &mut dyn ObjectCtx, global: &[u8]) -> ClsResult<()> {
    let prefix = remote_prefix(global);
    let mut keys = vec![join(STATUS, global)];
    omap_walk(c, &prefix, &prefix, |k, _| {
        keys.push(k);
        Ok(true)
    })?;
    keys.iter().try_for_each(|k| drop_key(c, k))
}

pub(in crate::rbd) fn remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let global = input(i, |r| r.blob())?;
    remove_all(c, &global).map(Output::from)
}

/// Loads all reports about an image; `None` without any.
fn load(c: &mut dyn ObjectCtx, global: &[u8], watchers: &[Instance]) -> ClsResult<Option<Status>> {
    let report =
        |s: StoredStatus, mirror_uuid| SiteStatus { mirror_uuid, up: watchers.contains(&s.origin), ..s.status };
    let local = get_key::<StoredStatus>(c, &join(STATUS, global))?.map(|s| report(s, Bytes::new()));
    let mut remote = Vec::new();
    for (uuid, b) in entries(c, &remote_prefix(global), b"", u64::MAX)? {
        remote.push(report(stored_as(&b)?, uuid));
    }
    let s = Status { local, remote };
    Ok(if s.local.is_none() && s.remote.is_empty() { None } else { Some(s) })
}

pub(in crate::rbd) fn get(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let global = input(i, |r| r.blob())?;
    let up = watchers(c)?;
    match load(c, &global, &up)? {
        Some(s) => answer(&s),
        None => fail(ENOENT),
    }
}

pub(in crate::rbd) fn list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (after, max) = input(i, |r| Ok((r.blob()?, r.u64()?)))?;
    let up = watchers(c)?;
    let (mut images, mut statuses) = (BTreeMap::new(), BTreeMap::new());
    for (id, b) in entries(c, IMAGE, &after, max)? {
        let image: Image = stored_as(&b)?;
        match load(c, &image.global_id, &up) {
            Ok(Some(s)) => {
                statuses.insert(id.clone(), s);
            }
            Err(crate::ClsError::Wait) => return Err(crate::ClsError::Wait),
            // An undecodable report does not hide the others.
            Ok(None) | Err(_) => {}
        }
        images.insert(id, image);
    }
    Ok(enc(|w| {
        w.put(&images);
        w.put(&statuses);
    })
    .into())
}

/// Summary state of an image, from the sites that count for the direction.
fn summary(direction: u8, tx_peers: &BTreeSet<Bytes>, s: &Status) -> u8 {
    let mut state = None;
    let mut missing = 0;
    if direction == RX || direction == RX_TX {
        state = s.local.as_ref().filter(|l| l.up).map(|l| l.state);
    }
    if direction == TX || direction == RX_TX {
        missing = tx_peers.len();
        for r in &s.remote {
            if tx_peers.contains(&r.mirror_uuid) {
                missing = missing.saturating_sub(1);
            }
            let theirs = if r.up { r.state } else { STATE_UNKNOWN };
            state = Some(match state {
                _ if r.state == STATE_ERROR => STATE_ERROR,
                None => theirs,
                Some(STATE_ERROR) => STATE_ERROR,
                Some(ours) => ours.min(theirs),
            });
        }
    }
    if missing > 0 { STATE_UNKNOWN } else { state.unwrap_or(STATE_UNKNOWN) }
}

pub(in crate::rbd) fn get_summary(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let peers: Vec<Peer> = input(i, |r| if r.is_empty() { Ok(Vec::new()) } else { r.get() })?;
    let mut direction = peers.first().map_or(RX, |p| p.direction);
    let mut tx_peers = BTreeSet::new();
    for p in peers.iter().filter(|p| p.direction != RX) {
        tx_peers.insert(p.mirror_uuid.clone());
        if direction != p.direction {
            direction = RX_TX;
        }
    }
    let up = watchers(c)?;
    let states = omap_fold(c, IMAGE, IMAGE, BTreeMap::<u8, i32>::new(), |c, states, _, b| {
        let image: Image = stored_as(b)?;
        let s = load(c, &image.global_id, &up)?.unwrap_or_default();
        c.parts().count(s.remote.len());
        *states.entry(summary(direction, &tx_peers, &s)).or_default() += 1;
        Ok(true)
    })?;
    answer(&states)
}

/// Removes reports whose reporters are down, at most [`STALE_MAX`] at once.
pub(in crate::rbd) fn remove_down(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    let up = watchers(c)?;
    let mut stale = Vec::new();
    for prefix in [STATUS, REMOTE_STATUS] {
        stale = omap_fold(c, prefix, prefix, stale, |_, stale, k, b| {
            if !up.contains(&stored_as::<StoredStatus>(b)?.origin) {
                stale.push(k);
            }
            Ok(stale.len() < STALE_MAX)
        })?;
    }
    stale.iter().try_for_each(|k| c.omap_rm(k)).map(Output::from)
}

fn instance(c: &mut dyn ObjectCtx, global: &[u8], up: &[Instance]) -> ClsResult<Instance> {
    let s: StoredStatus = need(c, &join(STATUS, global))?;
    if up.contains(&s.origin) { Ok(s.origin) } else { fail(ESTALE) }
}

/// The instance that replays an image in this cluster.
pub(in crate::rbd) fn instance_get(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let global = input(i, |r| r.blob())?;
    let up = watchers(c)?;
    answer(&instance(c, &global, &up)?)
}

/// Images with the instances that replay them, and the bytes of their keys.
#[derive(Clone, Default)]
struct Found(BTreeMap<Bytes, Instance>, usize);

impl Fold for Found {
    fn bytes(&self) -> usize {
        self.1
    }
}

pub(in crate::rbd) fn instance_list(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (after, max) = input(i, |r| Ok((r.blob()?, r.u64()?)))?;
    let up = watchers(c)?;
    if max == 0 {
        return answer(&BTreeMap::<Bytes, Instance>::new());
    }
    let found = omap_fold(c, &join(IMAGE, &after), IMAGE, Found::default(), |c, found, k, b| {
        let image: Image = stored_as(b)?;
        match instance(c, &image.global_id, &up) {
            Err(crate::ClsError::Wait) => return Err(crate::ClsError::Wait),
            Err(_) => {}
            Ok(_) if found.0.len() >= ENTRIES_MAX => return fail(E2BIG),
            Ok(who) => {
                found.1 += k.len();
                found.0.insert(k.slice(IMAGE.len()..), who);
            }
        }
        Ok((found.0.len() as u64) < max)
    })?;
    answer(&found.0)
}
