//! Tests of the membership.

use super::*;

fn at(ms: u64) -> Mono {
    Mono(ms * 1_000_000)
}

fn presence(name: &str, instance: u64) -> Presence {
    Presence {
        name: name.into(),
        addr: EntityAddr::msgr2(([127, 0, 0, 1], 3300).into(), 0),
        instance,
        metadata: BTreeMap::new(),
    }
}

fn asked(m: &mut Member) -> Vec<Request> {
    let requests = m.take_outputs().into_iter();
    requests.filter_map(|o| if let Output::Submit(r) = o { Some(r) } else { None }).collect()
}

fn reply(r: &Request, revision: u64, result: Result<Outcome, StateError>) -> Reply {
    Reply { token: r.token, revision, result }
}

/// The only request made by a tick at `ms`.
fn tick_for_one(m: &mut Member, ms: u64) -> Request {
    m.tick(at(ms));
    let [r] = &asked(m)[..] else { panic!("one request at {ms} ms") };
    r.clone()
}

#[test]
fn a_lost_leader_is_replaced_at_once() {
    let mut m = Member::new(presence("a", 1), true, at(0));
    let grant = tick_for_one(&mut m, 0);
    m.reply(reply(&grant, 0, Ok(Outcome::Lease(LeaseId(7), LEASE))), at(1));
    let present = tick_for_one(&mut m, 2);
    m.reply(reply(&present, 1, Ok(Outcome::Committed)), at(3));
    let look = tick_for_one(&mut m, 4);
    assert!(matches!(look.op, Op::Get { .. }));
    let b = Entry { value: presence("b", 2).to_value(), created: 1, modified: 1, lease: None };
    let values = |leader: Option<&Entry>| Ok(Outcome::Values(vec![leader.cloned(), None]));
    m.reply(reply(&look, 1, values(Some(&b))), at(5));
    m.tick(at(50));
    assert!(asked(&mut m).is_empty(), "the next read has its time");
    m.leader_changed();
    let look = tick_for_one(&mut m, 51);
    assert!(matches!(look.op, Op::Get { .. }));
    // A change that is reported while a read is under way is not in that read.
    m.leader_changed();
    m.reply(reply(&look, 1, values(Some(&b))), at(52));
    let look = tick_for_one(&mut m, 53);
    m.reply(reply(&look, 2, values(None)), at(54));
    let [stand] = &asked(&mut m)[..] else { panic!("it stands for election") };
    m.reply(reply(stand, 3, Ok(Outcome::Committed)), at(55));
    assert!(m.take_outputs().contains(&Output::Elected { fence: (key::MON_LEADER.into(), 3) }));
    // A leader reads the list of running monitors at once, and then at its usual interval.
    let list = tick_for_one(&mut m, 56);
    assert!(matches!(list.op, Op::Range { .. }), "{:?}", list.op);
    m.reply(reply(&list, 4, entries(Some(3))), at(57));
    m.leader_changed();
    m.tick(at(58));
    assert!(asked(&mut m).is_empty());
}

/// The answer to a leader's read: its record, if it is there, with the revision of its last change.
fn entries(leader: Option<u64>) -> Result<Outcome, StateError> {
    let put = |k: &str, modified| {
        let value = presence("a", 1).to_value();
        (Bytes::copy_from_slice(k.as_bytes()), Entry { value, created: 1, modified, lease: None })
    };
    let leader = leader.map(|modified| put(key::MON_LEADER, modified));
    Ok(Outcome::Entries { entries: leader.into_iter().chain([put("mon/up/a", 2)]).collect(), more: false })
}

/// A member that leads since 3 ms, under a fence of revision 3.
fn leading() -> Member {
    let mut m = Member::new(presence("a", 1), true, at(0));
    let grant = tick_for_one(&mut m, 0);
    m.reply(reply(&grant, 0, Ok(Outcome::Lease(LeaseId(7), LEASE))), at(1));
    let present = tick_for_one(&mut m, 1);
    m.reply(reply(&present, 1, Ok(Outcome::Committed)), at(1));
    let look = tick_for_one(&mut m, 2);
    m.reply(reply(&look, 1, Ok(Outcome::Values(vec![None, None]))), at(2));
    let [stand] = &asked(&mut m)[..] else { panic!("it stands for election") };
    m.reply(reply(stand, 3, Ok(Outcome::Committed)), at(3));
    m.take_outputs();
    m
}

#[test]
fn a_leader_stops_when_the_record_is_not_its_own() {
    for found in [None, Some(9)] {
        let mut m = leading();
        let read = tick_for_one(&mut m, 4);
        m.reply(reply(&read, 4, entries(Some(3))), at(5));
        assert!(m.leads_until().is_some());
        let out = m.take_outputs();
        assert!(matches!(&out[..], [Output::Peers(p)] if p.len() == 1), "{out:?}");
        m.tick(at(600));
        let sent = asked(&mut m);
        let read = sent.iter().find(|r| matches!(r.op, Op::Range { .. })).expect("it reads again");
        m.reply(reply(read, 9, entries(found)), at(601));
        assert_eq!(m.leads_until(), None);
        assert!(matches!(&m.take_outputs()[..], [Output::Deposed(_)]), "{found:?}");
    }
}

#[test]
fn a_lease_that_is_renewed_without_the_others_ends_with_the_reads() {
    let mut m = leading();
    let read = tick_for_one(&mut m, 4);
    m.reply(reply(&read, 4, entries(Some(3))), at(5));
    // A member that hangs renews the lease, and answers no reads.
    for ms in (500..20_000).step_by(100) {
        m.tick(at(ms));
        for r in asked(&mut m) {
            match r.op {
                Op::Renew(_) => m.reply(reply(&r, 0, Ok(Outcome::Done)), at(ms)),
                _ => m.reply(reply(&r, 0, Err(StateError::Unavailable("timed out".into()))), at(ms)),
            }
        }
    }
    assert_eq!(m.leads_until(), Some(at(4) + UNCONFIRMED_MAX));
    assert!(m.trouble().is_some_and(|t| t.contains("does not tell which monitor leads: ")), "{:?}", m.trouble());
}

#[test]
fn a_leader_drops_the_history_of_the_interval_before() {
    let mut m = leading();
    let mut dropped = Vec::new();
    for s in 1..1900 {
        m.tick(at(s * 1000));
        for r in asked(&mut m) {
            match r.op {
                Op::Range { .. } => m.reply(reply(&r, 100 + s, entries(Some(3))), at(s * 1000)),
                _ => m.reply(reply(&r, 0, Ok(Outcome::Done)), at(s * 1000)),
            }
        }
        dropped.extend(m.take_outputs().into_iter().filter(|o| matches!(o, Output::Compact(_))));
    }
    let [Output::Compact(3), Output::Compact(a), Output::Compact(b)] = dropped[..] else { panic!("{dropped:?}") };
    assert_eq!((a, b), (701, 1301), "each the revision at the time of the compaction before");
}

#[test]
fn the_reason_of_a_refused_election_is_told() {
    let mut m = Member::new(presence("a", 1), true, at(0));
    let full = || StateError::Refused("etcdserver: mvcc: database space exceeded".into());
    let grant = tick_for_one(&mut m, 0);
    m.reply(reply(&grant, 0, Err(full())), at(1));
    let text = "the state store grants this monitor no lease, so it cannot lead: ";
    assert!(m.trouble().is_some_and(|t| t.starts_with(text) && t.contains("space exceeded")), "{:?}", m.trouble());
    let grant = tick_for_one(&mut m, 600);
    m.reply(reply(&grant, 0, Ok(Outcome::Lease(LeaseId(7), LEASE))), at(601));
    assert_eq!(m.trouble(), None);
}

#[test]
fn a_leaders_record_under_an_earlier_lease_is_written_again() {
    let mut m = Member::new(presence("a", 1), true, at(0));
    let enter = |m: &mut Member, ms: u64, lease: u64| {
        let grant = tick_for_one(m, ms);
        assert_eq!(grant.op, Op::Grant(LEASE));
        m.reply(reply(&grant, 0, Ok(Outcome::Lease(LeaseId(lease), LEASE))), at(ms));
        let present = tick_for_one(m, ms);
        m.reply(reply(&present, 1, Ok(Outcome::Committed)), at(ms));
        tick_for_one(m, ms)
    };
    let values = |leader: Option<Entry>| Ok(Outcome::Values(vec![leader, None]));
    let look = enter(&mut m, 0, 7);
    m.reply(reply(&look, 1, values(None)), at(1));
    let [stand] = &asked(&mut m)[..] else { panic!("it stands for election") };
    // The transaction takes effect, but no answer comes while the lease can be used, nor can it be renewed.
    m.tick(at(3300));
    asked(&mut m);
    m.reply(reply(stand, 0, Err(StateError::Unknown("late".into()))), at(3300));
    let look = enter(&mut m, 3900, 8);
    let of = |lease| Entry { value: presence("a", 1).to_value(), created: 5, modified: 5, lease: Some(LeaseId(lease)) };
    m.reply(reply(&look, 5, values(Some(of(7)))), at(3901));
    assert_eq!(m.leads_until(), None, "lease 7 may end before lease 8");
    let out = m.take_outputs();
    let [stand] =
        &out.iter().filter_map(|o| if let Output::Submit(r) = o { Some(r) } else { None }).collect::<Vec<_>>()[..]
    else {
        panic!("it stands again: {out:?}")
    };
    let Op::Txn(t) = &stand.op else { panic!("{stand:?}") };
    assert_eq!(t.compare, [Compare::Modified(key::MON_LEADER.into(), 5)]);
    assert!(matches!(&t.then[..], [Write::Put(_, _, Some(LeaseId(8)))]), "{t:?}");
    // This answer is late as well. Now the record is under the present lease.
    m.reply(reply(stand, 0, Err(StateError::Unknown("late".into()))), at(3950));
    m.tick(at(4500));
    let sent = asked(&mut m);
    let look = sent.iter().find(|r| matches!(r.op, Op::Get { .. })).expect("it looks again, and renews its lease");
    let again = Entry { modified: 9, ..of(8) };
    m.reply(reply(look, 9, values(Some(again))), at(4501));
    assert!(m.take_outputs().contains(&Output::Elected { fence: (key::MON_LEADER.into(), 9) }));
}

#[test]
fn presence_that_was_written_under_an_earlier_lease_is_written_again() {
    let mut m = Member::new(presence("a", 1), true, at(0));
    let grant = tick_for_one(&mut m, 0);
    m.reply(reply(&grant, 0, Ok(Outcome::Lease(LeaseId(7), LEASE))), at(1));
    let present = tick_for_one(&mut m, 2);
    // The answer comes when the lease cannot be used any more.
    m.tick(at(3300));
    asked(&mut m);
    m.reply(reply(&present, 1, Ok(Outcome::Committed)), at(3301));
    let grant = tick_for_one(&mut m, 3302);
    m.reply(reply(&grant, 1, Ok(Outcome::Lease(LeaseId(8), LEASE))), at(3303));
    let Op::Txn(t) = tick_for_one(&mut m, 3304).op else { panic!("it announces itself") };
    assert!(matches!(&t.then[..], [Write::Put(_, _, Some(LeaseId(8)))]), "{t:?}");
}

#[test]
fn a_lease_that_could_not_be_renewed_is_given_back_all_the_same() {
    let mut m = Member::new(presence("a", 1), true, at(0));
    let grant = tick_for_one(&mut m, 0);
    assert_eq!(grant.op, Op::Grant(LEASE));
    m.reply(reply(&grant, 0, Ok(Outcome::Lease(LeaseId(7), LEASE))), at(10));
    assert_eq!(m.to_give_back(), Some(LeaseId(7)));
    // No answer arrives until after the lease's usable time.
    m.tick(at(20));
    m.tick(at(3300));
    assert_eq!(m.to_give_back(), Some(LeaseId(7)), "the store may have it for a second more");
    let renewal = asked(&mut m).into_iter().find(|r| matches!(r.op, Op::Renew(_)));
    assert!(renewal.is_none_or(|r| r.op == Op::Renew(LeaseId(7))));
}
