//! Why an authentication failed, and the errno the peer is told.

use base::errno::{self, Errno};
use base::{AuthName, EntityKind};

/// Every way in which signing in, showing a ticket or reading a key can fail.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The peer asks for a method that is not allowed here.
    #[error("method {0} is not allowed")]
    MethodNotAllowed(u32),
    /// None of the peer's connection modes is allowed.
    #[error(
        "no common connection mode: the peer offers {offered}, {option} here allows {allowed}; one of the two has to change"
    )]
    NoCommonMode {
        /// Modes the peer offers.
        offered: String,
        /// Modes allowed here.
        allowed: String,
        /// The option that says so.
        option: &'static str,
    },
    /// A step out of order.
    #[error("unexpected {0}")]
    Unexpected(&'static str),
    /// Bytes that do not parse.
    #[error("malformed: {0}")]
    Malformed(#[from] wire::DecodeError),
    /// The leading mode byte is neither "to a monitor" nor "authorizer".
    #[error("unknown authentication mode {0}")]
    UnknownMode(u8),
    /// A request number that does not exist.
    #[error("unknown cephx request {0:#x}")]
    UnknownRequest(u16),
    /// No such entity in the key database.
    #[error("unknown entity {0}: `ceph auth ls` lists those of this cluster")]
    UnknownEntity(AuthName),
    /// The proof was not made with the entity's key.
    #[error(
        "{0} proved knowledge of another key than `ceph auth get {0}` shows: an old one, or one of another cluster"
    )]
    BadProof(AuthName),
    /// A ciphertext that our key does not open: wrong key or altered bytes.
    #[error("cannot decrypt {0}: wrong key, one of another cluster, or altered bytes")]
    CannotDecrypt(&'static str),
    /// The global id asked for belongs to a session that the peer cannot prove to be its own.
    #[error("{name} reclaims global id {global_id} without a valid ticket")]
    InsecureReclaim {
        /// Who.
        name: AuthName,
        /// Which.
        global_id: u64,
    },
    /// The monitor has no global id to give at this moment.
    #[error("no global id available")]
    NoGlobalId,
    /// The service secret a ticket was sealed with is not among those we hold.
    #[error("could not find secret_id {id} of service {}: {}", service.word(), unknown_secret(*id, *current))]
    UnknownSecret {
        /// Service the ticket is for.
        service: EntityKind,
        /// The secret's number.
        id: u64,
        /// Number of the secret that seals tickets by this machine's clock.
        current: Option<u64>,
    },
    /// The secret of that number does not open the ticket.
    #[error(
        "the secret {id} of service {} here does not open a ticket that was sealed with the one of that number: it is of another cluster, or \
         altered", service.word()
    )]
    ForeignTicket {
        /// Service the ticket is for.
        service: EntityKind,
        /// The secret's number.
        id: u64,
    },
    /// A ticket for another service.
    #[error("ticket is for service {got:#x}, not {want:#x}")]
    WrongService {
        /// Ours.
        want: u32,
        /// The ticket's.
        got: u32,
    },
    /// The ticket's time is over.
    #[error(
        "ticket of {name} is over for {over} s, made {age} s ago by this machine's clock: its holder did not renew it, or the clocks of \
         this machine and of the monitors differ"
    )]
    ExpiredTicket {
        /// Whose.
        name: AuthName,
        /// Seconds since its end.
        over: u64,
        /// Seconds since the monitor made it; negative if that is to come by this machine's clock.
        age: i64,
    },
    /// The ticket's time has not come: it would be good for more than twice as long as it was meant to be.
    #[error(
        "ticket of {name} is not valid yet: the monitors made it {ahead} s from now by this machine's clock, which is behind theirs by that"
    )]
    NotYetValid {
        /// Whose.
        name: AuthName,
        /// Seconds until it was made.
        ahead: u64,
    },
    /// A session asks for tickets of another name.
    #[error("a session of {session} shows the ticket of {name}")]
    AnothersTicket {
        /// Who asks.
        session: AuthName,
        /// Whose ticket it is.
        name: AuthName,
    },
    /// The authorizer names another session than the ticket in it.
    #[error("authorizer of global id {got}, ticket of {want}")]
    GlobalIdMismatch {
        /// In the ticket.
        want: u64,
        /// In the authorizer.
        got: u64,
    },
    /// An entity that may do nothing at the monitors does not get in.
    #[error("{0} has no caps at the monitors; give it some: ceph auth caps {0} mon 'allow r'")]
    NoCaps(AuthName),
    /// The peer announced itself as another kind of daemon than the name it signed in with has.
    #[error("{name} announces itself as {}; it may come as {} or as a client", claimed.word(), name.kind.word())]
    WrongClaim {
        /// What HELLO says.
        claimed: EntityKind,
        /// Who it is.
        name: AuthName,
    },
    /// The answer to our challenge is wrong: a replayed authorizer.
    #[error("wrong answer to the challenge")]
    BadChallenge,
    /// The service did not prove that it could open our ticket.
    #[error("service answered with a wrong nonce")]
    BadNonce,
    /// We hold no ticket for that service.
    #[error("no ticket for service {}", .0.word())]
    NoTicket(EntityKind),
    /// We have no key to sign in with.
    #[error("no key for {0}")]
    NoKey(AuthName),
    /// The monitor answered a request with an error.
    #[error("monitor refused: {}", errno::name(*.0))]
    Refused(Errno),
    /// A key of a type or length that does not exist.
    #[error("bad key: {0}")]
    BadKey(&'static str),
}

/// What it means that a secret of a number is not here.
fn unknown_secret(id: u64, current: Option<u64>) -> &'static str {
    match current {
        None => "this daemon has none yet; it fetches them from the monitors",
        // The next one is held, too.
        Some(c) if id > c.saturating_add(1) => {
            "the monitors made the ticket with one that is not held here yet; this daemon's clock is behind theirs, it could not fetch \
             secrets for long, or the ticket is of another cluster"
        }
        Some(c) if id < c => "one older than those kept: the ticket is over, or of another cluster",
        Some(_) => "a ticket of another cluster",
    }
}

impl AuthError {
    /// The errno that goes to the peer.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::MethodNotAllowed(_) | Self::NoCommonMode { .. } | Self::UnknownMode(_) => errno::EOPNOTSUPP,
            Self::Malformed(_) | Self::UnknownRequest(_) | Self::BadKey(_) | Self::Unexpected(_) => errno::EINVAL,
            Self::NoGlobalId => errno::EAGAIN,
            Self::Refused(e) => *e,
            Self::NoTicket(_) | Self::NoKey(_) => errno::ENOENT,
            _ => errno::EACCES,
        }
    }
}
