//! `fs snap-schedule …`, and the snapshots that are due.
//!
//! Plans are in the monitors' `config-key` store, a key for each directory, however its path was written: two plans of one
//! directory would remove each other's snapshots. They are read again for each command, and at least once a minute for what
//! is due.

use super::fs::Fs;
use super::group::Group;
use super::subvolume::{Op, Subvolume};
use super::{Out, is_passing};
use crate::host::devices::ask;
use crate::host::images::{Job, Service};
use crate::volumes::schedule::{self, New, PATH_MAX, Plan};
use crate::volumes::{Fail, group_path, is_name};
use base::Utime;
use base::errno::{self, EAGAIN, EEXIST, EINVAL, EIO, EMLINK, ENAMETOOLONG, ENOENT, ENOSPC, ETIMEDOUT, Errno};
use client::host::Client;
use net::admin_socket::to_line;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::{Mutex, Notify};

/// Beginning of the plans' keys.
const KEYS: &str = "mgr/snap_schedule/";
/// Longest time until the plans are read again.
const REFRESH: Duration = Duration::from_secs(60);
/// Pause before what is due is tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Time limit for a snapshot and the removal of old ones.
const WORK_MAX: Duration = Duration::from_secs(60);
/// Time limit for the removal, for which commands wait.
const STEP_MAX: Duration = Duration::from_secs(20);
/// Most directories with schedules.
const PLANS_MAX: usize = 1000;
/// Snapshots of a directory, unless an option says otherwise (`mds_max_snaps_per_dir`).
const SNAPS_MAX: usize = 100;

/// A file system and a directory.
type Place = (i32, String);

/// State of the service.
#[derive(Default)]
pub(super) struct Scheduled {
    /// Held from reading a plan to writing it.
    lock: Mutex<()>,
    wake: Notify,
}

/// Key of a directory's plan; see [`schedule::directory`].
fn key(fscid: i32, dir: &str) -> String {
    format!("{KEYS}{fscid}/{dir}")
}

fn wall() -> Utime {
    reactor::clock::now().wall
}

/// All plans whose keys begin with `prefix`.
async fn plans(c: &Client, prefix: &str) -> Result<BTreeMap<Place, Plan>, Fail> {
    let out = ask(c, json!({"prefix": "config-key dump", "key": prefix, "format": "json"})).await?;
    let all: Map<String, Value> = serde_json::from_slice(&out).map_err(|_| (EIO, "unreadable keys".to_owned()))?;
    let one = |(k, v): (String, Value)| {
        let (fscid, path) = k.strip_prefix(KEYS)?.split_once('/')?;
        Some(((fscid.parse().ok()?, path.to_owned()), Plan::parse(v.as_str()?)?))
    };
    Ok(all.into_iter().filter_map(one).collect())
}

async fn plan(c: &Client, fscid: i32, dir: &str) -> Result<Option<Plan>, Fail> {
    match ask(c, json!({"prefix": "config-key get", "key": key(fscid, dir)})).await {
        Ok(out) => Ok(std::str::from_utf8(&out).ok().and_then(Plan::parse)),
        Err((ENOENT, _)) => Ok(None),
        Err(e) => Err(e),
    }
}

async fn keep(c: &Client, fscid: i32, p: &Plan) -> Result<(), Fail> {
    let key = key(fscid, &schedule::directory(&p.path));
    let cmd = if p.schedules.is_empty() {
        json!({"prefix": "config-key rm", "key": key})
    } else {
        json!({"prefix": "config-key set", "key": key, "val": p.stored()})
    };
    ask(c, cmd).await.map(|_| ())
}

/// Makes the snapshot of a directory that was due at a time, and removes those that its retention does not keep. Their
/// number; an error of the snapshot itself comes beside it.
pub(super) async fn snapshot(fs: &Fs, p: &Plan, most: usize, at: Utime, lock: &Mutex<()>) -> (Result<(), Errno>, u64) {
    let dir = schedule::directory(&p.path);
    if let Some(anchor) = schedule::anchor(&p.path)
        && let Err(e) = fs.stat(anchor.as_bytes()).await
    {
        return (Err(e), 0);
    }
    let make = async || match fs.mksnap(dir.as_bytes(), &schedule::snapshot_name(at)).await {
        // An attempt before this one made it.
        Err(EEXIST) => Ok(()),
        r => r,
    };
    let (mut made, mut pruned) = (make().await, 0);
    if !matches!(made, Ok(()) | Err(EMLINK)) {
        return (made, 0);
    }
    let most = if made.is_err() { most.saturating_sub(1) } else { most };
    match tokio::time::timeout(STEP_MAX, prune(fs, p, most, at, lock, &mut pruned)).await.unwrap_or(Err(ETIMEDOUT)) {
        Ok(()) if made.is_err() => made = make().await,
        Ok(()) => {}
        Err(e) => tracing::warn!("mgr: old snapshots of {} stay for now: {}", p.path, errno::name(e)),
    }
    fs.backend.sync().await;
    (made, pruned)
}

/// Removes the snapshots that a retention does not keep, but for those of which clones are made.
async fn prune(fs: &Fs, p: &Plan, most: usize, now: Utime, lock: &Mutex<()>, n: &mut u64) -> Result<(), Errno> {
    let dir = schedule::directory(&p.path);
    let _guard = lock.lock().await;
    // Clones that are not known would lose their source.
    let subvolume = Subvolume::around(fs, &dir).await?;
    let names = fs.snaps(dir.as_bytes()).await?;
    for name in schedule::excess(&names, &p.retention, most, now) {
        if subvolume.as_ref().is_none_or(|s| s.pending_clones(name).is_empty()) {
            fs.rmsnap(dir.as_bytes(), name).await?;
            *n += 1;
        }
    }
    Ok(())
}

/// Arguments of a command.
struct Args<'a>(&'a Job);

impl Args<'_> {
    fn opt(&self, k: &str) -> Option<&str> {
        self.0.args.get(k).map(String::as_str).filter(|v| !v.is_empty())
    }

    fn get(&self, k: &str) -> &str {
        self.opt(k).unwrap_or_default()
    }

    fn json(&self) -> bool {
        self.get("format").starts_with("json")
    }
}

/// Answers `status` and `list`.
fn show(a: &Args<'_>, fs: &str, path: &str, plans: &BTreeMap<Place, Plan>) -> Out {
    if a.0.prefix == "fs snap-schedule status" {
        let all: Vec<Value> = plans.values().flat_map(|p| p.reports(fs)).collect();
        let texts: Vec<String> = all.iter().map(to_line).collect();
        return Ok(if a.json() { format!("[{}]", texts.join(",")) } else { texts.join("\n===\n") });
    }
    let all: Vec<_> = plans.values().flat_map(Plan::listed).collect();
    if all.is_empty() {
        let shown = a.opt("path").unwrap_or(path);
        return if a.json() {
            Ok("{}".to_owned())
        } else {
            Err((ENOENT, format!("SnapSchedule for {shown} not found")))
        };
    }
    if !a.json() {
        return Ok(all.into_iter().map(|l| l.0).collect::<Vec<_>>().join("\n"));
    }
    let column = |f: fn(&(String, Value, Value)) -> &Value| Value::Array(all.iter().map(f).cloned().collect());
    Ok(to_line(&json!({"path": path, "schedule": column(|l| &l.1), "retention": column(|l| &l.2)})))
}

impl Service {
    fn minutes(&self) -> bool {
        let given = self.monitor.stored_option("mgr", "mgr/snap_schedule/allow_m_granularity");
        given.is_some_and(|v| matches!(v.as_str(), "true" | "True" | "1"))
    }

    /// The file system of a command.
    fn scheduled_in(&self, a: &Args<'_>) -> Result<(i32, String), Fail> {
        let all = self.monitor.file_systems();
        match (a.opt("fs"), &all[..]) {
            (Some(name), _) => {
                let found = all.iter().find(|(_, n)| n == name).cloned();
                found.ok_or_else(|| (EINVAL, format!("no such file system: {name}")))
            }
            (None, [one]) => Ok(one.clone()),
            (None, []) => Err((ENOENT, "no filesystem found".to_owned())),
            _ => Err((EINVAL, "filesystem argument is required when there is more than one file system".to_owned())),
        }
    }

    /// The path of a command: what was given, or that of a subvolume, whose snapshots are those of the directory around its
    /// data. A subvolume that is gone has the path that its plan has.
    async fn scheduled_path(&self, a: &Args<'_>, fscid: i32, c: &Client) -> Result<String, Fail> {
        let (subvol, group) = (a.opt("subvol"), a.opt("group"));
        if subvol.is_none() && group.is_none() {
            return Ok(a.opt("path").unwrap_or("/").to_owned());
        }
        let fs = self.mount(fscid).await?;
        let lock = self.volumes.lock(fscid);
        let found = async {
            let _guard = lock.lock().await;
            let g = Group::open(&fs, group.unwrap_or_default()).await?;
            let s = Subvolume::open(&fs, &g, subvol.unwrap_or_default(), Op::GetPath).await;
            // Looking a subvolume up may mend its file.
            fs.backend.sync().await;
            s
        };
        match found.await {
            Ok(s) if s.is_first_version() => Ok(s.path()),
            Ok(s) => Ok(format!("{}/..", s.path())),
            Err((ENOENT | EINVAL, _)) => {
                let word = |w: Option<&str>| w.unwrap_or("None").to_owned();
                let name = subvol.filter(|s| is_name(s)).unwrap_or("-");
                let dir = format!("{}/{name}", group_path(group.unwrap_or_default())?);
                let had = plan(c, fscid, &schedule::directory(&dir)).await?;
                had.map(|p| p.path)
                    .ok_or_else(|| (EINVAL, format!("No such subvol: {}::{}", word(group), word(subvol))))
            }
            Err(e) => Err(e),
        }
    }

    /// Answers a command on schedules.
    pub(super) async fn snap_schedule(&self, job: &Job) -> Out {
        let a = Args(job);
        let (fscid, fs) = self.scheduled_in(&a)?;
        let c = self.connect().await.map_err(|e| (e, "the cluster does not answer".to_owned()))?;
        let path = self.scheduled_path(&a, fscid, &c).await?;
        let dir = schedule::directory(&path);
        if path.len() > PATH_MAX {
            return Err((ENAMETOOLONG, format!("a path with schedules has at most {PATH_MAX} bytes")));
        }
        let _guard = self.volumes.scheduled.lock.lock().await;
        let mut plans = if a.get("recursive") == "true" {
            plans(&c, &key(fscid, &dir)).await?
        } else {
            plan(&c, fscid, &dir).await?.map(|p| ((fscid, dir.clone()), p)).into_iter().collect()
        };
        if matches!(job.prefix, "fs snap-schedule status" | "fs snap-schedule list") {
            return show(&a, &fs, &path, &plans);
        }
        let had = plans.remove(&(fscid, dir));
        let (p, text) = self.changed(&a, had, &fs, &path, &c).await?;
        keep(&c, fscid, &p).await?;
        self.volumes.scheduled.wake.notify_one();
        Ok(text)
    }

    /// The plan that a command makes, and its answer.
    async fn changed(
        &self,
        a: &Args<'_>,
        had: Option<Plan>,
        fs: &str,
        path: &str,
        c: &Client,
    ) -> Result<(Plan, String), Fail> {
        let what = a.0.prefix.trim_start_matches("fs snap-schedule ");
        if what == "add" {
            if had.is_none() && plans(c, KEYS).await?.len() >= PLANS_MAX {
                return Err((ENOSPC, format!("{PLANS_MAX} directories have schedules already")));
            }
            let new = New {
                path,
                subvol: a.opt("subvol"),
                group: a.opt("group"),
                repeat: a.get("snap_schedule"),
                start: a.opt("start"),
                minutes: self.minutes(),
                fs,
            };
            return Ok((Plan::add(had, &new, wall())?, format!("Schedule set for path {path}")));
        }
        let keeps = what.starts_with("retention");
        let mut p = had.ok_or_else(|| {
            let text = if keeps {
                format!("No schedule found for {path}")
            } else {
                format!("SnapSchedule for {path} not found")
            };
            (ENOENT, text)
        })?;
        let (repeat, start) = (a.opt("repeat"), a.opt("start"));
        let (spec, count) = (a.get("retention_spec_or_period"), a.opt("retention_count"));
        let text = match what {
            "remove" => p.remove(repeat, start).map(|()| "Schedule removed for")?,
            "activate" => p.activate(repeat, start, true).map(|()| "Schedule activated for")?,
            "deactivate" => p.activate(repeat, start, false).map(|()| "Schedule deactivated for")?,
            "retention add" => p.retain(spec, count).map(|()| "Retention added to")?,
            "retention remove" => p.release(spec, count).map(|()| "Retention removed from")?,
            _ => return Err((EINVAL, "Unknown command".to_owned())),
        };
        Ok((p, format!("{text} path {path}")))
    }

    /// Makes the snapshots that are due; never completes.
    pub(in crate::host) async fn run_snap_schedules(&self) {
        let begin = u64::from(wall().sec);
        let mut looked: BTreeMap<Place, u64> = BTreeMap::new();
        loop {
            let pause = match self.all_plans().await {
                Ok(all) => {
                    looked.retain(|place, _| all.contains_key(place));
                    self.look_at_plans(all, begin, &mut looked).await
                }
                // Nothing is known of the plans, so nothing of them is forgotten.
                Err((_, why)) => {
                    tracing::debug!("mgr: schedules of snapshots cannot be read, will retry: {why}");
                    RETRY
                }
            };
            tokio::select! {
                () = self.volumes.scheduled.wake.notified() => {}
                () = tokio::time::sleep(pause.max(Duration::from_millis(100))) => {}
            }
        }
    }

    /// Makes the snapshots of plans that are due, and tells when to look again. `looked` has the times of the last looks;
    /// plans without one were not looked at since `begin`.
    async fn look_at_plans(
        &self,
        all: BTreeMap<Place, Plan>,
        begin: u64,
        looked: &mut BTreeMap<Place, u64>,
    ) -> Duration {
        let mut pause = REFRESH;
        let mut stuck = None;
        for (place, p) in all {
            let (now, minutes) = (wall(), self.minutes());
            let second = u64::from(now.sec);
            // A clock that went back does not silence a schedule.
            let after = looked.get(&place).copied().unwrap_or(begin).min(second);
            if let Some((i, at)) = p.due(after, second, minutes) {
                // One file system that does not answer holds the others up once.
                if stuck == Some(place.0) || !self.scheduled(&place, &p, (i, at), now).await {
                    stuck = Some(place.0);
                    pause = pause.min(RETRY);
                    continue;
                }
            }
            if let Some(at) = p.next(second, minutes) {
                pause = pause.min(Duration::from_secs(at.saturating_sub(second)));
            }
            looked.insert(place, second);
        }
        pause
    }

    /// The plans of all file systems that exist; those of others are removed.
    async fn all_plans(&self) -> Result<BTreeMap<Place, Plan>, Fail> {
        if self.monitor.file_systems().is_empty() {
            return Ok(BTreeMap::new());
        }
        let c = self.connect().await.map_err(|e| (e, "the cluster does not answer".to_owned()))?;
        let mut all = plans(&c, KEYS).await.inspect_err(|(e, _)| self.look_at(Some(&c), *e))?;
        // Afterwards, since a file system may be new.
        let systems = self.monitor.file_systems();
        let gone: Vec<Place> = all.keys().filter(|(id, _)| !systems.iter().any(|(s, _)| s == id)).cloned().collect();
        for place in gone {
            ask(&c, json!({"prefix": "config-key rm", "key": key(place.0, &place.1)})).await?;
            all.remove(&place);
        }
        Ok(all)
    }

    /// Makes a snapshot that was due at a time. False if it is to be tried again: that is, until half of the schedule's
    /// interval has passed.
    async fn scheduled(&self, place: &Place, p: &Plan, (i, at): (usize, u64), now: Utime) -> bool {
        let Some(s) = p.schedules.get(i) else { return true };
        let due = Utime { sec: u32::try_from(at).unwrap_or(u32::MAX), nsec: 0 };
        let most = |who| self.monitor.stored_option(who, "mds_max_snaps_per_dir").and_then(|v| v.parse().ok());
        let most: Option<usize> = most("mds").or_else(|| most("global"));
        // One less, so that there is room for the next before the oldest goes.
        let most = most.unwrap_or(SNAPS_MAX).saturating_sub(1);
        let work = async {
            if !self.serves(place.0) {
                return (Err(EAGAIN), 0);
            }
            match self.mount(place.0).await {
                // Named by the time it was due at, so that an attempt that was not answered makes no second one.
                Ok(fs) => snapshot(&fs, p, most, due, &self.volumes.lock(place.0)).await,
                Err((e, _)) => (Err(e), 0),
            }
        };
        let (made, pruned) = tokio::time::timeout(WORK_MAX, work).await.unwrap_or((Err(ETIMEDOUT), 0));
        if let Err(e) = made {
            self.check_mount(place.0, e);
            let late = u64::from(now.sec).saturating_sub(at);
            if is_passing(e) && late < schedule::interval(&s.repeat).unwrap_or(0) / 2 {
                return false;
            }
            let off = if e == ENOENT { "; the schedule is switched off" } else { "" };
            tracing::warn!("mgr: no snapshot of {} by schedule {}: {}{off}", p.path, s.repeat, errno::name(e));
        }
        if let Err((_, why)) = self.note(place, (&s.repeat, s.start), made, pruned, now).await {
            tracing::warn!("mgr: a snapshot of {} is not counted: {why}", p.path);
        }
        true
    }

    /// Notes in a plan what was done.
    async fn note(
        &self,
        place: &Place,
        of: (&str, Utime),
        made: Result<(), Errno>,
        pruned: u64,
        now: Utime,
    ) -> Result<(), Fail> {
        let c = self.connect().await.map_err(|e| (e, errno::name(e).to_owned()))?;
        let _guard = self.volumes.scheduled.lock.lock().await;
        match plan(&c, place.0, &place.1).await? {
            Some(mut p) => {
                p.done(of, made, pruned, now);
                keep(&c, place.0, &p).await
            }
            // It was removed meanwhile.
            None => Ok(()),
        }
    }
}
