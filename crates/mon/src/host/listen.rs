//! The addresses at which a monitor listens for clients: one for msgr2, and one for msgr1 if the monmap has it.
//!
//! Invariants:
//!  1. A monitor listens at its msgr1 address from the monmap on that has it, and no longer announces it from the
//!     monmap on that has it no more.
//!  2. Another msgr2 address is taken up at the next start: other monitors and daemons are connected to this one.
//!
//! Tests: below.

use super::MonError;
use base::{AddrVec, EntityAddr};
use msgr::Protocol;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// Listening sockets of a monitor.
pub(super) struct Listening {
    endpoint: net::Endpoint,
    /// The address for msgr2 at which it listens.
    bind: SocketAddr,
    /// The same as clients know it.
    public: Option<EntityAddr>,
    /// Whether msgr1 may be served: `ms_bind_msgr1`.
    msgr1: bool,
    /// The addresses of the newest monmap that was looked at.
    seen: AddrVec,
    /// Sockets that listen for msgr1.
    bound: Vec<SocketAddr>,
}

impl Listening {
    /// Listens at `bind` for msgr2, and at the port of the endpoint's msgr1 address, if that is free. Error: `bind` can't
    /// be used.
    pub(super) async fn start(endpoint: &net::Endpoint, bind: SocketAddr, msgr1: bool) -> Result<Self, MonError> {
        listen(endpoint, bind, Protocol::V2).await?;
        let seen = endpoint.addrs();
        let public = seen.msgr2().copied();
        let mut me = Self { endpoint: endpoint.clone(), bind, public, msgr1, seen, bound: Vec::new() };
        if !msgr1 && me.seen.legacy().is_some() {
            tracing::info!("ms_bind_msgr1 is off: the monmap has an address for msgr1, which is not served");
        }
        me.listen_for_msgr1(true);
        Ok(me)
    }

    /// Listens at the address for msgr1, if there is one that is not served yet. `tells`: says so if it can't.
    fn listen_for_msgr1(&mut self, tells: bool) {
        let legacy = self.seen.legacy().and_then(|a| a.sock).filter(|_| self.msgr1);
        let Some(at) = legacy.map(|s| SocketAddr::new(self.bind.ip(), s.port())) else { return };
        if self.bound.contains(&at) {
            return;
        }
        match TcpListener::bind(at).and_then(|l| self.endpoint.listen_on(l, Protocol::V1)) {
            Ok(_) => self.bound.push(at),
            Err(error) if tells => {
                tracing::warn!("msgr1 is not served at {at} of the monmap until it is free: {error}")
            }
            Err(_) => {}
        }
    }

    /// Sets the features that are required of clients that connect later.
    pub(super) fn require_of_clients(&self, extra: wire::Features) {
        self.endpoint.require_of_clients(extra);
    }

    /// Takes up this monitor's addresses of a monmap, and tries again to listen at one that was not free.
    pub(super) fn follow(&mut self, addrs: &AddrVec) {
        let is_new = self.seen != *addrs;
        self.seen.clone_from(addrs);
        if addrs.msgr2() != self.public.as_ref() {
            if is_new {
                tracing::warn!("the monmap has {addrs} for this monitor, which it takes up when it is restarted");
            }
            return;
        }
        if is_new {
            self.endpoint.set_addrs(addrs.clone());
        }
        self.listen_for_msgr1(is_new);
    }
}

/// Listens on an address. While a closing socket still holds it, the call retries for a second.
pub(super) async fn listen(e: &net::Endpoint, addr: SocketAddr, protocol: Protocol) -> Result<(), MonError> {
    let listen = || TcpListener::bind(addr).and_then(|l| e.listen_on(l, protocol)).map(|_| ());
    for _ in 0..50 {
        match listen() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                tokio::time::sleep(Duration::from_millis(20)).await
            }
            r => return r.map_err(|error| MonError::Listen { addr, error }),
        }
    }
    listen().map_err(|error| MonError::Listen { addr, error })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::AddrKind;
    use net::{EndpointConfig, Limits, Net};
    use std::rc::Rc;

    fn port() -> SocketAddr {
        TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap()
    }

    fn addrs(v2: SocketAddr, v1: Option<SocketAddr>) -> AddrVec {
        let mut all = vec![EntityAddr::msgr2(v2, 0)];
        all.extend(v1.map(|s| EntityAddr { kind: AddrKind::LEGACY, nonce: 0, sock: Some(s) }));
        AddrVec(all)
    }

    struct Nobody;

    impl net::Handler for Nobody {
        fn event(&self, _: net::ConnId, _: net::ConnEvent) {}
    }

    async fn addresses_are_followed() {
        let (own, other, v1, busy) = (port(), port(), port(), TcpListener::bind(("127.0.0.1", 0)).unwrap());
        let taken = busy.local_addr().unwrap();
        let net = Net::new();
        let config = EndpointConfig {
            kind: base::EntityKind::MON,
            num: 0,
            addrs: addrs(own, Some(taken)),
            policies: msgr::Policies::uniform(msgr::Policy::lossy_server(vec![auth::ConMode::CRC])),
            auth_host: None,
            auth_client: None,
            limits: Limits::default(),
        };
        let e = net.endpoint(config, Rc::new(Nobody));
        // A port for msgr1 that is taken keeps no monitor from starting.
        let mut l = Listening::start(&e, own, true).await.unwrap();
        assert!(l.bound.is_empty());
        // Another address for msgr2 is not announced before it is served, whatever comes after it.
        l.follow(&addrs(other, None));
        l.follow(&addrs(other, Some(v1)));
        assert_eq!((e.addrs().msgr2().and_then(|a| a.sock), l.bound.len()), (Some(own), 0));
        l.follow(&addrs(own, Some(v1)));
        assert_eq!((e.addrs(), &l.bound[..]), (addrs(own, Some(v1)), &[v1][..]));
        assert!(std::net::TcpStream::connect(v1).is_ok());
        l.follow(&addrs(own, Some(taken)));
        drop(busy);
        l.follow(&addrs(own, Some(taken)));
        assert!(l.bound.contains(&taken), "tried again");
        e.shutdown();
    }

    #[test]
    fn addresses_of_new_maps_are_served_where_they_can_be() {
        reactor::run_here(|_, _| addresses_are_followed()).unwrap();
    }
}
