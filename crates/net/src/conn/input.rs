//! Reading from the socket: one poll of its task reads, parses and calls the handler.

use super::low_water::PATIENCE;
use super::{Conn, MESSAGES_PER_POLL, Step};
use crate::types::{CloseReason, ConnEvent};
use crate::{Inner, add};
use msgr::Event;
use reactor::clock;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

/// Most reads in one poll of a task, so that other tasks get their turn.
const READS_PER_POLL: usize = 8;
/// Most unparsed bytes that are copied out of the shared buffer instead of pinning it.
const COPY_PENDING_MAX: usize = msgr::policy::DIRECT_BYTES_MIN + 4096;

impl Conn {
    pub(super) fn poll(self: &Rc<Self>, inner: &Rc<Inner>, epoch: u32, cx: &mut Context<'_>) -> Poll<Step> {
        if self.closed.get() || self.epoch.get() != epoch {
            return Poll::Ready(Step::End);
        }
        clock::expire();
        {
            let mut w = self.waker.borrow_mut();
            match &mut *w {
                Some(w) => w.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
        }
        if self.output.is_blocked() {
            let ready = match &*self.stream.borrow() {
                Some(s) => s.poll_write_ready(cx).is_ready(),
                None => false,
            };
            if ready {
                self.output.unblock();
                inner.mark_dirty(self);
            }
        }
        let mut messages = MESSAGES_PER_POLL;
        for _ in 0..READS_PER_POLL {
            // This also parses input left over by a pause.
            self.process(inner, &mut messages);
            if self.closed.get() || self.epoch.get() != epoch {
                return Poll::Ready(Step::End);
            }
            if messages == 0 {
                break;
            }
            if self.pause(inner) {
                return Poll::Pending;
            }
            match self.read(inner, cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => {
                    self.fail(inner, CloseReason::Peer);
                    return Poll::Ready(Step::End);
                }
                Poll::Ready(Ok(n)) => {
                    self.last_heard.set(clock::now().mono);
                    add(&inner.counters.reads, 1);
                    add(&inner.counters.bytes_in, n);
                }
                Poll::Ready(Err(e)) => {
                    self.fail(inner, CloseReason::Io(e.to_string()));
                    return Poll::Ready(Step::End);
                }
            }
        }
        self.process(inner, &mut messages);
        Poll::Ready(Step::Yield)
    }

    fn read(&self, inner: &Inner, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut stream = self.stream.borrow_mut();
        let Some(stream) = &mut *stream else { return Poll::Pending };
        let mut machine = self.machine.borrow_mut();
        if let Some(t) = machine.target() {
            let room = t.len();
            let mut rb = ReadBuf::new(t);
            return match Pin::new(&mut *stream).poll_read(cx, &mut rb) {
                Poll::Ready(Ok(())) => {
                    let n = rb.filled().len();
                    machine.received(n);
                    if n < room {
                        self.low_water.emptied(stream, n, room - n);
                    }
                    Poll::Ready(Ok(n))
                }
                Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
                Poll::Pending => Poll::Pending,
            };
        }
        self.low_water.remove(stream);
        let mut bufs = inner.read_buf.borrow_mut();
        let pending = machine.pending();
        let scratch = bufs.with_room(pending);
        if pending > 0 {
            scratch.extend_from_slice(&machine.take_pending());
        }
        let r = pin!(stream.read_buf(scratch)).poll(cx);
        let len = scratch.len();
        if len > 0 {
            let b = scratch.split();
            // A few leftover bytes must not keep the whole buffer alive while the peer is silent.
            let keep = r.is_pending() && len <= COPY_PENDING_MAX;
            machine.feed(if keep { bytes::Bytes::copy_from_slice(&b) } else { b.freeze() });
        }
        r
    }

    /// Lets the next byte wake the task if the socket has brought none for a while.
    pub(crate) fn hear_slow_sender(&self, silent: Duration) {
        if silent >= PATIENCE
            && let Some(s) = &*self.stream.borrow()
        {
            self.low_water.remove(s);
        }
    }

    /// Parses input and hands out events until the input is used up, the handler is full, or `messages` of them are
    /// delivered.
    fn process(self: &Rc<Self>, inner: &Rc<Inner>, messages: &mut usize) {
        loop {
            if self.closed.get() || *messages == 0 || self.paused(inner) {
                break;
            }
            let event = self.machine.borrow_mut().poll_event(clock::now());
            match event {
                // A frame that was granted its bytes parses on, with those that have arrived.
                Ok(None) if self.machine.borrow().asks().is_some() && self.frame_bytes(inner) => {}
                Ok(None) => break,
                Ok(Some(Event::Message(m))) => {
                    add(&inner.counters.messages_in, 1);
                    *messages -= 1;
                    if !self.ep.auto_consume.get() {
                        self.charge(inner, m.cost());
                    }
                    self.ep.handler.event(self.id, ConnEvent::Message(m));
                }
                Ok(Some(e)) => self.session_event(inner, e),
                Err(e) => {
                    self.fail_protocol(inner, &e);
                    break;
                }
            }
        }
        // With a full socket a turn's end could write nothing, and would wake the task for the next turn.
        if self.budget.has_frame() && !self.closed.get() {
            self.frame_bytes(inner);
        }
        let writes = !self.closed.get() && !self.output.is_blocked() && self.machine.borrow().wants_write();
        if writes || self.drained() {
            inner.mark_dirty(self);
        }
    }
}
