//! Changes of the FSMap, one function each. They keep these invariants, which [`check`] tests:
//!
//!  1. A daemon is either a standby (rank -1, with an epoch of its own) or in exactly one file system.
//!  2. A rank that is up is in, is neither failed nor damaged, and its daemon is known to the file system.
//!  3. A rank that is in is up, failed or damaged, unless an operator removed it (`mds rmfailed`); it is not stopped.
//!  4. A daemon of a file system supports the file system's on-disk features.
//!
//! `map.epoch` is that of the map under construction. A changed file system or standby takes it as its own epoch, by
//! which daemons and clients see that their part is new.

use base::unreached;
use base::{Epoch, PoolId, Utime};
use wire::types::{CompatSet, Filesystem, FsMap, INLINE_DATA, MdsInfo, MdsMap, MirrorInfo, fs_flag, mds_state};

/// No file system: role of a standby, and `join_fscid` of a daemon without a preference.
pub const NO_FS: i32 = -1;
/// No rank.
pub const NO_RANK: i32 = -1;

fn touch(fs: &mut Filesystem, epoch: Epoch, now: Utime) {
    fs.mds_map.epoch = epoch;
    fs.mds_map.modified = now;
}

/// Changes a file system; `false` if it does not exist.
pub fn modify_fs(map: &mut FsMap, now: Utime, fscid: i32, f: impl FnOnce(&mut Filesystem)) -> bool {
    let epoch = map.epoch;
    let Some(fs) = map.filesystems.get_mut(&fscid) else { return false };
    f(fs);
    touch(fs, epoch, now);
    true
}

/// Changes a daemon; `false` if it does not exist.
pub fn modify_daemon(map: &mut FsMap, now: Utime, gid: u64, f: impl FnOnce(&mut MdsInfo)) -> bool {
    let epoch = map.epoch;
    let Some(role) = map.mds_roles.get(&gid).copied() else { return false };
    if role == NO_FS {
        let Some(info) = map.standby_daemons.get_mut(&gid) else { return false };
        f(info);
        map.standby_epochs.insert(gid, epoch);
    } else {
        let Some(fs) = map.filesystems.get_mut(&role) else { return false };
        let Some(info) = fs.mds_map.mds_info.get_mut(&gid) else { return false };
        f(info);
        touch(fs, epoch, now);
    }
    true
}

/// Adds a daemon without a rank.
pub fn insert(map: &mut FsMap, mut info: MdsInfo) {
    let gid = info.global_id;
    if info.compat.same(&CompatSet::default()) {
        // Up to 16.2.4 the beacon holds no features.
        info.compat = wire::types::mds_default_compat();
    }
    info.compat.incompat.insert(INLINE_DATA.0, INLINE_DATA.1);
    info.state = mds_state::STANDBY;
    info.rank = NO_RANK;
    map.mds_roles.insert(gid, NO_FS);
    map.standby_daemons.insert(gid, info);
    map.standby_epochs.insert(gid, map.epoch);
}

/// Removes a standby from the list of standbys.
fn take_standby(map: &mut FsMap, gid: u64) -> Option<MdsInfo> {
    let info = map.standby_daemons.remove(&gid)?;
    map.standby_epochs.remove(&gid);
    Some(info)
}

/// Assigns a rank to a standby, or to the standby-replay daemon of that rank.
pub fn promote(map: &mut FsMap, now: Utime, gid: u64, fscid: i32, rank: i32) -> bool {
    let epoch = map.epoch;
    if !map.filesystems.contains_key(&fscid) {
        return false;
    }
    let standby = take_standby(map, gid);
    let Some(fs) = map.filesystems.get_mut(&fscid) else { return false };
    let m = &mut fs.mds_map;
    if let Some(info) = standby {
        m.mds_info.insert(gid, info);
    }
    let Some(info) = m.mds_info.get_mut(&gid) else { return false };
    m.compat.merge(&info.compat);
    info.state = if m.stopped.remove(&rank) {
        mds_state::STARTING
    } else if m.ranks_in.contains(&rank) {
        mds_state::REPLAY
    } else {
        mds_state::CREATING
    };
    info.rank = rank;
    info.inc = epoch.0 as i32;
    m.failed.remove(&rank);
    m.ranks_in.insert(rank);
    m.up.insert(rank, gid);
    map.mds_roles.insert(gid, fscid);
    touch(fs, epoch, now);
    true
}

/// Makes a standby the standby-replay daemon of a rank.
pub fn follow(map: &mut FsMap, now: Utime, gid: u64, fscid: i32, rank: i32) -> bool {
    let epoch = map.epoch;
    if !map.filesystems.contains_key(&fscid) {
        return false;
    }
    let Some(mut info) = take_standby(map, gid) else { return false };
    info.rank = rank;
    info.state = mds_state::STANDBY_REPLAY;
    map.mds_roles.insert(gid, fscid);
    if let Some(fs) = map.filesystems.get_mut(&fscid) {
        fs.mds_map.mds_info.insert(gid, info);
        touch(fs, epoch, now);
    }
    true
}

/// Removes a daemon. A rank that it held is failed, or removed too if the daemon had not created it yet. `fenced` is
/// the OSD map epoch that blocklists the daemon's addresses, if one does.
pub fn erase(map: &mut FsMap, now: Utime, gid: u64, fenced: Option<Epoch>) {
    let epoch = map.epoch;
    take_standby(map, gid);
    let Some(role) = map.mds_roles.remove(&gid) else { return };
    let Some(fs) = map.filesystems.get_mut(&role) else { return };
    let m = &mut fs.mds_map;
    let Some(info) = m.mds_info.remove(&gid) else { return };
    if !info.is_follower() && m.up.get(&info.rank) == Some(&gid) {
        match info.state {
            mds_state::CREATING => {
                m.ranks_in.remove(&info.rank);
            }
            mds_state::STARTING => {
                m.ranks_in.remove(&info.rank);
                m.stopped.insert(info.rank);
            }
            _ => {
                m.failed.insert(info.rank);
            }
        }
        m.up.remove(&info.rank);
    }
    if let Some(e) = fenced {
        m.last_failure_osd_epoch = m.last_failure_osd_epoch.max(e);
    }
    touch(fs, epoch, now);
}

/// Marks a rank damaged, so that it waits for repair, and removes its daemon.
pub fn damaged(map: &mut FsMap, now: Utime, gid: u64, fenced: Epoch) {
    let Some((fscid, rank)) = map.fs_of(gid).map(|f| f.fscid).zip(map.daemon(gid).map(|i| i.rank)) else { return };
    erase(map, now, gid, Some(fenced));
    modify_fs(map, now, fscid, |fs| {
        fs.mds_map.failed.remove(&rank);
        fs.mds_map.ranks_in.insert(rank);
        fs.mds_map.stopped.remove(&rank);
        fs.mds_map.damaged.insert(rank);
    });
}

/// Marks a damaged rank failed, so that a daemon may take it; `false` if it is not damaged.
pub fn repaired(map: &mut FsMap, now: Utime, fscid: i32, rank: i32) -> bool {
    if !map.filesystems.get(&fscid).is_some_and(|f| f.mds_map.damaged.contains(&rank)) {
        return false;
    }
    modify_fs(map, now, fscid, |fs| {
        fs.mds_map.damaged.remove(&rank);
        fs.mds_map.failed.insert(rank);
    })
}

/// Removes a daemon that gave up its rank, with its standby-replay daemons. Returns those.
pub fn stop(map: &mut FsMap, now: Utime, gid: u64) -> Vec<u64> {
    let Some((fscid, rank)) = map.fs_of(gid).map(|f| f.fscid).zip(map.daemon(gid).map(|i| i.rank)) else {
        return Vec::new();
    };
    let mut followers = Vec::new();
    modify_fs(map, now, fscid, |fs| {
        let m = &mut fs.mds_map;
        m.up.remove(&rank);
        m.ranks_in.remove(&rank);
        m.stopped.insert(rank);
        followers = m.mds_info.values().filter(|i| i.rank == rank && i.is_follower()).map(|i| i.global_id).collect();
        m.mds_info.remove(&gid);
    });
    map.mds_roles.remove(&gid);
    for f in &followers {
        erase(map, now, *f, None);
    }
    followers
}

/// A new file system, not yet in the map.
#[must_use]
pub fn new_fs(map: &FsMap, now: Utime, name: &str, metadata: PoolId, data: PoolId, recover: bool) -> Filesystem {
    let mut m = MdsMap {
        epoch: map.epoch,
        fs_name: name.to_owned(),
        data_pools: vec![data],
        metadata_pool: metadata,
        compat: map.default_compat.clone(),
        created: now,
        modified: now,
        enabled: true,
        ..MdsMap::default()
    };
    m.compat.incompat.insert(INLINE_DATA.0, INLINE_DATA.1);
    if recover {
        // Rank 0 exists on disk, so no daemon may create it again.
        m.ranks_in.insert(0);
        m.failed.insert(0);
        m.set_flag(fs_flag::NOT_JOINABLE, true);
    }
    Filesystem { fscid: NO_FS, mds_map: m, mirror_info: MirrorInfo::default() }
}

/// Adds a file system and returns its id: `id`, or the next free one.
pub fn add_fs(map: &mut FsMap, mut fs: Filesystem, id: Option<i32>) -> i32 {
    let id = id.unwrap_or_else(|| i32::try_from(map.next_filesystem_id).unwrap_or(i32::MAX));
    map.next_filesystem_id = map.next_filesystem_id.max(id as u64 + 1);
    fs.fscid = id;
    if map.filesystems.is_empty() {
        map.legacy_client_fscid = id;
    }
    map.filesystems.insert(id, fs);
    id
}

/// Removes a file system without daemons.
pub fn remove_fs(map: &mut FsMap, now: Utime, fscid: i32) {
    map.filesystems.remove(&fscid);
    if map.legacy_client_fscid == fscid {
        map.legacy_client_fscid = NO_FS;
    }
    let wanted: Vec<u64> = map.daemons().filter(|i| i.join_fscid == fscid).map(|i| i.global_id).collect();
    for gid in wanted {
        modify_daemon(map, now, gid, |i| i.join_fscid = NO_FS);
    }
}

/// Resets a file system to one failed rank; its pools and settings stay.
pub fn reset_fs(map: &mut FsMap, now: Utime, fscid: i32) {
    let compat = map.default_compat.clone();
    modify_fs(map, now, fscid, |fs| {
        let old = std::mem::take(&mut fs.mds_map);
        let mut stopped = old.ranks_in;
        stopped.extend(old.stopped);
        stopped.remove(&0);
        fs.mds_map = MdsMap {
            inline_data_enabled: old.inline_data_enabled,
            data_pools: old.data_pools,
            metadata_pool: old.metadata_pool,
            fs_name: old.fs_name,
            compat,
            created: now,
            standby_count_wanted: old.standby_count_wanted,
            last_failure_osd_epoch: old.last_failure_osd_epoch,
            enabled: true,
            ranks_in: [0].into(),
            failed: [0].into(),
            stopped,
            ..MdsMap::default()
        };
        fs.mds_map.compat.incompat.insert(INLINE_DATA.0, INLINE_DATA.1);
        fs.mirror_info = MirrorInfo::default();
    });
}

/// Swaps the ids of two file systems without daemons. Of one with itself nothing changes.
pub fn swap_ids(map: &mut FsMap, now: Utime, a: i32, b: i32) {
    if a == b {
        return;
    }
    let (Some(mut x), Some(mut y)) = (map.filesystems.remove(&a), map.filesystems.remove(&b)) else {
        return unreached("the caller has both file systems from the map");
    };
    x.fscid = b;
    y.fscid = a;
    map.filesystems.insert(a, y);
    map.filesystems.insert(b, x);
    modify_fs(map, now, a, |_| {});
    modify_fs(map, now, b, |_| {});
}

/// Completes a map for its commit. The quiesce database of each file system gets the active daemons as members and
/// the lowest rank as leader; fields for old readers are filled in.
pub fn seal(map: &mut FsMap, now: Utime) {
    map.btime = Some(now);
    let epoch = map.epoch;
    for fs in map.filesystems.values_mut().filter(|f| f.mds_map.epoch == epoch) {
        let m = &mut fs.mds_map;
        m.inc = m.ranks_in.iter().map(|r| (*r, epoch.0 as i32)).collect();
        let active = m.mds_info.values().filter(|i| i.state == mds_state::ACTIVE);
        m.qdb_leader = active.clone().min_by_key(|i| i.rank).map_or(0, |i| i.global_id);
        m.qdb_members = active.map(|i| i.global_id).collect();
    }
}

/// Checks the invariants. Error: the first violation.
pub fn check(map: &FsMap) -> Result<(), String> {
    let ensure = |ok: bool, what: &dyn Fn() -> String| if ok { Ok(()) } else { Err(what()) };
    let legacy = map.legacy_client_fscid;
    ensure(legacy == NO_FS || map.filesystems.contains_key(&legacy), &|| {
        format!("the default file system {legacy} does not exist")
    })?;
    for (gid, i) in &map.standby_daemons {
        let ok = i.global_id == *gid
            && i.state == mds_state::STANDBY
            && i.rank == NO_RANK
            && map.standby_epochs.contains_key(gid)
            && map.mds_roles.get(gid) == Some(&NO_FS);
        ensure(ok, &|| format!("mds {gid} is listed as a standby, but its entry is not that of one"))?;
    }
    ensure(map.standby_epochs.keys().all(|g| map.standby_daemons.contains_key(g)), &|| {
        "an epoch is stored for an unknown standby".into()
    })?;
    for (gid, fscid) in &map.mds_roles {
        ensure(map.daemon(*gid).is_some(), &|| format!("mds {gid} has a role in file system {fscid}, but no entry"))?;
    }
    for (id, fs) in &map.filesystems {
        let m = &fs.mds_map;
        ensure(fs.fscid == *id && m.epoch <= map.epoch, &|| {
            format!("file system {id} has another id or a later epoch than the map")
        })?;
        for (gid, i) in &m.mds_info {
            let placed = i.global_id == *gid && map.mds_roles.get(gid) == Some(id) && i.rank >= 0;
            ensure(placed, &|| format!("mds {gid} of file system {id} has another id or role, or no rank"))?;
            ensure(i.compat.writeable(&m.compat), &|| format!("mds {gid} lacks on-disk features of file system {id}"))?;
            let holds = m.up.get(&i.rank) == Some(gid);
            ensure(holds != i.is_follower(), &|| format!("mds {gid} must either hold rank {} or follow it", i.rank))?;
            if i.is_follower() {
                ensure(m.has_flag(fs_flag::ALLOW_STANDBY_REPLAY), &|| {
                    format!("mds {gid} follows a rank, which allow_standby_replay forbids")
                })?;
            }
        }
        for (rank, gid) in &m.up {
            let ok = m.ranks_in.contains(rank)
                && !m.failed.contains(rank)
                && !m.damaged.contains(rank)
                && m.mds_info.contains_key(gid);
            ensure(ok, &|| {
                format!("rank {rank} of file system {id} is up, but also failed, damaged, not in, or without its mds")
            })?;
        }
        for rank in &m.ranks_in {
            // No state at all is the result of `mds rmfailed`.
            let states = [m.up.contains_key(rank), m.failed.contains(rank), m.damaged.contains(rank)];
            let one = states.iter().filter(|s| **s).count() <= 1;
            ensure(one && !m.stopped.contains(rank), &|| {
                format!("rank {rank} of file system {id} is stopped or in two states (up, failed, damaged): {states:?}")
            })?;
        }
        let down = m.failed.iter().chain(&m.damaged).all(|r| m.ranks_in.contains(r));
        ensure(down, &|| format!("a rank of file system {id} is failed or damaged and not in"))?;
    }
    Ok(())
}
