//! Commands on the contents of file systems (`fs subvolumegroup`, `fs subvolume`, `fs clone`, `fs snap-schedule`), clones,
//! the trash and scheduled snapshots.
//!
//! Commands run one after the other, those that only list names beside the others. Clones and purges run beside them, some at a time; they take the commands' lock
//! for the steps that change what commands see.
//!
//! | module | contents |
//! | --- | --- |
//! | `auth` | access of auth ids to subvolumes: keys at the monitor, and files that list them |
//! | `clone` | clones: subvolumes that are filled from a snapshot |
//! | `commands` | `fs subvolume …`: the commands on subvolumes and their snapshots |
//! | `copy` | copies a tree of a snapshot: directories, files with holes, links, owners, modes, times |
//! | `fs` | operations on the files of a file system, by paths |
//! | `group` | groups of subvolumes |
//! | `purge` | removes what is in the trash |
//! | `rados` | a file system of the cluster: MDS daemons, and objects in data pools |
//! | `snap_schedule` | `fs snap-schedule …`, and the snapshots that are due |
//! | `subvolume` | subvolumes: their state, and what may be done in it |

mod auth;
mod clone;
mod commands;
mod copy;
mod fs;
mod group;
#[cfg(test)]
mod model;
mod purge;
mod rados;
mod snap_schedule;
mod subvolume;
#[cfg(test)]
mod tests;

use super::images::{Answer, Job, Service};
use crate::volumes::Fail;
use base::errno::{EAGAIN, EBLOCKLISTED, ENOENT, ENOTCONN, ENOTEMPTY, EOPNOTSUPP, ETIMEDOUT, Errno};
use bytes::Bytes;
use client::host::Client;
use copy::Progress;
use fs::Fs;
use rados::Rados;
use serde_json::{Map, Value, json};
use snap_schedule::Scheduled;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;
use subvolume::Op;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;

/// Interval at which file systems are looked through that had jobs which failed, and new ones are noticed.
const ROUND: Duration = Duration::from_secs(10);
/// Pause before a job that failed is tried again.
const RETRY: Duration = Duration::from_secs(30);
/// Time limit for a look through a file system for jobs.
const LOOK_MAX: Duration = Duration::from_secs(30);
/// Time limit for a step of a job under the lock of its file system.
const STEP_MAX: Duration = Duration::from_secs(30);
/// Clones of a file system at a time, unless an option says otherwise.
const CLONES_MAX: usize = 4;
/// Most clones at a time.
const CLONES_LIMIT: usize = 32;
/// Entries of a file system's trash that are purged at a time.
const PURGES_MAX: usize = 4;

/// Output of a command, or its failure.
pub(super) type Out = Result<String, Fail>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Clone,
    Purge,
}

/// A clone or purge: its kind, file system, and name.
type Key = (Kind, i32, String);

/// State of the service of subvolumes.
#[derive(Default)]
pub(super) struct Volumes {
    /// Held by commands and by steps of jobs that change what commands see, by file system.
    locks: RefCell<BTreeMap<i32, Rc<Mutex<()>>>>,
    /// Held by commands that only list names, which may be many, by file system.
    lists: RefCell<BTreeMap<i32, Rc<Mutex<()>>>>,
    mounts: RefCell<BTreeMap<i32, Fs>>,
    running: RefCell<BTreeMap<Key, (String, Rc<Progress>)>>,
    /// Jobs that failed, and when they are tried again.
    failed: RefCell<BTreeMap<Key, tokio::time::Instant>>,
    /// File systems to look through for jobs.
    due: RefCell<BTreeSet<i32>>,
    /// File systems that were looked through since the start.
    seen: RefCell<BTreeSet<i32>>,
    wake: Notify,
    /// Wakes those who wait for the end of a job.
    over: Notify,
    scheduled: Scheduled,
}

impl Volumes {
    fn lock(&self, fscid: i32) -> Rc<Mutex<()>> {
        Rc::clone(self.locks.borrow_mut().entry(fscid).or_default())
    }

    /// The lock of a command. Those that only list names wait for each other, and nobody waits for them.
    fn lock_of(&self, fscid: i32, prefix: &str) -> Rc<Mutex<()>> {
        match prefix {
            "fs subvolumegroup ls" | "fs subvolumegroup exist" | "fs subvolume ls" | "fs subvolume exist" => {
                Rc::clone(self.lists.borrow_mut().entry(fscid).or_default())
            }
            _ => self.lock(fscid),
        }
    }

    /// Waits until no clone of a file system runs that was cancelled.
    async fn cancelled(&self, fscid: i32) {
        loop {
            let over = self.over.notified();
            let is_one = |(k, (_, p)): (&Key, &(String, Rc<Progress>))| k.1 == fscid && p.canceled.get();
            if !self.running.borrow().iter().any(is_one) {
                return;
            }
            over.await;
        }
    }

    /// Progress of a running clone, by the path of its subvolume.
    fn progress(&self, fscid: i32, target: &str) -> Option<Rc<Progress>> {
        let running = self.running.borrow();
        let mut all = running.iter().filter(|((kind, fs, _), _)| *kind == Kind::Clone && *fs == fscid);
        all.find(|(_, (t, _))| t == target).map(|(_, (_, p))| Rc::clone(p))
    }
}

/// A command with its file system.
struct Vol<'a> {
    fs: Fs,
    pub(super) fscid: i32,
    pub(super) service: &'a Service,
    pub(super) args: &'a BTreeMap<String, String>,
}

impl Vol<'_> {
    pub(super) fn opt(&self, k: &str) -> Option<&str> {
        self.args.get(k).map(String::as_str)
    }

    pub(super) fn arg(&self, k: &str) -> &str {
        self.opt(k).unwrap_or_default()
    }

    pub(super) fn flag(&self, k: &str) -> bool {
        self.opt(k).is_some_and(|v| v == "true")
    }

    /// True if the data of files is in a pool.
    fn is_data_pool(&self, name: &str) -> bool {
        let map = self.service.monitor.osdmap();
        let pool = map.pool_by_name(name).and_then(|id| map.pool(id));
        pool.and_then(|p| p.application_metadata.get("cephfs")).is_some_and(|of| of.contains_key("data"))
    }

    /// There may be clones to make or trash to purge.
    pub(super) fn kick(&self) {
        self.service.volumes.due.borrow_mut().insert(self.fscid);
        self.service.volumes.wake.notify_one();
    }

    pub(super) async fn client(&self) -> Result<Client, Fail> {
        self.service.connect().await.map_err(|e| (e, "the cluster does not answer".to_owned()))
    }
}

/// Runs a step of a job under the lock of its file system. One that takes too long ends, for commands wait for it; the job
/// is tried again.
async fn locked<T>(lock: &Mutex<()>, step: impl Future<Output = T>) -> Result<T, Errno> {
    let run = async {
        let _guard = lock.lock().await;
        step.await
    };
    tokio::time::timeout(STEP_MAX, run).await.map_err(|_| ETIMEDOUT)
}

/// True for an error that may be over at the next attempt.
fn is_passing(e: Errno) -> bool {
    matches!(e, ENOTCONN | ETIMEDOUT | EBLOCKLISTED | EAGAIN)
}

/// JSON with four spaces of indentation and no line end, as Python writes it.
fn pretty(v: &Value) -> String {
    net::admin_socket::to_pretty(v).trim_end().to_owned()
}

/// An object with its keys in order.
fn dump(m: Map<String, Value>) -> String {
    let sorted: BTreeMap<String, Value> = m.into_iter().collect();
    pretty(&json!(sorted))
}

/// A list of names.
fn named(names: Vec<String>) -> String {
    pretty(&names.into_iter().map(|n| json!({ "name": n })).collect())
}

/// True for a command of this service.
pub(super) fn is_of_volumes(prefix: &str) -> bool {
    ["fs subvolume", "fs clone ", "fs snap-schedule "].iter().any(|p| prefix.starts_with(p))
}

async fn run(v: &Vol<'_>, prefix: &str) -> Out {
    match prefix {
        "fs subvolumegroup ls" => group::ls(v).await,
        "fs subvolumegroup create" => group::create(v).await,
        "fs subvolumegroup rm" => group::rm(v).await,
        "fs subvolumegroup getpath" => group::getpath(v).await,
        "fs subvolumegroup info" => group::info(v).await,
        "fs subvolumegroup exist" => group::exist(v).await,
        "fs subvolumegroup resize" => group::resize(v).await,
        "fs subvolumegroup pin" => group::pin_group(v).await,
        "fs subvolumegroup snapshot ls" => group::snap_ls(v).await,
        "fs subvolumegroup snapshot create" => group::snap_create(v).await,
        "fs subvolumegroup snapshot rm" => group::snap_rm(v).await,
        "fs subvolume ls" => commands::ls(v).await,
        "fs subvolume exist" => commands::exist(v).await,
        "fs subvolume create" => commands::create(v).await,
        "fs subvolume rm" => commands::rm(v).await,
        "fs subvolume resize" => commands::resize(v).await,
        "fs subvolume getpath" => commands::getpath(v).await,
        "fs subvolume info" => commands::info(v).await,
        "fs subvolume pin" => commands::pin(v).await,
        "fs subvolume authorize" => auth::authorize(v).await,
        "fs subvolume deauthorize" => auth::deauthorize(v).await,
        "fs subvolume authorized_list" => auth::list(v).await,
        "fs subvolume evict" => auth::evict(v).await,
        "fs subvolume snapshot ls" => commands::snap_ls(v).await,
        "fs subvolume snapshot create" => commands::snap_create(v).await,
        "fs subvolume snapshot rm" => commands::snap_rm(v).await,
        "fs subvolume snapshot info" => commands::snap_info(v).await,
        "fs subvolume snapshot protect" => commands::protect(v, Op::SnapProtect).await,
        "fs subvolume snapshot unprotect" => commands::protect(v, Op::SnapUnprotect).await,
        "fs subvolume snapshot clone" => commands::clone(v).await,
        "fs clone status" => clone::status(v).await,
        "fs clone cancel" => clone::cancel(v).await,
        _ => {
            let (family, what) = prefix.rsplit_once(' ').unwrap_or_default();
            match family {
                "fs subvolume metadata" => commands::metadata(v, what).await,
                "fs subvolume snapshot metadata" => commands::snap_metadata(v, what).await,
                "fs subvolume earmark" => commands::earmarked(v, what).await,
                _ => Err((EOPNOTSUPP, format!("'{prefix}' is not supported"))),
            }
        }
    }
}

/// Status line of a command that succeeded.
fn status(prefix: &str) -> String {
    match prefix {
        "fs subvolume snapshot protect" | "fs subvolume snapshot unprotect" => {
            let what = prefix.trim_start_matches("fs subvolume ");
            format!("Deprecation warning: '{what}' call is deprecated and will be removed in a future release")
        }
        _ => String::new(),
    }
}

impl Service {
    /// The file system with an id, reached by this manager's client.
    async fn mount(&self, fscid: i32) -> Result<Fs, Fail> {
        if let Some(fs) = self.volumes.mounts.borrow().get(&fscid) {
            return Ok(fs.clone());
        }
        // An MDS answers on the newest connection of a client: a command to it must not come from the client of the session.
        let client = self.new_client().await.map_err(|e| (e, "the cluster does not answer".to_owned()))?;
        let fs = Fs { backend: Rc::new(Rados::new(&client, Rc::clone(&self.monitor), fscid)) };
        self.volumes.mounts.borrow_mut().insert(fscid, fs.clone());
        Ok(fs)
    }

    /// After an error that only a new client ends, the next command makes one.
    fn check_mount(&self, fscid: i32, e: Errno) {
        if matches!(e, EBLOCKLISTED | ENOTCONN) {
            self.volumes.mounts.borrow_mut().remove(&fscid);
        }
    }

    /// Answers a command on the contents of a file system.
    pub(super) async fn volumes_command(&self, job: &Job) -> Answer {
        if job.prefix.starts_with("fs snap-schedule ") {
            return match self.snap_schedule(job).await {
                Ok(out) => (0, String::new(), out.into()),
                Err((e, why)) => (e, why, Bytes::new()),
            };
        }
        let name = job.args.get("vol_name").cloned().unwrap_or_default();
        let Some(found) = self.monitor.file_system(&name) else {
            return (ENOENT, format!("FS '{name}' not found"), Bytes::new());
        };
        let lock = self.volumes.lock_of(found.fscid, job.prefix);
        let guard = lock.lock().await;
        let r = async {
            let v = Vol { fs: self.mount(found.fscid).await?, fscid: found.fscid, service: self, args: &job.args };
            let r = run(&v, job.prefix).await;
            // What is answered stays.
            v.fs.backend.sync().await;
            r
        };
        let r = r.await;
        drop(guard);
        if job.prefix == "fs clone cancel" && r.is_ok() {
            // As in Ceph: afterwards the clone can be removed.
            self.volumes.cancelled(found.fscid).await;
        }
        match r {
            Ok(out) => (0, status(job.prefix), out.into()),
            Err((e, why)) => {
                self.check_mount(found.fscid, e);
                (e, why, Bytes::new())
            }
        }
    }

    /// Makes clones and purges the trash; never completes.
    pub(super) async fn run_volumes(self: Rc<Self>) {
        let mut jobs = JoinSet::new();
        loop {
            let systems: Vec<i32> = self.monitor.file_systems().into_iter().map(|(id, _)| id).collect();
            {
                let mut seen = self.volumes.seen.borrow_mut();
                seen.retain(|id| systems.contains(id));
                self.volumes.locks.borrow_mut().retain(|id, _| systems.contains(id));
                self.volumes.lists.borrow_mut().retain(|id, _| systems.contains(id));
                self.volumes.mounts.borrow_mut().retain(|id, _| systems.contains(id));
                let new: Vec<i32> = systems.into_iter().filter(|id| !seen.contains(id)).collect();
                self.volumes.due.borrow_mut().extend(new);
                let now = tokio::time::Instant::now();
                let mut failed = self.volumes.failed.borrow_mut();
                let over: Vec<Key> = failed.iter().filter(|(_, at)| **at <= now).map(|(k, _)| k.clone()).collect();
                for k in over {
                    self.volumes.due.borrow_mut().insert(k.1);
                    failed.remove(&k);
                }
            }
            let due = self.volumes.due.take();
            for fscid in due {
                let looked = tokio::time::timeout(LOOK_MAX, self.look_through(fscid, &mut jobs)).await;
                match looked.unwrap_or(Err(ETIMEDOUT)) {
                    Ok(()) => {
                        self.volumes.seen.borrow_mut().insert(fscid);
                    }
                    Err(e) => {
                        // As one that is new: it is looked through in the next round.
                        self.volumes.seen.borrow_mut().remove(&fscid);
                        self.check_mount(fscid, e);
                    }
                }
            }
            tokio::select! {
                () = self.volumes.wake.notified() => {}
                Some(_) = jobs.join_next() => {}
                () = tokio::time::sleep(ROUND) => {}
            }
        }
    }

    fn clones_max(&self) -> usize {
        let given = self.monitor.stored_option("mgr", "mgr/volumes/max_concurrent_clones");
        given.and_then(|v| v.parse().ok()).unwrap_or(CLONES_MAX).clamp(1, CLONES_LIMIT)
    }

    /// True if the first rank of a file system works.
    fn serves(&self, fscid: i32) -> bool {
        self.monitor.ranks(fscid).1.iter().any(|r| r.rank == 0 && r.state == wire::types::mds_state::ACTIVE)
    }

    /// Starts the jobs of a file system.
    async fn look_through(self: &Rc<Self>, fscid: i32, jobs: &mut JoinSet<()>) -> Result<(), Errno> {
        if !self.serves(fscid) {
            return Err(EAGAIN);
        }
        let fs = self.mount(fscid).await.map_err(|(e, _)| e)?;
        let room = |kind, most: usize| {
            let running = self.volumes.running.borrow();
            most.saturating_sub(running.keys().filter(|k| k.0 == kind && k.1 == fscid).count())
        };
        let free =
            |k: &Key| !self.volumes.running.borrow().contains_key(k) && !self.volumes.failed.borrow().contains_key(k);
        for t in clone::tracked(&fs).await? {
            let key = (Kind::Clone, fscid, t.id.clone());
            // Two links may lead to one clone; two copies must not.
            let free = free(&key) && self.volumes.progress(fscid, &t.target).is_none();
            if free && room(Kind::Clone, self.clones_max()) > 0 {
                let progress = Rc::new(Progress::default());
                self.volumes.running.borrow_mut().insert(key.clone(), (t.target.clone(), Rc::clone(&progress)));
                let (me, fs, lock) = (Rc::clone(self), fs.clone(), self.volumes.lock(fscid));
                jobs.spawn_local(async move {
                    let r = clone::run(&fs, &lock, &t, &progress).await;
                    me.ended(key, r);
                });
            }
        }
        let key_of = |name: &Bytes| (Kind::Purge, fscid, String::from_utf8_lossy(name).into_owned());
        for name in purge::entries(&fs, room(Kind::Purge, PURGES_MAX), |n| free(&key_of(n))).await? {
            let key = key_of(&name);
            // Two names may look alike.
            if free(&key) {
                let shown = key.2.clone();
                self.volumes.running.borrow_mut().insert(key.clone(), (shown, Rc::default()));
                let (me, fs, lock) = (Rc::clone(self), fs.clone(), self.volumes.lock(fscid));
                jobs.spawn_local(async move {
                    let r = purge::purge(&fs, &lock, &name).await;
                    me.ended(key, r.map_err(|e| (e, base::errno::name(e).to_owned())));
                });
            }
        }
        Ok(())
    }

    /// Notes the end of a job, after which there is room for another.
    fn ended(&self, key: Key, r: Result<(), Fail>) {
        self.volumes.running.borrow_mut().remove(&key);
        self.volumes.over.notify_waiters();
        if let Err((e, why)) = r {
            if e != ENOTEMPTY {
                tracing::warn!(
                    "mgr: {} of a subvolume stopped: {why}",
                    if key.0 == Kind::Clone { "clone" } else { "purge" }
                );
            }
            self.check_mount(key.1, e);
            self.volumes.failed.borrow_mut().insert(key.clone(), tokio::time::Instant::now() + RETRY);
        }
        self.volumes.due.borrow_mut().insert(key.1);
        self.volumes.wake.notify_one();
    }
}
