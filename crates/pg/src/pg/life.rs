//! Creation, loading, map changes, new intervals and removal of a PG. What the primary does in a new interval is in
//! `peering`, what other copies do in `member`.

use super::kept;
use super::report::Stage;
use super::{Pg, PgConfig, State};
use crate::effect::Effect;
use crate::event::CreateInfo;
use crate::exec::{Step, Stop};
use crate::info::PgInfo;
use crate::interval::{IntervalKey, PastInterval, from_monitor};
use crate::limits::{DELETE_BATCH, DELETE_BATCH_COST, EPOCHS_UNSAVED_MAX, PAST_INTERVALS_MANY, READ_LEASE};
use crate::log::LogEntry;
use crate::map::{MapView, PoolKind, pool_flags};
use crate::pace::Class;
use crate::pg::ops::commit::{Action, Kind};
use crate::pg::ops::plan::{Verdict, Work};
use crate::pg::peering::session::Peers;
use crate::pg::peering::shards::outlives_any;
use base::errno::{EAGAIN, EIO, ENOENT};
use base::planted::{Bug, acts};
use base::{Epoch, Eversion, HObject, Now, OsdId};
use store::removal::{self, Bounds};
use store::{Cid, ObjectStore, Op, Transaction};
use wire::Decode as _;

impl Pg {
    /// Creates a PG that this OSD does not have. The host hands in the newest map next.
    pub fn create(
        cfg: PgConfig,
        how: CreateInfo,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Self {
        let mut pg = Self::blank(cfg, State::Creating);
        pg.begin(&how);
        pg.info.history = how.extra.history.clone();
        pg.info.past = from_monitor(&how.extra.past_intervals);
        pg.info.created_stamp = how.stamp.stamp;
        pg.start_work(Work::Create(Box::new(how)), None, now, store, out);
        pg
    }

    /// Creates a copy of a PG on the message of another OSD, whose info is `theirs`. The host hands in the newest map
    /// next.
    pub fn adopt(
        cfg: PgConfig,
        how: CreateInfo,
        theirs: &PgInfo,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Self {
        tracing::debug!(pg = %cfg.spg, bits = how.bits, "creating a copy, as another OSD requests");
        let mut pg = Self::blank(cfg, State::Creating);
        pg.begin(&how);
        pg.info.history = theirs.history.clone();
        pg.info.past.clone_from(&theirs.past);
        pg.info.created_stamp = theirs.created_stamp;
        pg.start_work(Work::Create(Box::new(how)), None, now, store, out);
        pg
    }

    fn begin(&mut self, how: &CreateInfo) {
        (self.bits, self.bits_coming) = (how.bits, how.bits);
        self.cid = how.cid.unwrap_or(self.cid);
        // Older maps do not concern this copy: after a restart they must not merge it into another PG.
        self.info.epoch = how.epoch;
    }

    /// Loads a PG from its collection, which has `bits` hash bits. The host hands in the maps after the stored one
    /// next.
    pub fn load(cfg: PgConfig, bits: u32, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) -> Self {
        Self::load_from(cfg, Cid::Pg(cfg.spg), bits, now, store, out)
    }

    /// As [`Pg::load`], from a collection of another name.
    pub fn load_from(
        cfg: PgConfig,
        cid: Cid,
        bits: u32,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Self {
        let mut pg = Self::blank(cfg, State::Loading);
        (pg.cid, pg.bits, pg.bits_coming) = (cid, bits, bits);
        pg.start_work(Work::Load, None, now, store, out);
        pg
    }

    pub(super) fn run_create(
        &mut self,
        id: u64,
        how: &CreateInfo,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        let mut txn = Transaction::new();
        txn.push(Op::MakeCollection { cid: self.cid, bits: how.bits });
        txn.push(Op::Touch { cid: self.cid, oid: self.meta() });
        txn.push(Op::PgInfo { cid: self.cid, info: self.info.to_blob() });
        self.submit_own(id, txn, Action::Created, store, out)
    }

    /// Submits a transaction without log records.
    fn submit_own(
        &mut self,
        id: u64,
        txn: Transaction,
        then: Action,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        let tag = self.tag(id);
        match self.commit_entries(tag, txn.ops, &mut [], store) {
            Ok(()) => {
                self.on_durable(then);
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, out),
        }
    }

    pub(super) fn collection_made(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        self.state = State::Stray;
        self.take_early_maps(now, store, out);
    }

    pub(super) fn take_early_maps(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        // A map may split the PG; the maps after it are then kept again.
        for map in std::mem::take(&mut self.early_maps) {
            self.handle_map(map, now, store, out);
        }
        if self.is_early() {
            return;
        }
        for (from, msg) in std::mem::take(&mut self.early_peers) {
            self.handle_peer(from, &msg, now, store, out);
        }
    }

    pub(super) fn run_load(
        &mut self,
        id: u64,
        now: Now,
        store: &mut dyn ObjectStore,
        out: &mut Vec<Effect>,
    ) -> Verdict {
        match self.load_all(id, now, store) {
            Ok(()) => {
                self.state = State::Stray;
                self.take_early_maps(now, store, out);
                Verdict::Done
            }
            Err(stop) => self.step_failed(stop, out),
        }
    }

    fn load_all(&mut self, id: u64, now: Now, store: &mut dyn ObjectStore) -> Step<()> {
        let tag = self.tag(id);
        let blob = store.pg_info(tag, self.cid)?.ok_or_else(|| {
            tracing::error!(pg = %self.cfg.spg, "collection without PG info; the copy fails");
            EIO
        })?;
        let spg = self.cfg.spg;
        let damaged = |what: &str, e: wire::DecodeError| {
            tracing::error!(pg = %spg, what, error = %e, "stored state of the PG does not decode; the copy fails");
            Stop::Errno(EIO)
        };
        self.shard = Default::default();
        let mut info = PgInfo::from_blob(&blob).map_err(|e| damaged("info", e))?;
        let records = store.log_entries(tag, self.cid, Eversion::default())?;
        let mut log = crate::log::PgLog::default();
        log.tail = info.log_tail;
        for (_, record) in records {
            let e = LogEntry::from_record(&record).map_err(|e| damaged("log record", e))?;
            info.replay(&e);
            self.note_aside(&e);
            log.push(e.dup());
        }
        let mut missing = std::collections::BTreeMap::new();
        let mut from = bytes::Bytes::new();
        loop {
            let page =
                match store.omap_range(tag, self.cid, &self.meta_missing(), &from, !from.is_empty(), 1024, 1 << 20) {
                    Ok(p) => p,
                    Err(store::ReadError::NoObject) => break,
                    Err(e) => return Err(e.into()),
                };
            for (k, v) in &page.entries {
                let head = HObject::from_bytes(k).map_err(|e| damaged("missing object", e))?;
                missing.insert(head, Eversion::from_bytes(v).map_err(|e| damaged("missing object", e))?);
            }
            match page.entries.last() {
                Some((k, _)) if page.more => from = k.clone(),
                _ => break,
            }
        }
        self.missing = missing;
        self.reported_seq = info.reported_seq;
        // Leases granted before the restart are unknown, and may still last.
        for o in info.interval.mapping.acting(self.is_coded()).osds() {
            if o != self.cfg.whoami {
                self.granted.insert(o, now.mono + READ_LEASE);
            }
        }
        self.info = info;
        self.log = log;
        Ok(())
    }

    pub(super) fn handle_map(&mut self, map: MapView, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        match self.state {
            State::Loading | State::Creating | State::Splitting | State::Merging | State::Arriving => {
                return kept::keep_map(&mut self.early_maps, map);
            }
            State::Leaving => return,
            State::Deleting | State::Deleted | State::Stopped => {
                self.await_children(&map);
                return self.nothing_to_split(out);
            }
            State::Failed(_) => {
                if self.map_of_failed(map, out) {
                    self.start_delete(now, store, out);
                }
                return;
            }
            _ => {}
        }
        if self.map.as_ref().is_some_and(|m| m.epoch >= map.epoch) {
            return;
        }
        if self.map.is_none() && map.epoch < self.info.epoch {
            // The stored info includes this map.
            return;
        }
        let Some(key) = IntervalKey::of(&map) else {
            return self.start_delete(now, store, out);
        };
        if map.merged_into(self.cfg.spg.pg).is_some() {
            return self.start_leave(map, now, store, out);
        }
        if self.await_sources(&map) {
            return self.start_pg_merge(map, now, store, out);
        }
        if self.await_children(&map) {
            return self.start_split(map, now, store, out);
        }
        let first = self.map.is_none();
        let gap = self.missed_before(&map);
        // A restart starts a new interval even with the same acting set: this OSD was down in between.
        let restarted = first && self.info.history.same_interval_since < map.up_from;
        let new_interval = restarted || gap.is_some() || !self.info.interval.continues(&key, self.cfg.spg.pg);
        let came_back = self.map.as_ref().is_some_and(|m| m.up_from < map.up_from);
        let led = !first && self.primary() == self.me();
        if new_interval {
            self.remember_grants(now);
            self.new_interval(&map, key, gap);
        } else if self.info.interval != key {
            // `pg_num` changed, without effect on this PG.
            self.info.interval = key;
            self.info_dirty = true;
        }
        self.map = Some(map);
        self.learn_code();
        self.refresh_trim();
        if new_interval || first {
            self.reset(led, now, store, out);
        } else {
            if came_back {
                self.tell_primary(now);
            }
            self.same_interval(now, store, out);
        }
    }

    /// Repeats the notify to the primary, which did not get it while this OSD was down.
    fn tell_primary(&mut self, now: Now) {
        let primary = self.primary();
        if self.state == State::Stray && primary.osd.0 >= 0 && primary != self.me() {
            self.notify(primary, now);
        }
    }

    /// The epochs before `map` that this OSD has missed for good, if there are any.
    fn missed_before(&self, map: &MapView) -> Option<PastInterval> {
        let seen = self.map.as_ref().map_or(self.info.epoch, |m| m.epoch);
        if map.since <= seen.next() {
            return None;
        }
        let last = Epoch(map.since.0 - 1);
        tracing::warn!(pg = %self.cfg.spg, first = %seen.next(), %last, "maps are missing: other OSDs may have served the PG meanwhile");
        Some(PastInterval::unknown(seen.next(), last))
    }

    /// Records the end of the interval and the start of a new one in the history. `gap`: epochs between the two of
    /// which nothing is known.
    fn new_interval(&mut self, map: &MapView, key: IntervalKey, gap: Option<PastInterval>) {
        let goes_on = gap.is_none() && self.info.interval.continues(&key, self.cfg.spg.pg);
        let since = if goes_on { map.up_from } else { map.epoch };
        let old = std::mem::replace(&mut self.info.interval, key);
        let (coded, me) = (self.is_coded(), self.me());
        let h = &mut self.info.history;
        let started_before = h.same_interval_since;
        if self.map.is_some() || !old.mapping.acting.is_empty() {
            let last = Epoch(gap.as_ref().map_or(since, |g| g.first).0.saturating_sub(1));
            let primary = old.mapping.acting_primary;
            let copies = old.mapping.acting(coded).len();
            // Peering asks for another acting set where an OSD has too many shards.
            let k = self.map.as_ref().and_then(|m| m.pool.as_ref()?.code).map(|c| usize::from(c.k));
            let serves = k.is_none_or(|k| old.min_size as usize <= k || outlives_any(&old.mapping.acting, k));
            let maybe_went_rw = primary.0 >= 0
                && copies > 0
                && copies >= old.min_size as usize
                && serves
                && if old.mapping.primary(coded) == me {
                    self.info.last_epoch_started >= started_before
                } else {
                    let alive = self.map.as_ref().is_none_or(|m| {
                        m.osds.up_thru(primary) >= started_before && m.osds.up_from(primary) <= started_before
                    });
                    alive || h.last_epoch_clean >= started_before && h.last_epoch_clean <= last
                };
            // Peering asks only about intervals since the last one that started.
            let started = h.last_epoch_started;
            self.info.past.retain(|p| p.last >= started);
            if maybe_went_rw {
                let acting = old.mapping.acting.clone();
                self.info.past.push(PastInterval { first: started_before, last, acting, primary, maybe_went_rw });
            }
            self.info.past.extend(gap);
            if self.info.past.len() > PAST_INTERVALS_MANY {
                tracing::warn!(pg = %self.cfg.spg, intervals = self.info.past.len(), "very many past intervals; the PG has not been clean for long");
            }
            h.same_interval_since = since;
            let new = &self.info.interval.mapping;
            if old.mapping.up != new.up || since != map.epoch {
                h.same_up_since = since;
            }
            if old.mapping.acting_primary != new.acting_primary || since != map.epoch {
                h.same_primary_since = since;
            }
        } else if h.same_interval_since.0 == 0 {
            h.same_interval_since = map.epoch;
            h.same_up_since = map.epoch;
            h.same_primary_since = map.epoch;
        }
        self.info_dirty = true;
        let m = &self.info.interval.mapping;
        tracing::debug!(pg = %self.cfg.spg, epoch = %map.epoch, up = ?m.up, acting = ?m.acting, "new interval");
    }

    /// Ends all work with other copies. With `requeue`, unanswered operations are taken up again in the next
    /// interval.
    pub(super) fn leave_interval(&mut self, requeue: bool, out: &mut Vec<Effect>) {
        self.generation += 1;
        self.stay("the interval ended");
        if requeue {
            self.requeue();
        }
        // Held operations came for this map or a newer one, or are to be taken up again.
        let held = std::mem::take(&mut self.held);
        self.drop_operations(requeue, out);
        self.held = held;
        self.release_backoffs(out);
        self.peers = Peers::default();
        self.end_shard_interval();
        self.merging = false;
        self.apply_stuck = false;
        self.pushed.clear();
        self.waits_for_lease = false;
    }

    /// Ends the interval because the collection itself changes. Until that is done the PG serves nothing, and its
    /// caches are void. `requeue` as in [`Pg::leave_interval`].
    pub(super) fn close_collection(&mut self, state: State, requeue: bool, now: Now, out: &mut Vec<Effect>) {
        self.remember_grants(now);
        self.leave_interval(requeue, out);
        self.cache.clear();
        self.watches.clear();
        if let Some(t) = self.trim.used() {
            t.restart();
        }
        self.state = state;
    }

    /// Starts over in a new interval.
    fn reset(&mut self, led: bool, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        let leads = led && self.primary() == self.me() && !self.stopping;
        // There is no other copy that must have the writes.
        let alone = leads && self.others.is_empty();
        self.leave_interval(leads, out);
        // Clients resend what they sent to another primary, so its replies are dropped.
        if leads {
            // The operations are taken up again.
            for c in &mut self.commits {
                c.actions.retain(|a| alone && matches!(a, Action::Reply(..)) || matches!(a, Action::PgsMerged(..)));
            }
        } else {
            self.drop_actions(out);
        }
        self.fence = self.submitted.max(self.fence_min);
        self.finish_commits(now, store, out);
        self.cache.clear();
        self.watches.clear();
        if let Some(t) = self.trim.used() {
            t.restart();
        }
        self.stamps.changed(now);
        // The info is stored, so that a restart knows of intervals that came and went.
        self.start_work(Work::SaveInfo, None, now, store, out);
        let Some(map) = self.map.as_ref().filter(|_| !self.has_failed()) else { return };
        let primary = self.primary();
        let mut others: Vec<OsdId> = self.acting_set().osds();
        others.retain(|o| *o != self.cfg.whoami);
        if !(others.is_empty() && self.others.is_empty()) {
            out.push(Effect::Members);
        }
        self.others = others;
        if primary != self.me() {
            self.state = State::Stray;
            let up = map.osds.is_up(primary.osd);
            self.drop_held(now, out);
            if primary.osd.0 >= 0 && up {
                self.notify(primary, now);
            }
            return;
        }
        if let Some(reason) = self.unservable() {
            tracing::warn!(pg = %self.cfg.spg, %reason, "PG stays inactive");
            self.state = State::Inactive(reason);
            return self.retry_held(now, store, out);
        }
        self.state = State::GetInfo;
        self.get_infos(now, store, out);
    }

    /// Handles the durability of everything from older intervals: from here on this copy may tell its state.
    pub(super) fn settled(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        let Some(map) = &self.map else { return };
        let primary = self.primary();
        match self.state {
            State::Stray if primary.osd.0 >= 0 && primary != self.me() && map.osds.is_up(primary.osd) => {
                self.notify(primary, now);
            }
            State::GetInfo => self.get_infos(now, store, out),
            _ => {}
        }
    }

    /// Reason why this build cannot serve the pool, if there is one.
    pub(super) fn unservable(&self) -> Option<String> {
        let pool = self.pool()?;
        if (pool.kind == PoolKind::Erasure) != self.is_coded() {
            Some("only one of the pool and this copy is erasure-coded".to_owned())
        } else if self.is_coded() && self.coder.is_none() {
            Some("the pool's erasure-code profile is not understood".to_owned())
        } else if pool.tiered {
            Some("cache tiers are not served".to_owned())
        } else {
            None
        }
    }

    /// Handles a newer map of the same interval.
    fn same_interval(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        if self.epoch().0.saturating_sub(self.info.epoch.0) >= EPOCHS_UNSAVED_MAX {
            self.start_work(Work::SaveInfo, None, now, store, out);
        }
        match self.state {
            State::WaitUpThru => self.check_up_thru(now, store, out),
            // An OSD that holds leases may be dead by this map.
            State::WaitLease => self.wait_for_leases(now, store, out),
            State::Active | State::Peered | State::Quiesced => {
                self.check_sources();
                self.check_lost(now, store, out);
                self.fence_watches(now, store, out);
                self.retry_blocked();
                self.retry_held(now, store, out);
            }
            State::GetInfo | State::Down(_) => {
                self.get_infos(now, store, out);
                self.retry_held(now, store, out);
            }
            State::GetLog => self.check_auth(now, store, out),
            State::Inactive(_) => {
                if self.unservable().is_none() {
                    self.get_infos(now, store, out);
                }
                self.retry_held(now, store, out);
            }
            // Reads of clients that had this map earlier.
            State::ReplicaActive | State::Stray => self.retry_held(now, store, out),
            _ => {}
        }
        self.tell_created(out);
    }

    /// Chooses another authoritative log, if the copy that has it went down before it sent the log.
    fn check_auth(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        let (Some(auth), Some(map)) = (self.peers.auth, &self.map) else { return };
        if !self.merging && !map.osds.is_up(auth.osd) && !acts(Bug::AskDeadForLog) {
            tracing::info!(pg = %self.cfg.spg, %auth, "the copy with the authoritative log is down");
            self.choose_again(now, store, out);
        }
    }

    fn fence_watches(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        let Some(map) = &self.map else { return };
        if map.blocklist.is_empty() {
            return;
        }
        let blocklist = std::rc::Rc::clone(&map.blocklist);
        for e in self.watches.fence(|a| blocklist.contains(a)) {
            let head = e.head.clone();
            self.start_work(Work::Expire(e), Some(head), now, store, out);
        }
    }

    pub(super) fn check_up_thru(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        let since = self.info.history.same_interval_since;
        if self.map.as_ref().is_none_or(|m| m.up_thru < since) && !acts(Bug::SkipUpThru) {
            out.push(Effect::WantUpThru(since));
            return;
        }
        self.state = State::Activating;
        self.start_work(Work::Activate, None, now, store, out);
    }

    /// Tells the monitor once that the PG exists, while the pool is being created.
    pub(super) fn tell_created(&mut self, out: &mut Vec<Effect>) {
        if self.is_active() && !self.created_told && self.pool().is_some_and(|p| p.has(pool_flags::CREATING)) {
            self.created_told = true;
            out.push(Effect::Created);
        }
    }

    /// Drops operations held for this map. Those for a newer map are kept, since clients do not resend them.
    fn drop_held(&mut self, now: Now, out: &mut Vec<Effect>) {
        let epoch = self.epoch();
        for mut r in self.held.take() {
            if r.msg.osdmap_epoch > epoch {
                // The queue holds no more than before.
                let full = self.held.push(r);
                self.close_sessions(full, out);
            } else if crate::pg::ops::admit::is_for_any(&r) {
                self.reply_error(&mut r, EAGAIN, Kind::Read, now, out);
            } else {
                self.drop_of(r.session, r.msg.tid, out);
            }
        }
    }

    pub(super) fn start_delete(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        tracing::debug!(pg = %self.cfg.spg, "removing all of the PG");
        self.stay("the PG is being removed");
        self.generation += 1;
        self.state = State::Deleting;
        // Keeps the name taken, so that no reactor creates the PG meanwhile.
        let leaver = self.leaver.take().unwrap_or_else(|| Box::new(self.reserver.leave(self.cfg.spg)));
        self.leaver = Some(leaver);
        self.drop_operations(false, out);
        self.drop_actions(out);
        self.peers = Peers::default();
        // After a crash the remains must not look like a copy.
        self.info.last_update = Eversion::default();
        self.info.last_epoch_started = Epoch(0);
        self.info.last_backfill = HObject::min();
        self.info_dirty = true;
        self.missing.clear();
        self.finish_commits(now, store, out);
        self.watches.clear();
        self.cache.clear();
        self.start_work(Work::Delete, None, now, store, out);
    }

    /// Goes on with the deletion, if the pacer permits.
    pub(super) fn pump_delete(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        if self.pacer.take(Class::BestEffort, DELETE_BATCH_COST, self.cfg.index, now.mono) {
            self.delete_rests = false;
            self.start_work(Work::Delete, None, now, store, out);
            self.settle(now, store, out);
        }
    }

    pub(super) fn run_delete(&mut self, id: u64, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) -> Verdict {
        let tag = self.tag(id);
        let found = match removal::step(store, tag, self.cid, Bounds { objects: DELETE_BATCH, ..Bounds::default() }) {
            Ok(v) => v,
            Err(e) => match Stop::from(e) {
                Stop::Wait => return Verdict::Park(Stage::Reading),
                Stop::Errno(ENOENT) => Vec::new(),
                Stop::Errno(errno) => {
                    self.fail(errno, out);
                    return Verdict::Done;
                }
            },
        };
        if found.is_empty() {
            self.info_dirty = false;
            self.writes_since_info = 0;
            let txn = Transaction { ops: vec![Op::RemoveCollection { cid: self.cid }] };
            return self.submit_own(id, txn, Action::DeletedAll, store, out);
        }
        let rewind = Op::LogRewind { cid: self.cid, to: Eversion::default() };
        let some = |n| std::iter::once(&rewind).chain(found.iter().take(n)).cloned().collect();
        // On a full device only this may make room.
        match self.commit_first(tag, found.len(), some, store) {
            Ok(_) => {
                self.on_durable(Action::DeletedSome);
                Verdict::Submitted
            }
            Err(stop) => self.step_failed(stop, out),
        }
    }

    pub(super) fn handle_tick(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        self.check_lease_wait(now, store, out);
        self.retry_peers(now);
        self.retry_later(now, store, out);
        if self.waits_for_lease {
            self.retry_leases(now, store, out);
        }
        for e in self.watches.expire(now, out) {
            let head = e.head.clone();
            let plan = crate::pg::ops::plan::Plan::new(self.new_plan_id(), Work::Expire(e), Some(head), true);
            self.enqueue(plan);
        }
    }

    pub(super) fn handle_stop(&mut self, now: Now, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) {
        if self.stopping {
            return;
        }
        self.stopping = true;
        (self.depart, self.arrive) = (None, None);
        self.drop_operations(false, out);
        // Operations that others have not acknowledged are not answered by this process.
        for c in self.commits.iter_mut().filter(|c| c.shared > 0) {
            c.actions.retain(|a| matches!(a, Action::PgsMerged(..)));
        }
        self.peers = Peers::default();
        self.finish_commits(now, store, out);
        if matches!(self.state, State::Active | State::Peered | State::ReplicaActive | State::Stray)
            && (self.info_dirty || self.writes_since_info > 0)
        {
            self.start_work(Work::SaveInfo, None, now, store, out);
        }
    }

    pub(super) fn run_save_info(&mut self, id: u64, store: &mut dyn ObjectStore, out: &mut Vec<Effect>) -> Verdict {
        self.info.reported_seq = self.reported_seq;
        self.info_dirty = true;
        let tag = self.tag(id);
        match self.commit_entries(tag, Vec::new(), &mut [], store) {
            Ok(()) => Verdict::Submitted,
            Err(stop) => self.step_failed(stop, out),
        }
    }

    pub(super) fn check_stopped(&mut self, out: &mut Vec<Effect>) {
        if !self.stopped_told && self.commits.is_empty() && self.plans.is_empty() {
            if !matches!(self.state, State::Failed(_)) {
                self.state = State::Stopped;
            }
            self.stopped_told = true;
            out.push(Effect::Stopped);
        }
    }
}
