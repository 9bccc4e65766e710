//! The host of one of several monitors: a front monitor until it is elected, then the leader. All share one state
//! (`state::simulated`), and each has its own handles. Membership, the copy of the state, both sides of the relay and
//! the core are the production code.
//!
//! | module | contents |
//! | --- | --- |
//! | `front` | a front monitor: its copy of the state, its sessions, and its link to the leader |
//! | `lead` | the leader: its first reading of the state, its core, and the links of the front monitors |

use super::mon_addr;
use crate::net::NodeId;
use crate::queue::{MS, SEC, Time};
use crate::world::{Clock, Ctx, Event, Input};
use base::Now;
use base::rng::Rng;
use bytes::Bytes;
use mon::core::MonCore;
use mon::core::quorum::follow::UNREADABLE_MAX;
use mon::core::quorum::front::FrontAuth;
use mon::core::quorum::member::{self, Member, Presence};
use mon::core::start::reading::{Reading, Step};
use mon::state::options::MonOptions;
use state::simulated::{Cluster, SimulatedStore};
use state::{Entry, Op, Request, StateStore as _};
use std::collections::BTreeMap;

use front::InFront;
use lead::Leading;

mod front;
mod lead;

/// Interval of a process's membership ticks, as in the real host.
const TICK: Time = 100 * MS;
/// Pause before a failed step is repeated.
const AGAIN: Time = 200 * MS;
/// Least time until a monitor that stopped by itself is started again.
const STOPPED: Time = 500 * MS;

/// Reads the state at one revision, and tries again after a failure.
struct Load {
    store: SimulatedStore,
    reading: Option<Reading>,
    again: Time,
    records: Option<Vec<(Bytes, Entry)>>,
}

impl Load {
    fn new(store: SimulatedStore) -> Self {
        Self { store, reading: None, again: 0, records: None }
    }

    fn begin(&mut self, ranges: Vec<state::Range>, at: u64) {
        let (reading, first) = Reading::new(ranges, at, 1);
        self.reading = Some(reading);
        self.store.submit(first);
    }

    /// The records that were read, once all are there.
    fn step(&mut self, now: Time) -> Option<(Vec<(Bytes, Entry)>, u64)> {
        while let Some(e) = self.store.poll() {
            let (Some(r), state::Event::Reply(reply)) = (&mut self.reading, e) else { continue };
            match r.reply(reply) {
                Step::Ask(next) => self.store.submit(next),
                Step::Done(records, at) => {
                    self.reading = None;
                    return Some((records, at));
                }
                Step::Failed(_) => {
                    (self.reading, self.records) = (None, None);
                    self.again = now + AGAIN;
                }
                Step::NotMine => {}
            }
        }
        None
    }

    fn may_begin(&self, now: Time) -> bool {
        self.reading.is_none() && self.records.is_none() && now >= self.again
    }
}

enum Stage {
    /// Reads its copy of the state for the first time.
    Begins(Load),
    InFront(Box<InFront>),
    /// Has been elected with this fence, and reads the state.
    Loads(Load, (Bytes, u64)),
    Leads(Box<Leading>),
    /// Changes from one stage to another.
    Changes,
}

struct Process {
    inc: u64,
    member: Member,
    membership: SimulatedStore,
    stage: Stage,
    leader: Option<Presence>,
    written: u64,
    peers: BTreeMap<String, Presence>,
    elected: Option<(Bytes, u64)>,
}

/// A monitor's node; see the module.
pub struct MonsNode {
    /// Its clocks.
    pub clock: Clock,
    node: NodeId,
    name: String,
    cluster: Cluster,
    options: MonOptions,
    process: Option<Process>,
    /// Number of faults that cut the node off from the state.
    cuts: u32,
    /// True while its requests to the state are delayed and its lease is not renewed.
    late: bool,
    /// The reason why the monitor stopped by itself.
    stopped: Option<String>,
}

/// Name of a monitor.
#[must_use]
pub fn name(i: usize) -> String {
    char::from(b'a' + i as u8).to_string()
}

impl MonsNode {
    /// Creates monitor number `i` at this node, over this state.
    #[must_use]
    pub fn new(clock: Clock, node: NodeId, i: usize, cluster: Cluster, options: MonOptions) -> Self {
        Self { clock, node, name: name(i), cluster, options, process: None, cuts: 0, late: false, stopped: None }
    }

    /// Number of the process.
    #[must_use]
    pub fn inc(&self) -> Option<u64> {
        self.process.as_ref().map(|p| p.inc)
    }

    /// The core of a leader that serves, and the revision of its fence.
    #[must_use]
    pub fn leads(&self) -> Option<(u64, &MonCore)> {
        match &self.process.as_ref()?.stage {
            Stage::Leads(l) if l.listening => Some((l.fence, &l.core)),
            _ => None,
        }
    }

    /// The entities that may sign in by the copy of a front monitor, and its revision.
    #[must_use]
    pub fn copy(&self) -> Option<(u64, &FrontAuth)> {
        match &self.process.as_ref()?.stage {
            Stage::InFront(f) => Some((f.auth.replica.borrow().revision, &f.auth)),
            _ => None,
        }
    }

    /// Reason for which the monitor does not serve; `None` if it serves.
    #[must_use]
    pub fn unwell(&self) -> Option<&'static str> {
        let Some(p) = &self.process else { return Some("does not run") };
        match &p.stage {
            Stage::Leads(l) if l.listening => None,
            Stage::InFront(f) if !f.listening => Some("does not listen"),
            Stage::InFront(f) if !f.link.as_ref().is_some_and(|l| l.2) => Some("has no connection to the leader"),
            Stage::InFront(_) => None,
            _ => Some("begins"),
        }
    }

    /// True if an event of the state waits for this monitor.
    #[must_use]
    pub fn has_events(&self) -> bool {
        let stage = |s: &Stage| match s {
            Stage::Begins(l) | Stage::Loads(l, _) => l.store.is_ready(),
            Stage::InFront(f) => f.store.is_ready(),
            Stage::Leads(l) => l.store.is_ready(),
            Stage::Changes => false,
        };
        self.process.as_ref().is_some_and(|p| p.membership.is_ready() || stage(&p.stage))
    }

    /// Cuts the monitor off from the state, or undoes one cut.
    pub fn cut_off(&mut self, cut: bool) {
        self.cuts = if cut { self.cuts + 1 } else { self.cuts.saturating_sub(1) };
        self.apply_cuts();
    }

    /// Undoes all cuts.
    pub fn join(&mut self) {
        self.cuts = 0;
        self.apply_cuts();
    }

    /// Stops the renewal of the leader's lease, and delays its requests to the state.
    pub fn hold(&mut self) {
        let Some(Process { stage: Stage::Leads(l), .. }) = &self.process else { return };
        self.cluster.hold(&l.store);
        self.late = true;
        self.apply_cuts();
    }

    /// Lets the delayed requests to the state arrive.
    pub fn release(&mut self) {
        self.cluster.release();
        self.late = false;
        self.apply_cuts();
    }

    fn apply_cuts(&self) {
        let Some(p) = &self.process else { return };
        let cut = self.cuts > 0;
        self.cluster.cut(&p.membership, cut || self.late);
        match &p.stage {
            Stage::Begins(l) | Stage::Loads(l, _) => self.cluster.cut(&l.store, cut),
            Stage::InFront(f) => self.cluster.cut(&f.store, cut),
            Stage::Leads(l) => self.cluster.cut(&l.store, cut),
            Stage::Changes => {}
        }
    }

    fn handle_of(&self) -> SimulatedStore {
        let h = self.cluster.handle();
        self.cluster.cut(&h, self.cuts > 0);
        h
    }

    /// Starts a process, which begins as a front monitor.
    pub fn start(&mut self, cx: &mut Ctx) {
        let inc = cx.new_inc();
        (self.stopped, self.late) = (None, false);
        let instance = Rng::new(cx.options.seed ^ 0x6d65_6d62_6572 ^ inc << 32).next_u64();
        let me = Presence { name: self.name.clone(), addr: mon_addr(self.node), instance, metadata: BTreeMap::new() };
        self.process = Some(Process {
            inc,
            member: Member::new(me, true, self.clock.now(cx.now()).mono),
            membership: self.handle_of(),
            stage: Stage::Begins(Load::new(self.handle_of())),
            leader: None,
            written: 0,
            peers: BTreeMap::new(),
            elected: None,
        });
        cx.queue.after(TICK, Event::Timer(self.node, inc));
        self.turn(cx, true);
    }

    /// Ends the process. Its requests to the state may still arrive.
    pub fn crash(&mut self) {
        self.process = None;
        self.stopped = None;
    }

    /// If the process has stopped by itself: the time until it starts again.
    pub fn wants_to_die(&mut self, cx: &mut Ctx) -> Option<(bool, Time)> {
        let why = self.stopped.take()?;
        let node = self.node;
        cx.line(|| format!("mon node {node} stops: {why}"));
        // The real process gives its lease back when it stops.
        if let Some(p) = &mut self.process
            && let Some(l) = p.member.to_give_back()
        {
            p.membership.submit(Request { token: 0, op: Op::Revoke(l) });
        }
        Some((false, STOPPED + cx.rng.below(SEC)))
    }

    fn stop(&mut self, why: impl Into<String>) {
        self.stopped.get_or_insert(why.into());
    }

    /// An event.
    pub fn handle(&mut self, input: Input, cx: &mut Ctx) {
        if self.stopped.is_some() {
            return;
        }
        let now = self.clock.now(cx.now());
        let timer = matches!(input, Input::Timer);
        if timer {
            if let Some(p) = &self.process {
                cx.queue.after(TICK, Event::Timer(self.node, p.inc));
            }
        } else if let Input::Net(a) = input {
            match self.process.as_ref().map(|p| &p.stage) {
                Some(Stage::InFront(_)) => self.front_arrival(a, now, cx),
                Some(Stage::Leads(_)) => self.leader_arrival(a, now, cx),
                _ => {}
            }
        }
        self.turn(cx, timer);
    }

    fn turn(&mut self, cx: &mut Ctx, timer: bool) {
        let now = self.clock.now(cx.now());
        cx.state_now();
        self.belong(now);
        self.begin(cx);
        self.front_turn(now, timer, cx);
        self.load(now, cx);
        self.leader_turn(now, cx);
        cx.state_events();
    }

    /// Runs the membership, and acts on its outputs.
    fn belong(&mut self, now: Now) {
        let Some(p) = &mut self.process else { return };
        while let Some(e) = p.membership.poll() {
            if let state::Event::Reply(r) = e {
                p.member.reply(r, now.mono);
            }
        }
        p.member.tick(now.mono);
        let mut why = None;
        for o in p.member.take_outputs() {
            match o {
                member::Output::Submit(r) => p.membership.submit(r),
                member::Output::Leader(l) => p.leader = l,
                member::Output::Written(revision) => p.written = revision.max(p.written),
                member::Output::Elected { fence } => p.elected = Some(fence),
                member::Output::Deposed(w) => why = Some(format!("this monitor no longer leads: {w}")),
                member::Output::Peers(peers) => p.peers = peers,
                // The simulated store drops its history by itself.
                member::Output::Compact(_) => {}
            }
        }
        if now.mono.since(p.member.heard()) > UNREADABLE_MAX {
            why = Some("the state store has not answered".into());
        }
        if let Some(why) = why {
            self.stop(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Options, Size};
    use crate::several::Several;
    use state::simulated::Faults;

    #[test]
    fn requests_after_a_silence_count_from_their_own_time() {
        let mut cx = Ctx::new(Options::swarm(1, Size::default()), 1, false);
        let cluster = Cluster::new(1, Faults::default());
        cx.several = Some(Box::new(Several::new(cluster.clone(), vec![0], false)));
        cx.queue.at(10 * SEC, Event::Witness);
        cx.queue.pop();
        let mut m = MonsNode::new(Clock::draw(&mut Rng::new(1), 0), 0, 0, cluster.clone(), MonOptions::default());
        m.start(&mut cx);
        let first = cluster.next_step().expect("the lease is asked for");
        assert!(first.0 >= 10 * SEC, "a lease that the state counts from {first:?}");
    }
}
