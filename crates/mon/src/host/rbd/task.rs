//! Background work on images: what a task is, how it is kept, and how it is done.
//!
//! Tasks are kept as Ceph's manager keeps them: a JSON object each in the omap of `rbd_task`, in the pool and namespace
//! of their image, so that they survive a restart and either manager can take over the other's.

use super::image::{COOKIE, Image, Place, Step, absent_is_fine, enc};
use super::mirror::ask_owner;
use super::{migration, snap};
use base::SnapId;
use base::errno::{EBUSY, ECANCELED, EINVAL, EMLINK, ENOENT, ENOTEMPTY, EOPNOTSUPP, Errno};
use bytes::Bytes;
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use tokio::task::JoinSet;
use wire::Reader;
use wire::msg::{OpCode, OsdOp};

/// The object that keeps a place's tasks.
const OBJECT: &str = "rbd_task";
/// Objects worked on at once.
const CONCURRENT: usize = 10;
/// `WATCH_NOTIFY` payload: flatten the image.
const FLATTEN: u32 = 6;
/// How long a client that has the lock may take over it before it is asked again.
const OWNER_SECONDS: u32 = 300;
/// Tasks read from one place.
const TASKS_MAX: u64 = 4096;

/// What is to be done.
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
    /// The image's name; empty for one in the trash.
    pub(super) image: String,
    pub(super) image_id: String,
}

impl Task {
    /// True if both are about the same: asked for again, a task is not added twice.
    pub(super) fn same(&self, o: &Self) -> bool {
        (self.action, &self.pool, &self.nspace, &self.image, &self.image_id)
            == (o.action, &o.pool, &o.nspace, &o.image, &o.image_id)
    }

    /// What the task is about.
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
        json!({ "sequence": self.sequence, "id": self.id, "message": self.message, "refs": self.refs() })
    }

    /// Reads what is kept; `None` for tasks of a kind that we don't do.
    fn from_json(text: &[u8]) -> Option<Self> {
        let v: Value = serde_json::from_slice(text).ok()?;
        let refs = v.get("refs")?;
        let word = |k: &str| refs.get(k).and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self {
            sequence: v.get("sequence")?.as_u64()?,
            id: v.get("id")?.as_str()?.to_owned(),
            message: v.get("message")?.as_str()?.to_owned(),
            action: Action::from_word(&word("action"))?,
            pool: word("pool_name"),
            nspace: word("pool_namespace"),
            image: word("image_name"),
            image_id: word("image_id"),
        })
    }

    fn key(&self) -> Bytes {
        format!("{:016x}", self.sequence).into()
    }

    /// Keeps the task.
    pub(super) async fn store(&self, place: &Place) -> Step<()> {
        let entries: BTreeMap<Bytes, Bytes> = [(self.key(), Bytes::from(self.to_json().to_string()))].into();
        let op = OsdOp::with_indata(OpCode::OMAPSETVALS, enc(|w| w.put(&entries)));
        place.op(&place.object(OBJECT), op, SnapId::HEAD).await.map(|_| ())
    }

    /// Forgets it.
    pub(super) async fn forget(&self, place: &Place) -> Step<()> {
        let op = OsdOp::with_indata(OpCode::OMAPRMKEYS, enc(|w| w.put(&vec![self.key()])));
        absent_is_fine(place.op(&place.object(OBJECT), op, SnapId::HEAD).await)
    }
}

/// The tasks kept at a place.
pub(super) async fn stored(place: &Place) -> Step<Vec<Task>> {
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
    Ok(entries.values().filter_map(|v| Task::from_json(v)).collect())
}

/// Ids of the images in an answer of `trash_list`, and until when each stays.
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

/// Removes an image from the trash, now.
pub(super) async fn remove_from_trash(place: &Place, id: &str) -> Step<()> {
    let task = Task {
        sequence: 0,
        id: super::uuid(),
        message: String::new(),
        action: Action::TrashRemove,
        pool: String::new(),
        nspace: String::new(),
        image: String::new(),
        image_id: id.to_owned(),
    };
    run(place, &task, &Rc::default()).await
}

/// How far a task is, and whether it is to stop.
#[derive(Default)]
pub(super) struct Running {
    pub(super) progress: Cell<f64>,
    pub(super) canceled: Cell<bool>,
}

/// Checks before a task is taken: the errno and the text that Ceph's manager gives.
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
        // Where our sequences do not reach, the answer comes at once instead of a task that cannot end well.
        _ if image.check_plain().await.is_err() => {
            Err((EOPNOTSUPP, format!("image {spec} is mirrored or migrates: use the rbd command")))
        }
        _ => Ok(()),
    }
}

/// Why a task that met this error has ended; `None` if it is to be tried again.
pub(super) fn failure(action: Action, e: Errno) -> Option<&'static str> {
    match (e, action) {
        (ENOENT, _) => Some("Image does not exist"),
        (EINVAL, Action::Flatten) => Some("Image does not have parent"),
        (EINVAL, Action::MigrationExecute | Action::MigrationAbort) => Some("Image is not migrating"),
        (EINVAL, Action::MigrationCommit) => Some("Image is not migrating or migration not executed"),
        (ECANCELED, _) => Some("Operation canceled"),
        (EOPNOTSUPP, _) => Some("not supported as a background task"),
        _ => None,
    }
}

/// An error as Ceph's manager words it.
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

/// Does a task. What is half done is done again from the start.
pub(super) async fn run(place: &Place, task: &Task, running: &Rc<Running>) -> Step<()> {
    match task.action {
        Action::MigrationExecute => return migration::execute(place, &task.image_id, &task.id, running).await,
        Action::MigrationCommit => return migration::commit(place, &task.image_id, running).await,
        Action::MigrationAbort => return migration::abort(place, &task.image_id, &task.image, running).await,
        Action::Flatten | Action::Remove | Action::TrashRemove => {}
    }
    let image = Image::open(place, &task.image_id, None).await?;
    image.check_plain().await?;
    let cookie = format!("{COOKIE}{}", task.id);
    match task.action {
        Action::Flatten => flatten(&image, &cookie, running).await,
        Action::Remove => remove(image, &cookie, Some(&task.image), running).await,
        _ => remove(image, &cookie, None, running).await,
    }
}

/// Copies up what the parent shows and ends the relation to it. A client that has the image's lock is asked to do it.
async fn flatten(image: &Image, cookie: &str, running: &Rc<Running>) -> Step<()> {
    let Some(parent) = &image.parent else { return Err(EINVAL) };
    match image.lock(cookie).await {
        Err(EBUSY) => return ask_owner(image, FLATTEN, OWNER_SECONDS, |w| (0..3).for_each(|_| w.u64(0))).await,
        r => r?,
    }
    // Without a client that has the journal open nobody would write down what happens to the image.
    let n = image.objects(parent.overlap.min(image.size()));
    let r = match image.is_journaled() {
        true => Err(EOPNOTSUPP),
        false => each(image, n, running, |image, n| async move { image.copy_up(n).await }).await,
    };
    let r = match r {
        Ok(()) => image.detach().await,
        e => e,
    };
    image.unlock(cookie).await?;
    r?;
    image.notify().await
}

/// Removes an image, by its name or from the trash. Snapshots that are there only for clones go with it.
async fn remove(mut image: Image, cookie: &str, name: Option<&str>, running: &Rc<Running>) -> Step<()> {
    let place = image.place.clone();
    if image.has_snapshots() {
        let all = snap::all(&image).await?;
        if all.iter().any(|s| s.kind != snap::Kind::Trash) {
            return Err(ENOTEMPTY);
        }
        if all.iter().any(|s| s.children > 0) {
            return Err(EBUSY);
        }
        image.check_unused().await?;
        for s in &all {
            snap::remove(&place, &image.id, s).await?;
        }
        image = Image::open(&place, &image.id, None).await?;
        if image.has_snapshots() {
            return Err(EBUSY);
        }
    }
    image.check_unused().await?;
    image.lock(cookie).await?;
    let n = image.objects(image.size());
    let r = each(&image, n, running, |image, n| async move { image.delete_object(n).await }).await;
    if r.is_err() {
        image.unlock(cookie).await?;
        return r;
    }
    image.remove_header(name).await
}

/// Runs `f` for each of `n` objects, some at once, until the task is canceled.
pub(super) async fn each<F>(image: &Image, n: u64, running: &Rc<Running>, f: impl Fn(Image, u64) -> F) -> Step<()>
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
        set.spawn_local(f(image.clone(), i));
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
