//! Does an OSD become a member as a monitor expects, and again after the monitor or the map loses it?
//!
//! The control machine runs against a scripted monitor: no sockets, no clock.

use base::id::Uuid;
use base::{AddrVec, EntityAddr, Epoch, Mono, Now, OsdId, Utime};
use client::core::mon::{MonSession, Output as MonOutput};
use cluster::osdmap::map_flag;
use cluster::{Incremental, MonMap, OsdMap};
use osd::core::control::{Control, Output, Phase};
use osd::core::identity::{Addrs, Identity};
use osd::core::maps::MapHistory;
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

/// What the monitor has.
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
    /// Names of messages the OSD sent, and other outputs.
    seen: Vec<String>,
    /// Start of the OSD's permanent subscription to maps.
    follows: Option<u64>,
    /// Boots that the monitor drops.
    deaf_to_boots: usize,
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
        };
        w.osd.set_ready(w.now);
        w
    }

    fn reply(&mut self, m: &impl WireMessage, tid: u64) {
        let mut m = m.to_message(Features::PACIFIC);
        m.header.tid = tid;
        self.osd.handle_mon_message(m).unwrap();
    }

    /// Answers everything the OSD says until it is quiet.
    fn run(&mut self) {
        // Twice: what is due right after the first answers.
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
                    let maps = self.mon.maps_from(i.start);
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
            kind => self.seen.push(registry::name(kind).into()),
        }
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
fn without_a_way_to_check_tickets_it_does_not_boot() {
    let mut w = World::new();
    w.osd = control(1);
    w.run();
    assert_eq!(w.osd.phase(), Phase::Syncing);
    w.osd.set_ready(w.now);
    w.run();
    assert_eq!(w.osd.phase(), Phase::Active);
}

#[test]
fn wrongly_marked_down_it_comes_back() {
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
fn noup_holds_it_back() {
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
    // Found by the simulator (seed 1012): `noup` was set while the boot was on its way.
    let mut w = unanswered();
    w.now.mono = w.osd.next_deadline().unwrap();
    w.run();
    assert_eq!(w.osd.phase(), Phase::Active);
}

#[test]
fn an_osd_whose_session_ended_behind_its_boot_hears_of_it_in_the_next_one() {
    // Found by the simulator (seed 80039406): the map that shows it up came while it asked for maps again.
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
fn an_osd_that_was_removed_leaves() {
    let mut w = World::new();
    w.run();
    w.mon.commit(|i| {
        i.new_state.insert(ME, cluster::osdmap::osd_state::EXISTS | cluster::osdmap::osd_state::UP);
    });
    w.push();
    assert!(w.take_seen().iter().any(|s| s.starts_with("exit")));
}

#[test]
fn a_lost_monitor_is_found_again() {
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

#[test]
fn a_clean_stop_waits_for_the_word() {
    let mut w = World::new();
    w.run();
    w.take_seen();
    w.osd.leave(w.now);
    w.run();
    assert_eq!(w.osd.phase(), Phase::Leaving);
    assert!(w.take_seen().contains(&"MOSDMarkMeDown".to_owned()));
    w.reply(&MOsdMarkMeDown { fsid: FSID, target_osd: ME, ..MOsdMarkMeDown::default() }, 0);
    w.run();
    assert_eq!(w.osd.phase(), Phase::Gone);
}

#[test]
fn a_monitor_that_says_nothing_does_not_hold_a_stop() {
    let mut w = World::new();
    w.run();
    w.osd.leave(w.now);
    w.now.mono = w.now.mono + std::time::Duration::from_secs(6);
    w.run();
    assert_eq!(w.osd.phase(), Phase::Gone);
}

#[test]
fn up_thru_is_asked_for_once() {
    let mut w = World::new();
    w.run();
    w.take_seen();
    w.osd.want_up_thru(Epoch(3));
    w.osd.want_up_thru(Epoch(3));
    w.osd.want_up_thru(Epoch(2));
    w.run();
    assert_eq!(w.take_seen(), ["osd_alive"]);
}

/// Clients and other OSDs name epochs as they like: one that does not exist holds up no boot.
#[test]
fn an_epoch_that_a_peer_made_up_keeps_nobody_down() {
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
    let a = h.absorb(&w.mon.maps_from(1)).unwrap();
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
    // A client one epoch behind gets the step, one far behind a full map.
    let feed = again.feed().unwrap();
    let m = feed.share(Epoch(6), Features::PACIFIC).unwrap();
    assert_eq!((m.incremental_maps.len(), m.maps.len()), (1, 0));
    let m = feed.share(Epoch(0), Features::PACIFIC).unwrap();
    assert_eq!((m.incremental_maps.len(), m.maps.len()), (0, 1));
    assert!(feed.share(Epoch(7), Features::PACIFIC).is_none());
}
