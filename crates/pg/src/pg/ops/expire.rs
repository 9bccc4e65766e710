//! Removal of watches that timed out or whose client is blocklisted. A logged write takes the watch out of the
//! object's info, and the watcher is told when that is durable.

use crate::event::OpRequest;
use crate::exec::{OpCtx, Step, Stop, View, WatchDisconnect, WatchEffects, finish};
use crate::pg::journal::action::Action;
use crate::pg::ops::plan::Verdict;
use crate::pg::{Pg, State, Turn};
use crate::watch::Expired;
use base::errno::{EIO, ENOENT};
use base::planted::{Bug, acts};
use base::{Now, ReqId, Utime};
use store::Oid;

impl Pg {
    pub(in crate::pg) fn run_expire(&mut self, id: u64, e: &Expired, turn: &mut Turn<'_>) -> Verdict {
        let leads = *self.life.state() == State::Active || acts(Bug::MembersEndWatches);
        if !leads || !self.watches.still_ending(e) {
            return Verdict::Done;
        }
        match self.end_watch(id, e, turn) {
            Ok(()) => Verdict::Submitted,
            // Other copies give the object; the plan runs again when it is here.
            Err(Stop::Errno(EIO)) if self.can_heal(&e.head) => Verdict::Damaged(e.head.clone()),
            Err(Stop::Errno(EIO)) => {
                // No operation can reach the object. Its info keeps the watch, and the table must not try again.
                tracing::error!(pg = %self.env.spg(), object = %e.head, "a watch of an unreadable object ended");
                match self.drop_watch(id, e, 0, turn) {
                    Ok(()) => Verdict::Submitted,
                    Err(stop) => self.step_failed(stop, turn.out),
                }
            }
            Err(stop) => self.step_failed(stop, turn.out),
        }
    }

    /// A request in the name of the watcher.
    fn request_of(e: &Expired, now: Now) -> OpRequest {
        let mut req = OpRequest {
            owner: 0,
            session: crate::SessionId::default(),
            client: e.key.1,
            addr: base::EntityAddr::default(),
            features: 0,
            received: now,
            ledger: base::ledger::Ledger::begin(now.mono, now.wall, Utime::ZERO),
            msg: Box::default(),
        };
        req.msg.mtime = Utime::ZERO;
        req
    }

    /// Removes a watch from its object's info.
    fn end_watch(&mut self, id: u64, e: &Expired, turn: &mut Turn<'_>) -> Step<()> {
        let before = self.context(id, &e.head, turn)?;
        let tag = self.tag(id);
        let pool = self.pool().cloned().ok_or(ENOENT)?;
        let req = Self::request_of(e, turn.now);
        let env = self.env(&req, &pool.removed_snaps, ReqId::default(), turn.now);
        let head_oid = Oid::new(e.head.clone());
        let view = View::new(turn.store, tag, self.env.cid(), head_oid, None);
        let mut ctx = OpCtx::new(view, &env, &e.head, &before, before.oi.clone());
        ctx.change.any = true;
        if ctx.oi.watchers.remove(&e.key).is_none() {
            // The info lacks the watch: only the table must drop it.
            drop(ctx);
            return self.drop_watch(id, e, before.oi.user_version, turn);
        }
        let done = finish(ctx, 0, Vec::new());
        self.commit_object(tag, &e.head, done, turn.store)?;
        self.notify_ended(e, before.oi.user_version, turn.now);
        Ok(())
    }

    /// Drops a watch from the table alone.
    fn drop_watch(&mut self, id: u64, e: &Expired, user_version: u64, turn: &mut Turn<'_>) -> Step<()> {
        self.commit_entries(self.tag(id), Vec::new(), &mut [], turn.store)?;
        self.notify_ended(e, user_version, turn.now);
        Ok(())
    }

    /// Ends the watch in the table, and tells the watcher, when the last transaction is durable.
    fn notify_ended(&mut self, e: &Expired, user_version: u64, now: Now) {
        let mut effects = WatchEffects::default();
        effects.disconnects.push(WatchDisconnect { key: e.key, tell: true });
        tracing::debug!(pg = %self.env.spg(), object = %e.head, client = %e.key.1, cookie = e.key.0, "watch ended");
        self.on_durable(Action::effects(effects, &e.head, &Self::request_of(e, now), user_version));
    }
}
