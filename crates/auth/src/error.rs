//! Authentication errors, and the errno sent to the peer for each.

use base::errno::{self, Errno};
use base::{AuthName, EntityKind};

/// Error of authenticating, of presenting a ticket, or of reading a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The peer requests a method that is not allowed here.
    #[error("method {0} is not allowed")]
    MethodNotAllowed(u32),
    /// No connection mode is offered by the peer and allowed here.
    #[error(
        "no common connection mode: the peer offers {offered}, {option} here allows {allowed}; change one of the two"
    )]
    NoCommonMode {
        /// Connection modes that the peer offers.
        offered: String,
        /// Connection modes allowed here.
        allowed: String,
        /// Option that sets the allowed modes.
        option: &'static str,
    },
    /// A handshake step came out of order.
    #[error("unexpected {0}")]
    Unexpected(&'static str),
    /// A payload cannot be decoded.
    #[error("malformed: {0}")]
    Malformed(#[from] wire::DecodeError),
    /// The leading mode byte is neither `MODE_MON` nor `MODE_AUTHORIZER`.
    #[error("unknown authentication mode {0}")]
    UnknownMode(u8),
    /// The session's key is of a type whose signatures of messages are not known here.
    #[error("a key of type aes256k does not sign messages of msgr1: use the v2 address, or a key of type aes")]
    KeyNeedsMsgr2,
    /// A peer presents a ticket to a monitor, which accepts only keys.
    #[error("a ticket opens no session at a monitor, which wants the proof of a key")]
    AuthorizerAtMonitor,
    /// Another entity than a daemon of a service asks for the service's secrets.
    #[error("{0} asks for secrets of a service; monitors, clients and others get none")]
    NoServiceSecrets(AuthName),
    /// An entity proved a key that is not its key any more.
    #[error("{0} proved a key that was replaced since")]
    ReplacedKey(AuthName),
    /// The cephx request type is unknown.
    #[error("unknown cephx request {0:#x}")]
    UnknownRequest(u16),
    /// The key database has no such entity.
    #[error("unknown entity {0}: `ceph auth ls` lists those of this cluster")]
    UnknownEntity(AuthName),
    /// The proof was made with another key than the entity's.
    #[error(
        "{0} proved knowledge of another key than `ceph auth get {0}` shows: an old one, or one of another cluster"
    )]
    BadProof(AuthName),
    /// Our key does not decrypt a ciphertext: wrong key or altered bytes.
    #[error("cannot decrypt {0}: wrong key, one of another cluster, or altered bytes")]
    CannotDecrypt(&'static str),
    /// The peer requests a global id without a ticket that proves it.
    #[error("{name} reclaims global id {global_id} without a valid ticket")]
    InsecureReclaim {
        /// Name of the peer.
        name: AuthName,
        /// The requested global id.
        global_id: u64,
    },
    /// The monitor has no unused global id at the moment.
    #[error("no global id available")]
    NoGlobalId,
    /// The service secret that sealed a ticket is not among those we hold.
    #[error("could not find secret_id {id} of service {}: {}", service.word(), unknown_secret(*id, *current))]
    UnknownSecret {
        /// Service the ticket is for.
        service: EntityKind,
        /// Number of the secret.
        id: u64,
        /// Number of the current secret by this machine's clock.
        current: Option<u64>,
    },
    /// The secret of the ticket's number does not decrypt the ticket.
    #[error(
        "secret {id} of service {} does not open the ticket that names it: the ticket is of another cluster, or altered",
        service.word()
    )]
    ForeignTicket {
        /// Service the ticket is for.
        service: EntityKind,
        /// Number of the secret.
        id: u64,
    },
    /// The ticket is for another service.
    #[error("ticket is for service {got:#x}, not {want:#x}")]
    WrongService {
        /// Our service.
        want: u32,
        /// Service of the ticket.
        got: u32,
    },
    /// The ticket has expired.
    #[error(
        "ticket of {name} expired {over} s ago, made {age} s ago by this machine's clock: its holder did not renew it, or the clocks of \
         this machine and of the monitors differ"
    )]
    ExpiredTicket {
        /// Holder of the ticket.
        name: AuthName,
        /// Seconds since expiry.
        over: u64,
        /// Seconds since the monitor made the ticket; negative if that lies in this clock's future.
        age: i64,
    },
    /// The ticket would be valid for more than twice its life from now, so this machine's clock must be behind.
    #[error(
        "ticket of {name} is not valid yet: the monitors made it {ahead} s from now by this machine's clock, which is behind theirs by that much"
    )]
    NotYetValid {
        /// Holder of the ticket.
        name: AuthName,
        /// Seconds from now until its creation.
        ahead: u64,
    },
    /// A session requests tickets with another entity's ticket.
    #[error("a session of {session} shows the ticket of {name}")]
    AnothersTicket {
        /// Entity of the session.
        session: AuthName,
        /// Holder of the ticket.
        name: AuthName,
    },
    /// The authorizer names another global id than its ticket.
    #[error("authorizer of global id {got}, ticket of {want}")]
    GlobalIdMismatch {
        /// Global id in the ticket.
        want: u64,
        /// Global id in the authorizer.
        got: u64,
    },
    /// The entity has no caps at the monitors, which refuse it therefore.
    #[error("{0} has no caps at the monitors; give it some: ceph auth caps {0} mon 'allow r'")]
    NoCaps(AuthName),
    /// The peer's HELLO names another daemon type than its authenticated name.
    #[error("{name} announces itself as {}; it may come as {} or as a client", claimed.word(), name.kind.word())]
    WrongClaim {
        /// Entity type in HELLO.
        claimed: EntityKind,
        /// Authenticated name.
        name: AuthName,
    },
    /// The answer to our challenge is wrong: the authorizer was replayed.
    #[error("wrong answer to the challenge")]
    BadChallenge,
    /// The service failed to prove that it decrypted our ticket.
    #[error("service answered with a wrong nonce")]
    BadNonce,
    /// There is no ticket for this service.
    #[error("no ticket for service {}", .0.word())]
    NoTicket(EntityKind),
    /// There is no key for this entity.
    #[error("no key for {0}")]
    NoKey(AuthName),
    /// The monitor answered with an error.
    #[error("monitor refused: {}", errno::name(*.0))]
    Refused(Errno),
    /// The key has an unknown type or a wrong length.
    #[error("bad key: {0}")]
    BadKey(&'static str),
}

/// Explains why the secret with number `id` is missing here.
fn unknown_secret(id: u64, current: Option<u64>) -> &'static str {
    match current {
        None => "this daemon has not fetched any secrets from the monitors yet",
        // The successor of the current secret is held, too.
        Some(c) if id > c.saturating_add(1) => {
            "the monitors sealed the ticket with a newer secret than those fetched: this daemon's clock is behind theirs, it \
             could not fetch secrets for long, or the ticket is of another cluster"
        }
        Some(c) if id < c => "the secret is older than those kept: the ticket has expired, or is of another cluster",
        Some(_) => "the ticket is of another cluster",
    }
}

impl AuthError {
    /// The errno sent to the peer.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::MethodNotAllowed(_) | Self::NoCommonMode { .. } | Self::UnknownMode(_) | Self::KeyNeedsMsgr2 => {
                errno::EOPNOTSUPP
            }
            Self::Malformed(_) | Self::UnknownRequest(_) | Self::BadKey(_) | Self::Unexpected(_) => errno::EINVAL,
            Self::NoGlobalId => errno::EAGAIN,
            Self::Refused(e) => *e,
            Self::NoTicket(_) | Self::NoKey(_) => errno::ENOENT,
            _ => errno::EACCES,
        }
    }
}
