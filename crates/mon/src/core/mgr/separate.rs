//! The monitor's side of a separate manager, where one is configured: its beacons, its silence, its digests.
//!
//! The first manager that is heard while none is active becomes active, the others wait as standbys. A manager that
//! loses the role is blocklisted with its clients, so that what it still does cannot reach the OSDs beside its
//! successor. One that is fenced and believes itself active is told to start anew.
//!
//! A manager may name only itself, and only addresses of its own host unless it may blocklist any. Otherwise a key
//! for the role alone could keep every client from the OSDs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{AddrVec, EntityAddr, Mono};
use bytes::Bytes;
use cluster::caps::Need;
use wire::msg::{MMgrBeacon, MMgrDigest, MMgrMap, MMonMgrReport};
use wire::types::{MgrMap, MgrStandbyInfo};

use crate::core::MonCore;
use crate::core::session::Session;
use crate::state::config::mon_option;
use crate::state::log::Prio;
use crate::state::modules::{ALWAYS_ON_IN_CEPH, MODULES_RELEASES};
use crate::state::{ConnKey, Role};

/// Silence after which a manager loses its place (`mon_mgr_beacon_grace`).
const BEACON_GRACE: Duration = Duration::from_secs(30);
/// Interval of a manager's beacons (`mgr_tick_period`).
const BEACON_INTERVAL: Duration = Duration::from_secs(2);
/// Time in which a manager that runs is heard, also if its monitor is gone and it has to find another one.
const BEACON_RECENT: Duration = Duration::from_secs(8);
/// Most addresses of clients that the map has of a manager.
const MAX_CLIENT_ADDRS: usize = 1024;

/// Times of one manager.
#[derive(Debug)]
struct Heard {
    /// Time of the last beacon, or of the last restart of the grace.
    at: Mono,
    /// Time at which the youngest session that brought a beacon opened. `None`: no beacon came yet.
    session: Option<Mono>,
}

/// Times of the beacons of separate managers.
#[derive(Debug, Default)]
pub(in crate::core) struct Beacons {
    /// Times of each manager, by global id.
    managers: BTreeMap<u64, Heard>,
    /// Times of the first and of the last check.
    begun: Option<Mono>,
    checked: Option<Mono>,
}

impl Beacons {
    /// Notes a beacon that came by a session which opened at `session`.
    fn heard(&mut self, gid: u64, session: Mono, now: Mono) {
        let m = self.managers.entry(gid).or_insert(Heard { at: now, session: None });
        m.at = now;
        m.session = m.session.max(Some(session));
    }

    /// True if a manager of the map may be younger than one whose session opened at `session`: it was heard within its
    /// grace, by a younger session. A leader does not know the sessions by which the leaders before it heard a manager. So
    /// one that it has not heard yet may be younger, too, until it has had the time for a beacon.
    fn may_be_younger(&self, gid: u64, session: Mono, now: Mono) -> bool {
        match self.managers.get(&gid).and_then(|m| Some((m.at, m.session?))) {
            None => self.begun.is_none_or(|t| now.since(t) < BEACON_RECENT),
            Some((at, opened)) => opened > session && now.since(at) <= BEACON_GRACE,
        }
    }

    /// Those of the managers `gids` of a map that are silent for longer than the grace. A manager that is met for the
    /// first time has the whole grace, and after a stall of the monitor each has it again.
    fn silent(&mut self, gids: &BTreeSet<u64>, now: Mono) -> BTreeSet<u64> {
        let stalled = self.checked.is_some_and(|t| now.since(t) > BEACON_GRACE.saturating_sub(BEACON_INTERVAL));
        self.begun.get_or_insert(now);
        self.checked = Some(now);
        self.managers.retain(|gid, _| gids.contains(gid));
        for gid in gids {
            self.managers.entry(*gid).or_insert(Heard { at: now, session: None });
        }
        if stalled {
            tracing::info!(
                "mon: restarting the grace of all managers: the monitor did not look at beacons for a while"
            );
            self.managers.values_mut().for_each(|m| m.at = now);
        }
        self.managers.iter().filter(|(_, m)| now.since(m.at) > BEACON_GRACE).map(|(gid, _)| *gid).collect()
    }
}

/// True if a manager may have an address blocklisted: one of its own host, or any if it may run the command for that.
fn may_fence(s: &Session, a: &EntityAddr) -> bool {
    a.sock.is_none_or(|sock| sock.ip().to_canonical() == s.who().socket.ip().to_canonical())
        || s.principal().allows_command("osd", "osd blocklist", &BTreeMap::new(), Need::RW)
}

/// The clients of a manager that come into the map, with their names.
fn taken_clients(s: &Session, clients: Vec<AddrVec>, names: Vec<String>) -> (Vec<AddrVec>, Vec<String>) {
    let mut left = MAX_CLIENT_ADDRS;
    let named = clients.into_iter().zip(names.into_iter().chain(std::iter::repeat(String::new())));
    named
        .filter(|(a, _)| a.0.iter().all(|a| may_fence(s, a)))
        .take_while(|(a, _)| {
            let fits = a.0.len().max(1) <= left;
            left = left.saturating_sub(a.0.len().max(1));
            fits
        })
        .unzip()
}

/// Sets the modules of a manager that becomes active. The first one in a cluster gets those of `initial` that it can run.
fn choose_modules(map: &mut MgrMap, initial: &str) {
    if map.always_on_modules.is_empty() {
        let can_run = |name: &str| map.available_modules.iter().any(|i| i.name == name && i.can_run);
        let initial: Vec<_> = initial.split([' ', ',']).filter(|n| can_run(n)).map(str::to_owned).collect();
        map.modules.extend(initial);
        map.modules.sort();
        map.modules.dedup();
    }
    for release in MODULES_RELEASES {
        map.always_on_modules.insert(release, ALWAYS_ON_IN_CEPH.iter().map(|m| (*m).to_owned()).collect());
    }
}

impl MonCore {
    pub(in crate::core) fn mgr_beacon(&mut self, c: ConnKey, m: MMgrBeacon) {
        let Some(s) = self.sender(c).filter(|s| self.may_beacon(c, s, &m)) else { return };
        let opened = s.opened();
        let (clients, client_names) = taken_clients(s, m.clients, m.client_names);
        let late = self.has_younger(&m.name, m.gid, opened);
        if late {
            tracing::info!("mon: ignoring a beacon of mgr.{} ({}): another instance may be younger", m.name, m.gid);
        } else if !m.available {
            self.end_earlier_instance(&m.name, m.gid);
        }
        let map = self.pending.mgrmap(&self.state).clone();
        if map.active_gid != m.gid && m.available {
            // The manager believes it is active and is not; an empty map makes it restart.
            self.reply(c, 0, &MMgrMap { map: MgrMap::default() });
            return;
        }
        if late {
            return;
        }
        self.mgr_watch.beacons.heard(m.gid, opened, self.now.mono);
        let mut next = MgrMap { ..map.clone() };
        // An earlier instance of this daemon that waited as a standby is gone.
        next.standbys.retain(|gid, s| s.name != m.name || *gid == m.gid);
        if map.active_gid == m.gid || map.active_gid == 0 {
            self.state.separate_mgr_mut().set_metadata(m.metadata);
        }
        if map.active_gid == m.gid {
            self.take_mgr_commands(&m.command_descs);
            let asks = map.available && m.available && self.asks_for_mgr_commands();
            next.active_addrs = m.server_addrs;
            next.available = m.available && !asks;
            next.services = m.services;
            next.active_mgr_features = m.mgr_features;
            next.clients = clients;
            next.client_names = client_names;
            next.available_modules = m.modules;
        } else if map.active_gid == 0 {
            next.active_gid = m.gid;
            next.active_name = m.name.clone();
            next.active_addrs = m.server_addrs;
            next.available = false;
            next.active_change = self.now.wall;
            next.available_modules = m.modules;
            next.standbys.remove(&m.gid);
            choose_modules(&mut next, &mon_option(&self.state, "mgr_initial_modules"));
            let line = format!("Activating manager daemon {}", m.name);
            self.pending.log(&self.state, self.now, Prio::INFO, "cluster", line);
        } else {
            let info = MgrStandbyInfo {
                gid: m.gid,
                name: m.name,
                available_modules: m.modules,
                mgr_features: m.mgr_features,
                ..MgrStandbyInfo::default()
            };
            next.standbys.insert(m.gid, info);
        }
        if next != map {
            *self.pending.mgrmap_mut(&self.state) = MgrMap { epoch: self.state.mgrmap.epoch.next(), ..next };
        }
    }

    /// True if a beacon is of the session's own manager, with addresses that it may name, and a separate manager is
    /// expected.
    fn may_beacon(&self, c: ConnKey, s: &Session, m: &MMgrBeacon) -> bool {
        if m.fsid != self.state.fsid {
            return false;
        }
        if m.gid != s.who().global_id || m.name != s.who().name.id {
            tracing::warn!("mon: ignoring a beacon of {} in the name of mgr.{} ({})", self.who(c), m.name, m.gid);
            return false;
        }
        if !self.state.options.external_mgr {
            tracing::warn!("mon: ignoring a beacon of manager {}: the built-in one is active", self.who(c));
            return false;
        }
        if !m.server_addrs.0.iter().all(|a| may_fence(s, a)) {
            tracing::warn!(
                "mon: ignoring a beacon of manager {}: its address {} is that of another host, which needs a key with \
                 the caps 'allow profile mgr' at monitors",
                self.who(c),
                m.server_addrs
            );
            return false;
        }
        true
    }

    /// True if the map has another instance of the manager `name` that may be younger: a beacon of the instance `gid`,
    /// whose session opened at `opened`, comes late.
    fn has_younger(&self, name: &str, gid: u64, opened: Mono) -> bool {
        let map = self.pending.mgrmap(&self.state);
        let active = (map.active_name == name).then_some(map.active_gid);
        let standbys = map.standbys.values().filter(|s| s.name == name).map(|s| s.gid);
        let is_younger = |g: u64| self.mgr_watch.beacons.may_be_younger(g, opened, self.now.mono);
        active.into_iter().chain(standbys).any(|g| g != gid && is_younger(g))
    }

    /// Ends the role of the active manager if the instance `gid` took its place under the same name.
    fn end_earlier_instance(&mut self, name: &str, gid: u64) {
        let map = self.pending.mgrmap(&self.state);
        if map.active_gid != gid && map.active_name == name {
            self.pending.end_manager(&self.state, self.now.wall);
            let line = format!("Active manager daemon {name} restarted");
            self.pending.log(&self.state, self.now, Prio::INFO, "cluster", line);
        }
    }

    /// Forgets what the last active manager told, after a commit that changed the active one.
    pub(in crate::core) fn active_mgr_changed(&mut self) {
        let is_there = self.state.mgrmap.active_gid != 0;
        self.state.mgr_mut().stats.drop_digest();
        self.state.separate_mgr_mut().changed(is_there);
    }

    /// Takes silent managers out of the map. The change is proposed again each second until it is durable.
    pub(in crate::core) fn tick_silent_mgrs(&mut self) {
        if !self.state.options.external_mgr {
            return;
        }
        let map = self.pending.mgrmap(&self.state);
        let (active, name) = (map.active_gid, map.active_name.clone());
        let gids = map.standbys.keys().copied().chain((active != 0).then_some(active)).collect();
        let silent = self.mgr_watch.beacons.silent(&gids, self.now.mono);
        if silent.contains(&active) {
            self.pending.end_manager(&self.state, self.now.wall);
            let line = format!("Manager daemon {name} is unresponsive");
            self.pending.log(&self.state, self.now, Prio::WARN, "cluster", line);
        }
        if silent.iter().any(|gid| *gid != active) {
            self.pending.mgrmap_mut(&self.state).standbys.retain(|gid, _| !silent.contains(gid));
        }
    }

    /// Sends digests to a separate manager.
    pub(in crate::core) fn tick_mgr_digest(&mut self) {
        if self.state.options.external_mgr && self.mgr_watch.takes_digest(self.now.mono) {
            let subscribers: Vec<ConnKey> =
                self.sessions.iter().filter(|(_, s)| s.sub("mgrdigest").is_some()).map(|(c, _)| *c).collect();
            for c in subscribers {
                self.check_mgr_digest(c);
            }
        }
    }

    pub(in crate::core) fn check_mgr_digest(&mut self, c: ConnKey) {
        let json = |prefix: &str, me: &mut Self| -> Bytes {
            let cmd = serde_json::json!({ "prefix": prefix, "format": "json" }).to_string();
            let Some(mut info) = me.sessions.get(&c).map(|s| s.info(Role::Mon)) else { return Bytes::new() };
            info.principal.access = crate::state::access::Access::all();
            me.read_command(&info, &[cmd])
        };
        let mon_status_json = json("quorum_status", self);
        let health_json = json("health", self);
        self.reply(c, 0, &MMgrDigest { mon_status_json, health_json });
    }

    pub(in crate::core) fn mgr_report_to_mon(&mut self, c: ConnKey, m: &MMonMgrReport) {
        if !self.state.options.external_mgr || m.gid != self.state.mgrmap.active_gid {
            return;
        }
        self.state.separate_mgr_mut().set_checks(&m.health_checks.checks);
        match self.state.mgr_mut().take_digest(m, self.now) {
            Ok(true) => self.publish_servicemap(),
            Ok(false) => {}
            Err(e) => self.close(c, e.to_string()),
        }
    }
}
