//! Messages for a PG of which this OSD has no copy.
//!
//! Invariant: a copy is made of what another one knows as of the newest map here. What is older may not know of an interval that has
//! ended since, in which somebody else took writes; who sent it is asked to say it again.

use super::Body;
use crate::info::PgInfo;
use crate::map::MapView;
use base::{Epoch, OsdId, SpgId};
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
    if m.spg.pg.seed >= pool.pg_num {
        return Orphan::Ignore;
    }
    let absent = || {
        let b = Body::Notify { info: Box::default(), absent: true, grants: Vec::new() };
        Orphan::Answer(message(m.spg, map.epoch, &b))
    };
    match Body::decode(&m.body, &m.data, Cid::Pg(m.spg)) {
        Ok(Body::Query) => absent(),
        Ok(Body::Activate { info, .. }) if mapping.acting_primary == from => {
            let wanted = mapping.acting.contains(&whoami) || mapping.up.contains(&whoami);
            match wanted {
                true if m.epoch < map.epoch => absent(),
                true => Orphan::Create(info),
                false => Orphan::Ignore,
            }
        }
        Ok(Body::Notify { info, absent: false, .. })
            if mapping.acting_primary == whoami && m.epoch >= info.history.same_interval_since =>
        {
            if m.epoch < map.epoch { Orphan::Ask(ask(m.spg, map.epoch)) } else { Orphan::Create(info) }
        }
        Ok(_) => Orphan::Ignore,
        Err(error) => {
            tracing::warn!(pg = %m.spg, %from, %error, "message of a peer is not understood");
            Orphan::Ignore
        }
    }
}

/// The question what another OSD has of a PG, for one that has no copy.
#[must_use]
pub fn ask(spg: SpgId, epoch: Epoch) -> Box<MPgPeer> {
    message(spg, epoch, &Body::Query)
}

fn message(spg: SpgId, epoch: Epoch, b: &Body) -> Box<MPgPeer> {
    let (body, data) = b.encode();
    Box::new(MPgPeer { spg, epoch, up_from: Epoch(0), body, data })
}
