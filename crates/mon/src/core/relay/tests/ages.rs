//! Does the leader know which of two sessions is older, whichever monitors they opened at?

use super::*;
use wire::msg::MRelayClock;

const SEC: u64 = 1_000_000_000;

fn at(secs: u64) -> Mono {
    Mono(secs * SEC)
}

/// The messages that a front monitor sends.
fn sent(f: &mut Front) -> Vec<Message> {
    f.take_effects()
        .into_iter()
        .filter_map(|e| if let FrontEffect::ToLeader(m) = e { Some(m) } else { None })
        .filter(|m| m.header.kind != MRelayIds::KIND)
        .collect()
}

fn opened(h: &mut Hub, m: &Message, now: Mono) -> Mono {
    let effect = h.message(1, m, now).unwrap();
    let Some(HubEffect::Open(_, _, t)) = effect else { panic!("{effect:?}") };
    t
}

#[test]
fn time_before_the_link_and_on_the_way_counts() {
    let (mut f, mut h) = (Front::default(), Hub::default());
    h.link_open(1);
    // The front monitor's clock is 900 s ahead. A session waits for 3 s, and another one comes with the link.
    f.open(5, peer(), at(1000));
    f.link_open(at(1003));
    f.open(6, peer(), at(1003));
    let all = sent(&mut f);
    assert_eq!([opened(&mut h, &all[0], at(103)), opened(&mut h, &all[1], at(103))], [at(100), at(103)]);
    // The link holds the next one up for 20 s.
    f.open(7, peer(), at(1010));
    let late = sent(&mut f);
    assert_eq!(opened(&mut h, &late[0], at(130)), at(110));
}

#[test]
fn a_clock_that_goes_wrong_is_followed() {
    let (mut f, mut h) = (Front::default(), Hub::default());
    h.link_open(1);
    f.link_open(at(0));
    // The clock loses a second in each round, so what was known of it in the beginning makes sessions too old.
    let told = |h: &mut Hub, there: u64, here: u64| {
        let m = MRelayClock { round: 1, here: Utime::ZERO, sent: Some(at(there)) }.to_message(Features::PACIFIC);
        assert!(matches!(h.message(1, &m, at(here)).unwrap(), Some(HubEffect::Clock(_))));
    };
    for i in 0..20 {
        told(&mut h, 300 * i - i, 300 * i);
    }
    f.open(5, peer(), at(300 * 19 - 19));
    let t = opened(&mut h, &sent(&mut f)[0], at(300 * 19));
    assert!(t <= at(300 * 19) && t >= at(300 * 19 - 4), "{t:?}");
}

#[test]
fn any_times_of_a_front_monitor_are_in_the_past() {
    for (since, sent_at, now) in [(u64::MAX, 0, 5), (0, u64::MAX, 5), (u64::MAX, u64::MAX, 0), (7, 3, u64::MAX)] {
        let mut h = Hub::default();
        h.link_open(1);
        let m = MRelayOpen { opened: Some(Mono(since)), sent: Some(Mono(sent_at)), ..opening(5, &peer()) };
        let t = opened(&mut h, &m.to_message(Features::PACIFIC), Mono(now));
        assert!(t <= Mono(now));
    }
}

/// Such a session counts as opened when the leader hears of it.
#[test]
fn a_front_monitor_of_an_earlier_version_tells_no_time() {
    let mut h = Hub::default();
    h.link_open(1);
    let mut m =
        MRelayOpen { opened: Some(at(1)), sent: Some(at(2)), ..opening(5, &peer()) }.to_message(Features::PACIFIC);
    m.header.version = 2;
    m.front.truncate(m.front.len() - 18);
    assert_eq!(opened(&mut h, &m, at(9)), at(9));
    let mut m = MRelayClock { round: 3, ..MRelayClock::default() }.to_message(Features::PACIFIC);
    m.header.version = 1;
    m.front.truncate(m.front.len() - 9);
    assert!(matches!(h.message(1, &m, at(9)).unwrap(), Some(HubEffect::Clock(c)) if c.round == 3 && c.sent.is_none()));
}
