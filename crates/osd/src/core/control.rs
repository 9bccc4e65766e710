//! The control machine, which makes an OSD a member of its cluster: boot, maps, reports, stopping.
//!
//! Phases: `Registering` (place in the CRUSH map) → `Syncing` (fetch maps) → `Booting` (OSD_BOOT sent) →
//! `Active` (the map shows us up with our addresses) → `Leaving`. A new monitor session, or a map that shows us
//! down, leads back to `Syncing`.
//!
//! Invariants:
//!  1. Maps are published in order, each once.
//!  2. OSD_BOOT is sent only when the newest map known to the monitor has been applied.
//!  3. PGs are created only after the map of their creation has been published.
//!  4. OSD_BOOT is sent only when the OSD can authenticate peers.
//!
//! Tests: `tests/boot.rs`.

mod counters;
mod fullness;
mod leave;
mod report;
mod silent;

use self::fullness::Fullness;
use super::heartbeat::{self, Heartbeats};
use super::identity::Identity;
use super::lease::{self, Leases};
use super::maps::{MapFeed, MapHistory, Record, Source};
use super::mgr::{self, MgrReporter, Stats};
use super::rejoin::Rejoin;
use super::shard::Ready;
use base::planted::{Bug, acts};
use base::{Epoch, Mono, Now, OsdId, PgId, SpgId, Utime};
use bytes::Bytes;
use client::core::mon::{self, MonSession};
use cluster::OsdMap;
use cluster::osdmap::interval::children;
use cluster::osdmap::{map_flag, osd_state};
use cluster::pool::{pg_mask, stable_mod};
pub use report::Report;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::{
    MConfig, MLog, MLogAck, MMgrMap, MOsdAlive, MOsdBeacon, MOsdBoot, MOsdLease, MOsdMap, MOsdMarkMeDead,
    MOsdMarkMeDown, MOsdPgCreate2, MOsdPgCreated, MOsdPgReadyToMerge, MOsdPgTemp,
};
use wire::types::{LogEntry, OsdSuperblock, PgCreateExtra, PgCreateStamp};
use wire::{Features, Message, WireMessage as _};

/// `osd_beacon_report_interval`.
const BEACON_INTERVAL: Duration = Duration::from_secs(300);
/// Interval at which a waiting OSD asks again for newer maps.
const RESUBSCRIBE: Duration = Duration::from_secs(30);
/// Most log entries kept until the monitor has them.
const LOG_ENTRIES_MAX: usize = 1000;
/// Most PG creations held back for their map.
const CREATES_MAX: usize = 65_536;
/// Most bytes of maps that travel with the answer to a lease request. An OSD that lacks more asks the monitor.
const LEASE_MAPS_MAX: usize = 256 << 10;

/// Phase of the OSD's membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before or during the monitor commands that place the OSD in CRUSH.
    Registering,
    /// The OSD fetches maps.
    Syncing,
    /// OSD_BOOT is sent; the OSD waits for a map that shows it up.
    Booting,
    /// The OSD is a member of the cluster.
    Active,
    /// The reactors stop serving, then the monitor is told.
    Leaving,
    /// The process may exit.
    Gone,
}

/// Priorities of the cluster log.
pub mod prio {
    /// Debugging.
    pub const DEBUG: u16 = 0;
    /// Information.
    pub const INFO: u16 = 1;
    /// Warning.
    pub const WARN: u16 = 3;
    /// Error.
    pub const ERROR: u16 = 4;
}

/// A PG to create.
#[derive(Clone, Debug)]
pub struct PgCreate {
    /// The PG.
    pub pgid: SpgId,
    /// Epoch and time of creation.
    pub stamp: PgCreateStamp,
    /// History, if the monitor sent it.
    pub extra: Option<PgCreateExtra>,
}

/// Action for the host.
#[derive(Debug)]
pub enum Output {
    /// Monitor session.
    Mon(mon::Output),
    /// Heartbeats.
    Heartbeat(heartbeat::Output),
    /// Read leases: messages for the control lane, news for all reactors.
    Lease(lease::Output),
    /// Manager session.
    Mgr(mgr::Output),
    /// Store these maps and the superblock.
    Store {
        /// Maps, in order.
        records: Vec<Record>,
        /// The superblock after them.
        superblock: Box<OsdSuperblock>,
        /// Maps below may be dropped from the store.
        trim_below: Epoch,
    },
    /// Hand the maps to all reactors, in order; `feed` belongs to the last.
    Publish {
        /// The maps.
        maps: Vec<Arc<OsdMap>>,
        /// Feed of the last map, which reactors share with clients.
        feed: Arc<MapFeed>,
    },
    /// Create these PGs.
    Create(Vec<PgCreate>),
    /// The monitor's complete configuration for this daemon.
    Config(BTreeMap<String, String>),
    /// A message for the host, such as an authentication reply.
    Message(Message),
    /// The phase changed.
    Phase(Phase),
    /// Stop serving on all reactors, then call [`Control::stopped`]. Sent again if the store fails while they
    /// finish.
    Stop {
        /// Drop PGs at once, because their store failed. Otherwise they finish the operations in flight.
        abandon: bool,
    },
    /// Reason why this OSD ends on its own: the map removed, destroyed or stopped it, or the monitor refuses
    /// it. [`Output::Stop`] follows.
    Exit(String),
}

/// Control machine of an OSD; see the module.
pub struct Control {
    id: Identity,
    mon: MonSession,
    maps: MapHistory,
    hb: Heartbeats,
    leases: Leases,
    /// For each reactor: OSDs that share PGs there, and those that share PGs led there.
    pg_peers: BTreeMap<usize, (BTreeSet<OsdId>, BTreeSet<OsdId>)>,
    /// Requested acting sets that the map does not show yet.
    pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    rejoin: Rejoin,
    mgr: MgrReporter,
    sb: OsdSuperblock,
    phase: Phase,
    commands: Vec<(u64, Placement)>,
    placed: bool,
    /// The host can authenticate peers; without that the OSD would be useless.
    ready: bool,
    version_req: Option<u64>,
    /// Own newest map when the newest epoch was asked for.
    asked_at: Epoch,
    newest: Epoch,
    /// Newest epoch when the monitor was asked for maps it had left out.
    gap_at: Option<Epoch>,
    /// First epoch in which this process was up, 0 before.
    boot_epoch: Epoch,
    want_up_thru: Epoch,
    alive_sent: Epoch,
    /// PGs that may be merged with others.
    to_merge: BTreeMap<PgId, Ready>,
    next_beacon: Mono,
    resubscribe_at: Mono,
    leaving: Option<leave::Leaving>,
    /// Reason of the store's failure, if it failed.
    failure: Option<String>,
    fullness: Fullness,
    /// Reactors whose device does not answer, with the reason.
    silent: BTreeMap<usize, String>,
    creates: BTreeMap<SpgId, PgCreate>,
    creates_epoch: Epoch,
    log: VecDeque<LogEntry>,
    log_seq: u64,
    min_lec: Epoch,
    out: VecDeque<Output>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    DeviceClass,
    Location,
}

impl Control {
    /// Creates the machine from the state in the store.
    #[must_use]
    pub fn new(id: Identity, mon: MonSession, maps: MapHistory, sb: OsdSuperblock, seed: u64) -> Self {
        let (whoami, fsid) = (id.whoami, id.fsid);
        Self {
            hb: Heartbeats::new(whoami, fsid, seed),
            leases: Leases::new(fsid),
            pg_peers: BTreeMap::new(),
            pg_temp: BTreeMap::new(),
            rejoin: Rejoin::default(),
            mgr: MgrReporter::new(whoami),
            id,
            mon,
            maps,
            sb,
            phase: Phase::Registering,
            commands: Vec::new(),
            placed: false,
            ready: false,
            version_req: None,
            asked_at: Epoch(0),
            newest: Epoch(0),
            gap_at: None,
            boot_epoch: Epoch(0),
            want_up_thru: Epoch(0),
            alive_sent: Epoch(0),
            to_merge: BTreeMap::new(),
            next_beacon: Mono(0),
            resubscribe_at: Mono(0),
            leaving: None,
            failure: None,
            fullness: Fullness::default(),
            silent: BTreeMap::new(),
            creates: BTreeMap::new(),
            creates_epoch: Epoch(0),
            log: VecDeque::new(),
            log_seq: 0,
            min_lec: Epoch(0),
            out: VecDeque::new(),
        }
    }

    /// Newest map.
    #[must_use]
    pub fn map(&self) -> Option<&Arc<OsdMap>> {
        self.maps.current()
    }

    /// Present phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Epoch in which this process came up, according to the map; 0 if the map does not show it up.
    #[must_use]
    pub fn up_from(&self) -> Epoch {
        let shown = self.maps.current().filter(|m| self.is_shown_up(m));
        shown.map_or(Epoch(0), |m| m.info(self.id.whoami).up_from)
    }

    /// True if the map shows this process up, and not another process of this OSD.
    fn is_shown_up(&self, m: &OsdMap) -> bool {
        m.is_up(self.id.whoami) && m.client_addr(self.id.whoami) == Some(&self.id.addrs.public)
    }

    /// Session with the monitor, for messages of the host (ticket renewals).
    pub fn mon(&mut self) -> &mut MonSession {
        &mut self.mon
    }

    /// Feed of the restored map, for the reactors at start.
    #[must_use]
    pub fn feed(&self) -> Option<Arc<MapFeed>> {
        self.maps.feed()
    }

    /// Next action for the host.
    pub fn poll_output(&mut self, now: Now) -> Option<Output> {
        loop {
            if let Some(o) = self.out.pop_front() {
                return Some(o);
            }
            if let Some(o) = self.mon.poll_output() {
                match o {
                    mon::Output::Event(e) => {
                        self.mon_event(e, now);
                        continue;
                    }
                    o => return Some(Output::Mon(o)),
                }
            }
            let hb = self.hb.take_outputs();
            let mgr = self.mgr.take_outputs();
            self.take_lease_outputs();
            if hb.is_empty() && mgr.is_empty() && self.out.is_empty() {
                return None;
            }
            for o in hb {
                match o {
                    heartbeat::Output::Failure(mut f) => {
                        f.paxos = self.maps.epoch().into();
                        self.mon.send_now(&*f);
                    }
                    o => self.out.push_back(Output::Heartbeat(o)),
                }
            }
            self.out.extend(mgr.into_iter().map(Output::Mgr));
        }
    }

    fn take_lease_outputs(&mut self) {
        for o in self.leases.take_outputs() {
            match o {
                lease::Output::WantMap(e) => self.want_map(e),
                o => self.out.push_back(Output::Lease(o)),
            }
        }
    }

    /// Time of the next [`Control::tick`] with work to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        let own = match self.phase {
            Phase::Active => Some(self.next_beacon),
            Phase::Syncing | Phase::Booting => Some(self.resubscribe_at),
            Phase::Leaving => self.leaving.as_ref().map(|l| l.by),
            _ => None,
        };
        let rejoin = if self.phase == Phase::Syncing { self.rejoin.next_deadline() } else { None };
        let (hb, leases, mgr) = (self.hb.next_deadline(), self.leases.next_deadline(), self.mgr.next_deadline());
        [own, rejoin, self.mon.next_deadline(), hb, leases, mgr].into_iter().flatten().min()
    }

    /// Handles elapsed time.
    pub fn tick(&mut self, now: Now) {
        self.mon.tick(now);
        self.mgr.tick(now);
        let (epoch, up_from) = (self.maps.epoch(), self.up_from());
        self.hb.tick(now, epoch, up_from);
        self.leases.tick(now);
        if self.phase == Phase::Syncing && self.rejoin.is_due(now) {
            self.progress(now);
        }
        match self.phase {
            Phase::Active if now.mono >= self.next_beacon => self.send_beacon(now),
            Phase::Syncing | Phase::Booting if now.mono >= self.resubscribe_at => {
                self.resubscribe_at = now.mono + RESUBSCRIBE;
                if self.phase == Phase::Booting {
                    // The monitor drops a boot while `noup` is set, which may have happened unnoticed before it
                    // was sent.
                    self.send_boot();
                }
                self.ask_maps();
            }
            Phase::Leaving => self.tick_leaving(now),
            _ => {}
        }
    }

    fn enter(&mut self, p: Phase) {
        if self.phase != p {
            self.phase = p;
            self.out.push_back(Output::Phase(p));
        }
    }

    /// Records that the host can verify tickets (or needs none), so that the OSD may boot.
    pub fn set_ready(&mut self, now: Now) {
        if !self.ready {
            self.ready = true;
            self.leases.start(self.maps.current().map(|m| &**m), now);
            self.progress(now);
        }
    }

    // --- the monitor's session ---

    /// Handles the opened connection to the monitor.
    pub fn handle_mon_open(&mut self, features: Features) {
        self.mon.handle_open(features);
    }

    /// Handles the lost connection to the monitor.
    pub fn handle_mon_closed(&mut self, now: Now) {
        self.mon.handle_closed(now);
    }

    /// Handles a message of the monitor. Error: the message does not decode, and has no effect.
    pub fn handle_mon_message(&mut self, m: Message) -> Result<(), wire::DecodeError> {
        self.mon.handle_message(m)
    }

    fn mon_event(&mut self, e: mon::Event, now: Now) {
        match e {
            mon::Event::Open => self.mon_open(now),
            mon::Event::Closed | mon::Event::MonMap(_) => {}
            mon::Event::OtherCluster { wanted, found } => {
                tracing::error!("the monitors are those of cluster {found}, the configuration names {wanted}");
            }
            mon::Event::Command { tid, rc, status, .. } => self.command_done(tid, rc, &status, now),
            mon::Event::Version { tid, newest, oldest } => {
                if self.version_req == Some(tid) {
                    self.version_req = None;
                    self.compare_with_monitor(Epoch(u32::try_from(newest).unwrap_or(u32::MAX)));
                    self.newest = self.newest.max(Epoch(u32::try_from(newest).unwrap_or(u32::MAX)));
                    let next = self.maps.epoch().next();
                    let oldest = Epoch(u32::try_from(oldest).unwrap_or(u32::MAX));
                    let start = if next < oldest { oldest.0.saturating_sub(1) } else { next.0 };
                    self.mon.subscribe("osdmap", start.into(), true);
                    self.progress(now);
                }
            }
            mon::Event::Message(m) => {
                let kind = m.header.kind;
                if let Err(error) = self.mon_message(m, now) {
                    tracing::warn!(kind, %error, "message of the monitor not understood");
                }
            }
        }
    }

    fn mon_open(&mut self, now: Now) {
        self.hb.handle_mon_session();
        self.alive_sent = Epoch(0);
        match self.phase {
            Phase::Registering if !self.placed => {
                self.commands.clear();
                if self.id.crush_update_on_start {
                    self.place();
                } else {
                    self.placed = true;
                    self.start_sync(now);
                }
            }
            Phase::Active => {
                self.mon.subscribe("osd_pg_creates", 0, false);
                self.ask_maps();
                self.ask_up_thru();
                self.send_pg_temp();
                self.send_full();
                self.send_beacon(now);
                self.send_log();
            }
            Phase::Leaving => self.leaving_mon_open(now),
            Phase::Gone => {}
            _ => self.start_sync(now),
        }
    }

    fn place(&mut self) {
        let n = self.id.whoami.0;
        let class =
            format!(r#"{{"prefix":"osd crush set-device-class","class":"{}","ids":["{n}"]}}"#, self.id.device_class);
        let args: Vec<String> = self.id.crush_location.iter().map(|a| format!("\"{a}\"")).collect();
        let location = format!(
            r#"{{"prefix":"osd crush create-or-move","id":{n},"weight":{:.4},"args":[{}]}}"#,
            self.id.crush_weight,
            args.join(",")
        );
        for (what, cmd) in [(Placement::DeviceClass, class), (Placement::Location, location)] {
            let tid = self.mon.command(&cmd, Bytes::new());
            self.commands.push((tid, what));
        }
    }

    fn command_done(&mut self, tid: u64, rc: i32, status: &str, now: Now) {
        let Some(at) = self.commands.iter().position(|(t, _)| *t == tid) else { return self.report_answered(tid) };
        let (_, what) = self.commands.remove(at);
        // An OSD that has a device class keeps it, so `EBUSY` is no failure.
        if rc < 0 && !(what == Placement::DeviceClass && rc == base::errno::EBUSY) {
            let why = format!("monitor refuses to place this OSD: {status} ({})", base::errno::name(rc));
            return self.exit(why, now);
        }
        if self.commands.is_empty() && self.phase == Phase::Registering {
            self.placed = true;
            self.begin_sync();
        }
    }

    fn begin_sync(&mut self) {
        self.enter(Phase::Syncing);
        self.mon.subscribe("mgrmap", 0, false);
        self.mon.subscribe("osd_pg_creates", 0, false);
        self.version_req = Some(self.mon.get_version("osdmap"));
        self.asked_at = self.maps.epoch();
    }

    /// Warns if this OSD had a newer map than the monitor when it asked. Such an OSD cannot boot.
    fn compare_with_monitor(&self, newest: Epoch) {
        if newest < self.asked_at {
            tracing::error!(
                osd = self.id.whoami.0,
                have = self.asked_at.0,
                monitor = newest.0,
                "the monitor's newest map is older than this OSD's, so its state is an old copy; this OSD waits (see \
                 `belemnite state advance`)"
            );
        }
    }

    fn start_sync(&mut self, now: Now) {
        self.resubscribe_at = now.mono + RESUBSCRIBE;
        self.begin_sync();
    }

    fn ask_maps(&mut self) {
        self.mon.subscribe("osdmap", u64::from(self.maps.epoch().0) + 1, self.phase != Phase::Active);
    }

    fn mon_message(&mut self, m: Message, now: Now) -> Result<(), wire::DecodeError> {
        match m.header.kind {
            MOsdMap::KIND => self.take_maps(&MOsdMap::from_message(&m)?, Source::Monitor, now),
            MMgrMap::KIND => {
                let map = MMgrMap::from_message(&m)?.map;
                self.mon.got("mgrmap", map.epoch.0.into());
                self.mgr.handle_map(&map, now);
            }
            MConfig::KIND => {
                let c = MConfig::from_message(&m)?.config;
                self.take_config(|name| c.get(name).map(|v| v.0.as_str()));
                self.out.push_back(Output::Config(c.into_iter().map(|(k, v)| (k, v.0)).collect()));
            }
            MOsdPgCreate2::KIND => self.handle_creates(MOsdPgCreate2::from_message(&m)?),
            MLogAck::KIND => {
                let a = MLogAck::from_message(&m)?;
                self.log.retain(|e| e.seq > a.last);
                self.leave_if_told();
            }
            MOsdMarkMeDown::KIND => {
                self.leave_acknowledged();
            }
            _ => self.out.push_back(Output::Message(m)),
        }
        Ok(())
    }

    /// Oldest stored map.
    #[must_use]
    pub fn oldest_map(&self) -> Epoch {
        self.sb.oldest_map
    }

    /// True for options that [`Control::take_config`] uses.
    #[must_use]
    pub fn observes(name: &str) -> bool {
        matches!(name, "osd_heartbeat_interval" | "osd_heartbeat_grace")
    }

    /// Applies the settings of this machine.
    pub fn take_config<'a>(&mut self, get: impl Fn(&str) -> Option<&'a str>) {
        let secs = |name: &str, default: Duration| {
            let v = get(name).and_then(|t| t.trim().parse::<f64>().ok()).filter(|v| (0.1..86_400.0).contains(v));
            v.map_or(default, Duration::from_secs_f64)
        };
        let grace = secs("osd_heartbeat_grace", heartbeat::GRACE);
        self.hb.set_times(secs("osd_heartbeat_interval", heartbeat::INTERVAL), grace);
        let ratio = get("osd_pool_default_read_lease_ratio").and_then(|t| t.trim().parse::<f64>().ok());
        let ratio = ratio.filter(|r| (0.05..=1.0).contains(r)).unwrap_or(lease::RATIO);
        self.leases.set_lease(grace.mul_f64(ratio));
    }

    // --- maps ---

    /// Handles maps from another OSD.
    pub fn handle_map_message(&mut self, m: &MOsdMap, now: Now) {
        self.take_maps(m, Source::Osd, now);
    }

    fn take_maps(&mut self, m: &MOsdMap, from: Source, now: Now) {
        let absorbed = match self.maps.absorb(m, from) {
            Ok(a) => a,
            Err(error) => {
                tracing::error!(have = self.maps.epoch().0, %error, "OSD map refused");
                return;
            }
        };
        match from {
            Source::Monitor => self.newest = self.newest.max(absorbed.newest),
            // An OSD's claim of a newer map is no reason to wait: the monitor knows better.
            Source::Osd => self.want_map(absorbed.newest),
        }
        if absorbed.gap && from == Source::Monitor && self.gap_at != Some(self.maps.epoch()) {
            // Only once: a monitor that repeats the same answer has no other maps.
            self.gap_at = Some(self.maps.epoch());
            // This repeats the request even if the same one is pending.
            self.mon.unsubscribe("osdmap");
            self.ask_maps();
        }
        if !absorbed.maps.is_empty() {
            self.mon.got("osdmap", self.maps.epoch().0.into());
            self.new_maps(absorbed.maps, absorbed.records, absorbed.trim_below, now);
        }
        self.progress(now);
    }

    fn new_maps(&mut self, maps: Vec<Arc<OsdMap>>, records: Vec<Record>, trim_below: Epoch, now: Now) {
        let Some(last) = maps.last().cloned() else { return };
        let me = self.id.whoami;
        let was_active = self.phase == Phase::Active;
        for m in &maps {
            let shown_up = self.is_shown_up(m);
            match self.phase {
                // Also while syncing: if the session ended after the boot, this map is the only answer. It
                // can't show an earlier process, since the nonce of an address is drawn anew at each start.
                Phase::Booting | Phase::Syncing if shown_up && m.info(me).up_from.0 > 0 => {
                    if self.boot_epoch == Epoch(0) {
                        self.boot_epoch = m.epoch;
                    }
                    self.sb.mounted = m.epoch;
                    self.next_beacon = now.mono;
                    self.rejoin.came_up();
                    self.enter(Phase::Active);
                    // From now on every map is wanted, even if the answer to an earlier request is still to
                    // come.
                    self.version_req = None;
                    self.mon.subscribe("osdmap", u64::from(last.epoch.0) + 1, false);
                    tracing::info!(osd = me.0, epoch = m.epoch.0, "the OSD is up");
                }
                Phase::Active if !shown_up => self.wrongly_down(m, now),
                _ => {}
            }
            if self.phase == Phase::Active {
                self.sb.clean_thru = m.epoch;
            }
        }
        self.sb.current_epoch = last.epoch;
        self.sb.newest_map = last.epoch;
        self.sb.oldest_map = if self.sb.oldest_map == Epoch(0) { last.epoch } else { self.sb.oldest_map };
        self.sb.cluster_osdmap_trim_lower_bound = self.sb.cluster_osdmap_trim_lower_bound.max(trim_below);
        self.out.push_back(Output::Store { records, superblock: Box::new(self.sb.clone()), trim_below });
        if let Some(feed) = self.maps.feed() {
            self.out.push_back(Output::Publish { maps, feed });
        }
        let active = self.phase == Phase::Active;
        let up_from = if active { last.info(me).up_from } else { Epoch(0) };
        // Leases come after the maps: a grant counts only once its epoch is processed.
        self.leases.handle_map(&last, up_from, now);
        self.take_lease_outputs();
        self.hb.set_reporting(active);
        self.hb.handle_map(&last, active || self.rejoin.is_waiting());
        self.pg_temp.retain(|pg, want| {
            let shown = last.pg_temp.get(pg).map(Vec::as_slice).unwrap_or_default();
            let named = last.primary_temp.contains_key(pg);
            (shown != want.as_slice() || named) && last.pg_to_up_acting(*pg).acting_primary == me
        });
        self.release_creates(&last);
        if active && !was_active {
            // Requests that PGs made under maps that came before this OSD was active.
            self.ask_up_thru();
            self.send_pg_temp();
        }
        // A map older than the newest proves nothing: it may precede the creation of this OSD.
        if last.epoch < self.newest {
            return;
        }
        if !last.exists(me) && self.phase != Phase::Registering {
            self.exit(format!("map {} has no {me}: it was removed", last.epoch), now);
        } else if last.state(me) & osd_state::STOP != 0 {
            self.exit(format!("map {} tells {me} to stop", last.epoch), now);
        }
    }

    fn wrongly_down(&mut self, m: &OsdMap, now: Now) {
        let me = self.id.whoami;
        let silent = self.silent.values().next();
        if m.is_up(me) {
            tracing::error!(osd = me.0, epoch = m.epoch.0, "the map shows this OSD up with other addresses");
        } else if let Some(why) = silent {
            tracing::warn!(osd = me.0, epoch = m.epoch.0, why, "marked down; booting again when the device answers");
        } else {
            tracing::warn!(osd = me.0, epoch = m.epoch.0, "marked down although running; booting again");
        }
        if silent.is_none() {
            self.clog(prio::WARN, format!("Monitor daemon marked {me} down, but it is still running"), now);
        }
        let dead = MOsdMarkMeDead { paxos: m.epoch.into(), fsid: self.id.fsid, target_osd: me, epoch: m.epoch };
        self.mon.send_now(&dead);
        let pause = self.rejoin.marked_down(now);
        if !pause.is_zero() {
            tracing::warn!(osd = me.0, ?pause, "marked down repeatedly; waiting before the next boot");
        }
        self.start_sync(now);
    }

    /// Continues the boot if nothing is missing.
    fn progress(&mut self, now: Now) {
        if self.phase != Phase::Syncing || self.version_req.is_some() || !self.ready || self.is_silent() {
            return;
        }
        let Some(map) = self.maps.current().cloned() else { return };
        if map.epoch < self.newest {
            self.ask_maps();
            return;
        }
        let me = self.id.whoami;
        let noup = map.has_flag(map_flag::NOUP) || map.state(me) & osd_state::NOUP != 0;
        if noup || map.state(me) & osd_state::DESTROYED != 0 || !map.exists(me) {
            // The subscription brings the map that lifts this condition.
            self.ask_maps();
            return;
        }
        if !self.rejoin.may_boot(self.hb.health(now), &self.hb.missed(), now) {
            return;
        }
        self.send_boot();
        self.resubscribe_at = now.mono + RESUBSCRIBE;
        self.enter(Phase::Booting);
        self.ask_maps();
    }

    fn send_boot(&mut self) {
        let boot = MOsdBoot {
            paxos: self.maps.epoch().into(),
            sb: self.sb.clone(),
            hb_back_addrs: self.id.addrs.hb_back.clone(),
            cluster_addrs: self.id.addrs.cluster.clone(),
            boot_epoch: self.boot_epoch,
            hb_front_addrs: self.id.addrs.hb_front.clone(),
            metadata: self.id.metadata.clone(),
            osd_features: Features::PACIFIC.0 | self.id.peer_features.bits(),
        };
        self.mon.send_now(&boot);
    }

    fn send_beacon(&mut self, now: Now) {
        self.next_beacon = now.mono + BEACON_INTERVAL;
        let lec = if self.min_lec == Epoch(0) { self.maps.epoch() } else { self.min_lec };
        let b = MOsdBeacon {
            paxos: self.maps.epoch().into(),
            pgs: Vec::new(),
            min_last_epoch_clean: lec,
            last_purged_snaps_scrub: Utime::ZERO,
            osd_beacon_report_interval: BEACON_INTERVAL.as_secs() as i32,
        };
        self.mon.send_now(&b);
    }

    // --- PGs ---

    fn handle_creates(&mut self, m: MOsdPgCreate2) {
        self.creates_epoch = self.creates_epoch.max(m.epoch);
        self.mon.got("osd_pg_creates", m.epoch.0.into());
        for (pgid, stamp) in m.pgs {
            if self.creates.len() >= CREATES_MAX {
                // The monitor repeats creations that are not confirmed.
                tracing::warn!("too many PG creations at once; the rest follows");
                break;
            }
            let extra = m.pg_extra.get(&pgid).cloned();
            self.creates.insert(pgid, PgCreate { pgid, stamp, extra });
        }
        if let Some(map) = self.maps.current().cloned() {
            self.release_creates(&map);
        }
    }

    fn release_creates(&mut self, map: &OsdMap) {
        if !self.creates.is_empty() && map.epoch >= self.creates_epoch {
            let all = std::mem::take(&mut self.creates).into_values().collect();
            self.out.push_back(Output::Create(all));
        }
    }

    /// Handles a PG's request for a map with `up_thru` at `epoch` or later.
    pub fn want_up_thru(&mut self, epoch: Epoch) {
        self.want_up_thru = self.want_up_thru.max(epoch);
        self.ask_up_thru();
    }

    fn ask_up_thru(&mut self) {
        let Some(map) = self.maps.current() else { return };
        let have = map.info(self.id.whoami).up_thru;
        if self.phase == Phase::Active && have < self.want_up_thru && self.alive_sent < self.want_up_thru {
            let m = MOsdAlive { paxos: map.epoch.into(), want: self.want_up_thru };
            if self.mon.send_now(&m) {
                self.alive_sent = self.want_up_thru;
            }
        }
    }

    /// Reports a new PG to the monitor.
    pub fn pg_created(&mut self, pgid: PgId) {
        self.mon.send_now(&MOsdPgCreated { paxos: Epoch(0).into(), pgid });
    }

    /// Handles a PG that is clean and takes no writes, for a merge. The monitor is told once the PG it merges
    /// with is ready too.
    pub fn ready_to_merge(&mut self, pg: PgId, r: Ready) {
        let Some(map) = self.maps.current().cloned() else { return };
        self.to_merge.retain(|p, _| map.pool(p.pool).is_some_and(|p| p.pg_num_pending < p.pg_num));
        let (n, soon) = match map.pool(pg.pool) {
            Some(p) if p.pg_num_pending > 0 && p.pg_num_pending < p.pg_num => (p.pg_num, p.pg_num_pending),
            _ => return,
        };
        self.to_merge.insert(pg, r);
        let target = stable_mod(pg.seed, soon, pg_mask(soon));
        for seed in children(target, soon, n) {
            let (source, target) = (PgId { seed, ..pg }, PgId { seed: target, ..pg });
            if source != pg && target != pg {
                continue;
            }
            let (Some(s), Some(t)) = (self.to_merge.get(&source), self.to_merge.get(&target)) else { continue };
            self.mon.send_now(&MOsdPgReadyToMerge {
                paxos: s.epoch.min(t.epoch).into(),
                pgid: source,
                source_version: s.version,
                target_version: t.version,
                last_epoch_started: s.last_epoch_started.min(t.last_epoch_started),
                last_epoch_clean: s.last_epoch_clean.min(t.last_epoch_clean),
                ready: true,
            });
        }
    }

    /// Handles a PG that waits for a map.
    pub fn want_map(&mut self, epoch: Epoch) {
        if epoch > self.maps.epoch() && self.phase != Phase::Active {
            self.ask_maps();
        }
    }

    /// Handles a PG's request for a temporary acting set; an empty one withdraws it.
    pub fn want_pg_temp(&mut self, pg: PgId, osds: Vec<OsdId>) {
        self.pg_temp.insert(pg, osds);
        self.send_pg_temp();
    }

    fn send_pg_temp(&mut self) {
        let epoch = self.maps.epoch();
        if self.phase != Phase::Active || self.pg_temp.is_empty() {
            return;
        }
        let m = MOsdPgTemp { paxos: epoch.into(), map_epoch: epoch, pg_temp: self.pg_temp.clone(), forced: false };
        self.mon.send_now(&m);
    }

    // --- heartbeats and leases ---

    /// Heartbeat machine, for events of its links.
    pub fn heartbeats(&mut self) -> &mut Heartbeats {
        &mut self.hb
    }

    /// Sets the OSDs that share PGs with this one on a reactor, and those that share PGs led there.
    pub fn set_pg_peers(&mut self, reactor: usize, all: BTreeSet<OsdId>, led: BTreeSet<OsdId>, now: Now) {
        self.pg_peers.insert(reactor, (all, led));
        let Some(map) = self.maps.current().cloned() else { return };
        let all = self.pg_peers.values().flat_map(|(a, _)| a).copied().collect();
        let led: BTreeSet<OsdId> =
            self.pg_peers.values().flat_map(|(_, l)| l).copied().filter(|o| *o != self.id.whoami).collect();
        self.hb.set_pg_peers(all);
        self.hb.handle_map(&map, self.phase == Phase::Active || self.rejoin.is_waiting());
        self.leases.set_peers(&led, &map, now);
    }

    /// Handles the opened control lane to a peer.
    pub fn handle_lane_open(&mut self, osd: OsdId, now: Now) {
        self.leases.handle_open(osd, now);
    }

    /// Handles a peer's request for a lease. Returns the maps that the peer lacks, and the grant if it gets
    /// one.
    pub fn handle_lease_request(
        &mut self,
        from: OsdId,
        m: &MOsdLease,
        now: Now,
    ) -> (Option<MOsdMap>, Option<MOsdLease>) {
        let (Some(map), Some(feed)) = (self.maps.current().cloned(), self.maps.feed()) else { return (None, None) };
        let grant = self.leases.handle_request(from, m, &map, now);
        let maps = feed.share_steps(m.map_epoch).filter(|s| {
            let bytes = s.maps.values().chain(s.incremental_maps.values()).map(Bytes::len).sum::<usize>();
            bytes <= LEASE_MAPS_MAX && !acts(Bug::LeaseWithoutEpoch)
        });
        if m.map_epoch > map.epoch {
            self.want_map(m.map_epoch);
        }
        (maps, grant)
    }

    /// Handles a peer's grant of a lease.
    pub fn handle_lease_grant(&mut self, from: OsdId, m: &MOsdLease, now: Now) {
        self.leases.handle_grant(from, m, now);
    }

    // --- manager ---

    /// Handles the opened connection to the manager.
    pub fn handle_mgr_open(&mut self) {
        self.mgr.handle_open();
    }

    /// Handles the lost connection to the manager.
    pub fn handle_mgr_closed(&mut self, now: Now) {
        self.mgr.handle_closed(now);
    }

    /// Applies the manager's report interval.
    pub fn handle_mgr_configure(&mut self, m: &wire::msg::MMgrConfigure, now: Now) {
        self.mgr.handle_configure(m, now);
    }

    /// Makes the messages for the manager from the reports of all reactors. Also tells the monitor when the OSD
    /// becomes full.
    pub fn report(
        &mut self,
        mut s: Stats,
        min_last_epoch_clean: Epoch,
        now: Now,
    ) -> (wire::msg::MMgrReport, wire::msg::MPgStats) {
        self.min_lec = min_last_epoch_clean;
        s.hb_peers = self.hb.peers();
        s.hb_pingtime = self.hb.ping_times(now);
        self.judge_fullness(&s);
        let (fsid, epoch, up_from) = (self.id.fsid, self.maps.epoch(), self.up_from());
        self.mgr.report(s, fsid, epoch, up_from)
    }

    // --- cluster log ---

    /// Writes a line to the cluster log.
    pub fn clog(&mut self, prio: u16, msg: String, now: Now) {
        self.log_seq += 1;
        if self.log.len() >= LOG_ENTRIES_MAX {
            self.log.pop_front();
        }
        let me = self.id.whoami;
        self.log.push_back(LogEntry {
            name: base::AuthName { kind: base::EntityKind::OSD, id: me.0.to_string() },
            rank: base::EntityName::new(base::EntityKind::OSD, me.0.into()),
            addrs: self.id.addrs.public.clone(),
            stamp: now.wall,
            seq: self.log_seq,
            prio,
            msg: msg.into(),
            channel: "cluster".to_owned(),
        });
        self.send_log();
    }

    fn send_log(&mut self) {
        if !self.log.is_empty() {
            let m = MLog { fsid: self.id.fsid, entries: self.log.iter().cloned().collect(), ..MLog::default() };
            self.mon.send_now(&m);
        }
    }

    /// Number of this OSD.
    #[must_use]
    pub fn whoami(&self) -> OsdId {
        self.id.whoami
    }
}
