//! Removal of watches that timed out or whose client is blocklisted. A logged write takes the watch out of the
//! object's info, and the watcher is told when that is durable.

use crate::effect::Effect;
use crate::event::OpRequest;
use crate::exec::{OpCtx, Step, View, WatchDisconnect, WatchEffects, finish};
use crate::pg::ops::commit::Action;
use crate::pg::ops::plan::Verdict;
use crate::pg::{Pg, State};
use crate::watch::Expired;
use base::errno::ENOENT;
use base::planted::{Bug, acts};
use base::{Now, ReqId, Utime};
use store::{ObjectStore, Oid};

impl Pg {
    pub(in crate::pg) fn run_expire(
        &mut self,
        id: u64,
        e: &Expired,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        let leads = self.state == State::Active || acts(Bug::MembersEndWatches);
        if !leads || !self.watches.still_ending(e) {
            return Verdict::Done;
        }
        match self.end_watch(id, e, now, store) {
            Ok(()) => Verdict::Submitted,
            Err(stop) => self.step_failed(stop, out),
        }
    }

    /// Removes a watch from its object's info.
    fn end_watch(&mut self, id: u64, e: &Expired, now: Now, store: &mut dyn ObjectStore) -> Step<()> {
        let before = self.context(id, &e.head, now, store)?;
        let tag = self.tag(id);
        let pool = self.pool().cloned().ok_or(ENOENT)?;
        let mut req = OpRequest {
            owner: 0,
            session: crate::SessionId::default(),
            client: e.key.1,
            addr: base::EntityAddr::default(),
            features: 0,
            received: now,
            msg: Box::default(),
        };
        req.msg.mtime = Utime::ZERO;
        let env = self.env(&req, &pool.removed_snaps, ReqId::default(), now);
        let head_oid = Oid::new(e.head.clone());
        let view = View::new(store, tag, self.cid, head_oid, None);
        let mut ctx = OpCtx::new(view, &env, &e.head, &before, before.oi.clone());
        ctx.modify = true;
        let mut effects = WatchEffects::default();
        effects.disconnects.push(WatchDisconnect { key: e.key, tell: true });
        if ctx.oi.watchers.remove(&e.key).is_none() {
            // The info lacks the watch: only the table must drop it.
            drop(ctx);
            self.commit_entries(tag, Vec::new(), &mut [], store)?;
        } else {
            let done = finish(ctx, 0, Vec::new());
            self.commit_object(tag, &e.head, done, store)?;
        }
        tracing::debug!(pg = %self.cfg.spg, object = %e.head, client = %e.key.1, cookie = e.key.0, "watch ended");
        self.on_durable(Action::effects(effects, &e.head, &req, before.oi.user_version));
        Ok(())
    }
}
