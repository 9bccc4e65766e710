//! Sessions of clients at monitors that do not lead, carried to the one that does. No I/O.
//!
//! [`Front`] is the side of the monitor that the client is connected to: it has checked who the client is, and passes on
//! what comes. [`Hub`] is the leader's side: to the core these sessions are like its own. So all that a client is told comes
//! from the leader, and epochs never go back for it whichever monitor it asks.
//!
//! Invariants:
//!  1. What a session sends arrives at the leader in order, after its opening.
//!  2. When the link to a leader ends, all sessions that were open there end on both sides: what the leader knew of them
//!     (subscriptions, what was sent) is gone. Clients come again, and ask again for what was not answered.
//!  3. While there is no leader, sessions and what they send wait, within bounds.
//!  4. What is wrong with a session (an opening that the leader does not take, a message that no link carries, a client that
//!     does not read) ends that session and nothing else. Only what no monitor sends ends a link.
//!  5. Sessions share a link fairly (`share`): each has a bound on what is under way, and the client of a session that has
//!     reached it is not read from.

mod front;
mod hub;
mod share;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use auth::{CapsInfo, KeyMark, Method, Principal};
use base::{AuthName, EntityKind};
use wire::msg::{MRelayMessage, MRelayOpen, MRelayTaken};
use wire::{Features, Message, WireMessage};

use super::cluster_state::Role;
use super::session::{ConnKey, Peer};

pub use front::{Front, FrontEffect};
pub use hub::{Hub, HubEffect};

/// A session that no leader takes over for so long is closed, so that its client tries another monitor.
pub const PATIENCE: Duration = Duration::from_secs(6);
/// Ids that a monitor in front is given at once.
pub const LINK_IDS: u64 = 1024;
/// From this version of [`wire::msg::MRelayIds`] on a monitor says what it has taken.
const TELLS_TAKEN: u16 = 2;
/// Longest front and middle of a message on a link, less than what a frame holds: what is put around them.
const CARRIED_MAX: usize = msgr::policy::FRONT_BYTES_MAX - 4096;
/// Bytes taken before the other side is told: far less than what may be under way.
const TELL_AT: usize = 256 << 10;

/// True if a link can carry a message.
fn fits(m: &Message) -> bool {
    m.front.len().saturating_add(m.middle.len()) <= CARRIED_MAX
}

fn carried(conn: u64, message: Message) -> Message {
    MRelayMessage { conn, message }.to_message(Features::PACIFIC)
}

/// What was taken of each session and the other side was not told of yet.
#[derive(Default)]
struct Taken {
    bytes: BTreeMap<u64, u64>,
    total: usize,
}

impl Taken {
    fn note(&mut self, conn: u64, cost: usize) {
        *self.bytes.entry(conn).or_default() += cost as u64;
        self.total += cost;
    }

    /// What to tell, once it is enough.
    fn due(&mut self) -> Option<Message> {
        (self.total >= TELL_AT).then(|| {
            self.total = 0;
            let taken = std::mem::take(&mut self.bytes).into_iter().collect();
            MRelayTaken { taken }.to_message(Features::PACIFIC)
        })
    }
}

/// True for the name of the key that monitors share, and only they have. A session under it is a link: it may speak for
/// others. A key of another name (`mon.x`) is somebody's, whatever its kind.
#[must_use]
pub fn is_monitor(name: &AuthName) -> bool {
    name.kind == EntityKind::MON && name.id.is_empty()
}

fn opening(conn: ConnKey, p: &Peer) -> MRelayOpen {
    let who = &p.principal;
    MRelayOpen {
        conn,
        kind: who.kind,
        name: who.name.clone(),
        entity: p.entity,
        addrs: p.addrs.clone(),
        socket: who.socket.to_string(),
        features: p.features,
        global_id: who.global_id,
        caps: who.caps.text(),
        allow_all: who.caps.allow_all,
        expires: who.expires,
        proved: who.proved.map(|m| m.0),
    }
}

fn peer_of(x: MRelayOpen) -> Result<Peer, String> {
    let socket = x.socket.parse().map_err(|_| format!("'{}' is no socket address", x.socket))?;
    // As where a handshake ends: nobody comes as another kind of daemon than its name has.
    if x.kind != EntityKind::CLIENT && x.kind != x.name.kind {
        return Err(format!("{} as a {}", x.name, x.kind.word()));
    }
    let principal = Principal {
        name: x.name,
        kind: x.kind,
        global_id: x.global_id,
        caps: CapsInfo { allow_all: x.allow_all, ..CapsInfo::from_text(&x.caps) },
        expires: x.expires,
        method: if x.allow_all { Method::NONE } else { Method::CEPHX },
        proved: x.proved.map(KeyMark),
        ..Principal::nobody(socket)
    };
    Ok(Peer { principal, entity: x.entity, addrs: x.addrs, features: x.features, role: Role::Mon })
}
