//! Periodic work for all connections: timeouts, and acknowledgements that no message carried. No timer is armed
//! per connection or message.

use crate::types::CloseReason;
use crate::{Inner, conn::Conn};
use reactor::clock;
use std::rc::Rc;
use std::time::Duration;

/// Period of the sweep.
const PERIOD: Duration = Duration::from_secs(1);

/// Starts the sweeper if it does not run. The sweeper ends with the last connection, so that an idle process
/// sleeps.
pub(crate) fn start(inner: &Rc<Inner>) {
    if inner.sweeping.replace(true) {
        return;
    }
    let weak = Rc::downgrade(inner);
    tokio::task::spawn_local(async move {
        loop {
            tokio::time::sleep(PERIOD).await;
            let Some(inner) = weak.upgrade() else { return };
            clock::expire();
            if let Some(addresses) = inner.gate.borrow_mut().report(clock::now().mono) {
                tracing::warn!(%addresses, "connections without authentication were refused, closed or failed");
            }
            if inner.conns.borrow().is_empty() {
                inner.sweeping.set(false);
                return;
            }
            sweep(&inner);
        }
    });
}

fn sweep(inner: &Rc<Inner>) {
    clock::expire();
    let all: Vec<Rc<Conn>> = inner.conns.borrow().iter().map(|(_, c)| c.clone()).collect();
    for c in all {
        check(inner, &c);
    }
}

fn check(inner: &Rc<Inner>, c: &Rc<Conn>) {
    let now = clock::now();
    let l = c.limits();
    let silent = now.mono.since(c.last_heard());
    let (open, incoming, lossy) = {
        let m = c.machine();
        (m.is_open(), m.is_incoming(), m.is_lossy())
    };
    if !c.has_socket() {
        if incoming && silent > l.standby_max {
            c.end(inner, Some(CloseReason::Peer));
        } else if c.is_dialling() && now.mono.since(c.started()) > l.handshake_max {
            c.fail(inner, CloseReason::HandshakeTimeout);
        }
        return;
    }
    c.hear_slow_sender(silent);
    if c.frame_stalls(inner, now.mono) {
        tracing::warn!(conn = %c.id(), peer = %c.describe(), "a frame does not arrive and others wait for its bytes; closing");
        return c.fail(inner, CloseReason::FrameStalled);
    }
    if c.output_stalls(inner, now.mono) {
        tracing::warn!(conn = %c.id(), peer = %c.describe(), bytes = c.machine().output_bytes(),
            "peer takes no output; closing");
        return c.end(inner, Some(CloseReason::OutputFull));
    }
    if !open {
        if now.mono.since(c.started()) > l.handshake_max {
            c.fail(inner, CloseReason::HandshakeTimeout);
        }
        return;
    }
    if c.machine().owes_ack() {
        inner.mark_dirty(c);
    }
    if incoming {
        // A paused connection is silent because we do not read it.
        if lossy && silent > l.idle_max && !c.paused(inner) {
            c.fail(inner, CloseReason::KeepaliveTimeout);
        }
        return;
    }
    if l.keepalive_every.is_zero() {
        return;
    }
    if silent > l.keepalive_max && !c.paused(inner) {
        c.fail(inner, CloseReason::KeepaliveTimeout);
    } else {
        c.ping(inner, now, l.keepalive_every);
    }
}
