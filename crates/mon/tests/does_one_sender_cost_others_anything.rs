//! Do commands, lines and records of one sender cost the others their turn, their change or their lines?
//!
//! The test counts the work of turns and the records of proposals; it measures no time.

mod support;

use base::{AuthName, EntityKind, EntityName, Epoch, Utime, errno};
use bytes::Bytes;
use mon::core::intake::turns::{BYTES_A_TURN, WORK_A_TURN};
use mon::core::{Effect, Event};
use mon::state::Role;
use serde_json::{Value, json};
use state::StateStore;
use support::*;
use wire::msg::*;
use wire::types::{LogEntry, PaxosHeader};
use wire::{Features, WireMessage};

/// Gives the core a command without ending the turn.
fn begin(c: &mut Cluster, from: u64, tid: u64, cmd: &Value, input: &[u8]) {
    let data = Bytes::copy_from_slice(input);
    let m = MMonCommand { fsid: FSID, cmd: vec![cmd.to_string().into()], data, paxos: PaxosHeader::default() };
    c.core.handle(Event::Message(from, m.to_message(Features::PACIFIC).with_tid(tid)), c.now);
}

fn line(seq: u64, channel: &str, msg: &str) -> LogEntry {
    let stamp = Utime { sec: 1_700_000_000, nsec: seq as u32 };
    LogEntry { seq, stamp, channel: channel.to_owned(), msg: msg.to_owned().into(), ..LogEntry::default() }
}

fn log(entries: Vec<LogEntry>) -> MLog {
    MLog { paxos: PaxosHeader::default(), fsid: FSID, entries }
}

/// Ends one turn and returns the answers: connection, transaction id and length.
fn turn(c: &mut Cluster) -> Vec<(u64, u64, usize)> {
    c.core.flush();
    let mut out = Vec::new();
    for e in c.core.take_effects() {
        match e {
            Effect::Send(to, m) => out.push((to, m.header.tid, m.data.len())),
            Effect::Submit(r) => c.store.submit(r),
            _ => {}
        }
    }
    while let Some(e) = c.store.poll() {
        c.core.handle(Event::State(e), c.now);
    }
    out
}

#[test]
fn thousands_of_commands_of_one_session_delay_others_by_a_turn() {
    let (mut c, _, osds) = Cluster::with_osds(1);
    for n in 0..2 {
        let lines = (0..1000).map(|i| line(n * 1000 + i, "cluster", &"x".repeat(200))).collect();
        c.send(osds[0], &log(lines));
    }
    let greedy = c.client("client.greedy", "allow r");
    let other = c.client("client.other", "allow r");
    c.out.clear();
    let all = json!({ "prefix": "log last", "num": 10_000, "level": "debug", "channel": "*" });
    for tid in 0..600 {
        begin(&mut c, greedy, tid, &all, b"");
    }
    assert!(c.core.take_holds().contains(&(greedy, true)), "the host reads no more of it");
    begin(&mut c, other, 7000, &json!({ "prefix": "osd stat" }), b"");
    let first = turn(&mut c);
    let second = turn(&mut c);
    assert!(first.iter().chain(&second).any(|(to, tid, _)| (*to, *tid) == (other, 7000)));
    let answer = first.iter().map(|a| a.2).max().unwrap();
    assert!(answer > 500_000, "{answer}");
    // Each answer comes, in order, and no turn makes more than its share.
    let mut tids: Vec<u64> = first.into_iter().chain(second).filter(|a| a.0 == greedy).map(|a| a.1).collect();
    // While its answers are not sent, its commands wait, and others do not.
    c.core.output_full(greedy, true);
    assert!(!c.core.has_more());
    assert!(turn(&mut c).is_empty());
    begin(&mut c, other, 7001, &json!({ "prefix": "osd stat" }), b"");
    assert_eq!(turn(&mut c).iter().map(|a| a.1).collect::<Vec<_>>(), [7001]);
    c.core.output_full(greedy, false);
    for _ in 0..10 {
        let out = turn(&mut c);
        assert!(out.iter().map(|a| a.2).sum::<usize>() <= BYTES_A_TURN + 2 * answer);
        tids.extend(out.into_iter().map(|a| a.1));
    }
    assert_eq!(tids, (0..tids.len() as u64).collect::<Vec<_>>());
    let (work, bytes) = c.core.turn_work();
    assert!(work <= WORK_A_TURN + 100 && bytes <= BYTES_A_TURN + 2 * answer, "{work} {bytes}");
    c.close(greedy);
    assert!(!c.core.has_more(), "what waits goes with its session");
}

/// A listing with read balance scores places all PGs, once under each map.
#[test]
fn listings_of_read_scores_count_as_what_they_cost() {
    let (mut c, admin, _) = Cluster::with_osds(3);
    for id in 0..3 {
        let s = c.osd_session(id, addr(6900 + id as u16, 1), Role::Mon);
        let mut m = boot_message(FSID, id, c.map().epoch, 0);
        m.osd_features = Features::PACIFIC.0 | Features::OSD_RELEASES.0 | PeerFeatures::OURS.bits();
        c.send(s, &m);
    }
    c.ok(admin, &json!({ "prefix": "config set", "who": "global", "name": "mon_max_pg_per_osd", "value": "10000" }));
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 4000, "pgp_num": 4000 }));
    c.ok(admin, &json!({ "prefix": "osd require-osd-release", "release": "reef" }));
    let greedy = c.client("client.greedy", "allow r");
    let other = c.client("client.other", "allow r");
    let list = json!({ "prefix": "osd pool ls", "detail": "detail", "format": "json" });
    for round in 0..2 {
        c.out.clear();
        for n in 0..50 {
            begin(&mut c, greedy, 100 * round + n, &list, b"");
        }
        begin(&mut c, other, 7000 + round, &json!({ "prefix": "osd stat" }), b"");
        let first = turn(&mut c);
        assert_eq!(first.iter().filter(|a| a.0 == greedy).count(), 1, "round {round}: it is more than a turn's work");
        let second = turn(&mut c);
        assert!(first.iter().chain(&second).any(|a| (a.0, a.1) == (other, 7000 + round)));
        // What is known costs nothing.
        assert!(second.iter().filter(|a| a.0 == greedy).count() > 20);
        let one = first.iter().find(|a| a.0 == greedy).unwrap().2;
        assert!(second.iter().filter(|a| a.0 == greedy).all(|a| a.2 == one && one > 500), "{one}");
        while c.core.has_more() {
            turn(&mut c);
        }
        c.ok(admin, &json!({ "prefix": "osd set", "key": "noout" }));
    }
    let shown: Value = serde_json::from_str(&c.ok(admin, &list)).unwrap();
    assert_eq!(shown[0]["read_balance"]["score_type"], "Fair distribution");
}

#[test]
fn messages_that_waited_for_a_commit_are_handled_in_turns_and_in_order() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    c.held = Some(Vec::new());
    c.ok_later(admin, &json!({ "prefix": "osd set", "key": "noout" }));
    let writers: Vec<u64> = (0..4).map(|_| c.admin()).collect();
    for n in 0..500u64 {
        let set = json!({ "prefix": "config-key set", "key": format!("k{}", n % 7), "val": n.to_string() });
        begin(&mut c, writers[n as usize % 4], n, &set, b"");
    }
    for _ in 0..20 {
        c.core.flush();
    }
    for r in c.held.take().unwrap() {
        c.store.submit(r);
    }
    c.pump();
    let mut answered = 0;
    for w in &writers {
        let tids: Vec<u64> = c
            .out
            .iter()
            .filter(|(x, m)| x == w && m.header.kind == MMonCommandAck::KIND)
            .map(|(_, m)| m.header.tid)
            .collect();
        assert!(tids.is_sorted());
        answered += tids.len();
    }
    assert_eq!(answered, 500);
    assert_eq!(c.core.state().kv.entries().len(), 7);
    assert_eq!(c.core.waiting(), (0, 0));
    assert!(c.core.turn_work().0 <= WORK_A_TURN + 100, "{:?}", c.core.turn_work());
}

#[test]
fn a_change_that_is_too_large_costs_only_its_sender() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    let epoch = c.map().epoch;
    c.out.clear();
    let long = "X".repeat(5000);
    begin(&mut c, admin, 1, &json!({ "prefix": "osd set", "key": "noout" }), b"");
    begin(&mut c, admin, 2, &json!({ "prefix": "health mute", "code": long, "sticky": true }), b"");
    begin(&mut c, admin, 3, &json!({ "prefix": "config-key set", "key": "k", "val": "v" }), b"");
    c.pump();
    let mut acks: Vec<(u64, i32)> = c
        .out
        .iter()
        .filter(|(_, m)| m.header.kind == MMonCommandAck::KIND)
        .map(|(_, m)| (m.header.tid, MMonCommandAck::from_message(m).unwrap().r))
        .collect();
    acks.sort_unstable();
    assert_eq!(acks, [(1, 0), (2, errno::EFBIG), (3, 0)]);
    assert!(c.closed.is_empty());
    assert_eq!(c.map().epoch, epoch.next());
    assert_eq!(c.core.state().kv.entries().len(), 1);
    assert!(c.core.state().mutes.is_empty());
    c.restart();
    assert_eq!(c.core.state().kv.entries().len(), 1);
}

#[test]
fn long_lines_and_metadata_are_cut_and_many_options_are_several_versions() {
    let (mut c, admin, osds) = Cluster::with_osds(1);
    c.send(osds[0], &log(vec![line(1, "cluster", &"y".repeat(600_000))]));
    assert_eq!(c.take::<MLogAck>(osds[0]).len(), 1);
    let last = c.core.state().log.newest(1).next().unwrap().msg.0.len();
    assert!((1..=16 << 10).contains(&last), "{last}");
    c.new_osd(admin, 1, "h1");
    let s = c.osd_session(1, osd_addr(1), Role::Mon);
    let mut boot = boot_message(FSID, 1, c.map().epoch, 0);
    boot.metadata.insert("z".into(), "z".repeat(600_000));
    c.send(s, &boot);
    assert!(c.map().is_up(base::OsdId(1)));
    assert_eq!(c.core.state().osds.metadata[&base::OsdId(1)].len(), 1);
    // 100 long options in one turn, and back to the version before.
    let before = c.core.state().config.version;
    for n in 0..100 {
        let set = json!({ "prefix": "config set", "who": format!("osd.{n}"), "name": "osd_recovery_op_priority", "value": "7" });
        begin(&mut c, admin, n, &set, b"");
    }
    c.pump();
    assert_eq!(c.core.state().config.values.len(), 100);
    c.out.clear();
    c.ok(admin, &json!({ "prefix": "config reset", "num": before }));
    assert!(c.core.state().config.values.is_empty());
    let (rc, _, _) = c.command(
        admin,
        &json!({ "prefix": "auth import" }),
        "[client.x]\n\tkey = AQBiBHtgAAAAABAAc2VjcmV0c2VjcmV0c2U=\n\tcaps mon = \"allow nonsense(\"\n",
    );
    assert_eq!(rc, errno::EINVAL, "caps are parsed");
    assert!(!c.core.state().auth.contains_key(&AuthName::parse("client.x").unwrap()));
}

#[test]
fn a_line_of_the_log_names_its_session_and_leaves_the_audit_channel_alone() {
    let (mut c, admin, osds) = Cluster::with_osds(1);
    c.ok(admin, &json!({ "prefix": "osd set", "key": "noout" }));
    let audit = |c: &Cluster| c.core.state().log.last(100, mon::state::log::Prio::DEBUG, "audit").len();
    let kept = audit(&c);
    assert!(kept > 0);
    let mut forged = line(5, "audit", "from='mon' entity='client.admin' cmd=[]: finished");
    forged.name = AuthName::parse("mon.a").unwrap();
    let mut plain = line(6, "cluster", "hello");
    plain.name = AuthName::parse("mon.a").unwrap();
    plain.rank = EntityName::new(EntityKind::MON, 0);
    plain.stamp.sec += 10_000_000;
    let rgw = c.client("client.rgw", "allow rw");
    for from in [osds[0], rgw] {
        c.send(from, &log(vec![forged.clone(), plain.clone()]));
        assert_eq!(c.take::<MLogAck>(from)[0].last, 6, "acknowledged, or it is repeated for ever");
    }
    let lines: Vec<LogEntry> = c.core.state().log.newest(10).filter(|e| e.msg.0 == "hello").cloned().collect();
    assert_eq!(lines.iter().map(|l| l.name.to_string()).collect::<Vec<_>>(), ["client.rgw", "osd.0"]);
    assert!(lines.iter().all(|l| l.rank.kind != EntityKind::MON && l.stamp < plain.stamp));
    assert!(
        !c.core
            .state()
            .log
            .last(100, mon::state::log::Prio::DEBUG, "audit")
            .iter()
            .any(|l| l.msg.0.contains("from='mon'"))
    );
    // 12,000 further lines push out lines of their own kind only, and each proposal takes a bounded number.
    let kept = audit(&c);
    c.unchecked = true;
    for n in 0..12 {
        c.send(osds[0], &log((0..1000).map(|i| line(100 + n * 1000 + i, "cluster", "flood")).collect()));
    }
    assert_eq!(audit(&c), kept);
    assert!(c.core.state().log.len() <= 10_000 + kept);
    let stored = c.core.state().log.len();
    c.restart();
    assert_eq!(c.core.state().log.len(), stored);
}

#[test]
fn a_client_far_behind_is_at_the_newest_map_after_one_answer() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    for n in 0..400 {
        let prefix = if n % 2 == 0 { "osd set" } else { "osd unset" };
        c.ok(admin, &json!({ "prefix": prefix, "key": "noscrub" }));
    }
    c.pass(std::time::Duration::from_secs(60));
    let newest = c.map().epoch;
    let client = c.client("client.x", "allow r");
    for (start, onetime) in [(3, true), (3, false), (newest.0 - 100, true), (newest.0, true)] {
        c.out.clear();
        c.subscribe(client, "osdmap", start.into(), onetime);
        let maps = c.take::<MOsdMap>(client);
        // As a client does: increments in order, or a jump to the oldest map that the message names.
        let mut at = Epoch(start - 1);
        for m in &maps {
            let last = m.maps.keys().chain(m.incremental_maps.keys()).max().copied().unwrap();
            while at < last {
                let next = at.next();
                if m.incremental_maps.contains_key(&next) || m.maps.contains_key(&next) {
                    at = next;
                } else {
                    assert!(next <= m.cluster_osdmap_trim_lower_bound, "it would ask for epoch {next}");
                    at = Epoch(m.cluster_osdmap_trim_lower_bound.0 - 1);
                }
            }
        }
        assert_eq!(at, newest, "from {start}");
        assert!(maps.len() <= 12, "{} messages", maps.len());
    }
}

#[test]
fn a_repeated_registration_of_a_service_changes_nothing_and_maps_are_sent_once_a_second() {
    let mut c = Cluster::new();
    let watcher = c.admin();
    c.subscribe(watcher, "servicemap", 0, false);
    c.out.clear();
    let open = |c: &mut Cluster, name: &str, n: u64| {
        let mut p = peer(name, EntityKind::CLIENT, 9000 + n, "allow rw");
        p.role = Role::Mgr;
        let s = c.open(p);
        let about = [("hostname".to_owned(), "h".to_owned())].into();
        let m = MMgrOpen {
            service_name: "rgw".into(),
            daemon_name: format!("d{n}"),
            service_daemon: Some((about, Default::default())),
            ..MMgrOpen::default()
        };
        c.send(s, &m);
        (s, m)
    };
    let (s, m) = open(&mut c, "client.rgw", 0);
    let epoch = c.core.state().mgr.services.epoch;
    for _ in 0..50 {
        c.send(s, &m);
    }
    assert_eq!(c.core.state().mgr.services.epoch, epoch);
    for n in 1..60 {
        open(&mut c, "client.rgw", n);
    }
    let sent = c.take::<MServiceMap>(watcher).len();
    assert!(sent <= 2, "{sent} maps in no time");
    c.ticks(2);
    let maps = c.take::<MServiceMap>(watcher);
    assert_eq!(maps.last().unwrap().service_map.services["rgw"].daemons.len(), 60);
    // One entity does not fill the map.
    for n in 60..400 {
        open(&mut c, "client.rgw", n);
    }
    assert_eq!(c.core.state().mgr.services.services["rgw"].daemons.len(), 256);
}

#[test]
fn ping_tells_the_health_and_the_place_of_the_monitor() {
    let mut c = Cluster::new();
    let client = c.client("client.x", "allow r");
    let ask = |c: &mut Cluster| -> Value {
        c.send(client, &MPing::with_text(""));
        let m = c.out.iter().rev().find(|(to, m)| *to == client && m.header.kind == MPing::KIND).unwrap().1.clone();
        let text = String::from_utf8_lossy(&m.front).into_owned();
        let start = text.find('{').unwrap();
        serde_json::from_str(&text[start..=text.rfind('}').unwrap()]).unwrap()
    };
    let before = ask(&mut c);
    assert_eq!(before["mon_status"], json!({ "name": "a", "rank": 0, "state": "leader" }));
    let admin = c.admin();
    let (_, _, health) = c.command(admin, &json!({ "prefix": "health", "format": "json" }), "");
    let health: Value = serde_json::from_str(&health).unwrap();
    assert_eq!(before["health"]["status"], health["status"]);
    assert_ne!(before["health"]["status"], "HEALTH_OK", "a cluster without OSDs");
}
