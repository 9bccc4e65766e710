//! Pools of a file system: which may serve, the first ones, and further ones for data.

use super::{changed, edit, modify, pool_name};
use crate::command::{CommandOutcome, Ctx, Refused, Res, committed, done, invalid, refuse};
use base::{PoolId, errno};
use cluster::OsdMap;
use wire::types::MdsMap;

/// The use of a pool in a file system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Metadata,
    DefaultData,
    MoreData,
}

/// Refuses a pool that cannot be part of a file system.
pub(super) fn check_pool(map: &OsdMap, id: PoolId, what: Use, force: bool, overlay: bool) -> Res<()> {
    let Some(p) = map.pool(id) else {
        return refuse(errno::ENOENT, format!("pool id '{}' does not exist", id.0));
    };
    let name = pool_name(map, id);
    if p.is_pool_snaps_mode() {
        let text = format!("pool({}) already has mon-managed snaps; can't attach pool to fs", id.0);
        return refuse(errno::EOPNOTSUPP, text);
    }
    if !overlay && !force && !p.application_metadata.is_empty() {
        let Some(app) = p.application_metadata.get(APP) else {
            return invalid(format!("RADOS pool '{name}' has another non-CephFS application enabled."));
        };
        if let Some((kind, fs)) = app.get_key_value("data").or_else(|| app.get_key_value("metadata")) {
            return invalid(format!(
                "RADOS pool '{name}' is already used by filesystem '{fs}' as a '{kind}' pool for application '{APP}'"
            ));
        }
    }
    if p.is_erasure() {
        let ec = format!("pool '{name}' (id '{}') is an erasure-coded pool", id.0);
        if what == Use::Metadata {
            return invalid(format!("{ec}.  Use of erasure-coded pools for CephFS metadata is not permitted"));
        }
        if what == Use::DefaultData && !force {
            return invalid(format!(
                "{ec}. Use of an EC pool for the default data pool is discouraged; see the online CephFS documentation for more information. Use --force to override."
            ));
        }
        if !p.has_flag(cluster::pool::flag::EC_OVERWRITES) {
            return invalid(format!("{ec}, with no overwrite support"));
        }
    }
    Ok(())
}

/// The application that pools of file systems are marked with.
pub(super) const APP: &str = "cephfs";

/// Marks a pool as part of a file system.
pub(super) fn enable_app(c: &mut Ctx<'_>, pool: PoolId, key: &str, fs: &str) {
    if let Some(p) = c.pending.pool_mut(c.state, pool) {
        p.application_metadata.entry(APP.to_owned()).or_default().insert(key.to_owned(), fs.to_owned());
    }
}

/// A pool by name, or by number.
fn pool_arg(c: &mut Ctx<'_>) -> Res<PoolId> {
    let text = c.args.str("pool")?;
    let map = c.map();
    let by_name = map.pool_by_name(&text);
    let missing = || Refused::new(errno::ENOENT, format!("pool '{text}' does not exist"));
    by_name.or_else(|| text.parse().ok().map(PoolId)).ok_or_else(missing)
}

pub(super) fn add_data_pool(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    let pool = pool_arg(c)?;
    if fs.mds_map.data_pools.contains(&pool) {
        return done(format!("data pool {} is already on fs {}", pool.0, fs.mds_map.fs_name));
    }
    let map = c.map();
    check_pool(&map, pool, Use::MoreData, false, false)?;
    enable_app(c, pool, "data", &fs.mds_map.fs_name);
    modify(c, fs.fscid, |f| f.mds_map.data_pools.push(pool));
    committed(format!("added data pool {} to fsmap", pool.0))
}

pub(super) fn rm_data_pool(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    let pool = pool_arg(c)?;
    if pool.0 < 0 {
        return invalid(format!("invalid pool id '{}'", pool.0));
    }
    if fs.mds_map.data_pools.first() == Some(&pool) {
        return invalid("cannot remove default data pool");
    }
    if !fs.mds_map.data_pools.contains(&pool) {
        return done("");
    }
    modify(c, fs.fscid, |f| f.mds_map.data_pools.retain(|p| *p != pool));
    committed(format!("removed data pool {} from fsmap", pool.0))
}

pub(super) fn set_default(c: &mut Ctx<'_>) -> Res<CommandOutcome> {
    let fs = changed(c)?;
    edit(c).map_mut().legacy_client_fscid = fs.fscid;
    committed("")
}

/// Writes another file system name into the application metadata of its pools.
pub(super) fn mark_pools(c: &mut Ctx<'_>, m: &MdsMap, name: &str) {
    for p in &m.data_pools {
        enable_app(c, *p, "data", name);
    }
    enable_app(c, m.metadata_pool, "metadata", name);
}
