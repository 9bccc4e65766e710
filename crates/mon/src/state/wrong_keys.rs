//! Daemons that come with a wrong key, for the alert `DAEMON_KEY_REFUSED`.
//!
//! A daemon whose key was rotated tries again with the old one. Its alert begins with the first refusal after a change
//! of its key, otherwise with the third, and ends when the daemon authenticates or has not tried for ten minutes. Some
//! daemons of Ceph try only once. Only the leading monitor counts, which daemons reach when they try one monitor after
//! the other. Anybody may claim a daemon's name, so the number of names is
//! bounded.

use std::collections::BTreeMap;
use std::time::Duration;

use auth::CryptoKey;
use base::{AuthName, EntityKind, Mono};

/// Number of refusals from which a daemon is shown whose key did not change.
const SHOWN_FROM: u32 = 3;
/// Time after its last refusal at which a daemon is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Most daemons that are counted.
const DAEMONS_MAX: usize = 1024;
/// Most refusals that are kept until the next tick.
const BETWEEN_TICKS: usize = 1024;
/// Beginnings of the names of clients that are daemons.
const SERVICES: [&str; 3] = ["rgw.", "rbd-mirror.", "cephfs-mirror."];

/// Proofs in handshakes since the last tick that concern the state.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    /// Entities that authenticated with their pending key, which then replaces the key.
    pub(crate) used: Vec<(AuthName, CryptoKey)>,
    /// Daemons that proved none of their keys.
    refused: Vec<AuthName>,
}

impl Proofs {
    /// Notes a wrong proof for the name of an entity.
    pub(crate) fn refused(&mut self, name: &AuthName) {
        if is_daemon(name) && self.refused.len() < BETWEEN_TICKS {
            self.refused.push(name.clone());
        }
    }
}

fn is_daemon(name: &AuthName) -> bool {
    match name.kind {
        EntityKind::OSD | EntityKind::MDS | EntityKind::MGR => true,
        EntityKind::CLIENT => SERVICES.iter().any(|s| name.id.starts_with(s)),
        _ => false,
    }
}

/// Refusals of a daemon since it last authenticated.
#[derive(Clone, Copy, Debug)]
struct Tries {
    refused: u32,
    /// Time of the last refusal, or of the change of the key.
    last: Mono,
    /// The key was changed.
    rotated: bool,
}

/// Refusals by daemon.
#[derive(Clone, Debug, Default)]
pub struct WrongKeys(BTreeMap<AuthName, Tries>);

impl WrongKeys {
    /// Handles a change of a daemon's key.
    pub(crate) fn rotated(&mut self, name: &AuthName, now: Mono) {
        if is_daemon(name)
            && let Some(t) = self.tries(name, now)
        {
            (t.rotated, t.last) = (true, now);
        }
    }

    /// The entry of a daemon; `None` if there is no room for another one.
    fn tries(&mut self, name: &AuthName, now: Mono) -> Option<&mut Tries> {
        if self.0.len() >= DAEMONS_MAX && !self.0.contains_key(name) {
            return None;
        }
        Some(self.0.entry(name.clone()).or_insert(Tries { refused: 0, last: now, rotated: false }))
    }

    /// Handles a daemon that has authenticated.
    pub(crate) fn authenticated(&mut self, name: &AuthName) {
        self.0.remove(name);
    }

    /// Counts the refusals since the last call, and forgets daemons that have not tried for long.
    pub(crate) fn tick(&mut self, proofs: &mut Proofs, now: Mono) {
        for name in proofs.refused.drain(..) {
            if let Some(t) = self.tries(&name, now) {
                (t.refused, t.last) = (t.refused.saturating_add(1), now);
            }
        }
        self.0.retain(|_, t| now.since(t.last) < FORGOTTEN);
    }

    /// The daemons that were refused repeatedly or after a change of their key, and how often.
    pub fn shown(&self) -> impl Iterator<Item = (&AuthName, u32)> {
        let shown = |t: &Tries| t.refused >= if t.rotated { 1 } else { SHOWN_FROM };
        self.0.iter().filter(move |(_, t)| shown(t)).map(|(name, t)| (name, t.refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Mono {
        Mono(s * 1_000_000_000)
    }

    #[test]
    fn a_daemon_is_shown_from_the_third_refusal_until_it_comes_or_gives_up() {
        let (mut w, mut p) = (WrongKeys::default(), Proofs::default());
        let names = ["osd.1", "client.rgw.a", "client.x"].map(|n| AuthName::parse(n).unwrap());
        for s in 0..3 {
            assert_eq!(w.shown().count(), 0, "after {s} refusals");
            names.iter().for_each(|n| p.refused(n));
            w.tick(&mut p, at(s));
        }
        let shown = |w: &WrongKeys| w.shown().map(|(n, k)| format!("{n} {k}")).collect::<Vec<_>>();
        assert_eq!(shown(&w), ["osd.1 3", "client.rgw.a 3"], "a plain client is no daemon");
        w.authenticated(&names[0]);
        assert_eq!(shown(&w), ["client.rgw.a 3"]);
        w.tick(&mut p, at(601));
        assert_eq!(shown(&w), ["client.rgw.a 3"]);
        w.tick(&mut p, at(603));
        assert_eq!(shown(&w), [""; 0]);
    }

    #[test]
    fn a_daemon_with_a_rotated_key_is_shown_from_the_first_refusal() {
        let (mut w, mut p) = (WrongKeys::default(), Proofs::default());
        let names = ["mds.a", "client.x"].map(|n| AuthName::parse(n).unwrap());
        names.iter().for_each(|n| w.rotated(n, at(1)));
        w.tick(&mut p, at(2));
        assert_eq!(w.shown().count(), 0, "nobody has come");
        names.iter().for_each(|n| p.refused(n));
        w.tick(&mut p, at(3));
        assert_eq!(w.shown().map(|(n, k)| format!("{n} {k}")).collect::<Vec<_>>(), ["mds.a 1"]);
        w.authenticated(&names[0]);
        p.refused(&names[0]);
        w.tick(&mut p, at(4));
        assert_eq!(w.shown().count(), 0, "a wrong try after it came");
    }

    #[test]
    fn strangers_fill_no_memory() {
        let (mut w, mut p) = (WrongKeys::default(), Proofs::default());
        for n in 0..10_000 {
            p.refused(&AuthName { kind: EntityKind::OSD, id: n.to_string() });
            if n % 100 == 0 {
                w.tick(&mut p, at(1));
            }
        }
        assert!(p.refused.len() <= BETWEEN_TICKS && w.0.len() <= DAEMONS_MAX);
    }
}
