//! Applies changes of keys and caps to open sessions.
//!
//! | change | sessions of the entity at monitor and manager role |
//! |---|---|
//! | removed (`auth rm`) | closed |
//! | another key (`auth rotate`, `auth import`, `auth commit-pending`, the first use of a pending key) | those that proved another key are closed; a client has to authenticate with the new key |
//! | another key of `mon.` | relay links of other monitors are closed, too; these come again with the key in their copy of the state |
//! | other caps (`auth caps`) | go on with the new caps; subscriptions that these forbid end |
//!
//! All of it happens with the commit, after the command's answer. A session that gets an answer in the same turn loses
//! its rights at once, and its connection a moment later: clients drop what they received but have not handled when a
//! connection ends, and the answer may be the new key. Later sessions are judged when they open (`admission`).
//!
//! OSDs and separate daemons use the caps of the client's ticket. A new ticket is refused or has the new caps at once,
//! so old rights there end with the old ticket: at the latest `auth_service_ticket_ttl` (an hour) after the change.

use std::time::Duration;

use base::{AuthName, Mono};

use super::admission::has_key;
use super::rights::Topic;
use crate::core::{Effect, MonCore};
use crate::state::access::Access;
use crate::state::{AuthEntry, ConnKey, Role};

/// Time for which a session that has just been answered stays connected, without any rights: long enough for a client
/// that the machine starves.
const LINGER: Duration = Duration::from_secs(15);

/// Connections of ended sessions, with the time and the reason of their closing.
pub(in crate::core) type Leaving = std::collections::BTreeMap<ConnKey, (Mono, String)>;

impl MonCore {
    /// Ends a session: at once, or without its connection if that is being sent an answer.
    pub(super) fn end(&mut self, c: ConnKey, why: String) {
        if !self.effects.iter().any(|e| matches!(e, Effect::Send(x, _) if *x == c)) {
            return self.close(c, why);
        }
        self.closed(c);
        self.leaving.insert(c, (self.now.mono + LINGER, why));
    }

    /// Closes the connections whose time is over.
    pub(in crate::core) fn tick_leaving(&mut self) {
        let now = self.now.mono;
        for (c, (_, why)) in self.leaving.extract_if(.., |_, (at, _)| *at <= now) {
            self.effects.push(Effect::Close(c, why));
        }
    }

    /// Applies the change of an entity's record from `old`.
    pub(in crate::core) fn entity_changed(&mut self, name: &AuthName, old: Option<&AuthEntry>) {
        if crate::core::relay::is_monitor(name) && old.map(|o| &o.key) != self.state.auth.get(name).map(|e| &e.key) {
            self.effects.push(Effect::CloseLinks(format!("{name} has another key now")));
        }
        let mine = |s: &&super::Session| s.principal.who.name == *name && !s.principal.who.caps.allow_all;
        let conns: Vec<ConnKey> = self.sessions.iter().filter(|(_, s)| mine(s)).map(|(c, _)| *c).collect();
        let Some(entry) = self.state.auth.get(name).cloned() else {
            for c in conns {
                self.end(c, format!("{name} was removed"));
            }
            return;
        };
        let same_key = old.is_none_or(|o| o.key == entry.key);
        if !same_key {
            self.state.wrong_keys_mut().rotated(name, self.now.mono);
        }
        for c in conns {
            let proved = self.sessions.get(&c).and_then(|s| s.principal.who.proved);
            if !proved.map_or(same_key, |mark| has_key(&entry, mark)) {
                self.end(c, format!("{name} has another key now"));
            } else if old.is_none_or(|o| o.caps != entry.caps) {
                self.take_up_caps(c, &entry);
            }
        }
    }

    fn take_up_caps(&mut self, c: ConnKey, entry: &AuthEntry) {
        let Some(s) = self.sessions.get_mut(&c) else { return };
        let role = s.role;
        let service = if role == Role::Mgr { "mgr" } else { "mon" };
        let text = entry.caps.get(service).map_or("", String::as_str);
        s.principal.access = Access::parse(role, &s.principal.who.name, text);
        let active = (self.state.mgrmap.active_gid, self.state.mgrmap.active_name.as_str());
        let ended: Vec<String> =
            s.subs.keys().filter(|what| Topic::of(what).is_none_or(|t| !s.has(t.right(), active))).cloned().collect();
        for what in ended {
            s.subs.remove(&what);
        }
    }
}
