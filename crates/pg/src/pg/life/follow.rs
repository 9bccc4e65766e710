//! Maps: new intervals, and what follows from a map of the same interval. What the primary does in a new interval is
//! in `peering/choose`, what other copies do in `peering/member`.

use crate::effect::Effect;
use crate::interval::{IntervalKey, PastInterval};
use crate::limits::{EPOCHS_UNSAVED_MAX, PAST_INTERVALS_MANY};
use crate::map::{MapView, PoolKind, pool_flags};
use crate::pg::journal::action::Action;
use crate::pg::journal::action::Kind;
use crate::pg::journal::action::ResizeAction;
use crate::pg::ops::work::LifeWork;
use crate::pg::ops::work::PeeringWork;
use crate::pg::ops::work::Work;
use crate::pg::peering::shards::outlives_any;
use crate::pg::{Pg, State, Turn};
use crate::shards::PeerId;
use base::errno::EAGAIN;
use base::planted::{Bug, acts};
use base::unreached;
use base::{Epoch, Now, OsdId};

impl Pg {
    pub(in crate::pg) fn handle_map(&mut self, map: MapView, turn: &mut Turn<'_>) {
        match self.life.state() {
            State::Loading | State::Creating | State::Splitting | State::Merging | State::Arriving => {
                return self.maps.keep(map);
            }
            State::Leaving => return,
            State::Deleting { .. } | State::Deleted | State::Stopped => {
                self.await_children(&map);
                return self.nothing_to_split(turn.out);
            }
            State::Failed(_) => {
                if self.map_of_failed(map, turn.out) {
                    self.start_delete(turn);
                }
                return;
            }
            _ => {}
        }
        if self.maps.newest().is_some_and(|m| m.epoch >= map.epoch) {
            return;
        }
        if self.maps.newest().is_none() && map.epoch < self.journal.info().epoch {
            // The stored info includes this map.
            return;
        }
        let Some(key) = IntervalKey::of(&map) else {
            return self.start_delete(turn);
        };
        if map.merged_into(self.env.spg().pg).is_some() {
            return self.start_leave(map, turn);
        }
        if self.await_sources(&map) {
            return self.start_pg_merge(map, turn);
        }
        if self.await_children(&map) {
            return self.start_split(map, turn);
        }
        self.take_map(map, key, turn);
    }

    /// Takes a map that neither removes the PG nor changes its collection.
    fn take_map(&mut self, map: MapView, key: IntervalKey, turn: &mut Turn<'_>) {
        let first = self.maps.newest().is_none();
        let gap = self.missed_before(&map);
        // A restart starts a new interval even with the same acting set: this OSD was down in between.
        let restarted = first && self.journal.info().history.same_interval_since < map.up_from;
        let new_interval =
            restarted || gap.is_some() || !self.journal.info().interval.continues(&key, self.env.spg().pg);
        let came_back = self.maps.newest().is_some_and(|m| m.up_from < map.up_from);
        let led = !first && self.primary() == self.me();
        if new_interval {
            self.remember_grants(turn.now);
            self.new_interval(&map, key, gap);
        } else if self.journal.info().interval != key {
            // `pg_num` changed, without effect on this PG.
            self.journal.rename_interval(key);
        }
        self.maps.follow(map);
        // A later map may no longer say that an OSD is dead: a purged one is in no map.
        self.drop_grants(turn.now);
        self.learn_code();
        self.refresh_trim();
        if new_interval || first {
            self.reset(led, turn);
        } else {
            if came_back {
                self.notify_primary(turn.now);
            }
            self.same_interval(turn);
        }
    }

    /// Repeats the notify to the primary, which did not get it while this OSD was down.
    fn notify_primary(&mut self, now: Now) {
        let primary = self.primary();
        if *self.life.state() == State::Stray && primary.osd.0 >= 0 && primary != self.me() {
            self.notify(primary, now);
        }
    }

    /// The epochs before `map` that this OSD has missed for good, if there are any.
    fn missed_before(&self, map: &MapView) -> Option<PastInterval> {
        let seen = self.maps.newest().map_or(self.journal.info().epoch, |m| m.epoch);
        if map.since <= seen.next() {
            return None;
        }
        let last = Epoch(map.since.0 - 1);
        tracing::warn!(pg = %self.env.spg(), first = %seen.next(), %last, "maps are missing: other OSDs may have served the PG meanwhile");
        Some(PastInterval::unknown(seen.next(), last))
    }

    /// Records the end of the interval and the start of a new one in the history. `gap`: epochs between the two of
    /// which nothing is known.
    fn new_interval(&mut self, map: &MapView, key: IntervalKey, gap: Option<PastInterval>) {
        let info = self.journal.info();
        let goes_on = gap.is_none() && info.interval.continues(&key, self.env.spg().pg);
        let since = if goes_on { map.up_from } else { map.epoch };
        if self.maps.newest().is_some() || !info.interval.mapping.acting.is_empty() {
            let last = Epoch(gap.as_ref().map_or(since, |g| g.first).0.saturating_sub(1));
            let over = self.may_have_served(last).into_iter().chain(gap);
            self.journal.begin_interval(key, since, map.epoch, over);
            let n = self.journal.info().past.len();
            if n > PAST_INTERVALS_MANY {
                tracing::warn!(pg = %self.env.spg(), intervals = n, "very many past intervals; the PG has not been clean for long");
            }
        } else {
            self.journal.begin_first_interval(key, map.epoch);
        }
        let m = &self.journal.info().interval.mapping;
        tracing::debug!(pg = %self.env.spg(), epoch = %map.epoch, up = ?m.up, acting = ?m.acting, "new interval");
    }

    /// The present interval, which ends with epoch `last`, if its members may have taken writes.
    fn may_have_served(&self, last: Epoch) -> Option<PastInterval> {
        let (info, newest) = (self.journal.info(), self.maps.newest());
        let (old, h) = (&info.interval, &info.history);
        let first = h.same_interval_since;
        let primary = old.mapping.acting_primary;
        let copies = old.mapping.acting(self.is_coded()).len();
        // Peering asks for another acting set where an OSD has too many shards.
        let k = newest.and_then(|m| m.pool.as_ref()?.code).map(|c| usize::from(c.k));
        let serves = k.is_none_or(|k| old.min_size as usize <= k || outlives_any(&old.mapping.acting, k));
        let maybe_went_rw = primary.0 >= 0
            && copies > 0
            && copies >= old.min_size as usize
            && serves
            && if old.mapping.primary(self.is_coded()) == self.me() {
                info.last_epoch_started >= first
            } else {
                let alive = newest.is_none_or(|m| m.osds.up_thru(primary) >= first && m.osds.up_from(primary) <= first);
                alive || h.last_epoch_clean >= first && h.last_epoch_clean <= last
            };
        let acting = || old.mapping.acting.clone();
        maybe_went_rw.then(|| PastInterval { first, last, acting: acting(), primary, maybe_went_rw })
    }

    /// Ends all work with other copies. With `requeue`, unanswered operations are taken up again in the next
    /// interval.
    pub(in crate::pg) fn leave_interval(&mut self, requeue: bool, out: &mut Vec<Effect>) {
        self.life.generation += 1;
        self.stay("the interval ended");
        if requeue {
            self.requeue();
        }
        // Held operations came for this map or a newer one, or are to be taken up again.
        self.drop_started(requeue, out);
        self.release_backoffs(out);
        self.forget_copies();
        self.end_shard_interval();
        self.peers.drop_merge();
        self.recovery.drop_pushed();
        self.mail.end_interval();
    }

    /// Forgets the state of the interval that concerns other copies.
    pub(in crate::pg) fn forget_copies(&mut self) {
        self.peers.end_interval();
        self.recovery.end_interval();
        self.scrub.end_interval();
    }

    /// Ends the interval because the collection itself changes. Until that is done the PG serves nothing, and its
    /// caches are void. `requeue` as in [`Pg::leave_interval`].
    pub(in crate::pg) fn close_collection(&mut self, state: State, requeue: bool, turn: &mut Turn<'_>) {
        self.remember_grants(turn.now);
        self.leave_interval(requeue, turn.out);
        self.drop_replies(requeue, turn.out);
        self.plans.forget_contexts();
        self.watches.clear();
        if let Some(t) = self.trim.used() {
            t.restart();
        }
        self.life.enter(state);
    }

    /// Drops the actions that wait for transactions: their replies would say that all copies have these, and no other
    /// copy's acknowledgement is awaited any more. A primary without other copies keeps its replies. `requeued`: its
    /// operations are taken up again; else clients send again what they sent to another primary.
    fn drop_replies(&mut self, requeued: bool, out: &mut Vec<Effect>) {
        if !requeued {
            return self.drop_actions(out);
        }
        let alone = self.maps.others().is_empty();
        self.journal.retain_actions(|_, a| {
            alone && a.answers().is_some() || matches!(a, Action::Resize(ResizeAction::PgsMerged(..)))
        });
    }

    /// Starts over in a new interval.
    fn reset(&mut self, led: bool, turn: &mut Turn<'_>) {
        let leads = led && self.primary() == self.me() && !self.life.is_stopping();
        self.leave_interval(leads, turn.out);
        self.drop_replies(leads, turn.out);
        self.journal.raise_settle_point();
        self.finish_commits(turn);
        self.plans.forget_contexts();
        self.watches.clear();
        if let Some(t) = self.trim.used() {
            t.restart();
        }
        self.report.state_changed(turn.now);
        // The info is stored, so that a restart knows of intervals that came and went.
        self.start_work(Work::Life(LifeWork::SaveInfo), None, turn);
        let Some(map) = self.maps.newest().filter(|_| !self.has_failed()) else { return };
        let primary = self.primary();
        let up = primary.osd.0 >= 0 && map.osds.is_up(primary.osd);
        let mut others: Vec<OsdId> = self.acting_set().osds();
        others.retain(|o| *o != self.env.whoami());
        let elsewhere = self.up().iter().any(|o| *o != self.env.whoami() && *o != OsdId::NONE);
        if elsewhere || !(others.is_empty() && self.maps.others().is_empty()) {
            turn.out.push(Effect::Members);
        }
        self.maps.set_others(others);
        if primary != self.me() {
            self.life.enter(State::Stray);
            self.drop_held(turn);
            if up {
                self.notify(primary, turn.now);
            }
            return;
        }
        if let Some(reason) = self.unservable() {
            tracing::warn!(pg = %self.env.spg(), %reason, "PG stays inactive");
            self.life.enter(State::Inactive(reason));
            return self.retry_held(turn);
        }
        self.life.enter(State::GetInfo);
        self.get_infos(turn);
    }

    /// Handles the durability of everything from older intervals: from here on this copy may tell its state.
    pub(in crate::pg) fn settled(&mut self, turn: &mut Turn<'_>) {
        let Some(map) = self.maps.newest() else { return };
        let primary = self.primary();
        match self.life.state() {
            State::Stray if primary.osd.0 >= 0 && primary != self.me() && map.osds.is_up(primary.osd) => {
                self.notify(primary, turn.now);
            }
            State::GetInfo => self.get_infos(turn),
            _ => {}
        }
    }

    /// Reason why this build cannot serve the pool, if there is one.
    pub(in crate::pg) fn unservable(&self) -> Option<String> {
        let pool = self.pool()?;
        if (pool.kind == PoolKind::Erasure) != self.is_coded() {
            Some("only one of the pool and this copy is erasure-coded".to_owned())
        } else if self.is_coded() && self.ec.coder().is_none() {
            Some("the pool's erasure-code profile is not understood".to_owned())
        } else if pool.tiered {
            Some("cache tiers are not served".to_owned())
        } else {
            None
        }
    }

    /// Handles a newer map of the same interval.
    fn same_interval(&mut self, turn: &mut Turn<'_>) {
        if self.epoch().0.saturating_sub(self.journal.info().epoch.0) >= EPOCHS_UNSAVED_MAX {
            self.start_work(Work::Life(LifeWork::SaveInfo), None, turn);
        }
        match self.life.state() {
            State::WaitUpThru { .. } => self.check_up_thru(turn),
            // An OSD that holds leases may be dead by this map.
            State::WaitLease { .. } => self.wait_for_leases(turn),
            State::Active | State::Peered | State::Quiesced => {
                self.check_sources();
                self.check_lost(turn);
                self.end_blocklisted_watches(turn);
                self.retry_blocked();
                self.retry_held(turn);
            }
            State::GetInfo | State::Down(_) => {
                self.get_infos(turn);
                self.retry_held(turn);
            }
            State::GetLog { auth, .. } => self.check_auth(*auth, turn),
            State::Inactive(_) => {
                if self.unservable().is_none() {
                    self.get_infos(turn);
                }
                self.retry_held(turn);
            }
            // Reads of clients that had this map earlier.
            State::ReplicaActive | State::Stray => self.retry_held(turn),
            _ => {}
        }
        self.report_created(turn.out);
    }

    /// Chooses another authoritative log, if the copy that has it went down before it sent the log.
    fn check_auth(&mut self, auth: PeerId, turn: &mut Turn<'_>) {
        let Some(map) = self.maps.newest() else { return unreached("a map is being handled") };
        if !self.peers.is_merging() && !map.osds.is_up(auth.osd) && !acts(Bug::AskDeadForLog) {
            tracing::info!(pg = %self.env.spg(), %auth, "the copy with the authoritative log is down");
            self.choose_again(turn);
        }
    }

    fn end_blocklisted_watches(&mut self, turn: &mut Turn<'_>) {
        let Some(map) = self.maps.newest() else { return unreached("a map is being handled") };
        if map.blocklist.is_empty() {
            return;
        }
        let blocklist = std::rc::Rc::clone(&map.blocklist);
        for e in self.watches.end_blocklisted(|a| blocklist.contains(a)) {
            let head = e.head.clone();
            self.start_work(Work::Expire(e), Some(head), turn);
        }
    }

    pub(in crate::pg) fn check_up_thru(&mut self, turn: &mut Turn<'_>) {
        let since = self.journal.info().history.same_interval_since;
        if self.maps.newest().is_none_or(|m| m.up_thru < since) && !acts(Bug::SkipUpThru) {
            turn.out.push(Effect::WantUpThru(since));
            return;
        }
        let targets = self.life.take_targets();
        self.life.enter(State::Activating { targets, recorded: false });
        self.start_work(Work::Peering(PeeringWork::Activate), None, turn);
    }

    /// Tells the monitor once that the PG exists, while the pool is being created.
    pub(in crate::pg) fn report_created(&mut self, out: &mut Vec<Effect>) {
        if self.is_active() && !self.life.created_told && self.pool().is_some_and(|p| p.has(pool_flags::CREATING)) {
            self.life.created_told = true;
            out.push(Effect::Created);
        }
    }

    /// Drops operations held for this map. Those for a newer map are kept, since clients do not resend them.
    fn drop_held(&mut self, turn: &mut Turn<'_>) {
        let epoch = self.epoch();
        for mut r in self.mail.take_held() {
            if r.msg.osdmap_epoch > epoch {
                // The queue holds no more than before.
                let full = self.mail.hold(r);
                self.close_sessions(full, turn.out);
            } else if crate::pg::mail::admit::is_for_any(&r) {
                self.reply_error(&mut r, EAGAIN, Kind::Read, turn);
            } else {
                self.drop_of(r.session, r.msg.tid, turn.out);
            }
        }
    }
}
