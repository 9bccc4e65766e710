//! The bytes that a connection holds: messages that the host has not consumed, unsent output, and an incomplete frame.
//! A connection that holds too many is not read on.
//!
//! Invariants:
//!  1. What a connection holds is counted in the reactor's sum too, and leaves both at once.
//!  2. A pause ends with what caused it: the connection's own bytes, those of others, or the host's wish.
//!
//! Tests: `tests/do_endpoints_talk_over_sockets.rs` (1, `all_connections_together_are_bounded_and_none_starves`),
//! `tests/do_slow_and_greedy_peers_wait.rs` (2).

use super::{Conn, STALL_BYTES};
use crate::Inner;
use base::{AuthName, Mono};
use reactor::clock;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Time after which an incomplete frame that others wait for must arrive with [`STALL_BYTES`] a second.
const FRAME_GRACE: Duration = Duration::from_secs(2);

/// Bytes that a connection holds, and what it waits for.
#[derive(Debug)]
pub(super) struct Budget {
    in_flight: Cell<usize>,
    /// The host wants no messages at present.
    held: Cell<bool>,
    /// Unsent output that [`Inner::in_flight`] includes.
    unsent: Cell<usize>,
    /// Granted bytes of the incomplete frame, and when they were granted.
    frame: Cell<usize>,
    frame_since: Cell<Mono>,
    /// The announced frame waits for its bytes.
    asking: Cell<bool>,
    /// The connection is not read until it holds less.
    stopped: Cell<bool>,
    /// The connection is in the list of those waiting for room ([`Inner::waiting`]).
    waiting: Cell<bool>,
}

impl Budget {
    pub(super) fn new(now: Mono) -> Self {
        Self {
            in_flight: Cell::new(0),
            held: Cell::new(false),
            unsent: Cell::new(0),
            frame: Cell::new(0),
            frame_since: Cell::new(now),
            asking: Cell::new(false),
            stopped: Cell::new(false),
            waiting: Cell::new(false),
        }
    }

    /// True if an incomplete frame has been granted bytes.
    pub(super) fn has_frame(&self) -> bool {
        self.frame.get() > 0
    }

    /// Unsent output that counts with the reactor's bytes.
    pub(super) fn unsent(&self) -> usize {
        self.unsent.get()
    }
}

impl Conn {
    /// Bytes of delivered messages that the host has not consumed.
    pub(crate) fn unconsumed(&self) -> usize {
        self.budget.in_flight.get()
    }

    /// True while no message of this connection is delivered: the host holds it, it holds more bytes here than it may
    /// have, or its frame waits for bytes.
    pub(crate) fn paused(&self, inner: &Inner) -> bool {
        let own = self.budget.in_flight.get() + self.budget.unsent.get();
        self.budget.held.get()
            || self.budget.asking.get()
            || own > self.ep.in_flight_max.get()
            || (own > 0 && inner.in_flight.get() > inner.in_flight_max.get())
    }

    /// True for a connection whose unsent output and frames count with those of all clients. A peer must go on reading
    /// what the other end sends while its own output waits, else two that wait for each other never end.
    fn is_client(&self) -> bool {
        let m = self.machine.borrow();
        m.is_incoming() && m.is_lossy()
    }

    /// Counts the unsent output anew.
    pub(super) fn recount(&self, inner: &Inner) {
        let (incoming, bytes) = {
            let m = self.machine.borrow();
            (m.is_incoming() && m.is_lossy() && m.is_open(), m.output_bytes())
        };
        let now = if incoming && !self.closed.get() { bytes } else { 0 };
        let before = self.budget.unsent.replace(now);
        if now != before {
            inner.in_flight.set((inner.in_flight.get() + now).saturating_sub(before));
        }
        if now < before {
            self.resume_after(inner);
        }
    }

    /// Continues this connection if it has waited for its own bytes, and others if they have waited for all.
    fn resume_after(&self, inner: &Inner) {
        self.resume_own(inner);
        inner.resume();
    }

    /// Continues this connection if it has waited for its own bytes.
    pub(crate) fn resume_own(&self, inner: &Inner) {
        if self.budget.stopped.get() && !self.paused(inner) {
            self.budget.stopped.set(false);
            self.wake();
        }
    }

    /// Continues a connection that was in the list of those waiting for room.
    pub(crate) fn resume(self: &Rc<Self>, inner: &Inner) {
        self.budget.waiting.set(false);
        if !self.closed.get() && !self.pause(inner) {
            self.wake();
        }
    }

    pub(crate) fn hold(&self, held: bool) {
        if self.budget.held.replace(held) && !held {
            self.wake();
        }
    }

    /// Like [`Conn::paused`], and remembers what ends the pause: the connection's own bytes, or those of others.
    pub(super) fn pause(self: &Rc<Self>, inner: &Inner) -> bool {
        let p = self.paused(inner);
        if p {
            self.budget.stopped.set(true);
            if inner.in_flight.get() > inner.in_flight_max.get() && !self.budget.waiting.replace(true) {
                inner.waiting.borrow_mut().push(self.clone());
            }
        }
        p
    }

    pub(crate) fn charge(&self, inner: &Inner, bytes: usize) {
        self.budget.in_flight.set(self.budget.in_flight.get() + bytes);
        inner.in_flight.set(inner.in_flight.get() + bytes);
    }

    pub(crate) fn consumed(&self, inner: &Inner, bytes: usize) {
        let n = bytes.min(self.budget.in_flight.get());
        debug_assert!(n <= inner.in_flight.get(), "the reactor's sum includes what a connection holds");
        self.budget.in_flight.set(self.budget.in_flight.get() - n);
        inner.in_flight.set(inner.in_flight.get().saturating_sub(n));
        self.resume_after(inner);
    }

    /// Entity that an incomplete frame is charged to.
    fn charged(&self) -> AuthName {
        self.machine.borrow().peer().principal.name.clone()
    }

    /// Asks for the bytes of an announced frame, or gives those of a complete one back. Returns true if the frame may
    /// be read on.
    pub(super) fn frame_bytes(self: &Rc<Self>, inner: &Inner) -> bool {
        let (asks, partial) = {
            let m = self.machine.borrow();
            (m.asks(), m.partial().is_some())
        };
        if self.budget.frame.get() > 0 && !partial {
            self.give_frame_back(inner);
        }
        let Some(bytes) = asks.filter(|_| !self.budget.asking.get()) else { return !self.budget.asking.get() };
        let clients = self.is_client();
        // A connection that we opened brings answers to our own requests, from a server that we chose.
        let free = !clients && self.machine.borrow().is_lossy();
        let frames = &inner.frames[usize::from(!clients)];
        if free {
            self.machine.borrow_mut().grant();
        } else if frames.borrow_mut().ask(self.id, self.charged(), bytes, inner.room(clients)) {
            self.granted(bytes);
        } else {
            self.budget.asking.set(true);
        }
        !self.budget.asking.get()
    }

    /// The bytes of the announced frame are granted.
    pub(crate) fn granted(&self, bytes: usize) {
        self.budget.frame.set(bytes);
        self.budget.frame_since.set(clock::now().mono);
        self.machine.borrow_mut().grant();
        if self.budget.asking.replace(false) {
            self.wake();
        }
    }

    pub(super) fn give_frame_back(&self, inner: &Inner) {
        let frames = &inner.frames[usize::from(!self.is_client())];
        if self.budget.asking.replace(false) {
            frames.borrow_mut().forget(self.id);
        }
        let bytes = self.budget.frame.take();
        if bytes > 0 {
            frames.borrow_mut().give_back(&self.charged(), bytes);
            inner.resume();
        }
    }

    /// True if others wait for the bytes of this connection's frame, which does not arrive.
    pub(crate) fn frame_stalls(&self, inner: &Inner, now: Mono) -> bool {
        if self.budget.frame.get() == 0 || !inner.frames[usize::from(!self.is_client())].borrow().is_short() {
            return false;
        }
        let since = now.since(self.budget.frame_since.get());
        let wanted = STALL_BYTES.saturating_mul(usize::try_from(since.as_secs()).unwrap_or(usize::MAX));
        let arrived = self.machine.borrow().partial().map_or(0, |(arrived, _)| arrived);
        since >= FRAME_GRACE && arrived < wanted
    }
}
