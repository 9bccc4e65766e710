//! How sessions with a kind of peer behave, and the limits of every state of a connection.

use auth::ConMode;
use base::EntityKind;
use wire::Features;

/// Longest payload of a banner.
pub const BANNER_PAYLOAD_MAX: usize = 256;
/// Largest frame before the peer is authenticated.
pub const FRAME_BYTES_MAX_PREAUTH: usize = 64 * 1024;
/// Largest segment 0 of any frame that is not a message, and of idents.
pub const CONTROL_BYTES_MAX: usize = 64 * 1024;
/// Largest front segment of a message.
pub const FRONT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Largest middle segment of a message.
pub const MIDDLE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest data segment of a message: librados' default op limit of 90 MiB plus overhead.
pub const DATA_BYTES_MAX: usize = 128 * 1024 * 1024;
/// Failed attempts to authenticate on one connection.
pub const AUTH_ATTEMPTS_MAX: u32 = 8;
/// AUTH_REQUEST and AUTH_REQUEST_MORE frames on one connection, failed or not.
pub const AUTH_FRAMES_MAX: u32 = 24;
/// Bytes that a peer may send before it is authenticated: they are kept for the signature.
pub const PREAUTH_BYTES_MAX: usize = 128 * 1024;
/// Messages that may go unacknowledged before a frame says so that says nothing else...
pub const UNACKED_MAX: u64 = 64;
/// ...and their bytes.
pub const UNACKED_BYTES_MAX: usize = 256 * 1024;
/// Data segments from this size on are received straight into a page-aligned buffer of their own.
pub const DIRECT_BYTES_MIN: usize = 16 * 1024;
/// Modes or methods in one frame.
pub const LIST_MAX: usize = 32;
/// Addresses in one ident.
pub const ADDRS_MAX: usize = 32;

/// Session rules for one kind of peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Nothing survives the socket: no acknowledgements, no replay, no reconnect.
    pub lossy: bool,
    /// We only ever accept from such peers and never connect back.
    pub server: bool,
    /// A peer that forgot the session is told so with a full reset.
    pub reset_check: bool,
    /// Announced features.
    pub supported: Features,
    /// Features a peer must have.
    pub required: Features,
    /// Connection modes: as a client those we offer, preferred first; as a server those we allow.
    pub modes: Vec<ConMode>,
    /// The option that `modes` comes from, for messages about peers that offer others.
    pub modes_option: &'static str,
}

/// Required of peers by default: addresses in the new form (`MSG_ADDR2`).
pub const REQUIRED_DEFAULT: Features = Features(0x0800_0000_0000_0000);

impl Policy {
    /// Lossy towards clients of ours: monitors, managers and OSDs to everybody that connects to them.
    #[must_use]
    pub fn lossy_server(modes: Vec<ConMode>) -> Self {
        Self {
            lossy: true,
            server: true,
            reset_check: false,
            supported: Features::PACIFIC,
            required: REQUIRED_DEFAULT,
            modes,
            modes_option: "ms_service_mode",
        }
    }

    /// Lossy connections we open.
    #[must_use]
    pub fn lossy_client(modes: Vec<ConMode>) -> Self {
        Self { server: false, ..Self::lossy_server(modes) }
    }

    /// Lossless sessions between equals, either of which may connect.
    #[must_use]
    pub fn lossless_peer(modes: Vec<ConMode>) -> Self {
        Self { lossy: false, server: false, ..Self::lossy_server(modes) }
    }

    /// Lossless sessions that clients open.
    #[must_use]
    pub fn lossless_server(modes: Vec<ConMode>) -> Self {
        Self { lossy: false, server: true, reset_check: true, ..Self::lossy_server(modes) }
    }
}

/// Policies per kind of peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies {
    /// For kinds not listed.
    pub default: Policy,
    /// Exceptions.
    pub per_kind: Vec<(EntityKind, Policy)>,
}

impl Policies {
    /// The same for all.
    #[must_use]
    pub fn uniform(p: Policy) -> Self {
        Self { default: p, per_kind: Vec::new() }
    }

    /// With an exception for one kind.
    #[must_use]
    pub fn with(mut self, kind: EntityKind, p: Policy) -> Self {
        self.per_kind.retain(|(k, _)| *k != kind);
        self.per_kind.push((kind, p));
        self
    }

    /// The rules for a kind of peer.
    #[must_use]
    pub fn get(&self, kind: EntityKind) -> &Policy {
        self.per_kind.iter().find(|(k, _)| *k == kind).map_or(&self.default, |(_, p)| p)
    }
}
