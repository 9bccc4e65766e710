//! Who is at the other end of a connection, as far as it is proven.
//!
//! Made by the messenger where a handshake ends and by nothing else; every session of monitor, manager role and OSD carries it, and
//! every question of rights is answered from it.
//!
//! Invariants:
//!  1. `name`, `global_id`, `caps` and `expires` come from the proof or the ticket, `socket` from the kernel. What the peer says of
//!     itself (HELLO, ident) is in none of them.
//!  2. `kind` is the kind of `name`, or a client's. A peer that announces itself as a client has no rights of a daemon, whatever
//!     its key; one that announces another kind than its name has is closed before it gets here.

use crate::{AuthError, CapsInfo, KeyMark, Method};
use base::{AuthName, EntityAddr, EntityKind, EntityName, OsdId, Utime};
use std::net::SocketAddr;

/// The authenticated other end of one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Name it signed in with. Of a daemon that we dialled only the kind is proven: its id is empty.
    pub name: AuthName,
    /// Kind it is served as: that of its name, or a client's if it came as one (a daemon that fetches its first map, a tool
    /// that uses a daemon's key).
    pub kind: EntityKind,
    /// Number of its session with the cluster; our own towards daemons that we dialled.
    pub global_id: u64,
    /// Caps at our service, from its ticket or from the key database. Empty towards daemons that we dialled.
    pub caps: CapsInfo,
    /// End of the ticket it showed, or that a monitor gave it. Zero with method none and towards daemons that we dialled.
    pub expires: Utime,
    /// The other end of the socket. Never what the peer announces.
    pub socket: SocketAddr,
    /// How it signed in. With [`Method::NONE`] the name is a claim and the cluster trusts everybody.
    pub method: Method,
    /// It connected to us.
    pub incoming: bool,
    /// The key that it proved, at a monitor.
    pub proved: Option<KeyMark>,
}

impl Principal {
    /// A peer that connected to us, announced itself as `claimed` and signed in.
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

    /// A daemon of kind `service` that we dialled: it proved that it holds a secret of that service.
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

    /// Nobody: the other end of a connection that has not signed in.
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

    /// Kind and number that the peer is known by: a client's global id, the number in an OSD's name, `said` for daemons whose
    /// number is not part of their name (a monitor's rank, a manager's gid) or that we dialled.
    #[must_use]
    pub fn entity(&self, said: i64) -> EntityName {
        let num = match self.kind {
            EntityKind::CLIENT => self.global_id as i64,
            EntityKind::OSD if self.incoming => self.osd().map_or(-1, |o| o.0.into()),
            _ => said,
        };
        EntityName::new(self.kind, num)
    }

    /// The OSD that connected to us, by its name. `None` if it is none, or came as a client.
    #[must_use]
    pub fn osd(&self) -> Option<OsdId> {
        if self.kind != EntityKind::OSD || self.name.kind != EntityKind::OSD {
            return None;
        }
        let id: i32 = self.name.id.parse().ok()?;
        // One spelling for each number: osd.01 is not osd.1.
        (id >= 0 && id.to_string() == self.name.id).then_some(OsdId(id))
    }

    /// Its socket's address, for `network` restrictions of caps.
    #[must_use]
    pub fn socket_addr(&self) -> EntityAddr {
        EntityAddr { sock: Some(self.socket), ..EntityAddr::default() }
    }

    /// True if the ticket it came with is over. Never with method none.
    #[must_use]
    pub fn expired(&self, now: Utime) -> bool {
        self.expires != Utime::ZERO && self.expires <= now
    }
}

/// IPv4 addresses look the same on a socket that serves both families.
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
    fn networks_see_the_socket_as_ipv4() {
        let p = come(EntityKind::CLIENT, "client.x").unwrap();
        assert_eq!(p.socket_addr().sock, Some("10.0.0.7:1234".parse().unwrap()));
        assert!(!p.expired(Utime { sec: 99, nsec: 0 }));
        assert!(p.expired(Utime { sec: 100, nsec: 0 }));
    }
}
