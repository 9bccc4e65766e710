//! Does a separate manager become active, is it replaced when it falls silent, and do clients get its statistics?

mod support;

use std::time::Duration;

use base::{AddrVec, EntityKind, EntityName, PoolId};
use mon::core::session::Peer;
use mon::state::Role;
use mon::state::options::MonOptions;
use serde_json::json;
use state::StateStore as _;
use support::*;
use wire::msg::*;
use wire::types::{HealthCheck, ModuleInfo, OsdStat, PgMapDigest, PoolStat};
use wire::{Encode, Features};

fn manager(c: &mut Cluster, name: &str, gid: u64) -> u64 {
    c.open(Peer {
        principal: who(EntityKind::MGR, &format!("mgr.{name}"), gid, "allow profile mgr"),
        entity: EntityName::new(EntityKind::MGR, gid as i64),
        addrs: AddrVec::default(),
        features: Features::PACIFIC,
        role: Role::Mon,
    })
}

fn beacon(name: &str, gid: u64, available: bool) -> MMgrBeacon {
    MMgrBeacon {
        server_addrs: if available { addr(6900, gid as u32) } else { AddrVec::default() },
        gid,
        available,
        name: name.into(),
        fsid: FSID,
        ..MMgrBeacon::default()
    }
}

#[test]
fn a_manager_becomes_active_reports_and_is_replaced() {
    let mut c = Cluster::with(FSID, MonOptions { external_mgr: true, ..MonOptions::default() });
    let admin = c.admin();
    assert!(!c.core.state().mgrmap.available, "none yet");
    let x = manager(&mut c, "x", 71);
    c.subscribe(x, "mgrmap", 0, false);
    c.send(x, &beacon("x", 71, false));
    c.send(x, &beacon("x", 71, true));
    let maps = c.take::<MMgrMap>(x);
    let last = &maps.last().expect("maps").map;
    assert!(last.available && last.active_gid == 71 && last.active_name == "x");
    assert_eq!(last.active_addrs, addr(6900, 71));
    // A manager takes the list of its own release.
    for release in 16..=20 {
        assert!(last.always_on_modules.get(&release).is_some_and(|m| m.iter().any(|m| m == "volumes")), "{release}");
    }
    c.subscribe(x, "mgrdigest", 0, false);
    assert!(c.take::<MMgrDigest>(x)[0].health_json.starts_with(b"{"));

    // A second manager is standby; one that claims to be active and is not must restart.
    let y = manager(&mut c, "y", 72);
    c.send(y, &beacon("y", 72, false));
    assert!(c.core.state().mgrmap.standbys.contains_key(&72));
    let z = manager(&mut c, "z", 73);
    c.send(z, &beacon("z", 73, true));
    assert_eq!(c.take::<MMgrMap>(z)[0].map.active_gid, 0);

    // STATFS and pool statistics are the manager's.
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p", "pg_num": 1, "pgp_num": 1 }));
    let pool = c.map().pool_by_name("p").unwrap();
    let mut stat = PoolStat::default();
    stat.stats.sum.num_objects = 42;
    let mut osd_sum = OsdStat::default();
    (osd_sum.statfs.total, osd_sum.statfs.available) = (1000 << 10, 990 << 10);
    let digest = PgMapDigest {
        pg_pool_sum: vec![(pool.0 as i32, stat.clone())],
        pg_sum: stat,
        osd_sum,
        ..PgMapDigest::default()
    };
    let report = MMonMgrReport { gid: 71, data: digest.to_bytes(Features::PACIFIC), ..MMonMgrReport::default() };
    c.send(y, &MMonMgrReport { gid: 72, ..report.clone() });
    assert_eq!(c.core.state().mgr.stats.pool(pool).stats.sum.num_objects, 0, "only the active one counts");
    let check = HealthCheck { severity: 1, summary: "one pg degraded".into(), ..HealthCheck::default() };
    let mut with_check = report;
    with_check.health_checks.checks.insert("PG_DEGRADED".into(), check);
    c.send(x, &with_check);
    assert!(c.ok(admin, &json!({ "prefix": "health", "detail": "detail" })).contains("one pg degraded"));
    assert_eq!(c.core.state().mgr.stats.pool(PoolId(pool.0)).stats.sum.num_objects, 42);
    c.send(admin, &MStatfs { fsid: FSID, ..MStatfs::default() });
    let r = &c.take::<MStatfsReply>(admin)[0];
    assert_eq!((r.kb, r.num_objects), (1000, 42));

    // The OSDs report to the manager, so nothing is known here of the PGs, and nothing is said about them.
    c.pass(Duration::from_secs(20));
    c.send(x, &beacon("x", 71, true));
    c.pass(Duration::from_secs(20));
    c.send(x, &beacon("x", 71, true));
    c.pass(Duration::from_secs(25));
    c.send(x, &beacon("x", 71, true));
    let health = c.ok(admin, &json!({ "prefix": "health", "detail": "detail" }));
    assert!(!health.contains("PG_AVAILABILITY") && health.contains("one pg degraded"), "{health}");

    c.ticks(32);
    assert!(!c.core.state().mgrmap.available, "silent for too long");
    c.send(y, &beacon("y", 72, false));
    assert_eq!(c.core.state().mgrmap.active_gid, 72);
    assert!(!c.core.state().mgrmap.standbys.contains_key(&72));
}

fn described(s: &str, perm: &str) -> wire::types::MonCommand {
    wire::types::MonCommand {
        cmdstring: s.into(),
        module: "mgr".into(),
        req_perms: perm.into(),
        ..wire::types::MonCommand::default()
    }
}

#[test]
fn commands_of_a_separate_manager_are_described_and_passed_on() {
    let mut c = Cluster::with(FSID, MonOptions { external_mgr: true, ..MonOptions::default() });
    let admin = c.admin();
    c.ok(admin, &json!({ "prefix": "auth get-or-create", "entity": "client.admin", "caps": ["mgr", "allow *", "mon", "allow *"] }));
    let reader = c.client("client.r", "allow r");
    let nobody = c.client("client.n", "allow service log r");
    let show = json!({ "prefix": "telemetry show", "channels": ["a"] });
    let switch = json!({ "prefix": "telemetry on", "license": "x" });
    assert_eq!(c.command(admin, &show, "").0, -22, "no manager is there, so nobody knows the command");
    assert_eq!(c.command(admin, &json!({ "prefix": "osd df" }), "").0, -11);
    let x = manager(&mut c, "x", 71);
    c.send(x, &beacon("x", 71, false));
    let offer = vec![
        described("telemetry show name=channels,type=CephString,n=N,req=false", "r"),
        described("telemetry on name=license,type=CephString,req=false", "rw"),
    ];
    c.send(x, &MMgrBeacon { command_descs: offer.clone(), ..beacon("x", 71, true) });

    let all = c.ok(admin, &json!({ "prefix": "get_command_descriptions" }));
    let sig = r#""sig":["telemetry","show",{"name":"channels","type":"CephString","n":"N","req":"false"}]"#;
    let at = all.find(r#""telemetry","show""#).map(|i| &all[i.saturating_sub(20)..i + 120]);
    assert!(all.contains(sig), "{at:?}");
    for (cmd, who, may) in [
        (&show, admin, true),
        (&show, reader, true),
        (&show, nobody, false),
        (&switch, admin, true),
        (&switch, reader, false),
        (&json!({ "prefix": "osd df", "format": "json" }), reader, true),
        (&json!({ "prefix": "osd df", "format": "json" }), nobody, false),
    ] {
        let (rc, asker, out) = c.command(who, cmd, "");
        assert_eq!(rc, if may { 0 } else { -13 }, "{cmd}: {asker}");
        if may {
            assert!(
                asker == "client.admin" && out.ends_with(&cmd.to_string()) && out.contains(":6900"),
                "{asker} {out}"
            );
        }
    }
    // What is the monitor's own stays here, and commands to the process, too.
    assert!(c.ok(reader, &json!({ "prefix": "osd stat" })).contains("0 osds"));
    assert!(!c.tell(admin, &show).1.contains("client.admin"));

    // A monitor that starts again asks once for the commands, by a map in which the manager is not available.
    c.restart();
    let admin = c.admin();
    let x = manager(&mut c, "x", 71);
    c.send(x, &beacon("x", 71, true));
    assert!(!c.core.state().mgrmap.available);
    c.send(x, &MMgrBeacon { command_descs: offer, ..beacon("x", 71, true) });
    assert!(c.core.state().mgrmap.available);
    assert_eq!(c.command(admin, &show, "").0, 0);
    c.send(x, &beacon("x", 71, true));
    assert!(c.core.state().mgrmap.available, "once");
}

#[test]
fn modules_are_enabled_at_first_and_those_of_the_built_in_role_stay() {
    let mut c = Cluster::new();
    let admin = c.admin();
    c.ok(admin, &json!({ "prefix": "mgr module enable", "module": "prometheus" }));
    c.options.external_mgr = true;
    c.restart();
    let module = |name: &str, can_run| ModuleInfo { name: name.into(), can_run, ..ModuleInfo::default() };
    // The default of mgr_initial_modules is that of 16.2: restful, iostat, nfs.
    let works =
        |gid| MMgrBeacon { modules: vec![module("iostat", true), module("nfs", false)], ..beacon("x", gid, false) };
    let x = manager(&mut c, "x", 71);
    c.send(x, &works(71));
    assert_eq!(c.core.state().mgrmap.modules, ["iostat", "prometheus"], "those that it has and can run");
    // Once: a module that is switched off stays so.
    let admin = c.admin();
    c.ok(admin, &json!({ "prefix": "mgr module disable", "module": "iostat" }));
    c.ok(admin, &json!({ "prefix": "mgr fail", "who": "x" }));
    let x = manager(&mut c, "x", 72);
    c.send(x, &works(72));
    assert_eq!(
        (c.core.state().mgrmap.active_gid, c.core.state().mgrmap.modules.as_slice()),
        (72, &["prometheus".to_owned()][..])
    );
}

#[test]
fn a_separate_manager_stays_out_while_the_built_in_one_is_active() {
    let mut c = Cluster::new();
    let before = c.core.state().mgrmap.clone();
    let x = manager(&mut c, "x", 71);
    c.send(x, &beacon("x", 71, false));
    assert_eq!(c.core.state().mgrmap, before);
    let client = c.client("client.x", "allow *");
    c.send(client, &beacon("x", 71, true));
    assert_eq!(c.core.state().mgrmap, before, "and a client is no manager");
}

#[test]
fn a_dropped_manager_is_kept_from_the_osds() {
    let options = MonOptions { external_mgr: true, mgr_blocklist: Duration::from_secs(600), ..MonOptions::default() };
    let mut c = Cluster::with(FSID, options);
    let admin = c.admin();
    let works = |gid: u64| MMgrBeacon {
        clients: vec![addr(0, gid as u32 + 1000)],
        client_names: vec!["volumes".into()],
        ..beacon("x", gid, true)
    };
    let is_out = |c: &Cluster, gid: u64| {
        let own = c.map().is_blocklisted(&addr(6900, gid as u32).0[0]);
        let client = c.map().is_blocklisted(&addr(0, gid as u32 + 1000).0[0]);
        assert_eq!(own, client);
        own
    };
    // It fails by command.
    let x = manager(&mut c, "x", 71);
    c.send(x, &beacon("x", 71, false));
    c.send(x, &works(71));
    assert!(!is_out(&c, 71));
    c.ok(admin, &json!({ "prefix": "mgr fail", "who": "x" }));
    assert!(is_out(&c, 71));
    assert_eq!(c.core.state().mgrmap.last_failure_osd_epoch, c.map().epoch);
    // It starts anew, while the map has its last instance.
    let x = manager(&mut c, "x", 72);
    c.send(x, &beacon("x", 72, false));
    c.send(x, &works(72));
    let x = manager(&mut c, "x", 73);
    c.send(x, &beacon("x", 73, false));
    assert!(is_out(&c, 72) && !is_out(&c, 73));
    assert_eq!(c.core.state().mgrmap.active_gid, 73);
    c.send(x, &works(73));
    // A standby that starts anew is there once, and one that is silent is there no more.
    for gid in [81, 82] {
        let y = manager(&mut c, "y", gid);
        c.send(y, &beacon("y", gid, false));
        assert_eq!(c.core.state().mgrmap.standbys.keys().copied().collect::<Vec<_>>(), [gid]);
    }
    c.ticks(20);
    c.send(x, &works(73));
    c.ticks(16);
    assert!(c.core.state().mgrmap.standbys.is_empty());
    assert!(c.core.state().mgrmap.available);
    // It falls silent.
    c.ticks(32);
    assert!(is_out(&c, 73) && c.core.state().mgrmap.active_gid == 0);
    c.pass(Duration::from_secs(601));
    c.ticks(2);
    assert!(!is_out(&c, 73), "for a time");
}

fn separate() -> Cluster {
    Cluster::with(FSID, MonOptions { external_mgr: true, ..MonOptions::default() })
}

/// A cluster with manager `x`, which is active with global id 71, and its session.
fn with_active() -> (Cluster, u64) {
    let mut c = separate();
    let x = manager(&mut c, "x", 71);
    c.send(x, &beacon("x", 71, false));
    c.send(x, &beacon("x", 71, true));
    assert!(c.core.state().mgrmap.available);
    (c, x)
}

fn active(c: &Cluster) -> u64 {
    c.core.state().mgrmap.active_gid
}

#[test]
fn a_fenced_manager_is_told_to_start_anew() {
    let (mut c, x) = with_active();
    c.ticks(32);
    assert_eq!(active(&c), 0);
    assert!(c.map().is_blocklisted(&addr(6900, 71).0[0]));
    c.out.clear();
    c.send(x, &beacon("x", 71, true));
    assert_eq!(active(&c), 0, "the OSDs refuse its clients");
    assert_eq!(c.take::<MMgrMap>(x)[0].map.active_gid, 0);
}

#[test]
fn a_stall_of_the_monitor_ends_no_manager() {
    let (mut c, x) = with_active();
    let y = manager(&mut c, "y", 72);
    c.send(y, &beacon("y", 72, false));
    c.ticks(2);
    c.pass(Duration::from_secs(60));
    c.ticks(1);
    assert_eq!(active(&c), 71);
    assert!(c.core.state().mgrmap.standbys.contains_key(&72));
    c.send(x, &beacon("x", 71, true));
    c.ticks(30);
    assert_eq!(active(&c), 71, "the grace is whole");
    c.ticks(2);
    assert_eq!(active(&c), 0);
    assert!(c.core.state().mgrmap.standbys.is_empty());
}

#[test]
fn a_new_leader_gives_managers_the_whole_grace() {
    let (mut c, _) = with_active();
    // The first commit of a new leader takes long, and nobody is heard before.
    c.restart();
    c.pass(Duration::from_secs(60));
    c.ticks(1);
    let x = manager(&mut c, "x", 71);
    c.send(x, &beacon("x", 71, true));
    c.ticks(29);
    assert_eq!(active(&c), 71);
    c.ticks(2);
    assert_eq!(active(&c), 0, "silent since");
}

/// The beacons of managers that wait to become active, by sessions of earlier instances and later ones.
#[test]
fn a_late_beacon_of_an_earlier_manager_ends_no_later_one() {
    let mut c = Cluster::with(FSID, MonOptions { external_mgr: true, ..MonOptions::default() });
    let old = manager(&mut c, "x", 70);
    c.ticks(1);
    let x = manager(&mut c, "x", 71);
    c.send(x, &beacon("x", 71, false));
    c.send(old, &beacon("x", 70, false));
    assert_eq!(active(&c), 71);
    // A new leader has not heard the active one yet, which another leader knew.
    c.restart();
    c.ticks(1);
    let old = manager(&mut c, "x", 70);
    c.send(old, &beacon("x", 70, false));
    assert_eq!(active(&c), 71);
    c.ticks(3);
    let x = manager(&mut c, "x", 71);
    c.send(x, &beacon("x", 71, true));
    c.ticks(10);
    c.send(old, &beacon("x", 70, false));
    assert_eq!(active(&c), 71, "heard by a younger session");
    c.ticks(1);
    let new = manager(&mut c, "x", 73);
    c.send(new, &beacon("x", 73, false));
    assert_eq!(active(&c), 73, "it was started anew");
    // If the active one is not heard by the new leader, it is gone.
    c.restart();
    c.ticks(9);
    let new = manager(&mut c, "x", 74);
    c.send(new, &beacon("x", 74, false));
    assert_eq!(active(&c), 74);
}

#[test]
fn a_change_in_flight_outlives_the_end_of_a_standby() {
    let (mut c, x) = with_active();
    let admin = c.admin();
    let y = manager(&mut c, "y", 72);
    c.send(y, &beacon("y", 72, false));
    c.ticks(25);
    c.send(x, &beacon("x", 71, true));
    c.held = Some(Vec::new());
    c.ok_later(admin, &json!({ "prefix": "mgr module enable", "module": "mine", "force": "--force" }));
    c.ticks(10);
    for r in c.held.take().unwrap() {
        c.store.submit(r);
    }
    c.pump();
    c.ticks(1);
    let m = &c.core.state().mgrmap;
    assert!(m.standbys.is_empty(), "silent for 36 seconds");
    assert_eq!(m.modules, ["mine"]);
}

#[test]
fn the_end_of_a_manager_is_proposed_until_it_is_durable() {
    let (mut c, _) = with_active();
    c.failing = true;
    c.ticks(35);
    assert_eq!(active(&c), 71);
    c.failing = false;
    c.ticks(1);
    assert_eq!(active(&c), 0);
    assert!(c.map().is_blocklisted(&addr(6900, 71).0[0]));
}

#[test]
fn a_late_beacon_of_an_earlier_instance_ends_no_younger_one() {
    let mut c = separate();
    let early = manager(&mut c, "x", 71);
    c.pass(Duration::from_secs(1));
    let x = manager(&mut c, "x", 72);
    c.send(x, &beacon("x", 72, false));
    c.send(early, &beacon("x", 71, false));
    assert_eq!(active(&c), 72);
    c.send(x, &beacon("x", 72, true));
    assert!(c.core.state().mgrmap.available);
    // The same for standbys.
    let early = manager(&mut c, "y", 81);
    c.pass(Duration::from_secs(1));
    let y = manager(&mut c, "y", 82);
    c.send(y, &beacon("y", 82, false));
    c.send(early, &beacon("y", 81, false));
    assert_eq!(c.core.state().mgrmap.standbys.keys().copied().collect::<Vec<_>>(), [82]);
    // A manager that the monitor hears no more gives its place up.
    c.ticks(32);
    c.send(early, &beacon("y", 81, false));
    assert_eq!(active(&c), 81);
}

#[test]
fn a_manager_has_only_its_own_addresses_blocklisted() {
    let host = |ip: [u8; 4], nonce| base::EntityAddr::msgr2(std::net::SocketAddr::from((ip, 0)), nonce);
    let (own, of_host, elsewhere) = (host([127, 0, 0, 1], 5), host([127, 0, 0, 1], 0), host([10, 9, 9, 9], 6));
    for (caps, may) in [("allow service mgr rwx", false), ("allow profile mgr", true)] {
        let mut c = separate();
        let admin = c.admin();
        let principal = who(EntityKind::MGR, "mgr.x", 71, caps);
        let entity = EntityName::new(EntityKind::MGR, 71);
        let (addrs, features) = (AddrVec::default(), Features::PACIFIC);
        let x = c.open(Peer { principal, entity, addrs, features, role: Role::Mon });
        c.send(x, &beacon("x", 71, false));
        let clients: Vec<AddrVec> = [own, of_host, elsewhere].map(|a| AddrVec(vec![a])).into();
        let client_names = clients.iter().map(|_| "volumes".to_owned()).collect();
        c.send(x, &MMgrBeacon { clients, client_names, ..beacon("x", 71, true) });
        // A server at another host.
        c.send(x, &MMgrBeacon { server_addrs: AddrVec(vec![elsewhere]), ..beacon("x", 71, true) });
        let named = c.core.state().mgrmap.active_addrs.0.contains(&elsewhere);
        assert_eq!(named, may, "{caps}");
        let clients: Vec<AddrVec> = [own, of_host, elsewhere].map(|a| AddrVec(vec![a])).into();
        c.send(x, &MMgrBeacon { clients, ..beacon("x", 71, true) });
        c.ok(admin, &json!({ "prefix": "mgr fail" }));
        assert!(c.map().is_blocklisted(&own));
        assert_eq!(c.map().is_blocklisted(&elsewhere), may, "{caps}");
        assert!(!c.map().is_blocklisted(&host([127, 0, 0, 1], 77)), "another process of its host");
    }
}

#[test]
fn a_manager_names_a_bounded_number_of_clients() {
    let (mut c, x) = with_active();
    let clients = (0..2000).map(|n| addr(0, n + 1)).collect();
    c.send(x, &MMgrBeacon { clients, ..beacon("x", 71, true) });
    assert!(c.core.state().mgrmap.clients.len() == 1024);
}

#[test]
fn facts_that_a_manager_told_end_with_it() {
    let (mut c, x) = with_active();
    let admin = c.admin();
    let tell = |c: &mut Cluster, x: u64, gid: u64| {
        let mut m = MMonMgrReport { gid, ..MMonMgrReport::default() };
        m.data = PgMapDigest::default().to_bytes(Features::PACIFIC);
        let check = HealthCheck { severity: 1, summary: "its alert".into(), ..HealthCheck::default() };
        m.health_checks.checks.insert("MINE".into(), check);
        c.send(x, &m);
    };
    let is_told =
        |c: &mut Cluster| c.ok(admin, &json!({ "prefix": "health", "detail": "detail" })).contains("its alert");
    tell(&mut c, x, 71);
    assert!(is_told(&mut c));
    c.ok(admin, &json!({ "prefix": "mgr fail" }));
    assert!(!is_told(&mut c), "it failed by command");
    let x = manager(&mut c, "x", 72);
    c.send(x, &beacon("x", 72, false));
    tell(&mut c, x, 72);
    assert!(is_told(&mut c));
    c.pass(Duration::from_secs(1));
    let x = manager(&mut c, "x", 73);
    c.send(x, &beacon("x", 73, false));
    assert_eq!(active(&c), 73);
    assert!(!is_told(&mut c), "it started anew");
    tell(&mut c, x, 73);
    c.ticks(32);
    assert!(!is_told(&mut c), "it fell silent");
}

#[test]
fn the_built_in_role_keeps_the_separate_manager_from_the_osds() {
    let (mut c, x) = with_active();
    let services = [("dashboard".to_owned(), "https://10.0.0.1:8443/".to_owned())].into();
    c.send(x, &MMgrBeacon { services, clients: vec![addr(0, 1071)], ..beacon("x", 71, true) });
    assert!(!c.core.state().mgrmap.services.is_empty());
    c.options.external_mgr = false;
    c.restart();
    let m = &c.core.state().mgrmap;
    assert_eq!(m.active_name, "a");
    assert!(m.services.is_empty() && m.clients.is_empty());
    assert_eq!(m.last_failure_osd_epoch, c.map().epoch);
    assert!(c.map().is_blocklisted(&addr(0, 1071).0[0]));
    assert!(c.map().is_blocklisted(&addr(6900, 71).0[0]));
    // Its own address is no client of the OSDs, and may be the same after a restart.
    let (own, epoch) = (m.active_addrs.0[0], c.map().epoch);
    c.restart();
    assert!(!c.map().is_blocklisted(&own));
    assert_eq!(c.map().epoch, epoch);
}
