//! Why a connection is closed.

use auth::AuthError;
use base::errno::{self, Errno};
use base::{AuthName, EntityKind};

/// Everything that ends a connection from inside the protocol. The peer gets no more bytes after one of these.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The peer opened with the old protocol.
    #[error(
        "peer speaks the old protocol (msgr1), which is not served here: mount or map with ms_mode=prefer-crc (or crc, \
         secure), and use the v2 address of the monitor"
    )]
    Msgr1Peer,
    /// The first bytes are no banner of this protocol.
    #[error("peer does not speak msgr2")]
    NotMsgr2,
    /// A banner with an absurd length.
    #[error("banner of {0} bytes")]
    BadBanner(usize),
    /// The peer needs protocol features we lack, or lacks revision 1.
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
        /// In the frame.
        got: u32,
        /// Computed.
        want: u32,
    },
    /// The checksum of a segment is wrong.
    #[error("checksum of segment {segment} of {tag} frame: {got:08x}, computed {want:08x}")]
    SegmentCrc {
        /// Frame.
        tag: &'static str,
        /// Which.
        segment: usize,
        /// In the frame.
        got: u32,
        /// Computed.
        want: u32,
    },
    /// A preamble that no frame may have.
    #[error("bad preamble: {0}")]
    BadPreamble(&'static str),
    /// A segment longer than this state allows.
    #[error("segment {segment} of {tag} frame has {len} bytes, at most {max} are allowed here")]
    TooLarge {
        /// Frame.
        tag: &'static str,
        /// Which segment.
        segment: usize,
        /// Announced.
        len: usize,
        /// Limit.
        max: usize,
    },
    /// An epilogue that is neither complete nor aborted.
    #[error("bad late status {0:#x}")]
    BadLateStatus(u8),
    /// A frame that this state does not expect.
    #[error("unexpected {tag} frame while {state}")]
    UnexpectedFrame {
        /// Frame.
        tag: &'static str,
        /// Our state.
        state: &'static str,
    },
    /// A payload that does not parse.
    #[error("malformed {tag} frame: {error}")]
    Malformed {
        /// Frame.
        tag: &'static str,
        /// Why.
        error: wire::DecodeError,
    },
    /// A ciphertext that does not authenticate.
    #[error("frame does not decrypt: altered on the way or wrong keys")]
    Decrypt,
    /// All nonces of a direction were used.
    #[error("nonces of the encrypted stream exhausted")]
    NonceExhausted,
    /// The connection secret is too short to hold keys.
    #[error("connection secret of {0} bytes")]
    ShortSecret(usize),
    /// The peer's signature over the handshake is wrong: someone altered it.
    #[error("handshake signature mismatch")]
    BadSignature,
    /// The server's HELLO names another kind of entity than we dialled.
    #[error("dialled a {}, a {} answered", want.word(), got.word())]
    WrongPeer {
        /// Dialled.
        want: EntityKind,
        /// Found.
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
        /// Server's errno.
        errno: Errno,
        /// Methods it allows.
        methods: Vec<u32>,
        /// Modes it allows.
        modes: Vec<u32>,
        /// Modes that we offer, in words.
        ours: String,
        /// The option that says so.
        option: &'static str,
    },
    /// Our side of the authentication failed.
    #[error("authentication failed: {0}")]
    Auth(#[from] AuthError),
    /// The client asked or failed too often.
    #[error("too many attempts to authenticate on one connection")]
    TooManyAuthAttempts,
    /// The peer sent too much before it was authenticated.
    #[error("{0} bytes before authentication, at most {max} are allowed", max = crate::policy::PREAUTH_BYTES_MAX)]
    TooMuchBeforeAuth(usize),
    /// The server chose a mode we did not offer.
    #[error("server chose connection mode {0}, which was not offered")]
    ModeNotOffered(u32),
    /// This endpoint does not accept connections.
    #[error("connections are not accepted here")]
    NotAccepting,
    /// A peer claims an address under which a session with another entity exists.
    #[error("{name} claims the address of a session with {other}")]
    AnothersSession {
        /// Who connects.
        name: AuthName,
        /// Whose session it is.
        other: AuthName,
    },
    /// An older attempt of the peer arrived after a newer one.
    #[error("stale connection attempt")]
    Stale,
    /// Lists that a hostile peer made long.
    #[error("{what}: {len} entries")]
    ListTooLong {
        /// Which.
        what: &'static str,
        /// How many.
        len: usize,
    },
}

impl Error {
    /// True if it is about authentication; then [`Error::errno`] says what a client should report.
    #[must_use]
    pub fn is_auth(&self) -> bool {
        matches!(
            self,
            Self::AuthRefused { .. }
                | Self::Auth(_)
                | Self::TooManyAuthAttempts
                | Self::BadSignature
                | Self::AnothersSession { .. }
        )
    }

    /// Errno for whoever waits for the connection.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::AuthRefused { errno, .. } => *errno,
            Self::Auth(e) => e.errno(),
            Self::BadSignature | Self::TooManyAuthAttempts | Self::AnothersSession { .. } => errno::EACCES,
            Self::WeLackFeatures(_) | Self::BannerFeatures { .. } => errno::EOPNOTSUPP,
            _ => errno::EIO,
        }
    }
}

/// What a server's refusal means and what to look at: the errno is all it says of the reason.
fn refused(service: EntityKind, errno: Errno, methods: &[u32], modes: &[u32], ours: &str, option: &str) -> String {
    let theirs = crate::handshake::mode_words(modes);
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
            "a ticket that is over, not valid yet by the server's clock, or of another cluster; the server's log says which"
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
