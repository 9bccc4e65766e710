//! Does the manager role of a whole daemon name its clients in the manager map, keep those of its predecessor from the
//! OSDs, and take a new key of its entity?

mod daemon;

use std::time::Duration;

use base::{AuthName, EntityAddr};
use bytes::Bytes;
use client::host::{Client, Options};
use daemon::{fsid, new_cluster};
use mon::host::mkfs::mkfs;
use mon::host::{MonRunOptions, run};
use serde_json::{Value, json};
use testkit::{TempDir, free_port};

/// Runs a daemon, and `f` with a client of the administrator beside it.
fn with_daemon<F: Future<Output = ()> + 'static>(o: &MonRunOptions, admin: &Options, f: impl FnOnce(Client) -> F) {
    let (o, admin) = (o.clone(), admin.clone());
    reactor::run_here(|cx, stopper| async move {
        let asks = async {
            let c = Client::connect(admin).await.unwrap();
            f(c).await;
            stopper.stop();
        };
        let (ran, ()) = tokio::join!(run(cx, o), asks);
        ran.unwrap();
    })
    .unwrap();
}

async fn ask(c: &Client, cmd: Value) -> Value {
    let r = c.mon_command(&cmd.to_string(), Bytes::new()).await.unwrap();
    assert_eq!(r.rc, 0, "{cmd}: {}", r.status);
    serde_json::from_slice(&r.out).unwrap_or(Value::Null)
}

/// Addresses, with their nonces, that the manager map names; waits for some.
async fn named(c: &Client) -> Vec<String> {
    loop {
        let dump = ask(c, json!({ "prefix": "mgr dump", "format": "json" })).await;
        let one = |j: &Value| format!("{}/{}", j["addrvec"][0]["addr"].as_str().unwrap(), j["addrvec"][0]["nonce"]);
        let all: Vec<String> = dump["active_clients"].as_array().unwrap().iter().map(one).collect();
        if !all.is_empty() {
            return all;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Addresses of sessions of `mgr.x`, with their nonces.
async fn sessions(c: &Client, mon: EntityAddr) -> Vec<String> {
    let r = c.tell(base::EntityKind::MON, mon, r#"{"prefix":"sessions"}"#).await.unwrap();
    let all: Value = serde_json::from_slice(&r.out).unwrap();
    let of_manager = |j: &&Value| j["entity_name"] == "mgr.x";
    let addr = |j: &Value| {
        let a = &j["addrs"]["addrvec"][0];
        format!("{}/{}", a["addr"].as_str().unwrap(), a["nonce"])
    };
    all.as_array().unwrap().iter().filter(of_manager).map(addr).collect()
}

#[test]
fn clients_are_named_fenced_and_take_a_new_key() {
    let dir = TempDir::new("mon-clients");
    let (addr, data_dir) = (free_port(), dir.join("mon.a"));
    let at = EntityAddr::msgr2(addr, 0);
    // The monitor's name is not that of the manager's entity, as in most clusters.
    let entities = mkfs(&new_cluster(addr, &data_dir)).unwrap();
    let name = AuthName::parse("client.admin").unwrap();
    let key = Some(entities[&name].key.clone());
    let (timeout, modes) = (Duration::from_secs(60), net::modes::Modes::default());
    let admin = Options { mons: vec![at], name, key, fsid: Some(fsid()), timeout, modes, mds: false };
    let o = MonRunOptions {
        etcd: None,
        name: "a".into(),
        data_dir,
        bind: None,
        mgr_bind: Some(free_port()),
        admin_socket: None,
        config: [].into(),
    };
    let (tx, rx) = std::sync::mpsc::channel();
    with_daemon(&o, &admin, |c| async move {
        let first = named(&c).await;
        assert_eq!(first.len(), 1);
        assert_eq!(sessions(&c, at).await, first, "the address of its session, which OSDs see as well");
        // The same client signs in with the new key.
        ask(&c, json!({ "prefix": "auth rotate", "entity": "mgr.x" })).await;
        while sessions(&c, at).await != first {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(named(&c).await, first);
        tx.send(first).unwrap();
    });
    let first = rx.recv().unwrap();
    with_daemon(&o, &admin, |c| async move {
        let then = named(&c).await;
        assert!(!then.contains(&first[0]), "another client");
        let blocked = ask(&c, json!({ "prefix": "osd blocklist ls", "format": "json" })).await;
        let blocked: Vec<&str> = blocked.as_array().unwrap().iter().map(|b| b["addr"].as_str().unwrap()).collect();
        assert_eq!(blocked, [&first[0]]);
    });
}
