//! Boot and shutdown of an OSD.

use std::collections::BTreeMap;

use base::{Epoch, OsdId, unreached};
use cluster::osdmap::{WEIGHT_IN, map_flag, osd_state};
use cluster::release;
use wire::msg::{MOsdBoot, MOsdMarkMeDead, MOsdMarkMeDown, PeerVersions};
use wire::{Features, Message, WireMessage};

use super::super::MonCore;
use crate::core::propose::waiter::Waiter;
use crate::state::ConnKey;
use crate::state::log::Prio;

/// Weight of the newest observation in an OSD's laggy history (`mon_osd_laggy_weight`).
const LAGGY_WEIGHT: f64 = 0.3;
/// Longest interval in seconds that counts for the laggy history (`mon_osd_laggy_max_interval`).
const LAGGY_MAX_SECONDS: u64 = 300;

impl MonCore {
    pub(in super::super) fn osd_boot(&mut self, c: ConnKey, message: Message, m: MOsdBoot) {
        let Some(osd) = self.osd_session(c) else { return };
        let addrs = self.addrs_of(c);
        let map = std::sync::Arc::clone(&self.state.osdmap);
        let ours = m.sb.cluster_fsid == self.state.fsid;
        let same = map.client_addr(osd) == Some(&addrs) && map.cluster_addr(osd) == Some(&m.cluster_addrs);
        if ours && map.is_up(osd) && same && !self.going_down(osd) {
            // The OSD does not know yet that the map shows it up.
            return self.send_maps_reply(c, m.sb.current_epoch);
        }
        if ours && map.exists(osd) && (m.sb.newest_map > map.epoch || self.state.refused.ahead.contains_key(&osd)) {
            return self.refuse_ahead(osd, m.sb.newest_map);
        }
        if let Err(why) = self.check_boot(osd, c, &m) {
            tracing::warn!("mon: boot of {osd} refused: {why}");
            self.pending.log(&self.state, self.now, Prio::INFO, "cluster", format!("disallowing boot of {osd}: {why}"));
            return;
        }
        if let Some(why) = self.cannot_work_with(osd, &m) {
            return self.refuse_foreign(osd, why);
        }
        self.state.osd_fits(osd);
        if map.is_up(osd) {
            // Another instance boots: the next epoch shows the OSD down, then this message is handled again.
            self.mark_down(osd);
            self.answers.wait(Waiter::Again(c, message));
            return;
        }
        if self.pending.inc().is_some_and(|i| i.new_up_client.contains_key(&osd) || i.new_state.contains_key(&osd)) {
            // Another change of this OSD is pending; handle the message again after its commit.
            self.answers.wait(Waiter::Again(c, message));
            return;
        }
        self.mark_up(osd, c, m);
    }

    /// Refuses an OSD that has a newer map than this monitor, whose state is then older than the cluster. The OSD would
    /// take no map of this monitor. It stays refused when the monitor's epochs have caught up, because one epoch then has
    /// two maps; `belemnite state advance` and a start of the monitor end that.
    fn refuse_ahead(&mut self, osd: OsdId, newest: Epoch) {
        let ours = self.state.osdmap.epoch;
        if !self.state.osd_is_ahead(osd, newest) {
            return;
        }
        let text = format!(
            "{osd} has OSD map {newest}, newer than this monitor's {ours}: the monitor's state is an old copy; stop the \
             monitors and run `belemnite state advance`"
        );
        tracing::error!("mon: boot refused: {text}");
        self.pending.log(&self.state, self.now, Prio::ERROR, "cluster", text);
    }

    /// The reason why an OSD and one that is up can't serve a PG together, if there is one.
    fn cannot_work_with(&self, osd: OsdId, m: &MOsdBoot) -> Option<String> {
        let theirs = PeerVersions::of_metadata(&m.metadata);
        let up = self.state.osds.metadata.iter().filter(|(o, _)| **o != osd && self.state.osdmap.is_up(**o));
        let (other, of) = up.map(|(o, m)| (o, PeerVersions::of_metadata(m))).find(|(_, v)| !theirs.meets(*v))?;
        Some(format!(
            "it speaks versions {} to {} of the messages between OSDs, {other} versions {} to {}; update the older one",
            theirs.oldest, theirs.newest, of.oldest, of.newest
        ))
    }

    /// Refuses an OSD that can't work with those that are up: their PGs would stop.
    fn refuse_foreign(&mut self, osd: OsdId, why: String) {
        if self.state.refused.foreign.get(&osd) == Some(&why) {
            return;
        }
        let text = format!("disallowing boot of {osd}: {why}");
        tracing::error!("mon: {text}");
        self.pending.log(&self.state, self.now, Prio::ERROR, "cluster", text);
        self.state.osd_is_foreign(osd, why);
    }

    fn check_boot(&self, osd: OsdId, c: ConnKey, m: &MOsdBoot) -> Result<(), String> {
        let map = &self.state.osdmap;
        if m.sb.cluster_fsid != self.state.fsid {
            return Err(format!("it belongs to cluster {}", m.sb.cluster_fsid));
        }
        if m.sb.whoami != osd {
            return Err(format!("its superblock says {}", m.sb.whoami));
        }
        if osd.0 >= map.max_osd || !map.exists(osd) {
            return Err("it does not exist in the map".into());
        }
        let uuid = map.uuid(osd);
        if uuid != base::id::Uuid::ZERO && uuid != m.sb.osd_fsid {
            return Err(format!("its uuid {} is not {uuid}", m.sb.osd_fsid));
        }
        let bits = map.effective_state_bits(osd);
        if map.has_flag(map_flag::NOUP) || bits & osd_state::NOUP != 0 {
            return Err("noup".into());
        }
        if bits & osd_state::DESTROYED != 0 {
            return Err("it is destroyed".into());
        }
        let info = map.info(osd);
        let addrs = self.addrs_of(c);
        if info.up_from.0 as u64 > m.paxos.version && map.client_addr(osd) == Some(&addrs) {
            return Err("prior instance".into());
        }
        if !Features(m.osd_features).nautilus() {
            return Err("it is older than Nautilus".into());
        }
        // The requirement may be in the same proposal.
        let pending = self.pending.inc().and_then(cluster::Incremental::changed_osd_release);
        let required = pending.unwrap_or(map.require_osd_release);
        if required < release::NAUTILUS {
            return Err("the cluster's require_osd_release is too old".into());
        }
        if !Features(m.osd_features).serves_release(required) {
            let required = release::name(required);
            return Err(format!(
                "the cluster requires OSDs of {required} ('osd require-osd-release'), and it is older"
            ));
        }
        let chosen = !map.pg_upmap_primaries.is_empty()
            || self.pending.inc().is_some_and(|i| !i.new_pg_upmap_primary.is_empty());
        if chosen && !crate::state::primaries::passes_on(m.osd_features) {
            let text = "it would not pass on the primaries that the map chooses: upgrade it, or 'ceph osd \
                        rm-pg-upmap-primary-all'";
            return Err(text.into());
        }
        if addrs.msgr2().is_none_or(|a| a.sock.is_none_or(|s| s.ip().is_unspecified() || s.port() == 0)) {
            return Err(format!("its address {addrs} cannot be dialled"));
        }
        Ok(())
    }

    fn mark_up(&mut self, osd: OsdId, c: ConnKey, m: MOsdBoot) {
        let addrs = self.addrs_of(c);
        let map = std::sync::Arc::clone(&self.state.osdmap);
        self.liveness.is_not_down(osd);
        let (info, old_x, state) = (map.info(osd), map.xinfo(osd), map.state(osd));
        let may_go_in = !map.has_flag(map_flag::NOIN) && map.effective_state_bits(osd) & osd_state::NOIN == 0;
        let sb = &m.sb;
        let now = self.now;
        let log_line = format!("{osd} {addrs} boot");
        let inc = self.pending.inc_mut(&self.state);
        inc.new_up_client.insert(osd, addrs);
        inc.new_up_cluster.insert(osd, m.cluster_addrs.clone());
        inc.new_hb_back_up.insert(osd, m.hb_back_addrs.clone());
        inc.new_hb_front_up.insert(osd, m.hb_front_addrs.clone());
        // An OSD with an empty store lost all its data, so the map records that.
        if sb.newest_map.0 == 0 && info.up_from > info.lost_at {
            inc.new_lost.insert(osd, map.epoch);
        }
        if sb.mounted > info.last_clean_begin
            || (sb.mounted == info.last_clean_begin && sb.clean_thru > info.last_clean_end)
        {
            inc.new_last_clean_interval.insert(osd, (sb.mounted, sb.clean_thru));
        }
        if map.uuid(osd) != sb.osd_fsid {
            inc.new_uuid.insert(osd, sb.osd_fsid);
        }
        let mut x = inc.new_xinfo.get(&osd).copied().unwrap_or(old_x);
        x.features = m.osd_features;
        x.last_purged_snaps_scrub = x.last_purged_snaps_scrub.max(sb.last_purged_snaps_scrub);
        if m.boot_epoch.0 == 0 {
            x.laggy_probability = (f64::from(x.laggy_probability) * (1.0 - LAGGY_WEIGHT)) as u32;
            x.laggy_interval = (f64::from(x.laggy_interval) * (1.0 - LAGGY_WEIGHT)) as u32;
        } else if x.down_stamp != base::Utime::ZERO {
            let down = now.wall.to_unix().saturating_sub(x.down_stamp.to_unix()).as_secs().min(LAGGY_MAX_SECONDS);
            let blend = |new: f64, old: u32| (new * LAGGY_WEIGHT + f64::from(old) * (1.0 - LAGGY_WEIGHT)) as u32;
            x.laggy_interval = blend(down as f64, x.laggy_interval);
            x.laggy_probability = blend(f64::from(u32::MAX), x.laggy_probability);
        }
        if state & (osd_state::AUTOOUT | osd_state::NEW) != 0 && may_go_in {
            let weight = if x.old_weight > 0 { x.old_weight } else { WEIGHT_IN };
            x.old_weight = 0;
            if map.weight(osd) != weight || state & (osd_state::AUTOOUT | osd_state::NEW) != 0 {
                inc.new_weight.insert(osd, weight);
            }
        }
        if x != old_x {
            inc.new_xinfo.insert(osd, x);
        }
        let metadata = bounded_metadata(m.metadata);
        if self.state.osds.metadata.get(&osd) != Some(&metadata) {
            self.pending.set_osd_metadata(osd, Some(metadata));
        }
        self.pending.log(&self.state, now, Prio::INFO, "cluster", log_line);
        self.liveness.forget_beacon(osd);
        self.answers.wait(Waiter::Booted(c, osd, m.sb.current_epoch));
    }

    pub(in super::super) fn osd_mark_me_down(&mut self, c: ConnKey, m: &MOsdMarkMeDown) {
        let Some(osd) = self.osd_session(c) else { return };
        let features = self.sessions.get(&c).map(|s| s.features());
        let Some(features) = features else { return unreached("an OSD's session is open") };
        let ack = MOsdMarkMeDown { request_ack: false, down_and_dead: false, ..m.clone() }.to_message(features);
        let map = &self.state.osdmap;
        let ours = m.fsid == self.state.fsid
            && m.target_osd == osd
            && map.is_up(osd)
            && map.client_addr(osd) == Some(&m.target_addrs);
        if ours && self.may_mark_down(osd) && self.mark_down(osd) {
            if m.down_and_dead {
                self.xinfo_mut(osd).dead_epoch = m.epoch;
            }
            self.pending.log(
                &self.state,
                self.now,
                Prio::INFO,
                "cluster",
                format!("{osd} marked itself down and dead"),
            );
        }
        if m.request_ack {
            // A refused request is acknowledged too, because the OSD waits for this before it exits.
            self.answers.wait(Waiter::Send(c, ack));
        }
    }

    pub(in super::super) fn osd_mark_me_dead(&mut self, c: ConnKey, m: &MOsdMarkMeDead) {
        let Some(osd) = self.osd_session(c) else { return };
        if m.fsid != self.state.fsid || m.target_osd != osd {
            return;
        }
        if !self.state.osdmap.exists(osd) || self.state.osdmap.is_up(osd) {
            return self.send_maps_reply(c, m.epoch);
        }
        if self.state.osdmap.xinfo(osd).dead_epoch < m.epoch {
            self.xinfo_mut(osd).dead_epoch = m.epoch;
        }
        self.maps_after_commit(c, m.epoch);
    }
}

/// Most bytes of the metadata that a daemon sends at boot.
const MAX_METADATA: usize = 64 << 10;

/// A daemon's metadata without the entries that exceed [`MAX_METADATA`].
pub(in crate::core) fn bounded_metadata(all: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut left = MAX_METADATA;
    let total = all.len();
    let kept: BTreeMap<String, String> = all
        .into_iter()
        .filter(|(k, v)| {
            let fits = k.len() + v.len() <= left;
            left -= if fits { k.len() + v.len() } else { 0 };
            fits
        })
        .collect();
    if kept.len() < total {
        tracing::warn!("mon: leaving out {} entries of a daemon's metadata: they are too long", total - kept.len());
    }
    kept
}

/// The epoch in a message's paxos header.
pub(super) fn have(version: u64) -> Epoch {
    Epoch(u32::try_from(version).unwrap_or(u32::MAX))
}
