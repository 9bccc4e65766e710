//! The control machine, which makes an OSD a member of its cluster: boot, maps, reports, stopping.
//!
//! Phases: `Registering` (place in the CRUSH map) → `Syncing` (fetch maps) → `Booting` (OSD_BOOT sent) →
//! `Active` (the map shows us up with our addresses) → `Leaving`. A new monitor session, or a map that shows us
//! down, leads back to `Syncing`.
//!
//! The state is divided into parts, each with private fields in a file below `control/`. A part calls no other part.
//!
//! | module | contents |
//! | --- | --- |
//! | `beacon` | beacons, by which the monitors see that this OSD is alive |
//! | `boot` | boot of an OSD: its place in the CRUSH map, and OSD_BOOT once nothing is missing |
//! | `fullness` | how full this OSD is, as the monitors are told |
//! | `leave` | the end of an OSD: by order, by the map, or because its store failed |
//! | `log` | lines for the cluster log, which are sent until the monitor has them |
//! | `manager` | reports to the manager, and what they are made of |
//! | `maps` | new maps: they are stored and published in order, and show whether this process is up |
//! | `peers` | other OSDs: those that share PGs with this one are watched, and leases are asked of them |
//! | `pgs` | requests of PGs to the monitors (`up_thru`, acting sets, merges), and PGs to create |
//! | `report` | reports of reactors to the control machine |
//! | `silent` | a device that does not answer: the monitors are told, and the OSD does not boot |
//! | `sync` | requests for maps up to the newest one that the monitor has |
//!
//! Invariants:
//!  1. Maps are published in order, each once.
//!  2. OSD_BOOT is sent only when the newest map known to the monitor has been applied.
//!  3. PGs are created only after the map of their creation has been published.
//!  4. OSD_BOOT is sent only when the OSD can authenticate peers.
//!
//! Tests: `tests/boot.rs`.

mod beacon;
mod boot;
mod fullness;
mod leave;
mod log;
mod manager;
mod maps;
mod peers;
mod pgs;
mod report;
mod silent;
mod sync;

use self::beacon::Beacon;
use self::boot::Boot;
use self::fullness::Fullness;
use self::leave::Leave;
use self::log::ClusterLog;
use self::peers::PgPeers;
use self::pgs::{Creates, Requests};
use self::silent::Silence;
use self::sync::Sync;
use super::heartbeat::{self, Heartbeats};
use super::identity::Identity;
use super::lease::{self, Leases};
use super::maps::{MapFeed, MapHistory, Record, Source};
use super::mgr::{self, MgrReporter};
use super::pgs::Input;
use super::rejoin::Rejoin;
use base::{Epoch, Mono, Now, OsdId, SpgId};
use client::core::mon::{self, MonSession};
use cluster::OsdMap;
pub use report::Report;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::{MConfig, MLogAck, MMgrMap, MOsdMap, MOsdMarkMeDown, MOsdPgCreate2};
use wire::types::{OsdSuperblock, PgCreateExtra, PgCreateStamp};
use wire::{Features, Message, WireMessage as _};

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

impl Output {
    /// The input by which all reactors learn of this, if they do.
    #[must_use]
    pub fn input(&self) -> Option<Input> {
        match self {
            Self::Publish { maps, feed } => Some(Input::Maps(maps.clone(), feed.clone())),
            Self::Create(pgs) => Some(Input::Create(pgs.clone())),
            Self::Lease(o) => o.news().map(Input::Lease),
            Self::Stop { abandon } => Some(Input::Stop { abandon: *abandon }),
            _ => None,
        }
    }
}

/// Control machine of an OSD; see the module.
pub struct Control {
    id: Identity,
    phase: Phase,
    out: VecDeque<Output>,
    mon: MonSession,
    maps: MapHistory,
    sb: OsdSuperblock,
    boot: Boot,
    sync: Sync,
    rejoin: Rejoin,
    leave: Leave,
    silence: Silence,
    fullness: Fullness,
    beacon: Beacon,
    hb: Heartbeats,
    leases: Leases,
    pg_peers: PgPeers,
    requests: Requests,
    creates: Creates,
    mgr: MgrReporter,
    log: ClusterLog,
}

impl Control {
    /// Creates the machine from the state in the store.
    #[must_use]
    pub fn new(id: Identity, mon: MonSession, maps: MapHistory, sb: OsdSuperblock, seed: u64) -> Self {
        let (whoami, fsid) = (id.whoami, id.fsid);
        Self {
            id,
            phase: Phase::Registering,
            out: VecDeque::new(),
            mon,
            maps,
            sb,
            boot: Boot::default(),
            sync: Sync::default(),
            rejoin: Rejoin::default(),
            leave: Leave::default(),
            silence: Silence::default(),
            fullness: Fullness::default(),
            beacon: Beacon::default(),
            hb: Heartbeats::new(whoami, fsid, seed),
            leases: Leases::new(fsid),
            pg_peers: PgPeers::default(),
            requests: Requests::default(),
            creates: Creates::default(),
            mgr: MgrReporter::new(whoami),
            log: ClusterLog::default(),
        }
    }

    /// Number of this OSD.
    #[must_use]
    pub fn whoami(&self) -> OsdId {
        self.id.whoami
    }

    /// Newest map.
    #[must_use]
    pub fn map(&self) -> Option<&Arc<OsdMap>> {
        self.maps.current()
    }

    /// Oldest stored map.
    #[must_use]
    pub fn oldest_map(&self) -> Epoch {
        self.sb.oldest_map
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

    /// Feed of the restored map, for the reactors at start.
    #[must_use]
    pub fn feed(&self) -> Option<Arc<MapFeed>> {
        self.maps.feed()
    }

    /// Session with the monitor, for messages of the host (ticket renewals).
    pub fn mon(&mut self) -> &mut MonSession {
        &mut self.mon
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

    /// Time of the next [`Control::tick`] with work to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        let own = match self.phase {
            Phase::Active => Some(self.beacon.next()),
            Phase::Syncing | Phase::Booting => Some(self.sync.resubscribe_at()),
            Phase::Leaving => self.leave.deadline(),
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
            Phase::Active if now.mono >= self.beacon.next() => self.send_beacon(now),
            Phase::Syncing | Phase::Booting if now.mono >= self.sync.resubscribe_at() => {
                self.sync.put_off(now);
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
            mon::Event::Version { tid, newest, oldest } => self.version_known(tid, newest, oldest, now),
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
        self.requests.forget_sent();
        match self.phase {
            Phase::Registering if !self.boot.is_placed() => self.begin_placement(now),
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
                self.log.acknowledge(a.last);
                self.leave_if_told();
            }
            MOsdMarkMeDown::KIND => {
                self.leave_acknowledged();
            }
            _ => self.out.push_back(Output::Message(m)),
        }
        Ok(())
    }
}
