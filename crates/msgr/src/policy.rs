//! Session policies by type of peer, and the limits of every state of a connection.

use auth::ConMode;
use base::EntityKind;
use wire::Features;

/// Longest payload of a banner in bytes.
pub const BANNER_PAYLOAD_MAX: usize = 256;
/// Largest frame in bytes before the peer is authenticated.
pub const FRAME_BYTES_MAX_PREAUTH: usize = 64 * 1024;
/// Largest control frame payload in bytes, idents included.
pub const CONTROL_BYTES_MAX: usize = 64 * 1024;
/// Largest front segment of a message in bytes.
pub const FRONT_BYTES_MAX: usize = base::sizes::FRONT_MAX;
/// Largest middle segment of a message in bytes.
pub const MIDDLE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Largest data segment of a message in bytes.
pub const DATA_BYTES_MAX: usize = base::sizes::DATA_MAX;
/// Data segments of monitors and managers: the largest command input (a CRUSH map, a keyring) is far smaller.
pub const CONTROL_PLANE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Encoded, unwritten bytes above which further messages wait unencoded. So a resumed session does not encode or encrypt
/// everything at once, and a slow peer costs no second copy.
pub const WINDOW_BYTES: usize = 4 * 1024 * 1024;
/// First part of a buffer for a longer frame. The buffer doubles as bytes arrive, so memory follows what a peer has sent
/// and not what it announced.
pub const FIRST_BUFFER_BYTES: usize = 8 * 1024 * 1024;
/// Most failed authentication attempts on one connection.
pub const AUTH_ATTEMPTS_MAX: u32 = 8;
/// Most AUTH_REQUEST and AUTH_REQUEST_MORE frames on one connection, failed or not.
pub const AUTH_FRAMES_MAX: u32 = 24;
/// Most bytes before authentication; they are kept for the signature.
pub const PREAUTH_BYTES_MAX: usize = 128 * 1024;
/// Number of received, unacknowledged messages at which an ACK frame is sent at once.
pub const UNACKED_MAX: u64 = 64;
/// Bytes of received, unacknowledged messages at which an ACK frame is sent at once.
pub const UNACKED_BYTES_MAX: usize = 256 * 1024;
/// Data segments from this size in bytes are received into a page-aligned buffer of their own.
pub const DIRECT_BYTES_MIN: usize = 16 * 1024;
/// Most modes or methods in one frame.
pub const LIST_MAX: usize = 32;
/// Most addresses in one ident.
pub const ADDRS_MAX: usize = 32;

/// Limits of the segments of a message, and who decides about their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// Longest front segment in bytes.
    pub front: usize,
    /// Longest middle segment in bytes.
    pub middle: usize,
    /// Longest data segment in bytes.
    pub data: usize,
    /// Memory for an incomplete frame of [`DIRECT_BYTES_MIN`] or more is allocated only after
    /// [`crate::Connection::grant`].
    pub ask: bool,
}

impl Default for FrameLimits {
    fn default() -> Self {
        Self { front: FRONT_BYTES_MAX, middle: MIDDLE_BYTES_MAX, data: DATA_BYTES_MAX, ask: false }
    }
}

impl FrameLimits {
    /// Limits of monitors and managers towards all but monitors, whose relay links carry the messages of others.
    #[must_use]
    pub fn control_plane() -> Self {
        let most = CONTROL_PLANE_BYTES_MAX;
        Self { front: most, middle: most, data: most, ask: false }
    }
}

/// Session policy for one type of peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The session ends with its socket: no acknowledgements, no replay, no reconnect.
    pub lossy: bool,
    /// This process accepts connections of such peers and never connects to them.
    pub server: bool,
    /// A peer that lost the session gets a full reset.
    pub reset_check: bool,
    /// Features that this process supports and announces.
    pub supported: Features,
    /// Required features of a peer.
    pub required: Features,
    /// Connection modes: offered as a client, preferred first; allowed as a server.
    pub modes: Vec<ConMode>,
    /// Option that sets `modes`, for error messages.
    pub modes_option: &'static str,
}

/// Features required of peers by default: `MSG_ADDR2`, the newer address encoding.
pub const REQUIRED_DEFAULT: Features = Features(0x0800_0000_0000_0000);

impl Policy {
    /// Policy of monitors, managers and OSDs for their lossy clients.
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

    /// Policy of a client that opens lossy connections. It announces that it uses chosen primaries; Belemnite's servers
    /// keep to the encodings of [`Features::PACIFIC`] with it.
    #[must_use]
    pub fn lossy_client(modes: Vec<ConMode>) -> Self {
        let supported = Features(Features::PACIFIC.0 | Features::CLIENT_RELEASES.0);
        Self { server: false, supported, ..Self::lossy_server(modes) }
    }

    /// Policy for lossless sessions between peers, each of which may connect.
    #[must_use]
    pub fn lossless_peer(modes: Vec<ConMode>) -> Self {
        Self { lossy: false, server: false, ..Self::lossy_server(modes) }
    }

    /// Policy for lossless sessions that only clients open.
    #[must_use]
    pub fn lossless_server(modes: Vec<ConMode>) -> Self {
        Self { lossy: false, server: true, reset_check: true, ..Self::lossy_server(modes) }
    }
}

/// Session policies by type of peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies {
    /// Policy for types that are not listed.
    pub default: Policy,
    /// Policies of single types.
    pub per_kind: Vec<(EntityKind, Policy)>,
}

impl Policies {
    /// One policy for all types.
    #[must_use]
    pub fn uniform(p: Policy) -> Self {
        Self { default: p, per_kind: Vec::new() }
    }

    /// Adds a policy for one type.
    #[must_use]
    pub fn with(mut self, kind: EntityKind, p: Policy) -> Self {
        self.per_kind.retain(|(k, _)| *k != kind);
        self.per_kind.push((kind, p));
        self
    }

    /// Requires features of clients, in addition to those that every peer has. Metadata servers and separate managers are
    /// clients, too. Earlier such requirements end.
    #[must_use]
    pub fn require_of_clients(mut self, extra: Features) -> Self {
        let required = Features(REQUIRED_DEFAULT.0 | extra.0);
        for kind in [EntityKind::CLIENT, EntityKind::MDS, EntityKind::MGR] {
            let p = Policy { required, ..self.get(kind).clone() };
            self = self.with(kind, p);
        }
        self.default.required = required;
        self
    }

    /// The policy for a type.
    #[must_use]
    pub fn get(&self, kind: EntityKind) -> &Policy {
        self.per_kind.iter().find(|(k, _)| *k == kind).map_or(&self.default, |(_, p)| p)
    }
}
