//! Background tasks on images: their fields, storage and execution.
//!
//! Tasks are stored as Ceph's manager stores them: one JSON object each in the omap of `rbd_task`, in the pool and
//! namespace of the image. So they survive a restart, and either manager can continue the other's tasks.

use super::image::{COOKIE, Image, Place, Step, absent_is_fine, enc};
use super::mirror::ask_owner;
use super::mirrored::{self, Mirrored};
use super::{migration, snap};
use base::errno::{EBUSY, ECANCELED, EINVAL, EMLINK, ENOENT, ENOTEMPTY, EOPNOTSUPP, EPERM, EROFS, Errno};
use base::{PoolId, SnapId};
use bytes::Bytes;
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use tokio::task::JoinSet;
use wire::Reader;
use wire::msg::{OpCode, OsdOp};

/// Object that stores the tasks of a pool and namespace.
const OBJECT: &str = "rbd_task";
/// Data objects processed concurrently.
const CONCURRENT: usize = 10;
/// `WATCH_NOTIFY` payload: flatten the image.
const FLATTEN: u32 = 6;
/// Time limit in seconds for a client that holds the lock, after which the manager asks again.
const OWNER_SECONDS: u32 = 300;
/// Most tasks read from one pool and namespace.
const TASKS_MAX: u64 = 4096;

/// Kind of task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Flatten,
    Remove,
    TrashRemove,
    MigrationExecute,
    MigrationCommit,
    MigrationAbort,
}

impl Action {
    /// True if the task is a step of a migration.
    pub(super) fn migrates(self) -> bool {
        matches!(self, Self::MigrationExecute | Self::MigrationCommit | Self::MigrationAbort)
    }

    /// The message of a new task on the image `spec`. That of a migration names the source, too, and comes later.
    pub(super) fn message(self, spec: &str) -> String {
        match self {
            Self::MigrationExecute => String::new(),
            Self::MigrationCommit => format!("Committing image migration for {spec}"),
            Self::MigrationAbort => format!("Aborting image migration for {spec}"),
            Self::Flatten => format!("Flattening image {spec}"),
            Self::Remove => format!("Removing image {spec}"),
            Self::TrashRemove => format!("Removing image {spec} from trash"),
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Flatten => "flatten",
            Self::Remove => "remove",
            Self::TrashRemove => "trash remove",
            Self::MigrationExecute => "migrate execute",
            Self::MigrationCommit => "migrate commit",
            Self::MigrationAbort => "migrate abort",
        }
    }

    fn from_word(w: &str) -> Option<Self> {
        let all = [
            Self::Flatten,
            Self::Remove,
            Self::TrashRemove,
            Self::MigrationExecute,
            Self::MigrationCommit,
            Self::MigrationAbort,
        ];
        all.into_iter().find(|a| a.word() == w)
    }
}

/// A task.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) sequence: u64,
    pub(super) id: String,
    pub(super) message: String,
    pub(super) action: Action,
    pub(super) pool: String,
    pub(super) nspace: String,
    /// Name of the image; empty for an image in the trash.
    pub(super) image: String,
    pub(super) image_id: String,
    /// Source of the migration, once a commit has begun: pool, namespace, id and mirroring mode.
    pub(super) source: Option<Source>,
}

/// Sequence number, pool and namespace of a task.
pub(super) type Order = (u64, String, String);

/// An image by pool, namespace and id, with its mirroring mode.
pub(super) type Source = (PoolId, String, String, Option<u8>);

impl Task {
    /// True if both have the same action and image: a repeated request adds no second task.
    pub(super) fn same(&self, o: &Self) -> bool {
        (self.action, &self.pool, &self.nspace, &self.image, &self.image_id)
            == (o.action, &o.pool, &o.nspace, &o.image, &o.image_id)
    }

    /// The `refs` of the task in command output.
    pub(super) fn refs(&self) -> Value {
        let mut refs = json!({
            "action": self.action.word(),
            "pool_name": self.pool,
            "pool_namespace": self.nspace,
        });
        if self.action != Action::TrashRemove {
            refs["image_name"] = json!(self.image);
        }
        refs["image_id"] = json!(self.image_id);
        refs
    }

    pub(super) fn to_json(&self) -> Value {
        let mut v = json!({ "sequence": self.sequence, "id": self.id, "message": self.message, "refs": self.refs() });
        if let Some((pool, nspace, id, mirroring)) = &self.source {
            v["source"] = json!({ "pool": pool.0, "namespace": nspace, "id": id, "mirror_mode": mirroring });
        }
        v
    }

    /// Parses a task that is stored in a pool and namespace; `None` for unsupported actions. What it says of its place
    /// does not count: who may write there may give tasks for that place only.
    fn from_json(text: &[u8], pool: &str, nspace: &str) -> Option<Self> {
        let v: Value = serde_json::from_slice(text).ok()?;
        let refs = v.get("refs")?;
        let word = |k: &str| refs.get(k).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self {
            sequence: v.get("sequence")?.as_u64()?,
            id: v.get("id")?.as_str()?.to_owned(),
            message: v.get("message")?.as_str()?.to_owned(),
            action: Action::from_word(&word("action"))?,
            pool: pool.to_owned(),
            nspace: nspace.to_owned(),
            image: word("image_name"),
            image_id: word("image_id"),
            source: v.get("source").and_then(|s| {
                let text = |k: &str| s.get(k).and_then(Value::as_str).map(str::to_owned);
                let mode = s.get("mirror_mode").and_then(Value::as_u64).and_then(|m| u8::try_from(m).ok());
                Some((PoolId(s.get("pool")?.as_i64()?), text("namespace")?, text("id")?, mode))
            }),
        })
    }

    fn key(&self) -> Bytes {
        format!("{:016x}", self.sequence).into()
    }

    /// The place in the order of all tasks; pools and namespaces number theirs apart.
    pub(super) fn order(&self) -> Order {
        (self.sequence, self.pool.clone(), self.nspace.clone())
    }

    /// Stores the task.
    pub(super) async fn store(&self, place: &Place) -> Step<()> {
        let entries: BTreeMap<Bytes, Bytes> = [(self.key(), Bytes::from(self.to_json().to_string()))].into();
        let op = OsdOp::with_indata(OpCode::OMAPSETVALS, enc(|w| w.put(&entries)));
        place.op(&place.object(OBJECT), op, SnapId::HEAD).await.map(|_| ())
    }

    /// Removes the task from the stored ones.
    pub(super) async fn forget(&self, place: &Place) -> Step<()> {
        let op = OsdOp::with_indata(OpCode::OMAPRMKEYS, enc(|w| w.put(&vec![self.key()])));
        absent_is_fine(place.op(&place.object(OBJECT), op, SnapId::HEAD).await)
    }
}

/// Tasks stored in a namespace of a pool that has this name.
pub(super) async fn stored(place: &Place, pool: &str) -> Step<Vec<Task>> {
    let input = enc(|w| {
        w.blob(b"");
        w.u64(TASKS_MAX);
        w.blob(b"");
    });
    let op = OsdOp::with_indata(OpCode::OMAPGETVALS, input);
    let b = match place.op(&place.object(OBJECT), op, SnapId::HEAD).await {
        Err(ENOENT) => return Ok(Vec::new()),
        r => r?,
    };
    let entries: BTreeMap<Bytes, Bytes> = Reader::shared(&b).get().map_err(|_| base::errno::EIO)?;
    let nspace = String::from_utf8_lossy(&place.nspace);
    Ok(entries.values().filter_map(|v| Task::from_json(v, pool, &nspace)).collect())
}

/// Image ids in a reply of `trash_list`, each with the end of its deferment.
pub(super) fn trash_entries(answer: &Bytes) -> Step<Vec<(Bytes, base::Utime)>> {
    let entries = Reader::shared(answer).vec_with("trash", |r| {
        let id = r.blob()?;
        let until = r.versioned("TrashImageSpec", 2, |r, _| {
            let (_source, _name, _deleted) = (r.u8()?, r.blob()?, r.get::<base::Utime>()?);
            r.get()
        })?;
        Ok((id, until))
    });
    entries.map_err(|_| base::errno::EIO)
}

/// Removes an image from the trash, before its deferment ends, too.
pub(super) async fn remove_from_trash(place: &Place, id: &str) -> Step<()> {
    let mut task = Task {
        sequence: 0,
        id: super::uuid(),
        message: String::new(),
        action: Action::TrashRemove,
        pool: String::new(),
        nspace: String::new(),
        image: String::new(),
        image_id: id.to_owned(),
        source: None,
    };
    run(place, &mut task, &Rc::default()).await
}

/// Progress and cancellation of the running task.
#[derive(Default)]
pub(super) struct Running {
    pub(super) progress: Cell<f64>,
    pub(super) canceled: Cell<bool>,
}

/// Checks a task before it is accepted; an error has the errno and text of Ceph's manager.
pub(super) async fn check(place: &Place, action: Action, spec: &str, id: &str) -> Result<(), (Errno, String)> {
    let bad = |e: Errno| (e, format!("[errno {}] error opening image {spec}", -e));
    let image = match Image::open(place, id, None).await {
        Err(ENOENT) => return Err((ENOENT, format!("[errno 2] RBD image not found (Image {spec} does not exist)"))),
        r => r.map_err(bad)?,
    };
    match action {
        Action::Flatten if image.parent.is_none() => {
            Err((ENOENT, format!("[errno 2] RBD image not found (Image {spec} does not have a parent)")))
        }
        Action::Remove if image.has_snapshots() => {
            Err((EBUSY, format!("[errno 16] RBD image is busy (Image {spec} has snapshots)")))
        }
        // Flatten of a journaled primary is not supported: refuse it at once instead of accepting a task that must
        // fail.
        Action::Flatten if image.is_journaled() && needs_journal(&image).await.map_err(bad)? => {
            Err((EOPNOTSUPP, format!("image {spec} is mirrored by its journal: use the rbd command")))
        }
        Action::Flatten => match image.parent {
            Some(ref p) => image.check_parent(p).await.map_err(|e| match e {
                EPERM => (EPERM, format!("image {spec} is not a clone that its parent lists")),
                EOPNOTSUPP => {
                    let why = "is a clone of format 1 of an image in another pool or namespace: use the rbd command";
                    (EOPNOTSUPP, format!("image {spec} {why}"))
                }
                e => bad(e),
            }),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Reason why an error ends a task; `None` if the task is to be retried.
pub(super) fn failure(action: Action, e: Errno) -> Option<&'static str> {
    match (e, action) {
        (ENOENT, _) => Some("Image does not exist"),
        (EINVAL, Action::Flatten) => Some("Image does not have parent"),
        (EINVAL, Action::MigrationExecute | Action::MigrationAbort) => Some("Image is not migrating"),
        (EINVAL, Action::MigrationCommit) => Some("Image is not migrating or migration not executed"),
        (ECANCELED, _) => Some("Operation canceled"),
        (EOPNOTSUPP, _) => Some("not supported as a background task"),
        (EPERM, _) => Some("Image refers to data that is not its own"),
        _ => None,
    }
}

/// Text of an error in the words of Ceph's manager.
pub(super) fn error_text(action: Action, e: Errno) -> String {
    let what = match e {
        EBUSY => "RBD image is busy",
        ENOTEMPTY => "RBD image has snapshots",
        EMLINK => "RBD image is member of group",
        _ => base::errno::name(e),
    };
    let doing = match action {
        Action::Flatten => "flattening image",
        Action::Remove => "removing image",
        Action::TrashRemove => "deleting image from trash",
        Action::MigrationExecute => "executing migration",
        Action::MigrationCommit => "committing migration",
        Action::MigrationAbort => "aborting migration",
    };
    format!("[errno {}] {what} (error {doing})", -e)
}

/// True if mirrors replicate the image from its journal.
async fn needs_journal(image: &Image) -> Step<bool> {
    Ok(mirrored::get(&image.place, &image.id).await?.is_some_and(|m| m.needs_journal()))
}

/// Runs a task from the start; every step can be repeated.
pub(super) async fn run(place: &Place, task: &mut Task, running: &Rc<Running>) -> Step<()> {
    match task.action {
        Action::MigrationExecute => return migration::execute(place, &task.image_id, &task.id, running).await,
        Action::MigrationCommit => return migration::commit(place, task, running).await,
        Action::MigrationAbort => return migration::abort(place, &task.image_id, &task.image, running).await,
        Action::Flatten | Action::Remove | Action::TrashRemove => {}
    }
    let image = Image::open(place, &task.image_id, None).await?;
    if image.is_migrating() {
        return Err(EBUSY);
    }
    let mirrored = mirrored::get(place, &task.image_id).await?;
    if let Some(m) = &mirrored
        && !m.is_primary(&image).await?
    {
        return Err(if task.action == Action::Flatten { EROFS } else { EINVAL });
    }
    let cookie = format!("{COOKIE}{}", task.id);
    match task.action {
        Action::Flatten => flatten(&image, &cookie, running).await,
        Action::Remove => remove(image, &cookie, Some(&task.image), mirrored.as_ref(), running).await,
        _ => remove(image, &cookie, None, mirrored.as_ref(), running).await,
    }
}

/// Copies up all objects from the parent and detaches from it. A client that holds the image's lock is asked to do it.
async fn flatten(image: &Image, cookie: &str, running: &Rc<Running>) -> Step<()> {
    let Some(parent) = &image.parent else { return Err(EINVAL) };
    match image.lock(cookie).await {
        Err(EBUSY) => return ask_owner(image, FLATTEN, OWNER_SECONDS, |w| (0..3).for_each(|_| w.u64(0))).await,
        r => r?,
    }
    let n = image.objects(parent.overlap.min(image.size()));
    let step = |n| {
        let image = image.clone();
        async move { image.copy_up(n).await }
    };
    // Flattening leaves the image's contents unchanged, so a journal without mirrors need not record it.
    let r = match image.is_journaled() && needs_journal(image).await? {
        true => Err(EOPNOTSUPP),
        false => each(n, running, step).await,
    };
    let r = match r {
        Ok(()) => image.detach().await,
        e => e,
    };
    image.unlock(cookie).await?;
    r?;
    image.notify().await
}

/// Removes an image by name or from the trash, with its trash and mirror snapshots.
async fn remove(
    mut image: Image,
    cookie: &str,
    name: Option<&str>,
    mirrored: Option<&Mirrored>,
    running: &Rc<Running>,
) -> Step<()> {
    let place = image.place.clone();
    if image.has_snapshots() {
        let all = snap::all(&place, &image.id).await?;
        let ours = |s: &&snap::Snap| s.kind == snap::Kind::Trash;
        let others = |s: &snap::Snap| s.kind == snap::Kind::Mirror && mirrored.is_some();
        if all.iter().any(|s| !ours(&s) && !others(s)) {
            return Err(ENOTEMPTY);
        }
        if all.iter().any(|s| s.children > 0) {
            return Err(EBUSY);
        }
        image.check_unused().await?;
        for s in all.iter().filter(ours) {
            snap::remove(&place, &image.id, s).await?;
        }
    }
    image.check_unused().await?;
    image.lock(cookie).await?;
    let r = remove_locked(&image, mirrored, running).await;
    if r.is_err() {
        image.unlock(cookie).await?;
        return r;
    }
    image = Image::open(&place, &image.id, None).await?;
    if image.has_snapshots() {
        image.unlock(cookie).await?;
        return Err(EBUSY);
    }
    image.remove_header(name).await
}

async fn remove_locked(image: &Image, mirrored: Option<&Mirrored>, running: &Rc<Running>) -> Step<()> {
    let step = |n| {
        let image = image.clone();
        async move { image.delete_object(n).await }
    };
    each(image.objects(image.size()), running, step).await?;
    match mirrored {
        Some(m) => mirrored::disable(image, m).await,
        None => Ok(()),
    }
}

/// Runs `f` for each of `n` objects, some concurrently, until the task is canceled.
pub(super) async fn each<F>(n: u64, running: &Rc<Running>, f: impl Fn(u64) -> F) -> Step<()>
where
    F: Future<Output = Step<()>> + 'static,
{
    let mut set = JoinSet::new();
    let ended = |r: Option<Result<Step<()>, tokio::task::JoinError>>| match r {
        Some(Ok(r)) => r,
        Some(Err(_)) => Err(base::errno::EIO),
        None => Ok(()),
    };
    for i in 0..n {
        if running.canceled.get() {
            set.shutdown().await;
            return Err(ECANCELED);
        }
        set.spawn_local(f(i));
        if set.len() >= CONCURRENT {
            ended(set.join_next().await)?;
            running.progress.set(i as f64 / n as f64);
        }
    }
    while !set.is_empty() {
        ended(set.join_next().await)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_task_is_of_the_place_where_it_is_stored() {
        let text = json!({
            "sequence": u64::MAX,
            "id": "1",
            "message": "Removing image b/victim",
            "refs": { "action": "remove", "pool_name": "b", "pool_namespace": "n", "image_name": "v", "image_id": "x" },
        })
        .to_string();
        let t = Task::from_json(text.as_bytes(), "a", "t").unwrap();
        assert_eq!((t.pool.as_str(), t.nspace.as_str()), ("a", "t"));
        let other = Task::from_json(text.as_bytes(), "b", "t").unwrap();
        assert_ne!(t.order(), other.order(), "two pools may have the same numbers");
    }
}
