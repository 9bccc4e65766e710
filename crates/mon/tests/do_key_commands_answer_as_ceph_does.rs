//! Do the commands on keys answer as a real monitor of 16.2 does? They were recorded from one, in this order.

mod support;

use serde_json::{Value, json};
use support::*;

const KEY: &str = "AQDCIwZrPZIaMhAAoNP9fDpsrWXtfl41pi9Qhg==";
const OTHER: &str = "AQDCIwZrPZIaMhAAoNP9fDpsrWXtfl41pi9Qhw==";

fn on(entity: &str, prefix: &str, caps: &[&str]) -> Value {
    let mut j = json!({ "prefix": prefix, "entity": entity });
    if !caps.is_empty() {
        j["caps"] = json!(caps);
    }
    j
}

fn ring(entity: &str, key: &str, caps: &str) -> String {
    format!("[{entity}]\n\tkey = {key}\n{caps}")
}

/// A command, its input, and the expected errno and status line.
type Step = (Value, String, i32, &'static str);

/// The creation of keys with capabilities that parse or do not.
fn creations() -> Vec<Step> {
    let goc = |entity: &str, caps: &[&str]| on(entity, "auth get-or-create", caps);
    let none = String::new();
    vec![
        (goc("client.e", &["mon", ""]), none.clone(), -22, "mon capability parse failed, stopped at end of ''"),
        (goc("client.e", &["osd", ""]), none.clone(), -22, "osd capability parse failed, stopped at '' of ''"),
        (goc("client.e", &["mgr", ""]), none.clone(), -22, "mgr capability parse failed, stopped at end of ''"),
        (goc("client.e", &["mds", ""]), none.clone(), -22, "mds capability parse failed, stopped at '' of ''"),
        (goc("client.q1", &["mon"]), none.clone(), -22, "bad capabilities request; odd number of arguments"),
        (goc("client.q1", &["xyz", "allow r"]), none.clone(), -22, "unknown cap type 'xyz'"),
        (
            goc("client.q1", &["mon", "allow zz"]),
            none.clone(),
            -22,
            "mon capability parse failed, stopped at 'allow zz' of 'allow zz'",
        ),
        (
            goc("client.q1", &["osd", "allow zz"]),
            none.clone(),
            -22,
            "osd capability parse failed, stopped at 'allow zz' of 'allow zz'",
        ),
        (
            goc("client.q1", &["mgr", "allow zz"]),
            none.clone(),
            -22,
            "mgr capability parse failed, stopped at 'allow zz' of 'allow zz'",
        ),
        (
            goc("client.q1", &["mgr", "profile zz"]),
            none.clone(),
            -22,
            "mgr capability parse failed during profile evaluation: unrecognized profile 'zz'",
        ),
        (
            goc("client.q1", &["mds", "allow rw gids=1"]),
            none.clone(),
            -22,
            "mds capability parse failed, stopped at 'gids=1' of 'allow rw gids=1'",
        ),
        (goc("client.q1", &["mon", "profile zz"]), none.clone(), 0, ""),
        (
            goc("client.q1", &["osd", "profile zz"]),
            none.clone(),
            -22,
            "key for client.q1 exists but cap osd does not match",
        ),
        (goc("q1", &[]), none.clone(), -22, "bad entity name"),
        (goc("foo.q1", &[]), none.clone(), -22, "bad entity name"),
        (goc("client.q1", &[]), none.clone(), 0, ""),
        (
            goc("client.q1", &["mon", "allow rw"]),
            none.clone(),
            -22,
            "key for client.q1 exists but cap mon does not match",
        ),
        (
            on("client.q1", "auth get-or-create-key", &["mon", "allow r"]),
            none.clone(),
            -22,
            "key for client.q1 exists but cap mon does not match",
        ),
    ]
}

/// Keys that are shown, added and imported.
fn additions() -> Vec<Step> {
    let mon_r = "\tcaps mon = \"allow r\"\n";
    let none = String::new();
    vec![
        (on("client.q1", "auth get", &[]), none.clone(), 0, "exported keyring for client.q1"),
        (on("client.nosuch", "auth get", &[]), none.clone(), -2, "failed to find client.nosuch in keyring"),
        (on("client.nosuch", "auth get-key", &[]), none.clone(), -2, "don't have client.nosuch"),
        (on("client.nosuch", "auth export", &[]), none.clone(), -2, "no key for auth(key=AAAAAAAAAAAAAAAA)"),
        (on("client.q1", "auth add", &[]), none.clone(), -22, "entity client.q1 exists but caps do not match"),
        (
            on("client.q1", "auth add", &["mon", "allow r"]),
            none.clone(),
            -22,
            "entity client.q1 exists but cap mon does not match",
        ),
        (on("client.q2", "auth add", &["mon", "allow rw"]), none.clone(), 0, "added key for client.q2"),
        (on("client.q3", "auth add", &[]), ring("client.q3", KEY, mon_r), 0, "added key for client.q3"),
        (
            on("client.q3", "auth add", &[]),
            ring("client.q3", OTHER, ""),
            -17,
            "entity client.q3 exists but key does not match",
        ),
        (
            on("client.q4", "auth add", &[]),
            ring("client.q3", OTHER, ""),
            -22,
            "key for client.q4 not found in provided keyring",
        ),
        (
            on("client.q4", "auth add", &["osd", "allow r"]),
            ring("client.q4", KEY, mon_r),
            -22,
            "caps cannot be specified both in keyring and in command",
        ),
        (
            on("client.q4", "auth add", &[]),
            "garbage".into(),
            -22,
            "error decoding keyring cannot parse buffer: Malformed input",
        ),
        (json!({ "prefix": "auth import" }), none.clone(), -22, "auth import: no data supplied"),
        (
            json!({ "prefix": "auth import" }),
            "[client.q5]\n\tkey = AQDCIwZrPZIaMhAAoNP9fDpsrWXtfl41pi9Qhg==\n".into(),
            -22,
            "auth import: no caps supplied",
        ),
        (json!({ "prefix": "auth import" }), ring("client.i", KEY, mon_r), 0, "imported keyring"),
    ]
}

/// Keys whose capabilities change, and which are removed.
fn changes() -> Vec<Step> {
    let none = String::new();
    vec![
        (
            on("client.q1", "auth caps", &["mon", "allow rw", "mds", "allow r"]),
            none.clone(),
            0,
            "updated caps for client.q1",
        ),
        (
            on("client.q1", "auth caps", &["mon"]),
            none.clone(),
            -22,
            "bad capabilities request; odd number of arguments",
        ),
        (on("client.q1", "auth caps", &[]), none.clone(), 0, "updated caps for client.q1"),
        (on("client.nosuch", "auth caps", &["mon", "allow r"]), none.clone(), -2, "couldn't find entry client.nosuch"),
        (
            on("client.q1", "auth caps", &["mon", ""]),
            none.clone(),
            -22,
            "mon capability parse failed, stopped at end of ''",
        ),
        (on("client.q1", "auth rm", &[]), none.clone(), 0, "updated"),
        (on("client.q1", "auth rm", &[]), none.clone(), 0, "entity client.q1 does not exist"),
        (on("q1", "auth rm", &[]), none.clone(), -22, "bad entity name"),
        (on("client.q2", "auth del", &[]), none.clone(), 0, "updated"),
        (json!({ "prefix": "auth get-or-create", "entity": 7 }), none, -22, "bad or missing field 'entity'"),
    ]
}

#[test]
fn refusals_and_texts() {
    let mut c = Cluster::new();
    let admin = c.admin();
    for (cmd, input, rc, rs) in [creations(), additions(), changes()].concat() {
        let got = c.command(admin, &cmd, &input);
        assert_eq!((got.0, got.1.as_str()), (rc, rs), "{cmd} < {input}");
    }
}

#[test]
fn forms_of_a_key() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let text = ring("client.q", KEY, "\tcaps mon = \"profile zz\"\n");
    assert_eq!(c.command(admin, &json!({ "prefix": "auth import" }), &text).0, 0);
    let ask = |prefix: &str, format: &str| json!({ "prefix": prefix, "entity": "client.q", "format": format });
    for (cmd, want) in [
        (ask("auth get", "plain"), text.clone()),
        (ask("auth export", "plain"), text.clone()),
        (ask("auth get-or-create", "plain"), format!("[client.q]\n\tkey = {KEY}\n")),
        (ask("auth get", "json"), format!(r#"[{{"entity":"client.q","key":"{KEY}","caps":{{"mon":"profile zz"}}}}]"#)),
        (
            ask("auth get", "json-pretty"),
            format!(
                "[\n    {{\n        \"entity\": \"client.q\",\n        \"key\": \"{KEY}\",\n        \"caps\": {{\n            \"mon\": \"profile zz\"\n        }}\n    }}\n]\n"
            ),
        ),
        (
            ask("auth get", "xml"),
            format!(
                "<auth><auth_entities><entity>client.q</entity><key>{KEY}</key><caps><mon>profile zz</mon></caps></auth_entities></auth>"
            ),
        ),
        (ask("auth get-key", "plain"), KEY.to_owned()),
        (ask("auth print-key", "json"), format!(r#"{{"key":"{KEY}"}}"#)),
    ] {
        assert_eq!(c.ok(admin, &cmd), want, "{cmd}");
    }
}

#[test]
fn a_uuid_keeps_its_number_and_key() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let boot = c.client("client.bootstrap-osd", "allow profile bootstrap-osd");
    let uuid = |n: char| "11111111-1111-1111-1111-111111111111".replace('1', &n.to_string());
    let secret = |k: &str| json!({ "cephx_secret": k }).to_string();
    let new = |u: String| json!({ "prefix": "osd new", "uuid": u });
    let with = |u: String, id: i32| json!({ "prefix": "osd new", "uuid": u, "id": id });
    for (s, cmd, input, rc, rs, out) in [
        (boot, new(uuid('1')), secret(KEY), 0, "", "0\n"),
        (boot, new(uuid('1')), secret(KEY), 0, "", "0\n"),
        (boot, new(uuid('1')), String::new(), 0, "", "0\n"),
        (boot, new(uuid('1')), secret(OTHER), -17, "entity osd.0 exists but key does not match", ""),
        (admin, with(uuid('1'), 0), secret(KEY), 0, "", "0\n"),
        (
            admin,
            with(uuid('1'), 1),
            secret(KEY),
            -17,
            "uuid 11111111-1111-1111-1111-111111111111 already in use for different id 0",
            "",
        ),
        (
            admin,
            with(uuid('2'), 0),
            secret(KEY),
            -22,
            "id 0 already in use and does not match uuid 22222222-2222-2222-2222-222222222222",
            "",
        ),
        (boot, new(uuid('2')), secret("x"), -22, "invalid cephx secret.", ""),
    ] {
        let got = c.command(s, &cmd, &input);
        assert_eq!((got.0, got.1.as_str(), got.2.as_str()), (rc, rs, out), "{cmd}");
    }
    // The old name has the same errnos.
    for (u, id, rc) in [('1', 1, -17), ('2', 0, -22), ('1', 0, 0)] {
        let cmd = json!({ "prefix": "osd create", "uuid": uuid(u), "id": id });
        assert_eq!(c.command(admin, &cmd, "").0, rc, "{cmd}");
    }
    let caps = "\tcaps mgr = \"allow profile osd\"\n\tcaps mon = \"allow profile osd\"\n\tcaps osd = \"allow *\"\n";
    assert_eq!(c.ok(admin, &on("osd.0", "auth get", &[])), ring("osd.0", KEY, caps));
}

#[test]
fn secrets_among_the_options_are_shown_to_those_who_may_do_everything() {
    let mut c = Cluster::new();
    let admin = c.admin();
    for (name, value) in [("rgw_keystone_admin_password", "hunter2"), ("rgw_thread_pool_size", "77")] {
        c.ok(
            admin,
            &json!({ "prefix": "config set", "who": "client.rgw", "name": name, "value": value, "force": true }),
        );
    }
    let weak = c.client("client.weak", "allow r");
    let asked = [
        json!({ "prefix": "config dump" }),
        json!({ "prefix": "config dump", "format": "json" }),
        json!({ "prefix": "config get", "who": "client.rgw", "key": "rgw_keystone_admin_password" }),
        json!({ "prefix": "config get", "who": "client.rgw", "format": "json" }),
        json!({ "prefix": "config log" }),
        json!({ "prefix": "config log", "format": "json" }),
    ];
    for cmd in &asked {
        let (full, part) = (c.command(admin, cmd, "").2, c.command(weak, cmd, "").2);
        assert!(full.contains("hunter2"), "{cmd}: {full}");
        assert!(!part.contains("hunter2") && part.contains("****"), "{cmd}: {part}");
        assert_eq!(full.contains("77"), part.contains("77"), "{cmd}");
    }
}
