//! Clients that were connected when the monitors' state was lost, and daemons that come with a wrong key.
//!
//! The handshakes are the real ones of client and server.

mod support;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use auth::{AuthError, AuthHost, Client, ConMode, CryptoKey, KeyKind, Method};
use base::{AuthName, EntityKind, Utime};
use cluster::OsdMap;
use mon::core::MonAuthHost;
use mon::core::start::advance;
use mon::state::lost_tickets;
use serde_json::json;
use state::{Op, Txn, Write};
use support::*;

fn key(n: u8) -> CryptoKey {
    CryptoKey::new(KeyKind::Aes, Utime::default(), &[n; 16]).unwrap()
}

fn client(name: &str, n: u8) -> Client {
    Client::cephx(AuthName::parse(name).unwrap(), key(n))
}

/// A cluster whose administrator has made keys, each number one, of these entities.
fn cluster(names: &[&str]) -> Cluster {
    let mut c = Cluster::new();
    let admin = c.admin();
    let ring = |n: &&str| format!("[{n}]\n\tkey = {}\n\tcaps mon = \"allow r\"\n", key(1).to_base64());
    let text: String = names.iter().map(ring).collect();
    assert_eq!(c.command(admin, &json!({ "prefix": "auth import" }), &text).0, 0);
    c
}

/// Authenticates at the monitor, and returns the global id.
fn signs_in(c: &mut Cluster, client: &mut Client) -> Result<u64, AuthError> {
    let (random, now) = (TestRandom::new(c.now.mono.0), c.now.wall);
    let (mut ours, mut theirs) = (auth::client::Handshake::new(EntityKind::MON), auth::server::Handshake::new());
    let request = ours.request(client, &random)?;
    let mut answer = |h: &dyn AuthHost| {
        let auth::server::Step::More(challenge) = theirs.request(h, &random, now, Method::CEPHX, &request)? else {
            panic!("no challenge")
        };
        let proof = ours.more(client, &random, &challenge)?;
        let auth::server::Step::Done(granted) = theirs.more(h, &random, now, ConMode::CRC, &proof)? else {
            panic!("one round")
        };
        ours.done(client, now, granted.global_id, ConMode::CRC, &granted.reply)?;
        Ok(granted.global_id)
    };
    let spare = Cluster::new();
    let old = std::mem::replace(c, spare);
    let core = Rc::new(RefCell::new(old.core));
    let host = MonAuthHost::new(Rc::clone(&core), EntityKind::MON);
    let done = answer(&host);
    drop(host);
    let core = Rc::into_inner(core).expect("last owner").into_inner();
    *c = Cluster { core, ..old };
    done
}

/// Starts the monitor again with the state as `state rebuild` makes it: without the keys of tickets, and with an OSD map
/// of a later epoch.
fn rebuild(c: &mut Cluster) {
    let ids = ["auth/global-id", "auth/service-keys"].map(|k| Write::Delete(k.into()));
    let map: OsdMap = c.map().clone();
    let made = advance::advance(&map, 0, advance::ADVANCE, c.now.wall).unwrap();
    for then in [vec![ids.to_vec()], made.parts].concat() {
        ask(&mut c.store, Op::Txn(Txn { compare: Vec::new(), then }));
    }
    // Keys are random, and this random source depends on the time.
    c.pass(Duration::from_secs(1));
    c.restart();
}

fn health(c: &mut Cluster) -> String {
    let admin = c.admin();
    c.ok(admin, &json!({ "prefix": "health", "detail": "detail" }))
}

#[test]
fn a_client_keeps_its_id_for_a_day_without_the_ticket_that_was_lost() {
    let mut c = cluster(&["client.x", "client.y"]);
    let (mut x, mut y) = (client("client.x", 1), client("client.y", 1));
    // As one that has tickets for all services.
    x.set_want(0);
    let (of_x, of_y) = (signs_in(&mut c, &mut x).unwrap(), signs_in(&mut c, &mut y).unwrap());
    assert!(!health(&mut c).contains("MON_TICKETS_LOST"));
    rebuild(&mut c);
    assert!(health(&mut c).contains("MON_TICKETS_LOST"));

    // Its own key is needed all the same.
    let mut stranger = client("client.x", 2);
    stranger.set_ticket(EntityKind::AUTH, of_x, x.ticket(EntityKind::AUTH).unwrap().clone());
    assert_eq!(signs_in(&mut c, &mut stranger), Err(AuthError::BadProof(AuthName::parse("client.x").unwrap())));
    assert!(x.ticket(EntityKind::OSD).is_none());
    assert_eq!(signs_in(&mut c, &mut x), Ok(of_x));
    assert!(x.ticket(EntityKind::OSD).is_some(), "its tickets for services open no more");
    // Another client takes no id of one that is here.
    c.open(peer("client.x", EntityKind::CLIENT, of_x, "allow r"));
    let mut thief = client("client.y", 1);
    thief.set_ticket(EntityKind::AUTH, of_x, x.ticket(EntityKind::AUTH).unwrap().clone());
    assert!(matches!(signs_in(&mut c, &mut thief), Err(AuthError::InsecureReclaim { .. })));
    // New ids are none of before.
    let fresh = signs_in(&mut c, &mut client("client.y", 1)).unwrap();
    assert!(fresh > of_x.max(of_y) + 1_000_000, "{fresh}");

    c.pass(lost_tickets::LIFE + Duration::from_secs(1));
    assert!(!health(&mut c).contains("MON_TICKETS_LOST"));
    assert!(matches!(signs_in(&mut c, &mut y), Err(AuthError::InsecureReclaim { .. })), "the day is over");
    // The ticket of the new state opens.
    assert_eq!(signs_in(&mut c, &mut x), Ok(of_x));
}

#[test]
fn a_daemon_with_a_wrong_key_is_in_health_until_it_authenticates() {
    let mut c = cluster(&["osd.3", "client.x"]);
    for name in ["osd.3", "client.x", "osd.99"] {
        for _ in 0..3 {
            signs_in(&mut c, &mut client(name, 2)).unwrap_err();
        }
    }
    c.ticks(1);
    let text = health(&mut c);
    assert!(text.contains("1 daemons come with a wrong key") && text.contains("osd.3 came 3 times"), "{text}");
    signs_in(&mut c, &mut client("osd.3", 1)).unwrap();
    assert!(health(&mut c).contains("DAEMON_KEY_REFUSED"), "its session has not opened");
    c.open(peer("osd.3", EntityKind::OSD, 9, "allow r"));
    assert!(!health(&mut c).contains("DAEMON_KEY_REFUSED"));
}
