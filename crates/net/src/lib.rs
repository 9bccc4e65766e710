//! Joins msgr2 connections to sockets on a reactor.
//!
//! One [`Net`] per reactor; an [`Endpoint`] per identity on the network. Events go to the endpoint's [`Handler`],
//! synchronously from the task of the connection; what the handler sends is queued and leaves at the end of the loop turn
//! with one vectored write per connection.

#![forbid(unsafe_code)]

mod types;

pub use types::{
    CloseReason, ConnEvent, ConnId, EndpointConfig, Handler, Limits, NetStats, OsRandom, PeerInfo, SendError, Target,
};

use base::AddrVec;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use wire::Message;

/// The network of one reactor. Cloning gives another handle to the same.
#[derive(Clone)]
pub struct Net {}

/// One identity: listens and connects under it.
#[derive(Clone)]
pub struct Endpoint {}

impl Net {
    /// Needs a reactor around (a `LocalSet`).
    #[must_use]
    pub fn new() -> Self {
        Self {}
    }

    /// Adds an identity. Its events go to `handler`.
    #[must_use]
    pub fn endpoint(&self, _config: EndpointConfig, _handler: Rc<dyn Handler>) -> Endpoint {
        Endpoint {}
    }

    /// Queues a message; it leaves at the end of this turn. Sending on a connection still in handshake queues it.
    pub fn send(&self, _conn: ConnId, _m: Message) -> Result<(), SendError> {
        Err(SendError::Gone)
    }

    /// Closes: what is queued is written if the socket takes it at once, `Closed(Local)` is not reported.
    pub fn close(&self, _conn: ConnId) {}

    /// Says that messages of `bytes` (their [`Message::cost`]) delivered by `conn` are done with, so that its socket may be
    /// read again. A handler that never calls it for an endpoint must call [`Endpoint::set_auto_consume`] first.
    pub fn consumed(&self, _conn: ConnId, _bytes: usize) {}

    /// The other end, once open.
    #[must_use]
    pub fn peer(&self, _conn: ConnId) -> Option<Rc<PeerInfo>> {
        None
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> NetStats {
        NetStats::default()
    }
}

impl Default for Net {
    fn default() -> Self {
        Self::new()
    }
}

impl Endpoint {
    /// Listens; gives the address with the port chosen. Connections are served by this reactor.
    pub fn listen(&self, _addr: SocketAddr) -> io::Result<SocketAddr> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Listens and hands every accepted socket to `f`, which passes it to the [`Endpoint::adopt`] of some reactor.
    pub fn listen_with(
        &self,
        _addr: SocketAddr,
        _f: impl FnMut(std::net::TcpStream, SocketAddr) + 'static,
    ) -> io::Result<SocketAddr> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Serves a socket accepted elsewhere.
    pub fn adopt(&self, _stream: std::net::TcpStream) -> io::Result<ConnId> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Opens a connection; `Open` or `Closed` follows, never within this call. A lossless session to the same address is
    /// found again instead.
    #[must_use]
    pub fn connect(&self, _target: Target) -> ConnId {
        ConnId(0)
    }

    /// Our addresses, as far as known.
    #[must_use]
    pub fn addrs(&self) -> AddrVec {
        AddrVec::default()
    }

    /// Changes the addresses announced in later idents (after `listen` chose ports).
    pub fn set_addrs(&self, _addrs: AddrVec) {}

    /// Changes the number announced in later idents (a global id after signing in).
    pub fn set_num(&self, _num: i64) {}

    /// Messages count as consumed when the handler returns: for endpoints whose handler queues nothing. Default: true.
    pub fn set_auto_consume(&self, _auto: bool) {}

    /// Stops listening and closes all connections of this endpoint without reporting them.
    pub fn shutdown(&self) {}
}
