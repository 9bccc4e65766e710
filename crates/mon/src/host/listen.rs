//! The addresses at which a monitor listens for clients: one for msgr2, and one for msgr1 if the monmap has it.
//!
//! Invariants:
//!  1. A monitor listens at its msgr1 address from the monmap on that has it, and no longer announces it from the
//!     monmap on that has it no more.
//!  2. Another msgr2 address is taken up at the next start: other monitors and daemons are connected to this one.

use super::MonError;
use base::AddrVec;
use msgr::Protocol;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// Listening sockets of a monitor.
pub(super) struct Listening {
    endpoint: net::Endpoint,
    /// The IP address to listen on.
    bind: SocketAddr,
    /// Whether msgr1 may be served: `ms_bind_msgr1`.
    msgr1: bool,
    /// The addresses of the newest monmap that was looked at.
    seen: AddrVec,
    /// Sockets that listen for msgr1.
    bound: Vec<SocketAddr>,
}

impl Listening {
    /// Listens at `bind` for msgr2, and at the port of the endpoint's msgr1 address. Error: an address can't be used.
    pub(super) async fn start(endpoint: &net::Endpoint, bind: SocketAddr, msgr1: bool) -> Result<Self, MonError> {
        let mut me = Self { endpoint: endpoint.clone(), bind, msgr1, seen: endpoint.addrs(), bound: Vec::new() };
        listen(endpoint, bind, Protocol::V2).await?;
        if let Some(at) = me.legacy() {
            listen(endpoint, at, Protocol::V1).await?;
            me.bound.push(at);
        }
        Ok(me)
    }

    /// The address to listen on for msgr1.
    fn legacy(&self) -> Option<SocketAddr> {
        let at = self.seen.legacy()?.sock?;
        if !self.msgr1 {
            tracing::info!("ms_bind_msgr1 is off: the monmap has an address for msgr1, which is not served");
            return None;
        }
        Some(SocketAddr::new(self.bind.ip(), at.port()))
    }

    /// Takes up this monitor's addresses of a monmap.
    pub(super) fn follow(&mut self, addrs: &AddrVec) {
        if self.seen == *addrs {
            return;
        }
        let moved = self.seen.msgr2() != addrs.msgr2();
        self.seen = addrs.clone();
        if moved {
            tracing::warn!("the monmap has {addrs} for this monitor, which it takes up when it is restarted");
            return;
        }
        self.endpoint.set_addrs(addrs.clone());
        let Some(at) = self.legacy().filter(|at| !self.bound.contains(at)) else { return };
        match TcpListener::bind(at).and_then(|l| self.endpoint.listen_on(l, Protocol::V1)) {
            Ok(_) => {
                self.bound.push(at);
                tracing::info!("serving msgr1 at {at}");
            }
            Err(error) => {
                tracing::warn!("{at} of the monmap is not served: {error}; restart this monitor once it is free")
            }
        }
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
