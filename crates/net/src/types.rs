//! Types that a host and the network exchange: identities, events, reasons.

use auth::{ConMode, Principal, Random};
use base::{AddrVec, AuthName, EntityAddr, EntityKind, EntityName, Utime};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use wire::{Features, Message};

/// Id of a connection (lossy) or session (lossless) of one [`crate::Net`]. An id is not reused before 2³¹ others.
/// The highest bit is never set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

impl ConnId {
    /// Bits of [`ConnId::packed`].
    pub const PACKED_BITS: u32 = 52;
    /// Bits of the slot in it. Descriptors of a process are fewer: Linux allows 2²⁰.
    const SLOT_BITS: u32 = 21;

    /// The id in its lowest [`ConnId::PACKED_BITS`] bits, for numbers that hold more than an id.
    #[must_use]
    pub const fn packed(self) -> u64 {
        let (generation, slot) = (self.0 >> 32, self.0 & 0xffff_ffff);
        debug_assert!(slot >> Self::SLOT_BITS == 0 && generation >> (Self::PACKED_BITS - Self::SLOT_BITS) == 0);
        generation << Self::SLOT_BITS | slot
    }

    /// The id that [`ConnId::packed`] gave; higher bits are ignored.
    #[must_use]
    pub const fn from_packed(n: u64) -> Self {
        let n = n & ((1 << Self::PACKED_BITS) - 1);
        Self(n >> Self::SLOT_BITS << 32 | n & ((1 << Self::SLOT_BITS) - 1))
    }
}

impl std::fmt::Display for ConnId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "conn#{}", self.0)
    }
}

/// The peer of an open connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Proven identity and caps of the peer. Rights come from here and from no other field.
    pub principal: Principal,
    /// Kind and number of the peer, as [`Principal::entity`] gives them.
    pub entity: EntityName,
    /// Addresses that the peer announced: an unproven claim. It is the only source of an OSD's public
    /// addresses.
    pub addrs: AddrVec,
    /// Features that both ends have; they select the encodings to send.
    pub features: Features,
    /// Features that the peer announced: an unproven claim.
    pub announced: Features,
    /// Checksums only (crc) or encryption (secure).
    pub mode: ConMode,
    /// True if the session is lossy, so that it ends with its socket.
    pub lossy: bool,
}

/// Reason why a connection ended.
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
    /// The peer broke the protocol, or speaks another one.
    #[error("{0}")]
    Protocol(String),
    /// Authentication failed. The errno is that of the server's answer, or of our own refusal.
    #[error("authentication failed: {reason}")]
    Auth {
        /// Text of the failure.
        reason: String,
        /// Negative errno.
        errno: i32,
    },
    /// The handshake took too long.
    #[error("handshake timed out")]
    HandshakeTimeout,
    /// The peer was silent for too long.
    #[error("keepalive timed out")]
    KeepaliveTimeout,
    /// The peer does not read, and its output queue is full.
    #[error("output queue full")]
    OutputFull,
    /// The peer does not send the rest of a frame, for whose bytes others wait.
    #[error("incomplete frame timed out")]
    FrameStalled,
    /// A newer connection of the peer replaced this one.
    #[error("replaced by a newer connection")]
    Replaced,
    /// The peer lost the session: messages that were not acknowledged may be lost.
    #[error("session reset by peer")]
    Reset,
}

/// Event of a connection.
#[derive(Clone, Debug)]
pub enum ConnEvent {
    /// The connection is ready in both directions. Reported once for a lossless session.
    Open(Rc<PeerInfo>),
    /// A message arrived. The handler owns it; see [`crate::Net::consumed`] for back-pressure.
    Message(Message),
    /// The connection has ended and its id is not used again. Also the answer to a `connect` that failed.
    Closed(CloseReason),
}

/// Receiver of events. The connection's task calls it, so it must not block. It may call every method of
/// [`crate::Net`].
pub trait Handler {
    /// Handles one event of one connection.
    fn event(&self, conn: ConnId, event: ConnEvent);

    /// Handles the answer to [`crate::Net::report_drained`]: the connection's unsent output has fallen to the bound.
    fn drained(&self, _conn: ConnId) {}
}

/// Limits of an endpoint. The defaults suit daemons.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most bytes that a connection holds here: delivered, unconsumed messages, and for an accepted lossy connection
    /// also its unsent output. Above it, the socket is not read, and no message is delivered.
    pub in_flight_bytes_max: usize,
    /// Bytes queued for a peer above which the connection is closed if the peer has taken nothing for
    /// [`Limits::stall_max`]. At four times as many it is closed at once.
    pub output_bytes_max: usize,
    /// Longest time without progress of a peer whose queue is above its bound, or waits in a reactor that holds more
    /// than it may. Progress is [`crate::STALL_BYTES`], or an empty queue.
    pub stall_max: Duration,
    /// Limits of messages' segments.
    pub frames: msgr::FrameLimits,
    /// Most incoming connections at once; more are closed right after accept.
    pub connections_max: usize,
    /// Longest handshake, from connect or accept to open.
    pub handshake_max: Duration,
    /// Silence after which we send a keepalive on a connection we opened; zero for never.
    pub keepalive_every: Duration,
    /// Silence after which a connection we opened is closed (lossless: reconnected).
    pub keepalive_max: Duration,
    /// Silence after which an incoming lossy connection is closed (Ceph's `ms_connection_idle_timeout`).
    pub idle_max: Duration,
    /// Time for which a lossless session is kept after its client went away.
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
            stall_max: Duration::from_secs(30),
            frames: msgr::FrameLimits::default(),
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

/// One identity on the network. A daemon has one per set of addresses (an OSD: public, cluster, heartbeat front
/// and back), a client one.
pub struct EndpointConfig {
    /// Kind that we announce in HELLO.
    pub kind: EntityKind,
    /// Number in idents: OSD id, monitor rank, global id, or -1.
    pub num: i64,
    /// Our addresses in idents, nonce included. Blank until known (clients: learned from the first server).
    pub addrs: AddrVec,
    /// Session rules per kind of peer.
    pub policies: msgr::Policies,
    /// Authenticates peers that connect; `None` if none may.
    pub auth_host: Option<Rc<dyn auth::AuthHost>>,
    /// Authenticates this process to servers. Shared, so that new tickets reach all connections.
    pub auth_client: Option<Rc<RefCell<auth::Client>>>,
    /// Limits.
    pub limits: Limits,
}

/// Address and kind of a peer to connect to.
#[derive(Clone, Debug)]
pub struct Target {
    /// Kind of the peer; it selects the policy and the ticket.
    pub kind: EntityKind,
    /// Address to dial. The ident carries it unchanged, nonce included.
    pub addr: EntityAddr,
    /// All addresses of the peer, if known. They name the session of a lossless peer.
    pub addrs: AddrVec,
    /// Name of the peer, if known. A connection of another entity never replaces a lossless session with it.
    pub name: Option<AuthName>,
}

impl Target {
    /// A peer with one address.
    #[must_use]
    pub fn new(kind: EntityKind, addr: EntityAddr) -> Self {
        Self { kind, addr, addrs: AddrVec(vec![addr]), name: None }
    }
}

/// Reason why a message was dropped instead of queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The connection does not exist any more.
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
        // A machine without entropy cannot make keys, so the process must not go on.
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
