//! A client's session as the reactors share it: its identity, and the caps of its ticket. Caps are parsed once
//! when the connection opens (`host::reactor_host::clients`; `auth::server` puts them into the ticket).
//! `pgs::rights` decides what an operation may do with them.

use auth::Principal;
use base::{EntityAddr, EntityName};
use cluster::caps::OsdCaps;
use net::ConnId;
use pg::SessionId;
use std::hash::{Hash as _, Hasher as _};
use wire::Features;

/// Identity of a connected client. Created once, when the connection opens.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// Number of the session within this OSD.
    pub id: SessionId,
    /// Reactor that serves the connection.
    pub reactor: usize,
    /// Connection on that reactor.
    pub conn: ConnId,
    /// Authenticated identity, and the address of the socket.
    pub principal: Principal,
    /// Kind and number (a client's is its global id).
    pub entity: EntityName,
    /// Address with nonce as the client announces it; watches show it and blocklists name it. No right depends
    /// on it.
    pub addr: EntityAddr,
    /// Features that both ends have.
    pub features: Features,
    /// Parsed caps of the session.
    pub caps: OsdCaps,
    /// Result of [`owner_of`] for the principal.
    pub owner: u64,
}

/// A number for a principal's name and IP address. Limits for each sender apply to this number.
#[must_use]
pub fn owner_of(p: &Principal) -> u64 {
    let mut h = std::hash::DefaultHasher::new();
    (p.name.kind.0, &p.name.id, p.socket.ip()).hash(&mut h);
    h.finish()
}

/// Parses the caps of a principal's ticket: one encoded string or nothing. Error: the reason why the caps do not
/// parse.
pub fn caps_of(p: &Principal) -> Result<OsdCaps, String> {
    if p.caps.allow_all {
        return Ok(OsdCaps::allow_all());
    }
    if p.caps.caps.is_empty() {
        return Ok(OsdCaps::default());
    }
    let text = wire::Reader::shared(&p.caps.caps).string().map_err(|e| e.to_string())?;
    OsdCaps::parse(&text).map_err(|e| e.to_string())
}

/// Number of the session on connection `conn` of reactor `reactor`: the whole id, since a part of it would lead to no
/// connection once there have been many. Reactors are fewer than [`REACTORS_MAX`].
#[must_use]
pub fn session_id(reactor: usize, conn: ConnId) -> SessionId {
    debug_assert!(reactor < REACTORS_MAX);
    SessionId((reactor as u64) << ConnId::PACKED_BITS | conn.packed())
}

/// Reactor and connection of a session.
#[must_use]
pub fn session_route(id: SessionId) -> (usize, ConnId) {
    ((id.0 >> ConnId::PACKED_BITS) as usize, ConnId::from_packed(id.0))
}

/// Most reactors of an OSD.
pub const REACTORS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_connection_has_its_own_session_and_is_found_by_it() {
        let last = [0x7fff_ffff_u64, (1 << 20) - 1];
        let mut seen = std::collections::BTreeSet::new();
        for reactor in [0, 1, REACTORS_MAX - 1] {
            for generation in [1, 0xffff, 0x1_0000, 0x1_0001, last[0]] {
                for slot in [0, 1, 20_000, last[1]] {
                    let conn = ConnId(generation << 32 | slot);
                    let id = session_id(reactor, conn);
                    assert_eq!(session_route(id), (reactor, conn));
                    assert!(seen.insert(id.0) && id.0 >> 63 == 0);
                }
            }
        }
    }
}
