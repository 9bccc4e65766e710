//! Sessions with other OSDs: the address of each, and the map that ends it.
//!
//! The table uses no sockets. The host opens and closes connections, and identifies them by its own keys.
//!
//! Invariants:
//!  1. A message for an address uses the session registered last for it, so the messages of a PG arrive in
//!     order.
//!  2. A session ends with the first map that does not show its address, if an earlier map has shown it. An
//!     instance that speaks before any map shows it keeps its session.
//!
//! Tests: those of this file, one for each.

use base::{AddrKind, EntityAddr, OsdId};
use cluster::OsdMap;
use std::collections::BTreeMap;

/// A peer of a session, and the host's data for it.
#[derive(Clone, Debug)]
pub struct Peer<X> {
    /// The OSD.
    pub osd: OsdId,
    /// Address of the peer's reactor.
    pub addr: EntityAddr,
    /// Data of the host.
    pub host: X,
    /// True once a map has shown the address.
    listed: bool,
}

/// Sessions with other OSDs; see the module.
#[derive(Debug)]
pub struct PeerTable<K, X> {
    sessions: BTreeMap<K, Peer<X>>,
    by_addr: BTreeMap<EntityAddr, K>,
}

impl<K, X> Default for PeerTable<K, X> {
    fn default() -> Self {
        Self { sessions: BTreeMap::new(), by_addr: BTreeMap::new() }
    }
}

/// Addresses of an OSD's reactors, in order.
pub fn addresses(map: &OsdMap, osd: OsdId) -> impl Iterator<Item = EntityAddr> + Clone {
    let addrs = map.cluster_addr(osd).map(|v| v.0.as_slice()).unwrap_or_default();
    addrs.iter().filter(|a| a.kind == AddrKind::MSGR2).copied()
}

impl<K: Copy + Ord, X> PeerTable<K, X> {
    /// Registers a session that this OSD opens to an address of the map.
    pub fn opened(&mut self, key: K, osd: OsdId, addr: EntityAddr, host: X) {
        self.insert(key, Peer { osd, addr, host, listed: true });
    }

    /// Registers a session opened by another OSD, whose address no map need have shown. A known session stays
    /// unchanged.
    pub fn accepted(&mut self, key: K, osd: OsdId, addr: EntityAddr, host: X) {
        if !self.sessions.contains_key(&key) {
            self.insert(key, Peer { osd, addr, host, listed: false });
        }
    }

    fn insert(&mut self, key: K, peer: Peer<X>) {
        self.by_addr.insert(peer.addr, key);
        self.sessions.insert(key, peer);
    }

    /// Removes a session.
    pub fn forget(&mut self, key: K) -> Option<Peer<X>> {
        let peer = self.sessions.remove(&key)?;
        if self.by_addr.get(&peer.addr) == Some(&key) {
            self.by_addr.remove(&peer.addr);
        }
        Some(peer)
    }

    /// Peer of a session.
    #[must_use]
    pub fn get(&self, key: K) -> Option<&Peer<X>> {
        self.sessions.get(&key)
    }

    /// Session with an address.
    #[must_use]
    pub fn at(&self, addr: &EntityAddr) -> Option<K> {
        self.by_addr.get(addr).copied()
    }

    /// Keys of all sessions.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = K> + '_ {
        self.sessions.keys().copied()
    }

    /// Handles a newer map: removes and returns the sessions with instances that are gone. The host closes
    /// their connections.
    #[must_use]
    pub fn age(&mut self, map: &OsdMap) -> Vec<K> {
        let mut gone = Vec::new();
        for (key, s) in &mut self.sessions {
            if map.is_up(s.osd) && addresses(map, s.osd).any(|a| a == s.addr) {
                s.listed = true;
            } else if s.listed {
                gone.push(*key);
            }
        }
        for key in &gone {
            self.forget(*key);
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::id::Uuid;
    use base::{AddrVec, Epoch, Utime};
    use cluster::Incremental;

    const OSD: OsdId = OsdId(1);

    fn addr(nonce: u32) -> EntityAddr {
        EntityAddr::msgr2(([10, 0, 0, 1], 6800).into(), nonce)
    }

    /// Map in which the OSD has this address, or is down.
    fn map(epoch: u32, at: Option<EntityAddr>) -> OsdMap {
        let mut m = OsdMap { fsid: Uuid([1; 16]), epoch: Epoch(epoch), ..OsdMap::default() };
        m.set_max_osd(4).unwrap();
        let mut inc = Incremental::new(m.fsid, Epoch(epoch + 1), Utime { sec: 1, nsec: 0 });
        if let Some(a) = at {
            let a: AddrVec = a.into();
            inc.new_up_client.insert(OSD, a.clone());
            inc.new_up_cluster.insert(OSD, a.clone());
            inc.new_hb_back_up.insert(OSD, a.clone());
            inc.new_hb_front_up.insert(OSD, a);
        }
        m.apply(&inc).unwrap()
    }

    #[test]
    fn a_session_ends_with_the_first_map_without_its_address() {
        let mut t = PeerTable::default();
        t.opened(1, OSD, addr(7), ());
        assert!(t.age(&map(1, Some(addr(7)))).is_empty());
        // The next instance speaks before a map shows it.
        t.accepted(2, OSD, addr(8), ());
        assert!(t.age(&map(1, Some(addr(7)))).is_empty());
        assert_eq!(t.age(&map(3, Some(addr(8)))), [1]);
        assert_eq!((t.at(&addr(7)), t.at(&addr(8)), t.keys().len()), (None, Some(2), 1));
        assert_eq!(t.age(&map(5, None)), [2], "shown before, and down");
        assert_eq!(t.keys().len(), 0);
    }

    #[test]
    fn a_message_uses_the_session_registered_last() {
        let mut t = PeerTable::default();
        t.opened(1, OSD, addr(7), ());
        t.accepted(2, OSD, addr(7), ());
        assert_eq!(t.at(&addr(7)), Some(2));
        // The end of the older session leaves the newer one in place.
        t.forget(1);
        assert_eq!(t.at(&addr(7)), Some(2));
        // A known session is not taken for a new one.
        t.accepted(2, OSD, addr(9), ());
        assert_eq!((t.at(&addr(9)), t.get(2).map(|p| p.addr)), (None, Some(addr(7))));
    }
}
