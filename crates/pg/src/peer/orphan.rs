//! Messages for a PG of which this OSD has no copy.
//!
//! Invariant: a copy is made of what another one knows as of the newest map here. What is older may not know of an interval that has
//! ended since, in which somebody else took writes; who sent it is asked to say it again.

use super::Body;
use crate::info::PgInfo;
use crate::map::{MapView, PoolKind};
use crate::shards::PeerId;
use base::{Epoch, OsdId, ShardId, SpgId};
use store::Cid;
use wire::msg::MPgPeer;

/// What to do with one.
#[derive(Debug)]
pub enum Orphan {
    /// Say this: that there is nothing.
    Answer(Box<MPgPeer>),
    /// Ask this, until there is a copy here or somebody else leads.
    Ask(Box<MPgPeer>),
    /// Make a copy ([`crate::Pg::adopt`]), then give it the message.
    Create(Box<PgInfo>),
    /// Nothing.
    Ignore,
}

/// Decides that. `map` is the newest one; the message is of no newer one.
#[must_use]
pub fn orphan(whoami: OsdId, map: &MapView, from: OsdId, m: &MPgPeer) -> Orphan {
    let Some(pool) = &map.pool else { return Orphan::Ignore };
    let mapping = &map.mapping;
    let coded = m.spg.shard != ShardId::NONE;
    if coded != (pool.kind == PoolKind::Erasure) {
        return Orphan::Ignore;
    }
    let me = PeerId { osd: whoami, shard: m.spg.shard };
    let from = PeerId { osd: from, shard: m.from };
    if m.spg.pg.seed >= pool.pg_num {
        return Orphan::Ignore;
    }
    let absent = || {
        let b = Body::Notify { info: Box::default(), absent: true, grants: Vec::new() };
        Orphan::Answer(message(m.spg, from, map.epoch, &b))
    };
    match Body::decode(&m.body, &m.data, Cid::Pg(m.spg)) {
        Ok(Body::Query) => absent(),
        Ok(Body::Activate { info, .. }) if mapping.primary(coded) == from => {
            let wanted = mapping.acting(coded).contains(me) || mapping.up(coded).contains(me);
            match wanted {
                true if m.epoch < map.epoch => absent(),
                true => Orphan::Create(info),
                false => Orphan::Ignore,
            }
        }
        Ok(Body::Notify { info, absent: false, .. })
            if mapping.primary(coded) == me && m.epoch >= info.history.same_interval_since =>
        {
            if m.epoch < map.epoch {
                Orphan::Ask(ask(m.spg, from, map.epoch))
            } else {
                Orphan::Create(info)
            }
        }
        Ok(_) => Orphan::Ignore,
        Err(error) => {
            tracing::warn!(pg = %m.spg, %from, %error, "message of a peer is not understood");
            Orphan::Ignore
        }
    }
}

/// The question what another copy has of a PG, for an OSD that is to have the copy `spg`.
#[must_use]
pub fn ask(spg: SpgId, to: PeerId, epoch: Epoch) -> Box<MPgPeer> {
    message(spg, to, epoch, &Body::Query)
}

fn message(spg: SpgId, to: PeerId, epoch: Epoch, b: &Body) -> Box<MPgPeer> {
    let (body, data) = b.encode();
    Box::new(MPgPeer { spg: to.spg(spg.pg), from: spg.shard, epoch, up_from: Epoch(0), body, data })
}
