//! Decides whether a session may open, by the state at that moment.
//!
//! A peer has proved its key some time ago: at a front monitor, by that monitor's copy of keys and caps, which may be
//! stale; in a handshake that it held up before the last step; or at a monitor that sealed its ticket for the manager.
//! The key that it proved must still be one of the entity's keys, and the session gets the entity's present caps. So a
//! removed key or cap ends with the commit, whichever way a peer comes.

use auth::{CapsInfo, KeyMark, Method, Principal};
use base::EntityKind;

use super::Peer;
use crate::core::MonCore;
use crate::state::{AuthEntry, ConnKey, Role, primaries};

/// True if `mark` is of the entity's key, or of its pending one.
pub(in crate::core) fn has_key(entry: &AuthEntry, mark: KeyMark) -> bool {
    entry.key.mark() == mark || entry.pending_key.as_ref().is_some_and(|k| k.mark() == mark)
}

/// Judges a peer by its entity's record, and gives it the caps of that record. Error: the reason why its session is
/// refused.
pub(in crate::core) fn judge(
    who: &mut Principal,
    role: Role,
    cephx: bool,
    entry: Option<&AuthEntry>,
) -> Result<(), &'static str> {
    if !cephx {
        who.caps = CapsInfo::all();
        return Ok(());
    }
    if who.caps.allow_all || who.method == Method::NONE {
        return Err(
            "it has not authenticated, which the leader requires (is auth_client_required the same at all monitors?)",
        );
    }
    let Some(entry) = entry else { return Err("the leader's state has no such entity") };
    match who.proved {
        Some(mark) if has_key(entry, mark) => {}
        Some(_) => return Err("it proved a key that is not the entity's key in the leader's state"),
        // A ticket of a monitor of an earlier version does not name the key. It ends within its life.
        None if role == Role::Mgr => {}
        None => return Err("it does not name the key that it proved"),
    }
    let service = if role == Role::Mgr { EntityKind::MGR } else { EntityKind::MON };
    let text = entry.caps.get(service.word()).map_or("", String::as_str);
    if text.is_empty() && service == EntityKind::MON {
        return Err("it has no caps at the monitors");
    }
    who.caps = CapsInfo::from_text(text);
    Ok(())
}

impl MonCore {
    /// Opens a session, or closes its connection.
    pub(in crate::core) fn judge_and_open(&mut self, c: ConnKey, mut peer: Peer) {
        let entry = self.state.auth.get(&peer.principal.name);
        let judged = judge(&mut peer.principal, peer.role, self.state.options.auth.cephx, entry).map_err(str::to_owned);
        let old = || primaries::too_old(&self.state.osdmap, peer.principal.name.kind, peer.features);
        match judged.and_then(|()| old().map_or(Ok(()), Err)) {
            Ok(()) => self.open(c, peer),
            Err(why) => {
                let who = &peer.principal;
                let why = format!("{} from {}: {why}", who.name, who.socket);
                self.effects.push(crate::core::Effect::Close(c, why));
            }
        }
    }

    /// Closes the sessions of clients that are too old for the newest map, if the one before it was for all.
    pub(in crate::core) fn close_old_clients(&mut self, before: &cluster::OsdMap) {
        let map = std::sync::Arc::clone(&self.state.osdmap);
        if primaries::needs_new_clients(before) || !primaries::needs_new_clients(&map) {
            return;
        }
        let old = |s: &super::Session| primaries::too_old(&map, s.who().name.kind, s.announced());
        let all: Vec<_> = self.sessions.iter().filter_map(|(c, s)| Some((*c, old(s)?))).collect();
        for (c, why) in all {
            self.end(c, why);
        }
    }

    /// Judges a monitor that opens a relay link. Error: the reason why the link is refused.
    pub fn judge_link(&self, who: &Principal) -> Result<(), &'static str> {
        judge(&mut who.clone(), Role::Mon, self.state.options.auth.cephx, self.state.auth.get(&who.name))
    }

    /// Records that a session is relayed by the monitor with these addresses, where it opened at this time.
    pub fn relayed_by(&mut self, c: ConnKey, addrs: &base::AddrVec, opened: base::Mono) {
        let by = self.state.monmap.name_at(addrs).map(str::to_owned);
        if let Some(s) = self.sessions.get_mut(&c) {
            s.opened = opened;
            s.since = base::Utime::from_unix(self.now.wall.to_unix().saturating_sub(self.now.mono.since(opened)));
            s.by.clone_from(&by);
            if s.role() == Role::Mon {
                self.state.sessions_mut().insert(c, s.summary());
            }
        }
    }
}
