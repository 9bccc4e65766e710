//! Keeps a front monitor's copy of the state current, with one watch, and reads it again when the watch ends. No I/O
//! and no clock.
//!
//! Invariants:
//!  1. The copy equals the state at the copy's revision. If the watch is lost, compacted, or behind the store for too
//!     long, the copy is read again at one revision and watched from the next one on.
//!  2. If the state can't be read for [`UNREADABLE_MAX`], the monitor stops, since it does not know which clients may sign in.
//!
//! Tests: below (1, `changes_during_a_broken_watch_are_read`,
//! `a_copy_older_than_the_compacted_revision_is_read_again`, `a_copy_that_stays_behind_is_detected`; 2,
//! `a_follower_that_cannot_read_stops`).

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use base::Mono;
use base::planted::{Bug, acts};
use bytes::Bytes;
use state::{Event, Op, Range, Request, Token, WatchId};

use super::front::Replica;
use crate::core::start::reading::{Reading, Step};
use crate::state::options::MonOptions;
use crate::state::records::key;

/// Time after which a copy that lacks a known change is read again.
const LAG: Duration = Duration::from_secs(3);
/// Pause before a failed read is repeated.
const AGAIN: Duration = Duration::from_millis(200);
/// Time without a successful read after which the monitor stops.
pub const UNREADABLE_MAX: Duration = Duration::from_secs(30);

/// An effect of one call.
#[derive(Debug)]
pub enum Output {
    /// Ask the state store.
    Submit(Request),
    /// The copy has changed.
    Changed,
    /// The leader's record changed in the store, or may have changed.
    Leader,
    /// A line for the log: why the copy is read again.
    Reread(String),
    /// A line for the log: why a read failed. It is repeated.
    Failed(String),
    /// The monitor stops.
    Stop(String),
}

/// Detects a watch that stays behind the revision that the store is known to have.
#[derive(Debug, Default)]
struct Lag(Option<(u64, Mono)>);

impl Lag {
    /// True if a change has been known for longer than [`LAG`] and has not arrived.
    fn too_long(&mut self, here: u64, written: u64, now: Mono) -> bool {
        if self.0.is_some_and(|(want, _)| here >= want) {
            self.0 = None;
        }
        if self.0.is_none() && here < written {
            self.0 = Some((written, now));
        }
        self.0.is_some_and(|(_, since)| now.since(since) > LAG)
    }
}

#[derive(Debug)]
enum Stage {
    Watching(WatchId, Lag),
    /// The copy is being read again, since this time.
    Reading(Mono, Reading),
    /// Reading has failed since the first time; the next attempt is at the second.
    Paused(Mono, Mono),
}

/// Keeps a front monitor's [`Replica`] current with one watch; see the module.
pub struct Follower {
    name: String,
    options: MonOptions,
    replica: Rc<RefCell<Replica>>,
    stage: Stage,
    /// Ids of watches and requests are never reused, so late events of earlier ones are recognised.
    count: u64,
    out: Vec<Output>,
}

impl Follower {
    /// Follows the store from the copy's revision on, as the monitor `name` with these local options.
    #[must_use]
    pub fn new(name: &str, options: &MonOptions, replica: Rc<RefCell<Replica>>) -> Self {
        let stage = Stage::Watching(0, Lag::default());
        let (name, options) = (name.to_owned(), options.clone());
        let mut me = Self { name, options, replica, stage, count: 0, out: Vec::new() };
        me.watch(false);
        me
    }

    /// Effects of the calls so far.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    fn submit(&mut self, op: Op) {
        self.out.push(Output::Submit(Request { token: self.count, op }));
    }

    fn watch(&mut self, gap: bool) {
        self.count += 1;
        let from = if gap { 0 } else { self.replica.borrow().revision + 1 };
        self.stage = Stage::Watching(self.count, Lag::default());
        self.submit(Op::Watch { id: self.count, range: Range { start: Bytes::new(), end: None }, from });
    }

    fn read(&mut self, since: Mono) {
        self.count += 1;
        let token: Token = self.count;
        let (reading, first) = Reading::new(Replica::ranges(), 0, token);
        self.stage = Stage::Reading(since, reading);
        self.out.push(Output::Submit(first));
    }

    fn lost(&mut self, why: String, now: Mono) {
        if let Stage::Watching(id, _) = &self.stage {
            let id = *id;
            self.submit(Op::Unwatch(id));
            self.out.push(Output::Reread(why));
            if acts(Bug::IgnoreWatchGap) {
                return self.watch(true);
            }
            self.stage = Stage::Paused(now, now + AGAIN);
        }
    }

    /// Handles an event of the store.
    pub fn event(&mut self, e: Event, now: Mono) {
        match (&mut self.stage, e) {
            (Stage::Watching(id, _), Event::Changed { watch, revision, changes }) if *id == watch => {
                let applied = self.replica.borrow_mut().apply(revision, &changes);
                if changes.iter().any(|c| c.key == key::MON_LEADER) {
                    self.out.push(Output::Leader);
                }
                match applied {
                    Ok(()) => self.out.push(Output::Changed),
                    Err(e) => self.lost(e.to_string(), now),
                }
            }
            (Stage::Watching(id, _), Event::Lost { watch, why }) if *id == watch => self.lost(why.to_string(), now),
            (Stage::Watching(id, _), Event::Reply(r)) if *id == r.token => {
                if let Err(e) = r.result {
                    self.lost(e.to_string(), now);
                }
            }
            (Stage::Reading(since, reading), Event::Reply(r)) => {
                let since = *since;
                match reading.reply(r) {
                    Step::Ask(next) => self.out.push(Output::Submit(next)),
                    Step::Done(records, revision) => self.loaded(&records, revision, since, now),
                    Step::Failed(e) => self.failed(e.to_string(), since, now),
                    Step::NotMine => {}
                }
            }
            _ => {}
        }
    }

    fn loaded(&mut self, records: &[(Bytes, state::Entry)], revision: u64, since: Mono, now: Mono) {
        match Replica::load(records, revision, &self.name, &self.options) {
            Ok(r) => {
                *self.replica.borrow_mut() = r;
                self.out.extend([Output::Changed, Output::Leader]);
                self.watch(false);
            }
            Err(e) => self.failed(e.to_string(), since, now),
        }
    }

    fn failed(&mut self, why: String, since: Mono, now: Mono) {
        self.out.push(Output::Failed(why));
        self.stage = Stage::Paused(since, now + AGAIN);
    }

    /// Lets time pass; `written` is the newest revision that the store is known to have. To be called several times a second.
    pub fn tick(&mut self, written: u64, now: Mono) {
        match &mut self.stage {
            Stage::Watching(_, lag) => {
                let here = self.replica.borrow().revision;
                if lag.too_long(here, written, now) {
                    self.lost(format!("the store has had a newer revision for {} s", LAG.as_secs()), now);
                }
            }
            Stage::Reading(since, _) | Stage::Paused(since, _) if now.since(*since) > UNREADABLE_MAX => {
                let why =
                    format!("keys and caps could not be read from the state store for {} s", UNREADABLE_MAX.as_secs());
                self.out.push(Output::Stop(why));
            }
            Stage::Paused(since, at) if now >= *at => {
                let since = *since;
                self.read(since);
            }
            Stage::Reading(..) | Stage::Paused(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::records::{FORMAT, key, value};
    use cluster::MonMap;
    use state::simulated::{Cluster, Faults, SimulatedStore};
    use state::{Outcome, StateError, StateStore as _, Txn};

    struct Here {
        cluster: Cluster,
        store: SimulatedStore,
        other: SimulatedStore,
        replica: Rc<RefCell<Replica>>,
        follower: Follower,
        now: u64,
        stopped: bool,
        leader_changes: usize,
        failures: Vec<String>,
    }

    /// A change by another monitor.
    fn put(h: &mut SimulatedStore, c: &Cluster, now: u64, k: &str, v: &str) {
        let mut t = Txn::default();
        t.put(k.to_owned(), v.to_owned());
        h.submit(Request { token: 1, op: Op::Txn(t) });
        c.advance(Mono(now));
        let Some(Event::Reply(r)) = h.poll() else { panic!("an answer") };
        assert_eq!(r.result, Ok(Outcome::Committed));
    }

    impl Here {
        fn new() -> Self {
            let cluster = Cluster::new(1, Faults::default());
            let mut other = cluster.handle();
            let mut t = Txn::default();
            t.put(key::FORMAT, value(&FORMAT));
            t.put(key::MONMAP, value(&MonMap::default()));
            other.submit(Request { token: 1, op: Op::Txn(t) });
            cluster.advance(Mono(0));
            other.poll();
            let mut store = cluster.handle();
            let (mut reading, first) = Reading::new(Replica::ranges(), 0, 1);
            store.submit(first);
            let replica = loop {
                cluster.advance(Mono(0));
                let Some(Event::Reply(r)) = store.poll() else { panic!("an answer") };
                match reading.reply(r) {
                    Step::Ask(next) => store.submit(next),
                    Step::Done(records, at) => {
                        break Replica::load(&records, at, "a", &MonOptions::default()).unwrap();
                    }
                    s => panic!("{s:?}"),
                }
            };
            let replica = Rc::new(RefCell::new(replica));
            let follower = Follower::new("a", &MonOptions::default(), Rc::clone(&replica));
            Self {
                cluster,
                store,
                other,
                replica,
                follower,
                now: 0,
                stopped: false,
                leader_changes: 0,
                failures: Vec::new(),
            }
        }

        fn run(&mut self, ms: u64) {
            let end = self.now + ms * 1_000_000;
            while self.now < end {
                for o in self.follower.take_outputs() {
                    match o {
                        Output::Submit(r) => self.store.submit(r),
                        Output::Stop(_) => self.stopped = true,
                        Output::Leader => self.leader_changes += 1,
                        Output::Failed(why) => self.failures.push(why),
                        Output::Changed | Output::Reread(_) => {}
                    }
                }
                self.now += 50_000_000;
                self.cluster.advance(Mono(self.now));
                while let Some(e) = self.store.poll() {
                    self.follower.event(e, Mono(self.now));
                }
                self.follower.tick(0, Mono(self.now));
            }
        }

        fn option(&self, name: &str) -> Option<String> {
            self.replica.borrow().options.settings.given(name).map(str::to_owned)
        }

        fn set(&mut self, name: &str, v: &str) {
            put(&mut self.other, &self.cluster, self.now, &format!("config/value/mon\0{name}"), v);
        }
    }

    #[test]
    fn changes_during_a_broken_watch_are_read() {
        let mut h = Here::new();
        h.run(200);
        h.set("debug_ms", "1");
        h.run(200);
        assert_eq!(h.option("debug_ms").as_deref(), Some("1"), "what a watch tells");
        h.cluster.cut(&h.store, true);
        h.set("debug_ms", "2");
        h.cluster.cut(&h.store, false);
        h.run(200);
        assert_eq!(h.option("debug_ms").as_deref(), Some("1"), "what nobody told");
        h.run(1000);
        assert_eq!(h.option("debug_ms").as_deref(), Some("2"), "what was read");
        h.set("debug_ms", "3");
        h.run(200);
        assert_eq!(h.option("debug_ms").as_deref(), Some("3"), "what the new watch tells");
        assert!(!h.stopped);
    }

    #[test]
    fn a_change_of_the_leader_is_reported() {
        let mut h = Here::new();
        h.run(200);
        h.set("debug_ms", "1");
        h.run(200);
        assert_eq!(h.leader_changes, 0, "another key");
        put(&mut h.other, &h.cluster, h.now, key::MON_LEADER, "b");
        h.run(200);
        assert_eq!(h.leader_changes, 1);
        let gone = Txn { then: vec![state::Write::Delete(key::MON_LEADER.into())], ..Txn::default() };
        h.other.submit(Request { token: 1, op: Op::Txn(gone) });
        h.run(200);
        assert_eq!(h.leader_changes, 2);
        // Changes between two watches are not known, so the leader's record counts as changed.
        h.cluster.cut(&h.store, true);
        h.set("debug_ms", "2");
        h.cluster.cut(&h.store, false);
        h.run(1500);
        assert_eq!(h.leader_changes, 3);
    }

    #[test]
    fn a_copy_older_than_the_compacted_revision_is_read_again() {
        let mut h = Here::new();
        // Between the first read and the watch the revision that the watch asks for is compacted.
        for n in 0..50 {
            h.set("debug_ms", &n.to_string());
        }
        let newest = h.replica.borrow().revision + 50;
        h.cluster.compact(newest);
        h.run(1000);
        assert_eq!(h.option("debug_ms").as_deref(), Some("49"), "read");
        h.set("debug_ms", "50");
        h.run(200);
        assert_eq!(h.option("debug_ms").as_deref(), Some("50"), "watched");
        assert!(!h.stopped);
    }

    #[test]
    fn a_record_that_does_not_decode_is_not_applied() {
        let mut h = Here::new();
        h.run(200);
        h.set("debug_ms", "1");
        h.run(200);
        put(&mut h.other, &h.cluster, h.now, "auth/client.x", "no entity");
        put(&mut h.other, &h.cluster, h.now, key::MONMAP, "no map");
        h.run(5000);
        assert_eq!(h.option("debug_ms").as_deref(), Some("1"), "the copy from before serves on");
        assert!(!h.stopped);
        h.run(30_000);
        assert!(h.stopped, "who cannot know who may sign in stops");
        assert!(
            h.failures.iter().any(|why| why.contains("auth/client.x") || why.contains(key::MONMAP)),
            "{:?}",
            h.failures
        );
    }

    #[test]
    fn a_follower_that_cannot_read_stops() {
        let mut h = Here::new();
        h.run(200);
        h.cluster.cut(&h.store, true);
        h.set("debug_ms", "2");
        h.run(25_000);
        assert!(!h.stopped);
        h.run(15_000);
        assert!(h.stopped);
    }

    #[test]
    fn a_read_at_a_compacted_revision_starts_again() {
        let (mut r, first) = Reading::new(vec![Range::prefix(b"a"), Range::prefix(b"b")], 0, 7);
        let reply = |revision, result| state::Reply { token: 7, revision, result };
        let entries = || Outcome::Entries { entries: Vec::new(), more: false };
        let at = |s: Step| match s {
            Step::Ask(Request { op: Op::Range { at, range, .. }, .. }) => (range, at),
            s => panic!("{s:?}"),
        };
        assert_eq!(at(Step::Ask(first)), (Range::prefix(b"a"), 0));
        assert_eq!(at(r.reply(reply(5, Ok(entries())))), (Range::prefix(b"b"), 5));
        assert!(matches!(r.reply(state::Reply { token: 6, revision: 9, result: Ok(entries()) }), Step::NotMine));
        assert_eq!(at(r.reply(reply(0, Err(StateError::Compacted(6))))), (Range::prefix(b"a"), 0));
        assert_eq!(at(r.reply(reply(8, Ok(entries())))), (Range::prefix(b"b"), 8));
        assert!(matches!(r.reply(reply(8, Ok(entries()))), Step::Done(_, 8)));
        // If the caller gave the revision, no other one is tried.
        let (mut r, _) = Reading::new(vec![Range::prefix(b"a"), Range::prefix(b"b")], 5, 7);
        assert!(matches!(r.reply(reply(5, Ok(entries()))), Step::Ask(_)));
        assert!(matches!(r.reply(reply(0, Err(StateError::Compacted(6)))), Step::Failed(_)));
    }

    #[test]
    fn a_copy_that_stays_behind_is_detected() {
        let at = |ms: u64| Mono(ms * 1_000_000);
        let mut lag = Lag::default();
        assert!(!lag.too_long(10, 10, at(0)));
        assert!(!lag.too_long(10, 12, at(100)));
        assert!(!lag.too_long(12, 20, at(3000)), "it got there, and has a while for what came since");
        assert!(!lag.too_long(15, 30, at(5900)));
        assert!(lag.too_long(19, 40, at(6001)), "20 was known at 3000");
    }
}
