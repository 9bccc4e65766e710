//! The authenticated identity of a connection's peer.
//!
//! Only the messenger makes principals, at the end of a handshake. Every session of monitor, manager role and OSD has
//! one, and every access check uses it.
//!
//! Invariants:
//!  1. `name`, `global_id`, `caps` and `expires` come from the proof or the ticket, `socket` from the kernel. None comes
//!     from the peer's HELLO or ident.
//!  2. `kind` is the type of `name`, or client. A peer whose HELLO says client has no daemon rights, whatever its key. A
//!     peer whose HELLO names another daemon type than its name is refused before.
//!
//! Tests: `crates/msgr/tests/are_bad_peers_refused.rs` (1, `a_claim_in_hello_gives_no_rights`), below (2).

use crate::{AuthError, CapsInfo, KeyMark, Method};
use base::{AuthName, EntityAddr, EntityKind, EntityName, OsdId, Utime};
use std::net::SocketAddr;

/// Authenticated peer of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Authenticated name. For a daemon that we connected to only the type is proven: its id is empty.
    pub name: AuthName,
    /// Entity type it is served as: that of its name, or client if its HELLO says so (a daemon that fetches its first
    /// map, or a tool that uses a daemon's key).
    pub kind: EntityKind,
    /// Global id; our own for daemons that we connected to.
    pub global_id: u64,
    /// Caps at our service, from the ticket or the key database. Empty for daemons that we connected to.
    pub caps: CapsInfo,
    /// Expiry of the ticket that was presented, or that the monitor issued. Zero with method none and for daemons that
    /// we connected to.
    pub expires: Utime,
    /// Peer address of the socket, as the kernel knows it.
    pub socket: SocketAddr,
    /// Authentication method. With [`Method::NONE`] the name is unverified and the cluster trusts every peer.
    pub method: Method,
    /// Whether the peer connected to us.
    pub incoming: bool,
    /// Fingerprint of the key that it proved, at a monitor.
    pub proved: Option<KeyMark>,
}

impl Principal {
    /// A peer that connected to us, with entity type `claimed` in its HELLO, and authenticated. Error:
    /// [`AuthError::WrongClaim`] if it claims another daemon type than its name has.
    pub fn incoming(
        claimed: EntityKind,
        granted: &crate::server::Granted,
        method: Method,
        socket: SocketAddr,
    ) -> Result<Self, AuthError> {
        let name = granted.name.clone();
        if claimed != EntityKind::CLIENT && claimed != name.kind {
            return Err(AuthError::WrongClaim { claimed, name });
        }
        Ok(Self {
            name,
            kind: claimed,
            global_id: granted.global_id,
            caps: granted.caps.clone(),
            expires: granted.expires,
            socket: canonical(socket),
            method,
            incoming: true,
            proved: granted.proved,
        })
    }

    /// A daemon of type `service` that we connected to: it proved that it holds a secret of that service.
    #[must_use]
    pub fn dialled(service: EntityKind, global_id: u64, method: Method, socket: SocketAddr) -> Self {
        Self {
            name: AuthName { kind: service, id: String::new() },
            kind: service,
            global_id,
            caps: CapsInfo::default(),
            expires: Utime::ZERO,
            socket: canonical(socket),
            method,
            incoming: false,
            proved: None,
        }
    }

    /// The peer of a connection that is not authenticated.
    #[must_use]
    pub fn nobody(socket: SocketAddr) -> Self {
        Self {
            name: AuthName::default(),
            kind: EntityKind::CLIENT,
            global_id: 0,
            caps: CapsInfo::default(),
            expires: Utime::ZERO,
            socket: canonical(socket),
            method: Method::NONE,
            incoming: true,
            proved: None,
        }
    }

    /// Type and number that identify the peer: a client's global id, or the number in an OSD's name. `said` is used for
    /// daemons whose name has no number (a monitor's rank, a manager's gid) or that we connected to.
    #[must_use]
    pub fn entity(&self, said: i64) -> EntityName {
        let num = match self.kind {
            EntityKind::CLIENT => self.global_id as i64,
            EntityKind::OSD if self.incoming => self.osd().map_or(-1, |o| o.0.into()),
            _ => said,
        };
        EntityName::new(self.kind, num)
    }

    /// Id of the OSD that connected to us, from its name; `None` if it is no OSD or connected as a client.
    #[must_use]
    pub fn osd(&self) -> Option<OsdId> {
        if self.kind != EntityKind::OSD || self.name.kind != EntityKind::OSD {
            return None;
        }
        let id: i32 = self.name.id.parse().ok()?;
        // Each number has one spelling: osd.01 is not osd.1.
        (id >= 0 && id.to_string() == self.name.id).then_some(OsdId(id))
    }

    /// Address of the socket, for `network` restrictions of caps.
    #[must_use]
    pub fn socket_addr(&self) -> EntityAddr {
        EntityAddr { sock: Some(self.socket), ..EntityAddr::default() }
    }

    /// True if the presented ticket has expired; never with method none.
    #[must_use]
    pub fn expired(&self, now: Utime) -> bool {
        self.expires != Utime::ZERO && self.expires <= now
    }
}

/// Unmaps IPv4 addresses, as a dual-stack socket shows them as IPv6.
fn canonical(mut s: SocketAddr) -> SocketAddr {
    s.set_ip(s.ip().to_canonical());
    s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Granted;
    use bytes::Bytes;

    fn granted(name: &str) -> Granted {
        Granted {
            reply: Bytes::new(),
            name: AuthName::parse(name).unwrap(),
            global_id: 4107,
            caps: CapsInfo::from_text("allow *"),
            session_key: None,
            connection_secret: Vec::new(),
            expires: Utime { sec: 100, nsec: 0 },
            proved: None,
        }
    }

    fn come(claimed: EntityKind, name: &str) -> Result<Principal, AuthError> {
        let socket = "[::ffff:10.0.0.7]:1234".parse().unwrap();
        Principal::incoming(claimed, &granted(name), Method::CEPHX, socket)
    }

    #[test]
    fn a_claim_gives_no_right_that_the_key_does_not_have() {
        for kind in [EntityKind::OSD, EntityKind::MON, EntityKind::MGR, EntityKind::MDS] {
            assert!(matches!(come(kind, "client.x"), Err(AuthError::WrongClaim { .. })), "{kind:?}");
        }
        assert!(come(EntityKind::MON, "osd.3").is_err());
        let p = come(EntityKind::OSD, "osd.3").unwrap();
        assert_eq!((p.osd(), p.entity(99)), (Some(OsdId(3)), EntityName::new(EntityKind::OSD, 3)));
        let p = come(EntityKind::CLIENT, "osd.3").unwrap();
        assert_eq!((p.osd(), p.entity(3)), (None, EntityName::new(EntityKind::CLIENT, 4107)));
        for odd in ["osd.03", "osd.-1", "osd.x", "osd.99999999999"] {
            assert_eq!(come(EntityKind::OSD, odd).unwrap().osd(), None, "{odd}");
        }
    }

    #[test]
    fn ipv4_networks_match_ipv4_mapped_sockets() {
        let p = come(EntityKind::CLIENT, "client.x").unwrap();
        assert_eq!(p.socket_addr().sock, Some("10.0.0.7:1234".parse().unwrap()));
        assert!(!p.expired(Utime { sec: 99, nsec: 0 }));
        assert!(p.expired(Utime { sec: 100, nsec: 0 }));
    }
}
