//! Messages for a PG of which this OSD has no copy.
//!
//! Invariant: a copy is created only from a message sent under the newest map here. An older message may not know of
//! an interval that has ended since, in which other copies took writes. Its sender is asked to repeat it.
//!
//! Tests: `tests/life.rs` (`no_copy_is_created_from_a_message_under_an_older_map`).

use super::Body;
use crate::info::PgInfo;
use crate::map::{MapView, PoolKind};
use crate::shards::PeerId;
use base::{Epoch, OsdId, ShardId, SpgId};
use store::Cid;
use wire::msg::MPgPeer;

/// The reaction to a message for a PG without a copy here.
#[derive(Debug)]
pub enum Orphan {
    /// Send this answer: the OSD has no copy.
    Answer(Box<MPgPeer>),
    /// Send this query, until a copy exists here or another OSD is primary.
    Ask(Box<MPgPeer>),
    /// Create a copy ([`crate::Pg::adopt`]), then hand it the message.
    Create(Box<PgInfo>),
    /// Drop the message.
    Ignore,
}

/// Selects the reaction. `map` is the newest map; the message was sent under it or an older one.
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
        // A long log comes in pieces; the first one has the info.
        Ok(Body::Piece { place, bytes }) if place.n == 0 && Body::is_activate(&bytes) => {
            let wanted = mapping.acting(coded).contains(me) || mapping.up(coded).contains(me);
            match Body::info_of_activate(&bytes) {
                _ if mapping.primary(coded) != from || !wanted => Orphan::Ignore,
                _ if m.epoch < map.epoch => absent(),
                Some(info) => Orphan::Create(info),
                None => Orphan::Ignore,
            }
        }
        Ok(Body::Piece { place, .. }) => {
            // There is nothing here that the message could concern.
            let b = Body::Heard { id: place.id, next: u32::MAX };
            Orphan::Answer(message(m.spg, from, map.epoch, &b))
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
            tracing::warn!(pg = %m.spg, %from, %error, "a peer's message can't be decoded; ignored");
            Orphan::Ignore
        }
    }
}

/// The query to another copy of a PG, from an OSD that is to hold the copy `spg`.
#[must_use]
pub fn ask(spg: SpgId, to: PeerId, epoch: Epoch) -> Box<MPgPeer> {
    message(spg, to, epoch, &Body::Query)
}

fn message(spg: SpgId, to: PeerId, epoch: Epoch, b: &Body) -> Box<MPgPeer> {
    let (body, data) = b.encode();
    Box::new(MPgPeer { spg: to.spg(spg.pg), from: spg.shard, epoch, up_from: Epoch(0), body, data, sums: None })
}
