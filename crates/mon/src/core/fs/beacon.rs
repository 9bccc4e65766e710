//! Beacons of MDS daemons: their presence, state and requested state.
//!
//! A daemon's request counts only if the daemon has seen the newest epoch of its map. A beacon that needs no map
//! change is answered at once; others are answered once the change is durable. A daemon with a forbidden request or
//! changed on-disk features loses its place and gets a map without file systems, on which it restarts.
//!
//! A daemon may name only itself. Otherwise a single key could replace every daemon, or fill the map.

use std::collections::{BTreeMap, BTreeSet};

use base::{EntityKind, Epoch, Mono};
use wire::msg::{MMdsBeacon, MMdsLoadTargets, MMdsMap};
use wire::types::{INLINE_DATA, MdsHealth, MdsHealthMetric, MdsInfo, MdsMap, Text, mds_state};
use wire::{Encode, Features, WireMessage};

use crate::core::MonCore;
use crate::core::propose::waiter::Waiter;
use crate::state::ConnKey;
use crate::state::fs::edit::FsEdit;
use crate::state::fs::map::{self, NO_FS};
use crate::state::log::Prio;

/// Most health warnings taken from one beacon.
const MAX_METRICS: usize = 1000;
/// Most bytes of a warning's message, and of all its further information.
const MAX_WARNING: usize = 4096;
/// Most lines in the cluster log about warnings that one beacon ends.
const MAX_CLEARED: usize = 20;
/// Most daemons in the map; the monitor ignores further ones.
const MAX_DAEMONS: usize = 10_000;

/// The answer to a beacon.
enum Outcome {
    /// No answer.
    Ignore,
    /// An answer at once.
    Reply(Epoch),
    /// An answer after the commit.
    Committed,
    /// A map without file systems, at once or after the commit.
    Null { committed: bool },
}

/// A warning with texts of bounded size.
fn bounded(m: &MdsHealthMetric) -> MdsHealthMetric {
    let mut left = MAX_WARNING;
    let mut fits = |k: &str, v: &str| {
        let size = k.len() + v.len();
        let fits = size <= left;
        left = left.saturating_sub(size);
        fits
    };
    let metadata = m.metadata.iter().filter(|(k, v)| fits(k, v)).map(|(k, v)| (k.clone(), v.clone())).collect();
    let message = m.message.0[..m.message.0.floor_char_boundary(MAX_WARNING)].to_owned();
    MdsHealthMetric { kind: m.kind, severity: m.severity, message: Text(message), metadata }
}

impl MonCore {
    /// An editor of the pending FSMap.
    pub(in crate::core) fn fs_edit(&mut self) -> FsEdit<'_> {
        FsEdit { state: &self.state, pending: &mut self.pending, now: self.now }
    }

    pub(in crate::core) fn mds_beacon(&mut self, c: ConnKey, m: MMdsBeacon) {
        if m.fsid != self.state.fsid {
            return;
        }
        let Some(s) = self.sender(c) else { return };
        let (who, addrs, opened) = (&s.who(), s.addrs().clone(), s.opened());
        let reachable = addrs.0.iter().any(|a| a.sock.is_some_and(|s| s.port() != 0));
        let own = who.name.kind == EntityKind::MDS && who.name.id == m.name && who.global_id == m.global_id;
        if !own || !reachable {
            tracing::warn!(
                "mon: ignoring a beacon of mds.{} ({}) on the session of {}",
                m.name,
                m.global_id,
                self.who(c)
            );
            return;
        }
        match self.beacon_outcome(&m, addrs, opened) {
            Outcome::Ignore => {}
            Outcome::Reply(epoch) => self.answer_beacon(c, &m, epoch, false),
            Outcome::Committed => {
                let epoch = self.state.fs.map.epoch.next();
                self.answer_beacon(c, &m, epoch, true);
            }
            Outcome::Null { committed } => self.send_null_map(c, committed),
        }
    }

    fn answer_beacon(&mut self, c: ConnKey, m: &MMdsBeacon, epoch: Epoch, committed: bool) {
        let Some(features) = self.sessions.get(&c).map(|s| s.features()) else { return };
        let answer = MMdsBeacon {
            paxos: epoch.into(),
            fsid: m.fsid,
            global_id: m.global_id,
            state: m.state,
            seq: m.seq,
            name: m.name.clone(),
            standby_for_rank: -1,
            mds_features: Features::PACIFIC.0,
            standby_for_fscid: NO_FS,
            ..MMdsBeacon::default()
        };
        let answer = answer.to_message(features);
        if committed {
            self.answers.wait(Waiter::Send(c, answer));
        } else {
            self.send(c, answer);
        }
    }

    fn send_null_map(&mut self, c: ConnKey, committed: bool) {
        let Some(features) = self.sessions.get(&c).map(|s| s.features()) else { return };
        // The epoch is newer than that of any map the daemon has.
        let map = MdsMap { epoch: Epoch(u32::MAX), ..MdsMap::default() };
        let m = MMdsMap {
            fsid: self.state.fsid,
            epoch: map.epoch,
            encoded: map.to_bytes(Features::PACIFIC),
            map_fs_name: String::new(),
        };
        let m = m.to_message(features);
        if committed {
            self.answers.wait(Waiter::Send(c, m));
        } else {
            self.send(c, m);
        }
    }

    fn beacon_outcome(&mut self, m: &MMdsBeacon, addrs: base::AddrVec, session: Mono) -> Outcome {
        let gid = m.global_id;
        let Some(info) = self.state.fs.map.daemon(gid).cloned() else {
            let known = self.fs_edit().map().daemon(gid).is_some();
            return match m.state {
                // The daemon's first beacon is in the proposal in flight, which answers it.
                mds_state::BOOT if known => Outcome::Ignore,
                mds_state::BOOT => self.mds_boots(m, addrs, session),
                _ => Outcome::Null { committed: false },
            };
        };
        if self.fs_edit().map().daemon(gid).is_none() {
            return Outcome::Null { committed: true };
        }
        if m.state == mds_state::DNE {
            return self.mds_leaves(m);
        }
        if info.state_seq > m.seq {
            return Outcome::Ignore;
        }
        self.note_health(&info, &m.health);
        self.mds_watch.heard(gid, session, self.now.mono);
        let effective = self.state.fs.map.effective_epoch(gid).unwrap_or_default();
        if u64::from(effective.0) != m.paxos.version {
            return Outcome::Reply(effective);
        }
        if m.state == mds_state::BOOT {
            return Outcome::Ignore;
        }
        let join = self.join_of(&m.fs);
        if info.is_laggy() || info.join_fscid != join || info.state != m.state {
            return self.mds_changes(m, info, join);
        }
        Outcome::Reply(effective)
    }

    /// The id of the file system that a daemon asks to serve; `NO_FS` for none.
    fn join_of(&mut self, name: &str) -> i32 {
        if name.is_empty() {
            return NO_FS;
        }
        self.fs_edit().map().fs_by_name(name).map_or(NO_FS, |f| f.fscid)
    }

    fn mds_boots(&mut self, m: &MMdsBeacon, addrs: base::AddrVec, session: Mono) -> Outcome {
        if self.state.fs.map.mds_roles.len() >= MAX_DAEMONS {
            tracing::warn!("mon: ignoring mds.{}: the map holds {MAX_DAEMONS} daemons already", m.name);
            return Outcome::Ignore;
        }
        let join = self.join_of(&m.fs);
        // The first beacon of an earlier instance may come late, by a session that its daemon has given up.
        let present = self.fs_edit().map().daemon_by_name(&m.name).map(|i| i.global_id);
        let (options, now) = (&self.state.options.mds, self.now.mono);
        if present.is_some_and(|gid| self.mds_watch.may_be_younger(gid, session, options, now)) {
            tracing::info!(
                "mon: ignoring mds.{} ({}): another instance is there and may be younger",
                m.name,
                m.global_id
            );
            return Outcome::Ignore;
        }
        let mut e = self.fs_edit();
        while let Some(i) = e.map().daemon_by_name(&m.name) {
            let (gid, who) = (i.global_id, i.human_name());
            e.log(Prio::INFO, format!("{who} restarted"));
            e.fail(gid);
        }
        let info = MdsInfo {
            global_id: m.global_id,
            name: m.name.clone(),
            state_seq: m.seq,
            addrs,
            mds_features: m.mds_features,
            compat: m.compat.clone(),
            join_fscid: join,
            standby_for_rank: -1,
            ..MdsInfo::default()
        };
        map::insert(e.map_mut(), info);
        if !m.sys_info.is_empty() {
            self.pending.set_mds_metadata(m.global_id, Some(crate::core::osd::bounded_metadata(m.sys_info.clone())));
        }
        self.mds_watch.heard(m.global_id, session, self.now.mono);
        Outcome::Committed
    }

    /// Removes a daemon that announces its shutdown.
    fn mds_leaves(&mut self, m: &MMdsBeacon) -> Outcome {
        self.fs_edit().fail(m.global_id);
        Outcome::Committed
    }

    fn mds_changes(&mut self, m: &MMdsBeacon, info: MdsInfo, join: i32) -> Outcome {
        let (gid, state) = (m.global_id, m.state);
        let now = self.now.wall;
        let mut e = self.fs_edit();
        let mut told = m.compat.clone();
        told.incompat.insert(INLINE_DATA.0, INLINE_DATA.1);
        if !told.same(&info.compat) && !m.compat.same(&wire::types::CompatSet::default()) {
            e.log(Prio::WARN, format!("{} compat changed unexpectedly", info.human_name()));
            e.fail(gid);
            return Outcome::Null { committed: true };
        }
        let legal = match info.state {
            mds_state::STANDBY => state == info.state,
            mds_state::STANDBY_REPLAY => state == info.state || state == mds_state::DAMAGED,
            from => mds_state::may_follow(from, state),
        };
        if !legal {
            let (from, to) = (mds_state::name(info.state), mds_state::name(state));
            let line = format!("{} (rank {}) asked for {to} from {from}: refused", info.human_name(), info.rank);
            e.log(Prio::WARN, line);
            e.fail(gid);
            return Outcome::Null { committed: true };
        }
        map::modify_daemon(e.map_mut(), now, gid, |i| {
            i.laggy_since = base::Utime::default();
            i.join_fscid = join;
        });
        let fs = e.map().fs_of(gid).map(|f| (f.fscid, f.mds_map.fs_name.clone(), f.mds_map.ranks_in.len()));
        match (state, fs) {
            (mds_state::STOPPED, Some((_, name, ranks))) => {
                let line = format!(
                    "{} finished stopping rank {} in filesystem {name} (now has {} ranks)",
                    info.human_name(),
                    info.rank,
                    ranks.saturating_sub(1)
                );
                e.log(Prio::INFO, line);
                map::stop(e.map_mut(), now, gid);
                return Outcome::Null { committed: true };
            }
            (mds_state::DAMAGED, Some((fscid, ..))) => e.damage(fscid, info.rank),
            _ => e.set_state(gid, state, m.seq),
        }
        Outcome::Committed
    }

    /// Stores a daemon's warnings, and logs one line for each kind that has ended.
    fn note_health(&mut self, info: &MdsInfo, health: &MdsHealth) {
        let metrics: Vec<MdsHealthMetric> = health.metrics.iter().take(MAX_METRICS).map(bounded).collect();
        let still: BTreeSet<u16> = metrics.iter().map(|m| m.kind).collect();
        let old = self.state.set_mds_health(info.global_id, MdsHealth { metrics });
        let gone: BTreeMap<u16, &MdsHealthMetric> =
            old.metrics.iter().filter(|m| !still.contains(&m.kind)).map(|m| (m.kind, m)).collect();
        for m in gone.values().take(MAX_CLEARED) {
            let line = format!("MDS health message cleared (mds.{}): {}", info.name, m.message);
            self.fs_edit().log(Prio::INFO, line);
        }
    }

    /// Sets the ranks to which a daemon exports directories.
    pub(in crate::core) fn mds_load_targets(&mut self, c: ConnKey, m: &MMdsLoadTargets) {
        let mine = self.sessions.get(&c).is_some_and(|s| s.who().global_id == m.global_id);
        if !mine {
            return;
        }
        let now = self.now.wall;
        let mut e = self.fs_edit();
        let Some(fs) = e.map().fs_of(m.global_id) else { return };
        let targets: BTreeSet<i32> = m.targets.iter().copied().filter(|r| fs.mds_map.ranks_in.contains(r)).collect();
        if e.map().daemon(m.global_id).is_some_and(|i| i.export_targets != targets) {
            map::modify_daemon(e.map_mut(), now, m.global_id, |i| i.export_targets = targets);
        }
    }
}
