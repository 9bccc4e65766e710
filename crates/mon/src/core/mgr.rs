//! The manager role: daemons' report sessions, statistics, service daemons; and the monitor's side of a separate
//! manager, where one is configured.

use std::time::Duration;

use base::{EntityAddr, EntityKind, OsdId};
use bytes::Bytes;
use wire::msg::{
    MCommand, MMgrBeacon, MMgrClose, MMgrCommand, MMgrDigest, MMgrMap, MMgrOpen, MMgrReport, MMonMgrReport, MPgStats,
};
use wire::types::{MgrMap, MgrStandbyInfo, ServiceDaemon};
use wire::{Message, WireMessage};

use super::MonCore;
use super::log::{LogEntry, Prio};
use super::session::ConnKey;
use crate::stats::DaemonHealth;

/// Service daemons remembered.
const MAX_SERVICE_DAEMONS: usize = 10_000;
/// Release whose list of modules a separate manager looks up.
const RELEASE: u32 = 16;
/// Modules that a separate manager always runs. Not the autoscaler: numbers of PGs cannot be changed here.
const ALWAYS_ON: [&str; 8] =
    ["balancer", "crash", "devicehealth", "orchestrator", "progress", "rbd_support", "status", "volumes"];
/// `mon_mgr_beacon_grace`.
const BEACON_GRACE: Duration = Duration::from_secs(30);
/// `mon_mgr_digest_period`.
const DIGEST_PERIOD: Duration = Duration::from_secs(5);
/// Kinds of health metrics (`daemon_metric`).
const SLOW_OPS: u8 = 0;
const PENDING_CREATING_PGS: u8 = 1;

impl MonCore {
    pub(super) fn mgr_opened(&mut self, c: ConnKey) {
        tracing::debug!("mgr: session with {}", self.who(c));
    }

    pub(super) fn mgr_message(&mut self, c: ConnKey, m: Message) -> wire::codec::Result<()> {
        match m.header.kind {
            MMgrOpen::KIND => self.mgr_open(c, &MMgrOpen::from_message(&m)?),
            MMgrReport::KIND => self.mgr_report(c, &MMgrReport::from_message(&m)?),
            MPgStats::KIND => self.pg_stats(c, &MPgStats::from_message(&m)?),
            MMgrClose::KIND => {
                let close = MMgrClose::from_message(&m)?;
                self.forget_service(&close.service_name, &close.daemon_name);
                self.reply(c, 0, &close);
            }
            MMgrCommand::KIND | MCommand::KIND => self.command_message(c, m)?,
            kind => tracing::debug!("mgr: message {kind} from {} is not for a manager", self.who(c)),
        }
        Ok(())
    }

    fn mgr_open(&mut self, c: ConnKey, m: &MMgrOpen) {
        let Some(s) = self.sessions.get_mut(&c) else { return };
        let service = if m.service_name.is_empty() { s.peer.kind.word().to_owned() } else { m.service_name.clone() };
        s.mgr_daemon = Some((service.clone(), m.daemon_name.clone()));
        let (gid, addr) = (s.peer.global_id, s.peer.addrs.0.first().copied().unwrap_or_default());
        if let Some((metadata, status)) = &m.service_daemon {
            self.add_service(&service, &m.daemon_name, gid, addr, metadata, status);
        }
        self.configure(c);
    }

    fn add_service(
        &mut self,
        service: &str,
        daemon: &str,
        gid: u64,
        addr: EntityAddr,
        metadata: &wire::types::StrMap,
        status: &wire::types::StrMap,
    ) {
        let count: usize = self.state.servicemap.services.values().map(|s| s.daemons.len()).sum();
        if count >= MAX_SERVICE_DAEMONS {
            return;
        }
        let map = &mut self.state.servicemap;
        map.epoch = map.epoch.next();
        map.modified = self.now.wall;
        let entry = ServiceDaemon {
            gid,
            addr,
            start_epoch: map.epoch,
            start_stamp: self.now.wall,
            metadata: metadata.clone(),
            task_status: status.clone(),
        };
        map.services.entry(service.to_owned()).or_default().daemons.insert(daemon.to_owned(), entry);
        self.publish_servicemap();
    }

    pub(super) fn forget_service(&mut self, service: &str, daemon: &str) {
        let map = &mut self.state.servicemap;
        let Some(s) = map.services.get_mut(service) else { return };
        if s.daemons.remove(daemon).is_none() {
            return;
        }
        if s.daemons.is_empty() {
            map.services.remove(service);
        }
        map.epoch = map.epoch.next();
        map.modified = self.now.wall;
        self.publish_servicemap();
    }

    fn mgr_report(&mut self, c: ConnKey, m: &MMgrReport) {
        let Some(s) = self.sessions.get(&c) else { return };
        if let Some(osd) = s.osd() {
            let mut health = DaemonHealth::default();
            for metric in &m.daemon_health_metrics {
                match metric.kind {
                    SLOW_OPS => {
                        health.slow_ops = metric.value as u32;
                        health.slow_oldest = (metric.value >> 32) as u32;
                    }
                    PENDING_CREATING_PGS => health.pending_creating = metric.value,
                    _ => {}
                }
            }
            self.state.stats.health.insert(osd, health);
            self.perf_reports(m);
            return;
        }
        let Some((service, daemon)) = s.mgr_daemon.clone() else { return };
        if let Some(status) = &m.task_status
            && let Some(d) = self.state.servicemap.services.get_mut(&service).and_then(|x| x.daemons.get_mut(&daemon))
        {
            d.task_status.clone_from(status);
        }
    }

    fn pg_stats(&mut self, c: ConnKey, m: &MPgStats) {
        let Some(osd) = self.sessions.get(&c).and_then(super::session::Session::osd) else { return };
        if m.fsid != self.state.fsid || !self.is_known(osd) {
            return;
        }
        let pools = m.pool_stat.iter().map(|(p, s)| (*p, *s));
        let map = std::sync::Arc::clone(&self.state.osdmap);
        self.state.stats.report(osd, &m.osd_stat, &m.pg_stat, pools, &map, self.now);
    }

    fn is_known(&self, osd: OsdId) -> bool {
        self.state.osdmap.exists(osd)
    }

    // A separate manager

    pub(super) fn mgr_beacon(&mut self, c: ConnKey, m: MMgrBeacon) {
        let Some(s) = self.sessions.get(&c) else { return };
        if s.peer.name.kind != EntityKind::MGR || m.fsid != self.state.fsid {
            return;
        }
        if !self.state.options.external_mgr {
            tracing::warn!("mon: {} offers itself as manager, but the built-in one is active", self.who(c));
            return;
        }
        let map = self.pending.mgrmap(&self.state).clone();
        let mut next = MgrMap { ..map.clone() };
        if map.active_gid == m.gid {
            next.active_addrs = m.server_addrs;
            next.available = m.available;
            next.services = m.services;
            next.active_mgr_features = m.mgr_features;
            next.clients = m.clients;
            next.client_names = m.client_names;
            next.available_modules = m.modules;
            self.mgr_beacon = Some(self.now.mono);
        } else if map.active_gid == 0 || (map.active_name == m.name && !m.available) {
            next.active_gid = m.gid;
            next.active_name = m.name.clone();
            next.active_addrs = m.server_addrs;
            next.available = false;
            next.active_change = self.now.wall;
            next.available_modules = m.modules;
            next.standbys.remove(&m.gid);
            next.always_on_modules.insert(RELEASE, ALWAYS_ON.iter().map(|m| (*m).to_owned()).collect());
            self.mgr_beacon = Some(self.now.mono);
            let line = format!("Activating manager daemon {}", m.name);
            self.pending.log(&self.state, self.now, Prio::INFO, "cluster", line);
        } else if m.available {
            // It believes to be active and is not: an empty map makes it start over.
            self.reply(c, 0, &MMgrMap { map: MgrMap::default() });
            return;
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

    /// The line on PGs and space that Ceph's manager writes to the log every two seconds. It is sent to who follows the log
    /// at that level and not kept.
    pub(super) fn tick_pgmap_line(&mut self) {
        let who: Vec<ConnKey> =
            self.sessions.iter().filter(|(_, s)| s.subs.contains_key("log-debug")).map(|(c, _)| *c).collect();
        if who.is_empty() || self.state.options.external_mgr {
            return;
        }
        let (stats, mgr) = (&self.state.stats, &self.state.mgrmap);
        let line = LogEntry {
            name: base::AuthName { kind: EntityKind::MGR, id: mgr.active_name.clone() },
            rank: base::EntityName::new(EntityKind::MGR, mgr.active_gid as i64),
            addrs: mgr.active_addrs.clone(),
            stamp: self.now.wall,
            seq: self.state.log.next,
            prio: Prio::DEBUG.0,
            msg: format!("pgmap v{}: {}", stats.version, crate::command::status::pgmap_text(stats, &self.state.osdmap))
                .into(),
            channel: "cluster".to_owned(),
        };
        self.state.log.skip();
        self.publish_log(&[line]);
    }

    /// Drops an external manager that has fallen silent, and sends digests.
    pub(super) fn tick_mgr(&mut self) {
        if !self.state.options.external_mgr {
            return;
        }
        let now = self.now.mono;
        if self.mgr_beacon.is_some_and(|t| now.since(t) > BEACON_GRACE) && self.state.mgrmap.active_gid != 0 {
            self.mgr_beacon = None;
            self.state.stats.drop_digest();
            self.state.mgr_checks.clear();
            let name = self.state.mgrmap.active_name.clone();
            let wall = self.now.wall;
            let next = self.pending.mgrmap_mut(&self.state);
            next.active_gid = 0;
            next.available = false;
            next.active_name = String::new();
            next.active_addrs = base::AddrVec::default();
            next.active_change = wall;
            let line = format!("Manager daemon {name} is unresponsive");
            self.pending.log(&self.state, self.now, Prio::WARN, "cluster", line);
        }
        if self.mgr_digest_sent.is_none_or(|t| now.since(t) >= DIGEST_PERIOD) {
            self.mgr_digest_sent = Some(now);
            let subscribers: Vec<ConnKey> =
                self.sessions.iter().filter(|(_, s)| s.subs.contains_key("mgrdigest")).map(|(c, _)| *c).collect();
            for c in subscribers {
                self.check_mgr_digest(c);
            }
        }
    }

    pub(super) fn check_mgr_digest(&mut self, c: ConnKey) {
        let json = |prefix: &str, me: &mut Self| -> Bytes {
            let cmd = serde_json::json!({ "prefix": prefix, "format": "json" }).to_string();
            let Some(mut info) = me.sessions.get(&c).map(|s| s.info(super::Role::Mon)) else { return Bytes::new() };
            info.access = super::access::Access::all();
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
        self.state.mgr_checks.clone_from(&m.health_checks.checks);
        match m.digest() {
            Ok(d) => self.state.stats.take_digest(d, self.now),
            Err(e) => return self.close(c, format!("malformed digest: {e}")),
        }
        match m.service_map() {
            Ok(Some(map)) => {
                self.state.servicemap = map;
                self.publish_servicemap();
            }
            Ok(None) => {}
            Err(e) => self.close(c, format!("malformed service map: {e}")),
        }
    }
}
