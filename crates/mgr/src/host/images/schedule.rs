//! Schedules of the manager role: trash purges and mirror snapshots.
//!
//! Schedules are stored where Ceph's manager stores them: the global one as an option, others in the omap of an object
//! in each pool. They are read again every minute, so that plans follow created and removed pools and images, and other
//! managers' changes.

use super::image::{Place, Step, absent_is_fine, enc};
use super::{Job, LOAD_MAX, Service, errno_text, mirror, pretty, seconds};
use crate::images::schedule::{Level, Queue, Schedule, Schedules, parse_level, show};
use base::errno::{EBLOCKLISTED, EINVAL, EIO, ENOENT, ETIMEDOUT, Errno};
use base::{PoolId, SnapId};
use bytes::Bytes;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
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

/// Schedules and targets of a pool.
#[derive(Default)]
struct Read {
    schedules: Vec<(Level, Schedule)>,
    targets: Vec<(Target, String)>,
    /// Namespaces whose images could not be read; `None` for the whole pool.
    unread: Vec<Option<String>>,
}

impl Read {
    /// With what was known before of the pool's part that could not be read.
    fn with_known(mut self, pool: PoolId, schedules: &Schedules, targets: &BTreeMap<Target, String>) -> Self {
        for nspace in std::mem::take(&mut self.unread) {
            let is = |of: Option<&str>| nspace.is_none() || nspace.as_deref() == of;
            let of_images = |l: &Level| nspace.is_none() || l.image.is_some();
            self.schedules.extend(schedules.of(|l| l.pool == Some(pool.0) && of_images(l) && is(l.nspace.as_deref())));
            let known = targets.iter().filter(|(t, _)| t.0 == pool.0 && is(Some(&t.1)));
            self.targets.extend(known.map(|(t, name)| (t.clone(), name.clone())));
        }
        self
    }
}

/// Schedules of one kind, and their queue.
pub(super) struct Planned {
    kind: Kind,
    schedules: RefCell<Schedules>,
    queue: RefCell<Queue<Target>>,
    /// Targets of scheduled work, with their display names.
    targets: RefCell<BTreeMap<Target, String>>,
    loaded: Cell<Option<Instant>>,
    /// Pools, or namespaces of pools, that could not be read the last time. Their known schedules and targets stay.
    unread: RefCell<BTreeSet<(i64, Option<String>)>>,
    /// Pools and namespaces at which work is being done.
    at_work: RefCell<BTreeSet<(i64, String)>>,
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
            unread: RefCell::default(),
            at_work: RefCell::default(),
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
    fn planned(&self, kind: Kind) -> &Planned {
        match kind {
            Kind::TrashPurge => &self.purges,
            Kind::MirrorSnapshot => &self.snapshots,
        }
    }

    /// Runs due work, that of a namespace one by one and not a second time while it is under way; never completes.
    pub(super) async fn run_schedule(self: Rc<Self>, kind: Kind) {
        tokio::join!(self.read_schedules(kind), Rc::clone(&self).work_by_schedule(kind));
    }

    async fn read_schedules(&self, kind: Kind) {
        let p = self.planned(kind);
        loop {
            if self.has_rbd_pools() {
                let _busy = p.busy.lock().await;
                let used = self.current();
                match self.refresh(p).await {
                    Ok(()) => p.wake.notify_one(),
                    Err(e) => {
                        self.look_at(used.as_ref(), e);
                        tracing::debug!(
                            ?kind,
                            "mgr: schedules cannot be read yet, will retry: {}",
                            base::errno::name(e)
                        );
                    }
                }
            }
            tokio::time::sleep(if p.loaded.get().is_some() { REFRESH } else { IDLE }).await;
        }
    }

    async fn work_by_schedule(self: Rc<Self>, kind: Kind) {
        let p = self.planned(kind);
        let mut jobs = JoinSet::new();
        loop {
            let due = p.queue.borrow_mut().take_due(minute());
            let some = !due.is_empty();
            let mut by: BTreeMap<(i64, String), Vec<Target>> = BTreeMap::new();
            for t in due {
                by.entry((t.0, t.1.clone())).or_default().push(t);
            }
            for (place, targets) in by {
                if !p.at_work.borrow_mut().insert(place.clone()) {
                    tracing::warn!(
                        ?kind,
                        pool = place.0,
                        namespace = place.1,
                        "mgr: scheduled work is late and left out"
                    );
                    continue;
                }
                let me = Rc::clone(&self);
                jobs.spawn_local(async move {
                    for t in targets {
                        let used = me.current();
                        if let Err(e) = me.execute(me.planned(kind), &t).await {
                            me.look_at(used.as_ref(), e);
                            tracing::warn!(
                                ?kind,
                                pool = t.0,
                                namespace = t.1,
                                image = t.2,
                                "mgr: scheduled work failed: {}",
                                base::errno::name(e)
                            );
                        }
                    }
                    me.planned(kind).at_work.borrow_mut().remove(&place);
                });
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
            let wait = next.map_or(REFRESH, |d| d + Duration::from_millis(10));
            tokio::select! {
                () = p.wake.notified() => {}
                Some(_) = jobs.join_next() => {}
                () = tokio::time::sleep(wait.min(REFRESH)) => {}
            }
        }
    }

    /// Ids and names of the pools that are for images.
    pub(super) fn rbd_pools(&self) -> Vec<(PoolId, String)> {
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
        // Without a client nothing can be read, and what is known stays.
        self.connect().await?;
        let (mut targets, mut unread) = (BTreeMap::new(), BTreeSet::new());
        for (pool, name) in self.rbd_pools() {
            let reading = self.read_pool(p.kind, pool, &name, all.concern(pool.0));
            let read = match tokio::time::timeout(LOAD_MAX, reading).await.unwrap_or(Err(ETIMEDOUT)) {
                Ok(read) => read,
                // The pool was removed meanwhile.
                Err(ENOENT) => continue,
                Err(EBLOCKLISTED) => return Err(EBLOCKLISTED),
                Err(e) => {
                    tracing::warn!(pool = name, "mgr: {} cannot be read: {}", p.kind.object(), base::errno::name(e));
                    Read { unread: vec![None], ..Read::default() }
                }
            };
            unread.extend(read.unread.iter().map(|n| (pool.0, n.clone())));
            let read = read.with_known(pool, &p.schedules.borrow(), &p.targets.borrow());
            read.schedules.into_iter().for_each(|(l, s)| all.put(l, s));
            targets.extend(read.targets);
        }
        *p.schedules.borrow_mut() = all;
        *p.targets.borrow_mut() = targets;
        *p.unread.borrow_mut() = unread;
        p.loaded.set(Some(Instant::now()));
        p.plan();
        Ok(())
    }

    /// Reads the schedules and targets of a pool; targets only if a schedule may concern them.
    async fn read_pool(&self, kind: Kind, pool: PoolId, name: &str, concerned: bool) -> Step<Read> {
        let mut read = Read::default();
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
        if levels.is_empty() && !concerned {
            return Ok(read);
        }
        for nspace in root.namespaces().await? {
            for (l, s) in &levels {
                let title = match (&l.nspace, &l.image) {
                    // A pool's schedule is added once, in the pass over the default namespace.
                    (None, _) if nspace.is_empty() => format!("{name}/"),
                    (Some(n), None) if *n == nspace => format!("{name}/{n}/"),
                    _ => continue,
                };
                read.schedules.push((Level { name: title, ..l.clone() }, s.clone()));
            }
            let of = Place { nspace: Bytes::copy_from_slice(nspace.as_bytes()), ..root.clone() };
            match self.read_images(kind, &of, (name, &nspace), &levels, &mut read).await {
                Ok(()) => {}
                Err(e @ (EBLOCKLISTED | ETIMEDOUT)) => return Err(e),
                Err(e) => {
                    let what = kind.object();
                    tracing::warn!(
                        pool = name,
                        namespace = nspace,
                        "mgr: images for {what} cannot be read: {}",
                        base::errno::name(e)
                    );
                    read.unread.push(Some(nspace));
                }
            }
        }
        Ok(read)
    }

    /// Reads the images of a namespace that have schedules or are targets.
    async fn read_images(
        &self,
        kind: Kind,
        place: &Place,
        (pool, nspace): (&str, &str),
        levels: &[(Level, Schedule)],
        read: &mut Read,
    ) -> Step<()> {
        let id = place.pool.0;
        if kind == Kind::TrashPurge {
            read.targets.push(((id, nspace.to_owned(), None), pool.to_owned()));
        }
        let wants_names = kind == Kind::MirrorSnapshot || levels.iter().any(|(l, _)| l.image.is_some());
        let names = if wants_names { self.names(place.pool, nspace).await? } else { BTreeMap::new() };
        let shown = |image: &str| {
            let place = if nspace.is_empty() { pool.to_owned() } else { format!("{pool}/{nspace}") };
            format!("{place}/{image}")
        };
        for (l, s) in levels.iter().filter(|(l, _)| l.nspace.as_deref() == Some(nspace)) {
            // A schedule of a removed image is ignored.
            if let Some(image) = l.image.as_ref().and_then(|i| names.get(i)) {
                read.schedules.push((Level { name: shown(image), ..l.clone() }, s.clone()));
            }
        }
        if kind == Kind::MirrorSnapshot {
            for image in mirror::primaries(place).await? {
                if let Some(name) = names.get(&image) {
                    read.targets.push(((id, nspace.to_owned(), Some(image)), shown(name)));
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
        if let Some(pool) = level.pool.filter(|_| matches!(what, "add" | "remove")) {
            // What is stored there is not known, and would be overwritten.
            let unread = p.unread.borrow();
            let of_image = level.image.is_some() && unread.contains(&(pool, level.nspace.clone()));
            if of_image || unread.contains(&(pool, None)) {
                return Err((EIO, format!("the schedules of {} cannot be read; the log says why", level.name)));
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unread_part_of_a_pool_stays_as_it_was_known() {
        let mut known = Schedules::default();
        let hourly = Schedule::from_json(br#"[{"interval": "1h", "start_time": null}]"#).unwrap();
        for id in ["3", "3/t", "3/t/x", "3/u/y", "4/t/z"] {
            known.put(Level::from_id(id).unwrap(), hourly.clone());
        }
        let target = |pool, nspace: &str| ((pool, nspace.to_owned(), Some("i".to_owned())), "name".to_owned());
        let targets: BTreeMap<Target, String> = [target(3, "t"), target(3, "u"), target(4, "t")].into();
        let kept = |unread: Option<&str>| {
            let read = Read { unread: vec![unread.map(str::to_owned)], ..Read::default() };
            let read = read.with_known(PoolId(3), &known, &targets);
            let of: Vec<String> = read.targets.iter().map(|(t, _)| format!("{}/{}", t.0, t.1)).collect();
            (read.schedules.iter().map(|(l, _)| l.id()).collect::<Vec<_>>(), of)
        };
        let words = |all: &[&str]| all.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        assert_eq!(kept(None), (words(&["3", "3/t", "3/t/x", "3/u/y"]), words(&["3/t", "3/u"])));
        assert_eq!(kept(Some("t")), (words(&["3/t/x"]), words(&["3/t"])));
    }
}
