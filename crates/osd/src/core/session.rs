//! A client's session as the reactors share it: who it is, and the caps its ticket came with, parsed once when the connection
//! opens (`host::shard::clients`; what put them into the ticket is `auth::server`). What an operation may do by them is decided
//! in `shard::rights`.

use auth::Principal;
use base::{EntityAddr, EntityName};
use cluster::caps::OsdCaps;
use net::ConnId;
use pg::SessionId;
use std::hash::{Hash as _, Hasher as _};
use wire::Features;

/// Who is at the other end of a connection. Made once, when it opens.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// Number within this OSD.
    pub id: SessionId,
    /// Reactor that serves the connection.
    pub reactor: usize,
    /// Connection on that reactor.
    pub conn: ConnId,
    /// Who it is, and the address of its socket.
    pub principal: Principal,
    /// Kind and number (a client's is its global id).
    pub entity: EntityName,
    /// Address with nonce as it announces it, as watches show it and blocklists name it. No right depends on it.
    pub addr: EntityAddr,
    /// Features both ends have.
    pub features: Features,
    /// What it may do.
    pub caps: OsdCaps,
    /// [`owner_of`] its principal.
    pub owner: u64,
}

/// Who signed in and from where, as a number: what is bounded for each sender is bounded for these.
#[must_use]
pub fn owner_of(p: &Principal) -> u64 {
    let mut h = std::hash::DefaultHasher::new();
    (p.name.kind.0, &p.name.id, p.socket.ip()).hash(&mut h);
    h.finish()
}

/// What a principal may do here: the caps of its ticket, one encoded string or nothing.
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

/// Bits of a session's number that hold the connection; the reactor is above.
const CONN_BITS: u32 = 48;

/// The number of the session on connection `conn` of reactor `reactor`.
#[must_use]
pub fn session_id(reactor: usize, conn: ConnId) -> SessionId {
    SessionId((reactor as u64) << CONN_BITS | conn.0 & ((1 << CONN_BITS) - 1))
}

/// Reactor and connection of a session.
#[must_use]
pub fn session_route(id: SessionId) -> (usize, ConnId) {
    ((id.0 >> CONN_BITS) as usize, ConnId(id.0 & ((1 << CONN_BITS) - 1)))
}
