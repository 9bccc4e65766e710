//! Queries that change nothing: versions, space, pool statistics, maps by epoch, configuration, tickets.

use std::collections::BTreeMap;

use base::{EntityKind, EntityName, Epoch, PoolId};
use bytes::Bytes;
use cluster::caps::Need;
use state::{Entry, Range};
use wire::msg::{
    MAuth, MAuthReply, MConfig, MGetConfig, MGetPoolStats, MGetPoolStatsReply, MLog, MLogAck, MMonGetOsdMap,
    MMonGetPurgedSnaps, MMonGetPurgedSnapsReply, MMonGetVersion, MMonGetVersionReply, MPing, MStatfs, MStatfsReply,
};
use wire::types::{Intervals, PaxosHeader, Text};
use wire::{Decode, WireMessage};

use super::fetch::Fetch;
use crate::core::MonCore;
use crate::core::propose::waiter::Waiter;
use crate::core::session::rights::Right;
use crate::state::records::key;
use crate::state::{ConnKey, log};
use mgr::stats::space;

/// Most epochs in the answer to one MON_GET_OSDMAP.
const MAX_MAPS_ASKED: u32 = 100;
/// Most epochs of purged snapshots in one answer.
const PURGED_EPOCHS_PER_REPLY: usize = 1000;
/// Most ranges of purged snapshots of past epochs in one answer. An OSD only looks for leaked objects with them.
const PURGED_RANGES_PER_REPLY: usize = 65_536;
/// Most lines taken from one LOG message.
const MAX_LOG_LINES: usize = 10_000;
/// Most lines of daemons and clients in one proposal.
const LOG_LINES_PENDING: usize = 2000;
/// Longest name of a log channel, in bytes.
const MAX_CHANNEL: usize = 64;
/// Time by which a line may be ahead of the monitor's clock.
const LINE_AHEAD: std::time::Duration = std::time::Duration::from_secs(300);

impl MonCore {
    pub(in crate::core) fn get_version(&mut self, c: ConnKey, m: MMonGetVersion) {
        let s = &self.state;
        let (version, oldest) = match m.what.as_str() {
            "osdmap" => (s.osdmap.epoch.0, s.history.oldest.0),
            "monmap" => (s.monmap.epoch.0, 1),
            "mgrmap" => (s.mgrmap.epoch.0, 1),
            "fsmap" | "mdsmap" => {
                let (oldest, newest) = self.fsmap_epochs();
                (newest.0, oldest.0)
            }
            _ => {
                tracing::debug!("mon: {} asks for the version of '{}'", self.who(c), m.what);
                (0, 0)
            }
        };
        let r = MMonGetVersionReply { handle: m.handle, version: version.into(), oldest_version: oldest.into() };
        self.reply(c, 0, &r);
    }

    pub(in crate::core) fn statfs(&mut self, c: ConnKey, tid: u64, m: &MStatfs) {
        if m.fsid != self.state.fsid {
            return;
        }
        let (kb, kb_used, kb_avail, num_objects) =
            space::statfs(&self.state.mgr.stats, &self.state.osdmap, m.data_pool);
        let version = self.state.mgr.stats.version;
        self.reply(c, tid, &MStatfsReply { fsid: m.fsid, version, kb, kb_used, kb_avail, num_objects });
    }

    pub(in crate::core) fn get_pool_stats(&mut self, c: ConnKey, tid: u64, m: &MGetPoolStats) {
        if m.fsid != self.state.fsid {
            return;
        }
        let map = &self.state.osdmap;
        let pool_stats = m
            .pools
            .iter()
            .filter_map(|name| Some((name.clone(), self.state.mgr.stats.pool(map.pool_by_name(name)?))))
            .collect();
        let total = self.state.mgr.stats.osd_sum();
        let per_pool = total.num_osds > 0 && total.num_osds == total.num_per_pool_osds;
        let paxos = PaxosHeader::have(self.state.mgr.stats.version);
        self.reply(c, tid, &MGetPoolStatsReply { paxos, fsid: m.fsid, pool_stats, per_pool });
    }

    pub(in crate::core) fn get_config(&mut self, c: ConnKey, m: &MGetConfig) {
        let own = self.sessions.get(&c).is_some_and(|s| s.who().name == m.name);
        if !own && !self.may(c, Right::Caps(&[("config", Need::R)]), "get_config of another") {
            return;
        }
        let config = self.config_for(&m.name, &m.host, &m.device_class);
        let config = config.into_iter().map(|(k, v)| (k, Text(v))).collect();
        self.reply(c, 0, &MConfig { config });
    }

    /// Answers `ceph ping` with this monitor's place and the cluster's health.
    pub(in crate::core) fn ping(&mut self, c: ConnKey) {
        let name = self.state.mon_name.clone();
        let rank = self.state.monmap.ranks.iter().position(|r| *r == name).map_or(-1, |r| r as i64);
        let leads = self.state.leader() == name;
        let health = crate::command::health_word(&self.state, self.now);
        let text = serde_json::json!({
            "health": { "status": health },
            "mon_status": { "name": name, "rank": rank, "state": if leads { "leader" } else { "peon" } },
        });
        self.intake.work(self.state.mgr.stats.len() as u64 / 1024);
        self.reply(c, 0, &MPing::with_text(&text.to_string()));
    }

    pub(in crate::core) fn get_osdmap(&mut self, c: ConnKey, m: &MMonGetOsdMap) {
        let (oldest, newest) = (self.state.history.oldest, self.state.osdmap.epoch);
        let span = |first: Epoch, last: Epoch| -> Vec<Epoch> {
            if first.0 == 0 {
                return Vec::new();
            }
            let first = first.max(oldest);
            let last = last.min(newest).0.min(first.0.saturating_add(MAX_MAPS_ASKED - 1));
            (first.0..=last).map(Epoch).collect()
        };
        let fulls = span(m.full_first, m.full_last);
        let incs = span(m.inc_first, m.inc_last);
        let h = &self.state.history;
        let ends = |all: &[Epoch]| Some((*all.first()?, *all.last()?));
        let mut ranges = ends(&fulls).map_or_else(Vec::new, |(a, b)| h.ranges_for_fulls(a, b));
        ranges.extend(ends(&incs).map(|(a, b)| h.range_of_incs(a, b)));
        self.fetch(ranges, 0, Fetch::Maps { conn: c, fulls, incs });
    }

    pub(in crate::core) fn get_purged_snaps(&mut self, c: ConnKey, tid: u64, m: &MMonGetPurgedSnaps) {
        let last = m.last.min(self.state.osdmap.epoch);
        let range = Range { start: key::purged_snaps(m.start), end: Some(key::purged_snaps(last.next())) };
        self.fetch(vec![range], PURGED_EPOCHS_PER_REPLY, Fetch::Purged { conn: c, tid, start: m.start, last });
    }

    pub(in crate::core) fn purged_snaps_read(
        &mut self,
        c: ConnKey,
        tid: u64,
        start: Epoch,
        last: Epoch,
        entries: &[(Bytes, Entry)],
    ) {
        let mut purged_snaps = BTreeMap::new();
        let mut reached = last;
        for (k, e) in entries {
            let epoch = std::str::from_utf8(k.get(key::PURGED_SNAPS.len()..).unwrap_or_default())
                .ok()
                .and_then(|s| u32::from_str_radix(s, 16).ok())
                .map(Epoch);
            let snaps = BTreeMap::<PoolId, Intervals>::from_bytes(&e.value);
            if let (Some(epoch), Ok(snaps)) = (epoch, snaps) {
                purged_snaps.insert(epoch, snaps);
                if entries.len() >= PURGED_EPOCHS_PER_REPLY {
                    reached = epoch;
                }
            }
        }
        if start < self.state.history.first_stored() {
            // The records of older epochs are removed with their maps; the sets of the pools hold them all.
            let all = purged_snaps.entry(start).or_default();
            let mut left = PURGED_RANGES_PER_REPLY;
            for (pool, set) in &self.state.osds.purged_snaps {
                let ranges: Vec<(u64, u64)> = set.iter().take(left).collect();
                left -= ranges.len();
                all.insert(*pool, ranges);
            }
        }
        let r = MMonGetPurgedSnapsReply { paxos: PaxosHeader::default(), start, last: reached, purged_snaps };
        self.reply(c, tid, &r);
    }

    /// Answers a request for tickets or rotating keys on an open session.
    pub(in crate::core) fn renew_auth(&mut self, c: ConnKey, m: MAuth) {
        let Some((name, global_id, features)) =
            self.sessions.get(&c).map(|s| (s.who().name.clone(), s.who().global_id, s.features()))
        else {
            return;
        };
        let host = self.auth_view();
        let now = self.now.wall;
        let random = std::rc::Rc::clone(&self.state.random);
        let reply = match auth::server::handle_renewal(&host, &*random, now, &name, &m.auth_payload) {
            Ok(auth_payload) => {
                MAuthReply { protocol: m.protocol, result: 0, global_id, auth_payload, result_msg: String::new() }
            }
            Err(e) => {
                tracing::warn!("mon: renewal of tickets for {name}: {e}");
                let result = e.errno();
                MAuthReply {
                    protocol: m.protocol,
                    result,
                    global_id,
                    result_msg: e.to_string(),
                    ..MAuthReply::default()
                }
            }
        };
        self.send(c, reply.to_message(features));
    }

    /// Adds lines to the cluster log, and acknowledges them once they are durable. Who sent them is known from the
    /// session. Lines that exceed a proposal are not acknowledged, so that their sender repeats them.
    pub(in crate::core) fn cluster_log(&mut self, c: ConnKey, m: MLog) {
        if m.fsid != self.state.fsid {
            return;
        }
        let Some(s) = self.sender(c) else { return };
        let (who, addrs, features) = (&s.who(), s.addrs().clone(), s.features());
        let rank = s.osd().map_or_else(
            || EntityName::new(who.kind, i64::try_from(who.global_id).unwrap_or(i64::MAX)),
            |o| EntityName::new(EntityKind::OSD, o.0.into()),
        );
        let (name, audits) = (who.name.clone(), s.has(Right::ActiveManager, self.active_manager()));
        let latest = self.now.wall.plus(LINE_AHEAD);
        let (mut last, mut refused) = (None, 0);
        for mut e in m.entries.into_iter().take(MAX_LOG_LINES) {
            if self.intake.log_known().pending() >= LOG_LINES_PENDING {
                break;
            }
            last = last.max(Some(e.seq));
            self.intake.work(u64::from(e.seq % 16 == 0));
            if e.channel.is_empty() {
                e.channel = "cluster".into();
            }
            if e.channel == log::AUDIT && !audits || e.channel.len() > MAX_CHANNEL {
                refused += 1;
                continue;
            }
            e.name.clone_from(&name);
            (e.rank, e.addrs, e.stamp) = (rank, addrs.clone(), e.stamp.min(latest));
            e.msg.0.truncate(e.msg.0.floor_char_boundary(log::LINE_MAX));
            if self.intake.log_known().add(&e) {
                self.pending.add_log(e);
            }
        }
        if refused > 0 {
            self.audit_dropped(c, "log lines", "only monitors and the active manager write to the audit channel");
        }
        if let Some(last) = last {
            let ack = MLogAck { fsid: self.state.fsid, last, channel: String::new() }.to_message(features);
            self.answers.wait(Waiter::Send(c, ack));
        }
    }

    /// Global id and name of the active manager.
    fn active_manager(&self) -> (u64, &str) {
        (self.state.mgrmap.active_gid, &self.state.mgrmap.active_name)
    }
}
