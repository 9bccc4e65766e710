//! Messages of an OSD's PGs to other OSDs, and the checks on their way.

use super::super::{addr, osd_node};
use super::Process;
use crate::net::{Card, NodeId};
use crate::world::{Ctx, Event};
use base::{AddrVec, Epoch, OsdId};
use cluster::OsdMap;
use std::sync::Arc;
use wire::msg::MPgPeer;
use wire::{Features, WireMessage as _};

/// Epoch below which a run's monitor keeps all maps.
const TRIMMED_FROM: u32 = 500;

impl Process {
    /// Checks that the OSD sees every map, because only the maps tell it the past of its PGs.
    pub(super) fn sees_all(&mut self, maps: &[Arc<OsdMap>], node: NodeId, cx: &mut Ctx) {
        for m in maps {
            let before = std::mem::replace(&mut self.seen, m.epoch);
            // Maps that the monitor has trimmed cannot be seen.
            if before > Epoch(0) && m.epoch != before.next() && m.epoch < Epoch(TRIMMED_FROM) {
                cx.violation(format!("osd.{}: map {} follows map {before}", node - 1, m.epoch));
            }
        }
    }

    /// Sends a PG's message on the session of the two OSDs.
    pub(super) fn send_peer(&mut self, at: usize, to: OsdId, m: &MPgPeer, node: NodeId, cx: &mut Ctx) {
        let Some(map) = self.reactors.get(at).and_then(|r| r.shard.newest_map()).cloned() else { return };
        if map.client_addr(OsdId(node as i32 - 1)) != Some(&AddrVec::from(addr(node, 6800, self.inc as u32))) {
            cx.violation(format!(
                "osd.{}: it sends a message of {} to {to}, but map {} does not show this process",
                node - 1,
                m.spg,
                map.epoch
            ));
        }
        if !map.is_up(to) {
            return;
        }
        let asks_log = |p: &pg::Pg| *p.state() == pg::State::GetLog;
        if cx.trap && self.pg(m.spg.pg).is_some_and(asks_log) && !map.pg_to_up_acting(m.spg.pg).acting.contains(&to) {
            cx.trap = false;
            cx.queue.after(0, Event::Kill(osd_node(usize::try_from(to.0).unwrap_or(0))));
        }
        let Some(addr_of) = map.cluster_addr(to).and_then(|a| a.msgr2()).copied() else { return };
        let known = self.peers.at(&addr_of);
        let t = cx.now();
        let k = known.unwrap_or_else(|| {
            let card = Card { addrs: addr(node, 6801, self.inc as u32).into(), ..self.card(node, false) };
            let k = cx.net.session(node, self.inc, addr_of, card, t);
            self.peers.opened(k, to, addr_of, ());
            cx.trace.line(t, || format!("osd.{} has session {k} with {to}", node - 1));
            k
        });
        let m = super::versions::stamped(cx, node - 1, m.to_message(Features::PACIFIC));
        cx.net.send(k, node, self.inc, m, t);
    }

    /// Ends sessions with OSD processes that are gone.
    pub(super) fn old_peers(&mut self, map: &OsdMap, node: NodeId, cx: &mut Ctx) {
        for k in self.peers.age(map) {
            let t = cx.now();
            cx.trace.line(t, || format!("osd.{} ends session {k}", node - 1));
            cx.net.close(k, node, self.inc, t);
        }
    }
}
