//! Sessions of the manager role, in which OSDs report their PGs (their data is in [`::mgr::Manager`]), and the clients
//! of the built-in role.
//!
//! | module | contents |
//! | --- | --- |
//! | `commands` | commands of a separate manager: their descriptions, and their way from client to manager |
//! | `devices` | marks OSDs out whose devices are expected to fail |
//! | `perf` | performance queries: OSDs count operations on images, MDS daemons those of clients |
//! | `separate` | a separate manager, where one is configured: its beacons, its silence, its digests |

pub mod commands;
pub(super) mod devices;
pub(super) mod perf;
pub(super) mod separate;

use std::time::Duration;

use base::{AddrVec, EntityKind, Mono, OsdId};
use bytes::Bytes;
use wire::Message;
use wire::msg::{MMgrClose, MMgrOpen, MMgrReport, MPgStats};

use super::MonCore;
use super::session::Session;
use super::session::rights::AtManager;
use crate::state::ConnKey;
use crate::state::log::{LogEntry, Prio};
use ::mgr::manager::{Daemon, Reporter};
use base::unreached;

/// Longest name of a service or daemon, in bytes.
const MAX_SERVICE_NAME: usize = 1024;
/// Most sessions of one entity that report a service or daemon.
const MAX_SERVICES_OF_ENTITY: usize = 256;
/// Shortest time between two service maps sent to subscribers.
const SERVICES_APART: Duration = Duration::from_secs(1);
/// Name of the built-in role's clients in the manager map: that of Ceph's module with the same tasks.
const OWN_CLIENT: &str = "rbd_support";
/// Interval of digests to a separate manager (`mon_mgr_digest_period`).
const DIGEST_PERIOD: Duration = Duration::from_secs(5);

/// Times of separate managers and of service maps, and the built-in role's clients.
#[derive(Debug, Default)]
pub(super) struct MgrWatch {
    /// Times of the beacons of separate managers.
    beacons: separate::Beacons,
    /// Time of the last digest sent to the active one.
    digest_sent: Option<Mono>,
    /// Time of the last service map sent.
    services_sent: Option<Mono>,
    /// True if the service map has changed since.
    services_wait: bool,
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

    /// True if digests are due, which then count as sent.
    fn takes_digest(&mut self, now: Mono) -> bool {
        let due = self.digest_sent.is_none_or(|t| now.since(t) >= DIGEST_PERIOD);
        if due {
            self.digest_sent = Some(now);
        }
        due
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

    /// Sends the line on PGs and space that Ceph's manager logs every two seconds, and those about commands that only
    /// read. Subscribers of the log at that level get them; they are not stored.
    pub(super) fn tick_pgmap_line(&mut self) {
        let followed = self.sessions.values().any(|s| s.sub("log-debug").is_some());
        let mut lines = self.audit.take_reads(followed);
        if !followed {
            return;
        }
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
}
