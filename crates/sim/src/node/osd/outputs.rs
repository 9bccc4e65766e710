//! Outputs of a reactor's PGs.

use super::Process;
use crate::net::NodeId;
use crate::node::fetch::LOOP;
use crate::node::reactors::Inner;
use crate::world::Ctx;
use base::OsdId;
use osd::core::control::Report;
use osd::core::pgs::Output as ReactorOut;
use osd::core::session::session_route;
use wire::{Features, Message, WireMessage as _};

impl Process {
    pub(super) fn reactor_output(&mut self, at: usize, o: ReactorOut, node: NodeId, now: base::Now, cx: &mut Ctx) {
        let t = cx.now();
        match o {
            ReactorOut::Reply(s, r) => {
                self.send_client(s, &r.to_message(Features::PACIFIC), node, cx);
                self.answered(session_route(s).1.packed(), r.tid, node, now, cx);
            }
            ReactorOut::Watch(s, w, data) => {
                let mut m = w.to_message(Features::PACIFIC);
                m.data = data;
                cx.net.send(session_route(s).1.packed(), node, self.inc, m, t);
            }
            ReactorOut::Backoff(s, b) => {
                self.send_client(s, &b.to_message(Features::PACIFIC), node, cx);
            }
            ReactorOut::Dropped(s, tid, feed) => {
                self.dropped(session_route(s).1.packed(), tid, feed.as_deref(), node, now, cx);
            }
            ReactorOut::Close(s) => cx.net.close(session_route(s).1.packed(), node, self.inc, t),
            ReactorOut::Control(report) => {
                if let Report::Log(_, text) = &report {
                    cx.trace.line(t, || format!("osd.{}: {text}", node - 1));
                }
                self.control.handle_report(at, report, now);
            }
            ReactorOut::Peer { to, msg, .. } => self.send_peer(at, to, &msg, node, cx),
            ReactorOut::Reactor(i, input) => self.post(i, input, node, now, cx),
            ReactorOut::Moves(news) if self.reactors.len() > 1 => {
                self.put_mail(self.reactors.len(), Inner::Moves(at, news), node, cx);
            }
            // Where there is one reactor, no PG moves.
            ReactorOut::Moves(_) => {}
            ReactorOut::Fetch(pg, f) => self.fetcher.fetch(at, pg, *f),
            ReactorOut::PgFailed(pg, e) => self.failed_copies.note(pg, e),
            // A refused write of the object that fills the store is dropped.
            ReactorOut::Own(..) => {}
            ReactorOut::Silent(why) => self.control.device_silent(at, why, now),
            ReactorOut::StoreFailed(why) => {
                self.failed = true;
                self.control.store_failed(&why, now);
            }
            ReactorOut::Stopped => self.control.reactor_stopped(at, self.reactors.len(), now),
        }
    }

    fn send_client(&mut self, s: pg::SessionId, m: &Message, node: NodeId, cx: &mut Ctx) {
        let k = session_route(s).1.packed();
        if k != LOOP {
            return cx.net.send(k, node, self.inc, m.clone(), cx.queue.now());
        }
        if let Err(e) = self.fetcher.handle_message(k, OsdId(node as i32 - 1), m) {
            cx.violation(format!("osd.{}: its own answer is not understood: {e}", node - 1));
        }
    }
}
