//! Clones: subvolumes that are filled from a snapshot.
//!
//! A clone's state is in its file and in the index, so that a manager that starts goes on where another one stopped.

use super::copy::{self, Progress};
use super::fs::{Fs, text};
use super::group::Group;
use super::subvolume::{Op, Subvolume, state};
use super::{Out, Vol, locked};
use crate::host::images::uuid;
use crate::volumes::meta::{CLONE_SNAPS, FAILURE, GLOBAL, SOURCE};
use crate::volumes::{CLONES, Fail, resolve, short_size};
use base::Utime;
use base::errno::{EINTR, EINVAL, ENOENT, EOPNOTSUPP, Errno};
use bytes::Bytes;
use client::core::mds::request::mode;
use serde_json::{Value, json};
use std::rc::Rc;
use tokio::sync::Mutex;

/// Text of a clone that was cancelled.
const CANCELED: &str = "user interrupted clone operation";

/// A link of the index: its name, the clone it leads to, and its age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tracked {
    pub(super) id: String,
    pub(super) target: String,
    pub(super) since: Utime,
}

impl Tracked {
    fn link(&self) -> String {
        format!("{CLONES}/{}", self.id)
    }
}

/// Links of the index, the oldest first.
pub(super) async fn tracked(fs: &Fs) -> Result<Vec<Tracked>, Errno> {
    let link = |e: client::core::mds::request::Entry| {
        let id = String::from_utf8(e.name.to_vec()).ok()?;
        let target = String::from_utf8(e.inode.symlink.to_vec()).ok()?;
        (e.inode.mode & mode::TYPE == mode::LINK).then_some(Tracked { id, target, since: e.inode.ctime })
    };
    match fs.list(CLONES.as_bytes(), link).await {
        Err(ENOENT) => Ok(Vec::new()),
        Err(e) => Err(e),
        Ok(mut all) => {
            all.sort_by_key(|t| t.since);
            Ok(all)
        }
    }
}

/// Adds a clone to the index, which has its work from then on.
pub(super) async fn track(fs: &Fs, target: &str) -> Result<Tracked, Errno> {
    fs.mkdirs(CLONES, 0o700).await?;
    let t = Tracked { id: uuid(), target: target.to_owned(), since: Utime::default() };
    fs.symlink(t.target.as_bytes(), t.link().as_bytes()).await?;
    Ok(t)
}

/// Takes links out of the index that an earlier clone of this name left.
pub(super) async fn forget(fs: &Fs, target: &str) -> Result<(), Errno> {
    for t in tracked(fs).await?.into_iter().filter(|t| t.target == target) {
        match fs.unlink(t.link().as_bytes()).await {
            Ok(()) | Err(ENOENT) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Takes a clone that was not made out of the index. A link that stays leads nowhere, and goes when it is looked at.
pub(super) async fn untrack(fs: &Fs, t: &Tracked) {
    let _ = fs.unlink(t.link().as_bytes()).await;
}

/// Notes a clone in its source, which keeps the snapshot.
pub(super) async fn note(fs: &Fs, t: &Tracked, source: &mut Subvolume, snap: &str) -> Result<(), Fail> {
    if source.pending_clones(snap).contains(&t.id) {
        return Ok(());
    }
    source.meta.set(CLONE_SNAPS, &t.id, snap)?;
    source.flush(fs).await
}

async fn clone_of(fs: &Fs, t: &Tracked) -> Result<Subvolume, Fail> {
    let (group, name) = resolve(&t.target).ok_or((EINVAL, "invalid clone path".to_owned()))?;
    let g = Group::open(fs, &group).await?;
    Subvolume::open(fs, &g, &name, Op::CloneInternal).await
}

/// Looks up a clone and its source, which may be the same subvolume with retained snapshots. ENOENT if one of them is gone,
/// or if all that is left of the clone's work is its link, which may lead to another subvolume by now.
async fn pair(fs: &Fs, t: &Tracked) -> Result<(Subvolume, Option<Subvolume>), Fail> {
    let clone = match clone_of(fs, t).await {
        Err((EOPNOTSUPP, why)) => return Err((ENOENT, why)),
        r => r?,
    };
    if clone.meta.section(SOURCE).is_none() {
        return Err((ENOENT, "the clone has no source any more".to_owned()));
    }
    let [_, group, name, _] = clone.source()?;
    let g = Group::open(fs, &group).await?;
    let source = Subvolume::open(fs, &g, &name, Op::CloneSource).await?;
    let itself = source.base() == clone.base();
    Ok((clone, (!itself).then_some(source)))
}

async fn set_state(fs: &Fs, clone: &mut Subvolume, to: &str, failure: Option<(Errno, &str)>) -> Result<(), Fail> {
    clone.meta.set(GLOBAL, "state", to)?;
    if let Some((e, why)) = failure {
        clone.meta.set(FAILURE, "errno", &(-e).to_string())?;
        clone.meta.set(FAILURE, "error_msg", &why.replace(['%', '\n'], " "))?;
    }
    clone.flush(fs).await
}

fn is_unfinished(clone: &Subvolume) -> bool {
    [state::PENDING, state::IN_PROGRESS].contains(&clone.state().as_str())
}

/// Takes a finished clone out of the index and out of its source.
async fn detach(fs: &Fs, t: &Tracked) -> Result<(), Fail> {
    let link = t.link();
    let (mut clone, source) = match pair(fs, t).await {
        Ok(p) => p,
        Err((ENOENT, _)) => {
            // The clone was removed: nothing is left to be noted. Or its source was, before it was noted there.
            if let Ok(mut clone) = clone_of(fs, t).await
                && is_unfinished(&clone)
            {
                set_state(fs, &mut clone, state::FAILED, Some((ENOENT, base::errno::name(ENOENT)))).await?;
            }
            return fs.unlink(link.as_bytes()).await.map_err(|e| text("unlink", &link, e));
        }
        Err(e) => return Err(e),
    };
    let complete = clone.state() == state::COMPLETE;
    if let Some(mut s) = source {
        if s.meta.section(CLONE_SNAPS).is_some() && s.meta.remove(CLONE_SNAPS, &t.id)? {
            s.flush(fs).await?;
        }
    } else if clone.meta.section(CLONE_SNAPS).is_some() {
        clone.meta.remove(CLONE_SNAPS, &t.id)?;
        clone.flush(fs).await?;
    }
    if complete && clone.meta.remove_section(SOURCE) {
        clone.flush(fs).await?;
    }
    // Last: until here an interrupted end is repeated.
    fs.unlink(link.as_bytes()).await.map_err(|e| text("unlink", &link, e))
}

/// Directory to copy from, if there is one, and directory to copy to.
type Work = (Result<Vec<u8>, Fail>, String);

/// Notes that a clone is being made; `None` if nothing is left to do.
async fn begin(fs: &Fs, t: &Tracked, progress: &Progress) -> Result<Option<Work>, Fail> {
    if let Some((group, name)) = resolve(&t.target)
        && let Ok(g) = Group::open(fs, &group).await
    {
        Subvolume::sweep(fs, &g, &name).await?;
    }
    let (mut clone, mut source) = match pair(fs, t).await {
        Ok(p) => p,
        Err((ENOENT, _)) => return detach(fs, t).await.map(|()| None),
        Err(e) => return Err(e),
    };
    match clone.state().as_str() {
        state::PENDING if progress.canceled.get() => {
            set_state(fs, &mut clone, state::CANCELED, Some((EINTR, CANCELED))).await?;
            return detach(fs, t).await.map(|()| None);
        }
        state::PENDING => set_state(fs, &mut clone, state::IN_PROGRESS, None).await?,
        state::IN_PROGRESS => {}
        _ => return detach(fs, t).await.map(|()| None),
    }
    let [.., snap] = clone.source()?;
    note(fs, t, source.as_mut().unwrap_or(&mut clone), &snap).await?;
    let from = source.as_ref().unwrap_or(&clone).snap_data(fs, &snap).await;
    Ok(Some((from, clone.path())))
}

/// Error of a step that took too long.
fn late(e: Errno) -> Fail {
    (e, "the file system does not answer".to_owned())
}

/// Brings a clone to its end.
pub(super) async fn run(fs: &Fs, lock: &Mutex<()>, t: &Tracked, progress: &Rc<Progress>) -> Result<(), Fail> {
    let Some((from, to)) = locked(lock, begin(fs, t, progress)).await.map_err(late)?? else { return Ok(()) };
    let copied = match from {
        Ok(from) => match copy::tree(fs, &from, to.as_bytes(), progress).await {
            Ok(()) => quotas(fs, &from, &to).await,
            Err(e) => Err(e),
        },
        Err((e, _)) => Err(e),
    };
    fs.backend.sync().await;
    locked(lock, end(fs, t, copied, progress)).await.map_err(late)?
}

/// Notes how a copy ended.
async fn end(fs: &Fs, t: &Tracked, copied: Result<(), Errno>, progress: &Progress) -> Result<(), Fail> {
    let (mut clone, _) = match pair(fs, t).await {
        Ok(p) => p,
        Err((ENOENT, _)) => return detach(fs, t).await,
        Err(e) => return Err(e),
    };
    match copied {
        Ok(()) => set_state(fs, &mut clone, state::COMPLETE, None).await?,
        // The wish is known to this attempt only.
        Err(e) if e == EINTR || progress.canceled.get() => {
            set_state(fs, &mut clone, state::CANCELED, Some((EINTR, CANCELED))).await?;
        }
        // The session ended or the cluster stalled; the next attempt goes on.
        Err(e) if super::is_passing(e) => return Err((e, base::errno::name(e).to_owned())),
        Err(e) => {
            tracing::warn!("mgr: clone {} failed: {}", t.target, base::errno::name(e));
            set_state(fs, &mut clone, state::FAILED, Some((e, base::errno::name(e)))).await?;
        }
    }
    detach(fs, t).await
}

/// Copies the quotas, which the source may exceed.
async fn quotas(fs: &Fs, from: &[u8], to: &str) -> Result<(), Errno> {
    let i = fs.stat(from).await?;
    for (name, v) in [("ceph.quota.max_bytes", i.quota.max_bytes), ("ceph.quota.max_files", i.quota.max_files)] {
        if v > 0 {
            fs.setxattr(to.as_bytes(), name.as_bytes(), v.to_string().as_bytes()).await?;
        }
    }
    Ok(())
}

async fn open(v: &Vol<'_>, op: Op) -> Result<Subvolume, Fail> {
    let g = Group::open(&v.fs, v.opt("group_name").unwrap_or_default()).await?;
    Subvolume::open(&v.fs, &g, v.arg("clone_name"), op).await
}

fn report(p: &Progress) -> Value {
    let (done, all) = (p.bytes.get(), p.all_bytes.get().max(p.bytes.get()));
    #[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
    let percent = if all == 0 { 0.0 } else { done as f64 / all as f64 * 100.0 };
    json!({
        "percentage cloned": format!("{percent:.2}%"),
        "amount cloned": format!("{}/{}", short_size(done), short_size(all)),
        "files cloned": format!("{}/{}", p.files.get(), p.all_files.get().max(p.files.get())),
    })
}

/// `fs clone status`.
pub(super) async fn status(v: &Vol<'_>) -> Out {
    let s = open(v, Op::CloneStatus).await?;
    let mut shown = json!({ "state": s.state() });
    if s.state() != state::COMPLETE {
        let [volume, group, subvolume, snapshot] = s.source()?;
        let mut source = json!({ "volume": volume, "subvolume": subvolume, "snapshot": snapshot });
        if !group.is_empty() {
            source["group"] = json!(group);
        }
        shown["source"] = source;
    }
    if s.state() == state::IN_PROGRESS
        && let Some(p) = v.service.volumes.progress(v.fscid, &s.base())
    {
        shown["progress_report"] = report(&p);
    }
    if [state::FAILED, state::CANCELED].contains(&s.state().as_str())
        && let Some((errno, why)) = s.failure()
    {
        shown["failure"] = json!({ "errno": errno, "error_msg": why });
    }
    let mut out = Vec::new();
    let form = serde_json::ser::PrettyFormatter::with_indent(b"  ");
    let mut to = serde_json::Serializer::with_formatter(&mut out, form);
    // Writing to memory cannot fail.
    let _ = serde::Serialize::serialize(&json!({ "status": shown }), &mut to);
    Ok(String::from_utf8_lossy(&Bytes::from(out)).into_owned())
}

/// `fs clone cancel`.
pub(super) async fn cancel(v: &Vol<'_>) -> Out {
    let mut s = open(v, Op::CloneCancel).await?;
    if !is_unfinished(&s) {
        return Err((EINVAL, "cannot cancel -- clone finished (check clone status)".to_owned()));
    }
    if let Some(p) = v.service.volumes.progress(v.fscid, &s.base()) {
        p.canceled.set(true);
        return Ok(String::new());
    }
    let all = tracked(&v.fs).await.map_err(|e| text("opendir", CLONES, e))?;
    set_state(&v.fs, &mut s, state::CANCELED, Some((EINTR, CANCELED))).await?;
    // A clone whose command ended in its middle is in no index, and nothing works on it.
    match all.into_iter().find(|t| t.target == s.base()) {
        Some(t) => detach(&v.fs, &t).await.map(|()| String::new()),
        None => Ok(String::new()),
    }
}
