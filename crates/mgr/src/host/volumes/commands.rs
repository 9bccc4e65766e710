//! `fs subvolume …`: the commands on subvolumes and their snapshots.

use super::fs::{pool_of, text};
use super::group::{self, Group};
use super::subvolume::{Op, Subvolume, Wanted, state};
use super::{Out, Vol, auth, clone as clones, dump, named};
use crate::volumes::meta::{SNAP, SOURCE, USER};
use crate::volumes::{CLONES, Fail, is_name, octal, time};
use base::errno::{EAGAIN, EEXIST, EINVAL, ENODATA, ENOENT};
use client::core::mds::request::xattrs;
use serde_json::{Map, Value, json};
use wire::types::InodeStat;

/// Attribute with a subvolume's earmark.
const EARMARK: &str = "user.ceph.subvolume.earmark";
/// Beginnings of the earmarks that are taken.
const EARMARKS: [&str; 2] = ["nfs", "smb"];

impl Vol<'_> {
    async fn group(&self) -> Result<Group, Fail> {
        Group::open(&self.fs, self.opt("group_name").unwrap_or_default()).await
    }

    pub(super) async fn open(&self, op: Op) -> Result<Subvolume, Fail> {
        let g = self.group().await?;
        Subvolume::open(&self.fs, &g, self.arg("sub_name"), op).await
    }

    async fn data_stat(&self, s: &Subvolume) -> Result<InodeStat, Fail> {
        let path = s.path();
        self.fs.stat(path.as_bytes()).await.map_err(|e| text("stat", &path, e))
    }
}

fn earmark_ok(mark: &str) -> Result<(), Fail> {
    let valid = mark.is_empty() || EARMARKS.iter().any(|m| mark == *m || mark.starts_with(&format!("{m}.")));
    if valid {
        return Ok(());
    }
    Err((
        EINVAL,
        format!(
            "Invalid earmark specified: '{mark}'. A valid earmark should either be empty or start with 'nfs' or 'smb', followed by dot-separated non-empty components."
        ),
    ))
}

/// `fs subvolume ls`.
pub(super) async fn ls(v: &Vol<'_>) -> Out {
    let g = v.group().await?;
    Ok(named(g.subvolumes(&v.fs).await?))
}

/// `fs subvolume exist`.
pub(super) async fn exist(v: &Vol<'_>) -> Out {
    let found = match v.group().await {
        Ok(g) => g.subvolumes(&v.fs).await,
        Err(e) => Err(e),
    };
    match found {
        Ok(all) if !all.is_empty() => Ok("subvolume exists".to_owned()),
        Ok(_) | Err((ENOENT, _)) => Ok("no subvolume exists".to_owned()),
        Err(e) => Err(e),
    }
}

/// `fs subvolume create`.
pub(super) async fn create(v: &Vol<'_>) -> Out {
    let (fs, name) = (&v.fs, v.arg("sub_name"));
    let mut w = Wanted {
        size: v.opt("size").map(str::to_owned),
        pool: v.opt("pool_layout").map(str::to_owned),
        nspace: None,
        uid: group::id(v, "uid", "UID")?,
        gid: group::id(v, "gid", "GID")?,
        mode: Some(octal(v.opt("mode").unwrap_or("755"))?),
    };
    let mark = v.opt("earmark").unwrap_or_default();
    earmark_ok(mark)?;
    let g = v.group().await?;
    Subvolume::sweep(fs, &g, name).await?;
    let found = Subvolume::open(fs, &g, name, Op::Create).await;
    let made = match found {
        Ok(s) => {
            w.nspace = v.flag("namespace_isolated").then(|| s.namespace());
            if w.uid.is_none() || w.gid.is_none() {
                let i = v.data_stat(&s).await?;
                (w.uid, w.gid) = (w.uid.or(Some(i.uid)), w.gid.or(Some(i.gid)));
            }
            s.set_attrs(fs, &s.path(), &w).await?;
            s
        }
        Err((ENOENT, _)) => {
            let before = match Subvolume::discover(fs, &g, name).await {
                Err((ENOENT, _)) => Subvolume::new(&g, name)?,
                r => r?,
            };
            w.nspace = v.flag("namespace_isolated").then(|| before.namespace());
            let made = Subvolume::create(fs, before, ("subvolume", state::COMPLETE), &w).await;
            if made.is_err() {
                v.kick();
            }
            let made = made?;
            auth::make_file(fs, &made).await?;
            made
        }
        Err(e) => return Err(e),
    };
    if !mark.is_empty() {
        set_earmark(v, &made, mark).await?;
    }
    Ok(String::new())
}

/// `fs subvolume rm`.
pub(super) async fn rm(v: &Vol<'_>) -> Out {
    let force = v.flag("force");
    let removed = async {
        let mut s = v.open(if force { Op::RemoveForce } else { Op::Remove }).await?;
        if s.remove(&v.fs, v.flag("retain_snapshots"), false).await? {
            auth::remove_file(&v.fs, &s).await?;
        }
        v.kick();
        Ok(String::new())
    };
    match removed.await {
        Err((EAGAIN, why)) if !force => Err((EAGAIN, format!("{why} (use --force to override)"))),
        Err((ENOENT, _)) if force => Ok(String::new()),
        r => r,
    }
}

/// `fs subvolume resize`.
pub(super) async fn resize(v: &Vol<'_>) -> Out {
    let s = v.open(Op::Resize).await?;
    group::resized(v, &s.path(), "subvolume").await
}

/// `fs subvolume getpath`.
pub(super) async fn getpath(v: &Vol<'_>) -> Out {
    Ok(v.open(Op::GetPath).await?.path())
}

/// `fs subvolume pin`.
pub(super) async fn pin(v: &Vol<'_>) -> Out {
    let s = v.open(Op::Pin).await?;
    group::pinned(v, &s.base()).await
}

/// `fs subvolume info`.
pub(super) async fn info(v: &Vol<'_>) -> Out {
    let s = v.open(Op::Info).await?;
    let rest = json!({ "type": s.kind(), "features": s.features(), "state": s.state() });
    let Value::Object(rest) = rest else { return Ok(String::new()) };
    if s.state() == state::RETAINED {
        let mut all = rest;
        all.insert("mon_addrs".into(), json!(v.service.monitor.mon_addrs()));
        return Ok(dump(all));
    }
    let i = v.data_stat(&s).await?;
    let pool = pool_of(&i).and_then(|p| v.fs.backend.pool_name(p));
    let pool = pool.ok_or_else(|| text("getxattr", &s.path(), ENODATA))?;
    let mut all = group::described(v, &i, &pool);
    all.extend(rest);
    all.insert("path".into(), json!(s.path()));
    all.insert("pool_namespace".into(), json!(i.pool_ns));
    all.insert("earmark".into(), json!(earmark(&i)));
    Ok(dump(all))
}

fn earmark(i: &InodeStat) -> String {
    let all = xattrs(i).unwrap_or_default();
    all.get(EARMARK.as_bytes()).map(|m| String::from_utf8_lossy(m).into_owned()).unwrap_or_default()
}

async fn set_earmark(v: &Vol<'_>, s: &Subvolume, mark: &str) -> Result<(), Fail> {
    let path = s.path();
    let r = v.fs.setxattr(path.as_bytes(), EARMARK.as_bytes(), mark.as_bytes()).await;
    r.map_err(|e| text("setxattr", &path, e))
}

/// `fs subvolume earmark get|set|rm`.
pub(super) async fn earmarked(v: &Vol<'_>, what: &str) -> Out {
    let op = match what {
        "get" => "earmark-get",
        "set" => "earmark-set",
        _ => "earmark-clear",
    };
    if what == "set" {
        earmark_ok(v.arg("earmark"))?;
    }
    let s = v.open(Op::Metadata(op)).await?;
    match what {
        "get" => Ok(earmark(&v.data_stat(&s).await?)),
        "set" => set_earmark(v, &s, v.arg("earmark")).await.map(|()| String::new()),
        _ => set_earmark(v, &s, "").await.map(|()| String::new()),
    }
}

/// `fs subvolume metadata set|get|ls|rm`.
pub(super) async fn metadata(v: &Vol<'_>, what: &str) -> Out {
    let op = match what {
        "set" => "user-metadata-set",
        "get" => "user-metadata-get",
        "ls" => "user-metadata-ls",
        _ => "user-metadata-rm",
    };
    let r = async {
        let s = v.open(Op::Metadata(op)).await?;
        keys(v, s, what, USER, "subvolume metadata does not exist").await
    };
    forced(v, what, r.await)
}

/// `fs subvolume snapshot metadata set|get|ls|rm`.
pub(super) async fn snap_metadata(v: &Vol<'_>, what: &str) -> Out {
    let op = match what {
        "set" => "snap-metadata-set",
        "get" => "snap-metadata-get",
        "ls" => "snap-metadata-ls",
        _ => "snap-metadata-rm",
    };
    let snap = v.arg("snap_name");
    let r = async {
        let s = v.open(Op::Metadata(op)).await?;
        if !s.snapshots(&v.fs).await?.iter().any(|n| n == snap) {
            return Err((ENOENT, format!("snapshot '{snap}' does not exist")));
        }
        keys(v, s, what, &format!("{SNAP}{snap}"), "snapshot metadata not does not exist").await
    };
    forced(v, what, r.await)
}

/// With `--force`, what does not exist is removed.
fn forced(v: &Vol<'_>, what: &str, r: Out) -> Out {
    match r {
        Err((ENOENT, _)) if what == "rm" && v.flag("force") => Ok(String::new()),
        r => r,
    }
}

async fn keys(v: &Vol<'_>, mut s: Subvolume, what: &str, section: &str, none: &str) -> Out {
    let key = v.opt("key_name").unwrap_or_default();
    let missing = || (ENOENT, format!("key '{key}' does not exist."));
    match what {
        "set" => {
            s.meta.set(section, key, v.arg("value"))?;
            s.flush(&v.fs).await.map(|()| String::new())
        }
        "get" => s.meta.get(section, key).ok_or_else(missing),
        "ls" => {
            let all = s.meta.section(section).unwrap_or_default();
            let all: Map<String, Value> = all.iter().map(|(k, v)| (k.clone(), json!(v.replace("%%", "%")))).collect();
            Ok(dump(all))
        }
        _ => {
            if !s.meta.remove(section, key).map_err(|_| (ENOENT, none.to_owned()))? {
                return Err(missing());
            }
            s.flush(&v.fs).await.map(|()| String::new())
        }
    }
}

/// `fs subvolume snapshot ls`.
pub(super) async fn snap_ls(v: &Vol<'_>) -> Out {
    let s = v.open(Op::SnapList).await?;
    Ok(named(s.snapshots(&v.fs).await?))
}

/// `fs subvolume snapshot create`.
pub(super) async fn snap_create(v: &Vol<'_>) -> Out {
    let (s, snap) = (v.open(Op::SnapCreate).await?, v.arg("snap_name"));
    let in_group = format!("{}//{snap}", s.group.path);
    if !is_name(snap) {
        return Err((EINVAL, format!("snapshot name '{snap}' is invalid")));
    }
    match v.fs.stat(in_group.as_bytes()).await {
        Err(ENOENT) => {}
        Err(e) => return Err(text("stat", &in_group, e)),
        Ok(_) => return Err((EINVAL, "subvolumegroup and subvolume snapshot name can't be same".to_owned())),
    }
    let dir = s.snap_dir();
    match v.fs.mksnap(dir.as_bytes(), snap).await {
        Ok(()) | Err(EEXIST) => Ok(String::new()),
        Err(e) => Err(text("mkdir", &format!("{dir}/.snap/{snap}"), e)),
    }
}

/// `fs subvolume snapshot rm`.
pub(super) async fn snap_rm(v: &Vol<'_>) -> Out {
    let snap = v.arg("snap_name");
    let removed = async {
        let mut s = v.open(Op::SnapRemove).await?;
        // A note without a link is what an interrupted end left.
        if !pending(v, &s, snap).await?.0.is_empty() {
            return Err((EAGAIN, format!("snapshot '{snap}' has pending clones")));
        }
        if s.meta.remove_section(&format!("{SNAP}{snap}")) {
            s.flush(&v.fs).await?;
        }
        let dir = s.snap_dir();
        v.fs.rmsnap(dir.as_bytes(), snap).await.map_err(|e| match e {
            ENOENT => (ENOENT, format!("snapshot '{snap}' does not exist")),
            e => text("rmdir", &format!("{dir}/.snap/{snap}"), e),
        })?;
        if s.is_purgeable(&v.fs).await? {
            // The last of the retained snapshots.
            s.trash_base(&v.fs).await?;
            v.kick();
        }
        Ok(String::new())
    };
    forced(v, "rm", removed.await)
}

/// Identities of unfinished clones of a snapshot: their names and groups, and the number of those without a target.
async fn pending(v: &Vol<'_>, s: &Subvolume, snap: &str) -> Result<(Vec<Value>, u64), Fail> {
    let (mut found, mut orphans) = (Vec::new(), 0);
    for track in s.pending_clones(snap) {
        let link = format!("{CLONES}/{track}");
        match v.fs.stat(link.as_bytes()).await {
            Err(ENOENT) => orphans += 1,
            Err(e) => return Err(text("readlink", &link, e)),
            Ok(i) => {
                let target = String::from_utf8_lossy(&i.symlink).into_owned();
                let Some((group, name)) = crate::volumes::resolve(&target) else { continue };
                let mut one = json!({ "name": name });
                if !group.is_empty() {
                    one["target_group"] = json!(group);
                }
                found.push(one);
            }
        }
    }
    Ok((found, orphans))
}

/// `fs subvolume snapshot info`.
pub(super) async fn snap_info(v: &Vol<'_>) -> Out {
    let (s, snap) = (v.open(Op::SnapInfo).await?, v.arg("snap_name"));
    if snap.starts_with('_') {
        return Err((EINVAL, format!("snapshot name '{snap}' is invalid")));
    }
    let data = s.snap_data(&v.fs, snap).await?;
    let shown = String::from_utf8_lossy(&data).into_owned();
    let i = v.fs.stat(&data).await.map_err(|e| match e {
        ENOENT => (ENOENT, format!("snapshot '{snap}' does not exist")),
        e => text("stat", &shown, e),
    })?;
    let pool = pool_of(&i).and_then(|p| v.fs.backend.pool_name(p));
    let pool = pool.ok_or_else(|| text("getxattr", &shown, ENODATA))?;
    let (clones, orphans) = pending(v, &s, snap).await?;
    let mut all = Map::new();
    all.insert("created_at".into(), json!(time(i.snap_btime, true)));
    all.insert("data_pool".into(), json!(pool));
    all.insert("has_pending_clones".into(), json!(if clones.is_empty() { "no" } else { "yes" }));
    if !clones.is_empty() {
        all.insert("pending_clones".into(), json!(clones));
    }
    if orphans > 0 {
        all.insert("orphan_clones_count".into(), json!(orphans));
    }
    Ok(dump(all))
}

/// `fs subvolume snapshot protect|unprotect`, which do nothing since snapshots with clones are kept anyway.
pub(super) async fn protect(v: &Vol<'_>, op: Op) -> Out {
    v.open(op).await.map(|_| String::new())
}

/// `fs subvolume snapshot clone`.
pub(super) async fn clone(v: &Vol<'_>) -> Out {
    let (fs, snap) = (&v.fs, v.arg("snap_name"));
    let mut source = v.open(Op::CloneSource).await?;
    if !source.snapshots(fs).await?.iter().any(|n| n == snap) {
        return Err((ENOENT, format!("snapshot '{snap}' does not exist")));
    }
    let target = v.arg("target_sub_name");
    let g = Group::open(fs, v.opt("target_group_name").unwrap_or_default()).await?;
    Subvolume::sweep(fs, &g, target).await?;
    match Subvolume::open(fs, &g, target, Op::CloneCreate).await {
        Ok(_) => return Err((EEXIST, format!("subvolume '{target}' exists"))),
        Err((ENOENT, _)) => {}
        Err(e) => return Err(e),
    }
    let data = source.snap_data(fs, snap).await?;
    let i = fs.stat(&data).await.map_err(|e| text("stat", &String::from_utf8_lossy(&data), e))?;
    let given = v.opt("pool_layout").filter(|p| !p.is_empty());
    // The quota follows when the data is there: the source may exceed it.
    let w = Wanted {
        size: None,
        pool: given.map(str::to_owned).or_else(|| pool_of(&i).and_then(|p| fs.backend.pool_name(p))),
        nspace: given.is_none().then(|| i.pool_ns.clone()).filter(|n| !n.is_empty()),
        uid: Some(i.uid),
        gid: Some(i.gid),
        mode: Some(i.mode & 0o7777),
    };
    let mut before = match Subvolume::discover(fs, &g, target).await {
        Err((ENOENT, _)) => Subvolume::new(&g, target)?,
        r => r?,
    };
    // Again a clone, or the first time: what is known of an earlier one is over.
    before.meta.remove_section(crate::volumes::meta::FAILURE);
    before.meta.remove_section(SOURCE);
    before.meta.set(SOURCE, "volume", v.arg("vol_name"))?;
    if let Some(group) = source.group.given() {
        before.meta.set(SOURCE, "group", group)?;
    }
    before.meta.set(SOURCE, "subvolume", &source.name)?;
    before.meta.set(SOURCE, "snapshot", snap)?;
    if v.service.volumes.progress(v.fscid, &before.base()).is_some() {
        return Err((EAGAIN, format!("{target} clone in-progress -- please cancel the clone and retry")));
    }
    // First the index: whatever is interrupted from here on, the link leads to it. One link only: two would be two copies.
    clones::forget(fs, &before.base()).await.map_err(|e| text("unlink", CLONES, e))?;
    v.kick();
    let t = clones::track(fs, &before.base()).await.map_err(|_| (EINVAL, "error cloning subvolume".to_owned()))?;
    let made = Subvolume::create(fs, before, ("clone", state::PENDING), &w).await;
    v.kick();
    let mut made = match made {
        Ok(made) => made,
        Err(e) => {
            clones::untrack(fs, &t).await;
            return Err(e);
        }
    };
    let itself = source.base() == made.base();
    let noted = clones::note(fs, &t, if itself { &mut made } else { &mut source }, snap).await;
    if noted.is_err() && made.remove(fs, false, true).await.is_ok() {
        clones::untrack(fs, &t).await;
        v.kick();
    }
    noted.map(|()| String::new())
}
