//! Does every failed authentication end with a typed reason and Ceph's errno, and is a used handshake useless?

mod support;

use auth::{AuthError, Client, ConMode, CryptoKey, KeyKind, Method};
use base::EntityKind;
use base::errno;
use msgr::{Error, Event, Policy};
use std::cell::RefCell;
use std::rc::Rc;
use support::*;

fn refused(p: &mut Pair) -> (AuthError, i32) {
    let seen = p.drive();
    assert!(!p.client.is_open() && !p.server.is_open());
    let why = seen.server.into_iter().find_map(|e| match e {
        Event::AuthFailed(e) => Some(e),
        _ => None,
    });
    let e = seen.client_error.expect("the client learns of it");
    assert!(e.is_auth(), "{e}");
    (why.expect("the server says why"), e.errno())
}

fn to(cluster: &Cluster, client: Rc<RefCell<Client>>) -> Pair {
    let c = client_config(client, Policy::lossy_client(MODES.to_vec()));
    Pair::new(c, server_config(cluster, Policy::lossy_server(MODES.to_vec())))
}

#[test]
fn wrong_key_and_unknown_entity() {
    for kind in [KeyKind::Aes, KeyKind::Aes256K] {
        let cluster = Cluster::new(Method::CEPHX, kind);
        let other = CryptoKey::generate(kind, NOW.wall, &*Seeded::new(9));
        let c = Rc::new(RefCell::new(Client::cephx(name("client.admin"), other.clone())));
        assert_eq!(refused(&mut to(&cluster, c)), (AuthError::BadProof(name("client.admin")), errno::EACCES));
        let c = Rc::new(RefCell::new(Client::cephx(name("client.nobody"), other)));
        assert_eq!(refused(&mut to(&cluster, c)), (AuthError::UnknownEntity(name("client.nobody")), errno::EACCES));
    }
}

/// With a pending key, both keys authenticate; only the use of the pending one is reported to the host.
#[test]
fn a_pending_key_signs_in_and_is_noted() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let new = CryptoKey::generate(KeyKind::Aes, NOW.wall, &*Seeded::new(10));
    let other = CryptoKey::generate(KeyKind::Aes, NOW.wall, &*Seeded::new(11));
    cluster.entities.borrow_mut().get_mut(&name("client.x")).unwrap().pending_key = Some(new.clone());
    let with = |k: &CryptoKey| Rc::new(RefCell::new(Client::cephx(name("client.x"), k.clone())));
    let opens = |k: &CryptoKey| {
        let mut p = to(&cluster, with(k));
        p.drive();
        p.client.is_open() && p.server.is_open()
    };
    assert!(opens(&cluster.key("client.x")));
    assert!(cluster.used.borrow().is_empty());
    assert!(opens(&new));
    assert_eq!(*cluster.used.borrow(), [(name("client.x"), new)]);
    assert_eq!(refused(&mut to(&cluster, with(&other))), (AuthError::BadProof(name("client.x")), errno::EACCES));
}

#[test]
fn method_and_mode_not_allowed() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let none = Rc::new(RefCell::new(Client::none(name("client.admin"))));
    assert_eq!(refused(&mut to(&cluster, none)), (AuthError::MethodNotAllowed(1), errno::EOPNOTSUPP));
    let c = client_config(cluster.client("client.x"), Policy::lossy_client(vec![ConMode::SECURE]));
    let mut p = Pair::new(c, server_config(&cluster, Policy::lossy_server(vec![ConMode::CRC])));
    let (why, errno) = refused(&mut p);
    assert_eq!(errno, errno::EOPNOTSUPP);
    let said = why.to_string();
    assert!(said.contains("offers secure, ms_service_mode here allows crc"), "{said}");
}

#[test]
fn a_service_refuses_bad_tickets() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let osd = cluster.at(EntityKind::OSD);
    // Without a ticket the client itself reports the error.
    let seen = to(&osd, cluster.client("client.x")).drive();
    assert_eq!(seen.client_error, Some(Error::Auth(AuthError::NoTicket(EntityKind::OSD))));

    let client = cluster.client("client.x");
    to(&cluster, client.clone()).open();
    let mut p = to(&osd, client.clone());
    p.now = later(3601);
    let (why, errno) = refused(&mut p);
    assert_eq!(
        (&why, errno),
        (&AuthError::ExpiredTicket { name: name("client.x"), over: 1, age: 3601 }, errno::EACCES)
    );
    assert!(why.to_string().contains("clocks"), "{why}");

    // Three secrets, two of them sealed tickets. After a wipe numbers continue, so the old ones are known to be older.
    cluster.keys.borrow_mut().wipe();
    let unknown = |current| AuthError::UnknownSecret { service: EntityKind::OSD, id: 2, current };
    let (why, errno) = refused(&mut to(&osd, client.clone()));
    assert_eq!((&why, errno), (&unknown(None), errno::EACCES));
    assert!(why.to_string().contains("has not fetched"), "{why}");
    tick(&cluster, NOW, 5);
    let (why, _) = refused(&mut to(&osd, client));
    assert_eq!(why, unknown(Some(5)));
    assert!(why.to_string().contains("older than those kept"), "{why}");
}

fn tick(cluster: &Cluster, now: base::Now, seed: u64) {
    let (auth, service) = (auth::server::AUTH_TICKET_TTL, auth::server::SERVICE_TICKET_TTL);
    cluster.keys.borrow_mut().tick(now.wall, auth, service, KeyKind::Aes, &*Seeded::new(seed));
}

/// The reason that a daemon logs when it refuses a ticket, and the error that the client gets.
#[test]
fn refusals_name_a_ticket_of_another_time_or_cluster() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let osd = cluster.at(EntityKind::OSD);
    let client = cluster.client("client.x");
    to(&cluster, client.clone()).open();
    // This daemon's clock lags the monitors' by more than a ticket's life; half of that is accepted, as in Ceph.
    let mut p = to(&osd, client.clone());
    p.now = before(1800);
    p.open();
    let mut p = to(&osd, client.clone());
    p.now = before(3601);
    let (why, errno) = refused(&mut p);
    assert_eq!((&why, errno), (&AuthError::NotYetValid { name: name("client.x"), ahead: 3601 }, errno::EACCES));
    assert!(why.to_string().contains("behind theirs by that"), "{why}");
    // A daemon that could not fetch secrets for long, because its clock stands still or the monitors are unreachable.
    let stale = Cluster { keys: Rc::new(RefCell::new(cluster.keys.borrow().clone())), ..osd.clone() };
    for hours in 1..4 {
        tick(&cluster, later(hours * 3600), u64::from(hours));
    }
    let holder = cluster.client("client.admin");
    let mut late = to(&cluster, holder.clone());
    late.now = later(3 * 3600);
    late.open();
    let mut p = to(&stale, holder);
    p.now = later(10);
    let (why, _) = refused(&mut p);
    assert!(matches!(why, AuthError::UnknownSecret { id: 4, current: Some(2), .. }), "{why:?}");
    assert!(why.to_string().contains("clock is behind theirs"), "{why}");
    // A ticket of another cluster, whose secrets have the same numbers.
    let other = Cluster::new(Method::CEPHX, KeyKind::Aes);
    other.keys.borrow_mut().wipe();
    let fresh = auth::ServiceKeys::default();
    *other.keys.borrow_mut() = fresh;
    tick(&other, NOW, 99);
    let (why, errno) = refused(&mut to(&other.at(EntityKind::OSD), client.clone()));
    assert_eq!((&why, errno), (&AuthError::ForeignTicket { service: EntityKind::OSD, id: 2 }, errno::EACCES));
    assert!(why.to_string().contains("another cluster"), "{why}");
    // The server sends only an errno; the client explains it by what it tried.
    let heard = to(&other.at(EntityKind::OSD), client).drive().client_error.unwrap().to_string();
    assert!(heard.contains("a ticket that has expired, is not valid yet") && !heard.contains("wrong key"), "{heard}");
    let guess = CryptoKey::generate(KeyKind::Aes, NOW.wall, &*Seeded::new(9));
    let guess = Rc::new(RefCell::new(Client::cephx(name("client.x"), guess)));
    let heard = to(&cluster, guess).drive().client_error.unwrap().to_string();
    assert!(heard.contains("wrong key, unknown name") && heard.contains("another cluster"), "{heard}");
}

/// An entity whose key was removed keeps its monitor ticket for days: it cannot renew it on another entity's session.
#[test]
fn a_ticket_is_renewed_on_its_own_session_only() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let rnd = Seeded::new(3);
    let victim = cluster.client("client.admin");
    to(&cluster, victim.clone()).open();
    let q = victim.borrow().renewal_request(4, &*rnd).unwrap();
    let e = auth::server::handle_renewal(&cluster, &*rnd, NOW.wall, &name("client.x"), &q).unwrap_err();
    assert_eq!(e, AuthError::AnothersTicket { session: name("client.x"), name: name("client.admin") });
    assert_eq!(e.errno(), errno::EACCES);
    assert!(auth::server::handle_renewal(&cluster, &*rnd, NOW.wall, &name("client.admin"), &q).is_ok());
}

#[test]
fn a_ticket_for_one_service_is_refused_by_another() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let client = cluster.client("client.x");
    to(&cluster, client.clone()).open();
    // A daemon of another type at an OSD's address: the HELLO reveals it.
    let c = client_config(client, Policy::lossy_client(MODES.to_vec()));
    let mut p = Pair::new(c, server_config(&cluster.at(EntityKind::MGR), Policy::lossy_server(MODES.to_vec())));
    p.client = msgr::Connection::client(
        client_config(cluster.client("client.x"), Policy::lossy_client(MODES.to_vec())),
        EntityKind::OSD,
        server_addr(),
        server_addr().sock.unwrap(),
    );
    let seen = p.drive();
    assert_eq!(seen.client_error, Some(Error::WrongPeer { want: EntityKind::OSD, got: EntityKind::MGR }));
}

#[test]
fn a_recorded_authorizer_fails_the_challenge() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let client = cluster.client("client.x");
    to(&cluster, client.clone()).open();
    let osd = cluster.at(EntityKind::OSD);
    let mut recorded = Vec::new();
    let mut p = to(&osd, client.clone());
    p.drive_with(|up, b| {
        if up {
            recorded.push(b.clone());
        }
        b
    });
    assert!(p.server.is_open());
    // The same bytes against a server with another challenge.
    let cfg = config(EntityKind::OSD, server_addr().into(), Policy::lossy_server(MODES.to_vec()), Some(&osd), None, 55);
    let mut server = msgr::Connection::server(cfg, peer_socket());
    let mut why = None;
    for b in recorded {
        server.feed(b.into());
        match events(&mut server, NOW) {
            Ok(all) => why = why.or(all.into_iter().find(|e| matches!(e, Event::AuthFailed(_)))),
            Err(e) => {
                assert!(!server.is_open(), "{e}");
                break;
            }
        }
    }
    assert!(matches!(why, Some(Event::AuthFailed(AuthError::BadChallenge))), "{why:?}");
    assert!(!server.is_open());
}

#[test]
fn a_global_id_is_reclaimed_only_with_its_ticket() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let client = cluster.client("client.x");
    to(&cluster, client.clone()).open();
    assert_eq!(client.borrow().global_id(), 4101);
    // Again with the ticket: same id, and the new ticket came wrapped under the old session key.
    to(&cluster, client.clone()).open();
    assert_eq!(client.borrow().global_id(), 4101);
    assert!(client.borrow().ticket(EntityKind::AUTH).is_some());

    // Another entity with a valid ticket of its own requests that id.
    let thief = cluster.client("client.admin");
    to(&cluster, thief.clone()).open();
    let held = thief.borrow().ticket(EntityKind::AUTH).unwrap().clone();
    thief.borrow_mut().set_ticket(EntityKind::AUTH, 4101, held);
    let (why, errno) = refused(&mut to(&cluster, thief));
    assert_eq!(why, AuthError::InsecureReclaim { name: name("client.admin"), global_id: 4101 });
    assert_eq!(errno, errno::EACCES);

    // After the client forgot everything it gets a new id.
    client.borrow_mut().forget();
    to(&cluster, client.clone()).open();
    assert_eq!(client.borrow().global_id(), 4103);
}

#[test]
fn tickets_and_rotating_secrets_are_renewed_on_the_session() {
    for kind in [KeyKind::Aes, KeyKind::Aes256K] {
        let cluster = Cluster::new(Method::CEPHX, kind);
        let rnd = Seeded::new(3);
        let osd = cluster.client("osd.3");
        to(&cluster, osd.clone()).open();
        let mut osd = osd.borrow_mut();
        assert_eq!(osd.due(NOW.wall), 0);
        let t = later(2800).wall;
        let due = osd.due(t);
        assert_eq!(due, 1 | 4 | 0x10);
        let before = osd.ticket(EntityKind::MGR).unwrap().clone();
        let q = osd.renewal_request(due, &*rnd).unwrap();
        let a = auth::server::handle_renewal(&cluster, &*rnd, t, &name("osd.3"), &q).unwrap();
        assert_eq!(osd.handle_reply(t, &a), Ok(None));
        assert_ne!(*osd.ticket(EntityKind::MGR).unwrap(), before);
        assert_eq!(osd.due(t), 0);

        let q = osd.rotating_request();
        let a = auth::server::handle_renewal(&cluster, &*rnd, t, &name("osd.3"), &q).unwrap();
        let keys = osd.handle_reply(t, &a).unwrap().unwrap();
        assert_eq!(Some(&keys), cluster.keys.borrow().get(EntityKind::OSD));
        // A client is no service and has no rotating secrets.
        let e = auth::server::handle_renewal(&cluster, &*rnd, t, &name("client.x"), &q).unwrap_err();
        assert_eq!(e.errno(), errno::EACCES);
        // Altered bytes of a request are rejected where the cipher detects them; type 1 has no integrity check.
        if kind == KeyKind::Aes {
            continue;
        }
        let q = osd.renewal_request(4, &*rnd).unwrap();
        for i in 0..q.len() - 5 {
            let mut bad = q.to_vec();
            bad[i] ^= 0x10;
            // The version byte of the ticket's envelope is ignored.
            let r = auth::server::handle_renewal(&cluster, &*rnd, t, &name("osd.3"), &bad);
            assert!(r.is_err() || i == 15, "byte {i} is not protected");
        }
    }
}

#[test]
fn altering_the_offer_on_the_way_breaks_the_signature() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let mut p = to(&cluster, cluster.client("client.x"));
    let seen = p.drive_with(|up, mut b| {
        // AUTH_REQUEST (tag 2): swap the offered modes [2, 1] to [1, 2], with a right checksum.
        let mut at = if b.starts_with(b"ceph v2\n") { 26 } else { 0 };
        while up && at + 32 <= b.len() {
            let len = u32::from_le_bytes(b[at + 2..at + 6].try_into().unwrap()) as usize;
            if b[at] == 2 {
                let seg = at + 32;
                b[seg + 8] = 1;
                b[seg + 12] = 2;
                let crc = base::crc::crc32c(!0, &b[seg..seg + len]);
                b[seg + len..seg + len + 4].copy_from_slice(&crc.to_le_bytes());
            }
            if b[at] > 5 {
                break;
            }
            at += 32 + len + 4;
        }
        b
    });
    assert!(seen.server_error == Some(Error::BadSignature) || seen.client_error == Some(Error::BadSignature));
    assert!(!p.server.is_open() && !p.client.is_open());
}

#[test]
fn guessing_keys_ends_after_a_few_attempts() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let mut p = to(&cluster, cluster.client("client.x"));
    let mut req = Vec::new();
    p.drive_with(|up, b| {
        if up && req.len() < 2 {
            req.push(b.clone());
        }
        b
    });
    let mut server =
        msgr::Connection::server(server_config(&cluster, Policy::lossy_server(MODES.to_vec())), peer_socket());
    for b in req {
        server.feed(b.into());
        events(&mut server, NOW).unwrap();
    }
    let mut tx = msgr::tx::Tx::new(msgr::BufPool::default());
    for _ in 0..20 {
        tx.control(msgr::frame::Tag::AuthRequest, |w| {
            w.u32(2);
            w.put(&vec![1u32]);
            w.blob(b"\x0bnonsense");
        })
        .unwrap();
    }
    let mut s = [std::io::IoSlice::new(&[]); 8];
    let n = tx.slices(&mut s);
    server.feed(s[..n].iter().flat_map(|x| x.to_vec()).collect::<Vec<u8>>().into());
    let mut failures = 0;
    let end = loop {
        match server.poll_event(NOW) {
            Ok(Some(Event::AuthFailed(_))) => failures += 1,
            Ok(other) => panic!("{other:?}"),
            Err(e) => break e,
        }
    };
    assert_eq!(end, Error::TooManyAuthAttempts);
    assert!(failures < 10);
}

/// A client's key opens no daemon session, whatever HELLO says. A daemon's key used as a client opens a client session.
#[test]
fn a_claim_in_hello_gives_no_rights() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let as_kind = |kind: EntityKind, n: &str| {
        let me = base::EntityAddr { nonce: 5, ..server_addr() };
        let policy = Policy::lossy_client(MODES.to_vec());
        let c = config(kind, me.into(), policy, None, Some(cluster.client(n)), 2);
        Pair::new(c, server_config(&cluster, Policy::lossy_server(MODES.to_vec())))
    };
    for kind in [EntityKind::OSD, EntityKind::MON, EntityKind::MGR, EntityKind::MDS] {
        let (why, errno) = refused(&mut as_kind(kind, "client.admin"));
        assert_eq!((why, errno), (AuthError::WrongClaim { claimed: kind, name: name("client.admin") }, errno::EACCES));
    }
    let mut p = as_kind(EntityKind::CLIENT, "osd.3");
    p.open();
    assert_eq!((p.server.peer().principal.kind, p.server.peer().principal.osd()), (EntityKind::CLIENT, None));
    let mut p = as_kind(EntityKind::OSD, "osd.3");
    p.open();
    let who = &p.server.peer().principal;
    assert_eq!((who.osd(), who.socket, who.global_id), (Some(base::OsdId(3)), peer_socket(), 4106));
    assert_eq!(who.expires, NOW.wall.plus(auth::server::AUTH_TICKET_TTL));
}

/// Each of these requests is answered with a challenge, so none fails; their number is limited all the same.
#[test]
fn asking_for_challenges_without_end_ends() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    for pad in [0, 16_000] {
        let mut p = to(&cluster, cluster.client("client.x"));
        let mut first = Vec::new();
        p.drive_with(|up, b| {
            if up && first.len() < 2 {
                first.push(b.clone());
            }
            b
        });
        // Banner and HELLO, then one request again and again.
        let mut server =
            msgr::Connection::server(server_config(&cluster, Policy::lossy_server(MODES.to_vec())), peer_socket());
        for b in first {
            server.feed(b.into());
            events(&mut server, NOW).unwrap();
        }
        let mut asked = 0;
        let end = loop {
            let mut tx = msgr::tx::Tx::new(msgr::BufPool::default());
            tx.control(msgr::frame::Tag::AuthRequest, |w| {
                w.u32(2);
                w.put(&vec![1u32]);
                let mut inner = wire::Writer::default();
                inner.u8(10);
                inner.put(&name("client.x"));
                inner.u64(0);
                inner.raw(&vec![0; pad]);
                w.blob(inner.as_slice());
            })
            .unwrap();
            let mut s = [std::io::IoSlice::new(&[]); 8];
            let n = tx.slices(&mut s);
            server.feed(s[..n].iter().flat_map(|x| x.to_vec()).collect::<Vec<u8>>().into());
            if let Err(e) = events(&mut server, NOW) {
                break e;
            }
            output(&mut server);
            asked += 1;
            assert!(asked < 100, "no end");
        };
        let bytes = matches!(end, Error::TooMuchBeforeAuth(_));
        assert!(if pad == 0 { end == Error::TooManyAuthAttempts } else { bytes }, "{end}");
    }
}

/// A ticket opens a service twice; the second time the service answers as it did before.
#[test]
fn a_recorded_service_does_not_count_as_genuine() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes);
    let client = cluster.client("client.x");
    to(&cluster, client.clone()).open();
    let osd = cluster.at(EntityKind::OSD);
    let mut recorded = Vec::new();
    let mut p = to(&osd, client.clone());
    p.drive_with(|up, b| {
        if !up {
            recorded.push(b.clone());
        }
        b
    });
    assert!(p.client.is_open());
    // A client with other random numbers gets the same bytes.
    let me = base::EntityAddr { nonce: 5, ..server_addr() };
    let c = config(EntityKind::CLIENT, me.into(), Policy::lossy_client(MODES.to_vec()), None, Some(client), 56);
    let mut p = Pair::new(c, server_config(&osd, Policy::lossy_server(MODES.to_vec())));
    let mut why = None;
    for b in recorded {
        output(&mut p.client);
        input(&mut p.client, b.into());
        if let Err(e) = events(&mut p.client, NOW) {
            why = Some(e);
            break;
        }
    }
    assert_eq!(why, Some(Error::Auth(AuthError::BadNonce)));
    assert!(!p.client.is_open());
}

#[test]
fn a_reply_under_another_key_changes_no_ticket() {
    let cluster = Cluster::new(Method::CEPHX, KeyKind::Aes256K);
    let rnd = Seeded::new(3);
    let [a, b] = ["osd.3", "client.x"].map(|n| cluster.client(n));
    // Other random numbers give other session keys.
    for (client, seed) in [(&a, 55), (&b, 56)] {
        let policy = Policy::lossy_server(MODES.to_vec());
        let server = config(EntityKind::MON, server_addr().into(), policy, Some(&cluster), None, seed);
        Pair::new(client_config(client.clone(), Policy::lossy_client(MODES.to_vec())), server).open();
    }
    let t = later(2800).wall;
    let mut a = a.borrow_mut();
    let services = a.due(t);
    let q = a.renewal_request(services, &*rnd).unwrap();
    let reply = auth::server::handle_renewal(&cluster, &*rnd, t, &name("osd.3"), &q).unwrap();
    let tickets = |c: &Client| {
        [EntityKind::MON, EntityKind::OSD, EntityKind::MGR, EntityKind::AUTH].map(|k| c.ticket(k).cloned())
    };
    let mut b = b.borrow_mut();
    let before = tickets(&b);
    assert!(before.iter().all(Option::is_some), "{before:?}");
    let taken = b.handle_reply(t, &reply);
    assert!(taken.is_err(), "{taken:?}");
    assert_eq!(tickets(&b), before);
    assert_eq!(a.handle_reply(t, &reply), Ok(None));
}
