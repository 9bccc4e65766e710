//! Heartbeat links of an OSD to its peers, on which leases are asked for, too.

use super::Process;
use crate::net::{ConnKey, NodeId};
use crate::world::Ctx;
use base::OsdId;
use osd::core::heartbeat::{self, Link};
use std::collections::{BTreeMap, BTreeSet};
use wire::msg::MOsdLease;
use wire::{Features, WireMessage as _};

/// Heartbeat links by connection; see the module.
#[derive(Default)]
pub(super) struct Links {
    all: BTreeMap<ConnKey, (OsdId, Link)>,
    open: BTreeSet<ConnKey>,
}

impl Links {
    /// Peer and link of a connection.
    pub(super) fn get(&self, k: ConnKey) -> Option<(OsdId, Link)> {
        self.all.get(&k).copied()
    }

    /// Notes that a connection is open.
    pub(super) fn opened(&mut self, k: ConnKey) {
        self.open.insert(k);
    }

    /// Forgets a connection. Returns its peer and link.
    pub(super) fn remove(&mut self, k: ConnKey) -> Option<(OsdId, Link)> {
        let link = self.all.remove(&k)?;
        self.open.remove(&k);
        Some(link)
    }
}

impl Process {
    /// Sends a message of leases on an open link.
    pub(super) fn send_lease(&self, osd: OsdId, m: &MOsdLease, node: NodeId, cx: &mut Ctx) {
        let open =
            |l| self.links.all.iter().find(|(k, x)| **x == (osd, l) && self.links.open.contains(k)).map(|(k, _)| *k);
        if let Some(k) = open(Link::Back).or_else(|| open(Link::Front)) {
            cx.net.send(k, node, self.inc, m.to_message(Features::PACIFIC), cx.queue.now());
        }
    }

    /// Carries out what the heartbeats want.
    pub(super) fn heartbeat(&mut self, o: heartbeat::Output, node: NodeId, cx: &mut Ctx) {
        let t = cx.now();
        match o {
            heartbeat::Output::Connect { osd, link, addrs } => {
                if let Some(a) = addrs.msgr2().copied() {
                    let card = self.card(node, false);
                    let k = cx.net.connect(node, self.inc, a, card, t);
                    self.links.all.insert(k, (osd, link));
                }
            }
            heartbeat::Output::Close { osd, link } => {
                let keys: Vec<ConnKey> =
                    self.links.all.iter().filter(|(_, l)| **l == (osd, link)).map(|(k, _)| *k).collect();
                for k in keys {
                    self.links.remove(k);
                    cx.net.close(k, node, self.inc, t);
                }
            }
            heartbeat::Output::Ping { osd, link, ping } => {
                let k = self.links.all.iter().find(|(_, l)| **l == (osd, link)).map(|(k, _)| *k);
                if let Some(k) = k {
                    cx.net.send(k, node, self.inc, ping.to_message(Features::PACIFIC), t);
                }
            }
            heartbeat::Output::Failure(_) => {}
        }
    }
}
