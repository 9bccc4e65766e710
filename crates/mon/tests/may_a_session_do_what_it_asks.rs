//! Does a session get what its key allows, and nothing else: commands, subscriptions, messages, audit?

mod support;

use base::{AuthName, EntityKind};
use mon::core::cluster_state::{AuthEntry, Role};
use serde_json::json;
use support::*;
use wire::msg::*;
use wire::types::PaxosHeader;

const EACCES: i32 = base::errno::EACCES;
const EINVAL: i32 = base::errno::EINVAL;

/// Sends a command as the text it is, which need not be sensible JSON.
fn raw(c: &mut Cluster, conn: u64, text: &str) -> (i32, String, String) {
    let cmd = MMonCommand {
        paxos: PaxosHeader::default(),
        fsid: c.core.state.fsid,
        cmd: vec![text.to_owned().into()],
        data: bytes::Bytes::new(),
    };
    c.send(conn, &cmd);
    let acks = c.take::<MMonCommandAck>(conn);
    assert_eq!(acks.len(), 1, "one answer to {text}");
    (acks[0].r, acks[0].rs.0.clone(), String::from_utf8_lossy(&acks[0].data).into_owned())
}

fn key_of(c: &Cluster, name: &str) -> Option<AuthEntry> {
    c.core.state.auth.get(&AuthName::parse(name).unwrap()).cloned()
}

/// What each bootstrap key is for, as `ceph-volume` and its like send it; all of it is granted by Ceph 16.2, too.
#[test]
fn bootstrap_keys_make_what_they_are_for() {
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
        // Nothing but that.
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

/// Ceph 16.2 gives the key of client.admin here: what it checks is what the sender says beside `caps`.
#[test]
fn caps_are_what_is_in_caps() {
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
    // Given twice, the last one counts, for the check as for the key.
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

/// A grant of a command with conditions sees declared arguments only: Tentacle's clients send more, and so may others.
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
fn versions_of_maps_are_for_who_may_read_the_monitor() {
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
        "[client.i]\n\tkey = AQDCIwZrPZIaMhAAoNP9fDpsrWXtfl41pi9Qhg==\n",
    );
    assert_eq!(rc, 0);
    c.ticks(2);
    let lines: Vec<String> = c.core.state.log.entries.iter().map(|(_, e)| e.msg.0.clone()).collect();
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
    assert!(c.core.state.servicemap.services["rgw"].daemons.contains_key("a"));
    let other = open(&mut c, "client.x");
    c.send(other, &MMgrClose { service_name: "rgw".into(), daemon_name: "a".into() });
    assert!(c.core.state.servicemap.services["rgw"].daemons.contains_key("a"), "closed by another's session");
    // Nor does one that takes the name, and goes.
    c.send(other, &m);
    c.close(other);
    assert!(c.core.state.servicemap.services["rgw"].daemons.contains_key("a"), "taken over and closed");
    c.send(rgw, &MMgrClose { service_name: "rgw".into(), daemon_name: "a".into() });
    assert!(!c.core.state.servicemap.services.contains_key("rgw"), "its own session may");
}

/// The address in a peer's own words decides nothing.
#[test]
fn networks_are_those_of_the_socket() {
    let mut c = Cluster::new();
    let from = |c: &mut Cluster, socket: &str, announced: &str| {
        let mut p = peer("client.x", EntityKind::CLIENT, 9000 + c.next_conn, "allow * network 10.1.0.0/16");
        p.socket = socket.parse().unwrap();
        p.addrs = base::AddrVec(vec![base::EntityAddr::msgr2(announced.parse().unwrap(), 7)]);
        c.open(p)
    };
    let cmd = json!({ "prefix": "osd set", "key": "noout" });
    let outside = from(&mut c, "10.2.0.1:4000", "10.1.0.1:0");
    assert_eq!(c.command(outside, &cmd, "").0, EACCES, "it only says it is inside");
    let inside = from(&mut c, "10.1.0.1:4000", "10.2.0.1:0");
    assert_eq!(c.command(inside, &cmd, "").0, 0);
}
