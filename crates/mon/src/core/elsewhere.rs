//! Decides whether the leader accepts a session that a front monitor authenticated.
//!
//! The front monitor checked the client against its own copy of keys and caps, which may be stale. The leader's state
//! decides: the key that the client proved must be one of the entity's keys in that state, and the session gets the
//! entity's caps from it. So a removed key or cap ends with the commit, whichever monitor the client connects to.

use auth::CapsInfo;
use base::EntityKind;

use super::MonCore;
use super::session::{ConnKey, Peer};

impl MonCore {
    pub(super) fn open_elsewhere(&mut self, c: ConnKey, mut peer: Peer) {
        match self.judged(&mut peer) {
            Ok(()) => self.open(c, peer),
            Err(why) => {
                let who = &peer.principal;
                let why = format!("{} from {}: {why}", who.name, who.socket);
                self.effects.push(super::Effect::Close(c, why));
            }
        }
    }

    /// Records that a session is relayed by the monitor with these addresses.
    pub fn came_by(&mut self, c: ConnKey, addrs: &base::AddrVec) {
        let by = self.state.monmap.name_at(addrs).map(str::to_owned);
        if let Some(s) = self.sessions.get_mut(&c) {
            s.by.clone_from(&by);
            if let Some(shown) = self.state.sessions.get_mut(&c) {
                shown.by = by;
            }
        }
    }

    /// Replaces the caps in a front monitor's report with the caps in the leader's state. Error: the reason why the
    /// session is refused.
    fn judged(&self, peer: &mut Peer) -> Result<(), &'static str> {
        let who = &mut peer.principal;
        if !self.state.options.cephx {
            who.caps = CapsInfo::all();
            return Ok(());
        }
        if who.caps.allow_all {
            return Err(
                "it has not authenticated, which the leader requires (is auth_client_required the same at all monitors?)",
            );
        }
        let Some(entry) = self.state.auth.get(&who.name) else { return Err("the leader's state has no such entity") };
        // A monitor of an earlier version does not name the proved key.
        let mark = who.proved.unwrap_or_else(|| entry.key.mark());
        if mark != entry.key.mark() && entry.pending_key.as_ref().is_none_or(|k| k.mark() != mark) {
            return Err("it proved a key that is not the entity's key in the leader's state");
        }
        let text = entry.caps.get(EntityKind::MON.word()).map_or("", String::as_str);
        if text.is_empty() {
            return Err("it has no caps at the monitors");
        }
        who.caps = CapsInfo::from_text(text);
        Ok(())
    }
}
