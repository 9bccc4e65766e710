//! Life of PGs: loading at the start, creation, splits, withdrawal.

use super::copies::led_copy;
use super::{Behind, Pgs, Views};
use crate::core::control::{PgCreate, Report};
use crate::core::maps::MapFeed;
use base::errno::{EIO, Errno};
use base::{Epoch, Now, PgId, SpgId};
use pg::info::PgInfo;
use pg::{CreateInfo, Effect, Event, LogLevel, Pg, PgConfig};
use std::collections::VecDeque;
use std::sync::Arc;
use store::{Cid, ObjectStore, Tag};

/// True for an effect that counts although its map is not the newest. Messages for older maps have no receiver.
fn holds_at_older_map(e: &Effect) -> bool {
    matches!(
        e,
        Effect::Split(_)
            | Effect::SplitFailed(..)
            | Effect::Merge { .. }
            | Effect::Deleted
            | Effect::Failed(_)
            | Effect::CopyFailed(_)
            | Effect::Log(LogLevel::Error, _)
    )
}

impl Pgs {
    /// Loads the PGs of this reactor from the store. `feed` is the stored map, if any.
    pub fn load(&mut self, feed: Option<Arc<MapFeed>>, now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        self.current.set(feed);
        if let Some(map) = self.current.map().cloned() {
            self.see_instance(&map);
            self.compression.follow(&map, store);
        }
        let found = self.stored_pgs(store);
        let Some(map) = self.current.map().cloned() else {
            if !found.is_empty() {
                tracing::error!(pgs = found.len(), "the store holds PGs but no map");
            }
            return;
        };
        let older = self.current.feed().map_or_else(|| Ok(Vec::new()), |f| f.older());
        // In that case the maps that PGs have missed are unknown.
        let maps_lost = older.is_err();
        let older = older.unwrap_or_else(|error| {
            tracing::error!(%error, "older stored OSD maps can't be decoded");
            Vec::new()
        });
        for w in older.windows(2) {
            if let [a, b] = w {
                self.places.follow(a, b);
            }
        }
        if let Some(last) = older.last() {
            self.places.follow(last, &map);
        }
        let (me, since) = (self.whoami(), self.current.since());
        let mut views: Vec<Views> = older.iter().chain([&map]).map(|m| self.current.views_of(m, me, since)).collect();
        let newest = views.len() - 1;
        let mut all = VecDeque::new();
        for (spg, cid, bits) in found {
            let cfg = self.config(spg);
            let lost_from = maps_lost.then_some(map.epoch);
            let (pg, seen) = self.load_pg(cfg, cid, bits, lost_from, store);
            all.push_back((self.add(cfg, pg), views.iter().position(|v| v.map().epoch >= seen).unwrap_or(newest)));
        }
        while let Some((i, first)) = all.pop_front() {
            for (n, v) in views.iter_mut().enumerate().skip(first) {
                self.note_merges(i, v.map());
                let made = self.promise_children(i, v);
                all.extend(made.into_iter().map(|i| (i, n)));
                let Some(pg) = self.pgs.get_mut(i) else { break };
                let view = v.of(pg.spg().pg);
                let mut said = Vec::new();
                pg.handle(Event::Map(view), now, store, &mut said);
                said.retain(|e| n == newest || holds_at_older_map(e));
                self.effects.append(&mut said);
                self.take_effects(i);
            }
        }
        self.deliver_born(now, store);
    }

    /// Collections of PGs, with their hash bits.
    fn stored_pgs(&mut self, store: &dyn ObjectStore) -> Vec<(SpgId, Cid, u32)> {
        let mut found: Vec<(SpgId, Cid, u32)> = Vec::new();
        for (cid, bits) in store.collections() {
            match pg::pg_of(cid) {
                // Leftovers of an interrupted merge are emptied when the merge is repeated.
                Some(spg) if pg::is_intake(spg.shard) => {}
                Some(spg) if !self.is_doomed(cid) => found.push((spg, cid, bits)),
                _ => {}
            }
        }
        found
    }

    /// Makes the machine of a stored PG. Returns it with the epoch of its last map. A PG whose info is unreadable fails,
    /// and so does one that lacks maps of which the newest is `lost_from`.
    fn load_pg(
        &mut self,
        cfg: PgConfig,
        cid: Cid,
        bits: u32,
        lost_from: Option<Epoch>,
        store: &mut dyn ObjectStore,
    ) -> (Pg, Epoch) {
        let spg = cfg.spg;
        let mut pg = Pg::load_from(cfg, cid, bits, self.now, store, &mut self.effects);
        // Maps that the PG missed since its info was stored.
        let info = match store.pg_info(Tag(0), cid) {
            Ok(b) => b.and_then(|b| PgInfo::from_blob(&b).ok()),
            Err(_) => None,
        };
        let seen = info.as_ref().map_or(Epoch(0), |i| i.epoch);
        if info.is_none() && !pg.has_failed() {
            pg.withdraw(EIO, "its stored info is unreadable", &mut self.effects);
        } else if lost_from.is_some_and(|newest| seen < newest) {
            pg.withdraw(EIO, "stored OSD maps that it has not processed do not decode", &mut self.effects);
        }
        pg.set_coming_pg_num(info.map_or(0, |i| i.interval.pg_num));
        pg.set_stored_epoch(seen);
        tracing::debug!(pg = %spg, ?cid, bits, %seen, "found in the store");
        (pg, seen)
    }

    /// Creates the machines of the PGs into which a map, which the PG has not seen yet, splits it.
    pub(super) fn promise_children(&mut self, i: u32, v: &mut Views) -> Vec<u32> {
        if self.is_between(i) {
            return Vec::new();
        }
        if self.pgs.get(i).is_some_and(|p| self.resizes.is_leaver(p.spg(), i)) {
            return Vec::new();
        }
        let Some(pg) = self.pgs.get_mut(i) else { return Vec::new() };
        if pg.has_processed(v.map().epoch) {
            return Vec::new();
        }
        let Some(pg_num) = v.map().pool(pg.spg().pg.pool).map(|p| p.pg_num) else { return Vec::new() };
        let mut made = Vec::new();
        for (spg, bits) in pg.splits_at(pg_num) {
            if self.by_pg.contains(spg) {
                tracing::error!(pg = %spg, "a PG exists before the split that creates it");
                continue;
            }
            let cfg = self.config(spg);
            let mut child = Pg::promise(cfg, bits);
            child.set_coming_pg_num(pg_num);
            made.push(self.add(cfg, child));
        }
        made
    }

    /// Gives child machines the result of their split.
    pub(super) fn deliver_born(&mut self, now: Now, store: &mut dyn ObjectStore) {
        if self.is_walking() {
            // The child may not have seen the map of the split yet.
            return;
        }
        self.deliver_merges(now, store);
        self.pump_sweeps(now, store);
        for (from, m) in self.orphans.take_left() {
            self.handle_peer(from, m, now, store);
        }
        while let Some((spg, errno)) = self.resizes.pop_failed() {
            if let Some(i) = self.by_pg.get(spg)
                && let Some(pg) = self.pgs.get_mut(i)
            {
                pg.fail_with_parent(errno, &mut self.effects);
                self.take_effects(i);
            }
        }
        while let Some((spg, child)) = self.resizes.pop_born() {
            // The child may leave by a map that came before the split was done.
            let leaving = self.resizes.leavers(spg).find(|i| self.pgs.get(*i).is_some_and(Pg::awaits_split));
            let Some(i) = leaving.or_else(|| self.by_pg.get(spg)) else { continue };
            match child {
                Some(c) => {
                    if let Some(pg) = self.pgs.get_mut(i) {
                        pg.born(*c, now, store, &mut self.effects);
                        self.take_effects(i);
                        self.deliver_merges(now, store);
                    }
                }
                None => {
                    // The parent is being removed, so there is no copy here, and waiting peers are told so.
                    self.forget(spg, i);
                    self.note_members();
                    for (from, m) in self.pgs.remove(i).map(|p| p.into_held_messages()).into_iter().flatten() {
                        self.handle_peer(from, m, now, store);
                    }
                }
            }
        }
    }

    /// Gives a machine the state that all PGs of a reactor share.
    pub(super) fn equip(&self, pg: &mut Pg) {
        self.services.equip(pg);
        pg.use_pacer(self.pacing.pacer().clone());
    }

    pub(super) fn add(&mut self, cfg: PgConfig, mut pg: Pg) -> u32 {
        self.equip(&mut pg);
        self.by_pg.insert(cfg.spg, cfg.index);
        self.pgs.insert(cfg.index, pg);
        self.take_effects(cfg.index);
        cfg.index
    }

    /// Creates PGs that belong to this reactor and do not exist yet. For existing ones it repeats the
    /// confirmation.
    pub fn create(&mut self, pgs: &[PgCreate], now: Now, store: &mut dyn ObjectStore) {
        self.now = now;
        if self.is_walking() {
            return self.wait_behind(Behind::Create(pgs.to_vec()));
        }
        let me = self.whoami();
        let Some(mut views) = self.current.views(me) else { return };
        let map = views.map().clone();
        for c in pgs {
            let pg = c.pgid.pg;
            let Some(spg) = led_copy(&map, c.pgid, me).filter(|s| self.places.is_here(*s)) else { continue };
            if self.stage.is_stopping() {
                continue;
            }
            if let Some(i) = self.by_pg.get(spg) {
                if self.pgs.get(i).is_some_and(Pg::is_active) {
                    self.report(Report::Created(pg));
                }
                continue;
            }
            let creating = map.pool(pg.pool).is_some_and(|p| p.flags & cluster::pool::flag::CREATING != 0);
            if !creating || map.pg_to_up_acting(pg).acting_primary != me {
                continue;
            }
            // The monitor repeats the creation.
            let Some(cid) = self.services.free_name(spg) else { continue };
            let cfg = self.config(spg);
            let info = CreateInfo {
                cid: Some(cid),
                epoch: map.epoch,
                stamp: c.stamp.clone(),
                extra: c.extra.clone().unwrap_or_default(),
                bits: map.pool(pg.pool).map_or(0, |p| p.pg_bits(pg.seed)),
            };
            let mut machine = Pg::create(cfg, info, now, store, &mut self.effects);
            machine.set_coming_pg_num(map.pool(pg.pool).map_or(0, |p| p.pg_num));
            machine.handle(Event::Map(views.of(pg)), now, store, &mut self.effects);
            self.add(cfg, machine);
        }
        for (s, m) in self.parked.take_ops() {
            self.unpark(&s, m, now, store);
        }
    }

    /// Withdraws the copy of a PG here, which must not be used any more.
    pub fn withdraw(&mut self, pg: PgId, errno: Errno, why: &str, now: Now, store: &mut dyn ObjectStore) {
        let Some(i) = self.machine_of(pg) else { return };
        if let Some(p) = self.pgs.get_mut(i) {
            p.withdraw(errno, why, &mut self.effects);
            self.take_effects(i);
        }
        // Drops the plans that wait for its reads.
        self.feed_pg(i, Event::Tick, now, store);
    }
}
