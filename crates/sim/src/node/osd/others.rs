//! Messages of an OSD's PGs to other OSDs, and the checks on their way.

use super::super::{addr, osd_node};
use super::Process;
use crate::net::{Card, NodeId};
use crate::rough::MAPS_KEPT;
use crate::world::{Ctx, Event};
use base::{AddrVec, Epoch, OsdId};
use cluster::OsdMap;
use std::sync::Arc;
use wire::msg::MPgPeer;
use wire::{Features, WireMessage as _};

/// Number of maps that a monitor keeps otherwise, about.
const TRIMMED_FROM: u32 = 499;

impl Process {
    /// Checks that the OSD sees every map, because only the maps tell it the past of its PGs. Maps that the monitor has
    /// trimmed cannot be seen, but it keeps the newest ones.
    pub(super) fn sees_all(&mut self, maps: &[Arc<OsdMap>], node: NodeId, cx: &mut Ctx) {
        let newest = maps.last().map_or(Epoch(0), |m| m.epoch);
        cx.newest_map = cx.newest_map.max(newest);
        let kept_from = match cx.options.rough.trims {
            true => Epoch(cx.newest_map.0.saturating_sub(MAPS_KEPT - 2)),
            false => Epoch(cx.newest_map.0.saturating_sub(TRIMMED_FROM)),
        };
        for m in maps {
            let before = std::mem::replace(&mut self.seen, m.epoch);
            if before > Epoch(0) && m.epoch != before.next() && m.epoch > kept_from {
                cx.violation(format!("osd.{}: map {} follows map {before}", node - 1, m.epoch));
            }
        }
    }

    /// Sends a PG's message on the session of the two OSDs.
    pub(super) fn send_peer(&mut self, at: usize, to: OsdId, m: &MPgPeer, node: NodeId, cx: &mut Ctx) {
        let Some(map) = self.reactors.get(at).and_then(|r| r.pgs().newest_map()).cloned() else { return };
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
        let asks_log = |p: &pg::Pg| p.asks_for_log().is_some();
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
