//! An OSD's own client, with which PGs read objects to copy from, as in the real host.
//!
//! The client has its own connections to other OSDs. Requests to its own OSD do not use the network.

use super::osd::Process;
use crate::net::{ConnKey, NodeId};
use crate::world::Ctx;
use base::errno::{EIO, Errno};
use base::{Now, OsdId, PgId, Utime};
use client::core::objecter::{Objecter, Output, Request, What};
use cluster::OsdMap;
use osd::core::pgs::Input;
use osd::core::session::SessionInfo;
use pg::{Fetch, FetchId, Fetched};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::msg::{MOsdOp, MOsdOpReply};
use wire::{DecodeError, Features, Message, WireMessage as _};

/// Key of the OSD's connection to itself; session ids have 48 bits for connections.
pub const LOOP: ConnKey = (1 << 48) - 1;

/// The client of an OSD's PGs.
pub struct Fetcher {
    objecter: Objecter,
    conns: BTreeMap<ConnKey, OsdId>,
    /// The reactor and PG of each request, by transaction id.
    asked: BTreeMap<u64, (usize, PgId, FetchId)>,
    /// The client's session with its own OSD.
    own: Arc<SessionInfo>,
}

impl Fetcher {
    /// A client without requests.
    #[must_use]
    pub fn new(map: Option<Arc<OsdMap>>, own: SessionInfo) -> Self {
        let mut objecter = Objecter::new(0);
        if let Some(m) = map {
            objecter.handle_map(m);
        }
        Self { objecter, conns: BTreeMap::new(), asked: BTreeMap::new(), own: Arc::new(own) }
    }

    /// Begins a read for a PG.
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

    /// Handles a newer map.
    pub fn handle_map(&mut self, map: Arc<OsdMap>) {
        self.objecter.handle_map(map);
    }

    /// Advances the time.
    pub fn tick(&mut self, now: Now) {
        self.objecter.tick(now);
    }

    /// Time of the next deadline.
    #[must_use]
    pub fn next_deadline(&self) -> Option<base::Mono> {
        self.objecter.next_deadline()
    }

    /// True if the connection belongs to this client.
    #[must_use]
    pub fn has(&self, k: ConnKey) -> bool {
        self.conns.contains_key(&k)
    }

    /// Handles the opening of a connection.
    pub fn handle_open(&mut self, k: ConnKey) {
        if let Some(osd) = self.conns.get(&k) {
            self.objecter.handle_open(*osd, Features::PACIFIC);
        }
    }

    /// Handles the end of a connection.
    pub fn handle_closed(&mut self, k: ConnKey, now: Now) {
        if let Some(osd) = self.conns.remove(&k) {
            self.objecter.handle_closed(osd, now);
        }
    }

    /// Handles an answer.
    pub fn handle_message(&mut self, k: ConnKey, whoami: OsdId, m: &Message) -> Result<(), DecodeError> {
        let osd = if k == LOOP { Some(whoami) } else { self.conns.get(&k).copied() };
        osd.map_or(Ok(()), |osd| self.objecter.handle_message(osd, m))
    }

    /// The next output to carry out.
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
    /// Carries out an output of the OSD's own client.
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
            // Other messages to itself are acknowledgements of backoffs, which need no action.
            Output::Send(osd, m) if osd == whoami && m.header.kind != MOsdOp::KIND => {}
            Output::Send(osd, m) if osd == whoami => match MOsdOp::from_message(&m) {
                Ok(op) => {
                    let to = self.reactors.first().map_or(0, |r| r.pgs().place_of_op(&op));
                    self.post(to, Input::Op(self.fetcher.own.clone(), Box::new(op)), node, now, cx);
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
                    self.post(reactor, Input::Fetched(pg, id, result_of(r)), node, now, cx);
                }
            }
            Output::NeedMap(e) => self.control.want_map(e),
        }
    }
}
