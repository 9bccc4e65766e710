//! A replicated state in memory, with several handles and what goes wrong between them and it: requests and answers that
//! take time, outcomes that nobody learns, watches that lag behind each other or break, a past that is compacted early,
//! leases that end before their time, handles that are cut off.
//!
//! All of it is drawn from one seed, and time only passes by [`Cluster::advance`].

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use base::Mono;
use base::rng::Rng;

use crate::api::{Event, Op, Reply, Request, StateError, StateStore, Token, WatchId};
use crate::engine::Engine;
use crate::memory::MemTree;

/// What may go wrong, each as chance in 1000 per request (leases and compaction: per second that passes).
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Longest way of a request or an answer, in nanoseconds.
    pub delay_max: u64,
    /// The answer to a request that took effect gets lost.
    pub lost_answer: u64,
    /// A request gets lost on its way: its sender hears that the outcome is unknown, and it may still arrive.
    pub lost_request: u64,
    /// A watch ends.
    pub broken_watch: u64,
    /// The past is forgotten.
    pub compaction: u64,
    /// A lease ends early.
    pub lost_lease: u64,
}

/// How long a sender waits for an answer before it takes the outcome as unknown.
pub const TIMEOUT: u64 = 2_000_000_000;
/// How long a lost request may wander.
const LATE: u64 = 10_000_000_000;

type HandleId = usize;

enum Step {
    /// A request reaches the store.
    Arrive(HandleId, u64, Request),
    /// Its sender gives up; the tokens of requests are not unique over time, so they are counted.
    GiveUp(HandleId, u64, Token),
    /// An event reaches its owner.
    Deliver(HandleId, Option<u64>, Event),
}

#[derive(Default)]
struct Handle {
    /// Requests without an answer, by count, in the order submitted.
    open: BTreeMap<u64, Token>,
    /// When the newest event of a watch (or answer, for `None`) arrives: later ones come no sooner.
    order: BTreeMap<Option<WatchId>, u64>,
    /// When the newest request arrives.
    request_order: u64,
    ready: VecDeque<Event>,
    /// Names of the handle's watches in the engine.
    watches: BTreeMap<WatchId, WatchId>,
    cut: bool,
    ended: bool,
}

struct World {
    tree: MemTree,
    engine: Engine,
    faults: Faults,
    rng: Rng,
    now: u64,
    count: u64,
    queue: BTreeMap<(u64, u64), Step>,
    handles: Vec<Handle>,
    /// Owner and his name of each watch of the engine.
    watches: BTreeMap<WatchId, (HandleId, WatchId)>,
}

/// The store that handles share.
#[derive(Clone)]
pub struct Cluster(Rc<RefCell<World>>);

impl Cluster {
    /// An empty store.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        Self(Rc::new(RefCell::new(World {
            tree: MemTree::default(),
            engine: Engine::default(),
            faults,
            rng: Rng::new(seed),
            now: 0,
            count: 0,
            queue: BTreeMap::new(),
            handles: Vec::new(),
            watches: BTreeMap::new(),
        })))
    }

    /// A handle for one user.
    #[must_use]
    pub fn handle(&self) -> SimulatedStore {
        let mut w = self.0.borrow_mut();
        w.handles.push(Handle::default());
        SimulatedStore { cluster: self.clone(), id: w.handles.len() - 1 }
    }

    /// Other faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.0.borrow_mut().faults = faults;
    }

    /// Cuts a handle off the store, or joins it again. What it asks meanwhile has no effect, which it does not know.
    pub fn cut(&self, handle: &SimulatedStore, cut: bool) {
        if let Some(h) = self.0.borrow_mut().handles.get_mut(handle.id) {
            h.cut = cut;
        }
    }

    /// Makes the past below a revision unreadable.
    pub fn compact(&self, revision: u64) {
        self.0.borrow_mut().engine.compact(revision);
    }

    /// Lets time pass up to `now`.
    pub fn advance(&self, now: Mono) {
        self.0.borrow_mut().advance(now.0);
    }

    /// When something happens next by itself.
    #[must_use]
    pub fn next_step(&self) -> Option<Mono> {
        self.0.borrow().queue.keys().next().map(|(t, _)| Mono(*t))
    }
}

impl World {
    fn delay(&mut self) -> u64 {
        match self.faults.delay_max {
            0 => 0,
            n => self.rng.below(n),
        }
    }

    fn at(&mut self, when: u64, step: Step) {
        self.count += 1;
        self.queue.insert((when, self.count), step);
    }

    fn advance(&mut self, to: u64) {
        while let Some(e) = self.queue.first_entry()
            && e.key().0 <= to
        {
            let ((when, _), step) = e.remove_entry();
            self.pass(when);
            self.step(step);
        }
        self.pass(to);
    }

    /// What time alone brings about.
    fn pass(&mut self, to: u64) {
        if to <= self.now {
            return;
        }
        let ms = (to - self.now).div_ceil(1_000_000).min(1000);
        self.now = to;
        let mut out = Vec::new();
        if self.engine.tick(Mono(to)) {
            // The tree in memory cannot fail.
            let _ = self.engine.expire(&mut self.tree, &mut out);
        }
        if self.rng.chance(self.faults.compaction * ms, 1_000_000) {
            let back = self.rng.below(20);
            self.engine.compact(self.engine.revision().saturating_sub(back));
        }
        if self.rng.chance(self.faults.lost_lease * ms, 1_000_000) {
            let all = self.engine.lease_ids();
            let pick = self.rng.below(all.len().max(1) as u64) as usize;
            if let Some(l) = all.get(pick) {
                let _ = self.engine.lose_lease(&mut self.tree, *l, &mut out);
            }
        }
        self.distribute(out);
    }

    fn submit(&mut self, id: HandleId, r: Request) {
        self.count += 1;
        let n = self.count;
        let mut when = self.now + self.delay();
        let lost = self.rng.chance(self.faults.lost_request, 1000);
        let late = self.rng.below(LATE);
        let Some(h) = self.handles.get_mut(id) else { return };
        h.open.insert(n, r.token);
        // What is lost wanders on its own; everything else arrives in order.
        if lost || h.cut {
            when += late;
        } else {
            when = when.max(h.request_order);
            h.request_order = when;
        }
        let never = h.cut;
        let token = r.token;
        if !never {
            self.at(when, Step::Arrive(id, n, r));
        }
        self.at(self.now + TIMEOUT, Step::GiveUp(id, n, token));
    }

    fn step(&mut self, s: Step) {
        match s {
            Step::Arrive(id, n, r) => self.arrive(id, n, r),
            Step::GiveUp(id, n, token) => {
                let why = StateError::Unknown("no answer in time".into());
                self.answer(id, n, Reply { token, revision: 0, result: Err(why) });
            }
            Step::Deliver(id, Some(n), Event::Reply(r)) => self.answer(id, n, r),
            Step::Deliver(id, _, e) => {
                if let Some(h) = self.handles.get_mut(id).filter(|h| !h.ended) {
                    h.ready.push_back(e);
                }
            }
        }
    }

    fn answer(&mut self, id: HandleId, n: u64, r: Reply) {
        if let Some(h) = self.handles.get_mut(id)
            && h.open.remove(&n).is_some()
            && !h.ended
        {
            h.ready.push_back(Event::Reply(r));
        }
    }

    fn arrive(&mut self, id: HandleId, n: u64, mut r: Request) {
        // Names of watches are each handle's own; a watch that was asked for in vain is not begun late.
        let waits = self.handles.get(id).is_some_and(|h| h.open.contains_key(&n) && !h.ended && !h.cut);
        match &mut r.op {
            Op::Watch { id: name, .. } => {
                if !waits {
                    return;
                }
                self.end_watch(id, *name);
                self.watches.insert(n, (id, *name));
                if let Some(h) = self.handles.get_mut(id) {
                    h.watches.insert(*name, n);
                }
                *name = n;
            }
            Op::Unwatch(name) => {
                let own = *name;
                *name = self.handles.get(id).and_then(|h| h.watches.get(&own).copied()).unwrap_or(u64::MAX);
                self.end_watch(id, own);
            }
            _ => {}
        }
        let watch = if let Op::Watch { id, .. } = &r.op { Some(*id) } else { None };
        let mut out = Vec::new();
        self.engine.run(&mut self.tree, r, &mut out);
        let mut rest = out.split_off(1);
        let Some(reply) = out.pop() else { return };
        if let (Some(w), Event::Reply(Reply { result: Err(_), .. })) = (watch, &reply) {
            self.watches.remove(&w);
        }
        let lost = self.rng.chance(self.faults.lost_answer, 1000);
        let cut = self.handles.get(id).is_none_or(|h| h.cut);
        if !lost && !cut {
            self.deliver(id, None, Some(n), reply);
        }
        if self.rng.chance(self.faults.broken_watch, 1000) {
            let pick = self.rng.below(self.watches.len().max(1) as u64) as usize;
            if let Some((inner, (owner, name))) = self.watches.iter().nth(pick).map(|(k, v)| (*k, *v)) {
                self.engine.unwatch(inner);
                self.watches.remove(&inner);
                let why = StateError::Unavailable("the watch broke".into());
                self.deliver(owner, Some(name), None, Event::Lost { watch: name, why });
                // What it would have seen of this request is lost with it.
                rest.retain(|e| !matches!(e, Event::Changed { watch, .. } if *watch == inner));
            }
        }
        self.distribute(rest);
    }

    fn end_watch(&mut self, id: HandleId, name: WatchId) {
        if let Some(inner) = self.handles.get_mut(id).and_then(|h| h.watches.remove(&name)) {
            self.engine.unwatch(inner);
            self.watches.remove(&inner);
        }
    }

    /// Sends the events of watches on their way.
    fn distribute(&mut self, events: Vec<Event>) {
        for e in events {
            let Event::Changed { watch, revision, changes } = e else { continue };
            let Some((owner, name)) = self.watches.get(&watch).copied() else { continue };
            if self.handles.get(owner).is_none_or(|h| h.cut) {
                // A stream that is cut loses what it does not carry, and says so when it is joined again.
                self.engine.unwatch(watch);
                self.watches.remove(&watch);
                let why = StateError::Unavailable("cut off".into());
                self.deliver(owner, Some(name), None, Event::Lost { watch: name, why });
                continue;
            }
            self.deliver(owner, Some(name), None, Event::Changed { watch: name, revision, changes });
        }
    }

    fn deliver(&mut self, id: HandleId, lane: Option<WatchId>, n: Option<u64>, e: Event) {
        let when = self.now + self.delay();
        let Some(h) = self.handles.get_mut(id) else { return };
        let newest = h.order.entry(lane).or_insert(0);
        let when = when.max(*newest);
        *newest = when;
        self.at(when, Step::Deliver(id, n, e));
    }
}

/// One user's handle.
pub struct SimulatedStore {
    cluster: Cluster,
    id: HandleId,
}

impl StateStore for SimulatedStore {
    fn submit(&mut self, request: Request) {
        self.cluster.0.borrow_mut().submit(self.id, request);
    }

    fn poll(&mut self) -> Option<Event> {
        self.cluster.0.borrow_mut().handles.get_mut(self.id)?.ready.pop_front()
    }

    fn tick(&mut self, _: Mono) {}
}

impl Drop for SimulatedStore {
    fn drop(&mut self) {
        let mut w = self.cluster.0.borrow_mut();
        let names: Vec<WatchId> =
            w.handles.get(self.id).map(|h| h.watches.keys().copied().collect()).unwrap_or_default();
        for name in names {
            w.end_watch(self.id, name);
        }
        if let Some(h) = w.handles.get_mut(self.id) {
            h.ended = true;
            h.ready.clear();
        }
    }
}
