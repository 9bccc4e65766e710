//! When does the monitor believe failure reports of a silent OSD, and what follows from silence alone?

mod support;

use std::time::Duration;

use base::{Epoch, OsdId};
use cluster::osdmap::osd_state;
use mon::state::Role;
use serde_json::json;
use state::StateStore as _;
use support::*;
use wire::msg::failure_flags::{ALIVE, FAILED, IMMEDIATE};
use wire::msg::*;
use wire::types::PaxosHeader;

fn report(c: &Cluster, target: i32, flags: u8, failed_for: i32) -> MOsdFailure {
    MOsdFailure {
        paxos: PaxosHeader::from(c.map().epoch),
        fsid: FSID,
        target_osd: OsdId(target),
        target_addrs: osd_addr(target),
        epoch: c.map().epoch,
        flags,
        failed_for,
    }
}

#[test]
fn a_refused_connection_is_believed_at_once() {
    let (mut c, _, osds) = Cluster::with_osds(3);
    // The kernel closes the sessions of a process that has ended, also with the monitor.
    c.close(osds[1]);
    let e = c.map().epoch;
    let m = report(&c, 1, FAILED | IMMEDIATE, 21);
    c.send(osds[0], &m);
    assert!(c.map().is_down(OsdId(1)));
    assert_eq!((c.map().epoch, c.map().xinfo(OsdId(1)).dead_epoch), (e.next(), e.next()), "in one map");
    let told = c.take::<MOsdMap>(osds[0]);
    assert_eq!(told.len(), 1, "the reporter is told once");
    // The second report (front and back are checked separately) finds the OSD down.
    let after = c.map().epoch;
    c.send(osds[0], &m);
    assert_eq!(c.map().epoch, after);
}

#[test]
fn an_osd_is_not_called_dead_on_another_s_word_while_its_session_is_open() {
    let (mut c, _, osds) = Cluster::with_osds(4);
    let up_from = c.map().info(OsdId(1)).up_from;
    let dead = |c: &Cluster| c.map().xinfo(OsdId(1)).dead_epoch > up_from;
    let m = report(&c, 1, FAILED | IMMEDIATE, 21);
    c.send(osds[0], &m);
    assert!(c.map().is_down(OsdId(1)) && !dead(&c), "the reporter may lie, or a firewall rejects its packets");
    c.ticks(3);
    assert!(!dead(&c));
    // The next process of the OSD is another one.
    let next = c.osd_session(1, addr(6999, 9), Role::Mon);
    c.close(osds[1]);
    assert!(dead(&c), "the session of the reported process has ended");
    let e = c.map().epoch;
    c.close(next);
    assert_eq!(c.map().epoch, e, "nothing is left to tell");
}

/// A leader that finds an OSD down does not know why it was marked so.
#[test]
fn another_leader_calls_no_osd_dead_that_is_down() {
    let (mut c, _, osds) = Cluster::with_osds(4);
    let m = report(&c, 1, FAILED | IMMEDIATE, 21);
    c.send(osds[0], &m);
    assert!(c.map().is_down(OsdId(1)));
    c.restart();
    let session = c.osd_session(1, osd_addr(1), Role::Mon);
    c.close(session);
    c.ticks(3);
    assert_eq!(c.map().xinfo(OsdId(1)).dead_epoch, Epoch(0));
}

#[test]
fn an_osd_that_boots_again_after_a_false_report_is_not_called_dead() {
    let (mut c, _, osds) = Cluster::with_osds(4);
    let m = report(&c, 1, FAILED | IMMEDIATE, 21);
    c.send(osds[0], &m);
    assert!(c.map().is_down(OsdId(1)));
    let again = c.boot(1, &osd_addr(1));
    assert!(c.map().is_up(OsdId(1)));
    let e = c.map().epoch;
    c.close(osds[1]);
    c.close(again);
    assert_eq!(c.map().xinfo(OsdId(1)).dead_epoch, Epoch(0));
    assert!(c.map().is_up(OsdId(1)) && c.map().epoch == e, "an ended session alone proves nothing");
}

#[test]
fn a_report_of_a_refusal_waits_for_no_other_change() {
    let (mut c, admin, osds) = Cluster::with_osds(4);
    c.close(osds[1]);
    // Another proposal is on its way to the state store.
    c.held = Some(Vec::new());
    c.ok_later(admin, &json!({ "prefix": "osd set", "key": "noout" }));
    let m = report(&c, 1, FAILED | IMMEDIATE, 21);
    c.send(osds[0], &m);
    assert!(c.map().is_up(OsdId(1)));
    for r in c.held.take().unwrap() {
        c.store.submit(r);
    }
    c.pump();
    assert!(c.map().is_down(OsdId(1)), "with the proposal right after it, without a tick");
    assert!(c.map().xinfo(OsdId(1)).dead_epoch > c.map().info(OsdId(1)).up_from);
}

#[test]
fn silence_needs_two_hosts_and_the_grace() {
    let (mut c, _, osds) = Cluster::with_osds(4);
    let m = report(&c, 3, FAILED, 21);
    c.send(osds[0], &m);
    c.ticks(30);
    assert!(c.map().is_up(OsdId(3)), "one witness");
    let m = report(&c, 3, FAILED, 18);
    c.send(osds[1], &m);
    assert!(c.map().is_up(OsdId(3)), "not long enough");
    c.ticks(1);
    assert!(c.map().is_up(OsdId(3)));
    c.ticks(2);
    assert!(c.map().is_down(OsdId(3)), "found by the clock alone");
}

#[test]
fn a_report_taken_back_does_not_count() {
    let (mut c, _, osds) = Cluster::with_osds(4);
    let m = report(&c, 3, FAILED, 18);
    c.send(osds[0], &m);
    c.send(osds[1], &m);
    let m = report(&c, 3, ALIVE, 0);
    c.send(osds[0], &m);
    c.ticks(30);
    assert!(c.map().is_up(OsdId(3)));
}

#[test]
fn reports_about_another_instance_or_from_a_dead_one_are_ignored() {
    let (mut c, admin, osds) = Cluster::with_osds(3);
    let mut old = report(&c, 1, FAILED | IMMEDIATE, 21);
    old.target_addrs = addr(6810, 1);
    c.send(osds[0], &old);
    assert!(c.map().is_up(OsdId(1)), "other addresses");
    let mut early = report(&c, 1, FAILED | IMMEDIATE, 21);
    early.epoch = Epoch(1);
    c.send(osds[0], &early);
    assert!(c.map().is_up(OsdId(1)), "seen before it came up");
    c.ok(admin, &json!({ "prefix": "osd down", "ids": ["0"] }));
    let m = report(&c, 1, FAILED | IMMEDIATE, 21);
    c.send(osds[0], &m);
    assert!(c.map().is_up(OsdId(1)), "the reporter is down itself");
    c.ok(admin, &json!({ "prefix": "osd set", "key": "nodown" }));
    let m = report(&c, 1, FAILED | IMMEDIATE, 21);
    c.send(osds[2], &m);
    assert!(c.map().is_up(OsdId(1)), "nodown");
}

#[test]
fn no_osd_is_marked_down_below_the_min_up_ratio() {
    let (mut c, _, osds) = Cluster::with_osds(4);
    for target in [0, 1, 2] {
        let m = report(&c, target, FAILED | IMMEDIATE, 21);
        c.send(osds[3], &m);
    }
    let up = (0..4).filter(|o| c.map().is_up(OsdId(*o))).count();
    assert_eq!(up, 1, "4, 3, 2 of 4 up allow another one down; 1 of 4 would not");
    let m = report(&c, 3, FAILED | IMMEDIATE, 21);
    c.send(osds[3], &m);
    assert!(c.map().is_up(OsdId(3)));
}

#[test]
fn an_osd_without_beacons_is_marked_down() {
    let (mut c, _, osds) = Cluster::with_osds(2);
    c.ticks(1);
    for _ in 0..10 {
        c.pass(Duration::from_secs(99));
        let e = c.map().epoch;
        c.send(osds[0], &MOsdBeacon { paxos: PaxosHeader::from(e), ..MOsdBeacon::default() });
        c.ticks(1);
    }
    assert!(c.map().is_up(OsdId(0)));
    assert!(c.map().is_down(OsdId(1)), "silent for 1000 seconds");
}

#[test]
fn an_osd_down_for_long_is_out_and_returns_with_its_old_weight() {
    let (mut c, admin, osds) = Cluster::with_osds(4);
    c.ok(admin, &json!({ "prefix": "osd reweight", "id": "osd.2", "weight": 0.5 }));
    let m = report(&c, 2, FAILED | IMMEDIATE, 21);
    c.send(osds[0], &m);
    c.pass(Duration::from_secs(590));
    c.ticks(1);
    assert!(c.map().is_in(OsdId(2)));
    c.pass(Duration::from_secs(10));
    c.ticks(1);
    assert!(c.map().is_out(OsdId(2)));
    assert_eq!(c.map().state(OsdId(2)) & osd_state::AUTOOUT, osd_state::AUTOOUT);
    assert_eq!(c.map().xinfo(OsdId(2)).old_weight, 0x8000);
    c.boot(2, &osd_addr(2));
    assert_eq!(c.map().weight(OsdId(2)), 0x8000);
    assert_eq!(c.map().state(OsdId(2)) & osd_state::AUTOOUT, 0);
    assert_eq!(c.map().xinfo(OsdId(2)).old_weight, 0);
}

#[test]
fn an_osd_marked_out_returns_with_its_old_weight() {
    let (mut c, admin, _) = Cluster::with_osds(4);
    c.ok(admin, &json!({ "prefix": "osd reweight", "id": "osd.2", "weight": 0.5 }));
    c.ok(admin, &json!({ "prefix": "osd out", "ids": ["2"] }));
    c.ok(admin, &json!({ "prefix": "osd out", "ids": ["2"] }));
    assert_eq!((c.map().weight(OsdId(2)), c.map().xinfo(OsdId(2)).old_weight), (0, 0x8000));
    c.ok(admin, &json!({ "prefix": "osd in", "ids": ["2"] }));
    assert_eq!((c.map().weight(OsdId(2)), c.map().xinfo(OsdId(2)).old_weight), (0x8000, 0));
}

#[test]
fn a_whole_rack_that_is_down_is_not_marked_out() {
    let (mut c, admin, _) = Cluster::with_osds(4);
    c.ok(admin, &json!({"prefix": "osd crush add-bucket", "name": "r1", "type": "rack"}));
    c.ok(admin, &json!({"prefix": "osd crush move", "name": "r1", "args": ["root=default"]}));
    // The hosts of OSDs 0 and 1 move into the rack.
    for o in [0, 1] {
        let host = c.map().crush.parent_of(o).unwrap();
        let name = c.map().crush.name_of(host).unwrap().to_owned();
        c.ok(admin, &json!({"prefix": "osd crush move", "name": name, "args": ["rack=r1"]}));
    }
    c.ok(admin, &json!({"prefix": "osd down", "ids": ["0", "1"]}));
    c.ticks(700);
    assert!(c.map().is_in(OsdId(0)) && c.map().is_in(OsdId(1)), "no disk failed here");
    c.ok(
        admin,
        &json!({"prefix": "config set", "who": "mon", "name": "mon_osd_down_out_subtree_limit", "value": "root"}),
    );
    c.ticks(3);
    assert!(c.map().is_out(OsdId(0)), "the limit is a larger one now");
}
