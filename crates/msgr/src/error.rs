//! Errors that close a connection.

use auth::{AuthError, ConMode};
use base::errno::{self, Errno};
use base::{AuthName, EntityKind};

/// Protocol error that ends a connection. The peer gets no more bytes after it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The peer's banner is that of msgr1.
    #[error(
        "peer speaks the old protocol (msgr1), which this port does not serve: use the v1 address of the daemon, or map \
         and mount with ms_mode=prefer-crc (or crc, secure)"
    )]
    Msgr1Peer,
    /// The first bytes at a port of msgr1 are not its banner.
    #[error("peer does not speak msgr1, which this port is for: use the v2 address")]
    NotMsgr1,
    /// The peer wants a lossless session over msgr1.
    #[error("a {} wants a lossless session over msgr1, which is served to clients only", .0.word())]
    LosslessOverMsgr1(EntityKind),
    /// The modes for this kind of peer require encryption, which msgr1 does not have.
    #[error("{0} allows encrypted connections only, and msgr1 does not encrypt: use the v2 address")]
    Msgr1NotEncrypted(&'static str),
    /// Tag of nothing that an msgr1 session has.
    #[error("unknown msgr1 tag {0}")]
    BadTag(u8),
    /// The checksum of a message's header is wrong.
    #[error("checksum of a message's header {got:08x}, computed {want:08x}")]
    HeaderCrc {
        /// Checksum in the header.
        got: u32,
        /// Computed checksum.
        want: u32,
    },
    /// The sender of a message gave it up.
    #[error("message aborted by its sender")]
    Aborted,
    /// The signature of a message is wrong or missing.
    #[error("message {0} is not signed with the session's key")]
    MessageSignature(u64),
    /// The first bytes are not an msgr2 banner.
    #[error("peer does not speak msgr2")]
    NotMsgr2,
    /// The length in the banner exceeds the limit.
    #[error("banner of {0} bytes")]
    BadBanner(usize),
    /// The peer requires protocol features that we lack, or lacks revision 1.
    #[error("peer supports msgr2 features {supported:#x} and requires {required:#x}; we have revision 1 only")]
    BannerFeatures {
        /// Peer's supported bits.
        supported: u64,
        /// Peer's required bits.
        required: u64,
    },
    /// The checksum of a preamble is wrong.
    #[error("preamble checksum {got:08x}, computed {want:08x}")]
    PreambleCrc {
        /// Checksum in the frame.
        got: u32,
        /// Computed checksum.
        want: u32,
    },
    /// The checksum of a segment is wrong.
    #[error("checksum of segment {segment} of {tag} frame: {got:08x}, computed {want:08x}")]
    SegmentCrc {
        /// Type of the frame.
        tag: &'static str,
        /// Index of the segment.
        segment: usize,
        /// Checksum in the frame.
        got: u32,
        /// Computed checksum.
        want: u32,
    },
    /// The preamble is invalid.
    #[error("bad preamble: {0}")]
    BadPreamble(&'static str),
    /// A segment is longer than the current state allows.
    #[error("segment {segment} of {tag} frame has {len} bytes, at most {max} are allowed here")]
    TooLarge {
        /// Type of the frame.
        tag: &'static str,
        /// Index of the segment.
        segment: usize,
        /// Length in the preamble.
        len: usize,
        /// Limit in bytes.
        max: usize,
    },
    /// The status in the epilogue is neither complete nor aborted.
    #[error("bad late status {0:#x}")]
    BadLateStatus(u8),
    /// The current state does not expect this frame.
    #[error("unexpected {tag} frame while {state}")]
    UnexpectedFrame {
        /// Type of the frame.
        tag: &'static str,
        /// State of the connection.
        state: &'static str,
    },
    /// The payload of a frame cannot be decoded.
    #[error("malformed {tag} frame: {error}")]
    Malformed {
        /// Type of the frame.
        tag: &'static str,
        /// Cause.
        error: wire::DecodeError,
    },
    /// A ciphertext fails authentication.
    #[error("frame does not decrypt: altered on the way or wrong keys")]
    Decrypt,
    /// All nonces of a direction have been used.
    #[error("nonces of the encrypted stream exhausted")]
    NonceExhausted,
    /// The connection secret is too short for the keys.
    #[error("connection secret of {0} bytes")]
    ShortSecret(usize),
    /// The peer's signature over the handshake is wrong: the handshake was altered on the way.
    #[error("handshake signature mismatch")]
    BadSignature,
    /// The HELLO of the server names another entity type than expected.
    #[error("dialled a {}, but a {} answered", want.word(), got.word())]
    WrongPeer {
        /// Expected entity type.
        want: EntityKind,
        /// Entity type in HELLO.
        got: EntityKind,
    },
    /// The client dialled an address that is not ours.
    #[error("peer dialled {0}, which is not one of our addresses")]
    WrongTarget(String),
    /// The peer's ident has no address.
    #[error("peer announces no address")]
    NoAddress,
    /// The peer lacks features we require.
    #[error("peer lacks required features {0:#x}")]
    PeerLacksFeatures(u64),
    /// We lack features the peer requires.
    #[error("peer requires features {0:#x} that we lack")]
    WeLackFeatures(u64),
    /// The server refused to authenticate us.
    #[error("{}", refused(*service, *errno, methods, modes, ours, option))]
    AuthRefused {
        /// Kind of the server.
        service: EntityKind,
        /// The server's errno.
        errno: Errno,
        /// Methods that the server allows.
        methods: Vec<u32>,
        /// Connection modes that the server allows.
        modes: Vec<u32>,
        /// Connection modes that we offer, as words.
        ours: String,
        /// Option that sets our modes.
        option: &'static str,
    },
    /// Our end of the authentication failed.
    #[error("authentication failed: {0}")]
    Auth(#[from] AuthError),
    /// The client sent too many authentication requests or failed too often.
    #[error("too many attempts to authenticate on one connection")]
    TooManyAuthAttempts,
    /// The peer sent too many bytes before it was authenticated.
    #[error("{0} bytes before authentication, at most {max} are allowed", max = crate::policy::PREAUTH_BYTES_MAX)]
    TooMuchBeforeAuth(usize),
    /// The server chose a connection mode that we did not offer.
    #[error("server chose connection mode {0}, which was not offered")]
    ModeNotOffered(u32),
    /// This endpoint does not accept connections.
    #[error("connections are not accepted here")]
    NotAccepting,
    /// A peer claims the address of another entity's session.
    #[error("{name} claims the address of a session with {other}")]
    AnothersSession {
        /// Name of the connecting peer.
        name: AuthName,
        /// Name of the session's owner.
        other: AuthName,
    },
    /// An older connection attempt of the peer arrived after a newer one.
    #[error("stale connection attempt")]
    Stale,
    /// A list in a frame is too long.
    #[error("{what}: {len} entries")]
    ListTooLong {
        /// Name of the list.
        what: &'static str,
        /// Number of entries.
        len: usize,
    },
}

impl Error {
    /// True for authentication errors, for which [`Error::errno`] is the errno to report to the user.
    #[must_use]
    pub fn is_auth(&self) -> bool {
        matches!(
            self,
            Self::AuthRefused { .. }
                | Self::Auth(_)
                | Self::TooManyAuthAttempts
                | Self::BadSignature
                | Self::MessageSignature(_)
                | Self::AnothersSession { .. }
        )
    }

    /// Errno for callers that wait for the connection.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::AuthRefused { errno, .. } => *errno,
            Self::Auth(e) => e.errno(),
            Self::BadSignature
            | Self::MessageSignature(_)
            | Self::TooManyAuthAttempts
            | Self::AnothersSession { .. } => errno::EACCES,
            Self::WeLackFeatures(_) | Self::BannerFeatures { .. } => errno::EOPNOTSUPP,
            _ => errno::EIO,
        }
    }
}

/// Explains a server's refusal, of which the server reveals only an errno, and names what to check.
fn refused(service: EntityKind, errno: Errno, methods: &[u32], modes: &[u32], ours: &str, option: &str) -> String {
    let theirs = mode_words(modes);
    let method = |m: &u32| match auth::Method(*m) {
        auth::Method::CEPHX => "cephx".to_owned(),
        auth::Method::NONE => "none".to_owned(),
        other => format!("method {}", other.0),
    };
    let methods = methods.iter().map(method).collect::<Vec<_>>().join(" ");
    let hint = match errno {
        errno::EACCES if service == EntityKind::MON => {
            "wrong key, unknown name, a name without caps, or a key of another cluster; the monitor's log says which, and names its cluster"
        }
        errno::EACCES => {
            "a ticket that has expired, is not valid yet by the server's clock, or is of another cluster; the server's log says which"
        }
        errno::EOPNOTSUPP => "no common method or connection mode",
        errno::EAGAIN => "the monitor is not ready",
        _ => "the server's log says why",
    };
    let name = errno::name(errno);
    format!(
        "authentication refused: {name}: {hint} (server allows auth {methods}, modes {theirs}; {option} here is {ours})"
    )
}

/// Connection modes as words, as options spell them.
pub(crate) fn mode_words(modes: &[u32]) -> String {
    let word = |m: &u32| match ConMode(*m) {
        ConMode::CRC => "crc".to_owned(),
        ConMode::SECURE => "secure".to_owned(),
        ConMode(other) => format!("mode {other}"),
    };
    if modes.is_empty() { "none".to_owned() } else { modes.iter().map(word).collect::<Vec<_>>().join(" ") }
}
