//! Subvolumes: their state, and what may be done in it.

use super::fs::{Fs, is_dir, join, pool_of, text};
use super::group::{Group, set_quota};
use crate::host::images::uuid;
use crate::volumes::meta::{CLONE_SNAPS, FAILURE, GLOBAL, Meta, SIZE_MAX, SNAP, SOURCE, USER};
use crate::volumes::{Fail, NAMESPACE, TRASH, group_path, is_name, is_uuid, resolve};
use base::errno::{EAGAIN, EEXIST, EINVAL, EIO, ENOENT, ENOSPC, ENOTEMPTY, EOPNOTSUPP, Errno};
use client::core::mds::request::Attrs;

/// Purpose for which a subvolume is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Create,
    Remove,
    RemoveForce,
    Pin,
    GetPath,
    Info,
    Resize,
    SnapCreate,
    SnapRemove,
    SnapList,
    SnapInfo,
    SnapProtect,
    SnapUnprotect,
    CloneSource,
    CloneCreate,
    CloneStatus,
    CloneCancel,
    CloneInternal,
    Allow,
    Deny,
    AuthList,
    Evict,
    /// Keys of users; the name is in the text of a refusal.
    Metadata(&'static str),
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Remove => "rm",
            Self::RemoveForce => "rm-force",
            Self::Pin => "pin",
            Self::GetPath => "getpath",
            Self::Info => "info",
            Self::Resize => "resize",
            Self::SnapCreate => "snap-create",
            Self::SnapRemove => "snap-rm",
            Self::SnapList => "snap-ls",
            Self::SnapInfo => "snap-info",
            Self::SnapProtect => "snap-protect",
            Self::SnapUnprotect => "snap-unprotect",
            Self::CloneSource => "clone-source",
            Self::CloneCreate => "clone-create",
            Self::CloneStatus => "clone-status",
            Self::CloneCancel => "clone-cancel",
            Self::CloneInternal => "clone_internal",
            Self::Allow => "allow-access",
            Self::Deny => "deny-access",
            Self::AuthList => "auth-list",
            Self::Evict => "evict",
            Self::Metadata(name) => name,
        }
    }

    fn on_retained(self) -> bool {
        matches!(
            self,
            Self::Remove
                | Self::RemoveForce
                | Self::Info
                | Self::SnapRemove
                | Self::SnapList
                | Self::SnapInfo
                | Self::SnapProtect
                | Self::SnapUnprotect
                | Self::CloneSource
        )
    }

    fn on_unfinished(self) -> bool {
        matches!(
            self,
            Self::RemoveForce
                | Self::CloneCreate
                | Self::CloneStatus
                | Self::CloneCancel
                | Self::CloneInternal
                | Self::CloneSource
        )
    }
}

/// States of a subvolume in its file.
pub(super) mod state {
    pub(in super::super) const PENDING: &str = "pending";
    pub(in super::super) const IN_PROGRESS: &str = "in-progress";
    pub(in super::super) const FAILED: &str = "failed";
    pub(in super::super) const COMPLETE: &str = "complete";
    pub(in super::super) const CANCELED: &str = "canceled";
    pub(in super::super) const RETAINED: &str = "snapshot-retained";
    pub(in super::super) const ALL: [&str; 7] = ["init", PENDING, IN_PROGRESS, FAILED, COMPLETE, CANCELED, RETAINED];
}

/// Attributes of a subvolume's directory; those that are `None` stay or are inherited.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pub(super) size: Option<String>,
    pub(super) pool: Option<String>,
    pub(super) nspace: Option<String>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) mode: Option<u32>,
}

/// A subvolume that was looked up.
#[derive(Clone, Debug)]
pub(super) struct Subvolume {
    pub(super) group: Group,
    pub(super) name: String,
    pub(super) meta: Meta,
}

impl Subvolume {
    pub(super) fn new(group: &Group, name: &str) -> Result<Self, Fail> {
        if !is_name(name) {
            return Err((EINVAL, format!("'{name}' is not a valid subvolume name.")));
        }
        Ok(Self { group: group.clone(), name: name.to_owned(), meta: Meta::default() })
    }

    pub(super) fn base(&self) -> String {
        format!("{}/{}", self.group.path, self.name)
    }

    /// Directory of the data.
    pub(super) fn path(&self) -> String {
        self.meta.global("path")
    }

    pub(super) fn state(&self) -> String {
        self.meta.global("state")
    }

    pub(super) fn kind(&self) -> String {
        self.meta.global("type")
    }

    pub(super) fn namespace(&self) -> String {
        format!("{NAMESPACE}{}", self.name)
    }

    /// Snapshots are of this directory. Those of the first version are of the data itself.
    pub(super) fn snap_dir(&self) -> String {
        if self.is_first_version() { self.path() } else { self.base() }
    }

    pub(super) fn is_first_version(&self) -> bool {
        self.meta.global("version") == "1"
    }

    pub(super) fn features(&self) -> Vec<&'static str> {
        let mut f = vec!["snapshot-clone", "snapshot-autoprotect"];
        if !self.is_first_version() {
            f.push("snapshot-retention");
        }
        f
    }

    fn missing(&self) -> Fail {
        (ENOENT, format!("subvolume '{}' does not exist", self.name))
    }

    /// Reads the file, and updates a subvolume of the first version if it has no snapshots.
    pub(super) async fn discover(fs: &Fs, group: &Group, name: &str) -> Result<Self, Fail> {
        let mut me = Self::new(group, name)?;
        let base = me.base();
        match fs.stat(base.as_bytes()).await {
            Ok(_) => {}
            Err(ENOENT) => return Err(me.missing()),
            Err(e) => return Err((e, format!("error accessing subvolume '{name}'"))),
        }
        let unusable = || (EINVAL, "error accessing subvolume metadata".to_owned());
        let old = || {
            let why = "it is older than the file .meta, or not made by a manager; Ceph's manager updates it";
            (EOPNOTSUPP, format!("subvolume '{name}' cannot be served: {why}"))
        };
        let data = match fs.read_file(&format!("{base}/.meta"), SIZE_MAX).await {
            Err(ENOENT) => return Err(old()),
            r => r.map_err(|e| (e, "error accessing subvolume metadata".to_owned()))?,
        };
        me.meta = Meta::parse(std::str::from_utf8(&data).map_err(|_| unusable())?).map_err(|_| unusable())?;
        if !matches!(me.meta.global("version").as_str(), "1" | "2") || !state::ALL.contains(&me.state().as_str()) {
            return Err(unusable());
        }
        let parent = me.path().rsplit_once('/').map(|(p, _)| p.to_owned());
        if me.state() != state::RETAINED && parent.as_ref() != Some(&base) {
            return Err(old());
        }
        if me.is_first_version() && me.state() == state::COMPLETE && me.snapshots(fs).await?.is_empty() {
            me.meta.set(GLOBAL, "version", "2")?;
            me.mark(fs).await?;
            me.flush(fs).await?;
        }
        me.forget_stale_keys(fs).await?;
        Ok(me)
    }

    /// The subvolume that a directory belongs to, as its file describes it, which is not changed; `None` if there is none.
    pub(super) async fn around(fs: &Fs, dir: &str) -> Result<Option<Self>, Errno> {
        let words: Vec<&str> = dir.trim_start_matches('/').split('/').take(3).collect();
        let Some((group, name)) = resolve(&format!("/{}", words.join("/"))) else { return Ok(None) };
        let path = group_path(&group).map_err(|(e, _)| e)?;
        let mut me = Self { group: Group { name: group, path, uid: None, gid: None }, name, meta: Meta::default() };
        let data = match fs.read_file(&format!("{}/.meta", me.base()), SIZE_MAX).await {
            Err(ENOENT) => return Ok(None),
            r => r?,
        };
        me.meta = std::str::from_utf8(&data).ok().and_then(|m| Meta::parse(m).ok()).ok_or(EIO)?;
        Ok(Some(me))
    }

    /// Removes what an interrupted creation left: directories without contents, and no file.
    pub(super) async fn sweep(fs: &Fs, group: &Group, name: &str) -> Result<(), Fail> {
        let base = Self::new(group, name)?.base();
        let swept = async {
            if fs.stat(format!("{base}/.meta").as_bytes()).await != Err(ENOENT) {
                return Ok(());
            }
            let all = fs.list(base.as_bytes(), |e| Some((is_dir(&e.inode) && is_uuid(&e.name), e.name))).await?;
            if all.iter().any(|(data, name)| !data && name != ".meta.tmp") {
                return Ok(());
            }
            for (data, name) in all {
                let path = join(base.as_bytes(), &name);
                if data { fs.rmdir(&path).await? } else { fs.unlink(&path).await? }
            }
            fs.rmdir(base.as_bytes()).await
        };
        match swept.await {
            Ok(()) | Err(ENOENT | ENOTEMPTY) => Ok(()),
            Err(e) => Err(text("rmdir", &base, e)),
        }
    }

    /// Removes users' keys of snapshots that are gone.
    async fn forget_stale_keys(&mut self, fs: &Fs) -> Result<(), Fail> {
        let described = self.meta.described_snaps();
        if described.is_empty() {
            return Ok(());
        }
        let snaps = self.snapshots(fs).await?;
        let stale: Vec<&String> = described.iter().filter(|s| !snaps.contains(s)).collect();
        for s in &stale {
            self.meta.remove_section(&format!("{SNAP}{s}"));
        }
        if stale.is_empty() { Ok(()) } else { self.flush(fs).await }
    }

    /// Looks a subvolume up for an operation.
    pub(super) async fn open(fs: &Fs, group: &Group, name: &str, op: Op) -> Result<Self, Fail> {
        let mut me = Self::discover(fs, group, name).await?;
        let clones = matches!(op, Op::CloneStatus | Op::CloneCancel | Op::CloneInternal);
        if me.kind() != "clone" && clones {
            let why = format!("operation '{}' is not allowed on subvolume '{name}' of type {}", op.name(), me.kind());
            return Err((EOPNOTSUPP, why));
        }
        let now = me.state();
        if now == state::RETAINED {
            if op.on_retained() || clones {
                return Ok(me);
            }
            return Err((ENOENT, format!("subvolume '{name}' is removed and has only snapshots retained")));
        }
        if now != state::COMPLETE && !op.on_unfinished() {
            return Err((EAGAIN, format!("subvolume '{name}' is not ready for operation {}", op.name())));
        }
        match fs.stat(me.path().as_bytes()).await {
            Ok(_) => Ok(me),
            Err(ENOENT) if me.retain_rest(fs).await? => Box::pin(Self::open(fs, group, name, op)).await,
            Err(ENOENT) => Err((ENOENT, format!("mount path missing for subvolume '{name}'"))),
            Err(e) => Err(text("stat", &me.path(), e)),
        }
    }

    /// Finishes an interrupted removal that keeps snapshots, after which the data is missing; true if it was one.
    async fn retain_rest(&mut self, fs: &Fs) -> Result<bool, Fail> {
        if self.is_first_version() || self.snapshots(fs).await?.is_empty() {
            return Ok(false);
        }
        let path = self.path();
        let name = path.rsplit('/').next().unwrap_or_default();
        let data = format!("{}/{name}", self.own_trash());
        match fs.stat(data.as_bytes()).await {
            Ok(_) => self.link_trash(fs, &data).await?,
            // It was purged already.
            Err(ENOENT) => {}
            Err(e) => return Err(text("stat", &data, e)),
        }
        self.set_retained(fs).await.map(|()| true)
    }

    async fn set_retained(&mut self, fs: &Fs) -> Result<(), Fail> {
        self.meta.remove_section(USER);
        self.meta.set(GLOBAL, "path", "")?;
        self.meta.set(GLOBAL, "state", state::RETAINED)?;
        self.flush(fs).await
    }

    /// Makes the link in the common trash to data in the subvolume's own.
    async fn link_trash(&self, fs: &Fs, data: &str) -> Result<(), Fail> {
        fs.mkdirs(TRASH, 0o700).await.map_err(|e| text("mkdirs", TRASH, e))?;
        let link = format!("{TRASH}/{}", data.rsplit('/').next().unwrap_or_default());
        match fs.symlink(data.as_bytes(), link.as_bytes()).await {
            Ok(()) | Err(EEXIST) => Ok(()),
            Err(e) => Err(text("symlink", &link, e)),
        }
    }

    /// Writes the file.
    pub(super) async fn flush(&self, fs: &Fs) -> Result<(), Fail> {
        let path = format!("{}/.meta", self.base());
        let meta = self.meta.text();
        if meta.len() as u64 > SIZE_MAX {
            return Err((ENOSPC, format!("subvolume '{}' has too many clones or keys", self.name)));
        }
        fs.write_file(&path, meta.into(), 0o640).await.map_err(|e| text("write", &path, e))
    }

    /// Marks the directory of the snapshots as a subvolume, below which there are no others.
    async fn mark(&self, fs: &Fs) -> Result<(), Fail> {
        let dir = self.snap_dir();
        fs.setxattr(dir.as_bytes(), b"ceph.dir.subvolume", b"1").await.map_err(|e| match e {
            EINVAL => (EINVAL, "invalid value specified for ceph.dir.subvolume".to_owned()),
            e => text("setxattr", &dir, e),
        })
    }

    /// Snapshots, without those of directories above.
    pub(super) async fn snapshots(&self, fs: &Fs) -> Result<Vec<String>, Fail> {
        let dir = self.snap_dir();
        match fs.snaps(dir.as_bytes()).await {
            Err(ENOENT) => Ok(Vec::new()),
            r => r.map_err(|e| text("opendir", &dir, e)),
        }
    }

    /// The directory of the data in a snapshot.
    pub(super) async fn snap_data(&self, fs: &Fs, snap: &str) -> Result<Vec<u8>, Fail> {
        let missing = || (ENOENT, format!("snapshot '{snap}' does not exist"));
        if !is_name(snap) {
            return Err(missing());
        }
        // An empty name leads to the snapshots.
        let at = format!("{}//{snap}", self.snap_dir());
        if self.is_first_version() {
            return Ok(at.into_bytes());
        }
        let found = fs.list(at.as_bytes(), |e| (is_dir(&e.inode) && is_uuid(&e.name)).then_some(e.name)).await;
        let found = found.map_err(|e| if e == ENOENT { missing() } else { text("opendir", &at, e) })?;
        found.last().map(|n| join(at.as_bytes(), n).to_vec()).ok_or_else(missing)
    }

    /// Sets attributes of the data's directory.
    pub(super) async fn set_attrs(&self, fs: &Fs, path: &str, w: &Wanted) -> Result<(), Fail> {
        set_quota(fs, path, w.size.as_deref()).await?;
        let set = async |name: &str, value: &str| fs.setxattr(path.as_bytes(), name.as_bytes(), value.as_bytes()).await;
        let pool = w.pool.as_deref().filter(|p| !p.is_empty());
        if let Some(pool) = pool {
            set("ceph.dir.layout.pool", pool).await.map_err(|e| match e {
                EINVAL => (EINVAL, format!("invalid pool layout '{pool}' -- need a valid data pool")),
                e => text("setxattr", path, e),
            })?;
        }
        if let Some(n) = &w.nspace {
            set("ceph.dir.layout.pool_namespace", n).await.map_err(|e| text("setxattr", path, e))?;
        } else if pool.is_none() {
            // A layout of its own does not change with those above it.
            let i = fs.stat(path.as_bytes()).await.map_err(|e| text("stat", path, e))?;
            if pool_of(&i).is_none() {
                let parent = path.rsplit_once('/').map_or("", |(p, _)| p);
                let pool = fs.ancestor_pool(parent).await.map_err(|e| text("getxattr", path, e))?;
                set("ceph.dir.layout.pool", &pool).await.map_err(|e| text("setxattr", path, e))?;
            }
        }
        let (uid, gid) = (w.uid.or(self.group.uid), w.gid.or(self.group.gid));
        let owner = uid.zip(gid);
        let a = Attrs { uid: owner.map(|o| o.0), gid: owner.map(|o| o.1), mode: w.mode, ..Attrs::default() };
        if a == Attrs::default() {
            return Ok(());
        }
        fs.setattr(path.as_bytes(), a).await.map_err(|e| text("chown", path, e))
    }

    /// Makes the directories of a new incarnation; `self` is new, or has only snapshots.
    async fn make(&mut self, fs: &Fs, kind: &str, at_first: &str, w: &Wanted) -> Result<(), Fail> {
        let base = self.base();
        let path = format!("{base}/{}", uuid());
        fs.mkdirs(&self.group.path, crate::volumes::DIR_MODE).await.map_err(|e| text("mkdirs", &base, e))?;
        let mode = w.mode.unwrap_or(0o755);
        match fs.mkdir(base.as_bytes(), mode).await {
            Ok(()) | Err(EEXIST) => {}
            Err(e) => return Err(text("mkdir", &base, e)),
        }
        self.meta.set(GLOBAL, "version", "2")?;
        for (k, v) in [("type", kind), ("path", path.as_str()), ("state", at_first)] {
            self.meta.set(GLOBAL, k, v)?;
        }
        fs.mkdir(path.as_bytes(), mode).await.map_err(|e| text("mkdir", &path, e))?;
        self.mark(fs).await?;
        self.set_attrs(fs, &path, w).await?;
        self.flush(fs).await
    }

    /// Makes a subvolume of a kind (`subvolume`, `clone`) in its first state. `before` is what has its snapshots.
    pub(super) async fn create(
        fs: &Fs,
        before: Self,
        (kind, at_first): (&str, &str),
        w: &Wanted,
    ) -> Result<Self, Fail> {
        let retained = before.state() == state::RETAINED;
        if retained && before.has_purges(fs).await? {
            return Err((EAGAIN, "asynchronous purge of subvolume in progress".to_owned()));
        }
        let mut me = before;
        match me.make(fs, kind, at_first, w).await {
            Ok(()) => Ok(me),
            Err(e) => {
                let path = me.path();
                let undone = if retained {
                    fs.rmdir(path.as_bytes()).await
                } else {
                    me.trash_base(fs).await.map_err(|(e, _)| e)
                };
                if let Err(e) = undone {
                    tracing::info!("mgr: {path} stays: {}", base::errno::name(e));
                }
                Err(e)
            }
        }
    }

    /// Directory of the removed incarnations of a subvolume with retained snapshots.
    pub(super) fn own_trash(&self) -> String {
        format!("{}/.trash", self.base())
    }

    /// True if removed incarnations are not purged yet.
    pub(super) async fn has_purges(&self, fs: &Fs) -> Result<bool, Fail> {
        let dir = self.own_trash();
        match fs.list(dir.as_bytes(), |e| Some(e.name)).await {
            Err(ENOENT) => Ok(false),
            r => Ok(!r.map_err(|e| text("opendir", &dir, e))?.is_empty()),
        }
    }

    /// True if nothing but the file is left.
    pub(super) async fn is_purgeable(&self, fs: &Fs) -> Result<bool, Fail> {
        Ok(self.state() == state::RETAINED && self.snapshots(fs).await?.is_empty() && !self.has_purges(fs).await?)
    }

    /// Moves the subvolume to the trash.
    pub(super) async fn trash_base(&self, fs: &Fs) -> Result<(), Fail> {
        fs.mkdirs(TRASH, 0o700).await.map_err(|e| text("mkdirs", TRASH, e))?;
        let to = format!("{TRASH}/{}", uuid());
        let base = self.base();
        fs.rename(base.as_bytes(), to.as_bytes()).await.map_err(|e| text("rename", &base, e))
    }

    /// Moves the data to the subvolume's own trash, to which a link in the common one leads.
    async fn trash_data(&self, fs: &Fs) -> Result<(), Fail> {
        let (path, own) = (self.path(), self.own_trash());
        fs.mkdirs(&own, 0o700).await.map_err(|e| text("mkdirs", &own, e))?;
        let name = path.rsplit('/').next().unwrap_or_default();
        let to = format!("{own}/{name}");
        fs.rename(path.as_bytes(), to.as_bytes()).await.map_err(|e| text("rename", &path, e))?;
        self.link_trash(fs, &to).await
    }

    /// Removes the subvolume; true if its file of auth ids goes as well.
    pub(super) async fn remove(&mut self, fs: &Fs, retain: bool, internal: bool) -> Result<bool, Fail> {
        let name = &self.name;
        if self.is_first_version() && retain {
            return Err((EINVAL, format!("subvolume '{name}' does not support snapshot retention on delete")));
        }
        if !self.snapshots(fs).await?.is_empty() {
            if !retain {
                return Err((ENOTEMPTY, format!("subvolume '{name}' has snapshots")));
            }
        } else {
            let over =
                matches!(self.state().as_str(), state::COMPLETE | state::CANCELED | state::FAILED | state::RETAINED);
            if !internal && !over {
                let why = format!("{name} clone in-progress -- please cancel the clone and retry");
                return Err((EAGAIN, why));
            }
            if self.is_first_version() || !self.has_purges(fs).await? {
                return self.trash_base(fs).await.map(|()| true);
            }
        }
        if self.state() == state::RETAINED {
            return Ok(false);
        }
        self.trash_data(fs).await?;
        self.set_retained(fs).await.map(|()| true)
    }

    /// Clones of a snapshot that are not finished: their identities in the index.
    pub(super) fn pending_clones(&self, snap: &str) -> Vec<String> {
        let all = self.meta.section(CLONE_SNAPS).unwrap_or_default();
        all.iter().filter(|(_, s)| s == snap).map(|(track, _)| track.clone()).collect()
    }

    /// Source of a clone: file system, group (empty if none), subvolume, snapshot.
    pub(super) fn source(&self) -> Result<[String; 4], Fail> {
        let get = |k| self.meta.get(SOURCE, k).ok_or((EINVAL, "error fetching subvolume metadata".to_owned()));
        let group = self.meta.get(SOURCE, "group").unwrap_or_default();
        Ok([get("volume")?, group, get("subvolume")?, get("snapshot")?])
    }

    /// Reason of a clone's failure: errno and text.
    pub(super) fn failure(&self) -> Option<(String, String)> {
        self.meta.get(FAILURE, "errno").zip(self.meta.get(FAILURE, "error_msg"))
    }
}
