//! Are the keys of OSDs on dm-crypt kept, shown to their OSD only, and removed with it? The answers of `osd new` were
//! recorded from a monitor of 16.2, in this order.

mod support;

use serde_json::{Value, json};
use support::*;

const KEY: &str = "AQDCIwZrPZIaMhAAoNP9fDpsrWXtfl41pi9Qhg==";
const OTHER: &str = "AQDCIwZrPZIaMhAAoNP9fDpsrWXtfl41pi9Qhw==";
const U: &str = "11111111-1111-1111-1111-111111111111";
const V: &str = "22222222-2222-2222-2222-222222222222";

fn new(uuid: &str) -> Value {
    json!({ "prefix": "osd new", "uuid": uuid })
}

fn secrets(key: &str, lockbox: &str, luks: &str) -> String {
    json!({ "cephx_secret": key, "cephx_lockbox_secret": lockbox, "dmcrypt_key": luks }).to_string()
}

fn luks(uuid: &str) -> String {
    format!("dm-crypt/osd/{uuid}/luks")
}

#[test]
fn osd_new_answers_as_ceph_does() {
    let mut c = Cluster::new();
    let boot = c.client("client.bootstrap-osd", "allow profile bootstrap-osd");
    let both = "requires both a cephx lockbox secret and a dm-crypt key.";
    let plain = |key: &str| json!({ "cephx_secret": key }).to_string();
    for (uuid, input, rc, text, out) in [
        (U, json!({ "cephx_secret": KEY, "cephx_lockbox_secret": KEY }).to_string(), -22, both.to_owned(), ""),
        (U, json!({ "cephx_secret": KEY, "dmcrypt_key": "abc" }).to_string(), -22, both.to_owned(), ""),
        (
            U,
            json!({ "cephx_lockbox_secret": KEY, "dmcrypt_key": "abc" }).to_string(),
            -22,
            "requires a cephx secret.".to_owned(),
            "",
        ),
        (U, secrets(KEY, "x", "abc"), -22, "invalid cephx lockbox secret.".to_owned(), ""),
        (U, secrets(KEY, OTHER, "abc"), 0, String::new(), "0\n"),
        (U, secrets(KEY, OTHER, "abc"), 0, String::new(), "0\n"),
        (U, secrets(KEY, OTHER, "abd"), -17, "dm-crypt key already exists and does not match".to_owned(), ""),
        (U, secrets(KEY, KEY, "abc"), -17, format!("entity client.osd-lockbox.{U} exists but key does not match"), ""),
        (U, plain(KEY), 0, String::new(), "0\n"),
        (V, plain(OTHER), 0, String::new(), "1\n"),
        (V, secrets(OTHER, OTHER, "abc"), -17, "osd.1 exists but secrets do not match".to_owned(), ""),
    ] {
        assert_eq!(c.command(boot, &new(uuid), &input), (rc, text, out.to_owned()), "{input}");
    }
    // A monitor of 16.2 ends by an empty key, and keeps any length.
    for bad in [String::new(), "x".repeat((64 << 10) + 1)] {
        assert_eq!(c.command(boot, &new(&U.replace('1', "3")), &secrets(KEY, KEY, &bad)).0, -22);
    }
    assert_eq!(c.command(boot, &new(&U.replace('1', "3")), &secrets(KEY, KEY, &"x".repeat(64 << 10))).0, 0);
}

#[test]
fn only_the_lockbox_reads_the_key() {
    let mut c = Cluster::new();
    let admin = c.admin();
    assert_eq!(c.command(admin, &new(U), &secrets(KEY, OTHER, "abc")).0, 0);
    let entity = format!("client.osd-lockbox.{U}");
    let (_, _, ring) = c.command(admin, &json!({ "prefix": "auth get", "entity": entity }), "");
    let cap = format!("allow command \"config-key get\" with key=\"{}\"", luks(U));
    assert!(ring.contains(OTHER) && ring.contains(&cap.replace('"', "\\\"")), "{ring}");
    let get = |key: String| json!({ "prefix": "config-key get", "key": key });
    let own = c.client(&entity, &cap);
    assert_eq!(c.command(own, &get(luks(U)), ""), (0, String::new(), "abc".into()));
    for cmd in [get(luks(V)), get("x".into()), json!({ "prefix": "config-key dump" }), json!({ "prefix": "osd dump" })]
    {
        assert_eq!(c.command(own, &cmd, "").0, -13, "{cmd}");
    }
    let boot = c.client("client.bootstrap-osd", "allow profile bootstrap-osd");
    assert_eq!(c.command(boot, &get(luks(U)), "").0, -13);
}

#[test]
fn the_keys_go_with_the_osd() {
    let mut c = Cluster::new();
    let admin = c.admin();
    let left = |c: &mut Cluster| {
        let (_, _, keys) = c.command(admin, &json!({ "prefix": "config-key ls", "format": "json" }), "");
        let (_, _, all) = c.command(admin, &json!({ "prefix": "auth ls" }), "");
        (keys.contains("dm-crypt"), all.contains("osd-lockbox"))
    };
    let gone = |what: &str| json!({ "prefix": what, "id": 0, "yes_i_really_mean_it": true });
    for what in ["osd destroy", "osd purge", "osd purge-new"] {
        let at = json!({ "prefix": "osd new", "uuid": U, "id": 0 });
        assert_eq!(c.command(admin, &at, &secrets(KEY, OTHER, "abc")).0, 0, "{what}");
        c.ok(admin, &json!({ "prefix": "config-key set", "key": format!("dm-crypt/osd/{U}/db"), "val": "x" }));
        c.ok(admin, &json!({ "prefix": "config-key set", "key": format!("dm-crypt/osd/{V}/luks"), "val": "y" }));
        assert_eq!(left(&mut c), (true, true), "{what}");
        c.ok(admin, &gone(what));
        let (_, _, keys) = c.command(admin, &json!({ "prefix": "config-key ls", "format": "json" }), "");
        assert!(!keys.contains(U) && keys.contains(V), "{what}: {keys}");
        c.ok(admin, &json!({ "prefix": "config-key rm", "key": format!("dm-crypt/osd/{V}/luks") }));
        assert_eq!(left(&mut c), (false, false), "{what}");
        if what == "osd destroy" {
            c.ok(admin, &gone("osd purge"));
        }
    }
}
