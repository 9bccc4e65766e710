//! File systems with many MDS daemons that boot, serve, fall silent, die and restart, while operators change settings
//! and the monitor restarts. Checked at every step: the FSMap is consistent, and an MDS that lost its rank is
//! blocklisted at the OSDs before the next one has it. In the end every rank is served again.

mod mds_daemon;
mod support;

use std::time::Duration;

use base::{AddrVec, EntityKind, EntityName, Epoch};
use mds_daemon::*;
use mon::core::Event;
use mon::core::relay::{Front, FrontEffect, Hub, HubEffect};
use mon::core::session::Peer;
use mon::state::Role;
use mon::state::fs::map as fsmap;
use serde_json::json;
use support::*;
use wire::msg::{MFsMap, MFsMapUser, MMdsBeacon, MMdsLoadTargets, MMdsMap, MRemoveSnaps};
use wire::types::{FsMap, MdsHealthMetric, MdsMap, mds_default_compat, mds_state as st};
use wire::{Decode, Features, WireMessage};

#[test]
fn a_rank_is_made_and_taken_over() {
    let (mut c, admin) = with_fs();
    let mut d = vec![Mds::boot(&mut c, "a", 6001), Mds::boot(&mut c, "b", 6002)];
    assert_eq!((d[0].state, d[0].rank), (st::CREATING, 0), "the first one gets the rank at once");
    assert_eq!(d[1].state, st::STANDBY);
    settle(&mut c, &mut d);
    assert_eq!(d[0].state, st::ACTIVE);
    assert_eq!(home(&c).standby_count_wanted, 1);
    // A silent daemon is replaced once its grace is over, not before.
    let before = c.map().epoch;
    for _ in 0..14 {
        second(&mut c, &mut d[1..]);
    }
    assert_eq!(home(&c).up[&0], 6001);
    for _ in 0..3 {
        second(&mut c, &mut d[1..]);
    }
    assert_eq!(home(&c).up[&0], 6002);
    assert!(shut_out(&c, &d[0].addrs));
    let fenced = home(&c).last_failure_osd_epoch;
    assert!(fenced > before && fenced <= c.map().epoch, "fenced in an epoch that exists");
    settle(&mut c, &mut d[1..]);
    assert_eq!(d[1].state, st::ACTIVE);
    // The replaced daemon wakes up and gets a map without it.
    let answers = d[0].beacon(&mut c, st::ACTIVE);
    assert!(answers.is_empty() && !d[0].alive);
    let health = c.ok(admin, &json!({ "prefix": "health", "detail": "detail", "format": "json" }));
    assert!(health.contains("MDS_INSUFFICIENT_STANDBY") && !health.contains("FS_DEGRADED"), "{health}");
}

#[test]
fn no_mds_is_replaced_while_the_monitor_hears_none_or_was_stalled() {
    let (mut c, _) = with_fs();
    let mut d = vec![Mds::boot(&mut c, "a", 6001), Mds::boot(&mut c, "b", 6002)];
    settle(&mut c, &mut d);
    c.ticks(60);
    assert_eq!(home(&c).up[&0], 6001, "all are silent: it may be the monitor's fault");
    assert!(home(&c).mds_info[&6001].is_laggy());
    second(&mut c, &mut d);
    second(&mut c, &mut d);
    assert!(!home(&c).mds_info[&6001].is_laggy() && d.iter().all(|d| d.alive));
    // The monitor stalls: its next tick is a minute late.
    c.pass(std::time::Duration::from_secs(60));
    d[1].beacon(&mut c, st::STANDBY);
    c.ticks(1);
    assert_eq!(home(&c).up[&0], 6001);
    // A restarted monitor gives every daemon the whole grace.
    c.restart();
    for x in &mut d {
        x.conn = session(&mut c, &x.name, x.gid, &x.addrs);
        c.subscribe(x.conn, "mdsmap", 0, false);
        x.listen(&mut c);
    }
    settle(&mut c, &mut d);
    assert_eq!(home(&c).up[&0], 6001);
}

#[test]
fn a_daemon_of_the_same_name_replaces_the_older_one() {
    let (mut c, _) = with_fs();
    let mut a = Mds::boot(&mut c, "a", 6001);
    let wish = a.wish();
    a.beacon(&mut c, wish);
    assert_eq!(a.state, st::ACTIVE);
    let again = Mds::boot(&mut c, "a", 6003);
    assert_eq!((again.state, again.rank), (st::REPLAY, 0), "it takes its own rank over");
    assert!(shut_out(&c, &a.addrs));
    a.listen(&mut c);
    assert!(!a.alive);
    assert_eq!(c.core.state().fs.metadata.keys().copied().collect::<Vec<_>>(), [6003]);
}

/// Seed 801376206 of the simulator: the beacon came by a session that the daemon had given up.
#[test]
fn a_late_first_beacon_does_not_replace_the_younger_daemon() {
    let (mut c, _) = with_fs();
    let mut a = Mds::boot(&mut c, "a", 6001);
    c.pass(Duration::from_secs(1));
    let mut again = Mds::boot(&mut c, "a", 6003);
    let late = a.message(st::BOOT);
    c.send(a.conn, &late);
    again.listen(&mut c);
    a.listen(&mut c);
    assert!(again.alive && !a.alive);
    assert_eq!(the_map(&c).daemon_by_name("a").map(|i| i.global_id), Some(6003));
}

/// Delivers to the leader the messages that a front monitor passes on.
fn pass_on(c: &mut Cluster, f: &mut Front, h: &mut Hub) {
    for e in f.take_effects() {
        let FrontEffect::ToLeader(m) = e else { continue };
        match h.message(1, &m, c.now.mono).unwrap() {
            Some(HubEffect::Open(k, peer, opened)) => {
                open_known(&mut c.core, Event::OpenElsewhere, k, *peer, c.now);
                c.core.relayed_by(k, &AddrVec::default(), opened);
            }
            Some(HubEffect::Message(k, m)) => c.send_raw(k, m),
            _ => {}
        }
    }
}

/// The beacon of the older instance waits at a front monitor for its link to the leader, or the link holds it up.
#[test]
fn a_first_beacon_that_a_front_monitor_passes_on_late_does_not_replace_the_younger_daemon() {
    for waits in [true, false] {
        let (mut c, _) = with_fs();
        let (mut f, mut h) = (Front::default(), Hub::default());
        // The clocks of the two monitors have nothing in common.
        let far = Duration::from_secs(123_456);
        let there = |c: &Cluster| c.now.mono + far;
        h.link_open(1);
        let peer = |gid| daemon("a", gid, &addr(26_003, 6003));
        if !waits {
            f.link_open(there(&c));
            f.open(1, peer(6009), there(&c));
            pass_on(&mut c, &mut f, &mut h);
        }
        f.open(7, peer(6003), there(&c));
        let boot =
            MMdsBeacon { fsid: FSID, global_id: 6003, name: "a".into(), state: st::BOOT, ..MMdsBeacon::default() };
        f.message(7, boot.to_message(Features::PACIFIC));
        c.pass(Duration::from_secs(1));
        let mut a = Mds::boot(&mut c, "a", 6001);
        c.pass(Duration::from_secs(3));
        if waits {
            f.link_open(there(&c));
        }
        pass_on(&mut c, &mut f, &mut h);
        a.listen(&mut c);
        assert_eq!(the_map(&c).daemon_by_name("a").map(|i| i.global_id), Some(6001), "waits: {waits}");
        assert!(a.alive);
        // A younger instance at that monitor takes over.
        f.open(8, peer(6004), there(&c));
        f.message(8, MMdsBeacon { global_id: 6004, ..boot }.to_message(Features::PACIFIC));
        pass_on(&mut c, &mut f, &mut h);
        assert_eq!(the_map(&c).daemon_by_name("a").map(|i| i.global_id), Some(6004));
    }
}

/// The beacons of the younger instance went to another leader, by a session that the new one does not know.
#[test]
fn a_late_first_beacon_at_a_new_leader_does_not_replace_a_daemon_that_it_has_not_heard() {
    let (mut c, _) = with_fs();
    let mut a = Mds::boot(&mut c, "a", 6001);
    settle(&mut c, std::slice::from_mut(&mut a));
    let holder = |c: &Cluster| the_map(c).daemon_by_name("a").map(|i| i.global_id);
    for late in [0, 1, 5] {
        c.restart();
        c.ticks(late);
        let conn = session(&mut c, "a", 6003, &addr(26_003, 6003));
        let boot = MMdsBeacon { global_id: 6003, ..a.message(st::BOOT) };
        c.send(conn, &boot);
        assert_eq!(holder(&c), Some(6001), "after {late} seconds");
        c.ticks(1);
        a.conn = session(&mut c, "a", 6001, &a.addrs);
        c.subscribe(a.conn, "mdsmap", 0, false);
        a.listen(&mut c);
        let wish = a.wish();
        a.beacon(&mut c, wish);
        c.ticks(8);
        c.send(conn, &boot);
        assert_eq!(holder(&c), Some(6001), "the leader has heard it now");
        assert!(a.alive);
    }
    // One that is not heard again gives way before its grace is over.
    c.restart();
    c.ticks(9);
    let again = Mds::boot(&mut c, "a", 6004);
    assert_eq!((holder(&c), again.rank), (Some(6004), 0));
}

/// A daemon that is silent does not keep another one of its name out, however young its session is.
#[test]
fn a_silent_daemon_gives_way_to_one_with_an_older_session() {
    let (mut c, _) = with_fs();
    let conn = session(&mut c, "a", 6003, &addr(26_003, 6003));
    c.pass(Duration::from_secs(1));
    let a = Mds::boot(&mut c, "a", 6001);
    let boot = MMdsBeacon { global_id: 6003, ..a.message(st::BOOT) };
    c.send(conn, &boot);
    assert_eq!(the_map(&c).daemon_by_name("a").map(|i| i.global_id), Some(6001));
    c.pass(Duration::from_secs(20));
    c.send(conn, &boot);
    assert_eq!(the_map(&c).daemon_by_name("a").map(|i| i.global_id), Some(6003));
}

#[test]
fn a_daemon_with_a_forbidden_request_is_removed() {
    for (state, why) in [(st::REPLAY, "back"), (st::STOPPED, "too far"), (st::STANDBY, "given up"), (77, "unknown")] {
        let (mut c, _) = with_fs();
        let mut d = vec![Mds::boot(&mut c, "a", 6001)];
        settle(&mut c, &mut d);
        assert_eq!(d[0].state, st::ACTIVE);
        d[0].beacon(&mut c, state);
        assert!(!d[0].alive && shut_out(&c, &d[0].addrs), "{why}");
        assert!(home(&c).failed.contains(&0));
    }
    let (mut c, _) = with_fs();
    let mut d = vec![Mds::boot(&mut c, "a", 6001), Mds::boot(&mut c, "b", 6002)];
    settle(&mut c, &mut d);
    d[1].beacon(&mut c, st::ACTIVE);
    assert!(!d[1].alive, "a standby may not promote itself");
    assert!(!shut_out(&c, &d[1].addrs), "and had nothing to be shut out of");
    d[0].compat.incompat.insert(20, "news");
    d[0].beacon(&mut c, st::STOPPING);
    assert!(!d[0].alive, "what a daemon can do does not change while it runs");
}

#[test]
fn an_old_request_is_answered_and_ignored() {
    let (mut c, _) = with_fs();
    let mut a = Mds::boot(&mut c, "a", 6001);
    let now = a.seen;
    a.seen = Epoch(now.0 - 1);
    assert_eq!(a.beacon(&mut c, st::ACTIVE).len(), 1);
    assert_eq!(home(&c).mds_info[&6001].state, st::CREATING);
    a.seen = now;
    a.seq = 1;
    a.beacon(&mut c, st::ACTIVE);
    assert_eq!(a.state, st::ACTIVE);
    a.seq = 0;
    assert!(a.beacon(&mut c, st::STOPPING).is_empty(), "an old number is not answered");
    assert_eq!(home(&c).mds_info[&6001].state, st::ACTIVE);
}

#[test]
fn a_session_sends_beacons_for_its_own_daemon_only() {
    let (mut c, _) = with_fs();
    let mut d = vec![Mds::boot(&mut c, "a", 6001)];
    settle(&mut c, &mut d);
    let b = session(&mut c, "b", 6002, &addr(21_000, 1));
    let mut forged = d[0].message(st::DAMAGED);
    forged.seq += 5;
    c.send(b, &forged);
    assert!(c.take::<MMdsBeacon>(b).is_empty());
    let client = c.client("client.x", "allow r");
    c.send(client, &forged);
    c.send(b, &MMdsLoadTargets { global_id: 6001, targets: [0].into(), ..MMdsLoadTargets::default() });
    assert_eq!(home(&c).mds_info[&6001].state, st::ACTIVE);
    assert!(home(&c).damaged.is_empty() && home(&c).mds_info[&6001].export_targets.is_empty());
    let mut foreign = d[0].message(st::DAMAGED);
    foreign.fsid = base::id::Uuid([9; 16]);
    c.send(d[0].conn, &foreign);
    assert!(home(&c).damaged.is_empty());
}

#[test]
fn a_key_has_one_daemon_of_its_own_name() {
    let (mut c, _) = with_fs();
    let mut d = vec![Mds::boot(&mut c, "a", 6001)];
    settle(&mut c, &mut d);
    // A daemon with its own key claims the name of another daemon, or many names.
    for (i, name) in ["a", "", "x1", "x2"].into_iter().enumerate() {
        let gid = 6100 + i as u64;
        let at = addr(22_000 + i as u16, 1);
        let evil = session(&mut c, "evil", gid, &at);
        let m = MMdsBeacon { global_id: gid, name: name.into(), state: st::BOOT, seq: 1, ..d[0].message(st::BOOT) };
        c.send(evil, &m);
        assert!(c.take::<MMdsBeacon>(evil).is_empty());
        assert!(the_map(&c).daemon(gid).is_none(), "{name}");
    }
    assert_eq!(home(&c).mds_info[&6001].state, st::ACTIVE);
    let evil = Mds::boot(&mut c, "evil", 6200);
    let again = Mds::boot(&mut c, "evil", 6201);
    assert!(the_map(&c).daemon(evil.gid).is_none() && the_map(&c).daemon(again.gid).is_some());
    assert_eq!(the_map(&c).mds_roles.len(), 2);
}

#[test]
fn warnings_are_of_bounded_size_and_number() {
    let (mut c, _) = with_fs();
    let mut d = vec![Mds::boot(&mut c, "a", 6001)];
    settle(&mut c, &mut d);
    let metric = |i: usize| MdsHealthMetric {
        kind: i as u16,
        severity: 1,
        message: "\u{e9}".repeat(10_000).into(),
        metadata: [("x".repeat(5000), String::new()), ("client_id".to_owned(), "7".to_owned())].into(),
    };
    d[0].health.metrics = (0..1500).map(metric).collect();
    second(&mut c, &mut d);
    let kept = &c.core.state().fs.health[&6001].metrics;
    assert_eq!(kept.len(), 1000);
    assert!(kept.iter().all(|m| m.message.len() == 4096 && m.metadata.iter().all(|(k, v)| k.len() + v.len() <= 4096)));
    // All warnings end at once: the log does not get a line for each.
    let lines = |c: &Cluster| {
        c.core.state().log.entries().into_iter().filter(|(_, e)| e.msg.0.contains("message cleared")).count()
    };
    let before = lines(&c);
    d[0].health.metrics.clear();
    second(&mut c, &mut d);
    second(&mut c, &mut d);
    assert!((1..=20).contains(&(lines(&c) - before)));
    assert!(c.core.state().fs.health[&6001].metrics.is_empty());
}

#[test]
fn a_damaged_rank_waits_for_repair() {
    let (mut c, admin) = with_fs();
    let mut d = vec![Mds::boot(&mut c, "a", 6001), Mds::boot(&mut c, "b", 6002)];
    settle(&mut c, &mut d);
    d[0].beacon(&mut c, st::DAMAGED);
    assert!(home(&c).damaged.contains(&0) && shut_out(&c, &d[0].addrs));
    settle(&mut c, &mut d[1..]);
    assert_eq!(d[1].state, st::STANDBY, "nobody takes it");
    let health = c.ok(admin, &json!({ "prefix": "health", "detail": "detail" }));
    assert!(health.contains("[ERR] MDS_DAMAGE: 1 mds daemon damaged\n    fs home mds.0 is damaged"), "{health}");
    assert!(health.contains("MDS_ALL_DOWN"), "{health}");
    c.ok(admin, &json!({ "prefix": "mds repaired", "role": "home:0" }));
    settle(&mut c, &mut d[1..]);
    assert_eq!((d[1].state, d[1].rank), (st::ACTIVE, 0));
}

#[test]
fn ranks_follow_max_mds_and_standbys_follow_active_ranks() {
    let (mut c, admin) = with_fs();
    let mut d: Vec<Mds> = (0..4).map(|i| Mds::boot(&mut c, &format!("d{i}"), 6001 + i)).collect();
    settle(&mut c, &mut d);
    let set = |c: &mut Cluster, var: &str, val: &str| {
        c.ok(admin, &json!({ "prefix": "fs set", "fs_name": "home", "var": var, "val": val }))
    };
    set(&mut c, "max_mds", "2");
    settle(&mut c, &mut d);
    assert_eq!(home(&c).count(st::ACTIVE), 2);
    set(&mut c, "allow_standby_replay", "true");
    settle(&mut c, &mut d);
    assert_eq!(home(&c).count(st::STANDBY_REPLAY), 2);
    let follower = home(&c).follower(1).unwrap().global_id;
    // The rank's own standby-replay daemon takes over.
    c.ok(admin, &json!({ "prefix": "mds fail", "role_or_gid": "home:1" }));
    assert_eq!(home(&c).up[&1], follower);
    settle(&mut c, &mut d);
    assert_eq!(home(&c).count(st::ACTIVE), 2);
    set(&mut c, "allow_standby_replay", "false");
    assert_eq!(home(&c).count(st::STANDBY_REPLAY), 0);
    set(&mut c, "max_mds", "1");
    settle(&mut c, &mut d);
    assert_eq!(home(&c).ranks_in, [0].into());
    assert!(home(&c).stopped.contains(&1), "stopped, not failed");
    set(&mut c, "down", "true");
    settle(&mut c, &mut d);
    assert!(home(&c).ranks_in.is_empty());
    let status = c.ok(admin, &json!({ "prefix": "status" }));
    assert!(status.contains("volumes: 0/1 healthy, 1 stopped"), "{status}");
}

#[test]
fn daemons_join_the_file_system_they_prefer_and_support() {
    let (mut c, admin) = with_fs();
    for pool in ["m2", "d2"] {
        c.ok(admin, &json!({ "prefix": "osd pool create", "pool": pool, "pg_num": 8 }));
    }
    let mut d = vec![Mds::boot(&mut c, "a", 6001)];
    settle(&mut c, &mut d);
    // A daemon that prefers this file system takes the rank from one without a preference.
    d.push(Mds::boot_as(&mut c, "b", 6002, mds_default_compat(), "home"));
    settle(&mut c, &mut d);
    assert_eq!(home(&c).up[&0], 6002);
    assert!(!d[0].alive);
    // A newer daemon that is alone raises the on-disk features; from then on an older one cannot take over.
    let mut newer = mds_default_compat();
    newer.incompat.insert(11, "minor log segments");
    d.push(Mds::boot_as(&mut c, "n", 6003, newer, ""));
    d.push(Mds::boot(&mut c, "o", 6004));
    c.ok(admin, &json!({ "prefix": "mds fail", "role_or_gid": "o" }));
    c.ok(admin, &json!({ "prefix": "mds fail", "role_or_gid": "b" }));
    assert_eq!(home(&c).up[&0], 6003);
    assert!(home(&c).compat.incompat.contains(11));
    let old = Mds::boot(&mut c, "o", 6005);
    assert_eq!(old.state, st::STANDBY);
    c.ok(admin, &json!({ "prefix": "mds fail", "role_or_gid": "n" }));
    assert!(home(&c).failed.contains(&0), "the old one cannot");
    let health = c.ok(admin, &json!({ "prefix": "health", "detail": "detail" }));
    assert!(health.contains("FS_WITH_FAILED_MDS"), "{health}");
    // The older daemon can serve another file system.
    c.ok(admin, &json!({ "prefix": "fs new", "fs_name": "other", "metadata": "m2", "data": "d2" }));
    assert_eq!(the_map(&c).fs_by_name("other").unwrap().mds_map.up[&0], 6005);
}

#[test]
fn warnings_are_shown_without_a_proposal() {
    let (mut c, admin) = with_fs();
    let mut d = vec![Mds::boot(&mut c, "a", 6001)];
    settle(&mut c, &mut d);
    let epoch = the_map(&c).epoch;
    let metric = |kind: u16, text: &str| MdsHealthMetric {
        kind,
        severity: 1,
        message: text.into(),
        metadata: [("client_id".to_owned(), "7".to_owned())].into(),
    };
    d[0].health.metrics = vec![metric(10, "2 slow requests are blocked > 30 secs"), metric(99, "from the future")];
    second(&mut c, &mut d);
    assert_eq!(the_map(&c).epoch, epoch);
    let health = c.ok(admin, &json!({ "prefix": "health", "detail": "detail" }));
    let line = "[WRN] MDS_SLOW_REQUEST: 1 MDSs report slow requests\n    mds.a(mds.0): 2 slow requests are blocked > 30 secs client_id: 7";
    assert!(health.contains(line), "{health}");
    assert!(health.contains("MDS_HEALTH_99") && health.contains("from the future"), "{health}");
    // With health warnings some commands need a confirmation.
    d[0].health.metrics = vec![metric(1, "Behind on trimming")];
    second(&mut c, &mut d);
    for cmd in [
        json!({ "prefix": "fs fail", "fs_name": "home" }),
        json!({ "prefix": "mds fail", "role_or_gid": "a" }),
        json!({ "prefix": "fs set", "fs_name": "home", "var": "max_mds", "val": "2" }),
    ] {
        assert_eq!(c.command(admin, &cmd, "").0, base::errno::EPERM, "{cmd}");
    }
    d[0].health.metrics.clear();
    second(&mut c, &mut d);
    assert!(!c.ok(admin, &json!({ "prefix": "health", "detail": "detail" })).contains("MDS_TRIM"));
}

#[test]
fn removed_snapshots_are_queued_once_and_answered_after_the_commit() {
    let (mut c, admin) = with_fs();
    let mut d = vec![Mds::boot(&mut c, "a", 6001)];
    settle(&mut c, &mut d);
    let data = c.map().pool_by_name("d").unwrap();
    let ask = |c: &mut Cluster, conn: u64, snaps: &[u64]| {
        let list = snaps.iter().map(|s| base::SnapId(*s)).collect::<Vec<_>>();
        let m = MRemoveSnaps {
            snaps: [(data.0 as i32, list), (999, vec![base::SnapId(1)])].into(),
            ..MRemoveSnaps::default()
        };
        c.send(conn, &m);
        c.take::<MRemoveSnaps>(conn)
    };
    let answer = ask(&mut c, d[0].conn, &[5, 7]);
    assert_eq!(answer.len(), 1);
    assert_eq!(answer[0].snaps[&(data.0 as i32)].len(), 2);
    let pool = c.map().pool(data).unwrap().clone();
    assert!(pool.is_unmanaged_snaps_mode() && pool.snap_seq.0 == 7);
    assert!(c.map().removed_snaps_queue[&data].contains(5) && !c.map().removed_snaps_queue[&data].contains(6));
    let epoch = c.map().epoch;
    assert_eq!(ask(&mut c, d[0].conn, &[5, 7]).len(), 1);
    assert_eq!(c.map().epoch, epoch, "nothing is new");
    let reader = c.client("client.r", "allow r");
    assert!(ask(&mut c, reader, &[6]).is_empty());
    assert_eq!(c.map().epoch, epoch);
    assert_eq!(ask(&mut c, d[0].conn, &[u64::MAX, 0]).len(), 1);
    assert_eq!(c.map().pool(data).unwrap().snap_seq.0, 7, "no such snapshots");
    let busy = json!({ "prefix": "osd pool rm", "pool": "d", "pool2": "d", "yes_i_really_really_mean_it": true });
    assert_eq!(c.command(admin, &busy, "").0, base::errno::EBUSY);
}

#[test]
fn clients_see_only_the_file_systems_that_their_caps_name() {
    let (mut c, admin) = with_fs();
    for pool in ["m2", "d2"] {
        c.ok(admin, &json!({ "prefix": "osd pool create", "pool": pool, "pg_num": 8 }));
    }
    c.ok(admin, &json!({ "prefix": "fs new", "fs_name": "other", "metadata": "m2", "data": "d2" }));
    let mine = c.client("client.x", "allow r fsname=other");
    for what in ["fsmap", "fsmap.user", "mdsmap", "mdsmap.1", "mdsmap.2", "mdsmap.3", "mdsmap.x"] {
        c.subscribe(mine, what, 0, true);
    }
    let names = |m: &FsMap| m.filesystems.values().map(|f| f.mds_map.fs_name.clone()).collect::<Vec<_>>();
    assert_eq!(c.take::<MFsMap>(mine).iter().map(|m| names(&m.fsmap)).collect::<Vec<_>>(), [["other"]]);
    let user = c.take::<MFsMapUser>(mine);
    assert_eq!((user[0].fsmap.filesystems.len(), user[0].fsmap.legacy_client_fscid), (1, -1));
    let maps = c.take::<MMdsMap>(mine);
    assert_eq!(maps.len(), 1);
    assert_eq!(MdsMap::from_bytes(&maps[0].encoded).unwrap().fs_name, "other");
    for (prefix, rc) in [("fs get", base::errno::ENOENT), ("fs fail", base::errno::EACCES)] {
        assert_eq!(c.command(mine, &json!({ "prefix": prefix, "fs_name": "home" }), "").0, rc, "{prefix}");
    }
    let writer = c.client("client.w", "allow rw fsname=other");
    let (rc, rs, _) = c.command(writer, &json!({ "prefix": "fs fail", "fs_name": "home" }), "");
    assert_eq!((rc, rs.as_str()), (base::errno::EPERM, "Permission denied: 'home'"));
    c.ok(writer, &json!({ "prefix": "fs fail", "fs_name": "other" }));
}

#[test]
fn the_fsmap_and_its_history_survive_a_restart() {
    let (mut c, admin) = with_fs();
    let mut d = vec![Mds::boot(&mut c, "a", 6001)];
    settle(&mut c, &mut d);
    let (map, count, told) = (the_map(&c).clone(), c.core.state().fs.epochs.len(), c.core.state().fs.metadata.clone());
    let dump = c.ok(admin, &json!({ "prefix": "fs dump", "epoch": 2, "format": "json" }));
    c.restart();
    assert_eq!((the_map(&c), c.core.state().fs.epochs.len()), (&map, count));
    assert_eq!(c.core.state().fs.metadata, told);
    let admin = c.admin();
    assert_eq!(c.ok(admin, &json!({ "prefix": "fs dump", "epoch": 2, "format": "json" })), dump);
    assert_eq!(c.command(admin, &json!({ "prefix": "fs dump", "epoch": 999 }), "").0, base::errno::ENOENT);
}

fn golden(name: &str) -> FsMap {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/fsmap").join(format!("{name}.bin"));
    FsMap::from_bytes(&std::fs::read(path).unwrap().into()).unwrap()
}

/// The text with the members of quiesce databases sorted: real monitors print them in no order.
fn ordered(text: &str) -> String {
    let mut parts = text.trim().split("\"qdb_cluster\":[");
    let mut out = parts.next().unwrap().to_owned();
    for part in parts {
        let (members, rest) = part.split_once(']').unwrap();
        let mut members: Vec<&str> = members.split(',').collect();
        members.sort_unstable();
        out += &format!("\"qdb_cluster\":[{}]{rest}", members.join(","));
    }
    out
}

#[test]
fn maps_are_shown_as_a_real_monitor_shows_them() {
    let mut c = Cluster::new();
    let admin = c.admin();
    for n in [7, 13, 48, 62, 65, 83, 94, 100] {
        c.core.pretend(|s| s.fs.map = golden(&format!("t-{n}")));
        fsmap::check(the_map(&c)).unwrap_or_else(|e| panic!("epoch {n}: {e}"));
        let path = format!("../../vectors/fsmap/t-{n}.json");
        let theirs = std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        let ours = c.ok(admin, &json!({ "prefix": "fs dump", "format": "json" }));
        assert_eq!(ordered(&ours), ordered(&theirs), "epoch {n}");
    }
    let lines = [
        ("t-48", "home:2 {0=a=up:active,1=b=up:active} 1 up:standby-replay", "2/2 daemons up, 1 hot standby"),
        ("t-100", "f1:1 f2:1 {f1:0=c=up:active,f2:0=b=up:active} 1 up:standby", "2/2 daemons up, 1 standby"),
        ("p-63", "home:0/2 3 up:standby, 2 failed", "0/2 daemons up (2 failed), 3 standby"),
    ];
    for (name, stat, services) in lines {
        c.core.pretend(|s| s.fs.map = golden(name));
        assert_eq!(c.ok(admin, &json!({ "prefix": "mds stat" })).trim(), stat);
        let status = c.ok(admin, &json!({ "prefix": "status" }));
        assert!(status.contains(&format!("    mds: {services}\n")), "{status}");
    }
}

#[test]
fn a_file_system_is_not_swapped_with_itself() {
    let (mut c, admin) = with_fs();
    c.ok(admin, &json!({ "prefix": "fs fail", "fs_name": "home" }));
    let refuse = json!({ "prefix": "fs set", "fs_name": "home", "var": "refuse_client_session", "val": "true" });
    c.ok(admin, &refuse);
    let id = the_map(&c).fs_by_name("home").unwrap().fscid;
    let swap = json!({
        "prefix": "fs swap", "fs1_name": "home", "fs1_id": id, "fs2_name": "home", "fs2_id": id, "swap_fscids": "yes",
        "yes_i_really_mean_it": true,
    });
    let (rc, rs, _) = c.command(admin, &swap, "");
    assert_eq!((rc, rs.as_str()), (-22, "'home' is both file systems of the command; name two different ones"));
    assert_eq!(the_map(&c).fs_by_name("home").map(|f| f.fscid), Some(id));
}

#[test]
fn mds_daemons_get_performance_queries_while_there_are_any() {
    use mgr::files::Filter;
    use wire::msg::{MMgrConfigure, MMgrOpen, MMgrReport};
    use wire::types::{MdsPerfMetricReport, MetricConfig, MetricReport, PerfMetricReport};
    let (mut c, _) = with_fs();
    let mut d = vec![Mds::boot(&mut c, "a", 6001), Mds::boot(&mut c, "b", 6002)];
    settle(&mut c, &mut d);
    let ranks = c.core.first_ranks();
    assert_eq!(ranks.len(), 1);
    assert_eq!((ranks[0].fs.as_str(), ranks[0].daemon.as_str(), ranks[0].gid), ("home", "a", 6001));
    assert_eq!(Some(&ranks[0].addr), d[0].addrs.msgr2());

    let filter = Filter::parse("", "", "").unwrap();
    let at_manager = |c: &mut Cluster, name: &str, gid| {
        let conn = c.open(Peer {
            principal: who(EntityKind::MDS, &format!("mds.{name}"), gid, "allow profile mds"),
            entity: EntityName::new(EntityKind::MDS, gid as i64),
            addrs: addr(30_000, 1),
            features: Features::PACIFIC,
            role: Role::Mgr,
        });
        c.send(conn, &MMgrOpen { daemon_name: name.into(), ..MMgrOpen::default() });
        conn
    };
    let asked = |c: &mut Cluster, conn| -> Vec<_> {
        let all = c.take::<MMgrConfigure>(conn).into_iter();
        all.map(|m| match m.metric_config {
            Some(MetricConfig::Mds(q)) => q.into_iter().map(|(q, limits)| (q, limits.len())).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        })
        .collect()
    };
    let a = at_manager(&mut c, "a", 6001);
    assert_eq!(asked(&mut c, a), [vec![]]);
    c.core.ask_mds(filter.queries());
    c.ticks(1);
    let all: Vec<_> = filter.queries().into_iter().map(|q| (q, 0)).collect();
    assert_eq!(asked(&mut c, a), std::slice::from_ref(&all));
    let b = at_manager(&mut c, "b", 6002);
    assert_eq!(asked(&mut c, b), [all], "one that comes later is asked, too");

    let reports = filter.queries().into_iter().map(|q| (q, PerfMetricReport::default())).collect();
    let of_first = MdsPerfMetricReport { reports, rank_metrics_delayed: vec![] };
    let report = |metric_report| MMgrReport { daemon_name: "a".into(), metric_report, ..MMgrReport::default() };
    c.send(a, &report(Some(MetricReport::Mds(of_first.clone()))));
    assert!(c.core.mds_counted("a").unwrap().answers(&filter) && c.core.mds_counted("b").is_none());
    c.send(a, &report(None));
    assert!(c.core.mds_counted("a").is_none(), "it is no first rank any more");
    c.send(a, &report(Some(MetricReport::Mds(of_first.clone()))));
    c.core.ask_mds(Vec::new());
    c.ticks(1);
    assert_eq!(asked(&mut c, a), [vec![]]);
    c.send(a, &report(Some(MetricReport::Mds(of_first))));
    assert!(c.core.mds_counted("a").is_none(), "nobody asks");
}
