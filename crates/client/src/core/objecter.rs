//! Targets operations at the OSD that serves their PG, and resends them when that changes.
//!
//! Invariants:
//!  1. Every submitted operation ends in exactly one [`Output::Done`], unless it is cancelled.
//!  2. An operation is resent, with the same transaction number so that the OSD recognizes it, only in these cases: its
//!     PG starts a new interval (the PG drops unfinished operations), maps were skipped, its connection ended, or the
//!     OSD released a backoff.
//!  3. A connection that ended before its OSD had sent a message is made again after a pause that doubles: the OSD may
//!     be down, or up and not yet serving. Other connections are made again at once. A map with a new instance of the
//!     OSD ends the pause.
//!
//! Tests: `crates/sim/tests/does_a_cluster_survive_its_seeds.rs` (1), `tests/is_an_operation_sent_again.rs` (2, 3).

use super::{RETRY_MAX, RETRY_MIN};
use base::errno::{EAGAIN, ENOENT, Errno};
use base::{AddrVec, Epoch, Mono, Now, OsdId, PgId, ShardId, SnapId, SpgId, Utime};
use bytes::Bytes;
use cluster::osdmap::UpActing;
use cluster::osdmap::interval::{IntervalSide, is_new_interval};
use cluster::{OsdMap, PgPool};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use wire::msg::{MOsdBackoff, MOsdOp, MOsdOpReply, OpVec, backoff_op, msg_flags};
use wire::types::{ObjectLocator, SnapContext};
use wire::{Features, Message, WireMessage as _};

/// Message flags of reads that any member of the acting set may serve.
const ELSEWHERE: u32 = msg_flags::BALANCE_READS | msg_flags::LOCALIZE_READS;

/// Target of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// An object.
    Object {
        /// Pool, namespace and locator key.
        locator: ObjectLocator,
        /// Name of the object.
        oid: Bytes,
    },
    /// A whole PG (listings).
    Pg {
        /// The PG.
        pg: PgId,
        /// Namespace to list.
        nspace: Bytes,
    },
}

/// An operation to submit.
#[derive(Clone, Debug)]
pub struct Request {
    /// Target object or PG.
    pub what: What,
    /// Operations.
    pub ops: OpVec,
    /// Message flags beyond those derived from the operations. With `BALANCE_READS` or `LOCALIZE_READS` the members of
    /// the acting set are asked in turn.
    pub flags: u32,
    /// Snapshot to read.
    pub snapid: SnapId,
    /// Snapshot context of a write.
    pub snapc: SnapContext,
    /// Modification time of a write.
    pub mtime: Utime,
}

/// Action for the host.
#[derive(Debug)]
pub enum Output {
    /// Connect to an OSD.
    Connect(OsdId, AddrVec),
    /// Drop the connection to an OSD.
    Close(OsdId),
    /// Send a message to an OSD, whose connection is open.
    Send(OsdId, Message),
    /// The operation has ended.
    Done(u64, Result<Box<MOsdOpReply>, Errno>),
    /// A map of this epoch or a later one is needed.
    NeedMap(Epoch),
}

struct Op {
    req: Request,
    pg: SpgId,
    hash: u32,
    osd: Option<OsdId>,
    up_from: Epoch,
    /// The PG's sets, pool and map flags when the operation was last targeted.
    interval: Option<(UpActing, Arc<PgPool>, u32)>,
    attempts: i32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LinkState {
    Pausing { until: Mono },
    Connecting,
    Open(Features),
}

/// State of the connection to an OSD.
struct Link {
    state: LinkState,
    up_from: Epoch,
    /// Pause before the next attempt, if this one fails.
    pause: Duration,
}

/// Operations of a client and their targets; see the module.
pub struct Objecter {
    map: Option<Arc<OsdMap>>,
    next_tid: u64,
    inc: i32,
    ops: BTreeMap<u64, Op>,
    links: BTreeMap<OsdId, Link>,
    out: VecDeque<Output>,
}

impl Objecter {
    /// Makes an objecter without a map. `inc` is the incarnation of this client, part of each operation's identity.
    #[must_use]
    pub fn new(inc: i32) -> Self {
        Self { map: None, next_tid: 1, inc, ops: BTreeMap::new(), links: BTreeMap::new(), out: VecDeque::new() }
    }

    /// The next action for the host.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop_front()
    }

    /// The newest map.
    #[must_use]
    pub fn map(&self) -> Option<&Arc<OsdMap>> {
        self.map.as_ref()
    }

    /// Unanswered operations: number, target, PG, and name of the object, if the operation has one.
    pub fn unanswered(&self) -> impl Iterator<Item = (u64, Option<OsdId>, SpgId, String)> {
        self.ops.iter().map(|(tid, o)| {
            let oid = match &o.req.what {
                What::Object { oid, .. } => String::from_utf8_lossy(oid).into_owned(),
                _ => String::new(),
            };
            (*tid, o.osd, o.pg, oid)
        })
    }

    /// Number of unanswered operations.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.ops.len()
    }

    /// Submits an operation; returns its transaction number.
    pub fn submit(&mut self, req: Request) -> u64 {
        let tid = self.next_tid;
        self.next_tid += 1;
        self.ops.insert(
            tid,
            Op { req, pg: SpgId::default(), hash: 0, osd: None, up_from: Epoch(0), interval: None, attempts: 0 },
        );
        self.target_and_send(tid, false);
        tid
    }

    /// Cancels an operation.
    pub fn cancel(&mut self, tid: u64) {
        self.ops.remove(&tid);
    }

    /// Handles a newer map: all operations are targeted again. If epochs were skipped, all operations are resent.
    pub fn handle_map(&mut self, map: Arc<OsdMap>) {
        if self.map.as_ref().is_some_and(|m| m.epoch >= map.epoch) {
            return;
        }
        let skipped = self.map.as_ref().is_some_and(|m| m.epoch.next() != map.epoch);
        let stale: Vec<OsdId> = self
            .links
            .iter()
            .filter(|(o, l)| !map.is_up(**o) || map.info(**o).up_from != l.up_from)
            .map(|(o, _)| *o)
            .collect();
        for o in stale {
            self.links.remove(&o);
            self.out.push_back(Output::Close(o));
        }
        self.map = Some(map);
        let tids: Vec<u64> = self.ops.keys().copied().collect();
        for t in tids {
            self.target_and_send(t, skipped);
        }
    }

    /// Reports that the connection to an OSD is open.
    pub fn handle_open(&mut self, osd: OsdId, features: Features) {
        if let Some(l) = self.links.get_mut(&osd) {
            l.state = LinkState::Open(features);
            self.send_all(osd, |_| true);
        }
    }

    /// Reports that the connection to an OSD was closed or could not be made; its operations are resent on a new one.
    pub fn handle_closed(&mut self, osd: OsdId, now: Now) {
        let wanted = self.is_wanted(osd);
        let Some(l) = self.links.get_mut(&osd) else { return };
        let pause = l.pause;
        l.pause = (pause * 2).clamp(RETRY_MIN, RETRY_MAX);
        if !wanted {
            self.links.remove(&osd);
        } else if pause.is_zero() {
            self.connect(osd);
        } else {
            l.state = LinkState::Pausing { until: now.mono + pause };
        }
    }

    /// Time of the next [`Objecter::tick`].
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        let until = |l: &Link| if let LinkState::Pausing { until } = l.state { Some(until) } else { None };
        self.links.values().filter_map(until).min()
    }

    /// Advances time: connects where a pause has ended.
    pub fn tick(&mut self, now: Now) {
        let over = |l: &Link| matches!(l.state, LinkState::Pausing { until } if until <= now.mono);
        let due: Vec<OsdId> = self.links.iter().filter(|(_, l)| over(l)).map(|(o, _)| *o).collect();
        for osd in due {
            if self.is_wanted(osd) {
                self.connect(osd);
            } else {
                self.links.remove(&osd);
            }
        }
    }

    /// True if operations are targeted at that OSD.
    fn is_wanted(&self, osd: OsdId) -> bool {
        self.ops.values().any(|o| o.osd == Some(osd))
    }

    fn connect(&mut self, osd: OsdId) {
        let Some(map) = &self.map else { return };
        let addrs = map.client_addr(osd).cloned().unwrap_or_default();
        let up_from = map.info(osd).up_from;
        let l = self.links.entry(osd).or_insert(Link { state: LinkState::Connecting, up_from, pause: RETRY_MIN });
        l.state = LinkState::Connecting;
        self.out.push_back(Output::Connect(osd, addrs));
    }

    fn send_all(&mut self, osd: OsdId, which: impl Fn(&Op) -> bool) {
        let tids: Vec<u64> = self.ops.iter().filter(|(_, o)| o.osd == Some(osd) && which(o)).map(|(t, _)| *t).collect();
        for t in tids {
            self.send(t);
        }
    }

    /// Handles a message of an OSD. Error: the message cannot be decoded.
    pub fn handle_message(&mut self, osd: OsdId, m: &Message) -> Result<(), wire::DecodeError> {
        match m.header.kind {
            MOsdOpReply::KIND => {
                let r = MOsdOpReply::from_message(m)?;
                let tid = m.header.tid;
                let mine = self.ops.get_mut(&tid).filter(|o| o.osd == Some(osd));
                if let Some(op) = mine {
                    if r.result == EAGAIN && op.req.flags & ELSEWHERE != 0 {
                        // The primary can serve the read.
                        op.req.flags &= !ELSEWHERE;
                        self.target_and_send(tid, true);
                        return Ok(());
                    }
                    self.ops.remove(&tid);
                    self.out.push_back(Output::Done(tid, Ok(Box::new(r))));
                }
            }
            MOsdBackoff::KIND => {
                let b = MOsdBackoff::from_message(m)?;
                match b.op {
                    backoff_op::BLOCK => {
                        if let Some(Link { state: LinkState::Open(f), .. }) = self.links.get(&osd) {
                            let ack = MOsdBackoff { op: backoff_op::ACK_BLOCK, ..b };
                            self.out.push_back(Output::Send(osd, ack.to_message(*f)));
                        }
                    }
                    backoff_op::UNBLOCK => self.send_all(osd, |o| o.pg == b.pgid),
                    _ => {}
                }
            }
            _ => return Ok(()),
        }
        if let Some(l) = self.links.get_mut(&osd) {
            l.pause = Duration::ZERO;
        }
        Ok(())
    }

    /// Targets an operation and sends it if the target changed (or `again`).
    fn target_and_send(&mut self, tid: u64, again: bool) {
        let Some(map) = self.map.clone() else {
            // Request the newest full map: incremental maps are useless without a first one.
            self.out.push_back(Output::NeedMap(Epoch(0)));
            return;
        };
        let Some(op) = self.ops.get_mut(&tid) else { return };
        let pool = match &op.req.what {
            What::Object { locator, .. } => locator.pool,
            What::Pg { pg, .. } => pg.pool,
        };
        let Some(view) = map.pool(pool).cloned() else {
            self.ops.remove(&tid);
            self.out.push_back(Output::Done(tid, Err(ENOENT)));
            return;
        };
        let (pg, hash) = match &op.req.what {
            What::Object { locator, oid } => {
                let hash = u32::try_from(locator.hash).ok();
                let raw = map.object_to_raw_pg(pool, oid, &locator.key, &locator.nspace, hash);
                let Some((raw, pg)) = raw.and_then(|r| Some((r, map.raw_pg_to_pg(r)?))) else { return };
                (pg, raw.seed)
            }
            What::Pg { pg, .. } => (*pg, pg.seed),
        };
        if matches!(op.req.what, What::Pg { .. }) && pg.seed >= view.pg_num {
            // The PG was merged: the caller looks for the PG to continue with.
            self.ops.remove(&tid);
            self.out.push_back(Output::Done(tid, Err(ENOENT)));
            return;
        }
        let sets = map.pg_to_up_acting(pg);
        let serves = |o: &OsdId| o.0 >= 0 && *o != OsdId::NONE && map.is_up(*o);
        // Shards of an erasure-coded PG are not copies: only the primary serves reads.
        let members: Vec<OsdId> = if op.req.flags & ELSEWHERE == 0 || view.is_erasure() {
            Vec::new()
        } else {
            sets.acting.iter().copied().filter(serves).collect()
        };
        // Ask the members of the acting set in turn. A member that cannot serve the read answers with an error.
        let turn = tid.checked_rem(members.len() as u64).and_then(|n| members.get(n as usize));
        let osd = turn.copied().or(Some(sets.acting_primary)).filter(serves);
        let up_from = osd.map_or(Epoch(0), |o| map.info(o).up_from);
        let new_interval = op.interval.as_ref().is_some_and(|(s, p, flags)| {
            let old = IntervalSide { sets: s, pool: p, flags: *flags };
            is_new_interval(&old, &IntervalSide { sets: &sets, pool: &view, flags: map.flags }, pg)
                || p.last_force_op_resend != view.last_force_op_resend
        });
        let shard = map.shard_of(&view, &sets.acting, sets.acting_primary).unwrap_or(ShardId::NONE);
        let target = SpgId { pg, shard };
        let changed = op.pg != target || op.osd != osd || op.up_from != up_from || new_interval;
        op.interval = Some((sets, view, map.flags));
        op.pg = target;
        op.hash = hash;
        op.osd = osd;
        op.up_from = up_from;
        if !changed && !again {
            return;
        }
        let Some(osd) = osd else {
            // No OSD serves the PG: wait for a later map.
            self.out.push_back(Output::NeedMap(map.epoch.next()));
            return;
        };
        match self.links.get(&osd).map(|l| l.state) {
            Some(LinkState::Open(_)) => self.send(tid),
            Some(LinkState::Connecting | LinkState::Pausing { .. }) => {}
            None => self.connect(osd),
        }
    }

    fn send(&mut self, tid: u64) {
        let (Some(op), Some(map)) = (self.ops.get_mut(&tid), &self.map) else { return };
        let Some(osd) = op.osd else { return };
        let Some(Link { state: LinkState::Open(features), .. }) = self.links.get(&osd) else { return };
        let (locator, oid) = match &op.req.what {
            What::Object { locator, oid } => (locator.clone(), oid.clone()),
            What::Pg { pg, nspace } => {
                (ObjectLocator { pool: pg.pool, nspace: nspace.clone(), ..ObjectLocator::default() }, Bytes::new())
            }
        };
        let mut flags = op.req.flags | msg_flags::ONDISK;
        for o in &op.req.ops {
            flags |= if o.op.is_write() { msg_flags::WRITE } else { msg_flags::READ };
        }
        let m = MOsdOp {
            tid,
            pgid: op.pg,
            hash: op.hash,
            osdmap_epoch: map.epoch,
            flags,
            client_inc: self.inc,
            mtime: op.req.mtime,
            locator,
            oid,
            ops: op.req.ops.clone(),
            snapid: op.req.snapid,
            snapc: op.req.snapc.clone(),
            retry_attempt: op.attempts,
            features: features.0,
            ..MOsdOp::default()
        };
        op.attempts += 1;
        self.out.push_back(Output::Send(osd, m.to_message(*features)));
    }
}
