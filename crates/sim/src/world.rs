//! The world around the nodes: time, network, and processes that run, are paused or are gone.

use crate::files::{self, Files};
use crate::net::{Arrival, Net, NetEvent, NodeId};
use crate::node::promises::Promises;
use crate::node::{MON, Node, mon_addr};
use crate::options::Options;
use crate::queue::{Queue, SEC, Time};
use crate::several::Several;
use crate::trace::Trace;
use base::rng::Rng;
use base::{EntityAddr, Epoch, Mono, Now, Utime};
use std::collections::VecDeque;
use std::time::Duration;

/// Wall clock at the beginning of a run, in seconds since 1970.
const WALL_START: u32 = 1_700_000_000;
/// Time for which an OSD that the trap killed is away.
const TRAPPED: Time = 40 * SEC;
/// Most events that may wait for a paused process.
const DEFERRED_MAX: usize = 200_000;

/// An event of the world.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// An event of the network.
    Net(NetEvent),
    /// A deadline of a process.
    Timer(NodeId, u64),
    /// A disk may complete a request.
    Disk(NodeId, u64),
    /// A reactor of an OSD takes a message out of its mailbox.
    Inner(NodeId, u64, usize),
    /// The monitor's state store applies (false) or answers (true) its oldest request.
    State(NodeId, u64, bool),
    /// An event of the state that several monitors share.
    Shared,
    /// The witness sends its next question.
    Witness,
    /// A process dies, unless too many are down.
    Kill(NodeId),
    /// A process starts.
    Start(NodeId),
    /// A paused process goes on.
    Resume(NodeId),
    /// The next fault is injected.
    Fault,
    /// The fault of that number ends.
    FaultEnd(usize),
    /// The sizes of all queues are checked.
    Watch,
    /// A node that worked is free again.
    Free(NodeId),
}

/// An event for a process.
#[derive(Debug)]
pub enum Input {
    /// The network delivers something.
    Net(Arrival),
    /// A deadline has come.
    Timer,
    /// A disk request completed.
    Disk,
    /// A message waits for that reactor.
    Inner(usize),
    /// The state store applies (false) or answers (true) a request.
    State(bool),
}

/// A node's monotonic and wall clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset: u64,
    ppm: i64,
    /// Error of the wall clock in nanoseconds.
    pub skew_ns: i64,
}

impl Clock {
    /// Draws a clock whose rate differs from true time by at most `drift_ppm`.
    #[must_use]
    pub fn draw(r: &mut Rng, drift_ppm: u64) -> Self {
        let ppm = r.below(2 * drift_ppm + 1) as i64 - drift_ppm as i64;
        Self { offset: r.below(1 << 40), ppm, skew_ns: r.below(200_000_000) as i64 - 100_000_000 }
    }

    fn mono(&self, t: Time) -> u64 {
        (i128::from(self.offset) + i128::from(t) + i128::from(t) * i128::from(self.ppm) / 1_000_000) as u64
    }

    /// The clock's time at true time `t`.
    #[must_use]
    pub fn now(&self, t: Time) -> Now {
        let wall = (i128::from(t) + i128::from(self.skew_ns)).max(0) as u64;
        Now { mono: Mono(self.mono(t)), wall: Utime { sec: WALL_START, nsec: 0 }.plus(Duration::from_nanos(wall)) }
    }

    /// The true time at which the clock shows `m` or slightly more.
    #[must_use]
    pub fn when(&self, m: Mono) -> Time {
        let d = i128::from(m.0) - i128::from(self.offset);
        (d * 1_000_000 / (1_000_000 + i128::from(self.ppm)) + 1).max(0) as u64
    }
}

/// The parts of the world that nodes share.
pub struct Ctx {
    /// The waiting events.
    pub queue: Queue<Event>,
    /// The network.
    pub net: Net,
    /// The trace of the run.
    pub trace: Trace,
    /// The shape of the run.
    pub options: Options,
    /// Random numbers for disk delays.
    pub disk_rng: Rng,
    /// Random numbers for everything else.
    pub rng: Rng,
    /// Violations of invariants so far.
    pub violations: Vec<String>,
    /// Number of PGs that moved between reactors of their OSD.
    pub moved: u64,
    /// True while the trap is set: a stray that is asked for its log dies before it gets the request.
    pub trap: bool,
    /// The OSD that the trap killed.
    pub trapped: Option<NodeId>,
    /// The leases given so far.
    pub promises: Promises,
    /// The newest map that an OSD has seen.
    pub newest_map: Epoch,
    /// The state that several monitors share, with the records of the oracles.
    pub several: Option<Box<Several>>,
    /// Record of MDS daemons' actions, if there are any.
    pub files: Option<Box<Files>>,
    next_inc: u64,
}

impl Ctx {
    /// The shared parts for a run.
    #[must_use]
    pub fn new(options: Options, nodes: usize, words: bool) -> Self {
        let s = options.seed;
        Self {
            queue: Queue::default(),
            net: Net::new(nodes, options.net.delay, options.net.slow, s ^ 0x6e65_7477),
            trace: Trace::new(words),
            disk_rng: Rng::new(s ^ 0x6469_736b),
            rng: Rng::new(s ^ 0x776f_726c),
            violations: Vec::new(),
            moved: 0,
            trap: false,
            trapped: None,
            newest_map: Epoch(0),
            promises: Promises::default(),
            several: None,
            files: (options.mds > 0).then(Box::default),
            next_inc: 0,
            options,
        }
    }

    /// The current true time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.queue.now()
    }

    /// A number for a new process, never used again.
    pub fn new_inc(&mut self) -> u64 {
        self.next_inc += 1;
        self.next_inc
    }

    /// Addresses of the monitors.
    #[must_use]
    pub fn mon_addrs(&self) -> Vec<EntityAddr> {
        self.mons().into_iter().map(mon_addr).collect()
    }

    /// The nodes of monitors.
    #[must_use]
    pub fn mons(&self) -> Vec<NodeId> {
        self.several.as_ref().map_or_else(|| vec![MON], |s| s.nodes.clone())
    }

    /// Records that a global id was given to a session.
    pub fn given_id(&mut self, id: u64) {
        if self.several.as_mut().is_some_and(|s| !s.given.insert(id)) {
            self.violation(format!("two sessions were given the id {id}"));
        }
    }

    /// Records that a leader with this fence acts.
    pub fn acts(&mut self, node: NodeId, fence: u64) {
        let newest = self.several.as_mut().and_then(|s| s.acts(fence));
        if let Some(newest) = newest {
            self.violation(format!("node {node} acts as leader {fence} after leader {newest} has"));
        }
    }

    /// Lets the shared state advance to the present time. What a monitor asks of it counts from then.
    pub fn state_now(&mut self) {
        let now = self.now();
        let wrong = self.several.as_mut().map(|s| s.advance(now));
        for w in wrong.into_iter().flatten() {
            self.violation(w);
        }
    }

    /// Puts the next event of the shared state into the queue.
    pub fn state_events(&mut self) {
        if let Some(s) = &mut self.several
            && let Some(at) = s.cluster.next_step()
            && s.next.is_none_or(|t| at.0 < t)
        {
            s.next = Some(at.0);
            self.queue.at(at.0.max(self.queue.now()), Event::Shared);
        }
    }

    /// A line of the trace.
    pub fn line(&mut self, text: impl FnOnce() -> String) {
        let now = self.now();
        self.trace.line(now, text);
    }

    /// Records the violation of an invariant.
    pub fn violation(&mut self, text: String) {
        self.line(|| format!("VIOLATION {text}"));
        self.violations.push(text);
    }

    fn net_events(&mut self) {
        for (at, e) in self.net.take_events() {
            self.queue.at(at, Event::Net(e));
        }
    }
}

/// Units of work that so many bytes are.
fn cost(bytes: usize) -> u64 {
    bytes as u64 / 4096
}

/// The world of a run.
pub struct World {
    /// The parts that nodes share.
    pub ctx: Ctx,
    /// The nodes: the monitor, the OSDs, the clients, the operator; then those that only some runs have.
    pub nodes: Vec<Node>,
    paused: Vec<bool>,
    deferred: Vec<VecDeque<(u64, Input)>>,
    /// Time until which a node works; 0: it handles the next input at once.
    busy: Vec<Time>,
}

impl World {
    /// A world of these nodes, none of which runs yet.
    #[must_use]
    pub fn new(ctx: Ctx, nodes: Vec<Node>) -> Self {
        let n = nodes.len();
        Self {
            ctx,
            nodes,
            paused: vec![false; n],
            deferred: (0..n).map(|_| VecDeque::new()).collect(),
            busy: vec![0; n],
        }
    }

    /// Pauses a process, as SIGSTOP does.
    pub fn pause(&mut self, node: NodeId) {
        self.paused[node] = true;
        if node == MON {
            self.ctx.monitor_pauses();
            files::note_daemons(self);
        }
    }

    /// True if the process is paused.
    #[must_use]
    pub fn is_paused(&self, node: NodeId) -> bool {
        self.paused[node]
    }

    /// Resumes a process, with the events that arrived meanwhile.
    pub fn resume(&mut self, node: NodeId) {
        if node == MON && self.paused[node] {
            self.ctx.monitor_goes_on(false);
        }
        self.paused[node] = false;
        self.busy[node] = 0;
        for (inc, input) in std::mem::take(&mut self.deferred[node]) {
            self.give(node, inc, input);
        }
        self.hear_state(node);
    }

    /// Kills the process of `node`; with `power` its host loses power.
    pub fn crash(&mut self, node: NodeId, power: bool) {
        let Some(inc) = self.nodes[node].inc() else { return };
        self.paused[node] = false;
        self.busy[node] = 0;
        self.deferred[node].clear();
        let now = self.ctx.now();
        self.ctx.line(|| format!("node {node}: {}", if power { "power cut" } else { "killed" }));
        self.nodes[node].crash(power, &mut self.ctx);
        self.ctx.net.process_ended(node, inc, power, now);
        self.ctx.net.set_off(node, power);
        self.ctx.net_events();
    }

    /// Kills the OSD in the trap. It stays dead until the end if the run must serve everything without one OSD.
    fn spring(&mut self, node: NodeId) {
        let osds = self.ctx.options.size.osds;
        let down = (1..=osds).filter(|n| self.nodes[*n].inc().is_none() || self.paused[*n]).count();
        if down >= osds.div_ceil(2) || self.paused[node] || self.nodes[node].inc().is_none() {
            return;
        }
        self.crash(node, false);
        self.ctx.trapped = Some(node);
        if !self.ctx.options.without_one {
            self.ctx.queue.after(TRAPPED, Event::Start(node));
        }
    }

    /// Starts a process, unless it runs.
    pub fn start(&mut self, node: NodeId) {
        if self.nodes[node].inc().is_some() {
            return;
        }
        self.ctx.net.set_off(node, false);
        self.ctx.line(|| format!("node {node}: starts"));
        self.nodes[node].start(&mut self.ctx);
        if node == MON {
            self.ctx.monitor_goes_on(true);
            files::note_daemons(self);
        }
        self.after(node);
    }

    fn give(&mut self, node: NodeId, inc: u64, input: Input) {
        if self.nodes[node].inc() != Some(inc) {
            return;
        }
        if self.paused[node] {
            if self.deferred[node].len() >= DEFERRED_MAX {
                self.ctx.violation(format!("node {node}: more than {DEFERRED_MAX} events wait while it is paused"));
            } else {
                self.deferred[node].push_back((inc, input));
            }
            return;
        }
        let now = self.ctx.now();
        if self.busy[node] > 0 {
            // Handled when the work before it ends, in order.
            if self.deferred[node].len() >= DEFERRED_MAX {
                self.ctx.violation(format!("node {node}: more than {DEFERRED_MAX} events wait while it works"));
            } else {
                self.deferred[node].push_back((inc, input));
            }
            return;
        }
        let sent = self.ctx.net.sent;
        let got = if let Input::Net(Arrival::Message(_, m)) = &input { 1 + cost(m.data.len()) } else { 0 };
        match &input {
            Input::Net(Arrival::Message(k, m)) => {
                if let Some(s) = &mut self.ctx.several
                    && let Some(from) = self.ctx.net.other(*k, node)
                    && let Some(what) = s.told(from, (node, inc), m)
                {
                    self.ctx.violation(what);
                }
                self.ctx.trace.mix(&[now, node as u64, *k, u64::from(m.header.kind), m.header.tid]);
                self.ctx.trace.count(m.header.kind, m.front.len() + m.middle.len() + m.data.len());
                self.ctx.trace.mix_bytes(&m.front);
                self.ctx.trace.mix_bytes(&m.data);
                self.ctx.trace.line(now, || {
                    let len = m.front.len() + m.data.len();
                    let name = wire::msg::registry::name(m.header.kind);
                    format!("{} <- {name} tid {} ({len} bytes, connection {k})", NodeName(node), m.header.tid)
                });
            }
            Input::Net(a) => {
                let (n, k) = match a {
                    Arrival::Accept(k, ..) => (1, *k),
                    Arrival::Opened(k) => (2, *k),
                    Arrival::Closed(k, _) => (3, *k),
                    Arrival::Message(k, _) => (4, *k),
                };
                self.ctx.trace.mix(&[now, node as u64, n, k]);
                self.ctx.trace.line(now, || {
                    let what = ["", "accepts", "opened", "closed"][n as usize % 4];
                    format!("{} {what} connection {k}", NodeName(node))
                });
            }
            Input::Timer => self.ctx.trace.mix(&[now, node as u64, 5]),
            Input::Disk => self.ctx.trace.mix(&[now, node as u64, 6]),
            Input::Inner(to) => self.ctx.trace.mix(&[now, node as u64, 8, *to as u64]),
            Input::State(b) => self.ctx.trace.mix(&[now, node as u64, 7, u64::from(*b)]),
        }
        self.nodes[node].handle(input, &mut self.ctx);
        self.after(node);
        self.work(node, got + self.ctx.net.sent - sent);
    }

    /// Charges an OSD for work of so many units.
    fn work(&mut self, node: NodeId, units: u64) {
        let charge = self.ctx.options.rough.charge;
        if charge == 0 || units == 0 || !matches!(self.nodes[node], Node::Osd(_)) {
            return;
        }
        let now = self.ctx.now();
        self.busy[node] = now + charge * units;
        self.ctx.queue.at(self.busy[node], Event::Free(node));
    }

    /// Hands over what arrived while the node worked, until that is work again.
    fn free(&mut self, node: NodeId) {
        if self.paused[node] || self.busy[node] == 0 || self.busy[node] > self.ctx.now() {
            return;
        }
        self.busy[node] = 0;
        while self.busy[node] == 0
            && let Some((inc, input)) = self.deferred[node].pop_front()
        {
            self.give(node, inc, input);
        }
    }

    fn after(&mut self, node: NodeId) {
        self.ctx.net_events();
        if let Some((power, again)) = self.nodes[node].wants_to_die(&mut self.ctx) {
            self.crash(node, power);
            self.ctx.queue.after(again, Event::Start(node));
        }
    }

    /// An event of the shared state.
    fn shared(&mut self) {
        let Some(s) = &mut self.ctx.several else { return };
        s.next = None;
        let nodes = s.nodes.clone();
        self.ctx.state_now();
        for n in nodes {
            self.hear_state(n);
        }
        self.ctx.state_events();
    }

    /// Hands the events of the shared state to a monitor.
    fn hear_state(&mut self, n: NodeId) {
        if let Node::Mons(m) = &self.nodes[n]
            && let Some(inc) = m.inc()
            && m.has_events()
            && !self.paused[n]
        {
            self.give(n, inc, Input::State(true));
        }
    }

    /// Carries out an event of the world; faults are the caller's.
    pub fn handle(&mut self, e: Event) {
        match e {
            Event::Net(e) => {
                let mut out = Vec::new();
                let now = self.ctx.now();
                let nodes = &self.nodes;
                self.ctx.net.handle(e, now, &|n| nodes[n].inc(), &mut out);
                self.ctx.net_events();
                for (node, inc, a) in out {
                    self.give(node, inc, Input::Net(a));
                }
            }
            Event::Timer(n, inc) => self.give(n, inc, Input::Timer),
            Event::Disk(n, inc) => self.give(n, inc, Input::Disk),
            Event::Inner(n, inc, to) => self.give(n, inc, Input::Inner(to)),
            Event::State(n, inc, b) => self.give(n, inc, Input::State(b)),
            Event::Kill(n) => self.spring(n),
            Event::Start(n) => self.start(n),
            Event::Resume(n) => self.resume(n),
            Event::Free(n) => self.free(n),
            Event::Shared => self.shared(),
            Event::Fault | Event::FaultEnd(_) | Event::Watch | Event::Witness => {}
        }
    }
}

/// The name of a node in the trace.
pub struct NodeName(pub NodeId);

impl std::fmt::Display for NodeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == 0 { f.write_str("mon") } else { write!(f, "node {} (osd.{})", self.0, self.0 - 1) }
    }
}
