//! Submitting transactions and answering when they are durable.
//!
//! Invariants:
//!  1. Transactions of a PG become durable in the order of submission; their actions happen in that order.
//!  2. A reply that shows the effect of a transaction leaves after it is durable, also if a later read shows it.

use super::{OpDump, Pg};
use crate::effect::Effect;
use crate::event::{OpRequest, SessionId};
use crate::exec::{Finished, OpAccess, Step, WatchEffects};
use crate::info::INFO_EVERY;
use crate::log::LogEntry;
use base::errno::Errno;
use base::{EntityAddr, EntityName, Epoch, Eversion, HObject, Mono, Now, Utime};
use std::rc::Rc;
use store::{ObjectStore, Op, Tag, Transaction};
use wire::msg::MOsdOpReply;

/// What an operation counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Both,
}

impl Kind {
    pub(super) fn of(a: &OpAccess) -> Self {
        match (a.may_read(), a.may_write()) {
            (true, true) => Self::Both,
            (_, true) => Self::Write,
            _ => Self::Read,
        }
    }
}

/// What is counted when a reply leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub kind: Kind,
    pub client: EntityName,
    pub received: Mono,
    pub wall: Utime,
    pub read: u64,
    pub written: u64,
}

impl Timing {
    pub(super) fn new(kind: Kind, req: &OpRequest, read: u64, written: u64) -> Self {
        Self { kind, client: req.client, received: req.received.mono, wall: req.received.wall, read, written }
    }
}

/// Something to do when a transaction is durable.
#[derive(Debug)]
pub(super) enum Action {
    Reply(SessionId, Box<MOsdOpReply>, Timing),
    Effects(Box<Watched>),
    /// The collection was made.
    Created,
    /// The interval with that generation started in that epoch.
    Activated(u64, Epoch),
    /// A batch of a deleted PG is gone.
    DeletedSome,
    /// The collection is gone.
    DeletedAll,
}

/// Watch effects with whose they are.
#[derive(Debug)]
pub(super) struct Watched {
    effects: WatchEffects,
    head: HObject,
    session: SessionId,
    client: EntityName,
    addr: EntityAddr,
    user_version: u64,
}

impl Action {
    pub(super) fn effects(effects: WatchEffects, head: &HObject, req: &OpRequest, user_version: u64) -> Self {
        let (session, client, addr) = (req.session, req.client, req.addr);
        Self::Effects(Box::new(Watched { effects, head: head.clone(), session, client, addr, user_version }))
    }
}

/// A submitted transaction.
#[derive(Debug)]
pub(super) struct Commit {
    pub tag: Tag,
    pub seq: u64,
    /// Newest log version in it or before it.
    pub version: Eversion,
    pub actions: Vec<Action>,
}

impl Commit {
    /// Operations whose replies wait for it.
    pub(super) fn waiting(&self, now: Mono) -> impl Iterator<Item = OpDump> + '_ {
        self.actions.iter().filter_map(move |a| match a {
            Action::Reply(_, r, t) => {
                let names: Vec<&str> = r.ops.iter().map(|o| o.op.name()).collect();
                let name = String::from_utf8_lossy(&r.oid);
                Some(OpDump {
                    description: format!("osd_op({}:{} {} [{}])", r.pgid, r.tid, name, names.join(",")),
                    client: t.client,
                    initiated_at: t.wall,
                    age: now.since(t.received),
                    stage: "waiting for commit",
                })
            }
            _ => None,
        })
    }
}

impl Pg {
    /// Submits a vector's changes and remembers the object's new state.
    pub(super) fn commit_object(
        &mut self,
        tag: Tag,
        head: &HObject,
        done: Finished,
        store: &mut dyn ObjectStore,
    ) -> Step<()> {
        let Finished { ops, entries, mut after, delta, .. } = done;
        self.commit_entries(tag, ops, entries, store)?;
        self.info.stats.add(&delta);
        after.last_write = self.submitted;
        self.cache.put(head, Rc::new(after));
        Ok(())
    }

    /// Submits changes with their log records. The statistics in the records are not added here.
    pub(super) fn commit_entries(
        &mut self,
        tag: Tag,
        ops: Vec<Op>,
        entries: Vec<LogEntry>,
        store: &mut dyn ObjectStore,
    ) -> Step<()> {
        let mut txn = Transaction { ops };
        for e in &entries {
            txn.push(Op::LogAppend { cid: self.cid, version: e.version, entry: e.to_record() });
        }
        let trim = self.log.trim_target();
        if let Some(to) = trim {
            txn.push(Op::LogTrim { cid: self.cid, to });
        }
        // The info is stored as it was before these records: they bring it up to date when it is loaded.
        let save = self.info_dirty || trim.is_some() || self.writes_since_info >= INFO_EVERY;
        if save {
            self.info.log_tail = trim.unwrap_or(self.info.log_tail);
            txn.push(Op::PgInfo { cid: self.cid, info: self.info.to_blob() });
        }
        store.prepare(tag, &txn)?;
        store.submit(tag, txn);
        if save {
            self.info_dirty = false;
            self.writes_since_info = 0;
        }
        if let Some(to) = trim {
            self.log.trim(to);
        }
        for e in &entries {
            self.writes_since_info += 1;
            self.info.last_update = e.version;
            self.info.last_user_version = self.info.last_user_version.max(e.user_version);
            self.log.push(e.dup());
        }
        self.submitted += 1;
        self.commits.push_back(Commit {
            tag,
            seq: self.submitted,
            version: self.info.last_update,
            actions: Vec::new(),
        });
        Ok(())
    }

    /// Does something when the transaction submitted last is durable.
    pub(super) fn on_durable(&mut self, a: Action) {
        if let Some(c) = self.commits.back_mut() {
            c.actions.push(a);
        }
    }

    /// Number of the transaction that holds a log version.
    pub(super) fn commit_of(&self, v: Eversion) -> u64 {
        let at = self.commits.partition_point(|c| c.version < v);
        self.commits.get(at).map_or(0, |c| c.seq)
    }

    /// Sends a reply now, or when transaction `seq` is durable.
    pub(super) fn send_after(
        &mut self,
        seq: u64,
        reply: Box<MOsdOpReply>,
        session: SessionId,
        timing: Timing,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        if seq > self.durable
            && let Some(first) = self.commits.front().map(|c| c.seq)
            && let Some(c) = self.commits.get_mut(usize::try_from(seq.saturating_sub(first)).unwrap_or(usize::MAX))
        {
            c.actions.push(Action::Reply(session, reply, timing));
            return;
        }
        self.send(reply, session, timing, now, out);
    }

    /// A planted bug: answers what waits for durability.
    pub(super) fn answer_early(&mut self, now: Now, out: &mut Vec<Effect>) {
        for i in 0..self.commits.len() {
            for a in std::mem::take(&mut self.commits[i].actions) {
                match a {
                    Action::Reply(session, reply, timing) => self.send(reply, session, timing, now, out),
                    a => self.commits[i].actions.push(a),
                }
            }
        }
    }

    /// Builds and sends a reply, as [`Pg::send_after`].
    #[allow(clippy::too_many_arguments, reason = "a reply and when to send it")]
    pub(super) fn reply_after(
        &mut self,
        seq: u64,
        req: &mut OpRequest,
        result: i32,
        versions: Option<(Eversion, u64)>,
        kind: Kind,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let reply = self.build_reply(req, result, versions, true);
        let timing = Timing::new(kind, req, 0, 0);
        self.send_after(seq, reply, req.session, timing, now, out);
    }

    /// Answers with an error that shows nothing of any object.
    pub(super) fn reply_error(
        &mut self,
        req: &mut OpRequest,
        errno: Errno,
        kind: Kind,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        self.reply_after(0, req, errno, None, kind, now, out);
    }

    fn send(&mut self, reply: Box<MOsdOpReply>, session: SessionId, t: Timing, now: Now, out: &mut Vec<Effect>) {
        let c = &mut self.counters;
        let ns = now.mono.since(t.received).as_nanos() as u64;
        c.ops += 1;
        c.latency_ns += ns;
        match t.kind {
            Kind::Read => {
                c.ops_r += 1;
                c.latency_r_ns += ns;
            }
            Kind::Write => {
                c.ops_w += 1;
                c.latency_w_ns += ns;
            }
            Kind::Both => c.ops_rw += 1,
        }
        c.bytes_r += t.read;
        c.bytes_w += t.written;
        out.push(Effect::Reply(session, reply));
    }

    /// Carries out watch effects at once.
    pub(super) fn apply_effects(
        &mut self,
        fx: WatchEffects,
        head: &HObject,
        req: &OpRequest,
        user_version: u64,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        if !fx.is_empty() {
            self.watches.apply(fx, head, req.session, req.client, req.addr, user_version, now, out);
        }
    }

    pub(super) fn handle_durable(&mut self, tag: Tag, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        let Some(c) = self.commits.front() else { return };
        if c.tag != tag {
            tracing::error!(pg = %self.cfg.spg, ?tag, expected = ?c.tag, "durable out of order");
            self.fail(base::errno::EIO, out);
            return;
        }
        let Some(c) = self.commits.pop_front() else { return };
        self.durable = c.seq;
        for a in c.actions {
            match a {
                Action::Reply(session, reply, timing) => self.send(reply, session, timing, now, out),
                Action::Effects(w) => {
                    let w = *w;
                    self.watches.apply(w.effects, &w.head, w.session, w.client, w.addr, w.user_version, now, out);
                }
                Action::Created => self.collection_made(now, store, out),
                Action::Activated(generation, epoch) => {
                    if generation == self.generation {
                        self.activated(epoch, now, store, out);
                    }
                }
                Action::DeletedSome => self.start_work(super::plan::Work::Delete, None, now, store, out),
                Action::DeletedAll => {
                    self.state = super::State::Deleted;
                    out.push(Effect::Deleted);
                }
            }
        }
    }
}
