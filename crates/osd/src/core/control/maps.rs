//! New maps: they are stored and published in order, and show whether this process is up.
//!
//! Invariant: maps are published in order, each once.

use super::{Control, Output, Phase, prio};
use crate::core::maps::{Record, Source};
use base::{Epoch, Now, unreached};
use cluster::OsdMap;
use cluster::osdmap::osd_state;
use std::sync::Arc;
use wire::msg::{MOsdMap, MOsdMarkMeDead};

impl Control {
    /// Handles maps from another OSD.
    pub fn handle_map_message(&mut self, m: &MOsdMap, now: Now) {
        self.take_maps(m, Source::Osd, now);
    }

    /// Takes the maps of a message.
    pub(super) fn take_maps(&mut self, m: &MOsdMap, from: Source, now: Now) {
        let absorbed = match self.maps.absorb(m, from) {
            Ok(a) => a,
            Err(error) => {
                tracing::error!(have = self.maps.epoch().0, %error, "OSD map refused");
                return;
            }
        };
        match from {
            Source::Monitor => self.sync.note_newest(absorbed.newest),
            // An OSD's claim of a newer map is no reason to wait: the monitor knows better.
            Source::Osd => self.want_map(absorbed.newest),
        }
        if absorbed.gap && from == Source::Monitor && self.sync.note_gap(self.maps.epoch()) {
            // This repeats the request even if the same one is pending.
            self.mon.unsubscribe("osdmap");
            self.ask_maps();
        }
        if !absorbed.maps.is_empty() {
            self.mon.got("osdmap", self.maps.epoch().0.into());
            self.new_maps(absorbed.maps, absorbed.records, absorbed.trim_below, now);
        }
        self.progress(now);
    }

    fn new_maps(&mut self, maps: Vec<Arc<OsdMap>>, records: Vec<Record>, trim_below: Epoch, now: Now) {
        let Some(last) = maps.last().cloned() else { return unreached("there is a new map") };
        let newer = maps.first().is_some_and(|m| m.epoch > self.sb.newest_map);
        debug_assert!(newer && maps.is_sorted_by(|a, b| a.epoch < b.epoch), "maps are published in order, each once");
        let me = self.id.whoami;
        let was_active = self.phase == Phase::Active;
        for m in &maps {
            let shown_up = self.is_shown_up(m);
            match self.phase {
                // Also while syncing: if the session ended after the boot, this map is the only answer. It
                // can't show an earlier process, since the nonce of an address is drawn anew at each start.
                Phase::Booting | Phase::Syncing if shown_up && m.info(me).up_from.0 > 0 => {
                    self.boot.note_up(m.epoch);
                    self.sb.mounted = m.epoch;
                    self.beacon.send_soon(now);
                    self.rejoin.came_up();
                    self.enter(Phase::Active);
                    // From now on every map is wanted, even if the answer to an earlier request is still to
                    // come.
                    self.sync.forget_question();
                    self.mon.subscribe("osdmap", u64::from(last.epoch.0) + 1, false);
                    tracing::info!(osd = me.0, epoch = m.epoch.0, "the OSD is up");
                }
                Phase::Active if !shown_up => self.wrongly_down(m, now),
                _ => {}
            }
            if self.phase == Phase::Active {
                self.sb.clean_thru = m.epoch;
            }
        }
        self.sb.current_epoch = last.epoch;
        self.sb.newest_map = last.epoch;
        self.sb.oldest_map = if self.sb.oldest_map == Epoch(0) { last.epoch } else { self.sb.oldest_map };
        self.sb.cluster_osdmap_trim_lower_bound = self.sb.cluster_osdmap_trim_lower_bound.max(trim_below);
        self.out.push_back(Output::Store { records, superblock: Box::new(self.sb.clone()), trim_below });
        if let Some(feed) = self.maps.feed() {
            self.out.push_back(Output::Publish { maps, feed });
        }
        let active = self.phase == Phase::Active;
        let up_from = if active { last.info(me).up_from } else { Epoch(0) };
        // Leases come after the maps: a grant counts only once its epoch is processed.
        self.leases.handle_map(&last, up_from, now);
        self.take_lease_outputs();
        self.hb.set_reporting(active);
        self.hb.handle_map(&last, active || self.rejoin.is_waiting());
        self.requests.follow(&last, me);
        self.release_creates(&last);
        if active && !was_active {
            // Requests that PGs made under maps that came before this OSD was active.
            self.ask_up_thru();
            self.send_pg_temp();
        }
        // A map older than the newest proves nothing: it may precede the creation of this OSD.
        if last.epoch < self.sync.newest() {
            return;
        }
        if !last.exists(me) && self.phase != Phase::Registering {
            self.exit(format!("map {} has no {me}: it was removed", last.epoch), now);
        } else if last.state(me) & osd_state::STOP != 0 {
            self.exit(format!("map {} tells {me} to stop", last.epoch), now);
        }
    }

    fn wrongly_down(&mut self, m: &OsdMap, now: Now) {
        let me = self.id.whoami;
        let silent = self.silence.reason();
        if m.is_up(me) {
            tracing::error!(osd = me.0, epoch = m.epoch.0, "the map shows this OSD up with other addresses");
        } else if let Some(why) = silent {
            tracing::warn!(osd = me.0, epoch = m.epoch.0, why, "marked down; booting again when the device answers");
        } else {
            tracing::warn!(osd = me.0, epoch = m.epoch.0, "marked down although running; booting again");
        }
        if silent.is_none() {
            self.clog(prio::WARN, format!("Monitor daemon marked {me} down, but it is still running"), now);
        }
        let dead = MOsdMarkMeDead { paxos: m.epoch.into(), fsid: self.id.fsid, target_osd: me, epoch: m.epoch };
        self.mon.send_now(&dead);
        let pause = self.rejoin.marked_down(now);
        if !pause.is_zero() {
            tracing::warn!(osd = me.0, ?pause, "marked down repeatedly; waiting before the next boot");
        }
        self.start_sync(now);
    }
}
