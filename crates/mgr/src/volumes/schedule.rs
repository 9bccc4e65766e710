//! Scheduled snapshots of directories (`fs snap-schedule`), without I/O: what is due, and which snapshots stay.
//!
//! A [`Plan`] has the schedules of one directory and its retention. It is kept as JSON whose fields are those of the
//! tables of Ceph's module `snap_schedule`. A schedule is due at each multiple of its interval after its start; what was
//! due while nobody looked is not made up for. Times are seconds since 1970, UTC.

use super::Fail;
use base::errno::{EEXIST, EINVAL, EIO, ENOENT, ENOSPC};
use base::{Utime, errno};
use net::admin_socket::to_line;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Seconds of a day.
const DAY: u64 = 86_400;
/// Most schedules of a directory.
const SCHEDULES_MAX: usize = 64;
/// Longest path, in bytes: it is a part of a key.
pub const PATH_MAX: usize = 900;
/// Beginning of the names of scheduled snapshots.
const PREFIX: &str = "scheduled-";
/// Length of the time in such a name: `2026-11-29-07_00_00`.
const STAMP_LEN: usize = 19;
/// Periods of a retention, and how much of a name's time is equal within one. The week is not a part of the name.
const PERIODS: [(char, usize); 7] = [('n', 19), ('m', 16), ('h', 13), ('d', 10), ('w', 0), ('M', 7), ('y', 4)];

/// A schedule of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Its text, as `6h`.
    pub repeat: String,
    /// The start.
    pub start: Utime,
    /// Time at which it was made.
    pub created: Utime,
    /// Times of its first and last snapshot.
    pub made: Option<(Utime, Utime)>,
    /// Time of the last removal of old snapshots.
    pub last_pruned: Option<Utime>,
    /// Number of snapshots made.
    pub created_count: u64,
    /// Number of snapshots removed.
    pub pruned_count: u64,
    /// False after `deactivate`, or since the directory is gone.
    pub active: bool,
}

/// The schedules of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The directory, as it was given.
    pub path: String,
    /// The subvolume that it belongs to, if it was given by one.
    pub subvol: Option<String>,
    /// The subvolume's group.
    pub group: Option<String>,
    /// Numbers of snapshots that stay, by period.
    pub retention: Vec<(char, u32)>,
    /// At least one.
    pub schedules: Vec<Schedule>,
}

fn not_found<T>(text: String) -> Result<T, Fail> {
    Err((ENOENT, text))
}

/// Seconds between the snapshots of a schedule.
///
/// # Errors
/// `ENOENT`, as Ceph answers, with the reason.
pub fn interval(text: &str) -> Result<u64, Fail> {
    let units = "multiplier should be one of h,d,w,M,y";
    let split = text.char_indices().next_back().map(|(i, unit)| (text.get(..i).unwrap_or_default(), unit));
    let number = split.and_then(|(n, unit)| Some((n.parse::<i64>().ok()?, unit)));
    let Some((n, unit)) = number else {
        return not_found(format!(
            "invalid schedule specified - period should be non-zero positive value and {units} e.g. 1h or 4d etc."
        ));
    };
    let Some(n) = u64::try_from(n).ok().filter(|n| *n > 0) else {
        let why = "period must be a non-zero positive value e.g. 1h or 4d etc.";
        return not_found(format!("invalid schedule specified - {why}"));
    };
    let seconds = match unit {
        'm' => 60,
        'h' => 3600,
        'd' => DAY,
        'w' => 7 * DAY,
        'M' => 30 * DAY,
        'y' => 365 * DAY,
        _ => return not_found(format!("invalid schedule specified - {units}")),
    };
    n.checked_mul(seconds).map_or_else(|| not_found(format!("invalid schedule specified - {text} is too long")), Ok)
}

/// A retention from its text, as `24h7d`; `count` may hold the number of a single period.
fn retention(spec: &str, count: Option<&str>) -> Result<Vec<(char, u32)>, Fail> {
    let text = format!("{}{spec}", count.unwrap_or_default());
    let mut out: Vec<(char, u32)> = Vec::new();
    let mut digits = String::new();
    for c in text.chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        // None of a period would be all snapshots removed.
        if let Ok(n) = digits.parse()
            && n > 0
            && PERIODS.iter().any(|(p, _)| *p == c)
        {
            out.retain(|(p, _)| *p != c);
            out.push((c, n));
        }
        digits.clear();
    }
    if out.is_empty() { not_found(format!("Retention spec {text} is invalid")) } else { Ok(out) }
}

/// A time as the module writes it: `2026-11-29T07:00:00`.
fn stamp(t: Utime) -> String {
    let [y, m, d, hour, minute, second] = t.utc();
    format!("{y:04}-{m:02}-{d:02}T{hour:02}:{minute:02}:{second:02}")
}

fn stamp_or_null(t: Option<Utime>) -> Value {
    t.map_or(Value::Null, |t| stamp(t).into())
}

/// Name of a snapshot of this time.
#[must_use]
pub fn snapshot_name(t: Utime) -> String {
    let [y, m, d, hour, minute, second] = t.utc();
    format!("{PREFIX}{y:04}-{m:02}-{d:02}-{hour:02}_{minute:02}_{second:02}_UTC")
}

/// The time in the name of a scheduled snapshot, and its week; `None` for other snapshots.
fn time_of(name: &str) -> Option<(&str, u64)> {
    let (text, zone) = name.strip_prefix(PREFIX)?.split_at_checked(STAMP_LEN)?;
    if !matches!(zone, "" | "_UTC") {
        return None;
    }
    let (day, clock) = (text.get(..10)?, text.get(11..)?.replace('_', ":"));
    let t = Utime::parse(&format!("{day}T{clock}")).filter(|_| text.as_bytes().get(10) == Some(&b'-'))?;
    // Weeks begin on Monday; 1970 began on a Thursday.
    Some((text, (u64::from(t.sec) / DAY + 3) / 7))
}

/// Snapshots to remove among those of a directory. Those that no schedule made stay, and those of a clock that was ahead
/// of `now`; at most `most` stay with the former.
#[must_use]
pub fn excess<'a>(names: &'a [String], retention: &[(char, u32)], most: usize, now: Utime) -> Vec<&'a str> {
    let newest = snapshot_name(now);
    let newest = newest.get(PREFIX.len()..PREFIX.len() + STAMP_LEN).unwrap_or_default();
    let of_schedules = names.iter().filter_map(|n| Some((n.as_str(), time_of(n)?)));
    let mut all: Vec<(&str, (&str, u64))> = of_schedules.collect();
    all.retain(|(_, (time, _))| *time <= newest);
    let most = most.saturating_sub(names.len() - all.len()).max(1);
    all.sort_unstable();
    all.reverse();
    let everything = [('n', u32::try_from(most).unwrap_or(u32::MAX))];
    let retention = if retention.is_empty() { &everything[..] } else { retention };
    let mut kept: Vec<&str> = Vec::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for (period, part) in PERIODS {
        let of = retention.iter().find(|(p, _)| *p == period);
        let Some(count) = of.map(|(_, n)| *n as usize).filter(|n| *n > 0) else { continue };
        let (mut last, mut n) = (None, 0);
        for (name, (time, week)) in &all {
            let of = if period == 'w' { ("", *week) } else { (time.get(..part).unwrap_or_default(), 0) };
            if last.replace(of) == Some(of) || !known.insert(name) {
                continue;
            }
            kept.push(name);
            n += 1;
            if n == count {
                break;
            }
        }
    }
    let stays: BTreeSet<&str> = kept.into_iter().take(most).collect();
    all.into_iter().map(|(name, _)| name).filter(|n| !stays.contains(n)).collect()
}

impl Schedule {
    /// The first time after `after` at which it is due.
    fn next(&self, after: u64) -> Option<u64> {
        let (every, start) = (interval(&self.repeat).ok()?, u64::from(self.start.sec));
        // The start itself is not one of them.
        let n = after.saturating_sub(start) / every + 1;
        start.checked_add(n.checked_mul(every)?)
    }

    /// The last time in that from `after` to `now` at which it was due; it is not for the time before it was made.
    fn last(&self, after: u64, now: u64) -> Option<u64> {
        let (every, start, created) = (interval(&self.repeat).ok()?, self.start.sec.into(), self.created.sec.into());
        let n = now.checked_sub(start)? / every;
        let (at, after) = (start + n * every, if created > now { after } else { after.max(created) });
        (n > 0 && at > after).then_some(at)
    }

    fn is(&self, repeat: Option<&str>, start: Option<&str>) -> bool {
        let same = |s: &str| Utime::parse(s).is_some_and(|t| t.sec == self.start.sec);
        repeat.is_none_or(|r| r == self.repeat) && start.is_none_or(same)
    }

    fn stored(&self) -> Value {
        json!({
            "start": stamp(self.start),
            "first": stamp_or_null(self.made.map(|m| m.0)),
            "last": stamp_or_null(self.made.map(|m| m.1)),
            "last_pruned": stamp_or_null(self.last_pruned),
            "created": stamp(self.created),
            "schedule": self.repeat,
            "created_count": self.created_count,
            "pruned_count": self.pruned_count,
            "active": self.active,
        })
    }

    fn parse(v: &Value) -> Option<Self> {
        let time = |k: &str| v.get(k).and_then(Value::as_str).and_then(Utime::parse);
        let count = |k: &str| v.get(k).and_then(Value::as_u64).unwrap_or(0);
        let repeat = v.get("schedule")?.as_str()?.to_owned();
        interval(&repeat).ok()?;
        Some(Self {
            repeat,
            start: time("start")?,
            created: time("created")?,
            made: time("first").zip(time("last")),
            last_pruned: time("last_pruned"),
            created_count: count("created_count"),
            pruned_count: count("pruned_count"),
            active: v.get("active")?.as_bool()?,
        })
    }
}

/// Arguments of `fs snap-schedule add`.
#[derive(Clone, Copy, Debug)]
pub struct New<'a> {
    /// The directory, as it is kept.
    pub path: &'a str,
    /// The subvolume.
    pub subvol: Option<&'a str>,
    /// The subvolume's group.
    pub group: Option<&'a str>,
    /// The interval.
    pub repeat: &'a str,
    /// The start; today's midnight if it is missing.
    pub start: Option<&'a str>,
    /// Intervals of minutes are allowed.
    pub minutes: bool,
    /// Name of the file system, for texts.
    pub fs: &'a str,
}

impl Plan {
    /// Adds a schedule; `plan` is what the directory has.
    ///
    /// # Errors
    /// `ENOENT` for an interval or start that cannot be read, `EEXIST` for a schedule that is there, as Ceph answers.
    /// `EINVAL` for a path with control characters, `ENOSPC` if there are too many.
    pub fn add(plan: Option<Self>, n: &New<'_>, now: Utime) -> Result<Self, Fail> {
        let every = interval(n.repeat)?;
        let start = match n.start {
            None => Utime { sec: now.sec - now.sec % DAY as u32, nsec: 0 },
            Some(s) => Utime::parse(s).ok_or((ENOENT, format!("Invalid isoformat string: '{s}'")))?,
        };
        if n.repeat.ends_with('m') && !n.minutes {
            return not_found("invalid schedule specified - multiplier should be one of h,d,w,M,y".to_owned());
        }
        if n.path.chars().any(char::is_control) {
            return Err((EINVAL, "a path with schedules has no control characters".to_owned()));
        }
        let mut p = plan.unwrap_or_default();
        // A subvolume that was made anew has another directory for its data.
        p.path = n.path.to_owned();
        (p.subvol, p.group) = (n.subvol.map(str::to_owned), n.group.map(str::to_owned));
        if p.schedules.iter().any(|s| s.start.sec == start.sec && interval(&s.repeat) == Ok(every)) {
            let all: Vec<String> = p.reports(n.fs).iter().map(|r| format!("'{}'", to_line(r))).collect();
            return Err((EEXIST, format!("Found existing schedule [{}]", all.join(", "))));
        }
        if p.schedules.len() >= SCHEDULES_MAX {
            return Err((ENOSPC, format!("{} has {SCHEDULES_MAX} schedules already", p.path)));
        }
        p.schedules.push(Schedule {
            repeat: n.repeat.to_owned(),
            start: Utime { nsec: 0, ..start },
            created: now,
            made: None,
            last_pruned: None,
            created_count: 0,
            pruned_count: 0,
            active: true,
        });
        Ok(p)
    }

    /// Removes schedules; all of them without an interval and start.
    ///
    /// # Errors
    /// `ENOENT` if there is none of these.
    pub fn remove(&mut self, repeat: Option<&str>, start: Option<&str>) -> Result<(), Fail> {
        let had = self.schedules.len();
        self.schedules.retain(|s| !s.is(repeat, start));
        if self.schedules.len() == had {
            let word = |w: Option<&str>| w.unwrap_or("None").to_owned();
            return not_found(format!("No schedule found for {} {}", word(repeat), word(start)));
        }
        Ok(())
    }

    /// Switches schedules on or off.
    ///
    /// # Errors
    /// `ENOENT` if there is none of these.
    pub fn activate(&mut self, repeat: Option<&str>, start: Option<&str>, on: bool) -> Result<(), Fail> {
        let mut found = self.schedules.iter_mut().filter(|s| s.is(repeat, start)).peekable();
        if found.peek().is_none() {
            return not_found(format!("SnapSchedule for {} not found", self.path));
        }
        found.for_each(|s| s.active = on);
        Ok(())
    }

    /// Adds to the retention.
    ///
    /// # Errors
    /// `ENOENT` for a text without a period, `EIO` for a period that is there, as Ceph answers.
    pub fn retain(&mut self, spec: &str, count: Option<&str>) -> Result<(), Fail> {
        let more = retention(spec, count)?;
        for (p, _) in &more {
            if let Some((_, n)) = self.retention.iter().find(|(o, _)| o == p) {
                let text = format!("Retention for {p} is already present with value {n}. Please remove it first.");
                return Err((EIO, text));
            }
        }
        self.retention.extend(more);
        Ok(())
    }

    /// Takes from the retention.
    ///
    /// # Errors
    /// `ENOENT` for a text without a period, and for one that is not there with this number.
    pub fn release(&mut self, spec: &str, count: Option<&str>) -> Result<(), Fail> {
        let less = retention(spec, count)?;
        if let Some((p, n)) = less.iter().find(|r| !self.retention.contains(r)) {
            return not_found(format!("Retention for {p}: {n} was not set for {} can't remove", self.path));
        }
        self.retention.retain(|r| !less.contains(r));
        Ok(())
    }

    /// The schedule that was due in the time from `after` to `now`, and when. One snapshot serves all that were; it is for
    /// the last of them.
    #[must_use]
    pub fn due(&self, after: u64, now: u64, minutes: bool) -> Option<(usize, u64)> {
        let all = self.working(minutes).filter_map(|(i, s)| Some((i, s.last(after, now)?)));
        all.max_by_key(|(i, at)| (*at, std::cmp::Reverse(*i)))
    }

    /// The time at which a schedule is due next.
    #[must_use]
    pub fn next(&self, now: u64, minutes: bool) -> Option<u64> {
        self.working(minutes).filter_map(|(_, s)| s.next(now)).min()
    }

    fn working(&self, minutes: bool) -> impl Iterator<Item = (usize, &Schedule)> {
        let all = self.schedules.iter().enumerate();
        all.filter(move |(_, s)| s.active && (minutes || !s.repeat.ends_with('m')))
    }

    fn retention_object(&self) -> Value {
        Value::Object(self.retention.iter().map(|(p, n)| (p.to_string(), (*n).into())).collect())
    }

    /// The schedules as `status` shows them.
    #[must_use]
    pub fn reports(&self, fs: &str) -> Vec<Value> {
        let one = |s: &Schedule| {
            json!({
                "fs": fs,
                "subvol": self.subvol,
                "group": self.group,
                "path": self.path,
                "rel_path": self.path,
                "schedule": s.repeat,
                "retention": self.retention_object(),
                "start": stamp(s.start),
                "created": stamp(s.created),
                "first": stamp_or_null(s.made.map(|m| m.0)),
                "last": stamp_or_null(s.made.map(|m| m.1)),
                "last_pruned": stamp_or_null(s.last_pruned),
                "created_count": s.created_count,
                "pruned_count": s.pruned_count,
                "active": s.active,
            })
        };
        self.schedules.iter().map(one).collect()
    }

    /// The schedules as `list` shows them: lines, and pairs of an interval and a retention.
    #[must_use]
    pub fn listed(&self) -> Vec<(String, Value, Value)> {
        let of = |(p, _): &(char, usize)| self.retention.iter().find(|(o, _)| o == p);
        let kept: String = PERIODS.iter().filter_map(of).map(|(p, n)| format!("{n}{p}")).collect();
        let line = |s: &Schedule| format!("{} {} {kept}", self.path, s.repeat);
        self.schedules.iter().map(|s| (line(s), json!(s.repeat), self.retention_object())).collect()
    }

    /// The form that is kept.
    #[must_use]
    pub fn stored(&self) -> String {
        json!({
            "path": self.path,
            "subvol": self.subvol,
            "group_name": self.group,
            "retention": self.retention_object(),
            "schedules": self.schedules.iter().map(Schedule::stored).collect::<Vec<_>>(),
        })
        .to_string()
    }

    /// Reads the form that is kept.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let v: Map<String, Value> = serde_json::from_str(text).ok()?;
        let word = |k: &str| v.get(k).and_then(Value::as_str).map(str::to_owned);
        let kept = |(k, n): (&String, &Value)| Some((k.chars().next()?, u32::try_from(n.as_u64()?).ok()?));
        Some(Self {
            path: word("path")?,
            subvol: word("subvol"),
            group: word("group_name"),
            retention: v.get("retention")?.as_object()?.iter().filter_map(kept).collect(),
            schedules: v.get("schedules")?.as_array()?.iter().map(Schedule::parse).collect::<Option<_>>()?,
        })
    }

    /// Notes a snapshot of a schedule, or that the directory is gone, and the number of snapshots that were removed.
    pub fn done(&mut self, of: (&str, Utime), made: Result<(), errno::Errno>, pruned: u64, now: Utime) {
        let Some(s) = self.schedules.iter_mut().find(|s| s.repeat == of.0 && s.start == of.1) else { return };
        match made {
            Ok(()) => {
                s.created_count += 1;
                s.made = Some((s.made.map_or(now, |m| m.0), now));
            }
            Err(ENOENT) => s.active = false,
            Err(_) => {}
        }
        if pruned > 0 {
            s.pruned_count += pruned;
            s.last_pruned = Some(now);
        }
    }
}

/// The directory in front of `..` at a path's end: while it is missing, so is what the path names.
#[must_use]
pub fn anchor(path: &str) -> Option<String> {
    path.strip_suffix("/..").map(directory)
}

/// The directory that a path names, without a slash in front; empty for the root. `..` goes back within the path.
#[must_use]
pub fn directory(path: &str) -> String {
    let mut names = Vec::new();
    for n in path.split('/') {
        match n {
            "" | "." => {}
            ".." => drop(names.pop()),
            n => names.push(n),
        }
    }
    names.join("/")
}

#[cfg(test)]
mod tests;
