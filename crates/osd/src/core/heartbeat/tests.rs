//! Tests of heartbeats.

use super::*;
use base::EntityAddr;
use cluster::Incremental;
use cluster::osdmap::osd_state;

const FSID: Uuid = Uuid([3; 16]);
const ME: OsdId = OsdId(5);

fn at(s: u64) -> Now {
    Now { mono: Mono((1000 + s) * 1_000_000_000), wall: Utime { sec: 1000 + s as u32, nsec: 0 } }
}

/// Some milliseconds after `at(0)`.
fn ms(n: u64) -> Now {
    Now { mono: at(0).mono + Duration::from_millis(n), ..at(0) }
}

fn change(m: &OsdMap, f: impl FnOnce(&mut Incremental)) -> OsdMap {
    let mut inc = Incremental::new(FSID, m.epoch.next(), Utime { sec: 1, nsec: 0 });
    f(&mut inc);
    m.apply(&inc).unwrap()
}

fn up(n: i32, per_host: i32) -> OsdMap {
    let mut m = OsdMap { fsid: FSID, epoch: Epoch(1), ..OsdMap::default() };
    m.set_max_osd(n).unwrap();
    let types = [(0, "osd"), (1, "host"), (11, "root")];
    let mut crush = cluster::crush::CrushMap {
        type_names: types.into_iter().map(|(i, t)| (i, t.to_owned())).collect(),
        ..Default::default()
    };
    crush.add_bucket("default", "root").unwrap();
    for o in 0..n {
        let place = [("root".to_owned(), "default".to_owned()), ("host".to_owned(), format!("h{}", o / per_host))];
        crush.insert_item(o, 0x10000, &format!("osd.{o}"), &place.into()).unwrap();
    }
    m.crush = std::sync::Arc::new(crush);
    change(&m, |i| {
        for o in 0..n {
            let a: AddrVec = EntityAddr::msgr2(([127, 0, 0, 1], 7000 + o as u16).into(), 1).into();
            i.new_up_client.insert(OsdId(o), a.clone());
            i.new_up_cluster.insert(OsdId(o), a.clone());
            i.new_hb_back_up.insert(OsdId(o), a.clone());
            i.new_hb_front_up.insert(OsdId(o), a);
        }
    })
}

fn watching(m: &OsdMap) -> Heartbeats {
    let mut h = Heartbeats::new(ME, FSID, 1);
    h.handle_map(m, true);
    for o in h.peers() {
        for l in LINKS {
            h.handle_open(o, l, at(0), m.epoch, m.info(ME).up_from);
        }
    }
    h
}

fn answer_all(h: &mut Heartbeats, m: &OsdMap, now: Now, but: &[OsdId]) {
    for o in h.peers().into_iter().filter(|o| !but.contains(o)) {
        for l in LINKS {
            let p = ping(FSID, m.epoch, Epoch(2), now);
            let r = answer(FSID, &p, m.epoch, Epoch(2), now);
            h.handle_reply(o, l, &r, now, m.epoch);
        }
    }
}

fn failures(h: &mut Heartbeats) -> Vec<(i32, u8)> {
    let all = h.take_outputs();
    all.into_iter()
        .filter_map(|o| if let Output::Failure(f) = o { Some((f.target_osd.0, f.flags)) } else { None })
        .collect()
}

#[test]
fn peers_share_pgs_or_are_next_by_number_or_on_another_host() {
    let m = up(40, 20);
    let mut h = Heartbeats::new(ME, FSID, 1);
    h.set_pg_peers([OsdId(13), OsdId(17), OsdId(99)].into());
    h.handle_map(&m, true);
    let p = h.peers();
    assert_eq!(p.len(), PEERS_MIN);
    for want in [13, 17, 4, 6] {
        assert!(p.contains(&OsdId(want)), "{want} in {p:?}");
    }
    assert!(p.iter().any(|o| o.0 >= 20), "an OSD of the other host: {p:?}");
    // All peers that share PGs are watched, however many.
    h.set_pg_peers((8..35).map(OsdId).collect());
    h.handle_map(&m, true);
    assert!((8..35).all(|o| h.peers().contains(&OsdId(o))));
    h.handle_map(&m, false);
    assert!(h.peers().is_empty());
}

#[test]
fn silent_peers_are_reported_once_until_they_answer() {
    let m = up(8, 2);
    let mut h = watching(&m);
    let quiet = OsdId(2);
    let mut seen = Vec::new();
    for s in 0..60 {
        h.tick(at(s), m.epoch, Epoch(2));
        answer_all(&mut h, &m, at(s), &[quiet]);
        seen.extend(failures(&mut h).into_iter().map(|f| (s, f)));
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].1, (2, failure_flags::FAILED));
    assert!((20..=27).contains(&seen[0].0), "after the grace: {seen:?}");
    answer_all(&mut h, &m, at(60), &[]);
    assert_eq!(failures(&mut h), vec![(2, failure_flags::ALIVE)]);
}

#[test]
fn a_report_is_cancelled_when_its_peer_is_no_longer_watched() {
    let m = up(30, 10);
    let mut h = Heartbeats::new(ME, FSID, 1);
    h.set_pg_peers([OsdId(25)].into());
    h.handle_map(&m, true);
    h.handle_closed(OsdId(25), Link::Back, true, at(0), m.epoch, Epoch(2));
    assert_eq!(failures(&mut h), vec![(25, failure_flags::FAILED | failure_flags::IMMEDIATE)]);
    h.set_pg_peers([].into());
    h.handle_map(&m, true);
    assert_eq!(failures(&mut h), vec![(25, failure_flags::ALIVE)]);
    // A report is dropped if the map shows the peer down meanwhile.
    h.set_pg_peers([OsdId(25)].into());
    h.handle_map(&m, true);
    h.handle_closed(OsdId(25), Link::Back, true, at(0), m.epoch, Epoch(2));
    failures(&mut h);
    let m = change(&m, |i| {
        i.new_state.insert(OsdId(25), osd_state::UP);
    });
    h.handle_map(&m, true);
    assert_eq!(failures(&mut h), vec![]);
}

#[test]
fn a_process_that_was_suspended_reports_no_peer() {
    let m = up(6, 1);
    let mut h = watching(&m);
    for s in 0..10 {
        h.tick(at(s), m.epoch, Epoch(2));
    }
    failures(&mut h);
    h.tick(at(300), m.epoch, Epoch(2));
    assert_eq!(failures(&mut h), vec![]);
    // The grace period begins anew from there.
    let mut seen = Vec::new();
    for s in 301..340 {
        h.tick(at(s), m.epoch, Epoch(2));
        seen.extend(failures(&mut h).into_iter().map(|f| (s, f)));
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
    assert!(seen.iter().all(|(s, _)| *s >= 320), "{seen:?}");
}

#[test]
fn an_osd_that_is_down_reports_no_peer_until_it_is_up() {
    let m = up(6, 1);
    let mut h = watching(&m);
    h.set_reporting(false);
    for s in 0..40 {
        h.tick(at(s), m.epoch, Epoch(2));
    }
    h.handle_closed(OsdId(1), Link::Back, true, at(40), m.epoch, Epoch(2));
    assert_eq!(failures(&mut h), vec![]);
    assert_eq!(h.health(at(40)), (0, 5));
    h.set_reporting(true);
    for s in 40..48 {
        h.tick(at(s), m.epoch, Epoch(2));
    }
    assert_eq!(failures(&mut h).len(), 5);
    answer_all(&mut h, &m, at(47), &[]);
    assert_eq!(h.health(at(47)), (5, 5));
    assert_eq!(h.ping_times(at(47)).len(), 5);
}

#[test]
fn a_peer_that_was_reported_is_missed_until_it_answers_or_is_down() {
    let m = up(8, 2);
    let (quiet, dead) = (OsdId(2), OsdId(3));
    let mut h = watching(&m);
    for s in 0..30 {
        h.tick(at(s), m.epoch, Epoch(2));
        answer_all(&mut h, &m, at(s), &[quiet, dead]);
    }
    assert!(h.missed().is_empty(), "while it serves");
    h.set_reporting(false);
    assert_eq!(h.missed(), [quiet, dead]);
    let m = change(&m, |i| {
        i.new_state.insert(dead, osd_state::UP);
    });
    h.handle_map(&m, true);
    assert_eq!(h.missed(), [quiet]);
    for s in 30..60 {
        h.tick(at(s), m.epoch, Epoch(2));
        answer_all(&mut h, &m, at(s), &[quiet]);
    }
    assert_eq!(h.missed(), [quiet]);
    for s in 60..70 {
        h.tick(at(s), m.epoch, Epoch(2));
        answer_all(&mut h, &m, at(s), &[]);
    }
    assert!(h.missed().is_empty());
}

/// The links of a peer that are to be opened.
fn opened(h: &mut Heartbeats, peer: OsdId) -> Vec<Link> {
    let all = h.take_outputs();
    all.into_iter()
        .filter_map(|o| match o {
            Output::Connect { osd, link, .. } if osd == peer => Some(link),
            _ => None,
        })
        .collect()
}

/// Heartbeats after a round of pings that all peers have answered.
fn answered(m: &OsdMap) -> Heartbeats {
    let mut h = watching(m);
    h.tick(at(0), m.epoch, Epoch(2));
    answer_all(&mut h, m, at(0), &[]);
    h.take_outputs();
    h
}

const REFUSED: u8 = failure_flags::FAILED | failure_flags::IMMEDIATE;

#[test]
fn a_broken_link_is_opened_again_at_once_and_its_refusal_is_reported() {
    let m = up(8, 2);
    let (mut h, dead) = (answered(&m), OsdId(2));
    for l in LINKS {
        h.handle_closed(dead, l, false, ms(100), m.epoch, Epoch(2));
        assert_eq!(opened(&mut h, dead), [l], "without waiting for the next round");
    }
    h.handle_closed(dead, Link::Back, true, ms(101), m.epoch, Epoch(2));
    assert_eq!(failures(&mut h), [(2, REFUSED)]);
    h.handle_closed(dead, Link::Front, true, ms(101), m.epoch, Epoch(2));
    assert_eq!(failures(&mut h), [], "once");
    // A session with another monitor hears it again, with the next round.
    h.handle_mon_session();
    h.tick(at(7), m.epoch, Epoch(2));
    assert_eq!(opened(&mut h, dead), LINKS);
    h.handle_closed(dead, Link::Front, true, at(7), m.epoch, Epoch(2));
    assert_eq!(failures(&mut h), [(2, REFUSED)]);
}

#[test]
fn a_listener_that_closes_after_its_connections_is_tried_again_a_few_times() {
    let m = up(8, 2);
    let (mut h, dead) = (answered(&m), OsdId(2));
    let mut tried = Vec::new();
    for t in 0..2000 {
        if t == 0 {
            h.handle_closed(dead, Link::Back, false, ms(t), m.epoch, Epoch(2));
        }
        h.tick(ms(t), m.epoch, Epoch(2));
        for _ in opened(&mut h, dead) {
            tried.push(t);
            h.handle_closed(dead, Link::Back, false, ms(t), m.epoch, Epoch(2));
        }
        assert!(h.next_deadline().is_some_and(|d| d > ms(t).mono), "no busy loop");
    }
    assert_eq!(tried, [0, 20, 120, 620]);
    // From then on with each round, until one finds the link open.
    h.tick(at(7), m.epoch, Epoch(2));
    assert_eq!(opened(&mut h, dead), [Link::Back]);
    h.handle_closed(dead, Link::Back, false, at(7), m.epoch, Epoch(2));
    assert_eq!(opened(&mut h, dead), []);
}

#[test]
fn a_link_that_opens_and_breaks_all_the_time_is_opened_a_few_times_between_rounds() {
    let m = up(8, 2);
    let (mut h, peer) = (answered(&m), OsdId(2));
    let mut n = 0;
    h.handle_closed(peer, Link::Back, false, ms(0), m.epoch, Epoch(2));
    for t in 0..2000 {
        h.tick(ms(t), m.epoch, Epoch(2));
        for l in opened(&mut h, peer) {
            n += 1;
            h.handle_open(peer, l, ms(t), m.epoch, Epoch(2));
            h.handle_closed(peer, l, false, ms(t), m.epoch, Epoch(2));
        }
    }
    assert_eq!(n, AGAIN.len());
}

/// Some milliseconds in which a peer refuses its back link, and answers on its front link if it `lives`. Returns the
/// number of its pings there, and time and flags of the reports.
fn refusing(lives: bool, until: u64) -> (usize, Vec<(u64, u8)>) {
    let m = up(8, 2);
    let (mut h, peer) = (answered(&m), OsdId(2));
    let (mut pings, mut reports) = (0, Vec::new());
    h.handle_closed(peer, Link::Back, false, ms(0), m.epoch, Epoch(2));
    for t in 0..until {
        h.tick(ms(t), m.epoch, Epoch(2));
        for o in h.take_outputs() {
            match o {
                Output::Connect { link: Link::Back, .. } => {
                    h.handle_closed(peer, Link::Back, true, ms(t), m.epoch, Epoch(2));
                }
                Output::Ping { osd, link: Link::Front, ping } if osd == peer && lives => {
                    pings += 1;
                    let r = answer(FSID, &ping, m.epoch, Epoch(2), ms(t));
                    h.handle_reply(peer, Link::Front, &r, ms(t), m.epoch);
                }
                Output::Failure(f) => reports.push((t, f.flags)),
                _ => {}
            }
        }
    }
    (pings, reports)
}

#[test]
fn a_peer_that_answers_on_its_other_link_is_not_reported_for_a_refusal() {
    let (pings, reports) = refusing(true, 20_000);
    assert_eq!(reports, []);
    assert!(pings > AGAIN.len(), "it is asked whether it lives");
}

#[test]
fn a_refusal_is_reported_if_the_other_link_stands_but_brings_no_answer() {
    let (_, seen) = refusing(false, 2000);
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].0 < 1000 && seen[0].1 == REFUSED, "{seen:?}");
}

#[test]
fn a_silent_peer_that_then_refuses_is_reported_once_more() {
    let m = up(8, 2);
    let (mut h, peer) = (answered(&m), OsdId(2));
    let mut seen = Vec::new();
    for s in 0..40 {
        h.tick(at(s), m.epoch, Epoch(2));
        answer_all(&mut h, &m, at(s), &[peer]);
        seen.extend(failures(&mut h));
    }
    assert_eq!(seen, [(2, failure_flags::FAILED)]);
    h.handle_closed(peer, Link::Back, false, at(40), m.epoch, Epoch(2));
    h.handle_closed(peer, Link::Back, true, at(40), m.epoch, Epoch(2));
    assert_eq!(failures(&mut h), [(2, REFUSED)]);
}
