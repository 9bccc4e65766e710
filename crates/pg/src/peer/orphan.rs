//! Messages for a PG of which this OSD has no copy.
//!
//! Invariant: a copy is made of what another one knows as of the newest map here. What is older may not know of an interval that has
//! ended since, in which somebody else took writes; who sent it is asked to say it again.

use super::Body;
use crate::info::PgInfo;
use crate::map::MapView;
use base::OsdId;
use store::Cid;
use wire::msg::MPgPeer;

/// What to do with one.
#[derive(Debug)]
pub enum Orphan {
    /// Say this: that there is nothing, or a question.
    Answer(Box<MPgPeer>),
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
    let answer = |b: &Body| {
        let (body, data) = b.encode();
        Orphan::Answer(Box::new(MPgPeer { spg: m.spg, epoch: map.epoch, body, data }))
    };
    let absent = || answer(&Body::Notify { info: Box::default(), absent: true, grants: Vec::new() });
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
            if m.epoch < map.epoch { answer(&Body::Query) } else { Orphan::Create(info) }
        }
        Ok(_) => Orphan::Ignore,
        Err(error) => {
            tracing::warn!(pg = %m.spg, %from, %error, "message of a peer is not understood");
            Orphan::Ignore
        }
    }
}
