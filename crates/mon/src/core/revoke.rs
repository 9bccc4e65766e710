//! Applies changes of keys and caps to open sessions.
//!
//! | change | sessions of the entity at monitor and manager role |
//! |---|---|
//! | removed (`auth rm`) | closed |
//! | another key (`auth rotate`, `auth import`, `auth commit-pending`) | closed; a client has to authenticate with the new key |
//! | its pending key was used | sessions that authenticated earlier are closed |
//! | other caps (`auth caps`) | go on with the new caps; subscriptions that these forbid end |
//!
//! All of it happens with the commit, after the command's answer. OSDs and separate daemons use the caps of the
//! client's ticket. A new ticket is refused or has the new caps at once, so old rights there end with the old ticket:
//! at the latest `auth_service_ticket_ttl` (an hour) after the change.

use base::AuthName;

use super::MonCore;
use super::access::Access;
use super::cluster_state::{AuthEntry, Role};
use super::rights::Topic;
use super::session::ConnKey;

impl MonCore {
    /// Applies the change of an entity's record from `old`.
    pub(super) fn entity_changed(&mut self, name: &AuthName, old: Option<&AuthEntry>) {
        let older = self.replaced_keys.remove(name);
        let mine = |s: &&super::session::Session| s.principal.who.name == *name && !s.principal.who.caps.allow_all;
        let conns: Vec<ConnKey> = self.sessions.iter().filter(|(_, s)| mine(s)).map(|(c, _)| *c).collect();
        let Some(entry) = self.state.auth.get(name).cloned() else {
            for c in conns {
                self.close(c, format!("{name} was removed"));
            }
            return;
        };
        let other_key = old.is_some_and(|o| o.key != entry.key);
        for c in conns {
            if other_key && older.as_ref().is_none_or(|o| o.contains(&c)) {
                self.close(c, format!("{name} has another key now"));
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
