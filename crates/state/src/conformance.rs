//! What every backend must do, as one suite: a backend's test calls [`run_all`] with a way to make an empty store and
//! a way to wait for its next event.

use std::time::Duration;

use base::Mono;
use bytes::Bytes;

use crate::api::{
    Compare, Event, LeaseId, MAX_KEY, Op, Outcome, Range, Reply, Request, StateError, StateStore, Txn, Write,
};

/// Drives one store: submits and waits.
pub struct Driver<'a, S: StateStore> {
    /// The store.
    pub store: S,
    /// Waits until `poll` may give something.
    pub wait: &'a dyn Fn(),
    next: u64,
    changes: Vec<Event>,
}

impl<'a, S: StateStore> Driver<'a, S> {
    /// Around a fresh store.
    pub fn new(store: S, wait: &'a dyn Fn()) -> Self {
        Self { store, wait, next: 1, changes: Vec::new() }
    }

    /// One request to its reply; watch events are kept aside.
    pub fn ask(&mut self, op: Op) -> Reply {
        let token = self.next;
        self.next += 1;
        self.store.submit(Request { token, op });
        loop {
            match self.store.poll() {
                Some(Event::Reply(r)) => {
                    assert_eq!(r.token, token, "replies come in order");
                    return r;
                }
                Some(e) => self.changes.push(e),
                None => (self.wait)(),
            }
        }
    }

    fn txn(&mut self, compare: Vec<Compare>, then: Vec<Write>) -> (bool, u64) {
        let r = self.ask(Op::Txn(Txn { compare, then, otherwise: Vec::new() }));
        match r.result {
            Ok(Outcome::Txn(b)) => (b, r.revision),
            other => panic!("transaction: {other:?}"),
        }
    }

    fn get(&mut self, key: &str) -> Option<(String, u64)> {
        match self.ask(Op::Get(vec![b(key)])).result {
            Ok(Outcome::Values(v)) => {
                v[0].as_ref().map(|e| (String::from_utf8_lossy(&e.value).into_owned(), e.modified))
            }
            other => panic!("get: {other:?}"),
        }
    }

    fn list(&mut self, range: Range, limit: usize, reverse: bool) -> (Vec<String>, bool) {
        match self.ask(Op::Range { range, limit, reverse }).result {
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

/// Runs every check, each on a fresh store.
pub fn run_all<S: StateStore>(mut fresh: impl FnMut() -> S, wait: &dyn Fn()) {
    transactions_compare_and_raise_the_revision(Driver::new(fresh(), wait));
    ranges_are_ordered_and_bounded(Driver::new(fresh(), wait));
    watches_see_later_changes_of_their_range(Driver::new(fresh(), wait));
    leases_take_their_keys_along(Driver::new(fresh(), wait));
    bounds_are_enforced(Driver::new(fresh(), wait));
}

fn transactions_compare_and_raise_the_revision<S: StateStore>(mut d: Driver<'_, S>) {
    assert_eq!(d.get("a"), None);
    let (ok, r1) = d.txn(vec![Compare::Modified(b("a"), 0)], vec![put("a", "1"), put("b", "1")]);
    assert!(ok);
    assert_eq!(d.get("a"), Some(("1".into(), r1)));
    assert_eq!(d.get("b"), Some(("1".into(), r1)));
    let (ok, r) = d.txn(vec![Compare::Modified(b("a"), 0)], vec![put("a", "2")]);
    assert!(!ok);
    assert_eq!(r, r1, "a refused transaction changes nothing");
    let (ok, r2) = d.txn(vec![Compare::Modified(b("a"), r1), Compare::Value(b("b"), b("1"))], vec![put("a", "2")]);
    assert!(ok);
    assert_eq!(r2, r1 + 1);
    let (ok, r) = d.txn(vec![Compare::Value(b("a"), b("1"))], vec![put("a", "3")]);
    assert!(!ok && r == r2);
    let (_, r) = d.txn(vec![], vec![Write::Delete(b("nothing"))]);
    assert_eq!(r, r2, "no change, no revision");
    let r = d.ask(Op::Txn(Txn {
        compare: vec![Compare::Value(b("a"), b("other"))],
        then: vec![put("a", "then")],
        otherwise: vec![put("a", "otherwise")],
    }));
    assert_eq!(r.result, Ok(Outcome::Txn(false)));
    assert_eq!(d.get("a").map(|(v, _)| v).as_deref(), Some("otherwise"));
    // Later writes of one transaction see earlier ones.
    d.txn(vec![], vec![put("x", "1"), Write::Delete(b("x")), put("y", "1"), put("y", "2")]);
    assert_eq!(d.get("x"), None);
    assert_eq!(d.get("y").map(|(v, _)| v).as_deref(), Some("2"));
}

fn ranges_are_ordered_and_bounded<S: StateStore>(mut d: Driver<'_, S>) {
    d.txn(vec![], ["p/c", "p/a", "p/b", "q", "o"].iter().map(|k| put(k, "v")).collect());
    let p = Range::prefix(b"p/");
    assert_eq!(d.list(p.clone(), 0, false), (vec!["p/a".into(), "p/b".into(), "p/c".into()], false));
    assert_eq!(d.list(p.clone(), 2, false), (vec!["p/a".into(), "p/b".into()], true));
    assert_eq!(d.list(p.clone(), 1, true), (vec!["p/c".into()], true));
    assert!(!d.list(p.clone(), 3, true).1);
    let backwards = Range { start: b("z"), end: Some(b("a")) };
    assert_eq!(d.list(backwards, 0, false), (vec![], false));
    d.txn(vec![], vec![Write::DeleteRange(p.clone())]);
    assert_eq!(d.list(Range { start: Bytes::new(), end: None }, 0, false).0, vec!["o".to_owned(), "q".into()]);
}

fn watches_see_later_changes_of_their_range<S: StateStore>(mut d: Driver<'_, S>) {
    d.txn(vec![], vec![put("w/old", "1")]);
    let from = d.ask(Op::Watch(7, Range::prefix(b"w/"))).revision;
    d.txn(vec![], vec![put("w/a", "1"), put("other", "1")]);
    d.txn(vec![], vec![put("other", "2")]);
    d.txn(vec![], vec![Write::Delete(b("w/old"))]);
    d.ask(Op::Unwatch(7));
    d.txn(vec![], vec![put("w/a", "2")]);
    let seen: Vec<(u64, Vec<(Bytes, bool)>)> = d
        .changes
        .iter()
        .map(|e| match e {
            Event::Changed { watch: 7, revision, changes } => {
                (*revision, changes.iter().map(|c| (c.key.clone(), c.entry.is_some())).collect())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(seen, vec![(from + 1, vec![(b("w/a"), true)]), (from + 3, vec![(b("w/old"), false)])]);
}

fn leases_take_their_keys_along<S: StateStore>(mut d: Driver<'_, S>) {
    let second = |n: u64| Mono(n * 1_000_000_000);
    d.store.tick(second(1));
    let grant = |d: &mut Driver<'_, S>, secs| match d.ask(Op::Grant(Duration::from_secs(secs))).result {
        Ok(Outcome::Lease(l)) => l,
        other => panic!("{other:?}"),
    };
    let (short, long) = (grant(&mut d, 10), grant(&mut d, 10));
    d.txn(vec![], vec![Write::Put(b("s"), b("1"), Some(short)), Write::Put(b("l"), b("1"), Some(long))]);
    d.txn(vec![], vec![Write::Put(b("freed"), b("1"), Some(short)), put("freed", "2")]);
    d.store.tick(second(8));
    assert_eq!(d.ask(Op::Renew(long)).result, Ok(Outcome::Done));
    d.store.tick(second(12));
    assert_eq!(d.get("s"), None, "expired");
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
    let key = Bytes::from(vec![b'k'; MAX_KEY + 1]);
    let r = d.ask(Op::Txn(Txn { then: vec![Write::Put(key, Bytes::new(), None), put("a", "1")], ..Txn::default() }));
    assert_eq!(r.result, Err(StateError::TooLarge("key")));
    assert_eq!(d.get("a"), None, "nothing of it took effect");
}
