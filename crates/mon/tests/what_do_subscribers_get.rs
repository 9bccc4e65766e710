//! Does each subscription bring its messages, at once and later, and do other sessions get none?

mod support;

use base::{Epoch, OsdId};
use mon::state::Role;
use mon::state::options::MonOptions;
use serde_json::json;
use support::*;
use wire::Features;
use wire::msg::*;
use wire::types::PaxosHeader;

fn epochs(maps: &[MOsdMap]) -> Vec<(Vec<u32>, Vec<u32>)> {
    let keys = |m: &std::collections::BTreeMap<Epoch, bytes::Bytes>| m.keys().map(|e| e.0).collect();
    maps.iter().map(|m| (keys(&m.maps), keys(&m.incremental_maps))).collect()
}

/// Makes epochs until the newest is `n`.
fn grow(c: &mut Cluster, admin: u64, n: u32) {
    while c.map().epoch.0 < n {
        let key = if c.map().has_flag(cluster::osdmap::map_flag::NOSCRUB) { "unset" } else { "set" };
        c.ok(admin, &json!({ "prefix": format!("osd {key}"), "key": "noscrub" }));
    }
}

#[test]
fn osd_maps_by_start_and_flag() {
    let mut c = Cluster::with(FSID, MonOptions { map_message_max: 4, ..MonOptions::default() });
    let admin = c.admin();
    grow(&mut c, admin, 10);
    let s = c.admin();
    c.subscribe(s, "osdmap", 0, true);
    assert_eq!(epochs(&c.take(s)), [(vec![10], vec![])], "start 0 asks for the newest full map");
    c.subscribe(s, "osdmap", 8, true);
    assert_eq!(epochs(&c.take(s)), [(vec![], vec![8, 9, 10])]);
    c.subscribe(s, "osdmap", 2, true);
    let once = c.take::<MOsdMap>(s);
    c.subscribe(s, "osdmap", 2, false);
    let all = c.take::<MOsdMap>(s);
    assert_eq!(epochs(&once), epochs(&all), "a one-time wish, too, ends at the newest map");
    assert_eq!(epochs(&all), [(vec![], vec![2, 3, 4, 5]), (vec![], vec![6, 7, 8, 9]), (vec![], vec![10])]);
    assert!(all.iter().all(|m| m.newest_map.0 == 10 && m.cluster_osdmap_trim_lower_bound.0 == 1));
    grow(&mut c, admin, 11);
    assert_eq!(epochs(&c.take(s)), [(vec![], vec![11])], "a standing wish goes on");
    c.subscribe(s, "osdmap", 13, true);
    assert!(c.take::<MOsdMap>(s).is_empty());
    grow(&mut c, admin, 13);
    assert_eq!(epochs(&c.take(s)), [(vec![], vec![13])], "answered when there is something");
    grow(&mut c, admin, 14);
    assert!(c.take::<MOsdMap>(s).is_empty(), "and then gone");
}

#[test]
fn a_start_below_the_oldest_epoch_begins_with_a_full_map() {
    let mut c = Cluster::with(FSID, MonOptions { min_osdmap_epochs: 5, map_message_max: 40, ..MonOptions::default() });
    let admin = c.admin();
    grow(&mut c, admin, 20);
    c.ticks(2);
    let oldest = c.core.state().history.oldest;
    assert_eq!(oldest, Epoch(15));
    let s = c.admin();
    c.subscribe(s, "osdmap", 1, false);
    let maps = c.take::<MOsdMap>(s);
    assert_eq!(epochs(&maps), [(vec![20], vec![])], "a client jumps to the newest map");
    assert_eq!(maps[0].cluster_osdmap_trim_lower_bound, Epoch(20));
    let osd = c.osd_session(3, osd_addr(3), Role::Mon);
    c.subscribe(osd, "osdmap", 1, false);
    let maps = c.take::<MOsdMap>(osd);
    assert_eq!(epochs(&maps), [(vec![15], vec![]), (vec![], vec![16, 17, 18, 19, 20])]);
    assert_eq!(maps[0].cluster_osdmap_trim_lower_bound, oldest);
    let ask = MMonGetOsdMap { full_first: Epoch(3), full_last: Epoch(17), ..MMonGetOsdMap::default() };
    c.send(s, &ask);
    assert_eq!(epochs(&c.take(s)), [(vec![15, 16, 17], vec![])]);
    c.restart();
    assert_eq!(c.core.state().history.oldest, oldest);
}

#[test]
fn old_epochs_stay_while_an_osd_needs_them() {
    let mut c = Cluster::with(FSID, MonOptions { min_osdmap_epochs: 5, ..MonOptions::default() });
    let admin = c.admin();
    c.new_osd(admin, 0, "h0");
    let osd = c.boot(0, &osd_addr(0));
    grow(&mut c, admin, 20);
    c.ticks(2);
    assert_eq!(c.core.state().history.oldest, Epoch(1), "no beacon yet");
    let beacon = MOsdBeacon {
        paxos: PaxosHeader::have(9),
        min_last_epoch_clean: Epoch(8),
        osd_beacon_report_interval: 300,
        ..MOsdBeacon::default()
    };
    c.send(osd, &beacon);
    c.ticks(2);
    assert_eq!(c.core.state().history.oldest, Epoch(8));
}

#[test]
fn kernels_get_full_maps_they_can_read() {
    let mut c = Cluster::new();
    let admin = c.admin();
    grow(&mut c, admin, 3);
    // Luminous with the new addresses: the relevant features of a 6.x kernel.
    let kernel = Features(1 << 21 | 1 << 57 | 1 << 59);
    let s = c.client("client.k", "allow r");
    c.close(s);
    let s = c.open(mon::core::session::Peer {
        principal: who(base::EntityKind::CLIENT, "client.k", 9, "allow r"),
        entity: base::EntityName::new(base::EntityKind::CLIENT, 9),
        addrs: addr(0, 9),
        features: kernel,
        role: Role::Mon,
    });
    c.subscribe(s, "osdmap", 1, true);
    let maps = c.take::<MOsdMap>(s);
    assert_eq!(epochs(&maps), [(vec![3], vec![])]);
    let blob = &maps[0].maps[&Epoch(3)];
    assert_eq!(blob[6], 6, "client section version 6");
}

#[test]
fn maps_and_configuration_at_sign_in() {
    let mut c = Cluster::new();
    let s = c.client("client.x", "allow r");
    let what =
        [("config".to_owned(), SubscribeItem::new(0, false)), ("monmap".to_owned(), SubscribeItem::new(0, false))];
    c.send(s, &MMonGetMap {});
    c.send(s, &MMonSubscribe { what: what.into(), hostname: String::new() });
    assert_eq!(c.take::<MMonMap>(s).len(), 2);
    assert_eq!(c.take::<MConfig>(s).len(), 1, "also an empty one: clients wait for it");
    c.subscribe(s, "mgrmap", 0, false);
    let m = c.take::<MMgrMap>(s);
    assert_eq!(m.len(), 1);
    assert!(m[0].map.available && m[0].map.active_gid != 0);
    assert_eq!(m[0].map.active_addrs, addr(6801, 77));
    c.subscribe(s, "fsmap", 0, false);
    c.subscribe(s, "fsmap.user", 0, true);
    c.subscribe(s, "mdsmap", 0, true);
    c.subscribe(s, "servicemap", 0, false);
    assert_eq!(c.take::<MFsMap>(s).len(), 1);
    assert_eq!(c.take::<MFsMapUser>(s).len(), 1);
    assert!(c.take::<MMdsMap>(s).is_empty(), "a client gets none where there is no file system");
    assert_eq!(c.take::<MServiceMap>(s).len(), 1);
}

#[test]
fn changed_configuration_is_sent_whole_to_the_affected_sessions() {
    let (mut c, admin, osds) = Cluster::with_osds(1);
    let client = c.client("client.x", "allow r");
    for s in [osds[0], client] {
        c.subscribe(s, "config", 0, false);
        c.take::<MConfig>(s);
    }
    let set = |who: &str, name: &str, value: &str| json!({ "prefix": "config set", "who": who, "name": name, "value": value });
    c.ok(admin, &set("global", "debug_ms", "1"));
    c.ok(admin, &set("osd", "osd_max_backfills", "3"));
    let to_client = c.take::<MConfig>(client);
    assert_eq!(to_client.len(), 1, "only what concerns it");
    let to_osd = c.take::<MConfig>(osds[0]);
    assert_eq!(to_osd.len(), 2);
    assert_eq!(to_osd[1].config.len(), 2, "all options, not only the changed one");
    c.ok(admin, &json!({ "prefix": "config rm", "who": "osd", "name": "osd_max_backfills" }));
    assert_eq!(c.take::<MConfig>(osds[0])[0].config.len(), 1);
}

#[test]
fn log_lines_and_keys_go_to_their_subscribers() {
    let (mut c, admin, osds) = Cluster::with_osds(1);
    let s = c.admin();
    c.subscribe(s, "log-info", 0, false);
    c.subscribe(s, "kv:x/", 0, false);
    c.take::<MLog>(s);
    let kv = c.take::<MKvData>(s);
    assert!(kv.len() == 1 && !kv[0].incremental && kv[0].prefix == "x/");
    let line = |seq, prio, msg: &str| wire::types::LogEntry {
        name: base::AuthName::parse("osd.0").unwrap(),
        seq,
        prio,
        msg: msg.into(),
        channel: "cluster".into(),
        stamp: base::Utime { sec: 5, nsec: seq as u32 },
        ..wire::types::LogEntry::default()
    };
    let log = MLog { fsid: FSID, entries: vec![line(1, 0, "debug"), line(2, 3, "warn")], ..MLog::default() };
    c.send(osds[0], &log);
    assert_eq!(c.take::<MLogAck>(osds[0])[0].last, 2);
    let got = c.take::<MLog>(s);
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].entries.len(), 1, "debug is below info");
    assert_eq!(got[0].paxos.version, c.core.state().log.next, "clients look at it");
    let kept = c.core.state().log.len();
    c.send(osds[0], &log);
    assert_eq!(c.take::<MLogAck>(osds[0]).len(), 1, "sent again, acknowledged again");
    assert_eq!(c.core.state().log.len(), kept, "and kept once");
    let twice = MLog { fsid: FSID, entries: vec![line(3, 3, "one"), line(3, 3, "one")], ..MLog::default() };
    c.send(osds[0], &twice);
    assert_eq!(c.core.state().log.len(), kept + 1, "once, also before the first is committed");
    c.ok(admin, &json!({ "prefix": "config-key set", "key": "x/a", "val": "1" }));
    c.ok(admin, &json!({ "prefix": "config-key set", "key": "y/a", "val": "1" }));
    let kv = c.take::<MKvData>(s);
    assert!(kv.iter().all(|m| m.incremental));
    assert_eq!(kv[0].data["x/a"].as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_session_without_caps_gets_nothing() {
    let (mut c, _, _) = Cluster::with_osds(1);
    let s = c.client("client.none", "");
    c.subscribe(s, "osdmap", 0, false);
    c.send(s, &MStatfs { fsid: FSID, ..MStatfs::default() });
    c.send(s, &MMonGetOsdMap { full_first: Epoch(1), full_last: Epoch(1), ..MMonGetOsdMap::default() });
    assert!(c.take::<MOsdMap>(s).is_empty() && c.take::<MStatfsReply>(s).is_empty());
    let (r, _, _) = c.command(s, &json!({ "prefix": "osd dump" }), "");
    assert_eq!(r, base::errno::EACCES);
    let reader = c.client("client.r", "allow r");
    let (r, _, _) = c.command(reader, &json!({ "prefix": "osd set", "key": "noup" }), "");
    assert_eq!(r, base::errno::EACCES);
    let op = MPoolOp { fsid: FSID, op: pool_op::CREATE, name: "p".into(), crush_rule: -1, ..MPoolOp::default() };
    c.send(reader, &op);
    assert_eq!(c.take::<MPoolOpReply>(reader)[0].reply_code, base::errno::EPERM);
}

#[test]
fn new_epochs_are_pushed_to_osds() {
    let (mut c, admin, osds) = Cluster::with_osds(2);
    c.ok(admin, &json!({ "prefix": "osd set", "key": "noscrub" }));
    for s in osds {
        let maps = c.take::<MOsdMap>(s);
        assert!(maps.iter().any(|m| m.incremental_maps.contains_key(&c.map().epoch)));
    }
    assert!(c.map().is_up(OsdId(0)));
}

#[test]
fn hostile_messages_close_the_session_and_nothing_else() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    let mut rng = base::rng::Rng::new(7);
    for kind in wire::msg::registry::KINDS {
        for role in [Role::Mon, Role::Mgr] {
            for round in 0..40 {
                let s = c.osd_session(0, osd_addr(0), role);
                let mut m = wire::Message::default();
                m.header.kind = *kind;
                m.header.version = rng.below(12) as u16;
                let mut junk = vec![0; rng.below(200) as usize];
                match round {
                    0 => {}
                    1 => junk.fill(0xff),
                    // Small numbers pass more checks than random ones.
                    n if n % 2 == 0 => junk.iter_mut().for_each(|b| *b = rng.below(3) as u8),
                    _ => rng.fill(&mut junk),
                }
                m.data = bytes::Bytes::copy_from_slice(&junk);
                m.front = bytes::Bytes::from(junk);
                c.send_raw(s, m);
                c.close(s);
                c.out.clear();
            }
        }
    }
    c.ticks(2);
    c.ok(admin, &json!({ "prefix": "osd dump" }));
}

/// An OSD marks itself down on its session.
fn goes(c: &mut Cluster, session: u64, id: i32) {
    let (target_osd, target_addrs) = (OsdId(id), osd_addr(id));
    c.send(session, &MOsdMarkMeDown { fsid: FSID, target_osd, target_addrs, ..MOsdMarkMeDown::default() });
    assert!(c.map().is_down(target_osd));
}

#[test]
fn clients_get_the_maps_of_an_outage_when_it_begins_and_when_it_is_over() {
    let (mut c, _, osds) = Cluster::with_osds(2);
    let client = c.client("client.x", "allow r");
    goes(&mut c, osds[0], 0);
    let down = c.map().epoch;
    c.subscribe(client, "osdmap", down.0.into(), true);
    assert_eq!(epochs(&c.take(client)), [(vec![], vec![down.0])], "other OSDs serve by that map");
    let newcomer = c.client("client.y", "allow r");
    c.subscribe(newcomer, "osdmap", 0, true);
    assert_eq!(c.take::<MOsdMap>(newcomer).len(), 1, "who has no map gets one");
    c.boot(0, &addr(6800, 999));
    assert_eq!(epochs(&c.take(client)), [(vec![], vec![down.0 + 1])], "unasked");
    // An OSD that does not return.
    goes(&mut c, osds[1], 1);
    let down = c.map().epoch;
    assert_eq!(epochs(&c.take(client)), [(vec![], vec![down.0])], "unasked");
    c.ticks(2);
    assert!(c.take::<MOsdMap>(client).is_empty(), "once");
}

#[test]
fn clients_of_a_large_crowd_wait_for_an_osd_that_may_return() {
    let (mut c, _, osds) = Cluster::with_osds(2);
    goes(&mut c, osds[0], 0);
    let down = c.map().epoch;
    let crowd: Vec<u64> = (0..1100).map(|i| c.client(&format!("client.{i}"), "allow r")).collect();
    for s in &crowd {
        c.subscribe(*s, "osdmap", down.0.into(), true);
    }
    let last = crowd[1099];
    assert!(c.take::<MOsdMap>(last).is_empty(), "it might hear of a return only when it asks again");
    assert_eq!(c.take::<MOsdMap>(crowd[0]).len(), 1);
    c.boot(0, &addr(6800, 999));
    assert_eq!(epochs(&c.take(last)), [(vec![], vec![down.0, down.0 + 1])]);
}

/// A client that lost an OSD asks for one newer map and then waits for ten seconds. Another change answers it before the
/// monitor knows of the OSD.
#[test]
fn a_client_that_another_change_answered_learns_of_its_osd() {
    let (mut c, admin, osds) = Cluster::with_osds(2);
    let (client, idle) = (c.client("client.x", "allow r"), c.client("client.y", "allow r"));
    for s in [client, idle] {
        c.subscribe(s, "osdmap", 0, true);
        c.take::<MOsdMap>(s);
    }
    let first = c.map().epoch.0 + 1;
    c.subscribe(client, "osdmap", first.into(), true);
    grow(&mut c, admin, first);
    assert_eq!(epochs(&c.take(client)), [(vec![], vec![first])]);
    goes(&mut c, osds[0], 0);
    assert_eq!(epochs(&c.take(client)), [(vec![], vec![first + 1])], "it is down");
    c.boot(0, &addr(6800, 999));
    assert_eq!(epochs(&c.take(client)), [(vec![], vec![first + 2])], "it is back");
    goes(&mut c, osds[1], 1);
    assert_eq!(epochs(&c.take(client)), [(vec![], vec![first + 3])]);
    // By now the client has asked again, if it still waits.
    c.ticks(20);
    c.boot(1, &addr(6801, 999));
    assert!(c.take::<MOsdMap>(client).is_empty());
    assert!(c.take::<MOsdMap>(idle).is_empty(), "it asked for nothing");
}

#[test]
fn debug_log_subscribers_get_a_line_on_pgs() {
    let (mut c, _, _) = Cluster::with_osds(1);
    let (all, some) = (c.admin(), c.admin());
    c.subscribe(all, "log-debug", 0, false);
    c.subscribe(some, "log-info", 0, false);
    c.take::<MLog>(all);
    c.take::<MLog>(some);
    let kept = c.core.state().log.len();
    c.ticks(4);
    let lines: Vec<MLog> = c.take(all);
    assert_eq!(lines.len(), 2, "every two seconds");
    assert!(lines[0].paxos.version < lines[1].paxos.version, "clients drop what is not newer");
    let line = &lines[0].entries[0];
    assert!(line.msg.starts_with("pgmap v"), "{:?}", line.msg);
    assert_eq!((line.prio, line.channel.as_str(), line.rank.kind), (0, "cluster", base::EntityKind::MGR));
    assert!(c.take::<MLog>(some).is_empty());
    assert_eq!(c.core.state().log.len(), kept, "it is not kept");
}

#[test]
fn osds_get_performance_queries_while_there_are_any() {
    use mgr::images::rates;
    use wire::types::{MetricReport, PerfMetricReport};
    let (mut c, _, _) = Cluster::with_osds(1);
    let osd = c.osd_session(0, osd_addr(0), Role::Mgr);
    c.send(osd, &MMgrOpen { daemon_name: "0".into(), ..MMgrOpen::default() });
    assert!(c.take::<MMgrConfigure>(osd)[0].osd_perf_metric_queries.is_empty());
    let q = rates::query(None, None);
    c.core.add_perf_query(q.clone());
    c.core.add_perf_query(q.clone());
    c.ticks(1);
    let asked: Vec<MMgrConfigure> = c.take(osd);
    assert_eq!(asked.len(), 1, "the same question is put once");
    assert_eq!(asked[0].osd_perf_metric_queries, [(q.clone(), rates::limits())]);
    let text = |s: &'static str| bytes::Bytes::from_static(s.as_bytes());
    let report = PerfMetricReport {
        performance_counter_descriptors: q.performance_counters.clone(),
        group_packed_performance_counters: vec![(
            vec![vec![text("1")], vec![text("")], vec![text(""), text("abc")]],
            [1u64, 0, 5, 0, 7, 1, 0, 0].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>().into(),
        )],
    };
    let m = MMgrReport {
        daemon_name: "0".into(),
        metric_report: Some(MetricReport::Osd(vec![(q.clone(), report)])),
        ..MMgrReport::default()
    };
    c.send(osd, &m);
    let (pools, names) =
        ([(1, "p".to_owned())].into(), [((1, String::new()), [("abc".into(), "i".into())].into())].into());
    let mut f = rates::Followed::default();
    f.round(c.core.take_perf(&q), &pools, None, 1);
    assert_eq!(f.report(&pools, &names, 0, false).1, [("0/i".to_owned(), [1.0, 0.0, 5.0, 0.0, 7.0, 0.0])]);
    c.core.remove_perf_query(&q);
    c.ticks(1);
    assert!(c.take::<MMgrConfigure>(osd)[0].osd_perf_metric_queries.is_empty(), "and told when nobody asks any more");
}
