//! Sessions of the manager role, in which OSDs report their PGs (their data is in [`::mgr::Manager`]), and the
//! monitor's side of a separate manager, where one is configured.

pub mod commands;
pub(super) mod devices;
pub(super) mod perf;

use std::collections::BTreeMap;
use std::time::Duration;

use base::{AddrVec, EntityKind, Mono, OsdId};
use bytes::Bytes;
use wire::Message;
use wire::msg::{MMgrBeacon, MMgrClose, MMgrDigest, MMgrMap, MMgrOpen, MMgrReport, MMonMgrReport, MPgStats};
use wire::types::{MgrMap, MgrStandbyInfo, ModuleInfo};

use super::MonCore;
use super::session::Session;
use super::session::rights::AtManager;
use crate::state::ConnKey;
use crate::state::config::mon_option;
use crate::state::log::{LogEntry, Prio};
use ::mgr::manager::{Daemon, Reporter};
use base::unreached;

/// Longest name of a service or daemon, in bytes.
const MAX_SERVICE_NAME: usize = 1024;
/// Most sessions of one entity that report a service or daemon.
const MAX_SERVICES_OF_ENTITY: usize = 256;
/// Shortest time between two service maps sent to subscribers.
const SERVICES_APART: Duration = Duration::from_secs(1);
/// Releases of a separate manager, each of which looks its list of modules up by its own number.
const RELEASES: std::ops::RangeInclusive<u32> = 16..=20;
/// Modules that a separate manager always runs. The autoscaler is left out, because the monitor changes numbers of
/// PGs.
const ALWAYS_ON: [&str; 10] = [
    "balancer",
    "crash",
    "devicehealth",
    "orchestrator",
    "pg_autoscaler",
    "progress",
    "rbd_support",
    "status",
    "telemetry",
    "volumes",
];
/// Silence after which a separate manager is replaced (`mon_mgr_beacon_grace`).
const BEACON_GRACE: Duration = Duration::from_secs(30);
/// Name of the built-in role's clients in the manager map: that of Ceph's module with the same tasks.
const OWN_CLIENT: &str = "rbd_support";
/// Interval of digests to a separate manager (`mon_mgr_digest_period`).
const DIGEST_PERIOD: Duration = Duration::from_secs(5);

/// Interval of a manager's beacons (`mgr_tick_period`).
const BEACON_INTERVAL: Duration = Duration::from_secs(2);
/// Time in which a manager that runs is heard, also if its monitor is gone and it has to find another one.
const BEACON_RECENT: Duration = Duration::from_secs(8);

/// Times of the separate manager, and of service maps.
#[derive(Debug, Default)]
pub(super) struct MgrWatch {
    /// Time of the last beacon of the active manager, or of the last restart of the grace; `None` after it was replaced.
    beacon: Option<Mono>,
    /// Time at which the youngest session that brought such a beacon opened. `None`: no beacon came yet.
    session: Option<Mono>,
    /// Times of the first and of the last check.
    begun: Option<Mono>,
    checked: Option<Mono>,
    /// Time of the last digest sent to it.
    digest_sent: Option<Mono>,
    /// Time of the last service map sent.
    services_sent: Option<Mono>,
    /// True if the service map has changed since.
    services_wait: bool,
    /// Times of the standbys' last beacons, by global id.
    standbys: BTreeMap<u64, Mono>,
    /// Addresses of the built-in role's clients; `None` until the role tells them.
    own_clients: Option<Vec<AddrVec>>,
}

impl MgrWatch {
    /// True if a service map may be sent now; otherwise one waits.
    fn takes_services(&mut self, now: Mono) -> bool {
        self.services_wait = self.services_sent.is_some_and(|t| now.since(t) < SERVICES_APART);
        if !self.services_wait {
            self.services_sent = Some(now);
        }
        !self.services_wait
    }

    /// Notes a beacon of the active manager, which came by a session that opened at `session`.
    fn heard(&mut self, session: Mono, now: Mono) {
        self.beacon = Some(now);
        self.session = self.session.max(Some(session));
    }

    /// Notes the first beacon of a manager that becomes the active one.
    fn begins(&mut self, session: Mono, now: Mono) {
        (self.beacon, self.session) = (Some(now), Some(session));
    }

    /// True if the active manager may be younger than one whose session opened at `session`: it was heard within the
    /// grace, by a younger session. A leader does not know the sessions by which the leaders before it heard a manager. So
    /// one that it has not heard yet may be younger, too, until it has had the time for a beacon.
    fn may_be_younger(&self, session: Mono, now: Mono) -> bool {
        match self.session {
            None => self.begun.is_none_or(|t| now.since(t) < BEACON_RECENT),
            Some(s) => s > session && !self.is_silent(now),
        }
    }

    /// Runs once a second. After a stall of the monitor, and in its first check, the grace of every manager starts anew.
    fn check(&mut self, now: Mono) {
        self.begun.get_or_insert(now);
        let before = self.checked.replace(now);
        if before.is_none_or(|t| now.since(t) > BEACON_GRACE.saturating_sub(BEACON_INTERVAL)) {
            self.beacon = Some(now);
            self.standbys.values_mut().for_each(|t| *t = now);
        }
    }

    fn is_silent(&self, now: Mono) -> bool {
        self.beacon.is_some_and(|t| now.since(t) > BEACON_GRACE)
    }

    /// Those of `standbys` that are silent for longer than the grace. One that is met for the first time has it whole.
    fn silent_standbys(&mut self, standbys: &BTreeMap<u64, MgrStandbyInfo>, now: Mono) -> Vec<u64> {
        self.standbys.retain(|gid, _| standbys.contains_key(gid));
        let late = |gid: &&u64| now.since(*self.standbys.entry(**gid).or_insert(now)) > BEACON_GRACE;
        standbys.keys().filter(late).copied().collect()
    }

    fn forget(&mut self) {
        self.beacon = None;
    }

    /// True if digests are due, which then count as sent.
    fn takes_digest(&mut self, now: Mono) -> bool {
        let due = self.digest_sent.is_none_or(|t| now.since(t) >= DIGEST_PERIOD);
        if due {
            self.digest_sent = Some(now);
        }
        due
    }
}

/// The entry of a standby in the manager map.
fn standby(gid: u64, name: String, available_modules: Vec<ModuleInfo>, mgr_features: u64) -> MgrStandbyInfo {
    MgrStandbyInfo { gid, name, available_modules, mgr_features, ..MgrStandbyInfo::default() }
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
    for release in RELEASES {
        map.always_on_modules.insert(release, ALWAYS_ON.iter().map(|m| (*m).to_owned()).collect());
    }
}

/// The daemon or registered service that reports on a session.
fn reporter<'a>(s: &'a Session, service: Option<&'a (String, String)>) -> Option<Reporter<'a>> {
    let who = s.who();
    Some(match (s.osd(), service) {
        (Some(osd), _) => Reporter::Osd(osd),
        _ if who.name.kind == EntityKind::MDS => Reporter::Mds(&who.name.id),
        (None, Some((service, name))) => Reporter::Service(Daemon { service, name, gid: who.global_id }),
        (None, None) => return None,
    })
}

impl MonCore {
    /// Puts the address of a module into the manager map, or takes it out.
    pub(super) fn offer(&mut self, module: &str, uri: Option<String>) {
        if self.writer.is_busy() || self.state.options.external_mgr {
            return;
        }
        let m = self.pending.mgrmap_mut(&self.state);
        match uri {
            Some(uri) => _ = m.services.insert(module.to_owned(), uri),
            None => _ = m.services.remove(module),
        }
    }

    /// Stores values of a module together, if none of them is there.
    pub(super) fn store_values(&mut self, values: [(&'static str, Bytes); 2]) {
        if self.writer.is_busy() || values.iter().any(|(k, _)| self.pending.kv(&self.state, k).is_some()) {
            return;
        }
        for (key, value) in values {
            self.pending.set_kv(key.to_owned(), Some(value));
        }
    }

    pub(super) fn mgr_opened(&mut self, c: ConnKey) {
        tracing::debug!("mgr: session with {}", self.who(c));
    }

    pub(super) fn mgr_message(&mut self, c: ConnKey, m: Message) -> wire::codec::Result<()> {
        match AtManager::decode(&m)? {
            Some(AtManager::MMgrOpen(x)) => self.mgr_open(c, &x),
            Some(AtManager::MMgrReport(x)) => self.mgr_report(c, &x),
            Some(AtManager::MPgStats(x)) => self.pg_stats(c, &x),
            Some(AtManager::MMgrClose(x)) => self.mgr_close(c, &x),
            Some(AtManager::MMgrCommand(x)) => self.mgr_command(c, m, *x),
            Some(AtManager::MCommand(x)) => self.tell_command(c, m, *x),
            None => {}
        }
        Ok(())
    }

    /// Registers a daemon or service that begins to report. A daemon must announce the kind it authenticated as. A
    /// service that another entity has registered stays that entity's while its session is open.
    fn mgr_open(&mut self, c: ConnKey, m: &MMgrOpen) {
        let Some(s) = self.sender(c) else { return };
        let kind = s.who().kind;
        let service = if m.service_name.is_empty() { kind.word().to_owned() } else { m.service_name.clone() };
        let named = EntityKind::from_word(&service);
        if m.service_name.len() > MAX_SERVICE_NAME || m.daemon_name.len() > MAX_SERVICE_NAME {
            return self.close(c, "the name of its service is too long".into());
        }
        if named.is_some_and(|k| k != kind) {
            return tracing::warn!(
                "mgr: refusing reports of {} as a {service}: its key belongs to another kind of entity",
                self.who(c)
            );
        }
        let daemon = (service, m.daemon_name.clone());
        let name = s.who().name.clone();
        let theirs = |x: &Session| x.mgr_daemon() == Some(&daemon) && x.who().name != name;
        if self.sessions.values().any(theirs) {
            let (service, daemon) = daemon;
            return tracing::warn!(
                "mgr: refusing reports of {} as {service} {daemon}: another entity reports it",
                self.who(c)
            );
        }
        let of_entity = |x: &&Session| x.mgr_daemon().is_some() && x.who().name == name;
        if s.mgr_daemon().is_none() && self.sessions.values().filter(of_entity).count() >= MAX_SERVICES_OF_ENTITY {
            return self.close(c, "its entity reports too many services".into());
        }
        if s.mgr_daemon().is_some_and(|d| *d != daemon) {
            self.close_service(c);
        }
        let Some(s) = self.sessions.get_mut(&c) else { return };
        s.set_mgr_daemon(Some(daemon.clone()));
        let (gid, addr) = (s.who().global_id, s.addrs().0.first().copied().unwrap_or_default());
        if let Some((metadata, status)) = &m.service_daemon {
            let d = Daemon { service: &daemon.0, name: &daemon.1, gid };
            if self.state.mgr_mut().open_service(d, addr, metadata, status, self.now.wall) {
                self.publish_servicemap();
            }
        }
        if let Some(s) = self.sessions.get(&c) {
            let service = s.service_daemon();
            if let Some(from) = reporter(s, service.as_ref()) {
                self.state.mgr_mut().open(from, m);
            }
        }
        self.configure(c);
    }

    /// Handles the closing of a report session, which can close only its own service.
    fn mgr_close(&mut self, c: ConnKey, m: &MMgrClose) {
        let Some(s) = self.sender(c) else { return };
        let service = if m.service_name.is_empty() { s.who().kind.word() } else { &m.service_name };
        let own = s.mgr_daemon().is_some_and(|(s, d)| s == service && *d == m.daemon_name);
        if !own {
            tracing::debug!(
                "mgr: ignoring a close by {} of {} {}: another session reports it",
                self.who(c),
                service,
                m.daemon_name
            );
        } else {
            self.close_service(c);
        }
        // The daemon waits for this answer before it exits.
        self.reply(c, 0, m);
    }

    /// Removes the service of a session, unless a newer session of its entity reports the same service.
    pub(super) fn close_service(&mut self, c: ConnKey) {
        let Some(s) = self.sessions.get_mut(&c) else { return };
        let registered = s.service_daemon();
        let gid = s.who().global_id;
        let Some(daemon) = s.set_mgr_daemon(None) else { return };
        if registered.is_none() || self.sessions.values().any(|x| x.mgr_daemon() == Some(&daemon)) {
            return;
        }
        let d = Daemon { service: &daemon.0, name: &daemon.1, gid };
        if self.state.mgr_mut().close_service(d, self.now.wall) {
            self.publish_servicemap();
        }
    }

    /// Sends the service map to its subscribers, at once or when the last one is a second old.
    pub(super) fn publish_servicemap(&mut self) {
        if self.mgr_watch.takes_services(self.now.mono) {
            self.send_servicemap();
        }
    }

    /// Sends a service map that had to wait.
    pub(super) fn tick_services(&mut self) {
        if self.mgr_watch.services_wait {
            self.publish_servicemap();
        }
    }

    fn mgr_report(&mut self, c: ConnKey, m: &MMgrReport) {
        let Some(s) = self.sessions.get(&c) else { return unreached("a message has an open session") };
        let service = s.service_daemon();
        let Some(from) = reporter(s, service.as_ref()) else { return };
        self.state.mgr_mut().report(from, c, m, self.now);
    }

    fn pg_stats(&mut self, c: ConnKey, m: &MPgStats) {
        let Some(osd) = self.sessions.get(&c).and_then(super::session::Session::osd) else { return };
        if m.fsid != self.state.fsid || !self.is_known(osd) {
            return;
        }
        let map = std::sync::Arc::clone(&self.state.osdmap);
        self.state.mgr_mut().pg_stats(osd, m, &map, self.now);
    }

    fn is_known(&self, osd: OsdId) -> bool {
        self.state.osdmap.exists(osd)
    }

    // A separate manager

    pub(super) fn mgr_beacon(&mut self, c: ConnKey, m: MMgrBeacon) {
        let Some(s) = self.sender(c) else { return };
        if m.fsid != self.state.fsid {
            return;
        }
        if m.gid != s.who().global_id || m.name != s.who().name.id {
            return tracing::warn!(
                "mon: ignoring a beacon of {} in the name of mgr.{} ({})",
                self.who(c),
                m.name,
                m.gid
            );
        }
        if !self.state.options.external_mgr {
            tracing::warn!("mon: ignoring a beacon of manager {}: the built-in one is active", self.who(c));
            return;
        }
        let opened = s.opened();
        if !self.end_earlier_instance(&m, opened) {
            return;
        }
        let map = self.pending.mgrmap(&self.state).clone();
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
            next.clients = m.clients;
            next.client_names = m.client_names;
            next.available_modules = m.modules;
            self.mgr_watch.heard(opened, self.now.mono);
        } else if map.active_gid == 0 {
            // It tells its commands once it is available.
            self.state.separate_mgr_mut().begins();
            next.active_gid = m.gid;
            next.active_name = m.name.clone();
            next.active_addrs = m.server_addrs;
            next.available = false;
            next.active_change = self.now.wall;
            next.available_modules = m.modules;
            next.standbys.remove(&m.gid);
            choose_modules(&mut next, &mon_option(&self.state, "mgr_initial_modules"));
            self.mgr_watch.begins(opened, self.now.mono);
            let line = format!("Activating manager daemon {}", m.name);
            self.pending.log(&self.state, self.now, Prio::INFO, "cluster", line);
        } else if m.available {
            // The manager believes it is active and is not; an empty map makes it restart.
            self.reply(c, 0, &MMgrMap { map: MgrMap::default() });
            return;
        } else {
            self.mgr_watch.standbys.insert(m.gid, self.now.mono);
            next.standbys.insert(m.gid, standby(m.gid, m.name, m.modules, m.mgr_features));
        }
        if next != map {
            *self.pending.mgrmap_mut(&self.state) = MgrMap { epoch: self.state.mgrmap.epoch.next(), ..next };
        }
    }

    /// True if the beacon is of another process that has the name of the active manager, and waits to become active.
    fn is_instance_of_active(&self, m: &MMgrBeacon) -> bool {
        let map = self.pending.mgrmap(&self.state);
        m.gid != map.active_gid && m.name == map.active_name && !m.available
    }

    /// Ends the role of the active manager if the beacon is of a process that took its place under the same name. False
    /// if the active one may be the younger: then the beacon does not count.
    fn end_earlier_instance(&mut self, m: &MMgrBeacon, opened: Mono) -> bool {
        if !self.is_instance_of_active(m) {
            return true;
        }
        if self.mgr_watch.may_be_younger(opened, self.now.mono) {
            tracing::info!("mon: ignoring mgr.{} ({}): another instance is active and may be younger", m.name, m.gid);
            return false;
        }
        self.pending.end_manager(&self.state, self.now.wall);
        let line = format!("Active manager daemon {} restarted", m.name);
        self.pending.log(&self.state, self.now, Prio::INFO, "cluster", line);
        true
    }

    /// Sends the line on PGs and space that Ceph's manager logs every two seconds, and those about commands that only
    /// read. Subscribers of the log at that level get them; they are not stored.
    pub(super) fn tick_pgmap_line(&mut self) {
        let reads = self.audit.reads.take();
        self.audit.reads.are_followed = self.sessions.values().any(|s| s.sub("log-debug").is_some());
        if !self.audit.reads.are_followed {
            return;
        }
        let mut lines = reads;
        if !self.state.options.external_mgr {
            lines.push(self.pgmap_line());
        }
        if !lines.is_empty() {
            self.state.skip_log_line();
            self.publish_log(&lines);
        }
    }

    fn pgmap_line(&self) -> LogEntry {
        let (stats, mgr) = (&self.state.mgr.stats, &self.state.mgrmap);
        LogEntry {
            name: base::AuthName { kind: EntityKind::MGR, id: mgr.active_name.clone() },
            rank: base::EntityName::new(EntityKind::MGR, mgr.active_gid as i64),
            addrs: mgr.active_addrs.clone(),
            stamp: self.now.wall,
            seq: self.state.log.next,
            prio: Prio::DEBUG.0,
            msg: format!(
                "pgmap v{}: {}",
                stats.version,
                crate::command::mon::pgmap::pgmap_text(stats, &self.state.osdmap)
            )
            .into(),
            channel: "cluster".to_owned(),
        }
    }

    /// Takes the addresses of the built-in role's clients, all of them. They come into the manager map with the next
    /// proposal.
    pub(super) fn take_own_clients(&mut self, mut clients: Vec<AddrVec>) {
        clients.sort();
        clients.dedup();
        self.mgr_watch.own_clients = Some(clients);
    }

    /// Puts the clients of the built-in role into the manager map, as Ceph's manager reports its own. The next holder
    /// of the role blocklists them.
    pub(super) fn record_own_clients(&mut self) {
        let Some(clients) = &self.mgr_watch.own_clients else { return };
        if self.state.options.external_mgr || *clients == self.pending.mgrmap(&self.state).clients {
            return;
        }
        let clients = clients.clone();
        let m = self.pending.mgrmap_mut(&self.state);
        m.client_names = vec![OWN_CLIENT.to_owned(); clients.len()];
        m.clients = clients;
    }

    /// Drops a separate manager that fell silent, and sends digests.
    pub(super) fn tick_mgr(&mut self) {
        if !self.state.options.external_mgr {
            return;
        }
        let now = self.now.mono;
        self.mgr_watch.check(now);
        if self.mgr_watch.is_silent(now) && self.state.mgrmap.active_gid != 0 {
            self.mgr_watch.forget();
            self.state.mgr_mut().stats.drop_digest();
            self.state.separate_mgr_mut().is_gone();
            let name = self.state.mgrmap.active_name.clone();
            self.pending.end_manager(&self.state, self.now.wall);
            let line = format!("Manager daemon {name} is unresponsive");
            self.pending.log(&self.state, self.now, Prio::WARN, "cluster", line);
        }
        let silent = self.mgr_watch.silent_standbys(&self.state.mgrmap.standbys, now);
        if !silent.is_empty() {
            self.pending.mgrmap_mut(&self.state).standbys.retain(|gid, _| !silent.contains(gid));
        }
        if self.mgr_watch.takes_digest(now) {
            let subscribers: Vec<ConnKey> =
                self.sessions.iter().filter(|(_, s)| s.sub("mgrdigest").is_some()).map(|(c, _)| *c).collect();
            for c in subscribers {
                self.check_mgr_digest(c);
            }
        }
    }

    pub(super) fn check_mgr_digest(&mut self, c: ConnKey) {
        let json = |prefix: &str, me: &mut Self| -> Bytes {
            let cmd = serde_json::json!({ "prefix": prefix, "format": "json" }).to_string();
            let Some(mut info) = me.sessions.get(&c).map(|s| s.info(super::Role::Mon)) else { return Bytes::new() };
            info.principal.access = crate::state::access::Access::all();
            me.read_command(&info, &[cmd])
        };
        let mon_status_json = json("quorum_status", self);
        let health_json = json("health", self);
        self.reply(c, 0, &MMgrDigest { mon_status_json, health_json });
    }

    pub(super) fn mgr_report_to_mon(&mut self, c: ConnKey, m: &MMonMgrReport) {
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
