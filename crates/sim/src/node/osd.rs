//! An OSD's host: control machine, and PGs and production store of each reactor, all on one simulated disk.
//!
//! Each input is one turn of the loop: the machines run until they have no more outputs, then the stores' frames
//! close and their requests go to the disk. The map is shared with clients that are behind, as in the real host.
//! Messages between reactors ([`super::reactors`]) wait in mailboxes for a while.
//!
//! | module | contents |
//! | --- | --- |
//! | `arrivals` | arrivals at an OSD from the network |
//! | `clients` | operations of clients between their connections and the PGs |
//! | `control` | outputs of an OSD's control machine |
//! | `copies` | copies of PGs that failed: those that the run made fail, and others |
//! | `device` | a device that does not answer, and the OSD's watch over it |
//! | `fill` | a foreign object that fills an OSD's store |
//! | `heartbeats` | heartbeat links of an OSD to its peers, on which leases are asked for, too |
//! | `inner` | messages between an OSD's reactors and its control machine |
//! | `others` | messages of an OSD's PGs to other OSDs, and the checks on their way |
//! | `outputs` | outputs of a reactor's PGs |
//! | `start` | the start of an OSD: its stores are opened, its maps loaded, and its machines made |
//! | `turn` | a turn of an OSD: an input, the outputs of all machines, then the disk requests of the stores |
//! | `versions` | the versions that an OSD announces: those of this build, or of a made-up newer one |

use self::clients::Client;
use self::copies::FailedCopies;
use self::device::Stuck;
use self::fill::Filled;
use self::heartbeats::Links;
use super::fetch::Fetcher;
use super::reactors::Mailboxes;
use super::{FSID, Timer};
use crate::net::{Card, ConnKey, NodeId};
use crate::queue::{SEC, Time};
use crate::world::{Clock, Ctx};
use auth::Principal;
use base::id::Uuid;
use base::{Epoch, Mono, OsdId, PgId};
use bytes::Bytes;
use cluster::caps::OsdCaps;
use net::ConnId;
use osd::core::control::{Control, Phase};
use osd::core::mapstore::{self, Stored};
use osd::core::moves::Moves;
use osd::core::peers::PeerTable;
use osd::core::reactor::Reactor;
use osd::core::session::{SessionInfo, owner_of, session_id};
use osd::core::unanswered::Forgotten;
use std::collections::BTreeMap;
use store::engine::{Config, FormatOptions, Store};
use store::testing::disk::SimDisk;
use store::{ObjectStore as _, Tag};
use wire::Features;
use wire::msg::MPgPeer;
use wire::types::OsdSuperblock;

mod arrivals;
mod clients;
mod control;
mod copies;
mod device;
mod fill;
mod heartbeats;
mod inner;
mod others;
mod outputs;
mod start;
mod turn;
mod versions;

/// Longest time of a disk request. The watch over silent devices counts only those of a stuck one. On a slow disk pending requests end soon after
/// it is fast again.
const DISK_MAX: Time = 30 * SEC;

/// Time after which an OSD with a failed store is restarted.
const FAILED_PAUSE: Time = 10 * SEC;

/// A deep scrub of all PGs that an OSD leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubAll {
    /// Only report errors.
    Look,
    /// Repair errors too.
    Repair,
}

/// A running OSD process.
pub struct Process {
    pub(super) inc: u64,
    pub(super) control: Control,
    pub(super) reactors: Vec<Reactor>,
    pub(super) fetcher: Fetcher,
    mail: Mailboxes,
    moves: Moves,
    stored: Stored,
    clients: BTreeMap<ConnKey, Client>,
    /// Bytes of clients' unanswered operations that no longer count for their connection.
    forgotten: Forgotten,
    answering: BTreeMap<ConnKey, OsdId>,
    mon: Option<ConnKey>,
    mgr: Option<ConnKey>,
    links: Links,
    peers: PeerTable<ConnKey, ()>,
    timer: Timer,
    next_tick: Mono,
    clock: Clock,
    /// The newest map that the host published.
    seen: Epoch,
    /// The deep scrub that all PGs led here still have to begin.
    pub scrub_all: Option<ScrubAll>,
    end: Option<&'static str>,
    /// True if the store failed.
    pub failed: bool,
    failed_copies: FailedCopies,
}

/// An OSD of the run.
pub struct OsdNode {
    /// The node's clocks.
    pub clock: Clock,
    /// The OSD's number.
    pub osd: OsdId,
    /// The node's index in the world.
    pub node: NodeId,
    /// The OSD's disk.
    pub disk: SimDisk,
    /// The running process.
    pub process: Option<Process>,
    /// Factor by which the disk is slower than usual.
    pub slow_disk: u64,
    /// Number of disk requests after whose completion the process dies; true for a power cut.
    pub crash_in: Option<(u64, bool)>,
    die: Option<(bool, Time)>,
    /// The requests that wait while the device does not answer.
    stuck: Option<Stuck>,
    config: Config,
    bytes: u64,
    filled: Filled,
}

fn osd_fsid(osd: OsdId) -> Uuid {
    Uuid([osd.0 as u8 + 1; 16])
}

/// The uuid with which an OSD is registered.
#[must_use]
pub fn uuid(osd: OsdId) -> Uuid {
    osd_fsid(osd)
}

impl OsdNode {
    /// A new OSD with a formatted disk.
    ///
    /// # Panics
    /// If a blank disk cannot be formatted.
    #[must_use]
    pub fn new(clock: Clock, osd: OsdId, bytes: u64, config: Config, first_fsid: Uuid) -> Self {
        let mut disk = SimDisk::new(bytes);
        let o = FormatOptions { uuid: osd_fsid(osd), reactors: config.reactors, labels: BTreeMap::new() };
        store::engine::format(&mut disk, &o).expect("a blank disk");
        let mut stores = store::engine::open(&mut disk, &config).expect("a fresh store");
        let mut store = stores.remove(0);
        let sb = OsdSuperblock {
            cluster_fsid: first_fsid,
            osd_fsid: osd_fsid(osd),
            whoami: osd,
            ..OsdSuperblock::default()
        };
        store.submit(Tag(1), mapstore::first_transaction(&sb));
        store::engine::device::drive(&mut store, &mut disk);
        drop((store, stores));
        Self {
            clock,
            osd,
            node: osd.0 as usize + 1,
            disk,
            process: None,
            slow_disk: 1,
            crash_in: None,
            die: None,
            stuck: None,
            config,
            bytes,
            filled: Filled::Never,
        }
    }

    /// First block of the disk that may hold object data.
    #[must_use]
    pub fn space_start(&self) -> u64 {
        store::layout::Layout::of(self.bytes).map_or(u64::MAX, |l| l.space_start)
    }

    /// Number of the running process.
    #[must_use]
    pub fn inc(&self) -> Option<u64> {
        self.process.as_ref().map(|p| p.inc)
    }

    /// The death that the process must suffer now: true for a power cut, and the time until the next start.
    pub fn wants_to_die(&mut self) -> Option<(bool, Time)> {
        if let Some(p) = &self.process
            && p.end.is_some()
        {
            // An OSD with a failed store is restarted after a pause.
            return Some((false, if p.control.failure().is_some() { FAILED_PAUSE } else { SEC }));
        }
        self.die.take()
    }

    /// Kills the process. The disk keeps what survives a kill or a power cut.
    pub fn crash(&mut self, power: bool, cx: &mut Ctx) {
        self.process = None;
        self.crash_in = None;
        self.die = None;
        self.stuck.as_mut().into_iter().for_each(Stuck::ended);
        let disk = std::mem::replace(&mut self.disk, SimDisk::new(0));
        self.disk = if power { disk.after_power_cut(&mut cx.disk_rng) } else { disk.after_kill(&mut cx.disk_rng) };
    }

    /// Begins an orderly stop.
    pub fn stop(&mut self, cx: &mut Ctx) {
        let now = self.clock.now(cx.now());
        if let Some(p) = &mut self.process {
            p.control.leave(now);
        }
        self.turn(cx);
    }

    /// Reverts unfound objects of PGs led here (`mark_unfound_lost revert`), or deletes them if the pool is
    /// erasure-coded. Returns the names of those objects.
    pub fn revert_unfound(&mut self, cx: &mut Ctx) -> Vec<Bytes> {
        let now = self.clock.now(cx.now());
        let mut names = Vec::new();
        for r in self.process.iter_mut().flat_map(|p| &mut p.reactors) {
            let mut led: Vec<PgId> = Vec::new();
            for p in r.pgs().iter().filter(|p| p.is_primary()) {
                names.extend(p.unfound_objects().into_iter().map(|(h, _)| h.oid));
                led.push(p.spg().pg);
            }
            for pg in led {
                // Shards have no older version to revert to.
                let revert = cx.options.pool.code.is_none();
                let (pgs, store) = r.parts();
                let said = pgs.mark_lost(pg, revert, now, store);
                cx.line(|| format!("{}: mark_unfound_lost of {pg}: {said:?}", self.osd));
            }
        }
        self.turn(cx);
        names
    }

    /// Makes one copy of a PG fail (chosen by `which`), or all of them. False if there is none.
    pub fn fail_copies(&mut self, which: Option<u64>, cx: &mut Ctx) -> bool {
        let now = self.clock.now(cx.now());
        let Some(p) = &mut self.process else { return false };
        let serves = |p: &&pg::Pg| p.is_active() || *p.state() == pg::State::ReplicaActive;
        let all: Vec<(usize, PgId)> = (0..)
            .zip(&p.reactors)
            .flat_map(|(i, r)| r.pgs().iter().filter(serves).map(move |p| (i, p.spg().pg)).collect::<Vec<_>>())
            .collect();
        let chosen = match which {
            Some(n) => all.get((n % all.len().max(1) as u64) as usize).copied().into_iter().collect(),
            None => all,
        };
        for (i, pg) in &chosen {
            p.failed_copies.note_made(*pg);
            if let Some(r) = p.reactors.get_mut(*i) {
                let (pgs, store) = r.parts();
                pgs.withdraw(*pg, base::errno::EIO, "the simulator wants it", now, store);
            }
        }
        self.turn(cx);
        !chosen.is_empty()
    }

    /// Reads from the running store of a PG, and runs the disk until the result is there; for the end of a run.
    pub fn look<T>(
        &mut self,
        pg: PgId,
        cx: &mut Ctx,
        mut f: impl FnMut(&mut Store) -> Result<T, store::ReadError>,
    ) -> Result<T, store::ReadError> {
        let Some(mut p) = self.process.take() else { return Err(store::ReadError::NoObject) };
        let i = p.reactors.iter().position(|r| r.pgs().pg(pg).is_some()).unwrap_or(0);
        let r = loop {
            match f(p.reactors[i].store_mut()) {
                Err(store::ReadError::Wait) => {
                    let mut all: Vec<&mut Store> = p.reactors.iter_mut().map(Reactor::store_mut).collect();
                    self.settle_all(&mut all, cx);
                }
                r => break r,
            }
        };
        p.reactors[i].store_mut().release(crate::compare::TAG);
        self.process = Some(p);
        r
    }
}

fn session(k: ConnKey, reactor: usize, c: Card) -> SessionInfo {
    let nobody = Principal::nobody(([127, 0, 0, 1], 1).into());
    let principal = Principal { name: c.name, kind: c.kind, global_id: c.global_id, ..nobody };
    SessionInfo {
        id: session_id(reactor, ConnId::from_packed(k)),
        reactor,
        conn: ConnId(k),
        entity: principal.entity(c.entity.num),
        owner: owner_of(&principal),
        principal,
        addr: c.addrs.0.first().copied().unwrap_or_default(),
        features: Features::PACIFIC,
        caps: OsdCaps::allow_all(),
    }
}

impl Process {
    fn position(&self) -> (Epoch, Epoch) {
        (self.control.map().map_or(Epoch(0), |m| m.epoch), self.control.up_from())
    }

    /// Epoch of the OSD's newest map.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.position().0
    }

    /// Space of the first reactor's store.
    #[must_use]
    pub fn statfs(&self) -> Option<store::Statfs> {
        self.reactors.first().map(|r| r.store().statfs())
    }

    /// Phase of the control machine.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.control.phase()
    }

    /// All PGs of the OSD.
    pub fn pgs(&self) -> impl Iterator<Item = &pg::Pg> {
        self.reactors.iter().flat_map(|r| r.pgs().iter())
    }

    /// A copy of a PG; if this OSD has several shards of it, any of them.
    #[must_use]
    pub fn pg(&self, pg: PgId) -> Option<&pg::Pg> {
        self.reactors.iter().find_map(|r| r.pgs().pg(pg))
    }

    /// The PG's machine that is primary in that map, if it is here. The OSD may also have other shards of the PG as
    /// strays.
    #[must_use]
    pub fn led(&self, map: &cluster::OsdMap, pg: PgId) -> Option<&pg::Pg> {
        let spg = map.primary_shard(pg);
        self.pgs().find(|p| p.spg() == spg)
    }

    /// The reactor that has a connection.
    fn at(&self, k: ConnKey) -> usize {
        (k % self.reactors.len() as u64) as usize
    }

    /// Handles a message of another OSD on a connection of reactor `at`.
    fn peer_message(&mut self, at: usize, from: OsdId, m: Box<MPgPeer>, node: NodeId, now: base::Now, cx: &mut Ctx) {
        let Some(r) = self.reactors.get_mut(at) else { return };
        if let Some((to, input)) = r.take_peer(from, m, now) {
            self.post(to, input, node, now, cx);
        }
    }

    /// True if the store or the copy of a PG failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed || self.pgs().any(pg::Pg::has_failed)
    }
}
