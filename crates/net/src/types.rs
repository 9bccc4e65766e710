//! What a host and the network exchange: identities, events, reasons.

use auth::{ConMode, Principal, Random};
use base::{AddrVec, AuthName, EntityAddr, EntityKind, EntityName, Utime};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use wire::{Features, Message};

/// A connection (lossy) or session (lossless) of one [`crate::Net`]. Not used again before two thousand million others were. The
/// highest bit is never set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

impl std::fmt::Display for ConnId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "conn#{}", self.0)
    }
}

/// The other end of an open connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Who it is and what it may do, as far as that is proven. Rights come from here and from nothing else of this structure.
    pub principal: Principal,
    /// What it is known by: kind and number as [`Principal::entity`] gives them.
    pub entity: EntityName,
    /// Its own addresses as it announced them: a claim. An OSD's public addresses are nowhere else.
    pub addrs: AddrVec,
    /// Features both ends have: what encodings to use towards it.
    pub features: Features,
    /// Checksums or encryption.
    pub mode: ConMode,
    /// Nothing survives the socket.
    pub lossy: bool,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    /// We called `close`.
    #[error("closed by us")]
    Local,
    /// The peer closed the socket.
    #[error("closed by peer")]
    Peer,
    /// The socket failed.
    #[error("socket: {0}")]
    Io(String),
    /// Bytes that break the protocol, or the peer speaks another.
    #[error("{0}")]
    Protocol(String),
    /// Authentication failed; the errno is that of the server's answer or of our own refusal.
    #[error("authentication failed: {reason}")]
    Auth {
        /// What went wrong.
        reason: String,
        /// Negative errno.
        errno: i32,
    },
    /// The handshake took too long.
    #[error("handshake timed out")]
    HandshakeTimeout,
    /// Nothing was heard for too long.
    #[error("keepalive timed out")]
    KeepaliveTimeout,
    /// More was queued towards a peer that does not read than it may be.
    #[error("output queue full")]
    OutputFull,
    /// The peer opened a new connection that takes this one's place.
    #[error("replaced by a newer connection")]
    Replaced,
    /// The peer forgot the session: what was sent and not acknowledged may be lost.
    #[error("session reset by peer")]
    Reset,
}

/// What happens on a connection.
#[derive(Clone, Debug)]
pub enum ConnEvent {
    /// Ready for messages in both directions. For a lossless session only the first time.
    Open(Rc<PeerInfo>),
    /// A message arrived. The handler owns it; see [`crate::Net::consumed`] for back-pressure.
    Message(Message),
    /// It is over; the id is not used again. Also the answer to a `connect` that failed.
    Closed(CloseReason),
}

/// Takes events; called from the connection's task, so it must not block. It may call every method of [`crate::Net`].
pub trait Handler {
    /// One event of one connection.
    fn event(&self, conn: ConnId, event: ConnEvent);
}

/// Limits of an endpoint. The defaults suit daemons.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of delivered messages a connection may have unconsumed before its socket is not read any more.
    pub in_flight_bytes_max: usize,
    /// Bytes queued towards a peer before the connection is closed (lossy) as hopeless.
    pub output_bytes_max: usize,
    /// Incoming connections at once; more are closed right after accept.
    pub connections_max: usize,
    /// From connect or accept to open.
    pub handshake_max: Duration,
    /// We send a keepalive after this much silence on connections we opened; zero for never.
    pub keepalive_every: Duration,
    /// A connection we opened is closed after this much silence (lossless: reconnected).
    pub keepalive_max: Duration,
    /// An incoming lossy connection is closed after this much silence (Ceph's `ms_connection_idle_timeout`).
    pub idle_max: Duration,
    /// A lossless session whose client went away is kept this long.
    pub standby_max: Duration,
    /// First pause before a lossless session reconnects; doubled each time.
    pub backoff_min: Duration,
    /// Longest such pause.
    pub backoff_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            in_flight_bytes_max: 100 << 20,
            output_bytes_max: 256 << 20,
            connections_max: 20_000,
            handshake_max: Duration::from_secs(20),
            keepalive_every: Duration::from_secs(10),
            keepalive_max: Duration::from_secs(30),
            idle_max: Duration::from_secs(900),
            standby_max: Duration::from_secs(900),
            backoff_min: Duration::from_millis(200),
            backoff_max: Duration::from_secs(15),
        }
    }
}

/// One identity on the network: a daemon has one per set of addresses (an OSD: public, cluster, heartbeat front, back),
/// a client one.
pub struct EndpointConfig {
    /// What we say in HELLO.
    pub kind: EntityKind,
    /// Number in idents: OSD id, monitor rank, global id, or -1.
    pub num: i64,
    /// Our addresses in idents, nonce included. Blank until known (clients: learned from the first server).
    pub addrs: AddrVec,
    /// Session rules per kind of peer.
    pub policies: msgr::Policies,
    /// Checks those who connect; `None` if nobody may.
    pub auth_host: Option<Rc<dyn auth::AuthHost>>,
    /// Signs us in where we connect. Shared, so that tickets reach all connections.
    pub auth_client: Option<Rc<RefCell<auth::Client>>>,
    /// Limits.
    pub limits: Limits,
}

/// Where and how to connect.
#[derive(Clone, Debug)]
pub struct Target {
    /// Kind of the peer: decides the policy and which ticket is shown.
    pub kind: EntityKind,
    /// Address to dial; goes into the ident as it is, nonce included.
    pub addr: EntityAddr,
    /// All addresses of the peer, if known: names the session of a lossless peer.
    pub addrs: AddrVec,
    /// Name of the peer, if known: a connection of another entity never takes the place of a lossless session with it.
    pub name: Option<AuthName>,
}

impl Target {
    /// A peer with one address.
    #[must_use]
    pub fn new(kind: EntityKind, addr: EntityAddr) -> Self {
        Self { kind, addr, addrs: AddrVec(vec![addr]), name: None }
    }
}

/// Why a message was not queued; it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// No such connection any more.
    #[error("not connected")]
    Gone,
    /// The peer does not read: the connection is being closed.
    #[error("output queue full")]
    Full,
}

/// Random bytes of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsRandom;

impl Random for OsRandom {
    fn fill(&self, out: &mut [u8]) {
        // A machine without entropy cannot make keys; nothing sensible can go on.
        getrandom::fill(out).expect("operating system has no random bytes");
    }
}

/// Counters of one `Net`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetStats {
    /// Connections open or in handshake.
    pub connections: u64,
    /// Messages received.
    pub messages_in: u64,
    /// Messages sent.
    pub messages_out: u64,
    /// Bytes read from sockets.
    pub bytes_in: u64,
    /// Bytes written to sockets.
    pub bytes_out: u64,
    /// Read system calls.
    pub reads: u64,
    /// Write system calls.
    pub writes: u64,
    /// Connections refused or closed for breaking the protocol.
    pub protocol_errors: u64,
    /// Failed sign-ins, both directions.
    pub auth_failures: u64,
    /// Accepted connections that have not signed in.
    pub not_signed_in: u64,
    /// When the counters were read.
    pub at: Utime,
}
