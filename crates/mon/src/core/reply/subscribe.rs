//! Subscriptions of sessions, and the messages they bring.
//!
//! | name | answer |
//! |---|---|
//! | `osdmap` | incrementals from the requested start, or the newest full map for start 0 |
//! | `osd_pg_creates` | PGs that the OSD is to create |
//! | `monmap`, `mgrmap`, `servicemap` | the map, when newer than requested |
//! | `fsmap`, `fsmap.user`, `mdsmap…` | file systems, see `fs::publish` |
//! | `config` | the merged options of the session's entity, whole, whenever they change |
//! | `log-LEVEL`, `kv:PREFIX`, `mgrdigest` | lines, keys, and the digest for a manager |

use std::collections::BTreeMap;
use std::time::Duration;

use base::{AuthName, EntityKind, Epoch};
use bytes::Bytes;
use wire::msg::{MConfig, MKvData, MLog, MMgrMap, MMonMap, MMonSubscribe, MMonSubscribeAck, MOsdMap, MServiceMap};
use wire::types::{LogEntry, PaxosHeader, Text};
use wire::{Encode, Features, Message, WireMessage};

use super::fetch::Fetch;
use super::made::Key;
use crate::core::MonCore;
use crate::core::session::Sub;
use crate::core::session::rights::Topic;
use crate::state::ConnKey;
use crate::state::config::{Subject, options_for};
use crate::state::log::Prio;
use base::unreached;

/// Most bytes of maps in an OSD_MAP message; a single larger map is sent alone.
pub(in crate::core) const MAP_MESSAGE_BYTES: usize = 10 << 20;
/// Most OSD sessions that a new epoch is pushed to at once; in larger clusters the others get it from their peers.
const PUSH_OSDS: usize = 64;
/// Feature bit whose absence means that the peer expects an acknowledgement of subscriptions.
const FEATURE_MON_STATEFUL_SUB: u64 = 1 << 57;

/// Time in which a failed OSD may return. For as long, news of it is held back from clients that would not hear of its
/// return.
const RETURN_GRACE: Duration = Duration::from_secs(1);

impl MonCore {
    pub(in crate::core) fn subscribe(&mut self, c: ConnKey, m: MMonSubscribe) {
        let Some(s) = self.sessions.get_mut(&c) else { return };
        s.named_host(m.hostname);
        let stateful = s.features().has(FEATURE_MON_STATEFUL_SUB);
        for (what, item) in m.what {
            let Some(topic) = Topic::of(&what) else {
                tracing::debug!("mon: {} subscribes to unknown '{what}'", self.who(c));
                continue;
            };
            // A refused subscription is not kept, so that it brings nothing later.
            if !self.may(c, topic.right(), &what) {
                continue;
            }
            let Some(s) = self.sessions.get_mut(&c) else { return };
            if !s.subscribe(topic, &what, Sub { next: item.start, onetime: item.is_onetime() }) {
                return self.close(c, "too many subscriptions".into());
            }
            self.check_sub(c, topic, &what);
        }
        if !stateful {
            self.reply(c, 0, &MMonSubscribeAck { interval: 300, fsid: self.state.fsid });
        }
    }

    /// Sends the messages of a due subscription.
    fn check_sub(&mut self, c: ConnKey, topic: Topic, what: &str) {
        match topic {
            Topic::OsdMap => self.check_osdmap_sub(c),
            Topic::PgCreates => self.check_pg_creates(c),
            Topic::MonMap => {
                let e = u64::from(self.state.monmap.epoch.0);
                if self.take_due(c, what, e) {
                    self.send_monmap(c);
                }
            }
            Topic::MgrMap => {
                let e = u64::from(self.state.mgrmap.epoch.0);
                if self.take_due(c, what, e) {
                    let key = Key::MgrMap(self.state.mgrmap.epoch);
                    self.send_shared(c, key, |me| MMgrMap { map: me.state.mgrmap.clone() });
                }
            }
            Topic::Config => self.check_config(c),
            Topic::ServiceMap => {
                let e = u64::from(self.state.mgr.services.epoch.0);
                if self.take_due(c, what, e) {
                    self.send_services(c);
                }
            }
            Topic::FsMap | Topic::FsMapUser | Topic::MdsMap => self.check_fs_sub(c, what),
            Topic::Log => self.check_log(c, what),
            Topic::Kv => self.check_kv(c, what),
            Topic::MgrDigest => self.check_mgr_digest(c),
        }
    }

    /// True if the subscription wants version `newest` or an older one. The subscription then advances, or ends.
    pub(in crate::core) fn take_due(&mut self, c: ConnKey, what: &str, newest: u64) -> bool {
        let Some(s) = self.sessions.get_mut(&c) else { return false };
        let due = s.sub(what).is_some_and(|sub| sub.next <= newest);
        if due {
            s.answered(what, newest + 1);
        }
        due
    }

    pub(in crate::core) fn send_monmap(&mut self, c: ConnKey) {
        let Some(f) = self.sessions.get(&c).map(|s| s.features()) else { return };
        let key = Key::MonMap(self.state.monmap.epoch);
        self.send_shared(c, key, |me| MMonMap { monmapbl: me.state.monmap.to_bytes(f) });
    }

    /// Sends the monmap to its subscribers, after a commit.
    pub(in crate::core) fn publish_monmap(&mut self) {
        for c in self.subscribers("monmap") {
            self.check_sub(c, Topic::MonMap, "monmap");
        }
    }

    /// Sessions with a subscription of that name.
    pub(in crate::core) fn subscribers(&self, what: &str) -> Vec<ConnKey> {
        self.sessions.iter().filter(|(_, s)| s.sub(what).is_some()).map(|(c, _)| *c).collect()
    }

    pub(in crate::core) fn subscriptions_with_prefix(&self, prefix: &str) -> Vec<(ConnKey, String)> {
        self.sessions
            .iter()
            .flat_map(|(c, s)| s.subs().filter(|k| k.starts_with(prefix)).map(|k| (*c, k.clone())))
            .collect()
    }

    // OSD maps

    fn check_osdmap_sub(&mut self, c: ConnKey) {
        let newest = self.state.osdmap.epoch;
        let Some(sub) = self.sessions.get(&c).and_then(|s| s.sub("osdmap")) else { return };
        let is_osd = self.sessions.get(&c).is_some_and(|s| s.osd().is_some());
        // A client without a map gets one at once.
        if sub.onetime && sub.next > 0 && !is_osd && self.an_osd_may_return() {
            return;
        }
        if !self.take_due(c, "osdmap", newest.0.into()) {
            return;
        }
        let start = Epoch(u32::try_from(sub.next).unwrap_or(u32::MAX));
        if is_osd {
            return self.send_maps(c, start, sub.onetime);
        }
        if sub.onetime && start.0 > 0 {
            self.answers.awaited.answered(c, self.now.mono);
        }
        self.send_maps_to_client(c, start);
    }

    /// Sends a client the epochs from `start` on, or the newest map alone if it is far behind.
    pub(in crate::core) fn send_maps_to_client(&mut self, c: ConnKey, start: Epoch) {
        // An OSD's first session announces a client.
        let keeps_maps = self.sessions.get(&c).is_some_and(|s| s.who().name.kind == EntityKind::OSD);
        if !keeps_maps && start.0 > 0 && self.is_far_behind(start) {
            return self.send_newest(c);
        }
        self.send_maps(c, start, false);
    }

    /// True if the incrementals from `start` on are not all in memory, or have more bytes than a full map and a message.
    fn is_far_behind(&mut self, start: Epoch) -> bool {
        let newest = self.state.osdmap.epoch;
        let most = self.full_for(Features::PACIFIC).len().max(MAP_MESSAGE_BYTES / 10);
        let h = &self.state.history;
        let mut bytes = 0;
        for e in start.0..=newest.0 {
            let Some(b) = h.inc(Epoch(e)) else { return true };
            bytes += b.len();
            if bytes > most {
                return true;
            }
        }
        false
    }

    /// Sends a client the newest map as if it were the oldest one there is. The client takes it at once and sends its
    /// operations again, as it does when maps were trimmed; else it would ask for the epochs between.
    fn send_newest(&mut self, c: ConnKey) {
        let Some(features) = self.sessions.get(&c).map(|s| s.features()) else { return };
        let newest = self.state.osdmap.epoch;
        let maps = [(newest, self.full_for(features))].into();
        self.send_map_message_since(c, BTreeMap::new(), maps, newest, newest);
    }

    /// True if an answer to a client that lost an OSD is better given later. The client asks for one newer map, and
    /// asks again after five seconds at the earliest. It gets the map that shows the OSD down at once, since other OSDs
    /// serve by that map, and hears of later ones unasked ([`super::awaited`]). Of too many clients the others wait for
    /// a map that may show the OSD up again.
    fn an_osd_may_return(&self) -> bool {
        // The OSD's boot may be pending already.
        let coming_up = self.pending.inc().is_some_and(|i| !i.new_up_client.is_empty())
            || self.writer.inflight().is_some_and(crate::core::propose::Inflight::brings_up);
        let recent = || self.liveness.down(self.now.mono).any(|(_, d)| d < RETURN_GRACE);
        coming_up || self.answers.awaited.is_full() && recent()
    }

    /// Sends clients the maps after one in which an OSD went down that did not return in time.
    pub(in crate::core) fn tick_postponed_maps(&mut self) {
        let ended = |d: Duration| d >= RETURN_GRACE && d < 3 * RETURN_GRACE;
        if self.liveness.down(self.now.mono).any(|(_, d)| ended(d)) {
            for c in self.subscribers("osdmap") {
                self.check_osdmap_sub(c);
            }
            self.send_awaited_maps();
        }
    }

    /// Sends maps to subscribers and OSDs, after a commit.
    pub(in crate::core) fn publish_osdmap(&mut self) {
        for c in self.subscribers("osdmap") {
            self.check_osdmap_sub(c);
        }
        let newest = self.state.osdmap.epoch;
        let mut osds: Vec<ConnKey> = self
            .sessions
            .iter()
            .filter(|(_, s)| s.osd().is_some() && s.osd_epoch().0 > 0 && s.osd_epoch() < newest)
            .map(|(c, _)| *c)
            .collect();
        if osds.len() > PUSH_OSDS {
            // Each epoch is pushed to a different part of them.
            let n = osds.len();
            osds.rotate_left(newest.0 as usize * PUSH_OSDS % n);
            osds.truncate(PUSH_OSDS);
        }
        for c in osds {
            let from = self.sessions.get(&c).map_or(newest, |s| s.osd_epoch().next());
            self.send_maps(c, from, false);
        }
        for c in self.subscribers("osd_pg_creates") {
            self.check_pg_creates(c);
        }
    }

    /// Sends maps above `from` in answer to an OSD's message; epochs that the session already got are left out.
    pub(in crate::core) fn send_maps_reply(&mut self, c: ConnKey, from: Epoch) {
        let Some(sent) = self.sessions.get(&c).map(|s| s.osd_epoch()) else { return };
        let from = from.max(sent).next();
        if from <= self.state.osdmap.epoch {
            self.send_maps(c, from, false);
        }
    }

    /// Sends epochs from `start` on, in one message only if `once`; `start` 0 asks for the newest full map.
    pub(in crate::core) fn send_maps(&mut self, c: ConnKey, start: Epoch, once: bool) {
        let Some(features) = self.sessions.get(&c).map(|s| s.features()) else { return };
        let newest = self.state.osdmap.epoch;
        let oldest = self.state.history.oldest;
        if start.0 == 0 || !features.nautilus() {
            // Old kernels get the newest map in their own form; they accept full maps as well as incrementals.
            let blob = self.full_for(features);
            return self.send_map_message(c, BTreeMap::new(), [(newest, blob)].into(), newest);
        }
        let mut fulls = Vec::new();
        let mut first = start;
        if start < oldest {
            fulls.push(oldest);
            first = oldest.next();
        }
        let max = self.state.options.map_message_max.max(1);
        let last = if once { Epoch(first.0.saturating_add(max - 1)).min(newest) } else { newest };
        let incs: Vec<Epoch> = (first.0..=last.0).map(Epoch).collect();
        let missing_fulls: Vec<Epoch> =
            fulls.iter().copied().filter(|e| self.state.history.full(*e).is_none()).collect();
        let missing_incs: Vec<Epoch> = incs.iter().copied().filter(|e| self.state.history.inc(*e).is_none()).collect();
        if missing_fulls.is_empty() && missing_incs.is_empty() {
            self.send_epochs(c, &fulls, &incs, &BTreeMap::new());
        } else {
            let h = &self.state.history;
            let span = |all: &[Epoch]| Some((*all.first()?, *all.last()?));
            let mut ranges = span(&missing_fulls).map_or_else(Vec::new, |(a, b)| h.ranges_for_fulls(a, b));
            ranges.extend(span(&missing_incs).map(|(a, b)| h.range_of_incs(a, b)));
            self.fetch(ranges, 0, Fetch::Send { conn: c, fulls, incs });
        }
    }

    /// Sends epochs that are in memory, and the incrementals in `read`.
    pub(in crate::core) fn send_epochs(
        &mut self,
        c: ConnKey,
        fulls: &[Epoch],
        incs: &[Epoch],
        read: &BTreeMap<Epoch, Bytes>,
    ) {
        for e in fulls {
            if let Some(b) = self.state.history.full(*e).cloned() {
                self.send_map_message(c, BTreeMap::new(), [(*e, b)].into(), *e);
            }
        }
        let max = self.state.options.map_message_max.max(1) as usize;
        let mut batch: BTreeMap<Epoch, Bytes> = BTreeMap::new();
        let mut bytes = 0;
        for e in incs {
            let Some(b) = self.state.history.inc(*e).or_else(|| read.get(e)).cloned() else {
                // The epoch was trimmed in the meantime. Later ones are useless without it, so the peer has to ask
                // again.
                return;
            };
            if !batch.is_empty() && (batch.len() >= max || bytes + b.len() > MAP_MESSAGE_BYTES) {
                let last = batch.last_key_value().map_or(*e, |(k, _)| *k);
                self.send_map_message(c, std::mem::take(&mut batch), BTreeMap::new(), last);
                bytes = 0;
            }
            bytes += b.len();
            batch.insert(*e, b);
        }
        if let Some(last) = batch.last_key_value().map(|(k, _)| *k) {
            self.send_map_message(c, batch, BTreeMap::new(), last);
        }
    }

    pub(in crate::core) fn send_map_message(
        &mut self,
        c: ConnKey,
        incremental_maps: BTreeMap<Epoch, Bytes>,
        maps: BTreeMap<Epoch, Bytes>,
        last: Epoch,
    ) {
        self.send_map_message_since(c, incremental_maps, maps, last, self.state.history.oldest);
    }

    fn send_map_message_since(
        &mut self,
        c: ConnKey,
        incremental_maps: BTreeMap<Epoch, Bytes>,
        maps: BTreeMap<Epoch, Bytes>,
        last: Epoch,
        oldest: Epoch,
    ) {
        let newest = self.state.osdmap.epoch;
        let key = Key::osd_maps(&incremental_maps, &maps, (oldest, newest));
        let m = MOsdMap {
            fsid: self.state.fsid,
            incremental_maps,
            maps,
            cluster_osdmap_trim_lower_bound: oldest,
            newest_map: newest,
            gap_removed_snaps: BTreeMap::new(),
        };
        match key {
            Some(key) => self.send_shared(c, key, |_| m),
            None => self.reply(c, 0, &m),
        }
        if let Some(s) = self.sessions.get_mut(&c) {
            s.maps_sent(last);
        }
    }

    // Configuration

    /// The options that apply to an entity.
    pub(in crate::core) fn config_for(&self, name: &AuthName, hostname: &str, class: &str) -> BTreeMap<String, String> {
        let crush = &self.state.osdmap.crush;
        let mut subject = Subject { location: BTreeMap::new(), device_class: class.to_owned() };
        let osd = (name.kind == EntityKind::OSD).then(|| name.id.parse::<i32>().ok()).flatten();
        if let Some(id) = osd {
            subject.location.extend(crush.full_location(id));
            if class.is_empty() {
                subject.device_class = crush.class_of(id).unwrap_or_default().to_owned();
            }
        }
        if !hostname.is_empty() {
            subject.location.entry("host".into()).or_insert_with(|| hostname.to_owned());
        }
        let rank = |t: &str| crush.type_id(t).and_then(|i| usize::try_from(i).ok());
        options_for(&self.state.config, name, &subject, &rank)
    }

    fn check_config(&mut self, c: ConnKey) {
        let Some(s) = self.sessions.get(&c) else { return };
        let config = self.config_for(&s.who().name, s.hostname(), "");
        let Some(s) = self.sessions.get_mut(&c) else { return unreached("the session was there just now") };
        if !s.takes_config(&config) {
            return;
        }
        let config = config.into_iter().map(|(k, v)| (k, Text(v))).collect();
        self.reply(c, 0, &MConfig { config });
    }

    pub(in crate::core) fn publish_config(&mut self) {
        for c in self.subscribers("config") {
            self.check_config(c);
        }
    }

    pub(in crate::core) fn publish_mgrmap(&mut self) {
        for c in self.subscribers("mgrmap") {
            self.check_sub(c, Topic::MgrMap, "mgrmap");
        }
    }

    /// Sends the service map to its subscribers.
    pub(in crate::core) fn send_servicemap(&mut self) {
        let epoch = u64::from(self.state.mgr.services.epoch.0);
        for c in self.subscribers("servicemap") {
            if self.take_due(c, "servicemap", epoch) {
                self.send_services(c);
            }
        }
    }

    fn send_services(&mut self, c: ConnKey) {
        let key = Key::ServiceMap(self.state.mgr.services.epoch);
        self.send_shared(c, key, |me| MServiceMap { service_map: me.state.mgr.services.clone() });
    }

    // Log and keys

    fn check_log(&mut self, c: ConnKey, what: &str) {
        let Some(level) = what.strip_prefix("log-").and_then(Prio::from_word) else {
            return unreached("the topic of the log has names with a level");
        };
        let Some(sub) = self.sessions.get(&c).and_then(|s| s.sub(what)) else { return };
        if level.0 == Prio::DEBUG.0 {
            self.audit.follow_reads();
        }
        let next = self.state.log.next;
        let lines: Vec<LogEntry> = if sub.next == 0 {
            self.state.log.last(1, level, "*").into_iter().cloned().collect()
        } else {
            let fits = |x: &&(u64, LogEntry)| {
                let (n, e) = *x;
                *n >= sub.next && e.prio >= level.0
            };
            self.state.log.entries().into_iter().filter(fits).map(|(_, e)| e.clone()).collect()
        };
        self.move_on(c, what, next.max(1));
        if !lines.is_empty() {
            self.send_log(c, lines);
        }
    }

    fn move_on(&mut self, c: ConnKey, what: &str, next: u64) {
        if let Some(s) = self.sessions.get_mut(&c) {
            s.answered(what, next);
        }
    }

    fn send_log(&mut self, c: ConnKey, entries: Vec<LogEntry>) {
        let m = self.log_message(entries);
        self.reply(c, 0, &m);
    }

    fn log_message(&self, entries: Vec<LogEntry>) -> MLog {
        // Clients drop messages whose version is not higher than the last.
        MLog { paxos: PaxosHeader::have(self.state.log.next), fsid: self.state.fsid, entries }
    }

    /// Sends new lines to those who follow the log, encoded once for each level and set of features.
    pub(in crate::core) fn publish_log(&mut self, lines: &[LogEntry]) {
        let next = self.state.log.next;
        let mut made: BTreeMap<(String, u64), Option<Message>> = BTreeMap::new();
        for (c, what) in self.subscriptions_with_prefix("log-") {
            let Some(level) = what.strip_prefix("log-").and_then(Prio::from_word) else { continue };
            let Some(features) = self.sessions.get(&c).map(|s| s.features()) else { continue };
            self.move_on(c, &what, next.max(1));
            let m = made.entry((what, features.0)).or_insert_with(|| {
                let fitting: Vec<LogEntry> = lines.iter().filter(|l| l.prio >= level.0).cloned().collect();
                (!fitting.is_empty()).then(|| self.log_message(fitting).to_message(features))
            });
            if let Some(m) = m.clone() {
                self.send(c, m);
            }
        }
    }

    fn check_kv(&mut self, c: ConnKey, what: &str) {
        let Some(prefix) = what.strip_prefix("kv:").map(str::to_owned) else {
            return unreached("the topic of keys has names with that prefix");
        };
        let data = self
            .state
            .kv
            .range(prefix.clone()..)
            .take_while(|(k, _)| k.starts_with(&prefix))
            .map(|(k, v)| (k.clone(), Some(v.clone())))
            .collect();
        let version = self.state.kv.version();
        self.move_on(c, what, version + 1);
        self.reply(c, 0, &MKvData { version, prefix, incremental: false, data });
    }

    pub(in crate::core) fn publish_kv(&mut self, changes: &BTreeMap<String, Option<Bytes>>) {
        let version = self.state.kv.version();
        for (c, what) in self.subscriptions_with_prefix("kv:") {
            let Some(prefix) = what.strip_prefix("kv:").map(str::to_owned) else { continue };
            let data =
                changes.iter().filter(|(k, _)| k.starts_with(&prefix)).map(|(k, v)| (k.clone(), v.clone())).collect();
            self.move_on(c, &what, version + 1);
            self.reply(c, 0, &MKvData { version, prefix, incremental: true, data });
        }
    }
}
