//! Tests of the relay as a pair: a front monitor with its sessions, and the leader that answers them.
//!
//! `ages` has the tests of which of two sessions is older.

mod ages;

use std::time::Duration;

use super::front::WAITING_MESSAGES;
use super::share::{ALL, ONE, Share};
use super::*;
use base::{AddrVec, EntityName, Mono, Utime};
use wire::msg::MRelayIds;

fn peer() -> Peer {
    let principal = Principal {
        name: AuthName::parse("client.x").unwrap(),
        global_id: 7,
        caps: CapsInfo::from_text("allow r"),
        expires: Utime { sec: 5, nsec: 6 },
        method: Method::CEPHX,
        proved: Some(KeyMark([3; 16])),
        ..Principal::nobody("[::1]:99".parse().unwrap())
    };
    Peer {
        principal,
        entity: EntityName::new(EntityKind::CLIENT, 7),
        addrs: AddrVec::default(),
        features: Features::PACIFIC,
        role: Role::Mon,
    }
}

fn said(n: u16) -> Message {
    let mut m = Message { front: vec![n as u8].into(), data: vec![1; 3].into(), ..Message::default() };
    m.header.kind = n;
    m.header.tid = u64::from(n);
    m
}

fn of_bytes(n: usize) -> Message {
    Message { data: vec![0; n].into(), ..said(9) }
}

/// Carries messages to the leader and its answers back, and returns the leader's effects.
fn carry(f: &mut Front, h: &mut Hub) -> Vec<HubEffect> {
    let mut all = Vec::new();
    loop {
        let to: Vec<FrontEffect> = f.take_effects().into_iter().collect();
        let mut moved = false;
        for e in to {
            match e {
                FrontEffect::ToLeader(m) => {
                    moved = true;
                    match h.message(1, &m, Mono(0)).unwrap() {
                        Some(HubEffect::TakeIds) => h.ids(1, Some((100, 200))),
                        e => all.extend(e),
                    }
                }
                FrontEffect::Ids(100, 200) | FrontEffect::Consumed(..) => {}
                other => panic!("{other:?}"),
            }
        }
        for (_, m) in h.take_out() {
            moved = true;
            f.from_leader(&m).unwrap();
        }
        if !moved {
            return all;
        }
    }
}

fn linked() -> (Front, Hub) {
    let (mut f, mut h) = (Front::default(), Hub::default());
    h.link_open(1);
    f.link_open(Mono(0));
    assert!(carry(&mut f, &mut h).is_empty());
    (f, h)
}

/// Carries messages, and returns the front monitor's effects for clients.
fn for_clients(f: &mut Front, h: &mut Hub) -> Vec<FrontEffect> {
    for (_, m) in h.take_out() {
        f.from_leader(&m).unwrap();
    }
    f.take_effects().into_iter().filter(|e| !matches!(e, FrontEffect::ToLeader(_))).collect()
}

#[test]
fn sessions_wait_for_a_leader_and_are_carried_in_order() {
    let (mut f, mut h) = (Front::default(), Hub::default());
    f.open(5, peer(), Mono(0));
    f.message(5, said(15));
    f.message(5, said(16));
    assert!(f.take_effects().is_empty(), "no leader yet");
    h.link_open(1);
    f.link_open(Mono(0));
    let got = carry(&mut f, &mut h);
    let [HubEffect::Open(k, p, _), HubEffect::Message(k1, m1), HubEffect::Message(k2, m2)] = &got[..] else {
        panic!("{got:?}")
    };
    assert!(k == k1 && k == k2 && Hub::is_relayed(*k));
    assert_eq!(format!("{p:?}"), format!("{:?}", peer()));
    assert_eq!((m1, m2), (&said(15), &said(16)));
    h.send(*k, said(42)).unwrap();
    assert!(matches!(&for_clients(&mut f, &mut h)[..], [FrontEffect::ToClient(5, m)] if *m == said(42)));
    f.closed(5);
    assert!(matches!(&carry(&mut f, &mut h)[..], [HubEffect::Closed(c)] if c == k));
    h.send(*k, said(1)).unwrap();
    assert!(h.take_out().is_empty());
}

#[test]
fn a_lost_link_ends_its_sessions_on_both_sides() {
    let (mut f, mut h) = linked();
    f.open(5, peer(), Mono(0));
    f.open(6, peer(), Mono(0));
    let opened = carry(&mut f, &mut h).len();
    f.link_closed();
    f.open(7, peer(), Mono(0));
    let closed: Vec<ConnKey> = f
        .take_effects()
        .iter()
        .map(|e| if let FrontEffect::CloseClient(c, _) = e { *c } else { panic!("{e:?}") })
        .collect();
    assert_eq!(closed, [5, 6], "the third waits for the next leader");
    assert_eq!((opened, h.link_closed(1).len()), (2, 2));
    assert!(!h.is_link(1));
}

#[test]
fn the_leader_may_end_a_session_and_bounds_hold() {
    let (mut f, mut h) = linked();
    f.open(5, peer(), Mono(0));
    let got = carry(&mut f, &mut h);
    let HubEffect::Open(k, ..) = &got[0] else { panic!() };
    h.close(*k, "no right".into());
    assert!(matches!(&for_clients(&mut f, &mut h)[..], [FrontEffect::CloseClient(5, _)]));
    let mut f = Front::default();
    f.open(5, peer(), Mono(0));
    (0..=WAITING_MESSAGES).for_each(|_| f.message(5, said(1)));
    assert!(matches!(&f.take_effects().make_contiguous()[..], [FrontEffect::CloseClient(5, _)]));
    f.open(6, peer(), Mono(0));
    f.expire(Mono(1), Duration::from_nanos(1));
    assert!(f.take_effects().is_empty());
    f.expire(Mono(2), Duration::from_nanos(1));
    assert!(matches!(&f.take_effects().make_contiguous()[..], [FrontEffect::CloseClient(6, _)]));
}

#[test]
fn only_the_key_of_monitors_makes_a_link() {
    let is = |n: &str| is_monitor(&AuthName::parse(n).unwrap());
    assert!(is("mon."));
    assert!(!is("mon.x") && !is("client.admin") && !is("osd.0"));
}

#[test]
fn a_monitor_of_ceph_is_told_that_it_cannot_join() {
    let mut h = Hub::default();
    h.link_open(1);
    // MSG_MON_PROBE and MSG_MON_ELECTION.
    for kind in [67, 65] {
        let e = h.message(1, &said(kind), Mono(0)).unwrap_err();
        assert!(e.contains("cannot join"), "{e}");
    }
}

#[test]
fn a_bad_opening_ends_its_session_and_not_the_link() {
    let (mut f, mut h) = linked();
    for c in [5, 6, 7, 8] {
        f.open(c, peer(), Mono(0));
    }
    let mut openings: Vec<Message> = f
        .take_effects()
        .into_iter()
        .map(|e| if let FrontEffect::ToLeader(m) = e { m } else { panic!("{e:?}") })
        .collect();
    let odd = |conn, change: fn(&mut MRelayOpen)| {
        let mut x = opening(conn, &peer());
        change(&mut x);
        x.to_message(Features::PACIFIC)
    };
    openings[0] = odd(5, |x| x.socket = "nowhere".into());
    openings[1] = odd(6, |x| x.kind = EntityKind::OSD);
    openings[2].front.truncate(20);
    let opened: Vec<_> = openings.iter().map(|m| h.message(1, m, Mono(0)).unwrap().is_some()).collect();
    assert_eq!(opened, [false, false, false, true]);
    // A second opening with the same number ends that session, too.
    assert!(matches!(h.message(1, &openings[3], Mono(0)).unwrap(), Some(HubEffect::Closed(_))));
    let closed: Vec<ConnKey> = for_clients(&mut f, &mut h)
        .iter()
        .map(|e| if let FrontEffect::CloseClient(c, _) = e { *c } else { panic!("{e:?}") })
        .collect();
    assert_eq!(closed, [5, 6, 7, 8]);
    f.open(9, peer(), Mono(0));
    assert!(matches!(carry(&mut f, &mut h)[..], [HubEffect::Open(..)]), "the link serves others");
}

#[test]
fn a_message_too_long_for_a_link_ends_only_its_session() {
    let (mut f, mut h) = linked();
    f.open(5, peer(), Mono(0));
    f.open(6, peer(), Mono(0));
    carry(&mut f, &mut h);
    // Front and middle each fit a frame of the client, but together exceed the front of one.
    let front = vec![0; msgr::policy::FRONT_BYTES_MAX - 64].into();
    let long = Message { front, middle: vec![0; 128].into(), ..said(9) };
    f.message(5, long.clone());
    let effects: Vec<FrontEffect> = f.take_effects().into_iter().collect();
    let [FrontEffect::ToLeader(m), FrontEffect::CloseClient(5, why)] = &effects[..] else { panic!("{effects:?}") };
    assert!(why.contains("too long"), "{why}");
    assert!(matches!(h.message(1, m, Mono(0)).unwrap(), Some(HubEffect::Closed(_))));
    f.message(6, said(3));
    let got = carry(&mut f, &mut h);
    let [HubEffect::Message(k, _)] = &got[..] else { panic!("{got:?}") };
    assert!(h.send(*k, long).unwrap_err().contains("too long"), "nor does an answer");
    // The longest message that is relayed fits a frame.
    let longest = Message { front: vec![0; CARRIED_MAX].into(), ..said(9) };
    assert!(carried(6, longest).front.len() <= msgr::policy::FRONT_BYTES_MAX);
}

#[test]
fn sessions_share_a_link() {
    let (mut f, mut h) = linked();
    f.open(5, peer(), Mono(0));
    f.open(6, peer(), Mono(0));
    carry(&mut f, &mut h);
    // One session floods; its bytes in flight are bounded, and another session's message goes out at once.
    (0..64).for_each(|_| f.message(5, of_bytes(1 << 20)));
    f.message(6, said(3));
    let sent: Vec<Message> = f
        .take_effects()
        .into_iter()
        .map(|e| if let FrontEffect::ToLeader(m) = e { m } else { panic!("{e:?}") })
        .collect();
    let who: Vec<u64> = sent.iter().map(|m| MRelayMessage::from_message(m).unwrap().conn).collect();
    assert_eq!(who, [5, 6], "the second of the first session would go beyond its share");
    let (mut got, mut consumed) = (0, 0);
    let mut on_the_way = sent;
    for _ in 0..200 {
        for m in std::mem::take(&mut on_the_way) {
            got += usize::from(h.message(1, &m, Mono(0)).unwrap().is_some());
        }
        for (_, m) in h.take_out() {
            f.from_leader(&m).unwrap();
        }
        for e in f.take_effects() {
            match e {
                FrontEffect::ToLeader(m) => on_the_way.push(m),
                FrontEffect::Consumed(5 | 6, n) => consumed += n,
                e => panic!("{e:?}"),
            }
        }
    }
    assert_eq!(got, 65, "all of it arrives");
    assert!(consumed > 63 << 20, "and its client may go on: {consumed}");
}

#[test]
fn answers_share_a_link_too() {
    let (mut f, mut h) = linked();
    f.open(5, peer(), Mono(0));
    f.open(6, peer(), Mono(0));
    let keys: Vec<ConnKey> = carry(&mut f, &mut h)
        .iter()
        .map(|e| if let HubEffect::Open(k, ..) = e { *k } else { panic!("{e:?}") })
        .collect();
    (0..20).for_each(|_| h.send(keys[0], of_bytes(1 << 20)).unwrap());
    h.send(keys[1], said(3)).unwrap();
    let out = h.take_out();
    assert_eq!(out.len(), 2);
    let (mut got, mut on_the_way) = (0, out);
    for _ in 0..100 {
        for (_, m) in std::mem::take(&mut on_the_way) {
            f.from_leader(&m).unwrap();
        }
        for e in f.take_effects() {
            match e {
                FrontEffect::ToLeader(m) => assert!(h.message(1, &m, Mono(0)).unwrap().is_none()),
                FrontEffect::ToClient(5 | 6, _) => got += 1,
                e => panic!("{e:?}"),
            }
        }
        on_the_way = h.take_out();
    }
    assert_eq!(got, 21);
    // A session whose client does not read ends alone.
    let full = (0..400).map(|_| h.send(keys[0], of_bytes(1 << 20))).find_map(Result::err);
    assert!(full.unwrap().contains("does not read"));
    h.send(keys[1], said(4)).unwrap();
}

#[test]
fn a_share_never_has_more_under_way_than_it_may() {
    for seed in 0..200 {
        let mut rng = base::rng::Rng::new(seed);
        let (mut s, mut under_way, mut sent, mut pushed) = (Share::new(true), BTreeMap::<u64, usize>::new(), 0, 0);
        let mut order: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for step in 0..600 {
            let conn = rng.below(20);
            if rng.chance(2, 3) && step < 400 {
                let most = if rng.chance(1, 10) { 4 << 20 } else { 1 << 18 };
                let mut m = of_bytes(rng.below(most) as usize);
                m.header.tid = step;
                pushed += 1;
                s.push(conn, m);
            } else if let Some(n) = under_way.get_mut(&conn) {
                let part = if step > 400 { *n } else { rng.below(*n as u64 + 1) as usize };
                *n -= part;
                assert_eq!(s.taken(conn, part as u64), part);
            }
            while let Some((c, m)) = s.next() {
                let n = under_way.entry(c).or_default();
                assert!(*n == 0 || *n + m.cost() <= ONE);
                *n += m.cost();
                let all: usize = under_way.values().sum();
                assert!(all == m.cost() || all <= ALL, "{all}");
                assert_eq!(all, s.under_way());
                order.entry(c).or_default().push(m.header.tid);
                sent += 1;
            }
        }
        let mut rest: Vec<(u64, usize)> = std::mem::take(&mut under_way).into_iter().collect();
        while let Some((c, n)) = rest.pop() {
            s.taken(c, n as u64);
            while let Some((c, m)) = s.next() {
                order.entry(c).or_default().push(m.header.tid);
                sent += 1;
                rest.push((c, m.cost()));
            }
        }
        assert_eq!(sent, pushed, "seed {seed}: nothing is left behind");
        assert!(order.values().all(|o| o.is_sorted()));
    }
}

#[test]
fn monitors_of_an_earlier_version_are_served() {
    // A leader that does not acknowledge bytes: every message goes out, and its bytes are released.
    let mut f = Front::default();
    f.link_open(Mono(0));
    f.open(5, peer(), Mono(0));
    (0..8).for_each(|_| f.message(5, of_bytes(1 << 20)));
    f.take_effects();
    let mut old = MRelayIds { first: 1, end: 9 }.to_message(Features::PACIFIC);
    old.header.version = 1;
    f.from_leader(&old).unwrap();
    let all = f.take_effects();
    let consumed: usize = all.iter().map(|e| if let FrontEffect::Consumed(5, n) = e { *n } else { 0 }).sum();
    assert_eq!(consumed, 8 * of_bytes(1 << 20).cost());
    // The leader gets no acknowledgements either, because it would not know the message.
    for _ in 0..4 {
        f.from_leader(&carried(5, of_bytes(1 << 20))).unwrap();
    }
    assert!(f.take_effects().iter().all(|e| matches!(e, FrontEffect::ToClient(..))));
    // A front monitor that does not acknowledge bytes gets everything at once; its openings have no mark of a key.
    let mut h = Hub::default();
    h.link_open(1);
    let mut m = opening(5, &peer()).to_message(Features::PACIFIC);
    m.header.version = 1;
    m.front.truncate(m.front.len() - 35);
    let Some(HubEffect::Open(k, p, _)) = h.message(1, &m, Mono(0)).unwrap() else { panic!() };
    assert_eq!(p.principal.proved, None);
    (0..8).for_each(|_| h.send(k, of_bytes(1 << 20)).unwrap());
    assert_eq!(h.take_out().len(), 8);
}

#[test]
fn ids_are_requested_once() {
    let (mut f, mut h) = linked();
    f.ask_ids();
    f.ask_ids();
    assert_eq!(f.take_effects().len(), 1);
    f.ask_ids();
    assert!(f.take_effects().is_empty(), "not before the answer");
    // The leader has no ids; the monitor asks again later, not at once.
    h.ids(1, None);
    for (_, m) in h.take_out() {
        f.from_leader(&m).unwrap();
    }
    f.ask_ids();
    assert!(f.take_effects().is_empty());
    f.expire(Mono(1), Duration::from_secs(9));
    f.ask_ids();
    assert_eq!(f.take_effects().len(), 1);
    h.ids(1, Some((100, 200)));
    for (_, m) in h.take_out() {
        f.from_leader(&m).unwrap();
    }
    assert!(matches!(f.take_effects().make_contiguous(), [FrontEffect::Ids(100, 200)]));
    f.ask_ids();
    assert_eq!(f.take_effects().len(), 1);
    // A new link starts from scratch.
    f.link_closed();
    f.link_open(Mono(0));
    assert!(
        matches!(f.take_effects().make_contiguous(), [FrontEffect::ToLeader(m)] if m.header.kind == MRelayIds::KIND)
    );
}

#[test]
fn front_monitors_answer_with_their_time() {
    let (mut f, mut h) = linked();
    h.ask_clocks(7);
    let asked = for_clients(&mut f, &mut h);
    let [FrontEffect::Clock(7)] = &asked[..] else { panic!("{asked:?}") };
    let here = base::Utime::from_unix(std::time::Duration::from_secs(1_700_000_000));
    let m = wire::msg::MRelayClock { round: 7, here, sent: None }.to_message(Features::PACIFIC);
    let told = h.message(1, &m, Mono(0)).unwrap();
    let Some(HubEffect::Clock(c)) = told else { panic!("{told:?}") };
    assert_eq!((c.round, c.here), (7, here));
}

/// Carries messages until nothing moves, and returns those that arrived at the leader.
fn carry_all(f: &mut Front, h: &mut Hub) -> (usize, usize) {
    let (mut arrived, mut consumed) = (0, 0);
    loop {
        let effects = f.take_effects();
        let out = h.take_out();
        if effects.is_empty() && out.is_empty() {
            return (arrived, consumed);
        }
        for e in effects {
            match e {
                FrontEffect::ToLeader(m) => arrived += usize::from(h.message(1, &m, Mono(0)).unwrap().is_some()),
                FrontEffect::Consumed(_, n) => consumed += n,
                e => panic!("{e:?}"),
            }
        }
        for (_, m) in out {
            f.from_leader(&m).unwrap();
        }
    }
}

#[test]
fn a_held_session_is_not_read_at_its_monitor_and_others_go_on() {
    let (mut f, mut h) = linked();
    (0..20).for_each(|c| f.open(c, peer(), Mono(0)));
    let keys: Vec<ConnKey> = carry(&mut f, &mut h)
        .iter()
        .map(|e| if let HubEffect::Open(k, ..) = e { *k } else { panic!("{e:?}") })
        .collect();
    h.hold(keys[5], true);
    (0..64).for_each(|_| f.message(5, of_bytes(100 << 10)));
    f.message(6, said(3));
    let (arrived, consumed) = carry_all(&mut f, &mut h);
    assert!(arrived <= ONE / (100 << 10) + 1, "{arrived}");
    assert!(consumed <= ONE + (200 << 10), "its client is not read beyond its share: {consumed}");
    f.message(6, said(4));
    assert_eq!(carry_all(&mut f, &mut h).0, 1, "others go on");
    h.hold(keys[5], false);
    assert_eq!(arrived - 1 + carry_all(&mut f, &mut h).0, 64, "all of it arrives");
    // Many held sessions leave half of the link to the others.
    keys.iter().take(19).for_each(|k| h.hold(*k, true));
    for c in 0..19 {
        (0..40).for_each(|_| f.message(c, of_bytes(100 << 10)));
    }
    carry_all(&mut f, &mut h);
    (0..40).for_each(|_| f.message(19, of_bytes(100 << 10)));
    assert!(carry_all(&mut f, &mut h).0 >= 40, "all of the one that is not held");
    // The end of a held session gives its share back.
    for c in 0..19 {
        f.closed(c);
    }
    carry_all(&mut f, &mut h);
    (0..400).for_each(|_| f.message(19, of_bytes(100 << 10)));
    assert_eq!(carry_all(&mut f, &mut h).0, 400);
}

#[test]
fn a_session_whose_answers_wait_for_the_link_is_full_until_they_are_gone() {
    let (mut f, mut h) = linked();
    f.open(5, peer(), Mono(0));
    let got = carry(&mut f, &mut h);
    let HubEffect::Open(k, ..) = &got[0] else { panic!() };
    (0..8).for_each(|_| h.send(*k, of_bytes(1 << 20)).unwrap());
    assert!(h.take_fullness().is_empty());
    (0..8).for_each(|_| h.send(*k, of_bytes(1 << 20)).unwrap());
    assert_eq!(h.take_fullness(), [(*k, true)], "once");
    for _ in 0..40 {
        for (_, m) in h.take_out() {
            f.from_leader(&m).unwrap();
        }
        for e in f.take_effects() {
            if let FrontEffect::ToLeader(m) = e {
                h.message(1, &m, Mono(0)).unwrap();
            }
        }
    }
    assert_eq!(h.take_fullness(), [(*k, false)]);
}
