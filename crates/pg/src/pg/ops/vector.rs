//! A client's operation vector, from duplicate check to submitted transaction and reply. A resent write is recognised
//! by its reqid in the log and gets its first answer again. Whether a growing write waits for space or fails is decided
//! here, from the pool's flags and what the store says of its own.

use crate::event::OpRequest;
use crate::exec::{Coded, CopyDone, Env, OpCtx, Progress, Snapc, Step, Stop, View, finish, list};
use crate::limits::WRITE_REPLY_LEN_MAX;
use crate::log::{LogEntry, LogKind, OpReturn};
use crate::map::pool_flags;
use crate::object::ObjectContext;
use crate::object::snapset::AtSnap;
use crate::pg::journal::action::Kind;
use crate::pg::journal::action::Timing;
use crate::pg::journal::action::{Action, Answer};
use crate::pg::ops::long::LongCall;
use crate::pg::ops::plan::Stage;
use crate::pg::ops::plan::{Plan, Verdict};
use crate::pg::ops::work::{PeeringWork, Work};
use crate::pg::{Pg, Turn};
use crate::stats::StatSum;
use base::errno::{E2BIG, EDQUOT, EINVAL, EIO, EMSGSIZE, ENOENT, ENOSPC, EOVERFLOW, ERESTART, Errno};
use base::planted::{Bug, acts};
use base::rng::Rng;
use base::sizes::RETURNS_MAX;
use base::unreached;
use base::{EntityKind, Eversion, HObject, Now, ReqId, SnapId, Utime};
use bytes::Bytes;
use cluster::IntervalSet;
use std::rc::Rc;
use store::{ObjectName, ObjectStore, Oid, Tag};
use wire::msg::{MOsdOpReply, OpCode, OsdOp, msg_flags};

impl Pg {
    pub(in crate::pg) fn run_client(&mut self, plan: &mut Plan, turn: &mut Turn<'_>) -> Verdict {
        let Plan { id, work: Work::Client(req, access), head, copied, long, progress, .. } = plan else {
            return unreached("the plan is a client's");
        };
        let (id, may_write) = (*id, access.may_write());
        let reqid = req.reqid();
        if *self.life.state() != crate::pg::State::Active
            && let Some(head) = &*head
            && !self.may_read_here(head, turn.now)
        {
            // The member's state changed while the store was read.
            self.reply_error(req, base::errno::EAGAIN, Kind::of(access), turn);
            return Verdict::Done;
        }
        if may_write && self.answer_dup(req, &reqid, turn) {
            return Verdict::Done;
        }
        let Some(head) = head else { return self.run_pg_op(id, req, turn) };
        let kind = Kind::of(access);
        let before = match self.context(id, head, turn) {
            Ok(c) => c,
            Err(Stop::Wait) => return Verdict::Park(Stage::Reading),
            Err(Stop::Errno(EIO)) if self.can_heal(head) => return Verdict::Damaged(head.clone()),
            Err(Stop::Errno(e)) => {
                self.reply_error(req, e, kind, turn);
                return Verdict::Done;
            }
        };
        if !may_write && let Some(v) = self.run_plain_read(id, req, head, &before, turn) {
            return v;
        }
        if may_write
            && kind == Kind::Write
            && let Some(r) = self.run_plain_write(id, req, reqid, head, &before, turn)
        {
            return match r {
                Ok(a) => {
                    req.msg.ops.iter_mut().for_each(|op| op.rval = 0);
                    self.answer_when_durable(plan, a);
                    Verdict::Submitted
                }
                Err(stop) => stop.into(),
            };
        }
        let kept = (long, progress);
        match self.run_vector(id, req, head, may_write, kind, &before, copied.as_deref(), kept, turn) {
            Ok(Ran::Finished(v)) => v,
            Ok(Ran::Written(a)) => {
                self.answer_when_durable(plan, a);
                Verdict::Submitted
            }
            Ok(Ran::Copy(request)) => self.begin_copy(plan, request, turn),
            Ok(Ran::Paused) if *self.life.state() != crate::pg::State::Active => {
                // A replica applies writes without regard to plans.
                self.reply_error(req, base::errno::EAGAIN, kind, turn);
                Verdict::Done
            }
            Ok(Ran::Paused) => Verdict::Park(Stage::NextPart),
            Err(Stop::Wait) => Verdict::Park(Stage::Reading),
            Err(Stop::Errno(EIO)) if self.can_heal(head) => Verdict::Damaged(head.clone()),
            // There is no room even for the record of a refusal.
            Err(Stop::Errno(ENOSPC)) if may_write => Verdict::Park(Stage::NoRoom),
            Err(Stop::Errno(e)) => {
                self.reply_after(before.last_write, req, e, None, kind, turn);
                Verdict::Done
            }
        }
    }

    fn run_pg_op(&mut self, id: u64, req: &mut OpRequest, turn: &mut Turn<'_>) -> Verdict {
        if let Some(op) = req.msg.ops.first_mut().filter(|o| o.op == OpCode::SCRUBLS) {
            let (result, outdata) = self.list_scrub(&op.indata);
            (op.rval, op.outdata) = (result, outdata);
            let versions = Some((Eversion::default(), 0));
            self.reply_after(0, req, result, versions, Kind::Read, turn);
            return Verdict::Done;
        }
        let tag = self.tag(id);
        let none = IntervalSet::new();
        // The needed version of an object is a log position and may belong to another entry. The head's newest entry tells
        // whether the object exists.
        if !self.recovery.missing().is_empty()
            && let Err(s) = self.read_newest(tag, turn.store)
        {
            return s.into();
        }
        let env = self.env(req, &none, ReqId::default(), turn.now);
        let nspace = req.msg.locator.nspace.clone();
        let mut ops = std::mem::take(&mut req.msg.ops);
        let r = list::run(turn.store, tag, self.env.cid(), &env, &nspace, &self.recovery, &mut ops);
        req.msg.ops = ops;
        match r {
            Ok(list::Listed::Needs(head)) => Verdict::Recover(head),
            Ok(list::Listed::Result(result)) => {
                let versions = Some((Eversion::default(), 0));
                self.reply_after(self.journal.submitted(), req, result, versions, Kind::Read, turn);
                Verdict::Done
            }
            Err(s) => s.into(),
        }
    }

    pub(in crate::pg) fn env<'a>(
        &'a self,
        req: &OpRequest,
        removed_snaps: &'a IntervalSet,
        reqid: ReqId,
        now: Now,
    ) -> Env<'a> {
        Env {
            spg: self.env.spg(),
            pg_num: self.pool().map_or(1, |p| p.pg_num),
            epoch: self.epoch(),
            now,
            next_version: self.next_version(),
            last_user_version: self.journal.info().last_user_version,
            removed_snaps,
            watches: &self.watches,
            reqid,
            client: req.client,
            addr: req.addr,
            features: req.features,
            mtime: req.msg.mtime,
            coded: self.coded_rules(),
        }
    }

    /// Limits of an erasure-coded pool for clients; `None` in a replicated one.
    pub(in crate::pg) fn coded_rules(&self) -> Option<Coded> {
        let c = self.ec.coder()?;
        let overwrites = self.pool().is_some_and(|p| p.has(pool_flags::EC_OVERWRITES));
        Some(Coded { stripe_width: c.layout.stripe_width(), overwrites })
    }

    #[allow(clippy::too_many_arguments, reason = "one step of run_client, apart only for its early returns")]
    fn run_vector(
        &mut self,
        id: u64,
        req: &mut OpRequest,
        head: &HObject,
        may_write: bool,
        kind: Kind,
        before: &Rc<ObjectContext>,
        copied: Option<&CopyDone>,
        (long, progress): (&mut Option<Box<LongCall>>, &mut Option<Box<Progress>>),
        turn: &mut Turn<'_>,
    ) -> Step<Ran> {
        let tag = self.tag(id);
        let pool = self.pool().cloned().ok_or(ENOENT)?;
        let reqid = req.reqid();
        let flags = req.msg.flags;
        let snapc = self.snap_context(req, &pool)?;
        if may_write && flags & msg_flags::ORDERSNAP != 0 && snapc.seq < before.ss.seq {
            return Err(ERESTART.into());
        }

        // Select the object that is read.
        let head_oid = Oid::new(head.clone());
        let (mut exists, mut base, mut oi) = (before.exists, None, None);
        match req.msg.snapid {
            SnapId::HEAD if !may_write && !exists => return Err(ENOENT.into()),
            SnapId::HEAD => {}
            _ if may_write => return Err(EINVAL.into()),
            SnapId::SNAPDIR if !exists && before.ss.clones.is_empty() => return Err(ENOENT.into()),
            SnapId::SNAPDIR => {}
            snap => {
                if pool.removed_snaps.contains(snap.0) {
                    return Err(ENOENT.into());
                }
                match before.ss.resolve(snap) {
                    AtSnap::Head if exists => {}
                    AtSnap::Head | AtSnap::Absent => return Err(ENOENT.into()),
                    AtSnap::Clone(c) => {
                        let clone = Oid::from(ObjectName { hobj: head.at_snap(SnapId(c)), ..(*head_oid).clone() });
                        oi = Some(crate::exec::load_clone_info(turn.store, tag, self.env.cid(), &clone)?);
                        base = Some(clone);
                        exists = true;
                    }
                }
            }
        }
        let base = base.or_else(|| before.exists.then(|| head_oid.clone()));

        let mut ops = std::mem::take(&mut req.msg.ops);
        let mut reads = self.ec.take_reads();
        let env = self.env(req, &pool.removed_snaps, reqid, turn.now);
        let oi = oi.unwrap_or_else(|| before.oi.clone());
        let had = oi.size;
        let (parts, place) = self.take_parts(long, before.oi.version);
        let short = turn.store.is_short();
        let view = View::new(turn.store, tag, self.env.cid(), head_oid, base)
            .of_shards(reads.as_deref_mut(), had)
            .of_request(req.msg.sums.clone());
        let mut ctx = OpCtx::new(view, &env, head, before, oi);
        (ctx.exists, ctx.snapc, ctx.copy.done, ctx.long.parts) = (exists, snapc, copied, parts);
        // The seed depends only on the request, so each planning draws the same numbers.
        ctx.rng = Rng::new(self.env.seed() ^ reqid.tid.rotate_left(17) ^ (reqid.name.num as u64));
        // Replicas apply writes without regard to plans, and copies read without a lock.
        let holds = *self.life.state() == crate::pg::State::Active;
        if !holds || progress.as_ref().is_some_and(|p| !p.is_of(before.oi.version)) {
            *progress = None;
        }
        let ran = ctx.run(&mut ops, progress);
        let paused = ctx.long.paused;
        let paused = paused | self.keep_parts(long, std::mem::take(&mut ctx.long.parts), before.oi.version, place);
        let mut result = match ran {
            Ok(r) => r,
            Err(s) => {
                req.msg.ops = ops;
                drop(ctx);
                self.give_reads(reads);
                return if paused { Ok(Ran::Paused) } else { Err(s) };
            }
        };
        req.msg.ops = ops;
        // Another copy may be readable. If none is, the client gets the error.
        if ctx.view.damaged && self.can_heal(head) {
            return Err(EIO.into());
        }
        if ctx.view.damaged && *self.life.state() != crate::pg::State::Active {
            drop(ctx);
            self.reply_error(req, base::errno::EAGAIN, kind, turn);
            return Ok(Ran::Finished(Verdict::Done));
        }
        if result == EIO && self.is_coded() && self.is_lacked(head) {
            // Too few shards have the object; after recovery there may be enough.
            return Ok(Ran::Finished(Verdict::Damaged(head.clone())));
        }
        if let Some(c) = ctx.copy.want.take() {
            return Ok(Ran::Copy(c));
        }

        let timing = Timing::new(kind, req, ctx.bytes_read, ctx.bytes_written);
        let effects = std::mem::take(&mut ctx.effects);
        if !may_write {
            // At a snapshot, the version is that of the clone.
            let of = if acts(Bug::HeadVersionAtSnapshot) { &before.oi } else { &ctx.oi };
            let user_version = of.user_version;
            // A class's method that reads may have tried to write before it was refused.
            let delta = StatSum { num_rd: ctx.delta.num_rd, num_rd_kb: ctx.delta.num_rd_kb, ..StatSum::default() };
            drop(ctx);
            self.give_reads(reads);
            self.journal.add_stats(&delta);
            if result >= 0 {
                self.apply_effects(effects, head, req, user_version, turn);
            }
            let versions = match result {
                0.. => Some((Eversion::default(), user_version)),
                ENOENT => Some(self.floor()),
                _ => None,
            };
            let reply = self.build_reply(req, result, versions, true);
            self.send_after(before.last_write, reply, req.session, timing, turn);
            return Ok(Ran::Finished(Verdict::Done));
        }

        if result >= 0 && ctx.changed() && (ctx.delta.num_bytes > 0 || ctx.delta.num_objects > 0) {
            let full = pool.has(pool_flags::FULL);
            let forced = req.client.kind == EntityKind::MDS || flags & msg_flags::FULL_FORCE != 0;
            // The OSD's own view counts before a map has it. Only the pool's flag ends with a map.
            if (full || short) && !forced {
                if flags & msg_flags::FULL_TRY == 0 {
                    let stage = if full { Stage::WaitingForSpace } else { Stage::NoRoom };
                    return Ok(Ran::Finished(Verdict::Park(stage)));
                }
                // Logged like any refusal. A former primary could not tell that the write was not made.
                result = if pool.has(pool_flags::FULL_QUOTA) { EDQUOT } else { ENOSPC };
            }
        }

        let want_returns = flags & msg_flags::RETURNVEC != 0;
        if result < 0 || !ctx.changed() {
            // Nothing changes, but a resend must get the same answer.
            drop(ctx);
            let user_version = before.oi.user_version;
            let kept = if want_returns { returns(req) } else { Vec::new() };
            let version = self.record_refusal(tag, head, reqid, user_version, result, kept, turn.store)?;
            if result >= 0 && !effects.is_empty() {
                self.on_durable(Action::effects(effects, head, req, user_version));
            }
            let versions = Some(if result == ENOENT { self.floor() } else { (version, user_version) });
            let reply = self.build_reply(req, result, versions, true);
            self.reply_when_durable(req, reply, timing);
            return Ok(Ran::Finished(Verdict::Submitted));
        }

        // Results that the client gets for a successful write, also for its resend. Output above the limit fails the
        // whole vector.
        let (mut shown, mut kept) = (0, Vec::new());
        if want_returns {
            shown = result;
            for op in req.msg.ops.iter_mut().filter(|o| o.outdata.len() > WRITE_REPLY_LEN_MAX) {
                op.rval = EOVERFLOW;
                op.outdata = Bytes::new();
                shown = EOVERFLOW;
            }
            if req.msg.ops.iter().map(|o| o.outdata.len() + RETURN_BYTES).sum::<usize>() > RETURNS_MAX {
                shown = EOVERFLOW;
            }
            if shown < 0 {
                return Err(shown.into());
            }
            kept = returns(req);
        }
        let done = finish(ctx, shown, kept);
        self.give_reads(reads);
        let user_version = done.user_version;
        match self.commit_object(tag, head, done, turn.store) {
            // The device is full. This, too, is answered only when it is logged.
            Err(Stop::Errno(ENOSPC)) => {
                let user_version = before.oi.user_version;
                let version = self.record_refusal(tag, head, reqid, user_version, ENOSPC, Vec::new(), turn.store)?;
                let reply = self.build_reply(req, ENOSPC, Some((version, user_version)), false);
                self.reply_when_durable(req, reply, timing);
                return Ok(Ran::Finished(Verdict::Submitted));
            }
            // Nothing was changed. A device is too small for frames of the size that the table of sizes has.
            Err(Stop::Errno(E2BIG)) => return Err(self.exceeds_a_frame(head, req)),
            r => r?,
        }
        if !effects.is_empty() {
            self.on_durable(Action::effects(effects, head, req, user_version));
        }
        let version = self.journal.info().last_update;
        if !want_returns {
            let Timing { kind, read, written, .. } = timing;
            return Ok(Ran::Written(Answer { kind, version, user_version, read, written, repeats: false }));
        }
        let reply = self.build_reply(req, shown, Some((version, user_version)), true);
        self.reply_when_durable(req, reply, timing);
        Ok(Ran::Finished(Verdict::Submitted))
    }

    /// Logs that the changes of a request do not fit the log of one of the PG's OSDs. Returns the client's error.
    fn exceeds_a_frame(&self, head: &HObject, req: &OpRequest) -> Stop {
        tracing::info!(
            pg = %self.env.spg(), object = %head, client = %req.client,
            "request refused: its metadata exceeds what a log of the PG's OSDs or a message takes at once"
        );
        EMSGSIZE.into()
    }

    /// Takes the request of a successful write out of its plan, to answer it when the most recently submitted
    /// transaction is durable.
    fn answer_when_durable(&mut self, plan: &mut Plan, a: Answer) {
        self.leave_spaceless(plan);
        let Work::Client(mut req, _) = std::mem::replace(&mut plan.work, Work::Peering(PeeringWork::Apply)) else {
            return unreached("the plan is a client's");
        };
        req.msg.ops.iter_mut().for_each(OsdOp::clear_output);
        self.on_durable(Action::Answer(req, Answer { repeats: self.plans.keeps_request, ..a }));
    }

    /// Sends the reply when the most recently submitted transaction is durable.
    fn reply_when_durable(&mut self, req: &OpRequest, reply: Box<MOsdOpReply>, timing: Timing) {
        let again = self.plans.again.take();
        self.on_durable(Action::Reply(req.session, reply, Box::new(timing), again));
    }

    /// Logs a write that changes nothing, with its result, so that a resend gets the same answer. Returns the
    /// record's version.
    #[allow(clippy::too_many_arguments, reason = "the parts of a record")]
    fn record_refusal(
        &mut self,
        tag: Tag,
        head: &HObject,
        reqid: ReqId,
        user_version: u64,
        result: Errno,
        returns: Vec<OpReturn>,
        store: &mut dyn ObjectStore,
    ) -> Step<Eversion> {
        let version = self.next_version();
        let entry = LogEntry {
            kind: LogKind::Error,
            soid: head.clone(),
            version,
            prior_version: Eversion::default(),
            user_version,
            reqid,
            mtime: Utime::ZERO,
            result,
            returns,
            snaps: Vec::new(),
            delta: StatSum::default(),
            undo: bytes::Bytes::new(),
            touch: None,
        };
        self.commit_entries(tag, Vec::new(), &mut [entry], store)?;
        Ok(version)
    }

    /// The snapshot context of the vector: that of the pool, or that of the request.
    fn snap_context(&self, req: &OpRequest, pool: &crate::map::PoolView) -> Step<Snapc> {
        let c = &req.msg.snapc;
        if req.msg.flags & msg_flags::ENFORCE_SNAPC == 0 && pool.has(pool_flags::POOL_SNAPS) {
            return Ok(Snapc { seq: pool.snap_seq, snaps: pool.snaps.clone() });
        }
        if !c.is_valid() {
            return Err(EINVAL.into());
        }
        let snaps = c.snaps.iter().map(|s| s.0).filter(|s| !pool.removed_snaps.contains(*s)).collect();
        Ok(Snapc { seq: c.seq.0, snaps })
    }

    /// Answers a resent write that is in the log; false if it is not.
    fn answer_dup(&mut self, req: &mut OpRequest, reqid: &ReqId, turn: &mut Turn<'_>) -> bool {
        let Some(d) = self.journal.find_request(reqid) else { return false };
        let (result, version, user_version) = (d.result, d.version, d.user_version);
        for (i, op) in req.msg.ops.iter_mut().enumerate() {
            let r = d.returns.as_ref().and_then(|r| r.get(i));
            op.rval = r.map_or(0, |r| r.rval);
            op.outdata = r.map_or_else(Bytes::new, |r| r.out.clone());
        }
        self.report.count_dup();
        let seq = self.commit_of(version);
        let versions = Some((version, user_version));
        self.reply_after(seq, req, result, versions, Kind::Write, turn);
        true
    }

    /// Versions in the answer of a vector whose object does not exist: a lower bound of the object's future versions.
    fn floor(&self) -> (Eversion, u64) {
        (self.journal.info().last_update, self.journal.info().last_user_version)
    }

    /// Builds the reply to `req` and takes its operations. `None` for versions: an error that shows no object.
    pub(in crate::pg) fn build_reply(
        &mut self,
        req: &mut OpRequest,
        result: i32,
        versions: Option<(Eversion, u64)>,
        keep_output: bool,
    ) -> Box<MOsdOpReply> {
        if self.plans.keeps_request {
            let mut again = Box::new(req.clone());
            for op in &mut again.msg.ops {
                op.clear_output();
                op.rval = 0;
            }
            self.plans.again = Some(again);
        }
        let mut ops = std::mem::take(&mut req.msg.ops);
        for op in &mut ops {
            op.indata = Bytes::new();
            if !keep_output {
                op.clear_output();
            }
            if matches!(op.op, OpCode::READ | OpCode::SYNC_READ) {
                let mut e = op.extent();
                e.length = op.outdata.len() as u64;
                op.set_extent(e);
            }
        }
        let (replay_version, user_version) = versions.unwrap_or_default();
        Box::new(MOsdOpReply {
            tid: req.msg.tid,
            oid: std::mem::take(&mut req.msg.oid),
            pgid: req.msg.pgid.pg,
            flags: u64::from(req.msg.flags | msg_flags::ACK | msg_flags::ONDISK),
            result,
            bad_replay_version: Eversion::default(),
            osdmap_epoch: self.epoch(),
            ops,
            retry_attempt: req.msg.retry_attempt,
            replay_version,
            user_version,
            redirect: None,
            trace: req.msg.trace,
        })
    }
}

/// Bytes of an operation's result in a log record beside its output.
const RETURN_BYTES: usize = 16;

/// Outcome of a vector.
enum Ran {
    Finished(Verdict),
    /// A write without output is submitted; its request is to be answered.
    Written(Answer),
    Copy(crate::exec::CopyRequest),
    /// The part of a long call is over.
    Paused,
}

/// Results that a log record keeps: without output, or none at all, if they are more than a record may hold.
fn returns(req: &OpRequest) -> Vec<OpReturn> {
    let ops = &req.msg.ops;
    let all = |outs: bool| {
        let out = |o: &OsdOp| if outs { crate::pg::own(&o.outdata) } else { Bytes::new() };
        ops.iter().map(|o| OpReturn { rval: o.rval, out: out(o) }).collect()
    };
    let bare = ops.len() * RETURN_BYTES;
    let outs: usize = ops.iter().map(|o| o.outdata.len()).sum();
    if bare > RETURNS_MAX { Vec::new() } else { all(bare + outs <= RETURNS_MAX) }
}
