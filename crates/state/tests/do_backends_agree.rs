//! Does every backend fulfil the trait's contract, and the embedded one also across a restart?

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use base::Mono;
use bytes::Bytes;
use state::conformance::{Driver, Hands, run_all};
use state::embedded::EmbeddedStore;
use state::memory::MemoryStore;
use state::simulated::{Cluster, Faults, SimulatedStore};
use state::{Op, Outcome, StateError, StateStore as _, Txn, Write};
use testkit::TempDir;

#[test]
fn memory() {
    let now = Cell::new(0);
    let hands = Hands {
        wait: &|_: &mut MemoryStore| panic!("the memory store answers at once"),
        pass: &|s, d| s.tick(later(&now, d)),
        compact: &|s, r| s.compact(r),
    };
    run_all(MemoryStore::new, hands);
}

/// Advances the simulated time by one step.
fn step(s: &Cluster, now: &Cell<u64>) {
    let next = s.next_step().map_or(now.get() + 1_000_000, |m| m.0);
    now.set(next.max(now.get()));
    s.advance(Mono(now.get()));
}

#[test]
fn simulated() {
    for seed in 0..20 {
        let (now, shared) = (Cell::new(0), std::cell::RefCell::new(Cluster::new(0, Faults::default())));
        let hands = Hands {
            wait: &|_: &mut SimulatedStore| step(&shared.borrow(), &now),
            pass: &|_, d| shared.borrow().advance(later(&now, d)),
            compact: &|_, r| shared.borrow().compact(r),
        };
        let fresh = || {
            // Slow, with replies and watches that overtake each other.
            *shared.borrow_mut() = Cluster::new(seed, Faults { delay_max: 50_000_000, ..Faults::default() });
            now.set(0);
            shared.borrow().handle()
        };
        run_all(fresh, hands);
    }
}

/// Two writers increment a key by compare-and-swap while replies and requests get lost. Each increment that was
/// reported is stored, once; one with an unknown outcome is read again and never repeated blindly.
#[test]
fn increments_survive_lost_answers() {
    let faults = Faults { delay_max: 300_000_000, lost_answer: 150, lost_request: 150, ..Faults::default() };
    let mut unknown = 0;
    for seed in 0..40 {
        let (cluster, now) = (Cluster::new(seed, faults), Cell::new(0));
        let mut handles = [cluster.handle(), cluster.handle()];
        let mut sure = 0;
        let ask = |h: &mut SimulatedStore, op| {
            h.submit(state::Request { token: 1, op });
            loop {
                match h.poll() {
                    Some(state::Event::Reply(r)) => return r,
                    Some(other) => panic!("{other:?}"),
                    None => step(&cluster, &now),
                }
            }
        };
        let key = Bytes::from_static(b"n");
        let number = |v: &[Option<state::Entry>]| {
            v[0].as_ref().map_or((0, 0), |e| (String::from_utf8_lossy(&e.value).parse::<u64>().unwrap(), e.modified))
        };
        let mut maybe = 0;
        for i in 0..60 {
            let h = &mut handles[i % 2];
            let Ok(Outcome::Values(v)) = ask(h, Op::get(vec![key.clone()])).result else { continue };
            let (n, modified) = number(&v);
            let compare = vec![state::Compare::Modified(key.clone(), modified)];
            let then = vec![Write::Put(key.clone(), (n + 1).to_string().into(), None)];
            match ask(h, Op::Txn(Txn { compare, then })).result {
                Ok(Outcome::Committed) => sure += 1,
                Ok(Outcome::Conflict) => {}
                Err(StateError::Unknown(_)) => maybe += 1,
                other => panic!("{other:?}"),
            }
        }
        unknown += maybe;
        cluster.set_faults(Faults::default());
        let Ok(Outcome::Values(v)) = ask(&mut handles[0], Op::get(vec![key])).result else { panic!("no faults") };
        let (n, _) = number(&v);
        assert!(n >= sure && n <= sure + maybe, "seed {seed}: {n} of {sure} and perhaps {maybe}");
    }
    assert!(unknown > 100, "the faults came about: {unknown}");
}

/// A follower of a watch: it reads all, watches from there, and restarts where the watch is lost.
#[derive(Default)]
struct Follower {
    view: BTreeMap<Bytes, Bytes>,
    /// Revision of the view.
    at: u64,
    watching: bool,
    /// True while a request is open.
    asked: bool,
    /// Number of watches that were lost, and of those whose beginning the store no longer had.
    lost: usize,
    compacted: usize,
}

impl Follower {
    /// The next request, if none is open.
    fn ask(&mut self, all: &state::Range) -> Option<Op> {
        if std::mem::replace(&mut self.asked, true) {
            return None;
        }
        let watch = Op::Watch { id: 5, range: all.clone(), from: self.at + 1 };
        Some(if self.watching { watch } else { Op::all(all.clone()) })
    }

    fn event(&mut self, e: state::Event, seed: u64) {
        match e {
            state::Event::Changed { revision, changes, .. } => {
                assert!(revision > self.at, "seed {seed}");
                self.at = revision;
                for c in changes {
                    match c.entry {
                        Some(e) => self.view.insert(c.key, e.value),
                        None => self.view.remove(&c.key),
                    };
                }
            }
            state::Event::Lost { .. } => {
                self.lost += 1;
                self.asked = false;
            }
            state::Event::Reply(r) => match r.result {
                Ok(Outcome::Entries { entries, .. }) => {
                    assert!(r.revision >= self.at, "seed {seed}");
                    self.at = r.revision;
                    self.view = entries.into_iter().map(|(k, e)| (k, e.value)).collect();
                    (self.watching, self.asked) = (true, false);
                }
                Ok(_) => {}
                Err(StateError::Compacted(_)) => {
                    self.compacted += 1;
                    (self.watching, self.asked) = (false, false);
                }
                Err(_) => self.asked = false,
            },
        }
    }
}

/// A follower applies a watch and restarts where it is lost. In the end it has the state of the store, and it never saw
/// a revision twice or out of order.
#[test]
fn a_follower_of_a_watch_ends_with_the_stores_state() {
    let (mut lost, mut compacted) = (0, 0);
    for seed in 0..40 {
        let faults = Faults { delay_max: 200_000_000, broken_watch: 60, compaction: 8000, ..Faults::default() };
        let (cluster, now) = (Cluster::new(seed, faults), Cell::new(0));
        let (mut writer, mut follower) = (cluster.handle(), cluster.handle());
        let all = state::Range::prefix(b"k");
        let mut f = Follower::default();
        for i in 0..400u64 {
            if i == 300 {
                cluster.set_faults(Faults::default());
            }
            if i < 300 && i % 3 == 0 {
                let mut t = Txn::default();
                t.put(format!("k{}", i % 7), i.to_string());
                t.put("other", i.to_string());
                writer.submit(state::Request { token: i, op: Op::Txn(t) });
            }
            if let Some(op) = f.ask(&all) {
                follower.submit(state::Request { token: 0, op });
            }
            step(&cluster, &now);
            while let Some(e) = follower.poll() {
                f.event(e, seed);
            }
        }
        while writer.poll().is_some() {}
        writer.submit(state::Request { token: 0, op: Op::all(all) });
        let truth = loop {
            match writer.poll() {
                Some(state::Event::Reply(state::Reply {
                    token: 0,
                    result: Ok(Outcome::Entries { entries, .. }),
                    ..
                })) => {
                    break entries.into_iter().map(|(k, e)| (k, e.value)).collect::<BTreeMap<_, _>>();
                }
                Some(_) => {}
                None => step(&cluster, &now),
            }
        };
        assert_eq!(f.view, truth, "seed {seed}");
        (lost, compacted) = (lost + f.lost, compacted + f.compacted);
    }
    assert!(lost > 20 && compacted > 2, "the faults came about: {lost} {compacted}");
}

fn later(now: &Cell<u64>, d: Duration) -> Mono {
    now.set(now.get() + d.as_nanos() as u64);
    Mono(now.get())
}

#[test]
fn embedded() {
    let dir = TempDir::new("state-conformance");
    let (tx, rx) = sync_channel::<()>(1);
    let tx = Arc::new(tx);
    let (mut n, now) = (0, Cell::new(0));
    let hands = Hands {
        wait: &|_: &mut EmbeddedStore| rx.recv_timeout(Duration::from_secs(60)).expect("an event"),
        pass: &|s, d| s.tick(later(&now, d)),
        compact: &|s, r| s.compact(r),
    };
    run_all(
        || {
            n += 1;
            let tx = Arc::clone(&tx);
            let wake = Box::new(move || {
                let _ = tx.try_send(());
            });
            EmbeddedStore::open(&dir.join(format!("s{n}.redb")), wake).expect("open")
        },
        hands,
    );
}

#[test]
fn embedded_state_survives_reopening() {
    let dir = TempDir::new("state-reopen");
    let path = dir.join("s.redb");
    let (tx, rx) = sync_channel::<()>(1);
    let tx = Arc::new(tx);
    let open = || {
        let tx = Arc::clone(&tx);
        let wake = Box::new(move || {
            let _ = tx.try_send(());
        });
        EmbeddedStore::open(&path, wake).expect("open")
    };
    let hands = Hands {
        wait: &|_: &mut EmbeddedStore| rx.recv_timeout(Duration::from_secs(60)).expect("an event"),
        pass: &|_, _| (),
        compact: &|_, _| (),
    };
    let mut d = Driver::new(open(), hands);
    let lease = match d.ask(Op::Grant(Duration::from_secs(5))).result {
        Ok(Outcome::Lease(l, _)) => l,
        other => panic!("{other:?}"),
    };
    let then = vec![
        Write::Put(Bytes::from_static(b"k"), Bytes::from_static(b"v"), None),
        Write::Put(Bytes::from_static(b"leased"), Bytes::from_static(b"v"), Some(lease)),
    ];
    let once = vec![Write::Put(Bytes::from_static(b"once"), Bytes::from_static(b"v"), None)];
    d.ask(Op::Txn(Txn { then: once, ..Txn::default() }));
    let before = d.ask(Op::Txn(Txn { then, ..Txn::default() })).revision;
    drop(d);
    let mut d = Driver::new(open(), hands);
    // The history starts where the file was opened.
    let old = d.ask(Op::Get { keys: vec![Bytes::from_static(b"k")], at: before - 1 }).result;
    assert_eq!(old, Err(StateError::Compacted(before)));
    let get = |d: &mut Driver<'_, EmbeddedStore>| {
        d.ask(Op::get(vec![Bytes::from_static(b"k"), Bytes::from_static(b"leased")]))
    };
    let r = get(&mut d);
    assert_eq!(r.revision, before);
    match r.result {
        Ok(Outcome::Values(v)) => assert!(v.iter().all(|e| e.as_ref().is_some_and(|e| e.modified == before))),
        other => panic!("{other:?}"),
    }
    // The lease restarts at the first tick after opening, and still expires.
    d.store.tick(base::Mono(1_000_000_000));
    d.store.tick(base::Mono(7_000_000_000));
    match get(&mut d).result {
        Ok(Outcome::Values(v)) => assert!(v[0].is_some() && v[1].is_none()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_second_handle_on_the_same_file_is_refused() {
    let dir = TempDir::new("state-lock");
    let path = dir.join("s.redb");
    let _first = EmbeddedStore::open(&path, Box::new(|| ())).expect("open");
    assert!(EmbeddedStore::open(&path, Box::new(|| ())).is_err());
}
