//! Operations of clients between their connections and the PGs. A connection with too many unanswered bytes is not
//! read.

use super::Process;
use crate::net::{ConnKey, NodeId};
use crate::world::Ctx;
use base::EntityKind;
use osd::core::clients;
use osd::core::maps::MapFeed;
use osd::core::session::SessionInfo;
use std::collections::VecDeque;
use std::sync::Arc;
use wire::msg::{MOsdMap, MOsdOp};
use wire::{Features, Message, WireMessage as _};

/// A client's connection.
pub(super) struct Client {
    core: clients::Client<()>,
    /// Bytes of operations without an answer, as the connection counts them.
    held: usize,
    /// Operations that the connection holds back, with their bytes.
    unread: VecDeque<(usize, MOsdOp)>,
}

impl Client {
    pub(super) fn new(info: Arc<SessionInfo>) -> Self {
        Self { core: clients::Client::new(info), held: 0, unread: VecDeque::new() }
    }
}

impl Process {
    pub(super) fn client_message(
        &mut self,
        k: ConnKey,
        node: NodeId,
        m: &Message,
        now: base::Now,
        cx: &mut Ctx,
    ) -> Result<(), wire::DecodeError> {
        let Some(c) = self.clients.get_mut(&k) else { return Ok(()) };
        match m.header.kind {
            MOsdOp::KIND => {
                c.unread.push_back((m.cost(), MOsdOp::from_message(m)?));
                self.read_client(k, node, now, cx);
            }
            MOsdMap::KIND if c.core.info.entity.kind == EntityKind::OSD => {
                self.control.handle_map_message(&MOsdMap::from_message(m)?, now);
            }
            _ => {}
        }
        Ok(())
    }

    /// Hands operations to the PGs while the connection is below its limit of unanswered bytes.
    fn read_client(&mut self, k: ConnKey, node: NodeId, now: base::Now, cx: &mut Ctx) {
        let (t, at) = (cx.now(), self.at(k));
        while let Some(c) = self.clients.get_mut(&k).filter(|c| c.held < cx.options.osd.unanswered)
            && let Some((cost, op)) = c.unread.pop_front()
            && let Some(r) = self.reactors.get_mut(at)
        {
            c.held += cost;
            c.held -= c.core.came(op.tid, cost, (), now.mono, &mut self.forgotten);
            let (maps, elsewhere) = r.take_op(&c.core, Box::new(op), now);
            if let Some(maps) = maps {
                cx.net.send(k, node, self.inc, maps.to_message(Features::PACIFIC), t);
            }
            if let Some((to, input)) = elsewhere {
                self.post(to, input, node, now, cx);
            }
        }
    }

    /// Releases the bytes of an operation that has its answer, or will get none.
    pub(super) fn answered(&mut self, k: ConnKey, tid: u64, node: NodeId, now: base::Now, cx: &mut Ctx) {
        let Some(c) = self.clients.get_mut(&k) else { return };
        if let Some((_, back)) = c.core.answered(tid, &mut self.forgotten) {
            c.held -= back;
            self.read_client(k, node, now, cx);
        }
    }

    /// Ends an operation that gets no answer.
    pub(super) fn dropped(
        &mut self,
        k: ConnKey,
        tid: u64,
        feed: Option<&MapFeed>,
        node: NodeId,
        now: base::Now,
        cx: &mut Ctx,
    ) {
        let Some(c) = self.clients.get_mut(&k) else { return };
        let Some((back, maps)) = c.core.dropped(tid, feed, &mut self.forgotten) else { return };
        c.held -= back;
        if let Some(maps) = maps {
            cx.net.send(k, node, self.inc, maps.to_message(Features::PACIFIC), cx.now());
        }
        self.read_client(k, node, now, cx);
    }

    /// Releases the bytes of very old operations, so that they hold up no others.
    pub(super) fn forget_old(&mut self, node: NodeId, now: base::Now, cx: &mut Ctx) {
        for k in self.clients.keys().copied().collect::<Vec<_>>() {
            if let Some(c) = self.clients.get_mut(&k) {
                c.held -= c.core.forget_old(now.mono, &mut self.forgotten);
                if c.held != c.core.unanswered().held() {
                    let who = c.core.info.entity;
                    cx.violation(format!("osd.{}: bytes of finished operations of {who} still count", node - 1));
                }
                self.read_client(k, node, now, cx);
            }
        }
    }

    /// Handles the end of a connection and returns its session.
    pub(super) fn client_gone(&mut self, k: ConnKey) -> Option<pg::SessionId> {
        let mut c = self.clients.remove(&k)?;
        c.core.end(&mut self.forgotten);
        Some(c.core.info.id)
    }
}
