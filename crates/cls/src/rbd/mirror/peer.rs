//! Peers of a mirrored pool.

use super::super::{answer, drop_key, need, put, snapshot::random_uuid};
use super::types::{Peer, RX, RX_TX, TX};
use super::{PEER, UUID, mode};
use crate::ctx::{ClsResult, ObjectCtx};
use crate::registry::Output;
use crate::util::{fail, input, join, omap_opt, omap_walk, stored_as};
use base::errno::{EEXIST, EINVAL, ENOENT, ESTALE};
use bytes::Bytes;

pub(super) fn all(c: &mut dyn ObjectCtx) -> ClsResult<Vec<Peer>> {
    let mut peers = Vec::new();
    omap_walk(c, PEER, PEER, |_, b| {
        peers.push(stored_as(&b)?);
        Ok(true)
    })?;
    Ok(peers)
}

fn store(c: &mut dyn ObjectCtx, p: &Peer) -> ClsResult<Output> {
    put(c, &join(PEER, &p.uuid), p).map(Output::from)
}

pub(in crate::rbd) fn list(c: &mut dyn ObjectCtx, _: &Bytes) -> ClsResult<Output> {
    answer(&all(c)?)
}

pub(in crate::rbd) fn add(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let new: Peer = input(i, |r| r.get())?;
    if mode(c)?.is_none() || !new.is_valid() {
        return fail(EINVAL);
    }
    if c.omap_get(UUID)? == new.uuid || new.direction == TX {
        return fail(EINVAL);
    }
    for p in all(c)? {
        if p.uuid == new.uuid {
            return fail(ESTALE);
        }
        if p.site == new.site || (!new.mirror_uuid.is_empty() && p.mirror_uuid == new.mirror_uuid) {
            return fail(EEXIST);
        }
    }
    store(c, &new)
}

pub(in crate::rbd) fn remove(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let uuid = input(i, |r| r.blob())?;
    drop_key(c, &join(PEER, &uuid)).map(Output::from)
}

pub(in crate::rbd) fn set_client(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (uuid, client) = input(i, |r| Ok((r.blob()?, r.blob()?)))?;
    let mut p: Peer = need(c, &join(PEER, &uuid))?;
    p.client = client;
    store(c, &p)
}

pub(in crate::rbd) fn set_cluster(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (uuid, site) = input(i, |r| Ok((r.blob()?, r.blob()?)))?;
    let mut found = None;
    for p in all(c)? {
        if p.uuid == uuid {
            found = Some(p);
        } else if p.site == site {
            return fail(EEXIST);
        }
    }
    let Some(mut p) = found else { return fail(ENOENT) };
    p.site = site;
    store(c, &p)
}

pub(in crate::rbd) fn set_direction(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (uuid, direction) = input(i, |r| Ok((r.blob()?, r.u8()?)))?;
    let mut p: Peer = need(c, &join(PEER, &uuid))?;
    p.direction = direction;
    store(c, &p)
}

/// A remote daemon reports that it mirrors from this cluster: its peer is updated or created.
pub(in crate::rbd) fn ping(c: &mut dyn ObjectCtx, i: &Bytes) -> ClsResult<Output> {
    let (site, mirror_uuid, direction) = input(i, |r| Ok((r.blob()?, r.blob()?, r.u8()?)))?;
    if direction != TX || mode(c)?.is_none() || site.is_empty() || mirror_uuid.is_empty() {
        return fail(EINVAL);
    }
    let peers = all(c)?;
    let by_site = peers.iter().find(|p| p.site == site);
    // The peer of this site, unless the uuid belongs to another peer.
    let by_uuid = match by_site {
        Some(p) if p.mirror_uuid.is_empty() || p.mirror_uuid == mirror_uuid => None,
        _ => peers.iter().find(|p| p.mirror_uuid == mirror_uuid),
    };
    let mut p = match (by_site, by_uuid) {
        // Of two peers the one with the uuid wins and keeps its site.
        (Some(_), Some(p)) => p.clone(),
        (None, Some(p)) => Peer { site, ..p.clone() },
        (Some(p), None) => Peer { mirror_uuid, ..p.clone() },
        (None, None) => Peer { uuid: fresh_uuid(c)?, site, direction: TX, mirror_uuid, ..Peer::default() },
    };
    if p.direction == RX {
        p.direction = RX_TX;
    }
    p.last_seen = c.now();
    if !p.is_valid() {
        return fail(EINVAL);
    }
    store(c, &p)
}

fn fresh_uuid(c: &mut dyn ObjectCtx) -> ClsResult<Bytes> {
    loop {
        let uuid = random_uuid(c);
        if omap_opt(c, &join(PEER, &uuid))?.is_none() {
            return Ok(uuid);
        }
    }
}
