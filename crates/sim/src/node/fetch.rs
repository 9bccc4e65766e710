//! An OSD's own client, which reads what PGs copy from other objects, as the real host's does.
//!
//! It has connections of its own to other OSDs. What it asks its own OSD does not go over the network.

use super::osd::Process;
use super::reactors::Inner;
use crate::net::{ConnKey, NodeId};
use crate::world::Ctx;
use base::errno::{EIO, Errno};
use base::{Now, OsdId, PgId, Utime};
use client::core::objecter::{Objecter, Output, Request, What};
use cluster::OsdMap;
use osd::core::session::SessionInfo;
use pg::{Fetch, FetchId, Fetched};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::msg::{MOsdOp, MOsdOpReply};
use wire::{DecodeError, Features, Message, WireMessage as _};

/// Stands for the connection to itself; sessions have 48 bits for connections.
pub const LOOP: ConnKey = (1 << 48) - 1;

/// See the module.
pub struct Fetcher {
    objecter: Objecter,
    conns: BTreeMap<ConnKey, OsdId>,
    /// The reactor and the PG that asked.
    asked: BTreeMap<u64, (usize, PgId, FetchId)>,
    /// Its session with its own OSD.
    own: Arc<SessionInfo>,
}

impl Fetcher {
    /// Nothing asked yet.
    #[must_use]
    pub fn new(map: Option<Arc<OsdMap>>, own: SessionInfo) -> Self {
        let mut objecter = Objecter::new(0);
        if let Some(m) = map {
            objecter.handle_map(m);
        }
        Self { objecter, conns: BTreeMap::new(), asked: BTreeMap::new(), own: Arc::new(own) }
    }

    /// A PG wants to read.
    pub fn fetch(&mut self, reactor: usize, pg: PgId, f: Fetch) {
        let tid = self.objecter.submit(Request {
            what: What::Object { locator: f.locator, oid: f.oid },
            ops: f.ops,
            flags: f.flags,
            snapid: f.snapid,
            snapc: Default::default(),
            mtime: Utime::ZERO,
        });
        self.asked.insert(tid, (reactor, pg, f.id));
    }

    /// A newer map.
    pub fn handle_map(&mut self, map: Arc<OsdMap>) {
        self.objecter.handle_map(map);
    }

    /// Time passes.
    pub fn tick(&mut self, now: Now) {
        self.objecter.tick(now);
    }

    /// When that matters next.
    #[must_use]
    pub fn next_deadline(&self) -> Option<base::Mono> {
        self.objecter.next_deadline()
    }

    /// Whether a connection is one of its own.
    #[must_use]
    pub fn has(&self, k: ConnKey) -> bool {
        self.conns.contains_key(&k)
    }

    /// A connection is open.
    pub fn handle_open(&mut self, k: ConnKey) {
        if let Some(osd) = self.conns.get(&k) {
            self.objecter.handle_open(*osd, Features::PACIFIC);
        }
    }

    /// A connection is gone.
    pub fn handle_closed(&mut self, k: ConnKey, now: Now) {
        if let Some(osd) = self.conns.remove(&k) {
            self.objecter.handle_closed(osd, now);
        }
    }

    /// An answer came.
    pub fn handle_message(&mut self, k: ConnKey, whoami: OsdId, m: &Message) -> Result<(), DecodeError> {
        let osd = if k == LOOP { Some(whoami) } else { self.conns.get(&k).copied() };
        osd.map_or(Ok(()), |osd| self.objecter.handle_message(osd, m))
    }

    /// What is to be done.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.objecter.poll_output()
    }

    fn take(&mut self, tid: u64) -> Option<(usize, PgId, FetchId)> {
        self.asked.remove(&tid)
    }
}

fn result_of(r: Result<Box<MOsdOpReply>, Errno>) -> Result<Fetched, Errno> {
    let r = r?;
    if r.result < 0 {
        return Err(r.result);
    }
    let last = r.ops.last().ok_or(EIO)?;
    Ok(Fetched { data: last.outdata.clone(), user_version: r.user_version })
}

impl Process {
    /// Carries out what its own client wants.
    pub(super) fn fetch_output(&mut self, o: Output, node: NodeId, now: Now, cx: &mut Ctx) {
        let (t, whoami) = (cx.now(), OsdId(node as i32 - 1));
        match o {
            Output::Connect(osd, _) if osd == whoami => self.fetcher.objecter.handle_open(osd, Features::PACIFIC),
            Output::Connect(osd, addrs) => {
                if let Some(a) = addrs.msgr2().copied() {
                    let card = self.card(node, true);
                    let k = cx.net.connect(node, self.inc, a, card, t);
                    self.fetcher.conns.insert(k, osd);
                }
            }
            Output::Close(osd) => {
                let keys: Vec<ConnKey> =
                    self.fetcher.conns.iter().filter(|(_, o)| **o == osd).map(|(k, _)| *k).collect();
                for k in keys {
                    self.fetcher.conns.remove(&k);
                    cx.net.close(k, node, self.inc, t);
                }
            }
            // Acknowledgements of backoffs ask for nothing.
            Output::Send(osd, m) if osd == whoami && m.header.kind != MOsdOp::KIND => {}
            Output::Send(osd, m) if osd == whoami => match MOsdOp::from_message(&m) {
                Ok(op) => {
                    let to = self.reactors.first().map_or(0, |r| r.shard.place_of_op(&op));
                    self.post(to, Inner::Op(self.fetcher.own.clone(), Box::new(op)), node, now, cx);
                }
                Err(e) => cx.violation(format!("{whoami}: its own operation is not understood: {e}")),
            },
            Output::Send(osd, m) => {
                let k = self.fetcher.conns.iter().find(|(_, o)| **o == osd).map(|(k, _)| *k);
                if let Some(k) = k {
                    cx.net.send(k, node, self.inc, m, t);
                }
            }
            Output::Done(tid, r) => {
                if let Some((reactor, pg, id)) = self.fetcher.take(tid) {
                    self.post(reactor, Inner::Fetched(pg, id, result_of(r)), node, now, cx);
                }
            }
            Output::NeedMap(e) => self.control.want_map(e),
        }
    }
}
