//! Sessions as commands see them: the sender of a command, and the list of open sessions.

use base::{AddrVec, AuthName, EntityName, Utime};
use wire::Features;

use super::access::Principal;

/// A connection's key, chosen by the host.
pub type ConnKey = u64;

/// The role that a command was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The monitor (`MON_COMMAND`).
    Mon,
    /// The manager (`MGR_COMMAND`).
    Mgr,
    /// The process itself (`ceph tell mon.x`, `ceph tell mgr.x`).
    Tell,
}

/// The session of a command's sender.
#[derive(Clone, Debug)]
pub struct SessionInfo {
    /// The sender's identity and rights.
    pub principal: Principal,
    /// The sender's entity instance.
    pub entity: EntityName,
    /// The addresses that the sender announces.
    pub addrs: AddrVec,
    /// The features that the sender announced.
    pub features: Features,
    /// The role that the session is connected to.
    pub role: Role,
    /// The front monitor that relays the session; `None` for a direct connection.
    pub by: Option<String>,
}

/// A client or daemon session as `mon sessions` and `features` show it (volatile).
#[derive(Clone, Debug)]
pub struct SessionSummary {
    /// The authenticated entity.
    pub name: AuthName,
    /// The entity instance.
    pub entity: EntityName,
    /// The peer's addresses.
    pub addrs: AddrVec,
    /// The features that the peer announced.
    pub features: Features,
    /// The global id of the peer.
    pub global_id: u64,
    /// Time at which the session opened.
    pub since: Utime,
    /// The front monitor that relays the session; `None` for a direct connection.
    pub by: Option<String>,
}
