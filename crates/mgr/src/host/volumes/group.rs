//! Groups of subvolumes.

use super::fs::{Fs, pool_of, text};
use super::{Out, Vol, dump};
use crate::volumes::{BASE, DIR_MODE, Fail, INTERNAL, NO_GROUP, group_path, new_size, octal, percent, pin, time};
use base::errno::{EEXIST, EINVAL, ENOENT, ENOSYS, ENOTEMPTY};
use client::core::mds::request::Attrs;
use serde_json::{Map, Value, json};
use wire::types::InodeStat;

/// A group that was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Name; [`NO_GROUP`] for none.
    pub(super) name: String,
    pub(super) path: String,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
}

impl Group {
    /// Looks a group up; that of subvolumes without a group need not exist.
    pub(super) async fn open(fs: &Fs, name: &str) -> Result<Self, Fail> {
        let path = group_path(name)?;
        let shown = if name.is_empty() { NO_GROUP } else { name };
        let mut me = Self { name: shown.to_owned(), path, uid: None, gid: None };
        match fs.stat(me.path.as_bytes()).await {
            Ok(i) => (me.uid, me.gid) = (Some(i.uid), Some(i.gid)),
            Err(ENOENT) if name.is_empty() => {}
            Err(ENOENT) => return Err((ENOENT, format!("subvolume group '{name}' does not exist"))),
            Err(e) => return Err(text("stat", &me.path, e)),
        }
        Ok(me)
    }

    /// Name as clone sources and keys of auth ids have it; `None` without a group.
    pub(super) fn given(&self) -> Option<&str> {
        (self.name != NO_GROUP).then_some(self.name.as_str())
    }

    /// Names of the subvolumes.
    pub(super) async fn subvolumes(&self, fs: &Fs) -> Result<Vec<String>, Fail> {
        match fs.dirs(self.path.as_bytes()).await {
            Err(ENOENT) if self.given().is_none() => Ok(Vec::new()),
            r => r.map_err(|e| text("opendir", &self.path, e)),
        }
    }
}

/// A user or group id of a command.
pub(super) fn id(v: &Vol<'_>, key: &str, what: &str) -> Result<Option<u32>, Fail> {
    match v.opt(key) {
        None => Ok(None),
        Some(t) => t.parse().map(Some).map_err(|_| (EINVAL, format!("invalid {what}"))),
    }
}

/// Sets a quota.
pub(super) async fn set_quota(fs: &Fs, path: &str, size: Option<&str>) -> Result<(), Fail> {
    let Some(size) = size else { return Ok(()) };
    fs.setxattr(path.as_bytes(), b"ceph.quota.max_bytes", size.as_bytes()).await.map_err(|e| match e {
        EINVAL => (EINVAL, format!("invalid size specified: '{size}'")),
        e => text("setxattr", path, e),
    })
}

async fn set_attrs(v: &Vol<'_>, path: &str, mode: u32) -> Result<(), Fail> {
    let fs = &v.fs;
    set_quota(fs, path, v.opt("size")).await?;
    let pool = match v.opt("pool_layout").filter(|p| !p.is_empty()) {
        Some(p) => p.to_owned(),
        None => fs.ancestor_pool(path).await.map_err(|e| text("getxattr", path, e))?,
    };
    fs.setxattr(path.as_bytes(), b"ceph.dir.layout.pool", pool.as_bytes()).await.map_err(|e| match e {
        EINVAL => (EINVAL, format!("Invalid pool layout '{pool}'. It must be a valid data pool")),
        e => text("setxattr", path, e),
    })?;
    let a = Attrs {
        uid: Some(id(v, "uid", "UID")?.unwrap_or(0)),
        gid: Some(id(v, "gid", "GID")?.unwrap_or(0)),
        mode: Some(mode),
        ..Attrs::default()
    };
    fs.setattr(path.as_bytes(), a).await.map_err(|e| text("chown", path, e))
}

/// `fs subvolumegroup create`.
pub(super) async fn create(v: &Vol<'_>) -> Out {
    let name = v.arg("group_name");
    let path = group_path(name)?;
    let mode = octal(v.opt("mode").unwrap_or("755"))?;
    let fs = &v.fs;
    fs.mkdirs(BASE, DIR_MODE).await.map_err(|e| text("mkdirs", BASE, e))?;
    let new = match fs.mkdir(path.as_bytes(), mode).await {
        Ok(()) => true,
        Err(EEXIST) => false,
        Err(e) => return Err(text("mkdir", &path, e)),
    };
    let r = set_attrs(v, &path, mode).await;
    if r.is_err() && new {
        // The error is what counts; the directory is empty.
        let _ = fs.rmdir(path.as_bytes()).await;
    }
    r.map(|()| String::new())
}

/// `fs subvolumegroup rm`.
pub(super) async fn rm(v: &Vol<'_>) -> Out {
    let name = v.arg("group_name");
    let path = group_path(name)?;
    match v.fs.rmdir(path.as_bytes()).await {
        Err(ENOENT) if v.flag("force") => Ok(String::new()),
        Err(ENOENT) => Err((ENOENT, format!("subvolume group '{name}' does not exist"))),
        Err(ENOTEMPTY) => Err((
            ENOTEMPTY,
            format!("subvolume group {name} contains subvolume(s) or retained snapshots of deleted subvolume(s)"),
        )),
        r => r.map(|()| String::new()).map_err(|e| text("rmdir", &path, e)),
    }
}

async fn names(v: &Vol<'_>) -> Result<Vec<String>, Fail> {
    match v.fs.dirs(BASE.as_bytes()).await {
        Err(ENOENT) => Ok(Vec::new()),
        r => Ok(r.map_err(|e| text("opendir", BASE, e))?.into_iter().filter(|n| !INTERNAL.contains(&&**n)).collect()),
    }
}

/// `fs subvolumegroup ls`.
pub(super) async fn ls(v: &Vol<'_>) -> Out {
    Ok(super::named(names(v).await?))
}

/// `fs subvolumegroup exist`.
pub(super) async fn exist(v: &Vol<'_>) -> Out {
    Ok(if names(v).await?.is_empty() { "no subvolumegroup exists" } else { "subvolumegroup exists" }.to_owned())
}

/// `fs subvolumegroup getpath`.
pub(super) async fn getpath(v: &Vol<'_>) -> Out {
    Ok(Group::open(&v.fs, v.arg("group_name")).await?.path)
}

/// Answer of `info` about the directory of a group or subvolume.
pub(super) fn described(v: &Vol<'_>, i: &InodeStat, pool: &str) -> Map<String, Value> {
    let quota = u64::try_from(i.quota.max_bytes).unwrap_or(0);
    let all = json!({
        "uid": i.uid,
        "gid": i.gid,
        "atime": time(i.atime, false),
        "mtime": time(i.mtime, false),
        "ctime": time(i.ctime, false),
        "mode": i.mode,
        "data_pool": pool,
        "created_at": time(i.btime, false),
        "bytes_quota": if quota == 0 { json!("infinite") } else { json!(quota) },
        "bytes_used": i.rbytes,
        "bytes_pcent": percent(i.rbytes, quota),
        "mon_addrs": v.service.monitor.mon_addrs(),
    });
    let Value::Object(all) = all else { return Map::new() };
    all
}

/// `fs subvolumegroup info`.
pub(super) async fn info(v: &Vol<'_>) -> Out {
    let g = Group::open(&v.fs, v.arg("group_name")).await?;
    let i = v.fs.stat(g.path.as_bytes()).await.map_err(|e| text("stat", &g.path, e))?;
    let pool = pool_of(&i).and_then(|p| v.fs.backend.pool_name(p));
    let pool = pool.ok_or_else(|| text("getxattr", &g.path, base::errno::ENODATA))?;
    Ok(dump(described(v, &i, &pool)))
}

/// Changes the quota of a directory. `what`: "subvolume" or "subvolume group".
pub(super) async fn resized(v: &Vol<'_>, path: &str, what: &str) -> Out {
    let size = new_size(v.arg("new_size"), what)?;
    let i = v.fs.stat(path.as_bytes()).await.map_err(|e| text("stat", path, e))?;
    let used = i.rbytes;
    if size > 0 && size < used && v.flag("no_shrink") {
        return Err((
            EINVAL,
            format!(
                "Can't resize the {what}. The new size '{size}' would be lesser than the current used size '{used}'"
            ),
        ));
    }
    if u64::try_from(i.quota.max_bytes).ok() != Some(size) {
        v.fs.setxattr(path.as_bytes(), b"ceph.quota.max_bytes", size.to_string().as_bytes())
            .await
            .map_err(|e| (e, format!("Cannot set new size for the {what}. '{}'", base::errno::name(e))))?;
    }
    let shown = json!([{"bytes_used": used}, {"bytes_quota": size}, {"bytes_pcent": percent(used, size)}]);
    Ok(super::pretty(&shown))
}

/// `fs subvolumegroup resize`.
pub(super) async fn resize(v: &Vol<'_>) -> Out {
    let g = Group::open(&v.fs, v.arg("group_name")).await?;
    resized(v, &g.path, "subvolume group").await
}

/// Pins a directory to ranks.
pub(super) async fn pinned(v: &Vol<'_>, path: &str) -> Out {
    let (attr, value) = pin(v.arg("pin_type"), v.arg("pin_setting"))?;
    let r = v.fs.setxattr(path.as_bytes(), attr.as_bytes(), value.as_bytes()).await;
    r.map(|()| "{}".to_owned()).map_err(|e| text("setxattr", path, e))
}

/// `fs subvolumegroup pin`.
pub(super) async fn pin_group(v: &Vol<'_>) -> Out {
    let g = Group::open(&v.fs, v.arg("group_name")).await?;
    pinned(v, &g.path).await
}

/// `fs subvolumegroup snapshot create`: subvolumes below a directory rule its snapshots out.
pub(super) async fn snap_create(v: &Vol<'_>) -> Out {
    Group::open(&v.fs, v.arg("group_name")).await?;
    Err((ENOSYS, "subvolume group snapshots are not supported".to_owned()))
}

/// `fs subvolumegroup snapshot rm`.
pub(super) async fn snap_rm(v: &Vol<'_>) -> Out {
    let (g, snap) = (Group::open(&v.fs, v.arg("group_name")).await, v.arg("snap_name"));
    let r = match g {
        Ok(g) => v.fs.rmsnap(g.path.as_bytes(), snap).await.map_err(|e| match e {
            ENOENT => (ENOENT, format!("snapshot '{snap}' does not exist")),
            e => text("rmdir", &g.path, e),
        }),
        Err(e) => Err(e),
    };
    match r {
        Err((ENOENT, _)) if v.flag("force") => Ok(String::new()),
        r => r.map(|()| String::new()),
    }
}

/// `fs subvolumegroup snapshot ls`.
pub(super) async fn snap_ls(v: &Vol<'_>) -> Out {
    let g = Group::open(&v.fs, v.arg("group_name")).await?;
    match v.fs.snaps(g.path.as_bytes()).await {
        Err(ENOENT) => Ok(super::named(Vec::new())),
        r => Ok(super::named(r.map_err(|e| text("opendir", &g.path, e))?)),
    }
}
