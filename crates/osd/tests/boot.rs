//! Tests that an OSD joins a cluster as a monitor expects, and again after the monitor or the map loses it.
//!
//! The control machine runs against a scripted monitor: no sockets, no clock.

use base::id::Uuid;
use base::{AddrVec, EntityAddr, Epoch, Mono, Now, OsdId, Utime};
use client::core::mon::{MonSession, Output as MonOutput};
use cluster::osdmap::map_flag;
use cluster::{Incremental, MonMap, OsdMap};
use osd::core::control::{Control, Output, Phase};
use osd::core::identity::{Addrs, Identity};
use osd::core::maps::{MapHistory, Source};
use std::collections::BTreeMap;
use wire::msg::*;
use wire::types::OsdSuperblock;
use wire::{Encode as _, Features, Message, WireMessage};

const FSID: Uuid = Uuid([7; 16]);
const ME: OsdId = OsdId(0);

fn addr(port: u16) -> AddrVec {
    EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 77).into()
}

fn addrs() -> Addrs {
    Addrs { public: addr(1), cluster: addr(2), hb_back: addr(3), hb_front: addr(4) }
}

/// State of the scripted monitor.
struct Monitor {
    maps: Vec<(OsdMap, bytes::Bytes)>,
}

impl Monitor {
    fn new() -> Self {
        let mut m = OsdMap { fsid: FSID, epoch: Epoch(1), flags: map_flag::SORTBITWISE, ..OsdMap::default() };
        m.set_max_osd(1).unwrap();
        let (full, _) = m.encode_blob(Features::PACIFIC);
        let mut me = Self { maps: vec![(m, full)] };
        me.commit(|i| {
            i.new_state.insert(ME, cluster::osdmap::osd_state::EXISTS);
        });
        me
    }

    fn newest(&self) -> &OsdMap {
        &self.maps.last().unwrap().0
    }

    fn commit(&mut self, change: impl FnOnce(&mut Incremental)) {
        let last = self.newest();
        let mut inc = Incremental::new(FSID, last.epoch.next(), Utime { sec: last.epoch.0, nsec: 0 });
        change(&mut inc);
        let next = last.apply(&inc).unwrap();
        let (_, crc) = next.encode_blob(Features::PACIFIC);
        let blob = inc.encode_blob(Features::PACIFIC, crc);
        self.maps.push((next, blob));
    }

    fn up(&mut self) {
        self.commit(|i| {
            i.new_up_client.insert(ME, addrs().public);
            i.new_up_cluster.insert(ME, addrs().cluster);
            i.new_hb_back_up.insert(ME, addrs().hb_back);
            i.new_hb_front_up.insert(ME, addrs().hb_front);
        });
    }

    fn maps_from(&self, start: u64) -> MOsdMap {
        let mut m = MOsdMap { fsid: FSID, newest_map: self.newest().epoch, ..MOsdMap::default() };
        if start <= 1 {
            m.maps.insert(Epoch(1), self.maps[0].1.clone());
        }
        for (map, blob) in self.maps.iter().skip(1).filter(|(m, _)| u64::from(m.epoch.0) >= start) {
            m.incremental_maps.insert(map.epoch, blob.clone());
        }
        m
    }
}

struct World {
    mon: Monitor,
    osd: Control,
    now: Now,
    connected: bool,
    /// Names of the messages that the OSD sent, and of other outputs.
    seen: Vec<String>,
    /// Start of the OSD's permanent subscription to maps.
    follows: Option<u64>,
    /// Number of boots that the monitor drops.
    deaf_to_boots: usize,
    /// True if the oldest map comes in a separate message, as after trimming.
    oldest_alone: bool,
}

fn control(seed: u64) -> Control {
    let id = Identity {
        whoami: ME,
        fsid: FSID,
        osd_fsid: Uuid([9; 16]),
        addrs: addrs(),
        hostname: "h".into(),
        crush_weight: 1.0,
        device_class: "ssd".into(),
        crush_update_on_start: true,
        peer_features: PeerFeatures::OURS,
        crush_location: vec!["host=h".into(), "root=default".into()],
        metadata: BTreeMap::new(),
    };
    let mon = MonSession::new(vec![EntityAddr::msgr2(([127, 0, 0, 1], 9).into(), 0)], 0, "h".into());
    let sb = OsdSuperblock { cluster_fsid: FSID, whoami: ME, ..OsdSuperblock::default() };
    Control::new(id, mon, MapHistory::new(FSID), sb, seed)
}

impl World {
    fn new() -> Self {
        let mut w = Self {
            mon: Monitor::new(),
            osd: control(1),
            now: Now { mono: Mono(1_000_000_000), wall: Utime { sec: 100, nsec: 0 } },
            connected: false,
            seen: Vec::new(),
            follows: None,
            deaf_to_boots: 0,
            oldest_alone: false,
        };
        w.osd.set_ready(w.now);
        w
    }

    fn reply(&mut self, m: &impl WireMessage, tid: u64) {
        let mut m = m.to_message(Features::PACIFIC);
        m.header.tid = tid;
        self.osd.handle_mon_message(m).unwrap();
    }

    /// Answers all messages of the OSD until it is quiet.
    fn run(&mut self) {
        // Twice, for work that is due right after the first answers.
        for _ in 0..2 {
            self.osd.tick(self.now);
            self.drain();
        }
    }

    fn drain(&mut self) {
        while let Some(o) = self.osd.poll_output(self.now) {
            match o {
                Output::Mon(MonOutput::Connect(_)) => {
                    self.connected = true;
                    self.seen.push("connect".into());
                    self.osd.handle_mon_open(Features::PACIFIC);
                }
                Output::Mon(MonOutput::Send(m)) => self.answer(&m),
                Output::Phase(p) => self.seen.push(format!("{p:?}")),
                Output::Publish { maps, .. } => {
                    let e: Vec<u32> = maps.iter().map(|m| m.epoch.0).collect();
                    self.seen.push(format!("maps {e:?}"));
                }
                Output::Create(c) => self.seen.push(format!("create {}", c.len())),
                Output::Exit(why) => self.seen.push(format!("exit: {why}")),
                Output::Stop { abandon } => self.seen.push(if abandon { "abandon" } else { "stop" }.into()),
                _ => {}
            }
        }
    }

    fn answer(&mut self, m: &Message) {
        match m.header.kind {
            MMonGetMap::KIND => {
                let map = MonMap { fsid: FSID, epoch: Epoch(1), ..MonMap::default() };
                self.reply(&MMonMap { monmapbl: map.to_bytes(Features::PACIFIC) }, 0);
            }
            MMonCommand::KIND => {
                let c = MMonCommand::from_message(m).unwrap();
                let prefix = c.cmd[0].0.split('"').nth(3).unwrap().to_owned();
                self.seen.push(prefix);
                self.reply(&MMonCommandAck { cmd: c.cmd, ..MMonCommandAck::default() }, m.header.tid);
            }
            MMonGetVersion::KIND => {
                let v = MMonGetVersion::from_message(m).unwrap();
                let r = MMonGetVersionReply {
                    handle: v.handle,
                    version: self.mon.newest().epoch.0.into(),
                    oldest_version: 1,
                };
                self.reply(&r, 0);
            }
            MMonSubscribe::KIND => {
                let s = MMonSubscribe::from_message(m).unwrap();
                if let Some(i) = s.what.get("osdmap") {
                    let mut maps = self.mon.maps_from(i.start);
                    if self.oldest_alone && !maps.maps.is_empty() {
                        let oldest = MOsdMap { incremental_maps: BTreeMap::new(), ..maps.clone() };
                        self.reply(&oldest, 0);
                        maps.maps.clear();
                    }
                    self.follows = (!i.is_onetime()).then_some(i.start);
                    if i.start <= u64::from(self.mon.newest().epoch.0) {
                        self.reply(&maps, 0);
                    }
                }
            }
            MOsdBoot::KIND => {
                let b = MOsdBoot::from_message(m).unwrap();
                self.seen.push(format!("boot at {} boot_epoch {}", b.paxos.version, b.boot_epoch));
                if self.deaf_to_boots > 0 {
                    self.deaf_to_boots -= 1;
                    return;
                }
                if !self.mon.newest().is_up(ME) {
                    self.mon.up();
                }
                if b.paxos.version == u64::from(self.mon.newest().epoch.0) {
                    return;
                }
                let maps = self.mon.maps_from(b.paxos.version + 1);
                self.reply(&maps, 0);
            }
            MOsdMarkMeDown::KIND => {
                let d = MOsdMarkMeDown::from_message(m).unwrap();
                self.seen.push(if d.down_and_dead { "down and dead" } else { "down" }.into());
            }
            kind => self.seen.push(registry::name(kind).into()),
        }
    }

    fn later(&mut self, ms: u64) {
        self.now.mono = self.now.mono + std::time::Duration::from_millis(ms);
        self.run();
    }

    fn push(&mut self) {
        let maps = self.mon.maps_from(self.mon.newest().epoch.0.into());
        self.reply(&maps, 0);
        self.run();
    }

    fn take_seen(&mut self) -> Vec<String> {
        std::mem::take(&mut self.seen)
    }
}

#[test]
fn first_boot() {
    let mut w = World::new();
    w.run();
    let order = [
        "connect",
        "osd crush set-device-class",
        "osd crush create-or-move",
        "Syncing",
        "maps [1, 2]",
        "Booting",
        "boot at 2 boot_epoch 0",
        "Active",
        "maps [3]",
        "osd_beacon",
    ];
    assert_eq!(w.take_seen(), order);
    assert_eq!(w.osd.phase(), Phase::Active);
    assert_eq!(w.osd.up_from(), Epoch(3));
    assert_eq!(w.follows, Some(4), "an active OSD follows every map");
}

#[test]
fn an_osd_that_cannot_check_tickets_does_not_boot() {
    let mut w = World::new();
    w.osd = control(1);
    w.run();
    assert_eq!(w.osd.phase(), Phase::Syncing);
    w.osd.set_ready(w.now);
    w.run();
    assert_eq!(w.osd.phase(), Phase::Active);
}

#[test]
fn an_osd_wrongly_marked_down_boots_again() {
    let mut w = World::new();
    w.run();
    w.take_seen();
    w.mon.commit(|i| {
        i.new_state.insert(ME, cluster::osdmap::osd_state::UP);
    });
    w.push();
    let seen = w.take_seen();
    assert!(seen.iter().any(|s| s == "MOSDMarkMeDead"), "{seen:?}");
    assert!(seen.iter().any(|s| s == "boot at 4 boot_epoch 3"), "{seen:?}");
    assert_eq!(w.osd.phase(), Phase::Active);
}

#[test]
fn noup_delays_the_boot() {
    let mut w = World::new();
    w.mon.commit(|i| i.new_flags = (map_flag::SORTBITWISE | map_flag::NOUP) as i32);
    w.run();
    assert_eq!(w.osd.phase(), Phase::Syncing);
    assert!(!w.take_seen().iter().any(|s| s.starts_with("boot")));
    w.mon.commit(|i| i.new_flags = map_flag::SORTBITWISE as i32);
    w.push();
    assert_eq!(w.osd.phase(), Phase::Active);
}

/// An OSD whose first boot the monitor did not answer.
fn unanswered() -> World {
    let mut w = World::new();
    w.deaf_to_boots = 1;
    w.run();
    assert_eq!(w.osd.phase(), Phase::Booting);
    w
}

#[test]
fn a_boot_that_the_monitor_dropped_is_repeated() {
    // Found by the simulator (seed 1012): `noup` was set while the boot was in flight.
    let mut w = unanswered();
    w.now.mono = w.osd.next_deadline().unwrap();
    w.run();
    assert_eq!(w.osd.phase(), Phase::Active);
}

#[test]
fn a_boot_whose_session_ended_takes_effect_in_the_next_session() {
    // Found by the simulator (seed 80039406): the map that shows the OSD up came while it asked for maps again.
    let mut w = unanswered();
    w.mon.up();
    w.osd.handle_mon_closed(w.now);
    w.osd.want_up_thru(Epoch(3));
    w.now.mono = w.now.mono + std::time::Duration::from_secs(10);
    w.take_seen();
    w.run();
    assert_eq!(w.osd.phase(), Phase::Active, "{:?}", w.seen);
    let seen = w.take_seen();
    assert!(!seen.iter().any(|s| s.starts_with("boot")), "{seen:?}");
    assert!(seen.contains(&"osd_alive".to_owned()), "what a PG asked for meanwhile: {seen:?}");
    assert_eq!(w.follows, Some(4), "the answer to what it had asked before doesn't end that");
}

#[test]
fn a_removed_osd_ends() {
    let mut w = World::new();
    w.run();
    w.mon.commit(|i| {
        i.new_state.insert(ME, cluster::osdmap::osd_state::EXISTS | cluster::osdmap::osd_state::UP);
    });
    w.push();
    assert!(w.take_seen().iter().any(|s| s.starts_with("exit")));
}

/// The monitor's oldest map may precede the OSD, if the OSD is new or has a new disk.
#[test]
fn an_osd_missing_in_old_maps_boots() {
    let mut w = World::new();
    w.oldest_alone = true;
    w.run();
    let seen = w.take_seen();
    assert!(seen.contains(&"maps [1]".to_owned()), "{seen:?}");
    assert!(!seen.iter().any(|s| s.starts_with("exit")), "{seen:?}");
    assert_eq!(w.osd.phase(), Phase::Active, "{seen:?}");
}

#[test]
fn a_lost_monitor_session_is_reopened() {
    let mut w = World::new();
    w.run();
    w.take_seen();
    w.mon.commit(|_| {});
    w.osd.handle_mon_closed(w.now);
    w.now.mono = w.now.mono + std::time::Duration::from_secs(10);
    w.run();
    let seen = w.take_seen();
    assert_eq!(seen[0], "connect");
    assert!(seen.contains(&"maps [4]".to_owned()), "{seen:?}");
    assert!(!seen.iter().any(|s| s.starts_with("boot")), "{seen:?}");
    assert_eq!(w.osd.phase(), Phase::Active);
}

fn serving() -> World {
    let mut w = World::new();
    w.run();
    w.take_seen();
    w
}

#[test]
fn a_clean_stop_ends_service_before_the_monitor_is_told_and_waits_for_its_answer() {
    let mut w = serving();
    w.osd.leave(w.now);
    w.run();
    // "Dead" lets the next primary serve at once, so no reactor may still answer reads by then.
    assert_eq!(w.take_seen(), ["Leaving", "stop"]);
    w.osd.stopped(w.now);
    w.run();
    assert_eq!((w.osd.phase(), w.take_seen()), (Phase::Leaving, vec!["down and dead".to_owned()]));
    w.reply(&MOsdMarkMeDown { fsid: FSID, target_osd: ME, ..MOsdMarkMeDown::default() }, 0);
    w.run();
    assert_eq!(w.osd.phase(), Phase::Gone);
}

#[test]
fn silent_reactors_or_monitors_do_not_block_a_stop() {
    let mut w = serving();
    w.osd.leave(w.now);
    w.later(2900);
    assert_eq!(w.take_seen(), ["Leaving", "stop"]);
    w.later(200);
    assert_eq!(w.take_seen(), ["down"], "what still serves may hold leases: it is not dead");
    w.later(5100);
    assert_eq!(w.osd.phase(), Phase::Gone);
}

#[test]
fn an_osd_without_a_monitor_ends_once_its_reactors_have_stopped() {
    let mut w = World::new();
    w.osd.leave(w.now);
    w.drain();
    assert_eq!(w.osd.phase(), Phase::Leaving);
    w.osd.stopped(w.now);
    assert_eq!(w.osd.phase(), Phase::Gone);
}

#[test]
fn a_failed_store_is_reported_once_and_the_osd_is_down_after_service_ended() {
    let mut w = serving();
    w.osd.store_failed("/dev/x: cannot write (EIO)", w.now);
    w.osd.store_failed("/dev/x: cannot read (EIO)", w.now);
    w.run();
    assert_eq!(w.take_seen(), ["Leaving", "abandon", "log"]);
    w.osd.stopped(w.now);
    w.run();
    assert_eq!(w.take_seen(), ["osd store-failed", "log", "down and dead"]);
    w.osd.store_failed("/dev/x: again", w.now);
    w.reply(&MOsdMarkMeDown { fsid: FSID, target_osd: ME, ..MOsdMarkMeDown::default() }, 0);
    w.run();
    assert_eq!(w.osd.phase(), Phase::Leaving, "the monitor may not have the line of the log");
    w.take_seen();
    w.reply(&MLogAck { fsid: FSID, last: 1000, ..MLogAck::default() }, 0);
    w.run();
    assert_eq!(w.take_seen(), ["Gone"]);
    assert_eq!(w.osd.failure(), Some("/dev/x: cannot write (EIO)"));
}

#[test]
fn the_report_of_a_failed_store_waits_for_a_monitor() {
    let mut w = serving();
    w.osd.handle_mon_closed(w.now);
    w.osd.store_failed("why", w.now);
    w.osd.stopped(w.now);
    assert_eq!(w.osd.phase(), Phase::Leaving);
    w.later(1500);
    let seen = w.take_seen();
    let told = ["osd store-failed", "down and dead"].map(|what| seen.iter().filter(|s| *s == what).count());
    assert_eq!(told, [1, 1], "{seen:?}");
    w.later(6000);
    assert_eq!(w.osd.phase(), Phase::Gone);
}

#[test]
fn a_store_failure_during_a_stop_ends_the_wait_for_the_store() {
    let mut w = serving();
    w.osd.leave(w.now);
    w.run();
    w.take_seen();
    w.osd.store_failed("why", w.now);
    w.run();
    assert!(w.take_seen().contains(&"abandon".to_owned()));
    w.osd.stopped(w.now);
    w.run();
    assert!(w.take_seen().contains(&"down and dead".to_owned()));
}

#[test]
fn an_osd_whose_device_is_silent_tells_the_monitor_and_boots_when_it_answers() {
    let mut w = serving();
    w.osd.device_silent(0, Some("/dev/x: no answer".into()), w.now);
    w.osd.device_silent(1, Some("/dev/x: no answer".into()), w.now);
    w.run();
    assert_eq!(w.take_seen(), ["log", "osd device-silent"], "once");
    assert_eq!(w.osd.phase(), Phase::Active, "the monitor decides");
    w.mon.commit(|i| {
        i.new_state.insert(ME, cluster::osdmap::osd_state::UP);
    });
    w.push();
    for _ in 0..10 {
        w.later(1000);
    }
    assert_eq!(w.osd.phase(), Phase::Syncing);
    assert!(!w.take_seen().iter().any(|s| s.starts_with("boot")));
    w.osd.device_silent(0, None, w.now);
    w.run();
    assert_eq!(w.osd.phase(), Phase::Syncing, "the other reactor still waits");
    w.osd.device_silent(1, None, w.now);
    w.run();
    let seen = w.take_seen();
    assert!(seen.contains(&"osd device-silent".to_owned()) && seen.iter().any(|s| s.starts_with("boot")), "{seen:?}");
    assert_eq!(w.osd.phase(), Phase::Active);
}

#[test]
fn up_thru_is_requested_once() {
    let mut w = World::new();
    w.run();
    w.take_seen();
    w.osd.want_up_thru(Epoch(3));
    w.osd.want_up_thru(Epoch(3));
    w.osd.want_up_thru(Epoch(2));
    w.run();
    assert_eq!(w.take_seen(), ["osd_alive"]);
}

/// Clients and other OSDs may name any epoch. An epoch that does not exist must not delay a boot.
#[test]
fn a_claim_of_an_epoch_that_does_not_exist_delays_no_boot() {
    let mut w = World::new();
    w.run();
    w.osd.want_map(Epoch(u32::MAX));
    let mut m = w.mon.maps_from(1);
    m.newest_map = Epoch(u32::MAX);
    w.osd.handle_map_message(&m, w.now);
    w.run();
    w.mon.commit(|i| {
        i.new_state.insert(ME, cluster::osdmap::osd_state::UP);
    });
    w.take_seen();
    w.push();
    w.run();
    assert!(w.take_seen().iter().any(|s| s.starts_with("boot at")));
    assert_eq!(w.osd.phase(), Phase::Active);
}

#[test]
fn maps_of_another_cluster_are_refused() {
    let mut w = World::new();
    w.run();
    let mut m = w.mon.maps_from(1);
    m.fsid = Uuid([1; 16]);
    let before = w.osd.map().unwrap().epoch;
    w.osd.handle_map_message(&m, w.now);
    assert_eq!(w.osd.map().unwrap().epoch, before);
}

#[test]
fn a_restart_continues_from_what_was_stored() {
    let mut w = World::new();
    for _ in 0..5 {
        w.mon.commit(|_| {});
    }
    let mut h = MapHistory::new(FSID);
    let a = h.absorb(&w.mon.maps_from(1), Source::Monitor).unwrap();
    assert_eq!(a.maps.len(), 7);
    let (mut full, mut incs) = (None, BTreeMap::new());
    for r in a.records {
        match r {
            osd::core::maps::Record::Full(_, b) => full = Some(b),
            osd::core::maps::Record::Inc(e, b) => {
                incs.insert(e, b);
            }
        }
    }
    let again = MapHistory::restore(FSID, &full.unwrap(), &incs).unwrap();
    assert_eq!(again.current(), h.current());
    // A client one epoch behind gets the incremental, one far behind a full map.
    let feed = again.feed().unwrap();
    let m = feed.share(Epoch(6), Features::PACIFIC).unwrap();
    assert_eq!((m.incremental_maps.len(), m.maps.len()), (1, 0));
    let m = feed.share(Epoch(0), Features::PACIFIC).unwrap();
    assert_eq!((m.incremental_maps.len(), m.maps.len()), (0, 1));
    assert_eq!(m.cluster_osdmap_trim_lower_bound, Epoch(7), "the client takes it without the maps in between");
    assert!(feed.share(Epoch(7), Features::PACIFIC).is_none());
}

fn full_of(w: &World, epoch: Epoch, trimmed: Epoch) -> MOsdMap {
    let (map, _) = w.mon.maps.iter().find(|(m, _)| m.epoch == epoch).unwrap();
    MOsdMap {
        fsid: FSID,
        newest_map: w.mon.newest().epoch,
        cluster_osdmap_trim_lower_bound: trimmed,
        maps: [(epoch, map.encode_blob(Features::PACIFIC).0)].into(),
        ..MOsdMap::default()
    }
}

#[test]
fn maps_with_a_gap_are_accepted_only_from_a_monitor_that_trimmed_it() {
    let mut w = serving();
    (0..4).for_each(|_| w.mon.commit(|_| {}));
    let newest = w.mon.newest().epoch;
    assert_eq!(newest, Epoch(7));
    let have = |w: &World| w.osd.map().unwrap().epoch;
    // The map comes from another OSD, whatever it says of the monitors.
    let m = full_of(&w, newest, newest);
    w.osd.handle_map_message(&m, w.now);
    assert_eq!(have(&w), Epoch(3));
    // The map comes from a monitor that has the maps between. It is asked for them once.
    let m = full_of(&w, newest, Epoch(1));
    let before = w.follows;
    w.reply(&m, 0);
    assert_eq!(have(&w), Epoch(3));
    w.follows = None;
    w.drain();
    assert_eq!((before, w.follows, have(&w)), (Some(4), Some(4), newest), "it was asked for the rest");
    // A monitor that has trimmed.
    (0..4).for_each(|_| w.mon.commit(|_| {}));
    let m = full_of(&w, Epoch(10), Epoch(9));
    w.reply(&m, 0);
    // The present request gets no answer.
    while w.osd.poll_output(w.now).is_some() {}
    assert_eq!(have(&w), newest, "the monitor has 9");
    let m = full_of(&w, Epoch(9), Epoch(9));
    w.reply(&m, 0);
    while w.osd.poll_output(w.now).is_some() {}
    assert_eq!(have(&w), Epoch(9));
}

#[test]
fn an_osds_false_claim_of_a_newest_map_delays_no_boot() {
    let mut w = World::new();
    w.osd = control(1);
    w.run();
    assert_eq!(w.osd.phase(), Phase::Syncing);
    let m = MOsdMap { fsid: FSID, newest_map: Epoch(u32::MAX), ..MOsdMap::default() };
    w.osd.handle_map_message(&m, w.now);
    w.osd.want_map(Epoch(u32::MAX));
    w.osd.set_ready(w.now);
    w.run();
    assert_eq!(w.osd.phase(), Phase::Active);
}

#[test]
fn an_injected_state_of_fullness_reaches_the_monitor_at_once() {
    let mut w = World::new();
    w.run();
    assert_eq!(w.osd.phase(), Phase::Active, "{:?}", w.seen);
    w.seen.clear();
    w.osd.inject_full(Some(cluster::osdmap::osd_state::NEARFULL));
    w.run();
    let told = registry::name(MOsdFull::KIND);
    assert!(w.seen.iter().any(|s| s == told), "{:?}", w.seen);
    // A state that is worse counts.
    w.osd.set_short(0, true);
    assert_eq!(w.osd.told_fullness(), cluster::osdmap::osd_state::FULL);
    w.osd.inject_full(Some(cluster::osdmap::osd_state::BACKFILLFULL));
    assert_eq!(w.osd.told_fullness(), cluster::osdmap::osd_state::FULL);
}
