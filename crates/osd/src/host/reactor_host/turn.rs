//! A loop turn: received messages go to the PGs, completions to the store, and their effects to sockets and
//! disk.

use super::{Client, RELEASE_OPS_MAX, RELEASE_TICKS, ReactorHost};
use crate::core::pgs::Output;
use crate::core::reactor::{PREFETCHED, TICK};
use crate::host::route::ToControl;
use crate::host::surroundings::Sampler;
use base::device::{IoCompletion, IoKind};
use base::{Mono, OsdId};
use reactor::clock;
use reactor::turn::{Turn, TurnHook};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use wire::Features;
use wire::WireMessage as _;
use wire::msg::{MOsdOp, MPgPeer};

/// Received work that waits for the end of the turn's receiving.
pub(super) enum Work {
    Op(Rc<Client>, Box<MOsdOp>),
    Peer(OsdId, Box<MPgPeer>),
}

/// Stages of the turn and what they carry over; see the module.
#[derive(Default)]
pub(super) struct Stages {
    /// Gathered work in order of receipt. `work_hook` takes it, and so does anything that must not overtake it.
    work: RefCell<VecDeque<Work>>,
    work_hook: RefCell<Option<TurnHook>>,
    end_hook: RefCell<Option<TurnHook>>,
    completions: RefCell<Vec<IoCompletion>>,
    /// True while a task waits for background work's next share.
    pacing: Cell<bool>,
    /// True while a task lets maps and long calls proceed in the next turn.
    proceeding: Cell<bool>,
}

pub(super) async fn completions(s: Weak<ReactorHost>) {
    loop {
        let Some(host) = s.upgrade() else { return };
        host.disk.ready().await;
        host.complete();
    }
}

/// Runs another turn for a store that goes on with a checkpoint while nothing is in flight.
pub(super) async fn another_turn(s: Weak<ReactorHost>) {
    if let Some(host) = s.upgrade() {
        host.schedule();
    }
}

/// Lets background work continue at its time. Runs only while some is held back.
pub(super) async fn pace(s: Weak<ReactorHost>, at: Mono) {
    tokio::time::sleep(at.since(clock::read().mono)).await;
    let Some(host) = s.upgrade() else { return };
    host.stages.pacing.set(false);
    host.core.borrow_mut().proceed(clock::read());
    host.pump();
}

/// Lets maps and long calls proceed in a separate turn, after input of sockets and disk.
pub(super) async fn proceed(s: Weak<ReactorHost>) {
    tokio::task::yield_now().await;
    let Some(host) = s.upgrade() else { return };
    host.stages.proceeding.set(false);
    host.core.borrow_mut().proceed(clock::now());
    host.pump();
}

/// True if the load average per CPU is below the threshold, or can't be read.
pub(super) fn load_below(threshold: f64) -> bool {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = text.split_whitespace().next().and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    load / cpus as f64 <= threshold
}

pub(super) async fn ticks(s: Weak<ReactorHost>) {
    let mut every = tokio::time::interval(TICK);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut since, mut ops) = (0, 0);
    let mut sampler = None;
    loop {
        every.tick().await;
        let Some(host) = s.upgrade() else { return };
        let now = clock::read().mono;
        if let Some((cpu, net)) = sampler.get_or_insert_with(|| Sampler::new(host.index == 0)).sample(now) {
            host.core.borrow().pgs().meter().book.borrow_mut().sample(&cpu, &net, now);
        }
        since += 1;
        if since >= RELEASE_TICKS {
            let done = host.core.borrow().pgs().counters().op;
            if done - ops < RELEASE_OPS_MAX {
                host.core.borrow_mut().store_mut().release_memory();
                (host.release_memory)();
            }
            (since, ops) = (0, done);
        }
        let now = clock::read();
        host.watch_device(now.mono);
        host.judge_room();
        host.core.borrow_mut().tick(now);
        let threshold = host.scrub_load.get();
        host.core.borrow_mut().schedule_scrubs(now, || load_below(threshold));
        host.forget_old(now.mono);
        host.close_expired();
        host.pump();
    }
}

impl ReactorHost {
    /// Sets the stages of this thread's turns: work on the gathered messages, then the end.
    pub(super) fn hook_turns(&self) {
        let weak = self.me.clone();
        *self.stages.work_hook.borrow_mut() = Some(Turn::current().before_end(move || {
            if let Some(s) = weak.upgrade() {
                s.work();
            }
        }));
        let weak = self.me.clone();
        *self.stages.end_hook.borrow_mut() = Some(Turn::current().on_end(move || {
            if let Some(s) = weak.upgrade() {
                s.end_turn();
            }
        }));
    }

    /// Adds received work, which waits for the end of the turn's receiving.
    pub(super) fn later(&self, w: Work) {
        self.stages.work.borrow_mut().push_back(w);
        if let Some(h) = &*self.stages.work_hook.borrow() {
            h.schedule();
        }
    }

    /// Passes the gathered work to the PGs.
    pub(super) fn work(&self) {
        let now = clock::now();
        if self.stages.work.borrow().is_empty() {
            return;
        }
        loop {
            self.prefetch_work();
            for _ in 0..PREFETCHED {
                let next = self.stages.work.borrow_mut().pop_front();
                match next {
                    Some(Work::Op(c, m)) => self.client_op(&c, m, now),
                    Some(Work::Peer(from, m)) => self.pg_message(from, m, now),
                    None => return self.pump(),
                }
            }
        }
    }

    /// Prefetches the PG machines of the next messages, and the store's data of the objects.
    pub(super) fn prefetch_work(&self) {
        let mut core = self.core.borrow_mut();
        for w in self.stages.work.borrow().iter().take(PREFETCHED) {
            match w {
                Work::Op(_, m) => core.prefetch_op(m),
                Work::Peer(_, m) => core.prefetch_peer(m),
            }
        }
        core.prefetch_rest();
    }

    pub(super) fn schedule(&self) {
        if let Some(h) = &*self.stages.end_hook.borrow() {
            h.schedule();
        }
    }

    pub(super) fn end_turn(&self) {
        let mut core = self.core.borrow_mut();
        core.end_turn();
        while let Some(r) = core.poll_io() {
            if matches!(r.kind, IoKind::Flush) && self.meter.borrow().commits.is_free() {
                self.meter.borrow_mut().commits.sent(r.id, clock::read().mono);
            }
            self.disk.submit(r);
        }
        if let Some(fills) = &self.fills
            && let Some(ranges) = core.store_mut().poll_fill()
        {
            fills.fill(self.index, ranges);
        }
        if core.wants_end_of_turn() {
            tokio::task::spawn_local(another_turn(self.me.clone()));
        }
        self.disk.flush_submissions();
        let meter = core.pgs().meter();
        if meter.has_answers() {
            // The answers leave now.
            meter.end_turn(clock::read().mono);
        }
    }

    /// Passes completed I/O to the store, and its events to the PGs.
    pub(super) fn complete(&self) {
        let mut done = self.stages.completions.take();
        self.disk.poll(&mut done);
        if !done.is_empty() {
            let mut core = self.core.borrow_mut();
            for c in done.drain(..) {
                if self.meter.borrow().commits.awaits(c.id) {
                    let now = clock::read().mono;
                    let took = self.meter.borrow_mut().commits.done(now);
                    core.pgs().meter().book.borrow_mut().flushed(took, now);
                }
                core.handle_io(c);
            }
        }
        self.stages.completions.replace(done);
        self.core.borrow().prefetch_events();
        self.pump();
    }

    /// Carries out the outputs of the reactor, until nothing is left.
    pub(super) fn pump(&self) {
        let now = clock::now();
        loop {
            let out = self.core.borrow_mut().poll_output(now);
            match out {
                Some(o) => self.output(o),
                None => break,
            }
        }
        self.schedule();
        let core = self.core.borrow();
        if !self.stages.pacing.get()
            && let Some(at) = core.next_deadline()
        {
            self.stages.pacing.set(true);
            tokio::task::spawn_local(pace(self.me.clone(), at));
        }
        if core.wants_turn() && !self.stages.proceeding.replace(true) {
            tokio::task::spawn_local(proceed(self.me.clone()));
        }
    }

    pub(super) fn output(&self, o: Output) {
        match o {
            Output::Reply(s, r) => self.send(s, r.to_message(Features::PACIFIC)),
            Output::Watch(s, w, data) => {
                let mut m = w.to_message(Features::PACIFIC);
                m.data = data;
                self.send(s, m);
            }
            Output::Backoff(s, b) => self.send(s, b.to_message(Features::PACIFIC)),
            Output::Dropped(s, tid, feed) => self.dropped(s, tid, feed),
            Output::Close(s) => self.close_session(s),
            Output::Control(r) => self.routes.control(ToControl::Report(self.index, r)),
            Output::Peer { to, msg, .. } => self.send_peer(to, *msg),
            Output::Reactor(at, input) => self.routes.input(at, input),
            Output::Moves(news) => self.routes.control_surely(ToControl::Moves(self.index, news)),
            Output::Fetch(pg, f) => self.routes.control(ToControl::Fetch(self.index, pg, f)),
            // The PG has reported the failure itself.
            Output::PgFailed(..) => {}
            Output::Stopped => self.drained(),
            Output::Own(tag, result) => self.own.done(tag, result),
            Output::Silent(why) => self.routes.control_surely(ToControl::Silent(self.index, why)),
            Output::StoreFailed(why) => self.routes.control_surely(ToControl::StoreFailed(why)),
        }
    }
}
