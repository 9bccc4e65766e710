//! Does an OSD boot (also the captured real one), do pools get their PGs, and do OSDs leave and return correctly?

mod support;

use base::{Epoch, OsdId, PgId, PoolId, SpgId};
use cluster::osdmap::osd_state;
use cluster::pool::flag;
use mon::state::Role;
use serde_json::json;
use support::*;
use wire::WireMessage;
use wire::msg::*;
use wire::types::PaxosHeader;

/// The frames of one direction of a captured connection.
#[path = "../../wire/tests/support/mod.rs"]
mod capture;

#[test]
fn a_captured_real_osd_boots() {
    let stream = capture::read(&capture::vectors().join("daemons/one.osd.0-mon.3.c2s.bin.gz"));
    let frames = capture::frames(&stream);
    const CLIENT_IDENT: u8 = 8;
    let ident = frames.iter().find(|f| f.tag == CLIENT_IDENT).expect("ident");
    let addrs: base::AddrVec = wire::Decode::from_bytes(&ident.segments[0]).expect("addresses");
    let messages: Vec<_> = frames.iter().filter_map(capture::message).collect();
    let boot = messages.iter().find(|m| m.header.kind == MOsdBoot::KIND).expect("boot");
    let boot = MOsdBoot::from_message(boot).unwrap();

    let mut c = Cluster::with(boot.sb.cluster_fsid, mon::state::options::MonOptions::default());
    let admin = c.admin();
    let uuid = boot.sb.osd_fsid.to_string();
    c.ok(admin, &json!({ "prefix": "osd new", "uuid": uuid, "id": "osd.0" }));
    let s = c.osd_session(0, addrs.clone(), Role::Mon);
    let mut asked = Vec::new();
    for m in &messages {
        asked.push(m.header.kind);
        c.send_raw(s, m.clone());
        if m.header.kind == MOsdBoot::KIND {
            break;
        }
    }
    for kind in [MMonSubscribe::KIND, MMonCommand::KIND, MMonGetVersion::KIND] {
        assert!(asked.contains(&kind), "the capture holds message {kind} before the boot");
    }
    assert!(c.closed.is_empty(), "{:?}", c.closed);
    assert!(!c.take::<MMonMap>(s).is_empty());
    assert_eq!(c.take::<MConfig>(s).len(), 1);
    let acks = c.take::<MMonCommandAck>(s);
    assert_eq!(acks.len(), 2, "device class and location");
    for a in acks {
        assert_eq!(a.r, 0, "{}", a.rs);
    }
    let v = c.take::<MMonGetVersionReply>(s);
    assert_eq!(v.len(), 1);
    assert_eq!(v[0].oldest_version, 1);
    assert!(c.map().is_up(OsdId(0)));
    assert_eq!(c.map().client_addr(OsdId(0)), Some(&addrs));
    assert_eq!(c.map().weight(OsdId(0)), 0x1_0000);
    assert_eq!(c.map().state(OsdId(0)), osd_state::EXISTS | osd_state::UP);
    assert_eq!(c.core.state().osds.metadata[&OsdId(0)], boot.metadata);
    let maps = c.take::<MOsdMap>(s);
    let newest = maps.last().expect("maps").newest_map;
    assert_eq!(newest, c.map().epoch);
    assert!(maps.last().unwrap().incremental_maps.contains_key(&newest));
}

#[test]
fn a_pool_gets_its_pgs_from_the_primary() {
    let (mut c, admin, osds) = Cluster::with_osds(2);
    for s in &osds {
        c.subscribe(*s, "osd_pg_creates", 0, false);
    }
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 16, "pgp_num": 16 }));
    let id = c.map().pool_by_name("p").expect("pool");
    let epoch = c.map().epoch;
    assert!(c.map().pool(id).unwrap().has_flag(flag::CREATING));
    let mut told = 0;
    for (osd, s) in osds.iter().enumerate() {
        for m in c.take::<MOsdPgCreate2>(*s) {
            assert_eq!(m.epoch, epoch);
            for (pg, stamp) in &m.pgs {
                assert_eq!(c.map().pg_to_up_acting(pg.pg).acting_primary, OsdId(osd as i32));
                assert_eq!(stamp.created, epoch);
                let extra = &m.pg_extra[pg];
                assert_eq!(extra.history.epoch_created, epoch);
                assert_eq!(extra.history.same_interval_since, epoch);
                assert!(extra.past_intervals.0.as_ref().unwrap().intervals.is_empty());
                told += 1;
            }
        }
    }
    assert_eq!(told, 16, "each PG is asked for once");
    for seed in 0..16 {
        assert!(c.map().pool(id).unwrap().has_flag(flag::CREATING));
        let pgid = PgId { pool: id, seed };
        let primary = c.map().pg_to_up_acting(pgid).acting_primary.0 as usize;
        c.send(osds[primary], &MOsdPgCreated { paxos: PaxosHeader::default(), pgid });
    }
    assert!(!c.map().pool(id).unwrap().has_flag(flag::CREATING), "the last one ends it");
    assert!(c.core.state().osds.creating.is_empty());
    // A new session gets no create message, because the PG exists.
    let s = c.osd_session(0, osd_addr(0), Role::Mon);
    c.subscribe(s, "osd_pg_creates", 0, false);
    assert!(c.take::<MOsdPgCreate2>(s).is_empty());
}

#[test]
fn the_primarys_shard_of_an_erasure_coded_pg_is_created() {
    let (mut c, admin, osds) = Cluster::with_osds(3);
    for s in &osds {
        c.subscribe(*s, "osd_pg_creates", 0, false);
    }
    let profile = json!({ "prefix": "osd erasure-code-profile set", "name": "p", "profile": ["k=2", "m=1", "crush-failure-domain=osd"] });
    c.ok(admin, &profile);
    c.ok(
        admin,
        &json!({ "prefix": "osd pool create", "pool": "e", "pg_num": 16, "pool_type": "erasure", "erasure_code_profile": "p" }),
    );
    // The PG's primary holds a shard other than the first.
    c.ok(admin, &json!({ "prefix": "osd primary-affinity", "id": "osd.0", "weight": 0.0 }));
    let mut shards = std::collections::BTreeSet::new();
    for (osd, s) in osds.iter().enumerate() {
        for m in c.take::<MOsdPgCreate2>(*s) {
            for id in m.pgs.keys().filter(|id| c.map().pg_to_up_acting(id.pg).acting_primary.0 == osd as i32) {
                let sets = c.map().pg_to_up_acting(id.pg);
                assert_eq!(sets.acting[id.shard.0 as usize], OsdId(osd as i32), "{id}");
                shards.insert(id.shard.0);
            }
        }
    }
    assert!(shards.len() > 1, "{shards:?}");

    // A missing shard stays as a hole, shown as in Ceph.
    c.ok(admin, &json!({ "prefix": "osd down", "ids": ["2"] }));
    let id = c.map().pool_by_name("e").unwrap();
    let pg = c.map().object_to_pg(id, b"o", b"", b"").unwrap();
    let up = c.map().pg_to_up_acting(pg).up;
    assert!(up.len() == 3 && up.contains(&OsdId::NONE));
    let (_, _, text) = c.command(admin, &json!({ "prefix": "osd map", "pool": "e", "object": "o" }), "");
    let set = |hole: &str| {
        let v: Vec<String> =
            up.iter().map(|o| if *o == OsdId::NONE { hole.to_owned() } else { o.0.to_string() }).collect();
        format!("[{}]", v.join(","))
    };
    assert!(text.contains(&format!("up ({}, p", set("NONE"))), "{text}");
    let (_, _, text) = c.command(admin, &json!({ "prefix": "pg map", "pgid": pg.to_string() }), "");
    assert!(text.contains(&format!("up {} ", set("2147483647"))), "{text}");
}

#[test]
fn an_erasure_coded_pool_needs_osds_that_serve_such_pools() {
    let (mut c, admin, _) = Cluster::with_osds(3);
    c.ok(admin, &json!({ "prefix": "osd erasure-code-profile set", "name": "p", "profile": ["k=2", "m=1"] }));
    let boot = |c: &mut Cluster, nonce: u32, metadata: &[(&str, &str)]| {
        let at = addr(6820, nonce);
        let s = c.osd_session(2, at.clone(), Role::Mon);
        let mut m = boot_message(FSID, 2, c.map().epoch, 0);
        m.metadata.extend(metadata.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        c.send(s, &m);
        assert_eq!(c.map().client_addr(OsdId(2)), Some(&at));
    };
    let create = json!({ "prefix": "osd pool create", "pool": "e", "pg_num": 8, "pool_type": "erasure", "erasure_code_profile": "p" });
    let overwrites = json!({ "prefix": "osd pool set", "pool": "e", "var": "allow_ec_overwrites", "val": "true" });
    // An earlier build of this program, which does not serve such PGs.
    boot(&mut c, 1, &[("osd_objectstore", "belemnite")]);
    let (rc, rs, _) = c.command(admin, &create, "");
    assert!(rc == -95 && rs.starts_with("osd.2 does not serve erasure-coded pools"), "{rc} {rs}");
    assert!(c.map().pool_by_name("e").is_none() && c.map().crush.rule_id("e").is_none());
    boot(&mut c, 2, &[("osd_objectstore", "belemnite"), ("erasure_code_plugins", "isa jerasure")]);
    c.ok(admin, &create);
    // A store that cannot roll back an overwrite.
    boot(&mut c, 3, &[("osd_objectstore", "filestore")]);
    let (rc, rs, _) = c.command(admin, &overwrites, "");
    assert_eq!(
        (rc, rs.as_str()),
        (-22, "pool must only be stored on bluestore for scrubbing to work: osd.2 uses filestore")
    );
    boot(&mut c, 4, &[("osd_objectstore", "bluestore")]);
    c.ok(admin, &overwrites);
}

#[test]
fn pgs_not_created_yet_follow_the_map_and_survive_a_restart() {
    let (mut c, admin, osds) = Cluster::with_osds(2);
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 8, "pgp_num": 8 }));
    let id = c.map().pool_by_name("p").unwrap();
    let created = c.map().epoch;
    let moved: Vec<PgId> = (0..8)
        .map(|seed| PgId { pool: id, seed })
        .filter(|pg| c.map().pg_to_up_acting(*pg).acting_primary == OsdId(0))
        .collect();
    assert!(!moved.is_empty() && moved.len() < 8, "both OSDs have some");
    // osd.0 may have accepted writes: it asked for up_thru.
    c.send(osds[0], &MOsdAlive { paxos: PaxosHeader::from(created), want: created });
    assert_eq!(c.map().info(OsdId(0)).up_thru, created);
    let down = MOsdMarkMeDown {
        fsid: FSID,
        target_osd: OsdId(0),
        target_addrs: osd_addr(0),
        epoch: c.map().epoch,
        request_ack: true,
        down_and_dead: true,
        ..MOsdMarkMeDown::default()
    };
    c.send(osds[0], &down);
    c.ok(admin, &json!({ "prefix": "osd out", "ids": ["0"] }));
    c.subscribe(osds[1], "osd_pg_creates", 0, false);
    let mut told = std::collections::BTreeMap::new();
    for m in c.take::<MOsdPgCreate2>(osds[1]) {
        told.extend(m.pg_extra);
    }
    assert_eq!(told.len(), 8, "all are on osd.1 now");
    for pg in &moved {
        let e = &told[&SpgId::from(*pg)];
        let past = e.past_intervals.0.as_ref().unwrap();
        assert_eq!(past.intervals.len(), 1, "{pg}: the interval on osd.0 counts");
        assert_eq!(past.intervals[0].first, created);
        assert!(e.history.same_interval_since > created);
        assert_eq!(e.history.epoch_created, created);
    }
    c.restart();
    assert_eq!(c.core.state().osds.creating.len(), 8);
    let s = c.osd_session(1, osd_addr(1), Role::Mon);
    c.subscribe(s, "osd_pg_creates", 0, false);
    assert_eq!(c.take::<MOsdPgCreate2>(s).iter().map(|m| m.pgs.len()).sum::<usize>(), 8);
}

#[test]
fn a_second_instance_is_first_marked_down_then_up() {
    let (mut c, _, _) = Cluster::with_osds(1);
    let before = c.map().epoch;
    let new = addr(6800, 999);
    let s = c.boot(0, &new);
    assert_eq!(c.map().epoch, Epoch(before.0 + 2), "an epoch with it down lies between");
    assert!(c.map().is_up(OsdId(0)));
    assert_eq!(c.map().client_addr(OsdId(0)), Some(&new));
    assert_eq!(c.map().info(OsdId(0)).down_at, before.next());
    let maps = c.take::<MOsdMap>(s);
    assert!(maps.iter().any(|m| m.incremental_maps.contains_key(&c.map().epoch)));
    // A repeated boot changes nothing, and is answered if the OSD's map is old.
    let epoch = c.map().epoch;
    let again = boot_message(FSID, 0, before, 0);
    let s = c.osd_session(0, new, Role::Mon);
    c.send(s, &again);
    assert_eq!(c.map().epoch, epoch);
    assert_eq!(c.take::<MOsdMap>(s).len(), 1);
}

#[test]
fn a_refused_boot_changes_nothing() {
    let (mut c, admin, _) = Cluster::with_osds(1);
    c.new_osd(admin, 1, "h1");
    let epoch = c.map().epoch;
    let good = boot_message(FSID, 1, epoch, 0);
    let mut other_cluster = good.clone();
    other_cluster.sb.cluster_fsid = osd_uuid(99);
    let mut other_uuid = good.clone();
    other_uuid.sb.osd_fsid = osd_uuid(98);
    let mut old = good.clone();
    old.osd_features = 0;
    let mut other_id = good.clone();
    other_id.sb.whoami = OsdId(0);
    for bad in [other_cluster, other_uuid, old, other_id] {
        let s = c.osd_session(1, osd_addr(1), Role::Mon);
        c.send(s, &bad);
        assert!(!c.map().is_up(OsdId(1)));
    }
    // Sessions that do not belong to the OSD: the short first one, a client's, one without caps.
    let client = c.client("client.x", "allow *");
    c.send(client, &good);
    let blank = c.osd_session(1, addr(0, 0), Role::Mon);
    c.send(blank, &good);
    assert!(!c.map().is_up(OsdId(1)));
    c.ok(admin, &json!({ "prefix": "osd set", "key": "noup" }));
    let s = c.osd_session(1, osd_addr(1), Role::Mon);
    c.send(s, &good);
    assert!(!c.map().is_up(OsdId(1)), "noup");
    c.ok(admin, &json!({ "prefix": "osd unset", "key": "noup" }));
    c.send(s, &good);
    assert!(c.map().is_up(OsdId(1)));
}

#[test]
fn an_osd_that_cannot_work_with_its_peers_is_refused() {
    let (mut c, admin, _) = Cluster::with_osds(2);
    let epoch = c.map().epoch;
    c.ok(admin, &json!({ "prefix": "osd down", "ids": ["1"] }));
    assert!(c.map().is_up(OsdId(0)) && !c.map().is_up(OsdId(1)));
    // The OSD that is up reports no versions: it speaks version 4.
    let with = |oldest: &str, newest: &str| {
        let mut m = boot_message(FSID, 1, epoch, 0);
        m.metadata.insert("peer_protocol_oldest".into(), oldest.into());
        m.metadata.insert("peer_protocol".into(), newest.into());
        m
    };
    let s = c.osd_session(1, osd_addr(1), Role::Mon);
    for (oldest, newest) in [("5", "6"), ("2", "3")] {
        c.send(s, &with(oldest, newest));
        assert!(!c.map().is_up(OsdId(1)));
        let health = c.ok(admin, &json!({ "prefix": "health", "detail": "detail", "format": "json" })).to_string();
        assert!(health.contains("OSD_INCOMPATIBLE") && health.contains(newest), "{health}");
    }
    c.send(s, &with("4", "6"));
    assert!(c.map().is_up(OsdId(1)));
    let health = c.ok(admin, &json!({ "prefix": "health", "detail": "detail", "format": "json" })).to_string();
    assert!(!health.contains("OSD_INCOMPATIBLE"), "{health}");
}

#[test]
fn a_shutdown_is_acknowledged_even_if_refused() {
    let (mut c, admin, osds) = Cluster::with_osds(2);
    let bye = |id: i32, epoch| MOsdMarkMeDown {
        fsid: FSID,
        target_osd: OsdId(id),
        target_addrs: osd_addr(id),
        epoch,
        request_ack: true,
        down_and_dead: true,
        ..MOsdMarkMeDown::default()
    };
    c.ok(admin, &json!({ "prefix": "osd set", "key": "nodown" }));
    let e = c.map().epoch;
    c.send(osds[0], &bye(0, e));
    assert_eq!(c.take::<MOsdMarkMeDown>(osds[0]).len(), 1, "refused, and answered");
    assert!(c.map().is_up(OsdId(0)));
    c.ok(admin, &json!({ "prefix": "osd unset", "key": "nodown" }));
    let e = c.map().epoch;
    c.send(osds[0], &bye(0, e));
    let ack = c.take::<MOsdMarkMeDown>(osds[0]);
    assert_eq!(ack.len(), 1);
    assert!(!ack[0].request_ack && !ack[0].down_and_dead);
    assert!(c.map().is_down(OsdId(0)));
    assert_eq!(c.map().xinfo(OsdId(0)).dead_epoch, e);
    // An OSD cannot announce the shutdown of another.
    c.send(osds[1], &bye(0, e));
    assert!(c.map().is_up(OsdId(1)));
}

#[test]
fn health_names_the_device_of_a_failed_store_until_its_osd_is_up_again() {
    let (mut c, admin, osds) = Cluster::with_osds(2);
    let detail = |c: &mut Cluster| {
        let admin = c.admin();
        c.ok(admin, &json!({ "prefix": "health", "detail": "detail" }))
    };
    let failed =
        |id: i32| json!({ "prefix": "osd store-failed", "id": id, "reason": "/dev/sdb: cannot write (EIO)\n" });
    assert_eq!(c.command(osds[1], &failed(0), "").0, base::errno::EACCES, "of another one");
    assert_eq!(c.command(admin, &failed(7), "").0, base::errno::ENOENT);
    c.ok(osds[0], &failed(0));
    assert!(!detail(&mut c).contains("OSD_STORE_FAILED"), "it is up still");
    let epoch = c.map().epoch;
    let bye = MOsdMarkMeDown {
        fsid: FSID,
        target_osd: OsdId(0),
        target_addrs: osd_addr(0),
        epoch,
        request_ack: true,
        down_and_dead: true,
        ..MOsdMarkMeDown::default()
    };
    c.send(osds[0], &bye);
    let text = detail(&mut c);
    assert!(text.contains("OSD_STORE_FAILED") && text.contains("stopped: /dev/sdb: cannot write (EIO)"), "{text}");
    c.restart();
    assert_eq!(detail(&mut c), text);
    c.boot(0, &osd_addr(0));
    assert!(!detail(&mut c).contains("OSD_STORE_FAILED"));
}

#[test]
fn an_osd_wrongly_marked_down_returns_with_a_laggy_history() {
    let (mut c, admin, osds) = Cluster::with_osds(3);
    c.ok(admin, &json!({ "prefix": "osd down", "ids": ["1"] }));
    assert!(c.map().is_down(OsdId(1)));
    let e = c.map().epoch;
    c.send(osds[1], &MOsdMarkMeDead { fsid: FSID, target_osd: OsdId(1), epoch: e, ..MOsdMarkMeDead::default() });
    assert_eq!(c.map().xinfo(OsdId(1)).dead_epoch, e);
    c.pass(std::time::Duration::from_secs(10));
    let mut boot = boot_message(FSID, 1, c.map().epoch, 3);
    boot.sb.mounted = Epoch(3);
    boot.sb.clean_thru = e;
    c.send(osds[1], &boot);
    let x = c.map().xinfo(OsdId(1));
    assert!(c.map().is_up(OsdId(1)));
    assert_eq!(x.laggy_interval, 3, "0.3 of ten seconds");
    assert!(x.laggy_probability > u32::MAX / 4);
    let info = c.map().info(OsdId(1));
    assert_eq!((info.last_clean_begin, info.last_clean_end), (Epoch(3), e));
}

#[test]
fn up_thru_rises_to_the_osds_epoch_and_never_falls() {
    let (mut c, _, osds) = Cluster::with_osds(1);
    let e = c.map().epoch;
    c.send(osds[0], &MOsdAlive { paxos: PaxosHeader::from(e), want: Epoch(e.0 - 1) });
    assert_eq!(c.map().info(OsdId(0)).up_thru, e);
    let after = c.map().epoch;
    c.take::<MOsdMap>(osds[0]);
    c.send(osds[0], &MOsdAlive { paxos: PaxosHeader::from(e), want: e });
    assert_eq!(c.map().epoch, after, "nothing to do");
    // A session with other addresses does not belong to the running OSD.
    let s = c.osd_session(0, addr(6800, 5), Role::Mon);
    c.send(s, &MOsdAlive { paxos: PaxosHeader::from(after), want: after });
    assert_eq!(c.map().info(OsdId(0)).up_thru, e);
}

#[test]
fn fullness_reaches_the_pools() {
    let (mut c, admin, osds) = Cluster::with_osds(1);
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 1, "pgp_num": 1 }));
    let id = c.map().pool_by_name("p").unwrap();
    let full = |c: &mut Cluster, state| {
        let map_epoch = c.map().epoch;
        c.send(osds[0], &MOsdFull { paxos: PaxosHeader::from(map_epoch), map_epoch, state });
        c.ticks(1);
    };
    full(&mut c, osd_state::FULL);
    assert_eq!(c.map().state(OsdId(0)) & osd_state::FULL, osd_state::FULL);
    assert!(c.map().pool(id).unwrap().has_flag(flag::FULL));
    full(&mut c, osd_state::NEARFULL);
    assert_eq!(c.map().state(OsdId(0)) & osd_state::FULL, 0);
    assert!(!c.map().pool(id).unwrap().has_flag(flag::FULL));
    assert!(c.map().pool(id).unwrap().has_flag(flag::NEARFULL));
    full(&mut c, 0);
    assert_eq!(c.map().pool(PoolId(id.0)).unwrap().flags & (flag::FULL | flag::NEARFULL), 0);
}

#[test]
fn pg_temp_lasts_until_withdrawn_or_until_its_osds_are_gone() {
    let (mut c, admin, osds) = Cluster::with_osds(3);
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 4, "pgp_num": 4 }));
    let pg = PgId { pool: c.map().pool_by_name("p").unwrap(), seed: 0 };
    let primary = c.map().pg_to_up_acting(pg).acting_primary.0;
    let other = (primary + 1) % 3;
    let ask = |c: &mut Cluster, from: i32, set: Vec<OsdId>| {
        let e = c.map().epoch;
        let m = MOsdPgTemp { paxos: PaxosHeader::from(e), map_epoch: e, pg_temp: [(pg, set)].into(), forced: false };
        c.send(osds[from as usize], &m);
    };
    ask(&mut c, other, vec![OsdId(other)]);
    assert!(c.map().pg_temp.is_empty(), "only the acting primary may ask");
    ask(&mut c, primary, vec![OsdId(other); 2]);
    ask(&mut c, primary, vec![OsdId(other); 1000]);
    assert!(c.map().pg_temp.is_empty(), "an OSD holds one copy");
    let twice =
        json!({ "prefix": "osd pg-temp", "pgid": pg.to_string(), "id": [other.to_string(), other.to_string()] });
    let (rc, why, _) = c.command(admin, &twice, "");
    assert_eq!(rc, base::errno::EINVAL, "{why}");
    ask(&mut c, primary, vec![OsdId(other)]);
    assert_eq!(c.map().pg_to_up_acting(pg).acting_primary, OsdId(other));
    ask(&mut c, other, vec![]);
    assert_eq!(c.map().pg_to_up_acting(pg).acting_primary, OsdId(primary));
    ask(&mut c, primary, vec![OsdId(other)]);
    c.ok(admin, &json!({ "prefix": "osd down", "ids": [other.to_string()] }));
    assert!(c.map().pg_temp.is_empty(), "nobody of it is up");
}

#[test]
fn damaged_captured_traffic_does_no_harm() {
    let (mut c, admin, _) = Cluster::with_osds(2);
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 4, "pgp_num": 4 }));
    let mut rng = base::rng::Rng::new(11);
    let mut sent = 0;
    for (name, frames) in capture::captures() {
        let role = match (name.contains("c2s"), name.contains("-mon."), name.contains("-mgr.")) {
            (true, true, _) => Role::Mon,
            (true, _, true) => Role::Mgr,
            _ => continue,
        };
        let messages: Vec<_> = frames.iter().filter_map(capture::message).collect();
        let mut session = c.osd_session(0, osd_addr(0), role);
        for m in messages {
            for damage in 0..3 {
                let mut m = m.clone();
                let mut front = m.front.to_vec();
                // Most messages have the cluster's id after the header; the right id lets handlers go on.
                if damage == 2 && front.len() >= 34 && front[8..10] == [0xff, 0xff] {
                    front[18..34].copy_from_slice(&FSID.0);
                }
                for _ in 0..damage {
                    if !front.is_empty() {
                        let at = rng.below(front.len() as u64) as usize;
                        front[at] = rng.below(256) as u8;
                    }
                }
                m.front = front.into();
                c.send_raw(session, m);
                sent += 1;
                if c.closed.iter().any(|(s, _)| *s == session) {
                    session = c.osd_session(0, osd_addr(0), role);
                }
                c.out.clear();
            }
        }
        c.close(session);
    }
    assert!(sent > 1000, "{sent}");
    c.ticks(2);
    c.restart();
    let admin = c.admin();
    c.ok(admin, &json!({ "prefix": "osd dump" }));
}
