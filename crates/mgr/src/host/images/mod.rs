//! The manager role's work on RBD images: the commands `rbd task …` and `progress`. Its client also serves
//! `fs perf stats`, commands about devices, and the contents of file systems.
//!
//! Tasks run by the manager's client (`keep`), those of a namespace one after the other (`queue`). Invariant: a task is
//! acknowledged after it is stored (`task::Task::store`), and removed only after it has ended.
//!
//! | module | contents |
//! | --- | --- |
//! | `copy` | the data of live migrations: copied at execute, changes copied back at abort |
//! | `image` | an RBD image as its header describes it, and class calls on its objects |
//! | `keep` | the manager's clients: connected at the start, replaced when blocklisted, given new keys |
//! | `links` | references to an image from its group and its clones, and their move to another image |
//! | `migration` | live migration of images as background tasks |
//! | `mirror` | mirror snapshots, made by schedules |
//! | `mirrored` | the mirroring of an image: its record, and enabling and disabling it around other work on the image |
//! | `perf` | `rbd perf image stats\|counters`: image I/O reported by OSDs, collected while clients query it |
//! | `queue` | the queue of background tasks: loading, choice and execution |
//! | `schedule` | schedules of the manager role: trash purges and mirror snapshots |
//! | `snap` | snapshots of images: their kinds, and their removal |
//! | `task` | background tasks on images: their fields, storage and execution |

mod copy;
mod image;
mod keep;
mod links;
mod migration;
mod mirror;
mod mirrored;
mod perf;
mod queue;
mod schedule;
mod snap;
mod task;

use crate::monitor::Monitor;
use base::errno::{EAGAIN, EBLOCKLISTED, EINVAL, ENOENT, ETIMEDOUT, Errno};
use base::{EntityAddr, PoolId};
use bytes::Bytes;
use client::host::{Client, WeakClient};
use image::{Place, Step, enc};
use net::OsRandom;
use queue::{Ended, Waiting};
use reactor::clock;
use schedule::{Kind, Planned};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use task::{Action, Running, Task};
use tokio::sync::Notify;

/// Time limit of a command, after which it is answered with EAGAIN.
const COMMAND_LIMIT: Duration = Duration::from_secs(30);
/// Pause before a failed task is retried, multiplied by the number of attempts.
const RETRY: Duration = Duration::from_secs(10);
/// Time limit for reading the tasks or schedules of a pool.
const LOAD_MAX: Duration = Duration::from_secs(10);
/// Trash entries per request.
const TRASH_PAGE: u64 = 1024;

/// Whether the sender of a command has a capability in a pool and namespace.
pub type May = Box<dyn Fn(&str, &str, cluster::caps::Need) -> bool>;

/// A command that needs a client of the cluster.
pub struct Job {
    /// Command prefix.
    pub prefix: &'static str,
    /// Arguments as text.
    pub args: BTreeMap<String, String>,
    /// Capability check of the sender.
    pub may: May,
}

/// Result of a command: errno, status text, output.
pub type Answer = (i32, String, Bytes);

/// The image service of the manager role.
pub struct Service {
    pub(super) monitor: Rc<dyn Monitor>,
    mon: EntityAddr,
    client: RefCell<Option<Client>>,
    /// All clients of the role that may still work.
    clients: RefCell<Vec<WeakClient>>,
    /// Held while the client is being made, so that there is one.
    connecting: tokio::sync::Mutex<()>,
    waiting: RefCell<BTreeMap<task::Order, Waiting>>,
    /// Tasks that run, with the times of their beginnings.
    current: RefCell<Vec<(Task, f64, Rc<Running>)>>,
    completed: RefCell<VecDeque<Ended>>,
    next: Cell<u64>,
    /// Pools whose tasks were read.
    loaded: RefCell<BTreeSet<PoolId>>,
    wake: Notify,
    perf: RefCell<perf::Perf>,
    pub(super) files: RefCell<super::files::Files>,
    pub(super) volumes: super::volumes::Volumes,
    purges: Planned,
    snapshots: Planned,
}

pub(super) fn seconds() -> f64 {
    let t = clock::now().wall;
    f64::from(t.sec) + f64::from(t.nsec) / 1e9
}

/// A random UUID as text.
pub(super) fn uuid() -> String {
    use ::auth::Random as _;
    let mut b = [0; 16];
    OsRandom.fill(&mut b);
    b[6] = b[6] & 0x0f | 0x40;
    b[8] = b[8] & 0x3f | 0x80;
    base::id::Uuid(b).to_string()
}

/// JSON with Python's usual indentation.
fn pretty(v: &Value) -> Bytes {
    net::admin_socket::to_pretty(v).into()
}

/// Errno and status text of an error.
fn errno_text(e: Errno) -> (Errno, String) {
    (e, format!("[errno {}] {}", -e, base::errno::name(e)))
}

impl Service {
    /// Makes the service of the manager in `monitor`'s process; clients reach the monitor at `mon`.
    #[must_use]
    pub fn new(monitor: Box<dyn Monitor>, mon: EntityAddr) -> Rc<Self> {
        Rc::new(Self {
            monitor: Rc::from(monitor),
            mon,
            client: RefCell::default(),
            clients: RefCell::default(),
            connecting: tokio::sync::Mutex::default(),
            waiting: RefCell::default(),
            current: RefCell::default(),
            completed: RefCell::default(),
            next: Cell::new(1),
            loaded: RefCell::default(),
            wake: Notify::new(),
            perf: RefCell::default(),
            files: RefCell::default(),
            volumes: super::volumes::Volumes::default(),
            purges: Planned::new(Kind::TrashPurge),
            snapshots: Planned::new(Kind::MirrorSnapshot),
        })
    }

    /// Runs tasks, schedules and rates; never completes.
    pub async fn run(self: Rc<Self>) {
        if !self.monitor.is_active() {
            return std::future::pending().await;
        }
        tokio::join!(
            self.keep_clients(),
            self.load_tasks(),
            Rc::clone(&self).run_tasks(),
            self.run_perf(),
            self.run_files(),
            self.watch_hosts(),
            Rc::clone(&self).run_volumes(),
            self.run_snap_schedules(),
            self.run_scrapes(),
            Rc::clone(&self).run_schedule(Kind::TrashPurge),
            Rc::clone(&self).run_schedule(Kind::MirrorSnapshot)
        );
    }

    fn has_rbd_pools(&self) -> bool {
        self.monitor.osdmap().pools.values().any(|p| p.application_metadata.contains_key("rbd"))
    }

    async fn place(&self, pool: &str, nspace: &str) -> Step<Place> {
        let id = self.monitor.osdmap().pool_by_name(pool).ok_or(ENOENT)?;
        self.place_in(id, nspace).await
    }

    async fn place_in(&self, pool: PoolId, nspace: &str) -> Step<Place> {
        Ok(Place { client: self.connect().await?, pool, nspace: Bytes::copy_from_slice(nspace.as_bytes()) })
    }

    /// Purges expired images from the trash of a place. Images in use or with snapshots stay until the next run.
    async fn purge(&self, place: &Place) -> Step<()> {
        let now = clock::now().wall;
        let mut after = Bytes::new();
        loop {
            let input = enc(|w| {
                w.blob(&after);
                w.u64(TRASH_PAGE);
            });
            let page = match place.rbd("rbd_trash", "trash_list", input).await {
                Err(ENOENT) => return Ok(()),
                r => task::trash_entries(&r?)?,
            };
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = last.clone();
            let full = page.len() as u64 >= TRASH_PAGE;
            for (id, until) in page {
                if until > now {
                    continue;
                }
                let id = String::from_utf8_lossy(&id).into_owned();
                match task::remove_from_trash(place, &id).await {
                    Ok(()) | Err(ENOENT) => {}
                    Err(e) if matches!(e, EBLOCKLISTED | ETIMEDOUT) => return Err(e),
                    Err(e) => tracing::debug!("mgr: {id} stays in the trash: {}", base::errno::name(e)),
                }
            }
            if !full {
                return Ok(());
            }
        }
    }

    /// Runs a command.
    pub async fn command(&self, job: &Job) -> Answer {
        if super::volumes::is_of_volumes(job.prefix) {
            let limited = tokio::time::timeout(COMMAND_LIMIT, self.volumes_command(job)).await;
            let late = || (EAGAIN, "the file system does not answer; try again".to_owned(), Bytes::new());
            return limited.unwrap_or_else(|_| late());
        }
        let limited = tokio::time::timeout(COMMAND_LIMIT, self.serve(job)).await;
        match limited {
            Ok(Ok(out)) if job.prefix == "progress" => (0, String::from_utf8_lossy(&out).into_owned(), Bytes::new()),
            Ok(Ok(out)) => (0, String::new(), out),
            Ok(Err((rc, rs))) => (rc, rs, Bytes::new()),
            Err(_) => (EAGAIN, "the cluster does not answer; try again".to_owned(), Bytes::new()),
        }
    }

    async fn serve(&self, job: &Job) -> Result<Bytes, (Errno, String)> {
        let arg = |k: &str| job.args.get(k).map(String::as_str).unwrap_or_default();
        if let Some(what) = job.prefix.strip_prefix("rbd trash purge schedule ") {
            return self.schedule_command(&self.purges, what, job).await;
        }
        if let Some(what) = job.prefix.strip_prefix("rbd mirror snapshot schedule ") {
            return self.schedule_command(&self.snapshots, what, job).await;
        }
        match job.prefix {
            "rbd task add flatten" => self.add(job, Action::Flatten).await,
            "rbd task add remove" => self.add(job, Action::Remove).await,
            "rbd task add trash remove" => self.add(job, Action::TrashRemove).await,
            "rbd task add migration execute" => self.add(job, Action::MigrationExecute).await,
            "rbd task add migration commit" => self.add(job, Action::MigrationCommit).await,
            "rbd task add migration abort" => self.add(job, Action::MigrationAbort).await,
            "rbd task list" => {
                // Tasks of pools that do not answer are missing.
                _ = tokio::time::timeout(LOAD_MAX, self.load()).await;
                self.list(job, arg("task_id"))
            }
            "rbd task cancel" => self.cancel(job, arg("task_id")).await,
            "fs perf stats" => self.files_command(job).await,
            p if p.starts_with("device ") => self.devices_command(job).await,
            "rbd perf image stats" | "rbd perf image counters" => self.perf_command(job),
            "progress json" => Ok(pretty(&self.progress())),
            "progress clear" => {
                self.completed.borrow_mut().clear();
                Ok(Bytes::new())
            }
            _ => Ok(self.progress_text().into()),
        }
    }

    async fn add(&self, job: &Job, action: Action) -> Result<Bytes, (Errno, String)> {
        let arg = |k: &str| job.args.get(k).cloned().unwrap_or_default();
        let (pool, nspace, image) = (arg("pool"), arg("namespace"), arg("image"));
        let spec = if nspace.is_empty() { format!("{pool}/{image}") } else { format!("{pool}/{nspace}/{image}") };
        let failed = errno_text;
        let place = self.place(&pool, &nspace).await.map_err(failed)?;
        self.load_pool(place.pool, &pool).await.map_err(failed)?;
        let id = if action == Action::TrashRemove {
            if !place.in_trash(&image).await.map_err(failed)? {
                return Err((ENOENT, "[errno 2] RBD image not found (error retrieving image from trash)".to_owned()));
            }
            image.clone()
        } else {
            match place.image_id(&image).await {
                Ok(id) => id,
                Err(ENOENT) => return self.answer_again(action, (&pool, &nspace, &image), &spec),
                Err(e) => return Err(failed(e)),
            }
        };
        let message = action.message(&spec);
        let image = if action == Action::TrashRemove { String::new() } else { image };
        let mut task =
            Task { sequence: 0, id: uuid(), message, action, pool, nspace, image, image_id: id, source: None };
        if let Some(t) = self.pending().find(|t| t.same(&task)) {
            return Ok(t.to_json().to_string().into());
        }
        if action.migrates() {
            let wanted: &[u8] = match action {
                Action::MigrationExecute => &[migration::PREPARED, migration::EXECUTING],
                Action::MigrationCommit => &[migration::EXECUTED],
                _ => &[],
            };
            let from = migration::check(&place, &task.image_id, wanted, &spec).await?;
            if action == Action::MigrationExecute {
                let map = self.monitor.osdmap();
                let pool = map.pool_name(from.pool).unwrap_or("<unknown>");
                let parts = [pool, &from.nspace, &from.image_name];
                let source: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
                task.message = format!("Migrating image {} to {spec}", source.join("/"));
            }
        } else {
            task::check(&place, action, &spec, &task.image_id).await?;
        }
        task.sequence = self.next.replace(self.next.get() + 1);
        task.store(&place).await.map_err(failed)?;
        let out = task.to_json().to_string();
        self.waiting.borrow_mut().insert(task.order(), Waiting { task, again: None });
        self.wake.notify_one();
        Ok(out.into())
    }

    /// Answers a request for an image that does not exist: if the same task has ended, then as for that task.
    fn answer_again(
        &self,
        action: Action,
        (pool, nspace, image): (&str, &str, &str),
        spec: &str,
    ) -> Result<Bytes, (Errno, String)> {
        let completed = self.completed.borrow();
        let same = |e: &&Ended| {
            e.failure.is_none()
                && (e.task.action, e.task.pool.as_str(), e.task.nspace.as_str(), e.task.image.as_str())
                    == (action, pool, nspace, image)
        };
        match completed.iter().rev().find(same) {
            Some(e) => Ok(e.task.to_json().to_string().into()),
            None if action.migrates() => {
                Err((EINVAL, format!("[errno 22] RBD invalid argument (Image {spec} is not migrating)")))
            }
            None => Err((ENOENT, format!("[errno 2] RBD image not found (Image {spec} does not exist)"))),
        }
    }

    /// Unfinished tasks, the running one first.
    fn pending(&self) -> impl Iterator<Item = Task> {
        let mut all: Vec<Task> = self.current.borrow().iter().map(|(t, ..)| t.clone()).collect();
        all.extend(self.waiting.borrow().values().map(|w| w.task.clone()));
        all.into_iter()
    }

    fn may(job: &Job, t: &Task, need: cluster::caps::Need) -> bool {
        Self::may_in(job, &t.pool, &t.nspace, need)
    }

    /// True if the sender has the capability in that pool and namespace.
    fn may_in(job: &Job, pool: &str, nspace: &str, need: cluster::caps::Need) -> bool {
        (job.may)(pool, nspace, need)
    }

    fn shown(&self, t: &Task) -> Value {
        let mut v = t.to_json();
        if let Some((_, _, running)) = self.current.borrow().iter().find(|(c, ..)| c.id == t.id) {
            v["in_progress"] = json!(true);
            v["progress"] = json!(running.progress.get());
        }
        if let Some(a) = self.waiting.borrow().get(&t.order()).and_then(|w| w.again.clone()) {
            v["retry_attempts"] = json!(a.tries);
            v["retry_message"] = json!(a.why);
            v["retry_time"] = json!(a.at.iso().trim_end_matches("+0000"));
        }
        v
    }

    fn list(&self, job: &Job, id: &str) -> Result<Bytes, (Errno, String)> {
        let visible = self.pending().filter(|t| Self::may(job, t, cluster::caps::Need::R));
        if id.is_empty() {
            let mut all: Vec<Task> = visible.collect();
            all.sort_by_key(|t| t.sequence);
            return Ok(pretty(&all.iter().map(|t| self.shown(t)).collect()));
        }
        match visible.into_iter().find(|t| t.id == id) {
            Some(t) => Ok(pretty(&self.shown(&t))),
            None => Err((ENOENT, format!("No such task {id}"))),
        }
    }

    async fn cancel(&self, job: &Job, id: &str) -> Result<Bytes, (Errno, String)> {
        let missing = || (ENOENT, format!("No such task {id}"));
        let task = self.pending().find(|t| t.id == id).ok_or_else(missing)?;
        if !Self::may(job, &task, cluster::caps::Need::W) {
            return Err(missing());
        }
        if let Some((_, _, running)) = self.current.borrow().iter().find(|(c, ..)| c.id == id) {
            // The running task stops at its next step and is removed then.
            running.canceled.set(true);
            return Ok(Bytes::new());
        }
        self.waiting.borrow_mut().remove(&task.order());
        let failed = errno_text;
        match self.place(&task.pool, &task.nspace).await {
            Ok(place) => task.forget(&place).await.map_err(failed)?,
            Err(ENOENT) => {}
            Err(e) => return Err(failed(e)),
        }
        let now = seconds();
        self.remember(Ended { task, started: now, ended: now, failure: Some("Operation canceled".to_owned()) });
        Ok(Bytes::new())
    }

    fn event_refs(t: &Task) -> Value {
        let mut refs = t.refs();
        refs["origin"] = json!("rbd_support");
        refs
    }

    fn progress(&self) -> Value {
        let events: Vec<Value> = self
            .current
            .borrow()
            .iter()
            .map(|(t, started, running)| {
                let (progress, took) = (running.progress.get(), seconds() - started);
                let left = if progress > 0.0 { json!((took / progress - took) as u64) } else { Value::Null };
                json!({
                    "duration": format!("({}s)", took as u64),
                    "id": t.id,
                    "message": t.message,
                    "progress": progress,
                    "refs": Self::event_refs(t),
                    "started_at": started,
                    "time_remaining": left,
                })
            })
            .collect();
        let completed: Vec<Value> = self
            .completed
            .borrow()
            .iter()
            .map(|e| {
                let mut v = json!({
                    "add_to_ceph_s:": false,
                    "failed": e.failure.is_some(),
                    "finished_at": e.ended,
                    "id": e.task.id,
                    "message": e.task.message,
                    "refs": Self::event_refs(&e.task),
                    "started_at": e.started,
                });
                if let Some(why) = &e.failure {
                    v["failure_message"] = json!(why);
                }
                v
            })
            .collect();
        json!({ "completed": completed, "events": events })
    }

    fn progress_text(&self) -> String {
        let current = self.current.borrow();
        if current.is_empty() {
            // The text is in the status line; there is no output.
            return "Nothing in progress".to_owned();
        }
        let line = |(t, started, running): &(Task, f64, Rc<Running>)| {
            let (done, took) = (running.progress.get(), (seconds() - started) as u64);
            let filled = (done * 28.0) as usize;
            format!("{} ({took}s)\n    [{}{}]\n", t.message, "=".repeat(filled), ".".repeat(28 - filled.min(28)))
        };
        current.iter().map(line).collect()
    }
}
