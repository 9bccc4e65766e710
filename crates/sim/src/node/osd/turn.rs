//! A turn of an OSD: an input, the outputs of all machines, then the disk requests of the stores.

use super::{DISK_MAX, OsdNode, ScrubAll};
use crate::net::about;
use crate::node::reactors::{Inner, disk_id, store_id};
use crate::queue::{MS, SEC};
use crate::world::{self, Ctx, Event};
use osd::core::reactor::{Reactor, TICK};
use std::time::Duration;

impl OsdNode {
    /// Handles elapsed time.
    pub(super) fn timer(&mut self, cx: &mut Ctx) {
        let now = self.clock.now(cx.now());
        self.watch_device(now, cx);
        let Some(p) = &mut self.process else { return };
        p.timer.fired(cx.queue.now());
        p.control.tick(now);
        p.fetcher.tick(now);
        p.reactors.iter_mut().for_each(|r| r.proceed(now));
        if now.mono >= p.next_tick {
            p.next_tick = now.mono + TICK;
            p.forget_old(self.node, now, cx);
            let scrub = p.scrub_all.take();
            for r in &mut p.reactors {
                r.tick(now);
                if let Some(s) = scrub {
                    let all: Vec<base::SpgId> = r.pgs().iter().map(pg::Pg::spg).collect();
                    let (pgs, store) = r.parts();
                    pgs.scrub(&all, true, s == ScrubAll::Repair, now, store);
                }
            }
        }
    }

    /// Handles an event.
    pub fn handle(&mut self, input: world::Input, cx: &mut Ctx) {
        // Log lines carry the OSD and the virtual time.
        let _at = tracing::info_span!(target: "at", "at", t = cx.now() as f64 / SEC as f64, osd = self.osd.0).entered();
        match input {
            world::Input::Net(a) => self.arrival(a, cx),
            world::Input::Timer => self.timer(cx),
            world::Input::Disk if self.withholds() => {}
            world::Input::Disk => {
                let Some(p) = &mut self.process else { return };
                let died = match &mut self.crash_in {
                    Some((0, power)) => Some(*power),
                    Some((n, _)) => {
                        *n -= 1;
                        None
                    }
                    None => None,
                };
                let Some(c) = self.disk.step(&mut cx.disk_rng) else { return };
                if let Some(power) = died {
                    // The disk request completed, and the process dies before it sees that.
                    self.die = Some((power, about(&mut cx.rng, 2 * SEC)));
                    return;
                }
                let (i, c) = store_id(c);
                if let Some(r) = p.reactors.get_mut(i) {
                    r.handle_io(c);
                }
            }
            world::Input::Inner(to) => {
                let (now, node) = (self.clock.now(cx.now()), self.node);
                let Some(p) = &mut self.process else { return };
                match p.mail.take(to) {
                    Some(Inner::Moves(at, news)) => p.moving(at, news, node, now, cx),
                    Some(Inner::Input(input)) => p.input(to, input, now),
                    None => {}
                }
            }
            world::Input::State(_) => {}
        }
        self.turn(cx);
    }

    /// Runs the machines until they have no more outputs, then ends the turn.
    pub(super) fn turn(&mut self, cx: &mut Ctx) {
        let Some(p) = &mut self.process else { return };
        let now = self.clock.now(cx.now());
        loop {
            if let Some((i, o)) = (0..).zip(&mut p.reactors).find_map(|(i, r)| Some((i, r.poll_output(now)?))) {
                p.reactor_output(i, o, self.node, now, cx);
            } else if let Some(o) = p.control.poll_output(now) {
                p.control_output(o, self.node, now, cx);
            } else if let Some(o) = p.fetcher.poll_output() {
                p.fetch_output(o, self.node, now, cx);
            } else {
                break;
            }
        }
        for (pg, e) in p.failed_copies.take() {
            // A PG may report the failure of its store before the store does.
            if !p.failed && self.disk.write_error.is_none() {
                cx.violation(format!("{}: the copy of {pg} failed: {}", self.osd, base::errno::name(e)));
            }
        }
        for (i, r) in p.reactors.iter_mut().enumerate() {
            r.end_turn();
            while r.wants_end_of_turn() {
                r.end_turn();
            }
            while let Some(r) = r.poll_io() {
                self.disk.submit(disk_id(i, r));
                let mut d = about(&mut cx.disk_rng, cx.options.disk.delay * self.slow_disk);
                if cx.options.disk.slow > 0 && cx.disk_rng.chance(1, cx.options.disk.slow) {
                    d = d * 100 + MS;
                }
                cx.queue.after(d.min(DISK_MAX), Event::Disk(self.node, p.inc));
            }
        }
        let paced = p.reactors.iter().filter_map(Reactor::next_deadline).min();
        let walks = p.reactors.iter().any(Reactor::wants_turn);
        let walk = walks.then(|| now.mono + Duration::from_nanos(cx.options.osd.walk.1));
        let fetches = p.fetcher.next_deadline();
        let next = [p.control.next_deadline(), Some(p.next_tick), paced, walk, fetches].into_iter().flatten().min();
        p.timer.set(next, &self.clock, self.node, p.inc, cx);
    }
}
