//! Surroundings of a machine: its name, its collection, and the services of its reactor.

use super::PgConfig;
use crate::lease::LeaseView;
use crate::meter::Meter;
use crate::pace::Pacer;
use crate::reserve::{Counted, Reserver};
use crate::shards::PeerId;
use base::{OsdId, ShardId, SpgId};
use std::rc::Rc;
use std::sync::Arc;
use store::{Cid, Tag};

/// Bits of a tag that number a machine's plans; the bits above are its index.
pub(super) const TAG_BITS: u32 = 40;

/// Name, collection and services of a machine. They do not depend on the interval.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Surroundings {
    cfg: PgConfig,
    cid: Cid,
    leases: Rc<LeaseView>,
    pacer: Rc<Pacer>,
    meter: Rc<Meter>,
    reserver: Counted,
    /// Number of the PG's reactor.
    reactor: usize,
}

impl Surroundings {
    pub(super) fn new(cfg: PgConfig) -> Self {
        Self {
            cfg,
            cid: Cid::Pg(cfg.spg),
            leases: Rc::default(),
            pacer: Rc::default(),
            meter: Rc::default(),
            reserver: Counted::default(),
            reactor: 0,
        }
    }

    /// Prefetches what every operation reads.
    #[inline]
    pub(super) fn prefetch(&self) {
        base::prefetch(&self.cfg.index);
    }

    /// The PG, with the shard of this copy.
    pub(super) fn spg(&self) -> SpgId {
        self.cfg.spg
    }

    /// This OSD.
    pub(super) fn whoami(&self) -> OsdId {
        self.cfg.whoami
    }

    /// Number of this machine among those that share a store.
    pub(super) fn index(&self) -> u32 {
        self.cfg.index
    }

    /// Seed for deterministic randomness.
    pub(super) fn seed(&self) -> u64 {
        self.cfg.seed
    }

    /// OSD and shard of this copy.
    pub(super) fn me(&self) -> PeerId {
        PeerId { osd: self.cfg.whoami, shard: self.cfg.spg.shard }
    }

    /// True if the PG's copies are shards.
    pub(super) fn is_coded(&self) -> bool {
        self.cfg.spg.shard != ShardId::NONE
    }

    /// Tag of a plan's requests to the store.
    pub(super) fn tag(&self, plan: u64) -> Tag {
        Tag(u64::from(self.cfg.index) << TAG_BITS | plan & ((1 << TAG_BITS) - 1))
    }

    /// Name of the PG's collection.
    pub(super) fn cid(&self) -> Cid {
        self.cid
    }

    /// Sets the name of the PG's collection.
    pub(super) fn set_cid(&mut self, cid: Cid) {
        self.cid = cid;
    }

    /// Leases among the OSDs.
    pub(super) fn leases(&self) -> &LeaseView {
        &self.leases
    }

    /// Pacer of background work and long calls.
    pub(super) fn pacer(&self) -> &Pacer {
        &self.pacer
    }

    /// Counters that the PGs of a reactor share.
    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// The OSD's reservations.
    pub(super) fn reserver(&self) -> &Counted {
        &self.reserver
    }

    /// Number of the PG's reactor.
    pub(super) fn reactor(&self) -> usize {
        self.reactor
    }

    pub(super) fn use_leases(&mut self, leases: Rc<LeaseView>) {
        self.leases = leases;
    }

    pub(super) fn use_pacer(&mut self, pacer: Rc<Pacer>) {
        self.pacer = pacer;
    }

    pub(super) fn use_meter(&mut self, meter: Rc<Meter>) {
        self.meter = meter;
    }

    pub(super) fn use_reserver(&mut self, reserver: Arc<Reserver>, reactor: usize) {
        self.reserver = reserver.count();
        self.reactor = reactor;
    }
}
