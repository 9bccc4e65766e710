//! Sessions that a front monitor accepted by its own copy of keys and caps: does the leader's state decide?

mod support;

use auth::{CapsInfo, CryptoKey, KeyKind};
use base::{EntityKind, Utime, errno};
use mon::core::Event;
use mon::core::session::Peer;
use serde_json::json;
use support::*;

fn key(n: u8) -> CryptoKey {
    CryptoKey::new(KeyKind::Aes, Utime::default(), &[n; 16]).unwrap()
}

struct Way {
    c: Cluster,
    admin: u64,
}

impl Way {
    fn new() -> Self {
        let mut c = Cluster::new();
        let admin = c.admin();
        Self { c, admin }
    }

    fn import(&mut self, name: &str, k: &CryptoKey, caps: &str) {
        let text = format!("[{name}]\n\tkey = {}\n\tcaps mon = \"{caps}\"\n", k.to_base64());
        let (rc, rs, _) = self.c.command(self.admin, &json!({ "prefix": "auth import" }), &text);
        assert_eq!(rc, 0, "{rs}");
    }

    /// Opens a session through a front monitor with the caps `told`. `None` if the leader ended it.
    fn come(&mut self, name: &str, told: &str, proved: Option<&CryptoKey>) -> Option<u64> {
        let mut p = peer(name, EntityKind::CLIENT, 9000 + self.c.next_conn, told);
        p.principal.proved = proved.map(CryptoKey::mark);
        self.come_as(p)
    }

    fn come_as(&mut self, p: Peer) -> Option<u64> {
        self.c.next_conn += 1;
        let conn = 1 << 63 | self.c.next_conn;
        self.c.closed.clear();
        self.c.core.handle(Event::OpenElsewhere(conn, Box::new(p)), self.c.now);
        self.c.pump();
        self.c.closed.iter().all(|(x, _)| *x != conn).then_some(conn)
    }

    fn why(&self) -> &str {
        &self.c.closed[0].1
    }
}

#[test]
fn a_removed_key_opens_no_session() {
    let mut w = Way::new();
    w.import("client.x", &key(1), "allow r");
    assert!(w.come("client.x", "allow r", Some(&key(1))).is_some());
    // The key changes; the front monitor does not know yet.
    w.import("client.x", &key(2), "allow r");
    assert_eq!(w.come("client.x", "allow r", Some(&key(1))), None);
    assert!(w.why().contains("a key that is not"), "{}", w.why());
    let open = w.come("client.x", "allow r", Some(&key(2))).unwrap();
    assert_eq!(w.come("client.x", "allow r", None), None);
    assert!(w.why().contains("does not name the key"), "{}", w.why());
    let rm = json!({ "prefix": "auth rm", "entity": "client.x" });
    w.c.closed.clear();
    w.c.ok(w.admin, &rm);
    assert!(w.c.closed.iter().any(|(c, why)| *c == open && why.contains("removed")), "{:?}", w.c.closed);
    assert_eq!(w.come("client.x", "allow r", Some(&key(2))), None);
    assert!(w.why().contains("no such entity"), "{}", w.why());
}

#[test]
fn a_session_gets_the_caps_of_the_leaders_state() {
    let mut w = Way::new();
    w.import("client.x", &key(1), "allow r");
    let s = w.come("client.x", "allow *", Some(&key(1))).unwrap();
    let set = json!({ "prefix": "osd set", "key": "noout" });
    assert_eq!(w.c.command(s, &set, "").0, errno::EACCES, "whatever the front monitor told");
    assert_eq!(w.c.command(s, &json!({ "prefix": "osd stat" }), "").0, 0);
    w.c.ok(w.admin, &json!({ "prefix": "auth caps", "entity": "client.x", "caps": ["mon", "allow *"] }));
    let s = w.come("client.x", "allow r", Some(&key(1))).unwrap();
    assert_eq!(w.c.command(s, &set, "").0, 0, "also those that it was given since");
    w.c.ok(w.admin, &json!({ "prefix": "auth caps", "entity": "client.x", "caps": ["osd", "allow r"] }));
    assert_eq!(w.come("client.x", "allow *", Some(&key(1))), None);
    assert!(w.why().contains("no caps"), "{}", w.why());
}

#[test]
fn a_session_without_authentication_has_no_entity() {
    let mut w = Way::new();
    let mut p = peer("client.admin", EntityKind::CLIENT, 9100, "");
    p.principal.caps = CapsInfo::all();
    assert_eq!(w.come_as(p), None);
    assert!(w.why().contains("not authenticated"), "{}", w.why());
}

#[test]
fn a_pending_key_opens_a_session_and_replaces_the_key() {
    let mut w = Way::new();
    w.import("client.x", &key(1), "allow r");
    let old = w.come("client.x", "allow r", Some(&key(1))).unwrap();
    let (rc, rs, out) = w.c.command(
        w.admin,
        &json!({ "prefix": "auth get-or-create-pending", "entity": "client.x", "format": "json" }),
        "",
    );
    assert_eq!(rc, 0, "{rs}");
    let out: serde_json::Value = serde_json::from_str(&out).unwrap();
    let pending = CryptoKey::from_base64(out[0]["pending_key"].as_str().unwrap()).unwrap();
    let new = w.come("client.x", "allow r", Some(&pending)).unwrap();
    w.c.closed.clear();
    // The front monitor reports that the pending key was used, before or after the session.
    w.c.core.key_used(base::AuthName::parse("client.x").unwrap(), pending.clone());
    w.c.ticks(2);
    let closed: Vec<u64> = w.c.closed.iter().map(|(c, _)| *c).collect();
    assert_eq!(closed, [old], "{:?}", w.c.closed);
    assert_eq!(w.c.command(new, &json!({ "prefix": "osd stat" }), "").0, 0);
    assert_eq!(w.come("client.x", "allow r", Some(&key(1))), None);
}

#[test]
fn a_tell_to_a_front_monitor_is_about_that_monitor() {
    let mut w = Way::new();
    let addr = |n: u8| base::AddrVec::from(base::EntityAddr::msgr2(([127, 0, 0, n], 3300).into(), 0));
    let b = cluster::MonInfo { public_addrs: addr(7), ..w.c.core.state().monmap.mons["a"].clone() };
    w.c.core.pretend(|s| drop(s.monmap.mons.insert("b".into(), b)));
    w.c.core.pretend(|s| s.monmap.ranks.push("b".into()));
    w.import("client.x", &key(1), "allow *");
    let conn = w.come("client.x", "allow *", Some(&key(1))).unwrap();
    let status = |w: &mut Way, conn| -> serde_json::Value {
        let (rc, rs, out) = w.c.tell(conn, &json!({ "prefix": "mon_status", "format": "json" }));
        assert_eq!(rc, 0, "{rs}");
        serde_json::from_str(&out).unwrap()
    };
    // Addresses of no known monitor are ignored.
    w.c.core.relayed_by(conn, &addr(9), w.c.now.mono);
    assert_eq!(status(&mut w, conn)["name"], "a");
    let opened = w.c.now;
    w.c.pass(std::time::Duration::from_secs(5));
    w.c.tell(conn, &json!({ "prefix": "mon_status" }));
    w.c.core.relayed_by(conn, &addr(7), opened.mono);
    let s = status(&mut w, conn);
    assert_eq!((&s["name"], &s["rank"], &s["state"]), (&json!("b"), &json!(1), &json!("peon")));
    let sessions = |w: &mut Way, conn| {
        let (_, _, out) = w.c.tell(conn, &json!({ "prefix": "sessions", "format": "json" }));
        serde_json::from_str::<Vec<serde_json::Value>>(&out).unwrap()
    };
    let of_b = sessions(&mut w, conn);
    assert!(of_b.len() == 1 && of_b[0]["entity_name"] == "client.x", "{of_b:?}");
    assert_eq!(of_b[0]["since"], opened.wall.iso(), "the time at the front monitor");
    let admin = w.admin;
    let of_a = sessions(&mut w, admin);
    assert!(!of_a.is_empty() && of_a.iter().all(|s| s["entity_name"] != "client.x"), "{of_a:?}");
}

/// A client without the right to `tell` a front monitor is passed on, and refused here.
#[test]
fn a_tell_that_a_front_monitor_passes_on_is_refused_and_audited() {
    let mut w = Way::new();
    let addrs = base::AddrVec::from(base::EntityAddr::msgr2(([127, 0, 0, 7], 3300).into(), 0));
    let b = cluster::MonInfo { public_addrs: addrs.clone(), ..w.c.core.state().monmap.mons["a"].clone() };
    w.c.core.pretend(|s| drop(s.monmap.mons.insert("b".into(), b)));
    w.import("client.x", &key(1), "allow r");
    let x = w.come("client.x", "allow r", Some(&key(1))).unwrap();
    w.c.core.relayed_by(x, &addrs, w.c.now.mono);
    let set = json!({ "prefix": "config set", "var": "debug_ms", "val": ["5"] });
    assert_eq!(w.c.tell(x, &set), (errno::EACCES, "access denied".into(), String::new()));
    w.c.ticks(1);
    let kept = |e: &str| e.contains("entity='client.x'") && e.contains("config set") && e.ends_with(": access denied");
    let log = w.c.core.state().log.entries();
    assert!(log.iter().any(|(_, e)| e.channel == "audit" && kept(&e.msg.0)), "{log:?}");

    // The front monitor does not know the new caps yet, so it relays the command. The leader must not apply it to its
    // own options.
    let admin = w.admin;
    w.c.ok(admin, &json!({ "prefix": "auth caps", "entity": "client.x", "caps": ["mon", "allow *"] }));
    let x = w.come("client.x", "allow r", Some(&key(1))).unwrap();
    w.c.core.relayed_by(x, &addrs, w.c.now.mono);
    let before = w.c.core.state().options.settings.given("debug_ms").map(str::to_owned);
    for tell in [
        set.clone(),
        json!({ "prefix": "config get", "var": "debug_ms" }),
        json!({ "prefix": "config unset", "var": "debug_ms" }),
        json!({ "prefix": "config show" }),
        json!({ "prefix": "config diff get", "var": "debug_ms" }),
        json!({ "prefix": "config diff" }),
        json!({ "prefix": "injectargs", "injected_args": ["--debug_ms=5"] }),
    ] {
        let (rc, rs, _) = w.c.tell(x, &tell);
        assert!(rc == errno::EAGAIN && rs.contains("mon.b"), "{tell}: {rc} {rs}");
    }
    assert_eq!(w.c.core.state().options.settings.given("debug_ms").map(str::to_owned), before);
    assert_eq!(w.c.tell(admin, &set).0, 0, "who is here is served here");
    let (rc, rs, out) = w.c.tell(admin, &json!({ "prefix": "config show" }));
    assert!(rc == 0 && out.contains("debug_ms"), "of two commands of that name the one for processes: {rc} {rs}");
}
