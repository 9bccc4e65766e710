//! Outputs of an OSD's control machine.

use super::Process;
use crate::net::{Card, NodeId};
use crate::node::{addr, promises};
use crate::world::Ctx;
use base::{AddrVec, AuthName, EntityKind, EntityName};
use client::core::mon;
use osd::core::collect::Collecting;
use osd::core::control::{Output as ControlOut, Phase};
use osd::core::own::Need;
use osd::core::{lease, mgr};
use wire::{Features, WireMessage as _};

impl Process {
    pub(super) fn control_output(&mut self, o: ControlOut, node: NodeId, now: base::Now, cx: &mut Ctx) {
        let t = cx.now();
        let input = o.input();
        match &o {
            ControlOut::Publish { maps, feed } => {
                cx.trace.line(t, || format!("osd.{} has map {}", node - 1, feed.map.epoch));
                self.sees_all(maps, node, cx);
                maps.iter().for_each(|m| self.moves.published(m));
                maps.iter().for_each(|m| self.fetcher.handle_map(m.clone()));
            }
            ControlOut::Lease(o) => promises::look(o, node, &self.clock, cx),
            _ => {}
        }
        if let Some(input) = input {
            self.all(&input, node, now, cx);
        }
        match o {
            ControlOut::Mon(o) => self.mon_output(o, node, cx),
            ControlOut::Heartbeat(o) => self.heartbeat(o, node, cx),
            ControlOut::Mgr(o) => self.mgr_output(o, node, now, cx),
            ControlOut::Store { records, superblock, trim_below } => {
                let txn = self.stored.store(records, &superblock, trim_below);
                if let Some(r) = self.reactors.first_mut() {
                    r.submit(txn, Need::Must);
                }
            }
            ControlOut::Publish { feed, .. } => self.old_peers(&feed.map, node, cx),
            ControlOut::Lease(lease::Output::Send(osd, m)) => self.send_lease(osd, &m, node, cx),
            ControlOut::Create(_) | ControlOut::Stop { .. } | ControlOut::Lease(_) => {}
            ControlOut::Config(_) | ControlOut::Message(_) => {}
            ControlOut::Phase(p) => {
                cx.trace.line(t, || format!("osd.{} is {p:?}", node - 1));
                if p == Phase::Gone {
                    self.end = Some("gone");
                }
            }
            ControlOut::Exit(why) => cx.trace.line(t, || format!("osd.{} exits: {why}", node - 1)),
        }
    }

    fn mon_output(&mut self, o: mon::Output, node: NodeId, cx: &mut Ctx) {
        let t = cx.now();
        match o {
            mon::Output::Connect(a) => {
                let card = self.card(node, true);
                self.mon = Some(cx.net.connect(node, self.inc, a, card, t));
            }
            mon::Output::Close => {
                if let Some(k) = self.mon.take() {
                    cx.net.close(k, node, self.inc, t);
                }
            }
            mon::Output::Send(m) => {
                if let Some(k) = self.mon {
                    cx.net.send(k, node, self.inc, m, t);
                }
            }
            mon::Output::Event(_) => {}
        }
    }

    fn mgr_output(&mut self, o: mgr::Output, node: NodeId, now: base::Now, cx: &mut Ctx) {
        let t = cx.now();
        match o {
            mgr::Output::Connect(a) => {
                if let Some(a) = a.msgr2().copied() {
                    let card = self.card(node, true);
                    self.mgr = Some(cx.net.connect(node, self.inc, a, card, t));
                }
            }
            mgr::Output::Close => {
                if let Some(k) = self.mgr.take() {
                    cx.net.close(k, node, self.inc, t);
                }
            }
            mgr::Output::Open(m) => {
                if let Some(k) = self.mgr {
                    cx.net.send(k, node, self.inc, m.to_message(Features::PACIFIC), t);
                }
            }
            mgr::Output::Queries(_) => {}
            mgr::Output::Collect { all } => {
                let mut all_stats = Collecting::new(self.reactors.len());
                for r in &mut self.reactors {
                    let (stats, lec) = r.stats(all, now);
                    all_stats.add(stats, lec);
                }
                let (stats, lec) = all_stats.finish();
                let (report, pgs) = self.control.report(stats, lec, now);
                if let Some(k) = self.mgr {
                    cx.net.send(k, node, self.inc, report.to_message(Features::PACIFIC), t);
                    cx.net.send(k, node, self.inc, pgs.to_message(Features::PACIFIC), t);
                }
            }
        }
    }

    pub(in crate::node) fn card(&self, node: NodeId, addrs: bool) -> Card {
        let n = node as i64 - 1;
        let nonce = self.inc as u32;
        Card {
            kind: EntityKind::OSD,
            name: AuthName { kind: EntityKind::OSD, id: n.to_string() },
            entity: EntityName::new(EntityKind::OSD, n),
            addrs: if addrs {
                AddrVec::from(addr(node, 6800, nonce))
            } else {
                AddrVec::from(base::EntityAddr::unlistening(nonce))
            },
            global_id: 4000 + node as u64,
        }
    }
}
