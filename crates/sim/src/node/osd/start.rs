//! The start of an OSD: its stores are opened, its maps loaded, and its machines made.

use super::copies::FailedCopies;
use super::device::DEVICE_TIMEOUT;
use super::fill::Filled;
use super::heartbeats::Links;
use super::versions::versions;
use super::{FAILED_PAUSE, OsdNode, Process, session};
use crate::net::{Card, Service};
use crate::node::fetch::{Fetcher, LOOP};
use crate::node::reactors::{Mailboxes, REACTORS_MAX, disk_id, store_id};
use crate::node::{FSID, Timer, addr};
use crate::queue::SEC;
use crate::world::{Ctx, Event};
use base::id::Uuid;
use base::{AddrVec, AuthName, EntityKind, EntityName, Epoch, OsdId};
use client::core::mon::MonSession;
use osd::core::compress::Defaults;
use osd::core::control::Control;
use osd::core::identity::{Addrs, Identity};
use osd::core::maps::MapHistory;
use osd::core::mapstore::{self, Stored};
use osd::core::moves::Moves;
use osd::core::peers::PeerTable;
use osd::core::reactor::{Common, Reactor};
use osd::core::unanswered::Forgotten;
use std::collections::BTreeMap;
use store::engine::Store;
use store::{ObjectStore as _, Tag};
use wire::msg::PeerFeatures;
use wire::types::OsdSuperblock;

impl OsdNode {
    /// Opens the store and starts a process.
    pub fn start(&mut self, cx: &mut Ctx) {
        let _at =
            tracing::info_span!(target: "at", "starts", t = cx.now() as f64 / SEC as f64, osd = self.osd.0).entered();
        if self.stuck.is_some() {
            // The start reads from the device.
            return cx.queue.after(FAILED_PAUSE, Event::Start(self.node));
        }
        let inc = cx.new_inc();
        let now = self.clock.now(cx.now());
        self.disk.write_error = None;
        if cx.options.osd.reactors_change {
            self.config.reactors = 1 + cx.rng.below(REACTORS_MAX.into()) as u16;
        }
        let Some(mut stores) = self.open_stores(cx) else { return };
        let Some((sb, mut maps, stored)) = self.load_maps(&mut stores, cx) else { return };
        maps.keep_recent(cx.options.osd.recent_maps);
        let nonce = inc as u32;
        let at = |port| AddrVec::from(addr(self.node, port, nonce));
        let addrs = Addrs { public: at(6800), cluster: at(6801), hb_back: at(6802), hb_front: at(6803) };
        let seed = cx.options.seed ^ inc << 20;
        let id = self.identity(sb.osd_fsid, addrs.clone(), cx);
        let session = MonSession::new(cx.mon_addrs(), seed, id.hostname.clone());
        let mut control = Control::new(id, session, maps, sb, seed);
        let n = stores.len();
        let seen = control.map().map_or(Epoch(0), |m| m.epoch);
        let reactors = self.start_reactors(stores, &mut control, &addrs.public, seed, cx);
        control.set_ready(now);
        self.listen(&addrs, inc, cx);
        self.process = Some(Process {
            inc,
            fetcher: self.fetcher(&control, nonce, n),
            control,
            reactors,
            mail: Mailboxes::new(n + 1),
            moves: Moves::new(n),
            stored,
            clients: BTreeMap::new(),
            forgotten: Forgotten::default(),
            answering: BTreeMap::new(),
            mon: None,
            mgr: None,
            links: Links::default(),
            peers: PeerTable::default(),
            timer: Timer::default(),
            next_tick: now.mono,
            clock: self.clock,
            seen,
            scrub_all: None,
            end: None,
            failed: false,
            failed_copies: FailedCopies::default(),
        });
        if let Some(p) = self.process.as_mut().filter(|_| self.filled == Filled::Before) {
            p.remove_filler();
        }
        self.timer(cx);
        self.turn(cx);
    }

    fn listen(&self, addrs: &Addrs, inc: u64, cx: &mut Ctx) {
        let services = [
            (&addrs.public, Service::Public),
            (&addrs.cluster, Service::Cluster),
            (&addrs.hb_back, Service::HbBack),
            (&addrs.hb_front, Service::HbFront),
        ];
        for (a, s) in services {
            if let Some(a) = a.msgr2() {
                cx.net.listen(a, self.node, inc, s);
            }
        }
    }

    /// Opens the stores of all reactors. A store that does not open is a violation.
    fn open_stores(&mut self, cx: &mut Ctx) -> Option<Vec<Store>> {
        match store::engine::open(&mut self.disk, &self.config) {
            Ok(s) => Some(s),
            Err(e) => {
                cx.violation(format!("{}: the store does not open: {e}", self.osd));
                None
            }
        }
    }

    /// Loads superblock and maps. Maps that do not load are a violation.
    fn load_maps(&mut self, stores: &mut [Store], cx: &mut Ctx) -> Option<(OsdSuperblock, MapHistory, Stored)> {
        let loaded = loop {
            match mapstore::load(&mut stores[0], Tag(1), FSID) {
                Err(store::ReadError::Wait) => self.settle(stores, cx),
                r => break r,
            }
        };
        stores[0].release(Tag(1));
        match loaded {
            Ok(Ok(l)) => Some(l),
            e => {
                cx.violation(format!("{}: its maps do not load: {:?}", self.osd, e.map(|r| r.err())));
                None
            }
        }
    }

    /// This OSD as it tells the monitors when it boots.
    fn identity(&self, osd_fsid: Uuid, addrs: Addrs, cx: &Ctx) -> Identity {
        let host = format!("h{}", self.osd.0);
        Identity {
            whoami: self.osd,
            fsid: FSID,
            osd_fsid,
            addrs,
            hostname: host.clone(),
            crush_weight: 1.0,
            device_class: "ssd".into(),
            crush_update_on_start: true,
            crush_location: vec![format!("host={host}"), "root=default".to_owned()],
            metadata: versions(self.is_newer(cx), &host),
            peer_features: if self.is_newer(cx) { PeerFeatures::of_mask(u64::MAX) } else { PeerFeatures::OURS },
        }
    }

    /// Makes the machines of all reactors, with the PGs in their stores.
    fn start_reactors(
        &mut self,
        mut stores: Vec<Store>,
        control: &mut Control,
        public: &AddrVec,
        seed: u64,
        cx: &Ctx,
    ) -> Vec<Reactor> {
        let now = self.clock.now(cx.now());
        let disk = &mut self.disk;
        let common = Common::survey(self.osd, &mut stores, |s| store::engine::device::drive(s, disk));
        let reserver = common.reserver();
        let n_log = cx.options.osd.log_records;
        let short =
            pg::keep::LogConfig { target: 0, min: n_log, max: n_log, dups: n_log, trim_min: 10, ..Default::default() };
        reserver.set_log(&short);
        reserver.set_sizes(cx.options.osd.sizes.0, cx.options.osd.sizes.1);
        if cx.options.rough.pieces {
            reserver.set_removal(&store::removal::Bounds { objects: 2, data: 64 << 10, keys: 100 });
        }
        let mut reactors = Vec::new();
        for (i, store) in stores.into_iter().enumerate() {
            let seed = seed ^ (i as u64) << 40;
            let mut r = common.reactor(i, store, seed, public.clone(), cx.options.osd.moves, DEVICE_TIMEOUT);
            let (pgs, store) = r.parts();
            pgs.set_walk_step(cx.options.osd.walk.0);
            // So that the calls of clients are long.
            pgs.set_part(pg::Room { entries: 1 + (cx.options.seed % 3) as usize, bytes: 1 << 10 });
            if cx.options.osd.compress {
                pgs.set_compression(compression(cx.options.seed, self.osd), store);
            }
            pgs.load(control.feed(), now, store);
            control.handle_report(i, r.pg_peers(), now);
            reactors.push(r);
        }
        reactors
    }

    /// The fetcher of copies, with the session that reactors of this OSD see.
    fn fetcher(&self, control: &Control, nonce: u32, reactors: usize) -> Fetcher {
        let own = Card {
            kind: EntityKind::OSD,
            name: AuthName { kind: EntityKind::OSD, id: self.osd.0.to_string() },
            entity: EntityName::new(EntityKind::OSD, self.osd.0.into()),
            addrs: AddrVec::from(addr(self.node, 6800, nonce)),
            global_id: 4000 + self.node as u64,
        };
        Fetcher::new(control.map().cloned(), session(LOOP, (LOOP % reactors as u64) as usize, own))
    }

    /// Runs the disk until the stores have no more requests; for the start, before the OSD serves.
    fn settle(&mut self, stores: &mut [Store], cx: &mut Ctx) {
        self.settle_all(&mut stores.iter_mut().collect::<Vec<_>>(), cx);
    }

    /// Runs the disk until these stores have no more requests.
    pub(super) fn settle_all(&mut self, stores: &mut [&mut Store], cx: &mut Ctx) {
        for (i, s) in stores.iter_mut().enumerate() {
            s.end_turn();
            while let Some(r) = s.poll_io() {
                self.disk.submit(disk_id(i, r));
            }
        }
        while let Some(c) = self.disk.step(&mut cx.disk_rng) {
            let (i, c) = store_id(c);
            if let Some(s) = stores.get_mut(i) {
                s.handle_io(c);
            }
        }
    }
}

/// Options of an OSD that compresses pools without options.
fn compression(seed: u64, osd: OsdId) -> Defaults {
    let n = seed.wrapping_add(osd.0 as u64);
    Defaults::take(|name| match name {
        "bluestore_compression_mode" => Some("force"),
        "bluestore_compression_algorithm" => Some(["lz4", "zstd", "snappy", "zlib"][n as usize % 4]),
        "bluestore_compression_min_blob_size" => Some("8K"),
        "bluestore_compression_max_blob_size" => Some(["16K", "64K"][n as usize / 4 % 2]),
        _ => None,
    })
}
