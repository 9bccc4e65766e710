//! Relays client sessions of front monitors to the leader. No I/O.
//!
//! [`Front`] is the front monitor's side: it has authenticated the client, and passes on its messages. [`Hub`] is the
//! leader's side: the core treats these sessions like its own. So all answers come from the leader, and a client
//! never sees epochs go back, whichever monitor it asks.
//!
//! | module | contents |
//! | --- | --- |
//! | `age` | the time at which a relayed session opened, by the leader's clock |
//! | `front` | the front monitor's side of the relay |
//! | `hub` | the leader's side of the relay |
//! | `share` | shares one connection between the messages of many sessions, in turn |
//!
//! Invariants:
//!  1. The leader gets a session's messages in order, after its opening.
//!  2. When the link to a leader ends, its sessions end on both sides, because the leader's knowledge of them
//!     (subscriptions, maps sent) is gone. Clients reconnect and repeat unanswered requests.
//!  3. While there is no leader, sessions and their messages wait, within bounds.
//!  4. A fault of a session (an unacceptable opening, a message too long for the link, a client that does not read)
//!     ends only that session. Only a message that no monitor sends ends a link.
//!  5. Sessions share a link fairly (`share`): each has a bound on its bytes in flight. The connection of a client
//!     whose session has reached it is not read.
//!  6. The leader can compare the times at which sessions opened, whichever monitor they opened at (`age`).
//!
//! Tests: `src/core/relay/tests.rs` (1, 3, `sessions_wait_for_a_leader_and_are_carried_in_order`; 2,
//! `a_lost_link_ends_its_sessions_on_both_sides`; 4, `a_bad_opening_ends_its_session_and_not_the_link`,
//! `a_message_too_long_for_a_link_ends_only_its_session`; 5, `sessions_share_a_link`,
//! `a_held_session_is_not_read_at_its_monitor_and_others_go_on`; 6, `src/core/relay/tests/ages.rs`).

mod age;
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

use super::session::Peer;
use crate::state::{ConnKey, Role};

pub use front::{Front, FrontEffect};
pub use hub::{FULL as OUTPUT_FULL, Hub, HubEffect};

/// Time after which a session that no leader has taken over is closed, so that its client tries another monitor.
pub const PATIENCE: Duration = Duration::from_secs(6);
/// Number of global ids that a front monitor gets at once.
pub const LINK_IDS: u64 = 1024;
/// From this version of [`wire::msg::MRelayIds`] on, a monitor acknowledges the relayed bytes that it has received.
const TELLS_TAKEN: u16 = 2;
/// Longest front and middle of a relayed message: a frame's bound less the relay's own fields.
const CARRIED_MAX: usize = msgr::policy::FRONT_BYTES_MAX - 4096;
/// Bytes received before an acknowledgement is sent: far less than the bytes that may be in flight.
const TELL_AT: usize = 256 << 10;

/// True if a link can carry a message.
fn fits(m: &Message) -> bool {
    m.front.len().saturating_add(m.middle.len()) <= CARRIED_MAX
}

fn carried(conn: u64, message: Message) -> Message {
    MRelayMessage { conn, message }.to_message(Features::PACIFIC)
}

/// Received bytes by session that are not acknowledged yet.
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

    /// The acknowledgement, once enough bytes have been received.
    fn due(&mut self) -> Option<Message> {
        (self.total >= TELL_AT).then(|| {
            self.total = 0;
            let taken = std::mem::take(&mut self.bytes).into_iter().collect();
            MRelayTaken { taken }.to_message(Features::PACIFIC)
        })
    }
}

/// True for the name of the key that only monitors share. A session under it is a relay link, which may open sessions
/// of other entities. A key of another name (`mon.x`) belongs to an ordinary entity, whatever its kind.
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
        ..MRelayOpen::default()
    }
}

fn peer_of(x: MRelayOpen) -> Result<Peer, String> {
    let socket = x.socket.parse().map_err(|_| format!("'{}' is no socket address", x.socket))?;
    // As at the end of a handshake: an entity may not announce another kind of daemon than its name has.
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
