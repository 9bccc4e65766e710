//! Conformance suite for all backends. A backend's test calls [`run_all`] with functions to make an empty store, to
//! wait for its next event and to advance time.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;

use crate::api::{
    Compare, Event, LeaseId, MAX_KEY, MAX_TXN_OPS, MAX_VALUE, MIN_LEASE, Op, Outcome, Range, Reply, Request,
    StateError, StateStore, Txn, WatchId, Write,
};

/// Interval at which a test polls for a change caused by time alone.
const LOOK: Duration = Duration::from_millis(250);
/// Number of polls until an expired lease must be gone: a backend may take several times its life.
const LOOKS: u32 = 120;

/// Functions that drive a store under test.
pub struct Hands<'a, S> {
    /// Waits until `poll` may return an event.
    pub wait: &'a dyn Fn(&mut S),
    /// Advances the store's time.
    pub pass: &'a dyn Fn(&mut S, Duration),
    /// Compacts all revisions below a given one.
    pub compact: &'a dyn Fn(&mut S, u64),
}

impl<S> Clone for Hands<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Hands<'_, S> {}

/// Drives a store: submits requests and waits for replies.
pub struct Driver<'a, S: StateStore> {
    /// The store under test.
    pub store: S,
    hands: Hands<'a, S>,
    next: u64,
    aside: VecDeque<Event>,
}

impl<'a, S: StateStore> Driver<'a, S> {
    /// Makes a driver for an empty store.
    pub fn new(store: S, hands: Hands<'a, S>) -> Self {
        Self { store, hands, next: 1, aside: VecDeque::new() }
    }

    /// Runs one request and returns its reply; watch events are queued.
    pub fn ask(&mut self, op: Op) -> Reply {
        let token = self.next;
        self.next += 1;
        self.store.submit(Request { token, op });
        loop {
            match self.store.poll() {
                Some(Event::Reply(r)) => {
                    assert_eq!(r.token, token, "the reply to what was asked");
                    return r;
                }
                Some(e) => self.aside.push_back(e),
                None => (self.hands.wait)(&mut self.store),
            }
        }
    }

    /// Keys in watch events since the last call.
    pub fn changes(&mut self) -> Vec<String> {
        while let Some(e) = self.store.poll() {
            self.aside.push_back(e);
        }
        let keys = |e: Event| match e {
            Event::Changed { changes, .. } => changes.into_iter().map(|c| c.key).collect::<Vec<Bytes>>(),
            other => panic!("{other:?}"),
        };
        let all = self.aside.drain(..).flat_map(keys);
        all.map(|k| String::from_utf8_lossy(&k).into_owned()).collect()
    }

    /// The next watch event.
    fn watched(&mut self) -> Event {
        loop {
            if let Some(e) = self.aside.pop_front() {
                return e;
            }
            match self.store.poll() {
                Some(Event::Reply(r)) => panic!("nothing was asked: {r:?}"),
                Some(e) => self.aside.push_back(e),
                None => (self.hands.wait)(&mut self.store),
            }
        }
    }

    /// The next change of a watch: revision, and keys, each with whether it exists.
    fn changed(&mut self, id: WatchId) -> (u64, Vec<(String, bool)>) {
        match self.watched() {
            Event::Changed { watch, revision, changes } if watch == id => {
                let text = |k: &Bytes| String::from_utf8_lossy(k).into_owned();
                (revision, changes.iter().map(|c| (text(&c.key), c.entry.is_some())).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    fn txn(&mut self, compare: Vec<Compare>, then: Vec<Write>) -> (bool, u64) {
        let r = self.ask(Op::Txn(Txn { compare, then }));
        match r.result {
            Ok(Outcome::Committed) => (true, r.revision),
            Ok(Outcome::Conflict) => (false, r.revision),
            other => panic!("transaction: {other:?}"),
        }
    }

    fn get_at(&mut self, key: &str, at: u64) -> Result<Option<(String, u64)>, StateError> {
        match self.ask(Op::Get { keys: vec![b(key)], at }).result? {
            Outcome::Values(v) => {
                Ok(v[0].as_ref().map(|e| (String::from_utf8_lossy(&e.value).into_owned(), e.modified)))
            }
            other => panic!("get: {other:?}"),
        }
    }

    fn get(&mut self, key: &str) -> Option<(String, u64)> {
        self.get_at(key, 0).expect("get")
    }

    fn list(&mut self, range: Range, limit: usize, reverse: bool, at: u64) -> (Vec<String>, bool) {
        match self.ask(Op::Range { range, limit, reverse, at }).result {
            Ok(Outcome::Entries { entries, more }) => {
                (entries.iter().map(|(k, _)| String::from_utf8_lossy(k).into_owned()).collect(), more)
            }
            other => panic!("range: {other:?}"),
        }
    }
}

fn b(s: &str) -> Bytes {
    Bytes::copy_from_slice(s.as_bytes())
}

fn put(k: &str, v: &str) -> Write {
    Write::Put(b(k), b(v), None)
}

fn names(l: &[&str]) -> Vec<String> {
    l.iter().map(|s| (*s).to_owned()).collect()
}

/// Runs every check, each on a fresh store.
pub fn run_all<S: StateStore>(mut fresh: impl FnMut() -> S, hands: Hands<'_, S>) {
    transactions_compare_and_raise_the_revision(Driver::new(fresh(), hands));
    ranges_are_ordered_and_bounded(Driver::new(fresh(), hands));
    the_past_can_be_read_until_it_is_compacted(Driver::new(fresh(), hands));
    watches_see_later_changes_of_their_range(Driver::new(fresh(), hands));
    watches_begin_where_they_are_told(Driver::new(fresh(), hands));
    leases_take_their_keys_along(Driver::new(fresh(), hands));
    bounds_are_enforced(Driver::new(fresh(), hands));
}

fn transactions_compare_and_raise_the_revision<S: StateStore>(mut d: Driver<'_, S>) {
    assert_eq!(d.get("a"), None);
    let (ok, r1) = d.txn(vec![Compare::Modified(b("a"), 0)], vec![put("a", "1"), put("b", "1")]);
    assert!(ok);
    assert_eq!(d.get("a"), Some(("1".into(), r1)));
    assert_eq!(d.get("b"), Some(("1".into(), r1)), "all keys carry the transaction's revision");
    let (ok, r) = d.txn(vec![Compare::Modified(b("a"), 0)], vec![put("a", "2")]);
    assert!(!ok);
    assert_eq!(r, r1, "a conflict changes nothing");
    let (ok, r2) = d.txn(vec![Compare::Modified(b("a"), r1), Compare::Value(b("b"), b("1"))], vec![put("a", "2")]);
    assert!(ok && r2 > r1);
    let (ok, r) = d.txn(vec![Compare::Value(b("a"), b("1"))], vec![put("a", "3")]);
    assert!(!ok && r == r2);
    let (ok, _) = d.txn(vec![Compare::Value(b("missing"), b(""))], vec![put("a", "3")]);
    assert!(!ok, "a key that does not exist has no value");
    let (ok, r) = d.txn(vec![], vec![Write::Delete(b("nothing"))]);
    assert!(ok && r == r2, "no change, no revision");
    let (_, r3) = d.txn(vec![], vec![Write::Delete(b("a"))]);
    assert!(r3 > r2);
    let (ok, _) = d.txn(vec![Compare::Modified(b("a"), 0)], vec![put("a", "new")]);
    assert!(ok, "a key that was removed was never written");
    for twice in [
        vec![put("x", "1"), put("x", "2")],
        vec![put("x", "1"), Write::Delete(b("x"))],
        vec![Write::DeleteRange(Range::prefix(b"x")), put("x1", "1")],
    ] {
        let r = d.ask(Op::Txn(Txn { then: twice, ..Txn::default() }));
        assert_eq!(r.result, Err(StateError::KeyTwice));
    }
    assert_eq!((d.get("x"), d.get("x1")), (None, None));
}

fn ranges_are_ordered_and_bounded<S: StateStore>(mut d: Driver<'_, S>) {
    d.txn(vec![], ["p/c", "p/a", "p/b", "q", "o"].iter().map(|k| put(k, "v")).collect());
    let p = Range::prefix(b"p/");
    assert_eq!(d.list(p.clone(), 0, false, 0), (names(&["p/a", "p/b", "p/c"]), false));
    assert_eq!(d.list(p.clone(), 2, false, 0), (names(&["p/a", "p/b"]), true));
    assert_eq!(d.list(p.clone(), 1, true, 0), (names(&["p/c"]), true));
    assert!(!d.list(p.clone(), 3, true, 0).1);
    let backwards = Range { start: b("z"), end: Some(b("a")) };
    assert_eq!(d.list(backwards, 0, false, 0), (vec![], false));
    d.txn(vec![], vec![Write::DeleteRange(p)]);
    assert_eq!(d.list(Range { start: Bytes::new(), end: None }, 0, false, 0).0, names(&["o", "q"]));
    // More entries than one reply can hold.
    for block in 0..3 {
        let key = |i: usize| put(&format!("many/{:04}", block * MAX_TXN_OPS + i), "v");
        d.txn(vec![], (0..MAX_TXN_OPS).map(key).collect());
    }
    let many = d.list(Range::prefix(b"many/"), 0, false, 0).0;
    assert_eq!(many.len(), 3 * MAX_TXN_OPS);
    assert!(many.is_sorted());
    let keys: Vec<Bytes> = many.iter().map(|k| b(k)).chain([b("missing")]).collect();
    match d.ask(Op::get(keys)).result {
        Ok(Outcome::Values(v)) => {
            assert_eq!(v.len(), many.len() + 1);
            assert!(v.iter().take(many.len()).all(Option::is_some) && v.last().is_some_and(Option::is_none));
        }
        other => panic!("{other:?}"),
    }
}

fn the_past_can_be_read_until_it_is_compacted<S: StateStore>(mut d: Driver<'_, S>) {
    let (_, r1) = d.txn(vec![], vec![put("h/a", "1"), put("h/b", "1")]);
    let (_, r2) = d.txn(vec![], vec![put("h/a", "2"), put("h/c", "2"), Write::Delete(b("h/b"))]);
    let (_, r3) = d.txn(vec![], vec![Write::DeleteRange(Range::prefix(b"h/")), put("i", "3")]);
    assert_eq!(d.get_at("h/a", r1), Ok(Some(("1".into(), r1))));
    assert_eq!(d.get_at("h/c", r1), Ok(None));
    assert_eq!(d.get_at("h/a", r2), Ok(Some(("2".into(), r2))));
    assert_eq!(d.get_at("h/b", r2), Ok(None));
    let p = Range::prefix(b"h/");
    assert_eq!(d.list(p.clone(), 0, false, r1), (names(&["h/a", "h/b"]), false));
    assert_eq!(d.list(p.clone(), 1, true, r2), (names(&["h/c"]), true));
    assert_eq!(d.list(p.clone(), 0, false, r3), (vec![], false));
    assert!(matches!(d.get_at("h/a", r3 + 1000), Err(StateError::Ahead(_))));
    (d.hands.compact)(&mut d.store, r2);
    assert!(matches!(d.get_at("h/a", r1), Err(StateError::Compacted(_))));
    assert_eq!(d.get_at("h/a", r2), Ok(Some(("2".into(), r2))));
    let r = d.ask(Op::Range { range: p, limit: 0, reverse: false, at: r1 });
    assert!(matches!(r.result, Err(StateError::Compacted(_))));
}

fn watches_see_later_changes_of_their_range<S: StateStore>(mut d: Driver<'_, S>) {
    d.txn(vec![], vec![put("w/old", "1")]);
    d.ask(Op::Watch { id: 7, range: Range::prefix(b"w/"), from: 0 });
    let (_, r1) = d.txn(vec![], vec![put("w/a", "1"), put("other", "1"), put("w/b", "1")]);
    d.txn(vec![], vec![put("other", "2")]);
    let (_, r2) = d.txn(vec![], vec![Write::Delete(b("w/old"))]);
    let (at, mut keys) = d.changed(7);
    keys.sort();
    assert_eq!((at, keys), (r1, vec![("w/a".into(), true), ("w/b".into(), true)]), "a transaction comes whole");
    assert_eq!(d.changed(7), (r2, vec![("w/old".into(), false)]));
    d.ask(Op::Unwatch(7));
    d.ask(Op::Watch { id: 8, range: Range::key(b"w/a"), from: 0 });
    let (_, r3) = d.txn(vec![], vec![put("w/a", "2")]);
    assert_eq!(d.changed(8), (r3, vec![("w/a".into(), true)]), "and nothing of the watch that has ended");
}

fn watches_begin_where_they_are_told<S: StateStore>(mut d: Driver<'_, S>) {
    let (_, r1) = d.txn(vec![], vec![put("w/a", "1")]);
    let (_, r2) = d.txn(vec![], vec![put("w/a", "2")]);
    let (_, r3) = d.txn(vec![], vec![put("other", "2"), put("w/b", "1")]);
    let r = d.ask(Op::Watch { id: 1, range: Range::prefix(b"w/"), from: r2 });
    assert_eq!(r.result, Ok(Outcome::Done));
    assert_eq!(d.changed(1), (r2, vec![("w/a".into(), true)]));
    assert_eq!(d.changed(1), (r3, vec![("w/b".into(), true)]));
    let (_, r4) = d.txn(vec![], vec![Write::Delete(b("w/a"))]);
    assert_eq!(d.changed(1), (r4, vec![("w/a".into(), false)]), "from the past to the present without a gap");
    d.ask(Op::Unwatch(1));
    (d.hands.compact)(&mut d.store, r3);
    let r = d.ask(Op::Watch { id: 2, range: Range::prefix(b"w/"), from: r1 });
    if let Err(e) = r.result {
        assert!(matches!(e, StateError::Compacted(_)), "{e}");
    } else {
        match d.watched() {
            Event::Lost { watch: 2, why: StateError::Compacted(_) } => {}
            other => panic!("{other:?}"),
        }
    }
    d.ask(Op::Watch { id: 3, range: Range::prefix(b"w/"), from: r4 });
    assert_eq!(d.changed(3).0, r4);
}

fn leases_take_their_keys_along<S: StateStore>(mut d: Driver<'_, S>) {
    (d.hands.pass)(&mut d.store, LOOK);
    let grant = |d: &mut Driver<'_, S>| match d.ask(Op::Grant(MIN_LEASE)).result {
        Ok(Outcome::Lease(l, ttl)) => {
            assert!(ttl >= MIN_LEASE);
            l
        }
        other => panic!("{other:?}"),
    };
    let (short, long) = (grant(&mut d), grant(&mut d));
    d.txn(vec![], vec![Write::Put(b("s"), b("1"), Some(short)), Write::Put(b("l"), b("1"), Some(long))]);
    d.txn(vec![], vec![Write::Put(b("freed"), b("1"), Some(short))]);
    d.txn(vec![], vec![put("freed", "2")]);
    d.ask(Op::Watch { id: 1, range: Range::key(b"s"), from: 0 });
    let mut looks = 0;
    while d.get("s").is_some() {
        assert!(looks < LOOKS, "expires");
        looks += 1;
        (d.hands.pass)(&mut d.store, LOOK);
        assert_eq!(d.ask(Op::Renew(long)).result, Ok(Outcome::Done));
    }
    assert!(looks >= 4, "not before its time");
    assert_eq!(d.changed(1).1, vec![("s".into(), false)], "watches see it go");
    assert!(d.get("l").is_some(), "renewed");
    assert!(d.get("freed").is_some(), "written again without the lease");
    assert_eq!(d.ask(Op::Renew(short)).result, Err(StateError::NoLease));
    assert_eq!(d.ask(Op::Revoke(long)).result, Ok(Outcome::Done));
    assert_eq!(d.get("l"), None, "revoked");
    let put = Write::Put(b("s"), b("2"), Some(LeaseId(9999)));
    let r = d.ask(Op::Txn(Txn { then: vec![put], ..Txn::default() }));
    assert_eq!(r.result, Err(StateError::NoLease));
}

fn bounds_are_enforced<S: StateStore>(mut d: Driver<'_, S>) {
    let refused = |d: &mut Driver<'_, S>, mut then: Vec<Write>, what| {
        then.push(put("a", "1"));
        let r = d.ask(Op::Txn(Txn { then, ..Txn::default() }));
        assert_eq!(r.result, Err(StateError::TooLarge(what)));
        assert_eq!(d.get("a"), None, "nothing of it took effect");
    };
    let value = |n: usize| Bytes::from(vec![b'v'; n]);
    let key = Bytes::from(vec![b'k'; MAX_KEY + 1]);
    refused(&mut d, vec![Write::Put(key, Bytes::new(), None)], "key");
    refused(&mut d, vec![Write::Put(b("v"), value(MAX_VALUE + 1), None)], "value");
    refused(&mut d, (0..3).map(|i| Write::Put(b(&format!("v{i}")), value(MAX_VALUE), None)).collect(), "transaction");
    refused(&mut d, (0..MAX_TXN_OPS).map(|i| put(&format!("o{i}"), "v")).collect(), "transaction");
    // Values within the limits are accepted.
    let (ok, _) = d.txn(vec![], (0..2).map(|i| Write::Put(b(&format!("v{i}")), value(MAX_VALUE), None)).collect());
    assert!(ok);
    assert_eq!(d.get("v1").map(|(v, _)| v.len()), Some(MAX_VALUE));
}
