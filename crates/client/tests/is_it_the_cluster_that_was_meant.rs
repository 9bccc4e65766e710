//! Does a client that knows its cluster's id refuse the monitors of another cluster?

use base::{AddrVec, EntityAddr, Mono, Now, Utime, Uuid};
use client::core::mon::{Event, MonSession, Output};
use cluster::MonMap;
use cluster::monmap::MonInfo;
use wire::msg::{MMonMap, MMonSubscribe};
use wire::{Encode, Features, WireMessage};

fn addr(port: u16) -> EntityAddr {
    EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 0)
}

fn monmap(fsid: Uuid) -> wire::Message {
    let mut map = MonMap { fsid, epoch: base::Epoch(3), ..MonMap::default() };
    map.add(MonInfo { name: "a".into(), public_addrs: AddrVec::from(addr(3301)), ..MonInfo::default() });
    MMonMap { monmapbl: map.to_bytes(Features::PACIFIC) }.to_message(Features::PACIFIC)
}

fn at(sec: u64) -> Now {
    Now { mono: Mono(sec * 1_000_000_000), wall: Utime::default() }
}

fn outputs(s: &mut MonSession) -> Vec<Output> {
    std::iter::from_fn(|| s.poll_output()).collect()
}

#[test]
fn maps_of_another_clusters_monitors_are_ignored() {
    let (mine, other) = (Uuid([1; 16]), Uuid([2; 16]));
    let mut s = MonSession::new(vec![addr(3300)], 0, "h".into()).of_cluster(Some(mine));
    s.command("{}", bytes::Bytes::new());
    s.tick(at(1));
    s.handle_open(Features::PACIFIC);
    outputs(&mut s);
    s.handle_message(monmap(other)).unwrap();
    let all = outputs(&mut s);
    assert!(
        matches!(&all[..], [Output::Event(Event::OtherCluster { wanted, found })] if (*wanted, *found) == (mine, other)),
        "no command is sent: {all:?}"
    );
    // Further messages are ignored, and the session is closed.
    let odd = MMonSubscribe::default().to_message(Features::PACIFIC);
    s.handle_message(odd).unwrap();
    assert!(outputs(&mut s).is_empty());
    s.tick(at(2));
    assert!(matches!(&outputs(&mut s)[..], [Output::Close]));
    // The session tries the configured address again, not those of the other cluster's map.
    s.tick(at(30));
    assert!(matches!(&outputs(&mut s)[..], [Output::Connect(a)] if *a == addr(3300)));
    s.handle_open(Features::PACIFIC);
    outputs(&mut s);
    s.handle_message(monmap(mine)).unwrap();
    assert_eq!(s.fsid(), mine);
    assert!(outputs(&mut s).iter().any(|o| matches!(o, Output::Event(Event::MonMap(_)))));
}
