//! A client's session as the reactors share it: its identity, and the caps of its ticket. Caps are parsed once
//! when the connection opens (`host::shard::clients`; `auth::server` puts them into the ticket).
//! `shard::rights` decides what an operation may do with them.

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

/// Bits of a session's number that hold the connection; the reactor is above them.
const CONN_BITS: u32 = 48;

/// Number of the session on connection `conn` of reactor `reactor`.
#[must_use]
pub fn session_id(reactor: usize, conn: ConnId) -> SessionId {
    SessionId((reactor as u64) << CONN_BITS | conn.0 & ((1 << CONN_BITS) - 1))
}

/// Reactor and connection of a session.
#[must_use]
pub fn session_route(id: SessionId) -> (usize, ConnId) {
    ((id.0 >> CONN_BITS) as usize, ConnId(id.0 & ((1 << CONN_BITS) - 1)))
}
