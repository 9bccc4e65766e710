//! Does a session get exactly what its key allows: commands, subscriptions, messages, audit?

mod support;

use base::{AuthName, EntityKind};
use mon::core::session::Peer;
use mon::state::{AuthEntry, Role};
use serde_json::json;
use support::*;
use wire::msg::*;
use wire::types::PaxosHeader;

const EACCES: i32 = base::errno::EACCES;
const EINVAL: i32 = base::errno::EINVAL;

/// Sends raw text as a command; it need not be valid JSON.
fn raw(c: &mut Cluster, conn: u64, text: &str) -> (i32, String, String) {
    let cmd = MMonCommand {
        paxos: PaxosHeader::default(),
        fsid: c.core.state().fsid,
        cmd: vec![text.to_owned().into()],
        data: bytes::Bytes::new(),
    };
    c.send(conn, &cmd);
    let acks = c.take::<MMonCommandAck>(conn);
    assert_eq!(acks.len(), 1, "one answer to {text}");
    (acks[0].r, acks[0].rs.0.clone(), String::from_utf8_lossy(&acks[0].data).into_owned())
}

fn key_of(c: &Cluster, name: &str) -> Option<AuthEntry> {
    c.core.state().auth.get(&AuthName::parse(name).unwrap()).cloned()
}

/// The purpose of each bootstrap key, as `ceph-volume` and similar tools use it. Ceph 16.2 grants all of it, too.
#[test]
fn bootstrap_keys_create_the_keys_they_are_for() {
    let mut c = Cluster::new();
    for (boot, entity, caps) in [
        ("mds", "mds.z", &["mon", "allow profile mds", "osd", "allow rwx", "mds", "allow"][..]),
        ("mgr", "mgr.z", &["mon", "allow profile mgr", "osd", "allow *", "mds", "allow *"][..]),
        ("rgw", "client.rgw.z", &["mon", "allow rw", "osd", "allow rwx"][..]),
        ("rbd", "client.z", &["mon", "profile rbd", "osd", "profile rbd pool=x"][..]),
        ("rbd-mirror", "client.y", &["mon", "profile rbd-mirror", "osd", "profile rbd"][..]),
    ] {
        let s = c.client(&format!("client.bootstrap-{boot}"), &format!("allow profile bootstrap-{boot}"));
        let cmd = json!({ "prefix": "auth get-or-create", "entity": entity, "caps": caps });
        let out = c.ok(s, &cmd);
        let made = key_of(&c, entity).expect("the key");
        assert_eq!(out, format!("[{entity}]\n\tkey = {}\n", made.key.to_base64()), "{boot}");
        assert_eq!(c.ok(s, &cmd), out, "{boot}: asked again, the same key");
        // Other entities and caps are refused.
        let other = json!({ "prefix": "auth get-or-create", "entity": "osd.5", "caps": caps });
        assert_eq!(c.command(s, &other, "").0, EACCES, "{boot}: another kind of entity");
        let mut more = caps.to_vec();
        more[1] = "allow *";
        let other = json!({ "prefix": "auth get-or-create", "entity": format!("{entity}2"), "caps": more });
        assert_eq!(c.command(s, &other, "").0, EACCES, "{boot}: more than its kind may have");
        for prefix in ["auth get", "auth get-key", "auth rm", "auth rotate"] {
            assert_eq!(c.command(s, &json!({ "prefix": prefix, "entity": entity }), "").0, EACCES, "{boot}: {prefix}");
        }
    }
}

/// Ceph 16.2 gives the key of client.admin here, because it checks fields that the sender puts beside `caps`.
#[test]
fn only_the_caps_argument_sets_caps() {
    let mut c = Cluster::new();
    let s = c.client("client.bootstrap-rbd", "allow profile bootstrap-rbd");
    let beside = |entity: &str, caps: &[&str]| {
        json!({
            "prefix": "auth get-or-create", "entity": entity, "caps": caps,
            "caps_mon": "profile rbd", "caps_osd": "profile rbd",
        })
    };
    let (rc, _, out) = c.command(s, &beside("client.admin", &[]), "");
    assert_eq!((rc, out.as_str()), (EACCES, ""), "the key of client.admin");
    assert_eq!(c.command(s, &beside("client.new", &["mon", "allow *"]), "").0, EACCES);
    assert_eq!(c.command(s, &beside("client.new", &["mon", "allow *", "osd", "profile rbd"]), "").0, EACCES);
    assert!(key_of(&c, "client.new").is_none());
    // If a service is named twice, its last caps count, for the check and for the key.
    let twice = ["mon", "profile rbd", "mon", "allow *", "osd", "profile rbd"];
    let cmd = json!({ "prefix": "auth get-or-create", "entity": "client.new5", "caps": twice });
    assert_eq!(c.command(s, &cmd, "").0, EACCES);
    let twice = ["mon", "allow *", "mon", "profile rbd", "osd", "profile rbd"];
    let cmd = json!({ "prefix": "auth get-or-create", "entity": "client.new6", "caps": twice });
    c.ok(s, &cmd);
    assert_eq!(key_of(&c, "client.new6").unwrap().caps["mon"], "profile rbd");
    let odd = ["mon", "profile rbd", "osd", "profile rbd", "osd"];
    let cmd = json!({ "prefix": "auth get-or-create", "entity": "client.new7", "caps": odd });
    assert_eq!(c.command(s, &cmd, "").0, EACCES);
}

#[test]
fn an_argument_given_twice_is_refused() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let text = r#"{"prefix":"auth get-or-create","entity":"client.a","entity":"client.b"}"#;
    assert_eq!(raw(&mut c, admin, text).0, EINVAL);
    assert!(key_of(&c, "client.a").is_none() && key_of(&c, "client.b").is_none());
    assert_eq!(raw(&mut c, admin, r#"{"prefix":"fsid","prefix":"health"}"#).0, EINVAL);
}

/// A grant of a command with conditions sees declared arguments only. Tentacle's clients send more, and others may.
#[test]
fn undeclared_arguments_are_dropped() {
    let mut c = Cluster::new();
    let s = c.client("client.x", "allow command \"osd pool set\" with pool=p var=size extra=yes");
    let admin = c.admin();
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p" }));
    let cmd = json!({ "prefix": "osd pool set", "pool": "p", "var": "size", "val": "2", "extra": "yes" });
    assert_eq!(c.command(s, &cmd, "").0, EACCES);
    let s = c.client("client.x", "allow command \"osd pool set\" with pool=p var=size");
    let cmd = json!({
        "prefix": "osd pool set", "pool": "p", "var": "size", "val": "2", "session_id": "x", "period": [1], "n": null,
    });
    c.ok(s, &cmd);
}

#[test]
fn descriptions_need_no_caps() {
    let mut c = Cluster::new();
    let s = c.client("client.x", "allow service config-key rwx");
    assert!(c.ok(s, &json!({ "prefix": "get_command_descriptions" })).len() > 1000);
    let (rc, ..) = c.command(s, &json!({ "prefix": "config-key get", "key": "k" }), "");
    assert_eq!(rc, base::errno::ENOENT, "as on Ceph");
    for prefix in ["fsid", "osd dump", "mon dump", "version", "status"] {
        assert_eq!(c.command(s, &json!({ "prefix": prefix }), "").0, EACCES, "{prefix}");
    }
}

#[test]
fn a_refused_subscription_brings_nothing_later() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let s = c.client("client.x", "allow r");
    c.subscribe(s, "kv:", 0, false);
    c.ok(admin, &json!({ "prefix": "config-key set", "key": "k", "val": "secret" }));
    assert!(c.take::<MKvData>(s).is_empty(), "of stored keys");
    let s = c.client("client.y", "allow service config-key r");
    for what in ["osdmap", "log-info", "mgrmap", "servicemap", "fsmap", "osd_pg_creates", "mgrdigest"] {
        c.subscribe(s, what, 0, false);
    }
    c.out.clear();
    c.ok(admin, &json!({ "prefix": "osd set", "key": "noout" }));
    c.ok(admin, &json!({ "prefix": "log", "logtext": ["x"] }));
    c.ticks(10);
    assert!(!c.out.iter().any(|(conn, _)| *conn == s), "nothing comes to who may not read");
    let d = c.client("client.z", "allow r");
    c.subscribe(d, "mgrdigest", 0, false);
    assert!(c.take::<MMgrDigest>(d).is_empty(), "digests are for managers");
}

#[test]
fn map_versions_need_mon_r() {
    let mut c = Cluster::new();
    let ask = MMonGetVersion { handle: 1, what: "osdmap".into() };
    let s = c.client("client.x", "allow service config-key rwx");
    c.send(s, &ask);
    assert!(c.take::<MMonGetVersionReply>(s).is_empty());
    let s = c.client("client.x", "allow r");
    c.send(s, &ask);
    assert_eq!(c.take::<MMonGetVersionReply>(s).len(), 1);
}

#[test]
fn the_audit_log_has_no_secret() {
    let mut c = Cluster::new();
    let admin = c.admin();
    c.ok(admin, &json!({ "prefix": "config-key set", "key": "k", "val": "sesame-1" }));
    c.ok(admin, &json!({ "prefix": "config-key put", "key": "k2", "val": "sesame-2" }));
    c.ok(admin, &json!({ "prefix": "auth get-or-create", "entity": "client.q", "caps": ["mon", "allow r"] }));
    let key = key_of(&c, "client.q").unwrap().key.to_base64();
    let (rc, ..) = c.command(
        admin,
        &json!({ "prefix": "auth import" }),
        "[client.i]\n\tkey = AQDCIwZrPZIaMhAAoNP9fDpsrWXtfl41pi9Qhg==\n\tcaps mon = \"allow r\"\n",
    );
    assert_eq!(rc, 0);
    c.ticks(2);
    let lines: Vec<String> = c.core.state().log.entries().into_iter().map(|(_, e)| e.msg.0.clone()).collect();
    let text = lines.join("\n");
    assert!(text.contains("config-key set") && text.contains("auth import") && text.contains("client.q"), "{text}");
    for secret in ["sesame-1", "sesame-2", key.as_str(), "AQDCIwZrPZIaMhAAoNP9fDpsrWXtfl41pi9Qhg=="] {
        assert!(!text.contains(secret), "{secret} is in the log:\n{text}");
    }
}

#[test]
fn a_session_closes_no_service_of_another() {
    let mut c = Cluster::new();
    let open = |c: &mut Cluster, name: &str| {
        let gid = c.next_conn;
        let mut peer = peer(name, EntityKind::CLIENT, gid, "allow *");
        peer.role = Role::Mgr;
        c.open(peer)
    };
    let rgw = open(&mut c, "client.rgw.a");
    let mut m = MMgrOpen { service_name: "rgw".into(), daemon_name: "a".into(), ..MMgrOpen::default() };
    m.service_daemon = Some(Default::default());
    c.send(rgw, &m);
    assert!(c.core.state().mgr.services.services["rgw"].daemons.contains_key("a"));
    let other = open(&mut c, "client.x");
    c.send(other, &MMgrClose { service_name: "rgw".into(), daemon_name: "a".into() });
    assert!(c.core.state().mgr.services.services["rgw"].daemons.contains_key("a"), "closed by another's session");
    // A session that registers the same name and closes does not remove it either.
    c.send(other, &m);
    c.close(other);
    assert!(c.core.state().mgr.services.services["rgw"].daemons.contains_key("a"), "taken over and closed");
    c.send(rgw, &MMgrClose { service_name: "rgw".into(), daemon_name: "a".into() });
    assert!(!c.core.state().mgr.services.services.contains_key("rgw"), "its own session may");
}

/// The address that a peer announces gives no rights.
#[test]
fn network_conditions_use_the_socket_address() {
    let mut c = Cluster::new();
    let from = |c: &mut Cluster, socket: &str, announced: &str| {
        let mut p = peer("client.x", EntityKind::CLIENT, 9000 + c.next_conn, "allow * network 10.1.0.0/16");
        p.principal.socket = socket.parse().unwrap();
        p.addrs = base::AddrVec(vec![base::EntityAddr::msgr2(announced.parse().unwrap(), 7)]);
        c.open(p)
    };
    let cmd = json!({ "prefix": "osd set", "key": "noout" });
    let outside = from(&mut c, "10.2.0.1:4000", "10.1.0.1:0");
    assert_eq!(c.command(outside, &cmd, "").0, EACCES, "it only says it is inside");
    let inside = from(&mut c, "10.1.0.1:4000", "10.2.0.1:0");
    assert_eq!(c.command(inside, &cmd, "").0, 0);
}

fn audit(c: &Cluster) -> Vec<String> {
    c.core
        .state()
        .log
        .entries()
        .into_iter()
        .filter(|(_, e)| e.channel == "audit")
        .map(|(_, e)| e.msg.0.clone())
        .collect()
}

#[test]
fn refusals_and_changes_are_in_the_audit_log() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let s = c.client("client.x", "allow r");
    let set = json!({ "prefix": "osd set", "key": "noout", "extra": "sesame" });
    for _ in 0..50 {
        assert_eq!(c.command(s, &set, "").0, EACCES);
    }
    c.send(s, &MOsdFull::default());
    c.ok(admin, &json!({ "prefix": "auth get-key", "entity": "client.admin" }));
    c.ok(admin, &json!({ "prefix": "osd dump" }));
    let lines = audit(&c);
    assert_eq!(
        lines,
        [
            "from='client.5002 127.0.0.1:40000' entity='client.x' cmd=[{\"prefix\":\"osd set\",\"key\":\"noout\"}]: access denied",
            "from='client.5002 127.0.0.1:40000' entity='client.x' osd_full: access denied",
            "from='client.5001 127.0.0.1:40000' entity='client.admin' cmd=[{\"prefix\":\"auth get-key\",\"entity\":\"client.admin\"}]: finished",
        ]
    );
    c.ticks(61);
    let more = "from='127.0.0.1' entity='client.x' cmd 'osd set': access denied: 49 more times within 60 s";
    assert!(audit(&c).iter().any(|l| l == more), "{:?}", audit(&c));
    c.restart();
    assert_eq!(audit(&c)[..3], lines[..], "they are durable");
}

#[test]
fn a_stranger_cannot_flood_the_audit_log() {
    let mut c = Cluster::new();
    let s = c.client("client.x", "allow r");
    let writing: Vec<String> = mon::command::commands()
        .filter(|(_, c)| c.is_audited() && c.flags & mon::command::flag::TELL != mon::command::flag::TELL)
        .map(|(s, _)| s.prefix.clone())
        .collect();
    assert!(writing.len() > 100);
    for p in &writing {
        assert_ne!(c.command(s, &json!({ "prefix": p }), "").0, 0, "{p}");
    }
    assert!(audit(&c).len() <= 10, "{}", audit(&c).len());
}

#[test]
fn removed_rights_reach_open_sessions() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let make = |c: &mut Cluster, name: &str| {
        c.ok(
            admin,
            &json!({ "prefix": "auth get-or-create", "entity": name, "caps": ["mon", "allow rw", "mgr", "allow rw"] }),
        );
        c.client(name, "allow rw")
    };
    let set = json!({ "prefix": "osd set", "key": "noout" });
    let shrunk = make(&mut c, "client.s");
    c.subscribe(shrunk, "osdmap", 0, false);
    c.ok(shrunk, &set);
    c.ok(admin, &json!({ "prefix": "auth caps", "entity": "client.s", "caps": ["mon", "allow service mon r"] }));
    assert_eq!(c.command(shrunk, &set, "").0, EACCES);
    c.out.clear();
    c.ok(admin, &json!({ "prefix": "osd set", "key": "noin" }));
    assert!(c.take::<MOsdMap>(shrunk).is_empty(), "the subscription ended with the right to it");

    let removed = make(&mut c, "client.r");
    c.ok(admin, &json!({ "prefix": "auth rm", "entity": "client.r" }));
    let rotated = make(&mut c, "client.t");
    c.ok(rotated, &json!({ "prefix": "fsid" }));
    let (rc, told, _) = c.command(admin, &json!({ "prefix": "auth rotate", "entity": "client.t" }), "");
    assert!(rc == 0 && told.starts_with("1 session of it is closed") && told.contains("keyring of client.t"), "{told}");
    let closed: Vec<u64> = c.closed.iter().map(|(c, _)| *c).collect();
    assert_eq!(closed, [removed, rotated]);
    // Sessions of other entities stay open, and so do those of an entity whose caps were set to the same value.
    let again = make(&mut c, "client.u");
    c.ok(admin, &json!({ "prefix": "auth get-or-create", "entity": "client.u", "caps": ["mon", "allow rw"] }));
    c.ok(again, &set);
    assert_eq!(c.closed.len(), 2);
    // A client that rotates its own key still gets the answer.
    let (rc, told, own) = c.command(admin, &json!({ "prefix": "auth rotate", "entity": "client.admin" }), "");
    assert!(rc == 0 && told.is_empty() && own.contains("key = "), "{told}");
    // The connection stays for a moment, so that the answer arrives.
    c.ticks(16);
    assert_eq!(c.closed.last().unwrap().0, admin);
}

#[test]
fn refused_messages_do_not_wait_for_a_commit_and_others_are_bounded() {
    let mut c = Cluster::new();
    let admin = c.admin();
    c.ok(admin, &json!({ "prefix": "osd pool create", "pool": "p" }));
    let stranger = c.client("client.x", "allow r");
    let heavy = c.client("client.y", "allow rw");
    let light = c.client("client.z", "allow rw");
    let log = |n: usize| {
        let mut e = wire::types::LogEntry { seq: 1, channel: "cluster".into(), ..Default::default() };
        e.msg = "x".repeat(n).into();
        MLog { fsid: FSID, entries: vec![e], ..MLog::default() }
    };
    c.held = Some(Vec::new());
    c.send(
        admin,
        &MMonCommand {
            paxos: PaxosHeader::default(),
            fsid: FSID,
            cmd: vec![json!({ "prefix": "osd set", "key": "noout" }).to_string().into()],
            data: bytes::Bytes::new(),
        },
    );
    for _ in 0..100 {
        c.send(stranger, &log(1 << 16));
        c.send(stranger, &MPoolOp { fsid: FSID, op: pool_op::CREATE, name: "q".into(), ..MPoolOp::default() });
    }
    assert_eq!(c.core.waiting(), (0, 0), "nothing of who may not");
    assert!(c.take::<MPoolOpReply>(stranger).iter().all(|r| r.reply_code == base::errno::EPERM));
    c.send(light, &log(10));
    while c.closed.is_empty() {
        c.send(heavy, &log(1 << 20));
        assert!(c.core.waiting().1 <= 18 << 20, "bounded");
    }
    assert_eq!(c.closed[0].0, heavy);
    assert_eq!(c.core.waiting().0, 1, "the other one's message stays");
}

#[test]
fn sessions_with_the_manager_end_with_their_tickets() {
    let mut c = Cluster::new();
    let open = |c: &mut Cluster, role, expires| {
        let gid = 8000 + c.next_conn;
        let mut p = Peer { role, ..peer("client.x", EntityKind::CLIENT, gid, "allow *") };
        p.principal.expires = expires;
        c.open(p)
    };
    let soon = c.now.wall.plus(std::time::Duration::from_secs(10));
    let short = open(&mut c, Role::Mgr, soon);
    let long = open(&mut c, Role::Mgr, FOREVER);
    let at_monitor = open(&mut c, Role::Mon, soon);
    let unauthenticated = open(&mut c, Role::Mgr, base::Utime::ZERO);
    c.ticks(9);
    assert!(c.closed.is_empty());
    c.ticks(2);
    assert_eq!(c.closed.iter().map(|(conn, _)| *conn).collect::<Vec<_>>(), [short]);
    let _ = (long, at_monitor, unauthenticated);
}
