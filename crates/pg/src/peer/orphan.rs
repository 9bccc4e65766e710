//! Messages for a PG of which this OSD has no copy.

use super::Body;
use crate::info::PgInfo;
use crate::map::MapView;
use base::OsdId;
use store::Cid;
use wire::msg::MPgPeer;

/// What to do with one.
#[derive(Debug)]
pub enum Orphan {
    /// Say that there is nothing.
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
    match Body::decode(&m.body, &m.data, Cid::Pg(m.spg)) {
        Ok(Body::Query) => {
            let b = Body::Notify { info: Box::default(), absent: true, grants: Vec::new() };
            let (body, data) = b.encode();
            Orphan::Answer(Box::new(MPgPeer { spg: m.spg, epoch: map.epoch, body, data }))
        }
        Ok(Body::Activate { info, .. }) if mapping.acting_primary == from => {
            let wanted = mapping.acting.contains(&whoami) || mapping.up.contains(&whoami);
            if wanted { Orphan::Create(info) } else { Orphan::Ignore }
        }
        Ok(Body::Notify { info, absent: false, .. })
            if mapping.acting_primary == whoami && m.epoch >= info.history.same_interval_since =>
        {
            Orphan::Create(info)
        }
        Ok(_) => Orphan::Ignore,
        Err(error) => {
            tracing::warn!(pg = %m.spg, %from, %error, "message of a peer is not understood");
            Orphan::Ignore
        }
    }
}
