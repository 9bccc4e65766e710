//! Writing to the socket, at the end of a turn, and peers that do not take what is written.
//!
//! Invariant: nothing is written to a full socket before it has room again.
//!
//! Tests: an assertion.

use super::{Conn, STALL_BYTES};
use crate::types::CloseReason;
use crate::{Inner, add};
use base::Mono;
use msgr::{Error, Machine};
use reactor::clock;
use std::cell::Cell;
use std::io::{self, IoSlice};
use std::rc::Rc;
use tokio::net::TcpStream;

/// Most bytes written to a socket in one turn; then other sockets get theirs.
const WRITE_BYTES_MAX: usize = 8 << 20;
/// Slices per vectored write. Small writes use the small array, since filling the array has a cost.
const SLICES_FEW: usize = 8;
const SLICES_MANY: usize = 256;

/// How the peer takes output.
#[derive(Debug)]
pub(super) struct Output {
    /// The socket is full. The task waits until it has room, and nothing is written before.
    blocked: Cell<bool>,
    /// Bytes that the peer has taken since `progress`, when it had last taken [`STALL_BYTES`] or everything.
    taken: Cell<usize>,
    progress: Cell<Mono>,
    /// Bound of unsent output at which the host wants to be told.
    drained_at: Cell<Option<usize>>,
}

impl Output {
    pub(super) fn new(now: Mono) -> Self {
        Self { blocked: Cell::new(false), taken: Cell::new(0), progress: Cell::new(now), drained_at: Cell::new(None) }
    }

    /// True while the socket is full.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked.get()
    }

    /// The socket has room, or there is a new one.
    pub(super) fn unblock(&self) {
        self.blocked.set(false);
    }

    /// Time at which the peer had last taken [`STALL_BYTES`] or everything.
    pub(super) fn progress(&self) -> Mono {
        self.progress.get()
    }
}

enum WriteError {
    Io(io::Error),
    Protocol(Error),
}

impl Conn {
    /// The peer has taken enough, or everything.
    pub(super) fn progresses(&self) {
        self.output.taken.set(0);
        self.output.progress.set(clock::now().mono);
    }

    /// True if the peer has taken next to nothing for too long, although its queue is too long or the reactor needs the
    /// bytes.
    pub(crate) fn output_stalls(&self, inner: &Inner, now: Mono) -> bool {
        let l = &self.ep.limits;
        let bytes = self.machine.borrow().output_bytes();
        let short = inner.in_flight.get() > inner.in_flight_max.get() && self.budget.unsent() > STALL_BYTES;
        let long = bytes > l.output_bytes_max.min(self.ep.limits.in_flight_bytes_max);
        (short || long) && self.output.blocked.get() && now.since(self.output.progress.get()) >= l.stall_max
    }

    /// Writes queued output until the socket is full.
    pub(crate) fn flush(self: &Rc<Self>, inner: &Rc<Inner>) {
        if self.closed.get() {
            return;
        }
        let outcome = self.write_all(inner);
        self.recount(inner);
        match outcome {
            Ok(true) => {}
            Ok(false) => self.end(inner, Some(CloseReason::Protocol("refused by us".into()))),
            Err(WriteError::Io(e)) => self.fail(inner, CloseReason::Io(e.to_string())),
            Err(WriteError::Protocol(e)) => self.fail_protocol(inner, &e),
        }
    }

    /// Continues with what waited for the peer to take output. Runs at the turn's end, in no call of the host.
    pub(crate) fn after_flush(&self) {
        if self.drained() {
            self.output.drained_at.set(None);
            self.ep.handler.drained(self.id);
        }
    }

    /// True if the host waits for the present amount of unsent output.
    pub(super) fn drained(&self) -> bool {
        !self.closed.get() && self.output.drained_at.get().is_some_and(|n| self.machine.borrow().output_bytes() <= n)
    }

    /// Writes queued output. Returns false if the state machine wants the socket closed after it.
    fn write_all(&self, inner: &Inner) -> Result<bool, WriteError> {
        let stream = self.stream.borrow();
        let Some(stream) = stream.as_ref().filter(|_| !self.output.blocked.get()) else { return Ok(true) };
        let mut machine = self.machine.borrow_mut();
        machine.prepare_flush().map_err(WriteError::Protocol)?;
        let mut left = WRITE_BYTES_MAX;
        while machine.unwritten() > 0 {
            if left == 0 {
                // As if the socket were full: the task finds that it is not, after other sockets.
                self.output.blocked.set(true);
                self.wake();
                return Ok(true);
            }
            debug_assert!(!self.output.blocked.get(), "a full socket is not written to");
            let written = if machine.parts() <= SLICES_FEW {
                write_some::<SLICES_FEW>(stream, &machine)
            } else {
                write_some::<SLICES_MANY>(stream, &machine)
            };
            match written {
                Ok(0) => return Err(WriteError::Io(io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    add(&inner.counters.writes, 1);
                    add(&inner.counters.bytes_out, n);
                    left = left.saturating_sub(n);
                    machine.advance(n).map_err(WriteError::Protocol)?;
                    self.output.taken.set(self.output.taken.get() + n);
                    if self.output.taken.get() >= STALL_BYTES || machine.unwritten() == 0 {
                        self.progresses();
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.output.blocked.set(true);
                    self.wake();
                    return Ok(true);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(WriteError::Io(e)),
            }
        }
        Ok(!machine.is_closing())
    }

    /// The host wants to be told once at most `bytes` of output are unsent.
    pub(crate) fn tell_drained(&self, bytes: usize) {
        self.output.drained_at.set(Some(bytes));
    }
}

fn write_some<const N: usize>(stream: &TcpStream, machine: &Machine) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); N];
    let n = machine.slices(&mut slices);
    stream.try_write_vectored(slices.get(..n).unwrap_or_default())
}
