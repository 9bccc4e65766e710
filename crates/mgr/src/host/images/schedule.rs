//! Schedules of the manager role: trash purges and mirror snapshots.
//!
//! Schedules are stored where Ceph's manager stores them: the global one as an option, others in the omap of an object
//! in each pool. They are read again every minute, so that plans follow created and removed pools and images, and other
//! managers' changes.

use super::image::{Place, Step, absent_is_fine, enc};
use super::{Job, Service, errno_text, mirror, pretty, seconds};
use crate::images::schedule::{Level, Queue, Schedule, Schedules, parse_level, show};
use base::errno::{EINVAL, EIO, ENOENT, Errno};
use base::{PoolId, SnapId};
use bytes::Bytes;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use wire::Reader;
use wire::msg::{OpCode, OsdOp};

/// Interval at which schedules, pools and images are read again.
const REFRESH: Duration = Duration::from_secs(60);
/// Pause while no schedules are loaded: there are no RBD pools, or they cannot be read yet.
const IDLE: Duration = Duration::from_secs(5);
/// Most schedules of one pool that are read.
const SCHEDULES_MAX: u64 = 4096;
/// Mirroring mode of a pool whose images are enabled one by one.
const BY_IMAGE: u32 = 1;

/// Kind of scheduled work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    TrashPurge,
    MirrorSnapshot,
}

impl Kind {
    /// Object that stores a pool's schedules.
    fn object(self) -> &'static str {
        match self {
            Self::TrashPurge => "rbd_trash_purge_schedule",
            Self::MirrorSnapshot => "rbd_mirror_snapshot_schedule",
        }
    }

    /// Option that stores the global schedule.
    fn option(self) -> &'static str {
        match self {
            Self::TrashPurge => "mgr/rbd_support/trash_purge_schedule",
            Self::MirrorSnapshot => "mgr/rbd_support/mirror_snapshot_schedule",
        }
    }
}

/// Pool and namespace, and the image id for work on one image.
type Target = (i64, String, Option<String>);

/// Schedules of one kind, and their queue.
pub(super) struct Planned {
    kind: Kind,
    schedules: RefCell<Schedules>,
    queue: RefCell<Queue<Target>>,
    /// Targets of scheduled work, with their display names.
    targets: RefCell<BTreeMap<Target, String>>,
    loaded: Cell<Option<Instant>>,
    /// Held while schedules are read or changed.
    busy: tokio::sync::Mutex<()>,
    wake: Notify,
}

impl Planned {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            schedules: RefCell::default(),
            queue: RefCell::default(),
            targets: RefCell::default(),
            loaded: Cell::new(None),
            busy: tokio::sync::Mutex::new(()),
            wake: Notify::new(),
        }
    }

    fn plan(&self) {
        let now = minute();
        let schedules = self.schedules.borrow();
        let targets = self.targets.borrow();
        let due = targets.keys().filter_map(|t| {
            let next = schedules.find(t.0, &t.1, t.2.as_deref())?.next(now)?;
            Some((t.clone(), next))
        });
        self.queue.borrow_mut().plan(now, due);
    }
}

fn minute() -> i64 {
    (seconds() / 60.0) as i64
}

fn invalid<T>(text: String) -> Result<T, (Errno, String)> {
    Err((EINVAL, text))
}

impl Service {
    /// Runs due work; never completes.
    pub(super) async fn run_schedule(&self, p: &Planned) {
        loop {
            if p.loaded.get().is_none_or(|t| t.elapsed() >= REFRESH) && self.has_rbd_pools() {
                let _busy = p.busy.lock().await;
                let used = self.current();
                if let Err(e) = self.refresh(p).await {
                    self.look_at(used.as_ref(), e);
                    tracing::debug!(kind = ?p.kind, "mgr: schedules cannot be read yet, will retry: {}", base::errno::name(e));
                }
            }
            let due = p.queue.borrow_mut().take_due(minute());
            let some = !due.is_empty();
            for t in due {
                let used = self.current();
                if let Err(e) = self.execute(p, &t).await {
                    self.look_at(used.as_ref(), e);
                    tracing::warn!(kind = ?p.kind, pool = t.0, namespace = t.1, image = t.2, "mgr: scheduled work failed: {}", base::errno::name(e));
                }
            }
            if some {
                p.plan();
            }
            // Schedules have a resolution of one minute.
            let next = p
                .queue
                .borrow()
                .next()
                .map(|m| Duration::from_secs_f64((m as f64 * 60.0 - seconds()).clamp(0.0, 60.0)));
            let wait = match (next, p.loaded.get()) {
                (Some(d), _) => d + Duration::from_millis(10),
                (None, None) => IDLE,
                (None, Some(t)) => REFRESH.saturating_sub(t.elapsed()).max(Duration::from_millis(100)),
            };
            tokio::select! {
                () = p.wake.notified() => {}
                () = tokio::time::sleep(wait.min(REFRESH)) => {}
            }
        }
    }

    fn rbd_pools(&self) -> Vec<(PoolId, String)> {
        let map = self.monitor.osdmap();
        let of_rbd = map.pools.iter().filter(|(_, p)| p.application_metadata.contains_key("rbd"));
        of_rbd.filter_map(|(id, _)| Some((*id, map.pool_name(*id)?.to_owned()))).collect()
    }

    /// Reads schedules and their targets, and plans again.
    async fn refresh(&self, p: &Planned) -> Step<()> {
        let mut all = Schedules::default();
        let given = |who: &str| self.monitor.stored_option(who, p.kind.option());
        let global = given("mgr").or_else(|| given("global"));
        if let Some(text) = global.filter(|t| !t.is_empty()) {
            match Schedule::from_json(text.as_bytes()) {
                Ok(s) => all.put(Level::default(), s),
                Err(error) => tracing::warn!(error, "mgr: option {} is not a valid schedule", p.kind.option()),
            }
        }
        let mut targets = BTreeMap::new();
        for (pool, name) in self.rbd_pools() {
            match self.refresh_pool(p.kind, pool, &name, &mut all, &mut targets).await {
                // The pool was removed meanwhile.
                Ok(()) | Err(ENOENT) => {}
                Err(e) => return Err(e),
            }
        }
        *p.schedules.borrow_mut() = all;
        *p.targets.borrow_mut() = targets;
        p.loaded.set(Some(Instant::now()));
        p.plan();
        Ok(())
    }

    async fn refresh_pool(
        &self,
        kind: Kind,
        pool: PoolId,
        name: &str,
        all: &mut Schedules,
        targets: &mut BTreeMap<Target, String>,
    ) -> Step<()> {
        let root = self.place_in(pool, "").await?;
        let input = enc(|w| {
            w.blob(b"");
            w.u64(SCHEDULES_MAX);
            w.blob(b"");
        });
        let op = OsdOp::with_indata(OpCode::OMAPGETVALS, input);
        let kept: BTreeMap<Bytes, Bytes> = match root.op(&root.object(kind.object()), op, SnapId::HEAD).await {
            Err(ENOENT) => BTreeMap::new(),
            r => Reader::shared(&r?).get().map_err(|_| EIO)?,
        };
        let mut levels = Vec::new();
        for (id, text) in kept {
            let id = String::from_utf8_lossy(&id).into_owned();
            match (Level::from_id(&id), Schedule::from_json(&text)) {
                (Some(l), Ok(s)) if l.pool == Some(pool.0) => levels.push((l, s)),
                _ => tracing::warn!(pool = name, "mgr: {} of {id} is not a valid schedule", kind.object()),
            }
        }
        if levels.is_empty() && !all.concern(pool.0) {
            return Ok(());
        }
        let namespaces = root.namespaces().await?;
        for nspace in namespaces {
            let place = Place { nspace: Bytes::copy_from_slice(nspace.as_bytes()), ..root.clone() };
            let wants_names = kind == Kind::MirrorSnapshot || levels.iter().any(|(l, _)| l.image.is_some());
            let names = if wants_names { self.names(pool, &nspace).await? } else { BTreeMap::new() };
            let shown = |image: &str| {
                let place = if nspace.is_empty() { name.to_owned() } else { format!("{name}/{nspace}") };
                format!("{place}/{image}")
            };
            for (l, s) in &levels {
                let title = match (&l.nspace, &l.image) {
                    // A pool's schedule is added once, in the pass over the default namespace.
                    (None, _) if nspace.is_empty() => format!("{name}/"),
                    (Some(n), None) if *n == nspace => format!("{name}/{n}/"),
                    // A schedule of a removed image is ignored.
                    (Some(n), Some(id)) if *n == nspace => match names.get(id) {
                        Some(image) => shown(image),
                        None => continue,
                    },
                    _ => continue,
                };
                all.put(Level { name: title, ..l.clone() }, s.clone());
            }
            match kind {
                Kind::TrashPurge => {
                    targets.insert((pool.0, nspace, None), name.to_owned());
                }
                Kind::MirrorSnapshot => {
                    for id in mirror::primaries(&place).await? {
                        if let Some(image) = names.get(&id) {
                            targets.insert((pool.0, nspace.clone(), Some(id.clone())), shown(image));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    async fn execute(&self, p: &Planned, t: &Target) -> Step<()> {
        let place = self.place_in(PoolId(t.0), &t.1).await?;
        match (p.kind, &t.2) {
            (Kind::MirrorSnapshot, Some(id)) => {
                let name = p.targets.borrow().get(t).cloned().unwrap_or_default();
                let name = name.rsplit('/').next().unwrap_or_default().to_owned();
                mirror::create(&place, id, &name).await
            }
            _ => self.purge(&place).await,
        }
    }

    /// Resolves a level given in a command.
    async fn level(&self, kind: Kind, spec: &str) -> Result<Level, (Errno, String)> {
        let named = parse_level(spec).or_else(invalid)?;
        if named.image.is_some() && kind == Kind::TrashPurge {
            return invalid(format!("invalid name {spec}: image level is not allowed"));
        }
        let Some(pool) = named.pool else { return Ok(Level::default()) };
        let id = {
            let map = self.monitor.osdmap();
            let Some(id) = map.pool_by_name(pool) else { return invalid(format!("pool {pool} does not exist")) };
            if !map.pool(id).is_some_and(|p| p.application_metadata.contains_key("rbd")) {
                return invalid(format!("{pool} is not an RBD pool"));
            }
            id
        };
        let mut level = Level { name: spec.to_owned(), pool: Some(id.0), nspace: None, image: None };
        let Some(nspace) = named.nspace else { return Ok(level) };
        let root = self.place_in(id, "").await.map_err(errno_text)?;
        if !root.namespaces().await.map_err(errno_text)?.iter().any(|n| n == nspace) {
            return invalid(format!("namespace {nspace} does not exist"));
        }
        let place = Place { nspace: Bytes::copy_from_slice(nspace.as_bytes()), ..root };
        level.nspace = Some(nspace.to_owned());
        if kind == Kind::MirrorSnapshot && !nspace.is_empty() {
            let mode = place.rbd_as::<u32>("rbd_mirroring", "mirror_mode_get", Bytes::new()).await;
            if mode != Ok(BY_IMAGE) {
                return invalid(format!("namespace {nspace} is not in mirror image mode"));
            }
        }
        if let Some(image) = named.image {
            let image_id = match place.image_id(image).await {
                Err(ENOENT) => return invalid(format!("image {image} does not exist")),
                r => r.map_err(errno_text)?,
            };
            if mirror::global_id(&place, &image_id).await.map_err(errno_text)?.is_none() {
                return invalid(format!("image {image} is not in snapshot mirror mode"));
            }
            level.image = Some(image_id);
            if nspace.is_empty() {
                level.name = format!("{pool}/{image}");
            }
        }
        Ok(level)
    }

    /// Runs a command.
    pub(super) async fn schedule_command(&self, p: &Planned, what: &str, job: &Job) -> Result<Bytes, (Errno, String)> {
        let arg = |k: &str| job.args.get(k).map(String::as_str);
        let level = self.level(p.kind, arg("level_spec").unwrap_or_default()).await?;
        let _busy = p.busy.lock().await;
        if p.loaded.get().is_none() && self.has_rbd_pools() {
            self.refresh(p).await.map_err(errno_text)?;
        }
        let start = arg("start_time").unwrap_or_default();
        let keep = match what {
            "add" => {
                let mut new = p.schedules.borrow().clone();
                let s = new.add(&level, arg("interval").unwrap_or_default(), start).or_else(invalid)?;
                Some((new, Some(s)))
            }
            "remove" => {
                let mut new = p.schedules.borrow().clone();
                let left = new.remove(&level, arg("interval"), start).or_else(invalid)?;
                Some((new, left))
            }
            _ => None,
        };
        if let Some((new, schedule)) = keep {
            self.keep(p.kind, &level, schedule).await?;
            *p.schedules.borrow_mut() = new;
            // Pools without a schedule were not read.
            if self.has_rbd_pools() {
                self.refresh(p).await.map_err(errno_text)?;
            }
            p.wake.notify_one();
            return Ok(Bytes::new());
        }
        if what == "list" {
            return Ok(pretty(&p.schedules.borrow().list(&level)));
        }
        let (queue, targets) = (p.queue.borrow(), p.targets.borrow());
        let shown = queue.iter().filter(|(_, t)| level.matches(t.0, &t.1, t.2.as_deref()));
        let all: Vec<Value> = shown
            .filter_map(|(at, t)| {
                let name = targets.get(t)?;
                Some(match p.kind {
                    Kind::TrashPurge => json!({
                        "namespace": t.1,
                        "pool_id": t.0.to_string(),
                        "pool_name": name,
                        "schedule_time": show(at),
                    }),
                    Kind::MirrorSnapshot => json!({"image": name, "schedule_time": show(at)}),
                })
            })
            .collect();
        let word = if p.kind == Kind::TrashPurge { "scheduled" } else { "scheduled_images" };
        Ok(pretty(&json!({ word: all })))
    }

    /// Stores a schedule, or removes it for `None`.
    async fn keep(&self, kind: Kind, level: &Level, s: Option<Schedule>) -> Result<(), (Errno, String)> {
        let text = s.map(|s| String::from_utf8_lossy(&pretty(&s.to_json())).trim_end().to_owned());
        let Some(pool) = level.pool else {
            let client = self.connect().await.map_err(errno_text)?;
            let command = match &text {
                Some(t) => json!({"prefix": "config set", "who": "mgr", "name": kind.option(), "value": t}),
                None => json!({"prefix": "config rm", "who": "mgr", "name": kind.option()}),
            };
            let r = client.mon_command(&command.to_string(), Bytes::new()).await;
            return match r {
                Ok(r) if r.rc < 0 => Err((r.rc, r.status)),
                Ok(_) => Ok(()),
                Err(e) => Err(errno_text(super::image::failed(e))),
            };
        };
        let place = self.place_in(PoolId(pool), "").await.map_err(errno_text)?;
        let key = Bytes::from(level.id());
        let o = place.object(kind.object());
        match text {
            Some(t) => {
                let entries: BTreeMap<Bytes, Bytes> = [(key, Bytes::from(t))].into();
                let op = OsdOp::with_indata(OpCode::OMAPSETVALS, enc(|w| w.put(&entries)));
                place.op(&o, op, SnapId::HEAD).await.map(|_| ())
            }
            None => {
                let op = OsdOp::with_indata(OpCode::OMAPRMKEYS, enc(|w| w.put(&vec![key])));
                absent_is_fine(place.op(&o, op, SnapId::HEAD).await)
            }
        }
        .map_err(errno_text)
    }
}
